//! Memory that caches hold over time, from a sweep to its rows, against a count of every entry in the eviction logs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::checkpoint::{golden, write_tokenizer};
use crate::support::program::run;
use crate::support::rows::measured;
use crate::support::sweep::write_texts;
use tova_bench::ledger::Row;
use tova_bench::parquet::Table;

/// A model: its golden, the window of each layer, key-value heads, and numbers that an entry of a head holds.
type Model = (&'static str, &'static [Option<usize>], usize, usize);

const WINDOW: Option<usize> = Some(24);
const MODELS: [Model; 3] = [
    ("gemma3", &[WINDOW, WINDOW, None, WINDOW, WINDOW, None], 1, 2 * 8),
    // A latent vector and a rotated key, which all heads share.
    ("deepseek-v2", &[None; 3], 1, 16 + 8),
    ("qwen3-moe", &[None; 3], 2, 2 * 12),
];
const TOKENS: usize = 150;
const PROMPT: usize = 90;

/// For models with windows only schedules that evict after every token hold in all layers.
const EXEMPT: &str = "full, window+4, tova, h2o, tova@cut+1, tova@exempt, tova@16@exempt, tova@cut@exempt, h2o@cut@exempt, \
                      thirds, blocks@exempt";
const ALL: &str = "full, window+4, tova, tova-head, h2o, tova@16, h2o@7, tova@cut, h2o@cut+8, tova@cut+1, window+4@cut, pyramid, \
                   pyramid@16, thirds, thirds@cut, blocks";

/// Runs a sweep of both kinds of policies with sizes such as `cache_sizes: [12, 40]`, and returns rows of `nll`.
fn rows(path: &Path, name: &str, model: &Model, sizes: &str) -> Vec<Row> {
    let policies = if model.1.contains(&WINDOW) { EXEMPT } else { ALL };
    let layers = model.1.len();
    let thirds: Vec<String> = (0..layers).map(|layer| (layers - layer).to_string()).collect();
    let sweep = format!(
        "models: [./{}]\npolicies: [{policies}]\n{sizes}\ndefine:\n\
         \x20 thirds: {{score: attention, scope: layer, budget: {{layers: [{}]}}}}\n\
         \x20 pyramid: {{score: attention, scope: head, keep_recent: 2, budget: {{pyramid: 3}}}}\n\
         \x20 blocks: {{score: \"block(attention, 5)\", scope: layer, schedule: cut}}\n\
         tasks:\n  - perplexity: {{dataset: ./texts, length: {TOKENS}, prompt: {PROMPT}, books: 1, chunks_per_book: 1, eviction_log: true}}\n",
        model.0,
        thirds.join(", ")
    );
    let unlisted = ["pyramid:"].iter().filter(|name| !policies.contains(name.trim_end_matches(':')));
    let unlisted: Vec<&str> = unlisted.copied().collect();
    let sweep: String = sweep
        .lines()
        .filter(|line| !unlisted.iter().any(|name| line.trim_start().starts_with(name)))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(path.join(format!("{name}.yaml")), sweep).unwrap();
    run(path, &["run", &format!("{name}.yaml"), "--no-report", "--results", name]).with_code(0);
    let rows = measured(&path.join(name)).into_iter();
    rows.filter(|row| row.metric == "nll" && row.slice.is_none()).collect()
}

fn models(path: &Path) {
    write_texts(path, 1, 300);
    for (name, ..) in MODELS {
        fs::create_dir(path.join(name)).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(golden(&format!("families/{name}")).join(file), path.join(name).join(file)).unwrap();
        }
        write_tokenizer(&path.join(name), 64);
    }
}

