//! Prompts that come as tokens, measured at once as the samples of a task are.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Result, ensure};

use super::prompts::{EncodedPrompt, EncodedPrompts};
use crate::lm::{GenerationSettings, LanguageModel, Tokenizer};
use crate::metric::MetricSum;
use crate::task::cache::CacheConfig;
use crate::task::prepared::{Batch, Samples};
use crate::task::request::{Likelihood, Request, Scorer};

/// A prompt, and what follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRequest {
    /// At least one token, BOS included where there is one.
    pub prompt: Vec<u32>,
    /// Tokens whose likelihood after the prompt is asked for, at least one each; where there are none, an answer is written.
    pub continuations: Vec<Vec<u32>>,
    /// The most tokens of an answer.
    pub max_new_tokens: usize,
}

/// What is measured of a [`TokenRequest`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenAnswer {
    /// One for each continuation.
    pub likelihoods: Vec<Likelihood>,
    /// What was written.
    pub text: String,
}

/// How [`TokenRequest`]s are measured.
pub struct TokenSettings<'a> {
    pub config: &'a CacheConfig,
    /// The most tokens of prompt and answer together. A continuation's last token is not read, and does not count.
    pub length: usize,
    pub writing: GenerationSettings,
    /// What prompts may begin with, which `truncate` keeps.
    pub bos: Option<u32>,
}

/// Measures requests as one batch: what all prompts begin with is read once, each continuation goes on from a copy of the cache
/// that has read its prompt, and answers are written side by side. Each is what it would be alone.
///
/// # Errors
/// Tokens that are missing, outside the vocabulary or too many, or an interruption.
pub fn answer_tokens(
    model: &LanguageModel,
    tokenizer: &Arc<Tokenizer>,
    requests: Vec<TokenRequest>,
    settings: TokenSettings<'_>,
) -> Result<Vec<TokenAnswer>> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let TokenSettings { config, length, writing, bos } = settings;
    let kept = config.cache.rule.piece().unwrap_or(usize::MAX);
    let prompts = requests.into_iter().enumerate();
    let prompts = prompts.map(|(at, request)| encoded(at, request, (kept, bos), length)).collect::<Result<_>>()?;
    let prompts: Vec<EncodedPrompt> = prompts;
    let (all, samples) = (0..prompts.len(), (0..prompts.len()).collect::<Vec<_>>());
    let (tokenizer, batches, scorer) = (Arc::clone(tokenizer), vec![all.clone()], Box::new(Plain));
    let prompts =
        EncodedPrompts { prompts, batches, writing, template: None, tokenizer, bos, scorer, answer_nll: false };
    let prefix = prompts.read_prefix(model, all.clone(), std::slice::from_ref(config))?;
    let (config, side_by_side, prefix) = (*config, samples.len(), prefix.as_ref());
    let batch = Batch { model, prefix, all, samples: &samples, config, side_by_side };
    let mut measured = Vec::new();
    let _ = prompts.measure(&batch, &mut |sample, result| {
        measured.push((sample, result));
        ControlFlow::Continue(())
    });
    measured.sort_by_key(|(sample, _)| *sample);
    measured.into_iter().map(|(_, result)| Ok(answer(result?.sums))).collect()
}

const LIKELIHOOD: &str = "loglikelihood";

/// Gives each likelihood as a sum.
struct Plain;

impl Scorer for Plain {
    fn choose(&self, likelihoods: &[Likelihood], _: &Request) -> Vec<MetricSum> {
        let sum = |of: &Likelihood| MetricSum::new(LIKELIHOOD, of.log, f64::from(u8::from(of.is_greedy)));
        likelihoods.iter().map(sum).collect()
    }
}

fn answer(sums: Vec<MetricSum>) -> TokenAnswer {
    let likelihoods = sums.iter().filter(|sum| sum.metric == LIKELIHOOD);
    let likelihoods = likelihoods.map(|sum| Likelihood { log: sum.value, is_greedy: sum.weight > 0.0 }).collect();
    TokenAnswer { likelihoods, text: sums.into_iter().find_map(|sum| sum.output).unwrap_or_default() }
}

/// A request whose prompt has at most `kept` tokens: BOS, and the last of the others.
fn encoded(
    at: usize,
    request: TokenRequest,
    (kept, bos): (usize, Option<u32>),
    length: usize,
) -> Result<EncodedPrompt> {
    let TokenRequest { prompt: mut tokens, continuations, max_new_tokens } = request;
    ensure!(!tokens.is_empty(), "prompt {at} has no token");
    ensure!(continuations.iter().all(|tokens| !tokens.is_empty()), "a continuation of prompt {at} has no token");
    let longest = continuations.iter().map(Vec::len).max();
    let read = tokens.len() + longest.map_or(max_new_tokens, |longest| longest - 1);
    ensure!(
        read <= length,
        "prompt {at} and what follows it have {read} tokens, and the length is {length}; shorten the prompt, or use a larger \
         length"
    );
    if tokens.len() > kept {
        let first = usize::from(bos.is_some() && tokens.first() == bos.as_ref()).min(kept);
        tokens.drain(first..first + tokens.len() - kept);
    }
    let document = tokens.len();
    Ok(EncodedPrompt {
        request: Request { name: at.to_string(), length, ..Request::default() },
        tokens,
        document,
        before_question: document,
        max_new_tokens,
        continuations,
    })
}
