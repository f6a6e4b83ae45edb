//! Models with random weights drawn from a seed, which exercise every part of the engine without a download.

use std::collections::HashMap;

use anyhow::Result;
use candle_core::Device;
use safetensors::tensor::{Dtype, TensorView};

use super::config::{ModelShape, RopeScaling, RopeShape};
use super::source::RandomShape;
use super::tokenizer::Tokenizer;
use super::transformer::{LanguageModel, WeightType};
use super::weights::Weights;
use crate::eviction::Heads;

/// The shape of `random-tiny`: grouped heads, and bytes as vocabulary.
pub fn tiny_shape() -> ModelShape {
    ModelShape {
        family: "llama".into(),
        hidden: 32,
        intermediate: 64,
        layers: 2,
        heads: Heads { heads: 4, kv_heads: 2 },
        head_dim: 8,
        vocab: Tokenizer::BYTES_VOCAB,
        norm_eps: 1e-5,
        rope: RopeShape { theta: 10_000.0, scaling: RopeScaling::None },
        tied: false,
        max_positions: 4096,
        sliding_window: None,
        bos: Some(0),
        eos: vec![0],
    }
}

/// The shape of a random model of given sizes.
pub(super) fn shape_of(sizes: RandomShape) -> ModelShape {
    ModelShape {
        hidden: sizes.hidden,
        intermediate: sizes.intermediate,
        layers: sizes.layers,
        heads: Heads { heads: sizes.heads, kv_heads: sizes.kv_heads },
        head_dim: sizes.head_dim(),
        vocab: sizes.vocab,
        max_positions: 1 << 17,
        ..tiny_shape()
    }
}

impl LanguageModel {
    /// A model of `shape` with weights drawn from a seed, wide enough for attention to be uneven, so that policies
    /// differ.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn random(shape: ModelShape, seed: u64, dtype: WeightType, device: &Device) -> Result<LanguageModel> {
        Self::random_sharp(shape, 1.0, seed, dtype, device)
    }

    /// The same with attention logits multiplied by `sharpness`.
    pub(super) fn random_sharp(
        shape: ModelShape,
        sharpness: f32,
        seed: u64,
        dtype: WeightType,
        device: &Device,
    ) -> Result<LanguageModel> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        let ModelShape { hidden, intermediate, vocab, head_dim, heads, .. } = shape;
        let (query, kv) = (heads.heads * head_dim, heads.kv_heads * head_dim);
        let mut matrix = |name: String, out: usize, input: usize, gain: f32| {
            let width = gain * (3.0 / input as f32).sqrt();
            let values = (0..out * input).flat_map(|_| ((2.0 * rng.f32() - 1.0) * width).to_le_bytes());
            tensors.push((name, vec![out, input], values.collect()));
        };
        matrix("model.embed_tokens.weight".into(), vocab, hidden, (hidden as f32).sqrt());
        if !shape.tied {
            matrix("lm_head.weight".into(), vocab, hidden, 1.5);
        }
        for layer in 0..shape.layers {
            for (name, out, input, gain) in [
                ("self_attn.q_proj", query, hidden, 1.5 * sharpness),
                ("self_attn.k_proj", kv, hidden, 1.5),
                ("self_attn.v_proj", kv, hidden, 1.0),
                ("self_attn.o_proj", hidden, query, 1.0),
                ("mlp.gate_proj", intermediate, hidden, 1.0),
                ("mlp.up_proj", intermediate, hidden, 1.0),
                ("mlp.down_proj", hidden, intermediate, 1.0),
            ] {
                matrix(format!("model.layers.{layer}.{name}.weight"), out, input, gain);
            }
        }
        let ones: Vec<u8> = (0..hidden).flat_map(|_| 1f32.to_le_bytes()).collect();
        let norms = (0..shape.layers)
            .flat_map(|layer| {
                ["input_layernorm", "post_attention_layernorm"].map(|n| format!("model.layers.{layer}.{n}.weight"))
            })
            .chain(["model.norm.weight".to_string()]);
        tensors.extend(norms.map(|name| (name, vec![hidden], ones.clone())));
        let views = tensors
            .iter()
            .map(|(name, shape, data)| Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), data)?)))
            .collect::<Result<HashMap<_, _>>>()?;
        let bytes = safetensors::serialize(views, None)?;
        drop(tensors);
        LanguageModel::from_weights(shape, Weights::from_bytes(bytes.into())?, dtype, device)
    }
}
