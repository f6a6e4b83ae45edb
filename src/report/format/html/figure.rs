//! A figure of the page: one or several charts, linear and logarithmic, their legend and what is to be said of them.
//!
//! Charts are those of the files. Both scales are in the page and the style sheet shows one; the excess over the full cache is
//! below them.

use std::collections::BTreeMap;

use anyhow::Result;
use indexmap::IndexSet;
use maud::{Markup, PreEscaped, html};

use super::json::inside_script;
use crate::format::capital;
use crate::report::escape;
use crate::report::figure::chart::Surroundings;
use crate::report::figure::{
    Chart, Content, Figure, Marker, Plain, Scene, SeriesStyle, SeriesStyles, SquareMap, SquareMaps, Stroke, chart,
};

/// Widths of a chart and heights of its plot, alone and among others. In points, of which the style sheet makes about two
/// pixels each.
const ALONE: (f64, f64) = (264.0, 145.0);
const AMONG: (f64, f64) = (180.0, 105.0);

/// The figure of one chart or several.
pub(super) fn figure(figure: &Figure, styles: &SeriesStyles) -> Markup {
    let drawings = match &figure.content {
        Content::Charts(drawings) => drawings,
        Content::Maps(maps) => return square_maps(maps, &figure.title),
        Content::Picture(draw) => return picture(&draw(Plain::default())),
    };
    let Some((_, charts)) = drawings.first() else { return html! {} };
    let alone = charts.len() == 1;
    let styles = &figure.styles(styles);
    let named = alone && charts[0].has_room_at_ends(ALONE.0);
    html! {
        figure.figure.both[drawings.len() > 1] {
            @for ((scale, charts), (_, title)) in drawings.iter().zip(figure.files()) {
                div class={ "scale " (scale) } {
                    @for first in charts.iter().take(1) { p.question { (escape::plain(&first.question())) } }
                    div.charts.alone[alone] {
                        @for chart in charts { (one(chart, styles, &title, (alone, named))) }
                    }
                }
            }
            (legend(charts, styles, named))
            figcaption {
                (capital(&escape::plain(&figure.title))) "."
                @for note in notes(drawings) { " " (capital(&note)) "." }
            }
        }
    }
}

/// What is to be said of any of its charts, once.
fn notes(drawings: &[(&str, Vec<Chart>)]) -> IndexSet<String> {
    drawings.iter().flat_map(|(_, charts)| chart::notes(charts)).collect()
}

fn one(chart: &Chart, styles: &SeriesStyles, title: &str, (alone, named): (bool, bool)) -> Markup {
    let label = format!("{title}; {}", chart.title);
    let (width, plot) = if alone { ALONE } else { AMONG };
    let mut scene = Scene::new(title, width);
    let plot = chart.plot_height(plot, named);
    scene.height = Chart::height(plot, 1);
    // Titles are text of the page, which wraps; above a chart alone there is the heading of its setting.
    let around = Surroundings { heading: &[], labelled: true, named };
    chart.draw(&mut scene, (0.0, 0.0), (width, plot), styles, around);
    html! {
        div.chart {
            @if !alone { p.chart-title { (escape::plain(&chart.title)) } }
            (PreEscaped(scene.inline("", &label)))
        }
    }
}

fn square_maps(maps: &SquareMaps, title: &str) -> Markup {
    html! {
        figure.figure {
            @for row in maps.rows() {
                div.charts {
                    @for map in row {
                        div.chart {
                            p.chart-title { (map.title) }
                            (PreEscaped(square_map(map).inline("", &format!("{title}; {}", map.title))))
                        }
                    }
                }
            }
            figcaption { (escape::plain(title)) ". " (capital(&maps.about)) "." }
        }
    }
}

fn square_map(map: &SquareMap) -> Scene {
    let width = map.width(AMONG.0);
    let mut scene = Scene::new(&*map.title, width);
    scene.height = map.height();
    map.draw(&mut scene, (0.0, 0.0), width, (&[], true));
    scene
}

fn legend(charts: &[Chart], styles: &SeriesStyles, named: bool) -> Markup {
    html! {
        ul.legend {
            @for (name, stroke) in chart::legend(charts, styles, named) {
                @let style = match stroke { Stroke::Policy(style) => Some(style), _ => None };
                @let is_policy = style.is_some() || matches!(stroke, Stroke::Full);
                li class=[style.map(SeriesStyle::class)] data-policy=[is_policy.then_some(&name)] {
                    svg.sample viewBox="0 0 32 14" aria-hidden="true" {
                        path class=(stroke.look().0) d="M1 7H31" {}
                        @if let Some(style) = style {
                            @let (path, filled) = marker_path(style.marker);
                            g transform="translate(16 7)" { path.mark.open[!filled] d=(path) {} }
                        }
                    }
                    (name)
                }
            }
        }
    }
}

/// A marker's outline around the origin, in pixels, and whether it is filled.
fn marker_path(marker: Marker) -> (String, bool) {
    let (filled, outlines) = marker.strokes((0.0, 0.0), 4.4);
    let trace = |outline: &Vec<(f64, f64)>| {
        let steps: Vec<String> = outline.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        format!("M{}{}", steps.join("L"), if filled { "Z" } else { "" })
    };
    (outlines.iter().map(trace).collect(), filled)
}

/// For each policy its classes, its marker's outline, and whether that is open, as the page's script draws a sample's numbers.
pub(super) fn looks(styles: &SeriesStyles) -> Result<String> {
    let look = |(policy, style): (&str, SeriesStyle)| {
        let (path, filled) = marker_path(style.marker);
        (escape::plain(policy), (style.class(), path, !filled))
    };
    inside_script(&styles.iter().map(look).collect::<BTreeMap<_, _>>())
}

/// A figure as it is in the files.
fn picture(scene: &Scene) -> Markup {
    let title = escape::plain(&scene.title);
    html! {
        figure.figure {
            div.box tabindex="0" role="region" aria-label=(title) { (PreEscaped(scene.inline("picture", &title))) }
            figcaption { (title) "." }
        }
    }
}
