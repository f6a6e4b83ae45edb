//! Rows for the tests of claims and exhibits.

use crate::paper::numbers::{BySize, LENGTH, NUMBERS, Numbers, TABLE_5_SIZES};
use crate::paper::{Row, TOVA};
use crate::report::fixture::table_3;

pub(super) const LLAMA: &str = "meta-llama/Llama-2-7b-hf";

pub(super) fn row(task: &str, metric: &str, policy: &str, size: Option<u32>, value: f64, weight: f64) -> Row {
    Row {
        model: LLAMA.into(),
        task: task.into(),
        metric: metric.into(),
        policy: policy.into(),
        cache_size: size,
        length: LENGTH,
        positions: "absolute".into(),
        sample: "paper".into(),
        cluster: "paper".into(),
        value,
        weight,
        ..Row::default()
    }
}

/// The paper's numbers as rows of one sample each.
pub(crate) fn printed_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let Numbers { table_1, table_3, table_5, figure_6, story_length } = &*NUMBERS;
    for speed in table_1 {
        let (policy, size) = if speed.size == LENGTH { ("full", None) } else { (TOVA, Some(speed.size)) };
        rows.push(row("timing", "decode_batch", policy, size, 1.0, speed.throughput));
        rows.push(row("timing", "cache_bytes", policy, size, 1e9 * speed.memory, 1.0));
    }
    // Perplexity is pooled from nats.
    each(table_3, |policy, size, value| rows.push(row("perplexity", "nll", policy, size, value.ln(), 1.0)));
    for (size, steps) in TABLE_5_SIZES.into_iter().zip(table_5[0].2) {
        rows.push(row("retention", "lifetime", TOVA, Some(size), steps, 1.0));
    }
    each(figure_6, |metric, size, share| rows.push(row("judge", metric, TOVA, size, share, 100.0)));
    each(story_length, |policy, size, tokens| rows.push(row("story", "new_tokens", policy, size, tokens, 1.0)));
    rows
}

/// Calls a function with the name of the line, the size and the value of each number.
fn each(of: &BySize, mut f: impl FnMut(&str, Option<u32>, f64)) {
    of.full.into_iter().for_each(|full| f("full", None, full));
    for (name, values) in &of.rows {
        of.sizes.iter().zip(values).for_each(|(size, value)| f(name, Some(*size), *value));
    }
}

/// Answers with the scores of each policy and size, for each metric.
pub(super) fn answers(
    task: &str,
    metrics: &[&str],
    template: bool,
    scores: &[(&str, Option<u32>, f64)],
) -> Vec<Row> {
    let asked = format!("prompt=paper max_new_tokens=8 temperature=0 chat_template={template}");
    let rows = scores.iter().flat_map(|(policy, size, score)| {
        metrics.iter().map(|metric| row(task, metric, policy, *size, *score, 1.0))
    });
    rows.map(|row| Row { generation: Some(asked.as_str().into()), ..row }).collect()
}

/// Rows of six clusters that have the same numbers.
pub(super) fn six(rows: &[Row]) -> Vec<Row> {
    let copy = |name: &str| rows.iter().map(|row| named(name, row)).collect::<Vec<_>>();
    ["a", "b", "c", "d", "e", "f"].iter().flat_map(|name| copy(name)).collect()
}

pub(super) fn named(name: &str, row: &Row) -> Row {
    Row { sample: name.into(), cluster: name.into(), ..row.clone() }
}

/// Timing, verdicts and stories as the paper has them, but for TOVA's speed.
pub(super) fn of_paper() -> Vec<Row> {
    let rows =
        six(&printed_rows()).into_iter().filter(|row| ["timing", "judge", "story"].contains(&row.task.as_str()));
    let faster = |row: &Row| if row.weight == 4.8 { 5.0 } else { row.weight };
    rows.map(|row| Row { weight: faster(&row), ..row }).collect()
}

/// Texts of 16,384 tokens in pieces, in nats per token: of TOVA and Window+4 by how much the later pieces are above the first.
pub(super) fn long(texts: &[[f64; 2]]) -> Vec<Row> {
    let mut all = Vec::new();
    for (text, [tova, window]) in texts.iter().enumerate() {
        for (policy, positions, rise) in [("tova", "squeezed", tova), ("window+4", "slot", window)] {
            let pieces = [
                (Some("piece:0-4095"), 2.0, 4096.0),
                (Some("piece:4096-8191"), 2.0 + rise, 4096.0),
                (Some("piece:8192-16383"), 2.0 + rise, 8192.0),
            ];
            let total: f64 = pieces.iter().map(|(_, nats, weight)| nats * weight).sum();
            all.extend(pieces.into_iter().chain([(None, total / 16_384.0, 16_384.0)]).map(
                |(piece, nats, weight)| {
                    let row = Row {
                        length: 16_384,
                        positions: positions.into(),
                        slice: piece.map(Into::into),
                        ..row("perplexity", "nll", policy, Some(512), nats * weight, weight)
                    };
                    named(&format!("text{text}"), &row)
                },
            ));
        }
    }
    all
}

/// TOVA's perplexity stays the same and Window+4's rises.
pub(super) const LONG: [[f64; 2]; 6] = [[0.0, 0.05]; 6];

/// Rows on what TOVA keeps: 4,096 tokens of three layers, of which the second leaves at step 600.
pub(super) fn kept() -> Vec<Row> {
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

pub(super) fn everything() -> Vec<Row> {
    let scores = [("full", None, 0.2), ("tova", Some(512), 0.195), ("window+4", Some(512), 0.16)];
    let half = [("full", None, 0.4), ("tova", Some(2048), 0.385), ("truncate", Some(2048), 0.39)];
    let rouge = ["rouge1", "rouge2", "rougeL"];
    let base = answers("squality", &rouge, false, &scores);
    let chat = answers("squality", &rouge, true, &scores);
    let models = [(LLAMA, 1.0), ("mistralai/Mistral-7B-v0.1", 0.97), ("01-ai/Yi-6B", 1.3)];
    let mut all: Vec<Row> = models.iter().flat_map(|(model, scale)| table_3(model, *scale, 40)).collect();
    let questions = [base, chat, answers("qasper", &["f1"], true, &half)].concat();
    all.extend([six(&questions), of_paper(), long(&LONG), kept()].concat());
    all
}
