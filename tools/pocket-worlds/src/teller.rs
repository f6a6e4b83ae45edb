//! Writes facts into a text, records where each was stated, and chooses which facts to repeat.
//!
//! Distances of repetition are drawn on a logarithmic scale, so that every octave of distance has recalls.

use std::collections::{HashMap, HashSet};

use fastrand::Rng;

use super::facts::{Fact, Kind, Subject, World};
use super::forms::forms;
use super::{Recall, Text};

/// Characters to a token of the pocket model's tokenizer in these texts, roughly: distances are planned in
/// characters.
pub(super) const CHARACTERS_PER_TOKEN: f64 = 3.7;

/// Recalls are planned for distances from so many tokens on.
const NEAREST: f64 = 16.0;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    Narrator,
    /// Somebody in the world, in the present tense.
    Somebody,
}

pub(super) struct Teller {
    pub world: World,
    pub rng: Rng,
    pub text: String,
    pub recalls: Vec<Recall>,
    /// Only the first so many forms of a kind are used.
    variety: usize,
    /// Tokens after which facts come up again, at most.
    farthest: f64,
    told: HashMap<usize, usize>,
    values: HashMap<Kind, HashSet<String>>,
    known: HashSet<Subject>,
    /// Whom a pronoun at the start of the next sentence would mean.
    subject: Option<Subject>,
    /// A quotation has just been opened: what follows stands close to it.
    opened: bool,
    /// Lines not used since each list was shuffled last, by the list's address.
    decks: HashMap<usize, Vec<&'static str>>,
}

impl Teller {
    pub(super) fn new(world: World, rng: Rng, variety: usize, farthest: usize) -> Teller {
        Teller {
            world,
            rng,
            text: String::new(),
            recalls: Vec::new(),
            variety,
            farthest: farthest as f64,
            told: HashMap::new(),
            values: HashMap::new(),
            known: HashSet::new(),
            subject: None,
            opened: false,
            decks: HashMap::new(),
        }
    }

    pub(super) fn finish(self, name: String) -> Text {
        Text { name, text: self.text.trim_end().to_string(), recalls: self.recalls }
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    /// Starts a new paragraph: no pronoun reaches across.
    pub(super) fn paragraph(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push_str("\n\n");
        }
        self.subject = None;
    }

    /// Appends words that tell no fact, after a space unless a line or a quotation starts.
    pub(super) fn say(&mut self, words: &str) {
        self.space();
        self.text.push_str(words);
    }

    /// Says that the words just written were about somebody: the next sentence may start with a pronoun.
    pub(super) fn was_about(&mut self, subject: Subject) {
        self.subject = Some(subject);
    }

    /// Opens a quotation.
    pub(super) fn open(&mut self) {
        self.space();
        self.text.push('"');
        self.opened = true;
        self.subject = None;
    }

    /// Goes on in the quotation that has just ended, or opens another if somebody was named after it.
    pub(super) fn reopen(&mut self) {
        match self.text.ends_with('"') {
            true => drop(self.text.pop()),
            false => self.open(),
        }
    }

    /// Closes a quotation and says whose it was: a full stop at its end becomes a comma before ` said ...`.
    pub(super) fn close(&mut self, by: &str) {
        if !by.is_empty() && self.text.ends_with('.') {
            self.text.pop();
            self.text.push(',');
        }
        self.text.push('"');
        self.text.push_str(by);
        self.opened = false;
        self.subject = None;
    }

    fn space(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with(['\n', ' ']) && !self.opened {
            self.text.push(' ');
        }
        self.opened = false;
    }

