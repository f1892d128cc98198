//! `--group`: events that answer one question together, on whatever PMU there is.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use libhpm::event::{self, Event};

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Branches,
    Loads,
    Stores,
    Tlb,
    Code,
}

impl Group {
    /// Its name, and what it asks.
    const fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::Branches => ("branches", "How well branches are predicted"),
            Self::Loads => ("loads", "Where loads find their data"),
            Self::Stores => ("stores", "Where stores find their lines"),
            Self::Tlb => ("tlb", "How often addresses are not found in the TLBs"),
            Self::Code => ("code", "How often code is not found where it is fetched"),
        }
    }

    /// Generic names, the most important first: the last ones go where there are too few counters.
    pub(super) const fn events(self) -> &'static [&'static str] {
        match self {
            Self::Branches => &["cycles", "instructions", "branches", "branch-misses"],
            Self::Loads => {
                &["cycles", "instructions", "load", "l1d-load-miss", "l2-load-miss", "l3-load-miss"]
            }
            Self::Stores => &["cycles", "instructions", "store", "l1d-store-miss", "l2-store-miss"],
            Self::Tlb => &["cycles", "instructions", "dtlb-load-miss", "dtlb-store-miss", "itlb-miss"],
            Self::Code => &["cycles", "instructions", "l1i-miss", "l2i-miss", "itlb-miss"],
        }
    }

    /// Those of its events that this PMU has, on each type of core, and a sentence for each of the others.
    pub(super) fn on(self, pmu: &str) -> (Vec<Event>, Vec<String>) {
        let (mut events, mut missing) = (vec![], vec![]);
        for name in self.events() {
            match event::parse_each(name, pmu) {
                Ok(of_each) => events.extend(of_each),
                Err(why) => missing.push(why.to_string()),
            }
        }
        (events, missing)
    }
}

impl ValueEnum for Group {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Branches, Self::Loads, Self::Stores, Self::Tlb, Self::Code]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, asks) = self.told();
        Some(PossibleValue::new(name).help(format!("{asks}: {}", self.events().join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use libhpm::event::GENERICS;

    use super::*;

    #[test]
    fn every_event_is_a_generic_name_of_which_each_pmu_has_some_or_a_reason() {
        for group in Group::value_variants() {
            for name in group.events() {
                assert!(GENERICS.iter().any(|generic| generic.name == *name), "{name}");
            }
            for pmu in event::pmus() {
                let (events, missing) = group.on(pmu);
                assert!(events.len() >= 2, "{group:?} on {pmu}: {missing:?}");
                assert_eq!(events.len() + missing.len(), group.events().len(), "{group:?} on {pmu}");
            }
            for pmu in ["goldencove+gracemont", "lioncove+skymont+crestmont"] {
                let (events, missing) = group.on(pmu);
                assert!(events.len() + missing.len() >= group.events().len(), "{events:?} {missing:?}");
                assert!(events.len() <= 16, "more than a session has: {group:?} on {pmu}: {events:?}");
            }
        }
        let (events, missing) = Group::Loads.on("goldencove+gracemont");
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert!(
            names.contains(&"cpu_core/load/") && names.contains(&"cpu_atom/load/"),
            "{names:?} {missing:?}"
        );
    }
}
