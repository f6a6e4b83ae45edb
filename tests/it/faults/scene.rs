//! A sweep, a folder for its results, and its rows when nothing disturbs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tova_bench::ledger::Row;

use crate::support::program::{Ended, Running, command, start};
use crate::support::rows::{Kept, assert_same, kept, measured};
use crate::support::sweep::{SMALL, Sweep, write_texts};

/// Two tasks, so that some cells are complete long before others; some seconds of work on an old machine.
pub const LONG: Sweep<'static> = Sweep {
    policies: "[full, truncate, window+4, tova, h2o, knorm, random]",
    cache_sizes: "[16, 64, 130]",
    tasks: &[
        "dataset: ./texts, length: 128, books: 1, chunks_per_book: 2",
        "dataset: ./texts, length: 512, tail: keep, compare_to_full: true",
    ],
    ..SMALL
};

/// The outcome of an undisturbed run.
#[derive(Clone)]
struct Undisturbed {
    rows: Vec<Row>,
    cells: usize,
    time: Duration,
}

pub struct Scene {
    pub folder: TempDir,
    /// Starts the program in the folder of the sweep, without the results folder.
    program: Box<dyn Fn() -> Command>,
    pub cells: usize,
    pub expected: Vec<Row>,
    /// How long the sweep takes.
    pub undisturbed: Duration,
}

impl Scene {
    /// The long sweep, whose undisturbed run is shared by all tests.
    pub fn new() -> Scene {
        static KNOWN: OnceLock<Undisturbed> = OnceLock::new();
        let folder = tempfile::tempdir().unwrap();
        write_texts(folder.path(), 6, 700);
        LONG.write(folder.path());
        let path = folder.path().to_path_buf();
        let mut scene = Scene::unknown(folder, move || {
            let mut command = command(&path);
            command.args(["run", "sweep.yaml"]);
            command
        });
        scene.expect(KNOWN.get_or_init(|| scene.undisturbed()).clone());
        assert_eq!(scene.cells, 38);
        scene
    }

    /// Any sweep.
    pub fn of(folder: TempDir, program: impl Fn() -> Command + 'static) -> Scene {
        let mut scene = Scene::unknown(folder, program);
        scene.expect(scene.undisturbed());
        scene
    }

    fn unknown(folder: TempDir, program: impl Fn() -> Command + 'static) -> Scene {
        Scene { folder, program: Box::new(program), cells: 0, expected: Vec::new(), undisturbed: Duration::ZERO }
    }

    fn undisturbed(&self) -> Undisturbed {
        let started = Instant::now();
        self.to_the_end("undisturbed");
        let time = started.elapsed();
        let results = self.results("undisturbed");
        Undisturbed { rows: measured(&results), cells: kept(&results).cells, time }
    }

    fn expect(&mut self, Undisturbed { rows, cells, time }: Undisturbed) {
        (self.expected, self.cells, self.undisturbed) = (rows, cells, time);
    }

    pub fn results(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, name: &str) -> Command {
        let mut command = (self.program)();
        command.args(["--no-report", "--results"]).arg(self.results(name));
        command
    }

    pub fn start(&self, name: &str) -> Running {
        start(self.command(name))
    }

    /// Runs the sweep until it is complete.
    #[track_caller]
    pub fn to_the_end(&self, name: &str) -> Ended {
        let ended = self.start(name).unhurried().wait().with_code(0);
        let left = leftovers(&self.results(name));
        assert!(left.is_empty(), "a complete sweep leaves results only: {left:?}");
        ended
    }

    /// Runs the sweep while another process is measuring cells of it.
    #[track_caller]
    pub fn run_beside(&self, name: &str) -> Ended {
        self.start(name).unhurried().wait().with_code(0)
    }

    #[track_caller]
    pub fn assert_same(&self, name: &str) {
        assert_same(&measured(&self.results(name)), &self.expected);
    }
}

/// The number of cells that a run reports as already done.
pub fn skipped(ended: &Ended) -> usize {
    let (before, _) =
        ended.stderr.rsplit_once(" were there already").unwrap_or_else(|| panic!("{}", ended.stderr));
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Files that are not results: journals, locks, error messages, and temporary files of killed writers.
pub fn leftovers(results: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![results.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let hidden = path.file_name().unwrap().as_encoded_bytes().starts_with(b".");
            if path.is_dir() {
                folders.push(path);
            } else if hidden || folder.ends_with("partial") || folder.ends_with("failed") {
                found.push(path);
            }
        }
    }
    found
}

/// Whether the first task, whose cells have two samples, is complete and the second has begun.
pub fn under_way(results: &Path) -> bool {
    let Kept { cells, samples, .. } = kept(results);
    cells >= 19 && samples > 20
}
