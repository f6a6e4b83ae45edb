//! A prompt of a document and a question, and how it is cut to a number of tokens.
//!
//! Cuts as ZeroSCROLLS' `run_hf_model.py` does: the document loses its end, the question stays whole.

use anyhow::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Unmeasurable;

/// A text for a model, in the parts that cutting treats differently. Without the separator, they are the whole prompt. The
/// JSON is part of ids of samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Prompt {
    /// The instruction and the document's header; kept when the document is cut.
    pub before: String,
    /// The text that the question is about; loses its end if there is no room for it.
    pub document: String,
    /// The question, and the header of the answer.
    pub after: String,
    /// The text between a cut document and `after`.
    pub separator: String,
    /// Bytes of the answer's header at the end of `after`, with the blank line before it; 0: there is none.
    pub header: usize,
}

/// A prompt in tokens, without BOS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fitted {
    pub tokens: Vec<u32>,
    /// The tokens of all that is before `after`, where fitting needed them.
    pub opening: Option<Vec<u32>>,
    /// The tokens of what is before a document that lost its middle, and of the whole document.
    cut: Option<[Vec<u32>; 2]>,
}

/// What a prompt loses that is too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// The end of the context, as in ZeroSCROLLS.
    #[default]
    End,
    /// The middle of the context: as many tokens stay at its beginning as at its end.
    Middle,
    /// The middle of the whole prompt, instruction and question included, as in LongBench (`pred.py`).
    MiddleOfPrompt,
    /// The beginning of the prompt, as in lm-evaluation-harness.
    Start,
}

/// Bytes of a token in English, roughly. Only decides which text is tokenised first.
const BYTES_PER_TOKEN: usize = 4;

impl Prompt {
    /// The whole prompt.
    pub fn whole(&self) -> String {
        [self.before.as_str(), &self.document, &self.after].concat()
    }

    /// Removes white space from the end.
    pub fn trim_end(&mut self) {
        let length = |text: &str| text.trim_end().len();
        self.header = self.header.saturating_sub(self.after.len() - length(&self.after));
        self.after.truncate(length(&self.after));
        if self.after.is_empty() {
            self.document.truncate(length(&self.document));
        }
        if self.after.is_empty() && self.document.is_empty() {
            self.before.truncate(length(&self.before));
        }
    }

    /// The question, without the answer's header.
    pub fn question(&self) -> &str {
        self.after[..self.after.len() - self.header].trim()
    }

    /// The answer's header, with the blank line before it.
    pub fn header(&self) -> &str {
        &self.after[self.after.len() - self.header..]
    }

    /// The prompt without the answer's header, for chat models, whose template opens the answer.
    pub fn without_header(&self) -> Prompt {
        let end = self.after.len() - self.header;
        Prompt { after: self.after[..end].to_string(), header: 0, ..self.clone() }
    }

