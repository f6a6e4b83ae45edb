//! A chart of one cache size: a row for each policy, the best at the top, with a marker at its value, its interval and the value.

use super::draw::{Plot, of_policy};
use super::legend::{draw_marker, printed_pen};
use super::{Chart, LINE_WIDTH, Line, MARKER_RADIUS, Measurement, Reference, SMALL, TARGET_RADIUS};
use crate::metric::Better;
use crate::report::escape;
use crate::report::figure::{Across, BLACK, PALE, Pen, Scene, SeriesStyle, SeriesStyles, Spot, font};

/// The height of a row in points.
const ROW: f64 = 9.5;
/// The most of a chart's width that names take.
const WIDEST: f64 = 0.45;
/// Around names and values.
const AIR: f64 = 4.0;

impl Chart {
    /// Whether the chart is of one cache size, where lines would be points above each other.
    pub(crate) fn is_rows(&self) -> bool {
        self.horizontal.is_of_sizes() && self.across.ticks.len() == 1
    }

    pub(super) fn rows_height(&self) -> f64 {
        ROW * self.rows().len().max(1) as f64 + 3.0
    }

    /// The policies with a value, the best first; without a best, the highest.
    fn rows(&self) -> Vec<(&Line, &Measurement)> {
        let of = |line: &'_ Line| line.spots.iter().position(|spot| !spot.point.estimate.value.is_nan());
        let mut rows: Vec<(&Line, &Measurement)> =
            self.lines.iter().filter_map(|line| Some((line, &line.spots[of(line)?]))).collect();
        let value = |(_, spot): &(&Line, &Measurement)| spot.point.estimate.value;
        rows.sort_by(|a, b| value(a).total_cmp(&value(b)));
        if self.quantity.better != Better::Lower {
            rows.reverse();
        }
        rows
    }

    /// The plot of rows in a chart of some width at a corner; `top` and `bottom` are known.
    pub(super) fn rows_plot(&self, (left, width): (f64, f64), (top, bottom): (f64, f64)) -> Plot {
        let widest = |texts: &mut dyn Iterator<Item = String>| {
            texts.map(|text| font::width(&text, SMALL)).fold(0.0, f64::max)
        };
        let rows = self.rows();
        let names = widest(&mut rows.iter().map(|(line, _)| escape::plain(&line.policy))).min(WIDEST * width);
        let values = widest(&mut rows.iter().map(|(_, spot)| self.quantity.show(spot.point.estimate.value)));
        Plot { left: left + names + AIR, right: left + width - values - AIR, top, bottom }
    }

    pub(super) fn draw_rows(&self, scene: &mut Scene, plot: Plot, room: f64, styles: &SeriesStyles) {
        let x = |value: f64| self.along(plot, value);
        for tick in &self.values.ticks {
            scene.stroke("grid", &[(x(tick.value), plot.top), (x(tick.value), plot.bottom)], Pen::new(PALE, 0.4));
        }
        for (reference, stroke) in self.levels() {
            let (class, pen) = stroke.look();
            let attributes = if class.ends_with("full") { "data-policy=\"full\"" } else { "" };
            scene.group(attributes, |scene| {
                plot.within(&[(x(reference), plot.top), (x(reference), plot.bottom)], |ends| {
                    scene.stroke(class, ends, pen)
                });
            });
        }
        for ((line, spot), row) in self.rows().into_iter().zip(0..) {
            let Some(style) = styles.get(&line.policy) else { continue };
            let y = plot.top + ROW * (f64::from(row) + 0.5) + 1.5;
            self.draw_row(scene, plot, (line, spot), style, (y, room));
            let printed = self.printed.iter().flat_map(|printed| &printed.lines);
            for (_, spots) in printed.filter(|(policy, _)| *policy == line.policy) {
                for at in spots.iter().map(|(_, value)| x(*value)) {
                    let mark = [(at, y - 0.4 * ROW), (at, y + 0.4 * ROW)];
                    plot.within(&mark, |ends| scene.stroke("printed", ends, printed_pen(style.color())));
                }
            }
        }
        let places = self.values.ticks.iter().map(|tick| (x(tick.value), tick));
        self.draw_bottom_axis(scene, plot, &places.rev().collect::<Vec<_>>());
    }

    fn draw_row(
        &self,
        scene: &mut Scene,
        plot: Plot,
        (line, spot): (&Line, &Measurement),
        style: SeriesStyle,
        (y, room): (f64, f64),
    ) {
        let value = spot.point.estimate.value;
        let at = self.along(plot, value);
        let of_size = spot.point.cache_size.map_or_else(String::new, |size| format!(" data-size=\"{size}\""));
        scene.group(&format!("class=\"line row {}\" {}", style.class(), of_policy(line)), |scene| {
            let name = font::fit(&escape::plain(&line.policy), SMALL, room);
            scene.text((plot.left - AIR, y), &name, SMALL, BLACK, Across::Right);
            scene.text((plot.right + AIR, y), &self.quantity.show(value), SMALL, BLACK, Across::Left);
            scene.group(&format!("class=\"pt\" tabindex=\"0\" role=\"img\"{of_size}"), |scene| {
                if let Some((low, high)) = spot.band {
                    let [low, high] = [low, high].map(|end| self.along(plot, end).clamp(plot.left, plot.right));
                    scene.stroke("bar", &[(low, y), (high, y)], Pen::new(style.color(), LINE_WIDTH));
                }
                let beyond = match at {
                    _ if at < plot.left => Some((plot.left, -1.0)),
                    _ if at > plot.right => Some((plot.right, 1.0)),
                    _ => None,
                };
                scene.tooltip((beyond.map_or(at, |(border, _)| border), y), TARGET_RADIUS, &self.tooltip_of(spot));
                match beyond {
                    Some(beyond) => scene.fill("mark", &arrow(beyond, y), style.color(), 1.0),
                    None => draw_marker(scene, (at, y), style),
                }
            });
        });
    }

    /// Where a value is across the plot, which may be outside.
    fn along(&self, plot: Plot, value: f64) -> f64 {
        plot.left + (plot.right - plot.left) * self.values.share(value)
    }

    /// The values of what policies are compared with.
    fn levels(&self) -> Vec<(f64, super::Stroke)> {
        let level = |reference: &Option<Reference>| match reference {
            Some(Reference::Level(value)) => Some(*value),
            _ => None,
        };
        let full = level(&self.full).map(|value| (value, super::Stroke::Full));
        let guess = level(&self.guess).map(|value| (value, super::Stroke::Guess));
        let limit = self.limit.map(|value| (value, super::Stroke::Limit));
        full.into_iter().chain(guess).chain(limit).collect()
    }
}

/// What marks a value beyond a border: a flat triangle whose tip is on the border and points out of the plot.
fn arrow((border, out): (f64, f64), y: f64) -> [Spot; 3] {
    let (half, length) = (1.4 * MARKER_RADIUS, 1.6 * MARKER_RADIUS);
    [(border, y), (border - out * length, y - half), (border - out * length, y + half)]
}
