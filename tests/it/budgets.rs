//! Budgets by layer: what each layer holds, by definition and by the rows of a sweep.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::checkpoint::{golden, load};
use crate::support::program::run;
use crate::support::rows::measured;
use tova_bench::eviction::{Budget, CacheOptions, Policy, Positions, Schedule, Scope, SizedPolicy, presets};
use tova_bench::ledger::{Row, read_rows};
use tova_bench::lm::{LanguageModel, Memory, MemoryPlan, Tensor};
use tova_bench::metric::Slice;

const POLICIES: [&str; 8] = ["window+4", "tova", "tova-head", "tova+3", "h2o", "h2o-layer", "knorm", "random"];

fn layers(shares: &[f64]) -> Budget {
    Budget::of_layers(shares).unwrap()
}

fn policy(name: &str, budget: Budget) -> Policy {
    Policy { budget, ..presets::by_name(name).unwrap() }
}

/// (layers)(groups)(entries)
type Survivors = Vec<Vec<Vec<u32>>>;

/// The states of a text read in pieces, and what survives.
fn read(
    model: &LanguageModel,
    tokens: &[u32],
    (policy, positions): (SizedPolicy, Positions),
    piece: usize,
) -> (Vec<u32>, Survivors) {
    let options = CacheOptions { positions, ..CacheOptions::default() };
    let mut memory = model.new_memory(&MemoryPlan { options, seed: 3, ..MemoryPlan::bounded(policy) });
    let states: Vec<Tensor> =
        tokens.chunks(piece).map(|tokens| model.read(tokens, &mut memory).unwrap()).collect();
    let states: Vec<f32> = Tensor::cat(&states, 0).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    let groups = |layer: &Vec<&[u32]>| layer.iter().map(|group| group.to_vec()).collect();
    (states.into_iter().map(f32::to_bits).collect(), memory.survivors().iter().map(groups).collect())
}

#[test]
fn every_layer_holds_its_size() {
    let model = load(&golden("llama-mha"));
    let tokens: Vec<u32> =
        serde_json::from_str(&fs::read_to_string(golden("llama-mha").join("tokens.json")).unwrap()).unwrap();
    for (budget, size, sizes) in [
        (layers(&[3.0, 2.0, 1.0]), 30, [45, 30, 15]),
        (layers(&[10.0, 31.5, 3.5]), 15, [10, 32, 3]),
        // More than the text: there nothing leaves.
        (layers(&[7.0, 1.0, 1.0]), 120, [280, 40, 40]),
    ] {
        for name in POLICIES {
            for positions in [Positions::Absolute, Positions::Slot, Positions::Squeezed] {
                // A window of three layers is too small to keep four tokens.
                let policy = policy(name, budget);
                let Ok(()) = policy.check(size, &[true; 3], 4) else { continue };
                let sized = policy.at(size).unwrap();
                let what = format!("{policy} at {size}, {positions:?}");
                let (_, survivors) = read(&model, &tokens, (sized, positions), tokens.len());
                for (survivors, size) in survivors.iter().zip(sizes) {
                    assert!(survivors.iter().all(|group| group.len() == size.min(tokens.len())), "{what}");
                }
                // What the first layer keeps does not depend on the others.
                let alone = sized.of_layers(&[true; 3])[0].unwrap();
                assert_eq!(alone.size, sizes[0]);
                assert_eq!(read(&model, &tokens, (alone, positions), tokens.len()).1[0], survivors[0], "{what}");
                for piece in [1, 50] {
                    assert_eq!(read(&model, &tokens, (sized, positions), piece).1, survivors, "{what} by {piece}");
                }
            }
        }
    }
}

