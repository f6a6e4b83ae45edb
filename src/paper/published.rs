//! What the paper adds to a report: its Table 1 beside decoding speeds, its Table 5 beside lifetimes, and its claims.

use super::numbers::{self, LENGTH, NUMBERS, RECENT_SHARE, Speed, TABLE_5_SIZES, TagSteps};
use super::{Evidence, TOVA, claim, peers};
use crate::metric::Slice;
use crate::report::{Block, Entry, Published, PublishedColumns, Results, Section, SeriesKey, Size};

/// The paper's numbers, and the tables of other publications that are asked for by name.
pub(super) struct Paper<'a> {
    pub(super) peers: &'a [String],
}

impl Published for Paper<'_> {
    fn decoding_columns(&self, key: &SeriesKey, lines: &[(&str, Option<Size>)]) -> Option<PublishedColumns> {
        let cells = |(policy, size): &(&str, Option<Size>)| {
            let Some(speed) = speed(key, policy, *size) else { return vec![None; 3] };
            let memory = format!("{:.2} GB", speed.memory);
            [memory, speed.batch.to_string(), speed.throughput.to_string()].map(|n| Some(Entry::plain(n))).into()
        };
        let is_known = lines.iter().any(|(policy, size)| speed(key, policy, *size).is_some());
        is_known.then(|| PublishedColumns {
            columns: vec!["paper: cache", "batch", "relative"],
            cells: lines.iter().map(cells).collect(),
            source: format!("paper: {} on a V100, arXiv 2401.06104, Table 1", numbers::MODEL),
        })
    }

    fn lifetime_columns(
        &self,
        key: &SeriesKey,
        size: Size,
        slices: &[Option<&Slice>],
    ) -> Option<PublishedColumns> {
        let column = table_5_column(key.length, size.entries()?)?;
        Some(PublishedColumns {
            columns: vec!["Penn tags in the paper"],
            cells: slices.iter().map(|slice| vec![Some(Entry::plain(penn_tags(*slice, column)))]).collect(),
            source: format!(
                "The last column has the paper's Table 5 at {size} (TOVA, LLaMA-2-7B) for the Penn tags whose tokens \
                 have this class or tag here; results/README.md says what is alike and what is not."
            ),
        })
    }

    fn on_lifetimes(&self) -> String {
        let (least, most) = RECENT_SHARE;
        format!(
            "For comparison, the paper (TOVA, {}) finds that {least:.0} to {most:.0} % of the kept tokens are recent, and that \
             the first token is kept to the end at every size.",
            numbers::MODEL
        )
    }

    fn blocks(&self, results: &Results<'_>) -> Vec<Block> {
        let claims = claim::measured(&Evidence::of(results)).map(Block::folded);
        let claims = Section::of("Compared with the paper", claims.into_iter().collect());
        claims.into_iter().chain(peers::blocks(self.peers, results)).collect()
    }
}

/// The paper's numbers, where they are of this length and size: of TOVA and of the full cache.
pub(super) fn speed(key: &SeriesKey, policy: &str, size: Option<Size>) -> Option<&'static Speed> {
    let size = match (policy, size) {
        ("full", None) => LENGTH,
        (TOVA, Some(Size::Entries(size))) if size < LENGTH => size,
        _ => return None,
    };
    NUMBERS.table_1.iter().find(|known| known.size == size && key.length == LENGTH)
}

/// The column of Table 5 for samples of this length at this size.
pub(super) fn table_5_column(length: u32, size: u32) -> Option<usize> {
    TABLE_5_SIZES.iter().position(|known| *known == size && length == LENGTH)
}

/// A column's lines of a class or tag, as `NN 270, NNS 270`; empty where there are none.
fn penn_tags(slice: Option<&Slice>, column: usize) -> String {
    let lines = NUMBERS.table_5.iter().filter(|TagSteps(_, known, _)| known.as_ref() == slice);
    lines.map(|TagSteps(tag, _, steps)| format!("{tag} {}", steps[column])).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penn_tags_are_listed_with_their_class() {
        assert_eq!(table_5_column(LENGTH, 512), Some(1));
        assert_eq!((table_5_column(LENGTH, 100), table_5_column(2048, 512)), (None, None));
        assert_eq!(
            (
                penn_tags(Some(&Slice::named("tag", "NOUN")), 1),
                penn_tags(Some(&Slice::named("class", "first")), 1)
            ),
            ("NN 527, NNS 526".into(), "".into())
        );
    }
}
