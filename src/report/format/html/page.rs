//! The page from head to foot: the order of its parts, which are folded, and what the browser may load.
//!
//! The content security policy allows the page's own style and script, by their digests, and pictures inside the page;
//! everything else, the network above all, is refused.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::{facts, figure, points, samples, table};
use crate::format::capital;
use crate::metric::Property;
use crate::report::document::table::Sheet;
use crate::report::escape;
use crate::report::figure::curve::Figure;
use crate::report::figure::scene::Scene;
use crate::report::sections::floor_to_ceiling;
use crate::report::sections::pairing;
use crate::report::sections::retention::Section;
use crate::report::sections::sheets;
use crate::report::series::key::SeriesKey;
use crate::report::series::panel::Panel;
use crate::report::write_report::Report;

const STYLE: &str = include_str!("page.css");
/// One script, in the order of use.
const SCRIPT: &str = concat!(
    include_str!("tips.js"),
    include_str!("course.js"),
    include_str!("samples.js"),
    include_str!("page.js")
);

/// What all parts of the page need.
struct Page<'a> {
    report: &'a Report<'a>,
    /// The names of policies.
    known: Vec<&'a str>,
}

pub(super) fn page(report: &Report<'_>) -> Result<String> {
    let known = report.styles.iter().map(|(policy, _)| policy).chain(["full"]).collect();
    let page = Page { report, known };
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        digest(STYLE),
        digest(SCRIPT)
    );
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "tova-bench " (env!("CARGO_PKG_VERSION")) };
                title { (escape::plain(&report.asked.title())) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "Skip to the results" }
                (page.header())
                main #main tabindex="-1" {
                    @if !report.figures.combined.is_empty() { (page.overview()) }
                    @for (at, key) in report.keys.iter().enumerate() { (page.key(at, key)) }
                    (page.enough())
                    (page.further())
                    (page.samples())
                    (facts::origin(report.results))
                }
                footer { p { a href="#glossary" { "Words of this page" } ". Written by tova-bench " (env!("CARGO_PKG_VERSION")) " from result rows. This page loads nothing from a network and sends nothing to one." } }
                div #tip aria-hidden="true" hidden {}
                script #points type="application/json" { (PreEscaped(points::json(&report.results.panels, &report.keys, &report.styles)?)) }
                script #rows type="application/json" { (PreEscaped(samples::json(&report.results.series, &report.keys, &report.asked.policies, samples::BUDGET)?)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    Ok(whole.into_string())
}

