//! The truth: what is attributed to which address space, label and window.

use vpmu::truth::{Activity, CpuTruth, PerPrivilege, Report, Truth, TruthOptions};
use vpmu::{
    Basic, BranchKind, DataAccess, Event, EventSet, GeneralProtection, MicroEvents, PebsOutcome, Privilege,
    Retired, Settlement,
};

const OPTIONS: TruthOptions = TruthOptions { page_table_isolation: true, pebs_log: true, branch_log: true };

fn run(cpu: &mut CpuTruth, user: u64, kernel: u64) {
    let mut delta = [[0; 2]; 4];
    delta[Basic::Instruction as usize] = [user, kernel];
    cpu.count_basic(&delta);
}

fn instructions(report: &Report, space: usize) -> (u64, u64) {
    let PerPrivilege { user, kernel } = report.address_spaces[space].counts.of(Event::Instruction);
    (user, kernel)
}

/// With page-table isolation the kernel's and the user's page table of a process are neighbours; without,
/// they are strangers.
#[test]
fn an_isolated_pair_of_page_tables_is_one_address_space() {
    for (page_table_isolation, spaces) in [(true, 1), (false, 2)] {
        let truth = Truth::new(TruthOptions { page_table_isolation, pebs_log: false, branch_log: false });
        let mut cpu = truth.cpu(0);
        // PCIDs and the no-flush bit are no part of the table's address.
        for cr3 in [0x12_4000, 0x12_5000, 0x8000_0000_0012_5801] {
            cpu.address_space(cr3);
            run(&mut cpu, 10, 1);
        }
        let report = truth.report();
        let used = report.address_spaces.iter().filter(|space| space.counts.of(Event::Instruction).user > 0);
        assert_eq!(used.count(), spaces);
        assert_eq!(report.cpus[0].counts.of(Event::Instruction), PerPrivilege { user: 30, kernel: 3 });
    }
}

#[test]
fn micro_events_are_attributed_to_the_running_address_space() {
    let truth = Truth::new(OPTIONS);
    let mut cpu = truth.cpu(3);
    let events = MicroEvents {
        once: EventSet::of(&[Event::LoadL1Miss]),
        cycles: 9,
        crystal_cycles: 1,
        slots: 0,
        stall_cycles: 8,
        stalled: EventSet::of(&[Event::StallTotal]),
        load_latency_cycles: 12,
    };
    cpu.address_space(0x2000);
    cpu.count(&events, Privilege::User);
    cpu.address_space(0x4000);
    cpu.count(&events, Privilege::Kernel);
    cpu.count(&events, Privilege::Kernel);
    let report = truth.report();
    let counts = |space: usize, event| report.address_spaces[space].counts.of(event);
    assert_eq!(counts(1, Event::LoadL1Miss), PerPrivilege { user: 1, kernel: 0 });
    assert_eq!(counts(1, Event::Cycle), PerPrivilege { user: 9, kernel: 0 });
    assert_eq!(counts(1, Event::ReferenceCycle), counts(1, Event::Cycle));
    assert_eq!(counts(2, Event::StallTotal), PerPrivilege { user: 0, kernel: 16 });
    assert_eq!(counts(2, Event::CrystalCycle), PerPrivilege { user: 0, kernel: 2 });
    let spec = vpmu::profile::SKYLAKE.event("MEM_LOAD_RETIRED.L1_MISS").unwrap();
    assert_eq!(report.cpus[0].counts.of_spec(spec), PerPrivilege { user: 1, kernel: 2 });
}

/// A label begins an address space anew, on every CPU at once, even on one that does not reload CR3; so a
/// reused page table does not add up two processes.
#[test]
fn a_label_starts_afresh_everywhere() {
    let truth = Truth::new(OPTIONS);
    let (mut a, mut b) = (truth.cpu(0), truth.cpu(1));
    a.address_space(0x6000);
    b.address_space(0x6000);
    run(&mut a, 1, 0);
    run(&mut b, 2, 0);
    a.label(u64::from_le_bytes(*b"victim\0\0"));
    run(&mut a, 10, 0);
    run(&mut b, 20, 0);
    a.label(0);
    run(&mut a, 100, 0);
    let report = truth.report();
    let labelled: Vec<_> = report.address_spaces.iter().filter(|space| space.label.is_some()).collect();
    assert_eq!(labelled.len(), 1);
    assert_eq!(labelled[0].label.as_deref(), Some("victim"));
    assert_eq!(labelled[0].counts.of(Event::Instruction).user, 30);
    assert_eq!(labelled[0].cpus, [0, 1]);
    assert_eq!(report.cpus[1].counts.of(Event::Instruction).user, 22);
}

/// A window follows its address space to another CPU and leaves other processes out.
#[test]
fn a_window_counts_its_address_space_on_all_cpus() {
    let truth = Truth::new(OPTIONS);
    let (mut a, mut b) = (truth.cpu(0), truth.cpu(1));
    a.address_space(0x8000);
    run(&mut a, 1, 1);
    a.open_window(7);
    run(&mut a, 10, 2);
    a.address_space(0xA000);
    run(&mut a, 500, 500);
    b.address_space(0x8000);
    run(&mut b, 100, 4);
    assert!(!b.close_window(8), "nobody opened it");
    assert!(b.close_window(7));
    run(&mut b, 1000, 0);
    assert!(!b.close_window(7), "it is closed");
    b.open_window(9);
    let report = truth.report();
    let window = &report.windows[0];
    assert_eq!((window.tag.as_str(), window.opened_on, window.closed_on), ("0x7", 0, Some(1)));
    assert_eq!(window.counts.of(Event::Instruction), PerPrivilege { user: 110, kernel: 6 });
    assert_eq!((report.windows[1].closed_on, instructions(&report, 1)), (None, (1111, 7)));
}

