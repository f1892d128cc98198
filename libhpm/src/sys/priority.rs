//! Which thread the scheduler prefers.

/// The priority of readers, as nice(2) has it: nine times the share of what has none.
const READER: i32 = -10;

/// Has the scheduler prefer the calling thread, and what it starts from now on, to what it measures: a reader that waits for its turn among
/// many busy threads on one CPU loses what the driver's rings have no room for. Whoever has another priority already keeps it, and
/// without the right to it (`CAP_SYS_NICE`) nothing happens.
pub fn prefer_reader() {
    // SAFETY: Neither call takes a pointer.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    if own == 0 {
        // SAFETY: As above. It fails for lack of the right, and then changes nothing.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, READER) };
    }
}
