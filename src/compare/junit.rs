//! A comparison as JUnit XML, which CI services show as tests: a suite for each key and metric, a case for each
//! policy and size.
//!
//! A case fails where the gate fails, with an explanation as its message; numbers that could not be compared are skipped.

use indexmap::IndexMap;
use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::comparison::Comparison;
use super::document::in_cluster;
use super::point::{Point, Verdict};
use super::side::in_slice;
use crate::report::escape;

/// Samples, and clusters, that are named in a failure's text.
const SHOWN: usize = 20;

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
    let moved = point.moved.iter().take(SHOWN).map(|moved| {
        let sample = in_slice(&moved.sample, moved.slice.as_ref());
        let shown = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
        format!("moved: {sample}: {} to {} ({})", shown(moved.before), shown(moved.after), moved.what())
    });
    let missing = point.missing_samples.iter().take(SHOWN).map(|sample| format!("missing: {sample}"));
    let worse = point.clusters_worse.iter().take(SHOWN);
    let worse = worse.map(|cluster| format!("worse: {}", in_cluster(point, cluster)));
    let lines = worse.chain(moved).chain(missing).map(|line| escape::plain(&line));
    // Some services show the message, others the text.
    let text = [sentence.clone()].into_iter().chain(lines).collect::<Vec<_>>().join("\n");
    status.set_message(sentence).set_type(kind).set_description(text);
    status
}
