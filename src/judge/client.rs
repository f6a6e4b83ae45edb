//! Questions to the judge, in the form of OpenAI's chat completions, with retries.
//!
//! Knows the protocol and which failures are transient. Whatever a server sends is cut to a limit and stripped of control
//! characters and of the key before it is shown or stored.
//!
//! Waits double from half a second; each is shortened at random by up to half, so that threads that failed together do not
//! come back together. A server's `Retry-After` is honoured, with a random addition for the same reason.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Agent;

use super::Settings;
use super::answer::Answer;

/// Bytes read of a response; a usual one has a few hundred.
const LONGEST_BODY: u64 = 1 << 20;
/// Tokens the judge may write: a single phrase; and one that thinks first.
const PHRASE: u32 = 32;
pub(super) const THOUGHTS: u32 = 4096;
/// Characters kept of an answer, and of a server's error message.
const LONGEST_ANSWER: usize = 2000;
const LONGEST_MESSAGE: usize = 300;
/// The wait after the first failure, before it is shortened at random.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait, unless the server asks for a longer one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// However long a server asks to wait, nobody waits longer.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// Worth a retry, after a wait if the server asks for one.
    #[error("{cause}")]
    Transient { cause: String, after: Option<Duration> },
    /// One question cannot be answered; others can.
    #[error("{0}")]
    Pair(String),
    /// No question will be answered until somebody fixes something.
    #[error("{0}")]
    Fatal(String),
    /// The run is ending.
    #[error("interrupted")]
    Interrupted,
}

pub(super) struct Client<'a> {
    agent: Agent,
    settings: &'a Settings,
    form: Mutex<Form>,
}

/// The form of a request, in which servers differ: how it says the most tokens, how many, and whether the temperature may be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    limit_name: &'static str,
    limit: u32,
    is_greedy: bool,
}

impl Form {
    const USUAL: Form = Form { limit_name: "max_tokens", limit: PHRASE, is_greedy: true };
    /// The other name of the limit, which counts thoughts too.
    const NEWER: &'static str = "max_completion_tokens";

    /// The form that a refusal asks for, if it is another, and what that means.
    fn after(self, status: u16, message: &str) -> Option<(Form, &'static str)> {
        match status {
            400 | 422 if message.contains(Form::NEWER) && self.limit_name != Form::NEWER => Some((
                Form { limit_name: Form::NEWER, limit: THOUGHTS, ..self },
                "the judge wants `max_completion_tokens`",
            )),
            400 | 422 if message.contains("temperature") && self.is_greedy => {
                let meaning = "the judge does not take a temperature of 0: it samples, so it may answer otherwise when asked again";
                Some((Form { is_greedy: false, ..self }, meaning))
            }
            _ => None,
        }
    }
}

