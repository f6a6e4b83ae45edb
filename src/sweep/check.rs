//! Checks a sweep file: names are known, numbers in range, and nothing is listed twice.
//!
//! Everything that can be found wrong without loading a model or a text is reported here, with its place in the file.

use std::path::{Component, Path};

use super::keys::{MAX_ROPE_FACTOR, ModelYaml, RopeOverrideYaml, SweepYaml};
use super::{ModelSpec, Sweep, policies};
use crate::eviction::presets;
use crate::eviction::{
    CacheOptions, CacheRule, CacheSize, DefinedPolicy, KnownPolicies, LONGEST_KNOWN, NamedPolicy, Policy,
    WrittenPolicy,
};
use crate::format::did_you_mean;
use crate::ledger::Contrast;
use crate::lm::source::{ModelSource, POCKET, RANDOM_FORM, RANDOM_TINY};
use crate::lm::{Real, RopeOverride};
use crate::task::{TaskSpec, TaskYaml};
use crate::yaml::{self, ConfigError, Location, Spanned};

/// Largest number of cells of a sweep: models times tasks times policies times cache sizes. The largest of the paper has 43.
const MOST_CELLS: usize = 100_000;

/// Checks one file. Errors call it `file`, which also names the sweep if it has no name of its own. `own` policies come from
/// the program, and follow those of the file unless that places them.
pub(super) fn check(shape: SweepYaml, file: &str, own: &[DefinedPolicy]) -> Result<Sweep, ConfigError> {
    check_size(&shape)?;
    let name = match shape.name {
        Some(name) if name.value.trim().is_empty() => {
            return yaml::refuse(name.referenced, "the name is empty", "remove `name:` to use the file's name");
        }
        Some(name) => {
            check_folder(&name)?;
            name.value
        }
        None => Path::new(file).file_stem().map_or("sweep".into(), |stem| stem.to_string_lossy().into_owned()),
    };
    let models = models(shape.models)?;
    let mut defined = policies::definitions(shape.define, shape.schedule)?;
    for DefinedPolicy { name, .. } in own {
        policies::check_name(name, shape.policies.referenced)?;
    }
    let in_file = defined.len();
    // The program's own policies have a schedule.
    defined.extend(own.iter().cloned());
    let known = KnownPolicies { defined: &defined, schedule: shape.schedule };
    let options =
        CacheOptions { positions: shape.positions, local_layers: shape.local_layers, format: shape.format };
    let mut policies = policies::named(&shape.policies, known, options)?;
    let is_listed = |name: &str| {
        let base = |listed: &str| presets::split_keep_first(listed).is_some_and(|(base, _)| base == name);
        policies.iter().any(|policy| policy.name == name || base(&policy.name))
    };
    let unlisted = defined[..in_file].iter().map(|own| own.name.clone()).filter(|name| !is_listed(name)).collect();
    let placed: Vec<String> = policies.iter().map(|policy| policy.name.clone()).collect();
    let others = own.iter().filter(|own| !placed.contains(&own.name));
    policies.extend(others.map(|own| NamedPolicy {
        name: own.name.clone(),
        rule: CacheRule::Evict { policy: own.policy, size: () },
        options: own.options(options),
    }));
    if let Some(memory) = shape.memory.first().filter(|_| !shape.cache_sizes.is_empty()) {
        let hint = "remove one of them, or write two sweeps";
        return yaml::refuse(
            memory.referenced,
            "`memory` stands in place of `cache_sizes`, and both are there",
            hint,
        );
    }
    let memory = shape.memory.into_iter();
    let memory = memory.map(|Spanned { value, referenced, .. }| (CacheSize::Memory(value), referenced));
    let sizes = shape.cache_sizes.into_iter().map(|Spanned { value, referenced, .. }| (value, referenced));
    let cache_sizes = check_sizes(sizes.chain(memory).collect(), &shape.policies, &policies)?;
    let tasks = tasks(shape.tasks, &policies, &cache_sizes)?;
    let folder = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
    let (seed, contrasts) = (shape.seed, Vec::new());
    let sweep = Sweep { name, folder, models, policies, cache_sizes, tasks, seed, unlisted, contrasts };
    Ok(Sweep { contrasts: contrasts_of(&sweep, shape.contrasts, (known, options))?, ..sweep })
}

