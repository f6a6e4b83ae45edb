//! Retention: the eviction log of a small model against its survivors, and the task through the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::program::run;
use crate::support::rows::{assert_same, measured};
use tova_bench::eviction::formula::Function;
use tova_bench::eviction::presets::{self, PRESETS};
use tova_bench::eviction::{CacheOptions, Policy, Positions, Schedule, SizedPolicy};
use tova_bench::ledger::Row;
use tova_bench::lm::{Device, LanguageModel, MemoryPlan, WeightType, tiny_shape};
use tova_bench::metric::Slice;
use tova_bench::parquet::Table;
use tova_bench::task::Lifetimes;

fn tokens(count: usize) -> Vec<u32> {
    let mut random = fastrand::Rng::with_seed(11);
    (0..count).map(|_| random.u32(1..257)).collect()
}

/// Lifetimes of a text read in pieces of `chunk` tokens, and the survivors: (layers)(groups)(entries)
fn read(
    model: &LanguageModel,
    tokens: &[u32],
    (policy, positions): (SizedPolicy, Positions),
    chunk: usize,
) -> (Lifetimes, Vec<Vec<Vec<u32>>>) {
    let options = CacheOptions { positions, ..CacheOptions::default() };
    let mut memory = model.new_memory(&MemoryPlan { options, log: true, ..MemoryPlan::bounded(policy) });
    let shape = model.shape();
    let mut lifetimes = Lifetimes::new(&vec![shape.heads.groups(policy.scope); shape.layers], tokens.len());
    for piece in tokens.chunks(chunk) {
        model.read(piece, &mut memory).unwrap();
        lifetimes.add(&memory.take_log());
    }
    assert!(memory.take_log().iter().all(Vec::is_empty), "the log was taken");
    let owned = |groups: &Vec<&[u32]>| groups.iter().map(|born| born.to_vec()).collect();
    (lifetimes, memory.survivors().iter().map(owned).collect())
}

#[test]
fn the_log_of_every_policy_agrees_with_its_survivors_and_the_counting_identity() {
    let model = LanguageModel::random(tiny_shape(), 1.0, 5, WeightType::Auto, &Device::CPU).unwrap();
    // No text is known before it is read here, tokens have no texts, and there is no prompt. Where queries select, nothing leaves.
    let known = |policy: &Policy| {
        let Policy { score, schedule, select_from, .. } = *policy;
        let is_known =
            schedule == Schedule::EVERY_TOKEN && !score.reads_future() && !score.calls(Function::TokenIn);
        is_known && select_from.is_none()
    };
    let presets = PRESETS.iter().filter(|preset| preset.policy().ok().as_ref().is_some_and(known));
    let mut names: Vec<String> = presets.map(|preset| preset.name.to_string()).collect();
    names.extend(["window+4", "tova+4", "h2o+2"].map(String::from));
    for name in &names {
        for size in [6, 100, 130] {
            // Some protect more than 6 entries.
            let Ok(policy) = presets::by_name(name).unwrap().at(size) else { continue };
            for length in [5, 130, 290] {
                for positions in [Positions::Absolute, Positions::Slot, Positions::Squeezed] {
                    let what = format!("{name} at {size}, {length} tokens, {positions:?}");
                    let tokens = tokens(length);
                    let (whole, survivors) = read(&model, &tokens, (policy, positions), length);
                    for (layer, survivors) in survivors.iter().enumerate() {
                        let stayed = |left: &Vec<u32>| -> Vec<u32> {
                            (0..length as u32).filter(|token| left[*token as usize] == length as u32).collect()
                        };
                        assert_eq!(&whole.left(layer).iter().map(stayed).collect::<Vec<_>>(), survivors, "{what}");
                        let identity: usize = (1..=length).map(|t| t.min(size + 1)).sum();
                        assert_eq!(whole.of_layer(layer).iter().sum::<f64>(), identity as f64, "{what}");
                        if name == "window" {
                            let [recent, kept] = whole.recent(layer, &[size]);
                            assert_eq!(recent, kept);
                        }
                    }
                    if positions != Positions::Squeezed {
                        let (pieces, _) = read(&model, &tokens, (policy, positions), 128);
                        assert_eq!(pieces, whole, "{what}");
                    }
                }
            }
        }
    }
    // Nothing is logged unless requested.
    let policy = presets::by_name("tova").unwrap().at(6).unwrap();
    let mut memory = model.new_memory(&MemoryPlan::bounded(policy));
    model.read(&tokens(50), &mut memory).unwrap();
    assert!(memory.take_log().iter().all(Vec::is_empty));
}

