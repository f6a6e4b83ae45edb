//! The readers of questions on real files: SQuALITY's and QASPER's original releases, and the same questions as
//! rows of ZeroSCROLLS.
//!
//! The files are found through `TOVA_BENCH_TEST_DATA`; without it these tests are skipped aloud. What the readers
//! find is compared with a plain reading of the JSON, character by character.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tova_bench::lm::Tokenizer;
use tova_bench::task::{Cut, Prompt, PromptStyle, QASPER, Release, Request, SQUALITY, Split, read_questions};

/// The folder of data sets, or `None` and a line that says what is skipped.
fn data(test: &str) -> Option<PathBuf> {
    Some(crate::support::material::data(test)?.join("data"))
}

fn read(benchmark: &Release, path: &Path, style: PromptStyle) -> Vec<Request> {
    read_questions(benchmark, path, Split::Validation, style).unwrap_or_else(|error| panic!("{error:#}"))
}

fn rows(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The characters of a row's input between two of its places.
fn between(row: &Value, start: &str, end: &str) -> String {
    let characters: Vec<char> = row["input"].as_str().unwrap().chars().collect();
    let place = |name: &str| row[name].as_u64().unwrap() as usize;
    characters[place(start)..place(end)].iter().collect()
}

/// Checks that questions in ZeroSCROLLS' style are what the rows say; returns how many have characters of many
/// bytes.
fn compare_with_rows(found: &[Request], rows: &[Value], header: &str) -> usize {
    assert_eq!(found.len(), rows.len());
    for (question, row) in found.iter().zip(rows) {
        let prompt = &question.prompt;
        assert_eq!(question.name, row["id"].as_str().unwrap());
        assert_eq!(prompt.whole(), row["input"].as_str().unwrap(), "{}", question.name);
        assert_eq!(
            format!("{header}{}", prompt.document),
            between(row, "document_start_index", "document_end_index")
        );
        let asked = between(row, "query_start_index", "query_end_index");
        assert_eq!(prompt.without_header().after, format!("\n\n{asked}"));
        let separator = row["truncation_seperator"].as_str().unwrap();
        assert_eq!(format!("{}{}", prompt.separator, prompt.after), format!("{separator}{asked}\n\nAnswer:\n"));
        let references: Vec<&str> =
            row["outputs"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect();
        assert_eq!(question.references, references);
    }
    rows.iter().filter(|row| !row["input"].as_str().unwrap().is_ascii()).count()
}

fn clusters(questions: &[Request]) -> usize {
    questions.iter().map(|question| &question.cluster).collect::<BTreeSet<_>>().len()
}

#[test]
fn squality_in_both_forms() {
    let Some(data) = data("squality_in_both_forms") else { return };
    let folder = data.join("squality");
    for split in [Split::Validation, Split::Test] {
        let questions = read_questions(&SQUALITY, &folder, split, PromptStyle::Paper).unwrap();
        let stories = clusters(&questions);
        // The test data may be every second story.
        let expected: &[usize] = if split == Split::Validation { &[25] } else { &[52, 26] };
        assert!(expected.contains(&stories), "{stories} stories");
        assert_eq!(questions.len(), 5 * stories);
        assert!(questions.iter().all(|question| question.references.len() == 4 && question.slices.is_empty()));
        eprintln!("squality {}: {stories} stories, {} questions", split.name(), questions.len());
    }

    let file = folder.join("zeroscrolls-dev.jsonl");
    let from_rows = read(&SQUALITY, &file, PromptStyle::ZeroScrolls);
    let rows = rows(&file);
    let wide = compare_with_rows(&from_rows, &rows, "Story:\n");
    assert!(wide > 0 && clusters(&from_rows) == 25);

    // The rows' ids are the story's two ids and the question's number.
    let ids: BTreeMap<String, String> = self::rows(&folder.join("dev.jsonl"))
        .iter()
        .flat_map(|story| {
            let text = |name: &str| story["metadata"][name].as_str().unwrap();
            let (passage, uid) = (text("passage_id").to_string(), text("uid").to_string());
            (1..=5).map(move |n| (format!("{passage}_{uid}_{n}"), format!("{passage}#{n}")))
        })
        .collect();
    for style in [PromptStyle::ZeroScrolls, PromptStyle::Paper] {
        let original: BTreeMap<String, Request> = read(&SQUALITY, &folder.join("dev.jsonl"), style)
            .into_iter()
            .map(|question| (question.name.clone(), question))
            .collect();
        for question in read(&SQUALITY, &file, style) {
            let same = &original[&ids[&question.name]];
            assert_eq!(question.prompt, same.prompt, "{}", question.name);
            assert_eq!(question.references, same.references, "{}", question.name);
        }
    }
    eprintln!("squality rows: {} equal the original release, {wide} with characters of many bytes", rows.len());
}

#[test]
fn qasper_in_both_forms() {
    let Some(data) = data("qasper_in_both_forms") else { return };
    let (release, file) =
        (data.join("qasper/qasper-train10-v0.3.json"), data.join("qasper/zeroscrolls-train10.jsonl"));
    let from_rows = read(&QASPER, &file, PromptStyle::ZeroScrolls);
    let wide = compare_with_rows(&from_rows, &rows(&file), "Article:\n");
    let original = read(&QASPER, &release, PromptStyle::ZeroScrolls);
    assert_eq!((from_rows.len(), clusters(&from_rows)), (original.len(), clusters(&original)));
    assert!(original.iter().all(|question| !question.references.is_empty()));
    let mut folded = 0;
    for (row, question) in from_rows.iter().zip(&original) {
        assert_eq!((&row.name, &row.prompt), (&question.name, &question.prompt));
        // The rows have each reference once, and these three words in small letters.
        let mut references: Vec<String> = Vec::new();
        for reference in &question.references {
            let fixed = ["Yes", "No", "Unanswerable"].contains(&reference.as_str());
            let reference = if fixed { reference.to_lowercase() } else { reference.clone() };
            if !references.contains(&reference) {
                references.push(reference);
            }
        }
        folded += usize::from(references != question.references);
        assert_eq!(row.references, references, "{}", row.name);
    }
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    original.iter().for_each(|question| *kinds.entry(question.slices[0].to_string()).or_default() += 1);
    assert!(kinds.keys().all(|kind| {
        ["kind:abstractive", "kind:extractive", "kind:unanswerable", "kind:yes_no"].contains(&kind.as_str())
    }));
    eprintln!(
        "qasper train: {} articles, {} questions, {} references, {kinds:?}, {folded} with other references in the \
         rows, {wide} with characters of many bytes",
        clusters(&original),
        original.len(),
        original.iter().map(|question| question.references.len()).sum::<usize>()
    );

    let file = data.join("qasper/zeroscrolls.jsonl");
    let more = read(&QASPER, &file, PromptStyle::ZeroScrolls);
    compare_with_rows(&more, &rows(&file), "Article:\n");
    eprintln!("qasper rows: {} articles, {} questions", clusters(&more), more.len());
}

/// What `run_hf_model.py` does, word for word: the row's input up to its question, and everything else behind it.
fn cut(row: &Value, room: usize, encode: &dyn Fn(&str) -> anyhow::Result<Vec<u32>>) -> Vec<u32> {
    let input: Vec<char> = row["input"].as_str().unwrap().chars().collect();
    let whole = encode(&input.iter().collect::<String>()).unwrap();
    if whole.len() <= room {
        return whole;
    }
    let (start, question) = input.split_at(row["query_start_index"].as_u64().unwrap() as usize);
    let separator = row["truncation_seperator"].as_str().unwrap();
    let suffix = encode(&format!("{separator}{}", question.iter().collect::<String>())).unwrap();
    let mut tokens = encode(&start.iter().collect::<String>()).unwrap();
    tokens.truncate(room - suffix.len());
    tokens.extend(suffix);
    tokens
}

#[test]
fn real_prompts_are_cut_as_zeroscrolls_cuts_them() {
    let Some(data) = data("real_prompts_are_cut_as_zeroscrolls_cuts_them") else { return };
    let tokenizer = Tokenizer::read(&data.join("tokenizers/tinyllama/tokenizer.json"), None, None).unwrap();
    let encode = |text: &str| Ok(tokenizer.encode(text)?.ids);
    let (mut cuts, mut wholes) = (0, 0);
    for (benchmark, file) in
        [(&SQUALITY, "squality/zeroscrolls-dev.jsonl"), (&QASPER, "qasper/zeroscrolls-train10.jsonl")]
    {
        let file = data.join(file);
        let found = read(benchmark, &file, PromptStyle::ZeroScrolls);
        // One question of each of ten documents.
        for (question, row) in found.iter().zip(rows(&file)).step_by(5).take(10) {
            let prompt: &Prompt = &question.prompt;
            let length = encode(&prompt.whole()).unwrap().len();
            for room in [256, 512, 2048, 4096, length - 1, length, length + 1] {
                let fitted = prompt.fit(Cut::End, room, &encode).unwrap().tokens;
                assert_eq!(fitted, cut(&row, room, &encode), "{} in {room} tokens", question.name);
                *(if length > room { &mut cuts } else { &mut wholes }) += 1;
            }
        }
    }
    assert!(cuts > 0 && wholes > 0);
    eprintln!("{cuts} prompts cut and {wholes} left whole, token by token as ZeroSCROLLS' code does");
}
