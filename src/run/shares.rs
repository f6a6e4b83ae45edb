//! Cells cut into shares of about the same time: for the tasks of an array job, or the workers of one machine.
//!
//! Knows costs, not how they were estimated. A share reads the unbounded cache of a group once for all its cells, and
//! opens a model once, so that cells which belong together tend to stay together.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::cost::Cost;

/// A cell to be placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub group: usize,
    pub cost: Cost,
}

/// What the cells of a group have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common {
    /// Groups with the same model share what opening it takes.
    pub model: usize,
    pub opening: f64,
}

/// What a share has to do so far.
#[derive(Clone, Debug, Default)]
struct Share {
    load: f64,
    /// How far the unbounded reading of each group is paid for, in seconds.
    read: HashMap<usize, f64>,
    /// The models that are opened.
    opened: Vec<usize>,
}

impl Share {
    /// The load with one more piece.
    fn with(&self, piece: Piece, common: Common) -> f64 {
        let read = self.read.get(&piece.group).copied().unwrap_or(0.0);
        let opening = if self.opened.contains(&common.model) { 0.0 } else { common.opening };
        self.load + piece.cost.own + (piece.cost.shared - read).max(0.0) + opening
    }

    fn take(&mut self, piece: Piece, common: Common) {
        self.load = self.with(piece, common);
        let read = self.read.entry(piece.group).or_default();
        *read = read.max(piece.cost.shared);
        if !self.opened.contains(&common.model) {
            self.opened.push(common.model);
        }
    }
}

/// The share of each piece, from 0 to `count` - 1: the most expensive piece first, each to the share that is then the
/// least loaded. Depends on its arguments alone, to the last bit, so that machines which cut the same sweep agree.
pub(super) fn cut(pieces: &[Piece], groups: &[Common], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    let weight = |piece: &Piece| piece.cost.own + piece.cost.shared;
    order.sort_by(|a, b| weight(&pieces[*b]).total_cmp(&weight(&pieces[*a])).then(a.cmp(b)));
    let mut shares = vec![Share::default(); count.min(pieces.len()).max(1)];
    let mut placed = vec![0; pieces.len()];
    for index in order {
        let (piece, common) = (pieces[index], groups[pieces[index].group]);
        let by_load = |a: &usize, b: &usize| -> Ordering {
            shares[*a].with(piece, common).total_cmp(&shares[*b].with(piece, common))
        };
        let least = (0..shares.len()).min_by(by_load).unwrap_or(0);
        shares[least].take(piece, common);
        placed[index] = least;
    }
    placed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FREE: Common = Common { model: 0, opening: 0.0 };

    fn own(own: f64) -> Piece {
        Piece { group: 0, cost: Cost { own, shared: 0.0 } }
    }

    /// Seconds of every share, counted anew from the cut alone.
    fn loads(pieces: &[Piece], groups: &[Common], placed: &[usize], count: usize) -> Vec<f64> {
        (0..count)
            .map(|share| {
                let mine = || pieces.iter().zip(placed).filter(|(_, at)| **at == share).map(|(piece, _)| piece);
                let own: f64 = mine().map(|piece| piece.cost.own).sum();
                let read: f64 = (0..groups.len())
                    .map(|group| mine().filter(|p| p.group == group).map(|p| p.cost.shared).fold(0.0, f64::max))
                    .sum();
                let mut models: Vec<usize> = mine().map(|piece| groups[piece.group].model).collect();
                models.sort_unstable();
                models.dedup();
                let opening = |model: &usize| groups.iter().find(|group| group.model == *model).unwrap().opening;
                own + read + models.iter().map(opening).sum::<f64>()
            })
            .collect()
    }

    #[test]
    fn by_hand() {
        // The largest first: 7 | 5 | 4, then 3 to the third and 3 to the second, 2 to the first.
        let pieces = [3.0, 7.0, 3.0, 2.0, 5.0, 4.0].map(own);
        assert_eq!(cut(&pieces, &[FREE], 3), [2, 0, 1, 0, 1, 2]);
    }

    #[test]
    fn what_is_read_together_stays_together() {
        // Two groups whose unbounded readings cost as much as two cells: each share reads one of them.
        let piece = |group| Piece { group, cost: Cost { own: 1.0, shared: 2.0 } };
        let pieces = [piece(0), piece(1), piece(0), piece(1)];
        let placed = cut(&pieces, &[FREE, FREE], 2);
        assert_eq!(placed, [0, 1, 0, 1]);
        assert_eq!(loads(&pieces, &[FREE, FREE], &placed, 2), [4.0, 4.0]);
        // And of two models each share opens one.
        let common = |model| Common { model, opening: 2.0 };
        let pieces = [own(1.0), Piece { group: 1, ..own(1.0) }, own(1.0), Piece { group: 1, ..own(1.0) }];
        assert_eq!(cut(&pieces, &[common(0), common(1)], 2), [0, 1, 0, 1]);
    }

    #[test]
    fn more_shares_than_cells_leave_some_empty() {
        assert_eq!(cut(&[own(1.0), own(1.0)], &[FREE], 8), [0, 1]);
        assert!(cut(&[], &[], 3).is_empty());
    }

    proptest! {
        /// No share is above the mean by more than what one cell adds at most.
        #[test]
        fn no_share_is_more_than_a_cell_above_the_mean(
            costs in prop::collection::vec((0usize..4, 0.01f64..10.0, 0.0f64..3.0), 1..120),
            count in 1usize..12,
        ) {
            let groups = [Common { model: 0, opening: 1.0 }, Common { model: 1, opening: 2.0 }, FREE, FREE];
            let groups = groups.map(|group| if group.opening == 0.0 { Common { model: 2, ..group } } else { group });
            let pieces: Vec<Piece> =
                costs.iter().map(|(group, own, shared)| Piece { group: *group, cost: Cost { own: *own, shared: *shared } }).collect();
            let placed = cut(&pieces, &groups, count);
            prop_assert!(placed.iter().all(|share| *share < count));
            let loads = loads(&pieces, &groups, &placed, count);
            let most = loads.iter().copied().fold(0.0, f64::max);
            let mean = loads.iter().sum::<f64>() / count as f64;
            let piece = pieces.iter().map(|piece| piece.cost.own + piece.cost.shared + 2.0).fold(0.0, f64::max);
            prop_assert!(most <= mean + piece + 1e-9, "{most} {mean} {piece}");
        }
    }
}
