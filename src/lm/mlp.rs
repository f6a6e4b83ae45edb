//! The part of a layer after attention: a gated MLP, or a mixture of experts, each of which is one.

use anyhow::{Result, bail};
use candle_core::cpu::erf::erf_inv;
use candle_core::{DType, Device, Tensor};

use super::config::{self, Activation, EXPERT_NORMS, ModelShape, RouterScores};
use super::decoder::{take_matrices, take_norm};
use super::layers::{Linear, Products, add, bytes_of, gated, rms_norm};
use super::weights::Weights;

/// What a layer does with its states after attention: (rows, hidden) -> (rows, hidden).
pub(super) enum Mlp {
    Dense(Gated),
    Experts {
        router: Linear,
        /// What is added to the router's scores for the choice: (count), or none
        bias: Vec<f64>,
        experts: Vec<Gated>,
        shared: Option<Shared>,
        beside: Option<Box<Beside>>,
    },
}

/// An MLP beside the experts.
pub(super) struct Beside {
    mlp: Gated,
    /// After the MLP, before the experts, and after them: (hidden) each
    norms: [Tensor; 3],
    /// What the router's input is multiplied by after its norm: (hidden)
    scale: Tensor,
    /// What the weights of experts are multiplied by: (count)
    expert_scales: Vec<f64>,
}

/// down(activation(gate(x)) * up(x)).
pub(super) struct Gated {
    gate: Linear,
    up: Linear,
    down: Linear,
    /// Gates that are less than so many standard deviations above their mean are cut off, and the others counted from there.
    cutoff: Option<f64>,
}

/// An expert that every token goes to, times the sigmoid of a product of the state, if it has a gate.
pub(super) struct Shared {
    expert: Gated,
    gate: Option<Linear>,
}

/// The tokens that go to each expert, and back.
struct Routes {
    /// (count): rows of the states
    rows: Vec<Vec<u32>>,
    /// Where the outputs of a row's experts are, if those of all experts follow each other: (rows * per_token)
    outputs: Vec<u32>,
    /// Their weights: (rows * per_token)
    weights: Vec<f64>,
}

impl Mlp {
    /// Takes that of layer `index`, rounded to `dtype`.
    pub fn take(
        weights: &mut Weights,
        index: usize,
        shape: &ModelShape,
        dtype: DType,
        device: &Device,
    ) -> Result<Mlp> {
        let mlp = |weights: &mut Weights| {
            let mut matrices = take_matrices(weights, index, shape.mlp_matrices(index), dtype, device)?;
            if shape.fused {
                let parts = matrices[0].split([shape.intermediate; 2])?; // gate and up
                matrices.splice(0..1, parts);
            }
            let sparsity = shape.altup.as_ref().map_or(0.0, |own| own.sparsity[index]);
            // The quantile of the normal distribution.
            let cutoff = (sparsity > 0.0).then(|| 2_f64.sqrt() * erf_inv(2.0 * sparsity - 1.0));
            anyhow::Ok(Gated { cutoff, ..Gated::of(matrices) })
        };
        let Some(own) = shape.experts_of(index) else { return Ok(Mlp::Dense(mlp(weights)?)) };
        let config::ExpertNames { router, experts: prefix, parts, .. } = own.names;
        let (hidden, inner) = (shape.hidden, own.intermediate);
        let at = format!("model.layers.{index}");
        let router = Linear::take(weights, &format!("{at}.{router}"), (own.count, hidden), dtype, device)?;
        let prefix = format!("{at}.{prefix}");
        let experts = if own.transposed && weights.has(&format!("{prefix}.gate_up_proj")) {
            Gated::take_transposed(weights, &prefix, own, hidden, dtype, device)?
        } else {
            let is_fused = ["gate_up_proj", "gate_up_proj.weight"]
                .iter()
                .any(|name| weights.has(&format!("{prefix}.{name}")));
            let mut of_part =
                |part: &str, sides| Linear::take_stacked(weights, &prefix, part, own.count, sides, dtype, device);
            let [gate, up, down] = parts;
            let both = if is_fused {
                let both = of_part("gate_up_proj", (2 * inner, hidden))?;
                both.iter().map(|both| both.split([inner; 2])).collect::<Result<Vec<_>>>()?
            } else {
                let (gate, up) = (of_part(gate, (inner, hidden))?, of_part(up, (inner, hidden))?);
                gate.into_iter().zip(up).map(|(gate, up)| [gate, up]).collect()
            };
            let down = of_part(down, (hidden, inner))?;
            both.into_iter().zip(down).map(|([gate, up], down)| Gated::of(vec![gate, up, down])).collect()
        };
        let bias = match own.scores {
            RouterScores::Softmax | RouterScores::InputSigmoid => Vec::new(),
            RouterScores::Sigmoid => {
                let name = format!("{at}.{}.e_score_correction_bias", own.names.router);
                weights.take(&name, &[own.count], DType::F64, &Device::Cpu)?.to_vec1()?
            }
        };
        let shared = own.shared.map(|inner| {
            let mut linear =
                |name: String, sides| Linear::take(weights, &format!("{at}.{name}"), sides, dtype, device);
            let name = own.names.shared;
            let matrices = [
                linear(format!("{name}.gate_proj"), (inner, hidden))?,
                linear(format!("{name}.up_proj"), (inner, hidden))?,
                linear(format!("{name}.down_proj"), (hidden, inner))?,
            ];
            let gate = match own.has_shared_gate {
                true => Some(linear(format!("{name}_gate"), (1, hidden))?),
                false => None,
            };
            anyhow::Ok(Shared { expert: Gated::of(matrices.into()), gate })
        });
        let shared = shared.transpose()?;
        let beside = if own.beside_mlp {
            let mut norm =
                |name: &str| take_norm(weights, &format!("{at}.{name}.weight"), hidden, shape, dtype, device);
            let [after_mlp, before, after] = EXPERT_NORMS.map(&mut norm);
            let norms = [after_mlp?, before?, after?];
            let scale = weights.take(&format!("{at}.router.scale"), &[hidden], DType::F64, &Device::Cpu)?;
            let scale = (scale * (hidden as f64).powf(-0.5))?.to_dtype(norms[0].dtype())?.to_device(device)?;
            let scales = format!("{at}.router.per_expert_scale");
            let expert_scales = weights.take(&scales, &[own.count], DType::F64, &Device::Cpu)?.to_vec1()?;
            Some(Box::new(Beside { mlp: mlp(weights)?, norms, scale, expert_scales }))
        } else {
            None
        };
        Ok(Mlp::Experts { router, bias, experts, shared, beside })
    }

