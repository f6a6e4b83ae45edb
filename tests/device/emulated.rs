//! Attention by the GPU's kernels, which are compiled for this machine and run here (feature `emulate`): random rules against
//! the host's own attention, and kernels that were broken on purpose.
//!
//! The goldens run through it with `TOVA_BENCH_TEST_DEVICE=emulated`.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use fastrand::Rng;
use tova_bench::eviction::formula::{Formula, Function, Pool, WORDS};
use tova_bench::eviction::{
    Amount, Budget, BudgetPool, CacheOptions, Eviction, FirstTokens, Heads, Policy, PoolOver, Positions, Schedule,
    Scope, Score, presets,
};
use tova_bench::lm::{
    Device, Emulation, GenerationSettings, LanguageModel, Memory, MemoryPlan, ModelShape, PrefilledPrompt,
    Sampling, WarpOrder, WeightType, tiny_shape,
};

const TOLERANCE: f32 = 1e-5;

/// What attention logits are multiplied by, so that attention is uneven.
const SHARPNESS: f32 = 4.0;

/// So many query heads that a decision for all of them takes blocks of 1,024 threads.
fn wide_shape() -> ModelShape {
    ModelShape { heads: Heads { heads: 32, ..tiny_shape().heads }, ..tiny_shape() }
}

fn model_of(shape: &ModelShape, device: &Device, sharpness: f32) -> LanguageModel {
    LanguageModel::random(shape.clone(), sharpness, 5, WeightType::Auto, device).unwrap()
}

fn model(device: &Device, sharpness: f32) -> LanguageModel {
    model_of(&tiny_shape(), device, sharpness)
}

fn emulated(emulation: &Emulation) -> LanguageModel {
    model(&Device::emulated(emulation).unwrap(), SHARPNESS)
}

/// With memory and blocks as on a GPU, and warps in an order of this seed.
fn as_on_a_gpu(seed: u32) -> Emulation {
    Emulation { is_packed: true, threads: 1024, order: WarpOrder::Random(seed), ..Emulation::default() }
}

/// The same model on the host, moved by roundings, at most by a quarter of what numbers may differ by. A rule that evicts others
/// there, as one that compares two almost equal numbers may do, is decided by how its machine rounds, which differs from
/// processor to processor.
fn moved(shape: &ModelShape) -> Vec<LanguageModel> {
    [-20, -8, -3, -1, 1, 3, 8, 20]
        .iter()
        .map(|step| model_of(shape, &Device::CPU, SHARPNESS + *step as f32 * 5e-7))
        .collect()
}

/// A formula of up to `depth` functions, one inside the other.
fn formula(rng: &mut Rng, depth: usize) -> String {
    // Kernels do not know the future, nor what comes after the size, which alone is no score.
    let known = WORDS.iter().map(|row| row.name).take_while(|name| *name != "size");
    let words: Vec<&str> = known.filter(|name| *name != "future_attention").collect();
    if depth == 0 {
        return words[rng.usize(..words.len())].into();
    }
    let number = (rng.u32(1..40) as f32) / 20.0;
    let x = formula(rng, depth - 1);
    let own = rng.usize(..depth);
    let y = formula(rng, own);
    match rng.u32(..24) {
        0 => format!("({x} + {number} * {y})"),
        1 => format!("{x} * {y}"),
        2 => format!("{x} / (1 + abs({y}))"),
        3 => format!("if({x} < {number}, {y}, {x})"),
        4 => format!("min({x}, {y})"),
        5 => format!("max({x}, {number})"),
        6 => format!("abs({x} - {number})"),
        7 => format!("log(1 + abs({x}))"),
        8 => format!("exp(-abs({x}))"),
        9 => format!("sqrt(abs({x}))"),
        10 => format!("sum({x})"),
        11 => format!("mean({x})"),
        12 => format!("std({x})"),
        13 => format!("ema({x}, 0.{})", rng.u32(1..100)),
        14 => format!("peak({x})"),
        15 => format!("peak({x}, {})", rng.u32(1..9)),
        16 => format!("window({x}, {})", rng.u32(1..20)),
        17 => format!("count({x} > {number})"),
        18 => format!("rank({x})"),
        19 => format!("softmax({x})"),
        20 => format!("share(abs({x}))"),
        21 => format!("pooled({x})"),
        22 => format!("pooled_max({x}) + {y}"),
        _ => format!("({x} >= {y}) + {x}"),
    }
}

/// A formula that kernels do not know, with another inside.
fn formula_of_host(rng: &mut Rng) -> String {
    let x = formula(rng, 1);
    match rng.u32(..6) {
        0 => format!("smooth({x}, {})", 2 * rng.u32(..3) + 1),
        1 => format!("smooth_max({x}, 3) - lag_score({})", rng.u32(2..6)),
        2 => format!("block({x}, {})", rng.u32(1..6)),
        3 => format!("expected_attention({}) + attention / 2", rng.u32(1..40)),
        4 => format!("attention * projected_value_norm - {x}"),
        _ => format!("attention - key_redundancy + expected_attention_mean({})", rng.u32(1..40)),
    }
}

