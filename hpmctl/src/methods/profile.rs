//! Step 1: the time of every function, as an annotated dynamic call graph.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use libhpm::analysis::method::{CallGraph, CallMatcher, Mismatches};
use libhpm::call_log::{
    CallLog, Config, Counting, FileFunctions, Filter, Functions, encode, encode_clock, logs,
};
use libhpm::symbol::{FileFinder, Symbolizer, build_id, functions_of};
use libhpm::sys::clock::tsc_per_ms;

use super::begun::Begun;
use super::folder::{CpuRow, FunctionRow, ModuleRow, NodeRow, ProfileFile, ThreadRow, hexadecimal, shared};
use super::{ClockArg, launch, measure, text};
use crate::files::FilesArgs;
use crate::output::{print, warn};
use crate::workload::program_file;

/// Run a program and measure the time of each of its functions (step 1).
#[derive(Args, Debug)]
pub(super) struct ProfileArgs {
    /// Folder to write [default: PROGRAM.methods]; an earlier profile there is replaced once the new one is whole
    #[arg(short, long, value_name = "NAME.methods")]
    output: Option<PathBuf>,
    /// What times are of
    #[arg(long, value_enum, default_value_t)]
    clock: ClockArg,
    /// Leave out functions of at most so many bytes of machine code that cannot loop
    #[arg(long, default_value_t = 100, value_name = "BYTES", conflicts_with = "no_filter")]
    least_bytes: u64,
    /// Measure every function
    #[arg(long)]
    no_filter: bool,
    /// Leave small functions out of this shared library as well (can be given several times)
    #[arg(long = "also", value_name = "FILE")]
    also: Vec<PathBuf>,
    /// Most MiB of log of one thread; what comes then is lost
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    limit: u64,
    /// The shared library that logs entries and exits [default: the one that came with hpmctl]
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// Show at most this many functions
    #[arg(long, default_value_t = 20, value_name = "N")]
    show: usize,
    #[command(flatten)]
    files: FilesArgs,
    /// The program, and its arguments; `--` may stand before it
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the step.
///
/// # Errors
/// The program cannot be run, or nothing was logged.
pub(super) fn run(args: &ProfileArgs) -> Result<ExitCode> {
    let program = program_file(&args.command)?;
    let folder = args.output.clone().unwrap_or_else(|| {
        let mut name = program.file_name().unwrap_or_default().to_owned();
        name.push(".methods");
        name.into()
    });
    let shim = launch::shim(args.shim.as_deref())?;
    let begun = Begun::new(&folder)?;
    let (log, rehearsal) = (begun.work("log")?, begun.work("rehearsal")?);
    let priced = measure::first_group();
    let config = Config {
        filter: Filter::LeaveOut(left_out(args, &program)?),
        clock: args.clock.into(),
        events: vec![],
        encoded: encode(&priced),
        priced,
        cycles: encode_clock(),
        counting: Counting::Auto,
        limit: args.limit << 20,
        tsc_per_ms: tsc_per_ms(),
    };
    let ran = launch::run(&args.command, Some((&shim, &log, &config)))?;
    let mut profile = collect(&log, &args.files.finder(), (!args.no_filter).then_some(args.least_bytes))?;
    profile.command = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    profile.status = ran.status;
    if let Filter::LeaveOut(files) = &config.filter {
        profile.left_out = files.iter().map(|file| file.offsets.len()).sum();
    }
    let as_measured =
        Config { filter: Filter::LeaveOut(vec![]), events: config.priced, priced: vec![], ..config };
    let beside = launch::around_set_up(&shim, &rehearsal, &as_measured)?;
    profile.cpu.set_up += profile.cpu.processes as f64 * beside;
    begun.finish(&profile)?;
    warn(&warnings(&profile));
    print(text::profile(&profile, args.show).trim_end())?;
    Ok(ExitCode::from(ran.status as u8))
}

/// Functions that are not worth an event.
fn left_out(args: &ProfileArgs, program: &Path) -> Result<Vec<FileFunctions>> {
    if args.no_filter {
        return Ok(vec![]);
    }
    let mut files = Vec::new();
    for (path, named) in
        std::iter::once((program, false)).chain(args.also.iter().map(|path| (path.as_path(), true)))
    {
        let real = fs::canonicalize(path).with_context(|| format!("there is no {}", path.display()))?;
        match functions_of(&real, &FileFinder::default()) {
            Ok(functions) => {
                let small = functions.iter().filter(|function| !function.is_worth_it(args.least_bytes));
                let offsets = small.map(|function| function.offset).collect();
                files.push(FileFunctions { path: real.to_string_lossy().into_owned(), offsets });
            }
            // A script, say, whose interpreter's functions are logged.
            Err(_) if !named => {}
            Err(error) => bail!("{} cannot be read as a shared library: {error}", path.display()),
        }
    }
    Ok(files)
}

/// Makes a profile of a folder of logs.
pub(super) fn collect(folder: &Path, finder: &FileFinder, least_bytes: Option<u64>) -> Result<ProfileFile> {
    let logs = logs(folder)?;
    if logs.is_empty() {
        bail!(
            "the program called no instrumented function: compile it with -finstrument-functions and link it dynamically; \
             programs with set-user-ID, and those that clear their environment, are not logged"
        );
    }
    let (mut functions, mut graph, mut mismatches) =
        (Functions::default(), CallGraph::new(), Mismatches::default());
    let mut profile = ProfileFile { least_bytes, ..ProfileFile::default() };
    for log in logs.threads() {
        let mut log = log?;
        if profile.clock.is_empty() {
            profile.clock.clone_from(&log.header.clock);
            profile.ticks_per_ms = log.header.ticks_per_ms;
        } else if profile.ticks_per_ms.is_some() != log.header.ticks_per_ms.is_some() {
            bail!("one process was timed in cycles and another was not: choose a --clock that all can use");
        }
        (profile.cost, profile.skip_cost) =
            (profile.cost.max(log.header.costs[0]), profile.skip_cost.max(log.header.skip_costs[0]));
        profile.measured_cost = profile.measured_cost.max(log.header.priced_cost.unwrap_or(profile.cost));
        let (before, mut matcher) = (graph.profile(), CallMatcher::new());
        while let Some(event) = log.next(&mut functions) {
            matcher.push(&event, &mut graph);
        }
        add_cpu_time(&mut profile.cpu, &log);
        let mut found = matcher.finish(&mut graph);
        if log.header.forked {
            // The child leaves what its parent entered.
            found.orphans = 0;
        }
        mismatches += found;
        profile.skipped += log.skipped;
        profile.lost += log.lost;
        let after = graph.profile();
        profile.threads.push(ThreadRow {
            pid: log.header.pid,
            tid: log.header.tid,
            name: log.name.clone(),
            calls: after.calls() - before.calls(),
            total: after.total - before.total,
        });
    }
    (profile.unwound, profile.unfinished, profile.orphans) =
        (mismatches.unwound, mismatches.unfinished, mismatches.orphans);
    let node = |node: &libhpm::analysis::method::Node| NodeRow {
        function: node.function,
        caller: node.caller,
        calls: node.calls,
        total: node.total,
        own: node.own,
    };
    profile.nodes = graph.nodes().iter().map(node).collect();
    name(&mut profile, &functions, &graph, finder);
    Ok(profile)
}

fn add_cpu_time(row: &mut CpuRow, log: &CallLog<'_>) {
    let costs = &log.header.cpu;
    row.program += log.cpu_ns().unwrap_or(0.0);
    row.set_up += costs.set_up;
    row.processes += u64::from(costs.set_up > 0.0);
    let measured = if costs.priced > 0.0 { costs.priced } else { costs.logged };
    row.measured = row.measured.max(measured);
}

/// Adds the functions with their names and what the filter says of them.
fn name(profile: &mut ProfileFile, functions: &Functions, graph: &CallGraph, finder: &FileFinder) {
    let times: HashMap<u32, _> =
        graph.profile().functions.into_iter().map(|times| (times.function, times)).collect();
    let mut modules: HashMap<String, usize> = HashMap::new();
    let mut small: Vec<Vec<u64>> = Vec::new();
    let mut symbolizer = Symbolizer::new(finder.clone(), []);
    for (number, key) in (0..).zip(functions.keys()) {
        let module = *modules.entry(key.module.to_string()).or_insert_with(|| {
            let path = finder.here(Path::new(&*key.module));
            let build_id = build_id(&path).map(|id| hexadecimal(&id));
            profile.modules.push(ModuleRow { path: key.module.to_string(), build_id });
            let all = functions_of(Path::new(&*key.module), finder).unwrap_or_default();
            let least = profile.least_bytes.unwrap_or(0);
            let left_out = all.iter().filter(|one| profile.least_bytes.is_some() && !one.is_worth_it(least));
            small.push(left_out.map(|one| one.offset).collect());
            small.len() - 1
        });
        let frames = symbolizer.frames_of_file(&shared(&key.module), None, key.offset);
        let frame = frames.last();
        let function = frame.and_then(|frame| frame.function.as_deref().map(str::to_owned));
        let times = times.get(&number).copied().unwrap_or_default();
        profile.functions.push(FunctionRow {
            name: function.unwrap_or_else(|| format!("[{:#x}]", key.offset)),
            module,
            offset: key.offset,
            file: frame.and_then(|frame| frame.file.as_deref().map(str::to_owned)),
            line: frame.and_then(|frame| frame.line),
            calls: times.calls,
            total: times.total,
            own: times.own,
            worth_it: small[module].binary_search(&key.offset).is_err(),
        });
    }
}

/// What has to be known of a profile beside it.
pub(super) fn warnings(profile: &ProfileFile) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut add = |number: u64, what: &str| {
        if number > 0 {
            warnings.push(format!("{number} {what}"));
        }
    };
    add(profile.lost, "entries and exits are lost, because the log was full (--limit) or a signal came");
    add(
        profile.orphans,
        "exits have no entry: coroutines, and signal handlers on a stack of their own, are not followed, and their times are wrong",
    );
    if profile.status != 0 {
        warnings.push(format!("the program ended with status {}", profile.status));
    }
    warnings
}
