//! Call stacks of a program whose calls are known.

use anyhow::{Context, Result, ensure};
use libhpm::flame::FoldedStacks;
use libhpm::report::{Resolver, Sum};
use libhpm::symbol::FileFinder;
use libhpm::trace::{SampleRow, TraceReader};

use crate::check::Tally;
use crate::guest::stacks::METHODS;
use crate::lab::Boot;

/// Every method finds the same calls.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    for method in METHODS {
        tally.run(&format!("stacks: {method} finds the program's calls"), || calls(boot, method));
    }
}

/// The program misses 300,000 times in `inner`. Beside them only a few loads of its start can miss.
pub(super) fn calls(boot: &Boot, method: &str) -> Result<String> {
    let name = format!("{method}.hpm");
    let reader = TraceReader::open(boot.folder.join(&name)).with_context(|| format!("opening {name}"))?;
    let mut resolver = Resolver::new(&reader, FileFinder::default());
    let mut folded = FoldedStacks::default();
    let mut samples = 0u64;
    for row in reader.rows::<SampleRow>() {
        samples += 1;
        folded.add(&resolver.resolve(&row), Sum::sample(1, None));
    }
    let expected = 300_000 / crate::guest::programs::PERIOD;
    ensure!(samples.abs_diff(expected) <= 1, "{samples} samples instead of {expected}");
    let lines: Vec<String> = folded.lines().collect();
    ensure!(lines == [format!("calls;_start;outer;middle;inner {samples}")], "found {lines:?}");
    Ok(format!("{samples} samples"))
}
