//! Measures several samples at once, each on its own thread, because small products are fastest on one thread.
//!
//! A worker takes a batch of samples, reads its full-cache prefix once, and queues its cells for all workers. Cells come
//! before new batches, so no more batches are in memory than there are workers.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use anyhow::{Error, Result};

use super::machine::Workers;
use super::prepare::ModelTask;
use crate::lm::{LanguageModel, TextThreads, clone_error};
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

impl BatchJob {
    /// Two jobs with about half of the samples each.
    fn split(self) -> [BatchJob; 2] {
        let middle = self.samples.start + self.samples.len() / 2;
        [self.samples.start..middle, middle..self.samples.end].map(|samples| {
            let lacking =
                |of_cell: &[usize]| of_cell.iter().copied().filter(|sample| samples.contains(sample)).collect();
            let cells = self.cells.iter().map(|(cell, of_cell)| (*cell, lacking(of_cell)));
            let cells = cells.filter(|(_, lacking): &(usize, Vec<usize>)| !lacking.is_empty()).collect();
            BatchJob { samples, cells }
        })
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
    workers: Workers,
    report: Report<'_>,
) -> Result<()> {
    let Workers { workers, threads, side_by_side } = workers;
    let jobs = split(jobs, workers);
    let queue = Queue { batches: jobs.into(), cells: VecDeque::new(), busy: 0, ended: false, error: None };
    let queue = Mutex::new(queue);
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        let mut pools = Vec::new();
        for _ in 0..workers {
            pools.push(TextThreads::new(threads)?);
        }
        for pool in pools {
            let worker = Worker { model, model_task, side_by_side, queue: &queue, changed: &changed, report };
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
    side_by_side: usize,
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
        let (config, side_by_side) = (self.config(*cell), self.side_by_side);
        let (model, prefix) = (self.model, prefix.as_ref());
        let batch = Batch { model, prefix, all: all.clone(), samples, config, side_by_side };
        let mut outcome = Ok(());
        let _ = self.model_task.samples.measure(&batch, &mut |sample, result| {
            outcome = (self.report)(*cell, sample, result);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome
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
            BatchJob { samples, cells }
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
        let prepared = super::super::prepare(&sweep, &Selection::default(), None, &hub, &(), "").unwrap();
        let model_task = &prepared.model_tasks[0];
        let model = model_task.files.load(WeightType::Auto, &Device::CPU).unwrap();
        let jobs = || {
            let jobs = model_task.samples.batches().into_iter();
            let cells = |sample: usize| vec![(0, vec![sample]), (1, vec![sample])];
            jobs.map(|samples| BatchJob { cells: cells(samples.start), samples }).collect()
        };
        let workers = Workers { workers: 3, threads: 1, side_by_side: 1 };
        let seen = AtomicUsize::new(0);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(&model, model_task, jobs(), workers, &|_, _, measured| {
                measured.unwrap();
                assert!(seen.fetch_add(1, Ordering::Relaxed) != 3, "the panic of this test, which is fine to see");
                Ok(())
            })
        }));
        assert!(ended.is_err());

        seen.store(10, Ordering::Relaxed);
        work(&model, model_task, jobs(), workers, &|_, _, measured| {
            seen.fetch_add(1, Ordering::Relaxed);
            measured.map(drop).map_err(Some)
        })
        .unwrap();
        assert_eq!(seen.into_inner(), 10 + 8);
    }
}
