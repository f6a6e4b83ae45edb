//! The Slurm job, if this is one, and the share of a sweep that an array task takes.

use super::finding::Finding;
use crate::sweep::Shard;

/// `None` outside a job.
pub(super) fn finding(variable: impl Fn(&str) -> Option<String>) -> Option<Finding> {
    let job = variable("SLURM_JOB_ID")?;
    let job = job.trim();
    let finding = Finding::ok("Slurm", "").figure("job", job);
    Some(match Shard::of_slurm(&variable) {
        Ok(None) => Finding { value: format!("job {job}, no array: `run` takes the whole sweep"), ..finding },
        Ok(Some(shard)) => {
            let task = variable("SLURM_ARRAY_TASK_ID").unwrap_or_default();
            let value = format!("job {job}, array task {}: --shard {shard}", task.trim());
            let finding = finding.figure("shard", shard.index + 1).figure("shards", shard.count);
            Finding { value, ..finding }
        }
        Err(error) => Finding { value: format!("job {job}, an array task"), ..finding }
            .problem(error.to_string().replace('\n', "; ")),
    })
}
