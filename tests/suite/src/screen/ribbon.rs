//! Whether the ribbon of phases changes in time: what hpmtop told of it while it recorded, against what the detector says of the
//! recording.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use libhpm::analysis::phase::{Base, Detector, Rules, Signal, SubjectKind, subjects};
use libhpm::trace::{QuantumRow, TraceReader};
use serde_json::Value;

use crate::guest::screens::{RIBBON_SEEN, RIBBON_TRACE, Way};

/// The detector has to find so many changes, and hpmtop to tell its ribbon in so many states, before anything is proven.
const CHANGES_MIN: usize = 6;
const STATES_MIN: usize = 4;
/// How far apart two times may be that were computed from TSC ticks in different ways, in ns.
const ROUNDING_NS: i128 = 2;

/// An interval of the recording: when it ended, in ns, and the pattern that the detector found complete with it.
#[derive(Clone, Debug)]
struct Interval {
    end_ns: i128,
    pattern: Option<String>,
}

/// What hpmtop told: when, in ns of its own clock, and the ribbon then.
#[derive(Clone, Debug)]
struct Seen {
    now_ns: i128,
    intervals: usize,
    changes: usize,
    current: Option<String>,
    /// End of the ribbon's last interval.
    end_ns: Option<i128>,
}

/// Judges what [`crate::guest::screens::follow`] left.
///
/// # Errors
/// The ribbon is behind by more than an interval, says something else than the detector, or too little happened to prove it.
pub(crate) fn judge(folder: &Path, way: &Way) -> Result<String> {
    let printed = fs::read_to_string(folder.join(RIBBON_SEEN)).context("reading what hpmtop told")?;
    let told = printed.lines().map(parse).collect::<Result<Vec<Told>>>()?;
    let (seen, gone_ns) = while_it_ran(&told)?;
    compare(&detected(folder, way)?, &seen, gone_ns)
}

/// A line of hpmtop's: when, and the ribbon if there was one.
type Told = (i128, Option<Seen>);

/// Of what hpmtop told, what has a ribbon, and when it was gone: before the program runs there is none, and hpmtop forgets that of
/// a program that has ended.
fn while_it_ran(told: &[Told]) -> Result<(Vec<Seen>, Option<i128>)> {
    let began = || told.iter().skip_while(|(_, ribbon)| ribbon.is_none());
    let seen: Vec<Seen> = began().map_while(|(_, ribbon)| ribbon.clone()).collect();
    let shown = began().filter(|(_, ribbon)| ribbon.is_some()).count();
    ensure!(shown == seen.len(), "of {shown} ribbons {} came before one was missing", seen.len());
    Ok((seen, began().find(|(_, ribbon)| ribbon.is_none()).map(|(when, _)| *when)))
}

/// The detector's word on the recording.
fn detected(folder: &Path, way: &Way) -> Result<Vec<Interval>> {
    let reader = TraceReader::open(folder.join(RIBBON_TRACE)).context("opening what hpmtop recorded")?;
    let meta = reader.meta();
    let named = |name: &str| name.split(':').next() == Some(way.event);
    let event = meta.events.iter().position(|event| named(&event.name));
    let event = event.with_context(|| format!("{} was not recorded", way.event))?;
    let khz = i128::from(meta.clock.tsc_khz.max(1));
    let length = u64::from(way.phase_interval_ms) * meta.clock.tsc_khz;
    let all = subjects(reader.rows::<QuantumRow>(), SubjectKind::Process, length);
    let longest = all.into_iter().next().context("nothing ran")?;
    let intervals = longest.intervals.context("its quanta are in no order")?;
    let mut detector = Detector::new(Rules::NoiseGated, Signal::new(&[event], Base::Time));
    let told = intervals.iter().map(|interval| Interval {
        end_ns: i128::from(interval.end) * 1_000_000 / khz,
        pattern: detector.push(interval).occurrence.map(|occurrence| occurrence.key.to_string()),
    });
    Ok(told.collect())
}

/// A line of `hpmtop --batch --format json --screen phases`.
fn parse(line: &str) -> Result<Told> {
    let told: Value = serde_json::from_str(line).context("hpmtop printed no JSON")?;
    let ribbon = &told["rows"]["ribbon"];
    let number = |value: &Value| value.as_u64().unwrap_or(0) as usize;
    let now_ns = i128::from(told["time_ns"].as_u64().context("it does not say when")?);
    let seen = ribbon.is_object().then_some(Seen {
        now_ns,
        intervals: number(&ribbon["intervals"]),
        changes: number(&ribbon["changes"]),
        current: ribbon["current"].as_str().map(str::to_owned),
        end_ns: ribbon["end_ns"].as_u64().map(i128::from),
    });
    Ok((now_ns, seen))
}

