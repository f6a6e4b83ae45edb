//! `doctor`: what this machine can do, and what to do where it can't.

use anyhow::Result;

use super::args::DoctorArguments;
use super::cores;
use super::sweeps::{bytes, count};
use crate::lm::source::{HubSettings, ModelSource};
use crate::lm::{ModelFiles, available_memory, card_memory, device_name, matrix_rate};
use crate::sweep::{ENGINE_VERSION, SCHEMA_VERSION};
use crate::vector;

pub fn doctor(arguments: &DoctorArguments) -> Result<String> {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text += &format!("{name:<14} {value}\n");
    let commit = option_env!("TOVA_BENCH_COMMIT").unwrap_or("not built in a checkout");
    line(
        "version",
        format!("{} ({commit}), engine {ENGINE_VERSION}, schema {SCHEMA_VERSION}", env!("CARGO_PKG_VERSION")),
    );
    line(
        "device",
        match arguments.device.open() {
            Ok(device) => device_name(&device),
            Err(error) => format!("{error:#}"),
        },
    );
    line(
        "CUDA",
        if cfg!(feature = "cuda") { "built in" } else { "not built in (cargo build --release --features cuda)" }
            .into(),
    );
    if let Some((free, total)) = card_memory() {
        line("card memory", format!("{} free of {}", bytes(free as u64), bytes(total as u64)));
    }
    line("cores", cores().to_string());
    line("vectors", vector::instruction_set());
    line(
        "products",
        format!(
            "{:.0} GFLOP/s in f32 with one thread, {:.0} with {}",
            matrix_rate(1)? / 1e9,
            matrix_rate(cores())? / 1e9,
            cores()
        ),
    );
    line(
        "memory",
        match available_memory() {
            Some(free) => format!("{} free", bytes(free)),
            None => "not known on this system".into(),
        },
    );
    let hub = HubSettings::from_env()?;
    line("hub", format!("{}{}", hub.endpoint, if hub.offline { ", offline (HF_HUB_OFFLINE)" } else { "" }));
    line(
        "cache",
        format!(
            "{}{}",
            hub.cache_dir.display(),
            if hub.cache_dir.is_dir() { "" } else { " (made at the first download)" }
        ),
    );
    let pocket = ModelFiles::find(&ModelSource::Pocket, &hub, &())?;
    line(
        "pocket model",
        format!("{} parameters, {}, in the program", count(pocket.shape.parameters()), pocket.revision()?),
    );
    line("token", if hub.token.is_some() { "present" } else { "none; gated models need HF_TOKEN" }.into());
    Ok(text)
}
