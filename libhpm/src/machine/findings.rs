//! What the facts mean: a pure function from facts to findings.

use serde::Serialize;

use super::{DriverFacts, Facts, Holders};
use crate::event;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As hpm needs it.
    Ok,
    /// Limits what can be measured, or is worth knowing.
    Note,
    /// hpm cannot be used before this is changed.
    Obstacle,
}

/// One thing that doctor has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub topic: &'static str,
    /// How good it is.
    pub status: Status,
    /// What is the case.
    pub what: String,
    /// What to do about it; empty when nothing need be done.
    pub advice: String,
}

impl Finding {
    fn new(topic: &'static str, status: Status, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { topic, status, what: what.into(), advice: advice.into() }
    }

    fn ok(topic: &'static str, what: impl Into<String>) -> Self {
        Self::new(topic, Status::Ok, what, "")
    }
}

/// Judges the facts. hpm is usable when no finding is an [`Status::Obstacle`].
#[must_use]
pub fn assess(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![processor(facts)];
    findings.extend(hypervisor(facts));
    findings.push(pmu(facts));
    findings.push(kernel(facts));
    findings.push(module(facts));
    findings.extend(driver(facts));
    findings.extend(lockdown(facts));
    findings.push(rights(facts));
    findings.push(counters(facts));
    findings.extend(isolation(facts));
    findings.extend(rdpmc(facts));
    findings.extend(lab(facts));
    findings
}

fn processor(facts: &Facts) -> Finding {
    let cpu = &facts.processor;
    let name = if cpu.brand.is_empty() { &cpu.vendor } else { &cpu.brand };
    let what = format!("{name} (family {}, model {:#x}, stepping {})", cpu.family, cpu.model, cpu.stepping);
    Finding::ok("processor", what)
}

fn hypervisor(facts: &Facts) -> Option<Finding> {
    let hypervisor = facts.hypervisor.as_ref()?;
    let name = if hypervisor.signature.is_empty() { "unnamed" } else { &hypervisor.signature };
    Some(Finding::new(
        "hypervisor",
        Status::Note,
        format!("this is a virtual machine ({name})"),
        "times and cache behaviour are those of a shared host",
    ))
}

fn pmu(facts: &Facts) -> Finding {
    let pmu = &facts.pmu;
    if pmu.perfmon_version == 0 && pmu.general_counters > 0 {
        return amd_pmu(facts);
    }
    if pmu.perfmon_version == 0 && facts.driver.can_measure() {
        return Finding::ok(
            "PMU",
            "not architectural (CPUID leaf 0AH is zero); the driver knows it by family and model",
        );
    }
    if pmu.perfmon_version == 0 {
        return no_pmu(facts);
    }
    let what = format!(
        "PerfMon version {}, {} general counters of {} bits, {} fixed counters",
        pmu.perfmon_version, pmu.general_counters, pmu.general_width, pmu.fixed_counters
    );
    if pmu.debug_store {
        return Finding::ok("PMU", what + ", debug store");
    }
    Finding::new(
        "PMU",
        Status::Note,
        what + ", no debug store",
        "precise sampling (PEBS) is not possible; count instead",
    )
}

fn no_pmu(facts: &Facts) -> Finding {
    let advice = match (&facts.hypervisor, facts.processor.vendor.as_str()) {
        (Some(_), _) => "switch the virtual PMU on in the hypervisor",
        (None, "GenuineIntel") => "switch performance monitoring on in the firmware",
        (None, _) => "use a machine with a processor that hpm knows",
    };
    let what = if facts.hypervisor.is_some() && !facts.kernel_pmu {
        "there is none in this virtual machine: the kernel's own driver found none (/sys/bus/event_source/devices/cpu is missing)"
    } else {
        "the processor shows no architectural PMU (CPUID leaf 0AH is zero)"
    };
    Finding::new("PMU", Status::Obstacle, what, advice)
}

