//! Spelling advice: which known name was probably meant.
//!
//! Knows strings only; the hints of configuration errors are made from it.

/// No name is nearly as long; comparing takes time by the product of two lengths.
const LONGEST: usize = 200;

/// The known names within a third of `word`'s length in typing slips, nearest first, three at most.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let length = word.chars().count();
    if length > LONGEST {
        return Vec::new();
    }
    let allowed = (length / 3).max(1);
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (slips(&word.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    near.sort();
    near.truncate(3);
    near.into_iter().map(|(_, name)| name).collect()
}

/// "did you mean `a` or `b`? " for the nearest names, nothing when none is near.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = nearest(word, known).into_iter().map(|name| format!("`{name}`")).collect();
    if quoted.is_empty() { String::new() } else { format!("did you mean {}? ", quoted.join(" or ")) }
}

/// Edit distance where inserting, deleting, replacing a letter and swapping two neighbours cost one each.
fn slips(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = above;
        above = row;
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted_by_hand() {
        for (a, b, expected) in
            [("", "", 0), ("tova", "tova", 0), ("toav", "tova", 1), ("polices", "policies", 1), ("", "abc", 3)]
        {
            assert_eq!(slips(a, b), expected, "{a} {b}");
            assert_eq!(slips(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn only_near_names_are_offered() {
        let known = ["window", "tova", "tova-head", "h2o"];
        assert_eq!(nearest("widow", known), ["window"]);
        assert_eq!(nearest("TOVA", known), ["tova"]);
        assert!(nearest("snapkv", known).is_empty());
        assert_eq!(did_you_mean("toav", known), "did you mean `tova`? ");
    }
}
