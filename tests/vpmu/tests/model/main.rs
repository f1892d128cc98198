//! The model against the manuals and against independent references.

mod acr;
mod amd;
mod arch_lbr;
mod arch_pebs;
mod branches;
mod caches;
mod core2;
mod counting;
mod events;
mod extended;
mod generations;
mod geometry;
mod ibs;
mod later_parts;
mod lbr;
mod machine;
mod netburst;
mod netburst_overflow;
mod netburst_pebs;
mod pebs;
mod pmi;
mod registers;
mod skid;
mod truth;
