//! What two numbers must share to stand in one table: the task, the texts, the model and how they were read.
//!
//! These are the columns of a row that say where it was measured, except for policy and cache size.

use serde::Serialize;

use super::escape;
use crate::ledger::{Row, Text};
use crate::metric::Metric;

/// Everything that can change a number, except for policy, positions and cache size.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SeriesKey {
    pub task: Text,
    pub dataset: Text,
    pub model: Text,
    pub model_revision: Text,
    pub dtype: Text,
    pub length: u32,
    pub stride: u32,
    pub bos: bool,
    pub tail: Text,
    pub generation: Text,
    pub seed: u64,
    pub prefill: Text,
    /// Empty unless the metric is a property of a device.
    pub device: Text,
}

impl SeriesKey {
    /// The names of the fields, as in rows.
    pub fn names() -> [&'static str; 13] {
        Self::default().fields().map(|(name, _)| name)
    }

    /// The fields in full, by name.
    pub fn fields(&self) -> [(&'static str, String); 13] {
        [
            ("task", self.task.to_string()),
            ("dataset", self.dataset.to_string()),
            ("model", self.model.to_string()),
            ("model_revision", self.model_revision.to_string()),
            ("dtype", self.dtype.to_string()),
            ("length", self.length.to_string()),
            ("stride", self.stride.to_string()),
            ("bos", self.bos.to_string()),
            ("tail", self.tail.to_string()),
            ("generation", self.generation.to_string()),
            ("seed", self.seed.to_string()),
            ("prefill", self.prefill.to_string()),
            ("device", self.device.to_string()),
        ]
    }

    /// Where a row was measured.
    pub fn of(row: &Row) -> Self {
        let is_timed = Metric::known(&row.metric).is_some_and(Metric::is_timed);
        Self {
            task: row.task.clone(),
            dataset: row.dataset.clone(),
            model: row.model.clone(),
            model_revision: row.model_revision.clone(),
            dtype: row.dtype.clone(),
            length: row.length,
            stride: row.stride,
            bos: row.bos,
            tail: row.tail.clone(),
            generation: row.generation.clone().unwrap_or_default(),
            seed: row.seed,
            prefill: row.prefill.clone(),
            device: if is_timed { row.device.clone() } else { Text::new() },
        }
    }

    /// Everything as text, for fingerprints in file names. It keeps an old name so that files keep theirs.
    pub(super) fn described(&self) -> String {
        format!("{self:?}").replacen("SeriesKey", "Setting", 1)
    }

    /// Whether two rows surely have the same key, without making either.
    pub(super) fn agree(a: &Row, b: &Row) -> bool {
        fn texts(row: &Row) -> [&Text; 7] {
            [&row.task, &row.dataset, &row.model, &row.model_revision, &row.dtype, &row.tail, &row.prefill]
        }
        texts(a) == texts(b)
            && (a.length, a.stride, a.bos, a.seed, &a.generation)
                == (b.length, b.stride, b.bos, b.seed, &b.generation)
            && a.device == b.device
    }

    /// The key without what only concerns a bounded cache: `full` and `truncate` are shared by the keys that differ in
    /// nothing else.
    pub fn without_cache(&self) -> Self {
        Self { prefill: Text::new(), ..self.clone() }
    }

    /// The other fields, by name, as titles and lines of settings show them. Fields that do not concern the task are empty.
    pub fn details(&self) -> [(&'static str, String); 10] {
        [
            ("revision", shorten(&self.model_revision)),
            ("dtype", self.dtype.to_string()),
            ("length", self.length.to_string()),
            ("stride", if self.stride == 0 { String::new() } else { self.stride.to_string() }),
            ("bos", if self.bos { "yes" } else { "no" }.to_owned()),
            ("tail", self.tail.to_string()),
            ("generation", self.generation.to_string()),
            ("seed", self.seed.to_string()),
            ("prefill", self.prefill.to_string()),
            ("device", self.device.to_string()),
        ]
    }

    /// Model, data set and task in full, and the details that are not empty.
    pub fn headed_details(&self) -> impl Iterator<Item = (&'static str, String)> {
        let head = [("model", &self.model), ("dataset", &self.dataset), ("task", &self.task)];
        let details = self.details().into_iter().filter(|(_, value)| !value.is_empty());
        head.map(|(name, value)| (name, value.to_string())).into_iter().chain(details)
    }

    /// Everything that the numbers of a key have in common, in one line.
    pub(super) fn line(&self, escape: fn(&str) -> String) -> String {
        let fields = self.headed_details().map(|(name, value)| format!("{name} {}", escape(&value)));
        fields.collect::<Vec<_>>().join(" \u{B7} ")
    }

    /// Model and data set, and whatever else differs `among` all keys of the report.
    pub fn title(&self, among: &[SeriesKey]) -> String {
        let is_ambiguous =
            |other: &SeriesKey| other.model != self.model && short(&other.model) == short(&self.model);
        let model = if among.iter().any(is_ambiguous) { &self.model } else { short(&self.model) };
        let mut parts = vec![escape::plain(model), escape::plain(short(&self.dataset))];
        if among.iter().any(|other| other.task != self.task) {
            parts.push(escape::plain(&self.task));
        }
        for (place, (name, value)) in self.details().into_iter().enumerate() {
            let head = |key: &SeriesKey| (key.model.clone(), key.dataset.clone(), key.task.clone());
            let differs = |other: &SeriesKey| head(other) == head(self) && other.details()[place].1 != value;
            if among.iter().any(differs) {
                parts.push(format!("{name} {}", escape::plain(&value)));
            }
        }
        parts.join(" \u{B7} ")
    }
}

/// The last component: `Llama-2-7b-hf` of `meta-llama/Llama-2-7b-hf`, or a file's name without its folders.
fn short(name: &str) -> &str {
    name.trim_end_matches('/').rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or(name)
}

/// Commits and digests, shortened to what can be compared by eye.
fn shorten(revision: &str) -> String {
    let digest = revision.strip_prefix("sha256:").unwrap_or(revision);
    let is_digest = digest.len() > 12 && digest.bytes().all(|b| b.is_ascii_hexdigit());
    if is_digest { digest[..12].to_owned() } else { revision.to_owned() }
}
