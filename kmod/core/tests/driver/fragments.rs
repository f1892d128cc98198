//! Architectural PEBS whose records come in fragments, or are none: what of them is shown, to whom, and how they are counted.

use crate::rig::core::Instruction::{Load, Plain};
use crate::rig::core::{word, Shared};
use crate::rig::scene::{config, precise, start_thread, LOADS, MIX, STORES};
use crate::rig::Rig;
use hpm_abi::{Quantum, QuantumEnd, QuantumFlags, SessionConfig};
use proptest::prelude::*;
use vpmu::profile::CLEARWATER_FOREST;
use vpmu::Options;

const KERNEL: u64 = 1 << 63;
/// Bit 30 of a header, 64BIT_MODE, which no value of the kernel's has here.
const HEADER: u64 = 1 << 30;
/// Header, basic group, memory and general registers.
const RECORD: u32 = 64 + 64 + 160;

/// A session on one CPU; one that may not see the kernel if it `hides`.
fn rig(options: Options, request: &SessionConfig, hides: bool) -> (Rig, usize, u32) {
    let mut rig = Rig::of(&CLEARWATER_FOREST, 1, options);
    rig.acquire();
    let session = if hides { rig.add_user_session(request) } else { rig.add_session(request) };
    let tid = start_thread(&mut rig, session);
    (rig, session, tid)
}

/// Whether anything of the kernel's can be seen in mapped memory.
fn shows_kernel(shared: &Shared) -> bool {
    let words = shared.segments.iter().flat_map(|segment| segment.chunks_exact(8));
    let mut words = words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    words.any(|word| word & KERNEL != 0 && word & HEADER == 0)
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Run(usize),
    Kernel(usize),
    /// To the session's other thread, or to nobody's.
    Switch(usize),
    Cut,
    Read,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1..3000usize).prop_map(Action::Run),
        2 => (1..60usize).prop_map(Action::Kernel),
        2 => (0..3usize).prop_map(Action::Switch),
        1 => Just(Action::Cut),
        1 => Just(Action::Read),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    options: Options,
    hides: bool,
    several: bool,
    stacks: bool,
    groups: u32,
    period: u64,
}

fn kind() -> impl Strategy<Value = Kind> {
    let session = (any::<bool>(), any::<bool>(), any::<bool>(), prop::sample::select(vec![0, 1, 2, 3, 7]));
    (session, 0..4u32, 0..6u64, 100..400u64).prop_map(
        |((hides, several, stacks, groups), pebs_fragments, pebs_skid, period)| Kind {
            options: Options { pebs_fragments, pebs_skid, ..Options::default() },
            hides,
            several,
            // A stack needs the registers.
            stacks: stacks && (groups == 0 || groups & 2 != 0),
            groups,
            period,
        },
    )
}

impl Kind {
    fn request(&self) -> SessionConfig {
        let events = [precise(LOADS, self.period), precise(STORES, self.period + 7)];
        let mut request = config(&events[..if self.several { 2 } else { 1 }]);
        (request.record_groups, request.max_threads, request.segment_bytes) = (self.groups, 8, u32::MAX);
        if self.stacks {
            (request.frames, request.stack_ring_bytes) = (8, 1 << 16);
        }
        request
    }
}

