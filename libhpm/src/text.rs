//! Text that measured programs chose, so that it can be shown: their threads' names, paths, command lines.
//!
//! A control character of it would move a terminal's cursor, or break a table's row; whoever sets one (prctl(2) PR_SET_NAME takes any bytes) could
//! have the terminal of whoever measures him do as he likes. So they are shown as their pictures (Unicode 2400 to 2421).

use std::borrow::Cow;

/// One line of text: every control character as its picture.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    replaced(text, char::is_control)
}

/// Lines of text: control characters as their pictures, but for line ends and tabs.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    replaced(text, |character| character.is_control() && !matches!(character, '\n' | '\t'))
}

/// A name in the kernel's bytes, as one line of text; what is no UTF-8 as the replacement character.
#[must_use]
pub fn name(bytes: &[u8]) -> String {
    line(&String::from_utf8_lossy(bytes)).into_owned()
}

fn replaced(text: &str, is_replaced: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_replaced) {
        return Cow::Borrowed(text);
    }
    text.chars()
        .map(|character| if is_replaced(character) { picture(character) } else { character })
        .collect()
}

/// That of a control character; those above 0x7f have none.
fn picture(character: char) -> char {
    match character {
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(name(b"a\n\x1b[31mX\x7f\xc2\x9bm"), "a␊␛[31mX␡\u{fffd}m");
        assert_eq!(lines("a\n\tb\r\x1b[2J"), "a\n\tb␍␛[2J");
        assert!(matches!(line("plain, ünïcode"), Cow::Borrowed(_)));
    }
}
