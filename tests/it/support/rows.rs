//! Rows of a results folder, and when two folders hold the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tova_bench::ledger::{Ledger, Row};

/// What was measured, without when and how fast: seconds and date are the only columns that may differ between runs.
pub fn measured(results: &Path) -> Vec<Row> {
    let rows = Ledger::existing(results).unwrap().rows().unwrap();
    rows.into_iter().map(|row| Row { seconds: 0.0, date: Default::default(), ..row }).collect()
}

/// Checks that two sets of rows are the same, every bit of every number.
#[track_caller]
pub fn assert_same(got: &[Row], expected: &[Row]) {
    let key = |row: &Row| (row.cell.clone(), row.sample.clone(), row.metric.clone(), row.slice.clone());
    let table = |rows: &[Row]| {
        let mut table = BTreeMap::new();
        for row in rows {
            assert!(table.insert(key(row), row.clone()).is_none(), "{:?} stands twice", key(row));
        }
        table
    };
    let (got, expected) = (table(got), table(expected));
    assert_eq!(got.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (key, row) in &expected {
        let other = &got[key];
        assert_eq!(other.value.to_bits(), row.value.to_bits(), "{key:?}: {} is not {}", other.value, row.value);
        assert_eq!(other.weight.to_bits(), row.weight.to_bits(), "{key:?}");
        assert_eq!(other, row);
    }
}

/// Complete cells, and whole lines and torn lines of the cells in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub cells: usize,
    pub samples: usize,
    pub torn: usize,
}

/// What a results folder holds, as a look into it shows.
pub fn kept(results: &Path) -> Kept {
    let files = |part: &str, ending: &str| -> Vec<_> {
        let entries = fs::read_dir(results.join(part)).into_iter().flatten().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
    };
    let mut kept = Kept { cells: files("cells", "parquet").len(), ..Kept::default() };
    for journal in files("partial", "jsonl") {
        // Whoever looks while the program runs may see a journal vanish.
        let text = fs::read(journal).unwrap_or_default();
        kept.samples += text.iter().filter(|&&byte| byte == b'\n').count();
        kept.torn += usize::from(text.last().is_some_and(|&byte| byte != b'\n'));
    }
    kept
}
