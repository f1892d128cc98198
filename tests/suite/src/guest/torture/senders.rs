//! The programs that send random requests (guest/mutation.rs), as two users at the same time, each with several programs where there are
//! many requests: one alone waits most of the time, for all CPUs to have left code of the kernel or for one to come or go.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use anyhow::{Context, Result};
use libhpm::machine;
use libhpm::sys::device::Driver;

use crate::guest::mutation::{Depth, FLEETING, Outcomes, PMU, REQUESTS, SEED, areas};
use crate::guest::scopes::NOBODY;
use crate::guest::{GuestReport, REPORT};

/// Who sends.
const USERS: [(&str, u32); 2] = [("nobody", NOBODY), ("root", 0)];
/// Most requests of a program, and most programs of a user.
const REQUESTS_MAX: u64 = 50_000;
const PROGRAMS_MAX: u64 = 8;

/// Programs that send.
pub(super) struct Senders {
    children: Vec<Sender>,
    /// Of each user.
    requests: u64,
    fleeting: bool,
}

/// One of them.
struct Sender {
    user: &'static str,
    folder: PathBuf,
    child: Child,
}

impl Senders {
    /// Starts them; each user sends so many requests at least. `fleeting`: the module will come and go meanwhile.
    ///
    /// # Errors
    /// One could not be started.
    pub(super) fn start(requests: u64, fleeting: bool) -> Result<Self> {
        let mut senders = Self { children: Vec::new(), requests: 0, fleeting };
        senders.start_more(requests)?;
        Ok(senders)
    }

    /// Starts others, which send so many other requests.
    ///
    /// # Errors
    /// One could not be started.
    pub(super) fn start_more(&mut self, requests: u64) -> Result<()> {
        let pmu = machine::pmu_name(&Driver::open_checked()?.1);
        let programs = requests.div_ceil(REQUESTS_MAX).min(PROGRAMS_MAX);
        let each = requests.div_ceil(programs);
        // Each program sends other requests, and on each kind of processor they are others.
        let kind = pmu.bytes().fold(0, |seed: u64, byte| seed * 31 + u64::from(byte));
        let first = kind * 100 + 1 + self.children.len() as u64;
        for (seed, (user, id)) in (first..).zip((0..programs).flat_map(|_| USERS)) {
            let folder = PathBuf::from(format!("/tmp/torture-{user}-{seed}"));
            fs::create_dir_all(&folder)?;
            chown(&folder, Some(id), Some(id))?;
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["guest", "torture_sender"]).uid(id).gid(id).current_dir(&folder);
            command.env(PMU, &pmu).env(SEED, u64::to_string(&seed)).env(REQUESTS, each.to_string());
            if self.fleeting {
                command.env(FLEETING, "1");
            }
            self.children.push(Sender { user, folder, child: command.spawn()? });
        }
        self.requests += programs * each;
        Ok(())
    }

    /// Whether one of them still sends.
    ///
    /// # Errors
    /// They cannot be asked.
    pub(super) fn send(&mut self) -> Result<bool> {
        let mut any = false;
        for child in &mut self.children {
            any |= child.child.try_wait()?.is_none();
        }
        Ok(any)
    }

    /// What came of each user's requests; `depth` says how far they must have come.
    pub(super) fn judge(mut self, report: &mut GuestReport, how: &str, depth: Option<Depth>) {
        for (name, _) in USERS {
            let own = self.children.iter_mut().filter(|child| child.user == name);
            report.check(&format!("random requests of {name} {how}"), || {
                let mut outcomes = Outcomes::default();
                for sender in own {
                    outcomes.merge(sender.outcomes()?);
                }
                if let Some(depth) = depth {
                    outcomes.check_depth(&areas(), depth).with_context(|| outcomes.table())?;
                }
                Ok(format!("{} requests{}", self.requests, outcomes.table()))
            });
        }
    }
}

impl Sender {
    /// What its requests came to, when it has ended.
    fn outcomes(&mut self) -> Result<Outcomes> {
        let status = self.child.wait()?;
        let text = fs::read(self.folder.join(REPORT))
            .with_context(|| format!("the sender ended with {status} and left no report"))?;
        Outcomes::of(&serde_json::from_slice(&text)?)
    }
}
