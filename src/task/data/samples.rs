//! Cuts books into samples: the tokens a model reads at once, and those that are scored.

use std::collections::HashSet;
use std::ops::Range;

use anyhow::{Context, Result, bail};
use rayon::prelude::*;
use serde::Serialize;

use super::recall::{self, LocatedRecall};
use super::settings::{Bos, Tail, Texts};
use super::start::Start;
use crate::lm::Tokenizer;
use crate::metric::{MetricSum, REPEATS_PROMPT, TOO_SHORT};
use crate::task::embedded::Book;
use crate::task::memory::{Pieces, SampleLengths};

/// One text for the model, cut from a book. Its JSON has all that a measurement of the sample depends on, for ids.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TextSample {
    /// `10146.txt#3`: the fourth piece of a book.
    pub name: String,
    /// The book.
    pub cluster: String,
    /// The text token of the book at which it starts, BOS not counted.
    #[serde(skip)] // It follows from the tokens and the settings.
    pub start: usize,
    /// The text token at which the samples of its book begin.
    #[serde(skip)] // It follows from the tokens and the settings.
    pub begins: usize,
    /// BOS, if there is one, then the text.
    pub tokens: Vec<u32>,
    pub bos: Option<u32>,
    /// Tokens that are scored. Those before are only context, because the previous sample scored them.
    pub scored: Range<usize>,
    /// Words that start in the scored part of the text.
    pub words: usize,
    /// Its first tokens, if they are a prompt: they are not scored, and a cache may be cut after them.
    #[serde(skip)] // It follows from the settings.
    pub prompt: Option<usize>,
    /// Facts stated in the sample whose answers are scored, in the sample's tokens.
    pub recalls: Vec<LocatedRecall>,
    /// Scored tokens that repeat the tokens before the scored part, in runs of [`REPEAT`] or more.
    #[serde(skip)] // It follows from the tokens and the settings.
    pub repeated: usize,
}

/// The least tokens in a row that count as a repeat of what was read before.
const REPEAT: usize = 32;

impl TextSample {
    /// That it repeats its prompt, if it does.
    pub fn repeats_prompt(&self) -> Option<MetricSum> {
        let scored = self.scored.len() as f64;
        (self.repeated > 0).then(|| MetricSum::new(REPEATS_PROMPT, self.repeated as f64, scored))
    }

    /// Tokens that its cache depends on.
    pub fn lengths(&self) -> SampleLengths {
        let pieces = Pieces::OfText { lead: usize::from(self.bos.is_some()) };
        let predicted = self.scored.start.max(1)..self.scored.end.max(2);
        SampleLengths { prompt: self.prompt, tokens: self.tokens.len(), predicted, pieces }
    }

