//! Single samples as data for the page's script: what each measured under every policy and size, and what was written.
//!
//! From the sorted rows the page takes what fits into its budget, whole samples first and curves by position after
//! them, some cells with all their samples rather than all cells with some. It says what it left out. It pools nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Result;
use serde::Serialize;

use super::super::quantity::Quantity;
use super::super::setting::Setting;
use super::super::{escape, order};
use super::json::{Exact, escaped, inside_script};
use super::sorted::{self, Column, Place, Sorted};
use crate::ledger::Row;

/// Bytes of JSON that a page still opens with quickly.
pub(super) const BUDGET: usize = 8_000_000;
/// A list of more is no list to choose from.
const MOST_SAMPLES: usize = 10_000;

/// One setting on its way into the page.
struct Home<'a> {
    title: String,
    places: Vec<Place<'a>>,
    /// By sample, its place in the page's list.
    listed: HashMap<u32, usize>,
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
    parts: Option<String>,
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
    group: String,
    quantity: String,
    transform: &'static str,
}

/// The JSON; `settings` are the page's, in its order, and `budget` its bytes.
pub(super) fn json(rows: &[Row], settings: &[Setting], budget: usize) -> Result<String> {
    let sorted = sorted::sort(rows);
    let home = |setting: &Setting| Home::of(setting.title(settings), sorted.places(setting), &sorted);
    let mut homes: Vec<Home<'_>> = settings.iter().map(home).collect();
    let mut left = budget;
    for tier in [Tier::Whole, Tier::Parts] {
        // A cell of each setting in turn, so that no setting takes all the room.
        let orders: Vec<Vec<usize>> = homes.iter().map(|home| home.by_interest()).collect();
        let longest = orders.iter().map(Vec::len).max().unwrap_or(0);
        let mut full = vec![false; homes.len()];
        for rank in 0..longest {
            for (at, home) in homes.iter_mut().enumerate() {
                let Some(&place) = orders[at].get(rank).filter(|_| !full[at]) else { continue };
                match home.take(place, tier, left)? {
                    Some(cost) => left = left.saturating_sub(cost),
                    None => full[at] = true,
                }
            }
        }
    }
    let mut written = Vec::new();
    for home in &mut homes {
        home.note_what_is_missing();
        written.push(home.json()?);
    }
    Ok(format!("[{}]", written.join(",\n")))
}

#[derive(Clone, Copy, PartialEq)]
enum Tier {
    Whole,
    Parts,
}

impl<'a> Home<'a> {
    fn of(title: String, places: Vec<Place<'a>>, sorted: &'a Sorted<'a>) -> Self {
        let cells = || places.iter().flat_map(|place| &place.cells);
        let samples: BTreeSet<u32> =
            cells().flat_map(|cell| cell.columns.values().flatten().map(|(sample, _)| *sample)).collect();
        let mut samples: Vec<u32> = samples.into_iter().collect();
        let name = |sample: u32| sorted.samples[sample as usize].0;
        samples.sort_by(|a, b| natural(name(*a)).cmp(natural(name(*b))));
        let mut left_out = Vec::new();
        if samples.len() > MOST_SAMPLES {
            left_out.push(format!("{} of {} samples", samples.len() - MOST_SAMPLES, samples.len()));
            samples.truncate(MOST_SAMPLES);
        }
        let columns: BTreeSet<Column> = cells().flat_map(|cell| cell.columns.keys().copied()).collect();
        let mut columns: Vec<Column> = columns.into_iter().collect();
        columns.sort_by_key(|(metric, group)| (order_of(metric), group.map(order::of_group)));
        Self {
            title,
            taken: places.iter().map(|_| Taken::default()).collect(),
            places,
            listed: samples.iter().enumerate().map(|(place, sample)| (*sample, place)).collect(),
            samples: samples.iter().map(|sample| sorted.samples[*sample as usize]).collect(),
            columns,
            weights: Weights::default(),
            left_out,
        }
    }

    /// The places in the order in which they are worth their room: the full cache, then all policies at one size after
    /// the other, from the middle outwards by halves.
    fn by_interest(&self) -> Vec<usize> {
        let sizes: BTreeSet<u32> = self.places.iter().filter_map(|place| place.size).collect();
        let sizes: Vec<u32> = sizes.into_iter().collect();
        let mut places: Vec<usize> = (0..self.places.len()).filter(|at| self.places[*at].size.is_none()).collect();
        for size in by_halves(sizes.len()).into_iter().map(|at| sizes[at]) {
            places.extend((0..self.places.len()).filter(|at| self.places[*at].size == Some(size)));
        }
        places
    }

