//! Which source `stat`, `record` and `list` were asked for, and its clock.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use libhpm::source::choice::Wish;

/// Values of `--source`.
pub(crate) fn sources() -> impl TypedValueParser<Value = Wish> {
    let values = Wish::ALL.map(|wish| PossibleValue::new(wish.name()).help(wish.help()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Wish>())
}

/// TSC ticks as nanoseconds; 0 for a source that does not tell the frequency.
pub(crate) fn tsc_to_ns(ticks: u64, tsc_khz: u64) -> u64 {
    let ns = (u128::from(ticks) * 1_000_000).checked_div(u128::from(tsc_khz));
    ns.unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_a_3_ghz_clock() {
        assert_eq!(tsc_to_ns(3_000_000_000, 3_000_000), 1_000_000_000);
        assert_eq!(tsc_to_ns(u64::MAX, 4_000_000), u64::MAX / 4);
        assert_eq!(tsc_to_ns(1, 0), 0);
    }
}
