//! Branch records against the branches that were truly taken, and call stacks made of them against known calls.

use anyhow::{Context as _, Result, ensure};
use libhpm::symbol::KERNEL_START;
use libhpm::trace::{MapRow, StackRow};
use vpmu::Privilege;
use vpmu::truth::{Report, TakenBranch};

use super::records::{Pair, at_its_time, paired, rows};
use super::stacks::calls;
use crate::check::Tally;
use crate::guest::lbr::{CALLS, DEEP, TRACES};
use crate::guest::processor::{BranchRecords, branch_records};
use crate::lab::Boot;

/// Compares every trace that has a truth.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    let report = serde_json::from_value::<Report>(boot.truth.clone()).unwrap_or_default();
    for name in TRACES {
        tally.run(&format!("lbr: every branch record of {name} is the truth's"), || {
            branches(boot, name, &report)
        });
    }
    if records_of(boot).is_ok_and(|records| records.follow_calls) {
        tally.run("lbr: call stacks of branch records are the program's calls", || calls(boot, CALLS));
        tally.run("lbr: deeper calls than there are records are cut, and said to be", || deep(boot));
    }
}

/// What the machine's processor has of branch records.
fn records_of(boot: &Boot) -> Result<BranchRecords> {
    branch_records(boot.machine.profile)
}

/// Whether the branch is recorded in a session that counts user mode. One whose memory operand faults has not been taken, and
/// stands in the log with the handler for its target.
fn is_recorded(branch: &&TakenBranch) -> bool {
    let near = branch.kind != vpmu::BranchKind::Far && branch.to < KERNEL_START;
    branch.privilege == Privilege::User && near
}

/// The records of each sample are the last branches of user mode, far ones aside, the newest first: from, to, whether they
/// were mispredicted. A thread has fewer when it has just come to the CPU. One that comes back to it has its own from before,
/// where the truth has those of other processes that ran meanwhile.
fn branches(boot: &Boot, name: &'static str, report: &Report) -> Result<String> {
    const MISPREDICTED: u32 = 63;
    let depth = records_of(boot)?.depth;
    let (samples, _) = paired(boot, &[name], report.pebs.iter())?;
    let maps = rows::<MapRow>(boot, name)?;
    let is_own = |pid: u32, address: u64| {
        maps.iter().any(|map| map.pid == pid && map.executable && (map.start..map.end).contains(&address))
    };
    let (mut full, mut records) = (0, 0);
    for pair in &samples {
        at_its_time(boot, pair)?;
        let Pair { sample, truth: record, .. } = pair;
        let (found, _) = sample.branches.as_deref().unwrap_or_default().as_chunks::<3>();
        let taken = record.branches.iter().filter(is_recorded);
        for (age, (&[from, to, info], taken)) in found.iter().zip(taken).enumerate() {
            let found = (from, to, info >> MISPREDICTED == 1);
            let truth = (taken.from, taken.to, taken.mispredicted);
            if found != truth && !is_own(sample.pid, taken.from) && is_own(sample.pid, from) {
                break;
            }
            ensure!(
                found == truth,
                "{age} branches before {:#x}: recorded {found:x?}, the truth is {truth:x?}",
                sample.ip
            );
            records += 1;
        }
        full += usize::from(found.len() == depth);
    }
    ensure!(
        full * 10 > samples.len() * 9,
        "only {full} of {} samples have all {depth} records",
        samples.len()
    );
    ensure!(
        records * 10 > full * depth * 9,
        "only {records} records of {full} full samples could be compared"
    );
    Ok(format!("{} samples, {records} branches compared", samples.len()))
}

/// At the bottom of 40 calls, the records have as many of the newest as there are.
fn deep(boot: &Boot) -> Result<String> {
    let depth = records_of(boot)?.depth;
    let stacks = rows::<StackRow>(boot, DEEP)?;
    let by_recursion = |stack: &&StackRow| {
        let (_, callers) = stack.frames.split_at(1);
        callers.len() == depth && callers.iter().all(|caller| *caller == callers[0])
    };
    let stack = stacks
        .iter()
        .find(by_recursion)
        .with_context(|| format!("no stack has {depth} callers, all of them by recursion"))?;
    ensure!(stack.truncated, "a stack that lacks its outermost calls is said to be whole");
    Ok(format!("{} stacks", stacks.len()))
}
