//! Change points, as a second opinion on phases: an online detector, an offline one, and the baselines that every detector has
//! to beat.

mod baseline;
mod online;
mod pelt;
mod score;

pub use self::baseline::LastValue;
pub use self::online::{Alarm, Cusum};
pub use self::pelt::pelt;
pub use self::score::{Score, score};
