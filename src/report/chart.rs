//! A chart: cache sizes or positions across, a quantity up, a line with markers for each policy, the full cache dashed.
//!
//! It is drawn once, for files and for the page: each point carries the text of its tooltip, each element the class by
//! which the page finds and colours it. Which charts share a figure, and the legend, are decided elsewhere.

mod printed;
mod tooltip;

use plotters::style::RGBColor;

use super::axis::{Axis, Scale, Tick, within_reach};
use super::points::{Panel, Point};
use super::quantity::Quantity;
use super::scene::{Across, Pen, Scene, Spot};
use super::series_style::{self, BLACK, GREY, Marker, PALE, SeriesStyle, SeriesStyles};
use super::{escape, font};
pub(super) use printed::{Printed, pen as printed_pen};

/// Font sizes in points, legible in a paper's column.
pub(super) const TITLE: f64 = 8.0;
pub(super) const LABEL: f64 = 7.5;
pub(super) const SMALL: f64 = 6.5;
const TICK: f64 = 6.0;

const MARKER_RADIUS: f64 = 2.0;
/// Of the circle around a point that shows its tooltip.
const TARGET_RADIUS: f64 = 4.8;
const LINE_WIDTH: f64 = 1.1;
/// Around a whole figure.
pub(super) const MARGIN: f64 = 2.0;
pub(super) const DASH: (f64, f64) = (4.0, 2.5);
/// Width that the name of the value axis takes.
pub(super) const LABEL_ROOM: f64 = LABEL + 4.0;
/// Heights of the rows above and below the plot.
const TITLE_ROW: f64 = 13.0;
const TICK_ROW: f64 = 10.0;
const LABEL_ROW: f64 = 10.0;

/// How much of a policy's line a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shown {
    All,
    Part,
    Nothing,
}

pub(super) struct Chart {
    pub(super) title: String,
    pub(super) quantity: Quantity,
    pub(super) across_name: &'static str,
    pub(super) across: Axis,
    pub(super) values: Axis,
    /// In the order of the policies.
    pub(super) lines: Vec<Line>,
    pub(super) full: Option<Reference>,
    /// The full cache's point where it is the same at all sizes.
    full_point: Option<Point>,
    /// What a guess would score.
    pub(super) chance: Option<Reference>,
    /// Whether the bands are of the difference to the full cache.
    pub(super) paired: bool,
    scale: Scale,
    /// What others measured, for comparison.
    printed: Option<Printed>,
}

/// A policy's line.
pub(super) struct Line {
    pub(super) policy: String,
    pub(super) spots: Vec<Measurement>,
}

pub(super) struct Measurement {
    pub(super) across: f64,
    pub(super) value: f64,
    pub(super) band: Option<(f64, f64)>,
    /// What its tooltip says.
    pub(super) point: Point,
}

/// What lines are compared with.
pub(super) enum Reference {
    /// The same all across.
    Level(f64),
    /// (across, value)
    Curve(Vec<Spot>),
}

/// How a line looks in the legend.
#[derive(Clone, Copy)]
pub(super) enum Stroke {
    Policy(SeriesStyle),
    Full,
    Chance,
    Printed,
}

/// The rectangle between the axes, in points.
#[derive(Clone, Copy)]
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Plot {
    /// Runs `inside`, of which only what lies between the axes is seen.
    fn clip(self, scene: &mut Scene, inside: impl FnOnce(&mut Scene)) {
        scene.clipped((self.left, self.top), (self.right, self.bottom), inside);
    }
}

impl Reference {
    fn values(&self) -> Vec<f64> {
        match self {
            Self::Level(value) => vec![*value],
            Self::Curve(spots) => spots.iter().map(|(_, value)| *value).collect(),
        }
    }
}

impl Chart {
    /// A panel over the cache size.
    pub(super) fn by_size(panel: &Panel, title: String, scale: Scale) -> Self {
        let policies = panel.policies().into_iter().filter(|policy| *policy != "full");
        let lines = policies.map(|policy| {
            let points = panel.points.iter().filter(|point| point.policy == policy);
            let spots = points.filter_map(|point| Some(measurement(panel, point, f64::from(point.cache_size?))));
            Line { policy: policy.to_owned(), spots: spots.collect() }
        });
        let chart = Self::new(
            (title, &panel.quantity),
            ("cache size (tokens)", Axis::of_sizes(&panel.sizes())),
            scale,
            lines.collect(),
            panel.full().map(|full| Reference::Level(full.estimate.value)),
            panel.chance.map(Reference::Level),
        );
        Self { full_point: panel.full().cloned(), ..chart }
    }

