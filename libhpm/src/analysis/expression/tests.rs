//! What expressions come to, and what is refused.

use proptest::prelude::*;

use super::*;

/// Knows a few names.
struct Names;

#[derive(Clone, Copy)]
enum Variable {
    Instructions,
    Cycles,
    Misses,
    Thread,
}

impl Scope for Names {
    type Variable = Variable;

    fn variable(&self, name: &str) -> Option<(Variable, Kind)> {
        Some(match name {
            "instructions" => (Variable::Instructions, Kind::Number),
            "cycles" => (Variable::Cycles, Kind::Number),
            "l1d-load-miss" | "cpu/event=0xd1/" => (Variable::Misses, Kind::Number),
            "thread" => (Variable::Thread, Kind::Text),
            _ => return None,
        })
    }

    fn definition(&self, name: &str) -> Option<Expression> {
        let text = match name {
            "ipc" => "instructions / cycles",
            "cpi" => "1 / ipc",
            "itself" => "itself + 1",
            "broken" => "absent * 2",
            _ => return grown(name),
        };
        Some(Expression::parse(text).unwrap())
    }

    fn names(&self) -> Vec<String> {
        ["instructions", "cycles", "l1d-load-miss", "thread", "ipc"].map(str::to_owned).to_vec()
    }
}

/// Definitions of which each uses the next: `wide1` … `wide10` ten times, `deep1` … `deep10` below 200 others.
fn grown(name: &str) -> Option<Expression> {
    let (kind, number) = name.split_at_checked(4)?;
    let next = number.parse::<u32>().ok()? + 1;
    let times = match kind {
        "wide" => vec![format!("wide{next}"); 10],
        "deep" => std::iter::once(format!("deep{next}")).chain(vec!["1".to_owned(); 200]).collect(),
        _ => return None,
    };
    let text = if next > 10 { "1".to_owned() } else { times.join("+") };
    Some(Expression::parse(&text).unwrap())
}

fn value<'a>(variable: Variable) -> Value<'a> {
    match variable {
        Variable::Instructions => Value::Number(300.0),
        Variable::Cycles => Value::Number(200.0),
        Variable::Misses => Value::Number(0.0),
        Variable::Thread => Value::Text("worker-7"),
    }
}

fn number(text: &str) -> f64 {
    Expression::parse(text)
        .and_then(|read| read.bind(&Names))
        .unwrap_or_else(|error| panic!("{error}"))
        .number(&value)
}

