//! From series to points: pooled numbers with intervals and paired differences, panel by panel.
//!
//! A panel is everything that may stand in one table: one key, one metric, one slice of the samples. All its points are
//! resampled with the same draws of clusters. Warnings about the data behind a number are made here; nothing is drawn.

use std::collections::BTreeSet;

use super::bootstrap::{Estimate, Sums, pooled};
use super::order;
use super::pairs::{self, Pair};
use super::pool::{Pool, Resampled};
use super::series::{self, AllSeries, CellSums, SampleSum, Series};
use super::series_key::SeriesKey;
use crate::metric::{Metric, Property};

/// One number of a panel: a policy at a cache size, over all its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub policy: String,
    /// `None` for the full cache.
    pub cache_size: Option<u32>,
    /// In the unit shown: perplexity and not NLL.
    pub estimate: Estimate,
    /// Minus the full cache's value, over the samples both have.
    pub to_full: Option<Estimate>,
    pub samples: usize,
    pub clusters: usize,
    /// What the number is over: scored tokens, words.
    pub weight: f64,
    /// Whether it covers every sample of its panel.
    pub complete: bool,
}

impl Point {
    pub fn is_full(&self) -> bool {
        self.policy == "full"
    }

    /// Whether it is a policy in the sense of the paper: neither the full cache nor the cut text.
    pub fn is_policy(&self) -> bool {
        !matches!(self.policy.as_str(), "full" | "truncate")
    }
}

/// What may stand in one table: one key, one metric, one slice of the samples, all policies and cache sizes.
#[derive(Clone, Debug)]
pub struct Panel {
    pub key: SeriesKey,
    pub metric: Metric,
    /// The slice of every sample that the panel is about, such as `distance:512-1023`; `None`: all of it.
    pub slice: Option<String>,
    /// What a guess would reach, where that is known.
    pub chance: Option<f64>,
    /// Ordered by policy (as the paper orders them), then by cache size.
    pub points: Vec<Point>,
    /// Every two policies at one cache size, of whole samples only.
    pub pairs: Vec<Pair>,
    /// Samples and clusters that any point has.
    pub samples: usize,
    pub clusters: usize,
    /// What a reader must know before trusting the numbers, one sentence each.
    pub notes: Vec<String>,
}

/// Every panel of the series, ordered by key, then metric; whole samples before their slices.
pub fn panels(all: &AllSeries<'_>) -> Vec<Panel> {
    let is_piece = |slice: Option<&str>| slice.is_some_and(|slice| slice.starts_with(PIECE));
    let mut panels = Vec::new();
    for ((key, id, slice), series) in all.iter().filter(|((_, _, slice), _)| !is_piece(*slice)) {
        let metric = Metric::of(id);
        if !metric.is_result() {
            continue;
        }
        let guess = metric.guess.and_then(|guess| all.get(&(key.clone(), guess.metric, *slice)));
        let chance = guess.and_then(level).map(|pooled| metric.of_pooled(pooled));
        panels.push(Panel { chance, ..panel(key.clone(), metric, *slice, series) });
    }
    panels.extend(running(all));
    panels.sort_by(|a, b| a.order().cmp(&b.order()));
    panels
}

/// Rows of such a slice are about a piece of a long text.
const PIECE: &str = "piece:";
/// The kind of slice that pieces are summed to.
pub(crate) const RUNNING: &str = "running";

