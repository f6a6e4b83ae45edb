//! The command line: what can be typed. Flags select and place; none changes what a cell means.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use super::baseline::BaselineArguments;
use super::compare::CompareArguments;
use super::doctor::DoctorArguments;
use crate::eviction::Positions;
use crate::ledger::Only;
use crate::lm::{DeviceChoice, WeightType};
use crate::report::{Distance, FORMATS, Format};
use crate::sweep::Shard;
use crate::world::{self, Split};

/// How small can a transformer's key-value cache be?
///
/// Reads a sweep over model x cache policy x cache size, measures every cell exactly, writes Parquet rows and draws
/// curves. Running the same command again continues where it stopped.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 `compare` found a regression or\n\
something missing, 4 cells failed (the others are measured),\n\
130, 138 or 143 interrupted by SIGINT, SIGUSR1 or SIGTERM (run again to continue)."
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure the cells of a sweep, then report; cells that are done are skipped
    Run(RunArguments),
    /// Say what `run` would do: cells done and to do, tokens, memory, time, downloads
    Plan(PlanArguments),
    /// Fetch the models and texts of a sweep, so that `run` needs no network
    ///
    /// For machines without one, such as the compute nodes of a cluster: fetch where there is a network, then run there
    /// with HF_HUB_OFFLINE=1 and the same HF_HOME.
    Fetch(FetchArguments),
    /// Bring the results of several folders together in one, such as those of shards
    Merge(MergeArguments),
    /// Draw tables and curves from results; no model is needed
    Report(ReportArguments),
    /// Compare results with a baseline and fail (exit code 3) where they got worse
    Compare(CompareArguments),
    /// Save results as a baseline to compare with, list them, show one
    Baseline(BaselineArguments),
    /// Ask another model which of two stories is better: a bounded cache's, or the full cache's
    ///
    /// Each pair is asked about twice, with places swapped. Every verdict is written into the results; running the
    /// same command again asks only what has no answer yet.
    Judge(JudgeArguments),
    /// Read one text under one cache rule and print its NLLs and survivors as JSON
    Score(ScoreArguments),
    /// Write texts under one cache rule and print their tokens as JSON
    Write(WriteArguments),
    /// Write answers down in the form of others' scoring programs
    Export(ExportArguments),
    /// List what sweeps can name
    List(ListArguments),
    /// Print the JSON Schema of sweep files, with which editors complete and check them
    ///
    /// Save it beside a sweep, `tova-bench schema > sweep.schema.json`, and begin the sweep with the line
    /// `# yaml-language-server: $schema=sweep.schema.json`.
    Schema,
    /// Print made-up texts as JSON lines, with the facts they ask a reader to recall
    Worlds(WorldsArguments),
    /// Check this machine: device, instruction sets, speed, memory, caches, hub
    Doctor(DoctorArguments),
}

#[derive(Debug, Args)]
pub struct SweepArguments {
    /// The sweep's YAML file, or a built-in sweep: pocket (the default) or smoke; those need no file and no network
    pub sweep: Option<PathBuf>,
    /// Results folder [default: results/<name of the sweep>]
    #[arg(short, long, env = "TOVA_BENCH_RESULTS", value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Only cells with this value, such as policy=tova,h2o or size=64; may be given several times
    #[arg(long, value_name = "KEY=VALUES")]
    pub only: Vec<Only>,
    /// Only the first N cells
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Only the i-th of n shares of the cells, which take about the same time, such as 2/8 [default: all; in a Slurm
    /// array job the task's]
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Where to compute: cpu, cuda, cuda:N or auto
    #[arg(long, env = "TOVA_BENCH_DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
    /// Threads to use [default: all cores; in a Slurm job those of the task]
    #[arg(long, env = "TOVA_BENCH_THREADS", value_name = "N")]
    pub threads: Option<usize>,
}

#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub sweep: SweepArguments,
    /// Cells measured at the same time by jobs of their own: one for each card, from --device on, or on the CPU for
    /// each part of the threads
    #[arg(long, env = "TOVA_BENCH_JOBS", default_value = "1", value_name = "N")]
    pub jobs: NonZeroUsize,
    /// Measure only, draw nothing
    #[arg(long)]
    pub no_report: bool,
}

#[derive(Debug, Args)]
pub struct PlanArguments {
    #[command(flatten)]
    pub sweep: SweepArguments,
    /// Fail (exit code 4) unless every cell is done
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Args)]
pub struct FetchArguments {
    /// The sweep's YAML file
    #[arg(value_name = "SWEEP")]
    pub sweep: PathBuf,
    /// Only cells with this value, such as model=owner/name; may be given several times
    #[arg(long, value_name = "KEY=VALUES")]
    pub only: Vec<Only>,
}

