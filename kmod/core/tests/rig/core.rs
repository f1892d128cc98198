//! One logical CPU: the PMU model, the memory it writes to, its local APIC's LVTPC; and the driver's port to it.

use std::cell::RefCell;
use std::rc::Rc;

use hpm_abi::{CounterPage, CpuControl, CpuStatus, Marker, Quantum, SessionConfig, SEGMENT_BYTES};
use hpm_core::stacks::Collected;
use hpm_core::{acknowledge, Cpuid, CpuidRegisters, Gate, Limits, Port, Rings};
use vpmu::profile::Profile;
use vpmu::{Bus, CpuidRegs, Options, PageFault, PebsOutcome, Pmu, Privilege, Registers, Retired};

const DS_AREA: u64 = 0xffff_fe00_0000_1000;
const WINDOW: u64 = 0xffff_fe00_0001_0000;
/// Physical address of the first session's segments.
const PHYSICAL: u64 = 1 << 32;
/// Physical addresses between one session's segments and the next one's.
const SESSION_BYTES: u64 = 1 << 28;
const PAGE: usize = 4096;
/// RBP of every thread.
const RBP: u64 = 0x7fff_0000_1230;
const GLOBAL_CTRL: u32 = 0x38F;
const PEBS_ENABLE: u32 = 0x3F1;
const PEBS_INDEX: u32 = 0x3F5;
const PEBS_INDEX_EN: u64 = 1 << 32;

/// A user instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    Plain,
    Load,
    Store,
    Branch,
}

/// What a session shares with its reader on one CPU.
#[derive(Default)]
pub struct Shared {
    pub segments: Vec<Vec<u8>>,
    /// What hardware writes in place of a segment, in a session that may not see the kernel.
    pub staging: Option<Vec<u8>>,
    pub quanta: Vec<Option<Quantum>>,
    pub markers: Vec<Option<Marker>>,
    pub status: CpuStatus,
    pub control: CpuControl,
}

/// Everything around the PMU.
pub struct Machine {
    ds: Vec<u8>,
    /// Session and slot in the window.
    window: Option<(usize, usize)>,
    pub shared: Vec<Shared>,
    lvtpc_masked: bool,
    /// Steps until the PMI that was raised is delivered.
    nmi_in: Option<u32>,
    pub nmi_latency: u32,
    tsc: u64,
    rip: u64,
    pub rax: u64,
    /// RIP with which user mode was left, or is run.
    user_rip: u64,
    pub gate: Rc<Gate>,
}

pub struct Core {
    /// The ceilings on sampling: none, unless a test sets them.
    pub limits: Limits,
    pub pmu: Pmu,
    pub machine: Machine,
    /// Records that the model or the driver wrote.
    pub written: u64,
    /// Records for which the buffer had no room.
    pub dropped: u64,
}

impl Machine {
    /// Time passes in which nothing retires.
    pub fn pass_time(&mut self, ticks: u64) {
        self.tsc += ticks;
    }

    /// What is mapped into the window.
    fn window(&mut self) -> Option<&mut Vec<u8>> {
        let (session, slot) = self.window?;
        let Shared { segments, staging, .. } = &mut self.shared[session];
        Some(staging.as_mut().unwrap_or(&mut segments[slot]))
    }

    fn memory(&mut self, linear: u64, length: usize, write: bool) -> Result<&mut [u8], PageFault> {
        let fault = Err(PageFault { linear, write });
        if let Some(at) = linear.checked_sub(WINDOW) {
            let Some(window) = self.window() else { return fault };
            return window.get_mut(at as usize..at as usize + length).ok_or(PageFault { linear, write });
        }
        let Some(at) = linear.checked_sub(DS_AREA) else { return fault };
        self.ds.get_mut(at as usize..at as usize + length).ok_or(PageFault { linear, write })
    }
}

impl Bus for Machine {
    fn registers(&mut self) -> Registers {
        let mut registers = Registers { rip: self.rip, ..Registers::default() };
        (registers.general[0], registers.general[5]) = (self.rax, RBP);
        registers
    }

