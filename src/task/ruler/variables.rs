//! Variable tracking: which variables have a value, through a chain of assignments in a long text (RULER's
//! `variable_tracking.py`). An example with its answer comes before the text.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::example::{Count, Example, Generator};
use super::needles::NOISE;

/// Makes the prompts of `vt`.
pub struct VariableGenerator {
    /// Tokens of prompt and answer together.
    pub length: usize,
    /// Sentences of noise in the answered example; `None`: it is that example which is made, to find its size.
    pub shown: Option<usize>,
}

/// Variables in a chain: the one with the number, and four more.
const VARIABLES: usize = 5;
/// Letters of a variable.
const LETTERS: usize = 5;
/// Letters of a variable of the answered example.
const SHOWN_LETTERS: usize = 3;
/// The most tokens of the answered example's prompt.
pub const SHOWN_TOKENS: usize = 500;

impl Generator for VariableGenerator {
    fn step(&self) -> usize {
        if self.length < 4096 { 5 } else { 10 }
    }

    fn least(&self, _: usize) -> usize {
        VARIABLES
    }

    /// Enough for the answered example, which is part of every prompt, not to hide what a sentence takes.
    fn probe(&self) -> usize {
        if self.shown.is_some() { 25 } else { self.step() }
    }

    fn make(&self, size: usize, _sample: usize, rng: &mut Rng) -> Example {
        let Some(shown) = self.shown else { return chain(size, SHOWN_LETTERS, rng) };
        let shown = chain(shown, SHOWN_LETTERS, rng);
        let asked = chain(size, LETTERS, rng);
        let before = format!("{} {}\n\n{}", shown.text(), shown.references.join(" "), asked.before);
        Example { before, ..asked }
    }
}

impl VariableGenerator {
    /// A generator for a length, whose answered example has at most 500 tokens.
    ///
    /// # Errors
    /// What `count` reports.
    pub fn new(length: usize, count: Count<'_>, rng: &mut Rng) -> anyhow::Result<VariableGenerator> {
        let shown = VariableGenerator { length: SHOWN_TOKENS, shown: None }.largest(SHOWN_TOKENS, count, rng)?;
        Ok(VariableGenerator { length, shown: Some(shown) })
    }
}

/// A chain of assignments in so many sentences of noise.
fn chain(noise: usize, letters: usize, rng: &mut Rng) -> Example {
    let mut names: Vec<String> = Vec::new();
    let mut used = BTreeSet::new();
    while names.len() < VARIABLES {
        let name: String = (0..letters).map(|_| char::from(rng.u8(b'A'..=b'Z'))).collect();
        if used.insert(name.clone()) {
            names.push(name);
        }
    }
    let value = rng.u32(10_000..99_999);
    let mut statements = vec![format!("VAR {} = {value}", names[0])];
    // With a space at the end, as RULER has it.
    statements.extend(names.windows(2).map(|pair| format!("VAR {} = VAR {} ", pair[1], pair[0])));
    let mut places: Vec<usize> = rng.choose_multiple(0..noise, statements.len());
    places.sort_unstable();
    let mut lines = vec![NOISE; noise];
    for (before, (place, statement)) in places.into_iter().zip(&statements).enumerate() {
        lines.insert(place + before, statement);
    }
    Example {
        before: "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
            .to_owned(),
        document: lines.join("\n"),
        question: format!("\nQuestion: Find all variables that are assigned the value {value} in the text above."),
        prefix: format!(
            " Answer: According to the chain(s) of variable assignment in the text above, {VARIABLES} variables are \
             assigned the value {value}, they are: "
        ),
        references: names,
    }
}
