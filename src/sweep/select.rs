//! Which of a sweep's cells one command runs. Flags only select: no flag changes what a cell means.
//!
//! `--only` and `--limit` need the cells alone; what `--shard` leaves is known once models and texts are found, as
//! shares are cut by what cells take.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use super::cell::Cell;
use super::nearest::did_you_mean;

/// What `--only`, `--limit` and `--shard` select.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// All must hold.
    pub only: Vec<Only>,
    /// The first n cells of those `only` leaves, before sharding, so that every shard cuts the same list.
    pub limit: Option<usize>,
    pub shard: Option<Shard>,
}

impl Selection {
    /// The cells that `only` and `limit` leave.
    ///
    /// # Errors
    /// A value of `--only` that no cell of the sweep has.
    pub fn of(&self, cells: Vec<Cell>) -> Result<Vec<Cell>, SelectionError> {
        for only in &self.only {
            only.check(&cells)?;
        }
        let chosen = cells.into_iter().filter(|cell| self.only.iter().all(|only| only.holds(cell)));
        Ok(chosen.take(self.limit.unwrap_or(usize::MAX)).collect())
    }
}

/// What `--only` can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Policy,
    Size,
    Model,
    Task,
}

impl Field {
    const ALL: [(&'static str, Field); 4] =
        [("policy", Field::Policy), ("size", Field::Size), ("model", Field::Model), ("task", Field::Task)];

    /// The cell's value as `--only` spells it; `full` has no size.
    fn of(self, cell: &Cell) -> Option<String> {
        match self {
            Field::Policy => Some(cell.policy.clone()),
            Field::Size => cell.size().map(|size| size.to_string()),
            Field::Model => Some(cell.model.to_string()),
            Field::Task => Some(cell.task.name().to_string()),
        }
    }
}

/// One `--only key=value,value`: the cell's value is one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    field: Field,
    values: Vec<String>,
}

impl Only {
    /// Whether something is selected that goes by these names, be it a cell or not.
    pub fn admits<T: AsRef<str>>(&self, names: impl FnOnce(Field) -> Vec<T>) -> bool {
        names(self.field).iter().any(|name| self.values.iter().any(|value| value == name.as_ref()))
    }

    /// What it asks about.
    pub fn field(&self) -> Field {
        self.field
    }

    fn holds(&self, cell: &Cell) -> bool {
        self.admits(|field| field.of(cell).into_iter().collect())
    }

    fn check(&self, cells: &[Cell]) -> Result<(), SelectionError> {
        let values_of = |field: Field| cells.iter().filter_map(|cell| field.of(cell)).collect();
        self.check_present(values_of, "the sweep has")
    }

    /// Checks that each of the values is `present` somewhere; `have` begins the sentence that lists those that are.
    ///
    /// # Errors
    /// A value that is not.
    pub fn check_present(
        &self,
        values_of: impl FnOnce(Field) -> Vec<String>,
        have: &str,
    ) -> Result<(), SelectionError> {
        let present = distinct(values_of(self.field));
        match self.values.iter().find(|value| !present.contains(value)) {
            None => Ok(()),
            Some(value) => Err(SelectionError::NoSuchCell {
                value: value.clone(),
                hint: format!(
                    "{}{have} {}",
                    did_you_mean(value, present.iter().map(String::as_str)),
                    present.join(", ")
                ),
            }),
        }
    }
}

/// Each value once, in the order of their first appearance.
fn distinct(values: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    values.into_iter().filter(|value| seen.insert(value.clone())).collect()
}

impl FromStr for Only {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, SelectionError> {
        let refused = || SelectionError::Only { text: text.to_string() };
        let (key, values) = text.split_once('=').ok_or_else(refused)?;
        let (_, field) = Field::ALL.into_iter().find(|(name, _)| *name == key.trim()).ok_or_else(refused)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_string()).collect();
        if values.iter().any(String::is_empty) { Err(refused()) } else { Ok(Only { field, values }) }
    }
}

/// One `--shard i/n`, counted from 1: the i-th of n shares that take about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

impl Shard {
    /// More than any cluster runs at once; what is beyond is a slip.
    const MOST: usize = 1 << 20;

    /// Which share, from 0.
    pub fn index(self) -> usize {
        self.index
    }

    /// How many shares there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// The share of a task of a Slurm array job, by the variables Slurm gives it: arrays need not begin at 0, and may
    /// have steps. `None` outside an array job.
    ///
    /// # Errors
    /// Variables that no array with a fixed step has; then nobody can say which share is meant.
    pub fn of_slurm(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Shard>, SelectionError> {
        let Some(task) = variable("SLURM_ARRAY_TASK_ID") else { return Ok(None) };
        let said = |name: &str| variable(name).and_then(|text| text.trim().parse::<usize>().ok());
        let irregular = || SelectionError::Array { task: task.clone() };
        let id = task.trim().parse::<usize>().map_err(|_| irregular())?;
        let (Some(first), Some(count)) = (said("SLURM_ARRAY_TASK_MIN"), said("SLURM_ARRAY_TASK_COUNT")) else {
            return Err(irregular());
        };
        let step = said("SLURM_ARRAY_TASK_STEP").filter(|step| *step > 0).unwrap_or(1);
        let last = said("SLURM_ARRAY_TASK_MAX");
        let offset = id.checked_sub(first).filter(|offset| offset % step == 0).ok_or_else(irregular)?;
        let index = offset / step;
        // `--array=1,3,7` has three tasks and a step of its own making.
        let regular = last.is_none_or(|last| last.checked_sub(first).is_some_and(|span| span / step + 1 == count));
        if index < count && count <= Shard::MOST && regular {
            Ok(Some(Shard { index, count }))
        } else {
            Err(irregular())
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

impl FromStr for Shard {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, SelectionError> {
        let refused = || SelectionError::Shard { text: text.to_string() };
        let (index, count) = text.split_once('/').ok_or_else(refused)?;
        let number = |digits: &str| digits.trim().parse::<usize>().map_err(|_| refused());
        let (index, count) = (number(index)?, number(count)?);
        let is_share = (1..=count).contains(&index) && count <= Shard::MOST;
        if is_share { Ok(Shard { index: index - 1, count }) } else { Err(refused()) }
    }
}

/// Why a selection selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    #[error(
        "`--only {text}` is not understood\nhint: write KEY=VALUE[,VALUE]; keys are policy, size, model and task"
    )]
    Only { text: String },
    #[error("no cell has `{value}`\nhint: {hint}")]
    NoSuchCell { value: String, hint: String },
    #[error("`--shard {text}` is not understood\nhint: write I/N with I from 1 to N, for example 2/8")]
    Shard { text: String },
    #[error(
        "this is task {task} of a Slurm array job whose tasks are not numbered evenly, so its share is not known\n\
         hint: submit with --array=0-7 or --array=1-15:2, or say the share with --shard I/N (1/1 for all)"
    )]
    Array { task: String },
}
