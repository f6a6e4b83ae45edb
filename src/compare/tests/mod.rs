//! Numbers paired and verdicts computed by hand.

mod exact;
mod format;

use super::*;
use crate::report::fixture::{self, changed};

/// A sample of a cell: its name, its cluster, value and weight.
pub(super) type Given = (&'static str, &'static str, f64, f64);

fn row(policy: &str, size: Option<u32>, metric: &str, (sample, cluster, value, weight): Given) -> Row {
    let row = fixture::cell(metric, policy, size, &[(sample, value, weight)]).remove(0);
    Row { cluster: cluster.into(), engine: 2, ..row }
}

pub(super) fn cell(metric: &str, samples: &[Given]) -> Vec<Row> {
    samples.iter().map(|sample| row("tova", Some(64), metric, *sample)).collect()
}

/// A comparison as a terminal shows it.
pub(super) fn terminal(comparison: &Comparison) -> String {
    crate::report::terminal(&document(comparison), 200)
}

/// A comparison as a comment shows it.
pub(super) fn markdown(comparison: &Comparison) -> String {
    crate::report::markdown(&document(comparison))
}

/// A cell of a sample in each of some clusters, which are called a, b, c, ...
fn books(metric: &str, values: &[f64], weights: &[f64]) -> Vec<Row> {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let sums = values.iter().zip(weights).zip(names);
    cell(metric, &sums.map(|((value, weight), name)| (name, name, *value, *weight)).collect::<Vec<Given>>())
}

pub(super) fn compared(before: &[Row], after: &[Row], options: &Options) -> Comparison {
    compare(("before", before), ("after", after), options).unwrap()
}

pub(super) fn only(comparison: &Comparison) -> &Point {
    let [point] = &comparison.points[..] else { panic!("one point expected: {:?}", comparison.points) };
    point
}

/// Options with a threshold for all metrics.
fn threshold(rules: &str) -> Options {
    let thresholds = Thresholds::from([(None, rules.parse().unwrap())]);
    Options { thresholds, ..Options::default() }
}

#[test]
fn an_interval_whose_every_subset_is_known() {
    // Every book has 1 nat a token before, so a subset's difference grows with its mean after, and of 15 subsets the least
    // and the greatest are books alone.
    let weights = [4.0, 2.0, 2.0, 1.0];
    let before = books("nll", &weights, &weights);
    let after = books("nll", &[6.0, 4.0, 2.5, 1.125], &weights);
    let found = compared(&before, &after, &threshold("interval+0.1%"));
    let point = only(&found);
    let difference = point.difference.unwrap();
    let pooled = 13.625f64 / 9.0;
    assert_eq!((point.before, point.after), (Some(1f64.exp()), Some(pooled.exp())));
    assert_eq!(difference.value, pooled.exp() - 1f64.exp());
    let interval = difference.interval.unwrap();
    assert_eq!((interval.low, interval.high), (1.125f64.exp() - 1f64.exp(), 2f64.exp() - 1f64.exp()));
    assert_eq!((point.verdict, point.threshold.as_deref()), (Verdict::Regressed, Some("interval+0.1%")));
    assert_eq!((point.samples, point.clusters), (4, 4));
    assert!(found.failed());
    let worse: Vec<&str> = point.clusters_worse.iter().map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(worse, ["b", "a", "c", "d"]);

    // One book is as it was: the interval begins at zero, which it must exclude.
    let before = books("recall", &[2.0, 3.0, 3.0, 3.0], &[4.0; 4]);
    let after = books("recall", &[1.0, 3.0, 2.0, 2.0], &[4.0; 4]);
    let found = compared(&before, &after, &threshold("interval"));
    let interval = only(&found).difference.unwrap().interval.unwrap();
    assert_eq!((interval.low, interval.high), (-25.0, 0.0));
    assert_eq!((only(&found).verdict, found.failed()), (Verdict::WithinNoise, false));
    // Of three books there is none, and 1 % decides.
    let found = compared(&before[..3], &after[..3], &threshold("interval"));
    assert_eq!(only(&found).difference.unwrap().interval, None);
    assert_eq!(only(&found).threshold.as_deref(), Some("interval (no interval: 1%)"));
    assert!(found.failed());
}

