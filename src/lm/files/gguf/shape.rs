//! The shape of the network in a GGUF file.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Gguf;
use crate::lm::shape::config::{MOST_LAYERS, ModelShape};
use crate::lm::shape::matrices::{EMBEDDING, OUTPUT};
use crate::lm::shape::rope_shape::RopeScaling;

const INSTEAD: &str = "use the safetensors checkpoint of a model without it";

impl Gguf {
    /// Reads the network that the metadata describes.
    ///
    /// # Errors
    ///
    /// A network this program cannot compute exactly.
    pub fn shape(&self) -> Result<ModelShape> {
        self.check_attention()?;
        let mut shape = ModelShape::parse(&self.config()?)?;
        let experts = self.optional("expert_count")?.unwrap_or(0);
        ensure!(
            experts == 0 || shape.experts.is_some(),
            "it is a mixture of {experts} experts, which is not computed here for {}",
            self.architecture.name
        );
        if shape.latent.is_some() || shape.attention.iter().any(|layer| layer.sizes.is_some()) {
            // Its configuration has what the rest here checks for one size of all heads.
            ensure!(
                shape.latent.is_none() || self.rope_factors.is_none(),
                "it scales positions by the tensor rope_freqs.weight, which is not computed here for {}",
                self.architecture.name
            );
            return Ok(shape);
        }
        let head_dim = shape.head_dim as u64;
        let rotated = shape.ropes.first().map_or(head_dim, |rope| rope.dims as u64);
        for (name, expected) in [
            ("attention.key_length", head_dim),
            ("attention.value_length", head_dim),
            ("rope.dimension_count", rotated),
        ] {
            let length = self.optional(name)?.unwrap_or(expected);
            ensure!(
                length == expected,
                "{} is {length} and the heads have {head_dim} dimensions, which is not computed here",
                self.key(name)
            );
        }
        if let Some(factors) = &self.rope_factors {
            ensure!(
                shape.ropes.iter().all(|rope| matches!(rope.scaling, RopeScaling::None)),
                "it scales positions twice, by {} and by the tensor rope_freqs.weight",
                self.key("rope.scaling.type")
            );
            ensure!(
                factors.len() == shape.head_dim / 2
                    && factors.iter().all(|factor| factor.is_normal() && *factor > 0.0),
                "tensor rope_freqs.weight has to hold {} positive numbers, one for each pair of dimensions",
                shape.head_dim / 2
            );
            let factors: Vec<f64> = factors.iter().map(|factor| f64::from(*factor)).collect();
            // Some layers may have no rotation.
            for rope in shape.ropes.iter_mut().filter(|rope| rope.dims > 0) {
                rope.scaling = RopeScaling::Factors(factors.clone());
            }
        }
        Ok(shape)
    }

    /// Writes the metadata as a config.json.
    fn config(&self) -> Result<Value> {
        let embedding = self
            .tensor(EMBEDDING)
            .context("tensor token_embd.weight is missing: it is not a whole language model")?;
        let (heads, kv_heads) = self.heads()?;
        let width = match self.optional("expert_count")? {
            None => Some(self.number("feed_forward_length")?),
            // Experts may be the only MLP.
            Some(_) => self.optional("feed_forward_length")?,
        };
        let mut config = json!({
            "hidden_size": self.number("embedding_length")?,
            "intermediate_size": width,
            "num_hidden_layers": self.layers()?,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": self.optional("attention.key_length")?,
            "vocab_size": embedding.shape.first(),
            "max_position_embeddings": self.number("context_length")?,
            "rms_norm_eps": self.real("attention.layer_norm_rms_epsilon")?,
            "rope_theta": self.real("rope.freq_base")?.unwrap_or(10_000.0),
            "rope_scaling": self.rope_scaling()?,
            "sliding_window": self.window()?,
            "tie_word_embeddings": self.tensor(OUTPUT).is_none(),
            "bos_token_id": self.token_id("bos"),
            "eos_token_id": self.stop_tokens(),
        });
        if let Some(config) = config.as_object_mut() {
            config.extend(self.architecture.config(self)?);
        }
        Ok(config)
    }

    /// Number of layers, which is checked because lists of this length are made.
    pub fn layers(&self) -> Result<u64> {
        let layers = self.number("block_count")?;
        ensure!(
            layers <= MOST_LAYERS as u64,
            "{} is {layers} in its metadata, and {MOST_LAYERS} layers are the most",
            self.key("block_count")
        );
        Ok(layers)
    }

    /// Window of the layers that have one.
    pub fn window(&self) -> Result<Option<u64>> {
        Ok(self.optional("attention.sliding_window")?.filter(|window| *window > 0))
    }

