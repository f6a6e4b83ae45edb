//! The page around the blocks: its head, and what the browser may load.
//!
//! The content security policy allows the page's own style and script, by their digests, and pictures inside the page;
//! everything else, the network above all, is refused.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::super::Sources;
use super::{blocks, figure, samples};
use crate::report::document::Block;
use crate::report::escape;

const STYLE: &str = include_str!("page.css");
/// One script, in the order of use.
const SCRIPT: &str = concat!(
    include_str!("tips.js"),
    include_str!("course.js"),
    include_str!("samples.js"),
    include_str!("page.js")
);

pub(super) fn page(sources: &Sources<'_>) -> Result<String> {
    let (report, title) = (sources.report, escape::plain(&sources.document.title));
    let renderer = blocks::Renderer { report };
    // What was asked stands above the controls.
    let is_facts = |block: &Block| matches!(block, Block::Facts(_));
    let (head, body) =
        sources.document.blocks.split_at(sources.document.blocks.iter().take_while(|b| is_facts(b)).count());
    let whole = html! {
        (DOCTYPE)
        html lang="en" {
            (page_head(&title, STYLE, SCRIPT))
            body {
                a.skip href="#main" { "Skip to the results" }
                header.top { h1 { (title) } (renderer.blocks(head)) }
                // Filled by the script.
                div #controls.controls role="region" aria-label="What is shown" hidden {}
                main #main tabindex="-1" { (renderer.blocks(body)) }
                footer { p { "Written by tova-bench " (env!("CARGO_PKG_VERSION")) " from result rows. This page loads nothing from a network and sends nothing to one." } }
                div #tip aria-hidden="true" hidden {}
                script #looks type="application/json" { (PreEscaped(figure::looks(&report.styles)?)) }
                script #rows type="application/json" { (PreEscaped(samples::json(&report.results.series, &report.keys, &report.policies, samples::BUDGET)?)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    Ok(whole.into_string())
}

/// The head of a page with this style and this script, which may load nothing else.
pub fn page_head(title: &str, style: &str, script: &str) -> Markup {
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        digest(style),
        digest(script)
    );
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="referrer" content="no-referrer";
            meta name="color-scheme" content="light dark";
            meta name="generator" content={ "tova-bench " (env!("CARGO_PKG_VERSION")) };
            title { (title) }
            style { (PreEscaped(style)) }
        }
    }
}

/// A text's digest as a content security policy writes it.
pub(super) fn digest(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}
