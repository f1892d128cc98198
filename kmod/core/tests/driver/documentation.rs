//! docs/generations.md says what the tables say.

use hpm_abi::CoreType;
use hpm_core::lbr::Lbr;
use hpm_core::pmu::amd;
use hpm_core::pmu::{generation_of, ExtraRegister, Generation, GENERATIONS};

fn models(generation: &Generation) -> String {
    let name = |model: &u32| format!("{model:02X}H");
    if let Some(models) = amd_models(generation) {
        return models;
    }
    let own = generation.models.iter().map(name).collect::<Vec<_>>().join(", ");
    let cores = match generation.core_type {
        CoreType::Any => return own,
        CoreType::Core => "P-cores",
        CoreType::Atom | CoreType::LowPower => "E-cores",
    };
    let hybrid = generation.hybrid_models.iter().map(name).collect::<Vec<_>>().join(", ");
    let separator = if own.is_empty() { "" } else { "; " };
    let is_third = |model: &u32| generation_of(*model, CoreType::LowPower) == Some(generation);
    let third: Vec<_> = (0..=0xFF).filter(is_third).map(|model| name(&model)).collect();
    let low_power =
        if third.is_empty() { String::new() } else { format!("; low-power cores of {}", third.join(", ")) };
    format!("{own}{separator}{cores} of {hybrid}{low_power}")
}

/// Families and models of one of AMD's generations.
fn amd_models(generation: &Generation) -> Option<String> {
    let is_own =
        |family, model| amd::generation_of(family, model).is_some_and(|found| found.name == generation.name);
    let family = (0x0F..=0x1F).find(|&family| (0..=0xFF).any(|model| is_own(family, model)))?;
    let own: Vec<u32> = (0..=0xFF).filter(|&model| is_own(family, model)).collect();
    let ranges = own.chunk_by(|one, next| one + 1 == *next).map(|range| match (range, own.len()) {
        (_, 0x100) => "all".to_owned(),
        ([first, .., last], _) => format!("{first:02X}H to {last:02X}H"),
        (only, _) => format!("{:02X}H", only[0]),
    });
    Some(format!("of AMD's family {family:02X}H: {}", ranges.collect::<Vec<_>>().join(", ")))
}

fn pebs(generation: &Generation) -> String {
    if amd_models(generation).is_some() {
        return if generation.precise.is_empty() { "none" } else { "IBS" }.to_owned();
    }
    let format = |format: &u16| match format {
        15 => "architectural".to_owned(),
        4.. => format!("{format} (adaptive)"),
        _ => format!("{format}"),
    };
    generation.pebs_formats.iter().map(format).collect::<Vec<_>>().join(", ")
}

fn branches(generation: &Generation) -> String {
    let format = generation.lbr_format;
    match Lbr::model_specific(format, false) {
        None if format == 0 => "none used".to_owned(),
        None => "architectural".to_owned(),
        Some(lbr) => {
            let calls = if lbr.call_stack { ", calls" } else { "" };
            format!("{}{calls} (format {format})", lbr.depth)
        }
    }
}

fn registers(generation: &Generation) -> String {
    let name = |register| match register {
        ExtraRegister::OffcoreRsp0 => "MSR_OFFCORE_RSP_0",
        ExtraRegister::OffcoreRsp1 => "MSR_OFFCORE_RSP_1",
        ExtraRegister::LoadLatency => "MSR_PEBS_LD_LAT_THRESHOLD",
        ExtraRegister::Frontend => "MSR_PEBS_FRONTEND",
    };
    let has = ExtraRegister::ALL.into_iter().filter(|&register| generation.has_extra(register));
    has.map(name).collect::<Vec<_>>().join(", ")
}

fn table() -> String {
    let head = "| PMU | models of family 6 | precise records (PEBS format) | branch records | event selects | precise events | registers beside the encoding |\n\
                |---|---|---|---|---|---|---|\n";
    GENERATIONS.iter().fold(head.to_owned(), |table, generation| {
        let counts = (generation.events.len(), generation.precise.len());
        let (models, pebs, registers) = (models(generation), pebs(generation), registers(generation));
        let branches = branches(generation);
        format!(
            "{table}| {} | {models} | {pebs} | {branches} | {} | {} | {registers} |\n",
            generation.name, counts.0, counts.1
        )
    })
}

#[test]
fn the_document_has_the_table_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/generations.md");
    let document = std::fs::read_to_string(path).expect("docs/generations.md");
    let table = table();
    assert!(document.contains(&table), "docs/generations.md should have this table:\n{table}");
}