/// Of long texts, the average over all tokens up to the end of each piece (the paper's Figure 7), over the samples that
/// are that long: panels of slices such as `running:8192`.
fn running(all: &AllSeries<'_>) -> Vec<Panel> {
    let piece = |slice: &str| -> Option<(u64, u64)> {
        let (first, last) = slice.strip_prefix(PIECE)?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    let pieces = all.iter().filter(|((_, id, _), _)| Metric::of(id).is_result());
    let pieces = pieces.filter_map(|((key, id, slice), series)| Some(((key, *id), piece((*slice)?)?, series)));
    let mut pieces: Vec<_> = pieces.collect();
    pieces.sort_by_key(|(of, place, _)| (*of, *place));
    let mut panels = Vec::new();
    for of_one in pieces.chunk_by(|a, b| a.0 == b.0) {
        let mut sums = Series::new();
        for ((key, id), (_, last), series) in of_one {
            series::accumulate(&mut sums, series);
            let long_enough = series::limited_to(&sums, series);
            let end = last.saturating_add(1).min(key.length.into());
            let slice = format!("{RUNNING}:{end}");
            panels.push(panel((*key).clone(), Metric::of(id), Some(&slice), &long_enough));
        }
    }
    panels
}

/// The pooled value of a guess, which is the same for every policy: of the cell with most samples.
fn level(series: &Series) -> Option<[f64; 3]> {
    let newest = series.values().filter_map(series::newest).map(|(_, sums)| sums);
    newest.max_by_key(|sums| sums.samples.len()).and_then(pooled_of)
}

impl Panel {
    fn order(&self) -> impl Ord + '_ {
        (&self.key, self.metric.order(), self.slice.as_deref().map(order::of_slice))
    }

    pub fn full(&self) -> Option<&Point> {
        self.points.iter().find(|point| point.is_full())
    }

    /// The cache sizes measured, ascending.
    pub fn sizes(&self) -> Vec<u32> {
        let sizes: BTreeSet<u32> = self.points.iter().filter_map(|point| point.cache_size).collect();
        sizes.into_iter().collect()
    }

    /// The policies in order, `full` first where it was measured.
    pub fn policies(&self) -> Vec<&str> {
        let mut policies: Vec<&str> = self.points.iter().map(|point| point.policy.as_str()).collect();
        policies.dedup();
        policies
    }

    pub fn point(&self, policy: &str, cache_size: Option<u32>) -> Option<&Point> {
        self.points.iter().find(|point| point.policy == policy && point.cache_size == cache_size)
    }
}

fn panel(key: SeriesKey, metric: Metric, slice: Option<&str>, series: &Series) -> Panel {
    let mut notes = Vec::new();
    let mut chosen = Vec::new();
    for ((policy, cache_size), candidates) in series {
        let (policy, cache_size) = (policy.as_ref(), *cache_size);
        let Some((cell, sums)) = series::newest(candidates) else { continue };
        let bits = |sums: &CellSums| pooled_of(sums).map(|pooled| pooled.map(f64::to_bits));
        if candidates.values().any(|other| bits(other) != bits(sums)) {
            let (n, at) = (candidates.len(), place(policy, cache_size));
            notes.push(format!("{at}: {n} cells with different numbers; the newest ({cell}) is shown"));
        }
        if sums.contradictions > 0 {
            let (n, at) = (sums.contradictions, place(policy, cache_size));
            notes.push(format!("{at}: {n} samples came twice with different numbers; the first is used"));
        }
        chosen.push(((policy, cache_size), sums));
    }
    chosen.sort_by_key(|&((policy, cache_size), _)| (order::of(policy), cache_size));

    let all = || chosen.iter().flat_map(|(_, sums)| &sums.samples);
    let samples: BTreeSet<&str> = all().map(|(sample, _)| *sample).collect();
    let clusters: BTreeSet<&str> = all().map(|(_, sum)| sum.row.cluster.as_str()).collect();
    let clusters: Vec<&str> = clusters.into_iter().collect();
    let pool = Pool { metric: &metric, clusters: &clusters };
    let resampled = pool.each(&chosen.iter().map(|(_, sums)| *sums).collect::<Vec<_>>());
    let at_full = chosen.iter().position(|((policy, _), _)| *policy == "full");
    let full_resampled = at_full.and_then(|at| Some((chosen[at].1, resampled[at].as_ref()?)));
    let full_weights = at_full.map(|at| chosen[at].1).filter(|_| !metric.has(Property::VaryingWeights));

    let mut points = Vec::new();
    for (&((policy, cache_size), sums), own) in chosen.iter().zip(&resampled) {
        let Some(own) = own else {
            notes.push(format!("{}: nothing was scored", place(policy, cache_size)));
            continue;
        };
        let point = point(&pool, (policy, cache_size), (sums, own), full_resampled, samples.len());
        notes.extend(warnings(&point, sums, full_weights, samples.len()));
        points.push(point);
    }
    // Repeats are not texts: their spread is shown as it is.
    if !metric.is_timed() {
        notes.extend(few_clusters(clusters.len()));
    }
    // Repeats have a table of their own, and slices are too many to compare each.
    let is_compared = slice.is_none() && !metric.is_timed();
    let pairs = if is_compared { pairs::of(&pool, &chosen, &resampled) } else { Vec::new() };
    let (samples, clusters, slice) = (samples.len(), clusters.len(), slice.map(str::to_owned));
    Panel { key, metric, slice, chance: None, points, pairs, samples, clusters, notes }
}

