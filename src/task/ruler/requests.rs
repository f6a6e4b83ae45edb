//! Makes rows: finds how much fits into each length, and fills every sample up to it.

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use rayon::prelude::*;
use serde_json::Value;

use super::coded_words::CodedWordGenerator;
use super::common_words::CommonWordGenerator;
use super::documents::Documents;
use super::example::{Count, Example, Generator};
use super::needles::NeedleGenerator;
use super::tasks::{Family, Subtask};
use super::variables::VariableGenerator;
use super::words::{Essay, Words};
use crate::lm::ChatFormat;
use crate::task::benchmark::{Definition, RowPrompt, Rows, alone};

/// What prompts are made of.
#[derive(Default)]
pub struct Sources {
    pub essay: Essay,
    /// For tasks of questions about documents.
    pub documents: Option<Documents>,
}

/// Which prompts are made; without lengths, those of the length of the sweep.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub tasks: Vec<&'static Subtask>,
    pub lengths: Vec<usize>,
    /// Prompts of each task and length.
    pub samples: usize,
    pub seed: u64,
    /// The most tokens of an answer, where it is not the task's own number.
    pub answer: Option<usize>,
}

/// Counts tokens as the model reads them.
pub struct Counter<'a> {
    /// The tokens of a text, with BOS.
    pub tokens: &'a (dyn Fn(&str) -> Result<usize> + Sync),
    pub frame: Option<&'a ChatFormat>,
    /// The file that puts prompts together.
    pub definition: &'a Definition,
}

impl Counter<'_> {
    /// The tokens of a prompt, with BOS and inside the chat template.
    fn count(&self, example: &Example) -> Result<usize> {
        let RowPrompt { before, text, prefix, .. } = alone(self.definition, example.clone().columns())?;
        let (opening, closing) = self.frame.map_or(("", ""), |frame| (&frame.prefix, &frame.suffix));
        (self.tokens)(&[opening, &before, &text, closing, &prefix].concat())
    }
}

/// A row for every task, length and sample, in this order: the columns of [`Example::columns`], `name`, `tasks` (that of the row,
/// alone and with its length), `length`, and `answer_tokens` where the task has its own number.
///
/// # Errors
/// A length into which a task does not fit; task and length are named.
pub fn rows(wanted: &Wanted, sources: &Sources, counter: &Counter<'_>) -> Result<Rows> {
    let words = Words::read();
    let groups: Vec<(&Subtask, usize)> =
        wanted.tasks.iter().flat_map(|task| wanted.lengths.iter().map(move |length| (*task, *length))).collect();
    let made: Vec<Vec<Value>> = groups
        .into_par_iter()
        .map(|(task, length)| {
            group(wanted, task, length, sources, &words, counter)
                .with_context(|| format!("{} does not fit into a length of {length}", task.name))
        })
        .collect::<Result<_>>()?;
    let mut rows = Rows::default();
    for row in made.into_iter().flatten() {
        let name = row["name"].as_str().unwrap_or_default().to_owned();
        rows.add(row, name)?;
    }
    Ok(rows)
}

/// The rows of one task at one length.
fn group(
    wanted: &Wanted,
    task: &Subtask,
    length: usize,
    sources: &Sources,
    words: &Words,
    counter: &Counter<'_>,
) -> Result<Vec<Value>> {
    let rng = |sample: &str| Rng::with_seed(seed(wanted.seed, &format!("{} {length} {sample}", task.name)));
    let count: Count<'_> = &|example| counter.count(example);
    let room = length.saturating_sub(wanted.answer.unwrap_or(task.answer));
    ensure!(room > 0, "the answer takes all of it");
    let mut search = rng("size");
    let plain = Counter { frame: None, ..*counter };
    let generator: &dyn Generator = match task.family {
        Family::Needles(needles) => &NeedleGenerator { needles, words, essay: &sources.essay, length },
        Family::Variables => &VariableGenerator::new(length, &|example| plain.count(example), &mut search)?,
        Family::CommonWords => &CommonWordGenerator { words, length },
        Family::CodedWords => &CodedWordGenerator { room },
        Family::Squad | Family::HotpotQa => sources.documents.as_ref().context("no file of questions was read")?,
    };
    let samples = match (task.family, &sources.documents) {
        (Family::Squad | Family::HotpotQa, Some(documents)) => wanted.samples.min(documents.len()),
        _ => wanted.samples,
    };
    let size = generator.largest(room, count, &mut search)?;
    let row = |sample: usize| -> Result<Value> {
        let example = generator.fill(size, sample, room, count, &mut rng(&sample.to_string()))?;
        let mut row = example.columns();
        row["name"] = format!("{}#{sample}@{length}", task.name).into();
        row["task"] = task.name.into();
        row["task_and_length"] = format!("{} {length}", task.name).into();
        row["length"] = length.into();
        if wanted.answer.is_none() {
            row["answer_tokens"] = task.answer.into();
        }
        Ok(row)
    };
    (0..samples).into_par_iter().map(row).collect()
}

/// A seed from a number and a text: 64-bit FNV-1a.
fn seed(number: u64, text: &str) -> u64 {
    let bytes = number.to_le_bytes().into_iter().chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