    /// The prompt in at most `room` tokens, without BOS.
    ///
    /// If the whole prompt has more, the separator and the text after the document are tokenised by themselves, and the
    /// first tokens of the text before them fill the rest of the room. `encode` adds no BOS. The document is tokenised
    /// once, unless it nearly fits. A document that loses its middle is tokenised by itself, and there is no separator.
    ///
    /// # Errors
    /// What `encode` reports, or a prompt whose other parts leave no room for the document.
    pub fn fit(&self, cut: Cut, room: usize, encode: &dyn Fn(&str) -> Result<Vec<u32>>) -> Result<Fitted> {
        let fitting = || -> Result<Option<Fitted>> {
            let tokens = encode(&self.whole())?;
            Ok((tokens.len() <= room).then_some(Fitted { tokens, ..Fitted::default() }))
        };
        let bytes = self.before.len() + self.document.len() + self.after.len();
        let seems_long = bytes / BYTES_PER_TOKEN > room;
        if !seems_long && let Some(fitted) = fitting()? {
            return Ok(fitted);
        }
        if cut == Cut::Start {
            let mut tokens = encode(&self.whole())?;
            tokens.drain(..tokens.len().saturating_sub(room));
            return Ok(Fitted { tokens, ..Fitted::default() });
        }
        // A prompt that is cut as a whole is all document.
        if matches!(cut, Cut::Middle | Cut::MiddleOfPrompt) {
            if seems_long && let Some(fitted) = fitting()? {
                return Ok(fitted);
            }
            return self.without_middle(room, encode);
        }
        let opening = encode(&[self.before.as_str(), &self.document].concat())?;
        // If this is too long by itself, it is too long with a question after it.
        if seems_long
            && opening.len() <= room
            && let Some(fitted) = fitting()?
        {
            return Ok(Fitted { opening: Some(opening), ..fitted });
        }
        let suffix = encode(&[self.separator.as_str(), &self.after].concat())?;
        check_room(suffix.len(), room)?;
        let kept = opening.iter().take(room - suffix.len()).copied();
        Ok(Fitted { tokens: kept.chain(suffix).collect(), opening: Some(opening), cut: None })
    }

    fn without_middle(&self, room: usize, encode: &dyn Fn(&str) -> Result<Vec<u32>>) -> Result<Fitted> {
        let (before, document, after) = (encode(&self.before)?, encode(&self.document)?, encode(&self.after)?);
        check_room(before.len() + after.len() + 1, room)?;
        let half = (room - before.len() - after.len()) / 2;
        // The parts may have fewer tokens than the whole.
        let (head, tail) = if document.len() > 2 * half {
            (&document[..half], &document[document.len() - half..])
        } else {
            (&document[..], &[][..])
        };
        let tokens = [&before, head, tail, &after].concat();
        Ok(Fitted { tokens, opening: None, cut: Some([before, document]) })
    }

    /// Counts the tokens of a fitted prompt, whose document may have lost its middle, before the byte of the document at which the
    /// question begins.
    ///
    /// # Errors
    /// What `encode` reports.
    pub fn before_question(
        &self,
        at: usize,
        fitted: &Fitted,
        encode: &dyn Fn(&str) -> Result<Vec<u32>>,
    ) -> Result<usize> {
        let (context, _) = self.document.split_at(at);
        let Some([before, document]) = &fitted.cut else {
            return Ok(shared(&fitted.tokens, &encode(&[self.before.as_str(), context].concat())?));
        };
        let context = shared(document, &encode(context)?);
        let kept = fitted.tokens.len() - before.len() - encode(&self.after)?.len();
        // What is lost lies between two halves, and the question may begin in it or in either half.
        let lost = document.len() - kept;
        let half = if lost > 0 { kept / 2 } else { kept };
        Ok(before.len() + context.min(half) + context.saturating_sub(half + lost))
    }
}

