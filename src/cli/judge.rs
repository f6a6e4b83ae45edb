//! `judge`: asks another model which of two stories is better, and prints win rates.

use std::collections::BTreeMap;
use std::env::{self, VarError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Error, Result};
use clap::Args;

use super::error::UsageError;
use super::output::{columns, print, tell};
use super::progress::{Mode, Progress};
use super::signals::Interrupt;
use crate::judge::{self, CellSummary, Endpoint, Event, Key, Outcome, Settings, wilson};
use crate::ledger::{Ledger, Only};
use crate::report::escape::plain;
use crate::report::prefill_words;

/// Ask another model which of two stories is better: a bounded cache's or the full cache's
///
/// Each pair is asked about in both orders. Every verdict is written into the results; running the same command again
/// only asks what has no answer yet.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Results folder with stories, including the full cache's; verdicts are added to it
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// The judge's model, as its endpoint names it, such as gpt-4-0613
    #[arg(long, env = "TOVA_BENCH_JUDGE_MODEL", value_name = "NAME")]
    judge_model: String,
    /// Base URL of an OpenAI-compatible server; `/chat/completions` is appended unless it ends so
    #[arg(long, env = "TOVA_BENCH_JUDGE_URL", value_name = "URL", default_value = "https://api.openai.com/v1")]
    #[arg(hide_env_values = true)]
    base_url: String,
    /// The environment variable that holds the key; if it is not set, no key is sent, which suits local servers
    #[arg(long, value_name = "NAME", default_value = "OPENAI_API_KEY")]
    key_env: String,
    /// Calls at the same time
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    concurrency: u32,
    /// Only the first N pairs
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Only stories of cells with one of these values, such as policy=tova or size=256; may be repeated
    #[arg(long, value_name = "KEY=VALUES")]
    only: Vec<Only>,
    /// The most seconds a request may take
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Retries of a request after a rate limit (429), a server error (5xx) or a broken connection
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    retries: u32,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let settings = settings(arguments)?;
    // A misspelt folder is an error; `open` would make it.
    Ledger::existing(&arguments.results)?;
    let ledger = Ledger::open(&arguments.results)?;
    if settings.key.is_none() {
        tell(format!("note: {} holds no key, so none is sent", arguments.key_env));
    } else if settings.endpoint.is_unencrypted() {
        tell(format!("warning: the key goes to {} without encryption", settings.endpoint.host()));
    }
    let interrupt = Interrupt::listen()?;
    let progress = Mutex::new(Progress::default());
    let lock = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = judge::judge(&ledger, &settings, &interrupt.stop, &|event| show(&mut lock(), event));
    lock().finish();
    let outcome = outcome?;
    ledger.write_current()?;
    if !outcome.cells.is_empty() {
        print(&tables(&outcome.cells, &settings.model))?;
    }
    tell(summary(&outcome, &arguments.results));
    if outcome.interrupted {
        return Ok(interrupt.exit_code(Mode::Auto));
    }
    let sum = |of: fn(&CellSummary) -> usize| outcome.cells.iter().map(of).sum::<usize>();
    let is_unreadable = sum(|cell| cell.counts.unreadable) > 0 && sum(|cell| cell.counts.pairs()) == 0;
    Ok(if outcome.failed + outcome.unpaired > 0 || is_unreadable { 4 } else { 0 })
}

fn settings(arguments: &Arguments) -> Result<Settings> {
    let usage = |error: Error| UsageError::from_error(format!("{error:#}"));
    let model = arguments.judge_model.trim();
    if model.is_empty() {
        return Err(UsageError::new("--judge-model is empty", "name the judge's model").into());
    }
    let variable = &arguments.key_env;
    let is_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if variable.is_empty() || !variable.bytes().all(is_name) {
        // The value is not shown: it may be the key itself.
        let hint = "give a name in capital letters, and put the key into that variable";
        return Err(UsageError::new("--key-env takes the name of an environment variable", hint).into());
    }
    let key = match env::var(variable) {
        Ok(text) => Key::new(&text, variable).map_err(usage)?,
        Err(VarError::NotPresent) => None,
        // This error's own text would show the value.
        Err(VarError::NotUnicode(_)) => {
            return Err(UsageError::new(format!("the key in {variable} is not UTF-8"), "set it again").into());
        }
    };
    Ok(Settings {
        endpoint: Endpoint::new(&arguments.base_url).map_err(usage)?,
        model: model.to_string(),
        key,
        key_variable: variable.clone(),
        concurrency: arguments.concurrency as usize,
        retries: arguments.retries,
        timeout: Duration::from_secs(arguments.timeout.into()),
        limit: arguments.limit,
        only: arguments.only.clone(),
    })
}

