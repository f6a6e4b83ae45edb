//! What a task asks of one model, sample by sample, whatever the task: texts to predict or requests to answer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::{Context, Result, bail};

use super::answers::{self, Marking};
use super::data_source::{DataSource, RANDOM_TOKENS};
use super::labels::{self, Labels};
use super::perplexity::{self, Measured};
use super::question::{Benchmark, Question, questions_digest, require_references};
use super::reading::{Reading, Topline};
use super::requests::{Request, Requests};
use super::samples::{self, Sample};
use super::settings::{Answering, Needle, Perplexity, Retention, Storytelling, TaskSpec};
use super::timing::Timing;
use super::{decoding, needle, questions, retention, story, texts};
use crate::lm::source::{DownloadProgress, HubSettings};
use crate::lm::{LanguageModel, ModelFiles, Tokenizer};

/// The samples of a task, cut for one model.
pub enum Samples {
    Texts(Vec<Sample>),
    /// Texts with what is known of each of their tokens.
    Kept(Labels, Retention),
    Requests(Box<Requests>, Marking),
    /// The same work again, by the names of the repeats.
    Repeats(Timing, Vec<String>),
}

/// What the repeats of a timing are clustered with.
const REPEATS: &str = "repeats";

/// Samples, and what their ids hang on.
pub struct Asking {
    pub samples: Samples,
    /// Digest of the texts and of what is asked about them; of a timing, what it runs on.
    pub digest: String,
    /// Whether samples start with BOS.
    pub bos: bool,
}

impl Asking {
    /// Reads a task's texts and cuts them for a model. `machine` is what the machine is called where numbers hang on it.
    ///
    /// # Errors
    /// Texts that cannot be had, or that give no sample; the message names the file, the row or the sample.
    pub fn prepare(
        task: &TaskSpec,
        files: &ModelFiles,
        hub: &HubSettings,
        progress: &dyn DownloadProgress,
        machine: &str,
    ) -> Result<Asking> {
        files.shape.check_length(task.length()).with_context(|| format!("model {}", files.source))?;
        let asking = match task {
            TaskSpec::Perplexity(task) => reading(task, &files.tokenizer()?, hub, progress),
            TaskSpec::Retention(task) => keeping(task, files, &files.tokenizer()?, hub, progress),
            TaskSpec::Answering(task) => answering(task, files, hub, progress),
            TaskSpec::Story(task) => storytelling(task, files),
            TaskSpec::Needle(task) => needles(task, files, hub, progress),
            // Decoding against the clock needs no text, and so no tokenizer.
            TaskSpec::Timing(task) => Ok(timing(task, machine)),
        };
        asking.with_context(|| format!("data set {}", task.dataset()))
    }
}

fn timing(task: &Timing, machine: &str) -> Asking {
    let names = (0..task.repeats).map(|repeat| format!("repeat#{repeat}")).collect();
    Asking {
        samples: Samples::Repeats(task.clone(), names),
        digest: format!("{RANDOM_TOKENS} machine:{machine}"),
        bos: false,
    }
}

fn reading(
    task: &Perplexity,
    tokenizer: &Tokenizer,
    hub: &HubSettings,
    progress: &dyn DownloadProgress,
) -> Result<Asking> {
    let Perplexity { texts: task, .. } = task;
    let books = texts::read_books(&task.dataset, task.books, hub, progress)?;
    Ok(Asking {
        samples: Samples::Texts(samples::cut(&books, task, tokenizer)?),
        digest: texts::digest(&books),
        bos: samples::resolve_bos(task, tokenizer)?.is_some(),
    })
}

fn keeping(
    task: &Retention,
    files: &ModelFiles,
    tokenizer: &Tokenizer,
    hub: &HubSettings,
    progress: &dyn DownloadProgress,
) -> Result<Asking> {
    let Retention { texts, .. } = task;
    let layers = files.shape.layers;
    if let Some(layer) = task.map_layers.iter().flatten().find(|layer| **layer >= layers) {
        bail!("`map_layers` has layer {layer}, and {} has layers 0 to {}", files.source, layers - 1);
    }
    let books = texts::read_books(&texts.dataset, texts.books, hub, progress)?;
    Ok(Asking {
        samples: Samples::Kept(labels::cut(&books, texts, tokenizer)?, task.clone()),
        digest: texts::digest(&books),
        bos: samples::resolve_bos(texts, tokenizer)?.is_some(),
    })
}

