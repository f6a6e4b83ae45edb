//! Reading a config.json: checked fields, and what most families have in common.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::super::config::{MOST_LAYERS, ModelShape, tokens};
use super::super::parts::{Activation, Experts, LayerAttention};
use super::super::rope_shape::RopeShape;
use crate::eviction::Heads;

/// A config.json.
pub(super) struct Config<'j> {
    pub json: &'j Value,
}

/// What transformers assumes of a family where its config.json is silent.
pub(super) struct Defaults {
    pub theta: f64,
    pub tied: bool,
    pub head_dim: Option<usize>,
}

impl Defaults {
    pub const LLAMA: Defaults = Defaults { theta: 10_000.0, tied: false, head_dim: None };
}

impl<'j> Config<'j> {
    /// A field; `None` if it is missing or null.
    pub fn field<T: Deserialize<'j>>(&self, name: &str) -> Result<Option<T>> {
        Option::deserialize(&self.json[name]).with_context(|| format!("{name} has the wrong type"))
    }

    /// A size from 1 to `most`.
    pub fn size(&self, name: &str, most: usize) -> Result<Option<usize>> {
        let size = self.field(name)?;
        if let Some(size) = size {
            ensure!((1..=most).contains(&size), "{name} is {size}; it must be between 1 and {most}");
        }
        Ok(size)
    }

    pub fn required(&self, name: &str, most: usize) -> Result<usize> {
        self.size(name, most)?.with_context(|| format!("the number {name} is missing"))
    }

    /// A positive number.
    pub fn positive(&self, name: &str) -> Result<Option<f64>> {
        let number: Option<f64> = self.field(name)?;
        if let Some(number) = number {
            ensure!(number.is_finite() && number > 0.0, "{name} is {number}; it must be a positive number");
        }
        Ok(number)
    }

    /// A decoder like Llama's, with every layer alike and no window.
    pub fn decoder(&self, defaults: &Defaults) -> Result<ModelShape> {
        let json = self.json;
        let hidden = self.required("hidden_size", 1 << 18)?;
        let heads = self.required("num_attention_heads", 1 << 14)?;
        let kv_heads = self.size("num_key_value_heads", 1 << 14)?.unwrap_or(heads);
        let head_dim = self.size("head_dim", 1 << 14)?.or(defaults.head_dim);
        ensure!(
            head_dim.is_some() || hidden.is_multiple_of(heads),
            "hidden_size {hidden} is no multiple of num_attention_heads {heads}, and there is no head_dim"
        );
        let head_dim = head_dim.unwrap_or(hidden / heads);
        let eps: f64 = self.field("rms_norm_eps")?.context("the number rms_norm_eps is missing")?;
        ensure!((0.0..1.0).contains(&eps), "rms_norm_eps is {eps}; it must be a small positive number");
        let sizes = ModelShape {
            hidden,
            intermediate: self.required("intermediate_size", 1 << 20)?,
            layers: self.required("num_hidden_layers", MOST_LAYERS)?,
            heads: Heads { heads, kv_heads },
            head_dim,
            vocab: self.required("vocab_size", 1 << 24)?,
            ..ModelShape::default()
        };
        let rope = RopeShape::parse(self.rope_record(), json, defaults.theta, head_dim)?;
        Ok(ModelShape {
            family: self.field("model_type")?.unwrap_or_default(),
            norm_eps: eps as f32,
            tied: self.field("tie_word_embeddings")?.unwrap_or(defaults.tied),
            max_positions: self.field("max_position_embeddings")?.unwrap_or(2048),
            bos: tokens(&json["bos_token_id"]).first().copied(),
            eos: tokens(&json["eos_token_id"]),
            activation: self.activation()?,
            ..ModelShape::llama(sizes, rope)
        })
    }

    fn activation(&self) -> Result<Activation> {
        // Gemma's key is `hidden_activation`, and early files have another value under the usual one.
        let name = ["hidden_activation", "hidden_act"].into_iter().find(|name| !self.json[*name].is_null());
        let Some(name) = name else { return Ok(Activation::Silu) };
        match self.field(name)?.unwrap_or_default() {
            "silu" | "swish" => Ok(Activation::Silu),
            "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
            other => bail!("{name} is {other:?}; only silu and gelu_pytorch_tanh are known"),
        }
    }

    /// The settings of rotations: transformers 5 writes `rope_parameters`, transformers 4 `rope_scaling`.
    pub fn rope_record(&self) -> &'j Value {
        let (old, new) = (&self.json["rope_scaling"], &self.json["rope_parameters"]);
        if new.is_null() { old } else { new }
    }

    /// The rotations of layers with a window and of those without, where they differ. Transformers 4 stretches only the
    /// latter, and `local_theta` is the former's.
    pub fn ropes_by_type(&self, local_theta: f64, theta: f64, head_dim: usize) -> Result<Vec<RopeShape>> {
        let new = &self.json["rope_parameters"];
        let record = |layer_type: &str| if new[layer_type].is_null() { new } else { &new[layer_type] };
        let local = match new.is_null() {
            true => RopeShape::parse(&serde_json::json!({"rope_theta": local_theta}), self.json, theta, head_dim)?,
            false => RopeShape::parse(record(SLIDING), self.json, local_theta, head_dim)?,
        };
        let full = if new.is_null() { &self.json["rope_scaling"] } else { record(FULL) };
        Ok(vec![local, RopeShape::parse(full, self.json, theta, head_dim)?])
    }

    /// A list with an entry for each layer.
    pub fn by_layer<T: Deserialize<'j>>(&self, name: &str, layers: usize) -> Result<Option<Vec<T>>> {
        let list: Option<Vec<T>> = self.field(name)?;
        let entries = list.as_ref().map_or(layers, Vec::len);
        ensure!(entries == layers, "{name} has {entries} entries, and num_hidden_layers is {layers}");
        Ok(list)
    }

    /// For each layer, whether it is of the first of two kinds: `layer_types`, or the family's pattern.
    pub fn layer_types(
        &self,
        layers: usize,
        [kind, other]: [&str; 2],
        pattern: impl Fn(usize) -> bool,
    ) -> Result<Vec<bool>> {
        let Some(types) = self.by_layer::<&str>("layer_types", layers)? else {
            return Ok((0..layers).map(pattern).collect());
        };
        if let Some(own) = types.iter().find(|own| ![kind, other].contains(own)) {
            bail!("layer_types has {own:?}; only {other} and {kind} are computed here");
        }
        Ok(types.iter().map(|own| *own == kind).collect())
    }

    /// For each layer, whether it has a window.
    pub fn sliding(&self, layers: usize, pattern: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
        self.layer_types(layers, [SLIDING, FULL], pattern)
    }

    /// For each layer, whether it has positions: `no_rope_layers`, where an empty list is none, or all but every fourth.
    pub fn rotated(&self, layers: usize) -> Result<Vec<bool>> {
        let every = self.size("no_rope_layer_interval", usize::MAX)?.unwrap_or(4);
        Ok(match self.json["no_rope_layers"].as_array().filter(|list| !list.is_empty()) {
            Some(_) => {
                self.by_layer("no_rope_layers", layers)?.into_iter().flatten().map(|own: u8| own != 0).collect()
            }
            None => (1..=layers).map(|layer| layer % every != 0).collect(),
        })
    }

    /// The experts of a mixture, as Qwen's configurations say it; for missing keys their number, how many a token goes to, and the
    /// numbers between their products.
    pub fn experts(&self, layers: usize, [count, per_token, intermediate]: [usize; 3]) -> Result<Experts> {
        let name = ["num_experts", "num_local_experts", "n_routed_experts"]
            .into_iter()
            .find(|name| !self.json[*name].is_null());
        let count = name.map(|name| self.size(name, MOST_EXPERTS)).transpose()?.flatten().unwrap_or(count);
        let per_token = self.size("num_experts_per_tok", MOST_EXPERTS)?.unwrap_or(per_token);
        ensure!(per_token <= count, "num_experts_per_tok is {per_token}, and there are {count} experts");
        let dense: Vec<usize> = self.field("mlp_only_layers")?.unwrap_or_default();
        let every = self.size("decoder_sparse_step", usize::MAX)?.unwrap_or(1);
        let layers = (0..layers).map(|layer| !dense.contains(&layer) && (layer + 1) % every == 0);
        Ok(Experts {
            count,
            per_token,
            intermediate: self.size("moe_intermediate_size", 1 << 20)?.unwrap_or(intermediate),
            normalised: self.field("norm_topk_prob")?.unwrap_or(false),
            has_shared_gate: true,
            scale: 1.0,
            layers: layers.collect(),
            ..Experts::default()
        })
    }

    /// The window, `default` if the key is missing; `None` if it is null or 0.
    pub fn window(&self, default: Option<usize>) -> Result<Option<usize>> {
        let window: Option<usize> = self.field("sliding_window")?;
        Ok(if self.json.get("sliding_window").is_none() { default } else { window.filter(|window| *window > 0) })
    }
}

/// More experts than any layer has, and so few that the parameters of the largest network do not overflow.
const MOST_EXPERTS: usize = 1 << 11;

pub(super) const SLIDING: &str = "sliding_attention";
pub(super) const FULL: &str = "full_attention";

/// Layers of which some have a window.
pub(super) fn windows(sliding: &[bool], window: Option<usize>) -> Vec<LayerAttention> {
    let layer =
        |sliding: &bool| LayerAttention { window: window.filter(|_| *sliding), ..LayerAttention::default() };
    sliding.iter().map(layer).collect()
}

/// The same, where layers with a window have the first rotation and the others the second.
pub(super) fn windows_and_ropes(sliding: &[bool], window: Option<usize>) -> Vec<LayerAttention> {
    let layers = windows(sliding, window).into_iter().zip(sliding);
    layers.map(|(layer, sliding)| LayerAttention { rope: usize::from(!sliding), ..layer }).collect()
}
