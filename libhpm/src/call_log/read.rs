//! Reading logs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{HEADER_BYTES, Header, LOST_AT, NAME_AT, Record, VERSION, WORDS, code_mapping};
use crate::analysis::method::{CallEvent, CallKind, Counts, MAX_COUNTS};
use crate::{Error, Result};

/// A function by the place of its first byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionKey {
    /// The file that has it; `[unknown]` where no file was mapped.
    pub module: Arc<str>,
    /// Its first byte in that file; its address where no file was mapped.
    pub offset: u64,
}

/// Functions of all processes, numbered in the order in which they are met.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    keys: Vec<FunctionKey>,
    numbers: HashMap<FunctionKey, u32>,
}

impl Functions {
    /// The number of a function.
    pub fn number(&mut self, key: FunctionKey) -> u32 {
        let keys = &mut self.keys;
        *self.numbers.entry(key).or_insert_with_key(|key| {
            keys.push(key.clone());
            keys.len() as u32 - 1
        })
    }

    /// The functions by their numbers.
    #[must_use]
    pub fn keys(&self) -> &[FunctionKey] {
        &self.keys
    }
}

/// A folder's logs: of each process image its code, and its threads in the order in which they began.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// Code of each image, and the paths of its threads' files.
    images: Vec<(Code, Vec<PathBuf>)>,
}

/// Where code of files was mapped.
#[derive(Clone, Debug, Default)]
struct Code(Vec<(u64, u64, u64, Arc<str>)>);

impl Code {
    fn read(path: &Path) -> Self {
        // An image that was killed before it had written its maps has none; its functions are not known then.
        let text = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mappings = text.lines().filter_map(code_mapping);
        Self(mappings.map(|(start, end, offset, path)| (start, end, offset, path.into())).collect())
    }

    fn key(&self, address: u64) -> FunctionKey {
        // Later lines are of later looks, when other files may be where unloaded ones were.
        match self.0.iter().rev().find(|(start, end, ..)| (*start..*end).contains(&address)) {
            Some((start, _, offset, path)) => {
                FunctionKey { module: Arc::clone(path), offset: address - start + offset }
            }
            None => FunctionKey { module: "[unknown]".into(), offset: address },
        }
    }
}

/// A thread's file, with when its image began and which of its threads it is.
type Found = (u64, u64, PathBuf);

/// Finds a folder's logs.
///
/// # Errors
/// [`Error::Io`] when the folder cannot be read.
pub fn logs(folder: &Path) -> Result<Logs> {
    let doing = || format!("read {}", folder.display());
    let mut images: HashMap<String, Vec<Found>> = HashMap::new();
    for entry in fs::read_dir(folder).map_err(Error::io(doing()))? {
        let path = entry.map_err(Error::io(doing()))?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_none_or(|extension| extension != "calls") {
            continue;
        }
        let Some((image, ordinal)) = name.rsplit_once('-') else { continue };
        let began = image.split_once('-').and_then(|(_, tsc)| u64::from_str_radix(tsc, 16).ok());
        let (began, ordinal) = (began.unwrap_or(0), ordinal.parse().unwrap_or(u64::MAX));
        images.entry(image.to_owned()).or_default().push((began, ordinal, path));
    }
    let mut images: Vec<(String, Vec<Found>)> = images.into_iter().collect();
    for (_, threads) in &mut images {
        threads.sort();
    }
    images.sort_by_key(|(name, threads)| (threads.first().map(|first| first.0), name.clone()));
    let image = |(name, threads): (String, Vec<Found>)| {
        let code = Code::read(&folder.join(format!("{name}.maps")));
        (code, threads.into_iter().map(|(_, _, path)| path).collect())
    };
    Ok(Logs { images: images.into_iter().map(image).collect() })
}

impl Logs {
    /// Whether nothing was logged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// The logs of all threads.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Io`] for each that cannot be read.
    pub fn threads(&self) -> impl Iterator<Item = Result<CallLog<'_>>> {
        self.images.iter().flat_map(|(code, paths)| paths.iter().map(|path| CallLog::open(path, code)))
    }
}

/// One thread's log.
#[derive(Debug)]
pub struct CallLog<'a> {
    /// What it says of itself.
    pub header: Header,
    /// The thread's name at its end, or at its begin if it was killed.
    pub name: String,
    /// Entries and exits that were not written.
    pub lost: u64,
    /// Entries and exits that were not logged because of the filter, as far as they have been read.
    pub skipped: u64,
    /// Those that were, as far as they have been read.
    pub logged: u64,
    code: &'a Code,
    file: BufReader<File>,
    words: Vec<u8>,
    numbers: HashMap<u64, u32>,
    /// The event before, as it was written.
    last: Option<Raw>,
    /// Time and counts since the first event, without what the shim cost.
    time: f64,
    counts: [f64; MAX_COUNTS],
}