/// Resolves the policies of planned contrasts, which must be among those of the sweep.
fn contrasts_of(
    sweep: &Sweep,
    written: Vec<Spanned<String>>,
    (known, options): (KnownPolicies<'_>, CacheOptions),
) -> Result<Vec<Contrast>, ConfigError> {
    let label = |policy: &NamedPolicy| {
        let cell = sweep.cell(&sweep.models[0], &sweep.tasks[0], policy, CacheSize::Entries(1));
        cell.label()
    };
    // Differences to the full cache are in every table.
    let listed: Vec<&NamedPolicy> =
        sweep.policies.iter().filter(|policy| policy.rule != CacheRule::Unbounded).collect();
    let resolved = |name: &str, place: Location| {
        let policy = WrittenPolicy::parse(name, options).and_then(|policy| policy.resolve(known)).ok();
        let found = listed.iter().find(|listed| Some(**listed) == policy.as_ref());
        found.map(|found| label(found)).map_or_else(
            || {
                let names: Vec<String> = listed.iter().map(|policy| label(policy)).collect();
                let message = format!("`{name}` is not a policy that this sweep compares");
                let near = did_you_mean(name, names.iter().map(String::as_str));
                let hint =
                    format!("{near}the policies are {}; differences to full are always shown", names.join(", "));
                yaml::refuse(place, message, hint)
            },
            Ok,
        )
    };
    let mut contrasts = Vec::new();
    for Spanned { value, referenced, .. } in written {
        let contrast: Contrast = value.parse().or_else(|error: String| {
            let (message, hint) = error.split_once(": ").unwrap_or((&error, ""));
            yaml::refuse(referenced, message, hint)
        })?;
        let [policy, against] = [contrast.policy, contrast.against].map(|name| resolved(&name, referenced));
        contrasts.push((Contrast { policy: policy?.into(), against: against?.into() }, referenced));
    }
    if contrasts.is_empty() {
        return Ok(Vec::new());
    }
    yaml::distinct("contrasts", Location::UNKNOWN, contrasts, |contrast| format!("the contrast {contrast}"))
}

/// Refuses a name that does not name a folder of results below `results/`.
fn check_folder(name: &Spanned<String>) -> Result<(), ConfigError> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(part) if part.len() <= MOST_OF_NAME);
    if name.value.chars().any(char::is_control) || !Path::new(&name.value).components().all(is_plain) {
        let message = format!("the name `{}` does not name a folder below `results/`", name.value);
        let hint = format!("use at most {MOST_OF_NAME} bytes, and neither `..` nor a `/` at its beginning");
        return yaml::refuse(name.referenced, message, hint);
    }
    Ok(())
}

/// Largest number of bytes of a sweep's name: file systems have 255.
const MOST_OF_NAME: usize = 200;

