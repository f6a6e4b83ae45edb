//! Task files against values of CPython and against hand-computed tables; `tests/it/benchmarks.rs` has those against the harness.

mod harness;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::builtin;
use super::definition::{self, Definition, Examples};
use super::output::OutputType;
use super::prompt::{Prompts, RowPrompt};
use super::python::{self, Random};
use super::request::request;
use super::rows::Rows;
use super::score::ByFile;
use super::template::Template;
use crate::metric::Slice;
use crate::task::registry::READERS;
use crate::task::request::Scorer;
use crate::yaml::{Location, Spanned};

/// What lm-evaluation-harness 0.4.13 made of some rows (`tests/golden/make/lm_eval_witness.py`).
#[derive(Deserialize)]
struct Golden {
    rows: BTreeMap<String, Vec<Value>>,
    samples: Vec<Sample>,
    /// Row, answer, filter, what the filter leaves, and its score.
    crafted: Vec<(usize, String, String, String, f64)>,
}

#[derive(Deserialize)]
struct Sample {
    /// The first digits of the SHA-256 of each prompt.
    prompts: Vec<String>,
    continuations: Vec<String>,
}

/// The definition of a task, the rows that are measured, and the examples.
fn golden(task: &str, golden: &Golden) -> (Definition, Rows, Rows) {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/benchmarks/{task}.yaml"));
    let name = if task == "mmlu_anatomy" { "mmlu" } else { task };
    let mut read = match own.is_file() {
        true => definition::read(&own).unwrap(),
        false => builtin::read(&Spanned { value: name.to_owned(), referenced: Location::UNKNOWN }).unwrap(),
    };
    let definition = read.remove(0).1.remove(0);
    let mut rows = Rows::default();
    for row in &golden.rows[&definition.split] {
        rows.add(row.clone(), String::new()).unwrap();
    }
    let mut examples = Rows::default();
    if let Examples::Split(split) = &definition.fewshot.source {
        for row in golden.rows.get(split).into_iter().flatten() {
            examples.add(row.clone(), String::new()).unwrap();
        }
    }
    (definition, rows, examples)
}

fn goldens() -> BTreeMap<String, Golden> {
    serde_json::from_str(include_str!("../../../../tests/golden/lm_eval.json")).unwrap()
}

#[test]
fn prompts_are_the_harness_own_to_the_character() {
    let digest = |text: &str| format!("{:x}", Sha256::digest(text))[..16].to_owned();
    let whole = |RowPrompt { before, text, prefix, .. }: &RowPrompt| [before.as_str(), text, prefix].concat();
    for (task, expected) in goldens() {
        let (definition, rows, examples) = golden(&task, &expected);
        let mut prompts = Prompts::new(&definition, &rows, examples);
        assert_eq!(rows.rows.len(), expected.samples.len(), "{task}");
        for (at, sample) in expected.samples.iter().enumerate() {
            let question = prompts.question(&rows.rows[at]).unwrap();
            let texts = match definition.output {
                OutputType::LoglikelihoodRolling => vec![python::str(&question.target)],
                OutputType::MultipleChoice => vec![whole(&question.prompt); question.choices.len()],
                _ => vec![whole(&question.prompt)],
            };
            let found: Vec<String> = texts.iter().map(|text| digest(text)).collect();
            assert_eq!(found, sample.prompts, "{task} {at}: {texts:?}");
            let mut again = Prompts::new(&definition, &rows, golden(&task, &expected).2);
            let asked = request(&mut again, &definition, &rows, at).unwrap().continuations;
            assert!(asked == sample.continuations, "{task} {at}: {asked:?} for {:?}", sample.continuations);
        }
    }
}

#[test]
fn answers_are_filtered_and_scored_as_in_the_harness() {
    let mut answers = 0;
    for (task, expected) in goldens() {
        let (definition, rows, examples) = golden(&task, &expected);
        let definition = Arc::new(definition);
        let mut prompts = Prompts::new(&definition, &rows, examples);
        let requests: Vec<_> =
            (0..rows.rows.len()).map(|at| request(&mut prompts, &definition, &rows, at).unwrap()).collect();
        for (at, answer, filter, left, score) in &expected.crafted {
            let chain = definition.filters.iter().find(|chain| chain.name == *filter).unwrap();
            assert_eq!(chain.apply(answer).unwrap(), *left, "{task} {filter} {answer:?}");
            let of = |filter: &str| {
                let sums = ByFile(vec![definition.clone()]).score(answer, &requests[*at]).unwrap();
                let slice = (definition.filters.len() > 1).then(|| Slice::named("filter", filter));
                let own = sums.into_iter().find(|sum| sum.metric == "exact_match" && sum.slice == slice);
                own.unwrap().value
            };
            assert_eq!(of(filter), *score, "{task} {filter} {answer:?}");
            answers += 1;
        }
    }
    assert_eq!(answers, 24);
}