fn refusal(text: &str) -> String {
    Expression::parse(text).and_then(|read| read.bind(&Names)).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn arithmetic_has_its_usual_order() {
    let cases = [
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * 3", 9.0),
        ("8 / 4 / 2", 1.0),
        ("5 - 3 - 1", 1.0),
        ("-2 * -3", 6.0),
        ("2 - -1", 3.0),
        ("0x10 + .5", 16.5),
        ("1e3 + 2.5E-1", 1000.25),
        ("min(3, max(1, 2)) + abs(-4) + sqrt(9) + log(1)", 9.0),
        ("if(1 > 2, 10, 20)", 20.0),
    ];
    for (text, expected) in cases {
        assert_eq!(number(text), expected, "{text}");
    }
}

/// What a script makes of it has to come to the same; texts of several records together are empty.
#[test]
fn outlines_have_every_part() {
    let outline = |text: &str| {
        let bound = Expression::parse(text).unwrap().bind(&Names).unwrap();
        bound.outline(&mut |variable| match variable {
            Variable::Instructions => "i".into(),
            Variable::Cycles => "c".into(),
            Variable::Misses | Variable::Thread => serde_json::Value::Null,
        })
    };
    assert_eq!(outline("cpi * 2"), serde_json::json!(["*", ["/", 1.0, ["/", "i", "c"]], 2.0]));
    assert_eq!(outline("max(-cycles, l1d-load-miss)"), serde_json::json!(["max", ["negative", "c"], null]));
    assert_eq!(outline("if(thread ~ \"w\", 1, not 0)"), serde_json::json!(["if", 0.0, 1.0, ["not", 0.0]]));
}

#[test]
fn units_are_multiplied() {
    assert_eq!(number("5 ms"), 5e6);
    assert_eq!(number("5ms + 1us + 2s"), 2_005_001_000.0);
    assert_eq!(number("3k * 2M / 1G"), 6.0);
}

#[test]
fn names_and_definitions() {
    assert_eq!(number("instructions / cycles"), 1.5);
    assert_eq!(number("ipc"), 1.5);
    assert_eq!(number("cpi * ipc"), 1.0);
    assert_eq!(number("cycles - instructions"), -100.0);
    assert_eq!(number("l1d-load-miss + 1"), 1.0);
    assert_eq!(number("`cpu/event=0xd1/`"), 0.0);
}

#[test]
fn conditions() {
    let cases = [
        ("1 < 2 and 2 <= 2 and 3 > 2 and 2 >= 2 and 1 != 2 and 2 == 2", 1.0),
        ("0 or 0", 0.0),
        ("1 == 1 || 0 && 0", 1.0),
        ("not 1 > 2", 1.0),
        ("! (ipc > 1)", 0.0),
        ("thread ~ \"^work\" and thread !~ \"x$\"", 1.0),
        ("thread == \"worker-7\"", 1.0),
        ("thread != \"worker-7\"", 0.0),
        (r#"thread ~ "\d$""#, 1.0),
    ];
    for (text, expected) in cases {
        assert_eq!(number(text), expected, "{text}");
    }
}

#[test]
fn what_cannot_be_computed_is_no_number_and_never_true() {
    let undefined = "(l1d-load-miss / l1d-load-miss)";
    assert!(number(undefined).is_nan());
    for comparison in ["> 0", "< 0", "== 0", "!= 0", ">= 0"] {
        assert_eq!(number(&format!("{undefined} {comparison}")), 0.0, "{comparison}");
    }
    assert!(number("instructions / l1d-load-miss").is_infinite());
}

#[test]
fn refusals_say_what_and_where() {
    let sentences: Vec<String> = [
        "",
        "1 +",
        "(1 + 2",
        "1 2",
        "5 foo",
        "5kB",
        "\"open",
        "a $ b",
        "instuctions",
        "cycles-instructions",
        "min(1)",
        "thread + 1",
        "thread == 1",
        "cycles ~ \"x\"",
        "thread ~ \"(\"",
        "thread ~ thread",
        "itself",
        "broken",
        "1 < 2 < 3",
        "und\u{fc}",
    ]
    .map(refusal)
    .to_vec();
    insta::assert_snapshot!(sentences.join("\n"));
}

#[test]
fn no_nesting_exhausts_the_stack() {
    for (open, close) in [("(", ")"), ("-", ""), ("not ", ""), ("abs(", ")")] {
        let text = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        assert!(refusal(&text(120)).contains("nested deeper"), "{open}");
        assert!(refusal(&text(100_000)).contains("more than 512 words"), "{open}");
    }
    let chain = vec!["1"; 250].join("+");
    assert_eq!(number(&chain), 250.0);
}

#[test]
fn definitions_cannot_grow_without_end() {
    // Each of ten definitions uses the next one ten times; or stands at the end of a long chain.
    assert!(refusal("wide1").contains("too large"), "{}", refusal("wide1"));
    assert!(refusal("deep1").contains("too large"), "{}", refusal("deep1"));
}

proptest! {
    /// Any text is read or refused.
    #[test]
    fn any_text(text in "\\PC{0,40}") {
        let _ = Expression::parse(&text).and_then(|read| read.bind(&Names));
    }

    /// Any sequence of words is read or refused, and what is read can be evaluated.
    #[test]
    fn any_words(words in prop::collection::vec(prop::sample::select(vec![
        "1", "2.5", "cycles", "thread", "ipc", "\"w\"", "+", "-", "*", "/", "(", ")", "<", "==", "~", "and", "or", "not",
        "min", ",", "if", "l1d-load-miss", "ms",
    ]), 0..16)) {
        if let Ok(bound) = Expression::parse(&words.join(" ")).and_then(|read| read.bind(&Names)) {
            let _ = bound.number(&value);
        }
    }

    /// Whatever is done to a good expression, it is read or refused, and the caret stands below it.
    #[test]
    fn any_damage(place in 0_usize..60, with in "\\PC{0,3}", length in 0_usize..5) {
        let good = "if(thread ~ \"^work\" and ipc >= 1.5e0, `cpu/event=0xd1/` - 5 ms, -log(cycles))";
        let mut chars: Vec<char> = good.chars().collect();
        let place = place.min(chars.len());
        chars.splice(place..(place + length).min(chars.len()), with.chars());
        let text: String = chars.into_iter().collect();
        if let Err(error) = Expression::parse(&text).and_then(|read| read.bind(&Names)) {
            prop_assert!(error.position >= 1 && error.position <= text.chars().count() + 1);
            prop_assert_eq!(error.to_string().lines().count(), 3);
        }
    }

    /// An expression comes to what the same operations of the language that it is written in come to, with the parentheses
    /// that its rules need and no others.
    #[test]
    fn values_agree((text, expected, _) in tree()) {
        let found = number(&text);
        prop_assert!(found == expected || (found.is_nan() && expected.is_nan()), "{text}: {found} {expected}");
    }
}

/// A random expression, its value, and how strongly its outermost operator binds.
fn tree() -> impl Strategy<Value = (String, f64, u8)> {
    const ATOM: u8 = 5;
    let condition = |holds: bool| f64::from(u8::from(holds));
    let leaf = (0_u32..1000).prop_map(|number| (format!("{number}"), f64::from(number), ATOM));
    leaf.prop_recursive(6, 60, 2, move |inner| {
        (0_usize..11, inner.clone(), inner).prop_map(
            move |(which, (a_text, a, a_level), (b_text, b, b_level))| {
                let (sign, level, value) = [
                    ("or", 0, condition(a != 0.0 && !a.is_nan() || b != 0.0 && !b.is_nan())),
                    ("and", 1, condition(a != 0.0 && !a.is_nan() && b != 0.0 && !b.is_nan())),
                    ("<", 2, condition(a < b)),
                    ("<=", 2, condition(a <= b)),
                    (">", 2, condition(a > b)),
                    (">=", 2, condition(a >= b)),
                    ("==", 2, condition(a == b)),
                    ("+", 3, a + b),
                    ("-", 3, a - b),
                    ("*", 4, a * b),
                    ("/", 4, a / b),
                ][which];
                let within = |text: String, needed: bool| if needed { format!("({text})") } else { text };
                // Operators of one level go from left to right; comparisons do not chain.
                let left = within(a_text, a_level < level || (level == 2 && a_level == 2));
                let right = within(b_text, b_level <= level);
                (format!("{left} {sign} {right}"), value, level)
            },
        )
    })
}
