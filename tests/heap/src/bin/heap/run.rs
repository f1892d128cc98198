//! `heap run`: a workload at full speed, with advice that is given, or that comes from hpm's driver.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use heap::advice::{Action, Advisor, Live, Log, Rules, Shown};
use heap::layout::FieldId;
use heap::workload::{TYPES, Workload};
use heap::{Advice, Collector, Config, Heap};
use serde_json::json;

use crate::measure::{ITERATIONS, minimum};

/// Options of `heap run`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The workload.
    #[arg(value_parser = crate::workload)]
    workload: Workload,
    /// mark-sweep, copying or libgc, the public collector of Boehm, Demers and Weiser.
    #[arg(long, default_value = "mark-sweep", value_name = "NAME", value_parser = crate::collector)]
    collector: Collector,
    /// The library for --collector libgc, instead of the system's libgc.so.1 (Debian's package libgc1).
    #[arg(long, value_name = "PATH")]
    libgc: Option<String>,
    /// Size of the heap, as a multiple of the smallest one in which the workload runs with the mark-sweep collector.
    #[arg(long, default_value_t = 4.0, value_name = "N")]
    times: f64,
    /// Size of the heap in KiB, instead.
    #[arg(long, value_name = "KIB", conflicts_with = "times")]
    limit: Option<u32>,
    /// How often the workload runs.
    #[arg(long, default_value_t = ITERATIONS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Number of objects, in percent of the usual.
    #[arg(long, default_value_t = 100, value_name = "PERCENT")]
    scale: u32,
    /// Fields to co-allocate from the beginning, as Type::field with commas between.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = field)]
    advice: Vec<FieldId>,
    /// Take advice from samples of this run, by hpm's driver: one of so many misses.
    #[arg(long, value_name = "INTERVAL", value_parser = clap::value_parser!(u64).range(1..))]
    live: Option<u64>,
    /// Length of a period of the advisor's, in instructions.
    #[arg(long, default_value_t = 50_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    period: u64,
    /// Name of the window that the last iteration is in the truth of the virtual lab machine, at most 8 letters.
    #[arg(long, value_name = "TAG")]
    window: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The field of the workloads' types that has this name.
pub(crate) fn field(name: &str) -> Result<FieldId, String> {
    let all = (0..)
        .zip(TYPES)
        .flat_map(|(class, shape)| (0..).zip(shape.fields()).map(move |(field, _)| FieldId { class, field }));
    all.into_iter()
        .find(|id| id.name(TYPES) == name)
        .ok_or_else(|| "no type has such a field; write for example Text::value".to_owned())
}

/// Advice to co-allocate these.
pub(crate) fn together(fields: &[FieldId]) -> Advice {
    fields.iter().fold(Advice::none(), |advice, field| advice.with(*field, 0))
}

/// Runs a workload and prints its checksum and what happened.
///
/// # Errors
/// The heap is too small, or there is no driver although samples are asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    let collector = chosen(options)?;
    let limit_bytes = limit(options)?;
    let window = options.window.as_deref().map(tag).transpose()?;
    let mut heap: Heap = Heap::new(Config { collector, limit_bytes }, TYPES, ())?;
    heap.advise(together(&options.advice));
    let log = match options.live {
        None => None,
        Some(interval) => {
            let samples = Live::open(heap.base(), heap.ranges().large.end.into(), interval)
                .context("no samples of this run")?;
            let (advisor, log) = Advisor::new(samples, Rules::new(options.period, LINE_BYTES));
            heap.set_hook(Some(Box::new(advisor)));
            Some(log)
        }
    };
    let mut checksum = 0;
    let mut seconds = 0.0;
    for iteration in 1..=options.iterations {
        let start = Instant::now();
        let measured = window.filter(|_| iteration == options.iterations);
        measured.iter().for_each(|tag| heap::raw::lab_window(*tag, true));
        checksum = options.workload.run(&mut heap, options.scale)?;
        measured.iter().for_each(|tag| heap::raw::lab_window(*tag, false));
        seconds = start.elapsed().as_secs_f64();
    }
    let done = heap.statistics();
    let log = log.as_ref().map(|log| log.borrow());
    let decisions: Vec<String> =
        log.as_deref().map(|log| log.decisions.iter().map(said).collect()).unwrap_or_default();
    if options.json {
        let json = json!({
            "workload": options.workload.name(), "checksum": checksum, "limit_bytes": limit_bytes,
            "last_iteration_seconds": seconds, "nursery_collections": done.nursery_collections,
            "full_collections": done.full_collections, "promoted_objects": done.promoted_objects,
            "co_allocated_pairs": done.co_allocated_pairs, "decisions": decisions,
            "samples": log.as_deref().map(|log| log.samples), "failed": log.as_deref().and_then(|log| log.failed.clone()),
        });
        println!("{json:#}");
        return Ok(());
    }
    println!(
        "{}: checksum {checksum:016x}, heap of {} KiB, last of {} iterations {seconds:.3} s\n{} collections of the nursery, {} of \
         the whole heap; {} objects promoted, {} pairs co-allocated",
        options.workload.name(),
        limit_bytes >> 10,
        options.iterations,
        done.nursery_collections,
        done.full_collections,
        done.promoted_objects,
        done.co_allocated_pairs
    );
    decisions.iter().for_each(|decision| println!("{decision}"));
    if let Some(log) = log.as_deref() {
        tell(log);
    }
    Ok(())
}

