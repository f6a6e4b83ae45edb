//! How much of the texts did not fit into the caches, and what the caches held at most: whether a size had any effect.
//!
//! Counted from the tokens of each sample and the cache size, which the samples' rows have. Policies with a budget by layer are left
//! out, because rows do not say the size of every layer.

use std::collections::{BTreeMap, BTreeSet};

use super::series::AllSeries;
use super::series_key::SeriesKey;
use super::table::{Entry, Grid, Line, Sheet};
use crate::format::{Bytes, counted};
use crate::ledger::Row;
use crate::metric::Metric;

/// Of one policy at one size, over all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Evicted {
    samples: usize,
    /// Samples that have more tokens than the cache has entries.
    full: usize,
    /// Tokens read and written, and those of them that did not fit.
    prompt: u64,
    of_prompt: u64,
    written: u64,
    of_written: u64,
    most_bytes: u64,
}

impl Evicted {
    fn add(&mut self, row: &Row) {
        let size = row.cache_size.map_or(u64::MAX, u64::from);
        let (prompt, written) = (u64::from(row.prompt_tokens), u64::from(row.new_tokens));
        let of_prompt = prompt.saturating_sub(size);
        let of_all = (prompt + written).saturating_sub(size);
        self.samples += 1;
        self.full += usize::from(of_all > 0);
        (self.prompt, self.of_prompt) = (self.prompt + prompt, self.of_prompt + of_prompt);
        (self.written, self.of_written) = (self.written + written, self.of_written + of_all - of_prompt);
        self.most_bytes = self.most_bytes.max(row.peak_cache_bytes);
    }
}

/// A share in percent; `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// The table of a key; `None` where no policy evicts, and for timings, whose texts are random.
pub(super) fn sheet(all: &AllSeries<'_>, key: &SeriesKey) -> Option<Sheet> {
    let of_key = all
        .iter()
        .filter(|((other, metric, slice), _)| other == key && slice.is_none() && !Metric::of(metric).is_timed());
    // Every metric has the same samples, or some of them.
    let mut rows: BTreeMap<(Option<u32>, &str), BTreeMap<&str, &Row>> = BTreeMap::new();
    for (place, sums) in of_key.flat_map(|(_, series)| series) {
        let (policy, size) = place;
        let own = sums.samples.iter().map(|(name, sum)| (*name, sum.row));
        rows.entry((*size, policy.as_ref())).or_default().extend(own);
    }
    let evicts = |row: &&Row| row.score.is_some() && row.budget.is_none();
    let mut sizes: BTreeMap<u32, Vec<Evicted>> = BTreeMap::new();
    let (mut unbounded, mut longest) = (0, 0);
    for ((size, _), samples) in &rows {
        let mut evicted = Evicted::default();
        for row in samples.values().filter(|row| size.is_none() || evicts(row)) {
            evicted.add(row);
            longest = longest.max(row.prompt_tokens + row.new_tokens);
        }
        match size {
            None => unbounded = unbounded.max(evicted.most_bytes),
            Some(size) if evicted.samples > 0 => sizes.entry(*size).or_default().push(evicted),
            Some(_) => {}
        }
    }
    if sizes.is_empty() || longest == 0 {
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
        cells.iter().any(Option::is_some).then(|| Line { name: name.into(), cells })
    };
    let mut lines: Vec<Line> = shares.into_iter().filter_map(line).collect();
    let bytes =
        |of: &[Evicted]| range(of.iter().map(|of| of.most_bytes as f64), |bytes| Bytes(bytes as u64).to_string());
    let of_full = (unbounded > 0).then(|| Entry::plain(Bytes(unbounded).to_string()));
    lines.push(Line {
        name: "largest cache".into(),
        cells: sizes.values().map(|of| bytes(of)).chain([of_full]).collect(),
    });
    let columns = sizes.keys().map(u32::to_string).chain(["full".into()]).collect();
    let idle = sizes.iter().filter(|(_, of)| of.iter().all(|of| of.full == 0)).map(|(size, _)| size.to_string());
    let idle: Vec<String> = idle.collect();
    let about = "By cache size. Tokens beyond the size are evicted, one for each further token. Keys and values of the largest cache are in \
                 f32; it holds a block of tokens more while it reads. A range is over the policies.";
    let mut sheet = Sheet::new("what was evicted", about, "", Grid { columns, lines });
    if !idle.is_empty() {
        sheet.notes.push(format!(
            "No sample has more than {}, so nothing was evicted at {}: every policy is the full cache there.",
            counted(longest as usize, "token"),
            idle.join(", ")
        ));
    }
    Some(sheet)
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
    use super::super::fixture::{cell, changed};
    use super::super::results::Results;
    use super::*;

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
        let results = Results::of(&rows).unwrap();
        let whole = results.whole();
        let sheets: Vec<Sheet> = whole.iter().filter_map(|panel| sheet(&results.series, &panel.key)).collect();
        let sheet = &sheets[0];
        assert_eq!(sheet.grid.columns, ["32", "256", "full"]);
        let number = |cell: &Option<Entry>| cell.as_ref().map_or("-".to_owned(), |cell| cell.number.clone());
        let lines = sheet.grid.lines.iter();
        let lines = lines.map(|line| (line.name.as_str(), line.cells.iter().map(number).collect::<Vec<_>>()));
        let lines: Vec<_> = lines.map(|(name, cells)| format!("{name}: {}", cells.join(" "))).collect();
        // a: 68 of 100 read, then all 10 written. b: nothing of 20 read, then 8 of 20 written, or 28 of 40.
        let expected = [
            "samples that evict (%): 100.0 0.0 -",
            "evicted of what is read (%): 56.7 0.0 -",
            "evicted of what is written (%): 60.0–76.0 0.0 -",
            "largest cache: 1.00 kB 3.00 kB 4.00 kB",
        ];
        assert_eq!(lines, expected);
        assert_eq!(sheet.notes.len(), 1);
        assert!(sheet.notes[0].contains("110 tokens") && sheet.notes[0].contains("at 256"), "{:?}", sheet.notes);
    }
}
