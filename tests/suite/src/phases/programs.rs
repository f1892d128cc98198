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
    /// The Debian package that has it, and the folders of its programs.
    package: Option<(&'static str, &'static [&'static str])>,
    /// What the shell runs, in a folder with what [`super::inputs`] makes. Without single quotes.
    pub(super) script: &'static str,
}

/// All of them.
pub(super) const PROGRAMS: [Program; 14] = [
    debians("gzip", "compressor", "gzip", "gzip -9c mixed > out.gz"),
    debians("bzip2", "compressor, by blocks", "bzip2", "bzip2 -1c mixed > out.bz2"),
    debians("xz", "compressor", "xz", "xz -T1 -1 -c mixed > out.xz"),
    of_package(
        "sqlite3",
        "database",
        "sqlite3",
        ("sqlite3", &["usr/bin"]),
        "sqlite3 :memory: < queries.sql > answers",
    ),
    debians("perl", "interpreter", "perl", "perl words.pl words > counts"),
    of_package(
        "python3",
        "interpreter",
        "python3",
        ("python3-minimal", &["usr/bin"]),
        "/usr/bin/python3 rounds.py words > counts",
    ),
    debians("mawk", "interpreter", "mawk", "mawk -f columns.awk words words words > counts"),
    debians("gcc", "compiler", "cc1", "gcc -O2 -S -o program.s program.c"),
    of_package(
        "povray",
        "ray tracer",
        "povray",
        ("povray", &["usr/bin"]),
        "povray +Iscene.pov +Oscene.png +W96 +H72 -D +WT1 -GA",
    ),
    Program { script: "$JAQ -f query.jq data.json > answer", ..debians("jaq", "parser", "jaq", "") },
    debians("sort", "sorter", "sort", "LC_ALL=C sort --parallel=1 words > sorted"),
    of_package("bc", "calculator", "bc", ("bc", &["usr/bin"]), "bc -l pi.bc > digits"),
    of_package(
        "git",
        "mixed, many short steps",
        "git",
        ("git", &["usr/bin"]),
        "git -C repository log -p --stat > log.txt",
    ),
    of_package(
        "nginx",
        "server under mixed requests",
        "nginx",
        ("nginx-light", &["usr/sbin"]),
        "sh serve.sh",
    ),
];

/// One that every Debian has.
const fn debians(
    name: &'static str,
    kind: &'static str,
    process: &'static str,
    script: &'static str,
) -> Program {
    Program { name, kind, process, package: None, script }
}

/// One whose package may have to be fetched.
const fn of_package(
    name: &'static str,
    kind: &'static str,
    process: &'static str,
    package: (&'static str, &'static [&'static str]),
    script: &'static str,
) -> Program {
    Program { name, kind, process, package: Some(package), script }
}

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
                text += &format!(
                    "PATH={}:$PATH; LD_LIBRARY_PATH={}; export PATH LD_LIBRARY_PATH; ",
                    folder.display(),
                    libraries.display()
                );
            }
        }
        Ok(text)
    }
}
