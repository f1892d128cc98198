//! What the programs work on: made from a seed, so that every recording sees the same.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::consumers::tools::output;

const SEED: u64 = 20_040_715;
/// Bytes of `mixed`, and of each of its stretches of one kind.
const MIXED: usize = 2 << 20;
const STRETCH: usize = 96 << 10;
/// Lines of `words`.
const LINES: usize = 24_000;

/// Files that are kept beside this program's source.
const KEPT: [(&str, &str); 8] = [
    ("words.pl", include_str!("../../phases/words.pl")),
    ("rounds.py", include_str!("../../phases/rounds.py")),
    ("columns.awk", include_str!("../../phases/columns.awk")),
    ("scene.pov", include_str!("../../phases/scene.pov")),
    ("query.jq", include_str!("../../phases/query.jq")),
    ("pi.bc", include_str!("../../phases/pi.bc")),
    ("serve.sh", include_str!("../../phases/serve.sh")),
    ("client.pl", include_str!("../../phases/client.pl")),
];

/// A file's contents.
type Make = fn(&mut fastrand::Rng) -> Vec<u8>;
/// What is made, in the order in which it draws from one stream of numbers, so that each recording sees what earlier ones saw.
const MADE: [(&str, Make); 5] = [
    ("mixed", mixed),
    ("words", |random| words(random).into_bytes()),
    ("queries.sql", |random| queries(random).into_bytes()),
    ("data.json", |random| data(random).into_bytes()),
    ("program.c", |random| program(random).into_bytes()),
];
/// The last of that stream: a folder, whose history takes long to make.
const REPOSITORY: &str = "repository";

/// Writes into a folder what a program needs, by name.
pub(super) fn make(folder: &Path, names: &[&str]) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(SEED);
    for (name, make) in MADE {
        let contents = make(&mut random);
        if names.contains(&name) {
            fs::write(folder.join(name), contents)?;
        }
    }
    for (name, text) in KEPT.iter().filter(|(name, _)| names.contains(name)) {
        fs::write(folder.join(name), text)?;
    }
    if names.contains(&REPOSITORY) {
        repository(&folder.join(REPOSITORY), &mut random)?;
    }
    match names.iter().find(|name| !folder.join(name).exists()) {
        Some(name) => bail!("nobody knows how {name} is made"),
        None => Ok(()),
    }
}

/// A word; short ones are frequent.
fn word(random: &mut fastrand::Rng) -> String {
    let length = 2 + random.usize(..3) + random.usize(..4) * random.usize(..2);
    (0..length)
        .map(|at| {
            char::from(if at % 2 == 0 {
                b"bcdfglmnprst"[random.usize(..12)]
            } else {
                b"aeiou"[random.usize(..5)]
            })
        })
        .collect()
}

/// Stretches of text, of noise and of zeros, as an archive of different files has them.
fn mixed(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MIXED);
    for stretch in 0.. {
        let end = (bytes.len() + STRETCH).min(MIXED);
        while bytes.len() < end {
            match stretch % 4 {
                0 | 2 => bytes.extend_from_slice(format!("{} ", word(random)).as_bytes()),
                1 => bytes.extend_from_slice(&random.u64(..).to_le_bytes()),
                _ => bytes.extend_from_slice(&[0, 0, 0, random.u8(..4)]),
            }
        }
        bytes.truncate(end);
        if end == MIXED {
            break;
        }
    }
    bytes
}

fn words(random: &mut fastrand::Rng) -> String {
    let mut text = String::new();
    for _ in 0..LINES {
        let _ =
            writeln!(text, "{} {} {} {}", word(random), word(random), random.u32(..1_000_000), word(random));
    }
    text
}

