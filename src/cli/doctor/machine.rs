//! The program and what it runs on: versions, the device, memory of the machine and of the job, and the Slurm job.

use serde_json::json;

use super::finding::{Finding, one_line};
use crate::format::Bytes;
use crate::ledger::{ENGINE_VERSION, SCHEMA_VERSION};
use crate::lm::{self, DeviceChoice, HostMemory, LimitKind};
use crate::sweep::Shard;

/// The built-in sweep takes 0.42 GB with two threads.
const LEAST_MEMORY: u64 = 500_000_000;

/// With less than this only small models run.
const LITTLE_MEMORY: u64 = 4_000_000_000;

/// The versions that results name.
pub(super) fn version() -> Finding {
    let commit = option_env!("TOVA_BENCH_COMMIT");
    let version = env!("CARGO_PKG_VERSION");
    let from = commit.unwrap_or("unknown (not built in a checkout)");
    let value = format!("{version}, commit {from}, engine {ENGINE_VERSION}, schema {SCHEMA_VERSION}");
    Finding::ok("version", value).figures(
        json!({ "version": version, "commit": commit, "engine": ENGINE_VERSION, "schema": SCHEMA_VERSION }),
    )
}

/// What the program was built from.
pub(super) fn build() -> Finding {
    let (rustc, candle) = (option_env!("TOVA_BENCH_RUSTC"), option_env!("TOVA_BENCH_CANDLE"));
    let target = option_env!("TOVA_BENCH_TARGET").unwrap_or(std::env::consts::ARCH);
    let cuda = cfg!(feature = "cuda");
    let value = format!(
        "{}, candle {}, for {target}, {} CUDA",
        rustc.unwrap_or("rustc of unknown version"),
        candle.unwrap_or("of unknown version"),
        if cuda { "with" } else { "without" }
    );
    let figures = json!({ "rustc": rustc, "candle": candle, "target": target, "cuda": cuda });
    Finding::ok("build", value).figures(figures)
}

/// The device, named as in rows.
pub(super) fn device(choice: DeviceChoice) -> Finding {
    let opened = choice.open();
    let value = match &opened {
        Ok(device) => lm::device_name(device),
        Err(error) => format!("{choice}: {}", one_line(error)),
    };
    Finding::ok("device", value).problem_if(opened.is_err(), "choose another with --device")
}

/// `None` without a GPU.
pub(super) fn card_memory() -> Option<Finding> {
    let (free, total) = lm::card_memory()?;
    let value = format!("{} free of {}", Bytes(free as u64), Bytes(total as u64));
    let advice = "other programs use most of it (see `nvidia-smi`); --device cuda:N chooses another GPU";
    let finding = Finding::ok("card memory", value).figures(json!({ "free_bytes": free, "total_bytes": total }));
    Some(finding.note_if(free < total / 2, advice))
}

pub(super) fn memory() -> Finding {
    match lm::host_memory() {
        Some(memory) => host_memory(&memory),
        None => Finding::ok("memory", "unknown on this system")
            .note("runs cannot check whether a model fits: look at `plan` first"),
    }
}

fn host_memory(memory: &HostMemory) -> Finding {
    let HostMemory { total, available, limit } = memory;
    let (by, more) = match limit.as_ref().map(|limit| &limit.kind) {
        None => (String::new(), "end other programs, or use a larger machine"),
        Some(LimitKind::ControlGroup(folder)) => {
            (format!("the control group {}", folder.display()), "request more (Slurm: --mem, Docker: --memory)")
        }
        Some(LimitKind::AddressSpace) => ("`ulimit -v`".into(), "raise the limit: `ulimit -v unlimited`"),
    };
    let below = limit.as_ref().map_or(", no limit below that".into(), |limit| {
        format!("; {by} allows {}, of which {} are left", Bytes(limit.bytes), Bytes(limit.left))
    });
    let few = format!("enough for small models; `plan` shows what a sweep needs; {more}");
    let limit_bytes = limit.as_ref().map(|limit| limit.bytes);
    Finding::ok("memory", format!("{} available of {}{below}", Bytes(*available), Bytes(*total)))
        .figures(json!({ "total_bytes": total, "available_bytes": available, "limit_bytes": limit_bytes }))
        .problem_if(*available < LEAST_MEMORY, format!("not enough for the built-in sweep: {more}"))
        .note_if((LEAST_MEMORY..LITTLE_MEMORY).contains(available), few)
}

/// The Slurm job, and the share of a sweep that an array task takes; `None` outside a job.
pub(super) fn slurm(variable: impl Fn(&str) -> Option<String>) -> Option<Finding> {
    let job = variable("SLURM_JOB_ID")?;
    let job = job.trim();
    Some(match Shard::of_slurm(&variable) {
        Ok(None) => Finding::ok("Slurm", format!("job {job}, no array: `run` takes the whole sweep"))
            .figures(json!({ "job": job })),
        Ok(Some(shard)) => {
            let task = variable("SLURM_ARRAY_TASK_ID").unwrap_or_default();
            Finding::ok("Slurm", format!("job {job}, array task {}: --shard {shard}", task.trim()))
                .figures(json!({ "job": job, "shard": shard.index() + 1, "shards": shard.count() }))
        }
        Err(error) => Finding::ok("Slurm", format!("job {job}, an array task"))
            .figures(json!({ "job": job }))
            .problem(error.to_string().replace('\n', "; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use crate::lm::MemoryLimit;

    #[test]
    fn the_tightest_limit_counts() {
        for (left, kind, severity, words) in [
            (
                4_500_000_000,
                LimitKind::ControlGroup("/job_7".into()),
                Severity::Ok,
                "job_7 allows 5.00 GB, of which 4.50 GB",
            ),
            (1_000_000_000, LimitKind::ControlGroup("/job_7".into()), Severity::Note, "--mem"),
            (100_000_000, LimitKind::AddressSpace, Severity::Problem, "ulimit -v unlimited"),
        ] {
            let limit = Some(MemoryLimit { bytes: 5_000_000_000, left, kind });
            let finding = host_memory(&HostMemory { total: 200_000_000_000, available: left, limit });
            assert_eq!(finding.severity, severity);
            assert!(format!("{finding:?}").contains(words), "{finding:?}");
        }
    }
}
