//! `write`: texts that continue one prompt under one cache rule, as one JSON object.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::error::UsageError;
use super::output::print;
use super::text_args::{TextArguments, with_bos};
use crate::eviction::Positions;
use crate::lm::{
    Generated, GenerationSettings, LanguageModel, MemoryPlan, ModelFiles, PrefilledPrompt, Sampling, Tokenizer,
};
use crate::task::read_text;

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
    /// Read the whole prompt, then evict once, as the paper's released code does
    #[arg(long)]
    one_shot: bool,
    /// Put the model's chat template around the text
    #[arg(long, conflicts_with = "tokens")]
    chat: bool,
    /// Write N texts side by side, with consecutive seeds
    #[arg(long, default_value = "1", value_name = "N")]
    batch: NonZeroUsize,
    /// Add "timing": seconds of reading and of writing, tokens per second
    #[arg(long)]
    timing: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let text = &arguments.text;
    let (plan, truncated) = text.plan()?;
    let pool = text.thread_pool()?;
    let sampling = sampling(arguments)?;
    if arguments.one_shot && text.positions != Positions::Absolute {
        bail!(UsageError::new("--one-shot needs absolute positions", "leave out --positions"));
    }
    let files = text.files()?;
    let mut prompt = if arguments.chat { chat(arguments, &files)? } else { text.tokens(&files)? };
    if let Some(size) = truncated {
        // The paper cuts prompts too, but keeps the question; here there is none, so the last tokens are kept.
        prompt = prompt.split_off(prompt.len().saturating_sub(size));
    }
    let settings = GenerationSettings {
        sampling,
        repetition_penalty: arguments.repetition_penalty,
        stop_tokens: if arguments.ignore_eos { Vec::new() } else { files.stop_tokens()? },
        stop_strings: arguments.stop.clone(),
    };
    // Token ids can be continued without a tokenizer.
    let tokenizer = match files.tokenizer() {
        Err(_) if text.tokens.is_some() && arguments.stop.is_empty() => None,
        tokenizer => Some(tokenizer?),
    };
    let length = prompt.len() + arguments.max_new_tokens.get();
    let plan = MemoryPlan { one_shot: arguments.one_shot, expect: length, text: length, ..plan };
    let model = text.load(&files)?;
    let answer =
        pool.install(|| continuations(arguments, &model, &plan, &prompt, &settings, tokenizer.as_ref()))?;
    print(&format!("{answer}\n"))
}

/// Reads the prompt once, and writes all texts from there.
fn continuations(
    arguments: &Arguments,
    model: &LanguageModel,
    plan: &MemoryPlan,
    prompt: &[u32],
    settings: &GenerationSettings,
    tokenizer: Option<&Tokenizer>,
) -> Result<Value> {
    let started = Instant::now();
    let mut memory = model.new_memory(plan);
    let mut state = None;
    for chunk in prompt.chunks(arguments.text.chunk()) {
        state = Some(model.read(chunk, &mut memory)?.narrow(0, chunk.len() - 1, 1)?);
    }
    let state = state.context("there is no token to read")?;
    if arguments.one_shot && plan.policy.is_some() {
        memory.cut();
    }
    let read_seconds = started.elapsed().as_secs_f64();
    let prefilled = |number: usize| PrefilledPrompt {
        memory: memory.clone(),
        state: state.clone(),
        prompt: prompt.to_vec(),
        seed: arguments.text.seed.wrapping_add(number as u64),
        max_new_tokens: arguments.max_new_tokens.get(),
    };
    let prompts = (0..arguments.batch.get()).map(prefilled).collect();
    let decode = |tokens: &[u32]| tokenizer.map_or(Ok(String::new()), |tokenizer| tokenizer.decode(tokens));
    let started = Instant::now();
    let texts = model.generate(prompts, settings, &decode)?;
    let write_seconds = started.elapsed().as_secs_f64();
    let text = |text: &Generated| json!({"tokens": text.tokens, "text": text.text, "ended": text.ended});
    let mut answer = json!({ "prompt_tokens": prompt.len(), "texts": texts.iter().map(text).collect::<Vec<_>>() });
    if arguments.timing {
        let tokens: usize = texts.iter().map(|text| text.tokens.len()).sum();
        answer["timing"] = json!({
            "threads": rayon::current_num_threads(),
            "read_seconds": read_seconds,
            "write_seconds": write_seconds,
            "tokens_per_second": tokens as f64 / write_seconds,
            "cache_bytes": texts.iter().map(|text| text.cache_bytes).max(),
        });
    }
    Ok(answer)
}

fn sampling(arguments: &Arguments) -> Result<Sampling> {
    let Arguments { temperature, top_k, top_p, .. } = *arguments;
    let usage = |ok: bool, what: &str, hint: &str| if ok { Ok(()) } else { Err(UsageError::new(what, hint)) };
    usage(temperature >= 0.0 && temperature.is_finite(), "--temperature must be a number from 0 up", "try 0.7")?;
    usage(
        top_p.is_none_or(|p| p > 0.0 && p <= 1.0),
        "--top-p must be a probability",
        "write a number above 0, up to 1",
    )?;
    usage(arguments.repetition_penalty > 0.0, "--repetition-penalty must be above 0", "1 changes nothing")?;
    let sampled = temperature > 0.0;
    usage(sampled || (top_k, top_p) == (None, None), "nothing is sampled at temperature 0", "add --temperature")?;
    Ok(if sampled {
        Sampling::Drawn { temperature, top_k: top_k.map(usize::from), top_p }
    } else {
        Sampling::Greedy
    })
}

/// The text inside the model's chat template.
fn chat(arguments: &Arguments, files: &ModelFiles) -> Result<Vec<u32>> {
    let path = arguments.text.text.as_ref().context("--chat needs --text")?;
    let text = read_text(path)?;
    let template = files.chat_template()?;
    let Some(template) = template else { bail!("{} has no chat template; leave out --chat", files.source) };
    let format = template.format()?;
    let text = if format.strip { text.trim() } else { &text };
    with_bos(&files.tokenizer()?, &[format.prefix.as_str(), text, &format.suffix].concat())
}
