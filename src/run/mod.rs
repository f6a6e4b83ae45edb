//! The loop: open each model once, measure what the ledger lacks, write every finished sample down.
//!
//! Knows cells and where their rows go; it prints nothing, but tells an observer what happens. A failing cell never
//! ends the sweep; a full disk and an interruption do.

mod cost;
mod prepare;
mod rows;
mod schedule;
mod shares;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context, Result, bail};

pub use cost::{Cost, Speed, cost, entries};
pub use prepare::{Group, NamedCell, Prepared, Unavailable, prepare};
use rows::Provenance;
use schedule::SampleJob;

use crate::lm::{BLOCK, Device, Interrupted, LanguageModel, available_memory, device_name, machine_name};
use crate::results::{Journal, Ledger, Status, Unavailable as Taken, is_disk_full};
use crate::task::{AT_ONCE, Bytes, Measured, Samples};

/// What happens during a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// Work begins: so many tokens are to be read, over all cells.
    Started {
        tokens: u64,
        cells: usize,
        skipped: usize,
    },
    Loading {
        model: &'a str,
    },
    /// A sample of a cell is measured and written down.
    Sample {
        cell: &'a NamedCell,
        sample: &'a str,
        tokens: u64,
        samples_left: usize,
        seconds: f64,
    },
    CellDone {
        cell: &'a NamedCell,
    },
    CellFailed {
        cell: &'a str,
        error: &'a anyhow::Error,
    },
    /// Another process measures this cell.
    CellTaken {
        cell: &'a NamedCell,
    },
    Warning(String),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub done: usize,
    pub skipped: usize,
    pub failed: usize,
    pub taken: usize,
    pub interrupted: bool,
}

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
struct Job<'a> {
    device: &'a Device,
    threads: usize,
    /// How many there are; they share the memory.
    jobs: usize,
    stop: &'a Arc<AtomicBool>,
}

impl Machine {
    /// All of it, for what nothing may run beside.
    fn whole(&self) -> Result<Job<'_>> {
        let device = self.devices.first().context("a machine has a device")?;
        Ok(Job { device, threads: self.threads, jobs: 1, stop: &self.stop })
    }

    /// A job for each device, with its part of the threads.
    fn parts(&self) -> impl Iterator<Item = Job<'_>> {
        let jobs = self.devices.len();
        self.devices.iter().enumerate().map(move |(index, device)| {
            let threads = self.threads * (index + 1) / jobs - self.threads * index / jobs;
            Job { device, threads: threads.max(1), jobs, stop: &self.stop }
        })
    }
}

/// Measures what the ledger lacks: first what is timed, with the whole machine and one after the other, then the rest
/// with all jobs side by side.
///
/// # Errors
/// A ledger that cannot be written (a full disk, say). Cells that fail are counted, not returned.
pub fn run(
    sweep: &str,
    prepared: &Prepared,
    ledger: &Ledger,
    machine: &Machine,
    observe: &(dyn Fn(Event<'_>) + Sync),
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for unavailable in &prepared.unavailable {
        outcome.failed += unavailable.cells;
        let name = format!("{} cells of {} with {}", unavailable.cells, unavailable.task, unavailable.model);
        observe(Event::CellFailed { cell: &name, error: &unavailable.error });
    }
    let groups = prepared.groups.iter();
    outcome.skipped = groups.clone().flat_map(|g| &g.cells).filter(|cell| cell.status == Status::Done).count();
    let (tokens, cells) = groups.clone().fold((0, 0), |(tokens, cells), group| {
        (tokens + left(group), cells + group.cells.iter().filter(|cell| cell.status != Status::Done).count())
    });
    observe(Event::Started { tokens, cells, skipped: outcome.skipped });
    let outcome = Mutex::new(outcome);
    let work = Work { sweep, prepared, ledger, models: Models::default(), outcome: &outcome, observe };
    work.measure(&machine.whole()?, |group, _| is_timed(group))?;
    let jobs: Vec<Job<'_>> = machine.parts().collect();
    match jobs.as_slice() {
        [job] => work.measure(job, |group, _| !is_timed(group))?,
        jobs => work.measure_side_by_side(jobs)?,
    }
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.interrupted = machine.stop.load(Ordering::Relaxed);
    Ok(outcome)
}

/// Whether a group is measured against the clock.
fn is_timed(group: &Group) -> bool {
    matches!(group.samples, Samples::Repeats(..))
}

/// What the jobs of a run have in common.
struct Work<'a> {
    sweep: &'a str,
    prepared: &'a Prepared,
    ledger: &'a Ledger,
    models: Models,
    outcome: &'a Mutex<Outcome>,
    observe: &'a (dyn Fn(Event<'_>) + Sync),
}

