//! The ledger on a real folder: interruptions, torn journals, failures, several processes, foreign files. Folders that vanish
//! and damaged results are tested on whole runs, in `tests/faults`.

use std::fs;
use std::path::{Path, PathBuf};

use super::layout::LISTINGS;
use super::row::tests::row;
use super::*;

struct Fixture {
    folder: tempfile::TempDir,
    ledger: Ledger,
    cells: Vec<CellName>,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        Fixture { folder, ledger, cells: names("revision") }
    }

    fn name(&self, cell: usize) -> &CellName {
        &self.cells[cell]
    }

    fn path(&self, part: &str, cell: usize, ending: &str) -> PathBuf {
        self.folder.path().join(part).join(format!("{}.{ending}", self.name(cell).stem()))
    }

    fn journal_files(&self) -> Vec<PathBuf> {
        let mut found = files(&self.folder.path().join("partial"));
        found.retain(|path| path.extension().unwrap() == "jsonl");
        found
    }

    fn journal(&self, name: &CellName) -> Journal {
        let Opened::Journal(journal) = self.ledger.journal(name).unwrap() else { panic!("no journal") };
        journal
    }

    fn status(&self, name: &CellName) -> Status {
        self.ledger.statuses([name]).unwrap().remove(0)
    }

    /// Measures a whole cell of one sample.
    fn complete(&self, cell: usize) {
        let journal = self.journal(self.name(cell));
        journal.append(0, rows(self.name(cell), 0)).unwrap();
        journal.complete(1).unwrap();
    }

    /// Another process on a machine whose locks do not reach this one's: it opens the cell as if nobody had it.
    fn elsewhere(&self, cell: usize) -> Journal {
        let lock = self.folder.path().join(format!("partial/{}.lock", self.name(cell).id()));
        fs::remove_file(lock).unwrap();
        self.journal(self.name(cell))
    }
}

/// Two cells of a model with these weights.
fn names(revision: &str) -> Vec<CellName> {
    let name = |policy: &str| {
        let id = CellId::of(&format!("{policy} {revision}"));
        CellName::new(id, "perplexity", "random-tiny", policy, Some(16))
    };
    vec![name("window"), name("tova")]
}

/// The files of a folder, hidden ones too, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Two rows of one sample.
fn rows(name: &CellName, sample: u32) -> Vec<Row> {
    let cell = name.id().to_string();
    vec![
        Row { cell: cell.as_str().into(), ..row(sample) },
        Row { cell: cell.into(), metric: "words".into(), ..row(sample) },
    ]
}

#[test]
fn an_interrupted_cell_continues() {
    let fixture = Fixture::new();
    let name = fixture.name(0);
    assert_eq!(fixture.status(name), Status::Missing);
    let journal = fixture.journal(name);
    journal.append(2, rows(name, 2)).unwrap();
    journal.append(0, rows(name, 0)).unwrap();
    assert!(journal.append(2, rows(name, 2)).is_err(), "twice");
    assert!(journal.append(3, rows(fixture.name(1), 3)).is_err(), "of another cell");
    assert!(matches!(fixture.ledger.journal(name).unwrap(), Opened::Busy));
    drop(journal);

    assert_eq!(fixture.status(name), Status::Partial { samples: [0, 2].into() });
    let journal = fixture.journal(name);
    assert_eq!(journal.done(), [0, 2]);
    let lacks = journal.complete(3).unwrap_err().to_string();
    assert!(lacks.ends_with("has 2 samples, and not the 3 it must have"), "{lacks}");
    journal.append(1, rows(name, 1)).unwrap();
    assert!(journal.complete(2).is_err(), "one too many");
    assert!(!fixture.path("cells", 0, "parquet").exists());
    journal.complete(3).unwrap();
    assert!(journal.append(3, rows(name, 3)).is_err(), "after the end");

    assert_eq!(fixture.status(name), Status::Done);
    assert!(files(&fixture.folder.path().join("partial")).is_empty(), "neither journal nor lock");
    let expected: Vec<Row> = (0..3).flat_map(|sample| rows(name, sample)).collect();
    assert_eq!(fixture.ledger.rows().unwrap(), expected);
    assert_eq!(fixture.ledger.rows_of(name).unwrap(), expected);
    assert!(matches!(fixture.ledger.journal(name).unwrap(), Opened::Complete));
}

