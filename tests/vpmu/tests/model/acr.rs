//! Auto counter reload (Intel Architecture Instruction Set Extensions Programming Reference).

use crate::machine::*;
use proptest::prelude::*;
use vpmu::pmu::msr;
use vpmu::profile::{
    ARROW_LAKE_H, AutoCounterReload, CLEARWATER_FOREST, Extended, LUNAR_LAKE, METEOR_LAKE, Microarchitecture,
    OffcoreResponse, PANTHER_LAKE, Perfmon, PerfmonExtension, PmuKind,
};
use vpmu::{Basic, GeneralProtection, MicroEvents, Options, Pmu, Privilege, Profile, Retired};

const INSTRUCTIONS: u64 = 0x00C0;
const CYCLES: u64 = 0x003C;
const LOADS: u64 = 0x81D0;
const RELOAD: u64 = 0xFFFF_FFFF;

/// The registers of a counter; fixed-function counters begin at 32.
fn register(first: u32, counter: u32) -> u32 {
    let fixed = msr::IA32_PMC_FX0_CTR - msr::IA32_PMC_GP0_CTR;
    first + 4 * (counter % 32) + if counter < 32 { 0 } else { fixed }
}

/// The reload value 0 − `period` for CFG_C.
fn minus(period: u64) -> u64 {
    period.wrapping_neg() & RELOAD
}

impl Machine {
    /// `counter` counts `select` with this period, and is reloaded by `causes`.
    fn reloaded(&mut self, counter: u32, select: u64, period: u64, causes: u64) {
        self.wr(register(msr::IA32_PMC_GP0_CFG_A, counter), select | USR | EN);
        self.wr(register(msr::IA32_PMC_GP0_CTR, counter), RANGE - period);
        self.wr(register(msr::IA32_PMC_GP0_CFG_B, counter), causes);
        self.wr(register(msr::IA32_PMC_GP0_CFG_C, counter), minus(period));
    }

    fn status(&mut self) -> u64 {
        self.rd(msr::IA32_PERF_GLOBAL_STATUS)
    }
}

/// Its counters show each overflow, also those that reload themselves.
fn darkmont() -> Machine {
    Machine::of(&CLEARWATER_FOREST, Options { acr_hides_overflow: false, ..Options::default() })
}

/// Clearwater Forest, if all its counters could be reloaded and reload.
fn every_counter() -> &'static Profile {
    let (part, pmu) = (&CLEARWATER_FOREST, perfmon(&CLEARWATER_FOREST));
    let reload = AutoCounterReload { general: 0xFF, fixed: 0x77, general_causes: 0xFF, fixed_causes: 0x77 };
    let extension = pmu.extended.perfmon_extension.expect("version 6");
    let extension = PerfmonExtension { reload: Some(reload), ..extension };
    let pmu = Box::leak(Box::new(Perfmon {
        offcore: OffcoreResponse { ..pmu.offcore },
        extended: Extended { perfmon_extension: Some(extension), ..pmu.extended },
        ..*pmu
    }));
    let microarchitecture = Microarchitecture { ..part.microarchitecture };
    Box::leak(Box::new(Profile { pmu: PmuKind::Perfmon(pmu), microarchitecture, ..*part }))
}

