//! What some tests need beside the repository: more data, a tool, a right.
//!
//! Without it a test is skipped aloud. With `TOVA_BENCH_CI` set it fails, unless `TOVA_BENCH_MAY_SKIP` lists what is missing;
//! `.ci/run` sets both.

use std::env;
use std::io::Write;
use std::path::PathBuf;

/// The folder that `TOVA_BENCH_TEST_DATA` names, with data sets, checkpoints and goldens.
pub fn data(test: &str) -> Option<PathBuf> {
    let data = env::var_os("TOVA_BENCH_TEST_DATA").map(PathBuf::from);
    if data.is_none() {
        skip(test, "data", "the folder that TOVA_BENCH_TEST_DATA names");
    }
    data
}

/// Says that a test is skipped for want of something, past the harness, which shows nothing of tests that pass.
///
/// # Panics
/// In CI, where the script does not say that this may be missing.
pub fn skip(test: &str, missing: &str, words: &str) {
    let may_skip = env::var("TOVA_BENCH_MAY_SKIP").unwrap_or_default();
    let allowed = may_skip.split(',').any(|allowed| allowed == missing);
    assert!(
        env::var_os("TOVA_BENCH_CI").is_none() || allowed,
        "{test} needs {words}; TOVA_BENCH_MAY_SKIP={missing} lets it be skipped"
    );
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test} needs {words}");
}
