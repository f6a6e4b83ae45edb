//! The page from head to foot: what stands first, what is folded, and what the browser is forbidden to do.
//!
//! The content security policy lets in the page's own style and script by their digests, and pictures inside the page;
//! everything else, the network first, is refused. It computes nothing.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::super::curve::{self, Figure};
use super::super::escape;
use super::super::pairing;
use super::super::points::Panel;
use super::super::retention;
use super::super::setting::Setting;
use super::super::sheets::{self, capital};
use super::super::table::Sheet;
use super::super::throughput::{self, Throughput};
use super::table::Known;
use super::{Content, figure, points, provenance, samples, table, theme};

const STYLE: &str = include_str!("page.css");
/// One script: what the last of them uses stands before it.
const SCRIPT: &str = concat!(
    include_str!("tips.js"),
    include_str!("course.js"),
    include_str!("samples.js"),
    include_str!("page.js")
);

/// What all parts of the page need.
struct Page<'a> {
    content: &'a Content<'a>,
    known: Known<'a>,
    /// In the order of the page.
    settings: Vec<Setting>,
    /// The figure of each panel that has a curve.
    figures: Vec<Option<Figure<'a>>>,
    timed: Vec<Throughput>,
}

pub(super) fn page(content: &Content<'_>) -> Result<String> {
    let mut settings: Vec<Setting> = content.panels.iter().map(|panel| panel.setting.clone()).collect();
    settings.dedup();
    let figures = curve::figures(content.panels, content.styles);
    let style = format!("{STYLE}\n{}", theme::css());
    let known = Known(content.styles.names().chain(["full"]).collect());
    let timed = throughput::tables(content.rows);
    let page = Page { content, known, settings, figures: figures.single, timed };
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        digest(&style),
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
                title { "Cache size against quality" }
                style { (PreEscaped(&style)) }
            }
            body {
                a.skip href="#main" { "Skip to the results" }
                (page.header())
                main #main tabindex="-1" {
                    @if !figures.combined.is_empty() { (page.overview(&figures.combined)) }
                    @if !content.further.is_empty() { (page.further()) }
                    @for (at, setting) in page.settings.iter().enumerate() { (page.setting(at, setting)?) }
                    (page.samples())
                }
                footer { p { "Written by tova-bench " (env!("CARGO_PKG_VERSION")) " from the rows alone. Nothing on this page comes from or goes to a network." } }
                div #tip aria-hidden="true" hidden {}
                script #points type="application/json" { (PreEscaped(points::json(content.all, &page.settings, content.styles)?)) }
                script #rows type="application/json" { (PreEscaped(samples::json(content.rows, &page.settings, samples::BUDGET)?)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    Ok(whole.into_string())
}

