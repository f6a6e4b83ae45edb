//! Requests as JSON lines on stdin, answered one by one with one loaded model: one answer for each line, whatever it holds.

use std::io::{BufRead as _, ErrorKind, Write as _, stdin, stdout};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::eviction::{CacheSize, LocalLayers, Positions, Schedule};
use crate::task::Prefill;
use crate::text::{CacheSettings, TextModel, WriteSettings};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line of stdin. What it leaves out is as the options say.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    text: Option<String>,
    tokens: Option<Vec<u32>>,
    policy: Option<String>,
    cache_size: Option<CacheSize>,
    schedule: Option<Schedule>,
    /// The number of a text's first tokens that are its prompt, for `score`.
    pub(super) prompt: Option<usize>,
    positions: Option<Positions>,
    local_layers: Option<LocalLayers>,
    seed: Option<u64>,
    /// Whether `score` lists what was evicted.
    pub(super) evictions: Option<bool>,
    chat: Option<bool>,
    write: Option<WriteRequest>,
}

/// How a text is written.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteRequest {
    prefill: Option<Prefill>,
    max_new_tokens: Option<usize>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    repetition_penalty: Option<f32>,
    stop: Option<Vec<String>>,
}

impl Request {
    fn parse(line: Value) -> Result<Request> {
        ensure!(line.is_object(), "a request is a JSON object such as {{\"text\": \"...\"}}");
        // Structures would be read from lists too, by position.
        ensure!(
            line.get("write").is_none_or(|write| write.is_object() || write.is_null()),
            "`write` is an object"
        );
        Ok(serde_json::from_value(line)?)
    }

    pub(super) fn cache(&self, default: &CacheSettings) -> CacheSettings {
        CacheSettings {
            policy: self.policy.clone().unwrap_or_else(|| default.policy.clone()),
            // The size of another policy may mean nothing to this one.
            cache_size: self.cache_size.or(default.cache_size.filter(|_| self.policy.as_deref() != Some("full"))),
            schedule: self.schedule.or(default.schedule.filter(|_| !is_full(self.policy.as_deref()))),
            positions: self.positions.unwrap_or(default.positions),
            local_layers: self.local_layers.unwrap_or(default.local_layers),
            seed: self.seed.unwrap_or(default.seed),
        }
    }

    /// The cache of a text that `write` continues, whose `prefill` is a schedule too.
    pub(super) fn cache_of_prompt(&self, default: &CacheSettings) -> Result<CacheSettings> {
        ensure!(
            self.prompt.is_none(),
            "`prompt` belongs to requests of `score --stream`: here the whole text is the prompt"
        );
        let mut cache = self.cache(default);
        let prefill = self.write.as_ref().and_then(|write| write.prefill);
        if let Some(prefill) = prefill.filter(|_| !is_full(Some(&cache.policy))) {
            ensure!(
                self.schedule.is_none(),
                "`prefill` says when entries leave, and so does `schedule`: leave out one of them"
            );
            cache.schedule = (prefill == Prefill::OneShot).then_some(Schedule::CUT_ONE);
        }
        Ok(cache)
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
        ensure!(self.evictions.is_none(), "`evictions` belongs to requests of `score --stream`");
        let Some(write) = &self.write else { return Ok(default.clone()) };
        Ok(WriteSettings {
            max_new_tokens: write.max_new_tokens.unwrap_or(default.max_new_tokens),
            temperature: write.temperature.unwrap_or(default.temperature),
            top_k: write.top_k.or(default.top_k),
            top_p: write.top_p.or(default.top_p),
            repetition_penalty: write.repetition_penalty.unwrap_or(default.repetition_penalty),
            stop: write.stop.clone().unwrap_or_else(|| default.stop.clone()),
            ..default.clone()
        })
    }
}

/// Whether a policy has no schedule, because nothing leaves.
fn is_full(policy: Option<&str>) -> bool {
    matches!(policy, Some("full" | "truncate"))
}

fn read(line: &[u8]) -> Result<Value> {
    ensure!(!line.trim_ascii().is_empty(), "it is blank");
    Ok(serde_json::from_str(str::from_utf8(line)?)?)
}

/// Answers every line of stdin with a line on stdout. A request that fails is answered with an `error`; the others go on, and
/// the exit code is then 1.
pub(super) fn run(answer: impl Fn(&Request) -> Result<Value>) -> Result<u8> {
    let mut failed = false;
    for (index, line) in stdin().lock().split(b'\n').enumerate() {
        let line = line.context("cannot read stdin")?;
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| index == 0).unwrap_or(&line);
        let mut id = Value::Null;
        let request = read(line).and_then(|mut line| {
            id = line.as_object_mut().and_then(|line| line.remove("id")).unwrap_or_default();
            Request::parse(line)
        });
        let request = request.with_context(|| format!("line {} of stdin is no request", index + 1));
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
    Ok(u8::from(failed))
}
