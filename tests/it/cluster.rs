//! One sweep on many machines: shards for the tasks of an array job, jobs side by side, merged folders, models fetched
//! beforehand. However the work is split, the rows are the same, bit for bit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::checkpoint::copy;
use crate::support::hub_server::HubServer;
use crate::support::program::{Ended, command, finish, run};
use crate::support::rows::{assert_same, measured};

/// Two models, every task that is not timed, and policies with and without shared prefixes.
const KINDS: &str = "
models: [random-tiny, random-h32-l2-a4-k2-f64-v257-s32]
policies: [full, truncate, window, tova, tova@squeezed, h2o-layer, knorm, random]
cache_sizes: [120, 200]
seed: 3
tasks:
  - perplexity: {dataset: random-words, length: 300, books: 3, chunks_per_book: 1, compare_to_full: true}
  - retention: {dataset: random-words, length: 150, books: 2, chunks_per_book: 1}
  - story: {request: 'a lighthouse', stories: 3, length: 160, write: {max_new_tokens: 24, temperature: 1.0}}
  - qasper: {dataset: embedded, documents: 2, questions: 3, length: 700, write: {max_new_tokens: 8}}
";

fn write_kinds(folder: &Path) {
    fs::write(folder.join("sweep.yaml"), KINDS).unwrap();
}

const RUN: [&str; 4] = ["run", "sweep.yaml", "--no-report", "--results"];

fn run_with(folder: &Path, results: &str, more: &[&str]) -> Ended {
    run(folder, &[&RUN[..], &[results], more].concat()).with_code(0)
}

/// The program inside an array job, with the variables that Slurm sets.
fn task(folder: &Path, results: &str, [id, first, last, step, count]: [usize; 5]) -> Command {
    let mut command = command(folder);
    command.args(RUN).arg(results);
    for (name, value) in [("ID", id), ("MIN", first), ("MAX", last), ("STEP", step), ("COUNT", count)] {
        command.env(format!("SLURM_ARRAY_TASK_{name}"), value.to_string());
    }
    command
}

/// The number before some words of the output.
#[track_caller]
fn number_before(ended: &Ended, words: &str) -> usize {
    let (before, _) = ended.stderr.split_once(words).unwrap_or_else(|| panic!("{words:?} in {}", ended.stderr));
    before.rsplit([' ', '\n']).next().unwrap().parse().unwrap()
}

#[test]
fn rows_do_not_depend_on_threads_jobs_shards_or_order() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_kinds(folder);
    run_with(folder, "one", &["--threads", "1"]);
    let expected = measured(&folder.join("one"));
    assert!(expected.len() > 1000, "{}", expected.len());
    for (results, more) in [
        ("four", &["--threads", "4"][..]),
        ("jobs", &["--jobs", "3", "--threads", "3"]),
        ("more-jobs", &["--jobs", "4", "--threads", "1"]),
    ] {
        run_with(folder, results, more);
        assert_same(&measured(&folder.join(results)), &expected);
    }
    for shard in ["2/3", "3/3", "1/3"] {
        run_with(folder, "shards", &["--shard", shard, "--jobs", "2"]);
    }
    assert_same(&measured(&folder.join("shards")), &expected);
    // Models, tasks, policies and sizes from last to first.
    let backwards = KINDS
        .replace(
            "[random-tiny, random-h32-l2-a4-k2-f64-v257-s32]",
            "[random-h32-l2-a4-k2-f64-v257-s32, random-tiny]",
        )
        .replace(
            "[full, truncate, window, tova, tova@squeezed, h2o-layer, knorm, random]",
            "[random, knorm, h2o-layer, tova@squeezed, tova, window, truncate, full]",
        )
        .replace("[120, 200]", "[200, 120]");
    let (head, tasks) = backwards.split_once("tasks:\n").unwrap();
    let tasks: Vec<&str> = tasks.lines().rev().collect();
    fs::write(folder.join("sweep.yaml"), format!("{head}tasks:\n{}\n", tasks.join("\n"))).unwrap();
    run_with(folder, "backwards", &["--jobs", "2"]);
    assert_same(&measured(&folder.join("backwards")), &expected);
}

