//! What all threads of a process share.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use libhpm::call_log::{
    CONFIG, Clock, Config, Counting, FOLDER_VARIABLE, FileFunctions, Filter, code_mapping,
};
use libhpm::session::Session;
use libhpm::sys::clock::tsc;

use crate::clock::cpu_ns;
use crate::counting::{DRIVER, Source, driver};
use crate::readings::Sources;
use crate::thread::Thread;
use crate::{ffi, forget_skipped, table, with_thread};

/// Entries and exits that one measurement of the shim's own cost consists of, and how many there are; the least counts.
const CALLS: usize = 40;
const MEASUREMENTS: usize = 4;
/// Bytes that /proc/self/maps may well have.
const MAPS_BYTES: usize = 1 << 16;

/// What an entry or exit costs: TSC ticks, then the words of a record from the time on. Empty while it is not known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    pub(crate) logged: Vec<f64>,
    pub(crate) skipped: Vec<f64>,
    /// TSC ticks and time with the events that are priced; empty where there are none.
    pub(crate) priced: Vec<f64>,
}

/// A process image since its start, or since it was forked.
pub(crate) struct Process {
    forks: u32,
    /// [`cpu_ns`] of the thread that set it up, when that began.
    began: u64,
    pub(crate) config: Config,
    /// Files begin with this.
    prefix: PathBuf,
    threads: AtomicU32,
    pub(crate) clock_words: String,
    pub(crate) ticks_per_ms: Option<f64>,
    pub(crate) sources: Sources,
    pub(crate) source_words: String,
    /// Names of a record's counts, the TSC first.
    pub(crate) events: Vec<String>,
    /// How many events could be read beside, which are only priced.
    pub(crate) priced: usize,
    code: Mutex<Vec<(u64, u64, u64, String)>>,
    calibrating: AtomicBool,
    costs: OnceLock<Costs>,
}

/// The process, or that there is nothing to log. Changed only by who holds [`ffi::acquire`].
static PROCESS: Mutex<Option<Option<Arc<Process>>>> = Mutex::new(None);

impl Process {
    /// The calling process; `None` when it is not to be logged. Only for who holds [`ffi::acquire`].
    pub(crate) fn current() -> Option<Arc<Self>> {
        let mut process = PROCESS.lock().ok()?;
        match &*process {
            Some(Some(known)) if known.forks != ffi::forks() => {
                let known = Arc::clone(known);
                // The parent's: its session and descriptors are not to be closed here.
                std::mem::forget(Arc::clone(&known));
                *process = Some(Self::new(known.config.clone()).map(Arc::new));
            }
            Some(_) => {}
            None => {
                ffi::watch_forks();
                *process = Some(read_config().and_then(Self::new).map(Arc::new));
            }
        }
        process.clone().flatten()
    }

    fn new(config: Config) -> Option<Self> {
        let began = cpu_ns();
        let folder = PathBuf::from(std::env::var_os(FOLDER_VARIABLE)?);
        let prefix = folder.join(format!("{}-{:x}", std::process::id(), tsc()));
        let is_pricing = config.events.is_empty();
        let asked = if is_pricing { &config.priced } else { &config.events };
        let Opened { sources, clock_words, source_words } = Opened::new(&config, asked);
        let mut events = sources.source.names(asked);
        if !events.is_empty() {
            events.insert(0, "tsc".to_owned());
        }
        let (events, priced) = if is_pricing { (vec![], events.len()) } else { (events, 0) };
        let ticks_per_ms = match sources.clock {
            Clock::Cycles => None,
            Clock::Tsc => Some(config.tsc_per_ms),
            Clock::Cpu | Clock::Auto => Some(1e6),
        };
        let process = Self {
            forks: ffi::forks(),
            began,
            config,
            prefix,
            threads: AtomicU32::new(0),
            clock_words,
            ticks_per_ms,
            sources,
            source_words: if is_pricing { "nothing is counted".to_owned() } else { source_words },
            events,
            priced,
            code: Mutex::default(),
            calibrating: AtomicBool::new(false),
            costs: OnceLock::new(),
        };
        process.read_maps();
        Some(process)
    }

    /// The file for the next thread.
    pub(crate) fn next_log(&self) -> PathBuf {
        self.with_suffix(&format!("-{}.calls", self.threads.fetch_add(1, Ordering::Relaxed)))
    }

