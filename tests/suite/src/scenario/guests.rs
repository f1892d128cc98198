//! What a virtual machine's processor executes is not counted, and what its program executes is, exactly.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use vpmu::Profile;
use vpmu::event::Event;
use vpmu::profile::amd::ZEN_4;
use vpmu::truth::Report;

use crate::check::Tally;
use crate::guest::guests::{C_PROGRAM, LONG, MODULES, SHORT, TURNS};
use crate::lab::{self, Boot};

pub(super) const NAME: &str = "guests";
/// The processor: of the lab's, only AMD's can run virtual machines (QEMU emulates SVM, and not VMX).
pub(super) const PROFILE: &Profile = &ZEN_4;
/// Options of `lab run`.
pub(super) const OPTIONS: &[&str] = &["--plugin-arg", "truth-level=basic"];
/// What two runs of one program may differ in before its window begins: where it lies is drawn by chance.
const ELSEWHERE: u64 = 200;

/// Compiles the program, and puts the kernel's modules where the guest finds them.
pub(super) fn prepare(root: &Path, folder: &Path) -> Result<()> {
    lab::compile(root, folder, C_PROGRAM)?;
    symlink(lab::cache(root).join("tree/usr"), folder.join(MODULES)).context("linking the kernel's modules")
}

pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("guests: exactly what their program executed is counted, and nothing of what they did", || {
        exact(boot)
    });
}

/// The model's truth has both, as a guest without page tables shares its program's.
fn exact(boot: &Boot) -> Result<String> {
    let counted = |label: &str| -> Result<u64> {
        let stat = boot.report.facts.get(label).with_context(|| format!("the guest left no {label}"))?;
        stat["events"][0]["count"].as_u64().with_context(|| format!("no count in {stat}"))
    };
    let truth: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    let windows: Vec<u64> =
        truth.windows.iter().map(|window| window.counts.of(Event::Instruction).user).collect();
    // The first two of the programs that are run.
    let [short, long, ..] = windows[..] else { bail!("the truth has windows {windows:?} only") };
    let (counted, truth) = (counted(LONG)?.saturating_sub(counted(SHORT)?), long.saturating_sub(short));
    let guest = 2 * (u64::from(TURNS) - 1);
    ensure!(truth >= guest, "{truth} instructions more were executed, not the guest's {guest}");
    ensure!(
        counted.abs_diff(truth - guest) <= ELSEWHERE,
        "{counted} more were counted where the guest executes {guest} more, the truth is {truth}"
    );
    Ok(format!("{counted} more were counted where the guest executes {guest} more, the truth is {truth}"))
}
