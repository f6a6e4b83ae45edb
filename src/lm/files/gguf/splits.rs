//! How byte-level BPE normalises and splits a text before merging, by the names that llama.cpp's converter gives to these ways.
//!
//! GGUF holds the name alone. An unknown name is an error, because another splitting silently gives other tokens. Regular
//! expressions are those of the original tokenizers, not llama.cpp's approximations of them.

use anyhow::{Result, bail};
use serde_json::{Value, json};

/// Way to split texts that a name stands for.
pub(super) struct Split {
    /// Normalizer and pre-tokenizer, as parts of a tokenizer.json.
    pub normalizer: Value,
    pub pre_tokenizer: Value,
    /// Whether a piece that is a token stays one, whatever the merges say.
    pub ignores_merges: bool,
    /// Whether texts start with BOS if the file does not say.
    pub adds_bos: bool,
}

/// Names that [`named`] knows, for messages.
const KNOWN: &str =
    "gpt-2, smollm, llama-bpe (llama3, llama-v3), smaug-bpe, dbrx, qwen2, qwen35, tekken and gpt-4o";

/// Expression of Llama 3, which is cl100k_base's. Qwen 2's takes digits one by one, Qwen 3.5's also keeps marks in words.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_3_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Expression of o200k_base, which splits words before capitals. Tekken's also takes digits one by one and splits off
/// abbreviations.
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Finds the way that a name stands for.
pub(super) fn named(name: &str) -> Result<Split> {
    let bytes = |splits: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": splits});
    let sequence = |first: Value, then: Value| json!({"type": "Sequence", "pretokenizers": [first, then]});
    let pattern = |regex: &str| {
        let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
        sequence(split, bytes(false))
    };
    let plain = |pre_tokenizer: Value| Split {
        normalizer: Value::Null,
        pre_tokenizer,
        ignores_merges: false,
        adds_bos: false,
    };
    Ok(match name {
        "gpt-2" => plain(bytes(true)),
        "smollm" => plain(sequence(json!({"type": "Digits", "individual_digits": true}), bytes(true))),
        "llama-bpe" | "llama3" | "llama-v3" => {
            Split { ignores_merges: true, adds_bos: true, ..plain(pattern(LLAMA_3)) }
        }
        // Llama 3's tokenizer without BOS: SmolLM3, some Llama 3.
        "smaug-bpe" => Split { ignores_merges: true, ..plain(pattern(LLAMA_3)) },
        // cl100k_base: OLMo 2 and 3, Phi-4.
        "dbrx" => plain(pattern(LLAMA_3)),
        // Qwen 1.5 to 3.
        "qwen2" => Split { normalizer: json!({"type": "NFC"}), ..plain(pattern(QWEN_2)) },
        "qwen35" => Split { normalizer: json!({"type": "NFC"}), ..plain(pattern(QWEN_3_5)) },
        // Mistral NeMo and later.
        "tekken" => Split { ignores_merges: true, adds_bos: true, ..plain(pattern(TEKKEN)) },
        // o200k_base: Phi-4-mini.
        "gpt-4o" => plain(pattern(GPT_4O)),
        _ => bail!("tokenizer.ggml.pre is {name:?}, a way to split texts that is not known here ({KNOWN} are)"),
    })
}
