//! Which caches a GPU holds, and why the host holds the others.

use std::borrow::Cow;

use crate::eviction::{CacheEntries, CacheOptions, Positions, SizedPolicy};
use crate::lm::shape::config::ModelShape;

impl ModelShape {
    /// Says why kernels of GPUs do not compute attention of this model; `None` where they do.
    pub(in crate::lm) fn why_never_on_gpu(&self) -> Option<&'static str> {
        if self.sinks {
            Some("the model has attention sinks")
        } else if self.latent.is_some() {
            Some("the model's caches hold latent vectors")
        } else if self.cached_layers().len() != self.layers {
            Some("not every layer of the model has a cache of its own")
        } else {
            let is_chunked = self.attention.iter().any(|layer| layer.is_chunked && layer.window.is_some());
            is_chunked.then_some("the model's windows do not slide")
        }
    }

    /// Says why the host holds caches of a policy, `None` for the full cache, and computes their attention although there is a GPU;
    /// `None` where the GPU does, in all layers that the policy bounds.
    pub fn why_on_host(&self, policy: Option<SizedPolicy>, options: CacheOptions) -> Option<Cow<'static, str>> {
        if let Some(of_model) = self.why_never_on_gpu() {
            return Some(of_model.into());
        }
        if options.format.is_rounded() {
            return Some(format!("keys and values are in {}", options.format).into());
        }
        let policy = policy?;
        if options.positions != Positions::Absolute {
            return Some(format!("positions `{}` turn keys again", options.positions.name()).into());
        }
        let layers = policy.of_layers(self.bounded_layers(options));
        let of_layer = |(layer, policy): (usize, Option<SizedPolicy>)| {
            let entries = CacheEntries::bounded(self.heads_of(layer), policy?, 0);
            entries.with_window(self.attention[layer].window, false).with_last_rows().why_not_on_device()
        };
        self.cached_layers().zip(layers).find_map(of_layer).map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::presets::PRESETS;
    use crate::eviction::{LocalLayers, Policy};
    use crate::lm::cache::layer_cache::Tables;
    use crate::lm::{LayerAttention, Memory, MemoryPlan, tiny_shape};

    /// What is said is what happens: with a reason, some layer that the policy bounds is on the host, and without one none is.
    #[test]
    fn reasons_agree_with_where_caches_are() {
        let plain = tiny_shape();
        let mut windows = tiny_shape();
        windows.attention[0] = LayerAttention { window: Some(24), ..windows.attention[0] };
        let (mut on_gpu, mut on_host) = (0, 0);
        for (shape, local_layers) in
            [(&plain, LocalLayers::Bounded), (&windows, LocalLayers::Bounded), (&windows, LocalLayers::Exempt)]
        {
            let bounded = shape.bounded_layers(CacheOptions { local_layers, ..CacheOptions::default() });
            let presets = PRESETS.iter().filter_map(|preset| preset.policy().ok());
            let schedules = ["1", "7", "cut", "cut+1", "cut+16"].map(|text| text.parse().unwrap());
            let policies = presets.flat_map(|policy| schedules.map(|schedule| Policy { schedule, ..policy }));
            for (policy, positions) in
                policies.flat_map(|policy| [(policy, Positions::Absolute), (policy, Positions::Slot)])
            {
                let Ok(policy) = policy.at(512) else { continue };
                // Where queries select in no layer, there is nothing to tell.
                let is_idle = policy.of_layers(bounded).iter().all(Option::is_none);
                if is_idle || policy.check(bounded, shape.heads.kv_heads).is_err() {
                    continue;
                }
                let options = CacheOptions { local_layers, positions, ..CacheOptions::default() };
                let plan =
                    MemoryPlan { policy: Some(policy), options, text: 600, expect: 600, ..MemoryPlan::default() };
                let memory = Memory::new(shape, &plan, true);
                let bounded = memory.layers.iter().zip(bounded).filter(|(_, bounded)| **bounded);
                let mut is_held = bounded.map(|(layer, _)| matches!(layer.tables, Tables::Gpu(_)));
                let reason = shape.why_on_host(Some(policy), options);
                assert_eq!(is_held.all(|is_held| is_held), reason.is_none(), "{policy:?}: {reason:?}");
                *(if reason.is_none() { &mut on_gpu } else { &mut on_host }) += 1;
            }
        }
        assert!(on_gpu > 50 && on_host > 500, "{on_gpu} {on_host}");
    }
}
