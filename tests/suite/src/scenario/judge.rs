//! Linux's own driver and Debian's perf against the truth: the model is a PMU to others too.

use anyhow::{Context, Result, ensure};
use vpmu::Profile;
use vpmu::event::Event;
use vpmu::truth::Report;

use super::counting::{as_counted, true_counts};
use crate::check::Tally;
use crate::guest::judge::{IBS_PERIOD, MOVED};
use crate::guest::processor::{identity, sampled_event};
use crate::guest::programs::PERIOD;
use crate::lab::Boot;

/// What Linux's Intel driver calls the events of each profile (arch/x86/events/intel/core.c, intel_pmu_init).
const EVENTS: [(&str, &str); 17] = [
    ("nehalem", "Nehalem events"),
    ("westmere", "Westmere events"),
    ("sandybridge", "SandyBridge events"),
    ("ivybridge", "IvyBridge events"),
    ("haswell", "Haswell events"),
    ("broadwell", "Broadwell events"),
    ("skylake", "Skylake events"),
    ("icelake", "Icelake events"),
    ("sapphirerapids", "Sapphire Rapids events"),
    ("graniterapids", "Granite Rapids events"),
    ("alderlake", "Alderlake Hybrid events"),
    ("meteorlake", "Meteorlake Hybrid events"),
    ("sierraforest", "Crestmont events"),
    ("lunarlake", "Lunarlake Hybrid events"),
    ("arrowlakeh", "ArrowLake-H Hybrid events"),
    ("clearwaterforest", "Darkmont events"),
    ("pantherlake", "Pantherlake Hybrid events"),
];

/// perf's counts and samples agree with the truth.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("judge: Linux's driver accepts the model", || accepted(boot));
    for label in ["loops1", "loops3"] {
        tally.run(&format!("judge: perf stat equals the truth for {label}"), || counted(boot, label));
    }
    if boot.machine.profile.hybrid.is_some() && boot.machine.cpus > 1 {
        tally.run("judge: hpmctl counts by perf_event on cores of every type", || of_every_type(boot));
    }
    match boot.machine.profile.amd() {
        None => tally.run("judge: perf record :pp names the missing load and its data", || sampled(boot)),
        Some(facts) if facts.ibs != 0 => {
            tally.run("judge: Linux's IBS driver accepts the model", || has_ibs(boot, facts.ibs));
            tally.run("judge: perf record by IBS names the sampled instructions, in order", || by_ibs(boot));
        }
        Some(_) => {}
    }
}

/// What hpmctl counted by perf_event is whole, on whichever cores it was.
fn of_every_type(boot: &Boot) -> Result<String> {
    let stat = boot.report.facts.get(MOVED).context("the guest left no counts")?;
    let [instructions, branches, ..] = true_counts(&boot.truth, MOVED)?;
    let events = stat["events"].as_array().context("no events")?;
    let number = |name: &str| events.iter().map(|event| event[name].as_u64()).collect::<Option<Vec<_>>>();
    let (counts, running) = (number("count").context("no counts")?, number("running_ns"));
    ensure!(
        counts[..3] == [instructions, branches, instructions],
        "{counts:?} is not {instructions}, {branches}: {stat}"
    );
    let (clock, on_cpu) = (counts[3], stat["on_cpu_ns"].as_u64().context("no time on CPUs")?);
    ensure!(clock.abs_diff(on_cpu) < on_cpu / 10, "{clock} ns of {on_cpu} on CPUs: {stat}");
    ensure!(running.is_some() && running == number("enabled_ns"), "in part of the time only: {stat}");
    Ok(format!("{counts:?}"))
}

/// Linux finds IBS with these capabilities (arch/x86/events/amd/ibs.c, amd_ibs_init).
fn has_ibs(boot: &Boot, capabilities: u32) -> Result<String> {
    let line = format!("AMD IBS detected ({capabilities:#010x})");
    ensure!(boot.kernel_log.contains(&line), "the log lacks {line:?}");
    Ok(line)
}

/// perf's samples are all that IBS sampled, of user and kernel mode.
fn by_ibs(boot: &Boot) -> Result<String> {
    let fact = boot.report.facts.get("strides1").context("the guest left no samples")?;
    let samples: Vec<Vec<String>> = serde_json::from_value(fact.clone()).context("perf's samples")?;
    let ip = |fields: &Vec<String>| u64::from_str_radix(fields.first()?, 16).ok();
    let seen: Vec<u64> = samples.iter().map(ip).collect::<Option<_>>().context("a sample has no address")?;
    let report: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    let truth: Vec<u64> = report.pmis.iter().map(|pmi| pmi.pc).collect();
    let different = seen.iter().zip(&truth).position(|(one, other)| one != other);
    ensure!(different.is_none(), "sample {different:?} is none of the truth's");
    ensure!(seen.len() == truth.len(), "{} samples, the model took {}", seen.len(), truth.len());
    let window = report.windows.iter().find(|window| window.tag == "strides1");
    let ops = window.context("the truth has no window strides1")?.counts.of(Event::Instruction).user;
    ensure!(seen.len() as u64 >= ops / IBS_PERIOD, "only {} samples of {ops} ops", seen.len());
    Ok(format!("{} samples", seen.len()))
}

