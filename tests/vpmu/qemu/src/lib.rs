//! The PMU model as a QEMU TCG plugin.
