//! Answers against their references: the words they share, after SQuAD's normalisation.
//!
//! The evaluation script of SQuAD v1.1 (Rajpurkar et al., 2016), which QASPER and SCROLLS took over, step by step
//! and with Python's idea of lower case, word boundaries and white space. ZeroSCROLLS adds a step, see
//! [`Letters`].

use super::overlap::{f_measure, shared};
use super::words;

/// How letters beyond ASCII are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letters {
    /// Kept: SQuAD, QASPER and SCROLLS.
    AsWritten,
    /// Converted to ASCII after all other steps, as the Python package `Unidecode` does it: ZeroSCROLLS. Curly quotes
    /// survive the removal of ASCII punctuation, so they become straight ones.
    Ascii,
}

/// F1 of the bags of words of an answer and a reference, 0 to 1; 0 if they share none, also if both are empty.
pub fn f1(prediction: &str, reference: &str, letters: Letters) -> f64 {
    let (prediction, reference) = (normalized(prediction, letters), normalized(reference, letters));
    let shared = shared(words(&prediction), words(&reference));
    f_measure(shared, words(&prediction).count(), words(&reference).count())
}

/// The best [`f1`] over the references, 0 without any.
pub fn best_f1<R: AsRef<str>>(prediction: &str, references: &[R], letters: Letters) -> f64 {
    references.iter().map(|reference| f1(prediction, reference.as_ref(), letters)).fold(0.0, f64::max)
}

/// Whether an answer equals a reference, once both are normalised; two empty texts are equal.
pub fn exact_match(prediction: &str, reference: &str, letters: Letters) -> bool {
    normalized(prediction, letters) == normalized(reference, letters)
}

/// Whether an answer equals one of its references.
pub fn best_exact_match<R: AsRef<str>>(prediction: &str, references: &[R], letters: Letters) -> bool {
    references.iter().any(|reference| exact_match(prediction, reference.as_ref(), letters))
}

/// SQuAD's `normalize_answer`: lower case, no ASCII punctuation, no articles, single spaces.
fn normalized(text: &str, letters: Letters) -> String {
    let lower = text.to_lowercase();
    let bare: String = lower.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let spaced = without_articles(&bare);
    let squeezed = words(&spaced).collect::<Vec<_>>().join(" ");
    match letters {
        Letters::AsWritten => squeezed,
        Letters::Ascii => in_ascii(&squeezed),
    }
}

/// A space for each `\b(a|an|the)\b`, that is for each run of word characters that is an article.
fn without_articles(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let inside = is_word(first);
        let end = rest.find(|c| is_word(c) != inside).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        kept.push_str(if matches!(run, "a" | "an" | "the") { " " } else { run });
        rest = after;
    }
    kept
}

/// Python's `\w` without the underscore, which was removed as punctuation. Rust counts some marks and circled letters as
/// alphabetic that Python does not; those that could adjoin an English article are excepted here.
fn is_word(c: char) -> bool {
    let excepted = matches!(c, '\u{345}' | '\u{363}'..='\u{36f}' | 'Ⓐ'..='ⓩ' | '\u{1f130}'..='\u{1f189}');
    c.is_alphanumeric() && !excepted
}

/// Lower-cased text in ASCII, as the Python package `Unidecode` 1.4 has it.
///
/// The crate `deunicode` has nearly the same tables. Where the two differ on characters of English texts, quotations and
/// formulas, [`spelt`] has the package's answer: no character of two hundred PG-19 books and twenty QASPER papers
/// differs. Differences remain in phonetic letters, small capitals, mathematical Greek, rare ideographs and symbols, and in
/// scripts other than Latin, Greek, Cyrillic, kana, Han and Hangul.
fn in_ascii(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            ascii.push_str(spelt(c));
        }
    }
    ascii
}

fn spelt(c: char) -> &'static str {
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
        '−' | '∕' | '∖' | '∗' | '∣' | '∶' | '∼' | '≤' | '≥' | '≦' | '≧' => crate_has(c),
        '\u{2200}'..='\u{22ff}' | '\u{2304}'..='\u{2328}' | '\u{232b}'..='\u{23ff}' => "",
        // Emoji and older symbols.
        '♥' | '♡' => "hearts",
        '\u{2600}'..='\u{2653}' | '\u{2668}'..='\u{266e}' | '\u{2670}'..='\u{2730}' => "",
        '\u{2732}'..='\u{2757}' | '\u{2763}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' => "",
        '\u{1f1e6}'..='\u{1f66f}' | '\u{1f680}'..='\u{1faff}' | '\u{fffc}'..='\u{fffd}' => "",
        c => crate_has(c),
    }
}

fn crate_has(c: char) -> &'static str {
    deunicode::deunicode_char(c).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalized_by_hand() {
        for (text, expected) in [
            ("  The   Cat's (a) mat, an apple-tree! ", "cats mat appletree"),
            ("a an the A AN THE", ""),
            // Deleted punctuation makes words, so articles may appear or vanish with it.
            ("t-h-e a.n theatre", "theatre"),
            ("one\u{1c}two\u{a0}three\u{2003}four", "one two three four"),
            // Accents that belong to the letter, and one that follows it.
            ("á à the", "á à"),
            ("a\u{301} a\u{363}", "\u{301} \u{363}"),
            ("“the” ‘a’", "“ ” ‘ ’"),
            ("the_cat a_", "thecat"),
        ] {
            assert_eq!(normalized(text, Letters::AsWritten), expected, "{text}");
        }
    }

    #[test]
    fn ascii_comes_last() {
        // At that point apostrophes and articles are no longer removed.
        assert_eq!(normalized("Noork’s “á” Café", Letters::Ascii), "noork's \"a\" cafe");
        assert_eq!(normalized("北京 …", Letters::Ascii), "Bei Jing  ...");
        // As Unidecode 1.4 has them.
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
            assert_eq!(in_ascii(text), expected, "{text}");
        }
    }

    #[test]
    fn shared_words_by_hand() {
        // 2 of 3 and 2 of 4: only as many as both have.
        let found = f1("red red blue", "Red, the blue green sky", Letters::AsWritten);
        assert!((found - 2.0 * (2.0 / 3.0) * 0.5 / (2.0 / 3.0 + 0.5)).abs() < 1e-15);
        assert_eq!(f1("", "", Letters::AsWritten), 0.0);
        assert!(exact_match("", "The!", Letters::AsWritten));
        assert!(!best_exact_match::<&str>("", &[], Letters::AsWritten));
        assert_eq!(best_f1("café", &["tea", "cafe"], Letters::AsWritten), 0.0);
        assert_eq!(best_f1("café", &["tea", "cafe"], Letters::Ascii), 1.0);
    }
}
