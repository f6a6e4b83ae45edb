//! Arithmetic word problems, made in the program: their answers follow from the numbers drawn.

use anyhow::Result;
use fastrand::Rng;
use serde_json::json;

use crate::task::benchmark::Rows;

const NAMES: [&str; 8] = ["Mara", "Hester", "Wren", "Petra", "Jonas", "Ned", "Otto", "Silas"];

/// The first `count` problems, each from its number as the seed, as rows.
///
/// # Errors
/// None: each is an object.
pub fn problems(count: usize) -> Result<Rows> {
    let mut rows = Rows::default();
    for number in 0..count {
        let name = format!("arithmetic-{number:02}");
        let (subject, level, text, answer) = problem(number);
        let row = json!({"name": name, "problem": text, "answer": answer, "subject": subject, "level": level});
        rows.add(row, name)?;
    }
    Ok(rows)
}

fn problem(number: usize) -> Parts {
    // Seeds far apart, as the first draws of neighbours are alike.
    let mut rng = Rng::with_seed((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let name = NAMES[rng.usize(..NAMES.len())];
    match number % 5 {
        0 => sum(&mut rng, name),
        1 => change(&mut rng, name),
        2 => distance(&mut rng),
        3 => border(&mut rng, name),
        _ => rest(&mut rng, name),
    }
}

/// Subject, level (the number of steps), text and answer.
type Parts = (&'static str, &'static str, String, String);

fn sum(rng: &mut Rng, name: &str) -> Parts {
    let (own, bags, each) = (rng.u32(2..40), rng.u32(2..6), rng.u32(3..10));
    let text = format!(
        "{name} has {own} apples and buys {bags} bags with {each} apples each. How many apples does {name} have now?"
    );
    ("sums", "2", text, (own + bags * each).to_string())
}

fn change(rng: &mut Rng, name: &str) -> Parts {
    let (books, price) = (rng.u32(2..10), rng.u32(3..10));
    let paid = books * price + rng.u32(1..15);
    let text = format!(
        "{name} buys {books} books for {price} dollars each and pays with {paid} dollars. How many dollars of change \
         does {name} get?"
    );
    ("money", "2", text, (paid - books * price).to_string())
}

fn distance(rng: &mut Rng) -> Parts {
    let (fast, hours) = (5 * rng.u32(8..20), rng.u32(2..7));
    let (slow, more) = (5 * rng.u32(2..8), rng.u32(2..7));
    let text = format!(
        "A train runs {hours} hours at {fast} kilometres an hour, and then {more} more hours at {slow} kilometres an \
         hour. How many kilometres is that?"
    );
    ("motion", "3", text, (fast * hours + slow * more).to_string())
}

fn border(rng: &mut Rng, name: &str) -> Parts {
    let (long, wide, price) = (rng.u32(6..20), rng.u32(2..6), rng.u32(2..5));
    let text = format!(
        "{name}'s garden is a rectangle of {long} by {wide} metres. A fence costs {price} dollars a metre. How many \
         dollars does a fence around the whole garden cost?"
    );
    ("geometry", "3", text, (2 * (long + wide) * price).to_string())
}

fn rest(rng: &mut Rng, name: &str) -> Parts {
    let (a, b) = (rng.u32(2..7), rng.u32(7..20));
    let text = format!(
        "{name} eats $\\frac{{1}}{{{a}}}$ of a cake, and a friend eats $\\frac{{1}}{{{b}}}$ of the whole cake. What \
         fraction of the cake is left?"
    );
    ("fractions", "3", text, format!("\\frac{{{}}}{{{}}}", a * b - a - b, a * b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of a text, in order.
    fn numbers(text: &str) -> Vec<i64> {
        let parts = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
        parts.map(|part| part.parse().unwrap()).collect()
    }

    #[test]
    fn answers_follow_from_the_texts() {
        let problems = problems(64).unwrap().rows;
        let of = |number: usize, key: &str| problems[number][key].as_str().unwrap();
        for number in 0..problems.len() {
            let [name, text, answer] = ["name", "problem", "answer"].map(|key| of(number, key));
            let expected = match (number % 5, &numbers(text)[..]) {
                (0, [own, bags, each]) => vec![own + bags * each],
                (1, [books, price, paid]) => vec![paid - books * price],
                (2, [hours, fast, more, slow]) => vec![hours * fast + more * slow],
                (3, [long, wide, price]) => vec![(long + wide) * 2 * price],
                (4, [1, a, 1, b]) => vec![a * b - a - b, a * b],
                (_, other) => panic!("{name}: {other:?}"),
            };
            assert_eq!(numbers(answer), expected, "{text}");
            assert!(expected.iter().all(|part| *part > 0), "{text}");
        }
        let mut texts: Vec<&str> = (0..problems.len()).map(|number| of(number, "problem")).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 64);
    }
}
