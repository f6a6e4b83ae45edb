//! Every score: its word, its meaning and how it ranks entries. Scores are computed nowhere else.
//!
//! Scores that never change are drawn or taken from the key when an entry joins, and are stored beside it as its
//! priority. The others are sums over attention, which the scan provides.

use std::ops::Range;

use super::custom::{CustomScore, Step};
use super::entries::CacheEntries;
use super::formula::{Formula, FormulaError, Pool};
use super::policy::SizedPolicy;
use super::scan::Attention;
use super::settings::{Keyword, Scope, keyword, name_of};
use crate::vector;

/// What ranks the entries of a full cache. The entry with the lowest score is evicted, the oldest of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Score {
    /// The token's position.
    Recency,
    /// Attention that the newest query pays (arXiv 2401.06104, section 4).
    LastAttention,
    /// Attention received since the entry joined, its own row included (arXiv 2306.14048).
    AccumulatedAttention,
    /// The negative L2 norm of the key (arXiv 2406.11430; `KnormPress` in NVIDIA/kvpress).
    KeyNorm,
    /// A number drawn once, when the entry joins.
    Random,
    /// Any other formula.
    Formula(Formula),
    /// What a function computes.
    Custom(CustomScore),
}

/// The scores that have a name.
pub const SCORES: &[Keyword<Score>] = &[
    keyword(Score::Recency, "recency", "evicts the oldest entry (Window, StreamingLLM)"),
    keyword(
        Score::LastAttention,
        "last_attention",
        "evicts the entry to which the newest query attends least (TOVA)",
    ),
    keyword(
        Score::AccumulatedAttention,
        "accumulated_attention",
        "evicts the entry that has received least attention since it was added (H2O)",
    ),
    keyword(Score::KeyNorm, "-key_norm", "evicts the entry whose key has the largest L2 norm"),
    keyword(
        Score::Random,
        "random",
        "evicts by a priority drawn when an entry is added, so that the survivors are a uniform sample",
    ),
];

impl Score {
    /// The score of a name or a formula, pooled over the query heads of a decision.
    ///
    /// # Errors
    /// What is wrong in the formula; `key_norm` alone, which was a name for its negative.
    pub fn new(text: &str, pool: Pool) -> Result<Score, FormulaError> {
        if text.trim() == "key_norm" {
            let message = "`key_norm` alone evicts the smallest norms, and was a name for `-key_norm` until now";
            let hint = "write -key_norm to evict the key with the largest norm, (key_norm) to evict the smallest";
            return Err(FormulaError::of_all(text, message, hint));
        }
        let named = |name: &str| SCORES.iter().find(|score| score.name == name).map(|score| score.value);
        let named = named(text.trim());
        if let Some(score) = named.filter(|_| pool == Pool::Mean) {
            return Ok(score);
        }
        let formula = Formula::new(named.map_or(text, |score| score.formula()), pool)?;
        let score = SCORES.iter().find(|score| score.value.formula() == formula.text());
        Ok(score.map_or(Score::Formula(formula), |score| score.value))
    }

    /// The name, or the formula, as rows have it.
    pub fn name(self) -> &'static str {
        match self {
            // In rows of earlier versions `key_norm` is its negative.
            Score::Formula(formula) if formula.text() == "key_norm" => "(key_norm)",
            Score::Formula(formula) => formula.text(),
            Score::Custom(score) => score.id(),
            _ => name_of(SCORES, self),
        }
    }

    /// Its word in cell ids, which never changes: `key_norm` was the name of its negative when the first cells were measured.
    pub(super) fn identity(self) -> &'static str {
        if self == Score::KeyNorm { "key_norm" } else { self.name() }
    }

    /// What it computes, as a formula; the id of a function.
    pub fn formula(self) -> &'static str {
        match self {
            Score::Recency => "position",
            Score::LastAttention => "attention",
            Score::AccumulatedAttention => "sum(attention)",
            Score::KeyNorm => "-key_norm",
            Score::Random => "random",
            Score::Formula(formula) => formula.text(),
            Score::Custom(score) => score.id(),
        }
    }

    /// Whether it needs the attention of the whole text.
    pub fn knows_the_future(self) -> bool {
        matches!(self, Score::Formula(formula) if formula.knows_the_future())
    }

    /// Whether it draws numbers, which depend on the seed.
    pub fn draws(self) -> bool {
        match self {
            Score::Formula(formula) => formula.draws(),
            _ => self == Score::Random,
        }
    }

    /// Whether a bounded cache can continue where an unbounded one has read the beginning of the text. Others need what that
    /// does not keep.
    pub fn shares_prefix(self) -> bool {
        !matches!(self, Score::KeyNorm | Score::Formula(_))
    }

    /// Whether decisions compare key norms. Norms of like tokens differ in the eighth digit, so keys must be
    /// computed in f64. (Where the least attended entry leaves, it hardly matters which of two nearly equal ones
    /// does.)
    pub fn compares_norms(self) -> bool {
        self == Score::KeyNorm
    }
}

