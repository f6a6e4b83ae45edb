//! LongBench's scores, prompts and letters against its own code (`tests/golden/make/longbench_goldens.py`), and files that are wrong.

use crate::metric::Slice;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::*;
use crate::task::benchmark::{ByFile, Definition, builtin_definition, name_clusters, requests_of};
use crate::task::data::digest_of;
use crate::task::request::{Cut, Prompt, Request, Scorer};

/// A subset, an answer, the references, the classes, and the score.
type Best = (String, String, Vec<String>, Vec<String>, f64);

#[derive(Deserialize)]
struct Goldens {
    scores: Vec<(String, String, String, Vec<String>, f64)>,
    best: Vec<Best>,
    letters: Vec<(String, Option<String>)>,
    row: Map<String, Value>,
    prompts: BTreeMap<String, (String, usize)>,
    v2_row: Map<String, Value>,
    v2: String,
}

fn goldens() -> Goldens {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/longbench.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// A row of LongBench with some keys changed; null removes a key.
fn row(changes: &Value) -> Value {
    let row = json!({
        "_id": "r1", "input": "Who ran?", "context": "A fox ran.", "answers": ["A fox", "the fox"], "length": 3999,
        "dataset": "qasper", "language": "en", "all_classes": null,
    });
    changed(row, changes)
}

fn v2_row(changes: &Value) -> Value {
    let row = json!({
        "_id": "w1", "domain": "Code", "sub_domain": "x", "difficulty": "hard", "length": "short", "question": "Who?",
        "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d", "answer": "C", "context": "A fox ran.",
    });
    changed(row, changes)
}

fn changed(mut row: Value, changes: &Value) -> Value {
    let keys = row.as_object_mut().unwrap();
    for (key, value) in changes.as_object().unwrap() {
        keys.insert(key.clone(), value.clone());
    }
    keys.retain(|key, value| !value.is_null() || key == "all_classes");
    row
}

fn folder(files: &[(&str, &[Value])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, rows) in files {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(file, text).unwrap();
    }
    folder
}

fn definition(subset: &str) -> Arc<Definition> {
    Arc::new(builtin_definition(&format!("longbench_{subset}")).unwrap())
}

/// The requests of a text of rows.
fn requests(subset: &str, text: &str, by_length: bool) -> Result<Vec<Request>> {
    requests_of(&definition(subset), &files::rows(subset, text, "f.jsonl", by_length)?)
}

/// The rows of a file of LongBench v2.
fn v2_rows(text: String) -> Result<Rows> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("data.json");
    std::fs::write(&path, text)?;
    let mut rows = Rows::default();
    rows.read_file(&path, &std::collections::BTreeSet::new())?;
    Ok(rows)
}

/// The metrics of an answer as a whole.
fn scores(definition: &Arc<Definition>, answer: &str, request: &Request) -> Vec<(&'static str, f64)> {
    let sums = ByFile(vec![definition.clone()]).score(answer, request).unwrap().into_iter();
    sums.filter(|sum| sum.slice.is_none()).map(|sum| (sum.metric, sum.value)).collect()
}

#[test]
fn scores_are_those_of_longbench() {
    let Goldens { scores, best, .. } = goldens();
    assert!(scores.len() > 300 && best.len() > 50);
    let definitions: BTreeMap<&str, _> = Version::V1.subsets().map(|name| (name, definition(name))).collect();
    let score = |name: &str, answer: &str, references: Vec<String>, classes: Vec<String>| {
        let request = Request { references, classes, ..Request::default() };
        super::tests::scores(&definitions[name], answer, &request)[0]
    };
    // One reference, without taking the first line first.
    let measure = |name: &str| definitions[name].metrics[0].measure.unwrap();
    for (name, answer, reference, classes, expected) in scores {
        let found = measure(&name).score(&answer, &reference, &classes);
        assert!(
            (found - expected).abs() < 1e-9,
            "{name}: {answer:?} {reference:?} {classes:?}: {found}, not {expected}"
        );
    }
    for (name, answer, references, classes, percent) in best {
        let (metric, found) = score(&name, &answer, references.clone(), classes);
        assert_eq!(metric, "longbench");
        assert!(
            (100.0 * found - percent).abs() < 0.005 + 1e-9,
            "{name}: {answer:?} {references:?}: {found}, not {percent}"
        );
    }
}

