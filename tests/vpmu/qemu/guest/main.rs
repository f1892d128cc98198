//! A guest without an operating system that tests what the plugin does between the PMU model and the processor: faults, exact
//! counts, interrupts without skid, PEBS records. Prints one line per check to QEMU's debug console and ends QEMU.
//!
//! Built by `tests/guest.rs` with rustc alone; the check of each line is here, where its expectation is.

#![no_std]
#![no_main]

mod cpu;

use core::arch::global_asm;
use core::fmt::Write;
use cpu::*;

global_asm!(include_str!("boot.s"), options(att_syntax));
global_asm!(include_str!("programs.s"), options(att_syntax));

unsafe extern "C" {
    fn user_loop();
    fn user_loop_body();
    fn user_repeat();
    fn user_repeat_fault();
    fn user_stack();
    fn user_fault();
    fn user_system_calls();
    fn user_traps();
    fn user_rdpmc();
    fn user_speed();
    static mut scratch: [u64; 32768];
}

/// Events of a Skylake (SDM Vol. 3B 19.2): select, umask.
const INST_RETIRED_PREC_DIST: u64 = 0x01c0;
const MEM_INST_RETIRED_ALL_LOADS: u64 = 0x81d0;
const MEM_INST_RETIRED_ALL_STORES: u64 = 0x82d0;
const BR_INST_RETIRED_ALL_BRANCHES: u64 = 0x00c4;
const BR_INST_RETIRED_CONDITIONAL: u64 = 0x01c4;
/// IA32_PERFEVTSELx: EN, USR.
const ENABLE: u64 = 1 << 22;
const USER: u64 = 1 << 16;

type Program = unsafe extern "C" fn();

struct Checks {
    failed: u32,
    level: &'static str,
}

impl Checks {
    fn equal<T: PartialEq + core::fmt::Debug>(&mut self, name: &str, got: T, expected: T) {
        if got == expected {
            let _ = writeln!(Console, "ok {}: {name}", self.level);
        } else {
            self.failed += 1;
            let _ = writeln!(Console, "FAIL {}: {name}: got {got:x?}, expected {expected:x?}", self.level);
        }
    }
}

/// Instructions, loads, stores and branches that `program` retires in ring 3.
fn count(program: Program, argument: u64) -> [u64; 4] {
    let events = [MEM_INST_RETIRED_ALL_LOADS, MEM_INST_RETIRED_ALL_STORES, BR_INST_RETIRED_ALL_BRANCHES];
    wrmsr(IA32_FIXED_CTR_CTRL, fixed_control());
    wrmsr(IA32_FIXED_CTR0, 0);
    for (i, event) in (0..).zip(events) {
        wrmsr(IA32_PERFEVTSEL0 + i, event | USER | ENABLE);
        wrmsr(IA32_PMC0 + i, 0);
    }
    wrmsr(IA32_PERF_GLOBAL_CTRL, 7 << 32 | 0b111);
    run_user(program, argument);
    wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
    [IA32_FIXED_CTR0, IA32_PMC0, IA32_PMC0 + 1, IA32_PMC0 + 2].map(rdmsr)
}

/// Fixed counter 0 (instructions) in user mode; counter 1 (cycles) too if everything is to be observed.
fn fixed_control() -> u64 {
    if everything() { 0b10_0010 } else { 0b0010 }
}

fn exact_counts(checks: &mut Checks) {
    // The `int` that ends a program is one instruction.
    checks.equal("a loop", count(user_loop, 1000), [5003, 1000, 1000, 1000]);
    checks.equal("rep movsb, longer than a batch", count(user_repeat, 200_000), [6, 200_000, 200_000, 0]);
    checks.equal("rep movsb of nothing", count(user_repeat, 0), [6, 0, 0, 0]);
    checks.equal("two accesses, one instruction", count(user_stack, 0), [8, 5, 5, 2]);
    unmap_fault_pages();
    checks.equal("a page fault every four instructions", count(user_fault, 300), [1203, 300, 0, 300]);
    unmap_fault_pages();
    checks.equal("rep stosb over unmapped pages", count(user_repeat_fault, 10 * 4096), [6, 0, 40960, 0]);
    checks.equal("system calls", count(user_system_calls, 500), [1502, 0, 0, 1000]);
    checks.equal("int3 and ud2", count(user_traps, 0), [5, 0, 0, 0]);
}

