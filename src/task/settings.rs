//! What a sweep asks of a model: the settings of each task, checked but not carried out.
//!
//! Knows settings and their canonical text; reading a data set and making samples is the business of `task`.

use std::fmt;

use super::data_source::{DataSource, EMBEDDED, RANDOM_TOKENS};
use super::question::{Benchmark, PromptStyle, Split};
use super::style::{Prefill, Style};
use super::timing::Timing;

/// Whether a sample starts with the tokenizer's BOS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bos {
    /// As the model's tokenizer does by itself.
    #[default]
    Auto,
    Always,
    Never,
}

impl Bos {
    /// The name YAML and cell ids use.
    pub fn name(self) -> &'static str {
        match self {
            Bos::Auto => "auto",
            Bos::Always => "true",
            Bos::Never => "false",
        }
    }
}

/// What becomes of a book's last sample when it is shorter than the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tail {
    #[default]
    Drop,
    Keep,
}

impl Tail {
    /// The name YAML, cell ids and result rows use.
    pub fn name(self) -> &'static str {
        match self {
            Tail::Drop => "drop",
            Tail::Keep => "keep",
        }
    }
}

/// Long texts, cut to samples of `length` tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Texts {
    pub dataset: DataSource,
    /// Tokens of a sample, BOS included.
    pub length: usize,
    /// Text tokens from one sample's start to the next; `None`: the text tokens of a sample, so none overlap.
    pub stride: Option<usize>,
    pub bos: Bos,
    pub tail: Tail,
    /// Only the first books; `None`: all.
    pub books: Option<usize>,
    /// Only the first samples of each book; `None`: all.
    pub chunks_per_book: Option<usize>,
}

/// Perplexity of long texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Perplexity {
    pub texts: Texts,
    /// Whether each token is also compared with the unbounded cache's prediction.
    pub compare_to_full: bool,
}

/// Which tokens of long texts a cache keeps, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Retention {
    pub texts: Texts,
    /// The first samples of which it is written down when each token left.
    pub maps: usize,
    /// The layers it is written down for; `None`: all.
    pub map_layers: Option<Vec<usize>>,
    /// Whether the log itself is kept beside the rows. It changes none of them.
    pub eviction_log: bool,
}

impl Texts {
    /// Tokens of a sample unless the sweep says otherwise: the training length of the paper's models.
    pub const DEFAULT_LENGTH: usize = 4096;

    /// Text tokens of a whole sample, once it is known whether BOS takes one place.
    pub fn text_tokens(&self, bos: bool) -> usize {
        self.length - usize::from(bos)
    }

    /// The stride in text tokens, once it is known whether BOS takes one place.
    pub fn stride(&self, bos: bool) -> usize {
        self.stride.unwrap_or_else(|| self.text_tokens(bos))
    }

    /// The stride as ids spell it: `sample` for "no overlap", however the file said that. With `bos: auto` a
    /// number stays a number, as only the tokenizer knows whether it is a whole sample.
    fn canonical_stride(&self) -> String {
        let whole = match self.bos {
            Bos::Auto => None,
            Bos::Always => Some(self.text_tokens(true)),
            Bos::Never => Some(self.text_tokens(false)),
        };
        match self.stride {
            Some(stride) if Some(stride) != whole => stride.to_string(),
            _ => "sample".to_string(),
        }
    }

    /// The canonical lines, as they enter cell ids.
    fn canonical(&self) -> String {
        let limit = |limit: Option<usize>| limit.map_or("all".to_string(), |n| n.to_string());
        format!(
            "length={}\nstride={}\nbos={}\ntail={}\nbooks={}\nchunks_per_book={}\n",
            self.length,
            self.canonical_stride(),
            self.bos.name(),
            self.tail.name(),
            limit(self.books),
            limit(self.chunks_per_book),
        )
    }
}

/// Questions about documents, answered in writing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answering {
    pub benchmark: Benchmark,
    /// `embedded`, a file or a folder, or a data set of the hub in ZeroSCROLLS' layout.
    pub dataset: DataSource,
    pub split: Split,
    pub prompt: PromptStyle,
    /// Tokens of prompt and answer together, BOS included; the document's end is cut to fit.
    pub length: usize,
    /// Only the first documents; `None`: all.
    pub documents: Option<usize>,
    /// Only the first questions of each document; `None`: all.
    pub questions: Option<usize>,
    pub style: Style,
}

