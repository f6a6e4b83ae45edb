//! Makes requests: finds how much fits into each length, and fills every sample up to it.

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use rayon::prelude::*;

use super::coded_words::CodedWordGenerator;
use super::common_words::CommonWordGenerator;
use super::documents::Documents;
use super::example::{Count, Example, Generator};
use super::haystack::Essay;
use super::needles::NeedleGenerator;
use super::tasks::{Family, Subtask};
use super::variables::VariableGenerator;
use super::words::Words;
use crate::lm::ChatFormat;
use crate::task::generation::{Prompt, Request};

/// What prompts are made of.
#[derive(Default)]
pub struct Sources {
    pub essay: Essay,
    pub squad: Option<Documents>,
    pub hotpot: Option<Documents>,
}

/// Which prompts are made.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub tasks: Vec<&'static Subtask>,
    pub lengths: Vec<usize>,
    /// Of each task and length.
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
}

impl Counter<'_> {
    /// The tokens of a prompt, with BOS and inside the chat template.
    fn count(&self, example: &Example) -> Result<usize> {
        let Example { before, document, after, prefix, .. } = example;
        let (opening, closing) = self.frame.map_or(("", ""), |frame| (&frame.prefix, &frame.suffix));
        let text = [opening, before, document, after, closing, prefix].concat();
        (self.tokens)(&text)
    }
}

/// A request for every task, length and sample, in this order.
///
/// # Errors
/// A length into which a task does not fit; task and length are named.
pub fn requests(wanted: &Wanted, sources: &Sources, counter: &Counter<'_>) -> Result<Vec<Request>> {
    let words = Words::read();
    let groups: Vec<(&Subtask, usize)> =
        wanted.tasks.iter().flat_map(|task| wanted.lengths.iter().map(move |length| (*task, *length))).collect();
    let made: Vec<Vec<Request>> = groups
        .into_par_iter()
        .map(|(task, length)| {
            group(wanted, task, length, sources, &words, counter)
                .with_context(|| format!("{} does not fit into a length of {length}", task.name))
        })
        .collect::<Result<_>>()?;
    Ok(made.concat())
}

/// The requests of one task at one length.
fn group(
    wanted: &Wanted,
    task: &Subtask,
    length: usize,
    sources: &Sources,
    words: &Words,
    counter: &Counter<'_>,
) -> Result<Vec<Request>> {
    let rng = |sample: &str| Rng::with_seed(seed(wanted.seed, &format!("{} {length} {sample}", task.name)));
    let count: Count<'_> = &|example| counter.count(example);
    let room = length.saturating_sub(wanted.answer.unwrap_or(task.answer));
    ensure!(room > 0, "the answer takes all of it");
    let mut search = rng("size");
    let (needles, variables, common_words, coded_words);
    let generator: &dyn Generator = match task.family {
        Family::Needles(of_task) => {
            needles = NeedleGenerator { needles: of_task, words, essay: &sources.essay, length };
            &needles
        }
        Family::Variables => {
            let plain = Counter { frame: None, ..*counter };
            variables = VariableGenerator::new(length, &|example| plain.count(example), &mut search)?;
            &variables
        }
        Family::CommonWords => {
            common_words = CommonWordGenerator { words, length };
            &common_words
        }
        Family::CodedWords => {
            coded_words = CodedWordGenerator { room };
            &coded_words
        }
        Family::Squad => sources.squad.as_ref().context("no file of SQuAD was read")?,
        Family::HotpotQa => sources.hotpot.as_ref().context("no file of HotpotQA was read")?,
    };
    let samples = match task.family {
        Family::Squad | Family::HotpotQa => {
            let there = [&sources.squad, &sources.hotpot][usize::from(task.name == "qa_2")].as_ref();
            wanted.samples.min(there.map_or(0, Documents::len))
        }
        _ => wanted.samples,
    };
    let size = generator.largest(room, count, &mut search)?;
    let request = |sample: usize| -> Result<Request> {
        let example = generator.fill(size, sample, room, count, &mut rng(&sample.to_string()))?;
        let name = format!("{}#{sample}@{length}", task.name);
        let Example { before, document, after, prefix, references } = example;
        Ok(Request {
            cluster: name.clone(),
            name,
            prompt: Prompt { before, document, after: after + &prefix, header: prefix.len(), ..Prompt::default() },
            keeps_header: true,
            references,
            slices: vec![
                format!("task:{}", task.name),
                format!("length:{length}"),
                format!("task:{} length:{length}", task.name),
            ],
            length,
            max_new_tokens: wanted.answer.is_none().then_some(task.answer),
            ..Request::default()
        })
    };
    (0..samples).into_par_iter().map(request).collect()
}

/// A seed from a number and a text: 64-bit FNV-1a.
fn seed(number: u64, text: &str) -> u64 {
    let bytes = number.to_le_bytes().into_iter().chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
