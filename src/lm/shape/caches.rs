//! What caches of a network hold under a policy: entries of every head, and their bytes.

use anyhow::Result;

use super::config::ModelShape;
use super::parts::LayerAttention;
use crate::eviction::{CacheOptions, CacheSpec, LocalLayers, SizedPolicy, VectorFormat};
use crate::vector;

/// Tokens whose logits are computed as one product. Larger blocks mean larger products with more evicted columns:
/// with 512 entries 64 and 128 were equally fast and 256 was 7 % slower; with 128 entries 64 was 4 % faster.
pub const BLOCK: usize = 128;

impl ModelShape {
    /// Indices of the layers that own a cache; policies act on these only.
    pub fn cached_layers(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        let layers: Vec<usize> = (0..self.layers).filter(|layer| self.attention[*layer].has_cache()).collect();
        layers.into_iter()
    }

    /// Indices and settings of the layers that own a cache.
    pub fn caches(&self) -> impl Iterator<Item = (usize, &LayerAttention)> {
        self.cached_layers().map(|layer| (layer, &self.attention[layer]))
    }

    /// Bytes of one entry of one head of a layer in f32: a key and a value, or the latent vector that is both.
    fn entry_bytes(&self, layer: usize) -> u64 {
        let times = if self.latent.is_some() { 1 } else { 2 };
        (times * self.head_dim_of(layer) * size_of::<f32>()) as u64
    }

    /// Bytes of `held` entries of one head of a layer in the options' format. `of_vectors` returns those of vectors, from their length and number.
    fn bytes_of(
        &self,
        layer: usize,
        CacheOptions { format, .. }: CacheOptions,
        held: usize,
        of_vectors: fn(VectorFormat, usize, usize) -> usize,
    ) -> u64 {
        let dim = self.head_dim_of(layer);
        let of_values = if self.latent.is_some() { 0 } else { of_vectors(format.values, dim, held) };
        of_vectors(format.keys, dim, held).saturating_add(of_values) as u64
    }

    /// Bytes of all keys and values of the first `tokens` of a text, as caches that branch off need them: also of tokens that a
    /// layer's window has passed.
    pub fn prefix_bytes(&self, tokens: usize) -> u64 {
        let of_layer = |layer| self.heads_of(layer).kv_heads as u64 * self.entry_bytes(layer);
        self.cached_layers().map(of_layer).sum::<u64>() * tokens as u64
    }

    /// Largest number of entries that every key-value head of every layer holds: the policy's size, but no more than the layer's
    /// window; `usize::MAX` where nothing bounds it. For heads that share their entries it is the mean.
    pub fn most_entries(&self, policy: Option<SizedPolicy>, options: CacheOptions) -> Vec<usize> {
        let of_layer = |(index, layer, policy): (usize, &LayerAttention, Option<SizedPolicy>)| {
            let most = self.by_head(index, policy, usize::MAX, SizedPolicy::most);
            most.into_iter().map(|most| most.min(layer.window.unwrap_or(usize::MAX))).collect::<Vec<_>>()
        };
        self.with_policies(policy, options).flat_map(of_layer).collect()
    }

    /// Indices and settings of the layers that own a cache, with the policy of each.
    fn with_policies(
        &self,
        policy: Option<SizedPolicy>,
        options: CacheOptions,
    ) -> impl Iterator<Item = (usize, &LayerAttention, Option<SizedPolicy>)> {
        let bounded = self.bounded_layers(options);
        let policies = policy.map_or(vec![None; bounded.len()], |policy| policy.of_layers(bounded));
        self.caches().zip(policies).map(|((index, layer), policy)| (index, layer, policy))
    }

    /// Refuses a cache that the model cannot have, with texts of up to `tokens`.
    ///
    /// # Errors
    /// Positions that the model's rotations do not have; a budget for other layers or heads, or one that leaves some too small for
    /// what is protected; vectors of a score that do not fit; and what layers with a window cannot have.
    pub fn check_cache(&self, cache: &CacheSpec, tokens: usize) -> Result<()> {
        self.check_options(cache.options)?;
        let Some(policy) = cache.rule.sized() else { return cache.rule.check() };
        policy.check(self.bounded_layers(cache.options), self.heads.kv_heads)?;
        policy.scores().try_for_each(|score| self.check_score(score))?;
        if cache.options.local_layers == LocalLayers::Bounded && self.windows_pass(tokens) {
            policy.check_windows()
        } else {
            Ok(())
        }
    }

