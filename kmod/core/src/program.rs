//! A session's events as register values: made once, the same on every CPU.

mod checks;
mod facts;

use self::checks::{
    check_counted_apart, check_groups, check_places, check_sampling, check_told_apart, checked_layout,
};
use super::abi::{EventSpec, SessionConfig, EVENTS_MAX, NO_EVENT, SAMPLING_COUNTERS_MAX};
use super::allocate::{allocate, Assignment, Counter, CounterSet, COUNTERS_MAX};
use super::events::{self, Event, Sampling, Way};
use super::extra::{self, Extras};
use super::hybrid;
use super::ibs;
use super::layout::RecordLayout;
use super::lbr::Branches;
use super::period::{Grid, RECORDS_A_DRAW};
use super::pmu::netburst::assignment;
use super::pmu::netburst::events::Encoding;
use super::pmu::netburst::settings::Settings;
use super::pmu::netburst::tags::Tags;
use super::pmu::{ExtraRegister, Interface};
use super::registers::PerfEvtSel;
use super::turns::Pins;
use super::windows::{self, Window};
use super::{cfg_c, config, interrupt, stacks, Pmu, Refusal};

/// A counter whose overflows are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingCounter {
    /// Its place among the sampling counters: in a quantum's arrays, and in a thread's positions.
    pub place: u8,
    /// The counter.
    pub counter: Counter,
    /// Index of its event.
    pub event: u8,
    /// Events from one record to the next, to begin with.
    pub period: u64,
    /// Samples per second to which the period is adapted; 0 for a period that stays.
    pub rate: u64,
    /// The period's low bits are drawn anew every few records.
    pub randomise: bool,
    /// Each window sets it back.
    pub windowed: bool,
    /// The periods that it takes.
    pub grid: Grid,
}

impl SamplingCounter {
    /// What nobody looks at.
    const NONE: Self = Self {
        place: 0,
        counter: Counter::at(0),
        event: 0,
        period: 0,
        rate: 0,
        randomise: false,
        windowed: false,
        grid: Grid { unit: 1, least: 0, most: 0 },
    };
}

/// How the records of a session look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records {
    /// Bytes of one.
    pub size: u16,
    /// [`super::abi::Quantum::record_format`].
    pub format: u16,
}

/// For each sampling place its event and its counter.
pub type Samplers = ([u8; SAMPLING_COUNTERS_MAX], [u8; SAMPLING_COUNTERS_MAX]);

const _: () = assert!(COUNTERS_MAX <= 64, "each has a bit of `Program::reads`");

/// Fewest records after which rates are looked at, however low they are.
const FEWEST_A_LOOK: u64 = 16;

/// What a session writes to the PMU, and how its counters map to its events.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    config: SessionConfig,
    /// A bit for each event that is counted.
    active: u32,
    /// [`super::abi::Quantum::active`].
    complete: u32,
    assignments: [Assignment; EVENTS_MAX],
    /// A bit for each counter's place that is read at each cut: a look through all assignments for each of them would be most of what
    /// a cut costs.
    reads: u64,
    /// Those of this type of core, in the order of their places.
    sampling: [SamplingCounter; SAMPLING_COUNTERS_MAX],
    /// How many these are: a cut looks at all a dozen times, and mostly there is one.
    sampling_count: u8,
    /// What every quantum says of them.
    samplers: Samplers,
    /// [`Program::records_a_look`].
    records_a_look: u64,
    /// [`Program::records_a_draw`].
    records_a_draw: u64,
    /// [`Program::rests_in_kernel`], unless records have to be moved.
    rests: bool,
    /// Hardware writes records, and the session must not see those of kernel mode.
    pub(super) hides: bool,
    /// How its events are sampled, if any is.
    pub(super) way: Option<Way>,
    /// Bits of the control registers of [`ibs::SAMPLERS`], beside their counts.
    pub(super) ibs: [u64; ibs::SAMPLERS.len()],
    /// How hardware writes records, in a session with precise events.
    pub(super) pebs: Option<RecordLayout>,
    /// [`super::pmu::Quirks::one_page_of_records`], in a session with precise events.
    fills_a_page: bool,
    /// The branches that the session wants recorded.
    pub(super) branches: Option<Branches>,
    /// How the session's records look, whoever writes them.
    pub(super) records: Option<Records>,
    /// IA32_PERFEVTSELx; of a counter that is not used nothing but what keeps it from user mode.
    pub(super) selects: [PerfEvtSel; SAMPLING_COUNTERS_MAX],
    /// IA32_FIXED_CTR_CTRL.
    pub(super) fixed_ctr_ctrl: u64,
    /// IA32_PEBS_ENABLE while records can be written.
    pub(super) pebs_enable: u64,
    /// A bit for each event that is for this type of core.
    events_here: u32,
    /// IA32_PERF_GLOBAL_CTRL while the counters run; of NetBurst's a bit for each counter that runs.
    pub(super) global_ctrl: u64,
    /// NetBurst's registers.
    pub(super) netburst: Settings,
    /// Registers that events need beside their encodings.
    pub(super) extras: Extras,
    /// IA32_PMC_GPx_CFG_C and IA32_PMC_FXx_CFG_C; 0 without architectural PEBS or windows.
    pub(super) cfg_c: [u64; COUNTERS_MAX],
    /// What measures the windows in which its events are sampled.
    pub(super) window: Option<Window>,
}

