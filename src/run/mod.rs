//! The loop: open each model once, measure what the ledger lacks, write every finished sample down.
//!
//! Knows cells and where their rows go; it prints nothing, but tells an observer what happens. A failing cell never
//! ends the sweep; a full disk and an interruption do.

mod prepare;
mod rows;
mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};

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
    pub device: Device,
    pub threads: usize,
    /// Ends the run after the layer in hand.
    pub stop: Arc<AtomicBool>,
}

/// Measures what the ledger lacks.
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
    let mut loaded: Option<(String, LanguageModel)> = None;
    for group in groups {
        if machine.stop.load(Ordering::Relaxed) {
            break;
        }
        run_group(sweep, group, ledger, machine, &mut loaded, &mut outcome, observe)?;
    }
    outcome.interrupted = machine.stop.load(Ordering::Relaxed);
    Ok(outcome)
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

fn run_group(
    sweep: &str,
    group: &Group,
    ledger: &Ledger,
    machine: &Machine,
    loaded: &mut Option<(String, LanguageModel)>,
    outcome: &mut Outcome,
    observe: &(dyn Fn(Event<'_>) + Sync),
) -> Result<()> {
    let mut progress: BTreeMap<usize, Progress> = BTreeMap::new();
    let mut jobs: Vec<SampleJob> =
        group.samples.jobs().into_iter().map(|samples| SampleJob { samples, cells: Vec::new() }).collect();
    for (index, cell) in group.cells.iter().enumerate().filter(|(_, cell)| cell.status != Status::Done) {
        let journal = match ledger.journal(&cell.name) {
            Ok(journal) => journal,
            Err(error) => match error.downcast_ref::<Taken>() {
                Some(Taken::Complete(_)) => {
                    outcome.skipped += 1;
                    continue;
                }
                Some(Taken::Busy(_)) => {
                    outcome.taken += 1;
                    observe(Event::CellTaken { cell });
                    continue;
                }
                None => return Err(error),
            },
        };
        let done = journal.done();
        let mut left = 0;
        for job in &mut jobs {
            let wanted: Vec<usize> = job.samples.clone().filter(|sample| !done.contains(sample)).collect();
            left += wanted.len();
            if !wanted.is_empty() {
                job.cells.push((index, wanted));
            }
        }
        let left = AtomicUsize::new(left);
        progress.insert(index, Progress { journal, left, failed: AtomicBool::new(false) });
    }
    jobs.retain(|job| !job.cells.is_empty());
    let outcome = Mutex::new(outcome);
    let count = |change: &dyn Fn(&mut Outcome)| {
        change(&mut outcome.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    };
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
    let model = match open(group, machine, loaded, observe) {
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
        sweep: sweep.to_string(),
        device: match &group.samples {
            Samples::Repeats(..) => machine_name(&machine.device, machine.threads),
            _ => device_name(&machine.device),
        },
        dtype: model.dtype().to_string(),
    };
    let fatal: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let end = |error: anyhow::Error| {
        fatal.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
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
        !machine.stop.load(Ordering::Relaxed)
    };
    schedule::work(model, group, jobs, workers(group, machine), &report)?;
    match fatal.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// The group's model, loaded once for all groups in a row that use it.
fn open<'a>(
    group: &Group,
    machine: &Machine,
    loaded: &'a mut Option<(String, LanguageModel)>,
    observe: &(dyn Fn(Event<'_>) + Sync),
) -> Result<&'a LanguageModel> {
    let key = format!("{} {}", group.revision, group.model.dtype.name());
    if loaded.as_ref().is_none_or(|(name, _)| *name != key) {
        // Two models need not fit into memory at once.
        *loaded = None;
        observe(Event::Loading { model: &group.model.to_string() });
        let mut model = group.files.load(group.model.dtype, &machine.device)?;
        model.stop_on(Arc::clone(&machine.stop));
        *loaded = Some((key, model));
    }
    let (longest, _) = group.samples.longest_and_all();
    if longest > group.files.shape.max_positions {
        observe(Event::Warning(format!(
            "{} was trained on texts of {} tokens, and samples have {longest}: its perplexity beyond is its own",
            group.model, group.files.shape.max_positions
        )));
    }
    let model = &loaded.as_ref().context("the model was just loaded")?.1;
    check_memory(group, model)?;
    Ok(model)
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
fn workers(group: &Group, machine: &Machine) -> (usize, usize) {
    if matches!(group.samples, Samples::Repeats(..)) {
        return (1, machine.threads);
    }
    let per_worker = bytes_per_worker(group) * group.samples.side_by_side() as u64;
    let room = available_memory().map_or(usize::MAX, |bytes| (bytes * 8 / 10 / per_worker.max(1)) as usize);
    let workers = machine.threads.min(room).max(1);
    (workers, (machine.threads / workers).max(1))
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
