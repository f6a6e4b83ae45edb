//! Decisions that a device takes: what its scan has to know of a cache's entries, and what comes back.

use super::entries::{CacheEntries, Eviction, HeadGroup, Kind};
use super::formula::LoweredScore;
use super::formula::lowered::lower;
use super::sized_policy::SizedPolicy;

/// How a bounded cache is scanned.
#[derive(Clone, Debug, Default)]
pub struct ScanRule {
    /// Beyond this many entries one is evicted per token.
    pub limit: usize,
    pub keep_first: usize,
    pub keep_recent: usize,
    pub groups: usize,
    pub score: LoweredScore,
    /// Priorities that differ by less than this share of themselves are equal.
    pub same_priority: f64,
    pub salt: u64,
    /// The scores of the last row are wanted.
    pub wants_scores: bool,
    /// What is kept is the attention that entries have received, which stays with them.
    pub keeps_received: bool,
}

/// What a device knows of a cache's entries, oldest first: (groups)(entries) each, and empty where the policy does not have it.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    pub positions: Vec<Vec<u32>>,
    pub priorities: Vec<Vec<f64>>,
    /// Attention received, for each of the scopes that the cache keeps it for.
    pub received: Vec<Vec<Vec<f32>>>,
}

/// Why a device does not compute attention: of policies that divide entries among heads, and of scores that kernels do not know.
pub const UNEQUAL_HEADS: &str = "heads hold unequal numbers of entries";
pub const UNKNOWN_SCORE: &str = "kernels do not know the score";

/// Says what of a policy, its score aside, a device does not do; `None` if it does all.
fn leaves_to_host(policy: SizedPolicy) -> Option<&'static str> {
    if policy.schedule.every() != Some(1) {
        Some("several entries leave at once")
    } else if policy.keeps_prompt() {
        Some("the prompt is protected")
    } else if policy.budget.is_by_head() {
        Some(UNEQUAL_HEADS)
    } else {
        None
    }
}

impl CacheEntries {
    /// How a device scans it; `None` for a cache from which no entry leaves, and where it cannot: several leave at once.
    pub fn scan_rule(&self) -> Option<ScanRule> {
        let Some(bounded) = self.as_bounded() else {
            let own = ScanRule { limit: usize::MAX, groups: 1, ..ScanRule::default() };
            return (self.window.is_some() && !self.keeps_all()).then_some(own);
        };
        let policy = bounded.policy;
        if leaves_to_host(policy).is_some() {
            return None;
        }
        let [keep_first, keep_recent] = policy.protected();
        Some(ScanRule {
            limit: bounded.limits[0],
            keep_first,
            keep_recent,
            groups: self.groups.len(),
            score: lower(policy.score, policy.of_cache, self.heads, policy.scope)?,
            same_priority: policy.score.same_priority(),
            salt: bounded.salt,
            wants_scores: bounded.awaits_cut && !bounded.newest.is_empty(),
            keeps_received: policy.score.sums_attention(),
        })
    }

    /// Whether a device can scan it.
    pub fn can_be_scanned_on_device(&self) -> bool {
        self.why_not_on_device().is_none()
    }

