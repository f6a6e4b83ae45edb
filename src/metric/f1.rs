//! Answers against their references: the words they share, after SQuAD's normalisation.
//!
//! The evaluation script of SQuAD v1.1 (Rajpurkar et al., 2016), which QASPER and SCROLLS took over, step by step
//! and with Python's idea of lower case, word boundaries and white space. ZeroSCROLLS adds a step, see
//! [`Letters`].

use super::overlap::{f_measure, shared, words};

/// How letters beyond ASCII are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letters {
    /// Kept as written: SQuAD, QASPER and SCROLLS.
    AsWritten,
    /// Converted to ASCII after all other steps, as the Python package `Unidecode` does it: ZeroSCROLLS. Curly quotes
    /// survive the removal of ASCII punctuation, so they become straight ones.
    Ascii,
}

/// Best F1 over the references, 0 to 1, between the bags of words of the answer and of a reference. It is 0 without references, and
/// if the two share no word, also if both are empty.
pub fn best_f1<R: AsRef<str>>(prediction: &str, references: &[R], letters: Letters) -> f64 {
    let prediction = normalized(prediction, letters);
    let f1 = |reference: &R| {
        let reference = normalized(reference.as_ref(), letters);
        let shared = shared(words(&prediction), words(&reference));
        f_measure(shared, words(&prediction).count(), words(&reference).count())
    };
    references.iter().map(f1).fold(0.0, f64::max)
}

/// Whether an answer equals one of its references once both are normalised; two empty texts are equal.
pub fn best_exact_match<R: AsRef<str>>(prediction: &str, references: &[R], letters: Letters) -> bool {
    let prediction = normalized(prediction, letters);
    references.iter().any(|reference| normalized(reference.as_ref(), letters) == prediction)
}

/// Normalises a text as SQuAD's `normalize_answer`: lower case, no ASCII punctuation, no articles, single spaces.
fn normalized(text: &str, letters: Letters) -> String {
    let lower = text.to_lowercase();
    let bare: String = lower.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let spaced = without_articles(&bare);
    let squeezed = words(&spaced).collect::<Vec<_>>().join(" ");
    match letters {
        Letters::AsWritten => squeezed,
        Letters::Ascii => {
            // The crate drops control characters.
            let ascii = |c: char| if c.is_ascii() { c.to_string() } else { in_ascii(c).to_string() };
            squeezed.chars().map(ascii).collect()
        }
    }
}

/// Replaces each `\b(a|an|the)\b`, that is each run of word characters that is an article, by a space.
fn without_articles(text: &str) -> String {
    let text: Vec<char> = text.chars().collect();
    let runs = text.chunk_by(|a, b| is_word(*a) == is_word(*b));
    let kept = runs.map(|run| match run {
        ['a'] | ['a', 'n'] | ['t', 'h', 'e'] => &[' '],
        other => other,
    });
    kept.flatten().collect()
}

/// Whether Python's `\w` matches a character; the underscore was removed as punctuation. Rust counts some marks and circled letters
/// as alphabetic that Python does not; those that could adjoin an English article are excepted here.
fn is_word(c: char) -> bool {
    let excepted = matches!(c, '\u{345}' | '\u{363}'..='\u{36f}' | 'Ⓐ'..='ⓩ' | '\u{1f130}'..='\u{1f189}');
    c.is_alphanumeric() && !excepted
}

/// A character beyond ASCII in ASCII, as the Python package `Unidecode` 1.4 has it.
///
/// The crate `deunicode` has nearly the same tables. Where the two differ on characters of English texts, quotations and
/// formulas, this table has the package's answer: no character of two hundred PG-19 books and twenty QASPER papers
/// differs. Differences remain in phonetic letters, small capitals, mathematical Greek, rare ideographs and symbols, and in
/// scripts other than Latin, Greek, Cyrillic, kana, Han and Hangul.
fn in_ascii(c: char) -> &'static str {
    let crate_has = || deunicode::deunicode_char(c).unwrap_or_default();
    match c {
        '¼' => " 1/4",
        '½' => " 1/2",
        '¾' => " 3/4",
        'ŋ' => "ng",
        '™' => "(tm)",
        '№' => "No. ",
        '℃' => "degC",
        '℉' => "degF",
        'し' | 'シ' => "shi",
        'ち' | 'チ' => "chi",
        'つ' | 'っ' | 'ツ' | 'ッ' => "tsu",
        '・' => "*",
        'ー' => "-",
        '么' => "Yao ",
        '什' => "Shi ",
        '价' => "Jie ",
        '旅' => "Lu ",
        '术' => "Zhu ",
        // Mathematics; the first line is the same in both.
        '−' | '∕' | '∖' | '∗' | '∣' | '∶' | '∼' | '≤' | '≥' | '≦' | '≧' => crate_has(),
        '\u{2200}'..='\u{22ff}' | '\u{2304}'..='\u{2328}' | '\u{232b}'..='\u{23ff}' => "",
        // Emoji and older symbols.
        '♥' | '♡' => "hearts",
        '\u{2600}'..='\u{2653}' | '\u{2668}'..='\u{266e}' | '\u{2670}'..='\u{2730}' => "",
        '\u{2732}'..='\u{2757}' | '\u{2763}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' => "",
        '\u{1f1e6}'..='\u{1f66f}' | '\u{1f680}'..='\u{1faff}' | '\u{fffc}'..='\u{fffd}' => "",
        _ => crate_has(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_become_those_of_unidecode() {
        assert_eq!(normalized("\0x\x7f", Letters::Ascii), "\0x\x7f");
        for (text, expected) in [
            ("éèüñçøłæœßðþžı", "eeuncolaeoessdthzi"),
            ("‘’“”–—…•′″", "''\"\"---...*'''"),
            ("½ ≤ 10 µm ± 3 × 2 ÷ √ ∑ → ≈ °", " 1/2 <= 10 um +- 3 x 2 /   -  deg"),
            ("αβγδελμπστφω", "abgdelmpstpho"),
            ("привет", "privet"),
            ("原因・理由・条件・逆接", "Yuan Yin *Li You *Tiao Jian *Ni Jie "),
            ("すし でーた", "sushi de-ta"),
            ("€ £ ¥ © ® ™ § ¶ № ℃", "EUR PS Y= (c) (r) (tm) SS P No.  degC"),
            ("😀 ♥ ✓ ⭐ 🇬🇧", " hearts   "),
        ] {
            assert_eq!(text.chars().map(in_ascii).collect::<String>(), expected, "{text}");
        }
    }
}
