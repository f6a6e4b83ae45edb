//! Opens the model that a user names: finds its files, then loads tokenizer, chat template and weights.

use anyhow::{Context, Result, bail};
use candle_core::Device;

use super::chat::ChatTemplate;
use super::config::{self, ModelShape};
use super::device::available_memory;
use super::file_stamps::FileStamps;
use super::pocket;
use super::random::{shape_of, tiny_shape};
use super::rope_override::RopeOverride;
use super::source::{CheckpointFiles, DownloadProgress, HubSettings, ModelSource};
use super::tokenizer::Tokenizer;
use super::transformer::{LanguageModel, WIDEN_BELOW, WeightType};
use crate::bounded_read;

/// A model before its weights are loaded.
pub struct ModelFiles {
    pub source: ModelSource,
    pub shape: ModelShape,
    rope_override: Option<RopeOverride>,
    weights: Weights,
    /// The files' stamps before anything in them was read.
    stamps: Option<FileStamps>,
}

/// Where the weights come from.
enum Weights {
    /// Drawn from a seed; the number is the factor on attention logits.
    Random(usize),
    /// Inside the program.
    Pocket,
    Files(CheckpointFiles),
}

/// Version of the random weights, increased when they change.
const RANDOM_RECIPE: u32 = 1;

impl ModelFiles {
    /// Finds a model's files, downloads them if needed, and reads its config.
    ///
    /// # Errors
    /// Files that are missing or unreachable, or describe a model that cannot be computed.
    pub fn find(source: &ModelSource, hub: &HubSettings, progress: &dyn DownloadProgress) -> Result<ModelFiles> {
        let mut stamps = None;
        let (shape, weights) = match source {
            ModelSource::RandomTiny => (tiny_shape(), Weights::Random(1)),
            ModelSource::Random(sizes) => (shape_of(*sizes), Weights::Random(sizes.sharpness)),
            ModelSource::Pocket => (pocket::shape()?, Weights::Pocket),
            ModelSource::Folder(_) | ModelSource::Hub { .. } => {
                let files = source.resolve(hub, progress)?;
                stamps = Some(FileStamps::of(&files).with_context(|| format!("model {source}"))?);
                (ModelShape::read(&files.config)?, Weights::Files(files))
            }
        };
        Ok(ModelFiles { source: source.clone(), shape, rope_override: None, weights, stamps })
    }

    /// The same model with scaled positions.
    ///
    /// # Errors
    /// As [`ModelShape::apply_rope_override`].
    pub fn with_rope_override(mut self, rope_override: RopeOverride) -> Result<ModelFiles> {
        self.shape.apply_rope_override(rope_override).with_context(|| format!("model {}", self.source))?;
        self.rope_override = Some(rope_override);
        Ok(self)
    }

