//! A model whose layers have windows of their own, from a sweep to its rows.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::checkpoint::{YI_VOCABULARY, golden, load, write_tokenizer};
use crate::support::program::run;
use crate::support::rows::measured;
use crate::support::sweep::{Sweep, write_texts};
use serde_json::Value;
use tova_bench::eviction::{Budget, BudgetPool, CacheOptions, LocalLayers, Policy, PoolOver, presets};
use tova_bench::ledger::Row;
use tova_bench::lm::MemoryPlan;
use tova_bench::metric::Slice;
use tova_bench::parquet::Table;

/// Puts models into a folder: a name, the golden it is, and the size of its vocabulary.
fn copy_models(path: &Path, models: &[(&str, &str, usize)]) {
    for (name, source, vocabulary) in models {
        fs::create_dir(path.join(name)).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(golden(source).join(file), path.join(name).join(file)).unwrap();
        }
        write_tokenizer(&path.join(name), *vocabulary);
    }
}

/// What heads hold after a text that is longer than every window and size, with a budget.
fn held(local_layers: LocalLayers, size: usize, budget: Budget) -> Vec<(Option<usize>, Vec<usize>)> {
    let model = load(&golden("families/gemma3"));
    let shape = model.shape();
    let options = CacheOptions { local_layers, ..CacheOptions::default() };
    let policy = Policy { budget, ..presets::by_name("tova-head").unwrap() };
    policy.check(size, shape.bounded_layers(options), shape.heads.kv_heads).unwrap();
    let mut memory = model.new_memory(&MemoryPlan { options, ..MemoryPlan::bounded(policy.at(size).unwrap()) });
    let tokens: Vec<u32> = (0..200).map(|token| (token * 37 + token / 9 * token) % 64).collect();
    tokens.chunks(50).for_each(|part| drop(model.read(part, &mut memory).unwrap()));
    shape.attention.iter().map(|layer| layer.window).zip(memory.entries()).collect()
}

/// Entries of a pool are those that its layers can have: what a window takes leaves no room to others.
#[test]
fn a_pool_of_the_model_has_no_more_than_its_windows() {
    let pool = Budget::Pool(BudgetPool { over: PoolOver::Model, floor: 0, score: None });
    for size in [12, 60] {
        let held = held(LocalLayers::Bounded, size, pool);
        let most =
            held.iter().map(|(window, heads)| heads.len() * window.unwrap_or(size).min(size)).sum::<usize>();
        assert!(size < 24 || held.iter().any(|(window, _)| window.is_some_and(|window| window < size)));
        assert_eq!(held.iter().flat_map(|(_, heads)| heads).sum::<usize>(), most, "{held:?}");
    }
}

/// A budget is divided among the layers that the policy bounds, so that their mean is the cache size.
#[test]
fn a_budget_leaves_out_layers_that_only_their_window_bounds() {
    for size in [20, 60] {
        for budget in [Budget::Pyramid(3), Budget::Uniform] {
            let held = held(LocalLayers::Exempt, size, budget);
            let (exempt, bounded): (Vec<_>, Vec<_>) = held.into_iter().partition(|(window, _)| window.is_some());
            assert!(!exempt.is_empty() && !bounded.is_empty());
            let entries: Vec<usize> = bounded.into_iter().flat_map(|(_, heads)| heads).collect();
            assert_eq!(entries.iter().sum::<usize>(), entries.len() * size, "{budget}");
            assert!(exempt.iter().all(|(window, heads)| heads.iter().all(|held| Some(*held) == *window)));
        }
    }
}

