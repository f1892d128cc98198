//! A session of an unprivileged user whose records come late enough to show the kernel: nothing of it may ever stand in
//! memory that the user maps. And who may measure what.

use std::collections::BTreeMap;
use std::fs;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use hpm_abi::{
    CONTROL_OFFSET, CpuControl, CpuStatus, EVENTS_MAX, Marker, NO_EVENT, PAGE_BYTES, Quantum,
    SAMPLING_COUNTERS_MAX, SEGMENT_BYTES, STATUS_OFFSET, SessionFlags, StatusHead, control_bytes,
    counters_offset, markers_offset, quanta_offset, segments_offset, stacks_offset, status_bytes,
    whole_pages,
};
use libhpm::event;
use libhpm::session::{Branches, Info, Options, SessionConfig, Stack, Target, Totals};
use libhpm::symbol::KERNEL_START;
use libhpm::sys::child::Child;
use libhpm::sys::device::{Command as DeviceCommand, Device, Driver};
use libhpm::sys::probe::Mapping;
use libhpm::trace::{SampleRow, TraceReader};
use serde_json::json;

use super::counting::SYSCALLS;
use super::processor::LOADS;
use super::programs::{built, hpmctl, succeed};
use super::proof::{denied, proof_of, prove};
use super::scopes::{NOBODY, open_to_nobody};
use super::{GuestReport, REPORT};

/// Of [`Mapping`]'s words.
const WORD_BYTES: usize = size_of::<u64>();

/// Lets the reader run as nobody, and takes over what it saw.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    open_to_nobody()?;
    let mut reader = Command::new(std::env::current_exe()?);
    reader.args(["guest", "privacy_reader"]).uid(NOBODY).gid(NOBODY).current_dir("/tmp/nobody");
    let status = reader.status()?;
    ensure!(status.success(), "the reader ended with {status}");
    let seen: GuestReport = serde_json::from_slice(&fs::read(format!("/tmp/nobody/{REPORT}"))?)?;
    report.checks.extend(seen.checks);
    report.facts.extend(seen.facts);
    report.check("an interrupt within the kernel shows the user's registers", within_kernel);
    super::rights::run(report)
}

/// Interrupts come up to 30 instructions late, of 68 in user mode between two system calls, so that many come within one: those show the
/// instruction behind it, or are lost where the kernel has not saved the user's registers yet.
fn within_kernel() -> Result<String> {
    let trace = "within.hpm";
    let words = ["record", "-e", LOADS, "-c", "1009", "--imprecise", "-o", trace, "--"];
    succeed(hpmctl(&words)?.arg(built(SYSCALLS)?))?;
    let mut places = BTreeMap::<u64, usize>::new();
    TraceReader::open(trace)?.rows::<SampleRow>().for_each(|row| *places.entry(row.ip).or_default() += 1);
    let kernel = places.keys().find(|&&ip| ip >= KERNEL_START);
    ensure!(kernel.is_none(), "the kernel's address {kernel:x?} is among the samples");
    let all: usize = places.values().sum();
    let most = places.values().max().copied().unwrap_or(0);
    // A place that is like the others has one of 68.
    let said = format!("{most} of {all} samples are at one place");
    ensure!(all > 1000 && most * 20 > all, "{said}");
    Ok(said)
}

/// A way to sample that has memory of its own.
struct Way {
    name: &'static str,
    /// Period of loads.
    period: u64,
    /// Hardware writes its records, which are in the truth's log.
    precise: bool,
    add: fn(Options) -> Options,
}

/// Records and quanta alone; with branches, callers and counter pages, whose memory the driver or hardware fills; by interrupts.
const WAYS: [Way; 3] = [
    // More often, the segments would be full again before the reader has its turn beside two threads that never sleep.
    Way { name: "records", period: 401, precise: true, add: |options| options },
    Way { name: "branches and stacks", period: 1009, precise: true, add: with_everything },
    Way {
        name: "interrupts",
        period: 1009,
        precise: false,
        add: |options| with_everything(options.imprecise(true)),
    },
];

fn with_everything(options: Options) -> Options {
    let branches = Branches { count: 0, filter: 0 };
    options.branches(Some(branches)).stack(Stack::FramePointers(64)).counter_pages(true)
}

