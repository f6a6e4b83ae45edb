//! Problems as JSON lines, and the prompts made of them.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::task::data::{JsonRow, digest_of, json_rows};
use crate::task::generation::{Prompt, Request};

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

/// What a prompt says after the problem, as the model cards of Qwen2.5-Math and DeepSeek-R1 ask for it.
const INSTRUCTION: &str = "Please reason step by step, and put your final answer within \\boxed{}.";

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

/// Reads the problems of files of JSON lines.
///
/// # Errors
/// A file or line that cannot be read, an empty problem or answer, or two problems of one name; file and line are named.
pub fn read(files: &[PathBuf]) -> Result<Vec<Problem>> {
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
        Ok(problem)
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

/// The digest of all problems and answers.
pub fn digest(problems: &[Problem]) -> String {
    digest_of(problems.iter().flat_map(|problem| {
        let Problem { name, text, answer, subject, level } = problem.clone();
        [name, text, answer, subject.unwrap_or_default(), level.unwrap_or_default()]
    }))
}

/// A request for every draw of every problem. More draws or more problems leave the others' seeds as they are.
pub fn requests(problems: &[Problem], draws: usize, length: usize) -> Vec<Request> {
    let of_problem = |(number, problem): (usize, &Problem)| {
        let slices = [("subject", &problem.subject), ("level", &problem.level)];
        let slices = slices.into_iter().filter_map(|(key, value)| Some(format!("{key}:{}", value.as_ref()?)));
        let request = Request {
            cluster: problem.name.clone(),
            // Nothing may be cut from a problem, so it is no document.
            prompt: Prompt {
                after: format!("{}\n\n{INSTRUCTION}{HEADER}", problem.text),
                header: HEADER.len(),
                ..Prompt::default()
            },
            references: vec![problem.answer.clone()],
            slices: slices.collect(),
            length,
            ..Request::default()
        };
        let draw = move |draw: usize| Request {
            name: format!("{}#{draw}", request.cluster),
            seed: ((draw as u64) << 32) + number as u64,
            ..request.clone()
        };
        (0..draws).map(draw)
    };
    problems.iter().enumerate().flat_map(of_problem).collect()
}

/// What follows the instruction where there is no chat template.
const HEADER: &str = "\n\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Problem>> {
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
        assert_eq!(found, expected);
    }

    #[test]
    fn files_of_one_data_set_may_count_anew() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["i.jsonl", "ii.jsonl"].map(|name| folder.path().join(name));
        for file in &files {
            std::fs::write(file, r#"{"problem": "a", "answer": 1}"#).unwrap();
        }
        let names: Vec<String> = read(&files).unwrap().into_iter().map(|problem| problem.name).collect();
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
        let requests = requests(&problems, 3, 99);
        let names: Vec<&str> = requests.iter().map(|request| request.name.as_str()).collect();
        assert_eq!(names, ["a#0", "a#1", "a#2", "b#0", "b#1", "b#2"]);
        let seeds: HashSet<u64> = requests.iter().map(|request| request.seed).collect();
        assert_eq!(seeds.len(), 6);
        assert_eq!(super::requests(&problems[..1], 2, 99), requests[..2]);
        assert_eq!(
            (requests[4].cluster.as_str(), &requests[4].slices[..]),
            ("b", &["subject:sums".to_owned()][..])
        );
        let expected = "What is 1 + 1?\n\nPlease reason step by step, and put your final answer within \\boxed{}.";
        assert_eq!(requests[0].prompt.without_header().whole(), expected);
    }
}
