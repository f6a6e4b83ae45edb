//! Answers to requests for the page and the files of a report.
//!
//! Only files that the report wrote have an address, so there is no path to follow out of its folder. The `Host` of a request
//! must be a name of this machine: a page elsewhere whose name was turned to 127.0.0.1 is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tiny_http::{Header, Method, Request, Response, ResponseBox};

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
    pub(super) page: Live,
    /// By path in an address.
    files: BTreeMap<String, PathBuf>,
}

impl Content {
    pub(super) fn empty() -> Content {
        Content { page: Live::empty(), files: BTreeMap::new() }
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
        Ok(Content { page, files: files.iter().filter_map(address).collect() })
    }
}

/// What a request asks for.
pub(super) enum Asked {
    Page,
    Version,
    File(PathBuf),
    /// Nothing that there is, with the code that says so.
    Refused(u16, &'static str),
}

impl Content {
    pub(super) fn asked(&self, request: &Request) -> Asked {
        let mut hosts = request.headers().iter().filter(|header| header.field.equiv("Host")).peekable();
        if hosts.peek().is_none() || !hosts.all(|host| is_own_name(host.value.as_str())) {
            return Asked::Refused(403, "only localhost and loopback addresses are answered\n");
        }
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Asked::Refused(405, "only GET and HEAD\n");
        }
        match request.url().split('?').next().unwrap_or_default() {
            "/" | "/report.html" => Asked::Page,
            "/version" => Asked::Version,
            path => {
                self.files.get(path).map_or(Asked::Refused(404, "not found\n"), |file| Asked::File(file.clone()))
            }
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

pub(super) fn text(code: u16, media: &str, text: String) -> ResponseBox {
    with_headers(Response::from_string(text).with_status_code(code), media)
}

/// A file; it may have been removed.
pub(super) fn file(path: &Path) -> ResponseBox {
    match File::open(path) {
        Ok(file) => with_headers(Response::from_file(file), media(path)),
        Err(_) => text(404, PLAIN, "not found\n".to_owned()),
    }
}

pub(super) const HTML: &str = "text/html; charset=utf-8";
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

fn with_headers<R: Read + Send + 'static>(mut response: Response<R>, media: &str) -> ResponseBox {
    let headers = [
        ("Content-Type", media),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
    ];
    for header in headers.into_iter().filter_map(|(name, value)| Header::from_bytes(name, value).ok()) {
        response.add_header(header);
    }
    response.boxed()
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
