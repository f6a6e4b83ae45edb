//! Splits cells into shards of about the same run time: for the tasks of an array job, or the jobs of one machine.
//!
//! A shard reads a full-cache prefix once for all its cells of a task, and loads a model once, so cells of one model and
//! task tend to stay together.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::cost::Cost;

/// A cell to be assigned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub model_task: usize,
    pub cost: Cost,
}

/// What the cells of a model and a task have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    /// Tasks with the same model shard its loading.
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
    loaded: Vec<usize>,
}

impl ShardLoad {
    /// The load with one more piece.
    fn with(&self, piece: Piece, common: Common) -> f64 {
        let read = self.read.get(&piece.model_task).copied().unwrap_or(0.0);
        let loading = if self.loaded.contains(&common.model) { 0.0 } else { common.loading };
        self.load + piece.cost.own + (piece.cost.shared - read).max(0.0) + loading
    }

    fn add(&mut self, piece: Piece, common: Common) {
        self.load = self.with(piece, common);
        let read = self.read.entry(piece.model_task).or_default();
        *read = read.max(piece.cost.shared);
        if !self.loaded.contains(&common.model) {
            self.loaded.push(common.model);
        }
    }
}

/// The shard of each piece, from 0 to `count` - 1: the most expensive piece first, each to the shard with the least load.
/// The result depends on nothing but the arguments, so that all machines split a sweep in the same way.
pub(super) fn split(pieces: &[Piece], model_tasks: &[Common], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    let weight = |piece: &Piece| piece.cost.own + piece.cost.shared;
    order.sort_by(|a, b| weight(&pieces[*b]).total_cmp(&weight(&pieces[*a])).then(a.cmp(b)));
    let mut shards = vec![ShardLoad::default(); count.min(pieces.len()).max(1)];
    let mut assigned = vec![0; pieces.len()];
    for index in order {
        let (piece, common) = (pieces[index], model_tasks[pieces[index].model_task]);
        let by_load = |a: &usize, b: &usize| -> Ordering {
            shards[*a].with(piece, common).total_cmp(&shards[*b].with(piece, common))
        };
        let least = (0..shards.len()).min_by(by_load).unwrap_or(0);
        shards[least].add(piece, common);
        assigned[index] = least;
    }
    assigned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FREE: Common = Common { model: 0, loading: 0.0 };

    fn own(own: f64) -> Piece {
        Piece { model_task: 0, cost: Cost { own, shared: 0.0 } }
    }

    /// Seconds of every shard, computed from the assignment alone.
    fn loads(pieces: &[Piece], model_tasks: &[Common], assigned: &[usize], count: usize) -> Vec<f64> {
        (0..count)
            .map(|shard| {
                let mine = || pieces.iter().zip(assigned).filter(|(_, at)| **at == shard).map(|(piece, _)| piece);
                let own: f64 = mine().map(|piece| piece.cost.own).sum();
                let read: f64 = (0..model_tasks.len())
                    .map(|model_task| {
                        mine().filter(|p| p.model_task == model_task).map(|p| p.cost.shared).fold(0.0, f64::max)
                    })
                    .sum();
                let mut models: Vec<usize> = mine().map(|piece| model_tasks[piece.model_task].model).collect();
                models.sort_unstable();
                models.dedup();
                let loading = |model: &usize| {
                    model_tasks.iter().find(|model_task| model_task.model == *model).unwrap().loading
                };
                own + read + models.iter().map(loading).sum::<f64>()
            })
            .collect()
    }

    #[test]
    fn by_hand() {
        // The largest first: 7 | 5 | 4, then 3 to the third and 3 to the second, 2 to the first.
        let pieces = [3.0, 7.0, 3.0, 2.0, 5.0, 4.0].map(own);
        assert_eq!(split(&pieces, &[FREE], 3), [2, 0, 1, 0, 1, 2]);
    }

    #[test]
    fn cells_with_a_shared_prefix_stay_together() {
        // Two tasks whose prefixes cost as much as two cells: each shard reads one of them.
        let piece = |model_task| Piece { model_task, cost: Cost { own: 1.0, shared: 2.0 } };
        let pieces = [piece(0), piece(1), piece(0), piece(1)];
        let assigned = split(&pieces, &[FREE, FREE], 2);
        assert_eq!(assigned, [0, 1, 0, 1]);
        assert_eq!(loads(&pieces, &[FREE, FREE], &assigned, 2), [4.0, 4.0]);
        // And of two models each shard loads one.
        let common = |model| Common { model, loading: 2.0 };
        let pieces =
            [own(1.0), Piece { model_task: 1, ..own(1.0) }, own(1.0), Piece { model_task: 1, ..own(1.0) }];
        assert_eq!(split(&pieces, &[common(0), common(1)], 2), [0, 1, 0, 1]);
    }

    #[test]
    fn more_shards_than_cells_leave_some_empty() {
        assert_eq!(split(&[own(1.0), own(1.0)], &[FREE], 8), [0, 1]);
        assert!(split(&[], &[], 3).is_empty());
    }

    proptest! {
        /// No shard is above the mean by more than what one cell adds at most.
        #[test]
        fn no_shard_is_more_than_a_cell_above_the_mean(
            costs in prop::collection::vec((0usize..4, 0.01f64..10.0, 0.0f64..3.0), 1..120),
            count in 1usize..12,
        ) {
            let model_tasks = [Common { model: 0, loading: 1.0 }, Common { model: 1, loading: 2.0 }, FREE, FREE];
            let model_tasks = model_tasks.map(|model_task| if model_task.loading == 0.0 { Common { model: 2, ..model_task } } else { model_task });
            let pieces: Vec<Piece> =
                costs.iter().map(|(model_task, own, shared)| Piece { model_task: *model_task, cost: Cost { own: *own, shared: *shared } }).collect();
            let assigned = split(&pieces, &model_tasks, count);
            prop_assert!(assigned.iter().all(|shard| *shard < count));
            let loads = loads(&pieces, &model_tasks, &assigned, count);
            let most = loads.iter().copied().fold(0.0, f64::max);
            let mean = loads.iter().sum::<f64>() / count as f64;
            let piece = pieces.iter().map(|piece| piece.cost.own + piece.cost.shared + 2.0).fold(0.0, f64::max);
            prop_assert!(most <= mean + piece + 1e-9, "{most} {mean} {piece}");
        }
    }
}
