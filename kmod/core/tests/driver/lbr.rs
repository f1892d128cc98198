//! Last branch records, model-specific and architectural, against the model: whose they are, which they are, and that they
//! are given back.

use std::collections::{HashMap, VecDeque};

use crate::rig::core::word;
use crate::rig::core::Instruction::{Load, Plain};
use crate::rig::scene::{config, interrupting, precise, LOADS};
use crate::rig::Rig;
use hpm_abi::{
    BranchFilter, EventSpec, QuantumEnd, QuantumFlags, Reason, SessionConfig, RECORD_FORMAT_ARCHITECTURAL,
    SEGMENT_BYTES,
};
use hpm_core::layout::RecordLayout;
use hpm_core::segments::Segments;
use hpm_core::{Pmu, Program, Refusal};
use proptest::prelude::*;
use vpmu::profile::{self, PmuKind, Profile};
use vpmu::{BranchKind, Options};

const KERNEL: u64 = 0xffff_ffff_8000_0000;
/// Loads between two samples.
const PERIOD: u64 = 100;

type Branch = [u64; 3];

/// A session on this profile's PMU that samples loads and keeps `branches`.
fn request(pmu: &Pmu, by_interrupt: bool, branches: u32) -> SessionConfig {
    let loads = if ["nehalem", "westmere"].contains(&pmu.generation.name) { 0x010B } else { LOADS };
    let event = if by_interrupt { interrupting(loads, PERIOD) } else { precise(loads, PERIOD) };
    let event = EventSpec { core_type: pmu.core_type as u8, ..event };
    SessionConfig { branches, stack_ring_bytes: 1 << 16, ..config(&[event]) }
}

/// Every core from Nehalem on.
fn cores() -> impl Iterator<Item = &'static Profile> {
    profile::cores()
        .filter(|profile| matches!(profile.pmu, PmuKind::Perfmon(perfmon) if perfmon.version >= 3))
}

fn named(name: &str) -> &'static Profile {
    cores().find(|profile| profile.name == name).expect("a profile")
}

fn rig(profile: &'static Profile) -> Rig {
    let mut rig = Rig::of(profile, 2, Options::default());
    rig.acquire();
    rig
}

fn depth(rig: &Rig) -> u32 {
    rig.pmu.lbr.expect("every profile has branch records").depth
}

/// What the reader sees of a CPU's samples: thread and branches.
#[derive(Default)]
struct Samples {
    quanta: HashMap<(usize, usize), u64>,
}

impl Samples {
    /// Those that are new, before the reader takes them.
    fn new_ones(&mut self, rig: &mut Rig, session: usize, cpu: usize) -> Vec<(u32, Vec<Branch>)> {
        let program = rig.sessions[session].program;
        let (branches, follows_calls) = (program.config().branches, program.follows_calls());
        let core = rig.cores[cpu].borrow();
        let shared = &core.machine.shared[session];
        let seen = self.quanta.entry((session, cpu)).or_default();
        let mut samples = Vec::new();
        for number in *seen..shared.status.quanta_produced {
            let quantum = shared.quanta[number as usize % shared.quanta.len()].expect("published");
            if quantum.span_bytes == 0 {
                continue;
            }
            if quantum.flags & QuantumFlags::STACK_BRANCHES != 0 {
                let place = (quantum.stack_offset % shared.stacks.len() as u64) as u32;
                samples.push((quantum.tid, entries(&shared.stacks, place, quantum.stack_bytes)));
                continue;
            }
            let bytes = &shared.segments[quantum.segment as usize % shared.segments.len()];
            let (size, behind) = match (quantum.record_format, quantum.record_size) {
                (RECORD_FORMAT_ARCHITECTURAL, _) => {
                    // As many as the depth that holds so many.
                    ((word(bytes, quantum.span_offset) & 0xFFFF) as u32, 24 * branches.next_multiple_of(8))
                }
                (_, size) => (size.into(), 24 * branches),
            };
            for record in (0..quantum.span_bytes).step_by(size as usize) {
                let end = quantum.span_offset + record + size;
                let mut entries = entries(bytes, end - behind, behind);
                let used = entries.iter().position(|entry| entry[0] == 0).unwrap_or(entries.len());
                // A call that has returned may stay behind the end; it is the thread's own.
                let own = |[from, ..]: &Branch| follows_calls && from >> 32 == quantum.tid.into();
                let empty = |entry: &Branch| *entry == [0; 3] || own(entry);
                assert!(entries[used..].iter().all(empty), "something behind the end");
                entries.truncate(used);
                samples.push((quantum.tid, entries));
            }
        }
        *seen = shared.status.quanta_produced;
        drop(core);
        rig.read(session, cpu);
        samples
    }
}

