//! Draws a chart: axes, bands, lines and points.

use super::bands::Intervals;
use super::legend::{Stroke, draw_marker};
use super::{
    Chart, LABEL, LABEL_ROOM, LINE_WIDTH, Line, MARKER_RADIUS, Measurement, Reference, SMALL, TARGET_RADIUS,
    TICK_ROW, clip, title,
};
use crate::report::escape;
use crate::report::figure::{Across, BLACK, PALE, Pen, Scene, SeriesStyles, Spot, Tick, font};

const TICK: f64 = 6.0;

/// How a chart stands on its figure.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'t> {
    /// The lines of its title; an empty one takes as much room.
    pub(crate) heading: &'t [String],
    /// Whether it names the value axis, which a neighbour to the left may do.
    pub(crate) labelled: bool,
    /// Whether the names of lines are at their ends, and in no legend.
    pub(crate) named: bool,
}

/// The rectangle between the axes, in points.
#[derive(Clone, Copy)]
pub(crate) struct Plot {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Plot {
    /// The heights that lines and areas are cut at.
    fn between(self) -> (f64, f64) {
        (self.top, self.bottom)
    }

    /// A line as far as it lies in the plot.
    pub(crate) fn stroke(self, scene: &mut Scene, class: &str, spots: &[Spot], pen: Pen) {
        clip::line(spots, self.between()).iter().for_each(|part| scene.stroke(class, part, pen));
    }

    /// Passes on a line up or down, if it is between the sides.
    pub(super) fn within(self, ends: &[Spot], draw: impl FnOnce(&[Spot])) {
        if ends.iter().all(|(x, _)| (self.left - ROUNDING..=self.right + ROUNDING).contains(x)) {
            draw(ends);
        }
    }

    /// The border that a place lies beyond, and which way is out; `None` in the plot.
    fn beyond(self, y: f64) -> Option<(f64, f64)> {
        match y {
            _ if y < self.top - ROUNDING => Some((self.top, -1.0)),
            _ if y > self.bottom + ROUNDING => Some((self.bottom, 1.0)),
            _ => None,
        }
    }
}

/// What a figure cannot show of a difference, in points.
const ROUNDING: f64 = 0.06;

impl Chart {
    /// Draws into the rectangle at `corner`, whose plot is as high as [`Chart::plot_height`] says.
    pub(crate) fn draw(
        &self,
        scene: &mut Scene,
        corner: Spot,
        (width, plot_height): (f64, f64),
        styles: &SeriesStyles,
        Surroundings { heading, labelled, named }: Surroundings<'_>,
    ) {
        let (top, right) = (corner.1 + title::room(heading.len()), corner.0 + width);
        let bottom = top + plot_height;
        if self.is_rows() {
            let plot = self.rows_plot((corner.0, width), (top, bottom));
            title::draw(scene, heading, (corner.0, right), ((plot.left + plot.right) / 2.0, top));
            self.draw_rows(scene, plot, plot.left - corner.0, styles);
            let size = self.only_size().map_or_else(String::new, |size| format!(", {}", size.words()));
            let name = font::fit(&format!("{}{size}", self.quantity.label), LABEL, width);
            let half = font::width(&name, LABEL) / 2.0;
            let centre = ((plot.left + plot.right) / 2.0).min(right - half).max(corner.0 + half);
            scene.text((centre, bottom + TICK_ROW + 5.0), &name, LABEL, BLACK, Across::Centre);
            return;
        }
        let level = match self.full {
            Some(Reference::Level(value)) if self.values.contains(value) => Some(value),
            _ => None,
        };
        // No chart has both.
        let level_label = match self.limit {
            Some(limit) => format!("{limit:.3}"),
            None => level.map(|value| self.quantity.show(value)).unwrap_or_default(),
        };
        let tick_width = self.values.ticks.iter().map(|tick| font::width(&tick.label, TICK)).fold(0.0, f64::max);
        let after = if named { self.ends_room() } else { font::width(&level_label, SMALL) + 8.0 };
        let plot = Plot {
            left: corner.0 + if labelled { LABEL_ROOM } else { 2.0 } + tick_width + 4.0,
            right: right - after,
            top,
            bottom,
        };
        let centre = (plot.left + plot.right) / 2.0;
        title::draw(scene, heading, (corner.0, right), (centre, plot.top));
        if labelled {
            let name = font::fit(&self.quantity.label, LABEL, plot_height + title::room(1));
            scene.upright_text((corner.0 + LABEL / 2.0 + 1.0, (plot.top + plot.bottom) / 2.0), &name, LABEL);
        }
        self.draw_value_axis(scene, plot);
        for line in &self.lines {
            self.draw_band(scene, plot, line, styles);
        }
        if let Some(printed) = &self.printed {
            self.draw_printed(scene, plot, printed, styles);
        }
        self.draw_reference(scene, plot, self.guess.as_ref(), Stroke::Guess);
        scene.group("data-policy=\"full\"", |scene| {
            self.draw_reference(scene, plot, self.full.as_ref(), Stroke::Full);
            if let Some(value) = level.filter(|_| !named) {
                scene.text((plot.right + 4.5, self.y(plot, value)), &level_label, SMALL, BLACK, Across::Left);
            }
        });
        if let Some(limit) = self.limit {
            self.draw_reference(scene, plot, Some(&Reference::Level(limit)), Stroke::Limit);
            if !named {
                scene.text((plot.right + 4.5, self.y(plot, limit)), &level_label, SMALL, BLACK, Across::Left);
            }
        }
        for line in &self.lines {
            self.draw_line(scene, plot, line, styles);
        }
        if named {
            self.draw_ends(scene, plot, styles);
        }
        let places = self.across.ticks.iter().map(|tick| (self.x(plot, tick.value), tick));
        self.draw_bottom_axis(scene, plot, &places.rev().collect::<Vec<_>>());
        scene.text((centre, plot.bottom + TICK_ROW + 5.0), self.horizontal.name(), LABEL, BLACK, Across::Centre);
    }

