//! The words in which claims say what was measured: differences with their intervals, and names.

use crate::metric::Metric;
use crate::report::{Difference, Estimate, Interval, Size};

/// `tova with 512 entries`.
pub(super) fn with(policy: &str, size: impl Into<Size>) -> String {
    format!("{policy} with {}", size.into().words())
}

/// `0.0343 nats [0.0210, 0.0452] (0.25 perplexity) above`, or `0.52 ROUGE [0.11, 0.90] below`: the words are for negative and
/// positive differences.
pub(super) fn apart(metric: &Metric, difference: &Difference, [negative, positive]: [&str; 2]) -> String {
    let is_negative = difference.shown.value < 0.0;
    let difference = if is_negative { difference.turned() } else { difference.clone() };
    // The first word of `F1 (%)` and `ROUGE (geometric mean)`.
    let quantity = metric.label.split(' ').next().unwrap_or_default();
    let (shown, range) = (hundredths(difference.shown.value), interval(difference.shown, hundredths));
    let amount = match difference.nats {
        Some(nats) => {
            let range = interval(nats, ten_thousandths);
            format!("{} nats{range} ({shown} {quantity})", ten_thousandths(nats.value))
        }
        None => format!("{shown} {quantity}{range}"),
    };
    format!("{amount} {}", if is_negative { negative } else { positive })
}

/// The interval after a number; nothing where it has no width, as of numbers that are counted or printed.
pub(super) fn interval(estimate: Estimate, show: impl Fn(f64) -> String) -> String {
    match estimate.interval {
        None => " (no interval)".to_owned(),
        Some(Interval { low, high }) if show(low) == show(high) => String::new(),
        Some(Interval { low, high }) => format!(" [{}, {}]", show(low), show(high)),
    }
}

/// `a, b and c`.
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [others @ .., one, last] => [others, &[format!("{one} and {last}")]].concat().join(", "),
        one => one.concat(),
    }
}

pub(super) fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

fn ten_thousandths(value: f64) -> String {
    format!("{value:.4}")
}

pub(super) fn percent(value: f64) -> String {
    format!("{value:.1} %")
}
