//! The policies that have a name in the literature, as rows of a table.
//!
//! Each row names its paper, and where the code it agrees with deviates from other code of the same name. `full`
//! and `truncate` are not policies but values of [`CacheRule`](super::CacheRule).

use super::budget::{Budget, BudgetPool, PoolOver};
use super::formula::{Formula, FormulaError, Pool};
use super::policy::{Amount, Policy};
use super::schedule::Schedule;
use super::scoring::Score;
use super::settings::Scope;

/// One named policy, for `list` and the documentation.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name; `+I` after it protects the first I tokens.
    pub name: &'static str,
    /// A formula, pooled by the mean.
    pub score: &'static str,
    pub scope: Scope,
    pub keep_first: Amount,
    pub keep_recent: Amount,
    pub schedule: Schedule,
    pub budget: fn() -> anyhow::Result<Budget>,
    /// What leaves, in one line.
    pub summary: &'static str,
    /// Paper and code that define it, and where this deviates.
    pub source: &'static str,
}

impl Preset {
    /// # Errors
    /// A preset whose file is not there.
    pub fn policy(&self) -> anyhow::Result<Policy> {
        let score = Score::new(self.score, Pool::Mean)?;
        let budget = (self.budget)()?;
        let Preset { scope, keep_first, keep_recent, schedule, .. } = *self;
        Ok(Policy { score, scope, keep_first, keep_recent, budget, schedule })
    }
}

const fn preset(
    name: &'static str,
    score: &'static str,
    (scope, keep_recent): (Scope, Amount),
    summary: &'static str,
    source: &'static str,
) -> Preset {
    Preset {
        name,
        score,
        scope,
        keep_first: Amount::Tokens(0),
        keep_recent,
        schedule: Schedule::EVERY_TOKEN,
        budget: || Ok(Budget::Uniform),
        summary,
        source,
    }
}

/// A preset that cuts a prompt, after which nothing leaves.
const fn of_prompt(
    name: &'static str,
    score: &'static str,
    (scope, keep_first, keep_recent): (Scope, usize, usize),
    summary: &'static str,
    source: &'static str,
) -> Preset {
    Preset {
        keep_first: Amount::Tokens(keep_first),
        schedule: Schedule::CUT,
        ..preset(name, score, (scope, Amount::Tokens(keep_recent)), summary, source)
    }
}

/// SnapKV's score.
const SNAPKV: &str = "smooth(window(attention, 64), 5)";

/// Of SnapKV's highest half of the size, 64 of them recent, and of the rest.
const CRITICALKV: &str = "if(rank(-pooled(smooth(window(attention, 64), 5))) < (size - 1) / 2 - 64, 1e9, \
                          (pooled(smooth(window(attention, 64), 5)) / 64 + 0.0001) * projected_value_norm)";

