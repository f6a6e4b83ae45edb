//! How fast the processor is: cores, instruction sets, and matrix products beside its peak.

use std::fs;

use anyhow::Result;
use serde_json::json;

use super::finding::Finding;
use crate::cli::machine_args::cores;
use crate::format::counted;
use crate::lm::{Peak, Processor, matrix_rate, peak};
use crate::vector;

/// A lower share of the peak gets a note; on an idle machine products that fit the caches reach 80 to 95 %.
const LOW: f64 = 0.6;

pub(super) fn findings(threads: usize) -> Result<Vec<Finding>> {
    let processor = Processor::here();
    let name = processor.name.clone().unwrap_or(std::env::consts::ARCH.into());
    let mut findings = vec![
        cores_finding(threads),
        Finding::ok("processor", name),
        vectors(&processor, &vector::instruction_set()),
        products(1, matrix_rate(1)?, &peak(1)?),
    ];
    if threads > 1 {
        findings.push(products(threads, matrix_rate(threads)?, &peak(threads)?));
    }
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

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

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
