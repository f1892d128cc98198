//! The names that this library understands are events that the driver accepts: both have tables of every PMU, for different
//! ends, and neither is made from the other.

use hpm_core::pmu::{GENERATIONS, Generation};
use libhpm::event::{Row, pmus, vendor_names};

/// What the driver has against an event, if anything.
fn objection(generation: &Generation, row: &Row) -> Option<String> {
    let code = row.encoding as u16;
    let [select, unit_mask] = code.to_le_bytes();
    let Some(rule) = generation.event(select) else { return Some("no such event select".to_owned()) };
    if unit_mask & !rule.unit_mask_bits != 0 {
        return Some(format!("unit mask bits {:#x}", unit_mask & !rule.unit_mask_bits));
    }
    let counters = generation.counters(rule, code);
    if u16::from(row.counters) & !counters != 0 {
        return Some(format!("counters {:#x} instead of {counters:#x}", row.counters));
    }
    if generation.precise(row.encoding).is_some() != row.sampling.is_precise() {
        return Some(format!("{:?} here", row.sampling));
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
    let generation = |pmu: &str| GENERATIONS.into_iter().find(|generation| generation.name == pmu);
    let objections: Vec<String> = pmus()
        .flat_map(|pmu| {
            let generation = generation(pmu).unwrap_or_else(|| panic!("the driver does not know {pmu}"));
            let objection = move |row: &Row| {
                let why = objection(generation, row)?;
                Some(format!("{pmu}: {} ({:#x}): {why}", row.name, row.encoding))
            };
            vendor_names(pmu).iter().filter_map(objection)
        })
        .collect();
    assert!(objections.is_empty(), "{} objections:\n{}", objections.len(), objections.join("\n"));
}

#[test]
fn every_pmu_of_the_driver_has_a_table() {
    let mut names: Vec<&str> = GENERATIONS.iter().map(|generation| generation.name).collect();
    let mut tables: Vec<&str> = pmus().collect();
    names.sort_unstable();
    tables.sort_unstable();
    assert_eq!(names, tables);
}