/// Tokens that two texts begin with alike.
pub(in crate::task) fn shared(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn check_room(needed: usize, room: usize) -> Result<()> {
    if needed < room {
        return Ok(());
    }
    let message = format!(
        "the prompt does not fit: without its context it needs {needed} tokens, and {room} are left; use a larger length or \
         cache size"
    );
    Err(Unmeasurable(message).into())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    /// Tokens are words with the space after them; their ids are made of the first letter and the length.
    fn words(text: &str) -> Result<Vec<u32>> {
        let id = |word: &str| u32::from(word.as_bytes()[0]) << 16 | word.len() as u32;
        Ok(text.split_inclusive([' ', '\n']).map(id).collect())
    }

    fn prompt(document: &str) -> Prompt {
        Prompt {
            before: "Read. Tale:\n".into(),
            document: document.into(),
            after: "\n\nWho?\n\nAnswer:".into(),
            separator: "[cut]".into(),
            header: "\n\nAnswer:".len(),
        }
    }

    #[test]
    fn a_document_that_does_not_fit_loses_its_end() {
        let prompt = prompt("A fox ran.");
        let (room, suffix) = (prompt.whole().len(), "[cut]\n\nWho?\n\nAnswer:".len());
        let cases = [
            (room, "Read. Tale:\nA fox ran.\n\nWho?\n\nAnswer:"),
            (room - 1, "Read. Tale:\nA fo[cut]\n\nWho?\n\nAnswer:"),
            (suffix + 1, "R[cut]\n\nWho?\n\nAnswer:"),
        ];
        for (room, expected) in cases {
            assert_eq!(prompt.fit(Cut::End, room, &bytes).unwrap().tokens, bytes(expected).unwrap());
        }
        let message = prompt.fit(Cut::End, suffix, &bytes).unwrap_err().to_string();
        let (needs, left) = (format!("needs {suffix} tokens"), format!("and {suffix} are left"));
        assert!(message.contains(&needs) && message.contains(&left), "{message}");
    }

    #[test]
    fn a_document_that_does_not_fit_loses_its_middle() {
        let fit = |document: &str, room| {
            Prompt { document: document.into(), ..prompt("") }.fit(Cut::Middle, room, &bytes)
        };
        let (before, after) = ("Read. Tale:\n", "\n\nWho?\n\nAnswer:");
        let others = before.len() + after.len();
        for (room, kept) in [(10, "A fox ran."), (9, "A foran."), (8, "A foran."), (3, "A."), (2, "A.")] {
            let expected = [before, kept, after].concat();
            assert_eq!(fit("A fox ran.", others + room).unwrap().tokens, bytes(&expected).unwrap(), "{room}");
        }
        let long = "A fox ran. ".repeat(500);
        assert_eq!(fit(&long, 1000).unwrap().tokens.len(), others + (1000 - others) / 2 * 2);
        assert!(fit(&long, others + 1).unwrap_err().to_string().contains("without its context"));
    }

    #[test]
    fn a_long_document_is_tokenised_once() {
        let documents = Cell::new(0);
        let long = prompt(&"A fox ran. ".repeat(100));
        let count = |text: &str| {
            documents.set(documents.get() + usize::from(text.contains("A fox ran.")));
            bytes(text)
        };
        assert_eq!(long.fit(Cut::End, 100, &count).unwrap().tokens.len(), 100);
        assert_eq!(documents.take(), 1);
        assert_eq!(long.fit(Cut::End, 10_000, &count).unwrap().tokens.len(), long.whole().len());
        assert_eq!(documents.take(), 1);
    }

    proptest! {
        #[test]
        fn a_fitted_prompt_has_the_question_and_no_more_than_the_room(
            before in "[a-c ]{0,20}",
            document in "[a-cä\n ]{0,200}",
            after in "[a-c\n ]{1,20}",
            separator in "[.\n]{0,5}",
            room in 0usize..300,
            by_word: bool,
        ) {
            let encode: &dyn Fn(&str) -> Result<Vec<u32>> = if by_word { &words } else { &bytes };
            let prompt = Prompt { before, document, after, separator, header: 0 };
            let whole = encode(&prompt.whole()).unwrap();
            let suffix = encode(&[prompt.separator.as_str(), &prompt.after].concat()).unwrap();
            match prompt.fit(Cut::End, room, encode) {
                Ok(Fitted { tokens: fitted, .. }) => {
                    prop_assert!(fitted.len() <= room);
                    if whole.len() <= room {
                        prop_assert_eq!(fitted, whole);
                    } else {
                        prop_assert!(fitted.ends_with(&suffix));
                        let kept = fitted.len() - suffix.len();
                        let start = encode(&[prompt.before.as_str(), &prompt.document].concat()).unwrap();
                        prop_assert_eq!(&fitted[..kept], &start[..kept]);
                    }
                }
                Err(_) => prop_assert!(whole.len() > room && suffix.len() >= room),
            }
        }
    }
}
