//! The matrices and norms of a network's layers, by name and size, and how many parameters they have.

use super::config::ModelShape;
use super::parts::{Experts, HeadNorms, LayerNorms, PerLayerInput};
use crate::eviction::Heads;

pub(in crate::lm) const QUERY_NORM: &str = "self_attn.q_norm";
pub(in crate::lm) const KEY_NORM: &str = "self_attn.k_norm";
/// Names of the norms beside experts: after the MLP, before the experts, and after them.
pub(in crate::lm) const EXPERT_NORMS: [&str; 3] =
    ["post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"];
pub(in crate::lm) const PER_LAYER_NORM: &str = "post_per_layer_input_norm";
/// Name of the embedding matrix.
pub(in crate::lm) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(in crate::lm) const OUTPUT: &str = "lm_head.weight";

impl ModelShape {
    /// Number of parameters of the network without biases; a matrix tied as embedding and output counts once.
    pub fn parameters(&self) -> u64 {
        self.parameters_with(|experts| experts.count)
    }

    /// Number of parameters that take part in reading one token: one row of the table of inputs to each layer, and the experts that
    /// a token goes to.
    pub fn active_parameters(&self) -> u64 {
        let tables = self.per_layer_input.map_or(0, |own| own.dims as u64 * self.layers as u64 * own.vocab as u64);
        self.parameters_with(|experts| experts.per_token) - tables
    }

    fn parameters_with(&self, of: impl Fn(&Experts) -> usize) -> u64 {
        let hidden = self.hidden as u64;
        let norms = |layer: usize| self.layer_norms(layer).iter().map(|(_, length)| *length as u64).sum::<u64>();
        let layers: u64 = (0..self.layers).map(|layer| self.weights_of_layer(layer, &of) + norms(layer)).sum();
        let embeddings = if self.tied { 1 } else { 2 } * self.vocab as u64 * hidden;
        let of_inputs =
            |own: PerLayerInput| own.dims as u64 * (1 + self.layers as u64 * (own.vocab as u64 + hidden));
        let per_layer = self.per_layer_input.map_or(0, of_inputs);
        let altup = self.altup.as_ref().map_or(0, |own| {
            let (states, rank) = (own.states as u64, own.laurel_rank as u64);
            let of_layer = states * hidden + states.pow(3) + states.pow(2) + 2 * rank * hidden + 3 * hidden;
            of_layer * self.layers as u64 + 2 * (states - 1) * hidden * hidden
        });
        layers + embeddings + per_layer + altup + hidden
    }

    /// Names and sides (out, in) of the matrices of attention: query, key, value and output, unless they are fused.
    pub(in crate::lm) fn attention_matrices(&self, layer: usize) -> Vec<(&'static str, usize, usize)> {
        let hidden = self.hidden;
        let (query, kv) = self.projected(layer);
        let own = self.attention[layer];
        if let Some(latent) = self.latent {
            let (heads, query) = (self.heads.heads, self.heads.heads * (latent.nope + latent.rope));
            let of_query = match latent.query_rank {
                None => vec![("self_attn.q_proj", query, hidden)],
                Some(rank) => vec![("self_attn.q_a_proj", rank, hidden), ("self_attn.q_b_proj", query, rank)],
            };
            let others = [
                ("self_attn.kv_a_proj_with_mqa", latent.rank + latent.rope, hidden),
                ("self_attn.kv_b_proj", heads * (latent.nope + latent.value), latent.rank),
                ("self_attn.o_proj", hidden, heads * latent.value),
            ];
            return of_query.into_iter().chain(others).collect();
        }
        if let (true, Some(delta)) = (own.is_recurrent, self.delta) {
            let inputs = delta.inputs(false).into_iter().map(|(name, out)| (name, out, hidden));
            return inputs.chain([("out_proj", hidden, delta.values())]).collect();
        }
        let output = ("self_attn.o_proj", hidden, query);
        if self.fused {
            return vec![("self_attn.qkv_proj", query + 2 * kv, hidden), output];
        }
        let with_gate = if self.gated_attention { 2 } else { 1 };
        let mut matrices = vec![("self_attn.q_proj", with_gate * query, hidden)];
        if own.shares.is_none() {
            matrices.push(("self_attn.k_proj", kv, hidden));
            if !(self.keys_as_values && own.window.is_none()) {
                matrices.push(("self_attn.v_proj", kv, hidden));
            }
        }
        matrices.push(output);
        matrices
    }

