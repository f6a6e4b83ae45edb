//! `list`: what sweeps can name.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use indexmap::IndexSet;
use serde_json::Value;

use super::output::print;
use crate::eviction::formula::{WORDS, calls};
use crate::eviction::{
    CacheOptions, FORMATS, Policy, SCORES, Schedule, VectorFormat,
    presets::{self, PRESETS},
};
use crate::lm::{DeviceChoice, ModelShape, families, tiny_shape};
use crate::sweep::{BUILT_IN, json_schema};
use crate::task;

/// List what sweeps can name
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// What to list
    #[arg(value_enum, default_value = "policies")]
    what: Listable,
    /// With `policies` and cuda: which policies a GPU computes under which schedule, and why the processor computes the others
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// With `benchmarks`: task files or folders of them, such as those of lm-evaluation-harness, in place of the built-in ones
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Listable {
    Policies,
    Scores,
    Tasks,
    Benchmarks,
    Formats,
    Models,
    Sweeps,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    print(&match arguments.what {
        Listable::Policies if arguments.device.is_some_and(DeviceChoice::is_gpu) => on_gpu(),
        Listable::Policies => policies(),
        Listable::Scores => scores(),
        Listable::Tasks => tasks()?,
        Listable::Benchmarks if !arguments.files.is_empty() => {
            let (text, fails) = benchmarks_in(&arguments.files)?;
            print(&text)?;
            return Ok(if fails { 1 } else { 0 });
        }
        Listable::Benchmarks => benchmarks(),
        Listable::Formats => formats(),
        Listable::Models => {
            format!("{MODELS}\nArchitectures, by the `model_type` of config.json: {}\n", families().join(", "))
        }
        Listable::Sweeps => sweeps(),
    })
}

fn policies() -> String {
    let mut text = String::from(
        "Sweeps may also name these, which are not eviction policies:\n  \
         full         the unbounded cache; one cell, whatever the sizes\n  \
         truncate     the text in pieces of k tokens, each with an empty cache (the paper's Baseline)\n\n\
         Policies. A number after + always keeps that many first tokens. What follows an @ goes before what the sweep says:\n\
         when entries leave (tova@cut, h2o@128, tova@cut+16), the positions at which keys are rotated (window+4@slot),\n\
         or how keys and values are stored (tova@q8_0, see `list formats`)\n",
    );
    for preset in PRESETS.iter() {
        let name = format!("{}[+I]", preset.name);
        // One whose file is not there has no identity.
        let policy =
            preset.policy().map_or_else(|_| format!("score={}", preset.score), |policy| policy.to_string());
        text += &format!("  {name:<16} {}\n{:18} {}\n{:18} {}\n", preset.summary, "", policy, "", preset.source);
    }
    text + "\nA sweep can define more:\n  define:\n    \
            tova-r16: {score: last_attention, scope: layer, keep_first: 0, keep_recent: 16}\n"
}

/// Where attention of each preset is computed beside a GPU, under its own schedule and under others.
fn on_gpu() -> String {
    // With more layers than any preset leaves alone.
    let (shape, mut reasons) = (ModelShape::random(ModelShape { layers: 4, ..tiny_shape() }), IndexSet::new());
    let mut place = |policy: Policy, schedule: Option<Schedule>| {
        let policy = Policy { schedule: schedule.unwrap_or(policy.schedule), ..policy };
        let Ok(sized) = policy.at(4096) else { return "-".to_owned() };
        let reason = shape.why_on_host(Some(sized), CacheOptions::default());
        let Some(reason) = reason else { return "GPU".to_owned() };
        format!("host ({})", reasons.insert_full(reason).0 + 1)
    };
    let schedules = ["1", "128", "cut"].map(|text| text.parse().expect("a schedule"));
    let line = |name: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:<9}")).collect();
        format!("{name:<16}{}\n", cells.trim_end())
    };
    let head = ["as listed", "1", "128", "cut"].map(str::to_owned);
    let mut text = line("policy", &head);
    for preset in PRESETS.iter() {
        // In place of one whose file is not there: a score that kernels do not know either, or another budget that divides entries among heads.
        let like = if preset.budget().is_err() { "adakv" } else { "lagkv" };
        let schedule = presets::own_schedule(preset.name);
        let like = || Some(Policy { schedule, ..presets::by_name(like)? });
        let Some(policy) = preset.policy().ok().or_else(like) else { continue };
        let schedules = std::iter::once(None).chain(schedules.map(Some));
        let cells: Vec<String> = schedules.map(|schedule| place(policy, schedule)).collect();
        text += &line(preset.name, &cells);
    }
    text += "\n`-`: the policy has no such schedule. On the host because\n";
    for (at, reason) in reasons.iter().enumerate() {
        text += &format!("({}) {reason}\n", at + 1);
    }
    text
}

