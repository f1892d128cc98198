//! Sessions of control groups.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{LIMIT, count, result, settled, signal, stat, stopped_loops};
use crate::guest::programs::{succeed, wait_at_most};

const CGROUP: &str = "/sys/fs/cgroup/measured";
/// Two groups side by side, each with a session.
const SIBLINGS: [&str; 2] = ["/sys/fs/cgroup/one", "/sys/fs/cgroup/two"];
/// The window of the program that is moved from one to the other: the character behind the name is so many behind the digit 0.
pub(crate) const MOVED: &str = "loopsE";
/// How often it must have been moved.
const MOVES_MIN: usize = 5;

/// Makes control groups visible where the machine's init has not.
pub(in crate::guest) fn mount_cgroups() -> Result<()> {
    if !Path::new("/sys/fs/cgroup/cgroup.procs").exists() {
        succeed(Command::new("mount").args(["-t", "cgroup2", "none", "/sys/fs/cgroup"]))?;
    }
    Ok(())
}

pub(super) fn control_group() -> Result<Value> {
    mount_cgroups()?;
    // The program runs in a group below the one that is measured.
    let inner = format!("{CGROUP}/inner");
    fs::create_dir_all(&inner)?;
    let mut target = stopped_loops(4, 0)?;
    enter(&target, &inner)?;
    let mut outside = stopped_loops(8, 0)?;
    let mut session = stat("group", &["--cgroup", CGROUP])?.spawn()?;
    settled(&session)?;
    for child in [&mut target, &mut outside] {
        signal(child, Signal::SIGCONT)?;
    }
    wait_at_most(&mut target, LIMIT)?;
    wait_at_most(&mut outside, LIMIT)?;
    signal(&session, Signal::SIGINT)?;
    wait_at_most(&mut session, LIMIT)?;
    result("group")
}

/// What both sessions counted of a program that was in one group half of the time and in the other otherwise, and how often it was moved.
pub(super) fn moves() -> Result<(Value, String)> {
    mount_cgroups()?;
    SIBLINGS.iter().try_for_each(fs::create_dir_all)?;
    let mut target = stopped_loops(20, 0)?;
    enter(&target, SIBLINGS[0])?;
    let mut sessions: Vec<Child> = Vec::new();
    for (name, group) in ["one", "two"].into_iter().zip(SIBLINGS) {
        let session = stat(name, &["--cgroup", group])?.spawn()?;
        settled(&session)?;
        sessions.push(session);
    }
    signal(&target, Signal::SIGCONT)?;
    let mut moves = 0;
    while target.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(20));
        moves += 1;
        // It may just have ended.
        let _ = enter(&target, SIBLINGS[moves % 2]);
    }
    for session in &mut sessions {
        signal(session, Signal::SIGINT)?;
        wait_at_most(session, LIMIT)?;
    }
    let counts = [count("one")?, count("two")?];
    let fewest = counts.iter().sum::<u64>() / 4;
    ensure!(
        moves > MOVES_MIN && counts.iter().all(|&count| count > fewest),
        "{moves} moves, {counts:?} instructions"
    );
    Ok((json!(counts), format!("{moves} moves, {counts:?} instructions")))
}

/// Moves a program into a group.
pub(in crate::guest) fn enter(target: &Child, group: &str) -> std::io::Result<()> {
    fs::write(format!("{group}/cgroup.procs"), target.id().to_string())
}
