//! The paper's figures from rows: which panels and policies each shows, and on what page.
//!
//! It chooses and arranges; charts and maps are drawn elsewhere. An error says what the rows lack.

use std::ops::Range;

use super::{COLUMN, Evidence, Exhibit, Pieces, TOVA, TWO_COLUMNS, differences, numbers, titles};
use crate::report::figure::{
    Axis, Chart, Horizontal, Line, Printed, Scale, Scene, SeriesStyles, chart, chart::excess as excess_charts,
    heatmap, slices,
};
use crate::report::series::{SizeAxis, breakdown};
use crate::report::{Panel, RUNNING, SeriesKey, Size, escape};

/// The policies of Figure 3, and those of Figures 4, 5, 10 and 11, without the full cache.
const OF_PERPLEXITY: [&str; 5] = ["truncate", "window", "window+4", "h2o", TOVA];
const OF_QUESTIONS: [&str; 3] = ["truncate", "window+4", TOVA];
const NAMES: &str = "full is the paper's topline, truncate its baseline";

pub(super) fn perplexity(exhibit: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let mut panels = evidence.panels_of("perplexity", "nll", &|policy| OF_PERPLEXITY.contains(&policy));
    // Very long texts are Figure 7's.
    panels.retain(|panel| !evidence.is_long(&panel.key));
    let mut pieces = charts(exhibit, evidence, &panels, evidence.beside_paper);
    let excesses =
        panels.iter().zip(titles(&panels)).filter_map(|(panel, title)| differences::excess(panel, &title));
    pieces.differences.extend(excesses);
    if evidence.beside_paper {
        pieces.scenes.extend(excess(exhibit, evidence, &panels));
    }
    let policies = OF_PERPLEXITY.join(", ");
    pieces.or_missing(&format!("no perplexity of {policies} was measured on texts of a usual length"))
}

/// The excess over the full cache, with the paper's beside it: models of other perplexities can be compared in it.
fn excess(exhibit: Exhibit, evidence: &Evidence<'_>, panels: &[Panel]) -> Option<(String, Scene)> {
    let both = panels.iter().zip(titles(panels)).filter(|(panel, _)| panel.full().is_some());
    let both = both.filter_map(|(panel, title)| Some(((panel, title), printed(panel, true)?)));
    let (shown, printed): (Vec<(&Panel, String)>, Vec<Printed>) = both.unzip();
    let charts = excess_charts::charts(&shown, by_size)?
        .into_iter()
        .zip(printed)
        .map(|(chart, printed)| chart.with_printed(printed));
    let charts: Vec<Chart> = charts.collect();
    let title = format!("{}, excess over full", exhibit.title());
    let about = exhibit.title();
    let scene = evidence.page(charts.len()).curves((&title, &about), &charts, &SeriesStyles::of(panels), NAMES);
    Some(("-excess".to_owned(), scene))
}

/// A panel over the cache size, whose bands may be of differences to the paper's policy.
fn by_size(panel: &Panel, title: String, scale: Scale) -> Chart {
    Chart::by_size(panel, title, scale, (chart::reference(panel, Some(TOVA)), SizeAxis::Entries))
}

/// Panels over the cache size.
fn charts(exhibit: Exhibit, evidence: &Evidence<'_>, panels: &[Panel], laid_over: bool) -> Pieces {
    let styles = SeriesStyles::of(panels);
    let chart = |(panel, title): (&Panel, String)| {
        let chart = by_size(panel, title, Scale::Linear);
        match laid_over.then(|| printed(panel, false)).flatten() {
            Some(printed) => chart.with_printed(printed),
            None => chart,
        }
    };
    let charts: Vec<Chart> = panels.iter().zip(titles(panels)).map(chart).collect();
    let mut pieces = Pieces { left_out: evidence.left_out(panels), ..Pieces::default() };
    if !charts.is_empty() {
        let title = exhibit.title();
        let scene = evidence.page(charts.len()).curves((&title, &title), &charts, &styles, NAMES);
        pieces.scenes.push((String::new(), scene));
    }
    pieces
}

