//! The lines of the documentation that pool rows: on a sweep in which one policy has several schedules and positions, every group is
//! one variant, and pandas prints the numbers of the report.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use regex::Regex;
use tova_bench::ledger::read_rows;
use tova_bench::parquet::Table;

use crate::support::material::skip;
use crate::support::program::run;

const SWEEP: &str = "models: [random-tiny]
policies: [full, tova, tova@8, tova@cut, tova@slot, tova@cut@squeezed, snapkv, snapkv@1]
cache_sizes: [70, 80]
tasks:
  - perplexity: {dataset: random-words, length: 128, prompt: 100, books: 2, chunks_per_book: 1}
";

/// The names of a policy's variants, by hand.
const VARIANTS: [&str; 8] =
    ["full", "tova", "tova@8", "tova@cut", "tova@slot", "tova@cut@squeezed", "snapkv", "snapkv@1"];

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The programs of a page, those in its language alone.
fn programs(page: &str) -> Vec<String> {
    let blocks = page.split("```python\n").skip(1);
    blocks.filter_map(|block| Some(block.split_once("```")?.0.to_owned())).collect()
}

/// The columns by which a program groups rows, if it does.
fn grouped_by(program: &str) -> Option<Vec<String>> {
    let listed = Regex::new(r#"(?:group_?by\(|keys = )\[?((?:"\w+",? ?)+)"#).unwrap();
    let columns = listed.captures(program)?[1].to_owned();
    Some(columns.split('"').filter(|word| word.chars().any(char::is_alphabetic)).map(str::to_owned).collect())
}

#[test]
fn what_pages_group_by_is_one_variant_of_a_policy_each() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pg19.yaml"), SWEEP).unwrap();
    run(folder.path(), &["run", "pg19.yaml", "--no-report"]).with_code(0);
    let file = folder.path().join("results/pg19/rows.parquet");
    let rows = read_rows(&file).unwrap();
    let table = Table::from_parquet(fs::read(&file).unwrap()).unwrap();
    let variants = table.column::<String>("variant").unwrap();
    assert_eq!(BTreeSet::from_iter(variants.iter().map(String::as_str)), BTreeSet::from(VARIANTS));
    let sizes = table.column::<u32>("cache_size").unwrap();
    let of = |column: &str, at: usize| match column {
        "variant" => variants[at].clone(),
        "cache_size" => sizes[at].to_string(),
        "policy" => rows[at].policy.to_string(),
        "positions" => rows[at].positions.to_string(),
        // What differs within a policy only by what a query is about.
        _ => String::new(),
    };
    let mut seen = 0;
    for name in ["README.md", "docs/python.md", "results/README.md"] {
        for columns in programs(&page(name)).iter().filter_map(|program| grouped_by(program)) {
            let mut groups: BTreeMap<Vec<String>, BTreeSet<&str>> = BTreeMap::new();
            for (at, row) in rows.iter().enumerate() {
                let key = columns.iter().map(|column| of(column, at)).collect::<Vec<_>>();
                groups.entry(key).or_default().insert(row.cell.as_str());
            }
            assert!(groups.values().all(|cells| cells.len() == 1), "{name} groups by {columns:?}: {groups:?}");
            assert_eq!(groups.len(), 1 + 2 * 7, "{name}: {columns:?}");
            seen += 1;
        }
    }
    assert!(seen >= 5, "{seen} programs of the pages group rows");

    // README's own lines, by hand: `sum(value) / sum(weight)` of each cell, and its `exp`.
    let readme = programs(&page("README.md")).into_iter().find(|program| program.contains("pandas")).unwrap();
    let python = std::env::var("TOVA_BENCH_TEST_PYTHON").unwrap_or("python3".to_owned());
    let has_pandas = Command::new(&python).args(["-c", "import pandas, pyarrow"]).output();
    if !has_pandas.is_ok_and(|output| output.status.success()) {
        return skip("variants", "pandas", "pandas and pyarrow in python3, or in TOVA_BENCH_TEST_PYTHON");
    }
    let shown = "import pandas as pd\npd.set_option('display.precision', 12)\n".to_owned() + &readme;
    let output = Command::new(&python).args(["-c", &shown]).current_dir(folder.path()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut expected: BTreeMap<(String, u32), (f64, f64)> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.metric == "nll" && row.slice.is_none()) {
        let sums = expected.entry((variants[at].clone(), sizes[at])).or_default();
        *sums = (sums.0 + row.value, sums.1 + row.weight);
    }
    let mut variant = String::new();
    let mut found = 0;
    for line in printed.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(value) = words.last().and_then(|word| word.parse::<f64>().ok()) else { continue };
        if let [name, _, _] = words[..] {
            variant = name.to_owned();
        }
        let size: u32 = words[words.len() - 2].parse().unwrap();
        let (sum, weight) = expected[&(variant.clone(), size)];
        assert!((value - (sum / weight).exp()).abs() < 1e-8 * value, "{variant} at {size}: {value}");
        found += 1;
    }
    assert_eq!(found, expected.len(), "{printed}");
}
