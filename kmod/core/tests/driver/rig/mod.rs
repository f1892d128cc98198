//! A machine of several CPUs on which threads of sessions run, as the kernel side would drive the engine, with a reader
//! that checks everything it is given.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a module of several test programs, each of which uses its part"
)]

pub mod core;
pub mod netburst;
pub mod port;
pub mod reader;
pub mod scene;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use hpm_abi::{
    CounterPage, CounterPageFlags, QuantumEnd, SessionConfig, Totals, COUNTER_PAGES_MAX, EVENTS_MAX,
};
use hpm_core::lbr::calls::SavedCalls;
use hpm_core::markers::Mark;
use hpm_core::sharing::Wait;
use hpm_core::{
    acknowledge,
    counters::{self, PageKeys},
    detect,
    turns::Turns,
    CpuSession, Engine, Pmu, Port, Program, Session, Thread, ThreadSlot, ThreadTally, Threads,
};
use vpmu::profile::Profile;
use vpmu::{BranchKind, Options, PmuCore, Privilege};

use self::core::{Core, Instruction};
use self::port::{CorePort, CoreRings};
use self::reader::Reader;
use self::scene::is_event;

/// Where a thread's ID lies in the addresses of its instructions, above their number.
pub const TID_SHIFT: u32 = 40;
/// TSC ticks, and so instructions, that a turn lasts.
pub const TURN_TSC: u64 = 1000;

/// A thread and what it has really done.
#[derive(Clone, Default)]
pub struct User {
    /// Its session, if it is monitored.
    pub session: Option<usize>,
    pub tid: u32,
    /// It is one of the kernel's own threads, and nobody's.
    pub in_kernel: bool,
    sequence: u64,
    /// Each event of its session, while the session was on.
    pub truth: [u64; EVENTS_MAX],
}

pub struct SessionMemory {
    /// Of the first CPU: the same on all, unless the processor is hybrid.
    pub program: Program,
    programs: Vec<Program>,
    /// The programs of each CPU's turns; the first is the one in `programs`.
    turns: Vec<Vec<Program>>,
    pub keys: PageKeys,
    pub pages: Rc<Vec<CounterPage>>,
    pub cpus: Vec<CpuSession>,
    slots: Vec<ThreadSlot>,
    tally: ThreadTally,
    /// In a session that follows calls, as many as slots.
    calls: Vec<SavedCalls>,
    pub on: bool,
    pub reader: Reader,
}

pub struct Rig {
    /// Of the first CPU.
    pub pmu: Pmu,
    pub pmus: Vec<Pmu>,
    pub cores: Vec<Rc<RefCell<Core>>>,
    engines: Vec<Engine>,
    pub sessions: Vec<SessionMemory>,
    pub users: Vec<User>,
    /// The thread on each CPU.
    pub on_cpu: Vec<usize>,
    /// Loads of the kernel between the work for a PMI and the end of the section that did it.
    pub behind_service: u32,
}

impl SessionMemory {
    fn threads(&self) -> Threads<'_> {
        Threads::new(&self.slots, &self.tally, self.program.config().max_threads)
    }

    pub fn totals(&self) -> Totals {
        let mut totals = Totals { threads_overflowed: self.threads().overflowed(), ..Totals::default() };
        self.cpus.iter().for_each(|cpu| cpu.add_to(&mut totals));
        totals
    }
}

impl Rig {
    /// CPUs of a Skylake that run a thread of nobody each.
    pub fn new(cpus: usize, options: Options) -> Self {
        Self::of(&vpmu::profile::SKYLAKE, cpus, options)
    }

    /// CPUs of this profile that run a thread of nobody each.
    pub fn of(profile: &'static Profile, cpus: usize, options: Options) -> Self {
        Self::with(&vec![profile; cpus], options)
    }

