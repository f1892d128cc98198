//! Logs of function entries and exits, which the shim (`libhpm/shim`) writes in programs that were compiled with
//! `-finstrument-functions`, and what it is told to log.
//!
//! A folder has [`CONFIG`], and of each process image `PID-TSC.maps` (lines as in `/proc/PID/maps`) and one `PID-TSC-N.calls` for
//! each of its threads. That file begins with [`HEADER_BYTES`] of header: a [`Header`] as JSON, NUL padded, and at its end
//! the binary fields at [`LOST_AT`] and [`NAME_AT`]. Then come records of 64-bit little-endian words ([`Record`]); a record whose first word is
//! 0 has not been written. Everything stays readable when the program is killed.

mod encoded;
mod read;

pub use self::encoded::{Encoded, encode, encode_clock};
pub use self::read::{CallLog, FunctionKey, Functions, Logs, logs};

use serde::{Deserialize, Serialize};

use crate::analysis::method::CallKind;

/// Environment variable with the folder that the shim writes into.
pub const FOLDER_VARIABLE: &str = "HPM_METHODS";
/// Environment variable with which the shim logs an entry and an exit of its own when it is loaded: so that it can be seen from outside what
/// a process takes in which nothing else is logged.
pub const REHEARSAL_VARIABLE: &str = "HPM_METHODS_REHEARSAL";
/// Name of the shim's [`Config`] in the folder, as JSON.
pub const CONFIG: &str = "shim.json";
/// The version of header and records.
pub const VERSION: u32 = 1;
/// Bytes before the first record.
pub const HEADER_BYTES: usize = 4096;
/// Where the header has the number of lost events, a little-endian u64.
pub const LOST_AT: usize = HEADER_BYTES - 8;
/// Where the header has the thread's name, NUL padded.
pub const NAME_AT: usize = LOST_AT - 16;
/// Words of a record that has no counts: what and where, frame, time.
pub const WORDS: usize = 3;

/// Which clock times are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The thread's cycles by the hpm module's self-read counters if they can be used, else `Cpu`.
    #[default]
    Auto,
    /// Core cycles of the thread in user mode, by the hpm module's self-read counters.
    Cycles,
    /// Time of the thread on a CPU: the TSC, set right by CLOCK_THREAD_CPUTIME_ID after each gap and at least each
    /// millisecond.
    Cpu,
    /// The TSC: real time, waiting included.
    Tsc,
}

/// Which source counts events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counting {
    /// The hpm module if it can be used, else perf_event.
    #[default]
    Auto,
    /// The hpm module's self-read counters.
    Driver,
    /// perf_event: a system call for each event that is read.
    Perf,
}

/// Functions of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFunctions {
    /// The file.
    pub path: String,
    /// Bytes of the file at which functions begin, in their order.
    pub offsets: Vec<u64>,
}

/// Which functions are logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// All but these (§3.1.2: a method is left out if it is small and has no backward branch).
    LeaveOut(Vec<FileFunctions>),
    /// These alone (step 3).
    Only(Vec<FileFunctions>),
}

/// What the shim is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Functions to log.
    pub filter: Filter,
    /// Clock of times.
    pub clock: Clock,
    /// Events to read at each entry and exit; none in step 1.
    pub events: Vec<String>,
    /// Events that are not read, but of which it is measured what reading them would add to an entry or exit: in step 1 those of step
    /// 3. Not with `events`.
    pub priced: Vec<String>,
    /// The one list or the other as the hpm module takes it, or why it cannot ([`encode`]).
    pub encoded: std::result::Result<Vec<Encoded>, String>,
    /// Cycles in user mode likewise, for the clock ([`encode_clock`]).
    pub cycles: std::result::Result<Encoded, String>,
    /// Who counts them.
    pub counting: Counting,
    /// Bytes that one thread's file may have; what comes then is lost.
    pub limit: u64,
    /// TSC ticks in a millisecond: measured once by who starts the program, instead of by each of its processes.
    pub tsc_per_ms: f64,
}

/// What a thread's file says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The process was forked while its functions were being logged: it leaves functions that its parent entered.
    pub forked: bool,
    /// How times were measured, in words.
    pub clock: String,
    /// Units of time in a millisecond; `None` for cycles, which have no fixed length.
    pub ticks_per_ms: Option<f64>,
    /// How events were counted, or why not, in words.
    pub counting: String,
    /// Names of the events in each record; the first is always the TSC where there are any.
    pub events: Vec<String>,
    /// TSC ticks in a millisecond.
    pub tsc_per_ms: f64,
    /// What logging an entry or exit costs, in units of time and in each event: subtracted when the file is read.
    pub costs: Vec<f64>,
    /// What an entry or exit costs that is not logged.
    pub skip_costs: Vec<f64>,
    /// What logging one with all of [`Config::priced`] would cost in units of time; `None` where they cannot be counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub priced_cost: Option<f64>,
    /// What the shim takes of the thread's time on a CPU, the kernel's included.
    #[serde(default)]
    pub cpu: CpuCosts,
}

