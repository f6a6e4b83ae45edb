//! What may happen to a run: kills, signals, company, a full disk, a folder that cannot be written, damaged files.
//! Whatever it is, the same command goes on where it stopped, and in the end the rows are those of an undisturbed run.

#![cfg(unix)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use support::program::{Ended, Running, command, finish, isolated, plain, run, say, start};
use support::rows::{Kept, assert_same, kept, measured};
use support::sweep::{SMALL, Sweep, write_texts};
use tempfile::TempDir;
use tova_bench::results::Row;

/// Two tasks, so that some cells are complete long before others; some seconds of work on an old machine.
const LONG: Sweep<'static> = Sweep {
    policies: "[full, truncate, window+4, tova, h2o, knorm, random]",
    cache_sizes: "[16, 64, 130]",
    tasks: &[
        "dataset: ./texts, length: 128, books: 1, chunks_per_book: 2",
        "dataset: ./texts, length: 512, tail: keep, compare_to_full: true",
    ],
    ..SMALL
};

/// A sweep, a folder for its results, and its rows when nothing happens.
struct Scene {
    folder: TempDir,
    /// Starts the program where the sweep's paths begin, with everything but the results folder.
    program: Box<dyn Fn() -> Command>,
    cells: usize,
    expected: Vec<Row>,
    undisturbed: Duration,
}

impl Scene {
    /// The long sweep.
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        write_texts(folder.path(), 6, 700);
        LONG.write(folder.path());
        let path = folder.path().to_path_buf();
        let scene = Scene::of(folder, move || {
            let mut command = command(&path);
            command.args(["run", "sweep.yaml"]);
            command
        });
        assert_eq!(scene.cells, 38);
        scene
    }

    fn of(folder: TempDir, program: impl Fn() -> Command + 'static) -> Scene {
        let mut scene = Scene {
            folder,
            program: Box::new(program),
            cells: 0,
            expected: Vec::new(),
            undisturbed: Duration::ZERO,
        };
        let started = Instant::now();
        scene.to_the_end("undisturbed");
        scene.undisturbed = started.elapsed();
        scene.expected = measured(&scene.results("undisturbed"));
        scene.cells = kept(&scene.results("undisturbed")).cells;
        scene
    }

    fn results(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, name: &str) -> Running {
        let mut command = (self.program)();
        command.args(["--no-report", "--results"]).arg(self.results(name));
        start(command)
    }

    /// Runs the sweep until it is complete.
    #[track_caller]
    fn to_the_end(&self, name: &str) -> Ended {
        let ended = self.start(name).unhurried().wait().with_code(0);
        let Kept { samples, torn, .. } = kept(&self.results(name));
        assert_eq!((samples, torn), (0, 0), "a complete sweep leaves no journal");
        ended
    }

    #[track_caller]
    fn assert_same(&self, name: &str) {
        assert_same(&measured(&self.results(name)), &self.expected);
    }
}

/// Cells a run says it found complete.
fn skipped(ended: &Ended) -> usize {
    let (before, _) =
        ended.stderr.rsplit_once(" were there already").unwrap_or_else(|| panic!("{}", ended.stderr));
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Files that are no result and no journal: temporary ones of writers that were killed.
fn litter(results: &Path) -> usize {
    let entries =
        ["cells", "partial", "failed"].into_iter().flat_map(|part| fs::read_dir(results.join(part)).unwrap());
    entries.filter(|entry| entry.as_ref().unwrap().file_name().as_encoded_bytes().starts_with(b".")).count()
}

/// Kills the sweep at random moments, restarts it each time, and in the end finds the rows unchanged.
fn kill(scene: &Scene, kills: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut hit, mut rounds, mut at_work, mut resumed) = (0, 0, 0, Kept::default());
    // Where a sweep is complete before its last kill, the next one goes on in a new folder.
    while hit < kills {
        assert!(rounds < kills, "only {hit} kills hit a running process in {rounds} sweeps");
        let name = format!("killed-{rounds}");
        let results = scene.results(&name);
        rounds += 1;
        let mut before = Kept::default();
        while hit < kills && before.cells < scene.cells {
            let mut running = scene.start(&name);
            std::thread::sleep(scene.undisturbed.mul_f64(random.f64() / 4.0));
            hit += usize::from(running.signal(libc::SIGKILL));
            drop(running);
            let now = kept(&results);
            assert!(now.cells >= before.cells, "complete cells are never lost: {before:?}, then {now:?}");
            at_work += usize::from(now != before);
            resumed.cells += now.cells;
            resumed.samples += now.samples;
            resumed.torn += now.torn;
            before = now;
        }
        let last = scene.to_the_end(&name);
        assert_eq!(skipped(&last), before.cells);
        scene.assert_same(&name);
        eprintln!("{name}: the same rows after {hit} kills, and {} temporary files left behind", litter(&results));
    }
    say(&format!(
        "seed {seed}: {hit} kills hit a running process, {at_work} of them after it had measured something, in \
         {rounds} sweeps of {} cells and {} rows; the runs after them found {} times a complete cell, {} times a \
         sample of another cell, and {} torn lines",
        scene.cells,
        scene.expected.len(),
        resumed.cells,
        resumed.samples,
        resumed.torn,
    ));
}

