//! Gated delta nets (arXiv 2412.06464): layers of Qwen3-Next and Qwen3.5 with a state of fixed size in the place of keys and values
//! (transformers `models/qwen3_next`, `models/qwen3_5`).
//!
//! A token's queries, keys and values pass a short convolution over the tokens before it. Then each head's state, a matrix, fades, what it
//! holds for the key is moved towards the value, and the query reads it. All of it is in f32 on the host, token by token, so a state does not
//! depend on how a text is split.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

use super::loader::Loader;
use crate::lm::arithmetic::layers::{Linear, Products};
use crate::lm::cache::delta_state::DeltaState;
use crate::lm::shape::parts::DeltaShape;
use crate::vector;

/// Weights of a gated delta net.
pub(super) struct DeltaNet {
    shape: DeltaShape,
    /// Matrices of queries, keys and values, of the output's gate, of the step sizes and of the decays. The first two may be one
    /// matrix, and so may the last two.
    inputs: Vec<Linear>,
    /// Whether value heads alternate between key heads, as in GGUF files of Qwen3.5; otherwise those of a key head are next to each
    /// other.
    by_turns: bool,
    /// Convolution (kernel, channels).
    convolution: Vec<f32>,
    /// Factors of the decays (value_heads); their biases are in `decay_bias`.
    decay: Vec<f32>,
    decay_bias: Vec<f32>,
    /// Norm of a head's output: (value_dim)
    norm: Vec<f32>,
    output: Linear,
}

/// Projections of some tokens for a delta net, one row each.
pub(super) struct DeltaRows<'a> {
    net: &'a DeltaNet,
    /// Queries, keys and values before the convolution: (channels)
    mixed: Vec<f32>,
    /// Gates of the output: (value_heads, value_dim)
    gates: Vec<f32>,
    /// Step sizes and decays (value_heads) each.
    steps: Vec<f32>,
    decays: Vec<f32>,
}

impl DeltaNet {
    pub fn take(loader: &mut Loader<'_>, own: DeltaShape) -> Result<DeltaNet> {
        let (channels, heads, hidden) = (own.channels(), own.value_heads, loader.shape.hidden);
        let is_gguf = loader.is_gguf();
        let sides: &[usize] = if is_gguf { &[channels, own.kernel] } else { &[channels, 1, own.kernel] };
        let by_channel: Vec<f32> = loader.numbers("conv1d.weight", sides)?;
        let convolution: Vec<f32> =
            (0..own.kernel).flat_map(|tap| by_channel.iter().skip(tap).step_by(own.kernel)).copied().collect();
        // llama.cpp's converter stores what the decay is multiplied by.
        let of_stored = |stored: f32| if is_gguf { -stored } else { stored.exp() };
        let decay: Vec<f32> = loader.numbers("A_log", &[heads])?.into_iter().map(of_stored).collect();
        let decay_bias: Vec<f32> = loader.numbers("dt_bias", &[heads])?;
        // Unlike other norms of these families it multiplies by w, not by 1 + w.
        let norm: Vec<f32> = loader.numbers("norm.weight", &[own.value_dim])?;
        loader.count([&convolution, &decay, &decay_bias, &norm].map(|vector| size_of_val(&vector[..])));
        let inputs = own.inputs(is_gguf).into_iter().map(|(name, out)| loader.product(name, (out, hidden)));
        let inputs = inputs.collect::<Result<_>>()?;
        let output = loader.product("out_proj", (hidden, own.values()))?;
        let by_turns = is_gguf && !own.fused;
        Ok(DeltaNet { shape: own, inputs, by_turns, convolution, decay, decay_bias, norm, output })
    }

    /// Projects rows x (rows, hidden) after the layer's norm.
    pub fn project(&self, x: &Tensor, products: Products) -> Result<DeltaRows<'_>> {
        let product = |input: &Linear| -> Result<Vec<f32>> {
            let y = input.forward(x, products)?.to_dtype(DType::F32)?.to_device(&Device::Cpu)?;
            Ok(y.flatten_all()?.to_vec1()?)
        };
        let products = self.inputs.iter().map(product).collect::<Result<Vec<_>>>()?;
        let [mixed, gates, steps, decays] = match <[Vec<f32>; 4]>::try_from(products) {
            Ok(parts) => parts,
            Err(mut fused) => {
                let [steps, decays] = self.shape.steps_and_decays(&fused.pop().expect("of both"));
                let [mixed, gates] = match <[Vec<f32>; 2]>::try_from(fused) {
                    Ok(parts) => parts,
                    Err(fused) => self.shape.mixed_and_gates(&fused[0]),
                };
                [mixed, gates, steps, decays]
            }
        };
        Ok(DeltaRows { net: self, mixed, gates, steps, decays })
    }

    /// Output of the layer (rows, hidden), from that of its heads (rows, value_heads * value_dim).
    pub fn finish(&self, heads: &Tensor, products: Products) -> Result<Tensor> {
        self.output.forward(heads, products)
    }
}

impl DeltaShape {
    /// Splits rows of a fused product, which has queries, keys, values and gates of one key head after the other, into mixed rows
    /// and gates.
    fn mixed_and_gates(&self, qkvz: &[f32]) -> [Vec<f32>; 2] {
        let (key, value) = (self.key_dim, self.values() / self.key_heads);
        let [mut mixed, mut gates] = [const { Vec::new() }; 2];
        for row in qkvz.chunks_exact(self.channels() + self.values()) {
            for from in [0..key, key..2 * key, 2 * key..2 * key + value] {
                row.chunks_exact(2 * (key + value)).for_each(|head| mixed.extend_from_slice(&head[from.clone()]));
            }
            row.chunks_exact(2 * (key + value)).for_each(|head| gates.extend_from_slice(&head[2 * key + value..]));
        }
        [mixed, gates]
    }

