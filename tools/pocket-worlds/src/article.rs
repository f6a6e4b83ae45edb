//! Articles about a parish and questions about them; a fifth of the questions cannot be answered.

use fastrand::Rng;

use super::facts::{Fact, Kind, Size, Split, Subject, World, pick};
use super::forms::forms;
use super::teller::{Teller, Voice};
use super::words::{ANIMALS, KINSWOMEN};
use super::{Plan, Recall, Text};

/// A question and every answer that counts.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Question {
    pub question: String,
    pub answers: Vec<String>,
    /// The kind of fact asked for, or `unanswerable`.
    pub kind: &'static str,
}

/// A text to answer questions from.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Article {
    pub name: String,
    pub text: String,
    pub questions: Vec<Question>,
}

/// What stands for an answer that the article does not give, as in QASPER.
pub const UNANSWERABLE: &str = "unanswerable";
/// So many questions of a hundred have no answer.
const UNANSWERABLE_PERCENT: u32 = 20;

/// The words before an article, as ZeroSCROLLS has them for QASPER.
pub const INSTRUCTION: &str = "You are given a scientific article and a question. Answer the question as concisely as \
     you can, using a single phrase or sentence if possible. If the question cannot be answered based on the \
     information in the article, write \"unanswerable\". If the question is a yes/no question, answer \"yes\", \"no\", \
     or \"unanswerable\".";

const PURPOSES: &[&str] = &[
    "This report was made for the county. It says who lives here and how.",
    "We went from house to house for this survey and wrote down what we were told.",
    "The following pages are taken from the parish book and were checked twice.",
    "Little has been written about these people. This article tries to mend that.",
];
const METHODS: &[&str] = &[
    "All answers were given freely.",
    "Nobody was asked twice.",
    "We thank the clerk for his patience.",
    "The numbers were compared with those of the bank.",
    "Some doors stayed closed.",
    "We kept to what was certain.",
    "The data are not complete.",
    "The same was found in earlier surveys.",
];
const CONCLUSIONS: &[&str] = &[
    "More work is needed before anything can be said about the county as a whole.",
    "The survey will be repeated in ten years.",
    "It is to be hoped that the book will be kept dry.",
];

/// The article as a text in the making, so that questions can follow in it.
fn write(rng: &mut Rng, split: Split, size: Size, plan: Plan) -> Teller {
    let world = World::new(rng, split, size);
    let mut teller = Teller::new(world, rng.fork(), plan.variety, plan.farthest);
    let town = teller.world.towns.first().copied().unwrap_or("the Valley");
    let title = match teller.rng.usize(..3) {
        0 => format!("The People of {town}: A Survey"),
        1 => format!("Notes on the Parish of {town}"),
        _ => format!("Who Lives Where? A Study of {town} and its Neighbours"),
    };
    teller.say(&title);
    let mut section = 0;
    let mut heading = |teller: &mut Teller, name: &str| {
        section += 1;
        teller.paragraph();
        teller.say(&format!("{section}. {name}"));
        teller.paragraph();
    };
    heading(&mut teller, "Introduction");
    for list in [PURPOSES, METHODS] {
        let line = teller.line(list);
        teller.say(line);
    }
    heading(&mut teller, "The people");
    let mut order: Vec<usize> = (0..teller.world.people.len()).collect();
    teller.rng.shuffle(&mut order);
    for person in order {
        subject(&mut teller, Subject::Person(person));
    }
    if !teller.world.towns.is_empty() {
        heading(&mut teller, "The towns");
        for town in 0..teller.world.towns.len() {
            subject(&mut teller, Subject::Town(town));
        }
    }
    while teller.text.len() < plan.characters {
        heading(&mut teller, "Further observations");
        for _ in 0..3 {
            if teller.text.len() >= plan.characters {
                break;
            }
            let count = teller.rng.usize(3..8);
            for fact in teller.recall(count) {
                teller.tell(fact, Voice::Narrator);
            }
            let line = teller.line(METHODS);
            teller.say(line);
            teller.paragraph();
        }
    }
    heading(&mut teller, "Conclusion");
    let line = teller.line(CONCLUSIONS);
    teller.say(line);
    teller
}

