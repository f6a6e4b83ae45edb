//! A decoder layer without its attention: the projections before it, and everything after it.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use super::config::ModelShape;
use super::layers::{Linear, Products, ReadyLinear, add, bytes_of, compute_type, rms_norm, silu_mul};
use super::weights::Weights;

/// A layer's weights.
pub(super) struct Layer {
    attention_norm: Tensor,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    mlp_norm: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// A layer prepared for products.
pub(super) struct ReadyLayer<'a> {
    layer: &'a Layer,
    query: ReadyLinear,
    key: ReadyLinear,
    value: ReadyLinear,
    output: ReadyLinear,
    gate: ReadyLinear,
    up: ReadyLinear,
    down: ReadyLinear,
}

impl Layer {
    /// Takes layer `index` of a checkpoint, rounded to `dtype` and stored as `keep`.
    pub fn take(
        weights: &mut Weights,
        index: usize,
        shape: &ModelShape,
        dtype: DType,
        keep: DType,
        device: &Device,
    ) -> Result<Layer> {
        let ModelShape { hidden, intermediate, head_dim, heads, .. } = *shape;
        let (query_width, kv_width) = (heads.heads * head_dim, heads.kv_heads * head_dim);
        let mut norm = |name: &str| -> Result<Tensor> {
            let name = format!("model.layers.{index}.{name}.weight");
            let norm = weights.take(&name, &[hidden], dtype, device)?;
            Ok(norm.to_dtype(compute_type(device, dtype, false))?)
        };
        let (attention_norm, mlp_norm) = (norm("input_layernorm")?, norm("post_attention_layernorm")?);
        let mut linear = |name: &str, sides: (usize, usize)| -> Result<Linear> {
            let name = format!("model.layers.{index}.{name}");
            Linear::take(weights, &name, sides, dtype, device)?.held_as(keep)
        };
        Ok(Layer {
            attention_norm,
            query: linear("self_attn.q_proj", (query_width, hidden))?,
            key: linear("self_attn.k_proj", (kv_width, hidden))?,
            value: linear("self_attn.v_proj", (kv_width, hidden))?,
            output: linear("self_attn.o_proj", (hidden, query_width))?,
            mlp_norm,
            gate: linear("mlp.gate_proj", (intermediate, hidden))?,
            up: linear("mlp.up_proj", (intermediate, hidden))?,
            down: linear("mlp.down_proj", (hidden, intermediate))?,
        })
    }

    /// Bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        let matrices = [&self.query, &self.key, &self.value, &self.output, &self.gate, &self.up, &self.down];
        let norms = bytes_of(&self.attention_norm) + bytes_of(&self.mlp_norm);
        norms + matrices.map(Linear::bytes).into_iter().sum::<usize>()
    }

    /// Prepares the matrices for a kind of products.
    pub fn ready(&self, products: Products) -> Result<ReadyLayer<'_>> {
        Ok(ReadyLayer {
            layer: self,
            query: self.query.ready(products)?,
            key: self.key.ready(products)?,
            value: self.value.ready(products)?,
            output: self.output.ready(products)?,
            gate: self.gate.ready(products)?,
            up: self.up.ready(products)?,
            down: self.down.ready(products)?,
        })
    }
}

impl ReadyLayer<'_> {
    /// Queries (rows, heads * head_dim), keys and values (rows, kv_heads * head_dim) of x (rows, hidden).
    pub fn project(&self, x: &Tensor, eps: f32) -> Result<[Tensor; 3]> {
        let normed = rms_norm(x, &self.layer.attention_norm, eps)?; // (rows, hidden)
        Ok([self.query.forward(&normed)?, self.key.forward(&normed)?, self.value.forward(&normed)?])
    }

    /// The layer's output (rows, hidden), from its input x and the output of attention (rows, heads * head_dim).
    pub fn finish(&self, x: &Tensor, mixed: &Tensor, eps: f32) -> Result<Tensor> {
        let x = add(self.output.forward(mixed)?, x)?; // (rows, hidden)
        let normed = rms_norm(&x, &self.layer.mlp_norm, eps)?;
        let gated = silu_mul(self.gate.forward(&normed)?, &self.up.forward(&normed)?)?; // (rows, intermediate)
        add(x, &self.down.forward(&gated)?)
    }
}
