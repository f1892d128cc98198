//! What is inserted into a guest block when QEMU translates it.

#![allow(unsafe_code, reason = "calls into QEMU")]

use crate::callbacks;
use crate::decode::{Classifier, Insn, MAX_LENGTH, Special, bitness};
use crate::ffi::{
    Api, MemoryCallback, TranslatedInsn, TranslationBlock, VcpuCallback, cb_flags, cond, mem, op,
};
use crate::here::Here;
use crate::machine::Machine;
use crate::mode::Level;
use crate::vcpu::{EXHAUSTED, NO_ADDRESS, offset};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use vpmu::Privilege;

thread_local! {
    static CLASSIFIER: RefCell<Classifier> = RefCell::new(Classifier::new());
}

/// The bytes of one instruction.
struct Code {
    bytes: [u8; MAX_LENGTH],
    length: usize,
    pc: u64,
}

impl Code {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.min(MAX_LENGTH)]
    }
}

/// Instruments a block.
pub(crate) fn block(here: &Here, block: *mut TranslationBlock) {
    let machine = here.machine;
    let handles = handles(&machine.api, block);
    let code: Vec<Code> = handles.iter().map(|&handle| code(&machine.api, handle)).collect();
    let level = machine.mode.level();
    if level == Level::Off && !code.iter().any(|code| may_be_special(code.bytes())) {
        return;
    }
    let privilege = if here.cpl() == 0 { Privilege::Kernel } else { Privilege::User };
    let insns = classify(here, &code, privilege);
    for (i, (handle, insn)) in handles.into_iter().zip(&insns).enumerate() {
        Site { machine, handle, insn, level }.instrument(i == 0);
    }
    // The block refers to them by their addresses, which this does not change.
    machine.keep(insns);
}

/// Whether the bytes could be one of [`Special`]: all are in the two-byte opcode map.
fn may_be_special(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair[0] == 0x0f && matches!(pair[1], 0x30 | 0x32 | 0x33 | 0xa2))
}

fn handles(api: &Api, block: *mut TranslationBlock) -> Vec<*mut TranslatedInsn> {
    // SAFETY: QEMU passed the block to the running callback.
    let count = unsafe { (api.qemu_plugin_tb_n_insns)(block) };
    // SAFETY: as above; the index is below the count.
    (0..count).map(|i| unsafe { (api.qemu_plugin_tb_get_insn)(block, i) }).collect()
}

fn code(api: &Api, handle: *mut TranslatedInsn) -> Code {
    let mut bytes = [0; MAX_LENGTH];
    // SAFETY: the handle is of the block being translated; `bytes` has MAX_LENGTH bytes.
    let length = unsafe { (api.qemu_plugin_insn_data)(handle, bytes.as_mut_ptr().cast(), MAX_LENGTH) };
    // SAFETY: as above.
    let pc = unsafe { (api.qemu_plugin_insn_vaddr)(handle) };
    Code { bytes, length, pc }
}

fn classify(here: &Here, code: &[Code], privilege: Privilege) -> Box<[Insn]> {
    let bitness = bitness(code.iter().map(Code::bytes));
    // A block spans at most two pages, whose frames need not be neighbours: each instruction is translated.
    let physical = |pc: u64| here.translate(pc).unwrap_or(0);
    CLASSIFIER.with_borrow_mut(|classifier| {
        code.iter()
            .map(|code| classifier.classify(code.bytes(), bitness, code.pc, physical(code.pc), privilege))
            .collect()
    })
}

/// One instruction being instrumented. QEMU runs what is inserted in the order of insertion.
struct Site<'a> {
    machine: &'static Machine,
    handle: *mut TranslatedInsn,
    insn: &'a Insn,
    level: Level,
}

