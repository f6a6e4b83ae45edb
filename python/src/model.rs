//! A loaded model that scores and continues texts.

use anyhow::Context;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tova_bench::eviction::{self, LocalLayers, Positions};
use tova_bench::lm::source::{HubSettings, ModelSource};
use tova_bench::lm::{DeviceChoice, MemoryPlan, ModelFiles, TextThreads, WeightType};
use tova_bench::text::{CacheSettings, Scored, TextModel, WriteSettings};

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
        device: &str,
        threads: Option<usize>,
    ) -> PyResult<Model> {
        detached(py, || {
            let parse = |text: &str| text.parse::<ModelSource>();
            let (source, tokenizer) = (parse(source)?, tokenizer.map(parse).transpose()?);
            let dtype = WeightType::from_name(dtype).context("dtypes are auto, f32, f16 and bf16")?;
            let device = device.parse::<DeviceChoice>().map_err(anyhow::Error::msg)?.open()?;
            let files = ModelFiles::find(&source, tokenizer.as_ref(), &HubSettings::from_env()?, &())?;
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

    /// The text of each token.
    fn pieces(&self, tokens: Vec<u32>) -> PyResult<Vec<String>> {
        self.model.pieces(&tokens).map_err(|error| exception(&error))
    }

    fn score<'py>(
        &self,
        py: Python<'py>,
        tokens: Vec<u32>,
        cache: CacheArguments<'py>,
        log: bool,
    ) -> PyResult<ScoredBytes<'py>> {
        let (plan, truncated) = cache.plan()?;
        let plan = MemoryPlan { log, ..plan };
        let scored =
            detached(py, || self.pool.install(|| self.model.score(&tokens, &plan, truncated, Scored::CHUNK)))?;
        let nll: Vec<f32> = scored.nll.iter().map(|nll| nll.unwrap_or(f32::NAN)).collect();
        let array = |positions: &Vec<u32>| PyBytes::new(py, &bytes(positions, u32::to_ne_bytes));
        let survivors = scored.survivors.iter().map(|layer| layer.iter().map(array).collect()).collect();
        let evictions: Vec<u32> = scored.eviction_rows().flatten().collect();
        Ok((PyBytes::new(py, &bytes(&nll, f32::to_ne_bytes)), survivors, array(&evictions)))
    }

    /// Texts that continue a prompt: for each its tokens, the text, and whether a stop ended it.
    fn write(
        &self,
        py: Python<'_>,
        prompt: Vec<u32>,
        cache: CacheArguments<'_>,
        settings: WriteArguments,
    ) -> PyResult<Vec<(Vec<u32>, String, bool)>> {
        let (plan, truncated) = cache.plan()?;
        let settings = settings.settings();
        let write = || self.model.write(&prompt, &plan, truncated, &settings, Scored::CHUNK);
        let written = detached(py, || self.pool.install(write))?;
        Ok(written.texts.into_iter().map(|text| (text.tokens, text.text, text.ended)).collect())
    }
}

/// The cache, as the Python part gives it.
#[derive(FromPyObject)]
struct CacheArguments<'py> {
    #[pyo3(item)]
    policy: NamedOrOwn<'py>,
    #[pyo3(item)]
    cache_size: Option<usize>,
    #[pyo3(item)]
    positions: String,
    #[pyo3(item)]
    local_layers: String,
    #[pyo3(item)]
    seed: u64,
}

#[derive(FromPyObject)]
enum NamedOrOwn<'py> {
    Named(String),
    Own(Bound<'py, Policy>),
}

impl CacheArguments<'_> {
    fn plan(&self) -> PyResult<(MemoryPlan<'static>, Option<usize>)> {
        let (policy, own): (String, Vec<(String, eviction::Policy)>) = match &self.policy {
            NamedOrOwn::Named(name) => (name.clone(), Vec::new()),
            NamedOrOwn::Own(policy) => ("own policy".to_owned(), vec![("own policy".to_owned(), policy.get().0)]),
        };
        let value =
            |ok: Option<()>, message: String| ok.ok_or_else(|| pyo3::exceptions::PyValueError::new_err(message));
        let positions = Positions::from_name(&self.positions);
        value(positions.map(drop), "positions are absolute, slot or squeezed".to_owned())?;
        let local_layers = LocalLayers::from_name(&self.local_layers);
        value(local_layers.map(drop), "local_layers is bounded or exempt".to_owned())?;
        let settings = CacheSettings {
            policy,
            cache_size: self.cache_size,
            positions: positions.unwrap_or_default(),
            local_layers: local_layers.unwrap_or_default(),
            seed: self.seed,
        };
        settings.plan(&own).map_err(|error| exception(&error.into()))
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
    one_shot: bool,
    #[pyo3(item)]
    n: usize,
}

impl WriteArguments {
    fn settings(self) -> WriteSettings {
        let WriteArguments { max_new_tokens, temperature, top_k, top_p, repetition_penalty, stop, .. } = self;
        let (ignore_eos, one_shot, batch) = (self.ignore_eos, self.one_shot, self.n);
        WriteSettings {
            max_new_tokens,
            temperature,
            top_k,
            top_p,
            repetition_penalty,
            stop,
            ignore_eos,
            one_shot,
            batch,
        }
    }
}
