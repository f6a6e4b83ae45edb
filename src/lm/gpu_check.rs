//! Whether a device decides as the host does. Run before its first use: a wrong number must not go unnoticed.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use candle_core::{DType, Tensor};
use sha2::{Digest, Sha256};

use super::arithmetic::rows::on_host;
use super::arithmetic::types::WeightType;
use super::cache::memory::Memory;
use super::cache::plan::MemoryPlan;
use super::device::Device;
use super::network::transformer::LanguageModel;
use super::shape::caches::BLOCK;
use super::shape::config::ModelShape;
use crate::eviction::formula::Function;
use crate::eviction::{Heads, Policy, Schedule, Scope, presets};

/// How far an NLL, or a token's lost attention, may be from the host's.
const TOLERANCE: f32 = 1e-4;
/// Tolerance where products with weights are computed in bf16. What differs in the last bit of f32 may be rounded to another number of
/// bf16; logits are below 8, where these are 1/32 apart. Two such steps. In f16 they are 1/256 apart.
const TOLERANCE_BF16: f32 = 1.0 / 16.0;
const TOLERANCE_F16: f32 = 1.0 / 128.0;
/// What attention logits are multiplied by, so that attention is uneven.
const SHARPNESS: f32 = 4.0;
/// The first tokens, which a case may read with the full cache, and those that it may read as a prompt.
const START: usize = BLOCK;
const PROMPT: usize = 200;
/// The last tokens, which are read one by one, beside a copy that reads others.
const STEPS: usize = 4;
/// One case of `CASES_PER_REPEAT` is read again, alone and together with others, `READ_TOGETHER` in all.
const CASES_PER_REPEAT: usize = 5;
const READ_TOGETHER: usize = 4;

/// A model, and what is read with it.
struct Suite {
    shape: ModelShape,
    dtype: WeightType,
    tokens: usize,
    cases: Vec<Case>,
}

struct Case {
    name: String,
    plan: MemoryPlan<'static>,
    /// Whether the cache continues from the full one.
    is_fork: bool,
}

/// What a case leaves.
#[derive(PartialEq)]
struct Reading {
    /// Survivors of the cache and of its copy: (2)(layers)(groups)(entries)
    survivors: [Vec<Vec<Vec<u32>>>; 2],
    /// The NLL of some token after each state, and the attention that each token lost.
    numbers: Vec<f32>,
    /// The bits of all states.
    states: Vec<u32>,
}

impl Device {
    /// Compares attention on this device with the host's. Returns the number of cases; `None` where it is the host's.
    ///
    /// # Errors
    /// The first case that differs.
    pub fn check(&self) -> Result<Option<usize>> {
        let on_host = Device { attention: None, ..self.clone() };
        self.attention.as_ref().map(|_| check(self, &on_host)).transpose()
    }

    /// Returns the device, with attention on the host unless the device computes it as the host does. The two are compared once for
    /// each card, driver and build of this program.
    #[must_use]
    pub fn checked(self) -> Device {
        let Some(attention) = &self.attention else { return self };
        let folder = dirs::cache_dir().map(|folder| folder.join("tova-bench").join("checked-gpus"));
        let check = || self.check().map(Option::unwrap_or_default);
        let checked = attention.identity().and_then(|device| check_once(&device, folder.as_deref(), check));
        match checked {
            Ok(()) => self,
            Err(error) => self.without_attention(&error),
        }
    }
}

/// Compares attention on a device with attention on the host, where both have the same products with weights, and cases that are read
/// again with themselves. Returns the number of cases.
///
/// # Errors
/// The first case in which survivors, NLLs or lost attention differ, or bits where it is read again, or an error of the device.
fn check(device: &Device, on_host: &Device) -> Result<usize> {
    let suites = suites()?;
    for (index, suite) in suites.iter().enumerate() {
        let (own, host) = (suite.model(1.0, device)?, suite.model(1.0, on_host)?);
        let tolerance = match own.compute_type(false) {
            DType::BF16 => TOLERANCE_BF16,
            DType::F16 => TOLERANCE_F16,
            _ => TOLERANCE,
        };
        let mut readings = Vec::new();
        for case in &suite.cases {
            let (reading, expected) = (suite.read(&own, case)?, suite.read(&host, case)?);
            compare(&reading, &expected, tolerance).with_context(|| suite.name(case))?;
            readings.push(reading);
        }
        if let (0, [case, ..], [reading, ..]) = (index, &suite.cases[..], &readings[..]) {
            // Elsewhere both have the device's products with weights.
            let expected = suite.read(&suite.model(1.0, &Device::CPU)?, case)?;
            compare(reading, &expected, tolerance).context("products with weights, beside the host's")?;
        }
        let again: Vec<_> = suite.cases.iter().zip(&readings).step_by(CASES_PER_REPEAT).collect();
        for cases in again.chunks(1).chain(again.chunks(READ_TOGETHER)) {
            suite.read_together(&own, cases)?;
        }
    }
    Ok(suites.iter().map(|suite| suite.cases.len()).sum())
}

