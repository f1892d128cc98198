//! Random requests to the driver: valid ones with some of their fields changed, and mappings of anything. Seeded, so that a
//! finding can be had again.

mod outcomes;
mod valid;

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use hpm_abi::{
    CONTROL_OFFSET, CounterRequest, IOCTL_CONFIGURE, IOCTL_COUNTERS, IOCTL_FLUSH, IOCTL_FOLLOW, IOCTL_INFO,
    IOCTL_MARK, IOCTL_MARKER_PAGE, IOCTL_READ, IOCTL_START, IOCTL_STOP, IOCTL_TOTALS, IOCTL_TYPE,
    MARKER_PAGES_OFFSET, MarkerPageRequest, PAGE_BYTES, STATUS_OFFSET, SessionConfig, counters_offset,
    markers_offset, quanta_offset, segments_offset, stacks_offset,
};
use libhpm::sys::device::Driver;
use libhpm::sys::probe::{ARGUMENT_WORDS, Access, Mapping, ioctl, try_map};

pub(super) use self::outcomes::{Depth, Outcomes};
use self::outcomes::{OPEN, STRANGE};
use self::valid::{Valid, field};
use super::GuestReport;

/// Environment of the program that sends them.
pub(super) const SEED: &str = "HPM_SEED";
pub(super) const REQUESTS: &str = "HPM_REQUESTS";
/// hpm's name of the PMU.
pub(super) const PMU: &str = "HPM_PMU";
/// Set: the module comes and goes meanwhile, and is let go of now and then.
pub(super) const FLEETING: &str = "HPM_FLEETING";

const CONFIGURE: (&str, u32) = ("CONFIGURE", IOCTL_CONFIGURE);
/// Every ioctl.
pub(super) const IOCTLS: [(&str, u32); 11] = [
    ("INFO", IOCTL_INFO),
    CONFIGURE,
    ("START", IOCTL_START),
    ("STOP", IOCTL_STOP),
    ("FLUSH", IOCTL_FLUSH),
    ("TOTALS", IOCTL_TOTALS),
    ("COUNTERS", IOCTL_COUNTERS),
    ("READ", IOCTL_READ),
    ("MARK", IOCTL_MARK),
    ("MARKER_PAGE", IOCTL_MARKER_PAGE),
    ("FOLLOW", IOCTL_FOLLOW),
];

/// An area of a session that user space maps.
struct AreaKind {
    name: &'static str,
    may_write: bool,
    /// Where it begins in this session, of a CPU.
    offset: fn(&Slot, u32) -> u64,
    /// Whether this session has one.
    is_there: fn(&Slot) -> bool,
}

/// Every one.
const AREAS: [AreaKind; 8] = {
    type Place = fn(&Slot, u32) -> u64;
    const fn area(name: &'static str, offset: Place, is_there: fn(&Slot) -> bool) -> AreaKind {
        AreaKind { name, may_write: false, offset, is_there }
    }
    const fn writable(name: &'static str, offset: Place, is_there: fn(&Slot) -> bool) -> AreaKind {
        AreaKind { may_write: true, ..area(name, offset, is_there) }
    }
    let marker_page: Place = |slot, _| slot.marker_page.unwrap_or(MARKER_PAGES_OFFSET);
    [
        area("map status", |_, _| STATUS_OFFSET, |_| true),
        writable("map control", |_, _| CONTROL_OFFSET, |_| true),
        area("map quanta", |_, cpu| quanta_offset(cpu), |slot| slot.asked(offset_of!(SessionConfig, quanta))),
        area(
            "map segments",
            |_, cpu| segments_offset(cpu),
            |slot| slot.asked(offset_of!(SessionConfig, segments)),
        ),
        area(
            "map stacks",
            |_, cpu| stacks_offset(cpu),
            |slot| slot.asked(offset_of!(SessionConfig, stack_ring_bytes)),
        ),
        area(
            "map counters",
            |slot, _| counters_offset(slot.counter_page.unwrap_or_default()),
            |slot| slot.counter_page.is_some(),
        ),
        area(
            "map markers",
            |_, cpu| markers_offset(cpu),
            |slot| slot.asked(offset_of!(SessionConfig, markers)),
        ),
        writable("map marker page", marker_page, |slot| slot.marker_page.is_some()),
    ]
};

/// Numbers near the limits of some field.
const EDGES: [u64; 16] =
    [0, 1, 2, 3, 5, 63, 64, 255, 256, 4096, 65_535, 65_536, 1 << 31, u32::MAX as u64, 1 << 63, u64::MAX];

/// Mappings that are kept, each of which may keep a session.
const MAPPINGS_MAX: usize = 8;

