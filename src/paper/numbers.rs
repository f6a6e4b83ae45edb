//! The numbers that "Transformers are Multi-State RNNs" (arXiv 2401.06104v2) prints, and the same numbers as results, so
//! that whatever measures rows measures the paper too.
//!
//! The tables are in `numbers.json`. What exists as a plot only (Figures 4, 5, 7, 9, 10 and 11, and two panels of Figure 3)
//! has no number here. Policies, metrics and slices have this program's names.

use std::sync::LazyLock;

use serde::Deserialize;

use super::TOVA;
use crate::ledger::{Row, Text};
use crate::metric::Slice;
use crate::report::{Panel, Results};

/// The model of Tables 1, 2, 3 and 5 and Figures 7 to 9, 12 and 13.
pub(super) const MODEL: &str = "LLaMA-2-7B";
/// The model that wrote Figure 6's stories.
pub(super) const STORY_MODEL: &str = "MythoLogic-13B";
/// Tokens of a sample, which is all the full cache holds (section 5).
pub(super) const LENGTH: u32 = 4096;
/// Lines of Table 5 that Table 2 has, with the one of all tokens.
pub(super) const TABLE_2_LENGTH: usize = 8;
/// The sizes of Table 5, and the lines of Figure 9.
pub(super) const TABLE_5_SIZES: [u32; 4] = [256, 512, 1024, 2048];

#[derive(Deserialize)]
pub(super) struct Numbers {
    /// LLaMA-2-7B in bfloat16, decoding sequences of 4,096 tokens on a V100; the largest size is the full cache.
    pub(super) table_1: Vec<Speed>,
    /// Perplexity of LLaMA-2-7B on PG-19's test set by policy; the full cache is the topline of Figure 3. H2O by layer equals
    /// Window+1 there, in all seven cells.
    pub(super) table_3: BySize,
    /// Mean steps that TOVA keeps a token, of 31 samples of PG-19; the first line is of all tokens.
    pub(super) table_5: Vec<TagSteps>,
    /// How often the judge, gpt-4-0613, preferred TOVA's story, neither, and the full cache's; in percent. The last size sums
    /// to 99 there.
    figure_6: BySize,
    /// The text on Figure 6: mean tokens of a story.
    story_length: BySize,
}

/// A multi-state size of Table 1.
#[derive(Deserialize)]
pub(super) struct Speed {
    pub(super) size: u32,
    /// Of one sequence, in GB.
    pub(super) memory: f64,
    pub(super) batch: u32,
    /// Tokens per second in that batch, the full cache's being 1.
    pub(super) throughput: f64,
}

/// Lines of numbers by cache size, and the full cache's number.
#[derive(Deserialize)]
pub(super) struct BySize {
    sizes: Vec<u32>,
    full: Option<f64>,
    pub(super) rows: Vec<(String, Vec<f64>)>,
}

/// A Penn tag (NLTK's), the slice here that corresponds to it (`None`: all tokens), and steps by [`TABLE_5_SIZES`].
/// results/README.md says where the two taggings differ. Foreign words (FW) have the tag X in the treebanks, which the
/// tagger was not trained on.
#[derive(Deserialize)]
pub(super) struct TagSteps(pub(super) String, pub(super) Option<Slice>, pub(super) [f64; 4]);

pub(super) static NUMBERS: LazyLock<Numbers> =
    LazyLock::new(|| serde_json::from_str(include_str!("numbers.json")).expect("the file is part of the program"));

/// The numbers as rows of one sample each.
pub(crate) static ROWS: LazyLock<Vec<Row>> = LazyLock::new(rows);

/// The same rows of six clusters. Printed numbers are exact: so intervals have no width, and all differences count.
pub(super) static EXACT_ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let copies = (1..=6).map(|copy| Text::from(format!("paper-{copy}")));
    let rows = |name: Text| {
        let of_copy = move |row: &Row| Row { sample: name.clone(), cluster: name.clone(), ..row.clone() };
        ROWS.iter().map(of_copy)
    };
    copies.flat_map(rows).collect()
});

/// The results of these rows.
pub(super) static RESULTS: LazyLock<Results<'static>> = LazyLock::new(|| {
    let mut results = Results::of(&EXACT_ROWS).expect("the file is part of the program");
    for point in results.panels.iter_mut().flat_map(|panel| &mut panel.points) {
        // A perplexity that was pooled differs from the printed one in its last bit.
        point.estimate.value = (100.0 * point.estimate.value).round() / 100.0;
    }
    results
});

