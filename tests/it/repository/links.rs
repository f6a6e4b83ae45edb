//! Every relative link of a Markdown file leads to a file of the repository, and to a heading in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The Markdown files of the repository. `docs/SUMMARY.md` has the paths of the site, which `scripts/site.py` checks.
fn pages() -> BTreeMap<PathBuf, String> {
    fn walk(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                walk(&path, found);
            } else if name.ends_with(".md") && name != "SUMMARY.md" {
                let text = fs::read_to_string(&path).unwrap();
                found.insert(path, text);
            }
        }
    }
    let mut found = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in
        ["configs", "datasets", "docs", "fuzz", "models", "python", "results", "scripts", "tests", "tools"]
    {
        walk(&root.join(folder), &mut found);
    }
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        found.insert(root.join(name), fs::read_to_string(root.join(name)).unwrap());
    }
    found
}

/// A text without its blocks of code.
fn prose(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        !inside && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The anchors of a page's headings, as Git servers and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = Regex::new(r"(?m)^#{1,6} +(.+?) *$").unwrap();
    let linked = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let mut found = BTreeSet::new();
    for capture in heading.captures_iter(&prose(text)) {
        let title = linked.replace_all(&capture[1], "$1").to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|anchor| !found.contains(anchor));
        found.extend(free);
    }
    found
}

#[test]
fn links_lead_to_files_and_headings() {
    let link = Regex::new(r#"\]\(([^)\s]+)\)|(?:src|href)="([^"]+)""#).unwrap();
    let pages = pages();
    let mut broken = Vec::new();
    let mut checked = 0;
    for (page, text) in &pages {
        for capture in link.captures_iter(&prose(text)) {
            let target = capture.get(1).or(capture.get(2)).unwrap().as_str();
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let found = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let Ok(found) = found.canonicalize() else {
                broken.push(format!("{}: {target}", page.display()));
                continue;
            };
            let has_heading = || pages.get(&found).is_none_or(|text| anchors(text).contains(anchor));
            if !anchor.is_empty() && !has_heading() {
                broken.push(format!("{}: {target} has no such heading", page.display()));
            }
        }
    }
    assert!(checked > 100, "only {checked} links were found");
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}
