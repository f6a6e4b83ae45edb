//! Blocks as HTML.
//!
//! Elements carry what the page's script filters by: settings their model, task and data set, groups their metric, tables their
//! cache size. A figure and the table after it stand side by side where there is room.

use maud::{Markup, html};

use super::{figure, table};
use crate::format::capital;
use crate::metric::Metric;
use crate::report::document::{Block, Fact, Group, Item, Section};
use crate::report::escape;
use crate::report::sections::Report;

/// Values of one fact that are shown; more are counted.
const MOST_VALUES: usize = 12;

pub(super) struct Renderer<'a> {
    pub(super) report: &'a Report<'a>,
}

impl Renderer<'_> {
    pub(super) fn blocks(&self, blocks: &[Block]) -> Markup {
        let mut parts = Vec::new();
        let mut rest = blocks;
        while let Some((first, after)) = rest.split_first() {
            let part;
            (part, rest) = match (first, after.split_first()) {
                (Block::Figure(_), Some((table @ Block::Table(of), after))) if of.size.is_none() => {
                    (html! { div.pair { (self.block(first)) (self.block(table)) } }, after)
                }
                _ => (self.block(first), after),
            };
            parts.push(part);
        }
        html! { @for part in parts { (part) } }
    }

    fn block(&self, block: &Block) -> Markup {
        match block {
            Block::Section(section) => self.section(section),
            Block::Group(group) => self.group(group),
            Block::Facts(all) => facts(all),
            Block::Table(of) => table::table(of),
            Block::Figure(of) => figure::figure(of, &self.report.styles),
            Block::Paragraph(text) => html! { p.about { (escape::plain(text)) } },
            Block::List(items) => html! { ul.notes { @for item in items { li { (escape::plain(item)) } } } },
            Block::Links(links) => {
                html! { ul.notes { @for (words, page) in links { li { a href=(page) { (escape::plain(words)) } } } } }
            }
            Block::Samples => samples(),
        }
    }

    fn section(&self, Section { title, setting, blocks }: &Section) -> Markup {
        let id = setting.map_or_else(|| escape::slug(title), |at| format!("setting-{at}"));
        let key = setting.map(|at| &self.report.keys[at]);
        html! {
            section.part.key[key.is_some()] id=(id) aria-labelledby={ (id) "-title" }
                data-task=[key.map(|key| escape::plain(&key.task))]
                data-model=[key.map(|key| escape::plain(&key.model))]
                data-dataset=[key.map(|key| escape::plain(&key.dataset))] {
                h2 id={ (id) "-title" } { (escape::plain(title)) }
                (self.blocks(blocks))
            }
        }
    }

    fn group(&self, Group { title, is_open, metric, blocks }: &Group) -> Markup {
        // What menus call it.
        let quantity = metric.as_deref().map(|metric| escape::plain(&Metric::of(metric).label));
        let (inside, metric) = (self.blocks(blocks), metric.as_deref().map(escape::plain));
        let Some(title) = title.as_deref().map(|title| capital(&escape::plain(title))) else {
            return html! { div.panel[metric.is_some()] data-metric=[metric] data-quantity=[quantity] { (inside) } };
        };
        html! {
            details.fold.panel[metric.is_some()] open[*is_open] data-metric=[metric] data-quantity=[quantity] {
                summary { (title) }
                (inside)
            }
        }
    }
}

fn facts(facts: &[Fact]) -> Markup {
    html! {
        dl.facts {
            @for Fact { name, items } in facts {
                dt { (capital(&escape::plain(name))) }
                @if items.iter().all(|item| item.name.is_empty()) {
                    dd {
                        @for item in items.iter().take(MOST_VALUES) { span { (escape::plain(&item.words)) } }
                        @if items.len() > MOST_VALUES { span { "and " (items.len() - MOST_VALUES) " more" } }
                    }
                } @else {
                    @let names: Vec<String> = items.iter().map(|item| escape::plain(&item.name)).collect();
                    dd {
                        details.names open {
                            summary { (names.join(", ")) }
                            ul { @for (name, item) in names.iter().zip(items) { li { (named(name, item)) } } }
                        }
                    }
                }
            }
        }
    }
}

fn named(name: &str, Item { words, setting, .. }: &Item) -> Markup {
    html! {
        @match setting {
            Some(at) => { a href={ "#setting-" (at) } { (name) } ":" },
            None => b { (name) },
        }
        " " (escape::plain(words))
    }
}

/// Where the script shows single samples.
fn samples() -> Markup {
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
