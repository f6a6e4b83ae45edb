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
            let finding = finding.figure("shard", shard.index() + 1).figure("shards", shard.count());
            Finding { value, ..finding }
        }
        Err(error) => Finding { value: format!("job {job}, an array task"), ..finding }
            .problem(error.to_string().replace('\n', "; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn array_tasks_know_their_share() {
        let array = |id: &str, count: &str| {
            let variables = [
                ("SLURM_JOB_ID", "41"),
                ("SLURM_ARRAY_TASK_ID", id),
                ("SLURM_ARRAY_TASK_MIN", "0"),
                ("SLURM_ARRAY_TASK_MAX", "14"),
                ("SLURM_ARRAY_TASK_STEP", "2"),
                ("SLURM_ARRAY_TASK_COUNT", count),
            ];
            finding(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())).unwrap()
        };
        assert_eq!(finding(|_| None), None);
        // --array=0-14:2
        let fourth = array("6", "8");
        assert!(fourth.severity == Severity::Ok && fourth.value.contains("--shard 4/8"), "{fourth:?}");
        // Uneven task ids: two tasks would take the same share, or one none.
        let uneven = array("6", "3");
        assert!(uneven.severity == Severity::Problem && uneven.advice[0].contains("--shard"), "{uneven:?}");
    }
}
