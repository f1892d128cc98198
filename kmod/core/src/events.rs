//! One requested event checked against what the PMU has.

use super::abi::{EventMode, EventSpec, Reason};
use super::allocate::CounterSet;
use super::config::event_field;
use super::extra;
use super::hybrid;
use super::period::RATE_MAX;
use super::pmu::netburst::events as netburst;
use super::pmu::{ExtraRegister, Interface};
use super::registers::PerfEvtSel;
use super::{windows, Pmu, Refusal};

/// The bits of an encoding beside those of [`Pmu::event_bits`], of all processors.
const QUALIFIERS: u64 = PerfEvtSel(0).with_edge(1).with_inv(1).with_cmask(0xff).0;

/// Least period. A record costs some hundred cycles; below this the thread would do little else.
pub const PERIOD_MIN: u64 = 100;

/// Who writes the records of a sampled event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Hardware (PEBS).
    Pebs,
    /// The driver, when the counter's overflow interrupts.
    Interrupt,
    /// The driver, when AMD's instruction-based sampling interrupts with a sample in its registers.
    Ibs,
}

/// How the records of a sampled event are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Who writes them.
    pub way: Way,
    /// Events from one record to the next.
    pub period: u64,
    /// The encoding for the counter that writes them.
    pub encoding: u64,
    /// Counters that can write them.
    pub counters: CounterSet,
    /// [`super::pmu::PreciseRule::pebs_enable`].
    pub pebs_enable: u64,
}

/// An event that the PMU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The encoding for a general counter that counts it.
    pub encoding: u64,
    /// [`EventSpec::USER`] and [`EventSpec::KERNEL`].
    pub privilege: u8,
    /// Counters that can count it; none of a precise event that is counted only by the counter that samples it.
    pub counters: CounterSet,
    /// For a precise event.
    pub sampling: Option<Sampling>,
    /// The register that it needs beside its encoding, and its value.
    pub extra: Option<(ExtraRegister, u64)>,
    /// Whether it is sampled in windows ([`EventSpec::WINDOWED`]).
    pub windowed: bool,
    /// Counters that can measure windows of it; none of an event of which there are none.
    pub window: CounterSet,
}

impl Event {
    /// No event: what is for another type of core.
    pub const NONE: Self = Self {
        encoding: 0,
        privilege: 0,
        counters: CounterSet::EMPTY,
        sampling: None,
        extra: None,
        windowed: false,
        window: CounterSet::EMPTY,
    };

    /// Whether it is sampled in this way.
    #[must_use]
    pub fn is_sampled(&self, way: Way) -> bool {
        self.sampling.is_some_and(|how| how.way == way)
    }

    /// Whether it is [`Event::NONE`].
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.counters.is_empty() && self.sampling.is_none()
    }
}