impl Program {
    /// No event: what [`super::turns::Turns::program`] writes over.
    pub const EMPTY: Self = Self {
        config: SessionConfig::EMPTY,
        active: 0,
        complete: 0,
        assignments: [Assignment::NONE; EVENTS_MAX],
        reads: 0,
        sampling: [SamplingCounter::NONE; SAMPLING_COUNTERS_MAX],
        sampling_count: 0,
        samplers: ([NO_EVENT; SAMPLING_COUNTERS_MAX], [NO_EVENT; SAMPLING_COUNTERS_MAX]),
        records_a_look: u64::MAX,
        records_a_draw: u64::MAX,
        rests: false,
        hides: false,
        way: None,
        ibs: [0; ibs::SAMPLERS.len()],
        pebs: None,
        fills_a_page: false,
        branches: None,
        records: None,
        selects: [PerfEvtSel(0); SAMPLING_COUNTERS_MAX],
        fixed_ctr_ctrl: 0,
        pebs_enable: 0,
        events_here: 0,
        global_ctrl: 0,
        netburst: Settings::NONE,
        extras: [None; ExtraRegister::ALL.len()],
        cfg_c: [0; COUNTERS_MAX],
        window: None,
    };

    /// Checks every field of the request against this PMU and assigns the counters.
    ///
    /// # Errors
    /// The reason, with its detail, why the request is not valid, or cannot be met by this PMU.
    pub fn new(pmu: &Pmu, request: &SessionConfig) -> Result<Self, Refusal> {
        let mut program = Self::EMPTY;
        program.write(pmu, request, u32::MAX, &[None; EVENTS_MAX])?;
        Ok(program)
    }

    /// Becomes what [`Program::new`] makes, with counters only for the events whose bit is set in `active`; a sampled one with
    /// a counter in `pins` has that one. Written in place, because a kernel stack has no room for a second one on the way.
    ///
    /// # Errors
    /// As [`Program::new`].
    pub(super) fn write(
        &mut self,
        pmu: &Pmu,
        request: &SessionConfig,
        active: u32,
        pins: &Pins,
    ) -> Result<(), Refusal> {
        *self = Self::EMPTY;
        self.config = config::check(request)?;
        let mut checked = [Event::NONE; EVENTS_MAX];
        let count = self.config.event_count as usize;
        for (index, event) in checked.iter_mut().enumerate().take(count) {
            *event = events::check(pmu, index, &self.config.events[index])?;
            if let (Some(counter), Some(how)) = (pins[index], &mut event.sampling) {
                how.counters = CounterSet::one(counter);
            }
        }
        self.extras = extra::assign(pmu.generation, &mut checked[..count], active)?;
        self.choose_records(pmu, &checked)?;
        self.active = active & ((1 << count) - 1);
        let specs = self.config.events.get(..count).unwrap_or_default();
        windows::choose(pmu, specs, &mut checked[..count])?;
        (self.assignments, self.netburst) = counters_for(pmu, &checked[..count], specs, self.active)?;
        self.window = windows::of(specs, &checked[..count], &self.assignments);
        let read =
            self.assignments.iter().filter_map(|assignment| assignment.counting.or(assignment.sampling));
        self.reads = read.fold(0, |reads, counter| reads | 1 << counter.place());
        for (index, event) in checked.iter().enumerate().take(count) {
            self.events_here |= u32::from(!event.is_none()) << index;
            self.assign(pmu, index, event);
        }
        let counting = self.assignments.iter().filter_map(|assignment| assignment.counting);
        let counting = counting.fold(0, |bits, counter| bits | 1 << counter.place());
        let shown = if self.has_counter_pages() { counting } else { 0 };
        pmu.keep_from_user(shown, &mut self.selects, &mut self.fixed_ctr_ctrl);
        self.active &= self.events_here;
        self.complete = self.active | ((1 << count) - 1) & !self.events_here;
        self.summarise();
        let architectural = matches!(pmu.interface, Interface::Architectural);
        self.rests = architectural
            && self.uses_debug_store()
            && !self.has_several_samplers()
            && !self.sees_kernel()
            && self.branches.is_none();
        Ok(())
    }

