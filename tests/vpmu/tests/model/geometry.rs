//! Sizes and latencies of each part's caches and TLBs, found by behaviour as a micro-benchmark would find them
//! (Optimization Reference Manual, tables "Cache parameters" and "TLB parameters" of each microarchitecture; the
//! choices are in docs/pmu-model.md).

use vpmu::profile::{BROADWELL, HASWELL, IVY_BRIDGE, NEHALEM, Profile, SANDY_BRIDGE, SKYLAKE, WESTMERE};
use vpmu::{Core, DataSource, Event, SharedCache};

fn core(profile: &'static Profile) -> Core {
    let llc = SharedCache::new(&profile.geometry.llc).unwrap();
    Core::new(profile, &profile.geometry, llc).unwrap()
}

/// Latency of a load that hits the TLB, whose line `conflicts` others at distance `stride` have pushed out of the
/// levels they fill.
pub(crate) fn latency(profile: &'static Profile, stride: u64, conflicts: u64) -> (DataSource, u16) {
    let mut core = core(profile);
    for n in 0..=conflicts {
        core.data(n * stride, n * stride, 8, false);
    }
    // Another line of the same page is in another set; it brings the translation back.
    core.data(64, 64, 8, false);
    let outcome = core.data(0, 0, 8, false).1;
    (outcome.source, outcome.latency_cycles)
}

/// L1D: 8 ways of 4 KiB each. L2: 256 KiB in its ways. Last level: 16 ways.
#[test]
fn each_level_has_its_size_and_latency() {
    for (profile, l2_ways, l2_latency, llc_mib, llc_latency) in [
        (&NEHALEM, 8, 10, 8, 38),
        (&WESTMERE, 8, 10, 4, 40),
        (&SANDY_BRIDGE, 8, 12, 8, 30),
        (&IVY_BRIDGE, 8, 12, 8, 30),
        (&HASWELL, 8, 11, 8, 34),
        (&BROADWELL, 8, 12, 4, 34),
        (&SKYLAKE, 4, 12, 8, 44),
    ] {
        let name = profile.name;
        assert_eq!(latency(profile, 4096, 7), (DataSource::L1, 4), "{name}");
        assert_eq!(latency(profile, 4096, 8), (DataSource::L2, l2_latency), "{name}");
        // Lines that share a set of L2 share one of L1: the ninth pushes the first out of both.
        let l2_stride = (256 << 10) / l2_ways;
        assert_eq!(latency(profile, l2_stride, 8), (DataSource::L3, llc_latency), "{name}");
        // Half as far apart they fill two sets of L2, of which eight ways hold five.
        let spread = if l2_ways == 8 { DataSource::L2 } else { DataSource::L3 };
        assert_eq!(latency(profile, l2_stride / 2, 8).0, spread, "{name}");
        let llc_stride = (llc_mib << 20) / 16;
        assert_eq!(latency(profile, llc_stride, 15).0, DataSource::L3, "{name}");
        assert_eq!(latency(profile, llc_stride, 16).0, DataSource::Memory, "{name}");
    }
}

/// Pages that a first-level TLB of 64 entries cannot hold are found in the second level, up to its size.
#[test]
fn the_second_level_tlb_has_its_size() {
    for (profile, entries, hit, walk) in [
        (&NEHALEM, 512, 7, 30),
        (&WESTMERE, 512, 7, 30),
        (&SANDY_BRIDGE, 512, 7, 30),
        (&IVY_BRIDGE, 512, 7, 30),
        (&HASWELL, 1024, 7, 30),
        (&BROADWELL, 1536, 7, 30),
        (&SKYLAKE, 1536, 9, 30),
    ] {
        for (pages, event, penalty) in
            [(entries, Event::DtlbLoadStlbHit, hit), (2 * entries, Event::DtlbLoadWalk, walk)]
        {
            let mut core = core(profile);
            // One cache line for all pages: only the translation costs.
            let mut touch = |page: u64| core.data(0, page << 12, 8, false);
            (0..pages).for_each(|page| {
                touch(page);
            });
            let (events, outcome) = touch(0);
            assert!(events.once.contains(event), "{}: {pages} pages", profile.name);
            assert_eq!(outcome.latency_cycles, 4 + penalty, "{}: {pages} pages", profile.name);
        }
    }
}
