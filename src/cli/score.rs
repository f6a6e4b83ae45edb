//! `score`: NLLs and survivors of one text under one cache rule, as one JSON object.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::output::print;
use super::text_args::TextArguments;
use crate::lm::{LanguageModel, MemoryPlan, ReadStats};
use crate::task::{Piece, pieces};

/// Read one text under one cache rule and print its NLLs and survivors as JSON
///
/// "nll" has one number for each token after the first. With `--policy truncate` the text is cut into pieces of K
/// tokens, each read with an empty cache, as `run` does. If the text begins with BOS, a piece is BOS and K - 1 tokens of
/// the text, and every token of the text has an NLL; otherwise nothing comes before the first token of a piece, and its
/// NLL is null. Survivors are those of the last piece.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    text: TextArguments,
    /// With --timing, read the text N times more and report every time
    #[arg(long, default_value_t = 0, value_name = "N")]
    repeat: usize,
    /// Add "timing": seconds, tokens per second, and the share of each part
    #[arg(long)]
    timing: bool,
}

#[derive(Default)]
struct Reading {
    /// Of every token after the first; `None` if it is the first of a piece, which nothing predicts.
    nll: Vec<Option<f32>>,
    /// (layers)(groups)(entries)
    survivors: Vec<Vec<Vec<u32>>>,
    seconds: f64,
    read: ReadStats,
    cache_bytes: u64,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let text = &arguments.text;
    let (plan, truncated) = text.plan()?;
    let pool = text.thread_pool()?;
    let files = text.files()?;
    let tokens = text.tokens(&files)?;
    let (bos, piece) = match truncated {
        Some(size) => (text.begins_with_bos(&files, &tokens), size),
        None => (false, tokens.len()),
    };
    let pieces: Vec<Piece> = pieces(&tokens, bos, piece).collect();
    let model = text.load(&files)?;
    let answer = pool.install(|| -> Result<Value> {
        let read = || read(&model, &pieces, bos, &plan, text.chunk());
        let reading = read()?;
        let mut answer = json!({ "nll": reading.nll, "survivors": reading.survivors });
        if arguments.timing {
            let mut readings = vec![reading];
            for _ in 0..arguments.repeat {
                readings.push(read()?);
            }
            answer["timing"] = timing(&model, tokens.len(), readings);
        }
        Ok(answer)
    })?;
    print(&format!("{answer}\n"))
}

/// Reads each piece with an empty memory. `bos` says whether they begin with BOS.
fn read(
    model: &LanguageModel,
    pieces: &[Piece],
    bos: bool,
    plan: &MemoryPlan<'_>,
    chunk: usize,
) -> Result<Reading> {
    let started = Instant::now();
    let mut reading = Reading::default();
    for (index, Piece { tokens, start: offset }) in pieces.iter().enumerate() {
        let knows = plan.policy.filter(|policy| policy.score.knows_the_future());
        let future = knows.map(|policy| model.record_attention(tokens, policy.scope)).transpose()?;
        let plan = MemoryPlan { text: tokens.len(), future: future.as_deref(), ..*plan };
        let mut memory = model.new_memory(&plan);
        if index > 0 && !bos {
            reading.nll.push(None);
        }
        for start in (0..tokens.len()).step_by(chunk) {
            let end = (start + chunk).min(tokens.len());
            let states = model.read(&tokens[start..end], &mut memory)?;
            let targets = &tokens[start + 1..(end + 1).min(tokens.len())];
            if !targets.is_empty() {
                let nll = model.nll(&states.narrow(0, 0, targets.len())?, targets)?;
                reading.nll.extend(nll.into_iter().map(Some));
            }
        }
        let in_text = |&position: &u32| if bos && position == 0 { 0 } else { position + *offset as u32 };
        let shifted = |born: &&[u32]| born.iter().map(in_text).collect();
        reading.survivors = memory.survivors().iter().map(|groups| groups.iter().map(shifted).collect()).collect();
        reading.read = memory.stats();
        reading.cache_bytes = reading.cache_bytes.max(memory.bytes());
    }
    reading.seconds = started.elapsed().as_secs_f64();
    Ok(reading)
}

/// Every time, and the parts of the median reading.
fn timing(model: &LanguageModel, tokens: usize, mut readings: Vec<Reading>) -> Value {
    let all: Vec<f64> = readings.iter().map(|reading| reading.seconds).collect();
    readings.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let reading = &readings[readings.len() / 2];
    let (median, work) = (reading.seconds, reading.read);
    let vocabulary = median - work.total.as_secs_f64();
    let rate = |flops: u64, seconds: f64| flops as f64 / seconds / 1e9;
    json!({
        "tokens": tokens,
        "threads": rayon::current_num_threads(),
        "seconds": all,
        "median_seconds": median,
        "tokens_per_second": tokens as f64 / median,
        "cache_bytes": reading.cache_bytes,
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