    /// Says for each layer that owns a cache whether a policy bounds it.
    pub fn bounded_layers(&self, options: CacheOptions) -> &'static [bool] {
        options.local_layers.bounded(self.caches().map(|(_, layer)| layer.window))
    }

    /// Number of groups of heads that decide for themselves in each layer that owns a cache. It is 1 where only a window bounds a
    /// layer, because all its heads then keep the same entries.
    pub fn decision_groups(&self, policy: Option<SizedPolicy>, options: CacheOptions) -> Vec<usize> {
        let layers = self.with_policies(policy, options);
        let groups = |index: usize, policy: SizedPolicy| self.heads_of(index).groups(policy.scope);
        layers.map(|(index, _, policy)| policy.map_or(1, |policy| groups(index, policy))).collect()
    }

    /// Asks `of` for a number of each key-value head of a layer under the head's policy; `without` is the number of all heads if no
    /// policy bounds the layer.
    fn by_head(
        &self,
        layer: usize,
        policy: Option<SizedPolicy>,
        without: usize,
        of: impl Fn(SizedPolicy) -> usize,
    ) -> Vec<usize> {
        let kv_heads = self.heads_of(layer).kv_heads;
        policy.map_or(vec![without; kv_heads], |policy| policy.of_heads(kv_heads).map(of).collect())
    }

    /// Entries of every key-value head of every layer after `tokens`, of which the first `prompt` are the prompt. For heads that
    /// share their entries it is the mean.
    pub fn entries_after(
        &self,
        (policy, options): (Option<SizedPolicy>, CacheOptions),
        tokens: usize,
        prompt: usize,
    ) -> Vec<usize> {
        let of_layer = |(index, layer, policy): (usize, &LayerAttention, Option<SizedPolicy>)| {
            let held = self.by_head(index, policy, tokens, |policy| policy.entries_after(tokens, prompt));
            held.into_iter().map(|held| held.min(tokens - layer.first_seen(tokens))).collect::<Vec<_>>()
        };
        self.with_policies(policy, options).flat_map(of_layer).collect()
    }

    /// Whether the layers that a policy bounds hold entries of one length, and no window takes any of a text of `tokens`: then what all
    /// layers hold does not depend on how they divide it.
    pub fn has_layers_alike(&self, options: CacheOptions, tokens: usize) -> bool {
        let bounded = self.caches().zip(self.bounded_layers(options)).filter(|(_, is_bounded)| **is_bounded);
        let mut dims = bounded.map(|((index, layer), _)| {
            layer.window.is_none_or(|window| window >= tokens).then(|| self.head_dim_of(index))
        });
        let first = dims.next().flatten();
        first.is_some() && dims.all(|dim| dim == first)
    }

    /// Returns a function from tokens that were read to the bytes of keys, values and states that a cache holds then, in its format; f32
    /// counts as 16 bits, and KIVI's groups as if none of their entries had been evicted.
    /// The first `prompt` of the tokens are the prompt; a cache that is cut has been cut after them.
    pub fn held_bytes(
        &self,
        cache: (Option<SizedPolicy>, CacheOptions),
        prompt: usize,
    ) -> impl Fn(usize) -> u64 + '_ {
        let states = self.state_bytes() / 2;
        let of_entries = self.bytes_after(cache, move |policy, tokens| (policy.entries_after(tokens, prompt), 0));
        move |tokens| states + of_entries(tokens)
    }

    /// Returns a function from tokens that were read to the bytes that the next step reads of a cache, counted as those that it
    /// [holds](Self::held_bytes): all of them, or, where queries select, the entries that they attend to, and the least and largest numbers
    /// of the keys of pages, 16 bits each, by which these are chosen. What another score reads to choose is not counted.
    pub fn read_bytes(
        &self,
        cache: (Option<SizedPolicy>, CacheOptions),
        prompt: usize,
    ) -> impl Fn(usize) -> u64 + '_ {
        let states = self.state_bytes() / 2;
        let of_entries = self.bytes_after(cache, move |policy, tokens| policy.read_after(tokens, prompt));
        move |tokens| states + of_entries(tokens)
    }

    /// Returns a function from tokens that were read to counted bytes of keys and values of all heads: of as many entries of each head as
    /// `of_head` says, and of the bounds of so many pages.
    fn bytes_after(
        &self,
        (policy, options): (Option<SizedPolicy>, CacheOptions),
        of_head: impl Fn(SizedPolicy, usize) -> (usize, usize),
    ) -> impl Fn(usize) -> u64 {
        // Heads that hold the same number of entries of the same length at any time, and how many these are.
        let mut alike: Vec<(usize, Option<SizedPolicy>, u64)> = Vec::new();
        let of_layer = |layer: usize| {
            let LayerAttention { window, is_chunked, .. } = self.attention[layer];
            (window, is_chunked, self.head_dim_of(layer))
        };
        for (index, _, policy) in self.with_policies(policy, options) {
            let kv_heads = self.heads_of(index).kv_heads;
            let heads =
                policy.map_or(vec![None; kv_heads], |policy| policy.of_heads(kv_heads).map(Some).collect());
            for head in heads {
                let is_alike = |(other, policy, _): &&mut (usize, Option<SizedPolicy>, u64)| {
                    of_layer(*other) == of_layer(index)
                        && policy.map(|policy| policy.size) == head.map(|head| head.size)
                };
                match alike.iter_mut().find(is_alike) {
                    Some((_, _, heads)) => *heads += 1,
                    None => alike.push((index, head, 1)),
                }
            }
        }
        move |tokens| {
            let bytes = |(layer, policy, heads): &(usize, Option<SizedPolicy>, u64)| {
                let (entries, pages) = policy.map_or((tokens, 0), |policy| of_head(policy, tokens));
                let entries = entries.min(tokens - self.attention[*layer].first_seen(tokens));
                let bounds =
                    (2 * pages * VectorFormat::default().counted_bytes(self.head_dim_of(*layer), 1)) as u64;
                heads * (self.bytes_of(*layer, options, entries, VectorFormat::counted_bytes) + bounds)
            };
            alike.iter().map(bytes).sum::<u64>()
        }
    }

    /// Bytes of an unbounded cache after `tokens` of a text: an entry for each token in every layer. A layer with a window has room
    /// for the window and one block, as a bounded cache has for its size and one block.
    pub fn cache_bytes(&self, tokens: usize, options: CacheOptions) -> u64 {
        let room = |layer: &LayerAttention| {
            layer.window.map_or(usize::MAX, |window| vector::padded(window.saturating_add(BLOCK)))
        };
        let rooms =
            self.caches().map(|(index, layer)| vec![room(layer).min(tokens); self.heads_of(index).kv_heads]);
        self.cache_bytes_by_head(&rooms.flatten().collect::<Vec<_>>(), options)
    }

    /// Bytes that the keys and values of `entries[h]` entries of each key-value head `h` take in the options' format, and the states that layers keep
    /// without a cache, in f32.
    pub fn cache_bytes_by_head(&self, entries: &[usize], options: CacheOptions) -> u64 {
        self.bytes_by_head(entries, options, VectorFormat::taken_bytes).saturating_add(self.state_bytes())
    }

    /// Bytes that the keys and values of `entries[h]` entries of each key-value head `h` count for, as of [`held_bytes`](Self::held_bytes).
    pub fn held_bytes_by_head(&self, entries: &[usize], options: CacheOptions) -> u64 {
        self.bytes_by_head(entries, options, VectorFormat::counted_bytes) + self.state_bytes() / 2
    }

    fn bytes_by_head(
        &self,
        entries: &[usize],
        options: CacheOptions,
        of_vectors: fn(VectorFormat, usize, usize) -> usize,
    ) -> u64 {
        let heads = |layer| std::iter::repeat_n(layer, self.heads_of(layer).kv_heads);
        let heads = self.cached_layers().flat_map(heads).zip(entries);
        heads.map(|(layer, held)| self.bytes_of(layer, options, *held, of_vectors)).fold(0, u64::saturating_add)
    }

    /// Bytes of the states of fixed size that layers have without a cache, in f32.
    pub fn state_bytes(&self) -> u64 {
        let count = self.attention.iter().filter(|layer| layer.is_recurrent).count() as u64;
        self.delta.map_or(0, |delta| {
            let numbers =
                delta.value_heads * delta.key_dim * delta.value_dim + (delta.kernel - 1) * delta.channels();
            count * (numbers * size_of::<f32>()) as u64
        })
    }
}
