//! Requests as JSON lines on stdin, answered one by one with one loaded model.

use std::io::{BufRead as _, ErrorKind, Write as _, stdin, stdout};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::eviction::{LocalLayers, Positions};
use crate::text::{CacheSettings, TextModel, WriteSettings};

/// A line of stdin. What it leaves out is as the options say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    #[serde(default)]
    id: Value,
    text: Option<String>,
    tokens: Option<Vec<u32>>,
    policy: Option<String>,
    cache_size: Option<usize>,
    positions: Option<Positions>,
    local_layers: Option<LocalLayers>,
    seed: Option<u64>,
    chat: Option<bool>,
    write: Option<WriteRequest>,
}

/// How a text is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteRequest {
    max_new_tokens: Option<usize>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    repetition_penalty: Option<f32>,
    stop: Option<Vec<String>>,
}

impl Request {
    pub(super) fn cache(&self, default: &CacheSettings) -> CacheSettings {
        CacheSettings {
            policy: self.policy.clone().unwrap_or_else(|| default.policy.clone()),
            // The size of another policy may mean nothing to this one.
            cache_size: self.cache_size.or(default.cache_size.filter(|_| self.policy.as_deref() != Some("full"))),
            positions: self.positions.unwrap_or(default.positions),
            local_layers: self.local_layers.unwrap_or(default.local_layers),
            seed: self.seed.unwrap_or(default.seed),
        }
    }

    /// The tokens that `score` reads.
    pub(super) fn tokens(&self, model: &TextModel) -> Result<Vec<u32>> {
        ensure!(
            self.write.is_none() && self.chat.is_none(),
            "`write` and `chat` belong to requests of `write --stream`"
        );
        self.prompt(model, false)
    }

    /// The tokens that `write` continues.
    pub(super) fn prompt(&self, model: &TextModel, chat: bool) -> Result<Vec<u32>> {
        let chat = self.chat.unwrap_or(chat);
        match (&self.text, &self.tokens) {
            (Some(text), None) if chat => model.chat_tokens(text),
            (Some(text), None) => model.tokens(text),
            (None, Some(tokens)) => Ok(tokens.clone()),
            _ => anyhow::bail!("a request has either `text` or `tokens`"),
        }
    }

    pub(super) fn settings(&self, default: &WriteSettings) -> Result<WriteSettings> {
        let Some(write) = self.write.clone() else { return Ok(default.clone()) };
        Ok(WriteSettings {
            max_new_tokens: write.max_new_tokens.unwrap_or(default.max_new_tokens),
            temperature: write.temperature.unwrap_or(default.temperature),
            top_k: write.top_k.or(default.top_k),
            top_p: write.top_p.or(default.top_p),
            repetition_penalty: write.repetition_penalty.unwrap_or(default.repetition_penalty),
            stop: write.stop.unwrap_or_else(|| default.stop.clone()),
            ..default.clone()
        })
    }
}

/// Answers every line of stdin with a line on stdout. A request that fails is answered with an `error`; the others go on, and
/// the exit code is then 1.
pub(super) fn run(answer: impl Fn(&Request) -> Result<Value>) -> Result<ExitCode> {
    let mut failed = false;
    for (index, line) in stdin().lock().lines().enumerate() {
        let line = line.context("cannot read stdin")?;
        if line.trim().is_empty() {
            continue;
        }
        let request: Result<Request> =
            serde_json::from_str(&line).with_context(|| format!("line {} of stdin is no request", index + 1));
        let id = request.as_ref().map_or(Value::Null, |request| request.id.clone());
        let mut answer = request.and_then(|request| answer(&request)).unwrap_or_else(|error| {
            failed = true;
            json!({"error": format!("{error:#}")})
        });
        if !id.is_null() {
            answer["id"] = id;
        }
        let mut out = stdout().lock();
        match writeln!(out, "{answer}").and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            written => written.context("cannot write to stdout")?,
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}
