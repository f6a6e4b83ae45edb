//! Formulas as text: which are equal, which mean a named score, and which are refused, and where.

use super::*;
use crate::eviction::Score;

fn text(formula: &str) -> &'static str {
    Formula::new(formula, Pool::Mean).unwrap_or_else(|error| panic!("{formula}: {error}")).text()
}

#[test]
fn equal_formulas_have_one_text() {
    for (canonical, others) in [
        (
            "ema(attention, 0.95)",
            &["ema( attention,.95 )", "2 * ema(attention, 0.95) + 1", "pooled(ema(attention, 0.95))"][..],
        ),
        (
            "0.7 * attention + 0.3 * ema(attention, 0.9)",
            &["0.3*ema(attention,0.9)+0.7*attention", "0.7*pooled(attention) + ema(0.3*attention, 9e-1)"],
        ),
        ("sum(attention) * value_norm", &["value_norm * sum(attention)", "(sum(3 * attention)) * value_norm / 3"]),
        ("attention / (1 - attention) * output_shift", &["output_shift * (attention / (1 - attention))"]),
        ("attention < position", &["position > attention", "(attention < position) * 2"]),
        ("-key_similarity", &["-(key_similarity)", "0 - key_similarity", "-2 * key_similarity"]),
        ("window(attention, 0.05 * size)", &["window(attention, size / 20)"]),
        ("sum(attention != 0)", &["count(attention)"]),
        ("age * attention", &["attention * age", "attention * age + 0 * key_norm"]),
        ("max(age, attention)", &["max(attention, age)"]),
        // Equal entries have different ranks, so such a rank is not the same for all.
        ("age + rank(size)", &["rank(size) + age + 2"]),
        ("exp(attention) + log(attention)", &["log(attention) + exp(attention)"]),
        ("peak(pooled_mean(attention)) + pooled_mean(exp(logit))", &["exp(logit) + peak(pooled(attention))"]),
    ] {
        assert_eq!(text(canonical), canonical);
        for other in others {
            assert_eq!(text(other), canonical, "{other}");
        }
    }
    let [mean, max] = [Pool::Mean, Pool::Max].map(|pool| Formula::new("attention * value_norm", pool).unwrap());
    assert_ne!(mean, max);
    assert_eq!(max.text(), "pooled_max(attention * value_norm)");
    assert_eq!(text(max.text()), max.text());
}

#[test]
fn named_scores_are_formulas() {
    for score in crate::eviction::SCORES {
        assert_eq!(Score::new(score.name, Pool::Mean), Ok(score.value));
        assert_eq!(Score::new(score.value.formula(), Pool::Mean), Ok(score.value));
    }
    for (formula, name) in [
        ("ema(attention, 0)", "last_attention"),
        ("ema(attention, 1)", "accumulated_attention"),
        ("3 * position - 1", "recency"),
    ] {
        assert_eq!(Score::new(formula, Pool::Mean).unwrap().name(), name);
    }
    // One sign each: what evicts the largest norm is written with its minus, and the word by itself is refused, because
    // earlier versions read it as its negative.
    assert_eq!(Score::new("-key_norm", Pool::Mean), Score::new("-2 * key_norm + 1", Pool::Mean));
    for smallest in ["(key_norm)", "1*key_norm", "0.5 * key_norm"] {
        assert_eq!(Score::new(smallest, Pool::Mean).unwrap().name(), "(key_norm)");
    }
    for pool in [Pool::Mean, Pool::Max] {
        assert!(Score::new(" key_norm", pool).unwrap_err().hint.contains("-key_norm"));
    }
    assert_eq!(Score::new("last_attention", Pool::Max).unwrap().name(), "pooled_max(attention)");
    assert_eq!(Score::new("random", Pool::Max), Score::new("random", Pool::Mean));
}

/// What is refused names the characters in which it is wrong.
#[test]
fn errors_name_their_place() {
    let deep = format!("{}age{}", "(".repeat(60), ")".repeat(60));
    for (formula, place, message) in [
        ("ema(atention, 0.95)", "atention", "unknown word"),
        ("ema(attention)", "ema", "2 arguments, not 1"),
        ("attention +", "", "ends where"),
        ("sum(attention", "", "`)` is missing"),
        ("ema(attention 0.9)", "0.9", "`,` is missing"),
        ("attention 2", "2", "not expected"),
        ("attention(3)", "attention", "takes no arguments"),
        ("sum * 2", "sum", "needs arguments"),
        ("ema(attention, age)", "age", "the same for all"),
        ("ema(attention, 1.5)", "1.5", "between 0 and 1"),
        ("window(attention, 0)", "0", "at least 1"),
        ("window(attention, 1e9)", "1e9", "at most 10000 steps"),
        ("1 < age < 3", "<", "chained"),
        ("attention ^ 2", "^", "no meaning"),
        ("1.2.3 * age", "1.2.3", "not a number"),
        ("size + 3", "size + 3", "the same for all entries"),
        ("attention < 1e308 * 1e308", "attention < 1e308 * 1e308", "infinite"),
        ("", "", "ends where"),
        (&deep, "(", "inside each other"),
    ] {
        let error = Formula::new(formula, Pool::Mean).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(error.part(), place, "{error}");
    }
}
