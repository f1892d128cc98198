//! A model of x86 performance-monitoring hardware, written from the vendors' manuals.
