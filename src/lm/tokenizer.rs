//! Text to tokens and back to places in the text; and whether a text starts with BOS.

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use crate::bounded_read;

/// Bytes of a tokenizer.json: the largest have some dozens of megabytes.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes of a tokenizer_config.json.
pub(super) const MOST_CONFIG: u64 = 16 << 20;

/// A model's tokenizer.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The token a text starts with, if the model has one.
    bos: Option<u32>,
    adds_bos: bool,
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

    /// Reads `tokenizer.json`, and `tokenizer_config.json` if there is one.
    ///
    /// `bos` is the model's own idea of BOS (config.json), used where the tokenizer's files are silent.
    ///
    /// # Errors
    /// A file that cannot be read or is no tokenizer.
    pub fn read(file: &Path, config: Option<&Path>, bos: Option<u32>) -> Result<Tokenizer> {
        let using = || format!("cannot use the tokenizer {}", file.display());
        let inner = build(&bounded_read::bytes(file, MOST_BYTES).with_context(using)?).with_context(using)?;
        let config: Value = match config {
            Some(path) => {
                let text = bounded_read::text(path, MOST_CONFIG)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                serde_json::from_str(&text).with_context(|| format!("{} is no valid JSON", path.display()))?
            }
            None => Value::Null,
        };
        Ok(Tokenizer::new(inner, &config, bos))
    }

    /// The same from the contents of both files.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) fn parse(file: &str, config: &str, bos: Option<u32>) -> Result<Tokenizer> {
        let inner = build(file.as_bytes()).context("tokenizer.json")?;
        let config = serde_json::from_str(config).context("tokenizer_config.json is no valid JSON")?;
        Ok(Tokenizer::new(inner, &config, bos))
    }

    fn new(inner: tokenizers::Tokenizer, config: &Value, bos: Option<u32>) -> Tokenizer {
        let named = match &config["bos_token"] {
            Value::String(token) => inner.token_to_id(token),
            token => token["content"].as_str().and_then(|token| inner.token_to_id(token)),
        };
        // What the tokenizer puts before an empty text by itself.
        let own = guarded(|| inner.encode("", true)).ok().and_then(|encoding| encoding.get_ids().first().copied());
        let bos = named.or(bos);
        let adds_bos = match config["add_bos_token"].as_bool() {
            Some(adds) => adds,
            None => own.is_some() && own == bos,
        };
        Tokenizer { inner, bos, adds_bos: adds_bos && bos.is_some() }
    }

    /// A tokenizer that needs no training: every byte is a token, BOS is 0.
    ///
    /// # Errors
    /// None in practice; the library's constructor is fallible.
    pub fn bytes() -> Result<Tokenizer> {
        // Bytes are spelt as printable characters, as byte-level BPE does.
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
        let inner = file.to_string().parse().map_err(|error| anyhow!("the byte tokenizer: {error}"))?;
        Ok(Tokenizer::new(inner, &json!({"bos_token": "<s>", "add_bos_token": true}), None))
    }

    /// Tokens of a text, without BOS or any other token the text does not hold.
    ///
    /// # Errors
    /// A text the tokenizer cannot take.
    pub fn encode(&self, text: &str) -> Result<Tokens> {
        let encoding = guarded(|| self.inner.encode(text, false)).context("the text cannot be tokenised")?;
        let places = encoding.get_offsets().iter().map(|(start, end)| *start..*end).collect();
        Ok(Tokens { ids: encoding.get_ids().to_vec(), places })
    }

    /// The text of some tokens; special tokens have none.
    ///
    /// # Errors
    /// Tokens the tokenizer does not know.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        guarded(|| self.inner.decode(tokens, true)).context("the tokens cannot be made text")
    }

    /// One token as it stands inside a text, the space before it included.
    ///
    /// # Errors
    /// A token the tokenizer does not know.
    pub fn piece(&self, token: u32) -> Result<String> {
        // Many decoders drop the space a text starts with, so another token stands before this one.
        let before = self.encode("a")?.ids;
        let start = self.decode(&before)?;
        let whole = self.decode(&[&before[..], &[token]].concat())?;
        Ok(whole.strip_prefix(&start).unwrap_or(&whole).to_string())
    }

    /// The tokens that are no text, BOS among them.
    pub fn special(&self) -> BTreeSet<u32> {
        let added = self.inner.get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id);
        special.chain(self.bos).collect()
    }

    /// The name a token has in the vocabulary, special tokens included.
    pub fn name(&self, token: u32) -> Option<String> {
        self.inner.id_to_token(token)
    }

    /// Whether a text starts with BOS when nothing is said.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// The token a text starts with.
    ///
    /// # Errors
    /// A model without such a token.
    pub fn bos(&self) -> Result<u32> {
        self.bos.context("neither the tokenizer nor config.json names a BOS token; use `bos: false`")
    }

    /// Checks that these are the tokens a model of `vocab` was made for.
    ///
    /// # Errors
    /// Tokens the model does not have, or far fewer than it has.
    pub fn check_vocabulary(&self, vocab: usize) -> Result<()> {
        let own = self.inner.get_vocab(true);
        let Some(largest) = own.values().max().copied() else { bail!("the tokenizer has no tokens") };
        ensure!(
            (largest as usize) < vocab,
            "the tokenizer has token {largest}, but the model's vocabulary ends at {}; \
             tokenizer.json and the weights belong to different models",
            vocab - 1
        );
        // Vocabularies are padded to round numbers, by less than a tenth.
        ensure!(
            own.len() * 10 >= vocab * 9,
            "the tokenizer has {} tokens, the model's vocabulary {vocab}; \
             tokenizer.json and the weights belong to different models",
            own.len()
        );
        Ok(())
    }
}

/// The tokenizer of a file. Padding and truncation that a file may ask for are for batches, as in transformers: a text is
/// taken as it is.
fn build(file: &[u8]) -> Result<tokenizers::Tokenizer> {
    let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(file))?;
    inner.with_padding(None);
    guarded(|| inner.with_truncation(None).map(|_| ()))?;
    Ok(inner)
}

/// The library unwraps and indexes where a file or a token is not as it expects, so a panic of it is the file's fault.
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(outcome) => outcome.map_err(|error| anyhow!("{error}")),
        Err(_) => bail!("the tokenizer's file is damaged: what it says cannot be carried out"),
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
        // Half a character is none.
        assert_eq!(tokenizer.piece(tokens.ids[1]).unwrap(), "\u{FFFD}");
        assert_eq!((tokenizer.special(), tokenizer.name(0).as_deref()), (BTreeSet::from([0]), Some("<s>")));
        tokenizer.check_vocabulary(257).unwrap();
        tokenizer.check_vocabulary(270).unwrap();
        assert!(tokenizer.check_vocabulary(256).is_err());
        assert!(tokenizer.check_vocabulary(2048).is_err());
    }
}