#[test]
fn equal_shares_are_a_uniform_size_and_bytes_are_those_of_the_layers() {
    let model = load(&golden("llama-mha"));
    let tokens: Vec<u32> = (0..300).map(|token| (token * 37 + token / 9) % 256).collect();
    for name in POLICIES {
        for size in [20, 130] {
            let uniform = policy(name, Budget::Uniform).at(size).unwrap();
            let expected = read(&model, &tokens, (uniform, Positions::Absolute), 300);
            for budget in [layers(&[2.5; 3]), Budget::Pyramid(1)] {
                let sized = policy(name, budget).at(size).unwrap();
                assert!(read(&model, &tokens, (sized, Positions::Absolute), 300) == expected, "{name} {size}");
            }
        }
    }
    let bytes = |budget: Budget| {
        let mut memory = model.new_memory(&MemoryPlan::bounded(policy("tova", budget).at(20).unwrap()));
        model.read(&tokens, &mut memory).unwrap();
        memory.shrink_to_fit(300);
        memory.bytes()
    };
    // Keys and values of four heads of 16 numbers, and room for the entry that is read.
    assert_eq!(bytes(layers(&[4.0, 1.0, 1.0])), (41 + 11 + 11) * 2 * 4 * 16 * 4);
    assert_eq!(bytes(layers(&[4.0, 1.0, 1.0])), bytes(Budget::Uniform));
}

#[test]
fn budgets_that_a_model_cannot_have_are_refused() {
    let refused = |policy: Policy, size: usize, layers: usize| {
        policy.check(size, &vec![true; layers], 4).unwrap_err().to_string()
    };
    let message = refused(policy("tova", layers(&[3.0, 2.0, 2.0, 1.0])), 64, 3);
    assert!(message.contains("4 layers") && message.contains("the model has 3"), "{message}");
    // 3.2 entries are left to the last of four layers.
    let message = refused(policy("window+4", Budget::Pyramid(20)), 64, 4);
    assert!(message.contains("layer 3 (of 0 to 3) a size of 3: keep_first 4 fills"), "{message}");
    let message = refused(policy("tova", layers(&[1.0, 1e-9])), 64, 2);
    assert!(message.contains("layer 1 (of 0 to 1) a size of 0"), "{message}");
    // H2O's recent half of 64 is as much in every layer.
    let message = refused(policy("h2o", layers(&[5.0, 1.0])), 64, 2);
    assert!(
        message.contains("layer 1 (of 0 to 1) a size of 21") && message.contains("keep_recent 32"),
        "{message}"
    );
    assert!(policy("h2o", Budget::Pyramid(20)).check(64, &[true; 30], 4).is_ok());
    assert!(policy("h2o", layers(&[3.0, 1.0])).check(64, &[true; 2], 4).is_ok());
}

// --- a sweep ---

const SWEEP: &str = "\
models: [pocket]
policies: [full, tova, pyramid, mine, same]
define:
  pyramid: {score: last_attention, scope: layer, budget: {pyramid: 20}}
  mine: {score: last_attention, scope: layer, budget: {layers: [3, 2, 2, 1]}}
  same: {score: last_attention, scope: layer, budget: {layers: [2, 2, 2, 2]}}
cache_sizes: [64, 256]
tasks:
  - perplexity: {dataset: embedded, length: 200, books: 1, chunks_per_book: 1, compare_to_full: true}
  - retention: {dataset: embedded, length: 200, books: 1, chunks_per_book: 1}
  - qasper: {dataset: embedded, documents: 1, questions: 2, length: 600, write: {max_new_tokens: 8}}
";

/// The only row of a metric, by policy and size.
fn only<'r>(
    rows: &'r [Row],
    (task, metric, slice): (&str, &str, Option<&Slice>),
) -> impl Fn(&str, u32) -> &'r Row {
    let is_it = |row: &&Row| row.task == task && row.metric == metric && row.slice.as_ref() == slice;
    let found: Vec<&Row> = rows.iter().filter(is_it).collect();
    move |policy, size| {
        let mut here =
            found.iter().filter(|row| row.policy == policy && row.cache_size.is_none_or(|own| own == size));
        let row = here.next().unwrap_or_else(|| panic!("{policy} {size}"));
        assert!(here.next().is_none(), "{policy} {size}");
        row
    }
}

fn write(folder: &Path, text: &str) {
    fs::write(folder.join("sweep.yaml"), text).unwrap();
}

