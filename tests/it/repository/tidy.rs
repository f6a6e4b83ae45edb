//! The architecture as a test: which module may use which, and which module each heavy crate belongs to.
//!
//! Sources are read as text, line by line, without comments. ARCHITECTURE.md shows the same modules in the same order.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The modules, lowest first, and those each may use; all of them stand above it.
const MODULES: [(&str, &[&str]); 20] = [
    ("format", &[]),
    ("bounded_read", &[]),
    ("yaml", &["bounded_read", "format"]),
    ("jinja", &[]),
    ("vector", &[]),
    ("parquet", &["bounded_read"]),
    ("eviction", &["vector", "yaml", "bounded_read", "format"]),
    ("metric", &["format"]),
    ("ledger", &["eviction", "parquet", "bounded_read", "format", "metric"]),
    ("lm", &["eviction", "vector", "jinja", "bounded_read", "format"]),
    ("task", &["lm", "metric", "eviction", "parquet", "vector", "jinja", "yaml", "bounded_read", "format"]),
    ("text", &["task", "lm", "eviction"]),
    ("sweep", &["ledger", "task", "lm", "eviction", "yaml", "format"]),
    ("run", &["ledger", "sweep", "task", "lm", "metric", "eviction", "format"]),
    ("judge", &["ledger", "task", "metric"]),
    ("report", &["ledger", "metric", "eviction", "format"]),
    ("show", &["report", "text", "task", "lm", "ledger", "eviction", "parquet", "bounded_read", "format"]),
    ("compare", &["report", "ledger", "metric", "eviction", "format"]),
    ("paper", &["report", "ledger", "metric", "format"]),
    (
        "cli",
        &[
            "paper",
            "compare",
            "show",
            "report",
            "judge",
            "run",
            "sweep",
            "text",
            "task",
            "lm",
            "ledger",
            "metric",
            "eviction",
            "vector",
            "yaml",
            "bounded_read",
            "format",
        ],
    ),
];

/// Crates that shape the code around them, and the modules that may use them.
const CRATES: [(&str, &[&str]); 28] = [
    ("candle_core", &["lm"]),
    ("candle_nn", &["lm"]),
    ("candle_transformers", &["lm"]),
    ("safetensors", &["lm", "eviction"]),
    ("tokenizers", &["lm"]),
    ("hf_hub", &["lm"]),
    ("ureq", &["lm", "judge"]),
    ("gemm", &["lm"]),
    ("minijinja", &["jinja"]),
    ("fancy_regex", &["task"]),
    ("deunicode", &["metric"]),
    ("harper_brill", &["task"]),
    ("zip", &["task"]),
    ("zstd", &["task"]),
    ("pulp", &["lm", "vector"]),
    ("polars", &["parquet"]),
    ("polars_arrow", &["parquet"]),
    ("polars_parquet", &["parquet"]),
    ("plotters", &["report"]),
    ("resvg", &["report"]),
    ("svg2pdf", &["report"]),
    ("ttf_parser", &["report"]),
    ("maud", &["report", "show"]),
    ("serde_saphyr", &["yaml"]),
    ("schemars", &["yaml", "task", "sweep"]),
    ("clap", &["cli"]),
    ("indicatif", &["cli"]),
    ("rayon", &["lm", "task", "run", "cli"]),
];

struct Source {
    /// From the repository's root.
    path: PathBuf,
    /// The first name below `src`; empty for `main.rs` and `lib.rs`.
    module: String,
    text: String,
    /// `tests.rs`, or in a folder `tests`: compiled only for tests, as `tests_are_named_one_way` checks.
    is_test: bool,
}