    /// How the events are sampled, and how the records look.
    #[inline(never)]
    fn choose_records(&mut self, pmu: &Pmu, checked: &[Event; EVENTS_MAX]) -> Result<(), Refusal> {
        self.way = check_sampling(checked)?;
        check_groups(&self.config, self.way)?;
        check_places(&self.config, checked)?;
        let pebs = pmu.pebs.ok().filter(|_| self.way == Some(Way::Pebs));
        self.branches = Branches::wanted(pmu, &self.config, pebs.as_ref())?;
        if let Some(pebs) = &pebs {
            check_told_apart(pebs, checked)?;
            self.pebs = Some(checked_layout(pebs, &self.config, self.branches.as_ref())?);
            self.fills_a_page = pmu.generation.quirks.one_page_of_records;
        }
        let written = self.pebs.map(|layout| Records { size: layout.record_size, format: layout.format });
        self.records = written.or(match self.way {
            Some(Way::Ibs) => Some(ibs::RECORDS),
            way => way.map(|_| interrupt::RECORDS),
        });
        Ok(())
    }

    fn assign(&mut self, pmu: &Pmu, index: usize, event: &Event) {
        let Assignment { counting, sampling, window } = self.assignments[index];
        for counter in [counting, window].into_iter().flatten() {
            self.enable(pmu, counter, event.encoding, event.privilege);
        }
        if let (Some(counter), Some(window)) = (window, self.window) {
            self.cfg_c[counter.place()] = cfg_c::reload(window.length);
        }
        if let (Some(counter), Some(how)) = (sampling, event.sampling) {
            if how.way != Way::Ibs {
                self.enable(pmu, counter, how.encoding, event.privilege);
            }
            match (how.way, pmu.interface) {
                (Way::Ibs, _) => self.enable_ibs(counter, &how),
                (Way::Interrupt, Interface::NetBurst(unit)) => self.netburst.interrupt(&unit, counter.bit()),
                (Way::Interrupt, _) => {
                    let select = &mut self.selects[counter.place()];
                    *select = select.with_int(1);
                }
                (Way::Pebs, Interface::NetBurst(unit)) => {
                    self.pebs_enable = (unit.pebs_bits() | self.netburst.pebs_enable).into();
                }
                (Way::Pebs, _) => self.enable_records(pmu, counter, event, &how),
            }
            let spec = &self.config.events[index];
            let place = hybrid::sampling_place(&self.config, index);
            // `check_places` has seen that there is room.
            if let Some(entry) = self.sampling.get_mut(usize::from(self.sampling_count)) {
                self.sampling_count += 1;
                let grid = pmu.period_grid(how.way, CounterSet::one(counter));
                *entry = SamplingCounter {
                    place: place as u8,
                    counter,
                    event: index as u8,
                    period: how.period,
                    rate: spec.rate,
                    randomise: spec.flags & EventSpec::RANDOMISE != 0,
                    windowed: event.windowed,
                    grid: if event.windowed { windows::grid(grid) } else { grid },
                };
            }
        }
    }

