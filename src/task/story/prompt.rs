//! The paper's request for a story, word for word (its section on story generation).

/// The request as a macro, because `concat!` takes only literals.
macro_rules! request {
    () => {
        "Write a very long story (at least 4,000 words). The story should include at least 20 named characters, \
         spans 3 countries and 9 cities, at least 10 chapters and should have a lot of plot twists."
    };
}

/// The request alone, as judges see it.
pub const STORY_REQUEST: &str = request!();

/// The request in the form that the paper's story model was tuned on, as models read it.
pub const STORY_PROMPT: &str = concat!("### Instruction:\n", request!(), "\n\n### Response:\n");
