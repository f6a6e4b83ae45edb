//! What a row asks of a model, as a request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cache::{CacheYaml, Trivial};
use super::definition::Definition;
use super::output::OutputType;
use super::prompt::{Prompts, Question, RowPrompt};
use super::python;
use super::rows::Rows;
use super::template::Template;
use crate::metric::Slice;
use crate::task::canonical::json;
use crate::task::data::digest_of;
use crate::task::request::{Cut, Prompt, Request};

/// What a row asks. A length of 0 is that of the sweep.
pub fn request(prompts: &mut Prompts<'_>, definition: &Definition, rows: &Rows, at: usize) -> Result<Request> {
    let row = &rows.rows[at];
    let question = prompts.question(row)?;
    let block = &definition.cache;
    let text = |template: &Template| prompts.value(template, row).map(|value| python::str(&value));
    let optional = |template: &Option<Template>| template.as_ref().map(text).transpose();
    let name = optional(&block.name)?.unwrap_or_else(|| at.to_string());
    let Question { prompt: text, target, choices } = question;
    let context = text.context.clone().map(|place| text.text[place].to_owned());
    let cluster = optional(&block.cluster)?;
    // Contexts are long, and the name is the first row's in the end.
    let cluster =
        cluster.map(|cluster| if block.first_row_names_cluster { digest_of([cluster]) } else { cluster });
    let cluster = cluster.or(context.as_ref().map(|context| digest_of([context])));
    let number = |key: &str, template: &Option<Template>| {
        let text = optional(template)?.filter(|text| !text.is_empty());
        text.map(|text| text.parse().with_context(|| format!("{key}: `{text}` is not a number"))).transpose()
    };
    let most = number("max_gen_toks", &block.max_gen_toks)?;
    let length = number("row_length", &block.row_length)?.unwrap_or(0);
    let (separator, header) = (optional(&block.separator)?.unwrap_or_default(), optional(&block.answer_header)?);
    let request = Request {
        cluster: cluster.unwrap_or_else(|| name.clone()),
        slices: slices(prompts, block, row)?,
        max_new_tokens: most,
        length,
        cut: block.cut(),
        keeps_header: header.is_none(),
        is_plain: block.is_plain,
        messages: text.messages.clone(),
        preface: text.before.len(),
        delimiters: [text.delimiter, chat_delimiter(definition)],
        likelihood_after: block.likelihood_after.clone(),
        name,
        ..Request::default()
    };
    let targets = || match &target {
        Value::Array(targets) => targets.iter().map(python::str).collect(),
        Value::Number(at) if !choices.is_empty() => {
            at.as_u64().and_then(|at| choices.get(at as usize)).into_iter().cloned().collect::<Vec<String>>()
        }
        one => vec![python::str(one)],
    };
    let whole = || prompt(text.clone(), block, &separator, header.as_deref());
    Ok(match definition.output {
        OutputType::GenerateUntil => {
            let (prompt, references) = (whole()?, targets());
            let request = Request { prompt, references, classes: choices, ..request };
            let request = if block.cut() == Cut::MiddleOfPrompt {
                cut_as_a_whole(request, context.is_some())
            } else {
                request
            };
            definition.metrics.iter().try_for_each(|metric| metric.check(&request))?;
            request
        }
        OutputType::LoglikelihoodRolling => {
            // What is counted stands behind the text itself.
            let counted = optional(&block.counted)?;
            Request { references: targets().into_iter().take(1).chain(counted).collect(), ..request }
        }
        OutputType::Loglikelihood => {
            let references = targets();
            let continuations = references.iter().take(1).cloned().collect();
            Request { prompt: whole()?, continuations, references, right: vec![0], ..request }
        }
        OutputType::MultipleChoice => {
            ensure!(!choices.is_empty(), "there are no choices");
            let right = right(&target, &choices);
            let after = |text: &String| [definition.target_delimiter.as_str(), text].concat();
            let continuations = choices.iter().map(after).collect();
            let references = right.iter().filter_map(|at| choices.get(*at).cloned()).collect();
            Request { prompt: whole()?, continuations, references, classes: choices, right, ..request }
        }
    })
}

/// Bytes of the delimiter before each choice that a chat template leaves out (`construct_requests` of the harness).
fn chat_delimiter(definition: &Definition) -> usize {
    let prefix = definition.prefix.as_ref().map_or("", |prefix| prefix.source());
    let is_kept = !prefix.is_empty() && !prefix.ends_with(char::is_whitespace);
    if is_kept || definition.output != OutputType::MultipleChoice { 0 } else { definition.target_delimiter.len() }
}

/// The slices that a row counts for.
fn slices(prompts: &Prompts<'_>, block: &CacheYaml, row: &Value) -> Result<Vec<Slice>> {
    let mut slices = Vec::new();
    for (name, template) in &block.slices {
        let values = match prompts.value(template, row)? {
            Value::Array(values) => values,
            one => vec![one],
        };
        let values = values.iter().map(python::str).filter(|value| !value.is_empty());
        slices.extend(values.map(|value| Slice::of_value(name, &value)));
    }
    Ok(slices)
}

