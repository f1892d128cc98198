//! PMUs of the model that are programmed once, by the manuals' rules for a counter alone.

use hpm_abi::{EventSpec, SessionConfig};
use hpm_core::pmu::netburst::events::{escr_of, Encoding};
use hpm_core::pmu::netburst::registers::{Cccr, Pair, MSR_BPU_CCCR0};
use hpm_core::pmu::{Interface, PreciseRule};
use hpm_core::Pmu as Driver;
use vpmu::profile::Profile;
use vpmu::{Options, Pmu};

/// IA32_FIXED_CTR_CTRL and IA32_PERF_GLOBAL_CTRL (SDM Vol. 3B 20.2).
const FIXED_CTR_CTRL: u32 = 0x38D;
const GLOBAL_CTRL: u32 = 0x38F;
/// PerfCntrGlobalCtl (APM Vol. 2, 13.2.1).
const AMD_GLOBAL_CTL: u32 = 0xC000_0301;
/// Of event selects: event select, unit mask and UMASK2.
const EVENT: u64 = 0xFF00_0000_FFFF;
/// Of event selects: EN.
const EN: u64 = 1 << 22;

/// One event's PMU, while nobody has it on loan.
pub(crate) struct Witness {
    pmu: Option<Pmu>,
    /// RDPMC's ECX for the counter that counts.
    index: u32,
}

/// Whether the event is compared by cycles: each with a number or with the cycle before it, and a switch may part a cycle in two.
pub(crate) fn by_cycle(driver: &Driver, event: &EventSpec) -> bool {
    match driver.interface {
        Interface::NetBurst(_) => event.encoding & u64::from(Cccr::COMPARE) != 0,
        // Edge detect, and the counter mask.
        Interface::Architectural | Interface::Amd(_) => event.encoding & (1 << 18 | 0xFF << 24) != 0,
    }
}

impl Witness {
    /// One for each event of the session.
    pub(crate) fn of_all(profile: &'static Profile, driver: &Driver, request: &SessionConfig) -> Vec<Self> {
        let events = &request.events[..request.event_count as usize];
        let tags = front_end_tags(events);
        events.iter().map(|event| Self::of(profile, driver, event, tags)).collect()
    }

    fn of(profile: &'static Profile, driver: &Driver, event: &EventSpec, tags: u64) -> Self {
        let mut pmu = Pmu::new(profile, Options::default());
        let index = match driver.interface {
            Interface::Architectural => architectural(&mut pmu, driver, event),
            Interface::NetBurst(_) => {
                write(&mut pmu, Pair::Rat.half(0).address(), tags);
                netburst(&mut pmu, driver, event)
            }
            Interface::Amd(_) => amd(&mut pmu, profile, event),
        };
        Self { pmu: Some(pmu), index }
    }

    /// Lends the PMU.
    pub(crate) fn lend(&mut self) -> Pmu {
        self.pmu.take().expect("it was given back")
    }

    /// Has it back.
    pub(crate) fn take_back(&mut self, pmu: Pmu) {
        self.pmu = Some(pmu);
    }

    /// What was counted.
    pub(crate) fn count(&mut self) -> u64 {
        self.pmu.as_mut().expect("it was given back").rdpmc(self.index).expect("its counter")
    }
}

fn write(pmu: &mut Pmu, register: u32, value: u64) {
    pmu.wrmsr(register, value).expect("the witness is programmed");
}

fn amd(pmu: &mut Pmu, profile: &Profile, event: &EventSpec) -> u32 {
    let facts = profile.amd().expect("a profile of AMD's");
    let (first, step) = if facts.extended { (0xC001_0200, 2) } else { (0xC001_0000, 1) };
    // The first counter that counts the event: of one that means nothing in the model any.
    let select = (event.encoding & 0xFF | event.encoding >> 24 & 0xF00) as u16;
    let index = facts.event(select).map_or(0, |event| event.counters.trailing_zeros());
    write(pmu, first + step * index, event.encoding | u64::from(event.privilege) << 16 | EN);
    if facts.version_2 {
        write(pmu, AMD_GLOBAL_CTL, 1 << index);
    }
    index
}

fn architectural(pmu: &mut Pmu, driver: &Driver, event: &EventSpec) -> u32 {
    let generation = driver.generation;
    // What a precise event counts is told by another encoding where it has one.
    let counted = |rule: &PreciseRule| rule.count_as;
    let encoding = generation.precise(event.encoding).and_then(counted).unwrap_or(event.encoding);
    let rule = generation.event_of(encoding);
    let general = rule.map_or(0, |rule| u32::from(generation.counters(rule, encoding & EVENT)));
    let general = general & driver.perfmon.general;
    if general == 0 {
        let fixed = driver.fixed_counter(encoding).expect("some counter counts it");
        write(pmu, FIXED_CTR_CTRL, fixed_bits(event.privilege) << (4 * fixed));
        write(pmu, GLOBAL_CTRL, 1 << (32 + fixed));
        return 1 << 30 | fixed;
    }
    let number = general.trailing_zeros();
    if let Some(rule) = generation.extra(encoding) {
        write(pmu, rule.register.address(), event.extra);
    }
    let select = driver.select_register(hpm_core::allocate::Counter::at(number as usize));
    write(pmu, select, encoding | u64::from(event.privilege) << 16 | EN);
    write(pmu, GLOBAL_CTRL, 1 << number);
    number
}

/// EN_OS and EN_USR of a fixed counter: USR is bit 0 of [`EventSpec::privilege`] and bit 1 here.
fn fixed_bits(privilege: u8) -> u64 {
    let usr = u64::from(privilege & EventSpec::USER != 0);
    let os = u64::from(privilege & EventSpec::KERNEL != 0);
    usr << 1 | os
}

/// T0_USR is bit 2 of an ESCR, T0_OS bit 3 (SDM Vol. 3B 18.15.1).
fn levels(privilege: u8) -> u64 {
    let (usr, os) = (privilege & EventSpec::USER != 0, privilege & EventSpec::KERNEL != 0);
    u64::from(usr) << 2 | u64::from(os) << 3
}

/// The ESCR that tags at the front end for these events. One event's tags are there for all of a session: instr_retired tells
/// instructions with tags from those without (table 19-31).
fn front_end_tags(events: &[EventSpec]) -> u64 {
    let tagging = events.iter().filter(|event| event.extra != 0);
    tagging.fold(0, |escr, event| escr | event.extra >> 32 | levels(event.privilege))
}

fn netburst(pmu: &mut Pmu, driver: &Driver, event: &EventSpec) -> u32 {
    let Interface::NetBurst(unit) = driver.interface else { unreachable!("a NetBurst") };
    let encoding = Encoding(event.encoding);
    let rule = encoding.rule().expect("an event that was accepted");
    let counter = rule.counters(&unit).trailing_zeros();
    write(pmu, escr_of(rule, counter).address(), event.encoding >> 32 | levels(event.privilege));
    // The block is no bit of a CCCR.
    let cccr = event.encoding & 0xFFFF_FFFC | u64::from(Cccr::ACTIVE_THREAD | Cccr::ENABLE);
    write(pmu, MSR_BPU_CCCR0 + counter, cccr);
    counter
}
