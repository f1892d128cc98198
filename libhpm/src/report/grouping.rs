//! What samples are grouped by, and what the samples of one group have in common.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::Sample;
use crate::record::Snoop;
use crate::symbol::Frame;

/// What samples are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Function and the file that has it.
    Function,
    /// Source line, and the function it belongs to.
    Line,
    /// The file that has the code.
    Module,
    /// Thread.
    Thread,
    /// Process, with all its threads.
    Process,
    /// Logical CPU.
    Cpu,
    /// Instruction, by the address that the linker gave it, whatever process it is in.
    Instruction,
    /// What was mapped where the data is.
    Region,
    /// Cache or memory where the data was found.
    Level,
    /// The same, with what other caches said, the TLB and the lock.
    Source,
}

impl By {
    /// Its name, as JSON and command lines have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Line => "line",
            Self::Module => "module",
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Cpu => "cpu",
            Self::Instruction => "instruction",
            Self::Region => "region",
            Self::Level => "level",
            Self::Source => "source",
        }
    }
}

/// One of them, or several at once, of which a group's samples have all in common: such as each function's samples by where their data
/// was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouping(Vec<By>);

impl From<By> for Grouping {
    fn from(by: By) -> Self {
        Self(vec![by])
    }
}

/// Those names, separated by commas.
impl Serialize for Grouping {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names: Vec<&str> = self.0.iter().map(|by| by.name()).collect();
        serializer.serialize_str(&names.join(","))
    }
}

impl Grouping {
    /// By all of these; by none, every sample is of one group.
    #[must_use]
    pub fn new(all: impl IntoIterator<Item = By>) -> Self {
        Self(all.into_iter().collect())
    }

    /// By what, in the order in which it was asked for.
    #[must_use]
    pub fn parts(&self) -> &[By] {
        &self.0
    }

    /// Whether it is by this, alone or among others.
    #[must_use]
    pub fn has(&self, by: By) -> bool {
        self.0.contains(&by)
    }

    /// Whether a sample belongs to groups of its callers, too: groups are told by code, and not by the one instruction that was sampled.
    #[must_use]
    pub fn has_callers(&self) -> bool {
        [By::Function, By::Line, By::Module].into_iter().any(|by| self.has(by)) && !self.has(By::Instruction)
    }

    /// The group of the sample itself, and every group of its stack, each once.
    pub(super) fn keys(&self, sample: &Sample) -> (Key, Vec<Key>) {
        let key = |frame: &Frame| {
            let mut key = Key::default();
            self.0.iter().for_each(|by| key.tell(*by, sample, frame));
            key
        };
        if !self.has_callers() {
            let own = key(&sample.chain.calls[0][0]);
            return (own.clone(), vec![own]);
        }
        let mut touched: Vec<Key> = sample.chain.frames().map(key).collect();
        let own = touched[0].clone();
        touched.sort_unstable();
        touched.dedup();
        (own, touched)
    }
}

/// What the samples of one group have in common; what does not matter for the grouping is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// Address that the linker gave to the instruction; of code without a file, where it was in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Function; absent also when no symbol covers the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<Arc<str>>,
    /// The file that has the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<Arc<str>>,
    /// Source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
    /// Line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Logical CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Thread-group ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Thread ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Last name of the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<Arc<str>>,
    /// Last name of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Arc<str>>,
    /// What was mapped where the data is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Arc<str>>,
    /// Cache or memory where the data was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<&'static str>,
    /// What other caches said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snoop: Option<&'static str>,
    /// The second-level TLB was missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stlb_miss: Option<bool>,
    /// The access was locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<bool>,
}

impl Key {
    pub(super) fn of_function(frame: &Frame) -> Self {
        Self { function: frame.function.clone(), module: Some(Arc::clone(&frame.module)), ..Self::default() }
    }

    /// Adds what a sample has of this, or a call of its stack.
    fn tell(&mut self, by: By, sample: &Sample, frame: &Frame) {
        match by {
            By::Function => self.tell_function(frame),
            By::Line => self.tell_line(frame),
            By::Module => self.module = Some(Arc::clone(&frame.module)),
            By::Thread => {
                (self.pid, self.tid) = (Some(sample.pid), Some(sample.tid));
                self.thread = Some(Arc::clone(&sample.last_thread_name));
            }
            By::Process => {
                (self.pid, self.process) = (Some(sample.pid), Some(Arc::clone(&sample.process_name)));
            }
            By::Cpu => self.cpu = Some(sample.cpu),
            By::Instruction => {
                self.tell_line(frame);
                self.address = Some(sample.chain.linked_address);
            }
            By::Region => self.region.clone_from(&sample.region),
            By::Level => self.level = sample.source.map(|source| source.level.name()),
            By::Source => self.tell_source(sample),
        }
    }

    fn tell_function(&mut self, frame: &Frame) {
        (self.function, self.module) = (frame.function.clone(), Some(Arc::clone(&frame.module)));
    }

    fn tell_line(&mut self, frame: &Frame) {
        self.tell_function(frame);
        (self.file, self.line) = (frame.file.clone(), frame.line);
    }

    /// All that is told of the source; nothing for a sample that does not tell.
    fn tell_source(&mut self, sample: &Sample) {
        let Some(source) = sample.source else { return };
        self.level = Some(source.level.name());
        self.snoop = source.snoop.map(Snoop::name);
        (self.stlb_miss, self.locked) = (source.stlb_miss, source.locked);
    }
}
