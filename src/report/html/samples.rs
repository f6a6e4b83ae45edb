//! Single samples as data for the page's script: what each measured under every policy and size, and what was written.
//!
//! The page takes as much as its budget allows: whole samples first and curves by position after them, and some cells with
//! all their samples rather than all cells with some. It says what it leaves out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Result;
use serde::Serialize;

use super::super::series::{AllSeries, CellSums, PolicyAtSize, newest};
use super::super::series_key::SeriesKey;
use super::super::{escape, order};
use super::json::{Exact, escaped, inside_script};
use crate::ledger::Row;
use crate::metric::{Metric, Pooling};

/// Bytes of JSON with which a page still opens quickly.
pub(super) const BUDGET: usize = 8_000_000;
/// Most samples that a reader can choose from.
const MOST_SAMPLES: usize = 10_000;

/// A metric and the slice of the sample it is about.
type Column<'a> = (&'a str, Option<&'a str>);

/// What one cell measured.
type Columns<'a> = BTreeMap<Column<'a>, &'a CellSums<'a>>;

/// A policy at a size, with what its newest cell measured.
struct Place<'a> {
    policy: Cow<'a, str>,
    size: Option<u32>,
    columns: Columns<'a>,
}

/// The samples of one key, as far as they are in the page.
struct KeySamples<'a> {
    title: String,
    /// As tables order them.
    places: Vec<Place<'a>>,
    /// By sample, its place in the page's list.
    listed: HashMap<&'a str, usize>,
    /// Name and cluster.
    samples: Vec<(&'a str, &'a str)>,
    columns: Vec<Column<'a>>,
    weights: Weights,
    taken: Vec<Taken>,
    left_out: Vec<String>,
}

/// The JSON of a place, as far as it was taken.
#[derive(Default)]
struct Taken {
    whole: Option<String>,
    slices: Option<String>,
}

/// Lists of weights, which are mostly the same for every policy.
#[derive(Default)]
struct Weights {
    known: HashMap<String, usize>,
    lists: Vec<String>,
}

impl Weights {
    fn place(&mut self, list: String) -> usize {
        let lists = &mut self.lists;
        *self.known.entry(list).or_insert_with_key(|list| {
            lists.push(list.clone());
            lists.len() - 1
        })
    }
}

/// Values and, by the place of their list, weights of one column.
#[derive(Serialize)]
struct Values {
    v: Vec<Option<Exact>>,
    w: usize,
}

#[derive(Serialize)]
struct Whole<'a> {
    policy: String,
    size: Option<u32>,
    values: BTreeMap<usize, Values>,
    outputs: Option<Vec<Option<&'a str>>>,
}

#[derive(Serialize)]
struct Subject {
    metric: String,
    slice: String,
    quantity: String,
    transform: &'static str,
}

/// The JSON; `keys` are the page's, in its order, and `budget` its bytes.
pub(super) fn json(all: &AllSeries<'_>, keys: &[SeriesKey], budget: usize) -> Result<String> {
    let mut all_keys: Vec<KeySamples<'_>> =
        keys.iter().map(|key| KeySamples::of(key.title(keys), places(all, key))).collect();
    let mut left = budget;
    for tier in [Tier::Whole, Tier::Slices] {
        // A cell of each key in turn, so that no key takes all the room.
        let orders: Vec<Vec<usize>> = all_keys.iter().map(|of_key| of_key.by_interest()).collect();
        let longest = orders.iter().map(Vec::len).max().unwrap_or(0);
        let mut full = vec![false; all_keys.len()];
        for rank in 0..longest {
            for (at, of_key) in all_keys.iter_mut().enumerate() {
                let Some(&place) = orders[at].get(rank).filter(|_| !full[at]) else { continue };
                match of_key.take(place, tier, left)? {
                    Some(cost) => left = left.saturating_sub(cost),
                    None => full[at] = true,
                }
            }
        }
    }
    let mut written = Vec::new();
    for of_key in &mut all_keys {
        of_key.note_what_is_missing();
        written.push(of_key.json()?);
    }
    Ok(format!("[{}]", written.join(",\n")))
}

#[derive(Clone, Copy, PartialEq)]
enum Tier {
    Whole,
    Slices,
}

