//! The machine a run has: devices, threads and memory, and how its jobs share them.
//!
//! Knows what cells take in memory, not what they are. Nothing here changes a number of a row, except that what is timed
//! has the whole machine.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};

use super::prepare::{Group, NamedCell};
use crate::format::Bytes;
use crate::lm::{BLOCK, Device, LanguageModel, available_memory};
use crate::task::{AT_ONCE, Samples};

/// Settings of a run that change no number.
pub struct Machine {
    /// One for each job: jobs measure cells of different groups at the same time. At least one.
    pub devices: Vec<Device>,
    /// Of all jobs together.
    pub threads: usize,
    /// Ends the run after the layer in hand.
    pub stop: Arc<AtomicBool>,
}

/// One of the jobs of a machine.
pub(super) struct Job<'a> {
    pub device: &'a Device,
    pub threads: usize,
    /// How many there are; they share the memory.
    jobs: usize,
    pub stop: &'a Arc<AtomicBool>,
}

impl Machine {
    /// All of it, for what nothing may run beside.
    pub(super) fn whole(&self) -> Result<Job<'_>> {
        let device = self.devices.first().context("a machine has a device")?;
        Ok(Job { device, threads: self.threads, jobs: 1, stop: &self.stop })
    }

    /// A job for each device, with its part of the threads.
    pub(super) fn parts(&self) -> impl Iterator<Item = Job<'_>> {
        let jobs = self.devices.len();
        self.devices.iter().enumerate().map(move |(index, device)| {
            let threads = self.threads * (index + 1) / jobs - self.threads * index / jobs;
            Job { device, threads: threads.max(1), jobs, stop: &self.stop }
        })
    }
}

/// A batch that fits the memory a task grants fills it, so the machine must have it.
///
/// # Errors
/// Less memory than that.
pub(super) fn check_memory(group: &Group, model: &LanguageModel) -> Result<()> {
    let Samples::Repeats(timing, _) = &group.samples else { return Ok(()) };
    let caches = timing.memory.0.saturating_sub(model.weight_bytes());
    match available_memory() {
        Some(free) if caches > free => bail!(
            "the task's `memory` of {} leaves {} to caches, and this machine has {} free; grant it less",
            timing.memory,
            Bytes(caches),
            Bytes(free)
        ),
        _ => Ok(()),
    }
}

/// Workers, and threads for each of their products: as many texts side by side as cores and memory allow. Against the
/// clock nothing runs beside.
pub(super) fn workers(group: &Group, job: &Job<'_>) -> (usize, usize) {
    if group.is_timed() {
        return (1, job.threads);
    }
    let per_worker = bytes_per_worker(group) * group.samples.side_by_side() as u64 * job.jobs as u64;
    let room = available_memory().map_or(usize::MAX, |bytes| (bytes * 8 / 10 / per_worker.max(1)) as usize);
    let workers = job.threads.min(room).max(1);
    (workers, (job.threads / workers).max(1))
}

/// Bytes a worker holds at most while it measures a group: as much of the unbounded cache as somebody needs, a bounded
/// one, the states of both, and the logits of a block.
pub fn bytes_per_worker(group: &Group) -> u64 {
    let shape = &group.files.shape;
    let (longest, _) = group.samples.longest_and_all();
    let most = |of: &dyn Fn(&NamedCell) -> usize| group.cells.iter().map(of).max().unwrap_or(0);
    let unbounded = match &group.samples {
        Samples::Texts(_) => most(&|cell| cell.reading().needs(longest)),
        Samples::Requests(..) => longest,
        // What the unbounded cache keeps is known without it, and a timing says itself what it takes.
        Samples::Kept(..) | Samples::Repeats(..) => 0,
    };
    let bounded = most(&|cell| cell.cell.size().unwrap_or(0)).saturating_add(BLOCK).min(longest);
    let at_once = unbounded.max(longest.min(AT_ONCE));
    let states = (3 * at_once * shape.hidden * size_of::<f32>()) as u64;
    let segment = (512 * (8 * shape.hidden + 3 * shape.intermediate) * size_of::<f32>()) as u64;
    let columns = unbounded.max(bounded) + BLOCK;
    let blocks = (BLOCK * shape.heads.heads * columns * size_of::<f32>()) as u64;
    // Keys whose positions move are kept twice.
    shape.cache_bytes(unbounded) + shape.cache_bytes(bounded) * 3 / 2 + states + segment + blocks + (64 << 20)
}
