//! The policies that have a name in the literature: `presets.yaml`, read once.
//!
//! `full` and `truncate` are not policies but values of [`CacheRule`](super::CacheRule).

use std::sync::LazyLock;

use serde::Deserialize;

use super::amount::{Amount, FirstTokens};
use super::budget::Budget;
use super::formula::words::{Text, text};
use super::formula::{FormulaError, Pool};
use super::policy::Policy;
use super::schedule::Schedule;
use super::score::Score;
use super::settings::Scope;
use crate::yaml::parse_yaml;

/// One named policy, for `list` and the documentation.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// The name; `+I` after it protects the first I tokens.
    #[serde(deserialize_with = "text")]
    pub name: Text,
    /// A formula, pooled by the mean.
    #[serde(deserialize_with = "text")]
    pub score: Text,
    pub scope: Scope,
    #[serde(default)]
    pub keep_first: FirstTokens,
    #[serde(default)]
    pub keep_recent: Amount,
    #[serde(default)]
    pub schedule: Schedule,
    /// The first layer whose queries select, if entries do not leave.
    #[serde(default)]
    pub select_from: Option<usize>,
    /// Budget in the words of rows.
    #[serde(default = "uniform", deserialize_with = "text")]
    budget: Text,
    /// A file of numbers for heads, by which the larger half of them keeps everything; empty where there is none.
    #[serde(default, deserialize_with = "text")]
    full_heads: Text,
    /// What leaves, in one line.
    #[serde(deserialize_with = "text")]
    pub summary: Text,
    /// Paper and code that define it, and where this deviates.
    #[serde(deserialize_with = "text")]
    pub source: Text,
}

fn uniform() -> Text {
    "uniform"
}

impl Preset {
    /// # Errors
    /// A preset whose file is not there.
    pub fn policy(&self) -> anyhow::Result<Policy> {
        let score = Score::new(self.score, Pool::Mean)?;
        let budget = self.budget()?;
        let Preset { scope, keep_first, keep_recent, schedule, select_from, .. } = *self;
        Ok(Policy { score, scope, keep_first, keep_recent, budget, schedule, select_from, layers: None })
    }

    /// # Errors
    /// A file that is not there.
    pub fn budget(&self) -> anyhow::Result<Budget> {
        if self.full_heads.is_empty() { self.budget.parse() } else { Budget::of_file(self.full_heads, Some(50)) }
    }
}

/// Every preset.
pub static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    parse_yaml(include_str!("presets.yaml"), "presets.yaml").expect("a test reads the file of the program")
});

/// The policy of a preset's name such as `tova` or `window+4`; `None` too for a preset whose file is not there.
pub fn by_name(name: &str) -> Option<Policy> {
    find(name)?.ok()
}

/// Finds the preset of a name such as `tova` or `window+4`; `None` if there is no such preset.
///
/// # Errors
/// A preset whose file is not there.
pub fn find(name: &str) -> Option<anyhow::Result<Policy>> {
    let find = |base: &str| PRESETS.iter().find(|preset| preset.name == base).map(Preset::policy);
    match split_keep_first(name) {
        Some((base, keep_first)) => {
            let keep_first = FirstTokens::tokens(keep_first);
            Some(find(base)?.map(|policy| Policy { keep_first, ..policy }))
        }
        None => find(name),
    }
}

/// Names of papers and of NVIDIA/kvpress' classes for presets that are called otherwise, without case, dashes and `Press`.
const OTHER_NAMES: &[(&str, &[&str])] = &[
    ("window+4", &["streamingllm", "attentionsink", "attentionsinks", "sink", "sinkcache", "sinks"]),
    ("window", &["slidingwindow", "sliding", "recency"]),
    ("h2o", &["heavyhitter", "heavyhitters", "heavyhitteroracle", "observedattention"]),
    ("knorm", &["keynorm", "l2norm", "l2"]),
    ("expected", &["expectedattention"]),
    ("ada-expected", &["adaexpectedattention"]),
    ("adakv", &["adasnapkv"]),
    ("pyramidkv", &["pyramid"]),
    ("qfilters", &["qfilter"]),
    ("duo", &["duoattention"]),
    ("clairvoyant", &["belady", "oracle"]),
];

