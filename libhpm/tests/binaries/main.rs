//! Symbols and stacks of real binaries, compiled here.

mod programs;
mod symbol;
mod unwind;
