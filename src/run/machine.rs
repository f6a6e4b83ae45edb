//! The machine that runs a sweep: devices, threads and memory, and how jobs share them.
//!
//! Nothing here changes the number in a row, except that timed cells have the whole machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};

use super::prepare::{ModelTask, NamedCell};
use crate::eviction::formula::Word;
use crate::eviction::{CacheOptions, CacheRule, RecordedAttention, Score};
use crate::format::Bytes;
use crate::lm::{BLOCK, Device, LanguageModel, SEGMENT, SEGMENT_ON_GPU, available_memory, card_memory};
use crate::task::{CHUNK, CacheConfig};

/// Settings of a run that change no result.
pub struct Machine {
    /// One for each job, at least one. Jobs measure different cells at the same time.
    pub devices: Vec<Device>,
    /// The threads of all jobs together.
    pub threads: usize,
    /// Ends the run after the current layer.
    pub stop: Arc<AtomicBool>,
}

/// One of the jobs of a machine.
pub(super) struct Job<'a> {
    pub device: &'a Device,
    pub threads: usize,
    /// The number of jobs whose caches share a memory with this one's.
    pub jobs_on_device: usize,
    pub stop: &'a Arc<AtomicBool>,
}

impl Machine {
    /// A job for each of the first `jobs` devices, with a part of the threads.
    pub(super) fn jobs(&self, jobs: usize) -> impl ExactSizeIterator<Item = Job<'_>> {
        self.devices[..jobs].iter().enumerate().map(move |(index, device)| {
            let threads = self.threads * (index + 1) / jobs - self.threads * index / jobs;
            let on_device =
                self.devices[..jobs].iter().filter(|other| other.gpu_of_caches() == device.gpu_of_caches());
            Job { device, threads: threads.max(1), jobs_on_device: on_device.count(), stop: &self.stop }
        })
    }
}

/// A timed task fills the memory that it grants, so the machine must have it.
pub(super) fn check_memory(model_task: &ModelTask, model: &LanguageModel) -> Result<()> {
    let Some(granted) = model_task.task.granted_memory else { return Ok(()) };
    let caches = granted.0.saturating_sub(model.weight_bytes());
    match available_memory() {
        Some(free) if caches > free => bail!(
            "the task's `memory` of {granted} leaves {} to caches, and this machine has {} free; grant it less",
            Bytes(caches),
            Bytes(free)
        ),
        _ => Ok(()),
    }
}

/// The workers of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Workers {
    pub workers: usize,
    /// Threads of each worker.
    pub threads: usize,
    /// The most texts that a worker generates at the same time.
    pub side_by_side: usize,
}

/// The most texts at once on a GPU, where the scan of a few dozen takes as long as their products.
const MOST_ON_GPU: usize = 64;

/// The most texts that a worker of the CPU generates at once. More share hardly more of the work of reading a weight.
pub(super) const MOST_SIDE_BY_SIDE: usize = 16;

/// Counts the workers that cores and memory, or the memory of a GPU, allow, and the texts that each has memory for. Timed tasks have one
/// worker.
pub(super) fn workers(model_task: &ModelTask, device: &Device, threads: usize, jobs: usize) -> Workers {
    if model_task.task.is_timed() {
        return Workers { workers: 1, threads, side_by_side: 1 };
    }
    let largest = model_task.samples.largest_batch();
    let on_gpu = device.gpu_of_caches().is_some();
    let card = device.gpu_of_caches().and_then(|_| card_memory());
    let on_host = model_task.cells.iter().any(|cell| model_task.why_on_host(cell).is_some());
    let (most, texts) = match card {
        Some(_) if !on_host => {
            let texts = largest.min(MOST_ON_GPU);
            (MOST_ON_GPU / texts, texts)
        }
        _ => (threads, largest.min(MOST_SIDE_BY_SIDE)),
    };
    // Beside caches on the host, other cells' are on the GPU.
    let on_card = card.map(|(free, _)| free as u64);
    let free = on_card.into_iter().chain(available_memory().filter(|_| on_host || card.is_none())).min();
    // Beside a GPU one thread of the host asks for a text's work and waits.
    let threads_of = |workers: usize| if card.is_some() { 1 } else { (threads / workers).max(1) };
    let room = free.map_or(u64::MAX, |bytes| bytes * 8 / 10);
    let fits = |workers: usize, texts: usize| {
        let per_text = bytes_per_worker(model_task, threads_of(workers), on_gpu);
        per_text * (texts * jobs * workers) as u64 <= room
    };
    let side_by_side = (1..=texts).rev().find(|texts| fits(1, *texts)).unwrap_or(1);
    let workers = (1..=most).rev().find(|workers| fits(*workers, side_by_side)).unwrap_or(1);
    Workers { workers, threads: threads_of(workers), side_by_side }
}

