//! The kernel's PMUs of a hybrid processor: one for each type of its cores, on which alone its events count. Without its number an event of
//! hardware is that of the first type (`perf_init_event`, Linux, kernel/events/core.c).

use std::fs;
use std::path::Path;

use crate::event::{CORE_TYPES, pmu_prefix};
use crate::sys::perf::EventId;

/// The PMUs, none where all cores are alike.
#[derive(Debug, Default)]
pub(super) struct Cores(Vec<Pmu>);

#[derive(Debug)]
struct Pmu {
    /// `perf_event_attr.type` of its events.
    kind: u32,
    /// The CPUs that are online of its type.
    cpus: Vec<u32>,
}

impl Cores {
    /// Those of this machine.
    pub(super) fn find() -> Self {
        Self::below(Path::new("/sys/bus/event_source/devices"))
    }

    fn below(devices: &Path) -> Self {
        let names = CORE_TYPES.into_iter().filter_map(pmu_prefix);
        let pmus = names.filter_map(|name| {
            let read = |file| fs::read_to_string(devices.join(name).join(file)).ok();
            let kind = read("type")?.trim().parse().ok()?;
            Some(Pmu { kind, cpus: cpus(&read("cpus")?) })
        });
        Self(pmus.collect())
    }

    /// What to open for an event: itself, or one for each type of cores; on one CPU that of its type.
    pub(super) fn each(&self, event: EventId, cpu: Option<u32>) -> Vec<EventId> {
        // The kernel has a PMU of each type that the processor can have, and refuses one without a CPU that is online.
        let of_cpu = |pmu: &&Pmu| cpu.map_or(!pmu.cpus.is_empty(), |cpu| pmu.cpus.contains(&cpu));
        let of_types: Vec<_> = self.0.iter().filter(of_cpu).map(|pmu| event.of_pmu(pmu.kind)).collect();
        if event.is_hardware() && !of_types.is_empty() { of_types } else { vec![event] }
    }
}

/// A list of CPUs as the kernel writes it: `0-3,8`.
fn cpus(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_opened_for_each_type_of_cores_or_for_that_of_its_cpu() {
        let devices = tempfile::tempdir().unwrap();
        for (name, kind, cpus) in
            [("cpu_core", "4\n", "0-1,6\n"), ("cpu_atom", "10\n", "2-5\n"), ("cpu_lowpower", "11\n", "\n")]
        {
            let folder = devices.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("type"), kind).unwrap();
            fs::write(folder.join("cpus"), cpus).unwrap();
        }
        let cores = Cores::below(devices.path());
        let cycles = |kind: u64| EventId { config: kind << 32, ..EventId::CYCLES };
        assert_eq!(cores.each(EventId::CYCLES, None), [cycles(4), cycles(10)]);
        assert_eq!(cores.each(EventId::CYCLES, Some(6)), [cycles(4)]);
        assert_eq!(cores.each(EventId::raw(0xc0), Some(3)), [EventId { kind: 10, config: 0xc0 }]);
        assert_eq!(cores.each(EventId::PAGE_FAULTS, None), [EventId::PAGE_FAULTS]);
        let alike = Cores::below(&devices.path().join("none"));
        assert_eq!(alike.each(EventId::CYCLES, None), [EventId::CYCLES]);
    }
}