fn amd_pmu(facts: &Facts) -> Finding {
    let pmu = &facts.pmu;
    let what = format!("AMD's, {} counters of {} bits", pmu.general_counters, pmu.general_width);
    if pmu.ibs {
        return Finding::ok("PMU", what + ", instruction-based sampling (IBS)");
    }
    let advice = "precise sampling is not possible; count, or sample with --imprecise";
    Finding::new("PMU", Status::Note, what + ", no instruction-based sampling (IBS)", advice)
}

fn kernel(facts: &Facts) -> Finding {
    let release = &facts.kernel_release;
    let finding = |status, what: &str, advice: &str| {
        Finding::new("kernel", status, format!("{release}: {what}"), advice)
    };
    // A loaded module proves the kernel suitable; the rest matters to build one.
    if facts.module_loaded {
        return Finding::ok("kernel", release);
    }
    match (facts.kernel_has_rust, facts.kernel_headers) {
        (Some(false), _) => finding(
            Status::Obstacle,
            "built without CONFIG_RUST, so that hpm.ko cannot be loaded",
            "boot a kernel with CONFIG_RUST=y, such as Debian's from 7.2 on",
        ),
        (Some(true), true) => finding(Status::Ok, "CONFIG_RUST=y, headers installed", ""),
        (Some(true), false) => finding(
            Status::Note,
            "CONFIG_RUST=y, headers not installed",
            "install them (Debian: linux-headers) to build hpm.ko",
        ),
        (None, _) => finding(
            Status::Note,
            "its configuration cannot be read",
            "hpm.ko needs a kernel with CONFIG_RUST=y",
        ),
    }
}

fn module(facts: &Facts) -> Finding {
    match (&facts.driver.problem, facts.module_loaded) {
        (None, _) => Finding::ok("module", "hpm is loaded, and its device can be opened"),
        (Some(_), false) => Finding::new(
            "module",
            Status::Obstacle,
            "hpm is not loaded",
            "build it with `make kmod`, then load it as root with `insmod hpm.ko` or `modprobe hpm`",
        ),
        // The driver's sentence says what to do itself.
        (Some(problem), true) => Finding::new("module", Status::Obstacle, problem.clone(), ""),
    }
}

fn driver(facts: &Facts) -> Option<Finding> {
    let driver = &facts.driver;
    // A device that cannot be opened, or a PMU that is not there, has its own finding.
    if driver.problem.is_some() || facts.pmu.general_counters == 0 && !driver.usable {
        return None;
    }
    if !driver.usable {
        return Some(unknown_pmu(facts));
    }
    let precise = match driver.pebs_format {
        Some(format) => format!("PEBS record format {format}"),
        None if driver.ibs => "precise samples by IBS".to_owned(),
        None => "no PEBS".to_owned(),
    };
    let branches = branch_records(driver);
    Some(Finding::ok("driver", format!("knows the PMU as {}, {precise}, {branches}", driver.pmu_name)))
}

/// What `record --branches` and `--stacks lbr` can use.
fn branch_records(driver: &DriverFacts) -> String {
    let calls = if driver.branch_calls { ", which can follow calls" } else { "" };
    let written = if driver.records_branches { " and are written into precise samples" } else { "" };
    match driver.branch_records {
        0 => "no last branch records".to_owned(),
        records => format!("{records} last branch records{calls}{written}"),
    }
}

/// Which processor it is, and what can be done with hpm all the same.
fn unknown_pmu(facts: &Facts) -> Finding {
    let cpu = &facts.processor;
    let what = format!(
        "the driver does not know this PMU (CPUID: {}, family {}, model {:#x}) and leaves its registers alone: nothing can be \
         counted or sampled",
        cpu.vendor, cpu.family, cpu.model
    );
    let known: Vec<&str> = event::pmus().collect();
    let advice = format!(
        "`hpmctl report` shows traces of other machines, `hpmctl list --pmu NAME` and `--equivalents` the events of the PMUs \
         that hpm knows ({}), and the virtual lab (`lab run`) has such PMUs to try",
        known.join(", ")
    );
    Finding::new("driver", Status::Obstacle, what, advice)
}

