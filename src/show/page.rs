//! The page: it opens from a file, loads nothing from a network, and shows one step of the text without a script.

use std::iter::repeat;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::attention::{Attention, TOP};
use super::{SHADES, Side, View, shown};
use crate::report::{escape, page_head};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Tokens that the page links to because they cost most.
const PEAKS: usize = 12;

/// The page, as one HTML file, which opens after `at` tokens.
pub fn page(view: &View, at: usize) -> String {
    let heading = escape::plain(&view.heading());
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            (page_head(&heading, STYLE, SCRIPT))
            body {
                header {
                    h1 { (heading) }
                    p.facts { (escape::plain(&view.model)) " · " (facts(view)) }
                    noscript { p { "This is the text after " (at) " tokens. With scripts it can be read again token by token." } }
                }
                // Filled by the script.
                div #controls role="group" aria-label="What is shown" hidden {}
                main {
                    p.legend {
                        "A token is dark while all layers and heads hold it, and fades as they drop it:"
                        @for shade in (0..=SHADES).step_by(2) { " " span class={ "h" (shade) } { (shade * 100 / SHADES) " %" } }
                        ". " span.now { "The newest" } " is marked; tokens not yet read are blank."
                        span.scripted hidden { " Choose a token to see when it left" @if view.attention.is_some() { " and what it attends to" } "." }
                    }
                    div .sides .two[view.sides.len() > 1] {
                        @for (index, side) in view.sides.iter().enumerate() { (text(view, side, index, at)) }
                    }
                    section #token aria-live="polite" hidden {}
                    @if !view.full.is_empty() {
                        @for (index, side) in view.sides.iter().enumerate() { (cost(view, side, index)) }
                    }
                    section #strips hidden {}
                }
                footer { p { "Written by tova-bench " (env!("CARGO_PKG_VERSION")) ". This page loads nothing from a network and sends nothing to one." } }
                script #data type="application/json" { (PreEscaped(data(view, at))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    whole.into_string()
}

/// The length of the text, and the number of layers that read it.
fn facts(view: &View) -> String {
    let layers = crate::format::counted(view.sides[0].lifetimes.layers(), "layer");
    let written = match view.written {
        0 => String::new(),
        written => format!(", the last {written} written by the model and underlined"),
    };
    format!("{} tokens{written} · {layers}", view.tokens)
}

/// The text after `at` tokens.
fn text(view: &View, side: &Side, index: usize, at: usize) -> Markup {
    html! {
        section.side {
            @if view.sides.len() > 1 { h2 { (escape::plain(&side.name)) } }
            div.text dir="auto" tabindex="0" aria-label={ "The text, as " (escape::plain(&side.name)) " holds it" } data-side=(index) {
                @for (first, unit) in view.units() {
                    @let class = match side.shade(first, unit.tokens, at) {
                        _ if first >= at => "unread".to_owned(),
                        _ if at <= first + unit.tokens && at < view.tokens => "now".to_owned(),
                        shade => format!("h{shade}"),
                    };
                    span class=(class) data-written[first >= view.tokens - view.written] { (shown(&unit.text)) }
                }
            }
        }
    }
}

/// The cost of forgetting for each token, and links to where it is greatest.
fn cost(view: &View, side: &Side, index: usize) -> Markup {
    let costs = costs(view, side);
    let peaks = peaks(&costs);
    let most = costs.iter().flatten().fold(0.5_f32, |most, cost| most.max(*cost));
    let (width, height) = (view.tokens.max(2), 100.0);
    let y = |cost: f32| height * (1.0 - cost.clamp(0.0, most) / most);
    let path: String = costs
        .iter()
        .enumerate()
        .filter_map(|(at, cost)| {
            cost.filter(|cost| *cost > 0.01).map(|cost| format!("M{} 100V{:.1}", at + 1, y(cost)))
        })
        .collect();
    let mean = costs.iter().flatten().map(|cost| f64::from(*cost)).sum::<f64>()
        / costs.iter().flatten().count().max(1) as f64;
    html! {
        section.cost {
            h2 { "What forgetting cost" @if view.sides.len() > 1 { ": " (escape::plain(&side.name)) } }
            p { "Negative log-likelihood of each token, less that under the full cache, in nats: "
                (format!("{mean:+.3}")) " in the mean, " (format!("{most:.1}")) " at the top of the chart, which leaves out where it is lower." }
            svg.chart viewBox={ "0 0 " (width) " 100" } preserveAspectRatio="none" role="img" aria-label="Cost of each token" data-side=(index) {
                path d=(path) vector-effect="non-scaling-stroke" {}
            }
            @if !peaks.is_empty() {
                p { "Most at" }
                ul.peaks {
                    @for peak in peaks {
                        @let cost = costs[peak].unwrap_or_default();
                        li { a href={ "#t" (peak + 1) } data-token=(peak + 1) { "token " (peak + 2) } " " bdi { q { (context(view, peak + 1)) } } " " (format!("{cost:+.1}")) }
                    }
                }
            }
        }
    }
}

/// The cost of every token after the first above that under the full cache.
fn costs(view: &View, side: &Side) -> Vec<Option<f32>> {
    view.full.iter().zip(&side.nll).map(|(full, nll)| Some((*nll)? - (*full)?)).collect()
}

/// The tokens that cost most, at least a tenth of a nat, in the order of the text.
fn peaks(costs: &[Option<f32>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..costs.len()).filter(|at| costs[*at].is_some_and(|cost| cost > 0.1)).collect();
    order.sort_by(|a, b| costs[*b].partial_cmp(&costs[*a]).unwrap_or(std::cmp::Ordering::Equal));
    order.truncate(PEAKS);
    order.sort_unstable();
    order
}

/// A token and a few before it.
fn context(view: &View, token: usize) -> String {
    let unit = view.units().take_while(|(first, _)| *first <= token).count() - 1;
    let text: String = view.units[unit.saturating_sub(5)..=unit].iter().map(|unit| unit.text.as_str()).collect();
    shown(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The data of the script, as JSON that cannot end its element.
fn data(view: &View, at: usize) -> String {
    let counts: Vec<usize> = view.units.iter().map(|unit| unit.tokens).collect();
    let sides = view.sides.iter().map(|side| {
        let lifetimes = &side.lifetimes;
        let groups: Vec<usize> = (0..lifetimes.layers()).map(|layer| lifetimes.left(layer).len()).collect();
        let left = (0..lifetimes.layers()).flat_map(|layer| lifetimes.left(layer)).flatten();
        json!({
            "name": escape::plain(&side.name),
            "groups": groups,
            // The steps after which tokens leave, in two bytes each: (layers)(groups)(tokens)
            "left": STANDARD.encode(left.flat_map(|step| (*step as u16).to_le_bytes()).collect::<Vec<u8>>()),
            "nll": optional(&side.nll),
        })
    });
    let data = json!({
        "tokens": view.tokens,
        "at": at,
        "counts": if counts.iter().all(|count| *count == 1) { None } else { Some(counts) },
        "full": optional(&view.full),
        "sides": sides.collect::<Vec<_>>(),
        "attention": view.attention.as_ref().map(attention),
    });
    data.to_string().replace('<', "\\u003c")
}

/// Attention: of every token TOP others, as their numbers in two bytes, with shares.
fn attention(attention: &Attention) -> Value {
    let tops = attention.top.iter().map(|top| top.iter().copied().chain(repeat((0, 0.0))).take(TOP));
    let (tokens, shares): (Vec<usize>, Vec<f32>) = tops.flatten().unzip();
    let sides = attention.sides.iter().map(|side| {
        let top = side.top.iter().flat_map(|top| top.iter().copied().chain(repeat(0.0)).take(TOP));
        json!({
            "received": floats(side.received.iter().copied()),
            "paid": floats(side.paid.iter().copied()),
            "shares": floats(top),
        })
    });
    json!({
        "top": TOP,
        "received": floats(attention.received.iter().copied()),
        "tokens": STANDARD.encode(tokens.iter().flat_map(|token| (*token as u16).to_le_bytes()).collect::<Vec<u8>>()),
        "shares": floats(shares),
        "sides": sides.collect::<Vec<_>>(),
    })
}

/// Numbers in four bytes each.
fn floats(numbers: impl IntoIterator<Item = f32>) -> String {
    STANDARD.encode(numbers.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
}

/// Numbers in four bytes each, NaN where there is none.
fn optional(numbers: &[Option<f32>]) -> String {
    floats(numbers.iter().map(|number| number.unwrap_or(f32::NAN)))
}
