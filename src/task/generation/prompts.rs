//! Prompts in a model's tokens: framed by its chat template, cut to the tokens there are, and put into batches.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use rayon::prelude::*;

use crate::lm::{BLOCK, ChatFormat, ChatTemplate, GenerationSettings, ModelFiles, Tokenizer};
use crate::task::request::{Cut, GenerationConfig, Prompt, Request, Scorer, Unmeasurable, shared};

/// A request in a model's tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedPrompt {
    pub request: Request,
    /// BOS, if there is one, then the prompt.
    pub tokens: Vec<u32>,
    /// Tokens of what is before `after`.
    pub document: usize,
    /// Tokens before the question begins.
    pub before_question: usize,
    /// The most tokens to write.
    pub max_new_tokens: usize,
    /// Those of the request.
    pub continuations: Vec<Vec<u32>>,
}

impl EncodedPrompt {
    /// A request that is counted and not asked.
    fn unmeasurable(request: Request, reason: &Unmeasurable) -> EncodedPrompt {
        EncodedPrompt {
            request: Request { unmeasurable: Some(reason.clone()), continuations: Vec::new(), ..request },
            tokens: Vec::new(),
            document: 0,
            before_question: 0,
            max_new_tokens: 0,
            continuations: Vec::new(),
        }
    }

    /// Tokens of all continuations.
    pub fn continued(&self) -> usize {
        self.continuations.iter().map(Vec::len).sum()
    }
}

/// The prompts of a task for one model.
pub struct EncodedPrompts {
    pub prompts: Vec<EncodedPrompt>,
    /// Ranges of prompts that begin alike, or are short, and are answered together.
    pub batches: Vec<Range<usize>>,
    pub writing: GenerationSettings,
    /// Digest of the chat template around every prompt.
    pub template: Option<String>,
    pub tokenizer: Arc<Tokenizer>,
    /// What prompts start with, if the model has it.
    pub bos: Option<u32>,
    pub scorer: Box<dyn Scorer>,
    /// Whether the NLL of reference answers is measured.
    pub answer_nll: bool,
}

impl EncodedPrompts {
    /// Frames, cuts and tokenises requests. Those about one document must follow each other.
    ///
    /// # Errors
    /// A model without a tokenizer, a chat template that fails, or a length without room for a prompt; the request is named.
    pub fn new(
        requests: Vec<Request>,
        files: &ModelFiles,
        config: &GenerationConfig,
        scorer: Box<dyn Scorer>,
    ) -> Result<EncodedPrompts> {
        ensure!(!requests.is_empty(), "the data set has no rows of this task");
        let (tokenizer, writing) = (files.tokenizer()?, config.writing(files.stop_tokens()?));
        let template = if config.chat_template { files.chat_template()? } else { None };
        let frame = template.as_ref().map(ChatTemplate::format).transpose()?;
        let bos = if tokenizer.adds_bos() { Some(tokenizer.bos()?) } else { None };
        let prefix = tokenizer.bos().ok().or(writing.stop_tokens.first().copied());
        let encode = |mut request: Request| -> Result<EncodedPrompt> {
            let most = request.max_new_tokens.unwrap_or(config.max_new_tokens);
            if let Some(frame) = frame.as_ref().filter(|_| !request.is_plain) {
                let header = request.prompt.header().to_owned();
                request.prompt = framed(&request.prompt, frame);
                if request.keeps_header {
                    request.prompt.after.push_str(&header);
                }
            }
            if !request.continuations.is_empty() {
                let name = request.name.clone();
                return continued(request, &tokenizer, (bos, prefix)).context(name);
            }
            ensure!(
                most < request.length,
                "{}: an answer of {most} tokens leaves no room for a prompt in {}; use a larger length",
                request.name,
                request.length
            );
            let tokens = fit(&request.prompt, request.cut, request.length - most, &tokenizer, bos)
                .with_context(|| request.name.clone())?;
            let before = [request.prompt.before.as_str(), &request.prompt.document].concat();
            let document = tokenizer.encode(&before)?.ids;
            let text = &tokens[usize::from(tokens.first().copied() == bos)..];
            let begin = tokens.len().min(1) * usize::from(bos.is_some());
            let document = shared(text, &document) + begin;
            // Whatever the cell: samples are shared by cells that cut prompts elsewhere.
            let before_question = match request.question_at {
                Some(at) => {
                    begin + request.prompt.before_question(at, text, &|text| Ok(tokenizer.encode(text)?.ids))?
                }
                None => document,
            };
            Ok(EncodedPrompt {
                request,
                tokens,
                document,
                before_question,
                max_new_tokens: most,
                continuations: Vec::new(),
            })
        };
        let encode_or_count = |request: Request| {
            encode(request.clone()).or_else(|error| match error.downcast_ref::<Unmeasurable>() {
                Some(reason) => Ok(EncodedPrompt::unmeasurable(request, reason)),
                None => Err(error),
            })
        };
        let prompts: Vec<EncodedPrompt> = requests.into_par_iter().map(encode_or_count).collect::<Result<_>>()?;
        if let Some(EncodedPrompt { request, .. }) = prompts.first()
            && let Some(reason) = &request.unmeasurable
            && prompts.iter().all(|prompt| prompt.request.unmeasurable.is_some())
        {
            bail!("{}: {reason}", request.name);
        }
        let mut batches = Vec::new();
        let mut start = 0;
        // Where most of the work is writing, prompts need not begin alike.
        let is_short = |prompt: &EncodedPrompt| prompt.tokens.len() < prompt.max_new_tokens;
        let together = |a: &EncodedPrompt, b: &EncodedPrompt| {
            let are_measured = a.request.unmeasurable.is_none() && b.request.unmeasurable.is_none();
            are_measured
                && (a.request.cluster == b.request.cluster || a.tokens == b.tokens || is_short(a) && is_short(b))
        };
        for batch in prompts.chunk_by(together) {
            batches.push(start..start + batch.len());
            start += batch.len();
        }
        let template = template.as_ref().map(ChatTemplate::digest);
        let (tokenizer, answer_nll) = (Arc::new(tokenizer), config.answer_nll);
        Ok(EncodedPrompts { prompts, batches, writing, template, tokenizer, bos, scorer, answer_nll })
    }