    fn xmm(&mut self) -> [[u64; 2]; 16] {
        [[0; 2]; 16]
    }

    fn write_physical(&mut self, physical: u64, from: &[u8]) {
        let at = physical.checked_sub(PHYSICAL).expect("a session's segment");
        let (session, slot) = ((at / SESSION_BYTES) as usize, at % SESSION_BYTES / u64::from(SEGMENT_BYTES));
        assert_eq!(self.window, Some((session, slot as usize)), "the segment that the session fills");
        let at = (at % u64::from(SEGMENT_BYTES)) as usize;
        self.shared[session].segments[slot as usize][at..at + from.len()].copy_from_slice(from);
    }

    fn read(&mut self, linear: u64, into: &mut [u8]) -> Result<(), PageFault> {
        into.copy_from_slice(self.memory(linear, into.len(), false)?);
        Ok(())
    }

    fn write(&mut self, linear: u64, from: &[u8]) -> Result<(), PageFault> {
        self.memory(linear, from.len(), true)?.copy_from_slice(from);
        Ok(())
    }

    fn tsc(&mut self) -> u64 {
        self.tsc
    }

    fn pmi(&mut self) {
        if !self.lvtpc_masked {
            self.lvtpc_masked = true;
            self.nmi_in = Some(self.nmi_latency);
        }
    }
}

impl Core {
    pub fn new(profile: &'static Profile, options: Options) -> Self {
        let machine = Machine {
            ds: vec![0; PAGE],
            window: None,
            shared: Vec::new(),
            lvtpc_masked: false,
            nmi_in: None,
            nmi_latency: 0,
            tsc: 1000,
            rip: 0,
            rax: 0,
            user_rip: 0,
            gate: Rc::new(Gate::new()),
        };
        let limits = Limits { tsc_khz: 1000, ..Limits::default() };
        Self { pmu: Pmu::new(profile, options), machine, limits, written: 0, dropped: 0 }
    }

    pub fn add_session(&mut self, config: &SessionConfig, staged: bool) {
        self.machine.shared.push(Shared {
            staging: staged.then(|| vec![0; SEGMENT_BYTES as usize]),
            segments: vec![vec![0; SEGMENT_BYTES as usize]; config.segments as usize],
            quanta: vec![None; config.quanta as usize],
            markers: vec![None; config.markers as usize],
            ..Shared::default()
        });
    }

    /// Retires one instruction at `pc`.
    pub fn retire(&mut self, pc: u64, instruction: Instruction, privilege: Privilege) {
        self.machine.tsc += 1;
        self.machine.rip = pc + 1;
        if privilege == Privilege::User {
            self.machine.user_rip = pc + 1;
        }
        let mut counts = vpmu::BasicCounts::default();
        counts[vpmu::Basic::Instruction as usize][privilege as usize] = 1;
        let kind = match instruction {
            Instruction::Plain => None,
            Instruction::Load => Some(vpmu::Basic::Load),
            Instruction::Store => Some(vpmu::Basic::Store),
            Instruction::Branch => Some(vpmu::Basic::Branch),
        };
        if let Some(kind) = kind {
            counts[kind as usize][privilege as usize] = 1;
        }
        self.pmu.count_basic(&counts);
        if !self.pmu.needs_settle() {
            return;
        }
        let retired = Retired { pc, next_pc: pc + 1, privilege, load: None, store: None, locked: false };
        match self.pmu.settle(&retired, &mut self.machine).pebs {
            Some(PebsOutcome::Written { .. }) => self.written += 1,
            Some(PebsOutcome::Dropped { .. }) => self.dropped += 1,
            Some(PebsOutcome::Faulted { fault, .. }) => panic!("PEBS faulted: {fault}"),
            None => {}
        }
    }

