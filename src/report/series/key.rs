//! What two numbers must share to stand in one table: the task, the texts, the model and how they were read.
//!
//! These are the columns of a row that say where it was measured, except for policy and cache size.

use serde::Serialize;
use serde_json::Value;

use crate::ledger::{Row, Settings, Text};
use crate::metric::Metric;
use crate::report::escape;
use crate::report::series::SizeUnit;

/// Everything that can change a number, except for policy, positions and cache size. It has a field for each column of rows that can.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SeriesKey {
    pub task: Text,
    pub dataset: Text,
    pub model: Text,
    pub model_revision: Text,
    pub dtype: Text,
    pub arithmetic: Text,
    pub length: u32,
    pub stride: u32,
    pub bos: bool,
    pub tail: Text,
    pub generation: Text,
    pub compare_to_full: bool,
    pub selection: Text,
    /// Digest of the texts.
    pub data: Text,
    /// 0 where only the policy `random` depends on it.
    pub seed: u64,
    pub prefill: Text,
    pub engine: u32,
    /// Empty unless the metric is a property of a device.
    pub device: Text,
    /// What cache sizes are. Programs see it from the sizes themselves.
    #[serde(skip)]
    pub size_unit: SizeUnit,
    /// Samples that any cell has, of how many, while cells are unfinished.
    #[serde(skip)]
    pub unfinished: Option<[usize; 2]>,
}

/// Details that titles treat in a way of their own.
const MEASURED: &str = "measured";
const DATA: &str = "data";

impl SeriesKey {
    /// Names of the fields, as in rows.
    pub fn names() -> Vec<String> {
        Self::default().fields().into_iter().map(|(name, _)| name).collect()
    }

    /// Fields in full, by name, in the order of [`SeriesKey::names`].
    pub fn fields(&self) -> Vec<(String, String)> {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else { unreachable!("a struct is an object") };
        let text = |value| if let Value::String(text) = value { text } else { value.to_string() };
        fields.into_iter().map(|(name, value)| (name, text(value))).collect()
    }

    /// Where a row was measured.
    pub fn of(row: &Row) -> Self {
        let is_timed = Metric::known(&row.metric).is_some_and(Metric::is_timed);
        let generation = row.generation.clone().unwrap_or_default();
        let is_drawn =
            Settings::from(&*generation).get("temperature").is_some_and(|temperature| temperature != "0");
        Self {
            task: row.task.clone(),
            dataset: row.dataset.clone(),
            model: row.model.clone(),
            model_revision: row.model_revision.clone(),
            dtype: row.dtype.clone(),
            arithmetic: row.arithmetic.clone(),
            length: row.length,
            stride: row.stride,
            bos: row.bos,
            tail: row.tail.clone(),
            seed: if is_drawn { row.seed } else { 0 },
            generation,
            compare_to_full: row.compare_to_full,
            selection: row.selection.clone(),
            data: row.data.clone(),
            prefill: row.prefill.clone(),
            engine: row.engine,
            device: if is_timed { row.device.clone() } else { Text::new() },
            size_unit: SizeUnit::of(row),
            unfinished: None,
        }
    }

    /// Type of the weights, and the arithmetic if it is not f32, as [`Row::precision`] writes them.
    pub fn precision(&self) -> String {
        let (dtype, arithmetic) = (self.dtype.clone(), self.arithmetic.clone());
        Row { dtype, arithmetic, ..Row::default() }.precision()
    }

    /// The key as rows have it.
    pub(crate) fn of_rows(&self) -> Self {
        Self { unfinished: None, ..self.clone() }
    }

    /// Everything as text, for fingerprints in file names.
    pub(crate) fn described(&self) -> String {
        let sizes = match self.size_unit {
            SizeUnit::Entries => "",
            SizeUnit::Share => " sizes=shares",
            SizeUnit::MemoryShare => " sizes=shares of memory",
            SizeUnit::Memory => " sizes=memory",
        };
        self.fields().iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ") + sizes
    }

