//! What names mean, and what an expression comes to.

use std::cell::Cell;

use regex_lite::{Regex, RegexBuilder};

use super::parse::{Function, Node, Operator};
use super::{Expression, ExpressionError};

/// Definitions that name each other are followed so far.
const DEFINITIONS_MAX: usize = 16;
/// Parts of an expression, those of its definitions included, in all and below each other: definitions that use each other
/// several times would grow without end.
const PARTS_MAX: usize = 100_000;
const DEPTH_MAX: usize = 300;
/// Bytes of a compiled regular expression.
const PATTERN_MAX: usize = 1 << 20;

/// What a variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A text.
    Text,
}

/// A variable's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Of [`Kind::Number`].
    Number(f64),
    /// Of [`Kind::Text`].
    Text(&'a str),
}

/// A place with names.
pub trait Scope {
    /// How a variable is found again when the expression is evaluated.
    type Variable: Copy;

    /// The variable with this name.
    fn variable(&self, name: &str) -> Option<(Self::Variable, Kind)>;
    /// The expression that is defined by this name.
    fn definition(&self, name: &str) -> Option<Expression>;
    /// All names, for those who do not know them.
    fn names(&self) -> Vec<String>;
}

/// An expression that can be evaluated.
#[derive(Clone, Debug)]
pub struct Bound<V> {
    pub(super) root: Meaning<V>,
}

#[derive(Clone, Debug)]
pub(super) enum Meaning<V> {
    Number(f64),
    Variable(V),
    Negative(Box<Meaning<V>>),
    Not(Box<Meaning<V>>),
    Two(Operator, Box<Meaning<V>>, Box<Meaning<V>>),
    Equal(Words<V>, Words<V>),
    Matches(Words<V>, Box<Regex>),
    Call(Function, Vec<Meaning<V>>),
}

/// A text.
#[derive(Clone, Debug)]
pub(super) enum Words<V> {
    Constant(String),
    Variable(V),
}

/// A part of either kind.
enum Part<V> {
    Number(Meaning<V>),
    Text(Words<V>),
}

struct Binder<'a, S: Scope> {
    text: &'a str,
    scope: &'a S,
    /// Definitions above this one.
    definitions: usize,
    /// Parts so far, of all definitions.
    parts: &'a Cell<usize>,
    /// Parts above this one, of all definitions.
    depth: &'a Cell<usize>,
}

pub(super) fn bind<S: Scope>(
    expression: &Expression,
    scope: &S,
) -> Result<Bound<S::Variable>, ExpressionError> {
    let (parts, depth) = (Cell::new(0), Cell::new(0));
    let binder = Binder { text: &expression.text, scope, definitions: 0, parts: &parts, depth: &depth };
    Ok(Bound { root: binder.number(&expression.root)? })
}

