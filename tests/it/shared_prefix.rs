//! Caches that continue from a shared reading: forks of the full cache, copies for several questions, and prompts that are
//! cut once. Each equals a cache of the same policy, size and seed that reads its tokens from the start, alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::checkpoint;
use crate::support::program::run;
use crate::support::rows::measured;
use serde_json::Value;
use tova_bench::eviction::formula::Pool;
use tova_bench::eviction::{
    Amount, Budget, CacheOptions, FirstTokens, LocalLayers, Policy, Schedule, Scope, Score, SizedPolicy, presets,
};
use tova_bench::ledger::Row;
use tova_bench::lm::{BLOCK, Device, LanguageModel, Memory, MemoryPlan, Tensor, WeightType, tiny_shape};

const DOCUMENT: usize = 400;
const QUESTION: usize = 30;
const STEPS: usize = 5;
const SEEDS: [u64; 3] = [0, 1, 7];

fn model() -> LanguageModel {
    LanguageModel::random(tiny_shape(), 4.0, 5, WeightType::Auto, &Device::CPU).unwrap()
}

/// A document, and three questions with the tokens that answer them.
fn texts() -> (Vec<u32>, [Vec<u32>; 3]) {
    let mut random = fastrand::Rng::with_seed(3);
    let mut tokens = |count| (0..count).map(|_| random.u32(1..257)).collect::<Vec<_>>();
    (tokens(DOCUMENT), [(); 3].map(|()| tokens(QUESTION + STEPS)))
}

fn policies() -> Vec<(String, Policy)> {
    let names = ["window", "window+4", "tova", "tova-head", "tova+1", "h2o", "h2o+2", "h2o-layer", "random"];
    let mut policies: Vec<_> = names.map(|name| (name.to_string(), presets::by_name(name).unwrap())).into();
    for score in ["random", "accumulated_attention", "last_attention"] {
        let score = Score::new(score, Pool::Mean).unwrap();
        let keep_first = FirstTokens::Count(Amount::Percent(3));
        let (keep_recent, budget) = (Amount::Tokens(7), Budget::Uniform);
        let schedule = Schedule::default();
        let (select_from, layers) = (None, None);
        let policy =
            Policy { score, scope: Scope::Head, keep_first, keep_recent, budget, schedule, select_from, layers };
        policies.push((policy.to_string(), policy));
    }
    for (name, shares) in [("tova", [5.0, 3.0]), ("h2o", [3.0, 4.0]), ("random", [1.0, 2.0])] {
        let policy = Policy { budget: Budget::of_layers(&shares).unwrap(), ..presets::by_name(name).unwrap() };
        policies.push((policy.to_string(), policy));
    }
    policies
}

/// Tokens that the model reads before anything is evicted.
fn room(policy: SizedPolicy) -> usize {
    policy.smallest(&vec![true; tiny_shape().layers])
}

/// The seeds under which a policy is tried: one if it draws nothing.
fn seeds(policy: Policy) -> &'static [u64] {
    if policy.score.draws() { &SEEDS } else { &SEEDS[..1] }
}