/// A counter that is about to overflow makes the plugin look at one boundary after the other; what the instructions
/// in between do must still be reported, and once.
fn every_branch_near_an_overflow(checks: &mut Checks) {
    wrmsr(IA32_PERFEVTSEL0, BR_INST_RETIRED_CONDITIONAL | USER | ENABLE);
    wrmsr(IA32_PMC0, 0);
    wrmsr(IA32_PERFEVTSEL0 + 1, MEM_INST_RETIRED_ALL_STORES | USER | ENABLE);
    wrmsr(IA32_PMC0 + 1, LOOPS.wrapping_neg() & 0xffff_ffff);
    wrmsr(IA32_PERF_GLOBAL_CTRL, 0b11);
    run_user(user_loop, LOOPS);
    wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
    checks.equal("conditional branches near an overflow", rdmsr(IA32_PMC0), LOOPS);
    checks.equal("the overflow", rdmsr(IA32_PERF_GLOBAL_STATUS), 0b10);
    wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, 0b10);
}

fn illegal_accesses(checks: &mut Checks) {
    for (name, msr, value) in [
        ("GLOBAL_CTRL bit 20", IA32_PERF_GLOBAL_CTRL, 1 << 20),
        ("GLOBAL_STATUS is read-only", IA32_PERF_GLOBAL_STATUS, 0),
        ("PERFEVTSEL0 bit 40", IA32_PERFEVTSEL0, 1 << 40),
        ("FIXED_CTR_CTRL bit 12", IA32_FIXED_CTR_CTRL, 1 << 12),
        ("PERF_CAPABILITIES is read-only", IA32_PERF_CAPABILITIES, 1),
        ("DS_AREA not canonical", IA32_DS_AREA, 1 << 55),
    ] {
        checks.equal(name, try_wrmsr(msr, value), false);
    }
    checks.equal("RDMSR of a counter that is not there", try_rdmsr(IA32_PMC0 + 4), None);
    checks.equal("RDPMC of a counter that is not there", try_rdpmc(9), None);
    checks.equal("RDPMC in ring 0", try_rdpmc(0).is_some(), true);
}

fn rdpmc_in_ring_3(checks: &mut Checks) {
    wrmsr(IA32_FIXED_CTR_CTRL, 0b0010);
    wrmsr(IA32_PERF_GLOBAL_CTRL, 1 << 32);
    allow_user_rdpmc(false);
    checks.equal("RDPMC in ring 3 without CR4.PCE", (run_user(user_rdpmc, 0), take_faults()), (GP_IN_USER, 1));
    allow_user_rdpmc(true);
    // rdpmc, mov, nop, nop.
    checks.equal("RDPMC in ring 3", run_user(user_rdpmc, 0), 4);
    allow_user_rdpmc(false);
    wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
}

/// Where the program must be after `n` of its instructions have retired.
fn loop_position(n: u64) -> (u64, u64) {
    // Lengths of the loop's instructions: mov 4, add 4, mov 7, dec 3, jnz 2.
    const OFFSETS: [u64; 5] = [0, 4, 8, 15, 18];
    let in_loop = n - 2;
    let left = LOOPS - in_loop / 5 - u64::from(in_loop % 5 == 4);
    (user_loop_body as *const () as u64 + OFFSETS[(in_loop % 5) as usize], left)
}

const LOOPS: u64 = 5000;

/// A PMI after exactly `n` instructions: where it interrupted, and RCX there.
fn interrupted_after(n: u64) -> (u64, u64) {
    wrmsr(IA32_FIXED_CTR_CTRL, fixed_control() | 0b1000);
    wrmsr(IA32_FIXED_CTR0, n.wrapping_neg() & ((1 << 48) - 1));
    unmask_pmi();
    wrmsr(IA32_PERF_GLOBAL_CTRL, 3 << 32);
    run_user(user_loop, LOOPS);
    wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
    let status = rdmsr(IA32_PERF_GLOBAL_STATUS);
    wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, status);
    take_interrupt()
}

fn exact_interrupts(checks: &mut Checks, skid: u64) {
    for n in [2, 3, 4, 5, 6, 7, 8, 1234, 20_000] {
        let expected = loop_position(n + skid);
        checks.equal("PMI exactly behind the instruction, or its skid", interrupted_after(n), expected);
    }
    checks.equal("the PMI masks LVTPC", pmi_is_masked(), true);
}

/// A PEBS record of format 3 (SDM Vol. 3B, table 18-57), as words.
type Record = [u64; 25];
const RCX: usize = 4;
const RIP: usize = 1;
const DATA_ADDRESS: usize = 19;
const EVENTING_IP: usize = 22;

static mut RECORDS: [Record; 4] = [[0; 25]; 4];
/// The DS management area: BTS words, then PEBS base, index, maximum, threshold, reset values.
static mut DS: [u64; 16] = [0; 16];

