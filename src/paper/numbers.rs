//! The numbers that "Transformers are Multi-State RNNs" (arXiv 2401.06104v2) prints, each with its place there.
//!
//! This is the only file that has them: tests, tables and claims take them from here. What exists as a plot only (Figures
//! 4, 5, 7, 9, 10 and 11, and two panels of Figure 3) has no number here. Policies have this program's names.

/// The model of Tables 1, 2, 3 and 5 and Figures 7 to 9, 12 and 13.
pub(super) const MODEL: &str = "LLaMA-2-7B";
/// Tokens of a sample, which is all the full cache holds (section 5).
pub(super) const LENGTH: u32 = 4096;

/// A multi-state size of Table 1: LLaMA-2-7B in bfloat16, decoding sequences of 4,096 tokens on a V100.
pub(super) struct Speed {
    /// The largest is the full cache.
    pub(super) size: u32,
    /// Of one sequence, in GB.
    pub(super) memory: f64,
    pub(super) batch: u32,
    /// Tokens per second in that batch, the full cache's being 1.
    pub(super) throughput: f64,
}

const fn speed(size: u32, memory: f64, batch: u32, throughput: f64) -> Speed {
    Speed { size, memory, batch, throughput }
}

/// Table 1.
pub(super) const TABLE_1: [Speed; 5] = [
    speed(256, 0.15, 139, 8.5),
    speed(512, 0.28, 70, 4.8),
    speed(1024, 0.56, 35, 3.1),
    speed(2048, 1.11, 17, 1.7),
    speed(4096, 2.18, 8, 1.0),
];

