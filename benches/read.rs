//! Tokens per second of one text under each cache rule, and of the eviction scan alone: `cargo bench`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tova_bench::eviction::{CacheEntries, Heads, Normaliser, presets};
use tova_bench::lm::{Device, LanguageModel, MemoryPlan, ModelShape, WeightType, tiny_shape};

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
    LanguageModel::random(shape, 1.0, 1, WeightType::Auto, &Device::Cpu).expect("a random model needs nothing")
}

fn read(criterion: &mut Criterion) {
    let model = model();
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| i * 7919 % 4096).collect();
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
                black_box(model.read(&tokens, &mut memory).expect("the tokens are in the vocabulary"));
            });
        });
    }
    group.finish();
}

fn scan(criterion: &mut Criterion) {
    let heads = Heads { heads: 8, kv_heads: 8 };
    let mut group = criterion.benchmark_group("scan of 128 rows, 8 heads, 512 entries");
    group.throughput(Throughput::Elements(128)).sample_size(30);
    for name in ["window", "tova", "h2o"] {
        let policy = presets::by_name(name).expect("a preset").at(512).expect("512 entries are enough");
        group.bench_function(name, |bencher| {
            let mut entries = CacheEntries::bounded(heads, policy, 0);
            let mut normaliser = Normaliser { max: vec![0.0; 8 * 128], sum: vec![0.0; 8 * 128] };
            let mut logits = Vec::new();
            bencher.iter(|| {
                let mut block = entries.begin(128, |_, _| 1.0);
                logits.resize(8 * 128 * block.stride(), 0.0);
                for (i, x) in logits.iter_mut().enumerate() {
                    *x = (i % 251) as f32 * 0.03;
                }
                for row in 0..128 {
                    block.step(row, &mut logits, &mut normaliser, None);
                }
                black_box(block.finish());
            });
        });
    }
    group.finish();
}

criterion_group!(benches, read, scan);
criterion_main!(benches);
