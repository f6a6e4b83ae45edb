//! The schema of result rows: long form, one row per cell, sample, metric and slice.
//!
//! Four groups of columns: where (which experiment), what (which number), proof (what was read and generated) and provenance
//! (who measured it, when, on what). Settings that change numbers are columns, so a row explains itself without its sweep.

use serde::{Deserialize, Serialize};

pub use crate::columns::Text;

/// The current time in UTC, RFC 3339. It works with clocks before 1970 too; nothing is ordered by it.
pub fn date() -> Text {
    let now = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now());
    now.to_rfc3339_opts(chrono::SecondsFormat::Secs, true).into()
}

/// One metric of one sample of one cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    // --- where
    /// Content id of the cell: 16 hex digits of the SHA-256 of its canonical text.
    pub cell: Text,
    /// The sweep's name: its file stem, or its `name:`.
    pub sweep: Text,
    /// The model as the sweep names it: a folder or `owner/name`.
    pub model: Text,
    /// Hub commit, or `sha256:` over the checkpoint's files.
    pub model_revision: Text,
    /// The policy's name: `full`, `truncate`, a preset, or a name under `define:`.
    pub policy: Text,
    /// `recency`, `last_attention`, ...; `None` for `full` and `truncate`.
    pub score: Option<Text>,
    /// `layer` or `head`; `None` for `full` and `truncate`.
    pub scope: Option<Text>,
    /// Protected first tokens (0 for `full` and `truncate`).
    pub keep_first: u32,
    /// Protected newest entries, in tokens at this cache size.
    pub keep_recent: u32,
    /// Entries per layer and key-value head; `None` for `full`.
    pub cache_size: Option<u32>,
    /// `absolute`, `slot` or `squeezed`.
    pub positions: Text,
    /// How a prompt gets into the cache: `stream`, `one_shot`, or `one_shot_document`, which is cut before the
    /// question.
    pub prefill: Text,
    /// `perplexity`, `retention`, `squality`, `qasper`, `story`, `needle`, ...
    pub task: Text,
    /// Where the texts came from, as the sweep names it.
    pub dataset: Text,
    /// Tokens per sample, BOS and generated tokens included.
    pub length: u32,
    /// Text tokens from the start of one sample to the start of the next; 0 for tasks that generate.
    pub stride: u32,
    /// Whether every sample starts with the tokenizer's BOS.
    pub bos: bool,
    /// `drop` or `keep`: what happens to a book's last, shorter sample; empty for tasks that generate.
    pub tail: Text,
    /// Settings of prompt and generation, `key=value` separated by spaces; `None` for tasks that only score.
    pub generation: Option<Text>,
    pub seed: u64,
    /// The sample's name: `10146.txt#3` is the fourth chunk of a book.
    pub sample: Text,
    /// The book, story or paper a sample belongs to; the bootstrap resamples these.
    pub cluster: Text,
    // --- what
    /// `nll`, `nll_word`, `kl_to_full`, `top1_agreement`, `evicted_mass`, `recall`, `lifetime`, `f1`, `rouge1`, ...
    pub metric: Text,
    /// The part of the sample the number covers, such as `distance:512-1023` or `kind:home`; `None`: all of it.
    pub slice: Option<Text>,
    /// Sum over the sample; a pooled metric is `sum(value) / sum(weight)`.
    #[serde(with = "any_f64")]
    pub value: f64,
    /// Number of things summed over: scored tokens, words, questions.
    #[serde(with = "any_f64")]
    pub weight: f64,
    // --- proof
    /// The question below the document, on the row of `new_tokens`; `None` on the others.
    pub question: Option<String>,
    /// The reference answers as a JSON list of strings, on the same row; `None` where there are none.
    pub references: Option<String>,
    /// The generated text, on the row of `new_tokens`; the lists and tables of `kept_until` and `lifetime_by_token`; `None` on
    /// the others.
    pub output: Option<String>,
    pub prompt_tokens: u32,
    pub new_tokens: u32,
    // --- provenance
    /// Engine version: bumped when numbers may change.
    pub engine: u32,
    /// Git commit of the binary, if it was built in a checkout.
    pub commit: Option<Text>,
    /// The GPU's name, or `cpu` with its vector instructions; for timing the processor's name and the number of threads.
    pub device: Text,
    /// Type of the weights: `f32`, `f16` or `bf16`.
    pub dtype: Text,
    /// Seconds this sample took in this cell (shared work is not counted twice).
    #[serde(with = "any_f64")]
    pub seconds: f64,
    /// Largest size of the key-value cache while reading, in bytes.
    pub peak_cache_bytes: u64,
    /// UTC, RFC 3339.
    pub date: Text,
}

/// JSON has no NaN and no infinity, so they are written as strings.
mod any_f64 {
    use std::fmt;

    use serde::de::{Error, Unexpected, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.collect_str(value) }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = f64;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a number, \"NaN\", \"inf\" or \"-inf\"")
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
                Ok(value)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
                match text {
                    "NaN" => Ok(f64::NAN),
                    "inf" => Ok(f64::INFINITY),
                    "-inf" => Ok(f64::NEG_INFINITY),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Number)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row whose fields all differ, for tests.
    pub(crate) fn row(sample: u32) -> Row {
        let text = |name: &str| Text::from(name);
        Row {
            cell: text("cell"),
            sweep: text("sweep"),
            model: text("model"),
            model_revision: text("revision"),
            policy: text("tova"),
            score: Some(text("last_attention")),
            scope: Some(text("layer")),
            keep_first: 1,
            keep_recent: 2,
            cache_size: Some(64),
            positions: text("absolute"),
            prefill: text("stream"),
            task: text("perplexity"),
            dataset: text("data"),
            length: 128,
            stride: 127,
            bos: true,
            tail: text("drop"),
            generation: Some(text("temperature=0")),
            seed: 1 << 60,
            sample: format!("book#{sample}").into(),
            cluster: text("book"),
            metric: text("nll"),
            slice: Some(text("kind:home")),
            value: 0.1 + f64::from(sample),
            weight: 127.0,
            question: None,
            references: None,
            output: None,
            prompt_tokens: 128,
            new_tokens: 0,
            engine: 1,
            commit: Some(text("abc")),
            device: text("cpu"),
            dtype: text("f32"),
            seconds: 0.25,
            peak_cache_bytes: 1 << 40,
            date: text("2025-01-01T00:00:00Z"),
        }
    }

    #[test]
    fn every_number_survives_a_round_trip() {
        let third = 1.0 / 3.0;
        for value in [0.0, -0.0, third, f64::MAX, 5e-324, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e15, 3.0] {
            let written = serde_json::to_string(&Row { value, ..row(0) }).unwrap();
            let read: Row = serde_json::from_str(&written).unwrap();
            assert!(read.value.to_bits() == value.to_bits() || (value.is_nan() && read.value.is_nan()), "{value}");
        }
        assert!(
            serde_json::from_str::<Row>(&serde_json::to_string(&row(0)).unwrap().replace("0.25", "null")).is_err()
        );
    }
}