/// Stories written on request, one per seed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Storytelling {
    /// The request: the paper's, `embedded` ones, or a text of the sweep.
    pub request: StoryRequest,
    pub stories: usize,
    /// Tokens of request and story together, BOS included.
    pub length: usize,
    pub style: Style,
}

/// What a story is asked for with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoryRequest {
    /// The paper's request, table 4.
    Paper,
    /// Requests of the embedded data set, one per story.
    Embedded,
    Text(String),
}

impl StoryRequest {
    /// The name result rows use for where a text came from.
    pub fn name(&self) -> &'static str {
        match self {
            StoryRequest::Paper => "paper",
            StoryRequest::Embedded => EMBEDDED,
            StoryRequest::Text(_) => "request",
        }
    }
}

/// One fact in a long text, asked for at the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Needle {
    /// The texts the fact is hidden in.
    pub dataset: DataSource,
    /// Tokens of prompt and answer together, BOS included.
    pub lengths: Vec<usize>,
    /// Where in the text the fact stands, in percent from the start.
    pub depths: Vec<usize>,
    /// Texts for every length and depth.
    pub texts: usize,
    /// The fact, the question and what counts as an answer; `None`: one of many made up.
    pub fact: Option<Fact>,
    pub style: Style,
}

/// A fact of the sweep's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fact {
    pub needle: String,
    pub question: String,
    pub answer: String,
}

/// One entry of `tasks:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TaskSpec {
    Perplexity(Perplexity),
    Retention(Retention),
    Answering(Answering),
    Story(Storytelling),
    Needle(Needle),
    Timing(Timing),
}

impl TaskSpec {
    /// Every task, as YAML names it.
    pub const NAMES: [&'static str; 7] =
        ["perplexity", "retention", "squality", "qasper", "story", "needle", "timing"];

    /// The name YAML, file names and result rows use.
    pub fn name(&self) -> &'static str {
        match self {
            TaskSpec::Perplexity(_) => "perplexity",
            TaskSpec::Retention(_) => "retention",
            TaskSpec::Answering(answering) => answering.benchmark.name(),
            TaskSpec::Story(_) => "story",
            TaskSpec::Needle(_) => "needle",
            TaskSpec::Timing(_) => "timing",
        }
    }

    /// Where the texts come from, as the sweep names it.
    pub fn dataset(&self) -> String {
        match self {
            TaskSpec::Perplexity(Perplexity { texts: Texts { dataset, .. }, .. })
            | TaskSpec::Retention(Retention { texts: Texts { dataset, .. }, .. })
            | TaskSpec::Answering(Answering { dataset, .. })
            | TaskSpec::Needle(Needle { dataset, .. }) => dataset.to_string(),
            TaskSpec::Story(story) => story.request.name().to_string(),
            TaskSpec::Timing(_) => RANDOM_TOKENS.to_string(),
        }
    }

    /// Tokens of the longest sample.
    pub fn length(&self) -> usize {
        match self {
            TaskSpec::Perplexity(Perplexity { texts: Texts { length, .. }, .. })
            | TaskSpec::Retention(Retention { texts: Texts { length, .. }, .. })
            | TaskSpec::Answering(Answering { length, .. })
            | TaskSpec::Story(Storytelling { length, .. })
            | TaskSpec::Timing(Timing { length, .. }) => *length,
            TaskSpec::Needle(needle) => needle.lengths.iter().copied().max().unwrap_or(0),
        }
    }

    /// The texts this task cuts to samples; `None` if it writes, or decodes against the clock.
    pub fn texts(&self) -> Option<&Texts> {
        match self {
            TaskSpec::Perplexity(Perplexity { texts, .. }) | TaskSpec::Retention(Retention { texts, .. }) => {
                Some(texts)
            }
            TaskSpec::Answering(_) | TaskSpec::Story(_) | TaskSpec::Needle(_) | TaskSpec::Timing(_) => None,
        }
    }

    /// How this task writes; `None` if it only reads, or decodes against the clock.
    pub fn style(&self) -> Option<&Style> {
        match self {
            TaskSpec::Perplexity(_) | TaskSpec::Retention(_) | TaskSpec::Timing(_) => None,
            TaskSpec::Answering(Answering { style, .. })
            | TaskSpec::Story(Storytelling { style, .. })
            | TaskSpec::Needle(Needle { style, .. }) => Some(style),
        }
    }

    fn style_mut(&mut self) -> Option<&mut Style> {
        match self {
            TaskSpec::Perplexity(_) | TaskSpec::Retention(_) | TaskSpec::Timing(_) => None,
            TaskSpec::Answering(Answering { style, .. })
            | TaskSpec::Story(Storytelling { style, .. })
            | TaskSpec::Needle(Needle { style, .. }) => Some(style),
        }
    }