    pub(crate) fn x(&self, plot: Plot, across: f64) -> f64 {
        plot.left + (plot.right - plot.left) * self.across.share(across)
    }

    pub(crate) fn y(&self, plot: Plot, value: f64) -> f64 {
        let y = plot.bottom - (plot.bottom - plot.top) * self.values.share(value);
        if self.is_excess { y.min(plot.bottom) } else { y }
    }

    /// Grid lines, so that a value can be read across the plot.
    fn draw_value_axis(&self, scene: &mut Scene, plot: Plot) {
        for tick in &self.values.ticks {
            let y = self.y(plot, tick.value);
            scene.stroke("grid", &[(plot.left, y), (plot.right, y)], Pen::new(PALE, 0.4));
            scene.text((plot.left - 3.5, y), &tick.label, TICK, BLACK, Across::Right);
        }
    }

    /// The frame, and a tick at every place, given from the right; where labels would touch, every second, third, ... from the right is
    /// kept, since the right end names the size that equals the full cache.
    pub(super) fn draw_bottom_axis(&self, scene: &mut Scene, plot: Plot, ticks: &[(f64, &Tick)]) {
        let pen = Pen::new(BLACK, 0.6);
        let frame = [(plot.left, plot.top), (plot.left, plot.bottom), (plot.right, plot.bottom)];
        scene.stroke("axis", &frame, pen);
        // Left and right end of each label.
        let half = |tick: &Tick| font::width(&tick.label, TICK) / 2.0 + 0.4;
        let places: Vec<(f64, f64)> = ticks.iter().map(|(x, tick)| (x - half(tick), x + half(tick))).collect();
        let clear = |every: &usize| {
            let kept: Vec<_> = places.iter().step_by(*every).collect();
            kept.windows(2).all(|pair| pair[0].0 >= pair[1].1)
        };
        let every = (1..=places.len()).find(clear).unwrap_or(1);
        for (i, (x, tick)) in ticks.iter().enumerate() {
            scene.stroke("axis", &[(*x, plot.bottom), (*x, plot.bottom + 2.0)], pen);
            if i % every == 0 {
                scene.text((*x, plot.bottom + 6.5), &tick.label, TICK, BLACK, Across::Centre);
            }
        }
    }

