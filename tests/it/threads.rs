//! Threads share the reading of a text, and change nothing: each takes parts of it through the layers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::support::checkpoint;
use tova_bench::eviction::{CacheOptions, Eviction, Positions, presets};
use tova_bench::lm::{
    Device, Interrupted, LanguageModel, Memory, MemoryPlan, TextThreads, WeightType, tiny_shape,
};

/// More than two threads take at a time, and no multiple of anything.
const TOKENS: usize = 1_709;

fn model() -> LanguageModel {
    LanguageModel::random(tiny_shape(), 1.0, 7, WeightType::Auto, &Device::CPU).unwrap()
}

fn tokens() -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(11);
    (0..TOKENS).map(|_| random.u32(1..257)).collect()
}

fn with_threads<R: Send>(threads: usize, call: impl FnOnce() -> R + Send) -> R {
    TextThreads::new(threads).unwrap().install(call)
}

/// States, survivors, evictions and lost attention, to the bit.
#[derive(Debug, PartialEq)]
struct Reading {
    states: Vec<u32>,
    survivors: Vec<Vec<Vec<u32>>>,
    log: Vec<Vec<Eviction>>,
    lost: Vec<u32>,
    nll: Vec<u32>,
}

fn reading(model: &LanguageModel, tokens: &[u32], plan: &MemoryPlan<'_>) -> Reading {
    let bits = |floats: &[f32]| floats.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let mut memory: Memory = model.new_memory(plan);
    let states = model.read(tokens, &mut memory).unwrap();
    let before = states.narrow(0, 0, tokens.len() - 1).unwrap();
    Reading {
        nll: bits(&model.nll(&before, &tokens[1..]).unwrap()),
        states: bits(&states.flatten_all().unwrap().to_vec1().unwrap()),
        survivors: memory
            .survivors()
            .iter()
            .map(|layer| layer.iter().map(|group| group.to_vec()).collect())
            .collect(),
        lost: bits(memory.lost().unwrap_or_default()),
        log: memory.take_log(),
    }
}

/// A model of another family than Llama.
fn mixture(name: &str) -> LanguageModel {
    checkpoint::load(&checkpoint::golden(&format!("families/{name}")))
}

#[test]
fn every_number_of_threads_gives_the_same_bits() {
    every_number_gives_the_same_bits(&model(), &tokens());
}

#[test]
fn every_number_of_threads_gives_the_same_bits_of_other_families() {
    for name in ["qwen3-moe", "qwen2-moe", "gemma4", "gemma3n", "qwen3-next", "deepseek-v3", "llama4"] {
        let model = mixture(name);
        let vocab = model.shape().vocab as u32;
        every_number_gives_the_same_bits(&model, &tokens().iter().map(|token| token % vocab).collect::<Vec<_>>());
    }
}

