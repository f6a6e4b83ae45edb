//! Stories with questions and several reference summaries each, and requests to write a story.

use fastrand::Rng;

use super::facts::{Size, Split, Subject, pick};
use super::teller::{Teller, Voice};
use super::words::{TOWNS, TRADES, in_letters};
use super::{Plan, Text, book};

/// A story, and what is asked of it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Story {
    pub name: String,
    pub text: String,
    pub questions: Vec<Summaries>,
}

/// A question that a paragraph answers, and some such paragraphs.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summaries {
    pub question: String,
    pub summaries: Vec<String>,
}

/// The words before a story, as ZeroSCROLLS has them for SQuALITY.
pub const INSTRUCTION: &str = "You are given a story and a question. Answer the question in a paragraph.";

/// Reference summaries of a question, as many as SQuALITY has.
const REFERENCES: usize = 4;

const PLOTS: [&str; 4] = [
    "It is a story about people and what is known of them.",
    "Somebody goes from house to house and hears about the neighbours.",
    "The story tells of people, their towns and their troubles.",
    "In many talks and letters we learn who is who.",
];

/// What a question is about: one person, or everybody.
fn question(teller: &mut Teller, about: Option<usize>) -> String {
    match about {
        None => "What is the plot of the story?".to_string(),
        Some(person) => {
            let name = teller.world.people[person].full();
            match teller.rng.usize(..3) {
                0 => format!("Who is {name}?"),
                1 => format!("Describe {name}."),
                _ => format!("What do we learn about {name} in the story?"),
            }
        }
    }
}

/// Writes a summary at the end of the text: what is true in the end.
fn summarize(teller: &mut Teller, about: Option<usize>) {
    let facts: Vec<usize> = (0..teller.world.facts.len())
        .filter(|fact| about.is_none_or(|person| teller.world.facts[*fact].subject == Subject::Person(person)))
        .filter(|fact| teller.is_told(*fact))
        .collect();
    let facts = match about {
        None => {
            let line = teller.one(&PLOTS);
            teller.say(line);
            pick(&mut teller.rng, &facts, 6)
        }
        Some(_) => {
            let count = facts.len().saturating_sub(teller.rng.usize(..2)).max(1);
            pick(&mut teller.rng, &facts, count)
        }
    };
    for fact in facts {
        teller.tell(fact, Voice::Somebody);
    }
}

/// Whom questions are asked about, the whole story first.
fn subjects(teller: &mut Teller, questions: usize) -> Vec<Option<usize>> {
    let people: Vec<usize> = (0..teller.world.people.len()).collect();
    let people = pick(&mut teller.rng, &people, questions.saturating_sub(1));
    std::iter::once(None).chain(people.into_iter().map(Some)).collect()
}

/// A story and its questions.
pub(super) fn story(rng: &mut Rng, split: Split, size: Size, plan: Plan, questions: usize) -> Story {
    let mut teller = book::tell(rng, split, size, plan);
    let text = teller.text.clone();
    let asked = subjects(&mut teller, questions)
        .into_iter()
        .map(|about| {
            let question = question(&mut teller, about);
            let summaries = (0..REFERENCES)
                .map(|_| {
                    teller.paragraph();
                    let start = teller.text.len();
                    summarize(&mut teller, about);
                    teller.text[start..].to_string()
                })
                .collect();
            Summaries { question, summaries }
        })
        .collect();
    Story { name: String::new(), text, questions: asked }
}

/// A story with questions and summaries below it, to learn from.
pub(super) fn lesson(rng: &mut Rng, split: Split, size: Size, plan: Plan, questions: usize) -> Text {
    let mut teller = book::tell(rng, split, size, plan);
    let before = if teller.chance(60) { format!("{INSTRUCTION}\n\nStory:\n") } else { "Story:\n".to_string() };
    teller.precede(&before);
    for about in subjects(&mut teller, questions) {
        let question = question(&mut teller, about);
        teller.paragraph();
        teller.say(&format!("Question:\n{question}\n\nAnswer:\n"));
        summarize(&mut teller, about);
    }
    teller.finish(String::new())
}

/// A request for a story.
pub(super) fn prompt(rng: &mut Rng) -> String {
    let (people, towns, chapters) = (rng.usize(4..12), rng.usize(2..6), rng.usize(3..20));
    match rng.usize(..3) {
        0 => format!(
            "Write a long story. The story should include at least {} named characters, {} towns and {} chapters.",
            people, towns, chapters
        ),
        1 => format!(
            "Write a story about a {} in {}. It should have at least {} chapters.",
            TRADES[rng.usize(..TRADES.len())],
            TOWNS[rng.usize(..TOWNS.len())],
            in_letters(chapters)
        ),
        _ => format!("Tell me a story about {} people who know each other.", in_letters(people)),
    }
}

/// A request and a story that answers it, to learn from.
pub(super) fn answered_prompt(rng: &mut Rng, split: Split, size: Size, plan: Plan) -> Text {
    let asked = prompt(rng);
    let mut teller = book::tell(rng, split, size, plan);
    teller.precede(&format!("{asked}\n\n"));
    teller.finish(String::new())
}
