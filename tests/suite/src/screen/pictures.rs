//! `suite pictures`: pictures of every screen of hpmtop while it measures, put into the documentation.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::ribbon;
use crate::check::Tally;
use crate::guest::screens::{C_PROGRAM, HOST, LAB, OPTIONS, RIBBON_TRACE, SHOWN, follow, take};
use crate::lab;
use crate::machine::Machine;
use crate::scenario::screens;

/// Takes the pictures: in the lab by the module, and puts them into docs/images; or on this host by the events of software, and
/// leaves them in target/suite/pictures.
pub(crate) fn run(root: &Path, on_host: bool, tally: &mut Tally) {
    if on_host {
        host(root, tally);
        return;
    }
    // A clock that passes with instructions is for one CPU.
    let machine = Machine { cpus: 1, ..Machine::plain() };
    let mut checks = Vec::new();
    tally.run("pictures: the lab takes them", || {
        let prepare = |folder: &Path| screens::prepare(root, folder);
        checks = lab::boot_prepared(root, "screens", &machine, OPTIONS, prepare)?.report.checks;
        Ok(String::new())
    });
    tally.take_in("pictures", &checks);
    // The guest's folder is one of this machine, so that what came before the lab was ended is there.
    let folder = lab::folder(root, "screens", &machine);
    for shown in &SHOWN {
        tally.run(&format!("pictures: {}", shown.name), || {
            let name = format!("hpmtop-{}.svg", shown.name);
            let picture = fs::read_to_string(folder.join(&name)).context("the lab has taken none")?;
            ensure!(picture.ends_with("</svg>\n"), "it is cut off");
            let to = root.join("docs/images").join(name.replace("hpmtop-", "hpmtop-live-"));
            fs::write(&to, without_root(root, &picture))
                .with_context(|| format!("writing {}", to.display()))?;
            Ok(format!("docs/images/hpmtop-live-{}.svg", shown.name))
        });
    }
    tally.run(RIBBON, || ribbon::judge(&folder, &LAB));
}

/// A picture that does not say where the project is on this machine; as wide as before, so that nothing moves.
fn without_root(root: &Path, picture: &str) -> String {
    let root = root.display().to_string();
    let width = root.chars().count().saturating_sub(1);
    picture.replace(&root, &format!("/{:·<width$}", "hpm"))
}

/// What [`ribbon::judge`] shows.
pub(crate) const RIBBON: &str = "screens: the ribbon of phases changes within an interval of the detector";

/// On this machine, by whatever it can count.
fn host(root: &Path, tally: &mut Tally) {
    let folder = root.join("target/suite/pictures");
    let hpmtop = root.join("target/release/hpmtop");
    let program = folder.join(C_PROGRAM);
    tally.run("pictures: the program is compiled", || {
        let _ = fs::remove_dir_all(folder.join(RIBBON_TRACE));
        fs::create_dir_all(&folder)?;
        screens::prepare(root, &folder)?;
        Ok(String::new())
    });
    for shown in &SHOWN {
        tally.run(&format!("pictures: {}", shown.name), || {
            take(&hpmtop, &program, &HOST, &folder, shown)?;
            Ok(format!("{}/hpmtop-{}.svg", folder.display(), shown.name))
        });
    }
    tally.run(RIBBON, || {
        // On several CPUs quanta of one process overlap, and no order of them is the order of their ends, in which they come.
        on_one_cpu(|| follow(&hpmtop, &program, &HOST, &folder))?;
        ribbon::judge(&folder, &HOST)
    });
}

/// Does something on one CPU, with all programs that it starts.
fn on_one_cpu(act: impl FnOnce() -> Result<String>) -> Result<String> {
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this).context("asking for the CPUs")?;
    let Some(cpu) = (0..CpuSet::count()).find(|&cpu| before.is_set(cpu).unwrap_or(false)) else {
        bail!("there is no CPU");
    };
    let mut one = CpuSet::new();
    one.set(cpu)?;
    sched_setaffinity(this, &one).context("choosing a CPU")?;
    let done = act();
    sched_setaffinity(this, &before).context("giving the CPUs back")?;
    done
}
