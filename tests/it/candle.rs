//! The network against another implementation: the Llama of candle-transformers, which returns the last position's
//! logits with an unbounded cache.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama;
use tova_bench::lm::{LanguageModel, MemoryPlan, ModelShape, WeightType};

#[test]
fn last_logits_are_those_of_candle() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/yi-gqa");
    let weights = folder.join("model.safetensors");
    let device = Device::Cpu;

    let config: llama::LlamaConfig =
        serde_json::from_str(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap();
    let config = config.into_config(false);
    let tensors: HashMap<String, Tensor> = candle_core::safetensors::load(&weights, &device).unwrap();
    let theirs = llama::Llama::load(VarBuilder::from_tensors(tensors, DType::F32, &device), &config).unwrap();

    let shape = ModelShape::read(&folder.join("config.json")).unwrap();
    let vocab = shape.vocab as u32;
    let ours = LanguageModel::load(shape, &[weights], WeightType::Auto, &tova_bench::lm::Device::CPU).unwrap();

    for length in [1u32, 2, 33, 150] {
        let tokens: Vec<u32> = (0..length).map(|i| (i * i + 7 * i + 3) % vocab).collect();
        let mut cache = llama::Cache::new(true, DType::F32, &config, &device).unwrap();
        let input = Tensor::new(tokens.as_slice(), &device).unwrap().unsqueeze(0).unwrap();
        let expected = theirs.forward(&input, 0, &mut cache).unwrap().flatten_all().unwrap();
        let expected = expected.to_vec1::<f32>().unwrap();

        let mut memory = ours.new_memory(&MemoryPlan::unbounded());
        let states = ours.read(&tokens, &mut memory).unwrap();
        let last = states.narrow(0, tokens.len() - 1, 1).unwrap();
        let logits = &ours.logits(&last).unwrap()[0];
        assert_eq!(logits.len(), expected.len());
        let worst = logits.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 2e-4, "{length} tokens: logits differ by {worst}");
    }
}
