//! Checks of generated texts: every recall repeats a stated fact, and the splits share no fact.

use std::collections::{BTreeSet, HashSet};

use fastrand::Rng;

use super::facts::{Size, World};
use super::forms::forms;
use super::words::{CALLS, MATERIALS, PRODUCTS, SIGNS, THINGS, TOWNS, TRADES};
use super::*;

fn lessons_of(split: Split, characters: usize, drills: u32) -> impl Iterator<Item = Text> {
    let plan = Plan { characters, variety: usize::MAX, farthest: 1000 };
    lessons(split, 3, 60, plan, drills)
}

#[test]
fn every_form_names_its_subject_before_its_value() {
    for kind in Kind::OF_PEOPLE.into_iter().chain(Kind::OF_TOWNS) {
        let forms = forms(kind);
        assert!(!forms.told.is_empty() && !forms.said.is_empty() && !forms.asked.is_empty());
        let questions =
            forms.asked.iter().map(|(question, before, after)| format!("{question}{before}{{V}}{after}"));
        for form in forms.told.iter().chain(forms.said).map(|form| form.to_string()).chain(questions) {
            let slots: Vec<&str> = form.split('{').skip(1).map(|rest| rest.split_once('}').unwrap().0).collect();
            let value = slots.iter().position(|slot| *slot == "V").unwrap();
            assert!(slots[..value].iter().any(|slot| ["S", "S's", "N", "N's"].contains(slot)), "{form}");
            for slot in slots {
                assert!(
                    ["S", "S's", "N", "N's", "V", "R", "he", "He", "his", "His", "him"].contains(&slot),
                    "{form}"
                );
            }
        }
    }
}

#[test]
fn a_fits_before_every_value() {
    let vowel = |word: &&str| word.starts_with(['a', 'e', 'i', 'o', 'u']);
    assert_eq!(TRADES.iter().chain(&MATERIALS).find(|word| vowel(word)), None);
}

#[test]
fn no_two_values_of_a_kind_are_the_same() {
    for list in [&TOWNS[..], &TRADES, &MATERIALS, &THINGS, &CALLS, &PRODUCTS, &SIGNS] {
        assert_eq!(list.iter().collect::<HashSet<_>>().len(), list.len());
    }
}

#[test]
fn what_is_asked_was_told() {
    let texts: Vec<Text> = books(Split::Test, 2, 3)
        .chain(lessons_of(Split::Train, 6000, 0))
        .chain(lessons_of(Split::Train, 900, 100))
        .collect();
    let mut recalls = 0;
    for Text { name, text, recalls: asked } in &texts {
        for recall in asked {
            let answer = &text[recall.answer.clone()];
            assert!(recall.told < recall.answer.start, "{name}");
            if recall.kind == "unanswerable" {
                assert_eq!(answer, "unanswerable");
                continue;
            }
            let told = &text[..recall.told];
            // At the start of a sentence an answer has a capital letter.
            let before = &told[told.len() - answer.len()..];
            assert!(before.eq_ignore_ascii_case(answer), "{name}: told {before}, asked {answer}");
            assert!(recall.choices >= 1);
            recalls += 1;
        }
        assert!(asked.is_sorted_by_key(|recall| recall.answer.start));
        for bad in ["{", "}", "  ", "\n\n\n", " .", "..", " ,", "\" \"", ",,"] {
            assert!(!text.contains(bad), "{name} contains {bad:?}");
        }
        // A letter opens a quotation in each of its three paragraphs, and closes one in the last.
        assert!(text.matches('"').count().is_multiple_of(2), "{name}: a quotation is open");
    }
    assert!(recalls > 3000, "{recalls}");
}

#[test]
fn no_fact_is_told_in_both_splits() {
    let facts = |split| -> BTreeSet<(String, Kind, &'static str, String)> {
        let mut rng = Rng::with_seed(7);
        let mut all = BTreeSet::new();
        for _ in 0..3000 {
            let size = Size { people: 8, each: 5, towns: 3, alike: false };
            let mut world = World::new(&mut rng, split, size);
            // What an event makes true belongs to the split too.
            for fact in 0..world.facts.len() {
                let old = world.facts[fact].clone();
                if let Some(value) = world.draw(&mut rng, old.subject, old.kind, old.noun) {
                    world.facts.push(facts::Fact { value, ..old });
                }
            }
            all.extend(
                world
                    .facts
                    .iter()
                    .map(|fact| (world.name(fact.subject), fact.kind, fact.noun, fact.value.clone())),
            );
        }
        all
    };
    let (train, test) = (facts(Split::Train), facts(Split::Test));
    assert!(train.len() > 100_000 && test.len() > 30_000, "{} {}", train.len(), test.len());
    assert_eq!(train.intersection(&test).next(), None);
}

