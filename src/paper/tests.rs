//! Exhibits and claims of rows with the paper's own numbers, and of others.

use super::*;
use crate::report::fixture::table_3;
use crate::report::{Published as _, scene};

/// The sheet of claims, where any was measured.
fn claims(rows: &[Row]) -> Option<Sheet> {
    Paper.extra(&Results::of(rows).unwrap()).pop()
}

const LLAMA: &str = "meta-llama/Llama-2-7b-hf";

fn row(task: &str, metric: &str, policy: &str, size: Option<u32>, value: f64, weight: f64) -> Row {
    Row { model: LLAMA.into(), ..numbers::row(task, metric, policy, size, value, weight) }
}

/// Answers with the scores of each policy and size, for each metric.
fn answers(task: &str, metrics: &[&str], template: bool, scores: &[(&str, Option<u32>, f64)]) -> Vec<Row> {
    let asked = format!("prompt=paper max_new_tokens=8 temperature=0 chat_template={template}");
    let rows = scores.iter().flat_map(|(policy, size, score)| {
        metrics.iter().map(|metric| row(task, metric, policy, *size, *score, 1.0))
    });
    rows.map(|row| Row { generation: Some(asked.as_str().into()), ..row }).collect()
}

/// Timing, verdicts and stories as the paper has them, but for TOVA's speed.
fn of_paper() -> Vec<Row> {
    let rows = numbers::ROWS.iter().filter(|row| ["timing", "judge", "story"].contains(&row.task.as_str()));
    let faster = |row: &Row| if row.weight == 4.8 { 5.0 } else { row.weight };
    rows.map(|row| Row { model: LLAMA.into(), weight: faster(row), ..row.clone() }).collect()
}

/// A text of 16,384 tokens in pieces, in nats per token: of TOVA all alike, of Window+4 rising.
fn long() -> Vec<Row> {
    let mut all = Vec::new();
    for (policy, positions, rise) in [("tova", "squeezed", 0.0), ("window+4", "slot", 0.05)] {
        let pieces = [
            (Some("piece:0-4095"), 2.0, 4096.0),
            (Some("piece:4096-8191"), 2.0 + rise, 4096.0),
            (Some("piece:8192-16383"), 2.0 + rise, 8192.0),
        ];
        let total: f64 = pieces.iter().map(|(_, nats, weight)| nats * weight).sum();
        all.extend(pieces.into_iter().chain([(None, total / 16_384.0, 16_384.0)]).map(|(piece, nats, weight)| {
            Row {
                length: 16_384,
                positions: positions.into(),
                slice: piece.map(Into::into),
                ..row("perplexity", "nll", policy, Some(512), nats * weight, weight)
            }
        }));
    }
    all
}

/// What TOVA keeps: 4,096 tokens of three layers, of which the second leaves at step 600.
fn kept() -> Vec<Row> {
    let left: Vec<&str> = (0..4096).map(|token| if token == 1 { "600" } else { "4096" }).collect();
    let left = left.join(" ");
    [
        // The mean of min(t, 513) over 4,096 steps: (1 + ... + 512 + 3,584 x 513) / 4,096.
        ("lifetime", None, (512.0 * 513.0 / 2.0 + 3584.0 * 513.0) / 4096.0),
        ("lifetime", Some("class:possessive"), 1393.0),
        ("lifetime", Some("tag:PROPN"), 600.0),
        ("lifetime", Some("position:0"), 4096.0),
        ("lifetime", Some("position:1"), 599.0),
        ("recent_share", None, 0.78),
        ("kept_until", Some("layer:0"), 4.0),
        ("kept_until", Some("layer:1"), 4.0),
        ("kept_until", Some("layer:2"), 4.0),
    ]
    .map(|(metric, slice, value)| Row {
        slice: slice.map(Into::into),
        output: (metric == "kept_until").then(|| left.clone()),
        ..row("retention", metric, TOVA, Some(512), value, 1.0)
    })
    .to_vec()
}

