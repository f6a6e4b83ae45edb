//! `metric_list`: the metrics of a task, and how answers and likelihoods are scored with them.

use anyhow::{Result, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::output::OutputType;
use super::re::Pattern;
use crate::jinja::is_space;
use crate::metric::{self, Letters, LongBenchMeasure};
use crate::task::request::{Likelihood, Request};

/// The tasks of RULER that ask a question, whose answer is right if it contains any of the targets.
const QUESTIONS: [&str; 2] = ["qa_1", "qa_2"];

/// A metric of a task, with its options: an entry of `metric_list`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskMetric {
    #[serde(rename = "metric")]
    pub kind: Kind,
    /// Only the metric's own.
    aggregation: Option<String>,
    /// Not used: it is known.
    #[expect(dead_code, reason = "a key of the harness that means nothing here")]
    higher_is_better: Option<bool>,
    /// Only of `exact_match`.
    hf_evaluate: Option<bool>,
    /// What `exact_match` ignores.
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    ignore_punctuation: bool,
    #[serde(default)]
    ignore_numbers: bool,
    #[serde(default)]
    regexes_to_ignore: Vec<Pattern>,
    /// What `longbench` compares.
    #[schemars(with = "Option<String>")]
    pub measure: Option<LongBenchMeasure>,
    /// Only an answer's first line that is not empty is scored.
    #[serde(default)]
    pub first_line: bool,
}

/// The metrics that a file may name. What is said of each is shown to users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// the answer is a target
    #[default]
    ExactMatch,
    /// of the words of an answer, as SQuAD has it; of the choices 0 and 1
    F1,
    /// ROUGE-1, ROUGE-2, ROUGE-L and their geometric mean
    Rouge,
    /// F1 of words, with all letters and with those of ASCII, and exact match
    Squad,
    /// the share of the targets that the answer contains; of tasks qa_*, whether it has any
    Ruler,
    /// LongBench's score by `measure`: f1, rouge_l, class, paragraph, count or code_line; `first_line: true` scores only that
    #[serde(rename = "longbench")]
    LongBench,
    /// the letter of a choice, named in the words of LongBench v2, is the target
    Accuracy,
    /// the answer in a \boxed{} is equal to the target; `answered`: there is a box
    #[serde(rename = "pass_at_1")]
    PassAt1,
    /// the answer contains a target, in any case of letters
    Found,
    /// the target is the likeliest
    Acc,
    /// the same per character
    AccNorm,
    /// the same per byte
    AccBytes,
    /// of the target
    Perplexity,
    /// by words
    WordPerplexity,
    /// by bytes
    BytePerplexity,
    /// its logarithm to base 2
    BitsPerByte,
}

use Kind::*;
use OutputType::{GenerateUntil, Loglikelihood, LoglikelihoodRolling, MultipleChoice};

impl Kind {
    /// The output types that have it.
    pub fn outputs(self) -> &'static [OutputType] {
        match self {
            ExactMatch | F1 => &[GenerateUntil, MultipleChoice],
            Acc => &[MultipleChoice, Loglikelihood],
            AccNorm | AccBytes => &[MultipleChoice],
            Perplexity => &[Loglikelihood],
            WordPerplexity | BytePerplexity | BitsPerByte => &[LoglikelihoodRolling],
            Rouge | Squad | Ruler | LongBench | Accuracy | PassAt1 | Found => &[GenerateUntil],
        }
    }
}

impl TaskMetric {
    /// The harness' default metrics of an output type.
    pub fn usual(output: OutputType) -> Vec<TaskMetric> {
        let kinds: &[Kind] = match output {
            GenerateUntil => &[ExactMatch],
            MultipleChoice => &[Acc, AccNorm],
            Loglikelihood => &[Perplexity, Acc],
            LoglikelihoodRolling => &[WordPerplexity, BytePerplexity, BitsPerByte],
        };
        kinds.iter().map(|kind| TaskMetric { kind: *kind, ..TaskMetric::default() }).collect()
    }

