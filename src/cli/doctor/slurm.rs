//! What Slurm says of this job: which share of a sweep an array task has, and whether its cores are those it was given.
//!
//! Asks the same functions as `run`, so that both say the same.

use super::finding::{Finding, Verdict, one_line};
use crate::sweep::Shard;

/// Nothing outside a job. `available` are the cores that the system lets this process use.
pub(super) fn findings(variable: impl Fn(&str) -> Option<String>, available: usize) -> Option<Finding> {
    let job = variable("SLURM_JOB_ID")?;
    let mut said = vec![format!("job {}", job.trim())];
    let node = variable("SLURMD_NODENAME");
    said.extend(node.map(|node| format!("on {}", node.trim())));
    let mut finding = Finding::ok("Slurm", "").figure("job", job.trim());
    match Shard::of_slurm(&variable) {
        Ok(None) => said.push("no array: `run` takes the whole sweep, or what --shard names".into()),
        Ok(Some(shard)) => {
            let task = variable("SLURM_ARRAY_TASK_ID").unwrap_or_default();
            said.push(format!("array task {}: --shard {shard}", task.trim()));
            finding = finding.figure("shard", shard.index() + 1).figure("shards", shard.count());
        }
        Err(error) => {
            said.push("an array task".into());
            finding = finding.but(Verdict::Problem, one_line(&error.to_string()));
        }
    }
    let given = variable("SLURM_CPUS_PER_TASK").and_then(|text| text.trim().parse::<usize>().ok());
    if let Some(given) = given.filter(|given| *given > 0) {
        said.push(format!("{given} CPUs per task"));
        if given > available {
            finding = finding.but(
                Verdict::Note,
                format!(
                    "only {available} of these can be used by this process: start it with \
                     srun --cpus-per-task={given}, as srun does not take the number over from sbatch by itself"
                ),
            );
        } else if given < available {
            finding = finding.but(
                Verdict::Note,
                format!(
                    "Slurm binds tasks to no cores here, so others may use these {given}: times vary; `run` keeps to \
                     {given} threads by itself"
                ),
            );
        }
    }
    finding.value = said.join(", ");
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(variables: &[(&str, &str)], cores: usize) -> Option<Finding> {
        findings(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_string()), cores)
    }

    fn array(id: &str, min: &str, max: &str, step: &str, count: &str) -> Finding {
        let variables = [
            ("SLURM_JOB_ID", "41"),
            ("SLURM_ARRAY_TASK_ID", id),
            ("SLURM_ARRAY_TASK_MIN", min),
            ("SLURM_ARRAY_TASK_MAX", max),
            ("SLURM_ARRAY_TASK_STEP", step),
            ("SLURM_ARRAY_TASK_COUNT", count),
        ];
        task(&variables, 4).unwrap()
    }

    #[test]
    fn shards_are_counted_from_the_first_task_in_steps() {
        assert_eq!(task(&[], 4), None);
        // --array=0-7, --array=1-8, --array=0-14:2 (0, 2, ... 14), --array=5
        for (task, of) in [
            (array("0", "0", "7", "1", "8"), "--shard 1/8"),
            (array("8", "1", "8", "1", "8"), "--shard 8/8"),
            (array("6", "0", "14", "2", "8"), "--shard 4/8"),
            (array("5", "5", "5", "1", "1"), "--shard 1/1"),
        ] {
            assert!(task.verdict == Verdict::Ok && task.value.contains(of), "{task:?}");
        }
        // --array=1,5,7: two of its tasks would take the same share, or one none.
        for id in ["1", "5", "7"] {
            let task = array(id, "1", "7", "1", "3");
            assert!(task.verdict == Verdict::Problem && task.advice[0].contains("--shard"), "{task:?}");
        }
    }

    #[test]
    fn cores_that_are_not_the_jobs_are_told() {
        let job = [("SLURM_JOB_ID", "9"), ("SLURM_CPUS_PER_TASK", "4"), ("SLURMD_NODENAME", "n3")];
        let right = task(&job, 4).unwrap();
        assert_eq!((right.verdict, right.advice.len()), (Verdict::Ok, 0));
        assert!(right.value.contains("job 9, on n3"), "{right:?}");
        let unbound = task(&job, 64).unwrap();
        assert!(unbound.verdict == Verdict::Note && unbound.advice[0].contains("4 threads"), "{unbound:?}");
        let fewer = task(&job, 2).unwrap();
        assert!(fewer.advice[0].contains("srun --cpus-per-task=4"), "{fewer:?}");
    }
}
