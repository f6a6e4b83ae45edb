//! Pages, parsed and compared with the rows.

mod reader;

use reader::{Piece, attribute, json, number, pieces, raw, tags};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::ledger::Row;
use crate::metric::Slice;
use crate::report::Results;
use crate::report::document::{Block, Entry, Grid, Line, Table};
use crate::report::figure::series_style::COLORS;
use crate::report::fixture::{cell, recall, table_3};
use crate::report::sections::{self, Report};
use crate::report::series::Panel;

const HOSTILE: &str =
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'&<!-- \u{1b}[2J\u{202E}\u{2028}";

fn page_with(rows: &[Row], more: Vec<Block>) -> (String, Vec<Panel>) {
    let results = Results::of(rows).unwrap();
    let pages = Default::default();
    let report = Report::of(&results, &[], None, None, &|_| Vec::new(), &pages);
    let (mut document, summary) = (sections::document(&report), sections::summary(&report));
    document.blocks.extend(more);
    let sources = Sources { document: &document, summary: &summary, report: &report, linked: None };
    (page::page(&sources).unwrap(), results.panels.clone())
}

fn page(rows: &[Row]) -> (String, Vec<Panel>) {
    page_with(rows, Vec::new())
}

/// Two models with Table 3, recall by distance, and questions with answers.
fn everything() -> Vec<Row> {
    let mut all =
        [table_3("meta/Llama", 1.0, 12), table_3("other/Yi", 1.3, 12), recall("meta/Llama", 12)].concat();
    all.extend(questions());
    all
}

