//! How much of the texts did not fit into the caches, and what the caches held at most: whether a size had any effect.
//!
//! Counted from the tokens of each sample, the cache size and the windows of layers, which the samples' rows have. Policies whose
//! rows do not say the size of every layer are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::setting::Setting;
use crate::format::{Bytes, counted};
use crate::ledger::Row;
use crate::metric::Metric;
use crate::report::document::{Block, Column, Entry, Grid, Line, Table};
use crate::report::series::{
    AllSeries, LayerBound, SeriesKey, Size,
    layer_bounds::{cached_layers, layer_bounds},
};

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
    fn add(&mut self, row: &Row, layers: &[LayerBound]) {
        let (prompt, written) = (u64::from(row.prompt_tokens), u64::from(row.new_tokens));
        let evicted = |tokens: u64| layers.iter().map(|layer| layer.evicted(tokens)).sum::<u64>();
        let (of_prompt, of_all, layers) = (evicted(prompt), evicted(prompt + written), layers.len() as u64);
        self.samples += 1;
        self.full += usize::from(of_all > 0);
        (self.prompt, self.of_prompt) = (self.prompt + layers * prompt, self.of_prompt + of_prompt);
        (self.written, self.of_written) = (self.written + layers * written, self.of_written + of_all - of_prompt);
        self.most_bytes = self.most_bytes.max(row.peak_cache_bytes);
    }
}

/// What there is at one size.
#[derive(Clone, Debug, Default)]
struct AtSize {
    policies: Vec<Evicted>,
    /// Bytes of the largest cache of `truncate`, and whether it cut any prompt, where it was measured.
    truncate: Option<(u64, bool)>,
}