/// A rule that has a room for 3 to 40 entries.
fn rule(rng: &mut Rng, of_host: bool, schedule: Schedule) -> (Policy, usize) {
    // Those of every token, for which neither texts of tokens nor a file is needed.
    let presets = presets::PRESETS.iter().filter_map(|preset| preset.policy().ok());
    let presets = presets.filter(|policy| policy.schedule == Schedule::default());
    let presets: Vec<Policy> = presets.filter(|policy| !policy.score.calls(Function::TokenIn)).collect();
    loop {
        let pool = if rng.bool() { Pool::Mean } else { Pool::Max };
        let depth = rng.usize(..4);
        let score = match rng.u32(..5) {
            _ if of_host => match Score::new(&formula_of_host(rng), pool) {
                Ok(score) => score,
                Err(_) => continue,
            },
            0 => presets[rng.usize(..presets.len())].score,
            _ => match Score::new(&formula(rng, depth), pool) {
                Ok(score) => score,
                Err(_) => continue, // the same for all entries
            },
        };
        // Norms are compared in f64, so they are told apart to the last digit.
        if score.reads_future() {
            continue;
        }
        let amount = |rng: &mut Rng| {
            if rng.bool() { Amount::Tokens(rng.usize(..6)) } else { Amount::Percent(rng.u8(..50)) }
        };
        let (keep_first, keep_recent) = (FirstTokens::Count(amount(rng)), amount(rng));
        let scope = if rng.bool() { Scope::Layer } else { Scope::Head };
        let budget = match rng.u32(..4) {
            0 => Budget::of_layers(&[3.0, 5.0]).unwrap(),
            // Heads keep different numbers of entries, by the score or by one of the budget.
            1 | 2 if schedule == Schedule::Cut => Budget::Pool(BudgetPool {
                over: if rng.bool() { PoolOver::Heads } else { PoolOver::Model },
                floor: rng.u8(..50),
                score: Some(Formula::new("smooth(window(attention, 9), 3)", Pool::Mean).unwrap())
                    .filter(|_| rng.bool()),
            }),
            _ => Budget::Uniform,
        };
        let (select_from, layers) = (None, None);
        let policy = Policy { score, scope, keep_first, keep_recent, budget, schedule, select_from, layers };
        let size = rng.usize(3..40);
        if policy.check(size, &vec![true; tiny_shape().layers], tiny_shape().heads.kv_heads).is_ok() {
            return (policy, size);
        }
    }
}

/// What is compared of a reading.
struct Reading {
    nll: Vec<f32>,
    survivors: Vec<Vec<Vec<u32>>>,
    log: Vec<Vec<Eviction>>,
    lost: Option<Vec<f32>>,
}

/// Reads a case; where it `branches_off`, from what another cache has read of the prompt, with other policies that will cut it.
fn read(model: &LanguageModel, case: &Case, branches_off: bool) -> Reading {
    let Case { tokens, plan, pieces, prompt, .. } = case;
    let own = plan.policy.unwrap();
    let others = ["tova", "h2o", "roco"].map(|name| presets::by_name(name).unwrap().at(50).unwrap());
    let others = others.map(|policy| (policy, CacheOptions::default(), 1));
    let cuts = [&others[..], &[(own, plan.options, plan.seed)]].concat();
    let mut memory = match branches_off {
        true => model.new_memory(&MemoryPlan { cuts: &cuts, forks: true, ..MemoryPlan::unbounded() }),
        false => model.new_memory(plan),
    };
    let (mut nll, mut start) = (Vec::new(), 0);
    for (index, piece) in pieces.iter().enumerate() {
        let end = (start + piece).min(tokens.len());
        let states = model.read(&tokens[start..end], &mut memory).unwrap();
        let targets = &tokens[start + 1..(end + 1).min(tokens.len())];
        nll.extend(model.nll(&states.narrow(0, 0, targets.len()).unwrap(), targets).unwrap());
        start = end;
        if branches_off && index + 2 == *prompt {
            let scores = memory.cuts();
            memory = model.fork_for_cut(&memory, (&scores, false), end, plan).unwrap().unwrap();
        } else if branches_off && *prompt == 1 && index == 0 {
            let scores = memory.take_cuts();
            memory = model.fork_for_cut(&memory, (&scores, true), end, plan).unwrap().unwrap();
        } else if own.schedule.cuts() && index + 1 == *prompt {
            model.cut(&mut memory).unwrap();
        }
    }
    Reading {
        nll,
        survivors: survivors(&memory),
        lost: memory.lost().map(<[f32]>::to_vec),
        log: memory.take_log(),
    }
}

fn survivors(memory: &Memory) -> Vec<Vec<Vec<u32>>> {
    let groups = |layer: &Vec<&[u32]>| layer.iter().map(|group| group.to_vec()).collect();
    memory.survivors().iter().map(groups).collect()
}

/// What differs between two readings.
fn difference(got: &Reading, want: &Reading) -> Option<String> {
    if got.survivors != want.survivors || got.log != want.log {
        let pairs = got.log.iter().flatten().zip(want.log.iter().flatten());
        let first = pairs.clone().find(|(got, want)| got != want);
        return Some(format!("evictions differ, first {first:?}"));
    }
    let numbers = |one: &Reading| one.nll.iter().chain(one.lost.iter().flatten()).copied().collect::<Vec<_>>();
    let (got, want) = (numbers(got), numbers(want));
    let far = (0..got.len()).find(|i| {
        let near = (got[*i] - want[*i]).abs() <= TOLERANCE * want[*i].abs().max(1.0);
        !(near || got[*i].is_nan() && want[*i].is_nan())
    });
    far.map(|i| format!("number {i} of {} is {}, not {}", got.len(), got[i], want[i]))
}

