//! Prompts in a model's tokens: framed by its chat template, cut to the tokens there are, and put into batches.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use rayon::prelude::*;

use crate::lm::{BLOCK, ChatFormat, ChatTemplate, GenerationSettings, ModelFiles, Tokenizer};
use crate::task::memory::{Pieces, SampleLengths};
use crate::task::request::{Cut, Fitted, GenerationConfig, Prompt, Request, Scorer, Unmeasurable, shared};

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
    /// The request's continuations in tokens.
    pub continuations: Vec<Vec<u32>>,
}

impl EncodedPrompt {
    /// Makes a prompt that is counted and not asked.
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

    /// The prompt without the first tokens, if it and one of its continuations are longer than lm-evaluation-harness reads them.
    pub fn without_room_for(&self, continuation: &[u32]) -> Option<EncodedPrompt> {
        let read = self.tokens.len() + continuation.len() - 1;
        let lost =
            read.checked_sub(self.request.length).filter(|lost| *lost > 0 && self.request.cut == Cut::Start)?;
        let (document, before_question) = (self.document, self.before_question);
        let [document, before_question] = [document, before_question].map(|tokens| tokens.saturating_sub(lost));
        Some(EncodedPrompt { tokens: self.tokens[lost..].to_vec(), document, before_question, ..self.clone() })
    }

    /// Tokens that the prompt's cache depends on, if `read` of its tokens are read and `follow` tokens follow them. Without a
    /// `query_aware` cache the prompt ends before its question.
    pub fn lengths(&self, query_aware: bool, read: usize, follow: usize) -> SampleLengths {
        let prompt = if query_aware { read } else { self.before_question.min(read) };
        let predicted = read..read + follow.max(1);
        SampleLengths { prompt: Some(prompt), tokens: read + follow, predicted, pieces: Pieces::LastOfPrompt }
    }

