//! The tasks of a sweep, checked: every setting in range, and none that contradicts another or a policy.

use super::check::Checker;
use super::task_shape::{
    AnsweringShape, FactShape, NeedleShape, PerplexityShape, RetentionShape, StoryShape, TaskShape, TimingShape,
    WriteShape,
};
use super::yaml::{ConfigError, Location, Spanned};
use super::{NamedPolicy, Rule};
use crate::eviction::Positions;
use crate::format::did_you_mean;
use crate::lm::Real;
use crate::task::{
    Answering, Benchmark, DataSource, EMBEDDED, EMBEDDED_QUESTIONS, Fact, MOST_EMBEDDED_BOOKS,
    MOST_EMBEDDED_PROMPTS, Needle, Perplexity, Prefill, PromptStyle, RANDOM_WORDS, Retention, Split, StoryRequest,
    Storytelling, Style, TaskSpec, Texts, Timing,
};

/// What long texts can be read from.
const TEXTS: &str = "a folder of .txt files or a .parquet file (starting with ./, ../ or /), a hub data set owner/name, \
                     embedded, embedded-questions or random-words";

impl Checker<'_> {
    pub(super) fn tasks(
        &self,
        shapes: Spanned<Vec<Spanned<TaskShape>>>,
        policies: &[NamedPolicy],
    ) -> Result<Vec<TaskSpec>, ConfigError> {
        let moving = policies.iter().map(|policy| policy.positions).find(|own| *own != Positions::Absolute);
        let mut tasks = Vec::new();
        for Spanned { value, referenced, .. } in shapes.value {
            let task = match value {
                TaskShape::Perplexity(shape) => TaskSpec::Perplexity(self.perplexity(shape)?),
                TaskShape::Retention(shape) => TaskSpec::Retention(self.retention(shape)?),
                TaskShape::Squality(shape) => TaskSpec::Answering(self.answering(Benchmark::Squality, shape)?),
                TaskShape::Qasper(shape) => TaskSpec::Answering(self.answering(Benchmark::Qasper, shape)?),
                TaskShape::Story(shape) => TaskSpec::Story(self.story(shape)?),
                TaskShape::Needle(shape) => TaskSpec::Needle(self.needle(shape)?),
                TaskShape::Timing(_) if policies.iter().any(|policy| policy.rule == Rule::Truncate) => {
                    return self.refuse(
                        referenced,
                        "`timing` cannot measure the policy `truncate`: it cuts texts, and none is there to cut",
                        "remove the policy, or put `timing` into a sweep of its own",
                    );
                }
                TaskShape::Timing(shape) => TaskSpec::Timing(self.timing(shape)?),
            };
            if let Some(positions) = moving.filter(|_| task.prefill() == Prefill::OneShot) {
                return self.refuse(
                    referenced,
                    format!("`prefill: one_shot` needs `positions: absolute`, not {}", positions.name()),
                    "a prompt read whole has its own positions; write `prefill: stream`, or leave out `positions`",
                );
            }
            tasks.push((task, referenced));
        }
        self.distinct("tasks", shapes.referenced, &tasks, |task| {
            format!("the same task ({} of {})", task.name(), task.dataset())
        })?;
        Ok(tasks.into_iter().map(|(task, _)| task).collect())
    }

    /// A data set by name; `forms` says what names there are.
    fn dataset(&self, dataset: &Spanned<String>, forms: &str) -> Result<DataSource, ConfigError> {
        dataset.value.parse().or_else(|_| {
            let near = did_you_mean(&dataset.value, [EMBEDDED, EMBEDDED_QUESTIONS, RANDOM_WORDS]);
            self.refuse(
                dataset.referenced,
                format!("`{}` names no data set", dataset.value),
                format!("{near}use {forms}"),
            )
        })
    }

    /// A limit of texts, which made-up ones have too.
    fn texts(
        &self,
        dataset: &DataSource,
        what: &str,
        number: &Option<Spanned<u64>>,
    ) -> Result<Option<usize>, ConfigError> {
        let limit = self.limit(what, number)?;
        if let (DataSource::Embedded | DataSource::EmbeddedQuestions, Some(asked)) = (dataset, number)
            && asked.value > MOST_EMBEDDED_BOOKS as u64
        {
            return self.refuse(
                asked.referenced,
                format!("`{dataset}` has no {} texts", asked.value),
                format!("ask for at most {MOST_EMBEDDED_BOOKS}"),
            );
        }
        Ok(limit)
    }

    fn limit(&self, what: &str, number: &Option<Spanned<u64>>) -> Result<Option<usize>, ConfigError> {
        number.as_ref().map(|number| self.count(what, number, 1)).transpose()
    }

    fn length(&self, length: &Option<Spanned<u64>>) -> Result<usize, ConfigError> {
        match length {
            Some(length) => self.count("`length`", length, 2),
            None => Ok(Texts::DEFAULT_LENGTH),
        }
    }

    fn answering(&self, benchmark: Benchmark, shape: AnsweringShape) -> Result<Answering, ConfigError> {
        let name = benchmark.name();
        let forms = format!(
            "embedded, a file or folder of {name} (starting with ./, ../ or /), or a hub data set with {name}.zip, \
             such as tau/zero_scrolls"
        );
        let dataset = self.dataset(&shape.dataset, &forms)?;
        if matches!(dataset, DataSource::EmbeddedQuestions | DataSource::RandomWords) {
            return self.refuse(
                shape.dataset.referenced,
                format!("`{dataset}` holds no questions for {name}"),
                format!("use {forms}"),
            );
        }
        // What ZeroSCROLLS reserves for an answer.
        let (most, stop) = match benchmark {
            Benchmark::Squality => (512, Vec::new()),
            Benchmark::Qasper => (128, Vec::new()),
        };
        let length = self.length(&shape.length)?;
        Ok(Answering {
            benchmark,
            documents: self.texts(&dataset, "`documents`", &shape.documents)?,
            dataset,
            split: shape.split.unwrap_or(Split::Test),
            prompt: shape.prompt.unwrap_or(PromptStyle::ZeroScrolls),
            questions: self.limit("`questions`", &shape.questions)?,
            style: self.style(shape.write, length, Style { stop, ..Style::greedy(most) })?,
            length,
        })
    }

    fn story(&self, shape: StoryShape) -> Result<Storytelling, ConfigError> {
        let length = self.length(&shape.length)?;
        let request = match shape.request {
            None => StoryRequest::Paper,
            Some(Spanned { value, .. }) if value == "paper" => StoryRequest::Paper,
            Some(Spanned { value, .. }) if value == EMBEDDED => StoryRequest::Embedded,
            Some(Spanned { value, referenced, .. }) if value.trim().is_empty() => {
                return self.refuse(
                    referenced,
                    format!("`{value}` asks for nothing"),
                    "write what the story is about",
                );
            }
            Some(Spanned { value, .. }) => StoryRequest::Text(value),
        };
        if let (StoryRequest::Embedded, Some(asked)) = (&request, &shape.stories)
            && asked.value > MOST_EMBEDDED_PROMPTS as u64
        {
            return self.refuse(
                asked.referenced,
                format!("`{EMBEDDED}` has no {} story requests", asked.value),
                format!("ask for at most {MOST_EMBEDDED_PROMPTS}"),
            );
        }
        // The paper's number of stories; it says nothing of how they were drawn.
        let drawn = Style {
            temperature: Real(1.0),
            // The paper's request brings its own frame.
            chat_template: request != StoryRequest::Paper,
            ..Style::greedy(length.saturating_sub(256).max(1))
        };
        Ok(Storytelling {
            request,
            stories: self.limit("`stories`", &shape.stories)?.unwrap_or(100),
            style: self.style(shape.write, length, drawn)?,
            length,
        })
    }

    fn needle(&self, shape: NeedleShape) -> Result<Needle, ConfigError> {
        let forms =
            "embedded, a folder of .txt files or a .parquet file (starting with ./, ../ or /), or a hub data set";
        let dataset = self.dataset(&shape.dataset, forms)?;
        let numbers =
            |what: &str, list: &[Spanned<u64>], least: u32| -> Result<Vec<(usize, Location)>, ConfigError> {
                list.iter().map(|n| Ok((self.count(what, n, least)?, n.referenced))).collect()
            };
        let mut lengths = numbers("a length", &shape.lengths, 2)?;
        if lengths.is_empty() {
            lengths.push((Texts::DEFAULT_LENGTH, Location::UNKNOWN));
        }
        self.distinct("lengths", Location::UNKNOWN, &lengths, |length| format!("length {length}"))?;
        let mut depths = numbers("a depth", &shape.depths, 0)?;
        if let Some((depth, location)) = depths.iter().find(|(depth, _)| *depth > 100) {
            return self.refuse(
                *location,
                format!("a depth of {depth} percent is beyond the text"),
                "write depths from 0 (the text's beginning) to 100 (its end)",
            );
        }
        if depths.is_empty() {
            depths = [0, 25, 50, 75, 100].map(|depth| (depth, Location::UNKNOWN)).to_vec();
        }
        self.distinct("depths", Location::UNKNOWN, &depths, |depth| format!("depth {depth}"))?;
        let shortest = lengths.iter().map(|(length, _)| *length).min().unwrap_or(0);
        Ok(Needle {
            texts: self.texts(&dataset, "`texts`", &shape.texts)?.unwrap_or(10),
            dataset,
            lengths: lengths.into_iter().map(|(length, _)| length).collect(),
            depths: depths.into_iter().map(|(depth, _)| depth).collect(),
            fact: shape.fact.map(|FactShape { needle, question, answer }| Fact { needle, question, answer }),
            style: self.style(shape.write, shortest, Style::greedy(32))?,
        })
    }

    fn timing(&self, shape: TimingShape) -> Result<Timing, ConfigError> {
        let Ok(memory) = shape.memory.value.parse() else {
            return self.refuse(
                shape.memory.referenced,
                format!("`{}` is no amount of memory", shape.memory.value),
                "write a number and a unit, such as 8 GiB or 32 GB: what weights and caches may take together",
            );
        };
        let length = self.length(&shape.length)?;
        let prompt = self.limit("`prompt`", &shape.prompt)?;
        if let Some(asked) = shape.prompt.as_ref().filter(|_| prompt.is_some_and(|prompt| prompt >= length)) {
            return self.refuse(
                asked.referenced,
                format!("a prompt of {} leaves nothing to decode in a length of {length}", asked.value),
                "write a smaller number, or a larger `length`",
            );
        }
        let warm_up = shape.warm_up.as_ref().map(|steps| self.count("`warm_up`", steps, 0)).transpose()?;
        Ok(Timing {
            length,
            prompt: prompt.unwrap_or(Timing::DEFAULT_PROMPT.min(length / 2)),
            memory,
            repeats: self.limit("`repeats`", &shape.repeats)?.unwrap_or(Timing::DEFAULT_REPEATS),
            warm_up: warm_up.unwrap_or(Timing::DEFAULT_WARM_UP),
        })
    }

    /// `write:` over the task's own defaults. `length` are the tokens of prompt and text together.
    fn style(&self, shape: WriteShape, length: usize, default: Style) -> Result<Style, ConfigError> {
        let real = |what: &str, number: &Option<Spanned<f64>>, least: f64, most: f64, default: Real| match number {
            None => Ok(default),
            Some(number) if number.value >= least && number.value <= most => Ok(Real(number.value)),
            Some(number) => self.refuse(
                number.referenced,
                format!("{} cannot be {what}", number.value),
                format!("write a number from {least} to {most}"),
            ),
        };
        let most = match &shape.max_new_tokens {
            Some(most) => self.count("`max_new_tokens`", most, 1)?,
            None => default.max_new_tokens.min(length / 2),
        };
        if let Some(asked) = shape.max_new_tokens.filter(|_| most >= length) {
            return self.refuse(
                asked.referenced,
                format!("{most} new tokens leave no room for a prompt in a length of {length}"),
                "write a smaller number, or a larger `length`",
            );
        }
        let temperature = real("`temperature`", &shape.temperature, 0.0, 100.0, default.temperature)?;
        let top_p = match &shape.top_p {
            None => None,
            some => Some(real("`top_p`", some, 0.0, 1.0, Real(1.0))?),
        };
        let top_k = self.limit("`top_k`", &shape.top_k)?;
        if temperature.0 == 0.0 {
            let useless = [shape.top_k.as_ref().map(|k| k.referenced), shape.top_p.as_ref().map(|p| p.referenced)];
            if let Some(place) = useless.into_iter().flatten().next() {
                return self.refuse(
                    place,
                    "at temperature 0 the most likely token is always taken",
                    "write a `temperature` above 0, or leave out `top_k` and `top_p`",
                );
            }
        }
        if let Some(empty) = shape.stop.iter().find(|stop| stop.value.is_empty()) {
            return self.refuse(empty.referenced, "an empty string ends every text", "remove it");
        }
        if let Some(aware) = shape.query_aware.as_ref().filter(|aware| !aware.value)
            && shape.prefill == Prefill::Stream
        {
            return self.refuse(
                aware.referenced,
                "`query_aware: false` says where a prompt read in one shot is cut",
                "add `prefill: one_shot`, or remove it: a stream never sees the question early",
            );
        }
        let stop: Vec<String> = shape.stop.into_iter().map(|stop| stop.value).collect();
        Ok(Style {
            prefill: shape.prefill,
            query_aware: shape.query_aware.is_none_or(|aware| aware.value),
            max_new_tokens: most,
            temperature,
            top_k,
            top_p,
            repetition_penalty: real("`repetition_penalty`", &shape.repetition_penalty, 0.01, 100.0, Real(1.0))?,
            chat_template: shape.chat_template.unwrap_or(default.chat_template),
            stop: if stop.is_empty() { default.stop } else { stop },
        })
    }

    fn perplexity(&self, shape: PerplexityShape) -> Result<Perplexity, ConfigError> {
        let dataset = self.dataset(&shape.dataset, TEXTS)?;
        let texts = Texts {
            books: self.texts(&dataset, "`books`", &shape.books)?,
            dataset,
            length: self.length(&shape.length)?,
            stride: self.limit("`stride`", &shape.stride)?,
            bos: shape.bos.0,
            tail: shape.tail,
            chunks_per_book: self.limit("`chunks_per_book`", &shape.chunks_per_book)?,
        };
        Ok(Perplexity { texts, compare_to_full: shape.compare_to_full })
    }

    fn retention(&self, shape: RetentionShape) -> Result<Retention, ConfigError> {
        // The same texts, said with the same words.
        let RetentionShape { dataset, length, stride, bos, tail, books, chunks_per_book, .. } = shape;
        let texts =
            PerplexityShape { dataset, length, stride, bos, tail, books, chunks_per_book, compare_to_full: false };
        let Perplexity { texts, .. } = self.perplexity(texts)?;
        let map_layers = match shape.map_layers {
            None => None,
            Some(Spanned { value, referenced, .. }) => {
                let layer = |layer: &Spanned<u64>| Ok((self.count("a layer", layer, 0)?, layer.referenced));
                let layers: Vec<(usize, Location)> =
                    value.iter().map(layer).collect::<Result<_, ConfigError>>()?;
                self.distinct("map_layers", referenced, &layers, |layer| format!("layer {layer}"))?;
                let mut layers: Vec<usize> = layers.into_iter().map(|(layer, _)| layer).collect();
                layers.sort_unstable();
                Some(layers)
            }
        };
        Ok(Retention {
            texts,
            maps: shape.maps.as_ref().map(|maps| self.count("`maps`", maps, 0)).transpose()?.unwrap_or(1),
            map_layers,
            eviction_log: shape.eviction_log,
        })
    }
}
