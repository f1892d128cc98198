//! The tables of events against libpfm4's, which other people wrote from the same manuals.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use libhpm::event::{Row, pmus, vendor_names};

use super::tools::{Tools, output};
use crate::check::Tally;

/// PMUs that libpfm4 has, by its names. Not here: those that came after it.
const PMUS: [(&str, &str); 20] = [
    ("core2", "core"),
    ("nehalem", "nhm"),
    ("westmere", "wsm"),
    ("sandybridge", "snb"),
    ("ivybridge", "ivb"),
    ("haswell", "hsw"),
    ("broadwell", "bdw"),
    ("skylake", "skl"),
    ("icelake", "icl"),
    ("goldencove", "spr"),
    ("k8", "amd64_k8_revg"),
    ("family10h", "amd64_fam10h_istanbul"),
    ("family15h", "amd64_fam15h_interlagos"),
    ("family16h", "amd64_fam16h"),
    ("zen1", "amd64_fam17h_zen1"),
    ("zen2", "amd64_fam17h_zen2"),
    ("zen3", "amd64_fam19h_zen3"),
    ("zen4", "amd64_fam19h_zen4"),
    ("netburst", "netburst"),
    ("netburst_p", "netburst_p"),
];

/// Event select, unit mask, edge, inversion and counter mask.
const SELECT: u64 = 0xf_ff84_ffff;
/// Event select and mask of an ESCR; ESCR select, comparison and edge of a CCCR.
const ESCR: u64 = 0x7fff_fe00;
const CCCR: u64 = 0x01fc_e000;

// Why a table here differs. "The list" is Intel's list of the processor's events (perfmon), which the SDM refers to.
const AGENTS: &str =
    "the list has the agent's bit alone; libpfm4 adds the core's, which it has for other events of the bus";
const PRECISE_FORM: &str =
    "the list gives the name to the precise encoding, libpfm4 to the architectural event";
const PLAIN_FORM: &str =
    "the list gives the name to the architectural event, libpfm4 to the precise encoding";
const NEWER_LIST: &str = "the list was corrected after libpfm4 took it";
const LIST: &str = "as in the list";
const SLOTS: &str = "the list's event of a general counter; libpfm4 has a number for PERF_METRICS";
const FRONTEND: &str =
    "the list's event with MSR_PEBS_FRONTEND; libpfm4 lacks the register's value or has another mask";

/// What differs, in the order of the names, and why.
const DIFFERENT: [(&str, &str, &str); 28] = [
    ("core2", "BUS_TRANS_ANY.ALL_AGENTS", AGENTS),
    ("nehalem", "BR_INST_RETIRED.ALL_BRANCHES", PRECISE_FORM),
    ("nehalem", "INST_RETIRED.ANY_P", PRECISE_FORM),
    ("westmere", "BR_INST_RETIRED.ALL_BRANCHES", PRECISE_FORM),
    ("westmere", "BR_MISP_RETIRED.ALL_BRANCHES", PRECISE_FORM),
    ("sandybridge", "BR_INST_RETIRED.ALL_BRANCHES", PLAIN_FORM),
    ("sandybridge", "BR_MISP_RETIRED.ALL_BRANCHES", PLAIN_FORM),
    ("haswell", "L2_RQSTS.CODE_RD_HIT", NEWER_LIST),
    ("haswell", "L2_RQSTS.DEMAND_DATA_RD_HIT", NEWER_LIST),
    ("haswell", "L2_RQSTS.L2_PF_HIT", NEWER_LIST),
    ("haswell", "L2_RQSTS.L2_PF_MISS", NEWER_LIST),
    ("haswell", "L2_RQSTS.RFO_HIT", NEWER_LIST),
    ("broadwell", "L2_RQSTS.CODE_RD_HIT", NEWER_LIST),
    ("broadwell", "L2_RQSTS.DEMAND_DATA_RD_HIT", NEWER_LIST),
    ("broadwell", "L2_RQSTS.L2_PF_HIT", NEWER_LIST),
    ("broadwell", "L2_RQSTS.L2_PF_MISS", NEWER_LIST),
    ("broadwell", "L2_RQSTS.RFO_HIT", NEWER_LIST),
    ("skylake", "UOPS_RETIRED.STALL_CYCLES", LIST),
    ("icelake", "MEM_LOAD_MISC_RETIRED.UC", LIST),
    ("icelake", "TOPDOWN.BACKEND_BOUND_SLOTS", SLOTS),
    ("goldencove", "ARITH.IDIV_ACTIVE", LIST),
    ("goldencove", "INT_MISC.UNKNOWN_BRANCH_CYCLES", FRONTEND),
    ("goldencove", "MEM_TRANS_RETIRED.STORE_SAMPLE", LIST),
    ("goldencove", "TOPDOWN.BACKEND_BOUND_SLOTS", SLOTS),
    ("goldencove", "TOPDOWN.BAD_SPEC_SLOTS", SLOTS),
    ("goldencove", "TOPDOWN.BR_MISPREDICT_SLOTS", SLOTS),
    ("goldencove", "TOPDOWN.MEMORY_BOUND_SLOTS", SLOTS),
    ("goldencove", "UOPS_RETIRED.MS", FRONTEND),
];

