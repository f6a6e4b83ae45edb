//! Checks a sweep file: names are known, numbers in range, and nothing is listed twice.
//!
//! Everything that can be found wrong without loading a model or a text is reported here, with its place in the file.

use std::path::Path;

use indexmap::IndexMap;

use super::keys::{
    BudgetYaml, HeadsYaml, MAX_ROPE_FACTOR, ModelYaml, PolicyYaml, RopeOverrideYaml, ShareYaml, SweepYaml,
};
use super::schema::names::{RESERVED, fixed_policies, known_policies};
use super::{ModelSpec, NamedPolicy, Rule, Sweep};
use crate::eviction::formula::{Formula, Pool};
use crate::eviction::presets;
use crate::eviction::{
    Amount, Budget, BudgetPool, CacheRule, CacheSize, LOCAL_LAYERS, LONGEST_KNOWN, LocalLayers, MOST_AT_ONCE,
    POSITIONS, Policy, Positions, Schedule, Score,
};
use crate::format::did_you_mean;
use crate::lm::source::{ModelSource, POCKET, RANDOM_FORM, RANDOM_TINY};
use crate::lm::{Real, RopeOverride};
use crate::task::{Prefill, TaskSpec, TaskYaml};
use crate::yaml::{self, ConfigError, Location, Spanned};

/// The most cells of a sweep: models times tasks times policies times cache sizes. The largest of the paper has 43.
const MOST_CELLS: usize = 100_000;

/// Checks one file. Errors call it `file`, which also names the sweep if it has no name of its own. `own` policies come from
/// the program, and follow those of the file unless that places them.
pub(super) fn check(shape: SweepYaml, file: &str, own: &[(String, Policy)]) -> Result<Sweep, ConfigError> {
    check_size(&shape)?;
    let name = match shape.name {
        Some(name) if name.value.trim().is_empty() => {
            return yaml::refuse(name.referenced, "the name is empty", "remove `name:` to use the file's name");
        }
        Some(name) => name.value,
        None => Path::new(file).file_stem().map_or("sweep".into(), |stem| stem.to_string_lossy().into_owned()),
    };
    let models = models(shape.models)?;
    let mut defined = definitions(shape.define, shape.schedule)?;
    for (name, _) in own {
        check_policy_name(name, shape.policies.referenced)?;
    }
    // The program's own policies have a schedule.
    defined.extend(own.iter().cloned());
    let of_sweep =
        OfSweep { schedule: shape.schedule, positions: shape.positions, local_layers: shape.local_layers };
    let mut policies = policies(&shape.policies, &defined, of_sweep)?;
    let placed: Vec<String> = policies.iter().map(|policy| policy.name.clone()).collect();
    let others = own.iter().filter(|(name, _)| !placed.contains(name));
    policies.extend(others.map(|(name, policy)| NamedPolicy {
        name: name.clone(),
        rule: Rule::Policy(*policy),
        positions: of_sweep.positions,
        local_layers: of_sweep.local_layers,
    }));
    let cache_sizes = sizes(&shape.cache_sizes, &shape.policies, &policies)?;
    let tasks = tasks(shape.tasks, &policies)?;
    let folder = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
    Ok(Sweep { name, folder, models, policies, cache_sizes, tasks, seed: shape.seed })
}

/// Refuses a sweep of more cells than could be run, before its lists are compared with each other.
fn check_size(shape: &SweepYaml) -> Result<(), ConfigError> {
    let lists =
        [shape.models.value.len(), shape.tasks.value.len(), shape.policies.value.len(), shape.cache_sizes.len()];
    let cells = lists.iter().fold(1usize, |cells, length| cells.saturating_mul((*length).max(1)));
    if cells > MOST_CELLS {
        let message = format!("{cells} cells are more than the {MOST_CELLS} of a sweep");
        return yaml::refuse(shape.models.referenced, message, "split it into several sweeps");
    }
    Ok(())
}

fn models(shapes: Spanned<Vec<Spanned<ModelYaml>>>) -> Result<Vec<ModelSpec>, ConfigError> {
    let mut models: Vec<(ModelSpec, Location)> = Vec::new();
    for Spanned { value: ModelYaml(value), referenced } in shapes.value {
        let source = model_source(&value.source, referenced)?;
        let tokenizer = value.tokenizer.map(|tokenizer| model_source(&tokenizer, referenced)).transpose()?;
        if let Some(Err(error)) = tokenizer.as_ref().map(|tokenizer| source.check_tokenizer(tokenizer)) {
            let hint = "write `tokenizer: ./FOLDER` or `tokenizer: owner/name` beside the model's `source:`";
            return yaml::refuse(referenced, format!("{error:#}"), hint);
        }
        let rope_override = |by: RopeOverrideYaml| -> Result<RopeOverride, ConfigError> {
            let factor = Real(yaml::between("`factor`", &by.factor, 1.0, MAX_ROPE_FACTOR)?);
            Ok(RopeOverride { kind: by.kind, factor })
        };
        let rope_scaling = value.rope_scaling.map(rope_override).transpose()?;
        let (name, dtype, arithmetic) = (value.name, value.dtype, value.arithmetic);
        let model = ModelSpec { name, source, tokenizer, dtype, arithmetic, rope_scaling };
        check_name(&model, &models, referenced)?;
        models.push((model, referenced));
    }
    yaml::distinct("models", shapes.referenced, models, |model| format!("model `{model}`"))
}