/// Whenever hpmtop told its ribbon, all intervals but the last that had ended were in it, with all changes that the detector finds in
/// them; and it was gone only after the last of them had ended.
fn compare(detected: &[Interval], seen: &[Seen], gone_ns: Option<i128>) -> Result<String> {
    let all = detected.iter().filter(|interval| interval.pattern.is_some()).count();
    ensure!(all >= CHANGES_MIN, "the detector finds {all} changes in {} intervals, too few", detected.len());
    // hpmtop's clock begins at another time than the recording's: both tell the end of the same interval.
    let origin = |seen: &Seen| Some(detected.get(seen.intervals.checked_sub(1)?)?.end_ns - seen.end_ns?);
    let zero = seen.iter().find_map(origin).context("hpmtop told of no interval")?;
    if let Some((gone, last)) = gone_ns.zip(detected.last()) {
        let ended = last.end_ns - zero;
        ensure!(
            ended <= gone,
            "the ribbon was gone at {gone} ns, the program's last interval ended at {ended} ns"
        );
    }
    let (mut states, mut latest) = (Vec::new(), 0);
    for one in seen {
        ensure!(
            one.intervals <= detected.len(),
            "the ribbon has {} intervals of {}",
            one.intervals,
            detected.len()
        );
        let off = origin(one).map_or(0, |origin| (origin - zero).abs());
        ensure!(
            off <= ROUNDING_NS,
            "interval {} ended {off} ns apart in ribbon and recording",
            one.intervals
        );
        let ended = detected.iter().filter(|interval| interval.end_ns - zero <= one.now_ns).count();
        let behind = ended.saturating_sub(one.intervals);
        latest = latest.max(behind);
        ensure!(behind <= 1, "at {} ns the ribbon is {behind} intervals behind", one.now_ns);
        let until = &detected[..one.intervals];
        let changes = until.iter().filter(|interval| interval.pattern.is_some()).count();
        ensure!(
            one.changes == changes,
            "at {} ns the ribbon has changed {} times, the detector {changes} times",
            one.now_ns,
            one.changes
        );
        let current = until.iter().rev().find_map(|interval| interval.pattern.as_ref());
        ensure!(
            one.current.as_ref() == current,
            "at {} ns the ribbon shows {:?}, the detector {current:?}",
            one.now_ns,
            one.current
        );
        states.push(one.changes);
    }
    states.dedup();
    ensure!(states.len() >= STATES_MIN, "the ribbon was seen in {} states only: {states:?}", states.len());
    Ok(format!(
        "{all} changes in {} intervals, seen in {} states at {} times, at most {latest} interval behind",
        detected.len(),
        states.len(),
        seen.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 intervals of 10 ns from 1000 ns on, a change with each fourth; the ribbon is told every 15 ns.
    fn made(behind: usize) -> (Vec<Interval>, Vec<Seen>) {
        let pattern = |n: usize| (n % 4 == 3).then(|| format!("p{}", n / 4 % 3));
        let detected: Vec<Interval> =
            (0..40).map(|n| Interval { end_ns: 1010 + 10 * n as i128, pattern: pattern(n) }).collect();
        let seen = |n: i128| {
            let intervals = (15 * n / 10) as usize;
            let intervals = intervals.saturating_sub(behind).min(40);
            let until = &detected[..intervals];
            Seen {
                now_ns: 15 * n,
                intervals,
                changes: until.iter().filter(|interval| interval.pattern.is_some()).count(),
                current: until.iter().rev().find_map(|interval| interval.pattern.clone()),
                end_ns: until.last().map(|interval| interval.end_ns - 1000),
            }
        };
        let seen = (1..26).map(seen).collect();
        (detected, seen)
    }

    #[test]
    fn a_ribbon_may_be_an_interval_behind_and_no_more() {
        for behind in [0, 1] {
            let (detected, seen) = made(behind);
            compare(&detected, &seen, None).unwrap();
        }
        let (detected, seen) = made(2);
        let why = compare(&detected, &seen, None).unwrap_err().to_string();
        assert!(why.contains("2 intervals behind"), "{why}");
    }

    #[test]
    fn a_ribbon_that_shows_something_else_is_found() {
        let change = |change: &dyn Fn(&mut Vec<Seen>)| {
            let (detected, mut seen) = made(0);
            change(&mut seen);
            compare(&detected, &seen, None).unwrap_err().to_string()
        };
        assert!(change(&|seen| seen[20].changes -= 1).contains("has changed"));
        assert!(change(&|seen| seen[20].current = Some("q".into())).contains("shows"));
        assert!(change(&|seen| seen[20].end_ns = Some(1)).contains("apart"));
        assert!(change(&|seen| seen[20].intervals = 99).contains("99 intervals"));
    }

    #[test]
    fn a_ribbon_is_missing_only_before_and_after_the_program() {
        let (detected, seen) = made(0);
        let told: Vec<Told> = seen.into_iter().map(|one| (one.now_ns, Some(one))).collect();
        let around = [&[(1, None)], told.as_slice(), &[(400, None)]].concat();
        let (ran, gone) = while_it_ran(&around).unwrap();
        assert_eq!((ran.len(), gone), (told.len(), Some(400)));
        assert!(compare(&detected, &ran, gone).is_ok());
        let hole = [&told[..5], &[(90, None)], &told[6..]].concat();
        assert!(while_it_ran(&hole).unwrap_err().to_string().contains("missing"));
        let why = compare(&detected, &ran, Some(399)).unwrap_err().to_string();
        assert!(why.contains("gone at 399 ns"), "{why}");
    }

    #[test]
    fn nothing_is_proven_where_nothing_happens() {
        let (detected, seen) = made(0);
        let why =
            |detected: &[Interval], seen: &[Seen]| compare(detected, seen, None).unwrap_err().to_string();
        assert!(why(&detected[..8], &seen).contains("too few"));
        assert!(why(&detected, &[]).contains("no interval"));
        assert!(why(&detected, &seen[20..22]).contains("states only"));
        let quiet: Vec<Interval> =
            detected.iter().map(|interval| Interval { pattern: None, ..interval.clone() }).collect();
        assert!(why(&quiet, &seen).contains("too few"));
    }
}
