//! `suite pictures`: pictures of every screen of hpmtop while it measures, put into the documentation.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::check::Tally;
use crate::guest::screens::{C_PROGRAM, OPTIONS, SHOWN, take};
use crate::lab;
use crate::machine::Machine;

/// Takes the pictures: in the lab by the module, and puts them into docs/images; or on this host by the events of software, and
/// leaves them in target/suite/pictures.
pub(crate) fn run(root: &Path, on_host: bool, tally: &mut Tally) {
    if on_host {
        host(root, tally);
        return;
    }
    tally.run("pictures: the lab takes them", || {
        // A clock that passes with instructions is for one CPU.
        let machine = Machine { cpus: 1, ..Machine::plain() };
        let boot = lab::boot_prepared(root, "screens", &machine, OPTIONS, |folder| {
            lab::compile(root, folder, C_PROGRAM)
        })?;
        for (name, verdict) in &boot.report.checks {
            if let Err(why) = verdict {
                bail!("{name}: {why}");
            }
        }
        for shown in &SHOWN {
            let name = format!("hpmtop-{}.svg", shown.name);
            let to = root.join("docs/images").join(name.replace("hpmtop-", "hpmtop-live-"));
            fs::copy(boot.folder.join(&name), &to).with_context(|| format!("copying {name}"))?;
        }
        Ok("docs/images/hpmtop-live-*.svg".to_owned())
    });
}

/// On this machine, by whatever it can count.
fn host(root: &Path, tally: &mut Tally) {
    let folder = root.join("target/suite/pictures");
    let hpmtop = root.join("target/release/hpmtop");
    tally.run("pictures: the program is compiled", || {
        fs::create_dir_all(&folder)?;
        lab::compile(root, &folder, C_PROGRAM)?;
        Ok(String::new())
    });
    for shown in &SHOWN {
        tally.run(&format!("pictures: {}", shown.name), || {
            take(&hpmtop, &folder.join(C_PROGRAM), &["--source", "perf"], &folder, shown)?;
            Ok(format!("{}/hpmtop-{}.svg", folder.display(), shown.name))
        });
    }
}
