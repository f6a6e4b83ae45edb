//! The policies of a report that are the same but for their schedule.

use std::collections::BTreeMap;

use super::{is_shared, label};
use crate::eviction::{Schedule, presets};
use crate::ledger::Row;

/// Each policy by its label: what it is called without its schedule, and that.
pub type Schedules = BTreeMap<String, (String, Schedule)>;

pub fn schedules(rows: &[Row]) -> Schedules {
    let cells = rows.chunk_by(|a, b| a.cell == b.cell).map(|of_cell| &of_cell[0]);
    let scheduled = |row: &Row| {
        let own = presets::own_schedule(&row.policy);
        // What a row says was a schedule when it was written.
        let schedule = row.schedule.as_deref().map_or(Some(own), |schedule| schedule.parse().ok())?;
        let base = label(&Row { schedule: None, ..row.clone() }).into_owned();
        Some((label(row).into_owned(), (base, schedule)))
    };
    cells.filter(|row| !is_shared(row)).filter_map(scheduled).collect()
}