#[test]
fn a_torn_line_loses_only_its_sample() {
    let fixture = Fixture::new();
    let name = fixture.name(0);
    let journal = fixture.journal(name);
    journal.append(0, rows(name, 0)).unwrap();
    let path = fixture.journal_files().pop().unwrap();
    let one = fs::metadata(&path).unwrap().len();
    journal.append(1, rows(name, 1)).unwrap();
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for end in (one as usize..whole.len()).step_by(7).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..end]).unwrap();
        assert_eq!(fixture.status(name), Status::Partial { samples: [0].into() });
        assert_eq!(fixture.journal(name).done(), [0], "torn at byte {end}");
    }
    // A flipped bit in the first line does not touch the second.
    let mut flipped = whole.clone();
    flipped[one as usize / 2] ^= 1;
    fs::write(&path, &flipped).unwrap();
    assert_eq!(fixture.journal(name).done(), [1]);
    // The next process writes to a file of its own, and leaves the torn one as it is.
    let torn = &whole[..whole.len() - 9];
    fs::write(&path, torn).unwrap();
    let journal = fixture.journal(name);
    journal.append(1, rows(name, 1)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), torn);
    assert_eq!(fixture.journal_files().len(), 2);
    journal.complete(2).unwrap();
    assert_eq!(fixture.ledger.rows().unwrap(), [rows(name, 0), rows(name, 1)].concat());
    assert!(files(&fixture.folder.path().join("partial")).is_empty());
}

#[test]
fn a_failure_is_kept_until_the_cell_succeeds() {
    let fixture = Fixture::new();
    let name = fixture.name(0);
    fixture.ledger.fail(name, &anyhow::anyhow!("no memory").context("layer 7")).unwrap();
    let failed = |samples: &[usize]| Status::Failed {
        message: "layer 7\ncaused by: no memory".into(),
        samples: samples.iter().copied().collect(),
    };
    assert_eq!(fixture.status(name), failed(&[]));
    let journal = fixture.journal(name);
    journal.append(0, rows(name, 0)).unwrap();
    assert_eq!(fixture.status(name), failed(&[0]));
    journal.complete(1).unwrap();
    assert_eq!(fixture.status(name), Status::Done);
    assert!(!fixture.path("failed", 0, "txt").exists());
}

#[test]
fn a_cell_is_found_under_its_earlier_name() {
    let fixture = Fixture::new();
    let name = fixture.name(0);
    let journal = fixture.journal(name);
    journal.append(0, rows(name, 0)).unwrap();
    drop(journal);
    let renamed = CellName::new(name.id(), "perplexity", "random-tiny", "renamed", Some(16));
    assert_ne!(name.stem(), renamed.stem());
    let held = fixture.journal(name);
    assert!(matches!(fixture.ledger.journal(&renamed).unwrap(), Opened::Busy), "two names have one lock");
    drop(held);
    assert_eq!(fixture.ledger.incomplete().unwrap(), 1);
    assert_eq!(fixture.status(&renamed), Status::Partial { samples: [0].into() });
    fixture.journal(&renamed).complete(1).unwrap();
    assert_eq!(fixture.status(name), Status::Done);
    assert_eq!(fixture.ledger.rows().unwrap().len(), 2);
}

#[test]
fn many_writers_without_locks_write_each_row_once() {
    let fixture = Fixture::new();
    let name = fixture.name(0);
    let expected: Vec<Row> = (0..8).flat_map(|sample| rows(name, sample)).collect();
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..20 {
        let journal = fixture.journal(name);
        journal.append(0, rows(name, 0)).unwrap();
        let mut writers = vec![journal];
        writers.extend((0..3).map(|_| fixture.elsewhere(0)));
        std::thread::scope(|scope| {
            for journal in &writers {
                assert_eq!(journal.done(), [0]);
                let mut order: Vec<usize> = (1..8).collect();
                random.shuffle(&mut order);
                scope.spawn(move || {
                    for sample in order {
                        journal.append(sample, rows(name, sample as u32)).unwrap();
                    }
                    journal.complete(8).unwrap();
                });
            }
        });
        drop(writers);
        assert_eq!(fixture.ledger.rows().unwrap(), expected, "round {round}");
        assert!(files(&fixture.folder.path().join("partial")).is_empty(), "round {round}");
        assert_eq!(files(&fixture.folder.path().join("cells")), [fixture.path("cells", 0, "parquet")]);
        fs::remove_file(fixture.path("cells", 0, "parquet")).unwrap();
    }
}

