//! The plugin's arguments: `-plugin libvpmu_qemu.so,name=value,…`.

use crate::mode::Level;
use std::path::PathBuf;
use thiserror::Error;
use vpmu::micro::{CacheGeometry, Geometry, Indexing};
use vpmu::{Profile, profile};

/// An argument that cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ArgumentError {
    #[error(
        "unknown argument `{0}`; known are profile, truth, pebs-log, truth-level, pti, pebs-disarm, pebs-skid, pebs-fragments, loads-per-tag, processor-trace, rdpmc-user-disable, acr-hides-overflow, skid, trace, I1, D1, L2, LL, indexing, caches"
    )]
    Unknown(String),
    #[error("argument `{0}` is not of the form name=value")]
    NoValue(String),
    #[error("{name}={value}: expected {expected}")]
    BadValue { name: String, value: String, expected: &'static str },
    #[error("profile={0}: no such profile; there are {known}", known = names())]
    NoProfile(String),
}

fn names() -> String {
    profile::every().map(|p| p.name).collect::<Vec<_>>().join(", ")
}

/// Everything a user can choose.
#[derive(Debug)]
pub(crate) struct Args {
    /// `profile=NAME`: the processor whose PMU is modelled.
    pub(crate) profile: &'static Profile,
    /// `truth=PATH`: where the truth report (JSON) goes, at exit and on request of the guest.
    pub(crate) truth: Option<PathBuf>,
    /// `pebs-log=on`: keep the true facts of every PEBS record in the report.
    pub(crate) pebs_log: bool,
    /// `pebs-log=branches`: and the branches before each.
    pub(crate) branch_log: bool,
    /// `truth-level=none|basic|micro`: observe at least this much from the guest's first label or window on.
    pub(crate) truth_level: Level,
    /// `pti=on|off`: the guest runs with page-table isolation, two page tables for one address space. The default is the
    /// profile's: off on AMD's processors.
    pub(crate) page_table_isolation: bool,
    /// `pebs-disarm=on|off`: clearing PEBS_ENABLE disarms a counter that waits to write its record.
    pub(crate) pebs_disable_disarms: bool,
    /// `pebs-skid=N`: a PEBS record is written N instructions late, with the state of that moment.
    pub(crate) pebs_skid: u64,
    /// `pebs-fragments=N`: each Nth record of architectural PEBS is written in fragments.
    pub(crate) pebs_fragments: u32,
    /// `loads-per-tag=N`: one load in N is tagged for the load latency facility.
    pub(crate) loads_per_tag: u32,
    /// `processor-trace=on`: the processor says that it has Processor Trace.
    pub(crate) processor_trace: bool,
    /// `rdpmc-user-disable=on`: a processor of PerfMon version 6 says that single counters can be kept from RDPMC in user mode.
    pub(crate) rdpmc_user_disable: bool,
    /// `acr-hides-overflow=off`: a counter that reloads itself sets its bit of IA32_PERF_GLOBAL_STATUS when it overflows.
    pub(crate) acr_hides_overflow: bool,
    /// `skid=N`: a PMI is raised N instructions late.
    pub(crate) skid: u64,
    /// `trace=N`: 1 prints faults and PEBS losses, 2 every PMU register access and PMI too.
    pub(crate) trace: u8,
    /// `I1=`, `D1=`, `L2=`, `LL=` as `size:associativity:line`, `L2=none`, and `indexing=physical|linear`: the caches. With
    /// no L2 and linear addresses they are what Cachegrind simulates.
    pub(crate) geometry: Geometry,
    /// `caches=all|user`: with `user` the kernel's fetches and accesses bypass the caches and TLBs, as no processor does, so that
    /// a program's misses are its own and can be compared with Cachegrind's.
    pub(crate) user_caches_only: bool,
}

impl Args {
    /// Parses `name=value` pairs; what is not given has its default.
    ///
    /// # Errors
    /// The first argument that is unknown or has a value of the wrong form.
    pub(crate) fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Self, ArgumentError> {
        let profile = &profile::SKYLAKE;
        let mut args = Self {
            profile,
            truth: None,
            pebs_log: false,
            branch_log: false,
            truth_level: Level::Off,
            page_table_isolation: true,
            pebs_disable_disarms: true,
            pebs_skid: 0,
            pebs_fragments: 0,
            loads_per_tag: 1,
            processor_trace: false,
            rdpmc_user_disable: false,
            acr_hides_overflow: true,
            skid: 0,
            trace: 0,
            geometry: profile.geometry,
            user_caches_only: false,
        };
        for argument in arguments {
            let (name, value) =
                argument.split_once('=').ok_or_else(|| ArgumentError::NoValue(argument.to_owned()))?;
            args.set(name, value)?;
        }
        Ok(args)
    }

    /// The choices that the model of the PMU leaves.
    pub(crate) fn pmu_options(&self) -> vpmu::Options {
        vpmu::Options {
            pebs_disable_disarms: self.pebs_disable_disarms,
            pebs_skid: self.pebs_skid,
            pebs_fragments: self.pebs_fragments,
            loads_per_tag: self.loads_per_tag,
            processor_trace: self.processor_trace,
            rdpmc_user_disable: self.rdpmc_user_disable,
            acr_hides_overflow: self.acr_hides_overflow,
        }
    }