/// Processes that use the same tag do not close each other's windows.
#[test]
fn windows_belong_to_their_address_space() {
    let truth = Truth::new(OPTIONS);
    let mut cpu = truth.cpu(0);
    cpu.address_space(0x2000);
    cpu.open_window(1);
    run(&mut cpu, 5, 0);
    cpu.address_space(0x4000);
    assert!(!cpu.close_window(1));
    cpu.open_window(1);
    run(&mut cpu, 70, 0);
    cpu.address_space(0x2000);
    assert!(cpu.close_window(1));
    let windows = truth.report().windows;
    assert_eq!(windows[0].counts.of(Event::Instruction).user, 5);
    assert_eq!(windows[1].closed_on, None);
}

#[test]
fn use_of_the_pmu_is_counted() {
    let truth = Truth::new(OPTIONS);
    let mut cpu = truth.cpu(0);
    cpu.address_space(0xC000);
    cpu.label(u64::from_le_bytes(*b"loop\0\0\0\0"));
    cpu.rdmsr(Ok(1));
    cpu.wrmsr(Ok(()));
    cpu.wrmsr(Err(GeneralProtection));
    cpu.rdpmc(Err(GeneralProtection));
    let load = Some(DataAccess { linear: 0x77, outcome: None });
    let retired = Retired { pc: 1, next_pc: 5, privilege: Privilege::User, load, store: None, locked: false };
    let fault = vpmu::PageFault { linear: 4, write: true };
    let outcomes = [
        PebsOutcome::Written { at: 64, bytes: 200, counters: 2, shown: 2 },
        PebsOutcome::Dropped { counters: 2 },
        PebsOutcome::Faulted { counters: 2, fault },
    ];
    for (tsc, outcome) in (100..).zip(outcomes) {
        cpu.settled(&Settlement { pmis: 1, ibs: 1, pebs: Some(outcome), cause: None }, &retired, tsc);
    }
    cpu.settled(&Settlement::default(), &retired, 0);
    let report = truth.report();
    let activity = Activity {
        rdmsr: 1,
        wrmsr: 2,
        rdpmc: 1,
        general_protection: 2,
        pmis: 6,
        pebs_written: 1,
        pebs_dropped: 1,
        pebs_faulted: 1,
    };
    assert_eq!(report.cpus[0].activity, activity);
    assert_eq!(report.pebs.iter().map(|record| record.outcome).collect::<Vec<_>>(), outcomes);
    let first = &report.pebs[0];
    assert_eq!((first.pc, first.next_pc, first.load, first.store, first.tsc), (1, 5, Some(0x77), None, 100));
    assert_eq!((first.page_table, first.label.as_deref()), (0xC000, Some("loop")));
}

/// The report survives JSON; numbers of events are found by the events' names.
#[test]
fn the_report_is_json() {
    let truth = Truth::new(OPTIONS);
    let mut cpu = truth.cpu(0);
    run(&mut cpu, 3, 4);
    let report = truth.report();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["address_spaces"][0]["counts"]["instruction"]["user"], 3);
    assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
}

/// The log of a record has the taken branches of each privilege level before it, and the cycles between them; a
/// PMI is logged with what asked for it.
#[test]
fn branches_and_interrupts_are_logged() {
    let truth = Truth::new(OPTIONS);
    let mut cpu = truth.cpu(0);
    let cycles = MicroEvents { cycles: 7, ..MicroEvents::default() };
    for n in 0..40 {
        cpu.count(&cycles, Privilege::User);
        cpu.branch(n, n + 100, BranchKind::DirectJump, n == 39, Privilege::User);
    }
    cpu.branch(9, 10, BranchKind::Far, false, Privilege::Kernel);
    let retired =
        Retired { pc: 1, next_pc: 5, privilege: Privilege::User, load: None, store: None, locked: false };
    let pebs = Some(PebsOutcome::Dropped { counters: 1 });
    cpu.settled(&Settlement { pmis: 1, ibs: 0, pebs, cause: None }, &retired, 3);
    cpu.settled(&Settlement { pmis: 0, ibs: 0, pebs: None, cause: None }, &retired, 4);
    let report = truth.report();
    let branches = &report.pebs[0].branches;
    assert_eq!(
        branches.iter().map(|branch| branch.from).take(32).collect::<Vec<_>>(),
        (8..40).rev().collect::<Vec<_>>()
    );
    assert_eq!((branches[0].to, branches[0].mispredicted, branches[1].mispredicted), (139, true, false));
    assert_eq!(branches[0].cycle - branches[1].cycle, 7);
    assert_eq!((branches.len(), branches[32].kind), (33, BranchKind::Far));
    assert_eq!(report.pmis.iter().map(|request| (request.pc, request.tsc)).collect::<Vec<_>>(), [(1, 3)]);
}
