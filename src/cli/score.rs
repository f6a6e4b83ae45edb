//! `score`: one text, one cache rule, one JSON object.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::args::{ScoreArguments, TextArguments};
use super::failure::Usage;
use super::progress::Downloads;
use crate::eviction::{CacheRule, Policy, presets};
use crate::lm::source::{HubSettings, ModelSource};
use crate::lm::{LanguageModel, MemoryPlan, ModelFiles, ReadStats, Tokenizer};

/// One reading of a text.
struct Reading {
    /// `None` where nothing came before the token.
    nll: Vec<Option<f32>>,
    /// (layers)(groups)(entries)
    survivors: Vec<Vec<Vec<u32>>>,
    seconds: f64,
    read: ReadStats,
    cache_bytes: u64,
}

pub fn score(arguments: &ScoreArguments) -> Result<Value> {
    let asked = &arguments.text;
    let rule = rule(asked)?;
    let threads = super::threads(asked.threads)?;
    let files = files(asked)?;
    let tokens = tokens(asked, &files)?;
    let device = asked.device.open()?;
    let model = files.load(asked.dtype, &device)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    pool.install(|| {
        let reading = read(&model, &tokens, rule, asked)?;
        let mut answer = json!({ "nll": reading.nll, "survivors": reading.survivors });
        if arguments.timing {
            let mut runs = vec![reading];
            for _ in 0..arguments.repeat {
                runs.push(read(&model, &tokens, rule, asked)?);
            }
            answer["timing"] = timing(&model, tokens.len(), threads, &runs);
        }
        Ok(answer)
    })
}

/// The model's files.
pub(super) fn files(asked: &TextArguments) -> Result<ModelFiles> {
    let source: ModelSource = asked.model.parse().map_err(Usage::from_error)?;
    ModelFiles::find(&source, &HubSettings::from_env()?, &Downloads::new())
}

/// Bytes of a list of tokens.
const MOST_LISTED: u64 = 256 << 20;

/// The text in tokens; at least one.
pub(super) fn tokens(asked: &TextArguments, files: &ModelFiles) -> Result<Vec<u32>> {
    let tokens: Vec<u32> = match (&asked.tokens, &asked.text) {
        (Some(path), _) => {
            let text = crate::bounded_read::text(path, MOST_LISTED)
                .with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_str(&text)
                .with_context(|| format!("{} is no JSON list of token ids such as [1, 15, 9]", path.display()))?
        }
        (None, Some(path)) => with_bos(&files.tokenizer()?, &crate::task::read_text(path)?)?,
        (None, None) => bail!(Usage::new("either --tokens or --text is needed", "")),
    };
    ensure!(!tokens.is_empty(), "there is no token to read");
    Ok(tokens)
}

/// A text's tokens, after BOS where the tokenizer adds it and the text does not.
pub(super) fn with_bos(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let ids = tokenizer.encode(text)?.ids;
    let bos = if tokenizer.adds_bos() { Some(tokenizer.bos()?) } else { None };
    Ok(bos.filter(|bos| ids.first() != Some(bos)).into_iter().chain(ids).collect())
}

pub(super) fn rule(asked: &TextArguments) -> Result<CacheRule> {
    let size = || {
        asked.cache_size.ok_or_else(|| {
            Usage::new(format!("policy {} needs a size", asked.policy), "add --cache-size K, such as 64")
        })
    };
    Ok(match asked.policy.as_str() {
        "full" => CacheRule::Unbounded,
        "truncate" => {
            let size = size()?;
            if size < 2 {
                bail!(Usage::new(format!("truncate to {size} tokens scores nothing"), "sizes start at 2"));
            }
            CacheRule::Truncate { size }
        }
        name => {
            let policy: Policy = presets::by_name(name).ok_or_else(|| {
                Usage::new(format!("there is no policy {name:?}"), "see `tova-bench list policies`")
            })?;
            policy.at(size()?).map_err(Usage::from_error)?;
            CacheRule::Evict { policy, size: size()? }
        }
    })
}

fn read(model: &LanguageModel, tokens: &[u32], rule: CacheRule, arguments: &TextArguments) -> Result<Reading> {
    let started = Instant::now();
    let plan = MemoryPlan {
        policy: match rule {
            CacheRule::Evict { policy, size } => Some(policy.at(size)?),
            _ => None,
        },
        positions: arguments.positions,
        seed: arguments.seed,
        ..MemoryPlan::unbounded()
    };
    let piece = match rule {
        CacheRule::Truncate { size } => size,
        _ => tokens.len(),
    };
    let mut reading = Reading {
        nll: Vec::new(),
        survivors: Vec::new(),
        seconds: 0.0,
        read: ReadStats::default(),
        cache_bytes: 0,
    };
    for (index, piece_tokens) in tokens.chunks(piece).enumerate() {
        let mut memory = model.new_memory(&plan);
        if index > 0 {
            reading.nll.push(None);
        }
        let chunk = arguments.chunk as usize;
        for start in (0..piece_tokens.len()).step_by(chunk) {
            let end = (start + chunk).min(piece_tokens.len());
            let states = model.read(&piece_tokens[start..end], &mut memory)?;
            let targets = &piece_tokens[start + 1..(end + 1).min(piece_tokens.len())];
            if !targets.is_empty() {
                let nll = model.nll(&states.narrow(0, 0, targets.len())?, targets)?;
                reading.nll.extend(nll.into_iter().map(Some));
            }
        }
        let offset = (index * piece) as u32;
        let shifted = |born: &&[u32]| born.iter().map(|position| position + offset).collect();
        reading.survivors = memory.survivors().iter().map(|groups| groups.iter().map(shifted).collect()).collect();
        reading.read = memory.stats();
        reading.cache_bytes = reading.cache_bytes.max(memory.bytes());
    }
    reading.seconds = started.elapsed().as_secs_f64();
    Ok(reading)
}

fn timing(model: &LanguageModel, tokens: usize, threads: usize, runs: &[Reading]) -> Value {
    let mut seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
    let all = seconds.clone();
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let run = runs.iter().min_by(|a, b| (a.seconds - median).abs().total_cmp(&(b.seconds - median).abs()));
    let run = run.expect("there is at least one run");
    let work = run.read;
    let vocabulary = run.seconds - work.total.as_secs_f64();
    let rate = |flops: u64, seconds: f64| flops as f64 / seconds / 1e9;
    json!({
        "tokens": tokens,
        "threads": threads,
        "seconds": all,
        "median_seconds": median,
        "tokens_per_second": tokens as f64 / median,
        "cache_bytes": run.cache_bytes,
        "parts_in_seconds": {
            "walk": work.scan.as_secs_f64(),
            "attention_products": work.attention_products.as_secs_f64(),
            "attention_rest": work.attention_rest.as_secs_f64(),
            "dense": work.dense.as_secs_f64(),
            "vocabulary": vocabulary,
            "other": work.total.as_secs_f64()
                - (work.scan + work.attention_products + work.attention_rest + work.dense).as_secs_f64(),
        },
        "gflop_per_second": {
            "attention_products": rate(work.attention_flops, work.attention_products.as_secs_f64()),
            "dense": rate(work.dense_flops, work.dense.as_secs_f64()),
            "vocabulary": rate(model.logit_flops(tokens), vocabulary),
        },
    })
}