/// One point; `full` is the full cache's cell, with what it resampled to.
fn point(
    pool: &Pool<'_>,
    (policy, cache_size): (&str, Option<u32>),
    (sums, own): (&CellSums, &Resampled),
    full: Option<(&CellSums, &Resampled)>,
    samples: usize,
) -> Point {
    let full = full.filter(|_| !pool.metric.has(Property::NoDifference) && policy != "full");
    let to_full = full.and_then(|full| pool.difference((sums, own), full, |own, full| own - full));
    Point {
        policy: policy.to_owned(),
        cache_size,
        estimate: own.estimate(),
        to_full: to_full.map(|difference| difference.estimate()),
        samples: own.samples,
        clusters: own.clusters,
        weight: own.weight,
        complete: own.samples == samples,
    }
}

fn pooled_of(sums: &CellSums) -> Option<[f64; 3]> {
    pooled(&sums.samples.values().map(Sums::of).collect::<Vec<_>>())
}

/// What is wrong with the samples behind one point.
fn warnings(point: &Point, sums: &CellSums, full: Option<&CellSums>, samples: usize) -> Vec<String> {
    let at = place(&point.policy, point.cache_size);
    let mut warnings = Vec::new();
    if !point.complete {
        warnings.push(format!(
            "{at}: {} of {samples} samples, so it does not compare with the others; its difference to full does",
            point.samples
        ));
    }
    if !point.estimate.value.is_finite() {
        warnings.push(format!("{at}: the value is not finite"));
    }
    // The cut text is read in shorter pieces and so scores fewer tokens; a policy must score the same ones as full.
    let weighs_otherwise = |(sample, sum): (&&str, &SampleSum)| {
        full.and_then(|full| full.samples.get(sample)).is_some_and(|other| other.weight != sum.weight)
    };
    if point.is_policy() && sums.samples.iter().any(weighs_otherwise) {
        warnings.push(format!("{at}: weighs samples otherwise than full does"));
    }
    warnings
}

/// What is wrong with the intervals of a whole panel.
pub(super) fn few_clusters(clusters: usize) -> Option<String> {
    match clusters {
        0 | 1 => Some("no intervals: all samples come from one cluster (one book, story or paper)".to_owned()),
        2..10 => Some(format!("the intervals rest on {clusters} clusters only, and are likely too narrow")),
        _ => None,
    }
}

