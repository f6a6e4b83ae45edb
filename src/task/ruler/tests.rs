//! Tests against RULER's own generator and scorer, by numbers that `tests/golden/make/ruler_goldens.py` wrote.

use crate::metric::Slice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regex::Regex;
use serde_json::{Value, json};

use super::documents::Documents;
use super::requests::{Counter, Sources, Wanted, rows};
use super::tasks::{SUBTASKS, Subtask};
use super::words::Essay;
use crate::lm::ChatFormat;
use crate::task::benchmark::{ByFile, builtin_definition, requests_of};
use crate::task::data::Book;
use crate::task::request::{Request, Scorer};

fn golden() -> Value {
    serde_json::from_str(
        &std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/ruler.json")).unwrap(),
    )
    .unwrap()
}

/// The running text of the script.
fn essay() -> Essay {
    let text: Vec<String> = (0..400).map(|i| format!("Sentence number {i} tells of town {}.", i % 7)).collect();
    Essay::new(&[Book { text: text.join(" "), ..Book::default() }])
}

/// The files of the script: SQuAD's and HotpotQA's.
fn documents() -> [Documents; 2] {
    let paragraph = |a: usize, p: usize| {
        let year = 1000 + 10 * a + p;
        let question = json!({
            "question": format!("When was house {p} of town {a} built?"),
            "answers": [{"text": year.to_string()}, {"text": format!("in {year}")}],
            "is_impossible": false,
        });
        json!({
            "context": format!("Town {a} has a river. House {p} of town {a} was built in {year} by a mason."),
            "qas": [{"question": "Why?", "answers": [], "is_impossible": true}, question],
        })
    };
    let article = |a| json!({"title": "t", "paragraphs": (0..6).map(|p| paragraph(a, p)).collect::<Vec<_>>()});
    let squad = json!({"data": (0..40).map(article).collect::<Vec<_>>()});
    let hill = |q: usize, i: usize| {
        let hill = (q * 3 + i) % 300;
        json!([
            format!("Hill {hill}"),
            [format!("Hill {hill} is high."), format!(" Its lake is Lake {}.", hill + 100)]
        ])
    };
    let question = |q: usize| {
        json!({
            "question": format!("Which lake is on hill {}?", q * 3),
            "answer": format!("Lake {}", q * 3 + 100),
            "context": (0..10).map(|i| hill(q, i)).collect::<Vec<_>>(),
        })
    };
    let hotpot = json!((0..100).map(question).collect::<Vec<_>>());
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: Value| {
        let path = folder.path().join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path
    };
    [Documents::of_squad(&file("s.json", squad)).unwrap(), Documents::of_hotpot(&file("h.json", hotpot)).unwrap()]
}

/// Four bytes are a token, as in the script.
fn four_bytes(text: &str) -> anyhow::Result<usize> {
    Ok(text.len().div_ceil(4))
}

fn wanted(tasks: &[&str], lengths: &[usize], samples: usize) -> Wanted {
    let tasks = tasks.iter().map(|name| Subtask::named(name).unwrap()).collect();
    Wanted { tasks, lengths: lengths.to_vec(), samples, seed: 42, answer: None }
}

/// The requests of tasks, each through its file.
fn requests(wanted: &Wanted, frame: Option<&ChatFormat>) -> anyhow::Result<Vec<Request>> {
    let [squad, hotpot] = documents();
    let (mut squad, mut hotpot) = (Some(squad), Some(hotpot));
    let mut requests = Vec::new();
    for task in &wanted.tasks {
        let (name, documents) = match task.name {
            "qa_1" => ("ruler_qa_squad", squad.take()),
            "qa_2" => ("ruler_qa_hotpot", hotpot.take()),
            _ => ("ruler", None),
        };
        let definition = builtin_definition(name).unwrap();
        let counter = Counter { tokens: &four_bytes, frame, definition: &definition };
        let sources = Sources { essay: essay(), documents };
        let wanted = Wanted { tasks: vec![*task], ..wanted.clone() };
        requests.extend(requests_of(&definition, &rows(&wanted, &sources, &counter)?)?);
    }
    Ok(requests)
}

fn made(wanted: &Wanted) -> Vec<Request> {
    requests(wanted, None).unwrap()
}

fn all_tasks() -> Vec<&'static str> {
    SUBTASKS.iter().map(|task| task.name).collect()
}

/// Wording with what is drawn replaced, as in the script.
fn skeleton(text: &str) -> String {
    let uuid = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}";
    let steps = [
        (uuid, "UUID"),
        (r"\b[a-z0-9'-]+-[a-z0-9'-]+(,| mentioned)", "KEY$1"),
        (r"\b[A-Z]{5}\b", "XXXXX"),
        (r"\b\d{5,7}\b", "NUMBER"),
    ];
    steps
        .iter()
        .fold(text.to_owned(), |text, (from, to)| Regex::new(from).unwrap().replace_all(&text, *to).into_owned())
}

