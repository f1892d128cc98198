//! The model against the manuals and against independent references.

mod branches;
mod caches;
mod counting;
mod events;
mod generations;
mod geometry;
mod lbr;
mod machine;
mod pebs;
mod pmi;
mod registers;
mod skid;
mod truth;
