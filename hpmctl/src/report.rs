//! `hpmctl report`: which functions and lines the samples of a trace name, who called them, and where threads waited.

mod distribution;
pub(crate) mod lacking;
mod offset;
pub(crate) mod samples;
pub(crate) mod table;
pub(crate) mod text;
mod tree;
mod waits;

use std::iter;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{ArgGroup, Args, ValueEnum};
use libhpm::report::{By, Grouping, Order};
use libhpm::trace::Meta;

use crate::files::FilesArgs;
use crate::filters::FilterArgs;
use crate::output::{counted, print, warn};

/// Show which functions and source lines the samples of a trace name, who called them, or where threads waited.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("view").args(["callers", "callees", "distribution", "off_cpu", "wall_clock"])))]
pub(crate) struct ReportArgs {
    /// What to group samples by; several at once, as in function,level, separated by commas [default: function, then line]
    #[arg(long, value_enum, value_delimiter = ',')]
    by: Vec<GroupBy>,
    /// What to put first
    #[arg(long, value_enum, default_value_t)]
    sort: SortBy,
    /// Show at most this many rows of each table
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Report only this event
    #[arg(short, long, value_name = "NAME")]
    event: Option<String>,
    /// Show who calls this function, and who those [default: of every function with samples]
    #[arg(long, value_name = "FUNCTION", num_args = 0..=1, require_equals = true)]
    callers: Option<Option<String>>,
    /// Show what this function calls, and what that [default: from where stacks begin]
    #[arg(long, value_name = "FUNCTION", num_args = 0..=1, require_equals = true)]
    callees: Option<Option<String>>,
    /// Leave branches of --callers and --callees out that have less than this share of the events [default: 0.5]
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    min_share: Option<f64>,
    /// Show whether few instructions have most of the events, or many a little; of several traces side by side
    #[arg(long)]
    distribution: bool,
    /// Show where threads waited, and whether for something (blocked) or for a CPU (pre-empted)
    #[arg(long)]
    off_cpu: bool,
    /// Show where threads spent their time, on a CPU and off it
    #[arg(long)]
    wall_clock: bool,
    /// The place that --by offset measures from: a function or another symbol, with a number of bytes behind it, or a
    /// recorded address
    #[arg(long, value_name = "SYMBOL[+BYTES]|0xADDRESS")]
    around: Option<String>,
    /// Also draw a flame graph into this file, NAME.svg or NAME.png; with --by offset and --distribution, the histograms
    #[arg(long, value_name = "FILE", alias = "svg", value_parser = crate::picture::file)]
    picture: Option<PathBuf>,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FilesArgs,
    /// The trace that `hpmctl record` wrote
    #[arg(value_name = "NAME.hpm")]
    trace: PathBuf,
    /// More traces, to show beside it: with --by offset and --distribution
    #[arg(value_name = "NAME.hpm")]
    beside: Vec<PathBuf>,
    #[command(flatten)]
    filters: FilterArgs,
}

/// Values of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GroupBy {
    Function,
    Line,
    /// Instruction, by the address that the linker gave it
    #[value(alias = "address")]
    Instruction,
    /// File that has the code: the program, a shared library, the kernel or one of its modules
    Module,
    Thread,
    /// Process, with all its threads
    Process,
    Cpu,
    /// What is mapped where the data is: heap, stack, a file
    Region,
    /// Cache or memory where the data was found
    Level,
    /// The same, with snoop, TLB and lock
    Source,
    /// Branches in the samples' branch records: from, to, how often, how often mispredicted
    Branch,
    /// Distance from the instruction that --around names, as a histogram
    Offset,
}

/// Values of `--sort`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum SortBy {
    #[default]
    Events,
    /// Sum of the samples' latencies
    Latency,
}

impl From<SortBy> for Order {
    fn from(by: SortBy) -> Self {
        match by {
            SortBy::Events => Self::Events,
            SortBy::Latency => Self::Latency,
        }
    }
}

impl GroupBy {
    /// The groups of a table of samples; branches and offsets have their own.
    fn table(self) -> Option<By> {
        Some(match self {
            Self::Function => By::Function,
            Self::Line => By::Line,
            Self::Instruction => By::Instruction,
            Self::Module => By::Module,
            Self::Thread => By::Thread,
            Self::Process => By::Process,
            Self::Cpu => By::Cpu,
            Self::Region => By::Region,
            Self::Level => By::Level,
            Self::Source => By::Source,
            Self::Branch | Self::Offset => return None,
        })
    }
}

impl ReportArgs {
    /// What the tables group by; branches and offsets have tables of their own.
    fn tables(&self) -> Vec<Grouping> {
        if self.by.is_empty() {
            return vec![By::Function.into(), By::Line.into()];
        }
        let asked: Vec<By> = self.by.iter().filter_map(|by| by.table()).collect();
        (!asked.is_empty()).then(|| Grouping::new(asked)).into_iter().collect()
    }

