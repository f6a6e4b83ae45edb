//! Bars on a terminal, plain lines elsewhere; always on stderr.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::lm::source::DownloadProgress;

/// Whether bars can be drawn.
pub fn interactive() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Downloads, one bar a file.
pub struct Downloads {
    bar: Mutex<Option<Download>>,
}

struct Download {
    name: String,
    bytes: u64,
    done: u64,
    said: Instant,
    bar: Option<ProgressBar>,
}

impl Downloads {
    pub fn new() -> Downloads {
        Downloads { bar: Mutex::new(None) }
    }

    fn with(&self, change: impl FnOnce(&mut Option<Download>)) {
        change(&mut self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

impl DownloadProgress for Downloads {
    fn start(&self, name: &str, bytes: u64) {
        let bar = interactive().then(|| {
            let style = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            let style = ProgressStyle::with_template(style).expect("the template is a constant");
            ProgressBar::new(bytes)
                .with_style(style.progress_chars("=> "))
                .with_message(format!("fetching {name}"))
        });
        if bar.is_none() {
            eprintln!("fetching {name} ({:.1} MB)", bytes as f64 / 1e6);
        }
        self.with(|slot| *slot = Some(Download { name: name.into(), bytes, done: 0, said: Instant::now(), bar }));
    }

    fn advance(&self, bytes: u64) {
        self.with(|slot| {
            let Some(download) = slot else { return };
            download.done += bytes;
            if let Some(bar) = &download.bar {
                bar.inc(bytes);
            } else if download.said.elapsed() > Duration::from_secs(30) {
                download.said = Instant::now();
                let share = download.done as f64 / download.bytes.max(1) as f64;
                eprintln!("fetching {}: {:.0} %", download.name, 100.0 * share);
            }
        });
    }

    fn finish(&self) {
        self.with(|slot| {
            if let Some(Download { bar: Some(bar), .. }) = slot.take() {
                bar.finish_and_clear();
            }
        });
    }

    fn note(&self, message: &str) {
        eprintln!("note: {message}");
    }
}
