//! `loglikelihood_rolling`: the likelihood of whole texts, in windows of the sweep's length as lm-evaluation-harness cuts them
//! (`get_rolling_token_windows` with a context of one token).

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::definition::Definition;
use super::metric;
use crate::eviction::CacheRule;
use crate::lm::LanguageModel;
use crate::metric::MetricSum;
use crate::task::cache::{CacheConfig, FullCachePrefix};
use crate::task::canonical::json;
use crate::task::data::TextSample;
use crate::task::memory::{CacheMemory, SampleLengths};
use crate::task::perplexity::measure;
use crate::task::prepared::{Batch, PreparedTask, Report, SampleResult, Samples, TokenCost};
use crate::task::request::{Request, by_slice};
use crate::task::spec::{PrepareContext, TaskSpec};

/// A text's windows. Each is read by itself.
pub struct RollingText {
    windows: Vec<TextSample>,
    prefix: u32,
}

/// A row's text.
struct Document {
    request: Request,
    /// Whose words and bytes are counted.
    counted: String,
    text: RollingText,
}

struct Documents {
    definition: Arc<Definition>,
    documents: Vec<Document>,
}

/// Makes samples of the targets of requests.
pub fn prepare(
    definition: &Arc<Definition>,
    spec: &TaskSpec,
    context: &PrepareContext<'_>,
    requests: Vec<Request>,
    digest: String,
) -> Result<PreparedTask> {
    let tokenizer = context.files.tokenizer()?;
    let prefix = tokenizer.prefix(&context.files.stop_tokens()?);
    let prefix = prefix.context("the model has neither a BOS nor an end of text, after which a text begins")?;
    let bos = if tokenizer.adds_bos() { Some(tokenizer.bos()?) } else { None };
    let document = |request: Request| -> Result<Document> {
        let [text, counted] =
            [request.references.first(), request.references.last()].map(|text| text.cloned().unwrap_or_default());
        let tokens: Vec<u32> = bos.into_iter().chain(tokenizer.encode(&text)?.ids).collect();
        let text = RollingText::new(&tokens, prefix, spec.length, (&request.name, &request.cluster));
        Ok(Document { text, counted, request })
    };
    let documents = requests.into_iter().map(document).collect::<Result<_>>()?;
    let samples = Documents { definition: definition.clone(), documents };
    Ok(PreparedTask { samples: Box::new(samples), digest, bos: bos.is_some() })
}

impl RollingText {
    /// The windows of a text's tokens, BOS among them if there is one. `named` are the names of the text and its cluster.
    pub fn new(text: &[u32], prefix: u32, length: usize, (name, cluster): (&str, &str)) -> RollingText {
        let sample = |(tokens, scored)| TextSample {
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            tokens,
            scored,
            ..TextSample::default()
        };
        RollingText { windows: windows(text, prefix, length).into_iter().map(sample).collect(), prefix }
    }

    /// The text's NLL in nats, the seconds that reading took, the most bytes that were allocated for a cache, and what the cache held of
    /// each window.
    ///
    /// # Errors
    /// Tokens that the model does not have, a window that is too long for it, or an interruption.
    pub fn read(&self, model: &LanguageModel, config: &CacheConfig) -> Result<RollingResult> {
        let mut read = RollingResult::default();
        for window in &self.windows {
            let own = config.of_sample(model.shape(), &window.lengths())?;
            let window = self.for_rule(window, own.cache.rule);
            let prefix = FullCachePrefix::read(model, &window.tokens, None, std::slice::from_ref(config))?;
            let result = measure(model, &window, None, config, prefix.as_ref())?;
            let whole = result.sums.iter().filter(|sum| sum.metric == "nll" && sum.slice.is_none());
            read.nll += whole.map(|sum| sum.value).sum::<f64>();
            read.seconds += result.seconds;
            read.allocated_bytes = read.allocated_bytes.max(result.allocated_bytes);
            read.own_size = read.own_size.max(result.own_size);
            read.windows.push((window.scored.len(), result.memory));
        }
        Ok(read)
    }
}

/// What was measured of a text in windows.
#[derive(Debug, Default)]
pub struct RollingResult {
    /// NLL of the text in nats.
    pub nll: f64,
    pub seconds: f64,
    pub allocated_bytes: u64,
    own_size: Option<usize>,
    /// Tokens that each window scores, and what its cache held.
    windows: Vec<(usize, Option<CacheMemory>)>,
}

