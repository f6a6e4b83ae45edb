//! Rows for tests: a few by hand, the paper's Table 3 spread over books, and plausible recall.

use crate::ledger::Row;
use crate::paper::printed_rows;
use crate::report::Results;
use crate::report::document::Document;
use crate::report::sections::{self, Report};
use crate::report::series::Panel;

pub(crate) fn panels(rows: &[Row]) -> Vec<Panel> {
    Results::of(rows).unwrap().panels
}

/// Calls a function with the report of some rows.
pub(crate) fn with_report<T>(rows: &[Row], f: impl FnOnce(&Report<'_>) -> T) -> T {
    f(&Report::of(&Results::of(rows).unwrap(), &[], None, None, &|_| Vec::new(), &Default::default()))
}

/// The report of some rows, and the short answer.
pub(crate) fn documents(rows: &[Row]) -> [Document; 2] {
    with_report(rows, |report| [sections::document(report), sections::summary(report)])
}

/// The rows of one cell and metric. Each sample has a name, a value and a weight, and is a cluster of its own.
pub(crate) fn cell(metric: &str, policy: &str, cache_size: Option<u32>, samples: &[(&str, f64, f64)]) -> Vec<Row> {
    let of_cell = Row {
        cell: format!("{policy}-{cache_size:?}").into(),
        sweep: "test".into(),
        model: "meta-llama/Llama-2-7b-hf".into(),
        model_revision: "01c7f73d771dfac7d292323805ebc428287df4f9".into(),
        policy: policy.into(),
        cache_size,
        positions: "absolute".into(),
        prefill: "stream".into(),
        task: "perplexity".into(),
        dataset: "pg19".into(),
        length: 4096,
        stride: 4096,
        bos: true,
        tail: "drop".into(),
        metric: metric.into(),
        prompt_tokens: 4096,
        engine: 1,
        device: "cpu".into(),
        dtype: "bf16".into(),
        arithmetic: "f32".into(),
        seconds: 1.0,
        date: "2026-01-01T00:00:00Z".into(),
        ..Row::default()
    };
    let row = |&(name, value, weight): &(&str, f64, f64)| Row {
        sample: name.into(),
        cluster: name.into(),
        value,
        weight,
        ..of_cell.clone()
    };
    samples.iter().map(row).collect()
}

/// Rows of a cell whose size is a share, which each sample has other entries for.
pub(crate) fn at_share(share: f64, rows: Vec<Row>) -> Vec<Row> {
    let own = |(row, entries): (Row, u32)| {
        let cell = format!("{}-{share}", row.policy).into();
        Row { cell, cache_size: Some(entries), cache_share: Some(share), ..row }
    };
    rows.into_iter().zip(7..).map(own).collect()
}

/// Rows like others, changed.
pub(crate) fn changed(rows: Vec<Row>, change: impl Fn(&mut Row)) -> Vec<Row> {
    let mut rows = rows;
    rows.iter_mut().for_each(change);
    rows
}

const SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

/// Nine lines of the paper's Table 3 over `books` books that differ in level, and a little in what a policy costs them; `scale` moves the whole
/// table for another model.
pub(crate) fn table_3(model: &str, scale: f64, books: usize) -> Vec<Row> {
    let mut all = Vec::new();
    let mut add_cell = |policy: &str, size: Option<u32>, perplexity: f64| {
        // Orders of the books that sum to nothing, so that pooling gives the paper's numbers back.
        let even = |book: usize, stride: usize| {
            ((book * stride) % books) as f64 / books as f64 - 0.5 + 0.5 / books as f64
        };
        let stride = [7, 11, 13, 17, 19, 23][(policy.len() + size.map_or(0, |size| size.ilog2() as usize)) % 6];
        let names: Vec<String> = (0..books).map(|book| format!("{}.txt#0", 10146 + book)).collect();
        let samples: Vec<(&str, f64, f64)> = (0..books)
            .map(|book| {
                let level = 0.6 * even(book, 3);
                let cost = 0.5 * (perplexity / 7.16).ln() * even(book, stride);
                let nll = (perplexity * scale).ln() + level + cost;
                (names[book].as_str(), nll * 4095.0, 4095.0)
            })
            .collect();
        all.extend(changed(cell("nll", policy, size, &samples), |row| {
            (row.model, row.cell) = (model.into(), format!("{model}-{}", row.cell).into());
        }));
    };
    let is_shown = |row: &&Row| row.metric == "nll" && !["h2o-layer", "tova+1"].contains(&row.policy.as_str());
    for row in printed_rows().iter().filter(is_shown) {
        add_cell(&row.policy, row.cache_size, row.value.exp());
    }
    all
}

/// Recall of a thousand facts at doubling distances: the full cache finds nearly all, a window what it still holds, TOVA
/// forgets slowly; and every guess is one among eight.
pub(crate) fn recall(model: &str, books: usize) -> Vec<Row> {
    let names: Vec<String> = (0..books).map(|book| format!("book-{book}")).collect();
    let mut all = Vec::new();
    let mut add_cell = |policy: &str, size: Option<u32>, share: &dyn Fn(u32) -> f64| {
        let mut add = |metric: &str, group: Option<String>, share: f64, weight: f64| {
            let samples: Vec<(&str, f64, f64)> = names
                .iter()
                .enumerate()
                .map(|(book, name)| {
                    // Books differ a little, and whole facts are found.
                    let value = (weight * (share + 0.02 * (book % 5) as f64 - 0.04)).round().clamp(0.0, weight);
                    let value = if metric == "recall" { value } else { weight * share };
                    (name.as_str(), value, weight)
                })
                .collect();
            all.extend(changed(cell(metric, policy, size, &samples), |row| {
                (row.model, row.cell) = (model.into(), format!("{model}-recall-{}", row.cell).into());
                row.dataset = "embedded".into();
                row.slice = group.as_deref().map(Into::into);
            }));
        };
        let octaves = (4..12).map(|power| 1 << power);
        let mean = octaves.clone().map(share).sum::<f64>() / 8.0;
        add("recall", None, mean, 200.0);
        add("recall_chance", None, 0.125, 200.0);
        for first in octaves {
            let group = format!("distance:{first}-{}", 2 * first - 1);
            add("recall", Some(group.clone()), share(first), 25.0);
            add("recall_chance", Some(group), 0.125, 25.0);
        }
    };
    add_cell("full", None, &|first| 0.97 - 0.01 * f64::from(first.ilog2()));
    for size in SIZES {
        let holds = move |first: u32| match size {
            _ if size >= 2 * first => 0.9,
            _ if size > first => 0.5,
            _ => 0.12,
        };
        add_cell("window", Some(size), &move |first| holds(first) - 0.05);
        add_cell("window+4", Some(size), &holds);
        let fades = move |first: u32| 0.15 + 0.75 / (1.0 + (f64::from(first) / f64::from(size) / 2.0).powi(2));
        add_cell("tova", Some(size), &fades);
        add_cell("h2o", Some(size), &move |first| 0.8 * fades(first));
        add_cell("truncate", Some(size), &move |first| 0.6 * holds(first));
    }
    all
}

/// Recall of two facts in each of two octaves and of one kind.
pub(crate) fn recalls() -> Vec<Row> {
    let at = |policy: &str, size, metric: &str, slice: &str, value| {
        let slice = |row: &mut Row| row.slice = (!slice.is_empty()).then(|| slice.into());
        changed(cell(metric, policy, size, &[("a", value, 2.0)]), slice)
    };
    let mut all = Vec::new();
    for group in ["", "distance:16-31", "distance:64-127", "kind:home"] {
        all.extend(at("full", None, "recall", group, 2.0));
        all.extend(at("full", None, "recall_chance", group, 0.5));
        for size in [32, 4096] {
            all.extend(at("tova", Some(size), "recall", group, 1.0));
        }
    }
    all.extend(at("window", Some(32), "recall", "distance:16-31", 2.0));
    all
}
