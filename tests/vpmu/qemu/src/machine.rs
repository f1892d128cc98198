//! The one virtual machine this plugin is loaded into.

#![allow(unsafe_code, reason = "the scoreboard is QEMU's memory")]

use crate::args::Args;
use crate::decode::Insn;
use crate::eilvt::ExtendedLvt;
use crate::ffi::{Api, Exports, Scoreboard, ScoreboardU64};
use crate::internals::Handles;
use crate::mode::Mode;
use crate::vcpu::{Slots, State};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use vpmu::truth::{Truth, TruthOptions};
use vpmu::{Pmu, PmuCore, SharedCache};

/// More vCPUs than anyone will start with TCG.
pub(crate) const MAX_VCPUS: usize = 64;

/// The machine, from the moment the plugin is installed.
static MACHINE: OnceLock<Machine> = OnceLock::new();

/// One vCPU.
pub(crate) struct Vcpu {
    pub(crate) index: u32,
    pub(crate) handles: Handles,
    pub(crate) extended_lvt: ExtendedLvt,
    /// Locked by the vCPU's own thread; by another only to publish the truth.
    state: Mutex<State>,
}

impl Vcpu {
    /// The model's state. A panic while it is locked aborts the program, so a poisoned lock is never seen.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything the vCPUs share.
pub(crate) struct Machine {
    pub(crate) api: Api,
    pub(crate) exports: Exports,
    pub(crate) args: Args,
    pub(crate) truth: Truth,
    pub(crate) llc: SharedCache,
    /// How many vCPUs there are.
    pub(crate) cpus: u32,
    pub(crate) mode: Mode,
    /// Guest time advances with instructions (-icount): clocks and interrupts are off limits inside a block.
    pub(crate) icount: OnceLock<bool>,
    scoreboard: *mut Scoreboard,
    vcpus: [OnceLock<Vcpu>; MAX_VCPUS],
    /// What the vCPUs of a core share, where a core has several.
    cores: [OnceLock<PmuCore>; MAX_VCPUS],
    /// The instructions that translated code refers to by address; emptied when QEMU empties its code buffer.
    insns: Mutex<Vec<Box<[Insn]>>>,
}

// SAFETY: the scoreboard pointer is only handed to QEMU's functions, which may be called from any thread.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

impl Machine {
    /// Makes the machine; a program has one.
    pub(crate) fn install(
        api: Api,
        exports: Exports,
        args: Args,
        llc: SharedCache,
        cpus: u32,
    ) -> &'static Self {
        MACHINE.get_or_init(|| {
            // SAFETY: called while the plugin is installed.
            let scoreboard = unsafe { (api.qemu_plugin_scoreboard_new)(size_of::<Slots>()) };
            let options = TruthOptions {
                page_table_isolation: args.page_table_isolation,
                pebs_log: args.pebs_log,
                branch_log: args.branch_log,
            };
            Self {
                truth: Truth::new(options),
                llc,
                cpus,
                mode: Mode::default(),
                icount: OnceLock::new(),
                scoreboard,
                vcpus: [const { OnceLock::new() }; MAX_VCPUS],
                cores: [const { OnceLock::new() }; MAX_VCPUS],
                insns: Mutex::default(),
                api,
                exports,
                args,
            }
        })
    }

    /// The machine, if installed.
    pub(crate) fn get() -> Option<&'static Self> {
        MACHINE.get()
    }

    pub(crate) fn vcpu(&self, index: u32) -> Option<&Vcpu> {
        self.vcpus.get(index as usize)?.get()
    }

    pub(crate) fn vcpus(&self) -> impl Iterator<Item = &Vcpu> {
        self.vcpus.iter().filter_map(OnceLock::get)
    }

    /// The PMU of a vCPU: one of its own, or that of its core. `None` if there are too many.
    fn pmu(&self, index: u32) -> Option<Pmu> {
        let profile = self.args.profile.of_cpu(index, self.cpus);
        let threads = u32::from(profile.pmu_threads());
        let core = self.cores.get((index / threads) as usize)?;
        let core = core.get_or_init(|| PmuCore::new(profile, self.args.pmu_options()));
        Some(Pmu::of_thread(core, (index % threads) as u8))
    }

    /// Adds a vCPU; `false` if there are too many.
    pub(crate) fn add_vcpu(&self, index: u32, handles: Handles) -> bool {
        let Some(place) = self.vcpus.get(index as usize) else { return false };
        let Some(pmu) = self.pmu(index) else { return false };
        let Ok(mut state) = State::new(self, index, pmu) else { return false };
        state.rearm(self.slots(index));
        place
            .set(Vcpu { index, handles, extended_lvt: ExtendedLvt::default(), state: Mutex::new(state) })
            .is_ok()
    }

    /// A vCPU's scoreboard entry. Not to be kept: QEMU moves it when vCPUs are added.
    pub(crate) fn slots(&self, index: u32) -> &Slots {
        // SAFETY: the scoreboard has an entry for every vCPU that exists.
        let entry = unsafe { (self.api.qemu_plugin_scoreboard_find)(self.scoreboard, index) };
        // SAFETY: an entry is as large as `Slots`, zeroed, and made of atomic integers; translated code writes it
        // word by word.
        unsafe { &*entry.cast::<Slots>() }
    }

    /// How translated code names the member of [`Slots`] at `offset`.
    pub(crate) fn slot(&self, offset: usize) -> ScoreboardU64 {
        ScoreboardU64 { score: self.scoreboard, offset }
    }

    /// Keeps the instructions of a block for as long as translated code may refer to them.
    pub(crate) fn keep(&self, insns: Box<[Insn]>) {
        self.insns.lock().unwrap_or_else(PoisonError::into_inner).push(insns);
    }

    /// QEMU has thrown all translated code away, with every vCPU stopped.
    pub(crate) fn forget_translations(&self) {
        let level_changed = self.mode.take_changed();
        let mut insns = self.insns.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: Vec<Box<[Insn]>> = self
            .vcpus()
            .filter_map(|vcpu| {
                let slots = self.slots(vcpu.index);
                // After a change of level the instruction may be one from long ago.
                let last = self.last_insn(slots).filter(|_| !level_changed);
                if last.is_none() {
                    vcpu.state().forget_stream();
                }
                let kept: Option<Box<[Insn]>> = last.map(|insn| Box::from([insn]));
                slots.set_last(kept.as_ref().map_or(0, |insn| insn.as_ptr().expose_provenance() as u64));
                kept
            })
            .collect();
        *insns = kept;
    }

    /// The instruction that began last on the vCPU whose entry this is.
    pub(crate) fn last_insn(&self, slots: &Slots) -> Option<Insn> {
        let address = slots.last();
        // SAFETY: the slot holds 0 or the address of an instruction kept since the last flush.
        (address != 0).then(|| unsafe { *std::ptr::with_exposed_provenance::<Insn>(address as usize) })
    }
}
