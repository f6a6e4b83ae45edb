//! What must be equal for two numbers to stand in one table: the task, the texts, the model and how they were read.
//!
//! It knows the columns of a row that say *where*, apart from the policy and the cache size, and refuses to know values.

use super::escape;
use crate::ledger::{Row, Text};

/// Everything that can move a number but policy, positions and cache size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    pub task: Text,
    pub dataset: Text,
    pub model: Text,
    pub model_revision: Text,
    pub dtype: Text,
    pub length: u32,
    pub stride: u32,
    pub bos: bool,
    pub tail: Text,
    pub asked: Text,
    pub seed: u64,
    pub prefill: Text,
    /// Empty where numbers do not hang on it.
    pub device: Text,
}

impl Setting {
    /// The names of the fields, as rows call them.
    pub const FIELDS: [&str; 13] = [
        "task",
        "dataset",
        "model",
        "model_revision",
        "dtype",
        "length",
        "stride",
        "bos",
        "tail",
        "asked",
        "seed",
        "prefill",
        "device",
    ];

    /// The fields whole, in the order of [`Setting::FIELDS`].
    pub fn fields(&self) -> [String; Self::FIELDS.len()] {
        [
            self.task.to_string(),
            self.dataset.to_string(),
            self.model.to_string(),
            self.model_revision.to_string(),
            self.dtype.to_string(),
            self.length.to_string(),
            self.stride.to_string(),
            self.bos.to_string(),
            self.tail.to_string(),
            self.asked.to_string(),
            self.seed.to_string(),
            self.prefill.to_string(),
            self.device.to_string(),
        ]
    }

    /// Where a row was measured.
    pub fn of(row: &Row) -> Self {
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
            asked: row.asked.clone().unwrap_or_default(),
            seed: row.seed,
            prefill: row.prefill.clone(),
            device: if row.task == "timing" { row.device.clone() } else { Text::new() },
        }
    }

    /// Whether two rows have the same setting, without making either.
    pub(super) fn agree(a: &Row, b: &Row) -> bool {
        fn texts(row: &Row) -> [&Text; 7] {
            [&row.task, &row.dataset, &row.model, &row.model_revision, &row.dtype, &row.tail, &row.prefill]
        }
        texts(a) == texts(b)
            && (a.length, a.stride, a.bos, a.seed, &a.asked) == (b.length, b.stride, b.bos, b.seed, &b.asked)
            && (a.task != "timing" || a.device == b.device)
    }

    /// The same without what only a bounded cache can notice, so that `full` and `truncate` are shared by the settings
    /// that differ in nothing else.
    pub fn without_cache(&self) -> Self {
        Self { prefill: Text::new(), ..self.clone() }
    }

    /// The fields below the headline, by name, for the line of settings and for telling panels apart. What does not
    /// concern the task is empty.
    pub fn details(&self) -> [(&'static str, String); 10] {
        [
            ("revision", shorten(&self.model_revision)),
            ("dtype", self.dtype.to_string()),
            ("length", self.length.to_string()),
            ("stride", if self.stride == 0 { String::new() } else { self.stride.to_string() }),
            ("bos", if self.bos { "yes" } else { "no" }.to_owned()),
            ("tail", self.tail.to_string()),
            ("asked", self.asked.to_string()),
            ("seed", self.seed.to_string()),
            ("prefill", self.prefill.to_string()),
            ("device", self.device.to_string()),
        ]
    }

    /// Model and data set, and whatever else is not the same `among` all settings of the report.
    pub fn title(&self, among: &[Setting]) -> String {
        let model =
            if among.iter().any(|other| other.model != self.model && short(&other.model) == short(&self.model)) {
                &self.model
            } else {
                short(&self.model)
            };
        let mut parts = vec![escape::plain(model), escape::plain(short(&self.dataset))];
        if among.iter().any(|other| other.task != self.task) {
            parts.push(escape::plain(&self.task));
        }
        for (place, (name, value)) in self.details().into_iter().enumerate() {
            let differs = |other: &Setting| {
                let same = |field: fn(&Setting) -> &str| field(other) == field(self);
                same(|s| &s.model)
                    && same(|s| &s.dataset)
                    && same(|s| &s.task)
                    && other.details()[place].1 != value
            };
            if among.iter().any(differs) {
                parts.push(format!("{name} {}", escape::plain(&value)));
            }
        }
        parts.join(" \u{B7} ")
    }
}

/// The last component: `Llama-2-7b-hf` of `meta-llama/Llama-2-7b-hf`, or a file's name without its folders.
fn short(name: &str) -> &str {
    let trimmed = name.trim_end_matches('/');
    match trimmed.rsplit('/').next() {
        Some(last) if !last.is_empty() => last,
        _ => name,
    }
}

/// Commits and digests, cut to what a reader compares by eye.
fn shorten(revision: &str) -> String {
    let digest = revision.strip_prefix("sha256:").unwrap_or(revision);
    if digest.len() > 12 && digest.bytes().all(|b| b.is_ascii_hexdigit()) {
        digest[..12].to_owned()
    } else {
        revision.to_owned()
    }
}
