//! Memory of the machine and of the job.

use super::finding::Finding;
use crate::format::Bytes;
use crate::lm::{HostMemory, LimitKind, host_memory};

/// The built-in sweep takes 0.42 GB with two threads.
const LEAST: u64 = 500_000_000;

/// With less than this only small models run.
const LITTLE: u64 = 4_000_000_000;

pub(super) fn finding() -> Finding {
    match host_memory() {
        Some(memory) => memory_finding(&memory),
        None => Finding::ok("memory", "unknown on this system")
            .note("runs cannot check whether a model fits: look at `plan` first"),
    }
}

fn memory_finding(memory: &HostMemory) -> Finding {
    let limit = match &memory.limit {
        None => ", no limit below that".to_string(),
        Some(limit) => {
            let by = match &limit.kind {
                LimitKind::ControlGroup(folder) => format!("the control group {}", folder.display()),
                LimitKind::AddressSpace => "`ulimit -v`".to_string(),
            };
            format!("; {by} allows {}, of which {} are left", Bytes(limit.bytes), Bytes(limit.left))
        }
    };
    let value = format!("{} available of {}{limit}", Bytes(memory.available), Bytes(memory.total));
    let finding = Finding::ok("memory", value)
        .figure("total_bytes", memory.total)
        .figure("available_bytes", memory.available)
        .figure("limit_bytes", memory.limit.as_ref().map(|limit| limit.bytes));
    let more = match memory.limit.as_ref().map(|limit| &limit.kind) {
        Some(LimitKind::ControlGroup(_)) => "request more (Slurm: --mem, Docker: --memory)",
        Some(LimitKind::AddressSpace) => "raise the limit: `ulimit -v unlimited`",
        None => "end other programs, or use a larger machine",
    };
    match memory.available {
        ..LEAST => finding.problem(format!("not enough for the built-in sweep: {more}")),
        LEAST..LITTLE => finding.note(format!("enough for small models; `plan` shows what a sweep needs; {more}")),
        LITTLE.. => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use crate::lm::MemoryLimit;

    #[test]
    fn the_tightest_limit_counts() {
        let limited = |left: u64, kind: LimitKind| {
            let limit = Some(MemoryLimit { bytes: 5_000_000_000, left, kind });
            memory_finding(&HostMemory { total: 200_000_000_000, available: left, limit })
        };
        let group = || LimitKind::ControlGroup("/sys/fs/cgroup/job_7".into());
        let enough = limited(4_500_000_000, group());
        assert_eq!(enough.severity, Severity::Ok);
        assert!(enough.value.contains("job_7 allows 5.00 GB, of which 4.50 GB are left"), "{enough:?}");
        assert_eq!(limited(1_000_000_000, group()).severity, Severity::Note);
        let none = limited(100_000_000, LimitKind::AddressSpace);
        assert_eq!(none.severity, Severity::Problem);
        assert!(none.advice[0].contains("ulimit -v unlimited"), "{none:?}");
    }
}