#[test]
fn books_ask_over_every_distance_and_are_long_enough() {
    for book in books(Split::Test, EMBEDDED_SEED, 4) {
        assert!(book.text.len() >= LONG, "{}", book.name);
        for octave in [32, 64, 128, 256, 512, 1024, 2048] {
            let asked = book.recalls.iter().filter(|recall| {
                let tokens = (recall.answer.start - recall.told) as f64 / teller::CHARACTERS_PER_TOKEN;
                (f64::from(octave)..2.0 * f64::from(octave)).contains(&tokens)
            });
            let asked = asked.count();
            assert!(asked >= 4, "{}: {asked} recalls from {octave} tokens on", book.name);
        }
    }
}

#[test]
fn articles_answer_their_questions_unless_they_cannot() {
    let articles: Vec<Article> = articles(Split::Test, 1, 6, 12).collect();
    let questions: Vec<(&Article, &Question)> = articles
        .iter()
        .flat_map(|article| article.questions.iter().map(move |question| (article, question)))
        .collect();
    let unanswerable = questions.iter().filter(|(_, question)| question.kind == "unanswerable").count();
    assert!((5..40).contains(&unanswerable), "{unanswerable} of {}", questions.len());
    for (article, question) in questions {
        assert!(question.question.ends_with('?') && !question.question.contains('{'));
        let told = article.text.to_lowercase().contains(&question.answers[0].to_lowercase());
        assert_eq!(told, question.kind != "unanswerable", "{question:?}");
    }
}

#[test]
fn stories_have_different_summaries() {
    for story in stories(Split::Test, 1, 3, 4) {
        assert_eq!(story.questions.len(), 4);
        for asked in &story.questions {
            assert_eq!(asked.summaries.len(), 4);
            assert_eq!(asked.summaries.iter().collect::<HashSet<_>>().len(), 4, "{asked:?}");
            assert!(asked.summaries.iter().all(|summary| summary.ends_with('.') && !summary.contains('\n')));
        }
    }
}

/// freeze.sh wrote the files with these numbers of texts and questions.
#[test]
fn the_embedded_files_hold_the_texts_of_the_embedded_seed() {
    same_as_embedded("books", books(Split::Test, EMBEDDED_SEED, 64));
    same_as_embedded("quizzes", quizzes(Split::Test, EMBEDDED_SEED, 64));
    same_as_embedded("articles", articles(Split::Test, EMBEDDED_SEED, 64, 1000));
    same_as_embedded("stories", stories(Split::Test, EMBEDDED_SEED, 64, 1000));
    same_as_embedded("prompts", prompts(EMBEDDED_SEED, 1000));
}

fn same_as_embedded<T: serde::Serialize>(name: &str, texts: impl Iterator<Item = T>) {
    // From the folder of this package, where cargo runs its tests: a path of the build may be that of another checkout.
    let file = std::fs::File::open(format!("../../datasets/embedded/{name}.jsonl.zst")).unwrap();
    let frozen = String::from_utf8(zstd::decode_all(file).unwrap()).unwrap();
    let generated: String = texts.map(|text| serde_json::to_string(&text).unwrap() + "\n").collect();
    assert!(frozen == generated, "{name} differs from what the generator makes");
}

#[test]
fn asking_fewer_questions_changes_neither_text_nor_questions() {
    let [few, all] = [3, 1000].map(|questions| articles(Split::Test, 1, 4, questions).collect::<Vec<_>>());
    for (few, all) in few.iter().zip(&all) {
        assert_eq!((&few.text, &few.questions[..]), (&all.text, &all.questions[..3]));
    }
    let [few, all] = [3, 1000].map(|questions| stories(Split::Test, 1, 4, questions).collect::<Vec<_>>());
    for (few, all) in few.iter().zip(&all) {
        assert_eq!((&few.text, &few.questions[..]), (&all.text, &all.questions[..3]));
    }
}
