//! Texts far longer than a cache: scored as a whole, in constant memory, and drawn as a running average.

use std::fs;
use std::ops::Range;

use crate::support::program::run;
use crate::support::rows::measured;
use crate::support::sweep::{SMALL, Sweep, write_texts};
use tova_bench::eviction::{CacheOptions, Positions, presets};
use tova_bench::ledger::Row;
use tova_bench::lm::source::HubSettings;
use tova_bench::lm::{Device, LanguageModel, MemoryPlan, ModelFiles, WeightType};

const LENGTH: usize = 9000;
const POLICIES: [(&str, Positions); 5] = [
    ("tova", Positions::Absolute),
    ("tova", Positions::Squeezed),
    ("window+4", Positions::Slot),
    ("h2o", Positions::Slot),
    ("knorm", Positions::Squeezed),
];
const SIZE: usize = 50;

/// The NLLs of a text that is read at once.
fn in_one_read(model: &LanguageModel, tokens: &[u32], policy: &str, positions: Positions) -> Vec<f32> {
    let policy = presets::by_name(policy).unwrap().at(SIZE).unwrap();
    let options = CacheOptions { positions, ..CacheOptions::default() };
    let mut memory = model.new_memory(&MemoryPlan { options, ..MemoryPlan::bounded(policy) });
    let states = model.read(tokens, &mut memory).unwrap();
    model.nll(&states.narrow(0, 0, tokens.len() - 1).unwrap(), &tokens[1..]).unwrap()
}

/// The positions of a slice.
fn positions_of(row: &Row, kind: &str) -> Option<Range<usize>> {
    let slice = row.slice.as_ref().filter(|slice| slice.is(kind))?;
    Some(slice.low? as usize..slice.high? as usize + 1)
}

#[test]
fn a_long_text_is_scored_chunk_by_chunk_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 2, 2500);
    Sweep {
        policies: "[full, truncate, tova, tova@squeezed, window+4@slot, h2o@slot, knorm@squeezed]",
        cache_sizes: "[50]",
        tasks: &["dataset: ./texts, length: 9000, chunks_per_book: 1", "dataset: ./texts, length: 500"],
        ..SMALL
    }
    .write(folder);
    run(folder, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let rows = measured(&folder.join("results"));

    let files =
        ModelFiles::find(&"random-tiny".parse().unwrap(), None, &HubSettings::with_cache_dir("nowhere"), &())
            .unwrap();
    let model = files.load(WeightType::Auto, &Device::CPU).unwrap();
    let tokenizer = files.tokenizer().unwrap();
    let book = fs::read_to_string(folder.join("texts/book-0.txt")).unwrap();
    let bos = tokenizer.adds_bos().then(|| tokenizer.bos().unwrap());
    let text = tokenizer.encode(&book).unwrap().ids;
    let tokens: Vec<u32> = bos.into_iter().chain(text).take(LENGTH).collect();

    for (policy, positions) in POLICIES {
        let nll = in_one_read(&model, &tokens, policy, positions);
        let of_cell = |row: &&Row| {
            row.policy == policy
                && row.positions == positions.name()
                && row.length as usize == LENGTH
                && row.metric == "nll"
                && row.cluster == "book-0.txt"
        };
        let mine: Vec<&Row> = rows.iter().filter(of_cell).collect();
        let mut seen = [0usize; 3];
        for row in mine {
            let (kind, range) = match (positions_of(row, "position"), positions_of(row, "piece")) {
                (Some(range), _) => (1, range),
                (_, Some(range)) => (2, range),
                _ => (0, 0..LENGTH),
            };
            // The first token has nothing before it.
            let range = range.start.max(1)..range.end.min(LENGTH);
            let sum: f64 = nll[range.start - 1..range.end - 1].iter().map(|nll| f64::from(*nll)).sum();
            let what = format!("{policy} {} {:?}", positions.name(), row.slice);
            assert_eq!(row.weight, range.len() as f64, "{what}");
            assert!((row.value - sum).abs() < 1e-9 * sum, "{what}: {} is not {sum}", row.value);
            seen[kind] += range.len();
        }
        // The octaves and the pieces each cover the whole exactly once.
        assert_eq!(seen, [LENGTH - 1; 3], "{policy} {}", positions.name());
    }
    // A bounded cache does not depend on the text's length; the full cache grows with it.
    let bytes = |policy: &str, length: u32| {
        let of = rows.iter().filter(|row| row.policy == policy && row.length == length);
        of.map(|row| row.allocated_bytes).max().unwrap()
    };
    for (policy, _) in POLICIES {
        assert_eq!(bytes(policy, 9000), bytes(policy, 500), "{policy}");
    }
    assert!(bytes("full", 9000) > 10 * bytes("full", 500));
    assert!(rows.iter().all(|row| row.length == 9000 || positions_of(row, "piece").is_none()));
}

#[test]
fn the_report_draws_the_running_average() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_texts(folder, 3, 1200);
    Sweep {
        policies: "[window+4@slot, tova@squeezed]",
        cache_sizes: "[50]",
        tasks: &["dataset: ./texts, length: 4700, chunks_per_book: 1"],
        ..SMALL
    }
    .write(folder);
    run(folder, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let rows = measured(&folder.join("results"));
    let report = fs::read_to_string(folder.join("results/report.csv")).unwrap();
    let fields: Vec<Vec<&str>> = report.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| fields[0].iter().position(|field| *field == name).unwrap();
    let mut compared = 0;
    for (policy, label) in [("window+4", "window+4@slot"), ("tova", "tova@squeezed")] {
        for end in [128, 256, 4096, 4352, 4608, 4700] {
            let group = format!("running:{end}");
            let wanted = |line: &&Vec<&str>| {
                line[column("slice")] == group
                    && line[column("policy")] == label
                    && line[column("metric")] == "nll"
            };
            let line = fields.iter().find(wanted).unwrap_or_else(|| panic!("{label} {group}:\n{report}"));
            let pieces = rows.iter().filter(|row| row.policy == policy && row.metric == "nll");
            let before = pieces.filter(|row| positions_of(row, "piece").is_some_and(|place| place.start < end));
            let (nll, tokens) = before.fold((0.0, 0.0), |sum, row| (sum.0 + row.value, sum.1 + row.weight));
            let shown: f64 = line[column("value")].parse().unwrap();
            assert!((shown - f64::exp(nll / tokens)).abs() < 1e-9 * shown, "{label} {group}: {shown}");
            compared += 1;
        }
    }
    assert_eq!(compared, 12);
    let figures: Vec<String> = fs::read_dir(folder.join("results/figures"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(figures.iter().any(|name| name.ends_with("-running-linear.svg")), "{figures:?}");
    assert!(fs::read_to_string(folder.join("results/report.md")).unwrap().contains("of all tokens read"));
}

#[test]
fn a_model_with_stretched_positions_has_other_cells() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    Sweep { models: "[random-tiny, {source: random-tiny, rope_scaling: {type: ntk, factor: 4}}]", ..SMALL }
        .write(folder);
    run(folder, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let rows = measured(&folder.join("results"));
    let nll = |model: &str| {
        let row = rows.iter().find(|row| row.model == model && row.policy == "full" && row.metric == "nll");
        row.unwrap_or_else(|| panic!("no row of {model}")).value
    };
    assert_ne!(nll("random-tiny"), nll("random-tiny (ntk 4)"));
    let cells: std::collections::BTreeSet<_> = rows.iter().map(|row| &row.cell).collect();
    assert_eq!(cells.len(), 4);
}
