//! Raw events, as perf writes them.

use crate::{Error, Result};

/// Bits of IA32_PERFEVTSELx that an event may set (SDM Vol. 3B 20.2.1.1): event select, unit mask, edge detect, invert and
/// counter mask. The privilege is said by modifiers; all others are the driver's.
const EVENT_BITS: u64 = 0xff | 0xff << 8 | 1 << 18 | 1 << 23 | 0xff << 24;

/// The encoding of a raw event; `None` when the text is not one.
pub(super) fn parse(text: &str) -> Option<Result<u64>> {
    if let Some(terms) = text.strip_prefix("cpu/") {
        return Some(terms.strip_suffix('/').ok_or(()).map_or_else(
            |()| {
                Err(syntax(text, "the closing slash is missing: write it as in `cpu/event=0xd1,umask=0x08/`"))
            },
            |terms| parse_terms(text, terms),
        ));
    }
    let digits = text.strip_prefix('r')?;
    // A name may begin with r as well; only hexadecimal digits make it raw.
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())).then(|| {
        let encoding =
            u64::from_str_radix(digits, 16).map_err(|_| syntax(text, "it has more than 16 digits"))?;
        check(encoding, text)
    })
}

/// The encoding, if it sets no bit that an event may not.
pub(super) fn check(encoding: u64, text: &str) -> Result<u64> {
    match encoding & !EVENT_BITS {
        0 => Ok(encoding),
        bits => Err(syntax(
            text,
            &format!(
                "it sets the bits {bits:#x}; an event may set only event, umask, edge, inv and cmask ({EVENT_BITS:#x})"
            ),
        )),
    }
}

/// `event=…,umask=…,cmask=…,edge,inv`.
fn parse_terms(text: &str, terms: &str) -> Result<u64> {
    let mut encoding = 0;
    for term in terms.split(',').filter(|term| !term.is_empty()) {
        let (key, value) = term.split_once('=').unwrap_or((term, "1"));
        let (shift, max) = match key {
            "event" => (0, 0xff),
            "umask" => (8, 0xff),
            "edge" => (18, 1),
            "inv" => (23, 1),
            "cmask" => (24, 0xff),
            _ => return Err(syntax(text, &format!("`{key}` is none of event, umask, edge, inv and cmask"))),
        };
        let value = number(value).filter(|value| *value <= max);
        let value = value.ok_or_else(|| syntax(text, &format!("`{term}` is not a number up to {max:#x}")))?;
        encoding |= value << shift;
    }
    Ok(encoding)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn syntax(text: &str, problem: &str) -> Error {
    Error::EventSyntax { text: text.into(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_go_to_their_places() {
        let encoding = parse("cpu/event=0xa3,umask=0x14,cmask=20,inv,edge=1/").unwrap().unwrap();
        assert_eq!(encoding, 0xa3 | 0x14 << 8 | 20 << 24 | 1 << 23 | 1 << 18);
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        for text in
            ["cpu/event=0x1d1/", "cpu/inv=2/", "cpu/event=/", "cpu/event=0xd1", "r100000000", "r4100d1"]
        {
            assert!(matches!(parse(text), Some(Err(Error::EventSyntax { .. }))), "{text}");
        }
    }

    #[test]
    fn names_that_begin_with_r_are_not_raw() {
        for text in ["rtm", "resource_stalls.any", "r", "cycles"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
