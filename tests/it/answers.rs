//! Tasks that generate text, through the command line: answers do not depend on how the work is split, and bad input is
//! named.

use crate::support::material;
use std::fs;
use std::path::Path;

use crate::support::checkpoint::{copy, load};
use crate::support::program::{Ended, run};
use crate::support::rows::{assert_same, measured};
use serde_json::json;
use tova_bench::eviction::presets;
use tova_bench::ledger::Row;
use tova_bench::lm::{MemoryPlan, Tokenizer};
use tova_bench::metric::{Letters, best_f1, best_rouge};
use tova_bench::task::{PromptStyle, QASPER, SQUALITY, STORY_REQUEST, Split, read_questions};

fn sweep(folder: &Path, sizes: &str, more: &str, tasks: &[&str]) {
    let tasks: String = tasks.iter().map(|task| format!("  - {task}\n")).collect();
    let policies = "policies: [full, truncate, window+4, h2o, tova]\n";
    let text = format!("models: [pocket]\n{policies}cache_sizes: {sizes}\n{more}tasks:\n{tasks}");
    fs::write(folder.join("sweep.yaml"), text).unwrap();
}

fn answer(folder: &Path, results: &str, more: &[&str]) -> Ended {
    run(folder, &[&["run", "sweep.yaml", "--no-report", "--results", results], more].concat())
}

/// The rows that carry generated texts.
fn written(folder: &Path, results: &str) -> Vec<Row> {
    let mut rows = measured(&folder.join(results));
    rows.retain(|row| row.metric == "new_tokens");
    assert!(rows.iter().all(|row| row.output.is_some()));
    rows
}

const QUESTIONS: [&str; 4] = [
    "qasper: {dataset: embedded, documents: 2, questions: 3, length: 700, write: {max_new_tokens: 10, stop: [\"\\n\"]}}",
    "qasper: {dataset: embedded, documents: 1, questions: 3, length: 900, prompt: paper, write: {max_new_tokens: 10}}",
    "squality: {dataset: embedded, documents: 1, questions: 2, length: 800, write: {max_new_tokens: 30}}",
    "story: {request: embedded, stories: 3, length: 300, write: {max_new_tokens: 120, temperature: 0.9, top_k: 50}}",
];

#[test]
fn answers_do_not_depend_on_threads_shards_or_other_cells() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    sweep(folder, "[128, 256]", "", &QUESTIONS);
    answer(folder, "one", &["--threads", "1"]).with_code(0);
    let expected = measured(&folder.join("one"));
    assert!(expected.iter().filter(|row| row.output.is_some()).count() > 100);
    answer(folder, "three", &["--threads", "3"]).with_code(0);
    assert_same(&measured(&folder.join("three")), &expected);
    for shard in ["2/2", "1/2"] {
        answer(folder, "shards", &["--shard", shard]).with_code(0);
    }
    assert_same(&measured(&folder.join("shards")), &expected);
    // Cells that run one by one share nothing.
    for policy in ["tova", "full", "h2o", "window+4", "truncate"] {
        answer(folder, "apart", &["--only", &format!("policy={policy}")]).with_code(0);
    }
    assert_same(&measured(&folder.join("apart")), &expected);
}

/// A cache that holds everything generates the same text as the full cache; a small one does not.
#[test]
fn a_large_cache_answers_like_the_full_cache() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    sweep(folder, "[128, 900]", "schedule: cut+1\n", &QUESTIONS);
    answer(folder, "out", &[]).with_code(0);
    let rows = written(folder, "out");
    let text = |policy: &str, size: Option<u32>, row: &Row| {
        let same = |other: &&Row| {
            (other.policy.as_str(), other.cache_size) == (policy, size)
                && (&other.task, &other.sample, other.length, &other.generation)
                    == (&row.task, &row.sample, row.length, &row.generation)
        };
        rows.iter().find(same).unwrap_or_else(|| panic!("{policy} {size:?} {}", row.sample)).output.clone()
    };
    let mut differ = 0;
    for full in rows.iter().filter(|row| row.policy == "full") {
        for policy in ["truncate", "window+4", "h2o", "tova"] {
            assert_eq!(text(policy, Some(900), full), full.output, "{policy} {}", full.sample);
            differ += usize::from(text(policy, Some(128), full) != full.output);
        }
        assert!(full.prompt_tokens + full.new_tokens <= full.length, "{}", full.sample);
    }
    assert!(differ > 20, "{differ}");
    // The baseline cuts its prompts to its size.
    for row in rows.iter().filter(|row| row.policy == "truncate" && row.cache_size == Some(128)) {
        assert!(row.prompt_tokens <= 128, "{}", row.prompt_tokens);
    }
}