/// Requests after which a sender of [`FLEETING`] ones lets the module go, and for how long at least: two senders must do so together.
/// Where requests are slow, as on a debug kernel, it is for as long as they took.
const BURST: u64 = 10;
const PAUSE: Duration = Duration::from_millis(200);
/// Requests after which a sender that may do so says in the kernel's log how far it is: a million take minutes.
const PROGRESS: u64 = 20_000;
/// For how long the module may be away.
const AWAY: Duration = Duration::from_secs(120);

/// A descriptor.
struct Slot {
    driver: Driver,
    /// The request by which it became a session; it refuses to become another one.
    configured: Option<[u64; ARGUMENT_WORDS]>,
    /// Pages that it has.
    counter_page: Option<u32>,
    /// Its offset.
    marker_page: Option<u64>,
}

impl Slot {
    /// Whether the request by which it became a session has something else than 0 at this offset.
    fn asked(&self, offset: usize) -> bool {
        self.configured.is_some_and(|request| field(&request, offset) != 0)
    }
}

/// Descriptors and mappings at hand; each is replaced at random.
struct State {
    random: Rng,
    valid: Valid,
    slots: Vec<Slot>,
    /// Each with whether it may be written.
    mappings: Vec<(Mapping, bool)>,
    outcomes: Outcomes,
}

/// Sends as many requests as the environment says.
///
/// # Errors
/// The environment does not say, or the driver let something through that must not be.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let number = |name: &str| -> Result<u64> { Ok(std::env::var(name).context(name.to_owned())?.parse()?) };
    let (seed, requests) = (number(SEED)?, number(REQUESTS)?);
    let fleeting = std::env::var_os(FLEETING).is_some();
    let pmu = std::env::var(PMU).context(PMU)?;
    let (slots, mappings) = (vec![], vec![]);
    let (random, valid, outcomes) = (Rng::with_seed(seed), Valid::new(&pmu)?, Outcomes::default());
    let mut state = State { random, valid, slots, mappings, outcomes };
    let mut burst = Instant::now();
    for request in 0..requests {
        if fleeting && request % BURST == 0 {
            state.mappings.clear();
            state.slots.clear();
            std::thread::sleep(burst.elapsed().max(PAUSE));
            burst = Instant::now();
        }
        state.open_some()?;
        state.request()?;
        if (request + 1) % PROGRESS == 0 {
            let _ = std::fs::write("/dev/kmsg", format!("suite: {} of {requests} requests\n", request + 1));
        }
    }
    state.outcomes.leave(report)
}

/// The names of the areas among the outcomes.
pub(super) fn areas() -> Vec<&'static str> {
    AREAS.iter().map(|area| area.name).collect()
}

