//! Selection against a plain definition: nothing leaves, and every query chooses anew, in f64.

use super::*;

/// Attention over some positions, in f64: (positions)
fn softmax(case: &Case, head: usize, query: usize, over: &[usize]) -> Vec<f64> {
    let weights: Vec<f64> = over.iter().map(|at| f64::from(case.logit(head, query, *at)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// A score of an entry for one query head: `all` are the positions that the query sees.
type Scored = fn(&Case, usize, usize, &[usize], usize) -> f64;

/// The most that a product of the query with a key in the bounds of an entry's page of 4 can be.
fn page_bound(case: &Case, head: usize, query: usize, all: &[usize], entry: usize) -> f64 {
    let keys = || {
        let page = all.iter().filter(|other| *other / 4 == entry / 4);
        page.map(|at| case.key(head / case.heads.per_kv_head(), *at))
    };
    let bound = |(d, q): (usize, &f32)| {
        let [least, most] =
            [f32::min, f32::max].map(|of| keys().map(|key| key[d]).reduce(of).expect("the entry is in its page"));
        f64::max(f64::from(*q) * f64::from(least), f64::from(*q) * f64::from(most))
    };
    0.5 * case.query(head, query).iter().enumerate().map(bound).sum::<f64>()
}

fn attention(case: &Case, head: usize, query: usize, all: &[usize], entry: usize) -> f64 {
    let place = all.iter().position(|at| *at == entry).expect("the query sees the entry");
    softmax(case, head, query, all)[place]
}

fn logit(case: &Case, head: usize, query: usize, _: &[usize], entry: usize) -> f64 {
    f64::from(case.logit(head, query, entry))
}

/// Of the attention of all queries to all that they saw.
fn received(case: &Case, head: usize, query: usize, _: &[usize], entry: usize) -> f64 {
    (entry..=query).map(|query| case.attention_with_all(head, query, entry)).sum()
}

fn position(_: &Case, _: usize, _: usize, _: &[usize], entry: usize) -> f64 {
    entry as f64
}

/// Formulas, what they compute, and the tokens of the blocks that are selected whole.
const SCORES: [(&str, Scored, usize); 6] = [
    ("attention", attention, 1),
    ("logit", logit, 1),
    ("sum(attention)", received, 1),
    ("position", position, 1),
    ("page_bound(4)", page_bound, 4),
    // Of entries, because something else differs in a page.
    (
        "page_bound(4) + position / 1000",
        |case, head, query, all, entry| page_bound(case, head, query, all, entry) + entry as f64 / 1000.0,
        1,
    ),
];

/// The positions that a query of a group attends to, and whether a difference below f32's precision decides.
fn chosen(case: &Case, group: usize, query: usize, (scored, block): (Scored, usize)) -> (Vec<usize>, bool) {
    let policy = case.policy;
    let first = case.window.map_or(0, |window| (query + 1).saturating_sub(window));
    let all: Vec<usize> = (first..=query).collect();
    let [keep_first, keep_recent] = policy.protected();
    let is_protected = |at: usize| at < keep_first || at + keep_recent > query;
    let heads = case.heads.of_group(policy.scope, group);
    let score = |at: usize| {
        heads.clone().map(|head| scored(case, head, query, &all, at)).sum::<f64>() / heads.len() as f64
    };
    // Blocks with a protected entry come last, and of them only the others are left out.
    let has_protected = |at: usize| all.iter().any(|other| other / block == at / block && is_protected(*other));
    let mut order: Vec<(bool, f64, usize)> = Vec::new();
    for at in all.iter().copied().filter(|at| !is_protected(*at)) {
        let beside = order.iter().find(|(_, _, other)| other / block == at / block).map(|(_, score, _)| *score);
        order.push((block > 1 && has_protected(at), beside.unwrap_or_else(|| score(at)), at));
    }
    order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut out: Vec<usize> = Vec::new();
    let mut is_close = false;
    for part in order.chunk_by(|a, b| a.2 / block == b.2 / block && block > 1) {
        if all.len() - out.len() > policy.size {
            out.extend(part.iter().map(|(_, _, at)| at));
        } else {
            let last = order.iter().find(|(.., at)| Some(at) == out.last());
            let gap = |other: &(bool, f64, usize)| {
                other.0 == part[0].0
                    && other.1 != part[0].1
                    && (part[0].1 - other.1).abs() <= 1e-5 * part[0].1.abs().max(1e-3)
            };
            is_close = last.is_some_and(gap);
            break;
        }
    }
    (all.into_iter().filter(|at| !out.contains(at)).collect(), is_close)
}

/// The attention of a scan that selects is what the definition gives, nothing leaves, and how a text is cut into blocks changes no bit.
fn agrees(case: &Case, how: (Scored, usize)) -> Result<(), TestCaseError> {
    let mut entries = CacheEntries::bounded(case.heads, case.policy, SALT).with_window(case.window, false);
    let mut log = Vec::new();
    let mut attention = Vec::new();
    let selects_from = if case.policy.schedule.cuts() { case.prompt } else { 0 };
    if selects_from > 0 {
        attention = case.scan(&mut entries, case.prompt, &mut log);
        prop_assert_eq!(end_prompt(&mut entries, Some(&mut log), None), None);
    }
    attention.extend(case.scan(&mut entries, case.tokens, &mut log));
    let passed = case.window.map_or(0, |window| case.tokens.saturating_sub(window));
    prop_assert_eq!(log.len(), passed * case.heads.groups(case.policy.scope));
    prop_assert!(entries.survivors().iter().all(|group| group.len() == case.tokens - passed));
    for (query, of_query) in attention.iter().enumerate() {
        for (head, of_head) in of_query.iter().enumerate() {
            let group = (0..case.heads.groups(case.policy.scope))
                .find(|group| case.heads.of_group(case.policy.scope, *group).contains(&head));
            let (seen, is_close) = match query < selects_from {
                true => ((0..=query).collect(), false),
                false => chosen(case, group.unwrap(), query, how),
            };
            prop_assume!(!is_close);
            let expected = softmax(case, head, query, &seen);
            let mut want = vec![0.0; case.tokens];
            seen.iter().zip(expected).for_each(|(at, weight)| want[*at] = weight);
            for (at, (got, want)) in of_head.iter().zip(&want).enumerate() {
                prop_assert!((got - want).abs() < 1e-5, "query {query}, entry {at}: {got} and {want}");
            }
        }
    }
    let mut by_one = CacheEntries::bounded(case.heads, case.policy, SALT).with_window(case.window, false);
    let singly = Case { chunks: vec![1], ..case.clone() };
    let mut again = Vec::new();
    if selects_from > 0 {
        again = singly.scan(&mut by_one, case.prompt, &mut Vec::new());
        end_prompt(&mut by_one, None, None);
    }
    again.extend(singly.scan(&mut by_one, case.tokens, &mut Vec::new()));
    prop_assert_eq!(again, attention);
    Ok(())
}

/// A case whose queries select by one of [`SCORES`].
fn selecting(case: Case, which: usize, schedule: Schedule, prompt: usize) -> Option<(Case, (Scored, usize))> {
    let (written, scored, block) = SCORES[which];
    let score = Score::new(written, Pool::Mean).unwrap();
    let policy = Policy { score, schedule, select_from: Some(0), ..*case.policy };
    let policy = policy.at(case.policy.size).ok()?;
    // No window passes a page in part, and none beside a prompt that queries see whole.
    let window = case.window.filter(|_| score.page().is_none() && !schedule.cuts());
    Some((Case { policy, window, prompt: prompt.clamp(1, case.tokens), ..case }, (scored, block)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn selection_equals_the_definition(
        case in prop_oneof![3 => cases(false), 1 => cases(true)], which in 0..SCORES.len(), cuts in any::<bool>(), prompt in 1usize..70
    ) {
        let schedule = if cuts { Schedule::Cut } else { Schedule::EVERY_TOKEN };
        let Some((case, how)) = selecting(case, which, schedule, prompt) else { return Ok(()) };
        agrees(&case, how)?;
    }

    /// The newest entries alone are what a window leaves, which attends before it evicts.
    #[test]
    fn selecting_the_newest_is_a_window(case in cases(false)) {
        // A layer's own window takes first tokens, whose place those that have left cannot take.
        let case = Case { window: None, ..case };
        let position = Policy { score: Score::new("position", Pool::Mean).unwrap(), keep_recent: Amount::default(), ..*case.policy };
        let evicting = position.at(case.policy.size).unwrap();
        let selecting = Policy { select_from: Some(0), ..position }.at(case.policy.size + 1).unwrap();
        let [left, selected] = [evicting, selecting].map(|policy| {
            let mut entries = CacheEntries::bounded(case.heads, policy, SALT).with_window(case.window, false);
            case.scan(&mut entries, case.tokens, &mut Vec::new())
        });
        for (left, selected) in left.iter().flatten().flatten().zip(selected.iter().flatten().flatten()) {
            prop_assert!((left - selected).abs() < 1e-6, "{left} {selected}");
        }
    }

    /// What an unbounded cache has read is the beginning of one whose queries select, and so is a prompt that both read.
    #[test]
    fn a_prefix_is_shared(case in cases(false), which in 0..SCORES.len(), cuts in any::<bool>(), prompt in 1usize..70) {
        let schedule = if cuts { Schedule::Cut } else { Schedule::EVERY_TOKEN };
        let Some((case, _)) = selecting(Case { window: None, ..case }, which, schedule, prompt) else { return Ok(()) };
        prop_assume!(cuts || case.policy.shares_prefix());
        let start = if cuts { case.prompt } else { case.policy.size.min(case.prompt) };
        let unbounded = CacheEntries::unbounded(case.heads, &[Scope::Layer, Scope::Head], &[start]);
        let own = [(case.policy, SALT)];
        let mut unbounded = unbounded.with_cuts(if cuts { &own } else { &[] }).with_last_rows();
        case.scan(&mut unbounded, start, &mut Vec::new());
        let mut fresh = CacheEntries::bounded(case.heads, case.policy, SALT).with_last_rows();
        case.scan(&mut fresh, start, &mut Vec::new());
        let mut fork = if cuts {
            let taken = unbounded.take_cuts();
            let mut fork = unbounded.fork_for_cut(&taken, start, case.policy, SALT).unwrap();
            prop_assert_eq!((end_prompt(&mut fork, None, None), end_prompt(&mut fresh, None, None)), (None, None));
            fork
        } else {
            unbounded.fork(start, Some(case.policy), SALT).unwrap()
        };
        let mut log = Vec::new();
        prop_assert_eq!(case.scan(&mut fork, case.tokens, &mut log), case.scan(&mut fresh, case.tokens, &mut log));
        prop_assert!(log.is_empty());
    }
}

#[test]
fn what_selection_cannot_be_is_refused() {
    let base = Policy { select_from: Some(0), ..presets::by_name("tova").unwrap() };
    let bound = |policy: Policy| Policy { score: Score::new("page_bound(16)", Pool::Mean).unwrap(), ..policy };
    let pool = Budget::Pool(BudgetPool { over: PoolOver::Heads, floor: 0, score: None });
    for (policy, size, words) in [
        (Policy { schedule: Schedule::Every(8), ..base }, 20, "its schedule must be 1, or cut"),
        (Policy { schedule: Schedule::CutThenEvery(1), ..base }, 20, "its schedule must be 1, or cut"),
        (Policy { budget: pool, scope: Scope::Head, ..base }, 20, "leave out its budget"),
        (Policy { keep_first: FirstTokens::Prompt, ..base }, 20, "a whole prompt exceeds"),
        (bound(base), 15, "a block of 16 entries"),
        (Policy { select_from: None, ..bound(base) }, 20, "`select: {score: ...}`"),
    ] {
        let error = policy.at(size).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(bound(base).at(16).is_ok() && bound(base).check_windows().is_err() && base.check_windows().is_ok());
    // A layer of its budget has fewer than a page.
    let uneven = Policy { budget: Budget::of_layers(&[3.0, 1.0]).unwrap(), ..bound(base) };
    assert!(uneven.check(30, &[true; 2], 1).is_err() && uneven.check(32, &[true; 2], 1).is_ok());
}

/// Layers before the first that selects are bounded by nothing, and a budget has no part for them.
#[test]
fn the_first_layers_attend_to_all() {
    let policy =
        Policy { select_from: Some(2), budget: Budget::Pyramid(20), ..presets::by_name("top-k").unwrap() };
    let sizes: Vec<Option<usize>> =
        policy.at(40).unwrap().of_layers(&[true; 5]).into_iter().map(|own| Some(own?.size)).collect();
    assert_eq!(sizes, [None, None, Some(78), Some(40), Some(2)]);
    // 100 tokens after a prompt of 60: all are held, and 40 of them are read, by the bounds of 7 pages.
    let quest = presets::by_name("quest").unwrap().at(40).unwrap();
    assert_eq!((quest.entries_after(100, 60), quest.read_after(100, 60)), (100, (40, 7)));
    assert_eq!(quest.read_after(40, 30), (40, 0));
    let tova = presets::by_name("tova").unwrap().at(40).unwrap();
    assert_eq!(tova.read_after(100, 60), (tova.entries_after(100, 60), 0));
    let written = quest.definition();
    assert_eq!(
        written,
        "score=page_bound(16) scope=head keep_first=0 keep_recent=1 budget=uniform schedule=cut select_from=2"
    );
    assert_eq!(written.parse::<Policy>().unwrap(), quest.policy);
}
