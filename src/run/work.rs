//! What jobs do: group by group they open the model, measure what a cell lacks and write it down.
//!
//! Knows journals and failures: a failing cell never ends the sweep, a ledger that cannot be written does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::cost::{Cost, Speed, cost};
use super::event::{Event, Outcome};
use super::machine::{Job, check_memory, workers};
use super::models::Models;
use super::prepare::{Group, NamedCell, Prepared};
use super::rows::Provenance;
use super::schedule::{self, SampleJob};
use crate::ledger::{Journal, Ledger, Status, Unavailable as Taken, is_disk_full};
use crate::lm::{Device, Interrupted, LanguageModel, device_name, machine_name};
use crate::task::{Measured, Samples};

/// A cell in the making.
struct Progress {
    journal: Journal,
    left: AtomicUsize,
    failed: AtomicBool,
}

/// What the jobs of a run have in common.
pub(super) struct Work<'a> {
    pub sweep: &'a str,
    pub prepared: &'a Prepared,
    pub ledger: &'a Ledger,
    pub models: Models,
    pub outcome: &'a Mutex<Outcome>,
    pub observe: &'a (dyn Fn(Event<'_>) + Sync),
}

impl Work<'_> {
    /// Measures the cells that are `mine`, group by group.
    pub fn measure(&self, job: &Job<'_>, mine: impl Fn(&Group, &NamedCell) -> bool) -> Result<()> {
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
    pub fn measure_side_by_side(&self, jobs: &[Job<'_>]) -> Result<()> {
        let left = |group: &Group, cell: &NamedCell| {
            if group.is_timed() { Cost::default() } else { cost(group, cell, &Device::Cpu, Speed::NOMINAL) }
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
                            !group.is_timed() && shares.get(&cell.name.id()) == Some(&index)
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
                .try_for_each(|file| ledger.write_side_file(&cell.name, name, file.kind, &file.table));
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
