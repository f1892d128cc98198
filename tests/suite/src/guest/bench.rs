//! What measuring costs: the same work without a tool, with hpm and with the kernel's perf, by the PMU model's own counts
//! of the whole machine.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::json;
use vpmu::event::Event;
use vpmu::truth::Report;

use super::GuestReport;
use super::programs::{PERIOD, built, hpmctl, succeed};

/// Where the lab was told to write the truth.
pub(crate) const SNAPSHOT: &str = "snapshot.json";
/// The comparison's C program, which `suite bench` has compiled.
pub(crate) const PERF_READ: &str = "perf_read";

const HPM_EVENTS: &str = "instructions:u,branch:u,load:u,store:u";
const PERF_EVENTS: &str = "instructions:u,branches:u,cpu/event=0xd0,umask=0x81/u,cpu/event=0xd0,umask=0x82/u";

/// User instructions, kernel instructions, accesses to PMU registers (RDMSR, WRMSR, RDPMC), and PMIs.
type Cost = [f64; 4];

/// Runs every comparison; each leaves the costs per unit of work by tool.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    for mode in ["threads", "processes"] {
        let program = built("switches")?;
        let work = |rounds: u64, mut command: Command| -> Result<()> {
            command.arg(&program).args([mode, &rounds.to_string()]);
            quietly(command)
        };
        // A round is two switches.
        let (few, many) = (500, 4500);
        let switches = |tool: &dyn Fn() -> Result<Command>| {
            per_unit(2.0 * (many - few) as f64, |large| work(if large { many } else { few }, tool()?))
        };
        let plain = || Ok(Command::new("env"));
        let hpm = || hpmctl(&["stat", "-e", HPM_EVENTS, "--"]);
        let perf = || {
            let mut command = Command::new("perf");
            command.args(["stat", "-e", PERF_EVENTS, "--"]);
            Ok(command)
        };
        let costs = json!({ "plain": switches(&plain)?, "hpm": switches(&hpm)?, "perf": switches(&perf)? });
        report.fact(&format!("switch {mode}"), costs);
    }
    report.fact("sample", samples()?);
    report.fact("read", reads()?);
    Ok(())
}

/// Per precise record: the misses of `strides`, one in each iteration.
fn samples() -> Result<serde_json::Value> {
    let program = built("strides")?;
    let (few, many) = (1, 6);
    let period = PERIOD.to_string();
    let event = "cpu/event=0xd1,umask=0x08/upp";
    let tools: [(&str, Vec<std::ffi::OsString>); 3] = [
        ("plain", vec!["env".into()]),
        ("hpm", vec![built("consume")?.into(), period.clone().into()]),
        // To standard output, so that perf's file costs nothing.
        (
            "perf",
            ["perf", "record", "-q", "-c", &period, "-e", event, "-o", "-", "--"].map(Into::into).into(),
        ),
    ];
    let mut costs = serde_json::Map::new();
    for (name, words) in tools {
        let records = (many - few) as f64 * 1e6 / PERIOD as f64;
        let cost = per_unit(records, |large| {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).arg(&program).args(vec!["x"; if large { many } else { few } - 1]);
            quietly(command)
        })?;
        costs.insert(name.to_owned(), json!(cost));
    }
    Ok(costs.into())
}

/// Per counter read in user space.
fn reads() -> Result<serde_json::Value> {
    let (hpm, perf) = (built("reads")?, fs::canonicalize(PERF_READ).context("suite bench compiles it")?);
    let cost = |program: &std::path::Path, mode: &str| {
        let (few, many) = (1_000_u64, 21_000_u64);
        per_unit((many - few) as f64, |large| {
            let mut command = Command::new(program);
            command.args([mode, &if large { many } else { few }.to_string()]);
            quietly(command)
        })
    };
    Ok(json!({
        "hpm": cost(&hpm, "page")?,
        "perf": cost(&perf, "page")?,
        "hpm by the driver": cost(&hpm, "driver")?,
        "perf by read(2)": cost(&perf, "syscall")?,
    }))
}

/// The cost of one unit: the difference between much and little work, of which there are `units` more, so that starting
/// and ending a tool and a program costs nothing.
fn per_unit(units: f64, work: impl Fn(bool) -> Result<()>) -> Result<Cost> {
    // Once for the caches of the file system.
    work(false)?;
    let before = machine()?;
    work(false)?;
    let between = machine()?;
    work(true)?;
    let after = machine()?;
    let place = |i: usize| ((after[i] - between[i]) - (between[i] - before[i])) / units;
    Ok(std::array::from_fn(place))
}

fn quietly(mut command: Command) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    succeed(&mut command).map(drop)
}

/// What the whole machine has done so far.
fn machine() -> Result<Cost> {
    succeed(&mut Command::new(built("snapshot")?))?;
    // The host replaced the file behind the guest's back; what the guest remembers of it must go.
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the caches")?;
    let text = fs::read(SNAPSHOT).context("the plugin's report")?;
    let report: Report = serde_json::from_slice(&text).context("the plugin's report")?;
    let mut cost = Cost::default();
    for cpu in &report.cpus {
        let (instructions, activity) = (cpu.counts.of(Event::Instruction), cpu.activity);
        let accesses = activity.rdmsr + activity.wrmsr + activity.rdpmc;
        let all = [instructions.user, instructions.kernel, accesses, activity.pmis];
        cost.iter_mut().zip(all).for_each(|(sum, number)| *sum += number as f64);
    }
    Ok(cost)
}
