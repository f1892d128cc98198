//! Making a CPU ready to write a thread's records: its segment, its positions and periods.

use super::super::buffer::{self, Place};
use super::super::counters::Now;
use super::super::period::LEFT_MIN;
use super::super::port::{Port, Rings};
use super::super::program::Program;
use super::super::quantum::Stay;
use super::super::session::Session;
use super::super::stacks;
use super::{Held, Threshold, Unit};

impl Unit {
    /// Finds out whether the stay may have records written now.
    pub(super) fn look<R: Rings>(&mut self, session: &mut Session<'_, R>, stay: &mut Stay) {
        self.guard.look(stay.start_tsc, &session.limits);
        stay.throttled = self.guard.is_throttled();
        stay.paused = session.is_paused();
    }

    /// Makes the CPU ready for the rest of a stay that was cut. `forgotten`: the counters are not where they were. Whether the counters run
    /// on already, because nothing stopped or changed them.
    pub(super) fn go_on<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        stay: &mut Stay,
        mut forgotten: bool,
    ) -> bool {
        let Some(hardware) = &self.hardware else { return false };
        forgotten |= hardware.forgets_overflows() && stay.is_overdue(session.program);
        self.look(session, stay);
        // PEBS_ENABLE stays as it is when the segment and the periods do, so that a counter that has overflowed still
        // writes its record.
        let goes_on = self.can_go_on(session, stay) && !forgotten;
        if goes_on {
            self.set_threshold(port, session);
        } else {
            stay.armed &= !forgotten;
            self.arm(port, session, stay);
        }
        goes_on && self.hardware.as_ref().is_some_and(|hardware| !hardware.is_stopped())
    }

    /// Puts a segment into the window, if there is one, and the thread's positions into its sampling counters. The PMU
    /// must be stopped, or rest, and the stay looked at.
    pub(super) fn arm<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        stay: &mut Stay,
    ) {
        let Some(hardware) = &mut self.hardware else { return };
        let several = session.program.has_several_samplers();
        let was_armed = stay.armed;
        let goes_on = was_armed && !several && !stay.is_overdue(session.program);
        if !goes_on {
            // A counter has overflowed, or may have, and waits to write its record: the window must not change under it, and the
            // record must not become another thread's.
            hardware.stop(port);
        }
        if session.program.pebs.is_some() && several {
            // A record says by the overflow indications which counters it is for; none may be left of another thread. Those of
            // counters that interrupt stay until their NMI has come, which is claimed by them.
            hardware.reset_status(port, session.program.sampling_bits());
        }
        if session.state.segments.current().is_none() {
            if !session.state.segments.has_free() {
                session.take_back();
            }
            session.state.segments.begin();
            session.publish();
        }
        stay.armed = session.state.segments.current().is_some() && !stay.throttled && !stay.paused;
        self.set_counters(port, session, stay, (goes_on, was_armed));
        self.fill_window(port, session);
    }

    /// Fixes the periods of the span that begins, and writes the thread's positions into its sampling counters, unless it `goes_on`
    /// where they are. In windows it does if it `was_armed`, but for a record that is due; else the window begins, too.
    fn set_counters<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        stay: &mut Stay,
        (goes_on, was_armed): (bool, bool),
    ) {
        let Some(hardware) = &mut self.hardware else { return };
        let (threads, place) = (session.threads, stay.place);
        let shift = |number| place.map(|place| threads.shift(place, number));
        let before = (stay.positions.left, *session.state.periods.in_use());
        session.state.periods.renew(session.program, &mut stay.positions, shift, stay.start_tsc);
        for sampler in session.program.sampling_counters() {
            let place = usize::from(sampler.place);
            // One that overflowed without its record must overflow again.
            let left = stay.positions.left[place].clamp(LEFT_MIN, hardware.period_max());
            if let (true, Some(ibs)) = (session.program.uses_ibs(), hardware.ibs_mut()) {
                ibs.set(sampler.counter, session.program.ibs_control(sampler.counter), left as u64);
                continue;
            }
            // One that would interrupt, or write a record, and must not, starts as far from its overflow as it can.
            let far = !(stay.armed || session.program.is_precise() && hardware.can_forbid_records());
            let value = if far { hardware.far_value() } else { left.wrapping_neg() as u64 };
            let period = session.state.periods.in_use()[place];
            let same = (stay.positions.left[place], period) == (before.0[place], before.1[place]);
            let due = stay.positions.left[place] <= 0;
            let stays = if sampler.windowed { was_armed && !due } else { goes_on && same };
            if stays && stay.armed {
                continue;
            }
            hardware.set_global_ctrl(port, 0);
            hardware.write(port, sampler.counter, value);
            self.values[sampler.counter.place()] = value;
            if let Some(layout) = &session.program.pebs {
                hardware.set_reset(port, layout, sampler, period);
            }
        }
        // The sampling counters were all written, for which the PMU was stopped.
        if let (false, Some(window)) = (was_armed, session.program.window) {
            hardware.write(port, window.counter, window.length.wrapping_neg());
        }
    }

    /// Makes window and DS area those of the session's current segment, if they are not.
    fn fill_window<P: Port, R: Rings>(&mut self, port: &mut P, session: &mut Session<'_, R>) {
        let (Some(layout), Some((segment, filled))) =
            (&session.program.pebs, session.state.segments.current())
        else {
            return;
        };
        let wanted = (session.id, segment);
        if self.window == Some(wanted) {
            return self.set_threshold(port, session);
        }
        if let Some(hardware) = &mut self.hardware {
            hardware.set_global_ctrl(port, 0);
        }
        let slot = session.state.segments.slot(segment);
        let physical = if layout.is_architectural() {
            session.rings.show_segment(slot)
        } else {
            session.rings.map_segment(slot);
            0
        };
        buffer::describe(port, layout, &session.state.segments, Place { physical, filled });
        self.window = Some(wanted);
        self.threshold = None;
        self.set_threshold(port, session);
    }

    /// Wants a PMI when the segment is full, or the records are written that the CPU's ceiling allows, or after which periods that adapt
    /// are to be looked at; with stacks, at the next record.
    pub(super) fn set_threshold<P: Port, R: Rings>(&mut self, port: &mut P, session: &Session<'_, R>) {
        let (Some(pebs), Some((_, filled))) = (&session.program.pebs, session.state.segments.current())
        else {
            return;
        };
        let left = self.guard.records_left(&session.limits);
        let may_stay = |kept: &Threshold| {
            let bytes = u64::from(kept.at.saturating_sub(filled));
            filled < kept.good_to && bytes <= left.saturating_mul(pebs.record_size.into())
        };
        if self.threshold.as_ref().is_some_and(may_stay) {
            return;
        }
        let full = session.state.segments.full_at(pebs.record_size);
        let stacks = stacks::bytes_wanted(session.program) > 0;
        let records = if stacks { 1 } else { left.min(session.program.records_a_look()) };
        let bytes = records.saturating_mul(pebs.record_size.into());
        let at = u64::from(filled).saturating_add(bytes).min(full.into()) as u32;
        // One that comes a little earlier is good enough: each cut would move it on otherwise.
        let good_to = if at == full { u32::MAX } else { filled + at.saturating_sub(filled) / 2 + 1 };
        if self.threshold.is_none_or(|threshold| threshold.at != at) {
            buffer::set_threshold(port, pebs, at);
        }
        self.threshold = Some(Threshold { at, good_to });
    }

    /// Takes note of the position that a thread leaves in the counter.
    pub(super) fn hold(&mut self, program: &Program, stay: &Stay) {
        let keeps = self.hardware.as_ref().is_some_and(|hardware| !hardware.forgets_overflows());
        self.held = None;
        if keeps && stay.armed && program.pebs.is_some() && !program.has_several_samplers() {
            self.held = held(program, stay);
        }
    }

    /// Whether the thread of a stay that begins goes on where it was: the session's events are programmed, and nothing has been measured
    /// meanwhile. Afterwards nobody's position is held.
    pub(super) fn resume<R>(&mut self, session: &Session<'_, R>, stay: &mut Stay) -> bool {
        let here = self.held.take();
        stay.armed = here.is_some() && here == held(session.program, stay);
        stay.armed && self.can_go_on(session, stay)
    }

    /// Whether the records of a stay can go on to be written where they are, and from where the counters are.
    pub(super) fn can_go_on<R>(&self, session: &Session<'_, R>, stay: &Stay) -> bool {
        let segment = session.state.segments.current().map(|(segment, _)| (session.id, segment));
        let there = session.program.pebs.is_none() || self.window == segment;
        let held = stay.throttled || stay.paused;
        stay.armed && !held && !session.state.periods.is_stale() && segment.is_some() && there
    }

    /// Says on the thread's counter page what counts for it now.
    pub(super) fn show<R: Rings>(&self, session: &Session<'_, R>, stay: &Stay) {
        if let (Some(hardware), Some(page)) = (&self.hardware, session.counter_page(stay)) {
            let now = Now { hardware, program: session.program, values: &self.values, tsc: stay.start_tsc };
            now.attach(page);
        }
    }

    /// Lets the counters of the stay run.
    pub(super) fn start<P: Port>(&mut self, port: &mut P, program: &Program, stay: &Stay) {
        let Some(hardware) = &mut self.hardware else { return };
        hardware.set_pebs_enable(
            port,
            if stay.armed { program.pebs_enable } else { program.unarmed_pebs_enable() },
        );
        let running = if stay.armed { program.global_ctrl } else { program.global_ctrl_unarmed() };
        hardware.set_global_ctrl(port, running);
    }
}

fn held(program: &Program, stay: &Stay) -> Option<Held> {
    let sampler = program.sampling_counters().next()?;
    let left = stay.positions.left[usize::from(sampler.place)];
    Some(Held { session: stay.session, turn: stay.turn.number, tid: stay.thread.tid, left })
}
