//! What measuring costs: the same work without a tool, with hpm and with the kernel's perf, by the PMU model's own counts
//! of the whole machine.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::json;

use super::GuestReport;
use super::programs::{PERIOD, built, c_program, hpmctl, succeed};
use super::truth::Sums;

/// The comparison's C programs, which `suite bench` has compiled.
pub(crate) const C_PROGRAMS: [&str; 2] = ["perf_read", "perf_measure"];

/// How often each comparison is repeated.
const ROUNDS: usize = 3;

const HPM_EVENTS: &str = "instructions:u,branch:u,load:u,store:u";

/// Work with one tool: given its amount, the command that does it.
struct Tool<'a> {
    name: &'static str,
    work: Box<dyn Fn(u64) -> Result<Command> + 'a>,
}

impl<'a> Tool<'a> {
    fn new(name: &'static str, work: impl Fn(u64) -> Result<Command> + 'a) -> Self {
        Self { name, work: Box::new(work) }
    }
}

/// Runs every comparison; each leaves what every round cost by tool, and the units of work that this was for.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    for mode in ["threads", "processes"] {
        // A round of the program is two switches.
        compare(report, &format!("switch {mode}"), (500, 16_500), Some(2.0), &switches(mode)?)?;
    }
    // perf would leave samples out, because so many take it more time than it allows itself.
    fs::write("/proc/sys/kernel/perf_event_max_sample_rate", "1000000").context("perf's ceiling")?;
    fs::write("/proc/sys/kernel/perf_cpu_time_max_percent", "0").context("perf's ceiling")?;
    // In millions of iterations with two loads each.
    compare(report, "sample", (1, 25), None, &samples()?)?;
    compare(report, "read", (1_000, 101_000), Some(1.0), &reads()?)
}

fn switches(mode: &'static str) -> Result<Vec<Tool<'static>>> {
    let (program, measure) = (built("switches")?, c_program("perf_measure")?);
    let under = move |mut command: Command, rounds: u64| {
        command.arg(&program).args([mode, &rounds.to_string()]);
        command
    };
    let (plain, hpm, perf) = (under.clone(), under.clone(), under);
    Ok(vec![
        Tool::new("plain", move |rounds| Ok(plain(Command::new("env"), rounds))),
        Tool::new("hpm", move |rounds| Ok(hpm(hpmctl(&["stat", "-e", HPM_EVENTS, "--"])?, rounds))),
        Tool::new("perf", move |rounds| {
            let mut command = Command::new(&measure);
            command.args(["count", "0"]);
            Ok(perf(command, rounds))
        }),
    ])
}

/// Each samples the loads of `strides`, which takes its amount by the number of its arguments.
fn samples() -> Result<Vec<Tool<'static>>> {
    let program = built("strides")?;
    let period = PERIOD.to_string();
    let tools: [(&str, Vec<PathBuf>); 5] = [
        ("plain", vec!["env".into()]),
        ("hpm", vec![built("consume")?, period.clone().into(), "10".into()]),
        ("hpm, quanta of 1 s", vec![built("consume")?, period.clone().into(), "1000".into()]),
        ("perf", vec![c_program("perf_measure")?, "ip".into(), period.clone().into()]),
        ("perf with addresses", vec![c_program("perf_measure")?, "address".into(), period.into()]),
    ];
    let tool = |(name, words): (&'static str, Vec<PathBuf>)| {
        let program = program.clone();
        Tool::new(name, move |amount| {
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).arg(&program).args(vec!["x"; amount as usize - 1]);
            Ok(command)
        })
    };
    Ok(tools.into_iter().map(tool).collect())
}

fn reads() -> Result<Vec<Tool<'static>>> {
    let (hpm, perf) = (built("reads")?, c_program("perf_read")?);
    let tools = [
        ("hpm", &hpm, "page"),
        ("perf", &perf, "page"),
        ("hpm, sampled", &hpm, "sampled"),
        ("perf, large PEBS", &perf, "pebs"),
        ("hpm, another thread", &hpm, "other"),
        ("perf, another thread", &perf, "other"),
    ];
    let tool = |(name, program, mode): (&'static str, &PathBuf, &'static str)| {
        let program = program.clone();
        Tool::new(name, move |count| {
            let mut command = Command::new(&program);
            command.args([mode, &count.to_string()]);
            Ok(command)
        })
    };
    Ok(tools.into_iter().map(tool).collect())
}

/// Lets each tool do little and much work, in turns so that whatever drifts meets all alike, and keeps the differences: what
/// starting and ending costs is not in them. An amount of work of one has so many units; `None` where records are the units.
fn compare(
    report: &mut GuestReport,
    fact: &str,
    (little, much): (u64, u64),
    units: Option<f64>,
    tools: &[Tool<'_>],
) -> Result<()> {
    let mut costs: Vec<Vec<Sums>> = vec![Vec::new(); tools.len()];
    for tool in tools {
        // Once for the caches of the file system.
        quietly((tool.work)(little)?)?;
    }
    for _ in 0..ROUNDS {
        for (tool, costs) in tools.iter().zip(&mut costs) {
            let few = cost((tool.work)(little)?)?;
            let many = cost((tool.work)(much)?)?;
            costs.push(many - few);
        }
    }
    let by_tool: serde_json::Map<String, serde_json::Value> =
        tools.iter().zip(costs).map(|(tool, costs)| (tool.name.to_owned(), json!(costs))).collect();
    let units = units.map(|units| units * (much - little) as f64);
    report.fact(fact, json!({ "units": units, "costs": by_tool }));
    Ok(())
}

/// What the machine does while a command runs.
fn cost(command: Command) -> Result<Sums> {
    let before = Sums::now()?;
    quietly(command)?;
    Ok(Sums::now()? - before)
}

fn quietly(mut command: Command) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    succeed(&mut command).map(drop)
}
