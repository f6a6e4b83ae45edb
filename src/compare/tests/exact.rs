//! Exact comparisons: which samples moved, and which columns are looked at.

use super::*;

#[test]
fn exactly_compared_every_sample_that_moved_is_named() {
    let options = Options { exact: Some(1e-6), ..Options::default() };
    let before = cell("nll", &[("a", "a", 200.0, 100.0), ("b", "b", 300.0, 100.0)]);
    let moved = |value: f64, weight: f64| {
        let after = cell("nll", &[("a", "a", 200.0, 100.0), ("b", "b", value, weight)]);
        compared(&before, &after, &options)
    };
    // 3 nats a token: a hundred-thousandth more is 3e-5, which is more than a millionth.
    let found = moved(300.003, 100.0);
    let point = only(&found);
    assert_eq!((point.verdict, found.failed()), (Verdict::Moved, true));
    let [sample] = &point.moved[..] else { panic!("{:?}", point.moved) };
    assert_eq!((sample.sample.as_str(), sample.before), ("b", Some(3.0)));
    assert!((sample.change - 3e-5).abs() < 1e-12, "{}", sample.change);
    // 5e-7 for each token is within the tolerance, and is not equal.
    assert_eq!(only(&moved(300.00005, 100.0)).verdict, Verdict::WithinNoise);
    assert_eq!(only(&moved(300.0, 100.0)).verdict, Verdict::Equal);
    // The same quotient of other weights counted other tokens.
    assert_eq!(only(&moved(150.0, 50.0)).moved[0].columns, ["weight"]);
    assert_eq!(only(&moved(f64::NAN, 100.0)).moved[0].change, f64::INFINITY);
}

#[test]
fn exactly_compared_another_engine_is_not_equal_and_what_never_repeats_is_left_out() {
    let options = Options { exact: Some(1e-6), ..Options::default() };
    let before = cell("nll", &[("a", "a", 200.0, 100.0)]);
    let after = changed(before.clone(), |row| (row.engine, row.cell) = (3, "3".into()));
    let found = compared(&before, &after, &options);
    assert_eq!((only(&found).verdict, found.failed()), (Verdict::AnotherEngine, true));
    // Of two engines on one side neither is the right one.
    let both = [before.clone(), after].concat();
    assert!(compare(("before", &both), ("after", &before), &options).is_err());
    // Times and verdicts of a judge never repeat.
    let judged = changed(before.clone(), |row| row.metric = "judge_win".into());
    let found = compared(&[before.clone(), judged, timed("cpu", [1.0; 3])].concat(), &before, &options);
    assert_eq!((only(&found).verdict, found.failed()), (Verdict::Equal, false));
    assert!(found.notes.iter().any(|note| note.starts_with("4 rows of times and of judges")), "{:?}", found.notes);
}

/// A change of a row.
type Change = fn(&mut Row);