/// Texts that go on side by side: rows for one expert are multiplied together.
#[test]
fn what_a_token_becomes_does_not_depend_on_the_texts_beside_it() {
    for name in [
        "mixtral",
        "olmoe",
        "qwen2-moe",
        "qwen3-moe",
        "gemma4",
        "gemma4-moe",
        "gemma3n",
        "qwen3.5",
        "qwen3-next",
        "deepseek-v2",
        "deepseek-v3",
        "llama4",
    ] {
        let model = mixture(name);
        let policy = presets::by_name("tova").unwrap().at(8).unwrap();
        let text = |at: u32| (0..9 + at).map(|i| 3 + (i * (at + 2)) % 60).collect::<Vec<u32>>();
        let read = |tokens: &[u32]| {
            let mut memory = model.new_memory(&MemoryPlan::bounded(policy));
            let states = model.read(tokens, &mut memory).unwrap().to_vec2::<f32>().unwrap();
            (memory, states)
        };
        let mut together: Vec<Memory> = (0..7).map(|at| read(&text(at)).0).collect();
        let mut alone: Vec<Memory> = (0..7).map(|at| read(&text(at)).0).collect();
        let written = [[5, 9, 21, 5, 40, 33, 6], [7, 8, 9, 10, 11, 12, 13]];
        for (step, next) in written.iter().enumerate() {
            let mut texts: Vec<&mut Memory> = together.iter_mut().collect();
            let states = model.step(next, &mut texts).unwrap().to_vec2::<f32>().unwrap();
            for (at, ((token, memory), expected)) in next.iter().zip(&mut alone).zip(&states).enumerate() {
                let own = model.step(&[*token], &mut [memory]).unwrap().to_vec2::<f32>().unwrap();
                assert_eq!(own[0], *expected, "{name}");
                // Writing is reading, up to the order of sums.
                let tokens = [text(at as u32), written[..=step].iter().map(|next| next[at]).collect()].concat();
                let (whole, states) = read(&tokens);
                assert_eq!(memory.survivors(), whole.survivors(), "{name}");
                let last = states.last().unwrap();
                let apart = last.iter().zip(&own[0]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(apart < 1e-3, "{name}: {apart}");
            }
        }
    }
}

fn every_number_gives_the_same_bits(model: &LanguageModel, tokens: &[u32]) {
    for (policy, positions) in [
        (None, Positions::Absolute),
        (Some("tova"), Positions::Absolute),
        (Some("h2o"), Positions::Absolute),
        (Some("knorm"), Positions::Absolute),
        (Some("window+4"), Positions::Slot),
    ] {
        let options = CacheOptions { positions, ..CacheOptions::default() };
        if model.shape().check_options(options).is_err() {
            continue;
        }
        let sized = policy.map(|name| presets::by_name(name).unwrap().at(96).unwrap());
        let measure_loss = positions == Positions::Absolute && policy.is_some();
        let plan = MemoryPlan { policy: sized, options, log: true, measure_loss, ..MemoryPlan::unbounded() };
        let alone = reading(model, tokens, &plan);
        for threads in [1, 2, 3, 5] {
            let together = with_threads(threads, || reading(model, tokens, &plan));
            assert!(together == alone, "{policy:?} with {threads} threads");
        }
    }
}

#[test]
fn a_stopped_reading_ends_in_every_thread() {
    let mut model = model();
    model.stop_on(Arc::new(AtomicBool::new(true)));
    for threads in [1, 4] {
        let error = with_threads(threads, || {
            let mut memory = model.new_memory(&MemoryPlan::unbounded());
            model.read(&tokens(), &mut memory).unwrap_err()
        });
        assert!(error.chain().any(|cause| cause.is::<Interrupted>()), "{error:#}");
    }
}

/// Texts that many threads want to read at the same time: with the same threads, with those of a plain pool, and with none of
/// their own. Where parts of two texts are on the same threads, they wait for each other for ever.
#[test]
fn texts_of_many_threads_do_not_hold_each_other_up() {
    let (model, tokens) = (model(), tokens());
    let lengths = [256, 400, 513, 700];
    let state = |length: usize| {
        let states = model.read(&tokens[..length], &mut model.new_memory(&MemoryPlan::unbounded())).unwrap();
        states.flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    let alone: Vec<Vec<f32>> = lengths.into_iter().map(state).collect();
    let own = TextThreads::new(4).unwrap();
    let plain = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let (sent, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for (length, alone) in lengths.into_iter().zip(&alone) {
            for place in ["own", "plain", "none"] {
                let (state, own, plain, sent) = (&state, &own, &plain, sent.clone());
                scope.spawn(move || {
                    for _ in 0..40 {
                        let found = match place {
                            "own" => own.install(|| state(length)),
                            "plain" => plain.install(|| state(length)),
                            _ => state(length),
                        };
                        assert!(found == *alone, "{length} tokens, {place}");
                    }
                    sent.send(()).unwrap();
                });
            }
        }
        for _ in 0..3 * lengths.len() {
            if ended.recv_timeout(Duration::from_secs(120)).is_err() {
                // The threads that hang cannot be joined.
                eprintln!("texts wait for each other, or one of them failed");
                std::process::abort();
            }
        }
    });
}
