//! The driver's way to a CPU of the rig: its registers, and the memory of the session that runs there.

use std::cell::RefCell;
use std::rc::Rc;

use hpm_abi::{CounterPage, CpuControl, CpuStatus, Marker, Quantum};
use hpm_core::stacks::Collected;
use hpm_core::{acknowledge, Cpuid, CpuidRegisters, Port, Rings};
use vpmu::CpuidRegs;

use super::core::{word, Core, DS_AREA, PHYSICAL, RBP, SESSION_BYTES, WINDOW};

/// Of the DS management area: what hardware compares with when it has written a record.
const PEBS_INTERRUPT_THRESHOLD: u32 = 0x38;

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
            let found = self.0.borrow().found.expect("a PMU that interrupts was found");
            if acknowledge(self, &found) {
                gate.defer();
            } else {
                self.0.borrow_mut().machine.unclaimed += 1;
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
            core.machine.written.push((register, value));
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

    fn pmi_is_masked(&mut self) -> bool {
        self.with(|core| core.machine.lvtpc_masked)
    }

    fn sibling_is_held(&mut self) -> bool {
        self.0.borrow().sibling_held.get()
    }

    fn expect_pmi(&mut self, until_tsc: u64) {
        self.with(|core| core.machine.expected_pmi = until_tsc);
    }

    fn expected_pmi(&mut self) -> u64 {
        self.with(|core| core.machine.expected_pmi)
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
            if offset != PEBS_INTERRUPT_THRESHOLD || !core.rests() {
                core.assert_stopped();
            }
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

impl Cpuid for CorePort {
    fn microcode(&mut self) -> u32 {
        u32::MAX
    }

    fn cpuid(&mut self, leaf: u32, subleaf: u32) -> CpuidRegisters {
        let (thread, amd) = {
            let core = self.0.borrow();
            (core.thread, core.pmu.profile().amd().is_some())
        };
        let mut registers = machine_cpuid(leaf, thread, amd);
        self.0.borrow().pmu.cpuid(leaf, subleaf, &mut registers);
        let CpuidRegs { eax, ebx, ecx, edx } = registers;
        CpuidRegisters { eax, ebx, ecx, edx }
    }
}

/// The rest of the machine's answer, which the model's PMU overlays. `thread`: the number of this logical processor, and how
/// many its package has, all of one core.
fn machine_cpuid(leaf: u32, (thread, threads): (u32, u32), amd: bool) -> CpuidRegs {
    let letters = |four: &[u8; 4]| u32::from_le_bytes(*four);
    match leaf {
        0 if amd => {
            CpuidRegs { eax: 0x10, ebx: letters(b"Auth"), edx: letters(b"enti"), ecx: letters(b"cAMD") }
        }
        0 => CpuidRegs { eax: 0x23, ebx: letters(b"Genu"), edx: letters(b"ineI"), ecx: letters(b"ntel") },
        // HTT and DTES64, which the model leaves to the machine.
        1 if threads > 1 => {
            CpuidRegs { ebx: thread << 24 | threads << 16, edx: 1 << 28, ..CpuidRegs::default() }
        }
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
    fn show_segment(&mut self, slot: u32) -> u64 {
        self.map_segment(slot);
        let segment = self.core.borrow().machine.shared[self.session].segments[0].len();
        PHYSICAL + self.session as u64 * SESSION_BYTES + u64::from(slot) * segment as u64
    }

    fn counter_page(&self, number: usize) -> Option<&CounterPage> {
        self.pages.get(number)
    }

    fn map_segment(&mut self, slot: u32) {
        let mut core = self.core.borrow_mut();
        core.assert_stopped();
        core.assert_no_records();
        core.machine.window = Some((self.session, slot as usize));
    }

    fn unmap_segment(&mut self) {
        let mut core = self.core.borrow_mut();
        core.assert_no_records();
        core.machine.window = None;
    }

    fn write_record(&mut self, slot: u32, offset: u32, words: &[u64]) {
        let mut core = self.core.borrow_mut();
        let shared = &mut core.machine.shared[self.session];
        // Those that are moved were counted when hardware wrote them.
        let own = shared.staging.is_none();
        let segment = &mut shared.segments[slot as usize];
        for (place, word) in (offset as usize..).step_by(8).zip(words) {
            segment[place..place + 8].copy_from_slice(&word.to_le_bytes());
        }
        core.written += u64::from(own);
    }

    fn write_quantum(&mut self, slot: u32, write: impl FnOnce(&mut Quantum)) {
        let slot = &mut self.core.borrow_mut().machine.shared[self.session].quanta[slot as usize];
        write(slot.get_or_insert(Quantum::EMPTY));
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

    fn rate(&mut self) -> u64 {
        self.control().rate
    }

    fn pause(&mut self) -> u64 {
        self.control().pause
    }

    fn write_stack(&mut self, place: u32, words: &[u64]) {
        let stacks = &mut self.core.borrow_mut().machine.shared[self.session].stacks;
        for (place, word) in (place as usize..).step_by(8).zip(words) {
            stacks[place..place + 8].copy_from_slice(&word.to_le_bytes());
        }
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
