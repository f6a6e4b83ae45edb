//! The policies of a report that are the same but for their schedule.

use std::collections::BTreeMap;

use crate::eviction::{Schedule, presets};
use crate::ledger::Row;

/// Each variant of a policy: what it is called without its schedule, and that.
pub type Schedules = BTreeMap<String, (String, Schedule)>;

pub fn schedules(rows: &[Row]) -> Schedules {
    let cells = rows.chunk_by(|a, b| a.cell == b.cell).map(|of_cell| &of_cell[0]);
    let scheduled = |row: &Row| {
        let own = presets::own_schedule(&row.policy);
        // What a row says was a schedule when it was written.
        let schedule = row.schedule.as_deref().map_or(Some(own), |schedule| schedule.parse().ok())?;
        let base = Row { schedule: None, ..row.clone() }.variant().into_owned();
        Some((row.variant().into_owned(), (base, schedule)))
    };
    cells.filter(|row| !row.never_evicts()).filter_map(scheduled).collect()
}
