//! `compare`: two sets of rows in, a verdict out: as text, as files, as an exit code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;

use super::baseline;
use super::failure::Usage;
use super::{complete_rows, print};
use crate::compare::{self, Comparison, Options, Threshold, Thresholds, metric_named, shown_name};
use crate::format::did_you_mean;
use crate::ledger::{Row, read_rows};
use crate::metric::METRICS;

/// What exit code 3 means: a gate does not let this pass.
const REGRESSION: u8 = 3;

#[derive(Debug, Args)]
#[command(
    after_help = "Numbers are paired by what they mean: model, task and its settings, policy, positions, cache size, metric; \
samples by name.\nA number regressed where it got worse beyond its threshold:\n\
\x20 interval        the 95 % bootstrap interval of the paired difference (clusters resampled) excludes zero\n\
\x20 2%              the difference is more than this share of the baseline's value\n\
\x20 0.05            the difference is more than this, in the unit shown (perplexity, percent, tokens/s)\n\
\x20 interval+2%     both\n\
Defaults: interval+0.1%; 1% where one cluster allows no interval; times and resident bytes 10% of the median over\n\
repeats and ranges that do not overlap; cache bytes and batches 0.1%. A threshold without a metric is for all metrics\n\
not named. Quantities without a better direction (such as tokens written) change and never regress. Times compare on\n\
one device only. Exit codes: 0 nothing regressed, 3 something regressed or is missing, 1 and 2 as always."
)]
pub struct CompareArguments {
    /// What to compare with: the name of a saved baseline, a .parquet file of rows, or a results folder
    pub baseline: String,
    /// What to compare: a results folder, a .parquet file of rows, or the name of a saved baseline
    pub results: String,
    /// How far a number may move: METRIC=RULE, or RULE for all metrics not named; a metric as in the rows (nll) or as shown
    /// (perplexity); may be given several times
    #[arg(long, value_name = "[METRIC=]RULE", conflicts_with = "exact")]
    pub threshold: Vec<String>,
    /// Compare the parts of samples as well (by kind, distance, position)
    #[arg(long, conflicts_with = "exact")]
    pub parts: bool,
    /// Compare sample by sample, parts included, as the same engine on the same machine repeats them: any that moved fails,
    /// and so does another engine's cell; times and a judge's verdicts are left out
    #[arg(long)]
    pub exact: bool,
    /// How far value / weight of a sample may move with --exact
    #[arg(long, value_name = "X", default_value_t = 1e-6, requires = "exact")]
    pub tolerance: f64,
    /// Let cells and samples be missing from the results
    #[arg(long)]
    pub allow_missing: bool,
    /// Where saved baselines are
    #[arg(long, value_name = "DIR", default_value = baseline::FOLDER)]
    pub dir: PathBuf,
    /// Write Markdown for a pull request's comment; - is stdout, in place of the terminal's table
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write everything as JSON (its shape is described in results/README.md); - is stdout
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write JUnit XML; - is stdout
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

pub(super) fn compare(arguments: &CompareArguments) -> Result<ExitCode> {
    let outputs = [&arguments.markdown, &arguments.json, &arguments.junit];
    let to_stdout = outputs.iter().filter(|file| file.as_deref().is_some_and(is_stdout)).count();
    if to_stdout > 1 {
        bail!(Usage::new("only one of --markdown, --json and --junit can be -", "give the others a file"));
    }
    if !(arguments.tolerance.is_finite() && arguments.tolerance >= 0.0) {
        bail!(Usage::new("--tolerance is no number from 0 up", "try 1e-6"));
    }
    let before = side(&arguments.baseline, &arguments.dir)?;
    let after = side(&arguments.results, &arguments.dir)?;
    let options = Options {
        thresholds: thresholds(&arguments.threshold, &before, &after)?,
        parts: arguments.parts,
        exact: arguments.exact.then_some(arguments.tolerance),
        allow_missing: arguments.allow_missing,
    };
    let comparison = compare::compare((&arguments.baseline, &before), (&arguments.results, &after), &options);
    ensure!(
        !comparison.points.is_empty(),
        "there is nothing to compare: {} and {} hold no numbers of the kind asked for",
        arguments.baseline,
        arguments.results
    );
    write(&comparison, arguments)?;
    if to_stdout == 0 {
        print(&compare::terminal(&comparison))?;
    }
    Ok(if comparison.failed() { ExitCode::from(REGRESSION) } else { ExitCode::SUCCESS })
}

fn is_stdout(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn write(comparison: &Comparison, arguments: &CompareArguments) -> Result<()> {
    let put = |file: &Path, text: String| match is_stdout(file) {
        true => print(&text),
        false => std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display())),
    };
    if let Some(file) = &arguments.markdown {
        put(file, compare::markdown(comparison))?;
    }
    if let Some(file) = &arguments.json {
        put(file, compare::json(comparison)?)?;
    }
    if let Some(file) = &arguments.junit {
        put(file, compare::junit(comparison)?)?;
    }
    Ok(())
}

