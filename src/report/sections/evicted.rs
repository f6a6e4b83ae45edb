//! How much of the texts did not fit into the caches, and what the caches held at most: whether a size had any effect.
//!
//! Counted from the tokens of each sample, and from what its rows say of the policy, the cache size and the windows of layers.
//! Policies whose rows do not say what every layer holds are named, and left out.

use std::collections::{BTreeMap, BTreeSet};

use super::Setting;
use crate::eviction::{Budget, Policy, PoolOver, Schedule, Score, SizedPolicy};
use crate::format::Bytes;
use crate::ledger::{Row, Settings, Windows};
use crate::metric::Metric;
use crate::report::document::{Block, Column, Entry, Grid, Line, Table};
use crate::report::series::{AllSeries, SeriesKey, Size};

pub(super) fn blocks(setting: &Setting<'_>) -> Vec<Block> {
    table(&setting.report.results.series, setting.key).map(Block::folded).into_iter().collect()
}

/// What one policy evicts at one size, over all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Evicted {
    samples: usize,
    /// Samples of which a layer evicts anything.
    full: usize,
    /// Tokens of prompts or texts and of what follows them, and those that did not fit, summed over layers.
    prompt: u64,
    of_prompt: u64,
    after: u64,
    of_after: u64,
    most_bytes: u64,
}

impl Evicted {
    /// Adds a sample with `after` tokens after its prompt; false where the row does not say what every layer holds.
    fn add(&mut self, row: &Row, after: u64) -> bool {
        let Some(layers) = layers(row) else { return false };
        // A text that is read in several windows, each with an empty cache, counts the tokens of all of them.
        let window = u64::from(row.length) + 1;
        let texts = u64::from(row.prompt_tokens).div_ceil(window).max(1);
        let prompt = u64::from(row.prompt_tokens) / texts;
        let evicted = |tokens: u64| {
            let held = |policy: &SizedPolicy| policy.entries_after(tokens as usize, prompt as usize) as u64;
            layers.iter().flatten().map(|policy| tokens - held(policy)).sum::<u64>() * texts
        };
        let (of_prompt, of_all, count) = (evicted(prompt), evicted(prompt + after), layers.len() as u64);
        self.samples += 1;
        self.full += usize::from(of_all > 0);
        (self.prompt, self.of_prompt) = (self.prompt + count * prompt * texts, self.of_prompt + of_prompt);
        (self.after, self.of_after) = (self.after + count * after, self.of_after + of_all - of_prompt);
        self.most_bytes = self.most_bytes.max(row.allocated_bytes);
        true
    }
}

/// The policy in the layers of a row's cache, one for all where they are alike; none for a layer that its window alone bounds, as it
/// does in the full cache too. `None` where the row does not say: with sizes by layer and no list of layers, with sizes by head, where
/// whole blocks leave, where a window does not slide, where windows are not listed, and where a cache that grows after its cut was cut
/// before the question.
fn layers(row: &Row) -> Option<Vec<Option<SizedPolicy>>> {
    let policy = policy(row)?;
    let is_exempt = row.local_layers.as_deref() == Some("exempt");
    if (row.prefill == "cut_before_question" && policy.schedule != Schedule::CutThenEvery(1))
        || (policy.score.block().is_some() && !policy.selects())
        || (row.local_layers.is_some() && row.windows.is_none())
    {
        return None;
    }
    let windows = match row.windows.as_deref() {
        Some(windows) => Some(windows.parse::<Windows>().ok()?.sliding()?),
        None => None,
    };
    let has_window = windows.iter().flatten().any(Option::is_some);
    let count = match policy.budget {
        Budget::Uniform => windows.as_ref().map_or(1, Vec::len),
        // All together, they hold as many as others.
        Budget::Pool(pool) if !has_window || pool.over == PoolOver::Heads => windows.as_ref().map_or(1, Vec::len),
        // Up to engine 6 such a budget was divided over exempt layers too.
        Budget::Pyramid(_) | Budget::Layers(_) if has_window && is_exempt && row.engine < 7 => return None,
        Budget::Pyramid(_) => windows.as_ref()?.len(),
        Budget::Layers(_) => policy.budget.shares().count(),
        _ => return None,
    };
    let windows = windows.unwrap_or_else(|| vec![None; count]);
    let sized = policy.at(row.cache_size? as usize).ok()?;
    let bounded: Vec<bool> = windows.iter().map(|window| !is_exempt || window.is_none()).collect();
    let of_layer = |(own, window): (Option<SizedPolicy>, &Option<u32>)| {
        own.filter(|own| !own.selects() && window.is_none_or(|window| own.size < window as usize))
    };
    Some(sized.of_layers(&bounded).into_iter().zip(&windows).map(of_layer).collect())
}

