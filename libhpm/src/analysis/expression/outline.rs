//! An expression as data, for a program in another language that computes it as [`Bound::number`] does.

use serde_json::{Value as Json, json};

use super::bind::{Bound, Meaning};
use super::parse::{Function, Operator};

impl<V: Copy> Bound<V> {
    /// The expression's parts: a number, `null` for what is not a number, what `column` gives for a variable, or a list of an
    /// operator's or function's name and its parts. Texts are taken for empty, as they are of several records together.
    pub fn outline(&self, column: &mut impl FnMut(V) -> Json) -> Json {
        self.root.outline(column)
    }
}

impl<V: Copy> Meaning<V> {
    fn outline(&self, column: &mut impl FnMut(V) -> Json) -> Json {
        match self {
            Self::Number(number) => json!(number),
            Self::Variable(variable) => column(*variable),
            Self::Negative(inner) => json!(["negative", inner.outline(column)]),
            Self::Not(inner) => json!(["not", inner.outline(column)]),
            Self::Two(operator, left, right) => {
                json!([symbol(*operator), left.outline(column), right.outline(column)])
            }
            Self::Equal(..) | Self::Matches(..) => json!(self.number(&|_| super::Value::Text(""))),
            Self::Call(function, arguments) => {
                let mut parts = vec![json!(name(*function))];
                parts.extend(arguments.iter().map(|argument| argument.outline(column)));
                Json::Array(parts)
            }
        }
    }
}

fn symbol(operator: Operator) -> &'static str {
    match operator {
        Operator::Or => "or",
        Operator::And => "and",
        Operator::Less => "<",
        Operator::LessOrEqual => "<=",
        Operator::Greater => ">",
        Operator::GreaterOrEqual => ">=",
        Operator::Equal => "==",
        Operator::NotEqual => "!=",
        Operator::Matches => "~",
        Operator::MatchesNot => "!~",
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
    }
}

fn name(function: Function) -> &'static str {
    match function {
        Function::Min => "min",
        Function::Max => "max",
        Function::Abs => "abs",
        Function::Sqrt => "sqrt",
        Function::Log => "log",
        Function::If => "if",
    }
}