/// The places of a key with results of whole samples and of positions along the text.
fn places<'a>(all: &'a AllSeries<'a>, key: &SeriesKey) -> Vec<Place<'a>> {
    let mut places: BTreeMap<PolicyAtSize<'a>, Columns<'a>> = BTreeMap::new();
    for (id, slice, series) in all.of_key(key) {
        let metric = Metric::of(id);
        let is_course = |slice: &str| slice.starts_with("position:") || slice.starts_with("piece:");
        if !metric.is_result() || metric.pooling == Pooling::GeometricShare || !slice.is_none_or(is_course) {
            continue;
        }
        for (place, candidates) in series {
            if let Some((_, sums)) = newest(candidates) {
                places.entry(place.clone()).or_default().insert((id, slice), sums);
            }
        }
    }
    let place = |((policy, size), columns)| Place { policy, size, columns };
    let mut places: Vec<Place<'_>> = places.into_iter().map(place).collect();
    places.sort_by(|a, b| (order::of(&a.policy), a.size).cmp(&(order::of(&b.policy), b.size)));
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
            (rank, id, slice.map(order::of_slice))
        });
        Self {
            title,
            taken: places.iter().map(|_| Taken::default()).collect(),
            places,
            listed: samples.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect(),
            samples,
            columns,
            weights: Weights::default(),
            left_out,
        }
    }

    /// The places in the order in which they are taken: the full cache, then all policies at one size after the other, from
    /// the middle outwards by halves.
    fn by_interest(&self) -> Vec<usize> {
        let sizes: BTreeSet<u32> = self.places.iter().filter_map(|place| place.size).collect();
        let sizes: Vec<u32> = sizes.into_iter().collect();
        let mut places: Vec<usize> = (0..self.places.len()).filter(|at| self.places[*at].size.is_none()).collect();
        for size in by_halves(sizes.len()).into_iter().map(|at| sizes[at]) {
            places.extend((0..self.places.len()).filter(|at| self.places[*at].size == Some(size)));
        }
        places
    }

    /// Takes a place's numbers if they fit into the bytes left, and returns their size.
    fn take(&mut self, at: usize, tier: Tier, left: usize) -> Result<Option<usize>> {
        if tier == Tier::Slices && self.taken[at].whole.is_none() {
            return Ok(None);
        }
        let mut values = BTreeMap::new();
        let mut new_lists = 0;
        let place = &self.places[at];
        for (column, subject) in self.columns.iter().enumerate() {
            if subject.1.is_some() != (tier == Tier::Slices) {
                continue;
            }
            let Some(sums) = place.columns.get(subject) else { continue };
            let (mut v, mut w) = (vec![None; self.samples.len()], vec![None; self.samples.len()]);
            for (sample, sum) in &sums.samples {
                if let Some(&listed) = self.listed.get(sample) {
                    (v[listed], w[listed]) = (Some(Exact(sum.sums.values[0])), Some(Exact(sum.sums.weight)));
                }
            }
            let (list, lists) = (escaped(&weights(&w)?), self.weights.lists.len());
            let length = list.len();
            let w = self.weights.place(list);
            new_lists += if self.weights.lists.len() > lists { length } else { 0 };
            values.insert(column, Values { v, w });
        }
        let json = match tier {
            Tier::Slices if values.is_empty() => return Ok(Some(0)),
            Tier::Slices => inside_script(&values)?,
            Tier::Whole => {
                let outputs = self.outputs(place);
                inside_script(&Whole { policy: escape::plain(&place.policy), size: place.size, values, outputs })?
            }
        };
        let cost = json.len() + new_lists;
        if cost > left {
            return Ok(None);
        }
        match tier {
            Tier::Whole => self.taken[at].whole = Some(json),
            Tier::Slices => self.taken[at].slices = Some(json),
        }
        Ok(Some(cost))
    }

    fn note_what_is_missing(&mut self) {
        // Sizes by the policies that are missing there, to list equal ones together.
        let missing = |is_missing: &dyn Fn(usize) -> bool| -> Vec<String> {
            let places = &self.places;
            let at = |size: Option<u32>| (0..places.len()).filter(move |at| places[*at].size == size);
            let sizes: BTreeSet<Option<u32>> = self.places.iter().map(|place| place.size).collect();
            let mut policies: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for size in sizes {
                let names: Vec<String> =
                    at(size).filter(|at| is_missing(*at)).map(|at| escape::plain(&places[at].policy)).collect();
                let names = match names.len() {
                    0 => continue,
                    all if all > 1 && all == at(size).count() => "every policy".to_owned(),
                    _ => names.join(", "),
                };
                policies.entry(names).or_default().extend(size.map(|size| size.to_string()));
            }
            let one = |(names, sizes): (String, Vec<String>)| match sizes.is_empty() {
                true => names,
                false => format!("{names} at {}", sizes.join(", ")),
            };
            policies.into_iter().map(one).collect()
        };
        let has_slices = |at: usize| self.places[at].columns.keys().any(|(_, slice)| slice.is_some());
        let whole = missing(&|at| self.taken[at].whole.is_none());
        let parts =
            missing(&|at| has_slices(at) && self.taken[at].whole.is_some() && self.taken[at].slices.is_none());
        if !whole.is_empty() {
            self.left_out.push(format!("all numbers of {}", whole.join("; ")));
        }
        if !parts.is_empty() {
            self.left_out.push(format!("the numbers by position of {}", parts.join("; ")));
        }
    }

    fn json(&self) -> Result<String> {
        let samples: Vec<[String; 2]> =
            self.samples.iter().map(|(name, cluster)| [escape::plain(name), escape::plain(cluster)]).collect();
        let subject = |(metric, slice): &Column<'_>| {
            let metric = Metric::of(metric);
            Subject {
                metric: escape::plain(&metric.id),
                slice: escape::plain(slice.unwrap_or_default()),
                quantity: metric.label.to_string(),
                transform: metric.transform(),
            }
        };
        let (questions, references) = self.asked();
        let taken = self.taken.iter().filter_map(|taken| {
            let whole = taken.whole.as_ref()?;
            let parts = taken.slices.as_deref().unwrap_or("null");
            Some(format!("[{whole},{parts}]"))
        });
        Ok(format!(
            "{{\"title\":{},\"samples\":{},\"columns\":{},\"weights\":[{}],\"questions\":{},\"references\":{},\"left_out\":{},\n\
             \"places\":[{}]}}",
            inside_script(&self.title)?,
            inside_script(&samples)?,
            inside_script(&self.columns.iter().map(subject).collect::<Vec<_>>())?,
            self.weights.lists.join(","),
            inside_script(&questions)?,
            inside_script(&references)?,
            inside_script(&self.left_out)?,
            taken.collect::<Vec<_>>().join(",\n"),
        ))
    }

    /// The rows that carry a place's written texts, with the samples' places in the list; none where nothing was written.
    fn written<'s>(&'s self, place: &'s Place<'a>) -> impl Iterator<Item = (usize, &'a Row)> + 's {
        let written = place.columns.get(&("new_tokens", None)).into_iter().flat_map(|sums| &sums.samples);
        let rows = written.map(|(sample, sum)| (sample, sum.row)).filter(|(_, row)| row.output.is_some());
        rows.filter_map(|(sample, row)| Some((*self.listed.get(sample)?, row)))
    }

    /// What was written for each sample; `None` where the task writes nothing.
    fn outputs(&self, place: &Place<'a>) -> Option<Vec<Option<&'a str>>> {
        let mut outputs = vec![None; self.samples.len()];
        self.written(place).for_each(|(listed, row)| outputs[listed] = row.output.as_deref());
        outputs.iter().any(Option::is_some).then_some(outputs)
    }

    /// The question of each sample, and the answers that count as right; empty lists where there are none.
    fn asked(&self) -> (Vec<Option<&'a str>>, Vec<Vec<String>>) {
        let (mut questions, mut references) =
            (vec![None; self.samples.len()], vec![Vec::new(); self.samples.len()]);
        for (listed, row) in self.places.iter().flat_map(|place| self.written(place)) {
            if questions[listed].is_none() {
                questions[listed] = row.question.as_deref();
            }
            if let (true, Some(json)) = (references[listed].is_empty(), &row.references) {
                // Another program may have written the row: then its text is shown as it is.
                references[listed] = serde_json::from_str(json).unwrap_or_else(|_| vec![json.clone()]);
            }
        }
        let nothing = questions.iter().all(Option::is_none);
        (
            if nothing { Vec::new() } else { questions },
            if references.iter().all(Vec::is_empty) { Vec::new() } else { references },
        )
    }
}

/// A list of weights, or one number where all are equal.
fn weights(list: &[Option<Exact>]) -> Result<String> {
    let mut present = list.iter().flatten();
    match present.next() {
        Some(first) if present.all(|weight| weight == first) => inside_script(first),
        _ => inside_script(&list),
    }
}

/// The middle, the middles of the halves, and so on.
fn by_halves(count: usize) -> Vec<usize> {
    let mut order = Vec::new();
    let mut spans = std::collections::VecDeque::from([(0, count)]);
    while let Some((from, to)) = spans.pop_front().filter(|_| order.len() < count) {
        if from < to {
            let middle = usize::midpoint(from, to);
            order.push(middle);
            spans.extend([(from, middle), (middle + 1, to)]);
        }
    }
    order
}

/// Compares `#2` before `#10`: runs of digits by their number.
fn natural(name: &str) -> impl Iterator<Item = (u64, &str)> + Clone + '_ {
    let mut rest = name;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        rest = after;
        Some(if is_digit { (run.parse().unwrap_or(u64::MAX - 1), run) } else { (u64::MAX, run) })
    })
}
