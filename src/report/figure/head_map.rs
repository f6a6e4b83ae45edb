//! What each key-value head holds: a map of heads (down) by layers (across), for one policy at one cache size.

use crate::report::escape;
use crate::report::figure::square_map::{Square, SquareMap, Squares};
use crate::report::series::Size;

/// Squares are narrower where there are many layers.
const MOST_WIDTH: f64 = 500.0;
const WIDE: f64 = 20.0;

/// Shares are what the heads hold in percent of the tokens read: (layers)(heads)
pub(crate) fn map(policy: &str, size: Option<Size>, shares: &[Vec<f64>]) -> SquareMap {
    let with = size.map_or_else(|| "any size".to_owned(), Size::words);
    let title = format!("{} with {with}", escape::plain(policy));
    let narrowest = (MOST_WIDTH / shares.len().max(1) as f64).min(WIDE);
    let named = |every: usize, at: usize| if at.is_multiple_of(every) { at.to_string() } else { String::new() };
    let heads = shares.iter().map(Vec::len).max().unwrap_or(0);
    let square = |layer: usize, head: usize, percent: f64| {
        let tooltip = format!("layer {layer}, head {head}: {percent:.1} % of the tokens; {title}");
        Square { place: (layer, head), percent, size, tooltip }
    };
    let of_layer = |(layer, shares): (usize, &Vec<f64>)| {
        shares.iter().enumerate().map(|(head, share)| square(layer, head, *share)).collect::<Vec<_>>()
    };
    SquareMap {
        squares: Squares::Numbers(shares.iter().enumerate().flat_map(of_layer).collect(), narrowest),
        title,
        policy: policy.to_owned(),
        horizontal: "layer",
        vertical: "head",
        columns: (0..shares.len()).map(|layer| named(if narrowest < 14.0 { 5 } else { 1 }, layer)).collect(),
        lines: (0..heads).map(|head| named(heads.div_ceil(8), head)).collect(),
    }
}
