//! Reports of a recording that was sampled only where its event is dense.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::tests::{report, trace};

/// A recording of places where many loads miss, that is of one that was sampled within windows.
fn trace_within(temp: &TempDir) -> PathBuf {
    let folder = trace(temp, true);
    let file = folder.join("meta.json");
    let mut meta: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert!(meta["events"][0].get("within").is_none(), "as traces were from before there were windows");
    meta["events"][0]["within"] = serde_json::json!({"event": "instructions", "events": 20_000});
    fs::write(&file, meta.to_string()).unwrap();
    folder
}

#[test]
fn samples_of_dense_places_stand_for_no_events() {
    let temp = TempDir::new().unwrap();
    let folder = trace_within(&temp);
    let text = |options: &[&str]| report(&folder, options).unwrap().0;
    insta::assert_snapshot!(text(&["--by", "function"]));
    let json: serde_json::Value = serde_json::from_str(&text(&["--json"])).unwrap();
    let within = serde_json::json!({"event": "instructions", "events": 20_000});
    assert_eq!(json["summary"]["events"][0]["event"]["within"], within);
    assert!(json["summary"]["events"][1]["event"].get("within").is_none());
    let told = json["remarks"].to_string();
    assert!(told.contains("come only where 1000 of it happen within 20000 instructions"), "{told}");
    let svg = temp.path().join("graph.svg");
    text(&["--picture", svg.to_str().unwrap()]);
    let svg = fs::read_to_string(&svg).unwrap();
    assert!(svg.contains("copy (10 samples of l1d-load-miss") && !svg.contains("estimated"), "{svg}");
}

/// Samples of it tell when many cycles came, and not where time went.
#[test]
fn a_clock_of_dense_places_is_none() {
    let temp = TempDir::new().unwrap();
    let folder = trace_within(&temp);
    let file = folder.join("meta.json");
    let meta = fs::read_to_string(&file).unwrap();
    fs::write(&file, meta.replace("l1d-load-miss", "cycles")).unwrap();
    let error = report(&folder, &["--wall-clock"]).unwrap_err().to_string();
    assert!(error.starts_with("cycles was sampled only where it is dense"), "{error}");
}

#[test]
fn what_is_nowhere_dense_has_no_estimate_of_the_unseen() {
    let temp = TempDir::new().unwrap();
    let folder = trace_within(&temp);
    let text = report(&folder, &["--distribution"]).unwrap().0;
    assert!(text.contains("of the dense places") && !text.contains("Chao"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&report(&folder, &["--distribution", "--json"]).unwrap().0).unwrap();
    assert!(json["events"][0].get("unseen").is_none(), "{json}");
    assert_eq!(json["events"][0]["all"]["events"], 14, "samples");
}
