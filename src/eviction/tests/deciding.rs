//! One decision for all layers, against a plain definition in f64.

use super::*;

/// Positions in the cache after a text, and what has left each layer, by scores of the attention of the layers that decide; whether a
/// difference below f32's precision decided.
fn define(layers: &[Case], deciding: &[usize], sums: bool) -> (Vec<u32>, Vec<(u32, u32)>, bool) {
    let Case { policy, tokens, prompt, heads, .. } = layers[0];
    let [keep_first, keep_recent] = policy.protected();
    let (mut living, mut left, mut is_close): (Vec<usize>, Vec<(u32, u32)>, bool) =
        (Vec::new(), Vec::new(), false);
    let mut received = vec![vec![0.0; tokens]; layers.len()];
    for t in 0..tokens {
        living.push(t);
        let mut scores = vec![0.0; tokens];
        for layer in deciding {
            for head in 0..heads.heads {
                let weight = |at: usize| f64::from(layers[*layer].logit(head, t, at)).exp();
                let sum: f64 = living.iter().map(|at| weight(*at)).sum();
                for at in &living {
                    let own = weight(*at) / sum;
                    received[*layer][*at] += own;
                    scores[*at] += if sums { 0.0 } else { own };
                }
            }
            if sums {
                living.iter().for_each(|at| scores[*at] += received[*layer][*at]);
            }
        }
        let is_cut = policy.schedule.cuts() && t + 1 == prompt;
        let leaving = match policy.schedule.every() {
            _ if policy.schedule.cuts() && t + 1 < prompt => 0,
            _ if is_cut => living.len().saturating_sub(policy.size),
            Some(every) if living.len() >= policy.size + every => living.len() - policy.size,
            _ => 0,
        };
        let free = |(i, at): &(usize, usize)| *at >= keep_first && i + keep_recent < living.len();
        let mut order: Vec<usize> = living.iter().copied().enumerate().filter(free).map(|(_, at)| at).collect();
        order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]).then(a.cmp(b)));
        let (out, stay) = order.split_at(leaving.min(order.len()));
        if let (Some(last), Some(next)) = (out.last(), stay.first()) {
            is_close |= (scores[*next] - scores[*last]).abs() <= 1e-5 * scores[*next];
        }
        left.extend(out.iter().map(|at| (t as u32, *at as u32)));
        living.retain(|at| !out.contains(at));
    }
    left.sort_unstable();
    (living.into_iter().map(|at| at as u32).collect(), left, is_close)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 500, ..ProptestConfig::default() })]

    /// Read one token at a time, as a model reads where all layers evict together.
    #[test]
    fn all_layers_lose_what_the_deciding_ones_say(
        case in cases(false), count in 2usize..4, seed in any::<u64>(), schedule in schedules(), prompt in 1usize..70, sums in any::<bool>(),
        chosen in prop::collection::vec(0usize..4, 0..3)
    ) {
        let text = if sums { "sum(attention)" } else { "attention" };
        let chosen: Vec<DecidingLayer> = chosen.into_iter().map(|layer| match layer {
            3 => DecidingLayer::Last,
            layer => DecidingLayer::Number(layer.min(count - 1) as u32),
        }).collect();
        let layers = DecidingLayers::new(chosen).ok();
        prop_assume!(layers.is_none_or(|layers| !layers.is_first_alone()));
        let policy = Policy {
            score: Score::new(text, Pool::Mean).unwrap(), scope: Scope::Model, layers, schedule, ..*case.policy
        }.at(case.policy.size).unwrap();
        let case = Case { policy, window: None, prompt: prompt.clamp(1, case.tokens), ..case };
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut other = || Case { logits: case.logits.iter().map(|_| 12.0 * rng.f32() - 6.0).collect(), ..case.clone() };
        let cases: Vec<Case> = std::iter::once(case.clone()).chain((1..count).map(|_| other())).collect();
        let deciding: std::collections::BTreeSet<usize> =
            layers.map_or_else(|| (0..count).collect(), |layers| layers.of(count).collect());
        let (survivors, left, is_close) = define(&cases, &Vec::from_iter(deciding), sums);
        prop_assume!(!is_close);
        let caches = |layer: usize| CacheEntries::bounded(case.heads, policy, SALT).of_layer(layer);
        let mut caches: Vec<CacheEntries> = (0..count).map(caches).collect();
        let mut logs = vec![Vec::new(); count];
        for t in 1..=case.tokens {
            for ((case, entries), log) in cases.iter().zip(&mut caches).zip(&mut logs) {
                case.scan(entries, t, log);
            }
            // Nothing leaves before a prompt that is cut ends.
            if t != case.prompt && caches[0].awaits_cut() {
                continue;
            }
            let layers = caches.iter_mut().zip(&mut logs);
            let layers = layers.map(|(entries, log)| LayerEntries { entries, log: Some(log), vectors: None });
            evict_together(&mut layers.collect::<Vec<_>>(), t == case.prompt);
        }
        for (entries, log) in caches.iter().zip(logs) {
            prop_assert_eq!(entries.survivors(), [survivors.as_slice()]);
            let mut own: Vec<(u32, u32)> = log.iter().map(|eviction| (eviction.step, eviction.victim)).collect();
            own.sort_unstable();
            prop_assert_eq!(&own, &left);
        }
    }
}

#[test]
fn deciding_layers_are_named_once_and_checked() {
    let of = |layers: &str| layers.parse::<DecidingLayers>();
    assert_eq!(of("last,3,first,3").unwrap().to_string(), "first,3,last");
    assert!(
        of("").is_err() && of("middle").is_err() && of("-1").is_err() && DecidingLayers::new(Vec::new()).is_err()
    );
    let tova = presets::by_name("tova").unwrap();
    let policy = |layers: &str| Policy { scope: Scope::Model, layers: Some(of(layers).unwrap()), ..tova };
    let written = policy("0,last").definition();
    assert_eq!(
        written,
        "score=last_attention scope=model first,last keep_first=0 keep_recent=0 budget=uniform schedule=1"
    );
    assert_eq!(written.parse::<Policy>().unwrap(), policy("first,last"));
    assert!(policy("2").check(8, &[true; 3], 1).is_ok());
    assert!(policy("3").check(8, &[true; 3], 1).is_err());
    // Its own window bounds the first layer.
    assert!(
        policy("first").check(8, &[false, true], 1).is_err() && policy("last").check(8, &[false, true], 1).is_ok()
    );
    assert!(Policy { scope: Scope::Layer, ..policy("first") }.at(8).is_err());
    assert!(Policy { budget: Budget::Pyramid(20), ..policy("first") }.at(8).is_err());
    assert!(Policy { select_from: Some(0), ..policy("first") }.at(8).is_err());
    assert!(policy("first").check_windows().is_err());
}
