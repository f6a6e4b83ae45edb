//! Which program this is: the versions that results name, and what it was built from.

use super::finding::Finding;
use crate::ledger::{ENGINE_VERSION, SCHEMA_VERSION};

pub(super) fn findings() -> Vec<Finding> {
    let commit = option_env!("TOVA_BENCH_COMMIT");
    let version = env!("CARGO_PKG_VERSION");
    let from = commit.unwrap_or("unknown (not built in a checkout)");
    let versions = format!("{version}, commit {from}, engine {ENGINE_VERSION}, schema {SCHEMA_VERSION}");
    let versions = Finding::ok("version", versions)
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
    vec![versions, build]
}