#[derive(Debug, Args)]
pub struct MergeArguments {
    /// The results folder to make, or to add to
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// Results folders; they stay as they are
    #[arg(required = true, value_name = "RESULTS")]
    pub results: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Results folders to draw together
    #[arg(required = true, value_name = "RESULTS")]
    pub results: Vec<PathBuf>,
    /// Only cells with this value, such as policy=full,tova or size=64,512, which keeps the full cache; may be given
    /// several times
    #[arg(long, value_name = "KEY=VALUES")]
    pub only: Vec<Only>,
    /// Where to write report.html, report.md, summary.md, report.csv, pairs.csv, report.tex and figures/ [default: the first results folder]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Say the smallest cache of each policy so near to the full cache, such as 0.4ppl, 1f1, 1rouge, 2recall or 5% (of the
    /// full cache's value); may be given several times [default: the distances of the paper's claims]
    #[arg(long, value_name = "DISTANCE")]
    pub within: Vec<Distance>,
    /// What to write [default: all but pdf; of --figure all]
    #[arg(long, value_parser = format(), value_delimiter = ',', value_name = "FORMATS")]
    pub format: Vec<&'static Format>,
    /// Redraw figures or tables of the paper (arXiv 2401.06104) into DIR/paper instead, by their numbers: 3 or figure3,
    /// table1, several with commas, or all that the rows can give
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    pub figure: Vec<String>,
    /// Lay the paper's own numbers over a figure, and say by how much these differ
    #[arg(long, requires = "figure")]
    pub paper: bool,
    /// Columns of a paper that a figure spans: 1 (3.3 inches) or 2 (6.9 inches) [default: what its panels need]
    #[arg(long, requires = "figure", value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub columns: Option<u8>,
}

/// A format of a report, by its name.
fn format() -> impl TypedValueParser<Value = &'static Format> {
    let values = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(values).map(|name| Format::named(&name).expect("the parser knows no other names"))
}

#[derive(Debug, Args)]
pub struct JudgeArguments {
    /// Results folder with stories, the full cache's among them; verdicts are added to it
    #[arg(value_name = "RESULTS")]
    pub results: PathBuf,
    /// The judge, as its endpoint calls it, such as gpt-4-0613
    #[arg(long, env = "TOVA_BENCH_JUDGE_MODEL", value_name = "NAME")]
    pub judge_model: String,
    /// Address of an OpenAI-compatible server; `/chat/completions` follows it
    #[arg(long, env = "TOVA_BENCH_JUDGE_URL", value_name = "URL", default_value = "https://api.openai.com/v1")]
    #[arg(hide_env_values = true)]
    pub base_url: String,
    /// The environment variable that holds the key; where it is not set no key is sent, as local servers need none
    #[arg(long, value_name = "NAME", default_value = "OPENAI_API_KEY")]
    pub key_env: String,
    /// Calls at the same time
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub concurrency: u32,
    /// Only the first N pairs
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Only stories of cells with this value, such as policy=tova or size=256; may be given several times
    #[arg(long, value_name = "KEY=VALUES")]
    pub only: Vec<Only>,
    /// Seconds a request may take
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: u32,
    /// How often a request is made again after a limit (429), a server's error (5xx) or a broken connection
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub retries: u32,
}

/// One text under one cache rule.
#[derive(Debug, Args)]
pub struct TextArguments {
    /// A checkpoint folder (./, ../ or /), owner/name[@revision] on the hub, pocket, random-tiny, or a random model of a
    /// stated shape such as random-h512-l8-a8-k8-f1408-v8000
    #[arg(long, value_name = "MODEL")]
    pub model: String,
    /// The text as a JSON list of token ids, read as it stands
    #[arg(long, value_name = "FILE", required_unless_present = "text", conflicts_with = "text")]
    pub tokens: Option<PathBuf>,
    /// A UTF-8 text for the model's tokenizer, with BOS where the tokenizer adds it
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// full, truncate, or a policy such as tova, h2o or window+4 (see `tova-bench list policies`)
    #[arg(long, default_value = "full")]
    pub policy: String,
    /// Entries that survive each step, per layer and key-value head
    #[arg(long, value_name = "K")]
    pub cache_size: Option<usize>,
    /// Where keys stand after evictions: absolute, slot or squeezed
    #[arg(long, default_value = "absolute", value_parser = parse_positions)]
    pub positions: Positions,
    /// Tokens read at a time; changes no result
    #[arg(long, value_name = "N", default_value_t = crate::task::AT_ONCE as u64, value_parser = clap::value_parser!(u64).range(1..))]
    pub chunk: u64,
    /// Where to compute: cpu, cuda, cuda:N or auto
    #[arg(long, env = "TOVA_BENCH_DEVICE", default_value = "auto")]
    pub device: DeviceChoice,
    /// Type the weights are rounded to: auto, f32, f16 or bf16
    #[arg(long, default_value = "auto", value_parser = parse_dtype)]
    pub dtype: WeightType,
    /// Seed of the policy `random`, and of words that are drawn
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads to use [default: all cores]
    #[arg(long, env = "TOVA_BENCH_THREADS", value_name = "N")]
    pub threads: Option<usize>,
}