    /// Identifies the model: a commit, a digest of the files, or the name of a random model, and how its positions
    /// are scaled. The digest reads every file of a folder, so call this once.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn revision(&self) -> Result<String> {
        let weights = match (&self.weights, &self.stamps) {
            (Weights::Files(files), Some(stamps)) => stamps.revision(files)?,
            (Weights::Files(files), None) => files.revision()?,
            (Weights::Pocket, _) => pocket::revision(),
            (Weights::Random(_), _) => format!("{}-{RANDOM_RECIPE}", self.source),
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
            Weights::Pocket => return pocket::tokenizer(self.shape.bos),
            Weights::Files(files) => files,
        };
        let file = files.tokenizer.as_deref().with_context(|| {
            format!("{} has no tokenizer.json; save the tokenizer beside the weights", self.source)
        })?;
        let tokenizer = Tokenizer::read(file, files.tokenizer_config.as_deref(), self.shape.bos)?;
        tokenizer
            .check_vocabulary(self.shape.vocab)
            .with_context(|| format!("{} does not fit the model", file.display()))?;
        Ok(tokenizer)
    }

    /// Tokens that end a text, from generation_config.json, or else from config.json.
    ///
    /// # Errors
    /// A generation_config.json that cannot be read.
    pub fn stop_tokens(&self) -> Result<Vec<u32>> {
        let text = match &self.weights {
            Weights::Random(_) => None,
            Weights::Pocket => Some(pocket::generation_config().to_owned()),
            Weights::Files(CheckpointFiles { generation_config: None, .. }) => None,
            Weights::Files(CheckpointFiles { generation_config: Some(path), .. }) => Some(
                bounded_read::text(path, config::MOST_BYTES)
                    .with_context(|| format!("cannot read {}", path.display()))?,
            ),
        };
        let Some(text) = text else { return Ok(self.shape.eos.clone()) };
        let json: serde_json::Value = serde_json::from_str(&text)
            .with_context(|| format!("generation_config.json of {} is no valid JSON", self.source))?;
        let own = config::tokens(&json["eos_token_id"]);
        Ok(if own.is_empty() { self.shape.eos.clone() } else { own })
    }

    /// The model's template for conversations; `None` if it has none.
    ///
    /// # Errors
    /// As [`ChatTemplate::read`].
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>> {
        let Weights::Files(files) = &self.weights else { return Ok(None) };
        ChatTemplate::read(files.tokenizer_config.as_deref(), files.chat_template.as_deref())
            .with_context(|| format!("model {}", self.source))
    }

    /// Loads the weights.
    ///
    /// # Errors
    /// As [`LanguageModel::load`], and files that have changed since [`revision`](ModelFiles::revision).
    pub fn load(&self, dtype: WeightType, device: &Device) -> Result<LanguageModel> {
        let shape = self.shape.clone();
        let unchanged = || match (&self.weights, &self.stamps) {
            (Weights::Files(files), Some(stamps)) => stamps.check(files),
            _ => Ok(()),
        };
        // Before, because loading may take minutes; after, because what was loaded counts.
        let loaded = unchanged().and_then(|()| {
            let loaded = self.load_any(shape, dtype, device);
            unchanged().and(loaded)
        });
        loaded.with_context(|| format!("cannot load the model {}", self.source))
    }

    fn load_any(&self, shape: ModelShape, dtype: WeightType, device: &Device) -> Result<LanguageModel> {
        match &self.weights {
            Weights::Files(files) => LanguageModel::load(shape, &files.weights, dtype, device),
            Weights::Pocket => pocket::load(shape, dtype, device),
            Weights::Random(sharpness) => {
                self.check_room()?;
                LanguageModel::random_sharp(shape, *sharpness as f32, 1, dtype, device)
            }
        }
    }

    /// Random weights are drawn in f32, serialised as a checkpoint and loaded from it: three copies at once.
    fn check_room(&self) -> Result<()> {
        let needed = 12 * self.shape.parameters();
        match available_memory() {
            Some(free) if needed > free => bail!(
                "drawing the weights of {} takes {:.1} GB, and this machine has {:.1} GB free; name a smaller shape",
                self.source,
                needed as f64 / 1e9,
                free as f64 / 1e9
            ),
            _ => Ok(()),
        }
    }

    /// About the bytes that loaded weights will take; their stored type is not known yet.
    pub fn held_bytes(&self, dtype: WeightType, device: &Device) -> u64 {
        let (stored, parameters) = (self.weight_bytes(), self.shape.parameters());
        let each = match dtype {
            _ if device.is_cpu() && stored < WIDEN_BELOW => 4,
            WeightType::F32 => 4,
            WeightType::F16 | WeightType::Bf16 => 2,
            WeightType::Auto => return stored,
        };
        parameters * each
    }

    /// Bytes of the weight files.
    pub fn weight_bytes(&self) -> u64 {
        match &self.weights {
            Weights::Files(files) => {
                files.weights.iter().filter_map(|path| path.metadata().ok()).map(|meta| meta.len()).sum()
            }
            Weights::Pocket => pocket::WEIGHT_BYTES,
            Weights::Random(_) => self.shape.parameters() * size_of::<f32>() as u64,
        }
    }
}