#[test]
fn the_tasks_of_an_array_job_complete_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_kinds(folder);
    run_with(folder, "one", &[]);
    let expected = measured(&folder.join("one"));
    // --array=3-15:4, all tasks at once.
    let tasks: Vec<_> = [7, 3, 15, 11]
        .map(|id| crate::support::program::start(task(folder, "array", [id, 3, 15, 4, 4])))
        .into_iter()
        .map(|task| task.wait().with_code(0))
        .collect();
    let cells: usize =
        tasks.iter().map(|task| number_before(task, " cells measured, 0 were there already, 0 failed")).sum();
    let all = cells;
    for (ended, shard) in tasks.iter().zip(["2/4", "1/4", "4/4", "3/4"]) {
        ended.says(&[&format!("shard {shard} of the cells"), "Slurm array job"]);
        let mine = number_before(ended, " cells measured");
        assert_eq!(number_before(ended, " left to other shards"), all - mine);
        // Cells of about the same cost are spread evenly.
        assert!(mine > 0, "{}", ended.stderr);
    }
    assert_same(&measured(&folder.join("array")), &expected);

    // The flag overrides Slurm's variables; an array without a fixed step has no shards.
    let mut whole = task(folder, "whole", [7, 3, 15, 4, 4]);
    whole.args(["--shard", "1/1"]);
    let whole = finish(whole).with_code(0);
    assert!(!whole.stderr.contains("Slurm"), "{}", whole.stderr);
    assert_eq!(number_before(&whole, " cells measured"), all);
    let uneven = finish(task(folder, "uneven", [3, 1, 7, 1, 3])).with_code(2);
    uneven.says(&["task 3 of a Slurm array job", "hint: submit with --array=0-7"]);
    assert!(!folder.join("uneven").exists());
}

#[test]
fn shards_are_balanced_by_cost_and_stay_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // One task takes thirty times as long as the other: if only cells were counted, one shard could get all of it.
    let text = "models: [random-tiny]\npolicies: [window, tova, h2o, window+4]\ncache_sizes: [16, 32]\ntasks:
  - perplexity: {dataset: random-words, length: 600, books: 10, chunks_per_book: 1}
  - perplexity: {dataset: random-words, length: 64, books: 3, chunks_per_book: 1}\n";
    fs::write(folder.join("sweep.yaml"), text).unwrap();
    let planned = |shard: &str| {
        let plan = run(folder, &["plan", "sweep.yaml", "--shard", shard, "--results", "r"]).with_code(0).stdout;
        let (long, short) = plan.split_once("(9 samples").or_else(|| plan.split_once("(3 samples")).unwrap();
        let cells = |part: &str| part.lines().filter(|line| line.contains(" to do  ")).count();
        (cells(long), cells(short))
    };
    let before = ["1/4", "2/4", "3/4", "4/4"].map(planned);
    assert_eq!(before, [(2, 2); 4]);
    // Cells that are done meanwhile do not move others to another shard.
    run_with(folder, "r", &["--shard", "2/4"]);
    let check = |shard: &str| run(folder, &["plan", "sweep.yaml", "--shard", shard, "--results", "r", "--check"]);
    check("2/4").with_code(0);
    check("1/4").with_code(4);
    assert_eq!([planned("1/4"), planned("3/4")], [(2, 2); 2]);
    assert_eq!(planned("2/4"), (0, 0));
    for shard in ["1/4", "3/4", "4/4"] {
        let ended = run_with(folder, "r", &["--shard", shard]);
        assert_eq!(number_before(&ended, " cells measured, 0 were there already"), 4);
    }
}

