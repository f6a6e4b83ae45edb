//! A prompt of a document and a question, and its cutting to the tokens there are.
//!
//! Cuts as ZeroSCROLLS' `run_hf_model.py` does: the document loses its end, the question stays whole. Knows texts
//! and whatever turns them into tokens; benchmarks, their wording and their files are not known here.

use anyhow::{Result, ensure};

/// A text for a model, in the parts that cutting treats differently. Together, without the separator, they are the
/// whole prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The instruction and the document's header; kept when the document is cut.
    pub before: String,
    /// What the question is about; loses its end where there is no room for it.
    pub document: String,
    /// From the document's end on: the question, and the header its answer stands below.
    pub after: String,
    /// What stands between a cut document and `after`.
    pub separator: String,
    /// Bytes at the end of `after` that are the response header, the blank line before it included; 0: there is
    /// none.
    pub header: usize,
}

/// The tokens of a prompt, BOS not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    pub tokens: Vec<u32>,
    /// Whether the document lost its end.
    pub cut: bool,
}

/// Bytes of English for one token, roughly: a guess at which text is worth tokenising first, nothing else.
const BYTES_PER_TOKEN: usize = 4;

impl Prompt {
    /// The prompt as one text, nothing left out.
    pub fn whole(&self) -> String {
        [self.before.as_str(), &self.document, &self.after].concat()
    }

    /// What is asked below the document, the response header apart.
    pub fn question(&self) -> &str {
        self.after[..self.after.len() - self.header].trim()
    }

    /// The same prompt without the response header, for chat models, whose template opens the answer.
    pub fn without_header(&self) -> Prompt {
        let end = self.after.len() - self.header;
        Prompt { after: self.after[..end].to_string(), header: 0, ..self.clone() }
    }

    /// The prompt in at most `room` tokens.
    ///
    /// If the whole prompt has more, the separator and what is after the document are tokenised by themselves, and
    /// the first tokens of what stands before them fill the room that is left. `encode` adds no BOS; a caller that
    /// puts one before the tokens takes it off `room`. The document is tokenised once, unless it nearly fits.
    ///
    /// # Errors
    /// What `encode` reports, and a prompt that must be cut but whose question leaves no token of the room to the
    /// document.
    pub fn fit(&self, room: usize, encode: &dyn Fn(&str) -> Result<Vec<u32>>) -> Result<Fitted> {
        let fitting = || -> Result<Option<Fitted>> {
            let tokens = encode(&self.whole())?;
            Ok((tokens.len() <= room).then_some(Fitted { tokens, cut: false }))
        };
        let bytes = self.before.len() + self.document.len() + self.after.len();
        let seems_long = bytes / BYTES_PER_TOKEN > room;
        if !seems_long && let Some(fitted) = fitting()? {
            return Ok(fitted);
        }
        let mut tokens = encode(&[self.before.as_str(), &self.document].concat())?;
        // What is too long by itself is too long with a question after it, so the whole needs no tokens.
        if seems_long
            && tokens.len() <= room
            && let Some(fitted) = fitting()?
        {
            return Ok(fitted);
        }
        let suffix = encode(&[self.separator.as_str(), &self.after].concat())?;
        ensure!(
            suffix.len() < room,
            "no room for the document: the prompt alone needs {} tokens and {room} are left; use a larger length \
             or cache size",
            suffix.len()
        );
        tokens.truncate(room - suffix.len());
        tokens.extend(suffix);
        Ok(Fitted { tokens, cut: true })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    /// A word, with the space after it, is a token; the first letter and the length are its id.
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

    fn text(tokens: &[u32]) -> String {
        String::from_utf8(tokens.iter().map(|token| *token as u8).collect()).unwrap()
    }

    #[test]
    fn what_fits_is_whole() {
        let prompt = prompt("A fox ran.");
        let whole = prompt.whole();
        assert_eq!(whole, "Read. Tale:\nA fox ran.\n\nWho?\n\nAnswer:");
        let fitted = prompt.fit(whole.len(), &bytes).unwrap();
        assert_eq!((text(&fitted.tokens), fitted.cut), (whole, false));
    }

    #[test]
    fn a_document_loses_its_end() {
        let prompt = prompt("A fox ran.");
        let fitted = prompt.fit(prompt.whole().len() - 1, &bytes).unwrap();
        assert!(fitted.cut);
        assert_eq!(text(&fitted.tokens), "Read. Tale:\nA fo[cut]\n\nWho?\n\nAnswer:");
        // Words: the suffix is `[cut]\n`, `\n`, `Who?\n`, `\n` and `Answer:`.
        let fitted = prompt.fit(8, &words).unwrap();
        let expected = [words("Read. Tale:\nA ").unwrap(), words("[cut]\n\nWho?\n\nAnswer:").unwrap()].concat();
        assert_eq!(fitted, Fitted { tokens: expected, cut: true });
    }

    #[test]
    fn no_room_is_an_error_with_the_numbers() {
        let prompt = prompt("A fox ran.");
        let suffix = "[cut]\n\nWho?\n\nAnswer:".len();
        for room in [0, 5, suffix] {
            let message = prompt.fit(room, &bytes).unwrap_err().to_string();
            let (needs, left) = (format!("needs {suffix} tokens"), format!("and {room} are left"));
            assert!(message.contains(&needs) && message.contains(&left), "{message}");
        }
        assert_eq!(text(&prompt.fit(suffix + 1, &bytes).unwrap().tokens), "R[cut]\n\nWho?\n\nAnswer:");
    }

    #[test]
    fn the_header_can_be_left_out() {
        let bare = prompt("A fox ran.").without_header();
        assert_eq!(bare.whole(), "Read. Tale:\nA fox ran.\n\nWho?");
        assert_eq!(bare.without_header(), bare);
    }

    #[test]
    fn a_long_document_is_tokenised_once() {
        let documents = Cell::new(0);
        let long = prompt(&"A fox ran. ".repeat(100));
        let count = |text: &str| {
            documents.set(documents.get() + usize::from(text.contains("A fox ran.")));
            bytes(text)
        };
        assert!(long.fit(100, &count).unwrap().cut);
        assert_eq!(documents.take(), 1);
        assert!(!long.fit(10_000, &count).unwrap().cut);
        assert_eq!(documents.take(), 1);
    }

    proptest! {
        #[test]
        fn never_more_than_the_room_and_always_the_question(
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
            match prompt.fit(room, encode) {
                Ok(fitted) => {
                    prop_assert!(fitted.tokens.len() <= room);
                    if whole.len() <= room {
                        prop_assert_eq!(fitted, Fitted { tokens: whole, cut: false });
                    } else {
                        prop_assert!(fitted.cut && fitted.tokens.ends_with(&suffix));
                        let kept = fitted.tokens.len() - suffix.len();
                        let start = encode(&[prompt.before.as_str(), &prompt.document].concat()).unwrap();
                        prop_assert_eq!(&fitted.tokens[..kept], &start[..kept]);
                    }
                }
                Err(_) => prop_assert!(whole.len() > room && suffix.len() >= room),
            }
        }
    }
}
