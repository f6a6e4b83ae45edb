//! The processor's peak performance in f32: cores x clock x operations per cycle.
//!
//! Operations per cycle are those of the multiply-add units, 2 x lanes x units, from the makers' optimization
//! guides (Intel 248966, AMD 57647 for Zen 4 and 58455 for Zen 5, Arm's guides to Neoverse), as in the table of
//! Wikipedia's article FLOPS. The clock is measured, because virtual machines do not report it. `product` measures
//! what the program reaches.

use std::collections::BTreeSet;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use crate::vector;

/// The peak performance of some threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// Clock of a core in Hz while all threads are busy.
    pub clock: f64,
    /// f32 operations per cycle of a core.
    pub per_cycle: u32,
    /// The execution units they come from.
    pub units: &'static str,
    /// Physical cores that the threads run on; two threads of one core share its units.
    pub cores: usize,
}

impl Peak {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.clock * f64::from(self.per_cycle) * self.cores as f64
    }
}

/// The peak of `threads` threads with the instruction set in use.
///
/// # Errors
/// Threads that cannot be started.
pub fn peak(threads: usize) -> Result<Peak, rayon::ThreadPoolBuildError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let clocks = pool.broadcast(|_| clock());
    let (per_cycle, units) = Processor::here().per_cycle(&vector::instruction_set());
    let cores = physical_cores(Path::new("/")).map_or(threads, |cores| cores.min(threads));
    Ok(Peak { clock: clocks.iter().sum::<f64>() / clocks.len() as f64, per_cycle, units, cores })
}

/// Rounds of one measurement: about 40 microseconds, which a scheduler seldom interrupts.
const ROUNDS: u32 = 20_000;

/// The clock of this core in Hz. In a chain of dependent shifts and exclusive ors every operation takes one cycle.
/// (Additions do not work: some processors fuse several.) The fastest of many measurements was not interrupted.
fn clock() -> f64 {
    let mut best = f64::INFINITY;
    for seed in 1..=100u64 {
        let started = Instant::now();
        let mut x = black_box(seed);
        for _ in 0..ROUNDS {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        black_box(x);
        best = best.min(started.elapsed().as_secs_f64());
    }
    6.0 * f64::from(ROUNDS) / best
}

/// The first core according to `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// `GenuineIntel`, `AuthenticAMD`, or the implementer's number on Arm.
    vendor: String,
    family: u32,
    model: u32,
    /// The number of the core's design on Arm.
    part: String,
    /// The model name.
    pub name: Option<String>,
    flags: Vec<String>,
}

impl Processor {
    /// The processor of this machine.
    pub fn here() -> Processor {
        Processor::parse(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
    }

    fn parse(text: &str) -> Processor {
        let first = text.split("\n\n").next().unwrap_or_default();
        let field = |name: &str| {
            let mut pairs = first.lines().filter_map(|line| line.split_once(':'));
            pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_string())
        };
        let number = |name: &str| field(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let flags = field("flags").or_else(|| field("Features")).unwrap_or_default();
        Processor {
            vendor: field("vendor_id").or_else(|| field("CPU implementer")).unwrap_or_default(),
            family: number("cpu family"),
            model: number("model"),
            part: field("CPU part").unwrap_or_default(),
            name: field("model name"),
            flags: flags.split_whitespace().map(str::to_string).collect(),
        }
    }

    /// The vector instruction sets it reports, of those that matter here, widest first.
    pub fn instruction_sets(&self) -> Vec<&'static str> {
        let known = [("avx512f", "AVX-512"), ("avx2", "AVX2"), ("fma", "FMA"), ("sve", "SVE"), ("asimd", "NEON")];
        known.iter().filter(|(flag, _)| self.flags.iter().any(|has| has == flag)).map(|(_, name)| *name).collect()
    }

    /// How many products of bf16 the processor does in the time of one of f32, and by which instructions; `None` where it has none.
    pub fn bf16_products(&self) -> Option<(u32, &'static str)> {
        let known = [("amx_bf16", 16, "AMX"), ("avx512_bf16", 2, "AVX-512")];
        let has = |flag: &str| self.flags.iter().any(|has| has == flag);
        known.into_iter().find(|(flag, ..)| has(flag)).map(|(_, times, name)| (times, name))
    }