#[test]
fn kills_at_random_moments_change_no_bit() {
    kill(&Scene::new(), 20, 20);
}

#[test]
fn kills_of_a_sweep_named_by_hand() {
    let variable = |name: &str| std::env::var_os(format!("TOVA_BENCH_KILL{name}"));
    let Some(sweep) = variable("_SWEEP") else {
        say("SKIPPED: kills_of_a_sweep_named_by_hand is for scripts/kill-test.sh, which names a sweep");
        return;
    };
    let number = |name: &str| variable(name).map_or(20, |text| text.to_str().unwrap().parse().unwrap());
    let from = PathBuf::from(variable("_FROM").unwrap());
    let scene = Scene::of(tempfile::tempdir().unwrap(), move || {
        let mut command = plain(&from);
        command.arg("run").arg(&sweep);
        command
    });
    eprintln!("{} cells, undisturbed in {:.1} s; now with kills", scene.cells, scene.undisturbed.as_secs_f64());
    kill(&scene, number("S") as usize, number("_SEED"));
}

#[test]
fn signals_end_a_run_with_their_code_and_the_next_one_goes_on() {
    let scene = Scene::new();
    for (number, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130), (libc::SIGUSR1, 138)] {
        let name = format!("signal-{number}");
        let results = scene.results(&name);
        let mut running = scene.start(&name);
        // The first task is complete, whose cells have two samples; the second has begun.
        running.until(|| kept(&results).cells >= 19 && kept(&results).samples > 2);
        assert!(running.signal(number), "the run was over before the signal");
        running.wait().with_code(code).says(&["interrupted", "run the same command again"]);
        let left = kept(&results);
        assert!(left.cells >= 19 && left.torn == 0, "{left:?}");

        let next = scene.to_the_end(&name);
        next.says(&[&format!("{} cells measured already, skipped", left.cells)]);
        assert_eq!(skipped(&next), left.cells);
        scene.assert_same(&name);
        eprintln!("signal {number} left {left:?}");
    }
}

#[test]
fn a_signal_while_files_are_fetched_ends_the_run_at_once() {
    let folder = tempfile::tempdir().unwrap();
    Sweep { models: "[o/n]", ..SMALL }.write(folder.path());
    // A hub that takes calls and never answers.
    let hub = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = command(folder.path());
    command.args(["run", "sweep.yaml"]).env("HF_ENDPOINT", format!("http://{}", hub.local_addr().unwrap()));
    let mut running = start(command);
    let call = hub.accept().unwrap();
    assert!(running.signal(libc::SIGINT), "the run was over before the signal");
    let ended = running.wait();
    ended.sound();
    // The signal itself ended it: a shell makes 130 of that.
    assert_eq!(ended.code, None, "{}", ended.stderr);
    drop(call);
}

#[test]
fn a_journal_that_was_cut_anywhere_costs_only_its_samples() {
    let scene = Scene::new();
    let results = scene.results("torn");
    let mut running = scene.start("torn");
    running.until(|| kept(&results).samples > 60);
    assert!(running.signal(libc::SIGKILL), "the run was over before the kill");
    drop(running);
    // As after a power cut: every other journal lacks its end, some are all zeros from somewhere on.
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

#[test]
fn several_processes_share_a_folder() {
    let scene = Scene::new();
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(scene.start("shared"));
        // Each comes when the ones before it are at another place.
        std::thread::sleep(scene.undisturbed.mul_f64(0.2));
    }
    for running in all {
        running.wait().with_code(0);
    }
    // Whoever came late left cells to those who had begun them; none may be left over, none be there twice.
    let last = scene.to_the_end("shared");
    assert_eq!(skipped(&last), scene.cells);
    scene.assert_same("shared");
}

