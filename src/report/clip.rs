//! What of a line or an area lies inside a horizontal strip. Pure geometry, in any unit.

use super::scene::Spot;

/// The pieces of a polyline between two heights (`top < bottom`, as on screen).
pub(super) fn line(points: &[Spot], top: f64, bottom: f64) -> Vec<Vec<Spot>> {
    let mut pieces: Vec<Vec<Spot>> = Vec::new();
    for pair in points.windows(2) {
        let Some((from, to)) = segment(pair[0], pair[1], top, bottom) else { continue };
        match pieces.last_mut() {
            Some(piece) if piece.last() == Some(&from) => piece.push(to),
            _ => pieces.push(vec![from, to]),
        }
    }
    pieces
}

fn segment(a: Spot, b: Spot, top: f64, bottom: f64) -> Option<(Spot, Spot)> {
    if (a.1 < top && b.1 < top) || (a.1 > bottom && b.1 > bottom) {
        return None;
    }
    let onto = |from: Spot, to: Spot| {
        let edge = from.1.clamp(top, bottom);
        if edge == from.1 { from } else { cross(from, to, edge) }
    };
    Some((onto(a, b), onto(b, a)))
}

/// Where the line through two points has a height.
fn cross(a: Spot, b: Spot, height: f64) -> Spot {
    (a.0 + (b.0 - a.0) * (height - a.1) / (b.1 - a.1), height)
}

/// A polygon cut to a strip (Sutherland and Hodgman's way: one edge after the other).
pub(super) fn polygon(points: &[Spot], top: f64, bottom: f64) -> Vec<Spot> {
    let below_top = cut(points, |y| y >= top, top);
    cut(&below_top, |y| y <= bottom, bottom)
}

fn cut(points: &[Spot], inside: impl Fn(f64) -> bool, edge: f64) -> Vec<Spot> {
    let mut kept = Vec::new();
    for (i, &point) in points.iter().enumerate() {
        let before = points[(i + points.len() - 1) % points.len()];
        if inside(before.1) != inside(point.1) {
            kept.push(cross(before, point, edge));
        }
        if inside(point.1) {
            kept.push(point);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_where_they_leave() {
        let zigzag = [(0.0, 5.0), (1.0, 15.0), (2.0, 5.0)];
        assert_eq!(line(&zigzag, 0.0, 10.0), [[(0.0, 5.0), (0.5, 10.0)], [(1.5, 10.0), (2.0, 5.0)]]);
        assert_eq!(line(&zigzag, 0.0, 20.0), [zigzag]);
        assert!(line(&zigzag, 20.0, 30.0).is_empty());
        // Through the strip without a point inside.
        assert_eq!(line(&[(0.0, -10.0), (2.0, 10.0)], -5.0, 5.0), [[(0.5, -5.0), (1.5, 5.0)]]);
    }

    #[test]
    fn areas_are_cut_at_both_edges() {
        let square = [(0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0)];
        assert_eq!(polygon(&square, -1.0, 5.0), square);
        let cut = polygon(&square, 1.0, 3.0);
        assert!(cut.len() == 4 && cut.iter().all(|&(_, y)| y == 1.0 || y == 3.0), "{cut:?}");
        assert!(polygon(&square, 5.0, 6.0).is_empty());
    }
}
