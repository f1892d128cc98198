//! Windows of one event, in which others are sampled where they are dense.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use hpm_abi::EventSpec;

use super::Options;
use crate::event::{CoreType, Event, Sampling};
use crate::{Error, Result};

/// Windows that follow each other without gaps, each so many of one event long. An event that is sampled within them counts anew with each, so
/// that records come only where its whole period happens within one: where more than a share of instructions miss. Such samples are no
/// share of the event's count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The event that measures them, which is only counted; where a name means one for each type of cores ([`crate::event::parse_each`]), all of
    /// these, but no two for the same cores. Those of cores on which nothing is sampled are left out.
    pub events: Vec<Event>,
    /// Their length in events, one of [`Windows::LENGTHS`].
    pub length: u64,
}

impl Windows {
    /// Lengths that windows can have.
    pub const LENGTHS: RangeInclusive<u64> = 100..=(1 << 31) - 1;
    /// Periods that what is sampled within them can have.
    pub const PERIODS: RangeInclusive<u64> = 10..=(1 << 31) - 1;

    /// Whether this event can be sampled within them each `period`, as far as can be told without the driver.
    ///
    /// # Errors
    /// [`Error::Windows`], with the reason.
    pub fn check(&self, sampled: &Event, period: u64) -> Result<()> {
        let problem = if !sampled.sampled_precisely() {
            BY_INTERRUPTS
        } else if matches!(sampled.sampling, Sampling::Op | Sampling::Fetch) {
            "it is sampled by instruction-based sampling (IBS), which counts for itself and is not set back; leave the windows out"
        } else if self.events.iter().any(|window| window.counts_as(sampled)) {
            "it measures them itself, so that each has as many of it as the others; name another event for the windows"
        } else if !self.events.iter().any(|window| sampled.is_for(window.core_type)) {
            "they are measured on cores of another type; name an event of the same type for both"
        } else if self.overlap() {
            "several events measure them on the same cores; name one, or one for each type of cores"
        } else if !Self::LENGTHS.contains(&self.length) {
            "they can be 100 to 2147483647 events long; choose another length"
        } else if !Self::PERIODS.contains(&period) {
            "its period can be 10 to 2147483647 events there; choose another one"
        } else {
            return Ok(());
        };
        Err(Error::Windows { event: sampled.name.clone(), problem })
    }

    /// Whether two measure windows on the same cores.
    fn overlap(&self) -> bool {
        let pairs = self.events.iter().enumerate();
        let mut pairs =
            pairs.flat_map(|(place, one)| self.events[place + 1..].iter().map(move |other| (one, other)));
        pairs.any(|(one, other)| one.is_for(other.core_type))
    }

    /// The events that measure windows for some of the sampled ones.
    fn used<'a>(&'a self, events: &'a [(Event, Option<u64>)]) -> impl Iterator<Item = &'a Event> {
        let is_for = |window: &Event| {
            events.iter().any(|(event, period)| period.is_some() && event.is_for(window.core_type))
        };
        self.events.iter().filter(move |window| is_for(window))
    }

    /// Gives those of the requested events that measure windows their length.
    pub(super) fn measure(&self, events: &[(Event, Option<u64>)], specs: &mut [EventSpec]) {
        for window in self.used(events) {
            let spec = place_of(window, events).and_then(|place| specs.get_mut(place));
            spec.into_iter().for_each(|spec| spec.period = self.length);
        }
    }
}

/// Only hardware sets a counter back before it overflows.
const BY_INTERRUPTS: &str = "it is sampled by interrupts here, and only the records that hardware writes itself can be held to windows; \
                             `hpmctl list` marks what is sampled precisely";

/// The place of the counted event that counts the same wherever something is sampled, and can measure the windows there.
fn place_of(window: &Event, events: &[(Event, Option<u64>)]) -> Option<usize> {
    let is_where = |counted: &Event| {
        let mut sampled = events.iter().filter(|(_, period)| period.is_some());
        sampled.all(|(event, _)| {
            let [counted, window] = [counted, window].map(|of| shared_cores(event.core_type, of.core_type));
            counted == window
        })
    };
    let mut all = events.iter();
    all.position(|(event, period)| period.is_none() && event.counts_as(window) && is_where(event))
}

/// The cores that two events are for; `None` for those of different types.
fn shared_cores(one: CoreType, other: CoreType) -> Option<CoreType> {
    match (one, other) {
        (CoreType::Any, cores) | (cores, CoreType::Any) => Some(cores),
        _ => (one == other).then_some(one),
    }
}

