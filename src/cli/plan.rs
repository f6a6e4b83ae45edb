//! `plan`: what `run` would do, without doing it.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::Args;
use indexmap::{IndexMap, IndexSet};

use super::output::print;
use super::progress::{Mode, Progress};
use super::sweep_args::SweepArguments;
use super::sweep_notes;
use crate::eviction::{CacheOptions, SizedPolicy};
use crate::format::{Bytes, count, counted, duration};
use crate::ledger::{Ledger, Row, Status, reason};
use crate::lm::source::{HubError, HubSettings};
use crate::lm::{Device, machine_name};
use crate::metric::NO_NUMBER;
use crate::report::unmeasured;
use crate::run::{self, ModelTask, NamedCell, Prepared, Unavailable, bytes_per_worker};
use crate::task::Prompt;

/// Show what `run` would do: cells done and to do, tokens, memory, time, downloads
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    sweep: SweepArguments,
    /// Fail (exit code 4) unless every cell is done; the files of all of them are read, and those that are damaged are named
    #[arg(long)]
    check: bool,
    /// Print the first N prompts of each task as the model reads them, with the context marked, and the references; `plan` says
    /// nothing else then
    #[arg(long, value_name = "N", conflicts_with = "check")]
    prompts: Option<usize>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let sweep = arguments.sweep.sweep()?;
    let threads = arguments.sweep.machine.threads();
    let folder = arguments.sweep.results_folder(&sweep);
    let ledger = Ledger::existing(&folder).ok();
    let hub = HubSettings::from_env()?;
    let is_offline = hub.offline;
    // A plan fetches nothing.
    let hub = HubSettings { offline: true, without_weights: true, ..hub };
    let cells = arguments.sweep.cells(&sweep, Mode::Auto)?;
    // Only timed cells depend on the machine; other plans do not need the GPU to be there.
    let timed = sweep.tasks.iter().any(|task| task.is_timed());
    let device = if timed { arguments.sweep.machine.open()? } else { Device::CPU };
    let name = machine_name(&device, threads);
    let mut prepared = run::prepare(&sweep, &cells, ledger.as_ref(), &hub, &Progress::new(Mode::Auto), &name)?;
    if let Some(most) = arguments.prompts {
        let shown = prepared.model_tasks.iter().map(|model_task| prompts(model_task, most)).collect::<String>();
        let (missing, fails) = missing(&prepared, is_offline);
        print(&(shown + &missing))?;
        return Ok(if fails { 4 } else { 0 });
    }
    let mut damaged = String::new();
    if let Some(ledger) = ledger.as_ref().filter(|_| arguments.check) {
        damaged = unmark_damaged(&mut prepared, ledger);
    }
    let found = ledger.map_or_else(String::new, |ledger| without_numbers(&prepared, &ledger));
    let seconds = run::estimate(&prepared, threads)?;
    let (missing, fails) = missing(&prepared, is_offline);
    sweep_notes::without_template(&prepared).iter().for_each(|note| Mode::Auto.note(note));
    let heading = format!("sweep {}, results in {}\n", sweep.name, folder.display());
    let mut on_gpu = String::new();
    if arguments.sweep.machine.device.may_be_gpu() {
        on_gpu = prepared.model_tasks.iter().map(on_gpu_lines).collect();
    }
    print(&(heading + &describe(&prepared, &seconds, threads) + &on_gpu + &found + &damaged + &missing))?;
    let mut cells = prepared.model_tasks.iter().flat_map(|model_task| &model_task.cells);
    let is_complete = prepared.unavailable.is_empty() && cells.all(|cell| cell.status == Status::Done);
    Ok(if fails || (arguments.check && !is_complete) { 4 } else { 0 })
}

/// Lines about a model and a task on a GPU: how many texts fit, how long an H200 takes, and what stays on the host.
fn on_gpu_lines(model_task: &ModelTask) -> String {
    let [smaller, larger] = [80_000_000_000, run::H200_BYTES].map(|memory| run::texts_on_card(model_task, memory));
    let (task, model) = (model_task.task.name, &model_task.model);
    let fit = counted(smaller, "text");
    let mut text = format!("\n{task} with {model} on a GPU: {fit} at once fit in 80 GB, {larger} in 141 GB");
    if let Some(seconds) = run::estimate_on_h200(model_task, larger) {
        let time = duration(seconds);
        text += &format!(
            "; about {time} on an H200 by the rates measured there with LLaMA-2-7B's shape (docs/gpu.md)"
        );
    }
    text += "\n";
    for line in model_task.on_host() {
        text += &format!("  {line}; not in that time\n");
    }
    text
}