fn answering(
    task: &Answering,
    files: &ModelFiles,
    hub: &HubSettings,
    progress: &dyn DownloadProgress,
) -> Result<Asking> {
    let mut questions = questions::read(task, hub, progress)?;
    // A benchmark whose answers nobody published is still written, to be sent to those who have them.
    if task.dataset == DataSource::Embedded {
        require_references(&questions)?;
    }
    limit(&mut questions, task.documents, task.questions);
    let digest = questions_digest(&questions);
    let marking = match task.benchmark {
        Benchmark::Squality => Marking::Summary,
        Benchmark::Qasper => Marking::Answer,
    };
    let commonest = commonest_answer(&questions);
    let requests = questions.into_iter().map(|question| Request {
        trivial: match task.benchmark {
            Benchmark::Squality => first_words(&question),
            Benchmark::Qasper => commonest.clone(),
        },
        groups: question.kind.into_iter().map(|kind| format!("kind:{kind}")).collect(),
        name: question.name,
        cluster: question.cluster,
        prompt: question.prompt,
        references: question.references,
        length: task.length,
        draw: 0,
    });
    asking(requests.collect(), digest, marking, (files, files.tokenizer()?), &task.style)
}

/// The reference that answers most questions; of equally common ones the first in the alphabet.
fn commonest_answer(questions: &[Question]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for question in questions {
        let different: BTreeSet<&str> = question.references.iter().map(String::as_str).collect();
        different.into_iter().for_each(|answer| *counts.entry(answer).or_default() += 1);
    }
    let commonest = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    commonest.map(|(answer, _)| answer.to_owned()).unwrap_or_default()
}

/// The document's first words, as many as its references have in the mean.
fn first_words(question: &Question) -> String {
    let words = |text: &String| text.split_whitespace().count();
    let references = question.references.iter().map(words).sum::<usize>();
    let count = references.checked_div(question.references.len()).unwrap_or(0);
    question.prompt.document.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
}

fn storytelling(task: &Storytelling, files: &ModelFiles) -> Result<Asking> {
    let (requests, digest) = story::requests(task);
    asking(requests, digest, Marking::Text, (files, files.tokenizer()?), &task.style)
}

fn needles(
    task: &Needle,
    files: &ModelFiles,
    hub: &HubSettings,
    progress: &dyn DownloadProgress,
) -> Result<Asking> {
    let tokenizer = files.tokenizer()?;
    let books = texts::read_books(&task.dataset, Some(task.texts), hub, progress)?;
    let requests = needle::requests(task, &books, &tokenizer)?;
    asking(requests, texts::digest(&books), Marking::Found, (files, tokenizer), &task.style)
}

fn asking(
    requests: Vec<Request>,
    digest: String,
    marking: Marking,
    (files, tokenizer): (&ModelFiles, Tokenizer),
    style: &super::style::Style,
) -> Result<Asking> {
    let requests =
        Requests::new(requests, files, tokenizer, style.chat_template, style.writing(files.stop_tokens()?))?;
    // Another template is another prompt.
    let digest = match &requests.template {
        Some(template) => format!("{digest} chat_template:{template}"),
        None => digest,
    };
    let bos = requests.bos();
    Ok(Asking { samples: Samples::Requests(Box::new(requests), marking), digest, bos })
}

/// Only the first documents, and of each the first questions.
fn limit(questions: &mut Vec<Question>, documents: Option<usize>, each: Option<usize>) {
    let mut seen: Vec<(String, usize)> = Vec::new();
    questions.retain(|question| {
        let place = match seen.iter().position(|(cluster, _)| *cluster == question.cluster) {
            Some(place) => place,
            None => {
                seen.push((question.cluster.clone(), 0));
                seen.len() - 1
            }
        };
        seen[place].1 += 1;
        place < documents.unwrap_or(usize::MAX) && seen[place].1 <= each.unwrap_or(usize::MAX)
    });
}

