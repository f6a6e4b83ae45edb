//! Measures which tokens of a sample a cache keeps, and for how long: by position, layer, class and part of speech.
//!
//! Reads the sample and looks only at evictions. Neither attention nor predictions are kept, so a long text takes no more
//! memory than the cache. Where nothing is evicted, nothing is read.

use std::collections::BTreeMap;

use anyhow::Result;

use super::RetentionSamples;
use super::labels::{Label, LabelledSample};
use super::lifetimes::Lifetimes;
use crate::eviction::{CacheRule, SizedPolicy};
use crate::lm::{LanguageModel, Memory};
use crate::metric::{MetricSum, Slice};
use crate::parquet::Table;
use crate::task::cache::{CacheConfig, scores_without_numbers};
use crate::task::data::octave;
use crate::task::prepared::{CHUNK, SampleResult, SideFile};

/// The positions that are reported one by one; beyond them, each octave is one group.
const SINGLE: usize = 32;

impl RetentionSamples {
    /// Measures one sample.
    pub(super) fn measure_sample(
        &self,
        model: &LanguageModel,
        index: usize,
        config: &CacheConfig,
    ) -> Result<SampleResult> {
        let started = std::time::Instant::now();
        let RetentionSamples { task, samples, pieces, .. } = self;
        let text = &samples[index];
        let shape = model.shape();
        let tokens = text.sample.tokens.len();
        let (mut by_head, mut no_numbers) = (None, None);
        let config = &config.of_sample(shape, &text.sample.lengths())?;
        let policy = config.evicting(tokens);
        let (lifetimes, allocated_bytes) = match (config.cache.rule, policy) {
            (CacheRule::Truncate { size }, _) if size < tokens => {
                let lead = usize::from(text.sample.bos.is_some());
                let pieces = Lifetimes::of_pieces(shape.cached_layers().len(), tokens, size, lead);
                (pieces.in_windows(shape), shape.cache_bytes(size, config.cache.options))
            }
            (_, Some(policy)) => {
                let (lifetimes, memory) = read(model, &text.sample.tokens, policy, config)?;
                by_head = config.held_by_head(&memory);
                no_numbers = scores_without_numbers(memory.score_count())?;
                (lifetimes, memory.bytes())
            }
            _ => {
                let all = Lifetimes::new(&vec![1; shape.cached_layers().len()], tokens);
                (all.in_windows(shape), shape.cache_bytes(tokens, config.cache.options))
            }
        };
        let mut sums = mean_lifetimes(&lifetimes, &text.labels);
        sums.extend(by_head);
        sums.extend(no_numbers);
        if policy.is_some() {
            let sizes = shape.most_entries(policy, config.cache.options);
            sums.extend(recent_shares(&lifetimes, sizes.chunks(shape.heads.kv_heads)));
        }
        sums.push(by_token(&lifetimes, &text.sample.tokens, pieces));
        if index < task.maps {
            sums.extend(maps(&lifetimes, task.map_layers.as_deref()));
        }
        let mut side_files = Vec::new();
        if task.eviction_log && policy.is_some() {
            side_files.extend(lifetimes.log());
            side_files.push(SideFile { kind: "tokens", table: tokens_table(text, pieces) });
        }
        let seconds = started.elapsed().as_secs_f64();
        let memory = config.memory(shape, &text.sample.lengths(), None);
        let own_size = config.own_size();
        let measured =
            SampleResult { sums, seconds, memory, allocated_bytes, side_files, ..SampleResult::default() };
        Ok(SampleResult { prompt_tokens: tokens, own_size, ..measured })
    }
}

/// Reads a text with a cache that evicts. Also returns the cache.
fn read(
    model: &LanguageModel,
    tokens: &[u32],
    policy: SizedPolicy,
    config: &CacheConfig,
) -> Result<(Lifetimes, Memory)> {
    let mut memory = model.new_memory(&CacheConfig { log: true, ..*config }.plan(policy, tokens.len()));
    let groups = model.shape().decision_groups(Some(policy), config.cache.options);
    let mut lifetimes = Lifetimes::new(&groups, tokens.len());
    for piece in tokens.chunks(CHUNK) {
        model.read(piece, &mut memory)?;
        lifetimes.add(&memory.take_log());
    }
    Ok((lifetimes, memory))
}

/// Mean lifetimes: of all tokens, and by layer, position, class and part of speech.
fn mean_lifetimes(lifetimes: &Lifetimes, labels: &[Label]) -> Vec<MetricSum> {
    let layers = lifetimes.layers() as f64;
    let mut sums = Vec::new();
    let mut push = |slice: Option<Slice>, steps: f64, tokens: f64| {
        sums.push(MetricSum::new("lifetime", steps, tokens).of_slice(slice));
    };
    let steps = lifetimes.by_token();
    push(None, steps.iter().sum(), steps.len() as f64 * layers);
    for layer in 0..lifetimes.layers() {
        push(
            Some(Slice::number("layer", layer as u64)),
            lifetimes.of_layer(layer).iter().sum(),
            steps.len() as f64,
        );
    }
    // The key orders the slices.
    let mut slices: BTreeMap<(u8, usize), (Slice, [f64; 2])> = BTreeMap::new();
    let mut add = |key: (u8, usize), slice: Slice, steps: f64| {
        let (_, [sum, tokens]) = slices.entry(key).or_insert((slice, [0.0; 2]));
        *sum += steps;
        *tokens += 1.0;
    };
    for (position, (label, steps)) in labels.iter().zip(steps).enumerate() {
        let slice = match position {
            0..SINGLE => Slice::number("position", position as u64),
            _ => octave("position", position),
        };
        add((0, slice.low.unwrap_or(0) as usize), slice, steps);
        add((1, label.class as usize), Slice::named("class", label.class.name()), steps);
        if let Some(tag) = label.tag {
            add((2, tag.index()), Slice::named("tag", tag.name()), steps);
        }
    }
    for (slice, [steps, tokens]) in slices.into_values() {
        push(Some(slice), steps, tokens * layers);
    }
    sums
}