/// A random rule, and a text that is read in pieces.
struct Case {
    name: String,
    plan: MemoryPlan<'static>,
    tokens: Vec<u32>,
    pieces: Vec<usize>,
    /// Pieces that are the prompt.
    prompt: usize,
}

fn case(number: u64) -> Case {
    let mut rng = Rng::with_seed(number);
    let schedules = ["1", "2", "7", "16", "128", "cut", "cut+1", "cut+16"].map(|text| text.parse().unwrap());
    let schedule = match number {
        ..OF_SCHEDULES => Schedule::default(),
        OF_SCHEDULES..OF_CUTS => schedules[number as usize % schedules.len()],
        OF_CUTS.. => Schedule::Cut,
    };
    let of_host = (OF_HOST..OF_SCHEDULES).contains(&number) || number >= OF_CUTS && number.is_multiple_of(2);
    let (policy, size) = rule(&mut rng, of_host, schedule);
    let tokens: Vec<u32> = (0..rng.usize(60..300)).map(|_| rng.u32(1..257)).collect();
    let positions =
        [Positions::Absolute, Positions::Absolute, Positions::Slot, Positions::Squeezed][rng.usize(..4)];
    let pieces: Vec<usize> = std::iter::repeat_with(|| rng.usize(1..150))
        .take(300)
        .scan(0, |read, piece| {
            let left = tokens.len() - *read;
            *read += piece.min(left);
            (left > 0).then_some(piece)
        })
        .collect();
    let plan = MemoryPlan {
        options: CacheOptions { positions, ..CacheOptions::default() },
        seed: number,
        log: true,
        measure_loss: positions == Positions::Absolute && rng.bool(),
        ..MemoryPlan::bounded(policy.at(size).unwrap())
    };
    let prompt = rng.usize(1..=pieces.len());
    let name = format!("rule {number}: {policy}, {schedule}, {size} entries, {positions:?}");
    Case { name, plan, tokens, pieces, prompt }
}

/// Compares random rules with the host. Returns what differs. At most one rule in a hundred may be decided by rounding.
fn differing(emulation: &Emulation, cases: Range<u64>) -> Vec<String> {
    differing_with(&tiny_shape(), emulation, cases)
}

fn differing_with(shape: &ModelShape, emulation: &Emulation, cases: Range<u64>) -> Vec<String> {
    let device = Device::emulated(emulation).unwrap();
    let [host, device] = [&Device::CPU, &device].map(|device| model_of(shape, device, SHARPNESS));
    let moved = moved(shape);
    let rounding = Cell::new(0);
    let allowed = (cases.end - cases.start) / 100;
    let of_case = |number: u64| {
        let case = &case(number);
        let (got, want) = (read(&device, case, false), read(&host, case, false));
        let policy = case.plan.policy.unwrap();
        let is_absolute = case.plan.options.positions == Positions::Absolute;
        let branches_off = policy.schedule.cuts() && is_absolute && !policy.score.compares_norms();
        let branch = branches_off.then(|| difference(&Reading { lost: None, ..read(&device, case, true) }, &want));
        let what = difference(&got, &want).or_else(|| Some(format!("beside others {}", branch??)))?;
        if got.log != want.log && moved.iter().any(|host| read(host, case, false).log != want.log) {
            rounding.set(rounding.get() + 1);
            if rounding.get() <= allowed {
                return None;
            }
        }
        Some(format!("{}: {what}", case.name))
    };
    cases.filter_map(of_case).collect()
}

/// Rules from this one on have words and functions that kernels do not know.
const OF_HOST: u64 = 1000;
/// Rules from this one on have schedules of all kinds.
const OF_SCHEDULES: u64 = 2000;
/// Rules from this one on cut the prompt. Half of them have words and functions that kernels do not know.
const OF_CUTS: u64 = 3000;