    /// What is wrong with it for an output type, and a hint: it belongs to another, or an option has no meaning.
    pub fn fault(&self, output: OutputType) -> Option<(String, &'static str)> {
        let TaskMetric { kind, aggregation, hf_evaluate, measure, .. } = self;
        let name = super::python::str(&json!(kind));
        if !kind.outputs().contains(&output) {
            let message = format!("`{name}` is not a metric of this output type");
            return Some((message, "see `tova-bench list benchmarks`"));
        }
        if let Some(aggregation) = aggregation.as_ref().filter(|word| !is_own_aggregation(*kind, word)) {
            return Some((format!("`aggregation: {aggregation}` has no meaning for `{name}`"), "leave it out"));
        }
        if *hf_evaluate == Some(true) && *kind != ExactMatch {
            return Some((format!("`hf_evaluate` has no meaning for `{name}`"), "leave it out"));
        }
        let lacks_measure = *kind == LongBench && measure.is_none();
        lacks_measure.then(|| ("`longbench` has no measure".into(), "write {metric: longbench, measure: f1}"))
    }

    /// Whether a row has what the metric needs.
    ///
    /// # Errors
    /// What it lacks.
    pub fn check(&self, request: &Request) -> Result<()> {
        let Some(measure) = self.measure else { return Ok(()) };
        for answer in &request.references {
            ensure!(measure.accepts(answer), "the answer {answer:?} names no `Paragraph` and its number");
        }
        ensure!(
            measure != LongBenchMeasure::Class || !request.classes.is_empty(),
            "`all_classes` is empty, and answers are compared with them"
        );
        Ok(())
    }

    /// A text without what is ignored.
    fn plain(&self, text: &str) -> Result<String> {
        let mut text = text.to_owned();
        for pattern in &self.regexes_to_ignore {
            text = pattern.sub("", &text, 0)?;
        }
        if self.ignore_case {
            text = text.to_lowercase();
        }
        if self.ignore_punctuation {
            text.retain(|c| !c.is_ascii_punctuation());
        }
        if self.ignore_numbers {
            text.retain(|c| !c.is_ascii_digit());
        }
        Ok(text)
    }
}

/// Whether a metric pools in this way here too.
fn is_own_aggregation(kind: Kind, aggregation: &str) -> bool {
    match kind {
        Perplexity => aggregation == "perplexity",
        WordPerplexity | BytePerplexity => aggregation == "weighted_perplexity",
        BitsPerByte => aggregation == "bits_per_byte",
        F1 => matches!(aggregation, "f1" | "mean"),
        _ => aggregation == "mean",
    }
}

/// The scores of a written answer, the best over the targets.
///
/// # Errors
/// A pattern that takes too many steps.
pub fn of_answer(metric: &TaskMetric, answer: &str, request: &Request) -> Result<Vec<(&'static str, f64)>> {
    let targets = &request.references;
    let share = |is: bool| f64::from(u8::from(is));
    Ok(match metric.kind {
        ExactMatch => {
            let answer = metric.plain(answer)?;
            let plain: Vec<String> = targets.iter().map(|target| metric.plain(target)).collect::<Result<_>>()?;
            vec![("exact_match", share(plain.contains(&answer)))]
        }
        F1 => vec![("f1", metric::best_f1(answer, targets, Letters::AsWritten))],
        Rouge => {
            let rouge = metric::best_rouge(answer, targets);
            vec![
                ("rouge1", rouge.one),
                ("rouge2", rouge.two),
                ("rougeL", rouge.l),
                ("rouge_geo_instance", rouge.geometric_mean()),
            ]
        }
        Squad => {
            let exact = metric::best_exact_match(answer, targets, Letters::AsWritten);
            vec![
                ("f1", metric::best_f1(answer, targets, Letters::AsWritten)),
                ("f1_ascii", metric::best_f1(answer, targets, Letters::Ascii)),
                ("exact_match", share(exact)),
            ]
        }
        Ruler => {
            // Control characters become line ends first, as in RULER's `evaluate.py`.
            let answer: String = answer.trim().chars().map(|c| if c < ' ' { '\n' } else { c }).collect();
            let answer = answer.trim().to_lowercase();
            let found = targets.iter().filter(|target| answer.contains(&target.to_lowercase())).count();
            let is_question = request.slices.iter().any(|slice| {
                slice.is("task") && slice.name.as_deref().is_some_and(|name| QUESTIONS.contains(&name))
            });
            let score = if is_question { share(found > 0) } else { found as f64 / targets.len().max(1) as f64 };
            vec![("ruler", score)]
        }
        LongBench => {
            let first_line = || answer.trim_start_matches('\n').split('\n').next().unwrap_or_default();
            let answer = if metric.first_line { first_line() } else { answer };
            let of = |target: &String| Some(metric.measure?.score(answer, target, &request.classes));
            vec![("longbench", targets.iter().filter_map(of).fold(0.0, f64::max))]
        }
        Accuracy => {
            let is_right = metric::chosen_letter(answer).is_some_and(|letter| targets.contains(&letter));
            vec![("accuracy", share(is_right)), ("accuracy_chance", 1.0 / request.classes.len().max(1) as f64)]
        }
        PassAt1 => {
            let (is_right, is_answered) = metric::math::right(answer, targets);
            vec![("pass_at_1", share(is_right)), ("answered", share(is_answered))]
        }
        Found => {
            let answer = answer.to_lowercase();
            vec![("found", share(targets.iter().any(|target| answer.contains(&target.to_lowercase()))))]
        }
        // Of likelihoods.
        Acc | AccNorm | AccBytes | Perplexity | WordPerplexity | BytePerplexity | BitsPerByte => Vec::new(),
    })
}