impl<S: Scope> Binder<'_, S> {
    fn problem(&self, place: usize, problem: String) -> ExpressionError {
        let position = self.text.get(..place).map_or(place, |before| before.chars().count()) + 1;
        ExpressionError { text: self.text.to_owned(), problem, position }
    }

    fn number(&self, node: &Node) -> Result<Meaning<S::Variable>, ExpressionError> {
        match self.part(node)? {
            Part::Number(meaning) => Ok(meaning),
            Part::Text(_) => Err(self
                .problem(place(node), "has a text where a number should be; compare it by == or ~".into())),
        }
    }

    fn words(&self, node: &Node) -> Result<Words<S::Variable>, ExpressionError> {
        match self.part(node)? {
            Part::Text(words) => Ok(words),
            Part::Number(_) => Err(self.problem(place(node), "has a number where a text should be".into())),
        }
    }

    fn part(&self, node: &Node) -> Result<Part<S::Variable>, ExpressionError> {
        self.parts.set(self.parts.get() + 1);
        self.depth.set(self.depth.get() + 1);
        if self.parts.get() > PARTS_MAX || self.depth.get() > DEPTH_MAX {
            return Err(self.problem(place(node), "is too large with its definitions".to_owned()));
        }
        let part = self.meaning(node);
        self.depth.set(self.depth.get() - 1);
        part
    }

    fn meaning(&self, node: &Node) -> Result<Part<S::Variable>, ExpressionError> {
        let boxed = |node: &Node| self.number(node).map(Box::new);
        Ok(Part::Number(match node {
            Node::Number(_, number) => Meaning::Number(*number),
            Node::Text(_, text) => return Ok(Part::Text(Words::Constant(text.clone()))),
            Node::Name(place, name) => return self.name(*place, name),
            Node::Negative(inner) => Meaning::Negative(boxed(inner)?),
            Node::Not(inner) => Meaning::Not(boxed(inner)?),
            Node::Call(_, function, arguments) => Meaning::Call(
                *function,
                arguments.iter().map(|node| self.number(node)).collect::<Result<_, _>>()?,
            ),
            Node::Two(_, operator @ (Operator::Matches | Operator::MatchesNot), left, right) => {
                let matches = Meaning::Matches(self.words(left)?, Box::new(self.pattern(right)?));
                if *operator == Operator::Matches { matches } else { Meaning::Not(Box::new(matches)) }
            }
            Node::Two(_, operator @ (Operator::Equal | Operator::NotEqual), left, right) => {
                let equal = match (self.part(left)?, self.part(right)?) {
                    (Part::Number(left), Part::Number(right)) => {
                        return Ok(Part::Number(Meaning::Two(*operator, Box::new(left), Box::new(right))));
                    }
                    (Part::Text(left), Part::Text(right)) => Meaning::Equal(left, right),
                    _ => return Err(self.problem(place(node), "compares a text with a number".into())),
                };
                if *operator == Operator::Equal { equal } else { Meaning::Not(Box::new(equal)) }
            }
            Node::Two(_, operator, left, right) => Meaning::Two(*operator, boxed(left)?, boxed(right)?),
        }))
    }

    fn name(&self, place: usize, name: &str) -> Result<Part<S::Variable>, ExpressionError> {
        if let Some((variable, kind)) = self.scope.variable(name) {
            return Ok(match kind {
                Kind::Number => Part::Number(Meaning::Variable(variable)),
                Kind::Text => Part::Text(Words::Variable(variable)),
            });
        }
        let Some(definition) = self.scope.definition(name) else {
            return Err(self.problem(place, unknown(name, self.scope.names())));
        };
        if self.definitions >= DEFINITIONS_MAX {
            return Err(self.problem(place, format!("uses `{name}`, which is defined by itself")));
        }
        let binder = Binder { text: &definition.text, definitions: self.definitions + 1, ..*self };
        match binder.part(&definition.root) {
            // Where a part of it is missing, the name that was written is what has to be told.
            Err(error) if self.definitions == 0 => {
                Err(self.problem(place, format!("needs `{name}`, but `{}` {}", error.text, error.problem)))
            }
            result => result,
        }
    }

    fn pattern(&self, node: &Node) -> Result<Regex, ExpressionError> {
        let Node::Text(_, pattern) = node else {
            return Err(self.problem(place(node), "needs a regular expression in quotes behind ~".into()));
        };
        RegexBuilder::new(pattern)
            .size_limit(PATTERN_MAX)
            .build()
            .map_err(|reason| self.problem(place(node), format!("has a bad regular expression: {reason}")))
    }
}

fn unknown(name: &str, names: Vec<String>) -> String {
    let mut near: Vec<(usize, String)> =
        names.into_iter().map(|known| (strsim::damerau_levenshtein(&known, name), known)).collect();
    near.sort();
    let what = format!("names `{name}`, which is not known here");
    match near.first() {
        Some((distance, known)) if *distance <= 2 => format!("{what}; did you mean `{known}`?"),
        _ if name.contains('-') => format!("{what}; to subtract, put spaces around the minus"),
        _ => {
            let names: Vec<String> = near.into_iter().map(|(_, known)| known).take(12).collect();
            format!("{what}; known are, among others: {}", names.join(", "))
        }
    }
}

