//! Verdicts as rows of the ledger, and back.
//!
//! A row repeats the columns of the bounded cache's story: model, policy, size and the rest. Three columns are the
//! judge's: `task` is `judge`; `dataset` is the story's data set and the judge's name, as in `paper judged by
//! gpt-4-0613`, so that verdicts of two judges are never pooled; `device` is host and port of the endpoint.
//!
//! | metric | slice | value | weight |
//! |---|---|---|---|
//! | `verdict` | `shown:first` or `shown:second` | 1 preferred, 0.5 equal, 0 not | 1, or 0 if unreadable |
//! | `judge_win`, `judge_tie`, `judge_loss` | | 1 for the pair's result | 1 |
//! | `judge_unreadable` | | 1 if an answer could not be read | 1 |
//!
//! A verdict's slice is the position of the bounded cache's story in the question. A pair with an unreadable answer has no
//! win, tie or loss; rates are over the other pairs. A pair of identical stories is a tie about which nobody is asked: it has
//! no verdicts, and its row of `judge_tie` has the output `identical`. A verdict's row holds the answer, the tokens of all attempts, and
//! the seconds.

use super::Settings;
use super::answer::Answer;
use super::pairing::{JUDGE, Pair, PairedCell};
use super::verdict::{Verdict, result_of};
use crate::ledger::{IDENTICAL, JUDGED_BY, Row, Text, date};
use crate::metric::Slice;

const VERDICT: &str = "verdict";
const RESULTS: [&str; 3] = ["judge_win", "judge_tie", "judge_loss"];
const UNREADABLE: &str = "judge_unreadable";
const SHOWN: [&str; 2] = ["first", "second"];

/// A question and its answer.
pub(super) struct Call {
    pub(super) verdict: Verdict,
    /// The last answer, with the tokens of all attempts.
    pub(super) answer: Answer,
    pub(super) seconds: f64,
}

/// The rows of a pair: its calls, with the bounded cache's story shown first and second, and its result. Of identical
/// stories there are no calls.
pub(super) fn rows(settings: &Settings, cell: &PairedCell, pair: &Pair, calls: Vec<Call>) -> Vec<Row> {
    let row =
        |metric: &str, value: f64, weight: f64| of_story(settings, cell, &pair.bounded, metric, value, weight);
    let result = match calls[..] {
        [Call { verdict: one, .. }, Call { verdict: other, .. }] => result_of(one, other),
        _ => Some([0.0, 1.0, 0.0]),
    };
    let is_identical = calls.is_empty();
    let verdict = |(call, shown): (Call, &str)| {
        // Without weight, an unreadable verdict does not move the mean.
        let (value, weight) = call.verdict.map_or((0.0, 0.0), |value| (value, 1.0));
        Row {
            slice: Some(Slice::named("shown", shown)),
            output: Some(call.answer.text),
            prompt_tokens: call.answer.prompt_tokens,
            new_tokens: call.answer.new_tokens,
            seconds: call.seconds,
            ..row(VERDICT, value, weight)
        }
    };
    let mut rows: Vec<Row> = calls.into_iter().zip(SHOWN).map(verdict).collect();
    let flags = result.into_iter().flat_map(|flags| RESULTS.into_iter().zip(flags));
    let unreadable = (UNREADABLE, if result.is_none() { 1.0 } else { 0.0 });
    rows.extend(flags.chain([unreadable]).map(|(metric, flag)| Row {
        output: (is_identical && metric == RESULTS[1]).then(|| IDENTICAL.to_owned()),
        ..row(metric, flag, 1.0)
    }));
    rows
}

/// A row with the columns of the bounded cache's story.
fn of_story(settings: &Settings, cell: &PairedCell, bounded: &Row, metric: &str, value: f64, weight: f64) -> Row {
    Row {
        cell: cell.name.id().to_string().into(),
        task: JUDGE.into(),
        dataset: format!("{}{JUDGED_BY}{}", bounded.dataset, settings.model).into(),
        metric: metric.into(),
        slice: None,
        value,
        weight,
        question: None,
        references: None,
        output: None,
        prompt_tokens: 0,
        new_tokens: 0,
        commit: option_env!("TOVA_BENCH_COMMIT").map(Text::from),
        device: settings.endpoint.host().into(),
        seconds: 0.0,
        allocated_bytes: 0,
        date: date(),
        ..bounded.clone()
    }
}

/// The verdicts of some cells, counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Pairs with a result.
    pub pairs: usize,
    /// Pairs of identical stories among them.
    pub identical: usize,
    /// Pairs with an unreadable answer.
    pub unreadable: usize,
    pub calls: usize,
    pub prompt_tokens: u64,
    pub new_tokens: u64,
}

impl Counts {
    pub(super) fn of(rows: &[Row]) -> Counts {
        let count =
            |is_it: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| row.value == 1.0 && is_it(row)).count();
        let verdicts = rows.iter().filter(|row| row.metric == VERDICT);
        Counts {
            pairs: count(&|row| RESULTS.contains(&row.metric.as_str())),
            identical: count(&|row| row.output.as_deref() == Some(IDENTICAL) && row.metric == RESULTS[1]),
            unreadable: count(&|row| row.metric == UNREADABLE),
            calls: verdicts.clone().count(),
            prompt_tokens: verdicts.clone().map(|row| u64::from(row.prompt_tokens)).sum(),
            new_tokens: verdicts.map(|row| u64::from(row.new_tokens)).sum(),
        }
    }
}
