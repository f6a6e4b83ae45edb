//! The plain definition that the scan is tested against: one token at a time, entries deleted, in f64.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::Case;
use crate::eviction::entries::Eviction;
use crate::eviction::formula::canonical::{Expr, Pool};
use crate::eviction::formula::words::{Function, Word};
use crate::eviction::settings::Scope;

/// Results of the definition for a text.
pub(super) struct Answer {
    /// (groups)(entries)
    pub survivors: Vec<Vec<u32>>,
    /// (tokens)(heads)(positions): attention, 0 for entries not in the cache.
    pub attention: Vec<Vec<Vec<f64>>>,
    pub evictions: Vec<Eviction>,
    /// Whether some decision depended on a difference below f32's precision, or a value is out of its range.
    pub ambiguous: bool,
}

struct Entry {
    position: usize,
    received: f64,
}

/// What a formula may ask about the past of a group: (steps)
pub(super) struct Past<'a> {
    case: &'a Case,
    group: usize,
    steps: Vec<Seen>,
    draw: &'a dyn Fn(usize, usize) -> f64,
    /// Values of calls that were computed before, by expression, head, entry and step.
    computed: RefCell<HashMap<Asked, f64>>,
    /// The relative error of the next value, which f32 may round.
    error: &'a dyn Fn(f64) -> f64,
    /// Whether a value is outside the range of f32, or not a number. The canonical form of a formula computes in another order,
    /// so it may have a number there: it may not add infinities of both signs, for example.
    too_far: Cell<bool>,
    /// What `size` is.
    size: Cell<usize>,
}

/// An expression, a head, an entry and a step.
type Asked = (*const Expr, usize, usize, usize);

struct Seen {
    /// Positions in the cache, ascending.
    living: Vec<usize>,
    /// Indices of the living entries that are not protected.
    unprotected: Vec<usize>,
    /// (heads of the group)(living)
    attention: Vec<Vec<f64>>,
}

