//! Tokens per second of one text under each cache rule, and of the eviction scan alone: `cargo bench`.

use std::borrow::Cow;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tova_bench::eviction::formula::{MeanRotation, Pool};
use tova_bench::eviction::{
    Amount, Budget, CacheEntries, FirstTokens, Heads, NewEntries, Normaliser, Policy, Schedule, Scope, Score,
    Vectors, presets,
};
use tova_bench::lm::{Device, LanguageModel, MemoryPlan, ModelShape, TextThreads, WeightType, tiny_shape};

const TOKENS: usize = 2048;

/// The shape of the comparison in the README: hidden 256, 6 layers, 8 heads, vocabulary 4096.
fn model() -> LanguageModel {
    let shape = ModelShape {
        hidden: 256,
        intermediate: 688,
        layers: 6,
        heads: Heads { heads: 8, kv_heads: 8 },
        head_dim: 32,
        vocab: 4096,
        ..tiny_shape()
    };
    LanguageModel::random(shape, 1.0, 1, WeightType::Auto, &Device::CPU).expect("a random model needs nothing")
}

fn read(criterion: &mut Criterion) {
    let model = model();
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| i * 7919 % 4096).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = TextThreads::new(cores).expect("threads can be started");
    let mut group = criterion.benchmark_group("read 2048 tokens");
    group.throughput(Throughput::Elements(TOKENS as u64)).sample_size(10);
    for name in ["full", "window+4", "tova", "h2o", "tova-head"] {
        let plan = match presets::by_name(name) {
            Some(policy) => MemoryPlan::bounded(policy.at(512).expect("512 entries are enough")),
            None => MemoryPlan::unbounded(),
        };
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut memory = model.new_memory(&plan);
                let states = threads.install(|| model.read(&tokens, &mut memory));
                black_box(states.expect("the tokens are in the vocabulary"));
            });
        });
    }
    group.finish();
}

/// Of formulas that look at neither keys nor values.
struct NoVectors;

impl Vectors for NoVectors {
    fn keys(&self, _: usize, _: &[f32]) -> Cow<'_, [f32]> {
        Cow::default()
    }

    fn values(&self, _: usize, _: usize) -> Cow<'_, [f32]> {
        Cow::default()
    }

    fn dim(&self) -> usize {
        64
    }

    fn query(&self, _: usize, _: usize) -> &[f32] {
        &[]
    }

    fn scale(&self, _: usize) -> f32 {
        1.0
    }

    fn angles(&self, _: &[f64]) -> [Vec<f32>; 2] {
        Default::default()
    }

    fn mean_rotation(&self, _: usize, _: &[f32], _: usize, _: usize) -> MeanRotation {
        MeanRotation { cos: Vec::new(), sin: Vec::new() }
    }

    fn logits(&self, _: usize, _: &[f32], _: usize, _: (&mut [f32], usize)) {}

    fn page_bounds(&self, _: usize, _: usize, _: usize, _: &mut [f32]) {}

    fn output_shift(&self, _: usize, _: &[f32], _: f32, _: &mut [f32]) {}

    fn key_similarity(&self, _: usize, _: &[f32], _: &mut [f32]) {}
}

fn scan(criterion: &mut Criterion) {
    let heads = Heads { heads: 8, kv_heads: 8 };
    let mut group = criterion.benchmark_group("scan of 128 rows, 8 heads, 512 entries");
    group.throughput(Throughput::Elements(128)).sample_size(30);
    let formula = |score: &str| Policy {
        score: Score::new(score, Pool::Mean).expect("a formula"),
        scope: Scope::Layer,
        keep_first: FirstTokens::default(),
        keep_recent: Amount::Tokens(0),
        budget: Budget::Uniform,
        schedule: Schedule::default(),
        select_from: None,
        layers: None,
    };
    let written = [
        "ema(attention, 0.95)",
        "0.7 * attention + 0.3 * ema(attention, 0.9)",
        "exp(attention) / (1 + attention)",
    ];
    let named = ["window", "tova", "h2o"].map(|name| (name, presets::by_name(name).expect("a preset")));
    for (name, policy) in named.into_iter().chain(written.map(|score| (score, formula(score)))) {
        let policy = policy.at(512).expect("512 entries are enough");
        let vectors = vec![0.0; 8 * 128 * 64];
        let new = NewEntries { keys: &vectors, values: &vectors, dim: 64, ..NewEntries::default() };
        group.bench_function(name, |bencher| {
            let mut entries = CacheEntries::bounded(heads, policy, 0);
            let mut normaliser = Normaliser { max: vec![0.0; 8 * 128], sum: vec![0.0; 8 * 128] };
            let mut logits = Vec::new();
            bencher.iter(|| {
                let mut block = entries.begin(128, &new);
                logits.resize(8 * 128 * block.stride(), 0.0);
                for (i, x) in logits.iter_mut().enumerate() {
                    *x = (i % 251) as f32 * 0.03;
                }
                for row in 0..128 {
                    block.step(row, &mut logits, &mut normaliser, &NoVectors, None);
                }
                black_box(block.finish());
            });
        });
    }
    group.finish();
}

criterion_group!(benches, read, scan);
criterion_main!(benches);
