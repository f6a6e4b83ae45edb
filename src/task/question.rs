//! Questions about documents: the benchmarks, the wording of their prompts, and what a set of questions must have.
//!
//! Knows both benchmarks' texts as ZeroSCROLLS (Shaham et al. 2023, appendix A) and the paper (table 4) print
//! them; how files spell questions, and how answers are marked, is not known here.

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};

use super::prompt::Prompt;

/// One question, ready to be asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Unique among the questions of a file.
    pub name: String,
    /// What questions about the same document share.
    pub cluster: String,
    pub prompt: Prompt,
    /// What people answered; empty where nobody published it.
    pub references: Vec<String>,
    /// The sort of question, where the data say one: QASPER's `extractive`, `abstractive`, `yes_no`,
    /// `unanswerable`.
    pub kind: Option<String>,
}

/// A set of questions with a metric of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Benchmark {
    /// Summaries of stories that answer a question.
    Squality,
    /// Questions about scientific articles, with short answers.
    Qasper,
}

/// Whose wording a prompt has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
pub enum PromptStyle {
    /// ZeroSCROLLS' own: the instruction first, then the document under a header.
    #[serde(rename = "zeroscrolls")]
    ZeroScrolls,
    /// The paper's: the document first, then the instruction. The paper does not say what marks a cut document; as
    /// it cuts "as in Shaham et al.", that is ZeroSCROLLS' separator.
    #[serde(rename = "paper")]
    Paper,
}

/// Which of a benchmark's published parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Called `dev` in the original releases.
    Validation,
    Test,
}

impl PromptStyle {
    /// The name YAML and cell ids use.
    pub fn name(self) -> &'static str {
        match self {
            PromptStyle::ZeroScrolls => "zeroscrolls",
            PromptStyle::Paper => "paper",
        }
    }
}

impl Split {
    /// The name YAML and ZeroSCROLLS' files use.
    pub fn name(self) -> &'static str {
        match self {
            Split::Validation => "validation",
            Split::Test => "test",
        }
    }
}

/// Stands before a question in either style.
pub(super) const QUESTION_HEADER: &str = "Question:\n";

impl Benchmark {
    /// The name YAML, result rows and ZeroSCROLLS' files use.
    pub fn name(self) -> &'static str {
        match self {
            Benchmark::Squality => "squality",
            Benchmark::Qasper => "qasper",
        }
    }

    /// What ZeroSCROLLS says before the instruction; no two of its tasks begin alike.
    pub(super) fn opening(self) -> &'static str {
        match self {
            Benchmark::Squality => "You are given a story and a question.",
            Benchmark::Qasper => "You are given a scientific article and a question.",
        }
    }

    /// Stands before the document in ZeroSCROLLS' style.
    pub(super) fn document_header(self) -> &'static str {
        match self {
            Benchmark::Squality => "Story:\n",
            Benchmark::Qasper => "Article:\n",
        }
    }

    /// What stands between the end of a cut document and a blank line.
    fn separator(self) -> &'static str {
        match self {
            Benchmark::Squality => "... [The rest of the story is omitted]",
            Benchmark::Qasper => "... [The rest of the article is omitted]",
        }
    }

    fn instruction(self) -> &'static str {
        match self {
            Benchmark::Squality => "Answer the question in a paragraph.",
            Benchmark::Qasper => {
                "Answer the question as concisely as you can, using a single phrase or sentence if possible. If \
                 the question cannot be answered based on the information in the article, write \"unanswerable\". If \
                 the question is a yes/no question, answer \"yes\", \"no\", or \"unanswerable\"."
            }
        }
    }

    /// A question about a document, in the words of a style.
    pub fn prompt(self, style: PromptStyle, document: &str, question: &str) -> Prompt {
        // ZeroSCROLLS ends its prompts with a newline; the paper prints none.
        let (before, between, header) = match style {
            PromptStyle::ZeroScrolls => {
                let before = format!("{} {}\n\n{}", self.opening(), self.instruction(), self.document_header());
                (before, String::new(), "\n\nAnswer:\n")
            }
            PromptStyle::Paper => (String::new(), format!("{}\n\n", self.instruction()), "\n\nAnswer:"),
        };
        Prompt {
            before,
            document: document.to_string(),
            after: format!("\n\n{between}{QUESTION_HEADER}{question}{header}"),
            separator: self.separator().to_string(),
            header: header.len(),
        }
    }
}

/// Checks that every question has an answer to compare with.
///
/// # Errors
/// Questions without one; the message counts them and names the first.
pub fn require_references(questions: &[Question]) -> Result<()> {
    let without: Vec<&Question> = questions.iter().filter(|question| question.references.is_empty()).collect();
    let Some(first) = without.first() else { return Ok(()) };
    bail!(
        "{} of {} questions have no reference answer, the first of them {}; use a split or a release that has its \
         answers, such as the original one",
        without.len(),
        questions.len(),
        first.name
    );
}

