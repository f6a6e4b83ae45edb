//! The names of lines at their right ends, in the order of the lines there, spread so that none covers another.

use super::draw::Plot;
use super::{Chart, LABEL, MARKER_RADIUS, Reference, SMALL};
use crate::report::escape;
use crate::report::figure::{Across, BLACK, Color, GREY, Pen, Scene, SeriesStyles, Spot, font};

/// From one name to the next, in points.
const ROW: f64 = 1.17 * SMALL;
/// From the plot to the names.
const GAP: f64 = 9.0;
/// The most names that are beside a plot.
const MOST: usize = 40;
/// The most of a chart's width that names take.
const WIDEST: f64 = 0.45;
/// A name that is moved by less needs no line to its own.
const MOVED: f64 = 0.8;

/// A name, and where its line ends.
struct End {
    name: String,
    at: Spot,
    /// Heights of the line from its end back, which say what is above where lines end at one place.
    heights: Vec<f64>,
    color: Color,
    /// Of the group in the SVG.
    attributes: String,
}

impl Chart {
    /// Whether names can stand at the ends of lines in a chart of some width. Where a name would be cut, a legend has more room.
    pub(crate) fn has_room_at_ends(&self, width: f64) -> bool {
        !self.is_rows() && self.count() <= MOST && self.names_width() <= WIDEST * width
    }

    fn count(&self) -> usize {
        self.lines.len() + self.references().len()
    }

    /// The height that all names need.
    pub(super) fn ends_height(&self) -> f64 {
        ROW * self.count() as f64
    }

    /// The room right of the plot.
    pub(super) fn ends_room(&self) -> f64 {
        GAP + self.names_width() + 2.0
    }

    fn names_width(&self) -> f64 {
        let lines = self.lines.iter().map(|line| escape::plain(&line.policy));
        let names = lines.chain(self.references().into_iter().map(|(name, ..)| name));
        names.map(|name| font::width(&name, SMALL)).fold(0.0, f64::max)
    }

    /// Names of what lines are compared with, the value at the right, and a colour.
    fn references(&self) -> Vec<(String, f64, Color)> {
        let last = |reference: &Reference| match reference {
            Reference::Level(value) => Some(*value),
            Reference::Curve(spots) => spots.last().map(|(_, value)| *value),
        };
        let full = self.full.as_ref().and_then(|full| Some((self.full_name(full), last(full)?, BLACK)));
        let guess = self.guess.as_ref().and_then(|guess| {
            let name = self.guess_name();
            let name = match guess {
                Reference::Level(value) => format!("{name} {}", self.quantity.show(*value)),
                Reference::Curve(_) => name.to_owned(),
            };
            Some((name, last(guess)?, GREY))
        });
        let limit = self.limit.map(|limit| (format!("{limit:.3}"), limit, GREY));
        full.into_iter().chain(guess).chain(limit).collect()
    }

    fn full_name(&self, full: &Reference) -> String {
        match full {
            Reference::Level(value) => format!("full {}", self.quantity.show(*value)),
            Reference::Curve(_) => "full".to_owned(),
        }
    }

    /// Draws the names, each level with the end of its line, or with a thin line to it.
    pub(super) fn draw_ends(&self, scene: &mut Scene, plot: Plot, styles: &SeriesStyles) {
        let mut ends = Vec::new();
        for line in &self.lines {
            let Some(style) = styles.get(&line.policy) else { continue };
            let spots = line.spots.iter().rev().map(|spot| self.spot(plot, spot));
            let spots: Vec<Spot> = spots.filter(|at| !at.1.is_nan()).collect();
            let Some(at) = spots.first().copied() else { continue };
            let heights = spots.iter().map(|at| (at.1 * 10.0).round()).collect();
            let attributes = format!("class=\"{} end\" {}", style.class(), super::draw::of_policy(line));
            ends.push(End { name: escape::plain(&line.policy), at, heights, color: style.ink(), attributes });
        }
        for (name, value, color) in self.references() {
            let policy = if name.starts_with("full") { " data-policy=\"full\"" } else { "" };
            let attributes = format!("class=\"end\"{policy}");
            let at = (plot.right, self.y(plot, value));
            ends.push(End { name, at, heights: vec![(at.1 * 10.0).round()], color, attributes });
        }
        ends.sort_by(|a, b| {
            let mut differ = a.heights.iter().zip(&b.heights).map(|(a, b)| a.total_cmp(b));
            differ.find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        });
        let level = |end: &End| end.at.1.clamp(plot.top, plot.bottom);
        let wanted: Vec<f64> = ends.iter().map(level).collect();
        let places = spread(&wanted, ROW, (plot.top, plot.bottom + 0.5 * LABEL));
        let left = plot.right + GAP;
        for (end, place) in ends.iter().zip(places) {
            scene.group(&end.attributes, |scene| {
                let from = ((end.at.0 + 1.8 * MARKER_RADIUS).min(plot.right), level(end));
                let is_inside = end.at.0 < plot.right - 0.1 * (plot.right - plot.left);
                if (place - from.1).abs() > MOVED || is_inside {
                    let path = [from, (plot.right, from.1), (left - 1.5, place)];
                    scene.stroke("leader", &path, Pen::new(end.color, 0.35));
                }
                scene.text((left, place), &end.name, SMALL, end.color, Across::Left);
            });
        }
    }
}

