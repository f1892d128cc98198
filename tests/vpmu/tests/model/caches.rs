//! Caches and TLBs against a naive reference that follows the text-book definition: a list per set, least
//! recently used last.

use proptest::prelude::*;
use std::collections::HashMap;
use vpmu::profile::SKYLAKE;
use vpmu::{CacheGeometry, Core, DataSource, Event, Geometry, Indexing, MicroEvents, SharedCache};

/// A cache as one would explain it.
struct NaiveCache {
    geometry: CacheGeometry,
    sets: HashMap<u64, Vec<u64>>,
}

impl NaiveCache {
    fn new(geometry: CacheGeometry) -> Self {
        Self { geometry, sets: HashMap::new() }
    }

    fn hit_line(&mut self, line: u64) -> bool {
        let CacheGeometry { size_bytes, associativity, line_bytes } = self.geometry;
        let set = self.sets.entry(line % u64::from(size_bytes / associativity / line_bytes)).or_default();
        let hit = set.contains(&line);
        set.retain(|&other| other != line);
        set.insert(0, line);
        set.truncate(associativity as usize);
        hit
    }

    /// All lines are touched; one that misses makes the access a miss.
    fn hit(&mut self, address: u64, size: u64) -> bool {
        let line_bytes = u64::from(self.geometry.line_bytes);
        let lines = address / line_bytes..=(address + size - 1) / line_bytes;
        lines.map(|line| self.hit_line(line)).fold(true, |all, hit| all & hit)
    }
}

/// Cachegrind's simulation: I1, D1, LL.
struct Cachegrind {
    i1: NaiveCache,
    d1: NaiveCache,
    ll: NaiveCache,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Fetch,
    Load,
    Store,
}

#[derive(Debug, Clone, Copy)]
struct Access {
    kind: Kind,
    address: u64,
    size: u8,
}

impl Cachegrind {
    /// Whether the access missed L1, and the last level.
    fn misses(&mut self, access: Access) -> (bool, bool) {
        let first = if matches!(access.kind, Kind::Fetch) { &mut self.i1 } else { &mut self.d1 };
        let missed = !first.hit(access.address, access.size.into());
        (missed, missed && !self.ll.hit(access.address, access.size.into()))
    }
}

fn access(core: &mut Core, Access { kind, address, size }: Access) -> MicroEvents {
    // The other address differs in every bit that could matter.
    let other = !address;
    match kind {
        Kind::Fetch => core.fetch(other, address, size),
        Kind::Load => core.data(other, address, size, false).0,
        Kind::Store => core.data(other, address, size, true).0,
    }
}

/// The events that Cachegrind calls I1mr and ILmr, D1mr and DLmr, D1mw and DLmw.
fn miss_events(kind: Kind) -> (Event, Event) {
    match kind {
        Kind::Fetch => (Event::L1iMiss, Event::LlcInstructionMiss),
        Kind::Load => (Event::L1dReadMiss, Event::LlcReadMiss),
        Kind::Store => (Event::L1dWriteMiss, Event::LlcWriteMiss),
    }
}

fn cache(log_sets: u32, associativity: u32, log_line: u32) -> CacheGeometry {
    let line_bytes = 1 << log_line;
    CacheGeometry { size_bytes: (line_bytes * associativity) << log_sets, associativity, line_bytes }
}

fn small_cache() -> impl Strategy<Value = CacheGeometry> {
    (0..4u32, 1..5u32, 4..8u32).prop_map(|(sets, ways, line)| cache(sets, ways, line))
}

