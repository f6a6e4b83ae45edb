//! Decisions that a device takes: what its scan has to know of a cache's entries, and what comes back.

use super::entries::{Bounded, CacheEntries, Eviction, HeadGroup, Kind, Received};
use super::formula::LoweredScore;
use super::formula::lowered::lower;
use super::method::Method;
use super::settings::Scope;
use super::sized_policy::SizedPolicy;

/// What a device has to know of a row to decide what leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decisions {
    /// Attention of all rows up to it, without what has left.
    #[default]
    ByRows,
    /// Nothing of attention.
    WithoutAttention,
    /// The attention of the row, by which one entry leaves.
    ByNewestRow,
}

/// How a bounded cache is scanned, or a prompt that its policy will cut.
#[derive(Clone, Debug, Default)]
pub struct ScanRule {
    /// Beyond this many entries `burst` are evicted at once.
    pub limit: usize,
    pub burst: usize,
    /// Whether it awaits the cut: nothing leaves, so that attention is computed as that of a cache without a bound.
    pub awaits_cut: bool,
    pub decisions: Decisions,
    pub keep_first: usize,
    pub keep_recent: usize,
    pub groups: usize,
    pub score: LoweredScore,
    /// Priorities that differ by less than this share of themselves are equal.
    pub same_priority: f64,
    pub salt: u64,
    /// What is kept is the attention that entries have received, which stays with them.
    pub keeps_received: bool,
}

/// What a device knows of a cache's entries, oldest first: (groups)(entries) each, and empty where the policy does not have it.
#[derive(Clone, Debug, Default)]
pub struct Scanned {
    pub positions: Vec<Vec<u32>>,
    pub priorities: Vec<Vec<f64>>,
    /// Attention received, for each of the scopes that the cache keeps it for, and of each policy that will cut it.
    pub received: Vec<Vec<Vec<f32>>>,
    /// Scores at the last row of each policy that will cut it, (groups)(entries); nothing of those that are known otherwise.
    pub newest: Vec<Vec<Vec<f32>>>,
}

const WINDOW_AND_CUT: &str = "a window takes entries from a prompt that awaits its cut";

/// Says what of a policy, its score aside, a device does not do; `None` if it does all. Heads may hold different numbers of entries as long
/// as none leaves.
fn leaves_to_host(policy: SizedPolicy) -> Option<&'static str> {
    if policy.selects() {
        Some("each query selects entries")
    } else if policy.scope == Scope::Model {
        Some("all layers decide together")
    } else if policy.keeps_prompt() {
        Some("the prompt is protected")
    } else if policy.budget.is_by_head() && policy.schedule.every().is_some() {
        Some("heads hold unequal numbers of entries")
    } else {
        None
    }
}

