//! One loaded model that reads and continues single texts: what `score`, `write` and the Python module do.

mod cache;
mod likelihood;
mod score;
mod trace;
mod write;

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};

pub use cache::{CacheSettings, InvalidSettings, TextLength};
pub use likelihood::TextRequests;
pub use score::{ScoreSettings, Scored};
pub use write::WriteSettings;

use crate::lm::{ChatTemplate, Device, LanguageModel, ModelFiles, Tokenizer, WeightType};
use crate::task::clean;

/// A model, and the tokenizer that it has.
pub struct TextModel {
    pub files: ModelFiles,
    pub model: LanguageModel,
    /// Why there is none, where there is none: token ids can be read without one.
    tokenizer: Result<Arc<Tokenizer>, String>,
}

impl TextModel {
    /// Loads a model whose files were found.
    ///
    /// # Errors
    /// As [`ModelFiles::load`].
    pub fn load(files: ModelFiles, dtype: WeightType, device: &Device) -> Result<TextModel> {
        let tokenizer = files.tokenizer().map(Arc::new).map_err(|error| format!("{error:#}"));
        let model = files.load(dtype, device)?.with_tokenizer(tokenizer.as_ref().ok().cloned());
        Ok(TextModel { files, model, tokenizer })
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// A model without one.
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>> {
        self.tokenizer.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// A text's tokens, after BOS if the tokenizer adds it and the text does not begin with it; at least one. Wherever the text
    /// comes from, it is [cleaned](clean) as a text file is.
    ///
    /// # Errors
    /// A model without a tokenizer, or a text without tokens.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        self.some_tokens(&clean(text.to_owned()))
    }

    /// A text's tokens as lm-evaluation-harness reads it: neither cleaned nor refused where there are none, and with `adds_bos`
    /// after BOS as in [`tokens`](Self::tokens).
    ///
    /// # Errors
    /// A model without a tokenizer.
    pub fn raw_tokens(&self, text: &str, adds_bos: bool) -> Result<Vec<u32>> {
        let tokenizer = self.tokenizer()?;
        let ids = tokenizer.encode(text)?.ids;
        let bos = if adds_bos && tokenizer.adds_bos() { Some(tokenizer.bos()?) } else { None };
        Ok(bos.filter(|bos| ids.first() != Some(bos)).into_iter().chain(ids).collect())
    }

    /// The token that stands for an empty context: BOS, or else the first token that ends texts.
    ///
    /// # Errors
    /// A model without a tokenizer, or with neither token.
    pub fn prefix_token(&self) -> Result<u32> {
        let prefix = self.tokenizer()?.prefix(&self.files.stop_tokens()?);
        prefix.context("the model has neither a BOS nor an end of text, after which a text begins")
    }

    /// The tokens of a text as the user's request in the model's chat template.
    ///
    /// # Errors
    /// As [`tokens`](Self::tokens), or a model without a template.
    pub fn chat_tokens(&self, text: &str) -> Result<Vec<u32>> {
        let text = clean(text.to_owned());
        self.some_tokens(&self.chat_template()?.render(&[("user", &text)], true)?)
    }

    fn some_tokens(&self, text: &str) -> Result<Vec<u32>> {
        let tokens = self.raw_tokens(text, true)?;
        ensure!(!tokens.is_empty(), "there is no token to read");
        Ok(tokens)
    }

    /// The model's chat template.
    ///
    /// # Errors
    /// A model without one.
    pub fn chat_template(&self) -> Result<ChatTemplate> {
        let Some(template) = self.files.chat_template()? else {
            bail!("{} has no chat template", self.files.source)
        };
        Ok(template)
    }

    /// The text of each token, with the space before it; of a special token its name. A part of a character is U+FFFD.
    ///
    /// # Errors
    /// A model without a tokenizer, or a token that it does not have.
    pub fn pieces(&self, tokens: &[u32]) -> Result<Vec<String>> {
        Ok(self.tokenizer()?.texts(tokens)?.iter().map(|text| text.to_string()).collect())
    }

    /// Whether tokens begin with the model's BOS.
    pub fn begin_with_bos(&self, tokens: &[u32]) -> bool {
        // config.json may name BOS where there is no tokenizer.
        let bos = self.tokenizer().and_then(|tokenizer| tokenizer.bos()).ok().or(self.files.shape.bos);
        bos.is_some() && tokens.first() == bos.as_ref()
    }
}
