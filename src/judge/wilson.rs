//! Wilson's score interval of a win rate.
//!
//! Pairs of different seeds are independent, so no resampling is needed; and unlike a bootstrap, Wilson's interval does
//! not collapse if all of a few pairs have the same result.

/// The quantile of the normal distribution that leaves 2.5 % above it.
const Z: f64 = 1.959_963_984_540_054;

/// `part` of `all` and the bounds of its 95 % interval, all from 0 to 1; `None` if `all` is 0.
pub fn wilson(part: usize, all: usize) -> Option<[f64; 3]> {
    if all == 0 {
        return None;
    }
    let (n, square) = (all as f64, Z * Z);
    let value = part as f64 / n;
    let centre = (value + square / (2.0 * n)) / (1.0 + square / n);
    let half = Z * (value * (1.0 - value) / n + square / (4.0 * n * n)).sqrt() / (1.0 + square / n);
    Some([value, (centre - half).max(0.0), (centre + half).min(1.0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_newcombe() {
        let check = |part, all, low: f64, high: f64| {
            let found = wilson(part, all).unwrap();
            assert!((found[1] - low).abs() < 5e-5 && (found[2] - high).abs() < 5e-5, "{found:?}");
        };
        // Newcombe (1998), table I: the score method without continuity correction.
        check(81, 263, 0.2553, 0.3662);
        check(15, 148, 0.0624, 0.1605);
        check(0, 20, 0.0, 0.1611);
        check(1, 29, 0.0061, 0.1718);
        check(20, 20, 0.8389, 1.0);
        assert_eq!(wilson(0, 0), None);
    }
}