#[test]
fn a_sweep_measures_budgets_and_its_report_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, SWEEP);
    let plan = run(folder, &["plan", "sweep.yaml"]).with_code(0);
    // A layer of 13 entries evicts from 200 tokens although the size is 256.
    assert!(!plan.stdout.contains("256 evicts nothing"), "{}", plan.stdout);
    assert_eq!(plan.stdout.matches("the same as tova").count(), 6, "{}", plan.stdout);
    run(folder, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    // The rows of the sweep under its own names, of which two are one cell.
    let rows = read_rows(&folder.join("results/rows.parquet")).unwrap();
    let budgets: BTreeMap<&str, Option<&str>> =
        rows.iter().map(|row| (row.policy.as_str(), row.budget.as_deref())).collect();
    let expected = [
        ("full", None),
        ("mine", Some("layers 3 2 2 1")),
        ("pyramid", Some("pyramid 20")),
        ("same", None),
        ("tova", None),
    ];
    assert_eq!(budgets, BTreeMap::from(expected));

    let nll = only(&rows, ("perplexity", "nll", None));
    let [full, tova] = ["full", "tova"].map(|policy| nll(policy, 256));
    assert_eq!(full.value.to_bits(), tova.value.to_bits());
    for policy in ["mine", "pyramid"] {
        assert_ne!(nll(policy, 256).value, full.value, "{policy}");
        assert_ne!(nll(policy, 64).value, nll("tova", 64).value, "{policy}");
    }
    assert_eq!((&nll("same", 64).cell, nll("same", 64).value), (&nll("tova", 64).cell, nll("tova", 64).value));
    // 512 bytes an entry in each of four layers, which also hold a block of 128 tokens: 96, 64, 64 and 32 entries are as many
    // as 4 x 64; 384, 256, 256 and 128 as 4 x 256.
    for size in [64, 256] {
        assert_eq!(nll("mine", size).allocated_bytes, u64::from(4 * (size + 128)) * 512);
    }
    assert_eq!(nll("tova", 64).allocated_bytes, nll("mine", 64).allocated_bytes);

    // Of a layer with k entries the mean over tokens is that of min(t, k + 1) of t = 1 to 200.
    let identity = |size: usize| (1..=200).map(|t: usize| t.min(size + 1)).sum::<usize>() as f64;
    for (policy, size, sizes) in [
        ("mine", 64, [96, 64, 64, 32]),
        ("mine", 256, [384, 256, 256, 128]),
        ("pyramid", 64, [125, 84, 44, 3]),
        ("pyramid", 256, [499, 337, 175, 13]),
        ("tova", 64, [64; 4]),
    ] {
        for (layer, entries) in sizes.into_iter().enumerate() {
            let slice = Slice::number("layer", layer as u64);
            let lifetime = only(&rows, ("retention", "lifetime", Some(&slice)))(policy, size);
            assert_eq!(lifetime.value, identity(entries), "{policy} {size} {slice}");
            let recent = rows.iter().find(|row| {
                (&*row.metric, row.slice.as_ref()) == ("recent_share", Some(&slice))
                    && (&*row.policy, row.cache_size) == (policy, Some(size))
            });
            // After the cache is full, all its entries at every step.
            let kept = (entries < 200).then(|| ((200 - entries) * entries) as f64);
            assert_eq!(recent.map(|row| row.weight), kept, "{policy} {size} {slice}");
        }
    }
    for policy in ["mine", "pyramid"] {
        for size in [64, 256] {
            let answers = rows
                .iter()
                .filter(|row| row.metric == "new_tokens" && row.policy == policy && row.cache_size == Some(size));
            assert_eq!(answers.count(), 2, "{policy} {size}");
        }
    }
    let page = fs::read_to_string(folder.join("results/report.html")).unwrap();
    assert!(page.contains("budget pyramid 20") && page.contains("budget layers 3 2 2 1"));
}

