//! Makes result rows of measurements, new ones and those that another cell has.

use crate::eviction::{Budget, CacheRule, CacheSize, Policy};
use crate::ledger::{ENGINE_VERSION, Listing, Row, Settings, Text, Window, Windows, date};
use crate::lm::{LayerAttention, ModelShape};
use crate::metric::{MetricSum, REPEATS_PROMPT, SHARE_RAISED, SIDE_FILES, TOO_SHORT};
use crate::task::SampleResult;

use super::prepare::{ModelTask, NamedCell};

/// The rows of one sample of a cell. `common` has the columns that say where it was measured.
pub(super) fn measured(
    common: &Row,
    sweep: &str,
    model_task: &ModelTask,
    named: &NamedCell,
    sample: usize,
    result: &SampleResult,
    side_files: &Listing,
) -> Vec<Row> {
    let of_sample = Row {
        prompt_tokens: result.prompt_tokens as u32,
        new_tokens: result.new_tokens as u32,
        engine: ENGINE_VERSION,
        commit: option_env!("TOVA_BENCH_COMMIT").map(Text::from),
        seconds: result.seconds,
        held_bytes: result.memory.map(|memory| memory.held),
        read_bytes: result.memory.map(|memory| memory.read),
        peak_bytes: result.memory.map(|memory| memory.peak),
        allocated_bytes: result.allocated_bytes,
        date: date(),
        ..common.clone()
    };
    let row =
        |sum: &MetricSum| placed(of_metric(sum, &of_sample), sweep, model_task, named, (sample, result.own_size));
    let config = model_task.cache_config(named);
    let lengths = model_task.samples.lengths(sample, &config);
    let is_raised = result.own_size.is_some() && config.raises_share(&model_task.files.shape, &lengths);
    let raised = is_raised.then(|| MetricSum::new(SHARE_RAISED, 1.0, 1.0));
    let facts = model_task.samples.facts(sample);
    let listed = (!side_files.is_empty()).then(|| MetricSum {
        output: Some(serde_json::json!(side_files).to_string()),
        ..MetricSum::new(SIDE_FILES, side_files.len() as f64, 1.0)
    });
    result.sums.iter().chain(&raised).chain(&facts).chain(&listed).map(row).collect()
}

/// The rows of a sample, as this cell would have measured them, from the rows of another cell; `None` if that does not
/// have it.
pub(super) fn reused(
    sweep: &str,
    model_task: &ModelTask,
    named: &NamedCell,
    sample: usize,
    rows: &[Row],
) -> Option<Vec<Row>> {
    let id = model_task.sample_id(named, sample)?;
    let measured: Vec<&Row> = rows.iter().filter(|row| row.sample_id == id).collect();
    let text = measured.iter().find_map(|row| row.output.as_deref().filter(|_| row.metric == TEXT));
    // What cannot be scored is measured again, and fails there with the reason.
    let scores = text.map_or(Ok(Vec::new()), |text| model_task.samples.rescored(sample, text)).ok()?;
    let own_size = measured.first().and_then(|row| row.cache_size).map(|size| size as usize);
    let own_size = own_size.filter(|_| named.cell.cache.relative.is_some());
    let rows = measured.iter().map(|&old| {
        let is_same = |sum: &&MetricSum| sum.metric == old.metric && sum.slice == old.slice;
        let (value, weight) =
            scores.iter().find(is_same).map_or((old.value, old.weight), |sum| (sum.value, sum.weight));
        placed(Row { value, weight, ..old.clone() }, sweep, model_task, named, (sample, own_size))
    });
    let mut rows: Vec<Row> =
        rows.filter(|row| ![REPEATS_PROMPT, TOO_SHORT].contains(&row.metric.as_str())).collect();
    // What is said of this task's samples, whatever was said of those of the other cell's.
    let first = Row { question: None, references: None, ..rows.first()?.clone() };
    rows.extend(model_task.samples.facts(sample).iter().map(|fact| of_metric(fact, &first)));
    Some(rows)
}

/// Makes the row of a metric; what it says of the sample is that of `of_sample`.
pub fn of_metric(sum: &MetricSum, of_sample: &Row) -> Row {
    let MetricSum { metric, slice, value, weight, output } = sum.clone();
    Row { metric: metric.into(), slice, value, weight, output, ..of_sample.clone() }
}

/// The metric whose row holds the text that was written, with question and references.
const TEXT: &str = "new_tokens";

