//! The names that this library understands are events that the driver accepts: both have tables of every PMU, for different
//! ends, and neither is made from the other.

use hpm_abi::{CoreType, EventMode, EventSpec, Reason, Scope, SessionConfig};
use hpm_core::allocate::CounterSet;
use hpm_core::pmu::amd::Amd;
use hpm_core::pmu::architectural::Perfmon;
use hpm_core::pmu::netburst::{self, NETBURST, PRESCOTT, Share, Unit};
use hpm_core::pmu::{GENERATIONS, Generation, Interface, Reload};
use hpm_core::registers::PerfEvtSel;
use hpm_core::{Pmu, Program, Refusal};
use libhpm::analysis::topdown;
use libhpm::event::{
    Counter, Equivalent, Event, GENERICS, Misfit, Row, core_pmus, equivalent, fit, parse, parse_each, pmus,
    vendor_names,
};
use proptest::prelude::*;

/// A PMU of the generation with the general counters of its table and all fixed ones.
fn pmu(generation: &'static Generation) -> Pmu {
    let general = vendor_names(generation.name).iter().fold(0, |all, row| all | row.counters);
    // AMD's have no models of family 6.
    let amd = generation.models.is_empty() && generation.hybrid_models.is_empty();
    let perfmon = Perfmon {
        version: 2,
        general,
        general_width: 48,
        fixed: if amd { 0 } else { 0x7f },
        fixed_width: 48,
        events_unavailable: 0,
    };
    Pmu {
        interface: if amd {
            Interface::Amd(Amd { extended: true, global: false, ibs: None })
        } else {
            Interface::Architectural
        },
        generation,
        core_type: CoreType::Any,
        perfmon,
        full_width_writes: true,
        pebs: Err(Refusal::new(Reason::NoPebs, [0; 2])),
        lbr: None,
        unit_mask2: true,
        compares_equal: false,
        rdpmc_user_disable: false,
        reload: Reload { reloaded: CounterSet::EMPTY, windows: CounterSet::EMPTY },
        shares_offcore: false,
    }
}

/// A Pentium 4 of one thread.
fn pentium_4(prescott: bool) -> Pmu {
    let unit = Unit { share: Share::Whole, prescott };
    let perfmon = Perfmon { general: unit.counter_bits(), general_width: 40, ..Perfmon::default() };
    let pebs = hpm_core::pmu::Pebs { format: 0, counters: unit.counter_set(), groups: 0 };
    let generation = if prescott { &PRESCOTT } else { &NETBURST };
    Pmu { interface: Interface::NetBurst(unit), perfmon, pebs: Ok(pebs), ..pmu(generation) }
}

fn named(name: &str) -> Pmu {
    let found = GENERATIONS.into_iter().find(|generation| generation.name == name);
    match name {
        "netburst" => pentium_4(false),
        "netburst_p" => pentium_4(true),
        _ => pmu(found.unwrap_or_else(|| panic!("the driver does not know {name}"))),
    }
}

/// [`objection`] to a Pentium 4's event.
fn objection_of_netburst(unit: &Unit, row: &Row) -> Option<String> {
    let rule = match netburst::events::check(unit, row.encoding) {
        Ok(rule) => rule,
        Err(bits) => return Some(format!("bits {bits:#x}")),
    };
    if rule.counters(unit) != row.counters {
        return Some(format!("counters {:#x} instead of {:#x}", row.counters, rule.counters(unit)));
    }
    let precise = netburst::events::is_precise(row.encoding);
    (precise != row.sampling.is_precise()).then(|| format!("{:?} here", row.sampling))
}

/// What the driver has against an event, if anything.
fn objection(driver: &Pmu, row: &Row) -> Option<String> {
    if let Interface::NetBurst(unit) = driver.interface {
        return objection_of_netburst(&unit, row);
    }
    let generation = driver.generation;
    let code = row.encoding & 0xff00_0000_ffff;
    let unit_mask = PerfEvtSel(code).whole_unit_mask();
    let Some(rule) = generation.event_of(row.encoding) else {
        return Some("no such event select".to_owned());
    };
    if unit_mask & !rule.unit_mask_bits != 0 {
        return Some(format!("unit mask bits {:#x}", unit_mask & !rule.unit_mask_bits));
    }
    let counters = generation.counters(rule, code);
    if row.counters & !u32::from(counters) != 0 {
        return Some(format!("counters {:#x} instead of {counters:#x}", row.counters));
    }
    let precise = generation.precise(row.encoding);
    if precise.is_some() != row.sampling.is_precise() {
        return Some(format!("{:?} here", row.sampling));
    }
    if precise.is_some_and(|rule| rule.count_as.is_none()) != row.only_sampled {
        return Some(format!("only_sampled is {}", row.only_sampled));
    }
    let fixed = driver.fixed_counter(row.encoding);
    if fixed != row.fixed.map(u32::from) {
        return Some(format!("fixed counter {:?} instead of {fixed:?}", row.fixed));
    }
    match generation.extra(code) {
        Some(rule) if row.extra == 0 || row.extra & !rule.bits != 0 => {
            Some(format!("{:#x} in {:?}", row.extra, rule.register))
        }
        None if row.extra != 0 => Some(format!("no register for {:#x}", row.extra)),
        _ => None,
    }
}

#[test]
fn every_listed_event_is_one_that_the_driver_accepts() {
    let objections: Vec<String> = pmus()
        .flat_map(|pmu| {
            let driver = named(pmu);
            let objection = move |row: &Row| {
                let why = objection(&driver, row)?;
                Some(format!("{pmu}: {} ({:#x}): {why}", row.name, row.encoding))
            };
            vendor_names(pmu).iter().filter_map(objection)
        })
        .collect();
    assert!(objections.is_empty(), "{} objections:\n{}", objections.len(), objections.join("\n"));
}

