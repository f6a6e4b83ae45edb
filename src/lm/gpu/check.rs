//! Whether a device decides as the host does. Run before its first use: a wrong number must not go unnoticed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::eviction::formula::Function;
use crate::eviction::{Heads, Policy, Positions, Schedule, Scope, presets};
use crate::lm::config::Sizes;
use crate::lm::device::Device;
use crate::lm::memory::MemoryPlan;
use crate::lm::random::random_shape;
use crate::lm::transformer::{LanguageModel, WeightType};

/// How far an NLL may be from the host's.
const TOLERANCE: f32 = 1e-4;
/// What attention logits are multiplied by, so that attention is uneven.
const SHARPNESS: f32 = 4.0;
/// Two blocks and a part of one.
const TOKENS: u32 = 300;

/// Compares every preset, by layer and by head, in sizes below and above a block, with attention on the host, and the unbounded cache.
/// Returns the number of cases.
///
/// # Errors
/// The first case in which survivors or NLLs differ, or an error of the device.
pub fn check(device: &Device, on_host: &Device) -> Result<usize> {
    let (own, host) = (random_model(SHARPNESS, device)?, random_model(SHARPNESS, on_host)?);
    let (plans, tokens) = (plans(), tokens());
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

fn random_model(sharpness: f32, device: &Device) -> Result<LanguageModel> {
    LanguageModel::random(random_shape(SIZES), sharpness, 5, WeightType::Auto, device)
}

fn tokens() -> Vec<u32> {
    (0..TOKENS).map(|position| (position * position + position / 7) % 256).collect()
}

/// The cases and their names.
fn plans() -> Vec<(String, MemoryPlan<'static>)> {
    let mut plans = vec![("full".to_owned(), MemoryPlan::unbounded())];
    // Those of a prompt are cut on the host.
    let of_every_token = presets::PRESETS.iter().filter_map(|preset| Some((preset, preset.policy().ok()?)));
    let of_every_token = of_every_token.filter(|(_, policy)| policy.schedule == Schedule::EVERY_TOKEN);
    let known = |policy: &Policy| !policy.score.reads_future() && !policy.score.calls(Function::TokenIn);
    for (preset, of_preset) in of_every_token.filter(|(_, policy)| known(policy)) {
        for scope in [Scope::Layer, Scope::Head] {
            for (size, positions) in [
                (41, Positions::Absolute),
                (50, Positions::Slot),
                (50, Positions::Squeezed),
                (150, Positions::Absolute),
            ] {
                let policy = Policy { scope, ..of_preset };
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
    plans
}

/// Checks a device unless `folder` has a note that the same device passed with this build of the program. Leaves the note; a folder
/// that cannot be written only means that the next run checks again.
///
/// # Errors
/// As of `check`.
pub fn check_once(device: &str, folder: Option<&Path>, check: impl FnOnce() -> Result<usize>) -> Result<()> {
    let build = || {
        let build = fs::metadata(std::env::current_exe()?)?;
        anyhow::Ok(format!("{device}\n{} bytes, built {:?}\n", build.len(), build.modified()?))
    };
    let note = folder.and_then(|folder| {
        let text = build().ok()?;
        Some((folder.join(format!("{:x}", Sha256::digest(&text))), text))
    });
    if note.as_ref().is_some_and(|(file, _)| file.exists()) {
        return Ok(());
    }
    let cases = check()?;
    if let Some((file, text)) = note {
        let folder = file.parent().context("a note lies in a folder")?;
        let text = format!("{text}{cases} cases as on the host\n");
        fs::create_dir_all(folder).and_then(|()| fs::write(&file, text)).ok();
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_device_that_passed_is_not_checked_again_and_one_that_did_not_is() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Some(folder.path()).map(|folder| folder.join("checked"));
        let checks = Cell::new(0);
        let check = |device: &str, folder: Option<&Path>, passes: bool| {
            check_once(device, folder, || {
                checks.set(checks.get() + 1);
                if passes { Ok(145) } else { bail!("tova by layer: other entries survive") }
            })
        };
        for (device, passes, expected) in [
            ("card, driver 1", false, 1),
            ("card, driver 1", true, 2),
            ("card, driver 1", false, 2), // remembered
            ("card, driver 2", true, 3),
            ("card, driver 1", true, 3),
        ] {
            let outcome = check(device, folder.as_deref(), passes);
            assert_eq!(checks.get(), expected, "{device}");
            assert_eq!(outcome.is_ok(), expected > 1);
        }
        // Without a folder, and with one that cannot be made.
        check("card, driver 1", None, true).unwrap();
        check("card, driver 1", Some(Path::new("/dev/null/checked")), true).unwrap();
        assert_eq!(checks.get(), 5);
    }

    /// Rounds differently from device to device, which must not change what the cases evict.
    #[test]
    fn no_case_is_decided_by_rounding() {
        let host = random_model(SHARPNESS, &Device::CPU).unwrap();
        for sharpness in [SHARPNESS - 4e-6, SHARPNESS + 4e-6] {
            let moved = random_model(sharpness, &Device::CPU).unwrap();
            for (name, plan) in &plans() {
                let (survivors, nll) = read(&host, &tokens(), plan).unwrap();
                let (others, moved_nll) = read(&moved, &tokens(), plan).unwrap();
                assert!(survivors == others, "{name}");
                assert_ne!(nll, moved_nll, "{name}: the model has not moved");
            }
        }
    }
}
