//! A thread that is measured alone is that thread, and not whoever has its number next.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use libhpm::event;
use libhpm::session::{Options, Target};
use libhpm::sys::device::{Command as DeviceCommand, Device, Driver};
use nix::unistd::gettid;

use super::programs::built;
use super::proof::denied;

/// A program that the kernel refuses when it is too late to go on with the old one.
const BROKEN: &str = "/tmp/broken";
/// How many numbers the kernel gives out before it begins anew.
const PID_MAX: &str = "/proc/sys/kernel/pid_max";
/// So few that a number comes round soon, and more than the lab's processes and threads need.
const NUMBERS: u32 = 2000;
/// Numbers below are given out once after boot, and never again (Linux: `RESERVED_PIDS`).
const RESERVED: i32 = 300;
/// More than the thread executes, and a fraction of what `loops` does.
const OWN: u64 = 1_000_000;
const ATTEMPTS: u32 = 50;
/// Threads that are tried: one of the kernel's may have taken, and keep, a number that is waited for.
const THREADS: u32 = 3;

/// As root: a thread takes its leader's number in `execve`, which then fails, so that the process ends; the thread's own number is
/// another program's meanwhile. Nothing of that is counted.
pub(super) fn is_not_its_number() -> Result<String> {
    break_program()?;
    let usual = fs::read_to_string(PID_MAX)?;
    fs::write(PID_MAX, NUMBERS.to_string())?;
    let counted = (0..THREADS).find_map(|_| renumber().transpose());
    fs::write(PID_MAX, usual)?;
    let counted =
        counted.with_context(|| format!("no program got the number of one of {THREADS} threads"))??;
    ensure!(counted < OWN, "{counted} instructions, which are another program's");
    Ok(format!("{counted} instructions are the thread's own"))
}

/// What was counted of a thread, if a program got its number.
fn renumber() -> Result<Option<u64>> {
    ensure!(uses_up_numbers(|number| number > RESERVED), "no thread has a number above {RESERVED}");
    let mut process = Command::new(std::env::current_exe()?)
        .args(["guest", "renumbered"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let tid = told_number(&mut process)?;
    let (driver, info) = Driver::open_checked()?;
    let instructions = event::parse("instructions:u", &libhpm::machine::pmu_name(&info))?;
    let mut config = Options::new(Target::Thread(tid)).count(instructions).config();
    driver.configure(&mut config).map_err(denied)?;
    driver.command(DeviceCommand::Start).map_err(denied)?;
    process.stdin.take().context("its input")?.write_all(b"\n")?;
    let status = process.wait()?;
    ensure!(!status.success(), "the broken program ran");
    let Some(mut next) = program_numbered(tid)? else { return Ok(None) };
    ensure!(next.wait()?.success(), "the next program failed");
    driver.command(DeviceCommand::Stop).map_err(denied)?;
    Ok(Some(driver.totals().map_err(denied)?.counts[0]))
}

/// A thread that is not its process's first tells its number, and at a line of input becomes the broken program.
pub(super) fn be_renumbered() -> Result<()> {
    let thread = std::thread::spawn(|| -> Result<()> {
        println!("{}", gettid());
        io::stdout().flush()?;
        io::stdin().lock().read_line(&mut String::new())?;
        Err(Command::new(BROKEN).exec().into())
    });
    thread.join().map_err(|_| anyhow::anyhow!("the thread panicked"))?
}

fn told_number(process: &mut Child) -> Result<i32> {
    let mut line = String::new();
    BufReader::new(process.stdout.take().context("its output")?).read_line(&mut line)?;
    line.trim().parse().with_context(|| format!("it said {line:?}"))
}

/// Makes a program whose first segment has more bytes in the file than in memory, which the kernel finds out when it maps it.
fn break_program() -> Result<()> {
    /// `PT_LOAD`.
    const LOAD: [u8; 4] = 1u32.to_le_bytes();
    fs::copy(built("loops")?, BROKEN)?;
    let mut bytes = fs::read(BROKEN)?;
    let number = |at: usize, size: usize| -> usize {
        bytes[at..at + size].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    // e_phoff, e_phentsize and e_phnum of an ELF64 header; p_filesz and p_memsz lie at 32 and 40 of a program header.
    let (first, size, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
    let mut headers = (0..count).map(|index| first + index * size);
    let load = headers.find(|&at| bytes[at..at + 4] == LOAD).context("no segment to load")?;
    let less = number(load + 32, 8) - 1;
    bytes[load + 40..load + 48].copy_from_slice(&less.to_le_bytes());
    Ok(File::create(BROKEN)?.write_all(&bytes)?)
}

/// `loops`, once it has this number. Numbers are given out in turn, to threads as to processes.
fn program_numbered(tid: i32) -> Result<Option<Child>> {
    for _ in 0..ATTEMPTS {
        if !uses_up_numbers(|number| number == tid - 1) {
            break;
        }
        let mut child = Command::new(built("loops")?).spawn()?;
        if child.id() == tid.unsigned_abs() {
            return Ok(Some(child));
        }
        child.wait()?;
    }
    Ok(None)
}

/// Starts threads until one has such a number, and whether one has.
fn uses_up_numbers(enough: impl Fn(i32) -> bool) -> bool {
    let mut numbers = (0..2 * NUMBERS).map(|_| std::thread::spawn(gettid).join());
    numbers.any(|number| number.is_ok_and(|number| enough(number.as_raw())))
}