impl Past<'_> {
    /// The value of an entry for a head of the group, at a step.
    fn value(&self, expr: &Expr, head: usize, entry: usize, step: usize) -> f64 {
        let key = (std::ptr::from_ref(expr), head, entry, step);
        if let Some(value) = self.computed.borrow().get(&key) {
            return *value;
        }
        let mut value = self.compute(expr, head, entry, step);
        self.note_range(value);
        let is_exact = value.abs() < 1e5 && (64.0 * value).fract() == 0.0;
        value += match expr {
            // Added up from what is stored in 16 bits.
            Expr::Word(Word::FutureAttention) => (self.error)(value) * (100.0 * value + 0.1),
            // 1 of an entry alone is rounded too.
            Expr::Word(Word::KeySimilarity) => (self.error)(value) * value,
            _ if is_exact => 0.0,
            _ => (self.error)(value) * value,
        };
        self.computed.borrow_mut().insert(key, value);
        value
    }

    /// A value that is not known yet. It is long because its one `match` has an arm for each word and function.
    fn compute(&self, expr: &Expr, head: usize, entry: usize, step: usize) -> f64 {
        let Case { heads, policy, .. } = *self.case;
        let seen = &self.steps[step];
        let members = heads.of_group(policy.scope, self.group);
        let own = members.start + head;
        let kv_head = own / heads.per_kv_head();
        let at = |argument: &Expr, step: usize| self.value(argument, head, entry, step);
        let all = |argument: &Expr, entries: &[usize]| -> Vec<f64> {
            entries.iter().map(|other| self.value(argument, head, *other, step)).collect()
        };
        let word = |word: Word| {
            let column = seen.living.iter().position(|living| *living == entry).unwrap();
            let norm = |vector: &[f32]| vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            let value = self.case.value(kv_head, entry);
            match word {
                Word::Attention => seen.attention[head][column],
                Word::Logit => f64::from(self.case.logit(own, step, entry)),
                Word::Age => (step - entry) as f64,
                Word::Position => entry as f64,
                Word::KeyNorm => norm(self.case.key(kv_head, entry)),
                Word::ValueNorm => value.iter().map(|x| f64::from(x.abs())).sum(),
                Word::ValueNorm2 => norm(value),
                Word::OutputShift => {
                    let output = |d: usize| -> f64 {
                        let values = seen.living.iter().zip(&seen.attention[head]);
                        values.map(|(other, a)| a * f64::from(self.case.value(kv_head, *other)[d])).sum()
                    };
                    (0..value.len()).map(|d| (output(d) - f64::from(value[d])).powi(2)).sum::<f64>().sqrt()
                }
                Word::KeySimilarity => {
                    let key = |entry: usize, d: usize| {
                        let key = self.case.key(kv_head, entry);
                        f64::from(key[d]) / norm(key)
                    };
                    let mean: Vec<f64> =
                        (0..value.len()).map(|d| seen.living.iter().map(|other| key(*other, d)).sum()).collect();
                    let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
                    mean.iter().enumerate().map(|(d, mean)| key(entry, d) * mean).sum::<f64>() / length
                }
                Word::FutureAttention => {
                    let paid = |query: usize| -> f64 {
                        members.clone().map(|head| self.case.attention_with_all(head, query, entry)).sum()
                    };
                    (step + 1..self.case.tokens).map(paid).sum::<f64>() / members.len() as f64
                }
                Word::ProjectedValueNorm => f64::from(self.case.projected_norm(kv_head, entry)),
                Word::KeyRedundancy => {
                    let cosine = |a: usize, b: usize| {
                        let (a, b) = (self.case.key(kv_head, a), self.case.key(kv_head, b));
                        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
                            / norm(a)
                            / norm(b)
                    };
                    let mean = |of: usize| {
                        let counted = seen.living.iter().filter(|row| {
                            let alike = |other: &&usize| **other != **row && cosine(**row, **other) > 0.5;
                            let last = seen.living.iter().rev().find(alike).unwrap_or(&seen.living[0]);
                            **row != of && *last != of
                        });
                        counted.map(|row| cosine(*row, of)).sum::<f64>() / seen.living.len() as f64
                    };
                    mean(entry).exp() / seen.living.iter().map(|of| mean(*of).exp()).sum::<f64>()
                }
                Word::RereadAttention => unreachable!("only a model reads a prompt again"),
                Word::Random => (self.draw)(self.group, entry),
                Word::Gumbel => self.case.gumbel(own, step, entry),
                Word::Size => self.size.get() as f64,
            }
        };
        let truth = |truth: bool| f64::from(u8::from(truth));
        match expr {
            Expr::Number(number) => *number,
            Expr::Word(known) => word(*known),
            Expr::Text(_) => unreachable!("an argument of token_in"),
            Expr::Call(Function::TokenIn, texts) => {
                truth(texts.contains(&Expr::Text(self.case.token_text(entry).to_owned())))
            }
            Expr::Call(Function::LagScore, n) => self.lag_score(constant(&n[0]), kv_head, entry, step),
            Expr::Call(Function::ExpectedAttention, n) => self.expected(constant(&n[0]), own, true, entry, step),
            Expr::Call(Function::ExpectedAttentionMean, n) => {
                self.expected(constant(&n[0]), own, false, entry, step)
            }
            Expr::Call(Function::PageBound, n) => {
                let page = seen.living.iter().filter(|other| *other / constant(&n[0]) == entry / constant(&n[0]));
                let page: Vec<&usize> = page.collect();
                let bound = |(d, q): (usize, &f32)| {
                    let products =
                        page.iter().map(|at| f64::from(*q) * f64::from(self.case.key(kv_head, **at)[d]));
                    products.fold(f64::MIN, f64::max)
                };
                0.5 * self.case.query(own, step).iter().enumerate().map(bound).sum::<f64>()
            }
            Expr::Call(Function::Dot | Function::RotatedDot, _) => unreachable!("not among the generated"),
            Expr::Call(function, arguments) => {
                let [x, ..] = arguments.as_slice() else { unreachable!() };
                let steps =
                    |last: usize| (entry.max((step + 1).saturating_sub(last))..=step).map(|step| at(x, step));
                let last = || (at(&arguments[1], step).ceil() as usize).max(1);
                let n = (step - entry + 1) as f64;
                match function {
                    Function::Add => arguments.iter().map(|argument| at(argument, step)).sum(),
                    Function::Multiply => arguments.iter().map(|argument| at(argument, step)).product(),
                    Function::Divide => at(x, step) / at(&arguments[1], step),
                    Function::Less => truth(at(x, step) < at(&arguments[1], step)),
                    Function::AtMost => truth(at(x, step) <= at(&arguments[1], step)),
                    Function::Equal => truth(at(x, step) == at(&arguments[1], step)),
                    Function::Unequal => truth(at(x, step) != at(&arguments[1], step)),
                    Function::If => {
                        let chosen = if at(x, step) == 0.0 { &arguments[2] } else { &arguments[1] };
                        at(chosen, step)
                    }
                    Function::Min => at(x, step).min(at(&arguments[1], step)),
                    Function::Max => at(x, step).max(at(&arguments[1], step)),
                    Function::Abs => at(x, step).abs(),
                    Function::Log => at(x, step).ln(),
                    Function::Exp => at(x, step).exp(),
                    Function::Sqrt => at(x, step).sqrt(),
                    Function::Sum => steps(usize::MAX).sum(),
                    Function::Mean => steps(usize::MAX).sum::<f64>() / n,
                    Function::Std if steps(usize::MAX).all(|value| value == at(x, step)) => 0.0,
                    Function::Std => {
                        let mean = steps(usize::MAX).sum::<f64>() / n;
                        (steps(usize::MAX).map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt()
                    }
                    Function::Ema if at(&arguments[1], step) == 0.0 => at(x, step),
                    Function::Ema => steps(usize::MAX).fold(0.0, |sum, x| at(&arguments[1], step) * sum + x),
                    Function::Peak if arguments.len() == 1 => steps(usize::MAX).fold(f64::NAN, f64::max),
                    Function::Peak => steps(last()).fold(f64::NAN, f64::max),
                    Function::Window => steps(last()).sum(),
                    Function::Count => steps(usize::MAX).filter(|x| *x != 0.0).count() as f64,
                    Function::Rank => {
                        let own = highest_if_nan(at(x, step));
                        let lower = seen.unprotected.iter().filter(|other| {
                            let value = highest_if_nan(self.value(x, head, **other, step));
                            value < own || value == own && **other < entry
                        });
                        lower.count() as f64
                    }
                    Function::Softmax => {
                        let all = all(x, &seen.living);
                        let most = all.iter().copied().fold(f64::NAN, f64::max);
                        (at(x, step) - most).exp() / all.iter().map(|x| (x - most).exp()).sum::<f64>()
                    }
                    Function::Share => at(x, step) / all(x, &seen.living).iter().sum::<f64>(),
                    Function::Pooled | Function::PooledMean => self.pooled(x, Pool::Mean, entry, step),
                    Function::PooledMax => self.pooled(x, Pool::Max, entry, step),
                    Function::Smooth | Function::SmoothMax => {
                        let place =
                            |of: usize| seen.living.iter().position(|living| *living == of).unwrap() as i64;
                        let n = constant(&arguments[1]);
                        let near = seen.unprotected.iter().copied();
                        let near =
                            near.filter(|other| (place(*other) - place(entry)).unsigned_abs() as usize <= n / 2);
                        let near: Vec<f64> = near.map(|other| self.value(x, head, other, step)).collect();
                        match function {
                            Function::Smooth => near.iter().fold(0.0, |sum, x| sum + x) / n as f64,
                            _ if near.iter().any(|x| x.is_nan()) => f64::NAN,
                            _ => near.into_iter().fold(f64::NEG_INFINITY, f64::max),
                        }
                    }
                    Function::Block => {
                        let n = constant(&arguments[1]);
                        let block: Vec<usize> =
                            seen.living.iter().copied().filter(|other| other / n == entry / n).collect();
                        all(x, &block).iter().sum::<f64>() / block.len() as f64
                    }
                    Function::ExpectedAttention
                    | Function::ExpectedAttentionMean
                    | Function::LagScore
                    | Function::Dot
                    | Function::RotatedDot
                    | Function::PageBound
                    | Function::TokenIn => unreachable!("they have no values as arguments"),
                }
            }
        }
    }

    /// How much an entry's key and value stand out from the next `n` entries (LagKV).
    fn lag_score(&self, n: usize, kv_head: usize, entry: usize, step: usize) -> f64 {
        let Case { policy, prompt, .. } = *self.case;
        let first = if policy.keeps_prompt() { prompt } else { policy.protected()[0] };
        let living: Vec<usize> = self.steps[step].living.iter().copied().filter(|at| *at >= first).collect();
        let Some(place) = living.iter().position(|living| *living == entry) else { return 1.0 };
        let part = place / n;
        let Some(both) = living.get(part * n..(part + 2) * n) else { return 1.0 };
        let (own, next) = both.split_at(n);
        let weights = |vector: &dyn Fn(usize) -> Vec<f64>| {
            let deviation = |at: usize| {
                let next: Vec<Vec<f64>> = next.iter().map(|at| vector(*at)).collect();
                let scaled = vector(at).into_iter().enumerate().map(|(d, x)| {
                    let channel = next.iter().map(|vector| vector[d]);
                    let (low, high) = (channel.clone().fold(f64::MAX, f64::min), channel.fold(f64::MIN, f64::max));
                    (x - low) / (high - low)
                });
                let scaled: Vec<f64> = scaled.collect();
                let mean = scaled.iter().sum::<f64>() / scaled.len() as f64;
                (scaled.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (scaled.len() - 1) as f64).sqrt()
            };
            let all: Vec<f64> = own.iter().map(|at| deviation(*at)).collect();
            let most = all.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = all.iter().map(|x| (x - most).exp()).sum();
            all.iter().map(|x| (x - most).exp() / sum).collect::<Vec<f64>>()
        };
        let wide = |vector: &[f32]| vector.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let keys = weights(&|at| wide(self.case.key(kv_head, at)));
        let values = weights(&|at| wide(self.case.value(kv_head, at)));
        let place = place % n;
        let error = (self.error)(values[place]);
        let scores: Vec<f64> = keys.iter().zip(&values).map(|(a, b)| a + b * (1.0 + error)).collect();
        let lower = (0..n)
            .filter(|other| scores[*other] < scores[place] || scores[*other] == scores[place] && *other < place);
        lower.count() as f64 / n as f64
    }

    /// The attention that the next `n` queries of a head are expected to pay to an entry (Expected Attention).
    fn expected(&self, n: usize, head: usize, covariance: bool, entry: usize, step: usize) -> f64 {
        let kv_head = head / self.case.heads.per_kv_head();
        let (cos, sin) = super::mean_rotation(step, n);
        let rotated = |x: &[f64]| vec![cos * x[0] - sin * x[1], cos * x[1] + sin * x[0], x[2]];
        let query =
            |at: usize| self.case.query(head, at).iter().map(|x| 0.5 * f64::from(*x)).collect::<Vec<f64>>();
        let queries: Vec<Vec<f64>> = (4..=step).map(|at| rotated(&query(at))).collect();
        let logit = |entry: usize| {
            // Of every query by itself: their mean, and their variance.
            let key = self.case.key(kv_head, entry);
            let products: Vec<f64> =
                queries.iter().map(|query| query.iter().zip(key).map(|(q, k)| q * f64::from(*k)).sum()).collect();
            let count = products.len().max(1) as f64;
            let mean = products.iter().sum::<f64>() / count;
            let variance = products.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            if covariance { mean + variance / 2.0 } else { mean }
        };
        let others = self.steps[step].unprotected.iter().map(|other| (logit(*other) - logit(entry)).exp());
        1.0 / others.fold(0.0, |sum, e| sum + e)
    }

    /// The value of an entry over all heads of the group.
    fn pooled(&self, expr: &Expr, pool: Pool, entry: usize, step: usize) -> f64 {
        let heads = self.steps[step].attention.len();
        let values = (0..heads).map(|head| self.value(expr, head, entry, step));
        let pooled = match pool {
            Pool::Mean => values.sum::<f64>() / heads as f64,
            Pool::Max => values.fold(f64::NAN, f64::max),
        };
        self.note_range(pooled);
        pooled
    }

    fn note_range(&self, value: f64) {
        let is_in_range = value == 0.0 || value.is_infinite() || (1e-37..1e37).contains(&value.abs());
        self.too_far.set(self.too_far.get() || !is_in_range);
    }
}