/// Drawn by CPython 3.11: `r = random.Random(1234)`, then `r.sample(range(n), k)` for each.
#[test]
fn examples_are_drawn_as_python_draws_them() {
    let mut random = Random::new(1234);
    for (n, k, expected) in [
        (10, 3, vec![7, 1, 0]),
        (5, 5, vec![0, 4, 2, 3, 1]),
        (100, 5, vec![98, 45, 30, 2, 3]),
        (100, 6, vec![2, 44, 82, 79, 61, 78]),
        (7473, 6, vec![3797, 1216, 747, 1499, 5844, 937]),
        (21, 5, vec![0, 16, 15, 7, 2]),
        (22, 5, vec![21, 17, 14, 2, 19]),
        (85, 6, vec![11, 65, 74, 5, 34, 71]),
        (86, 6, vec![8, 82, 38, 61, 45, 34]),
        (
            1000,
            25,
            vec![
                255, 671, 955, 204, 464, 897, 542, 681, 19, 964, 520, 72, 5, 341, 147, 727, 484, 673, 386, 171,
                55, 78, 601, 508, 167,
            ],
        ),
    ] {
        assert_eq!(random.sample(n, k), expected, "{k} of {n}");
    }
}

#[test]
fn values_look_as_in_python_and_are_read_back() {
    for (value, repr) in [
        (json!(0.1), "0.1"),
        (json!(1e16), "1e+16"),
        (json!(1e-5), "1e-05"),
        (json!(123_456_789.0), "123456789.0"),
        (json!(5.0), "5.0"),
        (json!(-0.0001), "-0.0001"),
        (json!(1.5e-7), "1.5e-07"),
        (json!(9_007_199_254_740_992.0), "9007199254740992.0"),
        (json!(-3), "-3"),
        (json!("it's"), r#""it's""#),
        (json!("say \"x\""), r#"'say "x"'"#),
        (json!("both ' and \""), r#"'both \' and "'"#),
        (json!("a\nb\t\\"), r"'a\nb\t\\'"),
        (json!([true, false, null, ["a"]]), "[True, False, None, ['a']]"),
    ] {
        assert_eq!(python::repr(&value), repr);
        assert_eq!(python::literal(repr), Some(value));
    }
    assert_eq!(python::repr(&json!({"a": 1})), "{'a': 1}");
    assert_eq!(python::literal("['a' 'b', \"\\u00e9\\x41\", (1, 2),]"), Some(json!(["ab", "éA", [1, 2]])));
    for wrong in ["", "[1", "[1 2]", "a", "[a]", "'a", "__import__('os')", "01"] {
        assert_eq!(python::literal(wrong), None, "{wrong}");
    }
}

#[test]
fn templates_render_as_in_the_harness() {
    let row = json!({"q": " Who? ", "n": 2, "x": 1.0, "is": true, "choices": {"text": ["a", "b'c"], "label": ["A", "B"]}, "key": "B"});
    for (template, expected) in [
        ("{{q.strip()}}\n", "Who?\n"),
        ("{{choices.text}}", r#"['a', "b'c"]"#),
        ("{{choices.label.index(key)}}", "1"),
        ("{{n}} {{x}} {{is}} {{none}}", "2 1.0 True None"),
        ("{{[q, n]}}", "[' Who? ', 2]"),
        ("{{q.split(' ')[1:]|join('-')}}", "Who?-"),
        ("{{'a.b.c'|regex_replace('[.](.)', '-\\\\1')}}", "a-b-c"),
        ("{% for c in choices.text %}{{loop.index}}. {{c}}\n{% endfor %}", "1. a\n2. b'c\n"),
        ("{{ 'yes' if is else 'no' }}", "yes"),
    ] {
        assert_eq!(Template::new(template).unwrap().render(&row).unwrap(), expected, "{template}");
    }
    let fails = |template: &str| match Template::new(template) {
        Ok(template) => format!("{:#}", template.render(&row).unwrap_err()),
        Err(error) => error.to_string(),
    };
    assert!(fails("{{missing}}").contains("undefined"));
    let error = fails("{{q}} {{missing|upper}}");
    assert!(error.contains("`missing`") && error.contains("choices"), "{error}");
    for endless in [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 100000000 * 100000 }}",
        "{% include '/etc/passwd' %}",
        &format!("{{{{ {} }}}}", "(".repeat(60_000)),
    ] {
        fails(endless);
    }
    // Deep, but it ends.
    let deep =
        Template::new(&format!("{{{{ {}n }}}}", "- ".repeat(20_000))).and_then(|template| template.render(&row));
    assert!(deep.is_err() || deep.unwrap() == "2");
}

/// A file without mistakes.
const KEYS: &str = r#"task: keys
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{text}}\nQuestion: {{question}}\nAnswer:"
doc_to_target: "{{answer}}"
metric_list: [{metric: f1}]
"#;

#[test]
fn a_mistake_is_named_with_its_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.yaml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        super::check(&path, READERS)
    };
    assert_eq!(read(KEYS).unwrap().len(), 1);
    let before = |line: &str, key: &str| KEYS.replace(key, &format!("{line}\n{key}"));
    let text = r#""{{text}}\nQuestion: {{question}}\nAnswer:""#;
    for (file, line, words) in [
        (KEYS.replace("doc_to_text", "doc_to_txt"), 6, "`doc_to_txt`; did you mean `doc_to_text`?"),
        (KEYS.replace("doc_to_text", "description"), 0, "`doc_to_text` is missing"),
        (KEYS.replace(text, "[1]"), 6, "`doc_to_text` is not a text"),
        (KEYS.replace("until", "untill"), 5, "did you mean `generate_until`?"),
        (KEYS.replace("{{question}}", "{{question"), 6, "the template cannot be used"),
        (KEYS.replace("f1", "f11"), 8, "unknown name `f11`; did you mean `f1`?"),
        (KEYS.replace("f1", "acc"), 8, "`acc` is not a metric of this output type"),
        (KEYS.replace("f1", "exact_match, ignore_cases: true"), 8, "`ignore_cases`; did you mean `ignore_case`?"),
        (
            before("filter_list: [{name: x, filter: [{function: regexp}]}]", "metric_list"),
            8,
            "`regexp`; did you mean `regex`?",
        ),
        (
            KEYS.replace("\"{{answer}}\"", "!function utils.target"),
            7,
            "`doc_to_target: !function utils.target` is Python",
        ),
        (before("class: utils.Task", "test_split"), 4, "unknown key `class`"),
        (before("fewshot_config: {sampler: balanced}", "output_type"), 5, "unknown name `balanced`"),
        (before("cache: {cut: sideways}", "metric_list"), 8, "`sideways`"),
        (before("cache: {rows: mine}", "metric_list"), 8, "no code makes the rows `mine`"),
        (before("cache: {rows: {needle: {depth: [3]}}}", "metric_list"), 8, "did you mean `depths`?"),
        (before("cache: {rows: {needle: {depths: [300]}}}", "metric_list"), 8, "is beyond the text"),
        (before("cache: {rows: {ruler: {tasks: [vtt]}}}", "metric_list"), 8, "knows no `vtt`"),
        (before("cache: {context: answer}", "metric_list"), 8, "`context` does not stand in `doc_to_text`"),
        (
            before("cache: {context: '{{text}}'}", "metric_list").replace("{{question}}", "{{text}}"),
            8,
            "does not stand",
        ),
        (before("include: base.yaml", "task"), 1, "base.yaml is not there"),
        (before("test_split: test", "test_split"), 5, "duplicate mapping key: test_split"),
        (KEYS.replace("data_files", "data_fils"), 3, "`data_fils`; did you mean `data_files`?"),
    ] {
        let error = read(&file).unwrap_err();
        let place = error.place.map_or(0, |(line, _)| line);
        assert_eq!((place, error.file.as_str()), (line, path.to_str().unwrap()), "{error}");
        let said = error.to_string().replace("\nhint: ", "; ");
        assert!(said.contains(words), "{said}");
        assert!(!error.hint.is_empty(), "{error}");
    }
}

