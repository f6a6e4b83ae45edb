//! A loaded model that scores and continues texts.

use anyhow::Context;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tova_bench::eviction::{CacheOptions, CacheSize, CacheSpec, DefinedPolicy, Schedule};
use tova_bench::lm::source::{HubSettings, ModelSource};
use tova_bench::lm::{Arithmetic, DeviceChoice, ModelFiles, TextThreads, WeightType};
use tova_bench::show::{self, Request, View};
use tova_bench::task::{CacheConfig, TokenAnswer, TokenRequest};
use tova_bench::text::{CacheSettings, ScoreSettings, Scored, TextLength, TextModel, TextRequests, WriteSettings};

use crate::bytes;
use crate::errors::exception;
use crate::policy::Policy;
use crate::work::{detached, stop};

#[pyclass(frozen)]
pub struct Model {
    model: TextModel,
    pool: TextThreads,
}

/// What `score` returns: NLLs (f32, NaN where nothing predicts a token), survivors as (layers)(groups) positions (u32), and
/// evictions as rows of step, layer, group and position (u32).
type ScoredBytes<'py> = (Bound<'py, PyBytes>, Vec<Vec<Bound<'py, PyBytes>>>, Bound<'py, PyBytes>);

#[pymethods]
impl Model {
    #[new]
    fn new(
        py: Python<'_>,
        source: &str,
        tokenizer: Option<&str>,
        dtype: &str,
        arithmetic: &str,
        device: &str,
        threads: Option<usize>,
    ) -> PyResult<Model> {
        detached(py, || {
            let parse = |text: &str| text.parse::<ModelSource>();
            let (source, tokenizer) = (parse(source)?, tokenizer.map(parse).transpose()?);
            let dtype = WeightType::from_name(dtype).context("dtypes are auto, f32, f16 and bf16")?;
            let arithmetic = arithmetic.parse::<Arithmetic>()?;
            let device = device.parse::<DeviceChoice>().map_err(anyhow::Error::msg)?.open()?;
            let files = ModelFiles::find(&source, tokenizer.as_ref(), &HubSettings::from_env()?, &())?;
            let files = files.with_arithmetic(arithmetic);
            let mut model = TextModel::load(files, dtype, &device)?;
            model.model.stop_on(stop());
            let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
            let pool = TextThreads::new(threads.max(1))?;
            Ok(Model { model, pool })
        })
    }

    /// The tokens of a text, after BOS where the tokenizer adds it.
    fn encode(&self, text: &str, chat: bool) -> PyResult<Vec<u32>> {
        let tokens = if chat { self.model.chat_tokens(text) } else { self.model.tokens(text) };
        tokens.map_err(|error| exception(&error))
    }

    /// The tokens of a text as it is, after BOS if that is asked for and the tokenizer adds it.
    fn raw_tokens(&self, text: &str, adds_bos: bool) -> PyResult<Vec<u32>> {
        self.model.raw_tokens(text, adds_bos).map_err(|error| exception(&error))
    }

    /// What a text is read after, the tokens that end texts, and the most tokens that the model takes.
    fn limits(&self) -> PyResult<(u32, Vec<u32>, usize)> {
        let limits = || {
            let files = &self.model.files;
            anyhow::Ok((self.model.prefix_token()?, files.stop_tokens()?, files.shape.max_positions))
        };
        limits().map_err(|error| exception(&error))
    }

    /// The model's chat template in Jinja; `None` if it has none.
    fn chat_template(&self) -> PyResult<Option<String>> {
        let template = self.model.files.chat_template().map_err(|error| exception(&error))?;
        Ok(template.map(|template| template.source().to_owned()))
    }

    /// Messages, each a role and its text, inside the chat template.
    fn render_chat(&self, messages: Vec<(String, String)>, opens_answer: bool) -> PyResult<String> {
        let messages: Vec<_> = messages.iter().map(|(role, text)| (role.as_str(), text.as_str())).collect();
        let rendered = self.model.chat_template().and_then(|template| template.render(&messages, opens_answer));
        rendered.map_err(|error| exception(&error))
    }

