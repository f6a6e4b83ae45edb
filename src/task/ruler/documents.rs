//! Questions about one of many documents: SQuAD's and HotpotQA's (RULER's `qa.py`), read from the files of their releases. How
//! they are asked is in `configs/benchmarks/ruler_qa_squad.yaml` and `ruler_qa_hotpot.yaml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde::Deserialize;

use super::example::{Example, Generator};
use crate::bounded_read;

/// Documents, and questions about them in the order of the file.
pub struct Documents {
    documents: Vec<String>,
    questions: Vec<Question>,
}

struct Question {
    text: String,
    answers: Vec<String>,
    /// The documents that it is about.
    own: Vec<usize>,
    /// Documents of the same article, taken before others.
    near: Vec<usize>,
}

#[derive(Deserialize)]
struct Squad {
    data: Vec<SquadArticle>,
}

#[derive(Deserialize)]
struct SquadArticle {
    paragraphs: Vec<SquadParagraph>,
}

#[derive(Deserialize)]
struct SquadParagraph {
    context: String,
    qas: Vec<SquadQuestion>,
}

#[derive(Deserialize)]
struct SquadQuestion {
    question: String,
    answers: Vec<SquadAnswer>,
    /// Version 1.1 has only questions with answers, and no such field.
    #[serde(default)]
    is_impossible: bool,
}

#[derive(Deserialize)]
struct SquadAnswer {
    text: String,
}

#[derive(Deserialize)]
struct HotpotQuestion {
    question: String,
    answer: String,
    /// Titles and sentences.
    context: Vec<(String, Vec<String>)>,
}

/// Bytes of a file; HotpotQA's has 46 million.
const MOST_BYTES: u64 = 1 << 30;

impl Documents {
    /// Reads SQuAD's `dev-v2.0.json`; questions without an answer are left out.
    ///
    /// # Errors
    /// A file that cannot be read or has another form, or that holds no question; the message names it.
    pub fn of_squad(file: &Path) -> Result<Documents> {
        let Squad { data } = read(file, "SQuAD's dev-v2.0.json")?;
        let contexts = data.iter().flat_map(|article| &article.paragraphs).map(|part| part.context.clone());
        let (documents, number) = numbers(contexts);
        let mut questions = Vec::new();
        for article in data {
            let all: Vec<usize> = article.paragraphs.iter().map(|part| number[&part.context]).collect();
            for SquadParagraph { context, qas } in article.paragraphs {
                let own = number[&context];
                let near: Vec<usize> = all.iter().copied().filter(|other| *other != own).collect();
                let answered =
                    qas.into_iter().filter(|question| !question.is_impossible && !question.answers.is_empty());
                questions.extend(answered.map(|SquadQuestion { question, answers, .. }| Question {
                    text: question,
                    answers: answers.into_iter().map(|answer| answer.text).collect(),
                    own: vec![own],
                    near: near.clone(),
                }));
            }
        }
        Documents { documents, questions }.with_questions(file)
    }

    /// Reads HotpotQA's `hotpot_dev_distractor_v1.json`.
    ///
    /// # Errors
    /// A file that cannot be read or has another form, or that holds no question; the message names it.
    pub fn of_hotpot(file: &Path) -> Result<Documents> {
        let data: Vec<HotpotQuestion> = read(file, "HotpotQA's hotpot_dev_distractor_v1.json")?;
        let document = |(title, sentences): &(String, Vec<String>)| format!("{title}\n{}", sentences.concat());
        let (documents, number) = numbers(data.iter().flat_map(|question| &question.context).map(document));
        let questions = data.into_iter().map(|HotpotQuestion { question, answer, context }| Question {
            text: question,
            answers: vec![answer],
            own: context.iter().map(|part| number[&document(part)]).collect(),
            near: Vec::new(),
        });
        let questions = questions.collect();
        Documents { documents, questions }.with_questions(file)
    }

    fn with_questions(self, file: &Path) -> Result<Documents> {
        ensure!(!self.questions.is_empty(), "{} holds no question with an answer", file.display());
        Ok(self)
    }

    /// Questions there are.
    pub fn len(&self) -> usize {
        self.questions.len()
    }
}

fn read<T: serde::de::DeserializeOwned>(file: &Path, what: &str) -> Result<T> {
    bounded_read::json(file, MOST_BYTES).with_context(|| format!("expected {what}"))
}

/// Different documents in the order of their text, and the number of each.
fn numbers(documents: impl Iterator<Item = String>) -> (Vec<String>, BTreeMap<String, usize>) {
    let documents: Vec<String> = documents.collect::<BTreeSet<String>>().into_iter().collect();
    let numbers = documents.iter().cloned().zip(0..).collect();
    (documents, numbers)
}

impl Generator for Documents {
    fn step(&self) -> usize {
        10
    }

    fn least(&self, sample: usize) -> usize {
        self.questions[sample].own.len()
    }

    fn make(&self, size: usize, sample: usize, rng: &mut Rng) -> Example {
        let Question { text, answers, own, near } = &self.questions[sample];
        let mut chosen: Vec<usize> = if size >= self.documents.len() {
            // All of them, and again from the first, as in RULER.
            (0..self.documents.len()).cycle().take(size).collect()
        } else {
            let more = size.saturating_sub(own.len());
            if more > near.len() {
                let taken: BTreeSet<usize> = own.iter().chain(near).copied().collect();
                let others = (0..self.documents.len()).filter(|other| !taken.contains(other));
                [&own[..], near, &rng.choose_multiple(others, more - near.len())].concat()
            } else {
                [&own[..], &rng.choose_multiple(near.iter().copied(), more)].concat()
            }
        };
        rng.shuffle(&mut chosen);
        let documents =
            (1..).zip(chosen).map(|(number, index)| format!("Document {number}:\n{}", self.documents[index]));
        Example {
            document: documents.collect::<Vec<_>>().join("\n\n"),
            question: text.clone(),
            references: answers.clone(),
            ..Example::default()
        }
    }
}
