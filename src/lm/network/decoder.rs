//! A decoder layer without its attention: the projections before it, and everything after it.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use candle_core::{DType, Device, Tensor};

use super::altup::AltUp;
use super::delta::{DeltaNet, DeltaRows};
use super::latent::LatentAttention;
use super::loader::Loader;
use super::mlp::Mlp;
use crate::eviction::Heads;
use crate::lm::arithmetic::layers::{Linear, Products};
use crate::lm::arithmetic::product::{Right, product};
use crate::lm::arithmetic::rows::{add, gated, rms_norm};
use crate::lm::shape::config::ModelShape;
use crate::lm::shape::matrices::{EXPERT_NORMS, KEY_NORM, PER_LAYER_NORM, QUERY_NORM};
use crate::lm::shape::parts::HeadNorms;

/// Name of the norm of values, which has no weight.
const VALUE_NORM: &str = "values";

/// Weights of a layer.
pub(super) struct Layer {
    /// Norms, by their names in the checkpoint.
    norms: BTreeMap<&'static str, Tensor>,
    mixer: Mixer,
    /// Logits of attention sinks (heads), or none.
    pub sinks: Vec<f32>,
    mlp: Mlp,
    per_layer: Option<PerLayer>,
    pub altup: Option<AltUp>,
    /// Factor that the layer's output is multiplied by.
    scalar: Option<f64>,
}

/// Part of a layer that mixes tokens: attention, or what stands in its place.
enum Mixer {
    Attention {
        query: Linear,
        /// Key's matrix; `None` in a layer that shares another's cache. Without a value's matrix, the key's makes values.
        key: Option<Linear>,
        value: Option<Linear>,
        output: Linear,
    },
    Latent(Box<LatentAttention>),
    Delta(Box<DeltaNet>),
}

/// A layer's extra input for each token: x + norm(project(activation(gate(x)) * input)).
struct PerLayer {
    gate: Linear,
    projection: Linear,
    norm: Tensor,
}

/// Projections that the mixing part of a layer reads.
pub(super) enum Projected<'a> {
    Attention {
        /// Queries (rows, heads * head_dim).
        queries: Tensor,
        /// Keys and values (rows, kv_heads * head_dim) each, unless the layer shares another's cache.
        keys_and_values: Option<(Tensor, Tensor)>,
        /// Factors of the heads' outputs: (rows, heads * head_dim)
        gates: Option<Tensor>,
    },
    Delta(DeltaRows<'a>),
}

impl Mixer {
    /// Takes the weights of the mixing part of layer `index`.
    fn take(loader: &mut Loader<'_>, index: usize) -> Result<Mixer> {
        let shape = loader.shape;
        if let Some(delta) = shape.delta.filter(|_| shape.attention[index].is_recurrent) {
            return Ok(Mixer::Delta(Box::new(DeltaNet::take(&mut loader.of("linear_attn"), delta)?)));
        }
        if let Some(latent) = shape.latent {
            return Ok(Mixer::Latent(Box::new(LatentAttention::take(&mut loader.of("self_attn"), latent)?)));
        }
        if shape.interleaved_rotation {
            let Heads { heads, kv_heads } = shape.heads_of(index);
            // Their numbers would have to change places with the rows of the weights.
            let is_biased = loader.has("self_attn.q_proj.bias") || loader.has("self_attn.k_proj.bias");
            ensure!(
                !is_biased,
                "queries and keys that rotate neighbouring numbers have biases, which is not computed here"
            );
            loader.permute("self_attn.q_proj.weight", heads);
            loader.permute("self_attn.k_proj.weight", kv_heads);
        }
        let mut matrices = loader.linears(shape.attention_matrices(index))?;
        if shape.fused {
            let (query_rows, kv_rows) = shape.projected(index);
            let parts = matrices[0].split([query_rows, kv_rows, kv_rows])?;
            matrices.splice(0..1, parts);
        }
        let output = loader.converted(matrices.pop().expect("an output matrix"));
        let mut matrices = matrices.into_iter().map(|matrix| loader.converted(matrix));
        let query = matrices.next().expect("a query matrix");
        let (key, value) = (matrices.next(), matrices.next());
        Ok(Mixer::Attention { query, key, value, output })
    }
}