impl Options {
    /// Samples every sampled event within windows of another one, which is counted then if it is not already, behind the others. Their
    /// periods stay as they are, whatever [`Options::randomise`] and [`Options::rate`] say. The session is refused where an event is
    /// sampled by interrupts, where events take turns, and by processors whose counters do not set each other back.
    #[must_use]
    pub fn windows(mut self, windows: Option<Windows>) -> Self {
        self.windows = windows;
        self
    }

    /// Whether something is sampled within windows.
    pub(in crate::session) fn samples_in_windows(&self) -> bool {
        self.windows.is_some() && self.sampled() > 0
    }

    /// All events of the session with the periods of those that are sampled.
    pub(super) fn measured(&self) -> Cow<'_, [(Event, Option<u64>)]> {
        let Some(windows) = &self.windows else { return Cow::Borrowed(&self.events) };
        let mut events = self.events.clone();
        for window in windows.used(&self.events) {
            if place_of(window, &events).is_none() {
                events.push((window.clone(), None));
            }
        }
        events.into()
    }

    /// Options that do not go together, which the driver could only refuse by the place of a field.
    ///
    /// # Errors
    /// [`Error::Windows`].
    pub(in crate::session) fn check(&self) -> Result<()> {
        let Some(windows) = &self.windows else { return Ok(()) };
        for (event, period) in self.events.iter().filter_map(|(event, period)| Some((event, (*period)?))) {
            windows.check(event, period)?;
            let refused = |problem| Err(Error::Windows { event: event.name.clone(), problem });
            if self.imprecise {
                return refused(BY_INTERRUPTS);
            }
            if self.multiplex {
                return refused(
                    "events take turns, and both have to be counted all the time; measure fewer events",
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{parse, parse_each};
    use crate::session::{SessionConfig, Target};

    fn event(name: &str) -> Event {
        parse(name, "skymont").unwrap()
    }

    fn of(event: Event) -> Option<Windows> {
        Some(Windows { events: vec![event], length: 2000 })
    }

    fn sampling() -> Options {
        Options::new(Target::System).sample(event("branch-miss:u"), 100).randomise(true).rate(4000)
    }

    /// Each event's period, flags and rate.
    fn specs(options: &Options) -> Vec<(u64, u8, u64)> {
        let SessionConfig { events, event_count, .. } = options.config();
        let specs = &events[..event_count as usize];
        specs.iter().map(|spec| (spec.period, spec.flags, spec.rate)).collect()
    }

    const WINDOWED: (u64, u8, u64) = (100, EventSpec::WINDOWED, 0);

    #[test]
    fn the_window_s_event_is_counted_behind_the_others() {
        let options = sampling().count(event("cycles:u")).windows(of(event("instructions:u")));
        assert_eq!(options.names(), ["branch-miss:u", "cycles:u", "instructions:u"]);
        assert_eq!(specs(&options), [WINDOWED, (0, 0, 0), (2000, 0, 0)]);
        options.check().unwrap();
        let without = options.windows(None);
        assert_eq!(specs(&without), [(100, EventSpec::RANDOMISE, 4000), (0, 0, 0)]);
    }

    #[test]
    fn an_event_that_is_counted_already_measures_the_windows() {
        let options = sampling().count(event("instructions:u")).count(event("instructions:u"));
        assert_eq!(specs(&options.windows(of(event("instructions:u")))), [WINDOWED, (2000, 0, 0), (0, 0, 0)]);
        let other_mode = sampling().count(event("instructions")).windows(of(event("instructions:u")));
        assert_eq!(specs(&other_mode), [WINDOWED, (0, 0, 0), (2000, 0, 0)]);
    }

    #[test]
    fn each_type_of_cores_on_which_something_is_sampled_has_its_windows() {
        const PMU: &str = "lioncove+skymont";
        let each = |name: &str| parse_each(name, PMU).unwrap();
        let loads = Some(Windows { events: each("load:u"), length: 5000 });
        let on_atom =
            Options::new(Target::System).sample(parse("cpu_atom/l1d-load-miss/u", PMU).unwrap(), 100);
        let on_atom = on_atom.windows(loads.clone());
        assert_eq!(on_atom.names(), ["cpu_atom/l1d-load-miss/u", "cpu_atom/load/u"]);
        let each = each("l1d-load-miss:u").into_iter();
        let on_both = each.fold(Options::new(Target::System), |options, event| options.sample(event, 100));
        let on_both = on_both.windows(loads.clone());
        assert_eq!(on_both.names()[2..], ["cpu_core/load/u", "cpu_atom/load/u"]);
        assert_eq!(specs(&on_both)[2..], [(5000, 0, 0), (5000, 0, 0)]);
        let nothing_sampled = Options::new(Target::System).count(event("cycles:u")).windows(loads);
        assert_eq!(nothing_sampled.names(), ["cycles:u"]);
    }

    #[test]
    fn what_knows_no_windows_is_refused_in_a_sentence() {
        let said = |options: Options| options.check().unwrap_err().to_string();
        let windows = || of(event("instructions:u"));
        let begins = "branch-miss:u cannot be sampled within windows of another event: ";
        for (options, words) in [
            (sampling().imprecise(true), "sampled by interrupts"),
            (sampling().multiplex(true), "take turns"),
        ] {
            let said = said(options.windows(windows()));
            assert!(said.starts_with(begins) && said.contains(words), "{said}");
        }
        let itself = said(sampling().windows(of(event("branch-miss:u"))));
        assert!(itself.contains("it measures them itself"), "{itself}");
        let elsewhere = Event { core_type: CoreType::Core, ..event("instructions:u") };
        let on_atom = Event { core_type: CoreType::Atom, ..event("branch-miss:u") };
        let elsewhere = said(Options::new(Target::System).sample(on_atom, 100).windows(of(elsewhere)));
        assert!(elsewhere.contains("cores of another type"), "{elsewhere}");
        let skid = parse("cycles:u", "skylake").unwrap();
        let skid = said(Options::new(Target::System).sample(skid, 1000).windows(windows()));
        assert!(skid.contains("sampled by interrupts"), "{skid}");
        let by_ibs = parse("cycles:u", "zen4").unwrap();
        let by_ibs = said(Options::new(Target::System).sample(by_ibs, 1000).windows(windows()));
        assert!(by_ibs.contains("(IBS)"), "{by_ibs}");
        let twice = Windows { events: vec![event("instructions:u"), event("cycles:u")], length: 2000 };
        let twice = said(sampling().windows(Some(twice)));
        assert!(twice.contains("several events measure them on the same cores"), "{twice}");
    }

    #[test]
    fn lengths_and_periods_have_limits() {
        let check = |length, period| {
            let windows = Windows { events: vec![event("instructions:u")], length };
            windows.check(&event("branch-miss:u"), period).map_err(|error| error.to_string())
        };
        let (lengths, periods) = (Windows::LENGTHS, Windows::PERIODS);
        for (length, period) in [(*lengths.start(), *periods.start()), (*lengths.end(), *periods.end())] {
            assert_eq!(check(length, period), Ok(()));
        }
        let begins = "branch-miss:u cannot be sampled within windows of another event: ";
        for length in [lengths.start() - 1, lengths.end() + 1] {
            let limits = format!("{begins}they can be {} to {} events long", lengths.start(), lengths.end());
            assert!(check(length, 10).is_err_and(|said| said.starts_with(&limits)), "{length}");
        }
        for period in [periods.start() - 1, periods.end() + 1] {
            let limits = format!("{begins}its period can be {} to {} events", periods.start(), periods.end());
            assert!(check(100, period).is_err_and(|said| said.starts_with(&limits)), "{period}");
        }
    }

    /// What has the same encoding on all types of cores is one event for all of them, but where its name says for which it is meant.
    #[test]
    fn an_event_of_one_type_of_cores_is_that_of_all_there() {
        const PMU: &str = "lioncove+skymont";
        let each = |name: &str| parse_each(name, PMU).unwrap();
        let atom = |name: &str| parse(&format!("cpu_atom/{name}/u"), PMU).unwrap();
        let windows = Some(Windows { events: each("instructions:u"), length: 2000 });
        assert_eq!(windows.as_ref().map(|windows| windows.events[0].core_type), Some(CoreType::Any));
        let itself = Options::new(Target::System).sample(atom("instructions"), 100).windows(windows.clone());
        assert!(itself.check().unwrap_err().to_string().contains("it measures them itself"));
        let on_atom = Options::new(Target::System).sample(atom("branch-miss"), 100);
        let counted = on_atom.clone().count(atom("instructions")).windows(windows.clone());
        assert_eq!(counted.names(), ["cpu_atom/branch-miss/u", "cpu_atom/instructions/u"]);
        assert_eq!(specs(&counted), [WINDOWED, (2000, 0, 0)]);
        counted.check().unwrap();
        let core = || parse("cpu_core/instructions/u", PMU).unwrap();
        let elsewhere = on_atom.clone().count(core()).windows(windows.clone());
        assert_eq!(specs(&elsewhere), [WINDOWED, (0, 0, 0), (2000, 0, 0)], "not where it is sampled");
        let everywhere = Event { core_type: CoreType::Any, ..atom("branch-miss") };
        let everywhere = Options::new(Target::System).sample(everywhere, 100);
        let a_part = everywhere.count(atom("instructions")).windows(windows);
        assert_eq!(specs(&a_part), [WINDOWED, (0, 0, 0), (2000, 0, 0)], "only on a part of the cores");
    }
}