/// Evictions of a cell: layer, group, step, victim. Empty where nothing was evicted.
fn log(results: &Path, cell: &str) -> BTreeSet<[u32; 4]> {
    let Ok(folders) = fs::read_dir(results.join("logs")) else { return BTreeSet::new() };
    let mut folders = folders.map(|entry| entry.unwrap().path());
    let Some(folder) = folders.find(|folder| folder.to_string_lossy().ends_with(cell)) else {
        return BTreeSet::new();
    };
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_log = |file: &PathBuf| {
        ![".tokens.", ".groups.", ".html"].iter().any(|kind| file.to_string_lossy().contains(kind))
    };
    let Some(file) = files.find(is_log) else { return BTreeSet::new() };
    let table = Table::from_parquet(fs::read(file).unwrap()).unwrap();
    let [layers, groups, steps, victims] =
        ["layer", "group", "step", "victim"].map(|name| table.column::<u32>(name).unwrap());
    (0..layers.len()).map(|at| [layers[at], groups[at], steps[at], victims[at]]).collect()
}

/// Bytes at 16 bits a number that are held after 0, 1, 2 ... tokens, entry by entry.
fn held(model: &Model, row: &Row, log: &BTreeSet<[u32; 4]>) -> Vec<u64> {
    held_in(model, row, log, &|entries| entries * 2 * model.3)
}

/// As [`held`], where so many entries of a head take `bytes_of` bytes.
fn held_in(model: &Model, row: &Row, log: &BTreeSet<[u32; 4]>, bytes_of: &dyn Fn(usize) -> usize) -> Vec<u64> {
    let (_, windows, heads, _) = *model;
    let mut bytes = vec![0; TOKENS + 1];
    for (layer, window) in windows.iter().enumerate() {
        for head in 0..heads {
            let group = if row.scope.as_deref() == Some("head") { head } else { 0 };
            let own = log
                .iter()
                .filter(|[in_layer, in_group, ..]| (*in_layer as usize, *in_group as usize) == (layer, group));
            let left: Vec<(usize, usize)> =
                own.map(|[_, _, step, victim]| (*step as usize, *victim as usize)).collect();
            let mut before = 0;
            for (tokens, bytes) in bytes.iter_mut().enumerate() {
                let first = tokens.saturating_sub(window.unwrap_or(usize::MAX));
                let gone: BTreeSet<usize> =
                    left.iter().filter(|(step, _)| *step < tokens).map(|(_, victim)| *victim).collect();
                let others = (first..tokens).filter(|token| !gone.contains(token)).count();
                // The log also has what a window passes, which is still held while the token that passes it is the last. Where a full
                // cache has as many entries without it, the policy took that entry.
                let is_passed = tokens > 0 && window.is_some() && left.contains(&(tokens - 1, first));
                let is_growing = before + 1 == tokens;
                // A cut takes many at once.
                let is_cut = row.schedule.as_deref() == Some("cut+1") && tokens == PROMPT;
                let held =
                    match row.cache_size.filter(|_| is_cut && row.local_layers.as_deref() == Some("bounded")) {
                        Some(size) => (others + usize::from(is_passed)).min(size as usize),
                        None => others + usize::from(is_passed && (is_growing || others < before)),
                    };
                before = held;
                *bytes += bytes_of(held) as u64;
            }
        }
    }
    bytes
}

#[test]
fn held_bytes_are_those_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    models(path);
    let mut cells = 0;
    for model in MODELS {
        let name = format!("sizes-{}", model.0);
        for row in rows(path, &name, &model, "cache_sizes: [17, 60]") {
            let log = log(&path.join(&name), &row.cell);
            let held_after = held(&model, &row, &log);
            let mean = held_after[PROMPT..TOKENS].iter().sum::<u64>() as f64 / (TOKENS - PROMPT) as f64;
            let cut = row.schedule.as_deref().is_some_and(|schedule| schedule.starts_with("cut"));
            let whole = if cut { held(&model, &Row::default(), &BTreeSet::new())[PROMPT] } else { 0 };
            let peak = held_after[1..TOKENS].iter().copied().max().unwrap().max(whole);
            let what = format!("{} {} {:?}", model.0, row.variant(), row.cache_size);
            assert_eq!((row.held_bytes, row.peak_bytes), (Some(mean), Some(peak)), "{what}");
            assert!(row.policy == "full" || !log.is_empty() || row.cache_size > Some(24), "{what}");
            cells += 1;
        }
    }
    assert!(cells >= 40, "{cells}");
}

