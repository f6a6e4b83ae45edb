//! The work of a job: for each model and task it loads the model and measures the samples that cells lack.
//!
//! Results go to the cells' journals. A failing cell never ends the sweep; a ledger that cannot be written and a GPU that fails at
//! everything do.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use anyhow::{Error, Result};

use super::cost::Cost;
use super::event::{Event, Outcome};
use super::machine::{Job, check_memory, workers};
use super::models::Models;
use super::prepare::{ModelTask, NamedCell, Prepared};
use super::rows;
use super::schedule::{self, BatchJob, GoOn, PrefixKind};
use crate::ledger::{Journal, Ledger, Opened, Row, Status, rows_in};
use crate::lm::{Interrupted, LanguageModel, device_name, machine_name};
use crate::metric::{MetricSum, NO_NUMBER};
use crate::task::{SampleResult, Unmeasurable};

/// A cell that is being measured.
struct Progress {
    journal: Journal,
    /// Samples that it lacks.
    left: AtomicUsize,
    failed: AtomicBool,
    /// Whether it was said that some of its scores are not numbers.
    warned: AtomicBool,
}

/// A task while a job measures it.
struct OpenTask<'a> {
    work: &'a Work<'a>,
    model_task: &'a ModelTask,
    job: &'a Job<'a>,
    /// By the cell's place in the task.
    progress: BTreeMap<usize, Progress>,
}

/// What all jobs of a run share.
pub(super) struct Work<'a> {
    pub sweep: &'a str,
    pub prepared: &'a Prepared,
    pub ledger: &'a Ledger,
    pub models: Models,
    pub outcome: &'a Mutex<Outcome>,
    pub observe: &'a (dyn Fn(Event<'_>) + Sync),
}

