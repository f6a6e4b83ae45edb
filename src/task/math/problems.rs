//! Problems as JSON lines, and as rows.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::task::benchmark::Rows;
use crate::task::data::{JsonRow, json_rows};

/// A problem and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Unique in its data set.
    pub name: String,
    pub text: String,
    pub answer: String,
    pub subject: Option<String>,
    pub level: Option<String>,
}

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

/// Reads the problems of files of JSON lines, each with its file and line.
///
/// # Errors
/// A file or line that cannot be read, an empty problem or answer, or two problems of one name; file and line are named.
pub fn read(files: &[PathBuf]) -> Result<Vec<(Problem, String)>> {
    let mut names = HashSet::new();
    let named = |JsonRow { row, place, number, file }| {
        let mut problem = problem(row, number).with_context(|| place.clone())?;
        if let Some(file) = file {
            problem.name = format!("{file} {}", problem.name);
        }
        ensure!(
            names.insert(problem.name.clone()),
            "{place}: another problem is named {}; results could not tell them apart",
            problem.name
        );
        Ok((problem, place))
    };
    json_rows(files)?.into_iter().map(named).collect()
}

/// The problem of a row; without an id, the row's number is its name.
fn problem(row: Row, number: usize) -> Result<Problem> {
    ensure!(!row.problem.trim().is_empty(), "`problem` is empty");
    let name = match row.unique_id.as_ref().or(row.id.as_ref()) {
        Some(id) => plain("unique_id or id", id)?,
        None => format!("row {number:05}"),
    };
    // Hendrycks' MATH writes `Level 5`, MATH-500 5.
    let level = row.level.filter(|level| !level.is_null()).map(|level| plain("level", &level)).transpose()?;
    let level = level.map(|level| level.strip_prefix("Level ").unwrap_or(&level).to_owned());
    Ok(Problem {
        name,
        text: row.problem.trim().to_owned(),
        answer: plain("answer", &row.answer)?,
        subject: row.subject.filter(|subject| !subject.trim().is_empty()),
        level,
    })
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

/// Problems and their places as rows. A subject or level that is not given is empty.
///
/// # Errors
/// None: each is an object.
pub fn rows(problems: impl IntoIterator<Item = (Problem, String)>) -> Result<Rows> {
    let mut rows = Rows::default();
    for (Problem { name, text, answer, subject, level }, place) in problems {
        let (subject, level) = (subject.unwrap_or_default(), level.unwrap_or_default());
        let row = json!({"name": name, "problem": text, "answer": answer, "subject": subject, "level": level});
        rows.add(row, place)?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::benchmark::{builtin_definition, requests_of};

    fn read_text(text: &str) -> Result<Vec<(Problem, String)>> {
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
        let some = |text: &str| Some(text.to_owned());
        let expected = [
            ("test/algebra/1.json", "What is $1+1$?", "2", some("Algebra"), some("2")),
            ("row 00001", "a", "2", some("Geometry"), some("5")),
            ("7", "b", "33", None, None),
        ];
        let expected = expected.map(|(name, text, answer, subject, level)| Problem {
            name: name.into(),
            text: text.into(),
            answer: answer.into(),
            subject,
            level,
        });
        assert_eq!(found.into_iter().map(|(problem, _)| problem).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn files_of_one_data_set_may_count_anew() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["i.jsonl", "ii.jsonl"].map(|name| folder.path().join(name));
        for file in &files {
            std::fs::write(file, r#"{"problem": "a", "answer": 1}"#).unwrap();
        }
        let names: Vec<String> = read(&files).unwrap().into_iter().map(|(problem, _)| problem.name).collect();
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
            (good, "another problem is named p"),
        ];
        for (row, expected) in cases {
            let found = format!("{:#}", read_text(&format!("{good}\n{row}\n")).unwrap_err());
            assert!(found.contains(expected) && found.contains("x.jsonl, line 2"), "{expected}: {found}");
        }
    }

    #[test]
    fn draws_differ_by_seed_and_stay_as_they_are() {
        let problem = |name: &str| Problem {
            name: name.into(),
            text: "What is 1 + 1?".into(),
            answer: "2".into(),
            subject: Some("sums".into()),
            level: None,
        };
        let problems = [problem("a"), problem("b")];
        let requests = |problems: &[Problem], draws: usize| {
            let mut definition = builtin_definition("math").unwrap();
            definition.repeats = Some(draws);
            let places = problems.iter().map(|problem| (problem.clone(), String::new()));
            requests_of(&definition, &rows(places).unwrap()).unwrap()
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
