//! One loaded model that reads and continues single texts: what `score`, `write` and the Python module do.

mod cache;
mod score;
mod write;

use anyhow::{Result, bail, ensure};

pub use cache::{CacheSettings, InvalidSettings};
pub use score::Scored;
pub use write::{WriteSettings, Written};

use crate::lm::{Device, LanguageModel, ModelFiles, Tokenizer, WeightType};
use crate::task::clean;

/// A model, and the tokenizer that it has.
pub struct TextModel {
    pub files: ModelFiles,
    pub model: LanguageModel,
    /// Why there is none, where there is none: token ids can be read without one.
    tokenizer: Result<Tokenizer, String>,
}

impl TextModel {
    /// Loads a model whose files were found.
    ///
    /// # Errors
    /// As [`ModelFiles::load`].
    pub fn load(files: ModelFiles, dtype: WeightType, device: &Device) -> Result<TextModel> {
        let tokenizer = files.tokenizer().map_err(|error| format!("{error:#}"));
        let model = files.load(dtype, device)?;
        Ok(TextModel { files, model, tokenizer })
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// A model without one.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.tokenizer.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// A text's tokens, after BOS if the tokenizer adds it and the text does not begin with it; at least one. Wherever the text
    /// comes from, it is [cleaned](clean) as a text file is.
    ///
    /// # Errors
    /// A model without a tokenizer, or a text without tokens.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        with_bos(self.tokenizer()?, &clean(text.to_owned()))
    }

    /// The same for a text inside the model's chat template.
    ///
    /// # Errors
    /// As [`tokens`](Self::tokens), or a model without a template.
    pub fn chat_tokens(&self, text: &str) -> Result<Vec<u32>> {
        let Some(template) = self.files.chat_template()? else {
            bail!("{} has no chat template", self.files.source)
        };
        let format = template.format()?;
        let text = clean(text.to_owned());
        let text = if format.strip { text.trim() } else { &text };
        with_bos(self.tokenizer()?, &[format.prefix.as_str(), text, &format.suffix].concat())
    }

    /// The text of each token, with the space before it; of a special token its name. A part of a character is U+FFFD.
    ///
    /// # Errors
    /// A model without a tokenizer, or a token that it does not have.
    pub fn pieces(&self, tokens: &[u32]) -> Result<Vec<String>> {
        let tokenizer = self.tokenizer()?;
        let special = tokenizer.special();
        let name = |token: u32| tokenizer.name(token).filter(|_| special.contains(&token));
        tokens.iter().map(|token| name(*token).map_or_else(|| tokenizer.piece(*token), Ok)).collect()
    }

    /// Whether tokens begin with the model's BOS.
    pub fn begin_with_bos(&self, tokens: &[u32]) -> bool {
        // config.json may name BOS where there is no tokenizer.
        let bos = self.tokenizer().and_then(Tokenizer::bos).ok().or(self.files.shape.bos);
        bos.is_some() && tokens.first() == bos.as_ref()
    }
}

fn with_bos(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let ids = tokenizer.encode(text)?.ids;
    let bos = if tokenizer.adds_bos() { Some(tokenizer.bos()?) } else { None };
    let tokens: Vec<u32> = bos.filter(|bos| ids.first() != Some(bos)).into_iter().chain(ids).collect();
    ensure!(!tokens.is_empty(), "there is no token to read");
    Ok(tokens)
}