impl Work<'_> {
    /// Measures what is left of the timed tasks, or of all others: splits the cells into one shard of about the same run
    /// time for each job, and measures all shards at once. The first error ends all of them.
    pub fn measure<'a>(&self, jobs: impl ExactSizeIterator<Item = Job<'a>>, timed: bool) -> Result<()> {
        let cost_left = |model_task: &ModelTask, cell: &NamedCell| {
            if model_task.task.is_timed() == timed { cell.cost.left(model_task, cell) } else { Cost::default() }
        };
        let shards = &self.prepared.shards(jobs.len(), cost_left);
        let outcomes: Vec<Result<()>> = std::thread::scope(|scope| {
            let start = |(index, job): (usize, Job<'a>)| {
                scope.spawn(move || {
                    let is_own = |model_task: &ModelTask, cell: &NamedCell| {
                        model_task.task.is_timed() == timed && shards.get(&cell.name.id()) == Some(&index)
                    };
                    let outcome = self.measure_shard(&job, is_own);
                    if outcome.is_err() {
                        job.stop.store(true, Ordering::Relaxed);
                    }
                    outcome
                })
            };
            let running: Vec<_> = jobs.enumerate().map(start).collect();
            let join = |job: ScopedJoinHandle<'_, _>| job.join().unwrap_or_else(|panic| resume_unwind(panic));
            running.into_iter().map(join).collect()
        });
        outcomes.into_iter().collect()
    }

    /// Measures the job's own cells that are not done.
    fn measure_shard(&self, job: &Job<'_>, is_own: impl Fn(&ModelTask, &NamedCell) -> bool) -> Result<()> {
        let mut loaded = None;
        for model_task in &self.prepared.model_tasks {
            if job.stop.load(Ordering::Relaxed) {
                break;
            }
            let open = |(_, cell): &(usize, &NamedCell)| cell.status != Status::Done && is_own(model_task, cell);
            let cells: Vec<(usize, &NamedCell)> = model_task.cells.iter().enumerate().filter(open).collect();
            if !cells.is_empty() {
                self.measure_task(model_task, &cells, job, &mut loaded)?;
            }
        }
        Ok(())
    }

    fn measure_task(
        &self,
        model_task: &ModelTask,
        cells: &[(usize, &NamedCell)],
        job: &Job<'_>,
        loaded: &mut Option<Arc<LanguageModel>>,
    ) -> Result<()> {
        let batches = model_task.samples.batches().into_iter();
        let mut jobs: Vec<BatchJob> =
            batches.map(|samples| BatchJob { samples, kind: PrefixKind::default(), cells: Vec::new() }).collect();
        let progress = self.open_journals(model_task, cells, &mut jobs)?;
        jobs.retain(|batch| !batch.cells.is_empty());
        let open = OpenTask { work: self, model_task, job, progress };
        // An earlier run may have ended between a cell's last sample and its file.
        for (&index, cell) in &open.progress {
            if cell.left.load(Ordering::Relaxed) == 0 {
                open.complete(index)?;
            }
        }
        if jobs.is_empty() {
            return Ok(());
        }
        let model = match schedule::caught(|| self.load(model_task, job, loaded)) {
            Ok(model) => model,
            Err(error) => return open.fail(&error),
        };
        let common = |index: usize| {
            let on_host = model_task.is_on_host(job.device, &model_task.cells[index]);
            let device = if on_host { job.device.with_attention_on_host() } else { job.device.clone() };
            let name = match model_task.task.is_timed() {
                true => machine_name(&device, job.threads),
                false => device_name(&device),
            };
            let (dtype, arithmetic) = (model.dtype().into(), model_task.model.arithmetic.name().into());
            Row { device: name.into(), dtype, arithmetic, ..Row::default() }
        };
        let common: BTreeMap<usize, Row> = open.progress.keys().map(|index| (*index, common(*index))).collect();
        schedule::work(
            &model,
            model_task,
            jobs,
            workers(model_task, job.device, job.threads, job.jobs_on_device),
            &|index, sample, result| open.record(&common[&index], index, sample, result),
            &|warning| (self.observe)(Event::Warning(warning)),
        )
    }

    fn count(&self, change: impl FnOnce(&mut Outcome)) {
        change(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Records the samples of a cell that other cells have. Those that cannot be read any more are measured.
    fn reuse(&self, model_task: &ModelTask, cell: &NamedCell, journal: &Journal) -> Result<()> {
        let done = journal.done();
        let files: BTreeSet<&PathBuf> = cell.reusable.values().collect();
        for file in files {
            let measured = rows_in(file);
            let from_here = cell.reusable.iter().filter(|(sample, from)| *from == file && !done.contains(sample));
            for (&sample, _) in from_here {
                // With tables that are lost it is measured again.
                if let Some(rows) = rows::reused(self.sweep, model_task, cell, sample, &measured)
                    && self.ledger.reuse_side_files(file, &cell.name, &rows).is_ok()
                {
                    journal.append(sample, rows)?;
                }
            }
        }
        Ok(())
    }

    /// Opens the journals of cells, and adds the cells to the jobs of the batches that they lack. Cells that another
    /// process completed or is measuring are left out.
    fn open_journals(
        &self,
        model_task: &ModelTask,
        cells: &[(usize, &NamedCell)],
        jobs: &mut [BatchJob],
    ) -> Result<BTreeMap<usize, Progress>> {
        let mut progress = BTreeMap::new();
        for &(index, cell) in cells {
            let journal = match self.ledger.journal(&cell.name)? {
                Opened::Journal(journal) => journal,
                Opened::Complete => {
                    self.count(|outcome| outcome.skipped += 1);
                    continue;
                }
                Opened::Busy => {
                    self.count(|outcome| outcome.taken += 1);
                    (self.observe)(Event::CellTaken(cell));
                    continue;
                }
            };
            self.reuse(model_task, cell, &journal)?;
            let done = journal.done();
            let mut left = 0;
            for batch in jobs.iter_mut() {
                let lacking: Vec<usize> = batch.samples.clone().filter(|sample| !done.contains(sample)).collect();
                left += lacking.len();
                if !lacking.is_empty() {
                    batch.cells.push((index, lacking));
                }
            }
            progress.insert(
                index,
                Progress { journal, left: left.into(), failed: false.into(), warned: false.into() },
            );
        }
        Ok(progress)
    }

    /// The task's model. A job holds only one, because two models may not fit into memory; jobs on one device share it.
    fn load(
        &self,
        model_task: &ModelTask,
        job: &Job<'_>,
        loaded: &mut Option<Arc<LanguageModel>>,
    ) -> Result<Arc<LanguageModel>> {
        let (dtype, arithmetic) = (model_task.model.dtype, model_task.model.arithmetic);
        let key = [&*model_task.revision, dtype.name(), arithmetic.name(), &format!("{:?}", job.device.gpu())];
        let model = self.models.take(&key.join(" "), loaded, || {
            (self.observe)(Event::Loading(&model_task.model.to_string()));
            let tokenizer = model_task.files.tokenizer().ok().map(Arc::new);
            let mut model = model_task.files.load(dtype, job.device)?.with_tokenizer(tokenizer);
            model.stop_on(Arc::clone(job.stop));
            Ok(model)
        })?;
        let longest = model_task.samples.longest();
        if longest > model_task.files.shape.max_positions {
            (self.observe)(Event::Warning(format!(
                "{} was trained on texts of {} tokens, and samples have {longest}: it may predict poorly beyond its training",
                model_task.model, model_task.files.shape.max_positions
            )));
        }
        check_memory(model_task, &model)?;
        Ok(model)
    }
}

impl OpenTask<'_> {
    /// Ends a cell that has all of its samples.
    fn complete(&self, index: usize) -> Result<()> {
        self.progress[&index].journal.complete(self.model_task.samples.len())?;
        self.work.count(|outcome| outcome.done += 1);
        (self.work.observe)(Event::CellDone(&self.model_task.cells[index]));
        Ok(())
    }

    /// Fails every cell that lacks samples, because there is no model.
    fn fail(&self, error: &Error) -> Result<()> {
        self.job.device.check_after(error)?;
        let waiting = self.progress.iter().filter(|(_, cell)| cell.left.load(Ordering::Relaxed) > 0);
        let waiting: Vec<_> = waiting.map(|(index, _)| &self.model_task.cells[*index]).collect();
        for cell in &waiting {
            self.work.count(|outcome| outcome.failed += 1);
            self.work.ledger.fail(&cell.name, error)?;
        }
        let (model, task) = (&self.model_task.model.to_string(), &self.model_task.task.name.to_string());
        (self.work.observe)(Event::CellsFailed { model, task, count: waiting.len(), cells: &waiting, error });
        Ok(())
    }

    /// Puts a sample's result into the cell's journal. `common` has the columns that say where it was measured.
    fn record(&self, common: &Row, index: usize, sample: usize, result: Result<SampleResult>) -> GoOn {
        let OpenTask { work: Work { sweep, ledger, observe, .. }, model_task, job, progress } = self;
        let (cell, state) = (&model_task.cells[index], &progress[&index]);
        let (name, _) = model_task.samples.name(sample);
        let result = match result {
            Ok(result) => result,
            Err(error) if error.chain().any(|cause| cause.is::<Unmeasurable>()) => {
                SampleResult::not_measured(&error)
            }
            Err(error) if error.chain().any(|cause| cause.is::<Interrupted>()) => return Err(None),
            Err(error) => {
                job.device.check_after(&error)?;
                let error = error.context(format!("sample {name}")).context(cell.name.stem().to_string());
                if !state.failed.swap(true, Ordering::Relaxed) {
                    self.work.count(|outcome| outcome.failed += 1);
                    observe(Event::CellFailed { cell, error: &error });
                    ledger.fail(&cell.name, &error)?;
                }
                return Ok(());
            }
        };
        if let Some(MetricSum { value, weight, .. }) = result.sums.iter().find(|sum| sum.metric == NO_NUMBER)
            && !state.warned.swap(true, Ordering::Relaxed)
        {
            observe(Event::Warning(format!(
                "{}: in sample {name} the policy's score is not a number for {value} of {weight} entries that could leave; they stay \
                 while others have numbers",
                cell.name.stem()
            )));
        }
        // Before the rows, so that a sample in the journal always has its files.
        let tables = result.side_files.iter().map(|file| (file.kind, &file.table));
        let listing = ledger.write_side_files(&cell.name, name, tables)?;
        let rows = rows::measured(common, sweep, model_task, cell, sample, &result, &listing);
        state.journal.append(sample, rows)?;
        let left = state.left.fetch_sub(1, Ordering::Relaxed) - 1;
        observe(Event::Sample {
            cell,
            sample: name,
            tokens: model_task.work[sample] as u64,
            seconds: model_task.seconds(cell) * model_task.share(sample),
            samples_left: left,
            samples: model_task.samples.len(),
        });
        if left == 0 {
            self.complete(index)?;
        }
        if job.stop.load(Ordering::Relaxed) { Err(None) } else { Ok(()) }
    }
}
