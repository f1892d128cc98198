//! Writes the made-up trace of which docs/hpmtop.md shows pictures: `cargo run --release -p hpmtop --example made -- NAME.hpm`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from).ok_or("name the folder to write")?;
    hpmtop::synthetic::write_trace(&folder)?;
    Ok(())
}
