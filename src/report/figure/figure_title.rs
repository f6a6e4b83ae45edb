//! Titles of figures: `Perplexity of Llama-2-7b-hf on pg19`, in the words that fit the metric and the task.

use crate::format::capital;
use crate::metric::Metric;
use crate::report::escape;
use crate::report::series::SeriesKey;

/// What a figure of a metric and a key shows; what else tells the key apart `among` all of the report follows.
pub(crate) fn of(metric: &Metric, key: &SeriesKey, among: &[SeriesKey]) -> String {
    let whole = key.title(among);
    let mut parts = whole.split(" \u{B7} ");
    let (Some(model), Some(data)) = (parts.next(), parts.next()) else { return plain(metric, &whole) };
    // A name may contain anything, the sign between the parts too.
    if !escape::plain(&key.model).ends_with(model) || !escape::plain(&key.dataset).ends_with(data) {
        return plain(metric, &whole);
    }
    let phrase = metric.title.unwrap_or("{metric} of {model} on {data}");
    let task = escape::plain(&key.task);
    let others = |other: &SeriesKey| (&other.model, &other.task) == (&key.model, &key.task);
    let is_one_of_several =
        !phrase.contains("{data}") && among.iter().any(|other| others(other) && other.dataset != key.dataset);
    let rest = is_one_of_several.then_some(data).into_iter().chain(parts.filter(|part| *part != task));
    let rest = rest.collect::<Vec<_>>().join(", ");
    let mut title = String::new();
    // One pass, so that a name that contains a placeholder stays as it is.
    for (at, piece) in phrase.split(['{', '}']).enumerate() {
        match piece {
            "metric" if at % 2 == 1 => title.push_str(&name(metric)),
            "model" if at % 2 == 1 => title.push_str(model),
            "data" if at % 2 == 1 => title.push_str(&data_of(&key.task, data)),
            words => title.push_str(words),
        }
    }
    let title = capital(&title);
    if rest.is_empty() { title } else { format!("{title}, {rest}") }
}

/// A title that only says which key it is of.
fn plain(metric: &Metric, key: &str) -> String {
    format!("{}: {key}", capital(&name(metric)))
}

/// What is measured, without its unit.
pub(crate) fn name(metric: &Metric) -> String {
    let label = escape::plain(&metric.label);
    label.split(" (").next().unwrap_or(&label).to_owned()
}

/// A benchmark by its name, with the data set in brackets where that is something else.
fn data_of(task: &str, data: &str) -> String {
    let benchmark = match task {
        "qasper" => "QASPER",
        "squality" => "SQuALITY",
        _ => return data.to_owned(),
    };
    if data.to_lowercase().contains(task) { benchmark.to_owned() } else { format!("{benchmark} ({data})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(task: &str, model: &str, dataset: &str) -> SeriesKey {
        SeriesKey { task: task.into(), model: model.into(), dataset: dataset.into(), ..SeriesKey::default() }
    }

    #[test]
    fn titles_fit_the_task() {
        let keys = [
            key("perplexity", "HuggingFaceTB/SmolLM2-135M", "./books"),
            key("qasper", "pocket", "embedded"),
            key("squality", "pocket", "data/SQuALITY-v1.3"),
            key("needle", "pocket", "embedded"),
            key("timing", "random-tiny", "random-tokens"),
        ];
        let title = |metric: &str, at: usize| of(&Metric::of(metric), &keys[at], &keys);
        assert_eq!(title("nll", 0), "Perplexity of SmolLM2-135M on books");
        assert_eq!(title("recall", 0), "Recall of facts by SmolLM2-135M in books");
        assert_eq!(title("f1", 1), "F1 of pocket on QASPER (embedded)");
        assert_eq!(title("rouge", 2), "ROUGE of pocket on SQuALITY");
        assert_eq!(title("found", 3), "Needles found by pocket in embedded");
        assert_eq!(title("decode", 4), "Decoding speed of random-tiny, one sequence");
        assert_eq!(title("bleu", 1), "Bleu of pocket on QASPER (embedded)");
    }

    #[test]
    fn what_tells_keys_apart_is_in_the_title() {
        let stream = SeriesKey { prefill: "stream".into(), ..key("qasper", "pocket", "embedded") };
        let other = SeriesKey { prefill: "one_shot".into(), ..stream.clone() };
        let title = of(&Metric::of("f1"), &stream, &[stream.clone(), other]);
        assert_eq!(title, "F1 of pocket on QASPER (embedded), prefill stream");
        // Names that look like parts of a title or of a phrase are shown as they are.
        let odd = key("perplexity", "a \u{B7} b", "{model}");
        assert_eq!(of(&Metric::of("nll"), &odd, &[]), "Perplexity: a \u{B7} b \u{B7} {model}");
        let odd = key("perplexity", "{data}", "{model}");
        assert_eq!(of(&Metric::of("nll"), &odd, &[]), "Perplexity of {data} on {model}");
    }
}
