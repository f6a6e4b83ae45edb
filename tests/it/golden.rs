//! The engine against a slow, plain definition (float64, one token at a time, entries deleted): NLLs within 1e-4
//! and equal survivors, however the text is split into reads.
//!
//! `tests/golden/README.md` says where the expected results come from. `TOVA_BENCH_TEST_DATA` has more of them;
//! without it that test prints that it is skipped.

use crate::support::material;
use std::path::Path;
use std::sync::Arc;

use crate::support::checkpoint::{GOLDENS, configure, load, load_as};
use serde::Deserialize;
use tova_bench::eviction::formula::{Formula, Pool};
use tova_bench::eviction::presets::{self, PRESETS, Preset};
use tova_bench::eviction::{
    Amount, Budget, BudgetPool, CacheOptions, FirstTokens, Policy, PoolOver, Schedule, Scope, Score,
};
use tova_bench::lm::source::{HubSettings, ModelSource};
use tova_bench::lm::{
    Device, LanguageModel, MemoryPlan, ModelFiles, Real, RepeatRequest, RopeOverride, RopeOverrideKind, Tokenizer,
    WeightType,
};

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    /// A preset; none where the score is given.
    #[serde(default)]
    policy: String,
    #[serde(flatten)]
    defined: Option<Defined>,
    size: Option<usize>,
    #[serde(flatten)]
    options: CacheOptions,
    #[serde(default)]
    schedule: Schedule,
    /// The first tokens that are the prompt, where the schedule cuts.
    prompt: Option<usize>,
    nll: Vec<f64>,
    /// None where queries select, as nothing leaves.
    survivors: Option<Vec<Vec<Vec<u32>>>>,
}

/// A policy of a score's formula.
#[derive(Deserialize)]
struct Defined {
    score: String,
    scope: Scope,
    #[serde(default)]
    pool: Pool,
    keep_first: serde_json::Value,
    keep_recent: serde_json::Value,
    budget: Option<BudgetJson>,
    /// The first layer whose queries select.
    select_from: Option<usize>,
    /// The layers that decide for all.
    layers: Option<Vec<serde_json::Value>>,
}

/// As sweeps spell it.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum BudgetJson {
    Pyramid { pyramid: u32 },
    Layers { layers: Vec<f64> },
    Pool { pool: PoolOver, floor: u8, score: Option<String> },
    Heads { heads: Vec<Vec<serde_json::Value>> },
}

/// A formula whose files are in a folder.
fn score_in(folder: &Path, formula: &str, pool: Pool) -> Score {
    let formula = formula.replace("dot(\"", &format!("dot(\"{}/", folder.display()));
    Score::new(&formula, pool).unwrap_or_else(|error| panic!("{error}"))
}

/// A preset whose file, if it needs one, is in a folder.
fn preset_in(folder: &Path, name: &str) -> Option<Policy> {
    let of_file = PRESETS.iter().find(|preset| preset.name == name && preset.score.contains("dot("));
    let Some(preset) = of_file else { return presets::by_name(name) };
    let Preset { scope, keep_first, keep_recent, schedule, select_from, .. } = *preset;
    let budget = preset.budget().unwrap();
    let score = score_in(folder, preset.score, Pool::Mean);
    Some(Policy { score, scope, keep_first, keep_recent, budget, schedule, select_from, layers: None })
}

impl Defined {
    fn policy(&self, folder: &Path) -> Policy {
        let amount = |value: &serde_json::Value| match value.as_str() {
            Some(percent) => Amount::Percent(percent.trim_end_matches('%').parse().unwrap()),
            None => Amount::Tokens(value.as_u64().unwrap() as usize),
        };
        let budget = match &self.budget {
            None => Budget::Uniform,
            Some(BudgetJson::Pyramid { pyramid }) => Budget::Pyramid(*pyramid),
            Some(BudgetJson::Layers { layers }) => Budget::of_layers(layers).unwrap(),
            Some(BudgetJson::Pool { pool, floor, score }) => {
                let score = score.as_ref().map(|score| Formula::new(score, Pool::Mean).unwrap());
                Budget::Pool(BudgetPool { over: *pool, floor: *floor, score })
            }
            Some(BudgetJson::Heads { heads }) => {
                let rows: Vec<Vec<Option<f64>>> =
                    heads.iter().map(|row| row.iter().map(serde_json::Value::as_f64).collect()).collect();
                Budget::of_heads(&rows, None).unwrap()
            }
        };
        Policy {
            score: score_in(folder, &self.score, self.pool),
            scope: self.scope,
            keep_first: FirstTokens::Count(amount(&self.keep_first)),
            keep_recent: amount(&self.keep_recent),
            budget,
            schedule: Schedule::default(),
            select_from: self.select_from,
            layers: self.layers.as_ref().map(|layers| {
                let names =
                    layers.iter().map(|layer| layer.as_str().map_or_else(|| layer.to_string(), str::to_owned));
                names.collect::<Vec<_>>().join(",").parse().unwrap()
            }),
        }
    }
}

