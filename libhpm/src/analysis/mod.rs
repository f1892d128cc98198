//! Analyses as pure functions over quanta and samples: iterator in, value out. Nothing here opens a file, reads a clock or
//! draws, so that the same code serves a running program and a recorded trace.

pub mod address;
pub mod coallocation;
pub mod explore;
pub mod expression;
pub mod locality;
pub mod method;
pub mod objects;
pub mod phase;
pub mod reference;
pub mod statistics;
pub mod topdown;
