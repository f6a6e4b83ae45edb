//! Who is in one layer's cache: for every decision group the entries, oldest first, with what a policy needs to
//! know of each. Keys and values live elsewhere, in the same order.

use super::policy::{Scope, Score, SizedPolicy};
use super::scan::BlockScan;

/// Query and key-value heads of a layer: `heads` is a multiple of `kv_heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    pub heads: usize,
    pub kv_heads: usize,
}

impl Heads {
    /// Decision groups under a scope.
    pub fn groups(self, scope: Scope) -> usize {
        match scope {
            Scope::Layer => 1,
            Scope::Head => self.kv_heads,
        }
    }

    /// Query heads whose scores a group averages.
    pub fn of_group(self, scope: Scope, group: usize) -> std::ops::Range<usize> {
        let per_group = self.heads / self.groups(scope);
        group * per_group..(group + 1) * per_group
    }

    /// Query heads that share a key-value head.
    pub fn per_kv_head(self) -> usize {
        self.heads / self.kv_heads
    }
}

/// Attention every entry has received, summed over the query heads of its group (a multiple of the mean).
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) scope: Scope,
    /// (groups)(entries)
    pub(super) sums: Vec<Vec<f32>>,
}

/// One decision group's entries, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadGroup {
    /// Token positions.
    pub(super) born: Vec<u32>,
    /// What a score that never changes gave the entry when it joined; empty for the others. In f64: norms of like
    /// tokens differ by less than f32 can tell, and nothing is gained by calling them equal.
    pub(super) priority: Vec<f64>,
}

/// The entries of one layer under one rule.
#[derive(Clone, Debug)]
pub struct CacheEntries {
    pub(super) policy: Option<SizedPolicy>,
    pub(super) heads: Heads,
    pub(super) groups: Vec<HeadGroup>,
    pub(super) received: Vec<Received>,
    /// Entries beyond which one leaves: the policy's size, or no limit while a prompt is read whole.
    pub(super) limit: usize,
    /// The newest row's attention, (groups)(entries): what a prompt that is read whole is cut by.
    pub(super) newest: Vec<Vec<f32>>,
    /// Tokens read so far.
    pub(super) seen: usize,
    /// Places where an unbounded entries remembers its sums, so that a bounded one can start there.
    marks: Vec<usize>,
    remembered: Vec<(usize, Vec<Received>)>,
    /// Seeds the priorities of [`Score::Random`].
    salt: u64,
}

impl CacheEntries {
    /// An unbounded entries from which bounded ones can be forked at the places `marks` (tokens from the start),
    /// for policies that accumulate attention over the scopes `watch`. `salt` tells layers and seeds apart.
    pub fn unbounded(heads: Heads, watch: &[Scope], marks: &[usize], salt: u64) -> CacheEntries {
        let received =
            watch.iter().map(|&scope| Received { scope, sums: vec![Vec::new(); heads.groups(scope)] }).collect();
        CacheEntries {
            policy: None,
            heads,
            groups: vec![HeadGroup::default()],
            received,
            limit: usize::MAX,
            newest: Vec::new(),
            seen: 0,
            marks: marks.to_vec(),
            remembered: Vec::new(),
            salt,
        }
    }

    /// A bounded entries, empty.
    pub fn bounded(heads: Heads, policy: SizedPolicy, salt: u64) -> CacheEntries {
        let watch: &[Scope] = if policy.score == Score::AccumulatedAttention { &[policy.scope] } else { &[] };
        let unbounded = CacheEntries::unbounded(heads, watch, &[], salt);
        unbounded.fork(0, policy).expect("nothing has been read, so nothing can have been forgotten")
    }

    /// A entries for a policy that lets everybody stay until [`cut`](Self::cut): a prompt read in one shot.
    pub fn holding(heads: Heads, policy: SizedPolicy, salt: u64) -> CacheEntries {
        let bounded = CacheEntries::bounded(heads, policy, salt);
        let newest = if policy.score == Score::LastAttention { bounded.groups.len() } else { 0 };
        CacheEntries { limit: usize::MAX, newest: vec![Vec::new(); newest], ..bounded }
    }