fn lockdown(facts: &Facts) -> Option<Finding> {
    let advice = "boot without lockdown; Secure Boot may switch it on";
    match facts.lockdown.as_deref()? {
        "none" => Some(Finding::ok("lockdown", "off")),
        "integrity" if facts.module_loaded => {
            Some(Finding::ok("lockdown", "integrity, and hpm is loaded all the same"))
        }
        "integrity" => {
            let what = "integrity: only signed modules can be loaded";
            Some(Finding::new(
                "lockdown",
                Status::Note,
                what,
                "sign hpm.ko with a key that the kernel trusts, or boot without",
            ))
        }
        mode => Some(Finding::new(
            "lockdown",
            Status::Obstacle,
            format!("{mode}: performance events are forbidden"),
            advice,
        )),
    }
}

/// What this user may measure where the device can be opened (kmod/README.md has the table).
fn rights(facts: &Facts) -> Finding {
    if facts.cap_perfmon {
        return Finding::ok("rights", "CAP_PERFMON: everything may be measured");
    }
    let what = match facts.perf_event_paranoid {
        Some(..=0) => {
            "no CAP_PERFMON: your own programs, in user and kernel mode, and from Linux 7.3 on the whole system (-a)"
        }
        Some(1) => "no CAP_PERFMON: your own programs, in user and kernel mode",
        Some(2) | None => "no CAP_PERFMON: your own programs, in user mode",
        // perf_event_open, which else tells what is mapped where, is refused altogether.
        Some(_) => {
            "no CAP_PERFMON: your own programs, in user mode; by `record` where the kernel has kprobes on ftrace"
        }
    };
    let advice = "run as root, or give hpmctl the capability: `setcap cap_perfmon=ep hpmctl`";
    Finding::new("rights", Status::Note, what, advice)
}

fn counters(facts: &Facts) -> Finding {
    let Holders { watchdog, processes } = &facts.holders;
    let what = match (watchdog, processes.len()) {
        (true, _) => "the kernel's NMI watchdog is on and holds counters".to_owned(),
        (false, 0) => "held by others".to_owned(),
        (false, 1) => "a process has perf_event descriptors, and may hold counters".to_owned(),
        (false, n) => format!("{n} processes have perf_event descriptors, and may hold counters"),
    };
    let held = facts.driver.held_by_others || *watchdog;
    if held {
        return Finding::new("counters", Status::Obstacle, what, facts.holders.to_string());
    }
    if facts.driver.held_by_hpm {
        return Finding::ok("counters", "held by an hpm session");
    }
    match processes.is_empty() {
        true => Finding::ok("counters", "no holder found"),
        false => Finding::new("counters", Status::Note, what, facts.holders.to_string()),
    }
}

fn isolation(facts: &Facts) -> Option<Finding> {
    let meltdown = facts.meltdown.as_deref()?;
    Some(Finding::ok(
        "page tables",
        match meltdown {
            "Mitigation: PTI" => "isolated (PTI); PEBS writes through the CPU entry area",
            _ => "not isolated (no PTI)",
        },
    ))
}

fn rdpmc(facts: &Facts) -> Option<Finding> {
    let what = match facts.rdpmc? {
        0 => "rdpmc is forbidden in user space: programs that read their own counters ask the driver",
        1 => "rdpmc is allowed to processes with a mapped perf event",
        _ => "rdpmc is allowed to every process",
    };
    Some(Finding::ok("rdpmc", what))
}

/// Where nothing can be measured, the virtual lab still shows what hpm does.
fn lab(facts: &Facts) -> Option<Finding> {
    (facts.pmu.general_counters == 0 && !facts.driver.can_measure()).then(|| {
        let what = "without a PMU, hpm can be tried in its virtual lab machine";
        Finding::new(
            "virtual lab",
            Status::Note,
            what,
            "`make demo`, or `cargo run -p lab -- run -- hpmctl doctor`",
        )
    })
}
