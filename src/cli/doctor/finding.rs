//! One line of `doctor`: what was checked, how severe the finding is, what to do about it.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use crate::format::{counted, plain};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Ok,
    /// Runs work, but something could be better.
    Note,
    /// Runs would fail.
    Problem,
}

#[derive(Debug, Serialize)]
pub(super) struct Finding {
    name: &'static str,
    #[serde(rename = "verdict")]
    pub(super) severity: Severity,
    pub(super) value: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) advice: Vec<String>,
    /// The same in numbers, for programs.
    #[serde(skip_serializing_if = "Value::is_null")]
    figures: Value,
}

impl Finding {
    pub(super) fn ok(name: &'static str, value: impl Into<String>) -> Finding {
        Finding { name, severity: Severity::Ok, value: value.into(), advice: Vec::new(), figures: Value::Null }
    }

    /// Sets the figures, a JSON object.
    pub(super) fn figures(self, figures: Value) -> Finding {
        Finding { figures, ..self }
    }

    /// Adds advice; the severity becomes at least `Note`.
    pub(super) fn note(self, advice: impl Into<String>) -> Finding {
        self.with(Severity::Note, advice.into())
    }

    /// Adds advice; the severity becomes `Problem`.
    pub(super) fn problem(self, advice: impl Into<String>) -> Finding {
        self.with(Severity::Problem, advice.into())
    }

    pub(super) fn note_if(self, condition: bool, advice: impl Into<String>) -> Finding {
        if condition { self.note(advice) } else { self }
    }

    pub(super) fn problem_if(self, condition: bool, advice: impl Into<String>) -> Finding {
        if condition { self.problem(advice) } else { self }
    }

    fn with(mut self, severity: Severity, advice: String) -> Finding {
        self.severity = self.severity.max(severity);
        self.advice.push(advice);
        self
    }
}

/// An error with its causes on one line.
pub(super) fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let severity = match finding.severity {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Problem => "PROBLEM",
        };
        text += format!("{severity:<8} {:<13} {}", finding.name, plain(&finding.value)).trim_end();
        text.push('\n');
        for advice in &finding.advice {
            text += &format!("{:22} -> {}\n", "", plain(advice));
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (problems, notes) = (count(Severity::Problem), count(Severity::Note));
    let end = if problems > 0 { "runs would fail" } else { "ready to run" };
    text + &format!("\n{}, {}: {end}\n", counted(problems, "problem"), counted(notes, "note"))
}

pub(super) fn json(findings: &[Finding]) -> Result<String> {
    let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
    Ok(format!("{}\n", serde_json::to_string_pretty(&json!({ "verdict": worst, "checks": findings }))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_severity_counts_and_control_characters_are_removed() {
        let hub = Finding::ok("hub", "a\u{1b}[31mb").problem("do\u{7} this").note("and that");
        let token = Finding::ok("token", "none").figures(json!({ "n": 3 })).note_if(false, "no advice");
        let findings = [hub, token];
        let shown = text(&findings);
        let lines: Vec<&str> = shown.lines().map(str::trim_start).collect();
        assert_eq!(lines[..2], ["PROBLEM  hub           a\u{FFFD}[31mb", "-> do\u{FFFD} this"]);
        assert_eq!(lines[3..], ["ok       token         none", "", "1 problem, 0 notes: runs would fail"]);
        let read: Value = serde_json::from_str(&json(&findings).unwrap()).unwrap();
        assert_eq!((&read["verdict"], &read["checks"][0]["advice"][1]), (&json!("problem"), &json!("and that")));
    }
}
