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
            cells.sort_by_key(|(cell, _)| cell.samples_done());
            let costs: Vec<Cost> = cells.iter().map(|(_, cost)| *cost).collect();
            let ids = cells.iter().map(|(cell, _)| cell.name.id());
            expected.extend(ids.zip(one_after_another(&costs)));
        }
        Ok(Expected(expected))
    }

    /// Of one sample of a cell. Samples take time in proportion to their tokens.
    pub fn of_sample(&self, model_task: &ModelTask, cell: &NamedCell, sample: usize) -> f64 {
        let share = model_task.samples.work(sample) as f64 / model_task.samples.total_work().max(1) as f64;
        self.of_cell(cell) * share
    }

    fn of_cell(&self, cell: &NamedCell) -> f64 {
        self.0.get(&cell.name.id()).copied().unwrap_or_default()
    }

    /// What is to be done, and what is done already.
    pub fn start(&self, prepared: &Prepared) -> Started {
        let mut started = Started::default();
        for model_task in &prepared.model_tasks {
            let samples = model_task.samples.len();
            for cell in &model_task.cells {
                let (kept, seconds) = (cell.samples_done().min(samples), self.of_cell(cell));
                started.samples += samples;
                started.kept += kept;
                started.seconds += seconds;
                started.kept_seconds += seconds * kept as f64 / samples as f64;
                match cell.status {
                    Status::Done => started.skipped += 1,
                    _ => started.cells += 1,
                }
            }
        }
        started
    }
}
