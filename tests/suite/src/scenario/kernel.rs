//! What the guest's kernel says of itself and of hpm in its log.

use anyhow::ensure;

use crate::check::Tally;
use crate::lab::Boot;

/// The line that each Intel kernel with page-table isolation prints while it boots.
const ISOLATION: &str = "Kernel/User page tables isolation: enabled";

/// The log names hpm as the holder of the counters.
pub(crate) fn names_hpm(boot: &Boot, tally: &mut Tally) {
    tally.run("ownership: the kernel's log names hpm as the holder", || {
        let line = boot.kernel_log.lines().find(|line| line.contains("hpm: ") && line.contains("counters"));
        line.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("no line of the log says so"))
    });
}

/// The kernel isolated page tables as it does by itself on Intel's processors, or did not because it was told so.
pub(crate) fn isolation(boot: &Boot, tally: &mut Tally) {
    let wanted = boot.machine.isolated && boot.machine.profile.amd().is_none();
    tally.run(if wanted { "page-table isolation is on" } else { "page-table isolation is off" }, || {
        let found = boot.kernel_log.contains(ISOLATION);
        ensure!(
            found == wanted,
            "the kernel's log {} {ISOLATION:?}",
            if found { "says" } else { "does not say" }
        );
        Ok(String::new())
    });
}
