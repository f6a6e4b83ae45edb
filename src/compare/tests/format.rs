//! Formats read back with other parsers, with hostile names and with many findings.

use super::*;

/// A hostile name.
const HOSTILE: &str = "</testcase><x a=\"1\">|`@everyone` \u{1b}[2J\u{0}\u{FFFF}]]> & **b**";

fn hostile(value: f64) -> Vec<Row> {
    changed(cell("nll", &[("a", "a", 2.0, 1.0), ("b", "b", 3.0, 1.0)]), |row| {
        row.value += value;
        (row.policy, row.model, row.dataset) = (HOSTILE.into(), HOSTILE.into(), HOSTILE.into());
        row.sample = format!("{HOSTILE}{}", row.sample).into();
    })
}

#[test]
fn hostile_names_break_no_format() {
    for options in [Options::default(), Options { exact: Some(1e-6), ..Options::default() }] {
        let found = compared(&hostile(0.0), &hostile(1.0), &options);
        let text = terminal(&found);
        assert!(!text.contains(['\u{1b}', '\0']) && text.contains("[2J"), "{text}");

        let file = markdown(&found);
        assert!(!file.contains("<x") && !file.contains("</testcase>") && !file.contains('\u{1b}'), "{file}");
        assert!(file.contains("@<!-- -->everyone"), "{file}");
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let table: Vec<usize> = file.lines().filter(|line| line.starts_with('|')).map(bars).collect();
        assert!(table.len() >= 3 && table.iter().all(|count| *count == table[0]), "{file}");

        let read: serde_json::Value = serde_json::from_str(&json(&found).unwrap()).unwrap();
        assert_eq!(read["points"][0]["policy"], HOSTILE);
    }
}

#[test]
fn markdown_stays_below_github_s_limit() {
    let many = |shift: f64| -> Vec<Row> {
        let one = cell("nll", &[("a", "a", 2.0 + shift, 1.0), ("b", "b", 3.0 + shift, 1.0)]);
        let of_size = |size: u32| {
            changed(one.clone(), |row| {
                (row.cache_size, row.cell) = (Some(size), size.to_string().into());
                row.policy = "<&|*_long_name".repeat(200).into();
            })
        };
        (1..500).flat_map(of_size).collect()
    };
    for exact in [None, Some(1e-6)] {
        let found = compared(&many(0.0), &many(1.0), &Options { exact, ..Options::default() });
        let file = markdown(&found);
        assert!(file.chars().count() < 65_536, "{}", file.chars().count());
        assert!(file.contains("more, which --json FILE names"), "{file}");
        assert!(terminal(&found).contains("more, which --json FILE names"));
    }
}
