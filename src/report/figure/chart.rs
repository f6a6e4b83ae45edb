//! A chart: cache sizes or positions across, a quantity up, a line with markers for each policy, the full cache dashed. Where there is
//! one cache size, the quantity is across, and each policy is a row with a marker.
//!
//! It is drawn once, for files and for the page: each point carries the text of its tooltip, each element the class by
//! which the page finds and colours it. Which charts share a figure, and the legend, are decided elsewhere.

mod bands;
mod clip;
mod draw;
mod ends;
pub(crate) mod excess;
mod legend;
mod printed;
mod rows;
pub(crate) mod title;
mod tooltip;

use crate::format::counted;
use crate::metric::{Better, Metric, Property};
use crate::report::figure::{Axis, Horizontal, Plain, Scale, Spot, axis, values_to_show};
use crate::report::series::{Panel, Point, Size, SizeAxis};
pub(crate) use bands::{Bands, reference};
pub(crate) use draw::Surroundings;
pub(crate) use legend::{Stroke, draw_caption, finish, legend};
pub(crate) use printed::Printed;
pub(crate) use tooltip::describe;

/// Font sizes in points, legible in a paper's column.
pub(crate) const TITLE: f64 = 8.0;
pub(crate) const LABEL: f64 = 7.5;
pub(crate) const SMALL: f64 = 6.5;

const MARKER_RADIUS: f64 = 2.0;
const LINE_WIDTH: f64 = 1.1;
/// Radius in points of the circle around a measurement that shows its tooltip.
const TARGET_RADIUS: f64 = 4.8;
/// Around a whole figure.
pub(crate) const MARGIN: f64 = 2.0;
pub(crate) const DASH: (f64, f64) = (4.0, 2.5);
/// Width that the name of the value axis takes.
pub(crate) const LABEL_ROOM: f64 = LABEL + 4.0;
/// Heights of the rows above and below the plot.
pub(crate) const TITLE_ROW: f64 = 13.0;
const TICK_ROW: f64 = 10.0;
const LABEL_ROW: f64 = 10.0;

/// A chart, with everything that drawing it needs: it is drawn more than once, with some parts left out.
#[derive(Clone)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// What the chart answers, where its axes do not say it.
    asks: Option<&'static str>,
    /// How many samples and texts it is of, in words.
    pub(crate) counts: String,
    pub(crate) quantity: Metric,
    pub(crate) horizontal: Horizontal,
    pub(crate) across: Axis,
    pub(crate) values: Axis,
    /// In the order of the policies.
    pub(crate) lines: Vec<Line>,
    pub(crate) full: Option<Reference>,
    /// What a guess would score.
    pub(crate) guess: Option<Reference>,
    /// What the bands are intervals of.
    pub(crate) bands: Bands,
    /// A distance to the full cache that the paper calls small, on the value axis.
    limit: Option<f64>,
    /// Whether the values are the excess over the full cache. What is below the axis is then drawn at its lower edge.
    is_excess: bool,
    scale: Scale,
    /// What others measured, for comparison.
    printed: Option<Printed>,
}

/// A policy's line.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) policy: String,
    pub(crate) spots: Vec<Measurement>,
}

#[derive(Clone)]
pub(crate) struct Measurement {
    pub(crate) across: f64,
    pub(crate) band: Option<(f64, f64)>,
    pub(crate) point: Point,
}

/// What lines are compared with.
#[derive(Clone)]
pub(crate) enum Reference {
    /// One value all across.
    Level(f64),
    /// (across, value)
    Curve(Vec<Spot>),
}

impl Chart {
    /// A panel over the cache size, or the memory that caches hold. With a `reference`, bands are of the differences to that policy.
    pub(crate) fn by_size(
        panel: &Panel,
        title: String,
        scale: Scale,
        (reference, axis): (Option<&str>, SizeAxis),
    ) -> Self {
        let policies = panel.policies().into_iter().filter(|policy| *policy != "full");
        let lines = policies.map(|policy| {
            let points = panel.points.iter().filter(|point| point.policy == policy);
            let spot = |point: &Point| Some(measurement(panel, point, axis.of(point)?).against(panel, reference));
            let mut spots: Vec<Measurement> = points.filter_map(spot).collect();
            spots.sort_by(|a, b| a.across.total_cmp(&b.across));
            Line { policy: policy.to_owned(), spots }
        });
        // A full cache in another format has memory and no size.
        let lines: Vec<Line> = lines.filter(|line| !line.spots.is_empty()).collect();
        let across = match axis {
            SizeAxis::Entries => (Horizontal::of_sizes(&panel.sizes()), Axis::of_sizes(&panel.sizes())),
            _ => {
                let places: Vec<f64> = lines.iter().flat_map(|line| &line.spots).map(|spot| spot.across).collect();
                (Horizontal::Held(axis.name()), Axis::of_values(&places, Scale::Log))
            }
        };
        Self::of_panel(panel, title, across, scale, lines).with_bands_of(reference, "")
    }

    /// Lines of a panel's points, with its full cache and what a guess would score all across.
    pub(crate) fn of_panel(
        panel: &Panel,
        title: String,
        across: (Horizontal, Axis),
        scale: Scale,
        lines: Vec<Line>,
    ) -> Self {
        Self::new(
            (title, &panel.metric),
            across,
            scale,
            lines,
            panel.full().map(|full| Reference::Level(full.estimate.value)),
            panel.guess.map(Reference::Level),
        )
        .over(panel)
    }

    /// Says how much the chart is of.
    pub(crate) fn over(self, panel: &Panel) -> Self {
        Self { counts: counts(panel), ..self }
    }

