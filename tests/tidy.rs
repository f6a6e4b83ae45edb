//! The architecture as a test: who may use whom, where each heavy crate lives, and some habits of the house.
//!
//! It reads the sources as text, without comments and strings. What it allows is what ARCHITECTURE.md draws; a new arrow
//! is a decision, so it is made here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules in the order they are built: each may use those named, which all stand before it.
const ARROWS: [(&str, &[&str]); 16] = [
    ("format", &[]),
    ("bounded_read", &[]),
    ("vector", &[]),
    ("columns", &[]),
    ("world", &[]),
    ("eviction", &["vector"]),
    ("metric", &[]),
    // Identity, rows and files; who measured them and why is unknown.
    ("ledger", &["columns", "bounded_read", "format"]),
    ("lm", &["eviction", "vector", "bounded_read"]),
    ("task", &["lm", "metric", "eviction", "columns", "vector", "world", "bounded_read", "format"]),
    ("sweep", &["ledger", "task", "lm", "eviction", "bounded_read", "format"]),
    ("run", &["ledger", "sweep", "task", "lm", "metric", "eviction", "format"]),
    // Reads stories from rows and shows the judge the request: no model of ours, no run.
    ("judge", &["ledger", "task"]),
    // Draws from rows alone: no model, no sweep.
    ("report", &["ledger"]),
    // Sets two sets of rows side by side, with the names, quantities and draws of a report.
    ("compare", &["report", "ledger"]),
    (
        "cli",
        &[
            "compare",
            "report",
            "judge",
            "run",
            "ledger",
            "sweep",
            "task",
            "lm",
            "metric",
            "eviction",
            "vector",
            "world",
            "bounded_read",
            "format",
        ],
    ),
];

/// Crates that shape the code around them, and the modules that may know them.
const HOMES: [(&str, &[&str]); 27] = [
    ("candle_core", &["lm"]),
    ("candle_nn", &["lm"]),
    ("candle_transformers", &["lm"]),
    ("safetensors", &["lm"]),
    ("tokenizers", &["lm"]),
    ("hf_hub", &["lm"]),
    // The hub's descriptions come through hf-hub, which has a ureq of its own inside; its files do not, and `doctor` asks
    // whether the hub is there.
    ("ureq", &["judge", "lm"]),
    ("gemm", &["lm"]),
    ("minijinja", &["lm"]),
    ("minijinja_contrib", &["lm"]),
    ("deunicode", &["metric"]),
    ("harper_brill", &["task"]),
    ("zip", &["task"]),
    ("pulp", &["vector"]),
    ("polars", &["columns"]),
    ("ecow", &["columns"]),
    ("plotters", &["report"]),
    ("quick_junit", &["compare"]),
    ("pdf_writer", &["report"]),
    ("miniz_oxide", &["report"]),
    ("maud", &["report"]),
    ("serde_saphyr", &["sweep"]),
    ("schemars", &["sweep"]),
    ("clap", &["cli"]),
    ("indicatif", &["cli"]),
    ("rustix", &["cli"]),
    // `run` and `cli` only make the pools that `lm` and `task` work in.
    ("rayon", &["lm", "task", "run", "cli"]),
];

/// A source file.
struct Source {
    path: PathBuf,
    /// The module below `src`; `None` for `main.rs` and `lib.rs`.
    module: Option<String>,
    text: String,
    /// Without comments and the insides of strings.
    code: String,
    /// The code before the tests at the end of the file; nothing of a file that is all tests.
    shipped: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    walk(&root, &mut paths);
    let mut sources: Vec<Source> = paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let code = code_of(&text);
            let below = path.strip_prefix(&root).unwrap().to_path_buf();
            let first = below.components().next().unwrap().as_os_str().to_str().unwrap();
            let module = first.strip_suffix(".rs").unwrap_or(first).to_string();
            let module = (!["main", "lib"].contains(&module.as_str())).then_some(module);
            let tests = code.match_indices("#[cfg(test)]\n").find(|(at, attribute)| {
                let line = code[at + attribute.len()..].lines().next().unwrap_or_default();
                line.ends_with("mod tests {")
            });
            let shipped = tests.map_or(code.as_str(), |(at, _)| &code[..at]).to_string();
            Source { path: Path::new("src").join(below), module, text, code, shipped }
        })
        .collect();
    // `#[cfg(test)] mod fixture;` makes fixture.rs beside it, or below, a file of tests.
    let mut tests = BTreeSet::new();
    for source in &sources {
        for declaration in source.code.split("#[cfg(test)]").skip(1) {
            let line = declaration.trim_start().lines().next().unwrap_or_default();
            let name = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod ")).map(|(_, name)| name);
            let Some(name) = name else { continue };
            let folder = source.path.parent().unwrap();
            tests.insert(folder.join(format!("{name}.rs")));
            tests.insert(source.path.with_extension("").join(format!("{name}.rs")));
        }
    }
    for source in sources.iter_mut().filter(|source| tests.contains(&source.path)) {
        source.shipped.clear();
    }
    sources
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
}

