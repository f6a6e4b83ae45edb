//! How many numbers of a comparison would look worse although nothing but noise changed.

use super::point::{Point, Verdict};
use crate::metric::Better;
use crate::report::error_on_one_side;

/// The 95 % intervals of numbers that moved and that can be worse, and how many of them noise alone puts on the worse side.
/// Numbers that are equal, as in a rerun on the same machine, are not among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance {
    pub intervals: usize,
    /// How many of these are wholly on the worse side.
    pub worse: usize,
    /// How many would be on average if only noise moved them.
    pub expected: f64,
    /// The chance that at least one would be, if the numbers were independent. Numbers of one run are not: they share texts.
    pub any: f64,
}

impl Chance {
    pub(super) fn of(points: &[Point]) -> Self {
        let (mut intervals, mut worse, mut expected, mut none) = (0, 0, 0.0, 1.0);
        let moved = points.iter().filter(|point| point.verdict != Verdict::Equal);
        for point in moved.filter(|point| point.metric.better != Better::Unknown) {
            let Some(interval) = point.difference.and_then(|difference| difference.interval) else { continue };
            let chance = error_on_one_side(point.clusters);
            intervals += 1;
            let is_worse = Point::direction(point.metric.better, interval.low) == Verdict::Regressed;
            worse += usize::from(interval.excludes_zero() && is_worse);
            expected += chance;
            none *= 1.0 - chance;
        }
        Self { intervals, worse, expected, any: 1.0 - none }
    }
}
