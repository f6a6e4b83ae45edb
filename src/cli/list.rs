//! `list`: what sweeps can name.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::output::print;
use super::sweep_args::BUILT_IN;
use crate::eviction::{SCORES, presets::PRESETS};

/// List what sweeps can name
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What to list
    #[arg(value_enum, default_value = "policies")]
    what: Listable,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Listable {
    Policies,
    Scores,
    Tasks,
    Models,
    Sweeps,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    print(&match arguments.what {
        Listable::Policies => policies(),
        Listable::Scores => scores(),
        Listable::Tasks => TASKS.into(),
        Listable::Models => MODELS.into(),
        Listable::Sweeps => sweeps(),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn policies() -> String {
    let mut text = String::from(
        "Sweeps may also name these, which are no eviction policies:\n  \
         full         the unbounded cache; one cell, whatever the sizes\n  \
         truncate     the text in pieces of k tokens, each with an empty cache (the paper's Baseline)\n\n\
         Policies. A number after + always keeps that many first tokens; a name after @ sets the positions at which keys\n\
         are rotated, if not those of the sweep: window+4@slot, tova@squeezed\n",
    );
    for preset in PRESETS {
        let name = format!("{}[+I]", preset.name);
        text += &format!(
            "  {name:<16} {}\n{:18} {}\n{:18} {}\n",
            preset.summary, "", preset.policy, "", preset.source
        );
    }
    text + "\nA sweep can define more:\n  define:\n    \
            tova-r16: {score: last_attention, scope: layer, keep_first: 0, keep_recent: 16}\n"
}

fn scores() -> String {
    let mut text = String::from("A policy is {score, scope: layer | head, keep_first, keep_recent}. Scores:\n\n");
    for score in SCORES {
        text += &format!("  {:<22} {}\n", score.name, score.meaning);
    }
    text
}

fn sweeps() -> String {
    let mut text = String::from("Built-in sweeps; `run` and `plan` take the first when none is named:\n");
    for (name, yaml) in BUILT_IN {
        text += &format!("\n--- {name} ---\n{yaml}");
    }
    text
}

const TASKS: &str = "\
perplexity   NLL of long texts, cut into samples; with compare_to_full: true also KL and top-1 agreement with the full
             cache, and the attention that evicted entries would have received
             data: a folder of .txt files, a .parquet file with a text column, owner/name on the hub, random-words,
             or embedded: made-up books, on which recall of facts is measured as well, by kind and by distance
             (16 books unless `books:` says otherwise)
retention    which tokens a cache keeps, and for how long: by position, layer, class and part of speech, with maps
             (maps, map_layers) and a log of evictions (eviction_log: true); data as for perplexity
squality     questions about stories, answered in a paragraph: ROUGE (512 new tokens)
qasper       questions about articles, answered in a few words: F1 (128 new tokens)
             data of both: the original release, ZeroSCROLLS' files, owner/name of a copy on the hub
             (tau/zero_scrolls), or embedded; prompt: zeroscrolls or paper
story        stories on request, one per seed: length, variety, NLL under the full cache; `judge` compares them
             request: paper, embedded, or your own text
needle       one fact in a long text, by length and depth; data as for perplexity
timing       sequences of random tokens, decoded to a given length, one alone and as many as fit a given memory:
             cache bytes, largest batch, tokens/s of prefill and decoding, time to the first token

Tasks that generate text take write: {prefill: stream | one_shot, query_aware, max_new_tokens, temperature,
top_k, top_p, repetition_penalty, chat_template, stop}
";

const MODELS: &str = "\
./folder, ../folder, /folder   a Hugging Face checkpoint (config.json, *.safetensors, tokenizer.json)
owner/name[@revision]          the same on the hub (HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE)
pocket                         a small trained model inside the program, for the texts of `embedded`
random-tiny                    a tiny model with random weights
random-h512-l8-a8-f1408-v8000  random weights of a given shape: hidden size, layers, attention heads (and -k2:
                               key-value heads, if fewer), MLP size, vocabulary (and -s32: attention 32 times as sharp)

Architectures: Llama (and Yi, SmolLM, TinyLlama, ...), Mistral, Qwen2; f32, f16 and bf16
";
