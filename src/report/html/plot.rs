//! A chart as SVG whose colours a style sheet decides and whose points a reader can ask.
//!
//! The axes, the clipping, and what is shown are those of the other formats' charts; here they get classes instead of
//! colours, and every point a title with its number and interval, which works without a script. Lengths are CSS pixels at
//! the size the SVG was drawn for.

use maud::{Markup, html};

use super::super::axis::Tick;
use super::super::chart::{Chart, Line, Measurement, Reference};
use super::super::ink::{self, Marker};
use super::super::points::{Panel, Point};
use super::super::scene::Spot;
use super::super::{clip, escape};
use super::tone::Palette;
use crate::metric::Metric;

/// Width and height of a drawing.
#[derive(Clone, Copy)]
pub(super) struct Room(pub(super) f64, pub(super) f64);

pub(super) const ALONE: Room = Room(480.0, 320.0);
pub(super) const AMONG: Room = Room(330.0, 250.0);

const MARKER_RADIUS: f64 = 4.4;
/// The target around a marker.
const REACH: f64 = 10.0;
/// Mean width of a digit at the style sheet's size for ticks.
const DIGIT: f64 = 7.2;

/// The rectangle between the axes.
struct Frame<'a> {
    chart: &'a Chart,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// The drawing. `name` is what it is called where it cannot be seen, `panel` the one whose points stand over cache sizes.
pub(super) fn svg(chart: &Chart, palette: &Palette<'_>, room: Room, name: &str, panel: Option<&Panel>) -> Markup {
    let long =
        |ticks: &[Tick]| ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0) as f64 * DIGIT;
    let level = match chart.full {
        Some(Reference::Level(value)) if chart.values.contains(value) => Some(value),
        _ => None,
    };
    let label = level.map(|value| chart.quantity.show(value)).unwrap_or_default();
    let frame = Frame {
        chart,
        left: long(&chart.values.ticks) + 10.0,
        right: room.0 - 8.0 - label.chars().count() as f64 * DIGIT,
        top: 26.0,
        bottom: room.1 - 42.0,
    };
    let mut lines: Vec<&Line> = chart.lines.iter().collect();
    lines.sort_by_key(|line| ink::is_usual(&line.policy));
    html! {
        svg.plot viewBox={ "0 0 " (room.0) " " (room.1) } role="group" aria-label=(name) {
            text.name x="2" y="12" { (chart.quantity.label) }
            (frame.value_axis())
            @for line in &chart.lines { (frame.band(line, palette)) }
            (frame.reference(chart.chance.as_ref(), "chance"))
            g data-policy="full" {
                (frame.reference(chart.full.as_ref(), "full"))
                @if let Some(value) = level {
                    text.tick x=(at(frame.right + 4.0)) y=(at(frame.y(value) + 4.0)) { (label) }
                }
                (frame.full_points(panel))
            }
            @for line in lines { (frame.line(line, palette)) }
            (frame.across_axis())
            text.name x=(at((frame.left + frame.right) / 2.0)) y=(at(room.1 - 5.0)) text-anchor="middle" { (chart.across_name) }
        }
    }
}

