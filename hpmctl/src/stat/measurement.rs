//! One measurement, from its start to its end.

use std::time::{Duration, Instant};

use anyhow::Result;
use libhpm::analysis::topdown::Plan;
use libhpm::export::counts_remarks;
use libhpm::source::Source;
use libhpm::trace::Totals;

use super::breakdown::{Breakdown, Who};
use super::out::Out;
use super::{Counted, EventCount, Slice, StatArgs, event_counts, sources, topdown};
use crate::measure::tsc_to_ns;
use crate::workload::{End, Workload, heading};

/// Longest time between two looks at the source.
const LOOK: Duration = Duration::from_millis(100);

/// Measures once, and waits for a program that is measured for a part of its time only; intervals go to `out` as they pass.
pub(super) fn once(args: &StatArgs, out: &mut Out) -> Result<(Counted, End)> {
    let (counted, mut workload, end) = measured(args, out)?;
    Ok((counted, workload.outlived(end)?))
}

/// The same without waiting, so that the result can be shown before.
pub(super) fn measured(args: &StatArgs, out: &mut Out) -> Result<(Counted, Workload, End)> {
    let prepared = sources::prepare(args)?;
    let mut workload = Workload::new(&args.target)?;
    let mut source = prepared.open(args, &workload)?;
    let mut measured = Measured {
        args,
        topdown: prepared.topdown(),
        begun: Instant::now(),
        breakdown: Breakdown::new(args.per()),
        parts: Vec::new(),
        skipped: Totals::default(),
        missed: false,
        before: Totals::default(),
    };
    source.start(&mut measured.breakdown)?;
    // What was looked at before is no part of the measurement.
    measured.begun = Instant::now();
    workload.begin()?;
    let end = match measured.skip(&mut workload, source.as_mut())? {
        Some(early) => early,
        None => measured.wait(&mut workload, source.as_mut(), out)?,
    };
    let of_workload = measured.begun.elapsed();
    source.stop()?;
    // CPUs are measured until they have stopped, which may be well after a program whose time is no longer than its own.
    let ended = if args.target.is_of_cpus() { measured.begun.elapsed() } else { of_workload };
    source.take(&mut measured.breakdown)?;
    let elapsed = source.elapsed().unwrap_or(ended);
    if measured.missed {
        measured.leave_out(source.as_ref())?;
    } else if args.interval.is_some() {
        measured.interval(source.as_ref(), elapsed, out)?;
    }
    let of_program = workload.cpu_time().filter(|_| args.delay.is_none() && !args.target.no_inherit);
    let counted = Counted {
        user_ns: of_program.map(|time| time.user.as_nanos() as u64),
        system_ns: of_program.map(|time| time.system.as_nanos() as u64),
        ..measured.counted(&prepared.line(), source.as_ref(), elapsed, end)?
    };
    source.check()?;
    drop(source);
    Ok((counted, workload, end))
}

struct Measured<'a> {
    args: &'a StatArgs,
    topdown: Option<&'a Plan>,
    begun: Instant,
    breakdown: Breakdown,
    /// Sums of each thread or CPU over the intervals that have passed.
    parts: Vec<(Who, Totals)>,
    /// Sums when the delay was over, which are left out.
    skipped: Totals,
    /// The end came before that.
    missed: bool,
    /// Sums when the last interval ended.
    before: Totals,
}

