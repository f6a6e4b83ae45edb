//! The answer in a judge's completion: its words without the thoughts before it, what that cost, and why there may be none.
//!
//! Servers give a message's content as a text or as a list of parts, and thoughts in a field or part of their own, or in the text
//! between marks.

use serde_json::Value;

/// The judge's answer, and what it cost.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) end: End,
    /// The most tokens that were asked for.
    pub(super) limit: u32,
    /// Tokens as the server counts them; 0 if it does not say.
    pub(super) prompt_tokens: u32,
    pub(super) new_tokens: u32,
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The judge ended it, as far as the server says.
    #[default]
    Whole,
    /// The limit on tokens ended it.
    Cut,
    /// The judge, or a filter of its server, refused to answer.
    Declined,
}

/// Marks around thoughts. Some templates write the first one into the prompt.
const THOUGHTS: [(&str, &str); 6] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis", "<|channel|>final<|message|>"),
];

impl Answer {
    /// Takes the answer from a completion; `None` if it holds no message.
    pub(super) fn of(completion: &Value, limit: u32) -> Option<Answer> {
        let choice = &completion["choices"][0];
        let message = choice["message"].as_object()?;
        let content = message.get("content").map(text_of).unwrap_or_default();
        let refusal = message.get("refusal").and_then(Value::as_str).filter(|words| !words.is_empty());
        let end = match choice["finish_reason"].as_str() {
            Some("length" | "model_length" | "max_tokens") => End::Cut,
            Some("content_filter") => End::Declined,
            _ if refusal.is_some() => End::Declined,
            _ => End::Whole,
        };
        let tokens =
            |name: &str| completion["usage"][name].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        Some(Answer {
            text: refusal.unwrap_or(after_thoughts(&content)).trim().to_owned(),
            end,
            limit,
            prompt_tokens: tokens("prompt_tokens"),
            new_tokens: tokens("completion_tokens"),
        })
    }

    /// Says why no verdict can be read in the answer.
    pub(super) fn why_unreadable(&self) -> String {
        let text = match self.text.is_empty() {
            true => String::new(),
            false => format!(": {:?}", self.text.chars().take(100).collect::<String>()),
        };
        match self.end {
            End::Cut => format!("cut off after {} tokens, before a choice{text}", self.limit),
            End::Declined => format!("the judge declined to answer{text}"),
            End::Whole if text.is_empty() => "the answer is empty".to_owned(),
            End::Whole => format!("the answer names no choice, or several{text}"),
        }
    }
}

/// The text of a content, which may be a list of parts; thoughts and pictures are none.
fn text_of(content: &Value) -> String {
    let part = |part: &Value| match part["type"].as_str() {
        None | Some("text" | "output_text") => part["text"].as_str().or(part.as_str()).map(str::to_owned),
        _ => None,
    };
    match content {
        Value::Array(parts) => parts.iter().filter_map(part).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}

/// The text after the last thought; nothing if that thought has no end.
fn after_thoughts(text: &str) -> &str {
    THOUGHTS.iter().fold(text, |text, (begin, end)| match text.rsplit_once(end) {
        Some((_, answer)) => answer,
        None if text.trim_start().starts_with(begin) => "",
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(message: Value, finish: &str) -> Answer {
        Answer::of(&json!({"choices": [{"message": message, "finish_reason": finish}]}), 32).unwrap()
    }

    #[test]
    fn answers_come_in_many_forms() {
        for message in [
            json!({"content": " (A)\n"}),
            json!({"content": [{"type": "text", "text": "(A)"}]}),
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "(B)?"}]}, {"type": "text", "text": "(A)"}]}),
            json!({"content": [{"type": "reasoning", "text": "(B)?"}, {"text": "("}, {"type": "output_text", "text": "A)"}]}),
            json!({"content": "(A)", "reasoning_content": "(B)? No.", "refusal": null}),
            json!({"content": "<think>\n(B) has\n</think>\n\n(A)"}),
            json!({"content": "(B) has more twists.\n</think>\n(A)"}),
            json!({"content": "<think>one</think><think>two</think>(A)"}),
            json!({"content": "[THINK](B)[/THINK](A)"}),
            json!({"content": "<|channel|>analysis<|message|>(B)?<|end|><|start|>assistant<|channel|>final<|message|>(A)"}),
            json!({"content": "<thinking>".to_owned() + &"(B) ".repeat(2000) + "</thinking>(A)"}),
        ] {
            let answer = of(message.clone(), "stop");
            assert_eq!((answer.text.as_str(), answer.end), ("(A)", End::Whole), "{message}");
        }
    }

    #[test]
    fn it_is_said_why_there_is_no_answer() {
        for (message, finish, words) in [
            (
                json!({"content": "", "reasoning_content": "Okay, the"}),
                "length",
                "cut off after 32 tokens, before a choice",
            ),
            (json!({"content": "<think>Okay, the"}), "length", "cut off after 32 tokens, before a choice"),
            (json!({"content": "Both stories"}), "length", "before a choice: \"Both stories\""),
            (json!({"content": null, "refusal": "I cannot."}), "stop", "declined to answer: \"I cannot.\""),
            (json!({"content": null}), "content_filter", "the judge declined"),
            (json!({"content": null}), "stop", "the answer is empty"),
            (json!({}), "stop", "the answer is empty"),
            (json!({"content": "<think>Okay, the"}), "stop", "the answer is empty"),
            (json!({"content": "Both."}), "stop", "names no choice, or several: \"Both.\""),
        ] {
            let why = of(message.clone(), finish).why_unreadable();
            assert!(why.contains(words), "{message}: {why}");
        }
    }
}