/// Counts complete cells whose files are damaged as cells to do, and says what is wrong with them.
fn unmark_damaged(prepared: &mut Prepared, ledger: &Ledger) -> String {
    let cells = prepared.model_tasks.iter_mut().flat_map(|model_task| &mut model_task.cells);
    let mut text = String::new();
    for cell in cells.filter(|cell| cell.status == Status::Done) {
        if let Err(error) = ledger.rows_of(&cell.name) {
            cell.status = Status::Missing;
            text += &format!("\n{error:#}\n");
        }
    }
    text
}

/// Lines about complete cells with scores that are not numbers. Files that cannot be read are passed over.
fn without_numbers(prepared: &Prepared, ledger: &Ledger) -> String {
    let mut text = String::new();
    for ModelTask { model, task, cells, .. } in &prepared.model_tasks {
        let done = cells.iter().filter(|cell| cell.status == Status::Done);
        let rows = done.filter_map(|cell| ledger.rows_of(&cell.name).ok()).flatten();
        let rows: Vec<Row> = rows.filter(|row| row.metric == NO_NUMBER).collect();
        for note in unmeasured(&rows.iter().collect::<Vec<_>>()) {
            text += &format!("\n{} on {} with {model}: {note}\n", task.name, task.dataset);
        }
    }
    text
}

/// The first prompts of a task, between rules of its own, and what is expected of the model.
fn prompts(model_task: &ModelTask, most: usize) -> String {
    let samples = &model_task.samples;
    let mut text = format!("\n{}, {} on {}\n", model_task.model, model_task.task.name, model_task.task.dataset);
    if samples.request(0).is_none() {
        return text + "  reads texts and asks nothing\n";
    }
    for sample in 0..samples.len().min(most) {
        let Some(request) = samples.request(sample) else { continue };
        let Prompt { before, document, after, .. } = &request.prompt;
        let marked =
            if document.is_empty() { String::new() } else { format!("[[context]]{document}[[/context]]") };
        text += &format!("\n--- sample {}\n{before}{marked}{after}\n---\n", request.name);
        for choice in &request.continuations {
            text += &format!("choice: {choice:?}\n");
        }
        for reference in &request.references {
            text += &format!("reference: {reference:?}\n");
        }
    }
    text
}

/// `seconds` are those that are left of the cells of every model and task.
fn describe(prepared: &Prepared, seconds: &[Vec<f64>], threads: usize) -> String {
    let tasks = prepared.model_tasks.iter().zip(seconds);
    let mut text: String = tasks.map(|(task, seconds)| describe_model_task(task, threads, seconds)).collect();
    let cells = prepared.model_tasks.iter().flat_map(|model_task| &model_task.cells);
    let done = cells.clone().filter(|cell| cell.status == Status::Done).count();
    let all = cells.count();
    text += &match all - done {
        0 if all == 0 && !prepared.unavailable.is_empty() => String::new(),
        0 => format!("\n{}: {done} done, nothing to do\n", counted(all, "cell")),
        left => {
            let time = duration(seconds.iter().flatten().sum());
            let cells = counted(all, "cell");
            let threads = counted(threads, "thread");
            format!("\n{cells}: {done} done, {left} to do, about {time} with {threads} of the processor\n")
        }
    };
    if prepared.in_other_shards > 0 {
        text += &format!("{} left to other shards\n", counted(prepared.in_other_shards, "cell"));
    }
    text
}