    pub(super) fn new(
        (title, quantity): (String, &Quantity),
        (across_name, across): (&'static str, Axis),
        scale: Scale,
        lines: Vec<Line>,
        full: Option<Reference>,
        chance: Option<Reference>,
    ) -> Self {
        let paired = quantity.has_difference && full.is_some();
        let values = Axis::of_values(&values(quantity, series(&lines), full.as_ref(), scale), scale);
        let quantity = quantity.clone();
        Self {
            title,
            quantity,
            across_name,
            across,
            values,
            lines,
            full,
            full_point: None,
            chance,
            paired,
            scale,
            printed: None,
        }
    }

    /// The same with a value axis that spans these values, so that charts side by side can be compared.
    pub(super) fn spanning(self, values: &[f64]) -> Self {
        Self { values: Axis::of_values(values, Scale::Linear), ..self }
    }

    pub(super) fn has_full(&self) -> bool {
        self.full.is_some()
    }

    /// Whether what it shows beside the policies is a guess, not an answer.
    pub(super) fn is_recall(&self) -> bool {
        self.quantity.metric == "recall"
    }

    pub(super) fn has_chance(&self) -> bool {
        self.chance.is_some()
    }

    pub(super) fn height(plot: f64) -> f64 {
        TITLE_ROW + plot + TICK_ROW + LABEL_ROW
    }

    /// How much of a policy lies within the value axis; `None` where this chart does not have it.
    pub(super) fn shown(&self, policy: &str) -> Option<Shown> {
        let line = self.lines.iter().find(|line| line.policy == policy)?;
        let inside = line.spots.iter().filter(|spot| self.values.contains(spot.value)).count();
        match inside {
            _ if line.spots.is_empty() => None,
            0 => Some(Shown::Nothing),
            n if n < line.spots.len() => Some(Shown::Part),
            _ => Some(Shown::All),
        }
    }

    /// Whether any point has a band.
    pub(super) fn has_bands(&self) -> bool {
        self.lines.iter().flat_map(|line| &line.spots).any(|spot| spot.band.is_some())
    }

    /// Draws into the rectangle at `corner`. `labelled` is false where a neighbour to the left names the value axis;
    /// an empty `title` takes no less room.
    pub(super) fn draw(
        &self,
        scene: &mut Scene,
        corner: Spot,
        (width, plot_height): (f64, f64),
        styles: &SeriesStyles,
        (title, labelled): (&str, bool),
    ) {
        let level = match self.full {
            Some(Reference::Level(value)) if self.values.contains(value) => Some(value),
            _ => None,
        };
        let full_label = level.map(|value| self.quantity.show(value)).unwrap_or_default();
        let tick_width = self.values.ticks.iter().map(|tick| font::width(&tick.label, TICK)).fold(0.0, f64::max);
        let plot = Plot {
            left: corner.0 + if labelled { LABEL_ROOM } else { 2.0 } + tick_width + 4.0,
            right: corner.0 + width - font::width(&full_label, SMALL) - 6.0,
            top: corner.1 + TITLE_ROW,
            bottom: corner.1 + TITLE_ROW + plot_height,
        };
        let centre = (plot.left + plot.right) / 2.0;
        if !title.is_empty() {
            let title = font::fit(&escape::plain(title), TITLE, width);
            // Centred on the plot, unless that would run out of the chart.
            let half = font::width(&title, TITLE) / 2.0;
            let title_at = centre.clamp(corner.0 + half, (corner.0 + width - half).max(corner.0 + half));
            scene.text((title_at, corner.1 + TITLE_ROW / 2.0 - 1.0), &title, TITLE, BLACK, Across::Centre);
        }
        if labelled {
            let name = font::fit(&self.quantity.name, LABEL, plot_height + TITLE_ROW);
            scene.upright_text((corner.0 + LABEL / 2.0 + 1.0, (plot.top + plot.bottom) / 2.0), &name, LABEL);
        }
        self.draw_value_axis(scene, plot);
        for line in &self.lines {
            self.draw_band(scene, plot, line, styles);
        }
        if let Some(printed) = &self.printed {
            self.draw_printed(scene, plot, printed, styles);
        }
        self.draw_reference(scene, plot, self.chance.as_ref(), "reference chance", GREY);
        scene.group("data-policy=\"full\"", |scene| {
            self.draw_reference(scene, plot, self.full.as_ref(), "reference full", BLACK);
            if let Some(value) = level {
                scene.text((plot.right + 2.5, self.y(plot, value)), &full_label, SMALL, BLACK, Across::Left);
            }
            self.draw_full_points(scene, plot);
        });
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        lines.sort_by_key(|line| series_style::is_of_the_paper(&line.policy));
        for line in lines {
            self.draw_line(scene, plot, line, styles);
        }
        self.draw_across_axis(scene, plot);
        scene.text((centre, plot.bottom + TICK_ROW + 5.0), self.across_name, LABEL, BLACK, Across::Centre);
    }

    fn x(&self, plot: Plot, across: f64) -> f64 {
        plot.left + (plot.right - plot.left) * self.across.share(across)
    }

    fn y(&self, plot: Plot, value: f64) -> f64 {
        plot.bottom - (plot.bottom - plot.top) * self.values.share(value)
    }

    /// Grid lines, so that a value can be read across the plot.
    fn draw_value_axis(&self, scene: &mut Scene, plot: Plot) {
        for tick in &self.values.ticks {
            let y = self.y(plot, tick.value);
            scene.stroke("grid", &[(plot.left, y), (plot.right, y)], Pen::new(PALE, 0.4));
            scene.text((plot.left - 3.5, y), &tick.label, TICK, BLACK, Across::Right);
        }
    }

    /// The frame, and a tick at every size; where labels would touch, every second, third, ... from the right is kept,
    /// since the right end names the size that equals the full cache.
    fn draw_across_axis(&self, scene: &mut Scene, plot: Plot) {
        let pen = Pen::new(BLACK, 0.6);
        let frame = [(plot.left, plot.top), (plot.left, plot.bottom), (plot.right, plot.bottom)];
        scene.stroke("axis", &frame, pen);
        // Centre and half width of each label, from the right.
        let place = |tick: &Tick| (self.x(plot, tick.value), font::width(&tick.label, TICK) / 2.0 + 0.4);
        let places: Vec<(f64, f64)> = self.across.ticks.iter().rev().map(place).collect();
        let clear = |every: &usize| {
            let kept: Vec<_> = places.iter().step_by(*every).collect();
            kept.windows(2).all(|pair| pair[0].0 - pair[0].1 >= pair[1].0 + pair[1].1)
        };
        let every = (1..=places.len()).find(clear).unwrap_or(1);
        for (i, (tick, (x, _))) in self.across.ticks.iter().rev().zip(&places).enumerate() {
            scene.stroke("axis", &[(*x, plot.bottom), (*x, plot.bottom + 2.0)], pen);
            if i % every == 0 {
                scene.text((*x, plot.bottom + 6.5), &tick.label, TICK, BLACK, Across::Centre);
            }
        }
    }

    fn draw_reference(
        &self,
        scene: &mut Scene,
        plot: Plot,
        reference: Option<&Reference>,
        class: &'static str,
        color: RGBColor,
    ) {
        let spots: Vec<Spot> = match reference {
            None => return,
            Some(Reference::Level(value)) => {
                let y = self.y(plot, *value);
                vec![(plot.left, y), (plot.right, y)]
            }
            Some(Reference::Curve(spots)) => {
                spots.iter().map(|(across, value)| (self.x(plot, *across), self.y(plot, *value))).collect()
            }
        };
        plot.clip(scene, |scene| {
            scene.stroke(class, &drawable(spots), Pen::new(color, LINE_WIDTH).dashed(DASH));
        });
    }

    /// The full cache's points, which have tooltips like a policy's.
    fn draw_full_points(&self, scene: &mut Scene, plot: Plot) {
        let points: Vec<(Spot, String)> = match &self.full {
            Some(Reference::Level(value)) => {
                let text = self.tooltip_of_full(self.full_point.as_ref(), *value);
                vec![((plot.right, *value), text)]
            }
            Some(Reference::Curve(spots)) => spots
                .iter()
                .map(|(across, value)| ((self.x(plot, *across), *value), self.tooltip_of_full_at(*across, *value)))
                .collect(),
            None => Vec::new(),
        };
        for ((x, value), text) in points.into_iter().filter(|((_, value), _)| self.values.contains(*value)) {
            let at = (x, self.y(plot, value));
            scene.group("class=\"pt full\" tabindex=\"0\" role=\"img\"", |scene| {
                scene.tooltip(at, TARGET_RADIUS, &text);
            });
        }
    }

    fn draw_band(&self, scene: &mut Scene, plot: Plot, line: &Line, styles: &SeriesStyles) {
        let Some(style) = styles.get(&line.policy) else { return };
        let mut edges: (Vec<Spot>, Vec<Spot>) = (Vec::new(), Vec::new());
        for spot in &line.spots {
            let Some((low, high)) = spot.band else { continue };
            let x = self.x(plot, spot.across);
            // A logarithmic axis has no zero; the band then ends at the frame.
            let y = |value: f64| Some(self.y(plot, value)).filter(|y| y.is_finite()).unwrap_or(plot.bottom);
            edges.0.push((x, y(low)));
            edges.1.push((x, y(high)));
        }
        edges.1.reverse();
        let outline = drawable([edges.0, edges.1].concat());
        let attributes = format!("class=\"{}\" {}", style.class(), of_policy(line));
        if !outline.is_empty() {
            scene.group(&attributes, |scene| {
                plot.clip(scene, |scene| match outline[..] {
                    // One point alone has no area: a bar shows its interval.
                    [low, high] => scene.stroke("bar", &[low, high], Pen::new(style.color(), LINE_WIDTH)),
                    _ => scene.fill("band", &outline, style.color(), 0.18),
                });
            });
        }
    }

    fn draw_line(&self, scene: &mut Scene, plot: Plot, line: &Line, styles: &SeriesStyles) {
        let Some(style) = styles.get(&line.policy) else { return };
        let at = |spot: &Measurement| (self.x(plot, spot.across), self.y(plot, spot.value));
        let spots = drawable(line.spots.iter().map(at).collect());
        scene.group(&format!("class=\"line {}\" {}", style.class(), of_policy(line)), |scene| {
            plot.clip(scene, |scene| scene.stroke("stroke", &spots, Pen::new(style.color(), LINE_WIDTH)));
            for spot in line.spots.iter().filter(|spot| self.values.contains(spot.value)) {
                let size = spot.point.cache_size.map_or_else(String::new, |size| format!(" data-size=\"{size}\""));
                scene.group(&format!("class=\"pt\" tabindex=\"0\" role=\"img\"{size}"), |scene| {
                    scene.tooltip(at(spot), TARGET_RADIUS, &self.tooltip_of(spot));
                    draw_marker(scene, at(spot), style);
                });
            }
        });
    }
}

/// What the page's script filters a line by. The name of a line may be a cache size, its points know the policy.
fn of_policy(line: &Line) -> String {
    let policy = line.spots.first().map_or(&line.policy, |spot| &spot.point.policy);
    format!("data-policy=\"{}\"", escape::xml(policy))
}

/// What can be drawn: a logarithmic axis has no zero, and no drawing needs numbers far outside of it.
fn drawable(spots: Vec<Spot>) -> Vec<Spot> {
    const FAR: f64 = 1e5;
    let finite = spots.into_iter().filter(|(_, y)| y.is_finite());
    finite.map(|(x, y)| (x, y.clamp(-FAR, FAR))).collect()
}

/// The values that an axis is to show.
fn values(quantity: &Quantity, series: Vec<Vec<f64>>, full: Option<&Reference>, scale: Scale) -> Vec<f64> {
    match (quantity.range(), full) {
        (Some((low, high)), _) => vec![low, high],
        (None, Some(Reference::Level(full))) if scale == Scale::Linear => within_reach(&series, Some(*full)),
        (None, None) if scale == Scale::Linear => within_reach(&series, None),
        (None, full) => series.into_iter().flatten().chain(full.iter().flat_map(|full| full.values())).collect(),
    }
}

fn series(lines: &[Line]) -> Vec<Vec<f64>> {
    lines.iter().map(|line| line.spots.iter().map(|spot| spot.value).collect()).collect()
}

/// One marker, as in a line and in the legend.
fn draw_marker(scene: &mut Scene, at: Spot, style: SeriesStyle) {
    let (filled, outlines) = style.marker.strokes(MARKER_RADIUS);
    for outline in outlines {
        let points: Vec<Spot> = outline.into_iter().map(|(x, y)| (at.0 + x, at.1 + y)).collect();
        if filled {
            scene.fill("mark", &points, style.color(), 1.0);
        } else {
            scene.stroke("mark open", &points, Pen::new(style.color(), LINE_WIDTH));
        }
    }
}

/// A marker's path around the origin, `radius` being its size, and whether it is filled.
pub(super) fn marker_path(marker: Marker, radius: f64) -> (String, bool) {
    let (filled, outlines) = marker.strokes(radius);
    let trace = |outline: &Vec<Spot>| -> String {
        let steps = outline.iter().enumerate();
        let steps = steps.map(|(i, (x, y))| format!("{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" }));
        steps.collect::<String>() + if filled { "Z" } else { "" }
    };
    (outlines.iter().map(trace).collect(), filled)
}

