//! Names on several PMUs, and the tables that they are looked up in.

use super::*;

fn encoding(text: &str) -> u64 {
    parse(text, "skylake").unwrap_or_else(|e| panic!("{e}")).encoding
}

proptest::proptest! {
    /// Whatever is typed: an event or an error in a sentence, and no panic.
    #[test]
    fn any_text_is_an_event_or_an_error(
        text in "[a-z0-9_.:/=,~-]{0,24}|(cpu|cpu_core|cpu_atom|cpu_lowpower)/[a-z]{0,8}=0?x?[0-9a-f]{0,20}[,/]?[a-z]{0,4}/?[ukp:]{0,4}|r[0-9a-f]{0,20}(:[ukp]{0,4})?|\\PC{0,12}",
        pmu in proptest::sample::select(vec!["skylake", "nehalem", "goldencove", "goldencove+gracemont", "nothing"]),
    ) {
        if let Err(error) = parse(&text, pmu) {
            proptest::prop_assert!(!error.to_string().is_empty());
        }
        let without_blanks = |text: &str| text.replace(char::is_whitespace, "");
        proptest::prop_assert_eq!(without_blanks(&split_list(&text).join(",")), without_blanks(&text));
    }
}

#[test]
fn every_way_to_name_a_load_that_missed_l1() {
    for text in [
        "l1d-load-miss",
        "MEM_LOAD_RETIRED.L1_MISS",
        "mem_load_retired:l1_miss",
        "r8d1",
        "cpu/event=0xd1,umask=8/",
    ] {
        assert_eq!(encoding(text), 0x08d1, "{text}");
    }
}

#[test]
fn modifiers_restrict_the_privilege() {
    let levels = |text: &str| parse(text, "skylake").map(|e| (e.user, e.kernel)).unwrap();
    assert_eq!(levels("cycles"), (true, true));
    assert_eq!(levels("cycles:u"), (true, false));
    assert_eq!(levels("MEM_LOAD_RETIRED:L1_MISS:kp"), (false, true));
    assert_eq!(levels("cpu/event=0x3c/u"), (true, false));
    assert_eq!(levels("cycles:uk"), (true, true));
}

#[test]
fn a_generic_name_is_sampled_by_its_precise_encoding() {
    let branch = parse("branch", "skylake").unwrap();
    assert_eq!((branch.encoding, branch.precise_encoding), (0x00c4, 0x04c4));
    assert_eq!(encoding("branch:p"), 0x04c4);
}

#[test]
fn restricting_to_user_mode_shows_in_the_name() {
    assert_eq!(parse("cycles", "skylake").unwrap().user_only().name, "cycles:u");
    let raw = parse("cpu/event=0x3c/", "skylake").unwrap().user_only().name;
    assert_eq!(raw, "cpu/event=0x3c/u");
    assert!(!parse(&raw, "skylake").unwrap().kernel);
}

#[test]
fn unknown_names_suggest_near_ones() {
    let say = |name| parse(name, "skylake").unwrap_err().to_string();
    insta::assert_snapshot!(
        [
            say("l1d-lod-miss"),
            say("MEM_LOAD_RETIRED:L1_MIS"),
            say("xyzzy"),
            say("r200d1"),
            say("cpu/frob=1/"),
            say("")
        ]
        .join("\n")
    );
}

#[test]
fn commas_inside_slashes_do_not_split() {
    assert_eq!(
        split_list("cycles,cpu/event=0xd1,umask=8/u,r1c4"),
        ["cycles", "cpu/event=0xd1,umask=8/u", "r1c4"]
    );
}

#[test]
fn blanks_around_commas_are_no_part_of_a_name() {
    assert_eq!(split_list("cycles, r1c4 ,load"), ["cycles", "r1c4", "load"]);
}

#[test]
fn a_name_without_an_event_says_why() {
    let error = parse("l1d-load-miss", "sandybridge").unwrap_err().to_string();
    assert!(error.contains("those that missed"), "{error}");
}

