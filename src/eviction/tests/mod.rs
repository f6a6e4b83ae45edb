//! The scan against the definition, on generated logits. A layer's logits don't depend on its evictions, so no
//! model is needed.

mod definition;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;

use super::formula::canonical::Expr;
use super::formula::words::{FUNCTIONS, FunctionRow, Kind, WORDS};
use super::formula::{Formula, Pool};
use super::*;

/// A generated layer: its logits, key norms and policy.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub heads: Heads,
    pub tokens: usize,
    pub policy: SizedPolicy,
    /// Tokens that a query sees, itself included.
    pub window: Option<usize>,
    /// Tokens of the prompt, after which the cache is cut if the policy's schedule says so.
    pub prompt: usize,
    /// (heads, tokens, tokens)
    logits: Vec<f32>,
    /// (kv_heads, tokens)
    norms: Vec<f32>,
    /// Keys, then values: (kv_heads, tokens, DIM) each
    vectors: [Vec<f32>; 2],
    chunks: Vec<usize>,
    /// What the policy's formula was written as.
    pub formula: Option<(Expr, Pool)>,
    /// The formula that divides the budget, as [`formula`](Self::formula).
    pub divider: Option<(Expr, Pool)>,
}

/// One pair of dimensions is rotated, and one is not.
const DIM: usize = 3;

/// The mean cosine and sine of the rotation at the positions after a step.
pub(super) fn mean_rotation(step: usize, positions: usize) -> (f64, f64) {
    let angles = (1..=positions).map(|next| 0.1 * (step + next) as f64);
    let (cos, sin) = angles.fold((0.0, 0.0), |(cos, sin), angle| (cos + angle.cos(), sin + angle.sin()));
    (cos / positions as f64, sin / positions as f64)
}

/// A block's columns: (kv_heads)(columns) positions, and the first of its rows.
struct Columns<'a>(&'a Case, Vec<Vec<usize>>, usize);

impl Vectors for Columns<'_> {
    fn keys(&self, kv_head: usize, mask: &[f32]) -> Cow<'_, [f32]> {
        self.1[kv_head][..mask.len()].iter().flat_map(|position| self.0.key(kv_head, *position)).copied().collect()
    }

    fn values(&self, kv_head: usize, columns: usize) -> Cow<'_, [f32]> {
        // In the order of columns, which is not always that of the text.
        self.1[kv_head][..columns].iter().flat_map(|position| self.0.value(kv_head, *position)).copied().collect()
    }

    fn dim(&self) -> usize {
        DIM
    }

    fn query(&self, row: usize, head: usize) -> &[f32] {
        self.0.query(head, self.2 + row)
    }

    fn scale(&self, _: usize) -> f32 {
        0.5
    }

    fn angles(&self, _: &[f64]) -> [Vec<f32>; 2] {
        [Vec::new(), Vec::new()]
    }

    fn mean_rotation(&self, _: usize, _: &[f32], step: usize, positions: usize) -> formula::MeanRotation {
        let (cos, sin) = mean_rotation(step, positions);
        formula::MeanRotation { cos: vec![cos], sin: vec![sin] }
    }

    /// A query is its position in the text.
    fn logits(&self, kv_head: usize, queries: &[f32], columns: usize, (logits, stride): (&mut [f32], usize)) {
        let per_kv = self.0.heads.per_kv_head();
        let rows = queries.len() / per_kv;
        for (at, (query, logits)) in queries.iter().zip(logits.chunks_exact_mut(stride)).enumerate() {
            for (position, logit) in self.1[kv_head][..columns].iter().zip(logits) {
                *logit = self.0.logit(kv_head * per_kv + at / rows, *query as usize, *position);
            }
        }
    }

    fn output_shift(&self, head: usize, weights: &[f32], scale: f32, out: &mut [f32]) {
        let kv_head = head / self.0.heads.per_kv_head();
        let value = |column: usize| self.0.value(kv_head, self.1[kv_head][column]);
        let output: Vec<f32> = (0..DIM)
            .map(|d| (0..out.len()).map(|column| weights[column] * scale * value(column)[d]).sum())
            .collect();
        for (column, out) in out.iter_mut().enumerate() {
            *out = (0..DIM).map(|d| (output[d] - value(column)[d]).powi(2)).sum::<f32>().sqrt();
        }
    }

    fn key_similarity(&self, kv_head: usize, mask: &[f32], out: &mut [f32]) {
        let key = |column: usize, d: usize| {
            let key = self.0.key(kv_head, self.1[kv_head][column]);
            key[d] / key.iter().map(|x| x * x).sum::<f32>().sqrt()
        };
        let living: Vec<usize> = (0..out.len()).filter(|column| mask[*column] == 0.0).collect();
        let mean: Vec<f32> = (0..DIM).map(|d| living.iter().map(|column| key(*column, d)).sum()).collect();
        let length = mean.iter().map(|x| x * x).sum::<f32>().sqrt();
        for (column, out) in out.iter_mut().enumerate() {
            *out = (0..DIM).map(|d| key(column, d) * mean[d]).sum::<f32>() / length;
        }
    }
}

impl Case {
    pub fn logit(&self, head: usize, query: usize, key: usize) -> f32 {
        self.logits[(head * self.tokens + query) * self.tokens + key]
    }

    pub fn norm(&self, kv_head: usize, position: usize) -> f32 {
        self.norms[kv_head * self.tokens + position]
    }

    fn vector(&self, which: usize, kv_head: usize, position: usize) -> &[f32] {
        &self.vectors[which][(kv_head * self.tokens + position) * DIM..][..DIM]
    }

    pub fn key(&self, kv_head: usize, position: usize) -> &[f32] {
        self.vector(0, kv_head, position)
    }

    pub fn value(&self, kv_head: usize, position: usize) -> &[f32] {
        self.vector(1, kv_head, position)
    }

