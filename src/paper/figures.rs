//! The paper's figures from rows: which panels and policies each shows, and on what page.
//!
//! It chooses and arranges; charts, bars and maps are drawn elsewhere. An error says what the rows lack.

use std::ops::Range;

use super::bars::{self, Bar, Stack};
use super::{Evidence, Exhibit, Pieces, TOVA, beside, numbers, titles};
use crate::report::axis::Scale;
use crate::report::chart::{Chart, Printed};
use crate::report::series_style::SeriesStyles;
use crate::report::{Panel, RUNNING, SeriesKey, breakdown, escape, heatmap};

/// Charts of one page; more are drawn on further pages.
const MOST: usize = 12;
/// The policies of Figure 3, and those of Figures 4, 5, 10 and 11, without the full cache.
const OF_PERPLEXITY: [&str; 5] = ["truncate", "window", "window+4", "h2o", TOVA];
const OF_QUESTIONS: [&str; 3] = ["truncate", "window+4", TOVA];
const NAMES: &str = "full is the paper's topline, truncate its baseline";

pub(super) fn perplexity(exhibit: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let mut panels = evidence.panels_of("perplexity", "nll", &|policy| OF_PERPLEXITY.contains(&policy));
    // Very long texts are Figure 7's.
    panels.retain(|panel| !evidence.is_long(&panel.key));
    if panels.is_empty() {
        return Err(format!(
            "no perplexity of {} was measured on texts of a usual length",
            OF_PERPLEXITY.join(", ")
        ));
    }
    let mut pieces = charts(exhibit, evidence, &panels, evidence.beside_paper);
    if evidence.beside_paper {
        pieces.differences = beside::perplexity(&panels);
        pieces.notes.extend(beside::of_another_length(&panels));
    }
    Ok(pieces)
}

/// Panels over the cache size on as many pages as they need.
fn charts(exhibit: Exhibit, evidence: &Evidence<'_>, panels: &[Panel], laid_over: bool) -> Pieces {
    let styles = SeriesStyles::of(panels);
    let titles = titles(panels);
    let mut pieces = Pieces::default();
    let pages: Vec<_> = panels.chunks(MOST).zip(titles.chunks(MOST)).collect();
    for (number, (panels, titles)) in pages.iter().enumerate() {
        let chart = |(panel, title): (&Panel, &String)| {
            let chart = Chart::by_size(panel, title.clone(), Scale::Linear);
            match laid_over.then(|| printed(panel)).flatten() {
                Some(printed) => chart.beside(printed),
                None => chart,
            }
        };
        let charts: Vec<Chart> = panels.iter().zip(*titles).map(chart).collect();
        let title = format!("{exhibit}, redrawn: {}", exhibit.source().shows);
        let page = evidence.page(charts.len());
        let end = if pages.len() > 1 { format!("page-{}", number + 1) } else { String::new() };
        pieces.scenes.push((end, page.curves(&title, &charts, &styles, Some(NAMES))));
    }
    pieces
}

/// The paper's Table 3 at the sizes and of the policies that a panel has.
fn printed(panel: &Panel) -> Option<Printed> {
    let sizes = beside::sizes(panel)?;
    let source = format!("paper: {}", numbers::MODEL);
    let line = |(policy, values): &(&str, [f64; 7])| {
        let here = |size: &&(usize, u32)| panel.point(policy, Some(size.1)).is_some();
        let spots = sizes.iter().filter(here).map(|(at, size)| (f64::from(*size), values[*at])).collect();
        ((*policy).to_owned(), spots)
    };
    let lines = numbers::TABLE_3.iter().map(line).filter(|(_, spots): &(String, Vec<_>)| !spots.is_empty());
    Some(Printed { lines: lines.collect(), full: panel.full().map(|_| numbers::TABLE_3_FULL), source })
}

