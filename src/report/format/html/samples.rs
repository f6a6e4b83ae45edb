//! Single samples as data for the page's script: what each measured under every policy and size, and what was written.
//!
//! A page that would be too large to open has fewer samples, and says how many it leaves out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use indexmap::IndexMap;
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

/// A policy at a size, with what was measured.
struct Place<'a> {
    policy: Cow<'a, str>,
    size: Option<Size>,
    columns: Columns<'a>,
}

/// The name and the cluster of a sample.
type Sample<'a> = (&'a str, &'a str);

/// The samples of one key.
struct KeySamples<'a> {
    title: String,
    /// Policies at sizes, in the order of tables.
    places: Vec<Place<'a>>,
    samples: Vec<Sample<'a>>,
}

/// The JSON; `keys` and `policies` are the page's, in its order, and `budget` its bytes.
pub(super) fn json(
    all: &AllSeries<'_>,
    keys: &[SeriesKey],
    policies: &[(String, String)],
    budget: usize,
) -> Result<String> {
    let of_key = |key: &SeriesKey| KeySamples::of(key.title(keys), places(all, key, policies));
    let all_keys: Vec<KeySamples<'_>> = keys.iter().map(of_key).collect();
    let mut most = all_keys.iter().map(|of_key| of_key.samples.len()).max().unwrap_or(0).min(MOST_SAMPLES);
    loop {
        let json = inside_script(&all_keys.iter().map(|key| key.record(most)).collect::<Vec<_>>())?;
        if json.len() <= budget || most <= 1 {
            return Ok(json);
        }
        most /= 2;
    }
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
    let place = |((policy, size), columns)| Place { policy, size, columns };
    let mut places: Vec<Place<'_>> = places.into_iter().map(place).collect();
    let rank = |place: &Place<'_>| policies.iter().position(|(name, _)| *name == place.policy);
    places.sort_by_key(|place| (rank(place), place.size));
    places
}

impl<'a> KeySamples<'a> {
    fn of(title: String, places: Vec<Place<'a>>) -> Self {
        let sums = places.iter().flat_map(|place| place.columns.values());
        let samples: BTreeMap<&str, &str> =
            sums.flat_map(|sums| &sums.samples).map(|(name, sum)| (*name, sum.row.cluster.as_str())).collect();
        let mut samples: Vec<Sample<'_>> = samples.into_iter().collect();
        samples.sort_by(|a, b| natural(a.0).cmp(natural(b.0)));
        Self { title, places, samples }
    }

    /// The metrics of whole samples, then the slices of each.
    fn columns(&self) -> Vec<Column<'a>> {
        let columns: BTreeSet<Column> =
            self.places.iter().flat_map(|place| place.columns.keys().copied()).collect();
        let mut columns: Vec<Column> = columns.into_iter().collect();
        columns.sort_by_cached_key(|(metric, slice)| (Metric::of(metric).order().0, (*metric).to_owned(), *slice));
        columns
    }

    /// The first `most` samples as the script reads them.
    fn record(&self, most: usize) -> Value {
        let samples = &self.samples[..most.min(self.samples.len())];
        let fewer = samples.len() < self.samples.len();
        let fewer =
            fewer.then(|| format!("{} of {} samples", self.samples.len() - samples.len(), self.samples.len()));
        let columns = self.columns();
        let subject = |(metric, slice): &Column<'_>| {
            let metric = Metric::of(metric);
            json!({
                "metric": escape::plain(&metric.id),
                "slice": escape::plain(&Slice::text(*slice)),
                "quantity": metric.label,
                "transform": metric.transform(),
            })
        };
        let mut weights: Vec<Value> = Vec::new();
        // By the place of their column: values by sample, and the place of their list of weights.
        let mut values = |place: &Place<'_>, of_slices: bool| -> BTreeMap<usize, Value> {
            let mut values = BTreeMap::new();
            for (column, subject) in columns.iter().enumerate() {
                let sums = place.columns.get(subject).filter(|_| subject.1.is_some() == of_slices);
                let Some(sums) = sums else { continue };
                let of_each = |number: fn(&SampleSum<'_>) -> f64| -> Vec<Option<Exact>> {
                    samples.iter().map(|(name, _)| sums.samples.get(name).map(|sum| Exact(number(sum)))).collect()
                };
                let own = compact(&of_each(|sum| sum.sums.weight));
                let known = weights.iter().position(|known| *known == own);
                let w = known.unwrap_or(weights.len());
                weights.extend(known.is_none().then_some(own));
                values.insert(column, json!({"v": of_each(|sum| sum.sums.values[0]), "w": w}));
            }
            values
        };
        let places = self.places.iter().map(|place| {
            let (policy, outputs) = (escape::plain(&place.policy), outputs(place, samples));
            let whole =
                json!({"policy": policy, "size": place.size, "values": values(place, false), "outputs": outputs});
            (whole, Some(values(place, true)).filter(|slices| !slices.is_empty()))
        });
        let places: Vec<_> = places.collect();
        let shown = |(name, cluster): &Sample<'_>| [name, cluster].map(|text| escape::plain(text));
        json!({
            "title": self.title,
            "samples": samples.iter().map(shown).collect::<Vec<_>>(),
            "columns": columns.iter().map(subject).collect::<Vec<_>>(),
            // Lists of weights, which are mostly the same for every policy.
            "weights": weights,
            "questions": self.questions(samples),
            "references": self.references(samples),
            "left_out": Vec::from_iter(fewer),
            "places": places,
        })
    }

    /// The first of what the rows with a sample's written texts say, by sample.
    fn asked<T>(
        &self,
        samples: &[Sample<'_>],
        field: impl Fn(&'a Row) -> Option<T>,
    ) -> impl Iterator<Item = Option<T>> {
        let rows = |name| self.places.iter().filter_map(move |place| place.written(name));
        samples.iter().map(move |(name, _)| rows(name).find_map(&field))
    }

    /// The question of each sample; an empty list where there are none.
    fn questions(&self, samples: &[Sample<'_>]) -> Vec<Option<Cow<'a, str>>> {
        let questions: Vec<_> = self.asked(samples, |row| row.question.as_deref().map(marked)).collect();
        if questions.iter().all(Option::is_none) { Vec::new() } else { questions }
    }

    /// The answers that count as right for each sample; an empty list where there are none.
    fn references(&self, samples: &[Sample<'_>]) -> Vec<Vec<String>> {
        // Another program may have written the row: then its text is shown as it is.
        let list = |json: &str| serde_json::from_str(json).unwrap_or_else(|_| vec![json.to_owned()]);
        let marks = |list: Vec<String>| list.iter().map(|text| marked(text).into_owned()).collect();
        let references = self.asked(samples, |row| row.references.as_deref().map(list));
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

/// What was written for each sample; `None` where the task writes nothing.
fn outputs<'a>(place: &Place<'a>, samples: &[Sample<'_>]) -> Option<Vec<Option<Cow<'a, str>>>> {
    let outputs = samples.iter().map(|(name, _)| place.written(name)?.output.as_deref().map(marked));
    Some(outputs.collect()).filter(|outputs: &Vec<_>| outputs.iter().any(Option::is_some))
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
