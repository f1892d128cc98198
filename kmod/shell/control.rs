// SPDX-License-Identifier: GPL-2.0
//! A file descriptor of `/dev/hpm`, and what its ioctls do.

use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};

use kernel::bindings;
use kernel::new_poll_condvar;
use kernel::prelude::*;
use kernel::sync::poll::PollCondVar;
use kernel::sync::{global_lock, Arc, SetOnce};

use super::every_cpu::Plugged;
use super::interrupts::local_interrupt_disable;
use super::owner::Owner;
use super::programs::Programs;
use super::reports::Follower;
use super::request::{error_of, serve, Failure};
use super::session::Session;
use super::target::current_tid;
use super::{counters, cpu, machine, markers, owner, registry};
use crate::hpm_abi::{
    CounterRequest, Envelope, Info, Mark, MarkerPageRequest, Reason, SessionConfig, Totals, IOCTL_CONFIGURE,
    IOCTL_COUNTERS, IOCTL_FLUSH, IOCTL_FOLLOW, IOCTL_INFO, IOCTL_MARK, IOCTL_MARKER_PAGE, IOCTL_READ,
    IOCTL_START, IOCTL_STOP, IOCTL_TOTALS,
};
use crate::hpm_core::Refusal;

global_lock! {
    // SAFETY: `set_up` initialises it before the device exists.
    unsafe(uninit) static OWNER: Mutex<Owner> = Owner::new();
}

/// Initialises the lock that orders configuring, starting and stopping.
///
/// # Safety
/// Called once, before anything else here.
pub(super) unsafe fn set_up() {
    // SAFETY: The caller's promise.
    unsafe { OWNER.init() };
}

/// An open file.
pub(super) struct Descriptor {
    readers: Arc<PollCondVar>,
    /// Set once, under the lock.
    session: SetOnce<KBox<Session>>,
    /// The session is started. Changed under the lock.
    running: AtomicBool,
    markers: markers::Owner,
    /// Somebody has asked for one, or has it.
    follows: AtomicBool,
    /// Set once.
    follower: SetOnce<Pin<KBox<Follower>>>,
}

impl Descriptor {
    /// A file that is not a session yet.
    pub(super) fn new() -> Result<Self> {
        let readers = Arc::pin_init(new_poll_condvar!("hpm readers"), GFP_KERNEL)?;
        Ok(Self {
            readers,
            session: SetOnce::new(),
            running: AtomicBool::new(false),
            markers: markers::Owner::new(),
            follows: AtomicBool::new(false),
            follower: SetOnce::new(),
        })
    }

    /// The session, once it is configured.
    pub(super) fn session(&self) -> Option<&Session> {
        self.session.as_ref().map(|session| &**session)
    }

    /// Whoever waits for something to read.
    pub(super) fn readers(&self) -> &PollCondVar {
        &self.readers
    }

    /// The marker pages that were made by this file.
    pub(super) fn markers(&self) -> &markers::Owner {
        &self.markers
    }

    /// What it is told of the session's processes, if it asked.
    pub(super) fn follower(&self) -> Option<&Follower> {
        self.follower.as_ref().map(|follower| &**follower)
    }

    /// Serves an ioctl.
    ///
    /// # Errors
    /// `ENOTTY` for a number that is none; else see [`serve`].
    pub(super) fn ioctl(&self, request: u32, address: usize) -> Result {
        match request {
            IOCTL_INFO => serve(address, |info| {
                describe(info);
                Ok(())
            }),
            IOCTL_CONFIGURE => serve(address, |config| self.configure(config)),
            IOCTL_START => serve(address, |_: &mut Envelope| self.start()),
            IOCTL_STOP => serve(address, |_: &mut Envelope| self.stop()),
            IOCTL_FLUSH => serve(address, |_: &mut Envelope| self.flush()),
            IOCTL_TOTALS => serve(address, |totals| self.totals(totals)),
            IOCTL_MARK => serve(address, set_marker),
            IOCTL_MARKER_PAGE => serve(address, |request: &mut MarkerPageRequest| {
                request.offset = self.markers.page_of(current_tid())?;
                Ok(())
            }),
            IOCTL_COUNTERS => serve(address, |request| self.counters(request)),
            IOCTL_FOLLOW => serve(address, |_: &mut Envelope| self.follow()),
            IOCTL_READ => serve(address, |reading| counters::read(self.configured()?, reading)),
            _ => Err(ENOTTY),
        }
    }