fn entries(bytes: &[u8], place: u32, length: u32) -> Vec<Branch> {
    let entry = |at| [word(bytes, at), word(bytes, at + 8), word(bytes, at + 16)];
    (place..place + length).step_by(24).map(entry).collect()
}

/// A repeatable sequence of numbers (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const KINDS: [BranchKind; 6] = [
    BranchKind::Conditional,
    BranchKind::DirectJump,
    BranchKind::IndirectJump,
    BranchKind::DirectCall,
    BranchKind::IndirectCall,
    BranchKind::Return,
];

/// Runs threads that take branches, each with addresses of its own, over two CPUs, and the kernel's between them; calls
/// `check` with each sample, and what its thread had taken by then. At most `calls_max` calls are open at a time.
fn run_threads(
    rig: &mut Rig,
    session: usize,
    (seed, calls_max): (u64, usize),
    mut check: impl FnMut(&[(u64, BranchKind)], &[Branch], u32),
) -> usize {
    let mut random = Random(seed);
    let threads = [0; 3].map(|_| rig.add_thread(Some(session)));
    let stranger = rig.add_thread(None);
    let mut taken: HashMap<u32, Vec<(u64, BranchKind)>> = HashMap::new();
    let mut open: HashMap<u32, VecDeque<u64>> = HashMap::new();
    let (mut seen, mut samples) = (Samples::default(), 0);
    for step in 0..600 {
        let cpu = random.below(2) as usize;
        let elsewhere = rig.on_cpu[1 - cpu];
        let next = threads[random.below(3) as usize];
        match random.below(20) {
            0 if next != elsewhere => rig.switch(cpu, next, QuantumEnd::Preempted),
            1 => rig.switch(cpu, stranger, QuantumEnd::Yielded),
            2 => rig.cut(cpu, QuantumEnd::Timer),
            3 => rig.run_kernel(cpu, 10),
            _ => {}
        }
        let user = rig.on_cpu[cpu];
        let tid = rig.users[user].tid;
        for _ in 0..random.below(40) {
            let history = taken.entry(tid).or_default();
            let from = (u64::from(tid) << 32) + history.len() as u64 + 1;
            let mut kind = KINDS[random.below(6) as usize];
            let calls = [BranchKind::DirectCall, BranchKind::IndirectCall];
            let open = open.entry(tid).or_default();
            if calls.contains(&kind) && open.len() >= calls_max {
                kind = BranchKind::Return;
            }
            follow(open, (from, kind), u32::MAX);
            history.push((from, kind));
            rig.branch(cpu, from, from + 0x1000_0000, kind);
            rig.run(cpu, random.below(12) as usize, &[Load, Plain]);
            rig.kernel_branch(cpu, KERNEL | step, KERNEL | 7, BranchKind::DirectCall);
            rig.kernel_branch(cpu, KERNEL | step, 0x1234, BranchKind::Far);
        }
        for (tid, branches) in seen.new_ones(rig, session, cpu) {
            samples += 1;
            check(&taken[&tid], &branches, tid);
        }
    }
    samples
}

fn profiles() -> impl Iterator<Item = (&'static Profile, bool)> {
    cores().flat_map(|profile| [(profile, false), (profile, true)])
}

#[test]
fn a_sample_has_the_branches_that_its_own_thread_took_last() {
    for (profile, by_interrupt) in profiles() {
        let mut rig = rig(profile);
        let depth = depth(&rig);
        let session = rig.add_user_session(&request(&rig.pmu, by_interrupt, depth));
        let mut full = 0;
        let samples = run_threads(&mut rig, session, (1, usize::MAX), |taken, branches, tid| {
            full += u32::from(branches.len() == depth as usize);
            let Some([newest, ..]) = branches.first() else { return };
            let place = taken.iter().position(|(from, _)| from == newest);
            let place = place.unwrap_or_else(|| panic!("{}: {newest:#x} in thread {tid}", profile.name));
            for (age, [from, to, _]) in branches.iter().enumerate() {
                assert_eq!(*from, taken[place - age].0, "{}: {age} before", profile.name);
                assert_eq!(*to, from + 0x1000_0000);
            }
        });
        assert!(samples > 100 && full > 20, "{}: {samples} samples, {full} full", profile.name);
    }
}