/// The text without comments and without the insides of strings and characters; lines stay lines.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let raw = rest.strip_prefix('r').filter(|_| !code.ends_with(|c: char| c.is_alphanumeric() || c == '_'));
        let hashes = raw.map(|raw| raw.len() - raw.trim_start_matches('#').len());
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let (Some(raw), Some(hashes)) = (raw, hashes)
            && raw[hashes..].starts_with('"')
        {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = hashes + 2;
            start + rest[start..].find(&end).unwrap() + end.len()
        } else if c == '"' {
            1 + string_end(&rest[1..], '"')
        } else if c == '\'' && is_character(rest) {
            1 + string_end(&rest[1..], '\'')
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        code.extend(rest[..skipped].chars().filter(|&c| c == '\n'));
        code.push_str(if c == '/' { "" } else { "\"\"" });
        rest = &rest[skipped..];
    }
    code
}

/// Bytes up to and with the closing quote.
fn string_end(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Whether a quote begins a character and not a lifetime.
fn is_character(rest: &str) -> bool {
    let mut characters = rest.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some(_) => characters.next() == Some('\''),
        None => false,
    }
}

/// The names that follow `prefix` as a path: one, or those in braces.
fn names_after<'a>(code: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    let word = |text: &'a str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        &text[..end]
    };
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let after = &code[at + prefix.len()..];
        let Some(inside) = after.strip_prefix('{') else {
            names.insert(word(after));
            continue;
        };
        let mut depth = 0;
        let mut starts = true;
        for (at, c) in inside.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => starts = true,
                c if starts && !c.is_whitespace() => {
                    names.insert(word(&inside[at..]));
                    starts = false;
                }
                _ => {}
            }
        }
    }
    names
}

#[test]
fn the_reader_of_sources_reads() {
    let code = code_of("a // crate::b\n\"crate::c \\\" d\" 'x' '\\'' '\"' r#\"e \" f\"# /* g */ <'a> h\n");
    assert_eq!(
        code.split_whitespace().collect::<Vec<_>>(),
        ["a", "\"\"", "\"\"", "\"\"", "\"\"", "\"\"", "<'a>", "h"]
    );
    let names = names_after("use crate::a; use crate::{b::{c, d}, e}; mycrate::f crate::g::h", "crate::");
    assert_eq!(names, BTreeSet::from(["a", "b", "e", "g"]));
}

#[test]
fn the_list_of_modules_is_the_program() {
    for (place, (module, uses)) in ARROWS.iter().enumerate() {
        let before: Vec<&str> = ARROWS[..place].iter().map(|(name, _)| *name).collect();
        for used in *uses {
            assert!(before.contains(used), "{module} may not use {used}, which does not stand before it");
        }
    }
    let listed: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let sources = sources();
    let found: BTreeSet<&str> = sources.iter().filter_map(|source| source.module.as_deref()).collect();
    assert_eq!(found, listed, "a new module gets its place in ARROWS");
    let library = sources.iter().find(|source| source.path.ends_with("lib.rs")).unwrap();
    let declared: BTreeSet<&str> =
        library.code.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert_eq!(declared, listed);
    let drawn = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap();
    let drawn: Vec<&str> = drawn.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(drawn, ARROWS.map(|(name, _)| name), "ARCHITECTURE.md has the same modules in the same order");
}