fn bits(states: &Tensor) -> Vec<u32> {
    let values: Vec<f32> = states.flatten_all().unwrap().to_vec1().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

/// Everything a memory shows, all bits.
#[derive(Debug, PartialEq)]
struct Shown {
    states: Vec<u32>,
    /// (layers)(groups)(entries)
    survivors: Vec<Vec<Vec<u32>>>,
    /// Of the tokens after the cache is full. Before that it is 0, which is measured as 0 or as what rounding leaves of it.
    lost: Option<Vec<u32>>,
    seen: usize,
    bytes: u64,
}

fn shown(memory: &Memory, size: usize, states: &Tensor) -> Shown {
    let lost = |lost: &[f32]| {
        let (before, after) = lost.split_at(size.min(lost.len()));
        assert!(before.iter().all(|lost| (0.0..1e-6).contains(lost)), "{before:?}");
        after.iter().map(|lost| lost.to_bits()).collect()
    };
    let groups = |layer: &Vec<&[u32]>| layer.iter().map(|group| group.to_vec()).collect();
    Shown {
        states: bits(states),
        survivors: memory.survivors().iter().map(groups).collect(),
        lost: memory.lost().map(lost),
        seen: memory.seen(),
        bytes: memory.bytes(),
    }
}

/// Checks that two memories show the same, all bits.
#[track_caller]
fn assert_equal(got: &Shown, expected: &Shown, what: &str) {
    assert_eq!(got.survivors, expected.survivors, "{what}: survivors");
    assert_eq!((got.seen, got.bytes), (expected.seen, expected.bytes), "{what}: tokens and bytes");
    assert_eq!(got.lost, expected.lost, "{what}: lost attention");
    let differ: Vec<usize> =
        (0..got.states.len()).filter(|i| got.states.get(*i) != expected.states.get(*i)).collect();
    assert_eq!(got.states.len(), expected.states.len(), "{what}");
    let differs = |i: &usize| (f32::from_bits(got.states[*i]) - f32::from_bits(expected.states[*i])).abs();
    let worst = differ.iter().map(differs).fold(0.0, f32::max);
    assert!(differ.is_empty(), "{what}: {} states differ, from {:?}, by {worst:e}", differ.len(), differ.first());
}

/// Reads a question and decodes its answer.
fn answer(model: &LanguageModel, memory: &mut Memory, size: usize, question: &[u32], cut: bool) -> Vec<Shown> {
    let states = model.read(&question[..QUESTION], memory).unwrap();
    if cut {
        model.cut(memory).unwrap();
    }
    let mut all = vec![shown(memory, size, &states)];
    memory.shrink_to_fit(STEPS);
    for token in &question[QUESTION..] {
        let states = model.step(&[*token], &mut [memory]).unwrap();
        all.push(shown(memory, size, &states));
    }
    all
}

/// The full cache's reading of the document, from which caches branch off at every block.
fn full(model: &LanguageModel, document: &[u32]) -> (Memory, Tensor) {
    let fork_points: Vec<usize> = (0..=DOCUMENT).step_by(BLOCK).collect();
    let fork_scopes = &[Scope::Head, Scope::Layer];
    let plan = MemoryPlan { fork_scopes, fork_points: &fork_points, ..MemoryPlan::unbounded() };
    let mut memory = model.new_memory(&plan);
    let states = model.read(document, &mut memory).unwrap();
    (memory, states)
}

fn check_forks(model: &LanguageModel, name: &str, policy: SizedPolicy, seed: u64) -> Vec<Shown> {
    let (document, questions) = texts();
    let (full, full_states) = full(model, &document);
    let mut last = Vec::new();
    for measure_loss in [false, true] {
        let fresh = || model.new_memory(&MemoryPlan { seed, measure_loss, ..MemoryPlan::bounded(policy) });
        let mut alone = fresh();
        let states = model.read(&document, &mut alone).unwrap();
        let alone = shown(&alone, room(policy), &states);
        let answers: Vec<Vec<Shown>> = questions
            .iter()
            .map(|question| {
                let mut memory = fresh();
                model.read(&document, &mut memory).unwrap();
                answer(model, &mut memory, room(policy), question, false)
            })
            .collect();
        for start in (0..=room(policy).min(DOCUMENT)).step_by(BLOCK) {
            let what = format!("{name}, {} entries, seed {seed}, from {start}", policy.size);
            let mut fork =
                full.fork(start, &MemoryPlan { seed, measure_loss, ..MemoryPlan::bounded(policy) }).unwrap();
            let rest = model.read(&document[start..], &mut fork).unwrap();
            let begun = full_states.narrow(0, 0, start).unwrap();
            let states = Tensor::cat(&[&begun, &rest], 0).unwrap();
            assert_equal(&shown(&fork, room(policy), &states), &alone, &what);
            // Of several copies none changes the others, nor what they are copied from.
            for (question, expected) in questions.iter().zip(&answers) {
                assert_eq!(&answer(model, &mut fork.clone(), room(policy), question, false), expected, "{what}");
            }
            assert_equal(&shown(&fork, room(policy), &states), &alone, &what);
        }
        last = answers.into_iter().flatten().collect();
    }
    last
}

#[test]
fn forks_and_their_copies_equal_caches_read_from_the_start() {
    let model = model();
    for (name, policy) in policies() {
        for size in [1, 100, 128, 130, 256, 383, 384, 399] {
            if policy.check(size, &vec![true; tiny_shape().layers], tiny_shape().heads.kv_heads).is_err() {
                continue;
            }
            let sized = policy.at(size).unwrap();
            let by_seed: Vec<_> =
                seeds(policy).iter().map(|seed| check_forks(&model, &name, sized, *seed)).collect();
            assert!(all_differ(&by_seed), "{name}, {size} entries: two seeds are equal");
        }
    }
}

/// Layers with a window: a fork has what the window still shows, although the full cache has read on. The products of the two
/// have other columns, so the last bits differ.
#[test]
fn forks_of_a_model_with_windows_equal_caches_read_from_the_start() {
    check_forks_of_family("families/gemma3", &[LocalLayers::Bounded, LocalLayers::Exempt]);
}

/// Windows that do not slide.
#[test]
fn forks_of_a_model_with_pieces_equal_caches_read_from_the_start() {
    check_forks_of_family("families/llama4", &[LocalLayers::Bounded, LocalLayers::Exempt]);
}

/// Layers that share caches, layers with a state of fixed size, and one latent vector for all heads.
#[test]
fn forks_of_models_with_other_caches_equal_caches_read_from_the_start() {
    for name in ["gemma4", "gemma3n", "qwen3.5", "qwen3-next", "deepseek-v3"] {
        check_forks_of_family(&format!("families/{name}"), &[LocalLayers::Bounded]);
    }
}

fn check_forks_of_family(family: &str, settings: &[LocalLayers]) {
    let model = checkpoint::load(&checkpoint::golden(family));
    let mut random = fastrand::Rng::with_seed(8);
    let text: Vec<u32> = (0..300).map(|_| random.u32(3..64)).collect();
    let points = [10, 100];
    let plan = MemoryPlan {
        fork_scopes: &[Scope::Head, Scope::Layer],
        fork_points: &points,
        state_points: &points,
        forks: true,
        ..MemoryPlan::unbounded()
    };
    let mut full = model.new_memory(&plan);
    // Sums are saved where a read ends.
    let mut states = Vec::new();
    for range in [0..10, 10..100, 100..300] {
        states.push(model.read(&text[range], &mut full).unwrap());
    }
    let states = Tensor::cat(&states, 0).unwrap();
    for &local_layers in settings {
        for (name, policy) in ["tova", "tova-head", "h2o", "window+4"].map(|name| (name, presets::by_name(name))) {
            for (start, size) in [(10, 12), (10, 40), (100, 110)] {
                let policy = policy.unwrap().at(size).unwrap();
                let options = CacheOptions { local_layers, ..CacheOptions::default() };
                let plan = MemoryPlan { options, ..MemoryPlan::bounded(policy) };
                let mut fresh = model.new_memory(&plan);
                let expected = model.read(&text, &mut fresh).unwrap();
                let mut fork = full.fork(start, &plan).unwrap();
                let rest = model.read(&text[start..], &mut fork).unwrap();
                let got = Tensor::cat(&[&states.narrow(0, 0, start).unwrap(), &rest], 0).unwrap();
                let what = format!("{family}, {name}, {size} entries, {local_layers:?}, from {start}");
                assert_eq!(fork.survivors(), fresh.survivors(), "{what}");
                let difference = (got - expected).unwrap().abs().unwrap().max_all().unwrap();
                assert!(difference.to_scalar::<f32>().unwrap() < 1e-4, "{what}: {difference}");
            }
        }
    }
}

#[test]
fn what_a_fork_cannot_have_is_refused() {
    let model = model();
    let (document, _) = texts();
    let (full, _) = full(&model, &document);
    let sized = |name: &str| presets::by_name(name).unwrap().at(256).unwrap();
    assert!(full.fork(257, &MemoryPlan::bounded(sized("tova"))).is_none(), "more tokens than entries");
    assert!(full.fork(200, &MemoryPlan::bounded(sized("tova"))).is_some());
    assert!(full.fork(200, &MemoryPlan::bounded(sized("h2o"))).is_none(), "no sums were saved there");
    assert!(full.fork(128, &MemoryPlan::bounded(sized("knorm"))).is_none(), "no key norms were computed");
    let fork = full.fork(128, &MemoryPlan::bounded(sized("tova"))).unwrap();
    assert!(fork.fork(128, &MemoryPlan::bounded(sized("tova"))).is_none(), "a bounded cache is not branched off");
}

/// Prompts that are cut before or after the question, read alone, from a copy, and with the full cache. Returns what the answers
/// show.
fn check_cuts(model: &LanguageModel, name: &str, policy: SizedPolicy, seed: u64) -> Vec<Shown> {
    let (document, questions) = texts();
    let plan = MemoryPlan { seed, expect: DOCUMENT, ..MemoryPlan::bounded(policy) };
    let cuts = [(policy, CacheOptions::default(), seed)];
    let cuts = if policy.score.compares_norms() { &cuts[..0] } else { &cuts };
    let mut full = model.new_memory(&MemoryPlan { cuts, forks: true, ..MemoryPlan::unbounded() });
    model.read(&document, &mut full).unwrap();
    let scores = full.take_cuts();
    let shared = |ends| model.fork_for_cut(&full, (&scores, ends), DOCUMENT, &plan).unwrap();
    let mut common = model.new_memory(&plan);
    // The copies are made within the document, and each reads the rest of it.
    model.read(&document[..250], &mut common).unwrap();
    let mut all = Vec::new();
    for before_question in [true, false] {
        for question in &questions {
            let answers =
                [Some(common.clone()), Some(model.new_memory(&plan)), shared(before_question)].map(|memory| {
                    let mut memory = memory?;
                    if memory.seen() < DOCUMENT {
                        model.read(&document[memory.seen()..], &mut memory).unwrap();
                    }
                    if before_question {
                        model.cut(&mut memory).unwrap();
                    }
                    Some(answer(model, &mut memory, room(policy), question, !before_question))
                });
            let [Some(copied), Some(alone), shared] = answers else { unreachable!() };
            assert_eq!(copied, alone, "{name}, {} entries, seed {seed}, {before_question}", policy.size);
            // Key norms are compared in f64, which the full cache does not compute.
            assert_eq!(shared.is_some(), !policy.score.compares_norms(), "{name}");
            if let Some(shared) = shared {
                assert_eq!(
                    shared, alone,
                    "{name}, shared, {} entries, seed {seed}, {before_question}",
                    policy.size
                );
            }
            all.extend(alone);
        }
    }
    all
}

fn all_differ<T: PartialEq>(items: &[T]) -> bool {
    items.iter().enumerate().all(|(number, item)| !items[..number].contains(item))
}

#[test]
fn prompts_cut_once_equal_prompts_read_alone() {
    let model = model();
    let knorm = ["knorm", "knorm-layer"].map(|name| (name.to_string(), presets::by_name(name).unwrap()));
    for (name, policy) in policies().into_iter().chain(knorm) {
        for size in [64, 300, 500] {
            let cut = Policy { schedule: Schedule::CutThenEvery(1), ..policy };
            let sized = cut.at(size).unwrap();
            let by_seed: Vec<_> =
                seeds(policy).iter().map(|seed| check_cuts(&model, &name, sized, *seed)).collect();
            // 435 tokens fit into 500 entries.
            assert!(size == 500 || all_differ(&by_seed), "{name}, {size} entries: two seeds are equal");
        }
    }
}

// --- the seed of a sweep ---

const TASKS: [&str; 6] = [
    "perplexity: {dataset: embedded, length: 1300, books: 1, chunks_per_book: 1, compare_to_full: true}",
    "retention: {dataset: embedded, length: 1200, books: 1, chunks_per_book: 1}",
    "squality: {dataset: embedded, documents: 1, questions: 2, length: 1300, write: {max_new_tokens: 30}}",
    "qasper: {dataset: embedded, documents: 1, questions: 4, length: 1300, write: {max_new_tokens: 30}}",
    "needle: {dataset: embedded, lengths: [1300], depths: [50], texts: 2, write: {max_new_tokens: 30}}",
    "story: {request: embedded, stories: 1, length: 1300, write: {max_new_tokens: 1150, temperature: 0}}",
];

fn sweep(folder: &Path, seed: u64, results: &str) -> Vec<Row> {
    let tasks: String = TASKS.iter().map(|task| format!("  - {task}\n")).collect();
    let text = format!(
        "models: [pocket]\npolicies: [full, tova, random, random-head]\n\
         define: {{random-head: {{score: random, scope: head, keep_first: 4}}}}\n\
         cache_sizes: [64, 128, 1024]\nseed: {seed}\ntasks:\n{tasks}"
    );
    fs::write(folder.join("sweep.yaml"), text).unwrap();
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", results]).with_code(0);
    measured(&folder.join(results))
}

/// The rows of each cell, without the seed that they name.
type Cells = BTreeMap<(String, u32, String, Option<u32>), Vec<Row>>;

fn by_cell(rows: Vec<Row>) -> Cells {
    let mut cells = Cells::new();
    for row in rows {
        let key = (row.task.to_string(), row.length, row.policy.to_string(), row.cache_size);
        let row = Row { seed: 0, cell: Default::default(), ..row };
        cells.entry(key).or_default().push(row);
    }
    for rows in cells.values_mut() {
        rows.sort_by_key(|row| (row.sample.to_string(), row.metric.to_string(), row.slice.clone()));
    }
    cells
}

#[test]
fn the_seed_changes_random_at_every_size_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [zero, seven] = [0, 7].map(|seed| by_cell(sweep(folder, seed, &format!("seed{seed}"))));
    assert_eq!(zero.len(), 6 * (1 + 3 * 3), "{:?}", zero.keys());
    for (cell, rows) in &zero {
        assert_eq!(*rows != seven[cell], cell.2.starts_with("random"), "{cell:?}");
    }
}

