//! Data address profiles: where in memory events happen (Schneider's thesis, 3.3.3 and 4.2 to 4.4).
//!
//! A [`Profile`] takes accesses, each with its address and the space that this is in, and sums them by space (Figures 4.3 to 4.6), page,
//! cache line, variable, object and place of allocation. A line that several threads use is told apart into shared data and *false
//! sharing*: threads that use different bytes of it, at least one of which writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::address::Unknown;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a cache line, as on every x86 processor since the Pentium M.
pub const LINE_BYTES: u64 = 64;
/// Bytes that count as one place in a line: the widest general register.
const WORD_BYTES: u64 = 8;

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// A thread's stack.
    Stack,
    /// Variables of a binary.
    Global,
    /// What an allocator gave out, as far as its allocations were recorded, and the area that `brk` grows.
    Heap,
    /// Memory without a file: large allocations and further heaps of allocators, unless these were recorded.
    Anonymous,
    /// A mapped file that is no part of a binary.
    File,
    /// Code, and constants between it.
    Code,
    /// What the kernel shares with every process.
    Vdso,
    /// The kernel.
    Kernel,
    /// An address that nothing was mapped at, as far as recorded.
    Unmapped,
    /// The address is not known.
    Unknown,
}

impl Space {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Global => "global",
            Self::Heap => "heap",
            Self::Anonymous => "anonymous",
            Self::File => "file",
            Self::Code => "code",
            Self::Vdso => "vdso",
            Self::Kernel => "kernel",
            Self::Unmapped => "unmapped",
            Self::Unknown => "unknown",
        }
    }
}

/// An allocated object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// Number of its allocation in the trace.
    pub number: u64,
    /// Its first byte.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Where it was allocated.
    pub site: Arc<str>,
}

/// A sampled access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Index of the event.
    pub event: usize,
    /// Events that it stands for.
    pub period: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Data address, or why it is not known.
    pub address: Result<u64, Unknown>,
    /// It writes, where that is known.
    pub writes: Option<bool>,
    /// What the address is in.
    pub space: Space,
    /// What that is called: a variable, a file.
    pub name: Option<Arc<str>>,
    /// First byte of what is called so; 0 without a name.
    pub start: u64,
    /// The object, where allocations were recorded.
    pub object: Option<Object>,
    /// The object was young: allocated shortly before.
    pub young: bool,
}

/// Samples of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// How many.
    pub samples: u64,
    /// The sum of their periods.
    pub events: u64,
    /// How many of the samples are of young objects.
    #[serde(skip_serializing_if = "is_zero")]
    pub young: u64,
}

impl Sum {
    fn add(&mut self, access: &Access) {
        self.samples += 1;
        self.events = self.events.saturating_add(access.period);
        self.young += u64::from(access.young);
    }
}

/// What accesses are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Kind of memory.
    Space,
    /// Page of 4096 bytes.
    Page,
    /// Cache line of 64 bytes.
    Line,
    /// Variable.
    Symbol,
    /// Allocated object.
    Object,
    /// Place of allocation.
    Site,
    /// Reason why an address is not known.
    Reason,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// Kind of memory.
    pub space: Space,
    /// Process, where addresses are grouped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// First address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Bytes, of an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Number of its allocation in the trace, of an object: others can have been at the same address before or after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Variable, file, place of allocation, or reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}

/// How threads use a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Several threads use different bytes of it, and at least one writes: a candidate for false sharing.
    False,
    /// Several threads use the same bytes, and at least one writes.
    True,
    /// Several threads use it, and no sample shows a write.
    ReadOnly,
}

/// What one thread does in one place of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Touch {
    /// Thread.
    pub tid: u32,
    /// Byte of the line, rounded down to 8.
    pub offset: u64,
    /// Samples.
    pub samples: u64,
    /// Of these, those that are known to write.
    pub writes: u64,
}

/// What one thread does in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineThread {
    /// Thread.
    pub tid: u32,
    /// Its samples in the line.
    pub samples: u64,
    /// Its places in the line, in the order in which they were given.
    pub touches: Vec<Touch>,
}

/// A group with its samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Which.
    #[serde(flatten)]
    pub key: Key,
    /// One for each event.
    pub sums: Vec<Sum>,
    /// How many objects, of a place of allocation.
    #[serde(skip_serializing_if = "is_zero")]
    pub objects: u64,
    /// How threads share it, of a line that several use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// Who uses which bytes, of a line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub touches: Vec<Touch>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Default)]
struct Group {
    sums: Vec<Sum>,
    objects: BTreeSet<u64>,
    /// By thread and word: samples and writes.
    touches: BTreeMap<(u32, u64), (u64, u64)>,
}

/// Accesses in groups.
#[derive(Debug)]
pub struct Profile {
    by: By,
    events: usize,
    groups: BTreeMap<Key, Group>,
    all: Vec<Sum>,
}

impl Profile {
    /// Of so many events.
    #[must_use]
    pub fn new(by: By, events: usize) -> Self {
        Self { by, events, groups: BTreeMap::new(), all: vec![Sum::default(); events] }
    }

