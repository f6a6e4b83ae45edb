//! What of a line or an area lies between two heights of a plot, cut where it leaves them.

use crate::report::figure::Spot;

/// The parts of a line between two heights. A spot without a height, as zero is on a logarithmic axis, interrupts it.
pub(super) fn line(spots: &[Spot], (top, bottom): (f64, f64)) -> Vec<Vec<Spot>> {
    let mut parts: Vec<Vec<Spot>> = Vec::new();
    for pair in spots.windows(2) {
        let Some((from, to)) = segment(pair[0], pair[1], (top, bottom)) else { continue };
        match parts.last_mut() {
            Some(part) if part.last() == Some(&from) => part.push(to),
            _ => parts.push(vec![from, to]),
        }
    }
    parts
}

fn segment(from: Spot, to: Spot, (top, bottom): (f64, f64)) -> Option<(Spot, Spot)> {
    let is_beyond = (from.1 < top && to.1 < top) || (from.1 > bottom && to.1 > bottom);
    if is_beyond || !from.1.is_finite() || !to.1.is_finite() {
        return None;
    }
    let cut = |spot: Spot| match spot.1.clamp(top, bottom) {
        border if border == spot.1 => spot,
        border => crossing(from, to, border),
    };
    Some((cut(from), cut(to)))
}

/// Where a segment, which must not be level, has a height.
fn crossing(from: Spot, to: Spot, height: f64) -> Spot {
    (from.0 + (to.0 - from.0) * (height - from.1) / (to.1 - from.1), height)
}

/// The part of an area between two heights (Sutherland and Hodgman's algorithm).
pub(super) fn area(outline: &[Spot], (top, bottom): (f64, f64)) -> Vec<Spot> {
    let below_top = half(outline, top, |y| y >= top);
    half(&below_top, bottom, |y| y <= bottom)
}

/// The part of an area on one side of a border.
fn half(outline: &[Spot], border: f64, is_inside: impl Fn(f64) -> bool) -> Vec<Spot> {
    let mut kept = Vec::new();
    let before = outline.iter().cycle().skip(outline.len().saturating_sub(1));
    for (&last, &spot) in before.zip(outline) {
        if is_inside(last.1) != is_inside(spot.1) {
            kept.push(crossing(last, spot, border));
        }
        if is_inside(spot.1) {
            kept.push(spot);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const BETWEEN: (f64, f64) = (10.0, 20.0);

    #[test]
    fn a_line_ends_where_it_crosses_the_border() {
        // Down from above, through the plot and out at its bottom: the slope is 1 to 4 all along.
        let spots = [(0.0, 6.0), (4.0, 22.0), (8.0, 22.0), (12.0, 12.0), (14.0, 16.0)];
        let expected = [vec![(1.0, 10.0), (3.5, 20.0)], vec![(8.8, 20.0), (12.0, 12.0), (14.0, 16.0)]];
        let parts = line(&spots, BETWEEN);
        assert_eq!(parts.len(), 2, "{parts:?}");
        for (part, expected) in parts.iter().zip(&expected) {
            assert_eq!(part.len(), expected.len(), "{parts:?}");
            for (spot, expected) in part.iter().zip(expected) {
                assert!((spot.0 - expected.0).abs() < 1e-9 && (spot.1 - expected.1).abs() < 1e-9, "{parts:?}");
            }
        }
        // Far off the scale the slope is the true one: one part in 1000 of the way is inside.
        assert_eq!(line(&[(0.0, 20.0), (1000.0, -9980.0)], BETWEEN), [vec![(0.0, 20.0), (1.0, 10.0)]]);
        assert!(line(&[(0.0, 1.0), (1.0, 2.0)], BETWEEN).is_empty());
    }

    #[test]
    fn a_spot_without_a_height_interrupts_a_line() {
        let spots = [(0.0, 12.0), (1.0, 13.0), (2.0, f64::INFINITY), (3.0, 14.0), (4.0, f64::NAN), (5.0, 15.0)];
        assert_eq!(line(&spots, BETWEEN), [vec![(0.0, 12.0), (1.0, 13.0)]]);
    }

    #[test]
    fn an_area_is_cut_along_the_border() {
        // A triangle with its tip above the top: its sides cross the border at a quarter and three quarters.
        let cut = area(&[(0.0, 18.0), (8.0, 18.0), (4.0, 2.0)], BETWEEN);
        assert_eq!(cut, [(2.0, 10.0), (0.0, 18.0), (8.0, 18.0), (6.0, 10.0)]);
        assert!(area(&[(0.0, 1.0), (8.0, 1.0), (4.0, 2.0)], BETWEEN).is_empty());
        assert!(area(&[], BETWEEN).is_empty());
    }
}