/// As nobody: samples a child in each way, while a thread polls everything that is mapped.
pub(super) fn read(report: &mut GuestReport) {
    let (mut records, mut withheld, mut lost) = (0, 0, 0);
    for way in &WAYS {
        let name = format!("no kernel address ever stands in the memory mapped for {}", way.name);
        report.check(&name, || {
            let (swept, sums) = poll_while_sampling(way)?;
            ensure!(sums.records > 100, "only {} samples were taken", sums.records);
            if way.precise {
                records += sums.records;
                withheld += sums.records_withheld;
                lost += sums.records_lost;
            }
            Ok(format!("{swept} sweeps, {} samples", sums.records))
        });
    }
    report.check("a counter page shows nothing that others have counted", super::glimpse::others_counts);
    report.fact("records", json!(records));
    report.fact("withheld", json!(withheld));
    report.fact("lost", json!(lost));
}

struct Mapped {
    quanta: Vec<Mapping>,
    /// All else that the driver or hardware writes, but the status.
    written: Vec<Mapping>,
    control: Mapping,
    status: Mapping,
}

impl Mapped {
    /// A word anywhere that is a kernel address, if there is one.
    fn kernel_word(&self) -> Option<u64> {
        let elsewhere = || self.written.iter().chain([&self.status]).find_map(kernel_word);
        self.quanta.iter().find_map(kernel_word_of_quanta).or_else(elsewhere)
    }
}

fn poll_while_sampling(way: &Way) -> Result<(u64, Totals)> {
    let mut child = Child::prepare(&[built(SYSCALLS)?])?;
    let (driver, info) = Driver::open_checked()?;
    let config = configure(&driver, &info, &child, way)?;
    let mut mapped = map(&driver, &info, &config)?;
    driver.command(DeviceCommand::Start).map_err(denied)?;
    child.execute()?;
    if config.flags & SessionFlags::COUNTER_PAGES != 0 {
        let page = driver.counters(child.pid()).map_err(denied)?;
        mapped.written.push(Mapping::new(driver.as_fd(), counters_offset(page), PAGE_BYTES, false)?);
    }
    let (done, found, sweeps) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if let Some(word) = mapped.kernel_word() {
                    found.store(word, Ordering::Relaxed);
                }
                sweeps.fetch_add(1, Ordering::Relaxed);
            }
        });
        while child.try_wait()?.is_none() {
            give_back(&mapped, info.cpus as usize);
            std::thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    driver.command(DeviceCommand::Stop).map_err(denied)?;
    let word = mapped.kernel_word();
    let word = word.unwrap_or(found.into_inner());
    ensure!(word == 0, "the kernel address {word:#x} was seen");
    let sweeps = sweeps.into_inner();
    ensure!(sweeps > 3, "the memory was looked at {sweeps} times");
    Ok((sweeps, driver.totals().map_err(denied)?))
}

fn configure(driver: &Driver, info: &Info, child: &Child, way: &Way) -> Result<SessionConfig> {
    let loads = event::parse_each(LOADS, &libhpm::machine::pmu_name(info))?;
    let options = Options::new(Target::Process(child.pid())).start_on_exec(true);
    let options = loads.into_iter().fold(options, |options, load| options.sample(load, way.period));
    let (proof, mut config) = (proof_of(child)?, (way.add)(options).config());
    prove(&mut config, &proof);
    // Within what a user may have locked, and room for records of some 300 ms: so long the reader may have no turn.
    config.segments = 12;
    config.stack_ring_bytes = config.stack_ring_bytes.min(1 << 20);
    // With a third CPU a user may lock less for each.
    if info.cpus > 2 {
        (config.quanta, config.stack_ring_bytes) = (config.quanta / 2, config.stack_ring_bytes / 2);
    }
    driver.configure(&mut config).map_err(denied)?;
    Ok(config)
}

