//! OLMo 3: as OLMo 2, with three layers with a window for one without, and only the latter's positions stretched. transformers
//! `models/olmo3`.

use anyhow::Result;

use super::super::config::{LayerNorms, ModelShape};
use super::config::{Config, Defaults, windows_and_ropes};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let theta = config.positive("rope_theta")?.unwrap_or(500_000.0);
    let shape = config.decoder(&Defaults { theta, ..Defaults::LLAMA })?;
    let sliding = config.sliding(shape.layers, |layer| (layer + 1) % 4 != 0)?;
    Ok(ModelShape {
        ropes: config.ropes_by_type(theta, theta, shape.head_dim)?,
        attention: windows_and_ropes(&sliding, config.window(Some(4096))?),
        norms: LayerNorms::OLMO,
        ..shape
    })
}
