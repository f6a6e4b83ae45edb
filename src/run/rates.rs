//! How many seconds the parts of the work take with a model: on no particular machine, or measured on this one.

use anyhow::Result;

use super::prepare::{ModelTask, NamedCell};
use crate::eviction::{Budget, CacheRule, Policy, Positions, Scope, Score, SizedPolicy};
use crate::lm::{BLOCK, GenerationSettings, MemoryPlan, Probe};
use crate::task::GenerationConfig;

/// Multiplications and additions a second of no particular machine, in large products.
const SPEED: f64 = 60e9;

/// Bytes a second that decoding gets from memory, typical of machines with a few cores.
const MEMORY: f64 = 15e9;

/// Products for one token are this much slower while generating than while reading.
const FEW_ROWS: f64 = 1.5;

/// Seconds of attention beside its products, for each head and entry: softmax, scores and evictions.
const SCAN: f64 = 0.3e-9;

/// Seconds of a token beside its products, for each layer and number of its state: rotation, norms, copies.
const REST: f64 = 4.0e-9;

/// A read takes as long as so many more tokens: products prepare the weights.
const BEGINNING: f64 = 32.0;

/// The most entries of a cache that is filled to be timed; beyond, times grow in proportion.
const MOST_ENTRIES: usize = 1024;

/// Texts generated side by side to time them; more take longer in proportion.
const SIDE_BY_SIDE: usize = 4;
/// The same where as many are generated as memory holds, so that caches are not in the processor's.
const MANY: usize = 32;
/// Bytes that their caches may take.
const MANY_BYTES: u64 = 256 << 20;

/// Tokens of a read with a full bounded cache.
const READ: usize = 2 * BLOCK;

/// Seconds that grow in proportion with something, beside those that are always spent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Line {
    pub start: f64,
    pub slope: f64,
}

impl Line {
    pub fn at(self, x: f64) -> f64 {
        (self.start + self.slope * x).max(0.0)
    }

    /// Through two points. More work never takes less time.
    fn through((x, y): (usize, f64), (other_x, other_y): (usize, f64)) -> Line {
        let (x, other_x) = (x as f64, other_x as f64);
        let slope = if x == other_x { 0.0 } else { ((other_y - y) / (other_x - x)).max(0.0) };
        let mean = (x + other_x) / 2.0;
        Line { start: (y + other_y) / 2.0 - slope * mean, slope }
    }
}

/// Seconds of the work of one model.
#[derive(Debug)]
pub(super) struct Rates {
    pub full: CacheRates,
    /// Of the kinds of caches that evict.
    bounded: Vec<(Kind, CacheRates)>,
    /// Tokens that go through the layers together.
    pub segment: usize,
    /// Scoring a block of tokens, over their number.
    pub scoring: Line,
    /// Comparing a token with the full cache.
    pub comparing: f64,
    /// Attention that a token would pay to evicted entries, for each entry of the full cache.
    pub losing: f64,
    /// A token of a generated text, over the number of texts that are generated side by side; without what the kind of
    /// cache adds.
    pub step: Line,
}

/// Seconds with a kind of cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheRates {
    /// A segment of tokens without attention, over the number of tokens.
    pub dense: Line,
    /// Attention of a token that is read, over the entries it attends to.
    pub attention: Line,
    /// Attention of a token that is generated, likewise.
    pub generating: Line,
}

/// What the time of a cache that evicts depends on, beside its size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kind {
    score: Score,
    scope: Scope,
    positions: Positions,
}

impl Rates {
    /// Those of a cell's cache.
    pub fn of(&self, cell: &NamedCell) -> CacheRates {
        let kind = Kind::of(cell);
        self.bounded.iter().find(|(other, _)| Some(*other) == kind).map_or(self.full, |(_, rates)| *rates)
    }

    /// The same rates for all kinds of caches.
    #[cfg(test)]
    pub fn of_all(full: CacheRates, segment: usize, scoring: Line, step: Line) -> Rates {
        Rates { full, bounded: Vec::new(), segment, scoring, comparing: 0.0, losing: 0.0, step }
    }