/// A model and a task: a line about both, a table of the cells with the seconds that each takes, and what to know about
/// lengths and memory.
fn describe_model_task(model_task: &ModelTask, threads: usize, seconds: &[f64]) -> String {
    let shape = &model_task.files.shape;
    let mut text = format!(
        "\n{} ({} parameters{}, {}), {} on {} ({}, {} tokens, BOS {})\n",
        model_task.model,
        count(shape.parameters()),
        if shape.active_parameters() < shape.parameters() {
            format!(", {} active", count(shape.active_parameters()))
        } else {
            String::new()
        },
        model_task.files.weights_in_words(),
        model_task.task.name,
        model_task.task.dataset,
        counted(model_task.samples.len(), "sample"),
        count(model_task.total_work() as u64),
        if model_task.bos { "yes" } else { "no" },
    );
    let width = model_task.cells.iter().map(|cell| cell.cell.label().len()).max().unwrap_or(0).max(12);
    let sizes = model_task.cells.iter().filter_map(|cell| cell.cell.size_text());
    let size_width = sizes.map(|size| size.len()).max().unwrap_or(0).max(6);
    let line = |policy: &str, size: &str, entries: &str, state: &str, cache: &str, time: &str| {
        format!("  {policy:<width$} {size:>size_width$} {entries:>12}  {state:<28} {cache:>12} {time:>10}\n")
    };
    text += &line("policy", "size", "entries", "state", "allocated", "time");
    for (cell, seconds) in model_task.cells.iter().zip(seconds) {
        let size = cell.cell.size_text().unwrap_or("-".into());
        let entries = model_task.task.cache_entries(&cell.cell.cache, shape);
        let cache = Bytes(shape.cache_bytes_by_head(&entries, cell.cell.cache.options)).to_string();
        let state = state(model_task, cell);
        let own = own_entries(model_task, cell);
        text += &line(&cell.cell.label(), &size, &own, &state, &cache, &duration(*seconds));
    }
    let longest = model_task.samples.longest();
    if longest > shape.max_positions {
        text += &format!(
            "  lengths: texts have up to {longest} tokens, and the model was trained on {}; it may predict poorly beyond\n",
            shape.max_positions
        );
    }
    text += &idle_sizes(model_task);
    text += &exceptions(model_task);
    for run::Alias { cell, of } in &model_task.aliases {
        let size = cell.size_text().unwrap_or("-".into());
        text += &line(&cell.label(), &size, "", &format!("the same as {of}"), "", "");
    }
    text + &match model_task.task.granted_memory {
        Some(memory) => format!("  memory: {memory} for weights and caches, set by the task\n"),
        None => format!(
            "  memory: the weights, and up to {} for each text read in parallel (at most {threads}), or {} on a GPU (as many as fit)\n",
            Bytes(bytes_per_worker(model_task, 1, false)),
            Bytes(bytes_per_worker(model_task, 1, true)),
        ),
    }
}

/// A line for each policy about the sizes at which it evicts nothing from any text.
fn idle_sizes(model_task: &ModelTask) -> String {
    let (shape, samples) = (&model_task.files.shape, &model_task.samples);
    let unbounded = shape.most_entries(None, CacheOptions::default());
    // With a budget a layer may be smaller than the text although its size is not.
    let evicts = |cell: &NamedCell| {
        let config = model_task.cache_config(cell);
        (0..samples.len()).any(|sample| {
            let lengths = samples.lengths(sample, &config);
            let policy = config.sized_for(shape, &lengths);
            let has_lost = |seen: usize| {
                let held = shape.entries_after((policy, cell.cell.cache.options), seen, lengths.whole());
                held.iter().zip(&unbounded).any(|(held, window)| *held < seen.min(*window))
            };
            has_lost(lengths.whole()) || has_lost(lengths.tokens)
        })
    };
    let mut idle: IndexMap<(String, String), Vec<String>> = IndexMap::new();
    let evicting = model_task.cells.iter().filter(|cell| cell.cell.cache.rule.policy().is_some());
    for cell in evicting.filter(|cell| !evicts(cell)) {
        let full = ["full".into()].into_iter().chain(cell.cell.cache.options.without_evictions().unusual());
        let key = (cell.cell.label(), full.collect::<Vec<_>>().join("@"));
        idle.entry(key).or_default().extend(cell.cell.size_text());
    }
    let line = |((policy, full), sizes): ((String, String), Vec<String>)| {
        format!("  {policy} evicts nothing at {}: equal to {full}\n", sizes.join(", "))
    };
    idle.into_iter().map(line).collect()
}

/// The entries that a cell's samples have, `64` or `51 to 128`.
fn own_entries(model_task: &ModelTask, cell: &NamedCell) -> String {
    let config = model_task.cache_config(cell);
    let measured =
        (0..model_task.samples.len()).filter(|sample| model_task.samples.unmeasurable(*sample).is_none());
    let sizes = measured.filter_map(|sample| {
        let lengths = model_task.samples.lengths(sample, &config);
        config.entries_for(&model_task.files.shape, &lengths)
    });
    let sizes: BTreeSet<usize> = sizes.collect();
    match (sizes.first(), sizes.last()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (Some(size), _) => size.to_string(),
        _ => "-".into(),
    }
}