const TOLERANCE: f64 = 1e-4;

/// NLLs and survivors of a text read `chunk` tokens at a time.
fn read(
    model: &LanguageModel,
    tokens: &[u32],
    plan: &MemoryPlan<'_>,
    prompt: Option<usize>,
    chunk: usize,
) -> (Vec<f32>, Vec<Vec<Vec<u32>>>) {
    let mut memory = model.new_memory(plan);
    let mut nll = Vec::new();
    let (prompt, rest) = tokens.split_at(prompt.unwrap_or(0));
    for piece in prompt.chunks(chunk).chain(rest.chunks(chunk)) {
        let states = model.read(piece, &mut memory).unwrap();
        let start = memory.seen() - piece.len() + 1;
        if memory.seen() == prompt.len() {
            model.cut(&mut memory).unwrap();
        }
        let targets = &tokens[start..(start + piece.len()).min(tokens.len())];
        if !targets.is_empty() {
            nll.extend(model.nll(&states.narrow(0, 0, targets.len()).unwrap(), targets).unwrap());
        }
    }
    let survivors = memory.survivors();
    (nll, survivors.iter().map(|groups| groups.iter().map(|born| born.to_vec()).collect()).collect())
}

/// Every case of `golden`, for every chunk length. Returns the number of cases and the largest difference.
fn check(golden: &Path, checkpoint: &Path, chunks: &[usize]) -> (usize, f64) {
    check_model(&load(checkpoint), golden, chunks)
}

fn check_model(model: &LanguageModel, golden: &Path, chunks: &[usize]) -> (usize, f64) {
    let read_json = |name: &str| std::fs::read_to_string(golden.join(name)).unwrap();
    let tokens: Vec<u32> = serde_json::from_str(&read_json("tokens.json")).unwrap();
    let answers: Golden = serde_json::from_str(&read_json("golden.json")).unwrap();
    // Emulated kernels are slow; their own tests cut texts at random.
    let chunks = if std::env::var_os("TOVA_BENCH_TEST_DEVICE").is_some() { &[usize::MAX] } else { chunks };
    let mut worst = 0f64;
    for case in &answers.cases {
        let defined = case.defined.as_ref().map(|defined| defined.policy(golden));
        let policy = defined.or_else(|| preset_in(golden, &case.policy));
        assert!(policy.is_some() || case.policy == "full", "unknown policy {}", case.policy);
        let shown = policy.map_or_else(|| case.policy.clone(), |policy| format!("{} {policy}", case.policy));
        let policy = policy.map(|policy| Policy { schedule: case.schedule, ..policy });
        let policy = policy.map(|policy| policy.at(case.size.unwrap()).unwrap());
        let (options, text) = (case.options, tokens.len());
        let knows = policy.filter(|policy| policy.score.reads_future());
        let future = knows.map(|policy| model.record_attention(&tokens, policy.scope).unwrap());
        let future = future.as_deref();
        let plan = MemoryPlan { policy, options, text, future, ..MemoryPlan::unbounded() };
        for &chunk in chunks {
            let chunk = chunk.min(tokens.len());
            let name = format!(
                "{} {} {:?} {} {:?} in reads of {chunk}",
                golden.display(),
                shown,
                case.size,
                case.schedule,
                case.options.words()
            );
            let (nll, survivors) = read(model, &tokens, &plan, case.prompt, chunk);
            assert_eq!(nll.len(), case.nll.len(), "{name}");
            let differences = nll.iter().zip(&case.nll).map(|(got, want)| (f64::from(*got) - want).abs());
            let mut differences: Vec<(f64, usize)> = differences.zip(1..).collect();
            if case.options.format.is_rounded() {
                differences.sort_by(|a, b| a.0.total_cmp(&b.0));
                differences = vec![differences[differences.len() / 2]];
            }
            for (difference, t) in differences {
                let (got, want) = (nll[t - 1], case.nll[t - 1]);
                assert!(difference < TOLERANCE, "{name}: NLL of token {t} is {got}, not {want}");
                worst = worst.max(difference);
            }
            let all =
                || survivors.iter().map(|layer| vec![(0..tokens.len() as u32).collect(); layer.len()]).collect();
            let expected: Vec<Vec<Vec<u32>>> = case.survivors.clone().unwrap_or_else(all);
            assert_eq!(survivors.len(), expected.len(), "{name}: layers");
            for (layer, (got, want)) in survivors.iter().zip(&expected).enumerate() {
                // A layer without a policy has one group, whose entries every head holds.
                let got = if got.len() == 1 { vec![got[0].clone(); want.len()] } else { got.clone() };
                assert_eq!(&got, want, "{name}: survivors of layer {layer}");
            }
        }
    }
    (answers.cases.len(), worst)
}

