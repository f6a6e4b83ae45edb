//! From rows to points: pooled numbers with intervals and paired differences, panel by panel.
//!
//! A panel is everything that may stand in one table: one setting, one metric, one part of the samples. All its points are resampled with the
//! same draws of clusters. It knows how to pool and to compare, and what is wrong with the data behind a number; it
//! refuses to know how anything is drawn.

use std::collections::{BTreeMap, BTreeSet};

use super::bootstrap::{Estimate, Sums, pooled};
use super::gather::{self, Mark, Measured, Places, Subject};
use super::order;
use super::pairs::{self, Pair};
use super::pool::{Pool, Resampled};
use super::quantity::{Quantity, is_result};
use super::setting::Setting;
use crate::ledger::Row;

/// One number of a panel: a policy at a cache size, over all its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub policy: String,
    /// `None` for the full cache.
    pub cache_size: Option<u32>,
    /// In the quantity's own terms: perplexity and not nll.
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

    /// Neither the full cache nor the cut text: a policy in the sense of the paper.
    pub fn is_policy(&self) -> bool {
        !matches!(self.policy.as_str(), "full" | "truncate")
    }
}

/// What may stand in one table: one setting, one metric, one part of the samples, all policies and cache sizes.
#[derive(Clone, Debug)]
pub struct Panel {
    pub setting: Setting,
    pub quantity: Quantity,
    /// The part of every sample the panel is about, such as `distance:512-1023`; `None`: all of it.
    pub group: Option<String>,
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

/// Every panel of the rows, ordered by setting, then metric; the whole samples before their parts.
pub fn panels(rows: &[Row]) -> Vec<Panel> {
    let mut gathered = gather::gather(rows);
    // ROUGE as the field reports it: the geometric mean of three means over the corpus.
    for (whole, parts) in [ROUGE, ROUGE_TRIVIAL] {
        let combined: Vec<_> = gathered
            .iter()
            .filter(|((_, metric, _), _)| *metric == parts[0])
            .filter_map(|((setting, _, group), first)| {
                let other = |metric| gathered.get(&(setting.clone(), metric, *group));
                let places = gather::combine([first, other(parts[1])?, other(parts[2])?]);
                Some(((setting.clone(), whole, *group), places))
            })
            .collect();
        gathered.extend(combined);
    }
    let mut panels: Vec<Panel> = gathered
        .iter()
        .filter(|((_, metric, _), _)| is_result(metric))
        .filter(|((_, _, group), _)| !group.is_some_and(|group| group.starts_with(PIECE)))
        .map(|((setting, metric, group), places)| {
            let mut panel = panel(setting.clone(), metric, *group, places);
            if let Some((_, chance)) = CHANCE.iter().find(|(of, _)| of == metric) {
                let guessed = gathered.get(&(setting.clone(), chance, *group));
                panel.chance = guessed.and_then(level).map(|pooled| panel.quantity.of_pooled(pooled));
            }
            panel
        })
        .collect();
    panels.extend(running(&gathered));
    panels.sort_by(|a, b| a.order().cmp(&b.order()));
    panels
}

/// Rows of such a group are about a piece of a long text.
const PIECE: &str = "piece:";
/// What becomes of them.
pub(super) const RUNNING: &str = "running";

/// Of long texts, the average over all tokens up to the end of each piece (the paper's Figure 7), over the samples that
/// reach it: panels of groups such as `running:8192`.
fn running(gathered: &BTreeMap<Subject<'_>, Places<'_>>) -> Vec<Panel> {
    let piece = |group: &str| -> Option<(u64, u64)> {
        let (first, last) = group.strip_prefix(PIECE)?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    let mut pieces: Vec<_> = gathered
        .iter()
        .filter_map(|((setting, metric, group), places)| Some(((setting, *metric), piece((*group)?)?, places)))
        .collect();
    pieces.sort_by_key(|(of, place, _)| (*of, *place));
    let mut panels = Vec::new();
    for of_one in pieces.chunk_by(|a, b| a.0 == b.0) {
        let mut sums = Places::new();
        for ((setting, metric), (_, last), places) in of_one {
            gather::accumulate(&mut sums, places);
            let reached = gather::limited_to(&sums, places);
            let end = last.saturating_add(1).min(setting.length.into());
            panels.push(panel((*setting).clone(), metric, Some(&format!("{RUNNING}:{end}")), &reached));
        }
    }
    panels
}

/// A metric made of three others.
type OfThree = (&'static str, [&'static str; 3]);
const ROUGE: OfThree = ("rouge", ["rouge1", "rouge2", "rougeL"]);
const ROUGE_TRIVIAL: OfThree = ("rouge_trivial", ["rouge1_trivial", "rouge2_trivial", "rougeL_trivial"]);

/// Metrics, and those that say what a guess or a trivial answer would make of them.
const CHANCE: [(&str, &str); 6] = [
    ("recall", "recall_chance"),
    ("f1", "f1_trivial"),
    ("rouge", "rouge_trivial"),
    ("rouge1", "rouge1_trivial"),
    ("rouge2", "rouge2_trivial"),
    ("rougeL", "rougeL_trivial"),
];

/// The pooled value where it is the same for every policy; those that cover most speak for all.
fn level(places: &Places) -> Option<[f64; 3]> {
    let newest = places.values().filter_map(gather::newest).map(|(_, measured)| measured);
    newest.max_by_key(|measured| measured.marks.len()).and_then(pooled_of)
}

impl Panel {
    fn order(&self) -> impl Ord + '_ {
        (&self.setting, self.quantity.order(), self.group.as_deref().map(order::of_group))
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

fn panel(setting: Setting, metric: &str, group: Option<&str>, places: &Places) -> Panel {
    let quantity = Quantity::of(metric);
    let mut notes = Vec::new();
    let mut chosen = Vec::new();
    for ((policy, cache_size), claims) in places {
        let (policy, cache_size) = (policy.as_ref(), *cache_size);
        let Some((cell, measured)) = gather::newest(claims) else { continue };
        let bits = |measured: &Measured| pooled_of(measured).map(|pooled| pooled.map(f64::to_bits));
        if claims.values().any(|other| bits(other) != bits(measured)) {
            let (n, at) = (claims.len(), place(policy, cache_size));
            notes.push(format!("{at}: {n} cells with different numbers; the newest ({cell}) is shown"));
        }
        if measured.contradictions > 0 {
            let (n, at) = (measured.contradictions, place(policy, cache_size));
            notes.push(format!("{at}: {n} samples came twice with different numbers; the first is used"));
        }
        chosen.push(((policy, cache_size), measured));
    }
    chosen.sort_by_key(|&((policy, cache_size), _)| (order::of(policy), cache_size));

    let all = || chosen.iter().flat_map(|(_, measured)| &measured.marks);
    let samples: BTreeSet<&str> = all().map(|(sample, _)| *sample).collect();
    let clusters: Vec<&str> = all().map(|(_, mark)| mark.cluster).collect::<BTreeSet<_>>().into_iter().collect();
    let pool = Pool { quantity: &quantity, clusters: &clusters };
    let resampled = pool.each(&chosen.iter().map(|(_, measured)| *measured).collect::<Vec<_>>());
    let at_full = chosen.iter().position(|((policy, _), _)| *policy == "full");
    let full = at_full.map(|at| chosen[at].1);
    let full_resampled = at_full.and_then(|at| Some((chosen[at].1, resampled[at].as_ref()?)));

    let mut points = Vec::new();
    for (&((policy, cache_size), measured), own) in chosen.iter().zip(&resampled) {
        let Some(own) = own else {
            notes.push(format!("{}: nothing was scored", place(policy, cache_size)));
            continue;
        };
        let point = point(&pool, (policy, cache_size), (measured, own), full_resampled, samples.len());
        // What was written is as long as it is, and batches are as large as they are: there weights differ by themselves.
        let full = full.filter(|_| !matches!(metric, "nll_written" | "decode_batch" | "resident_bytes"));
        notes.extend(doubts(&point, measured, full, samples.len()));
        points.push(point);
    }
    // Repeats are no texts: their spread is shown as it is.
    if setting.task != "timing" {
        notes.extend(doubts_about_clusters(clusters.len()));
    }
    // Of repeats there is a table of its own, and parts are too many to compare each.
    let pairs = if group.is_none() && setting.task != "timing" {
        pairs::of(&pool, &chosen, &resampled)
    } else {
        Vec::new()
    };
    let (samples, clusters, group) = (samples.len(), clusters.len(), group.map(str::to_owned));
    Panel { setting, quantity, group, chance: None, points, pairs, samples, clusters, notes }
}

/// One point; `full` is the full cache's cell, with what it resampled to.
fn point(
    pool: &Pool<'_>,
    (policy, cache_size): (&str, Option<u32>),
    (measured, own): (&Measured, &Resampled),
    full: Option<(&Measured, &Resampled)>,
    samples: usize,
) -> Point {
    let full = full.filter(|_| pool.quantity.has_difference && policy != "full");
    let minus = |own: &Resampled, full: &Resampled| own.minus(full, |own, full| own - full).estimate();
    let to_full = full.and_then(|(full, resampled)| {
        if full.marks.keys().eq(measured.marks.keys()) {
            return Some(minus(own, resampled));
        }
        let [ours, theirs] = pool.both(measured, full)?;
        Some(minus(&ours, &theirs))
    });
    Point {
        policy: policy.to_owned(),
        cache_size,
        estimate: own.estimate(),
        to_full,
        samples: own.samples,
        clusters: own.clusters,
        weight: own.weight,
        complete: own.samples == samples,
    }
}

fn pooled_of(measured: &Measured) -> Option<[f64; 3]> {
    let sums =
        measured.marks.values().map(|mark| Sums { value: mark.value, beside: mark.beside, weight: mark.weight });
    pooled(&sums.collect::<Vec<_>>())
}

/// What is wrong with the samples behind one point.
fn doubts(point: &Point, measured: &Measured, full: Option<&Measured>, samples: usize) -> Vec<String> {
    let at = place(&point.policy, point.cache_size);
    let mut doubts = Vec::new();
    if !point.complete {
        doubts.push(format!(
            "{at}: {} of {samples} samples, so it does not compare with the others; its difference to full does",
            point.samples
        ));
    }
    if !point.estimate.value.is_finite() {
        doubts.push(format!("{at}: the value is not finite"));
    }
    // The cut text is read in shorter pieces and so scores fewer tokens; a policy must score the same ones as full.
    let weighs_otherwise = |(sample, mark): (&&str, &Mark)| {
        full.and_then(|full| full.marks.get(sample)).is_some_and(|other| other.weight != mark.weight)
    };
    if point.is_policy() && measured.marks.iter().any(weighs_otherwise) {
        doubts.push(format!("{at}: weighs samples otherwise than full does"));
    }
    doubts
}

/// What is wrong with the intervals of a whole panel.
pub(super) fn doubts_about_clusters(clusters: usize) -> Option<String> {
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
    use super::super::fixture::{Sample, rows};
    use super::*;

    /// Two samples from two books, two policies at 64.
    fn two_books() -> Vec<Row> {
        let sample = |sample, value, weight| Sample { sample, cluster: sample, value, weight };
        let mut all = rows("full", None, &[sample("a", 4.0, 4.0), sample("b", 4.0, 2.0)]);
        all.extend(rows("tova", Some(64), &[sample("a", 6.0, 4.0), sample("b", 6.0, 2.0)]));
        all
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
    fn parts_stand_apart_and_chance_beside() {
        let at = |metric: &str, group: Option<&str>, value| {
            let sample = [Sample { sample: "a", cluster: "a", value, weight: 8.0 }];
            let rows = rows("tova", Some(64), &sample).into_iter();
            rows.map(|row| Row { metric: metric.into(), group: group.map(Into::into), ..row }).collect::<Vec<_>>()
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
            .map(|panel| (panel.group.as_deref(), panel.points[0].estimate.value, panel.chance))
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
            let samples: Vec<Sample> = books
                .iter()
                .enumerate()
                .map(|(i, book)| Sample { sample: book, cluster: book, value: i as f64 + shift, weight: 1.0 })
                .collect();
            rows(policy, size, &samples)
                .into_iter()
                .map(|row| Row { metric: "cost".into(), ..row })
                .collect::<Vec<_>>()
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
        all.extend(rows("h2o", Some(64), &[Sample { sample: "b", cluster: "b", value: 5.0, weight: 2.0 }]));
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
    fn only_the_cut_text_may_weigh_otherwise() {
        let mut all = two_books();
        let sample = |sample, weight| Sample { sample, cluster: sample, value: 5.0, weight };
        all.extend(rows("truncate", Some(64), &[sample("a", 3.0), sample("b", 1.0)]));
        assert!(panels(&all)[0].notes.iter().all(|note| !note.contains("weighs")));
        all.extend(rows("window", Some(64), &[sample("a", 4.0), sample("b", 1.0)]));
        assert!(panels(&all)[0].notes.iter().any(|note| note.starts_with("window at 64: weighs")));
    }

    #[test]
    fn full_is_shared_by_settings_that_only_a_bounded_cache_notices() {
        let mut all = two_books();
        all.extend(two_books().into_iter().filter(|row| row.policy == "tova").map(|row| Row {
            positions: "slot".into(),
            cell: "slot".into(),
            ..row
        }));
        all.extend(two_books().into_iter().filter(|row| row.policy == "tova").map(|row| Row {
            prefill: "one_shot".into(),
            cell: "one_shot".into(),
            ..row
        }));
        let panels = panels(&all);
        assert_eq!(panels.len(), 2);
        assert!(panels.iter().all(|panel| panel.full().is_some()));
        // Where keys stand is a line's own business, how a prompt came into the cache a table's.
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
    fn a_value_that_is_no_number_is_said_to_be_none() {
        let sample = [Sample { sample: "a", cluster: "a", value: f64::NAN, weight: 1.0 }];
        let panels = panels(&rows("tova", Some(8), &sample));
        assert!(panels[0].points[0].estimate.value.is_nan());
        let said = |text: &str| panels[0].notes.iter().filter(|note| note.contains(text)).count();
        assert_eq!((said("not finite"), said("cells")), (1, 0), "{:?}", panels[0].notes);
    }

    #[test]
    fn policies_come_in_the_order_of_the_paper() {
        let sample = [Sample { sample: "a", cluster: "a", value: 1.0, weight: 1.0 }];
        let names = ["tova", "mine", "window+4", "h2o", "window", "truncate"];
        let mut all: Vec<Row> = names.iter().flat_map(|name| rows(name, Some(64), &sample)).collect();
        all.extend(rows("full", None, &sample));
        let expected = ["full", "truncate", "window", "window+4", "h2o", "tova", "mine"];
        assert_eq!(panels(&all)[0].policies(), expected);
    }
}
