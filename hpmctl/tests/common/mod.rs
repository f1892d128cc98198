//! What the tests of the program share.

/// What a program has written.
pub(crate) fn said(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
