//! Where the points of a chart are drawn: side by side where one marker would hide another.

use super::super::scene::Spot;
use super::draw::Plot;
use super::{Chart, MARKER_RADIUS};

/// A point of a line in the plot.
pub(super) struct Place {
    /// Its height may be outside the plot.
    pub(super) at: Spot,
    /// The points that would hide it: which line, and which of its points.
    pub(super) beside: Vec<(usize, usize)>,
}

/// Markers whose centres are closer than this hide each other, in points.
const NEAR: f64 = 0.6 * MARKER_RADIUS;
/// From one marker to the next beside it.
const STEP: f64 = 1.9 * MARKER_RADIUS;
/// How far markers at the end of an axis may stand outside of the plot.
const OUTSIDE: f64 = 1.5 * MARKER_RADIUS;

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
        let columns: Vec<f64> = {
            let mut columns: Vec<f64> = all.iter().map(|((x, _), _)| *x).collect();
            columns.dedup();
            columns
        };
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

/// How wide the markers at a place may stand: up to half way to their neighbours, and hardly outside the plot.
fn room(columns: &[f64], x: f64, plot: Plot) -> f64 {
    let gaps = columns.iter().map(|other| (other - x).abs()).filter(|gap| *gap > 0.0);
    let borders = [x - plot.left, plot.right - x].map(|inside| 2.0 * (inside + OUTSIDE));
    gaps.map(|gap| 0.8 * gap).chain(borders).fold(f64::INFINITY, f64::min)
}

/// Offsets of so many markers around their place.
fn side_by_side(markers: usize, room: f64) -> impl Iterator<Item = f64> {
    let steps = markers.saturating_sub(1) as f64;
    let step = if steps > 0.0 { STEP.min(room / steps) } else { 0.0 };
    (0..markers).map(move |marker| step * (marker as f64 - steps / 2.0))
}
