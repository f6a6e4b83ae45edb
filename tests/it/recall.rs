//! Recall against an obvious definition: a random model, one token at a time, the largest logit by a plain loop.

use std::collections::BTreeMap;

use tova_bench::eviction::{CacheOptions, CacheRule, CacheSpec, presets};
use tova_bench::lm::{Device, LanguageModel, Memory, MemoryPlan, TextThreads, WeightType, tiny_shape};
use tova_bench::metric::Slice;
use tova_bench::task::{CacheConfig, FullCachePrefix, LocatedRecall, SampleResult, TextSample, measure};

const TOKENS: usize = 400;

fn model() -> LanguageModel {
    LanguageModel::random(tiny_shape(), 1.0, 5, WeightType::Auto, &Device::CPU).unwrap()
}

/// The most likely next token, the first of equals.
fn most_likely(model: &LanguageModel, token: u32, memory: &mut Memory) -> u32 {
    let state = model.read(&[token], memory).unwrap();
    let logits = &model.logits(&state).unwrap()[0];
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = i;
        }
    }
    best as u32
}

/// A text of which the model with the full cache predicts half, with recalls everywhere.
fn sample(model: &LanguageModel) -> TextSample {
    let mut random = fastrand::Rng::with_seed(3);
    let mut memory = model.new_memory(&MemoryPlan::unbounded());
    let mut tokens = vec![0];
    while tokens.len() < TOKENS {
        let expected = most_likely(model, tokens[tokens.len() - 1], &mut memory);
        // Predicted tokens come in runs, so that answers of two and three tokens can be found too.
        tokens.push(if tokens.len() % 16 < 9 { expected } else { random.u32(1..257) });
    }
    let recall = |at: usize| LocatedRecall {
        kind: if at.is_multiple_of(2) { "home" } else { "trade" },
        told: at * 37 % (at - 3),
        answer: at..at + 1 + at % 3,
        choices: 2 + (at % 5) as u32,
    };
    let recalls = (20..TOKENS - 4).step_by(3).map(recall).collect();
    let (name, cluster) = ("sample".into(), "book".into());
    TextSample { name, cluster, tokens, bos: Some(0), scored: 1..TOKENS, recalls, ..TextSample::default() }
}

/// Seeds `random`. Not the seed of a cache that several cells branch off.
const SEED: u64 = 7;

/// From group to found, measured and chance.
type Table = BTreeMap<String, [f64; 3]>;

fn slowly(model: &LanguageModel, sample: &TextSample, rule: CacheRule) -> Table {
    let plan = match rule {
        CacheRule::Evict { policy, size } => {
            MemoryPlan { seed: SEED, ..MemoryPlan::bounded(policy.at(size).unwrap()) }
        }
        _ => MemoryPlan::unbounded(),
    };
    let mut memory = model.new_memory(&plan);
    let mut most_likelys = vec![u32::MAX];
    let mut in_piece = 0;
    for &token in &sample.tokens {
        if let CacheRule::Truncate { size } = rule
            && in_piece == size
        {
            // The paper's baseline starts each piece with BOS, which predicts the next token.
            memory = model.new_memory(&plan);
            most_likelys.pop();
            most_likelys.push(most_likely(model, 0, &mut memory));
            in_piece = 1;
        }
        most_likelys.push(most_likely(model, token, &mut memory));
        in_piece += 1;
    }
    let mut table = Table::new();
    for LocatedRecall { kind, told, answer, choices } in &sample.recalls {
        let found = answer.clone().all(|token| most_likelys[token] == sample.tokens[token]);
        let distance = answer.start - told;
        let octave = (0..).map(|power| 1 << power).find(|first| distance < 2 * first).unwrap();
        for group in [String::new(), format!("kind:{kind}"), format!("distance:{octave}-{}", 2 * octave - 1)] {
            let sums = table.entry(group).or_default();
            sums[0] += f64::from(u8::from(found));
            sums[1] += 1.0;
            sums[2] += 1.0 / f64::from(*choices);
        }
    }
    table
}

fn read(model: &LanguageModel, sample: &TextSample, configs: &[CacheConfig]) -> Vec<SampleResult> {
    let prefix = FullCachePrefix::read(model, &sample.tokens, sample.prompt, configs).unwrap();
    configs.iter().map(|config| measure(model, sample, None, config, prefix.as_ref()).unwrap()).collect()
}