    fn configured(&self) -> Result<&Session, Failure> {
        self.session().ok_or(Refusal::new(Reason::NotConfigured, [0; 2]).into())
    }

    fn configure(&self, config: &mut SessionConfig) -> Result<(), Failure> {
        let mut owner = OWNER.lock();
        if self.session().is_some() {
            return Err(Refusal::new(Reason::Configured, [0; 2]).into());
        }
        if owner.is_asleep() {
            return Err(error_of(bindings::EAGAIN).into());
        }
        owner.check_room()?;
        // An older caller's argument was shorter; what it did not send is zero, as if it had sent this driver's.
        let size = core::mem::replace(&mut config.envelope.size, size_of::<SessionConfig>() as u32);
        let programs = Programs::new(config);
        config.envelope.size = size;
        let bytes = self.open_session(&mut owner, programs?, config.segment_bytes)?;
        config.segment_bytes = if config.segments > 0 { bytes } else { 0 };
        Ok(())
    }

    /// Returns the bytes of a segment, which should be `segment_bytes`.
    fn open_session(
        &self,
        owner: &mut Owner,
        mut programs: Programs,
        segment_bytes: u32,
    ) -> Result<u32, Failure> {
        owner.prepare()?;
        programs.enlarge_segments(segment_bytes.min(cpu::window_bytes()));
        let segment_bytes = programs.any().config().segment_bytes;
        let session = self.boxed(programs)?;
        owner.add_session(&session)?;
        self.session.populate(session);
        Ok(segment_bytes)
    }

    /// Not inlined, because a session's memory on the kernel's stack must be gone before a CPU's PMU is acquired, which takes some,
    /// too.
    #[inline(never)]
    fn boxed(&self, programs: Programs) -> Result<KBox<Session>, Failure> {
        let session = Session::new(programs, self.readers.clone())?;
        Ok(KBox::new(session, GFP_KERNEL).map_err(Error::from)?)
    }

    fn start(&self) -> Result<(), Failure> {
        let owner = OWNER.lock();
        let session = self.configured()?;
        if self.running.load(Ordering::Relaxed) {
            return Err(error_of(bindings::EALREADY).into());
        }
        session.check_given_up()?;
        session.check_virtualisation()?;
        let plugged = Plugged::hold();
        owner.complete(session, &plugged)?;
        if let Err(refusal) = registry::insert(session) {
            unload(session, &plugged);
            return Err(refusal.into());
        }
        self.running.store(true, Ordering::Relaxed);
        session.forget_gone();
        plugged.on_online(|cpu, irq| cpu.choose_again(irq));
        Ok(())
    }

    fn stop(&self) -> Result<(), Failure> {
        let _owner = OWNER.lock();
        self.configured()?;
        self.stop_locked();
        Ok(())
    }

    /// Ends monitoring if it runs. The caller holds the lock.
    fn stop_locked(&self) {
        let Some(session) = self.session() else { return };
        if !self.running.swap(false, Ordering::Relaxed) {
            return;
        }
        let plugged = Plugged::hold();
        if session.is_shared() {
            // Once it is out of the registry, only its own CPU's interrupt tells it how long it has waited.
            flush(session, &plugged);
        }
        registry::remove(session);
        unload(session, &plugged);
        session.wake_readers();
    }

    fn flush(&self) -> Result<(), Failure> {
        let session = self.configured()?;
        flush(session, &Plugged::hold());
        session.wake_readers();
        Ok(())
    }

