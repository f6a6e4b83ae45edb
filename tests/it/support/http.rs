//! An HTTP server on the loopback interface: each connection has a thread of its own and one request.
//!
//! It stops when it is dropped, or after two minutes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct HttpRequest {
    /// Method and path.
    pub line: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn read(stream: &TcpStream) -> std::io::Result<HttpRequest> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
        let mut request = HttpRequest { line, headers: Vec::new(), body: Vec::new() };
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
        request.body = vec![0; length];
        reader.read_exact(&mut request.body)?;
        Ok(request)
    }
}

pub struct HttpServer {
    /// `http://127.0.0.1:PORT`
    pub url: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Serves the bytes that `answer` gives, which also gets the server's own URL.
    pub fn start(answer: impl Fn(&HttpRequest, &str) -> Vec<u8> + Send + Sync + 'static) -> HttpServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let shared = Arc::new((answer, url.clone()));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let end = Instant::now() + Duration::from_secs(120);
            while !stopped.load(Ordering::Relaxed) && Instant::now() < end {
                let Ok((mut stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let shared = shared.clone();
                std::thread::spawn(move || {
                    let (answer, url) = &*shared;
                    // Clients may hang up early.
                    if let Ok(request) = HttpRequest::read(&stream) {
                        let _ = stream.write_all(&answer(&request, url));
                    }
                });
            }
        });
        HttpServer { url, stop, thread: Some(thread) }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// The bytes of a response.
pub fn response(status: u16, headers: &[(&str, String)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}
