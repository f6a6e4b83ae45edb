//! The arguments that say where to compute, and how many threads that means.

use anyhow::Result;
use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::progress::Mode;
use crate::lm::{Device, DeviceChoice, MOST_THREADS};

#[derive(Debug, Args)]
pub(super) struct MachineArguments {
    /// Where to compute: cpu, cuda, cuda:N or auto
    #[arg(long, env = "TOVA_BENCH_DEVICE", default_value = "auto")]
    pub(super) device: DeviceChoice,
    /// Number of threads [default: all cores; in a Slurm job those of the task]
    #[arg(long, env = "TOVA_BENCH_THREADS", value_name = "N", value_parser = up_to(MOST_THREADS))]
    threads: Option<u64>,
}

impl MachineArguments {
    pub(super) fn open(&self) -> Result<Device> {
        open(self.device, Mode::Auto)
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.map_or_else(cores, |threads| threads as usize)
    }
}

/// A number from 1 to `most`.
pub(super) fn up_to(most: usize) -> RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=most as u64)
}

/// Cores this process may use. Where Slurm does not bind tasks to cores, it still says how many a task has.
pub(super) fn cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let granted = std::env::var("SLURM_CPUS_PER_TASK").ok().and_then(|text| text.trim().parse::<usize>().ok());
    granted.filter(|granted| *granted > 0).map_or(cores, |granted| granted.min(cores))
}

/// Opens a device, and says aloud what a GPU is not used for.
pub(super) fn open(choice: DeviceChoice, mode: Mode) -> Result<Device> {
    let device = choice.open()?;
    if let Some(why) = device.refused() {
        mode.warn(why);
    }
    Ok(device)
}