    /// What it groups by.
    #[must_use]
    pub fn by(&self) -> By {
        self.by
    }

    /// Counts an access. One that has no such group, as a stack access has no object, counts in [`Profile::all`] alone; so does
    /// nothing of an event that does not exist.
    pub fn add(&mut self, access: &Access) {
        let Some(all) = self.all.get_mut(access.event) else { return };
        all.add(access);
        let Some(key) = self.key(access) else { return };
        let events = self.events;
        let group = self.groups.entry(key).or_default();
        group.sums.resize(events, Sum::default());
        group.sums[access.event].add(access);
        if let (By::Site, Some(object)) = (self.by, &access.object) {
            group.objects.insert(object.number);
        }
        if let (By::Line, Ok(address)) = (self.by, access.address) {
            let word = address % LINE_BYTES / WORD_BYTES * WORD_BYTES;
            let touch = group.touches.entry((access.tid, word)).or_default();
            touch.0 += 1;
            touch.1 += u64::from(access.writes == Some(true));
        }
    }

    fn key(&self, access: &Access) -> Option<Key> {
        let plain =
            Key { space: access.space, pid: None, address: None, bytes: None, number: None, name: None };
        let at = |unit: u64| {
            let address = access.address.ok()? / unit * unit;
            let name =
                access.object.as_ref().map(|object| Arc::clone(&object.site)).or_else(|| access.name.clone());
            Some(Key { pid: Some(access.pid), address: Some(address), name, ..plain.clone() })
        };
        match self.by {
            By::Space => Some(plain),
            By::Page => at(PAGE_BYTES).map(|key| Key { name: None, ..key }),
            By::Line => at(LINE_BYTES).map(|key| Key { name: None, ..key }),
            By::Symbol => {
                let named = matches!(access.space, Space::Global | Space::File | Space::Code);
                let name = access.name.clone().filter(|_| named)?;
                Some(Key { name: Some(name), ..plain })
            }
            By::Object => {
                let Object { number, address, bytes, site } = access.object.as_ref()?;
                let (address, bytes, number) = (Some(*address), Some(*bytes), Some(*number));
                Some(Key {
                    pid: Some(access.pid),
                    address,
                    bytes,
                    number,
                    name: Some(Arc::clone(site)),
                    ..plain
                })
            }
            By::Site => Some(Key { name: Some(Arc::clone(&access.object.as_ref()?.site)), ..plain }),
            By::Reason => {
                let reason = access.address.err()?;
                Some(Key { name: Some(reason.words().into()), ..plain })
            }
        }
    }

    /// All accesses, by event.
    #[must_use]
    pub fn all(&self) -> &[Sum] {
        &self.all
    }

    /// The groups, the one with most events first: of the first event in which two differ.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.groups.iter().map(|(key, group)| group.entry(key)).collect();
        let events =
            |entry: &Entry| entry.sums.iter().map(|sum| std::cmp::Reverse(sum.events)).collect::<Vec<_>>();
        entries.sort_by_cached_key(|entry| (events(entry), entry.key.clone()));
        entries
    }
}

impl Group {
    fn entry(&self, key: &Key) -> Entry {
        let touch = |(&(tid, offset), &(samples, writes)): (&(u32, u64), &(u64, u64))| Touch {
            tid,
            offset,
            samples,
            writes,
        };
        let touches: Vec<Touch> = self.touches.iter().map(touch).collect();
        Entry {
            key: key.clone(),
            sums: self.sums.clone(),
            objects: self.objects.len() as u64,
            sharing: sharing(&touches),
            touches,
        }
    }
}

/// How threads share what they touch; `None` for one thread.
#[must_use]
pub fn sharing(touches: &[Touch]) -> Option<Sharing> {
    let threads: BTreeSet<u32> = touches.iter().map(|touch| touch.tid).collect();
    if threads.len() < 2 {
        return None;
    }
    let writes = |touch: &&Touch| touch.writes > 0;
    let mut writers = touches.iter().filter(writes).peekable();
    if writers.peek().is_none() {
        return Some(Sharing::ReadOnly);
    }
    let same_bytes =
        |writer: &Touch| touches.iter().any(|other| other.tid != writer.tid && other.offset == writer.offset);
    Some(if writers.any(same_bytes) { Sharing::True } else { Sharing::False })
}

/// What is touched in a line, by thread: the thread with most samples first, of equal ones the one with the smallest ID.
#[must_use]
pub fn by_thread(touches: &[Touch]) -> Vec<LineThread> {
    let mut threads: BTreeMap<u32, LineThread> = BTreeMap::new();
    for touch in touches {
        let new = || LineThread { tid: touch.tid, samples: 0, touches: Vec::new() };
        let thread = threads.entry(touch.tid).or_insert_with(new);
        thread.samples += touch.samples;
        thread.touches.push(*touch);
    }
    let mut threads: Vec<LineThread> = threads.into_values().collect();
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.samples));
    threads
}

#[cfg(test)]
mod tests;