#[test]
fn folders_of_shards_merge_into_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_kinds(folder);
    run_with(folder, "one", &[]);
    let expected = measured(&folder.join("one"));
    for shard in ["1", "2", "3"] {
        run_with(folder, &format!("part-{shard}"), &["--shard", &format!("{shard}/3")]);
    }
    let count = |results: &str| fs::read_dir(folder.join(results).join("cells")).unwrap().count();
    let [a, b, c] = ["part-1", "part-2", "part-3"].map(count);
    let merged = run(folder, &["merge", "all", "part-1", "part-2"]).with_code(0);
    assert_eq!(merged.stdout, format!("part-1: {a} cells copied\npart-2: {b} cells copied\n"));
    // Again, with one more folder.
    let merged = run(folder, &["merge", "all", "part-2", "part-3"]).with_code(0);
    assert_eq!(merged.stdout, format!("part-2: 0 cells copied, {b} there already\npart-3: {c} cells copied\n"));
    assert_same(&measured(&folder.join("all")), &expected);
    assert_eq!(count("part-3"), c);
    let again = run_with(folder, "all", &[]);
    assert_eq!(number_before(&again, " were there already, 0 failed"), a + b + c);

    // Partial cells are completed in the new folder.
    let begun = fs::read_dir(folder.join("one/cells")).unwrap().map(|entry| entry.unwrap().path());
    let mut begun: Vec<_> = begun.filter(|path| path.to_string_lossy().contains("perplexity")).collect();
    begun.sort();
    fs::create_dir_all(folder.join("killed/partial")).unwrap();
    fs::create_dir_all(folder.join("killed/cells")).unwrap();
    let stem = begun[0].file_stem().unwrap().to_string_lossy().into_owned();
    let line = journal_line(&measured_of(&folder.join("one"), &begun[0]));
    fs::write(folder.join(format!("killed/partial/{stem}.jsonl")), line).unwrap();
    let merged = run(folder, &["merge", "new", "killed"]).with_code(0);
    merged.says(&["not complete: 1 cell", "run SWEEP --results new"]);
    let plan = run(folder, &["plan", "sweep.yaml", "--results", "new"]).with_code(0).stdout;
    assert!(plan.contains("1 of 3 samples done"), "{plan}");

    // Mistakes.
    run(folder, &["merge", "all", "all"]).with_code(1).says(&["into itself", "hint:"]);
    run(folder, &["merge", "fresh", "part-1", "prat-2"]).with_code(1).says(&["prat-2 is not a results folder"]);
    assert!(!folder.join("fresh").exists());
    let damaged = fs::read_dir(folder.join("part-1/cells")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let name = damaged.file_name().unwrap().to_string_lossy().into_owned();
    run(folder, &["merge", "fresh", "part-1"]).with_code(1).says(&[&name, "damaged", "hint:"]);
}

/// The rows of the first sample of a cell's file.
fn measured_of(results: &Path, cell: &Path) -> Vec<tova_bench::ledger::Row> {
    let id = cell.file_stem().unwrap().to_string_lossy().rsplit("__").next().unwrap().to_owned();
    let rows = tova_bench::ledger::Ledger::existing(results).unwrap().rows().unwrap();
    let rows: Vec<_> = rows.into_iter().filter(|row| row.cell.as_str() == id).collect();
    rows.iter().filter(|row| row.sample == rows[0].sample).cloned().collect()
}

/// A line of a journal as the module describes it: a checksum over the cell's id and the sample.
fn journal_line(rows: &[tova_bench::ledger::Row]) -> String {
    let sample = format!("{{\"index\":0,\"rows\":{}}}", serde_json::to_string(rows).unwrap());
    let digest = crate::support::hub_server::sha256(format!("{}\n{sample}", rows[0].cell).as_bytes());
    format!("{{\"sha256\":\"{}\",\"sample\":{sample}}}\n", &digest[..16])
}

/// A hub with one model, a copy of which is in the folder.
fn hub_with_model(folder: &Path) -> (HubServer, PathBuf) {
    let model = copy(folder, "model");
    let files = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
        .map(|name| (name, fs::read(model.join(name)).unwrap()));
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    (HubServer::start("0123456789abcdef0123456789abcdef01234567", &files), model)
}

