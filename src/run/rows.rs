//! Makes result rows of measurements.

use crate::eviction::{CacheRule, Policy};
use crate::ledger::{ENGINE_VERSION, Row, Text, date};
use crate::metric::MetricSum;
use crate::task::SampleResult;

use super::prepare::{ModelTask, NamedCell};

/// The columns that all rows of a model and a task share.
pub(super) struct Provenance {
    pub sweep: String,
    pub device: String,
    pub dtype: String,
}

impl Provenance {
    /// The rows of one sample of a cell.
    pub fn rows(
        &self,
        model_task: &ModelTask,
        named: &NamedCell,
        sample: usize,
        result: &SampleResult,
    ) -> Vec<Row> {
        let cell = &named.cell;
        let request = model_task.samples.request(sample);
        let question = request.map(|request| request.prompt.question()).filter(|question| !question.is_empty());
        let references = request.map(|request| &request.references).filter(|references| !references.is_empty());
        let references = references.map(|references| serde_json::Value::from(references.clone()).to_string());
        let (sample, cluster) = model_task.samples.name(sample);
        let (stride, tail) = match &cell.task.texts {
            Some(texts) => (texts.stride(model_task.bos), texts.tail.name()),
            None => (0, ""),
        };
        let generation = cell.task.generation_settings(model_task.samples.template());
        let (policy, size): (Option<Policy>, Option<usize>) = match cell.rule {
            CacheRule::Unbounded => (None, None),
            CacheRule::Truncate { size } => (None, Some(size)),
            CacheRule::Evict { policy, size } => (Some(policy.canonical()), Some(size)),
        };
        let date = date();
        // Only in the row that holds the answer.
        let once =
            |sum: &MetricSum, text: Option<&str>| text.filter(|_| sum.metric == "new_tokens").map(str::to_string);
        let row = |sum: &MetricSum| Row {
            cell: named.name.id().to_string().into(),
            sweep: self.sweep.as_str().into(),
            model: model_task.model.to_string().into(),
            model_revision: model_task.revision.to_string().into(),
            policy: cell.policy.as_str().into(),
            score: policy.map(|policy| policy.score.name().into()),
            scope: policy.map(|policy| policy.scope.name().into()),
            keep_first: policy.map_or(0, |policy| policy.keep_first.of(size.unwrap_or_default()) as u32),
            keep_recent: policy.map_or(0, |policy| policy.keep_recent.of(size.unwrap_or_default()) as u32),
            cache_size: size.map(|size| size as u32),
            positions: cell.positions.name().into(),
            prefill: cell.task.prefill_name().into(),
            task: cell.task.name.into(),
            dataset: cell.task.dataset.as_str().into(),
            length: cell.task.length as u32,
            stride: stride as u32,
            bos: model_task.bos,
            tail: tail.into(),
            generation: generation.as_deref().map(Text::from),
            seed: cell.seed,
            sample: sample.into(),
            cluster: cluster.into(),
            metric: sum.metric.into(),
            slice: sum.slice.as_deref().map(Text::from),
            value: sum.value,
            weight: sum.weight,
            question: once(sum, question),
            references: once(sum, references.as_deref()),
            output: sum.output.clone(),
            prompt_tokens: result.prompt_tokens as u32,
            new_tokens: result.new_tokens as u32,
            engine: ENGINE_VERSION,
            commit: option_env!("TOVA_BENCH_COMMIT").map(Text::from),
            device: self.device.as_str().into(),
            dtype: self.dtype.as_str().into(),
            seconds: result.seconds,
            peak_cache_bytes: result.peak_cache_bytes,
            date: date.clone(),
        };
        result.sums.iter().map(row).collect()
    }
}