    /// The same with products in integers, where these keep its weights. The router stays as it is, because a choice is not nearly right.
    #[must_use]
    pub fn in_integers(self) -> Mlp {
        match self {
            Mlp::Dense(own) => Mlp::Dense(own.in_integers()),
            Mlp::Experts { router, bias, experts, shared, beside } => Mlp::Experts {
                bias,
                beside: beside.map(|beside| Box::new(Beside { mlp: beside.mlp.in_integers(), ..*beside })),
                router,
                experts: experts.into_iter().map(Gated::in_integers).collect(),
                shared: shared.map(|shared| Shared { expert: shared.expert.in_integers(), ..shared }),
            },
        }
    }

    pub fn is_in_integers(&self) -> bool {
        self.gated().any(|own| own.matrices().into_iter().any(Linear::is_in_integers))
    }

    /// Bytes of the weights in memory.
    pub fn bytes(&self) -> usize {
        let beside = match self {
            Mlp::Dense(_) => 0,
            Mlp::Experts { router, shared, beside, .. } => {
                let of_beside =
                    |beside: &Beside| beside.norms.iter().map(bytes_of).sum::<usize>() + bytes_of(&beside.scale);
                router.bytes()
                    + shared.as_ref().and_then(|shared| shared.gate.as_ref()).map_or(0, Linear::bytes)
                    + beside.as_deref().map_or(0, of_beside)
            }
        };
        beside + self.gated().flat_map(Gated::matrices).map(Linear::bytes).sum::<usize>()
    }

    fn gated(&self) -> impl Iterator<Item = &Gated> {
        let (own, shared, beside) = match self {
            Mlp::Dense(own) => (std::slice::from_ref(own), None, None),
            Mlp::Experts { experts, shared, beside, .. } => (experts.as_slice(), shared.as_ref(), beside.as_ref()),
        };
        own.iter().chain(shared.map(|shared| &shared.expert)).chain(beside.map(|beside| &beside.mlp))
    }

