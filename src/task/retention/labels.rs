//! Labels each token of a sample with its class, its part of speech and its bytes in the book.
//!
//! Classes and tags belong to characters. A token has those of its first character that is not a space, so that tokenizers
//! with and without leading spaces agree. A token without such a character is a space or a newline.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::Result;

use super::classes::{self, Class};
use super::parts_of_speech::{Tag, Tagger};
use crate::lm::Tokenizer;
use crate::task::data::{Book, TextSample, Texts, cut_with};

/// A token's label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Label {
    pub class: Class,
    /// `None` for tokens of no word: white space and special tokens.
    pub tag: Option<Tag>,
    /// The bytes of the book's text that it covers; none for BOS.
    pub start: u32,
    pub end: u32,
}

/// A sample and the labels of its tokens.
#[derive(Clone, Debug)]
pub struct LabelledSample {
    pub sample: TextSample,
    pub labels: Vec<Label>,
}

/// Labelled samples, and the text of each token in them.
pub type Labelled = (Vec<LabelledSample>, BTreeMap<u32, String>);

impl LabelledSample {
    /// Writes all that a measurement of the sample depends on, for its id: Debug output, which `run/tests.rs` holds.
    pub fn canonical(&self) -> String {
        format!("LabelledSample {{ sample: {}, labels: {:?} }}", self.sample.canonical(), self.labels)
    }
}

/// Cuts books into samples and labels their tokens.
pub(super) fn cut(books: &[Book], settings: &Texts, tokenizer: &Tokenizer) -> Result<Labelled> {
    let tagger = Tagger::new();
    let special = tokenizer.special();
    let samples = cut_with(books, settings, tokenizer, |book, sample, places| {
        let labels = labels(&tagger, &special, &book.text, &sample, places);
        Ok(LabelledSample { sample, labels })
    })?;
    let tokens: BTreeSet<u32> = samples.iter().flat_map(|labelled| &labelled.sample.tokens).copied().collect();
    let piece = |token: u32| -> Result<(u32, String)> {
        let name = || tokenizer.name(token).unwrap_or_default();
        Ok((token, if special.contains(&token) { name() } else { tokenizer.piece(token)? }))
    };
    Ok((samples, tokens.into_iter().map(piece).collect::<Result<_>>()?))
}

/// The labels of a sample's tokens; `places` are the bytes of the book that those after BOS cover.
fn labels(
    tagger: &Tagger,
    special: &BTreeSet<u32>,
    text: &str,
    sample: &TextSample,
    places: &[Range<usize>],
) -> Vec<Label> {
    let first = places.iter().map(|place| place.start).min().unwrap_or(0);
    let last = places.iter().map(|place| place.end).max().unwrap_or(0);
    // Tokens may begin and end inside a character.
    let from = (0..=first).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let to = (last..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let text = &text[from..to];
    // Only the sample's own text counts: no cache of this sample has seen what is before it in the book.
    let (classes, tags) = (classes::of_bytes(text), tagger.of_bytes(text));
    let lead = sample.tokens.len() - places.len();
    let mut labels: Vec<Label> = Vec::with_capacity(sample.tokens.len());
    for (position, token) in sample.tokens.iter().enumerate() {
        let place = position.checked_sub(lead).map_or(from..from, |at| places[at].clone());
        let bytes = place.start - from..place.end - from;
        let shown = bytes.clone().find(|at| !classes[*at].is_blank());
        let own = match shown {
            Some(at) => classes[at],
            None if classes[bytes.clone()].contains(&Class::Newline) => Class::Newline,
            None => Class::Space,
        };
        // Where a character is made of several tokens, a word begins with the first of them.
        let again = shown.is_some_and(|at| {
            !text.is_char_boundary(at) || labels.last().is_some_and(|before| before.end as usize > from + at)
        });
        labels.push(Label {
            class: match own {
                _ if position == 0 => Class::First,
                _ if special.contains(token) || bytes.is_empty() => Class::Special,
                Class::WordStart if again => Class::WordRest,
                own => own,
            },
            tag: shown.and_then(|at| tags[at]).filter(|_| !special.contains(token)),
            start: place.start as u32,
            end: place.end as u32,
        });
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::data::{Bos, Tail};

    /// The labels of a text whose bytes are tokens.
    fn labelled(text: &str, bos: Bos) -> LabelledSample {
        let book = Book { name: "b".into(), text: text.into(), ..Book::default() };
        let settings = Texts {
            dataset: "./x".parse().unwrap(),
            length: text.len() + 1,
            stride: None,
            bos,
            tail: Tail::Keep,
            books: None,
            chunks_per_book: None,
            prompt: None,
        };
        let (mut samples, pieces) = cut(&[book], &settings, &Tokenizer::bytes().unwrap()).unwrap();
        assert_eq!(pieces.get(&0).map(String::as_str), (bos == Bos::Always).then_some("<s>"));
        samples.remove(0)
    }

    #[test]
    fn bytes_of_one_character_are_one_word() {
        let LabelledSample { labels, .. } = labelled("né é\n’$", Bos::Always);
        let classes: Vec<Class> = labels.iter().map(|label| label.class).collect();
        use Class::{ClosingQuote, Currency, First, Newline, Space, WordRest, WordStart};
        let quote = [ClosingQuote; 3];
        let expected = [
            &[First, WordStart, WordRest, WordRest, Space, WordStart, WordRest, Newline][..],
            &quote,
            &[Currency],
        ];
        assert_eq!(classes, expected.concat());
        assert_eq!((labels[0].start, labels[0].end, labels[0].tag), (0, 0, None));
        assert!(labels[1].tag.is_some() && labels[4].tag.is_none());
    }

    #[test]
    fn without_bos_the_first_token_is_a_class_and_keeps_its_tag() {
        let LabelledSample { labels, .. } = labelled("The dog's", Bos::Never);
        assert_eq!((labels[0].class, labels[0].tag.as_ref().map(Tag::name)), (Class::First, Some("DET")));
        assert_eq!(labels[7].class, Class::Possessive);
        assert_eq!(labels[8].class, Class::Possessive);
    }
}
