//! The tables of events: one file for each PMU.

mod amd_family10h;
mod amd_family15h;
mod amd_family16h;
mod amd_family17h;
mod amd_k8;
mod amd_zen3;
mod amd_zen4;
mod amd_zen5;
mod broadwell;
mod core2;
mod cougarcove;
mod crestmont;
mod darkmont;
mod goldencove;
mod gracemont;
mod haswell;
mod icelake;
mod ivybridge;
mod lioncove;
mod nehalem;
mod netburst;
mod redwoodcove;
mod sandybridge;
mod skylake;
mod skymont;
mod westmere;

use super::table::Table;

/// Every PMU's table, by the name that the driver gives the PMU, each vendor's oldest first.
pub(super) static TABLES: [(&str, Table); 29] = [
    ("netburst", netburst::NETBURST),
    ("netburst_p", netburst::NETBURST_P),
    ("merom", core2::CORE2),
    ("core2", core2::CORE2),
    ("nehalem", nehalem::NEHALEM),
    ("westmere", westmere::WESTMERE),
    ("sandybridge", sandybridge::SANDYBRIDGE),
    ("ivybridge", ivybridge::IVYBRIDGE),
    ("haswell", haswell::HASWELL),
    ("broadwell", broadwell::BROADWELL),
    ("skylake", skylake::SKYLAKE),
    ("icelake", icelake::ICELAKE),
    ("goldencove", goldencove::GOLDENCOVE),
    ("redwoodcove", redwoodcove::REDWOODCOVE),
    ("lioncove", lioncove::LIONCOVE),
    ("cougarcove", cougarcove::COUGARCOVE),
    ("gracemont", gracemont::GRACEMONT),
    ("crestmont", crestmont::CRESTMONT),
    ("skymont", skymont::SKYMONT),
    ("darkmont", darkmont::DARKMONT),
    ("k8", amd_k8::K8),
    ("family10h", amd_family10h::FAMILY_10H),
    ("family15h", amd_family15h::FAMILY_15H),
    ("family16h", amd_family16h::FAMILY_16H),
    ("zen1", amd_family17h::ZEN_1),
    ("zen2", amd_family17h::ZEN_2),
    ("zen3", amd_zen3::ZEN_3),
    ("zen4", amd_zen4::ZEN_4),
    ("zen5", amd_zen5::ZEN_5),
];
