//! Runs of a sweep on an emulated GPU with little memory, and on one that stops working.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Result;
use tova_bench::ledger::Ledger;
use tova_bench::lm::source::HubSettings;
use tova_bench::lm::{Device, Emulation};
use tova_bench::run::{self, Event, Machine, Outcome};
use tova_bench::sweep::{Selection, Sweep};

use crate::support::rows::{assert_same, kept, measured};

/// Texts with a full cache of their own, and texts that are written side by side.
const SWEEP: &str = "models: [pocket]\npolicies: [full, tova, h2o]\ncache_sizes: [128]\ntasks:\n\
    \x20 - perplexity: {dataset: embedded, length: 300, books: 1, chunks_per_book: 4, compare_to_full: true}\n\
    \x20 - qasper: {dataset: embedded, documents: 1, questions: 4, length: 300, write: {max_new_tokens: 4}}\n";

/// The outcome, the warnings, and the errors of cells.
fn run_on(emulation: Emulation, threads: usize, folder: &Path) -> (Result<Outcome>, Vec<String>, Vec<String>) {
    run_sweep(SWEEP, emulation, threads, folder)
}

fn run_sweep(
    sweep: &str,
    emulation: Emulation,
    threads: usize,
    folder: &Path,
) -> (Result<Outcome>, Vec<String>, Vec<String>) {
    let sweep = Sweep::parse(sweep, "sweep.yaml").unwrap();
    let ledger = Ledger::open(folder).unwrap();
    let hub = HubSettings::with_cache_dir("nowhere");
    let prepared =
        run::prepare(&sweep, &Selection::default().of(&sweep).unwrap(), Some(&ledger), &hub, &(), "").unwrap();
    let devices = vec![Device::emulated(&emulation).unwrap()];
    let machine = Machine { devices, threads, stop: Default::default() };
    let told: Mutex<(Vec<String>, Vec<String>)> = Mutex::default();
    let outcome = run::run("sweep", &prepared, &ledger, &machine, &|event| match event {
        Event::Warning(warning) => told.lock().unwrap().0.push(warning),
        Event::CellFailed { error, .. } => told.lock().unwrap().1.push(format!("{error:#}")),
        _ => {}
    });
    let (warnings, failures) = told.into_inner().unwrap();
    (outcome, warnings, failures)
}

#[test]
fn a_run_goes_on_with_fewer_texts_where_memory_is_not_enough() {
    let folder = tempfile::tempdir().unwrap();
    let enough = folder.path().join("enough");
    let (outcome, warnings, failures) = run_on(Emulation::default(), 1, &enough);
    assert_eq!((outcome.unwrap().done, warnings, failures), (6, vec![], vec![]));
    // Each time more, until it is enough for one text after the other.
    let mut failed = 0;
    let mut memory = 1 << 20;
    loop {
        let little = folder.path().join(memory.to_string());
        let (outcome, warnings, failures) = run_on(Emulation { memory, ..Emulation::default() }, 4, &little);
        eprintln!("{memory} bytes: {outcome:?}\n{}\n{}", warnings.join("\n"), failures.join("\n"));
        let outcome = outcome.unwrap();
        assert_eq!((outcome.failed, outcome.done), (failures.len(), 6 - failures.len()));
        assert!(failures.iter().all(|error| error.contains("alone it does not fit")), "{failures:?}");
        assert!(!warnings.is_empty(), "memory was enough for several texts");
        let (got, mut expected) = (measured(&little), measured(&enough));
        expected.retain(|row| got.iter().any(|other| other.cell == row.cell));
        assert_same(&got, &expected);
        if outcome.failed == 0 {
            break;
        }
        failed += outcome.failed;
        memory += memory / 2;
    }
    assert!(failed > 0);
}

#[test]
fn a_run_ends_when_a_gpu_fails_at_everything_and_goes_on_later() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, broken] = ["whole", "broken"].map(|name| folder.path().join(name));
    run_on(Emulation::default(), 2, &whole).0.unwrap();
    let (outcome, _, failures) = run_on(Emulation { launches: 300, ..Emulation::default() }, 2, &broken);
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    let kept = kept(&broken);
    assert!(failures.is_empty() && kept.samples > 0 && kept.torn == 0, "{failures:?} {kept:?}");

    run_on(Emulation::default(), 2, &broken).0.unwrap();
    assert_same(&measured(&broken), &measured(&whole));
}

/// Policies whose attention the host computes change neither the device nor the bits of others beside them.
#[test]
fn a_cell_does_not_depend_on_the_other_policies_of_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = |policies: &str| {
        format!(
            "models: [pocket]\npolicies: [{policies}]\ncache_sizes: [128]\ntasks:\n\
             \x20 - perplexity: {{dataset: embedded, length: 300, prompt: 200, books: 1, chunks_per_book: 2}}\n"
        )
    };
    let run = |name: &str, policies: &str| {
        let path = folder.path().join(name);
        let (outcome, warnings, _) = run_sweep(&sweep(policies), Emulation::default(), 2, &path);
        assert_eq!(outcome.unwrap().failed, 0);
        (measured(&path), warnings)
    };
    let (alone, warnings) = run("alone", "full, tova, h2o, window+4");
    assert_eq!(warnings, Vec::<String>::new());
    let cut_policies = "tova@16, tova@cut, h2o@cut, roco@cut+16, snapkv, adakv, expected";
    let (beside, warnings) =
        run("beside", &format!("full, tova, snapkv@16, h2o, window+4, {cut_policies}, h2o@q8_0"));
    let found = |name: &str| warnings.iter().filter(|line| line.contains(name)).count();
    assert_eq!(
        (found("snapkv@16: kernels do not know the score"), found("h2o@q8_0: keys and values are in q8_0")),
        (1, 1)
    );
    let (on_gpu, on_host): (Vec<_>, Vec<_>) = beside.into_iter().partition(|row| row.device == "emulated");
    let (cut, on_gpu): (Vec<_>, Vec<_>) =
        on_gpu.into_iter().partition(|row| alone.iter().all(|other| other.cell != row.cell));
    assert_same(&on_gpu, &alone);
    assert_same(&cut, &run("cut", cut_policies).0);
    let policies: BTreeSet<String> = on_host.iter().map(|row| row.policy.to_string()).collect();
    assert_eq!(policies.into_iter().collect::<Vec<_>>(), ["h2o", "snapkv"]);
    assert!(on_host.iter().all(|row| row.device.starts_with("cpu (")));
}
