//! Why a trace has no sample to show, and what to do about it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use libhpm::report::{self, Filter, Resolver, similar};
use libhpm::symbol::Frame;
use libhpm::trace::{EventUse, Meta, SampleRow, TraceReader};

use super::samples::sampled_events;
use crate::filters::{FilterArgs, lacking};

/// Says it of the trace at a path, of one event or of all.
pub(crate) fn no_sample(path: &Path, meta: &Meta, only: Option<usize>, filter: &Filter) -> String {
    let path = path.display();
    let name = |event: usize| format!("`{}`", meta.events[event].name);
    let names: Vec<String> = sampled_events(meta, only).into_iter().map(name).collect();
    match only {
        Some(event) if meta.events[event].mode == EventUse::Count => {
            format!("{path} has no sample of {}, which was only counted: record it with -e", name(event))
        }
        _ if names.is_empty() => {
            format!("{path} has no sample, because its events were only counted: record one with -e")
        }
        _ if !filter.is_empty() => {
            format!("{path} has no sample of {} {}", names.join(" or "), lacking(filter))
        }
        _ => {
            let throttled = meta.totals.as_ref().map_or(0, |totals| totals.throttled);
            let lost = meta.totals.as_ref().map_or(0, |totals| totals.records_lost + totals.quanta_lost);
            let of_no_event = meta.totals.as_ref().map_or(0, |totals| totals.records_unattributed);
            // What one of them samples everywhere is not lacking for want of dense places.
            let dense = sampled_events(meta, only).iter().all(|&event| meta.events[event].within.is_some());
            let cure = match lost {
                0 if throttled > 0 => "samples came too fast and were held back, so sample less often (-c)",
                0 if of_no_event == 0 && dense => {
                    "nowhere, as far as could be written, did so many come within a window, so record with a lower period (-c) or a longer \
                     window (--window)"
                }
                0 if of_no_event > 0 => {
                    "records that do not say which event they are of are left out, so record one event alone, or randomise the periods"
                }
                0 => "record for longer, or sample more often (-c)",
                _ => "samples were lost, so sample less often (-c)",
            };
            format!("{path} has no sample of {}: {cure}", names.join(" or "))
        }
    }
}

/// The functions of a trace's samples.
#[derive(Default)]
pub(crate) struct Functions {
    /// Those that samples are in, also where they were inlined.
    own: BTreeSet<Arc<str>>,
    /// Those on their stacks, too.
    all: BTreeSet<Arc<str>>,
}

impl Functions {
    /// Goes through all samples again, which is worth it where nothing was found.
    pub(crate) fn of(reader: &TraceReader, resolver: &mut Resolver) -> Self {
        let mut found = Self::default();
        for row in reader.rows::<SampleRow>() {
            let sample = resolver.resolve(&row);
            let name = |frame: &Frame| frame.function.clone();
            found.own.extend(sample.chain.calls[0].iter().filter_map(name));
            found.all.extend(sample.chain.frames().filter_map(name));
        }
        found
    }

    /// Says which of the functions that were asked for no sample has, and what may have been meant; empty where all are there.
    pub(crate) fn missing(&self, filters: &FilterArgs) -> String {
        let (code, within) = filters.functions();
        let own = code.into_iter().filter(|name| !self.own.contains(*name)).map(|name| {
            if self.all.contains(name) {
                return format!(
                    "; no sample is in `{name}` itself, but it is on stacks: choose those by --within"
                );
            }
            format!("; no sample lies in a function `{name}`{}", did_you_mean(name, &self.own))
        });
        let within = within.iter().filter(|name| !self.all.contains(name.as_str())).map(|name| {
            format!("; no sample's stack has a function `{name}`{}", did_you_mean(name, &self.all))
        });
        own.chain(within).collect()
    }

    /// What may have been meant by the name of a function on a stack.
    pub(crate) fn near(&self, name: &str) -> String {
        did_you_mean(name, &self.all)
    }
}

/// Names that are like one that is not there, as the end of a sentence; empty without any.
pub(crate) fn did_you_mean<'a>(name: &str, names: impl IntoIterator<Item = &'a Arc<str>>) -> String {
    let near = similar(name, names.into_iter().map(|name| &**name));
    report::did_you_mean(&near).map_or_else(String::new, |question| format!(": {question}"))
}

#[cfg(test)]
mod tests {
    use libhpm::report::Clause;
    use libhpm::trace::{Event, QuantumRow, SampleRow, Totals, TraceWriter, Within};
    use tempfile::TempDir;

