//! `score`: one text, one cache rule, one JSON object.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::args::ScoreArguments;
use super::failure::Usage;
use super::progress::Downloads;
use crate::eviction::{CacheRule, Policy, presets};
use crate::lm::source::{HubSettings, ModelSource};
use crate::lm::{LanguageModel, MemoryPlan, ModelFiles, Work};

/// One reading of a text.
struct Reading {
    /// `None` where nothing came before the token.
    nll: Vec<Option<f32>>,
    /// (layers)(groups)(entries)
    survivors: Vec<Vec<Vec<u32>>>,
    seconds: f64,
    read: Work,
    cache_bytes: u64,
}

pub fn score(arguments: &ScoreArguments) -> Result<Value> {
    let rule = rule(arguments)?;
    let threads = super::threads(arguments.threads)?;
    let source: ModelSource = arguments.model.parse().map_err(Usage::from_error)?;
    let files = ModelFiles::find(&source, &HubSettings::from_env()?, &Downloads::new())?;
    let tokens = match (&arguments.tokens, &arguments.text) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_str(&text)
                .with_context(|| format!("{} is no JSON list of token ids such as [1, 15, 9]", path.display()))?
        }
        (None, Some(path)) => {
            let text = crate::task::read_text(path)?;
            let tokenizer = files.tokenizer()?;
            let mut tokens = if tokenizer.adds_bos() { vec![tokenizer.bos()?] } else { Vec::new() };
            tokens.extend(tokenizer.encode(&text)?.ids);
            tokens
        }
        (None, None) => bail!(Usage::new("either --tokens or --text is needed", "")),
    };
    ensure!(!tokens.is_empty(), "there is no token to read");
    let device = arguments.device.open()?;
    let model = files.load(arguments.dtype, &device)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    pool.install(|| {
        let reading = read(&model, &tokens, rule, arguments)?;
        let mut answer = json!({ "nll": reading.nll, "survivors": reading.survivors });
        if arguments.timing {
            let mut runs = vec![reading];
            for _ in 0..arguments.repeat {
                runs.push(read(&model, &tokens, rule, arguments)?);
            }
            answer["timing"] = timing(&model, tokens.len(), threads, &runs);
        }
        Ok(answer)
    })
}

fn rule(arguments: &ScoreArguments) -> Result<CacheRule> {
    let size = || {
        arguments.cache_size.ok_or_else(|| {
            Usage::new(format!("policy {} needs a size", arguments.policy), "add --cache-size K, such as 64")
        })
    };
    Ok(match arguments.policy.as_str() {
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

fn read(model: &LanguageModel, tokens: &[u32], rule: CacheRule, arguments: &ScoreArguments) -> Result<Reading> {
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
    let mut reading =
        Reading { nll: Vec::new(), survivors: Vec::new(), seconds: 0.0, read: Work::default(), cache_bytes: 0 };
    for (index, piece_tokens) in tokens.chunks(piece).enumerate() {
        let mut memory = model.new_memory(&plan);
        if index > 0 {
            reading.nll.push(None);
        }
        let chunk = arguments.chunk.map_or(piece_tokens.len(), |chunk| chunk as usize);
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
        reading.read = memory.work();
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
            "walk": work.walk.as_secs_f64(),
            "attention_products": work.attention_products.as_secs_f64(),
            "attention_rest": work.attention_rest.as_secs_f64(),
            "dense": work.dense.as_secs_f64(),
            "vocabulary": vocabulary,
            "other": work.total.as_secs_f64()
                - (work.walk + work.attention_products + work.attention_rest + work.dense).as_secs_f64(),
        },
        "gflop_per_second": {
            "attention_products": rate(work.attention_flops, work.attention_products.as_secs_f64()),
            "dense": rate(work.dense_flops, work.dense.as_secs_f64()),
            "vocabulary": rate(model.logit_flops(tokens), vocabulary),
        },
    })
}
