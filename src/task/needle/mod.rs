//! Needle in a haystack: one fact in a long text, asked for at the end.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::benchmark::{Asked, Chosen, Definition, Fact, Keys, Reader, RowPrompt, Rows, alone};
use super::canonical::list_text;
use super::data::{self, Book, Books, DataSource, Texts, check_texts};
use super::embedded::stranger;
use crate::lm::Tokenizer;
use crate::yaml::{self, ConfigError, Location, Spanned};

/// The options of `rows: needle`.
pub const OPTIONS: &[&str] = &["lengths", "depths", "texts", "fact"];

/// The depths that are measured unless others are asked for.
const DEPTHS: [usize; 5] = [0, 25, 50, 75, 100];
/// Texts unless another number is asked for.
const TEXTS: usize = 10;

/// Settles which facts are hidden, where, and in how many texts.
///
/// # Errors
/// A value out of its range, or a data set without texts.
pub fn choose(keys: &Keys, chosen: &mut Chosen) -> Result<(), ConfigError> {
    keys.dataset.as_ref().map(check_texts).transpose()?;
    let lengths = keys.lengths(2, Texts::DEFAULT_LENGTH)?;
    let asked = keys.depths.as_deref().unwrap_or_default();
    let depths = match asked {
        [] => DEPTHS.to_vec(),
        depths => yaml::distinct_counts("depths", Location::UNKNOWN, depths, "depth", 0)?,
    };
    if let Some(depth) = asked.iter().find(|depth| depth.value > 100) {
        let message = format!("a depth of {} percent is beyond the text", depth.value);
        let hint = "write depths from 0 (the text's beginning) to 100 (its end)";
        return yaml::refuse(depth.referenced, message, hint);
    }
    let texts = yaml::limit("`texts`", &keys.texts)?.unwrap_or(TEXTS);
    chosen.selection.extend([
        ("lengths", list_text(&lengths)),
        ("depths", list_text(&depths)),
        ("texts", texts.to_string()),
    ]);
    if let Some(Fact { needle, question, answer }) = &keys.fact {
        let parts = [("needle", &needle.value), ("question", question), ("answer", answer)];
        chosen.selection.extend(parts.map(|(key, value)| (key, value.clone())));
    }
    chosen.lengths = Some(lengths.clone());
    let needles = Needles { lengths, depths, texts, fact: keys.fact.clone() };
    chosen.definitions[0].reader = Some(Arc::new(needles));
    Ok(())
}

/// Facts to hide.
#[derive(Clone, Debug)]
struct Needles {
    /// Tokens of prompt and answer together.
    lengths: Vec<usize>,
    /// In percent of the text.
    depths: Vec<usize>,
    texts: usize,
    /// `None`: one of many made-up facts.
    fact: Option<Fact>,
}

impl Reader for Needles {
    fn rows(&self, asked: &Asked<'_>) -> Result<Rows> {
        let Asked { definition, spec, context, .. } = *asked;
        let dataset: DataSource = asked.dataset.parse()?;
        let tokenizer = context.files.tokenizer()?;
        let books =
            data::read_books(&dataset, &Books::First(self.texts), context.hub.settings, context.hub.progress)?;
        data::note_fewer(context.hub.progress, &dataset, "texts", self.texts, books.len());
        rows(self, definition, &books, &tokenizer, spec.generation()?.max_new_tokens)
    }
}

/// A fact that the text does not state, in words that any model knows and that the pocket model was trained on.
fn made_up(text: &str, number: usize) -> Fact {
    let (name, town) = stranger(text, number);
    Fact {
        needle: Spanned { value: format!("{name} lived in {town}."), referenced: Location::UNKNOWN },
        question: format!("Where does {name} live?"),
        answer: town.to_owned(),
    }
}

