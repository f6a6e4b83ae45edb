//! From series to points: pooled numbers with intervals and paired differences, panel by panel.
//!
//! A panel is everything that may stand in one table: one key, one metric, one slice of the samples. All its points are
//! pooled over the same subsets of clusters. Warnings about the data behind a number are made here; nothing is drawn.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexSet;

use crate::format::capital;
use crate::ledger::Contrast;
use crate::metric::{Metric, Property, Slice};
use crate::report::escape;
use crate::report::series::{
    AllSeries, Cell, CellSums, Difference, Ends, Pair, Pool, SampleSum, Series, SeriesKey, Size, SizeAxis,
    ceiling, pairs, place, sums,
};
use crate::report::statistics::{Estimate, has_verdicts, interval, smallest_p};

/// One number of a panel: a policy at a cache size, over all its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub policy: String,
    /// `None` for the full cache.
    pub cache_size: Option<Size>,
    /// In the unit shown: perplexity and not NLL.
    pub estimate: Estimate,
    /// Minus the full cache's value.
    pub to_full: Option<Difference>,
    pub samples: usize,
    pub clusters: usize,
    /// What the number is over: scored tokens, words.
    pub weight: f64,
    /// Bytes that the cache holds while a token after the prompt is predicted, the mean over samples, at 16 bits a number. `None` where
    /// rows do not have it.
    pub held_bytes: Option<f64>,
    /// The most bytes that the cache of any sample holds between two tokens.
    pub peak_bytes: Option<u64>,
    /// Bytes of the cache that the prediction of such a token reads, the mean over samples.
    pub read_bytes: Option<f64>,
    /// Least and most entries per layer and key-value head, over samples; `None` for the full cache.
    pub entries: Option<(u32, u32)>,
    /// Whether the point covers every sample of its panel.
    pub complete: bool,
    /// Share of the way from random eviction to eviction with the future known that the policy goes, where both were measured.
    pub to_ceiling: Option<Estimate>,
    /// Whether the policy evicts by what the rest of the text will need, so that nobody can choose it.
    pub reads_future: bool,
}

impl Point {
    pub fn is_full(&self) -> bool {
        self.policy == "full"
    }

    /// Whether the point's policy is one in the sense of the paper: neither the full cache nor the cut text.
    pub fn is_policy(&self) -> bool {
        !matches!(base_name(&self.policy), "full" | "truncate")
    }
}

/// The policy without what follows an `@`.
fn base_name(policy: &str) -> &str {
    policy.split('@').next().unwrap_or(policy)
}

/// What may stand in one table: one key, one metric, one slice of the samples, all policies and cache sizes.
#[derive(Clone, Debug)]
pub struct Panel {
    pub key: SeriesKey,
    /// Tokens of a sample; `None` where samples have several lengths, as needles may.
    pub length: Option<u32>,
    pub metric: Metric,
    /// The slice of every sample that the panel is about; `None`: all of it.
    pub slice: Option<Slice>,
    /// What a guess would reach, where that is known.
    pub guess: Option<f64>,
    /// By how much the full cache is better than the guess.
    pub above_guess: Option<Estimate>,
    /// Ordered by policy, as the rows have them, then by cache size.
    pub points: Vec<Point>,
    /// Every two policies at one cache size, of whole samples only.
    pub pairs: Vec<Pair>,
    /// The planned contrasts whose two policies the panel has, each the first minus the second.
    pub contrasts: Vec<[String; 2]>,
    /// Samples and clusters that any point has.
    pub samples: usize,
    pub clusters: usize,
    /// What a reader must know before trusting the numbers, one sentence each.
    pub notes: Vec<String>,
}