/// Column `windows` of a model's rows; `None` where every layer has a cache without a window.
fn windows(shape: &ModelShape) -> Option<Text> {
    let window = |layer: &LayerAttention| match layer.window {
        _ if !layer.has_cache() => Window::NoCache,
        None => Window::Unlimited,
        Some(window) if layer.is_chunked => Window::Pieces(window as u32),
        Some(window) => Window::Sliding(window as u32),
    };
    let has_all = shape.attention.iter().all(LayerAttention::has_cache);
    let windows = || Windows(shape.attention.iter().map(window).collect());
    (shape.has_windows() || !has_all).then(|| windows().to_string().into())
}

/// A row with the columns that say what was measured, from one with the others.
fn placed(
    measured: Row,
    sweep: &str,
    model_task: &ModelTask,
    named: &NamedCell,
    (sample, own_size): (usize, Option<usize>),
) -> Row {
    let cell = &named.cell;
    let request = model_task.samples.request(sample);
    let request = request.filter(|_| measured.metric == TEXT);
    let question = request.map(|request| request.prompt.question()).filter(|question| !question.is_empty());
    let references = request.map(|request| &request.references).filter(|references| !references.is_empty());
    let references = references.map(|references| serde_json::Value::from(references.clone()).to_string());
    let sample_id = model_task.sample_id(named, sample).unwrap_or_default();
    let start = model_task.samples.start(sample).map(|start| start as u32);
    let (sample, cluster) = model_task.samples.name(sample);
    let (stride, tail) = match &cell.task.texts {
        Some(texts) => (texts.stride(model_task.bos), texts.tail.name()),
        None => (0, ""),
    };
    let relative = cell.cache.relative;
    let generation = cell.task.generation_settings(model_task.samples.template());
    let (policy, size): (Option<Policy>, Option<usize>) = match cell.cache.rule {
        CacheRule::Unbounded => (None, None),
        CacheRule::Truncate { size } => (None, Some(own_size.unwrap_or(size))),
        CacheRule::Evict { policy, size } => (Some(policy.canonical()), Some(own_size.unwrap_or(size))),
    };
    Row {
        cell: named.name.id().to_string().into(),
        sweep: sweep.into(),
        model: model_task.model.to_string().into(),
        model_revision: model_task.revision.to_string().into(),
        policy: cell.policy.as_str().into(),
        score: policy.map(|policy| policy.score.name().into()),
        scope: policy.map(|policy| policy.scope_text().into()),
        keep_first: policy.map_or(0, |policy| policy.keep_first.of(size.unwrap_or_default()) as u32),
        keep_recent: policy.map_or(0, |policy| policy.keep_recent.of(size.unwrap_or_default()) as u32),
        cache_size: size.map(|size| size as u32),
        cache_share: if let Some(CacheSize::Share(share)) = relative { Some(share.number()) } else { None },
        cache_memory: if let Some(CacheSize::Memory(memory)) = relative {
            Some(memory.to_string().into())
        } else {
            None
        },
        budget: policy.filter(|policy| policy.budget != Budget::Uniform).map(|p| p.budget.to_string().into()),
        definition: policy.map(|policy| policy.definition().into()),
        select_from: policy.and_then(|policy| Some(policy.select_from? as u32)),
        schedule: policy.map(|_| cell.cache.rule.schedule().to_string().into()),
        positions: cell.cache.options.positions.name().into(),
        local_layers: policy
            .filter(|_| model_task.files.shape.has_windows())
            .map(|_| cell.cache.options.local_layers.name().into()),
        format: Some(cell.cache.options.format.to_string().into()),
        windows: windows(&model_task.files.shape),
        prefill: cell.task.prefill().into(),
        task: cell.task.name.into(),
        dataset: cell.task.dataset.as_str().into(),
        length: cell.task.length as u32,
        stride: stride as u32,
        bos: model_task.bos,
        tail: tail.into(),
        generation: (!generation.is_empty()).then(|| Settings::from_iter(&generation).to_string().into()),
        compare_to_full: cell.task.compare_to_full.unwrap_or(false),
        selection: Settings::from_iter(&cell.task.shown_selection()).to_string().into(),
        data: model_task.data.as_ref().into(),
        seed: cell.cache.seed,
        sample: sample.into(),
        cluster: cluster.into(),
        sample_id,
        question: question.map(str::to_string),
        references,
        start,
        ..measured
    }
}