const SWEEP: &str = "models: [random-tiny]\n\
    policies: [full, truncate, window+4, tova, tova-head, h2o]\n\
    cache_sizes: [16, 100, 4096]\n\
    tasks:\n  - retention: {dataset: ./texts, length: 200, chunks_per_book: 2, map_layers: [1], eviction_log: true}\n";

/// A folder with the sweep and two books, whose names cannot be used as names of result files.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sweep.yaml"), SWEEP).unwrap();
    fs::create_dir(folder.path().join("texts")).unwrap();
    let text =
        "\"It isn't the dog's $5,\" said Mr. Née—of (old) London.\n\nThey went on: 17 of them; “quickly”!\n";
    for name in ["a b'é.txt", "a b-é.txt"] {
        fs::write(folder.path().join("texts").join(name), format!("{name} {}", text.repeat(12))).unwrap();
    }
    folder
}

#[test]
fn rows_split_the_log_into_groups() {
    let folder = folder();
    let folder = folder.path();
    run(folder, &["run", "sweep.yaml", "--results", "one"]).with_code(0).says(&["16 cells measured"]);
    let rows = measured(&folder.join("one"));
    for whole in rows.iter().filter(|row| row.metric == "lifetime" && row.slice.is_none()) {
        let Row { policy, cache_size: size, sample, value, weight, .. } = whole;
        let (value, weight) = (*value, *weight);
        let what = format!("{policy} at {size:?}, {sample}");
        assert_eq!(weight, 400.0, "{what}");
        let identity = |size: usize| 2.0 * (1..=200usize).map(|t| t.min(size + 1)).sum::<usize>() as f64;
        if policy != "truncate" {
            assert_eq!(value, identity(size.map_or(4096, |size| size as usize)), "{what}");
        }
        // Layers, positions and classes each cover all tokens, tags only those of words.
        for kind in ["layer", "position", "class", "tag"] {
            let parts = rows.iter().filter(|row| {
                (&row.policy, &row.cache_size, &row.sample, row.metric.as_str())
                    == (policy, size, sample, "lifetime")
                    && row.slice.as_ref().is_some_and(|slice| slice.is(kind))
            });
            let (steps, tokens) = parts.fold((0.0, 0.0), |sums, row| (sums.0 + row.value, sums.1 + row.weight));
            match kind {
                "tag" => assert!(tokens < weight && tokens > 0.5 * weight, "{what}"),
                _ => assert!((steps - value).abs() < 1e-6 && tokens == weight, "{what} by {kind}"),
            }
        }
    }
    let groups = |metric: &str| -> Vec<String> {
        let of_metric = rows.iter().filter(|row| row.metric == metric);
        let mut groups: Vec<String> = of_metric.map(|row| Slice::text(row.slice.as_ref())).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    };
    for group in
        ["class:possessive", "class:currency", "class:opening_quote", "class:newline", "tag:PROPN", "position:31"]
    {
        assert!(groups("lifetime").iter().any(|known| known == group), "{group}");
    }
    assert_eq!(groups("recent_share"), ["", "layer:0", "layer:1"]);
    assert_eq!(groups("kept_until"), ["layer:1", "layer:1 head:0", "layer:1 head:1"]);
    let shares = |policy: &str| {
        let rows = rows.iter().filter(|row| row.metric == "recent_share" && row.policy == policy);
        rows.map(|row| row.value / row.weight).collect::<Vec<_>>()
    };
    assert!(shares("full").is_empty() && shares("truncate").is_empty());
    // Except in the first steps, four entries are not among the recent ones.
    let near =
        |share: &f64| [12.0 / 16.0, 96.0 / 100.0].iter().any(|other| (0.0..0.01).contains(&(share - other)));
    assert!(shares("window+4").iter().all(near), "{:?}", shares("window+4"));
    for row in rows.iter().filter(|row| row.metric == "lifetime_by_token") {
        let table: BTreeMap<String, (u64, f64, u64, f64)> =
            serde_json::from_str(row.output.as_deref().unwrap()).unwrap();
        assert_eq!(table.values().map(|sums| sums.0).sum::<u64>(), 200);
        let steps: f64 = table.values().map(|sums| sums.1).sum();
        assert!((steps - row.value / 2.0).abs() < 0.1 * table.len() as f64, "{steps} {}", row.value);
        assert!(table.contains_key("<s>") && table.contains_key("\n"), "{table:?}");
        // Positions 0 to 100 have at least half of the sample before them.
        assert_eq!(table.values().map(|sums| sums.2).sum::<u64>(), 101);
        if (row.policy.as_str(), row.cache_size) == ("window+4", Some(16)) {
            // Every token is visible for 13 steps, the first four to the end, and the last of a sample for fewer.
            let mean = |[times, steps]: [f64; 2]| steps / times;
            let all = table.values().map(|sums| mean([sums.0 as f64, sums.1]));
            let counted = table.values().filter(|sums| sums.2 > 0).map(|sums| mean([sums.2 as f64, sums.3]));
            assert!(all.fold(f64::INFINITY, f64::min) < 12.9, "{table:?}");
            assert!((counted.fold(f64::INFINITY, f64::min) - 13.0).abs() < 0.1, "{table:?}");
        }
    }
    let report = fs::read_to_string(folder.join("one/report.md")).unwrap();
    assert!(report.contains("## What is kept") && report.contains("| class possessive |"), "{report}");
    let figures: Vec<PathBuf> =
        fs::read_dir(folder.join("one/figures")).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(figures.iter().any(|path| path.to_string_lossy().ends_with("-tova-100-layers.svg")), "{figures:?}");
}

