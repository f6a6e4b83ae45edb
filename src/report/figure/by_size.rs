//! The figures over the cache size: every panel linear, logarithmic and as excess over the full cache.

use std::rc::Rc;

use crate::metric::Property;
use crate::report::escape;
use crate::report::figure::{Chart, Content, EXCESS, Figure, Scale, chart, excess};
use crate::report::series::{Panel, SeriesKey, SizeAxis};

/// The figure of each panel that has a curve to show; `None` where only the full cache was measured, and for details. A `reference` is the
/// policy that bands may be of differences to; without one, the first. Without an `axis` it is memory where caches of one size hold
/// unequal memory.
pub(crate) fn figures(
    panels: &[Panel],
    reference: Option<&str>,
    axis: Option<SizeAxis>,
) -> Vec<Option<Rc<Figure>>> {
    let settings: Vec<SeriesKey> = panels.iter().map(|panel| panel.key.clone()).collect();
    let figure = |(panel, stem): (&Panel, String)| {
        let has_curve = !panel.sizes().is_empty() && !panel.metric.has(Property::Detail);
        has_curve.then(|| Rc::new(by_size(panel, stem, &settings, (reference, panel.size_axis(axis)))))
    };
    panels.iter().zip(stems(panels, &settings)).map(figure).collect()
}

/// A panel over the cache size, in the scales worth drawing.
fn by_size(
    panel: &Panel,
    stem: String,
    settings: &[SeriesKey],
    (asked, axis): (Option<&str>, SizeAxis),
) -> Figure {
    let title = panel.key.title(settings);
    // Places of memory have no two policies, so nothing is compared there.
    let reference = chart::reference(panel, asked).filter(|_| axis == SizeAxis::Entries);
    let draw = |panel: &Panel, title, scale| Chart::by_size(panel, title, scale, (reference, axis));
    let mut drawings = vec![("linear", vec![draw(panel, title.clone(), Scale::Linear)])];
    if panel.metric.has_log_axis() {
        drawings.push(("log", vec![draw(panel, title.clone(), Scale::Log)]));
    }
    drawings.extend(excess::charts(&[(panel, title)], draw).map(|charts| (EXCESS, charts)));
    let title = format!("{}, by {}", panel.title(settings), axis.words());
    Figure { stem, title, content: Content::Charts(drawings) }
}

/// File names that say what is drawn; where two would be equal, each gets a fingerprint of all its settings.
fn stems(panels: &[Panel], settings: &[SeriesKey]) -> Vec<String> {
    let plain: Vec<String> = panels
        .iter()
        .map(|panel| format!("{}-{}", panel.metric.slug(), escape::slugs(&panel.key.title(settings))))
        .collect();
    let distinct = |(stem, panel): (&String, &Panel)| match plain.iter().filter(|other| *other == stem).count() {
        1 => stem.clone(),
        _ => format!("{stem}-{}", escape::fingerprint(&format!("{} {}", panel.key.described(), panel.metric.id))),
    };
    plain.iter().zip(panels).map(distinct).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::figure::{Plain, Scene, SeriesStyles, texts};
    use crate::report::fixture::{cell, panels};

    /// Perplexities at sizes, of one sample each.
    fn line(policy: &str, points: &[(u32, f64)]) -> Vec<Row> {
        let at =
            |(size, perplexity): &(u32, f64)| cell("nll", policy, Some(*size), &[("a", perplexity.ln(), 1.0)]);
        points.iter().flat_map(at).collect()
    }

    #[test]
    fn policies_off_the_scale_are_named() {
        let full = cell("nll", "full", None, &[("a", 5f64.ln(), 1.0)]);
        let window = line("window", &[(8, 900.0), (16, 400.0)]);
        let all =
            [full, window, line("h2o", &[(8, 9.0), (16, 7.0)]), line("tova", &[(8, 8.0), (16, 6.0)])].concat();
        let panels = panels(&all);
        let styles = SeriesStyles::of(&panels);
        let figures = figures(&panels, None, None);
        let figure = figures[0].as_ref().unwrap();
        let [linear, log, excess] = &figure.scenes(&styles, Plain::default())[..] else {
            panic!("two scales and the excess expected")
        };
        let has = |scene: &Scene, expected: &str| texts(scene).iter().any(|placed| placed.text == expected);
        assert!(has(linear, "window"), "{:?}", texts(linear));
        assert!(has(log, "window") && has(log, "full 5.00"), "{:?}", texts(log));
        // ln(900 / 5) = 5.2 is on the axis of the excess.
        assert!(has(excess, "window") && has(excess, "5"), "{:?}", texts(excess));
    }

    #[test]
    fn nothing_leaves_the_page() {
        let names: Vec<String> =
            (0..20).map(|i| format!("a policy with quite a long name, number {i}, and more")).collect();
        let all: Vec<Row> = names.iter().flat_map(|name| line(name, &[(1, 3.0), (1_000_000, 2.0)])).collect();
        let all: Vec<Row> = all.into_iter().map(|row| Row { model: "m".repeat(300).into(), ..row }).collect();
        let panels = panels(&all);
        let styles = SeriesStyles::of(&panels);
        let figures = figures(&panels, None, None);
        let scene = &figures[0].as_ref().unwrap().scenes(&styles, Plain::default())[1];
        let placed = texts(scene);
        assert!(placed.len() > 25);
        for text in placed {
            assert!(text.is_inside(scene), "{text:?} is outside {} x {}", scene.width, scene.height);
        }
        // No coordinate of a line or an area is outside either.
        let svg = scene.svg();
        let (width, height) = scene.size();
        for path in svg.split(" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            for point in path.trim_end_matches('Z').split(['M', 'L']).skip(1) {
                let (x, y) = point.split_once(' ').unwrap();
                let (x, y): (i64, i64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((0..=i64::from(width)).contains(&x) && (0..=i64::from(height)).contains(&y), "{path}");
            }
        }
    }

    #[test]
    fn the_excess_follows_the_perplexity_in_files_named_like_its() {
        let full = cell("nll", "full", None, &[("a", 5f64.ln(), 1.0)]);
        let one = [full, line("tova", &[(8, 8.0), (16, 6.0)])].concat();
        let other =
            one.iter().map(|row| Row { model: "b/other".into(), cell: row.cell.to_uppercase(), ..row.clone() });
        let figures = figures(&panels(&one.iter().cloned().chain(other).collect::<Vec<_>>()), None, None);
        let stem = "perplexity-llama-2-7b-hf-pg19";
        let title = "Perplexity: Llama-2-7b-hf · pg19, by cache size";
        let expected = [("linear", ", linear axis"), ("log", ", log axis"), ("excess", ", excess over full")];
        let expected = expected.map(|(end, how)| (format!("{stem}-{end}"), format!("{title}{how}")));
        assert_eq!(figures[0].as_ref().unwrap().files(), expected);
    }

    #[test]
    fn files_of_different_settings_never_collide() {
        let rows = |model: &str| {
            line("tova", &[(8, 2.0)]).into_iter().map(|row| Row { model: model.into(), ..row }).collect()
        };
        let all: Vec<Vec<Row>> = vec![rows("模型"), rows("型模"), rows("a/x"), rows("b/x"), rows("all")];
        let panels = panels(&all.concat());
        let figures = figures(&panels, None, None);
        let mut stems: Vec<&str> = figures.iter().flatten().map(|figure| figure.stem.as_str()).collect();
        let all = stems.len();
        stems.sort_unstable();
        stems.dedup();
        assert_eq!((stems.len(), all), (5, 5), "{stems:?}");
    }
}