impl State {
    /// Opens what the requests need; waits while the module is not there.
    fn open_some(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.slots.len() < 6 {
            match Driver::open() {
                Ok(driver) => {
                    self.slots.push(Slot { driver, configured: None, counter_page: None, marker_page: None });
                    self.outcomes.note(OPEN, &Ok(()));
                }
                Err(_) if !self.slots.is_empty() => break,
                Err(error) => {
                    self.outcomes.add(OPEN, format!("E: {error}"));
                    ensure!(start.elapsed() < AWAY, "the module does not come back: {error}");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        Ok(())
    }

    fn request(&mut self) -> Result<()> {
        let slot = self.random.usize(..self.slots.len());
        match self.random.u8(..100) {
            0 => drop(self.slots.swap_remove(slot)),
            1..24 => self.map(slot)?,
            24..34 => self.touch()?,
            34..38 => self.read(slot),
            _ => self.ioctl(slot),
        }
        Ok(())
    }

    /// Reads reports, of which there are some if the descriptor's session follows a process.
    fn read(&mut self, slot: usize) {
        let mut bytes = vec![0; self.random.choice([0, 7, 64, 5000, 70_000]).unwrap_or(0)];
        let read = nix::unistd::read(self.slots[slot].driver.as_fd(), &mut bytes);
        self.outcomes.note("read", &read.map_err(io::Error::from));
    }

    fn ioctl(&mut self, slot: usize) {
        let configured = self.slots[slot].configured.is_some();
        let (name, number) = match IOCTLS[self.random.usize(..IOCTLS.len())] {
            // Little can be done with a descriptor that is no session yet, and it can become one only once.
            _ if !configured && self.random.bool() => CONFIGURE,
            any => any,
        };
        let mut argument =
            self.valid.argument(number, self.slots[slot].counter_page.unwrap_or(0), &mut self.random);
        for _ in 0..self.random.choice([0, 0, 0, 1, 1, 2, 8]).unwrap_or(0) {
            self.mutate(&mut argument);
        }
        // Another direction, size or number is another ioctl, which must not exist.
        let strange = self.random.u8(..50) == 0;
        let sent = if strange { self.strange_number() } else { number };
        let result = ioctl(self.slots[slot].driver.as_fd(), sent, &mut argument);
        let kind = if strange { STRANGE } else { name };
        self.outcomes.note_ioctl(kind, &result, &argument);
        if result.is_ok() && !strange {
            let slot = &mut self.slots[slot];
            match number {
                IOCTL_CONFIGURE => slot.configured = Some(argument),
                IOCTL_COUNTERS => {
                    slot.counter_page = Some(field(&argument, offset_of!(CounterRequest, page)));
                }
                IOCTL_MARKER_PAGE => {
                    slot.marker_page =
                        Some(argument[offset_of!(MarkerPageRequest, offset) / size_of::<u64>()]);
                }
                _ => {}
            }
        }
    }

    /// The number of no ioctl, with the device's type.
    fn strange_number(&mut self) -> u32 {
        loop {
            let number = self.random.u32(..) & !0xff00 | u32::from(IOCTL_TYPE) << 8;
            if IOCTLS.iter().all(|(_, known)| *known != number) {
                return number;
            }
        }
    }

    /// Changes one 32-bit half of a word of what the driver reads.
    fn mutate(&mut self, argument: &mut [u64; ARGUMENT_WORDS]) {
        // Half of all changes to a small argument should meet it.
        let end = if self.random.bool() { 8 } else { size_of::<SessionConfig>() / size_of::<u64>() + 4 };
        let word = self.random.usize(..end);
        let value =
            if self.random.bool() { EDGES[self.random.usize(..EDGES.len())] } else { self.random.u64(..) };
        argument[word] = match self.random.u8(..3) {
            0 => value,
            1 => argument[word] & !0xffff_ffff | value & 0xffff_ffff,
            _ => argument[word] & 0xffff_ffff | value << 32,
        };
    }

    /// Maps an area, from its start or elsewhere; what must never be allowed must be refused.
    fn map(&mut self, slot: usize) -> Result<()> {
        let AreaKind { name, may_write, offset, .. } = self.area_of(slot);
        let page = match self.random.u8(..8) {
            0 => self.random.u64(..1 << 20),
            1 => self.random.u64(..4),
            _ => 0,
        };
        let mut offset = offset(&self.slots[slot], self.random.u32(..3)) + page * PAGE_BYTES as u64;
        let moved = self.random.u8(..16) == 0;
        if moved {
            offset ^= 1 << self.random.u32(12..63);
        }
        let pages = if self.random.bool() { 1 } else { self.random.usize(1..40) };
        match self.random.u8(..8) {
            0 => self.forbidden(slot, offset, pages, Access::Copy),
            1 => self.forbidden(slot, offset, pages, Access::Execute),
            2 if !*may_write && !moved => self.forbidden(slot, offset, pages, Access::Write),
            _ => {
                let writable = *may_write && self.random.bool();
                let device = self.slots[slot].driver.as_fd();
                let mapping = Mapping::new(device, offset, pages * PAGE_BYTES, writable);
                self.outcomes.note(name, &mapping);
                self.keep(mapping, *may_write || moved);
                Ok(())
            }
        }
    }

    /// An area that this session has, mostly.
    fn area_of(&mut self, slot: usize) -> &'static AreaKind {
        let any = &AREAS[self.random.usize(..AREAS.len())];
        let slot = &self.slots[slot];
        let there: Vec<&AreaKind> = AREAS.iter().filter(|area| (area.is_there)(slot)).collect();
        if self.random.u8(..8) == 0 { any } else { self.random.choice(there).unwrap_or(any) }
    }

    fn forbidden(&mut self, slot: usize, offset: u64, pages: usize, access: Access) -> Result<()> {
        let result = try_map(self.slots[slot].driver.as_fd(), offset, pages * PAGE_BYTES, access);
        self.outcomes.note("map what is forbidden", &result);
        ensure!(result.is_err(), "{pages} pages from {offset:#x} on could be mapped for {access:?}");
        Ok(())
    }

    fn keep(&mut self, mapping: io::Result<Mapping>, may_write: bool) {
        let Ok(mapping) = mapping else { return };
        if self.mappings.len() < MAPPINGS_MAX {
            self.mappings.push((mapping, may_write));
        } else {
            let place = self.random.usize(..self.mappings.len());
            self.mappings[place] = (mapping, may_write);
        }
    }

    /// Reads a mapping and scribbles over it, and tries to make of it what it must not become.
    fn touch(&mut self) -> Result<()> {
        let Some(place) = self.random.choice(0..self.mappings.len()) else { return Ok(()) };
        let (mapping, may_write) = &self.mappings[place];
        for _ in 0..8 {
            let word = self.random.usize(..mapping.words());
            let found = mapping.read(word);
            if mapping.is_writable() {
                mapping.write(word, found.wrapping_add(self.random.u64(..)));
            }
        }
        let mut never = vec![Access::Execute];
        never.extend((!may_write).then_some(Access::Write));
        for access in never {
            let result = mapping.try_protect(access);
            self.outcomes.note("mprotect to what is forbidden", &result);
            ensure!(result.is_err(), "a mapping of the driver's memory could be changed to {access:?}");
        }
        Ok(())
    }
}
