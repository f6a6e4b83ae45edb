//! Stories: they introduce people and towns first, then repeat, ask about and change those facts chapter by chapter.

use fastrand::Rng;

use super::facts::{Kind, Size, Split, Subject, World};
use super::scenery::{
    AFTERTHOUGHTS, ARRIVALS, ASKED, FAREWELLS, GESTURES, INTRODUCTIONS, JOURNEYS, LETTERS, LOSSES, MOVES, OPENERS,
    OPENINGS, REGARDS, REMARKS, REMOVALS, SAID, THOUGHTS, TIMES, WEATHERS,
};
use super::teller::{Teller, Voice};
use super::words::in_letters;

/// Length and style of a text.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Length in characters; a text may be longer by less than a scene.
    pub characters: usize,
    /// How many ways of stating each kind of fact are used; 0: only notes that put values next to names.
    pub variety: usize,
    /// Longest planned distance until a fact is repeated, in tokens.
    pub farthest: usize,
}

/// A story with as many people and towns as `size` says.
pub(super) fn tell(rng: &mut Rng, split: Split, size: Size, plan: Plan) -> Teller {
    let world = World::new(rng, split, size);
    let mut teller = Teller::new(world, rng.fork(), plan.variety, plan.farthest);
    let hero = teller.rng.usize(..teller.world.people.len());
    let mut tale = Tale { teller, hero, chapter: 0 };
    tale.beginning();
    while tale.teller.text.len() < plan.characters {
        tale.chapter(plan.characters);
    }
    tale.teller
}

struct Tale {
    teller: Teller,
    /// The person who goes about and asks.
    hero: usize,
    chapter: usize,
}

impl Tale {
    fn heading(&mut self) {
        self.chapter += 1;
        self.teller.paragraph();
        let number = in_letters(self.chapter).to_uppercase();
        self.teller.say(&format!("CHAPTER {number}"));
        self.teller.paragraph();
    }

    /// The title, the first chapter and with it nearly all facts.
    fn beginning(&mut self) {
        let hero = self.teller.world.people[self.hero].clone();
        let title = match self.teller.rng.usize(..4) {
            0 => format!("THE NOTEBOOK OF {}", hero.full().to_uppercase()),
            1 => format!("{} AND THE NEIGHBOURS", hero.full().to_uppercase()),
            2 => format!("WHAT {} WROTE DOWN", hero.full().to_uppercase()),
            _ => format!(
                "THE PEOPLE OF {}",
                self.teller.world.towns.first().unwrap_or(&"THE VALLEY").to_uppercase()
            ),
        };
        self.teller.say(&title);
        self.heading();
        self.scenery(OPENINGS, self.hero);
        let mut order: Vec<Subject> = (0..self.teller.world.people.len()).map(Subject::Person).collect();
        self.teller.rng.shuffle(&mut order);
        for subject in order.drain(..) {
            self.teller.paragraph();
            if let (Subject::Person(person), true) = (subject, self.teller.chance(50)) {
                self.scenery(INTRODUCTIONS, person);
            }
            self.introduce(subject);
        }
        if !self.teller.world.towns.is_empty() {
            self.teller.paragraph();
            self.teller.say("Something must be said of the towns.");
            (0..self.teller.world.towns.len()).for_each(|town| self.introduce(Subject::Town(town)));
        }
    }

    fn introduce(&mut self, subject: Subject) {
        let mut facts = self.teller.world.facts_of(subject);
        self.teller.rng.shuffle(&mut facts);
        for fact in facts {
            self.teller.tell(fact, Voice::Narrator);
            if self.teller.chance(12) {
                let line = self.teller.line(AFTERTHOUGHTS);
                self.teller.say(line);
            }
        }
    }

    fn chapter(&mut self, characters: usize) {
        self.heading();
        self.weather();
        self.scenery(ARRIVALS, self.hero);
        let scenes = self.teller.rng.usize(3..7);
        for _ in 0..scenes {
            if self.teller.text.len() >= characters {
                return;
            }
            match self.teller.rng.usize(..20) {
                0..3 => self.visit(),
                3..6 => self.thinking(),
                6..14 => self.talk(),
                14..17 => self.letter(),
                17..19 => self.remembering(),
                _ => self.news(),
            }
        }
        self.teller.paragraph();
        self.scenery(FAREWELLS, self.hero);
    }

