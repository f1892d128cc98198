//! Reading the guest's kernel log.

/// What the kernel says when something is wrong with it or with a module (include/asm-generic/bug.h,
/// lib/bug.c, arch/x86/mm/extable.c, kernel/panic.c, kernel/rcu); lockdep, KASAN and debugobjects say WARNING or BUG too,
/// the last three are lockdep's, the hung-task detector's and kmemleak's own words.
/// Each follows a space, because every line starts with its time: `DEBUG: ` is no complaint.
const COMPLAINTS: [&str; 13] = [
    " WARNING: ",
    " BUG: ",
    " kernel BUG at",
    " Oops: ",
    " Kernel panic",
    " general protection fault",
    " unchecked MSR access error",
    " NMI received for unknown reason",
    " detected stall",
    " self-detected stall",
    " INFO: trying to register non-static key",
    " blocked for more than",
    " new suspected memory leaks",
];

/// What it advises about the processor itself, while it boots: QEMU's have no microcode that mitigates (arch/x86/kernel/cpu/bugs.c).
const ADVICE: &str = "Speculative Return Stack Overflow: WARNING: See https://";

/// The first line with a complaint.
pub(crate) fn first_complaint(log: &str) -> Option<&str> {
    let complains = |line: &&str| COMPLAINTS.iter().any(|complaint| line.contains(complaint));
    log.lines().filter(complains).find(|line| !line.contains(ADVICE)).map(str::trim)
}

/// Whether the kernel died while it booted, of the breakpoint that it writes over an instruction while it replaces it
/// (arch/x86/kernel/alternative.c): with two CPUs QEMU can let it be executed when it is gone again.
pub(crate) fn died_of_patching(log: &str) -> bool {
    log.contains(" Oops: int3") && !log.contains("Run /init as init process")
}

#[cfg(test)]
mod tests {
    use super::{died_of_patching, first_complaint};

    #[test]
    fn a_breakpoint_is_the_emulators_only_before_init_runs() {
        let early = "[    2.719018] Oops: int3: 0000 [#1] SMP PTI\n";
        assert!(died_of_patching(early));
        assert!(!died_of_patching(&format!("[ 2.1] Run /init as init process\n{early}")));
        assert!(!died_of_patching("[ 2.1] Oops: 0000 [#1] SMP PTI\n"));
    }

    #[test]
    fn warnings_are_found_and_slow_handlers_are_not() {
        let log = "[ 1.0] INFO: NMI handler (x) took too long to run: 2.0 msecs\n\
                   [ 2.0] unchecked MSR access error: WRMSR to 0x186\n[ 3.0] WARNING: later\n";
        assert_eq!(first_complaint(log), Some("[ 2.0] unchecked MSR access error: WRMSR to 0x186"));
        let advice =
            "[ 0.4] Speculative Return Stack Overflow: WARNING: See https://www.example.org for options.\n";
        assert_eq!(first_complaint(advice), None);
        assert_eq!(first_complaint("[ 1.0] perf: interrupt took too long\n[ 1.1] x: DEBUG: on\n"), None);
    }
}
