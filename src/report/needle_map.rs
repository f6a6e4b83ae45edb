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
    pub(crate) maps: Vec<NeedleMap>,
    /// Maps of one row: those of a policy.
    abreast: usize,
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
        let abreast = if lengths.len() > 1 && sizes.len() > 1 { sizes.len() } else { maps.len().min(4) };
        Self { maps: maps.into_iter().filter(|map| !map.squares.is_empty()).collect(), abreast: abreast.max(1) }
    }

    /// All maps on one page.
    pub(crate) fn scene(&self, title: &str) -> Scene {
        let width = |map: &NeedleMap| map.width(font::width(&map.title, TITLE).max(WIDTH));
        let wide = self.maps.iter().map(width).fold(0.0, f64::max) + GAP;
        let mut scene = Scene::new(title, LABEL_ROOM + self.abreast as f64 * wide);
        let (mut top, mut column) = (2.0, 0);
        let mut bottom = top;
        let mut last: Option<&NeedleMap> = None;
        for map in &self.maps {
            // The full cache has one map, and policies begin with a row.
            let is_next = last.is_some_and(|last| last.policy != map.policy && last.columns == map.columns);
            if column == self.abreast || (is_next && map.across_name == LENGTH) {
                (top, column) = (bottom + GAP, 0);
            }
            // The first map of a row also names the depths.
            let (before, own) = if column == 0 { (0.0, LABEL_ROOM) } else { (LABEL_ROOM, 0.0) };
            let corner = (column as f64 * wide + before, top);
            let width = own + wide - GAP;
            bottom = map.draw(&mut scene, corner, width, (&[map.title.clone()], column == 0));
            (column, last) = (column + 1, Some(map));
        }
        let caption = format!("{title}: found, in percent");
        let room = scene.width - 12.0;
        let end = chart::draw_caption(&mut scene, (6.0, bottom + 8.0), room, &caption);
        scene.height = end + 2.0;
        scene
    }
}

/// The least width of a map in a file, in points.
const WIDTH: f64 = 92.0;
/// Between maps.
const GAP: f64 = 8.0;
const LABEL_ROOM: f64 = LABEL + 5.0;
const SQUARE_HEIGHT: f64 = 14.0;
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

    /// Draws it at `corner` and returns where it ends; `labelled` is false where a map on the left names the depths.
    pub(crate) fn draw(
        &self,
        scene: &mut Scene,
        corner: Spot,
        width: f64,
        (title, labelled): (&[String], bool),
    ) -> f64 {
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
        bottom + 19.0
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
        let (right, bottom) = (left + wide, top + high);
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
