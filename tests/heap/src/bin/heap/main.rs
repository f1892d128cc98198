//! Runs the workloads on the heap: as they are, on a model of caches, or advised by hpm's samples of the run itself.

mod child;
mod compare;
mod measure;
mod periods;
mod run;
mod tables;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use heap::Collector;
use heap::layout::FieldId;
use heap::workload::Workload;
use vpmu::Profile;

/// A generational heap that takes co-allocation advice while its program runs.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a workload.
    Run(run::Options),
    /// Find the smallest heap, in steps of 256 KiB, in which a workload runs.
    Minimum {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        libgc: LibgcArgs,
    },
    /// First-level misses and cycles with co-allocation and with the copying collector, by heap size (the thesis's
    /// Figures 5.9, 5.10 and 5.12), of accesses through the heap's accessors in a cache model.
    Simulate {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        model: ModelArgs,
        #[command(flatten)]
        runs: Runs,
        /// Fields that are co-allocated from the beginning and stay so, instead of advice by samples: Type::field, with commas
        /// between.
        #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = run::field, conflicts_with = "libgc")]
        advice: Vec<FieldId>,
        #[command(flatten)]
        libgc: LibgcArgs,
    },
    /// Number of co-allocated objects by sampling interval, at four times the smallest heap (Figure 5.8), in a cache model.
    Intervals {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        model: ModelArgs,
        /// Sampling intervals, in misses.
        #[arg(long, default_value = "100,1000,10000,100000", value_delimiter = ',', value_name = "LIST")]
        intervals: Vec<u64>,
    },
    /// Samples by field, at four times the smallest heap without advice (Table 5.1), in a cache model.
    Weights {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        model: ModelArgs,
    },
    /// Misses by space of both collectors, at four times the smallest heap (§4.4), in a cache model.
    Spaces {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        model: ModelArgs,
    },
    /// Misses of each advised field through time, with advice and without (Figure 5.13), at four times the smallest heap, in a
    /// cache model.
    Follow {
        /// The workload.
        #[arg(value_parser = workload)]
        workload: Workload,
        #[command(flatten)]
        model: ModelArgs,
        /// Iterations of it.
        #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        iterations: u32,
        /// Number of objects, in percent of the usual.
        #[arg(long, default_value_t = 100, value_name = "PERCENT")]
        scale: u32,
    },
    /// The bad layout of Figure 5.14: db runs with its strings co-allocated, then 128 empty bytes are put between; how soon is
    /// that noticed and taken back? In a cache model.
    Reversal {
        #[command(flatten)]
        model: ModelArgs,
        /// Iterations of db.
        #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        iterations: u32,
        /// Number of objects, in percent of the usual.
        #[arg(long, default_value_t = 100, value_name = "PERCENT")]
        scale: u32,
    },
    /// One run on libgc for another command, as JSON: a process has one libgc.
    #[command(hide = true)]
    OnLibgc(child::Options),
}

/// The runs of each workload.
#[derive(Debug, Args)]
struct Runs {
    /// Heap sizes, as multiples of the smallest heap.
    #[arg(long, default_value = "1,1.4,2,4", value_delimiter = ',', value_name = "LIST")]
    times: Vec<f64>,
    /// Whose smallest heap they are multiples of: mark-sweep's, or copying's, which needs more, to compare the two in heaps that are as
    /// tight for copying (Figure 5.12).
    #[arg(long, default_value = "mark-sweep", value_name = "NAME", value_parser = collector, conflicts_with = "libgc")]
    of: Collector,
    /// Iterations of each run: all but the first two are measured.
    #[arg(long, default_value_t = measure::ITERATIONS, value_name = "N", value_parser = clap::value_parser!(u32).range(3..))]
    iterations: u32,
}

/// The public collector beside the heap's own.
#[derive(Debug, Args)]
struct LibgcArgs {
    /// Also on libgc, the public collector of Boehm, Demers and Weiser: where the system has it (Debian's package libgc1), or this
    /// library.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = Collector::LIBGC)]
    libgc: Option<String>,
}

impl LibgcArgs {
    /// The library, as long as the program.
    fn library(self) -> Option<&'static str> {
        self.libgc.map(|library| &*library.leak())
    }
}

/// Which workloads, and how large.
#[derive(Debug, Args)]
struct What {
    /// Workloads; all unless given.
    #[arg(value_parser = workload)]
    workloads: Vec<Workload>,
    /// Number of objects, in percent of the usual.
    #[arg(long, default_value_t = 100, value_name = "PERCENT")]
    scale: u32,
}

impl What {
    fn workloads(&self) -> Vec<Workload> {
        if self.workloads.is_empty() { Workload::ALL.to_vec() } else { self.workloads.clone() }
    }
}

/// The modelled processor.
#[derive(Debug, Args)]
struct ModelArgs {
    /// Profile of the PMU model: its caches and latencies. The thesis measured on a Prescott.
    #[arg(long, default_value = "prescott", value_name = "NAME", value_parser = profile)]
    profile: &'static Profile,
    /// One of so many misses is sampled.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Length of a period of the advisor's, in accesses of the program.
    #[arg(long, default_value_t = 5_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    period: u64,
}

fn workload(name: &str) -> Result<Workload, String> {
    let names: Vec<&str> = Workload::ALL.iter().map(|workload| workload.name()).collect();
    Workload::named(name).ok_or_else(|| format!("the workloads are {}", names.join(", ")))
}

fn profile(name: &str) -> Result<&'static Profile, String> {
    let names = || vpmu::profile::every().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    vpmu::profile::by_name(name).ok_or_else(|| format!("the profiles are {}", names()))
}

fn collector(name: &str) -> Result<Collector, String> {
    match name {
        "mark-sweep" => Ok(Collector::MarkSweep),
        "copying" => Ok(Collector::Copying),
        "libgc" => Ok(Collector::Libgc(Collector::LIBGC)),
        _ => Err("the collectors are mark-sweep, copying and libgc".to_owned()),
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().action {
        Action::Run(options) => run::run(&options),
        Action::Minimum { what, libgc } => tables::minimum(&what.workloads(), what.scale, libgc.library()),
        Action::Simulate { what, model, runs, advice, libgc } => match libgc.library() {
            None => tables::simulate(&what, &model, &runs, &advice),
            Some(library) => compare::simulate(&what, &model, &runs, library),
        },
        Action::OnLibgc(options) => child::main(&options),
        Action::Intervals { what, model, intervals } => {
            tables::intervals(&what.workloads(), what.scale, &model, &intervals)
        }
        Action::Weights { what, model } => tables::weights(&what.workloads(), what.scale, &model),
        Action::Spaces { what, model } => tables::spaces(&what.workloads(), what.scale, &model),
        Action::Follow { workload, model, iterations, scale } => {
            periods::follow(workload, scale, &model, iterations)
        }
        Action::Reversal { model, iterations, scale } => periods::reversal(&model, iterations, scale),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heap: {error:#}");
            ExitCode::FAILURE
        }
    }
}