/// The groups of each layer and the steps at which tokens leave, as a page of `show` has them.
fn page_data(page: &str) -> Value {
    let data = crate::show::data(page);
    let side = &data["sides"][0];
    json!({ "groups": side["groups"], "left": crate::show::shorts(&side["left"]) })
}

/// The side files of a cell, by name.
fn side_files(results: &Path, cell: &str) -> BTreeMap<String, Table> {
    let logs = fs::read_dir(results.join("logs")).unwrap().map(|entry| entry.unwrap().path());
    let Some(folder) = logs.into_iter().find(|path| path.to_string_lossy().contains(cell)) else {
        return BTreeMap::new();
    };
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = files.filter(|file| file.path().extension().unwrap() == "parquet");
    let read = |path: &Path| Table::from_parquet(fs::read(path).unwrap()).unwrap();
    files.map(|file| (file.file_name().into_string().unwrap(), read(&file.path()))).collect()
}

#[test]
fn side_files_hold_the_log_and_the_tokens() {
    let folder = folder();
    let folder = folder.path();
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", "one"]).with_code(0);
    let results = folder.join("one");
    let rows = measured(&results);
    for cell in ["__tova__16__", "__h2o__100__", "__tova-head__16__"] {
        let files = side_files(&results, cell);
        // Two samples of each of two books whose names differ only in one special character.
        assert_eq!(files.len(), 12, "{:?}", files.keys());
        assert!(
            files.keys().all(|name| name.is_ascii() && !name.contains([' ', '\'', '#'])),
            "{:?}",
            files.keys()
        );
        let is_log = |name: &str| !name.contains(".tokens.") && !name.contains(".groups.");
        for (name, log) in files.iter().filter(|(name, _)| is_log(name)) {
            let tokens = &files[&name.replace(".parquet", ".tokens.parquet")];
            assert_eq!(tokens.column::<u32>("position").unwrap(), (0..200).collect::<Vec<_>>());
            let classes = tokens.column::<String>("class").unwrap();
            assert_eq!(classes[0], "first");
            assert_eq!(tokens.column::<Option<String>>("tag").unwrap()[0], None);
            let size = if cell.contains("100") { 100 } else { 16 };
            let groups = if cell.contains("__tova__") { 1 } else { 2 };
            assert_eq!(log.height(), 2 * groups * (200 - size));
            let counts = &files[&name.replace(".parquet", ".groups.parquet")];
            assert_eq!(counts.column::<u32>("groups").unwrap(), [groups as u32; 2]);
        }
        // The map of the first sample is its log.
        let map = rows.iter().filter(|row| {
            row.metric == "kept_until" && cell == format!("__{}__{}__", row.policy, row.cache_size.unwrap_or(0))
        });
        for row in map {
            let group = row.slice.as_ref().unwrap().second.unwrap_or(0) as u32;
            let left: Vec<u32> = row.output.as_deref().unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
            let steps: u32 = left.iter().enumerate().map(|(token, left)| (left + 1).min(200) - token as u32).sum();
            assert_eq!((row.value, row.weight), (f64::from(steps), 200.0));
            let same = |log: &Table| {
                let column = |name| log.column::<u32>(name).unwrap();
                let entries =
                    column("layer").into_iter().zip(column("group")).zip(column("step")).zip(column("victim"));
                let own = entries.filter(|(((layer, of), _), _)| (*layer, *of) == (1, group));
                let mut from_log = vec![200; 200];
                own.for_each(|((_, step), victim)| from_log[victim as usize] = step);
                from_log == left
            };
            assert_eq!(files.iter().filter(|(name, log)| is_log(name) && same(log)).count(), 1);
        }
    }
    for cell in ["__full__", "__truncate__16__", "__tova__4096__"] {
        assert!(side_files(&results, cell).is_empty(), "{cell}");
    }
    // The report links each sample's page, which has what is in the log.
    run(folder, &["report", "one", "--format", "html"]).with_code(0);
    let report = fs::read_to_string(results.join("report.html")).unwrap();
    let links: Vec<&str> = report.split("href=\"").filter_map(|rest| rest.split('"').next()).collect();
    let links: BTreeSet<&str> = links.into_iter().filter(|link| link.starts_with("logs/")).collect();
    let logs = fs::read_dir(results.join("logs")).unwrap().count();
    assert_eq!(links.len(), 4 * logs);
    for link in links {
        let data = page_data(&fs::read_to_string(results.join(link)).unwrap());
        let base = results.join(link.strip_suffix(".html").unwrap());
        let log = Table::from_parquet(fs::read(base.with_added_extension("parquet")).unwrap()).unwrap();
        let groups: Vec<usize> = serde_json::from_value(data["groups"].clone()).unwrap();
        let mut left = vec![200; 200 * groups.iter().sum::<usize>()];
        let column = |name| log.column::<u32>(name).unwrap().into_iter().map(|number| number as usize);
        for (((layer, group), step), victim) in
            column("layer").zip(column("group")).zip(column("step")).zip(column("victim"))
        {
            left[(groups[..layer].iter().sum::<usize>() + group) * 200 + victim] = step;
        }
        assert_eq!(data["left"], json!(left), "{link}");
    }
    // Nothing is measured again, and rows do not depend on which run measured them.
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", "two", "--limit", "5", "--threads", "1"])
        .with_code(0);
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", "two", "--threads", "3"])
        .with_code(0)
        .says(&["11 cells measured, 5 were there already"]);
    assert_same(&measured(&folder.join("two")), &rows);
    // A cell with logs is another, so that logs that are asked for are there.
    fs::write(folder.join("sweep.yaml"), SWEEP.replace(", eviction_log: true", "")).unwrap();
    run(folder, &["run", "sweep.yaml", "--no-report", "--results", "one"])
        .with_code(0)
        .says(&["16 cells measured, 0 were there already"]);
}