impl Layer {
    /// Takes the weights of layer `index`.
    pub fn take(loader: &mut Loader<'_>, index: usize) -> Result<Layer> {
        let shape = loader.shape;
        let mut norms = BTreeMap::new();
        for (name, length) in shape.layer_norms(index) {
            if !EXPERT_NORMS.contains(&name) {
                norms.insert(name, loader.norm(name, length)?);
            }
        }
        // As long after the rotation as before it.
        let is_rotated = shape.ropes[shape.attention[index].rope].dims > 0;
        let of_rotated = shape.norms.of_heads == HeadNorms::OfRotated && is_rotated;
        for (name, has) in [(QUERY_NORM, of_rotated), (KEY_NORM, of_rotated), (VALUE_NORM, shape.value_norm)] {
            if has {
                norms.insert(name, loader.ones(shape.head_dim_of(index))?);
            }
        }
        let mixer = Mixer::take(loader, index)?;
        let sinks = match shape.sinks {
            true => loader.numbers("self_attn.sinks", &[shape.heads.heads])?,
            false => Vec::new(),
        };
        let mlp = Mlp::take(loader, index)?;
        let matrices = loader.linears(shape.per_layer_matrices())?;
        let mut matrices = matrices.into_iter().map(|matrix| loader.converted(matrix));
        let per_layer = match (matrices.next(), matrices.next(), norms.remove(PER_LAYER_NORM)) {
            (Some(gate), Some(projection), Some(norm)) => Some(PerLayer { gate, projection, norm }),
            _ => None,
        };
        let scalar = match shape.layer_scalar {
            true => loader.numbers("layer_scalar", &[1])?.pop(),
            false => None,
        };
        let altup = shape.altup.as_ref().map(|own| AltUp::take(loader, own)).transpose()?;
        Ok(Layer { norms, mixer, sinks, mlp, per_layer, altup, scalar })
    }

