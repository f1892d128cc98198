//! What leaves the screen: pictures of it, and what is seen, for other programs.

mod dump;
mod screenshot;

pub(crate) use self::dump::{Format, document, write as dump};
pub(crate) use self::screenshot::write as screenshot;
#[cfg(test)]
pub(crate) use self::screenshot::{svg, text};
