//! A decoder layer without its attention: the projections before it, and everything after it.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use super::config::{KEY_NORM, ModelShape, QUERY_NORM};
use super::layers::{Linear, Products, add, bytes_of, compute_type, rms_norm};
use super::mlp::Mlp;
use super::product::{Right, product};
use super::weights::Weights;
use crate::eviction::Heads;

/// A layer's weights.
pub(super) struct Layer {
    norms: Norms,
    /// Query, key, value, output.
    attention: [Linear; 4],
    /// Logits of attention sinks (heads), or none.
    sinks: Vec<f32>,
    mlp: Mlp,
}

/// Those that a family does not have are `None`.
struct Norms {
    before_attention: Option<Tensor>,
    after_attention: Option<Tensor>,
    before_mlp: Option<Tensor>,
    after_mlp: Option<Tensor>,
    query: Option<Tensor>,
    key: Option<Tensor>,
}

impl Layer {
    /// Takes layer `index` of a checkpoint, rounded to `dtype`.
    pub fn take(
        weights: &mut Weights,
        index: usize,
        shape: &ModelShape,
        dtype: DType,
        device: &Device,
    ) -> Result<Layer> {
        let lengths = shape.layer_norms();
        let mut norm = |name: Option<&str>| -> Result<Option<Tensor>> {
            let of_name = |(other, _): &&(&str, usize)| Some(*other) == name;
            let Some((name, length)) = lengths.iter().find(of_name) else { return Ok(None) };
            let name = format!("model.layers.{index}.{name}.weight");
            Ok(Some(take_norm(weights, &name, *length, shape, dtype, device)?))
        };
        let norms = Norms {
            before_attention: norm(shape.norms.before_attention)?,
            after_attention: norm(shape.norms.after_attention)?,
            before_mlp: norm(shape.norms.before_mlp)?,
            after_mlp: norm(shape.norms.after_mlp)?,
            query: norm(Some(QUERY_NORM))?,
            key: norm(Some(KEY_NORM))?,
        };
        let mut matrices = take_matrices(weights, index, shape.attention_matrices(), dtype, device)?;
        if shape.fused {
            let (query_rows, kv_rows) = shape.projected();
            let parts = matrices[0].split([query_rows, kv_rows, kv_rows])?;
            matrices.splice(0..1, parts);
        }
        let attention = matrices.try_into().expect("four matrices");
        let sinks = match shape.sinks {
            true => {
                let name = format!("model.layers.{index}.self_attn.sinks");
                weights.take(&name, &[shape.heads.heads], DType::F32, &Device::Cpu)?.to_vec1()?
            }
            false => Vec::new(),
        };
        Ok(Layer { norms, attention, sinks, mlp: Mlp::take(weights, index, shape, dtype, device)? })
    }

    /// The same layer with products in integers, where these keep its weights.
    #[must_use]
    pub fn in_integers(self) -> Layer {
        Layer { attention: self.attention.map(Linear::in_integers), mlp: self.mlp.in_integers(), ..self }
    }

    /// Logits of attention sinks (heads), or none.
    pub fn sinks(&self) -> &[f32] {
        &self.sinks
    }

    /// Whether any product is in integers.
    pub fn is_in_integers(&self) -> bool {
        self.attention.iter().any(Linear::is_in_integers) || self.mlp.is_in_integers()
    }

