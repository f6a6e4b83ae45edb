//! Opens the model that a user names: finds its files, then loads tokenizer, chat template and weights.

use anyhow::{Context, Result, ensure};
use candle_core::DType;
use serde_json::Value;

use super::arithmetic::types::{Arithmetic, WeightType};
use super::device::{Device, available_memory};
use super::files::chat::ChatTemplate;
use super::files::file_stamps::StampedFiles;
use super::files::gguf::Gguf;
use super::files::source::{DownloadProgress, HubSettings, ModelSource};
use super::files::tokenizer::{self, Tokenizer};
use super::files::{pocket, weights};
use super::network::random::tiny_shape;
use super::network::transformer::LanguageModel;
use super::shape::config::{self, ModelShape};
use super::shape::rope_override::RopeOverride;
use crate::bounded_read;
use crate::format::Bytes;

/// A model before its weights are loaded.
pub struct ModelFiles {
    pub source: ModelSource,
    pub shape: ModelShape,
    rope_override: Option<RopeOverride>,
    arithmetic: Arithmetic,
    weights: Weights,
}

/// Where the weights come from.
enum Weights {
    /// Drawn from a seed; the number is the factor on attention logits.
    Random(usize),
    /// Inside the program.
    Pocket,
    /// On this machine, unless a model is only described; of a GGUF file, which holds everything, with its header.
    Files(Box<StampedFiles>, Option<Gguf>),
}

/// Version of the random weights, increased when they change.
const RANDOM_RECIPE: u32 = 1;

impl ModelFiles {
    /// Finds a model's files, downloads them if needed, and reads its config. The tokenizer may come from another place, a
    /// folder or a repository.
    ///
    /// # Errors
    /// Files that are missing or unreachable, or describe a model that cannot be computed.
    pub fn find(
        source: &ModelSource,
        tokenizer: Option<&ModelSource>,
        hub: &HubSettings,
        progress: &dyn DownloadProgress,
    ) -> Result<ModelFiles> {
        if let Some(tokenizer) = tokenizer {
            source.check_tokenizer(tokenizer)?;
        }
        // The stamps are taken before anything in the files is read.
        let stamped = || {
            let files = match tokenizer {
                Some(tokenizer) => source.resolve_with_tokenizer(tokenizer, hub, progress),
                None => source.resolve(hub, progress),
            };
            StampedFiles::new(files?).with_context(|| format!("model {source}")).map(Box::new)
        };
        let (shape, weights) = match source {
            ModelSource::RandomTiny => (tiny_shape(), Weights::Random(1)),
            ModelSource::Random(sizes) => (sizes.shape(), Weights::Random(sizes.sharpness())),
            ModelSource::Pocket => (ModelShape::parse(&serde_json::from_str(pocket::CONFIG)?)?, Weights::Pocket),
            ModelSource::File(_) | ModelSource::Hub { file: Some(_), .. } => {
                let stamped = stamped()?;
                let gguf = Gguf::read(&stamped.files.config)?;
                let shape =
                    gguf.shape().with_context(|| format!("{source} describes a model that cannot be run"))?;
                (shape, Weights::Files(stamped, Some(gguf)))
            }
            ModelSource::Folder(_) | ModelSource::Hub { .. } => {
                let stamped = stamped()?;
                (ModelShape::read(&stamped.files.config)?, Weights::Files(stamped, None))
            }
        };
        Ok(ModelFiles { source: source.clone(), shape, rope_override: None, arithmetic: Arithmetic::F32, weights })
    }

    /// Returns the model with scaled positions.
    ///
    /// # Errors
    /// As [`ModelShape::apply_rope_override`].
    pub fn with_rope_override(mut self, rope_override: RopeOverride) -> Result<ModelFiles> {
        self.shape.apply_rope_override(rope_override).with_context(|| format!("model {}", self.source))?;
        self.rope_override = Some(rope_override);
        Ok(self)
    }

    /// Returns the model with another arithmetic of products.
    #[must_use]
    pub fn with_arithmetic(self, arithmetic: Arithmetic) -> ModelFiles {
        ModelFiles { arithmetic, ..self }
    }

