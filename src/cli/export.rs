//! `export`: answers in the formats of other projects' scoring programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use super::output::print;
use super::results::CellArguments;
use crate::ledger::{Row, Wanted, write_output};
use crate::report::{escape, with_unique_names};

/// Export answers for other projects' scoring programs
#[derive(Debug, Args)]
#[command(mut_arg("all", |all| all.help("Also the cells of the folder that the sweep run last does not have")))]
pub(super) struct Arguments {
    /// The format to write
    #[arg(value_enum)]
    form: Form,
    /// Results folder
    results: PathBuf,
    #[command(flatten)]
    cells: CellArguments,
    /// Where the files go [default: the results folder]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// CSV files for submission, `Task,ID,Prediction`: one for each model, policy and cache size
    Zeroscrolls,
}

/// The tasks of ZeroSCROLLS that this program has.
const ZEROSCROLLS: [&str; 2] = ["squality", "qasper"];

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let Form::Zeroscrolls = arguments.form;
    let rows = with_unique_names(arguments.cells.read(&arguments.results, Wanted::Complete)?.rows);
    let folder = arguments.out.as_ref().unwrap_or(&arguments.results).join("zeroscrolls");
    let files = zeroscrolls(&rows);
    ensure!(
        !files.is_empty(),
        "{} holds no answers of {}; run a sweep with one of these tasks first",
        arguments.results.display(),
        ZEROSCROLLS.join(" or ")
    );
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut summary = String::new();
    for (name, lines) in files {
        let path = folder.join(&name);
        let answers = lines.len();
        let text = lines.into_iter().fold(String::from("Task,ID,Prediction\n"), |text, line| text + &line + "\n");
        write_output(&path, text.as_bytes())?;
        summary += &format!("{} ({answers} answers)\n", path.display());
    }
    print(&summary)
}

/// Lines by file: one file for each model, policy, cache size and way of reading the prompt, both tasks together.
fn zeroscrolls(rows: &[Row]) -> BTreeMap<String, Vec<String>> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows.iter().filter(|row| ZEROSCROLLS.contains(&row.task.as_str())) {
        let Some(answer) = &row.output else { continue };
        let size = row.size_text().unwrap_or("unbounded".to_string());
        let model = row.model.rsplit('/').find(|part| !part.is_empty()).unwrap_or("model");
        let name: String = format!("{model}__{}__{size}__{}", row.policy, row.prefill)
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '_' | '-') { c } else { '-' })
            .collect();
        // ZeroSCROLLS' own script strips answers too.
        let line = [row.task.as_str(), &row.sample, answer].map(|field| escape::csv(field.trim())).join(",");
        files.entry(format!("{name}.csv")).or_default().push(line);
    }
    files
}
