//! The digest of a data set, which enters cell ids.

use sha2::{Digest, Sha256};

/// `sha256:` and 16 hex digits over some parts. Each part is hashed with its length, so that moving a border between two
/// parts changes the digest.
pub fn digest_of<P: AsRef<str>>(parts: impl IntoIterator<Item = P>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hex: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
