//! The schema of result rows: long form, one row per cell, sample, metric and slice.
//!
//! Four groups of columns: where (which experiment), what (which number), proof (what was read and generated) and provenance
//! (who measured it, when, on what). Settings that change numbers are columns, so a row explains itself without its sweep.

use std::borrow::Cow;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::eviction::{CacheOptions, presets};
use crate::metric::Slice;
use crate::parquet::Table;
pub use crate::parquet::Text;

/// The current time in UTC, RFC 3339. It works with clocks before 1970 too; nothing is ordered by it.
pub fn date() -> Text {
    let now = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now());
    now.to_rfc3339_opts(chrono::SecondsFormat::Secs, true).into()
}

/// Makes the struct, the list of columns and both conversions from one list of fields, in which `---` is the slice: one field, five
/// columns. Files of earlier schemas lack the columns after `+++`, which are null there.
macro_rules! row {
    ($($(#[$of_before:meta])* $before:ident: $type:ty,)* --- $($(#[$of_after:meta])* $after:ident: $after_type:ty,)*
     +++ $($(#[$of_late:meta])* $late:ident: $late_type:ty,)*) => {
        /// One metric of one sample of one cell.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Row {
            $($(#[$of_before])* pub $before: $type,)*
            /// The part of the sample the number covers; `None`: all of it.
            pub slice: Option<Slice>,
            $($(#[$of_after])* pub $after: $after_type,)*
            $($(#[$of_late])* pub $late: $late_type,)*
        }

        /// Rows as a table, one column per field.
        pub(super) fn to_table(rows: &[Row]) -> Table {
            let mut table = Table::default();
            $(table.push(stringify!($before), rows.iter().map(|row| row.$before.clone()).collect());)*
            push_slices(&mut table, rows);
            $(table.push(stringify!($after), rows.iter().map(|row| row.$after.clone()).collect());)*
            $(table.push(stringify!($late), rows.iter().map(|row| row.$late.clone()).collect());)*
            // A null would make integers floats in pandas, and `groupby` would drop the full cache.
            let sizes = rows.iter().map(|row| row.cache_size.unwrap_or(row.length)).collect::<Vec<u32>>();
            table.replace("cache_size", sizes);
            table.push("variant", rows.iter().map(|row| Text::from(row.variant())).collect());
            table
        }

        /// The rows of a table; columns beyond the schema are ignored.
        pub(super) fn from_table(table: &Table) -> Result<Vec<Row>> {
            $(let mut $before = table.column(stringify!($before))?.into_iter();)*
            let mut slice = slices(table)?.into_iter();
            $(let mut $after = table.column(stringify!($after))?.into_iter();)*
            $(let mut $late = table.column_or_default(stringify!($late))?.into_iter();)*
            let next = |_| {
                const SHORT: &str = "a column is too short";
                let mut row = Row {
                    $($before: $before.next().context(SHORT)?,)*
                    slice: slice.next().context(SHORT)?,
                    $($after: $after.next().context(SHORT)?,)*
                    $($late: $late.next().context(SHORT)?),*
                };
                row.cache_size = row.cache_size.filter(|_| row.policy != "full");
                Ok(row)
            };
            (0..table.height()).map(next).collect()
        }
    };
}

row! {
    // --- where
    /// Content id of the cell: 16 hex digits of the SHA-256 of its canonical text.
    cell: Text,
    /// The sweep's name: its file stem, or its `name:`.
    sweep: Text,
    /// The model as the sweep names it: its `name:`, or else a folder, a GGUF file or `owner/name`.
    model: Text,
    /// Hub commit, or `sha256:` over the checkpoint's files.
    model_revision: Text,
    /// The policy's name: `full`, `truncate`, a preset, or a name under `define:`.
    policy: Text,
    /// `recency`, `last_attention`, ...; `None` for `full` and `truncate`.
    score: Option<Text>,
    /// `layer` or `head`; `None` for `full` and `truncate`.
    scope: Option<Text>,
    /// Protected first tokens (0 for `full` and `truncate`).
    keep_first: u32,
    /// Protected newest entries, in tokens at this cache size.
    keep_recent: u32,
    /// Entries per layer and key-value head, the mean over layers under a budget, and of this sample where they are a share of its
    /// prompt; `None` for `full`, which files write as its `length`.
    cache_size: Option<u32>,
    /// The cache size as a share, from 0 to 1, where the sweep says it so: of the sample's prompt, or of the sample where it has none.
    cache_share: Option<f64>,
    /// How layers share their entries: `pyramid 20`, `layers 3 2 2 1`; `None` where every layer has the same size.
    budget: Option<Text>,
    /// What the policy's name stands for, whatever the cache size: `score=last_attention scope=layer keep_first=0 keep_recent=10%
    /// budget=uniform schedule=1`; `None` for `full` and `truncate`, and in rows of engine 4.
    definition: Option<Text>,
    /// When entries leave: `1`, after every token; `128`, so many at once; `cut`, once after the prompt; `cut+16`. `None` for `full`
    /// and `truncate`.
    schedule: Option<Text>,
    /// `absolute`, `slot` or `squeezed`.
    positions: Text,
    /// What the policy does in layers with a window of their own, `bounded` or `exempt`; `None` for models without such layers,
    /// and for `full` and `truncate`.
    local_layers: Option<Text>,
    /// Tokens that a query sees in each layer, as `24 24 -`, where `-` is no limit; `None` for models without such layers, and in
    /// rows of earlier versions.
    windows: Option<Text>,
    /// Where a prompt ends for its cache: `stream`, at its end; `cut_before_question`, where a policy cuts it before the question, or the
    /// size depends on the prompt and is that of its context.
    prefill: Text,
    /// `perplexity`, `retention`, `squality`, `qasper`, `story`, `needle`, ...
    task: Text,
    /// Where the texts came from, as the sweep names it.
    dataset: Text,
    /// Tokens per sample, BOS and generated tokens included.
    length: u32,
    /// Text tokens from the start of one sample to the start of the next; 0 for tasks that generate.
    stride: u32,
    /// Whether every sample starts with the tokenizer's BOS.
    bos: bool,
    /// `drop` or `keep`: what happens to a book's last, shorter sample; empty for tasks that generate.
    tail: Text,
    /// Settings of prompt and generation, `key=value` separated by spaces; `None` for tasks that only score.
    generation: Option<Text>,
    /// Whether each prediction was also compared with that of the full cache.
    compare_to_full: bool,
    /// Which samples the task takes: `books=3 chunks_per_book=all`; empty where that is no setting.
    selection: Text,
    /// Digest of the texts that were read, whatever their path; of a timing the machine's name.
    data: Text,
    seed: u64,
    /// The sample's name: `10146.txt#3` is the fourth chunk of a book.
    sample: Text,
    /// The book, story or paper a sample belongs to; intervals and tests are over these.
    cluster: Text,
    /// Content id of the sample under this cache: 16 hex digits, the same in every sweep that has it; empty where a
    /// measurement is never used again.
    sample_id: Text,
    // --- what
    /// `nll`, `nll_word`, `kl_to_full`, `top1_agreement`, `evicted_mass`, `recall`, `lifetime`, `f1`, `rouge1`, ...
    metric: Text,
    ---
    /// Sum over the sample; a pooled metric is `sum(value) / sum(weight)`.
    #[serde(with = "any_f64")]
    value: f64,
    /// Number of things summed over: scored tokens, words, questions.
    #[serde(with = "any_f64")]
    weight: f64,
    // --- proof
    /// The question below the document, on the row of `new_tokens`; `None` on the others.
    question: Option<String>,
    /// The reference answers as a JSON list of strings, on the same row; `None` where there are none.
    references: Option<String>,
    /// The generated text, on the row of `new_tokens`; the lists and tables of `kept_until` and `lifetime_by_token`; `None` on
    /// the others.
    output: Option<String>,
    prompt_tokens: u32,
    new_tokens: u32,
    // --- provenance
    /// Engine version: bumped when numbers may change.
    engine: u32,
    /// Git commit of the binary, if it was built in a checkout.
    commit: Option<Text>,
    /// The GPU's name, or `cpu` with its vector instructions; for timing the processor's name and the number of threads.
    device: Text,
    /// Type that the weights are rounded to: `f32`, `f16` or `bf16`; of quantised ones also the stored type of most: `q4_1 as f32`.
    dtype: Text,
    /// How products with weights were computed: `f32`, or `fast`, in integers.
    arithmetic: Text,
    /// Seconds this sample took in this cell (shared work is not counted twice).
    #[serde(with = "any_f64")]
    seconds: f64,
    /// Bytes that this program allocated for the largest key-value cache of the sample, in f32: under a policy its size and a block of 128
    /// tokens in each layer; without one an entry for each token, also of those written. A window bounds a layer as a size
    /// does. Of a timing, of all sequences while they are decoded.
    allocated_bytes: u64,
    /// UTC, RFC 3339.
    date: Text,
    +++
    // --- since schema 10
    /// Text token of the book at which the sample starts, BOS not counted; `None` for tasks that do not cut books, and in rows of
    /// earlier schemas.
    start: Option<u32>,
    /// The cache size as memory, where the sweep says it so: `25%` of the full cache, or `2000000B`.
    cache_memory: Option<Text>,
    /// Bytes of keys and values that the cache holds while a token is predicted, the mean over the tokens that follow the prompt (that
    /// are scored, or were written), in its format, where f32 counts as 16 bits a number. `None` where it is not known: of blocks that
    /// leave again and again, of KIVI's groups that lose entries, and in rows of earlier versions.
    held_bytes: Option<f64>,
    /// The most bytes that the cache holds between two tokens, reading included, counted in the same way.
    peak_bytes: Option<u64>,
    // --- since schema 11
    /// How keys and values are stored, such as `q8_0`, or `q8_0/q4_0` for keys and values.
    format: Option<Text>,
    /// Bytes that predicting a token reads of the cache, the mean over the same tokens, counted in the same way: those that it holds, or,
    /// where queries select, those of the entries that they attend to and of the bounds of pages by which these are chosen. `None` as for
    /// `held_bytes`.
    read_bytes: Option<f64>,
    /// The first layer whose queries select what they attend to among all entries; `None` where entries leave.
    select_from: Option<u32>,
}

impl Row {
    /// The type of the weights, and the arithmetic if it is not f32: `q4_1 as f32, fast`.
    pub fn precision(&self) -> String {
        if self.arithmetic == "f32" {
            self.dtype.to_string()
        } else {
            format!("{}, {}", self.dtype, self.arithmetic)
        }
    }

    /// The policy as a sweep would write it, which is what reports call it: `tova`, `tova@cut` where the prompt is cut and a preset of
    /// the name does not cut it, `tova@squeezed` where positions are not absolute, or `tova@exempt` where it leaves layers with a
    /// window alone. The last column of files, which follows from others and is not read.
    pub fn variant(&self) -> Cow<'_, str> {
        let mut variant = Cow::Borrowed(self.policy.as_str());
        let schedule = self.schedule.as_deref();
        // As of presets, of what rows before schedules do not say.
        let own = presets::own_schedule(&self.policy).to_string();
        let options = self.unusual_options();
        for kind in schedule.filter(|kind| *kind != own).into_iter().chain(options) {
            variant.to_mut().push_str(&format!("@{kind}"));
        }
        variant
    }

    /// Lists the words of the options of the row's cache that are not usual, and that matter to it.
    pub fn unusual_options(&self) -> impl Iterator<Item = &str> {
        let words = self.options().into_iter().zip(CacheOptions::default().words());
        let words = words.filter(|((key, _), _)| *key == "format" || !self.never_evicts());
        words.filter(|((_, own), (_, usual))| own.is_some_and(|own| own != usual)).filter_map(|((_, own), _)| own)
    }

    /// Lists column and word of each option of the row's cache, in the order of [`CacheOptions::words`].
    pub fn options(&self) -> [(&'static str, Option<&str>); 3] {
        [
            ("positions", Some(&self.positions)),
            ("local_layers", self.local_layers.as_deref()),
            ("format", self.format.as_deref()),
        ]
    }

    /// Whether the row's cache never evicts, so that positions and prefill do not matter to it.
    pub fn never_evicts(&self) -> bool {
        matches!(self.policy.as_str(), "full" | "truncate")
    }

    /// The cache size as a sweep writes it: `64`, `25%` or `memory 25%`; `None` for `full`.
    pub(crate) fn size_text(&self) -> Option<String> {
        let share = self.cache_share.map(|share| format!("{}%", (1e4 * share).round() / 100.0));
        let memory = || self.cache_memory.as_ref().map(|memory| format!("memory {memory}"));
        share.or_else(memory).or_else(|| self.cache_size.map(|size| size.to_string()))
    }
}

/// Names a column of tables of 0.2.0 as it is named now.
pub(super) fn with_present_names(mut table: Table) -> Result<Table> {
    if table.names().contains(&"peak_cache_bytes") {
        table.push("allocated_bytes", table.column::<u64>("peak_cache_bytes")?);
    }
    Ok(table)
}

/// Adds the five columns of the rows' slices.
fn push_slices(table: &mut Table, rows: &[Row]) {
    let texts = |of: fn(&Slice) -> Option<Text>| rows.iter().map(|row| row.slice.as_ref().and_then(of)).collect();
    let numbers = |of: fn(&Slice) -> Option<u64>| rows.iter().map(|row| row.slice.as_ref().and_then(of)).collect();
    table.push::<Option<Text>>("slice", texts(|slice| Some(slice.kind.clone())));
    table.push::<Option<Text>>("slice_name", texts(|slice| slice.name.clone()));
    table.push::<Option<u64>>("slice_low", numbers(|slice| slice.low));
    table.push::<Option<u64>>("slice_high", numbers(|slice| slice.high));
    table.push::<Option<u64>>("slice_second", numbers(|slice| slice.second));
}

/// Slices of a table's rows, from the five columns.
fn slices(table: &Table) -> Result<Vec<Option<Slice>>> {
    let kinds = table.column::<Option<Text>>("slice")?;
    let [low, high, second] =
        ["slice_low", "slice_high", "slice_second"].map(|name| table.column::<Option<u64>>(name));
    let numbers = low?.into_iter().zip(high?).zip(second?);
    let names = table.column::<Option<Text>>("slice_name")?;
    let slices = kinds.into_iter().zip(names).zip(numbers);
    let slice = |((kind, name), ((low, high), second)): ((Option<Text>, _), ((_, _), _))| {
        kind.map(|kind| Slice { kind, name, low, high, second })
    };
    Ok(slices.map(slice).collect())
}

/// JSON has no NaN and no infinity, so they are written as strings.
mod any_f64 {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.collect_str(value) }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => text.parse().map_err(D::Error::custom),
            value => value.as_f64().ok_or_else(|| D::Error::custom(format!("{value} is not a number"))),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row for tests.
    pub(crate) fn row(sample: u32) -> Row {
        Row {
            cell: "cell".into(),
            model: "model".into(),
            model_revision: "revision".into(),
            policy: "tova".into(),
            score: Some("last_attention".into()),
            cache_size: Some(64),
            schedule: Some("1".into()),
            positions: "absolute".into(),
            task: "perplexity".into(),
            bos: true,
            generation: Some("temperature=0".into()),
            sample: format!("book#{sample}").into(),
            metric: "nll".into(),
            slice: Some(Slice::named("kind", "home")),
            value: 0.1 + f64::from(sample),
            weight: 127.0,
            arithmetic: "f32".into(),
            seconds: 0.25,
            ..Row::default()
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
