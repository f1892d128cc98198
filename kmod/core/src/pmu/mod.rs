//! The PMUs that hpm knows: one file per generation.

/// A PMU that hpm can program, as found on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Pmu {
    /// Name of the generation: "skylake", ….
    pub name: &'static str,
    /// General counters that hpm may use.
    pub general_counters: u32,
    /// Width of a general counter in bits.
    pub general_width: u32,
    /// Fixed counters.
    pub fixed_counters: u32,
    /// Width of a fixed counter in bits.
    pub fixed_width: u32,
}
