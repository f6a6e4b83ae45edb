//! Measures several samples at once, each on its own thread, because small products are fastest on one thread.
//!
//! A worker takes a batch of samples, reads its full-cache prefix once, and queues its cells for all workers. Cells come
//! before new batches, so no more batches are in memory than there are workers.
//!
//! After an out-of-memory error on a GPU the failed samples are retried with fewer texts at once.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use anyhow::{Error, Result, bail};
use indexmap::IndexMap;

use super::machine::Workers;
use super::prepare::ModelTask;
use crate::eviction::CacheOptions;
use crate::lm::{LanguageModel, TextThreads, clone_error, is_out_of_memory};
use crate::task::{Batch, CacheConfig, FullCachePrefix, SampleResult};

/// What caches have in common that go on from one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PrefixKind {
    pub options: CacheOptions,
    /// Whether the host computes their attention although there is a GPU. Where it computes the prefix would otherwise depend on the
    /// other policies of a sweep.
    pub on_host: bool,
}

/// Samples that share a prefix, and the cells that lack some of them.
pub(super) struct BatchJob {
    pub samples: Range<usize>,
    pub kind: PrefixKind,
    /// Indices of cells, each with the samples it lacks.
    pub cells: Vec<(usize, Vec<usize>)>,
}

/// Whether work goes on: `Err(None)` ends it after an interruption, `Err(Some(error))` after an error.
pub(super) type GoOn = Result<(), Option<Error>>;

/// Receives each result, with its cell and sample.
pub(super) type Report<'a> = &'a (dyn Fn(usize, usize, Result<SampleResult>) -> GoOn + Sync);

impl BatchJob {
    /// Two jobs with about half of the samples each.
    fn split(self) -> [BatchJob; 2] {
        let middle = self.samples.start + self.samples.len() / 2;
        [self.samples.start..middle, middle..self.samples.end].map(|samples| {
            let lacking =
                |of_cell: &[usize]| of_cell.iter().copied().filter(|sample| samples.contains(sample)).collect();
            let cells = self.cells.iter().map(|(cell, of_cell)| (*cell, lacking(of_cell)));
            let cells = cells.filter(|(_, lacking): &(usize, Vec<usize>)| !lacking.is_empty()).collect();
            BatchJob { samples, cells, ..self }
        })
    }

    /// A job for each kind of prefix of its cells.
    fn by_kind(self, of_cell: impl Fn(usize) -> PrefixKind) -> Vec<BatchJob> {
        let mut jobs: IndexMap<PrefixKind, BatchJob> = IndexMap::new();
        for (cell, lacking) in self.cells {
            let kind = of_cell(cell);
            let new = || BatchJob { samples: self.samples.clone(), kind, cells: Vec::new() };
            jobs.entry(kind).or_insert_with(new).cells.push((cell, lacking));
        }
        jobs.into_values().collect()
    }
}

/// Splits the largest batches until every worker has a cell of one to measure. Their prefix is then read more than once, by
/// workers that would have waited.
fn split(mut jobs: Vec<BatchJob>, workers: usize) -> Vec<BatchJob> {
    while jobs.iter().map(|job| job.cells.len()).sum::<usize>() < workers {
        let Some(largest) = (0..jobs.len()).max_by_key(|job| jobs[*job].samples.len()) else { break };
        if jobs[largest].samples.len() < 2 {
            break;
        }
        let halves = jobs.swap_remove(largest).split();
        jobs.extend(halves.into_iter().filter(|half| !half.cells.is_empty()));
    }
    jobs.sort_by_key(|job| job.samples.start);
    jobs
}