/// A line as the legend shows it.
pub(super) fn draw_sample(scene: &mut Scene, (x, y): Spot, width: f64, stroke: Stroke) {
    let ends = [(x, y), (x + width, y)];
    let dashed = |color| Pen::new(color, LINE_WIDTH).dashed(DASH);
    match stroke {
        Stroke::Policy(style) => scene.group(&format!("class=\"{}\"", style.class()), |scene| {
            scene.stroke("stroke", &ends, Pen::new(style.color(), LINE_WIDTH));
            draw_marker(scene, (x + width / 2.0, y), style);
        }),
        Stroke::Full => scene.stroke("reference full", &ends, dashed(BLACK)),
        Stroke::Chance => scene.stroke("reference chance", &ends, dashed(GREY)),
        Stroke::Printed => printed::draw_sample(scene, ends),
    }
}

/// A caption in as many lines as it needs; returns where it ends.
pub(super) fn draw_caption(scene: &mut Scene, at: Spot, room: f64, text: &str) -> f64 {
    const ROW: f64 = 8.0;
    let mut y = at.1;
    for line in font::wrap(&escape::plain(text), SMALL - 0.5, room) {
        scene.text((at.0, y), &line, SMALL - 0.5, GREY, Across::Left);
        y += ROW;
    }
    y - ROW / 2.0
}

