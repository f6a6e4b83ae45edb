//! What is measured: the table of all metrics ([`METRICS`]), and the scores of written texts.
//!
//! A [`MetricSum`] is a sum over a sample and the weight it is a sum over, so that pooling is one division whatever the
//! metric: perplexity pools NLL over tokens and is never a mean of perplexities. Texts are scored against references
//! ([`best_rouge`], [`best_f1`], [`LongBenchMeasure`]) and by themselves ([`diversity`]); the scores equal those of the Python packages
//! that published numbers come from. [`math`] compares answers of mathematical problems, in its own way.

mod diversity;
mod f1;
mod held_by_head;
mod longbench;
pub mod math;
mod overlap;
mod rouge;
mod slice;
mod table;

pub use diversity::diversity;
pub use f1::{Letters, best_exact_match, best_f1};
pub use held_by_head::HeldByHead;
pub use longbench::{LongBenchMeasure, chosen_letter};
pub use rouge::{Rouge, best_rouge};
pub use slice::Slice;
pub use table::{
    Better, GEOMETRIC_MEANS, METRICS, Metric, NO_NUMBER, NOT_MEASURED, Pooling, Property, REPEATS_PROMPT,
    SHARE_RAISED, SIDE_FILES, TOO_SHORT,
};

/// One metric of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSum {
    pub metric: &'static str,
    /// The slice of the sample it is about; `None`: all of it.
    pub slice: Option<Slice>,
    /// The sum over the sample.
    pub value: f64,
    /// What it is a sum over.
    pub weight: f64,
    /// A text that belongs to this number: what the model wrote, or a table of the sample.
    pub output: Option<String>,
}

impl MetricSum {
    /// A sum over a whole sample.
    pub fn new(metric: &'static str, value: f64, weight: f64) -> MetricSum {
        MetricSum { metric, slice: None, value, weight, output: None }
    }

    /// This sum, over a slice of the sample.
    #[must_use]
    pub fn of_slice(self, slice: Option<Slice>) -> MetricSum {
        MetricSum { slice, ..self }
    }
}