/// Every panel of the series, keys in the order of the rows, then by metric; whole samples before their slices. `contrasts` are those
/// that were planned.
pub fn panels(all: &AllSeries<'_>, contrasts: &[Contrast]) -> Vec<Panel> {
    let is_piece = |slice: Option<&Slice>| slice.is_some_and(|slice| slice.is(PIECE));
    let mut panels = Vec::new();
    for ((key, id, slice), series) in all.iter().filter(|((_, _, slice), _)| !is_piece(*slice)) {
        let metric = Metric::of(id);
        if !metric.is_result() {
            continue;
        }
        let guesses = metric.guess.and_then(|guess| all.get(&(key.clone(), guess.metric, *slice)));
        let guess = guesses.and_then(level).map(|pooled| metric.of_pooled(pooled));
        let above_guess = guesses.and_then(|guesses| above(&metric, series, guesses));
        panels.push(Panel { guess, above_guess, ..panel(key.clone(), metric, *slice, series, contrasts) });
    }
    panels.extend(running(all).iter().map(average));
    let several: BTreeSet<SeriesKey> = of_several_lengths(&panels);
    panels.iter_mut().filter(|panel| several.contains(&panel.key)).for_each(|panel| panel.length = None);
    let keys: IndexSet<&SeriesKey> = all.keys().map(|(key, ..)| key).collect();
    panels.sort_by(|a, b| (keys.get_index_of(&a.key), a.order()).cmp(&(keys.get_index_of(&b.key), b.order())));
    panels
}

/// The keys whose samples have several lengths.
fn of_several_lengths(panels: &[Panel]) -> BTreeSet<SeriesKey> {
    let mut lengths: BTreeMap<&SeriesKey, BTreeSet<_>> = BTreeMap::new();
    for panel in panels {
        let length = panel.slice.as_ref().filter(|slice| slice.is("length") || slice.is(LENGTH_AND_DEPTH));
        lengths.entry(&panel.key).or_default().extend(length.map(|slice| (&slice.name, slice.low)));
    }
    lengths.into_iter().filter(|(_, lengths)| lengths.len() > 1).map(|(key, _)| key.clone()).collect()
}

/// Rows of such a slice are about a piece of a long text.
pub(crate) const PIECE: &str = "piece";
/// The kind of slices of needles by both.
pub(crate) const LENGTH_AND_DEPTH: &str = "length and depth";
/// The kind of slice that pieces are summed to.
pub(crate) const RUNNING: &str = "running";

/// The sums of one key and metric over all tokens up to a place of a long text, of the samples that are that long.
pub(crate) struct Running<'a> {
    pub(crate) key: SeriesKey,
    pub(crate) metric: &'a str,
    pub(crate) end: u64,
    pub(crate) series: Series<'a>,
}

/// Sums of long texts up to the end of each piece, ascending.
pub(crate) fn running<'a>(all: &AllSeries<'a>) -> Vec<Running<'a>> {
    let piece = |slice: &Slice| Some([slice.low?, slice.high?]).filter(|_| slice.is(PIECE));
    let pieces = all.iter().filter(|((_, id, _), _)| Metric::of(id).is_result());
    let pieces = pieces.filter_map(|((key, id, slice), series)| Some(((key, *id), piece((*slice)?)?, series)));
    let mut pieces: Vec<_> = pieces.collect();
    pieces.sort_by_key(|(of, place, _)| (*of, *place));
    let mut running = Vec::new();
    for of_one in pieces.chunk_by(|a, b| a.0 == b.0) {
        let mut sums = Series::new();
        for ((key, id), [_, last], series) in of_one {
            let long_enough = sums::accumulate(&mut sums, series);
            let end = last.saturating_add(1).min(key.length.into());
            running.push(Running { key: (*key).clone(), metric: id, end, series: long_enough });
        }
    }
    running
}

/// The average over all tokens up to a place (the paper's Figure 7): a panel of the slice `running` up to there.
fn average(running: &Running<'_>) -> Panel {
    let slice = Slice::number(RUNNING, running.end);
    panel(running.key.clone(), Metric::of(running.metric), Some(&slice), &running.series, &[])
}

/// The pooled value of a guess, which is the same for every policy: of the cell with most samples.
fn level(series: &Series) -> Option<[f64; 3]> {
    series.values().max_by_key(|sums| sums.samples.len()).and_then(CellSums::pooled)
}

/// By how much the full cache is better than a guess.
fn above(metric: &Metric, series: &Series, guess: &Series) -> Option<Estimate> {
    let full = (Cow::Borrowed("full"), None);
    let pool = Pool::of(metric, series.values());
    let [own, guess] = [series, guess].map(|series| series.get(&full).map(|sums| pool.cell(&full, sums)));
    Some(pool.difference(&own?, &guess?)?.loss(metric.better).turned().shown)
}