    /// f32 operations per cycle with an instruction set, and the units they come from.
    fn per_cycle(&self, instructions: &str) -> (u32, &'static str) {
        let amd = self.vendor == "AuthenticAMD";
        match instructions {
            // Zen 5 in laptops has the narrow units of Zen 4.
            "AVX-512" if amd && (self.family < 26 || matches!(self.model, 0x20..=0x2f | 0x60..=0x6f)) => {
                (32, "two 256-bit multiply-add units, as in Zen 4")
            }
            "AVX-512" if amd => (64, "two 512-bit multiply-add units, as in Zen 5"),
            "AVX-512" => (64, "two 512-bit multiply-add units, as in most Xeons; some have one"),
            "AVX2" if amd && self.family == 23 && self.model < 0x30 => {
                (16, "two 128-bit multiply-add units, as in Zen")
            }
            "AVX2" => (32, "two 256-bit multiply-add units"),
            "neon" => match (self.vendor.as_str(), self.part.as_str()) {
                // Neoverse V1, V2 and V3, Cortex-X1 to X4.
                ("0x41", "0xd40" | "0xd4f" | "0xd83" | "0xd84" | "0xd44" | "0xd48" | "0xd4e" | "0xd82") => {
                    (32, "four 128-bit multiply-add units")
                }
                ("0x41", "0xd08") => (8, "one 128-bit multiply-add unit"),
                _ if cfg!(target_vendor = "apple") || self.vendor == "0x61" => {
                    (32, "four 128-bit multiply-add units")
                }
                _ => (16, "two 128-bit multiply-add units"),
            },
            _ => (8, "a 128-bit multiplication and an addition"),
        }
    }
}

/// Physical cores that this process may use, for a machine whose `/proc` and `/sys` are below `root`; `None` if
/// the system does not say.
fn physical_cores(root: &Path) -> Option<usize> {
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    // A list like `0-3,8`.
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let allowed = |cpu: &u32| {
        list.trim().split(',').any(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse().is_ok_and(|first| *cpu >= first) && last.parse().is_ok_and(|last| *cpu <= last)
        })
    };
    let threads_of_core = |cpu: u32| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        fs::read_to_string(root.join(path)).ok()
    };
    // Linux has 8192 processors at most.
    let cores: BTreeSet<String> = (0..8192).filter(allowed).filter_map(threads_of_core).collect();
    (!cores.is_empty()).then_some(cores.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENOA: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\
                         model name\t: AMD EPYC 9654 96-Core Processor\nflags\t\t: fpu sse2 avx fma avx2 avx512f\n\n\
                         processor\t: 1\nvendor_id\t: other\n";

    #[test]
    fn the_first_core_of_cpuinfo_is_parsed() {
        let genoa = Processor::parse(GENOA);
        assert_eq!((genoa.vendor.as_str(), genoa.family, genoa.model), ("AuthenticAMD", 25, 17));
        assert_eq!(genoa.name.as_deref(), Some("AMD EPYC 9654 96-Core Processor"));
        assert_eq!(genoa.instruction_sets(), ["AVX-512", "AVX2", "FMA"]);
        assert_eq!(Processor::parse(""), Processor::default());
        let graviton = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
        assert_eq!(Processor::parse(graviton).instruction_sets(), ["SVE", "NEON"]);
        assert_eq!(Processor::parse(graviton).per_cycle("neon").0, 32);
    }

    /// Wikipedia, FLOPS, "Floating-point operations per clock cycle for various processors", FP32.
    #[test]
    fn operations_per_cycle_match_the_table() {
        let processor = |vendor: &str, family, model| Processor {
            vendor: vendor.into(),
            family,
            model,
            ..Processor::default()
        };
        for (name, processor, instructions, operations) in [
            ("Skylake-SP", processor("GenuineIntel", 6, 85), "AVX-512", 64),
            ("Haswell", processor("GenuineIntel", 6, 60), "AVX2", 32),
            ("Zen", processor("AuthenticAMD", 23, 1), "AVX2", 16),
            ("Zen 2", processor("AuthenticAMD", 23, 49), "AVX2", 32),
            ("Zen 3", processor("AuthenticAMD", 25, 1), "AVX2", 32),
            ("Zen 4", processor("AuthenticAMD", 25, 17), "AVX-512", 32),
            ("Zen 5", processor("AuthenticAMD", 26, 2), "AVX-512", 64),
            ("Core 2", processor("GenuineIntel", 6, 15), "scalar", 8),
        ] {
            assert_eq!(processor.per_cycle(instructions).0, operations, "{name}");
        }
    }

    #[test]
    fn threads_of_one_core_count_once() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        // Four cores of two threads each; both threads of cores 0 and 1 and one of core 3 may be used.
        write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1,3-5\n");
        for cpu in 0..8 {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            write(&path, &format!("{},{}\n", cpu % 4, cpu % 4 + 4));
        }
        assert_eq!(physical_cores(root.path()), Some(3));
        assert_eq!(physical_cores(Path::new("/nowhere")), None);
        write("proc/self/status", "Cpus_allowed_list:\tx,0-4000000000\n");
        assert_eq!(physical_cores(root.path()), Some(4));
    }
}
