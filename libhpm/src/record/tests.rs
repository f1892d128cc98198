//! Records of every layout: each field at its place, and any bytes at all.

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::event::Sampling;

/// Words that each hold their own offset.
fn ramp(words: usize) -> Vec<u64> {
    (0..words as u64).map(|index| index * 8).collect()
}

fn only(format: u16, words: &[u64]) -> Result<Record<'_>> {
    let bytes = words.as_bytes();
    let size = if format == RECORD_FORMAT_ARCHITECTURAL { 0 } else { bytes.len() as u16 };
    let mut records = Records::new(format, size, bytes)?;
    let record = records.next().expect("there are bytes")?;
    assert!(records.next().is_none(), "all bytes belong to one record");
    Ok(record)
}

#[test]
fn fixed_formats_grow_at_their_end() {
    let words = ramp(25);
    let record = only(3, &words).unwrap();
    let registers = record.registers.unwrap().to_array();
    assert_eq!((registers[0], registers[1], registers[9], registers[17]), (0, 8, 0x48, 0x88));
    assert_eq!((record.ip, record.attribution), (0xB0, Attribution::Cause));
    assert_eq!((record.applicable_counters, record.tsc), (Some(0x90), Some(0xC0)));
    assert_eq!(record.memory, Some(MemoryAccess { address: 0x98, source: 0xA0, latency: 0xA8 }));
    let haswell = only(2, &words[..24]).unwrap();
    assert_eq!((haswell.ip, haswell.tsc), (0xB0, None));
    let nehalem = only(1, &words[..22]).unwrap();
    assert_eq!((nehalem.ip, nehalem.attribution), (8, Attribution::Next));
    let core2 = only(0, &words[..18]).unwrap();
    assert!(core2.memory.is_none() && core2.applicable_counters.is_none());
}

/// Figure 2.4 of Schneider's thesis: eflags, ip, eax, ebx, ecx, edx, esi, edi, ebp, esp.
#[test]
fn a_pentium_4_in_32_bit_mode_writes_ten_words() {
    let words: Vec<u32> = (0..20).collect();
    let bytes = words.as_bytes();
    let records: Result<Vec<_>> = Records::new(RECORD_FORMAT_NETBURST_32, 40, bytes).unwrap().collect();
    let records = records.unwrap();
    let registers = records[1].registers.unwrap().to_array();
    assert_eq!((registers[0], registers[1], registers[8], registers[9], registers[10]), (10, 11, 18, 19, 0));
    assert_eq!((records.len(), records[1].ip, records[1].attribution), (2, 11, Attribution::Next));
    assert!(records[1].memory.is_none());
}

/// An adaptive record with these groups and this many branches, whose words hold their offsets.
fn adaptive_record(groups: u64, branches: u64) -> Vec<u64> {
    let group = |bit: u64, words: usize| if groups & bit != 0 { words } else { 0 };
    let lbr = group(adaptive::groups::LBRS, 3 * branches as usize);
    let words = 4 + group(1, 4) + group(2, 18) + group(4, 32) + lbr;
    let mut record = ramp(words);
    record[0] = groups | (branches.max(1) - 1) << 24 | 77 << 32 | (words as u64 * 8) << 48;
    record
}

#[test]
fn an_adaptive_record_has_the_groups_that_it_names() {
    let words = adaptive_record(0xf, 2);
    let record = only(4, &words).unwrap();
    assert_eq!((record.ip, record.applicable_counters, record.tsc), (8, Some(16), Some(24)));
    assert_eq!(record.memory, Some(MemoryAccess { address: 32, source: 40, latency: 48 }));
    let [rflags, rip, rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, ..] = record.registers.unwrap().to_array();
    assert_eq!([rflags, rip, rax, rcx, rdx, rbx], [64, 72, 80, 88, 96, 104]);
    assert_eq!([rsp, rbp, rsi, rdi, r8], [112, 120, 128, 136, 144]);
    assert_eq!(record.xmm.unwrap()[1], [64 + 144 + 16, 64 + 144 + 24]);
    let start = 64 + 144 + 256;
    assert_eq!(record.branches[1], Branch { from: start + 24, to: start + 32, info: start + 40 });
    assert_eq!(record.retire_latency_cycles, Some(77));
    let words = adaptive_record(0, 0);
    let basic = only(5, &words).unwrap();
    assert!(basic.registers.is_none() && basic.memory.is_none() && basic.branches.is_empty());
}

