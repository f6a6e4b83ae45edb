//! One cluster on both sides: a book, a story, a paper. A pooled number hides what happened to a few of them.

use serde::Serialize;

use crate::metric::{Better, Metric};
use crate::report::Sums;

/// The number of clusters that are named of a point.
const NAMED: usize = 5;

/// A metric of one cluster, in the unit shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    pub name: String,
    pub before: f64,
    pub after: f64,
}

impl Cluster {
    /// Computes `metric` of the cluster `name`; `None` where one side weighs nothing.
    pub(super) fn of(metric: &Metric, name: &str, [before, after]: &[Sums; 2]) -> Option<Self> {
        let [before, after] = [before.pooled()?, after.pooled()?].map(|pooled| metric.of_pooled(pooled));
        Some(Self { name: name.to_owned(), before, after })
    }

    /// The share by which the cluster got worse, negative where it got better; of a metric without a better direction, the share
    /// by which it moved. It is a share of the cluster's baseline or of `pooled`, the baseline of all clusters, whichever is
    /// larger, so that a cluster near zero may move as far as the others.
    pub(super) fn worse_by(&self, pooled: f64, better: Better) -> f64 {
        let change = match (self.before.is_finite(), self.after.is_finite()) {
            (true, true) => self.after - self.before,
            (false, false) => return 0.0,
            // Whichever way is better, a number that is no longer finite is worse.
            (true, false) => return f64::INFINITY,
            (false, true) => return f64::NEG_INFINITY,
        };
        let worse = match better {
            Better::Lower => change,
            Better::Higher => -change,
            Better::Unknown => change.abs(),
        };
        worse / f64::max(self.before.abs(), pooled.abs()).max(f64::MIN_POSITIVE)
    }
}

/// The clusters that explain a change of the baseline `pooled`: those that got worse the most, the worst first.
pub(super) fn worst(mut clusters: Vec<Cluster>, pooled: f64, better: Better) -> Vec<Cluster> {
    clusters.retain(|cluster| cluster.worse_by(pooled, better) > 0.0);
    clusters.sort_by(|a, b| b.worse_by(pooled, better).total_cmp(&a.worse_by(pooled, better)));
    clusters.truncate(NAMED);
    clusters
}
