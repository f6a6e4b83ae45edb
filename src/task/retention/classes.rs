//! Classes of tokens by their characters: the start of a word, a quote, a digit, the end of a line.
//!
//! Every character has one class, which depends on it and its neighbours. No dictionary and no tokenizer is needed, so a
//! class means the same for every model.

use serde::Serialize;

/// The class of a token, in the order of tables. The names of variants are part of ids of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Class {
    First,
    Special,
    Newline,
    Space,
    Possessive,
    OpeningQuote,
    ClosingQuote,
    OpeningBracket,
    ClosingBracket,
    Currency,
    Digits,
    SentenceEnd,
    Comma,
    Colon,
    Dash,
    OtherPunctuation,
    WordStart,
    WordRest,
}

/// The names in result rows, in the order of the classes.
#[rustfmt::skip]
const NAMES: [&str; 18] = [
    "first", "special", "newline", "space", "possessive", "opening_quote", "closing_quote", "opening_bracket",
    "closing_bracket", "currency", "digits", "sentence_end", "comma", "colon", "dash", "other_punctuation", "word_start",
    "word_rest",
];

impl Class {
    /// The name in result rows, after `class:`.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    pub fn is_blank(self) -> bool {
        matches!(self, Class::Newline | Class::Space)
    }
}

/// Words whose `'s` is a verb or a pronoun.
#[rustfmt::skip]
const CONTRACTED: [&str; 15] = [
    "it", "he", "she", "that", "there", "here", "what", "who", "where", "when", "why", "how", "let", "this", "everything",
];

/// The class of every byte of a text: that of the character it belongs to.
pub(super) fn of_bytes(text: &str) -> Vec<Class> {
    let mut reader = Reader { text: text.chars().collect(), classes: Vec::new(), in_single_quotes: false };
    let mut bytes = Vec::with_capacity(text.len());
    for at in 0..reader.text.len() {
        let class = reader.class(at);
        reader.classes.push(class);
        bytes.extend(std::iter::repeat_n(class, reader.text[at].len_utf8()));
    }
    bytes
}

struct Reader {
    text: Vec<char>,
    /// Classes of the characters read so far.
    classes: Vec<Class>,
    /// Whether a single quote was opened and not closed in this paragraph; an apostrophe after s then closes it.
    in_single_quotes: bool,
}

impl Reader {
    fn char(&self, at: usize) -> Option<char> {
        self.text.get(at).copied()
    }

    fn before(&self, at: usize) -> Option<char> {
        self.char(at.checked_sub(1)?)
    }

    fn class(&mut self, at: usize) -> Class {
        let c = self.text[at];
        let (before, after) = (self.before(at), self.char(at + 1));
        match c {
            '\n' | '\r' => {
                // A paragraph's end.
                self.in_single_quotes &= before != Some('\n');
                Class::Newline
            }
            c if c.is_whitespace() => Class::Space,
            '\'' | '\u{2019}' => self.apostrophe(at, c),
            '"' if self.opens(before, after) => Class::OpeningQuote,
            '"' | '\u{201D}' | '\u{BB}' | '\u{203A}' => Class::ClosingQuote,
            '\u{2018}' => {
                self.in_single_quotes = true;
                Class::OpeningQuote
            }
            '`' | '\u{201C}' | '\u{201E}' | '\u{201F}' | '\u{201A}' | '\u{AB}' | '\u{2039}' => Class::OpeningQuote,
            '(' | '[' | '{' => Class::OpeningBracket,
            ')' | ']' | '}' => Class::ClosingBracket,
            '$' | '\u{A2}'..='\u{A5}' | '\u{20A0}'..='\u{20CF}' => Class::Currency,
            c if c.is_numeric() => Class::Digits,
            '.' | '!' | '?' | '\u{2026}' => Class::SentenceEnd,
            ',' => Class::Comma,
            ':' | ';' => Class::Colon,
            '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' => Class::Dash,
            c if c.is_alphabetic() => self.letter(at, c, after),
            _ => Class::OtherPunctuation,
        }
    }