/// The paper's Table 3 at the sizes and of the policies that a panel has: perplexity, or its excess in nats over the full cache.
fn printed(panel: &Panel, is_excess: bool) -> Option<Printed> {
    let (paper, sizes) = differences::printed_and_sizes(panel)?;
    let shown = |value: f64| if is_excess { Some((value / paper.full?).ln()) } else { Some(value) };
    let line = |(policy, _): &(String, _)| {
        let here = |size: &&Size| panel.point(policy, Some(**size)).is_some();
        let spot = |size: &Size| Some((size.number(), shown(paper.value(policy, *size)?)?));
        (policy.clone(), sizes.iter().filter(here).filter_map(spot).collect())
    };
    let lines = paper.rows.iter().map(line).filter(|(_, spots): &(String, Vec<_>)| !spots.is_empty());
    let full = paper.full.filter(|_| panel.full().is_some() && !is_excess);
    Some(Printed { lines: lines.collect(), full, source: format!("paper: {}", numbers::MODEL) })
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
    Ok(charts(exhibit, evidence, &panels, false))
}

/// Whether a model was asked as one tuned on instructions: through its chat template, or by its name.
pub(super) fn is_instructed(key: &SeriesKey) -> bool {
    let name = key.model.rsplit('/').next().unwrap_or_default().to_lowercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    key.generation.split(' ').any(|part| part == "chat_template=true")
        || words.any(|word| matches!(word, "chat" | "instruct" | "it"))
}

/// The lines of Figure 6.
const PREFERENCES: [&str; 3] = ["policy preferred", "equal", "full preferred"];

pub(super) fn judged(exhibit: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let endings = ["judge_win", "judge_tie", "judge_loss"];
    let [wins, ties, losses] =
        endings.map(|metric| evidence.panels_of("judge", metric, &|policy| policy != "full"));
    let (mut pieces, mut charts) = (Pieces::default(), Vec::new());
    for (win, title) in wins.iter().zip(titles(&wins)) {
        let is_same = |panel: &&Panel| panel.key == win.key;
        let (Some(tie), Some(loss)) = (ties.iter().find(is_same), losses.iter().find(is_same)) else { continue };
        for policy in win.policies().into_iter().filter(|policy| *policy != "full") {
            let title = format!("{title} \u{B7} {policy}");
            charts.push(preferences([win, tie, loss], policy, title));
        }
    }
    if charts.is_empty() {
        return Err("no story was judged".to_owned());
    }
    let caption = "shares of pairs in percent; a story is preferred where the judge chose it in both orders; identical \
                   stories are equal";
    let styles = SeriesStyles::in_order(&PREFERENCES);
    let title = exhibit.title();
    let scene = evidence.page(charts.len()).curves((&title, &title), &charts, &styles, caption);
    pieces.scenes.push((String::new(), scene));
    Ok(pieces)
}