/// The indices of the right choices.
fn right(target: &Value, choices: &[String]) -> Vec<usize> {
    let one = |target: &Value| match target {
        Value::Number(at) => at.as_i64().and_then(|at| usize::try_from(at).ok()),
        Value::String(text) => choices.iter().position(|choice| choice == text),
        Value::Bool(is) => Some(usize::from(*is)),
        _ => None,
    };
    match target {
        Value::Array(targets) => targets.iter().filter_map(one).collect(),
        target => one(target).into_iter().collect(),
    }
}

/// A row's prompt in the parts that cutting treats differently.
fn prompt(text: RowPrompt, block: &CacheYaml, separator: &str, header: Option<&str>) -> Result<Prompt> {
    let RowPrompt { before, text, context, prefix, .. } = text;
    let separator = separator.to_owned();
    let (own, document, rest) = match context.filter(|context| !context.is_empty()) {
        // Nothing may be lost.
        None if block.cut() == Cut::End => ("", "", text.as_str()),
        None => (text.as_str(), "", ""),
        Some(context) => (&text[..context.start], &text[context.clone()], &text[context.end..]),
    };
    let after = rest.to_owned() + &prefix;
    let header = header.unwrap_or(&prefix);
    ensure!(after.ends_with(header), "the prompt does not end with its `answer_header`, {header:?}");
    let header = header.len();
    Ok(Prompt { before: before + own, document: document.into(), after, separator, header })
}

/// The request whose document is its whole prompt. With a context, the question begins where that ended.
fn cut_as_a_whole(request: Request, has_context: bool) -> Request {
    let Prompt { before, document, .. } = &request.prompt;
    let question_at = has_context.then_some(before.len() + document.len());
    let prompt = Prompt { document: request.prompt.whole(), ..Prompt::default() };
    Request { question_at, prompt, messages: Vec::new(), preface: 0, ..request }
}

/// Names the clusters of files that ask for it after their first rows. Rows of one cluster follow each other.
pub fn name_clusters(definitions: &[Arc<Definition>], requests: &mut [Request]) {
    let mut firsts: HashMap<String, String> = HashMap::new();
    for request in requests {
        if definitions[request.part].cache.first_row_names_cluster {
            let first = firsts.entry(request.cluster.clone()).or_insert_with(|| request.name.clone());
            request.cluster = first.clone();
        }
    }
}

/// Puts rows of one cluster one after the other, and refuses two of one name.
pub fn gather(requests: &mut [Request]) -> Result<()> {
    let mut order: HashMap<String, usize> = HashMap::new();
    let mut names = BTreeSet::new();
    for request in &*requests {
        let next = order.len();
        order.entry(request.cluster.clone()).or_insert(next);
        ensure!(
            names.insert(&request.name),
            "two rows are named {}; results could not tell them apart",
            request.name
        );
    }
    requests.sort_by_key(|request| order[&request.cluster]);
    Ok(())
}

/// Adds the answers that need no reading, where they follow from all rows or from the context.
pub fn add_trivial(definition: &Definition, requests: &mut [Request]) {
    let trivial = match definition.cache.trivial {
        Some(Trivial::Commonest) => commonest_answer(requests, 1),
        Some(Trivial::CommonestShared) => commonest_answer(requests, 2),
        Some(Trivial::FirstWords) => first_words(requests),
        None => return,
    };
    for (request, trivial) in requests.iter_mut().zip(trivial) {
        request.trivial = trivial;
    }
}

/// For every request the reference that answers most requests, the alphabetically first of equals; none where it answers fewer
/// than `least`.
fn commonest_answer(requests: &[Request], least: usize) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for request in requests {
        let different: BTreeSet<&str> = request.references.iter().map(String::as_str).collect();
        different.into_iter().for_each(|answer| *counts.entry(answer).or_default() += 1);
    }
    let commonest = counts.into_iter().rev().max_by_key(|(_, count)| *count).filter(|(_, count)| *count >= least);
    let commonest = commonest.map(|(answer, _)| answer.to_owned()).unwrap_or_default();
    vec![commonest; requests.len()]
}

/// The first words of each document, as many as its references have on average.
fn first_words(requests: &[Request]) -> Vec<String> {
    let words = |text: &String| text.split_whitespace().count();
    let first_words = |request: &Request| {
        let references = request.references.iter().map(words).sum::<usize>();
        let count = references.checked_div(request.references.len()).unwrap_or(0);
        request.prompt.document.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
    };
    requests.iter().map(first_words).collect()
}

/// The digest of all that prompts and scores depend on.
pub fn digest(requests: &[Request]) -> String {
    digest_of(requests.iter().map(json))
}
