//! Steps kept by a token's place: the paper's Figure 9, a chart for each policy and a line for each cache size.
//!
//! It arranges charts and their legend; what is kept, and which policies there are, it is told.

use super::axis::{Axis, Scale};
use super::chart::{self, Chart, Line, Reference, SMALL, Stroke};
use super::ink::{self, BLACK, Look};
use super::points::Panel;
use super::scene::{Across, Scene};
use super::{escape, font};

/// Positions 0 to 25, as in the paper.
pub(super) const MOST: u32 = 26;
const ABREAST: usize = 3;
const WIDTH: f64 = 2.3 * 72.0;
const PLOT: f64 = 108.0;
const MARGIN: f64 = 2.0;

/// The figure; `None` where no position was measured. `lines` are policies with their cache sizes, `page` is the width in
/// points where it is not to be the usual one.
pub(super) fn scene(
    title: &str,
    positions: &[(u32, &Panel)],
    lines: &[(&str, &[u32])],
    length: u32,
    page: Option<f64>,
) -> Option<Scene> {
    let (_, first) = positions.first()?;
    let mut sizes: Vec<u32> = lines.iter().flat_map(|(_, sizes)| sizes.iter().copied()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let names: Vec<String> = sizes.iter().map(u32::to_string).collect();
    let looks: Vec<Look> = ink::looks(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let look = |name: &str| names.iter().position(|known| known == name).map(|at| looks[at]);
    let charts: Vec<Chart> = lines
        .iter()
        .map(|(policy, sizes)| {
            let line = |size: &u32| Line {
                policy: size.to_string(),
                spots: positions
                    .iter()
                    .filter_map(|(position, panel)| {
                        let point = panel.point(policy, Some(*size))?;
                        Some(chart::measurement(panel, point, f64::from(*position)))
                    })
                    .collect(),
            };
            let across: Vec<f64> = positions.iter().map(|(position, _)| f64::from(*position)).collect();
            // Nobody is kept longer than to the end.
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
        })
        .collect();
    let abreast = charts.len().clamp(1, ABREAST);
    let row = Chart::height(PLOT) + 6.0;
    let width = page.unwrap_or((WIDTH * abreast as f64 + chart::LABEL_ROOM).max(3.3 * 72.0));
    let chart_width = (width - chart::LABEL_ROOM) / abreast as f64;
    let title = format!("Steps kept by position: {title}");
    let mut scene = Scene { title: title.clone(), width, height: 0.0, shapes: Vec::new() };
    for (i, chart) in charts.iter().enumerate() {
        let (column, down) = (i % abreast, i / abreast);
        let (before, own) = if column == 0 { (0.0, chart::LABEL_ROOM) } else { (chart::LABEL_ROOM, 0.0) };
        let corner = (column as f64 * chart_width + before + MARGIN, down as f64 * row + MARGIN);
        chart.draw(&mut scene, corner, (chart_width + own - 2.0 * MARGIN, PLOT), &look, column == 0);
    }
    let mut y = charts.len().div_ceil(abreast) as f64 * row + MARGIN + 4.0;
    let mut x = MARGIN + 4.0;
    let entries = names.iter().zip(&looks).map(|(name, look)| (format!("{name} entries"), Stroke::Policy(*look)));
    for (name, stroke) in entries.chain([("to the end".to_owned(), Stroke::Full)]) {
        let wide = 19.0 + font::width(&name, SMALL);
        if x + wide > width - MARGIN && x > MARGIN + 4.0 {
            (x, y) = (MARGIN + 4.0, y + 9.5);
        }
        chart::draw_sample(&mut scene, (x, y), 16.0, stroke);
        scene.text((x + 19.0, y), &name, SMALL, BLACK, Across::Left);
        x += wide + 8.0;
    }
    let caption = format!("{title}; bands: 95 % bootstrap");
    let room = width - 2.0 * MARGIN - 4.0;
    scene.height = chart::draw_long_caption(&mut scene, (MARGIN + 4.0, y + 9.5), room, &caption) + MARGIN;
    Some(scene)
}
