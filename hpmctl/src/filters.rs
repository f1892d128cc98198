//! The options that choose samples and quanta: `report`, `annotate` and `diff` have them in common.

use std::ops::RangeInclusive;

use anyhow::{Result, bail};
use clap::Args;
use libhpm::report::{Clause, CodePlace, Condition, DataPlace, Filter, Span, TimeRange};
use libhpm::trace::TraceReader;

/// Which samples are looked at: those for which every option holds that is given. Of an option given several times one is
/// enough.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Only some samples")]
pub(crate) struct FilterArgs {
    /// Of threads with this name or ID
    #[arg(long, value_name = "NAME|TID")]
    thread: Vec<String>,
    /// Of the process with this ID
    #[arg(long, value_name = "PID")]
    process: Vec<u32>,
    /// On these CPUs, such as 0-3,7
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = cpus)]
    cpu: Vec<RangeInclusive<u32>>,
    /// Between these times since the trace began (10ms..1.5s, or 1..2 in seconds), or in this part of it (20%..40%)
    #[arg(long, value_name = "FROM..TO")]
    time: Option<TimeRange>,
    /// In this function, or at these addresses in memory
    #[arg(long, value_name = "FUNCTION|0xA-0xB")]
    code: Vec<CodePlace>,
    /// In this function or in what it calls: it is somewhere on the stack
    #[arg(long, value_name = "FUNCTION")]
    within: Vec<String>,
    /// With data in this region (heap, stack, a file's name; see --by region), or at these addresses
    #[arg(long, value_name = "REGION|0xA-0xB")]
    data: Vec<DataPlace>,
    /// For which this expression is true, such as 'latency_cycles > 200 and function ~ "^hash"'; its names are time_ns, cpu, pid, tid,
    /// period, address, line, data_address, latency_cycles, event, thread, function, module, file, region and level
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
}

impl FilterArgs {
    /// The filter for a trace.
    ///
    /// # Errors
    /// The expression is none, or no time is between those given.
    pub(crate) fn of(&self, reader: &TraceReader) -> Result<Filter> {
        let mut filter = Filter::default();
        let mut add = |given: bool, clause: Clause| {
            if given {
                filter.add(clause);
            }
        };
        add(!self.thread.is_empty(), Clause::Thread(self.thread.clone()));
        add(!self.process.is_empty(), Clause::Process(self.process.clone()));
        add(!self.cpu.is_empty(), Clause::Cpu(self.cpu.clone()));
        add(!self.code.is_empty(), Clause::Code(self.code.clone()));
        add(!self.within.is_empty(), Clause::Stack(self.within.clone()));
        add(!self.data.is_empty(), Clause::Data(self.data.clone()));
        if let Some(time) = self.time {
            let times = time.in_trace(Span::of(reader));
            if times.is_empty() {
                bail!("no time of the trace is in {time}: write the earlier time first");
            }
            filter.add(Clause::Time(times));
        }
        if let Some(text) = &self.filter {
            let condition = Condition::new(text, &reader.meta().events, Span::of(reader))?;
            filter.add(Clause::Holds(condition));
        }
        Ok(filter)
    }

    /// The functions that samples have to be in, and those that have to be on their stacks.
    pub(crate) fn functions(&self) -> (Vec<&str>, &[String]) {
        let code = self.code.iter().filter_map(|place| match place {
            CodePlace::Function(name) => Some(name.as_str()),
            CodePlace::Addresses(_) => None,
        });
        (code.collect(), &self.within)
    }

    /// Whether it matters where data is.
    pub(crate) fn chooses_data(&self) -> bool {
        !self.data.is_empty()
    }

    /// What was asked for, in words; `None` without any.
    pub(crate) fn words(&self) -> Option<String> {
        let any =
            |what: &str, all: Vec<String>| (!all.is_empty()).then(|| format!("{what} {}", all.join(" or ")));
        let addresses = |range: &std::ops::Range<u64>| format!("{:#x}-{:#x}", range.start, range.end);
        let code = |place: &CodePlace| match place {
            CodePlace::Function(name) => name.clone(),
            CodePlace::Addresses(range) => addresses(range),
        };
        let data = |place: &DataPlace| match place {
            DataPlace::Region(name) => name.clone(),
            DataPlace::Addresses(range) => addresses(range),
        };
        let cpu = |range: &RangeInclusive<u32>| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        let words: Vec<String> = [
            any("thread", self.thread.clone()),
            any("process", self.process.iter().map(u32::to_string).collect()),
            any("CPU", self.cpu.iter().map(cpu).collect()),
            self.time.map(|time| format!("time {time}")),
            any("code in", self.code.iter().map(code).collect()),
            any("within", self.within.clone()),
            any("data in", self.data.iter().map(data).collect()),
            self.filter.clone(),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

/// What a trace has none of, and what to do; follows "holds no sample" and the like.
pub(crate) fn lacking(filter: &Filter) -> &'static str {
    if filter.is_empty() {
        "that can be read"
    } else {
        "that was asked for; `hpmctl report --by thread`, or by cpu, function or region, shows what there is to choose from"
    }
}

fn cpus(text: &str) -> Result<RangeInclusive<u32>, String> {
    let wrong = || format!("`{text}` are no CPUs: write numbers and ranges, such as 0-3,7");
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    match text.split_once('-') {
        Some((first, last)) => Ok(number(first)?..=number(last)?)
            .and_then(|range| if range.is_empty() { Err(wrong()) } else { Ok(range) }),
        None => number(text).map(|one| one..=one),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use libhpm::report::SAMPLE_NAMES;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        filters: FilterArgs,
    }

    fn words(options: &str) -> Option<String> {
        let words = ["x"].into_iter().chain(options.split_whitespace());
        Cli::try_parse_from(words).ok()?.filters.words()
    }

    #[test]
    fn the_help_has_every_name_of_an_expression() {
        use clap::CommandFactory as _;
        let help = Cli::command().render_long_help().to_string();
        let words: Vec<&str> = help.split([' ', ',', '\n']).collect();
        assert!(SAMPLE_NAMES.iter().all(|(name, ..)| words.contains(name)), "{help}");
    }

    #[test]
    fn what_was_asked_for_is_told() {
        assert_eq!(words(""), None);
        let all = "--thread a --thread 12 --cpu 0-3,7 --time 10ms..1.5s --code f --code 0x1-0x2 --within main --data heap";
        assert_eq!(
            words(all).unwrap(),
            "thread a or 12; CPU 0-3 or 7; time 10ms..1.5s; code in f or 0x1-0x2; within main; data in heap"
        );
        assert!(
            ["--cpu 3-1", "--cpu x", "--time 5", "--time 5s..1s", "--code 0x5-0x1"]
                .into_iter()
                .all(|wrong| words(wrong).is_none())
        );
    }
}