#[test]
fn thresholds_are_part_of_the_name_or_a_term() {
    let event = |text: &str| parse(text, "skylake").unwrap();
    let latency = event("MEM_TRANS_RETIRED.LOAD_LATENCY_GT_64");
    assert_eq!((latency.encoding, latency.extra), (0x01cd, 64));
    assert_eq!((latency.sampling, latency.sampled_precisely()), (Sampling::LoadLatency, true));
    let term = event("cpu/mem-loads,ldlat=30/up");
    assert_eq!((term.encoding, term.extra, term.kernel), (0x01cd, 30, false));
    let raw = event("cpu/event=0xcd,umask=1,ldlat=30/");
    assert_eq!((raw.sampling, raw.extra), (Sampling::LoadLatency, 30));
}

#[test]
fn what_pebs_cannot_sample_is_sampled_by_interrupts_unless_asked() {
    let precisely = |text: &str| parse(text, "skylake").unwrap().sampled_precisely();
    assert!(!precisely("cycles") && precisely("cycles:p"));
    assert!(precisely("branch") && precisely("r08d1") && !precisely("r01a2"));
}

#[test]
fn golden_cove_tags_loads_only_beside_another_event() {
    let companion = |text: &str, pmu: &str| companion(&parse(text, pmu).unwrap(), pmu);
    let beside = companion("cpu/mem-loads,ldlat=30/u", "goldencove").unwrap();
    assert_eq!((beside.encoding, beside.extra, beside.kernel), (0x8203, 0, false));
    assert!(companion("load", "goldencove").is_none() && companion("mem-loads", "icelake").is_none());
    assert!(companion("cpu_core/mem-loads/", "goldencove+gracemont").is_some());
    assert!(companion("cpu_atom/mem-loads/", "goldencove+gracemont").is_none());
    assert!(companion("cpu_core/mem-loads/", "redwoodcove+crestmont").is_none());
}

#[test]
fn a_hybrid_processor_has_two_tables() {
    let hybrid = |text: &str| parse(text, "goldencove+gracemont");
    assert_eq!(hybrid("cycles").unwrap().core_type, CoreType::Any);
    let (core, atom) = (hybrid("cpu_core/load/").unwrap(), hybrid("cpu_atom/load/u").unwrap());
    assert_eq!((core.core_type, core.encoding), (CoreType::Core, 0x81d0));
    assert_eq!((atom.core_type, atom.encoding, atom.kernel), (CoreType::Atom, 0x81d0, false));
    assert_eq!(hybrid("cpu_atom/mem-loads/").unwrap().encoding, 0x05d0);
    let error = hybrid("mem-loads").unwrap_err().to_string();
    assert!(error.contains("cpu_core/…/"), "{error}");
    assert!(parse("cpu_atom/load/", "skylake").is_err());
    let error = parse("cpu_lowpower/load/", "goldencove+gracemont").unwrap_err().to_string();
    assert!(error.contains("write `cpu_core/…/` or `cpu_atom/…/` instead"), "{error}");
    assert_eq!(parse("cpu_atom/l1d-load-miss/", "redwoodcove+crestmont").unwrap().encoding, 0x40d1);
    assert_eq!(parse("cpu_core/l1d-load-miss/", "redwoodcove+crestmont").unwrap().encoding, 0x08d1);
    // The E-cores may be switched off.
    assert_eq!(parse("cpu_core/load/", "goldencove").unwrap().core_type, CoreType::Core);
}

#[test]
fn arrow_lake_h_has_three_tables() {
    let pmu = "lioncove+skymont+crestmont";
    let types = [CoreType::Core, CoreType::Atom, CoreType::LowPower];
    assert!(core_pmus(pmu).map(|(core_type, _)| core_type).eq(types));
    let low_power = parse("cpu_lowpower/l1d-load-miss/", pmu).unwrap();
    assert_eq!((low_power.core_type, low_power.encoding), (CoreType::LowPower, 0x40d1));
    assert_eq!(parse("cycles", pmu).unwrap().core_type, CoreType::Any);
    let names: Vec<_> = parse_each("load:u", pmu).unwrap().into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["cpu_core/load/u", "cpu_atom/load/u", "cpu_lowpower/load/u"]);
    // While a type of its cores is not online, the others are what they are.
    let [meteor_lake, without] = ["redwoodcove+crestmont", "lioncove+crestmont"]
        .map(|pmu| core_pmus(pmu).map(|(core_type, _)| core_type).collect::<Vec<_>>());
    assert_eq!((meteor_lake, without), (vec![types[0], types[1]], vec![types[0], types[2]]));
}

