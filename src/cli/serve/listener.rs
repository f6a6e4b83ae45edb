//! A small HTTP server for browsers on this machine: one answer for each connection, in bounded memory.
//!
//! It knows sockets and the form of HTTP, not what is served. No body of a request is needed, so none is kept. Each connection
//! has a thread that nothing waits for: a client that is slow, silent or hostile can only keep its own connection, and loses
//! it when too many others come.

use std::collections::VecDeque;
use std::io::{self, Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Request};

use super::http::PLAIN;
use super::lock;

/// Connections at a time; a new one closes the oldest. A browser opens 6.
const MOST_CONNECTIONS: usize = 64;

/// Bytes and headers of a request. Browsers send the cookies of every program that has served localhost.
const LONGEST_REQUEST: usize = 64 << 10;
const MOST_HEADERS: usize = 100;

/// How long a request may take to arrive, and each part of an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is read after the answer, and for how long. A connection that is closed with bytes unread is reset, and the client
/// may lose the answer.
const MOST_UNREAD: u64 = 1 << 20;
const LINGER: Duration = Duration::from_secs(1);

const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// An answer to a request.
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) media: &'static str,
    pub(super) length: u64,
    pub(super) body: Box<dyn Read>,
}

/// Answers requests for ever.
pub(super) fn serve(listener: &TcpListener, answer: impl Fn(&Request<'_, '_>) -> Answer + Send + Sync + 'static) {
    let answer = Arc::new(answer);
    let open: Arc<Mutex<VecDeque<Arc<TcpStream>>>> = Arc::default();
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // As where too many files are open.
            thread::sleep(BETWEEN_TRIES);
            continue;
        };
        let stream = Arc::new(stream);
        let close = {
            let (open, stream) = (Arc::clone(&open), Arc::clone(&stream));
            move || lock(&open).retain(|other| !Arc::ptr_eq(other, &stream))
        };
        let mut all = lock(&open);
        if all.len() == MOST_CONNECTIONS
            && let Some(oldest) = all.pop_front()
        {
            // Wakes its thread. An error means that the client was faster.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        all.push_back(Arc::clone(&stream));
        drop(all);
        let (answer, close_own) = (Arc::clone(&answer), close.clone());
        let thread = thread::Builder::new().spawn(move || {
            // The client may have left.
            let _ = converse(&stream, &*answer);
            close_own();
        });
        if thread.is_err() {
            close();
        }
    }
}

/// Reads a request and answers it.
fn converse(stream: &TcpStream, answer: &dyn Fn(&Request<'_, '_>) -> Answer) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut incoming = Until { stream, end: Instant::now() + PATIENCE };
    let mut received = Vec::new();
    let (mut answer, is_head) = loop {
        let mut headers = [EMPTY_HEADER; MOST_HEADERS];
        let mut request = Request::new(&mut headers);
        match request.parse(&received) {
            Ok(parsed) if parsed.is_complete() => break (answer(&request), request.method == Some("HEAD")),
            Ok(_) if received.len() < LONGEST_REQUEST => {}
            Ok(_) | Err(httparse::Error::TooManyHeaders) => break (Answer::text(431, "too long\n"), false),
            Err(_) => break (Answer::text(400, "this is not HTTP\n"), false),
        }
        let mut part = [0; 4096];
        match incoming.read(&mut part)? {
            0 => return Ok(()),
            length => received.extend_from_slice(&part[..length]),
        }
    };
    let Answer { code, media, length, .. } = answer;
    let head = format!(
        "HTTP/1.1 {code} \r\nContent-Type: {media}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n"
    );
    let mut outgoing = stream;
    outgoing.write_all(head.as_bytes())?;
    if !is_head {
        io::copy(&mut answer.body, &mut outgoing)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let rest = Until { stream, end: Instant::now() + LINGER };
    io::copy(&mut rest.take(MOST_UNREAD), &mut io::sink()).map(drop)
}

/// A stream that is read until a moment, however little comes at a time.
struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

impl Answer {
    /// A short text.
    pub(super) fn text(code: u16, text: &'static str) -> Answer {
        Answer::bytes(code, PLAIN, text)
    }

    pub(super) fn bytes(code: u16, media: &'static str, bytes: impl AsRef<[u8]> + 'static) -> Answer {
        let length = bytes.as_ref().len() as u64;
        Answer { code, media, length, body: Box::new(io::Cursor::new(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that has 1 GiB at `/big` and a word elsewhere, and its address.
    fn start() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            serve(&listener, |request| match request.path {
                Some("/big") => Answer {
                    length: 1 << 30,
                    body: Box::new(io::repeat(0).take(1 << 30)),
                    ..Answer::text(200, "")
                },
                _ => Answer::text(200, "here"),
            });
        });
        address
    }

    fn send(address: std::net::SocketAddr, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        // Less than PATIENCE, which must not be what the others wait for.
        stream.set_read_timeout(Some(PATIENCE / 2)).unwrap();
        stream.write_all(request).unwrap();
        stream
    }

    /// The answer to a request of another client.
    fn ask(address: std::net::SocketAddr, request: &[u8]) -> String {
        let mut answer = String::new();
        send(address, request).read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn clients_that_do_not_end_keep_nobody_waiting() {
        let address = start();
        let other = || assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nhere"));
        let unread = send(address, b"GET /big HTTP/1.1\r\n\r\n");
        other();
        let silent: Vec<TcpStream> = (0..MOST_CONNECTIONS).map(|_| send(address, b"GET / HT")).collect();
        other();
        // What came first was closed for them: not all of the answer is there.
        let mut answer = Vec::new();
        let _ = (&unread).read_to_end(&mut answer);
        assert!(!answer.is_empty() && answer.len() < 1 << 30);
        // Closed, or reset where the server had not read what was sent.
        match (&silent[0]).read(&mut [0]) {
            Ok(read) => assert_eq!(read, 0),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
        // And the newest still gets its answer.
        let mut newest = silent.last().unwrap();
        newest.write_all(b"TP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        newest.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("here"), "{answer}");
    }

    #[test]
    fn requests_have_a_limit_and_a_form() {
        let address = start();
        let code = |request: &[u8]| ask(address, request).split(' ').nth(1).unwrap().to_owned();
        assert_eq!(code(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "200");
        let cookie = |length: usize| ["GET / HTTP/1.1\r\nCookie: ", &"x".repeat(length), "\r\n\r\n"].concat();
        assert_eq!(code(cookie(LONGEST_REQUEST / 2).as_bytes()), "200");
        assert_eq!(code(cookie(LONGEST_REQUEST).as_bytes()), "431");
        assert_eq!(
            code(format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MOST_HEADERS + 1)).as_bytes()),
            "431"
        );
        assert_eq!(code(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client's hello"), "400");
        // A body that was announced is not waited for.
        assert_eq!(code(b"POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n"), "200");
        // HEAD has the length and no body.
        let head = ask(address, b"HEAD / HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }
}
