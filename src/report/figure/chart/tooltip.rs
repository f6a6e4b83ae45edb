//! What the tooltips of a chart say.

use super::{Chart, Measurement};
use crate::metric::Metric;
use crate::report::escape;
use crate::report::figure::Horizontal;
use crate::report::series::Point;
use crate::report::statistics::Estimate;

impl Chart {
    /// What a point says.
    pub(super) fn tooltip_of(&self, spot: &Measurement) -> String {
        let policy = escape::plain(&spot.point.policy);
        let size = spot.point.cache_size.map_or_else(String::new, |size| format!(" with {}", size.words()));
        let is_over_sizes = self.horizontal.is_of_sizes();
        let place = if is_over_sizes { String::new() } else { format!(", {}", self.place(spot.across)) };
        describe(&self.quantity, &spot.point, &format!("{policy}{size}{place}"))
    }

    /// Where a point is: at a number, or in an octave.
    fn place(&self, across: f64) -> String {
        let ticks = &self.across.ticks;
        let between = ticks.windows(2).find(|pair| pair[0].value < across && across < pair[1].value);
        match (self.horizontal, between) {
            (Horizontal::Octaves(name), Some([low, high])) => {
                format!("{} to {} {name}", low.label, high.value - 1.0)
            }
            (Horizontal::Named(name), _) => {
                let tick = ticks.iter().find(|tick| tick.value == across);
                format!("{name} {}", tick.map_or("", |tick| &tick.label))
            }
            (horizontal, _) => format!("{} {across}", horizontal.name()),
        }
    }
}

/// A point in words: the value, its interval, its difference to the full cache, and what it is over.
pub(crate) fn describe(quantity: &Metric, point: &Point, place: &str) -> String {
    let interval = |estimate: Estimate, name: &str| {
        let ends = estimate.interval.map(|ends| format!(" ({name}{} to {})", digits(ends.low), digits(ends.high)));
        ends.unwrap_or_default()
    };
    let (value, own) = (digits(point.estimate.value), interval(point.estimate, "95 % interval "));
    let mut text = format!("{place}: {} {value}{own}", quantity.label);
    if let Some(difference) = point.to_full.as_ref().map(|to_full| to_full.shown) {
        let sign = if difference.value > 0.0 { "+" } else { "" };
        text.push_str(&format!("; to full {sign}{}{}", digits(difference.value), interval(difference, "")));
    }
    let partial = if point.complete { "" } else { ", not all" };
    text.push_str(&format!("; {} samples{partial}", point.samples));
    text
}

/// Six significant digits: more than a table has, without the noise of all.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Scale;
    use crate::report::fixture::{at_share, cell, panels};
    use crate::report::series::SizeAxis;

    #[test]
    fn a_chart_over_shares_says_so() {
        let of = |share| at_share(share, cell("cost", "tova", None, &[("a", 1.5, 1.0)]));
        let panels = panels(&[of(0.125), of(0.25), of(0.5)].concat());
        let chart = Chart::by_size(&panels[0], String::new(), Scale::Linear, (None, SizeAxis::Entries));
        let labels: Vec<&str> = chart.across.ticks.iter().map(|tick| tick.label.as_str()).collect();
        assert_eq!((labels, chart.horizontal.name()), (vec!["12.5%", "25%", "50%"], "cache size (share)"));
        let spot = &chart.lines[0].spots[1];
        assert!((chart.across.share(spot.across) - 0.5).abs() < 1e-12);
        let said = "tova with 25% of the prompt or text: cost 1.50000; 1 samples";
        assert_eq!(chart.tooltip_of(spot), said);
    }

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
}