/// Memory of an NVIDIA H200.
pub const H200_BYTES: u64 = 141_000_000_000;

/// What CUDA and cuBLAS take of a GPU's memory.
const SET_ASIDE: u64 = 2_000_000_000;

/// Counts the texts that a GPU of `memory` bytes reads at once beside the weights; 0 where these alone do not fit.
pub fn texts_on_card(model_task: &ModelTask, memory: u64) -> usize {
    let weights = model_task.files.held_bytes(model_task.model.dtype, &Device::CPU);
    let room = memory.saturating_sub(weights + SET_ASIDE) * 8 / 10;
    let fits = room / bytes_per_worker(model_task, 1, true).max(1);
    usize::try_from(fits).unwrap_or(usize::MAX).min(MOST_ON_GPU)
}

/// Bounds the bytes that a worker of `threads` threads holds while it measures a task: the needed part of the full cache, a bounded
/// cache, every key of the text where lost attention is measured, the states of both caches, and for each thread the rows it takes
/// through a layer and the logits of a block. A GPU takes more rows at once.
pub fn bytes_per_worker(model_task: &ModelTask, threads: usize, on_gpu: bool) -> u64 {
    let shape = &model_task.files.shape;
    let longest = model_task.samples.longest();
    let configs: Vec<_> = model_task.cells.iter().map(|cell| model_task.cache_config(cell)).collect();
    let full = model_task.samples.full_cache_tokens(&configs);
    let held = |cell: &NamedCell| -> Vec<usize> {
        let entries = match cell.cell.cache.rule {
            CacheRule::Unbounded => vec![0; shape.cached_layers().len() * shape.heads.kv_heads],
            _ => model_task.task.cache_entries(&cell.cell.cache, shape),
        };
        entries.into_iter().map(|size| size.saturating_add(BLOCK).min(longest)).collect()
    };
    let bounded: Vec<Vec<usize>> = model_task.cells.iter().map(held).collect();
    let bounded_bytes =
        bounded.iter().map(|heads| shape.cache_bytes_by_head(heads, CacheOptions::default())).max().unwrap_or(0);
    let most = bounded.into_iter().flatten().max().unwrap_or(0);
    let loses = configs.iter().any(|config| config.measures_loss() && config.evicting(longest).is_some());
    // Without the values; a latent vector is both.
    let all_keys =
        if loses { shape.prefix_bytes(longest) / if shape.latent.is_some() { 1 } else { 2 } } else { 0 };
    let at_once = full.max(longest.min(CHUNK));
    let states = (3 * at_once * shape.hidden * size_of::<f32>()) as u64;
    let rows = if on_gpu { SEGMENT_ON_GPU.min(longest) } else { SEGMENT };
    let segment = (rows * (8 * shape.hidden + 3 * shape.mlp_width()) * size_of::<f32>()) as u64;
    let columns = full.max(most) + BLOCK;
    // On a GPU a block of a bounded cache may be there by columns too.
    let turned = if on_gpu { most + BLOCK } else { 0 };
    let blocks = (BLOCK * shape.heads.heads * (columns + turned) * size_of::<f32>()) as u64;
    // A text whose attention is recorded is read with the full cache first.
    let bytes_recorded = |scope| {
        shape.cached_layers().len() as u64 * RecordedAttention::bytes(longest, shape.heads, scope)
            + shape.prefix_bytes(longest)
    };
    let rules = model_task.cells.iter().map(|cell| cell.cell.cache.rule);
    let recorded = rules.filter_map(CacheRule::reads_future).map(bytes_recorded).max().unwrap_or(0);
    // Scores of each policy that cuts the prompt remember all its tokens, those of the other caches one cache at a time.
    let bytes_remembered = |config: &CacheConfig| {
        let policy = config.cache.rule.sized()?;
        let of_score = |score: Score| {
            score.remembered_bytes(policy.size, shape.heads, policy.scope, (shape.head_dim, shape.hidden))
        };
        let of_layer = policy.scores().map(of_score).sum::<usize>();
        let most = if policy.selects() { usize::MAX } else { policy.size.saturating_add(BLOCK) };
        let (layers, bounded) = (shape.cached_layers().len(), longest.min(most));
        let is_kivi = config.cache.options.format.kivi_bits().is_some();
        let entries = match policy.horizon().filter(|_| policy.schedule.cuts() && !is_kivi && !shape.has_windows())
        {
            // Queries of the last rows are kept in place of lists, which one layer has at its cut, or all that share a pool.
            Some(_) if !policy.selects() && !policy.budget.pools_model() => longest + layers * bounded,
            _ if config.cuts() => layers * longest,
            _ => layers * bounded,
        };
        let queries = layers * policy.horizon().unwrap_or(0).min(longest) * shape.heads.heads * shape.head_dim;
        // A second reading has the prompt, and itself, once more.
        let again = policy.score.has(Word::RereadAttention);
        let bytes = (of_layer * entries + queries * size_of::<f32>()) as u64
            + u64::from(again) * shape.prefix_bytes(2 * longest);
        Some((config.cuts().then(|| config.cache.rule.definition()), bytes))
    };
    let mut by_policy: BTreeMap<_, u64> = BTreeMap::new();
    for (policy, bytes) in configs.iter().filter_map(bytes_remembered) {
        let largest = by_policy.entry(policy).or_default();
        *largest = bytes.max(*largest);
    }
    let remembered = by_policy.values().sum::<u64>();
    // Keys whose positions change are kept twice.
    let per_text = shape.prefix_bytes(full) + recorded + remembered + bounded_bytes * 3 / 2 + all_keys + states;
    per_text + (segment + blocks) * threads as u64 + (64 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lm::source::HubSettings;
    use crate::sweep::{Selection, Sweep};

    #[test]
    fn every_key_counts_where_lost_attention_is_measured() {
        let bytes = |policies: &str, compares: bool| {
            let text = format!(
                "models: [random-tiny]\npolicies: {policies}\ncache_sizes: [8]\ntasks: [{{perplexity: {{dataset: \
                 random-words, length: 300, books: 1, chunks_per_book: 1, compare_to_full: {compares}}}}}]\n"
            );
            let sweep = Sweep::parse(&text, "a.yaml").unwrap();
            let hub = HubSettings::with_cache_dir("nowhere");
            let prepared =
                super::super::prepare(&sweep, &Selection::default().of(&sweep).unwrap(), None, &hub, &(), "")
                    .unwrap();
            bytes_per_worker(&prepared.model_tasks[0], 1, false)
        };
        // With `full` the whole text's cache is there anyway. 2 layers of 2 heads, whose keys have 8 numbers of 4 bytes.
        let all_keys = |policies| bytes(policies, true) - bytes(policies, false);
        assert_eq!(all_keys("[full, tova]"), 2 * 2 * 8 * 4 * 300);
        // Without absolute positions, or evictions, it is not measured.
        assert_eq!(all_keys("[full, tova@slot, truncate]"), 0);
    }
}