/// The policy of a row. Of a function only its score is missing, which does not change how many entries leave.
fn policy(row: &Row) -> Option<Policy> {
    let definition = row.definition.as_deref().and_then(|text| text.rsplit_once(" scope="));
    let of_columns = || {
        let (scope, budget) = (row.scope.as_deref()?, row.budget.as_deref().unwrap_or("uniform"));
        Some(format!("{scope} keep_first={} keep_recent={} budget={budget}", row.keep_first, row.keep_recent))
    };
    let rest = definition.map(|(_, rest)| rest.to_owned()).or_else(of_columns)?;
    let policy: Policy = format!("score=recency scope={rest}").parse().ok()?;
    let score = Score::of_row(row.score.as_deref()?).unwrap_or(policy.score);
    // A task's prompts may have a schedule of their own, which only this column has.
    let schedule = row.schedule.as_deref().unwrap_or("1").parse().ok()?;
    Some(Policy { score, schedule, ..policy })
}

/// A share in percent; `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

const ABOUT: &str = "By cache size. Tokens beyond the size are evicted when the schedule says so. What follows a prompt is what was written, \
                     or read and scored. Keys and values of the largest cache are in f32; it holds a block of tokens more while it reads. \
                     A range is over the policies. In a layer with a window of its own only a size below the window counts; what the \
                     window removes, it removes from the full cache too.";

