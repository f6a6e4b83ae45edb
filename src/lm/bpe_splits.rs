//! How byte-level BPE splits a text before merging, by the names that llama.cpp gives to the ways.
//!
//! GGUF holds the name alone. An unknown one is an error, because another splitting silently gives other tokens.

use anyhow::{Result, bail};
use serde_json::{Value, json};

/// A way of splitting, as parts of a tokenizer.json.
pub(super) struct Split {
    pub normalizer: Value,
    pub pre_tokenizer: Value,
    /// Whether a piece that is a token stays one, whatever the merges say.
    pub ignores_merges: bool,
    /// Whether texts start with BOS where the file does not say.
    pub adds_bos: bool,
}

/// Llama 3's regular expression; Qwen2's takes digits one by one.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The way of a name.
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
        "llama-bpe" => Split { ignores_merges: true, adds_bos: true, ..plain(pattern(LLAMA_3)) },
        "qwen2" => Split { normalizer: json!({"type": "NFC"}), ..plain(pattern(QWEN_2)) },
        _ => bail!(
            "its tokenizer splits texts in the way {name:?}, which is not known here (gpt-2, smollm, llama-bpe and qwen2 are): \
             use the safetensors checkpoint"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tokenizer::Tokenizer;
    use super::*;

    #[test]
    fn digits_and_spaces_are_split_as_each_name_says() {
        let vocab = json!({"1": 0, "2": 1, "a": 2, "\u{120}": 3, "12": 4, "\u{120}a": 5, "'": 6, "s": 7, "'s": 8});
        let merges = ["1 2", "\u{120} a", "' s"];
        // Two digits, a word with the space before it, and an abbreviation.
        for (name, expected) in [
            ("smollm", vec![0, 1, 5, 8]),
            ("gpt-2", vec![4, 5, 8]),
            ("llama-bpe", vec![4, 5, 8]),
            ("qwen2", vec![0, 1, 5, 8]),
        ] {
            let split = named(name).unwrap();
            let file = json!({"version": "1.0", "added_tokens": [], "normalizer": split.normalizer,
                "pre_tokenizer": split.pre_tokenizer, "model": {"type": "BPE", "vocab": vocab, "merges": merges}});
            let tokenizer = Tokenizer::parse(file.to_string().as_bytes(), &Value::Null, None).unwrap();
            assert_eq!(tokenizer.encode("12 a's").unwrap().ids, expected, "{name}");
        }
        assert!(named("default").is_err());
    }
}