/// Where a part stands; of an operator, the sign.
fn place(node: &Node) -> usize {
    match node {
        Node::Number(place, _) | Node::Text(place, _) | Node::Name(place, _) => *place,
        Node::Two(place, ..) | Node::Call(place, ..) => *place,
        Node::Negative(inner) | Node::Not(inner) => place(inner),
    }
}

impl<V: Copy> Bound<V> {
    /// What it comes to with these values of the variables; not a number where it cannot be computed.
    pub fn number<'a>(&self, values: &impl Fn(V) -> Value<'a>) -> f64 {
        self.root.number(values)
    }

    /// Whether it is true: a number, and not 0.
    pub fn is_true<'a>(&self, values: &impl Fn(V) -> Value<'a>) -> bool {
        truth(self.number(values))
    }
}

fn truth(number: f64) -> bool {
    number != 0.0 && !number.is_nan()
}

impl<V: Copy> Meaning<V> {
    pub(super) fn number<'a>(&self, values: &impl Fn(V) -> Value<'a>) -> f64 {
        let condition = |holds: bool| f64::from(u8::from(holds));
        match self {
            Self::Number(number) => *number,
            Self::Variable(variable) => match values(*variable) {
                Value::Number(number) => number,
                // Its scope has said that it is a number.
                Value::Text(_) => f64::NAN,
            },
            Self::Negative(inner) => -inner.number(values),
            Self::Not(inner) => condition(!truth(inner.number(values))),
            Self::Two(operator, left, right) => two(*operator, left, right, values),
            Self::Equal(left, right) => condition(left.text(values) == right.text(values)),
            Self::Matches(words, pattern) => condition(pattern.is_match(words.text(values))),
            Self::Call(function, arguments) => {
                let argument = |index: usize| arguments[index].number(values);
                match function {
                    Function::Min => argument(0).min(argument(1)),
                    Function::Max => argument(0).max(argument(1)),
                    Function::Abs => argument(0).abs(),
                    Function::Sqrt => argument(0).sqrt(),
                    Function::Log => argument(0).ln(),
                    Function::If => argument(if truth(argument(0)) { 1 } else { 2 }),
                }
            }
        }
    }
}

fn two<'a, V: Copy>(
    operator: Operator,
    left: &Meaning<V>,
    right: &Meaning<V>,
    values: &impl Fn(V) -> Value<'a>,
) -> f64 {
    let condition = |holds: bool| f64::from(u8::from(holds));
    let a = left.number(values);
    // The right side matters only where the left one leaves it open.
    match operator {
        Operator::Or => return condition(truth(a) || truth(right.number(values))),
        Operator::And => return condition(truth(a) && truth(right.number(values))),
        _ => {}
    }
    let b = right.number(values);
    match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        Operator::Less => condition(a < b),
        Operator::LessOrEqual => condition(a <= b),
        Operator::Greater => condition(a > b),
        Operator::GreaterOrEqual => condition(a >= b),
        Operator::Equal => condition(a == b),
        Operator::NotEqual => condition(!a.is_nan() && !b.is_nan() && a != b),
        // They have returned above, and compare texts.
        Operator::Or | Operator::And | Operator::Matches | Operator::MatchesNot => f64::NAN,
    }
}

impl<V: Copy> Words<V> {
    fn text<'a: 'b, 'b>(&'b self, values: &impl Fn(V) -> Value<'a>) -> &'b str {
        match self {
            Self::Constant(text) => text,
            Self::Variable(variable) => match values(*variable) {
                Value::Text(text) => text,
                Value::Number(_) => "",
            },
        }
    }
}