    fn draw_reference(&self, scene: &mut Scene, plot: Plot, reference: Option<&Reference>, stroke: Stroke) {
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
        let (class, pen) = stroke.look();
        plot.stroke(scene, class, &spots, pen);
    }

    /// Where a measurement is in the plot; its height may be outside.
    pub(super) fn spot(&self, plot: Plot, measurement: &Measurement) -> Spot {
        (self.x(plot, measurement.across), self.y(plot, measurement.point.estimate.value))
    }

    fn draw_band(&self, scene: &mut Scene, plot: Plot, line: &Line, styles: &SeriesStyles) {
        let Some(style) = styles.get(&line.policy) else { return };
        // A logarithmic axis has no zero; the band then ends at the frame.
        let y = |value: f64| Some(self.y(plot, value)).filter(|y| y.is_finite()).unwrap_or(plot.bottom);
        let banded = line.spots.iter().filter_map(|spot| Some((self.spot(plot, spot), spot.band?)));
        let banded: Vec<(Spot, (f64, f64))> = banded.filter(|(at, _)| at.1.is_finite()).collect();
        let highs = banded.iter().map(|(at, (_, high))| (at.0, y(*high)));
        let lows = banded.iter().map(|(at, (low, _))| (at.0, y(*low)));
        let outline: Vec<Spot> = lows.chain(highs.rev()).collect();
        if outline.is_empty() {
            return;
        }
        let attributes = format!("class=\"{}\" {}", style.class(), of_policy(line));
        scene.group(&attributes, |scene| match self.intervals() {
            // One point alone has no area: a bar shows its interval.
            Intervals::Bands if outline.len() > 2 => {
                scene.fill("band", &clip::area(&outline, plot.between()), style.color(), 0.18);
            }
            Intervals::Bands => plot.stroke(scene, "bar", &outline, Pen::new(style.color(), LINE_WIDTH)),
            Intervals::Bars => {
                // Side by side, so that each is seen.
                let places = self
                    .across
                    .ticks
                    .windows(2)
                    .map(|pair| self.x(plot, pair[1].value) - self.x(plot, pair[0].value));
                let step = (0.5 * places.fold(f64::INFINITY, f64::min) / self.lines.len() as f64).min(1.2);
                let own = self.lines.iter().position(|other| other.policy == line.policy).unwrap_or(0);
                let aside = step * (own as f64 - (self.lines.len() - 1) as f64 / 2.0);
                for (at, (low, high)) in &banded {
                    let bar = [(at.0 + aside, y(*low)), (at.0 + aside, y(*high))];
                    plot.stroke(scene, "bar", &bar, Pen::new(style.color(), 0.6 * LINE_WIDTH));
                }
            }
            Intervals::None => {}
        });
    }

