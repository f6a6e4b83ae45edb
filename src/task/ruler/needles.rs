//! Needles in a haystack: sentences with keys and values, one or some of which are asked for (RULER's `niah.py`).

use std::collections::BTreeSet;

use fastrand::Rng;

use super::example::{Example, Generator};
use super::words::{Essay, Words};

/// The text around the needles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haystack {
    /// Five sentences, repeated.
    Noise,
    Essay,
    /// Needles that are not asked for.
    Needles,
}

/// What a key or a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Such as `calm-river`.
    Words,
    /// Seven digits.
    Numbers,
    /// UUIDs of version 4.
    Uuids,
}

/// What one of the eight tasks has; numbers are RULER's `synthetic.yaml`.
#[derive(Clone, Copy, Debug)]
pub struct Needles {
    pub haystack: Haystack,
    pub key: Kind,
    pub value: Kind,
    /// Keys that stand in the text.
    pub keys: usize,
    /// Values of each key.
    pub values: usize,
    /// Keys that are asked for.
    pub queries: usize,
}

/// Makes their prompts.
pub struct NeedleGenerator<'a> {
    pub needles: Needles,
    pub words: &'a Words,
    pub essay: &'a Essay,
    /// Tokens of prompt and answer together.
    pub length: usize,
}

/// RULER's constant haystack.
pub const NOISE: &str =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
/// The depths of needles in an essay: 40 from 0 to 100 percent, rounded.
const DEPTHS: usize = 40;

impl Generator for NeedleGenerator<'_> {
    fn step(&self) -> usize {
        match self.needles.haystack {
            Haystack::Essay => 500,
            _ if self.length < 4096 => 5,
            _ => 25,
        }
    }

    fn make(&self, size: usize, _sample: usize, rng: &mut Rng) -> Example {
        let Needles { haystack, value, keys, values, queries, .. } = self.needles;
        let mut used = BTreeSet::new();
        let keys: Vec<String> = (0..keys).map(|_| self.new_key(&mut used, rng)).collect();
        let values: Vec<Vec<String>> =
            keys.iter().map(|_| (0..values).map(|_| self.draw(value, rng)).collect()).collect();
        let pairs =
            keys.iter().zip(&values).flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
        let mut needles: Vec<String> = pairs.map(|(key, value)| self.needle(key, value)).collect();
        rng.shuffle(&mut needles);
        let document = match haystack {
            Haystack::Essay => in_essay(&self.essay.sentences(size), &needles, rng),
            Haystack::Noise => in_lines(vec![NOISE.to_owned(); size], needles, rng),
            Haystack::Needles => {
                let distractor = |_| {
                    let (key, value) = (self.new_key(&mut used, rng), self.draw(value, rng));
                    self.needle(&key, &value)
                };
                let lines = (0..size).map(distractor).collect();
                in_lines(lines, needles, rng)
            }
        };
        let mut asked: Vec<usize> = rng.choose_multiple(0..keys.len(), queries);
        rng.shuffle(&mut asked);
        let references: Vec<String> = asked.iter().flat_map(|index| values[*index].clone()).collect();
        let asked: Vec<&str> = asked.into_iter().map(|index| keys[index].as_str()).collect();
        let query = match asked.as_slice() {
            [others @ .., last] if !others.is_empty() => format!("{}, and {last}", others.join(", ")),
            only => only.concat(),
        };
        // RULER's wording for one value.
        let (some, are, all, kind) = match (references.len(), value.name()) {
            (1, name) => ("A", "is", "", name.trim_end_matches('s')),
            (_, name) => ("Some", "are", " all", name),
        };
        Example {
            before: format!(
                "{some} special magic {kind} {are} hidden within the following text. Make sure to memorize it. I will quiz \
                 you about the {kind} afterwards.\n"
            ),
            document,
            question: format!(
                "\nWhat {are}{all} the special magic {kind} for {query} mentioned in the provided text?"
            ),
            prefix: format!(" The special magic {kind} for {query} mentioned in the provided text {are}"),
            references,
        }
    }
}

impl NeedleGenerator<'_> {
    /// A key that no other needle has. RULER's list of words is so long that it need not check.
    fn new_key(&self, used: &mut BTreeSet<String>, rng: &mut Rng) -> String {
        loop {
            let key = self.draw(self.needles.key, rng);
            if used.insert(key.clone()) {
                return key;
            }
        }
    }

    fn draw(&self, kind: Kind, rng: &mut Rng) -> String {
        match kind {
            Kind::Words => self.words.pair(rng),
            Kind::Numbers => rng.u32(1_000_000..=9_999_999).to_string(),
            Kind::Uuids => uuid(rng.u128(..)),
        }
    }

    fn needle(&self, key: &str, value: &str) -> String {
        format!("One of the special magic {} for {key} is: {value}.", self.needles.value.name())
    }
}

impl Kind {
    fn name(self) -> &'static str {
        ["words", "numbers", "uuids"][self as usize]
    }
}

/// Random bits as a UUID of version 4.
fn uuid(bits: u128) -> String {
    let bits = bits & !(0xf000 << 64) & !(0xc000 << 48) | 4 << 76 | 0x8000 << 48;
    let digits = format!("{bits:032x}");
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]).join("-")
}

/// Needles between lines, each before another line.
fn in_lines(mut lines: Vec<String>, needles: Vec<String>, rng: &mut Rng) -> String {
    let mut places: Vec<usize> = rng.choose_multiple(0..lines.len(), needles.len());
    places.sort_unstable_by(|a, b| b.cmp(a));
    for (place, needle) in places.into_iter().zip(needles) {
        lines.insert(place, needle);
    }
    lines.join("\n")
}

/// Needles between sentences, each at another depth.
fn in_essay(sentences: &[String], needles: &[String], rng: &mut Rng) -> String {
    let depth = |index: usize| (index as f64 * 100.0 / (DEPTHS - 1) as f64).round() as usize;
    let mut depths: Vec<usize> = rng.choose_multiple((0..DEPTHS).map(depth), needles.len());
    depths.sort_unstable();
    let mut parts = Vec::new();
    let mut last = 0;
    for (depth, needle) in depths.into_iter().zip(needles) {
        let place = sentences.len() * depth / 100;
        parts.extend([sentences[last..place].join(" "), needle.clone()]);
        last = place;
    }
    parts.push(sentences[last..].join(" "));
    parts.join(" ")
}
