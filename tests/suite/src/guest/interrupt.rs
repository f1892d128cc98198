//! Sampling by interrupts: two programs at once, whose registers say which of them a sample belongs to.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::GuestReport;
use super::programs::{INTERRUPT_PERIOD, built, hpmctl, record_each, succeed, wait_at_most};

/// The traces, and with how many arguments each one's `loops` runs.
pub(crate) const TRACES: [(&str, u64); 2] = [("first.hpm", 2), ("second.hpm", 4)];

/// Records the traces for the host part, and looks at what hpmctl says.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let mut children = Vec::new();
    for (trace, arguments) in TRACES {
        let mut command = record_each("instructions:u", INTERRUPT_PERIOD, trace, &["--imprecise"])?;
        command.arg(built("loops")?).args(vec!["x"; arguments as usize]).stdin(Stdio::null());
        children.push(command.spawn()?);
    }
    for child in &mut children {
        let status = wait_at_most(child, Duration::from_secs(600))?;
        ensure!(status.success(), "hpmctl record ended with {status}");
    }
    report.check("the report says that the samples have skid", || {
        let text = succeed(&mut hpmctl(&["report", TRACES[0].0])?)?.stdout;
        let text = String::from_utf8_lossy(&text);
        ensure!(text.contains("imprecise by interrupts (with skid)"), "it says: {text}");
        Ok(String::new())
    });
    report.check("what is not precise is sampled by interrupts on request only", || {
        let output = hpmctl(&["record", "-e", "cycles:u", "-o", "no.hpm", "--", "true"])?.output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && text.contains("--imprecise"), "it says: {text}");
        Ok(String::new())
    });
    Ok(())
}
