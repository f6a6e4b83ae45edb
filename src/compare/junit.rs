//! A comparison as JUnit XML, which CI services show as tests: a suite for each key and metric, a case for each
//! policy and size.
//!
//! A case fails where the gate fails, with an explanation as its message; numbers that could not be compared are skipped.

use indexmap::IndexMap;
use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::comparison::Comparison;
use super::point::{Point, Verdict};
use crate::report::escape;

/// The document.
///
/// # Errors
/// None in practice: characters that XML cannot hold are replaced.
pub fn junit(comparison: &Comparison) -> Result<String, SerializeError> {
    let titles = comparison.titles();
    let mut suites: IndexMap<String, TestSuite> = IndexMap::new();
    for point in &comparison.points {
        let title = titles.get(&point.key).map_or("", String::as_str);
        let name = escape::plain(&format!("{} \u{B7} {title}", point.metric.label));
        let mut case = TestCase::new(escape::plain(&point.place()), status(point, comparison));
        // GitLab calls a suite by the class of its cases and takes equal ones for one test; Jenkins takes what stands before the
        // last dot for a package.
        case.set_classname(name.replace('.', "_"));
        suites.entry(name.clone()).or_insert_with(|| TestSuite::new(name)).add_test_case(case);
    }
    let mut report = Report::new("tova-bench compare");
    report.add_test_suites(suites.into_values());
    let counted = format!(" skipped=\"{}\"", report.skipped);
    // The schema of Jenkins' xUnit plugin allows this attribute on suites, but not on the whole document.
    Ok(report.to_string()?.replacen(&counted, "", 1))
}

fn status(point: &Point, comparison: &Comparison) -> TestCaseStatus {
    let skipped = matches!(point.verdict, Verdict::Missing | Verdict::New | Verdict::NotComparable);
    let (mut status, kind) = match (point.fails(comparison.allow_missing), skipped) {
        (true, _) => (TestCaseStatus::non_success(NonSuccessKind::Failure), point.verdict.name()),
        (false, true) => (TestCaseStatus::skipped(), point.verdict.name()),
        (false, false) => return TestCaseStatus::success(),
    };
    let sentence = escape::plain(&point.sentence());
    // Some services show the message, others the text.
    status.set_message(sentence.clone()).set_type(kind).set_description(sentence);
    status
}
