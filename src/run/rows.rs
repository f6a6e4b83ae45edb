//! A measurement becomes rows.

use crate::eviction::{CacheRule, Policy};
use crate::ledger::{ENGINE_VERSION, Row, Text, date};
use crate::metric::{MetricSum, NEW_TOKENS};
use crate::task::Measured;

use super::prepare::{Group, NamedCell};

/// What the rows of a run have in common.
pub(super) struct Provenance {
    pub sweep: String,
    pub device: String,
    pub dtype: String,
}

impl Provenance {
    /// Rows of one cell's sample.
    pub fn rows(&self, group: &Group, named: &NamedCell, sample: usize, measured: &Measured) -> Vec<Row> {
        let cell = &named.cell;
        let request = group.samples.request(sample);
        let question = request.map(|request| request.prompt.question()).filter(|question| !question.is_empty());
        let references = request.map(|request| &request.references).filter(|references| !references.is_empty());
        let references = references.map(|references| serde_json::Value::from(references.clone()).to_string());
        let (sample, cluster) = group.samples.name(sample);
        let (stride, tail) = match cell.task.texts() {
            Some(texts) => (texts.stride(group.bos), texts.tail.name()),
            None => (0, ""),
        };
        let asked = cell.task.asked(group.samples.template());
        let (policy, size): (Option<Policy>, Option<usize>) = match cell.rule {
            CacheRule::Unbounded => (None, None),
            CacheRule::Truncate { size } => (None, Some(size)),
            CacheRule::Evict { policy, size } => (Some(policy.canonical()), Some(size)),
        };
        let date = date();
        // Said once for each answer, beside it.
        let once =
            |mark: &MetricSum, text: Option<&str>| text.filter(|_| mark.metric == NEW_TOKENS).map(str::to_string);
        let row = |mark: &MetricSum| Row {
            cell: named.name.id().to_string().into(),
            sweep: self.sweep.as_str().into(),
            model: group.model.to_string().into(),
            model_revision: group.revision.to_string().into(),
            policy: cell.policy.as_str().into(),
            score: policy.map(|policy| policy.score.name().into()),
            scope: policy.map(|policy| policy.scope.name().into()),
            keep_first: policy.map_or(0, |policy| policy.keep_first as u32),
            keep_recent: policy.map_or(0, |policy| policy.keep_recent.of(size.unwrap_or_default()) as u32),
            cache_size: size.map(|size| size as u32),
            positions: cell.positions.name().into(),
            prefill: cell.task.prefill_name().into(),
            task: cell.task.name().into(),
            dataset: cell.task.dataset().into(),
            length: cell.task.length() as u32,
            stride: stride as u32,
            bos: group.bos,
            tail: tail.into(),
            asked: asked.as_deref().map(Text::from),
            seed: cell.seed,
            sample: sample.into(),
            cluster: cluster.into(),
            metric: mark.metric.into(),
            group: mark.group.as_deref().map(Text::from),
            value: mark.value,
            weight: mark.weight,
            question: once(mark, question),
            references: once(mark, references.as_deref()),
            output: mark.output.clone(),
            prompt_tokens: measured.prompt_tokens as u32,
            new_tokens: measured.new_tokens as u32,
            engine: ENGINE_VERSION,
            commit: option_env!("TOVA_BENCH_COMMIT").map(Text::from),
            device: self.device.as_str().into(),
            dtype: self.dtype.as_str().into(),
            seconds: measured.seconds,
            peak_cache_bytes: measured.peak_cache_bytes,
            date: date.clone(),
        };
        measured.sums.iter().map(row).collect()
    }
}