#[test]
fn modules_use_only_what_stands_before_them() {
    let mut arrows: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let sources = sources();
    for source in &sources {
        let Some(module) = source.module.as_deref() else { continue };
        let (_, allowed) = ARROWS.iter().find(|(name, _)| *name == module).unwrap();
        let used = names_after(&source.code, "crate::");
        // `super::super::lm` would be a way around.
        let above = names_after(&source.code, "super::");
        for name in used.union(&above).filter(|name| **name != module) {
            let Some((name, _)) = ARROWS.iter().find(|(known, _)| known == name) else { continue };
            let is_own = !used.contains(name) && has_child(&sources, module, name);
            if is_own {
                continue;
            }
            *arrows.entry((module, name)).or_default() += 1;
            if !allowed.contains(name) {
                wrong.push(format!("{} uses {name}", source.path.display()));
            }
        }
    }
    for ((from, to), files) in &arrows {
        eprintln!("{from} -> {to} ({files} files)");
    }
    assert!(wrong.is_empty(), "arrows that are not allowed:\n{}", wrong.join("\n"));
}

/// Whether a module has a part that is called like another module.
fn has_child(sources: &[Source], module: &str, name: &str) -> bool {
    let folder = Path::new("src").join(module);
    sources.iter().any(|source| {
        source.path == folder.join(format!("{name}.rs")) || source.path.starts_with(folder.join(name))
    })
}

#[test]
fn each_heavy_crate_has_its_home() {
    let mut wrong = Vec::new();
    let sources = sources();
    for (name, homes) in HOMES {
        let prefix = format!("{name}::");
        let mut seen = false;
        for source in &sources {
            let uses = source.code.match_indices(&prefix).any(|(at, _)| {
                !source.code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':'))
            });
            seen |= uses;
            if uses && !source.module.as_deref().is_some_and(|module| homes.contains(&module)) {
                wrong.push(format!("{} knows {name}, whose home is {}", source.path.display(), homes.join(", ")));
            }
        }
        assert!(seen, "nobody uses {name} any more: remove it here and in Cargo.toml");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files whose shipped code has one of the words, as `path:line: word`.
fn lines_with(words: &[&str], excused: impl Fn(&Source) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| !excused(source)) {
        for (line, text) in source.shipped.lines().enumerate() {
            for word in words {
                let hit = text
                    .match_indices(word)
                    .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
                if hit {
                    found.push(format!("{}:{}: {word}", source.path.display(), line + 1));
                }
            }
        }
    }
    found
}