    /// Before its rotation. That of the head's key, as if a token asked for what it is.
    pub fn query(&self, head: usize, position: usize) -> &[f32] {
        self.value(head / self.heads.per_kv_head(), (position + head) % self.tokens)
    }

    /// L1 norm of the value times output weights: any number will do.
    pub fn projected_norm(&self, kv_head: usize, position: usize) -> f32 {
        1.0 + self.norm(kv_head, position) * self.norm(kv_head, 0)
    }

    pub fn token_text(&self, position: usize) -> &'static str {
        ["a", "b", " c"][position * position % 3]
    }

    /// The attention of a query to a token with the full cache.
    pub fn attention_with_all(&self, head: usize, query: usize, token: usize) -> f64 {
        let first = self.window.map_or(0, |window| (query + 1).saturating_sub(window));
        let weight = |token: usize| f64::from(self.logit(head, query, token)).exp();
        if token < first { 0.0 } else { weight(token) / (first..=query).map(weight).sum::<f64>() }
    }

    /// The noise of an entry at a step.
    pub fn gumbel(&self, head: usize, step: usize, position: usize) -> f64 {
        let noise = &mut [0.0];
        formula::gumbel(SALT, head, step, &[position as u32], noise);
        f64::from(noise[0])
    }

    /// The columns of a cache whose prompt ends.
    fn columns(&self, entries: &CacheEntries) -> Columns<'_> {
        let of_head = |kv: usize| {
            let survivors = &entries.survivors()[entries.group_of(kv)];
            survivors.iter().map(|position| *position as usize).collect()
        };
        Columns(self, (0..self.heads.kv_heads).map(of_head).collect(), 0)
    }

    /// Reads tokens up to `to` in blocks of the case's lengths; returns their attention,
    /// (tokens)(heads)(positions).
    fn scan(&self, entries: &mut CacheEntries, to: usize, log: &mut Vec<Eviction>) -> Vec<Vec<Vec<f64>>> {
        let mut rows_out = Vec::new();
        let mut lengths = self.chunks.iter().copied().cycle();
        while entries.seen < to {
            let start = entries.seen;
            let rows = lengths.next().unwrap().min(to - start);
            let positions: Vec<Vec<u32>> = entries.survivors().iter().map(|group| group.to_vec()).collect();
            let held = entries.lens();
            let groups: Vec<usize> = (0..self.heads.kv_heads).map(|kv| entries.group_of(kv)).collect();
            let kv_heads = self.heads.kv_heads;
            let each = |row: usize| (0..kv_heads).map(move |kv| (kv, start + row));
            let norms: Vec<f64> = (0..rows).flat_map(each).map(|(kv, at)| f64::from(self.norm(kv, at))).collect();
            let [keys, values] = [0, 1].map(|which| {
                (0..rows)
                    .flat_map(each)
                    .flat_map(|(kv, at)| self.vector(which, kv, at).to_vec())
                    .collect::<Vec<_>>()
            });
            let projected_norms: Vec<f32> =
                (0..rows).flat_map(each).map(|(kv, at)| self.projected_norm(kv, at)).collect();
            let token_texts: Vec<Arc<str>> = (0..rows).map(|row| self.token_text(start + row).into()).collect();
            let of_row =
                |row: usize| (0..self.heads.heads).flat_map(move |head| self.query(head, start + row).to_vec());
            let queries: Vec<f32> = (0..rows).flat_map(of_row).collect();
            let hidden: Vec<f32> = (0..rows).flat_map(|row| [(start + row) as f32, 1.0]).collect();
            let token_ids: Vec<u32> = (0..rows).map(|row| (start + row) as u32 + 1000).collect();
            let new = NewEntries {
                keys: &keys,
                values: &values,
                dim: DIM,
                norms: Some(&norms),
                projected_norms: &projected_norms,
                queries: &queries,
                hidden: &hidden,
                token_ids: &token_ids,
                token_texts: &token_texts,
                sinks: &[],
                ends_read: start + rows == to,
            };
            let mut scan = entries.begin(rows, &new);
            let of_head = |_| (start..start + rows).map(|position| position as f32);
            let rotated: Vec<f32> = (0..self.heads.heads).flat_map(of_head).collect();
            scan.keep_queries(&Queries {
                rotated: &rotated,
                plain: &queries,
                scales: &vec![0.5; rows],
                sinks: &[],
            });
            let stride = scan.stride();
            let key_at = |head: usize, column: usize| {
                let kv_head = head / self.heads.per_kv_head();
                match column.checked_sub(held[kv_head]) {
                    Some(row) => start + row,
                    None => positions[groups[kv_head]][column] as usize,
                }
            };
            let column = |kv: usize, column: usize| key_at(kv * self.heads.per_kv_head(), column);
            let columns = |kv: usize| (0..held[kv] + rows).map(|at| column(kv, at)).collect();
            let vectors = Columns(self, (0..kv_heads).map(columns).collect(), start);
            // Unused columns hold arbitrary numbers, as in the real table.
            let mut logits = vec![1e3; self.heads.heads * rows * stride];
            let held_by = |head: usize| held[head / self.heads.per_kv_head()];
            for head in 0..self.heads.heads {
                for row in 0..rows {
                    for column in 0..=held_by(head) + row {
                        logits[(head * rows + row) * stride + column] =
                            self.logit(head, start + row, key_at(head, column));
                    }
                }
            }
            let mut normaliser =
                Normaliser { max: vec![0.0; self.heads.heads * rows], sum: vec![0.0; self.heads.heads * rows] };
            for row in 0..rows {
                scan.step(row, &mut logits, &mut normaliser, &vectors, Some(log));
                let mut attention = vec![vec![0.0; self.tokens]; self.heads.heads];
                for (head, attention) in attention.iter_mut().enumerate() {
                    let at = head * rows + row;
                    for column in 0..held_by(head) + rows {
                        let weight = logits[at * stride + column] / normaliser.sum[at];
                        if weight != 0.0 {
                            attention[key_at(head, column)] = f64::from(weight);
                        }
                    }
                }
                rows_out.push(attention);
            }
            scan.finish();
        }
        rows_out
    }
}

