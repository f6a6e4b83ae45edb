//! What the judge is asked: the paper's question (its appendix D), with two stories in it.
//!
//! The paper describes its prompt and shows parts of it: the first line, the prompt of the stories, two responses
//! with a long rule of dashes between them, and a choice of (A), (B) or (C) for equal quality, exactly one, in a
//! single phrase. What it does not show is put into plain words here.

/// Version of the question; part of every judged cell's id, so it is bumped whenever a letter of it changes.
pub const PROMPT_VERSION: u32 = 1;

/// What stands between the two responses.
const RULE: &str = "------------------------------------------------------------";

/// Added where an answer to the same question could not be read.
const REMINDER: &str = "\n\nAnswer with nothing but (A), (B) or (C).";

/// The question about two stories that were asked for with `request`, in the order in which they are shown.
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
    fn the_question_of_version_1_is_this() {
        let expected = "Help me decide which response is better given the prompt:\n\n\
            Write a very long story (at least 4,000 words). The story should include at least 20 named \
            characters, spans 3 countries and 9 cities, at least 10 chapters and should have a lot of plot \
            twists.\n\n\
            Which of these two responses is better? They are separated by a line of dashes.\n\n\
            Response (A): one\n\n------------------------------------------------------------\n\n\
            Response (B): two\n\n------------------------------------------------------------\n\n\
            Choose exactly one option: (A) if response (A) is better, (B) if response (B) is better, or (C) if \
            both are of equal quality. Answer concisely, with a single phrase.";
        assert_eq!(PROMPT_VERSION, 1, "a new version has new words, and new words are a new version");
        assert_eq!(question(STORY_REQUEST, "one", "two", false), expected);
        assert_eq!(question(STORY_REQUEST, "one", "two", true), expected.to_string() + REMINDER);
    }
}