#[test]
fn only_the_command_line_prints() {
    let found = lines_with(&["println!", "print!", "eprintln!", "eprint!", "stdout()", "stderr()"], |source| {
        source.module.as_deref() == Some("cli")
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn nothing_that_ships_gives_up_silently_or_for_now() {
    let found = lines_with(&[".unwrap()", "todo!", "unimplemented!", "dbg!", "#[ignore", "#[allow("], |_| false);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn yaml_and_rows_are_read_strictly() {
    let found = lines_with(&["untagged", "serde(flatten", "deny_unknown_fields = false"], |_| false);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_file_says_what_it_knows() {
    for source in sources() {
        assert!(source.text.starts_with("//! "), "{} opens without a //! line", source.path.display());
    }
}

/// A version of the changelog: its heading, and what stands below it.
fn versions_of_the_changelog() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("CHANGELOG.md");
    let text = fs::read_to_string(path).unwrap();
    let sections = text.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap());
    sections.map(|(heading, body)| (heading.to_string(), body.to_string())).collect()
}

#[test]
fn the_changelog_says_what_numbers_this_version_has() {
    let versions = versions_of_the_changelog();
    let (heading, body) = &versions[0];
    let version = concat!("[", env!("CARGO_PKG_VERSION"), "] - ");
    assert!(
        heading.starts_with(version),
        "the top of CHANGELOG.md is {heading:?}, not `## {version}<date or unreleased>`"
    );
    let (_, numbers) = body.split_once("### Numbers\n").unwrap();
    let (engine, schema) = (tova_bench::ledger::ENGINE_VERSION, tova_bench::ledger::SCHEMA_VERSION);
    let said = format!("Engine {engine}, schema {schema}.");
    assert!(
        numbers.trim_start().starts_with(&said),
        "`### Numbers` of {heading} begins with {said:?} and says which numbers moved, and why"
    );
    for (heading, body) in &versions {
        assert!(body.contains("### Numbers\n"), "{heading} says nothing of its numbers");
        let (_, date) = heading.split_once("] - ").unwrap();
        let is_date = date.len() == 10
            && date.bytes().enumerate().all(|(at, b)| match at {
                4 | 7 => b == b'-',
                _ => b.is_ascii_digit(),
            });
        let is_top = *heading == versions[0].0;
        assert!(is_date || (is_top && date == "unreleased"), "{heading} has no date");
    }
}

#[test]
fn what_the_package_leaves_out_is_not_embedded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, list) = manifest.split_once("\ninclude = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    let included: Vec<&str> =
        list.split('"').skip(1).step_by(2).map(|path| path.trim_start_matches('/')).collect();
    let mut embedded = 0;
    for source in sources() {
        // The tests of a package are not in it.
        let tests = source.shipped.is_empty();
        for part in source.text.split("include_").skip(1) {
            let Some(name) = part.strip_prefix("str!(\"").or_else(|| part.strip_prefix("bytes!(\"")) else {
                continue;
            };
            let path = root.join(source.path.parent().unwrap()).join(name.split('"').next().unwrap());
            let path = path.canonicalize().unwrap();
            let path = path.strip_prefix(root.canonicalize().unwrap()).unwrap().to_str().unwrap().to_string();
            embedded += 1;
            let packed = included.iter().any(|entry| match entry.strip_suffix("/*") {
                Some(folder) => path.rsplit_once('/').is_some_and(|(of, _)| of == folder),
                None => path == *entry || path.starts_with(&format!("{entry}/")),
            });
            assert!(
                packed || tests,
                "{} embeds {path}, which Cargo.toml's include leaves out",
                source.path.display()
            );
        }
    }
    assert!(embedded > 10, "{embedded}");
}

#[test]
fn images_are_built_with_the_rust_of_the_manifest() {
    for file in ["Dockerfile", "Dockerfile.cuda"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let said = text.lines().find_map(|line| line.strip_prefix("ARG RUST=")).unwrap();
        assert_eq!(said, env!("CARGO_PKG_RUST_VERSION"), "{file}");
    }
}

/// Files that may hold `unsafe`, and what for: a map, an intrinsic, a call of another language, or a variable set before there
/// is a second thread.
const UNSAFE: [(&str, &str); 5] = [
    ("src/main.rs", "the environment"),
    ("src/lm/weights.rs", "maps of weights"),
    ("src/lm/product.rs", "the kernel of products"),
    ("src/lm/device.rs", "the allocator of C"),
    ("tests/support/program.rs", "signals"),
];

#[test]
fn what_is_unsafe_says_why_it_is_safe() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["src", "tests", "benches", "fuzz/src", "fuzz/targets"] {
        walk(&root.join(folder), &mut paths);
    }
    let (mut found, mut wrong) = (BTreeSet::new(), Vec::new());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
        let lines: Vec<&str> = text.lines().collect();
        for (at, code) in code_of(&text).lines().enumerate() {
            if !names_after(&format!("{code} "), "unsafe").contains("") {
                continue;
            }
            found.insert(name.clone());
            // The reason stands above the block, or above the attributes of the statement it is in.
            let above = lines[..at].iter().rev().map(|line| line.trim());
            let above: Vec<&str> =
                above.take_while(|line| line.starts_with("//") || line.starts_with("#[")).collect();
            let reason = above.iter().find_map(|line| line.strip_prefix("// SAFETY: "));
            if reason.is_none_or(|reason| reason.len() < 20) {
                wrong.push(format!("{name}:{}: `unsafe` without a comment `// SAFETY: ...` above it", at + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let listed: BTreeSet<String> = UNSAFE.iter().map(|(name, _)| (*name).to_string()).collect();
    assert_eq!(found, listed, "a file with `unsafe` has its reason in UNSAFE, and no other file is listed there");
}
