//! Sweeps with policies of the program's own.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use tova_bench::eviction::DefinedPolicy;
use tova_bench::format::counted;
use tova_bench::ledger::Ledger;
use tova_bench::lm::source::HubSettings;
use tova_bench::lm::{DeviceChoice, checked_threads, machine_name};
use tova_bench::paper;
use tova_bench::report::{Options, with_unique_names};
use tova_bench::run::{self as engine, Event, Machine};
use tova_bench::sweep::{Selection, Sweep};

use crate::policy::Policy;
use crate::work::{detached, stop};

/// Measures what a sweep lacks and draws its report. Returns the results folder, and the cells that were measured, were there
/// already, and failed; the errors of those; and whether it was stopped.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python part names them")]
pub fn run(
    py: Python<'_>,
    sweep: PathBuf,
    policies: Vec<(String, Bound<'_, Policy>)>,
    results: Option<PathBuf>,
    device: &str,
    threads: Option<usize>,
    report: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<(PathBuf, [usize; 3], Vec<String>)> {
    let named = |(name, policy): &(String, Bound<'_, Policy>)| DefinedPolicy {
        name: name.clone(),
        ..policy.get().0.clone()
    };
    let own: Vec<DefinedPolicy> = policies.iter().map(named).collect();
    detached(py, || {
        let sweep = Sweep::read(&sweep, &own)?;
        let device = device.parse::<DeviceChoice>().map_err(anyhow::Error::msg)?.open()?;
        let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let threads = checked_threads(threads.max(1))?;
        let folder = results.unwrap_or_else(|| PathBuf::from("results").join(&sweep.name));
        let ledger = Ledger::open(&folder)?;
        let name = machine_name(&device, threads);
        let cells = Selection::default().of(&sweep)?;
        let prepared = engine::prepare(&sweep, &cells, Some(&ledger), &HubSettings::from_env()?, &(), &name)?;
        ledger.set_manifest(prepared.manifest.clone())?;
        let machine = Machine { devices: vec![device], threads, stop: stop() };
        let failed: Mutex<Vec<String>> = Mutex::default();
        let keep = |message| failed.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        let outcome = engine::run(&sweep.name, &prepared, &ledger, &machine, &|event| match event {
            // The error names the cell.
            Event::CellFailed { error, .. } => keep(format!("{error:#}")),
            Event::CellsFailed { model, task, count, error, .. } => {
                keep(format!("{} of {task} with {model}: {error:#}", counted(count, "cell")));
            }
            Event::Sample { cell, sample, samples_left, .. } => {
                let cell = (cell.cell.policy.as_str(), cell.cell.cache.rule.size(), cell.name.stem());
                tell(progress.as_ref(), (cell.2, cell.0, cell.1, sample, samples_left));
            }
            _ => {}
        })?;
        let current = ledger.write_current()?;
        if report && !current.rows.is_empty() {
            let options = Options { unfinished: current.unfinished, ..Options::everything(&folder) };
            paper::write_report(&with_unique_names(current.rows), &options, &[])?;
        }
        let failed = failed.into_inner().unwrap_or_default();
        Ok((folder, [outcome.done, outcome.skipped, outcome.failed], failed))
    })
}

/// Tells a Python function of a sample that was measured.
fn tell(progress: Option<&Py<PyAny>>, event: (&str, &str, Option<usize>, &str, usize)) {
    if let Some(progress) = progress {
        Python::attach(|py| {
            if let Err(error) = progress.call1(py, event) {
                crate::work::raise(error);
            }
        });
    }
}
