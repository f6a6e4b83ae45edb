//! `write`: texts from one prompt under one cache rule, one JSON object.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::args::WriteArguments;
use super::failure::Usage;
use super::score;
use crate::eviction::{CacheRule, Positions};
use crate::lm::{GenerationSettings, MemoryPlan, ModelFiles, PrefilledPrompt, Sampling};

pub fn write(arguments: &WriteArguments) -> Result<Value> {
    let asked = &arguments.text;
    let rule = score::rule(asked)?;
    let threads = super::threads(asked.threads)?;
    let sampling = sampling(arguments)?;
    if arguments.one_shot && asked.positions != Positions::Absolute {
        bail!(Usage::new("--one-shot needs positions that stay", "leave out --positions"));
    }
    let files = score::files(asked)?;
    let mut prompt = if arguments.chat { chat(arguments, &files)? } else { score::tokens(asked, &files)? };
    let policy = match rule {
        CacheRule::Unbounded => None,
        // As the paper cuts prompts, but there is no question here to keep: the last tokens stay.
        CacheRule::Truncate { size } => {
            prompt = prompt.split_off(prompt.len().saturating_sub(size));
            None
        }
        CacheRule::Evict { policy, size } => Some(policy.at(size)?),
    };
    let writing = GenerationSettings {
        sampling,
        repetition_penalty: arguments.repetition_penalty,
        max_new_tokens: arguments.max_new_tokens,
        stop_tokens: if arguments.ignore_eos { Vec::new() } else { files.stop_tokens()? },
        stop_strings: arguments.stop.clone(),
    };
    // Tokens alone need no tokenizer.
    let tokenizer = match files.tokenizer() {
        Err(_) if asked.tokens.is_some() && arguments.stop.is_empty() => None,
        tokenizer => Some(tokenizer?),
    };
    let decode =
        |tokens: &[u32]| tokenizer.as_ref().map_or(Ok(String::new()), |tokenizer| tokenizer.decode(tokens));
    let model = files.load(asked.dtype, &asked.device.open()?)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    pool.install(|| {
        let started = Instant::now();
        let plan = MemoryPlan {
            policy,
            positions: asked.positions,
            seed: asked.seed,
            one_shot: arguments.one_shot,
            expect: prompt.len() + arguments.max_new_tokens,
            ..MemoryPlan::unbounded()
        };
        let mut memory = model.new_memory(&plan);
        let mut state = None;
        for piece in prompt.chunks(asked.chunk as usize) {
            state = Some(model.read(piece, &mut memory)?.narrow(0, piece.len() - 1, 1)?);
        }
        let state = state.context("there is no token to read")?;
        if arguments.one_shot && policy.is_some() {
            model.cut(&mut memory);
        }
        let reading = started.elapsed().as_secs_f64();
        let start = |number: usize| PrefilledPrompt {
            memory: memory.clone(),
            state: state.clone(),
            prompt: prompt.clone(),
            seed: asked.seed.wrapping_add(number as u64),
        };
        let starts = (0..arguments.batch).map(start).collect();
        let started = Instant::now();
        let written = model.generate(starts, &writing, &decode)?;
        let seconds = started.elapsed().as_secs_f64();
        let text = |written: &crate::lm::Generated| json!({"tokens": written.tokens, "text": written.text, "ended": written.ended});
        let mut answer = json!({ "prompt_tokens": prompt.len(), "texts": written.iter().map(text).collect::<Vec<_>>() });
        if arguments.timing {
            let tokens: usize = written.iter().map(|written| written.tokens.len()).sum();
            answer["timing"] = json!({
                "threads": threads,
                "read_seconds": reading,
                "write_seconds": seconds,
                "tokens_per_second": tokens as f64 / seconds,
                "cache_bytes": written.iter().map(|written| written.cache_bytes).max(),
            });
        }
        Ok(answer)
    })
}

fn sampling(arguments: &WriteArguments) -> Result<Sampling> {
    let WriteArguments { temperature, top_k, top_p, .. } = *arguments;
    let usage = |ok: bool, what: &str, hint: &str| if ok { Ok(()) } else { Err(Usage::new(what, hint)) };
    usage(temperature >= 0.0 && temperature.is_finite(), "--temperature is no number from 0 up", "try 0.7")?;
    usage(top_p.is_none_or(|p| p > 0.0 && p <= 1.0), "--top-p is no probability", "write a number from 0 to 1")?;
    usage(top_k != Some(0), "--top-k 0 leaves no token", "start at 1")?;
    usage(arguments.repetition_penalty > 0.0, "--repetition-penalty must be above 0", "1 changes nothing")?;
    usage(arguments.max_new_tokens > 0 && arguments.batch > 0, "there is nothing to write", "ask for 1 or more")?;
    let drawn = temperature > 0.0;
    usage(drawn || (top_k, top_p) == (None, None), "nothing is drawn at temperature 0", "add --temperature")?;
    Ok(if drawn { Sampling::Drawn { temperature, top_k, top_p } } else { Sampling::Greedy })
}

/// The text inside the model's chat template.
fn chat(arguments: &WriteArguments, files: &ModelFiles) -> Result<Vec<u32>> {
    let path = arguments.text.text.as_ref().context("--chat needs --text")?;
    let text = crate::task::read_text(path)?;
    let template = files.chat_template()?;
    ensure!(template.is_some(), "{} has no chat template; leave out --chat", files.source);
    let frame = template.context("just seen")?.format()?;
    let text = if frame.strip { text.trim() } else { &text };
    score::with_bos(&files.tokenizer()?, &[frame.prefix.as_str(), text, &frame.suffix].concat())
}
