//! The ledger on a real folder: interrupted, torn, foreign, failed, shared, damaged.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use super::row::tests::row;
use super::*;
use crate::sweep::{Cell, CellName, Sweep};

struct Desk {
    folder: tempfile::TempDir,
    ledger: Ledger,
    cells: Vec<Cell>,
}

impl Desk {
    fn new() -> Desk {
        let yaml = "models: [random-tiny]\npolicies: [window, tova]\ncache_sizes: [16]\n\
                    tasks: [{perplexity: {dataset: random-words}}]\n";
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        Desk { folder, ledger, cells: Sweep::parse(yaml, "desk.yaml").unwrap().expand() }
    }

    fn name(&self, cell: usize) -> CellName {
        self.cells[cell].name(self.cells[cell].id("revision", "digest"))
    }

    fn path(&self, part: &str, cell: usize, ending: &str) -> PathBuf {
        self.folder.path().join(part).join(format!("{}.{ending}", self.name(cell).stem()))
    }
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
    let desk = Desk::new();
    let name = desk.name(0);
    assert_eq!(desk.ledger.status(&name).unwrap(), Status::Missing);
    let journal = desk.ledger.journal(&name).unwrap();
    journal.append(2, rows(&name, 2)).unwrap();
    journal.append(0, rows(&name, 0)).unwrap();
    assert!(journal.append(2, rows(&name, 2)).is_err(), "twice");
    assert!(journal.append(3, rows(&desk.name(1), 3)).is_err(), "of another cell");
    let held = desk.ledger.journal(&name).unwrap_err();
    assert_eq!(held.downcast_ref(), Some(&Unavailable::Busy(name.stem().to_string())));
    drop(journal);

    assert_eq!(desk.ledger.status(&name).unwrap(), Status::Partial { samples: 2 });
    let journal = desk.ledger.journal(&name).unwrap();
    assert_eq!(journal.done(), [0, 2]);
    let lacks = journal.complete(3).unwrap_err().to_string();
    assert!(lacks.ends_with("lacks the samples 1"), "{lacks}");
    journal.append(1, rows(&name, 1)).unwrap();
    assert!(journal.complete(2).is_err(), "one too many");
    assert!(!desk.path("cells", 0, "parquet").exists());
    journal.complete(3).unwrap();
    assert!(journal.append(3, rows(&name, 3)).is_err(), "after the end");

    assert_eq!(desk.ledger.status(&name).unwrap(), Status::Done);
    assert!(!desk.path("partial", 0, "jsonl").exists());
    let expected: Vec<Row> = (0..3).flat_map(|sample| rows(&name, sample)).collect();
    assert_eq!(desk.ledger.rows().unwrap(), expected);
    assert_eq!(desk.ledger.rows_of(&name).unwrap(), expected);
    let complete = desk.ledger.journal(&name).unwrap_err();
    assert_eq!(complete.downcast_ref(), Some(&Unavailable::Complete(desk.path("cells", 0, "parquet"))));
}

#[test]
fn a_torn_end_is_cut_off_wherever_it_is_torn() {
    let desk = Desk::new();
    let (name, path) = (desk.name(0), desk.path("partial", 0, "jsonl"));
    let journal = desk.ledger.journal(&name).unwrap();
    journal.append(0, rows(&name, 0)).unwrap();
    let one = fs::metadata(&path).unwrap().len();
    journal.append(1, rows(&name, 1)).unwrap();
    drop(journal);
    let whole = fs::read(&path).unwrap();
    for end in (one as usize..whole.len()).step_by(7).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..end]).unwrap();
        assert_eq!(desk.ledger.status(&name).unwrap(), Status::Partial { samples: 1 });
        assert_eq!(desk.ledger.journal(&name).unwrap().done(), [0], "torn at byte {end}");
        assert_eq!(fs::metadata(&path).unwrap().len(), one);
    }
    // A flipped bit in the first line takes both.
    let mut flipped = whole.clone();
    flipped[one as usize / 2] ^= 1;
    fs::write(&path, &flipped).unwrap();
    assert_eq!(desk.ledger.status(&name).unwrap(), Status::Partial { samples: 0 });
    // What follows the tear is appended after the last whole line.
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let journal = desk.ledger.journal(&name).unwrap();
    journal.append(1, rows(&name, 1)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
    journal.complete(2).unwrap();
}

#[test]
fn a_foreign_journal_is_not_believed() {
    let desk = Desk::new();
    let journal = desk.ledger.journal(&desk.name(0)).unwrap();
    journal.append(0, rows(&desk.name(0), 0)).unwrap();
    fs::copy(desk.path("partial", 0, "jsonl"), desk.path("partial", 1, "jsonl")).unwrap();
    assert!(desk.ledger.journal(&desk.name(1)).unwrap().done().is_empty());
    OpenOptions::new()
        .append(true)
        .open(desk.path("partial", 1, "jsonl"))
        .unwrap()
        .write_all(b"{\"index\":0,\"rows\":[]}\nnot json\n")
        .unwrap();
    assert!(desk.ledger.journal(&desk.name(1)).unwrap().done().is_empty());
}