fn everything() -> Vec<Row> {
    let scores = [("full", None, 0.2), ("tova", Some(512), 0.195), ("window+4", Some(512), 0.16)];
    let half = [("full", None, 0.4), ("tova", Some(2048), 0.38), ("truncate", Some(2048), 0.39)];
    let rouge = ["rouge1", "rouge2", "rougeL"];
    let base = answers("squality", &rouge, false, &scores);
    let chat = answers("squality", &rouge, true, &scores);
    let models = [(LLAMA, 1.0), ("mistralai/Mistral-7B-v0.1", 0.97), ("01-ai/Yi-6B", 1.3)];
    let mut all: Vec<Row> = models.iter().flat_map(|(model, scale)| table_3(model, *scale, 40)).collect();
    all.extend([base, chat, answers("qasper", &["f1"], true, &half), of_paper(), long(), kept()].concat());
    all
}

/// The statement, verdict and number of each claim that was measured, and what the paper's tables give.
fn verdicts(rows: &[Row]) -> Vec<(&'static str, &'static str, f64, Option<f64>)> {
    let results = Results::of(rows).unwrap();
    let claims = claim::check(&Evidence::of(&results));
    let verdict = |checked: &claim::Checked| {
        let printed = checked.printed.as_ref().map(|printed| printed.estimate.value);
        let of = |(_, observed): &claim::Finding| {
            let verdict = checked.claim.verdict(&observed.estimate);
            (checked.claim.statement, verdict, observed.estimate.value, printed)
        };
        checked.findings.iter().map(of).collect::<Vec<_>>()
    };
    claims.iter().flat_map(verdict).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.005
}

#[test]
fn the_paper_s_table_gives_the_verdicts_derived_by_hand() {
    let found = verdicts(&table_3(LLAMA, 1.0, 100));
    // 7.41 - 7.16; Window+4's 7.30 - 7.17; its 7.46 - 7.16; best at 256 to 2,048, not at 64 and 128; 7.27 - 7.17.
    let expected =
        [("holds", 0.25), ("holds", 0.13), ("does not hold", 0.30), ("holds", 400.0 / 6.0), ("holds", 0.10)];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((statement, words, number, printed), (verdict, value)) in found.iter().zip(expected) {
        assert!(words.starts_with(verdict), "{statement}: {words}");
        assert!(near(*number, value) && near(printed.unwrap(), value), "{statement}: {number}, {printed:?}");
    }
}

#[test]
fn only_measured_claims_are_counted_each_in_sentences() {
    let sheet = claims(&table_3(LLAMA, 1.0, 100)).unwrap();
    assert_eq!(sheet.title, "Claims of the paper: 4 of 5 measured claims hold; 13 need other models or tasks");
    assert_eq!(sheet.grid.lines.len(), 5);
    let cells = |line: usize| -> Vec<&str> {
        sheet.grid.lines[line].cells.iter().map(|cell| cell.as_ref().unwrap().number.as_str()).collect()
    };
    let [verdict, here, paper] = cells(0)[..] else { panic!("{:?}", cells(0)) };
    assert_eq!(verdict, "holds");
    assert!(
        here.starts_with("tova with 512 entries is 0.25 perplexity worse than the full cache (95 % interval: "),
        "{here}"
    );
    assert_eq!(paper, "tova with 512 entries is 0.25 perplexity worse than the full cache");
    let better =
        "tova is better at every measured size; the nearest is window+4 with 2048 entries, 0.13 perplexity worse";
    assert_eq!(cells(1)[1], better);
    let file = Format::named("md").unwrap().sheets.unwrap()(&[sheet]);
    let missing =
        "- Not measured here, but by configs/qasper-instruct.yaml: On QASPER TOVA's F1 is at most 1 below";
    assert!(file.contains(missing), "{file}");
    assert!(claims(&[row("perplexity", "nll", "h3o", Some(8), 1.0, 1.0)]).is_none());
}