fn compare(own: &Reading, host: &Reading, tolerance: f32) -> Result<()> {
    ensure!(own.survivors == host.survivors, "other entries survive than on the host");
    let far = |(own, host): &(&f32, &f32)| (*own - *host).abs() > tolerance || own.is_nan();
    match own.numbers.iter().zip(&host.numbers).find(far) {
        Some((own, host)) => bail!("an NLL, or lost attention, is {own}, and {host} on the host"),
        None => Ok(()),
    }
}

impl Suite {
    fn name(&self, case: &Case) -> String {
        let ModelShape { heads: Heads { heads, kv_heads }, head_dim, .. } = self.shape;
        format!("{heads} over {kv_heads} heads of {head_dim}: {}", case.name)
    }

    /// The model, with attention logits multiplied by `scale`.
    fn model(&self, scale: f64, device: &Device) -> Result<LanguageModel> {
        let mut shape = self.shape.clone();
        shape.query_scale *= scale;
        LanguageModel::random(shape, SHARPNESS, 5, self.dtype, device)
    }

    fn read(&self, model: &LanguageModel, case: &Case) -> Result<Reading> {
        let tokens: Vec<u32> =
            (0..self.tokens as u32).map(|position| (position * position + position / 7) % 256).collect();
        let (read, decoded) = tokens.split_at(tokens.len() - STEPS);
        let mut memory = model.new_memory(&case.plan);
        if case.is_fork {
            let (fork_scopes, fork_points) = (&[Scope::Layer, Scope::Head][..], &[START][..]);
            let plan = MemoryPlan { fork_scopes, fork_points, forks: true, ..MemoryPlan::unbounded() };
            let mut full = model.new_memory(&plan);
            model.read(read, &mut full)?;
            memory = full.fork(START, &case.plan).context("the full cache has nothing to continue from")?;
        }
        let cuts = case.plan.policy.is_some_and(|policy| policy.schedule.cuts());
        let (prompt, rest) = read[memory.seen()..].split_at(if cuts { PROMPT } else { 0 });
        let mut states = Vec::new();
        if cuts {
            states.push(model.read(prompt, &mut memory)?);
            model.cut(&mut memory)?;
        }
        states.push(model.read(rest, &mut memory)?);
        let mut copy = memory.clone();
        memory.shrink_to_fit(STEPS);
        for token in decoded {
            states.push(model.step(&[*token, 255 - token], &mut [&mut memory, &mut copy])?);
        }
        let states = Tensor::cat(&states, 0)?;
        let targets: Vec<u32> = (1..=states.dim(0)?).map(|row| tokens[row % tokens.len()]).collect();
        let mut numbers = model.nll(&states, &targets)?;
        numbers.extend([&memory, &copy].into_iter().filter_map(|memory| memory.lost()).flatten());
        let survivors = |memory: &Memory| {
            let of_layer = |groups: &Vec<&[u32]>| groups.iter().map(|group| group.to_vec()).collect();
            memory.survivors().iter().map(of_layer).collect()
        };
        let states = on_host([&states], |[states]: [&[f32]; 1]| states.iter().map(|x| x.to_bits()).collect())?;
        Ok(Reading { survivors: [survivors(&memory), survivors(&copy)], numbers, states })
    }

    /// Reads cases again, at the same time, and compares all bits.
    fn read_together(&self, model: &LanguageModel, cases: &[(&Case, &Reading)]) -> Result<()> {
        thread::scope(|scope| {
            let threads: Vec<_> = cases.iter().map(|(case, _)| scope.spawn(|| self.read(model, case))).collect();
            for (thread, (case, first)) in threads.into_iter().zip(cases) {
                let again = thread.join().map_err(|_| anyhow!("a thread that reads a case panicked"))??;
                ensure!(
                    again == **first,
                    "{}: other bits when it is read again, beside {} others",
                    self.name(case),
                    cases.len() - 1
                );
            }
            Ok(())
        })
    }
}

/// What may differ from case to case is tried with a small model, and what depends on sizes with the heads of large ones, in bf16. These
/// have one layer: products in bf16 make differences in the last bit of f32 so large that other entries may leave the next layer.
/// Others have what some families have: heads of other sizes, f16, soft caps, windows, and heads that are rotated in part.
fn suites() -> Result<Vec<Suite>> {
    // No number of heads is a power of 2.
    let small = ModelShape::random(ModelShape {
        hidden: 48,
        intermediate: 64,
        layers: 2,
        heads: Heads { heads: 6, kv_heads: 3 },
        head_dim: 16,
        vocab: 256,
        ..ModelShape::default()
    });
    let large = |kv_heads: usize| ModelShape {
        hidden: 256,
        intermediate: 256,
        layers: 1,
        heads: Heads { heads: 32, kv_heads },
        head_dim: 128,
        vocab: 256,
        ..ModelShape::default()
    };
    // Blocks have 128 tokens.
    let of_small = |cases| Suite { shape: small.clone(), dtype: WeightType::Auto, tokens: 300, cases };
    let of_large = |kv_heads, cases| Suite {
        shape: ModelShape::random(large(kv_heads)),
        dtype: WeightType::Bf16,
        tokens: 150,
        cases,
    };
    let of_family = |head_dim: usize, dtype: WeightType, change: fn(&mut ModelShape)| {
        let (heads, hidden) = (Heads { heads: 4, kv_heads: 2 }, 64);
        let mut shape = ModelShape::random(ModelShape { hidden, heads, head_dim, layers: 1, ..small.clone() });
        change(&mut shape);
        anyhow::Ok(Suite { shape, dtype, tokens: 150, cases: families()? })
    };
    Ok(vec![
        of_small(ways()?),
        of_large(32, policies()?),
        of_large(8, policies()?),
        of_small(all_presets()),
        of_family(64, WeightType::F16, |_| ())?,
        of_family(80, WeightType::Auto, |shape| shape.ropes[0].dims = 32)?,
        of_family(96, WeightType::F16, |shape| shape.attention[0].window = Some(60))?,
        of_family(128, WeightType::F16, |shape| shape.ropes[0].dims = 64)?,
        of_family(256, WeightType::Auto, |shape| {
            shape.attention_softcap = Some(5.0);
            shape.attention[0].window = Some(100);
        })?,
    ])
}