fn scores() -> String {
    let mut text = String::from(
        "A policy is {score, scope: layer | head | model, keep_first, keep_recent, pool: mean | max}. A score is one of these names\n\n",
    );
    for score in SCORES {
        text += &format!("  {:<22} {:<16} {}\n", score.name, score.value, score.meaning);
    }
    text += "\nor a formula, such as 0.7 * attention + 0.3 * ema(attention, 0.9). The entry with the lowest value is evicted, the\n\
             oldest of equal ones. Formulas have numbers, + - * /, < <= > >= == != (1 or 0), parentheses, words and functions. A\n\
             formula is computed for every query head, and then pooled over the heads of the decision.\n\n";
    for word in WORDS.iter() {
        text += &format!("  {:<22} {}\n", word.name, word.meaning);
    }
    text += "\n";
    for function in calls() {
        text += &format!("  {}{}\n", function.name, function.meaning);
    }
    text
}

fn formats() -> String {
    let mut text = String::from(
        "How a cache stores keys and values: `format: q8_0` in a sweep, tova@q8_0 or full@q4_0 after a policy, q8_0/q4_0 for keys and values.\n\
         What is stored is what queries attend to. Bits a number, scales included, for heads of 64 and of 128 numbers:\n\n",
    );
    for known in FORMATS {
        let vector = VectorFormat { numbers: known.value, hadamard: false };
        // In the long run, so that KIVI's newest entries do not count.
        let bits = |dim: usize| match known.value.kivi_bits() {
            Some(_) => known.value.stored_bytes(dim) as f64 * 8.0 / dim as f64,
            None => vector.counted_bytes(dim, 1) as f64 * 8.0 / dim as f64,
        };
        text += &format!("  {:<10} {:<6} {:<6} {}\n", known.name, bits(64), bits(128), known.meaning);
    }
    text + "\nWith an h after its name (q4_0h) a format of llama.cpp is of vectors that are turned by a Hadamard matrix, as llama.cpp turns them \
            by default (not with LLAMA_ATTN_ROT_DISABLE=1): keys by the largest that divides a head, values by one of 64 numbers at most.\n"
}

fn benchmarks() -> String {
    let mut text = String::from("Built-in benchmarks, for `- benchmark: NAME` in a sweep:\n");
    for (name, about) in task::builtin_benchmarks() {
        text += &format!("  {name:<30} {about}\n");
    }
    text +=
        "\nA file of your own, or of lm-evaluation-harness, is named by its path. The metrics that it may name:\n";
    for (name, outputs, about) in task::benchmark_metrics() {
        text += &format!("  {name:<16} {about} ({outputs})\n");
    }
    text
}

/// Whether each file can be measured here, and if not, why. Of a folder, a file whose name begins with `_` and that cannot is only there
/// to be included.
fn benchmarks_in(paths: &[PathBuf]) -> Result<(String, bool)> {
    let is_included = |file: &Path| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('_'));
    let (mut text, mut fails) = (String::new(), false);
    for path in paths {
        let files = if path.is_dir() { task::benchmark_files(path)? } else { vec![path.clone()] };
        for file in files {
            match task::check_benchmark(&file) {
                Ok(tasks) => text += &format!("{}: {}\n", file.display(), tasks.join(", ")),
                Err(_) if path.is_dir() && is_included(&file) => {}
                Err(error) => {
                    fails = true;
                    text += &format!("{}\n", error.to_string().replace("\nhint: ", "; "));
                }
            }
        }
    }
    Ok((text, fails))
}

fn sweeps() -> String {
    let mut text = String::from("Built-in sweeps; `run` and `plan` take the first when none is named:\n");
    for (name, yaml) in BUILT_IN {
        text += &format!("\n--- {name} ---\n{yaml}");
    }
    text
}