    /// Tokens that follow the prompt at most: those of the longest continuation, or those that may be written.
    pub fn follow(&self) -> usize {
        self.continuations.iter().map(Vec::len).max().unwrap_or(self.max_new_tokens)
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
        let (tokenizer, stops) = (files.tokenizer()?, files.stop_tokens()?);
        let prefix = tokenizer.prefix(&stops);
        let writing = config.writing(stops, &tokenizer);
        let template = if config.chat_template { files.chat_template()? } else { None };
        // Most prompts have no messages of their own.
        let usual = template.as_ref().map(ChatTemplate::format).transpose()?;
        let frame = |template: &ChatTemplate, request: &Request| -> Result<Option<ChatFormat>> {
            let continues = request.keeps_header && request.prompt.header > request.delimiters[0];
            let before: Vec<_> = request.messages.iter().map(|(role, text)| (*role, text.as_str())).collect();
            let frame = match &usual {
                Some(usual) if before.is_empty() && !continues => usual.clone(),
                _ => template.format_after(&before, continues)?,
            };
            if !continues {
                let whole = request.prompt.without_header().whole();
                template.check(&frame, &before, &whole[request.preface..])?;
            }
            Ok(Some(frame))
        };
        let bos = if tokenizer.adds_bos() { Some(tokenizer.bos()?) } else { None };
        let encode = |mut request: Request| -> Result<EncodedPrompt> {
            let most = request.max_new_tokens.unwrap_or(config.max_new_tokens);
            if let Some(template) = template.as_ref().filter(|_| !request.is_plain)
                && let Some(frame) = frame(template, &request).with_context(|| request.name.clone())?
            {
                request = framed(request, &frame);
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
            let (fitted, bos) = fit(&request.prompt, request.cut, request.length - most, &tokenizer, bos)
                .with_context(|| request.name.clone())?;
            let encode = |text: &str| Ok(tokenizer.encode(text)?.ids);
            let opening = match &fitted.opening {
                Some(opening) => opening.clone(),
                None => encode(&[request.prompt.before.as_str(), &request.prompt.document].concat())?,
            };
            let begin = usize::from(bos.is_some());
            let document = shared(&fitted.tokens, &opening) + begin;
            // Whatever the cell: samples are shared by cells that cut prompts elsewhere.
            let before_question = match request.question_at {
                Some(at) => begin + request.prompt.before_question(at, &fitted, &encode)?,
                None => document,
            };
            Ok(EncodedPrompt {
                request,
                tokens: with_bos(fitted, bos),
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

    /// Counts the tokens that all prompts of a batch begin with, in whole blocks; with `cut_before_question` no more than the shortest
    /// document has.
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
        let tokens = &prompt.tokens;
        if tokens.len() <= size {
            return Ok(tokens.clone());
        }
        if prompt.request.cut == Cut::Start {
            let first = usize::from(self.bos.is_some() && tokens.first().copied() == self.bos).min(size);
            return Ok([&tokens[..first], &tokens[tokens.len() - (size - first)..]].concat());
        }
        let (fitted, bos) = fit(&prompt.request.prompt, prompt.request.cut, size, &self.tokenizer, self.bos)?;
        Ok(with_bos(fitted, bos))
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
    let lengths = || continuations.iter().map(Vec::len);
    let (length, longest) = (request.length, lengths().max().unwrap_or(0));
    let has_room = if request.cut == Cut::Start { longest <= length } else { longest < length };
    if !has_room {
        let message = format!("a continuation leaves no room for the prompt in {length}; use a larger length");
        return Err(Unmeasurable(message).into());
    }
    if request.cut == Cut::Start {
        // The last token of a continuation is not read. What longer ones leave room for is a part of this.
        let room = length + 1 - lengths().min().unwrap_or(0);
        tokens.drain(..tokens.len().saturating_sub(room));
    } else if tokens.len() + longest > length {
        let (fitted, bos) = fit(&request.prompt, request.cut, length - longest, tokenizer, bos)?;
        tokens = with_bos(fitted, bos);
    }
    let before = [request.prompt.before.as_str(), &request.prompt.document].concat();
    let document = shared(&tokens, &with_first(bos, encode(&before)?));
    Ok(EncodedPrompt { tokens, continuations, document, before_question: document, max_new_tokens: 0, request })
}

/// A prompt and BOS, if it begins with one, in at most `room` tokens together. A prompt that loses its beginning loses BOS first, as in
/// the harness.
fn fit(
    prompt: &Prompt,
    cut: Cut,
    room: usize,
    tokenizer: &Tokenizer,
    bos: Option<u32>,
) -> Result<(Fitted, Option<u32>)> {
    let encode = |text: &str| Ok(tokenizer.encode(text)?.ids);
    let left = room.saturating_sub(usize::from(bos.is_some() && cut != Cut::Start));
    let fitted = prompt.fit(cut, left, &encode)?;
    // A chat template may have written it already.
    let tokens = &fitted.tokens;
    let bos = bos.filter(|bos| tokens.first() != Some(bos) && (cut != Cut::Start || tokens.len() < room));
    Ok((fitted, bos))
}

fn with_bos(fitted: Fitted, bos: Option<u32>) -> Vec<u32> {
    bos.into_iter().chain(fitted.tokens).collect()
}

/// A request inside a chat template, which opens the answer itself and separates it from the prompt.
pub fn framed(request: Request, frame: &ChatFormat) -> Request {
    let [of_header, of_continuation] = request.delimiters;
    let mut opening = if request.keeps_header { request.prompt.header() } else { "" };
    opening = opening.get(of_header..).unwrap_or_default();
    if frame.strip_answer {
        opening = opening.trim();
    }
    let prompt = request.prompt.without_header();
    let (mut before, mut after) = (&prompt.before[request.preface..], prompt.after.as_str());
    let mut document = prompt.document.as_str();
    if frame.strip {
        (before, after) = (before.trim_start(), after.trim_end());
        if before.is_empty() {
            document = document.trim_start();
        }
        if after.is_empty() {
            document = document.trim_end();
        }
    }
    let prompt = Prompt {
        document: document.to_owned(),
        before: [frame.prefix.as_str(), before].concat(),
        after: [after, &frame.suffix, opening].concat(),
        ..prompt.clone()
    };
    let continuations = request.continuations.iter().map(|text| text[of_continuation..].to_owned()).collect();
    Request { prompt, continuations, ..request }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cut: Cut, length: usize) -> Request {
        let prompt = Prompt { before: "abcdefgh".into(), ..Prompt::default() };
        let continuations = vec!["x".to_owned(), "yz".to_owned()];
        Request { prompt, continuations, cut, length, ..Request::default() }
    }

    /// `context_enc[:, -left_truncate_len:]` of `generate_until`, BOS included.
    #[test]
    fn a_prompt_that_is_too_long_loses_what_the_harness_cuts() {
        let tokenizer = Tokenizer::bytes().unwrap();
        let whole = [vec![0], tokenizer.encode("abcdefgh").unwrap().ids].concat();
        for room in 1..12 {
            let (fitted, bos) =
                fit(&request(Cut::Start, 0).prompt, Cut::Start, room, &tokenizer, Some(0)).unwrap();
            assert_eq!(with_bos(fitted, bos), whole[whole.len().saturating_sub(room)..], "{room}");
        }
        let (kept, bos) = fit(&request(Cut::End, 0).prompt, Cut::End, 5, &tokenizer, Some(0)).unwrap();
        assert_eq!(with_bos(kept, bos), whole[..5], "a document loses its end, and BOS stays");
    }

    /// `(context_enc + continuation_enc)[-(max_length + 1):][:-1]` of `_loglikelihood_tokens`, for each choice.
    #[test]
    fn each_choice_has_the_prompt_that_it_leaves_room_for() {
        let tokenizer = Tokenizer::bytes().unwrap();
        let whole = [vec![0], tokenizer.encode("abcdefgh").unwrap().ids].concat();
        for length in 2..14 {
            let encoded = continued(request(Cut::Start, length), &tokenizer, (Some(0), Some(0))).unwrap();
            for continuation in &encoded.continuations {
                let prompt =
                    encoded.without_room_for(continuation).map_or(encoded.tokens.clone(), |one| one.tokens);
                let all = [&whole[..], continuation].concat();
                let window = &all[all.len().saturating_sub(length + 1)..];
                assert_eq!(prompt, window[..window.len() - continuation.len()], "{length}");
            }
        }
        let message = continued(request(Cut::Start, 1), &tokenizer, (Some(0), Some(0))).unwrap_err().to_string();
        assert!(message.contains("no room for the prompt in 1"), "{message}");
    }
}
