//! Single samples as data for the page's script: what each measured under every policy and size, and what was written.
//!
//! The page takes as much as its budget allows: whole samples first and curves by position after them, and some cells with
//! all their samples rather than all cells with some. It says what it leaves out.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Value, json};

use super::json::{Exact, inside_script};
use crate::ledger::Row;
use crate::metric::{Metric, Pooling, Slice};
use crate::report::escape;
use crate::report::series::{AllSeries, CellSums, PIECE, PolicyAtSize, SampleSum, SeriesKey, Size};
use crate::report::special_tokens::marked;

/// Bytes of JSON with which a page still opens quickly.
pub(super) const BUDGET: usize = 8_000_000;
/// Most samples that a reader can choose from.
const MOST_SAMPLES: usize = 10_000;

/// A metric and the slice of the sample it is about.
type Column<'a> = (&'a str, Option<&'a Slice>);

/// What one cell measured.
type Columns<'a> = BTreeMap<Column<'a>, &'a CellSums<'a>>;

/// Values by sample, and the place of their list of weights.
#[derive(Serialize)]
struct Values {
    v: Vec<Option<Exact>>,
    w: usize,
}

/// By the place of their column.
type ByColumn = BTreeMap<usize, Values>;

/// What a place says of whole samples.
#[derive(Serialize)]
struct Whole<'a> {
    policy: String,
    size: Option<Size>,
    values: ByColumn,
    outputs: Option<Vec<Option<Cow<'a, str>>>>,
}

/// A policy at a size, with what was measured and what of it is in the page.
struct Place<'a> {
    policy: Cow<'a, str>,
    size: Option<Size>,
    columns: Columns<'a>,
    whole: Option<Whole<'a>>,
    slices: Option<ByColumn>,
}

/// The samples of one key, as far as they are in the page.
struct KeySamples<'a> {
    title: String,
    /// As tables order them.
    places: Vec<Place<'a>>,
    /// Name and cluster.
    samples: Vec<(&'a str, &'a str)>,
    columns: Vec<Column<'a>>,
    /// Lists of weights, which are mostly the same for every policy.
    weights: Vec<Value>,
    left_out: Vec<String>,
}

/// A key as the script reads it.
#[derive(Serialize)]
struct Record<'a> {
    title: &'a str,
    samples: Vec<[String; 2]>,
    columns: Vec<Value>,
    weights: Vec<&'a Value>,
    questions: Vec<Option<Cow<'a, str>>>,
    references: Vec<Vec<String>>,
    left_out: &'a [String],
    places: Vec<(&'a Whole<'a>, Option<&'a ByColumn>)>,
}

/// The JSON; `keys` and `policies` are the page's, in its order, and `budget` its bytes.
pub(super) fn json(
    all: &AllSeries<'_>,
    keys: &[SeriesKey],
    policies: &[(String, String)],
    budget: usize,
) -> Result<String> {
    let of_key = |key: &SeriesKey| KeySamples::of(key.title(keys), places(all, key, policies));
    let mut all_keys: Vec<KeySamples<'_>> = keys.iter().map(of_key).collect();
    let mut left = budget;
    for of_slices in [false, true] {
        // A cell of each key in turn, so that no key takes all the room.
        let mut queues: Vec<_> = all_keys.iter().map(|of_key| of_key.by_interest().into_iter()).collect();
        while queues.iter().any(|queue| queue.len() > 0) {
            for (of_key, queue) in all_keys.iter_mut().zip(&mut queues) {
                let Some(place) = queue.next() else { continue };
                match of_key.take(place, of_slices, left)? {
                    Some(rest) => left = rest,
                    None => *queue = Vec::new().into_iter(),
                }
            }
        }
    }
    all_keys.iter_mut().for_each(KeySamples::note_what_is_missing);
    inside_script(&all_keys.iter().map(KeySamples::record).collect::<Vec<_>>())
}

/// The places of a key with results of whole samples and of positions along the text.
fn places<'a>(all: &'a AllSeries<'a>, key: &SeriesKey, policies: &[(String, String)]) -> Vec<Place<'a>> {
    let mut places: IndexMap<PolicyAtSize<'a>, Columns<'a>> = IndexMap::new();
    for ((_, id, slice), series) in all.iter().filter(|((other, ..), _)| other == key) {
        let metric = Metric::of(id);
        let is_course = |slice: &Slice| slice.is("position") || slice.is(PIECE);
        if !metric.is_result() || metric.pooling == Pooling::GeometricShare || !slice.is_none_or(is_course) {
            continue;
        }
        for (place, sums) in series {
            places.entry(place.clone()).or_default().insert((id, *slice), sums);
        }
    }
    let place = |((policy, size), columns)| Place { policy, size, columns, whole: None, slices: None };
    let mut places: Vec<Place<'_>> = places.into_iter().map(place).collect();
    let rank = |place: &Place<'_>| policies.iter().position(|(name, _)| *name == place.policy);
    places.sort_by_key(|place| (rank(place), place.size));
    places
}