    /// The caches of a core of this profile: its own, unless the user has chosen others for all cores. The last level is
    /// one for all.
    pub(crate) fn geometry_of(&self, core: &Profile) -> Geometry {
        let chosen = self.geometry != self.profile.geometry;
        if chosen { self.geometry } else { Geometry { llc: self.geometry.llc, ..core.geometry } }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), ArgumentError> {
        let bad =
            |expected| ArgumentError::BadValue { name: name.to_owned(), value: value.to_owned(), expected };
        let switch = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(bad("on or off")),
        };
        match name {
            "profile" => {
                self.profile =
                    profile::by_name(value).ok_or_else(|| ArgumentError::NoProfile(value.to_owned()))?;
                self.geometry = self.profile.geometry;
                // Linux isolates page tables on no processor of AMD.
                self.page_table_isolation = self.profile.amd().is_none();
            }
            "truth" => self.truth = Some(PathBuf::from(value)),
            "pebs-log" => {
                self.branch_log = value == "branches";
                self.pebs_log = self.branch_log || switch().map_err(|_| bad("on, off or branches"))?;
            }
            "pti" => self.page_table_isolation = switch()?,
            "pebs-disarm" => self.pebs_disable_disarms = switch()?,
            "truth-level" => {
                self.truth_level = match value {
                    "none" => Level::Off,
                    "basic" => Level::Basic,
                    "micro" => Level::Microarchitecture,
                    _ => return Err(bad("none, basic or micro")),
                }
            }
            "pebs-skid" => self.pebs_skid = value.parse().map_err(|_| bad("a number of instructions"))?,
            "pebs-fragments" => {
                self.pebs_fragments = value.parse().map_err(|_| bad("a number of records"))?
            }
            "loads-per-tag" => self.loads_per_tag = value.parse().map_err(|_| bad("a number of loads"))?,
            "processor-trace" => self.processor_trace = switch()?,
            "rdpmc-user-disable" => self.rdpmc_user_disable = switch()?,
            "acr-hides-overflow" => self.acr_hides_overflow = switch()?,
            "skid" => self.skid = value.parse().map_err(|_| bad("a number of instructions"))?,
            "trace" => self.trace = value.parse().map_err(|_| bad("0, 1 or 2"))?,
            "I1" => self.geometry.l1i = cache(value).ok_or_else(|| bad(CACHE))?,
            "D1" => self.geometry.l1d = cache(value).ok_or_else(|| bad(CACHE))?,
            "L2" if value == "none" => self.geometry.l2 = None,
            "L2" => self.geometry.l2 = Some(cache(value).ok_or_else(|| bad(CACHE))?),
            "indexing" => {
                self.geometry.indexing = indexing(value).ok_or_else(|| bad("physical or linear"))?;
            }
            "caches" => {
                self.user_caches_only = match value {
                    "all" => false,
                    "user" => true,
                    _ => return Err(bad("all or user")),
                }
            }
            "LL" => self.geometry.llc = cache(value).ok_or_else(|| bad(CACHE))?,
            _ => return Err(ArgumentError::Unknown(name.to_owned())),
        }
        Ok(())
    }
}

const CACHE: &str = "size:associativity:line in bytes, powers of two, for example 32768:8:64";

fn cache(value: &str) -> Option<CacheGeometry> {
    let mut parts = value.split(':').map(str::parse::<u32>);
    let mut next = || parts.next()?.ok().filter(|&n| n > 0);
    let geometry = CacheGeometry { size_bytes: next()?, associativity: next()?, line_bytes: next()? };
    let fits = parts.next().is_none()
        && geometry.line_bytes.is_power_of_two()
        && geometry.size_bytes.is_multiple_of(geometry.associativity * geometry.line_bytes);
    fits.then_some(geometry)
}

fn indexing(value: &str) -> Option<Indexing> {
    match value {
        "physical" => Some(Indexing::Physical),
        "linear" => Some(Indexing::Linear),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_argument_is_named() {
        let error = Args::parse(["speed=9"]).unwrap_err();
        assert_eq!(error, ArgumentError::Unknown("speed".to_owned()));
    }

    #[test]
    fn a_cache_needs_three_numbers_that_divide() {
        assert_eq!(
            Args::parse(["D1=4096:2:64"]).unwrap().geometry.l1d,
            CacheGeometry { size_bytes: 4096, associativity: 2, line_bytes: 64 }
        );
        for bad in ["D1=4096:2", "D1=4096:2:63", "D1=5000:2:64", "D1=4096:2:64:1", "D1=0:1:64"] {
            assert!(matches!(Args::parse([bad]), Err(ArgumentError::BadValue { .. })), "{bad}");
        }
    }

    #[test]
    fn an_unknown_profile_lists_the_known_ones() {
        let error = Args::parse(["profile=z80"]).unwrap_err();
        assert!(error.to_string().contains("skylake"), "{error}");
    }
}
