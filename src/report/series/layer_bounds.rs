//! What bounds the cache of each layer, from the columns of a row: the policy's size or the window that the layer has.

use crate::ledger::Row;
use crate::report::series::is_shared;

/// One layer's cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LayerBound {
    /// The policy's size, where it is that which bounds the layer: where the policy holds and is smaller than the window.
    pub size: Option<u32>,
    /// Tokens that a query of the layer sees, if that is limited.
    pub window: Option<u32>,
}

/// What the column `windows` has for a layer without a cache of its own.
const NO_CACHE: &str = "none";

/// The layers of a row's cache, one for all where they are alike. `None` where the row does not say: with sizes by layer or head, in rows of
/// earlier versions for models with windows, where a window does not slide, and where entries do not leave one by one from a full cache on.
pub(crate) fn layer_bounds(row: &Row) -> Option<Vec<LayerBound>> {
    let one_by_one = row.schedule.as_deref().is_none_or(|schedule| schedule == "1" || schedule == "cut+1");
    // Heads that share their entries hold as many as others, all together.
    let has_sizes = row.budget.as_deref().is_some_and(|budget| !budget.starts_with("pool "));
    if !one_by_one || has_sizes || (row.local_layers.is_some() && row.windows.is_none()) {
        return None;
    }
    let windows: Vec<Option<u32>> = match row.windows.as_deref() {
        None => vec![None],
        Some(windows) => {
            let of_layer = |window: &str| match window {
                "-" => Some(None),
                window => window.parse().ok().map(Some),
            };
            let caches = windows.split(' ').filter(|window| *window != NO_CACHE);
            caches.map(of_layer).collect::<Option<_>>()?
        }
    };
    let is_exempt = row.local_layers.as_deref() == Some("exempt");
    let bound = |window: Option<u32>| {
        let size = row.cache_size.filter(|_| !is_shared(row));
        LayerBound { size: size.filter(|size| window.is_none_or(|window| *size < window && !is_exempt)), window }
    };
    Some(windows.into_iter().map(bound).collect())
}

impl LayerBound {
    /// Tokens of a text that are no longer in the cache because of the policy. Where a window alone removes tokens, it does so in
    /// the full cache too.
    pub fn evicted(self, tokens: u64) -> u64 {
        self.size.map_or(0, |size| tokens.saturating_sub(size.into()))
    }

    /// Mean steps that a token of a text is visible, at least and at most: the mean over t of min(t, k + 1), or of min(t, window). Where
    /// a window takes an entry, the policy need not evict one.
    pub fn mean_lifetime(self, length: u32) -> [f64; 2] {
        let most = match self {
            LayerBound { size: Some(size), window: None } => [size.saturating_add(1); 2],
            LayerBound { size: Some(size), window: Some(_) } => [size, size.saturating_add(1)],
            LayerBound { size: None, window } => [window.unwrap_or(u32::MAX); 2],
        };
        most.map(|most| {
            let sum: u64 = (1..=length).map(|t| u64::from(t.min(most))).sum();
            sum as f64 / f64::from(length.max(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_bounded_by_size_or_window() {
        let row = |policy: &str, size: u32, local_layers: Option<&str>, windows: Option<&str>| Row {
            policy: policy.into(),
            cache_size: Some(size),
            local_layers: local_layers.map(Into::into),
            windows: windows.map(Into::into),
            ..Row::default()
        };
        let sizes =
            |row: &Row| layer_bounds(row).map(|layers| layers.iter().map(|layer| layer.size).collect::<Vec<_>>());
        assert_eq!(sizes(&row("tova", 8, None, None)), Some(vec![Some(8)]));
        for (size, local_layers, expected) in [
            (8, "bounded", [Some(8), Some(8)]),
            (24, "bounded", [None, Some(24)]),
            (64, "bounded", [None, Some(64)]),
            (8, "exempt", [None, Some(8)]),
        ] {
            assert_eq!(sizes(&row("tova", size, Some(local_layers), Some("24 -"))), Some(expected.to_vec()));
        }
        assert_eq!(sizes(&row("truncate", 8, None, Some("24 -"))), Some(vec![None; 2]));
        assert_eq!(sizes(&row("tova", 8, Some("bounded"), None)), None);
        assert_eq!(sizes(&Row { budget: Some("pyramid 20".into()), ..row("tova", 8, None, None) }), None);
    }

    #[test]
    fn lifetimes_by_hand() {
        let of = |size: Option<u32>, window: Option<u32>| LayerBound { size, window }.mean_lifetime(6);
        // 1 + 2 + 3 + 3 + 3 + 3; with a window at least 1 + 2 + 2 + 2 + 2 + 2.
        assert_eq!(of(Some(2), None), [15.0 / 6.0; 2]);
        assert_eq!(of(Some(2), Some(4)), [11.0 / 6.0, 15.0 / 6.0]);
        assert_eq!((of(None, Some(2)), of(None, None)), ([11.0 / 6.0; 2], [21.0 / 6.0; 2]));
    }
}
