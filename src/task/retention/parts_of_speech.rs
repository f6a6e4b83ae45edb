//! Parts of speech of the words of a text, by Harper's Brill tagger, whose model is inside its crate.
//!
//! Words and sentences are cut as in the tagger's treebanks (`do n't`, `dog 's`). The tags are those of Universal
//! Dependencies; results/README.md says how they relate to the Penn tags of the paper.

use std::ops::Range;
use std::sync::Arc;

use harper_brill::{BrillTagger, FreqDict, Tagger as _, UPOS, brill_tagger};
use serde::{Serialize, Serializer};

/// A part of speech; `None`: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(Option<UPOS>);

impl Tag {
    /// Its place in the order of tables, where unknown words come last.
    pub fn index(self) -> usize {
        self.0.map_or(usize::MAX, |tag| tag as usize)
    }

    /// The name in result rows after `tag:`, as Universal Dependencies have it.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("unknown", UPOS::as_ref)
    }
}

impl Serialize for Tag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Tags the words of texts.
pub(super) struct Tagger {
    tagger: Arc<BrillTagger<FreqDict>>,
}

impl Tagger {
    /// The model is loaded once for the whole program.
    pub fn new() -> Tagger {
        Tagger { tagger: brill_tagger() }
    }

    /// The tag of every byte of a text that belongs to a word or a punctuation mark.
    pub fn of_bytes(&self, text: &str) -> Vec<Option<Tag>> {
        let mut bytes = vec![None; text.len()];
        for sentence in self.sentences(text) {
            for (place, tag) in self.tag(text, sentence) {
                bytes[place].fill(Some(tag));
            }
        }
        bytes
    }

    fn tag(&self, text: &str, sentence: Vec<Range<usize>>) -> Vec<(Range<usize>, Tag)> {
        let words: Vec<String> = sentence.iter().map(|place| spelt(&text[place.clone()])).collect();
        let tags = self.tagger.tag_sentence(&words);
        let first = words.iter().position(|word| word.starts_with(char::is_alphanumeric));
        let tagged = sentence.into_iter().zip(tags).enumerate();
        tagged
            .map(|(at, (place, tag))| {
                let word = &words[at];
                let tag = match tag {
                    // The tagger's dictionary is small. Of the words it lacks, these two kinds can be recognised by their form.
                    None if word.starts_with(char::is_numeric) => Some(UPOS::NUM),
                    None if word.starts_with(char::is_uppercase) && first != Some(at) => Some(UPOS::PROPN),
                    tag => tag,
                };
                (place, Tag(tag))
            })
            .collect()
    }

    /// Whether the tagger's dictionary has a word.
    fn knows(&self, word: &str) -> bool {
        self.tagger.tag_sentence(&[spelt(word)]).first().is_some_and(Option::is_some)
    }