impl Panel {
    fn order(&self) -> impl Ord + '_ {
        (self.metric.order(), self.slice.as_ref())
    }

    /// `Perplexity: Llama-2-7b-hf · pg19`, with what else tells the key apart `among` all of the report.
    pub(crate) fn title(&self, among: &[SeriesKey]) -> String {
        format!("{}: {}", capital(&escape::plain(&self.metric.label)), self.key.title(among))
    }

    /// Whether the full cache is clearly better than a guess, or none is known. Where it is not, policies that are near it show
    /// nothing.
    pub fn beats_guess(&self) -> bool {
        let least = |above: Estimate| above.interval.map_or(above.value, |interval| interval.low);
        self.above_guess.is_none_or(|above| least(above) > 0.0)
    }

    pub fn full(&self) -> Option<&Point> {
        self.points.iter().find(|point| point.is_full())
    }

    /// The cache sizes measured, ascending.
    pub fn sizes(&self) -> Vec<Size> {
        let sizes: BTreeSet<Size> = self.points.iter().filter_map(|point| point.cache_size).collect();
        sizes.into_iter().collect()
    }

    /// The policies in order, `full` first where it was measured.
    pub fn policies(&self) -> Vec<&str> {
        let mut policies: Vec<&str> = self.points.iter().map(|point| point.policy.as_str()).collect();
        policies.dedup();
        policies
    }

    /// Whether a policy can be chosen: neither the full cache nor the cut text, and none that knows the future.
    pub fn is_choice(&self, policy: &str) -> bool {
        self.points.iter().any(|point| point.policy == policy && point.is_policy() && !point.reads_future)
    }

    /// Whether two policies of one size differ by more than 2 % in a number of bytes.
    fn is_unequal(&self, bytes: impl Fn(&Point) -> Option<f64>) -> bool {
        self.sizes().into_iter().any(|size| {
            let at_size = self.points.iter().filter(|point| point.is_policy() && point.cache_size == Some(size));
            let all: Vec<f64> = at_size.filter_map(&bytes).collect();
            let [least, most] = [f64::min, f64::max].map(|of| all.iter().copied().reduce(of).unwrap_or(0.0));
            most > 1.02 * least
        })
    }

    /// Whether two policies of one size hold memory on average that differs by more than 2 %, or the full cache has several formats.
    pub fn has_unequal_memory(&self) -> bool {
        self.is_unequal(|point| point.held_bytes)
            || self.points.iter().any(|point| point.cache_size.is_none() && !point.is_full())
    }

    /// Whether all sizes are memory, so that policies of one size compare.
    pub fn has_sizes_of_memory(&self) -> bool {
        let sizes = self.sizes();
        !sizes.is_empty() && sizes.into_iter().all(Size::is_memory)
    }

    /// Whether sizes alone do not say what memory policies take, on average and at most.
    pub fn needs_memory_table(&self) -> bool {
        let peak = |point: &Point| point.peak_bytes.map(|bytes| bytes as f64);
        self.has_unequal_memory() || self.has_sizes_of_memory() || self.is_unequal(peak)
    }

    /// What a figure over sizes has across: what was asked for, or memory where caches of one size hold unequal memory. Without the memory
    /// of every point, the size.
    pub(crate) fn size_axis(&self, asked: Option<SizeAxis>) -> SizeAxis {
        let are_places = self.has_sizes_of_memory() && self.sizes().len() > 1;
        let usual = if are_places || self.has_unequal_memory() { SizeAxis::Held } else { SizeAxis::Entries };
        let axis = asked.unwrap_or(usual);
        let mut bounded = self.points.iter().filter(|point| point.cache_size.is_some());
        if bounded.all(|point| axis.of(point).is_some()) { axis } else { SizeAxis::Entries }
    }

    pub fn point(&self, policy: &str, cache_size: Option<impl Into<Size>>) -> Option<&Point> {
        let cache_size = cache_size.map(Into::into);
        self.points.iter().find(|point| point.policy == policy && point.cache_size == cache_size)
    }

    /// Two policies at a size, from the side of the first.
    pub fn pair(&self, policy: &str, against: &str, size: Size) -> Option<Pair> {
        let mut pairs = self.pairs.iter().filter(|pair| pair.cache_size == size);
        pairs.find_map(|pair| match (&*pair.policy, &*pair.against) {
            names if names == (policy, against) => Some(pair.clone()),
            names if names == (against, policy) => Some(pair.turned()),
            _ => None,
        })
    }

    /// What tables show at a size: the full cache has none, so its point is at every one.
    pub fn shown_at(&self, policy: &str, cache_size: Option<Size>) -> Option<&Point> {
        self.point(policy, cache_size).or_else(|| self.point(policy, None::<Size>))
    }
}

