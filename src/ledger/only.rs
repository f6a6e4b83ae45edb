//! `--only key=value,value`: which cells or rows a command looks at. Flags select, and never change what a cell means.

use std::collections::HashSet;
use std::str::FromStr;

use crate::format::did_you_mean;

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
}

/// One `--only key=value,value`: the cell's value is one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    field: Field,
    values: Vec<String>,
}

impl Only {
    /// The field it asks about.
    pub fn field(&self) -> Field {
        self.field
    }

    /// Whether one of the field's values, which something may have several of, is asked for.
    pub fn admits<T: AsRef<str>>(&self, values: impl IntoIterator<Item = T>) -> bool {
        values.into_iter().any(|value| self.values.iter().any(|asked| asked == value.as_ref()))
    }

    /// Checks that every value asked for is `present` somewhere; `have` begins the sentence that lists those that are.
    ///
    /// # Errors
    /// A value that is not.
    pub fn check_present(&self, present: impl IntoIterator<Item = String>, have: &str) -> Result<(), OnlyError> {
        let mut seen = HashSet::new();
        let present: Vec<String> = present.into_iter().filter(|value| seen.insert(value.clone())).collect();
        let Some(value) = self.values.iter().find(|value| !present.contains(value)) else { return Ok(()) };
        let near = did_you_mean(value, present.iter().map(String::as_str));
        let hint = format!("{near}{have} {}", present.join(", "));
        Err(OnlyError::NoSuchCell { value: value.clone(), hint })
    }
}

impl FromStr for Only {
    type Err = OnlyError;

    fn from_str(text: &str) -> Result<Self, OnlyError> {
        let refused = || OnlyError::Only { text: text.to_string() };
        let (key, values) = text.split_once('=').ok_or_else(refused)?;
        let (_, field) = Field::ALL.into_iter().find(|(name, _)| *name == key.trim()).ok_or_else(refused)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_string()).collect();
        if values.iter().any(String::is_empty) { Err(refused()) } else { Ok(Only { field, values }) }
    }
}

/// Why an `--only` selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OnlyError {
    #[error(
        "`--only {text}` is not understood\nhint: write KEY=VALUE[,VALUE]; keys are policy, size, model and task"
    )]
    Only { text: String },
    #[error("no cell has `{value}`\nhint: {hint}")]
    NoSuchCell { value: String, hint: String },
}