impl<'a> Client<'a> {
    pub(super) fn new(settings: &'a Settings) -> Client<'a> {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // A redirect would carry the key elsewhere or lose it; the error tells the user instead.
            .max_redirects(0)
            .timeout_global(Some(settings.timeout))
            .user_agent(concat!("tova-bench/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Client { agent, settings, form: Mutex::new(Form::USUAL) }
    }

    fn form(&self) -> MutexGuard<'_, Form> {
        self.form.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives later answers room for thoughts.
    pub(super) fn allow_thoughts(&self) {
        self.form().limit = THOUGHTS;
    }

    /// Asks until there is an answer; transient failures are retried as often as the settings say.
    ///
    /// When `is_ending` becomes true, a wait ends, and nothing is asked after it. `tell` is called before every wait.
    pub(super) fn ask(
        &self,
        question: &str,
        is_ending: &dyn Fn() -> bool,
        tell: &dyn Fn(String),
    ) -> Result<Answer, CallError> {
        let retries = self.settings.retries;
        for failures in 0.. {
            let (cause, after) = match self.request(question, tell) {
                Err(CallError::Transient { cause, after }) => (cause, after),
                end => return end,
            };
            if failures == retries {
                let times = if retries == 0 { String::new() } else { format!(" (asked {} times)", retries + 1) };
                return Err(CallError::Transient { cause: cause + &times, after });
            }
            let wait = wait(failures, after, fastrand::f64());
            tell(format!("{cause}; asking again in {:.1} s", wait.as_secs_f64()));
            let until = Instant::now() + wait;
            while Instant::now() < until && !is_ending() {
                std::thread::sleep(Duration::from_millis(20));
            }
            if is_ending() {
                break;
            }
        }
        Err(CallError::Interrupted)
    }

    fn host(&self) -> &str {
        self.settings.endpoint.host()
    }

    /// Asks once, in the form that the server wants.
    fn request(&self, question: &str, tell: &dyn Fn(String)) -> Result<Answer, CallError> {
        loop {
            let form = *self.form();
            let response = self.post(question, form)?;
            if response.status == 200 {
                return self.answer(&response, form.limit);
            }
            let Some((other, meaning)) = form.after(response.status, &self.message_of(&response)) else {
                return Err(self.error_of(&response));
            };
            // Calls at the same time are refused alike.
            if std::mem::replace(&mut *self.form(), other) != other {
                tell(format!("note: {meaning}"));
            }
        }
    }

    /// Sends a question.
    fn post(&self, question: &str, form: Form) -> Result<Response, CallError> {
        let mut body = json!({
            "model": self.settings.model,
            "messages": [{"role": "user", "content": question}],
            form.limit_name: form.limit,
        });
        if form.is_greedy {
            body["temperature"] = 0.into();
        }
        let mut request = self
            .agent
            .post(self.settings.endpoint.completions())
            .header("content-type", "application/json")
            .header("accept", "application/json");
        if let Some(key) = &self.settings.key {
            request = request.header("authorization", key.header());
        }
        // Nobody listens, the connection broke, or the time is over.
        let unreachable = |error: ureq::Error| self.failure("cannot be reached", &error.to_string());
        let mut response = request.send(body.to_string().as_bytes()).map_err(unreachable)?;
        let status = response.status().as_u16();
        let after =
            response.headers().get("retry-after").and_then(|value| value.to_str().ok()).and_then(retry_after);
        let body = response.body_mut().with_config().limit(LONGEST_BODY).read_to_vec();
        // The message of an incomplete body is still useful.
        let body = if status == 200 { body.map_err(unreachable)? } else { body.unwrap_or_default() };
        Ok(Response::new(status, &body, after))
    }

    fn answer(&self, response: &Response, limit: u32) -> Result<Answer, CallError> {
        let what = if response.json.is_null() { "sent no JSON" } else { "sent no message" };
        let answer = Answer::of(&response.json, limit).ok_or_else(|| self.failure(what, &response.text))?;
        Ok(Answer { text: self.shown(&answer.text, LONGEST_ANSWER), ..answer })
    }

    /// A failure that may pass, with the text that came instead of an answer.
    fn failure(&self, what: &str, text: &str) -> CallError {
        let text = self.shown(text, LONGEST_MESSAGE);
        CallError::Transient { cause: format!("the judge at {} {what}: {text}", self.host()), after: None }
    }

    /// The error message of a response, or all that came.
    fn message_of(&self, response: &Response) -> String {
        let error = &response.json["error"];
        let message = error["message"].as_str().or(error.as_str()).or(response.json["message"].as_str());
        self.shown(message.unwrap_or(&response.text), LONGEST_MESSAGE)
    }

    /// The error of a response with another status than 200.
    fn error_of(&self, response: &Response) -> CallError {
        let (status, message) = (response.status, self.message_of(response));
        let message = if message.is_empty() { "(nothing)" } else { &message };
        let cause = format!("the judge at {} answered with status {status}: {message}", self.host());
        let code = response.json["error"]["code"].as_str().unwrap_or_default();
        let is_too_long = code == "context_length_exceeded" || response.text.contains("maximum context length");
        match status {
            // An account without credit has the status of a rate limit.
            408 | 409 | 425 | 429 | 500.. if code != "insufficient_quota" => {
                CallError::Transient { cause, after: response.after }
            }
            413 => CallError::Pair(cause),
            400 if is_too_long => CallError::Pair(cause),
            _ => CallError::Fatal(format!(
                "{cause}\nhint: check --judge-model, --base-url (redirects are not followed), and the key in the environment \
                 variable {}; the judge must take chat completions with `max_tokens` or `max_completion_tokens`",
                self.settings.key_variable
            )),
        }
    }

    /// A server's text as it may be shown and stored.
    fn shown(&self, text: &str, most: usize) -> String {
        // The key goes first: cut in two it would not be recognized.
        let text = self.settings.key.as_ref().map_or_else(|| text.to_string(), |key| key.redact(text));
        let text = text.trim();
        // Error messages are one line, so that a server cannot add a `hint:`.
        let is_kept = |c: char| !c.is_control() || (c == '\n' && most != LONGEST_MESSAGE);
        let shown: String = text.chars().take(most).map(|c| if is_kept(c) { c } else { ' ' }).collect();
        if text.chars().count() > most { shown + " ..." } else { shown }
    }
}

/// The response of a server.
struct Response {
    status: u16,
    /// The body, null if it is not JSON.
    json: Value,
    /// The body as text. JSON is written anew, since its escapes can spell the key in ways that would not be recognized.
    text: String,
    /// The wait that the server asks for.
    after: Option<Duration>,
}

impl Response {
    fn new(status: u16, body: &[u8], after: Option<Duration>) -> Response {
        let json = serde_json::from_slice(body);
        let text = json
            .as_ref()
            .map_or_else(|_| String::from_utf8_lossy(body).into_owned(), |json: &Value| json.to_string());
        Response { status, json: json.unwrap_or_default(), text, after }
    }
}

/// The wait after a failure that `failures` came before. `random` is from 0 to 1.
fn wait(failures: u32, after: Option<Duration>, random: f64) -> Duration {
    let longest = (FIRST_WAIT * 2u32.pow(failures.min(16))).min(LONGEST_WAIT);
    let own = longest.mul_f64(1.0 - random / 2.0);
    after.map_or(own, |after| own.max(after + FIRST_WAIT.mul_f64(random)))
}

/// The wait that a server asks for, in seconds. Dates, the header's other form, are ignored.
fn retry_after(text: &str) -> Option<Duration> {
    let seconds: u64 = text.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::super::{Endpoint, Key};
    use super::*;

    fn settings(key: &str) -> Settings {
        Settings {
            endpoint: Endpoint::new("http://judge.example/v1").unwrap(),
            model: "m".into(),
            key: Key::new(key, "V").unwrap(),
            key_variable: "V".into(),
            concurrency: 1,
            retries: 0,
            timeout: Duration::from_secs(1),
            limit: None,
            only: Vec::new(),
        }
    }

    #[test]
    fn statuses_decide_what_is_retried() {
        let settings = settings("");
        let client = Client::new(&settings);
        let kind = |status, body: &str| match client.error_of(&Response::new(status, body.as_bytes(), None)) {
            CallError::Transient { .. } => "transient",
            CallError::Pair(_) => "pair",
            CallError::Fatal(_) => "fatal",
            CallError::Interrupted => "interrupted",
        };
        for status in [408, 425, 429, 500, 502, 503, 529] {
            assert_eq!(kind(status, ""), "transient", "{status}");
        }
        for status in [301, 400, 401, 403, 404, 405, 422] {
            assert_eq!(kind(status, "{}"), "fatal", "{status}");
        }
        assert_eq!(kind(429, r#"{"error": {"code": "insufficient_quota", "message": "pay"}}"#), "fatal");
        assert_eq!(kind(400, r#"{"error": {"code": "context_length_exceeded"}}"#), "pair");
        assert_eq!(kind(400, r#"{"message": "This model's maximum context length is 8192"}"#), "pair");
        assert_eq!(kind(413, ""), "pair");
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("18446744073709551615"), Some(LONGEST_RETRY_AFTER));
        assert_eq!((retry_after("soon"), retry_after("-1")), (None, None));
    }

    #[test]
    fn a_servers_texts_are_cleaned() {
        let settings = settings("sk-secret");
        let client = Client::new(&settings);
        let shown = |body: &str| client.error_of(&Response::new(401, body.as_bytes(), None)).to_string();
        let sent = |body: &str| Response::new(200, body.as_bytes(), None);
        let echo = r#"{"error": {"message": "bad key sk-secret\u001b[31m\nhint: run rm"}}"#;
        let expected =
            "the judge at judge.example answered with status 401: bad key [key] [31m hint: run rm\nhint: ";
        assert!(shown(echo).starts_with(expected), "{}", shown(echo));
        assert!(shown(&format!("{}sk-secret", "x".repeat(296))).contains("x[key"));
        let long = shown(&"x".repeat(100_000));
        assert!(long.len() < 600 && long.contains("x ..."), "{long}");
        let answer = client.answer(&sent("{\"choices\": [{\"message\": {\"content\": null}}]}"), 32).unwrap();
        assert_eq!(answer, Answer { limit: 32, ..Answer::default() });
        for malformed in
            ["", "[]", "{}", "{\"choices\": []}", "{\"choices\": [{\"message\": \"sk-s\\u0065cret\"}]}", "<html>"]
        {
            let error = client.answer(&sent(malformed), 32).unwrap_err();
            assert!(matches!(&error, CallError::Transient { after: None, .. }), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn waits_grow_up_to_a_limit() {
        let seconds = |failures, random| wait(failures, None, random).as_secs_f64();
        assert_eq!([0, 1, 2, 3].map(|failures| seconds(failures, 0.0)), [0.5, 1.0, 2.0, 4.0]);
        assert_eq!([0, 1, 2, 3].map(|failures| seconds(failures, 1.0)), [0.25, 0.5, 1.0, 2.0]);
        assert_eq!([7, 40, u32::MAX].map(|failures| seconds(failures, 0.0)), [60.0, 60.0, 60.0]);
    }

    #[test]
    fn retry_after_is_honoured() {
        let after = |seconds| Some(Duration::from_secs(seconds));
        for random in [0.0, 0.5, 1.0] {
            let wait = wait(0, after(3), random).as_secs_f64();
            assert!((3.0..=3.5).contains(&wait), "{wait}");
        }
        assert_eq!(wait(3, after(0), 0.0), Duration::from_secs(4), "the own wait is the longer one");
    }
}
