//! A judge server on the loopback interface: chat completions over real HTTP, with the answers and faults a test wants.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::{HttpRequest, HttpServer, response};

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method and path.
    pub line: String,
    pub authorization: Option<String>,
    pub body: Value,
    /// The two stories in the order shown, and whether the question has the reminder of the form of answers.
    pub first: String,
    pub second: String,
    pub reminded: bool,
    pub at: Instant,
    /// How often these two stories had been shown in this order before.
    pub before: usize,
}

/// What the server does with a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A completion that says this, at 100 prompt tokens and 3 completion tokens.
    Says(String),
    /// Status, headers and body as given.
    Raw(u16, Vec<(&'static str, String)>, String),
    /// Half of a completion that says this, and a closed connection.
    CutOff(String),
    /// A completion after this long.
    Late(Duration, String),
}

pub struct JudgeServer {
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
    _server: HttpServer,
}

impl JudgeServer {
    pub fn start(judge: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> JudgeServer {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let server = HttpServer::start(move |request, _| {
            // A client that was killed may have sent no more than the beginning.
            let Some(request) = parse(request, &mut seen.lock().unwrap()) else { return Vec::new() };
            match judge(&request) {
                Reply::Says(text) => completion(&text),
                Reply::Raw(status, headers, body) => response(status, &headers, body.as_bytes()),
                Reply::CutOff(text) => {
                    let whole = completion(&text);
                    whole[..whole.len() - 20].to_vec()
                }
                Reply::Late(wait, text) => {
                    std::thread::sleep(wait);
                    completion(&text)
                }
            }
        });
        JudgeServer { url: format!("{}/v1", server.url), requests, _server: server }
    }

    /// Every request so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// Reads a request and adds it to those before; `None` if it is not whole.
fn parse(request: &HttpRequest, seen: &mut Vec<Request>) -> Option<Request> {
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    let question = body["messages"][0]["content"].as_str().unwrap();
    let between = |from: &str| question.split_once(from).unwrap().1.split_once("\n\n---").unwrap().0.to_owned();
    let (first, second) = (between("Response (A): "), between("Response (B): "));
    let request = Request {
        line: request.line.clone(),
        authorization: request.header("authorization").map(str::to_owned),
        reminded: question.ends_with("nothing but (A), (B) or (C)."),
        at: Instant::now(),
        before: seen.iter().filter(|other| other.first == first && other.second == second).count(),
        body,
        first,
        second,
    };
    seen.push(request.clone());
    Some(request)
}

fn completion(text: &str) -> Vec<u8> {
    let body = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "judge-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 3, "total_tokens": 103},
    });
    response(200, &[], body.to_string().as_bytes())
}
