//! Figures as they are drawn, read back from their SVG: where names, lines and marks are, and that no two look alike.

use std::collections::BTreeSet;

use roxmltree::{Document, Node};

use super::by_size::figures;
use super::{Plain, Scene, SeriesStyles, texts};
use crate::eviction::presets::PRESETS;
use crate::ledger::Row;
use crate::report::fixture::{cell, panels};

/// Four books with a value each at a size, and their weights.
fn at(metric: &str, policy: &str, size: Option<u32>, values: [f64; 4]) -> Vec<Row> {
    let samples: Vec<(&str, f64, f64)> =
        ["a", "b", "c", "d"].into_iter().zip(values).map(|(book, value)| (book, value, 1.0)).collect();
    cell(metric, policy, size, &samples)
}

/// Costs at sizes, of which all books have the same.
fn line(policy: &str, points: &[(u32, f64)]) -> Vec<Row> {
    points.iter().flat_map(|(size, cost)| at("cost", policy, Some(*size), [*cost; 4])).collect()
}

/// The first file of the first figure of rows.
fn drawn(rows: &[Row], reference: Option<&str>) -> Scene {
    let panels = panels(rows);
    let figures = figures(&panels, reference, None);
    figures[0].as_ref().unwrap().scenes(&SeriesStyles::of(&panels), Plain::default()).remove(0)
}

fn classes<'d>(node: &Node<'d, '_>) -> Vec<&'d str> {
    node.attribute("class").unwrap_or_default().split(' ').collect()
}

fn of_class<'d, 'i>(within: Node<'d, 'i>, class: &str) -> Vec<Node<'d, 'i>> {
    within.descendants().filter(|node| classes(node).contains(&class)).collect()
}

/// The coordinates of a path.
fn spots(path: &Node<'_, '_>) -> Vec<(f64, f64)> {
    let steps = path.attribute("d").unwrap().trim_matches(['M', 'Z']).split('L');
    let number = |text: &str| text.parse::<f64>().unwrap();
    steps.map(|step| step.split_once(' ').map(|(x, y)| (number(x), number(y))).unwrap()).collect()
}

fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

/// What each line looks like, by its policy: its colour, its dashes, and the outlines of its first marker from its middle.
fn looks(document: &Document<'_>) -> Vec<(String, (String, String, String))> {
    let lines = of_class(document.root(), "line");
    let look = |group: &Node<'_, '_>| {
        let stroke = of_class(*group, "stroke")[0];
        let point = of_class(*group, "pt")[0];
        let target = of_class(point, "target")[0];
        let (x, y) = (number(&target, "cx"), number(&target, "cy"));
        let mut marks = String::new();
        for mark in of_class(point, "mark") {
            let around: Vec<String> =
                spots(&mark).iter().map(|spot| format!("{:.0} {:.0}", spot.0 - x, spot.1 - y)).collect();
            marks.push_str(&format!("{:?} {};", classes(&mark), around.join(" ")));
        }
        let dash = stroke.attribute("stroke-dasharray").unwrap_or_default().to_owned();
        let color = stroke.attribute("stroke").unwrap().to_owned();
        (group.attribute("data-policy").unwrap().to_owned(), (color, dash, marks))
    };
    lines.iter().map(look).collect()
}

fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> usize {
    all.collect::<BTreeSet<T>>().len()
}

#[test]
fn no_two_lines_of_a_figure_look_alike() {
    let presets: Vec<String> = PRESETS.iter().map(|preset| preset.name.to_owned()).collect();
    let own: Vec<String> = (0..40).map(|at| format!("ema(attention, 0.{at}) * value_norm")).collect();
    let wine: Vec<String> = ["a2sf", "knorm", "r-kv", "chunkkv", "h2o-layer"].map(str::to_owned).into();
    // Few policies of one colour, as many as there are colours, presets with their variants, and everything.
    let cuts: Vec<String> = presets.iter().map(|preset| format!("{preset}@cut")).collect();
    let sets = [wine, own[..10].to_vec(), presets.clone(), cuts, [presets, own].concat()];
    for policies in &sets {
        let row = |(at, policy): (usize, &String)| line(policy, &[(8, 9.0 + at as f64), (16, 1.0 + at as f64)]);
        let rows: Vec<Row> = policies.iter().enumerate().flat_map(row).collect();
        let svg = drawn(&rows, None).svg();
        let document = Document::parse(&svg).unwrap();
        let looks = looks(&document);
        assert_eq!(looks.len(), policies.len());
        assert_eq!(distinct(looks.iter().map(|(_, look)| look)), looks.len(), "{looks:?}");
        let colors = distinct(looks.iter().map(|(_, (color, ..))| color));
        assert_eq!(colors, looks.len().min(30), "{looks:?}");
        // Of one colour no two have the same dash while there are dashes, or the same marker while there are markers.
        let of_color = |(color, dash, _): &(String, String, String)| (color.clone(), dash.clone());
        assert_eq!(distinct(looks.iter().map(|(_, look)| of_color(look))), looks.len().min(40));
        assert_eq!(distinct(looks.iter().map(|(_, (color, _, mark))| (color, mark))), looks.len().min(80));
    }
}

