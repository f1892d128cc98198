//! The hpm command line.

fn main() {}