/// Of each CPU its quanta, records, stacks and markers, as far as the session has them.
fn map(driver: &Driver, info: &Info, config: &SessionConfig) -> Result<Mapped> {
    let map = |offset, bytes, writable| Mapping::new(driver.as_fd(), offset, bytes, writable);
    type Offset = fn(u32) -> u64;
    let areas: [(Offset, usize); 3] = [
        (segments_offset, config.segments as usize * SEGMENT_BYTES as usize),
        (stacks_offset, config.stack_ring_bytes as usize),
        (markers_offset, whole_pages(config.markers as usize * size_of::<Marker>())),
    ];
    let there = areas.into_iter().filter(|(_, bytes)| *bytes > 0);
    let written = there
        .flat_map(|(offset, bytes)| (0..info.cpus).map(move |cpu| (offset(cpu), bytes)))
        .map(|(offset, bytes)| map(offset, bytes, false))
        .collect::<std::io::Result<Vec<_>>>()?;
    let quanta_bytes = whole_pages(config.quanta as usize * size_of::<Quantum>());
    Ok(Mapped {
        quanta: (0..info.cpus)
            .map(|cpu| map(quanta_offset(cpu), quanta_bytes, false))
            .collect::<std::io::Result<_>>()?,
        written,
        control: map(CONTROL_OFFSET, control_bytes(info.cpus), true)?,
        status: map(STATUS_OFFSET, status_bytes(info.cpus), false)?,
    })
}

/// Gives back every quantum, marker and stack, and every segment but the newest.
fn give_back(mapped: &Mapped, cpus: usize) {
    for cpu in 0..cpus {
        let produced = |field| {
            mapped.status.read((size_of::<StatusHead>() + cpu * size_of::<CpuStatus>() + field) / WORD_BYTES)
        };
        let consume = |field, value| {
            mapped.control.write((cpu * size_of::<CpuControl>() + field) / WORD_BYTES, value);
        };
        consume(offset_of!(CpuControl, quanta_consumed), produced(offset_of!(CpuStatus, quanta_produced)));
        consume(offset_of!(CpuControl, markers_consumed), produced(offset_of!(CpuStatus, markers_produced)));
        consume(offset_of!(CpuControl, stack_consumed), produced(offset_of!(CpuStatus, stack_produced)));
        let begun = produced(offset_of!(CpuStatus, segments_begun));
        consume(offset_of!(CpuControl, segments_consumed), begun.saturating_sub(1));
    }
}

/// A word that is a kernel address, if there is one.
fn kernel_word(mapping: &Mapping) -> Option<u64> {
    kernel_words(mapping).next().map(|(_, word)| word)
}

/// The same of quanta, in whose lists of events and counters places that serve none look like the beginning of an address.
fn kernel_word_of_quanta(mapping: &Mapping) -> Option<u64> {
    let is_list = |number: usize, word: u64| {
        LISTS.iter().any(|&(place, end)| number % QUANTUM_WORDS == place && lists(word, end))
    };
    kernel_words(mapping).find(|&(number, word)| !is_list(number, word)).map(|(_, word)| word)
}

/// Words that are kernel addresses, with their numbers.
fn kernel_words(mapping: &Mapping) -> impl Iterator<Item = (usize, u64)> {
    let kernel = 0xffff_8000_0000_0000..0xffff_ffff_ffff_f000_u64;
    let words = (0..mapping.words()).map(|number| (number, mapping.read(number)));
    words.filter(move |(_, word)| kernel.contains(word))
}

const QUANTUM_WORDS: usize = size_of::<Quantum>() / WORD_BYTES;
/// Which of its words [`Quantum::counter_event`] and [`Quantum::sampler_counter`] are, and what their numbers are below: an event's, and that
/// of a bit of IA32_PEBS_ENABLE.
const LISTS: [(usize, usize); 2] = [
    (offset_of!(Quantum, counter_event) / WORD_BYTES, EVENTS_MAX),
    (offset_of!(Quantum, sampler_counter) / WORD_BYTES, u64::BITS as usize),
];
const _: () = assert!(
    SAMPLING_COUNTERS_MAX == WORD_BYTES
        && offset_of!(Quantum, counter_event) % WORD_BYTES == 0
        && offset_of!(Quantum, sampler_counter) % WORD_BYTES == 0
);

/// Whether each of its bytes is a number below `end`, or says that there is none.
fn lists(word: u64, end: usize) -> bool {
    word.to_le_bytes().into_iter().all(|number| number == NO_EVENT || usize::from(number) < end)
}
