//! Kills and signals at any moment, of one process or of several that share a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::scene::{Scene, leftovers, skipped, under_way};
use crate::support::material::skip;
use crate::support::program::{Running, command, plain, say, start};
use crate::support::rows::{Kept, kept};
use crate::support::sweep::{SMALL, Sweep, write_texts};

/// Processes that work on a folder at the same time: a name, and the arguments of each.
type Crew = (&'static str, &'static [&'static [&'static str]]);

const CREWS: [Crew; 3] = [
    ("alone", &[&[]]),
    ("four-shards", &[&["--shard", "1/4"], &["--shard", "2/4"], &["--shard", "3/4"], &["--shard", "4/4"]]),
    ("four-alike", &[&[], &[], &[], &[]]),
];

/// Kills one process of a crew, or all of them, at random moments, restarts those that ended, and finds the rows unchanged
/// in the end.
fn kill(scene: &Scene, (word, crew): Crew, kills: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut hit, mut rounds, mut at_work, mut resumed, mut temporary) = (0, 0, 0, Kept::default(), 0);
    // If the sweep is complete before the last kill, it starts again in a new folder.
    while hit < kills {
        assert!(rounds < kills, "only {hit} kills hit a running process in {rounds} sweeps");
        let name = format!("{word}-{rounds}");
        let results = scene.results(&name);
        rounds += 1;
        let mut before = Kept::default();
        let mut at_it: Vec<Option<Running>> = crew.iter().map(|_| None).collect();
        while hit < kills && before.cells < scene.cells {
            for (place, arguments) in at_it.iter_mut().zip(crew) {
                // A process that ended had nothing left that another was not doing.
                if place.as_mut().is_some_and(|running| !running.goes_on()) {
                    place.take().unwrap().wait().with_code(0);
                }
                place.get_or_insert_with(|| {
                    let mut command = scene.command(&name);
                    command.args(*arguments);
                    start(command)
                });
            }
            std::thread::sleep(scene.undisturbed.mul_f64(random.f64() / 4.0));
            let victims = if random.bool() { 0..crew.len() } else { one_of(&mut random, crew.len()) };
            for place in &mut at_it[victims] {
                let running = place.as_mut().unwrap();
                if running.signal(libc::SIGKILL) {
                    hit += 1;
                    *place = None;
                }
            }
            let now = kept(&results);
            assert!(now.cells >= before.cells, "complete cells are never lost: {before:?}, then {now:?}");
            at_work += usize::from(now != before);
            resumed.cells += now.cells;
            resumed.samples += now.samples;
            resumed.torn += now.torn;
            before = now;
        }
        at_it.into_iter().flatten().for_each(|running| drop(running.wait().with_code(0)));
        temporary +=
            leftovers(&results).iter().filter(|path| path.extension().is_some_and(|e| e == "tmp")).count();
        let done = kept(&results).cells;
        let last = scene.to_the_end(&name);
        assert_eq!(skipped(&last), done);
        scene.assert_same(&name);
        eprintln!("{name}: the same rows after {hit} kills");
        fs::remove_dir_all(results).unwrap();
    }
    say(&format!(
        "{word}, seed {seed}: {hit} kills hit a running process, {at_work} rounds of kills came after something more was \
         measured, in {rounds} sweeps of {} cells and {} rows; the processes after them found {} times a complete cell, {} \
         times a sample of another cell, {} torn lines and {temporary} temporary files; no row lost, none twice, all bits \
         the same",
        scene.cells,
        scene.expected.len(),
        resumed.cells,
        resumed.samples,
        resumed.torn,
    ));
}

fn one_of(random: &mut fastrand::Rng, places: usize) -> std::ops::Range<usize> {
    let place = random.usize(0..places);
    place..place + 1
}

#[test]
fn kills_at_random_moments_change_no_row() {
    let scene = Scene::new();
    for (crew, seed) in CREWS.into_iter().zip(20..) {
        kill(&scene, crew, 10, seed);
    }
}

#[test]
fn kills_of_a_chosen_sweep() {
    let variable = |name: &str| std::env::var_os(format!("TOVA_BENCH_KILL{name}"));
    let Some(sweep) = variable("_SWEEP") else {
        skip("kills_of_a_chosen_sweep", "kills", "a sweep that .ci/checks/kill-test.sh names");
        return;
    };
    let text = |name: &str| variable(name).unwrap_or_default().into_string().unwrap();
    let number = |name: &str| if text(name).is_empty() { 20 } else { text(name).parse().unwrap() };
    let from = PathBuf::from(variable("_FROM").unwrap());
    let more: Vec<String> = text("_ARGUMENTS").split_whitespace().map(str::to_string).collect();
    let scene = Scene::of(tempfile::tempdir().unwrap(), move || {
        let mut command = plain(&from);
        command.arg("run").arg(&sweep).args(&more);
        command
    });
    let crews = text("_CREWS");
    let wanted = |word: &str| crews.is_empty() || crews.split_whitespace().any(|crew| crew == word);
    eprintln!("{} cells, undisturbed in {:.1} s; now with kills", scene.cells, scene.undisturbed.as_secs_f64());
    for crew in CREWS.into_iter().filter(|(word, _)| wanted(word)) {
        kill(&scene, crew, number("S") as usize, number("_SEED"));
    }
}

