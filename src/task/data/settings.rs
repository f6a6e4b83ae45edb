//! How long texts are cut into samples: the settings that `perplexity` and `retention` share.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::books::{Books, BooksYaml, check_books};
use super::source::{DataSource, check_texts};
use super::start::Start;
use super::texts::{note_fewer, read_books};
use crate::eviction::Amount;
use crate::lm::source::Hub;
use crate::task::canonical::{BOS, Setting, limit_text};
use crate::task::embedded::Book;
use crate::yaml::{self, ConfigError, Spanned};

/// Whether a sample starts with the tokenizer's BOS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Bos {
    /// Whatever the model's tokenizer does.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "true", alias = "True", alias = "TRUE")]
    Always,
    #[serde(rename = "false", alias = "False", alias = "FALSE")]
    Never,
}

impl Bos {
    /// The name in YAML and cell ids.
    pub fn name(self) -> &'static str {
        ["auto", "true", "false"][self as usize]
    }

    pub fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"enum": ["auto", true, false], "default": "auto"})
    }
}

/// What happens to a book's last sample when it is shorter than the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tail {
    /// it is left out
    #[default]
    Drop,
    /// it is a sample of its own
    Keep,
}

impl Tail {
    /// The name in YAML, cell ids and result rows.
    pub fn name(self) -> &'static str {
        ["drop", "keep"][self as usize]
    }
}

/// Long texts, cut into samples of `length` tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    pub dataset: DataSource,
    /// Tokens of a sample, BOS included.
    pub length: usize,
    /// Text tokens from the start of one sample to the next; `None`: no overlap.
    pub stride: Option<usize>,
    pub bos: Bos,
    pub tail: Tail,
    pub books: Books,
    /// Where in a book its samples begin.
    pub start: Start,
    /// Only the first samples of each book; `None`: all.
    pub chunks_per_book: Option<usize>,
    /// The first tokens of a sample that are its prompt, if they are: tokens, or a part of the sample.
    pub prompt: Option<Amount>,
}

impl Texts {
    /// Tokens of a sample unless the sweep says otherwise: the training length of the paper's models.
    pub const DEFAULT_LENGTH: usize = 4096;

    /// Checks the keys that tasks on long texts share.
    ///
    /// # Errors
    /// A number out of its range, or a name that is not a data set.
    pub fn check(
        dataset: &Spanned<String>,
        [length_key, stride, chunks_per_book]: [&Option<Spanned<u64>>; 3],
        books: Option<Spanned<BooksYaml>>,
        start: &Option<Spanned<Start>>,
        (bos, tail): (Bos, Tail),
    ) -> Result<Texts, ConfigError> {
        if let Some(start) = start.as_ref().filter(|start| !matches!(start.value, Start::Token(_)))
            && chunks_per_book.is_none()
        {
            let message = format!("`start: {}` depends on how many samples of a book there are", start.value);
            return yaml::refuse(start.referenced, message, "write `chunks_per_book` too, such as 1");
        }
        Ok(Texts {
            dataset: check_texts(dataset)?,
            length: length(length_key)?,
            stride: yaml::limit("`stride`", stride)?,
            books: check_books(books)?,
            start: start.as_ref().map(|start| start.value).unwrap_or_default(),
            chunks_per_book: yaml::limit("`chunks_per_book`", chunks_per_book)?,
            prompt: None,
            bos,
            tail,
        })
    }

    /// Text tokens of a whole sample, once it is known whether it starts with BOS.
    pub fn text_tokens(&self, bos: bool) -> usize {
        self.length - usize::from(bos)
    }

    /// The stride in text tokens, once it is known whether samples start with BOS.
    pub fn stride(&self, bos: bool) -> usize {
        self.stride.unwrap_or_else(|| self.text_tokens(bos))
    }

    /// The stride in ids: `sample` for no overlap, however the file spelled it. With `bos: auto` a number stays a
    /// number, because only the tokenizer knows whether it is a whole sample.
    fn canonical_stride(&self) -> String {
        let whole = match self.bos {
            Bos::Auto => None,
            Bos::Always => Some(self.text_tokens(true)),
            Bos::Never => Some(self.text_tokens(false)),
        };
        match self.stride {
            Some(stride) if Some(stride) != whole => stride.to_string(),
            _ => "sample".to_string(),
        }
    }

    /// Reads the books.
    pub fn read(&self, hub: &Hub<'_>) -> anyhow::Result<Vec<Book>> {
        let books = read_books(&self.dataset, &self.books, hub.settings, hub.progress)?;
        note_fewer(hub.progress, &self.dataset, "books", self.books.count().unwrap_or(0), books.len());
        Ok(books)
    }

    /// Tokens of the prompt of a sample of so many, BOS included: at least one, and at least one is left.
    pub fn prompt_of(&self, tokens: usize) -> Option<usize> {
        let most = tokens.saturating_sub(1).max(1);
        self.prompt.map(|prompt| {
            let tokens = match prompt {
                Amount::Tokens(prompt) => prompt,
                Amount::Percent(percent) => tokens * usize::from(percent) / 100,
            };
            tokens.clamp(1, most)
        })
    }

    /// The settings that enter cell ids.
    pub fn settings(&self) -> Vec<Setting> {
        let prompt = self.prompt.map(|prompt| ("prompt", prompt.to_string()));
        let settings = vec![
            ("length", self.length.to_string()),
            ("stride", self.canonical_stride()),
            (BOS, self.bos.name().to_string()),
            ("tail", self.tail.name().to_string()),
        ];
        settings.into_iter().chain(prompt).collect()
    }

    /// The settings that say which samples there are.
    pub fn selection(&self) -> Vec<Setting> {
        let start = (self.start != Start::default()).then(|| ("start", self.start.to_string()));
        let settings = [("books", self.books.to_string()), ("chunks_per_book", limit_text(self.chunks_per_book))];
        settings.into_iter().chain(start).collect()
    }
}

/// The key `length`, which most tasks have.
pub fn length(length: &Option<Spanned<u64>>) -> Result<usize, ConfigError> {
    length.as_ref().map_or(Ok(Texts::DEFAULT_LENGTH), |length| yaml::count("`length`", length, 2))
}