/// The samples of one policy by name: a row of each, and the tokens that follow its prompt.
type Samples<'a> = BTreeMap<&'a str, (&'a Row, u64)>;

/// The table of a key; `None` where no policy reads anything, and for timings, whose texts are random.
fn table(all: &AllSeries<'_>, key: &SeriesKey) -> Option<Table> {
    let of_key = all
        .iter()
        .filter(|((other, metric, slice), _)| other == key && slice.is_none() && !Metric::of(metric).is_timed());
    // Every metric has the same samples, or some of them.
    let mut rows: BTreeMap<(Option<Size>, &str), Samples<'_>> = BTreeMap::new();
    for ((_, metric, _), series) in of_key {
        for ((policy, size), sums) in series {
            let of_policy = rows.entry((*size, policy.as_ref())).or_default();
            for (name, sum) in &sums.samples {
                let (row, after) = of_policy.entry(name).or_insert((sum.row, 0));
                // After a prompt, every token that is read is scored.
                let is_scored = *metric == "nll"
                    && Settings::from(row.generation.as_deref().unwrap_or("")).get("prompt").is_some();
                *after = (*after).max(if is_scored { sum.sums.weight as u64 } else { row.new_tokens.into() });
            }
        }
    }
    let mut sizes: BTreeMap<Size, Vec<Evicted>> = BTreeMap::new();
    let (mut unbounded, mut unknown) = (0, BTreeSet::new());
    for ((size, policy), samples) in &rows {
        let Some(size) = size else {
            unbounded = samples.values().map(|(row, _)| row.allocated_bytes).fold(unbounded, u64::max);
            continue;
        };
        let mut evicted = Evicted::default();
        // What was read is not known of judged texts.
        for (row, after) in samples.values().filter(|(row, _)| row.score.is_some() && row.prompt_tokens > 0) {
            if !evicted.add(row, *after) {
                unknown.insert((*size, *policy));
            }
        }
        if evicted.prompt + evicted.after > 0 {
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
        ("evicted of what follows the prompt (%)", |of| percent(of.of_after, of.after)),
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
    let mut notes = Vec::new();
    let is_known = |size: &Size| !unknown.iter().any(|(of, _)| of == size);
    let idle = sizes.iter().filter(|(size, of)| of.iter().all(|of| of.full == 0) && is_known(size));
    let idle: Vec<String> = idle.map(|(size, _)| size.to_string()).collect();
    if !idle.is_empty() {
        notes.push(format!("nothing was evicted at {}: every policy is the full cache there", idle.join(", ")));
    }
    let unknown: BTreeSet<&str> = unknown.into_iter().map(|(_, policy)| policy).collect();
    if !unknown.is_empty() {
        let names = Vec::from_iter(unknown).join(", ");
        notes.push(format!("not counted, because rows do not say what each layer and head holds: {names}"));
    }
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
        let row = |size: u32, local_layers: Option<&str>, windows: Option<&str>| Row {
            policy: "tova".into(),
            score: Some("last_attention".into()),
            scope: Some("layer".into()),
            cache_size: Some(size),
            local_layers: local_layers.map(Into::into),
            windows: windows.map(Into::into),
            ..Row::default()
        };
        let sizes = |row: &Row| {
            let size = |policy: Option<SizedPolicy>| policy.map(|policy| policy.size);
            layers(row).map(|layers| layers.into_iter().map(size).collect::<Vec<_>>())
        };
        assert_eq!(sizes(&row(8, None, None)), Some(vec![Some(8)]));
        for (size, local_layers, expected) in [
            (8, "bounded", [Some(8), Some(8)]),
            (24, "bounded", [None, Some(24)]),
            (64, "bounded", [None, Some(64)]),
            (8, "exempt", [None, Some(8)]),
        ] {
            assert_eq!(sizes(&row(size, Some(local_layers), Some("24 -"))), Some(expected.to_vec()));
        }
        assert_eq!(sizes(&row(8, Some("bounded"), None)), None);
        let head = Some("head".into());
        let with = |budget: &str, row: Row| Row { budget: Some(budget.into()), scope: head.clone(), ..row };
        // How many layers there are is not said.
        assert_eq!(sizes(&with("pyramid 20", row(8, None, None))), None);
        assert_eq!(sizes(&with("heads 1 3/2 2", row(8, None, None))), None);
        let listed = Some([12, 8, 8, 4].map(Some).to_vec());
        assert_eq!(sizes(&with("layers 3 2 2 1", row(8, None, None))), listed);
        // 2 (C - W) - (C - W) / 4 = 14 and 2 of 8 entries, of which none is protected.
        assert_eq!(sizes(&with("pyramid 4", row(8, None, Some("- -")))), Some(vec![Some(14), Some(2)]));
        assert_eq!(sizes(&with("pool model 20%", row(8, None, None))), Some(vec![Some(8)]));
        assert_eq!(sizes(&with("pool model 20%", row(8, Some("bounded"), Some("24 -")))), None);
    }

    /// Rows of one sample of 20 tokens, of which the first 12 are a prompt.
    fn prompted(policy: &'static str, size: u32, definition: &'static str) -> Vec<Row> {
        let schedule = definition.rsplit_once("schedule=").map(|(_, schedule)| schedule);
        changed(cell("nll", policy, Some(size), &[("a", 8.0, 8.0)]), |row| {
            (row.score, row.definition) = (Some("any".into()), Some(definition.into()));
            (row.schedule, row.generation) = (schedule.map(Into::into), Some("prompt=12".into()));
            row.prompt_tokens = 12;
        })
    }

    /// What is evicted of 20 tokens, 12 of them a prompt, one token after the other by hand.
    #[test]
    fn what_follows_a_prompt_is_counted_by_schedule_and_budget() {
        const EVERY: &str = "score=attention scope=layer keep_first=0 keep_recent=0 budget=uniform schedule=1";
        const FOUR: &str = "score=attention scope=layer keep_first=0 keep_recent=0 budget=uniform schedule=4";
        const CUT: &str = "score=attention scope=layer keep_first=0 keep_recent=10% budget=uniform schedule=cut";
        const CUT_FOUR: &str =
            "score=python mine scope=head keep_first=0 keep_recent=0 budget=uniform schedule=cut+4";
        const PROMPT: &str =
            "score=attention scope=layer keep_first=prompt keep_recent=0 budget=uniform schedule=1";
        const LAYERS: &str = "score=attention scope=layer keep_first=0 keep_recent=0 budget=layers 3 1 schedule=1";
        const PYRAMID: &str = "score=attention scope=layer keep_first=0 keep_recent=0 budget=pyramid 4 schedule=1";
        let percent =
            |name: &str, evicted: f64, of: f64| format!("evicted of {name} (%): {:.1} -", 100.0 * evicted / of);
        for (definition, size, of_prompt, of_rest) in [
            (EVERY, 16, 0.0, 4.0),
            (EVERY, 6, 6.0, 8.0),
            // 18 tokens are evicted to 14, and 20 are less than 18 again.
            (FOUR, 14, 0.0, 4.0),
            (FOUR, 9, 0.0, 8.0),
            (CUT, 6, 6.0, 0.0),
            (CUT, 16, 0.0, 0.0),
            // After the cut 6, and after eight more tokens twice four leave.
            (CUT_FOUR, 6, 6.0, 8.0),
            (PROMPT, 6, 0.0, 2.0),
            (PROMPT, 16, 0.0, 0.0),
            // Layers of 12 and 4 entries: 0 and 8 tokens of the prompt, 8 and 8 of the rest; each layer has all tokens.
            (LAYERS, 8, 4.0, 8.0),
        ] {
            let (lines, notes) = shown(&prompted("mine", size, definition));
            let expected =
                [percent("what is read", of_prompt, 12.0), percent("what follows the prompt", of_rest, 8.0)];
            assert_eq!(lines[1..3], expected, "{definition} at {size}");
            let idle = format!("nothing was evicted at {size}: every policy is the full cache there");
            assert_eq!(
                notes,
                Vec::from_iter((of_prompt + of_rest == 0.0).then_some(idle)),
                "{definition} at {size}"
            );
        }
        // Whether the pyramid's layers evict anything at 30 is not known.
        let both = [prompted("mine", 30, EVERY), prompted("pyramid", 30, PYRAMID)].concat();
        let (_, notes) = shown(&both);
        assert_eq!(notes, ["not counted, because rows do not say what each layer and head holds: pyramid"]);
    }

    #[test]
    fn windows_of_a_long_text_begin_with_an_empty_cache() {
        // Three windows of 16 + 1 tokens, as `loglikelihood_rolling` reads them.
        let of = |size: u32| {
            changed(cell("nll", "tova", Some(size), &[("a", 8.0, 8.0)]), |row| {
                (row.score, row.scope) = (Some("last_attention".into()), Some("layer".into()));
                (row.length, row.prompt_tokens) = (16, 51);
            })
        };
        let (lines, _) = shown(&of(10));
        assert_eq!(lines[1], format!("evicted of what is read (%): {:.1} -", 100.0 * 21.0 / 51.0));
        assert_eq!(shown(&of(17)).1, ["nothing was evicted at 17: every policy is the full cache there"]);
    }

    #[test]
    fn a_window_hides_sizes_above_it() {
        let of = |policy: &str, size: Option<u32>, local_layers: Option<&str>, windows: &str| {
            changed(cell("f1", policy, size, &[("a", 1.0, 1.0)]), |row| {
                (row.prompt_tokens, row.allocated_bytes) = (100, 1000);
                (row.score, row.scope) = (size.map(|_| "last_attention".into()), Some("layer".into()));
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
        // Windows that are not listed may be of any size.
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
                (row.prompt_tokens, row.new_tokens, row.allocated_bytes) = (*prompt, *new, bytes);
                (row.score, row.scope) = (size.map(|_| "last_attention".into()), Some("layer".into()));
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
            "evicted of what follows the prompt (%): 60.0–76.0 0.0 -",
            "largest cache: 1.00 kB 3.00 kB 4.00 kB",
        ];
        assert_eq!(lines, expected);
        let expected = [
            "nothing was evicted at 256: every policy is the full cache there",
            "not counted, because rows do not say what each layer and head holds: pyramid",
        ];
        assert_eq!(notes, expected);
    }
}
