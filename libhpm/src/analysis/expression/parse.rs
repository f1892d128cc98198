//! From words to a tree.

use super::lex::{Placed, Problem, Token};

/// Deeper nesting is refused, so that no expression can exhaust the stack.
const DEPTH_MAX: usize = 100;

/// A part of an expression, and at which byte it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Number(usize, f64),
    Text(usize, String),
    Name(usize, String),
    Negative(Box<Node>),
    Not(Box<Node>),
    Two(usize, Operator, Box<Node>, Box<Node>),
    Call(usize, Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Matches,
    MatchesNot,
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Min,
    Max,
    Abs,
    Sqrt,
    Log,
    If,
}

/// A function's name, its arguments and what it comes to.
pub type FunctionName = (&'static str, &'static str, &'static str);

const FUNCTIONS: [(Function, FunctionName); 6] = [
    (Function::Min, ("min", "a, b", "the smaller one; the other one where one is not a number")),
    (Function::Max, ("max", "a, b", "the greater one; the other one where one is not a number")),
    (Function::Abs, ("abs", "a", "without its sign")),
    (Function::Sqrt, ("sqrt", "a", "the square root")),
    (Function::Log, ("log", "a", "the natural logarithm")),
    (Function::If, ("if", "condition, a, b", "`a` where the condition is true, else `b`")),
];

/// Every function.
pub fn functions() -> impl Iterator<Item = FunctionName> {
    FUNCTIONS.iter().map(|(_, name)| *name)
}

impl Function {
    /// By its name, with the number of its arguments.
    fn named(name: &str) -> Option<(Self, usize)> {
        let (function, (_, arguments, _)) = FUNCTIONS.iter().find(|(_, (known, ..))| *known == name)?;
        Some((*function, arguments.split(',').count()))
    }
}

/// Operators that bind equally strongly, the weakest first; those of the third level do not chain.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("or", Operator::Or), ("||", Operator::Or)],
    &[("and", Operator::And), ("&&", Operator::And)],
    &[
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("!~", Operator::MatchesNot),
        ("~", Operator::Matches),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide)],
];
const COMPARISONS: usize = 2;

/// The tree of all words; `end` is where the text ends.
pub(super) fn parse(tokens: &[Placed], end: usize) -> Result<Node, Problem> {
    let mut parser = Parser { tokens, end, next: 0, depth: 0 };
    let root = parser.level(0)?;
    match parser.tokens.get(parser.next) {
        None => Ok(root),
        Some((place, token)) => Err((*place, format!("has {} where it should end", describe(token)))),
    }
}

struct Parser<'a> {
    tokens: &'a [Placed],
    end: usize,
    next: usize,
    depth: usize,
}

impl Parser<'_> {
    fn place(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(place, _)| *place)
    }

    /// Takes the word if it is this sign or, for `and`, `or` and `not`, this name.
    fn take(&mut self, wanted: &str) -> bool {
        let found = match self.tokens.get(self.next) {
            Some((_, Token::Sign(sign))) => *sign == wanted,
            Some((_, Token::Name(name))) => name == wanted,
            _ => false,
        };
        self.next += usize::from(found);
        found
    }

    fn level(&mut self, level: usize) -> Result<Node, Problem> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        // `not` is weaker than a comparison.
        let mut left = if level == COMPARISONS { self.negated()? } else { self.level(level + 1)? };
        loop {
            let place = self.place();
            let Some((_, operator)) = operators.iter().find(|(sign, _)| self.take(sign)) else {
                return Ok(left);
            };
            let right = self.level(level + 1)?;
            left = Node::Two(place, *operator, Box::new(left), Box::new(right));
            if level == COMPARISONS {
                return Ok(left);
            }
        }
    }

    fn negated(&mut self) -> Result<Node, Problem> {
        if !(self.take("not") || self.take("!")) {
            return self.level(COMPARISONS + 1);
        }
        self.deeper(|parser| Ok(Node::Not(Box::new(parser.level(COMPARISONS)?))))
    }

    fn unary(&mut self) -> Result<Node, Problem> {
        if self.take("-") {
            return self.deeper(|parser| Ok(Node::Negative(Box::new(parser.unary()?))));
        }
        let place = self.place();
        let Some((_, token)) = self.tokens.get(self.next) else {
            return Err((place, "ends where a number, a name or a parenthesis should be".to_owned()));
        };
        self.next += 1;
        match token {
            Token::Number(number) => Ok(Node::Number(place, *number)),
            Token::Text(text) => Ok(Node::Text(place, text.clone())),
            Token::Name(name) => match Function::named(name).filter(|_| self.take("(")) {
                Some((function, arguments)) => {
                    self.deeper(|parser| parser.call(place, name, function, arguments))
                }
                None => Ok(Node::Name(place, name.clone())),
            },
            Token::Sign("(") => self.deeper(|parser| {
                let inner = parser.level(0)?;
                parser.close(place)?;
                Ok(inner)
            }),
            sign @ Token::Sign(_) => {
                Err((place, format!("has {} where a number or a name should be", describe(sign))))
            }
        }
    }

    fn call(&mut self, place: usize, name: &str, function: Function, wanted: usize) -> Result<Node, Problem> {
        let mut arguments = vec![self.level(0)?];
        while self.take(",") {
            arguments.push(self.level(0)?);
        }
        self.close(place)?;
        match arguments.len() {
            given if given == wanted => Ok(Node::Call(place, function, arguments)),
            given => Err((place, format!("gives {given} arguments to `{name}`, which takes {wanted}"))),
        }
    }

    fn close(&mut self, opened: usize) -> Result<(), Problem> {
        if self.take(")") { Ok(()) } else { Err((opened, "has a parenthesis that is not closed".to_owned())) }
    }

    fn deeper(&mut self, inner: impl FnOnce(&mut Self) -> Result<Node, Problem>) -> Result<Node, Problem> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err((self.place(), format!("is nested deeper than {DEPTH_MAX} levels")));
        }
        let node = inner(self)?;
        self.depth -= 1;
        Ok(node)
    }
}

fn describe(token: &Token) -> String {
    match token {
        Token::Number(number) => format!("the number {number}"),
        Token::Text(text) => format!("the text \"{text}\""),
        Token::Name(name) => format!("the name `{name}`"),
        Token::Sign(sign) => format!("`{sign}`"),
    }
}
