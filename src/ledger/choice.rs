//! Which rows of one or more ledgers a command looks at, by the same `--only` that selects cells for measuring.
//!
//! Knows the columns that name a cell, and no numbers.

use super::only::{Field, Only, OnlyError};
use super::row::{Row, Text};

/// The rows that every `only` admits. A size keeps the full cache, which stands beside every size; a policy's name
/// admits it wherever its keys stand, and `tova@squeezed` only there.
///
/// # Errors
/// A value that no row has.
pub fn choose(rows: Vec<Row>, only: &[Only]) -> Result<Vec<Row>, OnlyError> {
    if only.is_empty() {
        return Ok(rows);
    }
    for only in only {
        only.check_present(values(&rows, only.field()), "the results have")?;
    }
    let admitted = |row: &Row| only.iter().all(|only| admits(only, row));
    Ok(rows.into_iter().filter(admitted).collect())
}

/// Whether a row's cell is among those an `only` asks for.
pub fn admits(only: &Only, row: &Row) -> bool {
    let stands_beside_all = row.policy == "full" && only.field() == Field::Size;
    stands_beside_all || only.admits(names(row, only.field()))
}

fn values(rows: &[Row], field: Field) -> Vec<String> {
    let heads = rows.chunk_by(|a, b| a.cell == b.cell).filter_map(|rows| rows.first());
    heads.flat_map(|row| names(row, field)).map(|name| name.to_string()).collect()
}

/// What a row's cell is called in a field.
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

    fn chosen(only: &[&str]) -> Result<Vec<String>, String> {
        let rows = vec![
            cell("full", "absolute", None),
            cell("tova", "absolute", Some(64)),
            cell("tova", "squeezed", Some(64)),
            cell("tova", "absolute", Some(128)),
            cell("h2o", "absolute", Some(64)),
        ];
        let only: Vec<Only> = only.iter().map(|text| text.parse().unwrap()).collect();
        let rows = choose(rows, &only).map_err(|error| error.to_string())?;
        Ok(rows.iter().map(|row| format!("{}@{} {:?}", row.policy, row.positions, row.cache_size)).collect())
    }

    #[test]
    fn rows_are_chosen_by_what_names_their_cell() {
        assert_eq!(chosen(&[]).unwrap().len(), 5);
        let at_128 = ["full@absolute None", "tova@absolute Some(128)"];
        assert_eq!(chosen(&["size=128"]).unwrap(), at_128, "the full cache stands beside every size");
        assert_eq!(chosen(&["size=128", "policy=tova"]).unwrap(), at_128[1..]);
        assert_eq!(chosen(&["policy=tova"]).unwrap().len(), 3, "wherever its keys stand");
        assert_eq!(chosen(&["policy=tova@squeezed,h2o"]).unwrap().len(), 2);
        let error = chosen(&["policy=tovva"]).unwrap_err();
        assert!(error.contains("no cell has `tovva`") && error.contains("the results have full, tova"), "{error}");
    }
}