#[test]
fn a_mistake_in_an_included_file_is_named_there() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base.yaml");
    std::fs::write(&base, KEYS.replace("{metric: f1}", "\n  {metric: f11}")).unwrap();
    let own = folder.path().join("own.yaml");
    std::fs::write(&own, "include: base.yaml\ntask: own\ntest_split: train\n").unwrap();
    let error = definition::read(&own).unwrap_err();
    assert_eq!(
        (error.file.as_str(), error.place.map(|(line, _)| line)),
        (base.to_str().unwrap(), Some(9)),
        "{error}"
    );
    // A file that includes itself ends, too.
    std::fs::write(&base, "include: own.yaml\n").unwrap();
    assert!(definition::read(&own).unwrap_err().to_string().contains("include each other"));
}

#[test]
fn numbers_and_texts_stand_for_each_other_and_overridden_mistakes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [base, own] = ["base.yaml", "own.yaml"].map(|name| folder.path().join(name));
    let numbers = format!("{KEYS}target_delimiter: 5\nnum_fewshot: \"2\"\n");
    std::fs::write(&base, &numbers).unwrap();
    std::fs::write(&own, "include: base.yaml\ntask: own\n").unwrap();
    for path in [&base, &own] {
        let definition = definition::read(path).unwrap().remove(0).1.remove(0);
        assert_eq!((definition.target_delimiter.as_str(), definition.fewshot.count), ("5", 2));
    }
    std::fs::write(&base, KEYS.replace("generate_until", "generates")).unwrap();
    std::fs::write(&own, "include: base.yaml\noutput_type: generate_until\n").unwrap();
    let error = definition::read(&own).unwrap_err();
    assert_eq!(
        (error.file.as_str(), error.place.map(|(line, _)| line)),
        (base.to_str().unwrap(), Some(5)),
        "{error}"
    );
}
