//! Sweeps, task files and questions.

use tova_bench::ledger::CellId;
use tova_bench::sweep::Sweep;
use tova_bench::task::{PromptStyle, QASPER, Release, Request, SQUALITY, Split, check_benchmark, read_questions};

use super::scratch;

pub fn sweep(input: &[u8]) {
    let path = scratch::folder("sweep").join("sweep.yaml");
    scratch::write(&path, Some(input));
    match Sweep::read(&path, &[]) {
        Ok(sweep) => {
            let cells = sweep.expand();
            assert!(!cells.is_empty(), "a sweep has cells");
            for cell in cells.iter().take(100) {
                let name = cell.name(CellId::of("an id"));
                assert!(
                    !name.stem().contains(['/', '\\', '\0']) && !name.stem().starts_with('.'),
                    "{}",
                    name.stem()
                );
            }
        }
        Err(error) => check_message(&error.to_string()),
    }
}

pub fn task_file(input: &[u8]) {
    let path = scratch::folder("task_file").join("task.yaml");
    scratch::write(&path, Some(input));
    match check_benchmark(&path) {
        Ok(tasks) => assert!(!tasks.is_empty(), "a file has a task"),
        Err(error) => check_message(&error.to_string()),
    }
}

pub fn zeroscrolls(input: &[u8]) {
    questions(&SQUALITY, "rows.jsonl", input);
}

pub fn qasper(input: &[u8]) {
    questions(&QASPER, "qasper.json", input);
}

fn questions(benchmark: &Release, name: &str, input: &[u8]) {
    let path = scratch::folder("questions").join(name);
    scratch::write(&path, Some(input));
    for style in [PromptStyle::ZeroScrolls, PromptStyle::Paper] {
        match read_questions(benchmark, &path, Split::Validation, style) {
            Ok(questions) => {
                assert!(!questions.is_empty(), "a file of questions has some");
                questions.iter().for_each(sound);
            }
            Err(error) => check_message(&format!("{error:#}")),
        }
    }
}

/// What the rest of the program assumes of a question.
fn sound(question: &Request) {
    let prompt = &question.prompt;
    assert!(
        prompt.header <= prompt.after.len() && prompt.after.is_char_boundary(prompt.after.len() - prompt.header)
    );
    assert!(prompt.without_header().whole().len() <= prompt.whole().len());
}

/// Error messages are not empty and do not repeat megabytes of the file.
pub fn check_message(error: &str) {
    assert!(!error.is_empty() && error.len() < 100_000, "an error of {} bytes", error.len());
}
