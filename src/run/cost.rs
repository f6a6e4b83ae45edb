//! Estimates the run time of cells: the tokens that a task counts, at the speed of a machine.
//!
//! An estimate may be a third off. Shards are balanced with the nominal speed, because all machines must split a sweep in the
//! same way, and so is progress counted, whose time left follows from the observed pace. `plan` measures how fast this machine
//! multiplies matrices, and takes everything else to be as much faster or slower.

use anyhow::Result;

use super::machine::{MOST_SIDE_BY_SIDE, workers};
use super::prepare::{ModelTask, NamedCell, Prepared};
use crate::eviction::formula::{Function, Word};
use crate::eviction::{CacheRule, Policy};
use crate::ledger::Status;
use crate::lm::{Arithmetic, Device, ModelShape, matrix_rate};
use crate::task::{CacheConfig, TokenCost, sequences_that_fit};

/// Multiplications and additions a second of the nominal machine, in large products.
const PRODUCTS: f64 = 60e9;

/// Factor by which reading is faster in integers than in f32.
const INTEGERS: f64 = 1.75;

/// The part of the speed of small matrices that reading reaches.
const REACHED: f64 = 0.75;

/// Bytes a second that generating gets from memory.
const MEMORY: f64 = 15e9;

/// Products for a token are this much slower while generating than while reading: of one text, and of very many side by side;
/// nine texts are halfway (SmolLM2 in f32 on two cores of an Intel Xeon, in batches of 1 to 126).
const ONE_ROW: f64 = 2.5;
const MANY_ROWS: f64 = 1.1;

/// Seconds of attention beside its products, for each head and entry: softmax, scores and evictions.
const SCAN: f64 = 0.3e-9;

/// Seconds of a decision on top of [`SCAN`], for each head and entry: under scores that read an entry's key or value, and under those that
/// compare its key with all others or with expected queries.
const VECTOR: f64 = 14e-9;
const VECTORS: f64 = 600e-9;

/// Seconds of a token beside its products, for each layer and number of its state: rotation, norms, copies.
const REST: f64 = 4.0e-9;

/// Fixed cost of one read, in tokens: weights are packed once per read.
const BEGINNING: f64 = 32.0;

/// Bytes of weights that are read and converted a second.
const LOADING: f64 = 5e9;

/// Seconds to write a cell's file.
const FILE: f64 = 5e-3;

/// The estimated seconds of a cell, in two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// The cell's own part.
    pub own: f64,
    /// The full-cache prefix. Cells that are measured together need only the longest of their prefixes.
    pub shared: f64,
}

/// Seconds of the parts of a model's work on the nominal machine.
struct Seconds {
    /// A token through all layers, without attention.
    token: f64,
    /// Attention of a token to one entry of each layer.
    entry: f64,
    /// The probabilities after a token.
    logits: f64,
    /// Reading all weights from memory.
    weights: f64,
    /// A launch of a kernel in a step of writing.
    launch: f64,
}

impl Seconds {
    /// Counts the weights of all layers and of the output, and the query heads of all layers.
    fn sizes(shape: &ModelShape) -> [f64; 3] {
        let layers = shape.layers * shape.layer_weights();
        [layers, shape.vocab * shape.hidden, shape.layers * shape.heads.heads].map(|number| number as f64)
    }

    fn nominal(shape: &ModelShape, arithmetic: Arithmetic) -> Seconds {
        let [layers, output, heads] = Self::sizes(shape);
        let products = if arithmetic == Arithmetic::Fast { INTEGERS * PRODUCTS } else { PRODUCTS };
        Seconds {
            token: 2.0 * layers / products + REST * (shape.layers * shape.hidden) as f64,
            entry: heads * (4.0 * shape.head_dim as f64 / PRODUCTS + SCAN),
            logits: 2.0 * output / products + SCAN * shape.vocab as f64,
            weights: 4.0 * (layers + output) / MEMORY,
            launch: 0.0,
        }
    }

    /// Seconds on an NVIDIA H200 with weights of 16 bits and `texts` at once, at rates that give those which docs/gpu.md has of 4 layers of
    /// LLaMA-2-7B's shape. A policy that `scans` waits for one row after the other, and texts share the wait.
    fn on_h200(shape: &ModelShape, texts: usize, scans: bool) -> Seconds {
        const WEIGHTS: f64 = 700e12;
        const ATTENTION: f64 = 25e12;
        const MEMORY: f64 = 3.25e12;
        let [layers, output, heads] = Self::sizes(shape);
        let waits = if scans { shape.layers as f64 / texts as f64 } else { 0.0 };
        Seconds {
            token: 2.0 * layers / WEIGHTS + 0.3e-9 * (shape.layers * shape.hidden) as f64 + 4.75e-6 * waits,
            entry: heads * 4.0 * shape.head_dim as f64 / ATTENTION + 0.011e-6 * waits,
            logits: 2.0 * output / WEIGHTS,
            weights: 2.0 * (layers + output) / MEMORY,
            launch: 25e-6 * shape.layers as f64,
        }
    }

