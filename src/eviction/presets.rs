//! The policies that have a name in the literature, as rows of a table.
//!
//! Each row names its paper, and where the code it agrees with deviates from other code of the same name. `full`
//! and `truncate` are not policies but values of [`CacheRule`](super::CacheRule).

use super::budget::Budget;
use super::policy::{Amount, Policy};
use super::scoring::Score;
use super::settings::Scope;

/// One named policy, for `list` and the documentation.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name; `+I` after it protects the first I tokens.
    pub name: &'static str,
    pub policy: Policy,
    /// What leaves, in one line.
    pub summary: &'static str,
    /// Paper and code that define it.
    pub source: &'static str,
}

const fn preset(
    name: &'static str,
    (score, scope, keep_recent): (Score, Scope, Amount),
    summary: &'static str,
    source: &'static str,
) -> Preset {
    let policy = Policy { score, scope, keep_first: Amount::Tokens(0), keep_recent, budget: Budget::Uniform };
    Preset { name, policy, summary, source }
}

/// The table of presets.
pub const PRESETS: &[Preset] = &[
    preset(
        "window",
        (Score::Recency, Scope::Layer, Amount::Tokens(0)),
        "the oldest leaves; +I keeps the first I tokens for ever (StreamingLLM's sinks)",
        "arXiv 2401.06104 s. 3; arXiv 2309.17453, mit-han-lab/streaming-llm (which re-rotates keys: positions: slot)",
    ),
    preset(
        "tova",
        (Score::LastAttention, Scope::Layer, Amount::Tokens(0)),
        "the entry the newest query attends to least leaves, one for all heads; it may be the newest itself",
        "arXiv 2401.06104 s. 4, schwartz-lab-NLP/TOVA (NVIDIA/kvpress protects the newest: keep_recent: 1)",
    ),
    preset(
        "tova-head",
        (Score::LastAttention, Scope::Head, Amount::Tokens(0)),
        "TOVA with one decision per key-value head",
        "arXiv 2401.06104 Table 3",
    ),
    preset(
        "h2o",
        (Score::AccumulatedAttention, Scope::Head, Amount::Percent(50)),
        "the newest half stays; of the older, the one that received least attention leaves, per key-value head",
        "arXiv 2306.14048, FMInference/H2O `utils_real_drop` with half of the cache recent, as arXiv 2401.06104 s. 5 runs it",
    ),
    preset(
        "h2o-layer",
        (Score::AccumulatedAttention, Scope::Layer, Amount::Percent(50)),
        "H2O with one decision per layer",
        "arXiv 2401.06104 Table 3",
    ),
    preset(
        "knorm",
        (Score::KeyNorm, Scope::Head, Amount::Tokens(0)),
        "the key with the largest L2 norm leaves, per key-value head",
        "arXiv 2406.11430, NVIDIA/kvpress `knorm_press.py` (which cuts the prompt once; here every token)",
    ),
    preset(
        "knorm-layer",
        (Score::KeyNorm, Scope::Layer, Amount::Tokens(0)),
        "knorm with one decision per layer, over the mean norm of its key-value heads",
        "as knorm",
    ),
    preset(
        "random",
        (Score::Random, Scope::Layer, Amount::Tokens(0)),
        "a uniform sample of everything read survives; the floor every policy must beat",
        "NVIDIA/kvpress `random_press.py` (which draws afresh at every cut)",
    ),
];

/// The policy a preset's name stands for: `tova`, `window+4`, ...
pub fn by_name(name: &str) -> Option<Policy> {
    let (base, keep_first) = split_keep_first(name).unwrap_or((name, 0));
    let preset = PRESETS.iter().find(|preset| preset.name == base)?;
    Some(Policy { keep_first: Amount::Tokens(keep_first), ..preset.policy })
}

/// A name without the `+I` at its end, and I.
pub fn split_keep_first(name: &str) -> Option<(&str, usize)> {
    let (base, digits) = name.rsplit_once('+')?;
    let keep_first: usize = digits.parse().ok()?;
    // Without a sign or leading zeros, so that every policy has a single name.
    (keep_first.to_string() == digits).then_some((base, keep_first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_resolve() {
        assert_eq!(by_name("window+4").unwrap().keep_first, Amount::Tokens(4));
        assert_eq!(by_name("window+0").unwrap(), by_name("window").unwrap());
        assert_eq!(by_name("h2o").unwrap().keep_recent.of(37), 37 - 37 / 2);
        assert_eq!(by_name("tova-head").unwrap().scope, Scope::Head);
        for wrong in ["", "windw", "window+", "window+-4", "window+04", "full", "TOVA", "tova+4+4"] {
            assert!(by_name(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_checked() {
        let window4 = by_name("window+4").unwrap();
        assert!(window4.at(4).is_err());
        assert!(window4.at(5).is_ok());
        assert!(by_name("tova").unwrap().at(0).is_err());
        assert!(by_name("h2o").unwrap().at(1).is_ok());
        assert!(by_name("h2o+1").unwrap().at(1).is_err());
        // 10 % of 41 entries are 5; 50 % of an odd size are the larger half, so two halves do not fit.
        let tova = by_name("tova").unwrap();
        let percent = |first, recent| Policy {
            keep_first: Amount::Percent(first),
            keep_recent: Amount::Percent(recent),
            ..tova
        };
        let kept =
            |first, recent, size| percent(first, recent).at(size).map(|p| (p.keep_first, p.keep_recent)).ok();
        assert_eq!(kept(10, 0, 41), Some((5, 0)));
        assert_eq!(kept(50, 50, 40), Some((20, 20)));
        assert_eq!(kept(50, 50, 41), None);
        assert_eq!(kept(99, 1, 100), Some((99, 1)));
        assert_eq!(kept(99, 0, 10), None, "rounded up it fills the cache");
        assert_eq!(kept(100, 0, 100), None);
        assert_eq!(percent(10, 0).to_string(), "score=last_attention scope=layer keep_first=10% keep_recent=0%");
    }
}
