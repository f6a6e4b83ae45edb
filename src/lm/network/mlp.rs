//! The part of a layer after attention: a gated MLP, or a mixture of experts, each of which is a gated MLP.

use anyhow::{Context, Result};
use candle_core::cpu::erf::erf_inv;
use candle_core::{DType, Device, Tensor};

use super::loader::Loader;
use crate::lm::arithmetic::layers::{Linear, Products, bytes_of};
use crate::lm::arithmetic::rows::{add, gated, rms_norm};
use crate::lm::shape::config::ModelShape;
use crate::lm::shape::matrices::EXPERT_NORMS;
use crate::lm::shape::parts::{Activation, Experts, RouterScores};

/// Part of a layer after attention: (rows, hidden) -> (rows, hidden).
pub(super) struct Mlp {
    /// MLP in the place of experts, or beside them.
    dense: Option<Gated>,
    mixture: Option<Mixture>,
}

/// A mixture of experts.
struct Mixture {
    router: Linear,
    /// Numbers added to the router's scores for the choice: (count), or none
    bias: Vec<f64>,
    experts: Vec<Gated>,
    shared: Option<Shared>,
    beside: Option<Beside>,
}

/// Norms and scales of experts beside an MLP.
struct Beside {
    /// Norms after the MLP, before the experts, and after them: (hidden) each
    norms: [Tensor; 3],
    /// Factor of the router's input after its norm: (hidden)
    scale: Tensor,
    /// Factors of the weights of experts: (count)
    expert_scales: Vec<f64>,
}

/// Gated MLP, down(activation(gate(x)) * up(x)).
struct Gated {
    gate: Linear,
    up: Linear,
    down: Linear,
    /// Number of standard deviations above their mean below which gates are cut off; other gates count from there.
    cutoff: Option<f64>,
}

/// Expert that every token goes to, weighted by the sigmoid of a product of the state, if it has a gate.
struct Shared {
    expert: Gated,
    gate: Option<Linear>,
}

/// Tokens that go to each expert, and the way back.
struct Routes {
    /// Rows of the states for each expert: (count)
    rows: Vec<Vec<u32>>,
    /// Places of the outputs of a row's experts, if the outputs of all experts follow each other: (rows * per_token)
    outputs: Vec<u32>,
    /// Weights of a row's experts: (rows * per_token)
    weights: Vec<f64>,
}

impl Mlp {
    /// Takes the MLP or the experts of layer `index`.
    pub fn take(loader: &mut Loader<'_>, index: usize) -> Result<Mlp> {
        let shape = loader.shape;
        let experts = shape.experts_of(index);
        let has_dense = experts.is_none_or(|own| own.beside_mlp);
        Ok(Mlp {
            dense: has_dense.then(|| Gated::take(loader, index)).transpose()?,
            mixture: experts.map(|own| Mixture::take(loader, own)).transpose()?,
        })
    }

    /// Computes the MLP of `states` (rows, hidden), which are x after the norm before it: (rows, hidden). The result of a row does
    /// not depend on the rows beside it.
    pub fn forward(&self, states: &Tensor, x: &Tensor, shape: &ModelShape, products: Products) -> Result<Tensor> {
        let of_mlp = self.dense.as_ref().map(|own| own.forward(states, shape.activation, products)).transpose()?;
        let Some(mixture) = &self.mixture else { return of_mlp.context("the layer has no MLP") };
        let (Some(of_mlp), Some(Beside { norms: [after_mlp, before, after], scale, .. })) =
            (of_mlp, &mixture.beside)
        else {
            return mixture.forward([states, states], shape, products);
        };
        let eps = shape.norm_eps;
        let of_mlp = rms_norm(&of_mlp, after_mlp, eps)?;
        let (routed, own) = (rms_norm(x, scale, eps)?, rms_norm(x, before, eps)?);
        add(rms_norm(&mixture.forward([&routed, &own], shape, products)?, after, eps)?, &of_mlp)
    }
}

impl Beside {
    fn take(loader: &mut Loader<'_>, experts: usize) -> Result<Beside> {
        let hidden = loader.shape.hidden;
        let [after_mlp, before, after] = EXPERT_NORMS.map(|name| loader.norm(name, hidden));
        let norms = [after_mlp?, before?, after?];
        let scale = loader.tensor("router.scale", &[hidden], DType::F64)?;
        let scale = (scale * (hidden as f64).powf(-0.5))?.to_dtype(norms[0].dtype())?.to_device(loader.device)?;
        loader.count([bytes_of(&scale)]);
        let expert_scales = loader.numbers("router.per_expert_scale", &[experts])?;
        Ok(Beside { norms, scale, expert_scales })
    }
}