/// CFG_B takes the counters that can cause a reload, and CFG_C RELOAD, beside what PEBS has there. What cannot be reloaded has no
/// CFG_B, and CFG_C only for PEBS. The registers are there by leaf 23H, also in version 5.
#[test]
fn registers_exist_for_what_can_be_reloaded() {
    let cores = [
        (&CLEARWATER_FOREST, 0x2_0000_00FC_u64, true),
        (PANTHER_LAKE.of_cpu(0, 2), 0, true),
        (PANTHER_LAKE.of_cpu(1, 2), 0x2_0000_00FC, true),
        (LUNAR_LAKE.of_cpu(0, 2), 0, false),
        (LUNAR_LAKE.of_cpu(1, 2), 0x2_0000_00FC, false),
        (ARROW_LAKE_H.of_cpu(0, 3), 0, false),
        (ARROW_LAKE_H.of_cpu(1, 3), 0x2_0000_00FC, false),
        (ARROW_LAKE_H.of_cpu(2, 3), 0, false),
        (METEOR_LAKE.of_cpu(1, 2), 0, false),
        (every_counter(), 0x77_0000_00FF, true),
    ];
    for (core, mask, architectural_pebs) in cores {
        let mut pmu = Pmu::new(core, Options::default());
        let facts = perfmon(core);
        let fixed = (32..32 + u32::from(facts.fixed_counters))
            .filter(|n| facts.extended.absent_fixed >> (n - 32) & 1 == 0);
        for counter in (0..facts.general_counters.into()).chain(fixed) {
            let (b, c) =
                (register(msr::IA32_PMC_GP0_CFG_B, counter), register(msr::IA32_PMC_GP0_CFG_C, counter));
            let reloadable = mask >> counter & 1 == 1;
            for bit in 0..64 {
                let accepted = reloadable && mask >> bit & 1 == 1;
                assert_eq!(
                    pmu.wrmsr(b, 1 << bit).is_ok(),
                    accepted,
                    "{} CFG_B {counter} bit {bit}",
                    core.name
                );
            }
            let held = if reloadable { Ok(1 << (63 - mask.leading_zeros())) } else { Err(GeneralProtection) };
            assert_eq!(pmu.rdmsr(b), held, "{} CFG_B {counter}", core.name);
            let there = reloadable || architectural_pebs;
            assert_eq!(pmu.wrmsr(c, RELOAD).is_ok(), there, "{} CFG_C {counter}", core.name);
            if !architectural_pebs {
                assert!(pmu.wrmsr(c, 1 << 32).is_err() && pmu.wrmsr(c, 1 << 63).is_err(), "RELOAD only");
            }
        }
    }
}

/// In every window of 1000 instructions the loads are counted anew.
#[test]
fn a_window_begins_anew() {
    let mut machine = darkmont();
    machine.reloaded(2, INSTRUCTIONS, 1000, 1 << 2);
    machine.reloaded(3, LOADS, 300, 1 << 2);
    for loads in [299, 200, 299, 0, 299] {
        machine.steps(load(0x40), loads);
        machine.steps(nop(), 1000 - loads);
        assert_eq!([machine.pmc(2), machine.pmc(3)], [RANGE - 1000, RANGE - 300]);
    }
    assert_eq!(machine.status(), 1 << 2, "never 300 in one window");
    machine.steps(load(0x40), 300);
    assert_eq!((machine.pmc(3), machine.status()), (0, 0b1100), "nothing reloads itself unless told to");
    machine.steps(nop(), 700);
    assert_eq!(machine.pmc(3), RANGE - 300);
}

/// Linux's example: an interrupt only where more than one in five instructions loads. The window has no INT; the loads' overflow
/// ends it.
#[test]
fn an_interrupt_only_above_the_rate() {
    for (loads_in_six, interrupts) in [(1, false), (2, true)] {
        let mut machine = darkmont();
        machine.reloaded(4, LOADS | INT, 20, 1 << 5);
        machine.reloaded(5, INSTRUCTIONS, 100, 1 << 4 | 1 << 5);
        for n in 0..1000 {
            machine.step(if n % 6 < loads_in_six { load(0x40) } else { nop() });
            if machine.status() & 1 << 4 != 0 {
                assert_eq!((machine.pmc(4), machine.pmc(5)), (0, RANGE - 100));
                break;
            }
        }
        assert_eq!((machine.bus.pmis > 0, machine.status() >> 4 & 1 == 1), (interrupts, interrupts));
    }
}

/// Both overflow with one instruction: both bits and both interrupts' request, then the reload.
#[test]
fn an_overflow_together_with_its_reload_is_one() {
    let mut machine = darkmont();
    machine.reloaded(6, INSTRUCTIONS, 10, 1 << 6);
    machine.reloaded(7, LOADS | INT, 10, 1 << 6);
    machine.steps(load(0x40), 10);
    assert_eq!((machine.status(), machine.bus.pmis), (0b1100_0000, 1));
    assert_eq!([machine.pmc(6), machine.pmc(7)], [RANGE - 10; 2]);
}

