//! A decoder layer without its attention: the projections before it, and everything after it.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use super::config::ModelShape;
use super::layers::{Linear, Products, add, bytes_of, compute_type, rms_norm, silu_mul};
use super::weights::Weights;

/// A layer's weights.
pub(super) struct Layer {
    attention_norm: Tensor,
    mlp_norm: Tensor,
    /// Query, key, value, output; gate, up, down.
    matrices: [Linear; 7],
}

impl Layer {
    /// Takes layer `index` of a checkpoint, rounded to `dtype` and stored as `keep`.
    pub fn take(
        weights: &mut Weights,
        index: usize,
        shape: &ModelShape,
        (dtype, keep): (DType, DType),
        device: &Device,
    ) -> Result<Layer> {
        let mut norm = |name: &str| -> Result<Tensor> {
            let name = format!("model.layers.{index}.{name}.weight");
            let norm = weights.take(&name, &[shape.hidden], dtype, device)?;
            Ok(norm.to_dtype(compute_type(device, dtype, false))?)
        };
        let (attention_norm, mlp_norm) = (norm("input_layernorm")?, norm("post_attention_layernorm")?);
        let [query, key, value, output, gate, up, down] = shape.layer_matrices().map(|(name, out, input)| {
            Linear::take(weights, &format!("model.layers.{index}.{name}"), (out, input), (dtype, keep), device)
        });
        let matrices = [query?, key?, value?, output?, gate?, up?, down?];
        Ok(Layer { attention_norm, mlp_norm, matrices })
    }

    /// Bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        let matrices: usize = self.matrices.iter().map(Linear::bytes).sum();
        bytes_of(&self.attention_norm) + bytes_of(&self.mlp_norm) + matrices
    }

    /// Prepares the matrices for a kind of products.
    pub fn ready(&self, products: Products) -> Result<Layer> {
        let [query, key, value, output, gate, up, down] =
            self.matrices.each_ref().map(|matrix| matrix.ready(products));
        Ok(Layer {
            attention_norm: self.attention_norm.clone(),
            mlp_norm: self.mlp_norm.clone(),
            matrices: [query?, key?, value?, output?, gate?, up?, down?],
        })
    }

    /// Queries (rows, heads * head_dim), keys and values (rows, kv_heads * head_dim) of x (rows, hidden).
    pub fn project(&self, x: &Tensor, eps: f32) -> Result<[Tensor; 3]> {
        let [query, key, value, ..] = &self.matrices;
        let normed = rms_norm(x, &self.attention_norm, eps)?; // (rows, hidden)
        Ok([query.forward(&normed)?, key.forward(&normed)?, value.forward(&normed)?])
    }

    /// The layer's output (rows, hidden), from its input x and the output of attention (rows, heads * head_dim).
    pub fn finish(&self, x: &Tensor, mixed: &Tensor, eps: f32) -> Result<Tensor> {
        let [.., output, gate, up, down] = &self.matrices;
        let x = add(output.forward(mixed)?, x)?; // (rows, hidden)
        let normed = rms_norm(&x, &self.mlp_norm, eps)?;
        let gated = silu_mul(gate.forward(&normed)?, &up.forward(&normed)?)?; // (rows, intermediate)
        add(x, &down.forward(&gated)?)
    }
}