/// One name asked of both.
enum Answer {
    Same,
    Unknown,
    Different(String),
}

/// Compares every event of every PMU that libpfm4 has.
pub(crate) fn run(root: &Path, tally: &mut Tally) {
    let mut asks = None;
    tally.run("libpfm4: it is there", || {
        asks = Some(build(root)?);
        Ok(String::new())
    });
    let Some(asks) = asks else { return };
    let known: Vec<&str> = pmus().collect();
    for (pmu, theirs) in PMUS {
        tally.run(&format!("libpfm4: {pmu} has its encodings"), || {
            ensure!(known.contains(&pmu), "there is no such PMU");
            compare(&asks, pmu, theirs)
        });
    }
}

/// The program that asks libpfm4.
fn build(root: &Path) -> Result<Asks> {
    let (headers, archive) = Tools::libpfm4(root)?;
    let program = root.join("target/consumers/encode");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-Wall", "-Werror", "-I"]).arg(&headers).arg("-o").arg(&program);
    gcc.arg(root.join("tests/suite/consumers/encode.c")).arg(&archive);
    output(&mut gcc)?;
    Ok(Asks { program })
}

struct Asks {
    program: PathBuf,
}

impl Asks {
    /// The codes of each name, or why there are none.
    fn ask(&self, names: &[String]) -> Result<Vec<Result<Vec<u64>, String>>> {
        let mut command = Command::new(&self.program);
        command.env("LIBPFM_ENCODE_INACTIVE", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("its input is piped")?;
        let lines = names.join("\n") + "\n";
        // It answers each line as it reads it: written beside, or both would wait.
        let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
        let out = child.wait_with_output()?;
        writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        let text = String::from_utf8(out.stdout)?;
        let answer = |line: &str| match line.strip_prefix("- ") {
            Some(why) => Ok(Err(why.to_owned())),
            None => {
                let codes = line.split(' ').map(|code| u64::from_str_radix(code, 16));
                Ok(Ok(codes.collect::<Result<_, _>>()?))
            }
        };
        let answers: Vec<Result<Vec<u64>, String>> = text.lines().map(answer).collect::<Result<_>>()?;
        ensure!(answers.len() == names.len(), "{} answers to {} names", answers.len(), names.len());
        Ok(answers)
    }
}

fn compare(asks: &Asks, pmu: &str, theirs: &str) -> Result<String> {
    let rows = vendor_names(pmu);
    let names: Vec<String> = rows.iter().map(|row| name_there(theirs, row.name)).collect();
    let answers = asks.ask(&names)?;
    let mut different = BTreeMap::new();
    let (mut same, mut unknown) = (0, 0);
    for (row, answer) in rows.iter().zip(answers) {
        match judge(pmu, row, answer) {
            Answer::Same => same += 1,
            Answer::Unknown => unknown += 1,
            Answer::Different(how) => {
                different.insert(row.name, how);
            }
        }
    }
    let explained: Vec<&str> =
        DIFFERENT.iter().filter(|(of, ..)| *of == pmu).map(|(_, name, _)| *name).collect();
    let found: Vec<&str> = different.keys().copied().collect();
    ensure!(found == explained, "not as explained: {different:#x?}");
    ensure!(same > unknown, "{same} names agree, and libpfm4 does not know {unknown}");
    Ok(format!("{same} agree, {} are explained, {unknown} have no such name there", explained.len()))
}

/// An event's name in libpfm4, where retired events of the Pentium 4 that name a tag want to be told that they are not bogus.
fn name_there(pmu: &str, name: &str) -> String {
    let name = name.replace('.', ":");
    match name.strip_prefix("replay_event:") {
        Some(tag) if !tag.contains("BOGUS") => format!("{pmu}::replay_event:NBOGUS:{tag}"),
        _ => format!("{pmu}::{name}"),
    }
}

fn judge(pmu: &str, row: &Row, answer: Result<Vec<u64>, String>) -> Answer {
    let Ok(codes) = answer else { return Answer::Unknown };
    let (ours, their) = if pmu.starts_with("netburst") {
        let cccr = codes.get(1).copied().unwrap_or_default();
        ((row.encoding >> 32 & ESCR, row.encoding & CCCR), (codes[0] & ESCR, cccr & CCCR))
    } else {
        ((row.encoding & SELECT, row.extra), (codes[0] & SELECT, codes.get(1).copied().unwrap_or_default()))
    };
    if ours == their { Answer::Same } else { Answer::Different(format!("{ours:x?} here, {their:x?} there")) }
}