/// Checks the event at `index` of the request. [`Event::NONE`] for one that is for another type of core.
///
/// # Errors
/// [`Reason::Field`], [`Reason::EventBits`], [`Reason::NoPebs`], [`Reason::NoIbs`], [`Reason::PebsErratum`], [`Reason::NotPrecise`],
/// [`Reason::OnlyPrecise`], [`Reason::PeriodTooSmall`], [`Reason::ExtraMissing`], [`Reason::ExtraBits`],
/// [`Reason::CoreTypeMissing`], [`Reason::NoCoreType`], [`Reason::NoCounter`] or [`Reason::SharedEvent`].
pub fn check(pmu: &Pmu, index: usize, spec: &EventSpec) -> Result<Event, Refusal> {
    let field = |inside: usize| Refusal::field(event_field(index, inside));
    if spec.privilege == 0 || spec.privilege & !(EventSpec::USER | EventSpec::KERNEL) != 0 {
        return Err(field(core::mem::offset_of!(EventSpec, privilege)));
    }
    let sampled = spec.mode != EventMode::Count as u8;
    let flags = if sampled { EventSpec::RANDOMISE | EventSpec::WINDOWED } else { 0 };
    for (valid, offset) in [
        (spec.rate <= if sampled { RATE_MAX } else { 0 }, core::mem::offset_of!(EventSpec, rate)),
        (spec.flags & !flags == 0, core::mem::offset_of!(EventSpec, flags)),
        (spec.reserved == [0; 4], core::mem::offset_of!(EventSpec, reserved)),
    ] {
        if !valid {
            return Err(field(offset));
        }
    }
    if !hybrid::counts_on(pmu, index, spec.encoding, spec.core_type)? {
        return Ok(Event::NONE);
    }
    // An encoding that the PMU does not have at all is refused as such, whatever it is wanted for.
    let counters = counters(pmu, spec.encoding).map_err(|bits| event_bits(index, bits))?;
    check_own(pmu, index, spec.encoding, counters)?;
    let plain = Event { encoding: spec.encoding, privilege: spec.privilege, counters, ..Event::NONE };
    let only_precise = pmu.generation.precise(spec.encoding).is_some_and(|rule| rule.count_as.is_none());
    if only_precise && (spec.mode == EventMode::Count as u8 || spec.mode == EventMode::Interrupt as u8) {
        return Err(Refusal::new(Reason::OnlyPrecise, [index as u64, 0]));
    }
    let period_field = field(core::mem::offset_of!(EventSpec, period));
    let mut event = match spec.mode {
        // With a period it measures windows.
        mode if mode == EventMode::Count as u8 => plain,
        mode if mode == EventMode::Precise as u8 => precise(pmu, index, spec, plain)?,
        mode if mode == EventMode::Interrupt as u8 => interrupt(spec, plain),
        _ => return Err(field(core::mem::offset_of!(EventSpec, mode))),
    };
    event.windowed = windows::is_windowed(spec);
    if let Some(how) = event.sampling {
        let plain = pmu.period_grid(how.way, how.counters);
        let grid = if event.windowed { windows::grid(plain) } else { plain };
        if spec.period < grid.least {
            return Err(Refusal::new(Reason::PeriodTooSmall, [index as u64, grid.least]));
        }
        if spec.period > grid.most {
            return Err(period_field);
        }
    }
    check_extra(pmu, index, spec, &mut event)?;
    bar_counters(pmu, &mut event);
    Ok(event)
}

/// Checks the register's value beside the event; NetBurst's is part of its encoding and checked with that.
fn check_extra(pmu: &Pmu, index: usize, spec: &EventSpec, event: &mut Event) -> Result<(), Refusal> {
    match pmu.interface {
        Interface::Architectural => {
            event.extra = extra::check(pmu.generation, index, spec.encoding, spec.extra)?;
            let offcore = [ExtraRegister::OffcoreRsp0, ExtraRegister::OffcoreRsp1];
            if pmu.shares_offcore && event.extra.is_some_and(|(register, _)| offcore.contains(&register)) {
                return Err(Refusal::new(Reason::SharedEvent, [index as u64, 0]));
            }
            Ok(())
        }
        Interface::Amd(_) if spec.extra != 0 => {
            Err(Refusal::new(Reason::ExtraBits, [index as u64, spec.extra]))
        }
        Interface::Amd(_) | Interface::NetBurst(_) => Ok(()),
    }
}

/// Takes the counters away that do not count the event at its privilege level.
fn bar_counters(pmu: &Pmu, event: &mut Event) {
    if event.privilege != EventSpec::USER {
        return;
    }
    let barred = CounterSet::general(!pmu.generation.quirks.user_counters);
    event.counters = event.counters.without_all(barred);
    if let Some(how) = &mut event.sampling {
        how.counters = how.counters.without_all(barred);
    }
}

fn event_bits(index: usize, bits: u64) -> Refusal {
    Refusal::new(Reason::EventBits, [index as u64, bits])
}

/// Refuses an event that none of this logical processor's counters counts, or that another one's would be counted with.
fn check_own(pmu: &Pmu, index: usize, encoding: u64, counters: CounterSet) -> Result<(), Refusal> {
    let Interface::NetBurst(unit) = pmu.interface else { return Ok(()) };
    let own = netburst::check(&unit, encoding).is_ok_and(|rule| netburst::is_own(&unit, rule));
    if !own {
        return Err(Refusal::new(Reason::SharedEvent, [index as u64, 0]));
    }
    if counters.is_empty() {
        return Err(Refusal::new(Reason::NoCounter, [index as u64, 0]));
    }
    Ok(())
}

