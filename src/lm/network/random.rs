//! Models with random weights drawn from a seed, which exercise every part of the engine without a download.

use std::collections::HashMap;

use anyhow::Result;
use candle_core::Tensor;

use super::transformer::LanguageModel;
use crate::eviction::Heads;
use crate::lm::arithmetic::types::WeightType;
use crate::lm::device::Device;
use crate::lm::files::tokenizer::Tokenizer;
use crate::lm::files::weights::Weights;
use crate::lm::shape::config::ModelShape;

/// The shape of `random-tiny`: grouped heads, and bytes as vocabulary.
pub fn tiny_shape() -> ModelShape {
    ModelShape::random(ModelShape {
        hidden: 32,
        intermediate: 64,
        layers: 2,
        heads: Heads { heads: 4, kv_heads: 2 },
        head_dim: 8,
        vocab: Tokenizer::BYTES_VOCAB,
        ..ModelShape::default()
    })
}

impl LanguageModel {
    /// A model of `shape` with weights drawn from a seed, wide enough for attention to be uneven, so that policies
    /// differ. Attention logits are multiplied by `sharpness`.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn random(
        shape: ModelShape,
        sharpness: f32,
        seed: u64,
        dtype: WeightType,
        device: &Device,
    ) -> Result<LanguageModel> {
        let weights = Weights::random(&shape, sharpness, seed)?;
        LanguageModel::from_weights(shape, weights, dtype, device)
    }
}

impl Weights {
    /// Draws the weights of a random model, in f32.
    pub(in crate::lm) fn random(shape: &ModelShape, sharpness: f32, seed: u64) -> Result<Weights> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut tensors: HashMap<String, Tensor> = HashMap::new();
        let &ModelShape { hidden, vocab, .. } = shape;
        let mut matrix = |name: String, out: usize, input: usize, gain: f32| {
            let width = gain * (3.0 / input as f32).sqrt();
            let values: Vec<f32> = (0..out * input).map(|_| (2.0 * rng.f32() - 1.0) * width).collect();
            tensors.insert(name, Tensor::from_vec(values, (out, input), &candle_core::Device::Cpu)?);
            anyhow::Ok(())
        };
        matrix("model.embed_tokens.weight".into(), vocab, hidden, (hidden as f32).sqrt())?;
        if !shape.tied {
            matrix("lm_head.weight".into(), vocab, hidden, 1.5)?;
        }
        for layer in 0..shape.layers {
            for (name, out, input) in [shape.attention_matrices(layer), shape.mlp_matrices(layer)].concat() {
                let gain = match name {
                    "self_attn.q_proj" => 1.5 * sharpness,
                    "self_attn.k_proj" => 1.5,
                    _ => 1.0,
                };
                matrix(format!("model.layers.{layer}.{name}.weight"), out, input, gain)?;
            }
        }
        let neutral = if shape.norm_adds_one { 0f32 } else { 1.0 };
        let norm = |length: usize| Tensor::full(neutral, length, &candle_core::Device::Cpu);
        for layer in 0..shape.layers {
            for (name, length) in shape.layer_norms(layer) {
                tensors.insert(format!("model.layers.{layer}.{name}.weight"), norm(length)?);
            }
        }
        tensors.insert("model.norm.weight".into(), norm(hidden)?);
        let bytes = safetensors::serialize(&tensors, None)?;
        drop(tensors);
        Weights::from_bytes(bytes.into())
    }
}
