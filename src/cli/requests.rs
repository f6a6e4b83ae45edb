//! Requests as JSON lines on stdin, answered one by one with one loaded model: one answer for each line, whatever it holds.

use std::io::{BufRead as _, stdin};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::output::print_on;
use super::text_args::Source;
use crate::eviction::WrittenPolicy;
use crate::text::{CacheSettings, TextModel, WriteSettings};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The keys of a line of stdin, each of which a command takes once. What they leave out is as the options say.
pub(super) struct Request(Map<String, Value>);

impl Request {
    fn parse(line: Value) -> Result<Request> {
        match line {
            Value::Object(keys) => Ok(Request(keys)),
            _ => bail!("a request is a JSON object such as {{\"text\": \"...\"}}"),
        }
    }

    /// Takes the value of a key; `None` if it has none.
    pub(super) fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>> {
        serde_json::from_value(self.0.remove(key).unwrap_or_default()).with_context(|| format!("the key `{key}`"))
    }

    /// Refuses keys that nobody took.
    fn end(&self) -> Result<()> {
        let left = self.0.keys().next();
        left.map_or(Ok(()), |key| Err(anyhow!("the key `{key}` has no meaning here")))
    }

    pub(super) fn cache(&mut self, default: &CacheSettings) -> Result<CacheSettings> {
        let policy: Option<String> = self.take("policy")?;
        // The size and the schedule of another policy may mean nothing to this one.
        let size = default.cache_size.filter(|_| policy.as_deref() != Some("full"));
        let evicts = |name: &str| WrittenPolicy::parse(name).is_ok_and(|policy| !policy.never_evicts());
        let schedule = default.schedule.filter(|_| policy.as_deref().is_none_or(evicts));
        let settings = CacheSettings {
            policy: policy.unwrap_or_else(|| default.policy.clone()),
            cache_size: self.take("cache_size")?.or(size),
            schedule: self.take("schedule")?.or(schedule),
            positions: self.take("positions")?.unwrap_or(default.positions),
            local_layers: self.take("local_layers")?.unwrap_or(default.local_layers),
            seed: self.take("seed")?.unwrap_or(default.seed),
        };
        Ok(settings)
    }

    /// The cache of a text that `write` continues, and how it is written.
    pub(super) fn writing(
        &mut self,
        cache: &CacheSettings,
        default: &WriteSettings,
    ) -> Result<(CacheSettings, WriteSettings)> {
        let cache = self.cache(cache)?;
        let mut write = Request(self.take("write")?.unwrap_or_default());
        ensure!(
            !write.0.contains_key("prefill"),
            "`prefill` is no longer a setting: in place of `one_shot` write \"schedule\": \"cut+1\" beside \"write\""
        );
        let settings = WriteSettings {
            max_new_tokens: write.take("max_new_tokens")?.unwrap_or(default.max_new_tokens),
            temperature: write.take("temperature")?.unwrap_or(default.temperature),
            top_k: write.take("top_k")?.or(default.top_k),
            top_p: write.take("top_p")?.or(default.top_p),
            repetition_penalty: write.take("repetition_penalty")?.unwrap_or(default.repetition_penalty),
            stop: write.take("stop")?.unwrap_or_else(|| default.stop.clone()),
            ..default.clone()
        };
        write.end()?;
        Ok((cache, settings))
    }

    /// The tokens that are read, in the model's chat template if asked for. They are taken last: other keys are refused.
    pub(super) fn tokens(&mut self, model: &TextModel, chat: bool) -> Result<Vec<u32>> {
        let (text, tokens): (Option<String>, Option<Vec<u32>>) = (self.take("text")?, self.take("tokens")?);
        self.end()?;
        let source = match (text, tokens) {
            (Some(text), None) => Source::Text(text),
            (None, Some(tokens)) => Source::Tokens(tokens),
            _ => bail!("a request has either `text` or `tokens`"),
        };
        source.tokens(model, chat)
    }
}

fn read(line: &[u8]) -> Result<Value> {
    ensure!(!line.trim_ascii().is_empty(), "it is blank");
    Ok(serde_json::from_str(str::from_utf8(line)?)?)
}

/// Answers every line of stdin with a line on stdout. A request that fails is answered with an `error`; the others go on, and
/// the exit code is then 1.
pub(super) fn run(answer: impl Fn(&mut Request) -> Result<Value>) -> Result<u8> {
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
        let mut answer = request.and_then(|mut request| answer(&mut request)).unwrap_or_else(|error| {
            failed = true;
            json!({"error": format!("{error:#}")})
        });
        if !id.is_null() {
            answer["id"] = id;
        }
        if !print_on(&format!("{answer}\n"))? {
            break;
        }
    }
    Ok(u8::from(failed))
}
