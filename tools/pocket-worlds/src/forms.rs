//! Sentences that state a fact or ask for it.
//!
//! In a form `{S}` is the subject (a name, or He or She), `{S's}` the same as an owner, `{N}` and `{N's}` always a
//! name, `{V}` the value, `{R}` the noun beside it, `{he}`, `{his}`, `{him}` the subject's pronouns. The subject comes
//! before the value, so that whoever remembers the fact can tell the value from what stands before it.

use super::facts::Kind;

/// The ways to say one kind of fact.
pub(super) struct Forms {
    /// In the past tense, by the narrator.
    pub told: &'static [&'static str],
    /// In the present tense, by somebody.
    pub said: &'static [&'static str],
    /// Questions, and what comes before and after the value in the answer.
    pub asked: &'static [(&'static str, &'static str, &'static str)],
}

pub(super) fn forms(kind: Kind) -> &'static Forms {
    match kind {
        Kind::Home => &Forms {
            told: &[
                "{S} lived in {V}.",
                "{S's} house stood in {V}.",
                "{S} had made a home in {V}.",
                "{S} knew every door in {V}.",
                "Letters to {N} were sent to {V}.",
                "{S} was at home in {V}.",
                "{S} paid rent for two rooms in {V}.",
                "Whoever looked for {N} had to look in {V}.",
                "{S} slept badly anywhere but in {V}.",
                "{S} swept the same doorstep every morning in {V}.",
            ],
            said: &[
                "{S} lives in {V}.",
                "{S's} house is in {V}.",
                "You will find {N} in {V}.",
                "If you want {N}, go to {V}.",
                "{S} is at home in {V}.",
                "I visited {N} in {V}.",
                "{S} pays too much rent in {V}.",
            ],
            asked: &[
                ("Where does {N} live?", "In ", ""),
                ("Where is {N's} house?", "In ", ""),
                ("In which town does {N} live?", "In ", ""),
            ],
        },
        Kind::Trade => &Forms {
            told: &[
                "{S} was a {V}.",
                "{S} worked as a {V}.",
                "{S} earned {his} bread as a {V}.",
                "{S} had learned the trade of a {V}.",
                "{S} was proud to be a {V}.",
                "Everybody knew {N} as the {V}.",
                "{S} had the hands of a {V}.",
                "{S} never wanted to be anything but a {V}.",
            ],
            said: &[
                "{S} is a {V}.",
                "{S} works as a {V}.",
                "They say that {N} is a good {V}.",
                "{S} makes a living as a {V}.",
                "{S} was born to be a {V}.",
            ],
            asked: &[
                ("What is {N's} trade?", "{He} is a ", ""),
                ("What does {N} do for a living?", "{He} is a ", ""),
                ("What work does {N} do?", "{He} is a ", ""),
            ],
        },
        Kind::Belonging => &Forms {
            told: &[
                "{S} owned a {V}.",
                "{S's} only treasure was a {V}.",
                "{S} would not part with {his} {V}.",
                "On the shelf above {N's} bed lay a {V}.",
                "{S} was never seen without {his} {V}.",
                "{S} took good care of {his} {V}.",
                "{S} had once paid a great deal for {his} {V}.",
                "{S} unwrapped {his} {V}.",
            ],
            said: &[
                "{S} owns a {V}.",
                "{S} is fond of {his} {V}.",
                "I have seen {N} with {his} {V}.",
                "{S} would sell the roof before {his} {V}.",
                "{S} keeps a {V} under the bed.",
            ],
            asked: &[
                ("What does {N} own?", "A ", ""),
                ("What is {N's} treasure?", "A ", ""),
                ("What would {N} never part with?", "{His} ", ""),
            ],
        },
        Kind::Age => &Forms {
            told: &[
                "{S} was {V} years old.",
                "{S} had turned {V} that spring.",
                "{S} gave {his} age as {V}.",
                "{S} did not look {V}.",
                "{S} had seen {V} winters.",
                "{S} was {V}, and told everybody who asked.",
                "{S} carried {his} {V} years lightly.",
            ],
            said: &[
                "{S} is {V} years old.",
                "{S} turned {V} in spring.",
                "{S's} age is {V}.",
                "{S} says that {he} is {V}.",
            ],
            asked: &[
                ("How old is {N}?", "", ""),
                ("What is {N's} age?", "", ""),
                ("How many years has {N} lived?", "", ""),
            ],
        },
        Kind::Kin => &Forms {
            told: &[
                "{S's} {R} was {V}.",
                "{S} had a {R}, and that was {V}.",
                "{S} often thought of {his} {R} {V}.",
                "{S} had quarrelled long ago with {his} {R} {V}.",
                "{S} wrote every month to {his} {R} {V}.",
                "{S} had once lent money to {his} {R} {V}.",
            ],
            said: &[
                "{S's} {R} is {V}.",
                "{S} is a little like {his} {R} {V}.",
                "{S} talks of nobody but {his} {R} {V}.",
                "{S} trusts only {his} {R} {V}.",
            ],
            asked: &[
                ("Who is {N's} {R}?", "", ""),
                ("What is the name of {N's} {R}?", "", ""),
                ("To whom does {N} write as {his} {R}?", "To ", ""),
            ],
        },
        Kind::Animal => &Forms {
            told: &[
                "{S's} {R} was called {V}.",
                "{S} kept a {R} named {V}.",
                "{S} fed the {R} and called it {V}.",
                "{S} never travelled without the {R} {V}.",
                "Behind {N} came the {R} {V}.",
                "{S} talked all day to the {R} {V}.",
            ],
            said: &[
                "{S's} {R} is called {V}.",
                "{S} has a {R} named {V}.",
                "{S} spoils that {R}, {V}.",
                "{S} loves nobody so well as the {R} {V}.",
            ],
            asked: &[
                ("What is {N's} {R} called?", "", ""),
                ("What is the name of {N's} {R}?", "", ""),
                ("What does {N} call the {R}?", "", ""),
            ],
        },
        Kind::Debt => &Forms {
            told: &[
                "{S} owed the bank {V} crowns.",
                "{S's} debt was {V} crowns.",
                "{S} lay awake over {V} crowns.",
                "Beside {N's} name the banker had written {V} crowns.",
                "{S} could not pay back the {V} crowns.",
            ],
            said: &[
                "{S} owes the bank {V} crowns.",
                "{S's} debt is {V} crowns.",
                "{S} still has to pay {V} crowns.",
            ],
            asked: &[
                ("How much does {N} owe?", "", " crowns"),
                ("How large is {N's} debt?", "", " crowns"),
                ("What must {N} pay to the bank?", "", " crowns"),
            ],
        },
        Kind::Product => &Forms {
            told: &[
                "{N} was known for its {V}.",
                "The people of {N} lived by {V}.",
                "Carts came from {N} full of {V}.",
                "In {N} everybody talked about {V}.",
                "They grew rich in {N} with {V}.",
            ],
            said: &[
                "{N} is known for its {V}.",
                "The people of {N} live by {V}.",
                "Nobody goes to {N} but for {V}.",
                "In {N} they sell {V}.",
            ],
            asked: &[
                ("What is {N} known for?", "For its ", ""),
                ("What do they sell in {N}?", "They sell ", ""),
                ("What do the people of {N} live by?", "By ", ""),
            ],
        },
        Kind::Inn => &Forms {
            told: &[
                "The inn at {N} was called the {V}.",
                "Travellers in {N} slept at the {V}.",
                "In {N} there was one inn, the {V}.",
                "All the gossip of {N} was heard at the {V}.",
            ],
            said: &[
                "The inn at {N} is called the {V}.",
                "In {N} you must sleep at the {V}.",
                "They water the beer of {N} at the {V}.",
            ],
            asked: &[
                ("What is the inn at {N} called?", "The ", ""),
                ("Where do travellers sleep in {N}?", "At the ", ""),
                ("What is the name of the inn at {N}?", "The ", ""),
            ],
        },
    }
}