/// SQuALITY or QASPER of one kind of models.
pub(super) fn questions(
    exhibit: Exhibit,
    evidence: &Evidence<'_>,
    (task, metric): (&str, &str),
    instructed: bool,
) -> Result<Pieces, String> {
    let all = evidence.panels_of(task, metric, &|policy| OF_QUESTIONS.contains(&policy));
    if all.is_empty() {
        return Err(format!("no answers of {} to {task} were measured", OF_QUESTIONS.join(", ")));
    }
    let panels: Vec<Panel> = all.iter().filter(|panel| is_instructed(&panel.key) == instructed).cloned().collect();
    if panels.is_empty() {
        let models: Vec<String> = titles(&all);
        let (asked, found) =
            if instructed { ("instruct", "base models only") } else { ("base", "instruct models only") };
        return Err(format!(
            "it is of {asked} models, and these rows are of {found}: {}. A model counts as tuned on instructions where it was \
             asked through a chat template or is named chat, instruct or it",
            models.join(", ")
        ));
    }
    let mut pieces = charts(exhibit, evidence, &panels, false);
    if evidence.beside_paper {
        pieces.notes.push("the paper prints no numbers of this figure, so none are laid over".to_owned());
    }
    Ok(pieces)
}

/// Whether a model was asked as one tuned on instructions: through its chat template, or by its name.
pub(super) fn is_instructed(key: &SeriesKey) -> bool {
    let name = key.model.rsplit('/').next().unwrap_or_default().to_lowercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    key.generation.split(' ').any(|part| part == "chat_template=true")
        || words.any(|word| matches!(word, "chat" | "instruct" | "it"))
}

pub(super) fn judged(exhibit: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let endings = ["judge_win", "judge_tie", "judge_loss"]
        .map(|metric| evidence.panels_of("judge", metric, &|policy| policy != "full"));
    let mut stacks = Vec::new();
    let mut notes = Vec::new();
    for (wins, title) in endings[0].iter().zip(titles(&endings[0])) {
        let ties = endings[1].iter().find(|panel| panel.key == wins.key);
        let losses = endings[2].iter().find(|panel| panel.key == wins.key);
        let compared = evidence.beside_paper && wins.key.length == numbers::LENGTH;
        if evidence.beside_paper && !compared {
            notes.push(beside::other_length(&title, wins.key.length));
        }
        for policy in wins.policies().into_iter().filter(|policy| *policy != "full") {
            let bar = |size: u32| {
                let share = |panel: Option<&Panel>| Some(panel?.point(policy, Some(size))?.estimate.value);
                let printed =
                    numbers::FIGURE_6.iter().find(|(known, _)| *known == size && compared && policy == TOVA);
                Some(Bar {
                    size: size.to_string(),
                    measured: [share(Some(wins))?, share(ties)?, share(losses)?],
                    printed: printed.map(|(_, shares)| *shares),
                })
            };
            let bars: Vec<Bar> = wins.sizes().into_iter().filter_map(bar).collect();
            let title = format!("{title} \u{B7} {}", escape::plain(policy));
            stacks.extend((!bars.is_empty()).then(|| Stack { title, policy: escape::plain(policy), bars }));
        }
    }
    if stacks.is_empty() {
        return Err("no story was judged".to_owned());
    }
    let page = evidence.page(stacks.len());
    let title = format!("{exhibit}, redrawn: {}", exhibit.source().shows);
    let caption = "shares of pairs in percent; a story is preferred where the judge chose it in both orders";
    let scene = bars::scene(&title, &stacks, &page, numbers::STORY_MODEL, caption);
    let differences = if evidence.beside_paper { beside::judged(evidence, &endings) } else { Vec::new() };
    Ok(Pieces { scenes: vec![(String::new(), scene)], differences, notes, ..Pieces::default() })
}