/// A table of win rates per setting, and the tokens used. Rates are over the pairs with a result.
fn tables(cells: &[CellSummary], judge: &str) -> String {
    let mut settings: BTreeMap<String, Vec<&CellSummary>> = BTreeMap::new();
    for cell in cells {
        let head = &cell.head;
        let setting = format!(
            "{} on {}, positions {}, prefill {}, judged by {judge} beside the full cache",
            head.model,
            head.dataset,
            head.positions,
            prefill_words(&head.prefill)
        );
        settings.entry(plain(&setting)).or_default().push(cell);
    }
    let mut text = String::new();
    for (setting, cells) in settings {
        text += &format!("{setting}\n\n{}\n", table(&cells));
    }
    let sum = |of: fn(&CellSummary) -> u64| cells.iter().map(of).sum::<u64>();
    text + &format!(
        "pairs of identical stories are ties; 95 % intervals: Wilson's, over pairs\ntokens used: {} prompt, {} completion, in {} calls\n",
        sum(|cell| cell.counts.prompt_tokens),
        sum(|cell| cell.counts.new_tokens),
        sum(|cell| cell.counts.calls as u64),
    )
}

fn table(cells: &[&CellSummary]) -> String {
    let header = ["policy", "size", "pairs", "win %", "tie %", "loss %", "identical", "unreadable"];
    let mut lines = vec![header.map(str::to_string)];
    for CellSummary { head, counts, .. } in cells {
        let rate = |part| {
            let percent = wilson(part, counts.pairs()).map(|rate| rate.map(|part| 100.0 * part));
            percent.map_or("-".to_string(), |[value, low, high]| format!("{value:.1} [{low:.1}, {high:.1}]"))
        };
        lines.push([
            plain(&head.policy),
            head.size_text().unwrap_or("-".to_string()),
            counts.pairs().to_string(),
            rate(counts.wins),
            rate(counts.ties),
            rate(counts.losses),
            counts.identical.to_string(),
            counts.unreadable.to_string(),
        ]);
    }
    columns(&lines, 1..8)
}

fn summary(outcome: &Outcome, folder: &Path) -> String {
    let sum = |of: fn(&CellSummary) -> usize| outcome.cells.iter().map(of).sum::<usize>();
    let more = [
        (outcome.unpaired, "cells have no full cache's stories to compare with"),
        (outcome.taken, "cells are being judged by another process"),
    ];
    let more = more.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("; {count} {what}"));
    format!(
        "{} pairs judged, {} identical and so equal, {} unreadable, {} open, {} failed{}; verdicts are in {}",
        sum(|cell| cell.counts.pairs() - cell.counts.identical),
        sum(|cell| cell.counts.identical),
        sum(|cell| cell.counts.unreadable),
        sum(|cell| cell.open),
        outcome.failed,
        more.collect::<String>(),
        folder.display()
    )
}

/// Shows an event of judging on stderr.
fn show(progress: &mut Progress, event: Event) {
    match event {
        Event::Started { pairs, done } => {
            progress.print(&format!("{pairs} pairs, {done} of them judged before"));
            progress.start(pairs as u64, done as u64);
        }
        Event::Judged => {
            let (done, pairs) = (progress.bar.position() + 1, progress.bar.length().unwrap_or_default());
            progress.update(done, format!("{done} of {pairs} pairs"));
        }
        Event::Message(text) => progress.print(&text),
    }
}
