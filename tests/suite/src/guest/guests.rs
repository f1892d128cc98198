//! Virtual machines that run while hpm measures.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use libhpm::trace::{SampleRow, TraceReader};
use serde_json::Value;

use super::GuestReport;
use super::lifecycle::MODULE;
use super::programs::{c_program, hpmctl, left_in, record_each, succeed};

/// The program that runs a virtual machine (tests/guest/vmm.c).
pub(crate) const C_PROGRAM: &str = "vmm";
/// Where the folder is that has the kernel's modules below lib/modules, in the working folder.
pub(crate) const MODULES: &str = "kernel";
/// What `hpmctl stat` counted of it with a short and a long guest.
pub(crate) const SHORT: &str = "short";
pub(crate) const LONG: &str = "long";
/// Turns of the long guest's loop, of two instructions each.
pub(crate) const TURNS: u32 = 20_000_000;
/// As good as none.
const NO_TURNS: &str = "1";
/// Operations per sample: some of each guest's, if they were sampled, and not too many of the kernel's for a reader.
const IBS_PERIOD: u64 = 10_007;
/// The guest's code lies below.
const CODE_END: u64 = 0x2000;

/// Runs every case.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    module("kvm_amd", true)?;
    let long = TURNS.to_string();
    report.fact(SHORT, counted(&["-e", "instructions:u"], NO_TURNS)?);
    report.fact(LONG, counted(&["-e", "instructions:u"], &long)?);
    report.check("nor is what they execute where kernel mode is counted, too", || {
        are_left_out(&["-e", "instructions"], &long)
    });
    report.check("nor in a session of the whole system", || {
        are_left_out(&["-a", "-e", "instructions:u"], &long)
    });
    report.check("no sample is of what a guest executes", || samples(&long));
    report.check("KVM goes and comes between sessions", || {
        module("kvm_amd", false)?;
        module("kvm", false)?;
        succeed(&mut hpmctl(&["stat", "-e", "instructions:u", "--", "true"])?)?;
        module("kvm_amd", true)?;
        let counted = instructions(&["-e", "instructions:u"], &long)?;
        ensure!(counted < u64::from(TURNS) / 2, "{counted} were counted");
        Ok(String::new())
    });
    // On AMD's processors perf starts its PMU when virtualisation is switched off.
    report.check("a session gives up when KVM goes, and says so", || {
        let script = format!("modprobe -d {MODULES} -r kvm_amd kvm");
        let output = hpmctl(&["stat", "-e", "instructions:u", "--", "sh", "-c", &script])?.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let gave_up = said.contains("somebody else changed which counters run");
        ensure!(!output.status.success() && gave_up, "{said}");
        Ok(said.lines().last().unwrap_or_default().to_owned())
    });
    report.check("hpm goes while KVM is there, and comes back", || {
        module("kvm_amd", true)?;
        succeed(Command::new("rmmod").arg("hpm"))?;
        succeed(Command::new(c_program(C_PROGRAM)?).arg(&long))?;
        succeed(Command::new("insmod").arg(MODULE))?;
        let counted = instructions(&["-e", "instructions:u"], &long)?;
        ensure!(counted < u64::from(TURNS) / 2, "{counted} were counted");
        Ok(String::new())
    });
    Ok(())
}

/// Loads a module of the kernel's with those that it needs, or unloads it.
fn module(name: &str, load: bool) -> Result<()> {
    let mut modprobe = Command::new("modprobe");
    modprobe.args(["-d", MODULES]);
    if !load {
        modprobe.arg("-r");
    }
    succeed(modprobe.arg(name))?;
    Ok(())
}

/// What `hpmctl stat` with these options counts while a guest runs for so many turns.
fn counted(options: &[&str], turns: &str) -> Result<Value> {
    let file = "guest.json";
    let mut command = hpmctl(&[&["stat", "--json", "-o", file][..], options, &["--"]].concat())?;
    succeed(command.arg(c_program(C_PROGRAM)?).arg(turns))?;
    left_in(file)
}

/// A long guest makes no difference to the count, where a quarter of its instructions would.
fn are_left_out(options: &[&str], long: &str) -> Result<String> {
    let [short, long] = [instructions(options, NO_TURNS)?, instructions(options, long)?];
    ensure!(long.abs_diff(short) < u64::from(TURNS) / 2, "{short} without, {long} with {TURNS} turns");
    Ok(format!("{short} without, {long} with {TURNS} turns"))
}

fn instructions(options: &[&str], turns: &str) -> Result<u64> {
    counted(options, turns)?["events"][0]["count"].as_u64().context("no count")
}

fn samples(turns: &str) -> Result<String> {
    let trace = "guest.hpm";
    let mut command = record_each("IBS_OP", IBS_PERIOD, trace, &[])?;
    succeed(command.arg(c_program(C_PROGRAM)?).arg(turns))?;
    let ips: Vec<u64> = TraceReader::open(trace)?.rows::<SampleRow>().map(|row| row.ip).collect();
    let within = ips.iter().filter(|&&ip| ip < CODE_END).count();
    ensure!(!ips.is_empty() && within == 0, "{within} of {} samples are of the guest", ips.len());
    Ok(format!("{} samples", ips.len()))
}