/// Places at least a `gap` apart and in the order of those wanted, which is ascending: of all such places those with the least sum of
/// squared distances to the wanted ones, then moved between two borders, as far as there is room.
fn spread(wanted: &[f64], gap: f64, (low, high): (f64, f64)) -> Vec<f64> {
    // Without the gaps places must only be ascending, and neighbours that are not become their mean (isotonic regression).
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (at, place) in wanted.iter().enumerate() {
        groups.push((place - gap * at as f64, 1));
        while let [.., (before, size), (last, own)] = groups[..] {
            if before / size as f64 <= last / own as f64 {
                break;
            }
            groups.pop();
            let end = groups.len() - 1;
            groups[end] = (before + last, size + own);
        }
    }
    let most = high - gap * wanted.len().saturating_sub(1) as f64;
    let means = groups.iter().flat_map(|(sum, size)| std::iter::repeat_n(sum / *size as f64, *size));
    means.enumerate().map(|(at, mean)| mean.min(most).max(low) + gap * at as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spread_as_little_as_is_needed() {
        let free = (0.0, 100.0);
        assert_eq!(spread(&[10.0, 30.0, 50.0], 8.0, free), [10.0, 30.0, 50.0]);
        // Two at one place go half a gap each way, and push away what they reach.
        assert_eq!(spread(&[20.0, 20.0, 50.0], 8.0, free), [16.0, 24.0, 50.0]);
        assert_eq!(spread(&[20.0, 20.0, 26.0], 8.0, free), [14.0, 22.0, 30.0]);
        // At a border all of a group move.
        assert_eq!(spread(&[1.0, 2.0], 8.0, free), [0.0, 8.0]);
        assert_eq!(spread(&[99.0, 99.0], 8.0, free), [92.0, 100.0]);
        // Without enough room names leave at the lower border.
        assert_eq!(spread(&[5.0, 5.0, 5.0], 8.0, (0.0, 10.0)), [0.0, 8.0, 16.0]);
        assert!(spread(&[], 8.0, free).is_empty());
    }

    #[test]
    fn spread_places_are_the_nearest_of_all_on_a_grid() {
        // All ascending places on a grid of 2, tried one by one.
        let grid: Vec<f64> = (0..30).map(|at| f64::from(at) * 2.0).collect();
        let distance = |places: &[f64], wanted: &[f64]| -> f64 {
            places.iter().zip(wanted).map(|(place, wanted)| (place - wanted).powi(2)).sum()
        };
        for wanted in [[10.0, 12.0, 40.0], [4.0, 4.0, 4.0], [20.0, 26.0, 30.0], [50.0, 56.0, 58.0]] {
            let found = spread(&wanted, 8.0, (0.0, 58.0));
            assert!(found.windows(2).all(|pair| pair[1] - pair[0] >= 8.0 - 1e-9), "{found:?}");
            let mut best = f64::INFINITY;
            for a in &grid {
                for b in grid.iter().filter(|b| *b - a >= 8.0) {
                    for c in grid.iter().filter(|c| *c - b >= 8.0) {
                        best = best.min(distance(&[*a, *b, *c], &wanted));
                    }
                }
            }
            assert!(distance(&found, &wanted) <= best + 1e-9, "{wanted:?}: {found:?}, {best}");
        }
    }
}
