//! The tables and figures of the documentation against the rows of `results/baselines`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::material::skip;

/// Checks the documentation below a folder; `None` without Python.
fn check(root: &Path) -> Option<Output> {
    let script = root.join(".ci/checks/docs_rows.py");
    Command::new("python3").arg(script).arg(env!("CARGO_BIN_EXE_tova-bench")).arg("--check").output().ok()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn documentation_says_what_the_rows_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(whole) = check(root) else { return skip("docs_rows", "python", "python3") };
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
    // Other numbers in a table or in the text, a lost picture, a newer engine.
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path();
    for part in ["docs", "docs/img", "results/baselines", ".ci/checks", "src/ledger"] {
        copy(&root.join(part), &copied.join(part));
    }
    // One page is enough for these, and takes less time. README has numbers of others.
    fs::write(copied.join("README.md"), "").unwrap();
    for entry in fs::read_dir(copied.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "md") && !path.ends_with("policies.md") {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(check(copied).unwrap().status.success());
    let page = copied.join("docs/policies.md");
    let text = fs::read_to_string(&page).unwrap();
    let refused = |word: &str| {
        let said = check(copied).unwrap();
        let said = (said.status.success(), String::from_utf8(said.stderr).unwrap());
        assert!(!said.0 && said.1.contains(word), "{said:?}");
    };
    let (before, table) = text.split_once("<!-- table").expect("a table that comes from rows");
    let number =
        table.split(" [").next().and_then(|before| before.rsplit([' ', '>', '*']).find(|word| !word.is_empty()));
    let number = number.filter(|number| number.parse::<f64>().is_ok()).expect("a number before its interval");
    fs::write(&page, format!("{before}<!-- table{}", table.replacen(number, "9.876", 1))).unwrap();
    refused("docs/policies.md");
    let end = "<!-- end -->";
    fs::write(&page, text.replacen(end, &format!("{end}\n\nIt costs 98.765 nats.\n"), 1)).unwrap();
    refused("98.765");
    fs::write(&page, &text).unwrap();
    let picture =
        text.split("](").find_map(|rest| rest.split(')').next().filter(|name| name.ends_with(".png"))).unwrap();
    fs::rename(copied.join("docs").join(picture), copied.join("docs/lost.png")).unwrap();
    refused(picture);
    fs::rename(copied.join("docs/lost.png"), copied.join("docs").join(picture)).unwrap();
    let identity = copied.join("src/ledger/identity.rs");
    let engine = fs::read_to_string(&identity).unwrap();
    fs::write(&identity, engine.replace("ENGINE_VERSION: u32 = ", "ENGINE_VERSION: u32 = 9")).unwrap();
    refused("measure it again");
}
