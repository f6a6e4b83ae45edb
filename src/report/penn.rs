//! Table 5 of the paper (arXiv 2401.06104): mean number of steps a token is kept by its Penn tag, and what these tags are
//! here.
//!
//! The paper's are TOVA's on LLaMA-2-7B, 31 samples of PG-19 of 4,096 tokens each, tagged with NLTK. Table 2 is its
//! first eight rows.

/// The samples' length and the cache sizes of the paper.
pub(super) const LENGTH: u32 = 4096;
pub(super) const SIZES: [u32; 4] = [256, 512, 1024, 2048];

/// A Penn tag, the class or tag its tokens have here, and the steps at each size.
pub(super) struct Penn {
    pub(super) tag: &'static str,
    pub(super) group: &'static str,
    pub(super) steps: [u16; 4],
}

const fn penn(tag: &'static str, group: &'static str, steps: [u16; 4]) -> Penn {
    Penn { tag, group, steps }
}

/// The paper's rows, in its order; of all tokens first.
pub(super) const TABLE: [Penn; 43] = [
    penn("Avg.", "", [249, 481, 897, 1537]),
    penn("POS", "class:possessive", [1134, 1393, 1736, 2061]),
    penn("”", "class:closing_quote", [845, 1101, 1413, 1774]),
    penn("$", "class:currency", [329, 724, 1276, 2123]),
    penn(")", "class:closing_bracket", [379, 670, 1161, 1558]),
    penn(".", "class:sentence_end", [350, 645, 1117, 1677]),
    penn("NNPS", "tag:PROPN", [321, 578, 1042, 1671]),
    penn("\\n", "class:newline", [303, 550, 969, 1538]),
    penn("WP$", "tag:PRON", [255, 539, 1121, 1920]),
    penn("CD", "tag:NUM", [301, 537, 940, 1557]),
    penn("NN", "tag:NOUN", [270, 527, 983, 1628]),
    penn("NNS", "tag:NOUN", [270, 526, 978, 1618]),
    penn("NNP", "tag:PROPN", [270, 517, 951, 1613]),
    // Foreign words have the tag X in the treebanks, which the tagger was not taught.
    penn("FW", "tag:X", [253, 511, 903, 1444]),
    penn(":", "class:colon", [243, 492, 940, 1570]),
    penn("JJ", "tag:ADJ", [240, 480, 918, 1598]),
    penn("VBP", "tag:VERB", [244, 478, 882, 1504]),
    penn("JJS", "tag:ADJ", [220, 475, 953, 1689]),
    penn("UH", "tag:INTJ", [233, 474, 870, 1412]),
    penn("SYM", "tag:SYM", [231, 471, 893, 1482]),
    penn("WDT", "tag:PRON", [223, 462, 903, 1604]),
    penn("VBN", "tag:VERB", [230, 462, 887, 1549]),
    penn("EX", "tag:PRON", [244, 461, 847, 1461]),
    penn("RB", "tag:ADV", [223, 459, 892, 1566]),
    penn(",", "class:comma", [236, 453, 840, 1454]),
    penn("VBG", "tag:VERB", [221, 445, 858, 1523]),
    penn("RBS", "tag:ADV", [210, 441, 878, 1645]),
    penn("VBZ", "tag:VERB", [219, 440, 844, 1492]),
    penn("CC", "tag:CCONJ", [217, 437, 862, 1546]),
    penn("VBD", "tag:VERB", [217, 432, 827, 1493]),
    penn("VB", "tag:VERB", [214, 426, 817, 1457]),
    penn("PRP", "tag:PRON", [217, 424, 794, 1432]),
    penn("RP", "tag:ADP", [207, 417, 811, 1485]),
    penn("WRB", "tag:ADV", [207, 415, 800, 1502]),
    penn("WP", "tag:PRON", [199, 405, 803, 1506]),
    penn("JJR", "tag:ADJ", [195, 403, 782, 1413]),
    penn("RBR", "tag:ADV", [183, 397, 821, 1566]),
    penn("PDT", "tag:DET", [181, 391, 756, 1362]),
    penn("IN", "tag:ADP", [190, 385, 760, 1408]),
    penn("PRP$", "tag:PRON", [189, 383, 745, 1386]),
    penn("DT", "tag:DET", [189, 379, 734, 1363]),
    penn("MD", "tag:AUX", [177, 378, 754, 1392]),
    penn("TO", "tag:PART", [182, 368, 734, 1363]),
];

/// The paper's rows of a class or tag, as `NN 270, NNS 270` at a size; empty where it has none.
pub(super) fn beside(group: &str, size: u32) -> String {
    let Some(column) = SIZES.iter().position(|known| *known == size) else { return String::new() };
    let rows = TABLE.iter().filter(|row| row.group == group);
    rows.map(|row| format!("{} {}", row.tag, row.steps[column])).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_the_counting_identity() {
        for (size, steps) in SIZES.into_iter().zip(TABLE[0].steps) {
            let sum: u64 = (1..=u64::from(LENGTH)).map(|t| t.min(u64::from(size) + 1)).sum();
            assert_eq!((sum as f64 / f64::from(LENGTH)).round(), f64::from(steps));
        }
    }

    #[test]
    fn rows_stand_beside_their_group() {
        assert_eq!(beside("tag:NOUN", 512), "NN 527, NNS 526");
        assert_eq!(beside("class:first", 512), "");
        assert_eq!(beside("tag:NOUN", 100), "");
    }
}