impl Frame<'_> {
    fn x(&self, across: f64) -> f64 {
        self.left + (self.right - self.left) * self.chart.across.share(across)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * self.chart.values.share(value)
    }

    fn value_axis(&self) -> Markup {
        html! {
            g.grid aria-hidden="true" {
                @for tick in &self.chart.values.ticks {
                    @let y = self.y(tick.value);
                    line x1=(at(self.left)) x2=(at(self.right)) y1=(at(y)) y2=(at(y)) {}
                    text.tick x=(at(self.left - 6.0)) y=(at(y + 4.0)) text-anchor="end" { (tick.label) }
                }
            }
        }
    }

    /// A tick at each, and labels as long as they do not touch, the right end's first.
    fn across_axis(&self) -> Markup {
        let place = |tick: &Tick| (self.x(tick.value), tick.label.chars().count() as f64 * DIGIT / 2.0 + 5.0);
        let places: Vec<(f64, f64)> = self.chart.across.ticks.iter().rev().map(place).collect();
        let clear = |every: &usize| {
            let kept: Vec<_> = places.iter().step_by(*every).collect();
            kept.windows(2).all(|pair| pair[0].0 - pair[0].1 >= pair[1].0 + pair[1].1)
        };
        let every = (1..=places.len()).find(clear).unwrap_or(1);
        html! {
            g.axis aria-hidden="true" {
                path d={ "M" (at(self.left)) " " (at(self.top)) "V" (at(self.bottom)) "H" (at(self.right)) } {}
                @for (i, (tick, (x, _))) in self.chart.across.ticks.iter().rev().zip(&places).enumerate() {
                    path d={ "M" (at(*x)) " " (at(self.bottom)) "v4" } {}
                    @if i % every == 0 {
                        text.tick x=(at(*x)) y=(at(self.bottom + 17.0)) text-anchor="middle" { (tick.label) }
                    }
                }
            }
        }
    }

    fn reference(&self, reference: Option<&Reference>, class: &str) -> Markup {
        let spots: Vec<Spot> = match reference {
            None => Vec::new(),
            Some(Reference::Level(value)) => vec![(self.left, self.y(*value)), (self.right, self.y(*value))],
            Some(Reference::Curve(spots)) => spots.iter().map(|(x, y)| (self.x(*x), self.y(*y))).collect(),
        };
        html! { path.reference.(class) d=(self.path(spots)) {} }
    }

    /// The full cache's numbers, which a reader can ask like a policy's.
    fn full_points(&self, panel: Option<&Panel>) -> Markup {
        let chart = self.chart;
        let spots: Vec<(f64, f64, String)> = match &chart.full {
            Some(Reference::Level(value)) => {
                let told = match panel.and_then(Panel::full) {
                    Some(point) => told(&chart.quantity, point, "full"),
                    None => format!("full: {} {}", chart.quantity.label, digits(*value)),
                };
                vec![(self.right, *value, told)]
            }
            Some(Reference::Curve(spots)) => {
                let told = |(across, value): &Spot| {
                    let place = format!("full, {}", self.place(*across));
                    (self.x(*across), *value, format!("{place}: {} {}", chart.quantity.label, digits(*value)))
                };
                spots.iter().map(told).collect()
            }
            None => Vec::new(),
        };
        html! {
            @for (x, value, told) in spots {
                @if chart.values.contains(value) {
                    g.pt.full tabindex="0" role="img" transform={ "translate(" (at(x)) " " (at(self.y(value))) ")" } {
                        title { (told) }
                        circle.reach r=(REACH) {}
                        circle.mark r="2" {}
                    }
                }
            }
        }
    }

    fn band(&self, line: &Line, palette: &Palette<'_>) -> Markup {
        let mut edges: (Vec<Spot>, Vec<Spot>) = (Vec::new(), Vec::new());
        for spot in &line.spots {
            let Some((low, high)) = spot.band else { continue };
            let x = self.x(spot.across);
            // A logarithmic axis has no zero; the band then ends at the frame.
            let y = |value: f64| Some(self.y(value)).filter(|y| y.is_finite()).unwrap_or(self.bottom);
            edges.0.push((x, y(low)));
            edges.1.push((x, y(high)));
        }
        // One point alone has no area: then a bar says how far it may be off.
        let bar = match (&edges.0[..], &edges.1[..]) {
            ([low], [high]) => self.path(vec![*low, *high]),
            _ => String::new(),
        };
        edges.1.reverse();
        let outline = clip::polygon(&[edges.0, edges.1].concat(), self.top, self.bottom);
        let class = palette.class(&line.policy);
        html! {
            @if !bar.is_empty() {
                path class={ "bar " (class) } data-policy=(escape::plain(&line.policy)) d=(bar) {}
            } @else if outline.len() > 2 {
                path class={ "band " (class) } data-policy=(escape::plain(&line.policy)) d={ (trace(&outline)) "Z" } {}
            }
        }
    }

    fn line(&self, line: &Line, palette: &Palette<'_>) -> Markup {
        let spots = line.spots.iter().map(|spot| (self.x(spot.across), self.y(spot.value))).collect();
        let marker = palette.look(&line.policy).map_or(Marker::Circle, |look| look.marker);
        html! {
            g class={ "line " (palette.class(&line.policy)) } data-policy=(escape::plain(&line.policy)) {
                path.stroke d=(self.path(spots)) {}
                @for spot in line.spots.iter().filter(|spot| self.chart.values.contains(spot.value)) {
                    g.pt tabindex="0" role="img" data-size=[spot.point.cache_size]
                        transform={ "translate(" (at(self.x(spot.across))) " " (at(self.y(spot.value))) ")" } {
                        title { (self.told(spot)) }
                        circle.reach r=(REACH) {}
                        (mark(marker))
                    }
                }
            }
        }
    }

    /// The pieces of a line inside the frame.
    fn path(&self, spots: Vec<Spot>) -> String {
        let spots: Vec<Spot> = spots.into_iter().filter(|(_, y)| y.is_finite()).collect();
        clip::line(&spots, self.top, self.bottom).iter().map(|piece| trace(piece)).collect()
    }

    fn told(&self, spot: &Measurement) -> String {
        let policy = escape::plain(&spot.point.policy);
        let size = spot.point.cache_size.map_or_else(String::new, |size| format!(" with {size} entries"));
        let place = if self.is_over_sizes() { String::new() } else { format!(", {}", self.place(spot.across)) };
        told(&self.chart.quantity, &spot.point, &format!("{policy}{size}{place}"))
    }

    fn is_over_sizes(&self) -> bool {
        self.chart.across_name.starts_with("cache size")
    }

    /// Where a point stands: on a tick or a number, or, in the middle of an octave, between two ticks.
    fn place(&self, across: f64) -> String {
        let name = self.chart.across_name;
        let ticks = &self.chart.across.ticks;
        let between = ticks.windows(2).find(|pair| pair[0].value < across && across < pair[1].value);
        match between {
            Some([low, high]) if name.starts_with("distance") => {
                format!("distance {} to {} tokens", low.label, high.value - 1.0)
            }
            _ => format!("{name} {across}"),
        }
    }
}

