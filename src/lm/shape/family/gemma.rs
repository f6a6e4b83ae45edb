//! Gemma 2 and 3: four norms that multiply by 1 + w, scaled embeddings, GELU, and a window in some layers. transformers `models/gemma2`,
//! `models/gemma3`.

use anyhow::{Result, ensure};

use super::super::config::ModelShape;
use super::super::parts::{Activation, HeadNorms, LayerNorms};
use super::config::{Config, Defaults, windows, windows_and_ropes};

/// Reads Gemma 2: limits on logits, and a window in every other layer.
pub(super) fn gemma2(config: &Config<'_>) -> Result<ModelShape> {
    let shape = decoder(config)?;
    let softcap = |name: &str, default: f64| {
        let is_null = config.json.get(name).is_some_and(|value| value.is_null());
        anyhow::Ok((!is_null).then_some(config.positive(name)?.unwrap_or(default) as f32))
    };
    let sliding = config.sliding(shape.layers, |layer| layer % 2 == 0)?;
    Ok(ModelShape {
        attention: windows(&sliding, config.window(Some(4096))?),
        attention_softcap: softcap("attn_logit_softcapping", 50.0)?,
        logit_softcap: softcap("final_logit_softcapping", 30.0)?,
        ..shape
    })
}

/// Reads what all Gemma models have in common, also Gemma 3n and 4.
pub(super) fn decoder(config: &Config<'_>) -> Result<ModelShape> {
    let defaults =
        Defaults { tied: true, head_dim: Some(256), activation: Activation::GeluTanh, ..Defaults::LLAMA };
    let shape = config.decoder(&defaults)?;
    Ok(ModelShape {
        norms: LayerNorms::GEMMA,
        norm_adds_one: true,
        embedding_scale: Some((shape.hidden as f64).sqrt()),
        query_scale: 1.0 / config.positive("query_pre_attn_scalar")?.unwrap_or(256.0).sqrt(),
        ..shape
    })
}

/// Reads what Gemma models after Gemma 2 have in common: norms of every head's queries and keys, and a limit on the logits over the
/// vocabulary only if the file says so.
pub(super) fn later(config: &Config<'_>) -> Result<ModelShape> {
    Ok(ModelShape {
        norms: LayerNorms { of_heads: HeadNorms::PerHead, ..LayerNorms::GEMMA },
        logit_softcap: config.positive("final_logit_softcapping")?.map(|cap| cap as f32),
        ..decoder(config)?
    })
}

/// Reads Gemma 3: five layers with a window for one without, and a rotation for each of the two kinds.
pub(super) fn gemma3(config: &Config<'_>) -> Result<ModelShape> {
    let shape = later(config)?;
    ensure!(
        config.field("use_bidirectional_attention")? != Some(true),
        "its attention looks ahead (use_bidirectional_attention): it is not a language model"
    );
    ensure!(
        config.json["attn_logit_softcapping"].is_null(),
        "attn_logit_softcapping is set, which transformers does not compute in this family"
    );
    let every = config.size("sliding_window_pattern", usize::MAX)?.unwrap_or(6);
    let sliding = config.sliding(shape.layers, |layer| (layer + 1) % every != 0)?;
    let local_theta = config.positive("rope_local_base_freq")?.unwrap_or(10_000.0);
    Ok(ModelShape {
        ropes: config.ropes_by_type(local_theta, 1_000_000.0, shape.head_dim)?,
        attention: windows_and_ropes(&sliding, config.window(Some(4096))?),
        ..shape
    })
}
