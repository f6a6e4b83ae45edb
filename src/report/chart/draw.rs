//! Draws a chart: axes, bands, lines and points.

use super::super::axis::Tick;
use super::super::scene::{Across, Pen, Scene, Spot};
use super::super::series_style::{self, BLACK, PALE, SeriesStyles};
use super::super::{escape, font};
use super::legend::{Stroke, draw_marker};
use super::{
    Chart, LABEL, LABEL_ROOM, LINE_WIDTH, Line, Measurement, Reference, SMALL, TICK_ROW, TITLE, TITLE_ROW, tooltip,
};

const TICK: f64 = 6.0;
/// Of the circle around a point that shows its tooltip.
const TARGET_RADIUS: f64 = 4.8;

/// The rectangle between the axes, in points.
#[derive(Clone, Copy)]
pub(crate) struct Plot {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Plot {
    /// Runs `inside`, of which only what lies between the axes is seen.
    pub(crate) fn clip(self, scene: &mut Scene, inside: impl FnOnce(&mut Scene)) {
        scene.clipped((self.left, self.top), (self.right, self.bottom), inside);
    }
}

impl Chart {
    /// Draws into the rectangle at `corner`. `labelled` is false where a neighbour to the left names the value axis;
    /// an empty `title` takes no less room.
    pub(crate) fn draw(
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
            let name = font::fit(&self.quantity.label, LABEL, plot_height + TITLE_ROW);
            scene.upright_text((corner.0 + LABEL / 2.0 + 1.0, (plot.top + plot.bottom) / 2.0), &name, LABEL);
        }
        self.draw_value_axis(scene, plot);
        for line in &self.lines {
            self.draw_band(scene, plot, line, styles);
        }
        if let Some(printed) = &self.printed {
            self.draw_printed(scene, plot, printed, styles);
        }
        self.draw_reference(scene, plot, self.chance.as_ref(), Stroke::Chance);
        scene.group("data-policy=\"full\"", |scene| {
            self.draw_reference(scene, plot, self.full.as_ref(), Stroke::Full);
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

    pub(crate) fn x(&self, plot: Plot, across: f64) -> f64 {
        plot.left + (plot.right - plot.left) * self.across.share(across)
    }

    pub(crate) fn y(&self, plot: Plot, value: f64) -> f64 {
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
        plot.clip(scene, |scene| scene.stroke(class, &drawable(spots), pen));
    }

    /// The full cache's points, which have tooltips like a policy's.
    fn draw_full_points(&self, scene: &mut Scene, plot: Plot) {
        let points: Vec<(Spot, String)> = match (&self.full, &self.full_point) {
            (Some(Reference::Level(value)), Some(point)) => {
                vec![((plot.right, *value), tooltip::describe(&self.quantity, point, "full"))]
            }
            (Some(Reference::Curve(spots)), _) => {
                let text = |(across, value): &Spot| self.tooltip_of_full_at(*across, *value);
                spots.iter().map(|spot| ((self.x(plot, spot.0), spot.1), text(spot))).collect()
            }
            _ => Vec::new(),
        };
        for ((x, value), text) in points.into_iter().filter(|((_, value), _)| self.values.contains(*value)) {
            scene.group("class=\"pt full\" tabindex=\"0\" role=\"img\"", |scene| {
                scene.tooltip((x, self.y(plot, value)), TARGET_RADIUS, &text);
            });
        }
    }

    fn draw_band(&self, scene: &mut Scene, plot: Plot, line: &Line, styles: &SeriesStyles) {
        let Some(style) = styles.get(&line.policy) else { return };
        // A logarithmic axis has no zero; the band then ends at the frame.
        let y = |value: f64| Some(self.y(plot, value)).filter(|y| y.is_finite()).unwrap_or(plot.bottom);
        let edge = |end: fn((f64, f64)) -> f64| {
            line.spots.iter().filter_map(move |spot| Some((self.x(plot, spot.across), y(end(spot.band?)))))
        };
        let outline = drawable(edge(|band| band.0).chain(edge(|band| band.1).rev()).collect());
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
        let at = |spot: &Measurement| (self.x(plot, spot.across), self.y(plot, spot.point.estimate.value));
        let spots = drawable(line.spots.iter().map(at).collect());
        scene.group(&format!("class=\"line {}\" {}", style.class(), of_policy(line)), |scene| {
            let (class, pen) = Stroke::Policy(style).look();
            plot.clip(scene, |scene| scene.stroke(class, &spots, pen));
            for spot in line.spots.iter().filter(|spot| self.values.contains(spot.point.estimate.value)) {
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

/// What can be drawn: a logarithmic axis has no zero.
pub(crate) fn drawable(mut spots: Vec<Spot>) -> Vec<Spot> {
    spots.retain(|(_, y)| y.is_finite());
    spots
}
