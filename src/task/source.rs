//! Files of questions: finds the split in a folder or an archive, and tells formats apart by what they hold.
//!
//! Knows names of files and what the beginning of each format looks like; the formats themselves are read by the
//! modules beside this one.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::{DeserializeOwned, IgnoredAny};

use super::question::{Benchmark, PromptStyle, Question, Split};
use super::{archive, qasper, squality, zeroscrolls};
use crate::bounded_read;

/// Reads the questions of a benchmark.
///
/// `path` may be a file of ZeroSCROLLS' rows, of SQuALITY's or of QASPER's original release, a `.zip` of the hub's
/// `tau/zero_scrolls`, or a folder that holds one of them under its published name. `split` chooses among the
/// files of a folder or an archive; a file is read whole. The order is that of the file.
///
/// # Errors
/// A path that holds none of these or those of the other benchmark, a broken line, no question at all, or two of
/// one name; messages name file and line, and say what is looked for.
pub fn read_questions(
    benchmark: Benchmark,
    path: &Path,
    split: Split,
    style: PromptStyle,
) -> Result<Vec<Question>> {
    let found = if path.is_dir() { in_folder(benchmark, path, split)? } else { path.to_path_buf() };
    let mut file = found.display().to_string();
    let bytes = if archive::is_one(&found)? {
        let (member, bytes) = archive::unpack(&found, &row_files(benchmark, split), archive::MOST_UNPACKED)?;
        file = format!("{file}:{member}");
        bytes
    } else {
        bounded_read::bytes(&found, archive::MOST_UNPACKED)
            .with_context(|| format!("cannot read the questions {}", found.display()))?
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("{file} is not UTF-8: byte {at} belongs to no character; convert the file to UTF-8")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let questions = match (Format::of(text, &file, benchmark)?, benchmark) {
        (Format::ZeroScrolls, _) => zeroscrolls::questions(text, &file, benchmark, style)?,
        (Format::Squality, Benchmark::Squality) => squality::questions(text, &file, style)?,
        (Format::Qasper, Benchmark::Qasper) => qasper::questions(text, &file, style)?,
        (format, _) => bail!(
            "{file} holds {}, no questions of {}; {}",
            format.words(),
            benchmark.name(),
            looked_for(benchmark)
        ),
    };
    ensure!(!questions.is_empty(), "{file} holds no question; {}", looked_for(benchmark));
    let mut names = HashSet::new();
    for Question { name, .. } in &questions {
        ensure!(names.insert(name), "{file} has two questions named {name}; results could not tell them apart");
    }
    Ok(questions)
}

/// What is read, in words for errors.
fn looked_for(benchmark: Benchmark) -> String {
    let release = match benchmark {
        Benchmark::Squality => "lines of SQuALITY v1.3 (`document`, `questions`)",
        Benchmark::Qasper => "the JSON object of QASPER v0.3 (articles by arXiv id)",
    };
    format!(
        "what can be read for {} are lines of ZeroSCROLLS (`input`, `document_start_index`), its {}.zip, \
         {release}, or a folder of one of them",
        benchmark.name(),
        benchmark.name()
    )
}

/// How a file spells questions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    ZeroScrolls,
    Squality,
    Qasper,
}

impl Format {
    /// The format of a text, by the fields of the first JSON value in it.
    fn of(text: &str, file: &str, benchmark: Benchmark) -> Result<Format> {
        type Fields = BTreeMap<String, IgnoredAny>;
        // Where each line is a value, a broken first one must not reach into the second.
        let first = if file.ends_with(".jsonl") {
            json_lines::<Fields>(text, file).next().map(|line| line.map(|(_, fields)| fields))
        } else {
            let values = serde_json::Deserializer::from_str(text).into_iter::<Fields>();
            values.map(|value| value.map_err(anyhow::Error::from)).next()
        };
        let fields = first
            .with_context(|| format!("{file} is empty; {}", looked_for(benchmark)))?
            .with_context(|| format!("{file} does not begin with a JSON object; {}", looked_for(benchmark)))?;
        if fields.contains_key("input") {
            Ok(Format::ZeroScrolls)
        } else if fields.contains_key("questions") {
            Ok(Format::Squality)
        } else if fields.keys().all(|key| key.contains(|c: char| c.is_ascii_digit())) {
            // Every arXiv id has digits, and no field of a row has.
            Ok(Format::Qasper)
        } else {
            let fields: Vec<String> = fields.into_keys().take(10).collect();
            bail!("{file} holds objects of {}; {}", fields.join(", "), looked_for(benchmark))
        }
    }