    /// How prompts get into the cache.
    pub fn prefill(&self) -> Prefill {
        self.style().map_or(Prefill::Stream, |style| style.prefill)
    }

    /// The same as result rows name it, with where a prompt read whole is cut.
    pub fn prefill_name(&self) -> &'static str {
        match self.style() {
            Some(Style { prefill: Prefill::OneShot, query_aware: false, .. }) => "one_shot_document",
            _ => self.prefill().name(),
        }
    }

    /// The task without the settings that an unbounded cache cannot notice.
    #[must_use]
    pub fn unbounded(mut self) -> TaskSpec {
        if let TaskSpec::Perplexity(perplexity) = &mut self {
            // The unbounded cache compared with itself.
            perplexity.compare_to_full = false;
        }
        self.uncut()
    }

    /// The task without the settings that a cache which evicts nobody cannot notice.
    #[must_use]
    pub fn uncut(mut self) -> TaskSpec {
        if let Some(style) = self.style_mut() {
            (style.prefill, style.query_aware) = (Prefill::Stream, true);
        }
        self
    }

    /// The settings of prompt and writing as one text, for result rows, with the digest of the chat template around
    /// the prompts; `None` if the task only reads. A story's own request comes last.
    pub fn asked(&self, template: Option<&str>) -> Option<String> {
        let mut parts = match self {
            TaskSpec::Answering(answering) => vec![("prompt", answering.prompt.name().to_string())],
            TaskSpec::Timing(timing) => timing.canonical(),
            _ => Vec::new(),
        };
        match self.style() {
            Some(style) => parts.extend(style.canonical()),
            None if parts.is_empty() => return None,
            None => {}
        }
        parts.extend(template.map(|digest| ("template", digest.to_string())));
        if let TaskSpec::Story(Storytelling { request: StoryRequest::Text(text), .. }) = self {
            parts.push(("request", text.clone()));
        }
        let parts: Vec<String> = parts.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        Some(parts.join(" "))
    }
}

impl fmt::Display for TaskSpec {
    /// The canonical text as it enters cell ids. The data set's name is no part of it: its digest is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |limit: Option<usize>| limit.map_or("all".to_string(), |n| n.to_string());
        writeln!(f, "task={}", self.name())?;
        match self {
            TaskSpec::Perplexity(task) => {
                write!(f, "{}", task.texts.canonical())?;
                writeln!(f, "compare_to_full={}", task.compare_to_full)?;
            }
            TaskSpec::Retention(task) => {
                write!(f, "{}", task.texts.canonical())?;
                writeln!(f, "maps={}", task.maps)?;
                let layers = task.map_layers.as_ref().filter(|_| task.maps > 0);
                writeln!(f, "map_layers={}", layers.map_or("all".to_string(), |layers| format!("{layers:?}")))?;
            }
            TaskSpec::Answering(task) => {
                writeln!(f, "split={}", task.split.name())?;
                writeln!(f, "prompt={}", task.prompt.name())?;
                writeln!(f, "length={}", task.length)?;
                writeln!(f, "documents={}", limit(task.documents))?;
                writeln!(f, "questions={}", limit(task.questions))?;
            }
            TaskSpec::Story(task) => {
                writeln!(f, "stories={}", task.stories)?;
                writeln!(f, "length={}", task.length)?;
            }
            TaskSpec::Needle(task) => {
                writeln!(f, "lengths={:?}", task.lengths)?;
                writeln!(f, "depths={:?}", task.depths)?;
                writeln!(f, "texts={}", task.texts)?;
                if let Some(Fact { needle, question, answer }) = &task.fact {
                    for (key, text) in [("needle", needle), ("question", question), ("answer", answer)] {
                        writeln!(f, "{key}={}", text.escape_default())?;
                    }
                }
            }
            TaskSpec::Timing(task) => {
                writeln!(f, "length={}", task.length)?;
                for (key, value) in task.canonical() {
                    writeln!(f, "{key}={value}")?;
                }
            }
        }
        if let Some(style) = self.style() {
            for (key, value) in style.canonical() {
                writeln!(f, "{key}={value}")?;
            }
            writeln!(f, "prefill={}", style.prefill.name())?;
            if style.prefill == Prefill::OneShot {
                writeln!(f, "query_aware={}", style.query_aware)?;
            }
        }
        Ok(())
    }
}