const SALT: u64 = 7;

fn policies() -> impl Strategy<Value = (Policy, usize)> {
    let score = prop::sample::select(
        SCORES.iter().map(|named| Score::new(named.name, Pool::Mean).unwrap()).collect::<Vec<_>>(),
    );
    let scope = prop::sample::select(vec![Scope::Layer, Scope::Head]);
    (score, scope, 1usize..24).prop_flat_map(|(score, scope, size)| {
        (0..size, 0..=size).prop_map(move |(keep_first, recent)| {
            let keep_recent = Amount::Tokens(recent.min(size - keep_first));
            let keep_first = FirstTokens::tokens(keep_first);
            let (budget, schedule) = (Budget::Uniform, Schedule::default());
            (Policy { score, scope, keep_first, keep_recent, budget, schedule }, size)
        })
    })
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let every = || prop_oneof![1 => Just(1), 2 => 2usize..20];
    prop_oneof![
        3 => every().prop_map(Schedule::Every),
        1 => Just(Schedule::Cut),
        2 => every().prop_map(Schedule::CutThenEvery),
    ]
}

/// The case under another schedule, which a layer with a window does not take. Some protect the prompt.
fn scheduled(case: Case, schedule: Schedule, prompt: usize) -> Case {
    let keeps_prompt = !schedule.cuts() && prompt.is_multiple_of(3);
    let keep_first = if keeps_prompt { FirstTokens::Prompt } else { case.policy.keep_first };
    let policy = Policy { schedule, keep_first, ..*case.policy };
    let policy = SizedPolicy { policy, ..case.policy };
    Case { policy, window: None, prompt: prompt.clamp(1, case.tokens), ..case }
}

/// With `ties`, logits depend only on a key's class and there are few norms, so that many scores are equal.
fn cases(ties: bool) -> impl Strategy<Value = Case> {
    let shapes =
        if ties { &[(1, 1), (2, 1), (2, 2)][..] } else { &[(1, 1), (2, 1), (4, 2), (6, 3), (4, 4), (8, 1)] };
    let chunks = prop::collection::vec(1usize..40, 1..4);
    let window = prop::option::weighted(0.4, 1usize..40);
    (prop::sample::select(shapes), policies(), 1usize..70, chunks, window, any::<u64>()).prop_map(
        move |((heads, kv_heads), (policy, size), tokens, chunks, window, seed)| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut numbers = |n: usize, low: f32, high: f32| -> Vec<f32> {
                let number = |_| if ties { f32::from(rng.u8(0..3)) } else { low + (high - low) * rng.f32() };
                (0..n).map(number).collect()
            };
            let mut logits = numbers(heads * tokens * tokens, -6.0, 6.0);
            if ties {
                logits = logits[..tokens].repeat(heads * tokens);
            }
            let norms = numbers(kv_heads * tokens, 0.1, 9.0);
            let vectors = [(); 2].map(|()| numbers(kv_heads * tokens * DIM, -2.0, 2.0));
            let policy = policy.at(size).unwrap();
            let heads = Heads { heads, kv_heads };
            let (formula, divider) = (None, None);
            Case {
                heads,
                tokens,
                policy,
                window,
                prompt: tokens,
                logits,
                norms,
                vectors,
                chunks,
                formula,
                divider,
            }
        },
    )
}

/// Formulas of every word and function.
fn formulas() -> impl Strategy<Value = String> {
    // Stored in 16 bits, which logarithms of nearly nothing would show.
    let future = ["future_attention", "future_attention * value_norm", "future_attention + attention"];
    let words =
        WORDS.iter().map(|word| word.name).filter(|word| !future.contains(word) && *word != "reread_attention");
    let own = ["expected_attention(3)", "expected_attention_mean(20)", "lag_score(3)", "token_in(\"a\", \" c\")"];
    let words = prop::sample::select(words.chain(own).collect::<Vec<_>>());
    let leaf = prop_oneof![8 => words.prop_map(str::to_owned), 1 => (1..40u8).prop_map(|n| format!("{}", f64::from(n) / 8.0))];
    let all = leaf.prop_recursive(4, 12, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        let names = |is: fn(&FunctionRow) -> bool, others: &'static [&'static str]| {
            let rows = FUNCTIONS.iter().filter(|row| is(row));
            prop::sample::select(rows.map(|row| row.name).chain(others.iter().copied()).collect::<Vec<_>>())
        };
        let signs = names(|row| matches!(row.kind, Kind::Sign(_)), &["-", ">", ">="]);
        let calls = names(|row| row.arguments.0 == 1 && !matches!(row.kind, Kind::Own(_)), &["-"]);
        let near = names(|row| row.kind == Kind::Entries && row.arguments.0 == 2, &[]);
        let of_steps = names(|row| row.kind == Kind::Steps && row.arguments.1 == 2 && row.name != "ema", &[]);
        let of_two = names(|row| row.kind == Kind::Entry && row.arguments.0 == 2, &[]);
        prop_oneof![
            3 => (two.clone(), signs).prop_map(|((a, b), sign)| format!("(({a}) {sign} ({b}))")),
            4 => (inner.clone(), calls).prop_map(|(a, call)| format!("{call}({a})")),
            2 => (inner.clone(), 0..=4u8).prop_map(|(a, g)| format!("ema({a}, {})", f64::from(g) / 4.0)),
            2 => (inner.clone(), 0..4u8, near).prop_map(|(a, n, call)| format!("{call}({a}, {})", 2 * n + 1)),
            2 => (inner.clone(), 1..9u8, of_steps).prop_map(|(a, w, call)| format!("{call}({a}, {w})")),
            1 => (two, of_two).prop_map(|((a, b), call)| format!("{call}({a}, {b})")),
            1 => (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("if({a}, {b}, {c})")),
        ]
    });
    prop_oneof![20 => all, 1 => prop::sample::select(future.map(str::to_owned).to_vec())]
}