/// Whatever was written is shown or counted as withheld, each record once, and nothing of the kernel's is where it may not be.
fn try_out(kind: &Kind, actions: &[Action]) {
    let (mut rig, session, _) = rig(kind.options, &kind.request(), kind.hides);
    let other = rig.add_thread(Some(session));
    for action in actions {
        match *action {
            Action::Run(instructions) => rig.run(0, instructions, &MIX),
            Action::Kernel(instructions) => rig.run_kernel(0, instructions),
            Action::Switch(thread) => {
                let thread = [0, 1, other][thread];
                if rig.on_cpu[0] != thread {
                    rig.switch(0, thread, QuantumEnd::Preempted);
                }
            }
            Action::Cut => rig.cut(0, QuantumEnd::Timer),
            Action::Read => {}
        }
        // Before the reader checks what it is given, most of which is of one thread's user mode.
        let seen = shows_kernel(&rig.cores[0].borrow().machine.shared[session]);
        assert!(!(kind.hides && seen), "the kernel shows");
        if kind.hides || kind.options.pebs_skid == 0 {
            rig.read_all();
        } else {
            rig.give_back_all();
        }
    }
    rig.stop(session);
    let totals = rig.sessions[session].totals();
    let written = rig.cores[0].borrow().written;
    assert_eq!((totals.quanta_lost, rig.cores[0].borrow().dropped), (0, 0));
    assert_eq!(totals.records + totals.records_withheld, written);
    assert!(kind.hides || totals.records_withheld == 0);
    if kind.hides || kind.options.pebs_skid == 0 {
        rig.read_all();
        let shown: u64 = rig.sessions[session].reader.threads.values().map(|seen| seen.spans).sum();
        assert_eq!(shown, totals.records);
    }
    if kind.options.pebs_skid == 0 {
        for event in 0..rig.sessions[session].program.config().event_count as usize {
            let truth: u64 = rig.users.iter().map(|user| user.truth[event]).sum();
            assert_eq!(totals.counts[event], truth, "event {event}");
        }
        assert_eq!(totals.records_lost, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_fragmented_is_one_record_and_hides_the_kernel(
        kind in kind(),
        actions in prop::collection::vec(action(), 1..60),
    ) {
        try_out(&kind, &actions);
    }
}

/// The property's case that must not be left to chance: many late records, each second one in fragments.
#[test]
fn a_record_in_fragments_that_shows_the_kernel_is_withheld_as_a_whole() {
    for pebs_fragments in [1, 2] {
        let options = Options { pebs_fragments, pebs_skid: 4, ..Options::default() };
        let (mut rig, session, tid) = rig(options, &config(&[precise(LOADS, 100)]), true);
        for _ in 0..2000 {
            rig.run(0, 97, &[Load, Plain]);
            rig.run_kernel(0, 50);
            assert!(!shows_kernel(&rig.cores[0].borrow().machine.shared[session]));
            rig.read_all();
        }
        rig.stop(session);
        rig.read_all();
        let totals = rig.sessions[session].totals();
        let seen = &rig.sessions[session].reader.threads[&tid];
        assert!(totals.records_withheld > 10, "no record came late enough: {totals:?}");
        assert_eq!((seen.records[0], seen.counts[0], totals.records_lost), (totals.records, 2000 * 49, 0));
        assert_eq!(totals.records + totals.records_withheld, (seen.counts[0] - 1) / 100);
    }
}

/// Ten records, of which the fourth has this header, and an address of the kernel at this place if at any.
fn corrupted(hides: bool, header: u64, kernel_at: Option<u32>) -> (Rig, usize, Quantum) {
    let (mut rig, session, _) = rig(Options::default(), &config(&[precise(LOADS, 100)]), hides);
    rig.run(0, 1001, &[Load]);
    let start = 3 * RECORD;
    let mut core = rig.cores[0].borrow_mut();
    let window = core.machine.window().expect("a segment");
    assert_eq!(word(window, start) & 0xFFFF, RECORD.into());
    let kernel = kernel_at.map(|place| (place, KERNEL | 1));
    for (place, value) in [(0, header)].into_iter().chain(kernel) {
        let at = (start + place) as usize;
        window[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    drop(core);
    rig.cut(0, QuantumEnd::Timer);
    let quantum = rig.cores[0].borrow().machine.shared[session].quanta[0].expect("published");
    (rig, session, quantum)
}

/// Nobody is shown what cannot be told apart, nor anything behind it; the next records are good again.
#[test]
fn behind_what_is_no_record_the_rest_of_the_span_is_withheld() {
    const BASIC: u64 = 1 << 63;
    const GPR: u64 = 1 << 61;
    const CONTINUE: u64 = 1 << 31;
    let record = u64::from(RECORD);
    for (what, header) in [
        ("nothing", 0),
        ("no size", BASIC | GPR),
        ("a size of no header", BASIC | 8),
        ("a size of no multiple", BASIC | (record - 8)),
        ("groups that do not fit", BASIC | GPR | 128),
        ("more than there is", BASIC | 0xFFF0),
        ("no basic group", GPR | record),
        ("an end that is missing", BASIC | CONTINUE | (7 * record)),
    ] {
        for hides in [false, true] {
            let (mut rig, session, quantum) = corrupted(hides, header, None);
            assert_eq!(quantum.span_bytes, 3 * RECORD, "{what}");
            assert_eq!(quantum.counts[0], 1001, "{what}: periods of records that are withheld");
            assert_ne!(quantum.flags & QuantumFlags::RECORDS_WITHHELD, 0, "{what}");
            let totals = rig.sessions[session].totals();
            assert_eq!((totals.records, totals.records_withheld), (3, 7), "{what}");
            rig.run(0, 1000, &[Load]);
            rig.stop(session);
            rig.read_all();
            let totals = rig.sessions[session].totals();
            assert_eq!((totals.records, totals.records_withheld, totals.records_lost), (13, 7, 0), "{what}");
            assert_eq!(totals.counts[0], 2001, "{what}");
        }
    }
}

/// Another header than was programmed, and one that can be read: of basic group and registers, in as many bytes.
#[test]
fn a_record_of_other_groups_is_judged_where_they_are() {
    let header = 1 << 63 | 1 << 61 | u64::from(RECORD);
    // RIP lies where the memory access would, and where RIP would, is another register.
    for (kernel_at, withheld) in [(64 + 0x08, 1), (64 + 64 + 0x08, 0)] {
        let (rig, session, quantum) = corrupted(true, header, Some(kernel_at));
        assert_eq!(quantum.span_bytes, (10 - withheld) * RECORD);
        assert_eq!(rig.sessions[session].totals().records_withheld, withheld.into());
    }
}