/// The collector, with its library.
fn chosen(options: &Options) -> Result<Collector> {
    match (options.collector, &options.libgc) {
        (Collector::Libgc(_), _) if options.live.is_some() || !options.advice.is_empty() => {
            bail!("libgc takes no advice; leave out --advice and --live, or choose --collector mark-sweep")
        }
        (Collector::Libgc(_), Some(library)) => Ok(Collector::Libgc(library.clone().leak())),
        (_, Some(_)) => bail!("--libgc is the library of --collector libgc; give both"),
        (collector, None) => Ok(collector),
    }
}

/// The heap's size as the options say.
fn limit(options: &Options) -> Result<u32> {
    if let Some(kib) = options.limit {
        return kib.checked_mul(1024).context("so large a heap cannot be; give fewer KiB with --limit");
    }
    if !(options.times > 0.0 && options.times <= 100.0) {
        bail!("--times is more than 0 and at most 100");
    }
    let minimum = minimum(options.workload, options.scale, Collector::MarkSweep)?;
    Ok((f64::from(minimum) * options.times) as u32)
}

/// Bytes of a cache line, of every processor that the driver takes.
const LINE_BYTES: u32 = 64;

/// The samples, and why there are no more.
fn tell(log: &Log) {
    println!("{} samples of this heap, {} of them of young or freed objects", log.samples, log.young);
    for (field, weight) in &log.weights {
        println!("{:>8.1}  {}", weight.samples, field.name(TYPES));
    }
    if let Some(failed) = &log.failed {
        println!("samples ended: {failed}");
    }
}

/// A decision as a sentence.
pub(crate) fn said(decision: &heap::advice::Decision) -> String {
    let field = decision.field.name(TYPES);
    let what = match &decision.action {
        Action::Advised => format!("{field} is co-allocated in a quarter of the pairs"),
        Action::Intervened(gap) => {
            format!("{gap} empty bytes are put behind {field}, as was asked for, in a quarter of the pairs")
        }
        Action::Kept(shown) => {
            format!("the layout of {field} helps and goes to nearly all pairs: {}", told(shown))
        }
        Action::Reverted(shown) => format!("the layout of {field} is changed back: {}", told(shown)),
        Action::NotShown(shown) => {
            format!("the layout of {field} is changed back, no effect was shown: {}", told(shown))
        }
    };
    format!("period {}: {what}", decision.period)
}

/// What a trial has shown.
fn told(shown: &Shown) -> String {
    let Some((low, mean, high)) = shown.change else { return "no pair was sampled".to_owned() };
    format!(
        "misses of a pair {:+.0} % (95 %: {:+.0} to {:+.0} %), {} samples of {} pairs against {} of {}",
        mean * 100.0,
        low * 100.0,
        high * 100.0,
        shown.samples.treated,
        shown.pairs.treated,
        shown.samples.control,
        shown.pairs.control
    )
}

fn tag(text: &str) -> Result<[u8; 8]> {
    let mut tag = [0; 8];
    let bytes = text.as_bytes();
    let place = tag.get_mut(..bytes.len()).context("a window's name has at most 8 letters")?;
    place.copy_from_slice(bytes);
    Ok(tag)
}