#[test]
fn random_rules_evict_the_same_as_on_the_host() {
    let differing = differing(&Emulation::default(), 0..500);
    assert!(differing.is_empty(), "{} of 500:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn random_schedules_evict_the_same_as_on_the_host() {
    for (emulation, cases) in [(Emulation::default(), 0..160), (as_on_a_gpu(4), 160..168)] {
        let differing = differing(&emulation, OF_SCHEDULES + cases.start..OF_SCHEDULES + cases.end);
        assert!(differing.is_empty(), "{} of {cases:?}:\n{}", differing.len(), differing.join("\n"));
    }
}

/// The host scores what kernels do not know, from the prompt's last rows, and heads keep different numbers of entries.
#[test]
fn random_cuts_keep_the_same_as_on_the_host() {
    for (emulation, cases) in [(Emulation::default(), 0..200), (as_on_a_gpu(5), 200..208)] {
        let cases = OF_CUTS + cases.start..OF_CUTS + cases.end;
        let differing = differing(&emulation, cases.clone());
        assert!(differing.is_empty(), "{} of {cases:?}:\n{}", differing.len(), differing.join("\n"));
    }
    let cases = (OF_CUTS..OF_CUTS + 200).map(case);
    let of_host = cases.filter(|case| {
        let policy = case.plan.policy.unwrap();
        let is_on_gpu = tiny_shape().why_on_host(Some(policy), case.plan.options).is_none();
        is_on_gpu && policy.horizon().is_some() && policy.budget.is_by_head()
    });
    assert!(of_host.count() > 20);
}

/// What is asked for of a device while a text is read.
fn asked(counts: &Mutex<BTreeMap<String, usize>>, read: impl FnOnce()) -> BTreeMap<String, usize> {
    counts.lock().unwrap().clear();
    read();
    counts.lock().unwrap().clone()
}

#[test]
fn a_text_takes_few_copies_and_no_scan_where_nothing_leaves() {
    let emulation = Emulation { is_packed: true, ..Emulation::default() };
    let model = emulated(&emulation);
    let tokens: Vec<u32> = (0..300).map(|token| token % 250).collect();
    let read = |plan: &MemoryPlan<'_>| {
        asked(&emulation.counts, || drop(model.read(&tokens, &mut model.new_memory(plan)).unwrap()))
    };
    let of_policy = |name: &str, schedule: &str, size: usize| {
        let policy = presets::by_name(name).unwrap();
        MemoryPlan::bounded(Policy { schedule: schedule.parse().unwrap(), ..policy }.at(size).unwrap())
    };
    let first = read(&MemoryPlan::unbounded());
    let full = read(&MemoryPlan::unbounded());
    // The cosines and sines of the first text stay.
    let angles = tokens.len() * tiny_shape().head_dim * size_of::<f32>();
    assert!(full["Uploaded"] < angles && first["Uploaded"] > angles, "{first:?} {full:?}");
    // What all layers have decided comes in one piece.
    assert_eq!(read(&of_policy("h2o", "1", 30))["Download"], 1);
    let launches = |kernel: &str, name: &str, schedule: &str, size: usize| {
        read(&of_policy(name, schedule, size)).get(kernel).copied().unwrap_or(0)
    };
    let scans = |name: &str, schedule: &str| launches("Scan", name, schedule, 30);
    let blocks = tiny_shape().layers * tokens.len().div_ceil(128);
    // None of blocks before the cache is full, but where a formula remembers them.
    for (name, of_all) in [("tova", 0), ("h2o", 2), ("window", 0), ("window+4", 0), ("knorm", 2), ("roco", 3)] {
        assert_eq!(launches("Scan", name, "1", 200), tiny_shape().layers * of_all, "{name}");
    }
    assert_eq!(launches("Walk", "tova", "1", 200), tiny_shape().layers * 2);
    assert_eq!((full.get("Scan"), launches("Walk", "tova", "1", 30), scans("tova", "16")), (None, blocks, blocks));
    // Of a prompt that will be cut, TOVA looks at the last row.
    assert_eq!((scans("h2o", "cut"), scans("knorm", "cut"), scans("tova", "cut")), (0, 0, tiny_shape().layers));
    assert_eq!(scans("roco", "cut"), blocks);
}

/// Layers with windows of their own, without a policy, and policies that keep the newest entries.
#[test]
fn windows_pass_without_a_scan_what_they_pass_on_the_host() {
    let kinds =
        [24, 128, 200].map(|size| [("layer", size), ("window", size), ("window+4", size), ("head+20", size)]);
    for (kind, window) in kinds.into_iter().flatten() {
        let mut shape = tiny_shape();
        let policy = match kind {
            "layer" => {
                shape.attention[0].window = Some(window);
                None
            }
            "head+20" => {
                let (scope, keep_first) = (Scope::Head, FirstTokens::Count(Amount::Tokens(20)));
                Policy { scope, keep_first, ..presets::by_name("window").unwrap() }.at(window).ok()
            }
            name => presets::by_name(name).unwrap().at(window).ok(),
        };
        let emulation = Emulation::default();
        let device = Device::emulated(&emulation).unwrap();
        let [host, device] = [&Device::CPU, &device].map(|device| model_of(&shape, device, SHARPNESS));
        let plan = MemoryPlan { policy, log: true, measure_loss: true, ..MemoryPlan::unbounded() };
        let read = |model: &LanguageModel| {
            let (mut memory, mut states) = (model.new_memory(&plan), Vec::new());
            for piece in [0..100, 100..350, 350..700] {
                let tokens: Vec<u32> = piece.map(|token| token * 7 % 250).collect();
                states.push(model.read(&tokens, &mut memory).unwrap());
            }
            let unscanned = emulation.counts.lock().unwrap().get("Scan").is_none();
            for token in 0..5 {
                states.push(model.step(&[token], &mut [&mut memory]).unwrap());
            }
            let states =
                states.iter().flat_map(|states| states.flatten_all().unwrap().to_vec1().unwrap()).collect();
            let lost = memory.lost().map(<[f32]>::to_vec);
            (Reading { nll: states, survivors: survivors(&memory), lost, log: memory.take_log() }, unscanned)
        };
        let ((want, _), (got, unscanned)) = (read(&host), read(&device));
        assert_eq!(difference(&got, &want), None, "{kind} {window}");
        assert!(unscanned && emulation.counts.lock().unwrap()["Scan"] > 0);
    }
}

