//! The points as CSV, and the pairs: one line each, with every digit and every field of the key.

use anyhow::Result;
use indexmap::IndexSet;

use super::{Files, Sources};
use crate::metric::{Better, Slice};
use crate::report::document::{Document, Entry};
use crate::report::escape;
use crate::report::series::{Influence, Panel, Schedules, SeriesKey};
use crate::report::statistics::Estimate;

pub(super) fn files(sources: &Sources<'_>) -> Result<Files> {
    let report = sources.report;
    Ok(vec![
        ("report.csv", points(&report.results.panels, &report.schedules)),
        ("pairs.csv", pairs(&report.panels)),
    ])
}

/// The points, header included.
fn points(panels: &[Panel], schedules: &Schedules) -> String {
    let mut file = header(
        "slice,quantity,policy,cache_size,value,interval_low,interval_high,minus_full,minus_full_low,minus_full_high,\
         minus_full_nats,minus_full_nats_low,minus_full_nats_high,to_ceiling,to_ceiling_low,to_ceiling_high,chance,samples,samples_expected,clusters,weight,complete,schedule,held_bytes,peak_bytes,read_bytes",
    );
    // The full cache is in the panels of entries and of shares, which no column tells apart.
    let mut lines = IndexSet::new();
    for (panel, point) in panels.iter().flat_map(|panel| panel.points.iter().map(move |point| (panel, point))) {
        let to_full = point.to_full.as_ref();
        let fields = [
            &[Slice::text(panel.slice.as_ref()), panel.metric.label.to_string(), point.policy.clone()][..],
            &[shown(point.cache_size)],
            &estimate(Some(point.estimate)),
            &estimate(to_full.map(|to_full| to_full.shown)),
            &estimate(to_full.and_then(|to_full| to_full.nats)),
            &estimate(point.to_ceiling),
            &[shown(panel.guess), point.samples.to_string(), panel.samples.to_string()],
            &[point.clusters.to_string(), point.weight.to_string(), point.complete.to_string()],
            &[shown(schedules.get(&point.policy).map(|(_, schedule)| schedule))],
            &[shown(point.held_bytes), shown(point.peak_bytes), shown(point.read_bytes)],
        ];
        lines.insert(line(panel, &fields));
    }
    file.extend(lines);
    file
}

/// Every two policies at each cache size, once: the later in the order of the tables minus the earlier.
fn pairs(panels: &[Panel]) -> String {
    let mut file = header(
        "quantity,policy,against,cache_size,difference,low,high,nats,nats_low,nats_high,p,p_adjusted,verdict,p_contrast,verdict_contrast,\
         samples,clusters,largest_cluster,largest_share,left_out_low,left_out_high,nats_left_out_low,nats_left_out_high",
    );
    for (panel, pair) in panels.iter().flat_map(|panel| panel.pairs.iter().map(move |pair| (panel, pair))) {
        let (difference, better) = (&pair.difference, panel.metric.better);
        let verdict = (better != Better::Unknown).then_some(());
        let fields = [
            &[panel.metric.label.to_string(), pair.policy.clone(), pair.against.clone()][..],
            &[pair.cache_size.to_string()],
            &estimate(Some(difference.shown)),
            &estimate(difference.nats),
            &[shown(pair.p.map(|p| p.own)), shown(pair.p.map(|p| p.adjusted))],
            &[shown(verdict.map(|()| pair.outcome(better).word()))],
            &[shown(pair.planned.map(|p| p.adjusted))],
            &[shown(verdict.and(pair.planned).map(|_| pair.planned_outcome(better).word()))],
            &[difference.samples.to_string(), difference.clusters.to_string()],
            &influence(difference.influence.as_ref()),
        ];
        file += &line(panel, &fields);
    }
    file
}

/// Every line begins with the fields of its key.
fn header(names: &str) -> String {
    format!("{},metric,{names}\n", SeriesKey::names().join(","))
}

fn line(panel: &Panel, fields: &[&[String]]) -> String {
    let key = panel.key.fields().into_iter().map(|(_, value)| value);
    let all = key.chain([panel.metric.id.to_string()]).chain(fields.concat());
    all.map(|field| escape::csv(&field)).collect::<Vec<_>>().join(",") + "\n"
}

/// The number and the ends of its interval.
fn estimate(estimate: Option<Estimate>) -> [String; 3] {
    let interval = estimate.and_then(|estimate| estimate.interval);
    let ends = [interval.map(|interval| interval.low), interval.map(|interval| interval.high)];
    [estimate.map(|estimate| estimate.value), ends[0], ends[1]].map(shown)
}

