//! The arguments of commands that read one text with one model under one cache rule.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::downloads::Downloads;
use super::error::UsageError;
use super::machine_args::MachineArguments;
use super::progress::Mode;
use crate::bounded_read;
use crate::eviction::{LocalLayers, Positions, presets};
use crate::lm::source::{HubSettings, ModelSource};
use crate::lm::{LanguageModel, MemoryPlan, ModelFiles, Tokenizer, WeightType};
use crate::task::{CHUNK, read_text};

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
    pub(super) tokens: Option<PathBuf>,
    /// A UTF-8 text for the model's tokenizer, with BOS if the tokenizer adds it
    #[arg(long, value_name = "FILE")]
    pub(super) text: Option<PathBuf>,
    /// full, truncate, or a policy such as tova, h2o or window+4 (see `tova-bench list policies`)
    #[arg(long, default_value = "full")]
    policy: String,
    /// Entries that survive each step, per layer and key-value head; not for full. For truncate the tokens of a piece
    #[arg(long, value_name = "K")]
    cache_size: Option<usize>,
    /// Positions at which keys are rotated after evictions: absolute, slot or squeezed
    #[arg(long, default_value = "absolute", value_parser = parse_positions)]
    pub(super) positions: Positions,
    /// Layers with a window of their own: bounded by the policy too, or exempt from it
    #[arg(long, default_value = "bounded", value_parser = parse_local_layers)]
    local_layers: LocalLayers,
    /// Tokens read at a time; results do not depend on it
    #[arg(long, value_name = "N", default_value_t = CHUNK as u64, value_parser = clap::value_parser!(u64).range(1..))]
    chunk: u64,
    /// Type that weights are rounded to: auto, f32, f16 or bf16
    #[arg(long, default_value = "auto", value_parser = parse_dtype)]
    dtype: WeightType,
    /// Seed of the policy `random`, and of sampled tokens
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    #[command(flatten)]
    machine: MachineArguments,
}

impl TextArguments {
    /// The model's files, fetched if need be.
    pub(super) fn files(&self) -> Result<ModelFiles> {
        let parse = |text: &str| text.parse::<ModelSource>().map_err(UsageError::from_error);
        let (source, tokenizer) = (parse(&self.model)?, self.tokenizer.as_deref().map(parse).transpose()?);
        ModelFiles::find(&source, tokenizer.as_ref(), &HubSettings::from_env()?, &Downloads::new(Mode::Auto))
    }

    pub(super) fn load(&self, files: &ModelFiles) -> Result<LanguageModel> {
        files.load(self.dtype, &self.machine.open()?)
    }

    pub(super) fn thread_pool(&self) -> Result<ThreadPool> {
        Ok(ThreadPoolBuilder::new().num_threads(self.machine.threads()).build()?)
    }

    pub(super) fn chunk(&self) -> usize {
        self.chunk as usize
    }

    /// The tokens of the text, at least one.
    pub(super) fn tokens(&self, files: &ModelFiles) -> Result<Vec<u32>> {
        let tokens: Vec<u32> = if let Some(path) = &self.tokens {
            bounded_read::json(path, TOKENS_LIMIT)
                .context("--tokens takes a JSON list of token ids such as [1, 15, 9]")?
        } else {
            let path = self.text.as_ref().context("either --tokens or --text is needed")?;
            with_bos(&files.tokenizer()?, &read_text(path)?)?
        };
        ensure!(!tokens.is_empty(), "there is no token to read");
        Ok(tokens)
    }

    /// Whether the tokens begin with the model's BOS.
    pub(super) fn begins_with_bos(&self, files: &ModelFiles, tokens: &[u32]) -> bool {
        // Token ids can be read without a tokenizer; config.json may name BOS.
        let bos = files.tokenizer().and_then(|tokenizer| tokenizer.bos()).ok().or(files.shape.bos);
        bos.is_some() && tokens.first() == bos.as_ref()
    }

    /// The memory under the cache rule, and for `truncate` how many tokens it holds.
    pub(super) fn plan(&self) -> Result<(MemoryPlan<'static>, Option<usize>)> {
        let hint = "add --cache-size K, such as 64";
        let size = || {
            self.cache_size.ok_or_else(|| UsageError::new(format!("policy {} needs a size", self.policy), hint))
        };
        let (policy, truncated) = match self.policy.as_str() {
            "full" if self.cache_size.is_some() => bail!(UsageError::new(
                "--cache-size has no meaning for the policy full, whose cache is unbounded",
                "leave out --cache-size, or choose another policy, such as --policy tova"
            )),
            "full" => (None, None),
            "truncate" => (None, Some(size()?)),
            name => {
                let policy = presets::by_name(name).ok_or_else(|| {
                    UsageError::new(format!("there is no policy {name:?}"), "see `tova-bench list policies`")
                })?;
                (Some(policy.at(size()?).map_err(UsageError::from_error)?), None)
            }
        };
        if let Some(size @ 0..2) = truncated {
            let message = format!("with truncate to {size} tokens there is nothing to predict");
            bail!(UsageError::new(message, "sizes start at 2"));
        }
        let (positions, local_layers, seed) = (self.positions, self.local_layers, self.seed);
        let plan = MemoryPlan { policy, positions, local_layers, seed, ..MemoryPlan::unbounded() };
        Ok((plan, truncated))
    }
}

/// A text's tokens, after BOS if the tokenizer adds it and the text does not begin with it.
pub(super) fn with_bos(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let ids = tokenizer.encode(text)?.ids;
    let bos = if tokenizer.adds_bos() { Some(tokenizer.bos()?) } else { None };
    Ok(bos.filter(|bos| ids.first() != Some(bos)).into_iter().chain(ids).collect())
}

fn parse_local_layers(text: &str) -> Result<LocalLayers, String> {
    LocalLayers::from_name(text).ok_or_else(|| "it is bounded or exempt".to_string())
}

fn parse_positions(text: &str) -> Result<Positions, String> {
    Positions::from_name(text).ok_or_else(|| "positions are absolute, slot or squeezed".to_string())
}

fn parse_dtype(text: &str) -> Result<WeightType, String> {
    [WeightType::Auto, WeightType::F32, WeightType::F16, WeightType::Bf16]
        .into_iter()
        .find(|dtype| dtype.name() == text)
        .ok_or_else(|| "dtypes are auto, f32, f16 and bf16".to_string())
}
