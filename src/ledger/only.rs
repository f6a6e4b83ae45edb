//! `--only key=value,value`: which cells of a sweep are run, and which rows of results are used. It selects and never
//! changes what a cell means.

use std::collections::HashSet;
use std::str::FromStr;

use super::row::{Row, Text};
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
        // What follows a policy's name is listed for those who asked for it.
        let listed = present.iter().map(String::as_str).filter(|name| value.contains('@') || !name.contains('@'));
        let hint = format!("{near}{have} {}", listed.collect::<Vec<_>>().join(", "));
        Err(OnlyError(format!("no cell has `{value}`\nhint: {hint}")))
    }
}

impl FromStr for Only {
    type Err = OnlyError;

    fn from_str(text: &str) -> Result<Self, OnlyError> {
        let hint = "hint: write KEY=VALUE[,VALUE]; keys are policy, size, model and task";
        let refused = || OnlyError(format!("`--only {text}` is not understood\n{hint}"));
        let (key, values) = text.split_once('=').ok_or_else(refused)?;
        let (_, field) = Field::ALL.into_iter().find(|(name, _)| *name == key.trim()).ok_or_else(refused)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_string()).collect();
        if values.iter().any(String::is_empty) { Err(refused()) } else { Ok(Only { field, values }) }
    }
}

/// Why an `--only` selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OnlyError(String);

impl OnlyError {
    /// Makes the error for values of several `--only` that no cell of a sweep has together.
    pub fn nothing_selected() -> OnlyError {
        let message = "no cell of the sweep has all the values that `--only` asks for";
        OnlyError(format!("{message}\nhint: `plan` without `--only` lists the cells"))
    }
}

/// Whether something passes several `--only`: those with the same key are a union, and different keys must all hold.
/// `admits` says whether it has one of the values that an `only` asks for.
pub fn passes(only: &[Only], admits: impl Fn(&Only) -> bool) -> bool {
    only.iter().all(|asked| only.iter().any(|other| other.field == asked.field && admits(other)))
}

/// The rows that pass `only` ([`passes`]). `size=` keeps the full cache, the reference at every size; a bare policy name
/// admits all kinds of positions, schedules and layers, `tova@squeezed`, `tova@cut` or `tova@cut@exempt` only those.
///
/// # Errors
/// A value that no row has.
pub fn select(rows: Vec<Row>, only: &[Only]) -> Result<Vec<Row>, OnlyError> {
    for only in only {
        let present = rows.iter().flat_map(|row| names(row, only.field()));
        only.check_present(present.map(|name| name.to_string()), "the results have")?;
    }
    Ok(rows.into_iter().filter(|row| passes(only, |only| admits(only, row))).collect())
}

/// Whether an `only` admits a row.
pub fn admits(only: &Only, row: &Row) -> bool {
    let is_reference = row.policy == "full" && only.field() == Field::Size;
    is_reference || only.admits(names(row, only.field()))
}

/// The values of a row in a field, as `--only` spells them.
fn names(row: &Row, field: Field) -> Vec<Text> {
    match field {
        Field::Policy => {
            let kinds = row.schedule.as_deref().into_iter().chain(row.unusual_options());
            policy_names(&row.policy, kinds).into_iter().map(Text::from).collect()
        }
        Field::Size => row.size_text().map(Text::from).into_iter().collect(),
        Field::Model => vec![row.model.clone()],
        Field::Task => vec![row.task.clone()],
    }
}

/// The names that select a policy: its own, alone and with some of the kinds of its schedule, positions and layers, in this order.
pub fn policy_names<'a>(policy: &str, kinds: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    kinds.into_iter().fold(vec![policy.to_owned()], |mut names, kind| {
        let with_kind: Vec<_> = names.iter().map(|name| format!("{name}@{kind}")).collect();
        names.extend(with_kind);
        names
    })
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    fn cell(policy: &str, positions: &str, size: Option<u32>) -> Row {
        let cell = format!("{policy}{positions}{size:?}").into();
        Row { cell, policy: policy.into(), positions: positions.into(), cache_size: size, ..row(0) }
    }

    fn selected(only: &[&str]) -> Result<Vec<String>, String> {
        let rows = vec![
            cell("full", "absolute", None),
            cell("tova", "absolute", Some(64)),
            cell("tova", "squeezed", Some(64)),
            cell("tova", "absolute", Some(128)),
            cell("h2o", "absolute", Some(64)),
        ];
        let only: Vec<Only> = only.iter().map(|text| text.parse().unwrap()).collect();
        let rows = select(rows, &only).map_err(|error| error.to_string())?;
        Ok(rows.iter().map(|row| format!("{}@{} {:?}", row.policy, row.positions, row.cache_size)).collect())
    }

    #[test]
    fn rows_are_selected_by_field() {
        assert_eq!(selected(&[]).unwrap().len(), 5);
        let at_128 = ["full@absolute None", "tova@absolute Some(128)"];
        assert_eq!(selected(&["size=128"]).unwrap(), at_128, "the full cache is the reference at every size");
        assert_eq!(selected(&["size=128", "policy=tova"]).unwrap(), at_128[1..]);
        assert_eq!(selected(&["policy=tova"]).unwrap().len(), 3, "with all kinds of positions");
        assert_eq!(selected(&["policy=tova@squeezed,h2o"]).unwrap().len(), 2);
        // One key twice is a union.
        let both = selected(&["size=64", "size=128"]).unwrap();
        assert_eq!(both, selected(&["size=64,128"]).unwrap());
        assert_eq!(both.len(), 5);
        assert_eq!(selected(&["size=64", "policy=h2o", "policy=full", "size=128"]).unwrap().len(), 2);
        assert_eq!(selected(&["policy=tova", "policy=tova@squeezed"]).unwrap().len(), 3);
        let share = |size: u32, share| Row { cache_share: Some(share), ..cell("tova", "absolute", Some(size)) };
        let of_shares =
            select(vec![share(64, 0.25), share(80, 0.25), share(64, 0.125)], &["size=25%".parse().unwrap()]);
        assert_eq!(of_shares.unwrap().len(), 2, "a share is not a number of entries");
        let cut = Row {
            schedule: Some("cut".into()),
            local_layers: Some("exempt".into()),
            ..cell("tova", "absolute", Some(64))
        };
        // The last is what reports call it.
        for name in ["tova@cut", "tova@exempt", "tova@cut@exempt"] {
            let rows = vec![cut.clone(), cell("tova", "absolute", Some(64))];
            assert_eq!(select(rows, &[format!("policy={name}").parse().unwrap()]).unwrap().len(), 1, "{name}");
        }
        let error = selected(&["policy=tovva"]).unwrap_err();
        assert!(error.contains("no cell has `tovva`") && error.contains("the results have full, tova"), "{error}");
    }
}
