//! Gemma 3n's layers beside attention and MLP (transformers `models/gemma3n`): alternating updates, in which a token has several
//! states, of which a layer computes one and predicts and corrects the others, and a residual path of low rank.

use anyhow::Result;
use candle_core::Tensor;

use super::loader::Loader;
use crate::lm::arithmetic::layers::{Linear, Products};
use crate::lm::arithmetic::rows::{add, rms_norm};
use crate::lm::shape::parts::AltUpShape;

/// Alternating updates of a layer.
pub(super) struct AltUp {
    states: usize,
    active: usize,
    /// Router (states, hidden), and `router_norm` before it, divided by `hidden`: (hidden)
    router: Linear,
    router_norm: Tensor,
    /// Matrix that predicts states: (states * states, states)
    prediction: Linear,
    /// Matrix that corrects states: (states, states)
    correction: Linear,
    /// Factor of the active state before the layer's extra input is added: (hidden)
    output_scale: Option<Tensor>,
    /// Residual path: matrices (rank, hidden) and (hidden, rank), and the norm after them.
    left: Linear,
    right: Linear,
    laurel_norm: Tensor,
}

/// Matrices that make the states of an embedding, and one state of the last states: (states - 1) matrices (hidden, hidden) each.
pub(super) struct AltUpEnds {
    projections: Vec<Linear>,
    unembed: Vec<Linear>,
}

impl AltUp {
    pub fn take(loader: &mut Loader<'_>, own: &AltUpShape) -> Result<AltUp> {
        let (hidden, states, rank) = (loader.shape.hidden, own.states, own.laurel_rank);
        let router_norm = (loader.norm("altup.router_norm", hidden)? / hidden as f64)?;
        let output_scale = loader.vector("altup.correct_output_scale", hidden)?;
        Ok(AltUp {
            states,
            active: own.active,
            router: loader.linear("altup.modality_router", (states, hidden))?,
            router_norm,
            prediction: loader.linear("altup.prediction_coefs", (states * states, states))?,
            correction: loader.linear("altup.correction_coefs", (states, states))?,
            output_scale: own.scales_output.then_some(output_scale),
            left: loader.linear("laurel.linear_left", (rank, hidden))?,
            right: loader.linear("laurel.linear_right", (hidden, rank))?,
            laurel_norm: loader.norm("laurel.post_laurel_norm", hidden)?,
        })
    }

    /// Predicts the states after the layer: (rows, states, hidden) -> (rows, states, hidden).
    pub fn predict(&self, states: &Tensor, eps: f32, products: Products) -> Result<Tensor> {
        let weights = self.prediction.forward(&self.routed(&self.active(states)?, eps, products)?, products)?;
        let weights = weights.reshape(((), self.states, self.states))?;
        Ok((weights.matmul(states)? + states)?)
    }

    /// State that the layer computes: (rows, hidden)
    pub fn active(&self, states: &Tensor) -> Result<Tensor> {
        Ok(states.narrow(1, self.active, 1)?.squeeze(1)?.contiguous()?)
    }

    /// Corrects the predicted states by what the layer made of the active one: (rows, states, hidden)
    pub fn correct(&self, predicted: &Tensor, made: &Tensor, eps: f32, products: Products) -> Result<Tensor> {
        let weights = (self.correction.forward(&self.routed(made, eps, products)?, products)? + 1.0)?;
        let error = (made - self.active(predicted)?)?.unsqueeze(1)?; // (rows, 1, hidden)
        Ok((error.broadcast_mul(&weights.unsqueeze(2)?)? + predicted)?)
    }

    /// Active state, scaled as the layer's extra input is added to it: (rows, hidden)
    pub fn scaled(&self, states: &Tensor) -> Result<Tensor> {
        let active = self.active(states)?;
        Ok(match &self.output_scale {
            Some(scale) => active.broadcast_mul(&scale.to_dtype(active.dtype())?)?,
            None => active,
        })
    }

    /// Adds `more` to all states but the first.
    pub fn add_to_others(&self, states: &Tensor, more: &Tensor) -> Result<Tensor> {
        let (first, others) = (states.narrow(1, 0, 1)?, states.narrow(1, 1, self.states - 1)?);
        Ok(Tensor::cat(&[first, others.broadcast_add(&more.unsqueeze(1)?)?], 1)?)
    }

    /// Applies the residual path of low rank, x + norm(right(left(x))): (rows, hidden) -> (rows, hidden).
    pub fn laurel(&self, x: &Tensor, eps: f32, products: Products) -> Result<Tensor> {
        let y = self.right.forward(&self.left.forward(x, products)?, products)?;
        add(rms_norm(&y, &self.laurel_norm, eps)?, x)
    }

    /// Applies the router: (rows, hidden) -> (rows, states)
    fn routed(&self, x: &Tensor, eps: f32, products: Products) -> Result<Tensor> {
        Ok(self.router.forward(&rms_norm(x, &self.router_norm, eps)?, products)?.tanh()?)
    }
}

impl AltUpEnds {
    pub fn take(loader: &mut Loader<'_>, own: &AltUpShape) -> Result<AltUpEnds> {
        let sides = (loader.shape.hidden, loader.shape.hidden);
        let mut all = |part: &str| -> Result<Vec<Linear>> {
            let name = |state: usize| format!("{part}.{state}");
            // One tensor in a GGUF file.
            loader
                .unstack(&format!("{part}.weight"), own.states - 1, |state| format!("{}.weight", name(state)))?;
            (0..own.states - 1).map(|state| loader.linear(&name(state), sides)).collect()
        };
        Ok(AltUpEnds { projections: all("altup_projections")?, unembed: all("altup_unembed_projections")? })
    }

    /// Makes the states of embeddings: (rows, hidden) -> (rows, states, hidden).
    pub fn begin(&self, x: &Tensor, products: Products) -> Result<Tensor> {
        let others = self.projections.iter().map(|own| as_large(&own.forward(x, products)?, x));
        let states = std::iter::once(Ok(x.clone())).chain(others).collect::<Result<Vec<_>>>()?;
        Ok(Tensor::stack(&states, 1)?)
    }

    /// Makes one state of those after the last layer: (rows, states, hidden) -> (rows, hidden).
    pub fn end(&self, states: &Tensor, products: Products) -> Result<Tensor> {
        let state = |index: usize| anyhow::Ok(states.narrow(1, index, 1)?.squeeze(1)?.contiguous()?);
        let first = state(0)?;
        let mut sum = first.clone();
        for (index, own) in self.unembed.iter().enumerate() {
            sum = (sum + as_large(&own.forward(&state(index + 1)?, products)?, &first)?)?;
        }
        Ok((sum / (self.unembed.len() + 1) as f64)?)
    }
}

/// Scales rows to the root mean square of the rows of `as_other`: (rows, hidden) each.
fn as_large(x: &Tensor, as_other: &Tensor) -> Result<Tensor> {
    const LEAST_MEAN_SQUARE: f64 = 1e-5;
    let target = as_other.sqr()?.mean_keepdim(1)?.sqrt()?;
    let own = x.sqr()?.mean_keepdim(1)?.maximum(LEAST_MEAN_SQUARE)?.sqrt()?;
    Ok(x.broadcast_mul(&target)?.broadcast_div(&own)?)
}
