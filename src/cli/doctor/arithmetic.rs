//! Where products run and how fast: device, instruction sets, cores, and the rate against what such a processor could do.

use std::fs;

use anyhow::Result;

use super::finding::{Finding, Verdict, one_line};
use crate::cli::cores;
use crate::cli::sweeps::bytes;
use crate::lm::{DeviceChoice, Peak, Processor, card_memory, device_name, matrix_rate, peak};
use crate::vector;

/// Of the peak, below which something is amiss: products that fit the caches reach 80 to 95 % on an idle machine.
const LOW: f64 = 0.6;

pub(super) fn findings(device: DeviceChoice, threads: usize) -> Result<Vec<Finding>> {
    let mut findings = vec![device_finding(device)];
    findings.extend(card_finding());
    findings.extend(driver_finding());
    findings.push(cores_finding(threads));
    let processor = Processor::here();
    findings.push(Finding::ok("processor", processor.name.clone().unwrap_or(std::env::consts::ARCH.into())));
    findings.push(vectors(&processor, &vector::instruction_set()));
    let alone = (matrix_rate(1)?, peak(1)?);
    findings.push(products(1, alone.0, &alone.1, &surroundings(1)));
    if threads > 1 {
        findings.push(products(threads, matrix_rate(threads)?, &peak(threads)?, &surroundings(threads)));
    }
    Ok(findings)
}

fn device_finding(choice: DeviceChoice) -> Finding {
    match choice.open() {
        Ok(device) => {
            // As rows name it.
            Finding::ok("device", device_name(&device))
        }
        Err(error) => Finding::problem(
            "device",
            one_line(&format!("{choice}: {error:#}")),
            "name another with --device, or mend this one",
        ),
    }
}

fn card_finding() -> Option<Finding> {
    let (free, total) = card_memory()?;
    let value = format!("{} free of {}", bytes(free as u64), bytes(total as u64));
    let finding = Finding::ok("card memory", value).figure("free_bytes", free).figure("total_bytes", total);
    Some(if free < total / 2 {
        finding.but(
            Verdict::Note,
            "others hold the larger part: `nvidia-smi` says who; --device cuda:N names another",
        )
    } else {
        finding
    })
}

