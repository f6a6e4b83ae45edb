//! The samples of a task for one model: what they cost, and how they are measured.

use std::ops::{ControlFlow, Range};

use anyhow::{Context, Result};

use super::cache::{CacheConfig, FullCachePrefix};
use super::memory::{CacheMemory, SampleLengths};
use super::request::{Request, Unmeasurable};
use crate::eviction::CacheSpec;
use crate::lm::{LanguageModel, ModelShape};
use crate::metric::{MetricSum, NOT_MEASURED};
use crate::parquet::Table;

/// Tokens that a bounded cache reads at once, before their states are used and dropped.
pub const CHUNK: usize = 4096;

/// Samples, and what their ids depend on.
pub struct PreparedTask {
    pub samples: Box<dyn Samples>,
    /// Digest of the texts and of the questions about them; for a timed task, the machine.
    pub digest: String,
    /// Whether samples start with BOS.
    pub bos: bool,
}

/// The samples of a task, in the tokens of one model.
#[expect(clippy::len_without_is_empty, reason = "a task has at least one sample")]
pub trait Samples: Send + Sync {
    /// How many there are; at least one.
    fn len(&self) -> usize;

    /// The sample's name, and the name of the cluster (the book, the document) it belongs to.
    fn name(&self, sample: usize) -> (&str, &str);

    /// The text token of its book at which a sample starts, BOS not counted; `None` where samples are not cut from books.
    fn start(&self, _sample: usize) -> Option<usize> {
        None
    }

    /// What is to be said of a sample whatever the cache, as metrics of no result.
    fn facts(&self, _sample: usize) -> Vec<MetricSum> {
        Vec::new()
    }

    /// Everything that a sample's measurement depends on, beside model, cache and the task's settings; samples of the same
    /// content have the same numbers. `None`: a measurement is never used again.
    fn content(&self, sample: usize) -> Option<String>;

    /// The metrics of a sample that follow from the text it wrote, `None` where there are none. They may depend on the other
    /// samples too, and so are computed anew where a measurement is used again.
    ///
    /// # Errors
    /// A text that cannot be scored.
    fn rescored(&self, _sample: usize, _text: &str) -> Result<Vec<MetricSum>> {
        Ok(Vec::new())
    }

    /// Tokens that are read and, at most, written.
    fn tokens(&self, sample: usize) -> usize;

    /// Tokens of work, where a prefix that samples share counts once.
    fn work(&self, sample: usize) -> usize {
        self.tokens(sample)
    }

    /// Ranges of samples that are measured together because they share a prefix.
    fn batches(&self) -> Vec<Range<usize>> {
        (0..self.len()).map(|sample| sample..sample + 1).collect()
    }

    /// The request of a sample; `None` where nothing is asked.
    fn request(&self, _sample: usize) -> Option<&Request> {
        None
    }

    /// Tokens of a sample that its cache depends on, under a configuration that cuts the cache before or after a question.
    fn lengths(&self, sample: usize, _: &CacheConfig) -> SampleLengths {
        SampleLengths::of_text(self.tokens(sample))
    }

    /// Why a sample cannot be measured under any configuration.
    fn unmeasurable(&self, _sample: usize) -> Option<&Unmeasurable> {
        None
    }

    /// Digest of the chat template around every prompt.
    fn template(&self) -> Option<&str> {
        None
    }

    /// Tokens of the full cache that must be in memory while these configurations are measured.
    fn full_cache_tokens(&self, _configs: &[CacheConfig]) -> usize {
        0
    }

    /// Reads the prefix that several cache configurations of a batch share.
    fn read_prefix(
        &self,
        _: &LanguageModel,
        _: Range<usize>,
        _: &[CacheConfig],
    ) -> Result<Option<FullCachePrefix>> {
        Ok(None)
    }

    /// Measures some samples of a batch, and reports each as soon as it is done. Each succeeds or fails by itself.
    fn measure(&self, batch: &Batch<'_>, report: Report<'_>) -> ControlFlow<()>;

    /// The tokens that measuring a batch takes; of a timed task, one repeat of a single sequence.
    fn cost(&self, batch: Range<usize>, config: &CacheConfig) -> TokenCost;
}