    fn words(self) -> &'static str {
        match self {
            Format::ZeroScrolls => "lines of ZeroSCROLLS",
            Format::Squality => "lines of SQuALITY",
            Format::Qasper => "articles of QASPER",
        }
    }
}

/// Names a split of ZeroSCROLLS has in archives and folders.
fn row_files(benchmark: Benchmark, split: Split) -> [String; 2] {
    [format!("{}/{}.jsonl", benchmark.name(), split.name()), format!("{}.jsonl", split.name())]
}

/// The first file of a folder that has a published name.
fn in_folder(benchmark: Benchmark, folder: &Path, split: Split) -> Result<PathBuf> {
    // Both original releases call their validation split dev.
    let short = if split == Split::Validation { "dev" } else { "test" };
    let release = match benchmark {
        Benchmark::Squality => vec![format!("{short}.jsonl"), format!("v1-3/txt/{short}.jsonl")],
        Benchmark::Qasper => vec![format!("qasper-{short}-v0.3.json")],
    };
    let names =
        row_files(benchmark, split).into_iter().chain([format!("{}.zip", benchmark.name())]).chain(release);
    let names: Vec<String> = names.collect();
    let found = names.iter().map(|name| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| {
        format!("{} holds none of {}; {}", folder.display(), names.join(", "), looked_for(benchmark))
    })
}

/// The JSON values of a text's lines, each with the place that errors name; blank lines are skipped.
pub(super) fn json_lines<'a, T: DeserializeOwned>(
    text: &'a str,
    file: &'a str,
) -> impl Iterator<Item = Result<(String, T)>> + 'a {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(move |(index, line)| {
        let place = format!("{file}, line {}", index + 1);
        match serde_json::from_str(line) {
            Ok(value) => Ok((place, value)),
            // The library counts lines of its own text, which is one line.
            Err(error) => {
                Err(anyhow!("{place}: {}", error.to_string().replace(" at line 1 column", " at column")))
            }
        }
    })
}

/// Bytes of all prompts of a file: forty times what QASPER has. A prompt holds its document, so a file of one long document
/// and very many short questions would take the product of both.
const MOST_PROMPTS: usize = 1 << 30;

/// Counts a prompt of a document before it is made.
///
/// # Errors
/// More than any benchmark has.
pub(super) fn make_room(held: &mut usize, document: &str, file: &str) -> Result<()> {
    *held = held.saturating_add(document.len());
    ensure!(
        *held <= MOST_PROMPTS,
        "the prompts of {file} take more than {MOST_PROMPTS} bytes; is it the one meant?"
    );
    Ok(())
}

