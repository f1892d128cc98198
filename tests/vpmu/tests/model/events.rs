//! The table of events.

use crate::machine::*;
use std::collections::HashSet;
use vpmu::pmu::msr;
use vpmu::profile::{self, DataRecord};
use vpmu::{Demand, Options};

/// No two events of a profile share a name or an encoding; precise events with an address are about memory.
#[test]
fn tables_are_unambiguous() {
    for profile in profile::cores() {
        let mut names = HashSet::new();
        let mut encodings = HashSet::new();
        for event in profile.events {
            assert!(names.insert(event.name), "{} twice", event.name);
            let encoding = (event.select, event.umask, event.cmask, event.invert);
            assert!(encodings.insert(encoding), "{encoding:x?} twice");
            assert!(!event.counts.is_empty(), "{} counts nothing", event.name);
            assert!(
                event.counters != 0 && event.counters < 1 << perfmon(profile).general_counters,
                "{}",
                event.name
            );
            let memory = event.name.starts_with("MEM_") && event.name.contains("RETIRED");
            assert!(memory || event.data == DataRecord::None, "{}", event.name);
            // Data address profiling came with record format 2; before, only two facilities give an address.
            let addressed = !matches!(event.data, DataRecord::None);
            let facility = matches!(event.data, DataRecord::LoadLatency | DataRecord::PreciseStore);
            let expected = memory && (perfmon(profile).pebs_format() >= 2 || facility);
            assert_eq!(addressed, expected, "{}: {}", profile.name, event.name);
        }
        assert_eq!(profile.fixed_events.len(), usize::from(perfmon(profile).fixed_counters));
    }
}

/// Every event of the table, programmed as its entry says, is recognised on some counter.
#[test]
fn every_event_can_be_programmed() {
    for profile in profile::cores() {
        for event in profile.events {
            let mut machine = Machine::of(profile, Options::default());
            let index = event.counters.trailing_zeros();
            let modifiers = u64::from(event.cmask) << 24 | if event.invert { INV } else { 0 };
            let select = event.encoding() | modifiers | USR | EN;
            if event.data == DataRecord::LoadLatency && perfmon(profile).version < 5 {
                machine.wr(msr::IA32_PEBS_ENABLE, (1 << 32 | 1) << index);
            }
            if let Some(auxiliary) = perfmon(profile).extended.load_auxiliary {
                machine.wr(msr::IA32_PERFEVTSEL0 + (index ^ 1), u64::from(auxiliary) | USR | EN);
            }
            if let Some(register) = event.offcore {
                // Demand data reads, any supplier and snoop result.
                let choice = perfmon(profile).offcore.mask & !0xFE;
                machine.wr(msr::MSR_OFFCORE_RSP_0 + u32::from(register), choice);
            }
            machine.wr(msr::IA32_PERFEVTSEL0 + index, select);
            assert!(machine.pmu.demand() >= Demand::Basic, "{}", event.name);
        }
    }
}

/// SDM Vol. 3B, table 18-1: the architectural events, which CPUID says are available.
#[test]
fn architectural_events_are_there() {
    let architectural = [0x003C, 0x00C0, 0x013C, 0x4F2E, 0x412E, 0x00C4, 0x00C5];
    for profile in profile::cores() {
        for encoding in architectural {
            let found = profile.events.iter().any(|event| event.encoding() == encoding && event.cmask == 0);
            assert!(found, "{}: {encoding:#x}", profile.name);
        }
    }
}

/// Names are looked up as the vendor spells them.
#[test]
fn profiles_and_events_have_names() {
    let skylake = profile::by_name("skylake").expect("the profile");
    let event = skylake.event("MEM_LOAD_RETIRED.L1_MISS").expect("the event");
    assert_eq!((event.select, event.umask, event.precise), (0xD1, 0x08, true));
    assert!(skylake.event("INST_RETIRED.ANY").is_some());
    assert!(profile::by_name("Skylake").is_none() && skylake.event("NO.SUCH").is_none());
}
