//! Which rows a command uses: the same `--only` that selects the cells of a run.

use super::only::{Field, Only, OnlyError};
use super::row::{Row, Text};

/// The rows that every `only` admits. `size=` keeps the full cache, the reference at every size; a bare policy name admits all
/// kinds of positions, `tova@squeezed` only that one.
///
/// # Errors
/// A value that no row has.
pub fn select(rows: Vec<Row>, only: &[Only]) -> Result<Vec<Row>, OnlyError> {
    if only.is_empty() {
        return Ok(rows);
    }
    for only in only {
        only.check_present(values(&rows, only.field()), "the results have")?;
    }
    let admitted = |row: &Row| only.iter().all(|only| admits(only, row));
    Ok(rows.into_iter().filter(admitted).collect())
}

/// Whether an `only` admits a row.
pub fn admits(only: &Only, row: &Row) -> bool {
    let is_reference = row.policy == "full" && only.field() == Field::Size;
    is_reference || only.admits(names(row, only.field()))
}

fn values(rows: &[Row], field: Field) -> Vec<String> {
    let heads = rows.chunk_by(|a, b| a.cell == b.cell).filter_map(|rows| rows.first());
    heads.flat_map(|row| names(row, field)).map(|name| name.to_string()).collect()
}

/// The values of a row in a field, as `--only` spells them.
fn names(row: &Row, field: Field) -> Vec<Text> {
    match field {
        Field::Policy if row.positions == "absolute" => vec![row.policy.clone()],
        Field::Policy => vec![row.policy.clone(), format!("{}@{}", row.policy, row.positions).into()],
        Field::Size => row.cache_size.iter().map(|size| size.to_string().into()).collect(),
        Field::Model => vec![row.model.clone()],
        Field::Task => vec![row.task.clone()],
    }
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
        let error = selected(&["policy=tovva"]).unwrap_err();
        assert!(error.contains("no cell has `tovva`") && error.contains("the results have full, tova"), "{error}");
    }
}
