//! Reading a config.json: checked fields, and what most families have in common.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::config::{MOST_LAYERS, ModelShape, tokens};
use super::super::parts::{Activation, Experts, LayerAttention};
use super::super::rope_shape::RopeShape;
use crate::eviction::Heads;

/// Parsed config.json with checked access to its fields.
pub(super) struct Config<'j> {
    pub json: &'j Value,
}

/// What transformers assumes of a family where its config.json is silent.
pub(super) struct Defaults {
    pub theta: f64,
    pub tied: bool,
    pub head_dim: Option<usize>,
    pub activation: Activation,
    /// Whether `partial_rotary_factor` says which part of a head is rotated.
    pub rotates_part: bool,
}

impl Defaults {
    pub const LLAMA: Defaults = Defaults {
        theta: 10_000.0,
        tied: false,
        head_dim: None,
        activation: Activation::Silu,
        rotates_part: false,
    };
}

impl<'j> Config<'j> {
    /// Reads a field; `None` if it is missing or null.
    pub fn field<T: Deserialize<'j>>(&self, name: &str) -> Result<Option<T>> {
        Option::deserialize(&self.json[name]).with_context(|| format!("{name} has the wrong type"))
    }

    /// Reads a size from 1 to `most`; `None` if it is missing or null.
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

    /// Reads a positive number; `None` if it is missing or null.
    pub fn positive(&self, name: &str) -> Result<Option<f64>> {
        let number: Option<f64> = self.field(name)?;
        if let Some(number) = number {
            ensure!(number.is_finite() && number > 0.0, "{name} is {number}; it must be a positive number");
        }
        Ok(number)
    }

    /// Reads a decoder like Llama's, with all layers alike and no window.
    pub fn decoder(&self, defaults: &Defaults) -> Result<ModelShape> {
        let json = self.json;
        let hidden = self.required("hidden_size", 1 << 18)?;
        let heads = self.required("num_attention_heads", 1 << 14)?;
        let kv_heads = self.size("num_key_value_heads", 1 << 14)?.unwrap_or(heads);
        let head_dim = self.size("head_dim", 1 << 14)?.or(defaults.head_dim);
        ensure!(
            head_dim.is_some() || hidden.is_multiple_of(heads),
            "hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and there is no head_dim"
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
        ensure!(
            rope.dims == head_dim || defaults.rotates_part,
            "partial_rotary_factor is set, which transformers does not compute in this family; leave it out"
        );
        Ok(ModelShape {
            family: self.field("model_type")?.unwrap_or_default(),
            norm_eps: eps as f32,
            tied: self.field("tie_word_embeddings")?.unwrap_or(defaults.tied),
            max_positions: self.field("max_position_embeddings")?.unwrap_or(2048),
            bos: tokens(&json["bos_token_id"]).first().copied(),
            eos: tokens(&json["eos_token_id"]),
            activation: self.activation(defaults.activation)?,
            biased: self.biased(&[("attention_bias", ATTENTION_MATRICES), ("mlp_bias", MLP_MATRICES)], false)?,
            ..ModelShape::llama(sizes, rope)
        })
    }

    /// Names the matrices that have a bias. Each pair of `keys` is a field that says whether some matrices have one, and these
    /// matrices; `default` holds where the field is missing.
    pub fn biased(&self, keys: &[(&str, &[&'static str])], default: bool) -> Result<Vec<&'static str>> {
        let mut biased = Vec::new();
        for (key, matrices) in keys {
            if self.field(key)?.unwrap_or(default) {
                biased.extend_from_slice(matrices);
            }
        }
        Ok(biased)
    }

    fn activation(&self, default: Activation) -> Result<Activation> {
        // Gemma's key is the former, and its early files have another value under the usual one, which is not read.
        let name = if default == Activation::GeluTanh { "hidden_activation" } else { "hidden_act" };
        match self.field(name)? {
            None => Ok(default),
            Some("silu" | "swish") => Ok(Activation::Silu),
            Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
            Some(other) => bail!("{name} is {other:?}; only silu and gelu_pytorch_tanh are known"),
        }
    }

    /// Settings of rotations: transformers 4 writes `rope_scaling`, transformers 5 `rope_parameters`. If a file has both,
    /// transformers 5 uses `rope_scaling` only.
    pub fn rope_record(&self) -> &'j Value {
        let old = &self.json["rope_scaling"];
        let is_empty = old.is_null() || old.as_object().is_some_and(Map::is_empty);
        if is_empty { &self.json["rope_parameters"] } else { old }
    }

    /// Rotations of layers with a window and of layers without, where they differ. `local_theta` is the base of the former;
    /// `rope_scaling` belongs to the latter and replaces what `rope_parameters` says of them.
    pub fn ropes_by_type(&self, local_theta: f64, theta: f64, head_dim: usize) -> Result<Vec<RopeShape>> {
        let new: Map<String, Value> = self.field("rope_parameters")?.unwrap_or_default();
        ensure!(
            new.keys().all(|kind| [SLIDING, FULL].contains(&kind.as_str())),
            "rope_parameters has to say what holds for {SLIDING} and what for {FULL}, and nothing else"
        );
        let own = Config { json: &new.into() };
        let old: Map<String, Value> = self.field("rope_scaling")?.unwrap_or_default();
        let rope = |kind: &str, changes: Map<String, Value>, theta: f64| {
            let mut record: Map<String, Value> = own.field(kind)?.unwrap_or_default();
            record.extend(changes);
            record.entry("rope_theta").or_insert(theta.into());
            RopeShape::parse(&record.into(), self.json, theta, head_dim)
        };
        let theta = self.positive("rope_theta")?.unwrap_or(theta);
        Ok(vec![rope(SLIDING, Map::new(), local_theta)?, rope(FULL, old, theta)?])
    }

    /// Reads a list with an entry for each layer; `None` if it is missing or null.
    pub fn by_layer<T: Deserialize<'j>>(&self, name: &str, layers: usize) -> Result<Option<Vec<T>>> {
        let list: Option<Vec<T>> = self.field(name)?;
        let entries = list.as_ref().map_or(layers, Vec::len);
        ensure!(entries == layers, "{name} has {entries} entries, and num_hidden_layers is {layers}");
        Ok(list)
    }

    /// Says for each layer whether it is of the first of two kinds, by `layer_types` or else by the family's pattern.
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

    /// Says for each layer whether it has a window.
    pub fn sliding(&self, layers: usize, pattern: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
        self.layer_types(layers, [SLIDING, FULL], pattern)
    }

    /// Says for each layer whether it has positions: by `no_rope_layers`, or else in all layers but every fourth. An empty list
    /// counts as missing.
    pub fn rotated(&self, layers: usize) -> Result<Vec<bool>> {
        let every = self.size("no_rope_layer_interval", usize::MAX)?.unwrap_or(4);
        Ok(match self.json["no_rope_layers"].as_array().filter(|list| !list.is_empty()) {
            Some(_) => {
                self.by_layer("no_rope_layers", layers)?.into_iter().flatten().map(|own: u8| own != 0).collect()
            }
            None => (1..=layers).map(|layer| layer % every != 0).collect(),
        })
    }

    /// Reads a mixture of experts under Qwen's keys. The array has the values of missing keys: number of experts, experts per
    /// token, and numbers between the products of an expert.
    pub fn experts(&self, layers: usize, [count, per_token, intermediate]: [usize; 3]) -> Result<Experts> {
        let mut said = None;
        for name in ["num_experts", "num_local_experts", "n_routed_experts"] {
            let Some(own) = self.size(name, MOST_EXPERTS)? else { continue };
            let (first, other) = *said.get_or_insert((name, own));
            ensure!(
                own == other,
                "{first} is {other} and {name} is {own}; they mean the same: leave out one of them"
            );
        }
        let count = said.map_or(count, |(_, said)| said);
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

    /// Reads the window, which is `default` if the key is missing; `None` if it is null or 0.
    pub fn window(&self, default: Option<usize>) -> Result<Option<usize>> {
        let window: Option<usize> = self.field("sliding_window")?;
        Ok(if self.json.get("sliding_window").is_none() { default } else { window.filter(|window| *window > 0) })
    }
}

/// Matrices of attention that may have a bias, including those of DeepSeek's latent attention.
pub(super) const ATTENTION_MATRICES: &[&str] =
    &["q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "kv_a_proj_with_mqa"];

/// The matrices of an MLP.
pub(super) const MLP_MATRICES: &[&str] = &["gate_proj", "up_proj", "down_proj"];

/// Largest accepted number of experts, more than any layer has. It is small enough that the parameters of the largest network do
/// not overflow.
const MOST_EXPERTS: usize = 1 << 11;

pub(super) const SLIDING: &str = "sliding_attention";
pub(super) const FULL: &str = "full_attention";

/// Attention settings of layers of which those in `sliding` have a window.
pub(super) fn windows(sliding: &[bool], window: Option<usize>) -> Vec<LayerAttention> {
    let layer =
        |sliding: &bool| LayerAttention { window: window.filter(|_| *sliding), ..LayerAttention::default() };
    sliding.iter().map(layer).collect()
}

/// Attention settings of layers of which those in `sliding` have a window and the first rotation, and the others the second
/// rotation.
pub(super) fn windows_and_ropes(sliding: &[bool], window: Option<usize>) -> Vec<LayerAttention> {
    let layers = windows(sliding, window).into_iter().zip(sliding);
    layers.map(|(layer, sliding)| LayerAttention { rope: usize::from(!sliding), ..layer }).collect()
}
