//! What a sweep asks of a model: the settings of each task, checked but not carried out.
//!
//! Knows settings and their canonical text; reading a data set and making samples is the business of `task`.

use std::fmt;
use std::str::FromStr;

use super::question::{Benchmark, PromptStyle, Split};
use super::timing::Timing;
use crate::lm::source::RepoId;
use crate::lm::{Real, Sampling, Writing};

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

/// The data set that needs no file: seeded random words.
pub const RANDOM_WORDS: &str = "random-words";

/// What `timing` decodes from; no data set.
pub const RANDOM_TOKENS: &str = "random-tokens";

/// The data set that needs no file and asks for recall: books of made-up worlds.
pub const EMBEDDED: &str = "embedded";
/// The data set of articles of the same worlds, with questions and answers below them.
pub const EMBEDDED_QUESTIONS: &str = "embedded-questions";

/// Where texts come from. [`fmt::Display`] gives the text it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataSource {
    RandomWords,
    /// The test books of [`world`](crate::world).
    Embedded,
    /// Articles of the same worlds with questions and answers below them.
    EmbeddedQuestions,
    /// A folder of `.txt` files, or a `.parquet` file with a `text` column.
    Path(String),
    /// A data set of the hub, of which the Parquet files of its test split are read.
    Hub(RepoId),
}

impl FromStr for DataSource {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<DataSource> {
        let path = ["./", "../", "/", "~/"].iter().any(|start| text.starts_with(start));
        Ok(if text == RANDOM_WORDS {
            DataSource::RandomWords
        } else if text == EMBEDDED {
            DataSource::Embedded
        } else if text == EMBEDDED_QUESTIONS {
            DataSource::EmbeddedQuestions
        } else if path || text == "." || text == ".." || text.ends_with(".parquet") {
            DataSource::Path(text.to_string())
        } else {
            DataSource::Hub(text.parse()?)
        })
    }
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSource::RandomWords => f.write_str(RANDOM_WORDS),
            DataSource::Embedded => f.write_str(EMBEDDED),
            DataSource::EmbeddedQuestions => f.write_str(EMBEDDED_QUESTIONS),
            DataSource::Path(path) => f.write_str(path),
            DataSource::Hub(repo) => write!(f, "{repo}"),
        }
    }
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

/// How a prompt gets into a bounded cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefill {
    /// Token by token in effect: the cache never holds more than its size. The paper's definition.
    #[default]
    Stream,
    /// Whole, with an unbounded cache that is cut once, by the attention of the prompt's last token. The paper's
    /// released code.
    OneShot,
}

impl Prefill {
    /// The name YAML, cell ids and result rows use.
    pub fn name(self) -> &'static str {
        match self {
            Prefill::Stream => "stream",
            Prefill::OneShot => "one_shot",
        }
    }
}

/// How texts are written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Style {
    pub prefill: Prefill,
    /// Whether a cache that is cut once is cut after the question; otherwise it is cut at the document's end, and
    /// the question is read into the small cache. One and the same with `prefill: stream`.
    pub query_aware: bool,
    pub max_new_tokens: usize,
    /// 0: the most likely token, always.
    pub temperature: Real,
    pub top_k: Option<usize>,
    pub top_p: Option<Real>,
    pub repetition_penalty: Real,
    /// Whether a request goes through the model's chat template, if it has one.
    pub chat_template: bool,
    /// Strings that end a text, beside the model's own tokens for that.
    pub stop: Vec<String>,
}

impl Style {
    /// Greedy, with everything else at its default.
    pub fn greedy(max_new_tokens: usize) -> Style {
        Style {
            prefill: Prefill::Stream,
            query_aware: true,
            max_new_tokens,
            temperature: Real(0.0),
            top_k: None,
            top_p: None,
            repetition_penalty: Real(1.0),
            chat_template: true,
            stop: Vec::new(),
        }
    }

    /// Whether a seed decides what is written.
    pub fn draws(&self) -> bool {
        self.temperature.0 > 0.0
    }

    /// The same for the model's writing, with the tokens that end its texts.
    pub fn writing(&self, stop_tokens: Vec<u32>) -> Writing {
        let sampling = match self.draws() {
            false => Sampling::Greedy,
            true => Sampling::Drawn {
                temperature: self.temperature.0,
                top_k: self.top_k,
                top_p: self.top_p.map(|p| p.0),
            },
        };
        Writing {
            sampling,
            repetition_penalty: self.repetition_penalty.0 as f32,
            max_new_tokens: self.max_new_tokens,
            stop_tokens,
            stop_strings: self.stop.clone(),
        }
    }

    /// What can change a text, in a fixed order, without what the cache alone can notice.
    fn canonical(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("max_new_tokens", self.max_new_tokens.to_string())];
        if self.draws() {
            lines.push(("temperature", self.temperature.0.to_string()));
            lines.extend(self.top_k.map(|k| ("top_k", k.to_string())));
            lines.extend(self.top_p.map(|p| ("top_p", p.0.to_string())));
        } else {
            lines.push(("temperature", "0".into()));
        }
        if self.repetition_penalty.0 != 1.0 {
            lines.push(("repetition_penalty", self.repetition_penalty.0.to_string()));
        }
        lines.push(("chat_template", self.chat_template.to_string()));
        lines.extend(self.stop.iter().map(|stop| ("stop", stop.escape_default().to_string())));
        lines
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
    /// Requests of [`world`](crate::world), one per story.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(deny_unknown_fields)]
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
