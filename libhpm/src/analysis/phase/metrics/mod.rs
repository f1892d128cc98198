//! How good detected phases are (§4), and how good a profile is that was taken only in part (§4.2). What the paper leaves open
//! is settled in `docs/phases.md`.

mod cov;
mod profile;
mod quality;
mod regularity;
mod similarity;

pub use self::cov::weighted_cov;
pub use self::profile::{Profile, profiling_rate};
pub use self::quality::{Group, Quality, evaluate, groups, levels};
pub use self::regularity::{Regularity, clusters};
pub use self::similarity::Segments;