    /// Bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        let Norms { before_attention, after_attention, before_mlp, after_mlp, query, key } = &self.norms;
        let norms = [before_attention, after_attention, before_mlp, after_mlp, query, key];
        let norms: usize = norms.into_iter().flatten().map(bytes_of).sum();
        norms + self.attention.iter().map(Linear::bytes).sum::<usize>() + self.mlp.bytes()
    }

    /// Queries (rows, heads * head_dim), keys and values (rows, kv_heads * head_dim) of x (rows, hidden).
    pub fn project(&self, x: &Tensor, shape: &ModelShape, products: Products) -> Result<[Tensor; 3]> {
        let [query, key, value, _] = &self.attention;
        let eps = shape.norm_eps;
        let normed = norm(x, self.norms.before_attention.as_ref(), eps)?; // (rows, hidden)
        let [query, key, value] = Linear::forward_all([query, key, value], &normed, products)?;
        Ok([norm(&query, self.norms.query.as_ref(), eps)?, norm(&key, self.norms.key.as_ref(), eps)?, value])
    }

    /// What the projections read of x (rows, hidden): after the norm, if there is one.
    pub fn hidden(&self, x: &Tensor, eps: f32) -> Result<Vec<f32>> {
        let normed = norm(x, self.norms.before_attention.as_ref(), eps)?;
        Ok(normed.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.flatten_all()?.to_vec1()?)
    }

    /// L1 norms of values (rows, kv_heads, dim) times the output weights of a query head, mean over those that share a key-value head:
    /// (rows, kv_heads). arXiv 2502.03805, section 4.
    pub fn projected_norms(&self, values: &[f32], heads: Heads, dim: usize) -> Result<Vec<f32>> {
        // Outputs that are multiplied at once.
        const OUTPUTS: usize = 256;
        let [.., output] = &self.attention;
        let (width, (outputs, input)) = (heads.kv_heads * dim, output.sides()?);
        let rows = values.len() / width;
        let mut norms = vec![0.0_f64; rows * heads.kv_heads];
        for first in (0..outputs).step_by(OUTPUTS) {
            let weights = output.weight_rows(first..outputs.min(first + OUTPUTS))?;
            let of_part = weights.len() / input;
            let mut projected = vec![0.0; rows * of_part];
            for head in 0..heads.heads {
                let kv_head = head / heads.per_kv_head();
                let own: Vec<f32> = weights
                    .chunks_exact(input)
                    .flat_map(|row| &row[head * dim..(head + 1) * dim])
                    .copied()
                    .collect();
                let of_head = (&values[kv_head * dim..], width);
                product((rows, of_part, dim), (&mut projected, of_part), of_head, Right::Transposed(&own));
                for (row, projected) in projected.chunks_exact(of_part).enumerate() {
                    norms[row * heads.kv_heads + kv_head] +=
                        projected.iter().map(|x| f64::from(x.abs())).sum::<f64>();
                }
            }
        }
        Ok(norms.into_iter().map(|norm| (norm / heads.per_kv_head() as f64) as f32).collect())
    }

    /// The layer's output (rows, hidden), from its input x and the output of attention (rows, heads * head_dim).
    pub fn finish(&self, x: &Tensor, mixed: &Tensor, shape: &ModelShape, products: Products) -> Result<Tensor> {
        let [.., output] = &self.attention;
        let eps = shape.norm_eps;
        let attended = norm(&output.forward(mixed, products)?, self.norms.after_attention.as_ref(), eps)?;
        let x = add(attended, x)?; // (rows, hidden)
        let normed = norm(&x, self.norms.before_mlp.as_ref(), eps)?;
        add(x, &norm(&self.mlp.forward(&normed, shape, products)?, self.norms.after_mlp.as_ref(), eps)?)
    }
}

/// Takes matrices of layer `index`, by their names in it and their sides (out, in).
pub(super) fn take_matrices(
    weights: &mut Weights,
    index: usize,
    matrices: Vec<(&str, usize, usize)>,
    dtype: DType,
    device: &Device,
) -> Result<Vec<Linear>> {
    let take = |(name, out, input): (&str, usize, usize)| {
        Linear::take(weights, &format!("model.layers.{index}.{name}"), (out, input), dtype, device)
    };
    matrices.into_iter().map(take).collect()
}

/// Takes the weight of a norm. A GGUF file has 1 + w where a checkpoint has w.
pub(super) fn take_norm(
    weights: &mut Weights,
    name: &str,
    length: usize,
    shape: &ModelShape,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let weight = weights.take(name, &[length], dtype, device)?.to_dtype(compute_type(device, dtype, false))?;
    Ok(if shape.norm_adds_one && !weights.is_gguf() { (weight + 1.0)? } else { weight })
}

/// RMSNorm, if there is one: of whole rows, or of every head, as long as the weight is.
fn norm(x: &Tensor, weight: Option<&Tensor>, eps: f32) -> Result<Tensor> {
    let Some(weight) = weight else { return Ok(x.clone()) };
    let parts = x.reshape(((), weight.elem_count()))?;
    Ok(rms_norm(&parts, weight, eps)?.reshape(x.shape())?)
}