    /// Number of heads, and of heads of keys and values.
    pub fn heads(&self) -> Result<(u64, u64)> {
        let (heads, of_keys) = (self.number("attention.head_count")?, "attention.head_count_kv");
        Ok((heads, if self.optional(of_keys)?.is_some() { self.number(of_keys)? } else { heads }))
    }

    fn check_attention(&self) -> Result<()> {
        let scale = self.real("attention.scale")?.unwrap_or(0.0);
        ensure!(scale == 0.0, "it scales attention by {scale} ({}); {INSTEAD}", self.key("attention.scale"));
        ensure!(
            self.fields.get(&self.key("attention.causal")) != Some(&false.into()),
            "its attention is not causal ({}): it is not a language model",
            self.key("attention.causal")
        );
        Ok(())
    }

    pub fn rope_scaling(&self) -> Result<Value> {
        // Old files have a factor and no type.
        let factor = match self.real("rope.scaling.factor")? {
            None => self.real("rope.scale_linear")?,
            factor => factor,
        };
        let factor = factor.filter(|factor| *factor != 0.0 && *factor != 1.0);
        let key = self.key("rope.scaling.type");
        let kind = if self.fields.contains_key(&key) { self.text(&key)? } else { "linear" };
        match (kind, factor) {
            ("none", _) | ("linear", None) => Ok(Value::Null),
            ("linear", Some(factor)) => Ok(json!({"rope_type": "linear", "factor": factor})),
            ("yarn", factor) => self.yarn(factor),
            // Its factors are tensors.
            ("longrope", _) if self.long_rope_factors.is_some() => Ok(Value::Null),
            (other, _) => bail!("it scales positions by {other} ({key}), which is not computed here; {INSTEAD}"),
        }
    }

    fn yarn(&self, factor: Option<f64>) -> Result<Value> {
        let extrapolated = self.real("rope.scaling.yarn_ext_factor")?.unwrap_or(1.0);
        ensure!(
            extrapolated == 1.0,
            "{} is {extrapolated}, which is not computed here; {INSTEAD}",
            self.key("rope.scaling.yarn_ext_factor")
        );
        let attention_factor = match self.real("rope.scaling.yarn_attn_factor")? {
            None => self.real("rope.scaling.attn_factor")?,
            factor => factor,
        };
        let mscale = self.real("rope.scaling.yarn_log_multiplier")?;
        Ok(json!({
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": self.number("rope.scaling.original_context_length")?,
            "beta_fast": self.real("rope.scaling.yarn_beta_fast")?,
            "beta_slow": self.real("rope.scaling.yarn_beta_slow")?,
            "attention_factor": attention_factor,
            "mscale": mscale,
            "mscale_all_dim": mscale,
        }))
    }

    /// Whole key of one of the architecture's settings.
    pub fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name)
    }

    /// Reads a number of the architecture that must be there.
    pub fn number(&self, name: &str) -> Result<u64> {
        let number = self.optional(name)?;
        let number =
            number.with_context(|| format!("the number {} is missing from its metadata", self.key(name)))?;
        let is_size = (1..=u64::from(u32::MAX)).contains(&number);
        ensure!(is_size, "{} is {number} in its metadata, no size of a model", self.key(name));
        Ok(number)
    }

    pub fn optional(&self, name: &str) -> Result<Option<u64>> {
        let key = self.key(name);
        match self.fields.get(&key) {
            None => Ok(None),
            Some(Value::Array(_)) if !self.architecture.name.starts_with("gemma") => {
                bail!("{key} has a number for each layer; layers of different shapes are not computed here")
            }
            Some(Value::Array(_)) => Ok(self.by_layer(name)?.and_then(|layers| layers.first().copied())),
            Some(field) => {
                field.as_u64().map(Some).with_context(|| format!("{key} in its metadata is not a whole number"))
            }
        }
    }

    /// Reads a number for each layer, if the file has such a list.
    pub fn by_layer(&self, name: &str) -> Result<Option<Vec<u64>>> {
        let key = self.key(name);
        let Some(Value::Array(layers)) = self.fields.get(&key) else { return Ok(None) };
        let numbers = layers.iter().map(Value::as_u64).collect::<Option<Vec<_>>>();
        Ok(Some(numbers.with_context(|| format!("{key} in its metadata is not a list of whole numbers"))?))
    }

    pub fn real(&self, name: &str) -> Result<Option<f64>> {
        let key = self.key(name);
        let number = self.fields.get(&key).map(|field| field.as_f64().context("no real number"));
        number.transpose().with_context(|| format!("{key} in its metadata"))
    }
}