    /// Counts user stores, at most `count`, of which none makes a counter overflow; how many.
    pub fn pass_stores(&mut self, count: u64) -> u64 {
        if self.machine.nmi_in.is_some() || self.pmu.needs_settle() {
            return 0;
        }
        let headroom = self.pmu.headroom(Privilege::User);
        let room = headroom[vpmu::Basic::Instruction as usize].min(headroom[vpmu::Basic::Store as usize]);
        let passed = count.min(room.saturating_sub(1));
        let mut counts = vpmu::BasicCounts::default();
        counts[vpmu::Basic::Instruction as usize][Privilege::User as usize] = passed;
        counts[vpmu::Basic::Store as usize][Privilege::User as usize] = passed;
        self.pmu.count_basic(&counts);
        self.machine.tsc += passed;
        passed
    }

    /// What hardware reads must not change while it may read it.
    fn assert_off(&mut self, registers: &[u32]) {
        for &register in registers {
            // Architectural PEBS has no IA32_PEBS_ENABLE; there IA32_PEBS_INDEX.EN takes its part.
            let enabled = match self.pmu.rdmsr(register) {
                Err(_) if register == PEBS_ENABLE => {
                    self.pmu.rdmsr(PEBS_INDEX).expect("exists") & PEBS_INDEX_EN
                }
                value => value.expect("exists"),
            };
            assert_eq!(enabled, 0, "register {register:#x}");
        }
    }

    /// Time passes; true when a PMI is delivered now.
    pub fn nmi_arrives(&mut self) -> bool {
        match self.machine.nmi_in {
            Some(0) => {
                self.machine.nmi_in = None;
                true
            }
            Some(steps) => {
                self.machine.nmi_in = Some(steps - 1);
                false
            }
            None => false,
        }
    }
}

/// The driver's port to a CPU. An NMI may arrive at each use, inside a section.
pub struct CorePort(pub Rc<RefCell<Core>>);

impl CorePort {
    fn with<T>(&mut self, act: impl FnOnce(&mut Core) -> T) -> T {
        let (result, nmi, gate) = {
            let mut core = self.0.borrow_mut();
            let result = act(&mut core);
            (result, core.nmi_arrives(), Rc::clone(&core.machine.gate))
        };
        if nmi {
            assert!(!gate.enter(), "the port is used in sections only");
            if acknowledge(self) {
                gate.defer();
            }
        }
        result
    }
}

impl Port for CorePort {
    fn rdmsr(&mut self, register: u32) -> u64 {
        self.with(|core| match register {
            0x1A0 => core.pmu.misc_enable(1),
            _ => core.pmu.rdmsr(register).unwrap_or_else(|fault| panic!("RDMSR {register:#x}: {fault}")),
        })
    }

    fn wrmsr(&mut self, register: u32, value: u64) {
        self.with(|core| {
            core.pmu
                .wrmsr(register, value)
                .unwrap_or_else(|fault| panic!("WRMSR {register:#x}, {value:#x}: {fault}"));
        });
    }

    fn rdpmc(&mut self, index: u32) -> u64 {
        self.with(|core| core.pmu.rdpmc(index).unwrap_or_else(|fault| panic!("RDPMC {index:#x}: {fault}")))
    }

    fn rdtsc(&mut self) -> u64 {
        self.with(|core| core.machine.tsc)
    }

    fn unmask_pmi(&mut self) {
        self.with(|core| core.machine.lvtpc_masked = false);
    }

    fn registers(&mut self, user_only: bool) -> Option<hpm_core::interrupt::Registers> {
        self.with(|core| {
            let mut registers = [0; 18];
            registers[1] = if user_only { core.machine.user_rip } else { core.machine.rip };
            // A stack pointer of user mode, and the end of a chain of frames.
            registers[9] = 0x7000_0000;
            Some(registers)
        })
    }

    fn ds_area(&mut self) -> u64 {
        DS_AREA
    }

    fn ds_read(&mut self, offset: u32) -> u64 {
        self.with(|core| word(&core.machine.ds, offset))
    }

    fn ds_write(&mut self, offset: u32, value: u64) {
        self.with(|core| {
            core.assert_off(&[GLOBAL_CTRL]);
            let at = offset as usize;
            core.machine.ds[at..at + 8].copy_from_slice(&value.to_le_bytes());
        });
    }

