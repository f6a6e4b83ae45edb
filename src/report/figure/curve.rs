//! The figures: every panel alone, and all panels of a quantity side by side as in the paper's Figure 3, each linear,
//! logarithmic and as excess over the full cache; recall by distance and the running average over long texts, a chart for
//! each cache size; needles found by length and depth, a map for each policy and cache size.
//!
//! Decides which charts are on one figure and where the legend is (below, where it cannot cover data), and names files.

use std::collections::BTreeMap;

use crate::format::capital;
use crate::metric::Property;
use crate::report::escape;
use crate::report::figure::axis::Scale;
use crate::report::figure::chart::{self, Chart, MARGIN, Shown, Stroke, excess};
use crate::report::figure::figure_title;
use crate::report::figure::needle_map::NeedleMaps;
use crate::report::figure::plain::Plain;
use crate::report::figure::scene::Scene;
use crate::report::figure::series_style::SeriesStyles;
use crate::report::series::breakdown::{self, Breakdown};
use crate::report::series::key::SeriesKey;
use crate::report::series::panel::{self, Panel};

/// One column of a paper, in points.
const COLUMN: f64 = 3.3 * 72.0;
/// A chart among others, three of which fill a page.
const SIDE: f64 = 2.3 * 72.0;
const MOST_ABREAST: usize = 3;
/// A figure of more panels than this gives no overview.
const MOST_TOGETHER: usize = 12;
/// The end of a file name.
const LINEAR: &str = "linear";
const EXCESS: &str = "excess";
const BY_DISTANCE: &str = "-by-distance";
const BY_LENGTH_AND_DEPTH: &str = "-by-length-and-depth";
const RUNNING: &str = "-running";
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
    /// A chart fills a column, or three a page.
    fn usual(charts: usize, plain: Plain) -> Self {
        let abreast = charts.clamp(1, MOST_ABREAST);
        match abreast {
            1 => Self { width: COLUMN, abreast, plot: 122.0, plain },
            _ => Self { width: SIDE * abreast as f64 + LABEL, abreast, plot: 108.0, plain },
        }
    }

    /// Charts of policies, with their legend, and the `subject` and what the bands are in the caption.
    pub(crate) fn curves(
        &self,
        title: &str,
        charts: &[Chart],
        styles: &SeriesStyles,
        subject: Option<&str>,
    ) -> Scene {
        let note = |shown| match shown {
            Shown::All => "",
            Shown::Part => " (partly off scale)",
            Shown::Nothing => " (off scale)",
        };
        let named = |entry: chart::Entry| (entry.name + note(entry.shown), entry.stroke);
        let charts: Vec<Chart> = charts.iter().map(|chart| chart.plain(self.plain)).collect();
        let legend = chart::legend(&charts, styles).into_iter().map(named).collect();
        let caption: Vec<String> = subject.map(str::to_owned).into_iter().chain(chart::notes(&charts)).collect();
        self.scene(title, &charts, styles, legend, &caption.join("; "))
    }

    /// Draws charts, plain ones, in rows, and below them the legend and a caption.
    pub(crate) fn scene(
        &self,
        title: &str,
        charts: &[Chart],
        styles: &SeriesStyles,
        legend: Vec<(String, Stroke)>,
        caption: &str,
    ) -> Scene {
        let mut scene = Scene::new(title, self.width);
        let abreast = self.abreast;
        let extra = if abreast > 1 { LABEL } else { 0.0 };
        let chart_width = (self.width - extra) / abreast as f64;
        let room = chart_width - 2.0 * MARGIN;
        let is_untitled = self.plain.title && charts.len() == 1;
        let saved = if is_untitled { chart::TITLE_ROW - TOP } else { 0.0 };
        let title_of =
            |chart: &Chart| if is_untitled { Vec::new() } else { chart::title::lines(&chart.title, room) };
        let titles: Vec<Vec<String>> = charts.iter().map(title_of).collect();
        // Titles of a row, and so their plots, are in line.
        let lines = titles.iter().map(Vec::len).max().unwrap_or(1);
        let row_height = Chart::height(self.plot, lines) - saved + GAP;
        for (i, (chart, mut title)) in charts.iter().zip(titles).enumerate() {
            let (column, row) = (i % abreast, i / abreast);
            let (before, own) = if column == 0 { (0.0, extra) } else { (extra, 0.0) };
            let corner = (column as f64 * chart_width + before + MARGIN, row as f64 * row_height + MARGIN - saved);
            title.splice(0..0, std::iter::repeat_n(String::new(), lines - title.len()));
            let room = (chart_width + own - 2.0 * MARGIN, self.plot);
            // Panels of one figure share their quantity, so its name is written once per row.
            chart.draw(&mut scene, corner, room, styles, (&title, column == 0));
        }
        let bottom = charts.len().div_ceil(abreast) as f64 * row_height + MARGIN;
        chart::finish_charts(&mut scene, bottom, legend, if self.plain.footnote { "" } else { caption });
        scene
    }
}