    fn letter(&self, at: usize, c: char, after: Option<char>) -> Class {
        let before = at.checked_sub(1).map(|at| (self.text[at], self.classes[at]));
        let ends = !after.is_some_and(char::is_alphanumeric);
        match before {
            Some(('\'' | '\u{2019}', Class::Possessive)) if ends && matches!(c, 's' | 'S') => Class::Possessive,
            Some((_, Class::WordRest)) => Class::WordRest,
            Some((c, _)) if c.is_alphanumeric() => Class::WordRest,
            _ => Class::WordStart,
        }
    }

    /// An apostrophe in a word, one that makes a possessive, or a single quote.
    fn apostrophe(&mut self, at: usize, c: char) -> Class {
        let (before, after) = (self.before(at), self.char(at + 1));
        let in_word = before.is_some_and(char::is_alphanumeric);
        let goes_on = after.is_some_and(char::is_alphanumeric);
        if in_word && goes_on {
            let ends = !self.char(at + 2).is_some_and(char::is_alphanumeric);
            let is_s = matches!(after, Some('s' | 'S')) && ends;
            return if is_s && !self.is_contracted(at) { Class::Possessive } else { Class::WordRest };
        }
        if matches!(before, Some('s' | 'S')) && !self.in_single_quotes {
            return Class::Possessive;
        }
        self.in_single_quotes = c == '\'' && self.opens(before, after);
        if self.in_single_quotes { Class::OpeningQuote } else { Class::ClosingQuote }
    }

    /// Whether a straight quote between two characters opens: at the start, or after a space or an opening mark, and before
    /// a character that is not a space; after a dash only before a letter.
    fn opens(&self, before: Option<char>, after: Option<char>) -> bool {
        let Some(after) = after.filter(|c| !c.is_whitespace()) else { return false };
        match before {
            None => true,
            Some('-' | '\u{2013}' | '\u{2014}') => after.is_alphanumeric(),
            Some('\'' | '"') => matches!(self.classes.last(), Some(Class::OpeningQuote)),
            Some(c) => {
                c.is_whitespace() || matches!(c, '(' | '[' | '{' | '_' | '*' | '\u{201C}' | '\u{2018}' | '`')
            }
        }
    }

    /// Whether the word before an apostrophe is one whose `'s` is a verb.
    fn is_contracted(&self, at: usize) -> bool {
        let letters = self.text[..at].iter().rev().copied().take_while(|c| c.is_alphabetic());
        let word: String = letters.flat_map(char::to_lowercase).collect::<Vec<_>>().into_iter().rev().collect();
        CONTRACTED.contains(&word.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A letter for the class of each character of a text.
    fn marked(text: &str) -> String {
        // In the order of the classes.
        const LETTERS: &[u8; 18] = b"!!n p<>()$1.,:-*Ww";
        let bytes = of_bytes(text);
        text.char_indices().map(|(at, _)| char::from(LETTERS[bytes[at] as usize])).collect()
    }

    #[test]
    fn every_character_has_its_class() {
        let check = |text: &str, expected: &str| assert_eq!(marked(text), expected, "{text}");
        check("The dog's tail, and the dogs' tails.", "Www Wwwpp Wwww, Www Www Wwwwp Wwwww.");
        check("It's John’s; don't!", "Wwww Wwwwpp: Wwwww.");
        check("\"No,\" he said, \"I won't.\"", "<Ww,> Ww Wwww, <W Wwwww.>");
        check("“No,” ‘the dogs’ he—\"so\"", "<Ww,> <Www Wwww> Ww-<Ww>");
        check("He said 'the dogs' and `so''", "Ww Wwww <Www Wwww> Www <Ww>>");
        check("wait--\"\n\n--\"but", "Wwww-->nn--<Www");
        check("(a) [b] £5, $1.50: 2nd_", "(W) (W) $1, $1.11: 1ww*");
        check("well-known née", "Wwww-Wwwww Www");
        check("", "");
        check("'", ">");
    }

    #[test]
    fn bytes_have_the_class_of_their_character_and_classes_their_names() {
        assert_eq!(of_bytes("é’").len(), 5);
        assert_eq!(of_bytes("é")[..], [Class::WordStart; 2]);
        assert_eq!([Class::First, Class::Dash, Class::WordRest].map(Class::name), ["first", "dash", "word_rest"]);
    }
}
