//! The module comes and goes under random requests and load.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::senders::Senders;
use crate::guest::GuestReport;
use crate::guest::lifecycle::{MODULE, unchanged};
use crate::guest::programs::{built, succeed};
use crate::guest::scopes::open_to_nobody;

/// How long the module is left alone between tries: the senders, who were waiting for it, hardly use it yet after the short ones.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(2), Duration::from_millis(2), Duration::from_millis(300)];

/// Unloads and loads the module as often as it lets itself be unloaded.
pub(super) fn run(report: &mut GuestReport, requests: u64, before: &BTreeMap<String, u64>) -> Result<()> {
    let mut load = Command::new(built("threads")?).args(["4", "1000000"]).stdout(Stdio::null()).spawn()?;
    let mut senders = Senders::start(requests, true)?;
    report.check("the module comes and goes under random requests and load", || {
        let (mut unloaded, mut refused) = (0, 0);
        for pause in PAUSES.iter().cycle() {
            if !senders.send()? {
                break;
            }
            if unload()? {
                unloaded += 1;
                unchanged(before)?;
                load_module()?;
            } else {
                refused += 1;
            }
            std::thread::sleep(*pause);
        }
        ensure!(unloaded >= 2, "it was unloaded {unloaded} times, and refused {refused} times");
        ensure!(refused >= 2, "it was unloaded {unloaded} times, and never while somebody used it");
        Ok(format!("unloaded {unloaded} times, refused {refused} times"))
    });
    // What comes after a failure is to be judged, too.
    if !Path::new("/dev/hpm").exists() {
        load_module()?;
    }
    senders.judge(report, "while the module comes and goes", None);
    load.kill()?;
    load.wait()?;
    Ok(())
}

fn load_module() -> Result<()> {
    succeed(Command::new("insmod").arg(MODULE))?;
    open_to_nobody()
}

/// False when the module is in use.
fn unload() -> Result<bool> {
    let output = Command::new("rmmod").arg("hpm").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    // The second is what the kernel says when somebody has come since rmmod looked.
    let refused = ["in use", "Resource temporarily unavailable"].iter().any(|words| said.contains(words));
    ensure!(output.status.success() || refused, "rmmod: {}", said.trim());
    Ok(output.status.success())
}
