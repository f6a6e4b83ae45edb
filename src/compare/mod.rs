//! Two sets of rows side by side: what got worse, what is missing, what is exactly as it was.
//!
//! [`compare`] pairs cells by what they mean and samples by name, and gives each number a [`Verdict`]; [`terminal`],
//! [`markdown`], [`json`] and [`junit`] show the [`Comparison`]. It knows rows, and the names, quantities and draws of a
//! report; it refuses to know how a row was measured, files, and exit codes.

mod exact;
mod json;
mod junit;
mod markdown;
mod pairing;
mod point;
mod pooled;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod threshold;
mod times;

use std::collections::{BTreeMap, BTreeSet};

pub use json::json;
pub use junit::junit;
pub use markdown::markdown;
use pairing::{Measured, PlaceId, Places, Side, Subject};
pub use point::{Comparison, Moved, Options, Origin, Point, Verdict};
pub use terminal::terminal;
pub use threshold::{Margin, Threshold, Thresholds, metric_named, shown_name};

use crate::ledger::Row;
use crate::report::{Quantity, Setting, is_result, label, order};

/// Compares results with a baseline; each side comes with its name.
pub fn compare(baseline: (&str, &[Row]), results: (&str, &[Row]), options: &Options) -> Comparison {
    let mut places = Places::default();
    let counts = |row: &Row| match options.exact {
        Some(_) => exact::counts(row),
        None => is_result(&row.metric) && (options.parts || row.group.is_none()),
    };
    let mut gather = |rows| {
        let mut side = pairing::gather(rows, &mut places, options.exact.is_some(), counts);
        if options.exact.is_none() {
            pairing::add_rouge(&mut side);
        }
        side
    };
    let (before, after) = (gather(baseline.1), gather(results.1));
    let pairs = Pairs { places: &places, options };
    let mut points = pairs.points(&before, &after);
    points.sort_by(|a, b| order_of(a).cmp(&order_of(b)));
    let mut notes = notes(&places, &before, &after);
    notes.extend(estranged(&points));
    if options.exact.is_some() {
        notes.extend(exact::notes(baseline.1, results.1));
    }
    Comparison {
        exact: options.exact,
        allow_missing: options.allow_missing,
        baseline: Origin::of(baseline.0, baseline.1),
        results: Origin::of(results.0, results.1),
        points,
        notes,
    }
}

fn order_of(point: &Point) -> impl Ord + '_ {
    (
        &point.setting,
        point.quantity.order(),
        point.group.as_deref().map(order::of_group),
        order::of(&point.policy),
        point.cache_size,
    )
}

/// What is needed to set one subject of both sides opposite each other.
struct Pairs<'a> {
    places: &'a Places<'a>,
    options: &'a Options,
}

impl Pairs<'_> {
    fn points(&self, before: &Side<'_>, after: &Side<'_>) -> Vec<Point> {
        let settings: BTreeMap<PlaceId, Setting> = before
            .keys()
            .chain(after.keys())
            .map(|of| of.place)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|place| (place, self.places.setting(place)))
            .collect();
        let mut points = Vec::new();
        for (subject, measured) in before {
            let blank = self.blank(subject, &settings[&subject.place]);
            points.push(match after.get(subject) {
                Some(other) => self.point(blank, subject, measured, other),
                None => missing(blank, subject, measured, after),
            });
        }
        for (subject, measured) in after.iter().filter(|(subject, _)| !before.contains_key(subject)) {
            // A time on another device has been named where the baseline's was.
            if elsewhere(subject, before).is_none() {
                let blank = self.blank(subject, &settings[&subject.place]);
                points.push(Point { verdict: Verdict::New, new_samples: measured.samples.len(), ..blank });
            }
        }
        points
    }

    fn blank(&self, subject: &Subject<'_>, setting: &Setting) -> Point {
        let row = self.places.row(subject.place);
        Point {
            setting: Setting { device: subject.device.into(), ..setting.clone() },
            quantity: Quantity::of(subject.metric),
            group: subject.group.map(str::to_owned),
            policy: label(row).into_owned(),
            cache_size: row.cache_size,
            verdict: Verdict::Equal,
            before: None,
            after: None,
            difference: None,
            threshold: None,
            why: None,
            samples: 0,
            clusters: 0,
            missing_samples: Vec::new(),
            new_samples: 0,
            moved: Vec::new(),
        }
    }

    fn point(&self, blank: Point, subject: &Subject<'_>, before: &Measured, after: &Measured) -> Point {
        let is_timing = blank.setting.task == "timing";
        let threshold = self.options.thresholds.of(subject.metric, is_timing);
        match self.options.exact {
            Some(tolerance) => exact::point(blank, before, after, tolerance),
            None if is_timing => times::point(blank, before, after, threshold),
            None => pooled::point(blank, before, after, threshold),
        }
    }
}