/// The share of the kept entries that Window would keep as well, at the sizes of the heads of each layer: in all layers, and in each that
/// evicts anything.
fn recent_shares<'a>(lifetimes: &Lifetimes, sizes: impl Iterator<Item = &'a [usize]>) -> Vec<MetricSum> {
    let of_layers: Vec<[f64; 2]> =
        sizes.enumerate().map(|(layer, sizes)| lifetimes.recent(layer, sizes)).collect();
    let recent = of_layers.iter().map(|[recent, _]| recent).sum();
    let whole = MetricSum::new("recent_share", recent, of_layers.iter().map(|[_, kept]| kept).sum());
    let of_layer = |(layer, [recent, kept]): (usize, &[f64; 2])| {
        MetricSum::new("recent_share", *recent, *kept).of_slice(Some(Slice::number("layer", layer as u64)))
    };
    let evicting = of_layers.iter().enumerate().filter(|(_, [_, kept])| *kept > 0.0);
    std::iter::once(whole).chain(evicting.map(of_layer)).collect()
}

/// Occurrences and steps (the mean over layers, summed over occurrences) of every text that a token has, as JSON; then the same
/// of the occurrences that at least half of the sample follows, within so many steps. No eviction can be missed there, while
/// a token near the end of a sample may be in the cache for a few steps only because the sample ends.
fn by_token(lifetimes: &Lifetimes, tokens: &[u32], pieces: &BTreeMap<u32, String>) -> MetricSum {
    let layers = lifetimes.layers() as f64;
    let steps = lifetimes.by_token();
    let half = tokens.len() / 2;
    let within = lifetimes.by_token_within(half as u64);
    let mut table: BTreeMap<&str, (u64, f64, u64, f64)> = BTreeMap::new();
    for (position, token) in tokens.iter().enumerate() {
        let sums = table.entry(pieces.get(token).map_or("", String::as_str)).or_default();
        sums.0 += 1;
        sums.1 += steps[position] / layers;
        if position + half <= tokens.len() {
            sums.2 += 1;
            sums.3 += within[position] / layers;
        }
    }
    // A tenth of a step is precise enough for a mean.
    let round = |sum: &mut f64| *sum = (10.0 * *sum).round() / 10.0;
    table.values_mut().for_each(|sums| [&mut sums.1, &mut sums.3].into_iter().for_each(round));
    let output = Some(serde_json::to_string(&table).expect("a map of texts and numbers is JSON"));
    MetricSum { output, ..MetricSum::new("lifetime_by_token", steps.iter().sum(), steps.len() as f64 * layers) }
}

/// The steps at which tokens were evicted, for some layers, and for each key-value head where heads decide by themselves.
fn maps(lifetimes: &Lifetimes, layers: Option<&[usize]>) -> Vec<MetricSum> {
    let mut sums = Vec::new();
    for layer in (0..lifetimes.layers()).filter(|layer| layers.is_none_or(|layers| layers.contains(layer))) {
        let groups = lifetimes.left(layer);
        for (head, left) in groups.iter().enumerate() {
            let slice = Slice::number("layer", layer as u64);
            let slice = if groups.len() == 1 { slice } else { slice.and("head", head as u64) };
            let steps: u64 = (0..left.len()).map(|token| lifetimes.steps(left, token)).sum();
            let list: Vec<String> = left.iter().map(u32::to_string).collect();
            let sum = MetricSum::new("kept_until", steps as f64, left.len() as f64).of_slice(Some(slice));
            sums.push(MetricSum { output: Some(list.join(" ")), ..sum });
        }
    }
    sums
}

/// The tokens whose positions the log has.
fn tokens_table(text: &LabelledSample, pieces: &BTreeMap<u32, String>) -> Table {
    let (tokens, labels) = (&text.sample.tokens, &text.labels);
    let mut table = Table::default();
    table.push("position", (0..tokens.len() as u32).collect::<Vec<_>>());
    table.push("token", tokens.clone());
    table.push(
        "text",
        tokens.iter().map(|token| pieces.get(token).cloned().unwrap_or_default()).collect::<Vec<_>>(),
    );
    table.push("start", labels.iter().map(|label| label.start).collect::<Vec<_>>());
    table.push("end", labels.iter().map(|label| label.end).collect::<Vec<_>>());
    table.push("class", labels.iter().map(|label| label.class.name().to_owned()).collect::<Vec<_>>());
    table.push("tag", labels.iter().map(|label| label.tag.map(|tag| tag.name().to_owned())).collect::<Vec<_>>());
    table
}