#[test]
fn a_fetched_sweep_needs_no_network() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (hub, _) = hub_with_model(folder);
    let text = "models: [o/n]\npolicies: [full, tova]\ncache_sizes: [8]\n\
        tasks: [{perplexity: {dataset: random-words, length: 64, books: 1, chunks_per_book: 1}}]\n";
    fs::write(folder.join("sweep.yaml"), text).unwrap();
    let at = |verb: &[&str], offline: bool| {
        let mut command = command(folder);
        command.args(verb).env("HF_ENDPOINT", &hub.endpoint);
        if offline {
            command.env("HF_HUB_OFFLINE", "1");
        }
        finish(command)
    };
    at(&["fetch", "sweep.yaml"], true).with_code(4).says(&["not there: 2 cells", "o/n", "HF_HUB_OFFLINE"]);
    let fetched = at(&["fetch", "sweep.yaml"], false).with_code(0);
    assert!(fetched.stdout.contains("o/n: ") && fetched.stdout.contains("0123456789abcdef"), "{}", fetched.stdout);
    assert!(fetched.stdout.contains("perplexity: random-words, 1 sample"), "{}", fetched.stdout);
    fetched.says(&["all is there"]);
    assert!(!folder.join("results").exists());
    let asked = hub.count("");
    assert!(asked > 0);
    at(&["run", "sweep.yaml"], true).with_code(0).says(&["2 cells measured"]);
    assert_eq!(hub.count(""), asked);
    at(&["fetch", "sweep.yaml", "--only", "policy=toav"], false).with_code(2).says(&["did you mean `tova`"]);
}

#[test]
fn a_model_is_planned_before_its_weights_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (hub, model) = hub_with_model(folder);
    let sweep = |model: &str| {
        let text = format!(
            "models: [{model}]\npolicies: [full, tova, knorm@squeezed]\ncache_sizes: [8]\n\
             tasks: [{{perplexity: {{dataset: random-words, length: 64, books: 1, chunks_per_book: 1}}}}]\n"
        );
        fs::write(folder.join("sweep.yaml"), text).unwrap();
    };
    let at = |verb: &[&str]| {
        let mut command = command(folder);
        command.args(verb).env("HF_ENDPOINT", &hub.endpoint);
        finish(command)
    };
    // The heading and the table, without times, which are measured each time.
    let planned = || {
        let plan = at(&["plan", "sweep.yaml", "--device", "cuda"]).with_code(0).stdout;
        let lines: Vec<String> =
            plan.lines().skip_while(|line| !line.contains("parameters")).map(str::to_owned).collect();
        let table = lines[1..5].iter().map(|line| line.split_whitespace().take(5).collect::<Vec<_>>().join(" "));
        (lines[0].clone(), table.collect::<Vec<String>>(), plan)
    };
    sweep("o/n");
    let fetched = at(&["fetch", "sweep.yaml", "--without-weights"]).with_code(0);
    assert!(!fetched.stderr.contains("gated"), "{}", fetched.stderr);
    hub.contents.lock().unwrap().is_gated = true;
    at(&["fetch", "sweep.yaml", "--without-weights"]).with_code(0).says(&["is gated"]);
    assert_eq!(hub.count("model.safetensors"), 0);
    let (heading, described, plan) = planned();
    assert!(heading.contains("not on this machine"), "{heading}");
    assert!(plan.contains("fit in 80 GB") && plan.contains("computes attention of knorm@squeezed"), "{plan}");
    at(&["fetch", "sweep.yaml"]).with_code(0);
    let (heading, complete, _) = planned();
    assert!(!heading.contains("not on this machine"), "{heading}");
    assert_eq!(described, complete);
    // A folder without weights.
    fs::remove_file(model.join("model.safetensors")).unwrap();
    sweep("./model");
    assert_eq!(planned().1, complete);
    at(&["run", "sweep.yaml"]).with_code(1).says(&["model.safetensors"]);
}