    /// A line of a list, no line again before all have been used.
    pub(super) fn line(&mut self, list: &'static [&'static str]) -> &'static str {
        let deck = self.decks.entry(list.as_ptr().addr()).or_default();
        if deck.is_empty() {
            deck.extend_from_slice(list);
            self.rng.shuffle(deck);
        }
        deck.pop().expect("no list is empty: a test reads them all")
    }

    /// Whether a fact has been told.
    pub(super) fn is_told(&self, fact: usize) -> bool {
        self.told.contains_key(&fact)
    }

    /// Facts told before, to be told again: for each a distance is drawn, more often far than near, and the fact taken
    /// that was told about so far back.
    pub(super) fn recall(&mut self, count: usize) -> Vec<usize> {
        let here = self.text.len();
        let mut facts: Vec<usize> = Vec::new();
        for _ in 0..count {
            let octaves = (self.farthest / NEAREST).max(1.0).ln() * self.rng.f64().powf(0.7);
            let wanted = (NEAREST * octaves.exp() * CHARACTERS_PER_TOKEN).min(here as f64);
            let off = |told: usize| ((here - told).max(1) as f64 / wanted).ln().abs();
            let nearest = (0..self.world.facts.len())
                .filter(|fact| !facts.contains(fact))
                .filter_map(|fact| self.told.get(&fact).map(|told| (off(*told), fact)))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            facts.extend(nearest.map(|(_, fact)| fact));
        }
        facts
    }

    /// The name in a running text: in full the first time and now and then, else the first name.
    pub(super) fn name(&mut self, subject: Subject) -> String {
        let first_time = self.known.insert(subject);
        match subject {
            Subject::Person(person) if !first_time && !self.chance(12) => {
                self.world.people[person].first.to_string()
            }
            _ => self.world.name(subject),
        }
    }

    /// Tells a fact in a sentence of its own.
    pub(super) fn tell(&mut self, fact: usize, voice: Voice) {
        let Fact { kind, subject, .. } = self.world.facts[fact];
        let all = match voice {
            Voice::Narrator => forms(kind).told,
            Voice::Somebody => forms(kind).said,
        };
        let form = self.one(&all[..all.len().min(self.variety)]);
        self.space();
        let pronoun = self.subject == Some(subject) && self.variety > 2 && self.chance(75);
        self.write(form, fact, pronoun);
        self.subject = Some(subject);
    }

    /// Tells a fact in the given form.
    pub(super) fn note(&mut self, form: &str, fact: usize) {
        self.space();
        self.write(form, fact, false);
    }

    /// Asks for a fact in one speech and answers in the next.
    pub(super) fn ask(&mut self, fact: usize, asked_by: &str, answered_by: &str) {
        let all = forms(self.world.facts[fact].kind).asked;
        let (question, before, after) = self.one(&all[..all.len().min(self.variety)]);
        self.open();
        self.opened = false;
        self.write(question, fact, false);
        self.close(asked_by);
        self.paragraph();
        self.open();
        self.opened = false;
        self.answer(fact, before, after);
        self.text.push('.');
        self.close(answered_by);
    }

    /// Writes an answer, with a capital letter.
    pub(super) fn answer(&mut self, fact: usize, before: &str, after: &str) {
        let start = self.text.len();
        self.write(&format!("{before}{{V}}{after}"), fact, false);
        let first = self.text.remove(start);
        self.text.insert(start, first.to_ascii_uppercase());
    }

    /// A question about a fact as a reader would put it, and what may stand before and after the value in its answer.
    pub(super) fn question(&mut self, fact: usize) -> (String, (&'static str, &'static str)) {
        let Fact { subject, noun, kind, .. } = self.world.facts[fact];
        let (question, before, after) = self.one(forms(kind).asked);
        // A short answer is a phrase, not a sentence.
        let before = if before.contains('{') { "a " } else { before };
        (self.asked_of(question, subject, noun), (before, after))
    }

    /// A question of the forms, about a subject by its full name.
    pub(super) fn asked_of(&self, question: &str, subject: Subject, noun: &str) -> String {
        let name = self.world.name(subject);
        let woman = matches!(subject, Subject::Person(person) if self.world.people[person].woman);
        let question = question.replace("{his}", if woman { "her" } else { "his" });
        question.replace("{N's}", &format!("{name}'s")).replace("{N}", &name).replace("{R}", noun)
    }

    /// Puts words before all that was written.
    pub(super) fn precede(&mut self, words: &str) {
        self.text.insert_str(0, words);
        for recall in &mut self.recalls {
            recall.told += words.len();
            recall.answer = recall.answer.start + words.len()..recall.answer.end + words.len();
        }
        self.told.values_mut().for_each(|told| *told += words.len());
    }

    /// Writes a form, and what it asks of the reader.
    pub(super) fn write(&mut self, form: &str, fact: usize, pronoun: bool) {
        let Fact { kind, subject, noun, value, changed } = self.world.facts[fact].clone();
        let woman = matches!(subject, Subject::Person(person) if self.world.people[person].woman);
        let mut rest = form;
        while let Some(open) = rest.find('{') {
            let close =
                open + rest[open..].find('}').expect("every brace of a form is closed: a test reads them all");
            self.text.push_str(&rest[..open]);
            let choose = |she: &'static str, he: &'static str| if woman { she } else { he };
            match &rest[open + 1..close] {
                "S" if pronoun => self.text.push_str(choose("She", "He")),
                "S's" if pronoun => self.text.push_str(choose("Her", "His")),
                "S" | "N" => {
                    let name = self.name(subject);
                    self.text.push_str(&name);
                }
                "F" => match subject {
                    Subject::Person(person) => self.text.push_str(self.world.people[person].first),
                    Subject::Town(town) => self.text.push_str(self.world.towns[town]),
                },
                "S's" | "N's" => {
                    let name = self.name(subject);
                    self.text.push_str(&name);
                    self.text.push_str("'s");
                }
                "R" => self.text.push_str(noun),
                "he" => self.text.push_str(choose("she", "he")),
                "He" => self.text.push_str(choose("She", "He")),
                "his" => self.text.push_str(choose("her", "his")),
                "His" => self.text.push_str(choose("Her", "His")),
                "him" => self.text.push_str(choose("her", "him")),
                "V" => self.value(fact, kind, &value, changed),
                _ => unreachable!("a test reads every form"),
            }
            rest = &rest[close + 1..];
        }
        self.text.push_str(rest);
    }

    fn value(&mut self, fact: usize, kind: Kind, value: &str, changed: bool) {
        let answer = self.text.len()..self.text.len() + value.len();
        self.text.push_str(value);
        let values = self.values.entry(kind).or_default();
        if let Some(told) = self.told.get(&fact) {
            self.recalls.push(Recall {
                kind: if changed { kind.name_after_change() } else { kind.name() },
                told: *told,
                answer: answer.clone(),
                choices: values.len().max(1) as u32,
            });
        }
        values.insert(value.to_string());
        self.told.insert(fact, answer.end);
    }

    /// Gives a fact a new value, which the text has still to tell: `false` if chance finds none.
    pub(super) fn change(&mut self, fact: usize) -> bool {
        let Fact { kind, subject, noun, .. } = self.world.facts[fact];
        match self.world.draw(&mut self.rng, subject, kind, noun) {
            Some(value) => {
                self.world.facts[fact].value = value;
                self.world.facts[fact].changed = true;
                self.told.remove(&fact);
                true
            }
            None => false,
        }
    }
}