/// Caches from which nothing leaves: heads of the sizes that a kernel is made for and others, windows, limited logits, values of 16 bits.
/// Where a read ends changes no bit.
#[test]
fn attention_over_full_caches_is_that_of_the_host() {
    let cases = [
        (64, Some(40), None),
        (80, None, Some(2.0)),
        (128, None, None),
        (200, Some(70), Some(9.0)),
        (8, None, None),
    ];
    for (head_dim, window, softcap) in cases {
        let mut shape = ModelShape { head_dim, attention_softcap: softcap, ..tiny_shape() };
        shape.attention[0].window = window;
        let tokens: Vec<u32> = (0..150).map(|token| token * token % 250).collect();
        let states = |device: &Device, dtype: WeightType, most: usize| -> Vec<f32> {
            let model = LanguageModel::random(shape.clone(), 1.0, 5, dtype, device).unwrap();
            let mut memory = model.new_memory(&MemoryPlan { expect: tokens.len(), ..MemoryPlan::unbounded() });
            let reads = tokens.chunks(most).map(|piece| model.read(piece, &mut memory).unwrap());
            reads.flat_map(|states| states.flatten_all().unwrap().to_vec1().unwrap()).collect()
        };
        for (dtype, order) in [(WeightType::Auto, WarpOrder::Descending), (WeightType::Bf16, WarpOrder::Random(3))]
        {
            let device = Device::emulated(&Emulation { order, ..Emulation::default() }).unwrap();
            let (got, want) = (states(&device, dtype, 150), states(&Device::CPU, dtype, 150));
            let apart = got.iter().zip(&want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
            // Logits of 128 dimensions differ by more than those of 8; how exact they are is tested against f64 (`lm::gpu`).
            assert!(apart < 1e-4, "{head_dim} {window:?} {softcap:?} {dtype:?}: {apart}");
            assert!(got.iter().all(|x| x.is_finite()));
            assert_eq!(states(&device, dtype, 37), got, "{head_dim} {window:?} {softcap:?} {dtype:?}");
        }
    }
}

#[test]
fn what_kernels_do_not_know_is_on_the_host_beside_them() {
    let differing = differing(&Emulation::default(), OF_HOST..OF_HOST + 100);
    assert!(differing.is_empty(), "{} of 100:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn attention_is_computed_again_where_little_of_it_is_left() {
    let flags = vec!["-DSMALLEST_SUM=1e30f".to_owned()];
    let differing = differing(&Emulation { flags, ..Emulation::default() }, 700..800);
    assert!(differing.is_empty(), "{} of 100:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn the_order_of_warps_changes_nothing() {
    let orders =
        [(WarpOrder::Descending, 500..550), (WarpOrder::Random(0), 700..725), (WarpOrder::Random(1), 750..775)];
    for (order, cases) in orders {
        let differing = differing(&Emulation { order, threads: 256, ..Emulation::default() }, cases);
        assert!(differing.is_empty(), "{order:?}, {}:\n{}", differing.len(), differing.join("\n"));
    }
}

#[test]
fn packed_memory_that_is_used_again_changes_nothing() {
    let differing = differing(&Emulation { is_packed: true, ..Emulation::default() }, 800..900);
    assert!(differing.is_empty(), "{} of 100:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn blocks_of_the_size_of_a_gpu_change_nothing() {
    for (threads, cases) in [(640, 900..905), (768, 908..913), (1024, 916..921)] {
        let emulation = Emulation { threads, ..as_on_a_gpu(threads as u32) };
        let differing = differing_with(&wide_shape(), &emulation, cases);
        assert!(differing.is_empty(), "{threads} threads, {}:\n{}", differing.len(), differing.join("\n"));
    }
}

/// What H2O keeps of a text, and its states, where it continues from the full cache.
fn forked(model: &LanguageModel, tokens: &[u32]) -> (Vec<Vec<Vec<u32>>>, Vec<u32>) {
    let policy = presets::by_name("h2o").unwrap().at(30).unwrap();
    let scopes = [Scope::Layer, Scope::Head];
    let mut full = model.new_memory(&MemoryPlan {
        fork_scopes: &scopes,
        fork_points: &[30],
        forks: true,
        ..MemoryPlan::unbounded()
    });
    let mut states = model.read(tokens, &mut full).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let mut memory = full.fork(30, &MemoryPlan::bounded(policy)).unwrap();
    let rest = model.read(&tokens[30..], &mut memory).unwrap();
    states.extend(rest.flatten_all().unwrap().to_vec1::<f32>().unwrap());
    (survivors(&memory), states.iter().map(|state| state.to_bits()).collect())
}

#[test]
fn texts_that_are_read_at_the_same_time_have_the_bits_of_each_alone() {
    let device = &emulated(&Emulation::default());
    let packed = &emulated(&as_on_a_gpu(2));
    for (device, cases) in [(device, 600..607), (device, 607..614), (packed, 614..621)] {
        let cases: Vec<Case> = cases.map(case).collect();
        let of_case = |case: &Case| {
            let Reading { nll, survivors, log, lost } = read(device, case, false);
            let bits = nll.iter().chain(lost.iter().flatten()).map(|x| x.to_bits()).collect::<Vec<_>>();
            (bits, survivors, log)
        };
        let alone: Vec<_> = cases.iter().map(of_case).collect();
        let forked_alone = forked(device, &cases[0].tokens);
        std::thread::scope(|scope| {
            let threads: Vec<_> = cases.iter().map(|case| scope.spawn(move || of_case(case))).collect();
            assert_eq!(forked(device, &cases[0].tokens), forked_alone);
            for ((case, alone), thread) in cases.iter().zip(alone).zip(threads) {
                assert!(thread.join().unwrap() == alone, "{} differs beside other texts", case.name);
            }
        });
    }
}

#[test]
fn scores_of_logits_are_those_of_the_host() {
    let tokens: Vec<u32> = (1..200).collect();
    let score = |device: &Device| {
        let model = model(device, SHARPNESS);
        let policy = presets::by_name("tova").unwrap().at(20).unwrap();
        let states = [MemoryPlan::bounded(policy), MemoryPlan::unbounded()].map(|plan| {
            let states = model.read(&tokens, &mut model.new_memory(&plan)).unwrap();
            states.narrow(0, 0, tokens.len() - 1).unwrap()
        });
        let all: Vec<usize> = (0..tokens.len() - 1).collect();
        model.score(&states[0], &tokens[1..], &all, Some(&states[1])).unwrap()
    };
    let (own, host) = (score(&Device::emulated(&Emulation::default()).unwrap()), score(&Device::CPU));
    assert_eq!((own.hits, own.same_top), (host.hits, host.same_top));
    assert!((own.kl - host.kl).abs() < 1e-4 * host.kl, "{} and {}", own.kl, host.kl);
    for (own, host) in own.nll.iter().zip(&host.nll) {
        assert!((own - host).abs() < TOLERANCE * host.max(1.0), "{own} and {host}");
    }
}

#[test]
fn texts_that_threads_write_at_the_same_time_are_those_of_each_alone() {
    let model = &emulated(&Emulation::default());
    let settings = &GenerationSettings {
        sampling: Sampling::Drawn { temperature: 1.0, top_k: None, top_p: None },
        repetition_penalty: 1.0,
        stop_tokens: Vec::new(),
        stop_strings: Vec::new(),
    };
    // Norms are compared in f64, and the last of these has its cache on the host.
    let write = |(seed, name): (u64, &str)| {
        let policy = presets::by_name(name).unwrap_or_else(|| Policy {
            score: Score::new(name, Pool::Mean).unwrap(),
            ..presets::by_name("tova").unwrap()
        });
        let policy = policy.at(20).unwrap();
        let prompt: Vec<u32> = (1..40 + 9 * seed as u32).collect();
        let mut memory = model.new_memory(&MemoryPlan::bounded(policy));
        let states = model.read(&prompt, &mut memory).unwrap();
        let state = states.narrow(0, prompt.len() - 1, 1).unwrap();
        let prompt = PrefilledPrompt { memory, state, prompt, seed, max_new_tokens: 12 };
        model.generate(vec![prompt], settings, &|_| Ok(String::new())).unwrap().remove(0).tokens
    };
    let texts = [(1, "tova"), (2, "h2o"), (3, "knorm"), (4, "tova"), (5, "attention - key_redundancy")];
    let alone = texts.map(write);
    std::thread::scope(|scope| {
        let threads = texts.map(|text| scope.spawn(move || write(text)));
        for ((thread, alone), text) in threads.into_iter().zip(&alone).zip(texts) {
            assert_eq!(&thread.join().unwrap(), alone, "{text:?}");
        }
    });
}

/// The kernels with one line changed. The folder is deleted with the first of the two.
fn broken(file: &str, line: &str, instead: &str) -> (tempfile::TempDir, Emulation) {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(Emulation::default().kernels).unwrap() {
        let path = entry.unwrap().path();
        let mut source = fs::read_to_string(&path).unwrap();
        if path.ends_with(file) {
            assert_eq!(source.matches(line).count(), 1, "{line} in {file}");
            source = source.replace(line, instead);
        }
        fs::write(folder.path().join(path.file_name().unwrap()), source).unwrap();
    }
    let emulation = Emulation { kernels: folder.path().into(), ..Emulation::default() };
    (folder, emulation)
}

/// What TOVA with two evictions at once, as kernel `scan` decides, keeps of 100 tokens, or the error.
fn kept_by_tova(model: &LanguageModel) -> Result<Vec<Vec<Vec<u32>>>, String> {
    let policy = Policy { schedule: "2".parse().unwrap(), ..presets::by_name("tova").unwrap() }.at(20).unwrap();
    let mut memory = model.new_memory(&MemoryPlan::bounded(policy));
    let tokens: Vec<u32> = (1..100).collect();
    model.read(&tokens, &mut memory).map_err(|error| format!("{error:#}"))?;
    Ok(survivors(&memory))
}

fn error_of(emulation: &Emulation) -> String {
    kept_by_tova(&emulated(emulation)).unwrap_err()
}

#[test]
fn a_barrier_that_not_all_threads_reach_is_an_error() {
    let line = "scan.gone_from);\n    }\n    __syncthreads();";
    let (_folder, emulation) =
        broken("decide.h", line, &line.replace("__syncthreads", "if (threadIdx.x < 40) __syncthreads"));
    let error = error_of(&emulation);
    assert!(error.contains("scan") && error.contains("diverge"), "{error}");
}

#[test]
fn a_shuffle_that_not_all_lanes_reach_is_an_error() {
    let line = "    sum = warp_sum(sum);\n    if (!(sum >= SMALLEST_SUM)) {";
    let instead = line.replace("sum = warp_sum(sum);", "if (lane() < 20) sum = warp_sum(sum);");
    let (_folder, emulation) = broken("decide.h", line, &instead);
    let error = error_of(&emulation);
    assert!(error.contains("shuffle") && error.contains("diverge"), "{error}");
}

#[test]
fn a_missing_barrier_changes_results_with_the_order_of_threads() {
    // Between what the warps know of the lowest score and its use.
    let line = "        if (lane() == 0) scratch.narrow[warp()] = score, scratch.column[warp()] = column;\n        __syncthreads();";
    let (_folder, emulation) = broken("block.h", line, line.trim_end_matches("        __syncthreads();"));
    let backwards = Emulation { order: WarpOrder::Descending, ..emulation.clone() };
    let host = kept_by_tova(&model(&Device::CPU, SHARPNESS));
    assert_eq!(kept_by_tova(&emulated(&Emulation::default())), host);
    assert!([emulation, backwards].iter().any(|broken| kept_by_tova(&emulated(broken)) != host));
}

#[test]
fn a_wrong_order_of_ties_evicts_others() {
    let (_folder, emulation) = broken("block.h", "(unsigned long long)position", "(unsigned long long)~position");
    assert!(!differing(&emulation, 0..40).is_empty());

    // A device with such kernels is not used: attention runs on the host, and the reason is there to be told.
    let device = Device::emulated(&emulation).unwrap().checked();
    let refused = device.refused().unwrap();
    assert!(refused.contains("other entries survive"), "{refused}");
    assert_eq!(kept_by_tova(&model(&device, SHARPNESS)), kept_by_tova(&model(&Device::CPU, SHARPNESS)));
}

#[test]
fn a_missing_barrier_that_matters_to_a_warp_in_the_middle_shows_in_a_drawn_order() {
    // The first and the last warp both say that the entry has left, so the first that runs in either direction does.
    let line = "if (threadIdx.x == 0) {\n            scan.gone_from[victim] = scan.row + 1;";
    let of_both = "if (lane() % 31 == 0 && (warp() == 0 || warp() == warps() - 1))";
    let (folder, emulation) = broken("decide.h", line, &line.replace("if (threadIdx.x == 0)", of_both));
    let path = folder.path().join("decide.h");
    let source = fs::read_to_string(&path).unwrap();
    let line = "        }\n        __syncthreads();\n    }\n}\n\n// Tells";
    assert_eq!(source.matches(line).count(), 1);
    fs::write(&path, source.replace(line, &line.replace("        __syncthreads();\n", ""))).unwrap();
    let host = kept_by_tova(&model(&Device::CPU, SHARPNESS));
    let is_right =
        |threads, order| kept_by_tova(&emulated(&Emulation { threads, order, ..emulation.clone() })) == host;
    // With two warps there is none in the middle.
    assert!([0, 1, 2].into_iter().all(|seed| is_right(64, WarpOrder::Random(seed))));
    assert!([WarpOrder::Ascending, WarpOrder::Descending].into_iter().all(|order| is_right(128, order)));
    assert!(!is_right(128, WarpOrder::Random(0)));
}

#[test]
fn a_sum_over_too_few_warps_is_wrong_in_large_blocks() {
    let line = "score = lane() < warps() ? scratch.narrow[lane()] : INFINITY;";
    let (_folder, emulation) = broken("block.h", line, &line.replace("warps()", "2"));
    let host = kept_by_tova(&model(&Device::CPU, SHARPNESS));
    assert_eq!(kept_by_tova(&emulated(&emulation)), host);
    assert_ne!(kept_by_tova(&emulated(&Emulation { threads: 128, ..emulation })), host);
}

#[test]
fn what_earlier_calls_have_left_shows_in_packed_memory() {
    // New memory has no victims, as if all had been written.
    let (_folder, emulation) = broken("decide.h", "text.victims[row * text.groups + group] = -1;", "");
    // They say what a window passed, too.
    let mut shape = tiny_shape();
    shape.attention[0].window = Some(24);
    assert!(differing_with(&shape, &emulation, 0..10).is_empty());
    assert!(!differing_with(&shape, &Emulation { is_packed: true, ..emulation }, 0..10).is_empty());
}

/// The bits of a text's states, or the error.
fn states(model: &LanguageModel, tokens: &[u32], memory: &mut Memory) -> Result<Vec<u32>, String> {
    let states = model.read(tokens, memory).map_err(|error| format!("{error:#}"))?;
    let states = states.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    Ok(states.into_iter().map(f32::to_bits).collect())
}

#[test]
fn a_launch_that_fails_is_an_error_of_its_texts_and_of_no_later_one() {
    let plan = MemoryPlan::bounded(presets::by_name("h2o").unwrap().at(20).unwrap());
    let tokens: Vec<u32> = (1..200).collect();
    let right = emulated(&Emulation::default());
    let mut memory = right.new_memory(&plan);
    states(&right, &tokens[..50], &mut memory).unwrap();
    let expected = states(&right, &tokens[50..], &mut memory).unwrap();
    for is_packed in [false, true] {
        // Kernels of both layers.
        for failing in (11..60).step_by(3) {
            let model = emulated(&Emulation { is_packed, failing_launch: Some(failing), ..Emulation::default() });
            let mut memory = model.new_memory(&plan);
            states(&model, &tokens[..50], &mut memory).unwrap();
            let mut copies = [memory.clone(), memory.clone(), memory.clone()];
            let results = std::thread::scope(|scope| {
                let threads = copies.each_mut().map(|copy| scope.spawn(|| states(&model, &tokens[50..], copy)));
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(results.iter().any(Result::is_err), "launch {failing}");
            for result in results {
                match result {
                    Ok(states) => assert!(states == expected, "launch {failing}"),
                    Err(error) => assert!(error.contains(&format!("launch {failing} fails")), "{error}"),
                }
            }
            assert!(states(&model, &tokens[50..], &mut memory).unwrap() == expected, "after launch {failing}");
        }
    }
}

#[test]
fn a_device_that_decides_as_the_host_passes_its_check() {
    // Fewer threads than a GPU has, which take as long as there are.
    let emulation = Emulation { threads: 64, ..as_on_a_gpu(3) };
    assert!(Device::emulated(&emulation).unwrap().check().unwrap().is_some_and(|cases| cases > 0));
}

#[test]
fn a_device_with_a_broken_kernel_is_refused() {
    let received = "sum + weight";
    let whole = "count(text.moved[2 * group + 1])";
    for (file, line, instead, threads) in [
        ("received.cu", received, received.replace('+', "-"), 64),
        ("loss.cu", "lost < 0 ? 0 : lost;", "lost < 0 ? 0 : 2 * lost;".into(), 64),
        ("refill.cu", whole, whole.replace("1])", "1] - 1)"), 64),
        ("walk.cu", "bound * least > best", "best < INFINITY".into(), 64),
        // Blocks of the small model have no more than 8 warps.
        ("decide.h", "int member = warp();", "int member = warp() % 8;".into(), 1024),
    ] {
        let (_folder, emulation) = broken(file, line, &instead);
        let device = Device::emulated(&Emulation { threads, ..emulation }).unwrap();
        let error = format!("{:#}", device.check().unwrap_err());
        assert!(error.contains("on the host"), "{file}: {error}");
    }
}

/// Runs a test of this file again, in a process with the sanitizers' library. `None` where the compiler has none.
fn sanitized(test: &str, kernels: &Path) -> Option<(bool, String)> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let found = Command::new(compiler).arg("-print-file-name=libasan.so").output().unwrap();
    let library = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
    if !library.is_absolute() {
        eprintln!("SKIPPED: the C++ compiler has no address sanitizer");
        return None;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env("LD_PRELOAD", library)
        .env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
        .env("TOVA_BENCH_TEST_KERNELS", kernels)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Some((output.status.success(), text))
}

/// Run by the tests below, with the sanitizers' library; does nothing otherwise.
#[test]
fn rules_under_sanitizers() {
    let Some(kernels) = std::env::var_os("TOVA_BENCH_TEST_KERNELS").map(PathBuf::from) else { return };
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"].map(String::from).into();
    let emulation = Emulation { kernels, flags, ..Emulation::default() };
    let packed = Emulation { is_packed: true, ..emulation.clone() }; // which shows what is not aligned
    for (emulation, cases) in [(emulation, 600..630), (packed, 630..640)] {
        let differing = differing(&emulation, cases);
        assert!(differing.is_empty(), "{}", differing.join("\n"));
    }
}

#[test]
fn sanitizers_find_nothing() {
    let Some((passed, text)) = sanitized("emulated::rules_under_sanitizers", &Emulation::default().kernels) else {
        return;
    };
    assert!(passed, "{text}");
}

#[test]
fn sanitizers_find_a_read_behind_a_buffer() {
    let line = "for (int i = threadIdx.x; i < layer.heads * layer.dim; i += blockDim.x) {";
    let (_folder, emulation) = broken("outputs.cu", line, &line.replace("layer.dim;", "layer.dim + 1;"));
    let Some((passed, text)) = sanitized("emulated::rules_under_sanitizers", &emulation.kernels) else { return };
    assert!(!passed && text.contains("heap-buffer-overflow") && text.contains("outputs.cu"), "{text}");
}

#[test]
fn a_write_behind_shared_memory_is_an_error() {
    let line = "for (int c = threadIdx.x; c < text.stride; c += blockDim.x) gone_from[c] = NEVER;";
    let (_folder, emulation) = broken("decide.h", line, &line.replace("text.stride;", "text.stride + 3;"));
    let error = error_of(&emulation);
    assert!(error.contains("shared memory"), "{error}");
}

#[test]
fn every_kernel_is_timed() {
    let kernel = regex::Regex::new(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(").unwrap();
    let sources = fs::read_dir(Emulation::default().kernels).unwrap();
    let sources: String = sources.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let kernels: BTreeSet<String> =
        kernel.captures_iter(&sources).map(|found| found[1].replace('_', "")).collect();
    let device = Device::emulated(&Emulation::default()).unwrap();
    let measured = device.benchmark(true).unwrap();
    // The others are products.
    let timed = measured.iter().map(|own| own.name.to_lowercase()).filter(|name| !name.contains(" x "));
    assert_eq!(timed.collect::<BTreeSet<_>>(), kernels);
    assert!(!device.benchmark(false).unwrap().is_empty());
    assert!(Device::CPU.benchmark(true).is_err());
}