fn count(text: &str, pattern: &str) -> usize {
    Regex::new(pattern).unwrap().find_iter(text).count()
}

/// How many words of a numbered list appear how often.
fn repeats(list: &str) -> Value {
    let mut words = BTreeMap::<&str, usize>::new();
    let entries: Vec<&str> = list.split(' ').collect();
    entries.chunks(2).for_each(|entry| *words.entry(entry[1]).or_default() += 1);
    let mut repeats = BTreeMap::<usize, usize>::new();
    words.values().for_each(|times| *repeats.entry(*times).or_default() += 1);
    json!(repeats.into_iter().collect::<Vec<_>>())
}

/// What the script says of a prompt.
fn facts(request: &Request) -> Value {
    let whole = request.prompt.whole();
    let document = request.prompt.document.as_str();
    let (begins, ends) = (skeleton(&request.prompt.before), skeleton(&request.prompt.after));
    let tokens = four_bytes(&whole).unwrap() + request.max_new_tokens.unwrap();
    let task = request.name.split('#').next().unwrap();
    let own = match task {
        "vt" => {
            let parts: Vec<&str> = whole.split("Memorize and track").skip(1).collect();
            let [shown, asked] = [0, 1].map(|part| parts[part].matches("The grass is green.").count());
            let letters = |part: &str| part.split("VAR ").nth(1).unwrap().find(' ').unwrap();
            json!({
                "shown_noise": shown, "noise": asked, "statements": count(parts[1], r"VAR [A-Z]+ = "),
                "letters": [letters(parts[0]), letters(parts[1])], "ends": ends,
            })
        }
        "cwe" => {
            let parts: Vec<&str> = request.prompt.before.split("most often.\n").collect();
            let shown = parts[1].split("\nQuestion").next().unwrap();
            let before =
                Regex::new(r"\d+\. [^\n]+").unwrap().replace_all(&request.prompt.before, "LIST").into_owned();
            json!({
                "shown": repeats(shown), "list": repeats(document), "begins": before + "LIST",
                "ends": request.prompt.after,
            })
        }
        "fwe" => {
            let words: Vec<&str> = document.split(' ').collect();
            let mut counts = BTreeMap::<&str, usize>::new();
            words.iter().for_each(|word| *counts.entry(word).or_default() += 1);
            let mut often: Vec<usize> = counts.values().copied().collect();
            often.sort_unstable_by(|a, b| b.cmp(a));
            json!({
                "counts": often[..12], "words": words.len(), "different": counts.len(), "dots": counts["..."],
                "begins": begins, "ends": ends,
            })
        }
        "qa_1" | "qa_2" => json!({
            "documents": count(document, r"(?m)^Document \d+:$"), "begins": begins, "ends": request.prompt.after,
        }),
        _ => {
            let needle =
                Regex::new(r"One of the special magic (?:words|numbers|uuids) for (.*?) is: (.*?)\.").unwrap();
            let keys: Vec<&str> =
                needle.captures_iter(document).map(|found| found.get(1).unwrap().as_str()).collect();
            json!({
                "needles": keys.len(), "keys": keys.iter().collect::<BTreeSet<_>>().len(),
                "noise": document.matches("The grass is green.").count(), "lines": document.matches('\n').count() + 1,
                "words": document.split_whitespace().count(), "begins": begins, "ends": ends,
            })
        }
    };
    let mut facts = json!({"tokens": tokens, "references": request.references.len()});
    facts.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    facts
}

/// Numbers that depend on which words were drawn, and so are only nearly RULER's.
const NEARLY: [&str; 8] = ["tokens", "noise", "lines", "needles", "keys", "words", "documents", "list"];

/// What a prompt loses at once that chance made too long: units, and tokens. Two samples may differ by it in RULER too.
fn step(task: &str, length: usize) -> (f64, f64) {
    let is_short = length < 4096;
    match task {
        "niah_single_1" => {
            if is_short {
                (5.0, 114.0)
            } else {
                (25.0, 570.0)
            }
        }
        "niah_multikey_2" => {
            if is_short {
                (5.0, 77.0)
            } else {
                (25.0, 384.0)
            }
        }
        "niah_multikey_3" => {
            if is_short {
                (5.0, 145.0)
            } else {
                (25.0, 725.0)
            }
        }
        "vt" => {
            if is_short {
                (5.0, 114.0)
            } else {
                (10.0, 228.0)
            }
        }
        "cwe" => {
            if is_short {
                (10.0, 28.0)
            } else {
                (10.0, 88.0)
            }
        }
        "fwe" => (length as f64 / 32.0, length as f64 / 32.0),
        "qa_1" | "qa_2" => (10.0, 200.0),
        _ => (500.0, 658.0),
    }
}