/// A legend in one row, or more where they are needed, from `top` down; returns the height of the last row's middle.
pub(super) fn draw_legend_row(
    scene: &mut Scene,
    (left, top): Spot,
    sample_width: f64,
    names: &[String],
    sample: impl Fn(&mut Scene, Spot, usize),
) -> f64 {
    let (mut x, mut y) = (left, top);
    for (i, name) in names.iter().enumerate() {
        let width = sample_width + 3.0 + font::width(name, SMALL);
        if x + width > scene.width - MARGIN && x > left {
            (x, y) = (left, y + 9.5);
        }
        sample(scene, (x, y), i);
        scene.text((x + sample_width + 3.0, y), name, SMALL, BLACK, Across::Left);
        x += width + 8.0;
    }
    y
}

/// A point of a panel, somewhere across a chart.
pub(super) fn measurement(panel: &Panel, point: &Point, across: f64) -> Measurement {
    Measurement { across, value: point.estimate.value, band: band_of(panel, point), point: point.clone() }
}

/// The band around a point: what its difference to the full cache may be, since texts differ far more in level than
/// policies do; where there is no such difference, what the value itself may be.
fn band_of(panel: &Panel, point: &Point) -> Option<(f64, f64)> {
    let value = point.estimate.value;
    match point.to_full {
        Some(difference) => {
            let interval = difference.interval?;
            Some((value + interval.low - difference.value, value + interval.high - difference.value))
        }
        None if panel.full().is_some() && panel.quantity.has_difference => None,
        None => point.estimate.interval.map(|interval| (interval.low, interval.high)),
    }
    .filter(|(low, high)| low.is_finite() && high.is_finite())
}