fn subject(teller: &mut Teller, subject: Subject) {
    let mut facts = teller.world.facts_of(subject);
    teller.rng.shuffle(&mut facts);
    for fact in facts {
        teller.tell(fact, Voice::Narrator);
    }
    if teller.chance(20) {
        let line = teller.line(METHODS);
        teller.say(line);
    }
    if matches!(subject, Subject::Person(_)) || teller.chance(50) {
        teller.paragraph();
    }
}

/// A question whose answer the article does not have: of somebody it names, a kind it does not tell.
fn unanswerable(teller: &mut Teller) -> Option<String> {
    let missing: Vec<(usize, Kind)> = (0..teller.world.people.len())
        .flat_map(|person| Kind::OF_PEOPLE.map(|kind| (person, kind)))
        .filter(|(person, kind)| {
            !teller.world.facts.iter().any(|fact| fact.subject == Subject::Person(*person) && fact.kind == *kind)
        })
        .collect();
    let (person, kind) = *teller.rng.choice(&missing)?;
    let noun = match kind {
        Kind::Animal => teller.one(&ANIMALS),
        _ => teller.one(&KINSWOMEN),
    };
    let (question, _, _) = teller.one(forms(kind).asked);
    Some(teller.asked_of(question, Subject::Person(person), noun))
}

/// An article and its questions.
pub(super) fn article(rng: &mut Rng, split: Split, size: Size, plan: Plan, questions: usize) -> Article {
    let mut teller = write(rng, split, size, plan);
    let mut facts: Vec<usize> = (0..teller.world.facts.len()).collect();
    teller.rng.shuffle(&mut facts);
    let mut asked = Vec::new();
    for fact in facts.into_iter().take(questions) {
        asked.push(match teller.chance(UNANSWERABLE_PERCENT).then(|| unanswerable(&mut teller)).flatten() {
            Some(question) => Question { question, answers: vec![UNANSWERABLE.to_string()], kind: UNANSWERABLE },
            None => {
                let (question, (before, after)) = teller.question(fact);
                let Fact { kind, value, .. } = &teller.world.facts[fact];
                let mut answers = vec![value.clone(), format!("{before}{value}{after}")];
                answers.dedup();
                Question { question, answers, kind: kind.name() }
            }
        });
    }
    Article { name: String::new(), text: teller.text, questions: asked }
}

/// An article with questions and their answers below it.
pub(super) fn answered(rng: &mut Rng, split: Split, size: Size, plan: Plan, questions: usize) -> Text {
    let mut teller = write(rng, split, size, plan);
    let before = if teller.chance(40) { format!("{INSTRUCTION}\n\nArticle:\n") } else { "Article:\n".to_string() };
    teller.precede(&before);
    let article = teller.text.len();
    let facts: Vec<usize> = (0..teller.world.facts.len()).collect();
    for fact in pick(rng, &facts, questions) {
        teller.paragraph();
        if let Some(question) = teller.chance(UNANSWERABLE_PERCENT).then(|| unanswerable(&mut teller)).flatten() {
            teller.say(&format!("Question:\n{question}\n\nAnswer:\n"));
            let answer = teller.text.len()..teller.text.len() + UNANSWERABLE.len();
            teller.text.push_str(UNANSWERABLE);
            let choices = 100 / UNANSWERABLE_PERCENT;
            teller.recalls.push(Recall { kind: UNANSWERABLE, told: article, answer, choices });
        } else {
            let (question, (before, after)) = teller.question(fact);
            teller.say(&format!("Question:\n{question}\n\nAnswer:\n"));
            teller.answer(fact, before, after);
        }
    }
    teller.finish(String::new())
}

/// The same, asking for nothing but the answers.
pub(super) fn quiz(rng: &mut Rng, split: Split, size: Size, plan: Plan, questions: usize) -> Text {
    let mut text = answered(rng, split, size, plan, questions);
    let first = text.text.find("\n\nQuestion:\n").unwrap_or(text.text.len());
    text.recalls.retain(|recall| recall.answer.start > first);
    text
}
