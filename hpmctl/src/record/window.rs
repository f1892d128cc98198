//! `record --window`: samples only where an event is dense.

use anyhow::{Result, bail};
use libhpm::event::{Event, split_list};
use libhpm::session::Windows;
use libhpm::source::choice::parse_events;

use super::args::RecordArgs;

/// The windows that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    event: String,
    length: u64,
}

/// `EVENT=N`. Raw events have such signs of their own, so that the last one counts.
pub(super) fn window(text: &str) -> Result<Window, String> {
    let (event, length) = text.rsplit_once('=').unwrap_or((text, ""));
    let (event, number) = (event.trim(), length.parse::<u64>());
    match number {
        Ok(length)
            if Windows::LENGTHS.contains(&length) && !event.is_empty() && split_list(event).len() == 1 =>
        {
            Ok(Window { event: event.to_owned(), length })
        }
        Ok(length) if !Windows::LENGTHS.contains(&length) => {
            Err(format!("windows are {} to {} events long", Windows::LENGTHS.start(), Windows::LENGTHS.end()))
        }
        _ => Err("write one EVENT=N, as in instructions:u=1000".to_owned()),
    }
}

impl Window {
    /// What does not go together with it.
    ///
    /// # Errors
    /// One sentence that says what to do instead.
    pub(super) fn check(&self, args: &RecordArgs) -> Result<()> {
        if args.frequency.is_some() {
            bail!(
                "-F adapts the period, and --window needs one that stays: leave -F out, and say with -c how many of the event have to come \
                 within {} {}",
                self.length,
                self.event
            );
        }
        let Some(period) = args.period else {
            bail!(
                "--window needs a period that stays: say with -c how many of the event have to come within {} {}",
                self.length,
                self.event
            );
        };
        if !Windows::PERIODS.contains(&period) {
            bail!(
                "with --window, -c takes {} to {} events",
                Windows::PERIODS.start(),
                Windows::PERIODS.end()
            );
        }
        if args.imprecise {
            bail!(
                "--imprecise samples by interrupts, and only the records that hardware writes itself can be held to --window: leave one of \
                 the two out"
            );
        }
        if args.phase_guided.is_some() {
            bail!(
                "--phase-guided has samples stand for others, and those --window windows stand for none: leave one of the two out"
            );
        }
        Ok(())
    }

    /// The windows on this machine, within which these events can be sampled each `period`.
    ///
    /// # Errors
    /// The event is not known, or one of the sampled ones cannot be sampled so.
    pub(super) fn windows(&self, sampled: &[Event], period: u64) -> Result<Windows> {
        let events = parse_events(std::slice::from_ref(&self.event))?;
        let windows = Windows { events, length: self.length };
        sampled.iter().try_for_each(|event| windows.check(event, period))?;
        Ok(windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::args::tests::parsed;

    #[test]
    fn a_window_is_an_event_and_a_number() {
        let of = |event: &str, length| Ok(Window { event: event.into(), length });
        assert_eq!(window("instructions:u=1000"), of("instructions:u", 1000));
        assert_eq!(window("cpu/event=0xd1,umask=0x01/u=100"), of("cpu/event=0xd1,umask=0x01/u", 100));
        assert_eq!(window("cycles=2147483647"), of("cycles", 2_147_483_647));
        for bad in
            ["", "nonsense", "instructions", "instructions=", "=2000", "instructions=x", "instructions=2k"]
        {
            assert!(window(bad).unwrap_err().starts_with("write one EVENT=N"), "{bad}");
        }
        for bad in ["cpu/event=0xd1/", "cycles,instructions=2000", "cycles=-1"] {
            assert!(window(bad).unwrap_err().starts_with("write one EVENT=N"), "{bad}");
        }
        for bad in ["instructions=0", "instructions=99", "instructions=2147483648"] {
            assert_eq!(window(bad).unwrap_err(), "windows are 100 to 2147483647 events long", "{bad}");
        }
    }

    #[test]
    fn options_that_do_not_go_with_windows_are_told_in_a_sentence() {
        let check = |options: &str| {
            let args = parsed(&format!("--window instructions:u=1000 {options} -a"));
            args.check().map_err(|error| error.to_string())
        };
        assert_eq!(check("-c 50"), Ok(()));
        assert_eq!(check("-c 100 --no-randomise --count cycles --stacks"), Ok(()));
        let needs = "--window needs a period that stays: say with -c how many of the event have to come within 1000 instructions:u";
        assert_eq!(check("--no-randomise"), Err(needs.into()));
        for (options, begin) in [
            ("-F 4000", "-F adapts the period"),
            ("-c 100 -F 4000", "-F adapts the period"),
            ("-c 9", "with --window, -c takes 10 to 2147483647 events"),
            ("-c 2147483648", "with --window, -c takes 10 to 2147483647 events"),
            ("-c 100 --imprecise", "--imprecise samples by interrupts"),
            ("-c 100 --phase-guided", "--phase-guided has samples stand for others"),
        ] {
            let said = check(options).unwrap_err();
            assert!(said.starts_with(begin), "{options}: {said}");
        }
    }
}