    /// Whether two rows surely have the same key, without making either.
    pub(crate) fn agree(a: &Row, b: &Row) -> bool {
        fn texts(row: &Row) -> [&Text; 10] {
            let Row { task, dataset, model, model_revision, dtype, arithmetic, .. } = row;
            let Row { tail, prefill, selection, data, .. } = row;
            [task, dataset, model, model_revision, dtype, arithmetic, tail, prefill, selection, data]
        }
        texts(a) == texts(b)
            && (a.length, a.stride, a.bos, a.seed, &a.generation)
                == (b.length, b.stride, b.bos, b.seed, &b.generation)
            && (a.compare_to_full, a.engine, &a.device) == (b.compare_to_full, b.engine, &b.device)
            && SizeUnit::of(a) == SizeUnit::of(b)
    }

    /// The key without what only concerns a bounded cache: `full` and `truncate` are shared by the keys that differ in
    /// nothing else.
    pub fn without_cache(&self) -> Self {
        Self { prefill: Text::new(), compare_to_full: false, size_unit: SizeUnit::Entries, ..self.clone() }
    }

    /// The other fields, by name, as titles and lines of settings show them. Fields that do not concern the task are left
    /// out.
    pub fn details(&self) -> Vec<(&str, String)> {
        let measured = self.unfinished.map_or_else(String::new, |[done, all]| format!("{done} of {all} samples"));
        let selection = Settings::from(&*self.selection).0.into_iter();
        let others = [
            ("revision", shorten(&self.model_revision)),
            ("dtype", self.dtype.to_string()),
            ("arithmetic", self.arithmetic.to_string()),
            ("length", self.length.to_string()),
            ("stride", if self.stride == 0 { String::new() } else { self.stride.to_string() }),
            ("bos", if self.bos { "yes" } else { "no" }.to_owned()),
            ("tail", self.tail.to_string()),
            ("generation", self.generation.to_string()),
            ("compare_to_full", if self.compare_to_full { "yes".to_owned() } else { String::new() }),
            (DATA, shorten(&self.data)),
            ("seed", if self.seed == 0 { String::new() } else { self.seed.to_string() }),
            ("prefill", prefill_words(&self.prefill).to_owned()),
            ("sizes", self.size_unit.words().to_owned()),
            ("engine", self.engine.to_string()),
            ("device", self.device.to_string()),
        ];
        let details = [(MEASURED, measured)].into_iter().chain(selection).chain(others);
        details.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Model, data set and task in full, and the details.
    pub fn headed_details(&self) -> impl Iterator<Item = (&str, String)> {
        let head = [("model", &self.model), ("dataset", &self.dataset), ("task", &self.task)];
        head.map(|(name, value)| (name, value.to_string())).into_iter().chain(self.details())
    }

    /// Model and data set, and whatever else differs `among` all keys of the report. Of a key that is not finished always how
    /// many samples it has.
    pub fn title(&self, among: &[SeriesKey]) -> String {
        let model = shortest(&self.model, among.iter().map(|other| &other.model));
        let dataset = shortest(&self.dataset, among.iter().map(|other| &other.dataset));
        let mut parts = vec![escape::plain(model), escape::plain(dataset)];
        if among.iter().any(|other| other.task != self.task) {
            parts.push(escape::plain(&self.task));
        }
        let head = |key: &SeriesKey| (key.model.clone(), key.dataset.clone(), key.task.clone());
        let alike: Vec<Vec<(&str, String)>> =
            among.iter().filter(|other| head(other) == head(self)).map(SeriesKey::details).collect();
        let own = self.details();
        let has = |details: &[(&str, String)], detail: &(&str, String)| details.contains(detail);
        // Other texts nearly always come with another selection, which says more than a digest.
        let is_told = |(name, _): &&(&str, String)| !matches!(*name, MEASURED | DATA);
        let same_but_data = |other: &&Vec<(&str, String)>| {
            let [own, other] = [&own, *other].map(|of| of.iter().filter(is_told).collect::<Vec<_>>());
            own == other
        };
        let ambiguous: Vec<&Vec<(&str, String)>> = alike.iter().filter(same_but_data).collect();
        for detail in &own {
            let (name, value) = detail;
            let differs = match *name {
                MEASURED => {
                    parts.push(value.clone());
                    false
                }
                DATA => ambiguous.iter().any(|other| !has(other, detail)),
                _ => alike.iter().any(|other| !has(other, detail)),
            };
            if differs {
                parts.push(format!("{name} {}", escape::plain(value)));
            }
        }
        parts.join(" \u{B7} ")
    }
}

/// The last component: `Llama-2-7b-hf` of `meta-llama/Llama-2-7b-hf`, or a file's name without its folders or repository; as
/// many components as tell it from the others.
fn shortest<'a>(name: &'a str, others: impl Iterator<Item = &'a Text> + Clone) -> &'a str {
    let whole = name.trim_end_matches('/');
    let is_boundary = |byte: Option<&u8>| byte.is_none_or(|byte| matches!(byte, b'/' | b':'));
    // The longest end that another name has as whole components; each name is read once, because it may be long.
    let in_common = |other: &Text| {
        let other = other.trim_end_matches('/').as_bytes();
        let alike = other.iter().rev().zip(whole.bytes().rev()).take_while(|(a, b)| **a == *b).count();
        let ends_here = is_boundary(other.len().checked_sub(alike + 1).and_then(|before| other.get(before)));
        if ends_here { alike } else { alike.saturating_sub(1) }
    };
    let ambiguous = others.filter(|other| *other != name).map(in_common).max().unwrap_or(0);
    let ends = whole.rmatch_indices(['/', ':']).map(|(at, _)| &whole[at + 1..]);
    ends.into_iter().find(|end| end.len() > ambiguous).unwrap_or(name)
}

/// Commits and digests, shortened to what can be compared by eye.
fn shorten(revision: &str) -> String {
    let digest = revision.strip_prefix("sha256:").unwrap_or(revision);
    let is_digest = digest.len() > 12 && digest.bytes().all(|b| b.is_ascii_hexdigit());
    if is_digest { digest[..12].to_owned() } else { revision.to_owned() }
}

/// The settings of a sweep that a value of the column `prefill` stands for.
pub fn prefill_words(prefill: &str) -> &str {
    if prefill == "cut_before_question" { "query_aware: false" } else { prefill }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_selection_may_have_spaces() {
        let yaml = "models: [pocket]\npolicies: [full]\ntasks:\n  - needle: {dataset: embedded, depths: [10, 50, 90], texts: 2, \
                    fact: {needle: The key is 7 blue stones., question: What is the key?, answer: 7 blue stones}}\n";
        let sweep = crate::sweep::Sweep::parse(yaml, "needles.yaml").unwrap();
        let key = SeriesKey {
            selection: Settings::from_iter(&sweep.tasks[0].selection).to_string().into(),
            ..SeriesKey::default()
        };
        let details = key.details();
        for expected in [
            ("depths", "[10, 50, 90]"),
            ("texts", "2"),
            ("needle", "The key is 7 blue stones."),
            ("question", "What is the key?"),
            ("answer", "7 blue stones"),
        ] {
            assert!(details.contains(&(expected.0, expected.1.to_owned())), "{expected:?}: {details:?}");
        }
    }

    #[test]
    fn names_are_as_short_as_tells_them_apart() {
        let all =
            ["o/n:quant/a.Q4_1.gguf", "o/n:b.gguf", "./x/b.gguf", "./models/c", "hub/c", "hub/d@main", "mine"]
                .map(Text::from);
        let short = |name: &Text| shortest(name, all.iter()).to_owned();
        let expected = ["a.Q4_1.gguf", "n:b.gguf", "x/b.gguf", "models/c", "hub/c", "d@main", "mine"];
        assert_eq!(all.each_ref().map(short), expected);
    }
}
