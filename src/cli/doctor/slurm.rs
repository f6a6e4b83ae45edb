//! The Slurm job, if this is one: which share of a sweep an array task takes, and whether it can use the cores it was given.

use super::finding::Finding;
use crate::sweep::Shard;

/// `None` outside a job. `cores` are those that the system lets this process use.
pub(super) fn finding(variable: impl Fn(&str) -> Option<String>, cores: usize) -> Option<Finding> {
    let job = variable("SLURM_JOB_ID")?;
    let job = job.trim();
    let finding = Finding::ok("Slurm", "").figure("job", job);
    let mut finding = match Shard::of_slurm(&variable) {
        Ok(None) => Finding { value: format!("job {job}, no array: `run` takes the whole sweep"), ..finding },
        Ok(Some(shard)) => {
            let task = variable("SLURM_ARRAY_TASK_ID").unwrap_or_default();
            let value = format!("job {job}, array task {}: --shard {shard}", task.trim());
            let finding = finding.figure("shard", shard.index() + 1).figure("shards", shard.count());
            Finding { value, ..finding }
        }
        Err(error) => Finding { value: format!("job {job}, an array task"), ..finding }
            .problem(error.to_string().replace('\n', "; ")),
    };
    let granted = variable("SLURM_CPUS_PER_TASK").and_then(|text| text.trim().parse::<usize>().ok());
    if let Some(granted) = granted.filter(|granted| *granted > 0) {
        finding.value += &format!(", {granted} CPUs per task");
        if granted > cores {
            finding = finding.note(format!(
                "only {cores} of these can be used; start it with srun --cpus-per-task={granted}, which srun does not \
                 take from sbatch by itself"
            ));
        }
    }
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn task(variables: &[(&str, &str)], cores: usize) -> Option<Finding> {
        finding(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_string()), cores)
    }

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
            task(&variables, 4).unwrap()
        };
        assert_eq!(task(&[], 4), None);
        // --array=0-14:2
        let sixth = array("6", "8");
        assert!(sixth.severity == Severity::Ok && sixth.value.contains("--shard 4/8"), "{sixth:?}");
        // Uneven task ids: two tasks would take the same share, or one none.
        let uneven = array("6", "3");
        assert!(uneven.severity == Severity::Problem && uneven.advice[0].contains("--shard"), "{uneven:?}");
    }

    #[test]
    fn cores_that_cannot_be_used_get_a_note() {
        let job = [("SLURM_JOB_ID", "9"), ("SLURM_CPUS_PER_TASK", "4")];
        assert_eq!(task(&job, 4).unwrap().severity, Severity::Ok);
        let fewer = task(&job, 2).unwrap();
        assert!(fewer.advice[0].contains("srun --cpus-per-task=4"), "{fewer:?}");
    }
}