fn place(policy: &str, cache_size: Option<u32>) -> String {
    match cache_size {
        Some(size) => format!("{policy} at {size}"),
        None => policy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Sample, cell, panels, rows};
    use crate::ledger::Row;

    /// Two samples from two books, two policies at 64.
    fn two_books() -> Vec<Row> {
        [
            cell("nll", "full", None, &[("a", 4.0, 4.0), ("b", 4.0, 2.0)]),
            cell("nll", "tova", Some(64), &[("a", 6.0, 4.0), ("b", 6.0, 2.0)]),
        ]
        .concat()
    }

    #[test]
    fn a_point_pools_by_weight() {
        let panels = panels(&two_books());
        let [panel] = &panels[..] else { panic!("one panel expected") };
        // exp((6 + 6) / (4 + 2)), not the mean of exp(6/4) and exp(6/2).
        let tova = panel.point("tova", Some(64)).unwrap();
        assert_eq!(tova.estimate.value, 2f64.exp());
        assert_eq!((tova.samples, tova.clusters, tova.weight, tova.complete), (2, 2, 6.0, true));
        // exp((4 + 4) / (4 + 2)).
        assert_eq!(panel.full().unwrap().estimate.value, (8.0f64 / 6.0).exp());
        assert_eq!(tova.to_full.unwrap().value, 2f64.exp() - (8.0f64 / 6.0).exp());
        assert_eq!(panel.full().unwrap().to_full, None);
        // With two books the ends are one book taken twice: exp(6/4) and exp(6/2).
        let interval = tova.estimate.interval.unwrap();
        assert_eq!((interval.low, interval.high), (1.5f64.exp(), 3f64.exp()));
    }

    #[test]
    fn slices_have_panels_of_their_own_with_their_chance() {
        let at = |metric: &str, group: Option<&str>, value| {
            let rows = cell(metric, "tova", Some(64), &[("a", value, 8.0)]).into_iter();
            rows.map(|row| Row { slice: group.map(Into::into), ..row }).collect::<Vec<_>>()
        };
        let all = [
            at("recall", Some("kind:home"), 1.0),
            at("recall", Some("distance:128-255"), 2.0),
            at("recall", Some("distance:16-31"), 4.0),
            at("recall", None, 6.0),
            at("recall_chance", None, 2.0),
            at("recall_chance", Some("distance:16-31"), 1.0),
        ];
        let panels = panels(&all.concat());
        let found: Vec<_> = panels
            .iter()
            .map(|panel| (panel.slice.as_deref(), panel.points[0].estimate.value, panel.chance))
            .collect();
        let expected = [
            (None, 75.0, Some(25.0)),
            (Some("distance:16-31"), 50.0, Some(12.5)),
            (Some("distance:128-255"), 25.0, None),
            (Some("kind:home"), 12.5, None),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn differences_pair() {
        // Books differ widely, the policy costs each the same: a wide value, a difference without width.
        let books: Vec<String> = (0..12).map(|book| format!("book{book:02}")).collect();
        let at = |policy, size, shift: f64| {
            let samples =
                books.iter().zip(0..).map(|(book, level)| (book.as_str(), f64::from(level) + shift, 1.0));
            cell("cost", policy, size, &samples.collect::<Vec<_>>())
        };
        let panels = panels(&[at("full", None, 0.0), at("tova", Some(64), 0.5)].concat());
        let tova = panels[0].point("tova", Some(64)).unwrap();
        let (value, difference) = (tova.estimate.interval.unwrap(), tova.to_full.unwrap());
        assert!(value.half_width() > 1.0, "{value:?}");
        assert_eq!(difference.value, 0.5);
        assert!(difference.interval.unwrap().half_width() < 1e-12, "{difference:?}");
    }

    #[test]
    fn one_book_gives_no_interval_and_says_so() {
        let sample = Sample { sample: "a#0", cluster: "a", value: 2.0, weight: 1.0 };
        let panels = panels(&rows("tova", Some(8), &[sample, Sample { sample: "a#1", ..sample }]));
        assert_eq!(panels[0].points[0].estimate.interval, None);
        assert!(panels[0].notes.iter().any(|note| note.contains("one cluster")), "{:?}", panels[0].notes);
    }

    #[test]
    fn a_cell_with_fewer_samples_is_flagged_and_compares_over_shared_ones() {
        let mut all = two_books();
        all.extend(cell("nll", "h2o", Some(64), &[("b", 5.0, 2.0)]));
        let panels = panels(&all);
        let h2o = panels[0].point("h2o", Some(64)).unwrap();
        assert!(!h2o.complete);
        assert_eq!(h2o.to_full.unwrap().value, 2.5f64.exp() - 2f64.exp());
        assert!(
            panels[0].notes.iter().any(|note| note.starts_with("h2o at 64: 1 of 2 samples")),
            "{:?}",
            panels[0].notes
        );
        assert!(panels[0].point("tova", Some(64)).unwrap().complete);
    }

    #[test]
    fn only_the_cut_text_may_have_other_weights() {
        let mut all = two_books();
        all.extend(cell("nll", "truncate", Some(64), &[("a", 5.0, 3.0), ("b", 5.0, 1.0)]));
        assert!(panels(&all)[0].notes.iter().all(|note| !note.contains("weighs")));
        all.extend(cell("nll", "window", Some(64), &[("a", 5.0, 4.0), ("b", 5.0, 1.0)]));
        assert!(panels(&all)[0].notes.iter().any(|note| note.starts_with("window at 64: weighs")));
    }

    #[test]
    fn full_is_shared_by_keys_that_differ_in_prefill_only() {
        let mut all = two_books();
        let tova = || two_books().into_iter().filter(|row| row.policy == "tova");
        all.extend(tova().map(|row| Row { positions: "slot".into(), cell: "slot".into(), ..row }));
        all.extend(tova().map(|row| Row { prefill: "one_shot".into(), cell: "one_shot".into(), ..row }));
        let panels = panels(&all);
        assert_eq!(panels.len(), 2);
        assert!(panels.iter().all(|panel| panel.full().is_some()));
        // Positions are part of a line's name; prefill is part of the table's key.
        let policies: Vec<_> = panels.iter().map(|panel| panel.policies().join(" ")).collect();
        assert_eq!(policies, ["full tova", "full tova tova@slot"]);
    }

    #[test]
    fn rows_read_twice_count_once_and_the_newest_cell_wins() {
        let twice = [two_books(), two_books()].concat();
        assert_eq!(panels(&twice)[0].points, panels(&two_books())[0].points);
        let newer = two_books().into_iter().filter(|row| row.policy == "tova").map(|row| Row {
            cell: "aaaa".into(),
            value: 3.0,
            engine: row.engine + 1,
            ..row
        });
        let both = panels(&two_books().into_iter().chain(newer).collect::<Vec<_>>());
        assert_eq!(both[0].point("tova", Some(64)).unwrap().estimate.value, 1f64.exp());
        assert!(both[0].notes.iter().any(|note| note.contains("2 cells")), "{:?}", both[0].notes);
    }

    #[test]
    fn values_that_are_not_finite_are_noted() {
        let panels = panels(&cell("nll", "tova", Some(8), &[("a", f64::NAN, 1.0)]));
        assert!(panels[0].points[0].estimate.value.is_nan());
        let count = |text: &str| panels[0].notes.iter().filter(|note| note.contains(text)).count();
        assert_eq!((count("not finite"), count("cells")), (1, 0), "{:?}", panels[0].notes);
    }

    #[test]
    fn policies_come_in_the_order_of_the_paper() {
        let names = ["tova", "mine", "window+4", "h2o", "window", "truncate"];
        let sample = [("a", 1.0, 1.0)];
        let mut all: Vec<Row> = names.iter().flat_map(|name| cell("nll", name, Some(64), &sample)).collect();
        all.extend(cell("nll", "full", None, &sample));
        let expected = ["full", "truncate", "window", "window+4", "h2o", "tova", "mine"];
        assert_eq!(panels(&all)[0].policies(), expected);
    }
}