/// Refuses a name that says nothing, that another model has, or that is the second of one model.
fn check_name(
    model: &ModelSpec,
    others: &[(ModelSpec, Location)],
    referenced: Location,
) -> Result<(), ConfigError> {
    if model.name.as_ref().is_some_and(|name| name.trim().is_empty() || name.chars().any(char::is_control)) {
        let message = "the model's name is empty or has control characters";
        return yaml::refuse(referenced, message, "write another `name:`");
    }
    let unnamed = |model: &ModelSpec| ModelSpec { name: None, ..model.clone() };
    for (other, _) in others {
        if model.name.is_some() && model.to_string() == other.to_string() && unnamed(model) != unnamed(other) {
            let message = format!("two models are called `{model}`");
            return yaml::refuse(referenced, message, "give each a `name:` of its own");
        }
        if model.name != other.name && unnamed(model) == unnamed(other) {
            let message = format!("`{model}` and `{other}` are the same model");
            return yaml::refuse(referenced, message, "remove one of them");
        }
    }
    Ok(())
}

fn model_source(text: &str, referenced: Location) -> Result<ModelSource, ConfigError> {
    text.parse::<ModelSource>().or_else(|error| {
        let hint = format!(
            "{}write a path starting with ./, ../ or / for a folder or a GGUF file, owner/name[@revision] or owner/name:file.gguf \
             for the hub, {POCKET}, {RANDOM_TINY} or a shape such as {RANDOM_FORM}",
            did_you_mean(text, [POCKET, RANDOM_TINY])
        );
        yaml::refuse(referenced, format!("{error:#}"), hint)
    })
}

/// What policies have that do not say so themselves.
#[derive(Clone, Copy)]
struct OfSweep {
    schedule: Option<Schedule>,
    positions: Positions,
    local_layers: LocalLayers,
}

/// The policies of `define:`. Those without a schedule have that of the sweep.
pub(super) fn definitions(
    define: IndexMap<Spanned<String>, PolicyYaml>,
    of_sweep: Option<Schedule>,
) -> Result<Vec<(String, Policy)>, ConfigError> {
    let mut defined = Vec::new();
    for (Spanned { value: name, referenced, .. }, shape) in define {
        check_policy_name(&name, referenced)?;
        let PolicyYaml { score, pool, scope, keep_first, keep_recent, schedule, budget } = shape;
        let score = match Score::new(&score.value, pool) {
            Ok(score) => score,
            Err(error) => {
                let message = format!("the score of `{name}` cannot be used: {error}");
                return yaml::refuse(score.referenced, message, error.hint);
            }
        };
        if keep_recent == Amount::Prompt {
            let message = format!("`keep_recent` of `{name}` cannot be `prompt`");
            return yaml::refuse(referenced, message, "only `keep_first` protects the prompt");
        }
        let budget = budget.map(budget_of).transpose()?.unwrap_or_default();
        let schedule = schedule.or(of_sweep).unwrap_or_default();
        let policy = Policy { score, scope, keep_first, keep_recent, budget, schedule };
        defined.push((name, policy));
    }
    Ok(defined)
}

