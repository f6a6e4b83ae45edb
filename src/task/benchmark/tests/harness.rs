//! Prompts and settings against what lm-evaluation-harness 0.4.13 made of the same rows and files, written down here
//! (`ConfigurableTask.fewshot_context` and `construct_requests`, with examples as turns in a chat template).

use serde_json::{Value, json};

use crate::lm::ChatTemplate;
use crate::task::benchmark::definition::{self, Definition};
use crate::task::benchmark::prompt::Prompts;
use crate::task::benchmark::request::request;
use crate::task::benchmark::rows::Rows;
use crate::task::benchmark::template::Template;
use crate::task::generation::framed;
use crate::task::request::Request;
use crate::yaml::ConfigError;

const BASE: &str = "
task: t
dataset_path: json
dataset_kwargs: {data_files: {train: rows.jsonl, validation: rows.jsonl}}
training_split: train
validation_split: validation
output_type: multiple_choice
doc_to_text: '{{q}}'
doc_to_target: a
doc_to_choice: c
metric_list: [{metric: acc}]
";

/// The messages as they are, each in marks of its role.
const TEMPLATE: &str = "{% for m in messages %}<{{m['role']}}>{{m['content']}}</{{m['role']}}>\n{% endfor %}\
                        {% if add_generation_prompt %}<assistant>{% endif %}";

fn read(yaml: &str) -> Result<Definition, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.yaml");
    std::fs::write(&path, yaml).unwrap();
    definition::read(&path).map(|mut tasks| tasks.remove(0).1.remove(0))
}

/// Rows as a file has them, which is called `file`.
fn rows(file: &str) -> Rows {
    let mut rows = Rows::default();
    for i in 0..6 {
        let row = json!({"q": format!("Q{i}?"), "c": ["yes", "no"], "a": i % 2});
        rows.add(row, format!("{file}, line {}", i + 1)).unwrap();
    }
    rows
}

/// The requests of the first three rows, examples from the same file.
fn requests(more: &str, examples: Rows) -> Vec<Request> {
    let (definition, rows) = (read(&format!("{BASE}{more}")).unwrap(), rows("rows.jsonl"));
    let mut prompts = Prompts::new(&definition, &rows, examples);
    (0..3).map(|at| request(&mut prompts, &definition, &rows, at).unwrap()).collect()
}

#[test]
fn a_row_is_no_example_of_itself() {
    let prompts = |more: &str, examples: Rows| -> Vec<String> {
        requests(more, examples).iter().map(|request| request.prompt.whole()).collect()
    };
    // The file names neither `fewshot_split` nor `test_split`.
    let harness = ["Q3? no\n\nQ4? yes\n\nQ0?", "Q0? yes\n\nQ4? yes\n\nQ1?", "Q5? no\n\nQ0? yes\n\nQ2?"];
    assert_eq!(prompts("num_fewshot: 2\n", rows("rows.jsonl")), harness);
    assert_eq!(prompts("num_fewshot: 2\n", rows("other.jsonl")), harness);
    // Splits of two names in one file; of two files, the harness draws without regard to the row.
    let named = "num_fewshot: 5\nfewshot_split: train\ntest_split: validation\n";
    for (at, prompt) in prompts(named, rows("rows.jsonl")).iter().enumerate() {
        assert_eq!(prompt.matches(&format!("Q{at}?")).count(), 1, "{prompt}");
    }
    let drawn = prompts(named, rows("other.jsonl"));
    assert!(drawn.iter().enumerate().any(|(at, prompt)| prompt.matches(&format!("Q{at}?")).count() == 2));
    // Without other splits examples come from the rows that are measured.
    let only = BASE.replace("training_split: train\nvalidation_split: validation", "test_split: validation");
    let definition = read(&format!("{only}num_fewshot: 5\n")).unwrap();
    let own = rows("rows.jsonl");
    let prompt = Prompts::new(&definition, &own, own.clone()).question(&own.rows[0]).unwrap().prompt;
    assert_eq!(prompt.messages.len(), 10);
}

#[test]
fn a_chat_template_has_the_harness_messages_and_choices() {
    let template = ChatTemplate::parse(&json!({ "chat_template": TEMPLATE }), None).unwrap().unwrap();
    for (more, prompt, choice) in [
        ("", "<user>Q1?</user>\n<assistant>", "yes"),
        (
            "num_fewshot: 2\ndescription: Be brief.\n",
            "<system>Be brief.</system>\n<user>Q0?</user>\n<assistant>yes</assistant>\n<user>Q4?</user>\n\
             <assistant>yes</assistant>\n<user>Q1?</user>\n<assistant>",
            "yes",
        ),
        ("gen_prefix: It is\n", "<user>Q1?</user>\n<assistant>It is", " yes"),
        ("gen_prefix: 'It is '\n", "<user>Q1?</user>\n<assistant>It is ", "yes"),
        (
            "num_fewshot: 1\ngen_prefix: It is\ndescription: 'D. '\n",
            "<system>D. </system>\n<user>Q0?</user>\n<assistant>It is yes</assistant>\n<user>Q1?</user>\n\
             <assistant>It is",
            " yes",
        ),
    ] {
        let request = requests(more, rows("rows.jsonl")).remove(1);
        let plain = request.continuations[0].clone();
        assert_eq!(plain, " yes", "{more}");
        let before: Vec<_> = request.messages.iter().map(|(role, text)| (*role, text.as_str())).collect();
        let frame = template.format_after(&before, request.prompt.header > 0).unwrap();
        let framed = framed(request, &frame);
        assert_eq!((framed.prompt.whole().as_str(), framed.continuations[0].as_str()), (prompt, choice), "{more}");
    }
    // A template that refuses the system's message is rendered without it.
    let refusing =
        format!("{{% if messages[0].role == 'system' %}}{{{{ raise_exception('no') }}}}{{% endif %}}{TEMPLATE}");
    let refusing = ChatTemplate::parse(&json!({ "chat_template": refusing }), None).unwrap().unwrap();
    assert_eq!(refusing.format_after(&[("system", "Be brief.")], false).unwrap().prefix, "<user>");
}