#[test]
fn a_failure_is_kept_until_the_cell_succeeds() {
    let desk = Desk::new();
    let name = desk.name(0);
    desk.ledger.fail(&name, &anyhow::anyhow!("no memory").context("layer 7")).unwrap();
    let failed = |samples| Status::Failed { message: "layer 7\ncaused by: no memory".into(), samples };
    assert_eq!(desk.ledger.status(&name).unwrap(), failed(0));
    let journal = desk.ledger.journal(&name).unwrap();
    journal.append(0, rows(&name, 0)).unwrap();
    assert_eq!(desk.ledger.status(&name).unwrap(), failed(1));
    journal.complete(1).unwrap();
    assert_eq!(desk.ledger.status(&name).unwrap(), Status::Done);
    assert!(!desk.path("failed", 0, "txt").exists());
}

#[test]
fn what_a_kill_left_beside_a_complete_cell_is_removed() {
    let desk = Desk::new();
    for cell in [0, 1] {
        let journal = desk.ledger.journal(&desk.name(cell)).unwrap();
        journal.append(0, rows(&desk.name(cell), 0)).unwrap();
        desk.ledger.fail(&desk.name(cell), &anyhow::anyhow!("a reason")).unwrap();
        if cell == 0 {
            let left = fs::read(desk.path("partial", cell, "jsonl")).unwrap();
            journal.complete(1).unwrap();
            fs::write(desk.path("partial", cell, "jsonl"), left).unwrap();
            fs::write(desk.path("failed", cell, "txt"), "a reason").unwrap();
        }
    }
    Ledger::open(desk.folder.path()).unwrap();
    for (part, ending) in [("partial", "jsonl"), ("failed", "txt")] {
        assert!(!desk.path(part, 0, ending).exists(), "{part} of the complete cell");
        assert!(desk.path(part, 1, ending).exists(), "{part} of the other");
    }
    assert_eq!(desk.ledger.rows().unwrap().len(), 2);
}

#[test]
fn a_cell_is_found_under_its_earlier_name() {
    let mut desk = Desk::new();
    let name = desk.name(0);
    let journal = desk.ledger.journal(&name).unwrap();
    journal.append(0, rows(&name, 0)).unwrap();
    drop(journal);
    desk.cells[0].policy = "renamed".into();
    let renamed = desk.name(0);
    assert_ne!(name.stem(), renamed.stem());
    assert_eq!(desk.ledger.status(&renamed).unwrap(), Status::Partial { samples: 1 });
    desk.ledger.journal(&renamed).unwrap().complete(1).unwrap();
    assert_eq!(desk.ledger.status(&name).unwrap(), Status::Done);
    assert_eq!(desk.ledger.rows().unwrap().len(), 2);
}

#[test]
fn workers_may_append_at_once() {
    let desk = Desk::new();
    let name = desk.name(0);
    let journal = desk.ledger.journal(&name).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (journal, name) = (&journal, &name);
            scope.spawn(move || {
                for sample in (worker..40).step_by(4) {
                    journal.append(sample as usize, rows(name, sample)).unwrap();
                }
            });
        }
    });
    journal.complete(40).unwrap();
    let expected: Vec<Row> = (0..40).flat_map(|sample| rows(&name, sample)).collect();
    assert_eq!(desk.ledger.rows().unwrap(), expected);
}

#[test]
fn damage_is_named() {
    let desk = Desk::new();
    let name = desk.name(0);
    let journal = desk.ledger.journal(&name).unwrap();
    journal.append(0, rows(&name, 0)).unwrap();
    journal.complete(1).unwrap();
    let path = desk.path("cells", 0, "parquet");
    let whole = fs::read(&path).unwrap();
    let told = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = format!("{:#}", desk.ledger.rows().unwrap_err());
        assert!(error.contains(&path.display().to_string()), "{error}");
    };
    told(b"");
    told(b"PAR1 nothing else");
    told(&whole[..whole.len() / 2]);
    told(&whole[whole.len() / 2..]);
    for byte in (0..whole.len()).step_by(97) {
        let mut flipped = whole.clone();
        flipped[byte] ^= 4;
        told(&flipped);
    }
    fs::write(&path, &whole).unwrap();
    fs::copy(&path, desk.path("cells", 1, "parquet")).unwrap();
    let error = desk.ledger.rows().unwrap_err().to_string();
    assert!(error.contains("not the cell of its name"), "{error}");
}

#[test]
fn a_reader_needs_a_ledger_and_ignores_unfinished_files() {
    let desk = Desk::new();
    assert!(Ledger::existing(&desk.folder.path().join("cells")).is_err());
    let ledger = Ledger::existing(desk.folder.path()).unwrap();
    fs::write(desk.folder.path().join("cells/.half.parquet.tmp"), b"half").unwrap();
    fs::write(desk.folder.path().join("cells/.hidden.parquet"), b"half").unwrap();
    assert!(ledger.rows().unwrap().is_empty());
}
