//! How much of the texts did not fit into the caches, and what the caches held at most: whether a size had any effect.
//!
//! Counted from the tokens of each sample, the cache size and the windows of layers, which the samples' rows have. Policies whose
//! rows do not say the size of every layer are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::Setting;
use crate::format::Bytes;
use crate::ledger::Row;
use crate::metric::Metric;
use crate::report::document::{Block, Column, Entry, Grid, Line, Table};
use crate::report::series::{AllSeries, SeriesKey, Size, is_shared};

pub(super) fn blocks(setting: &Setting<'_>) -> Vec<Block> {
    table(&setting.report.results.series, setting.key).map(Block::folded).into_iter().collect()
}

/// Of one policy at one size, over all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Evicted {
    samples: usize,
    /// Samples of which a layer evicts anything.
    full: usize,
    /// Tokens read and written, and those of them that did not fit, summed over layers.
    prompt: u64,
    of_prompt: u64,
    written: u64,
    of_written: u64,
    most_bytes: u64,
}

impl Evicted {
    /// Tokens are evicted in the layers that the policy's size bounds.
    fn add(&mut self, row: &Row, layers: &[Option<u32>]) {
        let (prompt, written) = (u64::from(row.prompt_tokens), u64::from(row.new_tokens));
        let evicted =
            |tokens: u64| layers.iter().flatten().map(|size| tokens.saturating_sub((*size).into())).sum::<u64>();
        let (of_prompt, of_all, layers) = (evicted(prompt), evicted(prompt + written), layers.len() as u64);
        self.samples += 1;
        self.full += usize::from(of_all > 0);
        (self.prompt, self.of_prompt) = (self.prompt + layers * prompt, self.of_prompt + of_prompt);
        (self.written, self.of_written) = (self.written + layers * written, self.of_written + of_all - of_prompt);
        self.most_bytes = self.most_bytes.max(row.peak_cache_bytes);
    }
}

/// What the column `windows` has for a layer without a cache of its own.
const NO_CACHE: &str = "none";

/// The policy's size in the layers of a row's cache, one for all where they are alike; none for a layer that its window alone
/// bounds, as it does in the full cache too. `None` where the row does not say: with sizes by layer or head, in rows of earlier
/// versions for models with windows, where a window does not slide, and where entries do not leave one by one from a full cache on.
fn layer_sizes(row: &Row) -> Option<Vec<Option<u32>>> {
    let one_by_one = row.schedule.as_deref().is_none_or(|schedule| schedule == "1" || schedule == "cut+1");
    // Heads that share their entries hold as many as others, all together.
    let has_sizes = row.budget.as_deref().is_some_and(|budget| !budget.starts_with("pool "));
    if !one_by_one || has_sizes || (row.local_layers.is_some() && row.windows.is_none()) {
        return None;
    }
    let windows: Vec<Option<u32>> = match row.windows.as_deref() {
        None => vec![None],
        Some(windows) => {
            let of_layer = |window: &str| match window {
                "-" => Some(None),
                window => window.parse().ok().map(Some),
            };
            let caches = windows.split(' ').filter(|window| *window != NO_CACHE);
            caches.map(of_layer).collect::<Option<_>>()?
        }
    };
    let is_exempt = row.local_layers.as_deref() == Some("exempt");
    let size = row.cache_size.filter(|_| !is_shared(row));
    let bound = |window: Option<u32>| size.filter(|size| window.is_none_or(|window| *size < window && !is_exempt));
    Some(windows.into_iter().map(bound).collect())
}

/// A share in percent; `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

const ABOUT: &str = "By cache size. Tokens beyond the size are evicted, one for each further token. Keys and values of the largest cache \
                     are in f32; it holds a block of tokens more while it reads. A range is over the policies. In a layer with a window \
                     of its own only a size below the window counts; what the window removes, it removes from the full cache too.";

