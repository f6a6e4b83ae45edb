//! `write`: texts that continue one prompt under one cache rule, as one JSON object.

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::output::print;
use super::text_args::TextArguments;
use crate::lm::machine_name;
use crate::text::WriteSettings;

/// Write texts under one cache rule and print their tokens as JSON
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    text: TextArguments,
    /// The most tokens to write
    #[arg(long, default_value = "200", value_name = "N")]
    max_new_tokens: NonZeroUsize,
    /// 0 always takes the most likely token
    #[arg(long, default_value_t = 0.0, value_name = "T")]
    temperature: f64,
    /// Sample from the K most likely tokens only
    #[arg(long, value_name = "K")]
    top_k: Option<NonZeroUsize>,
    /// Sample from the fewest tokens that together reach this probability
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Divide the logits of tokens that have occurred; 1 changes nothing
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    repetition_penalty: f32,
    /// A string that ends a text; may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Continue after the model's end-of-text tokens
    #[arg(long)]
    ignore_eos: bool,
    /// Put the model's chat template around the text
    #[arg(long, conflicts_with = "tokens")]
    chat: bool,
    /// Write N texts side by side, as N commands with consecutive seeds would
    #[arg(long, default_value = "1", value_name = "N")]
    batch: NonZeroUsize,
    /// Add "timing": seconds of reading and of writing, tokens per second
    #[arg(long)]
    timing: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let text = &arguments.text;
    let own = text.definitions()?;
    let cache = text.cache();
    let settings = WriteSettings {
        max_new_tokens: arguments.max_new_tokens.get(),
        temperature: arguments.temperature,
        top_k: arguments.top_k.map(usize::from),
        top_p: arguments.top_p,
        repetition_penalty: arguments.repetition_penalty,
        stop: arguments.stop.clone(),
        ignore_eos: arguments.ignore_eos,
        batch: arguments.batch.get(),
    };
    // Before the model is loaded.
    cache.check(&own)?;
    settings.sampling()?;
    let pool = text.thread_pool()?;
    let (files, source) = (text.files()?, text.source()?);
    let model = text.load(files)?;
    let prompt = source.tokens(&model, arguments.chat)?;
    let cache = cache.spec(&own, model.written_length(&prompt, &settings)?)?;
    let written = pool.install(|| model.write(&prompt, &cache, &settings, text.chunk()))?;
    let texts = written.texts.iter();
    let texts = texts.map(|text| json!({"tokens": text.tokens, "text": text.text, "ended": text.ended}));
    let mut answer = json!({ "prompt_tokens": written.prompt_tokens, "texts": texts.collect::<Vec<_>>() });
    if arguments.timing {
        let tokens: usize = written.texts.iter().map(|text| text.tokens.len()).sum();
        answer["timing"] = json!({
            "machine": machine_name(model.model.device(), pool.current_num_threads()),
            "threads": pool.current_num_threads(),
            "read_seconds": written.read_seconds,
            "write_seconds": written.write_seconds,
            "tokens_per_second": tokens as f64 / written.write_seconds,
            "cache_bytes": written.texts.iter().map(|text| text.cache_bytes).max(),
        });
    }
    print(&format!("{answer}\n"))
}