    /// Of no particular machine. The shards of one sweep are computed on different machines, and must fit together.
    pub fn nominal(model_task: &ModelTask) -> Rates {
        let shape = &model_task.files.shape;
        let layers = 2.0 * (shape.layers * shape.layer_weights()) as f64 / SPEED
            + REST * (shape.layers * shape.hidden) as f64;
        let head = 2.0 * (shape.vocab * shape.hidden) as f64 / SPEED + SCAN * shape.vocab as f64;
        let entry = (shape.layers * shape.heads.heads) as f64 * (4.0 * shape.head_dim as f64 / SPEED + SCAN);
        let rates = |slowness: f64| CacheRates {
            dense: Line { start: BEGINNING * layers, slope: slowness * layers },
            attention: Line { start: 0.0, slope: slowness * entry },
            generating: Line { start: 0.0, slope: entry },
        };
        // Logits row by row, and products in f64, take longer.
        let slowness = |kind: Kind| match kind {
            Kind { score, .. } if score.compares_norms() => 4.0,
            Kind { positions, .. } if positions != Positions::Absolute => 2.0,
            _ => 1.0,
        };
        let weights = 4 * (shape.layers * shape.layer_weights() + shape.vocab * shape.hidden);
        Rates {
            full: rates(1.0),
            bounded: model_task
                .cells
                .iter()
                .filter_map(Kind::of)
                .map(|kind| (kind, rates(slowness(kind))))
                .collect(),
            segment: 512,
            scoring: Line { start: 0.0, slope: head },
            comparing: head,
            losing: entry / 2.0,
            step: Line { start: weights as f64 / MEMORY, slope: FEW_ROWS * (layers + head) },
        }
    }

    /// Measured on this machine.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn measured(model_task: &ModelTask, probe: &Probe) -> Result<Rates> {
        let generation = Generation::new(model_task, probe)?;
        let longest = model_task.samples.longest();
        let (few, many) = (BLOCK / 2, longest.clamp(BLOCK, MOST_ENTRIES));
        // The full cache, with what cells need that branch off it.
        let scopes = summed_scopes(model_task);
        let plan = MemoryPlan { fork_scopes: &scopes, fork_points: &[BLOCK], ..MemoryPlan::unbounded() };
        let attention = |tokens: usize| -> Result<(usize, f64)> {
            Ok((tokens / 2, probe.read(&plan, tokens)?.attention / tokens as f64))
        };
        let unbounded = MemoryPlan::unbounded();
        let full = CacheRates {
            dense: dense(probe, &unbounded)?,
            attention: Line::through(attention(2 * BLOCK)?, attention(many.max(4 * BLOCK))?),
            generating: Line::through((few, 0.0), (many, generation.added(&unbounded, many)?)),
        };
        let mut bounded: Vec<(Kind, CacheRates)> = Vec::new();
        let mut losing = 0.0;
        for cell in &model_task.cells {
            let Some(kind) = Kind::of(cell).filter(|kind| bounded.iter().all(|(other, _)| other != kind)) else {
                continue;
            };
            let (mut dense_of_kind, mut reading, mut generating) = (full.dense, Vec::new(), Vec::new());
            for policy in kind.sizes(model_task) {
                let plan = MemoryPlan { positions: kind.positions, ..MemoryPlan::bounded(policy) };
                reading.push((policy.size, probe.read(&plan, READ)?.attention / READ as f64));
                generating.push((policy.size, generation.added(&plan, policy.size)?));
                if kind.score.compares_norms() && reading.len() == 1 {
                    dense_of_kind = dense(probe, &plan)?;
                }
                let compares = cell.cache_config().compare && kind.positions == Positions::Absolute;
                if compares && losing == 0.0 {
                    let loss = probe.read(&MemoryPlan { measure_loss: true, ..plan }, MOST_ENTRIES)?.attention;
                    let cache = reading[0].1;
                    losing = (loss / MOST_ENTRIES as f64 - cache).max(0.0) / (MOST_ENTRIES / 2) as f64;
                }
            }
            // Where there is one size, or none that evicts anything, the full cache is the measure.
            let line = |points: &[(usize, f64)], full: Line| match *points {
                [first, second] => Line::through(first, second),
                [(size, seconds)] => Line { start: seconds - full.slope * size as f64, ..full },
                _ => full,
            };
            let rates = CacheRates {
                dense: dense_of_kind,
                attention: line(&reading, full.attention),
                generating: line(&generating, full.generating),
            };
            bounded.push((kind, rates));
        }
        let [few, many] = [BLOCK / 4, READ].map(|tokens| probe.score(tokens, false));
        let scoring = Line::through((BLOCK / 4, few?), (READ, many?));
        let comparing = if losing > 0.0 { probe.score(READ, true)? - scoring.at(READ as f64) } else { 0.0 };
        Ok(Rates {
            full,
            bounded,
            segment: probe.segment(),
            scoring,
            comparing: comparing.max(0.0) / READ as f64,
            losing,
            step: generation.step,
        })
    }
}

impl Kind {
    /// `None`: nothing is ever evicted.
    fn of(cell: &NamedCell) -> Option<Kind> {
        match cell.cell.rule {
            CacheRule::Evict { policy: Policy { score, scope, .. }, .. } => {
                // Knowing the future takes hardly longer than TOVA, once it is known. What a function takes nobody knows.
                let is_like_tova = score.reads_future() || matches!(score, Score::Custom(_));
                let score = if is_like_tova { Score::last_attention() } else { score };
                Some(Kind { score, scope, positions: cell.cell.positions })
            }
            _ => None,
        }
    }