/// The rows of a sweep say what policies did in such layers, and have the numbers of `score`.
#[test]
fn rows_say_what_holds_in_layers_with_a_window() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    copy_models(path, &[("gemma", "families/gemma3", 64), ("llama", "yi-gqa", YI_VOCABULARY)]);
    write_texts(path, 1, 300);
    let sweep = Sweep {
        models: "[./gemma, ./llama]",
        policies: "[full, truncate, tova, tova@exempt, h2o]",
        cache_sizes: "[12, 160]",
        tasks: &["dataset: ./texts, length: 200, books: 1, chunks_per_book: 1"],
        more: "",
    };
    sweep.write(path);
    run(path, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let rows = measured(&path.join("results"));
    let nll = |model: &str, policy: &str, local_layers: Option<&str>, size: u32| -> f64 {
        let is_it = |row: &&Row| {
            row.model.ends_with(model)
                && row.policy == policy
                && row.local_layers.as_deref() == local_layers
                && row.cache_size.is_none_or(|own| own == size)
                && row.metric == "nll"
                && row.slice.is_none()
        };
        let mut found = rows.iter().filter(is_it);
        let row = found.next().unwrap_or_else(|| panic!("{model} {policy} {local_layers:?} {size}"));
        assert!(found.next().is_none());
        row.value / row.weight
    };
    let tokens = |model: &str| -> String {
        let text = fs::read_to_string(path.join("texts/book-0.txt")).unwrap();
        let inner = tokenizers::Tokenizer::from_file(path.join(model).join("tokenizer.json")).unwrap();
        let ids = inner.encode(text, false).unwrap().get_ids()[..199].to_vec();
        serde_json::to_string(&[vec![1], ids].concat()).unwrap()
    };
    let score = |model: &str, more: &[&str]| -> f64 {
        fs::write(path.join("tokens.json"), tokens(model)).unwrap();
        let model = format!("./{model}");
        let arguments = [&["score", "--model", &model, "--tokens", "tokens.json"], more].concat();
        let printed: Value = serde_json::from_str(&run(path, &arguments).with_code(0).stdout).unwrap();
        let nll: Vec<f64> = serde_json::from_value(printed["nll"].clone()).unwrap();
        nll.iter().sum::<f64>() / nll.len() as f64
    };
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-5, "{a} {b}");
    // With 160 entries a cell takes over from the full cache's reading, with 12 it reads from the start.
    for (size, name) in [(12, "12"), (160, "160")] {
        for local in ["bounded", "exempt"] {
            let policy = ["--policy", "tova", "--cache-size", name, "--local-layers", local];
            close(nll("gemma", "tova", Some(local), size), score("gemma", &policy));
        }
        close(
            nll("gemma", "h2o", Some("bounded"), size),
            score("gemma", &["--policy", "h2o", "--cache-size", name]),
        );
        // Without such layers both are one, under the name that came first.
        close(nll("llama", "tova", None, size), score("llama", &["--policy", "tova", "--cache-size", name]));
    }
    assert_ne!(nll("gemma", "tova", Some("bounded"), 12), nll("gemma", "tova", Some("exempt"), 12));
    close(nll("gemma", "full", None, 12), score("gemma", &[]));
    let report = fs::read_to_string(path.join("results/summary.md")).unwrap();
    assert!(report.contains("| tova@exempt at 12 |"), "{report}");
}

/// The same where layers share caches, have a state in place of one, hold latent vectors, or have windows that do not slide: cells
/// take over from the full cache's reading, after the prompt too, and have the numbers of `score`, which reads from the start.
#[test]
fn rows_of_models_with_other_caches_have_the_numbers_of_score() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let models = ["gemma4", "gemma3n", "qwen3.5", "qwen3-next", "deepseek-v3", "llama4"];
    let sources: Vec<(&str, String)> = models.iter().map(|name| (*name, format!("families/{name}"))).collect();
    copy_models(path, &sources.iter().map(|(name, source)| (*name, source.as_str(), 64)).collect::<Vec<_>>());
    write_texts(path, 1, 300);
    let all = models.map(|name| format!("./{name}")).join(", ");
    // Layers with a window that a text passes have no cut.
    let cut = "[./qwen3.5, ./qwen3-next, ./deepseek-v3]";
    let sweeps = [
        (
            format!("[{all}]"),
            "[full, tova, h2o]",
            "[12, 160]",
            "dataset: ./texts, length: 200, books: 1, chunks_per_book: 1",
        ),
        (
            cut.to_owned(),
            "[full, tova@cut, h2o@cut, kvzip]",
            "[40]",
            "dataset: ./texts, length: 200, prompt: 150, books: 1, chunks_per_book: 1",
        ),
    ];
    for (at, (models, policies, cache_sizes, task)) in sweeps.into_iter().enumerate() {
        Sweep { models: &models, policies, cache_sizes, tasks: &[task], more: "" }.write(path);
        let results = format!("results-{at}");
        run(path, &["run", "sweep.yaml", "--results", &results, "--no-report"]).with_code(0);
        let is_nll = |row: &Row| row.metric == "nll" && row.slice.is_none();
        for row in measured(&path.join(&results)).into_iter().filter(is_nll) {
            let text = fs::read_to_string(path.join("texts/book-0.txt")).unwrap();
            let model = row.model.rsplit('/').next().unwrap();
            let inner = tokenizers::Tokenizer::from_file(path.join(model).join("tokenizer.json")).unwrap();
            let ids = inner.encode(text, false).unwrap().get_ids()[..199].to_vec();
            fs::write(path.join("tokens.json"), serde_json::to_string(&[vec![1], ids].concat()).unwrap()).unwrap();
            let policy = row.policy.to_string();
            let size = row.cache_size.map(|size| size.to_string());
            let source = format!("./{model}");
            let mut arguments = vec!["score", "--model", &source, "--tokens", "tokens.json", "--policy", &policy];
            arguments.extend(size.iter().flat_map(|size| ["--cache-size", size]));
            arguments.extend(row.schedule.iter().flat_map(|schedule| ["--schedule", schedule]));
            let after = if row.schedule.as_deref() == Some("cut") { 149 } else { 0 };
            if after > 0 {
                arguments.extend(["--prompt", "150"]);
            }
            let printed: Value = serde_json::from_str(&run(path, &arguments).with_code(0).stdout).unwrap();
            let nll: Vec<f64> = serde_json::from_value(printed["nll"].clone()).unwrap();
            let scored = &nll[nll.len() - row.weight as usize..];
            assert!(after == 0 || scored.len() == 50, "{}", scored.len());
            let mean = scored.iter().sum::<f64>() / row.weight;
            assert!(
                (row.value / row.weight - mean).abs() < 1e-5,
                "{model} {policy} {size:?}: {} {mean}",
                row.value
            );
        }
    }
}

