//! Attention by the GPU's kernels, which are compiled for this machine and run here (feature `emulate`): random rules against
//! the host's own attention, and kernels that were broken on purpose.
//!
//! The goldens run through it with `TOVA_BENCH_TEST_DEVICE=emulated`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use fastrand::Rng;
use tova_bench::eviction::formula::{Function, Pool, WORDS};
use tova_bench::eviction::{
    Amount, Budget, Eviction, LocalLayers, Policy, Positions, Schedule, Scope, Score, presets,
};
use tova_bench::lm::{Device, Emulation, LanguageModel, Memory, MemoryPlan, WeightType, tiny_shape};

const TOLERANCE: f32 = 1e-5;

/// What attention logits are multiplied by, so that attention is uneven.
const SHARPNESS: f32 = 4.0;

fn model(device: &Device, sharpness: f32) -> LanguageModel {
    LanguageModel::random(tiny_shape(), sharpness, 5, WeightType::Auto, device).unwrap()
}

fn emulated(emulation: &Emulation) -> LanguageModel {
    model(&Device::emulated(emulation).unwrap(), SHARPNESS)
}

/// The same model on the host, moved by roundings, at most by a quarter of what numbers may differ by. A rule that evicts others
/// there, as one that compares two almost equal numbers may do, is decided by how its machine rounds, which differs from
/// processor to processor.
fn moved() -> Vec<LanguageModel> {
    [-20, -8, -3, -1, 1, 3, 8, 20]
        .iter()
        .map(|step| model(&Device::CPU, SHARPNESS + *step as f32 * 5e-7))
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
fn rule(rng: &mut Rng, of_host: bool) -> (Policy, usize) {
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
        let (keep_first, keep_recent) = (amount(rng), amount(rng));
        let scope = if rng.bool() { Scope::Layer } else { Scope::Head };
        let budget = if rng.u32(..4) == 0 { Budget::of_layers(&[3.0, 5.0]).unwrap() } else { Budget::Uniform };
        let schedule = Schedule::default();
        let policy = Policy { score, scope, keep_first, keep_recent, budget, schedule };
        let size = rng.usize(3..40);
        if policy.check(size, tiny_shape().layers, tiny_shape().heads.kv_heads).is_ok() {
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

fn read(model: &LanguageModel, tokens: &[u32], plan: &MemoryPlan<'_>, pieces: &[usize]) -> Reading {
    let mut memory = model.new_memory(plan);
    let (mut nll, mut start) = (Vec::new(), 0);
    for piece in pieces {
        let end = (start + piece).min(tokens.len());
        let states = model.read(&tokens[start..end], &mut memory).unwrap();
        let targets = &tokens[start + 1..(end + 1).min(tokens.len())];
        nll.extend(model.nll(&states.narrow(0, 0, targets.len()).unwrap(), targets).unwrap());
        start = end;
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
}

fn case(number: u64) -> Case {
    let mut rng = Rng::with_seed(number);
    let (policy, size) = rule(&mut rng, number >= OF_HOST);
    let tokens: Vec<u32> = (0..rng.usize(60..300)).map(|_| rng.u32(1..257)).collect();
    let positions =
        [Positions::Absolute, Positions::Absolute, Positions::Slot, Positions::Squeezed][rng.usize(..4)];
    let pieces = std::iter::repeat_with(|| rng.usize(1..150))
        .take(300)
        .scan(0, |read, piece| {
            let left = tokens.len() - *read;
            *read += piece.min(left);
            (left > 0).then_some(piece)
        })
        .collect();
    let plan = MemoryPlan {
        positions,
        seed: number,
        log: true,
        measure_loss: positions == Positions::Absolute && rng.bool(),
        local_layers: LocalLayers::default(),
        ..MemoryPlan::bounded(policy.at(size).unwrap())
    };
    Case { name: format!("rule {number}: {policy}, {size} entries, {positions:?}"), plan, tokens, pieces }
}

/// Compares random rules with the host. Returns what differs. At most one rule in a hundred may be decided by rounding.
fn differing(emulation: &Emulation, cases: Range<u64>) -> Vec<String> {
    let (host, device, moved) = (model(&Device::CPU, SHARPNESS), emulated(emulation), moved());
    let rounding = Cell::new(0);
    let allowed = (cases.end - cases.start) / 100;
    let of_case = |number: u64| {
        let Case { name, plan, tokens, pieces } = &case(number);
        let (got, want) = (read(&device, tokens, plan, pieces), read(&host, tokens, plan, pieces));
        let what = difference(&got, &want)?;
        if got.log != want.log && moved.iter().any(|host| read(host, tokens, plan, pieces).log != want.log) {
            rounding.set(rounding.get() + 1);
            if rounding.get() <= allowed {
                return None;
            }
        }
        Some(format!("{name}: {what}"))
    };
    cases.filter_map(of_case).collect()
}

/// Rules from this one on have words and functions that kernels do not know.
const OF_HOST: u64 = 1000;

#[test]
fn random_rules_evict_the_same_as_on_the_host() {
    let differing = differing(&Emulation::default(), 0..500);
    assert!(differing.is_empty(), "{} of 500:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn what_kernels_do_not_know_is_on_the_host_beside_them() {
    let differing = differing(&Emulation::default(), OF_HOST..OF_HOST + 100);
    assert!(differing.is_empty(), "{} of 100:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn the_order_of_threads_changes_nothing() {
    let differing = differing(&Emulation { descending: true, ..Emulation::default() }, 500..600);
    assert!(differing.is_empty(), "{} of 100:\n{}", differing.len(), differing.join("\n"));
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
    for cases in [600..607, 607..614, 614..621] {
        let cases: Vec<Case> = cases.map(case).collect();
        let of_case = |case: &Case| {
            let Reading { nll, survivors, log, lost } = read(device, &case.tokens, &case.plan, &case.pieces);
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

/// What TOVA keeps of 100 tokens, or the error.
fn kept_by_tova(model: &LanguageModel) -> Result<Vec<Vec<Vec<u32>>>, String> {
    let policy = presets::by_name("tova").unwrap().at(20).unwrap();
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
    let line = "    scan.entries++;\n    __syncthreads();";
    let (_folder, emulation) =
        broken("decide.h", line, "    scan.entries++;\n    if (threadIdx.x < 40) __syncthreads();");
    let error = error_of(&emulation);
    assert!(error.contains("scan") && error.contains("diverge"), "{error}");
}

#[test]
fn a_shuffle_that_not_all_lanes_reach_is_an_error() {
    let line = "        sum = warp_sum(sum);\n        if (lane() == 0) text.max[at] = most, text.sum[at] = sum;";
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
    let backwards = Emulation { descending: true, ..emulation.clone() };
    let host = kept_by_tova(&model(&Device::CPU, SHARPNESS));
    assert_eq!(kept_by_tova(&emulated(&Emulation::default())), host);
    assert!([emulation, backwards].iter().any(|broken| kept_by_tova(&emulated(broken)) != host));
}

#[test]
fn a_wrong_order_of_ties_evicts_others() {
    let line = "other < score || (other == score && other_column < column)";
    let (_folder, emulation) =
        broken("block.h", line, "other < score || (other == score && other_column > column)");
    assert!(!differing(&emulation, 0..40).is_empty());

    // A device with such kernels is not used: attention runs on the host, and the reason is there to be told.
    let device = Device::emulated(&emulation).unwrap().checked();
    let refused = device.refused().unwrap();
    assert!(refused.contains("other entries survive"), "{refused}");
    assert_eq!(kept_by_tova(&model(&device, SHARPNESS)), kept_by_tova(&model(&Device::CPU, SHARPNESS)));
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
    let differing = differing(&Emulation { kernels, flags, ..Emulation::default() }, 600..630);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
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
    let line = "for (int c = threadIdx.x; c < text.stride; c += blockDim.x) alive[c] = c < text.held;";
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
