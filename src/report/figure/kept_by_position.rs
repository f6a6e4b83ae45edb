//! Steps kept by a token's position: the paper's Figure 9, a chart for each policy and a line for each cache size.

use std::collections::BTreeSet;

use crate::report::escape;
use crate::report::figure::{Axis, Chart, Horizontal, Line, Page, Plain, Scale, Scene, SeriesStyles, chart};
use crate::report::series::{Panel, Size};

/// Positions 0 to 25, as in the paper.
pub(crate) const MOST: u32 = 26;

/// Steps kept by position, ready to be drawn.
pub(crate) struct KeptByPosition {
    pub(crate) title: String,
    charts: Vec<Chart>,
    /// Looks of the cache sizes, each of which is a line.
    styles: SeriesStyles,
}

impl KeptByPosition {
    /// `lines` are policies with their cache sizes; `None` where no position was measured.
    pub(crate) fn of(
        title: &str,
        positions: &[(u32, &Panel)],
        lines: &[(&str, Vec<Size>)],
        length: u32,
    ) -> Option<Self> {
        let (_, first) = positions.first()?;
        let sizes: BTreeSet<Size> = lines.iter().flat_map(|(_, sizes)| sizes.iter().copied()).collect();
        let names: Vec<String> = sizes.iter().map(|size| size.words()).collect();
        let styles = SeriesStyles::in_order(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let chart = |(policy, sizes): &(&str, Vec<Size>)| {
            let line = |size: &Size| {
                let spots = positions.iter().filter_map(|(position, panel)| {
                    let point = panel.point(policy, Some(*size))?;
                    Some(chart::measurement(panel, point, f64::from(*position)))
                });
                Line { policy: size.words(), spots: spots.collect() }
            };
            let across: Vec<f64> = positions.iter().map(|(position, _)| f64::from(*position)).collect();
            let chart = Chart::new(
                (escape::plain(policy), &first.metric),
                (Horizontal::Number("position of the token"), Axis::of_values(&across, Scale::Linear)),
                Scale::Linear,
                sizes.iter().map(line).collect(),
                None,
                None,
            );
            chart.spanning(&[0.0, f64::from(length)]).asking("How long are the first tokens kept?")
        };
        let charts = lines.iter().map(chart).collect();
        Some(Self { title: format!("Steps kept by position: {title}"), charts, styles })
    }

    /// The figure, on a page of some width in points where it is not to be the usual one.
    pub(crate) fn scene(&self, page: Option<f64>, plain: Plain) -> Scene {
        let usual = Page::usual(self.charts.len(), plain);
        let page = Page { width: page.unwrap_or(usual.width), ..usual };
        let caption = if plain.title { &self.title } else { "" };
        page.curves((&self.title, &self.title), &self.charts, &self.styles, caption)
    }
}
