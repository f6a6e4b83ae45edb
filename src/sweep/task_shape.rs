//! The shape of a sweep file's tasks: keys and kinds of values, as serde reads them, each with its place in the file.
//!
//! What stands above a key here is what an editor shows of it: the JSON Schema is made of these types. Nothing is
//! checked beyond its kind; `tasks` does that, and `schema` says as much of it as a schema can.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::schema::{names, rules};
use super::yaml::Spanned;
use crate::task::{Bos, Prefill, PromptStyle, Split, Tail, Texts, Timing};

/// One task, named by its only key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(transform = rules::one_key)]
pub(super) enum TaskShape {
    /// Perplexity of long texts cut to samples; of `dataset: embedded` also the recall of facts.
    Perplexity(PerplexityShape),
    /// Which tokens a cache keeps, and for how long: by position, layer, class and part of speech.
    Retention(RetentionShape),
    /// SQuALITY: questions about stories, answered in a paragraph and marked with ROUGE.
    Squality(AnsweringShape),
    /// QASPER: questions about scientific articles, answered in a few words and marked with F1.
    Qasper(AnsweringShape),
    /// Stories on request, one for each seed; `tova-bench judge` compares those of a bounded cache with the full one's.
    Story(StoryShape),
    /// One fact in a long text, asked for at the end: by the text's length and the fact's depth.
    Needle(NeedleShape),
    /// Bytes of a cache, largest batch and tokens/s of prefill and decoding, on random tokens. Not for `truncate`.
    Timing(TimingShape),
}

/// Questions about documents.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules::greedy_unless_said, transform = rules::embedded_documents)]
pub(super) struct AnsweringShape {
    /// Where documents and questions come from: `embedded`, a file or folder of the original release or of
    /// ZeroSCROLLS (starting with `./`, `../` or `/`), or a hub data set with ZeroSCROLLS' archives, such as
    /// `tau/zero_scrolls`.
    #[schemars(schema_with = "names::question_sources")]
    pub dataset: Spanned<String>,
    /// Which published part of the benchmark.
    #[serde(default)]
    #[schemars(schema_with = "names::splits")]
    pub split: Option<Split>,
    /// Whose wording the prompts have.
    #[serde(default)]
    #[schemars(schema_with = "names::prompts")]
    pub prompt: Option<PromptStyle>,
    /// Tokens of prompt and answer together; a prompt that is too long loses its document's end.
    #[serde(default)]
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    pub length: Option<Spanned<u64>>,
    /// Only the first documents; null: all of them. At most 64 of the embedded ones.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub documents: Option<Spanned<u64>>,
    /// Only the first questions of each document; null: all of them.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub questions: Option<Spanned<u64>>,
    /// How answers are written; by default greedily, at most 512 tokens for `squality` and 128 for `qasper`.
    #[serde(default)]
    pub write: WriteShape,
}

/// Stories on request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules::embedded_requests)]
#[schemars(extend("type" = ["object", "null"]))]
pub(super) struct StoryShape {
    /// What is asked for: `paper` (the paper's request), `embedded` (requests of made-up worlds), or a request of your
    /// own.
    #[serde(default)]
    #[schemars(regex(pattern = r"\S"), extend("default" = "paper", "examples" = ["paper", "embedded"]))]
    pub request: Option<Spanned<String>>,
    /// How many stories, each from a seed of its own. At most 1,000 with `request: embedded`.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = 100))]
    pub stories: Option<Spanned<u64>>,
    /// Tokens of request and story together.
    #[serde(default)]
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    pub length: Option<Spanned<u64>>,
    /// How stories are written; by default drawn at temperature 1.
    #[serde(default)]
    pub write: WriteShape,
}

