//! Generates English texts about invented people and towns that repeat facts they stated earlier.
//!
//! Every text follows from a seed. Every recall (a repeated fact) says where the fact was last stated and how many values
//! a guess would have to choose from. tova-bench embeds some of these texts, and the pocket model was trained on others;
//! see models/pocket/README.md.

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

/// A text and the facts it repeats.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Text {
    /// Kind, split, seed and number: `book-test-7-0`.
    pub name: String,
    pub text: String,
    /// In the order of the text.
    pub recalls: Vec<Recall>,
}

/// A part of a text that can only be predicted by remembering an earlier part.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Recall {
    /// The kind of fact: `home`, `trade`, ...
    pub kind: &'static str,
    /// Byte at which the latest statement of the fact ends; before `answer`.
    pub told: usize,
    /// Bytes of the answer.
    #[serde(serialize_with = "as_pair")]
    pub answer: Range<usize>,
    /// Values of this kind that the text has named before: guessing among them is right once in `choices` times.
    pub choices: u32,
}

fn as_pair<S: serde::Serializer>(range: &Range<usize>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&[range.start, range.end], serializer)
}

pub use article::{Article, Question};
pub use story::{Story, Summaries};

/// The seed of the embedded texts.
pub const EMBEDDED_SEED: u64 = 1;

/// Characters that make at least 4096 tokens of the pocket model's tokenizer.
const LONG: usize = 22_000;

/// Longest planned distance of a recall, in tokens.
const FARTHEST: usize = 4000;

/// `count` texts, each from a seed of its own that follows from the kind of text, the split and `seed`.
fn each<T>(
    what: &'static str,
    split: Split,
    seed: u64,
    count: usize,
    make: impl Fn(&mut Rng, String) -> T,
) -> impl Iterator<Item = T> {
    (0..count).map(move |number| {
        let name = format!("{what}-{}-{seed}-{number}", split.name());
        // Seeds come from names, so that no two kinds of text describe the same people.
        let seed = fnv1a(name.bytes());
        make(&mut Rng::with_seed(seed), name)
    })
}

/// A size such that about a quarter of a text of `characters` introduces people.
fn size_for(rng: &mut Rng, characters: usize) -> Size {
    let each = rng.usize(3..6);
    let people = (characters / (4 * 55 * each)).clamp(2, 12);
    Size { people, each, towns: (people / 2).max(1), alike: false }
}

/// Texts for perplexity and recall, of at least 4096 tokens of the pocket model's tokenizer.
pub fn books(split: Split, seed: u64, count: usize) -> impl Iterator<Item = Text> {
    let plan = Plan { characters: LONG, variety: usize::MAX, farthest: FARTHEST };
    each("book", split, seed, count, move |rng, name| {
        let size = size_for(rng, plan.characters);
        book::tell(rng, split, size, plan).finish(name)
    })
}

/// Articles with questions and answers below them, about 4000 tokens in all. Only the answers count as recalls.
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

/// Stories of about 3000 tokens with questions, each with several reference summaries.
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

/// Training texts: drills, stories, and articles, stories and requests with their answers.
pub fn lessons(split: Split, seed: u64, count: usize, plan: Plan, drills: u32) -> impl Iterator<Item = Text> {
    each("lesson", split, seed, count, move |rng, name| {
        // Lengths vary, so that the model does not learn at which position texts end.
        let plan = Plan { characters: plan.characters * rng.usize(55..101) / 100, ..plan };
        let text = if plan.variety == 0 {
            book::notes(rng, split, plan).finish(String::new())
        } else if rng.u32(..100) < drills {
            // Half of the text states facts, half asks for them, in sentences of about 40 characters.
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