/// Time and counts as they were written.
#[derive(Clone, Copy, Debug)]
struct Raw {
    time: u64,
    counts: Counts,
}

impl<'a> CallLog<'a> {
    fn open(path: &Path, code: &'a Code) -> Result<Self> {
        let failed = || Error::io(format!("read {}", path.display()));
        let damaged = |what: &str| Error::corrupt(format!("{}: {what}", path.display()));
        let mut file = File::open(path).map_err(failed())?;
        let mut bytes = vec![0; HEADER_BYTES];
        file.read_exact(&mut bytes).map_err(|_| damaged("a log without its header"))?;
        let text = bytes[..NAME_AT].split(|byte| *byte == 0).next().unwrap_or_default();
        let header: Header = serde_json::from_slice(text)
            .map_err(|error| damaged(&format!("its header is damaged ({error})")))?;
        if header.version != VERSION {
            return Err(damaged(&format!(
                "a log of version {}, and this hpmctl reads version {VERSION}",
                header.version
            )));
        }
        let costs =
            |costs: &[f64]| costs.len() == 1 + header.events.len() && costs.iter().all(|cost| *cost >= 0.0);
        if header.events.len() > MAX_COUNTS || !costs(&header.costs) || !costs(&header.skip_costs) {
            return Err(damaged("its header contradicts itself"));
        }
        file.seek(SeekFrom::Start(HEADER_BYTES as u64)).map_err(failed())?;
        let name = bytes[NAME_AT..LOST_AT].split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self {
            name: String::from_utf8_lossy(name).trim().to_owned(),
            lost: u64::from_le_bytes(std::array::from_fn(|byte| bytes[LOST_AT + byte])),
            skipped: 0,
            logged: 0,
            code,
            file: BufReader::with_capacity(1 << 18, file),
            words: vec![0; 8 * header.words()],
            numbers: HashMap::new(),
            last: None,
            time: 0.0,
            counts: [0.0; MAX_COUNTS],
            header,
        })
    }

    /// The next event, from which what the shim had cost is subtracted; `None` at the end. A record that is cut off is the end.
    pub fn next(&mut self, functions: &mut Functions) -> Option<CallEvent> {
        self.file.read_exact(&mut self.words).ok()?;
        let word =
            |place: usize| u64::from_le_bytes(std::array::from_fn(|byte| self.words[8 * place + byte]));
        if word(0) == 0 {
            return None;
        }
        let record = Record::unpack([word(0), word(1)]);
        self.skipped += record.skipped;
        self.logged += 1;
        let time = word(2);
        let raw = Raw {
            time,
            counts: std::array::from_fn(|place| {
                if place < self.header.events.len() { word(WORDS + place) } else { 0 }
            }),
        };
        let (time, counts) = self.less_cost(&raw, record.skipped as f64);
        let function = match record.kind {
            CallKind::Mark => 0,
            _ => {
                let code = self.code;
                *self
                    .numbers
                    .entry(record.function)
                    .or_insert_with_key(|&address| functions.number(code.key(address)))
            }
        };
        Some(CallEvent { kind: record.kind, function, site: record.site, frame: record.frame, time, counts })
    }

    /// The thread's time on a CPU in ns from the log's begin to its end, in user mode and in the kernel, without what the shim took, once all
    /// has been read; `None` where that is not known.
    #[must_use]
    pub fn cpu_ns(&self) -> Option<f64> {
        let costs = &self.header.cpu;
        let shim = costs.logged * self.logged as f64 + costs.skipped * self.skipped as f64;
        Some(costs.lasted - shim).filter(|time| *time > 0.0)
    }

    /// Time and counts without what the shim did since the event before: one reading, and what was skipped. What it costs is an
    /// estimate; where less has gone by, nothing has.
    fn less_cost(&mut self, raw: &Raw, skipped: f64) -> (u64, Counts) {
        let (costs, skip_costs) = (&self.header.costs, &self.header.skip_costs);
        let last = self.last.unwrap_or(*raw);
        let gone_by = |now: u64, before: u64, place: usize| {
            (now.saturating_sub(before) as f64 - costs[place] - skip_costs[place] * skipped).max(0.0)
        };
        self.time += gone_by(raw.time, last.time, 0);
        for place in 1..self.header.events.len() {
            self.counts[place] += gone_by(raw.counts[place], last.counts[place], place + 1);
        }
        self.last = Some(*raw);
        let mut counts = self.counts.map(|count| count.round() as u64);
        // The TSC says when something happened, the shim's work included.
        counts[0] = raw.counts[0];
        (self.time.round() as u64, counts)
    }
}
