//! Pairs of stories from the ledger's rows: each story of a bounded cache with the full cache's story of the same seed.
//!
//! Knows which columns say what a story is, and names the cell of its verdicts.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::prompt::PROMPT_VERSION;
use crate::ledger::{CellId, CellName, Only, Row, SCHEMA_VERSION, admits, passes};
use crate::task::request_of;

/// The task whose rows hold stories, and the metric of the row that carries the text.
const STORY: (&str, &str) = ("story", "new_tokens");

pub const JUDGE: &str = "judge";

/// Two stories of one sample.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The row of the bounded cache's story.
    pub(super) bounded: Row,
    pub(super) full: String,
    /// The request that both answer; empty where they are the same text.
    pub(super) request: String,
}

impl Pair {
    /// Whether nobody needs to be asked: the bounded cache never evicted, or what it evicted changed nothing.
    pub(super) fn is_identical(&self) -> bool {
        story(&self.bounded) == self.full
    }
}

pub(super) fn story(row: &Row) -> &str {
    row.output.as_deref().unwrap_or_default()
}

/// A bounded cache's cell of stories with the full cache's cell: one cell of verdicts.
#[derive(Clone, Debug)]
pub(super) struct PairedCell {
    pub(super) name: CellName,
    /// Pairs in the order of the samples.
    pub(super) pairs: Vec<Pair>,
    /// A row of the bounded cache's cell, for what its rows have in common.
    pub(super) head: Row,
    /// Samples that only one of the two cells has.
    pub(super) unmatched: usize,
}

/// The stories of a ledger, paired for a judge.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    /// Cells sorted by model, policy and size.
    pub(super) cells: Vec<PairedCell>,
    /// Reasons why other cells cannot be judged.
    pub(super) unpaired: Vec<String>,
}

/// The stories of one cell, at least one.
type Stories<'a> = Vec<&'a Row>;

/// Pairs the stories among the rows; `only` selects among the bounded caches' cells.
pub(super) fn pair(rows: &[Row], only: &[Only], judge: &str) -> Pairing {
    let mut cells: BTreeMap<&str, Stories> = BTreeMap::new();
    let stories = rows.iter().filter(|row| row.task == STORY.0 && row.metric == STORY.1 && row.slice.is_none());
    for row in stories.filter(|row| row.output.is_some()) {
        cells.entry(&row.cell).or_default().push(row);
    }
    let (full, mut bounded): (Vec<Stories>, Vec<Stories>) =
        cells.into_values().partition(|stories| stories[0].policy == "full");
    bounded.sort_by_key(|stories| {
        let head = stories[0];
        (&head.model, &head.policy, head.cache_size, &head.cell)
    });
    let mut pairing = Pairing::default();
    for stories in bounded.iter().filter(|stories| passes(only, |only| admits(only, stories[0]))) {
        match counterpart(stories[0], &full).and_then(|full| paired_cell(stories, full, judge)) {
            Ok(cell) => pairing.cells.push(cell),
            Err(why) => {
                let Row { model, policy, cell, .. } = stories[0];
                let size = stories[0].size_text().map_or(String::new(), |size| format!(" {size}"));
                pairing.unpaired.push(format!("{model}, {policy}{size} (cell {cell}) is not judged: {why}"));
            }
        }
    }
    pairing
}

/// The full cache's cell to compare with. A cache that never evicts does not depend on positions, prefill and the sweep's
/// seed.
fn counterpart<'s, 'a>(head: &'a Row, full: &'s [Stories<'a>]) -> Result<&'s [&'a Row], String> {
    let settings = |row: &'a Row| {
        let texts = (&row.dataset, row.length, row.stride, row.bos, &row.tail, &row.generation);
        (&row.model_revision, &row.dtype, row.engine, texts)
    };
    let candidates: Vec<&Stories> = full.iter().filter(|full| settings(full[0]) == settings(head)).collect();
    match candidates[..] {
        [one] => Ok(one),
        [] => Err("there is no story of policy `full` with the same model and settings to compare with".into()),
        _ => {
            let cells: Vec<&str> = candidates.iter().map(|full| full[0].cell.as_str()).collect();
            Err(format!("it could be compared with more than one cell of policy `full`: {}", cells.join(", ")))
        }
    }
}

fn paired_cell(stories: &[&Row], full: &[&Row], judge: &str) -> Result<PairedCell, String> {
    let full_stories: BTreeMap<&str, &str> = full.iter().map(|row| (row.sample.as_str(), story(row))).collect();
    let mut texts = Sha256::new();
    let mut pairs = Vec::new();
    for &row in stories {
        let Some(&full) = full_stories.get(row.sample.as_str()) else { continue };
        // Lengths mark where one text ends and the next begins.
        for part in [row.sample.as_str(), story(row), full] {
            texts.update((part.len() as u64).to_le_bytes());
            texts.update(part);
        }
        let mut pair = Pair { bounded: row.clone(), full: full.to_string(), request: String::new() };
        if !pair.is_identical() {
            pair.request = request_of(&row.dataset, &row.sample, row.generation.as_deref())
                .ok_or_else(|| format!("the row of {} does not hold the request for the story", row.sample))?;
        }
        pairs.push(pair);
    }
    let texts: String = texts.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let head = stories[0];
    // A judge is known by its name; where it runs is not part of the identity, as a device is not.
    let meaning = format!(
        "schema={SCHEMA_VERSION}\ntask={JUDGE}\nprompt={PROMPT_VERSION}\njudge={}\nstory={}\nfull={}\n\
         texts={texts}\n",
        judge.escape_default(),
        head.cell,
        full[0].cell,
    );
    // Of a folder only the last part, as in the names of other cells.
    let folder = head.model.rsplit('/').find(|part| !part.is_empty() && head.model.starts_with(['.', '/']));
    let size = head.cache_size.map(|size| size as usize);
    let share = head.size_text().filter(|_| head.cache_share.is_some() || head.cache_memory.is_some());
    let policy = share.map_or(head.policy.to_string(), |share| format!("{} {share}", head.policy));
    Ok(PairedCell {
        name: CellName::new(CellId::of(&meaning), JUDGE, folder.unwrap_or(&head.model), &policy, size),
        unmatched: stories.len() + full.len() - 2 * pairs.len(),
        pairs,
        head: head.clone(),
    })
}