/// Two questions of one paper under three caches, with scores, and numbers by position.
fn questions() -> Vec<Row> {
    let mut all = Vec::new();
    for (policy, size, f1) in [("full", None, 1.0), ("tova", Some(64), 1.0 / 3.0), ("tova", Some(128), 0.1 + 0.2)]
    {
        for sample in ["q2", "q10"] {
            let one = cell("f1", policy, size, &[(sample, f1, 1.0)]);
            let (task, dataset, cluster) = ("qasper".into(), "papers".into(), "paper".into());
            let row = Row { task, dataset, cluster, ..one[0].clone() };
            all.push(row.clone());
            all.push(Row {
                metric: "new_tokens".into(),
                value: 7.0,
                question: Some(format!("What is {sample}?")),
                references: Some(r#"["an answer","another"]"#.into()),
                output: Some(format!("line one of {sample}\nat {size:?}")),
                ..row.clone()
            });
            all.push(Row { slice: Some("kind:x".into()), ..row });
        }
    }
    all
}

#[test]
fn tags_balance_and_ids_are_unique() {
    let (page, _) = page(&everything());
    let mut open: Vec<&str> = Vec::new();
    let mut ids: Vec<&str> = Vec::new();
    for piece in pieces(&page) {
        match piece {
            Piece::Open(name, list) => {
                ids.extend(attribute(&list, "id"));
                if !["meta", "img", "input", "br"].contains(&name) {
                    open.push(name);
                }
            }
            Piece::Close(name) => assert_eq!(open.pop(), Some(name), "after {open:?}"),
            Piece::Text(_) => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "{ids:?}");
    // Targets of references exist.
    for (name, list) in tags(&page) {
        let target = attribute(&list, "aria-labelledby").or(attribute(&list, "href").map(|href| &href[1..]));
        assert!(target.is_none_or(|id| ids.contains(&id)), "<{name}> points at {target:?}");
    }
}

#[test]
fn the_page_loads_nothing_and_forbids_the_browser_to() {
    let (page, _) = page(&everything());
    let tags = tags(&page);
    let policy = tags.iter().find(|(_, list)| attribute(list, "http-equiv").is_some());
    let policy = policy.and_then(|(_, list)| attribute(list, "content"));
    let policy = policy.unwrap().replace("&#39;", "'");
    for rule in ["default-src 'none'; ", "base-uri 'none'", "form-action 'none'", "img-src data:"] {
        assert!(policy.contains(rule), "{rule}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    // The page's own style and script are allowed by their digests.
    for element in ["style", "script"] {
        use base64::Engine as _;
        let digest = Sha256::digest(raw(&page, element, None).as_bytes());
        let digest = base64::engine::general_purpose::STANDARD.encode(digest);
        assert!(policy.contains(&format!("{element}-src 'sha256-{digest}'")), "{element}: {policy}");
    }
    for (name, list) in &tags {
        assert!(!["link", "iframe", "object", "base", "form", "embed"].contains(name), "{name}");
        for (key, value) in list {
            assert!(!key.starts_with("on") && *key != "style" && *key != "srcset", "<{name} {key}>");
            let inside = match *key {
                "src" => value.starts_with("data:image/"),
                "href" => value.starts_with('#'),
                _ => true,
            };
            assert!(inside, "<{name} {key}={value:.80}>");
        }
    }
    assert!(!raw(&page, "style", None).contains("url("));
}

#[test]
fn every_value_of_every_panel_is_in_a_table() {
    let (page, panels) = page(&everything());
    // Each cell of each table, by what it sorts by.
    let cells = tags(&page).into_iter().filter(|(name, _)| *name == "td");
    let cells: Vec<&str> = cells.filter_map(|(_, list)| attribute(&list, "data-v")).collect();
    for (panel, point) in panels.iter().flat_map(|panel| panel.points.iter().map(move |point| (panel, point))) {
        let shown: f64 = panel.metric.show(point.estimate.value).parse().unwrap();
        // A table by parts has no room for sizes as long as a sample.
        let is_whole =
            panel.slice.is_none() || point.cache_size.is_some_and(|size| size.is_below(panel.key.length));
        assert!(!is_whole || cells.contains(&shown.to_string().as_str()), "{shown} of {point:?}");
    }
}

#[test]
fn every_curve_is_drawn_on_both_axes_with_tips() {
    let all = table_3("meta/Llama", 1.0, 12);
    let (page, _) = page(&all);
    let titles: Vec<String> = page
        .split("<title>")
        .skip(2)
        .map(|rest| rest.split_once("</title>").unwrap().0.replace("&amp;", "&"))
        .collect();
    // Pooled here once more: the exponential of all nats over all tokens.
    let perplexity = |policy: &str, size: Option<u32>| {
        let cell = || all.iter().filter(|row| row.policy == policy && row.cache_size == size);
        let sum = |field: fn(&Row) -> f64| cell().map(field).sum::<f64>();
        (sum(|row| row.value) / sum(|row| row.weight)).exp()
    };
    let [full, tova, h2o] =
        [("full", None), ("tova", Some(512)), ("h2o", Some(64))].map(|(p, s)| perplexity(p, s));
    for expected in [
        format!("tova with 512 entries: perplexity {tova:.5} ("),
        format!("h2o with 64 entries: perplexity {h2o:.5} ("),
    ] {
        let found: Vec<&String> = titles.iter().filter(|title| title.starts_with(&expected)).collect();
        assert_eq!(found.len(), 2, "{expected} on a linear and on a logarithmic axis: {titles:?}");
        assert!(found[0].contains("95 % interval") && found[0].contains("12 samples"), "{found:?}");
    }
    let difference = format!("to full +{:.5}", h2o - full);
    assert!(titles.iter().any(|title| title.contains(&difference)), "{difference}: {titles:?}");
    // Window is far off the linear axis, where its number is at the border, and on the logarithmic one.
    let window: Vec<&String> =
        titles.iter().filter(|title| title.starts_with("window with 64 entries: perplexity")).collect();
    assert!(window.len() == 2 && window[0] == window[1], "{window:?}");
    for part in [r#"class="scale linear""#, r#"class="scale log""#, r#"<path class="reference full""#] {
        assert!(page.contains(part), "{part}");
    }
    // Below them, whichever is shown, the excess in nats, in which window is on the axis too.
    let (log, excess) = (page.find(r#"class="scale log""#), page.find(r#"class="scale excess""#));
    assert!(log < excess && excess < page.find("<caption>Perplexity</caption>"), "{log:?} {excess:?}");
    for (policy, size) in [("tova", 512), ("window", 64)] {
        let start = format!("{policy} with {size} entries: excess over full (nats/token) ");
        let found: Vec<&str> = titles.iter().filter_map(|title| title.strip_prefix(&start)).collect();
        let [said] = found[..] else { panic!("one tip expected: {titles:?}") };
        let nats: f64 = said.split_once(" (95 % interval").unwrap().0.parse().unwrap();
        assert!((nats - (perplexity(policy, Some(size)) / full).ln()).abs() < 1e-5, "{said}");
    }
    // Eight policies have bars in place of bands: all but the first, with which they are compared, at each of seven sizes.
    assert!(page.matches(r#"<path class="bar""#).count() >= 7 * 6);
}

#[test]
fn the_page_answers_first() {
    let defined = table_3("meta/Llama", 1.0, 12).into_iter().map(|row| Row {
        score: (row.policy != "full").then(|| "last_attention".into()),
        scope: (row.policy != "full").then(|| "layer".into()),
        ..row
    });
    let (page, _) = page(&defined.collect::<Vec<_>>());
    let main = &page[page.find("<body>").unwrap()..];
    // What was asked, the curve, the table, the smallest sufficient cache, and the rest.
    let order = [
        "meta/Llama (bf16)",
        "<b>full</b> the model with an unbounded cache",
        "<b>tova</b> score last_attention, scope layer",
        "64, 128, 256, 512, 1024, 2048, 4096",
        "12 samples of 4096 tokens from 12 clusters",
        r#"<g class="line "#,
        "<caption>Perplexity: excess over full (nats/token)</caption>",
        "<summary>Smallest sufficient cache</summary>",
        "<summary>Perplexity</summary>",
        "Sample by sample",
        "Where the numbers come from",
        "<dt>Cluster</dt>",
    ];
    let places: Vec<Option<usize>> = order.iter().map(|part| main.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{order:?} at {places:?}");
}

#[test]
fn special_tokens_are_not_shown_as_text() {
    let rows = questions().into_iter().map(|row| Row {
        question: row.question.map(|_| "<s>What?</s>".to_owned()),
        references: row.references.map(|_| r#"["yes<|im_end|>"]"#.to_owned()),
        output: row.output.map(|_| "no<|im_end|>".to_owned()),
        ..row
    });
    let data = json(&page(&rows.collect::<Vec<_>>()).0, "rows");
    assert_eq!(data[0]["questions"][0], "⟨BOS⟩What?⟨EOS⟩");
    assert_eq!(data[0]["references"][0][0], "yes⟨im_end⟩");
    assert_eq!(data[0]["places"][0][0]["outputs"][0], "no⟨im_end⟩");
}

#[test]
fn hostile_texts_are_escaped() {
    let text = || HOSTILE.to_owned();
    let hostile: Vec<Row> = [everything(), questions()]
        .concat()
        .into_iter()
        .map(|row| Row {
            sweep: HOSTILE.into(),
            model: format!("{HOSTILE}/{}", row.model).into(),
            model_revision: HOSTILE.into(),
            policy: if row.policy == "full" { row.policy } else { format!("{}{HOSTILE}", row.policy).into() },
            dataset: format!("{}{HOSTILE}", row.dataset).into(),
            generation: Some(HOSTILE.into()),
            sample: format!("{}{HOSTILE}", row.sample).into(),
            cluster: format!("{}{HOSTILE}", row.cluster).into(),
            question: row.question.map(|_| text()),
            references: row.references.map(|_| serde_json::to_string(&[HOSTILE]).unwrap()),
            output: row.output.map(|_| text()),
            commit: Some(HOSTILE.into()),
            device: HOSTILE.into(),
            date: HOSTILE.into(),
            slice: row.slice.map(|slice| Slice { name: Some(HOSTILE.into()), ..slice }),
            ..row
        })
        .collect();
    let (page, _) = page(&hostile);
    let tags = tags(&page);
    let count = |element: &str| tags.iter().filter(|(name, _)| *name == element).count();
    assert_eq!((count("script"), count("img"), count("style")), (3, 0, 1));
    assert!(!page.contains("<img") && !page.contains("<!--") && !page.contains("\u{1b}"));
    // Names cannot change the direction of text around them; answers are data, shown in a box of their own.
    assert!(
        !page.contains('\u{2028}') && !page.replace(raw(&page, "script", Some("rows")), "").contains('\u{202E}')
    );
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(1)"));
    // Answers come back as they were written, control characters and all.
    let data = json(&page, "rows");
    let places = data.as_array().unwrap().iter().flat_map(|key| key["places"].as_array().unwrap());
    let outputs: Vec<&str> =
        places.filter_map(|place| place[0]["outputs"].as_array()).flatten().filter_map(Value::as_str).collect();
    assert!(!outputs.is_empty() && outputs.iter().all(|output| *output == HOSTILE), "{outputs:?}");
}

#[test]
fn samples_are_in_the_page_bit_by_bit() {
    let mut all = everything();
    // Numbers by position, uneven weights, and a number that is not finite.
    let more = table_3("meta/Llama", 1.0, 12).into_iter().enumerate().map(|(at, row)| Row {
        slice: Some("position:0-127".into()),
        value: if at == 0 { f64::INFINITY } else { row.value / 3.0 },
        weight: 100.0 + (at % 7) as f64,
        ..row
    });
    all.extend(more);
    let (page, panels) = page(&all);
    let data = json(&page, "rows");
    let settings: Vec<_> = panels.iter().map(|panel| panel.key.clone()).collect();
    let at = |values: &Value, is_it: &dyn Fn(&Value) -> bool| {
        values.as_array().unwrap().iter().position(is_it).unwrap()
    };
    let is_course = |slice: &str| slice.is_empty() || slice.starts_with("position");
    let mut expected = 0;
    for row in all.iter().filter(|row| !row.metric.ends_with("_chance")) {
        let slice = Slice::text(row.slice.as_ref());
        if !is_course(&slice) {
            continue;
        }
        let title = crate::report::SeriesKey::of(row).title(&settings);
        let key = &data[at(&data, &|key| key["title"] == title)];
        let size = row.cache_size.map_or(Value::Null, Value::from);
        let is_place = |place: &Value| place[0]["policy"] == *row.policy && place[0]["size"] == size;
        let place = &key["places"][at(&key["places"], &is_place)];
        let column = at(&key["columns"], &|column| column["metric"] == *row.metric && column["slice"] == slice);
        let sample = at(&key["samples"], &|sample| sample[0] == *row.sample);
        let columns = if slice.is_empty() { &place[0]["values"] } else { &place[1] };
        let values = &columns[column.to_string()];
        let weights = &key["weights"][values["w"].as_u64().unwrap() as usize];
        let found = [&values["v"][sample], weights.get(sample).unwrap_or(weights)].map(number);
        assert_eq!(found.map(f64::to_bits), [row.value, row.weight].map(f64::to_bits), "{row:?}");
        expected += 1;
    }
    let places = data.as_array().unwrap().iter().flat_map(|key| key["places"].as_array().unwrap());
    let columns = places.flat_map(|place| [&place[0]["values"], &place[1]]).filter_map(Value::as_object);
    let values = columns.flat_map(|columns| columns.values()).flat_map(|values| values["v"].as_array().unwrap());
    assert_eq!(values.filter(|number| !number.is_null()).count(), expected);
    assert!(data.as_array().unwrap().iter().all(|key| key["left_out"] == Value::Array(vec![])));
    // Questions are in natural order, with questions and answers.
    let key = data.as_array().unwrap().iter().find(|key| key["questions"] != Value::Array(vec![])).unwrap();
    assert_eq!(key["samples"], serde_json::json!([["q2", "paper"], ["q10", "paper"]]));
    assert_eq!(key["questions"], serde_json::json!(["What is q2?", "What is q10?"]));
    assert_eq!(key["references"][1], serde_json::json!(["an answer", "another"]));
    assert_eq!(key["places"][1][0]["outputs"][1], "line one of q10\nat Some(64)");
}

#[test]
fn samples_beyond_the_budget_are_left_out_and_counted() {
    let rows: Vec<Row> = table_3("meta/Llama", 1.0, 50);
    let results = Results::of(&rows).unwrap();
    let keys = [results.panels[0].key.clone()];
    let policies: Vec<_> =
        results.panels[0].policies().into_iter().map(|name| (name.to_owned(), String::new())).collect();
    let json = |budget| samples::json(&results.series, &keys, &policies, budget).unwrap();
    let parse = |budget| -> Value { serde_json::from_str(&json(budget)).unwrap() };
    let (whole, size) = (parse(samples::BUDGET), json(samples::BUDGET).len());
    let count = |page: &Value| page[0]["samples"].as_array().unwrap().len();
    assert!(count(&whole) == 50 && whole[0]["left_out"] == Value::Array(vec![]));
    let fewer = parse(size / 3);
    assert!(json(size / 3).len() <= size / 3 && (1..50).contains(&count(&fewer)), "{}", count(&fewer));
    let left_out = format!("{} of 50 samples", 50 - count(&fewer));
    assert_eq!(fewer[0]["left_out"][0], left_out);
    // Each with all policies.
    for page in [whole, fewer] {
        let places = page[0]["places"].as_array().unwrap();
        assert_eq!(places.len(), 1 + 8 * 7);
        for place in places {
            let values = place[0]["values"]["0"]["v"].as_array().unwrap();
            assert!(values.len() == count(&page) && values.iter().all(Value::is_number));
        }
    }
    assert_eq!(count(&parse(0)), 1);
}

#[test]
fn sentences_stand_on_their_own_on_a_narrow_screen() {
    let grid =
        Grid { columns: vec!["holds".into()], lines: vec![Line::new("first", vec![Some(Entry::plain("0.25"))])] };
    let table = Table {
        has_sentences: true,
        notes: vec!["a warning".into()],
        ..Table::new("Claims <of> the paper", "What the paper says.", "claim", grid)
    };
    let (page, _) = page_with(&questions(), vec![Block::folded(table)]);
    for part in [
        "<caption>Claims &lt;of&gt; the paper</caption>",
        "What the paper says.",
        // Each cell has the name of its column.
        r#"<table class="sentences">"#,
        r#"data-v="0.25" data-label="holds""#,
        "a warning",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

/// The relative luminance of `#rrggbb` (WCAG 2.2).
fn luminance(color: &str) -> f64 {
    let linear = |channel: usize| {
        let share = f64::from(u8::from_str_radix(&color[channel..channel + 2], 16).unwrap()) / 255.0;
        if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * linear(1) + 0.7152 * linear(3) + 0.0722 * linear(5)
}

#[test]
fn every_line_stands_out_on_light_and_dark_pages() {
    let mut found = 0;
    let style = include_str!("../page.css");
    let (page, lines) = style.split_once("The colours of lines").unwrap();
    let background =
        |rule: &str| page.split_once(rule).unwrap().1.split_once("--page: ").unwrap().1.get(..7).unwrap();
    let [light, dark] = [":root {", ":root[data-theme=\"dark\"] {"].map(background).map(luminance);
    for (place, block) in lines.split("--p0: ").skip(1).enumerate() {
        let background = [light, dark, dark, light][place];
        for color in block.split('#').skip(1).take(COLORS.len()).map(|rest| luminance(&format!("#{rest}"))) {
            let contrast = (color.max(background) + 0.05) / (color.min(background) + 0.05);
            assert!(contrast >= 3.0, "{contrast} in {block:.300}");
            found += 1;
        }
    }
    assert_eq!(found, 4 * COLORS.len());
    let classes =
        (0..COLORS.len()).all(|place| lines.contains(&format!(".p{place} {{ --ink: color-mix(in srgb, var(--p{place}) ")));
    assert!(classes);
}
