//! Which classes and Universal Dependencies tags correspond to the Penn tags of the paper's Table 5.
//!
//! The paper tagged with NLTK; results/README.md says where the two taggings differ.

use super::numbers;

/// The class or tag here that corresponds to a Penn tag; empty for all tokens.
pub(super) fn slice(tag: &str) -> &'static str {
    match tag {
        "Avg." => "",
        "POS" => "class:possessive",
        "”" => "class:closing_quote",
        "$" => "class:currency",
        ")" => "class:closing_bracket",
        "." => "class:sentence_end",
        "NNPS" | "NNP" => "tag:PROPN",
        "\\n" => "class:newline",
        "WP$" | "WDT" | "EX" | "PRP" | "WP" | "PRP$" => "tag:PRON",
        "CD" => "tag:NUM",
        "NN" | "NNS" => "tag:NOUN",
        ":" => "class:colon",
        "JJ" | "JJS" | "JJR" => "tag:ADJ",
        "VBP" | "VBN" | "VBG" | "VBZ" | "VBD" | "VB" => "tag:VERB",
        "UH" => "tag:INTJ",
        "SYM" => "tag:SYM",
        "RB" | "RBS" | "WRB" | "RBR" => "tag:ADV",
        "," => "class:comma",
        "CC" => "tag:CCONJ",
        "RP" | "IN" => "tag:ADP",
        "PDT" | "DT" => "tag:DET",
        "MD" => "tag:AUX",
        "TO" => "tag:PART",
        // Foreign words (FW) have the tag X in the treebanks, which the tagger was not trained on.
        _ => "tag:X",
    }
}

/// Whether the paper has a column for samples of this length at this size.
pub(super) fn is_compared(length: u32, size: u32) -> bool {
    length == numbers::LENGTH && numbers::TABLE_5_SIZES.contains(&size)
}

/// The paper's rows of a class or tag, as `NN 270, NNS 270` at a size; empty where it has none.
pub(super) fn beside(slice: &str, size: u32) -> String {
    let Some(column) = numbers::TABLE_5_SIZES.iter().position(|known| *known == size) else {
        return String::new();
    };
    let rows = numbers::TABLE_5.iter().filter(|(tag, _)| self::slice(tag) == slice);
    rows.map(|(tag, steps)| format!("{tag} {}", steps[column])).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penn_tags_are_listed_with_their_class() {
        assert_eq!(beside("tag:NOUN", 512), "NN 527, NNS 526");
        assert_eq!(beside("class:first", 512), "");
        assert_eq!(beside("tag:NOUN", 100), "");
        assert_eq!(numbers::TABLE_5.iter().filter(|(tag, _)| slice(tag) == "tag:X").count(), 1, "FW alone");
    }
}
