//! An example of a managed runtime that uses hpm: a generational heap which takes co-allocation advice live, from hardware
//! samples of its own cache misses (Schneider's thesis, chapter 5).
//!
//! * New objects bump a pointer in the **nursery**. What survives its first collection is promoted to the **mature** space,
//!   which is either marked and swept, with free lists in 40 size classes up to 8 KiB, or copied between two semispaces.
//!   Larger objects have pages of their own.
//! * With [`Advice`] a collection promotes an object and the one that a given field refers to into one cell (up to three in a row), so that whoever
//!   reads the first has the second in the same cache line.
//! * The [`advice`] module says where advice comes from: samples of missing loads, attributed to the field whose reference
//!   they followed; and how it is withdrawn when it does harm.
//!
//! ```
//! use heap::{Collector, Config, Heap};
//!
//! heap::classes! {
//!     class Text { value: Chars; hash }
//!     data Chars [u16]
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config { collector: Collector::MarkSweep, limit_bytes: 1 << 20 };
//! let mut heap: Heap = Heap::new(config, TYPES, ())?;
//! heap.advise(heap::Advice::none().with(Text::value().id(), 0));
//! let text = heap.allocate::<Text>()?;
//! let chars = heap.allocate_data::<Chars>(5)?;
//! heap.set(heap.at(&text), Text::value(), Some(heap.at(&chars)));
//! drop(chars);
//! heap.collect_nursery();
//! let text = heap.at(&text);
//! let chars = heap.get(text, Text::value()).unwrap();
//! assert_eq!(chars.address(), text.address() + 16, "the characters follow the string's 16 bytes");
//! # Ok(())
//! # }
//! ```

pub mod access;
pub mod advice;
mod collect;
mod defragment;
mod header;
mod heap;
mod inspect;
pub mod layout;
mod memory;
pub mod observe;
pub mod raw;
mod roots;
mod row;
pub mod simulate;
pub mod space;
pub mod workload;

pub use access::Ref;
pub use advice::{Advice, Pairing};
pub use heap::{Config, Heap, Hook, MIN_NURSERY_BYTES, NoHeap, OutOfMemory, Statistics};
pub use inspect::{Broken, Place};
pub use observe::Observer;
pub use raw::libgc::NoLibgc;
pub use roots::Handle;
pub use space::{Collector, Space};
