//! Random interleavings of threads, CPUs, cuts, PMIs and readers: whatever happens, the numbers add up.

use crate::rig;
use crate::rig::core::Instruction::{self, Branch, Load, Plain, Store};
use crate::rig::netburst::{self, FRONT_END, TAG_LOADS, TAG_STORES};
use crate::rig::scene::{
    config, counted, interrupting, precise, BRANCHES, INSTRUCTIONS, LOADS, PRECISE_INSTRUCTIONS, STORES,
};
use crate::rig::Rig;
use hpm_abi::{EventSpec, QuantumEnd, SessionConfig};
use proptest::prelude::*;
use vpmu::profile::PRESCOTT;
use vpmu::Options;

/// The CPUs that threads run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Processor {
    Skylake,
    /// Two cores of a Pentium 4.
    Pentium4,
    /// One core of two logical processors that share its PMU, and so one session.
    Siblings,
}

impl Processor {
    fn rig(self, options: Options) -> Rig {
        match self {
            Self::Skylake => Rig::new(CPUS, options),
            Self::Pentium4 => Rig::of(&PRESCOTT, CPUS, options),
            Self::Siblings => Rig::siblings(&PRESCOTT, options),
        }
    }

    /// Whether clearing IA32_PEBS_ENABLE keeps back a record that is due, if anything does.
    fn disarms(self, options: Options) -> bool {
        self != Self::Siblings && options.pebs_disable_disarms
    }

    fn sessions(self) -> usize {
        if self == Self::Siblings {
            1
        } else {
            2
        }
    }
}

const CPUS: usize = 2;
const THREADS_PER_SESSION: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Action {
    Run { cpu: usize, instructions: usize, mix: usize },
    Kernel { cpu: usize, instructions: usize },
    Switch { cpu: usize, thread: usize },
    Cut { cpu: usize },
    Read { session: usize, cpu: usize },
}

const MIXES: [&[Instruction]; 4] =
    [&[Load], &[Plain, Load, Load, Store, Branch], &[Plain, Branch], &[Store, Load, Branch]];

/// The event with what tags its micro-operations.
fn tagging(extra: u64, event: EventSpec) -> EventSpec {
    EventSpec { extra, ..event }
}

fn action() -> impl Strategy<Value = Action> {
    let cpu = || 0..CPUS;
    prop_oneof![
        4 => (cpu(), 1..3000usize, 0..MIXES.len())
            .prop_map(|(cpu, instructions, mix)| Action::Run { cpu, instructions, mix }),
        2 => (cpu(), 1..5usize, 0..MIXES.len())
            .prop_map(|(cpu, instructions, mix)| Action::Run { cpu, instructions, mix }),
        1 => (cpu(), 1..30usize).prop_map(|(cpu, instructions)| Action::Kernel { cpu, instructions }),
        4 => (cpu(), 0..12usize).prop_map(|(cpu, thread)| Action::Switch { cpu, thread }),
        1 => cpu().prop_map(|cpu| Action::Cut { cpu }),
        1 => (0..2usize, cpu()).prop_map(|(session, cpu)| Action::Read { session, cpu }),
    ]
}

/// Events of a Pentium 4, with second counters or without; on a sibling there are fewer.
fn pentium_4_events(processor: Processor) -> BoxedStrategy<Vec<EventSpec>> {
    let whole = usize::from(processor == Processor::Pentium4);
    (0..5 + 2 * whole, 100..1500u64, 100..1500u64)
        .prop_map(|(which, period, other)| match which {
            0 => vec![tagging(TAG_LOADS, precise(FRONT_END, period)), counted(netburst::INSTRUCTIONS)],
            1 => vec![counted(netburst::INSTRUCTIONS), counted(netburst::BRANCHES)],
            2 => vec![interrupting(netburst::INSTRUCTIONS, period), counted(netburst::BRANCHES)],
            3 => vec![
                tagging(TAG_STORES, interrupting(FRONT_END, period)),
                interrupting(netburst::INSTRUCTIONS, other),
            ],
            4 => vec![tagging(TAG_STORES, precise(FRONT_END, period))],
            5 => vec![
                tagging(TAG_STORES, precise(FRONT_END, period)),
                counted(netburst::INSTRUCTIONS),
                counted(netburst::BRANCHES),
                counted(netburst::INSTRUCTIONS_COMPLETED),
            ],
            // No counter is left for the precise event's count.
            _ => vec![
                tagging(TAG_LOADS, precise(FRONT_END, period)),
                counted(netburst::INSTRUCTIONS),
                counted(netburst::INSTRUCTIONS),
                counted(netburst::INSTRUCTIONS_COMPLETED),
                counted(netburst::INSTRUCTIONS_COMPLETED),
                counted(netburst::INSTRUCTIONS_COMPLETED),
            ],
        })
        .boxed()
}

