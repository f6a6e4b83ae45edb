//! Splits cells into shards of about the same run time: for the tasks of an array job, or the jobs of one machine.
//!
//! A shard reads a full-cache prefix once for all its cells of a task, and loads a model once, so cells of one model and
//! task tend to stay together.

use std::collections::{HashMap, HashSet};

use super::cost::Cost;

/// A cell to be assigned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub cost: Cost,
    /// The cells of one model and task share a prefix.
    pub model_task: usize,
    /// Tasks with the same model share its loading.
    pub model: usize,
    pub loading: f64,
}

/// The work of a shard so far.
#[derive(Clone, Debug, Default)]
struct ShardLoad {
    load: f64,
    /// Seconds of the prefix that are already counted, for each task.
    read: HashMap<usize, f64>,
    /// The models that are loaded.
    loaded: HashSet<usize>,
}

impl ShardLoad {
    /// The load with one more piece.
    fn with(&self, piece: Piece) -> f64 {
        let read = self.read.get(&piece.model_task).copied().unwrap_or(0.0);
        let loading = if self.loaded.contains(&piece.model) { 0.0 } else { piece.loading };
        self.load + piece.cost.own + (piece.cost.shared - read).max(0.0) + loading
    }

    fn add(&mut self, piece: Piece) {
        self.load = self.with(piece);
        let read = self.read.entry(piece.model_task).or_default();
        *read = read.max(piece.cost.shared);
        self.loaded.insert(piece.model);
    }
}

/// The shard of each piece, from 0 to `count` - 1: the most expensive piece first, each to the shard with the least load.
/// The result depends on nothing but the arguments, so that all machines split a sweep in the same way.
pub(super) fn split(pieces: &[Piece], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    let weight = |piece: &Piece| piece.cost.own + piece.cost.shared;
    // Stable, so that the order of equal pieces is the same everywhere.
    order.sort_by(|a, b| weight(&pieces[*b]).total_cmp(&weight(&pieces[*a])));
    let mut shards = vec![ShardLoad::default(); count.min(pieces.len()).max(1)];
    let mut assigned = vec![0; pieces.len()];
    for index in order {
        let piece = pieces[index];
        let load = |shard: &usize| shards[*shard].with(piece);
        let least = (0..shards.len()).min_by(|a, b| load(a).total_cmp(&load(b))).unwrap_or(0);
        shards[least].add(piece);
        assigned[index] = least;
    }
    assigned
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn piece(own: f64, (model_task, shared): (usize, f64), (model, loading): (usize, f64)) -> Piece {
        Piece { cost: Cost { own, shared }, model_task, model, loading }
    }

    /// The seconds of each shard: every cell, the longest prefix of each task, and the loading of each model.
    fn loads(pieces: &[Piece], assigned: &[usize], count: usize) -> Vec<f64> {
        let mut loads = vec![0.0; count];
        let (mut read, mut loaded) = (BTreeMap::<_, f64>::new(), BTreeMap::new());
        for (piece, &shard) in pieces.iter().zip(assigned) {
            loads[shard] += piece.cost.own;
            let longest = read.entry((shard, piece.model_task)).or_default();
            *longest = longest.max(piece.cost.shared);
            loaded.insert((shard, piece.model), piece.loading);
        }
        for ((shard, _), seconds) in read.into_iter().chain(loaded) {
            loads[shard] += seconds;
        }
        loads
    }

    #[test]
    fn by_hand() {
        let own = |seconds| piece(seconds, (0, 0.0), (0, 0.0));
        // The largest first: 7 | 5 | 4, then 3 to the third and 3 to the second, 2 to the first.
        assert_eq!(split(&[3.0, 7.0, 3.0, 2.0, 5.0, 4.0].map(own), 3), [2, 0, 1, 0, 1, 2]);
        // Two tasks whose prefixes cost as much as two cells: each shard reads one of them.
        let prefixes = [0, 1, 0, 1].map(|task| piece(1.0, (task, 2.0), (0, 0.0)));
        assert_eq!(split(&prefixes, 2), [0, 1, 0, 1]);
        assert_eq!(loads(&prefixes, &[0, 1, 0, 1], 2), [4.0, 4.0]);
        // Of two models each shard loads one.
        assert_eq!(split(&[0, 1, 0, 1].map(|model| piece(1.0, (model, 0.0), (model, 2.0))), 2), [0, 1, 0, 1]);
        // More shards than cells leave some empty.
        assert_eq!(split(&[1.0, 1.0].map(own), 8), [0, 1]);
        assert!(split(&[], 3).is_empty());
    }

    proptest! {
        /// No shard is above the mean by more than what one cell adds at most.
        #[test]
        fn no_shard_is_more_than_a_cell_above_the_mean(
            costs in prop::collection::vec((0usize..4, 0.01f64..10.0, 0.0f64..3.0), 1..120),
            count in 1usize..12,
        ) {
            let models = [(0, 1.0), (1, 2.0), (2, 0.0), (2, 0.0)];
            let pieces: Vec<Piece> =
                costs.into_iter().map(|(task, own, shared)| piece(own, (task, shared), models[task])).collect();
            let assigned = split(&pieces, count);
            prop_assert!(assigned.iter().all(|shard| *shard < count));
            let loads = loads(&pieces, &assigned, count);
            let most = loads.iter().copied().fold(0.0, f64::max);
            let mean = loads.iter().sum::<f64>() / count as f64;
            let piece = pieces.iter().map(|piece| piece.cost.own + piece.cost.shared + 2.0).fold(0.0, f64::max);
            prop_assert!(most <= mean + piece + 1e-9, "{most} {mean} {piece}");
        }
    }
}