/// A share in percent; `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// The table of a key; `None` where nothing is evicted or cut, and for timings, whose texts are random.
fn table(all: &AllSeries<'_>, key: &SeriesKey) -> Option<Table> {
    let of_key = all
        .iter()
        .filter(|((other, metric, slice), _)| other == key && slice.is_none() && !Metric::of(metric).is_timed());
    // Every metric has the same samples, or some of them.
    let mut rows: BTreeMap<(Option<Size>, &str), BTreeMap<&str, &Row>> = BTreeMap::new();
    for (place, sums) in of_key.flat_map(|(_, series)| series) {
        let (policy, size) = place;
        let own = sums.samples.iter().map(|(name, sum)| (*name, sum.row));
        rows.entry((*size, policy.as_ref())).or_default().extend(own);
    }
    // The prompts that nobody cut.
    let mut whole: BTreeMap<&str, u32> = BTreeMap::new();
    let others = rows.iter().filter(|((_, policy), _)| *policy != "truncate");
    for (name, row) in others.flat_map(|(_, samples)| samples) {
        let tokens = whole.entry(name).or_default();
        *tokens = row.prompt_tokens.max(*tokens);
    }
    let is_written = !key.generation.is_empty();
    let mut sizes: BTreeMap<Size, AtSize> = BTreeMap::new();
    let (mut unbounded, mut longest, mut seen, mut has_windows) = (0, 0, 0, false);
    for ((size, policy), samples) in &rows {
        let rows = samples.values();
        let bytes = rows.clone().map(|row| row.peak_cache_bytes).max().unwrap_or(0);
        let Some(size) = size else {
            unbounded = unbounded.max(bytes);
            continue;
        };
        if *policy == "truncate" {
            let is_cut =
                |(name, row): (&&str, &&Row)| whole.get(*name).is_none_or(|whole| row.prompt_tokens < *whole);
            let cuts = !is_written || samples.iter().any(is_cut);
            sizes.entry(*size).or_default().truncate = Some((bytes, cuts));
            continue;
        }
        let mut evicted = Evicted::default();
        for row in rows.filter(|row| row.score.is_some()) {
            let Some(layers) = layer_bounds(row) else { continue };
            evicted.add(row, &layers);
            let tokens = row.prompt_tokens + row.new_tokens;
            longest = tokens.max(longest);
            let of_layers = layers.iter().map(|layer| layer.window.unwrap_or(tokens).min(tokens));
            has_windows |= of_layers.clone().any(|window| window < tokens);
            seen = of_layers.max().unwrap_or(0).max(seen);
        }
        if evicted.samples > 0 {
            sizes.entry(*size).or_default().policies.push(evicted);
        }
    }
    // What was read is not known of judged texts.
    if longest == 0 && !(is_written && whole.values().any(|tokens| *tokens > 0)) {
        return None;
    }
    type Number = fn(&Evicted) -> Option<f64>;
    let shares: [(&str, Number); 3] = [
        ("samples that evict (%)", |of| percent(of.full as u64, of.samples as u64)),
        ("evicted of what is read (%)", |of| percent(of.of_prompt, of.prompt)),
        ("evicted of what is written (%)", |of| percent(of.of_written, of.written)),
    ];
    let line = |(name, number): (&str, Number)| {
        let cell = |of: &AtSize| range(of.policies.iter().filter_map(number), |share| format!("{share:.1}"));
        let cells: Vec<Option<Entry>> = sizes.values().map(cell).chain([None]).collect();
        Some(Line::new(name, cells)).filter(Line::has_any)
    };
    let mut lines: Vec<Line> = shares.into_iter().filter_map(line).collect();
    let show = |bytes: u64| Bytes(bytes).to_string();
    let of_policies = |of: &AtSize| {
        let bytes = of.policies.iter().map(|of| of.most_bytes as f64);
        range(bytes, |bytes| show(bytes as u64))
    };
    let of_full = (unbounded > 0).then(|| Entry::plain(show(unbounded)));
    lines.push(Line::new("largest cache", sizes.values().map(of_policies).chain([of_full]).collect()));
    let of_truncate = |of: &AtSize| of.truncate.map(|(bytes, _)| Entry::plain(show(bytes)));
    let of_truncate: Vec<Option<Entry>> = sizes.values().map(of_truncate).chain([None]).collect();
    let mut about = "By cache size. Tokens beyond the size are evicted, one for each further token. Keys and values of the largest cache are in \
                 f32; it holds a block of tokens more while it reads. A range is over the policies.".to_owned();
    if has_windows {
        about += " In a layer with a window of its own only a size below the window counts; what the window removes, it removes from \
                  the full cache too.";
    }
    let of_caches = rows.values().flat_map(BTreeMap::values).find_map(|row| cached_layers(row));
    if let Some((with, all)) = of_caches {
        about +=
            &format!(" {with} of the model's {all} layers have a cache of their own, in which policies decide.");
    }
    if of_truncate.iter().any(Option::is_some) {
        lines.push(Line::new("largest cache, truncate", of_truncate));
        if is_written {
            about += " Truncate cuts the prompt to the size and holds what is written beside it.";
        }
    }
    let columns = sizes.keys().copied().map(Column::of_size).chain(["full".into()]).collect();
    let mut table = Table::new("what was evicted", about, "", Grid { columns, lines });
    let listed = |is_it: &dyn Fn(&AtSize) -> bool| {
        let sizes = sizes.iter().filter(|(_, of)| is_it(of)).map(|(size, _)| size.to_string());
        sizes.collect::<Vec<_>>().join(", ")
    };
    let idle = listed(&|of| !of.policies.is_empty() && of.policies.iter().all(|of| of.full == 0));
    if !idle.is_empty() {
        let why = match counted(seen as usize, "token") {
            seen_tokens if seen < longest => format!("No layer sees more than {seen_tokens}"),
            tokens => format!("No sample has more than {tokens}"),
        };
        table
            .notes
            .push(format!("{why}, so nothing was evicted at {idle}: every policy is the full cache there."));
    }
    let uncut = listed(&|of| of.truncate.is_some_and(|(_, cuts)| !cuts));
    if !uncut.is_empty() {
        let why = if key.sizes_are_shares { "Truncate cuts no prompt at" } else { "No prompt is longer than" };
        table.notes.push(format!("{why} {uncut}: truncate is the full cache there."));
    }
    Some(table)
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
    fn shown(rows: &[Row]) -> (Vec<String>, Vec<String>, String) {
        let results = Results::of(rows).unwrap();
        let whole = results.whole();
        let found = whole.iter().find_map(|panel| table(&results.series, &panel.key)).unwrap();
        let number = |cell: &Option<Entry>| cell.as_ref().map_or("-".to_owned(), |cell| cell.number.clone());
        let lines = found.grid.lines.iter();
        let lines = lines.map(|line| (line.name.as_str(), line.cells.iter().map(number).collect::<Vec<_>>()));
        (lines.map(|(name, cells)| format!("{name}: {}", cells.join(" "))).collect(), found.notes, found.about)
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
        let (lines, notes, _) = shown(&all);
        assert_eq!(lines[..2], ["samples that evict (%): 100.0 0.0 -", "evicted of what is read (%): 88.0 0.0 -"]);
        let expected = "No layer sees more than 24 tokens, so nothing was evicted at 64: every policy is the full cache there.";
        assert_eq!(notes, [expected]);
        // Of two layers one has no window: 36 of its 100 tokens, and 88 of each layer's.
        let all = [of("full", None, None, "24 -"), of_size(12, "24 -"), of_size(64, "24 -")].concat();
        let (lines, notes, about) = shown(&all);
        assert_eq!(lines[1], "evicted of what is read (%): 88.0 18.0 -");
        assert!(notes.is_empty() && about.contains("window"), "{notes:?} {about}");
        // Where layers with a window are exempt, the other one counts alone.
        let all = [of("full", None, None, "24 -"), of("tova", Some(12), exempt, "24 -")].concat();
        assert_eq!(shown(&all).0[1], "evicted of what is read (%): 44.0 -");
        // Rows of earlier versions do not say the windows.
        let old = changed(all, |row| row.windows = None);
        let results = Results::of(&old).unwrap();
        assert!(results.whole().iter().all(|panel| table(&results.series, &panel.key).is_none()));
    }

    #[test]
    fn what_truncate_holds_is_shown_where_texts_are_written() {
        let of = |policy: &str, size: Option<u32>, prompt: u32, bytes: u64| {
            changed(cell("f1", policy, size, &[("a", 1.0, 1.0)]), |row| {
                (row.prompt_tokens, row.new_tokens, row.peak_cache_bytes) = (prompt, 40, bytes);
                row.score = (!["full", "truncate"].contains(&policy)).then(|| "last_attention".into());
                row.generation = Some("max_new_tokens=40".into());
            })
        };
        let cut = [
            of("full", None, 100, 1400),
            of("truncate", Some(64), 64, 1040),
            of("truncate", Some(128), 100, 1400),
        ];
        let (lines, notes, about) = shown(&[&cut[..], &[of("tova", Some(64), 100, 640)]].concat().concat());
        assert_eq!(lines[3..], ["largest cache: 640 B - 1.40 kB", "largest cache, truncate: 1.04 kB 1.40 kB -"]);
        assert_eq!(notes, ["No prompt is longer than 128: truncate is the full cache there."]);
        assert!(about.contains("Truncate cuts the prompt"), "{about}");
        // Also without a policy.
        assert_eq!(shown(&cut.concat()).0[1..], lines[4..]);
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
        let (lines, notes, _) = shown(&rows);
        // a: 68 of 100 read, then all 10 written. b: nothing of 20 read, then 8 of 20 written, or 28 of 40.
        let expected = [
            "samples that evict (%): 100.0 0.0 -",
            "evicted of what is read (%): 56.7 0.0 -",
            "evicted of what is written (%): 60.0–76.0 0.0 -",
            "largest cache: 1.00 kB 3.00 kB 4.00 kB",
        ];
        assert_eq!(lines, expected);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("110 tokens") && notes[0].contains("at 256"), "{notes:?}");
    }
}
