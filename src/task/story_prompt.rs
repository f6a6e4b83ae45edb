//! What the paper asks a model to write, word for word (its section on story generation).
//!
//! Knows one text. Who writes stories reads it, and who judges them shows the request to the judge.

/// The request, for both constants below: `concat!` takes literals only.
macro_rules! request {
    () => {
        "Write a very long story (at least 4,000 words). The story should include at least 20 named characters, \
         spans 3 countries and 9 cities, at least 10 chapters and should have a lot of plot twists."
    };
}

/// The request alone.
pub const STORY_REQUEST: &str = request!();

/// The request in the form the paper's story model was tuned on: what a model reads before it writes.
pub const STORY_PROMPT: &str = concat!("### Instruction:\n", request!(), "\n\n### Response:\n");