    /// Cuts a [`holding`](Self::holding) entries down to its policy's size at once: the protected stay, and of the
    /// others those with the highest scores, the newer of equals; from here on one entry leaves at a time. This is
    /// what the paper's released code does with a prompt. Returns the columns each group keeps, in order:
    /// (groups)(entries); `None` if everybody fits.
    pub fn cut(&mut self) -> Option<Vec<Vec<u32>>> {
        let policy = self.policy?;
        self.limit = policy.size;
        let newest = std::mem::take(&mut self.newest);
        let entries = self.len();
        if entries <= policy.size {
            return None;
        }
        let candidates = policy.keep_first..entries - policy.keep_recent;
        let room = policy.size - policy.keep_first - policy.keep_recent;
        let kept: Vec<Vec<u32>> = (0..self.groups.len())
            .map(|group| {
                let score = |column: usize| match policy.score {
                    Score::Recency => column as f64,
                    Score::LastAttention => f64::from(newest[group][column]),
                    Score::AccumulatedAttention => f64::from(self.received[0].sums[group][column]),
                    Score::KeyNorm | Score::Random => self.groups[group].priority[column],
                };
                let mut ranked: Vec<usize> = candidates.clone().collect();
                // NaN ranks nobody; it shows in the scores.
                ranked.sort_by(|a, b| score(*b).total_cmp(&score(*a)).then(b.cmp(a)));
                ranked.truncate(room);
                let mut kept: Vec<u32> = ranked.into_iter().map(|column| column as u32).collect();
                kept.extend(0..candidates.start as u32);
                kept.extend(candidates.end as u32..entries as u32);
                kept.sort_unstable();
                kept
            })
            .collect();
        self.keep(&kept);
        Some(kept)
    }

    /// Keeps the columns `kept` of every group: (groups)(entries), ascending.
    pub(super) fn keep(&mut self, kept: &[Vec<u32>]) {
        for received in &mut self.received {
            for (sums, kept) in received.sums.iter_mut().zip(kept) {
                keep(sums, kept);
            }
        }
        for (group, kept) in self.groups.iter_mut().zip(kept) {
            keep(&mut group.born, kept);
            if !group.priority.is_empty() {
                keep(&mut group.priority, kept);
            }
        }
    }

    /// A bounded entries that goes on after the first `len` tokens of this unbounded one. `None` if the policy needs
    /// sums that were not watched, or not remembered at `len`, if it needs the norms of keys (which an unbounded
    /// reading does not compute, see [`SizedPolicy::compares_norms`]), or if `len` tokens would not fit its size.
    pub fn fork(&self, len: usize, policy: SizedPolicy) -> Option<CacheEntries> {
        if self.policy.is_some() || len > policy.size || len > self.seen || len > 0 && policy.compares_norms() {
            return None;
        }
        let received = if policy.score == Score::AccumulatedAttention {
            let at = if len == self.seen {
                &self.received
            } else {
                &self.remembered.iter().find(|(at, _)| *at == len)?.1
            };
            vec![at.iter().find(|received| received.scope == policy.scope)?.clone()]
        } else {
            Vec::new()
        };
        let mut fork = CacheEntries {
            policy: Some(policy),
            heads: self.heads,
            groups: vec![HeadGroup::default(); self.heads.groups(policy.scope)],
            received,
            limit: policy.size,
            newest: Vec::new(),
            seen: len,
            marks: Vec::new(),
            remembered: Vec::new(),
            salt: self.salt,
        };
        for group in 0..fork.groups.len() {
            let priority = (0..len as u32).map_while(|position| fork.priority(group, position, |_| 0.0));
            fork.groups[group] = HeadGroup { priority: priority.collect(), born: (0..len as u32).collect() };
        }
        Some(fork)
    }

    /// Tokens read so far.
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// Entries beyond which one leaves.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Entries per key-value head.
    pub fn len(&self) -> usize {
        self.groups[0].born.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Token positions of the survivors: (groups)(entries), oldest first. One group when every head holds the same.
    pub fn survivors(&self) -> Vec<&[u32]> {
        self.groups.iter().map(|group| group.born.as_slice()).collect()
    }

    /// The group whose entries a key-value head holds.
    pub fn group_of(&self, kv_head: usize) -> usize {
        if self.groups.len() == 1 { 0 } else { kv_head }
    }

    /// Starts a block of `rows` tokens; `norm(kv_head, row)` is the L2 norm of a new key before rotation.
    pub fn begin(&mut self, rows: usize, norm: impl Fn(usize, usize) -> f64) -> BlockScan<'_> {
        if self.marks.contains(&self.seen) {
            self.remembered.push((self.seen, self.received.clone()));
        }
        BlockScan::new(self, rows, norm)
    }

    /// The fixed score of an entry under [`Score::KeyNorm`] and [`Score::Random`]: the lowest leaves.
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
}

/// Keeps the entries at the ascending indices `kept`.
fn keep<T: Copy>(values: &mut Vec<T>, kept: &[u32]) {
    for (to, &from) in kept.iter().enumerate() {
        values[to] = values[from as usize];
    }
    values.truncate(kept.len());
}

/// A number in [0, 1) that depends on nothing but its arguments, so that chunking cannot change a draw.
/// The mixer is SplitMix64's (Steele, Lea, Flood 2014).
fn uniform(salt: u64, group: u64, position: u64) -> f64 {
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let bits = mix(mix(mix(salt) ^ group) ^ position);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