/// Ends a prompt of one layer.
fn end_prompt(
    entries: &mut CacheEntries,
    log: Option<&mut Vec<Eviction>>,
    vectors: Option<&dyn Vectors>,
) -> Option<Kept> {
    evict_together(&mut [LayerEntries { entries, log, vectors }], true).remove(0)
}

fn agrees(case: &Case) -> Result<(), TestCaseError> {
    agrees_under(case, case.policy)
}

/// The nearest number whose mantissa has so many bits.
fn rounded(value: f64, bits: u32) -> f64 {
    let below = 52 - bits;
    f64::from_bits((value.to_bits() + (1 << (below - 1))) >> below << below)
}

/// Whether the scan under `policy` does what the definition does under the case's own.
fn agrees_under(case: &Case, policy: SizedPolicy) -> Result<(), TestCaseError> {
    let mut entries =
        CacheEntries::bounded(case.heads, policy, SALT).with_window(case.window, false).with_last_rows();
    if case.policy.score.reads_future() {
        let mut unbounded = CacheEntries::unbounded(case.heads, &[], &[]).with_window(case.window, true);
        unbounded = unbounded.recording(Some(case.policy.scope));
        case.scan(&mut unbounded, case.tokens, &mut Vec::new());
        entries = entries.with_future(unbounded.into_recorded().unwrap().into());
    }
    let draw = |group, position| score::uniform(SALT, group as u64, position as u64);
    let answer = definition::read(case, draw, |_| 0.0);
    prop_assume!(!answer.ambiguous);
    // Formulas are not compared where an error of f32 may decide. Of two errors of opposite sign one turns a tie around.
    // Values that are almost equal may be equal in f32, so that their `std` is 0: they are also rounded to fewer bits, twice,
    // as two values that one rounding separates are equal after the other.
    if case.formula.is_some() {
        for (seed, most) in (0..4).flat_map(|seed| [(seed, 2e-5), (seed, -2e-5)]) {
            let values = Cell::new(0);
            let error = |_| {
                values.set(values.get() + 1);
                most * (score::uniform(seed, 0, values.get()) - 0.5)
            };
            prop_assume!(definition::read(case, draw, error).evictions == answer.evictions);
        }
        for bits in [16, 17] {
            let error = |value: f64| if value.is_finite() { rounded(value, bits) / value - 1.0 } else { 0.0 };
            prop_assume!(definition::read(case, draw, error).evictions == answer.evictions);
        }
    }
    let mut log = Vec::new();
    let mut attention = Vec::new();
    if policy.awaits_prompt() {
        attention = case.scan(&mut entries, case.prompt, &mut log);
        let vectors = case.columns(&entries);
        end_prompt(&mut entries, Some(&mut log), Some(&vectors));
    }
    attention.extend(case.scan(&mut entries, case.tokens, &mut log));
    // What leaves at once has no order.
    log.sort_by_key(|eviction| (eviction.step, eviction.group, eviction.victim));
    let mut evictions = answer.evictions;
    evictions.sort_by_key(|eviction| (eviction.step, eviction.group, eviction.victim));
    prop_assert_eq!(entries.survivors(), answer.survivors.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for (t, (got, want)) in attention.iter().zip(&answer.attention).enumerate() {
        for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
            prop_assert!((got - want).abs() < 1e-5, "token {}: {} and {}", t, got, want);
        }
    }
    prop_assert_eq!(log, evictions);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_scan_equals_the_definition(case in cases(false)) {
        agrees(&case)?;
    }

    #[test]
    fn schedules_equal_the_definition(case in cases(false), schedule in schedules(), prompt in 1usize..70) {
        agrees(&scheduled(case, schedule, prompt))?;
    }

    #[test]
    fn of_equal_scores_the_oldest_leave_at_once(case in cases(true), schedule in schedules(), prompt in 1usize..70) {
        agrees(&scheduled(case, schedule, prompt))?;
    }

    /// Heads with sizes of their own, or with a pool.
    #[test]
    fn budgets_by_head_equal_the_definition(
        case in prop_oneof![3 => cases(false), 1 => cases(true)], schedule in prop::option::of(schedules()), prompt in 1usize..70,
        pool in any::<bool>(), floor in prop::sample::select(vec![0u8, 20, 50, 100]), divided in 0usize..9, seed in any::<u64>()
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let case = match schedule {
            Some(schedule) => scheduled(case, schedule, prompt),
            None => case,
        };
        let kv_heads = case.heads.kv_heads;
        let [keep_first, keep_recent] = case.policy.protected();
        let least = keep_first.max(keep_recent) + keep_recent;
        let mut size = || if rng.bool() { usize::MAX } else { rng.usize(least + 1..least + 30) };
        let sizes: Vec<usize> = (0..kv_heads).map(|_| size()).collect();
        let budget = if pool { Budget::Pool(BudgetPool { over: PoolOver::Heads, floor, score: None }) } else { Budget::Uniform };
        let policy = Policy { budget, scope: Scope::Head, ..*case.policy };
        let of_heads: Option<&Vec<usize>> = if pool { None } else { Some(Box::leak(Box::new(sizes))) };
        let policy = SizedPolicy { policy, of_heads, ..case.policy };
        let own = ["value_norm", "if(rank(attention) < size / 2, 1000000, value_norm)", "attention * value_norm + size"];
        let Some(own) = own.get(divided).filter(|_| pool) else { return agrees(&Case { policy, ..case }) };
        // The same score divides the budget for every own one.
        let divider = if rng.bool() { "ema(attention, 0.5)" } else { "ema(logit, 0.5)" };
        let [own, divider] = [*own, divider].map(|text| (formula::parse::parse(text).unwrap(), Pool::Mean, text));
        let budget = Budget::Pool(BudgetPool {
            over: PoolOver::Heads, floor, score: Some(Formula::new(divider.2, Pool::Mean).unwrap())
        });
        let own_policy = Policy { budget, score: Score::new(own.2, Pool::Mean).unwrap(), ..*policy };
        let policy = SizedPolicy { policy: own_policy, ..policy };
        let (formula, divider) = (Some((own.0, own.1)), Some((divider.0, divider.1)));
        agrees(&Case { policy, tokens: case.tokens.min(40), prompt: case.prompt.min(40), formula, divider, ..case })?;
    }

    /// What an unbounded cache keeps of a policy until the prompt is cut is what a cache of its own has.
    #[test]
    fn a_shared_prompt_is_cut_as_one_of_its_own(
        case in cases(false), (other, size) in policies(), every in prop::option::of(1usize..9), written in formulas(), prompt in 1usize..70
    ) {
        let written = Score::new(&written, Pool::Mean).ok().filter(|score| !score.reads_future());
        let schedule = every.map_or(Schedule::Cut, Schedule::CutThenEvery);
        // A layer with a window takes `cut+1`.
        let window = case.window.filter(|_| every == Some(1));
        let case = Case { window, ..scheduled(case, schedule, prompt) };
        let other = Policy { schedule, score: written.unwrap_or(other.score), ..other }.at(size);
        let Ok(other) = other else { return Ok(()) };
        let own = [(case.policy, SALT), (other, SALT), (SizedPolicy { size: other.size + 3, ..other }, SALT + 1)];
        let unbounded = CacheEntries::unbounded(case.heads, &[], &[]).with_window(window, true);
        let mut unbounded = unbounded.with_cuts(&own).with_last_rows();
        case.scan(&mut unbounded, case.prompt, &mut Vec::new());
        let cuts = unbounded.take_cuts();
        for (policy, salt) in own {
            let alone = CacheEntries::bounded(case.heads, policy, salt).with_window(window, false);
            let mut alone = alone.with_last_rows();
            case.scan(&mut alone, case.prompt, &mut Vec::new());
            let mut shared = unbounded.fork_for_cut(&cuts, case.prompt, policy, salt).unwrap();
            let cut = |entries: &mut CacheEntries| {
                let vectors = case.columns(entries);
                end_prompt(entries, None, Some(&vectors))
            };
            prop_assert_eq!(cut(&mut shared), cut(&mut alone));
            let (mut a, mut b) = (Vec::new(), Vec::new());
            prop_assert_eq!(case.scan(&mut shared, case.tokens, &mut a), case.scan(&mut alone, case.tokens, &mut b));
            prop_assert_eq!(a, b);
            prop_assert_eq!(shared.survivors(), alone.survivors());
        }
    }

    /// What is computed from a prompt's last rows, and what follows, has the bits of a scan that remembers all rows. Windows add up what f64
    /// holds exactly: ranks and attention, whose logits differ little.
    #[test]
    fn the_last_rows_give_the_scores_of_all_rows(
        case in prop_oneof![3 => cases(false), 1 => cases(true)], written in formulas(), form in 0usize..4, steps in 1usize..12,
        every in prop::option::of(1usize..9), prompt in 1usize..70, divides in any::<bool>()
    ) {
        let own = if written.contains("window(") { "logit" } else { &written };
        let written = match form {
            0 => own.to_owned(),
            1 => format!("peak({own}, {steps})"),
            2 => format!("window(rank({own}), {steps})"),
            _ => format!("peak(window(attention, {steps}) * ({own}), 3)"),
        };
        let schedule = every.map_or(Schedule::Cut, Schedule::CutThenEvery);
        let case = scheduled(case, schedule, prompt);
        let divider = Formula::new("window(attention, 5)", Pool::Mean).unwrap();
        let budget = match divides {
            true => Budget::Pool(BudgetPool { over: PoolOver::Heads, floor: 20, score: Some(divider) }),
            false => Budget::Uniform,
        };
        let scope = if divides { Scope::Head } else { case.policy.scope };
        let score = Score::new(&written, Pool::Mean).ok().filter(|score| !score.reads_future());
        let Some(score) = score else { return Ok(()) };
        let policy = Policy { score, scope, budget, ..*case.policy }.at(case.policy.size);
        let Ok(policy) = policy else { return Ok(()) };
        let mut all = CacheEntries::bounded(case.heads, policy, SALT);
        let mut last = all.clone().with_last_rows();
        prop_assume!(last.as_bounded().unwrap().last_rows.is_some());
        case.scan(&mut all, case.prompt, &mut Vec::new());
        case.scan(&mut last, case.prompt, &mut Vec::new());
        let vectors = case.columns(&last);
        last.score_last_rows(&vectors);
        for group in 0..case.heads.groups(scope) {
            let scores = [&all, &last].map(|entries| {
                let scores = entries.scores_at_cut(entries.as_bounded().unwrap(), group, None);
                scores.into_iter().map(f64::to_bits).collect::<Vec<_>>()
            });
            prop_assert_eq!(&scores[0], &scores[1], "{}", score.name());
        }
        let (mut a, mut b) = (Vec::new(), Vec::new());
        prop_assert_eq!(end_prompt(&mut all, Some(&mut a), None), end_prompt(&mut last, Some(&mut b), None));
        prop_assert_eq!(case.scan(&mut all, case.tokens, &mut a), case.scan(&mut last, case.tokens, &mut b));
        prop_assert_eq!(a, b);
    }

    #[test]
    fn of_equal_scores_the_oldest_is_evicted(case in cases(true)) {
        agrees(&case)?;
    }

    /// What rows say of a policy is the policy.
    #[test]
    fn a_definition_is_read_back(
        (policy, _) in policies(), written in formulas(), max in any::<bool>(), percent in 0..=100u8, schedule in schedules()
    ) {
        let pool = if max { Pool::Max } else { Pool::Mean };
        let policy = policy.canonical();
        for policy in [Some(policy), Score::new(&written, pool).ok().map(|score| Policy { score, ..policy })].into_iter().flatten() {
            let policy = Policy { keep_first: FirstTokens::Count(Amount::Percent(percent)), budget: Budget::Pyramid(20), schedule, ..policy };
            prop_assert_eq!(policy.definition().parse::<Policy>().unwrap(), policy.canonical());
        }
    }

    /// Formulas against their definition: one entry after the other, in f64, from the whole past.
    #[test]
    fn formulas_equal_their_definition(
        case in cases(false), written in formulas(), max in any::<bool>(), scheduled in prop::option::of((schedules(), 1usize..30))
    ) {
        let pool = if max { Pool::Max } else { Pool::Mean };
        // Those that have a name have tests of their own.
        let Some(score) = Score::new(&written, pool).ok().filter(|score| !score.has_name()) else { return Ok(()) };
        let expr = formula::parse::parse(&written).unwrap();
        let SizedPolicy { policy: Policy { scope, keep_first, keep_recent, .. }, size, .. } = case.policy;
        let (budget, schedule) = (Budget::Uniform, Schedule::default());
        let policy = Policy { score, scope, keep_first, keep_recent, budget, schedule };
        prop_assume!(!max || !written.contains("pooled("));
        let tokens = case.tokens.min(30);
        // Whole blocks leave all heads at once.
        let Ok(policy) = policy.at(size) else { return Ok(()) };
        let case = Case { tokens, policy, formula: Some((expr, pool)), ..case };
        agrees(&match scheduled {
            Some((schedule, prompt)) => self::scheduled(case, schedule, prompt),
            None => case,
        })?;
    }

    /// Whatever the numbers of functions are, a formula is refused, or a cache has a score by it.
    #[test]
    fn no_parameter_panics(
        case in cases(false), name in prop::sample::select(FUNCTIONS.iter().map(|row| row.name).collect::<Vec<_>>()),
        number in prop::sample::select(vec![
            "0", "-0", "1", "2", "0.5", "-1", "1e9", "1e308", "1/0", "0/0", "size", "size - 16", "-size", "size * 1e6", "size / 20",
            "1 / size", "1 / (size - 3)", "log(size - 4)", "sqrt(3 - size)", "exp(size)", "softmax(size)", "age", "rank(size)",
        ]),
        of in prop::sample::select(vec!["attention", "log(age - 3)", "expected_attention(3)", "rank(-logit)"]), divides in any::<bool>(),
    ) {
        let written = [format!("{name}({of}, {number})"), format!("{name}({number})"), format!("{name}({number}, {of}, {of})")];
        for score in written.iter().filter_map(|written| Score::new(written, Pool::Mean).ok()) {
            let scope = if score.block().is_some() { Scope::Layer } else { Scope::Head };
            let budget = match score {
                Score::Formula(formula) if divides && scope == Scope::Head => {
                    Budget::Pool(BudgetPool { over: PoolOver::Heads, floor: 0, score: Some(formula) })
                }
                _ => Budget::Uniform,
            };
            let Ok(policy) = Policy { score, scope, budget, schedule: Schedule::default(), ..*case.policy }.at(case.policy.size) else {
                continue;
            };
            let mut entries = CacheEntries::bounded(case.heads, policy, SALT);
            case.scan(&mut entries, case.tokens.min(30), &mut Vec::new());
        }
    }

    /// A function that computes a score of the program decides as that does.
    #[test]
    fn functions_decide_as_the_scores_they_compute(
        case in cases(false), by_age in any::<bool>(), schedule in prop::option::of(schedules()), prompt in 1usize..70
    ) {
        let heads = case.heads.of_group(case.policy.scope, 0).len();
        let score = move |step: &Step<'_>| -> Option<Vec<f64>> {
            let entries = step.positions.len();
            assert_eq!(step.attention.len(), heads * entries);
            let attention = |entry: usize| (0..heads).map(|head| f64::from(step.attention[head * entries + entry])).sum();
            Some(if by_age { step.positions.iter().map(|at| f64::from(*at)).collect() } else { (0..entries).map(attention).collect() })
        };
        let custom = CustomScore::new(format!("{by_age}"), Box::new(score));
        let same = Score::new(if by_age { "position" } else { "attention" }, Pool::Mean).unwrap();
        let case = match schedule {
            Some(schedule) => scheduled(case, schedule, prompt),
            None => case,
        };
        let SizedPolicy { policy: Policy { scope, keep_first, keep_recent, schedule, .. }, size, .. } = case.policy;
        let budget = Budget::Uniform;
        let policy = |score| Policy { score, scope, keep_first, keep_recent, budget, schedule }.at(size).unwrap();
        // The oldest leaves in every group alike.
        prop_assume!(!by_age || scope == Scope::Layer);
        agrees_under(&Case { policy: policy(same), ..case }, policy(Score::Custom(custom)))?;
    }

    /// A bounded cache forked from an unbounded one equals a cache that was bounded from the start, and so does each of
    /// its clones.
    #[test]
    fn a_fork_equals_a_fresh_cache(case in cases(false), cut in 0usize..24, salt in any::<u64>()) {
        let cut = if !case.policy.score.shares_prefix() { 0 } else { cut.min(case.policy.size).min(case.tokens) };
        let mut fresh = CacheEntries::bounded(case.heads, case.policy, salt).with_window(case.window, false);
        let mut unbounded = CacheEntries::unbounded(case.heads, &[Scope::Layer, Scope::Head], &[cut])
            .with_window(case.window, true);
        let mut log = Vec::new();
        // Blocks end at the cut, as the engine's do.
        case.scan(&mut unbounded, cut, &mut log);
        case.scan(&mut unbounded, case.tokens, &mut log);
        let passed = case.window.map_or(0, |window| case.tokens.saturating_sub(window));
        prop_assert_eq!(log.len(), passed, "only the window removes entries");
        let mut fork = unbounded.fork(cut, Some(case.policy), salt).unwrap();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        case.scan(&mut fresh, cut, &mut Vec::new());
        let rest = case.scan(&mut fresh, case.tokens, &mut a);
        let mut clone = fork.clone();
        prop_assert_eq!(&case.scan(&mut fork, case.tokens, &mut b), &rest);
        prop_assert_eq!(case.scan(&mut clone, case.tokens, &mut Vec::new()), rest);
        prop_assert_eq!(clone.survivors(), fresh.survivors());
        prop_assert_eq!(a, b);
        prop_assert_eq!(fork.survivors(), fresh.survivors());
    }
}