#[test]
fn every_pmu_of_the_driver_has_a_table() {
    let others = [&NETBURST, &PRESCOTT];
    let mut names: Vec<&str> = GENERATIONS.iter().chain(&others).map(|generation| generation.name).collect();
    let mut tables: Vec<&str> = pmus().collect();
    names.sort_unstable();
    tables.sort_unstable();
    assert_eq!(names, tables);
}

/// The driver's answer to a session that counts these events.
fn configured(driver: &Pmu, events: &[Event]) -> Result<(), Reason> {
    let mut config = SessionConfig {
        scope: Scope::Process as u32,
        pid: 1,
        event_count: events.len() as u32,
        quanta: 1024,
        ..SessionConfig::default()
    };
    for (spec, event) in config.events.iter_mut().zip(events) {
        *spec = EventSpec {
            encoding: event.encoding,
            extra: event.extra,
            mode: EventMode::Count as u8,
            privilege: EventSpec::USER,
            core_type: event.core_type as u8,
            ..EventSpec::default()
        };
    }
    Program::new(driver, &config).map(|_| ()).map_err(|refusal| refusal.reason)
}

/// On a hybrid processor each type of cores takes the events of its own and leaves the others alone.
#[test]
fn the_driver_takes_every_top_down_plan_of_level_1() {
    let plans = pmus().filter_map(|pmu| Some((pmu, topdown::plan(pmu, 1, false).ok()?)));
    let hybrid = "goldencove+gracemont";
    for (name, plan) in plans.chain([(hybrid, topdown::plan(hybrid, 1, true).unwrap())]) {
        let events: Vec<Event> = plan.events.iter().map(|event| parse(event, name).unwrap()).collect();
        for (core_type, pmu) in core_pmus(name) {
            let driver = Pmu { core_type, ..named(pmu) };
            assert_eq!(configured(&driver, &events), Ok(()), "{name}: {pmu}");
        }
    }
}

/// On a hybrid processor a name is an event, or one for each type of cores, that the driver takes on every core.
#[test]
fn the_driver_takes_every_name_of_a_hybrid_processor() {
    for hybrid in
        ["goldencove+gracemont", "redwoodcove+crestmont", "lioncove+skymont+crestmont", "cougarcove+darkmont"]
    {
        let names = core_pmus(hybrid).flat_map(|(_, pmu)| vendor_names(pmu)).map(|row| row.name);
        for name in names.chain(GENERICS.iter().map(|generic| generic.name)) {
            // Those that none of the types has as an event are explained elsewhere.
            let Ok(events) = parse_each(name, hybrid) else { continue };
            for (core_type, pmu) in core_pmus(hybrid) {
                let refused = configured(&Pmu { core_type, ..named(pmu) }, &events);
                let as_counted = matches!(refused, Ok(()) | Err(Reason::OnlyPrecise));
                assert!(as_counted, "{name} on the {pmu} of {hybrid}: {refused:?}");
            }
        }
    }
}

#[test]
fn every_equivalent_is_an_event_that_the_driver_accepts() {
    for pmu in pmus() {
        for generic in GENERICS {
            let name = format!("{pmu}: {}", generic.name);
            match equivalent(generic.name, pmu) {
                Some(Equivalent::Event { counted, sampled, .. }) => {
                    assert_eq!(objection(&named(pmu), sampled), None, "{name}");
                    let event = parse(generic.name, pmu).unwrap();
                    let refused = if counted.only_sampled { Err(Reason::OnlyPrecise) } else { Ok(()) };
                    assert_eq!(configured(&named(pmu), &[event]), refused, "{name}");
                }
                Some(Equivalent::Absent { reason }) => assert!(reason.len() > 10, "{name}: {reason}"),
                None => panic!("{name} is neither an event nor explained"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// What is told beforehand of events that are to be counted together is what the driver decides.
    #[test]
    fn events_fit_exactly_when_the_driver_accepts_them(
        pmu in proptest::sample::select(pmus().collect::<Vec<_>>()),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 1..12),
    ) {
        let rows = vendor_names(pmu);
        let names = places.iter().map(|place| rows[place.index(rows.len())].name);
        let events: Vec<Event> = names.map(|name| parse(name, pmu).unwrap()).collect();
        let foretold = fit(&events, pmu, u32::MAX);
        let decided = configured(&named(pmu), &events);
        match &foretold {
            Ok(taken) => {
                prop_assert_eq!(decided, Ok(()));
                let mut counters: Vec<Counter> = taken.iter().map(|taken| taken.counter).collect();
                prop_assert!(taken.iter().all(|taken| taken.counters.contains(&taken.counter)));
                counters.sort_unstable();
                counters.dedup();
                prop_assert_eq!(counters.len(), events.len(), "a counter was given twice");
            }
            Err(Misfit::OnlySampled(_)) => prop_assert_eq!(decided, Err(Reason::OnlyPrecise)),
            Err(Misfit::Escrs(events)) => {
                prop_assert_eq!(decided, Err(Reason::NoCounter));
                prop_assert!(events.len() > 1, "{:?}", foretold);
            }
            Err(Misfit::Register(_)) => prop_assert_eq!(decided, Err(Reason::ExtraConflict)),
            Err(Misfit::TooFew { events, counters }) => {
                prop_assert_eq!(decided, Err(Reason::NoCounter));
                prop_assert!(events.len() > counters.len(), "{:?}", foretold);
            }
            Err(Misfit::Unlisted(_)) => prop_assert!(false, "a row of the table is not in it"),
        }
    }
}
