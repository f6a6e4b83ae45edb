//! Gemma 2: four norms that multiply by 1 + w, scaled embeddings, GELU, limits on logits, and a window in every other layer.
//! transformers `models/gemma2`.

use anyhow::Result;

use super::super::config::{Activation, LayerNorms, ModelShape};
use super::config::{Config, Defaults, windows};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = decoder(config)?;
    let softcap = |name: &str, default: f64| {
        let is_null = config.json.get(name).is_some_and(|value| value.is_null());
        Ok((!is_null).then_some(config.positive(name)?.unwrap_or(default) as f32))
    };
    let attention_softcap: Result<_> = softcap("attn_logit_softcapping", 50.0);
    let logit_softcap: Result<_> = softcap("final_logit_softcapping", 30.0);
    let sliding = config.sliding(shape.layers, |layer| layer % 2 == 0)?;
    Ok(ModelShape {
        attention: windows(&sliding, config.window(Some(4096))?),
        attention_softcap: attention_softcap?,
        logit_softcap: logit_softcap?,
        ..shape
    })
}

/// What Gemma 2 and 3 have in common.
pub(super) fn decoder(config: &Config<'_>) -> Result<ModelShape> {
    let defaults = Defaults { tied: true, head_dim: Some(256), kv_heads_are_heads: false, ..Defaults::LLAMA };
    let shape = config.decoder(&defaults)?;
    let named = ["hidden_activation", "hidden_act"].iter().any(|name| !config.json[*name].is_null());
    Ok(ModelShape {
        activation: if named { shape.activation } else { Activation::GeluTanh },
        norms: LayerNorms::GEMMA,
        norm_adds_one: true,
        embedding_scale: Some((shape.hidden as f64).sqrt()),
        query_scale: 1.0 / config.positive("query_pre_attn_scalar")?.unwrap_or(256.0).sqrt(),
        ..shape
    })
}