/// A text of equal tokens in two heads of one key-value head.
fn plain_case(tokens: usize) -> Case {
    Case {
        heads: Heads { heads: 2, kv_heads: 1 },
        tokens,
        policy: presets::by_name("window").unwrap().at(3).unwrap(),
        window: None,
        prompt: tokens,
        logits: vec![0.0; 2 * tokens * tokens],
        norms: vec![0.0; tokens],
        vectors: [(); 2].map(|()| vec![1.0; tokens * DIM]),
        chunks: vec![2],
        formula: None,
        divider: None,
    }
}

fn policy_of(score: Score, keep_recent: usize) -> Policy {
    let (keep_first, keep_recent) = (FirstTokens::default(), Amount::Tokens(keep_recent));
    let (scope, budget, schedule) = (Scope::Layer, Budget::Uniform, Schedule::default());
    Policy { score, scope, keep_first, keep_recent, budget, schedule }
}

/// The entries that leave a cache of so many, one by one.
fn victims(case: &Case, policy: SizedPolicy) -> (Vec<u32>, ScoreCount) {
    let mut log = Vec::new();
    let mut entries = CacheEntries::bounded(case.heads, policy, SALT);
    case.scan(&mut entries, case.tokens, &mut log);
    (log.iter().map(|eviction| eviction.victim).collect(), entries.score_count())
}

