//! The question to the judge, after the paper's appendix D.
//!
//! The paper shows parts of its prompt: the first line, the request for the stories, two responses separated by a line of
//! dashes, and the choice of exactly one of (A), (B) or, for equal quality, (C), in a single phrase. The words between
//! are ours.

/// Version of the question. It is part of a verdict cell's id: raise it whenever the question changes.
pub const PROMPT_VERSION: u32 = 1;

/// The line between the two responses.
const RULE: &str = "------------------------------------------------------------";

/// Added if an answer to the same question could not be read.
const REMINDER: &str = "\n\nAnswer with nothing but (A), (B) or (C).";

/// The question about two answers to `request`, in the order in which they are shown.
pub(super) fn question(request: &str, first: &str, second: &str, reminded: bool) -> String {
    format!(
        "Help me decide which response is better given the prompt:\n\n{request}\n\nWhich of these two \
         responses is better? They are separated by a line of dashes.\n\nResponse (A): {first}\n\n{RULE}\n\n\
         Response (B): {second}\n\n{RULE}\n\nChoose exactly one option: (A) if response (A) is better, (B) if \
         response (B) is better, or (C) if both are of equal quality. Answer concisely, with a single phrase.{}",
        if reminded { REMINDER } else { "" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::STORY_REQUEST;

    #[test]
    fn the_question_of_version_1_stays_as_it_is() {
        let expected = "Help me decide which response is better given the prompt:\n\n\
            Write a very long story (at least 4,000 words). The story should include at least 20 named \
            characters, spans 3 countries and 9 cities, at least 10 chapters and should have a lot of plot \
            twists.\n\n\
            Which of these two responses is better? They are separated by a line of dashes.\n\n\
            Response (A): one\n\n------------------------------------------------------------\n\n\
            Response (B): two\n\n------------------------------------------------------------\n\n\
            Choose exactly one option: (A) if response (A) is better, (B) if response (B) is better, or (C) if \
            both are of equal quality. Answer concisely, with a single phrase.";
        assert_eq!(PROMPT_VERSION, 1, "a changed question needs a new version");
        assert_eq!(question(STORY_REQUEST, "one", "two", false), expected);
        assert_eq!(question(STORY_REQUEST, "one", "two", true), expected.to_string() + REMINDER);
    }
}