impl Source {
    /// Lines with their numbers, without those that are comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// The code without the items under `#[cfg(test)]`; nothing of a test file.
    fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        // The indentation of the test item that a line belongs to, and whether the item has begun: rustfmt ends one of several
        // lines with a brace at the indentation where it began.
        let mut of_test: Option<(usize, bool)> = None;
        self.code().filter(move |(_, line)| {
            let (code, indentation) = (line.trim(), line.len() - line.trim_start().len());
            let is_attribute = code.starts_with("#[");
            if of_test.is_none() && (code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test")) {
                of_test = Some((indentation, false));
            }
            let is_test = of_test.is_some();
            of_test = of_test.filter(|(of_item, has_begun)| {
                let ends_at_once = !has_begun && !is_attribute && code.ends_with([';', ',', '}']);
                let ends_here = indentation == *of_item && code.starts_with('}');
                !(ends_at_once || ends_here)
            });
            of_test = of_test.map(|(of_item, has_begun)| (of_item, has_begun || !is_attribute));
            !is_test && !self.is_test
        })
    }
}

/// Adds the files below a folder whose names have this ending.
fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    walk(&root.join("src"), "rs", &mut paths);
    paths.sort();
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root).unwrap().to_path_buf();
        let module = path.components().nth(1).unwrap().as_os_str().to_str().unwrap();
        let module = module.trim_end_matches(".rs");
        let module = if ["main", "lib"].contains(&module) { "" } else { module }.to_string();
        let is_test = path.with_extension("").iter().any(|part| part == "tests");
        Source { path, module, text, is_test }
    };
    paths.into_iter().map(source).collect()
}

/// Files of tests alone are found by their names, so that nobody has to look where they are declared.
#[test]
fn tests_are_named_one_way() {
    let declared =
        Regex::new(r"(#\[cfg\((?:all\()?test\b[^\n]*\n\s*)?(?:#\[[^\n]*\n\s*)*(?:pub\S* )?mod (\w+);").unwrap();
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test) {
        for found in declared.captures_iter(&source.text) {
            if found.get(1).is_some() != (&found[2] == "tests") {
                wrong.push(format!("{}: {}", source.path.display(), &found[0]));
            }
        }
    }
    assert_eq!(
        wrong, [""; 0],
        "what is compiled for tests alone is `#[cfg(test)] mod tests;`, and nothing else has this name"
    );
}

/// A snapshot whose test is gone would stay, because only those that are compared are renewed.
#[test]
fn every_snapshot_has_its_test() {
    let mut snapshots = Vec::new();
    for folder in ["src", "tests/it"] {
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), "snap", &mut snapshots);
    }
    assert!(snapshots.len() > 10, "{snapshots:?}");
    snapshots.retain(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let test = format!("fn {}()", name.rsplit("__").next().unwrap().split('-').next().unwrap());
        let mut files = fs::read_dir(path.parent().unwrap().parent().unwrap()).unwrap();
        !files.any(|file| fs::read_to_string(file.unwrap().path()).is_ok_and(|text| text.contains(&test)))
    });
    assert!(snapshots.is_empty(), "no test compares {snapshots:?}");
}

/// What `pattern` captures in each line of code but unit tests, with its module and `path:line`.
fn uses(sources: &[Source], pattern: &str) -> Vec<(String, String, String)> {
    let pattern = Regex::new(pattern).unwrap();
    let mut found = Vec::new();
    for source in sources {
        for (number, line) in source.shipped() {
            for capture in pattern.captures_iter(line) {
                let place = format!("{}:{number}", source.path.display());
                found.push((source.module.clone(), capture[1].to_string(), place));
            }
        }
    }
    found
}

/// The folders and files of some modules, lowest first. Those in one line use each other.
const PARTS: [(&str, &[&str]); 3] = [
    (
        "lm",
        &[
            "machine",
            "shape",
            "arithmetic",
            "files",
            "gpu",
            "cache",
            "device",
            "network",
            "score",
            "generate",
            "gpu_check",
            "device_choice",
            "open",
        ],
    ),
    (
        "task",
        &[
            "canonical",
            "embedded",
            "cache",
            "memory",
            "data",
            "request",
            "prepared",
            "spec",
            "generation",
            "retention",
            "perplexity",
            "benchmark",
            "longbench math needle questions ruler",
            "story timing",
            "registry",
        ],
    ),
    ("report", &["escape", "special_tokens", "statistics", "series", "figure", "document", "sections", "format"]),
];

