//! The truth report.

use crate::machine::Machine;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Brings the truth up to date with what every vCPU but `asking` has tallied; that one has collected its own.
pub(crate) fn collect_others(machine: &Machine, asking: Option<u32>) {
    for vcpu in machine.vcpus().filter(|vcpu| Some(vcpu.index) != asking) {
        vcpu.state().collect(machine.slots(vcpu.index));
    }
}

/// Writes the truth report to the path the user gave, if any. `asking` is the vCPU that asks, if one does.
pub(crate) fn write(machine: &Machine, asking: Option<u32>) {
    let Some(path) = &machine.args.truth else { return };
    collect_others(machine, asking);
    if let Err(error) = write_to(machine, path) {
        eprintln!("vpmu: cannot write the truth report to {}: {error}", path.display());
    }
}

/// Writes beside the report and then renames, so that a reader never sees half of one.
fn write_to(machine: &Machine, path: &Path) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let mut file = BufWriter::new(File::create(&beside)?);
    serde_json::to_writer_pretty(&mut file, &machine.truth.report())?;
    file.write_all(b"\n")?;
    file.into_inner()?.sync_data()?;
    fs::rename(&beside, path)
}
