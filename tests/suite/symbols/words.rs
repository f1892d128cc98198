//! A program of iterators, closures and generics, most of which the compiler puts into one another, for `suite symbols`. It
//! computes for some seconds.

use std::collections::{BTreeMap, HashMap};

struct Random(u64);

impl Iterator for Random {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Some(self.0)
    }
}

#[inline(never)]
fn words(random: &mut Random) -> Vec<String> {
    random.take(20_000).map(|number| format!("{:x}", number % 4099)).collect()
}

#[inline(never)]
fn count<'a>(words: &'a [String]) -> HashMap<&'a str, usize> {
    words.iter().fold(HashMap::new(), |mut counts, word| {
        *counts.entry(word.as_str()).or_default() += 1;
        counts
    })
}

#[inline(never)]
fn by_length(counts: &HashMap<&str, usize>) -> BTreeMap<usize, Vec<String>> {
    let mut lengths: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (word, count) in counts {
        lengths.entry(word.len() + count % 3).or_default().push(word.chars().rev().collect());
    }
    lengths.values_mut().for_each(|words| words.sort_unstable_by(|a, b| b.cmp(a)));
    lengths
}

#[inline(never)]
fn dot(random: &mut Random) -> f64 {
    let (a, b): (Vec<f64>, Vec<f64>) = random.take(50_000).map(|n| ((n % 97) as f64, (n % 89) as f64)).unzip();
    a.iter().zip(&b).filter(|(x, _)| **x > 3.0).map(|(x, y)| x * y).sum()
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let mut random = Random(88_172_645_463_325_252);
    let mut total = 0.0;
    for _ in 0..rounds {
        let words = words(&mut random);
        let lengths = by_length(&count(&words));
        total += lengths.values().map(Vec::len).sum::<usize>() as f64 + dot(&mut random);
    }
    println!("{total}");
}