/// `sha256:` and 16 hex digits over everything that is asked and every reference.
pub fn questions_digest(questions: &[Question]) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    for Question { name, cluster, prompt, references, kind } in questions {
        let Prompt { before, document, after, separator, header } = prompt;
        for part in [name, cluster, before, document, after, separator] {
            add(part);
        }
        add(&format!("{header} {}", references.len()));
        references.iter().for_each(|reference| add(reference));
        add(kind.as_deref().unwrap_or_default());
    }
    let digest = hash.finalize();
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, references: &[&str]) -> Question {
        Question {
            name: name.into(),
            cluster: "c".into(),
            prompt: Benchmark::Squality.prompt(PromptStyle::Paper, "A fox ran.", "Who ran?"),
            references: references.iter().map(|text| text.to_string()).collect(),
            kind: None,
        }
    }

    #[test]
    fn both_styles_word_for_word() {
        let of = |benchmark: Benchmark, style| benchmark.prompt(style, "A fox ran.", "Who ran?").whole();
        assert_eq!(
            of(Benchmark::Squality, PromptStyle::ZeroScrolls),
            "You are given a story and a question. Answer the question in a paragraph.\n\nStory:\nA fox ran.\n\n\
             Question:\nWho ran?\n\nAnswer:\n"
        );
        assert_eq!(
            of(Benchmark::Squality, PromptStyle::Paper),
            "A fox ran.\n\nAnswer the question in a paragraph.\n\nQuestion:\nWho ran?\n\nAnswer:"
        );
        let instruction = "Answer the question as concisely as you can, using a single phrase or sentence if \
            possible. If the question cannot be answered based on the information in the article, write \
            \"unanswerable\". If the question is a yes/no question, answer \"yes\", \"no\", or \"unanswerable\".";
        assert_eq!(
            of(Benchmark::Qasper, PromptStyle::ZeroScrolls),
            format!(
                "You are given a scientific article and a question. {instruction}\n\nArticle:\nA fox ran.\n\n\
                 Question:\nWho ran?\n\nAnswer:\n"
            )
        );
        assert_eq!(
            of(Benchmark::Qasper, PromptStyle::Paper),
            format!("A fox ran.\n\n{instruction}\n\nQuestion:\nWho ran?\n\nAnswer:")
        );
    }

    #[test]
    fn a_chat_prompt_ends_with_the_question() {
        for style in [PromptStyle::ZeroScrolls, PromptStyle::Paper] {
            let prompt = Benchmark::Qasper.prompt(style, "A fox ran.", "Who ran?");
            assert!(prompt.without_header().whole().ends_with("\n\nQuestion:\nWho ran?"));
        }
    }

    #[test]
    fn names_are_those_of_yaml() {
        for (style, name) in [(PromptStyle::ZeroScrolls, "zeroscrolls"), (PromptStyle::Paper, "paper")] {
            assert_eq!(serde_json::from_value::<PromptStyle>(name.into()).unwrap(), style);
            assert_eq!(style.name(), name);
        }
        for benchmark in [Benchmark::Squality, Benchmark::Qasper] {
            assert_eq!(serde_json::from_value::<Benchmark>(benchmark.name().into()).unwrap(), benchmark);
        }
        for split in [Split::Validation, Split::Test] {
            assert_eq!(serde_json::from_value::<Split>(split.name().into()).unwrap(), split);
        }
    }

    #[test]
    fn missing_references_are_named() {
        require_references(&[question("a", &["the fox"])]).unwrap();
        let questions = [question("a", &["the fox"]), question("b#2", &[]), question("c", &[])];
        let message = require_references(&questions).unwrap_err().to_string();
        assert!(message.contains("2 of 3") && message.contains("b#2"), "{message}");
    }

    #[test]
    fn the_digest_sees_every_part_and_its_border() {
        let one = questions_digest(&[question("a", &["x", "y"])]);
        assert_eq!(one, questions_digest(&[question("a", &["x", "y"])]));
        assert!(one.starts_with("sha256:") && one.len() == 7 + 16);
        assert_ne!(one, questions_digest(&[question("b", &["x", "y"])]));
        assert_ne!(one, questions_digest(&[question("a", &["xy"])]));
        let changed = |change: &dyn Fn(&mut Question)| {
            let mut question = question("a", &["x", "y"]);
            change(&mut question);
            questions_digest(&[question])
        };
        assert_ne!(one, changed(&|question| question.cluster.push('d')));
        assert_ne!(one, changed(&|question| question.kind = Some("yes_no".into())));
        assert_ne!(one, changed(&|question| question.prompt.separator.clear()));
        assert_ne!(one, changed(&|question| question.prompt.header = 0));
        assert_ne!(one, changed(&|question| question.prompt.document.push('!')));
    }
}