impl CacheEntries {
    /// How a device scans it; `None` for a cache from which no entry leaves, and where it cannot.
    pub fn scan_rule(&self) -> Option<ScanRule> {
        let Some(bounded) = self.as_bounded() else {
            let (limit, decisions) = (usize::MAX, Decisions::WithoutAttention);
            let own = ScanRule { limit, decisions, burst: 1, groups: 1, ..ScanRule::default() };
            return (self.window.is_some() && !self.keeps_all()).then_some(own);
        };
        let policy = bounded.policy;
        if leaves_to_host(policy).is_some() || self.was_cut_for_good() || policy.budget.divides().is_some() {
            return None;
        }
        let [keep_first, keep_recent] = policy.protected();
        let (score, burst) = (lower(policy.score, policy.of_cache, self.heads, policy.scope)?, self.burst());
        let is_newest = policy.score.method() == Method::NewestAttention && burst == 1 && self.window.is_none();
        Some(ScanRule {
            limit: bounded.limits[0],
            burst,
            decisions: match score.reads_attention() {
                false => Decisions::WithoutAttention,
                true if is_newest => Decisions::ByNewestRow,
                true => Decisions::ByRows,
            },
            awaits_cut: bounded.awaits_cut,
            keep_first,
            keep_recent,
            groups: self.groups.len(),
            score,
            same_priority: policy.score.same_priority(),
            salt: bounded.salt,
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
            Kind::Unbounded(unbounded) => {
                // What the window has passed is masked, where scores would have to leave it out.
                let is_windowed = self.window.is_some() && !unbounded.cuts.is_empty();
                let of_cuts = || unbounded.cuts.iter().find_map(CacheEntries::why_not_on_device);
                return is_windowed.then_some(WINDOW_AND_CUT).or_else(of_cuts);
            }
            Kind::Bounded(bounded) => bounded,
        };
        if let Some(reason) = leaves_to_host(bounded.policy) {
            Some(reason)
        } else if bounded.policy.score.reads_future() {
            Some("the score reads the future")
        } else if self.scan_rule().is_none() && !self.was_cut_for_good() && !self.is_scored_at_cut() {
            Some("kernels do not know the score")
        } else if bounded.awaits_cut && self.window.is_some() {
            Some(WINDOW_AND_CUT)
        } else {
            None
        }
    }

    /// Whether its prompt was cut, after which nothing leaves.
    fn was_cut_for_good(&self) -> bool {
        self.limit(0) == usize::MAX && self.as_bounded().is_some_and(|bounded| !bounded.awaits_cut)
    }

    /// Whether kernels do not know its score, and the host computes it from the last rows when the prompt is cut.
    pub fn is_scored_at_cut(&self) -> bool {
        self.as_bounded().is_some_and(|bounded| {
            let is_computed = bounded.policy.score.method() != Method::NewestAttention;
            let is_last = bounded.policy.schedule.every().is_none();
            bounded.last_rows.is_some() && is_computed && is_last && self.scan_rule().is_none()
        })
    }

    /// Leaves out what computes scores on the host, where kernels know them.
    #[must_use]
    pub fn scored_on_device(mut self) -> CacheEntries {
        let drop_scorers = |entries: &mut CacheEntries| {
            if !entries.is_scored_at_cut()
                && let Some(bounded) = entries.as_bounded_mut()
            {
                (bounded.scorer, bounded.last_rows) = (None, None);
            }
        };
        drop_scorers(&mut self);
        self.cuts_mut().for_each(drop_scorers);
        self
    }

    fn cuts_mut(&mut self) -> impl Iterator<Item = &mut CacheEntries> {
        let cuts = if let Kind::Unbounded(unbounded) = &mut self.kind { &mut unbounded.cuts[..] } else { &mut [] };
        cuts.iter_mut()
    }

    /// Itself, if its policy will cut the prompt, or the caches whose policies will.
    fn awaiting(&self) -> impl Iterator<Item = &CacheEntries> {
        std::iter::once(self).filter(|own| own.awaits_cut()).chain(self.cuts())
    }

    /// How a device scans a prompt for each policy that will cut it; nothing of those whose scores are sums or known to the host.
    pub fn cut_rules(&self) -> Vec<Option<ScanRule>> {
        let is_scanned =
            |policy: &SizedPolicy| matches!(policy.score.method(), Method::NewestAttention | Method::Instructions);
        self.awaiting().map(|cut| cut.policy().filter(is_scanned).and_then(|_| cut.scan_rule())).collect()
    }

    /// Entries of the largest group after `rows` more tokens. Every group of a full cache loses as many as join.
    pub fn len_after(&self, rows: usize) -> usize {
        let window = if self.keeps_all() { usize::MAX } else { self.window.unwrap_or(usize::MAX) };
        let (all, limit, burst) = (self.longest() + rows, self.limit(0), self.burst());
        let held = if all < limit.saturating_add(burst) { all } else { limit + (all - limit) % burst };
        held.min(window)
    }

    /// What is known of the entries, as a device gets it.
    pub fn scanned(&self) -> Scanned {
        let of_groups = |group: &HeadGroup| (!group.priority.is_empty()).then(|| group.priority.clone());
        Scanned {
            positions: self.groups.iter().map(|group| group.positions.clone()).collect(),
            priorities: self.groups.iter().filter_map(of_groups).collect(),
            received: self.all_received().map(|received| received.sums.clone()).collect(),
            newest: Vec::new(),
        }
    }

    /// Attention received that it keeps, and that caches keep that will be cut.
    fn all_received(&self) -> impl Iterator<Item = &Received> {
        self.received.iter().chain(self.cuts().iter().flat_map(|cut| &cut.received))
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

    /// How many of the next `rows` tokens join before anything leaves.
    pub fn rows_before_leaving(&self, rows: usize) -> usize {
        let held = self.longest();
        (0..rows).take_while(|row| self.len_after(row + 1) > held + row).count()
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
        self.all_received().map(|received| received.sums.len())
    }

    /// Adds `rows` tokens that a device reads, with norms as of [`new_priorities`](Self::new_priorities). Of a cache from which entries
    /// leave only their number is right until [`take_scanned`](Self::take_scanned).
    pub fn scan_on_device(&mut self, rows: usize, norms: Option<&[f64]>) {
        let all = self.len_after(rows);
        let leaving = self.longest() + rows - all;
        let next = self.seen as u32..(self.seen + rows) as u32;
        let new = self.new_priorities(rows, norms).unwrap_or_default();
        let (groups, sinks) = (self.groups.len(), self.sinks());
        let keeps_newest = self.as_unbounded().is_some() || self.only_newest().is_some();
        for (group, HeadGroup { positions, priority }) in self.groups.iter_mut().enumerate() {
            positions.extend(next.clone());
            let held = positions.len() - leaving;
            // Where it is not scanned, the first have left that may.
            let first = sinks.min(held);
            positions.drain(first..first + if keeps_newest { leaving } else { 0 });
            positions.truncate(held);
            priority.extend(new.iter().skip(group).step_by(groups));
            priority.truncate(held);
        }
        self.cuts_mut().for_each(|cut| cut.scan_on_device(rows, norms));
        self.received.iter_mut().flat_map(|received| &mut received.sums).for_each(|sums| sums.resize(all, 0.0));
        self.seen += rows;
    }

    /// Takes what a device has decided.
    pub fn take_scanned(&mut self, decided: Scanned) {
        let Scanned { positions, priorities, received, newest } = decided;
        for (group, positions) in self.groups.iter_mut().zip(positions) {
            group.positions = positions;
        }
        for (group, priority) in self.groups.iter_mut().zip(priorities) {
            group.priority = priority;
        }
        let (bounded, cuts) = match &mut self.kind {
            Kind::Bounded(bounded) => (Some(bounded), &mut [][..]),
            Kind::Unbounded(unbounded) => (None, &mut unbounded.cuts[..]),
        };
        let mut all_received = self.received.iter_mut().collect::<Vec<_>>();
        let mut all_newest = bounded.map(|bounded| &mut bounded.newest).into_iter().collect::<Vec<_>>();
        for cut in cuts {
            all_received.extend(&mut cut.received);
            if let Kind::Bounded(bounded) = &mut cut.kind {
                all_newest.push(&mut bounded.newest);
            }
        }
        for (own, sums) in all_received.into_iter().zip(received) {
            own.sums = sums;
        }
        for (own, newest) in all_newest.into_iter().zip(newest) {
            *own = newest;
        }
    }

    /// The position of the first entry, or of the next token.
    pub fn first_position(&self) -> usize {
        self.groups[0].positions.first().map_or(self.seen, |position| *position as usize)
    }

    /// Adds what leaves during the next `rows` tokens to a log, where nothing but their order decides.
    pub fn log_passed(&self, log: &mut Vec<Eviction>, rows: usize) {
        let Some(held) = self.only_newest() else { return };
        let newest = held - self.sinks();
        for (step, passed) in (self.seen.max(held)..self.seen + rows).map(|step| (step, step - newest)) {
            // What a window passes was seen for the last time one step before.
            let step = (step - usize::from(self.as_unbounded().is_some())) as u32;
            log.extend((0..self.groups.len() as u32).map(|group| Eviction { step, group, victim: passed as u32 }));
        }
    }

    /// First entries that stay where nothing else but their order decides.
    pub fn sinks(&self) -> usize {
        self.only_newest().and(self.policy()).map_or(0, |policy| policy.protected()[0])
    }

    /// Entries that stay where nothing but their order decides: those in the layer's window, or the newest under a policy that keeps them,
    /// and the first ones that it protects.
    pub fn only_newest(&self) -> Option<usize> {
        let Some(bounded) = self.as_bounded() else { return self.window.filter(|_| !self.keeps_all()) };
        let Bounded { policy, limits, .. } = bounded;
        let is_window = policy.score.method() == Method::Order;
        let leaves_singly = self.burst() == 1 && limits[0] < usize::MAX && leaves_to_host(*policy).is_none();
        (is_window && leaves_singly && self.window.is_none()).then_some(limits[0])
    }

    /// Tokens that a query sees besides the first, itself included, where nothing but their order decides; 0 where it sees all.
    pub fn newest_seen(&self) -> usize {
        match self.as_bounded() {
            // The oldest entry leaves after the query.
            Some(_) => self.only_newest().map_or(0, |held| held + 1 - self.sinks()),
            None => self.window.unwrap_or(0),
        }
    }

    /// Adds the victims of the next tokens to a log: (burst - 1 + rows, groups), as `scan` leaves them.
    pub fn log_victims(&self, log: &mut Vec<Eviction>, rule: &ScanRule, victims: &[i32]) {
        let &ScanRule { limit, burst, groups, .. } = rule;
        for row in burst - 1..victims.len() / groups {
            let read = row - (burst - 1);
            let step = (self.seen + read) as u32;
            // What the window passed was seen for the last time one step before. Beside a window one entry leaves at a time.
            let passed =
                (0..).zip(&victims[row * groups..][..groups]).filter(|(_, victim)| **victim < -1 && burst == 1);
            log.extend(passed.map(|(group, victim)| Eviction {
                step: step - 1,
                group,
                victim: (-2 - victim) as u32,
            }));
            let beyond = (self.len(0) + read + 1).saturating_sub(limit);
            if beyond < burst || !beyond.is_multiple_of(burst) {
                continue;
            }
            let evicted = (0..groups)
                .flat_map(|group| (0..burst).map(move |n| (group, victims[(row - n) * groups + group])));
            let evicted = evicted.filter(|(_, victim)| *victim >= 0);
            log.extend(evicted.map(|(group, victim)| Eviction {
                step,
                group: group as u32,
                victim: victim as u32,
            }));
        }
    }
}