impl Measured<'_> {
    /// Leaves out what comes until the delay is over, if there is one; the end, if it comes before.
    fn skip(&mut self, workload: &mut Workload, source: &mut dyn Source) -> Result<Option<End>> {
        let Some(delay) = self.args.delay else { return Ok(None) };
        loop {
            let left = delay.saturating_sub(self.begun.elapsed());
            if left == Duration::ZERO {
                break;
            }
            let gone = !workload.is_program() && source.is_over();
            let end = workload.wait(Some(left.min(LOOK)))?.or(gone.then_some(End::Stopped));
            if end.is_some() {
                self.missed = true;
                return Ok(end);
            }
            source.take(&mut self.breakdown)?;
        }
        source.take(&mut self.breakdown)?;
        self.leave_out(source)?;
        self.begun = Instant::now();
        Ok(None)
    }

    /// Leaves out what has been counted until now.
    fn leave_out(&mut self, source: &dyn Source) -> Result<()> {
        self.breakdown.take();
        self.skipped = source.totals()?;
        self.before = self.skipped.clone();
        Ok(())
    }

    /// Waits for the end. A process may also leave the session by becoming what the session may not see.
    fn wait(&mut self, workload: &mut Workload, source: &mut dyn Source, out: &mut Out) -> Result<End> {
        let interval = self.args.interval.map(Duration::from_millis);
        let mut next = interval;
        loop {
            let gone = !workload.is_program() && source.is_over();
            let now = source.elapsed().unwrap_or_else(|| self.begun.elapsed());
            let left = self.args.target.duration.map(|whole| whole.saturating_sub(self.begun.elapsed()));
            if left == Some(Duration::ZERO) {
                return Ok(End::Stopped);
            }
            let until = next.map_or(LOOK, |next| next.saturating_sub(now).min(LOOK));
            let until = left.map_or(until, |left| left.min(until).max(Duration::from_millis(1)));
            let look = if workload.is_replay() { Duration::from_millis(1) } else { until };
            match workload.wait(Some(look))? {
                Some(end) => return Ok(end),
                None if gone => return Ok(End::Stopped),
                None => source.take(&mut self.breakdown)?,
            }
            let now = source.elapsed().unwrap_or_else(|| self.begun.elapsed());
            if let (Some(length), Some(due)) = (interval, next)
                && now >= due
            {
                self.interval(source, now, out)?;
                // Of a program the result is still wanted, and its work; what else is measured goes on without.
                if out.is_over() && !workload.is_program() {
                    return Ok(End::Stopped);
                }
                // Intervals that were slept through are one long one.
                let passed = now.as_nanos() / length.as_nanos() + 1;
                next = Some(length.saturating_mul(u32::try_from(passed).unwrap_or(u32::MAX)));
            }
        }
    }

    /// Shows what was counted since the last interval.
    fn interval(&mut self, source: &dyn Source, now: Duration, out: &mut Out) -> Result<()> {
        let until_ns = Some(now.as_nanos() as u64);
        if self.args.per().is_some() {
            let parts = self.breakdown.take();
            for (who, sums) in &parts {
                out.interval(&self.slice(source, Some(who.clone()), until_ns, sums))?;
            }
            self.add(parts);
            return Ok(());
        }
        let totals = source.totals()?;
        out.interval(&self.slice(source, None, until_ns, &totals.since(&self.before)))?;
        self.before = totals;
        Ok(())
    }

    fn slice(&self, source: &dyn Source, who: Option<Who>, until_ns: Option<u64>, sums: &Totals) -> Slice {
        let meta = source.meta();
        let ns = |ticks| tsc_to_ns(ticks, meta.clock.tsc_khz);
        let events = event_counts(&meta.events, sums, ns);
        let topdown = topdown::shares(self.topdown, &events);
        Slice { who, until_ns, on_cpu_ns: ns(sums.on_cpu_tsc), events, topdown }
    }

    fn add(&mut self, parts: Vec<(Who, Totals)>) {
        for (who, sums) in parts {
            let known = self.parts.iter_mut().find(|(known, _)| same(known, &who));
            match known {
                Some((_, all)) => all.add(&sums),
                None => self.parts.push((who, sums)),
            }
        }
    }

    fn counted(mut self, line: &str, source: &dyn Source, elapsed: Duration, end: End) -> Result<Counted> {
        let rest = self.breakdown.take();
        self.add(rest);
        let (meta, until_now) = (source.meta(), source.totals()?);
        let totals = until_now.since(&self.skipped);
        let whole = self.slice(source, None, None, &totals);
        let parts =
            self.parts.iter().map(|(who, sums)| self.slice(source, Some(who.clone()), None, sums)).collect();
        let in_parts = self.args.per().is_some() || self.args.interval.is_some();
        let in_turns = whole.events.iter().any(EventCount::took_turns);
        Ok(Counted {
            source: line.to_owned(),
            target: heading(&self.args.target),
            events: whole.events,
            elapsed_ns: elapsed.as_nanos() as u64,
            on_cpu_ns: whole.on_cpu_ns,
            user_ns: None,
            system_ns: None,
            idle_included: meta.source == "perf_event"
                && self.args.per().is_none()
                && self.args.target.is_of_cpus(),
            of_threads: meta.source == "driver"
                && self.args.target.trace.is_none()
                && !self.args.target.is_of_cpus(),
            pmis: totals.pmis,
            msr_reads: totals.msr_reads,
            msr_writes: totals.msr_writes,
            // Those of before are missing from then on, too.
            processes_left_out: until_now.processes_left_out,
            quanta_lost: totals.quanta_lost,
            exit_status: end.of_program(),
            missed: self.missed,
            delay_ns: self.args.delay.map(|delay| delay.as_nanos() as u64),
            topdown: whole.topdown,
            warnings: warnings(source, in_parts, in_turns)
                .into_iter()
                .chain(self.args.delay.filter(|_| self.missed).map(|delay| {
                    format!(
                        "nothing was counted: the measurement ended before its delay of {delay:?} was over"
                    )
                }))
                .chain(sources::left_out(self.args, meta))
                .collect(),
            topdown_remark: self.topdown.map_or_else(String::new, Plan::remark),
            parts,
        })
    }
}

/// What a replayed trace lacks, what that means for the counts, and what those are, `in_parts` of threads, CPUs or intervals.
fn warnings(source: &dyn Source, in_parts: bool, in_turns: bool) -> Vec<String> {
    let mut warnings = source.missing();
    if !warnings.is_empty() && source.is_over() && source.meta().totals.is_some() {
        warnings.push(
            "the counts of everything are those that the recording kept; those of threads, CPUs and intervals lack what is missing"
                .to_owned(),
        );
    }
    if source.meta().source == "perf.data" {
        warnings.push(
            "the counts are approximated: they are sums of the samples' periods, because a file of `perf record` has no others; those of \
             clocks are the time on CPUs, in user and kernel mode"
                .to_owned(),
        );
    } else {
        warnings.extend(counts_remarks(source.meta(), in_parts));
    }
    if in_parts && in_turns && source.elapsed().is_some() {
        warnings.push(
            "the counts of threads, CPUs and intervals are not scaled, because a trace does not tell when which event was on"
                .to_owned(),
        );
    }
    warnings
}

/// The same thread or CPU; a thread may have got another name.
fn same(one: &Who, other: &Who) -> bool {
    match (one, other) {
        (
            Who::Thread { pid, tid, earlier, .. },
            Who::Thread { pid: other, tid: other_tid, earlier: other_earlier, .. },
        ) => (pid, tid, earlier) == (other, other_tid, other_earlier),
        (one, other) => one == other,
    }
}
