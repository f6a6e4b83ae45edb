//! Selection: no entry leaves, and each query attends to those with the highest scores among all.

use super::block::{Attention, Vectors};
use super::entries::CacheEntries;
use super::score::rank;

impl CacheEntries {
    /// Masks the `excess` columns of a group that its query does not attend to: of those that are not protected the ones with the lowest
    /// scores, the oldest of equal ones, or whole blocks of them.
    pub(super) fn select(
        &self,
        (group, excess): (usize, usize),
        mask: &mut [f32],
        sources: (&Attention<'_>, &dyn Vectors),
        newest: &mut [f32],
    ) {
        let Some(policy) = self.policy() else { return };
        let entries = &self.groups[group];
        let candidates = entries.candidates(policy, mask.len());
        let first = candidates.start;
        let scores = self.scores_of(group, candidates.clone(), mask, sources, newest);
        let score = |column: usize| scores.at(column - first, entries.positions[column]);
        let living: Vec<usize> = (0..mask.len()).filter(|column| mask[*column] == 0.0).collect();
        let left = match policy.score.block() {
            Some(tokens) => self.blocks(tokens, group, &living, candidates, excess, score),
            None => {
                let free = living.into_iter().filter(|column| candidates.contains(column));
                let mut ranked: Vec<(f64, usize)> = free.map(|column| (score(column), column)).collect();
                if excess < ranked.len() {
                    ranked.select_nth_unstable_by(excess, |a, b| rank(a.0, b.0).then(a.1.cmp(&b.1)));
                }
                ranked.into_iter().take(excess).map(|(_, column)| column).collect()
            }
        };
        left.into_iter().for_each(|column| mask[column] = f32::NEG_INFINITY);
    }
}
