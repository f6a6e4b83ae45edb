//! The pocket model: the checkpoint `models/pocket` inside the program, so that a first run needs no files and no
//! network.
//!
//! It is read like any checkpoint: the folder on disk has the same revision and gives the same bits.

use anyhow::Result;

use super::source::digest_of;
use super::weights::Weights;

pub(in crate::lm) const CONFIG: &str = include_str!("../../../models/pocket/config.json");
pub(in crate::lm) const TOKENIZER: &str = include_str!("../../../models/pocket/tokenizer.json");
pub(in crate::lm) const TOKENIZER_CONFIG: &str = include_str!("../../../models/pocket/tokenizer_config.json");
pub(in crate::lm) const GENERATION_CONFIG: &str = include_str!("../../../models/pocket/generation_config.json");
pub(in crate::lm) const WEIGHTS: &[u8] = include_bytes!("../../../models/pocket/model.safetensors");

pub(in crate::lm) fn weights() -> Result<Weights> {
    Weights::from_bytes(WEIGHTS.into())
}

/// Revision of the model, which equals that of a folder with the same files.
pub(in crate::lm) fn revision() -> Result<String> {
    let files = [
        ("config.json", CONFIG.as_bytes()),
        ("model.safetensors", WEIGHTS),
        ("tokenizer.json", TOKENIZER.as_bytes()),
    ];
    digest_of(files.map(|(name, bytes)| Ok((name.to_owned(), bytes.len() as u64, bytes))))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::source::HubSettings;
    use crate::lm::arithmetic::types::WeightType;
    use crate::lm::cache::plan::MemoryPlan;
    use crate::lm::device::Device;
    use crate::lm::open::ModelFiles;

    #[test]
    fn the_folder_and_the_program_contain_the_same_model() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/pocket");
        let hub = HubSettings::with_cache_dir("nowhere");
        let [inside, outside] = ["pocket", folder.to_str().unwrap()].map(|name| {
            let files = ModelFiles::find(&name.parse().unwrap(), None, &hub, &()).unwrap();
            let tokens = files.tokenizer().unwrap().encode("Mara lives in Tarn. It rained; she stayed.").unwrap();
            let tokens = [vec![files.tokenizer().unwrap().bos().unwrap()], tokens.ids].concat();
            let model = files.load(WeightType::Auto, &Device::CPU).unwrap();
            let states = model.read(&tokens, &mut model.new_memory(&MemoryPlan::unbounded())).unwrap();
            let nll = model.nll(&states.narrow(0, 0, tokens.len() - 1).unwrap(), &tokens[1..]).unwrap();
            let nll: Vec<u32> = nll.into_iter().map(f32::to_bits).collect();
            (files.revision().unwrap(), files.weight_bytes(), model.dtype(), tokens, nll)
        });
        assert_eq!(inside, outside);
    }
}