/// The driver of NVIDIA's cards, whether this build can use it or not.
fn driver_finding() -> Option<Finding> {
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let version = driver_version(&text)?;
    let finding = Finding::ok("CUDA driver", version.to_string()).figure("version", version);
    Some(if cfg!(feature = "cuda") {
        finding
    } else {
        finding.but(
            Verdict::Note,
            "a card is here that this build cannot use: cargo install --path . --features cuda (needs nvcc, or \
             scripts/cuda-toolkit.sh)",
        )
    })
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ...`
fn driver_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
}

fn cores_finding(threads: usize) -> Finding {
    let (usable, info) = (cores(), fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    let all = info.lines().filter(|line| line.starts_with("processor")).count().max(usable);
    let value = match (usable == all, threads == usable) {
        (true, true) => format!("{usable}"),
        (true, false) => format!("{usable}; {threads} used"),
        (false, _) => {
            format!("{usable} of the machine's {all} may be used (affinity or a control group); {threads} used")
        }
    };
    let finding =
        Finding::ok("cores", value).figure("usable", usable).figure("machine", all).figure("threads", threads);
    if threads > usable {
        finding.but(Verdict::Note, format!("more threads than cores take turns: use --threads {usable} or fewer"))
    } else {
        finding
    }
}

/// What the processor has and what is used.
fn vectors(processor: &Processor, used: &str) -> Finding {
    let has = processor.instruction_sets();
    let list = if has.is_empty() { "not told by this system".to_string() } else { has.join(", ") };
    let finding = Finding::ok("vectors", format!("{used} in use; the processor has {list}")).figure("used", used);
    let wide = |name: &str| has.contains(&name);
    if wide("AVX-512") && used != "AVX-512" {
        finding.but(
            Verdict::Note,
            "AVX-512 is there in part only and is not used: in a virtual machine pass the host's processor through",
        )
    } else if used != "AVX-512" && used != "AVX2" && used != "neon" {
        finding.but(
            Verdict::Note,
            "no vectors of 256 bits are used, so products take several times as long: use a processor with AVX2 and \
             FMA (any since 2015), or in a virtual machine pass the host's through (qemu: -cpu host)",
        )
    } else {
        finding
    }
}

/// What else may explain a low rate.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    /// Runnable tasks of the machine over the last minute.
    load: Option<f64>,
    cores: usize,
    governor: Option<String>,
    virtual_machine: bool,
}

fn surroundings(threads: usize) -> Surroundings {
    let read = |path: &str| fs::read_to_string(path).ok();
    let load = read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok());
    let info = read("/proc/cpuinfo").unwrap_or_default();
    Surroundings {
        load,
        cores: info.lines().filter(|line| line.starts_with("processor")).count().max(threads),
        governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
            .map(|text| text.trim().to_string()),
        virtual_machine: info
            .lines()
            .any(|line| line.starts_with("flags") && line.split(' ').any(|flag| flag == "hypervisor")),
    }
}

/// The rate of products beside the peak: cores x measured clock x operations of a cycle.
fn products(threads: usize, rate: f64, peak: &Peak, around: &Surroundings) -> Finding {
    let share = rate / peak.rate();
    let name = if threads == 1 { "one thread" } else { "all threads" };
    let of = if threads == 1 { "thread" } else { "threads" };
    let cores = if peak.cores == 1 { "core" } else { "cores" };
    let value = format!(
        "{:.0} GFLOP/s in f32 with {threads} {of}: {:.0} % of {:.0} = {} {cores} x {:.2} GHz x {} ({})",
        rate / 1e9,
        100.0 * share,
        peak.rate() / 1e9,
        peak.cores,
        peak.clock / 1e9,
        peak.per_cycle,
        peak.units
    );
    let mut finding = Finding::ok(name, value)
        .figure("flops", rate)
        .figure("peak_flops", peak.rate())
        .figure("clock_hz", peak.clock)
        .figure("flops_per_cycle", peak.per_cycle);
    if share > 1.1 {
        return finding.but(
            Verdict::Note,
            "faster than this program thinks the processor can be: its units are not known here",
        );
    }
    if share >= LOW {
        return finding;
    }
    let before = finding.advice.len();
    // The loop itself adds to the load, and a minute's mean lags behind.
    if let Some(load) = around.load.filter(|&load| load > 0.5 && load > 0.25 * around.cores as f64) {
        finding = finding.but(
            Verdict::Note,
            format!(
                "other programs share the machine (load {load:.1} on {} cores): measure and run when it is idle",
                around.cores
            ),
        );
    }
    if around.governor.as_deref() == Some("powersave") {
        finding = finding
            .but(Verdict::Note, "the processor saves power: `cpupower frequency-set -g performance`, as root");
    }
    if threads > 1 && around.virtual_machine {
        finding = finding.but(
            Verdict::Note,
            "a virtual machine's cores may be two threads of one core: then half of this is all there is",
        );
    }
    if finding.advice.len() == before {
        finding = finding.but(
            Verdict::Note,
            "nothing seen here explains it: a quota of CPU time, heat, or a neighbour on the same host; try \
             --threads with fewer, and look at the time that is stolen (st in `top`)",
        );
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAK: Peak = Peak { clock: 3.5e9, per_cycle: 32, units: "two units", cores: 2 };

    #[test]
    fn a_share_of_the_peak_is_told_and_a_low_one_explained() {
        // 2 cores x 3.5 GHz x 32 = 224 GFLOP/s
        let idle = Surroundings { load: Some(0.1), cores: 2, ..Surroundings::default() };
        let good = products(2, 201.6e9, &PEAK, &idle);
        assert_eq!(good.verdict, Verdict::Ok);
        let said = "202 GFLOP/s in f32 with 2 threads: 90 % of 224 = 2 cores x 3.50 GHz x 32 (two units)";
        assert_eq!(good.value, said);
        let unknown = products(2, 300e9, &PEAK, &idle);
        assert!(unknown.verdict == Verdict::Note && unknown.advice[0].contains("not known here"), "{unknown:?}");
        let low = |around: Surroundings| products(2, 100e9, &PEAK, &around).advice.join("\n");
        assert!(low(idle.clone()).contains("nothing seen here"));
        assert!(low(Surroundings { load: Some(2.0), ..idle.clone() }).contains("load 2.0 on 2 cores"));
        assert!(low(Surroundings { governor: Some("powersave".into()), ..idle.clone() }).contains("cpupower"));
        assert!(low(Surroundings { virtual_machine: true, ..idle }).contains("virtual machine"));
    }

    #[test]
    fn a_driver_is_told_by_its_version() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n";
        assert_eq!(driver_version(text), Some("550.54.15"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\n";
        assert_eq!(driver_version(open), Some("570.86.10"));
        assert_eq!(driver_version("GCC version: 12.2"), None);
    }

    #[test]
    fn narrow_vectors_are_told() {
        let none = Processor::default();
        assert_eq!(vectors(&none, "AVX2").verdict, Verdict::Ok);
        assert_eq!(vectors(&none, "neon").verdict, Verdict::Ok);
        assert!(vectors(&none, "scalar").advice[0].contains("-cpu host"));
    }
}
