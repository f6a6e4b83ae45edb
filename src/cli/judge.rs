//! `judge`: asks another model which of two stories is better.

use std::env::{self, VarError};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Error, Result};
use clap::Args;

use super::error::UsageError;
use super::output::{print, tell};
use super::progress::{Mode, Progress, lock};
use super::signals::Interrupt;
use crate::judge::{self, Counts, Endpoint, Event, Key, Settings};
use crate::ledger::{Ledger, Only};

/// Ask another model which of two stories is better: a bounded cache's or the full cache's
///
/// Each pair is asked about in both orders. Every verdict is written into the results, where `report` finds it; running the same
/// command again only asks what has no answer yet.
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
    let progress = Progress::new(Mode::Auto);
    let outcome = judge::judge(&ledger, &settings, &interrupt.stop, &|event| show(&mut lock(&progress), event));
    lock(&progress).bar.finish_and_clear();
    let outcome = outcome?;
    ledger.write_current()?;
    let Counts { pairs, identical, unreadable, calls, prompt_tokens, new_tokens } = outcome.counts;
    print(&format!("tokens used: {prompt_tokens} prompt, {new_tokens} completion, in {calls} calls\n"))?;
    let more = [
        (outcome.unpaired, "cells have no full cache's stories to compare with"),
        (outcome.taken, "cells are being judged by another process"),
    ];
    let more = more.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("; {count} {what}"));
    tell(format!(
        "{} pairs judged, {identical} identical and so equal, {unreadable} unreadable, {} open, {} failed{}; \
         `tova-bench report {}` shows how often each story was preferred",
        pairs - identical,
        outcome.open,
        outcome.failed,
        more.collect::<String>(),
        arguments.results.display()
    ));
    if outcome.interrupted {
        return Ok(interrupt.exit_code(Mode::Auto));
    }
    Ok(if outcome.failed + outcome.unpaired > 0 || (unreadable > 0 && pairs == 0) { 4 } else { 0 })
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

/// Shows an event of judging on stderr.
fn show(progress: &mut Progress, event: Event) {
    match event {
        Event::Started { pairs, done } => {
            progress.print(&format!("{pairs} pairs, {done} of them judged before"));
            progress.start(pairs as u64, done as u64);
        }
        Event::Judged => {
            let (done, pairs) = (progress.bar.position() + 1, progress.bar.length().unwrap_or_default());
            progress.update(done, &format!("{done} of {pairs} pairs"));
        }
        Event::Message(text) => progress.print(&text),
    }
}
