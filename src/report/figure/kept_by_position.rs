//! Steps kept by a token's position: the paper's Figure 9, a chart for each policy and a line for each cache size.

use std::collections::BTreeSet;

use crate::report::escape;
use crate::report::figure::axis::{Axis, Scale};
use crate::report::figure::chart::{self, Chart, Line, Reference, Stroke};
use crate::report::figure::curve::Page;
use crate::report::figure::plain::Plain;
use crate::report::figure::scene::Scene;
use crate::report::figure::series_style::SeriesStyles;
use crate::report::series::panel::Panel;

/// Positions 0 to 25, as in the paper.
pub(crate) const MOST: u32 = 26;
const ABREAST: usize = 3;
const WIDTH: f64 = 2.3 * 72.0;
const PLOT: f64 = 108.0;

/// The figure; `None` where no position was measured. `lines` are policies with their cache sizes, `page` is the width in
/// points where it is not to be the usual one.
pub(crate) fn scene(
    title: &str,
    positions: &[(u32, &Panel)],
    lines: &[(&str, Vec<u32>)],
    length: u32,
    page: Option<f64>,
    plain: Plain,
) -> Option<Scene> {
    let (_, first) = positions.first()?;
    let sizes: BTreeSet<u32> = lines.iter().flat_map(|(_, sizes)| sizes.iter().copied()).collect();
    let names: Vec<String> = sizes.iter().map(u32::to_string).collect();
    let styles = SeriesStyles::in_order(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let charts: Vec<Chart> = lines
        .iter()
        .map(|(policy, sizes)| {
            let line = |size: &u32| {
                let spots = positions.iter().filter_map(|(position, panel)| {
                    let point = panel.point(policy, Some(*size))?;
                    Some(chart::measurement(panel, point, f64::from(*position)))
                });
                Line { policy: size.to_string(), spots: spots.collect() }
            };
            let across: Vec<f64> = positions.iter().map(|(position, _)| f64::from(*position)).collect();
            // No token is kept longer than to the end of the text.
            let end = positions
                .iter()
                .map(|(position, _)| (f64::from(*position), f64::from(length - position.min(&length))));
            Chart::new(
                (escape::plain(policy), &first.metric),
                ("position of the token", Axis::of_values(&across, Scale::Linear)),
                Scale::Linear,
                sizes.iter().map(line).collect(),
                Some(Reference::Curve(end.collect())),
                None,
            )
            .spanning(&[0.0, f64::from(length)])
            .plain(plain)
        })
        .collect();
    let abreast = charts.len().clamp(1, ABREAST);
    let width = page.unwrap_or((WIDTH * abreast as f64 + chart::LABEL_ROOM).max(3.3 * 72.0));
    let title = format!("Steps kept by position: {title}");
    let legend = styles.iter().map(|(size, style)| (format!("{size} entries"), Stroke::Policy(style)));
    let legend = legend.chain([("to the end".to_owned(), Stroke::Full)]).collect();
    let caption = if plain.bands { title.clone() } else { format!("{title}; bands: 95 % intervals") };
    Some(Page { width, abreast, plot: PLOT, plain }.scene(&title, &charts, &styles, legend, &caption))
}