#[test]
fn parts_of_modules_use_only_lower_ones() {
    let sources = sources();
    let mut wrong = Vec::new();
    for (module, parts) in PARTS {
        // In a file of the module's own folder, or the first of a part's folder, and in the others.
        let nearer = Regex::new(&format!(r"(?:crate::{module}|super)::(\w+)")).unwrap();
        let deeper = Regex::new(&format!(r"(?:crate::{module}|super::super)::(\w+)")).unwrap();
        let place = |name: &str| parts.iter().position(|part| part.split(' ').any(|own| own == name));
        for source in sources.iter().filter(|source| source.module == module) {
            let folders: Vec<&str> =
                source.path.iter().map(|part| part.to_str().unwrap().trim_end_matches(".rs")).collect();
            let Some(part) = folders.get(2).and_then(|name| place(name)) else { continue };
            let used = if folders.len() == 3 || folders[3..] == ["mod"] { &nearer } else { &deeper };
            for (number, line) in source.shipped() {
                let higher =
                    used.captures_iter(line).filter(|found| place(&found[1]).is_some_and(|other| other > part));
                wrong.extend(higher.map(|found| format!("{}:{number} uses {}", source.path.display(), &found[1])));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// The folders and files of a module, without the ending.
fn parts_in(module: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(module);
    let found = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let rust = found.filter(|path| path.is_dir() || path.extension().is_some_and(|end| end == "rs"));
    let names = rust.map(|path| path.file_stem().unwrap().to_str().unwrap().to_string());
    names.filter(|name| name != "mod").collect()
}

#[test]
fn every_part_of_lm_and_of_the_tasks_has_its_place() {
    for (module, parts) in &PARTS[..2] {
        let listed = parts.iter().flat_map(|parts| parts.split(' ')).map(str::to_owned);
        assert_eq!(parts_in(module), listed.collect());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let rows: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once("| `lm/")?.1.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    assert!(
        PARTS[0].1.starts_with(&rows) && rows.len() == 8,
        "ARCHITECTURE.md lists the same folders in the same order"
    );
}

#[test]
fn modules_use_only_those_above_them() {
    let sources = sources();
    let mut wrong = Vec::new();
    // `crate::{a, b}` would hide modules from this test.
    let braces = uses(&sources, r"\b(crate::\{)");
    wrong
        .extend(braces.into_iter().map(|(_, _, place)| format!("{place}: name one module in each `use crate::`")));
    for (module, used, place) in uses(&sources, r"\bcrate::([a-z_]+)") {
        let allowed = MODULES.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, allowed)| *allowed);
        let is_module = MODULES.iter().any(|(name, _)| *name == used);
        if is_module && used != module && !module.is_empty() && !allowed.contains(&used.as_str()) {
            wrong.push(format!("{place}: {module} must not use {used}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_list_is_complete_and_has_no_circles() {
    let names = MODULES.map(|(name, _)| name);
    for (at, (module, allowed)) in MODULES.iter().enumerate() {
        for used in *allowed {
            assert!(names[..at].contains(used), "{module} may not use {used}, which does not stand above it");
        }
    }
    let found: BTreeSet<String> = sources().into_iter().map(|source| source.module).collect();
    let listed: BTreeSet<String> = names.into_iter().chain([""]).map(String::from).collect();
    assert_eq!(found, listed);
    let architecture = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let text = fs::read_to_string(architecture).unwrap();
    let rows: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(rows, names, "ARCHITECTURE.md lists the same modules in the same order");
}

#[test]
fn each_heavy_crate_has_its_module() {
    let sources = sources();
    let names = CRATES.map(|(name, _)| name).join("|");
    let found = uses(&sources, &format!(r"(?:^|[^\w:])({names})::"));
    for (name, modules) in CRATES {
        assert!(found.iter().any(|(_, used, _)| used == name), "{name} is unused: remove it from Cargo.toml");
        for (module, _, place) in found.iter().filter(|(_, used, _)| used == name) {
            assert!(modules.contains(&module.as_str()), "{place}: {name} belongs to {}", modules.join(", "));
        }
    }
}

#[test]
fn house_rules_hold() {
    // Only what `cli/output.rs` prints is made printable; `cli/terminal.rs` asks what a terminal is.
    let printing = Regex::new(r"\be?print(ln)?!|\bstd(out|err)\(\)\.lock").unwrap();
    let sloppy =
        Regex::new(r"\.unwrap\(\)|\btodo!|\bunimplemented!|#\[ignore|#\[allow\(|serde\((untagged|flatten)")
            .unwrap();
    let mut wrong = Vec::new();
    for source in sources() {
        if !source.text.starts_with("//! ") {
            wrong.push(format!("{} has no module documentation", source.path.display()));
        }
        for (number, line) in source.shipped() {
            let prints = printing.is_match(line) && !source.path.ends_with("cli/output.rs");
            if sloppy.is_match(line) || prints {
                wrong.push(format!("{}:{number}: {}", source.path.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A comment that leans on the item before it cannot be understood where editors and rustdoc show it alone.
#[test]
fn comments_can_be_read_alone_and_messages_are_plain() {
    let doc = Regex::new(r"^\s*//[/!]").unwrap();
    let leaning =
        Regex::new(r"^\s*//[/!] (?:The same\b|Of these\b|Of those\b|Those of\b|As there\b|As \[|So many\b)")
            .unwrap();
    let denying = Regex::new(r"\b(there is|is) no (\w+)").unwrap();
    let mut wrong = Vec::new();
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let begins = at == 0 || !doc.is_match(lines[at - 1]);
            if begins && leaning.is_match(line) {
                wrong.push(format!("{}:{}: {}", source.path.display(), at + 1, line.trim()));
            }
        }
        for (number, line) in source.shipped() {
            if denying.captures(line).is_some_and(|found| &found[1] == "is" && &found[2] != "longer") {
                wrong.push(format!("{}:{number}: write \"is not a\": {}", source.path.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files that open paths themselves: none of a user's.
const OPENERS: [&str; 7] = [
    "src/bounded_read.rs",
    // Folders, to sync and to lock them.
    "src/ledger/current.rs",
    "src/ledger/disk.rs",
    // `/proc` and `/sys`.
    "src/lm/device/mod.rs",
    "src/lm/machine/host.rs",
    // The program's own kernels, and its note on a GPU.
    "src/lm/gpu/emulated.rs",
    "src/lm/gpu_check.rs",
];

/// A pipe or a device in a file's place would hang the program, and a full disk leave half a file.
#[test]
fn files_are_opened_and_written_in_one_place() {
    let opening = r"(\bFile::(?:open|create|create_new|options)\b|\bfs::(?:read|read_to_string|write|copy)\b|\.open\(&?path\)|from_path\()";
    let own = |place: &str| OPENERS.iter().any(|file| place.starts_with(&format!("{file}:")));
    let found: Vec<String> = uses(&sources(), opening)
        .into_iter()
        .filter(|(_, _, place)| !own(place))
        .map(|(_, opening, place)| format!("{place}: {opening}"))
        .collect();
    assert_eq!(found, [""; 0], "bounded_read opens files, and ledger::write_derived writes them");
}

#[test]
fn the_changelog_states_the_versions_of_the_numbers() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("CHANGELOG.md")).unwrap();
    let newest = text.split("\n## ").nth(1).unwrap();
    let versions =
        format!("Engine {}, schema {}.", tova_bench::ledger::ENGINE_VERSION, tova_bench::ledger::SCHEMA_VERSION);
    assert!(newest.contains(&versions), "the newest section of CHANGELOG.md must say {versions:?}");
}
