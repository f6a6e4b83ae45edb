//! One call to the judge: a question over HTTP, as OpenAI's chat completions take it, and the answer or why there
//! is none.
//!
//! Knows the protocol and which failures pass by themselves; when to ask again is not known here. Whatever a
//! server says is cut to size, stripped of control characters and of the key before anyone sees it.

use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

use super::endpoint::Endpoint;
use super::key::Key;

/// The most that is read of an answer; an answer has a few hundred bytes.
const LONGEST_BODY: u64 = 1 << 20;
/// Tokens the judge may write: a single phrase.
const MOST_TOKENS: u32 = 32;
/// Characters that are kept of an answer, and of a server's complaint.
const LONGEST_ANSWER: usize = 2000;
const LONGEST_COMPLAINT: usize = 300;

/// What the judge said, and what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    /// As the server counts them; 0 where it does not say.
    pub(super) prompt_tokens: u32,
    pub(super) new_tokens: u32,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// It may work another time; not before so long, if the server says so.
    #[error("{cause}")]
    Passing { cause: String, after: Option<Duration> },
    /// This question cannot be answered, others can.
    #[error("{0}")]
    Question(String),
    /// No question will be answered before somebody mends something.
    #[error("{0}")]
    Final(String),
    /// The run ends.
    #[error("interrupted")]
    Interrupted,
}

/// A judge that can be asked.
pub(super) struct Client {
    agent: Agent,
    endpoint: Endpoint,
    model: String,
    key: Option<Key>,
    key_variable: String,
}