/// The table of presets.
pub const PRESETS: &[Preset] = &[
    preset(
        "window",
        "position",
        (Scope::Layer, Amount::Tokens(0)),
        "the oldest leaves; +I keeps the first I tokens for ever (StreamingLLM's sinks)",
        "arXiv 2401.06104 s. 3; arXiv 2309.17453, mit-han-lab/streaming-llm (which re-rotates keys: positions: slot)",
    ),
    preset(
        "tova",
        "attention",
        (Scope::Layer, Amount::Tokens(0)),
        "the entry the newest query attends to least leaves, one for all heads; it may be the newest itself",
        "arXiv 2401.06104 s. 4, schwartz-lab-NLP/TOVA (NVIDIA/kvpress protects the newest: keep_recent: 1)",
    ),
    preset(
        "tova-head",
        "attention",
        (Scope::Head, Amount::Tokens(0)),
        "TOVA with one decision per key-value head",
        "arXiv 2401.06104 Table 3",
    ),
    preset(
        "h2o",
        "sum(attention)",
        (Scope::Head, Amount::Percent(50)),
        "the newest half stays; of the older, the one that received least attention leaves, per key-value head",
        "arXiv 2306.14048, FMInference/H2O `utils_real_drop` with half of the cache recent, as arXiv 2401.06104 s. 5 runs it",
    ),
    preset(
        "h2o-layer",
        "sum(attention)",
        (Scope::Layer, Amount::Percent(50)),
        "H2O with one decision per layer",
        "arXiv 2401.06104 Table 3",
    ),
    preset(
        "a2sf",
        "ema(attention, 0.95)",
        (Scope::Head, Amount::Tokens(16)),
        "H2O that forgets: earlier attention counts 5 % less with every token",
        "Dirac-Notation/A2SF `utils_real_drop/policies` (0.95 of its README)",
    ),
    preset(
        "roco",
        "if(rank(std(pooled(attention))) < 0.7 * size, mean(pooled(attention)), 1e9)",
        (Scope::Head, Amount::Tokens(10)),
        "of the 70 % whose attention varies least, the one with the least mean attention leaves",
        "DRSY/EasyKV `easykv/easykv.py` (which below 30 entries evicts from the newest 10 as well)",
    ),
    preset(
        "scissorhands",
        "window(attention >= 1 / (age + position + 1), 400)",
        (Scope::Head, Amount::Tokens(10)),
        "the entry that was attended to more than the average of the text in fewest of the last 400 steps leaves",
        "arXiv 2305.17118 (one entry at every token here, half of the cache at once there; no code of the authors found)",
    ),
    Preset {
        keep_first: Amount::Tokens(20),
        ..preset(
            "vatp",
            "sum(attention) * value_norm",
            (Scope::Head, Amount::Percent(50)),
            "H2O times the L1 norm of the value; the first 20 tokens stay",
            "arXiv 2406.12335, guozhiyu/vatp `utils_hh/modify_llama.py`",
        )
    },
    preset(
        "caote",
        "attention / (1 - attention) * output_shift",
        (Scope::Layer, Amount::Tokens(0)),
        "the entry whose eviction would have moved the heads' outputs of this step least leaves",
        "arXiv 2504.14051 with TOVA's attention, for which the formula is exact",
    ),
    preset(
        "caote-h2o",
        "share(sum(attention)) / (1 - share(sum(attention))) * output_shift",
        (Scope::Layer, Amount::Percent(50)),
        "the same with H2O's accumulated attention, made to sum to 1; the newest half stays, as H2O's",
        "arXiv 2504.14051",
    ),
    preset(
        "keyformer",
        "sum(softmax((logit + gumbel) / (1 + 0.01 * (age + position))))",
        (Scope::Head, Amount::Percent(30)),
        "accumulated attention with Gumbel noise, at a temperature that rises by 0.01 a step",
        "arXiv 2403.09054; d-matrix-ai/keyformer-llm `models/mpt-keyformer-lib/attention.py` keeps no token read after the cache is full",
    ),
    preset(
        "morphkv-sum",
        "window(attention, size / 20)",
        (Scope::Head, Amount::Percent(5)),
        "the entry with the least attention from the last 5 % of the cache's queries leaves (SnapKV while decoding)",
        "arXiv 2503.00979; ghadiaravi13/MorphKV scores the last queries again after each eviction, by the sum of grouped heads' logits",
    ),
    preset(
        "morphkv-max",
        "peak(attention, size / 20)",
        (Scope::Head, Amount::Percent(5)),
        "the same by the largest of these, not their sum",
        "as morphkv-sum",
    ),
    preset(
        "keydiff",
        "-key_similarity",
        (Scope::Head, Amount::Tokens(0)),
        "the key most like the mean of the normalised keys leaves, per key-value head",
        "arXiv 2504.15364, NVIDIA/kvpress `keydiff_press.py` (which cuts the prompt once; here every token)",
    ),
    preset(
        "knorm",
        "-key_norm",
        (Scope::Head, Amount::Tokens(0)),
        "the key with the largest L2 norm leaves, per key-value head",
        "arXiv 2406.11430, NVIDIA/kvpress `knorm_press.py` (which cuts the prompt once; here every token)",
    ),
    preset(
        "knorm-layer",
        "-key_norm",
        (Scope::Layer, Amount::Tokens(0)),
        "knorm with one decision per layer, over the mean norm of its key-value heads",
        "as knorm",
    ),
    of_prompt(
        "snapkv",
        SNAPKV,
        (Scope::Head, 0, 64),
        "what the prompt's last 64 queries attend to least, averaged over 5 neighbours, is cut; these 64 stay",
        "arXiv 2404.14469, NVIDIA/kvpress `snapkv_press.py` (FasterDecoding/SnapKV: per query head, 32 queries; in its LongBench runs the largest of 7 neighbours)",
    ),
    Preset {
        budget: || Ok(Budget::Pyramid(20)),
        ..of_prompt(
            "pyramidkv",
            SNAPKV,
            (Scope::Head, 0, 64),
            "SnapKV with sizes that fall from layer to layer; the last has a twentieth of what is not recent",
            "arXiv 2406.02069 (NVIDIA/kvpress `pyramidkv_press.py` gives no layer fewer than 64 or more than the prompt, and rounds each)",
        )
    },
    Preset {
        budget: || Ok(Budget::pool(PoolOver::Heads, 20)),
        ..of_prompt(
            "adakv",
            SNAPKV,
            (Scope::Head, 0, 64),
            "SnapKV with the lowest scores of all heads of a layer; each head keeps its best fifth of a size",
            "arXiv 2407.11550, NVIDIA/kvpress `adakv_press.py` over SnapKV (which masks what is evicted, and keeps it in memory)",
        )
    },
    of_prompt(
        "expected",
        "expected_attention(512) * value_norm2",
        (Scope::Head, 4, 0),
        "what the next 512 queries are expected to attend to least, times the L2 norm of the value, is cut",
        "arXiv 2510.00636, NVIDIA/kvpress `expected_attention_press.py`",
    ),
    Preset {
        budget: || Ok(Budget::pool(PoolOver::Heads, 20)),
        ..of_prompt(
            "ada-expected",
            "expected_attention(512) * value_norm2",
            (Scope::Head, 4, 0),
            "Expected Attention with the lowest scores of all heads of a layer; each head keeps its best fifth of a size",
            "arXiv 2407.11550 and 2510.00636, NVIDIA/kvpress `adakv_press.py` over `expected_attention_press.py`",
        )
    },
    of_prompt(
        "lagkv",
        "lag_score(128)",
        (Scope::Head, 4, 0),
        "of every 128 entries those most like the next 128 are cut; the last 128 to 255 stay if they fit",
        "arXiv 2504.04704, NVIDIA/kvpress `lagkv_press.py` (where of equal ranks the newest may be cut, the whole rest of the prompt among them)",
    ),
    of_prompt(
        "criticalkv",
        CRITICALKV,
        (Scope::Head, 0, 64),
        "half of the size is SnapKV's; of the rest what has the least score times projected value is cut",
        "arXiv 2502.03805, NVIDIA/kvpress `criticalkv_press.py` over SnapKV",
    ),
    Preset {
        budget: || {
            let score = Some(Formula::new(SNAPKV, Pool::Mean)?);
            Ok(Budget::Pool(BudgetPool { over: PoolOver::Heads, floor: 20, score }))
        },
        ..of_prompt(
            "critical-adakv",
            CRITICALKV,
            (Scope::Head, 0, 64),
            "heads have the sizes of adakv, and keep what criticalkv keeps at these",
            "arXiv 2502.03805, NVIDIA/kvpress `criticalkv_press.py` (`CriticalAdaKVPress`) over SnapKV",
        )
    },
    of_prompt(
        "chunkkv",
        "block(smooth(window(attention, 64), 5), 20)",
        (Scope::Layer, 0, 64),
        "whole blocks of 20 tokens with the lowest mean of SnapKV's score, over all heads, are cut",
        "arXiv 2502.00299, NVIDIA/kvpress `chunkkv_press.py` over SnapKV (which keeps a share of the blocks, not of the tokens)",
    ),
    of_prompt(
        "kvzip",
        "reread_attention",
        (Scope::Head, 4, 0),
        "the prompt is read twice; what the second reading attends to least at most is cut, per key-value head",
        "arXiv 2505.23416, NVIDIA/kvpress `kvzip_press.py` (which ranks the entries of all layers and heads together, and uses the \
         model's chat template)",
    ),
    Preset {
        budget: || Ok(Budget::pool(PoolOver::Model, 0)),
        ..of_prompt(
            "kvzip-pool",
            "reread_attention",
            (Scope::Head, 4, 0),
            "KVzip with the lowest scores of all heads of all layers",
            "arXiv 2505.23416, NVIDIA/kvpress `kvzip_press.py` (which uses the model's chat template)",
        )
    },
    Preset {
        budget: || Budget::of_file("full_attention_heads.tsv", Some(50)),
        ..preset(
            "duo",
            "position",
            (Scope::Head, Amount::Tokens(0)),
            "half of the heads keep everything, by ./full_attention_heads.tsv; of the others the oldest leaves after the first tokens",
            "arXiv 2410.10819, mit-han-lab/duo-attention, whose `attn_patterns` have the files and the numbers of first and recent tokens",
        )
    },
    Preset {
        schedule: Schedule { cut: false, every: Some(128) },
        ..preset(
            "r-kv",
            "0.07 * smooth_max(window(softmax(pooled_max(logit)), 8), 7) / 8 - 0.93 * key_redundancy",
            (Scope::Head, Amount::Tokens(8)),
            "after every 128 tokens those leave that the last 8 queries attended to little and that are like other keys",
            "arXiv 2505.24133, Zefan-Cai/R-KV `rkv/compression/r1_kv.py` (which leaves the newest 8 out of each softmax)",
        )
    },
    of_prompt(
        "qfilters",
        "-rotated_dot(\"q_filters.safetensors\", \"q_filters\")",
        (Scope::Head, 0, 0),
        "the key that points least where queries do, by the filters in ./q_filters.safetensors, is cut",
        "arXiv 2503.02812, NVIDIA/kvpress `qfilter_press.py`; the files are the model.safetensors of nthngdy/*_qfilt on the hub",
    ),
    Preset {
        keep_first: Amount::Tokens(4),
        ..preset(
            "sepllm",
            "position + 1000000 * token_in(\".\", \",\", \"?\", \"!\", \";\", \":\", \" \", \"\\t\", \"\\n\")",
            (Scope::Layer, Amount::Percent(32)),
            "the oldest token that is no separator leaves, then the oldest separator; the first 4 and the newest stay",
            "arXiv 2412.12094, HKUDS/SepLLM (whose cache has a size of its own for separators: 64 of 800, 256 of them recent)",
        )
    },
    of_prompt(
        "dropkv",
        "window((attention / (1 - attention) * output_shift) * (attention / (1 - attention) * output_shift), 64)",
        (Scope::Head, 0, 64),
        "what would have moved the outputs of the prompt's last 64 queries least, squared, is cut",
        "openreview MqfNzH3TVH, NVIDIA/kvpress pull request 285 without its pooling over neighbours",
    ),
    preset(
        "clairvoyant",
        "future_attention * value_norm",
        (Scope::Layer, Amount::Percent(25)),
        "what the full cache's later queries read least from leaves: it knows the text, and is a ceiling",
        "no policy; Belady's rule with attention in place of the next use",
    ),
    preset(
        "clairvoyant-head",
        "future_attention * value_norm",
        (Scope::Head, Amount::Percent(25)),
        "the same with one decision per key-value head: the ceiling of the reports",
        "as clairvoyant",
    ),
    preset(
        "random",
        "random",
        (Scope::Layer, Amount::Tokens(0)),
        "a uniform sample of everything read survives; the floor every policy must beat",
        "NVIDIA/kvpress `random_press.py` (which draws afresh at every cut)",
    ),
];

