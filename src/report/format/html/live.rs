//! The page as it is served while results still come: with a script that loads it again when it was made again.
//!
//! The page on disk has no such script. It needs one exception in the content security policy: it may ask its own server.

use sha2::{Digest as _, Sha256};

use super::page::digest;

const SCRIPT: &str = include_str!("live.js");

/// A page of the report, and what tells it from its other versions.
#[derive(Clone, Debug)]
pub struct Live {
    pub version: String,
    pub html: String,
}

impl Live {
    /// Adds the script to a page that [`write`](crate::report::write()) wrote.
    pub fn of(page: &str) -> Live {
        let version = format!("{:x}", Sha256::digest(page.as_bytes()));
        let allowed = format!("connect-src 'self'; script-src {} ", digest(SCRIPT));
        let script = format!("<script data-version=\"{version}\">{SCRIPT}</script></body>");
        // The policy stands before every text of a data set, and nothing follows the end of the body.
        let html = page.replacen("script-src ", &allowed, 1);
        let end = html.rfind("</body>").unwrap_or(html.len());
        Live { version, html: format!("{}{script}</html>", &html[..end]) }
    }

    /// The page as long as there is nothing to report.
    pub fn empty() -> Live {
        Live::of(
            "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
            <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'self'\">\
            <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>tova-bench</title></head>\
            <body><p>Nothing is measured yet. This page shows the first results when they are there.</p></body></html>",
        )
    }
}