/// What a token's prediction reads: all that is held where entries leave, and by hand where queries select.
#[test]
fn read_bytes_are_of_what_queries_attend_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_texts(path, 1, 300);
    let sweep = format!(
        "models: [pocket]\npolicies: [full, tova@cut, h2o@8, top-k, top-k@cut@q8_0, quest]\ncache_sizes: [20, 48]\n\
         tasks:\n  - perplexity: {{dataset: ./texts, length: {TOKENS}, prompt: {PROMPT}, books: 1, chunks_per_book: 1}}\n"
    );
    fs::write(path.join("read.yaml"), sweep).unwrap();
    run(path, &["run", "read.yaml", "--no-report", "--results", "read"]).with_code(0);
    // Four layers of two heads, with keys and values of 32 numbers.
    let (all, each) = (8.0, |format: Option<&str>| if format == Some("q8_0") { 68.0 } else { 128.0 });
    let mean = |of: &dyn Fn(usize) -> f64| (PROMPT..TOKENS).map(of).sum::<f64>() / (TOKENS - PROMPT) as f64;
    let rows = measured(&path.join("read"));
    let mut selecting = 0;
    for row in rows.iter().filter(|row| row.metric == "nll" && row.slice.is_none()) {
        let each = each(row.format.as_deref());
        let size = row.cache_size.map_or(0.0, f64::from);
        // Of the first two layers all is read, and of the others the bounds of pages: two keys of 16 bits a number each.
        let expected = match row.policy.as_str() {
            "top-k" => mean(&|_| all * each * size),
            "quest" => mean(&|held| all / 2.0 * (each * (held as f64 + size) + 128.0 * held.div_ceil(16) as f64)),
            _ => row.held_bytes.unwrap(),
        };
        let what = format!("{} {:?}", row.variant(), row.cache_size);
        assert!((row.read_bytes.unwrap() - expected).abs() < 1e-6, "{what}: {:?} and {expected}", row.read_bytes);
        if row.select_from.is_some() {
            assert_eq!(row.held_bytes, Some(mean(&|held| all * each * held as f64)), "{what}");
            selecting += 1;
        }
    }
    assert_eq!(selecting, 6);
}

/// Bytes of a key or value of 32 numbers of the built-in model, by hand: integers, and scales in f16.
fn bytes_of_vector(format: &str) -> usize {
    match format.trim_end_matches('h') {
        "f32" | "f16" | "bf16" => 64,
        "fp8_e4m3" | "fp8_e5m2" => 32,
        "q8_0" => 2 + 32,
        "q5_1" => 4 + 20,
        "q5_0" => 2 + 20,
        "q4_1" => 4 + 16,
        "q4_0" | "iq4_nl" => 2 + 16,
        "turbo-4" => 2 + 16,
        "turbo-3" => 2 + 12,
        other => panic!("{other}"),
    }
}