#[test]
fn prompts_and_limits_are_those_of_longbench() {
    let Goldens { row, prompts, v2_row: of_v2, v2, letters, .. } = goldens();
    let filled = |name: &str| {
        let changes = json!({"context": row["context"], "input": row["input"], "answers": ["Paragraph 1"], "all_classes": ["x"]});
        requests(name, &super::tests::row(&changes).to_string(), false).unwrap()[0].prompt.whole()
    };
    let limit = |name: &str| definition(name).generation.max_new_tokens;
    let of = |name: &str| (name.to_owned(), (digest_of([filled(name)]), limit(name)));
    assert_eq!(Version::V1.subsets().map(of).collect::<BTreeMap<_, _>>(), prompts);
    let file = Arc::new(builtin_definition("longbench_v2").unwrap());
    let request = requests_of(&file, &v2_rows(v2_row(&of_v2.into()).to_string()).unwrap()).unwrap().remove(0);
    assert_eq!(digest_of([request.prompt.whole()]), v2);
    assert_eq!(request.likelihood_after.as_deref(), Some("The correct answer is ("));
    for (answer, letter) in letters {
        for right in ["A", "B", "C", "D"] {
            let request = Request { references: vec![right.to_owned()], ..request.clone() };
            let expected = f64::from(u8::from(letter.as_deref() == Some(right)));
            let found = scores(&file, &answer, &request);
            assert_eq!(found, [("accuracy", expected), ("accuracy_chance", 0.25)], "{answer}");
        }
    }
    // The lists in pred.py and eval.py.
    let named = |is: fn(&Definition) -> bool| {
        let names = Version::V1.subsets();
        names.filter(|name| is(&definition(name))).collect::<Vec<_>>()
    };
    assert_eq!(named(|file| !file.cache.chat_template), ["trec", "triviaqa", "samsum", "lcc", "repobench-p"]);
    assert_eq!(named(|file| file.metrics[0].first_line), ["trec", "triviaqa", "samsum"]);
}

#[test]
fn a_long_prompt_loses_its_middle_wherever_that_is() {
    let rows = row(&json!({"context": "int fox;\n".repeat(50)})).to_string();
    let request = requests("lcc", &rows, false).unwrap().remove(0);
    assert_eq!(request.cut, Cut::MiddleOfPrompt);
    let bytes = |text: &str| Ok(text.bytes().map(u32::from).collect());
    // The first 29 and the last 29, also where this cuts into the instruction.
    let expected = ["Please complete the code given", "\nint fox;\nNext line of code:\n"];
    let expected: Vec<u32> = expected.concat().bytes().map(u32::from).collect();
    assert_eq!(expected.len(), 59);
    for room in [58, 59] {
        let fitted = request.prompt.fit(request.cut, room, &bytes).unwrap().tokens;
        assert_eq!(fitted, [&expected[..29], &expected[30..]].concat());
    }
    let Prompt { before, after, .. } = request.prompt;
    assert!(before.is_empty() && after.is_empty(), "the instruction is cut like the rest");
}

#[test]
fn the_question_begins_after_the_context_whatever_is_lost() {
    let encode = |text: &str| Ok(text.bytes().map(u32::from).collect::<Vec<_>>());
    for subset in Version::V1.subsets() {
        let (context, input) = ("\u{1}".repeat(200), "\u{2}".repeat(90));
        let changes =
            json!({"context": context, "input": input, "all_classes": ["x"], "answers": ["Paragraph 1"]});
        let request = requests(subset, &row(&changes).to_string(), false).unwrap().remove(0);
        let prompt = Prompt { before: "<user>".into(), after: "</user>".into(), ..request.prompt };
        let before = prompt.document.split_once('\u{1}').unwrap().0.to_owned();
        // Whether each byte of the whole prompt is before the question.
        let whole = prompt.whole().len();
        let is_before: Vec<bool> = (0..whole).map(|at| at < "<user>".len() + before.len() + 200).collect();
        for room in ["<user></user>".len() + 2, 60, 150, 300, 400, whole - 1, whole] {
            let fitted = prompt.fit(request.cut, room, &encode).unwrap();
            let head = (room - "<user></user>".len()) / 2 + "<user>".len();
            let tail = fitted.tokens.len() - head;
            let kept = is_before[..head].iter().chain(&is_before[whole - tail..]);
            let expected = if room == whole {
                is_before.iter().filter(|is| **is).count()
            } else {
                kept.filter(|is| **is).count()
            };
            let found = prompt.before_question(request.question_at.unwrap(), &fitted, &encode).unwrap();
            assert_eq!(found, expected, "{subset} in {room} of {whole}");
        }
    }
}