    /// The tokens that answer a recall, each once, ascending.
    pub fn answer_tokens(&self) -> Vec<usize> {
        let mut tokens: Vec<usize> = self.recalls.iter().flat_map(|recall| recall.answer.clone()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }
}

/// Whether samples start with BOS.
pub fn resolve_bos(settings: &Texts, tokenizer: &Tokenizer) -> Result<Option<u32>> {
    let wanted = match settings.bos {
        Bos::Auto => tokenizer.adds_bos(),
        Bos::Always => true,
        Bos::Never => false,
    };
    wanted.then(|| tokenizer.bos()).transpose()
}

/// What was cut from books.
pub struct CutBooks<T> {
    pub samples: Vec<T>,
    /// That books are too short for the samples asked for, if some are.
    pub too_short: Option<MetricSum>,
}

/// Tokenises and cuts books. Of overlapping samples, each scores only what the previous one did not.
///
/// # Errors
/// A book that cannot be tokenised, or no sample at all.
pub fn cut(books: &[Book], settings: &Texts, tokenizer: &Tokenizer) -> Result<CutBooks<TextSample>> {
    cut_with(books, settings, tokenizer, |_, sample, _| Ok(sample))
}

/// Tokenises and cuts books, and makes something of each sample, its book, and the bytes of the book that its text tokens cover.
pub fn cut_with<T: Send>(
    books: &[Book],
    settings: &Texts,
    tokenizer: &Tokenizer,
    make: impl Fn(&Book, TextSample, &[Range<usize>]) -> Result<T> + Sync,
) -> Result<CutBooks<T>> {
    let bos = resolve_bos(settings, tokenizer)?;
    let samples: Vec<Vec<T>> = books
        .par_iter()
        .map(|book| cut_book(book, settings, tokenizer, bos, &make).with_context(|| format!("book {}", book.name)))
        .collect::<Result<_>>()?;
    // Without a number that is asked for, a book is too short that has no sample.
    let asked = settings.chunks_per_book.unwrap_or(1);
    let short = books.iter().zip(&samples).filter(|(_, samples)| samples.len() < asked);
    let short: Vec<String> = short
        .map(|(book, samples)| match samples.len() {
            0 => book.name.clone(),
            some => format!("{} with {some} of {asked} samples", book.name),
        })
        .collect();
    let too_short = (!short.is_empty()).then(|| MetricSum {
        output: Some(short.join(", ")),
        ..MetricSum::new(TOO_SHORT, short.len() as f64, books.len() as f64)
    });
    let samples: Vec<T> = samples.into_iter().flatten().collect();
    if samples.is_empty() {
        let lengths: Vec<usize> =
            books.iter().map(|book| Ok(tokenizer.encode(&book.text)?.ids.len())).collect::<Result<_>>()?;
        let longest = books.iter().zip(lengths).max_by_key(|(_, length)| *length);
        let longest = longest.map(|(book, length)| format!("the longest, {}, has {length}", book.name));
        let (from, or) = match settings.start {
            Start::Token(start @ 1..) => (format!(" from token {start} on"), " or start"),
            _ => (String::new(), ""),
        };
        bail!(
            "none of the {} books has {} tokens{from} ({}); use a smaller length{or}, or tail: keep",
            books.len(),
            settings.length,
            longest.unwrap_or_default()
        );
    }
    Ok(CutBooks { samples, too_short })
}

fn cut_book<T>(
    book: &Book,
    settings: &Texts,
    tokenizer: &Tokenizer,
    bos: Option<u32>,
    make: &impl Fn(&Book, TextSample, &[Range<usize>]) -> Result<T>,
) -> Result<Vec<T>> {
    let text = tokenizer.encode(&book.text)?;
    let (whole, stride) = (settings.text_tokens(bos.is_some()), settings.stride(bos.is_some()));
    let lead = usize::from(bos.is_some());
    let starts = word_starts(&book.text);
    let recalls = recall::locate(&book.recalls, &text);
    let more = settings.chunks_per_book.unwrap_or(1) - 1;
    let span = stride.saturating_mul(more).saturating_add(whole);
    let begins = settings.start.of(&book.name, text.ids.len(), span);
    let mut samples = Vec::new();
    for (index, start) in (begins..text.ids.len()).step_by(stride).enumerate() {
        if samples.len() == settings.chunks_per_book.unwrap_or(usize::MAX) {
            break;
        }
        let end = (start + whole).min(text.ids.len());
        // Where samples overlap, the previous one has scored everything up to its end.
        let fresh = if index == 0 { start } else { start.max(start - stride + whole) };
        let short = end - start < whole;
        // Without BOS a sample's first token has nothing before it.
        let prompt = settings.prompt_of(end - start + lead);
        let scored = (fresh - start + lead).max(prompt.unwrap_or(1))..end - start + lead;
        if short && settings.tail == Tail::Drop || scored.is_empty() || fresh >= end {
            break;
        }
        let from = text.places[start + scored.start - lead].start;
        let to = text.places[end - 1].end;
        let words = starts.partition_point(|at| *at < to) - starts.partition_point(|at| *at < from);
        let inside = recalls.iter().filter(|recall| recall.told >= start).filter_map(|recall| {
            let [told, first, last] =
                [recall.told, recall.answer.start, recall.answer.end].map(|token| token - start + lead);
            let is_scored = first >= scored.start && last <= scored.end;
            is_scored.then(|| LocatedRecall { told, answer: first..last, ..recall.clone() })
        });
        let tokens: Vec<u32> = bos.into_iter().chain(text.ids[start..end].iter().copied()).collect();
        let sample = TextSample {
            name: format!("{}#{index}", book.name),
            cluster: book.name.clone(),
            start,
            begins,
            repeated: repeated(&tokens, &scored),
            tokens,
            bos,
            recalls: inside.collect(),
            prompt,
            scored,
            words,
        };
        samples.push(make(book, sample, &text.places[start..end])?);
        if short {
            break;
        }
    }
    Ok(samples)
}

/// Counts the scored tokens that lie in runs of [`REPEAT`] or more scored tokens which occur among the tokens before the scored part.
fn repeated(tokens: &[u32], scored: &Range<usize>) -> usize {
    let read: HashSet<&[u32]> = tokens[..scored.start].windows(REPEAT).collect();
    let (mut count, mut counted_to) = (0, 0);
    for (at, run) in tokens[scored.clone()].windows(REPEAT).enumerate().filter(|(_, run)| read.contains(run)) {
        count += at + run.len() - counted_to.max(at);
        counted_to = at + run.len();
    }
    count
}

/// Bytes where a word starts: a character that is not a space, after one that is.
fn word_starts(text: &str) -> Vec<usize> {
    let before = std::iter::once(' ').chain(text.chars());
    let starts = text.char_indices().zip(before);
    let starts = starts.filter(|((_, c), before)| before.is_whitespace() && !c.is_whitespace());
    starts.map(|((at, _), _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::embedded::Recall;

    fn settings(length: usize, stride: Option<usize>, bos: Bos, tail: Tail) -> Texts {
        let dataset = "./x".parse().unwrap();
        let (books, start) = Default::default();
        Texts { dataset, length, stride, bos, tail, books, start, chunks_per_book: None, prompt: None }
    }

    fn samples(text: &str, settings: &Texts) -> Vec<(usize, Range<usize>, usize)> {
        let book = Book { name: "b".into(), text: text.into(), ..Book::default() };
        let cut = cut(&[book], settings, &Tokenizer::bytes().unwrap()).unwrap();
        cut.samples.into_iter().map(|s| (s.tokens.len(), s.scored, s.words)).collect()
    }

    // Bytes are tokens here: "aa bb cc d" has 10 of them.
    const TEXT: &str = "aa bb cc d";

    #[test]
    fn each_token_is_scored_once() {
        let cases = [
            // "aa b" and "b cc": the word bb starts in the first.
            (settings(5, None, Bos::Always, Tail::Drop), &[(5, 1..5, 2), (5, 1..5, 1)][..]),
            (settings(5, None, Bos::Always, Tail::Keep), &[(5, 1..5, 2), (5, 1..5, 1), (3, 1..3, 1)]),
            // Without BOS, a sample's first token has nothing before it.
            (settings(5, None, Bos::Never, Tail::Drop), &[(5, 1..5, 1), (5, 1..5, 2)]),
            // Text tokens 0..4, 2..6, 4..8, 6..10; of the later ones the last two are new.
            (
                settings(5, Some(2), Bos::Always, Tail::Drop),
                &[(5, 1..5, 2), (5, 3..5, 0), (5, 3..5, 1), (5, 3..5, 1)],
            ),
            // A stride beyond the sample skips text.
            (settings(3, Some(6), Bos::Always, Tail::Drop), &[(3, 1..3, 1), (3, 1..3, 1)]),
        ];
        for (settings, expected) in cases {
            assert_eq!(samples(TEXT, &settings), expected, "{settings:?}");
        }
    }

    #[test]
    fn a_recall_needs_its_fact_in_the_sample_and_its_answer_in_the_scored_part() {
        let recall = |told, answer| Recall { kind: "home", told, answer, choices: 2 };
        let recalls = vec![recall(1, [2, 4]), recall(1, [6, 7]), recall(5, [7, 9]), recall(6, [7, 8])];
        let book = Book { name: "b".into(), text: TEXT.into(), recalls };
        let cut = |stride| {
            let settings = settings(5, stride, Bos::Always, Tail::Drop);
            let cut = cut(std::slice::from_ref(&book), &settings, &Tokenizer::bytes().unwrap()).unwrap();
            cut.samples
                .into_iter()
                .map(|s| s.recalls.into_iter().map(|r| (r.told, r.answer)).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        // Text tokens 0..4 and 4..8 after BOS: one answer ends outside, one fact is stated in the sample before.
        assert_eq!(cut(None), [vec![(1, 3..5)], vec![(2, 4..5)]]);
        // 0..4, 2..6, 4..8, 6..10: the fact stated at 5 is before the last sample, and its answer ends after what the
        // third scores.
        assert_eq!(cut(Some(2)), [vec![(1, 3..5)], vec![], vec![(2, 4..5)], vec![]]);
    }

    #[test]
    fn texts_that_are_too_short_are_an_error_and_counted_where_others_are_not() {
        let book = |name: &str, text: &str| Book { name: name.into(), text: text.into(), ..Book::default() };
        let tokenizer = Tokenizer::bytes().unwrap();
        let cut = |books: &[Book], settings: Texts| cut(books, &settings, &tokenizer);
        let error = cut(&[book("b", TEXT)], settings(50, None, Bos::Always, Tail::Drop)).err().unwrap();
        assert!(error.to_string().contains("tail: keep"));
        let books = [book("a", "aa"), book("b", TEXT), book("c", "aa bb c")];
        let all = settings(5, None, Bos::Always, Tail::Drop);
        let two = Texts { chunks_per_book: Some(2), ..all.clone() };
        for (settings, expected) in [(all, "a"), (two, "a, c with 1 of 2 samples")] {
            let found = cut(&books, settings).unwrap().too_short.unwrap();
            assert_eq!((found.output.as_deref(), found.weight), (Some(expected), 3.0));
        }
        assert_eq!(cut(&books, settings(3, None, Bos::Always, Tail::Drop)).unwrap().too_short, None);
    }

    /// Runs of [`REPEAT`] tokens compared one by one.
    #[test]
    fn repeats_are_those_of_a_plain_search() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut most = 0;
        for _ in 0..200 {
            let mut tokens: Vec<u32> = (0..300).map(|_| rng.u32(0..50)).collect();
            let (from, to, length) = (rng.usize(0..150), rng.usize(100..220), rng.usize(20..80));
            tokens.copy_within(from..from + length, to);
            let scored = rng.usize(100..260)..300;
            let is_repeat = |run: usize| {
                (0..=scored.start - REPEAT).any(|at| tokens[at..at + REPEAT] == tokens[run..run + REPEAT])
            };
            let in_repeat = |token: &usize| {
                (token.saturating_sub(REPEAT - 1)..=*token)
                    .any(|run| run >= scored.start && run + REPEAT <= 300 && is_repeat(run))
            };
            let expected = scored.clone().filter(in_repeat).count();
            assert_eq!(repeated(&tokens, &scored), expected);
            most = most.max(expected);
        }
        assert!(most > REPEAT, "some have repeats");
        // Scored at once, and after fewer tokens than a repeat has.
        assert_eq!((repeated(&[1; 80], &(1..80)), repeated(&[1; 80], &(32..80))), (0, 48));
    }
}
