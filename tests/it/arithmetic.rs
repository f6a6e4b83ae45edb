//! `arithmetic: fast` through the program. (Its products are compared with their definition in `lm::arithmetic::integers`.)

use std::fs;
use std::path::Path;

use crate::support::gguf::{fields, tensors, wide_checkpoint, write, write_rounded};
use crate::support::program::run;
use crate::support::rows::measured;
use crate::support::sweep::write_texts;
use candle_core::quantized::GgmlDType;
use serde_json::Value;

/// The NLLs of 300 tokens.
fn nlls(folder: &Path, model: &str, more: &[&str]) -> Vec<f64> {
    let arguments =
        ["score", "--model", model, "--policy", "tova", "--cache-size", "200", "--tokens", "tokens.json"];
    let ended = run(folder, &[&arguments[..], more].concat()).with_code(0);
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
    answer["nll"].as_array().unwrap().iter().map(|nll| nll.as_f64().unwrap()).collect()
}

#[test]
fn numbers_are_near_those_of_f32_and_depend_on_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let wide = wide_checkpoint(path);
    let tokens: Vec<u32> = (0..300).map(|i| (i * i * 7 + 3) % 56).collect();
    fs::write(path.join("tokens.json"), format!("{tokens:?}")).unwrap();
    write_rounded(&wide, GgmlDType::BF16, &path.join("bf16"));
    let mut models = vec![("./bf16".to_owned(), "bf16")];
    for stored in [GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q5_0, GgmlDType::Q5_1, GgmlDType::Q8_0] {
        models.push((format!("./{stored:?}.gguf"), "f32"));
        write(&path.join(format!("{stored:?}.gguf")), &fields(&wide), &tensors(&wide, stored));
    }
    for stored in [GgmlDType::Q4K, GgmlDType::Q6K] {
        models.push((format!("./{stored:?}.gguf"), "f32"));
        write(&path.join(format!("{stored:?}.gguf")), &fields(&wide), &tensors(&wide, stored));
    }
    for (model, dtype) in &models {
        let of = |more: &[&str]| nlls(path, model, &[&["--dtype", dtype], more].concat());
        let (exact, fast) = (of(&[]), of(&["--arithmetic", "fast"]));
        let largest = exact.iter().zip(&fast).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{model}: {largest:e}");
        assert!(largest > 0.0 && largest < 0.01, "{model}: {largest}");
        // Attention's last digits depend on how a text is split, and rounding makes more of them.
        for more in [["--chunk", "1"], ["--chunk", "7"]] {
            let split = of(&[&["--arithmetic", "fast"], &more[..]].concat());
            assert!(split.iter().zip(&fast).all(|(a, b)| (a - b).abs() < 0.01), "{model} {more:?}");
        }
        assert_eq!(of(&["--arithmetic", "fast", "--threads", "1"]), fast, "{model}");
    }
}

#[test]
fn a_cell_and_its_rows_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_texts(path, 2, 2_000);
    let sweep =
        "models: [{source: random-tiny, dtype: bf16}, {source: random-tiny, dtype: bf16, arithmetic: fast}]
policies: [full, tova]
cache_sizes: [16]
tasks: [{perplexity: {dataset: ./texts, length: 128}}]
";
    fs::write(path.join("s.yaml"), sweep).unwrap();
    run(path, &["run", "s.yaml", "--results", "r"]).with_code(0);
    let rows = measured(&path.join("r"));
    let of = |arithmetic: &str| {
        let rows =
            rows.iter().filter(|row| row.arithmetic == arithmetic && row.metric == "nll" && row.slice.is_none());
        rows.map(|row| (row.model.to_string(), row.sample.clone(), row.value)).collect::<Vec<_>>()
    };
    let (exact, fast) = (of("f32"), of("fast"));
    assert!(!exact.is_empty() && exact.len() == fast.len());
    for ((model, sample, exact), (of_fast, of_same, fast)) in exact.iter().zip(&fast) {
        assert_eq!((model.as_str(), of_fast.as_str(), sample), ("random-tiny", "random-tiny (fast)", of_same));
        assert!(exact != fast && (exact - fast).abs() < 0.05 * exact, "{exact} {fast}");
    }
    let csv = fs::read_to_string(path.join("r/report.csv")).unwrap();
    assert!(csv.contains(",arithmetic,") && csv.contains(",fast,"), "{csv}");
    // No product of f32 weights would be in integers.
    fs::write(
        path.join("f32.yaml"),
        sweep.replace(", dtype: bf16, arithmetic: fast", ", arithmetic: fast, dtype: f32"),
    )
    .unwrap();
    let refused = run(path, &["run", "f32.yaml", "--results", "f"]);
    assert!(refused.stderr.contains("dtype: bf16"), "{}", refused.stderr);
}
