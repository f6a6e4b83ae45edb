//! Which of a sweep's cells one command runs. Flags only select: no flag changes what a cell means.
//!
//! `--only` and `--limit` need only the cells. What `--shard` selects is known once models and texts are found, because
//! shards are balanced by estimated run time.

use std::fmt;
use std::str::FromStr;

use super::Sweep;
use super::cell::Cell;
use crate::ledger::{Field, Only, OnlyError, passes, policy_names};

/// What `--only`, `--limit` and `--shard` select.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Values of cells: those of one field are alternatives, and different fields must all hold.
    pub only: Vec<Only>,
    /// The first n cells of those that `only` selects, before sharding, so that all shards split the same list.
    pub limit: Option<usize>,
    pub shard: Option<Shard>,
}

/// The cells of a sweep, and those among them that a command works on.
#[derive(Clone, Debug)]
pub struct SelectedCells {
    /// Every cell of the sweep, in its order.
    pub sweep: Vec<Cell>,
    /// The cells that `--only` and `--limit` select, in the same order; at least one.
    pub selected: Vec<Cell>,
    /// The part of the selected cells that is measured here.
    pub shard: Option<Shard>,
}

impl Selection {
    /// Expands a sweep and selects from its cells.
    ///
    /// # Errors
    /// A value of `--only` that no cell of the sweep has, or values that no cell has together.
    pub fn of(&self, sweep: &Sweep) -> Result<SelectedCells, OnlyError> {
        let cells = sweep.expand();
        for only in &self.only {
            only.check_present(cells.iter().flat_map(|cell| values_of(cell, only.field())), "the sweep has")?;
        }
        let is_admitted = |cell: &&Cell| passes(&self.only, |only| only.admits(values_of(cell, only.field())));
        let most = self.limit.unwrap_or(usize::MAX);
        let selected: Vec<Cell> = cells.iter().filter(is_admitted).take(most).cloned().collect();
        if selected.is_empty() {
            return Err(OnlyError::nothing_selected());
        }
        Ok(SelectedCells { sweep: cells, selected, shard: self.shard })
    }
}

/// Returns the values of a cell that `--only` compares, spelled as in its rows. `full` has no size.
fn values_of(cell: &Cell, field: Field) -> Vec<String> {
    match field {
        Field::Policy => policy_names(&cell.policy, cell.kinds().iter().map(String::as_str)),
        Field::Size => cell.size_text().into_iter().collect(),
        Field::Model => vec![cell.model.to_string()],
        Field::Task => vec![cell.task.name.to_string()],
    }
}

/// One `--shard i/n`, counted from 1: the i-th of n shards that take about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub index: usize,
    pub count: usize,
}

impl Shard {
    /// The shard of a task of a Slurm array job, from Slurm's variables. Arrays need not begin at 0, and may have steps.
    /// `None` outside an array job.
    ///
    /// # Errors
    /// Variables of an array without a fixed step, whose shards are not known.
    pub fn of_slurm(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Shard>, ShardError> {
        let Some(task) = variable("SLURM_ARRAY_TASK_ID") else { return Ok(None) };
        let number = |name: &str| variable(name).and_then(|text| text.trim().parse::<usize>().ok());
        let irregular = || {
            ShardError(format!(
                "this is task {task} of a Slurm array job whose tasks are not numbered evenly, so its shard is not known\n\
                 hint: submit with --array=0-7 or --array=1-15:2, or name the shard with --shard I/N (1/1 for all)"
            ))
        };
        let id = task.trim().parse::<usize>().map_err(|_| irregular())?;
        let (Some(first), Some(count)) = (number("SLURM_ARRAY_TASK_MIN"), number("SLURM_ARRAY_TASK_COUNT")) else {
            return Err(irregular());
        };
        let step = number("SLURM_ARRAY_TASK_STEP").filter(|step| *step > 0).unwrap_or(1);
        let last = number("SLURM_ARRAY_TASK_MAX");
        let offset = id.checked_sub(first).filter(|offset| offset % step == 0).ok_or_else(irregular)?;
        let index = offset / step;
        // `--array=1,3,7` has three tasks, but no fixed step.
        let regular = last.is_none_or(|last| last.checked_sub(first).is_some_and(|span| span / step + 1 == count));
        if index < count && regular { Ok(Some(Shard { index, count })) } else { Err(irregular()) }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let hint = "hint: write I/N with I from 1 to N, for example 2/8";
        let refused = || ShardError(format!("`--shard {text}` is not understood\n{hint}"));
        let (index, count) = text.split_once('/').ok_or_else(refused)?;
        let number = |digits: &str| digits.trim().parse::<usize>().map_err(|_| refused());
        let (index, count) = (number(index)?, number(count)?);
        if (1..=count).contains(&index) { Ok(Shard { index: index - 1, count }) } else { Err(refused()) }
    }
}

/// Why a shard is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShardError(String);