/// The sizes of Table 3, and of Figure 3.
pub(super) const TABLE_3_SIZES: [u32; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

/// The perplexity of the full cache, the topline of Figure 3.
pub(super) const TABLE_3_FULL: f64 = 7.16;

/// Table 3: perplexity of LLaMA-2-7B on PG-19's test set. The row of H2O by layer equals that of Window+1
/// there, in all seven cells.
pub(super) const TABLE_3: [(&str, [f64; 7]); 10] = [
    ("truncate", [17.65, 12.97, 10.39, 8.92, 8.04, 7.50, 7.16]),
    ("window", [4812.27, 4025.01, 3275.58, 2184.62, 1001.29, 240.17, 7.16]),
    ("window+1", [10.20, 8.97, 8.22, 7.76, 7.50, 7.33, 7.16]),
    ("window+4", [10.28, 8.98, 8.19, 7.73, 7.46, 7.30, 7.16]),
    ("h2o", [10.22, 8.97, 8.21, 7.75, 7.49, 7.32, 7.16]),
    ("h2o-layer", [10.20, 8.97, 8.22, 7.76, 7.50, 7.33, 7.16]),
    ("tova-head", [11.13, 9.55, 8.69, 7.90, 7.52, 7.27, 7.16]),
    ("tova", [9.53, 8.32, 7.71, 7.41, 7.25, 7.17, 7.16]),
    ("tova+1", [9.53, 8.31, 7.71, 7.41, 7.25, 7.17, 7.16]),
    ("tova+4", [9.63, 8.33, 7.72, 7.41, 7.25, 7.17, 7.16]),
];

/// Figure 6: how often the judge, gpt-4-0613, preferred TOVA's story, neither, and the full cache's; in percent, by size.
/// The last sums to 99 there.
pub(super) const FIGURE_6: [(u32, [f64; 3]); 3] =
    [(256, [6.0, 47.0, 47.0]), (512, [10.0, 71.0, 19.0]), (1024, [5.0, 88.0, 6.0])];
/// The model that wrote its stories.
pub(super) const STORY_MODEL: &str = "MythoLogic-13B";

/// The text on Figure 6: mean tokens of a story, by size; without one of the full cache.
pub(super) const STORY_LENGTH: [(Option<u32>, f64); 4] =
    [(None, 1566.0), (Some(256), 1361.0), (Some(512), 1503.0), (Some(1024), 1566.0)];

/// The sizes of Table 5, and the lines of Figure 9.
pub(super) const TABLE_5_SIZES: [u32; 4] = [256, 512, 1024, 2048];

/// Tags of Table 2, which is the beginning of Table 5.
pub(super) const TABLE_2_LENGTH: usize = 8;

/// Table 5: mean steps that TOVA keeps a token, by Penn tag (NLTK's), of 31 samples of PG-19; the first
/// row is of all tokens.
pub(super) const TABLE_5: [(&str, [u16; 4]); 43] = [
    ("Avg.", [249, 481, 897, 1537]),
    ("POS", [1134, 1393, 1736, 2061]),
    ("”", [845, 1101, 1413, 1774]),
    ("$", [329, 724, 1276, 2123]),
    (")", [379, 670, 1161, 1558]),
    (".", [350, 645, 1117, 1677]),
    ("NNPS", [321, 578, 1042, 1671]),
    ("\\n", [303, 550, 969, 1538]),
    ("WP$", [255, 539, 1121, 1920]),
    ("CD", [301, 537, 940, 1557]),
    ("NN", [270, 527, 983, 1628]),
    ("NNS", [270, 526, 978, 1618]),
    ("NNP", [270, 517, 951, 1613]),
    ("FW", [253, 511, 903, 1444]),
    (":", [243, 492, 940, 1570]),
    ("JJ", [240, 480, 918, 1598]),
    ("VBP", [244, 478, 882, 1504]),
    ("JJS", [220, 475, 953, 1689]),
    ("UH", [233, 474, 870, 1412]),
    ("SYM", [231, 471, 893, 1482]),
    ("WDT", [223, 462, 903, 1604]),
    ("VBN", [230, 462, 887, 1549]),
    ("EX", [244, 461, 847, 1461]),
    ("RB", [223, 459, 892, 1566]),
    (",", [236, 453, 840, 1454]),
    ("VBG", [221, 445, 858, 1523]),
    ("RBS", [210, 441, 878, 1645]),
    ("VBZ", [219, 440, 844, 1492]),
    ("CC", [217, 437, 862, 1546]),
    ("VBD", [217, 432, 827, 1493]),
    ("VB", [214, 426, 817, 1457]),
    ("PRP", [217, 424, 794, 1432]),
    ("RP", [207, 417, 811, 1485]),
    ("WRB", [207, 415, 800, 1502]),
    ("WP", [199, 405, 803, 1506]),
    ("JJR", [195, 403, 782, 1413]),
    ("RBR", [183, 397, 821, 1566]),
    ("PDT", [181, 391, 756, 1362]),
    ("IN", [190, 385, 760, 1408]),
    ("PRP$", [189, 383, 745, 1386]),
    ("DT", [189, 379, 734, 1363]),
    ("MD", [177, 378, 754, 1392]),
    ("TO", [182, 368, 734, 1363]),
];

/// The text on Figure 8: of the tokens kept, the share of recent ones, in percent: least and most.
pub(super) const RECENT_SHARE: (f64, f64) = (73.0, 76.0);

/// The text on Figure 3: TOVA's perplexity with an eighth of the context is so near to the topline's, for all three models.
pub(super) const PERPLEXITY_GAP: f64 = 0.4;

/// The text on Figure 4: TOVA's ROUGE on SQuALITY with an eighth (LLaMA-2) or a quarter (the others) is so near.
pub(super) const ROUGE_GAP: f64 = 1.0;

/// The text on Figure 5: TOVA's F1 on QASPER with half of the context is so near.
pub(super) const F1_GAP: f64 = 1.0;

/// Section 7.2 and Figure 7: TOVA's running perplexity rises by less than this from short texts to 70,000 tokens.
pub(super) const EXTRAPOLATION_RISE: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_the_counting_identity() {
        for (size, steps) in TABLE_5_SIZES.into_iter().zip(TABLE_5[0].1) {
            assert_eq!(super::super::measure::identity(LENGTH, size).round(), f64::from(steps));
        }
    }

    #[test]
    fn the_paper_s_other_facts_agree() {
        // "Almost 9x" batch and 88 % less memory at an eighth; every rule of the whole size is the full cache.
        let [_, eighth, .., full] = &TABLE_1;
        assert_eq!(f64::from(eighth.batch) / f64::from(full.batch), 8.75);
        assert!((0.87..0.88).contains(&(1.0 - eighth.memory / full.memory)));
        assert!(TABLE_3.iter().all(|(_, row)| row[6] == TABLE_3_FULL));
        assert!(FIGURE_6.iter().all(|(_, shares)| (99.0..=100.0).contains(&shares.iter().sum::<f64>())));
    }
}
