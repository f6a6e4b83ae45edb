//! SmolLM3: every fourth layer has no positions. transformers `models/smollm3`.

use anyhow::{Result, ensure};

use super::super::config::ModelShape;
use super::super::rope_shape::{RopeScaling, RopeShape};
use super::config::{Config, Defaults, windows};

pub(super) fn shape(config: &Config<'_>) -> Result<ModelShape> {
    let defaults = Defaults { theta: 2_000_000.0, tied: true, kv_heads_are_heads: false, ..Defaults::LLAMA };
    let shape = config.decoder(&defaults)?;
    let every = config.size("no_rope_layer_interval", usize::MAX)?.unwrap_or(4);
    let pattern = || (1..=shape.layers).map(|layer| u8::from(layer % every != 0)).collect();
    let rotated: Vec<u8> = config.field("no_rope_layers")?.unwrap_or_else(pattern);
    ensure!(
        rotated.len() >= shape.layers,
        "no_rope_layers has {} entries, and num_hidden_layers is {}",
        rotated.len(),
        shape.layers
    );
    let used = config.field("use_sliding_window")? == Some(true);
    let window = config.window(None)?.filter(|_| used);
    let sliding = config.sliding(shape.layers, |layer| rotated[layer] == 0)?;
    let mut attention = windows(&sliding, window);
    for (layer, rotated) in attention.iter_mut().zip(rotated) {
        layer.rope = usize::from(rotated == 0);
    }
    let mut ropes = shape.ropes.clone();
    ropes.push(RopeShape { theta: 1.0, scaling: RopeScaling::None, dims: 0 });
    Ok(ModelShape { ropes, attention, ..shape })
}
