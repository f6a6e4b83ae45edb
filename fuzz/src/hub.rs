//! Responses of a hub: whatever they are, nothing is written outside the cache.
//!
//! An input is a list of HTTP responses that are sent one after the other. `{HUB}` in them stands for this
//! machine's address.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tova_bench::lm::source::{Hub, HubSettings, ModelSource, Token};

use super::scratch::{self, parts};
use super::texts::check_message;

type Answers = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// The token, which no message may contain.
const SECRET: &str = "hf_kept_to_ourselves";

/// The server's address, and the remaining responses.
fn server() -> &'static (String, Answers) {
    static SERVER: OnceLock<(String, Answers)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback interface");
        let address = format!("http://{}", listener.local_addr().expect("the port's number"));
        let answers = Answers::default();
        let sent = answers.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = sent.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let _ = serve(stream, answer.unwrap_or_default());
            }
        });
        (address, answers)
    })
}

/// Reads a request and answers it; the end of the connection is the end of the response.
fn serve(mut stream: TcpStream, answer: Vec<u8>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => break,
            read => request.extend_from_slice(&buffer[..read]),
        }
    }
    stream.write_all(&answer)?;
    stream.shutdown(Shutdown::Both)
}

pub fn hub(input: &[u8]) {
    let (address, answers) = server();
    let root = scratch::folder("hub");
    let cache = root.join("a/b/cache");
    let _ = fs::remove_dir_all(&cache);
    fs::create_dir_all(&cache).expect("the cache");
    let mut settings = HubSettings::with_cache_dir(&cache);
    settings.endpoint.clone_from(address);
    settings.timeout = Duration::from_secs(1);
    settings.attempts = 1;
    settings.token = Token::new(SECRET).expect("a plain token");

    let model = |answers: VecDeque<Vec<u8>>, queue: &Answers| {
        *queue.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    };
    let list: VecDeque<Vec<u8>> = parts(input).into_iter().map(|answer| http_response(answer, address)).collect();
    model(list.clone(), answers);
    let source: ModelSource = "o/n".parse().expect("the name of a repository");
    match source.resolve(&settings, &()) {
        Ok(files) => {
            for path in [&files.config].into_iter().chain(&files.weights).chain(&files.tokenizer) {
                inside(path, &cache);
            }
        }
        Err(error) => refused(&format!("{error:#} {error:?}")),
    }
    model(list, answers);
    let dataset = "o/d".parse().expect("the name of a repository");
    let fetched = Hub { settings: &settings, progress: &() }.dataset_files(&dataset, |name| name.contains("test"));
    match fetched {
        Ok(files) => files.iter().for_each(|path| inside(path, &cache)),
        Err(error) => refused(&format!("{error:#} {error:?}")),
    }
    // Nothing is written beside the cache, and no link in it leads out.
    for (folder, only) in [(root.as_path(), "a"), (&root.join("a"), "b"), (&root.join("a/b"), "cache")] {
        for entry in fs::read_dir(folder).expect("a folder above the cache").flatten() {
            assert_eq!(entry.file_name(), only, "written outside the cache");
        }
    }
    walk(&cache, &cache);
}

/// Ends the lines of the head as HTTP requires.
fn http_response(answer: &[u8], address: &str) -> Vec<u8> {
    let (head, body) = match answer.windows(2).position(|window| window == b"\n\n") {
        Some(at) => (&answer[..at], &answer[at + 2..]),
        None => (answer, &b""[..]),
    };
    let head = String::from_utf8_lossy(head).replace("{HUB}", address).replace("\r\n", "\n").replace('\n', "\r\n");
    [head.as_bytes(), b"\r\n\r\n", body].concat()
}

fn refused(error: &str) {
    check_message(error);
    assert!(!error.contains(SECRET), "the token is shown");
}

fn inside(path: &Path, cache: &Path) {
    let (real, cache) =
        (path.canonicalize().expect("a file that exists"), cache.canonicalize().expect("the cache"));
    assert!(real.starts_with(cache), "{} leads outside the cache", path.display());
}

fn walk(folder: &Path, cache: &Path) {
    for entry in fs::read_dir(folder).expect("a folder of the cache").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("the kind of an entry"));
        if kind.is_dir() {
            walk(&path, cache);
        } else if path.exists() {
            inside(&path, cache);
        }
    }
}
