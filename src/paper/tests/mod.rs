//! Exhibits of rows with the paper's own numbers, and of others.

mod checked_claims;
pub(super) mod fixture;

use std::path::Path;

use fixture::{LLAMA, everything, row};

use super::*;
use crate::report::figure::scene;

#[test]
fn differences_to_the_paper_s_own_numbers_are_none() {
    let all = everything();
    let results = Results::of(&all).unwrap();
    let evidence = Evidence { beside_paper: true, ..Evidence::of(&results) };
    let of = |text: &str| Exhibit::parse(text).unwrap().pieces(&evidence).unwrap().differences;
    let numbers = |sheet: &Table| -> Vec<String> {
        let entries = sheet.grid.lines.iter().flat_map(|line| line.cells.iter().flatten());
        entries.map(|entry| entry.number.clone()).collect()
    };
    let tables = of("table3");
    // Perplexities 1.3 times as high are as far above their full cache in nats: TOVA at 512 by ln(7.41 / 7.16).
    let is_of_yi = |sheet: &&Table| sheet.title.starts_with("Excess") && sheet.title.contains("Yi");
    let excess = &tables.iter().find(is_of_yi).unwrap().grid.lines;
    let shown =
        |line: &report::Line| line.cells.iter().flatten().map(|entry| entry.number.clone()).collect::<Vec<_>>();
    assert!(excess.len() == 16 && excess.chunks(2).all(|pair| shown(&pair[0]) == shown(&pair[1])));
    let tova = excess.iter().find(|line| line.name == "tova").unwrap();
    assert_eq!(shown(tova), ["+0.286", "+0.150", "+0.074", "+0.034", "+0.012", "+0.001", "0.000"]);
    // Of the tags that Table 5 has, POS is the paper's; the mean is by counting; 600 against NNPS and NNP.
    let steps = of("table5");
    assert_eq!(numbers(&steps[0]), ["0", "0", "+22", "+83"]);
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
        plain: Plain::default(),
    };
    let drawn = draw(&everything(), &Exhibit::all(), &options(None, true)).unwrap();
    let has = |name: &str| drawn.files.iter().any(|file| file.ends_with(format!("paper/{name}")));
    for number in [3, 4, 6, 7, 8, 9, 10, 12] {
        assert!(["svg", "png", "pdf"].iter().all(|end| has(&format!("figure-{number}.{end}"))), "{number}");
    }
    for number in [1, 2, 3, 5] {
        assert!(["md", "csv", "tex"].iter().all(|end| has(&format!("table-{number}.{end}"))), "{number}");
    }
    assert!(
        has("figure-5.svg")
            && has("figure-3-excess.svg")
            && has("table-3-minus-paper.md")
            && !has("figure-4-minus-paper.md")
    );
    let [eleven, thirteen] = &drawn.missing[..] else { panic!("{:?}", drawn.missing) };
    assert!(
        eleven.contains("instruct models only") && eleven.contains("configs/paper/qasper-base.yaml"),
        "{eleven}"
    );
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

#[test]
fn policies_that_the_paper_does_not_have_are_named() {
    let own = everything().into_iter().filter(|row| row.policy == "h2o" && row.model == LLAMA);
    let all: Vec<Row> =
        own.map(|row| Row { policy: "mine".into(), cell: "mine".into(), ..row }).chain(everything()).collect();
    let results = Results::of(&all).unwrap();
    let evidence = Evidence::of(&results);
    let notes =
        |exhibit: &str| Exhibit::parse(exhibit).unwrap().pieces(&evidence).unwrap().left_out.unwrap_or_default();
    // Of the paper's table Figure 3 shows five lines.
    let [figure, table] = [notes("3"), notes("table3")];
    assert!(figure.contains("mine") && figure.contains("tova-head") && !figure.contains("window+4"), "{figure}");
    assert!(table.contains("mine") && !table.contains("tova-head"), "{table}");
    assert_eq!(notes("4"), "");
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        out: folder.path().to_owned(),
        formats: Vec::new(),
        columns: None,
        beside_paper: false,
        plain: Plain::default(),
    };
    let drawn = draw(&all, &[Exhibit::parse("3").unwrap()], &options).unwrap();
    assert_eq!(drawn.notes, [format!("Figure 3: {figure}")]);
}