#[test]
fn names_are_at_the_ends_of_lines_in_their_order_and_none_covers_another() {
    // Twenty lines, of which some end at one place, one ends half way, and one is far above the others.
    let ends: Vec<f64> = (0..20).map(|at| 5.0 + f64::from(at / 4) * 0.5).collect();
    let mut rows = at("cost", "full", None, [4.0; 4]);
    for (at, end) in ends.iter().enumerate() {
        rows.extend(line(&format!("own-{at}"), &[(8, 8.0), (16, *end)]));
    }
    rows.extend(line("short", &[(8, 9.0)]));
    rows.extend(line("window", &[(8, 900.0), (16, 800.0)]));
    let scene = drawn(&rows, None);
    let svg = scene.svg();
    let document = Document::parse(&svg).unwrap();
    let names = of_class(document.root(), "end");
    // All policies, and the full cache.
    assert_eq!(names.len(), 23);
    let height = 6.5 * 600.0 / 72.0;
    let mut last: Option<(f64, f64)> = None;
    for name in &names {
        let text = name.children().find(|node| node.has_tag_name("text")).unwrap();
        let policy = name.attribute("data-policy").unwrap();
        assert!(text.text().unwrap().starts_with(policy), "{policy}");
        // Below the one before, by more than letters are high.
        let y = number(&text, "y");
        let end = match of_class(document.root(), "line")
            .into_iter()
            .find(|line| line.attribute("data-policy") == Some(policy))
        {
            Some(line) => number(of_class(line, "target").last().unwrap(), "cy"),
            None => spots(&of_class(document.root(), "full")[0])[0].1,
        };
        if let Some((above, end_above)) = last {
            assert!(y - above >= height, "{policy}: {y} {above}");
            assert!(end >= end_above, "{policy} ends at {end}, the name above it at {end_above}");
        }
        last = Some((y, end));
        // As dark as its line, or darker.
        if let Some(line) = of_class(document.root(), "stroke")
            .into_iter()
            .find(|stroke| stroke.parent().unwrap().attribute("data-policy") == Some(policy))
        {
            let parts = |color: &str| [1, 3, 5].map(|at| i32::from_str_radix(&color[at..at + 2], 16).unwrap());
            let (own, of_line) =
                (parts(text.attribute("fill").unwrap()), parts(line.attribute("stroke").unwrap()));
            assert!(own.iter().zip(of_line).all(|(own, line)| (own * 100 - line * 85).abs() <= 100), "{policy}");
        }
        // A name that is not level with its line has a thin line from there, which ends beside it.
        let level = y - 0.365 * height;
        let leaders = of_class(*name, "leader");
        assert!((level - end).abs() < 9.0 || leaders.len() == 1, "{policy}: {level} {end}");
        for leader in leaders {
            let leader = spots(&leader);
            let (from, to) = (leader[0], leader[leader.len() - 1]);
            assert!((from.1 - end).abs() < 2.0 && (to.1 - level).abs() < 2.0, "{policy}: {leader:?}");
            assert!(to.0 < number(&text, "x"));
        }
    }
    assert!(texts(&scene).iter().all(|text| text.is_inside(&scene)));
    // No name is written twice: there is no legend.
    assert_eq!(texts(&scene).iter().filter(|text| text.text == "own-3").count(), 1);
}

#[test]
fn names_that_have_no_room_are_in_a_legend() {
    let long = "a policy whose name is much longer than any plot has room for beside it";
    let rows = [line(long, &[(8, 2.0), (16, 1.0)]), line("tova", &[(8, 3.0), (16, 2.0)])].concat();
    let scene = drawn(&rows, None);
    let svg = scene.svg();
    assert!(of_class(Document::parse(&svg).unwrap().root(), "end").is_empty());
    // The line that ends higher is named first.
    let all = texts(&scene);
    let place = |start: &str| all.iter().position(|text| text.text.starts_with(start)).unwrap();
    assert!(place("tova") < place("a policy whose"));
}

