//! Exhibits of rows with the paper's own numbers, and of others.

use super::fixture::{everything, row};
use super::*;
use crate::report::scene;

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
    // Perplexities 1.3 times as high are as far above their full cache in nats: TOVA at 512 by ln(7.41 / 7.16).
    let is_of_yi = |sheet: &&Sheet| sheet.title.starts_with("Excess") && sheet.title.contains("Yi");
    let excess = &tables.iter().find(is_of_yi).unwrap().grid.lines;
    let shown =
        |line: &report::Line| line.cells.iter().flatten().map(|entry| entry.number.clone()).collect::<Vec<_>>();
    assert!(excess.len() == 16 && excess.chunks(2).all(|pair| shown(&pair[0]) == shown(&pair[1])));
    let tova = excess.iter().find(|line| line.name == "tova").unwrap();
    assert_eq!(shown(tova), ["+0.286", "+0.150", "+0.074", "+0.034", "+0.012", "+0.001", "0.000"]);
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
    assert!(
        has("figure-5.svg")
            && has("figure-3-excess.svg")
            && has("table-3-minus-paper.md")
            && !has("figure-4-minus-paper.md")
    );
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