/// The calls that have not returned, after one more branch: the oldest beyond the depth are forgotten.
fn follow(calls: &mut VecDeque<u64>, (from, kind): (u64, BranchKind), depth: u32) {
    match kind {
        BranchKind::DirectCall | BranchKind::IndirectCall => {
            calls.push_front(from);
            calls.truncate(depth as usize);
        }
        BranchKind::Return => {
            calls.pop_front();
        }
        _ => {}
    }
}

/// How deep the calls of a test go: beyond the depth of the records.
fn calls_max(rig: &Rig) -> usize {
    2 * depth(rig) as usize
}

#[test]
fn call_stacks_are_each_threads_own_over_switches_and_cpus() {
    for (profile, by_interrupt) in profiles() {
        let mut rig = rig(profile);
        let depth = depth(&rig);
        let request = SessionConfig {
            branch_filter: BranchFilter::CALL_STACK,
            ..request(&rig.pmu, by_interrupt, depth)
        };
        if !rig.pmu.lbr.expect("branch records").call_stack {
            let refusal = Program::new(&rig.pmu, &request).map(|_| ());
            assert_eq!(refusal, Err(Refusal::new(Reason::NoCallStackMode, [0; 2])), "{}", profile.name);
            continue;
        }
        let session = rig.add_user_session(&request);
        let (mut deepest, mut moments) = (0, HashMap::new());
        let calls_max = calls_max(&rig);
        let samples = run_threads(&mut rig, session, (2, calls_max), |taken, branches, tid| {
            let found: VecDeque<u64> = branches.iter().map(|[from, ..]| *from).collect();
            deepest = deepest.max(found.len());
            // A thread's samples were taken at moments that follow each other.
            let (moment, calls) = moments.entry(tid).or_insert((0, VecDeque::new()));
            while *calls != found {
                let next = taken.get(*moment);
                let next = next.unwrap_or_else(|| panic!("{}: {found:x?} in thread {tid}", profile.name));
                follow(calls, *next, depth);
                *moment += 1;
            }
        });
        assert!(samples > 100 && deepest > 5, "{}: {samples} samples, depth {deepest}", profile.name);
    }
}

/// What a deep sleep does to the records: they are empty afterwards.
fn sleep_deeply(rig: &Rig, cpu: usize) {
    let pmu = &mut rig.cores[cpu].borrow_mut().pmu;
    // Of architectural records writing the depth empties them.
    match pmu.rdmsr(0x14CF) {
        Ok(depth) => pmu.wrmsr(0x14CF, depth).expect("a depth"),
        Err(_) => {
            (0x680..0x6A0).for_each(|from| pmu.wrmsr(from, 0).expect("a source"));
            pmu.wrmsr(0x1C9, 0).expect("the newest record's number");
        }
    }
}

#[test]
fn calls_are_put_back_when_the_cpu_has_slept_meanwhile() {
    for profile in ["skylake", "sapphirerapids"].map(named) {
        let mut rig = rig(profile);
        let request = SessionConfig { branch_filter: BranchFilter::CALL_STACK, ..request(&rig.pmu, true, 8) };
        let session = rig.add_session(&request);
        let [thread, stranger] = [rig.add_thread(Some(session)), rig.add_thread(None)];
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.branch(0, 0x1000, 0x2000, BranchKind::DirectCall);
        rig.branch(0, 0x3000, 0x4000, BranchKind::DirectCall);
        for sleeps in [false, true] {
            rig.switch(0, stranger, QuantumEnd::Yielded);
            if sleeps {
                sleep_deeply(&rig, 0);
            }
            rig.switch(0, thread, QuantumEnd::Preempted);
        }
        rig.run(0, PERIOD as usize, &[Load]);
        let samples = Samples::default().new_ones(&mut rig, session, 0);
        let calls: Vec<u64> = samples[0].1.iter().map(|[from, ..]| *from).collect();
        assert_eq!(calls, [0x3000, 0x1000], "{}", profile.name);
    }
}

#[test]
fn another_program_begins_without_the_calls_of_the_one_before() {
    for profile in ["skylake", "sapphirerapids"].map(named) {
        for branch_filter in [0, BranchFilter::CALL_STACK] {
            let mut rig = rig(profile);
            let request = SessionConfig { branch_filter, ..request(&rig.pmu, true, 8) };
            let session = rig.add_session(&request);
            let thread = rig.add_thread(Some(session));
            rig.switch(0, thread, QuantumEnd::Preempted);
            rig.branch(0, 0x1000, 0x2000, BranchKind::DirectCall);
            rig.exec(session, 0);
            rig.branch(0, 0x3000, 0x4000, BranchKind::DirectCall);
            rig.run(0, 150, &[Load]);
            let samples = Samples::default().new_ones(&mut rig, session, 0);
            assert_eq!(samples.len(), 1);
            assert_eq!(samples[0].1.iter().map(|[from, ..]| *from).collect::<Vec<_>>(), [0x3000]);
        }
    }
}