/// What the shim takes of a thread's time on a CPU, in user mode and in the kernel, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuCosts {
    /// From the process's first event until it logs; 0 for all threads but the first. Without what the dynamic loader does before.
    pub set_up: f64,
    /// From then to the thread's end; 0 if it was killed.
    pub lasted: f64,
    /// Of an entry or exit that is logged, its part of a page of the log included.
    pub logged: f64,
    /// Of one that is not.
    pub skipped: f64,
    /// Of one with all of [`Config::priced`]; 0 where they cannot be counted.
    pub priced: f64,
}

impl Header {
    /// Words of a record.
    #[must_use]
    pub fn words(&self) -> usize {
        WORDS + self.events.len()
    }
}

/// The first two words of a record in their parts; time and counts follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What happened.
    pub kind: CallKind,
    /// Address of the function, below 2^48.
    pub function: u64,
    /// Low bits of the address from which the shim was called.
    pub site: u16,
    /// Stack pointer, below 2^48.
    pub frame: u64,
    /// Entries and exits since the record before that were not logged, at most [`Record::SKIPPED_MAX`].
    pub skipped: u64,
}

impl Record {
    /// The most skipped events that a record can tell.
    pub const SKIPPED_MAX: u64 = (1 << 14) - 1;
    const ADDRESS: u64 = (1 << 48) - 1;

    /// The words. The first is never 0, so that a written record can be told.
    #[must_use]
    pub fn pack(&self) -> [u64; 2] {
        let kind = match self.kind {
            CallKind::Enter => 0,
            CallKind::Exit => 1,
            CallKind::TailExit => 2,
            CallKind::Mark => 3,
        };
        let function = (self.function & Self::ADDRESS).max(1);
        let skipped = self.skipped.min(Self::SKIPPED_MAX);
        [function | u64::from(self.site) << 48, self.frame & Self::ADDRESS | kind << 48 | skipped << 50]
    }

    /// The parts of two words.
    #[must_use]
    pub fn unpack([first, second]: [u64; 2]) -> Self {
        let kind = match second >> 48 & 3 {
            0 => CallKind::Enter,
            1 => CallKind::Exit,
            2 => CallKind::TailExit,
            _ => CallKind::Mark,
        };
        Self {
            kind,
            function: first & Self::ADDRESS,
            site: (first >> 48) as u16,
            frame: second & Self::ADDRESS,
            skipped: second >> 50,
        }
    }
}

/// A line of `/proc/PID/maps` that maps code of a file: first address, address after it, byte of the file, path.
#[must_use]
pub fn code_mapping(line: &str) -> Option<(u64, u64, u64, &str)> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let executable = fields.next()?.contains('x');
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hexadecimal(fields.next()?)?;
    let path = fields.nth(2)?.trim_start();
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    (executable && path.starts_with('/')).then_some((start, end, offset, path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_are_read_as_they_were_written(
            function in 1_u64..1 << 48, site: u16, frame in 0_u64..1 << 48, kind in 0_usize..4, skipped in 0_u64..1 << 14
        ) {
            let kind = [CallKind::Enter, CallKind::Exit, CallKind::TailExit, CallKind::Mark][kind];
            let record = Record { kind, function, site, frame, skipped };
            prop_assert_eq!(Record::unpack(record.pack()), record);
            prop_assert!(record.pack()[0] != 0);
        }
    }

    #[test]
    fn code_is_found_in_maps() {
        let line = "55d0c4a01000-55d0c4a02000 r-xp 00001000 fe:00 131 /tmp/a name";
        assert_eq!(code_mapping(line), Some((0x55d0_c4a0_1000, 0x55d0_c4a0_2000, 0x1000, "/tmp/a name")));
        assert_eq!(code_mapping("55d0c4a01000-55d0c4a02000 r--p 00001000 fe:00 131    /tmp/a"), None);
        assert_eq!(code_mapping("7ffd1000-7ffd2000 r-xp 00000000 00:00 0    [vdso]"), None);
        assert_eq!(code_mapping("nonsense"), None);
    }
}
