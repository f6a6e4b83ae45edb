//! Needles found by the text's length (across) and the fact's depth (down), as maps of numbered squares: one for each policy
//! and cache size. Where all texts have one length, cache sizes are across, and there is one map for each policy.

use super::chart::{self, LABEL, SMALL, TITLE};
use super::points::{Panel, Point};
use super::scene::{Across, Pen, Scene, Spot};
use super::series_style::{BLACK, Color, WHITE};
use super::{escape, font};
use crate::metric::Metric;

/// The maps of one key.
pub(crate) struct NeedleMaps {
    maps: Vec<NeedleMap>,
}

/// One map.
pub(crate) struct NeedleMap {
    pub(crate) title: String,
    policy: String,
    across_name: &'static str,
    columns: Vec<String>,
    depths: Vec<u32>,
    squares: Vec<Square>,
}

/// A number of a map.
#[derive(Debug, PartialEq)]
struct Square {
    /// From the left and from the top.
    place: (usize, usize),
    /// In percent.
    found: f64,
    size: Option<u32>,
    samples: usize,
    tooltip: String,
}

/// The panel of the needles at one length and depth.
pub(crate) type Place<'p> = (u32, u32, &'p Panel);

impl NeedleMaps {
    /// The maps of policies at cache sizes.
    pub(crate) fn of(places: &[Place<'_>], policies: &[&str], sizes: &[u32]) -> Self {
        let lengths = distinct(places.iter().map(|(length, ..)| *length));
        let maps: Vec<NeedleMap> = match lengths[..] {
            [length] => {
                let columns: Vec<Option<u32>> = sizes.iter().copied().map(Some).chain([None]).collect();
                let bounded: Vec<&str> = policies.iter().copied().filter(|policy| *policy != "full").collect();
                let policies = if bounded.is_empty() { policies } else { &bounded };
                let map = |policy: &&str| NeedleMap::over_sizes(places, policy, length, &columns);
                policies.iter().map(map).collect()
            }
            _ => {
                let of_policy = |policy: &&str| -> Vec<NeedleMap> {
                    let sizes: Vec<Option<u32>> =
                        if *policy == "full" { vec![None] } else { sizes.iter().copied().map(Some).collect() };
                    sizes.into_iter().map(|size| NeedleMap::over_lengths(places, policy, size, &lengths)).collect()
                };
                policies.iter().flat_map(of_policy).collect()
            }
        };
        Self { maps: maps.into_iter().filter(|map| !map.squares.is_empty()).collect() }
    }

    /// Maps in rows: those of a policy, or all where each is of another policy.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[NeedleMap]> {
        let is_over_sizes = self.maps.iter().all(|map| map.across_name == SIZE);
        let rows = self.maps.chunk_by(move |a, b| is_over_sizes || a.policy == b.policy);
        rows.flat_map(|row| row.chunks(MOST_ABREAST))
    }

    /// What the numbers are.
    pub(crate) fn about(&self) -> String {
        let samples = distinct(self.maps.iter().flat_map(|map| &map.squares).map(|square| square.samples as u32));
        match samples[..] {
            [1] => "numbers: percent found, of one text each".to_owned(),
            [samples] => format!("numbers: percent found, of {samples} texts each"),
            _ => "numbers: percent found".to_owned(),
        }
    }

    /// All maps on one page.
    pub(crate) fn scene(&self, title: &str) -> Scene {
        let width = |map: &NeedleMap| map.width(map.depth_room() + font::width(&map.title, TITLE));
        let wide = self.maps.iter().map(width).fold(0.0, f64::max) + GAP;
        let abreast = self.rows().map(<[NeedleMap]>::len).max().unwrap_or(1);
        let mut scene = Scene::new(title, LABEL_ROOM + abreast as f64 * wide);
        let mut bottom = 2.0;
        for row in self.rows() {
            let top = bottom;
            for (column, map) in row.iter().enumerate() {
                // The first map of a row also names the depths.
                let (before, own) = if column == 0 { (0.0, LABEL_ROOM) } else { (LABEL_ROOM, 0.0) };
                let corner = (column as f64 * wide + before, top);
                map.draw(&mut scene, corner, own + wide - GAP, (&[map.title.clone()], column == 0));
            }
            bottom = top + row[0].height() + GAP;
        }
        let caption = format!("{title}; {}", self.about());
        let room = scene.width - 12.0;
        let end = chart::draw_caption(&mut scene, (6.0, bottom), room, &caption);
        scene.height = end + 2.0;
        scene
    }
}

/// Most maps side by side.
const MOST_ABREAST: usize = 6;
/// Between maps.
const GAP: f64 = 8.0;
const LABEL_ROOM: f64 = LABEL + 5.0;
const SQUARE_HEIGHT: f64 = 14.0;
const LINE: f64 = 0.6;
const TITLE_ROW: f64 = 13.0;
const LENGTH: &str = "length (tokens)";
const SIZE: &str = "cache size (tokens)";

