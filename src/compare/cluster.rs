//! One cluster on both sides: a book, a story, a paper. A pooled number hides what happened to a few of them.

use serde::Serialize;

use super::threshold::Margin;
use crate::metric::{Better, Metric};
use crate::report::Sums;

/// How many clusters are named.
const NAMED: usize = 5;

/// A metric of one cluster, in the unit shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    pub name: String,
    pub before: f64,
    pub after: f64,
}

impl Cluster {
    /// `None` where one side weighs nothing.
    pub(super) fn of(metric: &Metric, name: &str, [before, after]: &[Sums; 2]) -> Option<Self> {
        let [before, after] = [before.pooled()?, after.pooled()?].map(|pooled| metric.of_pooled(pooled));
        Some(Self { name: name.to_owned(), before, after })
    }

    /// By how much it is worse; of a metric that has no better direction, how far it moved.
    fn worse_by(&self, better: Better) -> f64 {
        let change = match (self.before.is_finite(), self.after.is_finite()) {
            (true, true) => self.after - self.before,
            (false, false) => return 0.0,
            // Whichever way is better, a number that is no longer finite is worse.
            (true, false) => return f64::INFINITY,
            (false, true) => return f64::NEG_INFINITY,
        };
        match better {
            Better::Lower => change,
            Better::Higher => -change,
            Better::Unknown => change.abs(),
        }
    }

    /// What shares of a cluster are shares of: its own baseline or the pooled one, whichever is larger, so that a cluster near
    /// zero may move as far as the others.
    fn whole(&self, pooled: f64) -> f64 {
        f64::max(self.before.abs(), pooled.abs())
    }

    pub(super) fn exceeds(&self, margin: Margin, pooled: f64, better: Better) -> bool {
        let worse_by = self.worse_by(better);
        worse_by > 0.0 && margin.is_exceeded(self.whole(pooled), worse_by)
    }
}

/// The clusters that explain a change: those that got worse the most, the worst first.
pub(super) fn worst(clusters: &[Cluster], pooled: f64, better: Better) -> Vec<Cluster> {
    let share = |cluster: &Cluster| match cluster.whole(pooled) {
        whole if whole > 0.0 && whole.is_finite() => cluster.worse_by(better) / whole,
        _ => cluster.worse_by(better),
    };
    let mut worse: Vec<Cluster> =
        clusters.iter().filter(|cluster| cluster.worse_by(better) > 0.0).cloned().collect();
    worse.sort_by(|a, b| share(b).total_cmp(&share(a)));
    worse.truncate(NAMED);
    worse
}
