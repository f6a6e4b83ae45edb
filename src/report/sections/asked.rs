//! What was asked: models, policies with their definitions, cache sizes and data. Every format of the report begins with it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use indexmap::IndexSet;

use crate::format::counted;
use crate::ledger::Row;
use crate::report::sections::policy_words;
use crate::report::series::key::{SeriesKey, prefill_words};
use crate::report::series::panel::Panel;

/// Plain values that are not escaped, in the order of the report.
pub(crate) struct Asked {
    pub(crate) sweeps: Vec<String>,
    /// `pocket (bf16)`.
    pub(crate) models: Vec<String>,
    /// The policies with their definitions, `full` and `truncate` too.
    pub(crate) policies: Vec<(String, String)>,
    /// Ascending; empty where only the full cache was measured.
    pub(crate) sizes: Vec<u32>,
    /// For each key, in order: its title, and the task and samples.
    pub(crate) data: Vec<(String, String)>,
}

impl Asked {
    /// Of the panels of whole samples and their keys.
    pub(crate) fn of(rows: &[Row], panels: &[Panel], keys: &[SeriesKey]) -> Self {
        let mut definitions = policy_words::definitions(rows);
        // Not every metric has every policy; the panel with most of them gives the order.
        let mut fullest: Vec<&Panel> = panels.iter().collect();
        fullest.sort_by_key(|panel| Reverse(panel.policies().len()));
        let names: IndexSet<&str> = fullest.into_iter().flat_map(Panel::policies).collect();
        let policies = names.into_iter().map(|name| {
            let words = definitions.remove(name).unwrap_or_default();
            (name.to_owned(), words)
        });
        let models: IndexSet<String> = keys.iter().map(|key| format!("{} ({})", key.model, key.dtype)).collect();
        let sizes: BTreeSet<u32> = panels.iter().flat_map(Panel::sizes).collect();
        let sweeps: IndexSet<&str> = rows.iter().map(|row| row.sweep.as_str()).collect();
        // Titles name the task where there are several.
        let one_task = keys.iter().all(|key| key.task == keys[0].task);
        let data = keys.iter().map(|key| {
            let first = panels.iter().find(|panel| panel.key == *key);
            let task = if one_task { format!("{}, ", key.task) } else { String::new() };
            (key.title(keys), task + &first.map_or_else(String::new, samples))
        });
        Self {
            sweeps: sweeps.into_iter().map(str::to_owned).collect(),
            models: models.into_iter().collect(),
            policies: policies.collect(),
            sizes: sizes.into_iter().collect(),
            data: data.collect(),
        }
    }

    /// The title of the report.
    pub(crate) fn title(&self) -> String {
        match &self.sweeps[..] {
            [one] if !one.is_empty() => format!("Cache size against quality: {one}"),
            _ => "Cache size against quality".to_owned(),
        }
    }

    /// The cache sizes as a list.
    pub(crate) fn sizes(&self) -> String {
        self.sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
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
    let prefill = match &*key.prefill {
        "" | "stream" => String::new(),
        one_shot => {
            let (read, written) = if one_shot == "one_shot" {
                ("prompts", "the answer")
            } else {
                ("documents", "question and answer")
            };
            let name = prefill_words(one_shot);
            format!(
                ", prefill {name}: {read} are read whole, the cache is then cut to its size, and every token of {written} evicts \
                 one entry"
            )
        }
    };
    samples + &prefill
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Results;
    use crate::report::fixture::{cell, changed};

    fn asked(rows: &[Row]) -> Asked {
        let panels = Results::of(rows).unwrap().whole();
        let keys: Vec<SeriesKey> = distinct_keys(&panels);
        Asked::of(rows, &panels, &keys)
    }

    fn distinct_keys(panels: &[Panel]) -> Vec<SeriesKey> {
        let mut keys: Vec<SeriesKey> = panels.iter().map(|panel| panel.key.clone()).collect();
        keys.dedup();
        keys
    }

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
        let found = asked(&[full, tova(512), tova(64), answers].concat());
        assert_eq!(found.title(), "Cache size against quality: test");
        assert_eq!(found.models, ["meta-llama/Llama-2-7b-hf (bf16)"]);
        assert_eq!(found.sizes(), "64, 512");
        let names: Vec<&str> = found.policies.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["full", "tova"]);
        assert!(found.policies[1].1.starts_with("evicts the entry"), "{:?}", found.policies);
        let data: Vec<(&str, &str)> = found.data.iter().map(|(title, of)| (title.as_str(), of.as_str())).collect();
        let expected = [
            ("Llama-2-7b-hf · pg19 · perplexity", "2 samples of 4096 tokens from 2 clusters"),
            ("Llama-2-7b-hf · papers · qasper", "1 sample of up to 4096 tokens from 1 cluster"),
        ];
        assert_eq!(data, expected);
    }
}
