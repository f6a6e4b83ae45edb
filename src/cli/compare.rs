//! `compare`: results beside a baseline, as text, as files and as an exit code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;

use super::baseline;
use super::error::UsageError;
use super::output::print;
use super::results::complete_rows;
use super::terminal;
use crate::compare::{self, Comparison, Options, Threshold, Thresholds, metric_named, shown_name};
use crate::format::did_you_mean;
use crate::ledger::{Row, read_rows, write_output};
use crate::metric::METRICS;
use crate::report::{self, WIDTH, with_unique_names};

const REGRESSION: u8 = 3;

/// Compare results with a baseline and fail (exit code 3) where they got worse
#[derive(Debug, Args)]
#[command(
    after_help = "A number that got worse regressed if any rule of its threshold holds: interval (the 95 % interval of the paired\n\
difference excludes zero), 2% (of the baseline's value), interval+2% (both), cluster+5% (any one book, story or paper), or\n\
several with commas. docs/compare.md has the defaults. Exit codes: 0 nothing regressed, 3 something regressed\n\
or is missing, 1 and 2 as always."
)]
pub(super) struct Arguments {
    /// What to compare with: the name of a saved baseline, a .parquet file of rows, or a results folder
    baseline: String,
    /// What to compare: a results folder, a .parquet file of rows, or the name of a saved baseline
    results: String,
    /// How far a number may move: METRIC=RULES, or RULES for all metrics not named. Metrics have their names in the rows (nll)
    /// or in reports (perplexity). May be repeated
    #[arg(long, value_name = "[METRIC=]RULE[,RULE...]", conflicts_with = "exact")]
    threshold: Vec<String>,
    /// Compare the slices of samples as well (by kind, distance, position)
    #[arg(long, alias = "parts", conflicts_with = "exact")]
    slices: bool,
    /// Compare sample by sample, slices, texts and counts of tokens and bytes included: any sample that moved and any cell of
    /// another engine version fails; times and judges' verdicts are not compared
    #[arg(long)]
    exact: bool,
    /// With --exact, how far value / weight of a sample may move
    #[arg(long, value_name = "X", default_value_t = 1e-6, requires = "exact")]
    tolerance: f64,
    /// Do not fail on cells and samples that are missing from the results; having nothing in common still fails
    #[arg(long)]
    allow_missing: bool,
    /// Where saved baselines are
    #[arg(long, value_name = "DIR", default_value = baseline::FOLDER)]
    dir: PathBuf,
    /// Write Markdown for a comment on a pull request; - is stdout, instead of the table for terminals
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write everything as JSON (described in docs/compare.md); - is stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let outputs = [&arguments.markdown, &arguments.json];
    let to_stdout = outputs.iter().filter(|file| file.as_deref().is_some_and(is_stdout)).count();
    if to_stdout > 1 {
        bail!(UsageError::new("only one of --markdown and --json can be -", "give the other a file"));
    }
    if !(arguments.tolerance.is_finite() && arguments.tolerance >= 0.0) {
        bail!(UsageError::new("--tolerance must be a number from 0 up", "try 1e-6"));
    }
    let before = with_unique_names(rows_of(&arguments.baseline, &arguments.dir)?);
    let after = with_unique_names(rows_of(&arguments.results, &arguments.dir)?);
    for (name, rows) in [(&arguments.baseline, &before), (&arguments.results, &after)] {
        ensure!(!rows.is_empty(), "there is nothing to compare: {name} holds no rows");
    }
    let options = Options {
        thresholds: thresholds(&arguments.threshold, &before, &after)?,
        slices: arguments.slices,
        exact: arguments.exact.then_some(arguments.tolerance),
        allow_missing: arguments.allow_missing,
    };
    let comparison = compare::compare((&arguments.baseline, &before), (&arguments.results, &after), &options)?;
    ensure!(
        !comparison.points.is_empty(),
        "there is nothing to compare: {} and {} hold no numbers of the kind asked for",
        arguments.baseline,
        arguments.results
    );
    // With --allow-missing no point says why it failed.
    ensure!(
        comparison.has_common() || comparison.points.iter().any(|point| point.fails(arguments.allow_missing)),
        "{} and {} have nothing in common\nhint: `tova-bench report` says what each of them holds",
        arguments.baseline,
        arguments.results
    );
    let texts: [fn(&Comparison) -> Result<String>; 2] =
        [|of| Ok(report::markdown(&compare::document(of))), |of| Ok(compare::json(of)?)];
    for (file, text) in outputs.into_iter().zip(texts) {
        match file {
            Some(file) if is_stdout(file) => {
                print(&text(&comparison)?)?;
            }
            Some(file) => write_output(file, text(&comparison)?.as_bytes())?,
            None => {}
        }
    }
    if to_stdout == 0 {
        print(&report::terminal(&compare::document(&comparison), terminal::columns(WIDTH)))?;
    }
    Ok(if comparison.failed() { REGRESSION } else { 0 })
}

fn is_stdout(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// The rows of a results folder, a file of rows, or a saved baseline.
fn rows_of(named: &str, saved: &Path) -> Result<Vec<Row>> {
    let path = Path::new(named);
    let baseline = baseline::path(saved, named).filter(|file| file.is_file());
    // A folder without cells that shares its name with a baseline does not count.
    if path.join("cells").is_dir() || (path.is_dir() && baseline.is_none()) {
        return complete_rows(path);
    }
    if let Some(file) = Some(path.to_path_buf()).filter(|file| file.is_file()).or(baseline) {
        let hint = "hint: `tova-bench baseline save NAME RESULTS` makes such a file; rows with another version's schema must be \
                    measured and saved again";
        return read_rows(&file).map_err(|error| anyhow!("{error:#}\n{hint}"));
    }
    let hint = "saved baselines are the .parquet files in `--dir`, results/baselines by default";
    Err(UsageError::new(format!("`{named}` is neither a results folder, nor a file, nor a saved baseline"), hint)
        .into())
}

fn thresholds(texts: &[String], before: &[Row], after: &[Row]) -> Result<Thresholds> {
    let mut thresholds = Thresholds::default();
    // Rows may have metrics that this version does not know.
    let measured = before.iter().chain(after).map(|row| row.metric.as_str());
    let known: BTreeSet<&str> = METRICS.iter().map(|metric| &*metric.id).chain(measured).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let rule = |text: &str| -> Result<Threshold> {
        let hint = "write interval, interval+2%, a share such as 2%, cluster+5%, or several with commas";
        text.parse().map_err(|error: String| UsageError::new(format!("--threshold: {error}"), hint).into())
    };
    for text in texts {
        let Some((name, spelled)) = text.split_once('=') else {
            thresholds.insert(None, rule(text)?);
            continue;
        };
        let Some(metric) = metric_named(name, &known) else {
            let shown: Vec<String> = known.iter().map(|metric| shown_name(metric)).collect();
            let all = known.iter().copied().chain(shown.iter().map(String::as_str));
            let hint = format!(
                "{}metrics have their names in the rows or in reports: nll or perplexity",
                did_you_mean(name, all)
            );
            bail!(UsageError::new(format!("--threshold: there is no metric `{name}`"), hint));
        };
        thresholds.insert(Some(metric.to_owned()), rule(spelled)?);
    }
    Ok(thresholds)
}