#[test]
fn a_claim_about_tova_is_judged_on_tova_alone() {
    // Two sizes of a full table, with TOVA's rows under the names of its relatives.
    for (policy, positions) in
        [("tova", "slot"), ("tova", "squeezed"), ("tova+4", "absolute"), ("tova-head", "absolute")]
    {
        let all = table_3(LLAMA, 1.0, 20).into_iter();
        let rows =
            all.filter(|row| !["tova+4", "tova-head"].contains(&&*row.policy)).map(|row| match &*row.policy {
                "tova" => Row { policy: policy.into(), positions: positions.into(), ..row },
                _ => row,
            });
        let found = verdicts(&rows.collect::<Vec<_>>());
        assert_eq!(found.len(), 2, "{policy}@{positions}: {found:?}");
        assert!(
            found.iter().all(|(statement, ..)| statement.contains("neither") || statement.contains("Window+4"))
        );
    }
    // Over long texts the paper squeezes positions; ranks in the cache are another policy.
    let long_with = |positions: &str| {
        let rows = long().into_iter().map(|row| match &*row.policy {
            "tova" => Row { positions: positions.into(), ..row },
            _ => row,
        });
        verdicts(&rows.collect::<Vec<_>>()).len()
    };
    assert_eq!(["squeezed", "absolute", "slot"].map(long_with), [2, 2, 0]);
}

#[test]
fn moving_one_number_turns_its_claim() {
    // TOVA's 512 becomes 7.60: 0.44 from full, and still below Window+4's 7.73; then 7.80, which is 0.07 above it.
    for (moved, claim, verdict, number) in
        [(7.60, 0, "does not hold", 0.44), (7.60, 1, "holds", 0.13), (7.80, 1, "does not hold", -0.07)]
    {
        let rows = table_3(LLAMA, 1.0, 100).into_iter().map(|row| match (row.policy.as_str(), row.cache_size) {
            ("tova", Some(512)) => Row { value: row.value + 4095.0 * f64::ln(moved / 7.41), ..row },
            _ => row,
        });
        let found = &verdicts(&rows.collect::<Vec<_>>())[claim];
        assert!(found.1.starts_with(verdict) && near(found.2, number), "{found:?}");
    }
}

#[test]
fn every_task_has_its_claims() {
    let found = verdicts(&everything());
    let check = |statement: &str, words: &str, number: f64| {
        let of_one: Vec<_> = found.iter().filter(|(known, ..)| known.contains(statement)).collect();
        let is_it = of_one.iter().any(|(_, w, n, _)| *w == words && near(*n, number));
        assert!(is_it, "{statement}: {of_one:?}");
    };
    // All three ROUGE scores are the score: 20.0 against 19.5 and 16.0.
    check("ROUGE is at most 1 below", "holds", 0.5);
    check("ROUGE is higher", "holds", 3.5);
    check("F1 is at most 1 below", "does not hold", 2.0);
    check("F1 is higher", "does not hold", -1.0);
    // TOVA's nats stay 2.0, Window+4's start there too.
    check("rises by less than 0.5", "holds", 0.0);
    check("stays below Window+4's", "does not hold", 0.0);
    check("a judge prefers", "holds", -1.0);
    check("at most 1 % shorter", "holds", 0.0);
    // 400 a second against 80 are five times as many.
    check("at least 4.8 times", "holds", 5.0);
    check("12.8 % of the full cache's memory", "holds", 100.0 * 0.28 / 2.18);
    check("min(t, k + 1)", "holds", 0.0);
    check("73 to 76 %", "does not hold", 78.0);
    check("the first token", "holds", 100.0);
}

#[test]
fn differences_to_the_paper_s_own_numbers_are_none() {
    let all = everything();
    let results = Results::of(&all).unwrap();
    let evidence = Evidence { beside_paper: true, ..Evidence::of(&results) };
    let of = |text: &str| Exhibit::parse(text).unwrap().pieces(&evidence).unwrap().differences;
    let numbers = |sheet: &Sheet| -> Vec<String> {
        let entries = sheet.grid.lines.iter().flat_map(|line| line.cells.iter().flatten());
        entries.map(|entry| entry.number.clone()).collect()
    };
    let tables = of("table3");
    let [llama, _, yi] =
        &["Llama", "Mistral", "Yi"].map(|name| tables.iter().find(|sheet| sheet.title.contains(name)).unwrap());
    // Full and eight policies at seven sizes.
    assert_eq!(numbers(llama), vec!["0.00"; 9 * 7]);
    assert_eq!(numbers(yi)[0], "+2.15", "7.16 x 0.3");
    let figure = of("6");
    assert_eq!(figure.len(), 2);
    assert!(figure.iter().all(|sheet| numbers(sheet).iter().all(|number| number == "0.0")), "Figure 6");
    assert_eq!(numbers(&figure[0]).len() + numbers(&figure[1]).len(), 9 + 4);
    // Of the tags that Table 5 has, POS is the paper's; the mean is by counting; 600 against NNPS and NNP.
    let steps = of("table5");
    assert_eq!(numbers(&steps[0]), ["0", "0", "+22", "+83"]);
    let speed = of("table1");
    assert_eq!(numbers(&speed[0])[..6], ["0.000", "0.00", "0.000", "+0.20", "0.000", "0.00"]);
}