/// Sessions of one to four events, with second counters or without.
fn events() -> impl Strategy<Value = Vec<EventSpec>> {
    (0..7usize, 100..1500u64, 100..1500u64).prop_map(|(which, period, other)| match which {
        0 => vec![precise(LOADS, period), counted(INSTRUCTIONS)],
        1 => vec![precise(LOADS, period), precise(STORES, other)],
        2 => vec![
            precise(PRECISE_INSTRUCTIONS, period),
            precise(LOADS, other),
            precise(STORES, period),
            precise(BRANCHES, other),
        ],
        3 => vec![counted(INSTRUCTIONS), counted(LOADS), counted(0x00C4), counted(0x0100)],
        4 => vec![counted(STORES), precise(BRANCHES, period)],
        5 => vec![interrupting(LOADS, period), counted(INSTRUCTIONS)],
        _ => {
            vec![interrupting(STORES, period), interrupting(0x00C4, other), interrupting(INSTRUCTIONS, other)]
        }
    })
}

fn session(processor: Processor) -> impl Strategy<Value = SessionConfig> {
    let events = if processor == Processor::Skylake { events().boxed() } else { pentium_4_events(processor) };
    let memory = prop_oneof![2..5u32, 6..12u32];
    (events, memory, any::<bool>(), 1..8u32).prop_map(|(events, segments, stacks, max_threads)| {
        let mut config = config(&events);
        config.quanta = 64;
        config.max_threads = max_threads;
        if config.segments > 0 {
            (config.segments, config.segment_bytes) = (segments, u32::MAX);
            (config.stack_bytes, config.stack_ring_bytes) = if stacks { (1024, 1 << 16) } else { (0, 0) };
        }
        config
    })
}

struct Scenario {
    processor: Processor,
    sessions: Vec<SessionConfig>,
    actions: Vec<Action>,
    nmi_latency: u32,
    disarms: bool,
    eager_reader: bool,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for config in &self.sessions {
            let used = &config.events[..config.event_count as usize];
            let events: Vec<_> = used.iter().map(|event| (event.encoding, event.period)).collect();
            let rest = (config.segments, config.stack_bytes, config.max_threads);
            writeln!(f, "events {events:x?}; segments, stack, threads {rest:?}")?;
        }
        let Self { processor, nmi_latency, disarms, eager_reader, .. } = self;
        writeln!(f, "{processor:?}, latency {nmi_latency}, disarms {disarms}, eager reader {eager_reader}")?;
        self.actions.iter().try_for_each(|action| writeln!(f, "{action:?}"))
    }
}

fn scenario(processor: Processor) -> impl Strategy<Value = Scenario> {
    let sessions = prop::collection::vec(session(processor), processor.sessions());
    (sessions, prop::collection::vec(action(), 1..80), 0..12u32, any::<bool>(), any::<bool>()).prop_map(
        move |(sessions, actions, nmi_latency, disarms, eager_reader)| Scenario {
            processor,
            sessions,
            actions,
            nmi_latency,
            disarms,
            eager_reader,
        },
    )
}

impl Scenario {
    fn disarms(&self) -> bool {
        self.processor.disarms(Options { pebs_disable_disarms: self.disarms, ..Options::default() })
    }
}

fn perform(rig: &mut Rig, action: Action) {
    match action {
        Action::Run { cpu, instructions, mix } => rig.run(cpu, instructions, MIXES[mix]),
        Action::Kernel { cpu, instructions } => rig.run_kernel(cpu, instructions),
        Action::Switch { cpu, thread } => {
            let thread = thread % rig.users.len();
            if !rig.on_cpu.contains(&thread) {
                rig.switch(cpu, thread, QuantumEnd::Preempted);
            }
        }
        Action::Cut { cpu } => rig.cut(cpu, QuantumEnd::Timer),
        Action::Read { session, cpu } => rig.read(session % rig.sessions.len(), cpu),
    }
}

