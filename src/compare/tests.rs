//! Verdicts computed by hand, and formats read back with other parsers.

use super::*;
use crate::report::fixture::{self, changed};

/// A sample of a cell: its name, its cluster, value and weight.
type Given = (&'static str, &'static str, f64, f64);

fn row(policy: &str, size: Option<u32>, metric: &str, (sample, cluster, value, weight): Given) -> Row {
    let row = fixture::cell(metric, policy, size, &[(sample, value, weight)]).remove(0);
    Row { cluster: cluster.into(), engine: 2, ..row }
}

fn cell(metric: &str, samples: &[Given]) -> Vec<Row> {
    samples.iter().map(|sample| row("tova", Some(64), metric, *sample)).collect()
}

fn compared(before: &[Row], after: &[Row], options: &Options) -> Comparison {
    compare(("before", before), ("after", after), options).unwrap()
}

fn only(comparison: &Comparison) -> &Point {
    let [point] = &comparison.points[..] else { panic!("one point expected: {:?}", comparison.points) };
    point
}

#[test]
fn an_interval_whose_every_resample_is_known() {
    // Two books: a draw of two is one of them twice, or both. A quarter of all draws is the first twice, a quarter the
    // second twice, so the ends at 2.5 % are the books' own differences, and the value is that of both together.
    let before = cell("nll", &[("a", "a", 4.0, 4.0), ("b", "b", 4.0, 2.0)]);
    let after = cell("nll", &[("a", "a", 6.0, 4.0), ("b", "b", 5.0, 2.0)]);
    let found = compared(&before, &after, &Options::default());
    let point = only(&found);
    let difference = point.difference.unwrap();
    assert_eq!((point.before, point.after), (Some((8.0f64 / 6.0).exp()), Some((11.0f64 / 6.0).exp())));
    assert_eq!(difference.value, (11.0f64 / 6.0).exp() - (8.0f64 / 6.0).exp());
    let interval = difference.interval.unwrap();
    assert_eq!((interval.low, interval.high), (1.5f64.exp() - 1f64.exp(), 2.5f64.exp() - 2f64.exp()));
    assert_eq!((point.verdict, point.threshold.as_deref()), (Verdict::Regressed, Some("interval+0.1%")));
    assert_eq!((point.samples, point.clusters), (2, 2));
    assert!(found.failed());

    // One book is worse by 25 points, the other as it was: the interval begins at zero, which it must exclude.
    let before = cell("recall", &[("a", "a", 2.0, 4.0), ("b", "b", 3.0, 4.0)]);
    let after = cell("recall", &[("a", "a", 1.0, 4.0), ("b", "b", 3.0, 4.0)]);
    let found = compared(&before, &after, &Options::default());
    let interval = only(&found).difference.unwrap().interval.unwrap();
    assert_eq!((interval.low, interval.high), (-25.0, 0.0));
    assert_eq!((only(&found).verdict, found.failed()), (Verdict::WithinNoise, false));
}

#[test]
fn better_is_what_the_metric_says() {
    let moved = |metric: &str, by: f64| {
        let before = cell(metric, &[("a", "a", 2.0, 4.0), ("b", "b", 2.0, 4.0)]);
        let after = cell(metric, &[("a", "a", 2.0 + by, 4.0), ("b", "b", 2.0 + by, 4.0)]);
        let found = compared(&before, &after, &Options::default());
        (only(&found).verdict, found.failed())
    };
    assert_eq!(moved("nll", 1.0), (Verdict::Regressed, true));
    assert_eq!(moved("nll", -1.0), (Verdict::Improved, false));
    assert_eq!(moved("f1", 1.0), (Verdict::Improved, false));
    assert_eq!(moved("f1", -1.0), (Verdict::Regressed, true));
    assert_eq!(moved("new_tokens", 1.0), (Verdict::Changed, false));
    assert_eq!(moved("new_tokens", 0.0), (Verdict::Equal, false));
    // A tenth of a percent is no regression, whatever the interval says.
    assert_eq!(moved("f1", -0.001), (Verdict::WithinNoise, false));
    assert_eq!(moved("nll", f64::NAN), (Verdict::Regressed, true));
    assert_eq!(moved("f1", f64::NAN), (Verdict::Regressed, true));
    assert_eq!(moved("new_tokens", f64::NAN), (Verdict::Changed, false));
}