    /// Estimates the seconds of `reads` reads of `tokens` tokens in all, each of which attends to `entries` entries; without tokens there
    /// is no read.
    fn read(&self, reads: usize, tokens: usize, entries: f64) -> f64 {
        let (reads, tokens) = (if tokens == 0 { 0 } else { reads }, tokens as f64);
        (BEGINNING * reads as f64 + tokens) * self.token + tokens * entries * self.entry
    }

    /// Estimates the seconds of one token of each of `texts` texts that are generated side by side and attend to `entries` entries.
    fn step(&self, texts: usize, entries: f64) -> f64 {
        let texts = texts as f64;
        let slower = MANY_ROWS + (ONE_ROW - MANY_ROWS) * 8.0 / (7.0 + texts);
        self.weights
            + self.launch * (39.0 + 2.0 * texts)
            + texts * (slower * (self.token + self.logits) + entries * self.entry)
    }
}

impl Cost {
    /// The cost of all samples of a cell on the nominal machine, if texts are generated to their full length.
    pub(super) fn nominal(model_task: &ModelTask, cell: &NamedCell) -> Cost {
        let shape = &model_task.files.shape;
        let seconds = Seconds::nominal(shape, model_task.model.arithmetic);
        let policy = cell.cell.cache.rule.sized();
        let decision = policy.map_or(0.0, |policy| (shape.layers * shape.heads.heads) as f64 * decision(*policy));
        let own = Seconds { entry: seconds.entry + decision, ..seconds };
        Self::of(model_task, cell, (&own, &seconds), slowness(cell), MOST_SIDE_BY_SIDE)
    }

    /// The cost of all samples of a cell on an H200 that reads and writes `texts` at once.
    fn on_h200(model_task: &ModelTask, cell: &NamedCell, texts: usize) -> Cost {
        let seconds = |scans| Seconds::on_h200(&model_task.files.shape, texts, scans);
        let scans = cell.cell.cache.rule.sized().is_some_and(|policy| policy.schedule.every().is_some());
        Self::of(model_task, cell, (&seconds(scans), &seconds(false)), 1.0, texts)
    }

    /// The cost of all samples: `own` seconds for what the cell reads, which takes `slowness` times as long, and those of the full cache.
    fn of(
        model_task: &ModelTask,
        cell: &NamedCell,
        (own, seconds): (&Seconds, &Seconds),
        slowness: f64,
        side_by_side: usize,
    ) -> Cost {
        let config = model_task.cache_config(cell);
        let mut cost = Cost { own: FILE, shared: 0.0 };
        for batch in model_task.samples.batches() {
            let texts = batch.len();
            let tokens = model_task.samples.cost(batch, &config);
            let parts = slowness * own.of_parts(&tokens, &config);
            let again = seconds.read(texts, tokens.read_again, tokens.read_again as f64 / 2.0 / texts as f64);
            let scored = if config.compare { 2 * tokens.scored } else { tokens.scored };
            let reading = parts + again + scored as f64 * seconds.logits;
            let entries = entries(&tokens, &config, texts);
            let step = |texts: usize| seconds.step(texts, entries);
            cost.own += if model_task.task.is_timed() {
                // One sequence, twice, then as many as fit. Without room for one the cell fails, and takes no time.
                sequences(model_task, cell).map_or(0.0, |together| {
                    (2 + together) as f64 * reading + tokens.written as f64 * (step(1) + step(together))
                })
            } else {
                // Texts join where others have ended, so there are always about as many.
                let side_by_side = texts.min(side_by_side);
                reading + tokens.written.div_ceil(side_by_side) as f64 * step(side_by_side)
            };
            cost.shared += seconds.read(1, tokens.shared, tokens.shared as f64 / 2.0);
        }
        cost
    }

    /// What is left of a cell, without the samples that are measured already.
    pub fn left(self, model_task: &ModelTask, cell: &NamedCell) -> Cost {
        let share = 1.0 - model_task.measured(cell).1;
        Cost { own: self.own * share, shared: self.shared * share }
    }
}