/// The policy a preset's name stands for: `tova`, `window+4`, ...; none of a preset whose file is not there.
pub fn by_name(name: &str) -> Option<Policy> {
    find(name)?.ok()
}

/// The same; `None` if there is no such preset.
pub fn find(name: &str) -> Option<anyhow::Result<Policy>> {
    let find = |base: &str| PRESETS.iter().find(|preset| preset.name == base).map(Preset::policy);
    match split_keep_first(name) {
        Some((base, keep_first)) => {
            let keep_first = Amount::Tokens(keep_first);
            Some(find(base)?.map(|policy| Policy { keep_first, ..policy }))
        }
        None => find(name),
    }
}

/// What to do about a preset that cannot be used.
pub fn hint_of(error: &anyhow::Error) -> String {
    let of_formula = error.downcast_ref::<FormulaError>().map(|error| error.hint.clone());
    of_formula.unwrap_or("`tova-bench list policies` says what file it reads, and where it comes from".to_owned())
}

/// When entries leave under a name that says nothing else: as a preset has it, otherwise after every token.
pub fn own_schedule(name: &str) -> Schedule {
    let base = split_keep_first(name).map_or(name, |(base, _)| base);
    PRESETS.iter().find(|preset| preset.name == base).map_or(Schedule::EVERY_TOKEN, |preset| preset.schedule)
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
        let schedules = ["snapkv", "snapkv+4", "r-kv", "tova", "mine"].map(|name| own_schedule(name).to_string());
        assert_eq!(schedules, ["cut", "cut", "128", "1", "1"]);
        for wrong in ["", "windw", "window+", "window+-4", "window+04", "full", "TOVA", "tova+4+4"] {
            assert!(by_name(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn presets_are_policies() {
        for preset in PRESETS {
            match preset.policy() {
                Ok(policy) => assert!(policy.at(64).is_ok(), "{}", preset.name),
                Err(error) => {
                    let file = match preset.name {
                        "qfilters" => "q_filters.safetensors",
                        "duo" => "full_attention_heads.tsv",
                        other => panic!("{other}: {error:#}"),
                    };
                    assert!(error.to_string().contains(file), "{error:#}");
                }
            }
        }
        let (vatp, with_sinks) = (by_name("vatp").unwrap(), by_name("vatp+4").unwrap());
        assert_eq!((vatp.keep_first, with_sinks.keep_first), (Amount::Tokens(20), Amount::Tokens(4)));
        assert_eq!(by_name("tova").unwrap().score, Score::last_attention());
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