    fn weather(&mut self) {
        let (time, weather) = (self.teller.line(TIMES), self.teller.line(WEATHERS));
        self.teller.say(&format!("{time} {weather}."));
    }

    /// A line of a list, about a person.
    fn scenery(&mut self, list: &'static [&'static str], person: usize) {
        let line = self.teller.line(list);
        let filled = self.filled(line, person);
        self.teller.say(&filled);
        if line.contains("{A}") {
            self.teller.was_about(Subject::Person(person));
        }
    }

    fn filled(&mut self, line: &str, person: usize) -> String {
        if !line.contains('{') {
            return line.to_string();
        }
        let name = self.teller.name(Subject::Person(person));
        let woman = self.teller.world.people[person].woman;
        let (he, his) = if woman { ("she", "her") } else { ("he", "his") };
        line.replace("{A}", &name).replace("{he}", he).replace("{his}", his)
    }

    /// Facts to come up again, those of one subject together.
    fn take(&mut self, count: usize) -> Vec<usize> {
        let mut facts = self.teller.recall(count);
        facts.sort_by_key(|fact| match self.teller.world.facts[*fact].subject {
            Subject::Person(person) => person,
            Subject::Town(town) => 1000 + town,
        });
        facts
    }

    /// Two people of whom none of these facts is told, if there are such.
    fn speakers(&mut self, facts: &[usize]) -> (usize, usize) {
        let mut people: Vec<usize> = (0..self.teller.world.people.len()).collect();
        self.teller.rng.shuffle(&mut people);
        let spoken_of = |person: &usize| {
            facts.iter().any(|fact| self.teller.world.facts[*fact].subject == Subject::Person(*person))
        };
        people.sort_by_key(spoken_of);
        (people[0], *people.get(1).unwrap_or(&people[0]))
    }

    /// The narrator goes over some facts.
    fn remembering(&mut self) {
        self.teller.paragraph();
        self.weather();
        let count = self.teller.rng.usize(2..5);
        for fact in self.take(count) {
            self.teller.tell(fact, Voice::Narrator);
            if self.teller.chance(25) {
                let line = self.teller.line(AFTERTHOUGHTS);
                self.teller.say(line);
            }
        }
    }

    /// The hero goes to see somebody at home.
    fn visit(&mut self) {
        let count = self.teller.rng.usize(6..12);
        let facts = self.teller.recall(count);
        let home = facts.iter().find(|fact| {
            let fact = &self.teller.world.facts[**fact];
            fact.kind == Kind::Home && fact.subject != Subject::Person(self.hero)
        });
        let Some(home) = home.copied() else { return self.remembering() };
        let Subject::Person(host) = self.teller.world.facts[home].subject else { return };
        self.teller.paragraph();
        self.teller.tell(home, Voice::Narrator);
        self.scenery(JOURNEYS, self.hero);
        self.scenery(GESTURES, host);
        for fact in facts {
            if fact != home && self.teller.world.facts[fact].subject == Subject::Person(host) {
                self.teller.tell(fact, Voice::Narrator);
            }
        }
        if self.teller.chance(50) {
            self.scenery(GESTURES, host);
        }
    }

    fn thinking(&mut self) {
        self.teller.paragraph();
        self.scenery(THOUGHTS, self.hero);
        let count = self.teller.rng.usize(2..6);
        for fact in self.take(count) {
            self.teller.tell(fact, Voice::Narrator);
        }
        if self.teller.chance(50) {
            self.scenery(GESTURES, self.hero);
        }
    }

    /// Two people talk about others, in questions and answers and without.
    fn talk(&mut self) {
        let count = self.teller.rng.usize(2..5);
        let facts = self.take(count);
        let (one, two) = self.speakers(&facts);
        if self.teller.chance(40) {
            self.teller.paragraph();
            self.scenery(GESTURES, one);
        }
        if self.teller.chance(40) {
            self.teller.paragraph();
            let (opener, said) = (self.teller.line(OPENERS), self.teller.line(SAID));
            let said = self.filled(said, one);
            self.teller.open();
            self.teller.say(opener);
            self.teller.close(if opener.ends_with('?') { "" } else { &said });
        }
        for fact in facts {
            self.teller.paragraph();
            let (asker, teller) = if self.teller.rng.bool() { (one, two) } else { (two, one) };
            if self.teller.chance(60) {
                let asked = self.teller.line(ASKED);
                let asked = self.filled(asked, asker);
                let said = self.teller.line(SAID);
                let said = self.filled(said, teller);
                self.teller.ask(fact, &asked, &said);
            } else {
                let said = self.teller.line(SAID);
                let said = self.filled(said, teller);
                self.teller.open();
                self.teller.tell(fact, Voice::Somebody);
                self.teller.close(&said);
            }
            if self.teller.chance(30) {
                let remark = self.teller.line(REMARKS);
                self.teller.reopen();
                self.teller.say(remark);
                self.teller.close("");
            }
        }
    }

    fn letter(&mut self) {
        let count = self.teller.rng.usize(2..6);
        let facts = self.take(count);
        let (from, to) = self.speakers(&facts);
        let (from, to) = (self.teller.world.people[from].first, self.teller.world.people[to].first);
        self.teller.paragraph();
        self.teller.say(&format!("\"Dear {to},"));
        self.teller.paragraph();
        self.teller.open();
        let line = self.teller.line(LETTERS);
        self.teller.say(line);
        for fact in facts {
            self.teller.tell(fact, Voice::Somebody);
        }
        if self.teller.chance(50) {
            let line = self.teller.line(REMARKS);
            self.teller.say(line);
        }
        self.teller.paragraph();
        let regards = self.teller.line(REGARDS);
        self.teller.open();
        self.teller.say(&format!("{regards}, {from}."));
        self.teller.close("");
    }

    /// Something that was true is true no longer.
    fn news(&mut self) {
        let facts = self.teller.world.facts.iter().enumerate();
        let open: Vec<usize> = facts
            .filter(|(number, fact)| {
                matches!(fact.kind, Kind::Home | Kind::Belonging) && self.teller.is_told(*number)
            })
            .map(|(number, _)| number)
            .collect();
        if open.is_empty() {
            return;
        }
        let fact = self.teller.one(&open);
        let kind = self.teller.world.facts[fact].kind;
        let Subject::Person(person) = self.teller.world.facts[fact].subject else { return };
        self.teller.paragraph();
        let line = self.teller.line(MOVES);
        let line = self.filled(line, person);
        self.teller.say(&line);
        let (old, new) = match kind {
            Kind::Home => self.teller.one(REMOVALS),
            _ => self.teller.one(LOSSES),
        };
        self.teller.say("");
        self.teller.write(old, fact, false);
        if self.teller.change(fact) {
            self.teller.say("");
            self.teller.write(new, fact, false);
        }
    }
}

