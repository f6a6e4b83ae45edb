//! Needles found by the text's length (across) and the fact's depth (down), as maps of numbered squares: one for each policy
//! and cache size. Where all texts have one length, cache sizes are across, and there is one map for each policy.

use std::collections::BTreeSet;

use crate::metric::Metric;
use crate::report::escape;
use crate::report::figure::square_map::{Square, SquareMap, SquareMaps};
use crate::report::figure::{Horizontal, chart};
use crate::report::series::{Panel, Point, Size};

/// The panel of the needles at one length and depth.
pub(crate) type Place<'p> = (u32, u32, &'p Panel);

/// The maps of policies at cache sizes.
pub(crate) fn maps(places: &[Place<'_>], policies: &[&str], sizes: &[Size]) -> SquareMaps {
    let lengths = distinct(places.iter().map(|(length, ..)| *length));
    let maps: Vec<SquareMap> = match lengths[..] {
        [length] => {
            let columns: Vec<Option<Size>> = sizes.iter().copied().map(Some).chain([None]).collect();
            let bounded: Vec<&str> = policies.iter().copied().filter(|policy| *policy != "full").collect();
            let policies = if bounded.is_empty() { policies } else { &bounded };
            policies.iter().map(|policy| over_sizes(places, policy, length, &columns)).collect()
        }
        _ => {
            let of_policy = |policy: &&str| -> Vec<SquareMap> {
                let sizes: Vec<Option<Size>> =
                    if *policy == "full" { vec![None] } else { sizes.iter().copied().map(Some).collect() };
                sizes.into_iter().map(|size| over_lengths(places, policy, size, &lengths)).collect()
            };
            policies.iter().flat_map(of_policy).collect()
        }
    };
    let maps = maps.into_iter().filter(|map| !map.squares.is_empty()).collect();
    SquareMaps { maps, abreast: 6, about: about(places) }
}

/// What the numbers are.
fn about(places: &[Place<'_>]) -> String {
    let samples: BTreeSet<usize> =
        places.iter().flat_map(|(.., panel)| &panel.points).map(|point| point.samples).collect();
    match Vec::from_iter(samples)[..] {
        [1] => "numbers: percent found, of one text each".to_owned(),
        [samples] => format!("numbers: percent found, of {samples} texts each"),
        _ => "numbers: percent found".to_owned(),
    }
}

const LENGTH: Horizontal = Horizontal::Number("length (tokens)");

fn distinct(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    numbers.collect::<BTreeSet<u32>>().into_iter().collect()
}

/// A policy at a cache size; each column is a length.
fn over_lengths(places: &[Place<'_>], policy: &str, size: Option<Size>, lengths: &[u32]) -> SquareMap {
    let with = size.map_or_else(String::new, |size| format!(", {}", size.words()));
    let columns = lengths.iter().map(|length| (length.to_string(), *length, policy, size)).collect();
    let title = format!("{}{with}", escape::plain(policy));
    map(places, title, policy, LENGTH, columns)
}

/// A policy at one length; each column is a cache size, and the last one the full cache.
fn over_sizes(places: &[Place<'_>], policy: &str, length: u32, sizes: &[Option<Size>]) -> SquareMap {
    let column = |size: &Option<Size>| match size {
        Some(bounded) => (bounded.to_string(), length, policy, *size),
        None => ("full".to_owned(), length, "full", None),
    };
    let is_measured = |(_, _, policy, size): &(String, u32, &str, Option<Size>)| {
        places.iter().any(|(_, _, panel)| panel.point(policy, *size).is_some())
    };
    let columns = sizes.iter().map(column).filter(is_measured).collect();
    let title = format!("{}, length {length}", escape::plain(policy));
    let bounded: Vec<Size> = sizes.iter().flatten().copied().collect();
    map(places, title, policy, Horizontal::of_sizes(&bounded), columns)
}

/// Columns are a name, a length, a policy and its cache size.
fn map(
    places: &[Place<'_>],
    title: String,
    policy: &str,
    horizontal: Horizontal,
    columns: Vec<(String, u32, &str, Option<Size>)>,
) -> SquareMap {
    let depths = distinct(places.iter().map(|(_, depth, _)| *depth));
    let mut squares = Vec::new();
    for (across, (_, length, policy, size)) in columns.iter().enumerate() {
        for (down, depth) in depths.iter().enumerate() {
            let panel = places.iter().find(|place| (place.0, place.1) == (*length, *depth)).map(|place| place.2);
            let point = panel.and_then(|panel| Some((panel, panel.point(policy, *size)?)));
            squares.extend(point.map(|(panel, point)| Square {
                place: (across, down),
                percent: point.estimate.value,
                size: *size,
                tooltip: tooltip(&panel.metric, point, *length, *depth),
            }));
        }
    }
    SquareMap {
        title,
        policy: policy.to_owned(),
        horizontal,
        vertical: "depth (%)",
        columns: columns.into_iter().map(|(name, ..)| name).collect(),
        lines: depths.iter().map(u32::to_string).collect(),
        squares,
        narrowest: 21.0,
    }
}

fn tooltip(metric: &Metric, point: &Point, length: u32, depth: u32) -> String {
    let policy = escape::plain(&point.policy);
    let size = point.cache_size.map_or_else(String::new, |size| format!(" with {}", size.words()));
    chart::describe(metric, point, &format!("{policy}{size}, length {length}, depth {depth} %"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::figure::{Plain, slices, texts};
    use crate::report::fixture::{cell, changed, panels};
    use crate::report::series::{LENGTH_AND_DEPTH, breakdown};

    /// Whether each of two needles was found, by length and depth.
    fn found(policy: &str, size: Option<u32>, places: &[(u32, u32, [f64; 2])]) -> Vec<Row> {
        let whole = places.iter().map(|place| (place, None));
        let of = |(length, depth, _): &(u32, u32, [f64; 2])| Some(format!("length:{length} depth:{depth}"));
        let all = whole.chain(places.iter().map(|place| (place, of(place))));
        let rows = all.flat_map(|((length, depth, found), slice)| {
            let names = ["a", "b"].map(|book| format!("{book}@{depth}%of{length}"));
            let samples = [(&*names[0], found[0], 1.0), (&*names[1], found[1], 1.0)];
            changed(cell("found", policy, size, &samples), |row| {
                (row.task, row.length) = ("needle".into(), 2048);
                row.slice = slice.as_deref().map(Into::into);
            })
        });
        rows.collect()
    }

    fn maps_of(rows: &[Row]) -> SquareMaps {
        let panels = panels(rows);
        let breakdowns = breakdown::breakdowns(&panels);
        let [parts] = &breakdowns[..] else { panic!("one breakdown expected") };
        assert_eq!(parts.by, LENGTH_AND_DEPTH);
        slices::needles(parts)
    }

    /// (column, line, percent)
    fn squares(map: &SquareMap) -> Vec<(usize, usize, f64)> {
        map.squares.iter().map(|square| (square.place.0, square.place.1, square.percent)).collect()
    }

    #[test]
    fn a_map_has_lengths_across_and_depths_down() {
        // Depths in the order of numbers, not of text: 0, 25, 100.
        let places = |a: f64, b: f64| {
            [(512, 100, [a, a]), (2048, 0, [a, b]), (512, 0, [a, a]), (512, 25, [b, b]), (2048, 100, [b, b])]
        };
        let rows = [
            found("full", None, &places(1.0, 1.0)),
            found("tova", Some(64), &places(1.0, 0.0)),
            found("tova", Some(256), &places(1.0, 1.0)),
        ];
        let maps = maps_of(&rows.concat());
        let titles: Vec<Vec<&str>> =
            maps.rows().map(|row| row.iter().map(|map| map.title.as_str()).collect()).collect();
        assert_eq!(titles, [&["full"][..], &["tova, 64 entries", "tova, 256 entries"]]);
        let map = &maps.maps[1];
        assert_eq!((map.columns.join(" "), map.lines.join(" ")), ("512 2048".to_owned(), "0 25 100".to_owned()));
        // A length and depth that were not measured together have no square.
        let expected = [(0, 0, 100.0), (0, 1, 0.0), (0, 2, 100.0), (1, 0, 50.0), (1, 2, 0.0)];
        assert_eq!(squares(map), expected);
        assert!(
            map.squares.iter().all(|square| square.size == Some(64.into()))
                && maps.about.contains("of 2 texts each")
        );
        let scene = maps.scene("T", Plain::default());
        let texts = texts(&scene);
        for text in &texts {
            assert!(text.is_inside(&scene), "{text:?} is outside {} x {}", scene.width, scene.height);
        }
        let count = |wanted: &str| texts.iter().filter(|placed| placed.text == wanted).count();
        assert_eq!((count("50"), count("length (tokens)"), count("depth (%)")), (1, 3, 2));
    }

    #[test]
    fn texts_of_one_length_have_cache_sizes_across_and_the_full_cache_last() {
        let places = |value: f64| [(512, 0, [value; 2]), (512, 50, [1.0; 2])];
        let rows = [
            found("full", None, &places(1.0)),
            found("window", Some(64), &places(0.0)),
            found("tova", Some(64), &places(0.0)),
            found("tova", Some(128), &places(1.0)),
        ];
        let maps = maps_of(&rows.concat());
        let [window, tova] = &maps.maps[..] else { panic!("two maps expected") };
        // No column where the policy was not measured.
        assert_eq!((window.title.as_str(), window.columns.join(" ")), ("window, length 512", "64 full".into()));
        assert_eq!(squares(window), [(0, 0, 0.0), (0, 1, 100.0), (1, 0, 100.0), (1, 1, 100.0)]);
        assert_eq!(squares(tova).len(), 6);
        assert_eq!(maps.rows().count(), 1);
    }
}
