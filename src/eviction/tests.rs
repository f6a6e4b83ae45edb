//! The scan against the definition, on generated logits. A layer's logits don't depend on its evictions, so no
//! model is needed.

use proptest::prelude::*;

use super::definition;
use super::*;

/// A generated layer: its logits, key norms and policy.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub heads: Heads,
    pub tokens: usize,
    pub policy: SizedPolicy,
    /// Tokens that a query sees, itself included.
    pub window: Option<usize>,
    /// (heads, tokens, tokens)
    logits: Vec<f32>,
    /// (kv_heads, tokens)
    norms: Vec<f32>,
    chunks: Vec<usize>,
}

impl Case {
    pub fn logit(&self, head: usize, query: usize, key: usize) -> f32 {
        self.logits[(head * self.tokens + query) * self.tokens + key]
    }

    pub fn norm(&self, kv_head: usize, position: usize) -> f32 {
        self.norms[kv_head * self.tokens + position]
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
            let held = entries.len();
            let groups: Vec<usize> = (0..self.heads.kv_heads).map(|kv| entries.group_of(kv)).collect();
            let mut scan = entries.begin(rows, |kv, row| f64::from(self.norm(kv, start + row)));
            let stride = scan.stride();
            let key_at = |head: usize, column: usize| match column.checked_sub(held) {
                Some(row) => start + row,
                None => positions[groups[head / self.heads.per_kv_head()]][column] as usize,
            };
            // Unused columns hold arbitrary numbers, as in the real table.
            let mut logits = vec![1e3; self.heads.heads * rows * stride];
            for head in 0..self.heads.heads {
                for row in 0..rows {
                    for column in 0..=held + row {
                        logits[(head * rows + row) * stride + column] =
                            self.logit(head, start + row, key_at(head, column));
                    }
                }
            }
            let mut normaliser =
                Normaliser { max: vec![0.0; self.heads.heads * rows], sum: vec![0.0; self.heads.heads * rows] };
            for row in 0..rows {
                scan.step(row, &mut logits, &mut normaliser, Some(log));
                let mut attention = vec![vec![0.0; self.tokens]; self.heads.heads];
                for (head, attention) in attention.iter_mut().enumerate() {
                    let at = head * rows + row;
                    for column in 0..held + rows {
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
    let score = prop::sample::select(SCORES.iter().map(|keyword| keyword.value).collect::<Vec<_>>());
    let scope = prop::sample::select(vec![Scope::Layer, Scope::Head]);
    (score, scope, 1usize..24).prop_flat_map(|(score, scope, size)| {
        (0..size, 0..=size).prop_map(move |(keep_first, recent)| {
            let keep_recent = Amount::Tokens(recent.min(size - keep_first));
            let keep_first = Amount::Tokens(keep_first);
            (Policy { score, scope, keep_first, keep_recent, budget: Budget::Uniform }, size)
        })
    })
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
            let policy = policy.at(size).unwrap();
            Case { heads: Heads { heads, kv_heads }, tokens, policy, window, logits, norms, chunks }
        },
    )
}

fn agrees(case: &Case) -> Result<(), TestCaseError> {
    let mut entries = CacheEntries::bounded(case.heads, case.policy, SALT).with_window(case.window, false);
    let draw = |group, position| entries.priority(group, position as u32, |_| 0.0).unwrap_or_default();
    let answer = definition::read(case, draw);
    prop_assume!(!answer.ambiguous);
    let mut log = Vec::new();
    let attention = case.scan(&mut entries, case.tokens, &mut log);
    prop_assert_eq!(entries.survivors(), answer.survivors.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for (t, (got, want)) in attention.iter().zip(&answer.attention).enumerate() {
        for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
            prop_assert!((got - want).abs() < 1e-5, "token {}: {} and {}", t, got, want);
        }
    }
    prop_assert_eq!(log, answer.evictions);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_scan_equals_the_definition(case in cases(false)) {
        agrees(&case)?;
    }

    #[test]
    fn of_equal_scores_the_oldest_is_evicted(case in cases(true)) {
        agrees(&case)?;
    }

    /// A bounded cache forked from an unbounded one equals a cache that was bounded from the start, and so does each of
    /// its clones.
    #[test]
    fn a_fork_equals_a_fresh_cache(case in cases(false), cut in 0usize..24, salt in any::<u64>()) {
        let cut = if case.policy.score.compares_norms() { 0 } else { cut.min(case.policy.size).min(case.tokens) };
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

#[test]
fn random_keeps_a_uniform_sample_of_the_past() {
    let (tokens, policy) = (512, presets::by_name("random").unwrap().at(64).unwrap());
    let heads = Heads { heads: 1, kv_heads: 1 };
    let (logits, norms) = (vec![0.0; tokens * tokens], vec![0.0; tokens]);
    let case = Case { heads, tokens, policy, window: None, logits, norms, chunks: vec![64] };
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