/// A text's digest as a content security policy writes it.
pub(super) fn digest(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// What a reader opens.
fn fold(title: &str, open: bool, inside: Markup) -> Markup {
    html! { details.fold open[open] { summary { (capital(&escape::plain(title))) } (inside) } }
}

impl Page<'_> {
    fn header(&self) -> Markup {
        html! {
            header.top {
                h1 { (escape::plain(&self.report.asked.title())) }
                (facts::question(&self.report.asked))
            }
            // Filled by the script.
            div #controls.controls role="region" aria-label="What is shown" hidden {}
        }
    }

    /// Panels of one metric side by side, as in the paper's Figure 3.
    fn overview(&self) -> Markup {
        html! {
            section.part aria-labelledby="overview" {
                h2 #overview { "Side by side" }
                @for (at, figure) in self.report.figures.combined.iter().enumerate() {
                    (fold(&figure.title, at == 0, figure::figure(figure, &self.report.styles)))
                }
            }
        }
    }

    /// How much cache is enough for all keys together, where there are several.
    fn enough(&self) -> Markup {
        let report = self.report;
        html! {
            @if report.enough.is_some() || !report.unmeasured.is_empty() {
                section.part aria-labelledby="enough" {
                    h2 #enough { "All settings together" }
                    @if let Some(sheet) = &report.enough { (self.sheet(sheet, None)) }
                    ul.notes { @for note in &report.unmeasured { li { (escape::plain(note)) } } }
                }
            }
        }
    }

    /// Sheets of the caller, folded.
    fn further(&self) -> Markup {
        html! {
            @if !self.report.extra.is_empty() {
                section.part aria-labelledby="further" {
                    h2 #further { "Compared with the paper" }
                    @for sheet in &self.report.extra { (fold(&sheet.title, false, self.sheet(sheet, None))) }
                }
            }
        }
    }

    /// One key: its first metric in full view, everything else folded.
    fn key(&self, at: usize, key: &SeriesKey) -> Markup {
        let panels = self.report.panels.iter().zip(&self.report.figures.single);
        let mut panels: Vec<(&Panel, &Option<Figure>)> = panels.filter(|(panel, _)| panel.key == *key).collect();
        let kept = self.report.sections.iter().zip(&self.report.section_figures);
        let kept = kept.into_iter().find(|(section, _)| section.key() == key);
        // Metrics that the section below shows in detail come last.
        panels.sort_by_key(|(panel, figure)| {
            kept.is_some() && figure.is_none() && panel.metric.has(Property::Detail)
        });
        let timed = self.report.timing(key);
        let (id, title) = (format!("setting-{at}"), key.title(&self.report.keys));
        html! {
            section.key.part id=(id) aria-labelledby={ (id) "-title" } data-task=(escape::plain(&key.task))
                data-model=(escape::plain(&key.model)) data-dataset=(escape::plain(&key.dataset)) {
                h2 id={ (id) "-title" } { (title) }
                @if let Some(timed) = timed {
                    // The table has what the panels say, so only the first one's curve is in full view.
                    @if let Some((_, Some(shown))) = panels.first() { (figure::figure(shown, &self.report.styles)) }
                    (self.sheet(&sheets::of_timing(timed), None))
                }
                @for (place, (panel, figure)) in panels.iter().enumerate() {
                    @let figure = figure.as_ref().filter(|_| place > 0 || timed.is_none());
                    @let first = place == 0 && timed.is_none();
                    @let enough = self.report.enough_of[at].as_ref().filter(|_| place == 0);
                    (self.panel(panel, figure, enough, first))
                }
                @if let Some((section, figures)) = kept { (self.kept(section, figures)) }
                @if let Some(sheet) = &self.report.evicted[at] { (fold(&sheet.title, false, self.sheet(sheet, None))) }
                details.fold {
                    summary { "All settings of these numbers" }
                    dl.facts {
                        @for (name, value) in key.headed_details() { (facts::fact(name, &[escape::plain(&value)])) }
                        (facts::fact("whole revision", &[escape::plain(&key.model_revision)]))
                    }
                }
            }
        }
    }

    fn panel(&self, panel: &Panel, figure: Option<&Figure>, enough: Option<&Sheet>, first: bool) -> Markup {
        let name = capital(&panel.metric.label);
        let metric = escape::plain(&panel.metric.id);
        let mut headline = sheets::headline(panel).into_iter();
        let lead = headline.next();
        let reference = self.report.reference.as_deref();
        let body = html! {
            div.pair {
                @if let Some(shown) = figure { (figure::figure(shown, &self.report.styles)) }
                @if let Some(sheet) = &lead { (self.sheet(sheet, None)) }
            }
            @if let Some(sheet) = enough { (self.sheet(sheet, None)) }
            @for sheet in headline {
                @if first { (fold(&sheet.title, false, self.sheet(&sheet, None))) }
                @else { (self.sheet(&sheet, None)) }
            }
            @if let Some(sheet) = floor_to_ceiling::sheet(panel) { (self.sheet(&sheet, None)) }
            @if let Some(sheet) = pairing::sheet(panel, reference) { (fold(&sheet.title, false, self.sheet(&sheet, None))) }
        };
        html! {
            @if first {
                div.panel data-metric=(metric) { (body) }
            } @else {
                details.panel.fold data-metric=(metric) { summary { (name) } (body) }
            }
            (self.parts(panel))
        }
    }

    /// A metric by slices of the samples.
    fn parts(&self, panel: &Panel) -> Markup {
        html! {
            @for (parts, charts) in self.report.breakdowns_of(panel) {
                @let tables = sheets::of_parts(parts);
                // A map of needles is what such a task is about.
                @let is_map = charts.as_ref().is_some_and(|charts| charts.maps.is_some());
                details.panel.fold open[is_map] data-metric=(escape::plain(&panel.metric.id)) {
                    summary { (capital(&escape::plain(&sheets::title_of_parts(parts)))) }
                    @if let Some(charts) = charts { (figure::figure(charts, &self.report.styles)) }
                    div.sheets { @for (size, sheet) in &tables { (self.sheet(sheet, Some(*size))) } }
                }
            }
        }
    }

    /// Which tokens are kept, with figures as images.
    fn kept(&self, section: &Section<'_>, figures: &[(String, Scene)]) -> Markup {
        html! {
            div.kept {
                h3 { "What is kept" }
                p.about { (section.about()) }
                @for (place, (_, scene)) in figures.iter().enumerate() {
                    @let picture = figure::picture(scene);
                    @if place == 0 { (picture) } @else { (fold(&scene.title, false, picture)) }
                }
                @for sheet in section.sheets() {
                    details.panel.fold data-metric="lifetime" { summary { (escape::plain(&sheet.title)) } (self.sheet(&sheet, None)) }
                }
            }
        }
    }

    /// Where the script shows single samples.
    fn samples(&self) -> Markup {
        html! {
            section.part #samples aria-labelledby="samples-title" {
                h2 #samples-title { "Sample by sample" }
                p.lead {
                    "One text under every policy and size: its own numbers (its sum over its weight, not pooled with others), how they \
                     develop along the text where that was measured, and the text that was generated, if any."
                }
                noscript { p { "This part needs JavaScript; everything above works without it." } }
                div #drill {}
            }
        }
    }

    fn sheet(&self, sheet: &Sheet, size: Option<u32>) -> Markup {
        table::sheet(sheet, &self.known, size)
    }
}