/// What Linux's driver must say when it finds the profile's PMU; the rest of Intel's is in IA32_PERF_CAPABILITIES (SDM Vol. 3B,
/// "IA32_PERF_CAPABILITIES").
fn expected(profile: &Profile) -> Result<Vec<String>> {
    if let Some(facts) = profile.amd() {
        // arch/x86/events/amd/core.c, amd_core_pmu_init.
        let core = match identity(profile) {
            _ if facts.counters <= 4 => "Performance Events:",
            (0x15, _) => "Fam15h core perfctr",
            _ => "Fam17h+ core perfctr",
        };
        return Ok(vec![core.to_owned(), "AMD PMU driver".to_owned()]);
    }
    let events = EVENTS.iter().find(|(name, _)| *name == profile.name);
    let (_, events) =
        events.with_context(|| format!("what does Linux call the events of {}?", profile.name))?;
    let mut words = vec![(*events).to_owned(), "Intel PMU driver".to_owned()];
    let capabilities = profile.perfmon().context("the profile has another kind of PMU")?.capabilities;
    words.push(match capabilities >> 8 & 0xf {
        0xf => "Architectural PEBS".to_owned(),
        format => {
            let (trap, baseline) = (capabilities >> 6 & 1 == 1, capabilities >> 14 & 1 == 1);
            format!(
                "PEBS fmt{format}{}{}",
                if trap { "+" } else { "-" },
                if baseline { "-baseline" } else { "" }
            )
        }
    });
    if capabilities >> 13 & 1 == 1 {
        words.push("full-width counters".to_owned());
    }
    Ok(words)
}

fn accepted(boot: &Boot) -> Result<String> {
    let line = boot.kernel_log.lines().find(|line| line.contains("Performance Events:"));
    let line = line.context("no such line in the log")?;
    for words in expected(boot.machine.profile)? {
        ensure!(line.contains(&words), "the line lacks {words:?}: {line}");
    }
    Ok(line.to_owned())
}

fn counted(boot: &Boot, label: &str) -> Result<String> {
    let fact = boot.report.facts.get(label).with_context(|| format!("the guest left no {label}"))?;
    let counted: Vec<u64> = serde_json::from_value(fact.clone()).context("perf's counts")?;
    let truth = as_counted(boot.machine.profile, true_counts(&boot.truth, label)?);
    ensure!(
        counted.len() >= 3 && counted == truth[..counted.len()],
        "perf counted {counted:?}, the truth is {truth:?}"
    );
    Ok(format!("{counted:?}"))
}

/// At least 99 % of the samples lie on the missing load and in its array; the rest on the other load, whose line an
/// interrupt may evict. There are as many as the misses allow.
fn sampled(boot: &Boot) -> Result<String> {
    let fact = boot.report.facts.get("strides1").context("the guest left no samples")?;
    let samples: Vec<Vec<String>> = serde_json::from_value(fact.clone()).context("perf's samples")?;
    let (missing, others): (Vec<_>, Vec<_>) =
        samples.iter().cloned().partition(|sample| sample.iter().any(|word| word == "missing_load"));
    let evicted = others.iter().filter(|sample| sample.iter().any(|word| word == "hitting_load")).count();
    ensure!(evicted == others.len(), "samples on neither load: {others:?}");
    ensure!(evicted * 99 <= missing.len(), "{evicted} of {} samples are on hitting_load", samples.len());
    let misses = true_misses(boot)?;
    let got = samples.len() as u64;
    ensure!(got.abs_diff(misses / PERIOD) <= 1, "{got} samples of {misses} misses, one in {PERIOD}");
    addresses(&missing)?;
    Ok(format!("{got} samples"))
}

/// How often the sampled event happened in the window of `strides`.
fn true_misses(boot: &Boot) -> Result<u64> {
    let report: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    let window = report.windows.iter().find(|window| window.tag == "strides1");
    let counts = &window.context("the truth has no window strides1")?.counts;
    Ok(sampled_event(boot.machine.profile)?.counts.iter().map(|event| counts.of(event).user).sum())
}

/// Data addresses are cache-line starts within one MiB.
fn addresses(samples: &[Vec<String>]) -> Result<()> {
    let parsed: Vec<u64> = samples
        .iter()
        .map(|sample| sample.first().and_then(|a| u64::from_str_radix(a, 16).ok()).unwrap_or(1))
        .collect();
    let (low, high) = (parsed.iter().min().copied().unwrap_or(0), parsed.iter().max().copied().unwrap_or(0));
    ensure!(parsed.iter().all(|a| a % 64 == 0), "a data address is not where the load reads");
    ensure!(high - low < 1 << 20, "the addresses span {low:#x} to {high:#x}, more than the array");
    Ok(())
}
