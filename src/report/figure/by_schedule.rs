//! A metric over schedules: a chart for each cache size, a line for each policy that has several.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use crate::eviction::Schedule;
use crate::report::figure::{Axis, Chart, Content, EXCESS, Figure, Horizontal, Line, Scale, chart, excess};
use crate::report::series::{Panel, Schedules, SeriesKey, Size};

/// `None` where no policy has several schedules at one size. Bands may be of differences to the policy that is `asked` for, or the first,
/// at the same schedule. The figure of the panel over sizes is the `whole`.
pub(crate) fn figure(
    panel: &Panel,
    schedules: &Schedules,
    whole: &Figure,
    (keys, asked): (&[SeriesKey], Option<&str>),
) -> Option<Figure> {
    let titled = |size: Size| Some((at(panel, schedules, size)?, size.words()));
    let of_sizes: Vec<(Panel, String)> = panel.sizes().into_iter().filter_map(titled).collect();
    let shown = of_sizes.iter().flat_map(|(panel, _)| &panel.points);
    let shown: BTreeSet<Schedule> = shown.filter_map(|point| Some(schedules.get(&point.policy)?.1)).collect();
    let shown: Vec<Schedule> = shown.into_iter().collect();
    if shown.is_empty() {
        return None;
    }
    let panels: Vec<(&Panel, String)> = of_sizes.iter().map(|(panel, title)| (panel, title.clone())).collect();
    let crowded = of_sizes.iter().find_map(|(panel, _)| chart::reference(panel, asked));
    let reference = crowded.map(|policy| schedules.get(policy).map_or(policy, |(policy, _)| policy));
    let places = (&shown[..], reference);
    let chart = |panel: &Panel, title: String, scale: Scale| over(panel, schedules, places, title, scale);
    let drawing = match excess::charts(&panels, chart) {
        Some(charts) => (EXCESS, charts),
        None => {
            ("linear", panels.iter().map(|(panel, title)| chart(panel, title.clone(), Scale::Linear)).collect())
        }
    };
    let title = format!("{}, by schedule", panel.title(keys));
    let stem = format!("{}-by-schedule", whole.stem);
    Some(Figure { stem, title, content: Content::Charts(vec![drawing]) })
}

/// The points at a size of policies that have several schedules there, and the full cache's.
fn at(panel: &Panel, schedules: &Schedules, size: Size) -> Option<Panel> {
    let here = || panel.points.iter().filter(move |point| point.cache_size == Some(size));
    let without = |policy: &str| schedules.get(policy).map(|(without, _)| without);
    let has_several = |policy: &str| {
        let own = without(policy);
        own.is_some() && here().filter(|other| without(&other.policy) == own).count() > 1
    };
    let points: Vec<_> = here().filter(|point| has_several(&point.policy)).chain(panel.full()).cloned().collect();
    points.iter().any(|point| !point.is_full()).then(|| Panel { points, ..panel.clone() })
}