fn precise(pmu: &Pmu, index: usize, spec: &EventSpec, plain: Event) -> Result<Event, Refusal> {
    let about = |refusal: Refusal| match refusal.reason {
        Reason::NoPebs => Refusal::new(Reason::NoPebs, [index as u64, 0]),
        _ => refusal,
    };
    let not_precise = Refusal::new(Reason::NotPrecise, [index as u64, 0]);
    let (rule, way, able) = match pmu.interface {
        Interface::NetBurst(_) => {
            let counters = pmu.pebs.map_err(about)?.counters;
            let sampling = Sampling {
                way: Way::Pebs,
                period: spec.period,
                encoding: spec.encoding,
                counters,
                pebs_enable: 0,
            };
            let precise = netburst::is_precise(spec.encoding);
            return precise.then_some(Event { sampling: Some(sampling), ..plain }).ok_or(not_precise);
        }
        Interface::Amd(amd) => {
            let rule = pmu.generation.precise(spec.encoding).ok_or(not_precise)?;
            let able = amd.ibs.map_or(CounterSet::EMPTY, |ibs| ibs.samplers(rule.pebs_enable));
            if able.intersection(rule.counters).is_empty() {
                return Err(Refusal::new(Reason::NoIbs, [index as u64, 0]));
            }
            (rule, Way::Ibs, able)
        }
        Interface::Architectural => {
            let able = pmu.pebs.map_err(about)?.counters;
            (pmu.generation.precise(spec.encoding).ok_or(not_precise)?, Way::Pebs, able)
        }
    };
    let sampling = Sampling {
        way,
        period: spec.period,
        encoding: spec.encoding,
        counters: rule.counters.intersection(able),
        pebs_enable: rule.pebs_enable,
    };
    let (encoding, counters) = match rule.count_as {
        Some(encoding) => (encoding, counters(pmu, encoding).map_err(|bits| event_bits(index, bits))?),
        None => (spec.encoding, CounterSet::EMPTY),
    };
    Ok(Event { encoding, counters, sampling: Some(sampling), ..plain })
}

/// An event that interrupts: any that a counter other than a fixed one counts, which also tells its count.
fn interrupt(spec: &EventSpec, plain: Event) -> Event {
    let sampling = Sampling {
        way: Way::Interrupt,
        period: spec.period,
        encoding: spec.encoding,
        counters: plain.counters.without_fixed(),
        pebs_enable: 0,
    };
    Event { counters: CounterSet::EMPTY, sampling: Some(sampling), ..plain }
}

/// The counters that can count this encoding, or the bits of it that the PMU does not have.
fn counters(pmu: &Pmu, encoding: u64) -> Result<CounterSet, u64> {
    if let Interface::NetBurst(unit) = pmu.interface {
        return netburst::check(&unit, encoding).map(|rule| CounterSet::netburst(rule.counters(&unit)));
    }
    let equal = PerfEvtSel(0).with_eq(pmu.compares_equal.into()).0;
    let beyond = encoding & !(pmu.event_bits() | QUALIFIERS | equal);
    if beyond != 0 {
        return Err(beyond);
    }
    let fixed = pmu.fixed_counter(encoding).map_or(CounterSet::EMPTY, CounterSet::one_fixed);
    let select = PerfEvtSel(encoding);
    let general = match general_counters(pmu, select) {
        Ok(general) => general,
        // One of the numbers that only fixed counters have.
        Err(_) if !fixed.is_empty() => return Ok(fixed),
        Err(bits) => return Err(bits),
    };
    Ok(fixed.union(general))
}

fn general_counters(pmu: &Pmu, select: PerfEvtSel) -> Result<CounterSet, u64> {
    let event = pmu.event_bits();
    let rule = pmu.generation.event_of(select.0).ok_or(select.0 & event)?;
    let refused = select.whole_unit_mask() & !rule.unit_mask_bits;
    if refused != 0 {
        return Err(PerfEvtSel(0).with_whole_unit_mask(refused).0);
    }
    if pmu.is_unavailable(select.0) {
        return Err(select.0);
    }
    let counters = pmu.generation.counters(rule, select.0 & event);
    Ok(CounterSet::general(counters).intersection(pmu.perfmon.counters()))
}
