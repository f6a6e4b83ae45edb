//! Problems as JSON lines, and as rows.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::task::benchmark::Rows;

/// A line. Other fields, such as `solution`, are ignored.
#[derive(Deserialize)]
struct Row {
    #[serde(alias = "question")]
    problem: String,
    answer: Value,
    #[serde(alias = "type")]
    subject: Option<String>,
    level: Option<Value>,
    unique_id: Option<Value>,
    id: Option<Value>,
}

/// What a row may tell of a problem.
const COLUMNS: [&str; 7] = ["problem", "answer", "subject", "type", "level", "unique_id", "id"];

/// Reads the problems of files of rows: `name`, `problem`, `answer`, and `subject` and `level`, empty where they are not given.
///
/// # Errors
/// A file or row that cannot be read, or an empty problem or answer; file and row are named.
pub fn read(files: &[PathBuf]) -> Result<Rows> {
    let mut problems = Rows::default();
    for file in files {
        let mut read = Rows::default();
        read.read_file(file, &COLUMNS.into())?;
        for (number, (row, place)) in read.rows.into_iter().zip(read.places).enumerate() {
            let mut problem = problem(row, number).with_context(|| place.clone())?;
            // Each file may count its rows anew.
            if files.len() > 1 {
                let file = file.file_stem().unwrap_or_default().to_string_lossy();
                problem["name"] = format!("{file} {}", problem["name"].as_str().unwrap_or_default()).into();
            }
            problems.add(problem, place)?;
        }
    }
    Ok(problems)
}

/// The problem of a row; without an id, the row's number is its name.
fn problem(row: Value, number: usize) -> Result<Value> {
    let row: Row = serde_json::from_value(row)?;
    ensure!(!row.problem.trim().is_empty(), "`problem` is empty");
    let name = match row.unique_id.as_ref().or(row.id.as_ref()) {
        Some(id) => plain("unique_id or id", id)?,
        None => format!("row {number:05}"),
    };
    // Hendrycks' MATH writes `Level 5`, MATH-500 5.
    let level = row.level.map(|level| plain("level", &level)).transpose()?.unwrap_or_default();
    Ok(json!({
        "name": name,
        "problem": row.problem.trim(),
        "answer": plain("answer", &row.answer)?,
        "subject": row.subject.filter(|subject| !subject.trim().is_empty()).unwrap_or_default(),
        "level": level.strip_prefix("Level ").unwrap_or(&level),
    }))
}

/// The text of a string or a number.
fn plain(key: &str, value: &Value) -> Result<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        other => bail!("`{key}` is {other}; it must be a string or a number"),
    };
    ensure!(!text.is_empty(), "`{key}` is empty");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::benchmark::{builtin_definition, requests_of};

    fn read_text(text: &str) -> Result<Rows> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.jsonl");
        std::fs::write(&file, text).unwrap();
        read(&[file])
    }

    #[test]
    fn rows_of_published_files_are_read() {
        let math = r#"{"problem": " What is $1+1$? ", "solution": "x", "answer": "2", "subject": "Algebra", "level": 2, "unique_id": "test/algebra/1.json"}"#;
        let hendrycks = r#"{"problem": "a", "answer": "2", "type": "Geometry", "level": "Level 5"}"#;
        let aime = r#"{"question": "b", "answer": 33, "id": 7}"#;
        let found = read_text(&format!("\u{feff}{math}\n\n{hendrycks}\n{aime}\n")).unwrap();
        let expected = [
            ("test/algebra/1.json", "What is $1+1$?", "2", "Algebra", "2"),
            ("row 00001", "a", "2", "Geometry", "5"),
            ("7", "b", "33", "", ""),
        ];
        let expected = expected.map(|(name, text, answer, subject, level)| {
            json!({"name": name, "problem": text, "answer": answer, "subject": subject, "level": level})
        });
        assert_eq!(found.rows, expected);
    }

    #[test]
    fn files_of_one_data_set_may_count_anew() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["i.jsonl", "ii.jsonl"].map(|name| folder.path().join(name));
        for file in &files {
            std::fs::write(file, r#"{"problem": "a", "answer": 1}"#).unwrap();
        }
        let problems = read(&files).unwrap().rows;
        let names: Vec<&str> = problems.iter().map(|problem| problem["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["i row 00000", "ii row 00000"]);
    }

    #[test]
    fn unreadable_rows_are_named() {
        let good = r#"{"problem": "a", "answer": "1", "id": "p"}"#;
        let cases = [
            (r#"{"problem": "a"}"#, "missing field `answer`"),
            (r#"{"answer": 1}"#, "missing field `problem`"),
            (r#"{"problem": " ", "answer": 1}"#, "`problem` is empty"),
            (r#"{"problem": "a", "answer": ""}"#, "`answer` is empty"),
            (r#"{"problem": "a", "answer": [1]}"#, "`answer` is [1]"),
            (r#"{"problem": "a", "answer": null}"#, "`answer` is null"),
            ("{", "EOF"),
        ];
        for (row, expected) in cases {
            let found = format!("{:#}", read_text(&format!("{good}\n{row}\n")).unwrap_err());
            assert!(found.contains(expected) && found.contains("x.jsonl, line 2"), "{expected}: {found}");
        }
    }

    #[test]
    fn draws_differ_by_seed_and_stay_as_they_are() {
        let problem = |name: &str| json!({"name": name, "problem": "What is 1 + 1?", "answer": "2", "subject": "sums", "level": ""});
        let problems = [problem("a"), problem("b")];
        let requests = |problems: &[Value], draws: usize| {
            let mut definition = builtin_definition("math").unwrap();
            definition.repeats = Some(draws);
            let mut rows = Rows::default();
            problems.iter().for_each(|problem| rows.add(problem.clone(), String::new()).unwrap());
            requests_of(&definition, &rows).unwrap()
        };
        let of_both = requests(&problems, 3);
        let names: Vec<&str> = of_both.iter().map(|request| request.name.as_str()).collect();
        assert_eq!(names, ["a#0", "a#1", "a#2", "b#0", "b#1", "b#2"]);
        let seeds: Vec<u64> = of_both.iter().map(|request| request.seed).collect();
        assert_eq!(seeds, [0, 1 << 32, 2 << 32, 1, (1 << 32) + 1, (2 << 32) + 1]);
        assert_eq!(requests(&problems[..1], 2), of_both[..2]);
        assert_eq!(
            (of_both[4].cluster.as_str(), &of_both[4].slices[..]),
            ("b", &[crate::metric::Slice::named("subject", "sums")][..])
        );
        let expected = "What is 1 + 1?\n\nPlease reason step by step, and put your final answer within \\boxed{}.";
        assert_eq!(of_both[0].prompt.without_header().whole(), expected);
        // Nothing may be cut from a problem, and a chat template opens the answer itself.
        assert_eq!(of_both[0].prompt.question(), expected);
        assert!(!of_both[0].keeps_header && of_both[0].prompt.before.is_empty());
    }
}
