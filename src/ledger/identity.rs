//! The identity of a cell: engine and schema version, id, and file names.
//!
//! The id is a digest of the cell's canonical text, which `sweep` writes for experiments and `judge` for verdicts.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::format::slug;

/// Version of the engine, bumped when numbers may change; part of every cell id.
pub const ENGINE_VERSION: u32 = 8;

/// Version of the schema of result rows ([`Row`](super::Row)), bumped when a column is added, removed or changes its
/// meaning; part of every cell id.
pub const SCHEMA_VERSION: u32 = 11;

/// Content id of a cell: the first 64 bits of the SHA-256 of its canonical text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellId(u64);

impl CellId {
    /// The id of a canonical text.
    pub fn of(meaning: &str) -> CellId {
        CellId(digest(meaning))
    }

    /// The id that was written as 16 hex digits.
    pub fn parse(text: &str) -> Option<CellId> {
        u64::from_str_radix(text, 16).ok().map(CellId)
    }
}

/// The first 64 bits of a text's SHA-256.
pub(super) fn digest(text: &str) -> u64 {
    let digest = Sha256::digest(text);
    digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The name of a cell's files: a readable beginning and the id. Only the id identifies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CellName {
    id: CellId,
    stem: String,
}

impl CellName {
    pub fn id(&self) -> CellId {
        self.id
    }

    /// The file name without its ending: `perplexity__owner-model__tova__256__0123456789abcdef`.
    pub fn stem(&self) -> &str {
        &self.stem
    }

    /// `size` is `None` for the unbounded cache. All but the id is there only to be readable.
    pub fn new(id: CellId, task: &str, model: &str, policy: &str, size: Option<usize>) -> CellName {
        let size = size.map_or("unbounded".to_string(), |size| size.to_string());
        let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '_');
        let [task, model, policy] = [task, model, policy].map(|name| slug(name, is_kept));
        CellName { id, stem: format!("{task}__{model}__{policy}__{size}__{id}") }
    }
}

/// A sample's name as a file name: other characters become dashes, and a digest keeps the names distinct.
pub(super) fn file_name(sample: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '+' | '_') { c } else { '-' };
    let shown: String = sample.chars().take(64).map(plain).collect();
    format!("{shown}-{:08x}", digest(sample) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_file_names() {
        let stem = |task: &str| CellName::new(CellId(7), task, "a/b", "tova+4", Some(8)).stem().to_owned();
        for (task, shown) in [
            ("arc_easy", "arc_easy"),
            ("../../x", "x"),
            ("/etc/passwd", "etc-passwd"),
            (".x", "x"),
            ("a__b", "a_b"),
            ("a:b\\c*?", "a-b-c"),
            ("..", "unnamed"),
            ("\u{e9}\n", "unnamed"),
        ] {
            assert_eq!(stem(task), format!("{shown}__a-b__tova+4__8__0000000000000007"), "{task:?}");
        }
        assert!(stem(&"x".repeat(300)).len() < 100);
    }
}
