//! The program and what it runs on: versions, the device, the processor and its speed, memory, and the Slurm job.

use std::fs;

use anyhow::Result;
use serde_json::json;

use super::finding::{Finding, one_line};
use crate::cli::machine_args::cores;
use crate::format::{Bytes, counted};
use crate::ledger::{ENGINE_VERSION, SCHEMA_VERSION};
use crate::lm::{self, Arithmetic, DeviceChoice, HostMemory, Peak, Processor, matrix_rate, peak};
use crate::sweep::Shard;
use crate::vector;

/// A lower share of the peak gets a note; on an idle machine products that fit the caches reach 80 to 95 %.
const LOW: f64 = 0.6;

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

/// Whether attention on the device decides as on the host; `None` where it is the host's.
pub(super) fn attention(choice: DeviceChoice) -> Option<Finding> {
    let device = choice.open().ok()?;
    let refused = "attention runs on the host; please report this with the line above";
    if let Some(why) = device.refused() {
        return Some(Finding::ok("attention", why).problem(refused));
    }
    Some(match device.check() {
        Ok(None) => return None,
        Ok(Some(cases)) => {
            Finding::ok("attention", format!("on the device; {} as on the host", counted(cases, "case")))
        }
        Err(error) => Finding::ok("attention", one_line(&error)).problem(refused),
    })
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
    let (by, more) = match limit.as_ref().map(|limit| &limit.group) {
        None => (String::new(), "end other programs, or use a larger machine"),
        Some(Some(folder)) => {
            (format!("the control group {}", folder.display()), "request more (Slurm: --mem, Docker: --memory)")
        }
        Some(None) => ("`ulimit -v`".into(), "raise the limit: `ulimit -v unlimited`"),
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

/// Cores, instruction sets, and matrix products beside their peak.
pub(super) fn processor(threads: usize) -> Result<Vec<Finding>> {
    let processor = Processor::here();
    let name = processor.name.clone().unwrap_or(std::env::consts::ARCH.into());
    let mut findings = vec![
        cores_finding(threads),
        Finding::ok("processor", name),
        vectors(&processor, &vector::instruction_set()),
    ];
    findings.push(products(1, matrix_rate(1, Arithmetic::F32)?, &peak(1)?));
    let peak = peak(threads)?;
    if threads > 1 {
        findings.push(products(threads, matrix_rate(threads, Arithmetic::F32)?, &peak));
    }
    findings.push(integer_products(threads, matrix_rate(threads, Arithmetic::Fast)?, &peak));
    findings.push(bf16_products(&processor, &peak));
    Ok(findings)
}

fn cores_finding(threads: usize) -> Finding {
    let (usable, info) = (cores(), fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    let all = info.lines().filter(|line| line.starts_with("processor")).count().max(usable);
    let limited =
        if usable < all { format!(" of the machine's {all}, by affinity or a control group") } else { "".into() };
    Finding::ok("cores", format!("{usable}{limited}; {threads} used"))
        .figures(json!({ "usable": usable, "machine": all, "threads": threads }))
        .note_if(threads > usable, format!("more threads than cores; use --threads {usable} or fewer"))
}

fn vectors(processor: &Processor, used: &str) -> Finding {
    let has = processor.instruction_sets();
    let list = if has.is_empty() { "unknown on this system".to_string() } else { has.join(", ") };
    let partial = has.contains(&"AVX-512") && used != "AVX-512";
    let narrow = !partial && !["AVX-512", "AVX2", "neon"].contains(&used);
    let partial_advice =
        "only parts of AVX-512 are there, so it is not used; a virtual machine can pass all of it on";
    let narrow_advice = "products take several times as long without AVX2 and FMA; a virtual machine can pass \
                         them on (qemu: -cpu host)";
    Finding::ok("vectors", format!("{used} in use; the processor has {list}"))
        .figures(json!({ "used": used }))
        .note_if(partial, partial_advice)
        .note_if(narrow, narrow_advice)
}

/// The rate of products beside the peak: cores x measured clock x operations per cycle.
fn products(threads: usize, rate: f64, peak: &Peak) -> Finding {
    let share = rate / peak.rate();
    let (name, of) = if threads == 1 { ("one thread", "thread") } else { ("all threads", "threads") };
    let value = format!(
        "{:.0} GFLOP/s in f32 with {threads} {of}: {:.0} % of {:.0} = {} x {:.2} GHz x {} ({})",
        rate / 1e9,
        100.0 * share,
        peak.rate() / 1e9,
        counted(peak.cores, "core"),
        peak.clock / 1e9,
        peak.per_cycle,
        peak.units
    );
    let figures = json!({
        "flops": rate,
        "peak_flops": peak.rate(),
        "clock_hz": peak.clock,
        "flops_per_cycle": peak.per_cycle,
    });
    let slow = "slow: other programs, power saving, a CPU quota, or a virtual machine whose cores are threads of one core";
    Finding::ok(name, value)
        .figures(figures)
        .note_if(share > 1.1, "faster than the peak known for this processor, so the peak is wrong")
        .note_if(share < LOW, slow)
}

/// The rate of products in integers of 16 bits. Where a vector has one product of f32, it has two of these.
fn integer_products(threads: usize, rate: f64, peak: &Peak) -> Finding {
    let value = format!(
        "{:.0} GFLOP/s in integers (`arithmetic: fast`) with {}: {:.0} % of {:.0}, twice the peak of f32",
        rate / 1e9,
        counted(threads, "thread"),
        50.0 * rate / peak.rate(),
        2.0 * peak.rate() / 1e9,
    );
    Finding::ok("integers", value).figures(json!({ "flops": rate, "peak_flops": 2.0 * peak.rate() }))
}

/// The peak of products of bf16, which PyTorch uses and this program does not.
fn bf16_products(processor: &Processor, peak: &Peak) -> Finding {
    let Some((times, name)) = processor.bf16_products() else {
        return Finding::ok("bf16", "the processor has no instructions for products of bf16");
    };
    let rate = f64::from(times) * peak.rate();
    let value =
        format!("a peak of {:.0} GFLOP/s with {name}; bf16 weights are multiplied in integers here", rate / 1e9);
    Finding::ok("bf16", value).figures(json!({ "peak_flops": rate }))
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
                .figures(json!({ "job": job, "shard": shard.index + 1, "shards": shard.count }))
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
        for (left, group, severity, words) in [
            (4_500_000_000, Some("/job_7".into()), Severity::Ok, "job_7 allows 5.00 GB, of which 4.50 GB"),
            (1_000_000_000, Some("/job_7".into()), Severity::Note, "--mem"),
            (100_000_000, None, Severity::Problem, "ulimit -v unlimited"),
        ] {
            let limit = Some(MemoryLimit { bytes: 5_000_000_000, left, group });
            let finding = host_memory(&HostMemory { total: 200_000_000_000, available: left, limit });
            assert_eq!(finding.severity, severity);
            assert!(format!("{finding:?}").contains(words), "{finding:?}");
        }
    }
    #[test]
    fn products_are_compared_with_the_peak() {
        let peak = Peak { clock: 3.5e9, per_cycle: 32, units: "two units", cores: 2 };
        // 2 cores x 3.5 GHz x 32 = 224 GFLOP/s
        let found = [201.6e9, 300e9, 100e9].map(|rate| products(2, rate, &peak));
        assert_eq!(found.each_ref().map(|found| found.severity), [Severity::Ok, Severity::Note, Severity::Note]);
        let value = "202 GFLOP/s in f32 with 2 threads: 90 % of 224 = 2 cores x 3.50 GHz x 32 (two units)";
        assert_eq!(found[0].value, value);
    }

    #[test]
    fn narrow_vectors_get_a_note() {
        let severity = |used| vectors(&Processor::default(), used).severity;
        assert_eq!(["AVX2", "neon", "scalar"].map(severity), [Severity::Ok, Severity::Ok, Severity::Note]);
    }
}