fn panel(key: SeriesKey, metric: Metric, slice: Option<&Slice>, series: &Series, planned: &[Contrast]) -> Panel {
    let mut notes = Vec::new();
    let pool = Pool::of(&metric, series.values());
    let mut cells: Vec<Cell<'_>> = series.iter().map(|(place, sums)| pool.cell(place, sums)).collect();
    let policies: IndexSet<&str> = cells.iter().map(|cell| cell.policy).collect();
    cells.sort_by_key(|cell| (policies.get_index_of(cell.policy), cell.cache_size));

    let samples = cells.iter().flat_map(|cell| cell.sums.samples.keys()).collect::<BTreeSet<_>>().len();
    let full = cells.iter().find(|cell| cell.policy == "full");
    let ends = Ends::of(&metric, &cells, samples);
    let mut points = Vec::new();
    for cell in &cells {
        let Some(own) = &cell.pooled else {
            notes.push(format!("{}: nothing was scored", place(cell.policy, cell.cache_size)));
            continue;
        };
        let compared = full.filter(|full| !metric.has(Property::NoDifference) && full.policy != cell.policy);
        let to_full = compared.and_then(|full| pool.difference(cell, full));
        let mut point = Point {
            policy: cell.policy.to_owned(),
            cache_size: cell.cache_size,
            estimate: own.estimate(),
            to_full,
            samples: cell.sums.samples.len(),
            clusters: own.clusters(),
            weight: own.weight,
            held_bytes: cell.sums.held_bytes(),
            peak_bytes: cell.sums.peak_bytes(),
            read_bytes: cell.sums.read_bytes(),
            entries: cell.sums.entries(),
            complete: cell.sums.samples.len() == samples,
            to_ceiling: None,
            reads_future: ceiling::is_ceiling(cell.score()),
        };
        let may_have_share = point.complete && point.is_policy();
        point.to_ceiling = if may_have_share { ends.share(cell) } else { None };
        notes.extend(warnings(&point, cell, full.filter(|_| !metric.has(Property::VaryingWeights))));
        points.push(point);
    }
    notes.extend(unfinished(&points, samples));
    notes.extend(if slice.is_none() { entries_of_shares(&cells) } else { None });
    let clusters = pool.clusters.len();
    // Repeats are not texts: their spread is shown as it is.
    if !metric.is_timed() {
        notes.extend(few_clusters(clusters));
    }
    // Repeats have a table of their own, and slices are too many to compare each.
    let is_compared = slice.is_none() && !metric.is_timed();
    let policies: Vec<&str> = policies.into_iter().collect();
    let among = planned.iter().filter(|_| is_compared).filter_map(|contrast| contrast.among(&policies));
    let contrasts: Vec<[String; 2]> = among.map(|names| names.map(str::to_owned)).collect();
    let pairs = if is_compared { pairs::of(&pool, &cells, &contrasts) } else { Vec::new() };
    let slice = slice.cloned();
    let length = Some(key.length);
    let (guess, above_guess) = (None, None);
    Panel { length, key, metric, slice, guess, above_guess, points, pairs, contrasts, samples, clusters, notes }
}

