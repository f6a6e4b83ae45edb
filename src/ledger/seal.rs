//! A checksum inside a Parquet file, where every reader looks past it.
//!
//! A flipped bit on a disk can change a number without making the file unreadable, or make the Parquet library ask
//! for absurd memory. So the files of the ledger carry a SHA-256 of themselves, in the gap that the format allows
//! between the data and the footer: readers find the footer from the end and the data from the start.

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};

const TAG: &[u8; 8] = b"TOVA-SUM";
const SEAL: usize = TAG.len() + 32;
/// The footer's length in 4 bytes, and the format's mark `PAR1`.
const END: usize = 8;

/// Whether a file carries a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seal {
    /// It does, and it is right.
    Right,
    /// It does not; another program wrote the file.
    None,
}

/// A Parquet file with its checksum; bytes that are no Parquet file stay as they are.
pub(super) fn seal(bytes: &[u8]) -> Vec<u8> {
    let Some((data, footer)) = footer_start(bytes).and_then(|start| bytes.split_at_checked(start)) else {
        return bytes.to_vec();
    };
    [data, TAG, checksum(data, footer).as_slice(), footer].concat()
}

/// Checks the checksum of a file.
///
/// # Errors
/// A checksum that is not that of the file.
pub(super) fn check(bytes: &[u8]) -> Result<Seal> {
    let parts = footer_start(bytes).and_then(|start| bytes.split_at_checked(start));
    let Some((before, footer)) = parts else { return Ok(Seal::None) };
    let Some((data, seal)) = before.split_last_chunk::<SEAL>() else { return Ok(Seal::None) };
    let Some((tag, sum)) = seal.split_first_chunk::<{ TAG.len() }>() else { return Ok(Seal::None) };
    if tag != TAG {
        return Ok(Seal::None);
    }
    if sum != checksum(data, footer).as_slice() {
        bail!("the file's checksum is wrong: its bytes have changed since it was written");
    }
    Ok(Seal::Right)
}

/// Where the footer begins.
fn footer_start(bytes: &[u8]) -> Option<usize> {
    let (rest, end) = bytes.split_last_chunk::<END>()?;
    let [a, b, c, d, mark @ ..] = *end;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if mark == *b"PAR1" { rest.len().checked_sub(length) } else { None }
}

fn checksum(data: &[u8], footer: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(data).chain_update(footer).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_notices_every_flipped_bit() {
        let file = [&b"PAR1 some data"[..], b"footer", &6u32.to_le_bytes(), b"PAR1"].concat();
        assert_eq!(check(&file).unwrap(), Seal::None);
        let sealed = seal(&file);
        assert_eq!(sealed.len(), file.len() + SEAL);
        assert!(sealed.ends_with(&file[14..]) && sealed.starts_with(&file[..14]));
        assert_eq!(check(&sealed).unwrap(), Seal::Right);
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(check(&flipped), Ok(Seal::Right)), "bit {bit}");
        }
        for length in 0..file.len() {
            assert_eq!(check(&file[..length]).unwrap(), Seal::None);
        }
    }
}
