//! The words in which claims say what was measured: sizes of differences, which way they go, and intervals.

use crate::report::{Estimate, Interval, Panel};

/// `tova with 512 entries`.
pub(super) fn with(policy: &str, size: u32) -> String {
    format!("{policy} with {size} entries")
}

/// `0.25 perplexity worse`, or better if the loss is negative.
pub(super) fn worse(panel: &Panel, loss: f64) -> String {
    match loss {
        0.0 => "no worse".to_owned(),
        _ => format!("{} {}", amount(panel, loss), if loss < 0.0 { "better" } else { "worse" }),
    }
}

/// The size of a difference, such as `0.25 perplexity`.
pub(super) fn amount(panel: &Panel, difference: f64) -> String {
    // The first word of `F1 (%)` and `ROUGE (geometric mean)`.
    let quantity = panel.metric.label.split(' ').next().unwrap_or_default();
    let difference = difference.abs();
    match difference {
        0.0 => format!("0 {quantity}"),
        _ if difference < 0.005 => format!("less than 0.01 {quantity}"),
        _ => format!("{difference:.2} {quantity}"),
    }
}

/// The interval after a number; nothing where there is none.
pub(super) fn interval(estimate: Estimate, show: impl Fn(f64) -> String) -> String {
    let Some(Interval { low, high }) = estimate.interval else { return String::new() };
    format!(" (95 % interval: {} to {})", show(low), show(high))
}

/// The same of a number that is told by its size and a word for its sign, which is left out where both ends share it.
pub(super) fn signed_interval(
    estimate: Estimate,
    [negative, positive]: [&str; 2],
    show: fn(f64) -> String,
) -> String {
    let Some(Interval { low, high }) = estimate.interval else { return String::new() };
    let (low_shown, high_shown) = (show(low.abs()), show(high.abs()));
    match (low < 0.0, high < 0.0) {
        (true, true) => format!(" (95 % interval: {high_shown} to {low_shown})"),
        (true, false) => format!(" (95 % interval: {low_shown} {negative} to {high_shown} {positive})"),
        _ => format!(" (95 % interval: {low_shown} to {high_shown})"),
    }
}

pub(super) fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

pub(super) fn percent(value: f64) -> String {
    format!("{value:.1} %")
}
