//! Whether a device decides as the host does. Run before its first use: a wrong number must not go unnoticed.

use anyhow::{Result, bail};

use crate::eviction::{Heads, Policy, Positions, Scope, presets};
use crate::lm::config::Sizes;
use crate::lm::device::Device;
use crate::lm::memory::MemoryPlan;
use crate::lm::random::random_shape;
use crate::lm::transformer::{LanguageModel, WeightType};

/// How far an NLL may be from the host's.
const TOLERANCE: f32 = 1e-4;
/// Two blocks and a part of one.
const TOKENS: u32 = 300;

/// Compares every preset, by layer and by head, in sizes below and above a block, with attention on the host, and the unbounded cache.
/// Returns the number of cases.
///
/// # Errors
/// The first case in which survivors or NLLs differ, or an error of the device.
pub fn check(device: &Device, on_host: &Device) -> Result<usize> {
    let model = |device: &Device| LanguageModel::random(random_shape(SIZES), 4.0, 5, WeightType::Auto, device);
    let (own, host) = (model(device)?, model(on_host)?);
    let tokens: Vec<u32> = (0..TOKENS).map(|position| (position * position + position / 7) % 256).collect();
    let mut plans = vec![("full".to_owned(), MemoryPlan::unbounded())];
    for preset in presets::PRESETS.iter().filter(|preset| !preset.policy().score.knows_the_future()) {
        for scope in [Scope::Layer, Scope::Head] {
            for (size, positions) in [
                (41, Positions::Absolute),
                (50, Positions::Slot),
                (50, Positions::Squeezed),
                (150, Positions::Absolute),
            ] {
                let policy = Policy { scope, ..preset.policy() };
                let name = format!(
                    "{} by {} with {size} entries and {} positions",
                    preset.name,
                    scope.name(),
                    positions.name()
                );
                if let Ok(policy) = policy.at(size) {
                    plans.push((name, MemoryPlan { positions, ..MemoryPlan::bounded(policy) }));
                }
            }
        }
    }
    for (name, plan) in &plans {
        let ((survivors, nll), (expected, expected_nll)) =
            (read(&own, &tokens, plan)?, read(&host, &tokens, plan)?);
        if let Some(layer) = (0..expected.len()).find(|layer| survivors[*layer] != expected[*layer]) {
            bail!("{name}: other entries survive in layer {layer} than on the host");
        }
        let far = |(own, host): &(&f32, &f32)| (*own - *host).abs() > TOLERANCE || own.is_nan();
        if let Some((own, host)) = nll.iter().zip(&expected_nll).find(far) {
            bail!("{name}: an NLL is {own}, and {host} on the host");
        }
    }
    Ok(plans.len())
}

/// Grouped heads, of which no number is a power of 2 but their dimensions.
const SIZES: Sizes = Sizes {
    hidden: 48,
    intermediate: 64,
    layers: 2,
    heads: Heads { heads: 6, kv_heads: 3 },
    head_dim: 16,
    vocab: 256,
};

type Survivors = Vec<Vec<Vec<u32>>>;

fn read(model: &LanguageModel, tokens: &[u32], plan: &MemoryPlan<'_>) -> Result<(Survivors, Vec<f32>)> {
    let mut memory = model.new_memory(plan);
    let states = model.read(tokens, &mut memory)?;
    let nll = model.nll(&states.narrow(0, 0, tokens.len() - 1)?, &tokens[1..])?;
    let of_layer = |groups: &Vec<&[u32]>| groups.iter().map(|group| group.to_vec()).collect();
    Ok((memory.survivors().iter().map(of_layer).collect(), nll))
}