    pub(crate) fn new(
        (title, quantity): (String, &Metric),
        (horizontal, across): (Horizontal, Axis),
        scale: Scale,
        lines: Vec<Line>,
        full: Option<Reference>,
        guess: Option<Reference>,
    ) -> Self {
        let is_paired = !quantity.has(Property::NoDifference) && full.is_some();
        let bands = if is_paired { Bands::ToFull } else { Bands::Own };
        let mut shown = axis_values(quantity, &lines, full.as_ref(), scale);
        if let (Some(Reference::Level(guess)), None) = (&guess, quantity.range) {
            shown.push(*guess);
        }
        let values = Axis::of_values(&shown, scale);
        let quantity = quantity.clone();
        Self {
            title,
            asks: None,
            counts: String::new(),
            quantity,
            horizontal,
            across,
            values,
            lines,
            full,
            guess,
            bands,
            limit: None,
            is_excess: false,
            scale,
            printed: None,
        }
    }

    /// Says what the chart answers.
    pub(crate) fn asking(self, question: &'static str) -> Self {
        Self { asks: Some(question), ..self }
    }

    /// Gives the chart a value axis that spans `values`, so that charts side by side can be compared.
    pub(crate) fn spanning(self, values: &[f64]) -> Self {
        Self { values: Axis::of_values(values, Scale::Linear), ..self }
    }

    /// Copies the chart without the parts that `plain` leaves out.
    pub(crate) fn plain(&self, plain: Plain) -> Self {
        let mut chart = self.clone();
        if plain.bands {
            chart.lines.iter_mut().flat_map(|line| &mut line.spots).for_each(|spot| spot.band = None);
        }
        chart.limit = chart.limit.filter(|_| !plain.limit);
        chart
    }

    /// The height of a chart with a plot of some height and a title of so many lines.
    pub(crate) fn height(plot: f64, title_lines: usize) -> f64 {
        title::room(title_lines) + plot + TICK_ROW + LABEL_ROW
    }

    /// The height of the plot where it usually has `usual` points: more where rows or names need it.
    pub(crate) fn plot_height(&self, usual: f64, names_at_ends: bool) -> f64 {
        match (self.is_rows(), names_at_ends) {
            (true, _) => self.rows_height(),
            (false, true) => usual.max(self.ends_height()),
            (false, false) => usual,
        }
    }

    /// The one cache size that the chart is of, where it is drawn as rows.
    fn only_size(&self) -> Option<Size> {
        self.lines.iter().flat_map(|line| &line.spots).find_map(|spot| spot.point.cache_size)
    }

    /// What the chart answers, as a title.
    pub(crate) fn question(&self) -> String {
        let asked = match self.only_size() {
            Some(size) if self.is_rows() => {
                let unit_from = self.quantity.label.find(" (").unwrap_or(self.quantity.label.len());
                let what = &self.quantity.label[..unit_from];
                let size = size.words();
                return match self.quantity.better {
                    _ if self.is_excess => format!("Which policy costs least with {size}?"),
                    Better::Lower => format!("Which policy has the lowest {what} with {size}?"),
                    Better::Higher => format!("Which policy has the highest {what} with {size}?"),
                    Better::Unknown => format!("How do policies differ in {what} with {size}?"),
                };
            }
            _ if self.asks.is_some() => self.asks.unwrap_or_default(),
            _ if self.is_excess => "How much quality does a small cache cost?",
            _ if self.quantity.is_timed() => "What does a small cache save?",
            _ if self.quantity.has(Property::NoDifference) || self.quantity.better == Better::Unknown => {
                "What does a small cache change?"
            }
            _ => "Which policy needs the smallest cache?",
        };
        asked.to_owned()
    }
}

/// What is to be said below charts, in sentences without full stops.
pub(crate) fn notes(charts: &[Chart]) -> Vec<String> {
    bands::note(charts).into_iter().chain(excess::notes(charts)).collect()
}

/// The values that an axis is to show, and the bands around them as far as there is room.
fn axis_values(quantity: &Metric, lines: &[Line], full: Option<&Reference>, scale: Scale) -> Vec<f64> {
    let shown = values(quantity, series(lines), full, scale);
    let bands = lines.iter().flat_map(|line| &line.spots);
    let bands = bands.filter_map(|spot| Some((spot.point.estimate.value, spot.band?)));
    match quantity.range {
        Some(_) => shown,
        None => axis::with_bands(shown, bands, scale),
    }
}

/// The values that an axis is to show.
fn values(quantity: &Metric, series: Vec<Vec<f64>>, full: Option<&Reference>, scale: Scale) -> Vec<f64> {
    if let Some((low, high)) = quantity.range {
        return vec![low, high];
    }
    let full: Vec<f64> = match full {
        Some(Reference::Curve(spots)) => spots.iter().map(|(_, value)| *value).collect(),
        Some(Reference::Level(full)) if scale == Scale::Linear => return values_to_show(&series, Some(*full)),
        None if scale == Scale::Linear => return values_to_show(&series, None),
        Some(Reference::Level(full)) => vec![*full],
        None => Vec::new(),
    };
    series.into_iter().flatten().chain(full).collect()
}

fn series(lines: &[Line]) -> Vec<Vec<f64>> {
    lines.iter().map(|line| line.spots.iter().map(|spot| spot.point.estimate.value).collect()).collect()
}

/// How many samples and texts a panel has, in words.
fn counts(panel: &Panel) -> String {
    let texts = counted(panel.clusters, "text");
    if panel.samples == panel.clusters {
        texts
    } else {
        format!("{} of {texts}", counted(panel.samples, "sample"))
    }
}

/// A point of a panel, somewhere across a chart.
pub(crate) fn measurement(panel: &Panel, point: &Point, across: f64) -> Measurement {
    Measurement { across, band: bands::of(panel, point), point: point.clone() }
}
