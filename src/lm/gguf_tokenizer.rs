//! The tokenizer of a GGUF file.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::bpe_splits;
use super::gguf::{Gguf, integer};

/// Kinds of tokens.
const NORMAL: u64 = 1;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

impl Gguf {
    /// The tokenizer as a tokenizer.json and a tokenizer_config.json describe it.
    pub fn tokenizer(&self) -> Result<(Value, Value)> {
        let kind = self.text("tokenizer.ggml.model")?;
        ensure!(
            kind == "gpt2",
            "its tokenizer is of the kind {kind}; only byte-level BPE (gpt2) is read from GGUF: use the safetensors checkpoint"
        );
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let merges = self.texts("tokenizer.ggml.merges")?;
        let kinds = self.fields.get("tokenizer.ggml.token_type").and_then(|field| field.to_vec().ok());
        let kind = |id: usize| kinds.and_then(|kinds| integer(kinds.get(id)?)).unwrap_or(NORMAL);
        let added = tokens.iter().enumerate().filter(|(id, _)| matches!(kind(*id), CONTROL | USER_DEFINED));
        let added = added.map(|(id, content)| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": kind(id) == CONTROL})
        });
        let split = bpe_splits::named(self.text("tokenizer.ggml.pre")?)?;
        let vocab: serde_json::Map<String, Value> =
            tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), json!(id))).collect();
        let file = json!({
            "version": "1.0",
            "added_tokens": added.collect::<Vec<_>>(),
            "normalizer": split.normalizer,
            "pre_tokenizer": split.pre_tokenizer,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": split.ignores_merges},
        });
        let token = |name: &str| {
            let id = self.fields.get(&format!("tokenizer.ggml.{name}_token_id")).and_then(integer)?;
            tokens.get(usize::try_from(id).ok()?).copied()
        };
        let adds_bos = self.fields.get("tokenizer.ggml.add_bos_token").and_then(|field| field.to_bool().ok());
        let template = self.fields.get("tokenizer.chat_template").and_then(|field| field.to_string().ok());
        let config = json!({
            "bos_token": token("bos"),
            "eos_token": token("eos"),
            "add_bos_token": adds_bos.unwrap_or(split.adds_bos),
            "chat_template": template,
        });
        Ok((file, config))
    }

    fn texts(&self, name: &str) -> Result<Vec<&str>> {
        let list = self.fields.get(name).and_then(|field| field.to_vec().ok());
        let list = list.with_context(|| format!("the list {name} is missing from its metadata"))?;
        list.iter()
            .map(|text| Ok(text.to_string()?.as_str()))
            .collect::<Result<_>>()
            .with_context(|| name.to_owned())
    }
}