/// The table of a key; `None` where no policy reads anything, and for timings, whose texts are random.
fn table(all: &AllSeries<'_>, key: &SeriesKey) -> Option<Table> {
    let of_key = all
        .iter()
        .filter(|((other, metric, slice), _)| other == key && slice.is_none() && !Metric::of(metric).is_timed());
    // Every metric has the same samples, or some of them.
    let mut rows: BTreeMap<(Option<Size>, &str), BTreeMap<&str, &Row>> = BTreeMap::new();
    for ((policy, size), sums) in of_key.flat_map(|(_, series)| series) {
        let own = sums.samples.iter().map(|(name, sum)| (*name, sum.row));
        rows.entry((*size, policy.as_ref())).or_default().extend(own);
    }
    let mut sizes: BTreeMap<Size, Vec<Evicted>> = BTreeMap::new();
    let mut unbounded = 0;
    for ((size, _), samples) in &rows {
        let Some(size) = size else {
            unbounded = samples.values().map(|row| row.peak_cache_bytes).fold(unbounded, u64::max);
            continue;
        };
        let mut evicted = Evicted::default();
        for row in samples.values().filter(|row| row.score.is_some()) {
            layer_sizes(row).iter().for_each(|layers| evicted.add(row, layers));
        }
        // What was read is not known of judged texts.
        if evicted.prompt + evicted.written > 0 {
            sizes.entry(*size).or_default().push(evicted);
        }
    }
    if sizes.is_empty() {
        return None;
    }
    type Number = fn(&Evicted) -> Option<f64>;
    let shares: [(&str, Number); 3] = [
        ("samples that evict (%)", |of| percent(of.full as u64, of.samples as u64)),
        ("evicted of what is read (%)", |of| percent(of.of_prompt, of.prompt)),
        ("evicted of what is written (%)", |of| percent(of.of_written, of.written)),
    ];
    let line = |(name, number): (&str, Number)| {
        let cell = |of: &Vec<Evicted>| range(of.iter().filter_map(number), |share| format!("{share:.1}"));
        let cells: Vec<Option<Entry>> = sizes.values().map(cell).chain([None]).collect();
        Some(Line::new(name, cells)).filter(Line::has_any)
    };
    let mut lines: Vec<Line> = shares.into_iter().filter_map(line).collect();
    let show = |bytes: u64| Bytes(bytes).to_string();
    let largest = |of: &Vec<Evicted>| range(of.iter().map(|of| of.most_bytes as f64), |bytes| show(bytes as u64));
    let of_full = (unbounded > 0).then(|| Entry::plain(show(unbounded)));
    lines.push(Line::new("largest cache", sizes.values().map(largest).chain([of_full]).collect()));
    let columns = sizes.keys().copied().map(Column::of_size).chain(["full".into()]).collect();
    let idle = sizes.iter().filter(|(_, of)| of.iter().all(|of| of.full == 0));
    let idle: Vec<String> = idle.map(|(size, _)| size.to_string()).collect();
    let note = format!("nothing was evicted at {}: every policy is the full cache there", idle.join(", "));
    let notes = if idle.is_empty() { Vec::new() } else { vec![note] };
    Some(Table { notes, ..Table::new("what was evicted", ABOUT, "", Grid { columns, lines }) })
}

