//! When each token of a text was evicted, and what follows from that alone.
//!
//! A token is evicted once, so the log of evictions is one number for each token, layer and head group.

use crate::eviction::Eviction;

/// The steps at which the tokens of a text were evicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetimes {
    tokens: usize,
    /// The step at which a token was evicted, the last that sees it; the number of tokens if it never was:
    /// (layers)(groups)(tokens)
    left: Vec<Vec<Vec<u32>>>,
}

impl Lifetimes {
    /// No token is evicted.
    pub fn new(layers: usize, groups: usize, tokens: usize) -> Lifetimes {
        Lifetimes { tokens, left: vec![vec![vec![tokens as u32; tokens]; groups]; layers] }
    }

    /// A text in pieces of `size` tokens, each read with an empty cache: tokens are kept to the end of their piece. Each
    /// piece begins with `lead` tokens (BOS), of which only those of the first piece are tokens of the text.
    pub fn of_pieces(layers: usize, tokens: usize, size: usize, lead: usize) -> Lifetimes {
        let mut lifetimes = Lifetimes::new(layers, 1, tokens);
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

    pub fn tokens(&self) -> usize {
        self.tokens
    }

    pub fn layers(&self) -> usize {
        self.left.len()
    }

    /// When each token was evicted: (groups)(tokens)
    pub fn left(&self, layer: usize) -> &[Vec<u32>] {
        &self.left[layer]
    }

    /// Steps at which a token was visible, its own included.
    pub fn steps(&self, left: &[u32], token: usize) -> u64 {
        (u64::from(left[token]) + 1).min(self.tokens as u64) - token as u64
    }

    /// Steps at which each token was visible to a layer, as a mean over its groups.
    pub fn of_layer(&self, layer: usize) -> Vec<f64> {
        let groups = &self.left[layer];
        let sum = |token| groups.iter().map(|left| self.steps(left, token)).sum::<u64>();
        (0..self.tokens).map(|token| sum(token) as f64 / groups.len() as f64).collect()
    }

    /// The same, summed over layers.
    pub fn by_token(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.tokens];
        for layer in 0..self.layers() {
            for (sum, steps) in sums.iter_mut().zip(self.of_layer(layer)) {
                *sum += steps;
            }
        }
        sums
    }

    /// Entries of a full cache of `size` that are among the `size` newest tokens, which Window keeps. Summed over the steps
    /// after the first eviction, as a mean over groups.
    pub fn recent(&self, layer: usize, size: usize) -> f64 {
        let groups = &self.left[layer];
        let of_group = |left: &Vec<u32>| -> u64 {
            let kept = left.iter().enumerate().map(|(token, left)| {
                // Window keeps a token until `size` others came after it.
                let end = (token + size).min(*left as usize).min(self.tokens);
                end.saturating_sub(token.max(size)) as u64
            });
            kept.sum()
        };
        groups.iter().map(of_group).sum::<u64>() as f64 / groups.len() as f64
    }

    /// All entries that [`recent`](Self::recent) chooses from.
    pub fn kept(&self, size: usize) -> f64 {
        (self.tokens.saturating_sub(size) * size) as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// The obvious way: caches of `size` that evict by an arbitrary choice, counted step by step.
        #[test]
        fn lifetimes_are_counted_steps(
            tokens in 1usize..60, size in 1usize..70, groups in 1usize..4,
            choices in prop::collection::vec(0usize..1000, 1..50), cut in 0usize..60,
        ) {
            let mut choices = choices.iter().cycle();
            // However the log is cut into pieces: (pieces)(layers)(evictions)
            let mut logs = vec![vec![Vec::new(); 2]; 2];
            let mut counted = vec![(vec![0.0; tokens], 0, 0); 2];
            for (layer, (steps, recent, kept)) in counted.iter_mut().enumerate() {
                for group in 0..groups {
                    let mut cache = Vec::new();
                    for step in 0..tokens {
                        cache.push(step);
                        cache.iter().for_each(|token| steps[*token] += 1.0);
                        if cache.len() > size {
                            let victim = cache.remove(choices.next().unwrap() % cache.len());
                            let (step, group, victim) = (step as u32, group as u32, victim as u32);
                            logs[usize::from(step as usize >= cut)][layer].push(Eviction { step, group, victim });
                        }
                        if step >= size {
                            // Window keeps the newest tokens.
                            *recent += cache.iter().filter(|token| **token + size > step).count();
                            *kept += cache.len();
                        }
                    }
                }
            }
            let mut lifetimes = Lifetimes::new(2, groups, tokens);
            logs.iter().for_each(|log| lifetimes.add(log));
            let mut all = vec![0.0; tokens];
            let mean = |sum: f64| sum / groups as f64;
            for (layer, (steps, recent, kept)) in counted.into_iter().enumerate() {
                let steps: Vec<f64> = steps.into_iter().map(mean).collect();
                all.iter_mut().zip(&steps).for_each(|(sum, steps)| *sum += steps);
                // The counting identity of arXiv 2401.06104, table 5.
                let identity: usize = (1..=tokens).map(|t| t.min(size + 1)).sum();
                prop_assert!((steps.iter().sum::<f64>() - identity as f64).abs() < 1e-6);
                prop_assert_eq!(lifetimes.of_layer(layer), steps);
                prop_assert!((lifetimes.recent(layer, size) - mean(recent as f64)).abs() < 1e-9);
                prop_assert!((lifetimes.kept(size) - mean(kept as f64)).abs() < 1e-9);
            }
            prop_assert_eq!(lifetimes.by_token(), all);
        }
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
