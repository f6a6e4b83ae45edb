//! LongBench's English and code subsets: their prompts, their limits of new tokens and their measures.
//!
//! From `config/dataset2prompt.json`, `config/dataset2maxlen.json`, `pred.py` and `eval.py` in `LongBench/` of
//! THUDM/LongBench.

use crate::metric::LongBenchMeasure::{self, Class, CodeLine, Count, F1, Paragraph, RougeL};

/// One of LongBench's data sets.
#[derive(Debug)]
pub struct Subset {
    /// The name in YAML, in slices and in file names.
    pub name: &'static str,
    /// The prompt, with `{context}` and perhaps `{input}` behind it.
    pub prompt: &'static str,
    pub max_new_tokens: usize,
    pub measure: LongBenchMeasure,
    /// Whether LongBench-E has it too.
    pub in_e: bool,
    /// Whether its prompts are never put inside a chat template.
    pub is_plain: bool,
    /// Whether only an answer's first line that is not empty is scored.
    pub takes_first_line: bool,
}

impl Subset {
    /// The subset of a name, if it is one of [`SUBSETS`].
    pub fn of(name: &str) -> Option<&'static Subset> {
        SUBSETS.iter().find(|subset| subset.name == name)
    }

    /// The prompt of a row, as Python's `str.format` fills the template.
    pub fn filled(&self, context: &str, input: &str) -> String {
        let (before, after) = self.prompt.split_once("{context}").unwrap_or((self.prompt, ""));
        [before, context, &after.replace("{input}", input)].concat()
    }

    /// The score of an answer: the best over the references.
    pub fn score(&self, answer: &str, references: &[String], classes: &[String]) -> f64 {
        let first_line = || answer.trim_start_matches('\n').split('\n').next().unwrap_or_default();
        let answer = if self.takes_first_line { first_line() } else { answer };
        references.iter().map(|reference| self.measure.score(answer, reference, classes)).fold(0.0, f64::max)
    }
}

/// Those in Chinese. The measures of most split Chinese words.
pub const CHINESE: [&str; 5] = ["multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh"];

/// The prompt of the three subsets whose questions need several passages.
const MULTI_HOP: &str = "Answer the question based on the given passages. Only give me the answer and do not \
                 output any other words.\n\nThe following are given passages.\n{context}\n\nAnswer the \
                 question based on the given passages. Only give me the answer and do not output any \
                 other words.\n\nQuestion: {input}\nAnswer:";