/// The largest cluster, its share, and the ranges with each cluster left out.
fn influence(influence: Option<&Influence>) -> [String; 6] {
    let cluster = shown(influence.map(|influence| &influence.cluster));
    let share = shown(influence.map(|influence| influence.share));
    let ends = |ends: Option<[f64; 2]>| [0, 1].map(|end| shown(ends.map(|ends| ends[end])));
    let [low, high] = ends(influence.map(|influence| influence.left_out));
    let [nats_low, nats_high] = ends(influence.and_then(|influence| influence.left_out_nats));
    [cluster, share, low, high, nats_low, nats_high]
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// The tables of a document in one file, a line for each number as it is shown, since tables may differ in their columns.
pub(super) fn render(document: &Document) -> String {
    let mut file = "table,line,column,shown,interval,worse,partial\n".to_owned();
    for (_, table) in document.tables() {
        for line in &table.grid.lines {
            for (column, entry) in table.grid.columns.iter().zip(&line.cells) {
                let Some(Entry { number, spread, worse, partial }) = entry else { continue };
                let spread = spread.as_deref().unwrap_or_default();
                let texts = [&table.title, &line.name, &column.name, number, spread].map(escape::csv);
                file += &format!("{},{worse},{partial}\n", texts.join(","));
            }
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::{Block, Grid, Line, Table};
    use crate::report::fixture::{at_share, cell, panels};
    use crate::report::series;

    #[test]
    fn one_line_per_point_with_every_digit() {
        let at = |policy, size| cell("nll", policy, size, &[("a", 2.0, 1.0)]);
        let rows = [at("full", None), at("my, \"own\"", Some(64))].concat();
        let file = points(&panels(&rows), &series::schedules(&rows));
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("task,dataset,model,"));
        assert!(lines[1].contains(",full,,7.38905609893065,,,,,,,,,,,,,1,1,1,1,true,"), "{}", lines[1]);
        assert!(
            lines[2].contains(",\"my, \"\"own\"\"\",64,7.38905609893065,,,0,,,0,,,,,,,1,1,1,1,true,1,,"),
            "{}",
            lines[2]
        );
    }

    #[test]
    fn one_line_per_pair_with_its_interval_and_p() {
        let at = |policy, costs: [f64; 4]| {
            let samples = ["a", "b", "c", "d"].into_iter().zip(costs).map(|(name, cost)| (name, cost, 1.0));
            cell("cost", policy, Some(64), &samples.collect::<Vec<_>>())
        };
        let file = pairs(&panels(&[at("window", [1.0; 4]), at("my, \"own\"", [2.0, 4.0, 6.0, 4.0])].concat()));
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with(",metric,quantity,policy,against,cache_size,difference,low,high,nats,nats_low,nats_high,p,p_adjusted,verdict,p_contrast,verdict_contrast,samples,clusters,largest_cluster,largest_share,left_out_low,left_out_high,nats_left_out_low,nats_left_out_high"));
        // Of four books with differences 1, 3, 5 and 3 the ends are books, and all have one sign. The third has 5 of 12; without it the
        // mean is 7/3, and without the first 11/3.
        assert!(
            lines[1].contains(",cost,cost,\"my, \"\"own\"\"\",window,64,3,1,5,,,,0.125,0.125,,,,4,4,c,0.41"),
            "{}",
            lines[1]
        );
        let ends: Vec<f64> = lines[1].rsplit(',').skip(2).take(2).map(|end| end.parse().unwrap()).collect();
        assert!((ends[0] - 11.0 / 3.0).abs() < 1e-12 && (ends[1] - 7.0 / 3.0).abs() < 1e-12, "{ends:?}");
    }

    #[test]
    fn shares_are_written_as_in_a_sweep() {
        let of = |policy, size| cell("cost", policy, size, &[("a", 1.0, 1.0), ("b", 2.0, 1.0)]);
        let [window, tova] = ["window", "tova"].map(|policy| at_share(0.125, of(policy, None)));
        let panels = panels(&[of("full", None), of("tova", Some(64)), window, tova].concat());
        let (points, pairs) = (points(&panels, &Schedules::new()), pairs(&panels));
        // The full cache of both panels is one line.
        assert_eq!((panels.len(), points.lines().count()), (2, 5), "{points}");
        assert_eq!(points.matches(",12.5%,1.5,").count(), 2, "{points}");
        assert!(pairs.lines().nth(1).unwrap().contains(",tova,window,12.5%,0,"), "{pairs}");
    }

    #[test]
    fn tables_are_lines_of_single_numbers() {
        let entry = Entry { spread: Some("[9, 10]".into()), worse: true, ..Entry::plain("9.5") };
        let grid = Grid::by_size([64, 128], vec![Line::new("a,b", vec![None, Some(entry)])]);
        let blocks = vec![Block::Table(Table::new("T", "", "policy", grid))];
        assert_eq!(
            render(&Document { title: String::new(), blocks }),
            "table,line,column,shown,interval,worse,partial\nT,\"a,b\",128,9.5,\"[9, 10]\",true,false\n"
        );
    }
}