impl Samples {
    pub fn len(&self) -> usize {
        match self {
            Samples::Texts(texts) => texts.len(),
            Samples::Kept(texts, _) => texts.samples.len(),
            Samples::Requests(requests, _) => requests.asked.len(),
            Samples::Repeats(_, names) => names.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample's name and what it is clustered with.
    pub fn name(&self, index: usize) -> (&str, &str) {
        match self {
            Samples::Texts(texts) => (&texts[index].name, &texts[index].cluster),
            Samples::Kept(texts, _) => (&texts.samples[index].sample.name, &texts.samples[index].sample.cluster),
            Samples::Requests(requests, _) => {
                (&requests.asked[index].request.name, &requests.asked[index].request.cluster)
            }
            Samples::Repeats(_, names) => (&names[index], REPEATS),
        }
    }

    /// What a sample asks for and the answers that count as right; `None` where nothing is asked.
    pub fn request(&self, index: usize) -> Option<&Request> {
        match self {
            Samples::Requests(requests, _) => Some(&requests.asked[index].request),
            Samples::Texts(_) | Samples::Kept(..) | Samples::Repeats(..) => None,
        }
    }

    /// Tokens to be read and, at most, written.
    pub fn tokens(&self, index: usize) -> usize {
        match self {
            Samples::Texts(texts) => texts[index].tokens.len(),
            Samples::Kept(texts, _) => texts.samples[index].sample.tokens.len(),
            Samples::Requests(requests, _) => requests.asked[index].tokens.len() + requests.writing.max_new_tokens,
            Samples::Repeats(timing, _) => timing.length,
        }
    }

    /// Tokens that measuring a sample takes, where others share what it reads.
    pub fn work(&self, index: usize) -> usize {
        match self {
            Samples::Texts(_) | Samples::Kept(..) | Samples::Repeats(..) => self.tokens(index),
            Samples::Requests(requests, _) => requests.work(index),
        }
    }

    /// Tokens of the longest sample, and the work of all.
    pub fn longest_and_all(&self) -> (usize, usize) {
        let longest = (0..self.len()).map(|index| self.tokens(index)).max();
        (longest.unwrap_or(0), (0..self.len()).map(|index| self.work(index)).sum())
    }

    /// Texts in memory at once for one job.
    pub fn side_by_side(&self) -> usize {
        self.jobs().iter().map(ExactSizeIterator::len).max().unwrap_or(1)
    }

    /// Samples that are measured together, as they share what is read.
    pub fn jobs(&self) -> Vec<Range<usize>> {
        match self {
            Samples::Texts(_) | Samples::Kept(..) | Samples::Repeats(..) => {
                (0..self.len()).map(|index| index..index + 1).collect()
            }
            Samples::Requests(requests, _) => requests.sittings.clone(),
        }
    }

    /// Digest of the chat template around every prompt.
    pub fn template(&self) -> Option<&str> {
        match self {
            Samples::Texts(_) | Samples::Kept(..) | Samples::Repeats(..) => None,
            Samples::Requests(requests, _) => requests.template.as_deref(),
        }
    }

    /// Reads what the rules of a job share.
    ///
    /// # Errors
    /// What the model reports.
    pub fn begin(
        &self,
        model: &LanguageModel,
        job: Range<usize>,
        readings: &[Reading],
    ) -> Result<Option<Topline>> {
        match self {
            Samples::Texts(texts) => Topline::read(model, &texts[job.start].tokens, readings),
            // Who stays is known without the unbounded reading, and long texts have no room for it.
            Samples::Kept(..) => Ok(None),
            Samples::Requests(requests, _) => answers::prefix(model, requests, job, readings),
            Samples::Repeats(..) => Ok(None),
        }
    }

    /// Measures one rule on some samples of a job; each succeeds or fails by itself.
    pub fn measure(
        &self,
        model: &LanguageModel,
        (job, wanted): (Range<usize>, &[usize]),
        reading: &Reading,
        topline: Option<&Topline>,
    ) -> Vec<(usize, Result<Measured>)> {
        match self {
            Samples::Texts(texts) => wanted
                .iter()
                .map(|index| (*index, perplexity::measure(model, &texts[*index], reading, topline)))
                .collect(),
            Samples::Kept(Labels { samples, pieces }, task) => wanted
                .iter()
                .map(|&index| {
                    let wanted = retention::Wanted { task, pieces, mapped: index < task.maps };
                    (index, retention::measure(model, &samples[index], &wanted, reading))
                })
                .collect(),
            Samples::Requests(requests, marking) => {
                answers::answer(model, requests, *marking, (job, wanted), reading, topline)
            }
            Samples::Repeats(timing, _) => {
                wanted.iter().map(|index| (*index, decoding::measure(model, timing, reading))).collect()
            }
        }
    }
}
