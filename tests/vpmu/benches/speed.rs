//! How fast the model is: the adapter calls it for every access when a microarchitectural event is counted.
//!
//! `cargo bench -p vpmu` prints millions of calls per second of processor time. Traces are fixed, so that
//! runs can be compared.

use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;
use vpmu::pmu::msr;
use vpmu::profile::SKYLAKE;
use vpmu::truth::{CpuTruth, Truth, TruthOptions};
use vpmu::{BranchKind, Core, Options, Pmu, Privilege, SharedCache};

const CALLS: u64 = 20_000_000;

/// Addresses of a program that mostly walks 16 KiB and now and then goes anywhere in 4 MiB.
fn addresses() -> Vec<u64> {
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    (0..1 << 16).map(|n| if n % 16 == 0 { next() & 0x3F_FFF8 } else { (n * 8) & 0x3FFF }).collect()
}

struct Cpu {
    core: Core,
    pmu: Pmu,
    truth: CpuTruth,
}

impl Cpu {
    /// A core with two counters counting: MEM_LOAD_RETIRED.L1_MISS and CPU_CLK_UNHALTED.THREAD_P.
    fn new() -> Self {
        let llc = SharedCache::new(&SKYLAKE.geometry.llc).expect("the profile's cache");
        let core = Core::new(&SKYLAKE, &SKYLAKE.geometry, llc).expect("the profile's caches");
        let mut pmu = Pmu::new(&SKYLAKE, Options::default());
        for (index, event) in [(0, 0x08D1), (1, 0x003C)] {
            pmu.wrmsr(msr::IA32_PERFEVTSEL0 + index, event | 0x43_0000).expect("a valid event");
        }
        Self { core, pmu, truth: Truth::new(TruthOptions::default()).cpu(0) }
    }
}

/// Processor time of this thread, so that other work on the machine does not count.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock").into()
}

fn measure(name: &str, mut call: impl FnMut(&mut Cpu, u64)) {
    let (mut cpu, addresses) = (Cpu::new(), addresses());
    let start = cpu_time();
    for n in 0..CALLS {
        call(&mut cpu, addresses[n as usize % addresses.len()]);
    }
    let rate = CALLS as f64 / (cpu_time() - start).as_secs_f64() / 1e6;
    println!("{name:<44} {rate:8.1} M/s");
}

fn main() {
    measure("data accesses, caches and TLBs alone", |cpu, address| {
        black_box(cpu.core.data(address, address, 8, false));
    });
    measure("instruction fetches, alone", |cpu, address| {
        black_box(cpu.core.fetch(address, address, 4));
    });
    measure("conditional branches, alone", |cpu, address| {
        let next = address + if address & 64 == 0 { 2 } else { 40 };
        black_box(cpu.core.branch(address, address + 2, next, BranchKind::Conditional));
    });
    measure("data accesses, counted and in the truth", |cpu, address| {
        let (events, outcome) = cpu.core.data(address, address, 8, false);
        cpu.pmu.count(&events, Privilege::User);
        cpu.truth.count(&events, Privilege::User);
        black_box(outcome);
    });
}
