//! Result rows: Parquet files and journals, also behind their checksums.
//!
//! Files with a wrong checksum are rejected at once, so a right one is computed here, from the description of the
//! format and not by the program's own code.

use std::fs;

use sha2::{Digest, Sha256};
use tova_bench::ledger::{CellId, CellName};
use tova_bench::ledger::{Ledger, Opened, Status, read_rows};

use super::scratch;
use super::texts::check_message;

/// The bytes before the checksum of a Parquet file.
const TAG: &[u8] = b"TOVA-SUM";

/// Reads the file as it is and with a right checksum, both as a cell of a ledger and on its own.
pub fn ledger(input: &[u8]) {
    let folder = scratch::folder("ledger");
    let name = CellName::new(CellId::of("fuzzed"), "perplexity", "m", "tova", Some(8));
    let path = folder.join("cells").join(format!("{}.parquet", name.stem()));
    if !path.exists() {
        Ledger::open(&folder).expect("a ledger in the temporary folder");
    }
    for bytes in [Some(input.to_vec()), sealed(input)].into_iter().flatten() {
        scratch::write(&path, Some(&bytes));
        if let Err(error) = read_rows(&path) {
            check_message(&format!("{error:#}"));
        }
        let ledger = Ledger::existing(&folder).expect("the ledger just made");
        match ledger.rows() {
            Ok(rows) => assert!(rows.iter().all(|row| row.cell == name.id().to_string()), "rows of another cell"),
            Err(error) => check_message(&format!("{error:#}")),
        }
    }
}

/// A Parquet file with a right checksum; `None` for bytes without a footer.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (rest, end) = bytes.split_last_chunk::<8>()?;
    let length = u32::from_le_bytes(*end.first_chunk()?) as usize;
    let (before, _) = bytes.split_at_checked(rest.len().checked_sub(length)?)?;
    let footer = &bytes[before.len()..];
    let data = match before.len().checked_sub(TAG.len() + 32) {
        Some(at) if before[at..].starts_with(TAG) => &before[..at],
        _ => before,
    };
    let sum = Sha256::new().chain_update(data).chain_update(footer).finalize();
    Some([data, TAG, sum.as_slice(), footer].concat())
}

/// Reads the lines as they are, and each with a right checksum.
pub fn journal(input: &[u8]) {
    let folder = scratch::folder("journal");
    let name = CellName::new(CellId::of("fuzzed"), "perplexity", "m", "tova", Some(8));
    let path = folder.join("partial").join(format!("{}.jsonl", name.stem()));
    let cell = folder.join("cells").join(format!("{}.parquet", name.stem()));
    let ledger = Ledger::open(&folder).expect("a ledger in the temporary folder");
    let id = name.id().to_string();
    let summed: Vec<u8> = input.split(|&byte| byte == b'\n').flat_map(|line| summed(&id, line)).collect();
    for bytes in [input, &summed] {
        scratch::write(&path, Some(bytes));
        scratch::write(&cell, None);
        let status = ledger.statuses([&name]).expect("a journal that can be read").remove(0);
        let Status::Partial { samples } = status else { panic!("{status:?}") };
        let opened = ledger.journal(&name).expect("a journal that can be opened");
        let Opened::Journal(journal) = opened else { panic!("{opened:?}") };
        let done = journal.done();
        assert!(samples.iter().eq(&done));
        // A journal has one writer; readers do not change it.
        assert!(fs::read(&path).expect("the journal") == bytes);
        let rows = journal.rows().expect("rows of the journal");
        if !rows.is_empty() && done.iter().copied().eq(0..done.len()) {
            match journal.complete(done.len()) {
                Ok(()) => {
                    let read = read_rows(&cell).expect("the rows just written");
                    // NaN differs from itself, so compare how rows are printed.
                    assert_eq!(format!("{read:?}"), format!("{rows:?}"));
                }
                Err(error) => check_message(&format!("{error:#}")),
            }
        }
    }
}

fn summed(id: &str, line: &[u8]) -> Vec<u8> {
    let digest = Sha256::new().chain_update(id).chain_update(b"\n").chain_update(line).finalize();
    let sum: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    [b"{\"sha256\":\"", sum.as_bytes(), b"\",\"sample\":", line, b"}\n"].concat()
}