/// A chart of how often a judge preferred the story of a policy, neither, and that of the full cache, over the cache size.
fn preferences(panels: [&Panel; 3], policy: &str, title: String) -> Chart {
    let mut quantity = panels[0].metric.clone();
    (quantity.label, quantity.range) = ("share of pairs (%)".into(), Some((0.0, 100.0)));
    let sizes = panels[0].sizes();
    let line = |(name, panel): (&str, &Panel)| {
        let points = panel.points.iter().filter(|point| point.policy == policy);
        let spots = points.filter_map(|point| Some(chart::measurement(panel, point, point.cache_size?.number())));
        Line { policy: name.to_owned(), spots: spots.collect() }
    };
    let lines = PREFERENCES.into_iter().zip(panels).map(line).collect();
    let across = (Horizontal::of_sizes(&sizes), Axis::of_sizes(&sizes));
    let chart = Chart::new((title, &quantity), across, Scale::Linear, lines, None, None);
    chart.asking("Which story does a judge prefer?")
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
    let is_running = |panel: &&Panel| panel.slice.as_ref().is_some_and(|slice| slice.is(RUNNING));
    let long: Vec<Panel> = panels.iter().filter(is_running).cloned().collect();
    let mut pieces = Pieces { left_out: evidence.left_out(&long), ..Pieces::default() };
    for parts in &running {
        let title = parts.key().title(&settings);
        let charts: Option<Vec<Chart>> =
            parts.sizes().into_iter().map(|size| slices::over_text(parts, size)).collect();
        let Some(charts) = charts.filter(|charts| !charts.is_empty()) else { continue };
        let page = evidence.page(charts.len());
        let caption = format!("{title}; each point is over all tokens read so far");
        let long = format!("{}: {title}", exhibit.title());
        pieces
            .scenes
            .push((end_of(&title, running.len()), page.curves((&long, &long), &charts, &styles, &caption)));
    }
    pieces.or_missing("no text is longer than 4,096 tokens and was read by window+4 or tova")
}

/// The end of a file name, which tells several keys apart.
fn end_of(title: &str, keys: usize) -> String {
    if keys > 1 { format!("-{}", escape::slugs(title)) } else { String::new() }
}

/// Maps of some layers; an empty range is the last layer.
pub(super) fn maps(evidence: &Evidence<'_>, layers: Range<usize>) -> Result<Pieces, String> {
    let kept = evidence.kept();
    let mut pieces = Pieces::default();
    let mut deepest = None;
    for section in &kept {
        let Some((size, mut maps)) = section.maps_of(TOVA) else { continue };
        let last = maps.last().map(|map| map.layer);
        deepest = deepest.max(last);
        maps.retain(|map| layers.contains(&map.layer) || (layers.is_empty() && Some(map.layer) == last));
        let mut what = format!("{} \u{B7} {TOVA} with {}", section.title, size.words());
        if let [only] = &maps[..] {
            what.push_str(&format!(" \u{B7} layer {}", only.layer));
        }
        for (number, page) in maps.chunks(heatmap::MOST).enumerate() {
            let columns = evidence.columns.unwrap_or(if page.len() > 2 { 2 } else { 1 });
            let (width, abreast) = match columns {
                // Four make a square.
                1 => (COLUMN, if page.len() == 4 { 2 } else { page.len().min(3) }),
                _ => (TWO_COLUMNS, page.len().min(5)),
            };
            let page_number = if number > 0 { format!("-page-{}", number + 1) } else { String::new() };
            let end = end_of(&section.title, kept.len()) + &page_number;
            let maps = heatmap::square_maps(&what, page, Some((width, abreast)));
            pieces.scenes.push((end, maps.scene(&format!("Tokens kept in the cache: {what}"), evidence.plain)));
        }
    }
    pieces.or_missing(&match deepest {
        Some(deepest) => format!("the deepest layer that was mapped is {deepest}"),
        None => evidence
            .why_nothing_kept("no map of what tova keeps was made (`maps:` of the task says of how many samples)"),
    })
}

pub(super) fn places(_: Exhibit, evidence: &Evidence<'_>) -> Result<Pieces, String> {
    let kept = evidence.kept();
    let mut pieces = Pieces::default();
    let width = if evidence.columns == Some(2) { TWO_COLUMNS } else { COLUMN };
    for section in &kept {
        let places = section.by_position(&[(TOVA, section.sizes_of(TOVA))]);
        let scene = places.map(|places| places.scene(Some(width), evidence.plain));
        pieces.scenes.extend(scene.map(|scene| (end_of(&section.title, kept.len()), scene)));
    }
    pieces.or_missing(&evidence.why_nothing_kept("no steps that tova keeps a token were measured"))
}