/// A metric, its value and its weight.
pub type Scored = (&'static str, f64, f64);

/// The index of the likeliest choice.
pub fn likeliest(choices: &[Likelihood]) -> Option<usize> {
    first_largest(choices.len(), |at| choices[at].log)
}

/// The first of the largest of so many, as numpy has it.
fn first_largest(count: usize, value: impl Fn(usize) -> f64) -> Option<usize> {
    (0..count).reduce(|best, at| if value(at) > value(best) { at } else { best })
}

/// The scores of the likelihood of a target.
pub fn of_target(metric: &TaskMetric, choices: &[Likelihood]) -> Option<Scored> {
    let target = choices.first()?;
    match metric.kind {
        Perplexity => Some(("target_perplexity", -target.log, 1.0)),
        Acc => Some(("acc", f64::from(u8::from(target.is_greedy)), 1.0)),
        _ => None,
    }
}

/// The scores of a whole text, from its NLL in nats.
pub fn of_text(metric: &TaskMetric, nll: f64, text: &str) -> Option<Scored> {
    // As `re.split(r"\s+", text)` counts them.
    let words = || {
        let spaces = text
            .char_indices()
            .filter(|(at, c)| is_space(*c) && !text[..*at].chars().next_back().is_some_and(is_space));
        (spaces.count() + 1) as f64
    };
    match metric.kind {
        WordPerplexity => Some(("word_perplexity", nll, words())),
        BytePerplexity => Some(("byte_perplexity", nll, text.len() as f64)),
        BitsPerByte => Some(("bits_per_byte", nll / std::f64::consts::LN_2, text.len() as f64)),
        _ => None,
    }
}

/// The scores of choices; `gold` are the indices of the right ones.
pub fn of_choices(
    metric: &TaskMetric,
    choices: &[Likelihood],
    texts: &[String],
    gold: &[usize],
) -> Option<Scored> {
    let right = |at: usize| f64::from(u8::from(gold.contains(&at)));
    // The likeliest per character or byte.
    let per = |length: fn(&String) -> usize| {
        first_largest(choices.len(), |at| choices[at].log / texts.get(at).map_or(1, length) as f64)
    };
    let likeliest = likeliest(choices)?;
    Some(match metric.kind {
        Acc => ("acc", right(likeliest), 1.0),
        AccNorm => ("acc_norm", right(per(|text| text.chars().count())?), 1.0),
        AccBytes => ("acc_bytes", right(per(String::len)?), 1.0),
        ExactMatch => {
            let is_greedy = gold.iter().any(|at| choices.get(*at).is_some_and(|choice| choice.is_greedy));
            ("exact_match", f64::from(u8::from(is_greedy)), 1.0)
        }
        // Of the class 1: 2 TP / (2 TP + FP + FN), pooled over rows.
        F1 => match (gold.first()?, likeliest) {
            (1, 1) => ("f1_choice", 2.0, 2.0),
            (0, 0) => ("f1_choice", 0.0, 0.0),
            _ => ("f1_choice", 0.0, 1.0),
        },
        _ => return None,
    })
}