/// The full cache and policies of a few kinds, of less entries than a window has.
fn families() -> Result<Vec<Case>> {
    let of_policy = |name: &str| case(name.into(), preset(name)?, 40);
    ["tova", "h2o", "window"].into_iter().map(of_policy).chain([Ok(full())]).collect()
}

fn case(name: String, policy: Policy, size: usize) -> Result<Case> {
    Ok(Case { name, plan: MemoryPlan::bounded(policy.at(size)?), is_fork: false })
}

fn full() -> Case {
    Case { name: "full".into(), plan: MemoryPlan::unbounded(), is_fork: false }
}

fn preset(name: &str) -> Result<Policy> {
    presets::by_name(name).with_context(|| format!("there is no policy {name}"))
}

/// The ways to read: from the beginning, from the full cache, and under each kind of schedule.
fn ways() -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for name in ["window", "tova", "h2o", "h2o-layer"] {
        let policy = preset(name)?;
        cases.push(Case { is_fork: true, ..case(format!("{name} after the full cache"), policy, 150)? });
        for size in [41, 150] {
            let lossy = case(format!("{name} with {size} entries and its lost attention"), policy, size)?;
            cases.push(Case { plan: MemoryPlan { measure_loss: true, ..lossy.plan }, ..lossy });
        }
        for schedule in ["cut+1", "cut", "cut+16", "16"] {
            let name = format!("{name} under the schedule {schedule}");
            cases.push(case(name, Policy { schedule: schedule.parse()?, ..policy }, 60)?);
        }
    }
    Ok(cases)
}

/// The full cache, and policies of each kind.
fn policies() -> Result<Vec<Case>> {
    let mut cases = vec![full()];
    for name in ["window", "tova", "tova-head", "h2o", "h2o-layer", "caote"] {
        cases.push(case(name.into(), preset(name)?, 100)?);
    }
    for name in ["h2o", "h2o-layer"] {
        let fork = case(format!("{name} after the full cache"), preset(name)?, START + 2)?;
        cases.push(Case { is_fork: true, plan: MemoryPlan { measure_loss: true, ..fork.plan }, ..fork });
    }
    Ok(cases)
}

/// Every preset, by layer and by head, in sizes below and above a block.
fn all_presets() -> Vec<Case> {
    let mut cases = Vec::new();
    // Those of a prompt are cut on the host.
    let of_every_token = presets::PRESETS.iter().filter_map(|preset| Some((preset, preset.policy().ok()?)));
    let of_every_token = of_every_token.filter(|(_, policy)| policy.schedule == Schedule::EVERY_TOKEN);
    let known = |policy: &Policy| {
        !policy.selects() && !policy.score.reads_future() && !policy.score.calls(Function::TokenIn)
    };
    for (preset, of_preset) in of_every_token.filter(|(_, policy)| known(policy)) {
        for scope in [Scope::Layer, Scope::Head] {
            for size in [41, 150] {
                let policy = Policy { scope, ..of_preset };
                let name = format!("{} by {} with {size} entries", preset.name, scope.name());
                cases.extend(case(name, policy, size));
            }
        }
    }
    cases
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
                if passes { Ok(1) } else { bail!("tova by layer: other entries survive") }
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
        let mut decided = Vec::new();
        for suite in suites().unwrap() {
            let [host, less, more] =
                [1.0, 1.0 - 1e-6, 1.0 + 1e-6].map(|scale| suite.model(scale, &Device::CPU).unwrap());
            for case in &suite.cases {
                let expected = suite.read(&host, case).unwrap();
                for moved in [&less, &more] {
                    let reading = suite.read(moved, case).unwrap();
                    if reading.survivors != expected.survivors {
                        decided.push(suite.name(case));
                    }
                    assert_ne!(reading.numbers, expected.numbers, "{}: the model has not moved", suite.name(case));
                }
            }
        }
        assert!(decided.is_empty(), "{}", decided.join("\n"));
    }
}