/// Every format with cuts, bursts, a budget of layers and the full cache: held and peak bytes against the logs, and what is allocated.
#[test]
fn held_bytes_are_of_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_texts(path, 1, 300);
    let sweep = format!(
        "models: [pocket]\npolicies: [full, full@q8_0, full@q4_0/turbo-3, truncate@q8_0, window+4@f16, tova@q8_0, tova@16@q4_1, \
         tova@cut@q5_1, tova-head@iq4_nl, h2o@turbo-3, h2o@cut+8@fp8_e4m3, mine, snapkv@q4_0h/bf16, tova@turbo-4/q8_0h, window@fp8_e5m2]\n\
         cache_sizes: [70, 100]\ndefine:\n\
         \x20 mine: {{score: attention, scope: layer, budget: {{layers: [4, 3, 2, 1]}}, format: {{keys: q8_0, values: q5_0}}}}\n\
         tasks:\n  - perplexity: {{dataset: ./texts, length: {TOKENS}, prompt: {PROMPT}, books: 1, chunks_per_book: 1, eviction_log: true}}\n"
    );
    fs::write(path.join("formats.yaml"), sweep).unwrap();
    run(path, &["run", "formats.yaml", "--no-report", "--results", "formats"]).with_code(0);
    let rows = measured(&path.join("formats"));
    let model: Model = ("pocket", &[None; 4], 2, 64);
    let mut formats = BTreeSet::new();
    for row in rows.iter().filter(|row| row.metric == "nll" && row.slice.is_none() && row.policy != "truncate") {
        let format = row.format.as_deref().unwrap();
        let (keys, values) = format.split_once('/').unwrap_or((format, format));
        let each = bytes_of_vector(keys) + bytes_of_vector(values);
        let log = log(&path.join("formats"), &row.cell);
        let held = |row: &Row, log: &BTreeSet<[u32; 4]>| held_in(&model, row, log, &|entries| entries * each);
        let held_after = held(row, &log);
        let mean = held_after[PROMPT..TOKENS].iter().sum::<u64>() as f64 / (TOKENS - PROMPT) as f64;
        let cut = row.schedule.as_deref().is_some_and(|schedule| schedule.starts_with("cut"));
        let whole = if cut { held(&Row::default(), &BTreeSet::new())[PROMPT] } else { 0 };
        let peak = held_after[1..TOKENS].iter().copied().max().unwrap().max(whole);
        let what = format!("{} {:?}", row.variant(), row.cache_size);
        assert_eq!((row.held_bytes, row.peak_bytes), (Some(mean), Some(peak)), "{what}");
        // The program rounds a room up to whole lanes, and has one for a block.
        if format != "f32" {
            let most = (held_after.iter().copied().max().unwrap().max(whole) / each as u64 + 8 * (128 + 32))
                * each as u64;
            assert!(
                (peak..=most).contains(&row.allocated_bytes),
                "{what}: {} of {peak} to {most}",
                row.allocated_bytes
            );
        }
        formats.insert(format.to_owned());
    }
    assert!(formats.len() >= 13, "{formats:?}");
}

#[test]
fn memory_is_the_largest_size_that_holds_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    models(path);
    for model in MODELS {
        let name = model.0;
        let of_prompt = held(&model, &Row::default(), &BTreeSet::new())[PROMPT] as f64;
        let by_memory = rows(path, &format!("memory-{name}"), &model, "memory: [80%, 90%]");
        let by_memory: Vec<Row> = by_memory.into_iter().filter(|row| row.policy != "full").collect();
        let found = by_memory.iter().map(|row| row.cache_size.unwrap());
        let sizes: BTreeSet<u32> = found.flat_map(|size| [size, size + 1]).collect();
        let by_size =
            rows(path, &format!("sizes-{name}"), &model, &format!("cache_sizes: {:?}", Vec::from_iter(sizes)));
        let at = |row: &Row, size: u32| {
            let same = |other: &&Row| other.variant() == row.variant() && other.cache_size == Some(size);
            by_size.iter().find(same).unwrap()
        };
        for row in &by_memory {
            let size = row.cache_size.unwrap();
            let what = format!("{name} {} {:?} {size}", row.variant(), row.cache_memory);
            let share: f64 = row.cache_memory.as_deref().unwrap().trim_end_matches('%').parse().unwrap();
            let most = of_prompt * share / 100.0;
            assert!(row.held_bytes.unwrap() <= most, "{what}");
            assert_eq!(at(row, size).held_bytes, row.held_bytes, "{what}");
            // Whole blocks leave less than there is room for.
            assert!(row.policy == "blocks" || at(row, size + 1).held_bytes.unwrap() > most, "{what}");
        }
    }
}