#[test]
fn the_fragments_of_an_architectural_record_are_one_record() {
    use architectural::header;
    let mut first = ramp(2 + 6 + 8 + 20);
    first[0] = header::BASIC | header::AUX | header::GPR | header::CONTINUED | (first.len() as u64 * 8);
    first[2 + 3] = 1 << 16 | 9;
    let mut second = ramp(2 + 6 + 3 * 3);
    second[0] = 3 << header::LBR_SHIFT | (second.len() as u64 * 8);
    second[2 + 2] = 3;
    let words = [first, second].concat();
    let record = only(RECORD_FORMAT_ARCHITECTURAL, &words).unwrap();
    assert_eq!((record.ip, record.applicable_counters, record.tsc), (16, Some(24), Some(32)));
    assert_eq!(record.retire_latency_cycles, Some(9));
    assert_eq!(record.memory, Some(MemoryAccess { address: 64, source: 104, latency: 112 }));
    assert_eq!(record.registers.unwrap().rip(), 136);
    assert_eq!((record.branches.len(), record.branches[0].from), (3, 64));
}

#[test]
fn a_null_record_belongs_to_the_record_behind_it() {
    use architectural::header;
    let mut record = ramp(2 + 6);
    record[0] = header::BASIC | 64;
    for bytes in [16, 48] {
        let mut null = ramp(bytes / 8);
        null[0] = bytes as u64;
        let words = [record.clone(), null.clone(), record.clone(), record.clone()].concat();
        let records = Records::new(RECORD_FORMAT_ARCHITECTURAL, 0, words.as_bytes()).unwrap();
        let ips: Vec<u64> = records.map(|record| record.unwrap().ip).collect();
        assert_eq!(ips, [16; 3], "a null record of {bytes} bytes");
        let words = [record.clone(), null].concat();
        let mut records = Records::new(RECORD_FORMAT_ARCHITECTURAL, 0, words.as_bytes()).unwrap();
        assert!(records.next().unwrap().is_ok() && records.next().unwrap().is_err(), "nothing behind it");
    }
}

#[test]
fn a_record_of_the_driver_is_imprecise() {
    let words = ramp(20);
    let record = only(RECORD_FORMAT_INTERRUPT, &words).unwrap();
    assert_eq!((record.applicable_counters, record.tsc, record.ip), (Some(0), Some(8), 24));
    assert_eq!(record.attribution, Attribution::Skid);
    assert_eq!(record.registers.unwrap().to_array()[17], 152);
}

#[test]
fn sizes_that_contradict_the_record_are_errors() {
    let mut words = adaptive_record(3, 0);
    assert!(only(4, &words[..words.len() - 1]).is_err(), "cut off");
    words[0] |= adaptive::groups::XMMS;
    assert!(only(4, &words).is_err(), "a group without its bytes");
    words[0] &= !0xf;
    assert!(only(4, &words).is_err(), "bytes without their group");
    assert!(Records::new(3, 0, &[0; 200]).unwrap().next().unwrap().is_err(), "no size");
    assert!(matches!(Records::new(7, 8, &[]), Err(Error::RecordFormat { format: 7 })));
    let endless = [0_u64, 0];
    assert!(only(RECORD_FORMAT_ARCHITECTURAL, &endless).is_err(), "a fragment of no bytes");
}

#[test]
fn a_span_yields_its_records_until_an_error() {
    let good = adaptive_record(1, 0);
    let mut bad = good.clone();
    bad[0] = 0;
    let words = [good.clone(), good.clone(), bad, good.clone()].concat();
    let records = Records::new(4, good.len() as u16 * 8, words.as_bytes()).unwrap();
    assert_eq!(records.map(|record| record.is_ok()).collect::<Vec<_>>(), [true, true, false]);
}