/// An argument that is a plain number.
fn constant(expr: &Expr) -> usize {
    let Expr::Number(number) = expr else { unreachable!("the parser takes nothing else") };
    *number as usize
}

fn highest_if_nan(value: f64) -> f64 {
    if value.is_nan() { f64::INFINITY } else { value }
}

/// Reads a text. `draw(group, position)` are the scan's own draws; the test is which entries they evict. Every value of a
/// formula that f32 may round gets a relative `error`. It is long because it is the whole rule of eviction in the order of a text,
/// and shares no step with the scan.
pub(super) fn read(case: &Case, draw: impl Fn(usize, usize) -> f64, error: impl Fn(f64) -> f64) -> Answer {
    let Case { heads, tokens, policy, .. } = *case;
    let groups = heads.groups(policy.scope);
    let [keep_first, keep_recent] = policy.protected();
    let keep_first = if policy.keeps_prompt() { case.prompt } else { keep_first };
    let mut caches: Vec<Vec<Entry>> = (0..groups).map(|_| Vec::new()).collect();
    let past = |group| Past {
        case,
        group,
        steps: Vec::new(),
        draw: &draw,
        computed: RefCell::default(),
        error: &error,
        too_far: Cell::new(false),
        size: Cell::new(policy.of_cache),
    };
    let mut past: Vec<_> = (0..groups).map(past).collect();
    let mut answer = Answer { survivors: vec![], attention: vec![], evictions: vec![], ambiguous: false };
    for t in 0..tokens {
        let mut rows = vec![vec![0.0; tokens]; heads.heads];
        // Entries that the query cannot see leave before it attends.
        for (group, cache) in caches.iter_mut().enumerate() {
            let unseen = |entry: &Entry| case.window.is_some_and(|window| entry.position + window <= t);
            if let Some(passed) = cache.iter().position(unseen) {
                let victim = cache.remove(passed).position as u32;
                answer.evictions.push(Eviction { step: t as u32 - 1, group: group as u32, victim });
            }
        }
        for (group, cache) in caches.iter_mut().enumerate() {
            cache.push(Entry { position: t, received: 0.0 });
            let members = heads.of_group(policy.scope, group);
            let mut mean = vec![0.0; cache.len()];
            for head in members.clone() {
                let z: Vec<f64> = cache.iter().map(|e| f64::from(case.logit(head, t, e.position))).collect();
                let max = z.iter().copied().fold(f64::MIN, f64::max);
                let total: f64 = z.iter().map(|z| (z - max).exp()).sum();
                for (i, z) in z.iter().enumerate() {
                    let p = (z - max).exp() / total;
                    rows[head][cache[i].position] = p;
                    mean[i] += p / members.len() as f64;
                }
            }
            for (entry, mean) in cache.iter_mut().zip(&mean) {
                entry.received += mean;
            }
            let living: Vec<usize> = cache.iter().map(|entry| entry.position).collect();
            let protected = |i: usize| cache[i].position < keep_first || i + keep_recent >= cache.len();
            past[group].steps.push(Seen {
                unprotected: (0..cache.len()).filter(|i| !protected(*i)).map(|i| living[i]).collect(),
                attention: rows[members.clone()]
                    .iter()
                    .map(|row| living.iter().map(|at| row[*at]).collect())
                    .collect(),
                living,
            });
        }
        let (cut, every) = (policy.schedule.cuts(), policy.schedule.every());
        let more = if policy.keeps_prompt() { case.prompt } else { 0 };
        // Entries that have to leave so many groups that hold so many together.
        let excess = |groups: usize, held: usize, size: usize| match every {
            _ if cut && t + 1 < case.prompt => 0,
            _ if cut && t + 1 == case.prompt => held.saturating_sub(size),
            Some(every) if held > size.saturating_add(groups * (more + every - 1)) => held - size - groups * more,
            _ => 0,
        };
        let own_score = |group: usize, formula: Option<&(Expr, Pool)>, i: usize| {
            let entry = &caches[group][i];
            let norm = |kv_head: usize| f64::from(case.norm(kv_head, entry.position));
            if let Some((expr, pool)) = formula {
                let score = past[group].pooled(expr, *pool, entry.position, t);
                return highest_if_nan(score).max(f64::from(f32::MIN));
            }
            let members = heads.of_group(policy.scope, group);
            match (policy.score.name(), policy.scope) {
                ("recency", _) => entry.position as f64,
                ("last_attention", _) => rows[members].iter().map(|row| row[entry.position]).sum::<f64>(),
                ("accumulated_attention", _) => entry.received,
                ("-key_norm", Scope::Head) => -norm(group),
                ("-key_norm", Scope::Layer) => -(0..heads.kv_heads).map(norm).sum::<f64>(),
                ("random", _) => draw(group, entry.position),
                _ => unreachable!("a formula without a name"),
            }
        };
        let candidates = |group: usize| {
            let cache = &caches[group];
            let free = |i: &usize| cache[*i].position >= keep_first && i + keep_recent < cache.len();
            (0..cache.len()).filter(free).map(|i| (group, i)).collect::<Vec<_>>()
        };
        let is_rounded = case.formula.is_none() && policy.score.name() != "recency";
        let mut ambiguous = false;
        // The entries that leave of some that may: the lowest score in a group that holds more than the floor, the oldest of equal ones.
        let mut choose = |mut of: Vec<(usize, usize)>,
                          leaving: usize,
                          floor: usize,
                          score: &dyn Fn(usize, usize) -> f64| {
            let mut victims: Vec<(usize, usize)> = Vec::new();
            of.sort_by_key(|(group, i)| (caches[*group][*i].position, *group));
            let scores: HashMap<(usize, usize), f64> = of.iter().map(|at| (*at, score(at.0, at.1))).collect();
            while victims.len() < leaving {
                let held = |of: usize| caches[of].len() - victims.iter().filter(|(group, _)| *group == of).count();
                let may: Vec<(usize, usize)> =
                    of.iter().copied().filter(|(group, _)| held(*group) > floor).collect();
                let Some(victim) = may.iter().copied().reduce(|a, b| if scores[&b] < scores[&a] { b } else { a })
                else {
                    break;
                };
                let close = |at: &(usize, usize)| {
                    let (a, b) = (scores[at], scores[&victim]);
                    a != b && (a - b).abs() <= 1e-5 * b.abs()
                };
                ambiguous |= is_rounded && may.iter().any(close);
                of.retain(|at| *at != victim);
                victims.push(victim);
            }
            victims
        };
        let own = |group: usize, i: usize| own_score(group, case.formula.as_ref(), i);
        let all = 0..groups;
        let victims: Vec<(usize, usize)> = if let Some(pool) = policy.budget.as_pool() {
            let floor = pool.kept_by_each(policy.size);
            let held = caches.iter().map(Vec::len).sum();
            let leaving = excess(groups, held, groups * policy.size);
            let shared: Vec<(usize, usize)> = all.clone().flat_map(candidates).collect();
            match &case.divider {
                None => choose(shared, leaving, floor, &own),
                Some(_) if leaving == 0 => Vec::new(),
                Some(_) => {
                    let divides = |group: usize, i: usize| own_score(group, case.divider.as_ref(), i);
                    let first = choose(shared, leaving, floor, &divides);
                    let mut victims = Vec::new();
                    for group in all.clone() {
                        let leaving = first.iter().filter(|(of, _)| *of == group).count();
                        past[group].size.set(caches[group].len() - leaving);
                        // The best of the floor are safe: those that would leave last.
                        let may = candidates(group);
                        let safe = floor.saturating_sub(caches[group].len() - may.len()).min(may.len());
                        let order = choose(may.clone(), may.len(), 0, &divides);
                        let free = order[..may.len() - safe].to_vec();
                        victims.extend(choose(free, leaving, 0, &own));
                        past[group].size.set(policy.of_cache);
                    }
                    victims
                }
            }
        } else if let (Some(tokens), [cache]) = (policy.score.block(), &caches[..]) {
            let scores: Vec<f64> = (0..cache.len()).map(|i| own(0, i)).collect();
            let leaving = excess(1, cache.len(), policy.size);
            let (mut victims, mut may) = (Vec::new(), candidates(0));
            while victims.len() < leaving && !may.is_empty() {
                // All that may leave of the best block: one without protected entries, if there is any.
                let block = |i: usize| cache[i].position / tokens;
                let is_free = |i: usize| candidates(0).contains(&(0, i));
                let whole = |i: usize| (0..cache.len()).filter(|other| block(*other) == block(i)).all(is_free);
                let whole: Vec<usize> = may.iter().map(|(_, i)| *i).filter(|i| whole(*i)).collect();
                let pool = if whole.is_empty() { may.iter().map(|(_, i)| *i).collect() } else { whole };
                let lowest = pool.into_iter().reduce(|a, b| if scores[b] < scores[a] { b } else { a }).unwrap();
                victims.extend(may.iter().copied().filter(|(_, i)| block(*i) == block(lowest)));
                may.retain(|(_, i)| block(*i) != block(lowest));
            }
            victims
        } else {
            let sizes = policy.group_sizes(heads);
            let of_group =
                |group: usize| choose(candidates(group), excess(1, caches[group].len(), sizes[group]), 0, &own);
            all.flat_map(of_group).collect()
        };
        answer.ambiguous |= ambiguous;
        let leave = |(group, i): (usize, usize)| (group, caches[group][i].position);
        for (group, position) in victims.into_iter().map(leave).collect::<Vec<_>>() {
            caches[group].retain(|entry| entry.position != position);
            answer.evictions.push(Eviction { step: t as u32, group: group as u32, victim: position as u32 });
        }
        answer.attention.push(rows);
    }
    answer.ambiguous |= past.iter().any(|past| past.too_far.get());
    answer.survivors = caches.iter().map(|cache| cache.iter().map(|e| e.position as u32).collect()).collect();
    answer
}
