//! The numbers that "Transformers are Multi-State RNNs" (arXiv 2401.06104v2) prints.
//!
//! They are in `numbers.json`; tests hold the claims against those that are not shown. What exists as a plot only (Figures 4, 5, 7, 9, 10 and 11, and two panels of Figure 3)
//! has no number here. Policies, metrics and slices have this program's names.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::metric::Slice;
use crate::report::Size;

/// The model of Tables 1, 2, 3 and 5 and Figures 7 to 9, 12 and 13.
pub(super) const MODEL: &str = "LLaMA-2-7B";
/// Tokens of a sample, which is all the full cache holds (section 5).
pub(super) const LENGTH: u32 = 4096;
/// Lines of Table 5 that Table 2 has, with the one of all tokens.
pub(super) const TABLE_2_LENGTH: usize = 8;
/// The sizes of Table 5, and the lines of Figure 9.
pub(super) const TABLE_5_SIZES: [u32; 4] = [256, 512, 1024, 2048];

#[derive(Deserialize)]
pub(super) struct Numbers {
    /// LLaMA-2-7B in bfloat16, decoding sequences of 4,096 tokens on a V100; the largest size is the full cache.
    #[cfg(test)]
    pub(super) table_1: Vec<Speed>,
    /// Perplexity of LLaMA-2-7B on PG-19's test set by policy; the full cache is the topline of Figure 3. H2O by layer equals
    /// Window+1 there, in all seven cells.
    pub(super) table_3: BySize,
    /// Mean steps that TOVA keeps a token, of 31 samples of PG-19; the first line is of all tokens.
    pub(super) table_5: Vec<TagSteps>,
    /// Shares in percent in which the judge, gpt-4-0613, preferred TOVA's story, neither, and the full cache's. The last size sums
    /// to 99 there.
    #[cfg(test)]
    pub(super) figure_6: BySize,
    /// The text on Figure 6: mean tokens of a story.
    #[cfg(test)]
    pub(super) story_length: BySize,
}

/// A multi-state size of Table 1.
#[cfg(test)]
#[derive(Deserialize)]
pub(super) struct Speed {
    pub(super) size: u32,
    /// The memory of one sequence, in GB.
    pub(super) memory: f64,
    pub(super) batch: u32,
    /// Tokens per second in that batch, the full cache's being 1.
    pub(super) throughput: f64,
}

/// Lines of numbers by cache size, and the full cache's number.
#[derive(Deserialize)]
pub(super) struct BySize {
    pub(super) sizes: Vec<u32>,
    pub(super) full: Option<f64>,
    pub(super) rows: Vec<(String, Vec<f64>)>,
}

/// A Penn tag (NLTK's), the slice here that corresponds to it (`None`: all tokens), and steps by [`TABLE_5_SIZES`].
/// results/README.md says where the two taggings differ. Foreign words (FW) have the tag X in the treebanks, which the
/// tagger was not trained on.
#[derive(Deserialize)]
pub(super) struct TagSteps(pub(super) String, pub(super) Option<Slice>, pub(super) [f64; 4]);

pub(super) static NUMBERS: LazyLock<Numbers> =
    LazyLock::new(|| serde_json::from_str(include_str!("numbers.json")).expect("the file is part of the program"));

impl BySize {
    /// The number of a policy at a size.
    pub(super) fn value(&self, policy: &str, size: Size) -> Option<f64> {
        let (_, values) = self.rows.iter().find(|(name, _)| name == policy)?;
        values.get(self.sizes.iter().position(|known| Some(*known) == size.entries())?).copied()
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
        let sums = (0..3).map(|size| figure_6.rows.iter().map(|(_, shares)| shares[size]).sum::<f64>());
        assert_eq!(sums.collect::<Vec<_>>(), [100.0, 100.0, 99.0]);
        assert_eq!(
            table_5.iter().filter(|TagSteps(_, slice, _)| *slice == Some("tag:X".into())).count(),
            1,
            "FW alone"
        );
    }
}
