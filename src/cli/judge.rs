//! `judge`: from stories to verdicts on them, with a bar or a line now and then on the way.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use super::args::JudgeArguments;
use super::failure::Usage;
use super::print;
use super::progress::interactive;
use super::sweeps::{interrupted, listen};
use crate::judge::{self, Endpoint, Event, Key, NothingSelected, Outcome, Settings};
use crate::ledger::Ledger;

pub(super) fn judge(arguments: &JudgeArguments) -> Result<ExitCode> {
    let settings = settings(arguments)?;
    // A slip in the folder's name shall not make a folder.
    Ledger::existing(&arguments.results)?;
    let ledger = Ledger::open(&arguments.results)?;
    match (&settings.key, settings.endpoint.is_open()) {
        (None, _) => eprintln!("note: {} holds no key, so none is sent", arguments.key_env),
        (Some(_), true) => {
            eprintln!("warning: the key goes to {} without encryption", settings.endpoint.host());
        }
        (Some(_), false) => {}
    }
    let (stop, signal) = listen()?;
    let meter = Meter::new();
    let outcome = judge::judge(&ledger, &settings, &stop, &|event| meter.show(&event));
    meter.finish();
    let outcome = outcome.map_err(|error| match error.downcast::<NothingSelected>() {
        Ok(error) => Usage::from_error(error).into(),
        Err(error) => error,
    })?;
    if !outcome.standings.is_empty() {
        print(&judge::table(&outcome.standings, &settings.model))?;
    }
    eprintln!("{}", summary(&outcome, &arguments.results));
    if outcome.interrupted {
        return Ok(interrupted(&signal));
    }
    Ok(ExitCode::from(if outcome.failed + outcome.unpaired > 0 { 4 } else { 0 }))
}

fn settings(arguments: &JudgeArguments) -> Result<Settings> {
    let usage = |error: anyhow::Error| Usage::from_error(format!("{error:#}"));
    let model = arguments.judge_model.trim();
    if model.is_empty() {
        return Err(Usage::new("--judge-model is empty", "name the model that shall judge").into());
    }
    let variable = &arguments.key_env;
    let is_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if variable.is_empty() || !variable.bytes().all(is_name) {
        // Not shown: it may be the key itself.
        let hint = "write a name in capital letters, and the key into that variable";
        return Err(Usage::new("--key-env takes the name of an environment variable", hint).into());
    }
    let key = match std::env::var(variable) {
        Ok(text) => Key::new(&text, variable).map_err(usage)?,
        Err(std::env::VarError::NotPresent) => None,
        // The error itself would show what is in there.
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(Usage::new(format!("the key in {variable} is not valid UTF-8"), "write it again").into());
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

fn summary(outcome: &Outcome, folder: &Path) -> String {
    let sum = |of: fn(&judge::Standing) -> usize| outcome.standings.iter().map(of).sum::<usize>();
    let mut text = format!(
        "{} pairs judged, {} identical left out, {} unreadable, {} open, {} failed",
        sum(|standing| standing.tally.pairs()),
        sum(|standing| standing.identical),
        sum(|standing| standing.tally.unreadable),
        sum(|standing| standing.open),
        outcome.failed,
    );
    if outcome.unpaired > 0 {
        text += &format!("; {} cells have no full cache's stories beside them", outcome.unpaired);
    }
    if outcome.taken > 0 {
        text += &format!("; {} cells are judged by another process", outcome.taken);
    }
    text + &format!("; verdicts are in {}", folder.display())
}

/// Shows how far judging is, on stderr.
struct Meter(Mutex<State>);

struct State {
    bar: Option<ProgressBar>,
    started: Instant,
    said: Instant,
    waited: Option<Instant>,
    calls: usize,
    before: usize,
    done: usize,
    tokens: u64,
    unreadable: usize,
}

/// Without a terminal, a line at most this often; and about waits, anywhere.
const EVERY: Duration = Duration::from_secs(10);

impl Meter {
    fn new() -> Meter {
        let now = Instant::now();
        Meter(Mutex::new(State {
            bar: None,
            started: now,
            said: now,
            waited: None,
            calls: 0,
            before: 0,
            done: 0,
            tokens: 0,
            unreadable: 0,
        }))
    }

    fn show(&self, event: &Event<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).show(event);
    }

    fn finish(&self) {
        if let Some(bar) = self.0.lock().unwrap_or_else(PoisonError::into_inner).bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl State {
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Started { pairs, calls, done } => self.start(*pairs, *calls, *done),
            Event::Judged { cell, readable, tokens } => {
                self.done += 1;
                self.tokens += tokens;
                self.unreadable += usize::from(!readable);
                let size = cell.cache_size.map_or(String::new(), |size| format!(" {size}"));
                self.progress(&format!("{}{size}", cell.policy));
            }
            Event::Waiting { cause, wait } => {
                if self.waited.is_none_or(|waited| waited.elapsed() >= EVERY) {
                    self.waited = Some(Instant::now());
                    self.say(&format!("{cause}; asking again in {:.1} s", wait.as_secs_f64()));
                }
            }
            Event::Failed { cell, sample, error } => self.say(&format!("failed: {cell}: {sample}: {error}")),
            Event::CellDone => {}
            Event::Taken { cell } => self.say(&format!("{cell} is being judged by another process")),
            Event::Warning(message) => self.say(&format!("warning: {message}")),
        }
    }

    fn start(&mut self, pairs: usize, calls: usize, done: usize) {
        (self.started, self.calls, self.before) = (Instant::now(), calls, done);
        self.say(&format!("{pairs} pairs, {calls} calls, {done} of them answered before"));
        if calls > done && interactive() {
            let style = ProgressStyle::with_template("[{wide_bar}] {percent:>3} %  {msg}  {eta} left");
            let style = style.expect("the template is a constant").progress_chars("=> ");
            let bar = ProgressBar::new(calls as u64).with_style(style).with_position(done as u64);
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_millis(250));
            self.bar = Some(bar);
        }
    }

    fn progress(&mut self, cell: &str) {
        let asked = self.before + self.done;
        let unreadable = match self.unreadable {
            0 => String::new(),
            n => format!(", {n} unreadable"),
        };
        if let Some(bar) = &self.bar {
            bar.set_position(asked as u64);
            bar.set_message(format!("{cell}  {} tokens{unreadable}", self.tokens));
        } else if self.said.elapsed() >= EVERY {
            self.said = Instant::now();
            let left =
                self.started.elapsed().as_secs_f64() / self.done as f64 * (self.calls.max(asked) - asked) as f64;
            eprintln!(
                "{asked} of {} calls answered, {} tokens{unreadable}, {left:.0} s left",
                self.calls, self.tokens
            );
        }
    }
}