impl Mixture {
    /// Takes the experts of a layer. The router stays as it is stored, because a choice cannot be nearly right.
    fn take(loader: &mut Loader<'_>, own: &Experts) -> Result<Mixture> {
        let (hidden, inner) = (loader.shape.hidden, own.intermediate);
        let router = loader.linear("mlp.gate", (own.count, hidden))?;
        let part = &mut loader.of("mlp.experts");
        if own.transposed {
            part.transpose("gate_up_proj", own.by_turns);
            part.transpose("down_proj", false);
        }
        let is_fused = part.has("gate_up_proj") || part.has("gate_up_proj.weight");
        let both = if is_fused {
            let both = part.stacked("gate_up_proj", own.count, (2 * inner, hidden))?;
            both.iter().map(|both| both.split([inner; 2])).collect::<Result<Vec<_>>>()?
        } else {
            let gate = part.stacked("gate_proj", own.count, (inner, hidden))?;
            let up = part.stacked("up_proj", own.count, (inner, hidden))?;
            gate.into_iter().zip(up).map(|(gate, up)| [gate, up]).collect()
        };
        let down = part.stacked("down_proj", own.count, (hidden, inner))?;
        let expert = |([gate, up], down): ([Linear; 2], Linear)| Gated::of(part, vec![gate, up, down]);
        let experts = both.into_iter().zip(down).map(expert).collect();
        let bias = match own.scores {
            RouterScores::Softmax | RouterScores::InputSigmoid => Vec::new(),
            RouterScores::Sigmoid => loader.numbers("mlp.gate.e_score_correction_bias", &[own.count])?,
        };
        let shared = own.shared.map(|inner| {
            let part = &mut loader.of("mlp.shared_expert");
            let sides = [("gate_proj", inner, hidden), ("up_proj", inner, hidden), ("down_proj", hidden, inner)];
            let matrices = part.linears(sides.into())?;
            let expert = Gated::of(part, matrices);
            let gate = match own.has_shared_gate {
                true => Some(loader.linear("mlp.shared_expert_gate", (1, hidden))?),
                false => None,
            };
            anyhow::Ok(Shared { expert, gate })
        });
        let shared = shared.transpose()?;
        let beside = own.beside_mlp.then(|| Beside::take(loader, own.count)).transpose()?;
        Ok(Mixture { router, bias, experts, shared, beside })
    }

    /// Computes the experts of x that the router chooses by `routed`: (rows, hidden) each.
    fn forward(&self, [routed, x]: [&Tensor; 2], shape: &ModelShape, products: Products) -> Result<Tensor> {
        let Mixture { router, bias, experts, shared, beside } = self;
        let own = shape.experts.as_ref().context("the model has no experts")?;
        let scales = beside.as_ref().map_or(&[][..], |beside| &beside.expert_scales);
        let Routes { rows, outputs, weights } = Routes::of(&router.forward(routed, products)?, own, bias, scales)?;
        let (device, all) = (x.device(), x.dim(0)?);
        let scales_input = own.scores == RouterScores::InputSigmoid;
        let mut of_experts = Vec::new();
        // The weights of the rows of all experts, one after the other, if these are scaled.
        let mut scales = vec![0.0; if scales_input { outputs.len() } else { 0 }];
        if scales_input {
            outputs.iter().zip(&weights).for_each(|(place, weight)| scales[*place as usize] = *weight);
        }
        let mut next = 0;
        for (expert, rows) in experts.iter().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            let mut own = x.index_select(&Tensor::new(&rows[..], device)?, 0)?;
            if scales_input {
                let scales = Tensor::new(&scales[next..next + rows.len()], device)?.to_dtype(own.dtype())?;
                own = own.broadcast_mul(&scales.unsqueeze(1)?)?;
                next += rows.len();
            }
            of_experts.push(expert.forward(&own, shape.activation, products)?);
        }
        let each = (all, own.per_token, ());
        let of_rows =
            Tensor::cat(&of_experts, 0)?.index_select(&Tensor::new(outputs, device)?, 0)?.reshape(each)?;
        let weights = Tensor::new(weights, device)?.to_dtype(x.dtype())?.reshape(each)?;
        let weighted = if scales_input { of_rows } else { of_rows.broadcast_mul(&weights)? };
        let sum = weighted.sum(1)?; // (rows, hidden)
        let Some(Shared { expert, gate }) = shared else { return Ok(sum) };
        let of_shared = expert.forward(x, shape.activation, products)?;
        let of_shared = match gate {
            // (rows, 1)
            Some(gate) => of_shared.broadcast_mul(&candle_nn::ops::sigmoid(&gate.forward(x, products)?)?)?,
            None => of_shared,
        };
        add(sum, &of_shared)
    }
}

impl Gated {
    /// Gated MLP of the matrices gate, up and down.
    fn of(loader: &mut Loader<'_>, matrices: Vec<Linear>) -> Gated {
        let matrices: [Linear; 3] = matrices.try_into().expect("three matrices");
        let [gate, up, down] = matrices.map(|matrix| loader.converted(matrix));
        Gated { gate, up, down, cutoff: None }
    }