#[test]
fn goldens() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for name in GOLDENS {
        let golden = folder.join(name);
        let (cases, worst) = check(&golden, &golden, &[1, 7, 64, usize::MAX]);
        assert!(cases >= 18, "{name} has only {cases} cases");
        eprintln!("{name}: {cases} cases, largest NLL difference {worst:.1e}");
    }
}

/// Other families than Llama, against transformers' own models with entries deleted one by one.
#[test]
fn families() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families");
    let mut golden: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    golden.sort();
    for golden in golden {
        let other = std::fs::read_to_string(golden.join("checkpoint")).ok();
        let checkpoint = other.map_or_else(|| golden.clone(), |name| folder.with_file_name(name.trim()));
        let (cases, worst) = check(&golden, &checkpoint, &[1, 7, usize::MAX]);
        // The same settings under the keys of transformers 4.
        if checkpoint.join("config.v4.json").exists() {
            check_model(&load_as(&checkpoint, "config.v4.json"), &golden, &[usize::MAX]);
        }
        assert!(cases >= 25, "{} has only {cases} cases", golden.display());
        eprintln!("{}: {cases} cases, largest NLL difference {worst:.1e}", golden.display());
    }
}

/// Caches in every format, against transformers in float64 whose keys and values go through plain definitions of the formats.
///
/// A number near the border of two levels may be rounded the other way in f32, which moves some of the tokens that follow: those of
/// transformers itself between float32 and float64, too. So the median of the differences is held to the tolerance.
#[test]
fn formats() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    // Layers of the last share caches.
    for (name, checkpoint, least) in [
        ("llama-64", "formats/llama-64", 50),
        ("qwen2-32", "formats/qwen2-32", 50),
        ("gemma3n", "families/gemma3n", 6),
    ] {
        let golden = folder.join("formats").join(name);
        let (cases, worst) = check(&golden, &folder.join(checkpoint), &[1, 7, usize::MAX]);
        assert!(cases >= least, "{name} has only {cases} cases");
        eprintln!("{name}: {cases} cases, largest median of NLL differences {worst:.1e}");
    }
}

/// transformers 5.24 in float64 with `clip_qkv: 0.8` in the golden's configuration, which changes every one of these numbers.
#[test]
fn queries_keys_and_values_are_limited_as_in_transformers() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families/olmoe");
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join(file), folder.path().join(file)).unwrap();
    }
    configure(folder.path(), serde_json::json!({"clip_qkv": 0.8}));
    let tokens = std::fs::read_to_string(golden.join("tokens.json")).unwrap();
    let tokens: Vec<u32> = serde_json::from_str(&tokens).unwrap();
    let model = load(folder.path());
    let states = model.read(&tokens[..tokens.len() - 1], &mut model.new_memory(&MemoryPlan::unbounded())).unwrap();
    let nll = model.nll(&states, &tokens[1..]).unwrap();
    let first = [
        4.790_376, 4.937_969, 5.683_872, 3.372_868, 5.015_708, 5.170_905, 3.775_197, 3.965_532, 5.250_916,
        6.243_54, 4.518_693, 4.266_886,
    ];
    let worst = nll.iter().zip(first).map(|(own, other): (&f32, f32)| (own - other).abs()).fold(0.0, f32::max);
    assert!(worst < 5e-5, "{worst:e}");
    let sum: f64 = nll.iter().map(|nll| f64::from(*nll)).sum();
    assert!((sum - 568.398_387_7).abs() < 1e-3, "{sum}");
}