/// The paper's panel of what a panel measures; `None` where it prints none, or of samples of another length.
pub(super) fn panel_like(panel: &Panel) -> Option<&'static Panel> {
    let key = |panel: &Panel| (panel.key.task.clone(), panel.key.length);
    RESULTS.panels.iter().find(|paper| paper.metric == panel.metric && key(paper) == key(panel))
}

/// A number as the row of a sample.
pub(super) fn row(task: &str, metric: &str, policy: &str, size: Option<u32>, value: f64, weight: f64) -> Row {
    Row {
        task: task.into(),
        metric: metric.into(),
        policy: policy.into(),
        cache_size: size,
        length: LENGTH,
        positions: "absolute".into(),
        sample: "paper".into(),
        cluster: "paper".into(),
        value,
        weight,
        ..Row::default()
    }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let Numbers { table_1, table_3, table_5, figure_6, story_length } = &*NUMBERS;
    for speed in table_1 {
        let (policy, size) = if speed.size == LENGTH { ("full", None) } else { (TOVA, Some(speed.size)) };
        rows.push(row("timing", "decode_batch", policy, size, 1.0, speed.throughput));
        rows.push(row("timing", "cache_bytes", policy, size, 1e9 * speed.memory, 1.0));
    }
    // Perplexity is pooled from nats.
    table_3.each(|policy, size, value| rows.push(row("perplexity", "nll", policy, size, value.ln(), 1.0)));
    for (size, steps) in TABLE_5_SIZES.into_iter().zip(table_5[0].2) {
        rows.push(row("retention", "lifetime", TOVA, Some(size), steps, 1.0));
    }
    figure_6.each(|metric, size, share| rows.push(row("judge", metric, TOVA, size, share, 100.0)));
    story_length.each(|policy, size, tokens| rows.push(row("story", "new_tokens", policy, size, tokens, 1.0)));
    rows
}

impl BySize {
    /// Calls a function with the name of the line, the size and the value of each number.
    fn each(&self, mut f: impl FnMut(&str, Option<u32>, f64)) {
        if let Some(full) = self.full {
            f("full", None, full);
        }
        for (name, values) in &self.rows {
            self.sizes.iter().zip(values).for_each(|(size, value)| f(name, Some(*size), *value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_the_counting_identity() {
        for (size, steps) in TABLE_5_SIZES.into_iter().zip(NUMBERS.table_5[0].2) {
            // The mean of min(t, k + 1) over all steps t.
            let sum: u32 = (1..=LENGTH).map(|t| t.min(size + 1)).sum();
            assert_eq!((f64::from(sum) / f64::from(LENGTH)).round(), steps);
        }
    }

    #[test]
    fn the_paper_s_other_facts_agree() {
        // "Almost 9x" batch and 88 % less memory at an eighth; every rule of the whole size is the full cache.
        let [_, eighth, .., full] = &NUMBERS.table_1[..] else { panic!("two sizes expected") };
        assert_eq!(f64::from(eighth.batch) / f64::from(full.batch), 8.75);
        assert!((0.87..0.88).contains(&(1.0 - eighth.memory / full.memory)));
        let Numbers { table_3, table_5, figure_6, .. } = &*NUMBERS;
        assert!(table_3.rows.iter().all(|(_, values)| values.len() == 7 && Some(values[6]) == table_3.full));
        // The results have the printed numbers, bit for bit.
        let panel = RESULTS.panels.iter().find(|panel| panel.metric.id == "nll").unwrap();
        for (policy, values) in &table_3.rows {
            let found = table_3.sizes.iter().map(|size| panel.point(policy, Some(*size)).unwrap().estimate.value);
            assert_eq!(found.collect::<Vec<_>>(), *values, "{policy}");
        }
        let sums = (0..3).map(|size| figure_6.rows.iter().map(|(_, shares)| shares[size]).sum::<f64>());
        assert_eq!(sums.collect::<Vec<_>>(), [100.0, 100.0, 99.0]);
        assert_eq!(
            table_5.iter().filter(|TagSteps(_, slice, _)| *slice == Some("tag:X".into())).count(),
            1,
            "FW alone"
        );
    }
}