#[test]
fn what_is_not_a_number_by_hand() {
    // Four tokens and three entries: the last step evicts one of the ages 3, 2, 1 and 0.
    for (written, victim, no_numbers) in [
        ("sqrt(1 - age)", 2, 2),
        ("sqrt(1 - age) + attention", 2, 2),
        ("rank(sqrt(1 - age))", 2, 0),
        ("-rank(sqrt(1 - age))", 1, 0),
        ("peak(sqrt(1 - age))", 0, 0),
        ("peak(sqrt(1 - age), 2)", 1, 1),
        ("peak(sqrt(1 - age) + attention, 2)", 1, 1),
        ("max(sqrt(1 - age), 2 - position)", 2, 0),
        ("log(age)", 3, 0),
        ("sqrt(logit - 1)", 0, 4),
        // Infinity and what is not a number are equal.
        ("if(age > 2, sqrt(logit - 1), exp(1000 * (age + 1)))", 0, 1),
        // 1/3 + 1/2, 1/2 + 1, and infinite for the others.
        ("if(age > 1, -window(1 / age, 2), 0)", 1, 0),
    ] {
        for pool in [Pool::Mean, Pool::Max] {
            let policy = policy_of(Score::new(written, pool).unwrap(), 0).at(3).unwrap();
            let expected = (vec![victim], ScoreCount { all: 4, no_numbers });
            assert_eq!(victims(&plain_case(4), policy), expected, "{written}, {pool:?}");
        }
    }
    assert!(ScoreCount { all: 4, no_numbers: 4 }.checked().is_err());
    assert!(ScoreCount { all: 4, no_numbers: 3 }.checked().is_ok() && ScoreCount::default().checked().is_ok());
}

