//! The facts of one text: who lives where, does what, owns what. No fact of a training text is a fact of a test text.

use fastrand::Rng;

use super::words::{
    ANIMALS, BEASTS, CALLS, EITHER, KINSMEN, KINSWOMEN, MATERIALS, MEN, PRODUCTS, SIGNS, SURNAMES, THINGS, TOWNS,
    TRADES, WOMEN, in_letters,
};

/// Training and test texts share words, but no fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    Train,
    Test,
}

impl Split {
    /// The name in texts' names and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Test => "test",
        }
    }

    /// The split a fact belongs to: one in eight is a test fact (by the FNV-1a hash of its words).
    pub(super) fn of(subject: &str, relation: &str, value: &str) -> Split {
        let hash = fnv1a([subject, "\0", relation, "\0", value].iter().flat_map(|part| part.bytes()));
        if (hash ^ (hash >> 32)).is_multiple_of(8) { Split::Test } else { Split::Train }
    }
}

/// What a fact says of its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Home,
    Trade,
    Belonging,
    Age,
    Kin,
    Animal,
    Debt,
    Product,
    Inn,
}

impl Kind {
    /// What is told of people.
    pub(super) const OF_PEOPLE: [Kind; 7] =
        [Kind::Home, Kind::Trade, Kind::Belonging, Kind::Age, Kind::Kin, Kind::Animal, Kind::Debt];
    /// What is told of towns.
    pub(super) const OF_TOWNS: [Kind; 2] = [Kind::Product, Kind::Inn];

    /// The name in recalls.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Home => "home",
            Kind::Trade => "trade",
            Kind::Belonging => "belonging",
            Kind::Age => "age",
            Kind::Kin => "kin",
            Kind::Animal => "animal",
            Kind::Debt => "debt",
            Kind::Product => "product",
            Kind::Inn => "inn",
        }
    }

    /// The name in recalls once an event has changed the fact.
    pub(super) fn name_after_change(self) -> &'static str {
        match self {
            Kind::Home => "home, moved",
            Kind::Belonging => "belonging, replaced",
            other => other.name(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Person {
    pub first: &'static str,
    pub last: &'static str,
    pub woman: bool,
}

impl Person {
    pub(super) fn full(&self) -> String {
        format!("{} {}", self.first, self.last)
    }
}

/// Whom or what a fact is about: an index into the world's people or towns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Person(usize),
    Town(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Fact {
    pub subject: Subject,
    pub kind: Kind,
    /// The noun a form needs besides: the kinship, the animal's species.
    pub noun: &'static str,
    pub value: String,
    /// Whether an event has made it other than it was first told.
    pub changed: bool,
}

/// People, towns and what is true of them.
pub(super) struct World {
    pub split: Split,
    pub people: Vec<Person>,
    pub towns: Vec<&'static str>,
    pub facts: Vec<Fact>,
}

/// How large a world is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub people: usize,
    /// Facts told of each person.
    pub each: usize,
    pub towns: usize,
    /// Whether the same kinds of facts are told of all.
    pub alike: bool,
}

impl World {
    pub(super) fn new(rng: &mut Rng, split: Split, size: Size) -> World {
        let mut people: Vec<Person> = Vec::new();
        let women = pick(rng, &WOMEN, size.people.min(WOMEN.len()));
        let men = pick(rng, &MEN, size.people.min(MEN.len()));
        let surnames = pick(rng, &SURNAMES, size.people.min(SURNAMES.len()));
        for (number, last) in surnames.into_iter().enumerate() {
            let woman = rng.bool();
            people.push(Person { first: if woman { women[number] } else { men[number] }, last, woman });
        }
        let mut world = World { split, people, towns: pick(rng, &TOWNS, size.towns), facts: Vec::new() };
        let same = pick(rng, &Kind::OF_PEOPLE, size.each);
        for person in 0..world.people.len() {
            let mut kinds = if size.alike { same.clone() } else { pick(rng, &Kind::OF_PEOPLE, size.each) };
            kinds.sort();
            for kind in kinds {
                if kind != Kind::Kin || world.people.len() > 2 {
                    world.add(rng, Subject::Person(person), kind);
                }
            }
        }
        for town in 0..world.towns.len() {
            let kind = Kind::OF_TOWNS[rng.usize(..2)];
            world.add(rng, Subject::Town(town), kind);
        }
        world
    }

    /// The facts about a subject.
    pub(super) fn facts_of(&self, subject: Subject) -> Vec<usize> {
        (0..self.facts.len()).filter(|fact| self.facts[*fact].subject == subject).collect()
    }

    pub(super) fn name(&self, subject: Subject) -> String {
        match subject {
            Subject::Person(person) => self.people[person].full(),
            Subject::Town(town) => self.towns[town].to_string(),
        }
    }

    fn add(&mut self, rng: &mut Rng, subject: Subject, kind: Kind) {
        let noun = match (kind, subject) {
            (Kind::Animal, _) => ANIMALS[rng.usize(..ANIMALS.len())],
            // The relation names what the other person is to this one; who that is, is drawn with the value.
            (Kind::Kin, _) => {
                if rng.bool() {
                    KINSWOMEN[rng.usize(..6)]
                } else {
                    KINSMEN[rng.usize(..6)]
                }
            }
            _ => "",
        };
        if let Some(value) = self.draw(rng, subject, kind, noun) {
            self.facts.push(Fact { subject, kind, noun, value, changed: false });
        }
    }

    /// A value that nobody else in this world has, of this world's split; `None` if chance finds none.
    pub(super) fn draw(&self, rng: &mut Rng, subject: Subject, kind: Kind, noun: &str) -> Option<String> {
        let name = self.name(subject);
        (0..400).find_map(|_| {
            let value = match kind {
                // Half of the people live in towns of which something is told.
                Kind::Home if rng.bool() && !self.towns.is_empty() => rng.choice(&self.towns)?.to_string(),
                Kind::Home => rng.choice(TOWNS)?.to_string(),
                Kind::Trade => rng.choice(TRADES)?.to_string(),
                Kind::Belonging => format!("{} {}", rng.choice(MATERIALS)?, rng.choice(THINGS)?),
                Kind::Age => in_letters(rng.usize(18..90)),
                Kind::Kin => {
                    let other = rng.choice(&self.people)?;
                    let fits = other.full() != name
                        && (EITHER.contains(&noun) || other.woman == KINSWOMEN.contains(&noun));
                    if !fits {
                        return None;
                    }
                    other.first.to_string()
                }
                Kind::Animal => rng.choice(CALLS)?.to_string(),
                Kind::Debt => rng.usize(11..100).to_string(),
                Kind::Product => rng.choice(PRODUCTS)?.to_string(),
                Kind::Inn => format!("{} {}", rng.choice(SIGNS)?, rng.choice(BEASTS)?),
            };
            let taken = self.facts.iter().any(|fact| fact.kind == kind && fact.value == value);
            // Two may live in one town.
            let free = !taken || (kind == Kind::Home && rng.u8(..4) == 0);
            (free && Split::of(&name, &format!("{} {noun}", kind.name()), &value) == self.split).then_some(value)
        })
    }
}

/// The FNV-1a hash. It splits facts and turns names into seeds, so it must never change; the standard library's may.
pub(super) fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Some of a list, each once, in a random order.
pub(super) fn pick<T: Clone>(rng: &mut Rng, from: &[T], count: usize) -> Vec<T> {
    let mut all: Vec<T> = from.to_vec();
    rng.shuffle(&mut all);
    all.truncate(count);
    all
}