impl RollingResult {
    /// What the cache held, on average over the scored tokens of all windows.
    fn memory(&self) -> Option<CacheMemory> {
        let windows = self.windows.iter().map(|(scored, memory)| Some((*scored as f64, (*memory)?)));
        let windows: Vec<(f64, CacheMemory)> = windows.collect::<Option<_>>()?;
        let scored: f64 = windows.iter().map(|(scored, _)| scored).sum();
        let mean = |of: fn(&CacheMemory) -> f64| {
            windows.iter().map(|(scored, memory)| scored * of(memory)).sum::<f64>() / scored.max(1.0)
        };
        let peak = windows.iter().map(|(_, memory)| memory.peak).max()?;
        Some(CacheMemory { held: mean(|memory| memory.held), read: mean(|memory| memory.read), peak })
    }
}

impl RollingText {
    /// A window as a rule reads it: one that `truncate` cuts into pieces begins with the prefix, as every piece does.
    fn for_rule<'w>(&self, window: &'w TextSample, rule: CacheRule) -> Cow<'w, TextSample> {
        match rule {
            CacheRule::Truncate { size } if size < window.tokens.len() => {
                let tokens: Vec<u32> = [self.prefix]
                    .into_iter()
                    .chain(window.tokens[window.scored.clone()].iter().copied())
                    .collect();
                let scored = 1..tokens.len();
                Cow::Owned(TextSample { tokens, scored, bos: Some(self.prefix), ..window.clone() })
            }
            _ => Cow::Borrowed(window),
        }
    }
}

/// The windows of a text: what is read and scored, and which of it is scored. Each reads at most `length` tokens and scores as
/// many; the first reads `prefix` before the text, the others as much of the text before as there is room for.
fn windows(text: &[u32], prefix: u32, length: usize) -> Vec<(Vec<u32>, Range<usize>)> {
    let mut windows = Vec::new();
    let mut scored = 0;
    while scored < text.len() {
        let end = (scored + length).min(text.len());
        let tokens = match scored {
            0 => [&[prefix], &text[..end]].concat(),
            _ => text[end - length - 1..end].to_vec(),
        };
        let last = tokens.len();
        windows.push((tokens, last - (end - scored)..last));
        scored = end;
    }
    windows
}

impl Samples for Documents {
    fn len(&self) -> usize {
        self.documents.len()
    }

    fn name(&self, sample: usize) -> (&str, &str) {
        let request = &self.documents[sample].request;
        (&request.name, &request.cluster)
    }

    fn content(&self, sample: usize) -> Option<String> {
        let Document { request, counted, text } = &self.documents[sample];
        Some(json(&(&request.name, &request.cluster, counted, &text.windows)))
    }

    fn tokens(&self, sample: usize) -> usize {
        self.documents[sample].text.windows.iter().map(|window| window.tokens.len()).sum()
    }

    /// Returns the lengths of the sample's longest window; every window has a cache of its own.
    fn lengths(&self, sample: usize, _: &CacheConfig) -> SampleLengths {
        let windows = self.documents[sample].text.windows.iter().map(TextSample::lengths);
        windows.max_by_key(|lengths| lengths.tokens).unwrap_or_else(|| SampleLengths::of_text(0))
    }

    fn full_cache_tokens(&self, configs: &[CacheConfig]) -> usize {
        let windows = self.documents.iter().flat_map(|document| &document.text.windows);
        let longest = windows.map(|window| window.tokens.len()).max().unwrap_or(0);
        configs.iter().map(|config| config.needs(longest, None)).max().unwrap_or(0)
    }

    fn measure(&self, batch: &Batch<'_>, report: Report<'_>) -> ControlFlow<()> {
        batch.each(report, |sample| self.result(batch.model, sample, &batch.config))
    }

    fn cost(&self, batch: Range<usize>, _: &CacheConfig) -> TokenCost {
        let windows = || self.documents[batch.clone()].iter().flat_map(|document| &document.text.windows);
        TokenCost {
            parts: windows().map(|window| 0..window.tokens.len()).collect(),
            scored: windows().map(|window| window.scored.len()).sum(),
            ..TokenCost::default()
        }
    }
}

impl Documents {
    fn result(&self, model: &LanguageModel, sample: usize, config: &CacheConfig) -> Result<SampleResult> {
        let Document { request, counted, text } = &self.documents[sample];
        let read = text.read(model, config)?;
        let metrics =
            self.definition.metrics.iter().filter_map(|metric| metric::of_text(metric, read.nll, counted));
        let sums = metrics.flat_map(|(id, value, weight)| {
            by_slice(request, id, value).map(move |sum| MetricSum { weight, ..sum }).collect::<Vec<_>>()
        });
        Ok(SampleResult {
            sums: sums.collect(),
            seconds: read.seconds,
            memory: read.memory(),
            allocated_bytes: read.allocated_bytes,
            own_size: read.own_size,
            prompt_tokens: self.tokens(sample),
            ..SampleResult::default()
        })
    }
}
