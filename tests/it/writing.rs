//! Generation against an obvious definition (and, for the full cache, against transformers, see `tests/golden/README.md`):
//! the same tokens, however the prompt is split into reads and whatever is generated beside it.

use crate::support::material;
use std::path::{Path, PathBuf};

use crate::support::checkpoint::{GOLDENS, load};
use serde::Deserialize;
use tova_bench::eviction::{Policy, Schedule, presets};
use tova_bench::lm::{
    Generated, GenerationSettings, Generator, LanguageModel, MemoryPlan, PrefilledPrompt, Sampling, Tokenizer,
};

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    policy: String,
    size: Option<usize>,
    one_shot: bool,
    prompt: usize,
    written: Vec<u32>,
}

fn greedy() -> GenerationSettings {
    GenerationSettings {
        sampling: Sampling::Greedy,
        repetition_penalty: 1.0,
        stop_tokens: Vec::new(),
        stop_strings: Vec::new(),
    }
}

fn json<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A prompt read `chunk` tokens at a time.
fn start(
    model: &LanguageModel,
    prompt: &[u32],
    case: &Case,
    chunk: usize,
    (seed, max_new_tokens): (u64, usize),
) -> PrefilledPrompt {
    let schedule = if case.one_shot { Schedule::CutThenEvery(1) } else { Schedule::default() };
    let policy =
        presets::by_name(&case.policy).map(|policy| Policy { schedule, ..policy }.at(case.size.unwrap()).unwrap());
    assert!(policy.is_some() || case.policy == "full", "unknown policy {}", case.policy);
    let plan = MemoryPlan { policy, ..MemoryPlan::unbounded() };
    let mut memory = model.new_memory(&plan);
    let mut state = None;
    for piece in prompt.chunks(chunk) {
        let states = model.read(piece, &mut memory).unwrap();
        state = Some(states.narrow(0, piece.len() - 1, 1).unwrap());
    }
    if case.one_shot {
        model.cut(&mut memory).unwrap();
        assert!(memory.survivors().iter().flatten().all(|born| born.len() == case.size.unwrap()));
    }
    PrefilledPrompt { memory, state: state.unwrap(), prompt: prompt.to_vec(), seed, max_new_tokens }
}

/// Every case of a golden, its prompt read in pieces of several lengths, alone and side by side.
fn check(golden: &Path, checkpoint: &Path, tokenizer: &Tokenizer) -> (usize, usize) {
    let model = load(checkpoint);
    let prompt = ["prompt.json", "tokens.json"].map(|name| golden.join(name)).into_iter().find(|p| p.exists());
    let text: Vec<u32> = json(&prompt.unwrap());
    let Golden { cases } = json(&golden.join("written.json"));
    let mut tokens = 0;
    for case in &cases {
        let name = format!("{} {} {:?} {}", golden.display(), case.policy, case.size, case.one_shot);
        let writing = greedy();
        let starts = [1, 7, usize::MAX]
            .map(|chunk| {
                start(&model, &text[..case.prompt], case, chunk.min(case.prompt), (0, case.written.len()))
            })
            .into_iter()
            .collect();
        for written in model.generate(starts, &writing, &|tokens| tokenizer.decode(tokens)).unwrap() {
            assert_eq!(written.tokens, case.written, "{name}");
            assert!(!written.ended);
        }
        tokens += case.written.len();
    }
    // All at once: different policies, sizes and prompts.
    let starts = cases
        .iter()
        .map(|case| start(&model, &text[..case.prompt], case, usize::MAX >> 1, (0, case.written.len())))
        .collect();
    for (written, case) in
        model.generate(starts, &greedy(), &|tokens| tokenizer.decode(tokens)).unwrap().iter().zip(&cases)
    {
        assert_eq!(written.tokens, case.written, "side by side: {} {}", case.policy, case.prompt);
    }
    (cases.len(), tokens)
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn generated_texts_equal_the_goldens() {
    let bytes = Tokenizer::bytes().unwrap();
    for name in GOLDENS {
        let folder = golden().join(name);
        let (cases, tokens) = check(&folder, &folder, &bytes);
        assert!(cases >= 18, "{name} has only {cases} cases");
        eprintln!("{name}: {cases} cases, {tokens} tokens");
    }
}

#[test]
fn the_pocket_model_generates_the_same_as_transformers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/pocket");
    let tokenizer = Tokenizer::read(&folder.join("tokenizer.json"), None, None).unwrap();
    let (cases, tokens) = check(&golden().join("pocket"), &folder, &tokenizer);
    eprintln!("pocket: {cases} cases, {tokens} tokens");
}

#[test]
fn generated_texts_equal_the_shared_goldens() {
    let Some(data) = material::data("generated_texts_equal_the_shared_goldens") else { return };
    let checkpoint = data.join("data/checkpoints/TinyStories-656K");
    let tokenizer = Tokenizer::read(&checkpoint.join("tokenizer.json"), None, None).unwrap();
    let (cases, tokens) = check(&golden().join("tinystories-656k"), &checkpoint, &tokenizer);
    eprintln!("tinystories-656k: {cases} cases, {tokens} tokens");
}