impl Seconds {
    /// Estimates the seconds of the parts of texts that a cell reads for itself.
    fn of_parts(&self, tokens: &TokenCost, config: &CacheConfig) -> f64 {
        let of_part = |part: &std::ops::Range<usize>| {
            // What evicted entries would have received is about half of full attention.
            let lost = if config.compare { (part.start + part.end) as f64 / 4.0 } else { 0.0 };
            self.read(1, part.len(), config.attended(part.clone(), tokens.cut) + lost)
        };
        tokens.parts.iter().map(of_part).sum()
    }
}

/// Returns the factor by which a cell reads more slowly, because its products are in f64.
fn slowness(cell: &NamedCell) -> f64 {
    let is_f32 = cell.cell.model.arithmetic == Arithmetic::F32;
    match cell.cell.cache.rule {
        CacheRule::Evict { policy, .. } if policy.score.compares_norms() && is_f32 => 2.0,
        _ => 1.0,
    }
}

/// Seconds for each head and entry that a policy's score takes after a token, beside attention.
fn decision(policy: Policy) -> f64 {
    let score = policy.score;
    let expects = [Function::ExpectedAttention, Function::ExpectedAttentionMean];
    let seconds = if score.has(Word::KeyRedundancy) || expects.into_iter().any(|function| score.calls(function)) {
        VECTORS
    } else if score.has(Word::KeySimilarity) || score.has(Word::OutputShift) {
        VECTOR
    } else {
        0.0
    };
    policy.schedule.every().map_or(0.0, |every| seconds / every as f64)
}

/// Entries that a generated token attends to, on average.
fn entries(tokens: &TokenCost, config: &CacheConfig, texts: usize) -> f64 {
    let read: usize = tokens.parts.iter().map(|part| part.end).sum();
    let held = read as f64 / tokens.parts.len().max(1) as f64 + (tokens.written / texts) as f64 / 2.0;
    let evicting = config.cache.rule.sized().filter(|policy| !policy.selects());
    evicting.map_or(held, |policy| config.mean(policy, |own| held.min(own.size as f64)))
}

/// Sequences of a timed task that fit into the memory that it grants.
fn sequences(model_task: &ModelTask, cell: &NamedCell) -> Option<usize> {
    let shape = &model_task.files.shape;
    let entries = model_task.task.cache_entries(&cell.cell.cache, shape);
    let weights = model_task.files.held_bytes(model_task.model.dtype, &Device::CPU);
    let cache = shape.cache_bytes_by_head(&entries, cell.cell.cache.options);
    sequences_that_fit(model_task.task.granted_memory?, weights, cache)
}

/// The seconds of loading a task's model, which its first cell takes.
pub(super) fn loading(model_task: &ModelTask) -> f64 {
    model_task.files.weight_bytes() as f64 / LOADING
}

/// The seconds that are left of each cell on this machine's processor, by model and task.
///
/// # Errors
/// Threads that cannot be started.
pub fn estimate(prepared: &Prepared, threads: usize) -> Result<Vec<Vec<f64>>> {
    let is_done = |model_task: &ModelTask| model_task.cells.iter().all(|cell| cell.status == Status::Done);
    if prepared.model_tasks.iter().all(is_done) {
        return Ok(prepared.model_tasks.iter().map(|model_task| vec![0.0; model_task.cells.len()]).collect());
    }
    let rate = matrix_rate(threads, Arithmetic::F32)?;
    let of_task = |model_task: &ModelTask| {
        let machine = workers(model_task, &Device::CPU, threads, 1);
        let slower = PRODUCTS / (REACHED * rate * machine.threads as f64 / threads as f64);
        // Workers measure samples and cells side by side.
        let parallel = machine.workers.min(model_task.samples.len() * model_task.cells.len()).max(1) as f64;
        let left = |cell: &NamedCell| (1.0 - model_task.measured(cell).1) * model_task.seconds(cell);
        model_task.cells.iter().map(|cell| slower * left(cell) / parallel).collect()
    };
    Ok(prepared.model_tasks.iter().map(of_task).collect())
}

