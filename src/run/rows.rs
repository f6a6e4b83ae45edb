//! A measurement becomes rows.

use crate::eviction::{CacheRule, Policy};
use crate::results::Row;
use crate::sweep::ENGINE_VERSION;
use crate::task::{Measured, Sample};

use super::prepare::{Group, NamedCell};

/// What the rows of a run have in common.
pub(super) struct Provenance {
    pub sweep: String,
    pub device: String,
    pub dtype: String,
}

impl Provenance {
    /// Rows of one cell's sample.
    pub fn rows(&self, group: &Group, named: &NamedCell, sample: &Sample, measured: &Measured) -> Vec<Row> {
        let cell = &named.cell;
        let (policy, size): (Option<Policy>, Option<usize>) = match cell.rule {
            CacheRule::Unbounded => (None, None),
            CacheRule::Truncate { size } => (None, Some(size)),
            CacheRule::Evict { policy, size } => (Some(policy.canonical()), Some(size)),
        };
        let date = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        let row = |mark: &crate::metric::Mark| Row {
            cell: named.name.id().to_string(),
            sweep: self.sweep.clone(),
            model: group.model.source.to_string(),
            model_revision: group.revision.to_string(),
            policy: cell.policy.clone(),
            score: policy.map(|policy| policy.score.name().into()),
            scope: policy.map(|policy| policy.scope.name().into()),
            keep_first: policy.map_or(0, |policy| policy.keep_first as u32),
            keep_recent: policy.map_or(0, |policy| policy.keep_recent.of(size.unwrap_or_default()) as u32),
            cache_size: size.map(|size| size as u32),
            positions: cell.positions.name().into(),
            // A scored text is read token by token in effect; prompts will know another way.
            prefill: "stream".into(),
            task: cell.task.name().into(),
            dataset: cell.task.dataset().to_string(),
            length: group.task.length as u32,
            stride: group.task.stride(group.bos) as u32,
            bos: group.bos,
            tail: group.task.tail.name().into(),
            seed: cell.seed,
            sample: sample.name.clone(),
            cluster: sample.cluster.clone(),
            metric: mark.metric.into(),
            group: mark.group.clone(),
            value: mark.value,
            weight: mark.weight,
            output: None,
            prompt_tokens: sample.tokens.len() as u32,
            new_tokens: 0,
            engine: ENGINE_VERSION,
            commit: option_env!("TOVA_BENCH_COMMIT").map(str::to_string),
            device: self.device.clone(),
            dtype: self.dtype.clone(),
            seconds: measured.seconds,
            peak_cache_bytes: measured.peak_cache_bytes,
            date: date.clone(),
        };
        measured.marks.iter().map(row).collect()
    }
}