/// Refuses a name that a policy cannot have.
fn check_policy_name(name: &str, place: Location) -> Result<(), ConfigError> {
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

fn budget_of(shape: Spanned<BudgetYaml>) -> Result<Budget, ConfigError> {
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
                Formula::new(&score.value, Pool::Mean).or_else(|error| {
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

/// A whole percentage.
fn percent_of(text: Spanned<String>) -> Result<u8, ConfigError> {
    match text.value.parse() {
        Ok(Amount::Percent(percent)) => Ok(percent),
        _ => yaml::refuse(
            text.referenced,
            format!("`{}` is no percentage", text.value),
            "write one from 0% to 100%",
        ),
    }
}

fn policies(
    names: &Spanned<Vec<Spanned<String>>>,
    defined: &[(String, Policy)],
    of_sweep: OfSweep,
) -> Result<Vec<NamedPolicy>, ConfigError> {
    let spelled = names.value.iter().map(|name| (&name.value, name.referenced)).collect();
    yaml::distinct("policies", names.referenced, spelled, |name| format!("policy `{name}`"))?;
    let own = |name: &str| defined.iter().find(|(own, _)| own == name).map(|(_, policy)| *policy);
    // `mine+4`, unless a policy of this very name is defined.
    let own_with_keep_first = |name: &str| {
        let (base, keep_first) = presets::split_keep_first(name)?;
        Some(Policy { keep_first: Amount::Tokens(keep_first), ..own(base)? })
    };
    // The sweep's schedule goes before that of a preset.
    let preset = |name: &str| {
        let schedule = |policy: Policy| of_sweep.schedule.unwrap_or(policy.schedule);
        presets::find(name).map(|found| found.map(|policy| Policy { schedule: schedule(policy), ..policy }))
    };
    let mut policies = Vec::new();
    for Spanned { value: written, referenced, .. } in &names.value {
        let mut parts = written.split('@');
        let name = parts.next().unwrap_or_default();
        let OfSweep { mut positions, mut local_layers, .. } = of_sweep;
        let mut schedule = None;
        for own in parts {
            match (own.parse(), own.parse()) {
                (Ok(own), _) if !is_reserved(name) => local_layers = own,
                (_, Ok(own)) if !is_reserved(name) => schedule = Some(own),
                _ => positions = positions_of(own, name, *referenced)?,
            }
        }
        let rule = match name {
            "full" => Rule::Full,
            "truncate" => Rule::Truncate,
            _ => match own(name).or_else(|| own_with_keep_first(name)).map(Ok).or_else(|| preset(name)) {
                Some(Ok(policy)) => {
                    Rule::Policy(Policy { schedule: schedule.unwrap_or(policy.schedule), ..policy })
                }
                Some(Err(error)) => {
                    let message = format!("`{name}` cannot be used: {error:#}");
                    return yaml::refuse(*referenced, message, presets::hint_of(&error));
                }
                None => {
                    let known = known_policies().into_iter().chain(defined.iter().map(|(own, _)| own.as_str()));
                    let known: Vec<&str> = known.collect();
                    let near = did_you_mean(name, known.iter().copied());
                    let names = known.join(", ");
                    let hint = format!(
                        "{near}known are {names} (name+I protects the first I tokens); a new one is made under `define:`"
                    );
                    return yaml::refuse(*referenced, format!("unknown policy `{name}`"), hint);
                }
            },
        };
        policies.push(NamedPolicy { name: name.to_string(), rule, positions, local_layers });
    }
    Ok(policies)
}

fn is_reserved(policy: &str) -> bool {
    RESERVED.iter().any(|(name, _)| *name == policy)
}

/// The positions after the `@` of a policy.
fn positions_of(own: &str, policy: &str, place: Location) -> Result<Positions, ConfigError> {
    if is_reserved(policy) {
        let message = format!("`{policy}` never evicts, so nothing leaves and its keys never move");
        return yaml::refuse(place, message, format!("write `{policy}`"));
    }
    own.parse().or_else(|_| {
        let names = POSITIONS.iter().map(|own| own.name).chain(LOCAL_LAYERS.iter().map(|own| own.name));
        let names: Vec<_> = names.chain(["cut"]).collect();
        let near = did_you_mean(own, names.iter().copied());
        let hint =
            format!("{near}after @ write {}, cut+16, or a number from 1 to {MOST_AT_ONCE}", names.join(", "));
        yaml::refuse(place, format!("`{own}` of `{policy}` is no schedule and no kind of positions"), hint)
    })
}

fn sizes(
    sizes: &[Spanned<CacheSize>],
    names: &Spanned<Vec<Spanned<String>>>,
    policies: &[NamedPolicy],
) -> Result<Vec<CacheSize>, ConfigError> {
    let mut checked = Vec::new();
    for Spanned { value, referenced } in sizes {
        if let CacheSize::Entries(entries) = value
            && !(1..=u32::MAX as usize).contains(entries)
        {
            let hint = format!("write a whole number from 1 to {}, or a share such as 25%", u32::MAX);
            return yaml::refuse(*referenced, format!("{entries} cannot be a cache size"), hint);
        }
        checked.push((*value, *referenced));
    }
    let places = names.value.iter().map(|name| name.referenced).chain(std::iter::repeat(names.referenced));
    let bounded = policies.iter().zip(places).filter(|(policy, _)| policy.rule != Rule::Full);
    for (policy, place) in bounded {
        if checked.is_empty() {
            let message = format!("policy `{}` needs cache sizes, and there are none", policy.name);
            return yaml::refuse(place, message, "add them, for example `cache_sizes: [64, 128, 256]`");
        }
        for (size, location) in &checked {
            // What a share comes to depends on the task.
            let CacheSize::Entries(size) = size else { continue };
            let cannot = match policy.rule.at(*size) {
                CacheRule::Unbounded => None,
                // A piece of one token has nothing before it to predict from.
                CacheRule::Truncate { size } => {
                    (size < 2).then(|| "a piece of 1 token predicts nothing".to_string())
                }
                CacheRule::Evict { policy, size } => policy.at(size).err().map(|error| error.to_string()),
            };
            if let Some(reason) = cannot {
                let message = format!("policy `{}` cannot have a cache of {size}: {reason}", policy.name);
                return yaml::refuse(*location, message, format!("remove the size {size}, or the policy"));
            }
        }
    }
    if checked.is_empty() {
        return Ok(Vec::new());
    }
    let mut sizes = yaml::distinct("cache_sizes", Location::UNKNOWN, checked, |size| format!("size {size}"))?;
    sizes.sort_unstable();
    Ok(sizes)
}

/// Refuses policies and schedules that have no meaning in a task.
fn check_policies(task: &TaskSpec, policies: &[NamedPolicy], referenced: Location) -> Result<(), ConfigError> {
    let apart =
        |message: String| yaml::refuse(referenced, message, "put the policy or the task into a sweep of its own");
    if task.is_timed() && policies.iter().any(|policy| policy.rule == Rule::Truncate) {
        let name = task.name;
        return apart(format!("`{name}` cannot measure the policy `truncate`, as there are no texts to cut"));
    }
    let clairvoyant = policies.iter().find(|policy| policy.rule.reads_future());
    if let Some(policy) = clairvoyant.filter(|_| task.name != PERPLEXITY || task.length > LONGEST_KNOWN) {
        return apart(format!(
            "`{}` needs to know the whole text, as in `{PERPLEXITY}` up to {LONGEST_KNOWN} tokens",
            policy.name
        ));
    }
    let evicting = policies.iter().filter_map(|policy| match policy.rule {
        Rule::Policy(own) => Some((&policy.name, own)),
        _ => None,
    });
    let named = |(name, policy): (&String, Policy)| match policy.schedule {
        schedule if schedule == presets::own_schedule(name) => name.clone(),
        schedule => format!("{name}@{schedule}"),
    };
    let one_shot = task.prefill() == Prefill::OneShot;
    let has_own = |policy: Policy| policy.schedule != Schedule::default() || policy.awaits_prompt();
    if let Some(own) = evicting.clone().find(|(_, policy)| one_shot && has_own(*policy)) {
        let message = format!(
            "`prefill: one_shot` is the schedule `cut+1`, and `{}` says itself what leaves, and when",
            named(own)
        );
        let hint = "leave out `prefill`, or give the policy no schedule and no `keep_first: prompt`";
        return yaml::refuse(referenced, message, hint);
    }
    let cut = evicting.clone().find(|(_, policy)| policy.awaits_prompt());
    if let Some(cut) = cut.filter(|_| !task.has_prompt()) {
        let does = if cut.1.schedule.cut { "cuts" } else { "protects" };
        let message = format!("`{}` {does} the prompt, and `{}` has none", named(cut), task.name);
        return match task.name {
            PERPLEXITY => {
                yaml::refuse(referenced, message, "write `prompt: 75%` in the task, or change the policy")
            }
            _ => apart(message),
        };
    }
    let burst = evicting.clone().find(|(_, policy)| policy.schedule.every != Some(1));
    if let Some(burst) = burst.filter(|_| task.name == RETENTION) {
        return apart(format!(
            "`{RETENTION}` follows entries that leave one by one, and under `{}` several do at once",
            named(burst)
        ));
    }
    if cut.is_none() && !one_shot && task.generation.as_ref().is_some_and(|own| !own.query_aware) {
        let message = "`query_aware: false` says where a prompt is cut, and no policy cuts it";
        let hint = "add `prefill: one_shot` or a schedule such as tova@cut, or remove it";
        return yaml::refuse(referenced, message, hint);
    }
    Ok(())
}

/// The task whose texts are known before they are read.
const PERPLEXITY: &str = "perplexity";

/// The task that follows every eviction.
const RETENTION: &str = "retention";

fn tasks(
    entries: Spanned<Vec<Spanned<TaskYaml>>>,
    policies: &[NamedPolicy],
) -> Result<Vec<TaskSpec>, ConfigError> {
    let mut tasks = Vec::new();
    for Spanned { value: entry, referenced } in entries.value {
        tasks.extend(entry.check()?.into_iter().map(|task| (task, referenced)));
    }
    for (task, referenced) in &tasks {
        check_policies(task, policies, *referenced)?;
    }
    yaml::distinct("tasks", entries.referenced, tasks, |task| {
        format!("the same task ({} of {})", task.name, task.dataset)
    })
}
