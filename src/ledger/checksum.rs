//! A SHA-256 inside each Parquet file of the ledger.
//!
//! A flipped bit can change a number without making a Parquet file unreadable. The checksum lies between the data and the
//! footer, a gap that the format allows: readers find the footer from the end of the file and the data by its offsets, so
//! every Parquet reader still opens the file.

use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};

const TAG: &[u8; 8] = b"TOVA-SUM";
const LENGTH: usize = TAG.len() + 32;
/// The footer's length in 4 bytes, and the magic number `PAR1`.
const END: usize = 8;

/// Inserts the checksum into the bytes of a Parquet file.
pub(super) fn add(bytes: &[u8]) -> Vec<u8> {
    let Some((data, footer)) = footer_start(bytes).and_then(|start| bytes.split_at_checked(start)) else {
        return bytes.to_vec();
    };
    [data, TAG, checksum(data, footer).as_slice(), footer].concat()
}

/// Checks the checksum of a file; false if it has none, because another program wrote it.
///
/// # Errors
/// A checksum that does not match the file.
pub(super) fn check(bytes: &[u8]) -> Result<bool> {
    let parts =
        footer_start(bytes).and_then(|start| bytes.split_at_checked(start)).and_then(|(before, footer)| {
            let (data, stored) = before.split_last_chunk::<LENGTH>()?;
            Some((data, stored.strip_prefix(TAG)?, footer))
        });
    let Some((data, sum, footer)) = parts else { return Ok(false) };
    ensure!(
        sum == checksum(data, footer),
        "its checksum does not match: the file has changed since it was written"
    );
    Ok(true)
}

fn footer_start(bytes: &[u8]) -> Option<usize> {
    let (rest, end) = bytes.split_last_chunk::<END>()?;
    let [a, b, c, d, magic @ ..] = *end;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if magic == *b"PAR1" { rest.len().checked_sub(length) } else { None }
}

fn checksum(data: &[u8], footer: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(data).chain_update(footer).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let file = [&b"PAR1 some data"[..], b"footer", &6u32.to_le_bytes(), b"PAR1"].concat();
        assert!(!check(&file).unwrap());
        let sealed = add(&file);
        assert_eq!(sealed.len(), file.len() + LENGTH);
        assert!(sealed.ends_with(&file[14..]) && sealed.starts_with(&file[..14]));
        assert!(check(&sealed).unwrap());
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!check(&flipped).unwrap_or(false), "bit {bit}");
        }
        for length in 0..file.len() {
            assert!(!check(&file[..length]).unwrap());
        }
    }
}
