//! A hub on the loopback interface, with the responses of huggingface.co that downloads need, over real HTTP.
//!
//! Like the hub, it redirects large files to another address and gives their SHA-256 as etag, redirects small ones
//! to a relative address, and serves ranges. Files can be given faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::support::http::{HttpServer, response};

/// A fault of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Status(u16),
    /// Announces the full length, sends this many bytes of each response, and closes the connection.
    CutOff(usize),
    /// The same without announcing the length.
    CutOffSilently(usize),
    /// One byte is changed.
    Garbled,
    /// An etag that is a path outside the cache.
    Traversal,
    /// A redirect without a location.
    NoLocation,
    /// A megabyte more than was announced.
    Overlong,
    /// Knows no ranges, and redirects nowhere: sends all of the file.
    NoRanges,
}

/// The server's files and faults, which tests change while it runs.
#[derive(Default)]
pub struct Contents {
    pub commit: String,
    /// File name to its bytes.
    pub files: BTreeMap<String, Vec<u8>>,
    pub faults: BTreeMap<String, Fault>,
    /// Whether its licence must be accepted.
    pub is_gated: bool,
    /// The status of the repository's description; 200 if `None`.
    pub info_status: Option<u16>,
    /// Where large files are; the server itself if `None`.
    pub cdn: Option<String>,
    /// Every request: its path and its authorization header.
    pub requests: Vec<(String, Option<String>)>,
}

pub struct HubServer {
    pub endpoint: String,
    pub contents: Arc<Mutex<Contents>>,
    _server: HttpServer,
}

impl HubServer {
    pub fn start(commit: &str, files: &[(&str, &[u8])]) -> Self {
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
        let contents = Arc::new(Mutex::new(Contents { commit: commit.to_owned(), files, ..Contents::default() }));
        let shared = contents.clone();
        let server = HttpServer::start(move |request, url| {
            let path = request.line.split(' ').nth(1).unwrap_or_default();
            let mut contents = shared.lock().unwrap();
            contents.requests.push((path.to_owned(), request.header("authorization").map(str::to_owned)));
            answer(&contents, path, request.header("range").map_or(0, range), url)
        });
        HubServer { endpoint: server.url.clone(), contents, _server: server }
    }

    pub fn fault(&self, name: &str, fault: Fault) {
        self.contents.lock().unwrap().faults.insert(name.to_owned(), fault);
    }

    /// The number of requests with this in their path.
    pub fn count(&self, part: &str) -> usize {
        self.contents.lock().unwrap().requests.iter().filter(|(path, _)| path.contains(part)).count()
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The etag: SHA-256 for what the hub stores as a large file, git's name of the content for the rest.
pub fn etag(name: &str, bytes: &[u8]) -> String {
    if is_large(name) {
        return sha256(bytes);
    }
    let hash = Sha1::new_with_prefix(format!("blob {}\0", bytes.len())).chain_update(bytes).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_large(name: &str) -> bool {
    name.ends_with(".safetensors") || name.ends_with(".parquet")
}

/// The start of a range `bytes=N-`; `usize::MAX` stands for `bytes=0-0`.
fn range(value: &str) -> usize {
    let range = value.trim().trim_start_matches("bytes=");
    if range == "0-0" { usize::MAX } else { range.trim_end_matches('-').parse().unwrap() }
}

fn answer(contents: &Contents, path: &str, from: usize, endpoint: &str) -> Vec<u8> {
    if path.starts_with("/api/models/") || path.starts_with("/api/datasets/") {
        let status = contents.info_status.unwrap_or(200);
        let known =
            path.starts_with("/api/models/o/n/revision/") || path.starts_with("/api/datasets/o/n/revision/");
        let revision = path.rsplit('/').next().unwrap();
        if status != 200 || !known || !["main", "v1", "refs%2Fpr%2F3", &contents.commit].contains(&revision) {
            return response(if status == 200 { 404 } else { status }, &[], b"{\"error\":\"no\"}");
        }
        let siblings: Vec<_> =
            contents.files.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
        let gated = contents.is_gated.then_some("manual").map_or(false.into(), serde_json::Value::from);
        let info =
            serde_json::json!({ "sha": contents.commit, "siblings": siblings, "private": false, "gated": gated });
        return response(200, &[], info.to_string().as_bytes());
    }
    // /o/n/resolve/<commit>/<file> redirects; /cdn/<file> and /resolve-cache/<file> hold the bytes.
    let plain = path.trim_start_matches("/datasets");
    let resolve = format!("/o/n/resolve/{}/", contents.commit);
    let (name, redirect) = match (plain.strip_prefix(&resolve), plain.split_once("/bytes/")) {
        (Some(name), _) => (name, true),
        (None, Some((_, name))) => (name, false),
        (None, None) => return response(404, &[], b""),
    };
    let Some(bytes) = contents.files.get(name) else { return response(404, &[], b"") };
    let fault = contents.faults.get(name).copied();
    let commit = ("x-repo-commit", contents.commit.clone());
    let tag = if fault == Some(Fault::Traversal) { "../../../../evil".to_owned() } else { etag(name, bytes) };
    match fault {
        Some(Fault::Status(status)) => return response(status, &[commit], b""),
        Some(Fault::NoRanges) => return response(200, &[commit, ("etag", format!("\"{tag}\""))], bytes),
        Some(Fault::NoLocation) => return response(302, &[commit, ("etag", tag)], b""),
        _ => {}
    }
    if redirect && is_large(name) {
        let to = ("location", format!("{}/cdn/bytes/{name}", contents.cdn.as_deref().unwrap_or(endpoint)));
        let linked = ("x-linked-etag", format!("\"{tag}\""));
        return response(302, &[commit, to, linked, ("x-linked-size", bytes.len().to_string())], b"");
    }
    if redirect {
        return response(307, &[("location", format!("/resolve-cache/bytes/{name}"))], b"");
    }
    send(bytes, from, fault, vec![commit, ("etag", format!("\"{tag}\""))])
}

fn send(bytes: &[u8], from: usize, fault: Option<Fault>, mut headers: Vec<(&'static str, String)>) -> Vec<u8> {
    let probe = from == usize::MAX;
    let (start, end) = if probe { (0, 1) } else { (from, bytes.len()) };
    if start >= bytes.len() {
        return response(416, &headers, b"");
    }
    headers.push(("content-range", format!("bytes {start}-{}/{}", end - 1, bytes.len())));
    let mut part = bytes[start..end].to_vec();
    let whole = response(206, &headers, &part);
    let head = whole.len() - part.len();
    match fault {
        Some(Fault::CutOff(kept)) if !probe && kept < part.len() => whole[..head + kept].to_vec(),
        Some(Fault::CutOffSilently(kept)) if !probe && kept < part.len() => {
            let head = String::from_utf8_lossy(&whole[..head]).into_owned();
            let head: Vec<&str> = head.split("\r\n").filter(|line| !line.starts_with("content-length")).collect();
            [head.join("\r\n").as_bytes(), &part[..kept]].concat()
        }
        Some(Fault::Overlong) if !probe => response(206, &headers, &[&part[..], &[0; 1 << 20]].concat()),
        Some(Fault::Garbled) => {
            part[0] ^= 1;
            response(206, &headers, &part)
        }
        _ => whole,
    }
}