    /// Says why a device cannot scan it; `None` where it can.
    pub fn why_not_on_device(&self) -> Option<&'static str> {
        let bounded = match &self.kind {
            Kind::Unbounded(unbounded) if unbounded.recorded.is_some() => {
                return Some("its attention is recorded");
            }
            Kind::Unbounded(unbounded) if !unbounded.cuts.is_empty() => return Some("scores are kept for a cut"),
            Kind::Unbounded(_) => return None,
            Kind::Bounded(bounded) => bounded,
        };
        // Of a prompt that will be cut, what a formula remembers would have to be cut on the device too; and where a window removes
        // entries, what the prompt is cut by is not in the order of those that are left.
        if let Some(reason) = leaves_to_host(bounded.policy) {
            Some(reason)
        } else if bounded.policy.score.reads_future() {
            Some("the score reads the future")
        } else if self.scan_rule().is_none() {
            Some(UNKNOWN_SCORE)
        } else if bounded.awaits_cut && (self.window.is_some() || bounded.scorer.is_some()) {
            Some("a prompt is cut by what the score remembers")
        } else {
            None
        }
    }

    /// Entries of each group after `rows` more tokens. Every group of a full cache loses one for each that joins.
    pub fn len_after(&self, rows: usize) -> usize {
        let window = if self.keeps_all() { usize::MAX } else { self.window.unwrap_or(usize::MAX) };
        (self.len(0) + rows).min(self.limit(0)).min(window)
    }

    /// What is known of the entries, as a device gets it.
    pub fn scanned(&self) -> Scanned {
        let of_groups = |group: &HeadGroup| (!group.priority.is_empty()).then(|| group.priority.clone());
        Scanned {
            positions: self.groups.iter().map(|group| group.positions.clone()).collect(),
            priorities: self.groups.iter().filter_map(of_groups).collect(),
            received: self.received.iter().map(|received| received.sums.clone()).collect(),
        }
    }

    /// Priorities of the next `rows` tokens, (rows, groups), if the score is one. `norms` are those of their keys
    /// (rows, kv_heads).
    pub fn new_priorities(&self, rows: usize, norms: Option<&[f64]>) -> Option<Vec<f64>> {
        let (groups, kv_heads) = (self.groups.len(), self.heads.kv_heads);
        let norm = |row: usize, kv_head: usize| norms.map_or(0.0, |norms| norms[row * kv_heads + kv_head]);
        let of_row = |at: usize| {
            let (row, group) = (at / groups, at % groups);
            self.priority(group, (self.seen + row) as u32, |kv_head| norm(row, kv_head))
        };
        (0..rows * groups).map(of_row).collect()
    }

    /// Where an unbounded cache has to save what entries have received before it reads on: the first such point within the next
    /// `rows` tokens, from its start.
    pub fn next_fork_point(&self, rows: usize) -> Option<usize> {
        let ahead = self.fork_points().iter().filter_map(|point| point.checked_sub(self.seen));
        ahead.filter(|ahead| (1..rows).contains(ahead)).min()
    }

    /// Whether forks will start here, for which it has to be saved.
    pub fn is_fork_point(&self) -> bool {
        self.fork_points().contains(&self.seen)
    }

    /// Saves what entries have received, where forks will start.
    pub fn save_for_forks(&mut self) {
        if let Kind::Unbounded(unbounded) = &mut self.kind
            && unbounded.fork_points.contains(&self.seen)
        {
            unbounded.saved.push((self.seen, self.received.clone()));
        }
    }

    fn fork_points(&self) -> &[usize] {
        self.as_unbounded().map_or(&[], |unbounded| &unbounded.fork_points)
    }

    /// Stops keeping what entries have received after the last point where forks start. Forks that need it can then not start later.
    pub fn forget_after_forks(&mut self) {
        if self.fork_points().iter().max().is_some_and(|last| *last <= self.seen) {
            self.received.clear();
        }
    }

    /// Groups for which received attention is kept, for each scope.
    pub fn received_groups(&self) -> impl Iterator<Item = usize> {
        self.received.iter().map(|received| received.sums.len())
    }

    /// Adds `rows` tokens that a device reads. Of a cache from which entries leave only their number is right until
    /// [`take_scanned`](Self::take_scanned).
    pub fn scan_on_device(&mut self, rows: usize) {
        let held = self.len_after(rows);
        let next = self.seen as u32..(self.seen + rows) as u32;
        let has_priorities = self.priority(0, 0, |_| 0.0).is_some();
        for HeadGroup { positions, priority } in &mut self.groups {
            positions.extend(next.clone());
            positions.truncate(held);
            priority.resize(if has_priorities { held } else { 0 }, 0.0);
        }
        self.received.iter_mut().flat_map(|received| &mut received.sums).for_each(|sums| sums.resize(held, 0.0));
        self.seen += rows;
    }

    /// Takes what a device has decided.
    pub fn take_scanned(&mut self, decided: Scanned) {
        let Scanned { positions, priorities, received } = decided;
        for (group, positions) in self.groups.iter_mut().zip(positions) {
            group.positions = positions;
        }
        for (group, priority) in self.groups.iter_mut().zip(priorities) {
            group.priority = priority;
        }
        for (own, sums) in self.received.iter_mut().zip(received) {
            own.sums = sums;
        }
    }

    /// The position of the first entry, or of the next token.
    pub fn first_position(&self) -> usize {
        self.groups[0].positions.first().map_or(self.seen, |position| *position as usize)
    }

    /// Adds the victims of `rows` tokens, of which the first is `seen` tokens after the start, to a log: (rows, groups), as
    /// `scan` leaves them.
    pub fn log_victims(log: &mut Vec<Eviction>, seen: usize, groups: usize, victims: &[i32]) {
        for (row, victims) in victims.chunks_exact(groups).enumerate() {
            let step = (seen + row) as u32;
            let groups = || (0..).zip(victims);
            // What the window passed was seen for the last time one step before.
            let passed = groups().filter(|(_, victim)| **victim < -1);
            log.extend(passed.map(|(group, victim)| Eviction {
                step: step - 1,
                group,
                victim: (-2 - victim) as u32,
            }));
            let evicted = groups().filter(|(_, victim)| **victim >= 0);
            log.extend(evicted.map(|(group, victim)| Eviction { step, group, victim: *victim as u32 }));
        }
    }
}
