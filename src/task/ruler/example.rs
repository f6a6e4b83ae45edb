//! One prompt of RULER, and how many of its parts fit into a length.

use anyhow::{Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};

/// A prompt in the parts that a task file puts together, with the correct answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Example {
    /// The instruction, and an answered example where the task has one.
    pub before: String,
    /// The long text.
    pub document: String,
    /// The question.
    pub question: String,
    /// How the answer begins; part of the prompt.
    pub prefix: String,
    pub references: Vec<String>,
}

impl Example {
    /// The whole prompt, as an example with an answer in another shows it.
    pub fn text(&self) -> String {
        [self.before.as_str(), &self.document, &self.question, &self.prefix].concat()
    }

    /// The example as a row: `before`, `context`, `question`, `prefix` and `answers`.
    pub fn columns(self) -> Value {
        let Example { before, document, question, prefix, references } = self;
        json!({
            "before": before, "context": document, "question": question, "prefix": prefix, "answers": references,
        })
    }
}

/// Makes the prompts of one task at one length.
pub trait Generator: Sync {
    /// A prompt whose long text has so many units: sentences, words or documents.
    fn make(&self, size: usize, sample: usize, rng: &mut Rng) -> Example;

    /// Units that a prompt loses when it is too long.
    fn step(&self) -> usize;

    /// The fewest units that a sample needs.
    fn least(&self, _sample: usize) -> usize {
        1
    }

    /// Units of the prompt from which the tokens of a unit are estimated.
    fn probe(&self) -> usize {
        self.step()
    }

    /// The most units that fit into `room` tokens, by halving. The largest size tried is three times the estimate, as in RULER.
    ///
    /// # Errors
    /// What `count` reports.
    fn largest(&self, room: usize, count: Count<'_>, rng: &mut Rng) -> Result<usize> {
        let tokens = count(&self.make(self.probe(), 0, rng))?.max(1);
        let (mut low, mut high) = (self.least(0), (3 * room * self.probe() / tokens).max(2 * self.step()));
        let mut largest = low;
        while low <= high {
            let middle = (low + high) / 2;
            if count(&self.make(middle, 0, rng))? <= room {
                (largest, low) = (middle, middle + 1);
            } else {
                high = middle - 1;
            }
        }
        Ok(largest)
    }

    /// A prompt of at most `room` tokens: of `size` units, or fewer where chance made them longer.
    ///
    /// # Errors
    /// What `count` reports, or a prompt that does not fit even with the fewest units. RULER would never end there.
    fn fill(
        &self,
        mut size: usize,
        sample: usize,
        room: usize,
        count: Count<'_>,
        rng: &mut Rng,
    ) -> Result<Example> {
        let least = self.least(sample);
        size = size.max(least);
        loop {
            let example = self.make(size, sample, rng);
            let tokens = count(&example)?;
            if tokens <= room {
                return Ok(example);
            }
            ensure!(
                size > least,
                "the shortest prompt has {tokens} tokens and {room} are left; use a larger length"
            );
            size = size.saturating_sub(self.step()).max(least);
        }
    }
}

/// Counts the tokens of a prompt, with BOS and the chat template.
pub type Count<'a> = &'a (dyn Fn(&Example) -> Result<usize> + Sync);