#[test]
fn cells_whose_budget_does_not_fit_fail_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sweep = "models: [pocket]\npolicies: [tova, wrong, tight]\ndefine:\n  \
        wrong: {score: last_attention, scope: layer, budget: {layers: [1, 2, 1]}}\n  \
        tight: {score: recency, scope: layer, keep_first: 4, budget: {pyramid: 20}}\ncache_sizes: [64, 128]\n\
        tasks: [{perplexity: {dataset: embedded, length: 150, books: 1, chunks_per_book: 1}}]\n";
    write(folder, sweep);
    let plan = run(folder, &["plan", "sweep.yaml"]).with_code(4);
    for words in [
        "policy `wrong` cannot have a cache of 64: its `budget` has shares for 3 layers, and the model has 4",
        "policy `tight` cannot have a cache of 64: its budget `pyramid 20` leaves layer 3 (of 0 to 3) a size of 3",
    ] {
        assert!(plan.stdout.contains(words), "{words}: {}", plan.stdout);
    }
    // At 128 the last layer has 6 entries.
    assert!(!plan.stdout.contains("`tight` cannot have a cache of 128"), "{}", plan.stdout);
    let ended = run(folder, &["run", "sweep.yaml", "--results", "results", "--no-report"]);
    assert!(ended.stderr.contains("policy `wrong` cannot have a cache of 128"), "{}", ended.stderr);
    let measured: BTreeMap<(String, Option<u32>), usize> = measured(&folder.join("results"))
        .into_iter()
        .map(|row| ((row.policy.to_string(), row.cache_size), 1))
        .collect();
    let known: Vec<(&str, Option<u32>)> = measured.keys().map(|(policy, size)| (policy.as_str(), *size)).collect();
    assert_eq!(known, [("tight", Some(128)), ("tova", Some(64)), ("tova", Some(128))]);
}

/// Heads that share their entries: as many as without a pool, at every step and in bytes, however a text is read.
#[test]
fn pools_hold_as_much_as_without_one() {
    let model = load(&golden("yi-gqa"));
    let shape = model.shape();
    let heads = shape.layers * shape.heads.kv_heads;
    assert!(shape.layers > 1 && shape.heads.kv_heads > 1);
    let tokens: Vec<u32> = (0..150).map(|token| (token * 37 + token / 9 * token) % shape.vocab as u32).collect();
    let (size, prompt) = (20, 60);
    let mut uneven = 0;
    for score in ["attention", "sum(attention)", "ema(attention, 0.9) * value_norm", "-key_norm", "random"] {
        for (over, schedule) in ["heads", "model"]
            .iter()
            .flat_map(|over| ["1", "5", "cut", "cut+1", "cut+7"].map(|schedule| (*over, schedule)))
        {
            let with = |budget: &str| {
                let text = format!(
                    "score={score} scope=head keep_first=1 keep_recent=3 budget={budget} schedule={schedule}"
                );
                text.parse::<Policy>().unwrap().at(size).unwrap()
            };
            let what = format!("{score}, {over}, {schedule}");
            let every = with("uniform").schedule.every();
            let cuts = with("uniform").schedule.cuts();
            let held = |seen: usize| match every {
                _ if cuts && seen < prompt => seen,
                None => size + seen - prompt,
                Some(every) if cuts => size + (seen - prompt) % every,
                Some(_) if seen <= size => seen,
                Some(every) => size + (seen - size) % every,
            };
            let mut known: Option<Vec<Vec<Vec<u32>>>> = None;
            for piece in [1, 7, 150] {
                let mut memories = [with("uniform"), with(&format!("pool {over} 20%"))]
                    .map(|policy| model.new_memory(&MemoryPlan::bounded(policy)));
                let [uniform, pooled] = &mut memories;
                // The last 40 tokens are written: read one by one, with room for no more.
                for part in tokens[..prompt].chunks(piece).chain(tokens[prompt..110].chunks(piece)) {
                    for memory in [&mut *uniform, &mut *pooled] {
                        model.read(part, memory).unwrap();
                        if cuts && memory.seen() == prompt {
                            model.cut(memory).unwrap();
                        }
                    }
                    let sum = |memory: &Memory| memory.entries().iter().flatten().sum::<usize>();
                    assert_eq!(sum(pooled), heads * held(pooled.seen()), "{what}, {} tokens", pooled.seen());
                    assert_eq!(sum(pooled), sum(uniform), "{what}");
                }
                uniform.shrink_to_fit(40);
                pooled.shrink_to_fit(40);
                for token in &tokens[110..] {
                    model.step(&[*token, *token], &mut [&mut *uniform, &mut *pooled]).unwrap();
                    assert_eq!(
                        pooled.entries().iter().flatten().sum::<usize>(),
                        heads * held(pooled.seen()),
                        "{what}"
                    );
                    assert_eq!(pooled.bytes(), uniform.bytes(), "{what}, {} tokens", pooled.seen());
                }
                let survivors: Vec<Vec<Vec<u32>>> = pooled
                    .survivors()
                    .iter()
                    .map(|layer| layer.iter().map(|head| head.to_vec()).collect())
                    .collect();
                uneven += usize::from(survivors.iter().flatten().any(|head| head.len() != held(150)));
                assert!(survivors.iter().flatten().all(|head| head.len() >= 4 && head[0] == 0), "{what}");
                assert_eq!(known.get_or_insert(survivors.clone()), &survivors, "{what}, pieces of {piece}");
            }
        }
    }
    assert!(uneven > 100, "{uneven}");
}