/// Loops over arrays, with some accesses anywhere, unaligned and across lines.
fn trace() -> impl Strategy<Value = Vec<Access>> {
    let kind = prop_oneof![Just(Kind::Fetch), Just(Kind::Load), Just(Kind::Store)];
    let address = prop_oneof![0..512u64, 0..8192u64, any::<u32>().prop_map(u64::from)];
    let size = prop_oneof![Just(1u8), Just(4), Just(8), Just(16), Just(64)];
    let one = (kind, address, size).prop_map(|(kind, address, size)| Access { kind, address, size });
    (prop::collection::vec(one, 1..120), 1..4usize).prop_map(|(once, times)| once.repeat(times))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_miss_is_cachegrinds(
        l1i in small_cache(), l1d in small_cache(), llc in small_cache(), trace in trace(),
    ) {
        let geometry = Geometry { l1i, l1d, l2: None, llc, indexing: Indexing::Linear };
        let mut core = Core::new(&SKYLAKE, &geometry, SharedCache::new(&llc).unwrap()).unwrap();
        let (i1, d1, ll) = (NaiveCache::new(l1i), NaiveCache::new(l1d), NaiveCache::new(llc));
        let mut reference = Cachegrind { i1, d1, ll };
        for one in trace {
            let events = access(&mut core, one);
            let (l1_miss, llc_miss) = miss_events(one.kind);
            let misses = (events.once.contains(l1_miss), events.once.contains(llc_miss));
            prop_assert_eq!(misses, reference.misses(one), "{:x?}", one);
        }
    }

    /// With three levels and physical indexing, each level sees what the one above missed.
    #[test]
    fn three_levels_filter_one_another(
        l1d in small_cache(), l2 in small_cache(), llc in small_cache(), trace in trace(),
    ) {
        let geometry = Geometry { l1i: l1d, l1d, l2: Some(l2), llc, indexing: Indexing::Physical };
        let mut core = Core::new(&SKYLAKE, &geometry, SharedCache::new(&llc).unwrap()).unwrap();
        let mut levels = [l1d, l2, llc].map(NaiveCache::new);
        for Access { address, size, .. } in trace {
            let expected = levels.iter_mut().position(|level| level.hit(address, size.into()));
            let source = core.data(address, !address, size, false).1.source;
            let levels = [DataSource::L1, DataSource::L2, DataSource::L3];
            prop_assert_eq!(source, expected.map_or(DataSource::Memory, |level| levels[level]));
        }
    }

    /// Translations are cached by page, in the DTLB and behind it in the second level; a flush forgets both.
    #[test]
    fn tlbs_are_caches_of_pages(trace in prop::collection::vec((0..200u64, 0..100u8), 1..400)) {
        let tlb = |entries: u32, ways: u32| NaiveCache::new(cache((entries / ways).ilog2(), ways, 12));
        let parameters = &SKYLAKE.microarchitecture;
        let fresh = || (tlb(parameters.dtlb.entries, parameters.dtlb.associativity),
                        tlb(parameters.stlb.entries, parameters.stlb.associativity));
        let (mut first, mut second) = fresh();
        let llc = SharedCache::new(&SKYLAKE.geometry.llc).unwrap();
        let mut core = Core::new(&SKYLAKE, &SKYLAKE.geometry, llc).unwrap();
        for (page, action) in trace {
            if action == 0 {
                core.flush_tlbs();
                (first, second) = fresh();
            }
            let linear = page << 12 | u64::from(action);
            let hit = first.hit_line(page);
            let behind = !hit && second.hit_line(page);
            let (events, outcome) = core.data(0, linear, 1, false);
            prop_assert_eq!(events.once.contains(Event::DtlbLoadStlbHit), behind);
            prop_assert_eq!(events.once.contains(Event::DtlbLoadWalk), !hit && !behind);
            prop_assert_eq!(outcome.stlb_miss, !hit && !behind);
        }
    }
}

fn skylake() -> Core {
    let llc = SharedCache::new(&SKYLAKE.geometry.llc).unwrap();
    Core::new(&SKYLAKE, &SKYLAKE.geometry, llc).unwrap()
}

/// An access across two pages needs both translations, and is as slow as the slower one.
#[test]
fn an_access_across_pages_translates_both() {
    let mut core = skylake();
    core.data(0x1000, 0x1000, 8, false);
    assert!(core.data(0x1FFC, 0x1FFC, 8, false).1.stlb_miss, "the second page is new");
    assert!(!core.data(0x2000, 0x2000, 8, false).1.stlb_miss, "now it is known");
}

/// However often the TLBs are flushed, nothing of before comes back.
#[test]
fn no_number_of_flushes_revives_a_translation() {
    let mut core = skylake();
    for flushes in 1..10_000 {
        assert!(core.data(0, 0x5000, 1, false).1.stlb_miss, "after {flushes} flushes");
        core.flush_tlbs();
    }
    let mut core = skylake();
    core.data(0, 0x5000, 1, false);
    for flushes in 1..10_000 {
        core.flush_tlbs();
        if flushes % 4095 == 0 || flushes % 4096 == 0 {
            assert!(core.data(0, 0x5000, 1, false).1.stlb_miss, "after {flushes} flushes");
        }
    }
}

