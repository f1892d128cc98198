//! Events that were sampled only where they are dense, in two traces.

use anyhow::{Result, bail};
use libhpm::trace::Event;

use super::DiffArgs;

/// That no event is to be estimated from samples that come only where it is dense.
///
/// # Errors
/// One is, in a sentence.
pub(super) fn check_windows(args: &DiffArgs, sides: [&Event; 2]) -> Result<()> {
    if args.absolute && sides.iter().any(|event| event.within.is_some()) {
        bail!(
            "{} was sampled only where it is dense (record --window), so that its samples do not tell how many events there were: leave \
             --absolute out, or choose another event by --event",
            sides[0].name
        );
    }
    Ok(())
}

/// What has to be known where the two recordings called different places dense, or one sampled all; a sentence.
pub(super) fn windows_differ([before, after]: [&Event; 2]) -> Option<String> {
    let either = before.within.is_some() || after.within.is_some();
    let alike = before.within == after.within && before.period == after.period;
    (either && !alike).then(|| {
        format!("{} was not sampled within the same windows before and after: their shares are of different places", before.name)
    })
}

#[cfg(test)]
mod tests {
    use libhpm::trace::Within;
    use tempfile::TempDir;

    use crate::diff::tests::{diff, trace, trace_within};

    #[test]
    fn of_dense_places_only_shares_are_compared() {
        let temp = TempDir::new().unwrap();
        let within = |events| Some(Within { event: "instructions".into(), events });
        let [before, after, longer] = [("a.hpm", 20_000), ("b.hpm", 20_000), ("c.hpm", 40_000)]
            .map(|(name, events)| trace_within(&temp, name, "load", [600, 300, 100], within(events)));
        let all = trace(&temp, "d.hpm", "load", [600, 300, 100]);
        let same = diff(&before, &after, &[]).unwrap();
        assert!(same.contains("period 1,000 within 20,000 instructions; none known to be lost"), "{same}");
        assert!(
            same.contains("shares are of these dense places") && !same.contains("same windows"),
            "{same}"
        );
        for other in [&longer, &all] {
            let told = diff(&before, other, &[]).unwrap();
            assert!(told.contains("load was not sampled within the same windows"), "{told}");
        }
        let refused = diff(&before, &after, &["--absolute"]).unwrap_err().to_string();
        assert!(
            refused.contains("do not tell how many events there were: leave --absolute out"),
            "{refused}"
        );
    }
}