/// A point in words: the value, its interval, its difference to the full cache, and what it is over.
fn told(quantity: &Metric, point: &Point, place: &str) -> String {
    let mut told = format!("{place}: {} {}", quantity.label, digits(point.estimate.value));
    if let Some(interval) = point.estimate.interval {
        told.push_str(&format!(" (95 % interval {} to {})", digits(interval.low), digits(interval.high)));
    }
    if let Some(difference) = point.to_full {
        let sign = if difference.value > 0.0 { "+" } else { "" };
        told.push_str(&format!("; to full {sign}{}", digits(difference.value)));
        if let Some(interval) = difference.interval {
            told.push_str(&format!(" ({} to {})", digits(interval.low), digits(interval.high)));
        }
    }
    let partial = if point.complete { "" } else { ", not all" };
    told.push_str(&format!("; {} samples{partial}", point.samples));
    told
}

/// Six digits that mean something: more than a table has, fewer than are noise.
fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let whole = value.abs().log10().floor() as i32 + 1;
    match whole {
        -3..=9 => format!("{value:.*}", usize::try_from(6 - whole).unwrap_or(0)),
        _ => format!("{value:.5e}"),
    }
}

/// A marker around the origin.
pub(super) fn mark(marker: Marker) -> Markup {
    let (path, filled) = outline(marker);
    let class = if filled { "mark" } else { "mark open" };
    html! { path class=(class) d=(path) {} }
}

/// A marker's path, and whether it is filled.
pub(super) fn outline(marker: Marker) -> (String, bool) {
    let (filled, outlines) = marker.strokes(MARKER_RADIUS);
    let close = if filled { "Z" } else { "" };
    (outlines.iter().map(|outline| trace(outline) + close).collect(), filled)
}

fn trace(points: &[Spot]) -> String {
    let step = |(i, (x, y)): (usize, &Spot)| format!("{}{} {}", if i == 0 { "M" } else { "L" }, at(*x), at(*y));
    points.iter().enumerate().map(step).collect()
}

/// A coordinate to a tenth of a pixel.
fn at(coordinate: f64) -> String {
    let shown = format!("{coordinate:.1}");
    shown.strip_suffix(".0").map(str::to_owned).unwrap_or(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits() {
        for (value, expected) in [
            (7.389_056_098_9, "7.38906"),
            (4812.271, "4812.27"),
            (0.012_345_678, "0.0123457"),
            (-0.5, "-0.500000"),
            (0.0, "0"),
            (123_456.7, "123457"),
            (1.5e12, "1.50000e12"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(digits(value), expected);
        }
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!([at(12.04), at(12.06), at(-0.5)], ["12", "12.1", "-0.5"]);
        assert_eq!(trace(&[(0.0, 1.0), (2.5, 3.0)]), "M0 1L2.5 3");
    }
}