impl<'a> KeySamples<'a> {
    fn of(title: String, places: Vec<Place<'a>>) -> Self {
        let sums = || places.iter().flat_map(|place| place.columns.values());
        let samples: BTreeMap<&str, &str> =
            sums().flat_map(|sums| &sums.samples).map(|(name, sum)| (*name, sum.row.cluster.as_str())).collect();
        let mut samples: Vec<(&str, &str)> = samples.into_iter().collect();
        samples.sort_by(|a, b| natural(a.0).cmp(natural(b.0)));
        let mut left_out = Vec::new();
        if samples.len() > MOST_SAMPLES {
            left_out.push(format!("{} of {} samples", samples.len() - MOST_SAMPLES, samples.len()));
            samples.truncate(MOST_SAMPLES);
        }
        let columns: BTreeSet<Column> = places.iter().flat_map(|place| place.columns.keys().copied()).collect();
        let mut columns: Vec<Column> = columns.into_iter().collect();
        columns.sort_by_cached_key(|(metric, slice)| {
            let (rank, id) = (Metric::of(metric).order().0, (*metric).to_owned());
            (rank, id, *slice)
        });
        Self { title, places, samples, columns, weights: Vec::new(), left_out }
    }

    /// The places in the order in which they are taken: the full cache, then all policies at one size after the other, from
    /// the middle outwards by halves.
    fn by_interest(&self) -> Vec<usize> {
        let sizes: BTreeSet<Size> = self.places.iter().filter_map(|place| place.size).collect();
        // Counted so that the middle divides by the highest power of two, the middles of the halves by the next, ...
        let first = ((sizes.len() + 1).next_power_of_two() - sizes.len()).div_ceil(2);
        let ranks = sizes.into_iter().zip(first..).map(|(size, at)| (size, Reverse(at.trailing_zeros())));
        let ranks: BTreeMap<Size, Reverse<u32>> = ranks.collect();
        let mut places: Vec<usize> = (0..self.places.len()).collect();
        places.sort_by_key(|at| self.places[*at].size.map(|size| (ranks[&size], size)));
        places
    }

    /// Takes the numbers of a place, or of its slices, if they fit; returns how many of the bytes `left` are left then.
    fn take(&mut self, at: usize, of_slices: bool, left: usize) -> Result<Option<usize>> {
        let place = &self.places[at];
        if of_slices && place.whole.is_none() {
            return Ok(None);
        }
        let (mut values, mut cost) = (ByColumn::new(), 0);
        for (column, subject) in self.columns.iter().enumerate() {
            let sums = place.columns.get(subject).filter(|_| subject.1.is_some() == of_slices);
            let Some(sums) = sums else { continue };
            let of_each = |number: fn(&SampleSum<'_>) -> f64| -> Vec<Option<Exact>> {
                self.samples.iter().map(|(name, _)| sums.samples.get(name).map(|sum| Exact(number(sum)))).collect()
            };
            let weights = compact(&of_each(|sum| sum.sums.weight));
            let known = self.weights.iter().position(|known| *known == weights);
            if known.is_none() {
                cost += inside_script(&weights)?.len();
                self.weights.push(weights);
            }
            let w = known.unwrap_or(self.weights.len() - 1);
            values.insert(column, Values { v: of_each(|sum| sum.sums.values[0]), w });
        }
        if of_slices {
            cost += inside_script(&values)?.len();
            self.places[at].slices = (cost <= left && !values.is_empty()).then_some(values);
        } else {
            let (policy, outputs) = (escape::plain(&place.policy), self.outputs(place));
            let whole = Whole { policy, size: place.size, values, outputs };
            cost += inside_script(&whole)?.len();
            self.places[at].whole = (cost <= left).then_some(whole);
        }
        Ok(left.checked_sub(cost))
    }

    fn note_what_is_missing(&mut self) {
        let whole = self.missing("all numbers", |place| place.whole.is_none());
        let slices = self.missing("the numbers by position", |place| {
            let has_slices = place.columns.keys().any(|(_, slice)| slice.is_some());
            has_slices && place.whole.is_some() && place.slices.is_none()
        });
        self.left_out.extend(whole.into_iter().chain(slices));
    }

