//! The driver's logic against the PMU model. One program for all of it, because each one more would be compiled with machine and
//! generator of its own. `cargo test -p hpm-core --test driver -- lbr::` runs what a file has.

mod accesses;
mod amd;
mod bias;
mod counting;
mod detection;
mod documentation;
mod errata;
mod fragments;
mod fuzz;
mod generations;
mod interrupt;
mod lbr;
mod markers;
mod multiplex;
mod netburst;
mod others;
mod ownership;
mod pages;
mod privacy;
mod properties;
mod rates;
mod requests;
mod rig;
mod sampling;
mod sharing;
mod windows;
mod witnessed;
