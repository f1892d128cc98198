//! Random requests to the driver: valid ones with some of their fields changed, and mappings of anything. Seeded, so that a
//! finding can be had again.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use fastrand::Rng;
use libhpm::event;
use libhpm::session::{Options, SessionConfig, SessionFlags, Target};
use libhpm::sys::device::Driver;
use libhpm::sys::probe::{ARGUMENT_WORDS, Mapping, ioctl};
use serde_json::json;

use super::GuestReport;

/// Environment of the program that sends them.
pub(super) const SEED: &str = "HPM_SEED";
pub(super) const REQUESTS: &str = "HPM_REQUESTS";

/// `_IOWR(0xB7, n, Envelope)` for n from 1 to 6, and the markers' 9 and 10 (docs/abi.md).
const IOCTLS: [u32; 8] =
    [0xc020_b701, 0xc020_b702, 0xc020_b703, 0xc020_b704, 0xc020_b705, 0xc020_b706, 0xc020_b709, 0xc020_b70a];
const CONFIGURE: usize = 1;
const START: usize = 2;

/// Numbers near the limits of some field.
const EDGES: [u64; 16] =
    [0, 1, 2, 3, 5, 63, 64, 255, 256, 4096, 65_535, 65_536, 1 << 31, u32::MAX as u64, 1 << 63, u64::MAX];

/// What the driver let through, so that a test which only ever bounces off is noticed.
#[derive(Default)]
struct Accepted {
    ioctls: [u64; IOCTLS.len()],
    mappings: u64,
}

/// Descriptors and mappings at hand; each is replaced at random.
struct State {
    random: Rng,
    devices: Vec<Driver>,
    mappings: Vec<Mapping>,
    accepted: Accepted,
}

/// Sends as many requests as the environment says.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let number = |name: &str| -> Result<u64> { Ok(std::env::var(name).context(name.to_owned())?.parse()?) };
    let (seed, requests) = (number(SEED)?, number(REQUESTS)?);
    let devices = (0..6).map(|_| Driver::open()).collect::<libhpm::Result<_>>()?;
    let mut state =
        State { random: Rng::with_seed(seed), devices, mappings: vec![], accepted: Accepted::default() };
    for _ in 0..requests {
        state.request()?;
    }
    report.fact("ioctls", json!(state.accepted.ioctls));
    report.fact("mappings", json!(state.accepted.mappings));
    Ok(())
}

impl State {
    fn request(&mut self) -> Result<()> {
        let device = self.random.usize(..self.devices.len());
        match self.random.u8(..100) {
            0..4 => self.devices[device] = Driver::open()?,
            4..24 => self.map(device),
            24..34 => self.touch(),
            _ => self.ioctl(device)?,
        }
        Ok(())
    }

    fn ioctl(&mut self, device: usize) -> Result<()> {
        let which = self.random.usize(..IOCTLS.len());
        let mut argument = if which == CONFIGURE { self.config()? } else { self.envelope() };
        for _ in 0..self.random.choice([0, 0, 0, 1, 1, 2, 8]).unwrap_or(0) {
            self.mutate(&mut argument);
        }
        // Another direction, size or number is another ioctl, which must not exist.
        let strange = self.random.u8(..50) == 0;
        let number = if strange { self.random.u32(..) & !0xff00 | 0xb700 } else { IOCTLS[which] };
        let result = ioctl(self.devices[device].as_fd(), number, &mut argument);
        if result.is_ok() && !strange {
            self.accepted.ioctls[which] += 1;
        }
        Ok(())
    }

    /// Changes one 32-bit half of a word of what the driver reads.
    fn mutate(&mut self, argument: &mut [u64; ARGUMENT_WORDS]) {
        let word = self.random.usize(..size_of::<SessionConfig>() / 8 + 4);
        let value =
            if self.random.bool() { EDGES[self.random.usize(..EDGES.len())] } else { self.random.u64(..) };
        argument[word] = match self.random.u8(..3) {
            0 => value,
            1 => argument[word] & !0xffff_ffff | value & 0xffff_ffff,
            _ => argument[word] & 0xffff_ffff | value << 32,
        };
    }

    fn envelope(&mut self) -> [u64; ARGUMENT_WORDS] {
        let mut argument = [0; ARGUMENT_WORDS];
        let bytes = self.random.choice([32, 32, 256, 512, 4096]).unwrap_or(32);
        argument[0] = u64::from(hpm_abi_version()) | bytes << 32;
        argument
    }