#[test]
fn only_branches_of_the_types_asked_for_are_recorded() {
    let types = [
        BranchFilter::CONDITIONAL,
        BranchFilter::JUMP,
        BranchFilter::INDIRECT_JUMP,
        BranchFilter::CALL,
        BranchFilter::INDIRECT_CALL,
        BranchFilter::RETURN,
    ];
    for profile in cores() {
        for (branch_filter, kind) in types.into_iter().zip(KINDS) {
            let mut rig = rig(profile);
            let request = SessionConfig { branch_filter, ..request(&rig.pmu, true, 8) };
            let session = rig.add_session(&request);
            let thread = rig.add_thread(Some(session));
            rig.switch(0, thread, QuantumEnd::Preempted);
            for (from, kind) in (1..).zip(KINDS) {
                rig.branch(0, from * 0x1000, 0x2000, kind);
            }
            rig.run(0, 150, &[Load]);
            let samples = Samples::default().new_ones(&mut rig, session, 0);
            let wanted = 0x1000 * (1 + KINDS.iter().position(|other| *other == kind).expect("a kind") as u64);
            let found: Vec<u64> = samples[0].1.iter().map(|[from, ..]| *from).collect();
            assert_eq!(found, [wanted], "{} {kind:?}", profile.name);
        }
    }
}

/// A session with the right to the kernel, whose PMI is delivered some branches late.
#[test]
fn the_kernels_branches_are_frozen_by_the_pmi_and_recorded_again_afterwards() {
    for profile in cores() {
        let mut rig = rig(profile);
        let mut request = request(&rig.pmu, true, 8);
        request.events[0].privilege = EventSpec::USER | EventSpec::KERNEL;
        let session = rig.add_session(&request);
        let thread = rig.add_thread(Some(session));
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.cores[0].borrow_mut().machine.nmi_latency = 1;
        let mut seen = Samples::default();
        for round in 1..20_u64 {
            rig.kernel_branch(0, KERNEL | round << 8, KERNEL | 7, BranchKind::DirectCall);
            // The last load overflows, and the PMI comes after the next instruction.
            let before = if round == 1 { PERIOD } else { PERIOD - 1 };
            rig.run(0, before as usize, &[Load]);
            // The handler's own way, up to where it could stop the recording.
            rig.kernel_branch(0, KERNEL | 1, KERNEL | 2, BranchKind::Conditional);
            rig.run(0, 1, &[Load]);
            let samples = seen.new_ones(&mut rig, session, 0);
            assert_eq!(samples.len(), 1, "{}: round {round}", profile.name);
            let newest = samples[0].1.first().map(|[from, ..]| *from);
            assert_eq!(newest, Some(KERNEL | round << 8), "{}: round {round}", profile.name);
        }
    }
}

/// The PMI freezes the records, and its thread has left before anybody could thaw them.
#[test]
fn records_that_were_frozen_when_a_thread_left_record_again_when_it_comes_back() {
    for profile in cores() {
        let mut rig = rig(profile);
        let mut request = request(&rig.pmu, true, 8);
        request.events[0].privilege = EventSpec::USER | EventSpec::KERNEL;
        let session = rig.add_session(&request);
        let [thread, stranger] = [rig.add_thread(Some(session)), rig.add_thread(None)];
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.cores[0].borrow_mut().machine.nmi_latency = 3;
        rig.run(0, PERIOD as usize, &[Load]);
        rig.switch(0, stranger, QuantumEnd::Preempted);
        rig.run(0, 20, &[Plain]);
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.cores[0].borrow_mut().machine.nmi_latency = 0;
        rig.kernel_branch(0, KERNEL | 0x100, KERNEL | 7, BranchKind::DirectCall);
        rig.run(0, PERIOD as usize + 5, &[Load]);
        let samples = Samples::default().new_ones(&mut rig, session, 0);
        let newest = samples[0].1.first().map(|[from, ..]| *from);
        assert_eq!(newest, Some(KERNEL | 0x100), "{}", profile.name);
    }
}