/// What a policy on contents calls a text that it lets in.
fn digest(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// Everything that must be equal for two numbers to stand in one table.
fn fields(setting: &Setting) -> String {
    let whole = [("task", &setting.task), ("model", &setting.model), ("dataset", &setting.dataset)];
    let mut fields: Vec<String> =
        whole.iter().map(|(name, value)| format!("{name} {}", escape::plain(value))).collect();
    let details = setting.details();
    let told = details.iter().filter(|(_, value)| !value.is_empty());
    fields.extend(told.map(|(name, value)| format!("{name} {}", escape::plain(value))));
    fields.join(" \u{B7} ")
}

impl Page<'_> {
    fn header(&self) -> Markup {
        html! {
            header.top {
                h1 { "Cache size against quality" }
                p.lead {
                    "How much a transformer loses when its key-value cache is bounded: the numbers of every policy at every cache size, \
                     pooled over all tokens or answers of the samples (never a mean of the samples' own quotients). ± is half of a 95 % \
                     bootstrap interval over whole clusters: books, stories or papers."
                }
                p.lead {
                    b { "full" } " is the model with an unbounded cache, " b { "truncate" } " the same on texts cut to as many tokens (the \
                     paper's Baseline); neither is a policy."
                }
                (provenance::fold(self.content.rows))
                nav aria-label="Settings" {
                    ul.toc {
                        @for (at, setting) in self.settings.iter().enumerate() {
                            li { a href={ "#setting-" (at) } { (setting.title(&self.settings)) } }
                        }
                        li { a href="#samples" { "Sample by sample" } }
                    }
                }
            }
            // The script fills it; without one there is nothing to control.
            div #controls.controls role="region" aria-label="What is shown" hidden {}
        }
    }

    /// Panels of one quantity side by side, as in the paper's Figure 3.
    fn overview(&self, combined: &[Figure<'_>]) -> Markup {
        html! {
            section.part aria-labelledby="overview" {
                h2 #overview { "Side by side" }
                @for (at, figure) in combined.iter().enumerate() {
                    details.fold open[at == 0] {
                        summary { (capital(&escape::plain(&figure.title))) }
                        (figure::figure(figure, self.content.styles))
                    }
                }
            }
        }
    }

    fn further(&self) -> Markup {
        html! {
            section.part aria-labelledby="further" {
                h2 #further { "Over all settings" }
                @for (place, &sheet) in self.content.further.iter().enumerate() {
                    @if place == 0 { (self.sheet(sheet, None)) }
                    @else {
                        details.fold { summary { (capital(&escape::plain(&sheet.title))) } (self.sheet(sheet, None)) }
                    }
                }
            }
        }
    }

    /// One setting: its first quantity in full view, everything else folded.
    fn setting(&self, at: usize, setting: &Setting) -> Result<Markup> {
        let mut panels: Vec<(&Panel, Option<&Figure<'_>>)> = self
            .content
            .panels
            .iter()
            .zip(&self.figures)
            .filter(|(panel, _)| panel.setting == *setting)
            .map(|(panel, figure)| (panel, figure.as_ref()))
            .collect();
        let kept = self.content.sections.iter().find(|section| section.setting() == setting);
        // What the section below says better stands last.
        panels.sort_by_key(|(panel, figure)| kept.is_some() && figure.is_none() && panel.quantity.is_detail());
        let timed = self.timed.iter().find(|timed| timed.setting == *setting);
        let (id, title) = (format!("setting-{at}"), setting.title(&self.settings));
        Ok(html! {
            section.setting.part id=(id) aria-labelledby={ (id) "-title" } data-task=(escape::plain(&setting.task))
                data-model=(escape::plain(&setting.model)) data-dataset=(escape::plain(&setting.dataset)) {
                h2 id={ (id) "-title" } { (title) }
                p.line { (fields(setting)) }
                @if let Some(timed) = timed { (self.sheet(&sheets::of_timing(timed), None)) }
                @for (place, (panel, figure)) in panels.iter().enumerate() {
                    @let first = place == 0 && timed.is_none();
                    (self.panel(panel, *figure, first))
                }
                @if let Some(section) = kept { (self.kept(section)?) }
                details.fold {
                    summary { "All of this setting" }
                    dl.facts {
                        (provenance::fact("task", &[escape::plain(&setting.task)]))
                        (provenance::fact("model", &[escape::plain(&setting.model)]))
                        (provenance::fact("dataset", &[escape::plain(&setting.dataset)]))
                        @for (name, value) in setting.details() {
                            (provenance::fact(name, &[escape::plain(&value)]))
                        }
                        (provenance::fact("whole revision", &[escape::plain(&setting.model_revision)]))
                    }
                }
            }
        })
    }

    fn panel(&self, panel: &Panel, figure: Option<&Figure<'_>>, first: bool) -> Markup {
        let name = capital(&panel.quantity.name);
        let metric = escape::plain(&panel.quantity.metric);
        let values = sheets::value(panel);
        let differences = sheets::difference(panel);
        let body = html! {
            div.pair {
                @if let Some(shown) = figure { (figure::figure(shown, self.content.styles)) }
                @if let Some(sheet) = &values { (self.sheet(sheet, None)) }
            }
            @if let Some(sheet) = &differences {
                @if first {
                    details.fold { summary { "Difference to the full cache" } (self.sheet(sheet, None)) }
                } @else { (self.sheet(sheet, None)) }
            }
            @if let Some(sheet) = pairing::sheet(panel) {
                details.fold { summary { (capital(&escape::plain(&sheet.title))) } (self.sheet(&sheet, None)) }
            }
        };
        html! {
            @if first {
                div.panel data-metric=(metric) { (body) }
                (self.parts(panel, figure))
            } @else {
                details.panel.fold data-metric=(metric) { summary { (name) } (body) }
                (self.parts(panel, figure))
            }
        }
    }

    /// A quantity by parts of the samples.
    fn parts(&self, panel: &Panel, whole: Option<&Figure<'_>>) -> Markup {
        let all = || self.content.breakdowns.iter().filter(|parts| parts.is_of(panel));
        html! {
            @for parts in all() {
                @let tables = sheets::of_parts(parts);
                @let charts = whole.and_then(|whole| curve::of_parts(parts, whole, panel.setting.title(&self.settings)));
                details.panel.fold data-metric=(escape::plain(&panel.quantity.metric)) {
                    summary { (capital(&escape::plain(&sheets::title_of_parts(parts)))) }
                    @if let Some(charts) = &charts { (figure::figure(charts, self.content.styles)) }
                    div.sheets { @for (size, sheet) in &tables { (self.sheet(sheet, Some(*size))) } }
                }
            }
        }
    }

    /// What is kept, whose figures exist as drawings.
    fn kept(&self, section: &retention::Section<'_>) -> Result<Markup> {
        let figures = section.figures();
        let pictures: Vec<Markup> = figures.iter().map(|(_, scene)| figure::picture(scene)).collect();
        Ok(html! {
            div.kept {
                h3 { "What is kept" }
                p.about { (retention::about()) }
                @for (place, picture) in pictures.iter().enumerate() {
                    @if place == 0 { (picture) }
                    @else { details.fold { summary { (escape::plain(&figures[place].1.title)) } (picture) } }
                }
                @for sheet in section.sheets() {
                    details.panel.fold data-metric="lifetime" { summary { (escape::plain(&sheet.title)) } (self.sheet(&sheet, None)) }
                }
            }
        })
    }

    /// The place of the script's view of single samples.
    fn samples(&self) -> Markup {
        html! {
            section.part #samples aria-labelledby="samples-title" {
                h2 #samples-title { "Sample by sample" }
                p.lead {
                    "One text under every policy and size: its own numbers (sum over the sample by its weight, not pooled with others), how \
                     they run along the text where that was measured, and what was written where something was."
                }
                noscript { p { "This part needs the page's script; everything above does without." } }
                div #drill {}
            }
        }
    }

    fn sheet(&self, sheet: &Sheet, size: Option<u32>) -> Markup {
        table::sheet(sheet, &self.known, size)
    }
}