    /// Splits rows of a fused product of step sizes and decays.
    fn steps_and_decays(&self, both: &[f32]) -> [Vec<f32>; 2] {
        let per_key = self.value_heads / self.key_heads;
        let heads = || both.chunks_exact(2 * per_key);
        [
            heads().flat_map(|head| &head[..per_key]).copied().collect(),
            heads().flat_map(|head| &head[per_key..]).copied().collect(),
        ]
    }
}

impl DeltaRows<'_> {
    /// Reads `rows` tokens from `first` on into the state: (rows, value_heads * value_dim)
    pub fn read(&self, first: usize, rows: usize, state: &mut DeltaState) -> Vec<f32> {
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, .. } = self.net.shape;
        let mixed = self.convolved(first, rows, state);
        let (channels, values) = (self.net.shape.channels(), self.net.shape.values());
        // (value_heads)(rows, value_dim)
        let mut outputs = vec![0.0; rows * values];
        let heads = state
            .heads
            .par_chunks_exact_mut(key_dim * value_dim)
            .zip(outputs.par_chunks_exact_mut(rows * value_dim));
        heads.enumerate().for_each(|(head, (state, out))| {
            let key_head = if self.net.by_turns { head % key_heads } else { head / (value_heads / key_heads) };
            for (row, out) in out.chunks_exact_mut(value_dim).enumerate() {
                let mixed = &mixed[row * channels..][..channels];
                let (keys, values) = mixed[self.net.shape.keys()..].split_at(self.net.shape.keys());
                let [mut query, key] = [mixed, keys].map(|from| unit(&from[key_head * key_dim..][..key_dim]));
                let scale = (key_dim as f32).sqrt().recip();
                query.iter_mut().for_each(|x| *x *= scale);
                let at = (first + row) * value_heads + head;
                let fade = self.net.decay[head] * softplus(self.decays[at] + self.net.decay_bias[head]);
                let (decay, step) = ((-fade).exp(), sigmoid(self.steps[at]));
                let value = &values[head * value_dim..][..value_dim];
                vector::best(DeltaStep { state, query: &query, key: &key, value, decay, step, out });
                let gate = &self.gates[(first + row) * self.net.shape.values() + head * value_dim..][..value_dim];
                self.normalise(out, gate);
            }
        });
        let mut out = vec![0.0; rows * values];
        for (head, outputs) in outputs.chunks_exact(rows * value_dim).enumerate() {
            for (row, from) in outputs.chunks_exact(value_dim).enumerate() {
                out[row * values + head * value_dim..][..value_dim].copy_from_slice(from);
            }
        }
        out
    }

    /// Applies the convolution to queries, keys and values: (rows, channels)
    fn convolved(&self, first: usize, rows: usize, state: &mut DeltaState) -> Vec<f32> {
        let (channels, kernel) = (self.net.shape.channels(), self.net.shape.kernel);
        let mut inputs = std::mem::take(&mut state.recent);
        inputs.extend_from_slice(&self.mixed[first * channels..][..rows * channels]);
        let mut out = vec![0.0; rows * channels];
        for (row, out) in out.chunks_exact_mut(channels).enumerate() {
            for tap in 0..kernel {
                let (input, weights) = (
                    &inputs[(row + tap) * channels..][..channels],
                    &self.net.convolution[tap * channels..][..channels],
                );
                out.iter_mut().zip(input).zip(weights).for_each(|((out, x), w)| *out += x * w);
            }
            out.iter_mut().for_each(|x| *x *= sigmoid(*x));
        }
        inputs.drain(..rows * channels);
        state.recent = inputs;
        out
    }

    /// Applies the norm to a head's output, and multiplies it with silu of the gate.
    fn normalise(&self, out: &mut [f32], gate: &[f32]) {
        let mean = out.iter().map(|x| x * x).sum::<f32>() / out.len() as f32;
        let scale = (mean + self.net.shape.norm_eps).sqrt().recip();
        for ((x, weight), gate) in out.iter_mut().zip(&self.net.norm).zip(gate) {
            *x = *x * scale * weight * gate * sigmoid(*gate);
        }
    }
}

/// Step of one head for one token.
struct DeltaStep<'a> {
    /// State of the head: (key_dim, value_dim)
    state: &'a mut [f32],
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    decay: f32,
    step: f32,
    /// Output of the head: (value_dim)
    out: &'a mut [f32],
}

impl vector::PlainLoop for DeltaStep<'_> {
    #[inline(always)]
    fn run(self) {
        let DeltaStep { state, query, key, value, decay, step, out } = self;
        let dim = value.len();
        // What the faded state holds for the key.
        out.fill(0.0);
        for (row, key) in state.chunks_exact_mut(dim).zip(key) {
            for (x, held) in row.iter_mut().zip(out.iter_mut()) {
                *x *= decay;
                *held += *x * key;
            }
        }
        let mut change = vec![0.0; dim];
        for ((change, value), held) in change.iter_mut().zip(value).zip(out.iter()) {
            *change = (value - held) * step;
        }
        out.fill(0.0);
        for ((row, key), query) in state.chunks_exact_mut(dim).zip(key).zip(query) {
            for ((x, change), out) in row.iter_mut().zip(&change).zip(out.iter_mut()) {
                *x += key * change;
                *out += *x * query;
            }
        }
    }
}

/// Scales a vector to length 1.
fn unit(x: &[f32]) -> Vec<f32> {
    const EPS: f32 = 1e-6;
    let scale = (x.iter().map(|x| x * x).sum::<f32>() + EPS).sqrt().recip();
    x.iter().map(|x| x * scale).collect()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
