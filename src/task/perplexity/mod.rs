//! Perplexity of long texts, and the recall of facts in texts that come with a list of them.

mod measure;
mod pieces;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Deserialize;

pub use measure::measure;
pub use pieces::{Piece, pieces};

use super::cache::{CacheConfig, FullCachePrefix};
use super::canonical::json;
use super::data::{self, BooksYaml, Bos, CutBooks, Start, Tail, TextSample, Texts, cut, resolve_bos};
use super::memory::SampleLengths;
use super::prepared::{Batch, PreparedTask, Report, Samples, TokenCost};
use super::spec::{PrepareContext, Task, TaskSpec};
use crate::eviction::{Amount, CacheRule};
use crate::lm::LanguageModel;
use crate::metric::MetricSum;
use crate::yaml::{self, ConfigError, Spanned};

/// Perplexity of long texts cut to samples; of `dataset: embedded` also the recall of facts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerplexityYaml {
    /// Where texts come from: a folder of `.txt` files or a `.parquet` file with a `text` column (starting with `./`,
    /// `../` or `/`), a hub data set `owner/name`, `embedded`, `embedded-questions` or `random-words`.
    dataset: Spanned<String>,
    /// Tokens of a sample, BOS included.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// Text tokens from the start of one sample to the next; overlapping tokens are scored once. By default there is no overlap.
    stride: Option<Spanned<u64>>,
    /// Whether each sample starts with BOS; auto: as the tokenizer does.
    #[serde(default)]
    #[schemars(schema_with = "Bos::schema")]
    bos: Bos,
    /// What happens to a book's last, shorter sample.
    #[serde(default)]
    #[schemars(extend("default" = "drop"))]
    tail: Tail,
    /// Only the first books, or those of a list of names such as [10146, 10321], in its order; by default all of them, and 16 of the 64
    /// embedded ones.
    books: Option<Spanned<BooksYaml>>,
    /// Only the first samples of each book; by default all of them.
    chunks_per_book: Option<Spanned<u64>>,
    /// The text token at which the samples of a book begin, by default 0; with `chunks_per_book` also `middle`, where as many
    /// tokens are before them as after them, or `random`, a place of the book that follows from its name and a seed (`random:7`).
    #[schemars(extend("default" = 0))]
    start: Option<Spanned<Start>>,
    /// The first tokens of a sample are a prompt, and only the rest is scored: a number of tokens, BOS included, or a whole
    /// percentage such as "75%". Policies whose schedule says `cut` are cut after it. Not with a `stride`;
    /// by default there is none.
    prompt: Option<Spanned<Amount>>,
    /// Also measure KL divergence and top-1 agreement with the full cache, and the attention mass that evicted entries
    /// would have received.
    #[serde(default)]
    compare_to_full: bool,
    /// Also keep the log of evictions and the NLL of each token, as Parquet files beside the cells.
    #[serde(default)]
    eviction_log: bool,
}

impl PerplexityYaml {
    /// Checks every value.
    pub fn check(self) -> Result<TaskSpec, ConfigError> {
        let numbers = [&self.length, &self.stride, &self.chunks_per_book];
        let mut texts = Texts::check(&self.dataset, numbers, self.books, &self.start, (self.bos, self.tail))?;
        if let Some(Spanned { value: prompt, referenced }) = self.prompt {
            let hint = "write fewer tokens than `length`, at least 1, or a percentage from 1% to 99%";
            let fits = match prompt {
                Amount::Tokens(tokens) => (1..texts.length).contains(&tokens),
                Amount::Percent(percent) => (1..100).contains(&percent),
            };
            if !fits {
                let message =
                    format!("a prompt of {prompt} of {} tokens leaves nothing to read, or to score", texts.length);
                return yaml::refuse(referenced, message, hint);
            }
            if self.stride.is_some() {
                let message = "with a `stride`, a sample scores only what the one before did not";
                return yaml::refuse(referenced, message, "leave out one of them");
            }
            texts.prompt = Some(prompt);
        }
        let task = Perplexity { texts: texts.clone(), eviction_log: self.eviction_log };
        let spec = TaskSpec::of_texts("perplexity", &texts, task);
        Ok(TaskSpec { compare_to_full: Some(self.compare_to_full), ..spec })
    }
}