    /// A request that is valid, if the caller has the right to it.
    fn config(&mut self) -> Result<[u64; ARGUMENT_WORDS]> {
        let own = std::process::id() as i32;
        let target = match self.random.u8(..10) {
            0 => Target::System,
            1 => Target::Cpu(self.random.u32(..2)),
            2 => Target::Thread(own),
            3 => Target::Process(1),
            _ => Target::Process(own),
        };
        let mut options = Options::new(target).inherit(self.random.bool()).start_on_exec(self.random.bool());
        for name in ["instructions:u", "load:u", "store:u", "branch"] {
            if self.random.bool() {
                let event = event::parse(name, "skylake")?;
                let precise = self.random.bool() && name != "instructions:u";
                options = if precise {
                    options.sample(event, self.random.u64(90..5000))
                } else {
                    options.count(event)
                };
            }
        }
        let mut config = options.config();
        config.quanta = 64;
        config.segments = config.segments.min(2);
        config.max_threads = 64;
        if self.random.u8(..10) == 0 {
            (config.flags, config.proof_fd) = (config.flags | SessionFlags::PROOF, self.random.i32(-1..12));
        }
        Ok(words(&config))
    }

    fn map(&mut self, device: usize) {
        let kind = self.random.u64(..6) << 44 | self.random.u64(..4) << 32;
        let page = if self.random.u8(..4) == 0 { self.random.u64(..1 << 20) } else { self.random.u64(..4) };
        let bytes = 4096 * self.random.choice([1, 1, 1, 2, 5, 16, 40]).unwrap_or(1);
        let writable = self.random.bool();
        if let Ok(mapping) = Mapping::new(self.devices[device].as_fd(), kind | page << 12, bytes, writable) {
            self.accepted.mappings += 1;
            if self.mappings.len() < 12 {
                self.mappings.push(mapping);
            } else {
                let place = self.random.usize(..self.mappings.len());
                self.mappings[place] = mapping;
            }
        }
    }

    /// Reads somewhere, and scribbles where that is allowed.
    fn touch(&mut self) {
        if let Some(mapping) = self.mappings.get(self.random.usize(..12)) {
            let word = self.random.usize(..mapping.words());
            let found = mapping.read(word);
            if mapping.is_writable() {
                mapping.write(word, found.wrapping_add(self.random.u64(..)));
            }
        }
    }
}

fn hpm_abi_version() -> u32 {
    SessionConfig::default().envelope.version
}

/// The request as the driver reads it.
fn words(config: &SessionConfig) -> [u64; ARGUMENT_WORDS] {
    let mut bytes: Vec<u8> = Vec::with_capacity(ARGUMENT_WORDS * 8);
    let mut put = |value: u64, length: usize| bytes.extend_from_slice(&value.to_ne_bytes()[..length]);
    let envelope = config.envelope;
    for value in [envelope.version, envelope.size, envelope.reason, envelope.reserved] {
        put(value.into(), 4);
    }
    envelope.detail.iter().for_each(|detail| put(*detail, 8));
    for value in [config.scope, config.pid as u32, config.flags, config.event_count] {
        put(value.into(), 4);
    }
    for event in &config.events {
        [event.encoding, event.period, event.extra, event.rate].iter().for_each(|value| put(*value, 8));
        [event.mode, event.privilege, event.flags, event.core_type]
            .iter()
            .for_each(|value| put((*value).into(), 1));
        put(0, 4);
    }
    for value in [config.segments, config.quanta, config.stack_bytes, config.stack_ring_bytes] {
        put(value.into(), 4);
    }
    put(config.max_quantum_ns, 8);
    let rest = [config.max_threads, config.cpu, config.cgroup_fd as u32, config.proof_fd as u32];
    for value in
        rest.into_iter().chain([config.record_groups, config.frames, config.branches, config.markers])
    {
        put(value.into(), 4);
    }
    let mut argument = [0; ARGUMENT_WORDS];
    for (word, bytes) in argument.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    argument
}

/// That ioctls of every kind of a session were accepted, in some number.
///
/// # Errors
/// Which was not.
pub(super) fn check_accepted(report: &GuestReport) -> Result<String> {
    let ioctls = report.facts.get("ioctls").context("no numbers of ioctls")?;
    let numbers: Vec<u64> = serde_json::from_value(ioctls.clone())?;
    let mappings = report.facts.get("mappings").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let enough = numbers[..6].iter().all(|number| *number > 0) && numbers[START] >= 5 && mappings >= 5;
    anyhow::ensure!(enough, "too little was accepted: ioctls {numbers:?}, {mappings} mappings");
    Ok(format!("accepted ioctls {numbers:?}, {mappings} mappings"))
}
