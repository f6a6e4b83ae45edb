//! Needles found by the text's length (across) and the fact's depth (down), as maps of numbered squares: one for each policy
//! and cache size.

use std::collections::BTreeSet;

use crate::report::escape;
use crate::report::figure::chart;
use crate::report::figure::square_map::{Square, SquareMap, SquareMaps, Squares};
use crate::report::series::{Panel, Size};

/// The panel of the needles at one length and depth.
pub(crate) type Place<'p> = (u32, u32, &'p Panel);

/// The maps of policies at cache sizes.
pub(crate) fn maps(places: &[Place<'_>], policies: &[&str], sizes: &[Size]) -> SquareMaps {
    let of_policy = |policy: &&str| -> Vec<SquareMap> {
        let sizes: Vec<Option<Size>> =
            if *policy == "full" { vec![None] } else { sizes.iter().copied().map(Some).collect() };
        sizes.into_iter().map(|size| map(places, policy, size)).collect()
    };
    let maps = policies
        .iter()
        .flat_map(of_policy)
        .filter(|map| !matches!(&map.squares, Squares::Numbers(squares, _) if squares.is_empty()))
        .collect();
    SquareMaps { maps, abreast: 6, asks: "Where in a text is a needle found?", about: about(places) }
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

fn distinct(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    numbers.collect::<BTreeSet<u32>>().into_iter().collect()
}

/// A policy at a cache size.
fn map(places: &[Place<'_>], policy: &str, size: Option<Size>) -> SquareMap {
    let lengths = distinct(places.iter().map(|(length, ..)| *length));
    let depths = distinct(places.iter().map(|(_, depth, _)| *depth));
    let name = escape::plain(policy);
    let words = size.map_or_else(String::new, Size::words);
    let of_size = |before: &str| if words.is_empty() { name.clone() } else { format!("{name}{before}{words}") };
    let square = |(length, depth, panel): &Place<'_>| {
        let point = panel.point(policy, size)?;
        let place = (lengths.binary_search(length).ok()?, depths.binary_search(depth).ok()?);
        let what = format!("{}, length {length}, depth {depth} %", of_size(" with "));
        let tooltip = chart::describe(&panel.metric, point, &what);
        Some(Square { place, percent: point.estimate.value, size, tooltip })
    };
    let mut squares: Vec<Square> = places.iter().filter_map(square).collect();
    squares.sort_by_key(|square| square.place);
    SquareMap {
        title: of_size(", "),
        policy: policy.to_owned(),
        horizontal: "length (tokens)",
        vertical: "depth (%)",
        columns: lengths.iter().map(u32::to_string).collect(),
        lines: depths.iter().map(u32::to_string).collect(),
        squares: Squares::Numbers(squares, 21.0),
    }
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

    fn numbers(map: &SquareMap) -> &[Square] {
        let Squares::Numbers(squares, _) = &map.squares else { panic!("numbers expected") };
        squares
    }

    /// (column, line, percent)
    fn squares(map: &SquareMap) -> Vec<(usize, usize, f64)> {
        numbers(map).iter().map(|square| (square.place.0, square.place.1, square.percent)).collect()
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
            numbers(map).iter().all(|square| square.size == Some(64.into()))
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
}
