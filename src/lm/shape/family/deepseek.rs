//! DeepSeek V2 and V3 with their kin (Moonlight, Kimi K2, GLM-4.7-Flash): latent attention, and experts of which a token goes to those of a
//! few groups. transformers `models/deepseek_v2`, `models/deepseek_v3`, `models/glm4_moe_lite`.

use anyhow::{Result, ensure};

use super::super::config::ModelShape;
use super::super::parts::{Experts, LatentShape, RouterScores};
use super::super::rope_shape::{RopeScaling, number};
use super::config::{Config, Defaults};
use crate::eviction::Heads;

/// Reads DeepSeek V2.
pub(super) fn v2(config: &Config<'_>) -> Result<ModelShape> {
    let shape = latent(config)?;
    let groups = match config.field::<&str>("topk_method")?.unwrap_or("greedy") {
        "greedy" => None,
        "group_limited_greedy" => groups(config)?,
        other => anyhow::bail!("topk_method is {other:?}; only greedy and group_limited_greedy are computed here"),
    };
    let dense = config.field("first_k_dense_replace")?.unwrap_or(0);
    let experts = experts(config, &shape, dense)?;
    // transformers does not normalise them, whatever the configuration says.
    Ok(ModelShape { experts: Some(Experts { normalised: false, groups, ..experts }), ..shape })
}

/// Reads DeepSeek V3 and Kimi K2.
pub(super) fn v3(config: &Config<'_>) -> Result<ModelShape> {
    let shape = latent(config)?;
    let dense = config.field("first_k_dense_replace")?.unwrap_or(3);
    with_sigmoids(config, shape, dense)
}

/// Reads GLM-4.7-Flash.
pub(super) fn glm4_moe_lite(config: &Config<'_>) -> Result<ModelShape> {
    let shape = latent(config)?;
    let dense = match config.by_layer::<&str>("mlp_layer_types", shape.layers)? {
        Some(types) => {
            let dense = types.iter().take_while(|kind| **kind == "dense").count();
            let others = &types[dense..];
            ensure!(others.iter().all(|kind| *kind == "sparse"), "mlp_layer_types has to name dense layers first");
            dense
        }
        None => config.field("first_k_dense_replace")?.unwrap_or(1),
    };
    with_sigmoids(config, shape, dense)
}

fn with_sigmoids(config: &Config<'_>, shape: ModelShape, dense: usize) -> Result<ModelShape> {
    let own = experts(config, &shape, dense)?;
    let normalised = config.field("norm_topk_prob")?.unwrap_or(true);
    let own = Experts { normalised, scores: RouterScores::Sigmoid, groups: groups(config)?, ..own };
    Ok(ModelShape { experts: Some(own), ..shape })
}

/// Reads the number of groups of experts, and how many groups a token goes to.
fn groups(config: &Config<'_>) -> Result<Option<(usize, usize)>> {
    let (all, most) = (config.size("n_group", 1 << 11)?, config.size("topk_group", 1 << 11)?);
    Ok(all.zip(most).filter(|(all, _)| *all > 1))
}

fn experts(config: &Config<'_>, shape: &ModelShape, dense: usize) -> Result<Experts> {
    let per_token = config.required("num_experts_per_tok", 1 << 11)?;
    let inner = config.required("moe_intermediate_size", 1 << 20)?;
    let own = config.experts(shape.layers, [per_token, per_token, inner])?;
    if let Some((groups, most)) = groups(config)? {
        ensure!(
            own.count.is_multiple_of(groups) && most <= groups && own.count / groups * most >= per_token,
            "{} experts in n_group {groups} groups, topk_group {most} and num_experts_per_tok {per_token} do not fit together",
            own.count
        );
    }
    let shared = config.size("n_shared_experts", 1 << 11)?.unwrap_or(1);
    Ok(Experts {
        shared: Some(shared * inner),
        has_shared_gate: false,
        scale: config.positive("routed_scaling_factor")?.unwrap_or(1.0),
        layers: (0..shape.layers).map(|layer| layer >= dense).collect(),
        ..own
    })
}

fn latent(config: &Config<'_>) -> Result<ModelShape> {
    let size = |name: &str| config.required(name, 1 << 16);
    let own = LatentShape {
        query_rank: config.size("q_lora_rank", 1 << 16)?,
        rank: size("kv_lora_rank")?,
        nope: size("qk_nope_head_dim")?,
        rope: size("qk_rope_head_dim")?,
        value: size("v_head_dim")?,
        interleaved: config.field("rope_interleave")?.unwrap_or(true),
    };
    ensure!(own.rope.is_multiple_of(2), "qk_rope_head_dim {} is odd; rotary positions need pairs", own.rope);
    // Of the head's sizes those are used that are said for its parts.
    let mut json = config.json.clone();
    json["head_dim"] = own.rope.into();
    let config = &Config { json: &json };
    let shape = config.decoder(&Defaults::LLAMA)?;
    let (record, rope) = (config.rope_record(), shape.ropes[0].clone());
    let mut query_scale = 1.0 / ((own.nope + own.rope) as f64).sqrt();
    if let (RopeScaling::Yarn { factor, .. }, Some(mscale)) = (&rope.scaling, number(record, "mscale_all_dim")?) {
        let stretched = if *factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
        query_scale *= stretched * stretched;
    }
    Ok(ModelShape {
        heads: Heads { kv_heads: 1, ..shape.heads },
        head_dim: own.rope + own.rank,
        ropes: vec![rope],
        query_scale,
        latent: Some(own),
        prediction_layers: config.field("num_nextn_predict_layers")?.unwrap_or(0),
        ..shape
    })
}
