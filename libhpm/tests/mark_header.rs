//! `include/hpm_mark.h` against the driver's interface, compiled as C99 and as C++ by whoever runs the tests.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use hpm_abi::{
    ABI_VERSION, Envelope, IOCTL_MARK, IOCTL_MARKER_PAGE, MARKER_NAME_BYTES, Mark, MarkerPage,
    MarkerPageRequest, PAGE_BYTES, PAGE_MARKERS, PageMarker,
};

/// The compilers with the language that each is told.
const COMPILERS: [(&str, &[&str]); 2] = [("gcc", &["-std=c99"]), ("g++", &["-x", "c++"])];

/// What the program prints, compiled without a warning by each compiler; `device` stands for the driver, and is as `prepare` left it.
fn outputs(program: &str, device: &Path, prepare: impl Fn()) -> Vec<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let temp = tempfile::tempdir().unwrap();
    let run = |(compiler, language): (&str, &[&str])| {
        let binary = temp.path().join(compiler);
        let compiled = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-O2"])
            .args(language)
            .arg("-I")
            .arg(here.join("include"))
            .arg(format!("-DHPM_MARK_DEVICE=\"{}\"", device.display()))
            .arg(here.join("tests/mark_header").join(program))
            .arg("-o")
            .arg(&binary)
            .output()
            .unwrap_or_else(|reason| panic!("{compiler}, which this test needs, does not start: {reason}"));
        assert!(compiled.status.success(), "{compiler}: {}", String::from_utf8_lossy(&compiled.stderr));
        prepare();
        let ran = Command::new(&binary).output().unwrap();
        assert!(ran.status.success(), "{program} by {compiler}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    COMPILERS.into_iter().map(run).collect()
}

#[test]
fn numbers_and_layouts_are_the_drivers() {
    let expected = [
        ("version", ABI_VERSION as usize),
        ("name bytes", MARKER_NAME_BYTES),
        ("page bytes", PAGE_BYTES),
        ("page markers", PAGE_MARKERS),
        ("mark", IOCTL_MARK as usize),
        ("marker page", IOCTL_MARKER_PAGE as usize),
        ("hpm_envelope", size_of::<Envelope>()),
        ("hpm_envelope.version", offset_of!(Envelope, version)),
        ("hpm_envelope.size", offset_of!(Envelope, size)),
        ("hpm_envelope.reason", offset_of!(Envelope, reason)),
        ("hpm_envelope.reserved", offset_of!(Envelope, reserved)),
        ("hpm_envelope.detail", offset_of!(Envelope, detail)),
        ("hpm_mark_request", size_of::<Mark>()),
        ("hpm_mark_request.value", offset_of!(Mark, value)),
        ("hpm_mark_request.name", offset_of!(Mark, name)),
        ("hpm_mark_request.kept", offset_of!(Mark, kept)),
        ("hpm_marker_page_request", size_of::<MarkerPageRequest>()),
        ("hpm_marker_page_request.offset", offset_of!(MarkerPageRequest, offset)),
        ("hpm_page_marker", size_of::<PageMarker>()),
        ("hpm_page_marker.tsc", offset_of!(PageMarker, tsc)),
        ("hpm_page_marker.value", offset_of!(PageMarker, value)),
        ("hpm_page_marker.name", offset_of!(PageMarker, name)),
        ("hpm_marker_page", size_of::<MarkerPage>()),
        ("hpm_marker_page.produced", offset_of!(MarkerPage, produced)),
        ("hpm_marker_page.taken", offset_of!(MarkerPage, taken)),
        ("hpm_marker_page.markers", offset_of!(MarkerPage, markers)),
    ];
    let expected: BTreeMap<String, usize> = expected.map(|(name, number)| (name.to_owned(), number)).into();
    for output in outputs("layout.c", Path::new("/nonexistent/hpm"), || ()) {
        let said: BTreeMap<String, usize> = output
            .lines()
            .map(|line| line.rsplit_once(' ').expect("a name and a number"))
            .map(|(name, number)| (name.to_owned(), number.parse().expect("a number")))
            .collect();
        assert_eq!(said, expected);
    }
}

#[test]
fn without_a_driver_nothing_happens() {
    let enoent = nix::errno::Errno::ENOENT as i32;
    for output in outputs("absent.c", Path::new("/nonexistent/hpm"), || ()) {
        assert_eq!(output, format!("{enoent} {enoent} {enoent} 0\n"));
    }
}

#[test]
fn markers_are_in_the_page_and_those_without_room_are_asked_for() {
    let page = tempfile::NamedTempFile::new().unwrap();
    let empty = || std::fs::write(page.path(), vec![0; PAGE_BYTES]).unwrap();
    for output in outputs("marks.c", page.path(), empty) {
        assert_eq!(
            output,
            // The 33rd finds the page full. The child asks for a page of its own, which here is the same one.
            "page\nopen 0\nmark round 31\nerrno kept\npage\nmark child 1\nclosed 1\nmark done 3\nkept 1\n"
        );
        let bytes = std::fs::read(page.path()).unwrap();
        let word = |offset: usize| u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap());
        assert_eq!(word(offset_of!(MarkerPage, produced)), PAGE_MARKERS as u64);
        let markers: Vec<(u64, u64, String)> = (0..PAGE_MARKERS)
            .map(|slot| offset_of!(MarkerPage, markers) + slot * size_of::<PageMarker>())
            .map(|start| {
                let name = start + offset_of!(PageMarker, name);
                let name = bytes[name..name + MARKER_NAME_BYTES].try_into().unwrap();
                let value = word(start + offset_of!(PageMarker, value));
                (word(start + offset_of!(PageMarker, tsc)), value, libhpm::mark::name(name))
            })
            .collect();
        assert!(markers[0].0 > 0 && markers.is_sorted_by_key(|(tsc, ..)| *tsc));
        assert_eq!((markers[0].1, markers[0].2.as_str()), (7, "aäääääääääää"));
        assert!(
            markers[1..].iter().zip(0..).all(|((_, value, name), round)| *value == round && name == "round")
        );
    }
}
