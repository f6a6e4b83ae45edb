//! Measures several samples at once, each on its own thread, because small products are fastest on one thread.
//!
//! A worker takes a batch of samples, reads its full-cache prefix once, and queues its cells for all workers. Cells come
//! before new batches, so no more batches are in memory than there are workers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use anyhow::{Error, Result};

use super::prepare::ModelTask;
use crate::lm::{LanguageModel, clone_error};
use crate::task::{Batch, CacheConfig, FullCachePrefix, SampleResult};

/// Samples that share a prefix, and the cells that lack some of them.
pub(super) struct BatchJob {
    pub samples: Range<usize>,
    /// Indices of cells, each with the samples it lacks.
    pub cells: Vec<(usize, Vec<usize>)>,
}

/// `Err` ends the work, with or without an error.
pub(super) type GoOn = Result<(), Option<Error>>;

/// Receives each result, with its cell and sample.
pub(super) type Report<'a> = &'a (dyn Fn(usize, usize, Result<SampleResult>) -> GoOn + Sync);

struct Queue {
    batches: VecDeque<BatchJob>,
    /// Of batches whose prefix was read.
    cells: VecDeque<CellJob>,
    /// Workers that may still add cells.
    busy: usize,
    ended: bool,
    /// The first that was reported.
    error: Option<Error>,
}

/// A cell, and the samples of a batch that it lacks.
struct CellJob {
    batch: Arc<(Range<usize>, Option<FullCachePrefix>)>,
    cell: usize,
    samples: Vec<usize>,
}

enum Job {
    Batch(BatchJob),
    Cell(CellJob),
}

/// Works through the jobs with `workers` threads of `threads` product threads each.
///
/// # Errors
/// The first error of `report`; threads that cannot be started.
pub(super) fn work(
    model: &LanguageModel,
    model_task: &ModelTask,
    jobs: Vec<BatchJob>,
    (workers, threads): (usize, usize),
    report: Report<'_>,
) -> Result<()> {
    let queue = Queue { batches: jobs.into(), cells: VecDeque::new(), busy: 0, ended: false, error: None };
    let queue = Mutex::new(queue);
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        let mut pools = Vec::new();
        for _ in 0..workers {
            pools.push(rayon::ThreadPoolBuilder::new().num_threads(threads).build()?);
        }
        for pool in pools {
            let worker = Worker { model, model_task, queue: &queue, changed: &changed, report };
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
    queue: &'a Mutex<Queue>,
    changed: &'a Condvar,
    report: Report<'a>,
}

/// A job that a worker is doing. However it ends, the other workers are notified: after a panic they stop too, instead of
/// waiting for ever.
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
    fn run(self) {
        while let Some(job) = self.next() {
            let mut turn = Turn { worker: self, go_on: false };
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

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.ended {
                return None;
            }
            let cell = queue.cells.pop_front().map(Job::Cell);
            let job = cell.or_else(|| queue.batches.pop_front().map(Job::Batch));
            if job.is_some() {
                queue.busy += 1;
                return job;
            }
            if queue.busy == 0 {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn config(&self, cell: usize) -> CacheConfig {
        self.model_task.cells[cell].cache_config()
    }

    fn read_batch(&self, job: BatchJob) -> GoOn {
        let configs: Vec<CacheConfig> = job.cells.iter().map(|(cell, _)| self.config(*cell)).collect();
        match self.model_task.samples.read_prefix(self.model, job.samples.clone(), &configs) {
            Ok(prefix) => {
                let batch = Arc::new((job.samples, prefix));
                let cells = job.cells.into_iter();
                let cells = cells.map(|(cell, samples)| CellJob { batch: Arc::clone(&batch), cell, samples });
                self.lock().cells.extend(cells);
                Ok(())
            }
            // Every cell fails for the same reason.
            Err(error) => job.cells.iter().try_for_each(|(cell, samples)| {
                samples.iter().try_for_each(|sample| (self.report)(*cell, *sample, Err(clone_error(&error))))
            }),
        }
    }

    fn measure_cell(&self, CellJob { batch, cell, samples }: &CellJob) -> GoOn {
        let (all, prefix) = &**batch;
        let batch = Batch { all: all.clone(), samples, config: self.config(*cell) };
        let results = self.model_task.samples.measure(self.model, &batch, prefix.as_ref());
        results.into_iter().try_for_each(|(sample, result)| (self.report)(*cell, sample, result))
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
    fn a_panic_in_one_worker_ends_them_all() {
        let text = "models: [random-tiny]\npolicies: [window, tova]\ncache_sizes: [4]\n\
            tasks: [{perplexity: {dataset: random-words, length: 32, books: 2, chunks_per_book: 2}}]\n";
        let sweep = Sweep::parse(text, "a.yaml").unwrap();
        let hub = HubSettings::with_cache_dir("nowhere");
        let prepared = super::super::prepare(&sweep, &Selection::default(), None, &hub, &(), "").unwrap();
        let model_task = &prepared.model_tasks[0];
        let model = model_task.files.load(WeightType::Auto, &Device::CPU).unwrap();
        let jobs = || {
            let jobs = model_task.samples.batches().into_iter();
            let cells = |sample: usize| vec![(0, vec![sample]), (1, vec![sample])];
            jobs.map(|samples| BatchJob { cells: cells(samples.start), samples }).collect()
        };
        let seen = AtomicUsize::new(0);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(&model, model_task, jobs(), (3, 1), &|_, _, measured| {
                measured.unwrap();
                assert!(seen.fetch_add(1, Ordering::Relaxed) != 3, "the panic of this test, which is fine to see");
                Ok(())
            })
        }));
        assert!(ended.is_err());

        seen.store(10, Ordering::Relaxed);
        work(&model, model_task, jobs(), (3, 1), &|_, _, measured| {
            seen.fetch_add(1, Ordering::Relaxed);
            measured.map(drop).map_err(Some)
        })
        .unwrap();
        assert_eq!(seen.into_inner(), 10 + 8);
    }
}
