//! The allocated objects of a trace, each with the place in the program that asked for it.

use std::collections::HashMap;
use std::sync::Arc;

use super::Resolver;
use crate::analysis::objects::{Life, Objects};
use crate::symbol::Frame;
use crate::trace::{AllocationRow, Allocations, Cut, SampleRow, TraceReader};

/// Beginnings of names of functions that allocate for others: the one that called them is the place of allocation.
const ALLOCATORS: [&str; 13] = [
    "operator new",
    "std::",
    "__gnu_cxx::",
    "alloc::",
    "<alloc::",
    "core::",
    "<core::",
    "hashbrown::",
    "<hashbrown::",
    "__rust",
    "__rdl_alloc",
    "_RNv",
    "g_slice_alloc",
];
/// What the name of a wrapper around malloc has in it: xmalloc, g_malloc0, Perl_safesysrealloc, PyObject_Calloc, …
const WRAPPERS: [&str; 3] = ["malloc", "calloc", "realloc"];

/// A stack has one meaning as long as its process has the same mappings: the process, what changes with them, and the stack's number.
type Caller = (u32, (u64, usize), Option<u32>);

/// Reads the table of allocations; empty when the trace has none. Stacks are named as of each allocation's process and time.
#[must_use]
pub fn objects(reader: &TraceReader, resolver: &mut Resolver) -> (Objects, Option<Cut>) {
    if !reader.has::<AllocationRow>() {
        return (Objects::default(), None);
    }
    let mut sites: HashMap<Caller, Arc<str>> = HashMap::new();
    let mut rows = reader.rows::<AllocationRow>();
    let lives: Vec<Life> = rows
        .by_ref()
        .map(|row| {
            let at = SampleRow { pid: row.pid, tsc: row.tsc, ..SampleRow::default() };
            let key = (row.pid, resolver.epoch(&at), row.stack);
            let site = sites.entry(key).or_insert_with(|| site(resolver, &at, row.stack));
            Life {
                allocated: row.tsc,
                freed: row.freed_tsc,
                pid: row.pid,
                address: row.address,
                bytes: row.bytes,
                site: Arc::clone(site),
            }
        })
        .collect();
    let sampled_bytes = reader.meta().allocations.map_or(0, Allocations::bytes_between);
    (Objects::new(lives, sampled_bytes), rows.cut())
}

/// The innermost function of the stack that is no allocator itself, with its line.
fn site(resolver: &mut Resolver, at: &SampleRow, stack: Option<u32>) -> Arc<str> {
    let addresses = stack.map_or_else(Vec::new, |stack| resolver.stack(stack).to_vec());
    let mut outermost = None;
    for address in addresses {
        // A return address: the call is just before it.
        let address = address.wrapping_sub(1);
        let linked = resolver.linked_address(at, address);
        for frame in resolver.functions(at, address).iter() {
            let name = named(frame, linked);
            if !frame.function.as_deref().is_some_and(allocates) {
                return name.into();
            }
            outermost = Some(name);
        }
    }
    outermost.map_or_else(|| "[unknown place]".into(), Into::into)
}

fn allocates(function: &str) -> bool {
    let name = function.to_ascii_lowercase();
    ALLOCATORS.iter().any(|allocator| function.starts_with(allocator))
        || WRAPPERS.iter().any(|wrapper| name.contains(wrapper))
}

fn named(frame: &Frame, linked: u64) -> String {
    let module = frame.module.rsplit('/').next().unwrap_or_default();
    match (&frame.function, &frame.file, frame.line) {
        (Some(function), Some(file), Some(line)) => {
            format!("{function} ({}:{line})", file.rsplit('/').next().unwrap_or_default())
        }
        (Some(function), ..) => format!("{function} ({module})"),
        _ => format!("{module}+{linked:#x}"),
    }
}
