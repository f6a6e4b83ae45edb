//! Rows of two sides sorted by what they mean, so that equals stand opposite each other.
//!
//! It knows that a cell's id says too much (it holds the engine's version) and a policy's name too little, that a device
//! matters to a time and to nothing else, and that one place may be claimed by more than one cell. It compares nothing.

use std::collections::HashMap;

use crate::ledger::{Row, Text};
use crate::report::{Setting, is_shared};

/// Where cells are measured: the borrowed fields of a [`Setting`], policy and cache size.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Where<'a> {
    texts: [&'a str; 8],
    asked: Option<&'a str>,
    numbers: (u32, u32, bool, u64),
    cache_size: Option<u32>,
}

impl<'a> Where<'a> {
    fn of(row: &'a Row) -> Self {
        // How a cache is filled and where its keys stand does not concern who has no bounded one.
        let bounded = |text: &'a str| if is_shared(row) { "" } else { text };
        Where {
            texts: [
                &row.task,
                &row.dataset,
                &row.model,
                &row.model_revision,
                &row.dtype,
                &row.tail,
                &row.policy,
                bounded(&row.positions),
            ],
            asked: row.asked.as_deref(),
            numbers: (row.length, row.stride, row.bos, row.seed),
            cache_size: row.cache_size,
        }
    }
}

/// The number of a place among those of both sides.
pub(super) type PlaceId = usize;

/// Every place that any side has, with a row that stands there.
#[derive(Default)]
pub(super) struct Places<'a> {
    ids: HashMap<(Where<'a>, &'a str), PlaceId>,
    rows: Vec<&'a Row>,
}

impl<'a> Places<'a> {
    fn id(&mut self, row: &'a Row) -> PlaceId {
        let prefill = if is_shared(row) { "" } else { &row.prefill };
        *self.ids.entry((Where::of(row), prefill)).or_insert_with(|| {
            self.rows.push(row);
            self.rows.len() - 1
        })
    }

    /// A row that tells the place's policy and cache size.
    pub(super) fn row(&self, id: PlaceId) -> &'a Row {
        self.rows[id]
    }

    /// The setting of a place, without the device.
    pub(super) fn setting(&self, id: PlaceId) -> Setting {
        let row = self.rows[id];
        let setting = Setting { device: Text::new(), ..Setting::of(row) };
        if is_shared(row) { setting.without_cache() } else { setting }
    }
}

/// One number that two sides may both have: a metric, or a part of it, at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Subject<'a> {
    pub(super) place: PlaceId,
    pub(super) metric: &'a str,
    /// `None` where parts are not looked at by themselves.
    pub(super) group: Option<&'a str>,
    /// Of a timing, what it was timed on; else empty.
    pub(super) device: &'a str,
}

/// One sample's share of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    /// The part of the sample, where parts stand beside the whole.
    pub(super) group: Option<&'a str>,
    pub(super) name: &'a str,
    pub(super) cluster: &'a str,
    pub(super) value: f64,
    /// Values of two metrics more, for a quantity made of three.
    pub(super) beside: [f64; 2],
    pub(super) weight: f64,
    pub(super) output: Option<&'a str>,
}

impl Sample<'_> {
    fn key(&self) -> (Option<&str>, &str) {
        (self.group, self.name)
    }
}

/// What one cell measured of a subject: the newest cell, where there are several.
#[derive(Clone, Debug)]
pub(super) struct Measured<'a> {
    /// A row of it, for its provenance.
    pub(super) row: &'a Row,
    /// By part and name, each once.
    pub(super) samples: Vec<Sample<'a>>,
    /// Samples that came twice with different numbers.
    pub(super) contradictions: usize,
    /// Cells that claim this place.
    pub(super) claims: usize,
}

/// One side of a comparison.
pub(super) type Side<'a> = HashMap<Subject<'a>, Measured<'a>>;

