//! Figures of a metric by slices: by distance and over long texts a chart for each cache size, by length and depth a map for each
//! policy and cache size.

use crate::metric::Slice;
use crate::report::figure::{
    Axis, Chart, Content, Figure, Horizontal, Line, Reference, Scale, SquareMaps, chart, needle_map,
};
use crate::report::series::{Breakdown, LENGTH_AND_DEPTH, Panel, Point, RUNNING, Size};

/// More markers on a curve would hide it.
const MOST_SPOTS: u64 = 24;

/// The figure of a breakdown, beside the figure of the `whole`; `title` says what that shows. `None` for breakdowns that have no
/// figure.
pub(crate) fn figure(breakdown: &Breakdown<'_>, whole: &Figure, title: &str) -> Option<Figure> {
    let charts = |chart: fn(&Breakdown<'_>, Size) -> Option<Chart>| {
        let charts = breakdown.sizes().into_iter().map(|size| chart(breakdown, size)).collect::<Option<Vec<_>>>();
        charts.filter(|charts| !charts.is_empty()).map(|charts| Content::Charts(vec![("linear", charts)]))
    };
    let (how, end, content) = match breakdown.by {
        "distance" => ("by distance", "by-distance", charts(over_octaves)?),
        "position" => ("by position", "by-position", charts(over_positions)?),
        RUNNING => ("over all tokens read so far", "running", charts(over_text)?),
        LENGTH_AND_DEPTH => ("by length and depth", "by-length-and-depth", Content::Maps(needles(breakdown))),
        _ => return None,
    };
    let title = format!("{title}, {how}");
    Some(Figure { stem: format!("{}-{end}", whole.stem), title, content })
}

/// A map for each policy and cache size.
pub(crate) fn needles(breakdown: &Breakdown<'_>) -> SquareMaps {
    let place = |&(slice, panel): &(&Slice, _)| {
        Some((u32::try_from(slice.single()?).ok()?, u32::try_from(slice.second?).ok()?, panel))
    };
    let places: Vec<needle_map::Place<'_>> = breakdown.panels.iter().filter_map(place).collect();
    needle_map::maps(&places, &breakdown.policies(), &breakdown.sizes())
}

/// A chart over octaves at one cache size; `None` where the slices are not octaves.
fn over_octaves(breakdown: &Breakdown<'_>, size: Size) -> Option<Chart> {
    let ends = |(slice, _): &(&Slice, _)| {
        Some((u32::try_from(slice.low?).ok().filter(|low| *low > 0)?, u32::try_from(slice.high?).ok()?))
    };
    let octaves: Vec<(u32, u32)> = breakdown.panels.iter().map(ends).collect::<Option<_>>()?;
    // A marker is in the middle of its octave, and ticks are at the borders.
    let middle = |(first, last): &(u32, u32)| (f64::from(*first) * (f64::from(*last) + 1.0)).sqrt();
    let spots: Vec<(&Panel, f64)> =
        breakdown.panels.iter().map(|(_, panel)| *panel).zip(octaves.iter().map(middle)).collect();
    let (first, end) = (octaves.first()?.0, octaves.last()?.1.checked_add(1)?);
    let borders: Vec<u32> =
        std::iter::successors(Some(first), |border| border.checked_mul(2)).take_while(|b| *b <= end).collect();
    let guess = spots.iter().filter_map(|(panel, middle)| Some((*middle, panel.guess?))).collect();
    let across = (Horizontal::Octaves("tokens between the fact and the answer"), Axis::of_sizes(&borders));
    Some(curves(breakdown, size, &spots, |_| true, across, guess).asking("From how far back are facts recalled?"))
}

/// A chart over ranges of positions at one cache size.
fn over_positions(breakdown: &Breakdown<'_>, size: Size) -> Option<Chart> {
    let names: Vec<String> = breakdown.panels.iter().map(|(slice, _)| slice.value()).collect();
    let spots: Vec<_> = breakdown.panels.iter().enumerate().map(|(at, (_, panel))| (*panel, at as f64)).collect();
    let across = (Horizontal::Named("tokens from the start of the sample"), Axis::of_names(&names));
    Some(
        curves(breakdown, size, &spots, |_| true, across, Vec::new())
            .asking("Where in a text is a small cache worse?"),
    )
}

/// The running average over a long text at one cache size, from where the text is longer than any usual sample.
pub(crate) fn over_text(breakdown: &Breakdown<'_>, size: Size) -> Option<Chart> {
    let ends: Vec<u64> = breakdown.panels.iter().map(|(slice, _)| slice.single()).collect::<Option<_>>()?;
    let step = ends.last()? / MOST_SPOTS;
    let mut shown: Vec<(&Panel, f64)> = Vec::new();
    let mut next = 4096.max(step);
    for (i, ((_, panel), &end)) in breakdown.panels.iter().zip(&ends).enumerate() {
        if end >= next || i + 1 == ends.len() {
            shown.push((panel, end as f64));
            next = end + step;
        }
    }
    let ends: Vec<f64> = shown.iter().map(|(_, end)| *end).collect();
    // Books differ far more than policies do: bands that are not of differences to full would hide everything.
    let has_band = |point: &Point| point.to_full.is_some() || point.is_full();
    let across = (Horizontal::Number("tokens read"), Axis::of_values(&ends, Scale::Linear));
    Some(
        curves(breakdown, size, &shown, has_band, across, Vec::new())
            .asking("Does a small cache last over a long text?"),
    )
}

/// A chart of each policy's points at one cache size, panels being at places along the axis.
fn curves(
    breakdown: &Breakdown<'_>,
    size: Size,
    panels: &[(&Panel, f64)],
    has_band: impl Fn(&Point) -> bool,
    across: (Horizontal, Axis),
    guess: Vec<(f64, f64)>,
) -> Chart {
    let spots = |policy: &str| -> Vec<chart::Measurement> {
        let spot = |(panel, place): &(&Panel, f64)| {
            let point = panel.shown_at(policy, Some(size))?;
            let spot = chart::measurement(panel, point, *place);
            Some(chart::Measurement { band: spot.band.filter(|_| has_band(point)), ..spot })
        };
        panels.iter().filter_map(spot).collect()
    };
    let policies = breakdown.policies().into_iter().filter(|policy| *policy != "full");
    let lines = policies.map(|policy| Line { policy: policy.to_owned(), spots: spots(policy) });
    let full = spots("full").into_iter().map(|spot| (spot.across, spot.point.estimate.value)).collect();
    let curve = |spots: Vec<(f64, f64)>| (!spots.is_empty()).then_some(Reference::Curve(spots));
    let title = (size.words(), breakdown.metric());
    let chart = Chart::new(title, across, Scale::Linear, lines.collect(), curve(full), curve(guess));
    // Not every text has every slice.
    let widest = panels.iter().map(|(panel, _)| *panel).max_by_key(|panel| (panel.clusters, panel.samples));
    match widest {
        Some(panel) => chart.over(panel),
        None => chart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{panels, recalls};
    use crate::report::series::breakdown::breakdowns;

    #[test]
    fn octaves_become_charts() {
        let panels = panels(&recalls());
        let [distance, kind] = &breakdowns(&panels)[..] else { panic!("two breakdowns expected") };
        let chart = over_octaves(distance, 32.into()).unwrap();
        assert!(chart.full.is_some() && chart.guess.is_some());
        let drawn: Vec<&str> = chart.lines.iter().map(|line| line.policy.as_str()).collect();
        assert!(drawn.contains(&"tova") && !drawn.contains(&"full"), "{drawn:?}");
        assert!(over_octaves(kind, 32.into()).is_none());
    }
}