/// While all entries are protected, they are infinitely more likely to be attended to than the none that may leave.
#[test]
fn a_sum_over_no_entry_is_a_positive_zero() {
    // Tokens 0 and 1 were protected together, token 2 never without one that was not. The fourth token evicts one of the
    // two infinite ones, the fifth the other or the finite one.
    for written in
        ["sum(expected_attention(3))", "peak(expected_attention(3))", "mean(expected_attention_mean(3))"]
    {
        let policy = policy_of(Score::new(written, Pool::Mean).unwrap(), 2).at(3).unwrap();
        assert_eq!(victims(&plain_case(5), policy).0, [0, 2], "{written}");
    }
}

#[test]
fn zeros_of_both_signs_are_ties() {
    // Zeros of newer entries are negative.
    let zeros = |step: &Step<'_>| {
        let zero = |at: &u32| if *at > 1 { -0.0 } else { 0.0 };
        Some(step.positions.iter().map(zero).collect())
    };
    let score = Score::Custom(CustomScore::new("zeros".into(), Box::new(zeros)));
    for budget in [Budget::Uniform, Budget::Pool(BudgetPool { over: PoolOver::Model, floor: 0, score: None })] {
        let policy = Policy { scope: Scope::Head, budget, schedule: Schedule::Cut, ..policy_of(score, 0) };
        let case = plain_case(5);
        let mut entries = CacheEntries::bounded(case.heads, policy.at(3).unwrap(), SALT);
        case.scan(&mut entries, case.tokens, &mut Vec::new());
        let vectors = case.columns(&entries);
        end_prompt(&mut entries, None, Some(&vectors));
        assert_eq!(entries.survivors(), [[2, 3, 4]], "{budget}");
    }
}