fn table(measured: &SampleResult) -> Table {
    let mut table = Table::new();
    for sum in measured.sums.iter().filter(|sum| sum.metric.starts_with("recall")) {
        let sums = table.entry(Slice::text(sum.slice.as_ref())).or_default();
        sums[if sum.metric == "recall" { 0 } else { 2 }] = sum.value;
        sums[1] = sum.weight;
    }
    table
}

fn configs() -> Vec<CacheConfig> {
    let names =
        ["full", "truncate", "window", "window+4", "tova", "tova-head", "h2o", "h2o-layer", "knorm", "random"];
    let rules = names.iter().flat_map(|name| {
        [9, 130, 390].map(|size| match presets::by_name(name) {
            Some(policy) => CacheRule::Evict { policy, size },
            None if *name == "full" => CacheRule::Unbounded,
            None => CacheRule::Truncate { size },
        })
    });
    rules
        .map(|rule| CacheConfig {
            cache: CacheSpec { rule, seed: SEED, ..CacheSpec::default() },
            query_aware: true,
            bounded: tiny_shape().bounded_layers(CacheOptions::default()),
            kv_heads: tiny_shape().heads.kv_heads,
            compare: false,
            log: false,
        })
        .collect()
}

#[test]
fn every_policy_finds_the_same_as_token_by_token() {
    let model = model();
    let sample = sample(&model);
    let configs = configs();
    let mut shares = Vec::new();
    for (config, measured) in configs.iter().zip(read(&model, &sample, &configs)) {
        let expected = slowly(&model, &sample, config.cache.rule);
        let found = table(&measured);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (group, [hits, weight, chance]) in expected {
            let rule = config.cache.rule;
            assert_eq!(found[&group][..2], [hits, weight], "{rule:?} {group}");
            assert!((found[&group][2] - chance).abs() < 1e-9, "{rule:?} {group}");
        }
        shares.push(found[""][0] / found[""][1]);
    }
    // The text has answers to find and to miss.
    let (low, high) =
        shares.iter().fold((1.0f64, 0.0f64), |(low, high), share| (low.min(*share), high.max(*share)));
    assert!(low < 0.3 && (0.3..0.8).contains(&high), "{shares:?}");
}

#[test]
fn results_do_not_depend_on_other_cells_threads_or_comparisons() {
    let model = model();
    let sample = sample(&model);
    let together = read(&model, &sample, &configs());
    for (config, expected) in configs().into_iter().zip(&together) {
        let compared = CacheConfig { compare: true, ..config };
        for (configs, threads) in [([config], 1), ([config], 3), ([compared], 2)] {
            let pool = TextThreads::new(threads).unwrap();
            let alone = pool.install(|| read(&model, &sample, &configs)).remove(0);
            let common = |measured: &SampleResult| {
                let sums = measured.sums.iter().filter(|sum| !sum.metric.contains("full"));
                let sums = sums.filter(|sum| !["top1_agreement", "evicted_mass"].contains(&sum.metric));
                sums.map(|sum| (sum.metric, sum.slice.clone(), sum.value.to_bits())).collect::<Vec<_>>()
            };
            assert_eq!(common(&alone), common(expected), "{:?} with {threads} threads", config.cache.rule);
        }
    }
}

/// The lost attention is of the queries that predict the scored tokens, as all other metrics are.
#[test]
fn evicted_attention_is_of_the_scored_tokens() {
    let model = model();
    let tokens = sample(&model).tokens.len();
    let scored = tokens - 40..tokens - 3;
    let part = TextSample { scored: scored.clone(), ..sample(&model) };
    let policy = presets::by_name("tova").unwrap();
    let config = CacheConfig {
        cache: CacheSpec { rule: CacheRule::Evict { policy, size: 9 }, seed: SEED, ..CacheSpec::default() },
        compare: true,
        ..configs().remove(0)
    };
    let measured = read(&model, &part, &[config]).remove(0);
    let found = measured.sums.iter().find(|sum| sum.metric == "evicted_mass").unwrap();
    let plan = MemoryPlan { measure_loss: true, text: tokens, ..MemoryPlan::bounded(policy.at(9).unwrap()) };
    let mut memory = model.new_memory(&plan);
    model.read(&part.tokens, &mut memory).unwrap();
    let lost = &memory.lost().unwrap()[scored.start - 1..scored.end - 1];
    let expected: f64 = lost.iter().map(|lost| f64::from(*lost)).sum();
    assert!((found.value - expected).abs() < 1e-4 && expected > 1.0, "{} {expected}", found.value);
    assert_eq!(found.weight, scored.len() as f64);
}
