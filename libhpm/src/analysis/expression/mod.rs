//! One language for metrics and filters, used wherever hpm computes from counts: `instructions / cycles`,
//! `duration_ns > 5 ms and thread ~ "worker"`.
//!
//! - Names are those of the place where the expression is used (events, `cpu`, `thread`, …) and of defined metrics such as
//!   `ipc`. They begin with a letter and may have digits, `_`, `.`, `:` and, before a letter, `-` in them, so that events
//!   need no quotes; to subtract, put spaces around the minus. Any other name goes between backquotes.
//! - Numbers have an optional suffix: `k`, `M`, `G`, and for times, which are nanoseconds, `ns`, `us`, `ms`, `s`. `0x` begins
//!   a hexadecimal one. Texts stand in double quotes; `\"` and `\\` are the only escapes.
//! - By growing strength: `or`, `and`, `not`; `<`, `<=`, `>`, `>=`, `==`, `!=`, and for texts `==`, `!=`, `~` (a regular
//!   expression matches somewhere) and `!~`; `+`, `-`; `*`, `/`; a leading `-`. `||`, `&&` and `!` are the same as the words.
//! - Functions: `min(a, b)`, `max(a, b)`, `abs(a)`, `sqrt(a)`, `log(a)` (natural), `if(condition, a, b)`.
//!
//! A condition is 1 or 0, and any number but 0 is true. What cannot be computed (0 / 0, a count that a record has not) is
//! not a number: it is false in every comparison, and statistics leave it out.

mod bind;
mod lex;
mod outline;
mod parse;

#[cfg(test)]
mod tests;

use std::fmt;

pub use self::bind::{Bound, Kind, Scope, Value};
use self::parse::Node;
pub use self::parse::{FunctionName, functions};

/// An expression that has been read, but not yet given a meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    root: Node,
}

/// Why an expression is none: a sentence, and below it the expression with a caret at the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// The whole expression.
    pub text: String,
    /// What is wrong, as what follows "the expression".
    pub problem: String,
    /// Where, as a character from 1.
    pub position: usize,
}

impl ExpressionError {
    /// What is wrong, without the expression.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("the expression {}", self.problem)
    }
}

impl std::error::Error for ExpressionError {}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // On one line, each character in its place.
        let text: String = self.text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        write!(f, "{}\n  {text}\n  {:>place$}", self.sentence(), '^', place = self.position)
    }
}

/// Longer expressions are refused: a chain as deep as this must not exhaust the stack.
const WORDS_MAX: usize = 512;

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`ExpressionError`] where it breaks the rules above.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let at = |(position, problem): (usize, String)| ExpressionError {
            text: text.to_owned(),
            problem,
            position: text.get(..position).map_or(position, |before| before.chars().count()) + 1,
        };
        let tokens = lex::tokens(text).map_err(at)?;
        if let Some((place, _)) = tokens.get(WORDS_MAX) {
            return Err(at((*place, format!("has more than {WORDS_MAX} words"))));
        }
        let root = parse::parse(&tokens, text.len()).map_err(at)?;
        Ok(Self { text: text.to_owned(), root })
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Gives every name the meaning that it has in a place.
    ///
    /// # Errors
    /// [`ExpressionError`] for a name that means nothing there, and for texts and numbers where the other is needed.
    pub fn bind<S: Scope>(&self, scope: &S) -> Result<Bound<S::Variable>, ExpressionError> {
        bind::bind(self, scope)
    }
}