#[test]
fn answers_are_drawn_within_the_ranges_of_a_sweep() {
    let generation = |kwargs: &str| {
        let written = BASE.replace("output_type: multiple_choice", "output_type: generate_until");
        let written = written.replace("doc_to_choice: c\n", "").replace("metric: acc", "metric: exact_match");
        read(&format!("{written}generation_kwargs: {kwargs}\n")).map(|definition| definition.generation)
    };
    for (kwargs, words) in [
        ("{temperature: -1}", "-1 cannot be `temperature`"),
        ("{temperature: 1, top_p: 2}", "2 cannot be `top_p`"),
        ("{temperature: 1, top_k: 0}", "0 cannot be `top_k`"),
        ("{do_sample: true}", "nothing can be sampled at temperature 0"),
        ("{do_sample: true, temperature: 0.0}", "nothing can be sampled at temperature 0"),
    ] {
        let error = generation(kwargs).unwrap_err();
        assert!(error.message.contains(words) && error.place.is_some(), "{kwargs}: {error}");
    }
    let drawn = generation("{temperature: 0.5, top_k: 3, top_p: 0.9}").unwrap();
    assert_eq!((drawn.temperature.0, drawn.top_k, drawn.top_p.map(|p| p.0)), (0.5, Some(3), Some(0.9)));
    let greedy = generation("{do_sample: false, temperature: 0.7, top_k: 3, top_p: 0.9}").unwrap();
    assert_eq!((greedy.temperature.0, greedy.top_k, greedy.top_p), (0.0, None, None));
    for (more, words) in
        [("repeats: 9223372036854775808", "cannot be `repeats`"), ("repeats: 10001", "10001 cannot be")]
    {
        let written = BASE.replace("output_type: multiple_choice", "output_type: generate_until");
        let written = written.replace("doc_to_choice: c\n", "").replace("metric: acc", "metric: exact_match");
        let error = read(&format!("{written}generation_kwargs: {{temperature: 1}}\n{more}\n")).unwrap_err();
        assert!(error.message.contains(words) && error.hint.contains("10000"), "{error}");
    }
}

/// As PyYAML 6 merges them.
#[test]
fn merge_keys_are_those_of_python() {
    let yaml = BASE.replace(
        "metric_list: [{metric: acc}]",
        "metadata: &base {metric: acc, aggregation: mean, higher_is_better: true}\nmetric_list:\n  \
         - {<<: *base}\n  - {<<: *base, metric: acc_norm}",
    );
    let metrics = read(&yaml).unwrap().metrics;
    assert_eq!(metrics.iter().map(|metric| json!(metric.kind)).collect::<Vec<_>>(), ["acc", "acc_norm"]);
}

#[test]
fn includes_that_fan_out_end() {
    let folder = tempfile::tempdir().unwrap();
    for level in 0..10 {
        let include = vec![format!("{}.yaml", level + 1); 8].join(", ");
        std::fs::write(folder.path().join(format!("{level}.yaml")), format!("include: [{include}]\n")).unwrap();
    }
    std::fs::write(folder.path().join("10.yaml"), BASE).unwrap();
    let error = definition::read(&folder.path().join("0.yaml")).unwrap_err();
    assert!(error.message.contains("more than 100 files"), "{error}");
}

/// `{{o.values()|list}}`, `{{o}}` and `{% for k in o %}` in jinja2.
#[test]
fn objects_keep_the_order_of_their_keys() {
    let row: Value = serde_json::from_str(r#"{"o": {"b": "x", "a": "y", "c": {"z": 1, "y": 2}}}"#).unwrap();
    for (template, expected) in [
        ("{{o.values()|list}}", "['x', 'y', {'z': 1, 'y': 2}]"),
        ("{{o}}", "{'b': 'x', 'a': 'y', 'c': {'z': 1, 'y': 2}}"),
        ("{% for k in o %}{{k}}{% endfor %}", "bac"),
        ("{% for k, v in o.items() %}{{k}}{% endfor %}", "bac"),
        ("{{o.keys()|list}}", "['b', 'a', 'c']"),
        ("{{ {'q': 1, 'b': 2} }}", "{'q': 1, 'b': 2}"),
    ] {
        assert_eq!(Template::new(template).unwrap().render(&row).unwrap(), expected, "{template}");
    }
    // The identity of a task does not depend on it.
    let samples =
        |keys: &str| read(&format!("{BASE}fewshot_config: {{samples: [{{{keys}}}]}}\n")).unwrap().canonical;
    assert_eq!(samples("q: x, a: 0"), samples("a: 0, q: x"));
}
