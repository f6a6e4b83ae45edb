//! Lists of names and values: what was asked, at the beginning of the page, and where its numbers come from, at its end.

use maud::{Markup, html};

use crate::report::escape;
use crate::report::sections::asked::Asked;
use crate::report::sections::provenance::Provenance;
use crate::report::series::results::Results;

const GLOSSARY: &str = include_str!("../../../../docs/glossary.md");

/// What was asked: models, policies with their definitions, cache sizes, and data with links to their results.
pub(super) fn question(asked: &Asked) -> Markup {
    let models: Vec<String> = asked.models.iter().map(|model| escape::plain(model)).collect();
    html! {
        dl.facts.question {
            (fact(if models.len() == 1 { "Model" } else { "Models" }, &models))
            dt { "Policies" }
            dd {
                @let names: Vec<String> = asked.policies.iter().map(|(name, _)| escape::plain(name)).collect();
                details.names open {
                    summary { (names.join(", ")) }
                    ul {
                        @for (name, (_, words)) in names.iter().zip(&asked.policies) {
                            li { b { (name) } " " (escape::plain(words)) }
                        }
                    }
                }
            }
            (fact("Cache sizes", &[asked.sizes()]))
            dt { "Data" }
            dd {
                details.names open {
                    summary { (asked.data.len()) " settings, each of one model, task and data set" }
                    ul {
                        @for (at, (title, words)) in asked.data.iter().enumerate() {
                            li { a href={ "#setting-" (at) } { (title) } ": " (escape::plain(words)) }
                        }
                    }
                }
            }
        }
    }
}

/// The end of the page: where its numbers come from, and what its words mean.
pub(super) fn origin(results: &Results<'_>) -> Markup {
    let all = Provenance::of(results);
    html! {
        section.part aria-labelledby="origin" {
            h2 #origin { "Where the numbers come from" }
            details.fold.origin {
                summary { (all.counted()) }
                dl.facts {
                    @for (name, values) in all.facts() {
                        (fact(name, &values.iter().map(|value| escape::plain(value)).collect::<Vec<_>>()))
                    }
                }
            }
            details.fold {
                summary { "Words of this page" }
                dl.facts #glossary { @for (word, meaning) in glossary() { dt { (word) } dd { (meaning) } } }
            }
        }
    }
}

/// Values of one field that are shown; more are counted.
const MOST_VALUES: usize = 12;

/// A name and its values; nothing where there are none.
pub(super) fn fact(name: &str, values: &[String]) -> Markup {
    let values: Vec<&String> = values.iter().filter(|value| !value.is_empty()).collect();
    html! {
        @if !values.is_empty() {
            dt { (name) }
            dd {
                @for value in values.iter().take(MOST_VALUES) { span { (value) } }
                @if values.len() > MOST_VALUES { span { "and " (values.len() - MOST_VALUES) " more" } }
            }
        }
    }
}

/// The words of docs/glossary.md with their meanings, without Markdown.
fn glossary() -> impl Iterator<Item = (String, String)> {
    let entries = GLOSSARY.split("\n* **").skip(1).filter_map(|entry| entry.split_once("**:"));
    entries.map(|(word, meaning)| {
        let words: Vec<&str> = meaning.split_whitespace().collect();
        (word.replace('`', ""), words.join(" ").replace('`', ""))
    })
}
