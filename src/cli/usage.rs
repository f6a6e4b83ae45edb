//! Advice for arguments that the program does not have, as users of other programs write them.

use std::path::Path;

use clap::error::{ContextKind, ContextValue};

/// Flags of other programs, and what to do here.
const FLAGS: &[(&str, &str)] = &[
    ("--resume", RESUME),
    ("--continue", RESUME),
    ("--gpu", DEVICE),
    ("--gpus", DEVICE),
    ("--cuda", DEVICE),
    ("--config", SWEEP),
    ("--sweep", SWEEP),
];
const RESUME: &str = "a run always goes on where an earlier one stopped: repeat the command without the flag";
const DEVICE: &str = "write --device cuda, or --device cuda:1 for the second GPU";
const SWEEP: &str = "name the sweep's file without a flag, as in `tova-bench run sweep.yaml`";

/// What to type instead; `None` where there is no advice beyond the message.
pub(super) fn hint(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if let Some(argument) = text(ContextKind::InvalidArg) {
        let name = argument.split('=').next().unwrap_or(argument);
        return FLAGS.iter().find(|(flag, _)| *flag == name).map(|(_, advice)| (*advice).to_owned());
    }
    let command = text(ContextKind::InvalidSubcommand)?;
    let is_sweep = Path::new(command).extension().is_some_and(|end| end == "yaml" || end == "yml");
    is_sweep.then(|| format!("to measure a sweep, write `tova-bench run {command}`"))
}
