//! Traces as files of other programs.
//!
//! Formats of stacks show samples: pprof, Firefox and speedscope those of every event, folded stacks and flame graphs those of
//! one, whose counts cannot be added to another's. The Chrome trace shows quanta; CSV and Parquet have a table as it is. What
//! is lost or uncertain goes with the file where its format has a place for it ([`remarks()`]).

mod chrome;
mod csv;
mod firefox;
mod on_cpu;
mod parquet;
mod pprof;
mod remarks;
mod speedscope;
mod stacks;

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use crate::flame::FoldedStacks;
use crate::report::Sum;
use crate::trace::{QuantumRow, SampleRow, TraceReader};

pub use self::chrome::write_chrome;
pub use self::csv::{csv_line, write_csv};
pub use self::firefox::write_firefox;
pub use self::parquet::write_parquet;
pub use self::pprof::write_pprof;
pub use self::remarks::{
    counts_remarks, dense_places, is_clock_of_one_mode, losses, quanta_remarks, remarks,
};
pub use self::speedscope::write_speedscope;
pub use self::stacks::{StackSample, Stacks};

/// Lines `thread;outermost;…;innermost EVENTS`. Without remarks: the format has no place for them.
///
/// # Errors
/// The output cannot be written.
pub fn write_folded(stacks: &Stacks<'_>, output: &mut dyn Write) -> io::Result<()> {
    folded(stacks).lines().try_for_each(|line| writeln!(output, "{line}"))
}

/// A flame graph.
///
/// # Errors
/// The output cannot be written.
pub fn write_svg(stacks: &Stacks<'_>, output: &mut dyn Write) -> io::Result<()> {
    let names = stacks.event_names();
    let title = format!("{}: {names}", stacks.title());
    // Where one stands for no more than itself its width is that of a sample; those of several events are added.
    let units: Vec<String> = stacks
        .events
        .iter()
        .map(|&event| match stacks.event(event) {
            dense if dense.within.is_some() => format!("samples of {}", dense.name),
            event => event.name.clone(),
        })
        .collect();
    let unit = units.join(" + ");
    folded(stacks).write_svg(&title, &unit, output)
}

fn folded(stacks: &Stacks<'_>) -> FoldedStacks {
    let mut folded = FoldedStacks::default();
    for StackSample { period, sample, .. } in &stacks.samples {
        folded.add(sample, Sum::sample(*period, None));
    }
    folded
}

/// TSC of the start of the first quantum; of the first sample in a trace without quanta.
fn first_tsc(reader: &TraceReader) -> u64 {
    let quanta = reader.rows::<QuantumRow>().map(|row| row.start_tsc).min();
    quanta.or_else(|| reader.rows::<SampleRow>().map(|row| row.tsc).min()).unwrap_or(0)
}

/// TSC ticks in ns.
fn ticks_to_ns(ticks: u64, khz: u64) -> u64 {
    let ns = (u128::from(ticks) * 1_000_000).checked_div(khz.into());
    ns.map_or(0, |ns| u64::try_from(ns).unwrap_or(u64::MAX))
}