/// Above a plot without a title, for the half of a tick's label that is above it.
pub(crate) const TOP: f64 = 5.0;

/// The first chart of a row also names the axis; its plot is as wide as the others' all the same.
const LABEL: f64 = chart::LABEL_ROOM - MARGIN;

/// One figure, not yet drawn.
pub(crate) struct Figure {
    /// The file name without `-linear.svg` and its like.
    pub(crate) stem: String,
    pub(crate) title: String,
    /// The same with one scale or another, or as excess over the full cache, and the ends of the file names.
    pub(crate) drawings: Vec<(&'static str, Vec<Chart>)>,
    /// Instead of charts: the needles found by length and depth.
    pub(crate) maps: Option<NeedleMaps>,
    /// What the titles of the charts do not say.
    subject: Option<String>,
}

/// The figure of each panel that has a curve to show, and those of several panels.
pub(crate) struct Figures {
    /// In the order of the panels; `None` where only the full cache was measured, and for details.
    pub(crate) single: Vec<Option<Figure>>,
    /// For each quantity with two to twelve panels.
    pub(crate) combined: Vec<Figure>,
}

pub(crate) fn figures(panels: &[Panel]) -> Figures {
    let settings: Vec<SeriesKey> = panels.iter().map(|panel| panel.key.clone()).collect();
    let stems = stems(panels, &settings);
    let mut together: BTreeMap<(usize, &str), Vec<(&Panel, String)>> = BTreeMap::new();
    let mut single = Vec::new();
    for (panel, stem) in panels.iter().zip(stems) {
        let title = panel.key.title(&settings);
        single.push((!panel.sizes().is_empty() && !panel.metric.has(Property::Detail)).then(|| {
            together.entry(panel.metric.order()).or_default().push((panel, title));
            let title = figure_title::of(&panel.metric, &panel.key, &settings);
            Figure::by_size(stem, format!("{title}, by cache size"), &[(panel, title)])
        }));
    }
    let combined = together.into_values().filter(|panels| (2..=MOST_TOGETHER).contains(&panels.len()));
    let combined = combined.map(|panels| {
        let quantity = &panels[0].0.metric;
        let title = format!("{} by cache size", capital(&figure_title::name(quantity)));
        let figure = Figure::by_size(format!("{}-all", quantity.slug()), title.clone(), &panels);
        Figure { subject: Some(title), ..figure }
    });
    Figures { combined: combined.collect(), single }
}

/// The figure of a breakdown: by distance, by length and depth, or a running average, a chart for each cache size. It is
/// beside the figure of the `whole`; `title` says what that shows. `None` for breakdowns that have no figure.
pub(crate) fn of_parts(breakdown: &Breakdown<'_>, whole: &Figure, title: &str) -> Option<Figure> {
    let (how, end) = match breakdown.by {
        "distance" => ("by distance", BY_DISTANCE),
        breakdown::LENGTH_AND_DEPTH => ("by length and depth", BY_LENGTH_AND_DEPTH),
        panel::RUNNING => ("over all tokens read so far", RUNNING),
        _ => return None,
    };
    let chart = |size| if end == RUNNING { breakdown.running(size) } else { breakdown.chart(size) };
    let charts = || breakdown.sizes().into_iter().map(chart).collect::<Option<Vec<Chart>>>();
    let maps = (end == BY_LENGTH_AND_DEPTH).then(|| breakdown.needle_maps());
    let drawings = match maps {
        Some(_) => Vec::new(),
        None => vec![(LINEAR, charts().filter(|charts| !charts.is_empty())?)],
    };
    let title = format!("{title}, {how}");
    Some(Figure {
        stem: format!("{}{end}", whole.stem),
        title: title.clone(),
        drawings,
        maps,
        subject: Some(title),
    })
}

/// File names that say what is drawn; where two would be equal, each gets a fingerprint of all its settings.
fn stems(panels: &[Panel], settings: &[SeriesKey]) -> Vec<String> {
    let plain: Vec<String> = panels
        .iter()
        .map(|panel| format!("{}-{}", panel.metric.slug(), escape::slugs(&panel.key.title(settings))))
        .collect();
    let reserved = |stem: &str| {
        plain.iter().filter(|other| *other == stem).count() > 1
            || stem.ends_with("-all")
            || [BY_DISTANCE, BY_LENGTH_AND_DEPTH, RUNNING].iter().any(|end| stem.ends_with(end))
    };
    let distinct = |(stem, panel): (&String, &Panel)| {
        if reserved(stem) {
            format!("{stem}-{}", escape::fingerprint(&format!("{} {}", panel.key.described(), panel.metric.id)))
        } else {
            stem.clone()
        }
    };
    plain.iter().zip(panels).map(distinct).collect()
}

impl Figure {
    /// Panels over the cache size, in the scales worth drawing.
    fn by_size(stem: String, title: String, panels: &[(&Panel, String)]) -> Figure {
        let log = panels.iter().all(|(panel, _)| panel.metric.has_log_axis());
        let scales = [(Scale::Linear, LINEAR), (Scale::Log, "log")];
        let drawings =
            scales.into_iter().filter(|(scale, _)| log || *scale == Scale::Linear).map(|(scale, name)| {
                (name, panels.iter().map(|(panel, title)| Chart::by_size(panel, title.clone(), scale)).collect())
            });
        let excess = excess::charts(panels).map(|charts| (EXCESS, charts));
        Figure { stem, title, drawings: drawings.chain(excess).collect(), maps: None, subject: None }
    }