    /// Projects x (rows, hidden) to what attention, or the part in its place, reads.
    pub fn project(&self, x: &Tensor, shape: &ModelShape, products: Products) -> Result<Projected<'_>> {
        let norm = |x: &Tensor, name: Option<&str>| self.norm(x, name, shape.norm_eps);
        let normed = norm(x, shape.norms.before_attention)?; // (rows, hidden)
        let (query, key, value) = match &self.mixer {
            Mixer::Delta(net) => return Ok(Projected::Delta(net.project(&normed, products)?)),
            Mixer::Latent(own) => {
                let [queries, keys, values] = own.project(&normed, products)?;
                return Ok(Projected::Attention { queries, keys_and_values: Some((keys, values)), gates: None });
            }
            Mixer::Attention { query, key, value, .. } => (query, key, value),
        };
        let (query, keys_and_values) = match (key, value) {
            (Some(key), Some(value)) => {
                let [query, key, value] = Linear::forward_all([query, key, value], &normed, products)?;
                (query, Some((key, value)))
            }
            (Some(key), None) => {
                let [query, key] = Linear::forward_all([query, key], &normed, products)?;
                (query, Some((key.clone(), key)))
            }
            (None, _) => (query.forward(&normed, products)?, None),
        };
        let (query, gates) = match shape.gated_attention {
            true => {
                // The query and the gate of each head follow each other.
                let (rows, width) = query.dims2()?;
                let heads = query.reshape((rows * shape.heads.heads, ()))?;
                let part = |at: usize| heads.chunk(2, 1)?[at].contiguous()?.reshape((rows, width / 2));
                (part(0)?, Some(part(1)?))
            }
            false => (query, None),
        };
        let read = |x: &Tensor, name: &str| {
            let normed = norm(x, Some(name))?;
            match shape.qkv_limit {
                Some(limit) => Ok(normed.clamp(-limit, limit)?),
                None => anyhow::Ok(normed),
            }
        };
        let keys_and_values =
            keys_and_values.map(|(key, value)| anyhow::Ok((read(&key, KEY_NORM)?, read(&value, VALUE_NORM)?)));
        Ok(Projected::Attention {
            queries: read(&query, QUERY_NORM)?,
            keys_and_values: keys_and_values.transpose()?,
            gates,
        })
    }

    /// Input of the projections for x (rows, hidden): x after the norm, if there is one.
    pub fn hidden(&self, x: &Tensor, shape: &ModelShape) -> Result<Vec<f32>> {
        let normed = self.norm(x, shape.norms.before_attention, shape.norm_eps)?;
        Ok(normed.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.flatten_all()?.to_vec1()?)
    }

    /// L1 norms of values (rows, kv_heads, dim) times the output weights of a query head, averaged over the query heads that share
    /// a key-value head: (rows, kv_heads). arXiv 2502.03805, section 4.
    pub fn projected_norms(&self, values: &[f32], heads: Heads, dim: usize) -> Result<Vec<f32>> {
        // Outputs that are multiplied at once.
        const OUTPUTS: usize = 256;
        let Mixer::Attention { output, .. } = &self.mixer else { bail!("the layer has no values of heads") };
        let (width, (outputs, input)) = (heads.kv_heads * dim, output.weight.sides()?);
        let rows = values.len() / width;
        let mut norms = vec![0.0_f64; rows * heads.kv_heads];
        for first in (0..outputs).step_by(OUTPUTS) {
            let weights = output.weight.rows(first..outputs.min(first + OUTPUTS))?;
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

    /// Output of the layer (rows, hidden), from its input x, the output of attention (rows, heads * head_dim), and the layer's
    /// extra input (rows, per_layer_input), if there is one. If tokens have several states, `predicted` are these, x is the active
    /// one, and the output has all of them: (rows, states, hidden).
    pub fn finish(
        &self,
        x: &Tensor,
        mixed: &Tensor,
        (per_layer, predicted): (Option<&Tensor>, Option<&Tensor>),
        shape: &ModelShape,
        products: Products,
    ) -> Result<Tensor> {
        let (names, eps) = (&shape.norms, shape.norm_eps);
        let attended = match &self.mixer {
            Mixer::Attention { output, .. } => output.forward(mixed, products)?,
            Mixer::Latent(own) => own.finish(mixed, products)?,
            Mixer::Delta(net) => net.finish(mixed, products)?,
        };
        let attended = self.norm(&attended, names.after_attention, eps)?;
        let mut attended = add(attended, x)?; // (rows, hidden)
        if let Some(altup) = &self.altup {
            let normed = self.norm(x, names.before_attention, eps)?;
            attended = ((attended + altup.laurel(&normed, eps, products)?)? * 0.5_f64.sqrt())?;
        }
        let normed = self.norm(&attended, names.before_mlp, eps)?;
        let of_mlp = self.mlp.forward(&normed, &attended, shape, products)?;
        let mut x = add(self.norm(&of_mlp, names.after_mlp, eps)?, &attended)?;
        if let (Some(altup), Some(predicted)) = (&self.altup, predicted) {
            x = altup.correct(predicted, &x, eps, products)?;
        }
        if let (Some(PerLayer { gate, projection, norm }), Some(input)) = (&self.per_layer, per_layer) {
            let from = self.altup.as_ref().map(|altup| altup.scaled(&x)).transpose()?;
            let own = gated(gate.forward(from.as_ref().unwrap_or(&x), products)?, input, shape.activation)?;
            let own = rms_norm(&projection.forward(&own, products)?, norm, eps)?;
            x = match &self.altup {
                Some(altup) => altup.add_to_others(&x, &own)?,
                None => add(own, &x)?,
            };
        }
        Ok(match self.scalar {
            Some(scalar) => (x * scalar)?,
            None => x,
        })
    }
    /// Applies an RMSNorm, if the layer has it: over whole rows, or over every head, depending on the length of the weight.
    fn norm(&self, x: &Tensor, name: Option<&str>, eps: f32) -> Result<Tensor> {
        let Some(weight) = name.and_then(|name| self.norms.get(name)) else { return Ok(x.clone()) };
        let parts = x.reshape(((), weight.elem_count()))?;
        Ok(rms_norm(&parts, weight, eps)?.reshape(x.shape())?)
    }
}
