//! What was asked: models, policies with their definitions, cache sizes and data. Every report begins with it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use indexmap::IndexSet;

use super::{Report, policies};
use crate::format::counted;
use crate::ledger::Row;
use crate::report::document::{Block, Fact, Item};
use crate::report::series::{Panel, Size, prefill_words};

/// What was asked.
pub(super) fn blocks(report: &Report<'_>) -> Vec<Block> {
    let panels = &report.panels;
    let models: IndexSet<String> =
        report.keys.iter().map(|key| format!("{} ({})", key.model, key.precision())).collect();
    let sizes: BTreeSet<Size> = panels.iter().flat_map(Panel::sizes).collect();
    let sizes: Vec<String> = sizes.into_iter().map(|size| size.to_string()).collect();
    let named = |(name, words)| Item { name, words, ..Item::default() };
    // Titles name the task where there are several.
    let one_task = report.keys.iter().all(|key| key.task == report.keys[0].task);
    let data = report.keys.iter().enumerate().map(|(at, key)| {
        let first = panels.iter().find(|panel| panel.key == *key);
        let task = if one_task { format!("{}, ", key.task) } else { String::new() };
        let words = task + &first.map_or_else(String::new, samples);
        Item { name: key.title(&report.keys), words, setting: Some(at) }
    });
    let name = if models.len() == 1 { "Model" } else { "Models" };
    let facts = vec![
        Fact::new(name, models),
        Fact { name: "Policies".into(), items: report.policies.iter().cloned().map(named).collect() },
        Fact::new("Cache sizes", [sizes.join(", ")]),
        Fact { name: "Data".into(), items: data.collect() },
    ];
    vec![Block::Facts(facts.into_iter().filter(|fact| !fact.items.is_empty()).collect())]
}

/// The policies of panels with their definitions, `full` and `truncate` too.
pub(super) fn policies(rows: &[Row], panels: &[Panel]) -> Vec<(String, String)> {
    let mut definitions = policies::definitions(rows);
    // Not every metric has every policy; the panel with most of them gives the order.
    let mut fullest: Vec<&Panel> = panels.iter().collect();
    fullest.sort_by_key(|panel| Reverse(panel.policies().len()));
    let names: IndexSet<&str> = fullest.into_iter().flat_map(Panel::policies).collect();
    names.into_iter().map(|name| (name.to_owned(), definitions.remove(name).unwrap_or_default())).collect()
}

/// The title of the report.
pub(super) fn title(report: &Report<'_>) -> String {
    let sweeps: BTreeSet<&str> = report.results.rows.iter().map(|row| row.sweep.as_str()).collect();
    match sweeps.into_iter().collect::<Vec<_>>()[..] {
        [one] if !one.is_empty() => format!("Cache size against quality: {one}"),
        _ => "Cache size against quality".to_owned(),
    }
}

/// `16 samples of 4096 tokens from 16 clusters`.
fn samples(panel: &Panel) -> String {
    let key = &panel.key;
    // Written texts end where the model ends them, and a kept rest of a book is shorter.
    let most = if key.stride == 0 || key.tail == "keep" { "up to " } else { "" };
    let samples = match panel.metric.is_timed() {
        true => format!("{} of {} tokens", counted(panel.samples, "repeat"), key.length),
        false => format!(
            "{} of {most}{} tokens from {}",
            counted(panel.samples, "sample"),
            key.length,
            counted(panel.clusters, "cluster")
        ),
    };
    match &*key.prefill {
        "" | "stream" => samples,
        prefill => format!("{samples}, prefill {}", prefill_words(prefill)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, changed, with_report};

    #[test]
    fn the_question_has_models_policies_sizes_and_data() {
        let tova = |size| {
            let samples = [("a", 1.0, 1.0), ("b", 1.0, 1.0)];
            changed(cell("nll", "tova", Some(size), &samples), |row| row.score = Some("last_attention".into()))
        };
        let full = cell("nll", "full", None, &[("a", 1.0, 1.0), ("b", 1.0, 1.0)]);
        let answers = changed(cell("f1", "tova", Some(64), &[("q", 1.0, 1.0)]), |row| {
            (row.task, row.stride, row.dataset) = ("qasper".into(), 0, "papers".into());
        });
        let (title, blocks) =
            with_report(&[full, tova(512), tova(64), answers].concat(), |report| (title(report), blocks(report)));
        assert_eq!(title, "Cache size against quality: test");
        let [Block::Facts(facts)] = &blocks[..] else { panic!("one list of facts expected") };
        let shown: Vec<Vec<(&str, &str)>> =
            facts.iter().map(|fact| fact.items.iter().map(|item| (&*item.name, &*item.words)).collect()).collect();
        assert_eq!(shown[0], [("", "meta-llama/Llama-2-7b-hf (bf16)")]);
        assert_eq!(shown[1].iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["full", "tova"]);
        assert!(shown[1][1].1.ends_with("score last_attention"), "{shown:?}");
        assert_eq!(shown[2], [("", "64, 512")]);
        let expected = [
            ("Llama-2-7b-hf \u{B7} pg19 \u{B7} perplexity", "2 samples of 4096 tokens from 2 clusters"),
            ("Llama-2-7b-hf \u{B7} papers \u{B7} qasper", "1 sample of up to 4096 tokens from 1 cluster"),
        ];
        assert_eq!(shown[3], expected);
    }
}