impl Work<'_> {
    /// Measures the cells that are `mine`, group by group.
    fn measure(&self, job: &Job<'_>, mine: impl Fn(&Group, &NamedCell) -> bool) -> Result<()> {
        let mut loaded = None;
        for group in &self.prepared.groups {
            if job.stop.load(Ordering::Relaxed) {
                break;
            }
            let open = |(_, cell): &(usize, &NamedCell)| cell.status != Status::Done && mine(group, cell);
            let cells: Vec<(usize, &NamedCell)> = group.cells.iter().enumerate().filter(open).collect();
            if !cells.is_empty() {
                self.measure_group(group, &cells, job, &mut loaded)?;
            }
        }
        Ok(())
    }

    /// Cuts what is left into as many shares of about the same time as there are jobs, and measures all at once. The
    /// first error ends all of them.
    fn measure_side_by_side(&self, jobs: &[Job<'_>]) -> Result<()> {
        let left = |group: &Group, cell: &NamedCell| {
            if is_timed(group) { Cost::default() } else { cost(group, cell, &Device::Cpu, Speed::NOMINAL) }
        };
        let shares = self.prepared.shares(jobs.len(), left);
        let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
            let running: Vec<_> = jobs
                .iter()
                .enumerate()
                .map(|(index, job)| {
                    let shares = &shares;
                    scope.spawn(move || {
                        let mine = |group: &Group, cell: &NamedCell| {
                            !is_timed(group) && shares.get(&cell.name.id()) == Some(&index)
                        };
                        let outcome = self.measure(job, mine);
                        if outcome.is_err() {
                            job.stop.store(true, Ordering::Relaxed);
                        }
                        outcome
                    })
                })
                .collect();
            running
                .into_iter()
                .map(|job| job.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        outcomes.into_iter().collect()
    }
}

/// Tokens a group still has to read, over its cells.
fn left(group: &Group) -> u64 {
    let tokens = group.samples.longest_and_all().1 as u64;
    let samples = group.samples.len() as u64;
    let cells = group.cells.iter();
    cells.map(|cell| tokens * samples.saturating_sub(cell.samples_done() as u64) / samples).sum()
}

/// A cell in the making.
struct Progress {
    journal: Journal,
    left: AtomicUsize,
    failed: AtomicBool,
}

impl Work<'_> {
    fn measure_group(
        &self,
        group: &Group,
        cells: &[(usize, &NamedCell)],
        job: &Job<'_>,
        loaded: &mut Option<Arc<LanguageModel>>,
    ) -> Result<()> {
        let Work { ledger, observe, .. } = *self;
        let count = |change: &dyn Fn(&mut Outcome)| {
            change(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
        };
        let mut progress: BTreeMap<usize, Progress> = BTreeMap::new();
        let mut jobs: Vec<SampleJob> =
            group.samples.jobs().into_iter().map(|samples| SampleJob { samples, cells: Vec::new() }).collect();
        for &(index, cell) in cells {
            let journal = match ledger.journal(&cell.name) {
                Ok(journal) => journal,
                Err(error) => match error.downcast_ref::<Taken>() {
                    Some(Taken::Complete(_)) => {
                        count(&|outcome| outcome.skipped += 1);
                        continue;
                    }
                    Some(Taken::Busy(_)) => {
                        count(&|outcome| outcome.taken += 1);
                        observe(Event::CellTaken { cell });
                        continue;
                    }
                    None => return Err(error),
                },
            };
            let done = journal.done();
            let mut left = 0;
            for together in &mut jobs {
                let wanted: Vec<usize> =
                    together.samples.clone().filter(|sample| !done.contains(sample)).collect();
                left += wanted.len();
                if !wanted.is_empty() {
                    together.cells.push((index, wanted));
                }
            }
            let left = AtomicUsize::new(left);
            progress.insert(index, Progress { journal, left, failed: AtomicBool::new(false) });
        }
        jobs.retain(|together| !together.cells.is_empty());
        let complete = |index: usize| -> Result<()> {
            progress[&index].journal.complete(group.samples.len())?;
            count(&|outcome| outcome.done += 1);
            observe(Event::CellDone { cell: &group.cells[index] });
            Ok(())
        };
        // A run can end between a cell's last sample and its file.
        for (&index, cell) in &progress {
            if cell.left.load(Ordering::Relaxed) == 0 {
                complete(index)?;
            }
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let model = match self.open(group, job, loaded) {
            Ok(model) => model,
            Err(error) => {
                let waiting = progress.iter().filter(|(_, cell)| cell.left.load(Ordering::Relaxed) > 0);
                let waiting: Vec<_> = waiting.map(|(index, _)| &group.cells[*index].name).collect();
                for name in &waiting {
                    count(&|outcome| outcome.failed += 1);
                    ledger.fail(name, &error)?;
                }
                let name = format!("{} cells with {}", waiting.len(), group.model);
                observe(Event::CellFailed { cell: &name, error: &error });
                return Ok(());
            }
        };
        let provenance = Provenance {
            sweep: self.sweep.to_string(),
            device: match &group.samples {
                Samples::Repeats(..) => machine_name(job.device, job.threads),
                _ => device_name(job.device),
            },
            dtype: model.dtype().to_string(),
        };
        let fatal: Mutex<Option<anyhow::Error>> = Mutex::new(None);
        let end = |error: anyhow::Error| {
            fatal.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            false
        };
        let report = |index: usize, sample: usize, measured: Result<Measured>| -> bool {
            let (cell, state) = (&group.cells[index], &progress[&index]);
            let (name, _) = group.samples.name(sample);
            let measured = match measured {
                Ok(measured) => measured,
                Err(error) if error.chain().any(|cause| cause.is::<Interrupted>()) => return false,
                Err(error) => {
                    let error = error.context(format!("sample {name}")).context(cell.name.stem().to_string());
                    if !state.failed.swap(true, Ordering::Relaxed) {
                        count(&|outcome| outcome.failed += 1);
                        observe(Event::CellFailed { cell: cell.name.stem(), error: &error });
                        if let Err(error) = ledger.fail(&cell.name, &error) {
                            return end(error);
                        }
                    }
                    return true;
                }
            };
            // Before the rows: a sample that is written down has its files.
            let kept = measured
                .side_files
                .iter()
                .try_for_each(|file| ledger.keep_beside(&cell.name, name, file.kind, &file.table));
            let rows = || provenance.rows(group, cell, sample, &measured);
            if let Err(error) = kept.and_then(|()| state.journal.append(sample, rows())) {
                let hint = if is_disk_full(&error) { "the disk is full" } else { "the results cannot be written" };
                return end(error.context(hint));
            }
            let left = state.left.fetch_sub(1, Ordering::Relaxed) - 1;
            observe(Event::Sample {
                cell,
                sample: name,
                tokens: group.samples.work(sample) as u64,
                samples_left: left,
                seconds: measured.seconds,
            });
            if left == 0
                && let Err(error) = complete(index)
            {
                return end(error);
            }
            !job.stop.load(Ordering::Relaxed)
        };
        schedule::work(&model, group, jobs, workers(group, job), &report)?;
        match fatal.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The group's model. A job holds one, as two models need not fit into memory at once; jobs on one device share it.
    fn open(
        &self,
        group: &Group,
        job: &Job<'_>,
        loaded: &mut Option<Arc<LanguageModel>>,
    ) -> Result<Arc<LanguageModel>> {
        let key = format!("{} {} {:?}", group.revision, group.model.dtype.name(), job.device.location());
        let model = self.models.take(&key, loaded, || {
            (self.observe)(Event::Loading { model: &group.model.to_string() });
            let mut model = group.files.load(group.model.dtype, job.device)?;
            model.stop_on(Arc::clone(job.stop));
            Ok(model)
        })?;
        let (longest, _) = group.samples.longest_and_all();
        if longest > group.files.shape.max_positions {
            (self.observe)(Event::Warning(format!(
                "{} was trained on texts of {} tokens, and samples have {longest}: its perplexity beyond is its own",
                group.model, group.files.shape.max_positions
            )));
        }
        check_memory(group, &model)?;
        Ok(model)
    }
}

/// The models somebody holds, by revision, type and device.
#[derive(Default)]
struct Models(Mutex<BTreeMap<String, Arc<Mutex<Weak<LanguageModel>>>>>);

impl Models {
    fn slot(&self, key: &str) -> Arc<Mutex<Weak<LanguageModel>>> {
        Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_string()).or_default())
    }

    /// Puts the model of that name into a job's hands, loaded if nobody has it. What the job held before is let go
    /// first. Jobs that want the same model wait for the one that loads it.
    fn take(
        &self,
        key: &str,
        held: &mut Option<Arc<LanguageModel>>,
        load: impl FnOnce() -> Result<LanguageModel>,
    ) -> Result<Arc<LanguageModel>> {
        let slot = self.slot(key);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let model = match slot.upgrade() {
            Some(model) => model,
            None => {
                *held = None;
                let model = Arc::new(load()?);
                *slot = Arc::downgrade(&model);
                model
            }
        };
        *held = Some(Arc::clone(&model));
        Ok(model)
    }
}

/// A batch that fits the memory a task grants fills it, so the machine must have it.
///
/// # Errors
/// Less memory than that.
fn check_memory(group: &Group, model: &LanguageModel) -> Result<()> {
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
fn workers(group: &Group, job: &Job<'_>) -> (usize, usize) {
    if is_timed(group) {
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