#[derive(Debug, Args)]
pub struct ScoreArguments {
    #[command(flatten)]
    pub text: TextArguments,
    /// Read the text this many times more, and report the time of each reading
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub repeat: usize,
    /// Add "timing": seconds, tokens per second, and the share of each part
    #[arg(long)]
    pub timing: bool,
}

#[derive(Debug, Args)]
pub struct WriteArguments {
    #[command(flatten)]
    pub text: TextArguments,
    /// Tokens to write at most
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub max_new_tokens: usize,
    /// 0 takes the most likely token, always
    #[arg(long, default_value_t = 0.0, value_name = "T")]
    pub temperature: f64,
    /// Draw from the K most likely tokens only
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Draw from the fewest tokens that reach this probability together
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,
    /// Divide the logits of tokens that occurred; 1 changes nothing
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    pub repetition_penalty: f32,
    /// A string that ends a text; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Go on after the model's own end of a text
    #[arg(long)]
    pub ignore_eos: bool,
    /// Read the prompt whole and cut the cache once, as the paper's released code does
    #[arg(long)]
    pub one_shot: bool,
    /// Put the model's chat template around the text
    #[arg(long, conflicts_with = "tokens")]
    pub chat: bool,
    /// Write so many texts side by side, from seeds that follow each other
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub batch: usize,
    /// Add "timing": seconds of reading and of writing, tokens per second
    #[arg(long)]
    pub timing: bool,
}

#[derive(Debug, Args)]
pub struct ExportArguments {
    /// What form to write
    #[arg(value_enum)]
    pub form: Form,
    /// Results folder
    pub results: PathBuf,
    /// Where the files go [default: the results folder]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Form {
    /// CSV files for submission, `Task,ID,Prediction`: one for each model, policy and cache size
    Zeroscrolls,
}

#[derive(Debug, Args)]
pub struct ListArguments {
    /// What to list
    #[arg(value_enum, default_value = "policies")]
    pub what: Listable,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Listable {
    Policies,
    Scores,
    Tasks,
    Models,
    Sweeps,
}

#[derive(Debug, Args)]
pub struct WorldsArguments {
    /// What to print
    #[arg(value_enum)]
    pub what: Worlds,
    /// Worlds to learn from, or worlds to be asked about: they share no fact
    #[arg(long, value_enum, default_value = "test")]
    pub split: WorldSplit,
    /// Another seed makes other worlds; 1 is the seed of the embedded texts
    #[arg(long, default_value_t = world::EMBEDDED_SEED)]
    pub seed: u64,
    /// How many texts
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub count: usize,
    /// Questions about each article or story
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub questions: usize,
    /// Longest lesson, in characters
    #[arg(long, default_value_t = 4000, value_name = "N")]
    pub characters: usize,
    /// Ways to say each kind of fact in lessons: 1 repeats every fact word for word, 0 only puts values beside names
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub variety: usize,
    /// Farthest planned distance of recalls in lessons, in tokens
    #[arg(long, default_value_t = 4000, value_name = "N")]
    pub farthest: usize,
    /// Percent of lessons that are drills: facts and their recalls, nothing else
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub drills: u32,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Worlds {
    /// Tales of 4096 tokens and more
    Books,
    /// Articles with questions and answers
    Articles,
    /// Stories with questions and reference summaries
    Stories,
    /// Requests to write a story
    Prompts,
    /// What the pocket model was trained on
    Lessons,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum WorldSplit {
    Train,
    Test,
}

impl From<WorldSplit> for Split {
    fn from(split: WorldSplit) -> Split {
        match split {
            WorldSplit::Train => Split::Train,
            WorldSplit::Test => Split::Test,
        }
    }
}

fn parse_positions(text: &str) -> Result<Positions, String> {
    Positions::ALL
        .into_iter()
        .find(|positions| positions.name() == text)
        .ok_or_else(|| "positions are absolute, slot or squeezed".to_string())
}

fn parse_dtype(text: &str) -> Result<WeightType, String> {
    [WeightType::Auto, WeightType::F32, WeightType::F16, WeightType::Bf16]
        .into_iter()
        .find(|dtype| dtype.name() == text)
        .ok_or_else(|| "dtypes are auto, f32, f16 and bf16".to_string())
}