/// Whether two numbers are within 2 percent, or that far from being a step apart.
fn is_near(ours: f64, theirs: f64, step: f64) -> bool {
    [-step, 0.0, step].iter().any(|step| (ours - theirs + step).abs() <= (0.02 * theirs).max(2.0))
}

#[test]
fn prompts_have_the_structure_of_rulers() {
    let golden = golden();
    for task in &SUBTASKS {
        assert_eq!(golden["answer_tokens"][task.name], task.answer, "{}", task.name);
    }
    let made = made(&wanted(&all_tasks(), &[2048, 8192], 3));
    let mut seen = 0;
    for request in &made {
        let (task, place) = request.name.split_once('#').unwrap();
        let (sample, length) = place.split_once('@').unwrap();
        let rulers = &golden["prompts"][format!("{task}@{length}")];
        let facts = facts(request);
        let (units, tokens) = step(task, request.length);
        let parts = [&rulers["same"], &rulers["samples"][sample.parse::<usize>().unwrap()]];
        for (field, theirs) in parts.into_iter().flat_map(|part| part.as_object().unwrap()) {
            let Some(ours) = facts.get(field) else {
                assert_eq!((task, field.as_str()), ("vt", "begins"));
                continue;
            };
            seen += 1;
            let place = format!("{} {field}: {ours} here, {theirs} in RULER", request.name);
            match (NEARLY.contains(&field.as_str()), ours.as_f64(), theirs.as_f64()) {
                (true, Some(a), Some(b)) => {
                    let step = match field.as_str() {
                        "tokens" => tokens,
                        // A line of these texts has ten.
                        "words" if ["niah_multikey_2", "niah_multikey_3"].contains(&task) => 10.0 * units,
                        _ => units,
                    };
                    assert!(is_near(a, b, step), "{place}");
                }
                // The words of a list: as often, but not as many.
                (true, ..) => {
                    let (a, b) = (ours.as_array().unwrap(), theirs.as_array().unwrap());
                    let times = |list: &[Value]| list.iter().map(|entry| entry[0].clone()).collect::<Vec<_>>();
                    assert_eq!(times(a), times(b), "{place}");
                    assert_eq!(a[1], b[1], "{place}");
                    let (a, b) = (a[0][1].as_f64().unwrap(), b[0][1].as_f64().unwrap());
                    assert!(is_near(a, b, units), "{place}");
                }
                _ => assert_eq!(ours, theirs, "{place}"),
            }
        }
        assert!(facts["tokens"].as_u64().unwrap() as usize <= request.length);
    }
    assert_eq!((made.len(), seen > 500), (78, true), "{seen}");
}

#[test]
fn the_answers_stand_in_the_text() {
    for request in made(&wanted(&all_tasks(), &[2048], 20)) {
        let (task, document) = (request.name.split('#').next().unwrap(), &request.prompt.document);
        // The score reads the task from here.
        assert!(request.slices.contains(&Slice::named("task", task)), "{}: {:?}", request.name, request.slices);
        let stated = request.references.iter().filter(|answer| document.contains(answer.as_str())).count();
        assert!(stated == request.references.len(), "{}: {:?}", request.name, request.references);
        let query =
            |pattern: &str| Regex::new(pattern).unwrap().captures(&request.prompt.after).unwrap()[1].to_owned();
        match task {
            // Every answer is a value of a key that is asked for, in this order.
            name if name.starts_with("niah") => {
                let asked = query("magic \\w+ for (.*?) mentioned").replace(", and ", ", ");
                let keys: Vec<&str> = asked.split(", ").collect();
                let each = request.references.len() / keys.len();
                for (answer, key) in request.references.iter().zip(keys.iter().flat_map(|key| vec![key; each])) {
                    assert_eq!(
                        document.matches(&format!("for {key} is: {answer}.")).count(),
                        1,
                        "{}",
                        request.name
                    );
                }
            }
            // Each variable is assigned the one before it, and the first the number that is asked for.
            "vt" => {
                let mut value = query(r"the value (\d+) in");
                let mut last = 0;
                for name in &request.references {
                    let at = document.find(&format!("VAR {name} = {value}")).unwrap();
                    assert!(at >= last);
                    (last, value) = (at, format!("VAR {name}"));
                }
            }
            "cwe" | "fwe" => {
                let mut counts = BTreeMap::<&str, usize>::new();
                document
                    .split(' ')
                    .filter(|word| !word.contains('.'))
                    .for_each(|word| *counts.entry(word).or_default() += 1);
                let mut often: Vec<&str> = counts.keys().copied().collect();
                often.sort_by_key(|word| std::cmp::Reverse(counts[word]));
                let often: BTreeSet<&str> = often[..request.references.len()].iter().copied().collect();
                assert_eq!(often, request.references.iter().map(String::as_str).collect(), "{}", request.name);
            }
            _ => {}
        }
    }
}

