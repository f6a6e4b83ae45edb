//! When each token of a text was evicted, and what follows from that alone.
//!
//! A token is evicted once, so the log of evictions is one number for each token, layer and head group.

use crate::eviction::Eviction;
use crate::lm::ModelShape;
use crate::parquet::Table;
use crate::task::prepared::SideFile;

/// The steps at which the tokens of a text were evicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetimes {
    tokens: usize,
    /// The step at which a token was evicted, the last that sees it; the number of tokens if it never was:
    /// (layers)(groups)(tokens)
    left: Vec<Vec<Vec<u32>>>,
}

impl Lifetimes {
    /// Makes the lifetimes of `tokens` tokens of which none is evicted; `groups` counts the head groups of each layer.
    pub fn new(groups: &[usize], tokens: usize) -> Lifetimes {
        Lifetimes {
            tokens,
            left: groups.iter().map(|groups| vec![vec![tokens as u32; tokens]; *groups]).collect(),
        }
    }

    /// Ends lifetimes in the windows of layers that own a cache: a token leaves after the last one that sees it.
    #[must_use]
    pub fn in_windows(mut self, shape: &ModelShape) -> Lifetimes {
        for (groups, (_, layer)) in self.left.iter_mut().zip(shape.caches()) {
            for (token, left) in groups.iter_mut().flat_map(|group| group.iter_mut().enumerate()) {
                if let Some(last) = layer.last_seeing(token).filter(|last| last + 1 < self.tokens) {
                    *left = (*left).min(last as u32);
                }
            }
        }
        self
    }

    /// A text in pieces of `size` tokens, each read with an empty cache: tokens are kept to the end of their piece. Each
    /// piece begins with `lead` tokens (BOS), of which only those of the first piece are tokens of the text.
    pub fn of_pieces(layers: usize, tokens: usize, size: usize, lead: usize) -> Lifetimes {
        let mut lifetimes = Lifetimes::new(&vec![1; layers], tokens);
        for group in lifetimes.left.iter_mut().flatten() {
            for (token, left) in group.iter_mut().enumerate() {
                let end = (token.saturating_sub(lead) / (size - lead) + 1) * (size - lead) + lead;
                *left = if end < tokens { end as u32 - 1 } else { tokens as u32 };
            }
        }
        lifetimes
    }

    /// Adds evictions: (layers)(evictions)
    pub fn add(&mut self, log: &[Vec<Eviction>]) {
        for (left, log) in self.left.iter_mut().zip(log) {
            for eviction in log {
                left[eviction.group as usize][eviction.victim as usize] = eviction.step;
            }
        }
    }

    /// The log of evictions, layer by layer in the order of steps; and how many groups of heads decide in each layer, those included
    /// that evict nothing.
    pub fn log(&self) -> [SideFile; 2] {
        let mut rows: Vec<[u32; 4]> = Vec::new();
        for (layer, groups) in self.left.iter().enumerate() {
            for (group, left) in groups.iter().enumerate() {
                let gone = left.iter().enumerate().filter(|(_, step)| (**step as usize) < self.tokens);
                rows.extend(gone.map(|(victim, step)| [layer as u32, *step, group as u32, victim as u32]));
            }
        }
        rows.sort_unstable();
        let (mut log, mut groups) = (Table::default(), Table::default());
        for (name, at) in [("layer", 0), ("group", 2), ("step", 1), ("victim", 3)] {
            log.push(name, rows.iter().map(|row| row[at]).collect::<Vec<u32>>());
        }
        groups.push("layer", (0..self.layers() as u32).collect::<Vec<_>>());
        groups.push("groups", self.left.iter().map(|groups| groups.len() as u32).collect::<Vec<_>>());
        [SideFile { kind: "", table: log }, SideFile { kind: "groups", table: groups }]
    }

    pub fn layers(&self) -> usize {
        self.left.len()
    }

    /// Returns the step at which each token was evicted from a layer: (groups)(tokens)
    pub fn left(&self, layer: usize) -> &[Vec<u32>] {
        &self.left[layer]
    }

    /// Counts the steps at which a token was visible, its own included; `left` has the step of each token's eviction.
    pub fn steps(&self, left: &[u32], token: usize) -> u64 {
        (u64::from(left[token]) + 1).min(self.tokens as u64) - token as u64
    }

    /// Counts the steps at which each token was visible to a layer, as a mean over its groups.
    pub fn of_layer(&self, layer: usize) -> Vec<f64> {
        let groups = &self.left[layer];
        let sum = |token| groups.iter().map(|left| self.steps(left, token)).sum::<u64>();
        (0..self.tokens).map(|token| sum(token) as f64 / groups.len() as f64).collect()
    }

    /// Counts the steps at which each token was visible, as a mean over groups, summed over layers.
    pub fn by_token(&self) -> Vec<f64> {
        self.by_token_within(u64::MAX)
    }

    /// Counts as `by_token` does, but no more than the first `most` steps of each token.
    pub fn by_token_within(&self, most: u64) -> Vec<f64> {
        let mut sums = vec![0.0; self.tokens];
        for groups in &self.left {
            for (token, sum) in sums.iter_mut().enumerate() {
                let steps = groups.iter().map(|left| self.steps(left, token).min(most)).sum::<u64>();
                *sum += steps as f64 / groups.len() as f64;
            }
        }
        sums
    }