/// Every preset and other formulas, by layer and by head, against the definition in `tests/golden/make/oracle.py`.
#[test]
fn policies() {
    check_policies("policies", 60);
}

/// What knows the rest of the text, and sizes that differ by layer, against the same definition.
#[test]
fn yardsticks() {
    check_policies("yardsticks", 20);
}

/// Cuts and bursts, against the same definition.
#[test]
fn schedules() {
    check_policies("schedules", 60);
}

/// Heads with pools and sizes of their own, against the same definition.
#[test]
fn budgets() {
    check_policies("budgets", 5);
}

/// Words and functions that see neighbours, blocks, keys, values, queries, tokens and a second reading, and the presets made of them,
/// against the same definition.
#[test]
fn scores() {
    check_policies("scores", 50);
}

/// Queries that select what they attend to, against the same definition.
#[test]
fn selection() {
    check_policies("selection", 18);
}

/// One decision for all layers, against the same definition.
#[test]
fn deciding() {
    check_policies("deciding", 16);
}

/// What NVIDIA/kvpress 0.5.5 keeps of a prompt, or while it decodes, and how likely the tokens after the prompt are then.
#[test]
fn kvpress() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for name in ["llama-mha", "mistral-gqa", "yi-gqa"] {
        let model = load(&goldens.join(name));
        let read_json = |path: &str| std::fs::read_to_string(goldens.join(path)).unwrap();
        let tokens: Vec<u32> = serde_json::from_str(&read_json(&format!("{name}/tokens.json"))).unwrap();
        let answers: PressGolden = serde_json::from_str(&read_json(&format!("kvpress/{name}.json"))).unwrap();
        assert!(answers.cases.len() >= 15, "{name} has only {} cases", answers.cases.len());
        let mut worst = 0f64;
        for case in &answers.cases {
            let PressCase { press, defined, schedule, prompt, size, .. } = case;
            let what = format!("{name}: {press}, {size} entries, schedule {schedule}");
            let policy = Policy { schedule: *schedule, ..defined.policy(&goldens) }.at(*size).unwrap();
            let plan = MemoryPlan { text: tokens.len(), ..MemoryPlan::bounded(policy) };
            let cut = schedule.cuts().then_some(*prompt);
            let (nll, survivors) = read(&model, &tokens, &plan, cut, usize::MAX);
            for (got, want) in survivors.iter().zip(&case.survivors) {
                // Where a layer decides as one, the file has what each of its heads holds.
                let got = if got.len() == 1 { vec![got[0].clone(); want.len()] } else { got.clone() };
                assert_eq!(&got, want, "{what}");
            }
            let after = &nll[prompt - 1..];
            assert_eq!(after.len(), case.nll.len(), "{what}");
            for (got, want) in after.iter().zip(&case.nll) {
                worst = worst.max((f64::from(*got) - want).abs());
                assert!((f64::from(*got) - want).abs() < TOLERANCE, "{what}: {got}, not {want}");
            }
        }
        eprintln!("{name}: {} cases of kvpress, largest NLL difference {worst:.1e}", answers.cases.len());
    }
}

#[derive(Deserialize)]
struct PressGolden {
    cases: Vec<PressCase>,
}

/// A press of kvpress, as a policy and its schedule.
#[derive(Deserialize)]
struct PressCase {
    press: String,
    #[serde(flatten)]
    defined: Defined,
    schedule: Schedule,
    prompt: usize,
    size: usize,
    /// Of the tokens after the prompt.
    nll: Vec<f64>,
    survivors: Vec<Vec<Vec<u32>>>,
}