/// The number that all policies share, or the smallest and the largest; `None` of none.
fn range(numbers: impl Iterator<Item = f64>, show: impl Fn(f64) -> String) -> Option<Entry> {
    let numbers: Vec<f64> = numbers.collect();
    let least = numbers.iter().copied().reduce(f64::min)?;
    let most = numbers.iter().copied().fold(least, f64::max);
    let shown: BTreeSet<String> = [least, most].map(&show).into();
    Some(Entry::plain(if shown.len() == 1 { show(least) } else { format!("{}–{}", show(least), show(most)) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, changed};
    use crate::report::series::Results;

    /// The lines of the only table, as `name: cells`, and its notes.
    fn shown(rows: &[Row]) -> (Vec<String>, Vec<String>) {
        let results = Results::of(rows).unwrap();
        let whole = results.whole();
        let found = whole.iter().find_map(|panel| table(&results.series, &panel.key)).unwrap();
        let number = |cell: &Option<Entry>| cell.as_ref().map_or("-".to_owned(), |cell| cell.number.clone());
        let lines = found.grid.lines.iter();
        let lines = lines.map(|line| (line.name.as_str(), line.cells.iter().map(number).collect::<Vec<_>>()));
        (lines.map(|(name, cells)| format!("{name}: {}", cells.join(" "))).collect(), found.notes)
    }

    #[test]
    fn a_layer_is_bounded_by_size_or_window() {
        let row = |policy: &str, size: u32, local_layers: Option<&str>, windows: Option<&str>| Row {
            policy: policy.into(),
            cache_size: Some(size),
            local_layers: local_layers.map(Into::into),
            windows: windows.map(Into::into),
            ..Row::default()
        };
        assert_eq!(layer_sizes(&row("tova", 8, None, None)), Some(vec![Some(8)]));
        for (size, local_layers, expected) in [
            (8, "bounded", [Some(8), Some(8)]),
            (24, "bounded", [None, Some(24)]),
            (64, "bounded", [None, Some(64)]),
            (8, "exempt", [None, Some(8)]),
        ] {
            assert_eq!(layer_sizes(&row("tova", size, Some(local_layers), Some("24 -"))), Some(expected.to_vec()));
        }
        assert_eq!(layer_sizes(&row("truncate", 8, None, Some("24 -"))), Some(vec![None; 2]));
        assert_eq!(layer_sizes(&row("tova", 8, Some("bounded"), None)), None);
        assert_eq!(layer_sizes(&Row { budget: Some("pyramid 20".into()), ..row("tova", 8, None, None) }), None);
    }

    #[test]
    fn a_window_hides_sizes_above_it() {
        let of = |policy: &str, size: Option<u32>, local_layers: Option<&str>, windows: &str| {
            changed(cell("f1", policy, size, &[("a", 1.0, 1.0)]), |row| {
                (row.prompt_tokens, row.peak_cache_bytes) = (100, 1000);
                row.score = size.map(|_| "last_attention".into());
                (row.local_layers, row.windows) = (local_layers.map(Into::into), Some(windows.into()));
            })
        };
        let (bounded, exempt) = (Some("bounded"), Some("exempt"));
        let of_size = |size: u32, windows: &str| of("tova", Some(size), bounded, windows);
        let all = [of("full", None, None, "24 24"), of_size(12, "24 24"), of_size(64, "24 24")].concat();
        let (lines, notes) = shown(&all);
        assert_eq!(lines[..2], ["samples that evict (%): 100.0 0.0 -", "evicted of what is read (%): 88.0 0.0 -"]);
        assert_eq!(notes, ["nothing was evicted at 64: every policy is the full cache there"]);
        // Of two layers one has no window: 36 of its 100 tokens, and 88 of each layer's.
        let all = [of("full", None, None, "24 -"), of_size(12, "24 -"), of_size(64, "24 -")].concat();
        let (lines, notes) = shown(&all);
        assert_eq!(lines[1], "evicted of what is read (%): 88.0 18.0 -");
        assert!(notes.is_empty(), "{notes:?}");
        // Where layers with a window are exempt, the other one counts alone.
        let all = [of("full", None, None, "24 -"), of("tova", Some(12), exempt, "24 -")].concat();
        assert_eq!(shown(&all).0[1], "evicted of what is read (%): 44.0 -");
        // Rows of earlier versions do not say the windows.
        let old = changed(all, |row| row.windows = None);
        let results = Results::of(&old).unwrap();
        assert!(results.whole().iter().all(|panel| table(&results.series, &panel.key).is_none()));
    }

    #[test]
    fn tokens_beyond_the_size_are_evicted() {
        let samples = [("a", 1.0, 1.0), ("b", 0.0, 1.0)];
        let tokens = |policy: &str, size: Option<u32>, written: [u32; 2], bytes: u64| {
            let counts = [("a", 100, written[0]), ("b", 20, written[1])];
            changed(cell("f1", policy, size, &samples), |row| {
                let (_, prompt, new) = counts.iter().find(|(name, ..)| row.sample == *name).unwrap();
                (row.prompt_tokens, row.new_tokens, row.peak_cache_bytes) = (*prompt, *new, bytes);
                row.score = size.map(|_| "last_attention".into());
            })
        };
        let rows = [
            tokens("full", None, [10, 20], 4000),
            tokens("tova", Some(32), [10, 20], 1000),
            // Writes more.
            tokens("h2o", Some(32), [10, 40], 1000),
            tokens("tova", Some(256), [10, 20], 3000),
            // Layers have other sizes than the rows say.
            changed(tokens("pyramid", Some(32), [10, 20], 9000), |row| row.budget = Some("pyramid 20".into())),
        ]
        .concat();
        let (lines, notes) = shown(&rows);
        // a: 68 of 100 read, then all 10 written. b: nothing of 20 read, then 8 of 20 written, or 28 of 40.
        let expected = [
            "samples that evict (%): 100.0 0.0 -",
            "evicted of what is read (%): 56.7 0.0 -",
            "evicted of what is written (%): 60.0–76.0 0.0 -",
            "largest cache: 1.00 kB 3.00 kB 4.00 kB",
        ];
        assert_eq!(lines, expected);
        assert_eq!(notes, ["nothing was evicted at 256: every policy is the full cache there"]);
    }
}
