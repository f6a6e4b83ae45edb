//! The arguments that say where to compute, and how many threads that means.

use anyhow::Result;
use clap::Args;

use super::error::UsageError;
use crate::lm::DeviceChoice;

#[derive(Debug, Args)]
pub(super) struct MachineArguments {
    /// Where to compute: cpu, cuda, cuda:N or auto
    #[arg(long, env = "TOVA_BENCH_DEVICE", default_value = "auto")]
    pub(super) device: DeviceChoice,
    /// Number of threads [default: all cores; in a Slurm job those of the task]
    #[arg(long, env = "TOVA_BENCH_THREADS", value_name = "N")]
    threads: Option<usize>,
}

impl MachineArguments {
    pub(super) fn threads(&self) -> Result<usize> {
        match self.threads {
            Some(0) => Err(UsageError::new("--threads 0 can do nothing", "leave it out to use every core").into()),
            Some(threads) => Ok(threads),
            None => Ok(cores()),
        }
    }
}

/// Cores this process may use. Where Slurm does not bind tasks to cores, it still says how many a task has.
pub(super) fn cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let granted = std::env::var("SLURM_CPUS_PER_TASK").ok().and_then(|text| text.trim().parse::<usize>().ok());
    granted.filter(|granted| *granted > 0).map_or(cores, |granted| granted.min(cores))
}
