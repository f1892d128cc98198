//! The cache model against Debian's Cachegrind: a real program's misses at equal geometry.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::counting::stat_counts;
use crate::check::Tally;
use crate::lab::Boot;

/// What the model is given: Cachegrind's two levels, linear addresses, and nothing of the kernel's. The caches are small, so
/// that the program's start, which differs a little between the two, does not weigh.
pub(crate) const OPTIONS: &[&str] = &[
    "--plugin-arg",
    "I1=8192:2:64",
    "--plugin-arg",
    "D1=32768:8:64",
    "--plugin-arg",
    "L2=none",
    "--plugin-arg",
    "LL=1048576:16:64",
    "--plugin-arg",
    "indexing=linear",
    "--plugin-arg",
    "caches=user",
];

/// The same for Cachegrind.
const GEOMETRY: [&str; 3] = ["--I1=8192,2,64", "--D1=32768,8,64", "--LL=1048576,16,64"];

/// How far the two may differ.
const TOLERANCE: f64 = 0.05;

/// Each kind of miss is within the tolerance of Cachegrind's.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    let names = ["instructions", "data read misses", "last-level read misses", "instruction misses"];
    let both = stat_counts(boot, "sort").and_then(|model| Ok((model, cachegrind(&boot.folder)?)));
    for (i, name) in names.into_iter().enumerate() {
        tally.run(&format!("cachegrind: {name} are within 5 % of Cachegrind's"), || {
            let (model, judge) = both.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
            let ratio = model[i] as f64 / judge[i] as f64;
            ensure!(
                (ratio - 1.0).abs() <= TOLERANCE,
                "model {}, Cachegrind {}: {ratio:.3}",
                model[i],
                judge[i]
            );
            Ok(format!("model {}, Cachegrind {}: {ratio:.3}", model[i], judge[i]))
        });
    }
}

/// Ir, D1mr, DLmr and I1mr of the same program on the host.
fn cachegrind(folder: &Path) -> Result<[u64; 4]> {
    let tools = folder.ancestors().nth(2).context("no target folder")?.join("lab/tree/usr/libexec/valgrind");
    let output = Command::new(tools.join("cachegrind-amd64-linux"))
        .args(["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=cachegrind.out"])
        .args(GEOMETRY)
        .args(["/usr/bin/sort", "--parallel=1", "text"])
        .env("VALGRIND_LIB", &tools)
        .env("VALGRIND_LAUNCHER", tools.join("cachegrind-amd64-linux"))
        .env("LC_ALL", "C")
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("the lab's tree has no Cachegrind")?;
    ensure!(output.status.success(), "Cachegrind failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(folder.join("cachegrind.out"))?;
    let line = |start: &str| -> Result<Vec<String>> {
        let found = text.lines().find(|line| line.starts_with(start));
        let rest = found.with_context(|| format!("cachegrind.out has no line {start:?}"))?;
        Ok(rest[start.len()..].split_whitespace().map(str::to_owned).collect())
    };
    let (names, values) = (line("events:")?, line("summary:")?);
    let value = |name: &str| -> Result<u64> {
        let at = names.iter().position(|n| n == name).with_context(|| format!("no event {name}"))?;
        Ok(values[at].parse()?)
    };
    Ok([value("Ir")?, value("D1mr")?, value("DLmr")?, value("I1mr")?])
}