/// Tables are filled, indexed, joined, changed and emptied, in rounds.
fn queries(random: &mut fastrand::Rng) -> String {
    let mut text = "CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, price INTEGER, shop INTEGER);\n\
                    CREATE TABLE shop(id INTEGER PRIMARY KEY, town TEXT);\n"
        .to_owned();
    for shop in 0..50 {
        let _ = writeln!(text, "INSERT INTO shop VALUES({shop}, '{}');", word(random));
    }
    for _ in 0..6 {
        text.push_str("BEGIN;\n");
        for _ in 0..700 {
            let (price, shop) = (random.u32(..10_000), random.u32(..50));
            let _ = writeln!(
                text,
                "INSERT INTO item(name, price, shop) VALUES('{}', {price}, {shop});",
                word(random)
            );
        }
        text.push_str(
            "COMMIT;\nCREATE INDEX by_name ON item(name);\n\
             SELECT town, count(*), avg(price) FROM item JOIN shop ON shop.id = item.shop GROUP BY town ORDER BY 3;\n\
             SELECT a.name, count(*) FROM item a JOIN item b ON a.name = b.name GROUP BY a.name ORDER BY 2 DESC LIMIT 9;\n\
             SELECT count(*) FROM item WHERE name LIKE '%a%e%';\n\
             UPDATE item SET price = price * 2 WHERE id % 3 = 0;\nDROP INDEX by_name;\nDELETE FROM item WHERE id % 5 = 1;\n",
        );
    }
    text
}

fn data(random: &mut fastrand::Rng) -> String {
    let record = |random: &mut fastrand::Rng| {
        format!(
            "{{\"k\":\"{}\",\"v\":{},\"t\":[\"{}\",\"{}\"]}}",
            word(random),
            random.u32(..1000),
            word(random),
            word(random)
        )
    };
    let records: Vec<String> = (0..9000).map(|_| record(random)).collect();
    format!("[{}]", records.join(",\n"))
}

/// Functions of several shapes, one after the other.
fn program(random: &mut fastrand::Rng) -> String {
    let mut text = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
    for number in 0..60 {
        let (a, b) = (random.u32(2..97), random.u32(2..97));
        let _ = match number % 3 {
            0 => writeln!(
                text,
                "int f{number}(const int *v, int n) {{ int s = {a}; for (int i = 0; i < n; i++) {{ if (v[i] % {b} == 0) s += v[i] * {a}; \
                 else s ^= v[i] << (i & 7); }} return s; }}"
            ),
            1 => writeln!(
                text,
                "int f{number}(char *t, int n) {{ switch (n % 9) {{ case 0: return t[{a}]; case 1: return strlen(t) * {b}; case 2: t[0] = {a}; \
                 break; case 3: return n / {b}; case 5: return t[n & 3] - {a}; default: break; }} return printf(t, n); }}"
            ),
            _ => writeln!(
                text,
                "double f{number}(double x[{a}][{b}]) {{ double s = 0; for (int i = 0; i < {a}; i++) for (int j = 0; j < {b}; j++) \
                 s += x[i][j] * x[(i * 7) % {a}][j] / (1.0 + i); return s; }}"
            ),
        };
    }
    text
}

/// A history of changed files.
fn repository(folder: &Path, random: &mut fastrand::Rng) -> Result<()> {
    fs::create_dir_all(folder)?;
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args([
            "-c",
            "user.name=nobody",
            "-c",
            "user.email=nobody@localhost",
            "-c",
            "commit.gpgsign=false",
        ]);
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", folder).env("GIT_AUTHOR_DATE", "1600000000 +0000");
        output(git.env("GIT_COMMITTER_DATE", "1600000000 +0000").args(arguments).current_dir(folder))
            .map(drop)
    };
    git(&["init", "--quiet"])?;
    let mut files: Vec<Vec<String>> = (0..6).map(|_| (0..400).map(|_| word(random)).collect()).collect();
    for change in 0..60 {
        for (number, file) in files.iter_mut().enumerate().filter(|(number, _)| (change + number) % 3 == 0) {
            for _ in 0..20 {
                let line = random.usize(..file.len());
                file[line] = format!("{} {}", word(random), word(random));
            }
            fs::write(folder.join(format!("file{number}")), file.join("\n"))?;
        }
        git(&["add", "--all"])?;
        git(&["commit", "--quiet", "--message", &word(random)])?;
    }
    Ok(())
}
