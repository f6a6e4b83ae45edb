//! The arguments of commands that read one text with one model under one cache rule: a field for each flag.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::Args;

use super::error::UsageError;
use super::machine_args::MachineArguments;
use super::progress::{Mode, Progress};
use crate::bounded_read;
use crate::eviction::{CacheFormat, CacheOptions, CacheSize, DefinedPolicy, LocalLayers, Positions, Schedule};
use crate::lm::source::{HubSettings, ModelSource};
use crate::lm::{Arithmetic, ModelFiles, TextThreads, WeightType};
use crate::sweep::read_definitions;
use crate::task::{CHUNK, read_text};
use crate::text::{CacheSettings, TextModel};

/// The most bytes a file of token ids may have.
const TOKENS_LIMIT: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(super) struct TextArguments {
    /// A checkpoint folder or a GGUF file (./, ../ or /), owner/name[@revision][:file.gguf] on the hub, pocket, random-tiny,
    /// or a random model of a given shape such as random-h512-l8-a8-k8-f1408-v8000
    #[arg(long, value_name = "MODEL")]
    model: String,
    /// A folder or a repository whose tokenizer.json is used instead of the model's own
    #[arg(long, value_name = "SOURCE")]
    tokenizer: Option<String>,
    /// The text as a JSON list of token ids; nothing is added
    #[arg(long, value_name = "FILE", required_unless_present = "text", conflicts_with = "text")]
    tokens: Option<PathBuf>,
    /// A UTF-8 text for the model's tokenizer, with BOS if the tokenizer adds it
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// A sweep, or its `define:` alone, whose policies can be asked for by name
    #[arg(long, value_name = "FILE")]
    define: Option<PathBuf>,
    /// full, truncate, or a policy such as tova, h2o or window+4 (see `tova-bench list policies`), also with what a sweep may write after
    /// it: tova@cut, window+4@slot
    #[arg(long, default_value = "full")]
    policy: String,
    /// Entries that survive each step, per layer and key-value head, or a share such as 25% of the prompt (where it is cut) or of the
    /// text; not for full. For truncate the tokens of a piece
    #[arg(long, value_name = "K", value_parser = parse::<CacheSize>)]
    cache_size: Option<CacheSize>,
    /// When entries leave: 1 (after every token), a number such as 128 (so many at once), cut (once, after the prompt) or cut+16;
    /// by default as the policy says
    #[arg(long, value_name = "S", value_parser = parse::<Schedule>)]
    schedule: Option<Schedule>,
    /// Positions at which keys are rotated after evictions: absolute, slot or squeezed
    #[arg(long, default_value = "absolute", value_parser = parse::<Positions>)]
    positions: Positions,
    /// Layers with a window of their own: bounded by the policy too, or exempt from it
    #[arg(long, default_value = "bounded", value_parser = parse::<LocalLayers>)]
    local_layers: LocalLayers,
    /// How keys and values are stored: a format such as q8_0, or q8_0/q4_0 for keys and values (see `tova-bench list formats`)
    #[arg(long, default_value = "f32", value_parser = parse::<CacheFormat>)]
    format: CacheFormat,
    /// Tokens read at a time; results do not depend on it
    #[arg(long, value_name = "N", default_value_t = CHUNK as u64, value_parser = clap::value_parser!(u64).range(1..))]
    chunk: u64,
    /// Type that weights are rounded to: auto, f32, f16 or bf16
    #[arg(long, default_value = "auto", value_parser = parse_dtype)]
    dtype: WeightType,
    /// How products with weights are computed: f32, or fast, in integers of 16 bits
    #[arg(long, default_value = "f32", value_parser = parse::<Arithmetic>)]
    arithmetic: Arithmetic,
    /// Seed of the policy `random`, and of sampled tokens
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    machine: MachineArguments,
}

impl TextArguments {
    /// The model's files, fetched if need be.
    pub(super) fn files(&self) -> Result<ModelFiles> {
        let parse = |text: &str| text.parse::<ModelSource>().map_err(UsageError::from_error);
        let (source, tokenizer) = (parse(&self.model)?, self.tokenizer.as_deref().map(parse).transpose()?);
        let hub = HubSettings::from_env()?;
        let files = ModelFiles::find(&source, tokenizer.as_ref(), &hub, &Progress::new(Mode::Auto))?;
        Ok(files.with_arithmetic(self.arithmetic))
    }

    pub(super) fn load(&self, files: ModelFiles) -> Result<TextModel> {
        TextModel::load(files, self.dtype, &self.machine.open()?)
    }

    pub(super) fn thread_pool(&self) -> Result<TextThreads> {
        TextThreads::new(self.machine.threads())
    }

    pub(super) fn chunk(&self) -> usize {
        self.chunk as usize
    }

    /// Reads the text or the tokens.
    pub(super) fn source(&self) -> Result<Source> {
        if let Some(path) = &self.tokens {
            let tokens = bounded_read::json(path, TOKENS_LIMIT);
            return tokens
                .map(Source::Tokens)
                .context("--tokens takes a JSON list of token ids such as [1, 15, 9]");
        }
        let path = self.text.as_ref().context("either --tokens or --text is needed")?;
        read_text(path).map(Source::Text)
    }

    /// The name of the text's file.
    pub(super) fn title(&self) -> String {
        let path = self.text.as_ref().or(self.tokens.as_ref());
        path.and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The policies of `--define`.
    pub(super) fn definitions(&self) -> Result<Vec<DefinedPolicy>> {
        Ok(self.define.as_deref().map(read_definitions).transpose()?.unwrap_or_default())
    }

    /// The cache that the flags ask for.
    pub(super) fn cache(&self) -> CacheSettings {
        let (policy, cache_size, schedule) = (self.policy.clone(), self.cache_size, self.schedule);
        let options =
            CacheOptions { positions: self.positions, local_layers: self.local_layers, format: self.format };
        CacheSettings { policy, cache_size, schedule, options, seed: self.seed }
    }
}

/// A text, or tokens.
pub(super) enum Source {
    Text(String),
    /// Token ids, to which nothing is added.
    Tokens(Vec<u32>),
}

impl Source {
    /// The tokens, at least one; with `chat` those of a text in the model's chat template.
    pub(super) fn tokens(self, model: &TextModel, chat: bool) -> Result<Vec<u32>> {
        match self {
            Source::Text(text) if chat => model.chat_tokens(&text),
            Source::Text(text) => model.tokens(&text),
            Source::Tokens(tokens) => Ok(tokens),
        }
    }
}

/// A value with a text of its own.
pub(super) fn parse<T: FromStr<Err = anyhow::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: anyhow::Error| error.to_string())
}

fn parse_dtype(text: &str) -> Result<WeightType, String> {
    WeightType::from_name(text).ok_or_else(|| "dtypes are auto, f32, f16 and bf16".to_string())
}
