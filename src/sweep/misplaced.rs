//! Advice for what is written in the wrong place of a sweep file, or in the words of another program.

use crate::yaml::ConfigError;

/// Settings of how answers are written.
const OF_WRITING: &[&str] = &[
    "prefill",
    "query_aware",
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "chat_template",
    "stop",
    "answer_nll",
];
/// Settings of tasks.
const OF_TASKS: &[&str] = &[
    "dataset",
    "length",
    "stride",
    "bos",
    "tail",
    "books",
    "chunks_per_book",
    "prompt",
    "split",
    "documents",
    "questions",
    "samples",
    "lengths",
    "depths",
    "texts",
    "write",
];
const OF_PRESSES: &[&str] = &["compression_ratio", "compression_ratios"];

/// The error with a better hint, where the mistake is known.
pub(super) fn advised(error: ConfigError) -> ConfigError {
    let quoted = error.message.strip_prefix("unknown key `").and_then(|rest| rest.strip_suffix('`'));
    let is_outside_tasks = error.hint.contains("cache_sizes");
    let hint = match quoted {
        Some(key) if OF_PRESSES.contains(&key) => {
            "a compression ratio of 0.75 keeps a quarter of the prompt: write `cache_sizes: [25%]`".to_owned()
        }
        Some(key) if OF_WRITING.contains(&key) => format!(
            "`{key}` belongs to `write` of a task that writes, as in `- squality: {{dataset: ./squality, write: {{{key}: ...}}}}`"
        ),
        Some(key) if OF_TASKS.contains(&key) && is_outside_tasks => format!(
            "`{key}` belongs to a task: indent it further than the task's name, or write `- perplexity: {{{key}: ...}}`"
        ),
        // A share as another program writes it.
        None if error.message.contains("a cache size") => {
            let number = error
                .message
                .split(|c: char| !c.is_ascii_digit() && c != '.')
                .find_map(|word| word.parse::<f64>().ok());
            match number {
                Some(share) if share > 0.0 && share < 1.0 => {
                    format!("write a share as `{}%`", (share * 1e4).round() / 100.0)
                }
                _ => return error,
            }
        }
        _ => return error,
    };
    ConfigError { hint, ..error }
}