/// Lines about samples that no policy can measure, texts that are too short or repeat their prompt, and prompts that are shorter than a
/// share of them needs.
fn exceptions(model_task: &ModelTask) -> String {
    let samples = &model_task.samples;
    let all = 0..samples.len();
    let refused = all.clone().filter_map(|sample| Some((samples.name(sample).0, samples.unmeasurable(sample)?)));
    let refused: Vec<_> = refused.collect();
    let mut text = String::new();
    if let Some((name, reason)) = refused.first() {
        let counted = counted(refused.len(), "sample");
        text += &format!(
            "  left out: {counted} of {} cannot be measured, the first is {name}: {reason}\n",
            samples.len()
        );
    }
    // As the report says it of rows.
    let facts = all.clone().flat_map(|sample| {
        let name = samples.name(sample).0;
        let of_sample = Row { sample: name.into(), ..Row::default() };
        samples.facts(sample).into_iter().map(move |fact| run::of_metric(&fact, &of_sample))
    });
    let facts: Vec<Row> = facts.collect();
    for note in unmeasured(&facts.iter().collect::<Vec<_>>()) {
        text += &format!("  {note}\n");
    }
    for cell in &model_task.cells {
        let config = model_task.cache_config(cell);
        let raised =
            |sample: &usize| config.raises_share(&model_task.files.shape, &samples.lengths(*sample, &config));
        let raised = all.clone().filter(raised).count();
        if raised > 0 {
            text += &format!(
                "  shares: of {raised} of {} {} is less than {} protects; it keeps what it protects there\n",
                counted(samples.len(), "sample"),
                cell.cell.size_text().unwrap_or_default(),
                cell.cell.label()
            );
        }
        let mut sized = all
            .clone()
            .filter_map(|sample| config.sized_for(&model_task.files.shape, &samples.lengths(sample, &config)));
        let protected = |policy: SizedPolicy| policy.protected().into_iter().fold(0, usize::saturating_add);
        let mostly = |policy: &SizedPolicy| (policy.size / 2 + 1..policy.size).contains(&protected(*policy));
        if let Some(policy) = sized.find(mostly) {
            text += &format!(
                "  {} protects {} of {} entries, so its score chooses few\n",
                cell.cell.label(),
                protected(policy),
                policy.size
            );
        }
    }
    text
}

/// A line for each reason why models or texts of cells are missing, and whether `run` would fail as well, as it cannot fetch them.
fn missing(prepared: &Prepared, is_offline: bool) -> (String, bool) {
    let needs_network = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref::<HubError>(), Some(HubError::Offline(_)))
    };
    let mut fails = false;
    let mut reasons: IndexMap<String, (usize, IndexSet<String>)> = IndexMap::new();
    for Unavailable { model, task, cells, error } in &prepared.unavailable {
        let reason = if !is_offline && error.chain().any(needs_network) {
            "not on this machine yet; `run` fetches what is missing from the hub, and `fetch --without-weights` what `plan` reads".to_string()
        } else {
            fails = true;
            format!("{error:#}")
        };
        let (all, names) = reasons.entry(reason).or_default();
        *all += cells;
        names.insert(format!("{task} with {model}"));
    }
    let line = |(reason, (cells, names)): (String, (usize, IndexSet<String>))| {
        let (cells, names) = (counted(cells, "cell"), names.into_iter().collect::<Vec<_>>().join(", "));
        format!("\n{cells} cannot be planned ({names}): {reason}\n")
    };
    (reasons.into_iter().map(line).collect(), fails)
}

/// Most letters of the reason of a failure.
const MOST_OF_REASON: usize = 120;

fn state(model_task: &ModelTask, cell: &NamedCell) -> String {
    match (&cell.status, model_task.measured(cell).0) {
        (Status::Done, _) => "done".into(),
        (Status::Failed { message, .. }, _) => {
            format!(
                "failed: {}",
                reason(message, cell.name.stem()).chars().take(MOST_OF_REASON).collect::<String>()
            )
        }
        (_, 0) => "to do".into(),
        // Its own, and those that other cells have.
        (_, done) => format!("{done} of {} samples done", model_task.samples.len()),
    }
}