/// One instruction can count several periods of cycles; what is over belongs to the counter's own next period, however many have
/// passed. A counter that is off is reloaded, too.
#[test]
fn what_one_instruction_counts_beyond_is_kept() {
    let mut machine = darkmont();
    machine.reloaded(2, CYCLES, 10, 1 << 2);
    machine.reloaded(3, CYCLES, 10, 1 << 2);
    machine.reloaded(4, 0, 50, 1 << 2);
    machine.wr(msr::IA32_PMC_GP0_CTR + 16, 7);
    machine.reloaded(5, CYCLES, 10, 0);
    machine.step(Instruction { micro: MicroEvents { cycles: 34, ..MicroEvents::default() }, ..nop() });
    assert_eq!([2, 3, 4, 5].map(|n| machine.pmc(n)), [RANGE - 6, RANGE - 10, RANGE - 50, 24]);
}

/// Unless [`Options::acr_hides_overflow`] is off the interrupt comes, and no bit says from where, as Linux saw; only of a counter that reloads
/// itself.
#[test]
fn an_overflow_can_stay_out_of_the_status() {
    for (hides, status) in [(false, 0b1100), (true, 0b1000)] {
        let mut machine =
            Machine::of(&CLEARWATER_FOREST, Options { acr_hides_overflow: hides, ..Options::default() });
        machine.reloaded(2, INSTRUCTIONS | INT, 4, 1 << 2);
        machine.reloaded(3, INSTRUCTIONS, 3, 1 << 2);
        machine.steps(nop(), 4);
        assert_eq!((machine.status(), machine.bus.pmis), (status, 1));
    }
}

/// A snapshot has what reloads what; a reset takes it away.
#[test]
fn a_snapshot_has_the_causes() {
    let mut machine = darkmont();
    machine.reloaded(2, INSTRUCTIONS, 5, 1 << 2);
    machine.reloaded(3, LOADS, 100, 1 << 2);
    machine.steps(load(0x40), 4);
    let text = serde_json::to_string(&machine.pmu.snapshot()).expect("a snapshot");
    machine.pmu = Pmu::restore(serde_json::from_str(&text).expect("the same")).expect("the same profile");
    machine.step(load(0x40));
    assert_eq!([machine.pmc(2), machine.pmc(3)], [RANGE - 5, RANGE - 100]);
    assert_eq!(darkmont().rd(register(msr::IA32_PMC_GP0_CFG_B, 2)), 0);
}

const BASE: u64 = 0x4_0000;
const PEBS_EN: u64 = 1 << 63;

/// Lets `counter`, of period `period`, write records.
fn sample(machine: &mut Machine, counter: u32, period: u64) {
    machine.wr(msr::IA32_PEBS_BASE, BASE | 3);
    machine.wr(msr::IA32_PEBS_INDEX, 1 << 32 | 0x7F_FFFF << 36);
    machine.wr(register(msr::IA32_PMC_GP0_CFG_C, counter), PEBS_EN | minus(period));
}

/// The instructions that records show.
fn sampled(machine: &mut Machine) -> Vec<u64> {
    let end = machine.rd(msr::IA32_PEBS_INDEX) & 0x7F_FFFF << 4;
    let byte = |at| u64::from(machine.bus.physical[&at]);
    let word = |at: u64| (0..8).rev().fold(0, |value, n| value << 8 | byte(at + n));
    (0..end).step_by(64).map(|offset| word(BASE + offset + 16)).collect()
}