/// Perplexity of long texts.
#[derive(Debug)]
struct Perplexity {
    texts: Texts,
    eviction_log: bool,
}

impl Task for Perplexity {
    fn prepare(&self, _: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let tokenizer = context.files.tokenizer()?;
        let books = self.texts.read(context.hub)?;
        let CutBooks { samples, too_short } = cut(&books, &self.texts, &tokenizer)?;
        let logged = match self.eviction_log {
            true => Some(samples.iter().map(|sample| tokenizer.texts(&sample.tokens)).collect::<Result<_>>()?),
            false => None,
        };
        Ok(PreparedTask {
            samples: Box::new(PerplexitySamples { samples, too_short, logged }),
            digest: data::digest(&books),
            bos: resolve_bos(&self.texts, &tokenizer)?.is_some(),
        })
    }
}

struct PerplexitySamples {
    samples: Vec<TextSample>,
    too_short: Option<MetricSum>,
    /// The texts of each sample's tokens, where evictions are logged.
    logged: Option<Vec<Vec<Arc<str>>>>,
}

impl Samples for PerplexitySamples {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn name(&self, sample: usize) -> (&str, &str) {
        (&self.samples[sample].name, &self.samples[sample].cluster)
    }

    fn start(&self, sample: usize) -> Option<usize> {
        Some(self.samples[sample].start)
    }

    fn facts(&self, sample: usize) -> Vec<MetricSum> {
        let too_short = self.too_short.clone().filter(|_| sample == 0);
        self.samples[sample].repeats_prompt().into_iter().chain(too_short).collect()
    }

    fn content(&self, sample: usize) -> Option<String> {
        Some(json(&(&self.samples[sample], self.logged.is_some())))
    }

    fn tokens(&self, sample: usize) -> usize {
        self.samples[sample].tokens.len()
    }

    fn lengths(&self, sample: usize, _: &CacheConfig) -> SampleLengths {
        self.samples[sample].lengths()
    }

    fn full_cache_tokens(&self, configs: &[CacheConfig]) -> usize {
        let longest = self.samples.iter().map(|sample| sample.tokens.len()).max().unwrap_or(0);
        let prompt = self.samples.iter().filter_map(|sample| sample.prompt).max();
        configs.iter().map(|config| config.needs(longest, prompt)).max().unwrap_or(0)
    }

    fn read_prefix(
        &self,
        model: &LanguageModel,
        batch: Range<usize>,
        configs: &[CacheConfig],
    ) -> Result<Option<FullCachePrefix>> {
        let TextSample { tokens, prompt, .. } = &self.samples[batch.start];
        FullCachePrefix::read(model, tokens, *prompt, configs)
    }

    fn measure(&self, batch: &Batch<'_>, report: Report<'_>) -> ControlFlow<()> {
        let config = CacheConfig { log: self.logged.is_some(), ..batch.config };
        batch.each(report, |sample| {
            let texts = self.logged.as_ref().map(|texts| &texts[sample][..]);
            measure(batch.model, &self.samples[sample], texts, &config, batch.prefix)
        })
    }

    fn cost(&self, batch: Range<usize>, config: &CacheConfig) -> TokenCost {
        let sample = &self.samples[batch.start];
        let tokens = sample.tokens.len();
        let mut parts: Vec<Range<usize>> = match config.cache.rule {
            CacheRule::Truncate { size } if size < tokens => {
                (0..tokens).step_by(size).map(|start| 0..size.min(tokens - start)).collect()
            }
            _ => {
                let start = config.start(config.continues(tokens, sample.prompt));
                config.evicting(tokens).map(|_| start..tokens).into_iter().collect()
            }
        };
        // Before it, the whole text with the full cache.
        if config.cache.rule.reads_future().is_some() && !parts.is_empty() {
            parts.push(0..tokens);
        }
        TokenCost {
            cut: sample.prompt.filter(|_| config.cuts()),
            shared: config.needs(tokens, sample.prompt),
            parts,
            scored: sample.scored.len(),
            ..TokenCost::default()
        }
    }
}
