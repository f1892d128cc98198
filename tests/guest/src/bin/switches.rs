//! Two threads, or two processes, that hand a byte to and fro: `switches threads|processes ROUNDS`. On one CPU each hand-over
//! is a context switch, so that a round is two.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe, stdin, stdout};
use std::process::{Command, Stdio};

/// Waits for the byte and hands it on, `rounds` times; whoever begins has it first.
fn play(mut from: impl Read, mut to: impl Write, rounds: u64, begins: bool) -> std::io::Result<()> {
    let mut byte = [0];
    for _ in 0..rounds {
        if begins {
            to.write_all(&byte)?;
            from.read_exact(&mut byte)?;
        } else {
            from.read_exact(&mut byte)?;
            to.write_all(&byte)?;
        }
    }
    Ok(())
}

fn threads(rounds: u64) -> std::io::Result<()> {
    let ((here, there), (from, to)) = pipes()?;
    let other = std::thread::spawn(move || play(from, there, rounds, false));
    play(here, to, rounds, true)?;
    other.join().map_err(|_| std::io::Error::other("the other thread panicked"))?
}

fn processes(rounds: u64) -> std::io::Result<()> {
    let ((here, there), (from, to)) = pipes()?;
    let mut other = Command::new(std::env::current_exe()?)
        .args(["other", &rounds.to_string()])
        .stdin(Stdio::from(from))
        .stdout(Stdio::from(there))
        .spawn()?;
    play(here, to, rounds, true)?;
    other.wait().map(drop)
}

/// A pipe in each direction.
fn pipes() -> std::io::Result<((PipeReader, PipeWriter), (PipeReader, PipeWriter))> {
    Ok((pipe()?, pipe()?))
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mode, rounds) = (arguments.next(), arguments.next().and_then(|rounds| rounds.parse().ok()));
    match (mode.as_deref(), rounds) {
        (Some("threads"), Some(rounds)) => threads(rounds),
        (Some("processes"), Some(rounds)) => processes(rounds),
        (Some("other"), Some(rounds)) => play(stdin().lock(), Unbuffered, rounds, false),
        _ => {
            eprintln!("usage: switches threads|processes ROUNDS");
            std::process::exit(2);
        }
    }
}

/// Standard output, each byte at once.
struct Unbuffered;

impl Write for Unbuffered {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = stdout().lock().write(bytes)?;
        self.flush()?;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        stdout().lock().flush()
    }
}