pub(super) fn running(exhibit: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let mut panels: Vec<Panel> =
        evidence.results.panels.iter().filter(|panel| panel.metric.id == "nll").cloned().collect();
    for panel in &mut panels {
        // Positions belong to the policy here, so `tova@squeezed` is the paper's TOVA as well.
        let shown =
            |policy: &str| ["full", "window+4", TOVA].contains(&policy.split('@').next().unwrap_or(policy));
        panel.points.retain(|point| shown(&point.policy));
    }
    panels.retain(|panel| panel.points.iter().any(|point| !point.is_full()));
    let styles = SeriesStyles::of(&panels);
    let breakdowns = breakdown::breakdowns(&panels);
    let running: Vec<_> = breakdowns.iter().filter(|parts| parts.by == RUNNING).collect();
    let settings: Vec<SeriesKey> = running.iter().map(|parts| parts.key().clone()).collect();
    let mut pieces = Pieces::default();
    for parts in &running {
        let title = parts.key().title(&settings);
        let charts: Option<Vec<Chart>> = parts.sizes().into_iter().map(|size| parts.running(size)).collect();
        let Some(charts) = charts.filter(|charts| !charts.is_empty()) else { continue };
        let page = evidence.page(charts.len());
        let caption = format!("{title}; each point is over all tokens read so far");
        let long = format!("{exhibit}, redrawn: {}: {title}", exhibit.source().shows);
        pieces.scenes.push((end_of(&title, running.len()), page.curves(&long, &charts, &styles, Some(&caption))));
    }
    if pieces.scenes.is_empty() {
        return Err("no text is longer than 4,096 tokens and was read by window+4 or tova".to_owned());
    }
    if evidence.beside_paper {
        pieces
            .notes
            .push("the paper prints no numbers of this figure; the claims say what it says of them".to_owned());
    }
    Ok(pieces)
}

/// The end of a file name, which tells several keys apart.
fn end_of(title: &str, keys: usize) -> String {
    if keys > 1 { escape::slugs(title) } else { String::new() }
}

/// Maps of some layers; an empty range is the last layer.
pub(super) fn maps(exhibit: Exhibit, evidence: &Evidence<'_>, layers: Range<usize>) -> Result<Pieces, String> {
    let kept = evidence.kept();
    let mut pieces = Pieces::default();
    let mut deepest = None;
    for section in &kept {
        let Some((size, all)) = section.maps_of(TOVA) else { continue };
        let last = all.last().map(|map| map.layer);
        deepest = deepest.max(last);
        let wanted =
            |map: &heatmap::Map| layers.contains(&map.layer) || (layers.is_empty() && Some(map.layer) == last);
        let maps: Vec<heatmap::Map> = all.into_iter().filter(wanted).collect();
        let Some(last) = maps.last() else { continue };
        let end = end_of(section.title(), kept.len());
        let what = format!("{} \u{B7} {TOVA} with {size} entries", section.title());
        let what = if maps.len() == 1 { format!("{what} \u{B7} layer {}", last.layer) } else { what };
        for (number, page) in maps.chunks(heatmap::MOST).enumerate() {
            let columns = evidence.columns.unwrap_or(if page.len() > 2 { 2 } else { 1 });
            let (width, abreast) = match columns {
                // Four make a square.
                1 => (super::COLUMN, if page.len() == 4 { 2 } else { page.len().min(3) }),
                _ => (super::TWO_COLUMNS, page.len().min(5)),
            };
            let end = match number {
                0 => end.clone(),
                _ => [end.as_str(), &format!("page-{}", number + 1)].join("-").trim_matches('-').to_owned(),
            };
            pieces.scenes.push((end, heatmap::scene_of(&what, page, width, abreast)));
        }
    }
    match (pieces.scenes.is_empty(), deepest) {
        (false, _) => Ok(pieces),
        (true, Some(deepest)) => Err(format!("the deepest layer that was mapped is {deepest}")),
        (true, None) => {
            Err("no map of what tova keeps was made (`maps:` of the task says of how many samples)".to_owned())
        }
    }
    .map(|mut pieces| {
        if evidence.beside_paper {
            pieces.notes.push(format!("the paper prints no numbers of {exhibit}, so none are laid over"));
        }
        pieces
    })
}

pub(super) fn places(_: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let kept = evidence.kept();
    let mut pieces = Pieces::default();
    let width = if evidence.columns == Some(2) { super::TWO_COLUMNS } else { super::COLUMN };
    for section in &kept {
        let scene = section.places_of(TOVA, width);
        pieces.scenes.extend(scene.map(|scene| (end_of(section.title(), kept.len()), scene)));
    }
    if pieces.scenes.is_empty() {
        return Err("no steps that tova keeps a token were measured".to_owned());
    }
    if evidence.beside_paper {
        pieces.notes.push("the paper prints no numbers of this figure, so none are laid over".to_owned());
    }
    Ok(pieces)
}
