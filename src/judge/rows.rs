//! Verdicts as rows of the ledger, and back.
//!
//! A row says what it is about in the columns of the judged story: model, policy, size and the rest are the
//! story's. Three columns are the judge's: `task` is `judge`; `dataset` is the story's data set and the judge's
//! name, as in `paper judged by gpt-4-0613`, so that what two judges say never stands in one table; and `device`
//! is host and port of the judge's endpoint, for there it was computed.
//!
//! | metric | group | value | weight |
//! |---|---|---|---|
//! | `verdict` | `shown:first` or `shown:second` | 1 preferred, 0.5 equal, 0 not | 1, or 0 if unreadable |
//! | `judge_win`, `judge_tie`, `judge_loss` | | 1 for what the pair came to | 1 |
//! | `judge_unreadable` | | 1 if an answer could not be read | 1 |
//!
//! The group of a verdict is the judged story's place in the question.
//! A pair with an unreadable answer has no win, tie or loss: it is neither of them, and shares are of the others.
//! The row of a verdict holds the judge's own words, the tokens of all answers to that call, and its seconds.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::pair::{Contest, JUDGE, Pair};
use super::verdict::{Ending, Opinion, Shown};
use crate::ledger::{Row, Text, date};

const VERDICT: &str = "verdict";
const ENDINGS: [(&str, Ending); 3] =
    [("judge_win", Ending::Win), ("judge_tie", Ending::Tie), ("judge_loss", Ending::Loss)];
const UNREADABLE: &str = "judge_unreadable";

/// One question and what came of it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) shown: Shown,
    pub(super) opinion: Opinion,
    pub(super) answer: String,
    pub(super) prompt_tokens: u32,
    pub(super) new_tokens: u32,
    pub(super) seconds: f64,
}

/// What the rows of a run have in common.
pub(super) struct Witness<'a> {
    pub(super) judge: &'a str,
    pub(super) host: &'a str,
}

impl Witness<'_> {
    /// The rows of a call; with the other order's opinion, where that is known already, also those of the pair.
    pub(super) fn rows(&self, contest: &Contest, pair: &Pair, call: &Call, other: Option<Opinion>) -> Vec<Row> {
        let row = |metric: &str, value: f64, weight: f64| Row {
            cell: contest.name.id().to_string().into(),
            task: JUDGE.into(),
            dataset: format!("{} judged by {}", pair.judged.dataset, self.judge).into(),
            metric: metric.into(),
            group: None,
            value,
            weight,
            question: None,
            references: None,
            output: None,
            prompt_tokens: 0,
            new_tokens: 0,
            commit: option_env!("TOVA_BENCH_COMMIT").map(Text::from),
            device: self.host.into(),
            seconds: 0.0,
            peak_cache_bytes: 0,
            date: date(),
            ..pair.judged.clone()
        };
        let (value, weight) = call.opinion.mark();
        let mut rows = vec![Row {
            group: Some(call.shown.group().into()),
            output: Some(call.answer.clone()),
            prompt_tokens: call.prompt_tokens,
            new_tokens: call.new_tokens,
            seconds: call.seconds,
            ..row(VERDICT, value, weight)
        }];
        if let Some(other) = other {
            let ending = Ending::of(call.opinion, other);
            let flag = |holds: bool| if holds { 1.0 } else { 0.0 };
            if ending != Ending::Unreadable {
                rows.extend(ENDINGS.map(|(metric, kind)| row(metric, flag(kind == ending), 1.0)));
            }
            rows.push(row(UNREADABLE, flag(ending == Ending::Unreadable), 1.0));
        }
        rows
    }
}

/// The opinions among rows, by sample and place.
///
/// # Errors
/// A verdict no call can give: another program's rows.
pub(super) fn opinions(rows: &[Row]) -> Result<BTreeMap<(&str, &str), Opinion>> {
    let verdicts = rows.iter().filter(|row| row.metric == VERDICT);
    verdicts
        .map(|row| {
            let opinion = Opinion::of_mark(row.value, row.weight)
                .with_context(|| format!("the verdict on {} in cell {} has no meaning", row.sample, row.cell))?;
            Ok(((row.sample.as_str(), row.group.as_deref().unwrap_or_default()), opinion))
        })
        .collect()
}

/// What the verdicts of one cell come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub wins: usize,
    pub ties: usize,
    pub losses: usize,
    /// Pairs with an answer that could not be read; not among the pairs.
    pub unreadable: usize,
    pub calls: usize,
    pub prompt_tokens: u64,
    pub new_tokens: u64,
}

impl Tally {
    /// Counts the rows of a cell.
    pub(super) fn of(rows: &[Row]) -> Tally {
        let count = |metric: &str| rows.iter().filter(|row| row.metric == metric && row.value == 1.0).count();
        let [wins, ties, losses] = ENDINGS.map(|(metric, _)| count(metric));
        let verdicts = rows.iter().filter(|row| row.metric == VERDICT);
        Tally {
            wins,
            ties,
            losses,
            unreadable: count(UNREADABLE),
            calls: verdicts.clone().count(),
            prompt_tokens: verdicts.clone().map(|row| u64::from(row.prompt_tokens)).sum(),
            new_tokens: verdicts.map(|row| u64::from(row.new_tokens)).sum(),
        }
    }

    /// Pairs with a result.
    pub fn pairs(&self) -> usize {
        self.wins + self.ties + self.losses
    }
}