/// Both benchmarks, from both kinds of files, in both wordings, at three sizes.
#[test]
fn questions_of_real_files_are_answered_and_scored() {
    let Some(data) =
        material::data("questions_of_real_files_are_answered_and_scored").map(|data| data.join("data"))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let files = [
        (&SQUALITY, "squality/dev.jsonl"),
        (&SQUALITY, "squality/zeroscrolls-dev.jsonl"),
        (&QASPER, "qasper/qasper-train10-v0.3.json"),
        (&QASPER, "qasper/zeroscrolls-train10.jsonl"),
    ];
    for style in ["zeroscrolls", "paper"] {
        for (number, (benchmark, file)) in files.iter().enumerate() {
            let path = data.join(file);
            let task = format!(
                "{}: {{dataset: {}, split: validation, prompt: {style}, length: 600, documents: 1, questions: 2, \
                 write: {{max_new_tokens: 12}}}}",
                benchmark.name,
                path.display()
            );
            sweep(folder, "[256, 300, 512]", "", &[&task]);
            let results = format!("{style}{number}");
            answer(folder, &results, &[]).with_code(0);
            let rows = measured(&folder.join(&results));
            let style = if style == "paper" { PromptStyle::Paper } else { PromptStyle::ZeroScrolls };
            let questions = read_questions(benchmark, &path, Split::Validation, style).unwrap();
            let answers: Vec<&Row> = rows.iter().filter(|row| row.output.is_some()).collect();
            assert_eq!(answers.len(), 13 * 2);
            for row in answers {
                let question = questions.iter().find(|question| question.name == row.sample).unwrap();
                let text = row.output.as_deref().unwrap();
                let references: Vec<String> = serde_json::from_str(row.references.as_deref().unwrap()).unwrap();
                assert_eq!(references, question.references);
                assert!(question.prompt.after.contains(row.question.as_deref().unwrap()));
                assert_eq!(row.metric, "new_tokens");
                let value = |metric: &str| {
                    let found = rows.iter().find(|other| {
                        (&other.cell, &other.sample, other.metric.as_str()) == (&row.cell, &row.sample, metric)
                            && other.slice.is_none()
                    });
                    found.unwrap_or_else(|| panic!("no {metric}")).value
                };
                if benchmark.name == SQUALITY.name {
                    let rouge = best_rouge(text, &question.references);
                    assert_eq!([rouge.one, rouge.two, rouge.l], ["rouge1", "rouge2", "rougeL"].map(value));
                } else {
                    assert_eq!(best_f1(text, &question.references, Letters::AsWritten), value("f1"));
                }
            }
        }
    }
}

/// A row of ZeroSCROLLS with some fields replaced; `null` removes one.
fn zeroscrolls_row(change: &serde_json::Value) -> String {
    let document = "Étude. The mill stands in Oakford. The baker is Mara.";
    let before = "You are given a scientific article and a question. Answer the question as concisely as you can, using \
        a single phrase or sentence if possible. If the question cannot be answered based on the information in the \
        article, write \"unanswerable\". If the question is a yes/no question, answer \"yes\", \"no\", or \
        \"unanswerable\".\n\nArticle:\n";
    let query = "Question:\nWhere does the mill stand?";
    let places = [before, document, "\n\n", query].map(|part| part.chars().count());
    let mut row = json!({
        "id": "q1", "pid": "q1_0", "input": format!("{before}{document}\n\n{query}\n\nAnswer:\n"), "output": "Oakford",
        "document_start_index": places[0], "document_end_index": places[0] + places[1],
        "query_start_index": places[..3].iter().sum::<usize>(), "query_end_index": places.iter().sum::<usize>(),
        "truncation_seperator": "... [The rest of the article is omitted]\n\n",
    });
    for (key, value) in change.as_object().unwrap() {
        if value.is_null() {
            row.as_object_mut().unwrap().remove(key);
        } else {
            row[key] = value.clone();
        }
    }
    row.to_string()
}

