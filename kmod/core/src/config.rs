//! Every field of a session's request that does not depend on the PMU.

use core::mem::{offset_of, size_of};

use super::abi::{
    BranchFilter, Envelope, EventMode, EventSpec, Reason, Scope, SessionConfig, SessionFlags, ABI_VERSION,
    EVENTS_MAX, SEGMENT_BYTES,
};
use super::{windows, Refusal};

/// Default of [`SessionConfig::max_quantum_ns`].
const MAX_QUANTUM_DEFAULT_NS: u64 = 10_000_000;
/// Shortest quantum that a timer may cut: ten thousand interrupts per second and CPU.
const MAX_QUANTUM_FLOOR_NS: u64 = 100_000;
/// Longest quantum. Also what keeps a counter from wrapping unseen: 2^48 events take more than a second.
const MAX_QUANTUM_CEILING_NS: u64 = 1_000_000_000;
/// Default of [`SessionConfig::wake_ms`], well within the 100 ms after which a flush is promised.
pub const WAKE_DEFAULT_MS: u32 = 50;
const WAKE_FLOOR_MS: u32 = 10;
const WAKE_CEILING_MS: u32 = 10_000;
/// Default of [`SessionConfig::max_threads`].
const MAX_THREADS_DEFAULT: u32 = 4096;
/// Most threads with a sampling position: 65,536 places take some megabytes.
const MAX_THREADS_CEILING: u32 = 65_536;
/// Bounds of a stack ring.
const STACK_RING_MIN: u32 = 64 << 10;
const STACK_RING_MAX: u32 = 64 << 20;
/// Most stack bytes per record, and what they are a multiple of.
const STACK_BYTES_MAX: u32 = 65_024;
const STACK_BYTES_UNIT: u32 = 1024;
/// Most frames followed for one sample: twice what perf follows by default.
const FRAMES_MAX: u32 = 254;

/// Checks the head of any request of `size` bytes.
///
/// # Errors
/// [`Reason::Version`], or [`Reason::Field`] for the size or the reserved field.
pub fn check_envelope(envelope: &Envelope, size: usize) -> Result<(), Refusal> {
    if envelope.version != ABI_VERSION {
        return Err(Refusal::new(Reason::Version, [u64::from(ABI_VERSION), 0]));
    }
    require(envelope.size as usize == size, offset_of!(Envelope, size))?;
    require(envelope.reserved == 0, offset_of!(Envelope, reserved))
}

/// Checks the request and fills in the driver's defaults. Events are checked against the PMU elsewhere.
///
/// # Errors
/// [`Reason::Version`], or [`Reason::Field`] with the offset of the first field that is not valid.
pub fn check(request: &SessionConfig) -> Result<SessionConfig, Refusal> {
    check_envelope(&request.envelope, size_of::<SessionConfig>())?;
    check_target(request)?;
    check_event_list(request)?;
    windows::check(request)?;
    check_memory(request)?;
    check_branches(request)?;
    let mut config = *request;
    // Larger ones are the shell's to choose, which knows what each CPU has room for.
    config.segment_bytes = SEGMENT_BYTES;
    if config.max_quantum_ns == 0 {
        config.max_quantum_ns = MAX_QUANTUM_DEFAULT_NS;
    }
    let quantum = MAX_QUANTUM_FLOOR_NS..=MAX_QUANTUM_CEILING_NS;
    require(quantum.contains(&config.max_quantum_ns), offset_of!(SessionConfig, max_quantum_ns))?;
    if config.wake_ms == 0 {
        config.wake_ms = WAKE_DEFAULT_MS;
    }
    let wake = WAKE_FLOOR_MS..=WAKE_CEILING_MS;
    require(wake.contains(&config.wake_ms), offset_of!(SessionConfig, wake_ms))?;
    if config.max_threads == 0 {
        config.max_threads = MAX_THREADS_DEFAULT;
    }
    require(config.max_threads <= MAX_THREADS_CEILING, offset_of!(SessionConfig, max_threads))?;
    Ok(config)
}

/// Offset of a field of the event at `index`, which lies `inside` it.
pub(super) const fn event_field(index: usize, inside: usize) -> usize {
    offset_of!(SessionConfig, events) + index * size_of::<EventSpec>() + inside
}

fn require(valid: bool, offset: usize) -> Result<(), Refusal> {
    if valid {
        Ok(())
    } else {
        Err(Refusal::field(offset))
    }
}