    /// The MLP of `states` (rows, hidden), which are x after the norm before it: (rows, hidden). What a row becomes does not depend on the
    /// rows beside it.
    pub fn forward(&self, states: &Tensor, x: &Tensor, shape: &ModelShape, products: Products) -> Result<Tensor> {
        match self {
            Mlp::Dense(own) => own.forward(states, shape.activation, products),
            Mlp::Experts { beside: None, .. } => self.mixture([states, states], shape, products),
            Mlp::Experts { beside: Some(beside), .. } => {
                let Beside { mlp, norms: [after_mlp, before, after], scale, .. } = &**beside;
                let eps = shape.norm_eps;
                let of_mlp = rms_norm(&mlp.forward(states, shape.activation, products)?, after_mlp, eps)?;
                let (routed, own) = (rms_norm(x, scale, eps)?, rms_norm(x, before, eps)?);
                add(rms_norm(&self.mixture([&routed, &own], shape, products)?, after, eps)?, &of_mlp)
            }
        }
    }

    /// What the experts make of x, chosen by what the router makes of `routed`: (rows, hidden) each.
    fn mixture(&self, [routed, x]: [&Tensor; 2], shape: &ModelShape, products: Products) -> Result<Tensor> {
        let (Mlp::Experts { router, bias, experts, shared, beside }, Some(own)) = (self, shape.experts.as_ref())
        else {
            bail!("the layer has no experts")
        };
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
    /// Of gate, up and down.
    fn of(matrices: Vec<Linear>) -> Gated {
        let [gate, up, down] = matrices.try_into().expect("three matrices");
        Gated { gate, up, down, cutoff: None }
    }

    /// Takes all experts of a layer from tensors that are transposed: `gate_up_proj` (count, hidden, 2 inner), where columns of gate and up
    /// take turns or those of gate come first, `down_proj` (count, inner, hidden), and their biases, if there are any.
    fn take_transposed(
        weights: &mut Weights,
        prefix: &str,
        own: &config::Experts,
        hidden: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Vec<Gated>> {
        let (count, inner) = (own.count, own.intermediate);
        let is_biased = weights.has(&format!("{prefix}.down_proj_bias"));
        for part in ["gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"] {
            weights.unstack(&format!("{prefix}.{part}"), count, |index| format!("{prefix}.{index}.{part}"))?;
        }
        // Rows of gate and up beside each other: (inner, 2, ..)
        let by_turns = |rows: Tensor| -> Result<Tensor> {
            let rest = rows.dims()[1..].to_vec();
            Ok(match own.by_turns {
                true => rows.reshape([vec![inner, 2], rest].concat())?,
                false => rows.reshape([vec![2, inner], rest].concat())?.transpose(0, 1)?,
            })
        };
        let mut expert = |index: usize| {
            let mut take = |part: &str, sides: &[usize]| {
                weights.take(&format!("{prefix}.{index}.{part}"), sides, dtype, &Device::Cpu)
            };
            let both = by_turns(take("gate_up_proj", &[hidden, 2 * inner])?.t()?.contiguous()?)?;
            let down = take("down_proj", &[inner, hidden])?.t()?;
            let biases = match is_biased {
                true => {
                    Some((by_turns(take("gate_up_proj_bias", &[2 * inner])?)?, take("down_proj_bias", &[hidden])?))
                }
                false => None,
            };
            let turn = |turn: usize| {
                let of = |both: &Tensor| both.narrow(1, turn, 1)?.squeeze(1)?.contiguous();
                let bias = biases.as_ref().map(|(both, _)| of(both)).transpose()?;
                Linear::of(&of(&both)?, bias.as_ref(), device)
            };
            let down = Linear::of(&down, biases.as_ref().map(|(_, down)| down), device)?;
            Ok(Gated::of(vec![turn(0)?, turn(1)?, down]))
        };
        (0..count).map(&mut expert).collect()
    }

    fn matrices(&self) -> [&Linear; 3] {
        [&self.gate, &self.up, &self.down]
    }

    fn in_integers(self) -> Gated {
        let [gate, up, down] = [self.gate, self.up, self.down].map(Linear::in_integers);
        Gated { gate, up, down, cutoff: self.cutoff }
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
    /// Each token goes to the experts with the highest logits (rows, count), or scores plus `bias`, the first of equal ones, within the
    /// groups that are best. Their weights are the scores, or made to sum to 1, times the experts' `scales`, if they have any.
    fn of(logits: &Tensor, own: &config::Experts, bias: &[f64], scales: &[f64]) -> Result<Routes> {
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

/// Leaves the experts of the `most` best groups, each as good as the sum of its best `of`, in the choice.
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
