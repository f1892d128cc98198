//! What the guest's kernel says of itself and of hpm in its log.

use anyhow::ensure;

use crate::check::Tally;
use crate::lab::Boot;

/// The line that each Intel kernel with page-table isolation prints while it boots.
const ISOLATION: &str = "Kernel/User page tables isolation: enabled";

/// The log names hpm as the holder of the counters, and isolation is on.
pub(crate) fn names_hpm(boot: &Boot, tally: &mut Tally) {
    isolates_page_tables(boot, tally);
    tally.run("ownership: the kernel's log names hpm as the holder", || {
        let line = boot.kernel_log.lines().find(|line| line.contains("hpm: ") && line.contains("counters"));
        line.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("no line of the log says so"))
    });
}

/// The checks ran as the stock kernel boots: with page-table isolation.
pub(crate) fn isolates_page_tables(boot: &Boot, tally: &mut Tally) {
    tally.run("page-table isolation is on", || {
        ensure!(boot.kernel_log.contains(ISOLATION), "the kernel's log does not say {ISOLATION:?}");
        Ok(String::new())
    });
}

/// The checks ran without page-table isolation, as asked.
pub(crate) fn runs_unisolated(boot: &Boot, tally: &mut Tally) {
    tally.run("page-table isolation is off", || {
        ensure!(!boot.kernel_log.contains(ISOLATION), "the kernel isolates page tables all the same");
        Ok(String::new())
    });
}
