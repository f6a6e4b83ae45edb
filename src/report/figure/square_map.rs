//! Maps of numbered squares, darker where the percentage is more: needles found, and what heads hold.

use crate::report::escape;
use crate::report::figure::{
    Across, BLACK, Color, LABEL, Pen, Plain, SMALL, Scene, Spot, TITLE, TITLE_ROW, TOP, WHITE, chart, font,
};
use crate::report::series::Size;

/// The maps of one figure.
pub(crate) struct SquareMaps {
    pub(crate) maps: Vec<SquareMap>,
    /// Most maps side by side.
    pub(crate) abreast: usize,
    /// What the numbers are.
    pub(crate) about: String,
}

/// One map.
pub(crate) struct SquareMap {
    pub(crate) title: String,
    pub(crate) policy: String,
    pub(crate) horizontal: &'static str,
    pub(crate) vertical: &'static str,
    /// Names, of which some may be empty.
    pub(crate) columns: Vec<String>,
    pub(crate) lines: Vec<String>,
    pub(crate) squares: Vec<Square>,
    /// The least width of a column.
    pub(crate) narrowest: f64,
}

/// A number of a map.
#[derive(Debug, PartialEq)]
pub(crate) struct Square {
    /// From the left and from the top.
    pub(crate) place: (usize, usize),
    pub(crate) percent: f64,
    pub(crate) size: Option<Size>,
    pub(crate) tooltip: String,
}

/// Between maps, in points.
const GAP: f64 = 8.0;
const LABEL_ROOM: f64 = LABEL + 5.0;
const SQUARE_HEIGHT: f64 = 14.0;
/// Between squares.
const LINE: f64 = 0.6;
/// On squares of more than this, white stands out more than black does.
const DARK: f64 = 70.0;
/// Longer titles are cut.
const MOST_TITLE: f64 = 150.0;

impl SquareMaps {
    /// Maps in rows: those of a policy.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[SquareMap]> {
        let rows = self.maps.chunk_by(|a, b| a.policy == b.policy);
        rows.flat_map(|row| row.chunks(self.abreast))
    }

    /// All maps on one page.
    pub(crate) fn scene(&self, title: &str, plain: Plain) -> Scene {
        let width = |map: &SquareMap| map.width(map.names_room() + font::width(&map.title, TITLE).min(MOST_TITLE));
        let wide = self.maps.iter().map(width).fold(0.0, f64::max) + GAP;
        let abreast = self.rows().map(<[SquareMap]>::len).max().unwrap_or(1);
        let mut scene = Scene::new(title, LABEL_ROOM + abreast as f64 * wide);
        let is_untitled = plain.title && self.maps.len() == 1;
        let mut bottom = if is_untitled { 2.0 + TOP - TITLE_ROW } else { 2.0 };
        for row in self.rows() {
            let top = bottom;
            for (column, map) in row.iter().enumerate() {
                // The first map of a row also names its lines.
                let (before, own) = if column == 0 { (0.0, LABEL_ROOM) } else { (LABEL_ROOM, 0.0) };
                let corner = (column as f64 * wide + before, top);
                let title = if is_untitled { None } else { Some(font::fit(&map.title, TITLE, wide - GAP)) };
                map.draw(&mut scene, corner, own + wide - GAP, (title.as_slice(), column == 0));
            }
            bottom = top + row[0].height() + GAP;
        }
        let caption = format!("{title}; {}", self.about);
        let room = scene.width - 12.0;
        let end = match plain.footnote {
            true => bottom - GAP,
            false => chart::draw_caption(&mut scene, (6.0, bottom), room, &caption),
        };
        scene.height = end + 2.0;
        scene
    }
}

impl SquareMap {
    /// As wide as its columns need, without what its lines are, and at least `least`.
    pub(crate) fn width(&self, least: f64) -> f64 {
        let column = self.columns.iter().map(|name| font::width(name, SMALL) + 4.0).fold(self.narrowest, f64::max);
        (self.names_room() + column * self.columns.len() as f64).max(least)
    }

    /// Room for the names on the left of the squares.
    fn names_room(&self) -> f64 {
        self.lines.iter().map(|name| font::width(name, SMALL)).fold(0.0, f64::max) + 5.0
    }

    /// Draws it at `corner`; `labelled` is false where a map on the left says what the lines are.
    pub(crate) fn draw(&self, scene: &mut Scene, corner: Spot, width: f64, (title, labelled): (&[String], bool)) {
        let label = if labelled { LABEL_ROOM } else { 0.0 };
        let left = corner.0 + label + self.names_room();
        let right = corner.0 + width;
        let top = corner.1 + TITLE_ROW;
        let bottom = top + SQUARE_HEIGHT * self.lines.len() as f64;
        let centre = (left + right) / 2.0;
        chart::title::draw(scene, title, (corner.0, right), (centre, top));
        if labelled {
            scene.upright_text((corner.0 + LABEL / 2.0 + 1.0, (top + bottom) / 2.0), self.vertical, LABEL);
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
        for (line, name) in self.lines.iter().enumerate() {
            scene.text((left - 3.0, y(line) + SQUARE_HEIGHT / 2.0), name, SMALL, BLACK, Across::Right);
        }
        for (column, name) in self.columns.iter().enumerate() {
            scene.text((x(column) + wide / 2.0, bottom + 6.0), name, SMALL, BLACK, Across::Centre);
        }
        scene.text((centre, bottom + 15.0), self.horizontal, LABEL, BLACK, Across::Centre);
    }

    /// Its height with a title of one line.
    pub(crate) fn height(&self) -> f64 {
        TITLE_ROW + SQUARE_HEIGHT * self.lines.len() as f64 + 19.0
    }
}

impl Square {
    /// The number is left out where it does not fit.
    fn draw(&self, scene: &mut Scene, (left, top): Spot, (wide, high): (f64, f64)) {
        let color = color(self.percent);
        let (ink, class) = if self.percent > DARK { (WHITE, "cell dark") } else { (BLACK, "cell") };
        let size = self.size.map_or_else(String::new, |size| format!(" data-size=\"{size}\""));
        // A thin line of the background between squares.
        let (left, top) = (left + LINE / 2.0, top + LINE / 2.0);
        let (right, bottom) = (left + wide - LINE, top + high - LINE);
        let middle = ((left + right) / 2.0, (top + bottom) / 2.0);
        scene.group(&format!("class=\"pt {class}\" tabindex=\"0\" role=\"img\"{size}"), |scene| {
            scene.fill("square", &[(left, top), (right, top), (right, bottom), (left, bottom)], color, 1.0);
            let number = format!("{:.0}", self.percent);
            if font::width(&number, SMALL) + 1.0 < wide {
                scene.text(middle, &number, SMALL, ink, Across::Centre);
            }
            scene.tooltip(middle, wide.min(high) / 2.0, &self.tooltip);
        });
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_darker_and_numbers_can_be_read_on_it() {
        assert_eq!([0.0, 50.0, 100.0].map(color), [Color(247, 251, 255), Color(107, 174, 214), Color(8, 48, 107)]);
        let green: Vec<u8> = (0..=100).map(|share| color(f64::from(share)).1).collect();
        assert!(green.is_sorted_by(|a, b| a > b), "{green:?}");
    }
}
