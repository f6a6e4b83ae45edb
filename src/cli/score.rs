//! `score`: NLLs and survivors of one text under one cache rule, as one JSON object.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::output::print;
use super::requests;
use super::text_args::TextArguments;
use crate::lm::{LanguageModel, machine_name};
use crate::text::{CacheSettings, ScoreSettings, Scored, TextLength};

/// Read one text under one cache rule and print its NLLs and survivors as JSON
///
/// "nll" has one number for each token after the first. With `--policy truncate` the text is cut into pieces of K
/// tokens, each read with an empty cache, as `run` does. If the text begins with BOS, a piece is BOS and K - 1 tokens of
/// the text, and every token of the text has an NLL; otherwise nothing comes before the first token of a piece, and its
/// NLL is null. Survivors are those of the last piece. With `--stream`, answers also have "tokens" and "pieces", the text of each;
/// a request with "evictions": true gets a list of [step, layer, head, position] too, and "prompt" is as the option.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    text: TextArguments,
    /// The first N tokens are the prompt, after which the schedules cut and cut+16 cut the cache; a request's "prompt" goes before
    #[arg(long, value_name = "N")]
    prompt: Option<usize>,
    /// With --timing, read the text N times more and report every time
    #[arg(long, default_value_t = 0, value_name = "N", conflicts_with = "stream", value_parser = clap::value_parser!(u64).range(..=10_000))]
    repeat: u64,
    /// Add "timing": seconds, tokens per second, and how long the scan and the vocabulary took
    #[arg(long, conflicts_with = "stream")]
    timing: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let text = &arguments.text;
    let own = text.definitions()?;
    let cache = text.cache();
    // Before the model is loaded.
    cache.check(&own)?;
    let pool = text.thread_pool()?;
    let files = text.files()?;
    let source = if text.stream { None } else { Some(text.source()?) };
    let model = text.load(files)?;
    let score = |tokens: &[u32], prompt: Option<usize>, cache: &CacheSettings, log: bool| -> Result<Scored> {
        let cache = cache.spec(&own, TextLength { prompt, text: tokens.len() })?;
        let settings = ScoreSettings { prompt, chunk: text.chunk(), log };
        pool.install(|| model.score(tokens, &cache, settings))
    };
    let Some(source) = source else {
        return requests::run(|request| {
            let cache = request.cache(&cache)?;
            cache.check(&own)?;
            let prompt = request.take("prompt")?.or(arguments.prompt);
            let log = request.take("evictions")?.unwrap_or(false);
            let tokens = request.tokens(&model, false)?;
            let scored = score(&tokens, prompt, &cache, log)?;
            let pieces = model.pieces(&tokens).ok();
            let mut answer =
                json!({"tokens": tokens, "pieces": pieces, "nll": scored.nll, "survivors": scored.survivors});
            if log {
                answer["evictions"] = scored.eviction_rows().collect();
            }
            Ok(answer)
        });
    };
    let tokens = source.tokens(&model, false)?;
    let scored = score(&tokens, arguments.prompt, &cache, false)?;
    let mut answer = json!({ "nll": scored.nll, "survivors": scored.survivors });
    if arguments.timing {
        let mut readings = vec![scored];
        for _ in 0..arguments.repeat {
            readings.push(score(&tokens, arguments.prompt, &cache, false)?);
        }
        answer["timing"] = pool.install(|| timing(&model.model, tokens.len(), readings));
    }
    print(&format!("{answer}\n"))
}

/// Every time, and the parts of the median reading.
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
