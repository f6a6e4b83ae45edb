//! What a cache policy is: a score, the scope of one decision, the entries that are protected, the budget and the schedule; and whether
//! entries leave by it, or each query selects those that it attends to.
//!
//! A policy is data. It never sees a key or a value, and it cannot fail once [`Policy::at`] has accepted it for a
//! cache size. Named policies are in `presets`; YAML is the business of `sweep`.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::amount::{Amount, FirstTokens};
use super::budget::{Budget, BudgetPool};
use super::deciding::DecidingLayers;
use super::formula::{Pool, Word};
use super::method::Method;
use super::schedule::Schedule;
use super::score::Score;
use super::settings::Scope;

/// Which entry leaves a full cache. Size k counts every surviving entry per layer and key-value head, protected
/// ones included; the query of a step sees up to k + 1 entries, then one is evicted. Where the budget gives layers
/// other sizes, k is their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub score: Score,
    pub scope: Scope,
    /// The first tokens of the text never leave (attention sinks). With [`FirstTokens::Prompt`] no token of the prompt does, and the size
    /// is that of what follows it.
    pub keep_first: FirstTokens,
    /// The newest entries never leave. With 0 even the newest token may be evicted.
    pub keep_recent: Amount,
    /// How the layers share their entries.
    pub budget: Budget,
    /// When entries leave.
    pub schedule: Schedule,
    /// The first layer in which no entry leaves, and each query attends to as many as the size says: the protected ones, and of the
    /// others those with the highest scores. In earlier layers queries attend to all. `None` where entries leave.
    pub select_from: Option<usize>,
    /// The layers whose scores decide, under [`Scope::Model`]; `None` where all do.
    pub layers: Option<DecidingLayers>,
}

impl Policy {
    /// Whether nothing leaves before the prompt ends: it is cut then, or protected.
    pub fn awaits_prompt(self) -> bool {
        self.schedule.cuts() || self.keeps_prompt()
    }

    /// Whether no entry leaves, and each query selects those that it attends to.
    pub fn selects(self) -> bool {
        self.select_from.is_some()
    }

    /// Whether the first layer alone decides for all.
    pub(super) fn is_led(self) -> bool {
        self.scope == Scope::Model && self.layers.is_some_and(DecidingLayers::is_first_alone)
    }

    /// Whether entries leave all layers when a token has gone through them.
    pub fn evicts_together(self) -> bool {
        self.budget.pools_model() || (self.scope == Scope::Model && !self.is_led())
    }

    /// The scope as rows and definitions have it: `head`, `model`, or `model first,last` with the layers that decide.
    pub fn scope_text(self) -> String {
        let layers = self.layers.map_or_else(String::new, |layers| format!(" {layers}"));
        format!("{}{layers}", self.scope.name())
    }

    /// Whether no token of the prompt leaves.
    pub fn keeps_prompt(self) -> bool {
        self.keep_first == FirstTokens::Prompt
    }

    /// The policy without settings that cannot change which entries survive, so that equal experiments get equal
    /// ids.
    #[must_use]
    pub fn canonical(self) -> Policy {
        // The oldest unprotected entry leaves whatever the scope is, and it is the same for every layer and head. The
        // sizes of a pyramid depend on the number of protected entries.
        match (self.score.method(), self.budget) {
            (Method::Order, Budget::Pyramid(_)) => Policy { scope: Scope::Layer, ..self },
            (Method::Order, Budget::Pool(BudgetPool { score: Some(_), .. })) => self,
            (Method::Order, budget) if budget.is_by_head() => Policy { keep_recent: Amount::Tokens(0), ..self },
            (Method::Order, _) => {
                Policy { scope: Scope::Layer, keep_recent: Amount::Tokens(0), layers: None, ..self }
            }
            _ => self,
        }
    }

    /// The scores that it computes: its own, and the one that divides its budget if it has that.
    pub fn scores(self) -> impl Iterator<Item = Score> {
        std::iter::once(self.score).chain(self.budget.divides())
    }

    /// Refuses what layers with a window cannot have: a schedule under which their heads would hold different numbers of entries, or
    /// a protected prompt, which the window passes.
    ///
    /// # Errors
    /// Schedules other than `1` and `cut+1`, `keep_first: prompt`, a score that reads the prompt again, and one that bounds pages.
    pub fn check_windows(self) -> Result<()> {
        let because = if self.scope == Scope::Model {
            "and one decision is for all layers, which hold the same entries".to_owned()
        } else if self.score.page().is_some() {
            "whose first page it may pass in part".to_owned()
        } else if self.selects() {
            return Ok(());
        } else if self.keeps_prompt() {
            "which no prompt stays in".to_owned()
        } else if self.score.has(Word::RereadAttention) {
            "whose entries no second reading finds again".to_owned()
        } else if self.schedule.every() != Some(1) {
            // Where several leave at once, the window takes more from some heads than from others.
            format!("whose heads the schedule {} would leave with different numbers of entries", self.schedule)
        } else {
            return Ok(());
        };
        bail!(
            "the model has layers with a window that is shorter than the text, {because}\n\
             hint: leave such layers alone with @exempt (`local_layers: exempt`)"
        )
    }

    /// The definition that rows have, which [`str::parse`] reads:
    /// `score=ema(attention, 0.9) scope=head keep_first=2 keep_recent=10% budget=pyramid 20 schedule=1`. Its score has the name of today.
    /// Where queries select, ` select_from=0` follows.
    pub fn definition(self) -> String {
        let Policy { score, keep_first, keep_recent, budget, schedule, select_from, .. } = self.canonical();
        let (score, scope) = (score.name(), self.canonical().scope_text());
        let select = select_from.map_or_else(String::new, |from| format!(" select_from={from}"));
        format!(
            "score={score} scope={scope} keep_first={keep_first} keep_recent={keep_recent} budget={budget} \
             schedule={schedule}{select}"
        )
    }
}

impl FromStr for Policy {
    type Err = anyhow::Error;

    /// Reads [`Policy::definition`]. An error where the score is a function, and for rows of other versions.
    fn from_str(text: &str) -> Result<Policy> {
        let mut rest = text;
        // From the end, because a formula may have spaces.
        let mut value = |key: &str| {
            let (before, value) = rest.rsplit_once(key).with_context(|| format!("there is no `{key}`"))?;
            rest = before;
            anyhow::Ok(value)
        };
        // Where entries leave there is none.
        let select_from = value(" select_from=").ok().map(str::parse).transpose()?;
        // Rows of the version before have none.
        let schedule = value(" schedule=").map_or_else(|_| Ok(Schedule::default()), str::parse)?;
        let budget = value(" budget=")?.parse()?;
        let keep_recent = value(" keep_recent=")?.parse()?;
        let keep_first = value(" keep_first=")?.parse()?;
        let scope = value(" scope=")?;
        let (scope, layers) = scope.split_once(' ').map_or((scope, None), |(scope, layers)| (scope, Some(layers)));
        let (scope, layers) = (scope.parse()?, layers.map(str::parse).transpose()?);
        let score = Score::new(value("score=")?, Pool::Mean)?;
        Ok(Policy { score, scope, keep_first, keep_recent, budget, schedule, select_from, layers })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.definition())
    }
}
