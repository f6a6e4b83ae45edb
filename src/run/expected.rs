//! The seconds that samples are expected to take, so that progress is counted in time.

use std::collections::BTreeMap;

use anyhow::Result;

use super::cost::{Cost, estimate, one_after_another, whole};
use super::event::Started;
use super::prepare::{ModelTask, NamedCell, Prepared};
use super::rates::Rates;
use crate::ledger::{CellId, Status};
use crate::lm::Device;

/// Runs that are expected to be shorter than this many seconds are not worth measuring the machine for, which takes one or
/// two.
const SHORT: f64 = 60.0;

/// The seconds of each cell, with all of its samples.
pub(super) struct Expected(BTreeMap<CellId, f64>);

impl Expected {
    /// # Errors
    /// As [`estimate`].
    pub fn new(prepared: &Prepared, device: &Device, threads: usize) -> Result<Expected> {
        let nominal: Vec<Vec<Cost>> = prepared
            .model_tasks
            .iter()
            .map(|model_task| {
                let rates = Rates::nominal(model_task);
                model_task.cells.iter().map(|cell| whole(model_task, cell, device, &rates)).collect()
            })
            .collect();
        let left = |(model_task, costs): (&ModelTask, &Vec<Cost>)| {
            let cells = model_task.cells.iter().zip(costs);
            let left: Vec<Cost> = cells.map(|(cell, cost)| cost.left(model_task, cell)).collect();
            one_after_another(&left).into_iter().sum::<f64>()
        };
        let seconds: f64 = prepared.model_tasks.iter().zip(&nominal).map(left).sum();
        let costs = if seconds < SHORT { nominal } else { estimate(prepared, device, threads)? };
        let mut expected = BTreeMap::new();
        for (model_task, costs) in prepared.model_tasks.iter().zip(costs) {
            // What is measured already does not read the prefix again.
            let mut cells: Vec<(&NamedCell, Cost)> = model_task.cells.iter().zip(costs).collect();
            cells.sort_by_cached_key(|(cell, _)| model_task.measured(cell).0);
            let costs: Vec<Cost> = cells.iter().map(|(_, cost)| *cost).collect();
            let ids = cells.iter().map(|(cell, _)| cell.name.id());
            expected.extend(ids.zip(one_after_another(&costs)));
        }
        Ok(Expected(expected))
    }

    /// Of one sample of a cell. Samples take time in proportion to their tokens.
    pub fn of_sample(&self, model_task: &ModelTask, cell: &NamedCell, sample: usize) -> f64 {
        let share = model_task.work[sample] as f64 / model_task.total_work().max(1) as f64;
        self.of_cell(cell) * share
    }

    fn of_cell(&self, cell: &NamedCell) -> f64 {
        self.0.get(&cell.name.id()).copied().unwrap_or_default()
    }

    /// What is to be done, and what is done already.
    pub fn start(&self, prepared: &Prepared) -> Started {
        let mut started = Started::default();
        for model_task in &prepared.model_tasks {
            for cell in &model_task.cells {
                let ((kept, part), seconds) = (model_task.measured(cell), self.of_cell(cell));
                started.samples += model_task.samples.len();
                started.kept += kept;
                started.seconds += seconds;
                started.kept_seconds += seconds * part;
                match cell.status {
                    Status::Done => started.skipped += 1,
                    _ => started.cells += 1,
                }
            }
        }
        started
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::*;
    use crate::lm::source::HubSettings;
    use crate::sweep::{Selection, Sweep};

    #[test]
    fn what_is_kept_and_what_is_left_are_the_whole() {
        let sweep = "models: [random-tiny]\npolicies: [tova]\ncache_sizes: [8]\ntasks: [{needle: {\
            dataset: random-words, lengths: [200, 1800], depths: [50], texts: 1, write: {max_new_tokens: 4}}}]\n";
        let sweep = Sweep::parse(sweep, "a.yaml").unwrap();
        let hub = HubSettings::with_cache_dir("nowhere");
        let mut prepared = prepare(&sweep, &Selection::default(), None, &hub, &(), "").unwrap();
        for (measured, part) in [(0, 0.1), (1, 0.9)] {
            prepared.model_tasks[0].cells[0].status = Status::Partial { samples: [measured].into() };
            let expected = Expected::new(&prepared, &Device::CPU, 1).unwrap();
            let model_task = &prepared.model_tasks[0];
            let Started { samples, kept, seconds, kept_seconds, .. } = expected.start(&prepared);
            assert_eq!((samples, kept), (2, 1));
            assert!((kept_seconds / seconds - part).abs() < 0.02, "{kept_seconds} of {seconds}");
            let left = expected.of_sample(model_task, &model_task.cells[0], 1 - measured);
            assert!((kept_seconds + left - seconds).abs() < 1e-9, "{kept_seconds} {left} {seconds}");
        }
    }
}
