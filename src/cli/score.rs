//! `score`: NLLs and survivors of one text under one cache rule, as one JSON object.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::output::print;
use super::text_args::TextArguments;
use crate::lm::{LanguageModel, machine_name};
use crate::text::{ScoreSettings, Scored, TextLength};

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
    /// The first N tokens are the prompt, after which the schedules cut and cut+16 cut the cache
    #[arg(long, value_name = "N")]
    prompt: Option<usize>,
    /// Add "tokens" and "evictions", a list of [step, layer, head, position]
    #[arg(long)]
    evictions: bool,
    /// With --timing, read the text N times more and report every time
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u64).range(..=10_000))]
    repeat: u64,
    /// Add "timing": seconds, tokens per second, and how long the scan and the vocabulary took
    #[arg(long)]
    timing: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let text = &arguments.text;
    let own = text.definitions()?;
    let cache = text.cache();
    // Before the model is loaded.
    cache.check(&own)?;
    let pool = text.thread_pool()?;
    let (files, source) = (text.files()?, text.source()?);
    let model = text.load(files)?;
    let tokens = source.tokens(&model, false)?;
    let prompt = arguments.prompt;
    let cache = cache.spec(&own, TextLength { prompt, text: tokens.len() })?;
    let settings = ScoreSettings { prompt, chunk: text.chunk(), log: arguments.evictions };
    let score = || pool.install(|| model.score(&tokens, &cache, settings));
    let scored = score()?;
    let mut answer = json!({ "nll": scored.nll, "survivors": scored.survivors });
    if arguments.evictions {
        (answer["tokens"], answer["evictions"]) = (json!(tokens), scored.eviction_rows().collect());
    }
    if arguments.timing {
        let mut readings = vec![scored];
        for _ in 0..arguments.repeat {
            readings.push(score()?);
        }
        answer["timing"] = pool.install(|| timing(&model.model, tokens.len(), readings));
    }
    print(&format!("{answer}\n"))
}

/// The seconds of every reading, and the parts of the median one.
fn timing(model: &LanguageModel, tokens: usize, mut readings: Vec<Scored>) -> Value {
    let all: Vec<f64> = readings.iter().map(|reading| reading.seconds).collect();
    readings.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let reading = &readings[readings.len() / 2];
    let (median, work) = (reading.seconds, reading.read);
    let vocabulary = median - work.total.as_secs_f64();
    json!({
        "tokens": tokens,
        "machine": machine_name(model.device(), rayon::current_num_threads()),
        "threads": rayon::current_num_threads(),
        "seconds": all,
        "median_seconds": median,
        "tokens_per_second": tokens as f64 / median,
        "cache_bytes": reading.cache_bytes,
        "parts_in_seconds": {
            "scan": work.scan.as_secs_f64(),
            "vocabulary": vocabulary,
            "other": work.total.saturating_sub(work.scan).as_secs_f64(),
        },
    })
}