/// The tasks as the JSON Schema describes them.
fn tasks() -> Result<String> {
    let schema: Value = serde_json::from_str(&json_schema()?)?;
    let tasks = schema["properties"]["tasks"]["items"]["properties"].as_object();
    let mut text = String::from("Tasks and their settings, which `tova-bench schema` describes:\n");
    for (name, task) in tasks.context("the schema has no tasks")? {
        let settings: Vec<&str> =
            task["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let description = task["description"].as_str().unwrap_or_default();
        text += &format!("\n{name}\n  {description}\n  settings: {}\n", settings.join(", "));
    }
    Ok(text)
}

const MODELS: &str = "\
./folder, ../folder, /folder   a Hugging Face checkpoint (config.json, *.safetensors, tokenizer.json)
./model.gguf                   a GGUF file, as llama.cpp writes it: shape, weights and tokenizer in one
owner/name[@revision]          a checkpoint on the hub (HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE)
owner/name[@revision]:a.gguf   a GGUF file on the hub
pocket                         a small trained model inside the program, for the texts of `embedded`
random-tiny                    a tiny model with random weights
random-h512-l8-a8-f1408-v8000  random weights of a given shape: hidden size, layers, attention heads (and -k2:
                               key-value heads, if fewer), MLP size, vocabulary (and -s32: attention 32 times as sharp)

Weights: safetensors in f32, f16 or bf16; GGUF's F32, F16, BF16, Q4_0 to Q8_1, Q2_K to Q8_K and MXFP4
";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::eviction::presets::Preset;
    use crate::eviction::{Amount, Budget, FirstTokens, Schedule};

    /// A row of the table of policies in docs/sweeps.md.
    fn row(preset: &Preset) -> String {
        let newest = match preset.keep_recent {
            Amount::Tokens(0) => None,
            Amount::Percent(50) => Some("newest half".to_owned()),
            Amount::Percent(percent) => Some(format!("newest {percent} %")),
            Amount::Tokens(tokens) => Some(format!("newest {tokens}")),
        };
        let first = (preset.keep_first != FirstTokens::default()).then(|| format!("first {}", preset.keep_first));
        let protected = first.into_iter().chain(newest).collect::<Vec<_>>().join(", ");
        let Preset { name, score, summary, .. } = preset;
        let scope = preset.scope.name();
        let schedule = match preset.schedule {
            every if every == Schedule::EVERY_TOKEN => String::new(),
            other => format!("`{other}`"),
        };
        let budget = match preset.budget() {
            Ok(Budget::Uniform) => String::new(),
            Ok(budget) => format!("; `budget: {budget}`"),
            Err(_) => "; `budget: {heads: ./full_attention_heads.tsv, full: 50%}`".to_owned(),
        };
        let select = match preset.select_from {
            None => String::new(),
            Some(0) => "; `select`".to_owned(),
            Some(from) => format!("; `select: {{from_layer: {from}}}`"),
        };
        format!("| `{name}` | {summary} | `{score}`{select}{budget} | {scope} | {protected} | {schedule} |")
    }

    #[test]
    fn the_page_has_the_program_s_table_of_policies() {
        let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sweeps.md")).unwrap();
        let rows: Vec<String> = PRESETS.iter().map(row).collect();
        let own = page
            .split_once("\n## Policies\n")
            .unwrap()
            .1
            .lines()
            .skip_while(|line| !line.starts_with("| `window`"));
        let own: Vec<&str> = own.take_while(|line| line.starts_with("| `")).collect();
        assert_eq!(own, rows, "docs/sweeps.md, Policies, is to have these rows:\n{}\n", rows.join("\n"));
        for preset in PRESETS.iter() {
            assert!(policies().contains(&format!("\n  {}[+I] ", preset.name)), "{}", preset.name);
        }
    }

    #[test]
    fn the_page_has_the_program_s_table_of_gpus() {
        let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/gpu.md")).unwrap();
        let (_, text) = page.split_once("\n<!-- list policies --device cuda -->\n```text\n").unwrap();
        assert_eq!(text.split_once("```\n").unwrap().0, on_gpu());
    }
}