impl Client {
    pub(super) fn new(
        endpoint: Endpoint,
        model: String,
        key: Option<Key>,
        key_variable: String,
        timeout: Duration,
    ) -> Client {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // The key would be left behind or carried elsewhere; whoever moved says so in the error.
            .max_redirects(0)
            .timeout_global(Some(timeout))
            .user_agent(concat!("tova-bench/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Client { agent, endpoint, model, key, key_variable }
    }

    pub(super) fn host(&self) -> &str {
        self.endpoint.host()
    }

    /// Asks once.
    pub(super) fn ask(&self, question: &str) -> Result<Answer, CallError> {
        let body = json!({
            "model": self.model,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": MOST_TOKENS,
        });
        let mut request = self
            .agent
            .post(self.endpoint.completions())
            .header("content-type", "application/json")
            .header("accept", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", key.header());
        }
        let mut response = request.send(body.to_string().as_bytes()).map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_string);
        let after = header("retry-after").as_deref().and_then(retry_after);
        let read = response.body_mut().with_config().limit(LONGEST_BODY).read_to_vec();
        if status != 200 {
            // A complaint that breaks off is still a complaint.
            return Err(self.complaint(status, &read.unwrap_or_default(), after));
        }
        let bytes = read.map_err(|error| self.unreachable(&error))?;
        self.answer(&bytes)
    }

    fn answer(&self, bytes: &[u8]) -> Result<Answer, CallError> {
        let strange = |what: &str| {
            let said = self.shown(&spelt_out(bytes), LONGEST_COMPLAINT);
            let cause = format!("the judge at {} sent {what}: {said}", self.host());
            CallError::Passing { cause, after: None }
        };
        let answer: Value = serde_json::from_slice(bytes).map_err(|_| strange("no JSON"))?;
        let message = &answer["choices"][0]["message"];
        if !message.is_object() {
            return Err(strange("no message"));
        }
        let tokens = |name: &str| answer["usage"][name].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        Ok(Answer {
            // A judge that declines has no content, which is an answer that cannot be read.
            text: self.shown(message["content"].as_str().unwrap_or_default(), LONGEST_ANSWER),
            prompt_tokens: tokens("prompt_tokens"),
            new_tokens: tokens("completion_tokens"),
        })
    }

    /// No answer at all: nobody there, a connection that broke, a time that ran out.
    fn unreachable(&self, error: &ureq::Error) -> CallError {
        let said = self.shown(&error.to_string(), LONGEST_COMPLAINT);
        let cause = format!("the judge at {} cannot be reached: {said}", self.host());
        CallError::Passing { cause, after: None }
    }

    /// An answer that is not the one asked for.
    fn complaint(&self, status: u16, bytes: &[u8], after: Option<Duration>) -> CallError {
        let text = spelt_out(bytes);
        let parsed: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let error = &parsed["error"];
        let message = error["message"].as_str().or(error.as_str()).or(parsed["message"].as_str());
        let said = self.shown(message.unwrap_or(&text), LONGEST_COMPLAINT);
        let said = if said.is_empty() { "(nothing)" } else { said.as_str() };
        let said = format!("the judge at {} answered with status {status}: {said}", self.host());
        let code = error["code"].as_str().unwrap_or_default();
        let hint = match status {
            // It looks like a limit of the moment, and is an empty account.
            429 if code == "insufficient_quota" => {
                "the account behind the key has nothing left to spend".to_string()
            }
            408 | 409 | 425 | 429 | 500.. => return CallError::Passing { cause: said, after },
            413 => return CallError::Question(said),
            400 if code == "context_length_exceeded" || text.contains("maximum context length") => {
                return CallError::Question(said);
            }
            401 | 403 => self.key_hint(),
            404 => format!(
                "is `{}` a model there, and does --base-url end where `/chat/completions` is to follow?",
                self.model
            ),
            300..=399 => "redirects are not followed: give --base-url the address that answers".to_string(),
            _ => "the judge must take chat completions with `temperature` 0 and `max_tokens`".to_string(),
        };
        CallError::Final(format!("{said}\nhint: {hint}"))
    }

    fn key_hint(&self) -> String {
        let variable = &self.key_variable;
        match self.key {
            Some(_) => format!("the key in the environment variable {variable} is not accepted there"),
            None => format!("put a key into the environment variable {variable}, or name another with --key-env"),
        }
    }

    /// A server's words as they may be shown and kept.
    fn shown(&self, text: &str, most: usize) -> String {
        // The key first: what is cut in the middle would not be recognised.
        let text = self.key.as_ref().map_or_else(|| text.to_string(), |key| key.redact(text));
        let text = text.trim();
        let mut shown: String =
            text.chars().take(most).map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
        if most == LONGEST_COMPLAINT {
            // An error is one line, and its hint is ours.
            shown = shown.replace('\n', " ");
        }
        if text.chars().count() > most { shown + " ..." } else { shown }
    }
}

/// A body as text. JSON is written anew: its escapes can spell a key in ways that would not be recognised.
fn spelt_out(bytes: &[u8]) -> String {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => value.to_string(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// How long a server wants to be left alone: seconds, or a date.
fn retry_after(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = chrono::DateTime::parse_from_rfc2822(text.trim()).ok()?;
    // `Utc::now` refuses clocks before 1970.
    let now = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now());
    let wait = date.signed_duration_since(now);
    Some(wait.to_std().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(key: &str) -> Client {
        let endpoint = Endpoint::new("http://judge.example/v1").unwrap();
        let key = Key::new(key, "V").unwrap();
        Client::new(endpoint, "m".into(), key, "V".into(), Duration::from_secs(1))
    }

    #[test]
    fn complaints_are_told_apart() {
        let kind = |status, body: &str| match client("").complaint(status, body.as_bytes(), None) {
            CallError::Passing { .. } => "passing",
            CallError::Question(_) => "question",
            CallError::Final(_) => "final",
            CallError::Interrupted => "interrupted",
        };
        for status in [408, 425, 429, 500, 502, 503, 529] {
            assert_eq!(kind(status, ""), "passing", "{status}");
        }
        for status in [301, 400, 401, 403, 404, 405, 422] {
            assert_eq!(kind(status, "{}"), "final", "{status}");
        }
        assert_eq!(kind(429, r#"{"error": {"code": "insufficient_quota", "message": "pay"}}"#), "final");
        assert_eq!(kind(400, r#"{"error": {"code": "context_length_exceeded"}}"#), "question");
        assert_eq!(kind(400, r#"{"message": "This model's maximum context length is 8192"}"#), "question");
        assert_eq!(kind(413, ""), "question");
    }

    #[test]
    fn a_server_may_say_what_it_wants() {
        let client = client("sk-secret");
        let told = |body: &str| client.complaint(401, body.as_bytes(), None).to_string();
        let echo = r#"{"error": {"message": "bad key sk-secret\u001b[31m\nhint: run rm"}}"#;
        assert_eq!(
            told(echo),
            "the judge at judge.example answered with status 401: bad key [key] [31m hint: run rm\n\
             hint: the key in the environment variable V is not accepted there"
        );
        assert!(told(&format!("{}sk-secret", "x".repeat(296))).contains("x[key"));
        let long = told(&"x".repeat(100_000));
        assert!(long.len() < 500 && long.contains("x ..."), "{long}");
        let answer = client.answer(b"{\"choices\": [{\"message\": {\"content\": null}}]}").unwrap();
        assert_eq!(answer, Answer { text: String::new(), prompt_tokens: 0, new_tokens: 0 });
        for strange in
            ["", "[]", "{}", "{\"choices\": []}", "{\"choices\": [{\"message\": \"sk-s\\u0065cret\"}]}", "<html>"]
        {
            let error = client.answer(strange.as_bytes()).unwrap_err();
            assert!(matches!(&error, CallError::Passing { after: None, .. }), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn waiting_is_told_in_seconds_or_by_a_date() {
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Wed, 18 Feb 2015 23:16:09 GMT"), Some(Duration::ZERO));
        let soon = (chrono::Utc::now() + Duration::from_secs(60)).to_rfc2822();
        assert!(retry_after(&soon).is_some_and(|wait| wait > Duration::from_secs(50)));
        assert_eq!(retry_after("soon"), None);
        assert_eq!(retry_after("-1"), None);
    }
}
