//! Samples for tests.

use super::{CallChain, Extent, Sample, SharedChain};
use crate::symbol::Frame;

/// A sample whose stack has these functions, the innermost first.
pub(super) fn sample(functions: &[&str], extent: Extent) -> Sample {
    let frame =
        |name: &&str| Frame { function: Some((*name).into()), module: "/bin/p".into(), ..Frame::default() };
    let calls = functions.iter().map(|name| [frame(name)].into()).collect();
    Sample {
        event: 0,
        cpu: 1,
        pid: 10,
        tid: 11,
        thread_name: "worker".into(),
        last_thread_name: "worker".into(),
        process_name: "program".into(),
        ip: 0x1234,
        chain: SharedChain::from(CallChain { calls, linked_address: 0x234, extent }),
        source: None,
        region: None,
    }
}