/// A counter that is armed stays so when another reloads it: its next event writes the record and is the first of the period that
/// the reload has begun. Of a period that is cut short there is none.
#[test]
fn an_armed_counter_stays_armed() {
    let mut machine = darkmont();
    machine.reloaded(2, INSTRUCTIONS, 10, 1 << 2);
    machine.reloaded(3, LOADS, 5, 1 << 2);
    sample(&mut machine, 3, 5);
    machine.steps(load(0x40), 5);
    machine.steps(nop(), 5);
    assert_eq!((machine.pmc(3), sampled(&mut machine).len()), (RANGE - 5, 0));
    let pc = machine.pc;
    machine.step(load(0x40));
    assert_eq!((machine.pmc(3), sampled(&mut machine)), (RANGE - 4, vec![pc]));
    for _ in 0..3 {
        machine.steps(load(0x40), 3);
        machine.steps(nop(), 7);
    }
    assert_eq!(sampled(&mut machine), [pc]);
}

/// What the record's own reload carries over starts at the other counter's: a record that comes late, or with the instruction that
/// reloads, brings nothing back.
#[test]
fn a_record_does_not_undo_the_reload() {
    for (skid, loads, value) in [(0, 10, RANGE - 5), (3, 9, RANGE - 3)] {
        let mut machine = Machine::of(&CLEARWATER_FOREST, Options { pebs_skid: skid, ..Options::default() });
        machine.reloaded(2, INSTRUCTIONS, 10, 1 << 2);
        machine.reloaded(3, LOADS, 9, 1 << 2);
        sample(&mut machine, 3, 5);
        // Armed by the ninth load, triggered by the tenth, with which the window ends; with a skid two more come before the record.
        machine.steps(load(0x40), loads);
        machine.steps(load(0x40), skid);
        assert_eq!(
            (machine.pmc(3), sampled(&mut machine).len()),
            (value, usize::from(skid == 0)),
            "skid {skid}"
        );
        machine.steps(nop(), 1);
        assert_eq!((machine.pmc(3), sampled(&mut machine).len()), (value, 1), "skid {skid}");
    }
}

/// One counter of the reference, which looks at each event and knows nothing of batches.
#[derive(Debug, Clone, Copy)]
struct Reference {
    number: u32,
    basic: Basic,
    period: u64,
    causes: u64,
    interrupts: bool,
    value: u64,
    overflows: u64,
}

/// Of one instruction: the events, the overflows, then the reloads. Whether there is an interrupt.
fn retire(references: &mut [Reference], happened: &[Basic]) -> bool {
    let (mut overflowed, mut interrupt) = (0, false);
    for reference in references.iter_mut().filter(|reference| happened.contains(&reference.basic)) {
        reference.value = (reference.value + 1) % RANGE;
        if reference.value == 0 {
            overflowed |= 1u64 << reference.number;
            interrupt |= reference.interrupts;
            reference.overflows += 1;
        }
    }
    for reference in references.iter_mut().filter(|reference| reference.causes & overflowed != 0) {
        reference.value = RANGE - reference.period;
    }
    interrupt
}

fn encoding(basic: Basic) -> u64 {
    match basic {
        Basic::Instruction => INSTRUCTIONS,
        Basic::Load => LOADS,
        Basic::Store => 0x82D0,
        Basic::Branch => 0x00C4,
    }
}

/// Programs general-purpose counters, and fixed-function counter 0 with the first one's period and causes.
fn program(machine: &mut Machine, counters: &[(Basic, u64, u64, bool)]) -> Vec<Reference> {
    let mut references = Vec::new();
    for (number, &(basic, period, causes, interrupts)) in (0..).zip(counters) {
        machine.reloaded(number, encoding(basic) | if interrupts { INT } else { 0 }, period, causes);
        references.push(Reference {
            number,
            basic,
            period,
            causes,
            interrupts,
            value: RANGE - period,
            overflows: 0,
        });
    }
    let fixed = Reference { number: 32, basic: Basic::Instruction, interrupts: false, ..references[0] };
    machine.wr(register(msr::IA32_PMC_GP0_CTR, 32), fixed.value);
    machine.wr(register(msr::IA32_PMC_GP0_CFG_B, 32), fixed.causes);
    machine.wr(register(msr::IA32_PMC_GP0_CFG_C, 32), minus(fixed.period));
    machine.wr(msr::IA32_FIXED_CTR_CTRL, 0b10);
    machine.wr(msr::IA32_PERF_GLOBAL_CTRL, 1 << 32 | 0xFF);
    references.push(fixed);
    references
}