#[test]
fn policies_that_leave_windows_alone_are_those_of_the_paper() {
    let exempt = |row: Row| match row.policy.as_str() {
        "full" | "truncate" => row,
        _ => Row { local_layers: Some("exempt".into()), ..row },
    };
    let of_llama = || everything().into_iter().filter(|row| row.model == LLAMA);
    let all: Vec<Row> = of_llama().map(exempt).collect();
    let renamed = |row: Row| match row.task.as_str() {
        "retention" => exempt(row),
        _ => Row { model: format!("{LLAMA}@exempt").into(), ..row },
    };
    let plain: Vec<Row> = of_llama().map(renamed).collect();
    assert_eq!(as_in_paper(&all).as_ref(), plain);
    let kept = Exhibit::parse("9").unwrap();
    assert!(kept.pieces(&Evidence::of(&Results::of(&plain).unwrap())).is_err_and(|why| why.contains("@exempt")));
    let claims = |rows: &[Row]| {
        let folder = tempfile::tempdir().unwrap();
        write_report(rows, &report::Options::everything(folder.path()), &[]).unwrap();
        let text = std::fs::read_to_string(folder.path().join("report.md")).unwrap();
        let (_, section) = text.split_once("Compared with the paper").unwrap();
        section.split("\n## ").next().unwrap().to_owned()
    };
    assert!(claims(&all).contains("tova with 512 entries"));
    assert_eq!(claims(&all), claims(&plain));
    // A model that both kinds were measured with keeps its names.
    let bounded =
        Row { local_layers: Some("bounded".into()), ..row("perplexity", "nll", "tova", Some(8), 1.0, 1.0) };
    let both: Vec<Row> = all.into_iter().chain([bounded]).collect();
    assert_eq!(as_in_paper(&both).as_ref(), both);
}

#[test]
fn plain_figures_lack_what_was_named_and_nothing_else() {
    let all: Vec<Row> = everything().into_iter().filter(|row| row.model == LLAMA && row.length == 4096).collect();
    let results = Results::of(&all).unwrap();
    let drawn = |parts: &str| {
        let plain = if parts.is_empty() { Plain::default() } else { parts.parse().unwrap() };
        let evidence = Evidence { plain, beside_paper: true, columns: Some(1), ..Evidence::of(&results) };
        let of = |number: &str| Exhibit::parse(number).unwrap().pieces(&evidence).unwrap().scenes;
        ["3", "6", "8", "9"].iter().flat_map(|number| of(number)).map(|(_, scene)| scene).collect::<Vec<_>>()
    };
    // Of Figure 3, its excess, and Figures 6, 8 and 9: titles, footnotes, bands and limits.
    let parts = |scenes: &[Scene]| {
        let of = |scene: &Scene| {
            let texts = scene::texts(scene);
            let is_title = texts.iter().any(|text| (text.size - 8.0).abs() < 0.1);
            let words = ["topline", "shares of pairs", "sample "];
            let is_noted = texts.iter().any(|text| words.iter().any(|word| text.text.contains(word)));
            let svg = scene.svg();
            let classes = ["\"band\"", "\"reference limit\""].map(|class| usize::from(svg.contains(class)));
            [usize::from(is_title), usize::from(is_noted), classes[0], classes[1]]
        };
        scenes.iter().map(of).fold([0; 4], |sum: [usize; 4], own| std::array::from_fn(|at| sum[at] + own[at]))
    };
    let whole = drawn("");
    assert_eq!(whole.len(), 5);
    let [titles, footnotes, bands, limits] = parts(&whole);
    // Figure 9 says what its bands are, and nothing else.
    assert!(titles == 5 && footnotes == 4 && bands >= 2 && limits == 1, "{:?}", parts(&whole));
    let expected = [
        ("title", [0, footnotes, bands, limits]),
        ("footnote", [titles, 0, bands, limits]),
        ("bands", [titles, footnotes, 0, limits]),
        ("limit", [titles, footnotes, bands, 0]),
        (Plain::ALL, [0; 4]),
    ];
    for (named, expected) in expected {
        let scenes = drawn(named);
        assert_eq!(parts(&scenes), expected, "{named}");
        for (scene, whole) in scenes.iter().zip(&whole) {
            assert!(scene.height <= whole.height && scene.width == whole.width, "{named}");
            scene::texts(scene)
                .iter()
                .for_each(|text| assert!(text.upright || text.is_inside(scene), "{named} {text:?}"));
        }
    }
    assert!("title,bnds".parse::<Plain>().unwrap_err().contains("did you mean `bands`?"));
}
