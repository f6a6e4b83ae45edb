//! A metric over the memory that caches hold: where caches of one size hold unequal memory, sizes do not compare them.

use super::Measured;
use super::values::{POLICY, Show, number};
use crate::format::Bytes;
use crate::report::document::{Block, Entry, Grid, Line, Table};
use crate::report::series::{Panel, Point, place};

/// The table where it comes before the one by size, which then does not compare policies.
pub(super) fn first(measured: &Measured<'_>) -> Vec<Block> {
    leading(measured.panel).map(Block::Table).into_iter().collect()
}

/// The table where sizes compare policies as well.
pub(super) fn blocks(measured: &Measured<'_>) -> Vec<Block> {
    let table = table(measured.panel).filter(|_| leading(measured.panel).is_none());
    table.map(Block::folded).into_iter().collect()
}

/// The table of a panel whose sizes are not memory, and in which policies of one size hold unequal memory.
pub(crate) fn leading(panel: &Panel) -> Option<Table> {
    table(panel).filter(|_| panel.has_unequal_memory() && !panel.has_sizes_of_memory())
}

/// A line for each policy and size, from the most memory to the least.
fn table(panel: &Panel) -> Option<Table> {
    if !panel.needs_memory_table() {
        return None;
    }
    let mut points: Vec<(f64, &Point)> =
        panel.points.iter().filter_map(|point| Some((point.held_bytes?, point))).collect();
    points.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let show = if panel.full().is_some() { Show::Difference } else { Show::Value };
    let full = panel.full().and_then(|full| full.held_bytes);
    let line = |(held, point): &(f64, &Point)| {
        let share = full.map_or_else(|| "-".to_owned(), |full| format!("{:.1}", 100.0 * held / full));
        let cells = vec![
            Some(Entry::plain(Bytes(held.round() as u64).to_string())),
            Some(Entry::plain(share)),
            point.peak_bytes.map(|peak| Entry::plain(Bytes(peak).to_string())),
            point.entries.map(|(least, most)| {
                Entry::plain(if least < most { format!("{least} to {most}") } else { least.to_string() })
            }),
            number(panel, point, show),
        ];
        Line {
            size: point.cache_size,
            policy: Some(point.policy.clone()),
            ..Line::new(place(&point.policy, point.cache_size), cells)
        }
    };
    let value = match show {
        Show::Difference => super::values::name_of_difference(&panel.metric),
        Show::Value => panel.metric.label.to_string(),
    };
    let columns = ["held", "% of full", "peak", "entries", value.as_str()].map(Into::into).to_vec();
    let grid = Grid { columns, lines: points.iter().map(line).collect() };
    let about = "Ordered by the memory held, which caches of one size need not have in common. Held: bytes of keys and values while a token after \
                 the prompt is predicted, the mean over these tokens and over samples, in bytes of the cache's format (f32 counts as 16 bits a \
                 number); beside it the share of what the full cache holds meanwhile. Peak: the most at any moment; a prompt that is cut is \
                 held whole before. A size in percent of memory is of the full cache of the prompt.";
    Some(Table::new(format!("{}, by memory held", panel.metric.label), about, POLICY, grid))
}