    /// Takes the MLP of layer `index` of a model.
    fn take(loader: &mut Loader<'_>, index: usize) -> Result<Gated> {
        let shape = loader.shape;
        let mut matrices = loader.linears(shape.mlp_matrices(index))?;
        if shape.fused {
            let parts = matrices[0].split([shape.intermediate; 2])?; // gate and up
            matrices.splice(0..1, parts);
        }
        let sparsity = shape.altup.as_ref().map_or(0.0, |own| own.sparsity[index]);
        // The quantile of the normal distribution.
        let cutoff = (sparsity > 0.0).then(|| 2_f64.sqrt() * erf_inv(2.0 * sparsity - 1.0));
        Ok(Gated { cutoff, ..Gated::of(loader, matrices) })
    }

    fn forward(&self, x: &Tensor, activation: Activation, products: Products) -> Result<Tensor> {
        let [mut gate, up] = Linear::forward_all([&self.gate, &self.up], x, products)?;
        if let Some(cutoff) = self.cutoff {
            let apart = gate.broadcast_sub(&gate.mean_keepdim(1)?)?;
            let deviation = apart.sqr()?.mean_keepdim(1)?.sqrt()?;
            gate = apart.broadcast_sub(&(deviation * cutoff)?)?.relu()?;
        }
        self.down.forward(&gated(gate, &up, activation)?, products)
    }
}

impl Routes {
    /// Chooses each token's experts: those with the highest logits (rows, count), or scores plus `bias`, the first of equal ones,
    /// within the best groups. Their weights are the scores, scaled to sum to 1 if the model does so, times the experts' `scales`,
    /// if there are any.
    fn of(logits: &Tensor, own: &Experts, bias: &[f64], scales: &[f64]) -> Result<Routes> {
        let logits: Vec<Vec<f64>> = logits.to_dtype(DType::F64)?.to_device(&Device::Cpu)?.to_vec2()?;
        let mut rows = vec![Vec::new(); own.count];
        let (mut places, mut weights) = (Vec::new(), Vec::new());
        for (row, logits) in logits.iter().enumerate() {
            let highest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            // A softmax is not divided by its sum before it has to be.
            let scores: Vec<f64> = match own.scores {
                RouterScores::Softmax => logits.iter().map(|logit| (logit - highest).exp()).collect(),
                RouterScores::Sigmoid | RouterScores::InputSigmoid => {
                    logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect()
                }
            };
            let mut choice = match own.scores {
                RouterScores::Softmax | RouterScores::InputSigmoid => logits.clone(),
                RouterScores::Sigmoid => scores.iter().zip(bias).map(|(score, bias)| score + bias).collect(),
            };
            if let Some((groups, most)) = own.groups {
                keep_best_groups(
                    &mut choice,
                    groups,
                    most,
                    if own.scores == RouterScores::Sigmoid { 2 } else { 1 },
                );
            }
            let mut chosen: Vec<usize> = (0..own.count).collect();
            chosen.sort_by(|a, b| choice[*b].total_cmp(&choice[*a]));
            let sum = match (own.normalised, own.scores) {
                (true, _) => chosen[..own.per_token].iter().map(|expert| scores[*expert]).sum(),
                (false, RouterScores::Softmax) => chosen.iter().map(|expert| scores[*expert]).sum(),
                (false, RouterScores::Sigmoid | RouterScores::InputSigmoid) => 1.0,
            };
            chosen.truncate(own.per_token);
            chosen.sort_unstable();
            for expert in chosen {
                weights.push(scores[expert] / sum * own.scale * scales.get(expert).unwrap_or(&1.0));
                places.push((expert, rows[expert].len()));
                rows[expert].push(row as u32);
            }
        }
        let firsts = rows.iter().scan(0, |next, rows| {
            let first = *next;
            *next += rows.len();
            Some(first)
        });
        let firsts: Vec<usize> = firsts.collect();
        let outputs = places.into_iter().map(|(expert, at)| (firsts[expert] + at) as u32).collect();
        Ok(Routes { rows, outputs, weights })
    }
}

/// Leaves only the experts of the `most` best groups in the choice; a group is as good as the sum of its best `of` experts.
fn keep_best_groups(choice: &mut [f64], groups: usize, most: usize, of: usize) {
    let size = choice.len() / groups;
    let good = |group: &[f64]| {
        let mut best = group.to_vec();
        best.sort_by(|a, b| b.total_cmp(a));
        best.iter().take(of).sum::<f64>()
    };
    let good: Vec<f64> = choice.chunks_exact(size).map(good).collect();
    let mut order: Vec<usize> = (0..groups).collect();
    order.sort_by(|a, b| good[*b].total_cmp(&good[*a]));
    order[most..].iter().for_each(|group| choice[group * size..][..size].fill(f64::NEG_INFINITY));
}