    /// Identifies the model: a commit, a digest of the files, or the name of a random model, and how its positions
    /// are scaled. The digest reads every file of a folder, so call this once.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn revision(&self) -> Result<String> {
        let weights = match &self.weights {
            Weights::Files(stamped, _) => stamped.revision()?,
            Weights::Pocket => pocket::revision()?,
            Weights::Random(_) => format!("{}-{RANDOM_RECIPE}", self.source),
        };
        Ok(match self.rope_override {
            Some(rope_override) => format!("{weights} rope_scaling {rope_override}"),
            None => weights,
        })
    }

    /// The model's tokenizer, checked against its vocabulary.
    ///
    /// # Errors
    /// A tokenizer that is missing, damaged or of another model.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let files = match &self.weights {
            Weights::Random(_) => return Tokenizer::bytes(),
            Weights::Pocket => {
                let config = serde_json::from_str(pocket::TOKENIZER_CONFIG)?;
                return Tokenizer::parse(pocket::TOKENIZER.as_bytes(), &config, self.shape.bos);
            }
            Weights::Files(stamped, Some(gguf)) if !stamped.files.has_other_tokenizer => {
                return gguf.tokenizer().with_context(|| format!("cannot use the tokenizer of {}", self.source));
            }
            Weights::Files(stamped, _) => &stamped.files,
        };
        let file = files.tokenizer.as_deref().with_context(|| {
            format!("{} has no tokenizer.json; save the tokenizer beside the weights", self.source)
        })?;
        let tokenizer = Tokenizer::of(file, &tokenizer::config(files)?, self.shape.bos)?;
        tokenizer
            .of_embedding(self.shape.vocab)
            .with_context(|| format!("{} does not fit the model", file.display()))
    }

    /// Tokens that end a text, from generation_config.json, or else from config.json.
    ///
    /// # Errors
    /// A generation_config.json that cannot be read.
    pub fn stop_tokens(&self) -> Result<Vec<u32>> {
        let json = match &self.weights {
            Weights::Pocket => serde_json::from_str(pocket::GENERATION_CONFIG)?,
            Weights::Files(stamped, _) => match &stamped.files.generation_config {
                Some(path) => bounded_read::json(path, config::MOST_BYTES)?,
                None => Value::Null,
            },
            Weights::Random(_) => Value::Null,
        };
        let own = config::tokens(&json["eos_token_id"]);
        Ok(if own.is_empty() { self.shape.eos.clone() } else { own })
    }

    /// The model's template for conversations; `None` if it has none.
    ///
    /// # Errors
    /// As [`ChatTemplate::read`].
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>> {
        let template = match &self.weights {
            Weights::Random(_) | Weights::Pocket => return Ok(None),
            Weights::Files(stamped, Some(gguf)) if !stamped.files.has_other_tokenizer => {
                gguf.tokenizer_config().and_then(|config| ChatTemplate::parse(&config, None))
            }
            Weights::Files(stamped, _) => ChatTemplate::read(&stamped.files),
        };
        template.with_context(|| format!("model {}", self.source))
    }

    /// Loads the weights.
    ///
    /// # Errors
    /// As [`LanguageModel::load`], and files that have changed since [`revision`](ModelFiles::revision).
    pub fn load(&self, dtype: WeightType, device: &Device) -> Result<LanguageModel> {
        let (shape, device) = (self.shape.clone(), &device.with_arithmetic(self.arithmetic));
        // Otherwise the type is known when the weights are opened.
        let dtype = if self.arithmetic == Arithmetic::Fast { self.weight_type(dtype) } else { dtype };
        let load = || match &self.weights {
            Weights::Files(stamped, _) => {
                // Before, because loading may take minutes; after, because what was loaded counts.
                stamped.check()?;
                let loaded = LanguageModel::load(shape, &stamped.files.weights, dtype, device);
                stamped.check().and(loaded)
            }
            Weights::Pocket => LanguageModel::from_weights(shape, pocket::weights()?, dtype, device),
            Weights::Random(sharpness) => {
                // Drawn in f32, serialised as a checkpoint and loaded from it, the weights exist three times at once.
                let (needed, free) = (12 * shape.parameters(), available_memory().unwrap_or(u64::MAX));
                ensure!(
                    needed <= free,
                    "drawing its weights takes {}, and this machine has {} free; name a smaller shape",
                    Bytes(needed),
                    Bytes(free)
                );
                LanguageModel::random(shape, *sharpness as f32, 1, dtype, device)
            }
        };
        load().with_context(|| format!("cannot load the model {}", self.source))
    }

    /// The type that weights are rounded to: the one asked for, or as they are stored. `Auto` where that cannot be read; loading
    /// says why.
    pub fn weight_type(&self, asked: WeightType) -> WeightType {
        match asked {
            WeightType::Auto => self.stored_type(&self.stored()).map_or(asked, WeightType::of),
            _ => asked,
        }
    }

    /// Whether the weights are on this machine, or made there.
    fn has_weights(&self) -> bool {
        !matches!(&self.weights, Weights::Files(stamped, _) if stamped.files.weights.is_empty())
    }

    /// The weights as they are stored; `None` where they are drawn or not on this machine.
    fn stored(&self) -> Result<Option<weights::Weights>> {
        Ok(match &self.weights {
            Weights::Files(..) if !self.has_weights() => None,
            Weights::Files(stamped, _) => Some(weights::Weights::open(&stamped.files.weights)?),
            Weights::Pocket => Some(pocket::weights()?),
            Weights::Random(_) => None,
        })
    }

    /// Bytes that loaded weights will take; about those of the shape where they are drawn or cannot be read, and of the files
    /// where the type is not known either.
    pub fn held_bytes(&self, dtype: WeightType, device: &Device) -> u64 {
        let stored = self.stored();
        let dtype = dtype.dtype().or_else(|| self.stored_type(&stored));
        match (stored, dtype) {
            (Ok(Some(weights)), Some(dtype)) => weights.held_bytes(dtype, &device.products, device.arithmetic),
            (_, Some(dtype)) => self.shape.parameters() * dtype.size_in_bytes() as u64,
            (_, None) => self.weight_bytes(),
        }
    }

    /// Says how many bytes of weights there are, and if so that they are not on this machine.
    pub fn weights_in_words(&self) -> String {
        let bytes = Bytes(self.weight_bytes());
        match self.has_weights() {
            true => format!("{bytes} of weights"),
            false => format!("about {bytes} of weights, which are not on this machine"),
        }
    }

    /// Bytes of the weight files; where they are not on this machine, about those that they would have.
    pub fn weight_bytes(&self) -> u64 {
        match &self.weights {
            Weights::Files(stamped, _) if !self.has_weights() => {
                self.shape.parameters() * config::stored_type(&stamped.files.config).size_in_bytes() as u64
            }
            Weights::Files(stamped, _) => {
                let files = &stamped.files.weights;
                files.iter().filter_map(|path| path.metadata().ok()).map(|meta| meta.len()).sum()
            }
            Weights::Pocket => pocket::WEIGHTS.len() as u64,
            Weights::Random(_) => self.shape.parameters() * size_of::<f32>() as u64,
        }
    }

    /// What weights are rounded to unless another type is asked for; `None` where that cannot be read.
    fn stored_type(&self, stored: &Result<Option<weights::Weights>>) -> Option<DType> {
        match stored {
            // Integers are exact however large the model is.
            Ok(Some(weights)) if weights.is_gguf() && self.arithmetic == Arithmetic::Fast => Some(DType::F32),
            Ok(Some(weights)) => weights.dtype().ok().map(|(_, dtype)| dtype),
            Ok(None) => Some(match &self.weights {
                Weights::Files(stamped, _) => config::stored_type(&stamped.files.config),
                Weights::Random(_) | Weights::Pocket => DType::F32,
            }),
            Err(_) => None,
        }
    }
}