/// Does some work, and turns a panic in it into an error, which fails the cells that were measured and no others.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // What it left half done is its own: caches and answers of samples that now fail. Locks are taken whether or not they are poisoned.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = text.or_else(|| panic.downcast_ref().cloned()).unwrap_or_default();
        bail!("the program has a fault: {said}\nhint: please report it, with the sweep and the model")
    })
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<BatchJob>,
    /// Cells of batches whose prefix was read.
    cells: VecDeque<CellJob>,
    /// Workers that may still add cells.
    busy: usize,
    /// Current limits: busy workers, and texts that each generates side by side. Lowered when the GPU runs out of memory.
    at_once: Workers,
    ended: bool,
    /// The first error that was reported.
    error: Option<Error>,
}

/// A cell, and the samples of a batch that it lacks.
struct CellJob {
    kind: PrefixKind,
    batch: Arc<(Range<usize>, Option<FullCachePrefix>)>,
    cell: usize,
    samples: Vec<usize>,
}

enum Job {
    Batch(BatchJob),
    Cell(CellJob),
}

impl Queue {
    /// Puts samples of a batch back into the queue; the prefix of the batch is then read again.
    fn put_back(&mut self, back: BatchJob) {
        match self.batches.iter_mut().find(|job| (&job.samples, job.kind) == (&back.samples, back.kind)) {
            Some(job) => job.cells.extend(back.cells),
            None => self.batches.push_front(back),
        }
    }
}

/// Works through the jobs with `workers` threads of `threads` product threads each.
///
/// # Errors
/// The first error of `report`; threads that cannot be started. `warn` is told if a GPU's memory is not enough.
pub(super) fn work(
    model: &LanguageModel,
    model_task: &ModelTask,
    jobs: Vec<BatchJob>,
    workers: Workers,
    report: Report<'_>,
    warn: &(dyn Fn(String) + Sync),
) -> Result<()> {
    let kind = |cell: usize| {
        let cell = &model_task.cells[cell];
        let options = cell.cell.cache.options.without_evictions();
        PrefixKind { options, on_host: model_task.is_on_host(model.device(), cell) }
    };
    let jobs = jobs.into_iter().flat_map(|job| job.by_kind(kind)).collect();
    let jobs = split(jobs, workers.workers);
    let queue = Mutex::new(Queue { batches: jobs.into(), at_once: workers, ..Queue::default() });
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        let mut pools = Vec::new();
        for _ in 0..workers.workers {
            pools.push(TextThreads::new(workers.threads)?);
        }
        for pool in pools {
            let worker =
                Worker { model, model_task, at_once: workers, queue: &queue, changed: &changed, report, warn };
            scope.spawn(move || pool.install(|| worker.run()));
        }
        anyhow::Ok(())
    })?;
    queue.into_inner().unwrap_or_else(PoisonError::into_inner).error.map_or(Ok(()), Err)
}

#[derive(Clone, Copy)]
struct Worker<'a> {
    model: &'a LanguageModel,
    model_task: &'a ModelTask,
    /// Limits when the job that it is doing began.
    at_once: Workers,
    queue: &'a Mutex<Queue>,
    changed: &'a Condvar,
    report: Report<'a>,
    warn: &'a (dyn Fn(String) + Sync),
}

/// A job that a worker is doing. However it ends, the other workers are notified: after a panic outside of the measurement they stop
/// too, instead of waiting for ever.
struct Turn<'a> {
    worker: Worker<'a>,
    go_on: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.worker.lock();
        queue.busy -= 1;
        queue.ended |= !self.go_on;
        self.worker.changed.notify_all();
    }
}