/// Samples `event` once, after `period` occurrences.
fn sample(event: u64, period: u64, buffer: u64) -> (Record, u64) {
    let size = size_of::<Record>() as u64;
    let mut ds = [0; 16];
    ds[4..9].copy_from_slice(&[buffer, buffer, buffer + 4 * size, buffer + 5 * size, 0]);
    // SAFETY: only this processor and, through DS_AREA, its PMU use it.
    unsafe { (&raw mut DS).write_volatile(ds) };
    wrmsr(IA32_DS_AREA, &raw const DS as u64);
    wrmsr(IA32_FIXED_CTR_CTRL, fixed_control());
    // INST_RETIRED.PREC_DIST counts in counter 1 only.
    wrmsr(IA32_PERFEVTSEL0 + 1, event | USER | ENABLE);
    wrmsr(IA32_PMC0 + 1, period.wrapping_neg() & 0xffff_ffff);
    wrmsr(IA32_PEBS_ENABLE, 0b10);
    wrmsr(IA32_PERF_GLOBAL_CTRL, 3 << 32 | 0b10);
    run_user(user_loop, LOOPS);
    wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
    wrmsr(IA32_PEBS_ENABLE, 0);
    // SAFETY: as above; the PMU is off.
    let (ds, records) = unsafe { ((&raw const DS).read_volatile(), (&raw const RECORDS).read_volatile()) };
    (records[0], (ds[5] - buffer) / size)
}

fn precise_records(checks: &mut Checks) {
    let buffer = &raw const RECORDS as u64;
    for period in [4, 5, 6, 7, 8, 1003] {
        // The counter overflows after `period` instructions; the next one is recorded.
        let (record, written) = sample(INST_RETIRED_PREC_DIST, period, buffer);
        let (at, _) = loop_position(period);
        let (next, left) = loop_position(period + 1);
        checks.equal("one record", written, 1);
        let facts = [record[EVENTING_IP], record[RIP], record[RCX]];
        checks.equal("instruction, next instruction, RCX", facts, [at, next, left]);
    }
    let (record, _) = sample(MEM_INST_RETIRED_ALL_LOADS, 10, buffer);
    // The 11th load is made with RCX = LOOPS - 10.
    let address = &raw const scratch as u64 + (LOOPS - 10) * 8;
    checks.equal("address of a load", record[DATA_ADDRESS], address);
    checks.equal("the load", record[EVENTING_IP], user_loop_body as *const () as u64);
    let (record, _) = sample(MEM_INST_RETIRED_ALL_STORES, 10, buffer);
    checks.equal("address of a store", record[DATA_ADDRESS], &raw const scratch as u64 + 8192);
    unmap_fault_pages();
    let (_, written) = sample(INST_RETIRED_PREC_DIST, 100, FAULT_PAGES);
    checks.equal("no record to a page that is not mapped", written, 0);
}

/// From this number on, the argument is a level (1 to 4) and a number of turns: see `benches/speed.rs`.
const SPEED: u64 = 1_000_000_000;

/// Runs the loop with counters that need the level.
fn speed(level: u64, turns: u64) {
    match level {
        2 => wrmsr(IA32_FIXED_CTR_CTRL, 0b0010),
        3 => {
            // PEBS of loads with a period that does not end.
            wrmsr(IA32_PERFEVTSEL0 + 1, MEM_INST_RETIRED_ALL_LOADS | USER | ENABLE);
            wrmsr(IA32_PEBS_ENABLE, 0b10);
        }
        4 => wrmsr(IA32_FIXED_CTR_CTRL, 0b10_0000),
        _ => {}
    }
    wrmsr(IA32_PERF_GLOBAL_CTRL, 3 << 32 | 0b10);
    run_user(user_speed, turns);
}

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    init();
    let mut checks = Checks { failed: 0, level: "" };
    // How many instructions late the plugin was told to raise PMIs.
    let skid = argument();
    if skid >= SPEED {
        speed(skid / SPEED, skid % SPEED);
        exit(0);
    }
    checks.equal("hypercall", hypercall(0), 0x4850_4d21);
    checks.equal("a sum", hypercall(5 | 1 << 8), 0x4850_4d21);
    checks.equal("a sum that there is not", hypercall(5 | 9 << 8), 0);
    for (level, all) in [("basic", false), ("everything", true)] {
        checks.level = level;
        observe_everything(all);
        exact_counts(&mut checks);
        every_branch_near_an_overflow(&mut checks);
        illegal_accesses(&mut checks);
        rdpmc_in_ring_3(&mut checks);
        exact_interrupts(&mut checks, skid);
        precise_records(&mut checks);
    }
    if enable_x2apic() {
        checks.level = "x2APIC";
        exact_interrupts(&mut checks, skid);
    }
    let _ = writeln!(Console, "{} checks failed", checks.failed);
    exit(checks.failed)
}
