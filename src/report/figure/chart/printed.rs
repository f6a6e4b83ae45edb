//! Numbers that others published, drawn over a chart: thin and dashed, without markers, so that nobody mistakes them for what
//! was measured.

use super::draw::Plot;
use super::legend::printed_pen;
use super::{Chart, Reference, axis_values, excess, values};
use crate::report::figure::{Axis, GREY, Scene, SeriesStyles, Spot};

/// Lines that others published, by the names of policies, and the level of their full cache.
#[derive(Clone)]
pub(crate) struct Printed {
    pub(crate) lines: Vec<(String, Vec<Spot>)>,
    pub(crate) full: Option<f64>,
    /// Who published them, for the legend.
    pub(crate) source: String,
}

impl Chart {
    /// Draws others' numbers over the chart, whose value axis gets room for both.
    pub(crate) fn with_printed(self, printed: Printed) -> Self {
        let own = axis_values(&self.quantity, &self.lines, self.full.as_ref(), self.scale);
        let full = printed.full.map(Reference::Level);
        let lines = printed.lines.iter().map(|(_, spots)| spots.iter().map(|(_, value)| *value).collect());
        let others = values(&self.quantity, lines.collect(), full.as_ref(), self.scale);
        let edge = || {
            let positive = others.iter().copied().filter(|value| *value > 0.0).map(excess::edge);
            positive.fold(self.values.lowest(), f64::min)
        };
        let values = match self.is_excess {
            true => Axis::above(edge(), &[&own[..], &others].concat()),
            false => Axis::of_values(&[&own[..], &others].concat(), self.scale),
        };
        Self { values, printed: Some(printed), ..self }
    }

    pub(crate) fn draw_printed(&self, scene: &mut Scene, plot: Plot, printed: &Printed, styles: &SeriesStyles) {
        if let Some(full) = printed.full {
            let y = self.y(plot, full);
            plot.stroke(scene, "printed", &[(plot.left, y), (plot.right, y)], printed_pen(GREY));
        }
        for (policy, spots) in &printed.lines {
            let Some(style) = styles.get(policy) else { continue };
            let spots = spots.iter().map(|(across, value)| (self.x(plot, *across), self.y(plot, *value)));
            plot.stroke(scene, "printed", &spots.collect::<Vec<Spot>>(), printed_pen(style.color()));
        }
    }
}
