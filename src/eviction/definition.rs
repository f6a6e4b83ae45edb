//! The plain definition that the scan is tested against: one token at a time, entries deleted, in f64.

use super::scan::Eviction;
use super::scoring::Score;
use super::settings::Scope;
use super::tests::Case;

/// Results of the definition for a text.
pub(super) struct Answer {
    /// (groups)(entries)
    pub survivors: Vec<Vec<u32>>,
    /// (tokens)(heads)(positions): attention, 0 for entries not in the cache.
    pub attention: Vec<Vec<Vec<f64>>>,
    pub evictions: Vec<Eviction>,
    /// Whether some decision depended on a difference below f32's precision.
    pub ambiguous: bool,
}

struct Entry {
    position: usize,
    received: f64,
}

/// Reads a text. `draw(group, position)` are the scan's own draws; the test is which entries they evict.
pub(super) fn read(case: &Case, draw: impl Fn(usize, usize) -> f64) -> Answer {
    let Case { heads, tokens, policy, .. } = *case;
    let groups = heads.groups(policy.scope);
    let mut caches: Vec<Vec<Entry>> = (0..groups).map(|_| Vec::new()).collect();
    let mut answer = Answer { survivors: vec![], attention: vec![], evictions: vec![], ambiguous: false };
    for t in 0..tokens {
        let mut rows = vec![vec![0.0; tokens]; heads.heads];
        // Entries that the query cannot see leave before it attends.
        for (group, cache) in caches.iter_mut().enumerate() {
            let unseen = |entry: &Entry| case.window.is_some_and(|window| entry.position + window <= t);
            if let Some(passed) = cache.iter().position(unseen) {
                let victim = cache.remove(passed).position as u32;
                answer.evictions.push(Eviction { step: t as u32 - 1, group: group as u32, victim });
            }
        }
        for (group, cache) in caches.iter_mut().enumerate() {
            cache.push(Entry { position: t, received: 0.0 });
            let members = heads.of_group(policy.scope, group);
            let mut mean = vec![0.0; cache.len()];
            for head in members.clone() {
                let z: Vec<f64> = cache.iter().map(|e| f64::from(case.logit(head, t, e.position))).collect();
                let max = z.iter().copied().fold(f64::MIN, f64::max);
                let total: f64 = z.iter().map(|z| (z - max).exp()).sum();
                for (i, z) in z.iter().enumerate() {
                    let p = (z - max).exp() / total;
                    rows[head][cache[i].position] = p;
                    mean[i] += p / members.len() as f64;
                }
            }
            for (entry, mean) in cache.iter_mut().zip(&mean) {
                entry.received += mean;
            }
            if cache.len() <= policy.size {
                continue;
            }
            let norm = |kv_head: usize, i: usize| f64::from(case.norm(kv_head, cache[i].position));
            let mean = |i: usize| rows[members.clone()].iter().map(|row| row[cache[i].position]).sum::<f64>();
            let score = |i: usize| match (policy.score, policy.scope) {
                (Score::Recency, _) => cache[i].position as f64,
                (Score::LastAttention, _) => mean(i),
                (Score::AccumulatedAttention, _) => cache[i].received,
                (Score::KeyNorm, Scope::Head) => -norm(group, i),
                (Score::KeyNorm, Scope::Layer) => -(0..heads.kv_heads).map(|kv| norm(kv, i)).sum::<f64>(),
                (Score::Random, _) => draw(group, cache[i].position),
            };
            let protected =
                |i: usize| cache[i].position < policy.keep_first || i + policy.keep_recent >= cache.len();
            let candidates: Vec<usize> = (0..cache.len()).filter(|&i| !protected(i)).collect();
            let mut victim = candidates[0];
            for &i in &candidates {
                if score(i) < score(victim) {
                    victim = i;
                }
            }
            let close = |i: usize| {
                let (a, b) = (score(i), score(victim));
                a != b && (a - b).abs() <= 1e-5 * b.abs()
            };
            answer.ambiguous |= policy.score != Score::Recency && candidates.iter().any(|&i| close(i));
            let victim = cache.remove(victim).position as u32;
            answer.evictions.push(Eviction { step: t as u32, group: group as u32, victim });
        }
        answer.attention.push(rows);
    }
    answer.survivors = caches.iter().map(|cache| cache.iter().map(|e| e.position as u32).collect()).collect();
    answer
}
