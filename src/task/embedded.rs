//! The embedded data set: generated books, quizzes, articles, stories and story requests, compressed in the program.
//!
//! The files are in `datasets/embedded`; models/pocket/README.md says how they were generated. This module decompresses
//! and parses them, and knows nothing of tasks or prompts.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// How many books, quizzes, articles and stories there are, of each.
pub const MOST_EMBEDDED_BOOKS: usize = 64;

/// A named text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Book {
    pub name: String,
    pub text: String,
    /// Facts that the text states and later needs again; empty where they are not known.
    pub recalls: Vec<Recall>,
}

/// A part of a text that can only be predicted by remembering an earlier part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recall {
    /// The kind of fact: `home`, `trade`, ...
    pub kind: &'static str,
    /// Byte at which the latest statement of the fact ends; before `answer`.
    pub told: usize,
    /// The first byte of the answer, and the byte after it.
    pub answer: [usize; 2],
    /// Values of this kind that the text has named before: guessing among them is right once in `choices` times.
    pub choices: u32,
}

/// A text with questions about it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub name: String,
    pub text: String,
    pub questions: Vec<DocumentQuestion>,
}

/// A question about a document. Its references are short answers or summaries.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DocumentQuestion {
    /// Unique among the questions of a data set.
    #[serde(skip)]
    pub name: String,
    pub question: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub summaries: Vec<String>,
    /// The kind of question, where the data have one: QASPER's `extractive`, `abstractive`, `yes_no`, `unanswerable`, or
    /// the kind of fact asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

static BOOKS: LazyLock<String> =
    LazyLock::new(|| decompress(include_bytes!("../../datasets/embedded/books.jsonl.zst")));
static QUIZZES: LazyLock<String> =
    LazyLock::new(|| decompress(include_bytes!("../../datasets/embedded/quizzes.jsonl.zst")));
static ARTICLES: LazyLock<String> =
    LazyLock::new(|| decompress(include_bytes!("../../datasets/embedded/articles.jsonl.zst")));
static STORIES: LazyLock<String> =
    LazyLock::new(|| decompress(include_bytes!("../../datasets/embedded/stories.jsonl.zst")));
static PROMPTS: LazyLock<String> =
    LazyLock::new(|| decompress(include_bytes!("../../datasets/embedded/prompts.jsonl.zst")));

fn decompress(file: &[u8]) -> String {
    let bytes = zstd::decode_all(file).expect("the embedded file is a whole zstd frame");
    String::from_utf8(bytes).expect("the embedded file is UTF-8")
}

/// The first `count` lines of a file.
fn parse<T: Deserialize<'static>>(lines: &'static str, count: usize) -> impl Iterator<Item = T> {
    lines.lines().take(count).map(|line| serde_json::from_str(line).expect("the embedded file has whole lines"))
}

/// Books of at least 4096 tokens of the pocket model's tokenizer.
pub fn books(count: usize) -> impl Iterator<Item = Book> {
    parse(&BOOKS, count)
}

/// Articles with questions and answers below them, about 4000 tokens in all. Only the answers count as recalls.
pub fn quizzes(count: usize) -> impl Iterator<Item = Book> {
    parse(&QUIZZES, count)
}

/// Articles of about 3000 tokens with the first `each` of their questions, a fifth of them unanswerable.
pub fn articles(count: usize, each: usize) -> Vec<Document> {
    documents(&ARTICLES, count, each)
}

/// Stories of about 3000 tokens with the first `each` of their questions.
pub fn stories(count: usize, each: usize) -> Vec<Document> {
    documents(&STORIES, count, each)
}

fn documents(lines: &'static str, count: usize, each: usize) -> Vec<Document> {
    let mut documents: Vec<Document> = parse(lines, count).collect();
    for Document { name, questions, .. } in &mut documents {
        questions.truncate(each);
        questions.iter_mut().zip(1..).for_each(|(question, number)| question.name = format!("{name}#{number}"));
    }
    documents
}

/// Requests to write a story.
pub fn prompts(count: usize) -> impl Iterator<Item = String> {
    parse(&PROMPTS, count)
}

/// The words of a section of a text, which begins with `# name`.
pub fn section(text: &'static str, name: &str) -> Vec<&'static str> {
    let lines = text.lines().skip_while(|line| line.strip_prefix("# ") != Some(name)).skip(1);
    lines.take_while(|line| !line.starts_with('#')).flat_map(str::split_whitespace).collect()
}

/// The name of a person and of a town that do not occur in `text`, as long as there are unused names. Every `number`
/// gives other names.
pub fn stranger(text: &str, number: usize) -> (String, &'static str) {
    let [women, surnames, towns] =
        ["women", "surnames", "towns"].map(|name| section(include_str!("names.txt"), name));
    let unused = |names: &[&'static str], start: usize| {
        let name = |turn: usize| names[(start + turn) % names.len()];
        (0..towns.len()).map(name).find(|name| !text.contains(name)).unwrap_or(name(0))
    };
    let surname = surnames[11 * number % surnames.len()];
    (format!("{} {surname}", unused(&women, 5 * number)), unused(&towns, 13 * number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_hold_as_many_texts_as_sweeps_may_ask_for() {
        let all = usize::MAX;
        let counts = [books(all).count(), quizzes(all).count(), articles(all, all).len(), stories(all, all).len()];
        assert_eq!(counts, [MOST_EMBEDDED_BOOKS; 4]);
        assert_eq!(prompts(all).count(), 1000);
    }

    #[test]
    fn documents_have_only_the_questions_asked_for() {
        let questions = |most| articles(1, most)[0].questions.len();
        assert_eq!((questions(3), questions(usize::MAX)), (3, 52));
        assert!(stories(2, 4).iter().all(|story| story.questions.len() == 4));
    }

    /// A change of these texts is a change of the data set: it needs new baselines and an entry in the changelog.
    #[test]
    fn the_books_are_unchanged() {
        let digest = books(2)
            .flat_map(|book| book.text.into_bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        assert_eq!(format!("{digest:016x}"), "7cf34398f2cb5237");
    }
}