/// A number that the results do not have; a time may stand there for another device.
fn missing(blank: Point, subject: &Subject<'_>, measured: &Measured, after: &Side<'_>) -> Point {
    match elsewhere(subject, after) {
        Some(device) => Point {
            verdict: Verdict::NotComparable,
            why: Some(format!("another device: {} in the baseline, {device} here", subject.device)),
            ..blank
        },
        None => Point {
            verdict: Verdict::Missing,
            missing_samples: measured.samples.iter().map(|sample| sample.name.to_owned()).collect(),
            ..blank
        },
    }
}

/// The device that a side timed the same thing on, if only on another one.
fn elsewhere<'a>(subject: &Subject<'_>, side: &Side<'a>) -> Option<&'a str> {
    if subject.device.is_empty() {
        return None;
    }
    let same = |other: &&Subject| Subject { device: "", ..**other } == Subject { device: "", ..*subject };
    side.keys().filter(same).map(|other| other.device).min()
}

/// Settings that have no partner although one differs in little: a model trained again, a data set moved.
fn estranged(points: &[Point]) -> Vec<String> {
    let having = |verdict: Verdict| -> BTreeSet<&Setting> {
        points.iter().filter(|point| point.verdict == verdict).map(|point| &point.setting).collect()
    };
    let without = |all: BTreeSet<&Setting>, verdict: Verdict| -> Vec<Setting> {
        let paired =
            |setting: &Setting| points.iter().any(|point| point.setting == *setting && point.verdict != verdict);
        all.into_iter().filter(|setting| !paired(setting)).cloned().collect()
    };
    let missing = without(having(Verdict::Missing), Verdict::Missing);
    let new = without(having(Verdict::New), Verdict::New);
    let mut notes = Vec::new();
    for setting in &missing {
        let nearest = new
            .iter()
            .filter(|other| other.task == setting.task)
            .min_by_key(|other| differences(setting, other).len());
        let Some(other) = nearest else { continue };
        let differences = differences(setting, other);
        if differences.len() <= 3 {
            let title = setting.title(&missing);
            notes.push(format!(
                "{title} pairs with nothing; the nearest results differ in {}",
                differences.join(", ")
            ));
        }
    }
    notes
}

/// The fields two settings differ in: `revision 0123 (baseline) and 4567 (results)`.
fn differences(setting: &Setting, other: &Setting) -> Vec<String> {
    let fields = |setting: &Setting| {
        let named = [("model", setting.model.to_string()), ("dataset", setting.dataset.to_string())];
        named.into_iter().chain(setting.details()).collect::<Vec<_>>()
    };
    let pairs = fields(setting).into_iter().zip(fields(other));
    pairs
        .filter(|((_, a), (_, b))| a != b)
        .map(|((name, a), (_, b))| format!("{name} {a} (baseline) and {b} (results)"))
        .collect()
}

/// What is odd about the rows themselves.
fn notes(places: &Places<'_>, before: &Side<'_>, after: &Side<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, side) in [("the baseline", before), ("the results", after)] {
        let count = |odd: fn(&Measured) -> bool| side.values().filter(|measured| odd(measured)).count();
        let (several, twice) = (count(|of| of.claims > 1), count(|of| of.contradictions > 0));
        if several > 0 {
            notes
                .push(format!("{name}: {several} numbers come from several cells; the newest cell's is compared"));
        }
        if twice > 0 {
            notes.push(format!(
                "{name}: {twice} numbers have samples twice with different values; the first counts"
            ));
        }
    }
    let (mut engines, mut defined, mut weighed) = (BTreeSet::new(), BTreeSet::new(), 0);
    for (subject, measured) in before {
        let Some(other) = after.get(subject) else { continue };
        let (a, b) = (measured.row, other.row);
        if a.engine != b.engine {
            engines.insert((a.engine, b.engine));
        }
        let meaning = |row: &Row| (row.score.clone(), row.scope.clone(), row.keep_first, row.keep_recent);
        if meaning(a) != meaning(b) {
            defined.insert(label(places.row(subject.place)));
        }
        let otherwise = |(a, b): &(pairing::Sample, pairing::Sample)| a.weight != b.weight;
        weighed += usize::from(pairing::pair(&measured.samples, &other.samples).both.iter().any(otherwise));
    }
    for (a, b) in engines {
        notes.push(format!("engine {a} in the baseline, {b} in the results: numbers may differ by intention"));
    }
    for policy in defined {
        notes.push(format!("{policy} is defined otherwise in the baseline than in the results"));
    }
    if weighed > 0 {
        notes.push(format!("{weighed} numbers weigh their samples otherwise than in the baseline"));
    }
    notes
}
