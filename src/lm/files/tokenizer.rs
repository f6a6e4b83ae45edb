//! Tokenizers: text to tokens with their places in the text, tokens to text, and whether texts start with BOS.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use crate::bounded_read;

/// Bytes of a tokenizer.json; the largest have some tens of megabytes.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes of a tokenizer_config.json.
pub(in crate::lm) const MOST_CONFIG: u64 = 16 << 20;

/// What to do about a tokenizer that GGUF does not describe completely.
pub(in crate::lm) const OTHER_TOKENIZER: &str = "\nhint: name the original tokenizer, a folder or a repository: `tokenizer:` beside `source:` in a sweep, `--tokenizer` on \
     the command line";

/// A model's tokenizer.
pub struct Tokenizer {
    pub(in crate::lm) inner: tokenizers::Tokenizer,
    /// The token a text starts with, if the model has one.
    pub(in crate::lm) bos: Option<u32>,
    pub(in crate::lm) adds_bos: bool,
    /// The token that its files say ends a text.
    pub(in crate::lm) end: Option<String>,
    /// Whether it is unknown if a space is added to text after a special token.
    pub(in crate::lm) space_unknown: bool,
    /// Texts of tokens that were asked for.
    pub(in crate::lm) texts: Mutex<HashMap<u32, Arc<str>>>,
}

/// A tokenised text.
pub struct Tokens {
    pub ids: Vec<u32>,
    /// The bytes of the text each token stands for.
    pub places: Vec<Range<usize>>,
}

impl Tokenizer {
    /// Tokens of [`bytes`](Self::bytes): 256 bytes and BOS.
    pub const BYTES_VOCAB: usize = 257;

    /// Reads `tokenizer.json`, and `tokenizer_config.json` if there is one. `bos` is the BOS token of config.json,
    /// used if the tokenizer's files name none.
    ///
    /// # Errors
    /// A file that cannot be read or is no tokenizer.
    pub fn read(file: &Path, config: Option<&Path>, bos: Option<u32>) -> Result<Tokenizer> {
        let using = || format!("cannot use the tokenizer {}", file.display());
        let bytes = bounded_read::bytes(file, MOST_BYTES).with_context(using)?;
        let config = config.map_or(Ok(Value::Null), |path| bounded_read::json(path, MOST_CONFIG))?;
        Tokenizer::parse(&bytes, &config, bos).with_context(using)
    }