    fn draw_line(&self, scene: &mut Scene, plot: Plot, line: &Line, styles: &SeriesStyles) {
        let Some(style) = styles.get(&line.policy) else { return };
        let spots: Vec<Spot> = line.spots.iter().map(|spot| self.spot(plot, spot)).collect();
        scene.group(&format!("class=\"line {}\" {}", style.class(), of_policy(line)), |scene| {
            let (class, pen) = Stroke::Policy(style).look();
            plot.stroke(scene, class, &spots, pen);
            for (spot, at) in line.spots.iter().zip(spots).filter(|(_, at)| !at.1.is_nan()) {
                let size = spot.point.cache_size.map_or_else(String::new, |size| format!(" data-size=\"{size}\""));
                let is_below = self.is_excess && spot.point.estimate.value < self.values.lowest();
                let cut = if is_below { Some((plot.bottom, 1.0)) } else { plot.beyond(at.1) };
                let at = (at.0, cut.map_or(at.1, |(border, _)| border));
                scene.group(&format!("class=\"pt\" tabindex=\"0\" role=\"img\"{size}"), |scene| {
                    scene.tooltip(at, TARGET_RADIUS, &self.tooltip_of(spot));
                    match cut {
                        Some((_, out)) => scene.fill("mark", &arrow(at, out), style.color(), 1.0),
                        None => draw_marker(scene, at, style),
                    }
                });
            }
        });
    }
}

/// What marks a point beyond the border of a plot: a flat triangle whose tip is on the border and points out of the plot.
fn arrow((x, border): Spot, out: f64) -> [Spot; 3] {
    let (half, height) = (1.6 * MARKER_RADIUS, 1.6 * MARKER_RADIUS);
    [(x, border), (x - half, border - out * height), (x + half, border - out * height)]
}

/// What the page's script filters a line by. The name of a line may be a cache size, its points know the policy.
pub(super) fn of_policy(line: &Line) -> String {
    let policy = line.spots.first().map_or(&line.policy, |spot| &spot.point.policy);
    format!("data-policy=\"{}\"", escape::xml(policy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Scale;
    use crate::report::fixture::{cell, panels};
    use crate::report::series::SizeAxis;

    /// The places of a path, in units of a figure.
    fn spots(path: &str) -> Vec<(i32, i32)> {
        let steps = path.trim_start_matches('M').trim_end_matches('Z').split('L');
        let number = |text: &str| text.parse().unwrap();
        steps.map(|step| step.split_once(' ').map(|(x, y)| (number(x), number(y))).unwrap()).collect()
    }

    #[test]
    fn lines_and_bands_end_at_the_border() {
        // h2o's two books are far apart at 8, so that its band leaves the axis; window does by itself.
        let two = |policy, size, [a, b]: [f64; 2]| {
            cell("cost", policy, size, &[("a", a, 1.0), ("b", b, 1.0), ("c", a, 1.0), ("d", b, 1.0)])
        };
        let rows = [
            two("full", None, [5.0, 5.0]),
            two("window", Some(8), [900.0, 900.0]),
            two("window", Some(16), [7.0, 7.0]),
            two("h2o", Some(8), [0.0, 20.0]),
            two("h2o", Some(16), [6.0, 6.0]),
        ];
        let panels = panels(&rows.concat());
        let chart = Chart::by_size(&panels[0], String::new(), Scale::Linear, (None, SizeAxis::Entries));
        let mut scene = Scene::new("", 264.0);
        scene.height = Chart::height(145.0, 1);
        let styles = SeriesStyles::of(&panels);
        let alone = Surroundings { heading: &[], labelled: true, named: false };
        chart.draw(&mut scene, (0.0, 0.0), (264.0, 145.0), &styles, alone);
        let svg = scene.svg();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let paths = |policy: &str, class: &str| -> Vec<Vec<(i32, i32)>> {
            let all = document.descendants().filter(|node| node.attribute("class") == Some(class));
            let own =
                all.filter(|node| node.ancestors().any(|node| node.attribute("data-policy") == Some(policy)));
            own.map(|node| spots(node.attribute("d").unwrap())).collect()
        };
        // 13 points of title, 145 of plot: from 108 to 1317 units of 0.12 points.
        let (top, bottom) = (108, 1317);
        let line = &paths("window", "stroke")[0];
        assert_eq!((line.len(), line[0].1), (2, top));
        // The line leaves where it crosses the border: nearly all of the way to 900 is outside.
        let marks = paths("window", "mark");
        let (off, on) = (marks[0][0], line[1]);
        assert_eq!(off.1, top, "the tip is on the border: {marks:?}");
        assert!(marks[0][1].1 > top && line[0].0 > off.0 + (on.0 - off.0) * 97 / 100, "{line:?}");
        let band = &paths("h2o", "band")[0];
        assert!(band.iter().all(|(_, y)| (top..=bottom).contains(y)), "{band:?}");
        assert!(band.iter().any(|(_, y)| *y == top) && band.iter().any(|(_, y)| *y == bottom), "{band:?}");
    }
}