    /// Takes a place's numbers if they cost no more than is left, and says what they cost.
    fn take(&mut self, at: usize, tier: Tier, left: usize) -> Result<Option<usize>> {
        if tier == Tier::Parts && self.taken[at].whole.is_none() {
            return Ok(None);
        }
        let mut values = BTreeMap::new();
        let mut new_lists = 0;
        let place = &self.places[at];
        for (column, subject) in self.columns.iter().enumerate() {
            if subject.1.is_some() != (tier == Tier::Parts) {
                continue;
            }
            let Some(rows) = place.cells.iter().find_map(|cell| cell.columns.get(subject)) else { continue };
            let (mut v, mut w) = (vec![None; self.samples.len()], vec![None; self.samples.len()]);
            for (sample, row) in rows {
                if let Some(&listed) = self.listed.get(sample).filter(|listed| v[**listed].is_none()) {
                    (v[listed], w[listed]) = (Some(Exact(row.value)), Some(Exact(row.weight)));
                }
            }
            let (list, lists) = (escaped(&weights(&w)?), self.weights.lists.len());
            let length = list.len();
            let w = self.weights.place(list);
            new_lists += if self.weights.lists.len() > lists { length } else { 0 };
            values.insert(column, Values { v, w });
        }
        let json = match tier {
            Tier::Parts if values.is_empty() => return Ok(Some(0)),
            Tier::Parts => inside_script(&values)?,
            Tier::Whole => {
                let outputs = place.outputs(&self.listed, self.samples.len());
                inside_script(&Whole { policy: escape::plain(&place.policy), size: place.size, values, outputs })?
            }
        };
        let cost = json.len() + new_lists;
        if cost > left {
            return Ok(None);
        }
        match tier {
            Tier::Whole => self.taken[at].whole = Some(json),
            Tier::Parts => self.taken[at].parts = Some(json),
        }
        Ok(Some(cost))
    }

    fn note_what_is_missing(&mut self) {
        // Sizes by the policies that are missing there, so that like sizes are said together.
        let missing = |is_missing: &dyn Fn(usize) -> bool| -> Vec<String> {
            let places = &self.places;
            let at = |size: Option<u32>| (0..places.len()).filter(move |at| places[*at].size == size);
            let sizes: BTreeSet<Option<u32>> = self.places.iter().map(|place| place.size).collect();
            let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for size in sizes {
                let names: Vec<String> =
                    at(size).filter(|at| is_missing(*at)).map(|at| escape::plain(&places[at].policy)).collect();
                let names = match names.len() {
                    0 => continue,
                    all if all > 1 && all == at(size).count() => "every policy".to_owned(),
                    _ => names.join(", "),
                };
                told.entry(names).or_default().extend(size.map(|size| size.to_string()));
            }
            let one = |(names, sizes): (String, Vec<String>)| match sizes.is_empty() {
                true => names,
                false => format!("{names} at {}", sizes.join(", ")),
            };
            told.into_iter().map(one).collect()
        };
        let has_parts = |at: usize| {
            let cells = &self.places[at].cells;
            cells.iter().any(|cell| cell.columns.keys().any(|(_, group)| group.is_some()))
        };
        let whole = missing(&|at| self.taken[at].whole.is_none());
        let parts =
            missing(&|at| has_parts(at) && self.taken[at].whole.is_some() && self.taken[at].parts.is_none());
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
        let subject = |(metric, group): &Column<'_>| {
            let quantity = Quantity::of(metric);
            Subject {
                metric: escape::plain(metric),
                group: escape::plain(group.unwrap_or_default()),
                quantity: quantity.name.clone(),
                transform: quantity.transform(),
            }
        };
        let (questions, references) = self.asked();
        let taken = self.taken.iter().filter_map(|taken| {
            let whole = taken.whole.as_ref()?;
            let parts = taken.parts.as_deref().unwrap_or("null");
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

    /// What was asked of each sample, and the answers that count as right; empty lists where nothing was.
    fn asked(&self) -> (Vec<Option<&'a str>>, Vec<Vec<String>>) {
        let (mut questions, mut references) =
            (vec![None; self.samples.len()], vec![Vec::new(); self.samples.len()]);
        for (sample, row) in self.places.iter().flat_map(|place| &place.cells).flat_map(|cell| &cell.written) {
            let Some(&listed) = self.listed.get(sample) else { continue };
            if questions[listed].is_none() {
                questions[listed] = row.question.as_deref();
            }
            if let (true, Some(json)) = (references[listed].is_empty(), &row.references) {
                // Another program may have written the row: then its text is shown as it stands.
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

fn order_of(metric: &str) -> (usize, String) {
    let quantity = Quantity::of(metric);
    let (rank, name) = quantity.order();
    (rank, name.to_owned())
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
