//! A judge server on the loopback interface: chat completions over real HTTP, with the answers and faults a test wants.
//!
//! Each connection has its own thread and one request. The server stops when dropped, or after two minutes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

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

type Judge = dyn Fn(&Request) -> Reply + Send + Sync;

pub struct JudgeServer {
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl JudgeServer {
    pub fn start(judge: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> JudgeServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (requests, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let judge: Arc<Judge> = Arc::new(judge);
        let thread = std::thread::spawn({
            let (requests, stop) = (requests.clone(), stop.clone());
            move || {
                let end = Instant::now() + Duration::from_secs(120);
                while !stop.load(Ordering::Relaxed) && Instant::now() < end {
                    let Ok((stream, _)) = listener.accept() else {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    let (requests, judge) = (requests.clone(), judge.clone());
                    // A client that hangs up early is part of the tests.
                    std::thread::spawn(move || drop(serve(&stream, &requests, &*judge)));
                }
            }
        });
        JudgeServer { url, requests, stop, thread: Some(thread) }
    }

    /// Every request so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for JudgeServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(mut stream: &TcpStream, requests: &Mutex<Vec<Request>>, judge: &Judge) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let request = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let (mut authorization, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((key, value)) = line.split_once(':') else { break };
        match key.to_ascii_lowercase().as_str() {
            "authorization" => authorization = Some(value.trim().to_owned()),
            "content-length" => length = value.trim().parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body).unwrap();
    let question = body["messages"][0]["content"].as_str().unwrap().to_owned();
    let between = |from: &str| question.split_once(from).unwrap().1.split_once("\n\n---").unwrap().0.to_owned();
    let (first, second) = (between("Response (A): "), between("Response (B): "));
    let reminded = question.ends_with("nothing but (A), (B) or (C).");
    let this = {
        let mut requests = requests.lock().unwrap();
        let before = requests.iter().filter(|other| other.first == first && other.second == second).count();
        let this =
            Request { line: request, authorization, body, first, second, reminded, at: Instant::now(), before };
        requests.push(this.clone());
        this
    };
    match judge(&this) {
        Reply::Says(text) => stream.write_all(&completion(&text)),
        Reply::Raw(status, headers, body) => stream.write_all(&response(status, &headers, &body)),
        Reply::CutOff(text) => {
            let whole = completion(&text);
            stream.write_all(&whole[..whole.len() - 20])
        }
        Reply::Late(wait, text) => {
            std::thread::sleep(wait);
            stream.write_all(&completion(&text))
        }
    }
}

fn completion(text: &str) -> Vec<u8> {
    let body = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "judge-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 3, "total_tokens": 103},
    });
    response(200, &[], &body.to_string())
}

fn response(status: u16, headers: &[(&str, String)], body: &str) -> Vec<u8> {
    let mut head = format!(
        "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    [head.as_bytes(), b"\r\n", body.as_bytes()].concat()
}