/// Hides facts in texts: each is cut to the length, and the fact put between two sentences at the depth.
///
/// A row for every length, depth and text. `definition` has the prompt around them.
///
/// # Errors
/// A text shorter than a length, or a prompt without the text; the book is named.
fn rows(
    needles: &Needles,
    definition: &Definition,
    books: &[Book],
    tokenizer: &Tokenizer,
    max_new_tokens: usize,
) -> Result<Rows> {
    let mut rows = Rows::default();
    let count = |text: &str| Ok::<_, anyhow::Error>(tokenizer.encode(text)?.ids.len());
    for (number, book) in books.iter().enumerate() {
        let tokens = tokenizer.encode(&book.text)?;
        let ends = sentence_ends(&book.text);
        let fact = needles.fact.clone().unwrap_or_else(|| made_up(&book.text, number));
        let (before, after) = around(definition, &fact)?;
        let spent = count(&before)? + count(&after)? + count(&fact.needle.value)?;
        for &length in &needles.lengths {
            let room = length.saturating_sub(spent + max_new_tokens + JOINTS);
            ensure!(room > 0, "a length of {length} leaves no room for a text; use a larger one");
            ensure!(
                tokens.ids.len() >= room,
                "{} has {} tokens, and {room} are needed for a length of {length}; use longer texts or a smaller length",
                book.name,
                tokens.ids.len()
            );
            let byte = |token: usize| tokens.places[token].start;
            let end = byte(room - 1);
            for &depth in &needles.depths {
                let name = format!("{}@{depth}%of{length}", book.name);
                let document = hide(&fact.needle.value, &book.text, &ends, byte((room - 1) * depth / 100), end);
                let row = json!({
                    "name": name, "text": book.name, "document": document, "question": fact.question,
                    "answer": fact.answer, "length": length, "depth": depth,
                    "length_and_depth": format!("{length} {depth}"),
                });
                rows.add(row, name)?;
            }
        }
    }
    Ok(rows)
}

/// What a prompt has before and after its text.
fn around(definition: &Definition, fact: &Fact) -> Result<(String, String)> {
    let row = json!({"document": "", "question": fact.question, "answer": fact.answer});
    let RowPrompt { before, text, context, prefix, .. } = alone(definition, row)?;
    let context = context.context("the block `cache:` of the task has no `context`")?;
    Ok((before + &text[..context.start], text[context.end..].to_owned() + &prefix))
}

/// Additional tokens that may appear where the parts of a prompt are joined.
const JOINTS: usize = 8;

/// The first whole sentences of a text, up to byte `most`, with the needle after the sentence that holds byte `at`, or
/// before all of them if that is the first byte.
fn hide(needle: &str, text: &str, ends: &[usize], at: usize, most: usize) -> String {
    let ends = &ends[..ends.partition_point(|end| *end <= most)];
    let end = ends.last().copied().unwrap_or(text.floor_char_boundary(most));
    let after = ends.iter().copied().find(|end| *end >= at).unwrap_or(end);
    let (head, tail) = text[..end].split_at(if at == 0 { 0 } else { after });
    let parts = [head.trim_end(), needle, tail.trim()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The ends of sentences in bytes: after a mark that white space follows.
fn sentence_ends(text: &str) -> Vec<usize> {
    let next = text.chars().skip(1).chain([' ']);
    let ends = text.char_indices().zip(next);
    let ends = ends.filter(|((_, c), next)| matches!(c, '.' | '!' | '?') && next.is_whitespace());
    ends.map(|((at, _), _)| at + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Slice;
    use crate::task::benchmark::{builtin_definition, requests_of};

    #[test]
    fn the_fact_is_at_its_depth() {
        let text: String = (0..200).map(|n| format!("Sentence {n} is here. ")).collect();
        let book = Book { name: "b".into(), text, ..Book::default() };
        let needles = Needles { lengths: vec![1000, 2000], depths: vec![0, 50, 100], texts: 1, fact: None };
        let tokenizer = Tokenizer::bytes().unwrap();
        let definition = builtin_definition("needle").unwrap();
        let rows = |needles: &Needles| rows(needles, &definition, std::slice::from_ref(&book), &tokenizer, 20);
        let requests = requests_of(&definition, &rows(&needles).unwrap()).unwrap();
        assert_eq!(requests.len(), 6);
        for request in &requests {
            let whole = request.prompt.whole();
            let tokens = tokenizer.encode(&whole).unwrap().ids.len();
            assert!(tokens + 20 <= request.length && tokens + 60 > request.length, "{tokens} {}", request.length);
            let needle = "Mara Fenwick lived in Oakford.";
            assert_eq!(whole.matches(needle).count(), 1);
            let document = &request.prompt.document;
            let share = document.find(needle).unwrap() * 100 / (document.len() - needle.len());
            let depth = request.slices[0].single().unwrap() as usize;
            assert!(share.abs_diff(depth) <= 4, "{share} {depth}");
            // An answer counts for its depth, its length, and both together.
            let length = Slice::number("length", request.length as u64);
            assert_eq!(request.slices[1..], [length.clone(), length.and("depth", depth as u64)]);
            // No sentence is split.
            assert!(document.find(needle).unwrap() == 0 || document.contains(&format!(". {needle}")));
        }
        let long = Needles { lengths: vec![10_000], ..needles };
        assert!(rows(&long).unwrap_err().to_string().contains("b has "));
    }
}
