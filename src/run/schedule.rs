//! Several samples at once, each on its own thread: small products want one thread each, and cells of a sample
//! share its unbounded reading.
//!
//! A worker takes a sample, reads it once without a bound, and leaves its cells for whoever is free; cells go before
//! new samples, so no more samples are in memory than there are workers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use anyhow::Result;

use super::prepare::Group;
use crate::lm::{LanguageModel, clone_error};
use crate::task::{Measured, Reading, Topline};

/// Samples that share what is read, and the cells they are still to be measured under.
pub(super) struct SampleJob {
    pub samples: Range<usize>,
    /// Indices into the group's cells, each with the samples it lacks.
    pub cells: Vec<(usize, Vec<usize>)>,
}

/// Who is told about a measurement: cell, sample, result. Returning false ends the work.
pub(super) type Report<'a> = &'a (dyn Fn(usize, usize, Result<Measured>) -> bool + Sync);

struct Queue {
    samples: VecDeque<SampleJob>,
    cells: VecDeque<(Arc<Shared>, usize, Vec<usize>)>,
    /// Workers that may still add cells.
    busy: usize,
    ended: bool,
}

struct Shared {
    samples: Range<usize>,
    topline: Option<Topline>,
}

enum Job {
    Sample(SampleJob),
    Cell(Arc<Shared>, usize, Vec<usize>),
}

/// Works through the jobs with `workers` threads of `threads` product threads each.
pub(super) fn work(
    model: &LanguageModel,
    group: &Group,
    jobs: Vec<SampleJob>,
    (workers, threads): (usize, usize),
    report: Report<'_>,
) -> Result<()> {
    let queue = Mutex::new(Queue { samples: jobs.into(), cells: VecDeque::new(), busy: 0, ended: false });
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        let mut pools = Vec::new();
        for _ in 0..workers {
            pools.push(rayon::ThreadPoolBuilder::new().num_threads(threads).build()?);
        }
        for pool in pools {
            let worker = Worker { model, group, queue: &queue, changed: &changed, report };
            scope.spawn(move || pool.install(|| worker.run()));
        }
        Ok(())
    })
}

#[derive(Clone, Copy)]
struct Worker<'a> {
    model: &'a LanguageModel,
    group: &'a Group,
    queue: &'a Mutex<Queue>,
    changed: &'a Condvar,
    report: Report<'a>,
}

/// A job in hand. However it ends, the other workers learn of it: after a panic they stop too, or they would wait
/// for ever.
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
            turn.go_on = match job {
                Job::Sample(job) => self.read_sample(job),
                Job::Cell(shared, cell, wanted) => self.measure_cell(&shared, cell, &wanted),
            };
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
            let job = match queue.cells.pop_front() {
                Some((shared, cell, wanted)) => Some(Job::Cell(shared, cell, wanted)),
                None => queue.samples.pop_front().map(Job::Sample),
            };
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

    fn reading(&self, cell: usize) -> Reading {
        self.group.cells[cell].reading()
    }

    fn read_sample(&self, job: SampleJob) -> bool {
        let readings: Vec<Reading> = job.cells.iter().map(|(cell, _)| self.reading(*cell)).collect();
        match self.group.samples.begin(self.model, job.samples.clone(), &readings) {
            Ok(topline) => {
                let shared = Arc::new(Shared { samples: job.samples, topline });
                let cells = job.cells.into_iter();
                self.lock().cells.extend(cells.map(|(cell, wanted)| (Arc::clone(&shared), cell, wanted)));
                true
            }
            // Every cell of the samples fails for the same reason.
            Err(error) => job.cells.iter().all(|(cell, wanted)| {
                wanted.iter().all(|sample| (self.report)(*cell, *sample, Err(clone_error(&error))))
            }),
        }
    }

    fn measure_cell(&self, shared: &Shared, cell: usize, wanted: &[usize]) -> bool {
        let together = (shared.samples.clone(), wanted);
        let measured =
            self.group.samples.measure(self.model, together, &self.reading(cell), shared.topline.as_ref());
        measured.into_iter().all(|(sample, measured)| (self.report)(cell, sample, measured))
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
        let group = &prepared.groups[0];
        let model = group.files.load(WeightType::Auto, &Device::Cpu).unwrap();
        let jobs = || {
            let jobs = group.samples.jobs().into_iter();
            let cells = |sample: usize| vec![(0, vec![sample]), (1, vec![sample])];
            jobs.map(|samples| SampleJob { cells: cells(samples.start), samples }).collect()
        };
        let told = AtomicUsize::new(0);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(&model, group, jobs(), (3, 1), &|_, _, measured| {
                measured.unwrap();
                assert!(told.fetch_add(1, Ordering::Relaxed) != 3, "the panic of this test, which is fine to see");
                true
            })
        }));
        assert!(ended.is_err());

        told.store(10, Ordering::Relaxed);
        work(&model, group, jobs(), (3, 1), &|_, _, measured| {
            told.fetch_add(1, Ordering::Relaxed);
            measured.is_ok()
        })
        .unwrap();
        assert_eq!(told.into_inner(), 10 + 8);
    }
}
