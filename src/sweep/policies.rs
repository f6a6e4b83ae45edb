//! Checks the policies of a sweep file: those that it defines, and those that it names.

use indexmap::IndexMap;

use super::keys::{BudgetYaml, HeadsYaml, PolicyYaml, SelectYaml, ShareYaml};
use super::schema::names::fixed_policies;
use crate::eviction::formula::{Formula, Pool};
use crate::eviction::{
    Amount, Budget, BudgetPool, CacheOptions, DecidingLayer, DecidingLayers, DefinedPolicy, KnownPolicies,
    NamedPolicy, Policy, PolicyError, Schedule, Score, WrittenPolicy,
};
use crate::yaml::{self, ConfigError, Location, Spanned};

/// Checks the policies of `define:`; those without a schedule have the sweep's, `of_sweep`.
pub(super) fn definitions(
    define: IndexMap<Spanned<String>, PolicyYaml>,
    of_sweep: Option<Schedule>,
) -> Result<Vec<DefinedPolicy>, ConfigError> {
    let mut defined = Vec::new();
    for (Spanned { value: name, referenced, .. }, shape) in define {
        check_name(&name, referenced)?;
        let PolicyYaml {
            score,
            select,
            pool: of_heads,
            scope,
            layers,
            keep_first,
            keep_recent,
            schedule,
            budget,
            format,
        } = shape;
        let (score, select_from) = match (score, select) {
            (Some(score), None) => (score, None),
            (None, Some(SelectYaml { score, from_layer })) => (score, Some(from_layer)),
            _ => {
                let message = format!("`{name}` needs one of `score` and `select`");
                let hint = "write `score: FORMULA` if entries leave, and `select: {score: FORMULA}` if each query selects";
                return yaml::refuse(referenced, message, hint);
            }
        };
        let score = match Score::new(&score.value, of_heads) {
            Ok(score) => score,
            Err(error) => {
                let message = format!("the score of `{name}` cannot be used: {error}");
                return yaml::refuse(score.referenced, message, error.hint);
            }
        };
        let budget = budget.map(|budget| budget_of(budget, of_heads)).transpose()?.unwrap_or_default();
        let deciding = |layers: Spanned<Vec<DecidingLayer>>| {
            DecidingLayers::new(layers.value).or_else(|error| {
                yaml::refuse(layers.referenced, format!("{error:#}"), "leave out `layers` for the mean of all")
            })
        };
        let layers = layers.map(deciding).transpose()?;
        let schedule = schedule.or(of_sweep).unwrap_or_default();
        let policy = Policy { score, scope, keep_first, keep_recent, budget, schedule, select_from, layers };
        defined.push(DefinedPolicy { name, policy, format });
    }
    Ok(defined)
}

/// Refuses a name that a policy cannot have.
pub(super) fn check_name(name: &str, place: Location) -> Result<(), ConfigError> {
    // `window+x` would read like a preset with sinks, so the part before `+` must be free as well.
    let base = name.split('+').next().unwrap_or_default();
    if fixed_policies().contains(&base) {
        let message = format!("`{name}` cannot be defined: `{base}` has a fixed meaning");
        return yaml::refuse(place, message, format!("choose another name, for example `my-{base}`"));
    }
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+'));
    if !letters || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || name.len() > 40 {
        let message = format!("`{name}` is not a name for a policy");
        let hint = "use up to 40 ASCII letters, digits, `-`, `_`, `.` and `+`, starting with a letter or digit";
        return yaml::refuse(place, message, hint);
    }
    Ok(())
}

const BUDGETS: &str = "write one of `{pyramid: 20}`, `{layers: [3, 2, 2, 1]}` with a number for each layer, `{pool: heads, floor: 20%}`, and \
                       `{heads: [[full, 1], [1, 2]]}` with a row for each layer";

/// Checks the budget of a policy that pools the values of query heads by `of_heads`.
fn budget_of(shape: Spanned<BudgetYaml>, of_heads: Pool) -> Result<Budget, ConfigError> {
    let place = shape.referenced;
    let refuse_all = |message: &str| yaml::refuse(place, message, BUDGETS);
    let BudgetYaml { pyramid, layers, pool, floor, score, heads, full } = shape.value;
    if pool.is_none() && (floor.is_some() || score.is_some()) {
        return refuse_all("`floor` and `score` of a budget belong to a `pool`");
    }
    if heads.is_none() && full.is_some() {
        return refuse_all("`full` belongs to `heads`");
    }
    match (pyramid, layers, pool, heads) {
        (Some(beta), None, None, None) => Ok(Budget::Pyramid(yaml::count("`pyramid`", &beta, 1)? as u32)),
        (None, Some(shares), None, None) => Budget::of_layers(&shares.value)
            .or_else(|error| yaml::refuse(shares.referenced, format!("{error:#}"), BUDGETS)),
        (None, None, Some(over), None) => {
            let floor = floor.map(percent_of).transpose()?.unwrap_or(0);
            let formula = |score: Spanned<String>| {
                Formula::new(&score.value, of_heads).or_else(|error| {
                    let message = format!("the score of the budget cannot be used: {error}");
                    yaml::refuse(score.referenced, message, error.hint)
                })
            };
            Ok(Budget::Pool(BudgetPool { over, floor, score: score.map(formula).transpose()? }))
        }
        (None, None, None, Some(heads)) => {
            let full = full.map(percent_of).transpose()?;
            let budget = match heads.value {
                HeadsYaml::File(file) => Budget::of_file(&file, full),
                HeadsYaml::Table(rows) => {
                    let row = |row: Vec<ShareYaml>| row.into_iter().map(|share| share.0).collect();
                    Budget::of_heads(&rows.into_iter().map(row).collect::<Vec<_>>(), full)
                }
            };
            budget.or_else(|error| yaml::refuse(heads.referenced, format!("{error:#}"), BUDGETS))
        }
        _ => refuse_all("`budget` is one of `pyramid`, `layers`, `pool` and `heads`"),
    }
}

/// Reads a whole percentage.
fn percent_of(text: Spanned<String>) -> Result<u8, ConfigError> {
    let Ok(Amount::Percent(percent)) = text.value.parse() else {
        let message = format!("`{}` is not a percentage", text.value);
        return yaml::refuse(text.referenced, message, "write one from 0% to 100%");
    };
    Ok(percent)
}

/// Resolves the policies that `policies:` names, with these `options` where they do not say others.
pub(super) fn named(
    names: &Spanned<Vec<Spanned<String>>>,
    known: KnownPolicies<'_>,
    options: CacheOptions,
) -> Result<Vec<NamedPolicy>, ConfigError> {
    let spelled = names.value.iter().map(|name| (&name.value, name.referenced)).collect();
    yaml::distinct("policies", names.referenced, spelled, |name| format!("policy `{name}`"))?;
    let policy = |Spanned { value: written, referenced, .. }: &Spanned<String>| {
        let policy = WrittenPolicy::parse(written, options).and_then(|policy| policy.resolve(known));
        policy.or_else(|PolicyError { message, hint }| yaml::refuse(*referenced, message, hint))
    };
    names.value.iter().map(policy).collect()
}
