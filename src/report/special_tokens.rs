//! Special tokens inside texts that are shown: `<s>` as ⟨BOS⟩, `<|im_end|>` as ⟨im_end⟩, so that no reader takes them for text.
//!
//! Rows hold the names as the tokenizer has them, or as the model wrote them letter by letter, which looks the same.

use std::borrow::Cow;

/// The names of SentencePiece, Gemma and Mistral.
const NAMES: &str = "<s> </s> <bos> <eos> <pad> <unk> <start_of_turn> <end_of_turn> [INST] [/INST]";

/// A text with marks in place of the names of special tokens.
pub(super) fn marked(text: &str) -> Cow<'_, str> {
    let (mut marked, mut rest) = (String::new(), text);
    let mut from = 0;
    while let Some(at) = rest[from..].find(['<', '[']).map(|at| from + at) {
        match at_start(&rest[at..]) {
            Some((length, mark)) => {
                marked.push_str(&rest[..at]);
                marked.push_str(&mark);
                (rest, from) = (&rest[at + length..], 0);
            }
            None => from = at + 1,
        }
    }
    if marked.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(marked + rest) }
}

/// The length and the mark of the special token that a text begins with.
fn at_start(text: &str) -> Option<(usize, String)> {
    let length = NAMES.split(' ').find(|name| text.starts_with(name)).map(str::len).or_else(|| {
        // `<|name|>`, as GPT-2, Llama 3 and ChatML write them.
        let (name, _) = text.strip_prefix("<|")?.split_once("|>")?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then_some(name.len() + 4)
    })?;
    let mark = match text[..length].trim_matches(['<', '>', '[', ']', '|']) {
        "s" | "bos" | "begin_of_text" | "startoftext" => "BOS",
        "/s" | "eos" | "end_of_text" | "endoftext" => "EOS",
        name => name,
    };
    Some((length, format!("\u{27E8}{mark}\u{27E9}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_tokens_have_marks_and_other_text_stays() {
        for (text, expected) in [
            ("<s>", "⟨BOS⟩"),
            ("an answer</s>", "an answer⟨EOS⟩"),
            ("<|begin_of_text|>a<|end_of_text|>", "⟨BOS⟩a⟨EOS⟩"),
            ("yes<|im_end|>\n<|im_start|>user", "yes⟨im_end⟩\n⟨im_start⟩user"),
            ("[INST] a [/INST]", "⟨INST⟩ a ⟨/INST⟩"),
            ("<pad><unk>", "⟨pad⟩⟨unk⟩"),
        ] {
            assert_eq!(marked(text), expected);
        }
        for text in ["", "a < b | c > d", "<0x0A>", "<sub>2</sub>", "<| spaces |>", "[12]", "<script>"] {
            assert!(matches!(marked(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