#[test]
fn needles_of_an_essay_are_at_forty_depths() {
    let essay = essay();
    let depths: Vec<usize> = (0..40).map(|i| (i as f64 * 100.0 / 39.0).round() as usize).collect();
    let mut seen = BTreeSet::new();
    for request in made(&wanted(&["niah_single_2", "niah_multivalue"], &[8192], 30)) {
        let document = &request.prompt.document;
        let parts: Vec<&str> = document.split("One of the special magic").collect();
        let rest = |part: &str| part.split_once(". ").map_or("", |(_, rest)| rest).to_owned();
        let text: Vec<String> =
            std::iter::once(parts[0].to_owned()).chain(parts[1..].iter().map(|part| rest(part))).collect();
        let words = |part: &String| part.split_whitespace().count();
        let sentences = essay.sentences(text.iter().map(words).sum());
        let allowed: BTreeSet<usize> = depths.iter().map(|depth| sentences.len() * depth / 100).collect();
        // Words up to each sentence.
        let mut ends = vec![0];
        sentences.iter().for_each(|sentence| ends.push(ends[ends.len() - 1] + words(sentence)));
        let mut read = 0;
        for part in &text[..text.len() - 1] {
            read += words(part);
            let before = ends.iter().position(|end| *end == read).unwrap();
            assert!(allowed.contains(&before), "{}: sentence {before} of {}", request.name, sentences.len());
            seen.insert(before);
        }
    }
    assert!(seen.len() > 25, "needles are at different places");
}

#[test]
fn a_seed_gives_the_same_prompts_whichever_others_there_are() {
    let few = made(&wanted(&["vt", "niah_multikey_3"], &[2048], 2));
    let more = made(&wanted(&["niah_multikey_3", "vt", "cwe"], &[4096, 2048], 3));
    for request in &few {
        assert_eq!(more.iter().find(|other| other.name == request.name), Some(request));
    }
    let other = made(&Wanted { seed: 43, ..wanted(&["vt", "niah_multikey_3"], &[2048], 2) });
    assert!(few.iter().zip(&other).all(|(a, b)| a.name == b.name && a.prompt != b.prompt));
    let names: BTreeSet<&str> = more.iter().map(|request| request.name.as_str()).collect();
    assert_eq!(names.len(), more.len());
    assert!(more.iter().all(|request| request.cluster == request.name));
}

#[test]
fn chat_templates_and_own_limits_count() {
    let format =
        ChatFormat { prefix: "u".repeat(400), suffix: "a".repeat(400), strip: false, strip_answer: false };
    let tasks = wanted(&["niah_single_1", "vt", "fwe"], &[4096], 2);
    let tokens = |request: &Request| four_bytes(&request.prompt.whole()).unwrap();
    for request in requests(&tasks, Some(&format)).unwrap() {
        let all = tokens(&request) + 200 + request.max_new_tokens.unwrap();
        assert!(all <= 4096 && all > 3300, "{}: {all}", request.name);
        assert!(request.keeps_header && request.prompt.header().ends_with(['s', ':', ' ']));
    }
    for request in made(&Wanted { answer: Some(1000), ..tasks }) {
        let all = tokens(&request) + 1000;
        assert!(request.max_new_tokens.is_none() && all <= 4096 && all > 3300, "{}: {all}", request.name);
    }
    let error = requests(&wanted(&["qa_2"], &[100], 1), None).unwrap_err();
    let error = format!("{error:#}");
    assert!(error.starts_with("qa_2 does not fit into a length of 100: the shortest prompt has"), "{error}");
}

#[test]
fn scores_are_those_of_ruler() {
    let golden = golden();
    let table = golden["scores"].as_array().unwrap();
    let scorer = ByFile(vec![Arc::new(builtin_definition("ruler").unwrap())]);
    for row in table {
        let text = row[0].as_str().unwrap();
        let references: Vec<String> = serde_json::from_value(row[1].clone()).unwrap();
        for (task, expected) in [("vt", &row[2]), ("qa_1", &row[3])] {
            let slices = vec![Slice::named("task", task)];
            let request = Request { slices, references: references.clone(), ..Request::default() };
            let sums = scorer.score(text, &request).unwrap();
            let (metric, value) = (sums[0].metric, sums[0].value);
            // RULER rounds percents to two digits.
            let close = (value * 100.0 - expected.as_f64().unwrap()).abs() <= 0.005 + 1e-9;
            assert!(metric == "ruler" && close, "{task} {row}: {value}");
        }
    }
    assert!(table.len() > 90);
}