#[test]
fn a_damaged_result_is_named_and_measured_again_once_removed() {
    let folder = tempfile::tempdir().unwrap();
    SMALL.write(folder.path());
    let arguments = ["run", "sweep.yaml", "--results", "r"];
    run(folder.path(), &arguments).with_code(0);
    let expected = measured(&folder.path().join("r"));
    let cells = folder.path().join("r/cells");
    let result = fs::read_dir(&cells).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&result).unwrap();
    let name = result.file_name().unwrap().to_str().unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&flipped, &whole[..whole.len() / 2], &[]] {
        fs::write(&result, damaged).unwrap();
        for arguments in [&arguments[..], &["report", "r"]] {
            run(folder.path(), arguments).with_code(1).says(&[name, "damaged", "hint: remove"]);
        }
    }
    fs::remove_file(&result).unwrap();
    run(folder.path(), &arguments).with_code(0).says(&["1 cells measured, 1 were there already"]);
    assert_same(&measured(&folder.path().join("r")), &expected);
}

#[test]
fn a_file_in_the_place_of_the_results_is_named() {
    let folder = tempfile::tempdir().unwrap();
    SMALL.write(folder.path());
    fs::write(folder.path().join("taken"), "a file").unwrap();
    for results in ["taken", "taken/below"] {
        let ended = run(folder.path(), &["run", "sweep.yaml", "--results", results]).with_code(1);
        ended.says(&["results cannot be written to taken", "a file is in the way", "hint: choose another"]);
    }
    assert_eq!(fs::read_to_string(folder.path().join("taken")).unwrap(), "a file");
}

/// A shell in a mount namespace of its own: what it mounts is gone with it, even if it is killed. `None`, said aloud,
/// where the system does not let us.
fn with_mounts(test: &str, folder: &Path, script: &str) -> Option<Ended> {
    let shell = |script: &str| {
        let mut unshare = isolated(Command::new("unshare"), folder);
        // The own user namespace lets a user who is not root mount too.
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        unshare.arg("sh").arg(env!("CARGO_BIN_EXE_tova-bench"));
        unshare
    };
    let mut probe = shell("mkdir -p disk && mount -t tmpfs -o size=64k none disk && mount --bind disk disk");
    match probe.output() {
        Ok(output) if output.status.success() => Some(finish(shell(&format!("set -e\n{script}")))),
        Ok(output) => {
            say(&format!("SKIPPED: {test} cannot mount here: {}", String::from_utf8_lossy(&output.stderr).trim()));
            None
        }
        Err(error) => {
            say(&format!("SKIPPED: {test} needs the command unshare: {error}"));
            None
        }
    }
}

#[test]
fn a_read_only_folder_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    SMALL.write(folder.path());
    let script = "mkdir -p disk && mount --bind disk disk && mount -o remount,ro,bind disk\n\
        \"$1\" run sweep.yaml --results disk/r";
    let Some(ended) = with_mounts("a_read_only_folder", folder.path(), script) else { return };
    ended.with_code(1).says(&["results cannot be written to disk/r", "Read-only", "hint: choose another"]);
}

#[test]
fn a_full_disk_keeps_what_was_measured_and_the_run_goes_on_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = Sweep {
        policies: "[full, tova, h2o, truncate]",
        cache_sizes: "[8, 32]",
        tasks: &["dataset: random-words, length: 256, books: 2, chunks_per_book: 4"],
        ..SMALL
    };
    sweep.write(folder.path());
    run(folder.path(), &["run", "sweep.yaml", "--results", "expected"]).with_code(0);
    let expected = measured(&folder.path().join("expected"));
    // Nothing can be written, not even the first file; some samples are; all are, and the cells are not; all but
    // the figures.
    for (room, says) in [
        (0, "results cannot be written to disk/r"),
        (28, "the disk is full"),
        (120, "the disk is full"),
        (195, "tova-bench report disk/r"),
    ] {
        let script = format!(
            "mount -t tmpfs -o size=4m none disk
             head -c $((4096 - {room}))k /dev/zero > disk/filler 2>> filler.err || true
             \"$1\" run sweep.yaml --results disk/r > full.out && exit 99 || echo \"full: $?\" >&2
             ls disk/r/cells/*.parquet 2>> filler.err | wc -l > cells
             cat disk/r/partial/*.jsonl 2>> filler.err | wc -l > samples
             rm disk/filler
             \"$1\" run sweep.yaml --results disk/r > freed.out
             cp -r disk/r results"
        );
        let Some(ended) = with_mounts("a_full_disk", folder.path(), &script) else { return };
        let ended = ended.with_code(0);
        ended.says(&["full: 1", "No space left on device", says]);
        if room < 150 {
            ended.says(&["hint: free space there, then run the same command again"]);
        }
        let count = |file: &str| -> usize {
            fs::read_to_string(folder.path().join(file)).unwrap().trim().parse().unwrap()
        };
        eprintln!("{room} KiB of room kept {} cells and {} samples of others", count("cells"), count("samples"));
        assert_eq!(skipped(&ended), count("cells"), "{}", ended.stderr);
        let results = folder.path().join("results");
        assert_same(&measured(&results), &expected);
        fs::remove_dir_all(results).unwrap();
    }
}
