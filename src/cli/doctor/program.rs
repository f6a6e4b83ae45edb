//! Which program this is: versions that name its numbers, and what it was built from.

use super::finding::{Finding, one_line};
use crate::cli::sweeps::count;
use crate::ledger::{ENGINE_VERSION, SCHEMA_VERSION};
use crate::lm::ModelFiles;
use crate::lm::source::{HubSettings, ModelSource};

pub(super) fn findings(settings: Option<&HubSettings>) -> Vec<Finding> {
    let commit = option_env!("TOVA_BENCH_COMMIT");
    let version = env!("CARGO_PKG_VERSION");
    let version = Finding::ok(
        "version",
        format!(
            "{version}, commit {}, engine {ENGINE_VERSION}, schema {SCHEMA_VERSION}",
            commit.unwrap_or("not known (not built in a checkout)")
        ),
    )
    .figure("version", version)
    .figure("commit", commit)
    .figure("engine", ENGINE_VERSION)
    .figure("schema", SCHEMA_VERSION);
    let (rustc, candle) = (option_env!("TOVA_BENCH_RUSTC"), option_env!("TOVA_BENCH_CANDLE"));
    let target = option_env!("TOVA_BENCH_TARGET").unwrap_or(std::env::consts::ARCH);
    let build = format!(
        "{}, candle {}, for {target}, {} CUDA",
        rustc.unwrap_or("rustc of unknown version"),
        candle.unwrap_or("of unknown version"),
        if cfg!(feature = "cuda") { "with" } else { "without" }
    );
    let build = Finding::ok("build", build)
        .figure("rustc", rustc)
        .figure("candle", candle)
        .figure("target", target)
        .figure("cuda", cfg!(feature = "cuda"));
    let pocket = settings.map(pocket);
    [version, build].into_iter().chain(pocket).collect()
}

/// The trained model in the program, read as a run reads it.
fn pocket(settings: &HubSettings) -> Finding {
    let read = ModelFiles::find(&ModelSource::Pocket, settings, &())
        .and_then(|pocket| Ok((pocket.shape.parameters(), pocket.revision()?)));
    match read {
        Ok((parameters, revision)) => {
            Finding::ok("pocket model", format!("{} parameters, {revision}, in the program", count(parameters)))
                .figure("revision", revision)
        }
        Err(error) => Finding::problem(
            "pocket model",
            one_line(&format!("{error:#}")),
            "the program is damaged: install it again",
        ),
    }
}
