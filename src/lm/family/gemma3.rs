//! Gemma 3: as Gemma 2 without limits on logits, with norms of every head's queries and keys, five layers with a window for one
//! without, and rotations of their own for both. transformers `models/gemma3`.

use anyhow::{Result, ensure};

use super::super::config::{HeadNorms, LayerNorms, ModelShape};
use super::config::{Config, windows_and_ropes};
use super::gemma2;

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let shape = gemma2::decoder(config)?;
    ensure!(
        config.field("use_bidirectional_attention")? != Some(true),
        "its attention looks ahead (use_bidirectional_attention): it is no language model"
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
        norms: LayerNorms { of_heads: HeadNorms::PerHead, ..LayerNorms::GEMMA },
        logit_softcap: config.positive("final_logit_softcapping")?.map(|cap| cap as f32),
        ..shape
    })
}