impl Worker<'_> {
    fn run(mut self) {
        while let Some((job, at_once)) = self.next() {
            let mut turn = Turn { worker: self, go_on: false };
            if at_once != self.at_once {
                self.model.device().free_unused();
            }
            self.at_once = at_once;
            let outcome = match job {
                Job::Batch(job) => self.read_batch(job),
                Job::Cell(job) => self.measure_cell(&job),
            };
            turn.go_on = outcome.is_ok();
            if let Err(Some(error)) = outcome {
                self.lock().error.get_or_insert(error);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<(Job, Workers)> {
        let mut queue = self.lock();
        loop {
            if queue.ended {
                return None;
            }
            if queue.busy < queue.at_once.workers {
                let cell = queue.cells.pop_front().map(Job::Cell);
                if let Some(job) = cell.or_else(|| queue.batches.pop_front().map(Job::Batch)) {
                    queue.busy += 1;
                    return Some((job, queue.at_once));
                }
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn config(&self, cell: usize) -> CacheConfig {
        self.model_task.cache_config(&self.model_task.cells[cell])
    }

    fn read_batch(&self, job: BatchJob) -> GoOn {
        let configs: Vec<CacheConfig> = job.cells.iter().map(|(cell, _)| self.config(*cell)).collect();
        let samples = &self.model_task.samples;
        match caught(|| samples.read_prefix(self.model, job.samples.clone(), &configs)) {
            Ok(prefix) => {
                let (batch, kind) = (Arc::new((job.samples, prefix)), job.kind);
                let cells = job.cells.into_iter();
                let cells =
                    cells.map(|(cell, samples)| CellJob { kind, batch: Arc::clone(&batch), cell, samples });
                self.lock().cells.extend(cells);
                Ok(())
            }
            Err(error) if is_out_of_memory(&error) => self.measure_again(job, error),
            Err(error) => self.fail(&job, &error),
        }
    }

    /// Reports one error for all samples of all cells of a job.
    fn fail(&self, job: &BatchJob, error: &Error) -> GoOn {
        job.cells.iter().try_for_each(|(cell, samples)| {
            samples.iter().try_for_each(|sample| (self.report)(*cell, *sample, Err(clone_error(error))))
        })
    }

    /// Leaves for later what the GPU had no memory for, and halves what is measured at once. What fails alone has failed.
    fn measure_again(&self, job: BatchJob, error: Error) -> GoOn {
        let mut queue = self.lock();
        let at_once = self.at_once;
        let texts = |at_once: Workers| at_once.workers * at_once.side_by_side;
        // The prefixes of other batches are in memory too.
        if texts(at_once) == 1 && queue.cells.iter().all(|other| other.batch.0 == job.samples) {
            drop(queue);
            let hint = "hint: use a GPU with more memory, --device cpu, shorter texts or smaller caches";
            let error = anyhow::anyhow!("{error:#}\n{hint}");
            return self.fail(&job, &error.context("alone it does not fit into the GPU's memory"));
        }
        // Otherwise a job that began at the same time has done it.
        if queue.at_once == at_once && texts(at_once) > 1 {
            match &mut queue.at_once {
                Workers { workers: 1, side_by_side, .. } => *side_by_side /= 2,
                Workers { workers, .. } => *workers /= 2,
            }
            let [texts, fewer] = [at_once, queue.at_once].map(texts);
            (self.warn)(format!("the GPU has no memory for {texts} texts at once, now {fewer}: {error:#}"));
        }
        for CellJob { kind, batch, cell, samples } in std::mem::take(&mut queue.cells) {
            queue.put_back(BatchJob { samples: batch.0.clone(), kind, cells: vec![(cell, samples)] });
        }
        queue.put_back(job);
        Ok(())
    }

    fn measure_cell(&self, CellJob { kind, batch, cell, samples }: &CellJob) -> GoOn {
        let (all, prefix) = &**batch;
        let (config, side_by_side) = (self.config(*cell), self.at_once.side_by_side);
        let (model, prefix) = (self.model, prefix.as_ref());
        let batch = Batch { model, prefix, all: all.clone(), samples, config, side_by_side };
        let mut outcome = Ok(());
        let (mut again, mut no_memory) = (Vec::new(), None);
        let mut left = samples.clone();
        let measured = caught(|| {
            let _ = self.model_task.samples.measure(&batch, &mut |sample, result| {
                match result {
                    Err(error) if is_out_of_memory(&error) => {
                        again.push(sample);
                        no_memory = Some(error);
                    }
                    result => outcome = (self.report)(*cell, sample, result),
                }
                left.retain(|other| *other != sample);
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            Ok(())
        });
        outcome?;
        if let Err(error) = measured {
            left.iter().try_for_each(|sample| (self.report)(*cell, *sample, Err(clone_error(&error))))?;
        }
        let job = BatchJob { samples: all.clone(), kind: *kind, cells: vec![(*cell, again)] };
        no_memory.map_or(Ok(()), |error| self.measure_again(job, error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::lm::source::HubSettings;
    use crate::lm::{Device, WeightType};
    use crate::sweep::{Selection, Sweep};

    #[test]
    fn batches_are_split_until_every_worker_has_a_cell() {
        let job = |samples: Range<usize>, cells: &[(usize, &[usize])]| {
            let cells = cells.iter().map(|(cell, lacking)| (*cell, lacking.to_vec())).collect();
            BatchJob { samples, kind: PrefixKind::default(), cells }
        };
        type Cells = Vec<(usize, Vec<usize>)>;
        let of = |jobs: Vec<BatchJob>, workers: usize| -> Vec<(Range<usize>, Cells)> {
            split(jobs, workers).into_iter().map(|job| (job.samples, job.cells)).collect()
        };
        let jobs = || vec![job(0..6, &[(0, &[0, 1, 4, 5]), (2, &[5])]), job(6..7, &[(0, &[6])])];
        let whole = vec![(0..6, vec![(0, vec![0, 1, 4, 5]), (2, vec![5])]), (6..7, vec![(0, vec![6])])];
        assert_eq!(of(jobs(), 3), whole);
        // Cell 2 lacks nothing of the first half.
        let halves = vec![
            (0..3, vec![(0, vec![0, 1])]),
            (3..6, vec![(0, vec![4, 5]), (2, vec![5])]),
            (6..7, vec![(0, vec![6])]),
        ];
        assert_eq!(of(jobs(), 4), halves);
        // No sample is lost or doubled, and single samples end it.
        let mut all: Vec<_> = of(jobs(), 100).into_iter().flat_map(|(_, cells)| cells).collect();
        all.sort();
        assert_eq!(
            all,
            [0, 1, 4, 5, 6].map(|sample| (0, vec![sample])).into_iter().chain([(2, vec![5])]).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_panic_in_one_worker_ends_them_all() {
        let text = "models: [random-tiny]\npolicies: [window, tova]\ncache_sizes: [4]\n\
            tasks: [{perplexity: {dataset: random-words, length: 32, books: 2, chunks_per_book: 2}}]\n";
        let sweep = Sweep::parse(text, "a.yaml").unwrap();
        let hub = HubSettings::with_cache_dir("nowhere");
        let prepared =
            super::super::prepare(&sweep, &Selection::default().of(&sweep).unwrap(), None, &hub, &(), "").unwrap();
        let model_task = &prepared.model_tasks[0];
        let model = model_task.files.load(WeightType::Auto, &Device::CPU).unwrap();
        let jobs = || {
            let jobs = model_task.samples.batches().into_iter();
            let cells = |sample: usize| vec![(0, vec![sample]), (1, vec![sample])];
            jobs.map(|samples| BatchJob { cells: cells(samples.start), samples, kind: PrefixKind::default() })
                .collect()
        };
        let workers = Workers { workers: 3, threads: 1, side_by_side: 1 };
        let seen = AtomicUsize::new(0);
        let report = |_: usize, _: usize, measured: Result<SampleResult>| {
            measured.unwrap();
            assert!(seen.fetch_add(1, Ordering::Relaxed) != 3, "the panic of this test, which is fine to see");
            Ok(())
        };
        let run = || work(&model, model_task, jobs(), workers, &report, &drop);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());

        seen.store(10, Ordering::Relaxed);
        run().unwrap();
        assert_eq!(seen.into_inner(), 10 + 8);
    }
}
