//! Prompts to be answered in writing: from questions, story requests and needles to tokens.
//!
//! Knows how a prompt is framed by a chat template and fitted into the room there is. How files spell questions, and
//! how answers are marked, is not known here.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use rayon::prelude::*;

use super::prompt::Prompt;
use crate::lm::{ChatFormat, ChatTemplate, GenerationSettings, ModelFiles, Tokenizer};

/// One prompt, and what is known of its answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// `63477#2`: a question of a story.
    pub name: String,
    /// The document.
    pub cluster: String,
    pub prompt: Prompt,
    /// Answers that count as right; none where nobody published them.
    pub references: Vec<String>,
    /// An answer that needs no reading, to compare with; empty where nobody knows one.
    pub trivial: String,
    /// Parts of the report the answer counts for: `kind:yes_no`, `depth:50`.
    pub groups: Vec<String>,
    /// Tokens of prompt and answer together, BOS included.
    pub length: usize,
    /// Added to the task's seed.
    pub draw: u64,
}

/// A request in the model's tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub request: Request,
    /// BOS, if there is one, then the prompt.
    pub tokens: Vec<u32>,
    /// Tokens before the question begins.
    pub document: usize,
}

/// The requests of a task for one model.
pub struct Requests {
    pub asked: Vec<Asked>,
    /// Requests that share their prompts' beginnings, and are answered side by side: ranges of `asked`.
    pub sittings: Vec<Range<usize>>,
    pub writing: GenerationSettings,
    /// Digest of the chat template around every prompt.
    pub template: Option<String>,
    pub(super) tokenizer: Tokenizer,
    bos: Option<u32>,
}

/// More requests than this are not answered side by side: each holds a cache of its own.
const SITTING: usize = 8;

impl Requests {
    /// Frames, cuts and tokenises requests. Those of one document follow each other.
    ///
    /// # Errors
    /// A chat template that fails, or a prompt that leaves no room; the request is named.
    pub fn new(
        requests: Vec<Request>,
        files: &ModelFiles,
        tokenizer: Tokenizer,
        template: bool,
        writing: GenerationSettings,
    ) -> Result<Requests> {
        ensure!(!requests.is_empty(), "there is nothing to ask");
        let template = if template { files.chat_template()? } else { None };
        let frame = template.as_ref().map(ChatTemplate::format).transpose()?;
        let bos = if tokenizer.adds_bos() { Some(tokenizer.bos()?) } else { None };
        let asked = requests
            .into_par_iter()
            .map(|mut request| {
                if let Some(frame) = &frame {
                    request.prompt = framed(&request.prompt, frame);
                }
                let most = writing.max_new_tokens;
                ensure!(
                    most < request.length,
                    "{}: an answer of {most} tokens leaves no room for a prompt in {}; use a larger length",
                    request.name,
                    request.length
                );
                let tokens = fit(&request.prompt, request.length - most, &tokenizer, bos)
                    .with_context(|| request.name.clone())?;
                let before = [request.prompt.before.as_str(), &request.prompt.document].concat();
                let document = tokenizer.encode(&before)?.ids;
                let document = shared([&tokens[usize::from(tokens.first().copied() == bos)..], &document]);
                Ok(Asked {
                    document: document + tokens.len().min(1) * usize::from(bos.is_some()),
                    request,
                    tokens,
                })
            })
            .collect::<Result<Vec<Asked>>>()?;
        let mut sittings = Vec::new();
        let mut start = 0;
        for document in asked.chunk_by(|a, b| a.request.cluster == b.request.cluster || a.tokens == b.tokens) {
            for sitting in document.chunks(SITTING) {
                sittings.push(start..start + sitting.len());
                start += sitting.len();
            }
        }
        let template = template.as_ref().map(ChatTemplate::digest);
        Ok(Requests { asked, sittings, writing, template, tokenizer, bos })
    }

    /// Tokens of a request that no other of its sitting reads too, and its share of those they all read; what may be
    /// written is counted.
    pub(super) fn work(&self, index: usize) -> usize {
        let sitting = self.sittings.partition_point(|sitting| sitting.end <= index);
        let sitting = self.sittings[sitting].clone();
        let common = self.common(sitting.clone());
        common / sitting.len() + self.asked[index].tokens.len() - common + self.writing.max_new_tokens
    }

    /// Whether prompts start with BOS.
    pub fn bos(&self) -> bool {
        self.bos.is_some()
    }

    /// Tokens that all prompts of a sitting begin with; at least one is left to each.
    pub(super) fn common(&self, sitting: Range<usize>) -> usize {
        let asked = &self.asked[sitting];
        let first = asked.first().map_or(&[][..], |asked| &asked.tokens);
        let shared = asked.iter().map(|other| shared([first, &other.tokens])).min().unwrap_or(0);
        let shortest = asked.iter().map(|asked| asked.tokens.len()).min().unwrap_or(0);
        shared.min(shortest.saturating_sub(1))
    }

    /// A prompt whose document is cut so that it has `size` tokens, the paper's baseline.
    ///
    /// # Errors
    /// A size that leaves no room to the document.
    pub(super) fn truncated(&self, asked: &Asked, size: usize) -> Result<Vec<u32>> {
        if asked.tokens.len() <= size {
            return Ok(asked.tokens.clone());
        }
        fit(&asked.request.prompt, size, &self.tokenizer, self.bos)
    }
}

/// BOS, if there is one, and a prompt in at most `room` tokens together.
fn fit(prompt: &Prompt, room: usize, tokenizer: &Tokenizer, bos: Option<u32>) -> Result<Vec<u32>> {
    let encode = |text: &str| Ok(tokenizer.encode(text)?.ids);
    let fitted = prompt.fit(room.saturating_sub(usize::from(bos.is_some())), &encode)?;
    // A chat template may have written it already.
    let bos = bos.filter(|bos| fitted.tokens.first() != Some(bos));
    Ok(bos.into_iter().chain(fitted.tokens).collect())
}

/// A prompt inside a chat template, which opens the answer itself.
fn framed(prompt: &Prompt, frame: &ChatFormat) -> Prompt {
    let prompt = prompt.without_header();
    let (mut before, mut after) = (prompt.before.as_str(), prompt.after.as_str());
    if frame.strip {
        before = before.trim_start();
        after = after.trim_end();
    }
    Prompt {
        before: [frame.prefix.as_str(), before].concat(),
        after: [after, &frame.suffix].concat(),
        ..prompt.clone()
    }
}

/// Tokens that two texts have in common at their beginning.
fn shared([a, b]: [&[u32]; 2]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