/// The references among answers: those that say something.
pub(super) fn said(answers: impl IntoIterator<Item = String>) -> Vec<String> {
    answers.into_iter().filter(|answer| !answer.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(id: &str, output: &str) -> String {
        let prompt = Benchmark::Squality.prompt(PromptStyle::ZeroScrolls, "A fox ran.", "Who ran?");
        let (start, end, length) = (prompt.before.len(), prompt.before.len() + 10, prompt.whole().len());
        json!({"id": id, "pid": id, "input": prompt.whole(), "output": output, "document_start_index": start,
            "document_end_index": end, "query_start_index": end + 2, "query_end_index": length - prompt.header,
            "truncation_seperator": "... [The rest of the story is omitted]\n\n"})
        .to_string()
    }

    fn story() -> String {
        let asked = json!([{"question_text": "Who ran?", "question_number": 1, "responses": [
            {"response_text": "A fox."}]}]);
        json!({"metadata": {"passage_id": "7"}, "document": "A fox ran.", "questions": asked}).to_string()
    }

    fn article() -> String {
        let asked =
            json!([{"question": "Who ran?", "question_id": "q", "answers": [{"answer": {"yes_no": true}}]}]);
        let article = json!({"title": "On foxes", "abstract": "We run.", "full_text": [], "qas": asked});
        format!("{{\n  \"2001.1\": {article}\n}}\n")
    }

    fn read(benchmark: Benchmark, path: &Path) -> Result<Vec<Question>> {
        read_questions(benchmark, path, Split::Validation, PromptStyle::ZeroScrolls)
    }

    fn message(benchmark: Benchmark, path: &Path) -> String {
        format!("{:#}", read(benchmark, path).unwrap_err())
    }

    /// A folder with one file.
    fn folder(name: &str, contents: impl AsRef<[u8]>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, contents).unwrap();
        folder
    }

    #[test]
    fn every_format_is_known_by_its_contents() {
        let rows = row("a", "A fox.");
        let zip = |name| archive::tests::archive(name, &rows);
        let cases = [
            (Benchmark::Squality, "squality/validation.jsonl", rows.clone().into_bytes(), "a"),
            (Benchmark::Squality, "validation.jsonl", format!("\u{feff}\n{rows}\n\n").into_bytes(), "a"),
            (Benchmark::Squality, "squality.zip", zip("squality/validation.jsonl"), "a"),
            (Benchmark::Squality, "squality.zip", zip("validation.jsonl"), "a"),
            (Benchmark::Squality, "dev.jsonl", story().into_bytes(), "7#1"),
            (Benchmark::Squality, "v1-3/txt/dev.jsonl", story().into_bytes(), "7#1"),
            (Benchmark::Qasper, "qasper-dev-v0.3.json", article().into_bytes(), "q"),
        ];
        for (benchmark, name, contents, expected) in cases {
            let folder = folder(name, contents);
            for path in [folder.path().to_path_buf(), folder.path().join(name)] {
                let questions = read(benchmark, &path).unwrap();
                assert_eq!((questions.len(), questions[0].name.as_str()), (1, expected), "{}", path.display());
            }
        }
    }

    /// Two megabytes that would become thirty gigabytes.
    #[test]
    fn a_document_is_not_copied_for_a_million_questions() {
        let asked: Vec<_> = (0..30_000).map(|i| json!({"question": "", "question_id": i.to_string()})).collect();
        let article = json!({"title": "fox ".repeat(1 << 18), "abstract": "", "full_text": [], "qas": asked});
        let folder = folder("x.json", json!({"2001.1": article}).to_string());
        let found = message(Benchmark::Qasper, &folder.path().join("x.json"));
        assert!(found.contains("take more than 1073741824 bytes") && found.contains("x.json"), "{found}");
        let asked: Vec<_> = (0..30_000).map(|i| json!({"question_text": "", "question_number": i})).collect();
        let story =
            json!({"metadata": {"passage_id": "7"}, "document": "fox ".repeat(1 << 18), "questions": asked});
        std::fs::write(folder.path().join("dev.jsonl"), story.to_string()).unwrap();
        let found = message(Benchmark::Squality, &folder.path().join("dev.jsonl"));
        assert!(found.contains("take more than 1073741824 bytes") && found.contains("dev.jsonl"), "{found}");
    }

    #[test]
    fn what_is_missing_or_of_another_benchmark_is_said() {
        let empty = tempfile::tempdir().unwrap();
        let found = message(Benchmark::Qasper, empty.path());
        assert!(["qasper.zip", "qasper-dev-v0.3.json"].iter().all(|name| found.contains(name)), "{found}");
        assert!(message(Benchmark::Qasper, &empty.path().join("no.json")).contains("no.json"));
        let other = folder("squality.zip", archive::tests::archive("squality/test.jsonl", "{}"));
        let found = message(Benchmark::Squality, other.path());
        assert!(
            found.contains("squality.zip holds neither") && found.contains("but squality/test.jsonl"),
            "{found}"
        );
        let cases = [
            (Benchmark::Qasper, story(), "lines of SQuALITY, no questions of qasper"),
            (Benchmark::Squality, article(), "articles of QASPER, no questions of squality"),
            (Benchmark::Qasper, row("a", "x"), "no row of qasper"),
            (Benchmark::Qasper, "{\"text\": \"x\"}".into(), "objects of text; what can be read"),
            (Benchmark::Qasper, "{}".into(), "holds no question"),
            (Benchmark::Squality, " \n".into(), "is empty"),
            (Benchmark::Squality, "[1]".into(), "does not begin with a JSON object"),
            (Benchmark::Squality, format!("{}\n\n{{\n", story()), "x.json, line 3"),
            (Benchmark::Squality, format!("{}\n{}\n", story(), story()), "two questions named 7#1"),
        ];
        for (benchmark, contents, expected) in cases {
            let folder = folder("x.json", contents);
            let found = message(benchmark, &folder.path().join("x.json"));
            assert!(found.contains(expected) && found.contains("x.json"), "{expected}: {found}");
        }
        let broken = folder("dev.jsonl", format!("\n{}\n{}\n", &story()[..60], story()));
        assert!(message(Benchmark::Squality, broken.path()).contains("dev.jsonl, line 2: "));
        let folder = folder("x.json", b"{\"\xff");
        assert!(message(Benchmark::Squality, &folder.path().join("x.json")).contains("byte 2"));
    }
}
