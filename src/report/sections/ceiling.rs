//! How far each policy goes from the floor to the ceiling of its cache size.

use super::Measured;
use super::values::POLICY;
use crate::metric::Pooling;
use crate::report::document::{Block, Entry, Grid, Line, Table};
use crate::report::series::{Panel, Size};
use crate::report::statistics::Estimate;

pub(super) fn blocks(measured: &Measured<'_>) -> Vec<Block> {
    table(measured.panel).map(Block::Table).into_iter().collect()
}

/// The shares of a panel in percent; `None` where floor and ceiling were not both measured.
pub(crate) fn table(panel: &Panel) -> Option<Table> {
    let sizes = panel.sizes();
    let line = |policy: &str| {
        let cell = |size: &Size| {
            let Estimate { value, interval } = panel.point(policy, Some(*size))?.to_ceiling?;
            let share = Estimate { value, interval: interval.filter(|ends| ends.low < ends.high) };
            Some(Entry::estimate(share, |share| format!("{:.1}", 100.0 * share)))
        };
        Line::of_policy(policy, sizes.iter().map(cell).collect())
    };
    let lines: Vec<Line> = panel.policies().into_iter().map(line).filter(Line::has_any).collect();
    let unit = if panel.metric.pooling == Pooling::Perplexity { ", in nats" } else { "" };
    let about = format!(
        "Of what lies between evicting at random (0) and evicting with the rest of the text known (100) at that size{unit}, the \
         share that a policy gains. In brackets are paired 95 % intervals."
    );
    (!lines.is_empty()).then(|| {
        let grid = Grid::by_size(sizes.iter().copied(), lines);
        Table::new(format!("{}: way from floor to ceiling (%)", panel.metric.label), about, POLICY, grid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Row;
    use crate::report::fixture::panels;
    use crate::report::series::ceiling::tests::lost;

    #[test]
    fn the_table_has_percents_and_there_is_none_without_ends() {
        let rows = [
            lost("random", "random", [2.0; 6]),
            lost("clairvoyant", "future_attention", [0.0; 6]),
            lost("mine", "last_attention", [0.0, 0.0, 0.1, 0.1, 0.1, 0.3]),
        ];
        let of = |rows: &[Vec<Row>]| table(&panels(&rows.concat())[0]);
        let shown = of(&rows).unwrap();
        let line = |at: usize| {
            let entry = shown.grid.lines[at].cells[0].as_ref().unwrap();
            (shown.grid.lines[at].name.as_str(), entry.number.as_str(), entry.spread.is_some())
        };
        assert_eq!(
            [line(0), line(1), line(2)],
            [("random", "0.0", false), ("clairvoyant", "100.0", false), ("mine", "95.0", true)]
        );
        assert!(of(&rows[1..]).is_none());
    }
}
