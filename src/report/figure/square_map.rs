//! Maps of squares, darker where a share is more: numbered squares (needles found, what heads hold), or as many shades of grey as a
//! picture has (tokens kept at each step).

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
    /// What the maps answer.
    pub(crate) asks: &'static str,
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
    pub(crate) squares: Squares,
}

/// What a map consists of.
pub(crate) enum Squares {
    /// Numbered squares, and the least width of a column. Names are those of columns and lines.
    Numbers(Vec<Square>, f64),
    /// Grey squares row after row, `squares` each way, on a side in points. Names are those of places from one end to the other.
    Shades { squares: usize, grey: Vec<u8>, side: f64 },
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
pub(crate) const GAP: f64 = 8.0;
pub(crate) const LABEL_ROOM: f64 = LABEL + 5.0;
/// Between shades and their frame.
const AIR: f64 = 0.75;
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
        let width =
            |map: &SquareMap| map.width(names_room(&map.lines) + font::width(&map.title, TITLE).min(MOST_TITLE));
        let wide = self.maps.iter().map(width).fold(0.0, f64::max) + GAP;
        let abreast = self.rows().map(<[SquareMap]>::len).max().unwrap_or(1);
        let mut scene = Scene::new(title, LABEL_ROOM + abreast as f64 * wide);
        let is_untitled = plain.title && self.maps.len() == 1;
        let mut bottom = match is_untitled {
            true => 2.0 + TOP - TITLE_ROW,
            false => 2.0 + chart::title::draw_head(&mut scene, (self.asks, title), (6.0, 2.0)),
        };
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
        let caption = if is_untitled { format!("{title}; {}", self.about) } else { self.about.clone() };
        let room = scene.width - 12.0;
        let end = match plain.footnote {
            true => bottom - GAP,
            false => chart::draw_caption(&mut scene, (6.0, bottom), room, &caption),
        };
        scene.height = end + 2.0;
        scene
    }
}

/// Room for the names on the left of the squares.
pub(crate) fn names_room(names: &[String]) -> f64 {
    names.iter().map(|name| font::width(name, SMALL)).fold(0.0, f64::max) + 5.0
}

impl SquareMap {
    /// Width in points that the columns need, without the name of the lines; at least `least`.
    pub(crate) fn width(&self, least: f64) -> f64 {
        let squares = match self.squares {
            Squares::Numbers(_, narrowest) => {
                let columns = self.columns.iter().map(|name| font::width(name, SMALL) + 4.0);
                columns.fold(narrowest, f64::max) * self.columns.len() as f64
            }
            Squares::Shades { side, .. } => side,
        };
        (names_room(&self.lines) + squares).max(least)
    }

    /// Draws it at `corner`; `labelled` is false where a map on the left says what the lines are.
    pub(crate) fn draw(&self, scene: &mut Scene, corner: Spot, width: f64, (title, labelled): (&[String], bool)) {
        let label = if labelled { LABEL_ROOM } else { 0.0 };
        let left = corner.0 + label + names_room(&self.lines);
        let right = match self.squares {
            Squares::Numbers(..) => corner.0 + width,
            Squares::Shades { side, .. } => left + side,
        };
        let top = corner.1 + TITLE_ROW;
        let bottom = top + self.squares_height();
        let centre = (left + right) / 2.0;
        chart::title::draw(scene, title, (corner.0, right), (centre, top));
        if labelled {
            scene.upright_text((corner.0 + LABEL / 2.0 + 1.0, (top + bottom) / 2.0), self.vertical, LABEL);
        }
        let wide = (right - left) / self.columns.len() as f64;
        let policy = format!("class=\"line\" data-policy=\"{}\"", escape::xml(&self.policy));
        scene.group(&policy, |scene| match &self.squares {
            Squares::Numbers(all, _) => all.iter().for_each(|square| {
                let corner = (left + wide * square.place.0 as f64, top + SQUARE_HEIGHT * square.place.1 as f64);
                square.draw(scene, corner, (wide, SQUARE_HEIGHT));
            }),
            Squares::Shades { squares, grey, side } => scene.image((left, top), (*side, *side), *squares, grey),
        });
        // Beside the squares, not on them: the first few tokens are often those that are never evicted.
        let air = if matches!(self.squares, Squares::Shades { .. }) { AIR } else { 0.0 };
        let (west, north, east, south) = (left - air, top - air, right + air, bottom + air);
        let frame = [(west, north), (east, north), (east, south), (west, south), (west, north)];
        scene.stroke("axis", &frame, Pen::new(BLACK, 0.5));
        for (share, name) in self.places(&self.lines) {
            scene.text((left - 3.0, top + share * (bottom - top)), name, SMALL, BLACK, Across::Right);
        }
        for (at, (share, name)) in self.places(&self.columns).enumerate() {
            // Names at the ends stay below their map.
            let across = match self.squares {
                Squares::Shades { .. } if at == 0 => Across::Left,
                Squares::Shades { .. } if at + 1 == self.columns.len() => Across::Right,
                _ => Across::Centre,
            };
            scene.text((left + share * (right - left), bottom + 6.0), name, SMALL, BLACK, across);
        }
        scene.text((centre, bottom + 15.0), self.horizontal, LABEL, BLACK, Across::Centre);
    }

    /// Height in points with a title of one line.
    pub(crate) fn height(&self) -> f64 {
        TITLE_ROW + self.squares_height() + 19.0
    }

    fn squares_height(&self) -> f64 {
        match self.squares {
            Squares::Numbers(..) => SQUARE_HEIGHT * self.lines.len() as f64,
            Squares::Shades { side, .. } => side,
        }
    }

    /// Names with their places, as shares of a side: the middles of squares, or from end to end.
    fn places<'n>(&self, names: &'n [String]) -> impl Iterator<Item = (f64, &'n String)> {
        let (before, all) = match self.squares {
            Squares::Numbers(..) => (0.5, names.len() as f64),
            Squares::Shades { .. } => (0.0, names.len() as f64 - 1.0),
        };
        names.iter().enumerate().map(move |(at, name)| ((at as f64 + before) / all, name))
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