/// All that can be measured, in LongBench's order.
pub static SUBSETS: [Subset; 16] = [
    Subset {
        name: "narrativeqa",
        prompt: "You are given a story, which can be either a novel or a movie script, and a question. \
                 Answer the question asconcisely as you can, using a single phrase if possible. Do not \
                 provide any explanation.\n\nStory: {context}\n\nNow, answer the question based on the \
                 story asconcisely as you can, using a single phrase if possible. Do not provide any \
                 explanation.\n\nQuestion: {input}\n\nAnswer:",
        max_new_tokens: 128,
        measure: F1,
        in_e: false,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "qasper",
        prompt: "You are given a scientific article and a question. Answer the question as concisely as \
                 you can, using a single phrase or sentence if possible. If the question cannot be \
                 answered based on the information in the article, write \"unanswerable\". If the \
                 question is a yes/no question, answer \"yes\", \"no\", or \"unanswerable\". Do not \
                 provide any explanation.\n\nArticle: {context}\n\n Answer the question based on the \
                 above article as concisely as you can, using a single phrase or sentence if possible. If \
                 the question cannot be answered based on the information in the article, write \
                 \"unanswerable\". If the question is a yes/no question, answer \"yes\", \"no\", or \
                 \"unanswerable\". Do not provide any explanation.\n\nQuestion: {input}\n\nAnswer:",
        max_new_tokens: 128,
        measure: F1,
        in_e: true,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "multifieldqa_en",
        prompt: "Read the following text and answer briefly.\n\n{context}\n\nNow, answer the following \
                 question based on the above text, only give me the answer and do not output any other \
                 words.\n\nQuestion: {input}\nAnswer:",
        max_new_tokens: 64,
        measure: F1,
        in_e: true,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "hotpotqa",
        prompt: MULTI_HOP,
        max_new_tokens: 32,
        measure: F1,
        in_e: true,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "2wikimqa",
        prompt: MULTI_HOP,
        max_new_tokens: 32,
        measure: F1,
        in_e: true,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "musique",
        prompt: MULTI_HOP,
        max_new_tokens: 32,
        measure: F1,
        in_e: false,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "gov_report",
        prompt: "You are given a report by a government agency. Write a one-page summary of the \
                 report.\n\nReport:\n{context}\n\nNow, write a one-page summary of the \
                 report.\n\nSummary:",
        max_new_tokens: 512,
        measure: RougeL,
        in_e: true,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "qmsum",
        prompt: "You are given a meeting transcript and a query containing a question or instruction. \
                 Answer the query in one or more sentences.\n\nTranscript:\n{context}\n\nNow, answer the \
                 query based on the above meeting transcript in one or more sentences.\n\nQuery: \
                 {input}\nAnswer:",
        max_new_tokens: 512,
        measure: RougeL,
        in_e: false,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "multi_news",
        prompt: "You are given several news passages. Write a one-page summary of all news. \n\nNews:\n{context}\n\nNow, \
                 write a one-page summary of all the news.\n\nSummary:",
        max_new_tokens: 512,
        measure: RougeL,
        in_e: true,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "trec",
        prompt: "Please determine the type of the question below. Here are some examples of \
                 questions.\n\n{context}\n{input}",
        max_new_tokens: 64,
        measure: Class,
        in_e: true,
        is_plain: true,
        takes_first_line: true,
    },
    Subset {
        name: "triviaqa",
        prompt: "Answer the question based on the given passage. Only give me the answer and do not \
                 output any other words. The following are some examples.\n\n{context}\n\n{input}",
        max_new_tokens: 32,
        measure: F1,
        in_e: true,
        is_plain: true,
        takes_first_line: true,
    },
    Subset {
        name: "samsum",
        prompt: "Summarize the dialogue into a few short sentences. The following are some \
                 examples.\n\n{context}\n\n{input}",
        max_new_tokens: 128,
        measure: RougeL,
        in_e: true,
        is_plain: true,
        takes_first_line: true,
    },
    Subset {
        name: "passage_count",
        prompt: "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. \
                 Please carefully read these paragraphs and determine how many unique paragraphs there \
                 are after removing duplicates. In other words, how many non-repeating paragraphs are \
                 there in total?\n\n{context}\n\nPlease enter the final count of unique paragraphs after \
                 removing duplicates. The output format should only contain the number, such as 1, 2, 3, \
                 and so on.\n\nThe final answer is: ",
        max_new_tokens: 32,
        measure: Count,
        in_e: true,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "passage_retrieval_en",
        prompt: "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which \
                 paragraph the abstract is from.\n\n{context}\n\nThe following is an \
                 abstract.\n\n{input}\n\nPlease enter the number of the paragraph that the abstract is \
                 from. The answer format must be like \"Paragraph 1\", \"Paragraph 2\", etc.\n\nThe \
                 answer is: ",
        max_new_tokens: 32,
        measure: Paragraph,
        in_e: true,
        is_plain: false,
        takes_first_line: false,
    },
    Subset {
        name: "lcc",
        prompt: "Please complete the code given below. \n{context}Next line of code:\n",
        max_new_tokens: 64,
        measure: CodeLine,
        in_e: true,
        is_plain: true,
        takes_first_line: false,
    },
    Subset {
        name: "repobench-p",
        prompt: "Please complete the code given below. \n{context}{input}Next line of code:\n",
        max_new_tokens: 64,
        measure: CodeLine,
        in_e: true,
        is_plain: true,
        takes_first_line: false,
    },
];