/// The numbers of a sweep's perplexity are those of a cache that reads the text alone.
#[test]
fn a_sweep_draws_as_score_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    crate::support::sweep::write_texts(folder, 1, 270);
    for seed in SEEDS {
        let text = format!(
            "models: [random-tiny]\npolicies: [full, random, random+4@slot, tova, h2o]\ncache_sizes: [64, 128, 1024]\n\
             seed: {seed}\ntasks: [{{perplexity: {{dataset: ./texts, tail: keep}}}}]\n"
        );
        fs::write(folder.join("sweep.yaml"), text).unwrap();
        let results = format!("seed{seed}");
        run(folder, &["run", "sweep.yaml", "--no-report", "--results", &results]).with_code(0);
        let rows = measured(&folder.join(&results));
        for row in rows.iter().filter(|row| row.metric == "nll" && row.slice.is_none()) {
            let (size, seed) = (row.cache_size.map(|size| size.to_string()), seed.to_string());
            let mut arguments =
                vec!["score", "--model", "random-tiny", "--text", "texts/book-0.txt", "--seed", &seed];
            arguments.extend(["--policy", &row.policy, "--positions", &row.positions]);
            arguments.extend(size.iter().flat_map(|size| ["--cache-size", size.as_str()]));
            let score: Value = serde_json::from_str(&run(folder, &arguments).with_code(0).stdout).unwrap();
            let nll: Vec<f32> = serde_json::from_value(score["nll"].clone()).unwrap();
            assert!(nll.len() > 1100 && nll.len() as f64 == row.weight, "{}", nll.len());
            let sum = nll.iter().fold(0.0, |sum, nll| sum + f64::from(*nll));
            assert_eq!(sum.to_bits(), row.value.to_bits(), "{arguments:?}: {sum} and {}", row.value);
        }
    }
}