    fn pebs_window(&mut self) -> u64 {
        WINDOW
    }

    fn pebs_read(&mut self, offset: u32) -> u64 {
        self.with(|core| word(core.machine.window().expect("a segment is mapped"), offset))
    }
}

pub fn word(bytes: &[u8], offset: u32) -> u64 {
    let at = offset as usize;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Cpuid for CorePort {
    fn microcode(&mut self) -> u32 {
        u32::MAX
    }

    fn cpuid(&mut self, leaf: u32, subleaf: u32) -> CpuidRegisters {
        let mut registers = machine_cpuid(leaf);
        self.0.borrow().pmu.cpuid(leaf, subleaf, &mut registers);
        let CpuidRegs { eax, ebx, ecx, edx } = registers;
        CpuidRegisters { eax, ebx, ecx, edx }
    }
}

/// The rest of the machine's answer, which the model's PMU overlays.
fn machine_cpuid(leaf: u32) -> CpuidRegs {
    let letters = |four: &[u8; 4]| u32::from_le_bytes(*four);
    match leaf {
        0 => CpuidRegs { eax: 0x23, ebx: letters(b"Genu"), edx: letters(b"ineI"), ecx: letters(b"ntel") },
        _ => CpuidRegs::default(),
    }
}

/// The driver's view of a session's memory on a CPU.
pub struct CoreRings {
    pub core: Rc<RefCell<Core>>,
    pub session: usize,
    pub pages: Rc<Vec<CounterPage>>,
}

impl Rings for CoreRings {
    fn segment_address(&mut self, slot: u32) -> u64 {
        PHYSICAL + self.session as u64 * SESSION_BYTES + u64::from(slot * SEGMENT_BYTES)
    }

    fn counter_page(&self, number: usize) -> Option<&CounterPage> {
        self.pages.get(number)
    }

    fn map_segment(&mut self, slot: u32) {
        let mut core = self.core.borrow_mut();
        core.assert_off(&[GLOBAL_CTRL, PEBS_ENABLE]);
        core.machine.window = Some((self.session, slot as usize));
    }

    fn unmap_segment(&mut self) {
        let mut core = self.core.borrow_mut();
        core.assert_off(&[PEBS_ENABLE]);
        core.machine.window = None;
    }

    fn write_record(&mut self, slot: u32, offset: u32, words: &[u64]) {
        let mut core = self.core.borrow_mut();
        // Others are moved, and were counted when hardware wrote them.
        core.written += u64::from(words.len() * 8 == size_of::<hpm_abi::InterruptRecord>());
        let segment = &mut core.machine.shared[self.session].segments[slot as usize];
        for (place, word) in (offset as usize..).step_by(8).zip(words) {
            segment[place..place + 8].copy_from_slice(&word.to_le_bytes());
        }
    }

    fn write_quantum(&mut self, slot: u32, quantum: &Quantum) {
        self.core.borrow_mut().machine.shared[self.session].quanta[slot as usize] = Some(*quantum);
    }

    fn write_marker(&mut self, slot: u32, marker: &Marker) {
        self.core.borrow_mut().machine.shared[self.session].markers[slot as usize] = Some(*marker);
    }

    fn publish(&mut self, status: &CpuStatus) {
        self.core.borrow_mut().machine.shared[self.session].status = *status;
    }

    fn control(&mut self) -> CpuControl {
        self.core.borrow().machine.shared[self.session].control
    }

    fn copy_stack(&mut self, from: u64, _place: u32, bytes: u32) -> Collected {
        // The model's threads have a stack of one page above every multiple of 64 KiB.
        let above = 0x1_0000 - from % 0x1_0000;
        let copied = bytes.min(above as u32);
        Collected { bytes: copied, complete: copied == bytes }
    }

    fn follow_frames(&mut self, rbp: u64, _place: u32, frames: u32) -> Collected {
        // A chain of three calls from the outermost function, which sets RBP to 0.
        assert_eq!(rbp, RBP, "the record's RBP");
        Collected { bytes: 8 * frames.min(3), complete: frames >= 3 }
    }
}
