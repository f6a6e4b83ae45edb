//! Memory of the machine and of the job.

use super::finding::{Finding, Verdict};
use crate::cli::sweeps::bytes;
use crate::lm::{HostMemory, LimitKind, host_memory};

/// What the built-in sweep takes, with some room: its process grew to 0.42 GB with two threads.
const LEAST: u64 = 500_000_000;

/// Less than this, and only small models run.
const LITTLE: u64 = 4_000_000_000;

pub(super) fn findings() -> Vec<Finding> {
    vec![match host_memory() {
        Some(memory) => memory_finding(&memory),
        None => Finding::note(
            "memory",
            "not known on this system",
            "runs do not notice when a model does not fit: look at `plan` before",
        ),
    }]
}

fn memory_finding(memory: &HostMemory) -> Finding {
    let limit = match &memory.limit {
        None => ", no limit below that".to_string(),
        Some(limit) => {
            let whose = match &limit.kind {
                LimitKind::ControlGroup(folder) => format!("the control group {}", folder.display()),
                LimitKind::AddressSpace => "`ulimit -v`".to_string(),
            };
            format!("; {whose} allows {}, of which {} are left", bytes(limit.bytes), bytes(limit.left))
        }
    };
    let value = format!("{} available of {}{limit}", bytes(memory.available), bytes(memory.total));
    let finding = Finding::ok("memory", value)
        .figure("total_bytes", memory.total)
        .figure("available_bytes", memory.available)
        .figure("limit_bytes", memory.limit.as_ref().map(|limit| limit.bytes));
    let more = match memory.limit.as_ref().map(|limit| &limit.kind) {
        _ if memory.available >= LITTLE => return finding,
        Some(LimitKind::ControlGroup(_)) => {
            "ask for more (Slurm: --mem, Docker: --memory, Kubernetes: resources.limits.memory)"
        }
        Some(LimitKind::AddressSpace) => "raise it: `ulimit -v unlimited`, or what your scheduler has for it",
        None => "end other programs, or use a larger machine",
    };
    if memory.available < LEAST {
        finding.but(Verdict::Problem, format!("not enough for the built-in sweep: {more}"))
    } else {
        finding.but(Verdict::Note, format!("`plan SWEEP` says what a sweep takes; if that is more, {more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lm::MemoryLimit;

    #[test]
    fn the_limit_that_counts_is_named_and_judged() {
        let limited = |left: u64, kind: LimitKind| {
            let limit = Some(MemoryLimit { bytes: 5_000_000_000, left, kind });
            memory_finding(&HostMemory { total: 200_000_000_000, available: left, limit })
        };
        let group = || LimitKind::ControlGroup("/sys/fs/cgroup/job_7".into());
        let enough = limited(4_500_000_000, group());
        assert_eq!(enough.verdict, Verdict::Ok);
        assert!(enough.value.contains("job_7 allows 5.0 GB, of which 4.5 GB are left"), "{enough:?}");
        assert_eq!(limited(1_000_000_000, group()).verdict, Verdict::Note);
        let none = limited(100_000_000, LimitKind::AddressSpace);
        assert_eq!(none.verdict, Verdict::Problem);
        assert!(none.advice[0].contains("ulimit -v unlimited"), "{none:?}");
    }
}
