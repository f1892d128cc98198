//! Requests that are valid, if the caller has the right to them: what is then changed at random.

use anyhow::Result;
use fastrand::Rng;
use hpm_abi::{
    CounterReading, CounterRequest, Envelope, EventMode, EventSpec, IOCTL_CONFIGURE, IOCTL_COUNTERS,
    IOCTL_INFO, IOCTL_MARK, IOCTL_MARKER_PAGE, IOCTL_READ, IOCTL_TOTALS, Info, Mark, MarkerPageRequest,
    SessionConfig, SessionFlags, Totals,
};
use libhpm::event::{self, Event};
use libhpm::session::{Branches, Options, Stack, Target};
use libhpm::sys::probe::{ARGUMENT_WORDS, words};

use crate::guest::processor::LOADS;

/// Counted, or sampled where hardware can. None of them needs the model's caches, which slow the guest down several times: cycles do,
/// and records of stores.
const EVENTS: [&str; 4] = ["instructions:u", "branch:u", "branch", "instructions"];

/// The least that the driver takes (kmod/core/src/config.rs).
const STACK_RING: u32 = 64 * 1024;

/// What requests are made of.
pub(super) struct Valid {
    events: Vec<Event>,
}

impl Valid {
    /// For the PMU that hpm calls this.
    pub(super) fn new(pmu: &str) -> Result<Self> {
        let names = EVENTS.iter().chain([&LOADS]);
        let events = names.map(|name| event::parse_each(name, pmu)).collect::<libhpm::Result<Vec<_>>>()?;
        Ok(Self { events: events.concat() })
    }

    /// The argument of an ioctl to a session that has this counter page.
    pub(super) fn argument(&self, number: u32, page: u32, random: &mut Rng) -> [u64; ARGUMENT_WORDS] {
        let threads = [0, 0, std::process::id() as i32, 1];
        match number {
            IOCTL_CONFIGURE => words(&self.config(random)),
            IOCTL_INFO => words(&Info { envelope: Envelope::new::<Info>(), ..Info::default() }),
            IOCTL_TOTALS => words(&Totals { envelope: Envelope::new::<Totals>(), ..Totals::default() }),
            IOCTL_COUNTERS => {
                let envelope = Envelope::new::<CounterRequest>();
                words(&CounterRequest { envelope, tid: random.choice(threads).unwrap_or(0), page: 0 })
            }
            IOCTL_READ => {
                let envelope = Envelope::new::<CounterReading>();
                words(&CounterReading { envelope, page, ..CounterReading::default() })
            }
            IOCTL_MARK => {
                let (value, name) = (random.u64(..), std::array::from_fn(|_| random.u8(..)));
                words(&Mark { envelope: Envelope::new::<Mark>(), value, name, ..Mark::default() })
            }
            IOCTL_MARKER_PAGE => {
                let envelope = Envelope::new::<MarkerPageRequest>();
                words(&MarkerPageRequest { envelope, ..MarkerPageRequest::default() })
            }
            _ => words(&Envelope::new::<Envelope>()),
        }
    }

    fn config(&self, random: &mut Rng) -> SessionConfig {
        let own = std::process::id() as i32;
        let target = match random.u8(..16) {
            0 => Target::System,
            1 => Target::Cpu(random.u32(..2)),
            2 => Target::Thread(own),
            3 => Target::Process(1),
            4 => Target::Cgroup("/sys/fs/cgroup".into()),
            _ => Target::Process(own),
        };
        let shared = random.u8(..3) == 0;
        let mut options = Options::new(target)
            .inherit(random.bool())
            .start_on_exec(random.u8(..4) == 0)
            .multiplex(random.bool())
            .share(shared)
            .counter_pages(!shared && random.bool());
        let samples = random.u8(..4) > 0;
        if samples {
            options = sampling(options, random);
        }
        // Who may not see the kernel is refused at once otherwise.
        let user_only = random.u8(..4) > 0;
        for event in &self.events {
            let precise = event.sampled_precisely();
            options = match random.u8(..4) {
                0 => continue,
                _ if user_only && event.kernel => continue,
                1 | 2 if precise && samples => options.sample(event.clone(), random.u64(90..5000)),
                _ => options.count(event.clone()),
            };
        }
        let mut config = options.config();
        if random.u8(..6) == 0 {
            in_windows(&mut config, random);
        }
        config.quanta = if samples { 64 } else { random.choice([0, 64]).unwrap_or(0) };
        config.segments = config.segments.min(random.choice([2, 6]).unwrap_or(2));
        config.max_threads = random.choice([0, 1, 64]).unwrap_or(0);
        config.markers = random.choice([0, 64]).unwrap_or(0);
        config.stack_ring_bytes = config.stack_ring_bytes.min(STACK_RING);
        config.cgroup_fd = if config.cgroup_fd == 0 { 0 } else { random.i32(..12) };
        if random.u8(..10) == 0 {
            (config.flags, config.proof_fd) = (config.flags | SessionFlags::PROOF, random.i32(-1..12));
        }
        config
    }
}

/// Samples what is sampled precisely in windows of the first event that is counted, which some processors can.
fn in_windows(config: &mut SessionConfig, random: &mut Rng) {
    let events = config.events.iter_mut().take(config.event_count as usize);
    let mut window = Some(random.u64(90..5000));
    for event in events {
        if event.mode == EventMode::Precise as u8 {
            (event.flags, event.rate, event.period) = (EventSpec::WINDOWED, 0, random.u64(9..500));
        } else if event.mode == EventMode::Count as u8 {
            event.period = window.take().unwrap_or(0);
        }
    }
    config.flags &= !SessionFlags::MULTIPLEX;
}

/// The 32 bits at this offset of an argument.
pub(super) fn field(argument: &[u64; ARGUMENT_WORDS], offset: usize) -> u32 {
    (argument[offset / size_of::<u64>()] >> (offset % size_of::<u64>() * 8)) as u32
}

/// How is sampled.
fn sampling(options: Options, random: &mut Rng) -> Options {
    let stack = match random.u8(..4) {
        0 => Stack::Copied(1024),
        1 => Stack::FramePointers(random.u32(1..64)),
        _ => Stack::None,
    };
    let branches = match random.u8(..4) {
        0 => Some(Branches { count: 0, filter: 0 }),
        1 => Some(Branches { count: random.u32(..34), filter: random.u32(..) & random.u32(..0x200) }),
        _ => None,
    };
    options
        .imprecise(random.u8(..3) == 0)
        .randomise(random.bool())
        .rate(if random.bool() { 0 } else { random.u64(1..100_000) })
        .stack(stack)
        .branches(branches)
}
