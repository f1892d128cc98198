//! The programs that are recorded, and the tools that judge: made, found or fetched below `target/symbols`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::consumers::tools::{debian, output};

/// A sample each 100 µs, the shortest that the kernel allows by itself.
const PERIOD_NS: usize = 100_000;
/// Rounds that a program computes in some seconds, of which it may take more.
const ROUNDS: [(&str, usize); 3] = [("shapes", 200), ("words", 900), ("parse", 2000)];

/// Where they are.
pub(super) struct Programs {
    root: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) perf: PathBuf,
    pub(super) elfutils: PathBuf,
}

impl Programs {
    /// Compiles and finds them.
    pub(super) fn make(root: &Path) -> Result<Self> {
        let folder = root.join("target/symbols");
        fs::create_dir_all(&folder)?;
        let unpacked = folder.join("debian");
        let perf = debian(&unpacked, "linux-perf", &["usr/bin"], "perf")?;
        let elfutils = debian(&unpacked, "elfutils", &["usr/bin"], "eu-addr2line")?;
        let programs = Self { root: root.to_owned(), folder, perf, elfutils };
        programs.compile()?;
        Ok(programs)
    }

    fn source(&self, name: &str) -> PathBuf {
        self.root.join("tests/suite/symbols").join(name)
    }

    fn compile(&self) -> Result<()> {
        let run = |program: &str, arguments: &[&str]| {
            output(Command::new(program).args(arguments).current_dir(&self.folder))
        };
        let (shapes, words) = (self.source("shapes.cpp"), self.source("words.rs"));
        let text = |path: &PathBuf| path.to_str().map(str::to_owned).context("the path is not UTF-8");
        run("g++", &["-std=c++17", "-O2", "-g", "-o", "shapes", &text(&shapes)?])?;
        run("objcopy", &["--only-keep-debug", "shapes", "shapes.debug"])?;
        run("strip", &["shapes"])?;
        run("objcopy", &["--add-gnu-debuglink=shapes.debug", "shapes"])?;
        run("rustc", &["--edition", "2021", "-O", "-g", "-o", "words", &text(&words)?])?;
        Ok(())
    }

    /// A path in the folder at which nothing is.
    pub(super) fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        if path.is_dir() {
            fs::remove_dir_all(&path)?;
        } else if path.exists() {
            fs::remove_file(&path)?;
        }
        Ok(path)
    }

    /// Records a program that is on disk; its path, and the file.
    pub(super) fn record(&self, name: &str, samples: usize) -> Result<(PathBuf, PathBuf)> {
        let program = self.folder.join(name);
        let (data, _) = self.recorded(name, &[], program.clone().into(), &[], samples)?;
        Ok((program, data))
    }

    /// Records the script, whose code V8 describes in a jitdump: the script's path, the file, and what V8 prints of that code.
    pub(super) fn record_script(&self, samples: usize) -> Result<(PathBuf, PathBuf, String)> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("jit-") || name.starts_with("jitted-") {
                fs::remove_file(path)?;
            }
        }
        let path = self.source("parse.js");
        let script = path.to_str().context("the path is not UTF-8")?;
        // perf inject orders code and samples by the clock of the jitdump.
        let arguments = ["--perf-prof", "--interpreted-frames-native-stack", "--print-opt-code", script];
        let (data, printed) = self.recorded("parse", &["-k", "mono"], "node".into(), &arguments, samples)?;
        Ok((path, data, printed))
    }

    /// The file, and what the program printed.
    fn recorded(
        &self,
        name: &str,
        options: &[&str],
        program: std::ffi::OsString,
        arguments: &[&str],
        samples: usize,
    ) -> Result<(PathBuf, String)> {
        let data = self.fresh(&format!("{name}.data"))?;
        let mut rounds = ROUNDS.iter().find(|(of, _)| *of == name).map_or(1, |(_, rounds)| *rounds);
        // How fast this machine is, is not known: once more with more rounds when they were too few.
        for _ in 0..3 {
            let mut perf = Command::new(&self.perf);
            perf.args(["record", "--quiet", "--event", "cpu-clock:u", "--count", &PERIOD_NS.to_string()]);
            perf.args(options).arg("--output").arg(&data).arg("--").arg(&program).args(arguments);
            perf.arg(rounds.to_string()).current_dir(&self.folder).stdin(Stdio::null());
            let printed = output(&mut perf)?;
            let found = self.samples(&data)?;
            if found >= samples {
                return Ok((data, printed));
            }
            rounds = rounds * samples * 3 / (found.max(1) * 2) + 1;
        }
        anyhow::bail!("{name} gave less than {samples} samples")
    }

    /// Records the Rust program with pieces of its stack.
    pub(super) fn record_stacks(&self, samples: usize) -> Result<PathBuf> {
        let data = self.fresh("stacks.data")?;
        let mut perf = Command::new(&self.perf);
        let rounds = (samples / 12).to_string();
        perf.args(["record", "--quiet", "--event", "cpu-clock:u", "--count", &PERIOD_NS.to_string()]);
        perf.args(["--call-graph", "dwarf,4096", "--mmap-pages", "8M", "--output"]).arg(&data).arg("--");
        perf.arg(self.folder.join("words")).arg(rounds).current_dir(&self.folder).stdin(Stdio::null());
        output(&mut perf)?;
        Ok(data)
    }

    /// How many samples with stacks a file has.
    pub(super) fn stacks(&self, data: &Path) -> Result<usize> {
        let mut script = Command::new(&self.perf);
        let text = output(script.args(["script", "--fields", "event", "--input"]).arg(data))?;
        Ok(text.lines().filter(|line| line.contains("cpu-clock")).count())
    }

    /// How many samples a file has.
    pub(super) fn samples(&self, data: &Path) -> Result<usize> {
        let mut script = Command::new(&self.perf);
        Ok(output(script.args(["script", "--fields", "ip", "--input"]).arg(data))?.lines().count())
    }

    /// The recording with the jitdump's functions as files, as perf makes them.
    pub(super) fn inject(&self, data: &Path) -> Result<PathBuf> {
        let injected = self.fresh("injected.data")?;
        let mut inject = Command::new(&self.perf);
        inject.args(["inject", "--jit", "--input"]).arg(data).arg("--output").arg(&injected);
        output(inject.current_dir(&self.folder))?;
        ensure!(injected.exists(), "perf inject wrote nothing");
        Ok(injected)
    }
}
