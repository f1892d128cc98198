//! Hints for the order of a type's fields: which of them belong into one cache line, and which elsewhere.

use std::sync::Arc;

use serde::Serialize;

/// Share of a type's samples that its hot fields have together at least.
const HOT_SHARE: f64 = 0.95;
/// A type is worth splitting when its cold bytes are at least this part of it.
const COLD_BYTES_MIN: f64 = 0.5;

/// A field as it is laid out now, and how often it was touched.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldHeat {
    /// Its name, or its offset as `+16`.
    pub name: Arc<str>,
    /// First byte in the object.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Samples.
    pub samples: u64,
}

/// What could be done with a type.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "hint")]
pub enum Hint {
    /// The hot fields would fit fewer lines than they are in now: put them next to each other.
    Reorder {
        /// The hot fields, the hottest first.
        fields: Vec<Arc<str>>,
        /// Lines that they are in now, and would be in.
        lines: (u64, u64),
    },
    /// Most of the object is cold: move that into a second object.
    Split {
        /// The fields that stay, the hottest first.
        hot: Vec<Arc<str>>,
        /// Bytes that stay, and that the object has.
        bytes: (u64, u64),
    },
}

/// Hints for a type of so many bytes with these fields, for lines of so many bytes, from at least `samples_min` samples. Places are
/// taken as if objects began with a line.
#[must_use]
pub fn hints(bytes: u64, fields: &[FieldHeat], line_bytes: u64, samples_min: u64) -> Vec<Hint> {
    let all: u64 = fields.iter().map(|field| field.samples).sum();
    if all < samples_min.max(1) || line_bytes == 0 {
        return Vec::new();
    }
    let mut by_heat: Vec<&FieldHeat> = fields.iter().filter(|field| field.samples > 0).collect();
    by_heat.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.offset.cmp(&b.offset)));
    // The hottest ones until they have their share.
    let mut seen = 0;
    let mut hot: Vec<&FieldHeat> = Vec::new();
    for field in by_heat {
        if seen as f64 >= HOT_SHARE * all as f64 {
            break;
        }
        seen += field.samples;
        hot.push(field);
    }
    let hot_bytes: u64 = hot.iter().map(|field| field.bytes).sum();
    let names = || hot.iter().map(|field| Arc::clone(&field.name)).collect();
    let mut hints = Vec::new();
    let now = lines_of(&hot, line_bytes);
    let could = hot_bytes.div_ceil(line_bytes).max(1);
    if could < now {
        hints.push(Hint::Reorder { fields: names(), lines: (now, could) });
    }
    let cold = bytes.saturating_sub(hot_bytes);
    // An object that fits a line with its cold fields costs no further line for them.
    if bytes > line_bytes && cold as f64 >= COLD_BYTES_MIN * bytes as f64 {
        hints.push(Hint::Split { hot: names(), bytes: (hot_bytes, bytes) });
    }
    hints
}

/// How many lines these fields touch.
fn lines_of(fields: &[&FieldHeat], line_bytes: u64) -> u64 {
    let of = |field: &&FieldHeat| {
        let last = field.offset + field.bytes.max(1) - 1;
        field.offset / line_bytes..=last / line_bytes
    };
    let mut lines: Vec<u64> = fields.iter().flat_map(of).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.len() as u64
}
