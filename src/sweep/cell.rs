//! A cell: one experiment, named by what it means.
//!
//! The id of a cell is a hash of a canonical text of its meaning ([`Cell::canonical_text`]), so equal experiments
//! share a result file whatever the sweep called them, and different ones never do. A display name, a device, a
//! date or a commit is no part of the meaning. Once published, an id must not change silently: a test pins one.

use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::model::ModelSpec;
use crate::eviction::{CacheRule, Policy, Positions, Score};
use crate::lm::source::ModelSource;
use crate::task::TaskSpec;

/// Version of the engine, bumped when numbers may change; part of every cell id.
pub const ENGINE_VERSION: u32 = 2;

/// Version of the result rows' schema (`results::Row`), bumped when a column is added, removed or changes its
/// meaning; part of every cell id.
pub const SCHEMA_VERSION: u32 = 4;

/// One experiment: one model under one cache rule doing one task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    pub model: ModelSpec,
    /// The policy as the sweep calls it: `full`, `truncate`, a preset, or a name under `define:`.
    pub policy: String,
    pub rule: CacheRule,
    pub positions: Positions,
    pub task: TaskSpec,
    /// Only a random score, or writing that draws, uses it.
    pub seed: u64,
}

/// Content id of a cell: the first 64 bits of the SHA-256 of its canonical text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellId(u64);

impl CellId {
    fn of(meaning: &str) -> CellId {
        let digest: [u8; 32] = Sha256::digest(meaning).into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        CellId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What a cell's files are called: a readable beginning and the id. Only the id identifies.
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

    /// The name of a cell that no sweep describes, such as what a judge says of another cell. The id is the hash of
    /// `meaning`, which must say all that can change a number of the cell; the rest only makes the name readable.
    pub fn derived(task: &str, model: &str, policy: &str, size: Option<usize>, meaning: &str) -> CellName {
        let id = CellId::of(meaning);
        CellName { id, stem: stem(task, model, policy, size, id) }
    }
}

impl Cell {
    /// Entries per layer and key-value head; `None` for the unbounded cache.
    pub fn size(&self) -> Option<usize> {
        match self.rule {
            CacheRule::Unbounded => None,
            CacheRule::Truncate { size } | CacheRule::Evict { size, .. } => Some(size),
        }
    }

    /// The policy as a sweep would write it: `tova`, or `tova@squeezed` where keys move.
    pub fn label(&self) -> String {
        match self.positions {
            Positions::Absolute => self.policy.clone(),
            moving => format!("{}@{}", self.policy, moving.name()),
        }
    }

    /// Whether the seed can change a number of this cell.
    pub fn uses_seed(&self) -> bool {
        let draws = self.task.style().is_some_and(crate::task::Style::draws);
        draws || matches!(self.rule, CacheRule::Evict { policy: Policy { score: Score::Random, .. }, .. })
    }

    /// The meaning of the cell as `key=value` lines, in a fixed order, each ended by a newline. `model_revision` is
    /// the hub's commit or a digest of the checkpoint's files, `data_digest` a digest of the texts; of a timing it names
    /// the machine, which is no part of any other meaning.
    ///
    /// ```text
    /// schema=3
    /// engine=2
    /// model=<revision>
    /// dtype=auto | f32 | f16 | bf16
    /// rule=unbounded | truncate size=<k> | evict score=... scope=... keep_first=... keep_recent=... size=<k>
    /// positions=absolute | slot | squeezed
    /// task=perplexity | retention | squality | qasper | story | needle | timing
    /// length=<tokens>                   and the other settings of the task, as its `Display` gives them
    /// ...
    /// data=<digest>
    /// seed=<n>                          only where the score or the writing is random
    /// ```
    pub fn canonical_text(&self, model_revision: &str, data_digest: &str) -> String {
        let mut text = format!("schema={SCHEMA_VERSION}\nengine={ENGINE_VERSION}\n");
        let rule = match self.rule {
            CacheRule::Unbounded => "unbounded".to_string(),
            CacheRule::Truncate { size } => format!("truncate size={size}"),
            CacheRule::Evict { policy, size } => format!("evict {policy} size={size}"),
        };
        // A line break inside a value would let two meanings share one text.
        let (model, data) = (model_revision.escape_default(), data_digest.escape_default());
        let lines = [
            format!("model={model}\n"),
            format!("dtype={}\n", self.model.dtype.name()),
            format!("rule={rule}\n"),
            format!("positions={}\n", self.positions.name()),
            self.task.to_string(),
            format!("data={data}\n"),
        ];
        text.extend(lines);
        if self.uses_seed() {
            let _ = writeln!(text, "seed={}", self.seed);
        }
        text
    }

    /// The content id.
    pub fn id(&self, model_revision: &str, data_digest: &str) -> CellId {
        CellId::of(&self.canonical_text(model_revision, data_digest))
    }

    /// The names of the cell's files.
    pub fn name(&self, id: CellId) -> CellName {
        let source = self.model.source.to_string();
        // Of a folder only the last part: the path to it says where, not what.
        let model = match &self.model.source {
            ModelSource::Folder(path) => path.rsplit('/').find(|part| !part.is_empty()),
            _ => None,
        };
        CellName { id, stem: stem(self.task.name(), model.unwrap_or(&source), &self.label(), self.size(), id) }
    }
}

fn stem(task: &str, model: &str, policy: &str, size: Option<usize>, id: CellId) -> String {
    let size = size.map_or("unbounded".to_string(), |size| size.to_string());
    format!("{task}__{}__{}__{size}__{id}", slug(model), slug(policy))
}

/// A name as a safe part of a file name: ASCII letters, digits, `.`, `+` and single `-`, at most 48 of them.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || matches!(c, '.' | '+') { c } else { '-' };
        if c != '-' || !slug.ends_with('-') {
            slug.push(c);
        }
    }
    slug.truncate(48);
    let trimmed = slug.trim_matches(['-', '.']);
    if trimmed.is_empty() { "unnamed".to_string() } else { trimmed.to_string() }
}