    use super::*;
    use crate::report::tests::{meta, report};

    #[test]
    fn the_reason_is_told_with_what_to_do() {
        let event = |name: &str, mode| Event { name: name.into(), mode, ..Event::default() };
        let clock = event("cpu-clock", EventUse::Software);
        let counted = event("page-faults", EventUse::Count);
        let of = |events: &[&Event], quanta_lost| Meta {
            events: events.iter().map(|&event| event.clone()).collect(),
            totals: Some(Totals { quanta_lost, ..Totals::default() }),
            ..Meta::default()
        };
        let says = |meta: &Meta, only, filter: &Filter| no_sample(Path::new("t.hpm"), meta, only, filter);
        let (both, any) = (of(&[&clock, &counted], 0), Filter::default());
        let usual = "t.hpm has no sample of `cpu-clock`: record for longer, or sample more often (-c)";
        assert_eq!(says(&both, None, &any), usual);
        assert_eq!(says(&both, Some(0), &any), usual);
        assert_eq!(
            says(&both, Some(1), &any),
            "t.hpm has no sample of `page-faults`, which was only counted: record it with -e"
        );
        assert!(says(&of(&[&counted], 0), None, &any).contains("its events were only counted: record one"));
        assert!(says(&of(&[&clock], 3), None, &any).ends_with("lost, so sample less often (-c)"));
        let mut filter = Filter::default();
        filter.add(Clause::Process(vec![7]));
        let chosen = says(&both, None, &filter);
        assert!(chosen.starts_with("t.hpm has no sample of `cpu-clock` that was asked for; "), "{chosen}");
    }

    #[test]
    fn where_nothing_is_dense_windows_are_to_be_changed() {
        let event = Event { mode: EventUse::Precise, within: Some(Within::default()), ..Event::default() };
        let meta = Meta { events: vec![event], ..Meta::default() };
        let says = no_sample(Path::new("t.hpm"), &meta, None, &Filter::default());
        assert!(says.ends_with("so record with a lower period (-c) or a longer window (--window)"), "{says}");
        assert!(says.contains("nowhere, as far as could be written, did so many come"), "{says}");
        let throttled = Some(Totals { throttled: 3, ..Totals::default() });
        let held_back = Meta { totals: throttled, ..meta.clone() };
        let says = no_sample(Path::new("t.hpm"), &held_back, None, &Filter::default());
        assert!(says.ends_with("held back, so sample less often (-c)"), "{says}");
        let plain = Event { mode: EventUse::Precise, ..Event::default() };
        let one_of_two = Meta { events: [meta.events, vec![plain]].concat(), ..Meta::default() };
        let says = no_sample(Path::new("t.hpm"), &one_of_two, None, &Filter::default());
        assert!(says.ends_with("record for longer, or sample more often (-c)"), "{says}");
    }

    /// Two sampled events, of which the second has samples or none.
    #[test]
    fn pictures_and_distributions_of_nothing_say_why() {
        let temp = TempDir::new().unwrap();
        let svg = temp.path().join("flame.svg");
        let picture = ["--picture", svg.to_str().unwrap()];
        let folder = |name: &str, samples| {
            let folder = temp.path().join(name);
            let mut of = meta();
            of.events[1].mode = EventUse::Software;
            let mut writer = TraceWriter::create(&folder, of).unwrap();
            writer.quantum(&QuantumRow { counts: vec![0, 0], ..QuantumRow::default() }).unwrap();
            for _ in 0..samples {
                writer.sample(&SampleRow { event: 1, period: 1, ip: 5, ..SampleRow::default() }).unwrap();
            }
            writer.finish(Totals::default()).unwrap();
            folder
        };
        let (empty, some) = (folder("empty.hpm", 0), folder("some.hpm", 1));
        let error = |folder: &Path, options: &[&str]| report(folder, options).unwrap_err().to_string();
        let names = "has no sample of `l1d-load-miss` or `instructions`: record for longer";
        assert!(error(&empty, &picture).contains(names), "{}", error(&empty, &picture));
        assert!(error(&empty, &["--distribution"]).contains(names));
        let one = "has no sample of `l1d-load-miss`: record for longer";
        assert!(error(&some, &["-e", "l1d-load-miss", "--distribution"]).contains(one));
        assert!(error(&some, &[&picture[..], &["-e", "l1d-load-miss"]].concat()).contains(one));
        assert!(!svg.exists());
        report(&some, &picture).unwrap();
        assert!(std::fs::read_to_string(svg).unwrap().contains(": instructions"), "the one that has samples");
    }
}
