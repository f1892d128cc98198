//! Data addresses, spaces and references of a real program against what it truly did.
//!
//! The program is executed step by step on this machine's processor, its loads go through a model of a small cache, and each miss becomes
//! a sample as PEBS would write it: the instruction, and the registers after it. The analyses see no data address. They are judged by the
//! address that the registers *before* the instruction gave, and by the program's own log of its objects.

mod judged;
mod stepped;
#[path = "../traced/mod.rs"]
mod traced;

use judged::{Found, analyse, is_like, share, true_misses};
use libhpm::analysis::coallocation::{Rules, Verdict, advise};
use stepped::{Program, Record, Run, run};

const DB: Program = Program { source: "locality.c", mode: "db", function: "visit" };

/// Fields with the kind of objects that they lead to, and those that are worth allocating together with what they lead to.
fn judge(run: &Run, fields: &[(&str, &str)], wanted: &[&str]) {
    let found = analyse(run);
    let misses = true_misses(run);
    let all = run.truth.len() as f64;
    println!("{} samples, {} known; true misses {misses:?}", run.truth.len(), found.known);
    println!("{:?}", found.references.weights().table());
    assert!(run.truth.len() > 3000, "{}", run.truth.len());
    assert!(found.wrong.is_empty(), "{:x?}", found.wrong);
    for (field, kind) in fields {
        let (weight, truth) = (share(&found, field), misses.get(*kind).copied().unwrap_or(0.0) / all);
        assert!((weight - truth).abs() < 0.05, "{field} has {weight}, {kind} were missed with {truth}");
        assert!(truth > 0.1, "{kind}: {truth}");
    }
    let together = together(&found);
    println!("together: {together:?}");
    for one in wanted {
        assert!(together.iter().any(|field| is_like(field, one)), "{one} is not in {together:?}");
    }
    assert!(!together.iter().any(|one| one.contains("[]") || one == "database::index"), "{together:?}");
}

fn together(found: &Found) -> Vec<String> {
    let weights = found.references.weights();
    let advice = advise(found.references.candidates(), weights.all(), &Rules::default());
    let chosen = advice.iter().filter(|one| one.verdict == Verdict::CoAllocate);
    chosen.map(|one| one.candidate.pair.field.to_string()).collect()
}

#[test]
fn dbs_references_have_the_weights_of_its_own_log() {
    let Some(run) = run(DB, 400, 1500, Record::WithAddress) else { return };
    let fields = [
        ("entry*[]::[]", "entry"),
        ("entry::items", "vector"),
        ("vector::elements", "elements"),
        ("string*[]::[]", "string"),
        ("string::value", "characters"),
    ];
    judge(&run, &fields, &["entry::items", "vector::elements", "string::value"]);
}

/// What misses is in another function, which is given the reference: with branch records it is the caller's.
#[test]
fn a_strings_characters_belong_to_the_field_that_their_reader_was_given() {
    let program = Program { mode: "names", function: "find", ..DB };
    for (record, share_min) in [(Record::WithBranches, 0.3), (Record::WithAddress, 0.0)] {
        let Some(run) = run(program, 600, 1200, record) else { return };
        let found = analyse(&run);
        println!("{:?} {:?}", found.references.weights().table(), found.references.unattributed());
        if share_min > 0.0 {
            judge(&run, &[("name::text", "text")], &["name::text"]);
        }
        let weight = share(&found, "name::text");
        assert!(if share_min > 0.0 { weight > share_min } else { weight == 0.0 }, "{weight}");
        assert!(found.wrong.is_empty(), "{:x?}", found.wrong);
    }
}

/// `unique_ptr`, `vector` and `string` are structures of which one member, however deep, is the reference.
#[test]
fn fields_of_cpp_have_their_path() {
    let program = Program { source: "locality_db.cpp", ..DB };
    let Some(run) = run(program, 400, 1500, Record::WithAddress) else { return };
    let vector = "vector<std::__cxx11::basic_string*::_M_impl._M_start";
    let string = "basic_string<*::_M_dataplus._M_p";
    let fields =
        [("[visit*::[]", "entry"), ("entry::items*", "vector"), (vector, "elements"), (string, "characters")];
    judge(&run, &fields, &["entry::items*", vector, string]);
}

/// As in C++; and an inlined function's variable is forgotten where its code ends, although its register is not.
#[test]
fn fields_of_rust_have_their_path() {
    let program = Program { source: "src/bin/locality_db.rs", function: "locality_db::visit", ..DB };
    let Some(run) = run(program, 400, 1500, Record::WithAddress) else { return };
    let vector = "Vec<alloc::string::String*pointer";
    let string = "String::vec.buf*pointer";
    // No variable holds the entry: its place of allocation, and the offset, stand for the field.
    let fields =
        [("index::[]", "entry"), ("entry::+*", "vector"), (vector, "elements"), (string, "characters")];
    judge(&run, &fields, &["entry::+*", vector, string]);
}

/// As the formats of PEBS do that name the next instruction: what is given is right as well.
#[test]
fn addresses_are_right_where_the_next_instruction_is_reported() {
    let Some(run) = run(DB, 400, 800, Record::Old) else { return };
    let found = analyse(&run);
    println!("{} samples, {} known", run.truth.len(), found.known);
    assert!(found.wrong.is_empty(), "{:x?}", found.wrong);
}

#[test]
fn lists_and_trees_are_attributed() {
    for (mode, function, field, kind) in
        [("table", "look_up", "node::next", "node"), ("tree", "search", "page::children[]", "page")]
    {
        let Some(run) = run(Program { mode, function, ..DB }, 600, 700, Record::Plain) else { return };
        let found = analyse(&run);
        println!("{mode}: {} samples, {} known; {:?}", run.truth.len(), found.known, true_misses(&run));
        println!("{:?} {:?}", found.references.weights().table(), found.references.unattributed());
        assert!(found.wrong.is_empty(), "{mode}: {:x?}", found.wrong);
        assert_eq!(found.misplaced, 0, "{mode}");
        // Half of each sample came from what the function was given, as long as no branch records tell better.
        assert!(share(&found, field) > 0.35, "{mode}: {field} has {}", share(&found, field));
        assert!(true_misses(&run)[kind] > 0.2 * run.truth.len() as f64, "{mode}");
    }
}
