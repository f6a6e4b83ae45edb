//! What is asked of a model, and how the answer is marked.
//!
//! Knows texts, their cutting and the marks of an answer; which experiments exist, and where their results go, is not
//! known here.

mod answers;
mod archive;
mod asking;
mod classes;
mod data_source;
mod decoding;
mod effort;
pub(crate) mod embedded;
mod labels;
mod lifetimes;
mod needle;
mod perplexity;
mod prompt;
mod qasper;
mod question;
mod questions;
mod reading;
mod recall;
mod requests;
mod retention;
mod samples;
mod settings;
mod source;
mod speech;
mod squality;
mod story;
mod story_prompt;
mod style;
mod texts;
mod timing;
mod zeroscrolls;

pub use asking::{Asking, Samples};
pub use data_source::{DataSource, EMBEDDED, EMBEDDED_QUESTIONS, RANDOM_WORDS};
pub use effort::Effort;
pub use embedded::{MOST_EMBEDDED_BOOKS, MOST_EMBEDDED_PROMPTS};
pub use lifetimes::Lifetimes;
pub use perplexity::{AT_ONCE, Measured, SideFile, measure};
pub use prompt::{Fitted, Prompt};
pub use question::{Benchmark, PromptStyle, Question, Split, questions_digest, require_references};
pub use reading::{Reading, Topline};
pub use recall::AskedFor;
pub use requests::{Asked, Request, Requests};
pub use samples::{Sample, cut, resolve_bos};
pub use settings::{
    Answering, Bos, Fact, Needle, Perplexity, Retention, StoryRequest, Storytelling, Tail, TaskSpec, Texts,
};
pub use source::read_questions;
pub use story::request_of;
pub use story_prompt::{STORY_PROMPT, STORY_REQUEST};
pub use style::{Prefill, Style};
pub use texts::{Book, digest, read_books, read_text};
pub use timing::Timing;