#[test]
fn rouge_is_compared_as_it_is_reported() {
    let rows = |third: f64| {
        let all = [("rouge1", 0.8), ("rouge2", 0.1), ("rougeL", third)];
        let rows = all.map(|(metric, value)| cell(metric, &[("a", "a", value, 1.0), ("b", "b", value, 1.0)]));
        rows.concat()
    };
    let found = compared(&rows(0.4), &rows(0.2), &Options::default());
    let rouge = found.points.iter().find(|point| point.metric.id == "rouge").unwrap();
    assert!((rouge.before.unwrap() - 100.0 * 0.032f64.cbrt()).abs() < 1e-9);
    assert!((rouge.after.unwrap() - 100.0 * 0.016f64.cbrt()).abs() < 1e-9);
    assert_eq!(rouge.verdict, Verdict::Regressed);
    assert_eq!(found.count(Verdict::Equal), 2, "the other two");
}

#[test]
fn cells_are_paired_by_what_they_mean() {
    let books = [("a", "a", 2.0, 1.0), ("b", "b", 2.0, 1.0)];
    let of = |change: fn(&mut Row)| changed(cell("nll", &books), change);
    let base = of(|_| {});
    let verdicts = |after: &[Row]| {
        let found = compared(&base, after, &Options::default());
        let mut verdicts: Vec<Verdict> = found.points.iter().map(|point| point.verdict).collect();
        verdicts.sort();
        verdicts
    };
    // Ids and provenance are not part of the meaning.
    assert_eq!(verdicts(&of(|row| row.cell = "0".into())), [Verdict::Equal]);
    assert_eq!(verdicts(&of(|row| row.engine = 3)), [Verdict::Equal]);
    assert_eq!(verdicts(&of(|row| row.device = "another".into())), [Verdict::Equal]);
    assert_eq!(verdicts(&of(|row| row.sweep = "another".into())), [Verdict::Equal]);
    let apart = [Verdict::Missing, Verdict::New];
    let meanings: [fn(&mut Row); 16] = [
        |row| row.task = "other".into(),
        |row| row.dataset = "other".into(),
        |row| row.model = "other".into(),
        |row| row.model_revision = "other".into(),
        |row| row.dtype = "f32".into(),
        |row| row.length = 1,
        |row| row.stride = 1,
        |row| row.bos = false,
        |row| row.tail = "keep".into(),
        |row| row.generation = Some("x".into()),
        |row| row.prefill = "one_shot".into(),
        |row| row.policy = "window".into(),
        |row| row.positions = "slot".into(),
        |row| row.cache_size = Some(65),
        |row| row.cache_size = None,
        |row| row.metric = "other".into(),
    ];
    for (place, meaning) in meanings.into_iter().enumerate() {
        assert_eq!(verdicts(&of(meaning)), apart, "meaning {place}");
    }
    // The seed is part of it where text is drawn; only `random` depends on it elsewhere.
    let drawn = changed(base.clone(), |row| row.generation = Some("temperature=0.8".into()));
    let reseeded = |rows: &[Row]| changed(rows.to_vec(), |row| row.seed = 1);
    let of_seeds = |rows: &[Row]| compared(rows, &reseeded(rows), &Options::default()).points[0].verdict;
    assert_eq!((of_seeds(&base), of_seeds(&drawn)), (Verdict::Equal, Verdict::Missing));
    // The same texts under another path, or more of them under the same.
    let read = |dataset: &str, data: &str| {
        changed(base.clone(), |row| (row.dataset, row.data) = (dataset.into(), data.into()))
    };
    let found = |before: &[Row], after: &[Row]| compared(before, after, &Options::default()).points[0].verdict;
    assert_eq!(found(&read("./a", "1"), &read("../b/a", "1")), Verdict::Equal);
    assert_eq!(found(&read("./a", "1"), &read("./a", "2")), Verdict::Equal);
    assert_eq!(found(&read("./a", "1"), &read("./b", "2")), Verdict::Missing);
    // Two that could be meant are none.
    let two = [read("./a", "2"), changed(read("./a", "3"), |row| row.cell = "3".into())].concat();
    assert_eq!(found(&read("./a", "1"), &two), Verdict::Missing);
    // How a bounded cache is filled does not concern an unbounded one.
    let full = |change: fn(&mut Row)| changed(books.map(|sample| row("full", None, "nll", sample)).into(), change);
    let one_shot = full(|row| (row.prefill, row.positions) = ("one_shot".into(), "slot".into()));
    assert_eq!(only(&compared(&full(|_| {}), &one_shot, &Options::default())).verdict, Verdict::Equal);
}