#[test]
fn layers_that_the_model_lacks_are_named() {
    let folder = folder();
    let folder = folder.path();
    let refused = |from: &str, to: &str, code: i32, words: &[&str]| {
        fs::write(folder.join("wrong.yaml"), SWEEP.replace(from, to)).unwrap();
        run(folder, &["run", "wrong.yaml", "--no-report", "--results", "wrong"]).with_code(code).says(words);
    };
    refused("map_layers: [1]", "map_layers: [2]", 1, &["layer 2", "layers 0 to 1"]);
    refused("map_layers: [1]", "map_layers: []", 2, &["`map_layers` is empty", "wrong.yaml:5:"]);
    refused("map_layers: [1]", "map_layers: [1, 1]", 2, &["layer 1 is listed twice"]);
    refused("map_layers: [1]", "maps: -1", 2, &["whole number", "wrong.yaml:5:"]);
    refused("map_layers: [1]", "compare_to_full: true", 2, &["compare_to_full", "unknown"]);
    // Without maps there are no layers.
    fs::write(folder.join("none.yaml"), SWEEP.replace("map_layers: [1]", "maps: 0")).unwrap();
    run(folder, &["run", "none.yaml", "--results", "none"]).with_code(0);
    assert!(measured(&folder.join("none")).iter().all(|row| row.metric != "kept_until"));
    assert!(fs::read_to_string(folder.join("none/report.md")).unwrap().contains("## What is kept"));
}