#[test]
fn rows_become_requests_by_context() {
    let other = json!({"_id": "r2", "context": "An owl sat.", "answers": ["owl"], "length": 8000});
    let third = json!({"_id": "r3", "length": 4000, "input": "Why?", "answers": ["owl", "the fox"]});
    let rows: String = [json!({}), other, third].iter().map(|changes| format!("{}\n\n", row(changes))).collect();
    let file = definition("qasper");
    let mut requests = requests("qasper", &rows, true).unwrap();
    name_clusters(std::slice::from_ref(&file), &mut requests);
    let found: Vec<_> =
        requests.iter().map(|request| [&*request.name, &request.cluster, &request.trivial]).collect();
    // "owl" and "the fox" have two rows each; the first in the alphabet is taken.
    let expected =
        [["qasper/r1", "qasper/r1", "owl"], ["qasper/r3", "qasper/r1", "owl"], ["qasper/r2", "qasper/r2", "owl"]];
    assert_eq!(found, expected);
    let slices: Vec<_> = requests
        .iter()
        .map(|request| request.slices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        .collect();
    let of = |class: &str| format!("length:{class}, subset:qasper, subset and length:qasper {class}");
    assert_eq!(slices, [of("0-4k"), of("4-8k"), of("8k+")]);
    assert_eq!(scores(&file, "The fox.", &requests[0]), [("longbench", 1.0), ("longbench_trivial", 0.0)]);
    let of_owl = scores(&file, "An owl.\nThe fox.", &requests[2]);
    assert_eq!(of_owl, [("longbench", 2.0 / 3.0), ("longbench_trivial", 1.0)]);
}

#[test]
fn files_are_found_under_their_published_names() {
    let found = |path: &Path, version: Version| {
        let is_there = |subset: &&str| {
            let file = files::file_name(subset, version);
            let is_there = files::find(path, &file).unwrap().is_some();
            let read = files::read(path, &file);
            assert_eq!(read.as_ref().is_ok_and(|(text, _)| text.contains("A fox ran.")), is_there);
            let message = read.map_or_else(|error| error.to_string(), |(_, name)| name);
            assert!(message.contains(path.to_str().unwrap()), "{message}");
            is_there
        };
        version.subsets().filter(is_there).collect::<Vec<_>>().join(" ")
    };
    let rows = [row(&json!({}))];
    let files = ["data/qasper.jsonl", "trec.jsonl", "qasper_e.jsonl", "lsht.jsonl", "musique_e.jsonl"];
    let there = folder(&files.map(|name| (name, &rows[..])));
    assert_eq!(found(there.path(), Version::V1), "qasper trec");
    assert_eq!(found(there.path(), Version::E), "qasper");
    assert_eq!(found(&there.path().join("trec.jsonl"), Version::V1), "trec");
    let packed = tempfile::tempdir().unwrap();
    let zip = packed.path().join("data.zip");
    std::fs::write(&zip, crate::task::data::archive("data/lcc.jsonl", &rows[0].to_string())).unwrap();
    for path in [packed.path(), &zip] {
        assert_eq!(found(path, Version::V1), "lcc");
    }
    for path in [there.path().join("lsht.jsonl"), there.path().join("no")] {
        assert_eq!(found(&path, Version::V1), "");
    }
}

#[test]
fn rows_that_cannot_be_used_are_named() {
    let v1 = |name: &str, changes: &Value| {
        let text = format!("{}\n\n{}\n", row(&json!({"answers": [], "all_classes": ["x"]})), row(changes));
        requests(name, &text, true)
    };
    let cases = [
        ("qasper", json!({"context": null}), "missing field `context`"),
        ("qasper", json!({"answers": "fox"}), "invalid type: string \"fox\""),
        ("qasper", json!({"length": null}), "`length` is missing"),
        ("trec", json!({}), "`all_classes` is empty"),
        ("passage_retrieval_en", json!({}), "names no `Paragraph`"),
    ];
    for (name, changes, expected) in cases {
        let message = format!("{:#}", v1(name, &changes).unwrap_err());
        assert!(message.contains("f.jsonl, line 3") && message.contains(expected), "{message}");
    }
    let broken = format!("{}\n{{\"_id\"\n", row(&json!({})));
    let message = format!("{:#}", requests("qasper", &broken, false).unwrap_err());
    assert!(message.contains("f.jsonl, line 2: EOF"), "{message}");
    let rows = [v2_row(&json!({})), v2_row(&json!({"_id": "w2"}))];
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    for text in [lines, json!(rows).to_string()] {
        let found = requests_of(&builtin_definition("longbench_v2").unwrap(), &v2_rows(text).unwrap()).unwrap();
        assert_eq!((found.len(), &*found[1].name), (2, "w2"));
        assert_eq!(found[0].slices, ["difficulty:hard", "domain:Code", "length:short"].map(Slice::from));
    }
}