#[test]
fn bad_questions_are_named_and_other_cells_still_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let good = "qasper: {dataset: embedded, documents: 1, questions: 1, length: 400, write: {max_new_tokens: 4}}";
    let refused = |row: &str, write: &str, words: &[&str]| {
        fs::write(folder.join("rows.jsonl"), format!("{}\n{row}\n", zeroscrolls_row(&json!({"id": "q0"}))))
            .unwrap();
        let bad = format!("qasper: {{dataset: ./rows.jsonl, length: 300, write: {{{write}}}}}");
        sweep(folder, "[128]", "", &[&bad, good]);
        let _ = fs::remove_dir_all(folder.join("out"));
        let ended = answer(folder, "out", &[]);
        ended.says(words);
        let ended = ended.with_code(4);
        ended.says(&["5 cells measured"]);
        assert!(written(folder, "out").iter().all(|row| row.dataset == "embedded"));
    };
    let no_offset = zeroscrolls_row(&json!({"document_end_index": null}));
    refused(&no_offset, "max_new_tokens: 8", &["rows.jsonl", "line 2", "q1", "document_end_index"]);
    let beyond = zeroscrolls_row(&json!({"query_end_index": 100_000}));
    refused(&beyond, "max_new_tokens: 8", &["rows.jsonl", "q1", "query_end_index"]);
    refused("{\"id\": ", "max_new_tokens: 8", &["rows.jsonl", "line 2"]);
    // The prompt is longer than the room beside the answer.
    refused(&zeroscrolls_row(&json!({})), "max_new_tokens: 290", &["q0", "without its context it needs"]);
}

/// `- benchmark: qasper` with the same rows and limits is the same measurement as `- qasper:`.
#[test]
fn a_built_in_file_has_the_numbers_of_the_task_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows = [json!({}), json!({"id": "q2", "outputs": ["Mara", "mill"], "truncation_seperator": " [cut] "})];
    fs::write(folder.join("rows.jsonl"), rows.each_ref().map(zeroscrolls_row).join("\n")).unwrap();
    let numbers = |results: &str, task: &str| {
        sweep(folder, "[128]", "", &[&format!("{task}, length: 300, write: {{max_new_tokens: 6}}}}")]);
        answer(folder, results, &[]).with_code(0);
        let mut numbers: Vec<String> = measured(&folder.join(results))
            .into_iter()
            .map(|row| {
                let what = (row.task, row.policy, row.sample, row.cluster, row.metric, row.slice);
                format!("{what:?} {} {} {:?} {:?}", row.value, row.weight, row.output, row.references)
            })
            .collect();
        numbers.sort();
        numbers
    };
    let of_task = numbers("task", "qasper: {dataset: ./rows.jsonl");
    assert!(of_task.len() > 40);
    assert_eq!(numbers("file", "benchmark: {task: qasper, dataset: ./rows.jsonl"), of_task);
}

#[test]
fn questions_without_references_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows = [json!({"id": "q0", "output": null}), json!({"id": "q1", "output": null})];
    fs::write(folder.join("rows.jsonl"), rows.each_ref().map(zeroscrolls_row).join("\n")).unwrap();
    sweep(folder, "[128]", "", &["qasper: {dataset: ./rows.jsonl, length: 300, write: {max_new_tokens: 6}}"]);
    answer(folder, "out", &[]).with_code(0);
    let rows = measured(&folder.join("out"));
    assert!(rows.iter().all(|row| row.metric == "new_tokens"));
}

#[test]
fn chat_templates_frame_prompts_and_may_fail() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = copy(folder, "yi-gqa");
    let write = |template: &str| {
        let config = json!({"chat_template": template, "bos_token": "<s>"});
        fs::write(model.join("tokenizer_config.json"), config.to_string()).unwrap();
    };
    let sweep = |chat: bool| {
        let text = format!(
            "models: [./yi-gqa]\npolicies: [full]\ntasks: [{{story: {{request: \"a b\", stories: 1, length: 60, write: \
             {{max_new_tokens: 5, chat_template: {chat}}}}}}}]\n"
        );
        fs::write(folder.join("sweep.yaml"), text).unwrap();
    };
    write("[[{{ messages[0].content }}]]");
    sweep(true);
    answer(folder, "with", &[]).with_code(0);
    sweep(false);
    answer(folder, "without", &[]).with_code(0);
    let (with, without) = (&written(folder, "with")[0], &written(folder, "without")[0]);
    assert!(with.prompt_tokens > without.prompt_tokens);
    assert!(with.generation.as_ref().unwrap().contains(" template="));
    assert!(!without.generation.as_ref().unwrap().contains(" template="));
    assert_ne!(with.cell, without.cell);
    write("{{ raise_exception('no such role') }}");
    sweep(true);
    answer(folder, "fails", &[]).with_code(1).says(&["no such role", "chat_template: false"]);
}