/// The model with the texts of its tokens, and the request to repeat a prompt, that a golden's cases have.
fn with_texts(model: LanguageModel, golden: &Path) -> LanguageModel {
    #[derive(Deserialize)]
    struct Reread {
        first: Vec<u32>,
        others: Vec<u32>,
        suffix: Vec<u32>,
        chunk: usize,
    }
    let Ok(texts) = std::fs::read_to_string(golden.join("texts.json")) else { return model };
    // Some are equal, which a vocabulary's words are not: their numbers are left out when they are decoded.
    let texts: Vec<String> = serde_json::from_str(&texts).unwrap();
    let words = texts.iter().enumerate().map(|(id, text)| (format!("{text}#{id}"), id.into()));
    let words: serde_json::Map<String, serde_json::Value> = words.collect();
    let tokenizer = serde_json::json!({
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": words, "unk_token": texts[0].clone() + "#0"},
        "decoder": {"type": "Replace", "pattern": {"Regex": "#[0-9]+$"}, "content": ""},
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, tokenizer.to_string()).unwrap();
    let tokenizer = Tokenizer::read(file.path(), None, None).unwrap();
    let all: Vec<u32> = (0..texts.len() as u32).collect();
    assert!(tokenizer.texts(&all).unwrap().iter().map(|text| &**text).eq(&texts));
    let reread = std::fs::read_to_string(golden.join("reread.json")).unwrap();
    let Reread { first, others, suffix, chunk } = serde_json::from_str(&reread).unwrap();
    let request = RepeatRequest { first, others, between: suffix, part: chunk };
    model.with_tokenizer(Some(Arc::new(tokenizer))).with_repeat_request(request)
}

fn check_policies(name: &str, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let mut golden: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    golden.sort();
    assert!(golden.len() >= 3);
    for golden in golden {
        let checkpoint = std::fs::read_to_string(golden.join("checkpoint")).unwrap();
        let model = load(&folder.with_file_name(checkpoint.trim()));
        let model = with_texts(model, &golden);
        let (cases, worst) = check_model(&model, &golden, &[1, 7, usize::MAX]);
        assert!(cases >= least, "{} has only {cases} cases", golden.display());
        eprintln!("{}: {cases} cases, largest NLL difference {worst:.1e}", golden.display());
    }
}

/// 4,096 tokens with a small cache: gaps of thousands of tokens, in one read and one token at a time.
#[test]
fn a_long_text() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let golden = folder.join("long-text");
    let checkpoint = std::fs::read_to_string(golden.join("checkpoint")).unwrap();
    let (cases, worst) = check(&golden, &folder.join(checkpoint.trim()), &[1, 1000, usize::MAX]);
    assert!(cases >= 5, "only {cases} cases");
    eprintln!("long-text: {cases} cases, largest NLL difference {worst:.1e}");
}

/// A checkpoint whose config divides its positions by 4, and the same one without that line, scaled by the caller.
#[test]
fn scaled_positions() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/variants/linear-rope-mqa-bf16");
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join(file), folder.path().join(file)).unwrap();
    }
    configure(folder.path(), serde_json::json!({"rope_scaling": null}));
    let find = |path: &Path| {
        let source: ModelSource = path.display().to_string().parse().unwrap();
        ModelFiles::find(&source, None, &HubSettings::with_cache_dir("nowhere"), &()).unwrap()
    };
    let rope_override = RopeOverride { kind: RopeOverrideKind::Linear, factor: Real(4.0) };
    let plain = find(folder.path()).revision().unwrap();
    let files = find(folder.path()).with_rope_override(rope_override).unwrap();
    assert_ne!(files.revision().unwrap(), plain);
    let (cases, _) = check_model(&files.load(WeightType::Auto, &Device::CPU).unwrap(), &golden, &[64]);
    assert!(cases >= 18, "only {cases} cases");
    assert!(find(&golden).with_rope_override(rope_override).is_err(), "it has a scaling of its own");
}

#[test]
fn shared_goldens() {
    let Some(data) = material::data("shared_goldens") else { return };
    // A trained checkpoint; those with random weights are committed.
    let (golden, checkpoint) =
        (data.join("golden/tinystories-656k"), data.join("data/checkpoints/TinyStories-656K"));
    let (cases, worst) = check(&golden, &checkpoint, &[1, 7, 64, usize::MAX]);
    eprintln!("tinystories-656k: {cases} cases, largest NLL difference {worst:.1e}");
}