#[test]
fn leftovers_of_killed_processes_are_removed() {
    let fixture = Fixture::new();
    // A kill while the cell's file or its message was written, or before the journals were removed.
    let left = |cell: usize| {
        let (stem, id) = (fixture.name(cell).stem().to_string(), fixture.name(cell).id());
        [
            format!("partial/{stem}.aB3dE6.jsonl"),
            format!("partial/{id}.lock"),
            format!("failed/{stem}.txt"),
            format!("failed/.{stem}.txt.aB3dE6.tmp"),
            format!("cells/.{stem}.parquet.aB3dE6.tmp"),
        ]
        .map(|path| fixture.folder.path().join(path))
    };
    fixture.complete(0);
    for path in left(0).iter().chain(&left(1)) {
        fs::write(path, "left").unwrap();
    }
    Ledger::open(fixture.folder.path()).unwrap();
    assert_eq!(left(0).map(|path| path.exists()), [false; 5], "of the complete cell");
    assert_eq!(left(1).map(|path| path.exists()), [true; 5], "of the other");
    fixture.complete(1);
    assert_eq!(left(1).map(|path| path.exists()), [false; 5], "removed with the completion");
    assert_eq!(fixture.ledger.rows().unwrap().len(), 4);
}

#[test]
fn foreign_files_are_no_results() {
    let fixture = Fixture::new();
    let journal = fixture.journal(fixture.name(0));
    journal.append(0, rows(fixture.name(0), 0)).unwrap();
    // The journal of another cell, and lines that are none.
    let mut lines = fs::read(&fixture.journal_files()[0]).unwrap();
    lines.extend(b"{\"index\":0,\"rows\":[]}\nnot json\n");
    fs::write(fixture.path("partial", 1, "jsonl"), lines).unwrap();
    assert_eq!(fixture.status(fixture.name(1)), Status::Partial { samples: [].into() });
    assert!(Ledger::existing(&fixture.folder.path().join("cells")).is_err(), "no results folder");
    for hidden in ["cells/.half.parquet.tmp", "cells/.hidden.parquet"] {
        fs::write(fixture.folder.path().join(hidden), b"half").unwrap();
    }
    assert!(fixture.ledger.rows().unwrap().is_empty());
    // The file of another cell.
    journal.complete(1).unwrap();
    fs::copy(fixture.path("cells", 0, "parquet"), fixture.path("cells", 1, "parquet")).unwrap();
    let error = fixture.ledger.rows().unwrap_err().to_string();
    assert!(error.contains("does not match its name") && error.contains(fixture.name(1).stem()), "{error}");
}

#[test]
fn the_states_of_many_cells_are_found_together() {
    let fixture = Fixture::new();
    let name = |cell: usize| {
        let id = CellId::of(&format!("cell {cell}"));
        CellName::new(id, "perplexity", "random-tiny", &format!("tova-{cell}"), Some(16))
    };
    let cells: Vec<CellName> = (0..40).map(name).collect();
    for (cell, name) in cells.iter().enumerate() {
        let samples = cell / 5 % 3;
        let journal = (cell % 5 > 0 && samples > 0).then(|| fixture.journal(name));
        for sample in 0..samples {
            journal.iter().for_each(|journal| journal.append(sample, rows(name, sample as u32)).unwrap());
        }
        match cell % 5 {
            1 => fixture.ledger.fail(name, &anyhow::anyhow!("no memory")).unwrap(),
            // Another sweep called it by another name.
            2 => fs::write(fixture.folder.path().join(format!("failed/other__{}.txt", name.id())), "why").unwrap(),
            3 if samples > 0 => journal.unwrap().complete(samples).unwrap(),
            _ => {}
        }
    }
    let expected = |cell: usize| {
        let samples = 0..cell / 5 % 3;
        match cell % 5 {
            1 => Status::Failed { message: "no memory".into(), samples: samples.collect() },
            2 => Status::Failed { message: "why".into(), samples: samples.collect() },
            3 if !samples.is_empty() => Status::Done,
            4 if !samples.is_empty() => Status::Partial { samples: samples.collect() },
            _ => Status::Missing,
        }
    };
    let before = LISTINGS.get();
    let found = fixture.ledger.statuses(&cells).unwrap();
    assert_eq!(LISTINGS.get() - before, 3, "one of each folder");
    assert_eq!(found, (0..40).map(expected).collect::<Vec<_>>());
    let reversed: Vec<Status> = fixture.ledger.statuses(cells.iter().rev()).unwrap();
    assert!(reversed.iter().rev().eq(&found), "in the order that was asked for");
}