/// One fact in a long text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules::greedy_unless_said, transform = rules::embedded_texts)]
pub(super) struct NeedleShape {
    /// The texts around the fact: `embedded`, a folder of `.txt` files or a `.parquet` file (starting with `./`, `../`
    /// or `/`), or a hub data set.
    #[schemars(schema_with = "names::text_sources")]
    pub dataset: Spanned<String>,
    /// Lengths of prompt and answer together, in tokens; each is measured. One of 4,096 where none is named.
    #[serde(default)]
    #[schemars(inner(range(min = 2, max = u32::MAX)))]
    #[schemars(extend("type" = ["array", "null"], "uniqueItems" = true, "default" = [Texts::DEFAULT_LENGTH]))]
    pub lengths: Vec<Spanned<u64>>,
    /// Where the fact stands, in percent of the text: 0 is its beginning, 100 its end.
    #[serde(default)]
    #[schemars(inner(range(min = 0, max = 100)))]
    #[schemars(extend("type" = ["array", "null"], "uniqueItems" = true, "default" = [0, 25, 50, 75, 100]))]
    pub depths: Vec<Spanned<u64>>,
    /// How many texts for each length and depth.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = 10))]
    pub texts: Option<Spanned<u64>>,
    /// A fact of your own; null: one of many made up.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub fact: Option<FactShape>,
    /// How answers are written; by default greedily, at most 32 tokens.
    #[serde(default)]
    pub write: WriteShape,
}

/// A fact to hide and to ask for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FactShape {
    /// The sentence put into the text.
    pub needle: String,
    /// What is asked at the end.
    pub question: String,
    /// What an answer must hold to count as right.
    pub answer: String,
}

/// Sequences decoded against the clock.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TimingShape {
    /// What weights and the caches of the largest batch may take together: a number and a unit (B, kB, MB, GB, TB, KiB,
    /// MiB, GiB, TiB), such as `8 GiB`.
    #[schemars(schema_with = "names::memory")]
    pub memory: Spanned<String>,
    /// Tokens of a sequence, its prompt included.
    #[serde(default)]
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    pub length: Option<Spanned<u64>>,
    /// Tokens of the prompt; fewer than `length`.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = Timing::DEFAULT_PROMPT))]
    pub prompt: Option<Spanned<u64>>,
    /// How often everything is timed; the report has medians.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = Timing::DEFAULT_REPEATS))]
    pub repeats: Option<Spanned<u64>>,
    /// Steps decoded before each clock starts.
    #[serde(default)]
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = Timing::DEFAULT_WARM_UP))]
    pub warm_up: Option<Spanned<u64>>,
}

/// How texts are written: `write:` of a task.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("type" = ["object", "null"]), transform = rules::drawing, transform = rules::query_awareness)]
pub(super) struct WriteShape {
    /// How a prompt gets into a bounded cache. `one_shot` needs absolute positions.
    #[serde(default)]
    #[schemars(schema_with = "names::prefills")]
    pub prefill: Prefill,
    /// With `prefill: one_shot`, whether the cache is cut after the question; false cuts it at the document's end and
    /// reads the question into the small cache.
    #[serde(default)]
    #[schemars(extend("default" = true))]
    pub query_aware: Option<Spanned<bool>>,
    /// Tokens to write at most; fewer than the task's `length`. The default is the task's own, but no more than half of
    /// `length`.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX))]
    pub max_new_tokens: Option<Spanned<u64>>,
    /// 0 takes the most likely token, always; above, tokens are drawn. 1 by default for stories, 0 for the others.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub temperature: Option<Spanned<f64>>,
    /// Draw from so many most likely tokens only; needs a temperature above 0.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub top_k: Option<Spanned<u64>>,
    /// Draw from the fewest tokens that reach this probability together; needs a temperature above 0.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0), extend("default" = null))]
    pub top_p: Option<Spanned<f64>>,
    /// Divides the logits of tokens that occurred; 1 changes nothing.
    #[serde(default)]
    #[schemars(range(min = 0.01, max = 100.0), extend("default" = 1.0))]
    pub repetition_penalty: Option<Spanned<f64>>,
    /// Whether requests go through the model's chat template, if it has one. True by default, but not for the paper's
    /// story request, which brings its own frame.
    #[serde(default)]
    pub chat_template: Option<bool>,
    /// Strings that end a text, beside the model's own tokens for that, such as "\n".
    #[serde(default)]
    #[schemars(inner(length(min = 1)), extend("type" = ["array", "null"], "default" = []))]
    pub stop: Vec<Spanned<String>>,
}