impl Site<'_> {
    fn instrument(&self, first_of_block: bool) {
        if self.level >= Level::Basic {
            self.check_boundary(first_of_block);
        }
        match self.insn.special {
            // The current address space is read when counting begins.
            Some(Special::LoadCr3(_)) if self.level == Level::Off => {}
            Some(_) => self.call(callbacks::at_special, cb_flags::RW_REGS_PC),
            None => {}
        }
        if self.level >= Level::Basic {
            self.tally();
        }
        match self.level {
            Level::Off | Level::Basic => {}
            Level::DataAddresses => self.on_access(callbacks::at_address),
            Level::Microarchitecture => self.on_access(callbacks::at_access),
        }
    }

    /// Before the instruction: whether the one before it exhausted a tally.
    fn check_boundary(&self, first_of_block: bool) {
        let insn = self.insn;
        if insn.repeats {
            self.call(callbacks::at_repetition, cb_flags::NO_REGS);
        }
        if self.level == Level::Microarchitecture {
            self.call(callbacks::at_step, cb_flags::NO_REGS);
        }
        if first_of_block {
            self.call_if(callbacks::at_boundary, cb_flags::RW_REGS_PC, cond::NE, offset::ATTENTION, 0);
        }
        let tally = offset::instructions(insn.privilege);
        self.call_if(callbacks::at_boundary, cb_flags::RW_REGS_PC, cond::GE, tally, EXHAUSTED);
    }

    /// Counts what the instruction is. If it faults, [`crate::boundary::delivered`] takes it back.
    fn tally(&self) {
        let insn = self.insn;
        self.inline(op::ADD_U64, offset::instructions(insn.privilege), 1);
        self.inline(op::STORE_U64, offset::LAST, self.address());
        if insn.branch.is_some() {
            self.inline(op::ADD_U64, offset::branches(insn.privilege), 1);
        }
        if insn.may_switch_privilege() {
            // Counters of both privileges must divide what may pass anew.
            self.inline(op::STORE_U64, offset::ATTENTION, 1);
        }
        if self.level >= Level::DataAddresses && (insn.repeats || insn.wide > 0) {
            self.inline(op::STORE_U64, offset::LOAD_ADDRESS, NO_ADDRESS);
            self.inline(op::STORE_U64, offset::STORE_ADDRESS, NO_ADDRESS);
        }
        if insn.repeats {
            self.tally_iterations();
            return;
        }
        if insn.loads {
            self.inline(op::ADD_U64, offset::loads(insn.privilege), 1);
        }
        if insn.stores {
            self.inline(op::ADD_U64, offset::stores(insn.privilege), 1);
        }
    }

    /// A repeated string instruction accesses memory as often as it iterates: counted by access, and looked at behind it
    /// because no headroom foresees how often.
    fn tally_iterations(&self) {
        let privilege = self.insn.privilege;
        self.inline(op::STORE_U64, offset::ATTENTION, 1);
        self.inline_access(mem::R, offset::loads(privilege));
        self.inline_access(mem::W, offset::stores(privilege));
    }

    fn address(&self) -> u64 {
        std::ptr::from_ref(self.insn).expose_provenance() as u64
    }

    fn data(&self) -> *mut c_void {
        std::ptr::from_ref(self.insn).cast_mut().cast()
    }

    fn call(&self, callback: VcpuCallback, flags: c_int) {
        let register = self.machine.api.qemu_plugin_register_vcpu_insn_exec_cb;
        // SAFETY: the handle is of the block being translated; the instruction is kept as long as that.
        unsafe { register(self.handle, callback, flags, self.data()) }
    }

    fn call_if(&self, callback: VcpuCallback, flags: c_int, condition: c_int, slot: usize, operand: u64) {
        let register = self.machine.api.qemu_plugin_register_vcpu_insn_exec_cond_cb;
        // SAFETY: as above; the slot is a member of the scoreboard's entry.
        unsafe {
            register(self.handle, callback, flags, condition, self.machine.slot(slot), operand, self.data())
        }
    }

    fn inline(&self, operation: c_int, slot: usize, operand: u64) {
        let register = self.machine.api.qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu;
        // SAFETY: as above.
        unsafe { register(self.handle, operation, self.machine.slot(slot), operand) }
    }

    fn inline_access(&self, direction: c_int, slot: usize) {
        let register = self.machine.api.qemu_plugin_register_vcpu_mem_inline_per_vcpu;
        // SAFETY: as above.
        unsafe { register(self.handle, direction, op::ADD_U64, self.machine.slot(slot), 1) }
    }

    fn on_access(&self, callback: MemoryCallback) {
        let register = self.machine.api.qemu_plugin_register_vcpu_mem_cb;
        // SAFETY: as above.
        unsafe { register(self.handle, callback, cb_flags::NO_REGS, mem::RW, self.data()) }
    }
}
