//! What leaves the screen: pictures of it, and what is seen, for other programs.

mod dump;
mod screenshot;

pub(crate) use self::dump::{Format, document, write as dump};
#[cfg(test)]
pub(crate) use self::screenshot::svg;
pub(crate) use self::screenshot::{file as screenshot_file, text, write as screenshot};
