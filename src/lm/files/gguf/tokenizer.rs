//! The tokenizer of a GGUF file: byte-level BPE from its merges, or SentencePiece BPE from its scores.

use std::collections::HashMap;
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

use super::super::guard::guarded;
use super::super::normalizer::GrowingRules;
use super::super::tokenizer::{OTHER_TOKENIZER, Tokenizer};
use super::{Gguf, splits};
use crate::lm::shape::matrices::EMBEDDING;

/// Kinds of tokens in GGUF.
const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

/// Tokens of a file.
struct Vocabulary<'f> {
    tokens: Vec<&'f str>,
    kinds: Vec<u64>,
    ids: HashMap<&'f str, u32>,
}

/// Model of a tokenizer and the parts around it.
struct Parts {
    model: BPE,
    /// Normalizer, pre-tokenizer and decoder as in a tokenizer.json.
    around: Value,
    adds_bos: bool,
    /// Whether a space is put in front of texts.
    adds_space: bool,
}

impl Gguf {
    /// Builds the tokenizer, checked against the embedding.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        self.read_tokenizer().map_err(|error| anyhow!("{error:#}{OTHER_TOKENIZER}"))
    }

    fn read_tokenizer(&self) -> Result<Tokenizer> {
        let kind = self.text("tokenizer.ggml.model")?;
        ensure!(
            ["gpt2", "llama"].contains(&kind),
            "tokenizer.ggml.model is {kind:?}; only byte-level BPE (gpt2) and SentencePiece BPE (llama) are read from GGUF"
        );
        let vocabulary = self.vocabulary()?;
        let parts = if kind == "gpt2" { self.byte_level(&vocabulary)? } else { self.sentence_piece(&vocabulary)? };
        let file = json!({
            "version": "1.0",
            "added_tokens": [],
            "normalizer": parts.around["normalizer"],
            "pre_tokenizer": parts.around["pre_tokenizer"],
            "decoder": parts.around["decoder"],
            "model": {"type": "BPE", "vocab": {}, "merges": []},
        });
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(file.to_string()))?;
        inner.with_model(parts.model);
        let added = vocabulary
            .of_kinds(&[UNKNOWN, CONTROL, USER_DEFINED])
            .map(|(id, token)| AddedToken::from(token, vocabulary.kinds[id] != USER_DEFINED).normalized(false));
        guarded(|| inner.add_tokens(added))?;
        let bos = self.special_token("bos", vocabulary.tokens.len())?;
        let adds_bos = self.flag("add_bos_token").unwrap_or(parts.adds_bos);
        ensure!(
            bos.is_some() || !adds_bos,
            "texts start with a BOS token, but tokenizer.ggml.bos_token_id is missing from its metadata"
        );
        let space_unknown = parts.adds_space;
        let end = self.special_token("eos", vocabulary.tokens.len())?;
        let end = end.map(|id| vocabulary.tokens[id as usize].to_owned());
        let (tidies, growing, rows) = (false, GrowingRules::default(), usize::MAX);
        let texts = Mutex::default();
        let tokenizer =
            Tokenizer { inner, bos, names_bos: true, adds_bos, end, tidies, space_unknown, growing, rows, texts };
        let rows = self.tensor(EMBEDDING).and_then(|tensor| tensor.shape.first());
        match rows {
            Some(rows) => tokenizer.of_embedding(*rows),
            None => Ok(tokenizer),
        }
    }

    /// Settings that a chat template reads, as a tokenizer_config.json has them.
    pub fn tokenizer_config(&self) -> Result<Value> {
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let text = |name: &str| anyhow::Ok(self.special_token(name, tokens.len())?.map(|id| tokens[id as usize]));
        let template = self.fields.get("tokenizer.chat_template").and_then(Value::as_str);
        Ok(json!({"bos_token": text("bos")?, "eos_token": text("eos")?, "chat_template": template}))
    }

    /// Tokens that end a text, a turn or a message.
    pub fn stop_tokens(&self) -> Vec<u64> {
        ["eos", "eot", "eom"].into_iter().filter_map(|name| self.token_id(name)).collect()
    }

    pub fn token_id(&self, name: &str) -> Option<u64> {
        self.fields.get(&format!("tokenizer.ggml.{name}_token_id"))?.as_u64()
    }

    fn byte_level(&self, vocabulary: &Vocabulary) -> Result<Parts> {
        let split = splits::named(self.text("tokenizer.ggml.pre")?)?;
        let merges = self.texts("tokenizer.ggml.merges")?;
        let pair = |merge: &&str| {
            let (left, right) = merge.split_once(' ')?;
            vocabulary.ids.contains_key(&*[left, right].concat()).then(|| (left.to_owned(), right.to_owned()))
        };
        let pairs: Option<Merges> = merges.iter().map(pair).collect();
        let pairs = pairs.context("tokenizer.ggml.merges has a text that joins no two tokens into a third")?;
        let model = BPE::builder().vocab_and_merges(vocabulary.owned(), pairs).ignore_merges(split.ignores_merges);
        let model = guarded(|| model.build());
        Ok(Parts {
            model: model.context("tokenizer.ggml.merges does not join tokens of tokenizer.ggml.tokens")?,
            around: json!({
                "normalizer": split.normalizer,
                "pre_tokenizer": split.pre_tokenizer,
                "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            }),
            adds_bos: split.adds_bos,
            adds_space: false,
        })
    }

    /// Converts a SentencePiece model of Llama 2 or Gemma as transformers does.
    fn sentence_piece(&self, vocabulary: &Vocabulary) -> Result<Parts> {
        let scores = self.fields.get("tokenizer.ggml.scores").and_then(Value::as_array);
        let scores = scores.context("the list tokenizer.ggml.scores is missing from its metadata")?;
        let scores: Option<Vec<f64>> = scores.iter().map(Value::as_f64).collect();
        let scores = scores.context("tokenizer.ggml.scores is not a list of numbers")?;
        ensure!(
            scores.len() == vocabulary.tokens.len(),
            "tokenizer.ggml.scores has {} entries, tokenizer.ggml.tokens {}",
            scores.len(),
            vocabulary.tokens.len()
        );
        let mut model = BPE::builder()
            .vocab_and_merges(vocabulary.owned(), vocabulary.merges(&scores)?)
            .byte_fallback(true)
            .fuse_unk(true);
        if let Some((_, unknown)) = vocabulary.of_kinds(&[UNKNOWN]).next() {
            model = model.unk_token(unknown.to_owned());
        }
        let adds_space = self.flag("add_space_prefix").unwrap_or(true);
        let mut normalizers = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})];
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if adds_space {
            normalizers.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        Ok(Parts {
            model: guarded(|| model.build())?,
            around: json!({
                "normalizer": {"type": "Sequence", "normalizers": normalizers},
                "decoder": {"type": "Sequence", "decoders": decoders},
            }),
            adds_bos: true,
            adds_space,
        })
    }

    fn vocabulary(&self) -> Result<Vocabulary<'_>> {
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let kinds = match self.fields.get("tokenizer.ggml.token_type").and_then(Value::as_array) {
            Some(kinds) => kinds.iter().map(|kind| kind.as_u64().unwrap_or(NORMAL)).collect(),
            None => vec![NORMAL; tokens.len()],
        };
        ensure!(
            kinds.len() == tokens.len(),
            "tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens {}",
            kinds.len(),
            tokens.len()
        );
        let ids: HashMap<&str, u32> = tokens.iter().copied().zip(0..).collect();
        ensure!(ids.len() == tokens.len(), "tokenizer.ggml.tokens has a token twice");
        Ok(Vocabulary { tokens, kinds, ids })
    }

    /// Reads the token of a field like `tokenizer.ggml.bos_token_id`.
    fn special_token(&self, name: &str, tokens: usize) -> Result<Option<u32>> {
        let field = format!("tokenizer.ggml.{name}_token_id");
        let Some(value) = self.fields.get(&field) else { return Ok(None) };
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < tokens);
        id.map(Some)
            .with_context(|| format!("{field} is {value:?}, and tokenizer.ggml.tokens has {tokens} tokens"))
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.fields.get(&format!("tokenizer.ggml.{name}")).and_then(Value::as_bool)
    }

    fn texts(&self, name: &str) -> Result<Vec<&str>> {
        let list = self.fields.get(name).and_then(Value::as_array);
        let list = list.with_context(|| format!("the list {name} is missing from its metadata"))?;
        let texts = list.iter().map(Value::as_str).collect::<Option<_>>();
        texts.with_context(|| format!("{name} is not a list of texts"))
    }
}

