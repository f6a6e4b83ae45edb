//! Tokenizers: text to tokens with their places in the text, tokens to text, and whether texts start with BOS.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tokenizers::{AddedToken, ModelWrapper};

use super::guard::guarded;
use super::normalizer::GrowingRules;
use super::source::CheckpointFiles;
use crate::bounded_read;

/// Largest tokenizer.json in bytes; real ones have up to some tens of megabytes.
const MOST_BYTES: u64 = 256 << 20;
/// Largest tokenizer_config.json in bytes.
pub(in crate::lm) const MOST_CONFIG: u64 = 16 << 20;

/// Hint for a tokenizer that GGUF does not describe completely.
pub(in crate::lm) const OTHER_TOKENIZER: &str = "\nhint: name the original tokenizer, a folder or a repository: `tokenizer:` beside `source:` in a sweep, `--tokenizer` on \
     the command line";

/// A model's tokenizer.
pub struct Tokenizer {
    pub(in crate::lm) inner: tokenizers::Tokenizer,
    /// Token that a text starts with, if the model has one.
    pub(in crate::lm) bos: Option<u32>,
    /// Whether the tokenizer's own files name BOS, and not only config.json.
    pub(in crate::lm) names_bos: bool,
    pub(in crate::lm) adds_bos: bool,
    /// Token that the tokenizer's files say ends a text.
    pub(in crate::lm) end: Option<String>,
    /// Whether spaces before English punctuation are left out of written texts.
    pub(in crate::lm) tidies: bool,
    /// Whether it is unknown if a space is added to text after a special token.
    pub(in crate::lm) space_unknown: bool,
    pub(in crate::lm) growing: GrowingRules,
    /// Number of rows of the model's embedding; tokens beyond it cannot be read.
    pub(in crate::lm) rows: usize,
    /// Texts of tokens that were asked for before.
    pub(in crate::lm) texts: Mutex<HashMap<u32, Arc<str>>>,
}

/// Text as tokens.
pub struct Tokens {
    pub ids: Vec<u32>,
    /// Range of bytes of the text that each token stands for.
    pub places: Vec<Range<usize>>,
}

impl Tokenizer {
    /// Number of tokens of [`bytes`](Self::bytes): 256 bytes and BOS.
    pub const BYTES_VOCAB: usize = 257;

    /// Reads `tokenizer.json`, and `tokenizer_config.json` if there is one. `bos` is the BOS token of config.json, used if the
    /// tokenizer's files name none.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or is not a tokenizer.
    pub fn read(file: &Path, config: Option<&Path>, bos: Option<u32>) -> Result<Tokenizer> {
        let files = CheckpointFiles { tokenizer_config: config.map(Path::to_owned), ..CheckpointFiles::default() };
        Tokenizer::of(file, &self::config(&files)?, bos)
    }

    /// Reads `tokenizer.json`; `config` is what [`config`](self::config) has read. See [`read`](Self::read).
    pub(in crate::lm) fn of(file: &Path, config: &Value, bos: Option<u32>) -> Result<Tokenizer> {
        let using = || format!("cannot use the tokenizer {}", file.display());
        let bytes = bounded_read::bytes(file, MOST_BYTES).with_context(using)?;
        Tokenizer::parse(&bytes, config, bos).with_context(using)
    }

