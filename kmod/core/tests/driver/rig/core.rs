//! One logical CPU: the PMU model, the memory it writes to, and its local APIC's LVTPC.

use std::cell::Cell;
use std::rc::Rc;

use hpm_abi::{CpuControl, CpuStatus, Marker, Quantum, SessionConfig};
use hpm_core::{Gate, Limits};
use vpmu::profile::{PmuKind, Profile};
use vpmu::{
    Bus, Event, EventSet, MicroEvents, Options, PageFault, PebsOutcome, Pmu, Privilege, Registers, Retired,
};

pub const DS_AREA: u64 = 0xffff_fe00_0000_1000;
pub const WINDOW: u64 = 0xffff_fe00_0001_0000;
/// Physical address of the first session's segments.
pub const PHYSICAL: u64 = 1 << 32;
/// Physical addresses between one session's segments and the next one's.
pub const SESSION_BYTES: u64 = 1 << 28;
const PAGE: usize = 4096;
/// RBP of every thread.
pub const RBP: u64 = 0x7fff_0000_1230;
pub const GLOBAL_CTRL: u32 = 0x38F;
pub const PEBS_ENABLE: u32 = 0x3F1;
const PEBS_INDEX: u32 = 0x3F5;
const FIXED_CTR_CTRL: u32 = 0x38D;
const PERFEVTSEL0: u32 = 0x186;
/// IA32_PERFEVTSELx.OS.
const EVTSEL_OS: u64 = 1 << 17;
const MSR_IQ_CCCR4: u32 = 0x370;
const CCCR_ENABLE: u64 = 1 << 12;
const PEBS_INDEX_EN: u64 = 1 << 32;

/// A user instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    Plain,
    Load,
    Store,
    Branch,
}

/// One fetch and one cycle.
fn fetched(_number: u64) -> MicroEvents {
    MicroEvents { once: EventSet::of(&[Event::L1iRead]), cycles: 1, ..MicroEvents::default() }
}

/// What a session shares with its reader on one CPU.
#[derive(Default)]
pub struct Shared {
    pub segments: Vec<Vec<u8>>,
    /// What hardware writes in place of a segment, in a session that may not see the kernel.
    pub staging: Option<Vec<u8>>,
    pub stacks: Vec<u8>,
    pub quanta: Vec<Option<Quantum>>,
    pub markers: Vec<Option<Marker>>,
    pub status: CpuStatus,
    pub control: CpuControl,
}

/// Everything around the PMU.
pub struct Machine {
    pub ds: Vec<u8>,
    /// Session and slot in the window.
    pub window: Option<(usize, usize)>,
    pub shared: Vec<Shared>,
    pub lvtpc_masked: bool,
    /// Whether the local APIC masks LVTPC with each PMI.
    masks_lvtpc: bool,
    /// [`hpm_core::Port::expect_pmi`].
    pub expected_pmi: u64,
    /// NMIs that nobody claimed.
    pub unclaimed: u64,
    /// Steps until the PMI that was raised is delivered.
    nmi_in: Option<u32>,
    pub nmi_latency: u32,
    pub tsc: u64,
    pub rip: u64,
    pub rax: u64,
    /// RIP with which user mode was left, or is run.
    pub user_rip: u64,
    /// Registers that the driver has written, with their values.
    pub written: Vec<(u32, u64)>,
    pub gate: Rc<Gate>,
}

pub struct Core {
    /// The ceilings on sampling: none, unless a test sets them.
    pub limits: Limits,
    pub pmu: Pmu,
    /// What the driver has found, once it has.
    pub found: Option<hpm_core::Pmu>,
    /// Its number among the logical processors of its core, and how many they are.
    pub thread: (u32, u32),
    /// The driver holds another logical processor of the core.
    pub sibling_held: Rc<Cell<bool>>,
    /// Somebody else has programmed counters, which run on while the driver gives the PMU back.
    pub intruded: bool,
    pub machine: Machine,
    /// PMUs that are programmed once and see all that retires here meanwhile: what the driver's counts are held against.
    pub witnesses: Vec<Pmu>,
    /// What the microarchitecture does with each instruction, given its number.
    pub micro: fn(u64) -> MicroEvents,
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
    pub fn window(&mut self) -> Option<&mut Vec<u8>> {
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
        // The kernel's own frame.
        let rbp = if self.rip >> 63 == 0 { RBP } else { self.rip };
        (registers.general[0], registers.general[5]) = (self.rax, rbp);
        registers
    }

    fn xmm(&mut self) -> [[u64; 2]; 16] {
        [[0; 2]; 16]
    }

    fn write_physical(&mut self, physical: u64, from: &[u8]) {
        let at = physical.checked_sub(PHYSICAL).expect("a session's segment");
        let session = (at / SESSION_BYTES) as usize;
        let segment = self.shared[session].segments[0].len() as u64;
        let slot = at % SESSION_BYTES / segment;
        assert_eq!(self.window, Some((session, slot as usize)), "the segment that the session fills");
        let at = (at % SESSION_BYTES % segment) as usize;
        self.window().expect("a segment is mapped")[at..at + from.len()].copy_from_slice(from);
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
            self.lvtpc_masked = self.masks_lvtpc;
            self.nmi_in = Some(self.nmi_latency);
        }
    }

    fn ibs(&mut self) {
        self.nmi_in = Some(self.nmi_latency);
    }

    fn translate(&mut self, linear: u64) -> Option<u64> {
        Some(linear & 0xFFFF_FFFF)
    }
}

