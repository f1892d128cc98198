//! A descriptor of `/proc/PID/environ` shows an unprivileged user's right to a target, until that executes another program.

use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail, ensure};
use hpm_abi::Reason;
use libhpm::event;
use libhpm::session::{Options, SessionConfig, SessionFlags, Target};
use libhpm::sys::child::Child;
use libhpm::sys::device::{Command, Denied, Device, Driver};

use super::programs::built;

/// As nobody: the same proof before and after the target's `execve`.
pub(super) fn goes_stale() -> Result<()> {
    let mut child = Child::prepare(&["sleep", "600"])?;
    let proof = proof_of(&child)?;
    let early = match configured(&child, &proof)? {
        Ok(driver) => driver,
        Err(denied) => bail!("a proof that is good was refused: {denied:?}"),
    };
    child.execute()?;
    let Err(denied) = configured(&child, &proof)? else { bail!("a stale proof was taken") };
    ensure!(Reason::from_number(denied.reason) == Some(Reason::ProofInvalid), "it was refused as {denied:?}");
    let Err(denied) = early.command(Command::Start) else { bail!("a session started by a stale proof") };
    ensure!(Reason::from_number(denied.reason) == Some(Reason::ProofInvalid), "it was refused as {denied:?}");
    Ok(())
}

/// Attempts to start a session by a proof that is stale.
const ATTEMPTS: u32 = 3000;

/// As nobody: while the scheduler switches between a target's threads, a session that is refused again and again measures none of them.
pub(super) fn stays_stale() -> Result<()> {
    let program = built("threads")?.into_os_string();
    let mut child = Child::prepare(&[program, "5".into(), "1000000".into()])?;
    let proof = proof_of(&child)?;
    let driver = match configured(&child, &proof)? {
        Ok(driver) => driver,
        Err(denied) => bail!("a proof that is good was refused: {denied:?}"),
    };
    child.execute()?;
    for _ in 0..ATTEMPTS {
        ensure!(driver.command(Command::Start).is_err(), "a session started by a stale proof");
    }
    let totals = driver.totals().map_err(denied)?;
    let measured = (totals.counts[0], totals.on_cpu_tsc);
    ensure!(measured == (0, 0), "a session that never started has counted: {measured:?}");
    Ok(())
}

/// As nobody, in a network of its own whose interface is called `environ`: a file of procfs with the name of a proof, whose contents are
/// something else, is refused.
pub(super) fn is_forged() -> Result<()> {
    let child = Child::prepare(&["sleep", "600"])?;
    let proof = File::open(FORGED)?;
    let Err(denied) = configured(&child, &proof)? else { bail!("{FORGED} was taken for a proof") };
    ensure!(Reason::from_number(denied.reason) == Some(Reason::ProofInvalid), "it was refused as {denied:?}");
    Ok(())
}

const FORGED: &str = "/proc/self/net/dev_snmp6/environ";

/// A session of the child by this proof.
fn configured(child: &Child, proof: &File) -> Result<Result<Driver, Denied>> {
    let (driver, info) = Driver::open_checked()?;
    let instructions = event::parse("instructions:u", &libhpm::machine::pmu_name(&info))?;
    let mut config = Options::new(Target::Process(child.pid())).count(instructions).config();
    prove(&mut config, proof);
    Ok(driver.configure(&mut config).map(|()| driver))
}

/// What shows the right to measure the child, while it executes what it executes now.
pub(super) fn proof_of(child: &Child) -> Result<File> {
    File::open(format!("/proc/{}/environ", child.pid())).context("the child's environ")
}

/// Shows the driver this proof; it is to be open when the session is configured.
pub(super) fn prove(config: &mut SessionConfig, proof: &File) {
    (config.proof_fd, config.flags) = (proof.as_raw_fd(), config.flags | SessionFlags::PROOF);
}

/// A refusal where none was expected.
pub(super) fn denied(denied: Denied) -> anyhow::Error {
    anyhow::anyhow!("the driver said {denied:?}")
}