    /// Reads a tokenizer from the contents of its two files. See [`read`](Self::read).
    pub(in crate::lm) fn parse(file: &[u8], config: &Value, bos: Option<u32>) -> Result<Tokenizer> {
        let growing = GrowingRules::of(file)?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(file))?;
        // Padding and truncation that the file may ask for are switched off, as in transformers.
        inner.with_padding(None);
        guarded(|| inner.with_truncation(None).map(|_| ()))?;
        // Merges that are left out at random are for training.
        if let ModelWrapper::BPE(model) = inner.get_model()
            && model.dropout.is_some()
        {
            let mut model = model.clone();
            model.dropout = None;
            inner.with_model(model);
        }
        add_tokens(&mut inner, &growing, config)?;
        let named = special_token(config, "bos_token").and_then(|token| inner.token_to_id(token));
        // The token that the tokenizer itself puts before an empty text.
        let own = guarded(|| inner.encode("", true)).ok().and_then(|encoding| encoding.get_ids().first().copied());
        let (names_bos, bos) = (named.is_some(), named.or(bos));
        let adds_bos = config["add_bos_token"].as_bool().unwrap_or(own.is_some() && own == bos);
        let adds_bos = adds_bos && bos.is_some();
        let end = special_token(config, "eos_token").map(str::to_owned);
        let tidies = config["clean_up_tokenization_spaces"] == true;
        let (space_unknown, rows) = (false, usize::MAX);
        let texts = Mutex::default();
        Ok(Tokenizer { inner, bos, names_bos, adds_bos, end, tidies, space_unknown, growing, rows, texts })
    }

    /// Tokenizer in which every byte is a token and BOS is 0.
    ///
    /// # Errors
    ///
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

    /// Splits a text into tokens, without BOS or other special tokens.
    ///
    /// # Errors
    ///
    /// A text that the tokenizer rejects.
    pub fn encode(&self, text: &str) -> Result<Tokens> {
        self.growing.check(text)?;
        let encoding = guarded(|| self.inner.encode(text, false)).context("the text cannot be tokenised")?;
        if let Some(id) = encoding.get_ids().iter().find(|id| **id as usize >= self.rows) {
            bail!("the model cannot read the text, which has {}", self.beyond(*id));
        }
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

    /// Joins tokens to their text; special tokens are skipped.
    ///
    /// # Errors
    ///
    /// Tokens that the tokenizer does not have.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        guarded(|| self.inner.decode(tokens, true)).context("the tokens cannot be decoded")
    }

    /// Text that a model writes with some tokens, as transformers shows it: if the tokenizer's files ask for it
    /// (`clean_up_tokenization_spaces`, as Llama 3's do), spaces before English punctuation are left out.
    ///
    /// # Errors
    ///
    /// Those of [`decode`](Self::decode).
    pub fn written(&self, tokens: &[u32]) -> Result<String> {
        let text = self.decode(tokens)?;
        if !self.tidies {
            return Ok(text);
        }
        let spaced = [" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"];
        Ok(spaced.iter().fold(text, |text, part| text.replace(part, part.trim())))
    }

    /// Whether a written text differs from the text of its tokens.
    pub fn tidies(&self) -> bool {
        self.tidies
    }

    /// Text of one token inside a text, with the space before it.
    ///
    /// # Errors
    ///
    /// A token that the tokenizer does not have.
    pub fn piece(&self, token: u32) -> Result<String> {
        // Many decoders drop a leading space, so decode it after another token.
        let before = self.encode("a")?.ids;
        let start = self.decode(&before)?;
        let whole = self.decode(&[&before[..], &[token]].concat())?;
        Ok(whole.strip_prefix(&start).unwrap_or(&whole).to_string())
    }

    /// Texts of tokens, each with the space before it; for a special token its name, for a part of a character U+FFFD.
    ///
    /// # Errors
    ///
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

    /// Token that stands for an empty context: the tokenizer's BOS, or else the token that ends its texts, as in
    /// lm-evaluation-harness, which does not know a BOS that only config.json has. `stops` are the model's end tokens.
    pub fn prefix(&self, stops: &[u32]) -> Option<u32> {
        let named = self.bos.filter(|_| self.names_bos);
        named.or(self.end_token()).or(self.bos).or(stops.first().copied())
    }

    /// Special tokens whose names are among `texts`.
    pub fn special_among(&self, texts: &[String]) -> Vec<u32> {
        let special = self.special().into_iter();
        special.filter(|token| self.name(*token).is_some_and(|name| texts.contains(&name))).collect()
    }

    /// Name of a token in the vocabulary.
    pub fn name(&self, token: u32) -> Option<String> {
        self.inner.id_to_token(token)
    }

    /// Text of the token that the tokenizer's files say ends a text (`eos_token`). The model's own end may be another.
    pub fn end_of_text(&self) -> Option<&str> {
        self.end.as_deref()
    }

    /// Token that the tokenizer's files say ends a text, if it is in the vocabulary.
    pub fn end_token(&self) -> Option<u32> {
        self.inner.token_to_id(self.end_of_text()?)
    }

    /// Whether texts start with BOS by default.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// Returns the BOS token.
    ///
    /// # Errors
    ///
    /// A model without one.
    pub fn bos(&self) -> Result<u32> {
        let bos = self.bos.context("neither the tokenizer nor config.json names a BOS token; use `bos: false`")?;
        ensure!((bos as usize) < self.rows, "texts cannot start with {}; use `bos: false`", self.beyond(bos));
        Ok(bos)
    }

    /// Describes a token that the model does not have.
    fn beyond(&self, token: u32) -> String {
        let name = self.name(token).unwrap_or_default();
        format!("the token {name:?} (number {token}), beyond the {} rows of the model's embedding", self.rows)
    }

    /// This tokenizer for a model whose embedding has `rows` rows.
    ///
    /// # Errors
    ///
    /// A tokenizer of another model.
    pub(in crate::lm) fn of_embedding(self, rows: usize) -> Result<Tokenizer> {
        self.check_vocabulary(rows)?;
        Ok(Tokenizer { rows, ..self })
    }

    /// Checks that the tokenizer belongs to a model with a vocabulary of `vocab`. Added tokens may lie beyond it, such as those for
    /// images and for padding: texts that have them are refused when they are read.
    ///
    /// # Errors
    ///
    /// Other tokens outside the vocabulary, or far fewer tokens.
    pub fn check_vocabulary(&self, vocab: usize) -> Result<()> {
        let (own, added) = (self.inner.get_vocab(true), self.inner.get_added_tokens_decoder());
        let usual = own.values().filter(|id| !added.contains_key(id));
        let Some(largest) = usual.max().or(own.values().max()) else { bail!("the tokenizer has no tokens") };
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

/// Reads a checkpoint's tokenizer_config.json, with the special tokens that only special_tokens_map.json names; null if there is
/// neither.
///
/// # Errors
///
/// A file that cannot be read.
pub(in crate::lm) fn config(files: &CheckpointFiles) -> Result<Value> {
    let read = |path: &Option<PathBuf>| match path {
        Some(path) => bounded_read::json(path, MOST_CONFIG),
        None => Ok(Value::Null),
    };
    let (mut config, map) = (read(&files.tokenizer_config)?, read(&files.special_tokens_map)?);
    ensure!(
        config.is_object() || config.is_null(),
        "tokenizer_config.json does not hold an object: fetch it again"
    );
    for name in ["bos_token", "eos_token"] {
        if special_token(&config, name).is_none() && !map[name].is_null() {
            config[name] = map[name].clone();
        }
    }
    Ok(config)
}

/// Adds the tokens that tokenizer_config.json has (`added_tokens_decoder`) and tokenizer.json lacks or describes otherwise, as
/// transformers does.
fn add_tokens(inner: &mut tokenizers::Tokenizer, growing: &GrowingRules, config: &Value) -> Result<()> {
    let listed: BTreeMap<u32, AddedToken> = match &config["added_tokens_decoder"] {
        Value::Null => BTreeMap::new(),
        listed => Deserialize::deserialize(listed).context("tokenizer_config.json: added_tokens_decoder")?,
    };
    let known = inner.get_added_tokens_decoder();
    for (id, token) in listed.into_iter().filter(|(id, token)| known.get(id) != Some(token)) {
        let content = token.content.clone();
        growing.check(&content)?;
        guarded(|| inner.add_tokens([token]).map(|_| ()))?;
        ensure!(
            inner.token_to_id(&content) == Some(id),
            "tokenizer_config.json says that {content:?} is token {id}, and tokenizer.json does not have it: save both files anew"
        );
    }
    Ok(())
}

/// Reads a special token of a tokenizer_config.json: a text, or a record with its content.
pub(in crate::lm) fn special_token<'j>(config: &'j Value, name: &str) -> Option<&'j str> {
    config[name].as_str().or_else(|| config[name]["content"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokenizer for tests whose words are joined from letters, with further parts.
    fn of_letters(parts: &Value) -> Result<Tokenizer> {
        let mut file = json!({
            "version": "1.0",
            "added_tokens": [{"id": 4, "content": "<image>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}],
            "model": {"type": "BPE", "dropout": null, "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3},
                "merges": ["a b", "ab ab"]}
        });
        for (name, part) in parts.as_object().unwrap() {
            match part.as_object() {
                Some(own) if file[name].is_object() => file[name].as_object_mut().unwrap().extend(own.clone()),
                _ => file[name] = part.clone(),
            }
        }
        Tokenizer::parse(file.to_string().as_bytes(), &Value::Null, Some(5))
    }

    #[test]
    fn merges_are_not_left_out_at_random() {
        let tokenizer = of_letters(&json!({"model": {"dropout": 0.9}})).unwrap();
        assert!((0..20).all(|_| tokenizer.encode("abab").unwrap().ids == [3]));
    }

    #[test]
    fn only_texts_with_tokens_past_the_embedding_are_refused() {
        let tokenizer = of_letters(&json!({})).unwrap().of_embedding(4).unwrap();
        assert_eq!(tokenizer.encode("abab").unwrap().ids, [3]);
        let error = tokenizer.encode("a<image>").err().unwrap().to_string();
        assert!(error.contains("the token \"<image>\" (number 4), beyond the 4 rows"), "{error}");
        assert!(tokenizer.bos().unwrap_err().to_string().contains("bos: false"));
        assert_eq!(of_letters(&json!({})).unwrap().of_embedding(5).unwrap().encode("<image>").unwrap().ids, [4]);
        // Without a word of its own it is the tokenizer of another model.
        assert!(of_letters(&json!({})).unwrap().of_embedding(3).is_err());
    }

    #[test]
    fn rules_that_feed_each_other_are_stopped() {
        let replace = |found: &str, written: &str| json!({"type": "Replace", "pattern": {"String": found}, "content": written});
        let sequence = |rules: Vec<Value>| json!({"normalizer": {"type": "Sequence", "normalizers": rules}});
        let doubling = of_letters(&sequence(vec![replace("a", "aa"); 60])).unwrap();
        assert_eq!(doubling.encode("b").unwrap().ids, [1]);
        let error = format!("{:#}", doubling.encode("ba").err().unwrap());
        assert!(error.contains("feed each other"), "{error}");
        // Found in turns, by an expression, or by nothing at all.
        let expression = json!({"type": "Replace", "pattern": {"Regex": "[ab]"}, "content": "abab"});
        for rules in [
            (0..60).map(|at| if at % 2 == 0 { replace("a", "bb") } else { replace("b", "aaa") }).collect(),
            vec![expression; 40],
            vec![replace("", "a"); 40],
            vec![json!({"type": "Prepend", "prepend": "a"}); 2000],
        ] {
            assert!(of_letters(&sequence(rules)).is_ok_and(|tokenizer| tokenizer.encode("ab").is_err()));
        }
        // As many that each find something else.
        let apart = ('c'..='z').map(|letter| replace(&letter.to_string(), "ab")).collect();
        assert_eq!(of_letters(&sequence(apart)).unwrap().encode("cz").unwrap().ids, [3]);
        let decoder = json!({"decoder": {"type": "Sequence", "decoders": vec![replace("a", "aa"); 60]}});
        assert!(
            format!("{:#}", of_letters(&decoder).err().unwrap()).contains("the decoder of its tokenizer.json")
        );
        // Added tokens are rewritten while the file is read.
        let added = json!([{"id": 4, "content": "aaaa", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": true, "special": false}]);
        let mut file = sequence(vec![replace("a", "aa"); 60]);
        file["added_tokens"] = added;
        assert!(of_letters(&file).is_err());
        let long = of_letters(&json!({"normalizer": replace("a", &"b".repeat(300))})).err().unwrap();
        assert!(format!("{long:#}").contains("300 bytes at once"), "{long:#}");
        // base64 of bytes that are no table of replacements.
        let none = json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAAEAAAACAAAAYQA="}});
        let error = format!("{:#}", of_letters(&none).err().unwrap());
        assert!(error.contains("precompiled_charsmap is not such a map"), "{error}");
    }

    #[test]
    fn special_tokens_map_names_what_tokenizer_config_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("c"), r#"{"bos_token": "<s>", "eos_token": null}"#).unwrap();
        std::fs::write(path("m"), r#"{"bos_token": "a", "eos_token": {"content": "</s>", "lstrip": false}}"#)
            .unwrap();
        let mut files = CheckpointFiles {
            tokenizer_config: Some(path("c")),
            special_tokens_map: Some(path("m")),
            ..CheckpointFiles::default()
        };
        let names =
            |config: &Value| ["bos_token", "eos_token"].map(|name| special_token(config, name).map(str::to_owned));
        assert_eq!(names(&config(&files).unwrap()), [Some("<s>".into()), Some("</s>".into())]);
        files.tokenizer_config = None;
        let alone = config(&files).unwrap();
        assert_eq!(names(&alone), [Some("a".into()), Some("</s>".into())]);
        let file = json!({"model": {"type": "BPE", "vocab": {"a": 0, "</s>": 1}, "merges": []}});
        let tokenizer = Tokenizer::parse(file.to_string().as_bytes(), &alone, None).unwrap();
        assert_eq!(
            (tokenizer.bos().unwrap(), tokenizer.end_of_text(), tokenizer.end_token()),
            (0, Some("</s>"), Some(1))
        );
        // lm-evaluation-harness reads an empty text after the tokenizer's BOS, else after its end, and does not know config.json's BOS.
        assert_eq!(tokenizer.prefix(&[]), Some(0));
        let without =
            Tokenizer::parse(file.to_string().as_bytes(), &json!({"eos_token": "</s>"}), Some(0)).unwrap();
        assert_eq!((without.bos().unwrap(), without.prefix(&[])), (0, Some(1)));
        std::fs::write(path("c"), "[]").unwrap();
        files.tokenizer_config = Some(path("c"));
        assert!(config(&files).is_err());
    }

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

    /// Compares with transformers 5.2, which decodes these tokens with and without the key.
    #[test]
    fn spaces_before_punctuation_are_left_out_where_the_files_ask_for_it() {
        let vocab: serde_json::Map<String, Value> =
            (' '..='~').enumerate().map(|(id, c)| (c.to_string(), json!(id))).collect();
        let file = json!({"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": vocab, "merges": []}});
        let texts = [
            (
                "if x != y , it 's so . I 'm sure they 've read it , are n't you ?",
                "if x!= y, it's so. I'm sure they've read it, aren't you?",
            ),
            ("a  .  'tis ' so ' here 're", "a .  'tis'so'here're"),
        ];
        for (key, tidies) in [(json!(true), true), (json!(false), false), (Value::Null, false)] {
            let config = json!({"clean_up_tokenization_spaces": key});
            let tokenizer = Tokenizer::parse(file.to_string().as_bytes(), &config, None).unwrap();
            for (text, tidy) in texts {
                let tokens = tokenizer.encode(text).unwrap().ids;
                let whole = tokenizer.decode(&tokens).unwrap();
                assert_eq!(tokenizer.written(&tokens).unwrap(), if tidies { tidy } else { &whole });
            }
        }
    }

    /// Compares with transformers 5.2, which reads these two files.
    #[test]
    fn tokens_that_only_tokenizer_config_lists_are_added() {
        let file = json!({"decoder": {"type": "Fuse"}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}});
        let token = |content: &str, special: bool| {
            json!({"content": content, "lstrip": false, "normalized": false, "rstrip": false, "single_word": false,
                "special": special})
        };
        let parse = |listed: Value| {
            let config = json!({"added_tokens_decoder": listed});
            Tokenizer::parse(file.to_string().as_bytes(), &config, None)
        };
        let tokenizer =
            parse(json!({"3": token("<tool>", false), "2": token("<|end|>", true), "0": token("a", false)}))
                .unwrap();
        let tokens = tokenizer.encode("a<|end|>b<tool>").unwrap().ids;
        assert_eq!(tokens, [0, 2, 1, 3]);
        assert_eq!(tokenizer.decode(&tokens).unwrap(), "ab<tool>");
        let error = format!("{:#}", parse(json!({"7": token("<tool>", false)})).err().unwrap());
        assert!(error.contains("\"<tool>\" is token 7"), "{error}");
    }
}
