//! How charts stand on a figure: rows of plots, below them the legend, where it cannot cover data, and a caption.

use crate::report::figure::chart::Surroundings;
use crate::report::figure::{Chart, MARGIN, Plain, Scene, SeriesStyles, chart};

/// One column of a paper, in points.
const COLUMN: f64 = 3.3 * 72.0;
/// A chart among others, three of which fill a page.
const SIDE: f64 = 2.3 * 72.0;
const MOST_ABREAST: usize = 3;
const GAP: f64 = 6.0;

/// How wide a figure is, and what stands side by side on it; lengths in points.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    pub(crate) width: f64,
    pub(crate) abreast: usize,
    /// The height of a plot.
    pub(crate) plot: f64,
    pub(crate) plain: Plain,
}

impl Page {
    /// A chart fills a column, or three a page; four are two rows of two.
    pub(crate) fn usual(charts: usize, plain: Plain) -> Self {
        let rows = charts.max(1).div_ceil(MOST_ABREAST);
        let abreast = charts.max(1).div_ceil(rows);
        match abreast {
            1 => Self { width: COLUMN, abreast, plot: 122.0, plain },
            _ => Self { width: SIDE * abreast as f64 + LABEL, abreast, plot: 108.0, plain },
        }
    }

    /// Charts in rows under what they answer and what they are `about`, and below them their legend, and a caption that ends with what
    /// the bands are. A chart over sizes that is alone is about its own title. Lines of a chart that is alone have their names at their ends.
    pub(crate) fn curves(
        &self,
        (title, about): (&str, &str),
        charts: &[Chart],
        styles: &SeriesStyles,
        caption: &str,
    ) -> Scene {
        let charts: Vec<Chart> = charts.iter().map(|chart| chart.plain(self.plain)).collect();
        let is_alone = charts.len() == 1;
        let caption = Some(caption).filter(|caption| !caption.is_empty());
        let caption: Vec<String> = caption.map(str::to_owned).into_iter().chain(chart::notes(&charts)).collect();
        let caption = if self.plain.footnote { String::new() } else { caption.join("; ") };
        let mut scene = Scene::new(title, self.width);
        let same_counts = charts
            .first()
            .map(|first| &first.counts)
            .filter(|own| charts.iter().all(|chart| chart.counts == **own));
        let head = match charts.first() {
            Some(first) if !(self.plain.title && is_alone) => {
                let about = match is_alone {
                    true if first.horizontal.is_of_sizes() => first.title.clone(),
                    true => format!("{about} \u{B7} {}", first.title),
                    false => about.to_owned(),
                };
                let about = match same_counts {
                    Some(counts) if !counts.is_empty() => format!("{about} \u{B7} {counts}"),
                    _ => about,
                };
                chart::title::draw_head(&mut scene, (&first.question(), &about), (MARGIN + 2.0, MARGIN))
            }
            _ => 0.0,
        };
        let abreast = self.abreast;
        let extra = if abreast > 1 { LABEL } else { 0.0 };
        let chart_width = (self.width - extra) / abreast as f64;
        let room = chart_width - 2.0 * MARGIN;
        let named = is_alone && charts[0].has_room_at_ends(room);
        let saved = if is_alone { chart::TITLE_ROW - TOP } else { 0.0 };
        let title_of = |chart: &Chart| match same_counts {
            _ if is_alone => Vec::new(),
            None => chart::title::lines(&format!("{} \u{B7} {}", chart.title, chart.counts), room),
            Some(_) => chart::title::lines(&chart.title, room),
        };
        let titles: Vec<Vec<String>> = charts.iter().map(title_of).collect();
        // Titles of a row, and so their plots, are in line.
        let lines = titles.iter().map(Vec::len).max().unwrap_or(1);
        let plot = charts.iter().map(|chart| chart.plot_height(self.plot, named)).fold(0.0, f64::max);
        let row_height = Chart::height(plot, lines) - saved + GAP;
        for (i, (chart, mut title)) in charts.iter().zip(titles).enumerate() {
            let (column, row) = (i % abreast, i / abreast);
            let (before, own) = if column == 0 { (0.0, extra) } else { (extra, 0.0) };
            let top = head + row as f64 * row_height + MARGIN - saved;
            let corner = (column as f64 * chart_width + before + MARGIN, top);
            title.splice(0..0, std::iter::repeat_n(String::new(), lines - title.len()));
            let room = (chart_width + own - 2.0 * MARGIN, chart.plot_height(self.plot, named));
            // Panels of one figure share their quantity, so its name is written once per row.
            let around = Surroundings { heading: &title, labelled: column == 0, named };
            chart.draw(&mut scene, corner, room, styles, around);
        }
        let bottom = head + charts.len().div_ceil(abreast) as f64 * row_height + MARGIN;
        chart::finish(&mut scene, bottom, &chart::legend(&charts, styles, named), &caption);
        scene
    }
}

/// Above a plot without a title, for the half of a tick's label that is above it.
pub(crate) const TOP: f64 = 5.0;

/// The first chart of a row also names the axis; its plot is as wide as the others' all the same.
const LABEL: f64 = chart::LABEL_ROOM - MARGIN;