#[test]
fn a_few_clusters_that_got_far_worse_are_a_regression_and_are_named() {
    // Three books of twelve cost a nat and more, the others what they did: no interval excludes zero.
    let before = books("nll", &[4.5; 12], &[1.0; 12]);
    let mut values = [4.5; 12];
    (values[2], values[5], values[9]) = (5.5, 7.5, 6.5);
    let found = compared(&before, &books("nll", &values, &[1.0; 12]), &Options::default());
    let point = only(&found);
    assert!(point.difference.unwrap().interval.unwrap().low <= 0.0);
    assert_eq!(
        (point.verdict, point.threshold.as_deref(), found.failed()),
        (Verdict::Regressed, Some("1%"), true)
    );
    let cluster = |name: &str, after: f64| Cluster { name: name.into(), before: 4.5f64.exp(), after: after.exp() };
    assert_eq!(point.clusters_worse, [cluster("f", 7.5), cluster("j", 6.5), cluster("c", 5.5)]);
    for text in [terminal(&found), markdown(&found).replace("\\", "").replace("&gt;", ">")] {
        assert!(text.contains("f 90.02 -> 1808, j 90.02 -> 665.1, c 90.02 -> 244.7"), "{text}");
    }
    let read: serde_json::Value = serde_json::from_str(&json(&found).unwrap()).unwrap();
    let named = read["points"][0]["clusters_worse"].as_array().unwrap();
    assert_eq!((named.len(), &named[1]["name"], &named[1]["after"]), (3, &"j".into(), &6.5f64.exp().into()));

    // One book by 6 %, which is half a percent of all: the cluster decides alone, even where the others got better.
    (values, values[4]) = ([4.499; 12], 4.5 + 0.06);
    let found = compared(&before, &books("nll", &values, &[1.0; 12]), &Options::default());
    assert_eq!(
        (only(&found).verdict, only(&found).threshold.as_deref()),
        (Verdict::Regressed, Some("cluster+5%"))
    );
    assert_eq!(only(&found).clusters_worse, [cluster("e", 4.56)]);
    // The other way round is not an improvement.
    (values, values[4]) = ([4.5; 12], 4.4);
    let found = compared(&before, &books("nll", &values, &[1.0; 12]), &Options::default());
    assert_eq!((only(&found).verdict, only(&found).clusters_worse.len()), (Verdict::WithinNoise, 0));
}

#[test]
fn the_share_of_a_cluster_is_of_its_own_baseline_or_the_pooled_one() {
    // Books at 50 % and one at 1 %, which loses half of it: 0.5 points are 1.1 % of the pooled 44.
    let moved = |last: f64, options: &Options| {
        let values = |last: f64| [50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0, last];
        let [before, after] = [1.0, last].map(|last| books("f1", &values(last), &[100.0; 8]));
        only(&compared(&before, &after, options)).verdict
    };
    assert_eq!(moved(0.5, &threshold("cluster+5%")), Verdict::WithinNoise);
    assert_eq!(moved(0.5, &threshold("cluster+1%")), Verdict::Regressed);
    // A book twice as good as the others may lose a share of its own.
    let [before, after] = [90.0, 86.0].map(|first| books("f1", &[first, 40.0, 40.0, 40.0], &[100.0; 4]));
    let verdict = |rule: &str| only(&compared(&before, &after, &threshold(rule))).verdict;
    assert_eq!((verdict("cluster+5%"), verdict("cluster+4%")), (Verdict::WithinNoise, Verdict::Regressed));
}

/// NLLs of books in nats, and how many tokens and words they have, drawn.
fn drawn(rng: &mut fastrand::Rng, count: usize) -> [Vec<f64>; 4] {
    let tokens: Vec<f64> = (0..count).map(|_| f64::from(rng.u32(50..500))).collect();
    let words: Vec<f64> = tokens.iter().map(|tokens| (tokens * (0.3 + 0.6 * rng.f64())).round()).collect();
    let before: Vec<f64> = tokens.iter().map(|tokens| tokens * (1.0 + 2.0 * rng.f64())).collect();
    let after = before.iter().map(|nats| nats * (1.0 + 0.03 * (rng.f64() - 0.25))).collect();
    [tokens, words, before, after]
}

