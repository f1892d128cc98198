//! The words of an expression.

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Number(f64),
    Text(String),
    Name(String),
    Sign(&'static str),
}

/// A word, and at which byte it begins.
pub(super) type Placed = (usize, Token);

/// Where and what is wrong.
pub(super) type Problem = (usize, String);

/// Longer ones first, so that `<=` is not `<` and `=`.
const SIGNS: [&str; 18] =
    ["<=", ">=", "==", "!=", "!~", "&&", "||", "<", ">", "~", "!", "+", "-", "*", "/", "(", ")", ","];

/// What a number's suffix stands for.
const SUFFIXES: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("k", 1e3), ("M", 1e6), ("G", 1e9)];

pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, Problem> {
    let mut tokens = Vec::new();
    let mut place = 0;
    while let Some(first) = text[place..].chars().next() {
        let rest = &text[place..];
        let (token, length) = match first {
            space if space.is_whitespace() => {
                place += space.len_utf8();
                continue;
            }
            '0'..='9' | '.' => number(rest).map_err(|problem| (place, problem))?,
            '"' => quoted(rest).ok_or_else(|| (place, "has a text without its closing quote".to_owned()))?,
            '`' => match rest[1..].split_once('`') {
                Some((name, _)) => (Token::Name(name.to_owned()), name.len() + 2),
                None => return Err((place, "has a name without its closing backquote".to_owned())),
            },
            letter if letter.is_alphabetic() || letter == '_' => {
                let length = name_length(rest);
                (Token::Name(rest[..length].to_owned()), length)
            }
            other => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(sign), sign.len()),
                None if other == '=' => {
                    return Err((
                        place,
                        "has `=`, which means nothing here; to compare, write ==".to_owned(),
                    ));
                }
                None => return Err((place, format!("has `{other}`, which means nothing here"))),
            },
        };
        tokens.push((place, token));
        place += length;
    }
    Ok(tokens)
}

fn name_length(text: &str) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((place, char)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let part = match char {
            // A hyphen belongs to a name only before a letter.
            '-' => next.is_some_and(char::is_alphabetic),
            ':' | '.' => next.is_some_and(char::is_alphanumeric),
            other => other.is_alphanumeric() || other == '_',
        };
        if !part {
            return place;
        }
    }
    text.len()
}

fn number(text: &str) -> Result<(Token, usize), String> {
    if let Some(digits) = text.strip_prefix("0x") {
        let length = digits.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(digits.len());
        let value =
            u64::from_str_radix(&digits[..length], 16).map_err(|_| "has no hexadecimal number".to_owned())?;
        return Ok((Token::Number(value as f64), length + 2));
    }
    let mut length = text.find(|digit: char| !digit.is_ascii_digit() && digit != '.').unwrap_or(text.len());
    // 1e6, but not the name in 1 event.
    if let Some(exponent) = text[length..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let digits =
            exponent[sign..].find(|digit: char| !digit.is_ascii_digit()).unwrap_or(exponent.len() - sign);
        if digits > 0 {
            length += 1 + sign + digits;
        }
    }
    let value: f64 =
        text[..length].parse().map_err(|_| format!("has `{}`, which is no number", &text[..length]))?;
    // The suffix may stand apart.
    let gap = text[length..].len() - text[length..].trim_start().len();
    let word = &text[length + gap..];
    let word = &word[..word.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(word.len())];
    match SUFFIXES.iter().find(|(suffix, _)| *suffix == word) {
        Some((suffix, factor)) => Ok((Token::Number(value * factor), length + gap + suffix.len())),
        None if gap == 0 && !word.is_empty() => {
            Err(format!("has a number with `{word}` behind it, which is no unit"))
        }
        None => Ok((Token::Number(value), length)),
    }
}

fn quoted(text: &str) -> Option<(Token, usize)> {
    let mut content = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((place, char)) = chars.next() {
        match char {
            '"' => return Some((Token::Text(content), place + 1)),
            '\\' => match chars.next()?.1 {
                escaped @ ('"' | '\\') => content.push(escaped),
                // As in a regular expression, whose own escapes need no doubling.
                other => content.extend(['\\', other]),
            },
            other => content.push(other),
        }
    }
    None
}