/// What may stand between a name and a value in notes, the nearest first.
const BETWEEN: [&str; 5] = [" ", ": ", " has ", " lived in ", ", that is "];

/// The barest drill: names and values, one kind of fact, over and over.
pub(super) fn notes(rng: &mut Rng, split: Split, plan: Plan) -> Teller {
    let people = (plan.characters / 60).clamp(2, 24);
    let world = World::new(rng, split, Size { people, each: 1, towns: 0, alike: true });
    let mut teller = Teller::new(world, rng.fork(), 1, plan.farthest);
    let form = format!("{{F}}{}{{V}}.", teller.one(&BETWEEN));
    for fact in 0..teller.world.facts.len() {
        teller.note(&form, fact);
    }
    while !teller.world.facts.is_empty() && teller.text.len() < plan.characters {
        let fact = teller.rng.usize(..teller.world.facts.len());
        teller.note(&form, fact);
    }
    teller
}

/// A short drill: a few people introduced, then asked for, over and over.
pub(super) fn lesson(rng: &mut Rng, split: Split, size: Size, plan: Plan) -> Teller {
    let world = World::new(rng, split, size);
    let mut teller = Teller::new(world, rng.fork(), plan.variety, plan.farthest);
    let mut facts: Vec<usize> = (0..teller.world.facts.len()).collect();
    if plan.variety > 1 && teller.chance(50) {
        teller.rng.shuffle(&mut facts);
    }
    for fact in &facts {
        teller.tell(*fact, Voice::Narrator);
    }
    while !facts.is_empty() && teller.text.len() < plan.characters {
        // Any fact: in the order of distances the facts of a drill would come round like a rhyme.
        let fact = teller.one(&facts);
        match teller.rng.usize(..3) {
            0 => teller.tell(fact, Voice::Narrator),
            1 => teller.tell(fact, Voice::Somebody),
            _ => {
                teller.paragraph();
                teller.ask(fact, "", "");
                teller.paragraph();
            }
        }
    }
    teller
}