proptest! {
    /// Counted in batches up to the headroom, all counters have the values, overflows and interrupts of the reference, whatever
    /// reloads what.
    #[test]
    fn batches_equal_single_events(
        counters in prop::collection::vec(
            (prop::sample::select(Basic::ALL.to_vec()), 1..40u64, prop::bits::u64::masked(1 << 32 | 0b1_1111), any::<bool>()),
            1..=5,
        ),
        // Per run: instructions, and which of them load, store, branch (as a repeating pattern).
        runs in prop::collection::vec((1..60u32, 0..64u64), 1..20),
    ) {
        let mut machine = Machine::of(every_counter(), Options::default());
        let mut references = program(&mut machine, &counters);
        let (mut interrupts, privilege) = (0, Privilege::User);
        for (instructions, pattern) in runs {
            let mut left = machine.pmu.headroom(privilege);
            let mut batch = [[0; 2]; 4];
            for n in 0..instructions {
                let happens = |basic: &Basic| *basic == Basic::Instruction || pattern >> ((n + *basic as u32) % 6) & 1 == 1;
                let happened: Vec<_> = Basic::ALL.into_iter().filter(happens).collect();
                for &basic in &happened {
                    batch[basic as usize][privilege as usize] += 1;
                    left[basic as usize] -= 1;
                }
                interrupts += u32::from(retire(&mut references, &happened));
                if left.contains(&0) {
                    machine.pmu.count_basic(&std::mem::take(&mut batch));
                    let retired = Retired { pc: 0, next_pc: 4, privilege, load: None, store: None, locked: false };
                    let _ = machine.pmu.settle(&retired, &mut machine.bus);
                    left = machine.pmu.headroom(privilege);
                }
            }
            machine.pmu.count_basic(&batch);
            prop_assert!(!machine.pmu.needs_settle(), "the headroom was not used up");
            let status = machine.status();
            for reference in &mut references {
                let value = machine.rd(register(msr::IA32_PMC_GP0_CTR, reference.number));
                prop_assert_eq!(value, reference.value, "counter {}", reference.number);
                let overflowed = std::mem::take(&mut reference.overflows) > 0;
                let shown = reference.causes >> reference.number & 1 == 0;
                prop_assert_eq!(status >> reference.number & 1 == 1, overflowed && shown);
            }
            machine.wr(msr::IA32_PERF_GLOBAL_STATUS_RESET, status);
            prop_assert_eq!(machine.bus.pmis, interrupts);
        }
    }

    /// A counter that samples and reloads itself writes the same records as one that only samples, and its period is exact also
    /// when they come late.
    #[test]
    fn a_sampling_counter_can_reload_itself(
        period in 1..12u64,
        skid in 0..15u64,
        loads in prop::collection::vec(any::<bool>(), 0..150),
    ) {
        let run = |skid: u64, causes: u64| {
            let mut machine =
                Machine::of(&CLEARWATER_FOREST, Options { pebs_skid: skid, ..Options::default() });
            machine.reloaded(2, LOADS, period, causes);
            machine.reloaded(3, INSTRUCTIONS, 1000, 1 << 2);
            sample(&mut machine, 2, period);
            for &loads in &loads {
                machine.step(if loads { load(0x40) } else { nop() });
            }
            (sampled(&mut machine), machine.pmc(2), machine.pmc(3))
        };
        prop_assert_eq!(run(0, 1 << 2).0, run(0, 0).0);
        let (mut counted, mut instructions) = (0, 0);
        for &loads in &loads {
            counted += u64::from(loads);
            instructions = if loads && counted % period == 0 { 0 } else { instructions + 1 };
        }
        let (_, value, window) = run(skid, 1 << 2);
        prop_assert_eq!(value, RANGE - period + counted % period);
        prop_assert_eq!(window, RANGE - 1000 + instructions);
    }
}