fn check_target(request: &SessionConfig) -> Result<(), Refusal> {
    // The flags that a scope has a meaning for, and whether it is about a process or thread with a number.
    let (numbered, flags) = match request.scope {
        scope if scope == Scope::Process as u32 => {
            (true, SessionFlags::START_ON_EXEC | SessionFlags::INHERIT | SessionFlags::PROOF)
        }
        scope if scope == Scope::Thread as u32 => (true, SessionFlags::PROOF),
        scope if scope == Scope::System as u32 => (false, SessionFlags::ONE_CPU),
        scope if scope == Scope::Cgroup as u32 => (false, 0),
        _ => return Err(Refusal::field(offset_of!(SessionConfig, scope))),
    };
    require((request.pid > 0) == numbered && request.pid >= 0, offset_of!(SessionConfig, pid))?;
    let flags = flags | SessionFlags::MULTIPLEX | SessionFlags::COUNTER_PAGES | SessionFlags::SHARED;
    require(request.flags & !flags == 0, offset_of!(SessionConfig, flags))?;
    let has = |flag: u32| request.flags & flag != 0;
    let gapless = has(SessionFlags::COUNTER_PAGES) || request.branches > 0;
    require(!(gapless && has(SessionFlags::SHARED)), offset_of!(SessionConfig, flags))?;
    require(has(SessionFlags::ONE_CPU) || request.cpu == 0, offset_of!(SessionConfig, cpu))?;
    let given = |wanted: bool, descriptor: i32| if wanted { descriptor >= 0 } else { descriptor == 0 };
    let cgroup = request.scope == Scope::Cgroup as u32;
    require(given(cgroup, request.cgroup_fd), offset_of!(SessionConfig, cgroup_fd))?;
    require(given(has(SessionFlags::PROOF), request.proof_fd), offset_of!(SessionConfig, proof_fd))
}

fn check_branches(request: &SessionConfig) -> Result<(), Refusal> {
    let wanted = request.branches > 0;
    require(!wanted || samples(request), offset_of!(SessionConfig, branches))?;
    let filter = request.branch_filter;
    let known = filter & !BranchFilter::TYPES == 0 || filter == BranchFilter::CALL_STACK;
    require(if wanted { known } else { filter == 0 }, offset_of!(SessionConfig, branch_filter))
}

/// Whether an event is sampled.
fn samples(request: &SessionConfig) -> bool {
    let mut events = request.events.iter().take(request.event_count as usize);
    let sampled = [EventMode::Precise as u8, EventMode::Interrupt as u8];
    events.any(|event| sampled.contains(&event.mode))
}

fn check_event_list(request: &SessionConfig) -> Result<(), Refusal> {
    let count = request.event_count as usize;
    require((1..=EVENTS_MAX).contains(&count), offset_of!(SessionConfig, event_count))?;
    let unused = request.events.iter().enumerate().skip(count);
    for (index, event) in unused {
        require(*event == EventSpec::default(), event_field(index, 0))?;
    }
    Ok(())
}

fn check_memory(request: &SessionConfig) -> Result<(), Refusal> {
    let ring = |units: u32| units.is_power_of_two() && (64..=65_536).contains(&units);
    let samples = samples(request);
    let segments = if samples { 2..=256 } else { 0..=0 };
    require(segments.contains(&request.segments), offset_of!(SessionConfig, segments))?;
    let larger = samples && request.segment_bytes >= SEGMENT_BYTES;
    require(request.segment_bytes == 0 || larger, offset_of!(SessionConfig, segment_bytes))?;
    require(request.reserved == 0, offset_of!(SessionConfig, reserved))?;
    require(ring(request.quanta) || request.quanta == 0 && !samples, offset_of!(SessionConfig, quanta))?;
    require(request.markers == 0 || ring(request.markers), offset_of!(SessionConfig, markers))?;
    let stack = request.stack_bytes;
    require(
        stack == 0 || samples && stack <= STACK_BYTES_MAX && stack % STACK_BYTES_UNIT == 0,
        offset_of!(SessionConfig, stack_bytes),
    )?;
    let frames = request.frames;
    require(frames == 0 || samples && stack == 0 && frames <= FRAMES_MAX, offset_of!(SessionConfig, frames))?;
    let ring = request.stack_ring_bytes;
    let ring_valid = ring.is_power_of_two() && (STACK_RING_MIN..=STACK_RING_MAX).contains(&ring);
    // Whether branches need it depends on the PMU.
    let (needed, used) = (stack > 0 || frames > 0, stack > 0 || frames > 0 || request.branches > 0);
    require(if ring == 0 { !needed } else { used && ring_valid }, offset_of!(SessionConfig, stack_ring_bytes))
}