impl<'f> Vocabulary<'f> {
    fn owned(&self) -> Vocab {
        self.ids.iter().map(|(token, id)| ((*token).to_owned(), *id)).collect()
    }

    fn of_kinds<'a>(&'a self, kinds: &'a [u64]) -> impl Iterator<Item = (usize, &'f str)> + 'a {
        let tokens = self.tokens.iter().copied().enumerate();
        tokens.filter(|(id, _)| kinds.contains(&self.kinds[*id]))
    }

    /// Lists every way to join two tokens into a third, as transformers derives them: first those of the third with the highest
    /// score; among ways to one token, that of the lowest numbers first.
    fn merges(&self, scores: &[f64]) -> Result<Merges> {
        let mut ways = Vec::new();
        for (id, token) in self.of_kinds(&[NORMAL]) {
            let cuts = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
            let pairs = cuts.filter_map(|(left, right)| Some((*self.ids.get(left)?, *self.ids.get(right)?)));
            let mut pairs: Vec<_> = pairs.collect();
            pairs.sort_unstable();
            ways.extend(pairs.into_iter().map(|pair| (scores[id], pair)));
        }
        // Files made without a SentencePiece model have one score for all tokens.
        let first = ways.first().map(|(score, _)| *score);
        ensure!(
            ways.len() < 2 || ways.iter().any(|(score, _)| Some(*score) != first),
            "tokenizer.ggml.scores are all equal, so the order of the merges is lost"
        );
        ways.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let text = |id: u32| self.tokens[id as usize].to_owned();
        Ok(ways.into_iter().map(|(_, (left, right))| (text(left), text(right))).collect())
    }
}