#[test]
fn perplexities_of_tokens_and_of_words_have_the_same_verdict() {
    let verdicts = |[tokens, words, before, after]: [&[f64]; 4]| {
        ["nll", "nll_word"].map(|metric| {
            let weights = if metric == "nll" { tokens } else { words };
            let [before, after] = [before, after].map(|nats| books(metric, nats, weights));
            only(&compared(&before, &after, &threshold("interval"))).verdict
        })
    };
    // Six books, of which one got better by less than the others got worse. Its end of the interval lies between this book
    // alone and a subset that got worse.
    let six = [[1.0; 6], [0.5, 0.9, 0.7, 0.4, 0.8, 0.6], [2.0; 6], [1.99, 2.5, 2.5, 2.5, 2.5, 2.5]];
    assert_eq!(verdicts(six.each_ref().map(|of| &of[..])), [Verdict::WithinNoise; 2]);
    let before = books("nll", &six[2], &six[0]);
    let found = compared(&before, &books("nll", &six[3], &six[0]), &threshold("interval"));
    assert_eq!(only(&found).difference.unwrap().interval.unwrap().low, 0.0);

    let mut rng = fastrand::Rng::with_seed(19);
    let mut seen = [0; 2];
    for round in 0..200 {
        let drawn = drawn(&mut rng, 4 + round % 9);
        let [tokens, words] = verdicts(drawn.each_ref().map(Vec::as_slice));
        assert_eq!(tokens, words, "{drawn:?}");
        seen[usize::from(tokens == Verdict::Regressed)] += 1;
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}

#[test]
fn better_is_what_the_metric_says() {
    let moved = |metric: &str, by: f64| {
        let [before, after] = [2.0, 2.0 + by].map(|value| books(metric, &[value; 4], &[4.0; 4]));
        let found = compared(&before, &after, &Options::default());
        (only(&found).verdict, found.failed())
    };
    assert_eq!(moved("nll", 1.0), (Verdict::Regressed, true));
    assert_eq!(moved("nll", -1.0), (Verdict::Improved, false));
    assert_eq!(moved("f1", 1.0), (Verdict::Improved, false));
    assert_eq!(moved("f1", -1.0), (Verdict::Regressed, true));
    assert_eq!(moved("new_tokens", 1.0), (Verdict::Changed, false));
    assert_eq!(moved("new_tokens", 0.0), (Verdict::Equal, false));
    // A tenth of a percent is not a regression, whatever the interval is.
    assert_eq!(moved("f1", -0.001), (Verdict::WithinNoise, false));
    assert_eq!(moved("nll", f64::NAN), (Verdict::Regressed, true));
    assert_eq!(moved("f1", f64::NAN), (Verdict::Regressed, true));
    // A perplexity of 0 would be the best of all.
    assert_eq!(moved("nll", f64::NEG_INFINITY), (Verdict::Regressed, true));
    assert_eq!(moved("nll", f64::INFINITY), (Verdict::Regressed, true));
    assert_eq!(moved("new_tokens", f64::NAN), (Verdict::Changed, false));
}

#[test]
fn a_row_that_is_there_twice_is_refused_on_either_side() {
    let rows = books("nll", &[2.0; 4], &[1.0; 4]);
    let twice = [rows.clone(), rows[2..3].to_vec()].concat();
    for options in [Options::default(), Options { exact: Some(0.0), ..Options::default() }] {
        for (before, after, side) in [(&rows, &twice, "after"), (&twice, &rows, "before")] {
            let error = compare(("before", before), ("after", after), &options).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.starts_with(side) && error.contains("the sample c twice"), "{error}");
        }
        assert!(compare(("before", &rows), ("after", &rows), &options).is_ok());
    }
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
        |row| row.prefill = "cut_before_question".into(),
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
    let cut = full(|row| (row.prefill, row.positions) = ("cut_before_question".into(), "slot".into()));
    assert_eq!(only(&compared(&full(|_| {}), &cut, &Options::default())).verdict, Verdict::Equal);
}

#[test]
fn shares_pair_by_share_whatever_entries_samples_have() {
    let of = |share| fixture::at_share(share, books("nll", &[2.0; 4], &[1.0; 4]));
    let before = [of(0.25), of(0.125)].concat();
    // In another order, samples have other entries.
    let after: Vec<Row> = fixture::at_share(0.25, of(0.25).into_iter().rev().collect());
    let found = compared(&before, &[after, of(0.125)].concat(), &Options::default());
    let places: Vec<(String, Verdict)> = found.points.iter().map(|point| (point.place(), point.verdict)).collect();
    let expected = ["tova at 12.5%", "tova at 25%"].map(|place| (place.to_owned(), Verdict::Equal));
    assert_eq!((places, &found.notes[..]), (expected.into(), &[][..]));
    let read: serde_json::Value = serde_json::from_str(&json(&found).unwrap()).unwrap();
    assert_eq!(read["points"][1]["cache_size"], "25%");
    let entries = compared(&of(0.25), &cell("nll", &[("a", "a", 2.0, 1.0)]), &Options::default());
    assert_eq!([entries.count(Verdict::Missing), entries.count(Verdict::New)], [1, 1]);
    let read: serde_json::Value = serde_json::from_str(&json(&entries).unwrap()).unwrap();
    assert_eq!(read["points"][0]["cache_size"], 64);
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
    let found = compared(&before, &after, &Options { slices: true, ..Options::default() });
    let verdicts: Vec<_> = found.points.iter().map(|point| (point.slice.clone(), point.verdict)).collect();
    assert_eq!(verdicts, [(None, Verdict::Equal), (Some("kind:home".into()), Verdict::Regressed)]);
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

pub(super) fn timed(device: &str, [a, b, c]: [f64; 3]) -> Vec<Row> {
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
    assert_eq!((found.count(Verdict::Regressed), found.count(Verdict::New)), (1, 1), "{:?}", found.points);
    let slower = compared(&base, &timed("cpu", [1.25, 1.2, 1.3]), &Options::default());
    assert_eq!((only(&slower).before, only(&slower).after), (Some(100.0), Some(80.0)));
}
