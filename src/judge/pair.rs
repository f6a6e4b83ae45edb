//! From the ledger's rows to pairs of stories: each story of a bounded cache beside the one that the unbounded
//! cache wrote from the same seed.
//!
//! Knows the columns that say what a story is, and what the cell of its verdicts is called. What is done with a
//! pair is not known here.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::prompt::PROMPT_VERSION;
use crate::ledger::{CellId, CellName, Only, Row, SCHEMA_VERSION, admits};
use crate::task::request_of;

/// The task whose rows hold stories, and the metric of the row that carries the text.
const STORY: (&str, &str) = ("story", "new_tokens");

/// The task of the verdicts' rows.
pub const JUDGE: &str = "judge";

/// Two stories of one sample that differ.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The row of the bounded cache's story.
    pub(super) judged: Row,
    /// The full cache's text.
    pub(super) full: String,
    /// What both were asked for with.
    pub(super) request: String,
}

impl Pair {
    pub(super) fn text(&self) -> &str {
        self.judged.output.as_deref().unwrap_or_default()
    }
}

/// A cell of stories and the full cache's cell it is compared with: one cell of verdicts.
#[derive(Clone, Debug)]
pub(super) struct Contest {
    pub(super) name: CellName,
    /// In the order of the samples.
    pub(super) pairs: Vec<Pair>,
    /// A row of the judged cell, for what its rows have in common.
    pub(super) head: Row,
    /// Samples whose stories are the same, letter by letter: the cache never evicted before the story's end, or
    /// what it evicted changed nothing.
    pub(super) identical: usize,
    /// Samples that only one of the two cells has.
    pub(super) alone: usize,
}

/// A cell of stories that cannot be judged.
#[derive(Clone, Debug)]
pub(super) struct Unpaired {
    pub(super) what: String,
    pub(super) why: String,
}

/// What a ledger holds for a judge.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    /// By model, policy and size.
    pub(super) contests: Vec<Contest>,
    pub(super) unpaired: Vec<Unpaired>,
    /// Cells of stories in the ledger, whether selected or not.
    pub(super) cells: usize,
}

/// One cell's stories, by sample.
struct Stories<'a> {
    head: &'a Row,
    rows: Vec<&'a Row>,
}

/// Pairs the stories among the rows; `only` selects among the bounded caches' cells.
pub(super) fn pair(rows: &[Row], only: &[Only], judge: &str) -> Pairing {
    let mut cells: BTreeMap<&str, Stories> = BTreeMap::new();
    let stories = rows.iter().filter(|row| row.task == STORY.0 && row.metric == STORY.1 && row.group.is_none());
    for row in stories.filter(|row| row.output.is_some()) {
        cells.entry(&row.cell).or_insert_with(|| Stories { head: row, rows: Vec::new() }).rows.push(row);
    }
    let (full, mut bounded): (Vec<Stories>, Vec<Stories>) =
        cells.into_values().partition(|stories| stories.head.policy == "full");
    let place = |head: &Row| (head.model.clone(), head.policy.clone(), head.cache_size, head.cell.clone());
    bounded.sort_by_key(|stories| place(stories.head));
    let mut pairing = Pairing { cells: full.len() + bounded.len(), ..Pairing::default() };
    for stories in bounded.iter().filter(|stories| only.iter().all(|only| admits(only, stories.head))) {
        match partner(stories, &full).and_then(|full| contest(stories, full, judge)) {
            Ok(contest) => pairing.contests.push(contest),
            Err(why) => {
                let Row { model, policy, cell, .. } = stories.head;
                let size = stories.head.cache_size.map_or(String::new(), |size| format!(" {size}"));
                pairing.unpaired.push(Unpaired { what: format!("{model}, {policy}{size} (cell {cell})"), why });
            }
        }
    }
    pairing
}

/// The full cache's cell to compare with. Positions, the way a prompt is read and the sweep's seed mean nothing to
/// a cache that never evicts, so they decide only where several cells could be meant.
fn partner<'s, 'a>(stories: &Stories<'a>, full: &'s [Stories<'a>]) -> Result<&'s Stories<'a>, String> {
    let head = stories.head;
    let settings = |row: &'a Row| {
        let texts = (&row.dataset, row.length, row.stride, row.bos, &row.tail, &row.asked);
        (&row.model_revision, &row.dtype, row.engine, texts)
    };
    let mut able: Vec<&Stories> = full.iter().filter(|full| settings(full.head) == settings(head)).collect();
    let likeness = |other: &Row| {
        let same = [
            other.prefill == head.prefill,
            other.positions == head.positions,
            other.seed == head.seed,
            other.sweep == head.sweep,
        ];
        same.into_iter().filter(|same| *same).count()
    };
    let most = able.iter().map(|full| likeness(full.head)).max();
    able.retain(|full| Some(likeness(full.head)) == most);
    match able[..] {
        [one] => Ok(one),
        [] => Err("there is no story of policy `full` of the same model and settings to compare with".to_string()),
        _ => {
            let cells: Vec<&str> = able.iter().map(|full| full.head.cell.as_str()).collect();
            Err(format!("it could be compared with more than one cell of policy `full`: {}", cells.join(", ")))
        }
    }
}

fn contest(stories: &Stories, full: &Stories, judge: &str) -> Result<Contest, String> {
    let full_texts: BTreeMap<&str, &str> =
        full.rows.iter().map(|row| (row.sample.as_str(), row.output.as_deref().unwrap_or_default())).collect();
    let mut texts = Sha256::new();
    let (mut pairs, mut identical, mut matched) = (Vec::new(), 0, 0);
    for row in &stories.rows {
        let (text, other) = (row.output.as_deref().unwrap_or_default(), full_texts.get(row.sample.as_str()));
        let Some(other) = other else { continue };
        matched += 1;
        // Lengths keep two texts apart.
        for part in [row.sample.as_str(), text, other] {
            texts.update((part.len() as u64).to_le_bytes());
            texts.update(part);
        }
        if text == *other {
            identical += 1;
        } else {
            let request = request_of(&row.dataset, &row.sample, row.asked.as_deref()).ok_or_else(|| {
                format!("the row of {} does not say what the story was asked for with", row.sample)
            })?;
            pairs.push(Pair { judged: (*row).clone(), full: (*other).to_string(), request });
        }
    }
    let texts: String = texts.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let head = stories.head;
    // Where the judge runs is no part of the meaning, as a device is none: a judge is known by its name.
    let meaning = format!(
        "schema={SCHEMA_VERSION}\ntask={JUDGE}\nprompt={PROMPT_VERSION}\njudge={}\nstory={}\nfull={}\n\
         texts={texts}\n",
        judge.escape_default(),
        head.cell,
        full.head.cell,
    );
    // Of a folder only the last part, as in a sweep's cells.
    let model = if head.model.starts_with(['.', '/']) {
        head.model.rsplit('/').find(|part| !part.is_empty()).unwrap_or(&head.model)
    } else {
        &head.model
    };
    let size = head.cache_size.map(|size| size as usize);
    Ok(Contest {
        name: CellName::new(CellId::of(&meaning), JUDGE, model, &head.policy, size),
        pairs,
        head: head.clone(),
        identical,
        alone: stories.rows.len() + full.rows.len() - 2 * matched,
    })
}