#[test]
fn one_size_is_drawn_as_rows_with_the_best_at_the_top() {
    // Perplexities, of which a lower one is better.
    let perplexity = |policy: &str, size, values: [f64; 4]| at("nll", policy, size, values.map(f64::ln));
    let rows = [
        perplexity("full", None, [4.0; 4]),
        perplexity("window", Some(64), [9.0, 9.5, 10.0, 10.5]),
        perplexity("tova", Some(64), [5.0, 5.5, 6.0, 6.5]),
        perplexity("h2o", Some(64), [7.0, 7.5, 8.0, 8.5]),
    ];
    let scene = drawn(&rows.concat(), None);
    let svg = scene.svg();
    let document = Document::parse(&svg).unwrap();
    let rows = of_class(document.root(), "row");
    let policies: Vec<&str> = rows.iter().map(|row| row.attribute("data-policy").unwrap()).collect();
    assert_eq!(policies, ["tova", "h2o", "window"]);
    assert!(of_class(document.root(), "stroke").is_empty(), "rows have no lines");
    let mut last = (0.0, 0.0);
    for row in &rows {
        let targets = of_class(*row, "target");
        assert_eq!((targets.len(), of_class(*row, "bar").len()), (1, 1));
        let (x, y) = (number(&targets[0], "cx"), number(&targets[0], "cy"));
        // Further down and, being worse, further to the right than the row before.
        assert!(x > last.0 && y > last.1);
        last = (x, y);
        let bar = spots(&of_class(*row, "bar")[0]);
        assert!(bar[0].0 < x && x < bar[1].0 && bar.iter().all(|(_, at)| (at - y).abs() <= 1.0), "{bar:?}");
        // Its name ends left of its marker and is level with it.
        let name = row.children().find(|node| node.has_tag_name("text")).unwrap();
        assert_eq!((name.text(), name.attribute("text-anchor")), (row.attribute("data-policy"), Some("end")));
        assert!(number(&name, "x") < bar[0].0 && (number(&name, "y") - y - 20.0).abs() < 3.0);
    }
    // The full cache is a line down, left of all that are worse.
    let full = spots(&of_class(document.root(), "full")[0]);
    assert!(full[0].0 == full[1].0 && full[0].1 < full[1].1 && full[0].0 < last.0);
    assert!(texts(&scene).iter().all(|text| text.is_inside(&scene)));
}

#[test]
fn where_bands_overlap_they_are_of_the_difference_that_is_asked() {
    // Shares found: books differ by halves, the policies by hundredths.
    let books = [0.1, 0.2, 0.3, 0.6];
    let with = |policy: &str, more: [f64; 4]| -> Vec<Row> {
        let values = std::array::from_fn(|at| books[at] + more[at]);
        [8, 16].into_iter().flat_map(|size| at("found", policy, Some(size), values)).collect()
    };
    let full = at("found", "full", None, [1.0; 4]);
    let two = [full, with("tova", [0.0; 4]), with("h2o", [0.01, 0.02, 0.02, 0.03])].concat();
    let three = [two.clone(), with("window", [0.04, 0.04, 0.05, 0.07])].concat();
    // The height of a policy's band with 8 entries, in percent: means of h2o and tova are 2 apart. Bands of four books end at books.
    let height = |rows: &[Row], reference: Option<&str>, policy: &str| -> Option<f64> {
        let svg = drawn(rows, reference).svg();
        let document = Document::parse(&svg).unwrap();
        let own = |class: &str, policy: &str| {
            let all = of_class(document.root(), class).into_iter();
            all.filter(|node| node.ancestors().any(|node| node.attribute("data-policy") == Some(policy)))
                .collect::<Vec<_>>()
        };
        let middle = |policy: &str| number(&own("target", policy)[0], "cy");
        let band = spots(own("band", policy).first()?);
        Some((band[0].1 - band[band.len() - 1].1) / (middle("tova") - middle("h2o")) * 2.0)
    };
    let check = |rows: &[Row], reference, expected: [Option<f64>; 3]| {
        for (policy, expected) in ["tova", "h2o", "window"].into_iter().zip(expected) {
            let found =
                if expected.is_none() && policy == "window" { None } else { height(rows, reference, policy) };
            let is_near = |(found, expected): (f64, f64)| (found - expected).abs() < 0.06 * expected.max(5.0);
            assert_eq!(found.is_some(), expected.is_some(), "{policy} against {reference:?}");
            assert!(
                found.zip(expected).is_none_or(is_near),
                "{policy} against {reference:?}: {found:?}, {expected:?}"
            );
        }
    };
    check(&two, None, [Some(50.0), Some(52.0), None]);
    check(&three, None, [None, Some(2.0), Some(3.0)]);
    check(&three, Some("h2o"), [Some(2.0), None, Some(2.0)]);
    // A policy that was not measured is compared with nothing.
    check(&three, Some("other"), [Some(50.0), Some(52.0), Some(53.0)]);
}