#[test]
fn a_key_without_a_partner_is_explained() {
    let before = cell("nll", &[("a", "a", 2.0, 1.0)]);
    let after = changed(before.clone(), |row| row.model_revision = "4567".into());
    let notes = compared(&before, &after, &Options::default()).notes;
    assert!(notes.iter().any(|note| note.contains("revision") && note.contains("4567")), "{notes:?}");
}

#[test]
fn slices_are_compared_when_asked_for() {
    let with_parts = |value: f64| {
        let parts = cell("recall", &[("a", "a", value, 4.0), ("b", "b", value, 4.0)]);
        let whole = cell("recall", &[("a", "a", 4.0, 8.0), ("b", "b", 4.0, 8.0)]);
        [whole, changed(parts, |row| row.slice = Some("kind:home".into()))].concat()
    };
    let (before, after) = (with_parts(4.0), with_parts(1.0));
    assert_eq!(only(&compared(&before, &after, &Options::default())).verdict, Verdict::Equal);
    let found = compared(&before, &after, &Options { parts: true, ..Options::default() });
    let verdicts: Vec<_> = found.points.iter().map(|point| (point.slice.as_deref(), point.verdict)).collect();
    assert_eq!(verdicts, [(None, Verdict::Equal), (Some("kind:home"), Verdict::Regressed)]);
}

#[test]
fn missing_samples_fail_and_the_rest_is_compared() {
    let before = cell("nll", &[("a", "a", 2.0, 1.0), ("b", "b", 3.0, 1.0), ("c", "c", 9.0, 1.0)]);
    let after = cell("nll", &[("a", "a", 2.0, 1.0), ("b", "b", 3.0, 1.0), ("d", "d", 1.0, 1.0)]);
    let found = compared(&before, &after, &Options::default());
    let point = only(&found);
    assert_eq!((point.verdict, point.before, point.after), (Verdict::Equal, point.after, Some(2.5f64.exp())));
    assert_eq!((point.missing_samples.as_slice(), point.new_samples), (["c".to_owned()].as_slice(), 1));
    assert!(found.failed());
    assert!(!compared(&before, &after, &Options { allow_missing: true, ..Options::default() }).failed());
    // Without a common sample the number is missing.
    let others = cell("nll", &[("x", "x", 2.0, 1.0)]);
    assert_eq!(only(&compared(&before, &others, &Options::default())).verdict, Verdict::Missing);
}

fn timed(device: &str, [a, b, c]: [f64; 3]) -> Vec<Row> {
    let repeats = [("repeat#0", a), ("repeat#1", b), ("repeat#2", c)];
    changed(cell("decode", &repeats.map(|(name, seconds)| (name, "repeats", seconds, 100.0))), |row| {
        (row.task, row.device, row.cell) = ("timing".into(), device.into(), device.into());
    })
}

#[test]
fn times_compare_on_one_device_only() {
    // 100 tokens in 1 s; the medians are 100, 80, 95, 125 tokens/s, and the third's ranges touch.
    let base = timed("cpu", [1.0, 0.98, 1.02]);
    let verdict = |after: &[Row]| {
        let found = compared(&base, after, &Options::default());
        (found.points.iter().map(|point| point.verdict).collect::<Vec<_>>(), found.failed())
    };
    assert_eq!(verdict(&timed("cpu", [1.25, 1.2, 1.3])), (vec![Verdict::Regressed], true));
    assert_eq!(verdict(&timed("cpu", [1.05, 1.06, 1.04])), (vec![Verdict::WithinNoise], false), "less than 10 %");
    assert_eq!(verdict(&timed("cpu", [1.25, 1.01, 1.3])), (vec![Verdict::WithinNoise], false), "ranges touch");
    assert_eq!(verdict(&timed("cpu", [0.8, 0.81, 0.79])), (vec![Verdict::Improved], false));
    assert_eq!(verdict(&base), (vec![Verdict::Equal], false));
    assert_eq!(verdict(&timed("gpu", [9.0, 9.0, 9.0])), (vec![Verdict::NotComparable], false));
    assert_eq!(verdict(&[]), (vec![Verdict::Missing], true));
    // Another device beside the same one is new.
    let both = [timed("cpu", [1.25, 1.2, 1.3]), timed("gpu", [9.0; 3])].concat();
    let found = compared(&base, &both, &Options::default());
    assert_eq!((found.count(Verdict::Regressed), found.points.len()), (1, 1), "{:?}", found.points);
    let slower = compared(&base, &timed("cpu", [1.25, 1.2, 1.3]), &Options::default());
    assert_eq!((only(&slower).before, only(&slower).after), (Some(100.0), Some(80.0)));
}

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
    assert_eq!((sample.sample.as_str(), sample.before), ("b", 3.0));
    assert!((sample.change - 3e-5).abs() < 1e-12, "{}", sample.change);
    // 5e-7 for each token is within the tolerance, and is not equal.
    assert_eq!(only(&moved(300.00005, 100.0)).verdict, Verdict::WithinNoise);
    assert_eq!(only(&moved(300.0, 100.0)).verdict, Verdict::Equal);
    // The same quotient of other weights counted other tokens.
    assert_eq!(only(&moved(150.0, 50.0)).moved[0].weight_after, 50.0);
    assert_eq!(only(&moved(f64::NAN, 100.0)).moved[0].change, f64::INFINITY);
}

