//! One run of a workload in the cache model.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context, Result};
use heap::advice::{Advisor, Log, Rules};
use heap::simulate::{Measured, Model};
use heap::workload::{TYPES, Workload};
use heap::{Advice, Collector, Config, Heap, OutOfMemory, Statistics};
use serde::{Deserialize, Serialize};

use crate::{ModelArgs, child};

/// Iterations before those that are measured: they gather samples and bring advice into force (the thesis measures the third iteration,
/// too, §5.2.2).
const WARM_UP: u32 = 2;
/// Usual number of iterations: one is measured.
pub(crate) const ITERATIONS: u32 = WARM_UP + 1;
/// Steps in which a smallest heap is looked for.
pub(crate) const STEP_BYTES: u32 = 256 << 10;

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    pub(crate) scale: u32,
    pub(crate) collector: Collector,
    pub(crate) limit_bytes: u32,
    pub(crate) iterations: u32,
    /// Advice from the beginning.
    pub(crate) advice: Advice,
    /// An advisor's rules; `None` for a run that nobody advises.
    pub(crate) rules: Option<Rules>,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) checksum: u64,
    /// Of the iterations that are measured: all but the first two, or the last of less than three.
    pub(crate) last: Measured,
    /// What happened in the heap, in all iterations.
    pub(crate) statistics: Statistics,
    /// Collections of the nursery and of everything in those that are measured.
    pub(crate) collections: (u64, u64),
    #[serde(skip)]
    pub(crate) log: Option<Rc<RefCell<Log>>>,
}

impl Plan {
    pub(crate) fn new(workload: Workload, scale: u32, collector: Collector, limit_bytes: u32) -> Self {
        Self {
            workload,
            scale,
            collector,
            limit_bytes,
            iterations: ITERATIONS,
            advice: Advice::none(),
            rules: None,
        }
    }

    /// So many iterations.
    pub(crate) fn repeated(self, iterations: u32) -> Self {
        Self { iterations, ..self }
    }

    /// Advised by samples of itself.
    pub(crate) fn advised(mut self, model: &ModelArgs) -> Self {
        self.rules = Some(rules(model));
        self
    }

    /// Runs it; `None` when the heap is too small.
    pub(crate) fn run(&self, args: &ModelArgs) -> Result<Option<Done>> {
        match self.collector {
            Collector::Libgc(library) => child::run(self, library, args),
            _ => self.run_here(args),
        }
    }

    /// Runs it in this process.
    pub(crate) fn run_here(&self, args: &ModelArgs) -> Result<Option<Done>> {
        let model = Model::new(args.profile)?;
        model.sample(args.interval);
        let mut heap = self.heap(model.clone())?;
        model.set_ranges(heap.ranges());
        heap.advise(self.advice.clone());
        let log = self.rules.map(|rules| {
            let (advisor, log) = Advisor::new(model.clone(), rules);
            heap.set_hook(Some(Box::new(advisor)));
            log
        });
        let mut checksum = None;
        let mut before = (model.measured(), heap.statistics());
        for iteration in 0..self.iterations {
            if iteration <= WARM_UP {
                before = (model.measured(), heap.statistics());
            }
            let sum = match self.workload.run(&mut heap, self.scale) {
                Ok(sum) => sum,
                Err(OutOfMemory { .. }) => return Ok(None),
            };
            anyhow::ensure!(
                checksum.is_none_or(|known| known == sum),
                "{}: iterations have different checksums",
                self.workload.name()
            );
            checksum = Some(sum);
        }
        let statistics = heap.statistics();
        Ok(Some(Done {
            checksum: checksum.context("nothing ran")?,
            last: model.measured().since(&before.0),
            collections: (
                statistics.nursery_collections - before.1.nursery_collections,
                statistics.full_collections - before.1.full_collections,
            ),
            statistics,
            log,
        }))
    }

    fn heap<O: heap::Observer>(&self, observer: O) -> Result<Heap<O>> {
        Ok(Heap::new(Config { collector: self.collector, limit_bytes: self.limit_bytes }, TYPES, observer)?)
    }

    /// Whether the heap suffices, for all iterations.
    fn fits(&self) -> Result<bool> {
        match self.collector {
            Collector::Libgc(library) => child::fits(self, library),
            _ => self.fits_here(),
        }
    }

    /// Whether it does, found in this process.
    pub(crate) fn fits_here(&self) -> Result<bool> {
        let mut heap = self.heap(())?;
        Ok((0..self.iterations).all(|_| self.workload.run(&mut heap, self.scale).is_ok()))
    }
}

/// What a table says of the iterations that are measured of so many.
pub(crate) fn which(iterations: u32) -> String {
    match iterations - WARM_UP {
        1 => format!("in the last of {iterations} iterations"),
        measured => {
            format!("in the last {measured} of {iterations} iterations, of all of which numbers are the sums")
        }
    }
}

/// The rules of an advisor in this model.
pub(crate) fn rules(model: &ModelArgs) -> Rules {
    Rules::new(model.period, model.profile.geometry.l1d.line_bytes)
}

/// The smallest heap in which a workload runs the usual number of times, in whole steps.
pub(crate) fn minimum(workload: Workload, scale: u32, collector: Collector) -> Result<u32> {
    let fits = |steps: u32| Plan::new(workload, scale, collector, steps * STEP_BYTES).fits();
    let mut enough = 1;
    while !fits(enough)? {
        enough *= 2;
        anyhow::ensure!(enough * STEP_BYTES <= 1 << 29, "{} does not run in 512 MiB", workload.name());
    }
    let mut low = enough / 2;
    while enough - low > 1 {
        let middle = low.midpoint(enough);
        if fits(middle)? { enough = middle } else { low = middle }
    }
    Ok(enough * STEP_BYTES)
}
