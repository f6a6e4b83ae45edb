//! A figure of the page: one or several charts, linear and logarithmic, their legend and what is to be said of them.
//!
//! Both scales are in the page and the style sheet shows one. It decides nothing about axes, and draws no chart itself.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};

use super::super::chart::{Chart, Shown};
use super::super::curve::Figure;
use super::super::escape;
use super::super::points::Panel;
use super::super::scene::Scene;
use super::super::sheets::capital;
use super::plot::{self, Room};
use super::tone::Palette;

/// The figure; `panel` is the one it shows where it shows one.
pub(super) fn figure(figure: &Figure<'_>, palette: &Palette<'_>, panel: Option<&Panel>) -> Markup {
    let Some((_, charts)) = figure.drawings.first() else { return html! {} };
    let alone = charts.len() == 1;
    let room = if alone { plot::ALONE } else { plot::AMONG };
    html! {
        figure.figure.both[figure.drawings.len() > 1] {
            @for (scale, charts) in &figure.drawings {
                div class={ "scale " (scale) } {
                    div.charts.alone[alone] {
                        @for chart in charts { (one(chart, palette, room, &figure.title, scale, panel.filter(|_| alone), alone)) }
                    }
                    @let missing = off_scale(charts, palette);
                    @if !missing.is_empty() { p.about { "Off this axis: " (missing) "." } }
                }
            }
            (legend(charts, palette))
            figcaption {
                (capital(&escape::plain(&figure.title))) "."
                @if charts.iter().any(Chart::has_bands) {
                    " Bands: 95 % bootstrap interval"
                    @if charts.iter().all(|chart| chart.paired) { " of the difference to full" }
                    "."
                }
            }
        }
    }
}

fn one(
    chart: &Chart,
    palette: &Palette<'_>,
    room: Room,
    title: &str,
    scale: &str,
    panel: Option<&Panel>,
    alone: bool,
) -> Markup {
    let name = format!("{title}, {scale} axis; {}", chart.title);
    html! {
        div.chart {
            @if !alone { p.chart-title { (escape::plain(&chart.title)) } }
            (plot::svg(chart, palette, room, &escape::plain(&name), panel))
        }
    }
}

/// What is measured but cannot be seen.
fn off_scale(charts: &[Chart], palette: &Palette<'_>) -> String {
    let told = palette.policies().filter_map(|policy| {
        let name = escape::plain(policy);
        match charts.iter().filter_map(|chart| chart.shown(policy)).max()? {
            Shown::All => None,
            Shown::Part => Some(format!("{name} (in part)")),
            Shown::Nothing => Some(name),
        }
    });
    told.collect::<Vec<_>>().join(", ")
}

fn legend(charts: &[Chart], palette: &Palette<'_>) -> Markup {
    let shown = |policy: &&str| charts.iter().any(|chart| chart.shown(policy).is_some());
    html! {
        ul.legend {
            @if charts.iter().any(Chart::has_full) {
                li data-policy="full" { (sample(html! { path.reference.full d="M1 7H31" {} })) "full" }
            }
            @for policy in palette.policies().filter(shown) {
                li class=(palette.class(policy)) data-policy=(escape::plain(policy)) {
                    (sample(html! {
                        path.stroke d="M1 7H31" {}
                        @if let Some(look) = palette.look(policy) { g transform="translate(16 7)" { (plot::mark(look.marker)) } }
                    }))
                    (escape::plain(policy))
                }
            }
            @if charts.iter().any(Chart::has_chance) {
                li {
                    (sample(html! { path.reference.chance d="M1 7H31" {} }))
                    @if charts.iter().all(Chart::is_recall) { "chance" } @else { "trivial answer" }
                }
            }
        }
    }
}

fn sample(inside: Markup) -> Markup {
    html! { svg.sample viewBox="0 0 32 14" aria-hidden="true" { (inside) } }
}

/// A figure that exists as a drawing only, on a white card.
pub(super) fn picture(scene: &Scene) -> Result<Markup> {
    let data = STANDARD.encode(scene.svg()?);
    let title = escape::plain(&scene.title);
    Ok(html! {
        figure.figure {
            div.card { img src={ "data:image/svg+xml;base64," (data) } alt=(title); }
            figcaption { (title) "." }
        }
    })
}
