//! Advice for what is written in the wrong place of a sweep file, or in the words of another program.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::task::TaskYaml;
use crate::yaml::ConfigError;

/// Former keys of tasks, and what they are called now.
const FORMER: &[(&str, &str)] = &[("problems", "samples"), ("draws", "repeats"), ("haystack", "dataset")];
const OF_PRESSES: &[&str] = &["compression_ratio", "compression_ratios"];

/// Gives an error a better hint where the mistake is known.
pub(super) fn advised(error: ConfigError) -> ConfigError {
    let between = |start: &str, end: &str| error.message.strip_prefix(start)?.strip_suffix(end);
    let example = "write a task's settings below its name, indented further, as in `- perplexity: {dataset: ./books, length: 2048}`";
    let is_outside_tasks = error.hint.contains("cache_sizes");
    let hint = if let Some(key) = between("unknown key `", "`") {
        let [is_of_task, is_of_writing] = places_of(key);
        if let Some((_, now)) = FORMER.iter().find(|(former, _)| *former == key) {
            format!("write `{now}`")
        } else if key == "prefill" {
            "a prompt enters the cache as its policy's schedule says: in place of `one_shot` write `policies: [tova@cut+1]`, or \
             `schedule: cut+1` for all policies of the sweep"
                .to_owned()
        } else if OF_PRESSES.contains(&key) {
            "a compression ratio of 0.75 keeps a quarter of the prompt: write `cache_sizes: [25%]`".to_owned()
        } else if is_of_writing {
            format!(
                "`{key}` belongs to a task that writes, as in `- squality: {{dataset: ./squality, write: {{{key}: ...}}}}`"
            )
        } else if is_of_task && is_outside_tasks {
            format!("`{key}` belongs to a task; {example}")
        } else {
            return error;
        }
    } else if ["the key `dataset` is missing", "unknown name `name`", "unknown name `task`"]
        .contains(&error.message.as_str())
    {
        example.to_owned()
    } else if error.message.starts_with("a list, such as") {
        "write a list in brackets, or one entry a line, each after `- `".to_owned()
    } else if error.message.contains("a cache size: ") {
        // A share as another program writes it.
        let words = error.message.split(|c: char| !c.is_ascii_digit() && c != '.');
        match words.into_iter().find_map(|word| word.parse::<f64>().ok()) {
            Some(share) if share > 0.0 && share < 1.0 => {
                format!("write a share as `{}%`", (share * 1e4).round() / 100.0)
            }
            _ => return error,
        }
    } else {
        return error;
    };
    ConfigError { hint, ..error }
}

/// Says whether any task has a key among its own, and whether any has it in `write:`.
fn places_of(key: &str) -> [bool; 2] {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<TaskYaml>().to_value();
    let has = |settings: &Value| settings["properties"].get(key).is_some();
    let any = |is_there: &dyn Fn(&Value) -> bool| {
        schema["properties"].as_object().is_some_and(|tasks| tasks.values().any(is_there))
    };
    [any(&has), any(&|task| has(&task["properties"]["write"]))]
}

#[cfg(test)]
mod tests {
    use crate::sweep::Sweep;

    #[test]
    fn mistakes_of_other_places_and_programs_have_their_own_hints() {
        let sweep = |sizes: &str, task: &str, more: &str| {
            format!("models: [pocket]\npolicies: [full, tova]\n{sizes}tasks:\n{task}{more}")
        };
        let (sizes, task) = ("cache_sizes: [32]\n", "  - perplexity: {dataset: embedded}\n");
        let squality = "  - squality: {dataset: ./x, query_aware: false}\n";
        for (yaml, hint) in [
            (sweep("cache_sizes: [0.25]\n", task, ""), "`25%`"),
            (sweep("cache_sizes: [0.125]\n", task, ""), "`12.5%`"),
            (sweep("compression_ratio: 0.75\n", task, ""), "cache_sizes: [25%]"),
            (sweep(sizes, squality, ""), "write: {query_aware: ...}"),
            (sweep(sizes, task, "query_aware: false\n"), "write: {query_aware: ...}"),
            (
                sweep(sizes, "  - qasper: {dataset: ./x, write: {prefill: one_shot}}\n", ""),
                "policies: [tova@cut+1]",
            ),
            (sweep(sizes, "  - perplexity:\n    dataset: embedded\n", ""), "indented further"),
            (sweep(sizes, "  - perplexity:\n", "dataset: embedded\n"), "indented further"),
            (sweep(sizes, "  - name: perplexity\n    dataset: embedded\n", ""), "- perplexity: {dataset"),
            (sweep(sizes, "  perplexity: {dataset: embedded}\n", ""), "after `- `"),
            (sweep(sizes, "  - math: {dataset: ./x, draws: 8}\n", ""), "write `repeats`"),
            // Hints that are good already stay.
            (sweep(sizes, "  - perplexity: {dataset: embedded, lenght: 3}\n", ""), "did you mean `length`"),
        ] {
            let error = Sweep::parse(&yaml, "a.yaml").unwrap_err();
            assert!(error.hint.contains(hint), "{error}\n{yaml}");
        }
    }
}
