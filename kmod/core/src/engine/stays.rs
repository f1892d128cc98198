//! One stay of a thread on a CPU: it begins, is cut into quanta, and ends.

use super::super::abi::QuantumEnd;
use super::super::counters::Now;
use super::super::hardware::Hardware;
use super::super::layout::RecordLayout;
use super::super::lbr::Holder;
use super::super::port::{Port, Rings};
use super::super::quantum::{close, Ending, Stay};
use super::super::session::{Session, Thread};
use super::super::threads::{self, Positions};
use super::super::turns::Turn;
use super::Engine;

impl Engine {
    /// `read`: the counters were read and have not run since.
    pub(super) fn begin<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        thread: Thread,
        mut read: bool,
    ) {
        let unit = &mut self.unit;
        let Some(hardware) = &mut unit.hardware else { return };
        let entered = enter(port, session, thread, self.cpu);
        let program = session.program;
        // When another thread's stay ended just now.
        let noticed = read;
        // A sampling session's counters have stood still since they were read.
        read |= hardware.is_stopped() || core::mem::take(&mut self.resting);
        let wanted = Some((session.id, entered.turn.number));
        if !noticed && (self.loaded != wanted || session.restarts_at_cuts()) {
            unit.intruded |= hardware.notice_others(port);
        }
        if self.loaded != wanted {
            session.state.absent = program.absent();
            hardware.stop(port);
            hardware.load(port, program);
            self.loaded = wanted;
            // The next turn's events may be those whose position is held, but are not where they were.
            unit.held = None;
            read = false;
        }
        if !read {
            hardware.read_all(port, program, &mut unit.values);
        }
        let Entered { place, positions, turn, page } = entered;
        let stay = self.stay.insert(Stay {
            session: session.id,
            thread,
            start_tsc: port.rdtsc(),
            place,
            positions,
            armed: false,
            throttled: false,
            paused: false,
            turn,
            page,
        });
        if program.samples() {
            unit.look(session, stay);
            if unit.resume(session, stay) {
                unit.set_threshold(port, session);
            } else {
                unit.arm(port, session, stay);
            }
        }
        if let Some(branches) = &program.branches {
            let holder = Holder { session: session.id, cpu: self.cpu, place };
            self.branches.enter(port, branches, holder, session.threads);
            let version = unit.hardware.as_ref().map_or(0, Hardware::perfmon_version);
            branches.thaw_status(port, version);
        }
        unit.show(session, stay);
        unit.start(port, program, stay);
    }

    /// `aside`: only kernel code runs until the next call. False when no thread of the session runs.
    pub(super) fn end<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        ending: Ending,
        aside: bool,
    ) -> bool {
        let (unit, Some(stay)) = (&mut self.unit, &mut self.stay) else { return false };
        let Some(hardware) = &mut unit.hardware else { return false };
        if stay.session != session.id {
            return false;
        }
        session.select(stay.turn);
        self.resting = aside && session.rests_in_kernel();
        if session.restarts_at_cuts() {
            unit.intruded |= hardware.notice_others(port);
        }
        if hardware.forgets_overflows() && session.program.samples() {
            hardware.stop(port);
        } else if session.program.samples() && !self.resting {
            hardware.set_global_ctrl(port, 0);
        }
        let program = session.program;
        let before = stay.page.map(|_| session.state.totals.counts);
        let records = close(hardware, &mut unit.values, port, session, stay, self.cpu, ending);
        unit.guard.add_records(records, &session.limits);
        if program.branches.is_some() {
            self.branches.leave(port, session.threads);
        }
        let now = Now { hardware, program, values: &unit.values, tsc: stay.start_tsc };
        now.leave(session, stay, before.as_ref(), ending.end);
        unit.hold(program, stay);
        if let Some(place) = stay.place {
            if ending.end == QuantumEnd::Exit {
                session.threads.free(place);
            } else {
                session.threads.store(place, &stay.positions);
                session.threads.store_turn(place, stay.turn);
            }
        }
        self.stay = None;
        true
    }

    pub(super) fn cut_metered<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        ending: Ending,
    ) {
        let (unit, Some(stay)) = (&mut self.unit, &mut self.stay) else { return };
        let Some(hardware) = &mut unit.hardware else { return };
        if stay.session != session.id {
            return;
        }
        session.select(stay.turn);
        let program = session.program;
        if session.restarts_at_cuts() {
            unit.intruded |= hardware.notice_others(port);
            hardware.set_global_ctrl(port, 0);
        }
        let before = stay.page.map(|_| session.state.totals.counts);
        let records = close(hardware, &mut unit.values, port, session, stay, self.cpu, ending);
        let now = Now { hardware, program, values: &unit.values, tsc: stay.start_tsc };
        now.advance_stay(session, stay, before.as_ref());
        if session.multiplexes() {
            session.select(stay.turn);
        }
        let program = session.program;
        let wanted = Some((session.id, stay.turn.number));
        let mut forgotten = false;
        if self.loaded != wanted {
            forgotten = hardware.forgets_positions();
            reload(hardware, port, session);
            hardware.read_all(port, program, &mut unit.values);
            self.loaded = wanted;
        }
        unit.guard.add_records(records, &session.limits);
        let runs = program.samples() && unit.go_on(port, session, stay, forgotten);
        stay.page = stay.page.or_else(|| session.page_of(stay.thread));
        unit.show(session, stay);
        if !runs {
            unit.start(port, program, stay);
        }
    }
}

/// Loads the program that has its turn now, while a thread stays.
fn reload<P: Port, R>(hardware: &mut Hardware, port: &mut P, session: &Session<'_, R>) {
    let program = session.program;
    hardware.load(port, program);
    if let Some(layout) = program.pebs.filter(RecordLayout::is_architectural) {
        // A counter's period is in a register that `load` has set to the one that was asked for.
        for sampler in program.sampling_counters() {
            let period = session.state.periods.in_use()[usize::from(sampler.place)];
            hardware.set_reset(port, &layout, sampler, period);
        }
    }
}

/// Where a thread goes on.
struct Entered {
    place: Option<threads::Place>,
    positions: Positions,
    turn: Turn,
    page: Option<usize>,
}

/// Finds the thread's place, or a new one, and selects the program of its turn.
fn enter<P: Port, R: Rings>(port: &mut P, session: &mut Session<'_, R>, thread: Thread, cpu: u32) -> Entered {
    let page = session.page_of(thread);
    if !session.program.samples() && !session.multiplexes() {
        return Entered { place: None, positions: Positions::NONE, turn: Turn::default(), page };
    }
    let periods = &mut session.state.periods;
    let fresh = || periods.first(session.program, port.rdtsc());
    let (place, positions) = session.threads.enter(thread, cpu, fresh);
    // A turn of a core of another type may be one more than this type has.
    let has = |turn: &Turn| usize::from(turn.number) < session.programs.len();
    let kept = place.and_then(|place| session.threads.turn(place)).filter(has);
    let turn = kept.unwrap_or_else(|| session.state.new_turn(session.programs.len()));
    session.select(turn);
    Entered { place, positions, turn, page }
}
