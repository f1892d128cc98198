//! Weights of references and advice as text for people.

use libhpm::analysis::coallocation::layout::Hint;
use libhpm::analysis::coallocation::{Advice, Reason, Verdict};
use libhpm::export::{dense_places, losses};

use super::{Report, Type};
use crate::locality::unknown_objects;
use crate::output::grouped;
use crate::report::table::{finish, plain};
use crate::report::text::{head, line, remarks};

/// The whole text.
pub(super) fn render(report: &Report<'_>) -> String {
    let mut text = String::new();
    head(&mut text, report.meta, report.filter.as_deref());
    remarks(&mut text, &dense_places(report.meta));
    remarks(&mut text, &losses(report.meta));
    let attributed: f64 =
        report.all.samples - report.unattributed.iter().map(|(_, samples)| samples).sum::<f64>();
    line(
        &mut text,
        format_args!(
            "samples   {:.0} of {}; {:.1} % came through a field",
            report.all.samples,
            report.event,
            100.0 * attributed / report.all.samples
        ),
    );
    for (why, samples) in &report.unattributed {
        line(&mut text, format_args!("          {} did not: {}", samples_in_words(*samples), why.words()));
    }
    match report.allocations {
        None => line(
            &mut text,
            format_args!(
                "objects   not recorded (record --allocations): sizes, ages and lifetimes are unknown, or the types'"
            ),
        ),
        Some(_) => {
            if let Some(sentence) = unknown_objects(report.meta) {
                line(&mut text, format_args!("objects   {sentence}"));
            }
        }
    }
    fields(&mut text, report);
    for one in &report.advice {
        advice(&mut text, one);
    }
    for one in &report.types {
        hints(&mut text, one);
    }
    if !report.advice.is_empty() {
        let of = if report.dense { "of the samples (dense places)" } else { "of all misses" };
        line(
            &mut text,
            format_args!(
                "\nsaves: share {of}, expected on the pair's two lines alone, and in brackets the sampling error of that (95 %), at the upper end of \
                 pairs that begin with a line. What is truly saved may lie beyond. Two bytes d apart share a line of L bytes with probability 1 - d/L."
            ),
        );
    }
    text
}

/// Samples are whole, unless one stands for several fields or for a part.
fn samples_in_words(samples: f64) -> String {
    if samples.fract() == 0.0 { grouped(samples as u64) } else { format!("{samples:.1}") }
}

fn fields(text: &mut String, report: &Report<'_>) {
    if report.fields.is_empty() {
        return;
    }
    let mut table = plain();
    table.set_header(["samples", "share", "young", "field"]);
    for row in &report.fields {
        table.add_row([
            format!("{:.1}", row.weight.samples),
            format!("{:.1} %", 100.0 * row.weight.events / report.all.events),
            format!("{:.1} %", 100.0 * row.weight.young_share()),
            row.field.to_string(),
        ]);
    }
    text.push('\n');
    finish(text, table, 3);
    if report.field_count > report.fields.len() {
        line(text, format_args!(" … and {} more (--limit)", report.field_count - report.fields.len()));
    }
}

fn advice(text: &mut String, advice: &Advice) {
    let candidate = &advice.candidate;
    let bytes =
        |bytes: u64| if bytes == 0 { "unknown size".to_owned() } else { format!("{} bytes", grouped(bytes)) };
    let what = match advice.verdict {
        Verdict::CoAllocate => "together",
        Verdict::Leave => "leave",
    };
    line(
        text,
        format_args!(
            "\n{what}: {} ({}) -> {} ({})",
            candidate.pair.field,
            bytes(candidate.parent.bytes),
            candidate.pair.child,
            bytes(candidate.child.bytes)
        ),
    );
    let benefit = advice.benefit;
    if benefit.high > 0.0 {
        line(
            text,
            format_args!(
                "  saves {:.1} % ({:.1} to {:.1} %)",
                100.0 * benefit.expected,
                100.0 * benefit.low,
                100.0 * benefit.high
            ),
        );
    }
    let known = [
        (candidate.together, "of the pairs lie in one line already"),
        (candidate.lifetimes_match, "of the pairs live and die together"),
    ];
    for (share, what) in known.into_iter().filter_map(|(share, what)| Some((share?, what))) {
        line(text, format_args!("  {:.1} % {what}", 100.0 * share));
    }
    for reason in &advice.against {
        line(text, format_args!("  not: {}", words(reason)));
    }
}

fn words(reason: &Reason) -> String {
    match reason {
        Reason::TooFewSamples { samples, needed } => {
            format!("{samples:.1} samples, of {needed:.0} that are needed (--threshold)")
        }
        Reason::ParentIsArray => {
            "the reference is an element of an array, and only one child can be next to it".to_owned()
        }
        Reason::TooLarge { bytes, largest } => {
            format!("together they have {} bytes, more than {}", grouped(*bytes), grouped(*largest))
        }
        Reason::BeyondLine { share } => {
            format!("{:.1} % of the missed bytes would lie a line or more behind the field", 100.0 * share)
        }
        Reason::Young { share } => {
            format!("{:.1} % of the misses are on objects that die young", 100.0 * share)
        }
        Reason::LifetimesDiffer { matching } => {
            format!("only {:.1} % of the pairs live and die together", 100.0 * matching)
        }
        Reason::SeldomFollowed { share } => {
            format!("the objects are missed {:.1} times as often as what the field refers to", 1.0 / share)
        }
        Reason::Together { share } => format!("{:.1} % of the pairs lie in one line already", 100.0 * share),
        Reason::AnotherFieldIsHotter { field } => {
            format!("{field} has more misses, and only one child can be next to its parent")
        }
        Reason::SizeUnknown => "the size of one of them is unknown".to_owned(),
    }
}

fn hints(text: &mut String, one: &Type) {
    line(
        text,
        format_args!("\n{} ({} bytes, {} samples)", one.name, grouped(one.bytes), grouped(one.samples)),
    );
    for hint in &one.hints {
        let names =
            |fields: &[std::sync::Arc<str>]| fields.iter().map(|name| &**name).collect::<Vec<_>>().join(", ");
        match hint {
            Hint::Reorder { fields, lines: (now, could) } => line(
                text,
                format_args!(
                    "  put next to each other: {} (in {now} lines now, {could} would do)",
                    names(fields)
                ),
            ),
            Hint::Split { hot, bytes: (stay, all) } => line(
                text,
                format_args!(
                    "  split: keep {} ({stay} of {all} bytes), and move the rest into an object of its own",
                    names(hot)
                ),
            ),
        }
    }
}