#[test]
fn signals_end_a_run_with_their_code_and_the_next_run_resumes() {
    let scene = Scene::new();
    for (number, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130), (libc::SIGUSR1, 138)] {
        let name = format!("signal-{number}");
        let results = scene.results(&name);
        let mut running = scene.start(&name);
        running.until(|| under_way(&results));
        assert!(running.signal(number), "the run was over before the signal");
        let interrupted = running.wait().with_code(code);
        interrupted.says(&["interrupted", "run the same command again"]);
        let left = kept(&results);
        assert!(left.cells >= 19 && left.torn == 0, "{left:?}");
        // Both runs say how many samples are kept.
        let samples = left.samples + samples_of_cells(&scene, &results);
        let all = samples_of(&scene, |_| true);
        assert!(samples < all, "{samples} of {all}");
        let words = format!("kept: {samples} of {all} samples ({} %)", 100 * samples / all);
        interrupted.says(&[&words]);

        let next = scene.to_the_end(&name);
        next.says(&[&format!("{} cells measured already, skipped", left.cells), &words]);
        assert_eq!(skipped(&next), left.cells);
        scene.assert_same(&name);
        eprintln!("signal {number} left {left:?}");
    }
}

/// The samples of the cells whose ids are wanted, each counted in every cell.
fn samples_of(scene: &Scene, wanted: impl Fn(&str) -> bool) -> usize {
    let samples = scene.expected.iter().filter(|row| wanted(&row.cell));
    samples.map(|row| (&row.cell, &row.sample)).collect::<BTreeSet<_>>().len()
}

/// The samples of the complete cells in a folder.
fn samples_of_cells(scene: &Scene, results: &Path) -> usize {
    let files = fs::read_dir(results.join("cells")).unwrap().map(|entry| entry.unwrap().file_name());
    let files: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
    samples_of(scene, |cell| files.iter().any(|file| file.ends_with(".parquet") && file.contains(cell)))
}

#[test]
fn a_run_that_was_interrupted_before_its_first_cell_says_what_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    write_texts(folder.path(), 40, 700);
    let task = ["dataset: ./texts, length: 512, tail: keep, compare_to_full: true"];
    Sweep { tasks: &task, ..SMALL }.write(folder.path());
    let results = folder.path().join("r");
    let begin = || {
        let mut command = command(folder.path());
        command.args(["run", "sweep.yaml", "--no-report", "--threads", "1", "--results", "r"]);
        start(command)
    };
    let mut running = begin();
    running.until(|| kept(&results).samples > 4);
    assert!(running.signal(libc::SIGINT), "the run was over before the signal");
    let interrupted = running.wait().with_code(130);
    let left = kept(&results);
    assert_eq!(left.cells, 0, "{left:?}");
    interrupted.says(&[&format!("kept: {} of ", left.samples)]);
    assert!(!interrupted.stderr.contains("0 cells measured"), "{}", interrupted.stderr);
    let next = begin().unhurried().wait().with_code(0);
    next.says(&[&format!("kept: {} of ", left.samples), "2 cells measured, 0 were there already"]);
}

#[test]
fn a_signal_while_files_are_fetched_ends_the_run_at_once() {
    let folder = tempfile::tempdir().unwrap();
    Sweep { models: "[o/n]", ..SMALL }.write(folder.path());
    // A hub that accepts connections and never answers.
    let hub = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = command(folder.path());
    command.args(["run", "sweep.yaml"]).env("HF_ENDPOINT", format!("http://{}", hub.local_addr().unwrap()));
    let mut running = start(command);
    let call = hub.accept().unwrap();
    // Not SIGINT, which background programs of shells without job control ignore.
    assert!(running.signal(libc::SIGTERM), "the run was over before the signal");
    let ended = running.wait();
    ended.sound();
    // The signal itself ended it, which a shell reports as 143.
    assert_eq!(ended.code, None, "{}", ended.stderr);
    drop(call);
}

#[test]
fn a_truncated_journal_loses_only_its_last_samples() {
    let scene = Scene::new();
    let results = scene.results("torn");
    let mut running = scene.start("torn");
    running.until(|| kept(&results).samples > 60);
    assert!(running.signal(libc::SIGKILL), "the run was over before the kill");
    drop(running);
    // As after a power cut: every second journal lacks its end, and some end in zeros.
    let mut random = fastrand::Rng::with_seed(3);
    let mut journals: Vec<PathBuf> =
        fs::read_dir(results.join("partial")).unwrap().map(|entry| entry.unwrap().path()).collect();
    journals.sort();
    for (index, journal) in journals.iter().enumerate() {
        let mut bytes = fs::read(journal).unwrap();
        let cut = random.usize(0..=bytes.len());
        match index % 3 {
            0 => bytes.truncate(cut),
            1 => bytes[cut..].fill(0),
            _ => continue,
        }
        fs::write(journal, bytes).unwrap();
    }
    scene.to_the_end("torn");
    scene.assert_same("torn");
}
