//! Numbers that others published, laid over a chart: grey, thin and dashed, with hollow markers, so that nobody takes them for
//! what was measured.
//!
//! Who published them it does not know.

use super::super::axis::Axis;
use super::super::clip;
use super::super::ink::{GREY, Look, Marker, WHITE};
use super::super::scene::{Scene, Shape, Spot};
use super::{Chart, MARKER_RADIUS, Plot, Reference, series, values};

const WIDTH: f64 = 0.7;
const DASH: (f64, f64) = (1.8, 1.4);

/// Lines that others published, by the names of policies, and the level of their full cache.
pub(crate) struct Printed {
    pub(crate) lines: Vec<(String, Vec<Spot>)>,
    pub(crate) full: Option<f64>,
    /// Who published them, for the legend.
    pub(crate) source: String,
}

impl Chart {
    /// The same with others' numbers laid over, and a value axis that has both.
    pub(crate) fn beside(self, printed: Printed) -> Self {
        let own = values(&self.quantity, series(&self.lines), self.full.as_ref(), self.scale);
        let full = printed.full.map(Reference::Level);
        let lines = printed.lines.iter().map(|(_, spots)| spots.iter().map(|(_, value)| *value).collect());
        let others = values(&self.quantity, lines.collect(), full.as_ref(), self.scale);
        let values = Axis::of_values(&[own, others].concat(), self.scale);
        Self { values, printed: Some(printed), ..self }
    }

    pub(crate) fn printed_source(&self) -> Option<&str> {
        self.printed.as_ref().map(|printed| printed.source.as_str())
    }

    pub(super) fn draw_printed(
        &self,
        scene: &mut Scene,
        plot: Plot,
        printed: &Printed,
        looks: &dyn Fn(&str) -> Option<Look>,
    ) {
        if let Some(full) = printed.full.filter(|full| self.values.contains(*full)) {
            let y = self.y(plot, full);
            scene.stroke(vec![(plot.left, y), (plot.right, y)], GREY, WIDTH, Some(DASH));
        }
        for (policy, spots) in &printed.lines {
            let Some(look) = looks(policy) else { continue };
            let spots = spots.iter().map(|(across, value)| (self.x(plot, *across), self.y(plot, *value)));
            let spots: Vec<Spot> = spots.filter(|(_, y)| y.is_finite()).collect();
            // Of a line that is nearly all off the scale nothing can be read.
            let inside = spots.iter().filter(|(_, y)| (plot.top..=plot.bottom).contains(y)).count();
            if 2 * inside < spots.len() {
                continue;
            }
            for piece in clip::line(&spots, plot.top, plot.bottom) {
                scene.stroke(piece, GREY, WIDTH, Some(DASH));
            }
            for &spot in spots.iter().filter(|(_, y)| (plot.top..=plot.bottom).contains(y)) {
                draw_hollow(scene, spot, look);
            }
        }
    }
}

/// The line in the legend.
pub(super) fn draw_sample(scene: &mut Scene, ends: Vec<Spot>) {
    let middle = ends.iter().fold((0.0, 0.0), |sum, end| (sum.0 + end.0 / 2.0, sum.1 + end.1 / 2.0));
    scene.stroke(ends, GREY, WIDTH, Some(DASH));
    draw_hollow(scene, middle, Look { color: GREY, marker: Marker::Circle });
}

/// A marker's outline around white.
fn draw_hollow(scene: &mut Scene, at: Spot, look: Look) {
    let (filled, outlines) = look.marker.strokes(MARKER_RADIUS);
    for outline in outlines {
        let mut points: Vec<Spot> = outline.into_iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
        if filled {
            scene.shapes.push(Shape::Fill { points: points.clone(), color: WHITE, opacity: 1.0 });
            points.extend(points.first().copied());
        }
        scene.stroke(points, look.color, WIDTH, None);
    }
}