    fn with_suffix(&self, suffix: &str) -> PathBuf {
        let mut path = self.prefix.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    /// What the shim costs; empty while that is being measured.
    pub(crate) fn costs(&self) -> Costs {
        self.costs.get().cloned().unwrap_or_default()
    }

    /// Decides whether a function is logged.
    pub(crate) fn decide(&self, function: u64) -> bool {
        let place = self.place_of(function).or_else(|| {
            // Something has been loaded since.
            self.read_maps();
            self.place_of(function)
        });
        let among = |files: &[FileFunctions]| {
            place.as_ref().is_some_and(|(path, offset)| {
                let file = files.iter().find(|file| file.path == *path);
                file.is_some_and(|file| file.offsets.binary_search(offset).is_ok())
            })
        };
        let logged = match &self.config.filter {
            Filter::LeaveOut(files) => !among(files),
            Filter::Only(files) => among(files),
        };
        table::decide(function, logged);
        logged
    }

    fn place_of(&self, address: u64) -> Option<(String, u64)> {
        let code = self.code.lock().ok()?;
        let (start, _, offset, path) =
            code.iter().find(|(start, end, ..)| (*start..*end).contains(&address))?;
        Some((path.clone(), address - start + offset))
    }

    /// Looks at what is mapped, and writes what is new to the log's folder.
    fn read_maps(&self) {
        // The kernel does not tell the length, and each system call walks through the mappings from the first one.
        let mut maps = Vec::with_capacity(MAPS_BYTES);
        if File::open("/proc/self/maps").and_then(|mut file| file.read_to_end(&mut maps)).is_err() {
            return;
        }
        let maps = String::from_utf8_lossy(&maps);
        let Ok(mut code) = self.code.lock() else { return };
        let mut new = String::new();
        for line in maps.lines() {
            let Some((start, end, offset, path)) = code_mapping(line) else { continue };
            let known = (start, end, offset, path.to_owned());
            if !code.contains(&known) {
                code.insert(0, known);
                new += line;
                new.push('\n');
            }
        }
        let file = OpenOptions::new().create(true).append(true).open(self.with_suffix(".maps"));
        // Without it the functions stay nameless.
        let _ = file.and_then(|mut file| file.write_all(new.as_bytes()));
    }

    /// Measures what the shim costs, by the calling thread, which has just begun its log; once for each process.
    pub(crate) fn calibrate() {
        let process = with_thread(|thread| thread.process.clone()).flatten();
        let Some(process) = process.filter(|process| !process.calibrating.swap(true, Ordering::Relaxed))
        else {
            return;
        };
        table::decide(address_of(&LOGGED), true);
        table::decide(address_of(&NOT_LOGGED), false);
        let mut costs = Costs::default();
        for _ in 0..MEASUREMENTS {
            // One more is logged by whoever looks at the clock.
            let Some(logged) = cost_of(&LOGGED) else { return };
            let Some(skipped) = cost_of(&NOT_LOGGED) else { return };
            let logged: Vec<f64> = logged.iter().map(|cost| cost / (CALLS + 1) as f64).collect();
            let skipped =
                skipped.iter().zip(&logged).map(|(cost, logged)| (cost - logged).max(0.0) / CALLS as f64);
            let priced = if process.priced == 0 { vec![] } else { priced(process.priced) };
            costs = costs.least(Costs { skipped: skipped.collect(), logged, priced });
            with_thread(Thread::rewind);
        }
        let _ = process.costs.set(costs.clone());
        forget_skipped();
        with_thread(|thread| thread.put_set_up(&costs, cpu_ns().saturating_sub(process.began)));
    }
}

/// Stand for functions: their addresses are those of nothing else.
static LOGGED: AtomicU32 = AtomicU32::new(0);
static NOT_LOGGED: AtomicU32 = AtomicU32::new(1);

fn address_of(function: &AtomicU32) -> u64 {
    std::ptr::from_ref(function).addr() as u64
}

/// TSC ticks, time and events that go by while a function is entered and left so often.
fn cost_of(function: &AtomicU32) -> Option<Vec<f64>> {
    let columns = |thread: &mut Thread| {
        thread.mark();
        (tsc(), thread.columns())
    };
    let (began, before) = with_thread(columns)?;
    let function = address_of(function) as usize;
    for _ in 0..CALLS / 2 {
        ffi::__cyg_profile_func_enter(function, 0);
        ffi::__cyg_profile_func_exit(function, 0);
    }
    let (ended, after) = with_thread(columns)?;
    let columns = after.iter().zip(before).map(|(after, before)| after - before);
    Some(std::iter::once(ended.saturating_sub(began) as f64).chain(columns).collect())
}

/// What an event costs in time that is logged with so many counts.
fn priced(counts: usize) -> Vec<f64> {
    let usual = with_thread(|thread| thread.count(counts));
    let cost = cost_of(&LOGGED);
    with_thread(|thread| usual.map(|usual| thread.count(usual)));
    cost.map_or_else(Vec::new, |cost| cost.iter().take(2).map(|cost| cost / (CALLS + 1) as f64).collect())
}

impl Costs {
    /// The least of two measurements of each: what disturbs them only adds.
    fn least(self, other: Self) -> Self {
        let least = |a: Vec<f64>, b: &[f64]| {
            if a.is_empty() { b.to_vec() } else { a.iter().zip(b).map(|(a, b)| a.min(*b)).collect() }
        };
        Self {
            logged: least(self.logged, &other.logged),
            skipped: least(self.skipped, &other.skipped),
            priced: least(self.priced, &other.priced),
        }
    }
}

/// The shim's configuration; `None` when nothing is to be logged.
fn read_config() -> Option<Config> {
    let folder = PathBuf::from(std::env::var_os(FOLDER_VARIABLE)?);
    let text = fs::read(folder.join(CONFIG)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The sources of these events and of the clock that was asked for, and in words what they are.
struct Opened {
    sources: Sources,
    clock_words: String,
    source_words: String,
}

impl Opened {
    /// A process's counters serve one session of the module, so that the clock and the counts are of the same.
    fn new(config: &Config, events: &[String]) -> Self {
        let by_cycles = matches!(config.clock, Clock::Auto | Clock::Cycles);
        let by_driver = !events.is_empty() && !matches!(config.counting, Counting::Perf);
        let tsc_per_ms = config.tsc_per_ms;
        let mut why = None;
        if by_cycles && by_driver {
            let all =
                config.cycles.clone().and_then(|cycles| Ok([&[cycles], config.encoded.as_deref()?].concat()));
            match all.and_then(|all| driver(&all)) {
                Ok(session) => {
                    let source = Source::Driver(session);
                    return Self {
                        sources: Sources { clock: Clock::Cycles, cycles: Some(session), source, tsc_per_ms },
                        clock_words: CYCLES_WORDS.to_owned(),
                        source_words: DRIVER.to_owned(),
                    };
                }
                Err(error) => why = Some(error),
            }
        }
        let (source, source_words) = match Source::open(events, config) {
            Ok(opened) => opened,
            Err(error) => (Source::None, format!("nothing is counted: {error}")),
        };
        let (clock, cycles, clock_words) = match (&source, why) {
            (Source::Driver(_), Some(error)) => cpu_clock(&format!(", because {error}")),
            _ => clock(config),
        };
        Self { sources: Sources { clock, cycles, source, tsc_per_ms }, clock_words, source_words }
    }
}

const CYCLES_WORDS: &str = "cycles of the thread in user mode, by the hpm module's self-read counters";

/// The clock that is used for the one that was asked for.
fn clock(config: &Config) -> (Clock, Option<&'static Session>, String) {
    match config.clock {
        Clock::Auto | Clock::Cycles => match config.cycles.clone().and_then(|cycles| driver(&[cycles])) {
            Ok(session) => (Clock::Cycles, Some(session), CYCLES_WORDS.to_owned()),
            Err(error) => cpu_clock(&format!(", because {error}")),
        },
        Clock::Tsc => {
            let words = "real time by the TSC, waiting and other threads' turns included";
            (Clock::Tsc, None, words.to_owned())
        }
        Clock::Cpu => cpu_clock(""),
    }
}

fn cpu_clock(why: &str) -> (Clock, Option<&'static Session>, String) {
    let words = format!(
        "time on a CPU, by the TSC set right by CLOCK_THREAD_CPUTIME_ID after gaps of 20 µs and each ms{why}"
    );
    (Clock::Cpu, None, words)
}
