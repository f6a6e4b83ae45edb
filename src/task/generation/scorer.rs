//! How generated texts are scored.

use super::prompts::Request;
use crate::metric::{self, Letters};

/// Metrics and their values for one text.
pub type Values = Vec<(&'static str, f64)>;

/// What a task measures of generated texts.
#[derive(Clone, Copy)]
pub struct Scorer {
    /// The metrics of a text, given its request.
    pub score: fn(text: &str, request: &Request) -> Values,
    /// Whether texts are compared with references; requests without any then get no metric.
    pub needs_references: bool,
    /// Whether the model with the full cache reads the text again, for the metric `nll_written`.
    pub rescore: bool,
    /// Whether long texts are the point: the metric `cut_off` says that one reached its limit of tokens without an end, and
    /// `held_bytes` what the cache held meanwhile.
    pub is_long: bool,
    /// After these words the likeliest of a request's classes is found, for the metric `accuracy_likelihood`.
    pub likelihood_after: Option<&'static str>,
}

impl Scorer {
    /// Texts that are compared with references, and nothing else.
    pub const fn new(score: fn(&str, &Request) -> Values) -> Scorer {
        Scorer { score, needs_references: true, rescore: false, is_long: false, likelihood_after: None }
    }
}

/// ROUGE against summaries, and that of the request's trivial answer.
pub const ROUGE: Scorer = Scorer::new(rouge);

/// Token F1 and exact match against short answers, and the F1 of the request's trivial answer.
pub const F1: Scorer = Scorer::new(f1);

fn rouge(text: &str, request: &Request) -> Values {
    let rouge = metric::best_rouge(text, &request.references);
    let trivial = metric::best_rouge(&request.trivial, &request.references);
    vec![
        ("rouge1", rouge.one),
        ("rouge2", rouge.two),
        ("rougeL", rouge.l),
        ("rouge_geo_instance", rouge.geometric_mean()),
        ("rouge1_trivial", trivial.one),
        ("rouge2_trivial", trivial.two),
        ("rougeL_trivial", trivial.l),
    ]
}

fn f1(text: &str, request: &Request) -> Values {
    let references = &request.references;
    let exact = metric::best_exact_match(text, references, Letters::AsWritten);
    vec![
        ("f1", metric::best_f1(text, references, Letters::AsWritten)),
        ("f1_ascii", metric::best_f1(text, references, Letters::Ascii)),
        ("f1_trivial", metric::best_f1(&request.trivial, references, Letters::AsWritten)),
        ("exact_match", f64::from(u8::from(exact))),
    ]
}