    /// For each prompt its continuations' log-likelihoods and whether each is the greedy one.
    fn likelihoods(
        &self,
        py: Python<'_>,
        prompts: Vec<(Vec<u32>, Vec<Vec<u32>>)>,
        length: usize,
        cache: CacheArguments<'_>,
    ) -> PyResult<Vec<Vec<(f64, bool)>>> {
        let prompts = prompts.into_iter();
        let request = |(prompt, continuations)| TokenRequest { prompt, continuations, max_new_tokens: 0 };
        let requests = TextRequests { requests: prompts.map(request).collect(), length, stop: Vec::new() };
        let answers = self.answer(py, requests, &cache)?.into_iter();
        let pairs = |answer: TokenAnswer| answer.likelihoods.iter().map(|one| (one.log, one.is_greedy)).collect();
        Ok(answers.map(pairs).collect())
    }

    /// A greedy answer to each prompt.
    fn answers(
        &self,
        py: Python<'_>,
        prompts: Vec<Vec<u32>>,
        length: usize,
        max_new_tokens: usize,
        stop: Vec<String>,
        cache: CacheArguments<'_>,
    ) -> PyResult<Vec<String>> {
        let request = |prompt| TokenRequest { prompt, continuations: Vec::new(), max_new_tokens };
        let requests = TextRequests { requests: prompts.into_iter().map(request).collect(), length, stop };
        Ok(self.answer(py, requests, &cache)?.into_iter().map(|answer| answer.text).collect())
    }

    /// The log-likelihood of a text's tokens in windows of `length`.
    fn rolling(&self, py: Python<'_>, text: Vec<u32>, length: usize, cache: CacheArguments<'_>) -> PyResult<f64> {
        let config = self.config(&cache, length)?;
        detached(py, || self.pool.install(|| self.model.rolling_likelihood(&text, length, &config)))
    }

    /// The text of each token.
    fn pieces(&self, tokens: Vec<u32>) -> PyResult<Vec<String>> {
        self.model.pieces(&tokens).map_err(|error| exception(&error))
    }

    fn score<'py>(
        &self,
        py: Python<'py>,
        tokens: Vec<u32>,
        cache: CacheArguments<'py>,
        prompt: Option<usize>,
        log: bool,
    ) -> PyResult<ScoredBytes<'py>> {
        let cache = cache.spec(TextLength { prompt, text: tokens.len() })?;
        let settings = ScoreSettings { prompt, chunk: Scored::CHUNK, log };
        let scored = detached(py, || self.pool.install(|| self.model.score(&tokens, &cache, settings)))?;
        let nll: Vec<f32> = scored.nll.iter().map(|nll| nll.unwrap_or(f32::NAN)).collect();
        let array = |positions: &Vec<u32>| PyBytes::new(py, &bytes(positions, u32::to_ne_bytes));
        let survivors = scored.survivors.iter().map(|layer| layer.iter().map(array).collect()).collect();
        let evictions: Vec<u32> = scored.eviction_rows().flatten().collect();
        Ok((PyBytes::new(py, &bytes(&nll, f32::to_ne_bytes)), survivors, array(&evictions)))
    }

    /// A page of a text as one or two caches hold it, open after `at` tokens.
    fn show(
        &self,
        py: Python<'_>,
        tokens: Vec<u32>,
        caches: Vec<CacheArguments<'_>>,
        prompt: Option<usize>,
        write: usize,
        at: Option<usize>,
    ) -> PyResult<String> {
        let (mut settings, mut own) = (Vec::new(), Vec::new());
        for (number, cache) in (1..).zip(&caches) {
            let (mut cache, policies) = cache.settings()?;
            // Two of one's own have two names.
            if let Some(policy) = policies.into_iter().next() {
                cache.policy = if number > 1 { format!("own policy {number}") } else { cache.policy };
                own.push(DefinedPolicy { name: cache.policy.clone(), ..policy });
            }
            settings.push(cache);
        }
        let (title, chunk) = ("the text".to_owned(), Scored::CHUNK);
        let request = Request { title, tokens, prompt, caches: settings, own: &own, chunk, write };
        let view = detached(py, || self.pool.install(|| View::read(&self.model, request)))?;
        Ok(show::page(&view, at.unwrap_or(view.tokens()).clamp(1, view.tokens())))
    }

    /// Texts that continue a prompt: for each its tokens, the text, and whether a stop ended it.
    fn write(
        &self,
        py: Python<'_>,
        prompt: Vec<u32>,
        cache: CacheArguments<'_>,
        settings: WriteArguments,
    ) -> PyResult<Vec<(Vec<u32>, String, bool)>> {
        let settings = settings.settings();
        let length = self.model.written_length(&prompt, &settings);
        let cache = cache.spec(length.map_err(|error| exception(&error.into()))?)?;
        let write = || self.model.write(&prompt, &cache, &settings, Scored::CHUNK);
        let written = detached(py, || self.pool.install(write))?;
        Ok(written.texts.into_iter().map(|text| (text.tokens, text.text, text.ended)).collect())
    }
}