/// Heads with sizes of their own, and some that keep everything.
#[test]
fn heads_have_the_sizes_of_a_table() {
    let model = load(&golden("yi-gqa"));
    let shape = model.shape();
    let (layers, kv_heads) = (shape.layers, shape.heads.kv_heads);
    let tokens: Vec<u32> = (0..150).map(|token| (token * 37 + token / 9 * token) % shape.vocab as u32).collect();
    let row = |layer: usize| {
        (0..kv_heads).map(|head| (layer + head).is_multiple_of(2).then_some((1 + layer + head) as f64)).collect()
    };
    let table: Vec<Vec<Option<f64>>> = (0..layers).map(row).collect();
    let budget = Budget::of_heads(&table, None).unwrap();
    let bounded: Vec<f64> = table.iter().flatten().flatten().copied().collect();
    for name in ["tova-head", "window+2"] {
        for schedule in ["1", "cut+1", "cut"] {
            let schedule: Schedule = schedule.parse().unwrap();
            let policy = Policy { scope: Scope::Head, schedule, ..policy(name, budget) };
            policy.check(20, &vec![true; layers], kv_heads).unwrap();
            let mut memory = model.new_memory(&MemoryPlan::bounded(policy.at(20).unwrap()));
            model.read(&tokens[..80], &mut memory).unwrap();
            model.cut(&mut memory).unwrap();
            model.read(&tokens[80..], &mut memory).unwrap();
            let more = if schedule == Schedule::Cut { 70 } else { 0 };
            let mut sum = 0;
            for (held, share) in memory.entries().iter().flatten().zip(table.iter().flatten()) {
                match share {
                    None => assert_eq!(*held, 150),
                    Some(share) => {
                        let target = 20.0 * bounded.len() as f64 * share / bounded.iter().sum::<f64>();
                        assert!((*held as f64 - more as f64 - target).abs() < 1.0, "{held} {target}");
                        sum += held - more;
                    }
                }
            }
            assert_eq!(sum, 20 * bounded.len());
            memory.shrink_to_fit(30);
            let bytes = memory.bytes();
            let entries: usize = memory.entries().iter().flatten().sum();
            let room: usize =
                table.iter().flatten().map(|share| if share.is_none() || more > 0 { 30 } else { 1 }).sum();
            assert_eq!(bytes, ((entries + room) * 2 * shape.head_dim * 4) as u64, "{name} {schedule}");
        }
    }
    let error = policy("tova-head", budget).check(20, &vec![true; layers + 1], kv_heads).unwrap_err().to_string();
    assert!(error.contains("key-value heads, and the model has"), "{error}");
    let error = policy("tova", budget).at(20).unwrap_err().to_string();
    assert!(error.contains("its scope must be head"), "{error}");
}