    /// A CPU of each profile; each runs a thread of nobody.
    pub fn with(profiles: &[&'static Profile], options: Options) -> Self {
        let core = |&profile| Rc::new(RefCell::new(Core::new(profile, options)));
        Self::of_cores(profiles.iter().map(core).collect())
    }

    /// The two logical processors of a core of this profile, which share its PMU.
    pub fn siblings(profile: &'static Profile, options: Options) -> Self {
        let shared = PmuCore::new(profile, options);
        let cores: Vec<_> = (0..2)
            .map(|thread| {
                let mut core = Core::new(profile, options);
                core.pmu = vpmu::Pmu::of_thread(&shared, thread);
                core.thread = (thread.into(), 2);
                Rc::new(RefCell::new(core))
            })
            .collect();
        Self::of_cores(cores)
    }

    fn of_cores(cores: Vec<Rc<RefCell<Core>>>) -> Self {
        let cpus = cores.len();
        let found = |core: &Rc<RefCell<Core>>| {
            let (mut cpuid, mut port) = (CorePort(Rc::clone(core)), CorePort(Rc::clone(core)));
            let pmu = detect(&mut cpuid, &mut port).pmu.expect("the model's PMU is known");
            core.borrow_mut().found = Some(pmu);
            pmu
        };
        let pmus: Vec<_> = cores.iter().map(found).collect();
        Self {
            pmu: pmus[0],
            pmus,
            cores,
            engines: (0..cpus).map(|cpu| Engine::new(cpu as u32)).collect(),
            sessions: Vec::new(),
            users: vec![User::default(); cpus],
            on_cpu: (0..cpus).collect(),
            behind_service: 0,
        }
    }

    pub fn port(&self, cpu: usize) -> CorePort {
        CorePort(Rc::clone(&self.cores[cpu]))
    }

    pub fn acquire(&mut self) {
        (0..self.cores.len()).for_each(|cpu| self.acquire_cpu(cpu));
    }

    pub fn acquire_cpu(&mut self, cpu: usize) {
        let pmu = self.pmus[cpu];
        self.section(cpu, |engine, port| engine.acquire(port, &pmu).expect("an idle PMU"));
        self.note_held(cpu, true);
    }

    pub fn release(&mut self) {
        (0..self.cores.len()).for_each(|cpu| self.release_cpu(cpu));
    }

    pub fn release_cpu(&mut self, cpu: usize) {
        self.section(cpu, |engine, port| engine.release(port));
        self.note_held(cpu, false);
    }

    /// Tells the other logical processor of this one's core.
    fn note_held(&self, cpu: usize, held: bool) {
        let core = self.cores[cpu].borrow();
        if core.thread.1 > 1 {
            self.cores[cpu ^ 1].borrow().sibling_held.set(held);
        }
    }

    pub fn add_session(&mut self, config: &SessionConfig) -> usize {
        self.add_programs(self.pmus.iter().map(|pmu| turns_of(pmu, config)).collect(), config.segment_bytes)
    }

    /// A session that may see user mode only.
    pub fn add_user_session(&mut self, config: &SessionConfig) -> usize {
        let turns = |pmu| {
            let mut turns = turns_of(pmu, config);
            turns.iter_mut().for_each(Program::hide_kernel);
            turns
        };
        self.add_programs(self.pmus.iter().map(turns).collect(), config.segment_bytes)
    }

    /// `most`: bytes of the largest segments that there may be.
    fn add_programs(&mut self, mut turns: Vec<Vec<Program>>, most: u32) -> usize {
        let largest = turns.iter().flatten().map(|program| program.largest_segment(most)).min();
        let bytes = largest.expect("a program");
        turns.iter_mut().flatten().for_each(|program| program.set_segment_bytes(bytes));
        let programs: Vec<Program> = turns.iter().map(|turns| turns[0]).collect();
        let program = programs[0];
        let config = program.config();
        for core in &self.cores {
            core.borrow_mut().add_session(config, program.hides_kernel());
        }
        self.sessions.push(SessionMemory {
            program,
            turns,
            keys: PageKeys::new(),
            pages: Rc::new((0..COUNTER_PAGES_MAX).map(|_| CounterPage::default()).collect()),
            cpus: programs.iter().map(CpuSession::new).collect(),
            slots: (0..Threads::slots_for(program.config().max_threads)).map(|_| ThreadSlot::new()).collect(),
            tally: ThreadTally::new(),
            calls: if program.follows_calls() {
                (0..Threads::slots_for(config.max_threads)).map(|_| SavedCalls::new()).collect()
            } else {
                Vec::new()
            },
            on: true,
            reader: Reader::new(&programs),
            programs,
        });
        self.sessions.len() - 1
    }

    pub fn add_thread(&mut self, session: Option<usize>) -> usize {
        let tid = 100 + self.users.len() as u32;
        self.users.push(User { session, tid, ..User::default() });
        self.users.len() - 1
    }

    /// A thread of the kernel's own.
    pub fn add_kernel_thread(&mut self) -> usize {
        let thread = self.add_thread(None);
        self.users[thread].in_kernel = true;
        thread
    }

    fn section<T>(&mut self, cpu: usize, act: impl FnOnce(&mut Engine, &mut CorePort) -> T) -> T {
        let gate = Rc::clone(&self.cores[cpu].borrow().machine.gate);
        let mut port = self.port(cpu);
        assert!(gate.enter());
        let result = act(&mut self.engines[cpu], &mut port);
        self.leave(cpu);
        result
    }

    /// Ends a section. The kernel runs on for some instructions behind each PMI that it serves.
    fn leave(&mut self, cpu: usize) {
        let gate = Rc::clone(&self.cores[cpu].borrow().machine.gate);
        for nth in 1.. {
            if gate.leave() {
                break;
            }
            assert!(nth < 1000, "the section does not end");
            self.with_loaded(cpu, |engine, port, session| engine.service(port, session, 0, nth));
            for _ in 0..self.behind_service {
                let user = &mut self.users[self.on_cpu[cpu]];
                user.sequence += 1;
                let pc = u64::from(user.tid) << TID_SHIFT | user.sequence;
                self.cores[cpu].borrow_mut().retire(pc, Instruction::Load, Privilege::Kernel);
                // Time passes, so that the NMI may arrive.
                self.port(cpu).rdtsc();
            }
        }
    }

    fn with_loaded<T>(
        &mut self,
        cpu: usize,
        act: impl FnOnce(&mut Engine, &mut CorePort, Option<&mut Session<'_, CoreRings>>) -> T,
    ) -> T {
        let mut port = self.port(cpu);
        let engine = &mut self.engines[cpu];
        match engine.loaded() {
            None => act(engine, &mut port, None),
            Some(id) => with_session(&mut self.sessions, &self.cores, id as usize, cpu, |session| {
                act(engine, &mut port, Some(session))
            }),
        }
    }

    fn in_session<T>(
        &mut self,
        session: usize,
        cpu: usize,
        act: impl FnOnce(&mut Engine, &mut CorePort, &mut Session<'_, CoreRings>) -> T,
    ) -> T {
        let mut sessions = std::mem::take(&mut self.sessions);
        let cores = self.cores.clone();
        // The section's own service loop finds the sessions in their place again.
        let gate = Rc::clone(&self.cores[cpu].borrow().machine.gate);
        let mut port = self.port(cpu);
        assert!(gate.enter());
        let engine = &mut self.engines[cpu];
        let result =
            with_session(&mut sessions, &cores, session, cpu, |session| act(engine, &mut port, session));
        self.sessions = sessions;
        self.leave(cpu);
        result
    }

    /// The scheduler puts `next` on the CPU.
    pub fn switch(&mut self, cpu: usize, next: usize, end: QuantumEnd) {
        let previous = self.monitored(self.on_cpu[cpu]);
        let next_session = self.monitored(next);
        let thread = Thread { pid: 1, tid: self.users[next].tid };
        match (previous, next_session) {
            (Some(one), Some(other)) if one == other => {
                self.load_registers(cpu, next);
                self.in_session(one, cpu, |engine, port, session| {
                    engine.switch_over(port, session, (end, 0), thread);
                });
            }
            _ => {
                let in_kernel = self.users[next].in_kernel;
                if let Some(session) = previous {
                    self.in_session(session, cpu, |engine, port, session| {
                        let out = if in_kernel { Engine::step_aside } else { Engine::switch_out };
                        out(engine, port, session, end, 0);
                    });
                }
                self.load_registers(cpu, next);
                if let Some(session) = next_session {
                    self.in_session(session, cpu, |engine, port, session| {
                        engine.switch_in(port, session, thread);
                    });
                } else if !in_kernel {
                    self.section(cpu, |engine, port| engine.settle(port));
                }
            }
        }
        self.on_cpu[cpu] = next;
    }

    /// The thread that comes to the CPU has left user mode where it last was.
    fn load_registers(&mut self, cpu: usize, user: usize) {
        let User { tid, sequence, .. } = self.users[user];
        self.cores[cpu].borrow_mut().machine.user_rip = u64::from(tid) << TID_SHIFT | (sequence + 1);
    }

    fn monitored(&self, user: usize) -> Option<usize> {
        self.users[user].session.filter(|&session| self.sessions[session].on)
    }

    /// The thread on the CPU sets a marker.
    pub fn mark(&mut self, cpu: usize, session: usize, mark: Mark) -> bool {
        self.in_session(session, cpu, |engine, port, session| engine.mark(port, session, [mark]))
    }

    /// A timer, or a reader's flush.
    pub fn cut(&mut self, cpu: usize, end: QuantumEnd) {
        if let Some(session) = self.monitored(self.on_cpu[cpu]) {
            self.in_session(session, cpu, |engine, port, session| engine.cut(port, session, end, 0));
        }
    }

    /// Makes a counter page for a thread of a session.
    pub fn open_page(&mut self, session: usize, user: usize) -> usize {
        let SessionMemory { keys, pages, program, .. } = &self.sessions[session];
        let tid = self.users[user].tid;
        let page = keys.claim(tid, |_| true).expect("a free page");
        counters::prepare(&pages[page], tid, program.event_count() as u32, 1000);
        pages[page].flags.fetch_or(CounterPageFlags::MAY_RDPMC, Ordering::Relaxed);
        keys.assign(page, tid);
        page
    }

    /// A session has waited for its turn on this CPU.
    pub fn wait(&mut self, session: usize, cpu: usize, wait: &Wait) {
        self.in_session(session, cpu, |_, _, session| session.note_wait(wait));
    }

    /// Another thread asks for what this one has counted so far: its CPU is interrupted.
    pub fn refresh(&mut self, session: usize, cpu: usize) {
        let tid = self.users[self.on_cpu[cpu]].tid;
        self.in_session(session, cpu, |engine, port, session| engine.refresh(port, session, tid, 0));
    }

    /// A thread that may use RDPMC and is nobody's comes to the CPU.
    pub fn conceal(&mut self, cpu: usize) {
        self.section(cpu, |engine, port| engine.conceal(port));
    }

    /// A guest is entered on this CPU, where nothing is measured, and left again; in between `within` may do what it likes.
    pub fn guest(&mut self, cpu: usize, within: impl FnOnce(&mut CorePort)) {
        self.section(cpu, |engine, port| engine.enter_guest(port));
        within(&mut self.port(cpu));
        self.section(cpu, |engine, port| engine.leave_guest(port));
    }

    /// Whether counters run on this CPU beside a thread of the kernel's own.
    pub fn is_resting(&self, cpu: usize) -> bool {
        self.engines[cpu].is_resting()
    }

    pub fn stop(&mut self, session: usize) {
        for cpu in 0..self.cores.len() {
            assert!(self.cores[cpu].borrow().intruded || !self.is_intruded(cpu), "nobody else was there");
            self.in_session(session, cpu, |engine, port, session| engine.unload(port, session));
        }
        self.sessions[session].on = false;
    }

    /// The thread on the CPU runs `count` instructions, of the kinds in `mix` in turn.
    pub fn run(&mut self, cpu: usize, count: usize, mix: &[Instruction]) {
        let user = self.on_cpu[cpu];
        if self.users[user].in_kernel {
            return self.run_kernel(cpu, count);
        }
        let running = self.monitored(user).map(|session| self.sessions[session].programs[cpu]);
        let events = running.map(|program| (*program.config(), program.events_here()));
        for &instruction in mix.iter().cycle().take(count) {
            let state = &mut self.users[user];
            state.sequence += 1;
            let pc = u64::from(state.tid) << TID_SHIFT | state.sequence;
            if let Some((config, here)) = &events {
                let here = (0..config.event_count as usize).filter(|index| here >> index & 1 == 1);
                for index in here {
                    state.truth[index] += u64::from(is_event(&config.events[index], instruction));
                }
            }
            self.cores[cpu].borrow_mut().retire(pc, instruction, Privilege::User);
            self.deliver_nmi(cpu);
        }
    }

    /// The thread on the CPU runs `count` stores. Those that can make no counter overflow are counted at once.
    pub fn run_stores(&mut self, cpu: usize, count: u64) {
        let mut left = count;
        while left > 0 {
            let passed = self.cores[cpu].borrow_mut().pass_stores(left - 1);
            let state = &mut self.users[self.on_cpu[cpu]];
            state.sequence += passed;
            state.truth[0] += passed;
            self.run(cpu, 1, &[Instruction::Store]);
            left -= passed + 1;
        }
    }

    /// As [`Rig::run`], with events whose truth the tests do not know.
    pub fn run_unjudged(&mut self, cpu: usize, count: usize, mix: &[Instruction]) {
        for (number, &instruction) in mix.iter().cycle().take(count).enumerate() {
            self.cores[cpu].borrow_mut().retire(number as u64, instruction, Privilege::User);
            self.deliver_nmi(cpu);
        }
    }

    /// The thread on the CPU takes a branch.
    pub fn branch(&mut self, cpu: usize, from: u64, to: u64, kind: BranchKind) {
        self.cores[cpu].borrow_mut().pmu.record_branch(from, to, kind, false, Privilege::User);
        self.run(cpu, 1, &[Instruction::Branch]);
    }

    /// The kernel takes a branch, without anything being counted.
    pub fn kernel_branch(&mut self, cpu: usize, from: u64, to: u64, kind: BranchKind) {
        self.cores[cpu].borrow_mut().pmu.record_branch(from, to, kind, false, Privilege::Kernel);
    }

    /// The thread on the CPU executes another program.
    pub fn exec(&mut self, session: usize, cpu: usize) {
        self.in_session(session, cpu, |engine, port, session| engine.restart_branches(port, session));
    }

    /// What a session with branches is told when it is configured.
    pub fn check_branches(&mut self, cpu: usize) -> Result<(), hpm_core::Refusal> {
        let pmu = self.pmus[cpu];
        self.section(cpu, |engine, port| engine.check_branches(port, &pmu))
    }

    /// What a session that samples by IBS is told when it is configured.
    pub fn check_ibs(&mut self, cpu: usize) -> Result<(), hpm_core::Refusal> {
        self.section(cpu, |engine, port| engine.check_ibs(port))
    }

    /// Whether it shows that somebody else uses the PMU.
    pub fn is_intruded(&mut self, cpu: usize) -> bool {
        self.section(cpu, |engine, port| engine.is_intruded(port))
    }

    /// One of the looks for somebody else, of which one in four is at an event select, too.
    pub fn look_for_others(&mut self, cpu: usize) -> bool {
        self.section(cpu, |engine, port| engine.look_for_others(port))
    }

    /// Whether somebody else has been seen.
    pub fn has_noticed_others(&mut self, cpu: usize) -> bool {
        self.section(cpu, |engine, _| engine.has_noticed_others())
    }

    /// Writes a register of the CPU's behind hpm's back.
    pub fn intrude(&mut self, cpu: usize, register: u32, value: u64) {
        let mut core = self.cores[cpu].borrow_mut();
        core.intruded = true;
        core.pmu.wrmsr(register, value).expect("a legal value");
    }

    /// The kernel runs `count` instructions on the CPU.
    pub fn run_kernel(&mut self, cpu: usize, count: usize) {
        for _ in 0..count {
            self.cores[cpu].borrow_mut().retire(1 << 63, Instruction::Load, Privilege::Kernel);
            self.deliver_nmi(cpu);
        }
    }

    fn deliver_nmi(&mut self, cpu: usize) {
        if !self.cores[cpu].borrow_mut().nmi_arrives() {
            return;
        }
        let gate = Rc::clone(&self.cores[cpu].borrow().machine.gate);
        assert!(gate.enter(), "no section is interrupted");
        let claimed = self.with_loaded(cpu, |engine, port, session| engine.pmi(port, session, 0));
        self.cores[cpu].borrow_mut().machine.unclaimed += u64::from(!claimed);
        self.leave(cpu);
    }

    /// The reader takes what there is on a CPU, checks it, and gives it back.
    pub fn read(&mut self, session: usize, cpu: usize) {
        let shared = &mut self.cores[cpu].borrow_mut().machine.shared[session];
        self.sessions[session].reader.read(cpu, shared);
    }

    pub fn read_all(&mut self) {
        for session in 0..self.sessions.len() {
            (0..self.cores.len()).for_each(|cpu| self.read(session, cpu));
        }
    }

    /// A reader takes what there is, does not look at it, and gives it back.
    pub fn give_back_all(&mut self) {
        for core in &self.cores {
            for shared in &mut core.borrow_mut().machine.shared {
                shared.control.quanta_consumed = shared.status.quanta_produced;
                shared.control.segments_consumed = shared.status.segments_begun.saturating_sub(1);
                shared.control.stack_consumed = shared.status.stack_produced;
            }
        }
    }

    /// Every register of the PMU that its processor has, on every CPU.
    pub fn registers(&self) -> Vec<(u32, u64)> {
        let legacy =
            (0..8).flat_map(|number| [0xC1 + number, 0x186 + number, 0x4C1 + number, 0x309 + number]);
        let others = [
            0x1A6, 0x1A7, 0x1C8, 0x1C9, 0x1D9, 0x14CE, 0x14CF, 0x38D, 0x38E, 0x38F, 0x3F1, 0x3F2, 0x3F4,
            0x3F5, 0x3F6, 0x3F7, 0x600,
        ];
        let branches =
            [0x680, 0x6C0, 0xDC0, 0x1500, 0x1600, 0x1200].into_iter().flat_map(|first| first..first + 32);
        let netburst = (0x300..0x3A0).chain(0x3A0..0x3F0);
        let amd = [0xC000_0300, 0xC000_0301, 0xC001_1030, 0xC001_1033].into_iter();
        let amd = amd.chain(0xC001_0000..0xC001_0008).chain(0xC001_0200..0xC001_020C);
        let all = legacy.chain(others).chain(netburst).chain(0x1900..0x19A0).chain(branches).chain(amd);
        let all: Vec<u32> = all.collect();
        self.cores
            .iter()
            .flat_map(|core| {
                let mut core = core.borrow_mut();
                all.iter().filter_map(|&msr| Some((msr, core.pmu.rdmsr(msr).ok()?))).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// The program of one turn.
pub fn program(
    turns: &Turns,
    turn: usize,
    pmu: &Pmu,
    request: &SessionConfig,
) -> Result<Program, hpm_core::Refusal> {
    let mut program = Program::EMPTY;
    turns.program(turn, pmu, request, &mut program)?;
    Ok(program)
}

/// The request as the programs of its turns.
pub fn turns_of(pmu: &Pmu, config: &SessionConfig) -> Vec<Program> {
    let turns = Turns::new(pmu, config).expect("a valid request");
    (0..turns.count()).map(|turn| program(&turns, turn, pmu, config).expect("a valid request")).collect()
}

fn with_session<T>(
    sessions: &mut [SessionMemory],
    cores: &[Rc<RefCell<Core>>],
    number: usize,
    cpu: usize,
    act: impl FnOnce(&mut Session<'_, CoreRings>) -> T,
) -> T {
    let SessionMemory { programs, turns, keys, pages, cpus, slots, tally, calls, .. } = &mut sessions[number];
    let program = &programs[cpu];
    let limits = cores[cpu].borrow().limits;
    let mut rings = CoreRings { core: Rc::clone(&cores[cpu]), session: number, pages: Rc::clone(pages) };
    act(&mut Session {
        id: number as u64,
        programs: &turns[cpu],
        program,
        turn_tsc: TURN_TSC,
        pages: Some(keys),
        state: &mut cpus[cpu],
        threads: Threads::new(slots, tally, program.config().max_threads).with_calls(calls),
        rings: &mut rings,
        limits,
    })
}

/// An NMI on a CPU whose PMU nobody asked to interrupt is not hpm's.
pub fn foreign_nmi(rig: &Rig, cpu: usize) -> bool {
    acknowledge(&mut rig.port(cpu), &rig.pmus[cpu])
}
