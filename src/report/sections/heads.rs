//! What each key-value head holds, where a budget lets heads hold different numbers of entries.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Setting;
use crate::ledger::Row;
use crate::metric::HeldByHead;
use crate::report::document::{Block, Group};
use crate::report::escape;
use crate::report::figure::{Content, Figure, SquareMaps, head_map};
use crate::report::series::Size;

const ABOUT: &str = "Entries of each key-value head in percent of the tokens read, in the mean over samples: where the prompt was cut, or at its end, \
     or at the end of a text without a prompt.";

/// (layers)(heads), in percent of the tokens read.
type Shares = Vec<Vec<f64>>;
/// By policy and size.
type Maps = BTreeMap<String, Vec<(Option<Size>, Shares)>>;

pub(super) fn blocks(setting: &Setting<'_>) -> Vec<Block> {
    let mut of_policies: BTreeMap<(String, Option<Size>), Vec<&Row>> = BTreeMap::new();
    for row in setting.rows(|row| row.metric == "held_by_head") {
        of_policies.entry((row.variant().to_string(), Size::of(row))).or_default().push(row);
    }
    let mut maps = Maps::new();
    for ((policy, size), rows) in of_policies {
        maps.entry(policy).or_default().push((size, mean(&rows)));
    }
    if maps.is_empty() {
        return Vec::new();
    }
    let figures = maps.iter().map(|(policy, sizes)| {
        let title = format!("Entries by head: {} \u{B7} {}", setting.title(), escape::plain(policy));
        let stem = format!("heads-{}-{}", escape::slugs(&setting.title()), escape::slug(policy));
        let maps = sizes.iter().map(|(size, shares)| head_map::map(policy, *size, shares)).collect();
        let about = "numbers: percent of the tokens read that a head holds".to_owned();
        let content = Content::Maps(SquareMaps { maps, abreast: 1, asks: "What does each head hold?", about });
        Block::Figure(Rc::new(Figure { stem, title, content }))
    });
    let mut blocks = vec![Block::Paragraph(ABOUT.to_owned())];
    blocks.extend(figures);
    vec![Block::Group(Group::open("What each head holds", blocks))]
}

/// The mean over samples.
fn mean(rows: &[&Row]) -> Shares {
    let mut sums = Shares::new();
    for row in rows {
        let HeldByHead(layers) = row.output.as_deref().unwrap_or_default().parse().unwrap_or_default();
        for (layer, heads) in layers.into_iter().enumerate() {
            sums.resize(sums.len().max(layer + 1), Vec::new());
            for (head, held) in heads.into_iter().enumerate() {
                let shares = &mut sums[layer];
                shares.resize(shares.len().max(head + 1), 0.0);
                shares[head] += 100.0 * held as f64 / row.weight / rows.len() as f64;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, changed, documents};

    #[test]
    fn shares_are_means_over_samples() {
        let rows =
            changed(cell("held_by_head", "adakv", Some(8), &[("a", 48.0, 16.0), ("b", 48.0, 32.0)]), |row| {
                let held = if row.weight == 16.0 { "4 12/8 8" } else { "16 16/8 8" };
                row.output = Some(held.to_owned());
            });
        // 25 % and 50 %, 75 % and 50 %; 50 % and 25 %.
        assert_eq!(mean(&rows.iter().collect::<Vec<_>>()), [[37.5, 62.5], [37.5, 37.5]]);
        let whole = cell("nll", "adakv", Some(8), &[("a", 1.0, 1.0), ("b", 1.0, 1.0)]);
        let [report, _] = documents(&[rows, whole].concat()).each_ref().map(crate::report::markdown);
        assert!(report.contains("# What each head holds") && report.contains(ABOUT), "{report}");
    }
}
