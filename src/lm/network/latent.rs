//! Multi-head latent attention (DeepSeek V2, arXiv 2405.04434): all heads make their keys and values from one latent vector of a token, and
//! share one rotated key.
//!
//! The cache holds these two. What makes keys of a latent is multiplied into the queries, and what makes values of it into the outputs: the
//! same sums in another order. So to the cache it is attention with one key-value head, whose key is the rotated part and the latent, and
//! whose value is the latent.

use anyhow::Result;
use candle_core::{D, Tensor};

use super::loader::Loader;
use crate::lm::arithmetic::layers::{Linear, Products};
use crate::lm::arithmetic::rows::rms_norm;
use crate::lm::shape::parts::LatentShape;

/// Epsilon of transformers' norms of ranks, whatever the configuration says of other norms.
const EPS: f32 = 1e-6;

/// Weights of latent attention in a layer.
pub(super) struct LatentAttention {
    shape: LatentShape,
    heads: usize,
    /// Matrix to queries (heads * (nope + rope)), and the path through a vector of the query's rank, if there is one.
    query: Linear,
    compressed_query: Option<(Linear, Tensor)>,
    /// Matrix to the latent and the rotated key (rank + rope, hidden), and the norm of the latent.
    compress: Linear,
    norm: Tensor,
    /// Matrices from queries (nope) to latents (rank), and from latents to values: (heads) each
    absorb: Vec<Linear>,
    expand: Vec<Linear>,
    output: Linear,
}

impl LatentAttention {
    pub fn take(loader: &mut Loader<'_>, own: LatentShape) -> Result<LatentAttention> {
        let (heads, hidden) = (loader.shape.heads.heads, loader.shape.hidden);
        let queries = heads * (own.nope + own.rope);
        let (query, compressed_query) = match own.query_rank {
            None => (loader.product("q_proj", (queries, hidden))?, None),
            Some(rank) => {
                let compressed =
                    (loader.product("q_a_proj", (rank, hidden))?, loader.norm("q_a_layernorm", rank)?);
                (loader.product("q_b_proj", (queries, rank))?, Some(compressed))
            }
        };
        let compress = loader.product("kv_a_proj_with_mqa", (own.rank + own.rope, hidden))?;
        let norm = loader.norm("kv_a_layernorm", own.rank)?;
        let output = loader.product("o_proj", (hidden, heads * own.value))?;
        let (absorb, expand) = if loader.has("k_b_proj.weight") {
            // A GGUF file has the two parts of kv_b_proj, one of them transposed.
            let absorb = loader.stacked("k_b_proj", heads, (own.rank, own.nope))?;
            (absorb, loader.stacked("v_b_proj", heads, (own.value, own.rank))?)
        } else {
            // The rows of each head are those to keys and then those to values.
            let sides = [heads * (own.nope + own.value), own.rank];
            let up = loader.tensor("kv_b_proj.weight", &sides, loader.dtype)?;
            let up = up.reshape((heads, own.nope + own.value, own.rank))?;
            let part =
                |head: usize, from: usize, rows: usize| up.narrow(0, head, 1)?.squeeze(0)?.narrow(0, from, rows);
            let absorb = (0..heads).map(|head| loader.linear_of(&part(head, 0, own.nope)?.t()?, None));
            let absorb = absorb.collect::<Result<_>>()?;
            let expand = (0..heads).map(|head| loader.linear_of(&part(head, own.nope, own.value)?, None));
            (absorb, expand.collect::<Result<_>>()?)
        };
        Ok(LatentAttention { shape: own, heads, query, compressed_query, compress, norm, absorb, expand, output })
    }

    /// Projects x (rows, hidden), after the layer's norm, to queries (rows, heads * (rope + rank)), and keys and values (rows, rope
    /// + rank). The part of values beside the latent is 0.
    pub fn project(&self, x: &Tensor, products: Products) -> Result<[Tensor; 3]> {
        let LatentShape { rank, nope, rope, .. } = self.shape;
        let (rows, heads) = (x.dim(0)?, self.heads);
        let queries = match &self.compressed_query {
            None => self.query.forward(x, products)?,
            Some((compress, norm)) => {
                self.query.forward(&rms_norm(&compress.forward(x, products)?, norm, EPS)?, products)?
            }
        };
        let queries = queries.reshape((rows, heads, nope + rope))?;
        let rotated = self.in_halves(&queries.narrow(2, nope, rope)?)?;
        let absorbed = by_head(&self.absorb, &queries.narrow(2, 0, nope)?, products)?; // (rows, heads, rank)
        let queries = Tensor::cat(&[rotated, absorbed], 2)?.reshape((rows, heads * (rope + rank)))?;
        let compressed = self.compress.forward(x, products)?;
        let latent = rms_norm(&compressed.narrow(1, 0, rank)?.contiguous()?, &self.norm, EPS)?;
        let rotated = self.in_halves(&compressed.narrow(1, rank, rope)?)?;
        let values = Tensor::cat(&[&rotated.zeros_like()?, &latent], 1)?;
        Ok([queries, Tensor::cat(&[&rotated, &latent], 1)?, values])
    }

    /// Reorders dimensions that are rotated in pairs: checkpoints have the two of a pair next to each other, here all first ones
    /// come before all second ones.
    fn in_halves(&self, x: &Tensor) -> Result<Tensor> {
        if !self.shape.interleaved {
            return Ok(x.contiguous()?);
        }
        let mut sides = x.dims().to_vec();
        let last = sides.pop().unwrap_or_default();
        sides.extend([last / 2, 2]);
        Ok(x.contiguous()?.reshape(sides)?.transpose(D::Minus1, D::Minus2)?.contiguous()?.reshape(x.shape())?)
    }

    /// Output of the layer (rows, hidden), from that of attention (rows, heads * (rope + rank)).
    pub fn finish(&self, mixed: &Tensor, products: Products) -> Result<Tensor> {
        let LatentShape { rank, rope, value, .. } = self.shape;
        let rows = mixed.dim(0)?;
        let mixed = mixed.reshape((rows, self.heads, rope + rank))?;
        let values = by_head(&self.expand, &mixed.narrow(2, rope, rank)?, products)?;
        let values = values.reshape((rows, self.heads * value))?;
        self.output.forward(&values, products)
    }
}

/// Multiplies each head with its own matrix: (rows, heads, in) -> (rows, heads, out).
fn by_head(matrices: &[Linear], x: &Tensor, products: Products) -> Result<Tensor> {
    let product = |(head, matrix): (usize, &Linear)| {
        matrix.forward(&x.narrow(1, head, 1)?.squeeze(1)?.contiguous()?, products)
    };
    Ok(Tensor::stack(&matrices.iter().enumerate().map(product).collect::<Result<Vec<_>>>()?, 1)?)
}