/// The entries that shares came to, as `25% is 51 to 128 entries`; `None` where no size is a share.
fn entries_of_shares(cells: &[Cell<'_>]) -> Option<String> {
    let mut sizes: BTreeMap<Size, (u32, u32)> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.policy != "truncate") {
        let (Some(size @ Size::Share(_)), Some(own)) = (cell.cache_size, cell.sums.entries()) else { continue };
        let (least, most) = sizes.entry(size).or_insert(own);
        (*least, *most) = (own.0.min(*least), own.1.max(*most));
    }
    let words = |(size, (least, most)): (Size, (u32, u32))| match least < most {
        true => format!("{size} is {least} to {most} entries"),
        false => format!("{size} is {least} entries"),
    };
    let words: Vec<String> = sizes.into_iter().map(words).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Points without all samples.
fn unfinished(points: &[Point], samples: usize) -> Option<String> {
    let unfinished: Vec<&Point> = points.iter().filter(|point| !point.complete).collect();
    let first = unfinished.first()?;
    let others = match unfinished.len() - 1 {
        0 => String::new(),
        others => format!(", {others} more have fewer"),
    };
    let at = place(&first.policy, first.cache_size);
    Some(format!(
        "of {samples} samples {at} has {}{others}: these do not compare with the others, but their differences to full do",
        first.samples
    ))
}

/// What is wrong with the samples behind one point; `full` is given where a policy must score the same tokens.
fn warnings(point: &Point, cell: &Cell<'_>, full: Option<&Cell<'_>>) -> Vec<String> {
    let at = place(&point.policy, point.cache_size);
    let mut warnings = Vec::new();
    if !point.estimate.value.is_finite() {
        warnings.push(format!("{at}: the value is not finite"));
    }
    // The cut text is read in shorter pieces and so scores fewer tokens; a policy must score the same ones as full.
    let weighs_otherwise = |(sample, sum): (&&str, &SampleSum)| {
        full.and_then(|full| full.sums.samples.get(sample)).is_some_and(|of| of.sums.weight != sum.sums.weight)
    };
    if point.is_policy() && cell.sums.samples.iter().any(weighs_otherwise) {
        warnings.push(format!("{at}: weighs samples differently from full"));
    }
    warnings
}

/// What so few clusters cannot tell.
pub(crate) fn few_clusters(clusters: usize) -> Option<String> {
    match clusters {
        0 | 1 => Some("no intervals: all samples come from one cluster (one book, story or paper)".to_owned()),
        _ if clusters < interval::FEWEST => {
            Some(format!("no intervals: {clusters} clusters (books, stories or papers) are too few, 4 are needed"))
        }
        _ if !has_verdicts(clusters) => Some(format!(
            "{clusters} clusters cannot tell policies apart: the smallest possible p is {}, and 6 clusters are needed",
            smallest_p(clusters)
        )),
        _ => None,
    }
}

/// What 95 % intervals over so few clusters cover, as a clause after their name; empty where they cover what they say.
pub(crate) fn coverage(clusters: usize) -> String {
    // Between the least and the largest cluster lie all but two of so many equally likely places.
    let covered = 100.0 * (1.0 - smallest_p(clusters));
    match clusters {
        _ if !(interval::FEWEST..UNEVEN).contains(&clusters) => String::new(),
        _ if !has_verdicts(clusters) => format!(", which cover {covered:.0} % at most with {clusters} clusters"),
        _ => format!(", which with {clusters} clusters may cover less where a few differ much from the others"),
    }
}

/// From so many clusters on, intervals cover what they say even where clusters are uneven.
const UNEVEN: usize = 30;

#[cfg(test)]
mod tests {
    use super::Panel;
    use crate::ledger::Row;
    use crate::report::Results;
    use crate::report::fixture::{at_share, cell, changed, panels};
    use crate::report::series::{SeriesKey, Size};

    /// Two samples from two books, two policies at 64.
    fn two_books() -> Vec<Row> {
        [
            cell("nll", "full", None, &[("a", 4.0, 4.0), ("b", 4.0, 2.0)]),
            cell("nll", "tova", Some(64), &[("a", 6.0, 4.0), ("b", 6.0, 2.0)]),
        ]
        .concat()
    }

    /// The only panel of some rows.
    fn panel(rows: &[Row]) -> Panel {
        let mut panels = panels(rows);
        assert_eq!(panels.len(), 1);
        panels.remove(0)
    }

    #[test]
    fn a_point_pools_by_weight() {
        let panel = panel(&two_books());
        // exp((6 + 6) / (4 + 2)), not the mean of exp(6/4) and exp(6/2).
        let tova = panel.point("tova", Some(64)).unwrap();
        assert_eq!(tova.estimate.value, 2f64.exp());
        assert_eq!((tova.samples, tova.clusters, tova.weight, tova.complete), (2, 2, 6.0, true));
        // exp((4 + 4) / (4 + 2)).
        assert_eq!(panel.full().unwrap().estimate.value, (8.0f64 / 6.0).exp());
        assert_eq!(tova.to_full.as_ref().unwrap().shown.value, 2f64.exp() - (8.0f64 / 6.0).exp());
        assert_eq!(panel.full().unwrap().to_full, None);
        let nats = tova.to_full.as_ref().unwrap().nats.unwrap();
        assert!((nats.value - 4.0 / 6.0).abs() < 1e-15 && tova.estimate.interval.is_none(), "{nats:?}");
    }

    #[test]
    fn slices_have_panels_of_their_own_with_their_guess() {
        let at = |metric: &str, slice: Option<&str>, value| {
            changed(cell(metric, "tova", Some(64), &[("a", value, 8.0)]), |row| row.slice = slice.map(Into::into))
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
        let shown = |panel: &Panel| (panel.slice.clone(), panel.points[0].estimate.value, panel.guess);
        let slice = |slice: &str| Some(slice.into());
        let expected = [
            (None, 75.0, Some(25.0)),
            (slice("distance:16-31"), 50.0, Some(12.5)),
            (slice("distance:128-255"), 25.0, None),
            (slice("kind:home"), 12.5, None),
        ];
        assert_eq!(panels.iter().map(shown).collect::<Vec<_>>(), expected);
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
        let panel = panel(&[at("full", None, 0.0), at("tova", Some(64), 0.5)].concat());
        let tova = panel.point("tova", Some(64)).unwrap();
        let (value, difference) = (tova.estimate.interval.unwrap(), tova.to_full.as_ref().unwrap().shown);
        assert!(value.high - value.low > 2.0, "{value:?}");
        assert_eq!(difference.value, 0.5);
        let interval = difference.interval.unwrap();
        assert!(interval.high - interval.low < 1e-12, "{difference:?}");
    }

    #[test]
    fn a_cell_with_fewer_samples_is_compared_over_those_that_full_has_too() {
        let panel = panel(&[two_books(), cell("nll", "h2o", Some(64), &[("b", 5.0, 2.0)])].concat());
        let h2o = panel.point("h2o", Some(64)).unwrap();
        assert_eq!((h2o.complete, h2o.to_full.as_ref().unwrap().shown.value), (false, 2.5f64.exp() - 2f64.exp()));
        assert!(panel.point("tova", Some(64)).unwrap().complete);
    }

    #[test]
    fn numbers_that_need_a_warning_have_one() {
        let with = |policy, samples: &[_]| [two_books(), cell("nll", policy, Some(64), samples)].concat();
        let other_weights = [("a", 5.0, 4.0), ("b", 5.0, 1.0)];
        for (rows, note) in [
            (
                changed(two_books(), |row| row.cluster = "a".into()),
                "no intervals: all samples come from one cluster",
            ),
            (with("h2o", &[("b", 5.0, 2.0)]), "of 2 samples h2o at 64 has 1: these do not compare"),
            (with("window", &other_weights), "window at 64: weighs samples differently"),
            (with("tova", &[("c", f64::INFINITY, 1.0)]), "tova at 64: the value is not finite"),
            (with("mine", &[("a", 0.0, 0.0), ("b", 0.0, 0.0)]), "mine at 64: nothing was scored"),
        ] {
            let notes = panel(&rows).notes;
            assert_eq!(notes.iter().filter(|found| found.starts_with(note)).count(), 1, "{note}: {notes:?}");
        }
        // A cut text is read in pieces and scores fewer tokens; a file read twice is no contradiction.
        for (rows, word) in
            [(with("truncate", &other_weights), "weighs"), ([two_books(), two_books()].concat(), "twice")]
        {
            assert!(panel(&rows).notes.iter().all(|note| !note.contains(word)), "{word}");
        }
    }

    #[test]
    fn no_cell_counts_more_than_another() {
        let refused = |rows: &[Row]| Results::of(rows).is_err();
        let tova = |change: fn(&mut Row)| [two_books(), changed(two_books().split_off(2), change)].concat();
        assert!(refused(&tova(|row| row.cell = "other".into())));
        assert!(refused(&tova(|row| row.value += 1.0)));
        let nan = Results::of(&tova(|row| row.value = f64::NAN))
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(nan.contains("tova at 64: sample a of cell tova-Some(64) has no number as its nll"), "{nan}");
        assert!(!refused(&tova(|_| {})), "the same file twice");
        // Another version of the engine has a table of its own.
        let panels = panels(&tova(|row| (row.engine, row.value) = (2, 12.0)));
        let values: Vec<f64> = panels.iter().map(|panel| panel.points.last().unwrap().estimate.value).collect();
        assert_eq!(values, [2f64.exp(), 4f64.exp()]);
    }

    #[test]
    fn full_is_shared_by_keys_that_differ_in_prefill_only() {
        let tova = |change: fn(&mut Row)| changed(two_books().split_off(2), change);
        let panels = panels(
            &[
                two_books(),
                tova(|row| (row.positions, row.cell) = ("slot".into(), "slot".into())),
                tova(|row| (row.prefill, row.cell) = ("cut_before_question".into(), "cut".into())),
            ]
            .concat(),
        );
        // Positions are part of a line's name; prefill is part of the table's key.
        let policies: Vec<_> = panels.iter().map(|panel| panel.policies().join(" ")).collect();
        assert_eq!(policies, ["full tova tova@slot", "full tova"]);
    }

    #[test]
    fn entries_and_shares_are_two_panels_that_both_have_full() {
        // The two samples have 7 and 8 entries, and are one cell.
        let of_shares = at_share(0.25, cell("nll", "tova", None, &[("a", 8.0, 4.0), ("b", 7.0, 2.0)]));
        let truncate = cell("nll", "truncate", Some(64), &[("a", 6.0, 3.0)]);
        let panels = panels(&[two_books(), truncate, of_shares].concat());
        let [entries, shares] = &panels[..] else { panic!("two panels expected") };
        assert_eq!((entries.sizes(), shares.sizes()), (vec![Size::Entries(64)], vec![Size::Share(2500)]));
        assert_eq!(
            (entries.policies(), shares.policies()),
            (vec!["full", "tova", "truncate"], vec!["full", "tova"])
        );
        // exp((8 + 7) / (4 + 2)) and exp((4 + 4) / (4 + 2)).
        let tova = shares.point("tova", Some(Size::Share(2500))).unwrap();
        assert_eq!((tova.estimate.value, tova.samples, tova.complete), (2.5f64.exp(), 2, true));
        let values = [entries, shares].map(|panel| panel.full().unwrap().estimate.value);
        assert_eq!(values, [(8.0f64 / 6.0).exp(); 2]);
        assert_eq!(tova.to_full.as_ref().unwrap().shown.value, 2.5f64.exp() - values[0]);
        let keys = [entries, shares].map(|panel| panel.key.clone());
        let titles = keys.each_ref().map(|key| key.title(&keys));
        let title = "Llama-2-7b-hf \u{B7} pg19";
        assert_eq!(titles, [title.to_owned(), format!("{title} \u{B7} sizes shares of the prompt or text")]);
        assert!(keys[0].fields() == keys[1].fields() && keys[0].described() != keys[1].described());
        assert!(SeriesKey::names().iter().all(|name| !name.contains("size")), "files keep their columns");
    }

    #[test]
    fn cut_texts_without_policies_stay_beside_full() {
        let share = at_share(0.5, cell("nll", "truncate", None, &[("a", 8.0, 4.0)]));
        let full = two_books()[..2].to_vec();
        let sizes = |rows: &[Vec<Row>]| -> Vec<(Vec<Size>, bool)> {
            panels(&rows.concat()).iter().map(|panel| (panel.sizes(), panel.full().is_some())).collect()
        };
        let entries = cell("nll", "truncate", Some(64), &[("a", 8.0, 4.0)]);
        let [half, whole] = [Size::Share(5000), Size::Entries(64)].map(|size| (vec![size], true));
        assert_eq!(sizes(&[full.clone(), share.clone()]), std::slice::from_ref(&half));
        assert_eq!(sizes(&[full, entries, share]), [whole, half]);
    }

    #[test]
    fn policies_come_in_the_order_of_the_rows() {
        let names = ["tova", "mine", "window+4", "h2o", "full"];
        let all = names.map(|name| cell("nll", name, Some(64).filter(|_| name != "full"), &[("a", 1.0, 1.0)]));
        assert_eq!(panel(&all.concat()).policies(), names);
    }
}