    /// Names and sides (out, in) of the matrices of a layer's extra input.
    pub(in crate::lm) fn per_layer_matrices(&self) -> Vec<(&'static str, usize, usize)> {
        let Some(PerLayerInput { dims, .. }) = self.per_layer_input else { return Vec::new() };
        vec![("per_layer_input_gate", dims, self.hidden), ("per_layer_projection", self.hidden, dims)]
    }

    /// Names and sides (out, in) of the matrices of an MLP: gate, up and down, unless they are fused.
    pub(in crate::lm) fn mlp_matrices(&self, layer: usize) -> Vec<(&'static str, usize, usize)> {
        let hidden = self.hidden;
        let is_double = self.double_wide_mlp && self.attention[layer].shares.is_some();
        let intermediate = self.intermediate * if is_double { 2 } else { 1 };
        let down = ("mlp.down_proj", hidden, intermediate);
        if self.fused {
            return vec![("mlp.gate_up_proj", 2 * intermediate, hidden), down];
        }
        vec![("mlp.gate_proj", intermediate, hidden), ("mlp.up_proj", intermediate, hidden), down]
    }

    /// Numbers in all queries of a token in a layer, and in all its keys or values.
    pub(in crate::lm) fn projected(&self, layer: usize) -> (usize, usize) {
        let (Heads { heads, kv_heads }, head_dim) = (self.heads_of(layer), self.head_dim_of(layer));
        (heads * head_dim, kv_heads * head_dim)
    }

    /// Names and lengths of the norms of a layer.
    pub(in crate::lm) fn layer_norms(&self, layer: usize) -> Vec<(&'static str, usize)> {
        let LayerNorms { before_attention, after_attention, before_mlp, after_mlp, of_heads } = self.norms;
        let of_rows = [before_attention, after_attention, before_mlp, after_mlp];
        let mut norms: Vec<_> = of_rows.into_iter().flatten().map(|name| (name, self.hidden)).collect();
        if self.experts_of(layer).is_some_and(|own| own.beside_mlp) {
            norms.extend(EXPERT_NORMS.map(|name| (name, self.hidden)));
        }
        norms.extend(self.per_layer_input.map(|_| (PER_LAYER_NORM, self.hidden)));
        let (query, kv) = match of_heads {
            HeadNorms::None | HeadNorms::OfRotated => return norms,
            HeadNorms::PerHead => [self.head_dim_of(layer); 2].into(),
            HeadNorms::AllHeads => self.projected(layer),
        };
        norms.extend((!self.attention[layer].is_recurrent).then_some((QUERY_NORM, query)));
        norms.extend(self.attention[layer].has_cache().then_some((KEY_NORM, kv)));
        norms
    }

    /// Mean over layers of the number of weights that a token is multiplied with.
    pub fn layer_weights(&self) -> usize {
        let weights = |layer| self.weights_of_layer(layer, |experts| experts.per_token);
        ((0..self.layers).map(weights).sum::<u64>() / self.layers as u64) as usize
    }

    /// Number of weights in the matrices of a layer, with as many of its experts as `of` says.
    fn weights_of_layer(&self, layer: usize, of: impl Fn(&Experts) -> usize) -> u64 {
        let sum = |matrices: Vec<(&str, usize, usize)>| -> usize {
            matrices.iter().map(|(_, out, input)| out * input).sum()
        };
        let mlp = match self.experts_of(layer) {
            None => sum(self.mlp_matrices(layer)),
            Some(experts) => {
                let gate = if experts.has_shared_gate { self.hidden } else { 0 };
                let shared = experts.shared.map_or(0, |shared| 3 * shared * self.hidden + gate);
                let mlp = if experts.beside_mlp { sum(self.mlp_matrices(layer)) } else { 0 };
                self.hidden * (experts.count + of(experts) * 3 * experts.intermediate) + shared + mlp
            }
        };
        (sum(self.attention_matrices(layer)) + sum(self.per_layer_matrices()) + mlp) as u64
    }

    /// Largest number of values between the products of an MLP for one token.
    pub fn mlp_width(&self) -> usize {
        let of_experts =
            |experts: &Experts| experts.per_token * experts.intermediate + experts.shared.unwrap_or(0);
        let of_layer = |layer| self.mlp_matrices(layer).last().map_or(0, |(_, _, inner)| *inner);
        self.experts.as_ref().map_or(0, of_experts).max((0..self.layers).map(of_layer).max().unwrap_or(0))
    }
}