impl Core {
    pub fn new(profile: &'static Profile, options: Options) -> Self {
        let machine = Machine {
            ds: vec![0; PAGE],
            window: None,
            shared: Vec::new(),
            lvtpc_masked: false,
            masks_lvtpc: true,
            expected_pmi: 0,
            unclaimed: 0,
            nmi_in: None,
            nmi_latency: 0,
            tsc: 1000,
            rip: 0,
            rax: 0,
            user_rip: 0,
            written: Vec::new(),
            gate: Rc::new(Gate::new()),
        };
        let limits = Limits { tsc_khz: 1000, ..Limits::default() };
        let pmu = Pmu::new(profile, options);
        let machine = Machine { masks_lvtpc: pmu.masks_lvtpc(), ..machine };
        let micro = if pmu.profile().amd().is_some() { fetched } else { |_| MicroEvents::default() };
        Self {
            pmu,
            found: None,
            thread: (0, 1),
            sibling_held: Rc::default(),
            intruded: false,
            machine,
            witnesses: Vec::new(),
            micro,
            limits,
            written: 0,
            dropped: 0,
        }
    }

    pub fn add_session(&mut self, config: &SessionConfig, staged: bool) {
        self.machine.shared.push(Shared {
            staging: staged.then(|| vec![0; config.segment_bytes as usize]),
            segments: vec![vec![0; config.segment_bytes as usize]; config.segment_count() as usize],
            stacks: vec![0; config.stack_ring_bytes as usize],
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
        let micro = (self.micro)(self.machine.tsc);
        let retired = Retired { pc, next_pc: pc + 1, privilege, load: None, store: None, locked: false };
        for witness in &mut self.witnesses {
            witness.count(&micro, privilege);
            witness.count_basic(&counts);
            if witness.needs_settle() {
                let settled = witness.settle(&retired, &mut self.machine);
                assert_eq!(settled.pmis, 0, "a witness asks for no interrupt");
            }
        }
        self.pmu.count(&micro, privilege);
        self.pmu.count_basic(&counts);
        if !self.pmu.needs_settle() {
            return;
        }
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

    /// The CCCR of the counter that writes this logical processor's records, on a NetBurst.
    fn pebs_cccr(&mut self) -> Option<u64> {
        let netburst = matches!(self.pmu.profile().pmu, PmuKind::Netburst(_));
        let cccr = MSR_IQ_CCCR4 + self.thread.0;
        netburst.then(|| self.pmu.rdmsr(cccr).expect("exists"))
    }

    /// What hardware reads must not change while it may read it: no counter runs, or none that writes records.
    pub fn assert_stopped(&mut self) {
        if self.intruded {
            return self.assert_no_records();
        }
        let running = match self.pebs_cccr() {
            Some(cccr) => cccr & CCCR_ENABLE,
            None => self.pmu.rdmsr(GLOBAL_CTRL).expect("exists"),
        };
        assert_eq!(running, 0, "a counter runs");
    }

    /// Whether every counter that runs stands still in the kernel, where hpm works.
    pub fn rests(&mut self) -> bool {
        if self.pmu.profile().amd().is_some() || self.pebs_cccr().is_some() {
            return false;
        }
        let mut read = |register| self.pmu.rdmsr(register).expect("exists");
        let running = read(GLOBAL_CTRL);
        let general = (0..8).filter(|number| running >> number & 1 == 1);
        let fixed = read(FIXED_CTR_CTRL);
        let fixed_os =
            (0..3).any(|number| running >> (32 + number) & 1 == 1 && fixed >> (4 * number) & 1 == 1);
        !fixed_os && general.into_iter().all(|number| read(PERFEVTSEL0 + number) & EVTSEL_OS == 0)
    }

    /// The memory that hardware writes must not change while it may write it: with IA32_PEBS_ENABLE set no counter must run (as Linux's
    /// `intel_pmu_handle_irq` has it, which sets the buffer's index back).
    pub fn assert_no_records(&mut self) {
        if self.pebs_cccr().is_none() && self.pmu.rdmsr(GLOBAL_CTRL).expect("exists") == 0 {
            return;
        }
        let shared = self.thread.1 > 1;
        let enabled = match self.pmu.rdmsr(PEBS_ENABLE) {
            // Where two logical processors share the register, the counter must stand still.
            Ok(_) if shared => self.pebs_cccr().expect("a NetBurst") & CCCR_ENABLE,
            Ok(value) => value,
            // Architectural PEBS has no IA32_PEBS_ENABLE; there IA32_PEBS_INDEX.EN takes its part.
            Err(_) => self.pmu.rdmsr(PEBS_INDEX).expect("exists") & PEBS_INDEX_EN,
        };
        assert_eq!(enabled, 0, "records may be written");
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

pub fn word(bytes: &[u8], offset: u32) -> u64 {
    let at = offset as usize;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