/// What stands where among the rows that `counts`; with `parts_beside` the parts of a sample stand beside the whole in one
/// subject, else each is a subject of its own.
pub(super) fn gather<'a>(
    rows: &'a [Row],
    places: &mut Places<'a>,
    parts_beside: bool,
    counts: impl Fn(&Row) -> bool,
) -> Side<'a> {
    let mut claims: HashMap<Subject<'a>, Vec<(&'a str, Vec<&'a Row>)>> = HashMap::new();
    for row in rows.iter().filter(|row| counts(row)) {
        let subject = Subject {
            place: places.id(row),
            metric: &row.metric,
            group: if parts_beside { None } else { row.group.as_deref() },
            device: if row.task == "timing" { &row.device } else { "" },
        };
        let cells = claims.entry(subject).or_default();
        // Rows of a cell follow each other, so it is the last one nearly always.
        match cells.iter_mut().rev().find(|(cell, _)| *cell == row.cell) {
            Some((_, rows)) => rows.push(row),
            None => cells.push((&row.cell, vec![row])),
        }
    }
    claims.into_iter().filter_map(|(subject, cells)| Some((subject, newest(cells)?))).collect()
}

/// A later engine's cell, else the later date's.
fn newest<'a>(cells: Vec<(&'a str, Vec<&'a Row>)>) -> Option<Measured<'a>> {
    let claims = cells.len();
    let age = |rows: &[&'a Row]| rows.iter().map(|row| (row.engine, row.date.as_str())).max();
    let (_, rows) = cells.into_iter().max_by_key(|(cell, rows)| (age(rows), *cell))?;
    let row = *rows.first()?;
    let mut samples: Vec<Sample<'a>> = rows
        .into_iter()
        .map(|row| Sample {
            group: row.group.as_deref(),
            name: &row.sample,
            cluster: &row.cluster,
            value: row.value,
            beside: [0.0; 2],
            weight: row.weight,
            output: row.output.as_deref(),
        })
        .collect();
    samples.sort_by(|a, b| a.key().cmp(&b.key()));
    let mut contradictions = 0;
    samples.dedup_by(|again, first| {
        let same = again.key() == first.key();
        let bits = |sample: &Sample| (sample.value.to_bits(), sample.weight.to_bits());
        contradictions += usize::from(same && bits(again) != bits(first));
        same
    });
    Some(Measured { row, samples, contradictions, claims })
}

/// Adds ROUGE as the field reports it, the geometric mean of three means over the corpus, where all three were measured.
pub(super) fn add_rouge(side: &mut Side<'_>) {
    let mut combined = Vec::new();
    for (subject, first) in side.iter().filter(|(subject, _)| subject.metric == "rouge1") {
        let other = |metric| side.get(&Subject { metric, ..*subject }).map(|other| &other.samples);
        let (Some(second), Some(third)) = (other("rouge2"), other("rougeL")) else { continue };
        let value = |among: &[Sample], of: &Sample| {
            among.binary_search_by(|sample| sample.key().cmp(&of.key())).ok().map(|at| among[at].value)
        };
        let samples = first.samples.iter().filter_map(|sample| {
            Some(Sample { beside: [value(second, sample)?, value(third, sample)?], ..*sample })
        });
        combined
            .push((Subject { metric: "rouge", ..*subject }, Measured { samples: samples.collect(), ..*first }));
    }
    side.extend(combined);
}

/// Samples of two sides by name: those both have, those only the first has, and how many only the second has.
pub(super) struct Paired<'a> {
    pub(super) both: Vec<(Sample<'a>, Sample<'a>)>,
    pub(super) missing: Vec<Sample<'a>>,
    pub(super) new: usize,
}

pub(super) fn pair<'a>(before: &[Sample<'a>], after: &[Sample<'a>]) -> Paired<'a> {
    let mut paired = Paired { both: Vec::new(), missing: Vec::new(), new: 0 };
    let mut rest = after.iter().peekable();
    for sample in before {
        while rest.next_if(|other| other.key() < sample.key()).is_some() {
            paired.new += 1;
        }
        match rest.next_if(|other| other.key() == sample.key()) {
            Some(other) => paired.both.push((*sample, *other)),
            None => paired.missing.push(*sample),
        }
    }
    paired.new += rest.count();
    paired
}