/// The rows of a results folder, a file of rows, or a saved baseline.
fn side(named: &str, saved: &Path) -> Result<Vec<Row>> {
    let path = Path::new(named);
    let baseline = baseline::path(saved, named).filter(|file| file.is_file());
    // A folder that only happens to be called like a baseline holds no cells.
    if path.join("cells").is_dir() || (path.is_dir() && baseline.is_none()) {
        return complete_rows(path);
    }
    if let Some(file) = Some(path.to_path_buf()).filter(|file| file.is_file()).or(baseline) {
        let hint = "hint: `tova-bench baseline save NAME RESULTS` makes such a file; rows of another version's schema are measured \
                    and saved again";
        return read_rows(&file).map_err(|error| anyhow!("{error:#}\n{hint}"));
    }
    let names = baseline::names(saved)?;
    let known = match &names[..] {
        [] => format!("{} holds no baselines; `tova-bench baseline save NAME` makes one", saved.display()),
        names => {
            let near = did_you_mean(named, names.iter().map(String::as_str));
            format!("{near}baselines in {}: {}", saved.display(), names.join(", "))
        }
    };
    bail!(Usage::new(format!("`{named}` is no results folder, no file and no saved baseline"), known))
}

fn thresholds(asked: &[String], before: &[Row], after: &[Row]) -> Result<Thresholds> {
    let mut thresholds = Thresholds::default();
    // A metric this version has not heard of may still be in the rows.
    let mut known: Vec<&str> = METRICS.iter().map(|metric| &*metric.id).collect();
    let measured: BTreeSet<&str> = before.iter().chain(after).map(|row| row.metric.as_str()).collect();
    known.extend(measured.into_iter().filter(|id| METRICS.iter().all(|metric| metric.id != *id)));
    let rule = |text: &str| -> Result<Threshold> {
        let hint = "write interval, a share such as 2%, a difference such as 0.05, or interval+2%";
        text.parse().map_err(|error: String| Usage::new(format!("--threshold: {error}"), hint).into())
    };
    for text in asked {
        let Some((name, spelled)) = text.split_once('=') else {
            thresholds.others = Some(rule(text)?);
            continue;
        };
        let Some(metric) = metric_named(name, &known) else {
            let shown: Vec<String> = known.iter().map(|metric| shown_name(metric)).collect();
            let all = known.iter().copied().chain(shown.iter().map(String::as_str));
            let hint = format!(
                "{}metrics are called as in the rows, or as they are shown: nll or perplexity",
                did_you_mean(name, all)
            );
            bail!(Usage::new(format!("--threshold: there is no metric `{name}`"), hint));
        };
        thresholds.by_metric.push((metric.to_owned(), rule(spelled)?));
    }
    Ok(thresholds)
}
