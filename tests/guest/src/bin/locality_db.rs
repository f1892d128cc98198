//! db's chain (`locality.c`) as Rust has it: an index of entries, each with a vector of strings.
//!
//!     locality_db db OBJECTS STEPS LOG
//!
//! LOG gets a line for each object: its kind, address and size.

#![allow(
    clippy::box_collection,
    clippy::vec_box,
    reason = "each reference has to lead to an object of its own"
)]

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::mem::size_of;

struct Entry {
    key: usize,
    items: Box<Vec<String>>,
}

/// xorshift64 (Marsaglia, Journal of Statistical Software 8, 2003).
fn random_number(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The loads that miss: entry, vector, its elements, characters.
#[inline(never)]
fn visit(index: &[Box<Entry>], number: usize) -> usize {
    let entry = &index[number];
    entry.key + usize::from(entry.items[0].as_bytes()[0])
}

fn made(objects: usize, log: &mut impl io::Write) -> io::Result<Vec<Box<Entry>>> {
    let mut index: Vec<Box<Entry>> = Vec::with_capacity(objects);
    // What lies between objects keeps two of them off one line.
    let mut gaps: Vec<Box<[u8; 100]>> = Vec::new();
    for key in 0..objects {
        let mut entry = Box::new(Entry { key, items: Box::new(Vec::new()) });
        gaps.push(Box::new([0; 100]));
        entry.items.reserve_exact(2);
        for letter in ["a", "b"] {
            gaps.push(Box::new([0; 100]));
            entry.items.push(letter.repeat(30));
        }
        gaps.push(Box::new([0; 100]));
        writeln!(log, "entry {:p} {}", &raw const *entry, size_of::<Entry>())?;
        writeln!(log, "vector {:p} {}", &raw const *entry.items, size_of::<Vec<String>>())?;
        writeln!(log, "elements {:p} {}", entry.items.as_ptr(), 2 * size_of::<String>())?;
        for text in entry.items.iter() {
            writeln!(log, "characters {:p} 30", text.as_ptr())?;
        }
        index.push(entry);
    }
    writeln!(log, "index {:p} {}", index.as_ptr(), objects * size_of::<Box<Entry>>())?;
    Ok(index)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, _, objects, steps, log] = &arguments[..] else { return Err("db OBJECTS STEPS LOG".into()) };
    let (objects, steps): (usize, usize) = (objects.parse()?, steps.parse()?);
    let mut log = BufWriter::new(File::create(log)?);
    let index = made(objects, &mut log)?;
    log.flush()?;
    drop(log);
    let (mut state, mut sum) = (88_172_645_463_325_252, 0);
    for _ in 0..steps {
        sum += visit(&index, random_number(&mut state) as usize % objects);
    }
    println!("{sum}");
    Ok(())
}
