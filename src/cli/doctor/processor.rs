//! The device, and how fast the processor is: cores, instruction sets, and matrix products beside its peak.

use std::fs;

use anyhow::Result;

use super::finding::{Finding, one_line};
use crate::cli::machine_args::cores;
use crate::format::{Bytes, counted};
use crate::lm::{DeviceChoice, Peak, Processor, card_memory, device_name, matrix_rate, peak};
use crate::vector;

/// A lower share of the peak gets a note; on an idle machine products that fit the caches reach 80 to 95 %.
const LOW: f64 = 0.6;

pub(super) fn findings(device: DeviceChoice, threads: usize) -> Result<Vec<Finding>> {
    let mut findings = vec![device_finding(device)];
    findings.extend(card_finding());
    findings.push(cores_finding(threads));
    let processor = Processor::here();
    findings.push(Finding::ok("processor", processor.name.clone().unwrap_or(std::env::consts::ARCH.into())));
    findings.push(vectors(&processor, &vector::instruction_set()));
    findings.push(products(1, matrix_rate(1)?, &peak(1)?));
    if threads > 1 {
        findings.push(products(threads, matrix_rate(threads)?, &peak(threads)?));
    }
    Ok(findings)
}

fn device_finding(choice: DeviceChoice) -> Finding {
    match choice.open() {
        // Named as in rows.
        Ok(device) => Finding::ok("device", device_name(&device)),
        Err(error) => Finding::ok("device", format!("{choice}: {}", one_line(&error)))
            .problem("choose another with --device"),
    }
}

fn card_finding() -> Option<Finding> {
    let (free, total) = card_memory()?;
    let value = format!("{} free of {}", Bytes(free as u64), Bytes(total as u64));
    let finding = Finding::ok("card memory", value).figure("free_bytes", free).figure("total_bytes", total);
    Some(if free < total / 2 {
        finding.note("other programs use most of it (see `nvidia-smi`); --device cuda:N chooses another GPU")
    } else {
        finding
    })
}

fn cores_finding(threads: usize) -> Finding {
    let (usable, info) = (cores(), fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    let all = info.lines().filter(|line| line.starts_with("processor")).count().max(usable);
    let limited =
        if usable < all { format!(" of the machine's {all}, by affinity or a control group") } else { "".into() };
    let finding = Finding::ok("cores", format!("{usable}{limited}; {threads} used"))
        .figure("usable", usable)
        .figure("machine", all)
        .figure("threads", threads);
    if threads > usable {
        finding.note(format!("more threads than cores; use --threads {usable} or fewer"))
    } else {
        finding
    }
}

fn vectors(processor: &Processor, used: &str) -> Finding {
    let has = processor.instruction_sets();
    let list = if has.is_empty() { "unknown on this system".to_string() } else { has.join(", ") };
    let finding = Finding::ok("vectors", format!("{used} in use; the processor has {list}")).figure("used", used);
    if has.contains(&"AVX-512") && used != "AVX-512" {
        finding.note("only parts of AVX-512 are there, so it is not used; a virtual machine can pass all of it on")
    } else if !["AVX-512", "AVX2", "neon"].contains(&used) {
        finding.note(
            "products take several times as long without AVX2 and FMA; a virtual machine can pass them on (qemu: -cpu host)",
        )
    } else {
        finding
    }
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
    let finding = Finding::ok(name, value)
        .figure("flops", rate)
        .figure("peak_flops", peak.rate())
        .figure("clock_hz", peak.clock)
        .figure("flops_per_cycle", peak.per_cycle);
    if share > 1.1 {
        finding.note("faster than the peak known for this processor, so the peak is wrong")
    } else if share < LOW {
        finding.note(
            "slow: other programs, power saving, a CPU quota, or a virtual machine whose cores are threads of one core",
        )
    } else {
        finding
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn products_are_compared_with_the_peak() {
        let peak = Peak { clock: 3.5e9, per_cycle: 32, units: "two units", cores: 2 };
        // 2 cores x 3.5 GHz x 32 = 224 GFLOP/s
        let good = products(2, 201.6e9, &peak);
        assert_eq!(good.severity, Severity::Ok);
        let value = "202 GFLOP/s in f32 with 2 threads: 90 % of 224 = 2 cores x 3.50 GHz x 32 (two units)";
        assert_eq!(good.value, value);
        assert_eq!(products(2, 300e9, &peak).severity, Severity::Note);
        assert_eq!(products(2, 100e9, &peak).severity, Severity::Note);
    }

    #[test]
    fn narrow_vectors_get_a_note() {
        let processor = Processor::default();
        let severity = |used| vectors(&processor, used).severity;
        assert_eq!(["AVX2", "neon"].map(severity), [Severity::Ok; 2]);
        assert_eq!(severity("scalar"), Severity::Note);
    }
}
