//! An expression, and a condition on samples.
#![no_main]

use libfuzzer_sys::fuzz_target;
use libhpm::analysis::expression::Expression;
use libhpm::report::{Condition, Span};

fuzz_target!(|text: &str| {
    match Expression::parse(text) {
        Ok(expression) => assert_eq!(expression.text(), text),
        // The caret stands below the text, wherever it is.
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let span = Span { first_tsc: 0, last_tsc: 1_000_000, tsc_khz: 1_000 };
    let _ = Condition::new(text, &[], span);
});