fn judge(rig: &Rig, scenario: &Scenario) {
    let (mut published, mut lost_with_quanta) = (0, 0);
    for number in 0..scenario.sessions.len() {
        let session = &rig.sessions[number];
        let totals = session.totals();
        let config = session.program.config();
        let count = config.event_count as usize;
        let users = rig.users.iter().filter(|user| user.session == Some(number));
        // A record that stayed armed for a foreign thread sets its counter back unseen; a second counter sees the truth.
        let exact = |event: usize| scenario.disarms() || session.program.counting_counter(event).is_some();
        for event in (0..count).filter(|&event| exact(event)) {
            let truth: u64 = users.clone().map(|user| user.truth[event]).sum();
            assert_eq!(totals.counts[event], truth, "session {number}, event {event}");
        }
        let reader = &session.reader;
        assert_eq!(reader.quanta_lost, totals.quanta_lost - trailing_lost(session));
        let spans: u64 = reader.threads.values().map(|seen| seen.spans).sum();
        assert_eq!(spans, totals.records, "every published record is in one span");
        let seen_lost: u64 = reader.threads.values().map(|seen| seen.records_lost).sum();
        published += spans;
        lost_with_quanta += totals.records_lost - seen_lost;
        if totals.quanta_lost == 0 {
            assert_eq!(totals.records_lost, seen_lost);
            for user in users {
                judge_thread(scenario, session, user);
            }
        }
    }
    let written: u64 = rig.cores.iter().map(|core| core.borrow().written).sum();
    let dropped: u64 = rig.cores.iter().map(|core| core.borrow().dropped).sum();
    assert_eq!(dropped, 0, "the threshold leaves room for a late PMI");
    assert!(published <= written && written <= published + lost_with_quanta);
    if lost_with_quanta == 0 {
        assert_eq!(written, published, "no record is written but not published");
    }
}

/// Quanta lost after the last one that was published: the reader sees no gap for them.
fn trailing_lost(session: &rig::SessionMemory) -> u64 {
    session.totals().quanta_lost - session.reader.quanta_lost
}

fn judge_thread(scenario: &Scenario, session: &rig::SessionMemory, user: &rig::User) {
    let Some(seen) = session.reader.threads.get(&user.tid) else {
        assert_eq!(user.truth, [0; hpm_abi::EVENTS_MAX]);
        return;
    };
    for (event, &truth) in user.truth.iter().enumerate() {
        if scenario.disarms() || session.program.counting_counter(event).is_some() {
            assert_eq!(seen.counts[event], truth, "thread {}, event {event}", user.tid);
        }
    }
    let samplers: Vec<_> = session.program.sampling_counters().collect();
    if seen.overflowed {
        return;
    }
    if let [sampler] = samplers[..] {
        let event = usize::from(sampler.event);
        let period = sampler.period as i64;
        let sampled = (seen.records[event] + seen.records_lost) as i64 * period;
        let missing = user.truth[event] as i64 - sampled;
        // An overflow whose record was still due at a switch comes an event late each time.
        let late = scenario.actions.len() as i64;
        // A record that stayed armed for another thread is one too many here, until the position makes up for it.
        let early = if scenario.disarms() { 0 } else { 2 * period };
        // An interrupt that had not come when the session ended took no sample.
        let under_way = if session.program.is_precise() { 0 } else { i64::from(scenario.nmi_latency) };
        let most = period + late + under_way;
        assert!(-early <= missing && missing < most, "{missing} of {period} events are not sampled");
    }
}

fn run(scenario: &Scenario) {
    let options = Options { pebs_disable_disarms: scenario.disarms, ..Options::default() };
    let mut rig = scenario.processor.rig(options);
    let before = rig.registers();
    for core in &rig.cores {
        core.borrow_mut().machine.nmi_latency = scenario.nmi_latency;
    }
    rig.acquire();
    for config in &scenario.sessions {
        let session = rig.add_session(config);
        for _ in 0..THREADS_PER_SESSION {
            rig.add_thread(Some(session));
        }
    }
    rig.add_kernel_thread();
    rig.add_kernel_thread();
    for &action in &scenario.actions {
        perform(&mut rig, action);
        if scenario.eager_reader {
            rig.read_all();
        }
    }
    (0..scenario.sessions.len()).for_each(|session| rig.stop(session));
    rig.read_all();
    rig.release();
    assert_eq!(rig.registers(), before);
    judge(&rig, scenario);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_numbers_add_up(scenario in scenario(Processor::Skylake)) {
        run(&scenario);
    }

    #[test]
    fn whatever_happens_on_a_pentium_4_the_numbers_add_up(scenario in scenario(Processor::Pentium4)) {
        run(&scenario);
    }

    #[test]
    fn whatever_happens_on_its_siblings_the_numbers_add_up(scenario in scenario(Processor::Siblings)) {
        run(&scenario);
    }
}