    fn follow(&self) -> Result<(), Failure> {
        let session = self.configured()?;
        if self.follows.swap(true, Ordering::Relaxed) {
            return Err(error_of(bindings::EALREADY).into());
        }
        let begun = Follower::begin(session, self.readers.clone());
        if begun.is_err() {
            self.follows.store(false, Ordering::Relaxed);
        }
        self.follower.populate(begun?);
        Ok(())
    }

    fn counters(&self, request: &mut CounterRequest) -> Result<(), Failure> {
        let _owner = OWNER.lock();
        Ok(counters::request(self.configured()?, request)?)
    }

    fn totals(&self, totals: &mut Totals) -> Result<(), Failure> {
        let session = self.configured()?;
        *totals = Totals { envelope: totals.envelope, ..Totals::default() };
        let plugged = Plugged::hold();
        plugged.on_online(|cpu, irq| {
            // SAFETY: A section holds the gate of its CPU.
            let added = cpu.section(irq, |_| unsafe { session.add_share_to(cpu.number(), totals) });
            if added.is_none() {
                // SAFETY: A CPU whose PMU is not held runs no section, and interrupts are off on it.
                unsafe { session.add_share_to(cpu.number(), totals) };
            }
        });
        for number in (0..machine::cpu_count()).filter(|&number| !machine::is_online(number)) {
            // SAFETY: A CPU that is not online runs no section, and cannot come online meanwhile.
            unsafe { session.add_share_to(number, totals) };
        }
        totals.threads_overflowed = session.threads().overflowed();
        totals.processes_left_out = session.processes_left_out();
        Ok(())
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let mut owner = OWNER.lock();
        self.stop_locked();
        if self.session().is_some() {
            owner.remove_session();
        }
    }
}

/// Ends the session's running quanta and waits.
fn flush(session: &Session, plugged: &Plugged) {
    // A CPU that has nothing to publish is not disturbed; what comes to it just now has nothing old.
    let is_busy = |number: &u32| {
        cpu::cpu(*number).is_some_and(|cpu| cpu.is_running(session) || cpu.waiting() & session.bit() != 0)
    };
    for number in (0..machine::cpu_count()).filter(is_busy) {
        plugged.on(number, |cpu, irq| {
            cpu.section(irq, |section| section.flush(session));
        });
    }
}

/// Ends what every CPU does for a session that the registry does not know any more. Also the moment after which no CPU looks at it:
/// interrupts are off while one does.
fn unload(session: &Session, plugged: &Plugged) {
    plugged.on_online(|cpu, irq| owner::unload(cpu, session, irq));
    session.forget_place();
}

/// Sets a marker in the calling thread.
fn set_marker(mark: &mut Mark) -> Result<(), Failure> {
    if mark.reserved != 0 {
        return Err(Refusal::field(core::mem::offset_of!(Mark, reserved)).into());
    }
    let irq = local_interrupt_disable();
    let kept = cpu::this_cpu(&irq).and_then(|cpu| cpu.section(&irq, |section| section.mark(mark)));
    mark.kept = kept.unwrap_or(false).into();
    if mark.kept == 0 {
        // Nobody will take what waits in the thread's page either: it need not ask again before the page is full.
        markers::discard(&irq);
    }
    Ok(())
}

fn describe(info: &mut Info) {
    let envelope = info.envelope;
    *info = Info { envelope, ..Info::default() };
    machine::describe(info);
    OWNER.lock().describe(info);
}

/// The machine is going down.
pub(super) fn suspend() {
    OWNER.lock().suspend();
}

/// The machine sleeps, unless somebody is in the middle of a request: he may have been stopped there (a wait for a file server counts as a
/// place to stop, and memory that he wants may come to one), and whoever waited for him then would wait for ever.
pub(super) fn try_suspend() -> bool {
    OWNER.try_lock().map(|mut owner| owner.suspend()).is_some()
}

/// The machine runs again.
pub(super) fn resume() {
    OWNER.lock().resume();
}
