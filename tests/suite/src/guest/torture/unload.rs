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

/// How often it must have been unloaded, and refused to be. Which of both comes of a try is left to chance, and a processor that has little
/// time makes few tries.
const ENOUGH: u32 = 2;
/// How often other senders go on where that has not happened yet.
const ROUNDS_MAX: u32 = 5;

/// Unloads and loads the module as often as it lets itself be unloaded.
pub(super) fn run(report: &mut GuestReport, requests: u64, before: &BTreeMap<String, u64>) -> Result<()> {
    let mut load = Command::new(built("threads")?).args(["4", "1000000"]).stdout(Stdio::null()).spawn()?;
    let mut senders = Senders::start(requests, true)?;
    report.check("the module comes and goes under random requests and load", || {
        let mut tries = Tries::default();
        for round in 1.. {
            tries.come_and_go(&mut senders, before)?;
            if tries.suffice() || round == ROUNDS_MAX {
                break;
            }
            senders.start_more(requests)?;
        }
        let Tries { unloaded, refused } = tries;
        ensure!(tries.suffice(), "it was unloaded {unloaded} times, and refused {refused} times");
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

/// What came of tries to unload the module.
#[derive(Clone, Copy, Default)]
struct Tries {
    unloaded: u32,
    refused: u32,
}

impl Tries {
    /// Tries until nobody sends any more.
    fn come_and_go(&mut self, senders: &mut Senders, before: &BTreeMap<String, u64>) -> Result<()> {
        for pause in PAUSES.iter().cycle() {
            if !senders.send()? {
                break;
            }
            if unload()? {
                self.unloaded += 1;
                unchanged(before)?;
                load_module()?;
            } else {
                self.refused += 1;
            }
            std::thread::sleep(*pause);
        }
        Ok(())
    }

    /// Whether the module was both unloaded and in use.
    fn suffice(self) -> bool {
        self.unloaded >= ENOUGH && self.refused >= ENOUGH
    }
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
