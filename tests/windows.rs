//! A model whose layers have windows of their own, from a sweep to its rows.

mod support;

use std::fs;

use serde_json::Value;
use support::checkpoint::{YI_VOCABULARY, golden, write_tokenizer};
use support::program::run;
use support::rows::measured;
use support::sweep::{Sweep, write_texts};
use tova_bench::ledger::Row;

/// The rows of a sweep say what policies did in such layers, and have the numbers of `score`.
#[test]
fn rows_say_what_holds_in_layers_with_a_window() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for (name, source, vocabulary) in [("gemma", "families/gemma3", 64), ("llama", "yi-gqa", YI_VOCABULARY)] {
        fs::create_dir(path.join(name)).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(golden(source).join(file), path.join(name).join(file)).unwrap();
        }
        write_tokenizer(&path.join(name), vocabulary);
    }
    write_texts(path, 1, 300);
    let sweep = Sweep {
        models: "[./gemma, ./llama]",
        policies: "[full, truncate, tova, tova@exempt, h2o]",
        cache_sizes: "[12, 160]",
        tasks: &["dataset: ./texts, length: 200, books: 1, chunks_per_book: 1"],
        more: "",
    };
    sweep.write(path);
    run(path, &["run", "sweep.yaml", "--results", "results"]).with_code(0);
    let rows = measured(&path.join("results"));
    let nll = |model: &str, policy: &str, local_layers: Option<&str>, size: u32| -> f64 {
        let is_it = |row: &&Row| {
            row.model.ends_with(model)
                && row.policy == policy
                && row.local_layers.as_deref() == local_layers
                && row.cache_size.is_none_or(|own| own == size)
                && row.metric == "nll"
                && row.slice.is_none()
        };
        let mut found = rows.iter().filter(is_it);
        let row = found.next().unwrap_or_else(|| panic!("{model} {policy} {local_layers:?} {size}"));
        assert!(found.next().is_none());
        row.value / row.weight
    };
    let tokens = |model: &str| -> String {
        let text = fs::read_to_string(path.join("texts/book-0.txt")).unwrap();
        let inner = tokenizers::Tokenizer::from_file(path.join(model).join("tokenizer.json")).unwrap();
        let ids = inner.encode(text, false).unwrap().get_ids()[..199].to_vec();
        serde_json::to_string(&[vec![1], ids].concat()).unwrap()
    };
    let score = |model: &str, more: &[&str]| -> f64 {
        fs::write(path.join("tokens.json"), tokens(model)).unwrap();
        let model = format!("./{model}");
        let arguments = [&["score", "--model", &model, "--tokens", "tokens.json"], more].concat();
        let printed: Value = serde_json::from_str(&run(path, &arguments).with_code(0).stdout).unwrap();
        let nll: Vec<f64> = serde_json::from_value(printed["nll"].clone()).unwrap();
        nll.iter().sum::<f64>() / nll.len() as f64
    };
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-5, "{a} {b}");
    // With 160 entries a cell takes over from the full cache's reading, with 12 it reads from the start.
    for (size, name) in [(12, "12"), (160, "160")] {
        for local in ["bounded", "exempt"] {
            let policy = ["--policy", "tova", "--cache-size", name, "--local-layers", local];
            close(nll("gemma", "tova", Some(local), size), score("gemma", &policy));
        }
        close(
            nll("gemma", "h2o", Some("bounded"), size),
            score("gemma", &["--policy", "h2o", "--cache-size", name]),
        );
        // Without such layers both are one, under the name that came first.
        close(nll("llama", "tova", None, size), score("llama", &["--policy", "tova", "--cache-size", name]));
    }
    assert_ne!(nll("gemma", "tova", Some("bounded"), 12), nll("gemma", "tova", Some("exempt"), 12));
    close(nll("gemma", "full", None, 12), score("gemma", &[]));
    let report = fs::read_to_string(path.join("results/summary.md")).unwrap();
    assert!(report.contains("| tova@exempt |"), "{report}");
}
