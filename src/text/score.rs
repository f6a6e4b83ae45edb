//! A text's NLLs, and which entries survive it.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::TextModel;
use crate::eviction::Eviction;
use crate::lm::{MemoryPlan, ReadStats};
use crate::task::{CHUNK, Piece, pieces};

/// What reading one text gives.
#[derive(Default)]
pub struct Scored {
    /// Of every token after the first; `None` if it is the first of a piece, which nothing predicts.
    pub nll: Vec<Option<f32>>,
    /// Positions of the tokens that survive the last: (layers)(groups)(entries)
    pub survivors: Vec<Vec<Vec<u32>>>,
    /// (layers)(evictions), where they are asked for.
    pub evictions: Vec<Vec<Eviction>>,
    pub seconds: f64,
    pub read: ReadStats,
    pub cache_bytes: u64,
}

impl TextModel {
    /// Reads tokens, at most `chunk` at a time, under a plan, or in pieces of `truncated` tokens, each with an empty memory.
    /// Survivors are then those of the last piece.
    ///
    /// # Errors
    /// A token outside the vocabulary, a text that is too long for the model, or an interruption.
    pub fn score(
        &self,
        tokens: &[u32],
        plan: &MemoryPlan<'_>,
        truncated: Option<usize>,
        chunk: usize,
    ) -> Result<Scored> {
        ensure!(!tokens.is_empty(), "there is no token to read");
        let bos = truncated.is_some() && self.begin_with_bos(tokens);
        let started = Instant::now();
        let mut scored = Scored::default();
        for (index, piece) in pieces(tokens, bos, truncated.unwrap_or(tokens.len()).max(2)).enumerate() {
            if index > 0 && !bos {
                scored.nll.push(None);
            }
            self.read_piece(&piece, bos, plan, chunk, &mut scored)?;
        }
        scored.seconds = started.elapsed().as_secs_f64();
        Ok(scored)
    }

    /// Reads a piece with an empty memory.
    fn read_piece(
        &self,
        Piece { tokens, start: offset }: &Piece,
        bos: bool,
        plan: &MemoryPlan<'_>,
        chunk: usize,
        scored: &mut Scored,
    ) -> Result<()> {
        let model = &self.model;
        let knows = plan.policy.filter(|policy| policy.score.reads_future());
        let future = knows.map(|policy| model.record_attention(tokens, policy.scope)).transpose()?;
        let plan = MemoryPlan { text: tokens.len(), future: future.as_deref(), ..*plan };
        let mut memory = model.new_memory(&plan);
        for start in (0..tokens.len()).step_by(chunk.max(1)) {
            let end = start.saturating_add(chunk).min(tokens.len());
            let states = model.read(&tokens[start..end], &mut memory)?;
            let targets = &tokens[start + 1..(end + 1).min(tokens.len())];
            if !targets.is_empty() {
                let nll = model.nll(&states.narrow(0, 0, targets.len())?, targets)?;
                scored.nll.extend(nll.into_iter().map(Some));
            }
            if plan.log {
                let log = memory.take_log();
                scored.evictions.resize(log.len(), Vec::new());
                scored.evictions.iter_mut().zip(log).for_each(|(all, new)| all.extend(new));
            }
        }
        let in_text = |&position: &u32| if bos && position == 0 { 0 } else { position + *offset as u32 };
        let shifted = |born: &&[u32]| born.iter().map(in_text).collect();
        scored.survivors = memory.survivors().iter().map(|groups| groups.iter().map(shifted).collect()).collect();
        scored.read = memory.stats();
        scored.cache_bytes = scored.cache_bytes.max(memory.bytes());
        Ok(())
    }
}

impl Scored {
    /// Tokens read at a time, unless somebody asks for other numbers; results do not depend on it.
    pub const CHUNK: usize = CHUNK;

    /// Every eviction as (step, layer, head, position), layer by layer. The head is 0 where a layer decides as one.
    pub fn eviction_rows(&self) -> impl Iterator<Item = [u32; 4]> {
        let layers = (0..).zip(&self.evictions);
        layers.flat_map(|(layer, log)| log.iter().map(move |one| [one.step, layer, one.group, one.victim]))
    }
}
