//! Bands: what the interval around a point is of.
//!
//! Texts differ far more in level than policies do, so a band is of the difference to the full cache. Where many of those cover the same
//! values nothing can be read off them, and what a reader asks is another difference: that to the policy that all are compared with.

use super::{Chart, Measurement};
use crate::metric::{Better, Pooling, Property};
use crate::report::escape;
use crate::report::series::{Panel, Point};
use crate::report::statistics::Estimate;

/// The least number of bands over one value that are a block.
const BLOCK: usize = 3;

/// More bands than these cover each other, and more bars cover the lines.
const MOST_BANDS: usize = 4;
const MOST_BARS: usize = 12;

/// How the intervals of a chart of lines are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Intervals {
    /// An area around each line.
    Bands,
    /// Bars beside each point.
    Bars,
    None,
}

/// What the bands of a chart are intervals of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Bands {
    /// The values themselves.
    Own,
    /// The difference to the full cache.
    ToFull,
    /// The difference to a policy, with words for where it is compared.
    To(String, &'static str),
}

impl Chart {
    /// Says that bands are of differences to a policy, where one is given.
    pub(crate) fn with_bands_of(self, reference: Option<&str>, compared: &'static str) -> Self {
        match reference {
            Some(policy) => Self { bands: Bands::To(policy.to_owned(), compared), ..self },
            None => self,
        }
    }

    /// Whether any point has a band.
    fn has_bands(&self) -> bool {
        self.lines.iter().flat_map(|line| &line.spots).any(|spot| spot.band.is_some())
    }

    pub(super) fn intervals(&self) -> Intervals {
        match self.lines.iter().filter(|line| line.spots.iter().any(|spot| spot.band.is_some())).count() {
            0..=MOST_BANDS => Intervals::Bands,
            n if n <= MOST_BARS => Intervals::Bars,
            _ => Intervals::None,
        }
    }
}

impl Measurement {
    /// The point with the interval of its difference to another policy at its size, where one is given; none around that policy itself.
    pub(crate) fn against(self, panel: &Panel, reference: Option<&str>) -> Self {
        let Some(reference) = reference else { return self };
        let size = self.point.cache_size;
        let pair = size.and_then(|size| panel.pair(&self.point.policy, reference, size));
        let band = pair.and_then(|pair| around(panel, self.point.estimate.value, pair.difference.shown));
        Self { band, ..self }
    }
}

/// What is to be said of the bands of charts, without a full stop.
pub(super) fn note(charts: &[Chart]) -> Option<String> {
    let bands: Vec<&Bands> = charts.iter().filter(|chart| chart.has_bands()).map(|chart| &chart.bands).collect();
    let how = |wanted| charts.iter().any(|chart| !chart.is_rows() && chart.intervals() == wanted);
    let what = match (how(Intervals::Bands), how(Intervals::Bars)) {
        _ if how(Intervals::None) => return Some("intervals of so many lines are in tables only".to_owned()),
        (true, true) => "bands and bars",
        (true, false) => "bands",
        (false, _) => "bars",
    };
    let of = match bands.first()? {
        first if bands.iter().any(|other| other != first) => String::new(),
        Bands::Own => String::new(),
        Bands::ToFull => " of the difference to full".to_owned(),
        Bands::To(policy, compared) => format!(" of the difference to {}{compared}", escape::plain(policy)),
    };
    Some(format!("{what}: 95 % intervals{of}"))
}

/// The policy that bands are to be of differences to: the one `asked` for, else the first policy of the panel. `None` where the bands of
/// differences to the full cache can be told apart, or where no policy is better.
pub(crate) fn reference<'p>(panel: &'p Panel, asked: Option<&str>) -> Option<&'p str> {
    let is_block = panel.sizes().into_iter().any(|size| {
        let here = panel.points.iter().filter(|point| point.cache_size == Some(size));
        let bands: Vec<(f64, f64)> = here.filter_map(|point| of(panel, point)).collect();
        bands
            .iter()
            .any(|(low, _)| bands.iter().filter(|other| (other.0..=other.1).contains(low)).count() >= BLOCK)
    });
    let mut policies = panel.policies().into_iter().filter(|policy| *policy != "full");
    let reference = match asked {
        Some(asked) => policies.find(|policy| *policy == asked),
        None => policies.find(|policy| *policy != "truncate"),
    };
    let is_compared =
        |reference: &&str| panel.pairs.iter().any(|pair| [&*pair.policy, &*pair.against].contains(reference));
    reference.filter(is_compared).filter(|_| is_block && panel.metric.better != Better::Unknown)
}

/// The band around a point: what its difference to the full cache may be; where there is no such difference, what the value itself may
/// be.
pub(super) fn of(panel: &Panel, point: &Point) -> Option<(f64, f64)> {
    match &point.to_full {
        Some(to_full) => around(panel, point.estimate.value, to_full.shown),
        None if panel.full().is_some() && !panel.metric.has(Property::NoDifference) => None,
        None => around(panel, point.estimate.value, point.estimate),
    }
}

/// The interval of a difference, around the value that it is a difference of. It ends where no value can be.
fn around(panel: &Panel, value: f64, difference: Estimate) -> Option<(f64, f64)> {
    let interval = difference.interval?;
    let (low, high) = (value + interval.low - difference.value, value + interval.high - difference.value);
    let (least, most) = match panel.metric.pooling {
        Pooling::Share | Pooling::GeometricShare => (0.0, 100.0),
        Pooling::Perplexity | Pooling::Rate => (0.0, f64::INFINITY),
        Pooling::Mean => (f64::NEG_INFINITY, f64::INFINITY),
    };
    (low.is_finite() && high.is_finite()).then(|| (low.max(least), high.min(most)))
}