/// The window of both models, and the bytes of an entry in a layer: the keys and values of all heads in f32.
const WINDOW: usize = 24;
/// The name in the sweep, the folder, the windows of the layers, bytes of an entry, and key-value heads.
type Windowed = (&'static str, &'static str, &'static [Option<usize>], usize, usize);
const MODELS: [Windowed; 2] = [
    ("mistral", "families/mistral", &[Some(WINDOW); 3], 2 * 2 * 8 * 4, 2),
    (
        "gemma",
        "families/gemma3",
        &[Some(WINDOW), Some(WINDOW), None, Some(WINDOW), Some(WINDOW), None],
        2 * 8 * 4,
        1,
    ),
];
const TOKENS: usize = 200;

/// The entries that a layer's policy or window leaves, and whether the policy holds there.
fn bound(window: Option<usize>, size: usize, local_layers: &str) -> (usize, bool) {
    let holds = window.is_none() || local_layers == "bounded";
    (window.unwrap_or(usize::MAX).min(if holds { size } else { usize::MAX }), holds)
}

/// Steps at which tokens are seen, entries kept after each step once a layer is full, and those of them that are among the newest
/// `size`: of one layer and group, from its log, step by step.
fn walk(victims: &[(u32, u32)], size: usize) -> [f64; 3] {
    let mut cache: Vec<u32> = Vec::new();
    let [mut seen, mut kept, mut recent] = [0.0; 3];
    for step in 0..TOKENS as u32 {
        cache.push(step);
        seen += cache.len() as f64;
        for (_, victim) in victims.iter().filter(|(at, _)| *at == step) {
            let at = cache.iter().position(|token| token == victim).expect("what is evicted was there");
            cache.remove(at);
        }
        assert!(cache.len() <= size, "{} entries of {size}", cache.len());
        if step as usize >= size {
            kept += cache.len() as f64;
            recent += cache.iter().filter(|token| (**token as usize) + size > step as usize).count() as f64;
        }
    }
    [seen, kept, recent]
}

/// Everything that is counted, against the logs and against what is counted by hand, with caches above and below the window.
#[test]
fn what_is_counted_takes_each_layer_as_large_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    copy_models(path, &MODELS.map(|(name, source, ..)| (name, source, 64)));
    write_texts(path, 1, 300);
    let texts = format!("dataset: ./texts, length: {TOKENS}, books: 1, chunks_per_book: 1");
    let sweep = format!(
        "models: [./mistral, ./gemma]\n\
         policies: [full, truncate, window, tova, tova-head, tova@exempt, tova-head@exempt]\ncache_sizes: [12, 64]\n\
         tasks:\n  - retention: {{{texts}, eviction_log: true}}\n  - perplexity: {{{texts}, eviction_log: true}}\n\
         \x20 - story: {{request: 'w3 w4 w5 w6 w7 w8', stories: 1, length: 250, write: {{max_new_tokens: 200, temperature: 0}}}}\n"
    );
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    run(path, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let results = path.join("results");
    let rows = measured(&results);
    for (model, _, windows, entry, heads) in MODELS {
        let of_model = || rows.iter().filter(|row| row.model.ends_with(model) && row.slice.is_none());
        for row in of_model() {
            let local_layers = row.local_layers.as_deref().unwrap_or("bounded");
            let size = row.cache_size.map_or(usize::MAX, |size| size as usize);
            let what = format!("{model} {} {local_layers} {size} {} {}", row.policy, row.task, row.metric);
            let tokens = (row.prompt_tokens + row.new_tokens) as usize;
            // What is allocated: a block of 128 tokens beside what bounds a layer, in rows of 16.
            let held: usize = windows
                .iter()
                .map(|window| match row.policy.as_str() {
                    "full" | "truncate" => {
                        let is_cut = row.policy == "truncate" && row.task != "story";
                        let room = window.map_or(usize::MAX, |window| (window + 128).next_multiple_of(16));
                        (if is_cut { tokens.min(size) } else { tokens }).min(room)
                    }
                    _ => (bound(*window, size, local_layers).0 + 128).next_multiple_of(16),
                })
                .sum();
            assert_eq!(row.allocated_bytes as usize, entry * held, "{what}");
            if row.metric != "lifetime" {
                continue;
            }
            let number = |metric: &str, slice: Option<Slice>| {
                let mut found = rows
                    .iter()
                    .filter(|other| other.cell == row.cell && other.metric == metric && other.slice == slice);
                found.next().map(|row| [row.value, row.weight])
            };
            let visible = |most: usize| (1..=TOKENS).map(|t| t.min(most)).sum::<usize>() as f64;
            if row.score.is_none() {
                if row.policy == "full" {
                    let counted: f64 = windows.iter().map(|window| visible(window.unwrap_or(TOKENS))).sum();
                    assert_eq!(
                        number("lifetime", None),
                        Some([counted, (TOKENS * windows.len()) as f64]),
                        "{what}"
                    );
                }
                assert_eq!(number("recent_share", None), None);
                continue;
            }
            let log = |cell: &str| {
                let mut folders = fs::read_dir(results.join("logs")).unwrap().map(|entry| entry.unwrap().path());
                let folder = folders.find(|folder| folder.to_string_lossy().ends_with(cell)).unwrap();
                let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
                let others = [".tokens.", ".groups.", ".html"];
                let is_log = |file: &PathBuf| !others.iter().any(|kind| file.to_string_lossy().contains(kind));
                let table = Table::from_parquet(fs::read(files.find(is_log).unwrap()).unwrap()).unwrap();
                ["layer", "group", "step", "victim"].map(|name| table.column::<u32>(name).unwrap())
            };
            let own = log(&row.cell);
            // A cell of perplexity branches off the full cache, which does not note what windows pass.
            let same = |other: &&Row| {
                let of =
                    |row: &Row| (row.policy.clone(), row.cache_size, row.local_layers.clone(), row.model.clone());
                other.task == "perplexity" && of(other) == of(row)
            };
            assert_eq!(log(&rows.iter().find(same).unwrap().cell), own, "{what}");
            let [layers, groups, steps, victims] = own;
            let mut all = [0.0; 3];
            for (layer, window) in windows.iter().enumerate() {
                let (real, holds) = bound(*window, size, local_layers);
                let by_head = row.scope.as_deref() == Some("head") && holds;
                let mut sums = [0.0; 3];
                let count = if by_head { heads } else { 1 };
                for group in 0..count {
                    let own =
                        (0..layers.len()).filter(|at| (layers[*at], groups[*at]) == (layer as u32, group as u32));
                    let own: Vec<(u32, u32)> = own.map(|at| (steps[at], victims[at])).collect();
                    let walked = walk(&own, real);
                    sums.iter_mut().zip(walked).for_each(|(sum, own)| *sum += own / count as f64);
                }
                let near = |found: Option<[f64; 2]>, expected: [f64; 2]| {
                    let found = found.unwrap_or_else(|| panic!("{what} layer {layer}"));
                    let is_near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
                    assert!(is_near, "{what} layer {layer}: {found:?} {expected:?}");
                };
                let slice = Some(Slice::number("layer", layer as u64));
                near(number("lifetime", slice.clone()), [sums[0], TOKENS as f64]);
                near(number("recent_share", slice), [sums[2], sums[1]]);
                // By counting, whatever the log says. A window may take an entry before the policy has to.
                let (least, most) = match window {
                    Some(window) if real == *window => (visible(*window), visible(*window)),
                    Some(_) => (visible(size), visible(size + 1)),
                    None => (visible(size + 1), visible(size + 1)),
                };
                assert!(sums[0] > least - 1e-6 && sums[0] < most + 1e-6, "{what} layer {layer}: {}", sums[0]);
                if window.is_some_and(|window| real == window) {
                    assert_eq!(sums[1], sums[2], "{what} layer {layer}: a window keeps the newest");
                }
                all.iter_mut().zip(sums).for_each(|(all, sum)| *all += sum);
            }
            let [value, weight] = number("recent_share", None).unwrap();
            assert!((value - all[2]).abs() < 1e-6 && (weight - all[1]).abs() < 1e-6, "{what}");
        }
        // What was written was held, in all layers as they are.
        assert!(of_model().any(|row| row.task == "story" && row.new_tokens > 150));
    }
    let report = fs::read_to_string(results.join("report.md")).unwrap();
    let note = "nothing was evicted at 64: every policy is the full cache there";
    assert_eq!(report.matches(note).count(), 3, "{report}");
}

/// The bytes that are held while a text is written, by hand.
#[test]
fn a_layer_with_a_window_holds_its_window_where_it_is_exempt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    copy_models(path, &MODELS.map(|(name, source, ..)| (name, source, 64)));
    let sweep = "models: [./mistral, ./gemma]\npolicies: [full, tova, tova@exempt]\ncache_sizes: [12]\n\
                 tasks:\n  - math: {dataset: embedded, samples: 1, length: 250, write: {max_new_tokens: 40}}\n";
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    run(path, &["run", "sweep.yaml", "--no-report", "--results", "results"]).with_code(0);
    let rows = measured(&path.join("results"));
    let held: Vec<&Row> = rows.iter().filter(|row| row.metric == "cut_off").collect();
    assert_eq!(held.len(), 6);
    for row in held {
        let (_, _, windows, entry, _) = MODELS.into_iter().find(|model| row.model.ends_with(model.0)).unwrap();
        let size = row.cache_size.map_or(usize::MAX, |size| size as usize);
        let local_layers = row.local_layers.as_deref().unwrap_or("bounded");
        let tokens = row.prompt_tokens as usize..(row.prompt_tokens + row.new_tokens) as usize;
        let entries = tokens.map(|tokens| -> usize {
            windows.iter().map(|window| tokens.min(bound(*window, size, local_layers).0)).sum()
        });
        // Rows count 16 bits a number, and `entry` 32.
        let expected = (entries.sum::<usize>() * entry / 2) as f64 / f64::from(row.new_tokens);
        assert_eq!(row.held_bytes, Some(expected), "{} {local_layers}", row.policy);
    }
}

