//! Which tokens a cache keeps, and for how long.

mod classes;
mod labels;
mod lifetimes;
mod measure;
mod parts_of_speech;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use anyhow::{Result, bail};
use schemars::JsonSchema;
use serde::Deserialize;

pub use lifetimes::Lifetimes;

use self::labels::LabelledSample;
use super::cache::CacheConfig;
use super::canonical::{json, limit_text, list_text};
use super::data::{self, BooksYaml, Bos, CutBooks, Start, Tail, Texts, resolve_bos};
use super::prepared::{Batch, PreparedTask, Report, Samples, TokenCost};
use super::spec::{PrepareContext, Task, TaskSpec};
use crate::metric::MetricSum;
use crate::yaml::{self, ConfigError, Spanned};

/// Which tokens a cache keeps, and for how long: by position, layer, class and part of speech.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetentionYaml {
    /// Where texts come from: a folder of `.txt` files or a `.parquet` file with a `text` column (starting with `./`,
    /// `../` or `/`), a hub data set `owner/name`, `embedded`, `embedded-questions` or `random-words`.
    dataset: Spanned<String>,
    /// Tokens of a sample, BOS included.
    #[schemars(range(min = 2, max = u32::MAX), extend("default" = Texts::DEFAULT_LENGTH))]
    length: Option<Spanned<u64>>,
    /// Text tokens from the start of one sample to the next. By default there is no overlap.
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
    /// The number of samples, from the first, whose rows say when each token was evicted.
    #[schemars(range(min = 0, max = u32::MAX), extend("default" = 1))]
    maps: Option<Spanned<u64>>,
    /// Only these layers of the maps, counted from 0, such as [0, 31]; by default all of them.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    map_layers: Option<Spanned<Vec<Spanned<u64>>>>,
    /// Also keep the log of evictions, as Parquet files beside the cells.
    #[serde(default)]
    eviction_log: bool,
}

impl RetentionYaml {
    /// Checks every value.
    pub fn check(self) -> Result<TaskSpec, ConfigError> {
        let numbers = [&self.length, &self.stride, &self.chunks_per_book];
        let texts = Texts::check(&self.dataset, numbers, self.books, &self.start, (self.bos, self.tail))?;
        let layers =
            |list: Spanned<Vec<_>>| yaml::distinct_counts("map_layers", list.referenced, &list.value, "layer", 0);
        let mut map_layers = self.map_layers.map(layers).transpose()?;
        map_layers.iter_mut().for_each(|layers| layers.sort_unstable());
        let maps = self.maps.as_ref().map(|maps| yaml::count("`maps`", maps, 0)).transpose()?.unwrap_or(1);
        let layers = map_layers.as_ref().filter(|_| maps > 0);
        let layers = layers.map_or_else(|| limit_text(None), |layers| list_text(layers));
        let task = Retention { texts: texts.clone(), maps, map_layers, eviction_log: self.eviction_log };
        let mut spec = TaskSpec::of_texts("retention", &texts, task);
        spec.selection.extend([("maps", maps.to_string()), ("map_layers", layers)]);
        Ok(spec)
    }
}

/// Which tokens of long texts a cache keeps, and for how long.
#[derive(Clone, Debug)]
struct Retention {
    texts: Texts,
    maps: usize,
    map_layers: Option<Vec<usize>>,
    eviction_log: bool,
}

impl Task for Retention {
    fn prepare(&self, _: &TaskSpec, context: &PrepareContext<'_>) -> Result<PreparedTask> {
        let files = context.files;
        let tokenizer = files.tokenizer()?;
        let layers = files.shape.cached_layers().len();
        if let Some(layer) = self.map_layers.iter().flatten().find(|layer| **layer >= layers) {
            bail!("`map_layers` has layer {layer}, and {} has layers 0 to {}", files.source, layers - 1);
        }
        let books = self.texts.read(context.hub)?;
        let (CutBooks { samples, too_short }, pieces) = labels::cut(&books, &self.texts, &tokenizer)?;
        Ok(PreparedTask {
            samples: Box::new(RetentionSamples { task: self.clone(), samples, too_short, pieces }),
            digest: data::digest(&books),
            bos: resolve_bos(&self.texts, &tokenizer)?.is_some(),
        })
    }
}

struct RetentionSamples {
    task: Retention,
    samples: Vec<LabelledSample>,
    too_short: Option<MetricSum>,
    /// The text of each token in them.
    pieces: BTreeMap<u32, String>,
}

impl Samples for RetentionSamples {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn name(&self, sample: usize) -> (&str, &str) {
        let sample = &self.samples[sample].sample;
        (&sample.name, &sample.cluster)
    }

    fn start(&self, sample: usize) -> Option<usize> {
        Some(self.samples[sample].sample.start)
    }

    fn facts(&self, sample: usize) -> Vec<MetricSum> {
        self.too_short.clone().filter(|_| sample == 0).into_iter().collect()
    }

    fn content(&self, sample: usize) -> Option<String> {
        let Retention { maps, map_layers, eviction_log, .. } = &self.task;
        let has_map = sample < *maps;
        let map_layers = map_layers.as_ref().filter(|_| has_map);
        Some(json(&(&self.samples[sample], has_map, map_layers, eviction_log)))
    }

    fn tokens(&self, sample: usize) -> usize {
        self.samples[sample].sample.tokens.len()
    }

    // There is no full-cache prefix: evictions do not depend on it, and long texts have no room for it.
    fn measure(&self, batch: &Batch<'_>, report: Report<'_>) -> ControlFlow<()> {
        batch.each(report, |sample| self.measure_sample(batch.model, sample, &batch.config))
    }

    fn cost(&self, batch: Range<usize>, config: &CacheConfig) -> TokenCost {
        let tokens = self.tokens(batch.start);
        // From the first token on. Where nothing is evicted, nothing is read.
        let parts = config.evicting(tokens).map(|_| 0..tokens).into_iter().collect();
        TokenCost { parts, ..TokenCost::default() }
    }
}
