//! `show`: a page or a picture of one text as a cache holds it.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use super::error::UsageError;
use super::output::{print, tell};
use super::text_args::{TextArguments, parse};
use crate::eviction::CacheSize;
use crate::ledger::write_output;
use crate::report::Format;
use crate::show::{Request, View, animation, page, picture};
use crate::text::CacheSettings;

/// Show one text as a cache holds it, token by token
///
/// Writes a page that needs no network. A slider goes through the text; each token fades by the share of layers and heads that still
/// hold it. Below are what forgetting cost, token by token, against the full cache, and the cache over time. With `--against` or
/// `--against-size` there are two caches side by side; what is not said of the second is as of the first.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    text: TextArguments,
    /// The first N tokens are the prompt, after which the schedules cut and cut+16 cut the cache
    #[arg(long, value_name = "N", conflicts_with = "write")]
    prompt: Option<usize>,
    /// The text is a prompt: the model writes up to N tokens after it with the (first) cache, always the most likely
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    write: usize,
    /// Put the model's chat template around the text
    #[arg(long, conflicts_with = "tokens")]
    chat: bool,
    /// A second policy, beside the first, such as h2o or tova@cut
    #[arg(long, value_name = "POLICY")]
    against: Option<String>,
    /// The cache size of the second cache
    #[arg(long, value_name = "K", value_parser = parse::<CacheSize>)]
    against_size: Option<CacheSize>,
    /// Show the text after N tokens; several with commas make a picture of several steps [default: all]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    at: Vec<usize>,
    /// Write an animated PNG of N frames
    #[arg(long, value_name = "N", conflicts_with = "at", value_parser = clap::value_parser!(u64).range(2..=500))]
    frames: Option<u64>,
    /// What to write; its ending says what: .html (a page), or .svg, .png or .pdf (a picture)
    #[arg(long, short, value_name = "FILE", default_value = "show.html")]
    output: PathBuf,
}

/// The seconds of an animation, to its last frame.
const SECONDS: f64 = 12.0;

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let text = &arguments.text;
    let is_wrong = |what: &str, hint: &str| Err(UsageError::new(what, hint).into());
    let path = &arguments.output;
    let ending = path.extension().unwrap_or_default().to_string_lossy().into_owned();
    let draw = Format::named(&ending).and_then(|format| format.figure);
    if draw.is_none() && ending != "html" {
        return is_wrong(
            &format!("{} has no ending that is known", path.display()),
            "end it in .html, .svg, .png or .pdf",
        );
    }
    if draw.is_none() && arguments.at.len() > 1 {
        return is_wrong("a page shows one step when it opens", "give one --at, or an output that ends in .png");
    }
    if arguments.frames.is_some() && ending != "png" {
        return is_wrong("--frames makes an animated PNG", "give an output that ends in .png");
    }
    let own = text.definitions()?;
    let mut caches = vec![text.cache()];
    if arguments.against.is_some() || arguments.against_size.is_some() {
        let first = text.cache();
        let policy = arguments.against.clone().unwrap_or(first.policy);
        let cache_size = arguments.against_size.or(first.cache_size).filter(|_| policy != "full");
        caches.push(CacheSettings { policy, cache_size, ..first });
    }
    // Before the model is loaded.
    for cache in &caches {
        cache.check(&own)?;
        if cache.policy == "truncate" && arguments.write > 0 {
            return is_wrong("truncate keeps nothing of a text from one piece to the next", "leave out --write");
        }
    }
    let pool = text.thread_pool()?;
    let files = text.files()?;
    let source = text.source()?;
    let model = text.load(files)?;
    let tokens = source.tokens(&model, arguments.chat)?;
    let (title, prompt, write, chunk) = (text.title(), arguments.prompt, arguments.write, text.chunk());
    let view =
        pool.install(|| View::read(&model, Request { title, tokens, prompt, caches, own: &own, chunk, write }))?;
    if !view.has_attention() {
        tell("note: attention is not shown, since the text is too long to keep all of it");
    }
    let all = view.tokens();
    for at in &arguments.at {
        ensure!(
            (1..=all).contains(at),
            "there is nothing to show at {at}: the text has {all} tokens\nhint: tokens are counted from 1"
        );
    }
    let steps = if arguments.at.is_empty() { vec![all] } else { arguments.at.clone() };
    let bytes = match (draw, arguments.frames) {
        (None, _) => page(&view, steps[0]).into_bytes(),
        (Some(draw), None) => draw(&picture(&view, &steps))?,
        (_, Some(frames)) => animation(&view, (frames as usize).min(all), SECONDS)?,
    };
    write_output(path, &bytes)?;
    print(&format!("{}\n", path.display()))
}
