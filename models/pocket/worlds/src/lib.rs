//! Small worlds: made-up people and places, told in English, that ask what was told before.
//!
//! Everything is made from a seed, and every recall of a fact knows where the fact was told last and among how many
//! values it had to be picked. Knows words and chance; nothing of tokens, models or files.

mod article;
mod book;
mod facts;
mod forms;
mod scenery;
mod story;
mod teller;
#[cfg(test)]
mod tests;
mod words;

use std::ops::Range;

use fastrand::Rng;

pub use book::Plan;
pub use facts::{Kind, Split};

use facts::{Size, fnv1a};

/// A text and what it asks a reader to remember.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Text {
    /// Names the kind, the split, the seed and the number: `book-test-7-0`.
    pub name: String,
    pub text: String,
    /// In the order of the text.
    pub recalls: Vec<Recall>,
}

/// A place in a text that can only be told from what stands before it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Recall {
    /// What kind of fact: `home`, `trade`, ...
    pub kind: &'static str,
    /// Byte at which the last telling of the fact ends; before `answer`.
    pub told: usize,
    /// Bytes of the text that answer.
    #[serde(serialize_with = "as_pair")]
    pub answer: Range<usize>,
    /// Values of this kind that the text names before: who guesses among them is right once in so many times.
    pub choices: u32,
}

fn as_pair<S: serde::Serializer>(range: &Range<usize>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&[range.start, range.end], serializer)
}

pub use article::{Article, Question};
pub use story::{Story, Summaries};

/// The seed of the embedded texts. Another would be another data set.
pub const EMBEDDED_SEED: u64 = 1;

/// Characters of a text that fills 4096 tokens of the pocket model's tokenizer and more.
const LONG: usize = 22_000;

/// Distances reach this far, in tokens.
const FARTHEST: usize = 4000;

/// One text each from `count` seeds that follow from `seed`, split and kind of text.
fn each<T>(
    what: &'static str,
    split: Split,
    seed: u64,
    count: usize,
    make: impl Fn(&mut Rng, String) -> T,
) -> impl Iterator<Item = T> {
    (0..count).map(move |number| {
        let name = format!("{what}-{}-{seed}-{number}", split.name());
        // Seeds from names, so that no kind of text repeats another's worlds.
        let seed = fnv1a(name.bytes());
        make(&mut Rng::with_seed(seed), name)
    })
}

/// A size for `characters` of text: about a quarter of it introduces people.
fn size_for(rng: &mut Rng, characters: usize) -> Size {
    let each = rng.usize(3..6);
    let people = (characters / (4 * 55 * each)).clamp(2, 12);
    Size { people, each, towns: (people / 2).max(1), alike: false }
}

/// Texts for perplexity and recall, each of 4096 tokens of the pocket model's tokenizer and more.
pub fn books(split: Split, seed: u64, count: usize) -> impl Iterator<Item = Text> {
    let plan = Plan { characters: LONG, variety: usize::MAX, farthest: FARTHEST };
    each("book", split, seed, count, move |rng, name| {
        let size = size_for(rng, plan.characters);
        book::tell(rng, split, size, plan).finish(name)
    })
}

/// Articles with questions and answers below them, of about 4000 tokens in all, for the recall of the answers.
pub fn quizzes(split: Split, seed: u64, count: usize) -> impl Iterator<Item = Text> {
    let plan = Plan { characters: 11_000, variety: usize::MAX, farthest: FARTHEST };
    each("quiz", split, seed, count, move |rng, name| {
        let size = size_for(rng, plan.characters);
        Text { name, ..article::quiz(rng, split, size, plan, 24) }
    })
}

/// Articles of about 3000 tokens with questions about them.
pub fn articles(split: Split, seed: u64, count: usize, questions: usize) -> impl Iterator<Item = Article> {
    let plan = Plan { characters: 12_000, variety: usize::MAX, farthest: FARTHEST };
    each("article", split, seed, count, move |rng, name| {
        let size = size_for(rng, plan.characters);
        Article { name, ..article::article(rng, split, size, plan, questions) }
    })
}

/// Stories of about 3000 tokens with questions and several reference summaries each.
pub fn stories(split: Split, seed: u64, count: usize, questions: usize) -> impl Iterator<Item = Story> {
    let plan = Plan { characters: 12_000, variety: usize::MAX, farthest: FARTHEST };
    each("story", split, seed, count, move |rng, name| {
        let size = size_for(rng, plan.characters);
        Story { name, ..story::story(rng, split, size, plan, questions) }
    })
}

/// Requests to write a story.
pub fn prompts(seed: u64, count: usize) -> impl Iterator<Item = String> {
    each("prompt", Split::Test, seed, count, move |rng, _| story::prompt(rng))
}

/// Texts to learn from: drills, tales, and articles, stories and requests with their answers.
pub fn lessons(split: Split, seed: u64, count: usize, plan: Plan, drills: u32) -> impl Iterator<Item = Text> {
    each("lesson", split, seed, count, move |rng, name| {
        // Every length up to the longest, so that no position is learned as the end.
        let plan = Plan { characters: plan.characters * rng.usize(55..101) / 100, ..plan };
        let text = if plan.variety == 0 {
            book::notes(rng, split, plan).finish(String::new())
        } else if rng.u32(..100) < drills {
            // Half of the text tells, half asks, in sentences of about 40 characters.
            let facts = plan.characters / 80;
            let each = rng.usize(1..5).min(1 + facts / 4);
            let people = (facts / each).clamp(2, 24);
            let size = Size { people, each, towns: rng.usize(..3), alike: true };
            book::lesson(rng, split, size, plan).finish(String::new())
        } else {
            let size = size_for(rng, plan.characters);
            let questions = 2 + plan.characters / 1200;
            match rng.u32(..100) {
                0..55 => book::tell(rng, split, size, plan).finish(String::new()),
                55..80 => article::answered(rng, split, size, plan, questions),
                80..95 => story::lesson(rng, split, size, plan, 3),
                _ => story::answered_prompt(rng, split, size, plan),
            }
        };
        Text { name, ..text }
    })
}
