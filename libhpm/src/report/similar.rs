//! Names that are like one that is not there: what a mistyped one may have meant.

/// Below this, names have too little in common to be what was meant.
const SIMILAR: f64 = 0.8;
/// So many are enough to choose from.
const MOST: usize = 3;

/// Up to three of the names that are most like `wanted`, best first: those that have it within them, then those that are spelt alike.
pub fn similar<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let plain = |name: &str| name.trim_start_matches('_').to_ascii_lowercase();
    let wanted = plain(wanted);
    let score = |name: &'a str| {
        let own = plain(name);
        let within = !wanted.is_empty() && own.contains(&wanted);
        // Of those that have it the one with least else comes first.
        let score = if within { 2.0 - own.len() as f64 / 1e4 } else { strsim::jaro_winkler(&wanted, &own) };
        (score >= SIMILAR).then_some((score, name))
    };
    let mut scored: Vec<(f64, &str)> = names.into_iter().filter_map(score).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored.dedup();
    scored.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// The question behind a name that is not there, where there are names that are like it.
#[must_use]
pub fn did_you_mean<S: AsRef<str>>(names: &[S]) -> Option<String> {
    let names: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    let (last, first) = names.split_last()?;
    let first = if first.is_empty() { String::new() } else { format!("{} or ", first.join(", ")) };
    Some(format!("did you mean {first}{last}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_may_have_been_meant_are_listed() {
        let asked = [&["a", "b", "c"][..], &["a", "b"], &["a"], &[]].map(did_you_mean);
        let expected = ["did you mean `a`, `b` or `c`?", "did you mean `a` or `b`?", "did you mean `a`?"];
        assert_eq!(asked.iter().flatten().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_has_the_name_comes_before_what_is_spelt_alike() {
        let names = ["main", "_int_malloc", "sysmalloc", "mallco", "sysmalloc", "ptmalloc_init.part.0"];
        assert_eq!(similar("malloc", names), ["sysmalloc", "_int_malloc", "ptmalloc_init.part.0"]);
        assert_eq!(similar("__mian", names), ["main"]);
        assert_eq!(similar("walk", ["bench::Walk::walk", "talk"]), ["bench::Walk::walk", "talk"]);
        assert!(similar("quite_another", names).is_empty() && similar("", ["f"]).is_empty());
    }
}
