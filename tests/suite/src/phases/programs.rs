//! The programs: Debian's, and one of crates.io. None was written for this.

use std::path::Path;

use anyhow::{Context, Result};

use crate::consumers::tools::debian;

/// A program and what it is to do.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// What kind of program it is.
    pub(super) kind: &'static str,
    /// The process that is looked at, by its short name.
    pub(super) process: &'static str,
    /// The Debian package that may have to be fetched for it, and the folders of its programs.
    package: Option<(&'static str, &'static [&'static str])>,
    /// Seconds of the guest's clock after which it is ended: 500 million instructions each, those for recording it and waiting for the
    /// disk among them.
    pub(super) limit_s: &'static str,
    /// What it works on, of what [`super::inputs`] makes.
    pub(super) inputs: &'static [&'static str],
    /// What the shell runs, in a folder with its inputs. Without single quotes.
    pub(super) script: &'static str,
}

/// Enough for programs that compute from the first moment on.
const SHORT: &str = "0.6";
/// Enough for those that are large, or wait for others.
const LONG: &str = "2.5";

/// All of them.
pub(super) const PROGRAMS: [Program; 14] = [
    Program {
        name: "gzip",
        kind: "compressor",
        process: "gzip",
        inputs: &["mixed"],
        script: "gzip -9c mixed > out.gz",
        ..DEBIANS
    },
    Program {
        name: "bzip2",
        kind: "compressor, by blocks",
        process: "bzip2",
        inputs: &["mixed"],
        script: "bzip2 -1c mixed > out.bz2",
        ..DEBIANS
    },
    Program {
        name: "xz",
        kind: "compressor",
        process: "xz",
        inputs: &["mixed"],
        script: "xz -T1 -1 -c mixed > out.xz",
        ..DEBIANS
    },
    Program {
        name: "sqlite3",
        kind: "database",
        process: "sqlite3",
        package: Some(("sqlite3", &["usr/bin"])),
        inputs: &["queries.sql"],
        script: "sqlite3 :memory: < queries.sql > answers",
        ..DEBIANS
    },
    Program {
        name: "perl",
        kind: "interpreter",
        process: "perl",
        inputs: &["words.pl", "words"],
        script: "perl words.pl words > counts",
        ..DEBIANS
    },
    Program {
        name: "python3",
        kind: "interpreter",
        process: "python3",
        package: Some(("python3-minimal", &["usr/bin"])),
        inputs: &["rounds.py", "words"],
        script: "/usr/bin/python3 rounds.py words > counts",
        ..DEBIANS
    },
    Program {
        name: "mawk",
        kind: "interpreter",
        process: "mawk",
        inputs: &["columns.awk", "words"],
        script: "mawk -f columns.awk words words words > counts",
        ..DEBIANS
    },
    Program {
        name: "gcc",
        kind: "compiler",
        process: "cc1",
        limit_s: LONG,
        inputs: &["program.c"],
        script: "gcc -O2 -S -o program.s program.c",
        ..DEBIANS
    },
    Program {
        name: "povray",
        kind: "ray tracer",
        process: "povray",
        package: Some(("povray", &["usr/bin"])),
        limit_s: LONG,
        inputs: &["scene.pov"],
        script: "povray +Iscene.pov +Oscene.png +W96 +H72 -D +WT1 -GA",
    },
    Program {
        name: "jaq",
        kind: "parser",
        process: "jaq",
        inputs: &["query.jq", "data.json"],
        script: "$JAQ -f query.jq data.json > answer",
        ..DEBIANS
    },
    Program {
        name: "sort",
        kind: "sorter",
        process: "sort",
        limit_s: LONG,
        inputs: &["words"],
        // Pieces that fit into the buffer are sorted, then merged.
        script: "LC_ALL=C sort --parallel=1 -S 256K words words words words > sorted",
        ..DEBIANS
    },
    Program {
        name: "bc",
        kind: "calculator",
        process: "bc",
        package: Some(("bc", &["usr/bin"])),
        inputs: &["pi.bc"],
        script: "bc -l pi.bc > digits",
        ..DEBIANS
    },
    Program {
        name: "git",
        kind: "history of files, many short steps",
        process: "git",
        package: Some(("git", &["usr/bin"])),
        limit_s: LONG,
        inputs: &["repository"],
        script: "git -C repository log -p --stat > log.txt",
    },
    Program {
        name: "nginx",
        kind: "server under mixed requests",
        process: "nginx",
        package: Some(("nginx-light", &["usr/sbin"])),
        limit_s: LONG,
        inputs: &["serve.sh", "client.pl", "words", "program.c"],
        script: "sh serve.sh",
    },
];

/// One that every Debian has.
const DEBIANS: Program =
    Program { name: "", kind: "", process: "", package: None, limit_s: SHORT, inputs: &[], script: "" };

impl Program {
    /// What the shell has to be told so that it finds the program.
    pub(super) fn environment(&self, root: &Path) -> Result<String> {
        let mut text = format!("JAQ={}; export JAQ; ", root.join("target/demo/bin/jaq").display());
        if let Some((package, folders)) = self.package {
            let unpacked = root.join("target/phases/debian");
            std::fs::create_dir_all(&unpacked)?;
            let found = debian(&unpacked, package, folders, self.name)?;
            if found.starts_with(&unpacked) {
                let folder = found.parent().context("a program is in no folder")?;
                let libraries = unpacked.join("usr/lib/x86_64-linux-gnu");
                // povray draws by SDL, which has libraries of its own in a folder of its own.
                text += &format!(
                    "PATH={}:$PATH; LD_LIBRARY_PATH={1}:{1}/pulseaudio; export PATH LD_LIBRARY_PATH; ",
                    folder.display(),
                    libraries.display()
                );
            }
        }
        Ok(text)
    }
}