/// Long texts cut to samples.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules::embedded_books)]
pub(super) struct PerplexityShape {
    /// Where texts come from: a folder of `.txt` files or a `.parquet` file with a `text` column (starting with `./`,
    /// `../` or `/`), a hub data set `owner/name`, `embedded`, `embedded-questions` or `random-words`.
    #[schemars(schema_with = "names::text_sources")]
    pub dataset: Spanned<String>,
    /// Tokens of a sample, BOS included.
    #[serde(default)]
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    pub length: Option<Spanned<u64>>,
    /// Text tokens from one sample's start to the next; overlapping tokens are scored once. Null: no overlap.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub stride: Option<Spanned<u64>>,
    /// Whether each sample starts with BOS; auto: as the tokenizer does.
    #[serde(default)]
    pub bos: BosShape,
    /// What becomes of a book's last, shorter sample.
    #[serde(default)]
    #[schemars(schema_with = "names::tails")]
    pub tail: Tail,
    /// Only the first books; null: all of them. Of the embedded texts at most 64, and 16 for null.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub books: Option<Spanned<u64>>,
    /// Only the first samples of each book; null: all of them.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub chunks_per_book: Option<Spanned<u64>>,
    /// Also KL and top-1 agreement to the full cache, and the attention that evicted entries would have had.
    #[serde(default)]
    pub compare_to_full: bool,
}

/// What is kept of long texts cut to samples.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = rules::embedded_books)]
pub(super) struct RetentionShape {
    /// Where texts come from: a folder of `.txt` files or a `.parquet` file with a `text` column (starting with `./`,
    /// `../` or `/`), a hub data set `owner/name`, `embedded`, `embedded-questions` or `random-words`.
    #[schemars(schema_with = "names::text_sources")]
    pub dataset: Spanned<String>,
    /// Tokens of a sample, BOS included.
    #[serde(default)]
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    pub length: Option<Spanned<u64>>,
    /// Text tokens from one sample's start to the next. Null: no overlap.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub stride: Option<Spanned<u64>>,
    /// Whether each sample starts with BOS; auto: as the tokenizer does.
    #[serde(default)]
    pub bos: BosShape,
    /// What becomes of a book's last, shorter sample.
    #[serde(default)]
    #[schemars(schema_with = "names::tails")]
    pub tail: Tail,
    /// Only the first books; null: all of them. Of the embedded texts at most 64, and 16 for null.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub books: Option<Spanned<u64>>,
    /// Only the first samples of each book; null: all of them.
    #[serde(default)]
    #[schemars(range(min = 1, max = u32::MAX), extend("default" = null))]
    pub chunks_per_book: Option<Spanned<u64>>,
    /// The first samples of which rows say when each token left.
    #[serde(default)]
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = 1))]
    pub maps: Option<Spanned<u64>>,
    /// Only these layers of the maps, counted from 0, such as [0, 31]; null: all of them.
    #[serde(default)]
    #[schemars(length(min = 1), inner(range(min = 0, max = u32::MAX)))]
    #[schemars(extend("uniqueItems" = true, "default" = null))]
    pub map_layers: Option<Spanned<Vec<Spanned<u64>>>>,
    /// Also the log of evictions itself, as Parquet beside the cells.
    #[serde(default)]
    pub eviction_log: bool,
}

/// `auto`, `true` or `false`.
#[derive(Debug, Default)]
pub(super) struct BosShape(pub Bos);

impl<'de> Deserialize<'de> for BosShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl Visitor<'_> for Word {
            type Value = BosShape;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("auto, true or false")
            }
            fn visit_bool<E: Error>(self, bos: bool) -> Result<BosShape, E> {
                Ok(BosShape(if bos { Bos::Always } else { Bos::Never }))
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<BosShape, E> {
                match word {
                    "auto" => Ok(BosShape(Bos::Auto)),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(Word)
    }
}
