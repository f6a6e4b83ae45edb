//! `list`: what sweeps can name.

use super::args::Listable;
use super::sweeps::BUILT_IN;
use crate::eviction::{SCORES, presets::PRESETS};

pub fn list(what: Listable) -> String {
    match what {
        Listable::Policies => policies(),
        Listable::Scores => {
            let mut text = String::from("A policy is {score, scope: layer | head, keep_first, keep_recent}; scores:\n\n");
            for score in SCORES {
                text += &format!("  {:<22} {}\n", score.name, score.meaning);
            }
            text
        }
        Listable::Tasks => "perplexity   NLL of long texts cut to samples; also KL and top-1 agreement to the full cache\n\
             \x20            and the attention evicted entries would have had (compare_to_full: true)\n\
             \x20            data: a folder of .txt, a .parquet with a text column, owner/name on the hub,\n\
             \x20            random-words, or embedded: books of made-up worlds, where recall of facts is measured\n\
             \x20            as well, by kind and by distance (16 books unless `books:` says otherwise)\n\
             retention    which tokens a cache keeps, and for how long: by position, layer, class and part of speech,\n\
             \x20            with maps (maps, map_layers) and the log of evictions (eviction_log: true); data as above\n\
             squality     questions about stories, answered in a paragraph: ROUGE (512 new tokens)\n\
             qasper       questions about articles, answered in a few words: F1 (128 new tokens)\n\
             \x20            data of both: the original release, ZeroSCROLLS' files, owner/name of its hub layout\n\
             \x20            (tau/zero_scrolls), or embedded; prompt: zeroscrolls or paper\n\
             story        stories on request, one per seed: length, variety, NLL under the full cache; `judge`\n\
             \x20            compares them; request: paper, embedded, or a text of your own\n\
             needle       one fact in a long text, by length and depth; data as for perplexity\n\
             timing       sequences of random tokens decoded to a length, one alone and as many as fit a stated memory:\n\
             \x20            cache bytes, largest batch, tokens/s of prefill and decoding, time to the first token\n\n\
             All that write take write: {prefill: stream | one_shot, query_aware, max_new_tokens, temperature,\n\
             top_k, top_p, repetition_penalty, chat_template, stop}\n"
            .into(),
        Listable::Models => "./folder, ../folder, /folder   a Hugging Face checkpoint (config.json, *.safetensors, tokenizer.json)\n\
             owner/name[@revision]          the same on the hub (HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE)\n\
             pocket                         a small trained model inside the program, for the texts of `embedded`\n\
             random-tiny                    a tiny random model made from a seed\n\
             random-h512-l8-a8-f1408-v8000  random weights of a stated shape: hidden size, layers, attention heads (and\n\
             \x20                              -k2: key-value heads, if they are fewer), MLP size, vocabulary (and -s32:\n\
             \x20                              attention as many times as sharp)\n\n\
             Architectures: Llama (and Yi, SmolLM, TinyLlama, ...), Mistral, Qwen2; f32, f16 and bf16\n"
            .into(),
        Listable::Sweeps => {
            let mut text = String::from("Built in, by name; `run` and `plan` take the first when none is named:\n");
            for (name, yaml) in BUILT_IN {
                text += &format!("\n--- {name} ---\n{yaml}");
            }
            text
        }
    }
}

fn policies() -> String {
    let mut text = String::from("Not policies, but names a sweep may use beside them:\n");
    text += "  full         the unbounded cache; one cell, sizes don't matter\n";
    text += "  truncate     the text in pieces of k tokens, each with an empty cache (the paper's Baseline)\n\n";
    text += "Policies (a number after + keeps that many first tokens for ever; after @ stands where keys are rotated, where it\nis not where the sweep says: window+4@slot, tova@squeezed):\n";
    for preset in PRESETS {
        let name = format!("{}[+I]", preset.name);
        text += &format!(
            "  {name:<16} {}\n{:18} {}\n{:18} {}\n",
            preset.summary, "", preset.policy, "", preset.source
        );
    }
    text + "\nMore can be defined in a sweep, by name:\n  define:\n    \
            tova-r16: {score: last_attention, scope: layer, keep_first: 0, keep_recent: 16}\n"
}
