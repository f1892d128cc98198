//! The virtual lab machine: stock QEMU, stock Debian kernel, our PMU, the real module.

fn main() {}