/// Where whole blocks of four leave and all numbers are multiples of four, a cut leaves as many entries as that of any other policy.
#[test]
fn blocks_are_counted_in_the_layers_that_their_policy_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    copy_models(path, &MODELS.map(|(name, source, ..)| (name, source, 64)));
    let sweep = "models: [./mistral, ./gemma]\npolicies: [tova@cut@exempt, blocks@exempt]\ncache_sizes: [12]\n\
                 define:\n  blocks: {score: \"block(attention, 4)\", scope: layer, schedule: cut}\n\
                 tasks:\n  - perplexity: {dataset: random-words, length: 96, prompt: 64, books: 1, chunks_per_book: 1}\n";
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    run(path, &["run", "sweep.yaml", "--no-report", "--results", "results"]).with_code(0);
    let rows = measured(&path.join("results"));
    for (name, ..) in MODELS {
        let of_model =
            rows.iter().filter(|row| row.metric == "nll" && row.slice.is_none() && row.model.ends_with(name));
        let held: Vec<(&str, f64)> = of_model.map(|row| (row.policy.as_str(), row.held_bytes.unwrap())).collect();
        let [(_, a), (_, b)] = held.as_slice() else { panic!("{held:?}") };
        assert!(a == b && *a > 0.0, "{held:?}");
    }
}