    /// As [`read`](Self::read), from the contents of both files.
    pub(in crate::lm) fn parse(file: &[u8], config: &Value, bos: Option<u32>) -> Result<Tokenizer> {
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(file))?;
        // Padding and truncation that the file may ask for are switched off, as in transformers.
        inner.with_padding(None);
        guarded(|| inner.with_truncation(None).map(|_| ()))?;
        let named = special_token(config, "bos_token").and_then(|token| inner.token_to_id(token));
        // The token that the tokenizer itself puts before an empty text.
        let own = guarded(|| inner.encode("", true)).ok().and_then(|encoding| encoding.get_ids().first().copied());
        let bos = named.or(bos);
        let adds_bos = config["add_bos_token"].as_bool().unwrap_or(own.is_some() && own == bos);
        let adds_bos = adds_bos && bos.is_some();
        let end = special_token(config, "eos_token").map(str::to_owned);
        Ok(Tokenizer { inner, bos, adds_bos, end, space_unknown: false, texts: Mutex::default() })
    }

    /// A tokenizer in which every byte is a token and BOS is 0.
    ///
    /// # Errors
    /// None in practice.
    pub fn bytes() -> Result<Tokenizer> {
        // Bytes are written as printable characters, as in byte-level BPE.
        let mut spelling: Vec<char> =
            tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet().into_iter().collect();
        spelling.sort_unstable();
        let mut vocab = serde_json::Map::from_iter([("<s>".to_string(), json!(0))]);
        vocab.extend(spelling.into_iter().enumerate().map(|(i, c)| (c.to_string(), json!(i + 1))));
        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
            "use_regex": false});
        let file = json!({
            "version": "1.0",
            "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}],
            "pre_tokenizer": byte_level, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocab, "merges": []}
        });
        let config = json!({"bos_token": "<s>", "add_bos_token": true});
        Tokenizer::parse(file.to_string().as_bytes(), &config, None)
    }

    /// Tokens of a text, without BOS or other special tokens.
    ///
    /// # Errors
    /// A text that the tokenizer rejects.
    pub fn encode(&self, text: &str) -> Result<Tokens> {
        let encoding = guarded(|| self.inner.encode(text, false)).context("the text cannot be tokenised")?;
        if self.space_unknown {
            // Mistral 7B v0.1 adds a space there, v0.3 does not.
            let added = self.inner.get_added_tokens_decoder();
            let text_follows = |pair: &&[u32]| added.contains_key(&pair[0]) && !added.contains_key(&pair[1]);
            if let Some(pair) = encoding.get_ids().windows(2).find(text_follows) {
                bail!(
                    "text follows the special token {:?}, and GGUF does not say whether the tokenizer adds a space \
                     there{OTHER_TOKENIZER}",
                    self.name(pair[0]).unwrap_or_default()
                );
            }
        }
        let places = encoding.get_offsets().iter().map(|(start, end)| *start..*end).collect();
        Ok(Tokens { ids: encoding.get_ids().to_vec(), places })
    }

    /// The text of some tokens; special tokens are skipped.
    ///
    /// # Errors
    /// Tokens that the tokenizer does not have.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        guarded(|| self.inner.decode(tokens, true)).context("the tokens cannot be decoded")
    }

    /// The text of one token inside a text, with the space before it.
    ///
    /// # Errors
    /// A token that the tokenizer does not have.
    pub fn piece(&self, token: u32) -> Result<String> {
        // Many decoders drop a leading space, so decode it after another token.
        let before = self.encode("a")?.ids;
        let start = self.decode(&before)?;
        let whole = self.decode(&[&before[..], &[token]].concat())?;
        Ok(whole.strip_prefix(&start).unwrap_or(&whole).to_string())
    }

    /// The text of each token, with the space before it; of a special token its name. A part of a character is U+FFFD.
    ///
    /// # Errors
    /// A token that the tokenizer does not have.
    pub fn texts(&self, tokens: &[u32]) -> Result<Vec<Arc<str>>> {
        let special = self.special();
        let mut known = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let text = |token: &u32| {
            if let Some(text) = known.get(token) {
                return Ok(Arc::clone(text));
            }
            let name = self.name(*token).filter(|_| special.contains(token));
            let text: Arc<str> = name.map_or_else(|| self.piece(*token), Ok)?.into();
            known.insert(*token, Arc::clone(&text));
            Ok(text)
        };
        tokens.iter().map(text).collect()
    }

    /// Special tokens, BOS among them.
    pub fn special(&self) -> BTreeSet<u32> {
        let added = self.inner.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id);
        special.chain(self.bos).collect()
    }

    /// What a text is read after where nothing else is before it: BOS, or else the token that ends texts, as in
    /// lm-evaluation-harness; `stops` are those of the model.
    pub fn prefix(&self, stops: &[u32]) -> Option<u32> {
        self.bos.or(self.end_token()).or(stops.first().copied())
    }

    /// The special tokens whose names are among some texts.
    pub fn special_among(&self, texts: &[String]) -> Vec<u32> {
        let special = self.special().into_iter();
        special.filter(|token| self.name(*token).is_some_and(|name| texts.contains(&name))).collect()
    }

    /// The name of a token in the vocabulary.
    pub fn name(&self, token: u32) -> Option<String> {
        self.inner.id_to_token(token)
    }

    /// The text of the token that the tokenizer's files say ends a text (`eos_token`). The model's own end may be another.
    pub fn end_of_text(&self) -> Option<&str> {
        self.end.as_deref()
    }

    /// The same token by its number, if it is in the vocabulary.
    pub fn end_token(&self) -> Option<u32> {
        self.inner.token_to_id(self.end_of_text()?)
    }

    /// Whether texts start with BOS by default.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// The BOS token.
    ///
    /// # Errors
    /// A model without one.
    pub fn bos(&self) -> Result<u32> {
        self.bos.context("neither the tokenizer nor config.json names a BOS token; use `bos: false`")
    }

    /// Checks that the tokenizer belongs to a model with a vocabulary of `vocab`.
    ///
    /// # Errors
    /// Tokens outside the vocabulary, or far fewer tokens.
    pub fn check_vocabulary(&self, vocab: usize) -> Result<()> {
        let own = self.inner.get_vocab(true);
        let Some(largest) = own.values().max() else { bail!("the tokenizer has no tokens") };
        // Models pad their vocabularies to round numbers, by less than a tenth.
        ensure!(
            (*largest as usize) < vocab && own.len() * 10 >= vocab * 9,
            "the tokenizer has {} tokens up to number {largest}, the model's vocabulary has {vocab}: tokenizer and \
             weights belong to different models",
            own.len()
        );
        Ok(())
    }
}

/// A special token in a tokenizer_config.json: a text, or a record with its content.
pub(in crate::lm) fn special_token<'j>(config: &'j Value, name: &str) -> Option<&'j str> {
    config[name].as_str().or_else(|| config[name]["content"].as_str())
}

/// Turns panics of the library into errors: it unwraps and indexes if a file or a token is not as it expects.
pub(in crate::lm) fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(outcome) => outcome.map_err(|error| anyhow!("{error}")),
        Err(_) => bail!("the tokenizer's file is damaged: the tokenizers library panicked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_tokens() {
        let tokenizer = Tokenizer::bytes().unwrap();
        let tokens = tokenizer.encode("né\n").unwrap();
        assert_eq!(tokens.ids.len(), 4);
        assert!(tokens.ids.iter().all(|id| *id > 0 && (*id as usize) < Tokenizer::BYTES_VOCAB));
        assert_eq!(tokens.places[0], 0..1);
        assert_eq!(tokens.places[3], 3..4);
        assert!(tokenizer.adds_bos());
        assert_eq!(tokenizer.bos().unwrap(), 0);
        assert_eq!(tokenizer.piece(tokens.ids[0]).unwrap(), "n");
        assert_eq!(tokenizer.piece(tokens.ids[3]).unwrap(), "\n");
        assert_eq!(tokenizer.piece(tokens.ids[1]).unwrap(), "\u{FFFD}");
        assert_eq!((tokenizer.special(), tokenizer.name(0).as_deref()), (BTreeSet::from([0]), Some("<s>")));
        tokenizer.check_vocabulary(257).unwrap();
        tokenizer.check_vocabulary(270).unwrap();
        assert!(tokenizer.check_vocabulary(256).is_err());
        assert!(tokenizer.check_vocabulary(2048).is_err());
    }
}