/// The latencies of the profile (docs/pmu-model.md), and stalls that nest: a load that waits for memory waits
/// for L1, too.
#[test]
fn latencies_and_stalls_follow_the_level() {
    let mut core = skylake();
    let (events, outcome) = core.data(0x1000, 0x1000, 8, false);
    assert_eq!((outcome.source, outcome.latency_cycles), (DataSource::Memory, 240 + 30));
    assert_eq!(events.stall_cycles, 266);
    for event in
        [Event::StallMemory, Event::StallL1dMiss, Event::StallL2Miss, Event::StallL3Miss, Event::StallTotal]
    {
        assert!(events.stalled.contains(event), "{event:?}");
    }
    let (events, outcome) = core.data(0x1000, 0x1000, 8, false);
    assert_eq!((outcome.source, outcome.latency_cycles), (DataSource::L1, 4));
    assert_eq!((events.cycles, events.stalled.is_empty()), (0, true));
    // 9 lines of one L1 set: the first is still in L2.
    for way in 1..=8u64 {
        core.data(0x1000 + way * 4096, 0x1000, 8, false);
    }
    let (events, outcome) = core.data(0x1000, 0x1000, 8, false);
    assert_eq!((outcome.source, outcome.latency_cycles), (DataSource::L2, 12));
    assert_eq!((events.stall_cycles, events.stalled.contains(Event::StallL2Miss)), (8, false));
    let (events, _) = core.data(0x10_0000, 0x10_0000, 8, true);
    assert_eq!((events.cycles, events.load_latency_cycles), (0, 0), "a store waits in the store buffer");
}

/// Events "per instruction" count once for an instruction with several accesses, those per access each time
/// (SDM Vol. 3B, table 18-56, note 4).
#[test]
fn an_instruction_with_two_missing_loads_counts_one_miss() {
    let mut core = skylake();
    core.fetch(0, 0, 4);
    let first = core.data(0x10_0000, 0x10_0000, 8, false).0.once;
    let second = core.data(0x20_0000, 0x20_0000, 8, false).0.once;
    assert!(first.contains(Event::LoadL3Miss) && !second.contains(Event::LoadL3Miss));
    assert!(first.contains(Event::LlcReadMiss) && second.contains(Event::LlcReadMiss));
    let hit = core.data(0x20_0000, 0x20_0000, 8, false).0.once;
    assert!(hit.contains(Event::LoadL1Hit), "a different event of the same instruction");
    core.fetch(4, 4, 4);
    assert!(
        core.data(0x30_0000, 0x30_0000, 8, false).0.once.contains(Event::LoadL3Miss),
        "the next instruction"
    );
}

/// Four instructions retire in a cycle; a crystal clock passes each 100 cycles.
#[test]
fn cycles_pass_with_instructions() {
    let mut core = skylake();
    core.fetch(0, 0, 4);
    let reports: Vec<_> = (1..4001u64).map(|n| core.fetch(n % 16, n % 16, 1)).collect();
    assert_eq!(reports.iter().map(|events| events.cycles).sum::<u32>(), 1000);
    assert_eq!(reports.iter().map(|events| events.stall_cycles).sum::<u32>(), 0);
    let crystal = reports.iter().map(|events| events.crystal_cycles).sum::<u32>();
    assert!((10..=11).contains(&crystal), "{crystal}");
    // Also when one stall is longer than a crystal clock: no part of it is lost.
    let mut core = skylake();
    let reports: Vec<_> = (0..1000u64).map(|n| core.data(n << 12, n << 12, 8, false).0).collect();
    let cycles = reports.iter().map(|events| events.cycles).sum::<u32>();
    assert_eq!(reports.iter().map(|events| events.crystal_cycles).sum::<u32>(), cycles / 100);
}

/// Two cores share the last level: what one has loaded, the other finds there.
#[test]
fn the_last_level_is_shared() {
    let llc = SharedCache::new(&SKYLAKE.geometry.llc).unwrap();
    let mut cores = [0, 1].map(|_| Core::new(&SKYLAKE, &SKYLAKE.geometry, llc.clone()).unwrap());
    assert_eq!(cores[0].data(0x5000, 0x5000, 8, false).1.source, DataSource::Memory);
    assert_eq!(cores[1].data(0x5000, 0x5000, 8, false).1.source, DataSource::L3);
}

/// Impossible caches are refused in a sentence.
#[test]
fn geometries_are_checked() {
    assert_eq!("32768,8,64".parse(), Ok(SKYLAKE.geometry.l1d));
    assert_eq!("32768:8:64".parse(), Ok(SKYLAKE.geometry.l1d));
    for bad in [
        "",
        "32768,8",
        "32768,8,64,1",
        "a,b,c",
        "32768,8,60",
        "30000,8,64",
        "0,8,64",
        "49152,8,64",
        "64,0,64",
    ] {
        let error = bad.parse::<CacheGeometry>().expect_err(bad).to_string();
        assert!(error.contains("geometry") || error.contains("power of two"), "{error}");
    }
}
