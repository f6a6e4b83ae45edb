//! One line of `doctor`: what was looked at, whether it is well, what to do.
//!
//! As text it has no colours and no control characters, wherever it is read; as JSON it has its figures as numbers.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::report::escape::plain;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Ok,
    /// Runs work; something could be better, or should be known.
    Note,
    /// Runs would fail.
    Problem,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub name: &'static str,
    pub verdict: Verdict,
    pub value: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
}

impl Finding {
    pub fn ok(name: &'static str, value: impl Into<String>) -> Finding {
        Finding { name, verdict: Verdict::Ok, value: value.into(), advice: Vec::new(), figures: Map::new() }
    }

    pub fn note(name: &'static str, value: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::ok(name, value).but(Verdict::Note, advice)
    }

    pub fn problem(name: &'static str, value: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::ok(name, value).but(Verdict::Problem, advice)
    }

    /// The same with something more to do, and a verdict that is at least this one.
    pub fn but(mut self, verdict: Verdict, advice: impl Into<String>) -> Finding {
        self.verdict = self.verdict.max(verdict);
        self.advice.push(advice.into());
        self
    }

    /// The same with a figure for programs.
    pub fn figure(mut self, name: &str, value: impl Into<Value>) -> Finding {
        self.figures.insert(name.to_string(), value.into());
        self
    }
}

/// A message of several lines as one.
pub(super) fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Problem => "PROBLEM",
        };
        text += format!("{verdict:<8} {:<13} {}", finding.name, plain(&finding.value)).trim_end();
        text.push('\n');
        for advice in &finding.advice {
            for (line, words) in lines(&plain(advice), ADVICE_WIDTH).iter().enumerate() {
                text += &format!("{:<22} {} {words}\n", "", if line == 0 { "->" } else { "  " });
            }
        }
    }
    let of = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (problems, notes) = (of(Verdict::Problem), of(Verdict::Note));
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let end = if problems > 0 { "runs would fail" } else { "ready to run" };
    text + &format!("\n{problems} problem{}, {notes} note{}: {end}\n", plural(problems), plural(notes))
}

/// Columns of a line of advice, beside what stands before it.
const ADVICE_WIDTH: usize = 90;

/// The words in lines of at most so many characters, where a single word is not longer.
fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

pub(super) fn json(findings: &[Finding]) -> Result<String> {
    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok);
    Ok(format!("{}\n", serde_json::to_string_pretty(&json!({ "verdict": worst, "checks": findings }))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_stays_and_nothing_drives_a_terminal() {
        let finding = Finding::problem("hub", "a\u{1b}[31mb", "do\u{7} this").but(Verdict::Note, "and that");
        assert_eq!(finding.verdict, Verdict::Problem);
        let shown = text(&[finding.clone(), Finding::ok("token", "none").figure("n", 3)]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "PROBLEM  hub           a\u{FFFD}[31mb");
        assert_eq!(lines[1].trim_start(), "-> do\u{FFFD} this");
        assert_eq!(lines[5], "1 problem, 0 notes: runs would fail");
        assert_eq!(super::lines("aa bbb c dddddd", 6), ["aa bbb", "c", "dddddd"]);
        let read: Value = serde_json::from_str(&json(&[finding]).unwrap()).unwrap();
        assert_eq!(read["verdict"], "problem");
        assert_eq!(read["checks"][0]["advice"][1], "and that");
    }
}