#[test]
fn every_branch_register_is_given_back_as_it_was_found() {
    for profile in cores() {
        let mut rig = Rig::of(profile, 2, Options::default());
        // What another owner has left: not recording.
        let left = [
            (0x1C8, 0x1C1),
            (0x14CE, 0x7F_0004),
            (0x14CF, 16),
            (0x1C9, 3),
            (0x681, 0x1000),
            (0x6C1, 0x2000),
            (0xDC1, 0x21),
            (0x1501, 0x1000),
            (0x1601, 0x2000),
            (0x1201, 0x21),
        ];
        for (register, value) in left {
            // Each processor has some of them.
            let _ = rig.cores[0].borrow_mut().pmu.wrmsr(register, value);
        }
        let before = rig.registers();
        for branch_filter in [0, BranchFilter::CALL_STACK] {
            let request = SessionConfig { branch_filter, ..request(&rig.pmu, false, 8) };
            if Program::new(&rig.pmu, &request).is_err() {
                continue;
            }
            rig.acquire();
            let session = rig.add_session(&request);
            run_threads(&mut rig, session, (3, 20), |_, _, _| {});
            rig.stop(session);
            assert_ne!(rig.registers(), before);
            rig.release();
            assert_eq!(rig.registers(), before, "{}", profile.name);
        }
    }
}

#[test]
fn records_that_somebody_else_uses_are_refused_and_hpms_own_are_not() {
    for profile in cores() {
        let mut rig = rig(profile);
        assert_eq!(rig.check_branches(0), Ok(()));
        let mut refused = Vec::new();
        for (register, value) in [(0x1D9, 1), (0x14CE, 0x7F_0005)] {
            let written = rig.cores[0].borrow_mut().pmu.wrmsr(register, value);
            if written.is_ok() {
                refused.push(rig.check_branches(0));
                let _ = rig.cores[0].borrow_mut().pmu.wrmsr(register, 0);
            }
        }
        let wanted =
            |register: u32, value| Err(Refusal::new(Reason::BranchesRunning, [register.into(), value]));
        let either = refused.contains(&wanted(0x1D9, 1)) || refused.contains(&wanted(0x14CE, 0x7F_0005));
        assert!(either, "{}: {refused:?}", profile.name);
        let session = rig.add_session(&request(&rig.pmu, true, 8));
        let thread = rig.add_thread(Some(session));
        rig.switch(0, thread, QuantumEnd::Preempted);
        assert_eq!(rig.check_branches(0), Ok(()));
    }
}

#[test]
fn branches_that_the_driver_reads_take_the_stacks_place() {
    let with = |profile, by_interrupt, branches| {
        let rig = Rig::of(profile, 1, Options::default());
        let request = request(&rig.pmu, by_interrupt, branches);
        Program::new(&rig.pmu, &SessionConfig { frames: 8, ..request })
            .map(|_| ())
            .map_err(|refusal| refusal.reason)
    };
    assert_eq!(with(named("skylake"), false, 8), Err(Reason::StackBesideBranches));
    assert_eq!(with(named("icelake"), true, 8), Err(Reason::StackBesideBranches));
    assert_eq!(with(named("icelake"), false, 8), Ok(()));
    assert_eq!(with(named("skylake"), false, 33), Err(Reason::TooManyBranches));
}

#[test]
fn a_segment_holds_as_many_records_as_the_document_says() {
    let pebs = rig(named("icelake")).pmu.pebs.expect("PEBS");
    let held = |branches| {
        let size = RecordLayout::new(&pebs, 0, branches).expect("a layout").record_size;
        let segments = Segments::new(2, SEGMENT_BYTES);
        (segments.capacity(size), segments.full_at(size) / u32::from(size))
    };
    // docs/architecture.md, "How a sample travels".
    assert_eq!([held(0), held(32)], [(315, 299), (67, 51)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is asked for, a session that counts user mode only sees no address of the kernel.
    #[test]
    fn a_user_session_never_sees_the_kernel(
        profile in prop::sample::select(cores().collect::<Vec<_>>()),
        (by_interrupt, branches, branch_filter) in (any::<bool>(), 1..=32u32, 0..=128u32),
        seed in any::<u64>(),
    ) {
        let mut rig = rig(profile);
        let request = SessionConfig { branch_filter, ..request(&rig.pmu, by_interrupt, branches) };
        if Program::new(&rig.pmu, &request).is_ok() {
            let session = rig.add_session(&request);
            run_threads(&mut rig, session, (seed, 20), |_, branches, _| {
                let mut words = branches.iter().flat_map(|[from, to, _]| [from, to]);
                assert!(words.all(|word| *word < KERNEL && *word != 0x1234), "{branches:x?}");
            });
        }
    }
}