/// Receives each sample's number and what was measured; may end the work.
pub type Report<'a> = &'a mut dyn FnMut(usize, Result<SampleResult>) -> ControlFlow<()>;

/// Some samples of a batch, and what they are measured with.
pub struct Batch<'a> {
    pub model: &'a LanguageModel,
    /// What was read for several configurations, if they share anything.
    pub prefix: Option<&'a FullCachePrefix>,
    /// Range of all samples that share the prefix.
    pub all: Range<usize>,
    /// Numbers of the samples to be measured.
    pub samples: &'a [usize],
    pub config: CacheConfig,
    /// The most texts generated at the same time.
    pub side_by_side: usize,
}

impl Batch<'_> {
    /// Measures one sample after the other.
    pub fn each(&self, report: Report<'_>, measure: impl Fn(usize) -> Result<SampleResult>) -> ControlFlow<()> {
        self.samples.iter().try_for_each(|sample| report(*sample, measure(*sample)))
    }
}

/// Tokens that the samples of one batch take under one cache configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenCost {
    /// Tokens of the full-cache prefix, which the configurations of a batch share.
    pub shared: usize,
    /// Parts of the texts that are read for this configuration alone.
    pub parts: Vec<Range<usize>>,
    /// The tokens of a text after which its cache is cut, if it is.
    pub cut: Option<usize>,
    /// Tokens whose probabilities are computed from states that were read.
    pub scored: usize,
    /// Tokens generated at most, of all texts together.
    pub written: usize,
    /// Tokens read once more with the full cache, to score generated texts.
    pub read_again: usize,
}

impl dyn Samples {
    /// Tokens of the longest sample.
    pub fn longest(&self) -> usize {
        (0..self.len()).map(|sample| self.tokens(sample)).max().unwrap_or(0)
    }

    /// The cache with the largest size that a sample has under it, where sizes depend on samples. Samples that cannot be measured do not
    /// count.
    ///
    /// # Errors
    /// A sample for which the policy can have no such size; it is named.
    pub fn largest_cache(&self, shape: &ModelShape, config: &CacheConfig) -> Result<CacheSpec> {
        if config.cache.relative.is_none() {
            return Ok(config.cache);
        }
        let measured = (0..self.len()).filter(|sample| self.unmeasurable(*sample).is_none());
        let own = measured.map(|sample| {
            let own = config.of_sample(shape, &self.lengths(sample, config));
            own.map(|own| own.cache).with_context(|| format!("sample {}", self.name(sample).0))
        });
        let own: Vec<CacheSpec> = own.collect::<Result<_>>()?;
        Ok(own.into_iter().max_by_key(|cache| cache.rule.size()).unwrap_or(config.cache))
    }

    /// Samples of the largest batch, all of which are in memory at once.
    pub fn largest_batch(&self) -> usize {
        self.batches().iter().map(ExactSizeIterator::len).max().unwrap_or(1)
    }
}

/// What was measured for one sample, and what it took.
#[derive(Clone, Debug, Default)]
pub struct SampleResult {
    pub sums: Vec<MetricSum>,
    /// Without the shared prefix, except for the full cache itself.
    pub seconds: f64,
    /// What the cache held; `None` where that is not known.
    pub memory: Option<CacheMemory>,
    /// Bytes that this program allocated for the largest cache of the sample, in f32.
    pub allocated_bytes: u64,
    pub prompt_tokens: usize,
    pub new_tokens: usize,
    /// Tables kept beside the rows.
    pub side_files: Vec<SideFile>,
    /// Entries of the cache, where they depend on the sample.
    pub own_size: Option<usize>,
}

impl SampleResult {
    /// What stands for a sample that cannot be measured.
    pub fn not_measured(reason: &anyhow::Error) -> SampleResult {
        let output = Some(format!("{reason:#}"));
        let sums = vec![MetricSum { output, ..MetricSum::new(NOT_MEASURED, 1.0, 1.0) }];
        SampleResult { sums, ..SampleResult::default() }
    }
}

/// A table of a sample, kept in a file of its own.
#[derive(Clone, Debug)]
pub struct SideFile {
    /// The part of the file's name after the sample's; may be empty.
    pub kind: &'static str,
    pub table: Table,
}