#[test]
fn every_column_that_repeats_is_compared() {
    let options = Options { exact: Some(0.0), ..Options::default() };
    let before = changed(cell("nll", &[("a", "a", 200.0, 100.0)]), |row| {
        (row.sample_id, row.data) = ("1".into(), "1".into());
        (row.held_bytes, row.peak_bytes, row.read_bytes) = (Some(0.5), Some(1), Some(0.5));
    });
    let of = |change: Change| compared(&before, &changed(before.clone(), change), &options);
    // Each column of a row that pairs it, must repeat, or may differ.
    let pairs: [(&str, Change); 22] = [
        ("model_revision", |row| row.model_revision = "2".into()),
        ("policy", |row| row.policy = "2".into()),
        ("cache_size", |row| row.cache_size = None),
        ("cache_share", |row| row.cache_share = Some(0.5)),
        ("cache_memory", |row| row.cache_memory = Some("25%".into())),
        ("format", |row| row.format = Some("q8_0".into())),
        ("positions", |row| row.positions = "slot".into()),
        ("schedule", |row| row.schedule = Some("cut".into())),
        ("local_layers", |row| row.local_layers = Some("exempt".into())),
        ("prefill", |row| row.prefill = "2".into()),
        ("task", |row| row.task = "2".into()),
        ("length", |row| row.length = 2),
        ("stride", |row| row.stride = 2),
        ("bos", |row| row.bos = !row.bos),
        ("tail", |row| row.tail = "2".into()),
        ("generation", |row| row.generation = Some("2".into())),
        ("sample", |row| row.sample = "2".into()),
        ("metric", |row| row.metric = "2".into()),
        ("slice", |row| row.slice = Some("2".into())),
        ("engine", |row| row.engine = 9),
        ("dtype", |row| row.dtype = "f32".into()),
        ("arithmetic", |row| row.arithmetic = "fast".into()),
    ];
    let repeated: [(&str, Change); 19] = [
        ("score", |row| row.score = Some("2".into())),
        ("scope", |row| row.scope = Some("2".into())),
        ("keep_first", |row| row.keep_first = 2),
        ("keep_recent", |row| row.keep_recent = 2),
        ("budget", |row| row.budget = Some("2".into())),
        ("cluster", |row| row.cluster = "2".into()),
        ("sample_id", |row| row.sample_id = "2".into()),
        ("value", |row| row.value += 1e-9),
        ("weight", |row| row.weight += 1.0),
        ("question", |row| row.question = Some("2".into())),
        ("references", |row| row.references = Some("2".into())),
        ("output", |row| row.output = Some("2".into())),
        ("prompt_tokens", |row| row.prompt_tokens += 1),
        ("new_tokens", |row| row.new_tokens += 1),
        ("held_bytes", |row| row.held_bytes = Some(1.0)),
        ("peak_bytes", |row| row.peak_bytes = Some(2)),
        ("allocated_bytes", |row| row.allocated_bytes += 1),
        ("read_bytes", |row| row.read_bytes = Some(1.0)),
        ("select_from", |row| row.select_from = Some(2)),
    ];
    let free: [(&str, Change); 15] = [
        ("definition", |row| row.definition = Some("2".into())),
        ("cell", |row| row.cell = "2".into()),
        ("sweep", |row| row.sweep = "2".into()),
        ("model", |row| row.model = "2".into()),
        ("windows", |row| row.windows = Some("24 -".into())),
        ("dataset", |row| row.dataset = "2".into()),
        ("compare_to_full", |row| row.compare_to_full = true),
        ("selection", |row| row.selection = "2".into()),
        ("data", |row| row.data = "2".into()),
        // Of other policies than `random` no number depends on it.
        ("seed", |row| row.seed = 2),
        ("commit", |row| row.commit = Some("2".into())),
        ("device", |row| row.device = "2".into()),
        ("seconds", |row| row.seconds = 2.0),
        ("date", |row| row.date = "2".into()),
        // What a sample is made of is in its id.
        ("start", |row| row.start = Some(2)),
    ];
    for (column, change) in pairs {
        assert!(of(change).failed(), "{column}");
    }
    for (column, change) in repeated {
        let found = of(change);
        let [moved] = &only(&found).moved[..] else { panic!("{column}: {:?}", found.points) };
        assert!(found.failed() && only(&found).verdict == Verdict::Moved, "{column}");
        let named: &[&str] = if column == "value" { &[] } else { &[column] };
        assert_eq!(moved.columns, named);
        assert!(named.iter().all(|column| terminal(&found).contains(column)), "{}", terminal(&found));
    }
    for (column, change) in free {
        assert_eq!((only(&of(change)).verdict, of(change).failed()), (Verdict::Equal, false), "{column}");
    }
    let all = serde_json::to_value(&before[0]).unwrap();
    let mut all: Vec<&str> = all.as_object().unwrap().keys().map(String::as_str).collect();
    let mut known: Vec<&str> = [&pairs[..], &repeated, &free].concat().iter().map(|(column, _)| *column).collect();
    all.sort_unstable();
    known.sort_unstable();
    assert_eq!(all, known, "a column that is new must be in one of the lists");
    // The seed of `random` must repeat, and ids that older rows lack tell nothing.
    let random = |seed: u64| changed(before.clone(), |row| (row.score, row.seed) = (Some("random".into()), seed));
    assert_eq!(only(&compared(&random(1), &random(2), &options)).moved[0].columns, ["seed"]);
    assert!(!of(|row| row.sample_id = "".into()).failed());
    assert!(!of(|row| (row.sample_id, row.compare_to_full) = ("2".into(), true)).failed());
}

#[test]
fn a_row_that_one_side_lacks_of_a_sample_is_named() {
    let options = |allow_missing| Options { exact: Some(0.0), allow_missing, ..Options::default() };
    let two = [("a", "a", 2.0, 1.0), ("b", "b", 2.0, 1.0)];
    let whole = cell("nll", &two);
    let more = |change: fn(&mut Row)| [whole.clone(), changed(cell("nll", &two[..1]), change)].concat();
    let with_slice = more(|row| row.slice = Some("position:0-9".into()));
    let with_metric = more(|row| row.metric = "recall".into());
    for (rows, names) in [
        (&with_slice, ["tova at 64, position:0-9", "a \u{B7} nll"]),
        (&with_metric, ["tova at 64", "a \u{B7} recall"]),
    ] {
        for (before, after, side) in [(&whole, rows, "results"), (rows, &whole, "baseline")] {
            let found = compared(before, after, &options(true));
            assert_eq!((found.failed(), found.count(Verdict::Moved)), (true, 1), "{names:?} {side}");
            let text = terminal(&found);
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
            assert!(text.contains(&format!("only in the {side}")), "{text}");
        }
    }
    // Samples that only one side has are missing or new instead.
    let found = compared(&whole, &whole[..1], &options(true));
    assert_eq!(
        (only(&found).verdict, only(&found).missing_samples.len(), found.failed()),
        (Verdict::Equal, 1, false)
    );
    assert!(compared(&whole, &whole[..1], &options(false)).failed());
    assert_eq!(only(&compared(&whole[..1], &whole, &options(false))).new_samples, 1);
}

#[test]
fn nothing_in_common_is_no_success() {
    let before = cell("nll", &[("a", "a", 2.0, 1.0)]);
    let after = cell("nll", &[("x", "x", 2.0, 1.0)]);
    let other = changed(before.clone(), |row| row.policy = "window".into());
    for exact in [None, Some(1e-6)] {
        let options = Options { exact, allow_missing: true, ..Options::default() };
        let found = compared(&before, &after, &options);
        assert_eq!((only(&found).verdict, found.failed(), found.has_common()), (Verdict::Missing, true, false));
        assert!(compared(&before, &other, &options).failed());
        // Beside a number that is equal as well.
        let [both_before, both_after] = [&before, &after].map(|rows| [rows.clone(), other.clone()].concat());
        assert!(compared(&both_before, &both_after, &options).failed());
        // A number that the results lack is allowed to be missing.
        let found = compared(&both_before, &other, &options);
        assert_eq!((found.count(Verdict::Missing), found.failed()), (1, false));
    }
}