    /// Its files without their endings, and what each shows.
    pub(crate) fn files(&self) -> Vec<(String, String)> {
        let of_scale = |(scale, _): &(&str, Vec<Chart>)| {
            let how = match *scale {
                EXCESS => ", excess over full".to_owned(),
                _ if self.drawings.len() > 1 => format!(", {scale} axis"),
                _ => String::new(),
            };
            (format!("{}-{scale}", self.stem), format!("{}{how}", self.title))
        };
        let of_maps = self.maps.iter().map(|_| (self.stem.clone(), self.title.clone()));
        self.drawings.iter().map(of_scale).chain(of_maps).collect()
    }

    /// What is drawn in those files, in the same order.
    pub(crate) fn scenes(&self, styles: &SeriesStyles, plain: Plain) -> Vec<Scene> {
        let of_maps = self.maps.iter().map(|maps| maps.scene(&self.title, plain));
        let titles = self.files().into_iter().map(|(_, title)| title);
        let scene = |((_, charts), title): (&(&str, Vec<Chart>), String)| {
            Page::usual(charts.len(), plain).curves(&title, charts, styles, self.subject.as_deref())
        };
        self.drawings.iter().zip(titles).map(scene).chain(of_maps).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::figure::scene::texts;
    use crate::report::fixture::{cell, panels};

    /// Perplexities at sizes, of one sample each.
    fn line(policy: &str, points: &[(u32, f64)]) -> Vec<Row> {
        let at =
            |(size, perplexity): &(u32, f64)| cell("nll", policy, Some(*size), &[("a", perplexity.ln(), 1.0)]);
        points.iter().flat_map(at).collect()
    }

    #[test]
    fn policies_off_the_scale_are_named_in_the_legend() {
        let full = cell("nll", "full", None, &[("a", 5f64.ln(), 1.0)]);
        let window = line("window", &[(8, 900.0), (16, 400.0)]);
        let all =
            [full, window, line("h2o", &[(8, 9.0), (16, 7.0)]), line("tova", &[(8, 8.0), (16, 6.0)])].concat();
        let panels = panels(&all);
        let styles = SeriesStyles::of(&panels);
        let figures = figures(&panels);
        let figure = figures.single[0].as_ref().unwrap();
        let [linear, log, excess] = &figure.scenes(&styles, Plain::default())[..] else {
            panic!("two scales and the excess expected")
        };
        let has = |scene: &Scene, expected: &str| texts(scene).iter().any(|placed| placed.text == expected);
        assert!(has(linear, "window (off scale)"), "{:?}", texts(linear));
        assert!(has(log, "window") && has(log, "5.00"), "{:?}", texts(log));
        // ln(900 / 5) = 5.2 is on the axis of the excess.
        assert!(has(excess, "window") && has(excess, "5"), "{:?}", texts(excess));
        assert!(figures.combined.is_empty());
    }

    #[test]
    fn nothing_leaves_the_page() {
        let names: Vec<String> =
            (0..20).map(|i| format!("a policy with quite a long name, number {i}, and more")).collect();
        let all: Vec<Row> = names.iter().flat_map(|name| line(name, &[(1, 3.0), (1_000_000, 2.0)])).collect();
        let all: Vec<Row> = all.into_iter().map(|row| Row { model: "m".repeat(300).into(), ..row }).collect();
        let panels = panels(&all);
        let styles = SeriesStyles::of(&panels);
        let figures = figures(&panels);
        let scene = &figures.single[0].as_ref().unwrap().scenes(&styles, Plain::default())[1];
        let placed = texts(scene);
        assert!(placed.len() > 25);
        for text in placed {
            assert!(text.is_inside(scene), "{text:?} is outside {} x {}", scene.width, scene.height);
        }
        // No coordinate of a line or an area is outside either.
        let svg = scene.svg();
        let (width, height) = scene.size();
        for path in svg.split(" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            for point in path.trim_end_matches('Z').split(['M', 'L']).skip(1) {
                let (x, y) = point.split_once(' ').unwrap();
                let (x, y): (i64, i64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((0..=i64::from(width)).contains(&x) && (0..=i64::from(height)).contains(&y), "{path}");
            }
        }
    }

    #[test]
    fn the_excess_follows_the_perplexity_in_files_named_like_its() {
        let full = cell("nll", "full", None, &[("a", 5f64.ln(), 1.0)]);
        let one = [full, line("tova", &[(8, 8.0), (16, 6.0)])].concat();
        let other =
            one.iter().map(|row| Row { model: "b/other".into(), cell: row.cell.to_uppercase(), ..row.clone() });
        let figures = figures(&panels(&one.iter().cloned().chain(other).collect::<Vec<_>>()));
        let stem = "perplexity-llama-2-7b-hf-pg19";
        let title = "Perplexity of Llama-2-7b-hf on pg19, by cache size";
        let expected = [("linear", ", linear axis"), ("log", ", log axis"), ("excess", ", excess over full")];
        let expected = expected.map(|(end, how)| (format!("{stem}-{end}"), format!("{title}{how}")));
        assert_eq!(figures.single[0].as_ref().unwrap().files(), expected);
        // Models that were measured alike are beside one another on one axis.
        let [together] = &figures.combined[..] else { panic!("one figure expected") };
        let files: Vec<String> = together.files().into_iter().map(|(stem, _)| stem).collect();
        assert_eq!(files, ["perplexity-all-linear", "perplexity-all-log", "perplexity-all-excess"]);
    }

    #[test]
    fn files_of_different_settings_never_collide() {
        let rows = |model: &str| {
            line("tova", &[(8, 2.0)]).into_iter().map(|row| Row { model: model.into(), ..row }).collect()
        };
        let all: Vec<Vec<Row>> = vec![rows("模型"), rows("型模"), rows("a/x"), rows("b/x"), rows("all")];
        let panels = panels(&all.concat());
        let figures = figures(&panels);
        let mut stems: Vec<&str> = figures.single.iter().flatten().map(|figure| figure.stem.as_str()).collect();
        stems.extend(figures.combined.iter().map(|figure| figure.stem.as_str()));
        let all = stems.len();
        stems.sort_unstable();
        stems.dedup();
        assert_eq!((stems.len(), all), (6, 6), "{stems:?}");
    }
}