impl CacheEntries {
    /// The priority of an entry under scores that never change; `None` under the others. `norm(kv_head)` is the L2
    /// norm of its key.
    pub(super) fn priority(&self, group: usize, position: u32, norm: impl Fn(usize) -> f64) -> Option<f64> {
        let policy = self.policy?;
        match (policy.score, policy.scope) {
            (Score::KeyNorm, Scope::Head) => Some(-norm(group)),
            (Score::KeyNorm, Scope::Layer) => {
                let kv_heads = self.heads.kv_heads;
                Some(-(0..kv_heads).map(norm).sum::<f64>() / kv_heads as f64)
            }
            (Score::Random, _) => Some(uniform(self.salt, group as u64, u64::from(position))),
            _ => None,
        }
    }

    /// The column of a group to evict: the lowest score among the `candidates` that are `living`, which is 0 for them. `newest`
    /// is scratch space for one row of attention. `None` if every score is NaN.
    pub(super) fn lowest(
        &self,
        policy: SizedPolicy,
        group: usize,
        candidates: &Range<usize>,
        living: &[f32],
        attention: &Attention<'_>,
        newest: &mut [f32],
    ) -> Option<usize> {
        let mask = &living[candidates.clone()];
        let offset = match policy.score {
            Score::Recency => mask.iter().position(|m| *m == 0.0),
            Score::LastAttention => {
                newest[..attention.width].fill(0.0);
                attention.add_to(newest, policy.scope, group);
                vector::masked_argmin(&newest[candidates.clone()], mask)
            }
            Score::AccumulatedAttention => {
                vector::masked_argmin(&self.received[0].sums[group][candidates.clone()], mask)
            }
            Score::KeyNorm => lowest_priority(&self.groups[group].priority[candidates.clone()], mask, SAME_NORM),
            Score::Random => lowest_priority(&self.groups[group].priority[candidates.clone()], mask, 0.0),
            Score::Formula(_) => self.scorer.as_ref()?.lowest(group, candidates.clone(), mask),
            Score::Custom(score) => {
                let scores = self.custom_scores(score, group, living, attention)?;
                lowest_priority(&scores[candidates.clone()], mask, 0.0)
            }
        };
        offset.map(|offset| candidates.start + offset)
    }

    /// The scores of a function, by column: NaN for columns that are not `living`. `None` if it has none.
    pub(super) fn custom_scores(
        &self,
        score: CustomScore,
        group: usize,
        living: &[f32],
        attention: &Attention<'_>,
    ) -> Option<Vec<f64>> {
        let policy = self.policy?;
        let columns: Vec<usize> = (0..living.len()).filter(|column| living[*column] == 0.0).collect();
        let positions: Vec<u32> = columns.iter().map(|column| self.groups[group].positions[*column]).collect();
        let heads = self.heads.of_group(policy.scope, group).flat_map(|head| {
            let (weights, scale) = attention.of_head(head);
            columns.iter().map(move |column| weights[*column] * scale)
        });
        let attention: Vec<f32> = heads.collect();
        let step = Step { layer: self.layer, group, positions: &positions, attention: &attention };
        let mut scores = vec![f64::NAN; living.len()];
        for (column, value) in columns.iter().zip(score.scores(&step)?) {
            scores[*column] = value;
        }
        Some(scores)
    }

    /// The score of one column when a whole prompt is cut at once. `newest` is the attention of the prompt's last
    /// token.
    pub(super) fn score_at_cut(
        &self,
        policy: SizedPolicy,
        group: usize,
        column: usize,
        newest: &[Vec<f32>],
    ) -> f64 {
        match policy.score {
            Score::Recency => column as f64,
            Score::LastAttention | Score::Formula(_) | Score::Custom(_) => f64::from(newest[group][column]),
            Score::AccumulatedAttention => f64::from(self.received[0].sums[group][column]),
            Score::KeyNorm | Score::Random => self.groups[group].priority[column],
        }
    }
}

/// Two key norms closer than this share of themselves count as equal. Equal tokens in equal surroundings have
/// equal norms in exact arithmetic; attention in f32 makes them differ by a few units of the ninth digit.
pub(super) const SAME_NORM: f64 = 2e-8;

/// Index of the lowest unmasked priority, the first of those that differ by no more than the share `same` of
/// themselves.
fn lowest_priority(priority: &[f64], mask: &[f32], same: f64) -> Option<usize> {
    let mut lowest: Option<usize> = None;
    for (i, value) in priority.iter().enumerate() {
        if mask[i] == 0.0 && lowest.is_none_or(|lowest| *value < priority[lowest] - same * priority[lowest].abs())
        {
            lowest = Some(i);
        }
    }
    lowest
}

/// A number in [0, 1) that depends only on the arguments, so that chunking cannot change a draw.
pub(super) fn uniform(salt: u64, group: u64, position: u64) -> f64 {
    let bits = mix(mix(mix(salt) ^ group) ^ position);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// The mixer of SplitMix64 (Steele, Lea, Flood 2014).
pub(super) fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_equal_norms_are_ties() {
        let unmasked = [0.0; 3];
        assert_eq!(lowest_priority(&[-1.0, -(1.0 + 1e-8), -0.5], &unmasked, SAME_NORM), Some(0));
        assert_eq!(lowest_priority(&[-1.0, -(1.0 + 5e-8), -0.5], &unmasked, SAME_NORM), Some(1));
        assert_eq!(lowest_priority(&[-1.0, -(1.0 + 1e-8), -0.5], &unmasked, 0.0), Some(1));
        assert_eq!(lowest_priority(&[-2.0, -1.0, -1.0], &[f32::NEG_INFINITY, 0.0, 0.0], SAME_NORM), Some(1));
    }
}