    /// The caches to time: the smallest and the largest of the task's cells, as far as they evict anything and are not too
    /// large.
    fn sizes(self, model_task: &ModelTask) -> Vec<SizedPolicy> {
        let most = model_task.samples.longest().saturating_sub(1).min(MOST_ENTRIES);
        let cells = model_task.cells.iter().filter(|cell| Kind::of(cell) == Some(self));
        let mut sizes: Vec<SizedPolicy> = cells
            .filter_map(|cell| match cell.cell.rule {
                // Times grow in proportion with entries, so their mean over layers is what counts.
                CacheRule::Evict { policy, size } => {
                    Policy { budget: Budget::Uniform, score: self.score, ..policy }.at(size.min(most)).ok()
                }
                _ => None,
            })
            .collect();
        sizes.sort_by_key(|policy| policy.size);
        sizes.dedup_by_key(|policy| policy.size);
        if sizes.len() > 2 {
            sizes.drain(1..sizes.len() - 1);
        }
        sizes
    }
}

/// The scopes over which attention is summed for cells that branch off the full cache.
fn summed_scopes(model_task: &ModelTask) -> Vec<Scope> {
    let summed = |cell: &NamedCell| match cell.cell.rule {
        CacheRule::Evict { policy, .. } if policy.score.sums_attention() => Some(policy.scope),
        _ => None,
    };
    let mut scopes: Vec<Scope> = model_task.cells.iter().filter_map(summed).collect();
    scopes.sort_by_key(|scope| scope.name());
    scopes.dedup();
    scopes
}

/// Seconds of a segment without attention, over its tokens.
fn dense(probe: &Probe, plan: &MemoryPlan<'_>) -> Result<Line> {
    let seconds = |tokens: usize| anyhow::Ok((tokens, probe.read(plan, tokens)?.dense));
    Ok(Line::through(seconds(BLOCK / 2)?, seconds(2 * BLOCK)?))
}

/// Times steps of texts that are generated.
struct Generation<'a> {
    probe: &'a Probe,
    /// `None`: the task generates nothing.
    settings: Option<GenerationSettings>,
    /// Side by side.
    texts: usize,
    /// Of a small full cache.
    seconds: f64,
    /// What seconds of attention are to be multiplied with.
    layers: f64,
    step: Line,
}

impl<'a> Generation<'a> {
    fn new(model_task: &ModelTask, probe: &'a Probe) -> Result<Generation<'a>> {
        let is_timed = model_task.task.is_timed();
        let greedy = is_timed.then(|| GenerationConfig::greedy(1));
        let settings = model_task.task.generation.clone().or(greedy).map(|config| config.writing(Vec::new()));
        let cache = model_task.files.shape.cache_bytes(MOST_ENTRIES).max(1);
        let texts = if is_timed { ((MANY_BYTES / cache) as usize).clamp(2, MANY) } else { SIDE_BY_SIDE };
        let mut generation =
            Generation { probe, settings, texts, seconds: 0.0, layers: 1.0, step: Line::default() };
        if generation.settings.is_some() {
            let (weights, layers) = probe.generation_scale()?;
            let few = |texts: usize| generation.seconds(&MemoryPlan::unbounded(), texts, BLOCK / 2);
            let (one, all) = (few(1)?, few(texts)?);
            generation = Generation {
                seconds: all,
                layers,
                step: Line::through((1, weights * one), (texts, weights * all)),
                ..generation
            };
        }
        Ok(generation)
    }

    fn seconds(&self, plan: &MemoryPlan<'_>, texts: usize, tokens: usize) -> Result<f64> {
        self.settings.as_ref().map_or(Ok(0.0), |settings| self.probe.generate(plan, (texts, tokens), settings))
    }

    /// What a cache of some kind adds to a step of one text.
    fn added(&self, plan: &MemoryPlan<'_>, tokens: usize) -> Result<f64> {
        Ok(self.layers * (self.seconds(plan, self.texts, tokens)? - self.seconds) / self.texts as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_by_hand() {
        let line = Line::through((2, 7.0), (4, 11.0));
        assert_eq!(line, Line { start: 3.0, slope: 2.0 });
        assert_eq!(line.at(10.0), 23.0);
        assert_eq!(Line { start: -5.0, slope: 1.0 }.at(3.0), 0.0);
        // More never takes less time: then the mean.
        assert_eq!(Line::through((2, 7.0), (4, 5.0)), Line { start: 6.0, slope: 0.0 });
        assert_eq!(Line::through((2, 7.0), (2, 7.0)), Line { start: 7.0, slope: 0.0 });
    }
}
