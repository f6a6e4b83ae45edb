//! Which policy is best at which size, as one small chart.

use std::rc::Rc;

use super::setting::Measured;
use super::values::best;
use crate::format::capital;
use crate::metric::{Better, Property};
use crate::report::document::Block;
use crate::report::escape;
use crate::report::figure::best_map::{self, BestMap, Standing};
use crate::report::figure::{Content, Figure, Plain};
use crate::report::series::{Panel, Size};

/// Of the setting's first metric, where several policies have several sizes.
pub(super) fn blocks(measured: &Measured<'_>) -> Vec<Block> {
    let (panel, setting) = (measured.panel, measured.setting);
    if !measured.is_first || setting.is_timed() || panel.metric.has(Property::Detail) {
        return Vec::new();
    }
    let title = format!("Which policy is best at which size: {}", setting.title());
    let Some(map) = map(panel, title.clone()) else { return Vec::new() };
    let stem = format!("best-{}-{}", escape::slugs(&setting.title()), escape::slug(&panel.metric.label));
    let draw = move |plain: Plain| best_map::scene(&map, plain);
    let figure = Figure { stem, title, content: Content::Picture(Box::new(draw)), subject: None };
    vec![Block::Figure(Rc::new(figure))]
}

/// `None` where nothing can be chosen, or which way is better is not known.
fn map(panel: &Panel, title: String) -> Option<BestMap> {
    let policies: Vec<&str> = panel.policies().into_iter().filter(|policy| panel.is_choice(policy)).collect();
    let sizes = panel.sizes();
    if policies.len() < 2 || sizes.len() < 2 || panel.metric.better == Better::Unknown {
        return None;
    }
    let columns: Vec<_> = sizes.iter().map(|size| (*size, standings(panel, &policies, *size))).collect();
    let lines = policies
        .iter()
        .enumerate()
        .map(|(at, policy)| ((*policy).to_owned(), columns.iter().map(|(_, standings)| standings[at]).collect()));
    let is_decided = columns.iter().any(|(_, standings)| standings.contains(&Some(Standing::Worse)));
    let caption = match is_decided {
        true => {
            "filled: no other policy of that size is better, as far as they can be told apart (95 %, among all \
             comparisons); empty: another is better"
        }
        false => "no policy is told apart from another of its size (95 %, among all comparisons)",
    };
    let sizes = sizes.iter().map(ToString::to_string).collect();
    Some(BestMap {
        title,
        sizes,
        lines: lines.collect(),
        caption: format!("{}; {caption}", capital(&panel.metric.label)),
    })
}

/// What each policy is at a size.
fn standings(panel: &Panel, policies: &[&str], size: Size) -> Vec<Option<Standing>> {
    // Nobody, where none is worse than another.
    let best = best(panel, Some(size));
    let sign = if panel.metric.better == Better::Lower { 1.0 } else { -1.0 };
    let value = |policy: &str| panel.point(policy, Some(size)).map(|point| sign * point.estimate.value);
    let least = policies.iter().filter_map(|policy| value(policy)).fold(f64::INFINITY, f64::min);
    let standing = |policy: &&str| {
        Some(match value(policy)? {
            own if own == least => Standing::Best,
            _ if best.is_empty() || best.contains(policy) => Standing::NotWorse,
            _ => Standing::Worse,
        })
    };
    policies.iter().map(standing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{cell, panels};

    #[test]
    fn a_policy_is_best_not_worse_or_worse() {
        let at = |policy, size, values: [f64; 7]| {
            let samples = ["a", "b", "c", "d", "e", "f", "g"].into_iter().zip(values);
            cell("nll", policy, size, &samples.map(|(name, value)| (name, value, 1.0)).collect::<Vec<_>>())
        };
        let all = [
            at("full", None, [1.0; 7]),
            at("truncate", Some(64), [1.1; 7]),
            at("window", Some(64), [3.0; 7]),
            // In the mean a little worse than tova, in three books better.
            at("h2o", Some(64), [1.8, 2.3, 1.8, 2.3, 1.8, 2.3, 2.0]),
            at("tova", Some(64), [2.0; 7]),
            at("tova", Some(128), [1.5; 7]),
            at("h2o", Some(128), [1.5, 1.6, 1.4, 1.6, 1.5, 1.5, 1.5]),
        ];
        let map = map(&panels(&all.concat())[0], "t".to_owned()).unwrap();
        assert_eq!(map.sizes, ["64", "128"]);
        let expected = [
            ("window", vec![Some(Standing::Worse), None]),
            ("h2o", vec![Some(Standing::NotWorse), Some(Standing::NotWorse)]),
            ("tova", vec![Some(Standing::Best), Some(Standing::Best)]),
        ];
        assert_eq!(map.lines, expected.map(|(policy, standings)| (policy.to_owned(), standings)));
        let texts = crate::report::figure::texts(&best_map::scene(&map, Plain::default()));
        assert_eq!(texts.iter().filter(|text| text.text == "best").count(), 2);
    }
}
