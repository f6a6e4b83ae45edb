//! Answers to requests for the page and the files of a report.
//!
//! Only files that the report wrote have an address, so there is no path to follow out of its folder. The `Host` of a request
//! must be a name of this machine: a page elsewhere whose name was turned to 127.0.0.1 is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use httparse::Request;

use super::listener::Answer;
use crate::report::Live;

/// Where to listen: a port of this machine.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Address(pub(super) SocketAddr);

impl FromStr for Address {
    type Err = String;

    /// `8080`, `127.0.0.1:8080` or `[::1]:8080`.
    fn from_str(text: &str) -> Result<Address, String> {
        let port = text.parse::<u16>().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address: SocketAddr = match port {
            Ok(address) => address,
            Err(_) => {
                text.parse().map_err(|_| format!("{text:?} is no port and no address such as 127.0.0.1:8080"))?
            }
        };
        if address.ip().is_loopback() {
            return Ok(Address(address));
        }
        Err(format!(
            "{} is not on this machine alone; to read the page elsewhere, use `ssh -L 8080:localhost:8080 HOST`",
            address.ip()
        ))
    }
}

/// What is served.
pub(super) struct Content {
    page: Arc<[u8]>,
    version: String,
    /// By path in an address.
    files: BTreeMap<String, PathBuf>,
}

impl Content {
    pub(super) fn empty() -> Content {
        Content::new(Live::empty(), BTreeMap::new())
    }

    /// # Errors
    /// A page that cannot be read.
    pub(super) fn of(page: &Path, files: &[PathBuf]) -> io::Result<Content> {
        let folder = page.parent().unwrap_or(Path::new(""));
        let address = |file: &PathBuf| {
            let parts = file.strip_prefix(folder).ok()?.iter().map(|part| part.to_str());
            Some((format!("/{}", parts.collect::<Option<Vec<_>>>()?.join("/")), file.clone()))
        };
        let page = Live::of(&std::fs::read_to_string(page)?);
        Ok(Content::new(page, files.iter().filter_map(address).collect()))
    }

    fn new(page: Live, files: BTreeMap<String, PathBuf>) -> Content {
        Content { page: page.html.into_bytes().into(), version: page.version, files }
    }
}

/// What a request asks for.
pub(super) enum Asked {
    Page(Arc<[u8]>),
    Version(String),
    File(PathBuf),
    /// Nothing that there is, with the code that says so.
    Refused(u16, &'static str),
}

impl Content {
    pub(super) fn asked(&self, request: &Request<'_, '_>) -> Asked {
        let mut hosts =
            request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("Host")).peekable();
        let is_own = |host: &[u8]| std::str::from_utf8(host).is_ok_and(is_own_name);
        if hosts.peek().is_none() || !hosts.all(|host| is_own(host.value)) {
            return Asked::Refused(403, "only localhost and loopback addresses are answered\n");
        }
        if !matches!(request.method, Some("GET" | "HEAD")) {
            return Asked::Refused(405, "only GET and HEAD\n");
        }
        match request.path.and_then(|path| path.split('?').next()).unwrap_or_default() {
            "/" | "/report.html" => Asked::Page(Arc::clone(&self.page)),
            "/version" => Asked::Version(self.version.clone()),
            path => {
                self.files.get(path).map_or(Asked::Refused(404, "not found\n"), |file| Asked::File(file.clone()))
            }
        }
    }
}

impl Asked {
    pub(super) fn answer(self) -> Answer {
        match self {
            Asked::Page(page) => Answer::bytes(200, HTML, page),
            Asked::Version(version) => Answer::bytes(200, PLAIN, version),
            // It may have been removed.
            Asked::File(path) => file(&path).unwrap_or_else(|_| Answer::text(404, "not found\n")),
            Asked::Refused(code, why) => Answer::text(code, why),
        }
    }
}

/// Whether a `Host` is this machine, with any port: a tunnel may have another.
fn is_own_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn file(path: &Path) -> io::Result<Answer> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok(Answer { code: 200, media: media(path), length, body: Box::new(file.take(length)) })
}

const HTML: &str = "text/html; charset=utf-8";
pub(super) const PLAIN: &str = "text/plain; charset=utf-8";

fn media(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "pdf" => "application/pdf",
        "csv" => "text/csv; charset=utf-8",
        "html" => HTML,
        _ => PLAIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for own in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.0.0.2", "[::1]:9", "[::1]"] {
            assert!(is_own_name(own), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "localhost.evil.example:80",
            "127.0.0.1.evil.example",
            "10.0.0.1:80",
            "[::2]",
            ":80",
        ] {
            assert!(!is_own_name(foreign), "{foreign}");
        }
    }

    #[test]
    fn addresses_are_on_this_machine() {
        assert_eq!("8080".parse::<Address>().unwrap().0, "127.0.0.1:8080".parse().unwrap());
        assert_eq!("[::1]:0".parse::<Address>().unwrap().0, "[::1]:0".parse().unwrap());
        for wrong in ["0.0.0.0:80", "192.168.0.1:80", "localhost", "results", "99999"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
