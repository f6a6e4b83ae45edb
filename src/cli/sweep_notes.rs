//! Notes on likely mistakes in a sweep that can be measured all the same.

use crate::run::{ModelTask, Prepared};
use crate::sweep::Sweep;

/// Policies that are defined and not measured.
pub(super) fn unlisted(sweep: &Sweep) -> Option<String> {
    let names: Vec<String> = sweep.unlisted.iter().map(|name| format!("`{name}`")).collect();
    let are = if names.len() == 1 { "is" } else { "are" };
    (!names.is_empty())
        .then(|| format!("{} {are} defined and not listed under `policies`, so not measured", names.join(", ")))
}

/// Chat models that are asked without their template.
pub(super) fn without_template(prepared: &Prepared) -> Vec<String> {
    let note = |model_task: &ModelTask| {
        format!(
            "{} has a chat template, and {} on {} asks without it; with `write: {{chat_template: true}}` prompts go through it",
            model_task.model, model_task.task.name, model_task.task.dataset
        )
    };
    prepared.model_tasks.iter().filter(|model_task| is_asked_plainly(model_task)).map(note).collect()
}

fn is_asked_plainly(model_task: &ModelTask) -> bool {
    let name = model_task.model.source.to_string().to_lowercase();
    let is_chat_model =
        name.contains("instruct") || name.contains("chat") || name.split(['-', '.', '/']).any(|part| part == "it");
    let samples = &model_task.samples;
    // Of choices only the likelihood is asked for, and some prompts are plain text by definition.
    let writes = samples.request(0).is_some_and(|request| request.continuations.is_empty() && !request.is_plain);
    let leaves_out = model_task.task.generation.as_ref().is_some_and(|generation| !generation.chat_template);
    is_chat_model && writes && leaves_out && matches!(model_task.files.chat_template(), Ok(Some(_)))
}