    /// Entries that a layer of `size` keeps after each step from the first eviction on, summed, as a mean over groups; and those
    /// of them that are among the `size` newest tokens, which Window keeps: [recent, kept]
    pub fn recent(&self, layer: usize, sizes: &[usize]) -> [f64; 2] {
        let groups = &self.left[layer];
        let mut sums = [0; 2];
        for (group, left) in groups.iter().enumerate() {
            let size = sizes[group * sizes.len() / groups.len()];
            for (token, left) in left.iter().enumerate() {
                let end = (*left as usize).min(self.tokens);
                // Window keeps a token until `size` others came after it.
                for (sum, end) in sums.iter_mut().zip([end.min(token.saturating_add(size)), end]) {
                    *sum += end.saturating_sub(token.max(size)) as u64;
                }
            }
        }
        sums.map(|sum| sum as f64 / groups.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lm::tiny_shape;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// The obvious way: caches of `size` that evict by an arbitrary choice, in layers with and without a window, counted
        /// step by step.
        #[test]
        fn lifetimes_are_counted_steps(
            tokens in 1usize..60, size in 1usize..70, window in 1usize..70, groups in 1usize..4,
            choices in prop::collection::vec(0usize..1000, 1..50), cut in 0usize..60, most in 1u64..60,
        ) {
            let mut choices = choices.iter().cycle();
            // However the log is cut into pieces: (pieces)(layers)(evictions)
            let mut logs = vec![vec![Vec::new(); 2]; 2];
            let mut counted = vec![(vec![vec![0; tokens]; groups], [0; 2]); 2];
            for (layer, (seen, sums)) in counted.iter_mut().enumerate() {
                let window = [None, Some(window)][layer];
                let real = size.min(window.unwrap_or(size));
                for (group, seen) in seen.iter_mut().enumerate() {
                    let mut cache = Vec::new();
                    let mut log = |step: usize, victim: usize| {
                        let victim = Eviction { step: step as u32, group: group as u32, victim: victim as u32 };
                        logs[usize::from(step >= cut)][layer].push(victim);
                    };
                    for step in 0..tokens {
                        cache.push(step);
                        cache.iter().for_each(|token| seen[*token] += 1);
                        if cache.len() > size {
                            log(step, cache.remove(choices.next().unwrap() % cache.len()));
                        }
                        // What the next query does not see any more.
                        if let Some(at) = cache.iter().position(|token| window == Some(step + 1 - token))
                            && step + 1 < tokens
                        {
                            log(step, cache.remove(at));
                        }
                        if step >= real {
                            // Window keeps the newest tokens.
                            sums[0] += cache.iter().filter(|token| **token + real > step).count();
                            sums[1] += cache.len();
                        }
                    }
                }
            }
            let mut lifetimes = Lifetimes::new(&[groups; 2], tokens);
            logs.iter().for_each(|log| lifetimes.add(log));
            let (mut all, mut within) = (vec![0.0; tokens], vec![0.0; tokens]);
            let mean = |sum: u64| sum as f64 / groups as f64;
            for (layer, (seen, sums)) in counted.into_iter().enumerate() {
                let of_token = |token: usize, most: u64| mean(seen.iter().map(|of| of[token].min(most)).sum());
                let steps: Vec<f64> = (0..tokens).map(|token| of_token(token, u64::MAX)).collect();
                for token in 0..tokens {
                    all[token] += steps[token];
                    within[token] += of_token(token, most);
                }
                // The counting identity of arXiv 2401.06104, table 5. A window may take an entry before the policy has to.
                let visible = |most: usize| (1..=tokens).map(|t| t.min(most)).sum::<usize>() as f64;
                let total = steps.iter().sum::<f64>();
                let (least, most_visible) = match layer {
                    0 => (visible(size + 1), visible(size + 1)),
                    _ if window <= size => (visible(window), visible(window)),
                    _ => (visible(size), visible(size + 1)),
                };
                prop_assert!(total > least - 1e-6 && total < most_visible + 1e-6);
                prop_assert_eq!(lifetimes.of_layer(layer), steps);
                let real = [size, size.min(window)][layer];
                let [recent, kept] = lifetimes.recent(layer, &[real]);
                prop_assert!((recent - mean(sums[0] as u64)).abs() < 1e-9, "{} {:?}", recent, sums);
                prop_assert!((kept - mean(sums[1] as u64)).abs() < 1e-9, "{} {:?}", kept, sums);
            }
            prop_assert_eq!(lifetimes.by_token(), all);
            prop_assert_eq!(lifetimes.by_token_within(most), within);
        }
    }

    #[test]
    fn a_window_ends_what_nothing_evicts() {
        let mut shape = tiny_shape();
        shape.attention[0].window = Some(2);
        let full = Lifetimes::new(&[1, 1], 5).in_windows(&shape);
        assert_eq!(full.left(0)[0], [1, 2, 3, 5, 5]);
        assert_eq!(full.of_layer(0), [2.0, 2.0, 2.0, 2.0, 1.0]);
        assert_eq!(full.left(1)[0], [5; 5]);
        // A piece may end before.
        assert_eq!(Lifetimes::of_pieces(1, 6, 3, 0).in_windows(&shape).left(0)[0], [1, 2, 2, 4, 6, 6]);
        // A window that does not slide.
        shape.attention[0].is_chunked = true;
        assert_eq!(Lifetimes::new(&[1, 1], 5).in_windows(&shape).left(0)[0], [1, 1, 3, 3, 5]);
    }

    #[test]
    fn pieces_end_together() {
        // BOS and two tokens, then BOS again and two more, then one.
        let pieces = Lifetimes::of_pieces(1, 6, 3, 1);
        assert_eq!(pieces.left(0)[0], [2, 2, 2, 4, 4, 6]);
        assert_eq!(pieces.of_layer(0), [3.0, 2.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(Lifetimes::of_pieces(1, 4, 2, 0).left(0)[0], [1, 1, 4, 4]);
    }
}