fn source(pmu: &str, sampling: Sampling, field: u64) -> DataSource {
    let access = MemoryAccess { address: 8, source: field, latency: 0 };
    MemoryDecoder::new(pmu).unwrap().source(access, sampling).unwrap()
}

#[test]
fn sources_are_read_as_the_generation_writes_them() {
    let load = |pmu, field| {
        let source = source(pmu, Sampling::LoadLatency, field);
        (source.level, source.snoop, source.stlb_miss, source.locked)
    };
    let (no, yes) = (Some(false), Some(true));
    assert_eq!(load("nehalem", 0x6), (Level::L3, Some(Snoop::Modified), None, None));
    assert_eq!(load("westmere", 0x16), (Level::L3, Some(Snoop::Modified), yes, no));
    assert_eq!(load("haswell", 0x6), (Level::L3, Some(Snoop::Hit), no, no));
    assert_eq!(load("broadwell", 0x1c), (Level::LocalDram, Some(Snoop::None), yes, no));
    assert_eq!(load("skylake", 0x18), (Level::FarMemory, None, yes, no));
    assert_eq!(load("skylake", 0x1c), (Level::RemoteCache, Some(Snoop::Forwarded), yes, no));
    assert_eq!(load("icelake", 0x2c), (Level::RemoteCache, Some(Snoop::Forwarded), no, yes));
    assert_eq!(load("goldencove", 0x1a), (Level::LocalDram, None, yes, no));
    assert_eq!(load("skylake", 0x7), (Level::L3, Some(Snoop::Modified), no, no));
    for pmu in ["icelake", "goldencove", "redwoodcove"] {
        let (level, snoop, ..) = load(pmu, 0x7);
        assert_eq!((level, snoop), (Level::L3, Some(Snoop::Supplied)), "{pmu}");
    }
    assert_eq!(load("gracemont", 0x1a), (Level::LocalDram, Some(Snoop::Hit), no, yes));
    for pmu in ["crestmont", "skymont", "darkmont"] {
        assert_eq!(load(pmu, 0x48), (Level::L3, Some(Snoop::Modified), yes, no));
    }
    assert_eq!(load("darkmont", 0x1f).0, Level::Reserved);
    assert_eq!(load("lioncove", 0x411), (Level::LocalDram, Some(Snoop::None), yes, no));
    assert_eq!(load("lioncove", 0x80d), (Level::L3, Some(Snoop::Modified), no, yes));
    assert_eq!(load("lioncove", 0x12).0, Level::Reserved);
    assert_eq!(source("goldencove", Sampling::LoadLatency, 0x41).blocked, Some(true));
    assert_eq!(source("skylake", Sampling::LoadLatency, 0x41).blocked, None);
}

#[test]
fn stores_have_a_status_or_a_source() {
    let hit = source("ivybridge", Sampling::StoreAddress, 0x21);
    assert_eq!((hit.operation, hit.level, hit.locked), (Operation::Store, Level::L1, Some(true)));
    assert_eq!(source("sandybridge", Sampling::StoreAddress, 0x10).stlb_miss, Some(true));
    for pmu in ["haswell", "broadwell", "skylake", "icelake"] {
        let missed = source(pmu, Sampling::StoreAddress, 0x30);
        assert_eq!((missed.level, missed.stlb_miss, missed.locked), (Level::BeyondL1, None, None), "{pmu}");
    }
    let sampled = source("goldencove", Sampling::StoreLatency, 0x3);
    assert_eq!((sampled.operation, sampled.level), (Operation::Store, Level::L2));
}

#[test]
fn latencies_are_split_since_golden_cove() {
    let access = MemoryAccess { address: 8, source: 0, latency: 300 << 32 | 12 };
    let latency = |pmu| MemoryDecoder::new(pmu).unwrap().latency(access, Sampling::LoadLatency);
    assert_eq!(latency("icelake"), Latency { access_cycles: Some(12), instruction_cycles: None });
    let split = Latency { access_cycles: Some(300), instruction_cycles: Some(12) };
    assert_eq!(latency("goldencove"), split);
    let none = MemoryDecoder::new("skylake").unwrap().latency(access, Sampling::LoadAddress);
    assert_eq!(none, Latency::default(), "the event has no latency");
}