    /// What each cut would have to look for among the sampling counters.
    fn summarise(&mut self) {
        // Beside the PMI that a stack takes, a draw is little.
        let records_a_draw = if stacks::bytes_wanted(self) > 0 { 1 } else { RECORDS_A_DRAW };
        let Self { sampling, samplers: (events, counters), .. } = self;
        for sampler in sampling.iter().take(self.sampling_count.into()) {
            let place = usize::from(sampler.place);
            (events[place], counters[place]) = (sampler.event, sampler.counter.bit() as u8);
            if sampler.randomise {
                self.records_a_draw = records_a_draw;
            }
            if sampler.rate != 0 {
                self.records_a_look = self.records_a_look.min((sampler.rate / 4).max(FEWEST_A_LOOK));
            }
        }
    }

    fn enable_ibs(&mut self, sampler: Counter, how: &Sampling) {
        self.global_ctrl |= 1 << sampler.bit();
        for (bits, _) in self.ibs.iter_mut().zip(ibs::SAMPLERS).filter(|(_, counter)| *counter == sampler) {
            *bits = how.pebs_enable;
        }
    }

    fn enable_records(&mut self, pmu: &Pmu, counter: Counter, event: &Event, how: &Sampling) {
        self.pebs_enable |= 1 << counter.bit() | how.pebs_enable;
        let latency = matches!(event.extra, Some((ExtraRegister::LoadLatency, _)));
        if latency && pmu.perfmon.version < 5 {
            // LL_EN (SDM Vol. 3B 20.3.1.1.2); from version 5 on these bits are the fixed counters'.
            self.pebs_enable |= 1 << (32 + counter.bit());
        }
        match self.pebs {
            Some(layout) if layout.is_architectural() => {
                self.cfg_c[counter.place()] = cfg_c::value(layout.pebs_data_cfg, how.period);
            }
            // The adaptive record bits (20.9.2.1) of IA32_FIXED_CTR_CTRL and IA32_PERFEVTSELx.
            Some(layout) if layout.pebs_data_cfg != 0 => match counter.as_fixed() {
                Some(number) => self.fixed_ctr_ctrl |= 1 << (32 + 4 * number),
                None => {
                    let select = &mut self.selects[counter.place()];
                    *select = select.with_adaptive_record(1);
                }
            },
            _ => {}
        }
        if event.windowed && self.cfg_c[counter.place()] == 0 {
            self.cfg_c[counter.place()] = cfg_c::reload(how.period);
        }
    }

    fn enable(&mut self, pmu: &Pmu, counter: Counter, encoding: u64, privilege: u8) {
        if let Interface::NetBurst(unit) = pmu.interface {
            self.netburst.count(&unit, counter.bit(), Encoding(encoding), privilege);
            self.global_ctrl |= 1 << counter.bit();
            return;
        }
        let usr = u64::from(privilege & EventSpec::USER != 0);
        let os = u64::from(privilege & EventSpec::KERNEL != 0);
        if let Some(number) = counter.as_fixed() {
            // Four bits each: EN_OS, EN_USR, ANYTHREAD, PMI (SDM Vol. 3B 20.2.2).
            self.fixed_ctr_ctrl |= (usr << 1 | os) << (4 * number);
            self.global_ctrl |= 1 << (32 + number);
        } else {
            // INT stays clear: counting counters are read before they wrap, and PEBS raises PMIs by the threshold.
            self.selects[counter.place()] = PerfEvtSel(encoding).with_usr(usr).with_os(os).with_en(1);
            self.global_ctrl |= 1 << counter.place();
        }
    }
}

/// Counters for the events, and what NetBurst's tags need.
fn counters_for(
    pmu: &Pmu,
    events: &[Event],
    specs: &[EventSpec],
    active: u32,
) -> Result<([Assignment; EVENTS_MAX], Settings), Refusal> {
    let Interface::NetBurst(unit) = pmu.interface else {
        let assignments = allocate(events, active)?;
        check_counted_apart(pmu, events, active, &assignments)?;
        return Ok((assignments, Settings::NONE));
    };
    let tags = Tags::of(&unit, specs, pmu.pebs.is_ok())?;
    Ok((assignment::assign(&unit, events, active, &tags)?, Settings::tagging(&tags)))
}