/// The paper's story request: inside a model's chat template without a frame of its own, elsewhere with it.
#[test]
fn the_paper_s_story_request_uses_the_template_that_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = copy(folder, "yi-gqa").join("tokenizer_config.json");
    let template = json!({"chat_template": "[[{{ messages[0].content }}]]", "bos_token": "<s>"});
    let story = |results: &str, write: &str| {
        let task = format!("story: {{stories: 1, length: 900, write: {{max_new_tokens: 5{write}}}}}");
        let text = format!("models: [./yi-gqa]\npolicies: [full]\ntasks: [{{{task}}}]\n");
        fs::write(folder.join("sweep.yaml"), text).unwrap();
        answer(folder, results, &[]).with_code(0);
        let row = written(folder, results).remove(0);
        (row.question.unwrap(), row.generation.unwrap().to_string(), row.cell)
    };
    let base = story("base", "");
    let framed = format!("### Instruction:\n{STORY_REQUEST}\n\n### Response:");
    assert_eq!(base.0, framed);
    assert!(base.1.contains("chat_template=false") && !base.1.contains(" template="), "{}", base.1);
    fs::write(config, template.to_string()).unwrap();
    let chat = story("chat", "");
    // A question begins behind what the template writes before it.
    assert_eq!(chat.0, format!("{STORY_REQUEST}]]"));
    assert!(chat.1.contains("chat_template=true") && chat.1.contains(" template="), "{}", chat.1);
    let told = story("told", ", chat_template: false");
    assert_eq!((told.0, &told.1), (framed, &base.1));
    assert!(chat.2 != base.2 && chat.2 != told.2);
}

/// LongBench v2 by the likelihood of the letter, against prompts and answers that are read one token at a time.
#[test]
fn the_likeliest_letter_is_that_of_whole_readings() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let parts = ["The garden", "A ship", "Her brother", "Some rain"];
    let row = |number: usize| {
        let context: Vec<String> =
            (0..12).map(|n| format!("{} came on day {n}.", parts[(n * number) % 4])).collect();
        json!({"_id": format!("q{number}"), "domain": "d", "sub_domain": "s", "difficulty": "easy", "length": "short",
            "question": format!("What came on day {number}?"), "choice_A": parts[number % 4], "choice_B": parts[1],
            "choice_C": parts[(number + 2) % 4], "choice_D": "Nobody", "answer": (["A", "B", "C", "D"][number % 4]),
            "context": context.join(" ")})
    };
    let rows: Vec<_> = (1..7).map(row).collect();
    fs::write(folder.join("v2.jsonl"), rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    let task = "longbench: {dataset: ./v2.jsonl, version: v2, length: 1500, write: {max_new_tokens: 4, chat_template: false}}";
    sweep(folder, "[24]", "", &[task]);
    answer(folder, "out", &[]).with_code(0);
    let mut measured = measured(&folder.join("out"));
    measured.retain(|row| row.metric == "accuracy_likelihood" && row.slice.is_none());

    let pocket = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/pocket");
    let (model, tokenizer) = (load(&pocket), Tokenizer::read(&pocket.join("tokenizer.json"), None, None).unwrap());
    let text = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
    let mut right = 0;
    for policy in ["full", "tova", "window+4", "h2o"] {
        for row in &rows {
            let prompt = format!(
                "Please read the following text and answer the question below.\n\n<text>\n{}\n</text>\n\nWhat is the \
                 correct answer to this question: {}\nChoices:\n(A) {}\n(B) {}\n(C) {}\n(D) {}\n\nFormat your \
                 response as follows: \"The correct answer is (insert answer here)\".",
                text(row, "context"),
                text(row, "question"),
                text(row, "choice_A"),
                text(row, "choice_B"),
                text(row, "choice_C"),
                text(row, "choice_D"),
            );
            let bos = tokenizer.adds_bos().then(|| tokenizer.bos().unwrap());
            let policy_of = presets::by_name(policy).map(|policy| policy.at(24).unwrap());
            let mut memory = model.new_memory(&MemoryPlan { policy: policy_of, ..MemoryPlan::unbounded() });
            let prompt = tokenizer.encode(&prompt).unwrap().ids;
            let mut state = None;
            for token in bos.into_iter().chain(prompt) {
                state = Some(model.read(&[token], &mut memory).unwrap());
            }
            let nll = |letter: &str| -> f32 {
                let answer = tokenizer.encode(&format!("The correct answer is ({letter}")).unwrap().ids;
                let (mut memory, mut state) = (memory.clone(), state.clone().unwrap());
                let nlls = answer.iter().map(|token| {
                    let nll = model.nll(&state, &[*token]).unwrap()[0];
                    state = model.read(&[*token], &mut memory).unwrap();
                    nll
                });
                nlls.sum()
            };
            let likeliest = ["A", "B", "C", "D"].into_iter().min_by(|a, b| nll(a).total_cmp(&nll(b))).unwrap();
            let is_right = likeliest == text(row, "answer");
            right += usize::from(is_right);
            let name = text(row, "_id");
            let found = measured.iter().find(|row| row.policy == policy && row.sample == name);
            assert_eq!(found.map(|row| row.value), Some(f64::from(u8::from(is_right))), "{policy} {name}");
        }
    }
    assert!((1..24).contains(&right), "{right} of 24 decide nothing");
}