    /// Tokens that all prompts of a batch begin with, in whole blocks. Each prompt has at least one more. The cache reads the
    /// rest of a prompt from the end of a block on, as it would without the others, so that these change no bit of it.
    pub fn common(&self, batch: Range<usize>) -> usize {
        let prompts = &self.prompts[batch];
        let first = prompts.first().map_or(&[][..], |prompt| &prompt.tokens);
        let common = prompts.iter().map(|other| shared(first, &other.tokens)).min().unwrap_or(0);
        let shortest = prompts.iter().map(|prompt| prompt.tokens.len()).min().unwrap_or(0);
        common.min(shortest.saturating_sub(1)) / BLOCK * BLOCK
    }

    /// The same where the cache is cut before the question: not beyond the shortest document.
    pub fn common_of(&self, batch: Range<usize>, cut_before_question: bool) -> usize {
        let common = self.common(batch.clone());
        if !cut_before_question {
            return common;
        }
        let shortest = self.prompts[batch].iter().map(|prompt| prompt.before_question).min().unwrap_or(0);
        common.min(shortest) / BLOCK * BLOCK
    }

    /// A prompt whose document is cut so that it has `size` tokens: the paper's baseline.
    pub fn truncated(&self, prompt: &EncodedPrompt, size: usize) -> Result<Vec<u32>> {
        if prompt.tokens.len() <= size {
            return Ok(prompt.tokens.clone());
        }
        fit(&prompt.request.prompt, prompt.request.cut, size, &self.tokenizer, self.bos)
    }
}

/// A prompt and its continuations, split into tokens as lm-evaluation-harness splits them (`TemplateLM._encode_pair`): each
/// continuation is what the tokens of both together have after as many as the prompt alone has, and white space at the prompt's
/// end belongs to it. Without a prompt, the first token is BOS, or else the token that ends texts.
fn continued(
    mut request: Request,
    tokenizer: &Tokenizer,
    (bos, prefix): (Option<u32>, Option<u32>),
) -> Result<EncodedPrompt> {
    let whole = request.prompt.whole();
    request.prompt.trim_end();
    let encode = |text: &str| Ok::<_, anyhow::Error>(tokenizer.encode(text)?.ids);
    let with_first = |first: Option<u32>, tokens: Vec<u32>| {
        let first = first.filter(|first| tokens.first() != Some(first));
        first.into_iter().chain(tokens).collect::<Vec<u32>>()
    };
    // What stands before an empty prompt.
    let first = if whole.is_empty() { prefix } else { bos };
    let mut tokens = with_first(first, encode(whole.trim_end())?);
    ensure!(!tokens.is_empty(), "the model has neither a BOS nor an end of text, which stand for an empty prompt");
    // The prompt is read as it is alone, also where the tokens of both would merge what meets.
    let after = |text: &String| -> Result<Vec<u32>> {
        let both = with_first(first, encode(&[&whole, text.as_str()].concat())?);
        let rest = both.get(tokens.len()..).unwrap_or_default();
        ensure!(!rest.is_empty(), "the continuation {text:?} has no tokens of its own");
        Ok(rest.to_vec())
    };
    let continuations: Vec<Vec<u32>> = request.continuations.iter().map(after).collect::<Result<_>>()?;
    let longest = continuations.iter().map(Vec::len).max().unwrap_or(0);
    if tokens.len() + longest > request.length {
        let length = request.length;
        if longest >= length {
            let message = format!("a continuation leaves no room for the prompt in {length}; use a larger length");
            return Err(Unmeasurable(message).into());
        }
        tokens = fit(&request.prompt, request.cut, length - longest, tokenizer, bos)?;
    }
    let before = [request.prompt.before.as_str(), &request.prompt.document].concat();
    let document = shared(&tokens, &with_first(bos, encode(&before)?));
    Ok(EncodedPrompt { tokens, continuations, document, before_question: document, max_new_tokens: 0, request })
}

/// BOS, if there is one, and a prompt in at most `room` tokens together.
fn fit(prompt: &Prompt, cut: Cut, room: usize, tokenizer: &Tokenizer, bos: Option<u32>) -> Result<Vec<u32>> {
    let encode = |text: &str| Ok(tokenizer.encode(text)?.ids);
    let tokens = prompt.fit(cut, room.saturating_sub(usize::from(bos.is_some())), &encode)?;
    // A chat template may have written it already.
    let bos = bos.filter(|bos| tokens.first() != Some(bos));
    Ok(bos.into_iter().chain(tokens).collect())
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