fn distinct(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

impl NeedleMap {
    /// A policy at a cache size; each column is a length.
    fn over_lengths(places: &[Place<'_>], policy: &str, size: Option<u32>, lengths: &[u32]) -> Self {
        let with = size.map_or_else(String::new, |size| format!(", {size} entries"));
        let columns = lengths.iter().map(|length| (length.to_string(), *length, policy, size)).collect();
        let title = format!("{}{with}", escape::plain(policy));
        Self::new(places, title, policy, LENGTH, columns)
    }

    /// A policy at one length; each column is a cache size, and the last one the full cache.
    fn over_sizes(places: &[Place<'_>], policy: &str, length: u32, sizes: &[Option<u32>]) -> Self {
        let column = |size: &Option<u32>| match size {
            Some(entries) => (entries.to_string(), length, policy, *size),
            None => ("full".to_owned(), length, "full", None),
        };
        let is_measured = |(_, _, policy, size): &(String, u32, &str, Option<u32>)| {
            places.iter().any(|(_, _, panel)| panel.point(policy, *size).is_some())
        };
        let columns = sizes.iter().map(column).filter(is_measured).collect();
        let title = format!("{}, length {length}", escape::plain(policy));
        Self::new(places, title, policy, SIZE, columns)
    }

    /// Columns are a name, a length, a policy and its cache size.
    fn new(
        places: &[Place<'_>],
        title: String,
        policy: &str,
        across_name: &'static str,
        columns: Vec<(String, u32, &str, Option<u32>)>,
    ) -> Self {
        let depths = distinct(places.iter().map(|(_, depth, _)| *depth));
        let mut squares = Vec::new();
        for (across, (_, length, policy, size)) in columns.iter().enumerate() {
            for (down, depth) in depths.iter().enumerate() {
                let panel =
                    places.iter().find(|place| (place.0, place.1) == (*length, *depth)).map(|place| place.2);
                let Some((panel, point)) = panel.and_then(|panel| Some((panel, panel.point(policy, *size)?)))
                else {
                    continue;
                };
                squares.push(Square {
                    place: (across, down),
                    found: point.estimate.value,
                    size: *size,
                    samples: point.samples,
                    tooltip: tooltip(&panel.metric, point, *length, *depth),
                });
            }
        }
        let columns = columns.into_iter().map(|(name, ..)| name).collect();
        Self { title, policy: policy.to_owned(), across_name, columns, depths, squares }
    }

    /// As wide as its columns need, without the name of the depths, and at least `least`.
    pub(crate) fn width(&self, least: f64) -> f64 {
        let column = self.columns.iter().map(|name| font::width(name, SMALL) + 4.0).fold(21.0, f64::max);
        (self.depth_room() + column * self.columns.len() as f64).max(least)
    }

    /// Room for the depths on the left of the squares.
    fn depth_room(&self) -> f64 {
        self.depths.iter().map(|depth| font::width(&depth.to_string(), SMALL)).fold(0.0, f64::max) + 5.0
    }

    /// Draws it at `corner`; `labelled` is false where a map on the left names the depths.
    pub(crate) fn draw(&self, scene: &mut Scene, corner: Spot, width: f64, (title, labelled): (&[String], bool)) {
        let label = if labelled { LABEL_ROOM } else { 0.0 };
        let left = corner.0 + label + self.depth_room();
        let right = corner.0 + width;
        let top = corner.1 + TITLE_ROW;
        let bottom = top + SQUARE_HEIGHT * self.depths.len() as f64;
        let centre = (left + right) / 2.0;
        chart::draw_title(scene, title, (corner.0, right), (centre, top));
        if labelled {
            scene.upright_text((corner.0 + LABEL / 2.0 + 1.0, (top + bottom) / 2.0), "depth (%)", LABEL);
        }
        let wide = (right - left) / self.columns.len() as f64;
        let x = |column: usize| left + wide * column as f64;
        let y = |line: usize| top + SQUARE_HEIGHT * line as f64;
        scene.group(&format!("class=\"line\" data-policy=\"{}\"", escape::xml(&self.policy)), |scene| {
            for square in &self.squares {
                let corner = (x(square.place.0), y(square.place.1));
                square.draw(scene, corner, (wide, SQUARE_HEIGHT));
            }
        });
        let frame = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        scene.stroke("axis", &frame, Pen::new(BLACK, 0.5));
        for (line, depth) in self.depths.iter().enumerate() {
            let middle = y(line) + SQUARE_HEIGHT / 2.0;
            scene.text((left - 3.0, middle), &depth.to_string(), SMALL, BLACK, Across::Right);
        }
        for (column, name) in self.columns.iter().enumerate() {
            scene.text((x(column) + wide / 2.0, bottom + 6.0), name, SMALL, BLACK, Across::Centre);
        }
        scene.text((centre, bottom + 15.0), self.across_name, LABEL, BLACK, Across::Centre);
    }

    /// Its height with a title of one line.
    pub(crate) fn height(&self) -> f64 {
        TITLE_ROW + SQUARE_HEIGHT * self.depths.len() as f64 + 19.0
    }
}

impl Square {
    fn draw(&self, scene: &mut Scene, (left, top): Spot, (wide, high): (f64, f64)) {
        let color = color(self.found);
        let (ink, class) = if is_dark(color) { (WHITE, "cell dark") } else { (BLACK, "cell") };
        // A thin line of the background between squares.
        let (left, top) = (left + LINE / 2.0, top + LINE / 2.0);
        let (right, bottom) = (left + wide - LINE, top + high - LINE);
        let middle = ((left + right) / 2.0, (top + bottom) / 2.0);
        let size = self.size.map_or_else(String::new, |size| format!(" data-size=\"{size}\""));
        scene.group(&format!("class=\"pt {class}\" tabindex=\"0\" role=\"img\"{size}"), |scene| {
            scene.fill("square", &[(left, top), (right, top), (right, bottom), (left, bottom)], color, 1.0);
            scene.text(middle, &format!("{:.0}", self.found), SMALL, ink, Across::Centre);
            scene.tooltip(middle, high / 2.0, &self.tooltip);
        });
    }
}

fn tooltip(metric: &Metric, point: &Point, length: u32, depth: u32) -> String {
    let policy = escape::plain(&point.policy);
    let size = point.cache_size.map_or_else(String::new, |size| format!(" with {size} entries"));
    chart::describe(metric, point, &format!("{policy}{size}, length {length}, depth {depth} %"))
}

/// The colour of a share in percent: from nearly white over blue to dark blue, so that more is darker in print too.
fn color(found: f64) -> Color {
    const STOPS: [[f64; 3]; 3] = [[247.0, 251.0, 255.0], [107.0, 174.0, 214.0], [8.0, 48.0, 107.0]];
    let along = if found.is_finite() { found.clamp(0.0, 100.0) / 50.0 } else { 0.0 };
    let (from, share) = if along < 1.0 { (0, along) } else { (1, along - 1.0) };
    let mixed = |i: usize| STOPS[from][i] + share * (STOPS[from + 1][i] - STOPS[from][i]);
    let [red, green, blue] = [0, 1, 2].map(|i| mixed(i).round() as u8);
    Color(red, green, blue)
}

/// Whether white stands out more than black does, by the luminance of WCAG 2.2.
fn is_dark(Color(red, green, blue): Color) -> bool {
    let linear = |part: u8| match f64::from(part) / 255.0 {
        part if part <= 0.04045 => part / 12.92,
        part => ((part + 0.055) / 1.055).powf(2.4),
    };
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) < 0.179
}

#[cfg(test)]
mod tests {
    use super::super::breakdown;
    use super::super::fixture::{cell, changed, panels};
    use super::super::scene::texts;
    use super::*;
    use crate::ledger::Row;

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

    fn maps(rows: &[Row]) -> NeedleMaps {
        let panels = panels(rows);
        let breakdowns = breakdown::breakdowns(&panels);
        let [parts] = &breakdowns[..] else { panic!("one breakdown expected") };
        assert_eq!(parts.by, breakdown::LENGTH_AND_DEPTH);
        parts.needle_maps()
    }

    /// (column, line, percent)
    fn squares(map: &NeedleMap) -> Vec<(usize, usize, f64)> {
        map.squares.iter().map(|square| (square.place.0, square.place.1, square.found)).collect()
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
        let maps = maps(&rows.concat());
        let titles: Vec<Vec<&str>> =
            maps.rows().map(|row| row.iter().map(|map| map.title.as_str()).collect()).collect();
        assert_eq!(titles, [&["full"][..], &["tova, 64 entries", "tova, 256 entries"]]);
        let map = &maps.maps[1];
        assert_eq!(
            (&map.columns[..], &map.depths[..]),
            (&["512".to_owned(), "2048".to_owned()][..], &[0, 25, 100][..])
        );
        // A length and depth that were not measured together have no square.
        let expected = [(0, 0, 100.0), (0, 1, 0.0), (0, 2, 100.0), (1, 0, 50.0), (1, 2, 0.0)];
        assert_eq!(squares(map), expected);
        assert!(map.squares.iter().all(|square| square.size == Some(64) && square.samples == 2));
        let scene = maps.scene("T");
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
        let maps = maps(&rows.concat());
        let [window, tova] = &maps.maps[..] else { panic!("two maps expected") };
        assert_eq!(
            (window.title.as_str(), window.columns.join(" ")),
            ("window, length 512", "64 128 full".into())
        );
        assert_eq!(squares(window), [(0, 0, 0.0), (0, 1, 100.0), (2, 0, 100.0), (2, 1, 100.0)]);
        assert_eq!(squares(tova).len(), 6);
        assert_eq!(maps.rows().count(), 1);
    }

    #[test]
    fn more_is_darker_and_numbers_can_be_read_on_it() {
        assert_eq!([0.0, 50.0, 100.0].map(color), [Color(247, 251, 255), Color(107, 174, 214), Color(8, 48, 107)]);
        assert_eq!([0.0, 50.0, 100.0].map(|share| is_dark(color(share))), [false, false, true]);
        let green: Vec<u8> = (0..=100).map(|share| color(f64::from(share)).1).collect();
        assert!(green.is_sorted_by(|a, b| a > b), "{green:?}");
    }
}