/// The seconds that a model and a task take on an H200 that has room for `texts` at once, without cells whose attention stays on the host;
/// `None` where no cell or no text is left.
pub fn estimate_on_h200(model_task: &ModelTask, texts: usize) -> Option<f64> {
    let on_card = |cell: &&NamedCell| texts > 0 && model_task.why_on_host(cell).is_none();
    let on_card: Vec<&NamedCell> = model_task.cells.iter().filter(on_card).collect();
    // Samples and cells are measured side by side, as far as there are any.
    let texts = texts.min(model_task.samples.len() * on_card.len());
    let cost = |cell: &&NamedCell| Cost::on_h200(model_task, cell, texts).left(model_task, cell);
    let costs: Vec<Cost> = on_card.iter().map(cost).collect();
    let shared = costs.iter().map(|cost| cost.shared).reduce(f64::max)?;
    Some(shared + costs.iter().map(|cost| cost.own).sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::super::{Started, prepare};
    use super::*;
    use crate::lm::source::HubSettings;
    use crate::sweep::{Selection, Sweep};

    fn prepared(sweep: &str) -> Prepared {
        let sweep = Sweep::parse(sweep, "a.yaml").unwrap();
        let hub = HubSettings::with_cache_dir("nowhere");
        prepare(&sweep, &Selection::default().of(&sweep).unwrap(), None, &hub, &(), "").unwrap()
    }

    /// The nominal costs of the cells of a sweep's first task, without writing their files.
    fn costs(prepared: &Prepared) -> Vec<Cost> {
        let cells = prepared.model_tasks[0].cells.iter();
        cells.map(|cell| Cost { own: cell.cost.own - FILE, ..cell.cost }).collect()
    }

    #[track_caller]
    fn assert_near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} for {b}");
    }

    #[test]
    fn the_cells_of_a_text_by_hand() {
        let prepared = prepared(
            "models: [random-tiny]\npolicies: [full, truncate, tova]\ncache_sizes: [8, 32]\n\
             tasks: [{perplexity: {dataset: random-words, length: 32, books: 2, chunks_per_book: 1}}]\n",
        );
        let Seconds { token, entry, logits, .. } =
            Seconds::nominal(&prepared.model_tasks[0].files.shape, Arithmetic::F32);
        // 32 tokens, which attend to 16 entries on average; 31 are scored.
        let full = (31.0 * logits, 64.0 * token + 32.0 * 16.0 * entry);
        // Four pieces, each with its own beginning, and 4 entries on average.
        let truncate = (4.0 * 40.0 * token + 32.0 * 4.0 * entry + 31.0 * logits, 0.0);
        // 8 tokens attend to 4 entries on average, and 24 to 8.
        let tova = (64.0 * token + (8.0 * 4.0 + 24.0 * 8.0) * entry + 31.0 * logits, 0.0);
        // Caches as large as the text are the full cache.
        let expected = [full, truncate, full, tova, full];
        let costs = costs(&prepared);
        assert_eq!(costs.len(), expected.len());
        for (cost, (own, shared)) in costs.iter().zip(expected) {
            assert_near(cost.own, 2.0 * own);
            assert_near(cost.shared, 2.0 * shared);
        }
    }

    #[test]
    fn an_h200_takes_the_seconds_that_were_measured() {
        let prepared = prepared(
            "models: [random-h4096-l4-a32-f11008-v32000]\npolicies: [full, tova]\ncache_sizes: [512]\n\
             tasks: [{perplexity: {dataset: random-words, length: 4096, books: 1, chunks_per_book: 1}}]\n",
        );
        let model_task = &prepared.model_tasks[0];
        // docs/gpu.md: seconds of a text, with 32 and with 8 texts at once.
        for (texts, full, tova) in [(32, 0.052, 0.043), (8, 0.055, 0.059)] {
            for (cell, measured) in model_task.cells.iter().zip([full, tova]) {
                let Cost { own, shared } = Cost::on_h200(model_task, cell, texts);
                let seconds = own - FILE + shared;
                assert!((seconds / measured - 1.0).abs() < 0.1, "{texts} {}: {seconds}", cell.cell.label());
            }
        }
        // Two cells of one text are two texts at once, however many there is room for.
        assert_eq!(estimate_on_h200(model_task, 64), estimate_on_h200(model_task, 2));
        assert_eq!(estimate_on_h200(model_task, 0), None);
    }

    #[test]
    fn a_prompt_that_is_cut_by_hand() {
        let of = |policy: &str| {
            prepared(&format!(
                "models: [random-tiny]\npolicies: [{policy}]\ncache_sizes: [25%]\ntasks:\n\
                 - perplexity: {{dataset: random-words, length: 40, prompt: 32, books: 2, chunks_per_book: 1}}\n"
            ))
        };
        let prepared = of("tova@cut");
        let Seconds { token, entry, logits, .. } =
            Seconds::nominal(&prepared.model_tasks[0].files.shape, Arithmetic::F32);
        // The prompt is read with the full cache; 8 tokens attend to 8 to 16 entries, and are scored.
        let cut = (40.0 * token + 8.0 * 12.0 * entry + 8.0 * logits, 64.0 * token + 32.0 * 16.0 * entry);
        // A quarter of the prompt: of 40 tokens 8 attend to 4 entries on average, and 32 to 8.
        let streamed = (72.0 * token + (8.0 * 4.0 + 32.0 * 8.0) * entry + 8.0 * logits, 0.0);
        for (prepared, (own, shared)) in [(prepared, cut), (of("tova"), streamed)] {
            let cost = &costs(&prepared)[0];
            assert_near(cost.own, 2.0 * own);
            assert_near(cost.shared, 2.0 * shared);
        }
    }

    #[test]
    fn generated_texts_by_hand() {
        let prepared = prepared(
            "models: [random-tiny]\npolicies: [tova]\ncache_sizes: [8]\n\
             tasks: [{needle: {dataset: random-words, lengths: [200], depths: [50], texts: 2, \
             write: {max_new_tokens: 10}}}]\n",
        );
        let model_task = &prepared.model_tasks[0];
        let Seconds { token, entry, logits, weights, .. } =
            Seconds::nominal(&model_task.files.shape, Arithmetic::F32);
        let prompt = |sample: usize| (model_task.samples.tokens(sample) - 10) as f64;
        // A prompt is read in two parts, its first block of 128 tokens and the rest. The cache grows to 8 entries and stays so; then
        // 10 steps of one text each.
        let read = |tokens: f64| (2.0 * 32.0 + tokens) * token + (8.0 * 4.0 + (tokens - 8.0) * 8.0) * entry;
        let step = weights + 2.5 * (token + logits) + 8.0 * entry;
        assert_near(costs(&prepared)[0].own, read(prompt(0)) + read(prompt(1)) + 20.0 * step);
    }

    #[test]
    fn what_is_kept_and_what_is_left_are_the_whole() {
        let mut prepared = prepared(
            "models: [random-tiny]\npolicies: [tova]\ncache_sizes: [8]\ntasks: [{needle: {\
             dataset: random-words, lengths: [200, 1800], depths: [50], texts: 1, write: {max_new_tokens: 4}}}]\n",
        );
        for (measured, part) in [(0, 0.1), (1, 0.9)] {
            prepared.model_tasks[0].cells[0].status = Status::Partial { samples: [measured].into() };
            let Started { samples, kept, seconds, kept_seconds, .. } = Started::of(&prepared);
            assert_eq!((samples, kept), (2, 1));
            assert!((kept_seconds / seconds - part).abs() < 0.02, "{kept_seconds} of {seconds}");
            let model_task = &prepared.model_tasks[0];
            let left = model_task.seconds(&model_task.cells[0]) * model_task.share(1 - measured);
            assert_near(kept_seconds + left, seconds);
        }
    }

    #[test]
    fn every_kind_of_cell_has_an_estimate() {
        let prepared = prepared(
            "models: [random-tiny]\npolicies: [full, window, h2o, knorm, tova@squeezed, random]\n\
            cache_sizes: [4, 40, 5000, 50%]\ntasks:\n\
            - perplexity: {dataset: random-words, length: 64, books: 2, chunks_per_book: 1}\n\
            - perplexity: {dataset: random-words, length: 96, books: 1, chunks_per_book: 1, compare_to_full: true}\n\
            - retention: {dataset: random-words, length: 64, books: 1, chunks_per_book: 1}\n\
            - needle: {dataset: random-words, lengths: [200], depths: [50], texts: 1, \
            write: {max_new_tokens: 4}}\n\
            - story: {request: embedded, stories: 2, length: 512, write: {max_new_tokens: 4}}\n\
            - timing: {memory: 10 MB, length: 64, prompt: 16, repeats: 1}\n",
        );
        assert!(prepared.unavailable.is_empty());
        let seconds = estimate(&prepared, 2).unwrap();
        assert_eq!(seconds.len(), prepared.model_tasks.len());
        for (model_task, seconds) in prepared.model_tasks.iter().zip(&seconds) {
            assert_eq!(seconds.len(), model_task.cells.len());
            for (cell, seconds) in model_task.cells.iter().zip(seconds) {
                assert!(seconds.is_finite() && *seconds > 0.0, "{cell:?}: {seconds}");
            }
        }
    }
}
