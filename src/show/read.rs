//! A text read with a model, under the full cache and under those that are shown.

use anyhow::{Result, ensure};

use super::attention::Attention;
use super::{LONGEST, Side, View, tokens};
use crate::eviction::{CacheSize, CacheSpec, DefinedPolicy};
use crate::text::{CacheSettings, ScoreSettings, TextLength, TextModel, WriteSettings};

/// A request to show a text.
pub struct Request<'a> {
    pub title: String,
    pub tokens: Vec<u32>,
    /// The number of tokens at the start that are the prompt, if that matters.
    pub prompt: Option<usize>,
    /// One cache, or two side by side.
    pub caches: Vec<CacheSettings>,
    /// Policies of one's own, which go before presets.
    pub own: &'a [DefinedPolicy],
    /// Tokens read at a time.
    pub chunk: usize,
    /// Tokens that the model writes after the text, with the first cache.
    pub write: usize,
}

impl View {
    /// Reads the text once for each cache, once with the full cache, and once more for attention, if there is room.
    ///
    /// # Errors
    /// A text of more than [`LONGEST`] tokens, settings that a cache cannot have, or as [`TextModel::score`].
    pub fn read(model: &TextModel, request: Request<'_>) -> Result<View> {
        let Request { title, mut tokens, mut prompt, caches, own, chunk, write } = request;
        let total = tokens.len().saturating_add(write);
        ensure!(
            total <= LONGEST,
            "the text has {total} tokens, and at most {LONGEST} are shown\nhint: give a shorter text"
        );
        let mut written = 0;
        if write > 0 {
            let settings = greedy(write);
            let cache = caches[0].spec(own, model.written_length(&tokens, &settings)?)?;
            let texts = model.write(&tokens, &cache, &settings, chunk)?.texts;
            prompt = Some(tokens.len());
            written = texts[0].tokens.len();
            tokens.extend(&texts[0].tokens);
        }
        let settings = ScoreSettings { prompt, chunk, log: false };
        let full = model.score(&tokens, &CacheSpec::default(), settings)?.nll;
        let side = |cache: &CacheSettings| -> Result<Side> {
            let trace = model.trace(&tokens, &cache.spec(own, TextLength { prompt, text: total })?, settings)?;
            Ok(Side { name: name(cache), lifetimes: trace.lifetimes, nll: trace.nll })
        };
        let sides = caches.iter().map(side).collect::<Result<Vec<_>>>()?;
        let attention = Attention::read(model, &tokens, &sides)?;
        let units = tokens::units(model, &tokens)?;
        let source = model.files.source.to_string();
        let model = source.trim_end_matches('/').rsplit('/').next().unwrap_or(&source).to_owned();
        Ok(View { title, model, units, tokens: tokens.len(), written, full, sides, attention })
    }
}

fn greedy(max_new_tokens: usize) -> WriteSettings {
    WriteSettings {
        max_new_tokens,
        temperature: 0.0,
        top_k: None,
        top_p: None,
        repetition_penalty: 1.0,
        stop: Vec::new(),
        ignore_eos: false,
        batch: 1,
    }
}

/// The policy, its size, and when entries leave, if that is said.
fn name(cache: &CacheSettings) -> String {
    let size = match &cache.cache_size {
        Some(CacheSize::Entries(entries)) => format!(" with {entries} entries"),
        Some(share) => format!(" with {share} of the entries"),
        None => String::new(),
    };
    let schedule = cache.schedule.map_or(String::new(), |schedule| format!(", schedule {schedule}"));
    format!("{}{size}{schedule}", cache.policy)
}