#[test]
fn a_name_means_the_event_of_each_type_of_core_where_they_differ() {
    let names = |text: &str, pmu: &str| -> Vec<String> {
        parse_each(text, pmu).unwrap().into_iter().map(|event| event.name).collect()
    };
    let hybrid = "goldencove+gracemont";
    for pmu in [hybrid, "redwoodcove+crestmont", "lioncove+skymont+crestmont", "cougarcove+darkmont"] {
        for name in
            ["cycles", "ref-cycles", "instructions", "branches", "branch-misses", "l3-miss", "l3-reference"]
        {
            assert_eq!(names(name, pmu), [name], "{pmu}");
        }
    }
    assert_eq!(names("load", hybrid), ["cpu_core/load/", "cpu_atom/load/"]);
    assert_eq!(
        names("cpu/mem-loads,ldlat=30/up", hybrid),
        ["cpu_core/mem-loads,ldlat=30/up", "cpu_atom/mem-loads,ldlat=30/up"]
    );
    assert_eq!(names("load:u", hybrid), ["cpu_core/load/u", "cpu_atom/load/u"]);
    assert_eq!(names("cpu_atom/load/u", hybrid), ["cpu_atom/load/u"]);
    // In one encoding, of which the driver does not know that it means the same.
    let calls = ["cpu_core/BR_INST_RETIRED.NEAR_CALL/u", "cpu_atom/BR_INST_RETIRED.NEAR_CALL/u"];
    assert_eq!(names("BR_INST_RETIRED.NEAR_CALL:u", "cougarcove+darkmont"), calls);
    assert_eq!(
        names("MEM_LOAD_RETIRED.L1_MISS", hybrid),
        ["cpu_core/MEM_LOAD_RETIRED.L1_MISS/"],
        "of one type"
    );
    assert_eq!(names("load", "goldencove"), ["load"]);
    for pmu in [hybrid, "skylake"] {
        let unknown = |text| parse_each(text, pmu).unwrap_err().to_string();
        assert!(unknown("l1d-lod-miss").contains("l1d-load-miss"), "{}", unknown("l1d-lod-miss"));
    }
}

/// Every PMU has or explains every generic name, every alias names rows that exist, the sampled one precise where the
/// alias says it differs, and no name stands twice.
#[test]
fn the_tables_are_consistent() {
    let mut generics: Vec<&str> = GENERICS.iter().map(|generic| generic.name).collect();
    generics.sort_unstable();
    for (pmu, table) in &pmu::TABLES {
        let aliases = table.aliases.iter().map(|alias| alias.name);
        let mut names: Vec<&str> = aliases.chain(table.absent.iter().map(|absent| absent.name)).collect();
        names.sort_unstable();
        assert_eq!(names, generics, "{pmu}");
        assert!(table.absent.iter().all(|absent| !absent.reason.is_empty()), "{pmu}");
        for alias in table.aliases {
            let found = table.generic(alias.name);
            let (_, sampled) = found.unwrap_or_else(|| panic!("{pmu}: {} names no row", alias.name));
            let precise = alias.counted == alias.sampled || sampled.sampling.is_precise();
            assert!(precise, "{pmu}: {} samples an imprecise event", alias.name);
        }
        for row in table.rows {
            assert_eq!(raw::check(row.encoding, row.name).ok(), Some(row.encoding), "{}", row.name);
            assert_eq!(table.vendor(row.name), Some(row), "{pmu}: {} twice", row.name);
            assert_eq!(table.sampling(row.encoding), row.sampling, "{pmu}: {}", row.name);
        }
    }
}

#[test]
fn an_event_that_is_restricted_to_user_mode_is_known_by_its_new_name() {
    for name in ["load", "load:p", "cpu/event=0xd0,umask=0x81/", "cpu/event=0xd0,umask=0x81/p"] {
        let event = parse(name, "skylake").unwrap().user_only();
        assert_eq!(parse(&event.name, "skylake").unwrap(), event, "{name}");
    }
}