#[test]
fn exactly_compared_another_engine_is_no_equal_and_what_never_repeats_is_left_out() {
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

#[test]
fn chance_is_counted_over_what_moved() {
    let samples = |shift: f64| cell("nll", &[("a", "a", 2.0 + shift, 1.0), ("b", "b", 2.0 - shift, 1.0)]);
    let equal = compared(&samples(0.0), &samples(0.0), &Options::default());
    assert_eq!((equal.intervals(), equal.compared()), (0, 1));
    assert!(!terminal(&equal).contains("chance"), "{}", terminal(&equal));
    let moved = compared(&samples(0.0), &samples(0.1), &Options::default());
    assert_eq!((moved.intervals(), only(&moved).verdict), (1, Verdict::WithinNoise));
    assert!(terminal(&moved).contains("by chance alone about 0.1 would"), "{}", terminal(&moved));
}

/// A hostile name.
const HOSTILE: &str = "</testcase><x a=\"1\">|`@everyone` \u{1b}[2J\u{0}\u{FFFF}]]> & **b**";

fn hostile(value: f64) -> Vec<Row> {
    changed(cell("nll", &[("a", "a", 2.0, 1.0), ("b", "b", 3.0, 1.0)]), |row| {
        row.value += value;
        (row.policy, row.model, row.dataset) = (HOSTILE.into(), HOSTILE.into(), HOSTILE.into());
        row.sample = format!("{HOSTILE}{}", row.sample).into();
    })
}

#[test]
fn hostile_names_break_no_format() {
    for options in [Options::default(), Options { exact: Some(1e-6), ..Options::default() }] {
        let found = compared(&hostile(0.0), &hostile(1.0), &options);
        let text = terminal(&found);
        assert!(!text.contains(['\u{1b}', '\0']) && text.contains("[2J"), "{text}");

        let file = markdown(&found);
        assert!(!file.contains("<x") && !file.contains("</testcase>") && !file.contains('\u{1b}'), "{file}");
        assert!(file.contains("@<!-- -->everyone"), "{file}");
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let table: Vec<usize> = file.lines().filter(|line| line.starts_with('|')).map(bars).collect();
        assert!(table.len() >= 3 && table.iter().all(|count| *count == table[0]), "{file}");

        let file = junit(&found).unwrap();
        let tree = roxmltree::Document::parse(&file).unwrap();
        let cases: Vec<_> = tree.descendants().filter(|node| node.has_tag_name("testcase")).collect();
        assert_eq!(cases.len(), 1, "{file}");
        assert!(cases[0].attribute("name").unwrap().starts_with("</testcase><x a=\"1\">|`@everyone`"));

        let read: serde_json::Value = serde_json::from_str(&json(&found).unwrap()).unwrap();
        assert_eq!(read["points"][0]["policy"], HOSTILE);
    }
}

#[test]
fn markdown_stays_below_github_s_limit() {
    let many = |shift: f64| -> Vec<Row> {
        let one = cell("nll", &[("a", "a", 2.0 + shift, 1.0), ("b", "b", 3.0 + shift, 1.0)]);
        let of_size = |size: u32| {
            changed(one.clone(), |row| {
                (row.cache_size, row.cell) = (Some(size), size.to_string().into());
                row.policy = "<&|*_long_name".repeat(200).into();
            })
        };
        (1..500).flat_map(of_size).collect()
    };
    for exact in [None, Some(1e-6)] {
        let found = compared(&many(0.0), &many(1.0), &Options { exact, ..Options::default() });
        let file = markdown(&found);
        assert!(file.chars().count() < 65_536, "{}", file.chars().count());
        assert!(file.contains("more, which the JSON names"), "{file}");
        assert!(terminal(&found).contains("more, which --json FILE names"));
    }
}