/// Refuses a sweep of more cells than could be run, before its lists are compared with each other.
fn check_size(shape: &SweepYaml) -> Result<(), ConfigError> {
    let sizes = shape.cache_sizes.len() + shape.memory.len();
    let lists = [shape.models.value.len(), shape.tasks.value.len(), shape.policies.value.len(), sizes];
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

fn check_sizes(
    checked: Vec<(CacheSize, Location)>,
    names: &Spanned<Vec<Spanned<String>>>,
    policies: &[NamedPolicy],
) -> Result<Vec<CacheSize>, ConfigError> {
    for (value, referenced) in &checked {
        if let CacheSize::Entries(entries) = value
            && !(1..=u32::MAX as usize).contains(entries)
        {
            let hint = format!("write a whole number from 1 to {}, or a share such as 25%", u32::MAX);
            return yaml::refuse(*referenced, format!("{entries} cannot be a cache size"), hint);
        }
    }
    let places = names.value.iter().map(|name| name.referenced).chain(std::iter::repeat(names.referenced));
    let bounded = policies.iter().zip(places).filter(|(policy, _)| policy.rule != CacheRule::Unbounded);
    for (policy, place) in bounded {
        if checked.is_empty() {
            let message = format!("policy `{}` needs cache sizes, and there are none", policy.name);
            return yaml::refuse(place, message, "add them, for example `cache_sizes: [64, 128, 256]`");
        }
        if let Some(parts) = policy.rule.policy()
            && let Err(error) = parts.check_parts()
        {
            let message = format!("policy `{}` cannot be used: {error}", policy.name);
            return yaml::refuse(place, message, "change its definition or its schedule, or remove it");
        }
        for (size, location) in &checked {
            // What a share or an amount of memory comes to depends on the sample.
            let CacheSize::Entries(size) = size else { continue };
            if let Err(reason) = policy.rule.at(*size).check() {
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
    if task.is_timed() && policies.iter().any(|policy| matches!(policy.rule, CacheRule::Truncate { .. })) {
        let name = task.name;
        return apart(format!("`{name}` cannot measure the policy `truncate`, as there are no texts to cut"));
    }
    let clairvoyant = policies.iter().find(|policy| policy.rule.reads_future().is_some());
    if let Some(policy) = clairvoyant.filter(|_| task.name != PERPLEXITY || task.length > LONGEST_KNOWN) {
        return apart(format!(
            "`{}` needs to know the whole text, as in `{PERPLEXITY}` up to {LONGEST_KNOWN} tokens",
            policy.name
        ));
    }
    let evicting = policies.iter().filter_map(|named| Some((&named.name, named.rule.policy()?)));
    let cut = evicting.clone().find(|(_, policy)| policy.awaits_prompt());
    if let Some(cut) = cut.filter(|_| !task.has_prompt()) {
        let does = if cut.1.schedule.cuts() { "cuts" } else { "protects" };
        let message = format!("`{}` {does} the prompt, and `{}` has none", named(cut), task.name);
        return match task.name {
            PERPLEXITY => {
                yaml::refuse(referenced, message, "write `prompt: 75%` in the task, or change the policy")
            }
            _ => apart(message),
        };
    }
    let burst = evicting.clone().find(|(_, policy)| policy.schedule.every() != Some(1));
    if let Some(burst) = burst.filter(|_| task.name == RETENTION) {
        return apart(format!(
            "`{RETENTION}` follows entries that leave one by one, and under `{}` several do at once",
            named(burst)
        ));
    }
    let selecting = evicting.clone().find(|(_, policy)| policy.selects());
    if let Some(selecting) = selecting.filter(|_| task.name == RETENTION) {
        return apart(format!(
            "`{RETENTION}` follows entries that leave, and under `{}` none does",
            named(selecting)
        ));
    }
    if cut.is_none() && task.generation.as_ref().is_some_and(|own| !own.query_aware) {
        let message = "`query_aware: false` says where a prompt is cut, and no policy cuts it";
        let hint = "add a schedule such as tova@cut, or remove it";
        return yaml::refuse(referenced, message, hint);
    }
    Ok(())
}

/// Writes a policy as a sweep would, with the schedule unless it is the preset's own.
fn named((name, policy): (&String, Policy)) -> String {
    match policy.schedule {
        schedule if schedule == presets::own_schedule(name) => name.clone(),
        schedule => format!("{name}@{schedule}"),
    }
}

/// The task whose texts are known before they are read.
const PERPLEXITY: &str = "perplexity";

/// The task that follows every eviction.
const RETENTION: &str = "retention";

fn tasks(
    entries: Spanned<Vec<Spanned<TaskYaml>>>,
    policies: &[NamedPolicy],
    cache_sizes: &[CacheSize],
) -> Result<Vec<TaskSpec>, ConfigError> {
    let mut tasks = Vec::new();
    for Spanned { value: entry, referenced } in entries.value {
        tasks.extend(entry.check()?.into_iter().map(|task| (task, referenced)));
    }
    for (task, referenced) in &tasks {
        check_policies(task, policies, *referenced)?;
        if let Some(memory) = cache_sizes.iter().find(|size| matches!(size, CacheSize::Memory(_)))
            && task.is_timed()
        {
            let message = format!("the size `{memory}` follows from texts, and `{}` has none", task.name);
            return yaml::refuse(*referenced, message, "write `cache_sizes` for it, in a sweep of its own");
        }
    }
    yaml::distinct("tasks", entries.referenced, tasks, |task| {
        format!("the same task ({} of {})", task.name, task.dataset)
    })
}