fn plain(policy: &str, size: Option<usize>) -> Case {
    Case { policy: policy.into(), size, one_shot: false, prompt: 40, written: Vec::new() }
}

fn drawn(seed: u64, threads: usize, beside: usize) -> Vec<Generated> {
    let folder = golden().join("yi-gqa");
    let model = load(&folder);
    let text: Vec<u32> = json(&folder.join("tokens.json"));
    let sampling = Sampling::Drawn { temperature: 0.8, top_k: Some(30), top_p: Some(0.9) };
    let writing = GenerationSettings { sampling, repetition_penalty: 1.1, ..greedy() };
    let bytes = Tokenizer::bytes().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let starts = (0..beside as u64)
            .map(|n| {
                start(&model, &text[..40 + n as usize], &plain("tova", Some(12)), 11 + n as usize, (seed + n, 50))
            })
            .collect();
        model.generate(starts, &writing, &|tokens| bytes.decode(tokens)).unwrap()
    })
}

#[test]
fn drawn_texts_depend_on_the_seed_alone() {
    let five = drawn(7, 1, 5);
    assert_eq!(five, drawn(7, 3, 5));
    assert_eq!(five[0], drawn(7, 2, 1)[0]);
    assert_ne!(five[0].tokens, drawn(8, 1, 1)[0].tokens);
    assert_ne!(five[0].tokens, five[1].tokens);
}

#[test]
fn tokens_and_strings_end_a_text() {
    let folder = golden().join("llama-mha");
    let model = load(&folder);
    let text: Vec<u32> = json(&folder.join("tokens.json"));
    let bytes = Tokenizer::bytes().unwrap();
    let write = |writing: &GenerationSettings| {
        let starts = vec![start(&model, &text[..40], &plain("full", None), 40, (0, 30))];
        model.generate(starts, writing, &|tokens| bytes.decode(tokens)).unwrap().remove(0)
    };
    let free = write(&greedy());
    assert_eq!((free.tokens.len(), free.ended), (30, false));
    let stop = free.tokens[12];
    let first = free.tokens.iter().position(|token| *token == stop).unwrap();
    let stopped = write(&GenerationSettings { stop_tokens: vec![stop], ..greedy() });
    assert_eq!((stopped.tokens.as_slice(), stopped.ended), (&free.tokens[..first], true));
    let letters: Vec<char> = free.text.chars().collect();
    let word: String = letters[5..8].iter().collect();
    let stopped = write(&GenerationSettings { stop_strings: vec!["no such".into(), word.clone()], ..greedy() });
    assert_eq!((stopped.text.as_str(), stopped.ended), (&free.text[..free.text.find(&word).unwrap()], true));
    assert!(stopped.tokens.len() <= 8 && free.tokens.starts_with(&stopped.tokens));
}

#[test]
fn texts_that_join_later_are_those_of_each_alone() {
    let folder = golden().join("llama-mha");
    let model = load(&folder);
    let text: Vec<u32> = json(&folder.join("tokens.json"));
    let bytes = Tokenizer::bytes().unwrap();
    let decode = |tokens: &[u32]| bytes.decode(tokens);
    let writing = greedy();
    let lengths = [30, 3, 17, 1, 25];
    let prompt =
        |key: usize| start(&model, &text[..30 + 7 * key], &plain("tova", Some(12)), 100, (0, lengths[key]));
    let mut generator = Generator::new(&model, &writing, &decode);
    let (mut waiting, mut texts) = (0..lengths.len(), vec![None; lengths.len()]);
    loop {
        while generator.open() < 2
            && let Some(key) = waiting.next()
        {
            generator.add(key, prompt(key)).unwrap();
        }
        if generator.open() == 0 {
            break;
        }
        for ended in generator.step().unwrap() {
            assert!(texts[ended.key].replace(ended.text.unwrap()).is_none());
        }
    }
    for (key, written) in texts.into_iter().enumerate() {
        let alone = model.generate(vec![prompt(key)], &writing, &decode).unwrap().remove(0);
        assert_eq!(alone.tokens.len(), lengths[key]);
        assert_eq!(written, Some(alone), "text {key}");
    }
}

/// A bounded cache is as large at the end as at the start.
#[test]
fn a_bounded_cache_does_not_grow_while_generating() {
    let folder = golden().join("llama-mha");
    let model = load(&folder);
    let text: Vec<u32> = json(&folder.join("tokens.json"));
    let bytes = |case: &Case, new: usize| {
        let starts = vec![start(&model, &text, case, 50, (0, new))];
        model.generate(starts, &greedy(), &|_| Ok(String::new())).unwrap().remove(0).cache_bytes
    };
    assert_eq!(bytes(&plain("tova", Some(12)), 2), bytes(&plain("tova", Some(12)), 300));
    assert!(bytes(&plain("full", None), 300) > bytes(&plain("full", None), 2));
    let one_shot = Case { one_shot: true, ..plain("tova", Some(12)) };
    assert_eq!(bytes(&one_shot, 2), bytes(&plain("tova", Some(12)), 2));
}