    /// Whether samples are grouped by this alone.
    fn only_by(&self, by: GroupBy) -> bool {
        self.by == [by]
    }

    /// Options that do not go together; clap knows the others.
    fn check(&self) -> Result<()> {
        let by_offset = self.only_by(GroupBy::Offset);
        if self.by.len() > 1
            && let Some(alone) = self.by.iter().find(|by| by.table().is_none())
        {
            let name =
                alone.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            bail!("--by {name} has a table of its own: ask for it alone");
        }
        let views = [
            (self.callers.is_some(), "--callers"),
            (self.callees.is_some(), "--callees"),
            (self.distribution, "--distribution"),
        ];
        let view = views.into_iter().find_map(|(given, name)| given.then_some(name));
        if self.min_share.is_some() && self.callers.is_none() && self.callees.is_none() {
            bail!("--min-share is for --callers and --callees");
        }
        if self.around.is_some() && !by_offset {
            bail!("--around is for --by offset");
        }
        let alone = [(&self.callers, "--callers"), (&self.callees, "--callees")];
        // A name behind the option is taken for a trace, the first or one beside it.
        let mut traces = iter::once(&self.trace).chain(&self.beside);
        if let Some((_, option)) = alone.iter().find(|(given, _)| **given == Some(None))
            && let Some(name) = traces.find(|name| !name.exists())
        {
            let name = name.display();
            bail!("there is no trace {name}: if it is meant for {option}, write {option}={name}");
        }
        if !self.beside.is_empty() && !by_offset && !self.distribution {
            bail!(
                "several traces side by side are for --by offset and --distribution; `hpmctl diff` compares two"
            );
        }
        if let Some(view) = view
            && !self.by.is_empty()
        {
            bail!("{view} shows what it is named after: leave --by out");
        }
        if (self.off_cpu || self.wall_clock) && self.by.iter().any(|by| by.table().is_none()) {
            bail!("waits have no branches: group them by function, line, module, thread, process or CPU");
        }
        if (self.off_cpu || self.wall_clock) && self.event.is_some() {
            bail!("waits and wall-clock time are of no event: leave --event out");
        }
        if (self.off_cpu || self.wall_clock) && self.filters.chooses_data() {
            bail!("waits have no data: leave --data out");
        }
        Ok(())
    }
}

/// A part of a whole.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=100.0).contains(share));
    share.ok_or_else(|| "write a percentage from 0 to 100".to_owned())
}

/// Runs the command.
///
/// # Errors
/// The folder is no trace, nothing in it can be read, or the output cannot be written.
pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let (output, warnings) = output(args)?;
    warn(&warnings);
    print(output.trim_end())
}

/// What is to be printed, and what is to be warned of; pictures are drawn on the way.
fn output(args: &ReportArgs) -> Result<(String, Vec<String>)> {
    args.check()?;
    match args {
        _ if args.only_by(GroupBy::Offset) => offset::output(args),
        ReportArgs { distribution: true, .. } => distribution::output(args),
        ReportArgs { off_cpu: true, .. } | ReportArgs { wall_clock: true, .. } => waits::output(args),
        _ => samples::output(args),
    }
}

/// The place of an event in a trace, by its name; `NAME#2` is the second of those that a merged trace has of this name.
///
/// # Errors
/// The trace has no such event, or several.
pub(crate) fn event_index(meta: &Meta, name: &str) -> Result<usize> {
    let numbered = name.rsplit_once('#').map(|(name, number)| (name, number.parse::<usize>().ok()));
    let (name, number) = numbered.filter(|(_, number)| number.is_some()).unwrap_or((name, None));
    let called: Vec<usize> =
        (0..meta.events.len()).filter(|&index| meta.events[index].name == name).collect();
    match (called.as_slice(), number) {
        ([], _) => {
            let names: Vec<&str> = meta.events.iter().map(|event| event.name.as_str()).collect();
            bail!("the trace has no event `{name}`; it has {}", names.join(", "))
        }
        ([only], None) => Ok(*only),
        (all, Some(number)) if (1..=all.len()).contains(&number) => Ok(all[number - 1]),
        (all, _) => bail!(
            "the trace has {} called `{name}`, which its recordings measured differently: choose one by `{name}#1`, and so on",
            counted(all.len() as u64, "event")
        ),
    }
}

/// Sentences about one of several traces.
pub(crate) fn named(trace: &str, sentences: impl IntoIterator<Item = String>) -> Vec<String> {
    sentences.into_iter().map(|sentence| format!("{trace}: {sentence}")).collect()
}

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod view_tests;
#[cfg(test)]
mod window_tests;
