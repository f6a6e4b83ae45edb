//! Columns as the library `datasets` gives them to lm-evaluation-harness: it decides for a whole column what its values are.

use std::collections::BTreeMap;

use serde_json::Value;

/// What pandas takes for nothing in a table.
const NOTHING: [&str; 19] = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
];

/// The values of a table's column, from its cells: truths, whole numbers, numbers or texts, and null for words that mean nothing. A
/// number beside null is never a whole one.
pub fn of_table(cells: &[&str]) -> Vec<Value> {
    let is_nothing = |cell: &str| NOTHING.contains(&cell);
    let given: Vec<&str> = cells.iter().copied().filter(|cell| !is_nothing(cell)).collect();
    let each = |value: fn(&str) -> Option<Value>| -> Option<Vec<Value>> {
        given.iter().all(|cell| value(cell).is_some()).then(|| {
            let value = |cell: &&str| if is_nothing(cell) { None } else { value(cell) };
            cells.iter().map(|cell| value(cell).unwrap_or_default()).collect()
        })
    };
    let is_full = given.len() == cells.len();
    let values = each(truth).or_else(|| if is_full { each(whole) } else { None }).or_else(|| each(number));
    values.or_else(|| each(|cell| Some(cell.into()))).unwrap_or_default()
}

fn truth(cell: &str) -> Option<Value> {
    match cell {
        "True" | "TRUE" | "true" => Some(true.into()),
        "False" | "FALSE" | "false" => Some(false.into()),
        _ => None,
    }
}

fn whole(cell: &str) -> Option<Value> {
    let cell = cell.trim();
    cell.parse::<i64>().map(Value::from).or_else(|_| cell.parse::<u64>().map(Value::from)).ok()
}

fn number(cell: &str) -> Option<Value> {
    cell.trim().parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from)
}

/// Makes numbers of the same column alike, in lists and objects too: where one is not whole, none is, and 1 becomes 1.0.
pub fn widen(values: Vec<&mut Value>) {
    if values.iter().any(|value| value.is_f64()) && values.iter().all(|value| value.is_number() || value.is_null())
    {
        for value in values {
            if let Some(number) = value.as_f64() {
                *value = number.into();
            }
        }
        return;
    }
    let mut inner: BTreeMap<&str, Vec<&mut Value>> = BTreeMap::new();
    for value in values {
        match value {
            Value::Array(items) => inner.entry("").or_default().extend(items),
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(name, value)| inner.entry(name).or_default().push(value));
            }
            _ => {}
        }
    }
    inner.into_values().for_each(widen);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As datasets 5.2 with pandas 2.3 reads the same columns.
    #[test]
    fn columns_of_tables_are_those_of_pandas() {
        for (cells, values) in [
            (vec!["x", "NA", "null", "<NA>"], json!(["x", null, null, null])),
            (vec!["1", "2", "", "3"], json!([1.0, 2.0, null, 3.0])),
            (vec![" 5", "6", "7 ", "8"], json!([5, 6, 7, 8])),
            (vec!["true", "False", "TRUE"], json!([true, false, true])),
            (vec!["TRUE", "", "False"], json!([true, null, false])),
            (vec!["1.5", "2", "nan", "n/a"], json!([1.5, 2.0, null, null])),
            (vec!["None", "", "3", "N/A"], json!([null, null, 3.0, null])),
            (vec!["007", "-3", "+4", "0"], json!([7, -3, 4, 0])),
            (vec!["1e3", "2", "4.0"], json!([1000.0, 2.0, 4.0])),
            (vec!["", ""], json!([null, null])),
            (vec!["12345678901234567890", "2"], json!([12_345_678_901_234_567_890_u64, 2])),
            (vec!["NA", "q", " "], json!([null, "q", " "])),
            (vec!["true", "yes"], json!(["true", "yes"])),
        ] {
            assert_eq!(Value::from(of_table(&cells)), values, "{cells:?}");
        }
    }

    /// As datasets 5.2 with pyarrow 26 reads the same lines.
    #[test]
    fn numbers_of_a_column_are_alike() {
        let mut rows = json!([
            {"n": 1, "l": [1, 2], "d": {"x": 1}, "m": 1, "z": null, "t": 1},
            {"n": 2.5, "l": [1.5], "d": {"x": 2.5}, "m": 2, "z": 1, "t": "a"},
            {"n": null, "l": [], "d": {"x": null}, "m": 3, "z": 2, "t": 2},
        ]);
        widen(rows.as_array_mut().unwrap().iter_mut().collect());
        let expected = json!([
            {"n": 1.0, "l": [1.0, 2.0], "d": {"x": 1.0}, "m": 1, "z": null, "t": 1},
            {"n": 2.5, "l": [1.5], "d": {"x": 2.5}, "m": 2, "z": 1, "t": "a"},
            {"n": null, "l": [], "d": {"x": null}, "m": 3, "z": 2, "t": 2},
        ]);
        assert_eq!(rows.to_string(), expected.to_string());
    }
}