/// The preset that another program or a paper calls by this name, in whichever spelling.
pub fn known_elsewhere(name: &str) -> Option<&'static str> {
    let letters = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let whole = letters(name);
    let asked = whole.strip_suffix("press").unwrap_or(&whole);
    let other = OTHER_NAMES.iter().find(|(_, names)| names.contains(&asked)).map(|(preset, _)| *preset);
    other.or_else(|| PRESETS.iter().map(|preset| preset.name).find(|preset| letters(preset) == asked))
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
    fn names_of_papers_and_presses_lead_to_presets() {
        for (name, preset) in [
            ("streamingllm", "window+4"),
            ("StreamingLLMPress", "window+4"),
            ("SnapKVPress", "snapkv"),
            ("TOVAPress", "tova"),
            ("ObservedAttentionPress", "h2o"),
            ("heavy hitter", "h2o"),
            ("ExpectedAttentionPress", "expected"),
            ("KnormPress", "knorm"),
            ("PyramidKV", "pyramidkv"),
            ("CriticalAdaKVPress", "critical-adakv"),
            ("QFilterPress", "qfilters"),
            ("rkv", "r-kv"),
        ] {
            assert_eq!(known_elsewhere(name), Some(preset), "{name}");
            assert!(find(preset).is_some(), "{preset}");
        }
        assert_eq!(known_elsewhere("press"), None);
        assert!(OTHER_NAMES.iter().all(|(preset, _)| find(preset).is_some()));
    }

    #[test]
    fn names_resolve() {
        assert_eq!(by_name("window+4").unwrap().keep_first, FirstTokens::tokens(4));
        assert_eq!(by_name("window+0").unwrap(), by_name("window").unwrap());
        assert_eq!(by_name("h2o").unwrap().keep_recent.of(37), 37 - 37 / 2);
        assert_eq!(by_name("tova-head").unwrap().scope, Scope::Head);
        let schedules = ["snapkv", "snapkv+4", "r-kv", "tova", "mine"].map(|name| own_schedule(name).to_string());
        assert_eq!(schedules, ["cut", "cut", "128", "1", "1"]);
        for wrong in ["", "windw", "window+", "window+-4", "window+04", "full", "TOVA", "tova+4+4"] {
            assert!(by_name(wrong).is_none(), "{wrong}");
        }
    }

    /// By hand: a window of 64 looks at 64 rows, a score of one row at that, a sum at all.
    #[test]
    fn so_many_rows_tell_the_scores_of_presets() {
        let known = [
            ("tova caote keydiff knorm lagkv expected ada-expected kvzip sepllm random", Some(1)),
            ("snapkv pyramidkv adakv criticalkv critical-adakv chunkkv dropkv", Some(64)),
            ("morphkv-sum morphkv-max", Some(50)),
            ("scissorhands", Some(400)),
            ("r-kv", Some(8)),
            ("h2o h2o-layer a2sf roco vatp caote-h2o keyformer clairvoyant", None),
        ];
        for (names, rows) in known {
            for name in names.split(' ') {
                assert_eq!(by_name(name).unwrap().at(1000).unwrap().horizon(), rows, "{name}");
            }
        }
    }

    #[test]
    fn presets_are_policies() {
        for preset in PRESETS.iter() {
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
        assert_eq!((vatp.keep_first, with_sinks.keep_first), (FirstTokens::tokens(20), FirstTokens::tokens(4)));
        assert_eq!(by_name("tova").unwrap().score.name(), "last_attention");
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
            keep_first: FirstTokens::Count(Amount::Percent(first)),
            keep_recent: Amount::Percent(recent),
            ..tova
        };
        let kept = |first, recent, size| percent(first, recent).at(size).map(|policy| policy.protected()).ok();
        assert_eq!(kept(10, 0, 41), Some([5, 0]));
        assert_eq!(kept(50, 50, 40), Some([20, 20]));
        assert_eq!(kept(50, 50, 41), None);
        assert_eq!(kept(99, 1, 100), Some([99, 1]));
        assert_eq!(kept(99, 0, 10), None, "rounded up it fills the cache");
        assert_eq!(kept(100, 0, 100), None);
        assert_eq!(
            percent(10, 0).to_string(),
            "score=last_attention scope=layer keep_first=10% keep_recent=0% budget=uniform schedule=1"
        );
    }
}