/// In a pool a number leaves before infinity, and infinity before nothing.
#[test]
fn infinite_scores_in_a_pool() {
    let scores = |step: &Step<'_>| {
        let of_head = |at: &u32| if step.group == 0 { [f64::INFINITY, f64::NAN][*at as usize % 2] } else { 5.0 };
        Some(step.positions.iter().map(of_head).collect())
    };
    let score = Score::Custom(CustomScore::new("infinite".into(), Box::new(scores)));
    let budget = Budget::Pool(BudgetPool { over: PoolOver::Heads, floor: 0, score: None });
    let policy = Policy { scope: Scope::Head, budget, ..policy_of(score, 0) }.at(3).unwrap();
    let tokens = 7;
    let case = Case {
        heads: Heads { heads: 2, kv_heads: 2 },
        norms: vec![0.0; 2 * tokens],
        vectors: [(); 2].map(|()| vec![1.0; 2 * tokens * DIM]),
        ..plain_case(tokens)
    };
    let mut entries = CacheEntries::bounded(case.heads, policy, SALT);
    case.scan(&mut entries, tokens, &mut Vec::new());
    // All of the second head leave first, then the oldest of the first.
    assert_eq!(entries.survivors(), [&[1, 2, 3, 4, 5, 6][..], &[]]);
}

/// The word `size` and percentages are of the cell's cache size, whatever a layer has.
#[test]
fn the_word_size_is_the_same_in_every_layer() {
    let score = Score::new("if(size == 4, position, -position)", Pool::Mean).unwrap();
    let budget = Budget::of_layers(&[3.0, 1.0]).unwrap();
    let policy = Policy { budget, ..policy_of(score, 0) }.at(4).unwrap();
    let layers: Vec<SizedPolicy> = policy.of_layers(&[true; 2]).into_iter().flatten().collect();
    assert_eq!(layers.iter().map(|own| own.size).collect::<Vec<_>>(), [6, 2]);
    assert_eq!(victims(&plain_case(4), layers[1]).0, [0, 1]);
}

/// A budget divides the entries of the layers that the policy bounds. Gemma 3's every sixth layer has no window.
#[test]
fn layers_with_a_window_of_their_own_have_no_part_in_a_budget() {
    let windows = |layer: usize| (layer % 6 != 5).then_some(512);
    let bounded = LocalLayers::Exempt.bounded((0..18).map(windows));
    let (tova, shares) = (presets::by_name("tova").unwrap(), (1..=18).map(f64::from).collect::<Vec<_>>());
    let sizes = |budget: Budget| -> Vec<usize> {
        let policy = Policy { budget, scope: Scope::Head, ..tova }.at(96).unwrap();
        policy.of_layers(bounded).into_iter().flatten().flat_map(|own| own.head_sizes(1)).collect()
    };
    // 91.2 of 96 more or less than 96; 6, 12 and 18 parts of 288.
    assert_eq!(sizes(Budget::Pyramid(20)), [187, 96, 5]);
    assert_eq!(sizes(Budget::of_layers(&shares).unwrap()), [48, 96, 144]);
    let table: Vec<Vec<Option<f64>>> = shares.iter().map(|share| vec![Some(*share)]).collect();
    assert_eq!(sizes(Budget::of_heads(&table, None).unwrap()), [48, 96, 144]);
    // Where all are bounded, it is divided among all.
    let all = LocalLayers::Bounded.bounded((0..18).map(windows));
    let policy = Policy { budget: Budget::Pyramid(20), ..tova }.at(96).unwrap();
    assert_eq!(policy.of_layers(all).into_iter().flatten().map(|own| own.size).sum::<usize>(), 18 * 96);
}

#[test]
fn the_least_size_of_a_short_prompt() {
    let snapkv = presets::by_name("snapkv").unwrap();
    // The newest 64 are protected.
    assert_eq!(
        [2, 63, 64, 200].map(|share| snapkv.least_size(share, 256, &[true; 2], 2)),
        [64, 64, 64, 200].map(Some)
    );
    assert_eq!(snapkv.least_size(2, 63, &[true; 2], 2), None);
    let sink = Policy { keep_first: FirstTokens::tokens(4), ..presets::by_name("tova").unwrap() };
    assert_eq!(sink.least_size(1, 100, &[true; 2], 2), Some(5));
    let window = policy_of(Score::new("window(attention, size - 16)", Pool::Mean).unwrap(), 0);
    assert_eq!(window.least_size(1, 100, &[true; 2], 2), Some(17));
}

#[test]
fn random_keeps_a_uniform_sample_of_the_past() {
    let (tokens, policy) = (512, presets::by_name("random").unwrap().at(64).unwrap());
    let heads = Heads { heads: 1, kv_heads: 1 };
    let case = Case { heads, chunks: vec![64], ..plain_case(tokens) };
    let mut quarters = [0usize; 4];
    for salt in 0..40 {
        let mut entries = CacheEntries::bounded(heads, policy, salt);
        case.scan(&mut entries, tokens, &mut Vec::new());
        for position in entries.survivors()[0] {
            quarters[*position as usize * 4 / tokens] += 1;
        }
    }
    // 640 expected in each quarter, standard deviation about 22.
    assert!(quarters.iter().all(|n| (*n as i64 - 640).abs() < 110), "{quarters:?}");
}

#[test]
fn canonical_policies_drop_settings_without_effect() {
    let window = presets::by_name("window").unwrap();
    let odd = Policy { scope: Scope::Head, keep_recent: Amount::Tokens(3), ..window };
    assert_eq!(odd.canonical(), window);
    assert_eq!(odd.to_string(), window.to_string());
}