    /// The words and punctuation marks of a text, sentence by sentence. A sentence ends with its final mark and the quotes
    /// and brackets after it, or with its paragraph.
    fn sentences(&self, text: &str) -> Vec<Vec<Range<usize>>> {
        let mut sentences = Vec::new();
        let mut sentence = Vec::new();
        let mut ended = false;
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let start = text.len() - rest.len();
            let length;
            if c.is_whitespace() {
                length = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
                let lines = rest[..length].matches('\n').count();
                if (ended || lines > 1) && !sentence.is_empty() {
                    sentences.push(std::mem::take(&mut sentence));
                }
                ended = false;
            } else if c.is_alphanumeric() {
                length = self.word_length(rest);
                sentence.extend(self.parts(&rest[..length]).into_iter().map(|part| shifted(part, start)));
                ended = false;
            } else {
                // Several dots or dashes in a row are one mark.
                length = rest.find(|other| other != c).unwrap_or(rest.len());
                sentence.push(start..start + length);
                ended = matches!(c, '.' | '!' | '?' | '\u{2026}') || ended && is_closing(c);
            }
            rest = &rest[length..];
        }
        sentences.extend(Some(sentence).filter(|sentence| !sentence.is_empty()));
        sentences
    }

    /// The length in bytes of the word at the start of a text: letters, digits, the marks between them that belong to the
    /// word, and the dot of a known abbreviation.
    fn word_length(&self, text: &str) -> usize {
        let mut characters = text.char_indices().peekable();
        let mut before = ' ';
        let mut end = text.len();
        while let Some((at, c)) = characters.next() {
            let after = characters.peek().map_or(' ', |(_, c)| *c);
            let inside = match c {
                '\'' | '\u{2019}' | '-' => before.is_alphanumeric() && after.is_alphanumeric(),
                '.' | ',' | ':' => before.is_numeric() && after.is_numeric(),
                c => c.is_alphanumeric(),
            };
            if !inside {
                end = at;
                break;
            }
            before = c;
        }
        let abbreviated = text[end..].starts_with('.') && text.starts_with(char::is_uppercase);
        if abbreviated && self.knows(&text[..=end]) { end + 1 } else { end }
    }

    /// The parts of a word, as the treebanks cut it.
    fn parts(&self, word: &str) -> Vec<Range<usize>> {
        let spelt = spelt(word).to_lowercase();
        // The lower case may have another length; such words are left whole.
        let same = spelt.chars().count() == word.chars().count();
        let cut = |from_end: usize| {
            word.char_indices().rev().nth(from_end - 1).map(|(at, _)| at).filter(|at| same && *at > 0)
        };
        let suffix = ["n't", "'s", "'ll", "'re", "'ve", "'d", "'m"].into_iter().find(|end| spelt.ends_with(end));
        let at = match suffix {
            Some(suffix) => cut(suffix.len()),
            None if spelt == "cannot" => cut(3),
            None => None,
        };
        if let Some(at) = at {
            let mut parts = self.parts(&word[..at]);
            parts.push(at..word.len());
            return parts;
        }
        if !word.contains('-') || self.knows(word) {
            let whole = 0..word.len();
            return vec![whole];
        }
        let mut parts = Vec::new();
        let mut start = 0;
        for (at, hyphen) in word.match_indices('-') {
            parts.extend([start..at, at..at + hyphen.len()]);
            start = at + hyphen.len();
        }
        parts.push(start..word.len());
        parts
    }
}

fn shifted(place: Range<usize>, by: usize) -> Range<usize> {
    place.start + by..place.end + by
}

/// A word with the apostrophe of the tagger's dictionary.
fn spelt(word: &str) -> String {
    word.replace('\u{2019}', "'")
}

fn is_closing(c: char) -> bool {
    matches!(c, '"' | '\'' | '\u{201D}' | '\u{2019}' | ')' | ']' | '}' | '\u{BB}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<&str>> {
        let sentences = Tagger::new().sentences(text).into_iter();
        sentences.map(|sentence| sentence.into_iter().map(|place| &text[place]).collect()).collect()
    }

    #[test]
    fn words_are_cut_as_in_the_treebanks() {
        assert_eq!(
            words("\"Don't,\" Mr. Smith said.\n\nThe dog’s 1,500 tails--no!"),
            [
                vec!["\"", "Do", "n't", ",", "\"", "Mr.", "Smith", "said", "."],
                vec!["The", "dog", "’s", "1,500", "tails", "--", "no", "!"]
            ]
        );
        assert_eq!(
            words("I cannot. \"Go.\" He"),
            [vec!["I", "can", "not", "."], vec!["\"", "Go", ".", "\""], vec!["He"]]
        );
        assert_eq!(words("a first-class, blue-zzxq"), [vec!["a", "first-class", ",", "blue", "-", "zzxq"]]);
        assert_eq!(words(" \n "), Vec::<Vec<&str>>::new());
    }

    #[test]
    fn words_have_tags_and_spaces_have_none() {
        let text = "The old dog’s tail quickly hurt Zzyzx, in 1885; she couldn't xqzt.";
        let bytes = Tagger::new().of_bytes(text);
        let of = |word: &str| bytes[text.find(word).unwrap()].as_ref().map(Tag::name);
        let words =
            ["The", "old", "dog", "’s", "quickly", "Zzyzx", ",", "in", "1885", "she", "could", "n't", "xqzt"];
        let tags = "DET ADJ NOUN PART ADV PROPN PUNCT ADP NUM PRON AUX PART unknown";
        for (word, tag) in words.into_iter().zip(tags.split(' ')) {
            assert_eq!(of(word), Some(tag), "{word}");
        }
        assert_eq!(of(" "), None);
    }
}
