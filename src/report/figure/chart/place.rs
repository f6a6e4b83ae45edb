//! Where the points of a chart are drawn: side by side where one marker would hide another.

use super::draw::Plot;
use super::{Chart, MARKER_RADIUS};
use crate::report::figure::Spot;

/// A point of a line in the plot.
pub(super) struct Place {
    /// Its height may be outside the plot.
    pub(super) at: Spot,
    /// The points that would hide it: which line, and which of its points.
    pub(super) beside: Vec<(usize, usize)>,
}

/// Markers whose centres are closer than this hide each other, in points.
const NEAR: f64 = 0.6 * MARKER_RADIUS;
/// From one marker to the next beside it: they overlap by a third.
const STEP: f64 = 1.4 * MARKER_RADIUS;
/// How far markers may stand on the left of a plot that begins with their place. On the right is the full cache's value.
const ON_THE_LEFT: f64 = 1.5 * MARKER_RADIUS;

impl Chart {
    /// The places of each line's points.
    pub(super) fn places(&self, plot: Plot) -> Vec<Vec<Place>> {
        let at = |across: f64, value: f64| (self.x(plot, across), self.y(plot, value));
        let mut places: Vec<Vec<Place>> = Vec::new();
        for line in &self.lines {
            let spots = line.spots.iter().map(|spot| at(spot.across, spot.point.estimate.value));
            places.push(spots.map(|at| Place { at, beside: Vec::new() }).collect());
        }
        // What is off the scale is marked at the border.
        let mut all: Vec<(Spot, (usize, usize))> = Vec::new();
        for (line, places) in places.iter().enumerate() {
            let shown = |place: &Place| (place.at.0, place.at.1.clamp(plot.top, plot.bottom));
            all.extend(places.iter().enumerate().map(|(spot, place)| (shown(place), (line, spot))));
        }
        all.retain(|((_, y), _)| !y.is_nan());
        all.sort_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut columns: Vec<f64> = all.iter().map(|((x, _), _)| *x).collect();
        columns.dedup();
        for together in all.chunk_by(|(a, _), (b, _)| a.0 == b.0 && b.1 - a.1 < NEAR) {
            let mut points: Vec<(usize, usize)> = together.iter().map(|(_, point)| *point).collect();
            points.sort_unstable();
            let x = together[0].0.0;
            let offsets = side_by_side(points.len(), room(&columns, x, plot));
            for (&(line, spot), offset) in points.iter().zip(offsets) {
                let place = &mut places[line][spot];
                place.at.0 += offset;
                place.beside = points.iter().copied().filter(|other| *other != (line, spot)).collect();
            }
        }
        places
    }
}

impl Chart {
    /// Whether any markers stand side by side where a chart has its usual size.
    pub(super) fn has_neighbours(&self) -> bool {
        let usual = Plot { left: 0.0, right: 200.0, top: 0.0, bottom: 120.0 };
        self.places(usual).iter().flatten().any(|place| !place.beside.is_empty())
    }
}

/// How wide the markers at a place may stand: not half way to the next places, and hardly outside of the plot.
fn room(columns: &[f64], x: f64, plot: Plot) -> f64 {
    let gaps = columns.iter().map(|other| (other - x).abs()).filter(|gap| *gap > 0.0);
    let borders = [x - plot.left + ON_THE_LEFT, plot.right - x].map(|inside| 2.0 * inside);
    gaps.map(|gap| 0.8 * gap).chain(borders).fold(f64::INFINITY, f64::min)
}

/// Offsets of so many markers around their place.
fn side_by_side(markers: usize, room: f64) -> impl Iterator<Item = f64> {
    let steps = markers.saturating_sub(1) as f64;
    let step = if steps > 0.0 { STEP.min(room / steps) } else { 0.0 };
    (0..markers).map(move |marker| step * (marker as f64 - steps / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Scale;
    use crate::report::fixture::{cell, panels};

    const PLOT: Plot = Plot { left: 0.0, right: 220.0, top: 0.0, bottom: 100.0 };

    /// Two sizes; `values` are those of policies at each.
    fn chart(values: &[(&str, [f64; 2])]) -> Chart {
        let rows = values.iter().flat_map(|(policy, values)| {
            let at = |size, value: f64| cell("nll", policy, Some(size), &[("a", value.ln(), 1.0)]);
            [at(64, values[0]), at(128, values[1])].concat()
        });
        let panels = panels(&rows.collect::<Vec<_>>());
        Chart::by_size(&panels[0], String::new(), Scale::Linear)
    }

    #[test]
    fn markers_of_one_value_stand_side_by_side() {
        let chart = chart(&[("window", [20.0, 10.0]), ("h2o", [30.0, 10.0]), ("tova", [30.0, 10.0])]);
        let places = chart.places(PLOT);
        let x = |line: usize, spot: usize| places[line][spot].at.0;
        // The sizes have 5 % of the axis' length between them outside of each: 220 is 110 %.
        let near = |at: f64, expected: f64| assert!((at - expected).abs() < 1e-9, "{at} {expected}");
        near(x(0, 0), 10.0);
        near(x(1, 0), 10.0 - 1.4);
        near(x(2, 0), 10.0 + 1.4);
        [210.0 - 2.8, 210.0, 210.0 + 2.8].iter().zip(0..).for_each(|(expected, line)| near(x(line, 1), *expected));
        assert_eq!((&places[0][0].beside[..], &places[2][1].beside[..]), (&[][..], &[(0, 1), (1, 1)][..]));
        let said = chart.tooltip_of(&chart.lines[2].spots[1], &places[2][1].beside);
        assert!(said.ends_with("; also here: window 10.0000, h2o 10.0000"), "{said}");
        let [height, other] = [0, 2].map(|line| places[line][1].at.1);
        assert!(height == other && chart.has_neighbours());
    }

    #[test]
    fn many_markers_of_one_value_share_the_room_at_the_end_of_an_axis() {
        let names: Vec<String> = (0..21).map(|i| format!("mine{i}")).collect();
        let values: Vec<(&str, [f64; 2])> = names.iter().map(|name| (name.as_str(), [20.0, 10.0])).collect();
        let places = chart(&values).places(PLOT);
        // It is 10 points to the border.
        let (first, last) = (places[0][1].at.0, places[20][1].at.0);
        assert!((first - 200.0).abs() < 1e-9 && (last - 220.0).abs() < 1e-9, "{first} {last}");
        assert!(!chart(&[("window", [20.0, 10.0]), ("tova", [30.0, 12.0])]).has_neighbours());
    }
}
