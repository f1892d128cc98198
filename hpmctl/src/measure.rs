//! Which source `stat`, `record` and `list` were asked for, and its clock.

use clap::ValueEnum;
use libhpm::source::choice::Wish;

/// Values of `--source`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SourceArg {
    /// The hpm module where it can be used, else perf_event
    #[default]
    Auto,
    /// The hpm module
    Driver,
    /// The kernel's perf_event: the PMU's counters if it has a driver for them, else what software counts
    Perf,
}

impl From<SourceArg> for Wish {
    fn from(source: SourceArg) -> Self {
        match source {
            SourceArg::Auto => Self::Best,
            SourceArg::Driver => Self::Driver,
            SourceArg::Perf => Self::Perf,
        }
    }
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