#[test]
fn every_pmu_with_events_has_a_decoder() {
    // K8 samples nothing precisely, so that no record of it has data.
    let without: Vec<&str> = crate::event::pmus().filter(|pmu| MemoryDecoder::new(pmu).is_none()).collect();
    assert_eq!(without, ["k8"]);
    assert!(MemoryDecoder::new("no such PMU").is_none());
}

#[test]
fn levels_and_snoops_keep_their_numbers() {
    for number in 0..=u8::MAX {
        assert!(Level::from_number(number).is_none_or(|level| level as u8 == number));
        assert!(Snoop::from_number(number).is_none_or(|snoop| snoop as u8 == number));
    }
    assert_eq!((1..=14).filter_map(Level::from_number).count(), 14);
    assert_eq!((1..=6).filter_map(Snoop::from_number).count(), 6);
}

fn formats() -> impl Strategy<Value = u16> {
    let others = vec![RECORD_FORMAT_INTERRUPT, RECORD_FORMAT_ARCHITECTURAL, RECORD_FORMAT_NETBURST_32];
    prop_oneof![0_u16..7, prop::sample::select(others)]
}

proptest! {
    /// Whatever the bytes, their alignment and the sizes claimed: errors, an end, and no panic.
    #[test]
    fn any_bytes_are_records_or_an_error(
        format in formats(),
        size in 0_u16..400,
        bytes in prop::collection::vec(any::<u8>(), 0..1200),
        skip in 0_usize..9,
    ) {
        let bytes = bytes.get(skip..).unwrap_or_default();
        let records = Records::new(format, size, bytes).unwrap();
        let found = records.take_while(|record| record.is_ok()).count();
        prop_assert!(found <= bytes.len() / 16);
    }

    /// The same with headers that are nearly right, so that parsers get further.
    #[test]
    fn any_header_is_a_record_or_an_error(
        architectural in any::<bool>(),
        header in any::<u64>(),
        sizes in prop::collection::vec(0_u64..140, 1..4),
        word in any::<u64>(),
    ) {
        let mut words = Vec::new();
        for size in &sizes {
            let mut fragment = vec![word; (*size as usize).max(2)];
            let bytes = fragment.len() as u64 * 8;
            // The vector groups that nothing asks for would end every other case at once.
            let kept = header & !architectural::header::WIDE_VECTORS;
            fragment[0] = if architectural { kept & !0xffff | bytes } else { header << 16 >> 16 | bytes << 48 };
            words.extend(fragment);
        }
        let format = if architectural { RECORD_FORMAT_ARCHITECTURAL } else { 4 };
        let size = if architectural { 0 } else { words.len() as u16 * 8 };
        for record in Records::new(format, size, words.as_bytes()).unwrap().flatten() {
            prop_assert!(record.branches.len() * 24 <= words.len() * 8);
            prop_assert!(record.registers.is_none_or(|registers| registers.rip() == word));
        }
    }

    /// An adaptive record with any groups is read back as it was made.
    #[test]
    fn adaptive_records_are_read_back(groups in 0_u64..16, branches in 1_u64..33) {
        let words = adaptive_record(groups, branches);
        let record = only(4, &words).unwrap();
        prop_assert_eq!(record.memory.is_some(), groups & 1 != 0);
        prop_assert_eq!(record.registers.is_some(), groups & 2 != 0);
        prop_assert_eq!(record.xmm.is_some(), groups & 4 != 0);
        prop_assert_eq!(record.branches.len() as u64, if groups & 8 != 0 { branches } else { 0 });
        let last = record.branches.last().map(|branch| branch.info);
        prop_assert!(last.is_none_or(|info| info == words.len() as u64 * 8 - 8));
    }
}
