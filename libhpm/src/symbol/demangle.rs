//! Names of C++ and Rust as their sources have them.

use std::borrow::Cow;

/// Whether a name is one of C++ or Rust as the linker knows it.
pub(super) fn is_mangled(name: &str) -> bool {
    ["_Z", "__Z", "_R"].iter().any(|mark| name.starts_with(mark))
}

/// A name without the linker's marks; one of C as it is. A demangler by itself takes short names of C for types of C++: `b` for `bool`.
pub(super) fn demangled(name: &str) -> Cow<'_, str> {
    if is_mangled(name) { addr2line::demangle_auto(name.into(), None) } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mangled_names_are_demangled() {
        for name in ["a", "b", "i", "x", "f", "s", "v", "St", "Z1av", "RNvC1a1b", ""] {
            assert_eq!(demangled(name), name);
        }
        assert_eq!(demangled("_ZN1a1bEv"), "a::b()");
        assert_eq!(demangled("__ZN1a1bEv"), "a::b()");
        assert_eq!(demangled("_RNvC1a1b"), "a::b");
        assert_eq!(demangled("_ZN1a1b17h0123456789abcdefE"), "a::b");
    }
}