impl Model {
    fn config(&self, cache: &CacheArguments<'_>, length: usize) -> PyResult<CacheConfig> {
        let (settings, own) = cache.settings()?;
        settings.config(&own, self.model.model.shape(), length).map_err(|error| exception(&error.into()))
    }

    fn answer(
        &self,
        py: Python<'_>,
        requests: TextRequests,
        cache: &CacheArguments<'_>,
    ) -> PyResult<Vec<TokenAnswer>> {
        let config = self.config(cache, requests.length)?;
        detached(py, || self.pool.install(|| self.model.answer(requests, &config)))
    }
}

/// The cache, as the Python part gives it.
#[derive(FromPyObject)]
struct CacheArguments<'py> {
    #[pyo3(item)]
    policy: NamedOrOwn<'py>,
    #[pyo3(item)]
    cache_size: Option<String>,
    #[pyo3(item)]
    schedule: Option<String>,
    #[pyo3(item)]
    positions: String,
    #[pyo3(item)]
    local_layers: String,
    #[pyo3(item)]
    format: String,
    #[pyo3(item)]
    seed: u64,
}

#[derive(FromPyObject)]
enum NamedOrOwn<'py> {
    Named(String),
    Own(Bound<'py, Policy>),
}

impl CacheArguments<'_> {
    fn spec(&self, length: TextLength) -> PyResult<CacheSpec> {
        let (settings, own) = self.settings()?;
        settings.spec(&own, length).map_err(|error| exception(&error.into()))
    }

    /// The settings, and the policies that are defined beside presets.
    fn settings(&self) -> PyResult<(CacheSettings, Vec<DefinedPolicy>)> {
        let (policy, own): (String, Vec<DefinedPolicy>) = match &self.policy {
            NamedOrOwn::Named(name) => (name.clone(), Vec::new()),
            NamedOrOwn::Own(policy) => {
                let own = DefinedPolicy { name: "own policy".to_owned(), ..policy.get().0.clone() };
                (own.name.clone(), vec![own])
            }
        };
        let refused = |error: anyhow::Error| pyo3::exceptions::PyValueError::new_err(error.to_string());
        let schedule = self.schedule.as_deref().map(str::parse::<Schedule>).transpose().map_err(refused)?;
        let cache_size = self.cache_size.as_deref().map(str::parse::<CacheSize>).transpose().map_err(refused)?;
        let positions = self.positions.parse().map_err(refused)?;
        let local_layers = self.local_layers.parse().map_err(refused)?;
        let format = self.format.parse().map_err(refused)?;
        let options = CacheOptions { positions, local_layers, format };
        let settings = CacheSettings { policy, cache_size, schedule, options, seed: self.seed };
        Ok((settings, own))
    }
}

/// How texts are written, as the Python part gives it.
#[derive(FromPyObject)]
struct WriteArguments {
    #[pyo3(item)]
    max_new_tokens: usize,
    #[pyo3(item)]
    temperature: f64,
    #[pyo3(item)]
    top_k: Option<usize>,
    #[pyo3(item)]
    top_p: Option<f64>,
    #[pyo3(item)]
    repetition_penalty: f32,
    #[pyo3(item)]
    stop: Vec<String>,
    #[pyo3(item)]
    ignore_eos: bool,
    #[pyo3(item)]
    n: usize,
}

impl WriteArguments {
    fn settings(self) -> WriteSettings {
        let WriteArguments { max_new_tokens, temperature, top_k, top_p, repetition_penalty, stop, .. } = self;
        let (ignore_eos, batch) = (self.ignore_eos, self.n);
        WriteSettings { max_new_tokens, temperature, top_k, top_p, repetition_penalty, stop, ignore_eos, batch }
    }
}