/// A chart of points at one size.
fn over(
    panel: &Panel,
    schedules: &Schedules,
    (shown, reference): (&[Schedule], Option<&str>),
    title: String,
    scale: Scale,
) -> Chart {
    // The variant of the reference that has a schedule.
    let compared = |wanted: &Schedule| {
        let mut variants = schedules.iter().filter(|(_, (policy, _))| Some(policy.as_str()) == reference);
        variants.find(|(_, (_, schedule))| schedule == wanted).map_or("", |(variant, _)| variant)
    };
    let mut lines: IndexMap<&str, Vec<chart::Measurement>> = IndexMap::new();
    for point in &panel.points {
        let Some((policy, schedule)) = schedules.get(&point.policy) else { continue };
        let place = shown.iter().position(|other| other == schedule).unwrap_or(0);
        let spot = chart::measurement(panel, point, place as f64);
        let spot = spot.against(panel, reference.map(|_| compared(schedule)));
        lines.entry(policy).or_default().push(spot);
    }
    let line = |(policy, mut spots): (&str, Vec<chart::Measurement>)| {
        spots.sort_by(|a, b| a.across.total_cmp(&b.across));
        Line { policy: policy.to_owned(), spots }
    };
    let lines = lines.into_iter().map(line).collect();
    let names: Vec<String> = shown.iter().map(ToString::to_string).collect();
    Chart::of_panel(panel, title, (Horizontal::Named("schedule"), Axis::of_names(&names)), scale, lines)
        .asking("Does it matter when entries leave?")
        .with_bands_of(reference, " at the same schedule")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::by_size::figures;
    use crate::report::figure::{Plain, SeriesStyles, texts};
    use crate::report::fixture::{cell, changed};
    use crate::report::series::{self, Results};

    #[test]
    fn policies_with_several_schedules_become_lines() {
        let own = |policy: &str, schedule: &str, size: u32, value: f64| {
            let rows = cell("nll", policy, Some(size), &[("a", value, 1.0), ("b", value, 1.0)]);
            changed(rows, |row| {
                row.cell = format!("{policy}-{schedule}-{size}").into();
                row.schedule = Some(schedule.into());
            })
        };
        let all = [
            cell("nll", "full", None, &[("a", 1.0, 1.0), ("b", 1.0, 1.0)]),
            own("tova", "cut", 64, 1.1),
            own("tova", "1", 64, 1.3),
            own("tova", "128", 64, 1.2),
            // Its own schedule is to cut.
            own("snapkv", "cut", 64, 1.4),
            own("snapkv", "cut+1", 64, 1.5),
            own("h2o", "1", 64, 1.6),
            own("tova", "1", 128, 1.1),
        ]
        .concat();
        let results = Results::of(&all).unwrap();
        let panels = results.whole();
        let whole = figures(&panels, None, None)[0].clone().unwrap();
        let schedules = series::schedules(&all);
        let figure = figure(&panels[0], &schedules, &whole, (&[panels[0].key.clone()], None)).unwrap();
        let Content::Charts(drawings) = &figure.content else { panic!("charts expected") };
        let [(EXCESS, charts)] = &drawings[..] else { panic!("the excess expected") };
        assert_eq!(charts.len(), 1);
        let chart = &charts[0];
        let labels: Vec<&str> = chart.across.ticks.iter().map(|tick| tick.label.as_str()).collect();
        assert_eq!(labels, ["1", "128", "cut", "cut+1"]);
        let mut lines: Vec<(&str, Vec<(f64, f64)>)> = chart
            .lines
            .iter()
            .map(|line| {
                let spots =
                    line.spots.iter().map(|spot| (spot.across, (spot.point.estimate.value * 10.0).round()));
                (line.policy.as_str(), spots.collect())
            })
            .collect();
        lines.sort_by_key(|(policy, _)| *policy);
        let expected =
            [("snapkv", vec![(2.0, 4.0), (3.0, 5.0)]), ("tova", vec![(0.0, 3.0), (1.0, 2.0), (2.0, 1.0)])];
        assert_eq!(lines, expected);
        // Every line has a colour, though no row is called by its name alone.
        let cut = own("h2o", "cut", 64, 1.6).into_iter().chain(own("h2o", "16", 64, 1.7)).collect::<Vec<_>>();
        let results = Results::of(&cut).unwrap();
        let (panels, schedules) = (results.whole(), series::schedules(&cut));
        let styles = SeriesStyles::with_schedules(&panels, &schedules);
        let whole = figures(&panels, None, None)[0].clone().unwrap();
        let figure = super::figure(&panels[0], &schedules, &whole, (&[panels[0].key.clone()], None)).unwrap();
        let placed = texts(&figure.scenes(&styles, Plain::default())[0]);
        assert!(placed.iter().any(|text| text.text == "h2o"), "{placed:?}");
    }
}