#[test]
fn each_exhibit_is_drawn_or_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    // Set to look at the figures by eye.
    let seen = std::env::var_os("TOVA_BENCH_TEST_REPORT").map(PathBuf::from);
    let out = seen.unwrap_or_else(|| folder.path().to_owned());
    let options = |columns, beside_paper| Options {
        out: out.clone(),
        formats: report::FORMATS.iter().collect(),
        columns,
        beside_paper,
    };
    let drawn = draw(&everything(), &Exhibit::all(), &options(None, true)).unwrap();
    let has = |name: &str| drawn.files.iter().any(|file| file.ends_with(format!("paper/{name}")));
    for number in [3, 4, 6, 7, 8, 9, 10, 12] {
        assert!(["svg", "png", "pdf"].iter().all(|end| has(&format!("figure-{number}.{end}"))), "{number}");
    }
    for number in [1, 2, 3, 5] {
        assert!(["md", "csv", "tex"].iter().all(|end| has(&format!("table-{number}.{end}"))), "{number}");
    }
    assert!(has("figure-5.svg") && has("table-3-minus-paper.md") && !has("figure-4-minus-paper.md"));
    let [eleven, thirteen] = &drawn.missing[..] else { panic!("{:?}", drawn.missing) };
    assert!(eleven.contains("instruct models only") && eleven.contains("configs/qasper-base.yaml"), "{eleven}");
    assert!(thirteen.contains("deepest layer that was mapped is 2"), "{thirteen}");
    for exhibit in Exhibit::all() {
        let nothing =
            draw(&[row("perplexity", "nll", "h3o", Some(8), 1.0, 1.0)], &[exhibit], &options(None, false))
                .unwrap();
        let [missing] = &nothing.missing[..] else { panic!("{exhibit}") };
        assert!(nothing.files.is_empty() && missing.contains("configs/"), "{missing}");
        let (task, sweeps) = exhibit.source().sweeps;
        assert!(
            missing.starts_with(&exhibit.to_string()) && missing.contains(&format!("task {task}")),
            "{missing}"
        );
        for sweep in sweeps {
            let sweep = sweep.split('`').next().unwrap();
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(sweep).is_file(), "{sweep}");
        }
    }
}

#[test]
fn figures_fit_a_column_or_two() {
    let all = everything();
    let results = Results::of(&all).unwrap();
    for (columns, inches) in [(Some(1), 3.3), (Some(2), 6.9), (None, 6.9)] {
        let evidence = Evidence { columns, beside_paper: true, ..Evidence::of(&results) };
        for number in [3, 4, 6, 7, 8, 9, 10, 12] {
            let pieces = Exhibit::parse(&number.to_string()).unwrap().pieces(&evidence).unwrap();
            for (_, scene) in &pieces.scenes {
                let fits = [inches * 72.0, if columns.is_none() { 3.3 * 72.0 } else { 0.0 }];
                assert!(fits.iter().any(|width| (scene.width - width).abs() < 1e-9), "{number}: {}", scene.width);
                assert_inside(scene, number);
            }
        }
    }
}

/// No text runs out of the page.
fn assert_inside(scene: &Scene, number: u8) {
    for text in scene::texts(scene).into_iter().filter(|text| !text.upright) {
        assert!(text.is_inside(scene), "Figure {number}: {text:?} of {}", scene.width);
        assert!(text.size >= 5.5, "Figure {number}: {text:?} is too small to read");
    }
}