    /// `all numbers of tova at 64, 128; every policy at 256`.
    fn missing(&self, what: &str, is_missing: impl Fn(&Place<'_>) -> bool) -> Option<String> {
        // Sizes by the policies that are missing there, to list equal ones together.
        let mut policies: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for size in self.places.iter().map(|place| place.size).collect::<BTreeSet<_>>() {
            let here = || self.places.iter().filter(|place| place.size == size);
            let missing = here().filter(|place| is_missing(place));
            let names: Vec<String> = missing.map(|place| escape::plain(&place.policy)).collect();
            let names = match names.len() {
                0 => continue,
                all if all > 1 && all == here().count() => "every policy".to_owned(),
                _ => names.join(", "),
            };
            policies.entry(names).or_default().extend(size.map(|size| size.to_string()));
        }
        let one = |(names, sizes): (String, Vec<String>)| match sizes.is_empty() {
            true => names,
            false => format!("{names} at {}", sizes.join(", ")),
        };
        let all: Vec<String> = policies.into_iter().map(one).collect();
        (!all.is_empty()).then(|| format!("{what} of {}", all.join("; ")))
    }

    fn record(&self) -> Record<'_> {
        let subject = |(metric, slice): &Column<'_>| {
            let metric = Metric::of(metric);
            json!({
                "metric": escape::plain(&metric.id),
                "slice": escape::plain(&Slice::text(*slice)),
                "quantity": metric.label,
                "transform": metric.transform(),
            })
        };
        let each = self.samples.iter();
        let names = each.map(|(name, cluster)| [name, cluster].map(|text| escape::plain(text)));
        let taken = self.places.iter().filter_map(|place| Some((place.whole.as_ref()?, place.slices.as_ref())));
        Record {
            title: &self.title,
            samples: names.collect(),
            columns: self.columns.iter().map(subject).collect(),
            weights: self.weights.iter().collect(),
            questions: self.questions(),
            references: self.references(),
            left_out: &self.left_out,
            places: taken.collect(),
        }
    }

    /// What was written for each sample; `None` where the task writes nothing.
    fn outputs(&self, place: &Place<'a>) -> Option<Vec<Option<Cow<'a, str>>>> {
        let outputs = self.samples.iter().map(|(name, _)| place.written(name)?.output.as_deref().map(marked));
        Some(outputs.collect()).filter(|outputs: &Vec<_>| outputs.iter().any(Option::is_some))
    }

    /// The first of what the rows with a sample's written texts say, by sample.
    fn asked<T>(&self, field: impl Fn(&'a Row) -> Option<T>) -> impl Iterator<Item = Option<T>> {
        let rows = |name| self.places.iter().filter_map(move |place| place.written(name));
        self.samples.iter().map(move |(name, _)| rows(name).find_map(&field))
    }

    /// The question of each sample; an empty list where there are none.
    fn questions(&self) -> Vec<Option<Cow<'a, str>>> {
        let questions: Vec<_> = self.asked(|row| row.question.as_deref().map(marked)).collect();
        if questions.iter().all(Option::is_none) { Vec::new() } else { questions }
    }

    /// The answers that count as right for each sample; an empty list where there are none.
    fn references(&self) -> Vec<Vec<String>> {
        // Another program may have written the row: then its text is shown as it is.
        let list = |json: &str| serde_json::from_str(json).unwrap_or_else(|_| vec![json.to_owned()]);
        let marks = |list: Vec<String>| list.iter().map(|text| marked(text).into_owned()).collect();
        let references = self.asked(|row| row.references.as_deref().map(list));
        let references: Vec<Vec<String>> = references.map(|list| list.map_or_else(Vec::new, marks)).collect();
        if references.iter().all(Vec::is_empty) { Vec::new() } else { references }
    }
}

impl<'a> Place<'a> {
    /// The row that carries what was written for a sample.
    fn written(&self, sample: &str) -> Option<&'a Row> {
        let row = self.columns.get(&("new_tokens", None))?.samples.get(sample)?.row;
        row.output.is_some().then_some(row)
    }
}

/// A list of weights, or one number where all are equal.
fn compact(list: &[Option<Exact>]) -> Value {
    let mut present = list.iter().flatten();
    match present.next() {
        Some(first) if present.all(|weight| weight == first) => json!(first),
        _ => json!(list),
    }
}

/// Compares `#2` before `#10`: runs of digits by their number, before everything else.
fn natural(name: &str) -> impl Iterator<Item = (u64, &[u8])> {
    let runs = name.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
    runs.map(|run| (std::str::from_utf8(run).ok().and_then(|run| run.parse().ok()).unwrap_or(u64::MAX), run))
}
