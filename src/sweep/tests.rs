//! What sweep files mean, which ids their cells get, and which errors wrong files give.

use super::*;
use crate::eviction::{Heads, Positions};
use crate::lm::{Arithmetic, LayerAttention, ModelShape, WeightType, tiny_shape};
use crate::task::GenerationConfig;

const SMALL: &str = "\
models: [random-tiny]
policies: [full, truncate, window+4, tova]
cache_sizes: [64, 16]
tasks:
  - perplexity: {dataset: random-words, length: 128}
";

fn sweep(yaml: &str) -> Sweep {
    Sweep::parse(yaml, "small.yaml").unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

fn ids(yaml: &str) -> Vec<String> {
    sweep(yaml).expand().iter().map(|cell| cell.spec().to_string()).collect()
}

/// The settings of a task, a line each.
fn settings(task: &TaskSpec) -> String {
    task.of_cell().iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

/// A model of so many layers, with two key-value heads.
fn shape(layers: usize) -> ModelShape {
    let heads = Heads { heads: 4, kv_heads: 2 };
    ModelShape { layers, heads, attention: vec![LayerAttention::default(); layers], ..tiny_shape() }
}

/// The budget of a cell's policy, as rows have it.
fn budget_of(cell: &Cell) -> String {
    cell.cache.rule.policy().unwrap().budget.to_string()
}

/// The cell as such a model of four layers takes it.
fn resolved(cell: &Cell) -> ResolvedCell {
    cell.resolve(&shape(4), cell.model.dtype, true, |config| Ok(config.cache)).unwrap()
}

/// The only id of a sweep with one policy and one size, with one setting of the task changed.
fn id_of(policy: &str, size: &str, task: &str, rest: &str) -> String {
    let yaml = format!(
        "models: [random-tiny]\npolicies: [{policy}]\ncache_sizes: [{size}]\n\
         tasks: [{{perplexity: {{dataset: random-words{task}}}}}]\n{rest}"
    );
    let ids = ids(&yaml);
    assert_eq!(ids.len(), 1, "{yaml}");
    ids[0].clone()
}

/// The error of a wrong file, below the line that it points at. Its place must be the last occurrence of `at`.
#[track_caller]
fn refusal(yaml: &str, at: &str) -> String {
    let before = &yaml[..yaml.rfind(at).expect(at)];
    let (line, start) = (before.matches('\n').count(), before.rfind('\n').map_or(0, |end| end + 1));
    let error = Sweep::parse(yaml, "small.yaml").expect_err(yaml);
    assert_eq!(
        error.place,
        Some((line as u64 + 1, (before.len() - start + 1) as u64)),
        "place of {error}\n{yaml}"
    );
    format!("{}\n{error}\n\n", yaml.lines().nth(line).unwrap().trim())
}

/// Policies and sizes of the cells.
fn cells(yaml: &str) -> Vec<(String, Option<usize>)> {
    sweep(yaml).expand().iter().map(|cell| (cell.label(), cell.cache.rule.size())).collect()
}

#[test]
fn cells_come_in_the_order_of_the_file() {
    let both = |policy: &str| [(policy.to_string(), Some(16)), (policy.to_string(), Some(64))];
    let full = [("full".to_string(), None)];
    assert_eq!(cells(SMALL), [&full[..], &both("truncate"), &both("window+4"), &both("tova")].concat());
    assert_eq!(sweep(SMALL).name, "small");
    let yaml = SMALL.replace("[full, truncate, window+4, tova]", "[window, window+0, mine, full]")
        + "define: {mine: {score: recency, scope: head}}\n";
    // Equal policies are two lines of a table, and one measurement.
    assert_eq!(cells(&yaml), [&both("window")[..], &both("window+0"), &both("mine"), &full].concat());
    let ids = ids(&yaml);
    assert_eq!((&ids[..2], &ids[..2]), (&ids[2..4], &ids[4..6]));
    // The full cache has nothing to be compared with, and so is one cell of two tasks.
    let two = SMALL.replace(
        "tasks:\n",
        "tasks:\n  - perplexity: {dataset: random-words, length: 128, compare_to_full: true}\n",
    );
    assert_eq!(cells(&two).iter().filter(|(policy, _)| policy == "full").count(), 1);
}

#[test]
fn a_published_id_is_stable() {
    let cells = sweep(SMALL).expand();
    let cell = resolved(&cells[5]);
    let expected =
        r#"{"schema":11,"engine":8,"model":"0123abc","dtype":"auto","arithmetic":"f32","cache":{"rule":"evict","#
            .to_owned()
            + r#""policy":"score=last_attention scope=layer keep_first=0 keep_recent=0 budget=uniform schedule=1","#
            + r#""size":16,"relative":null,"options":{}},"#
            + r#""task":[["task","perplexity"],["length","128"],["stride","sample"],["bos","true"],["tail","drop"],"#
            + r#"["compare_to_full","false"],["books","all"],["chunks_per_book","all"]],"content":"sha256:ff","seed":null,"request":null}"#;
    assert_eq!(cell.meaning("0123abc", cell.task.of_cell(), "sha256:ff").text(), expected);
    let id = cell.id("0123abc", "sha256:ff");
    // If this changes, every result file ever written is orphaned: bump SCHEMA_VERSION or ENGINE_VERSION instead.
    assert_eq!(id.to_string(), "fe28921069f7558a");
    assert_eq!(cell.name(id).stem(), "perplexity__random-tiny__tova__16__fe28921069f7558a");
}

#[test]
fn file_names_are_safe() {
    let mut cell = sweep(SMALL).expand().remove(0);
    let id = resolved(&cell).id("r", "d");
    for (source, slug) in [
        ("meta-llama/Llama-2-7b-hf", "meta-llama-Llama-2-7b-hf"),
        ("a/b@refs/pr/1", "a-b-refs-pr-1"),
        ("./models/my model/", "my-model"),
        ("/x/größe__1", "gr-e_1"),
        ("../..", "unnamed"),
    ] {
        cell.model.source = source.parse().unwrap();
        assert_eq!(resolved(&cell).name(id).stem(), format!("perplexity__{slug}__full__unbounded__{id}"));
    }
}

#[test]
fn equal_meanings_have_equal_ids() {
    let base = id_of("tova", "64", "", "");
    assert_eq!(base, id_of("tova+0", "64", "", ""));
    assert_eq!(base, id_of("mine", "64", "", "define: {mine: {score: last_attention, scope: layer}}"));
    assert_eq!(base, id_of("mine", "64", "", "define: {mine: {score: 2 * attention, scope: layer}}"));
    let formula =
        |score: &str| id_of("mine", "64", "", &format!("define: {{mine: {{score: '{score}', scope: head}}}}"));
    assert_eq!(formula("age + 9 * attention"), formula("(attention * 9 + age) / 3"));
    assert_ne!(formula("age + 9 * attention"), formula("age + 8 * attention"));
    assert_eq!(
        base,
        id_of("tova", "64", ", length: 4096, stride: null, bos: auto, tail: drop, books: null, start: 0", "")
    );
    assert_eq!(id_of("tova", "64", ", books: [7, a]", ""), id_of("tova", "64", ", books: [7.txt, a]", ""));
    let random = |seed: &str| id_of("tova", "64", &format!(", chunks_per_book: 1, start: random{seed}"), "");
    assert_eq!(random(""), random(":0"));
    assert_eq!(base, id_of("tova", "64", "", "seed: 7\nname: other\npositions: absolute"));
    assert_eq!(base, id_of("tova", "64", ", eviction_log: true", ""));
    // "No overlap" in two spellings, once BOS is known.
    assert_eq!(id_of("tova", "64", ", bos: true", ""), id_of("tova", "64", ", bos: true, stride: 4095", ""));
    assert_eq!(id_of("tova", "64", ", bos: false", ""), id_of("tova", "64", ", bos: false, stride: 4096", ""));
    // Recency has neither scope nor protected recent entries; the full cache has neither positions nor a comparison.
    let recency = "define: {mine: {score: recency, scope: head, keep_recent: 10%}}";
    assert_eq!(id_of("window", "64", "", ""), id_of("mine", "64", "", recency));
    assert_eq!(id_of("full", "", "", ""), id_of("full", "64", "", "positions: slot"));
    assert_eq!(id_of("full", "64", "", ""), id_of("full", "64", ", compare_to_full: true", ""));
}

#[test]
fn the_eviction_log_is_not_part_of_an_id() {
    let text = |more: &str| {
        let task = format!("retention: {{dataset: ./texts, length: 128{more}}}");
        let yaml = format!("models: [random-tiny]\npolicies: [tova]\ncache_sizes: [16]\ntasks: [{task}]\n");
        settings(&sweep(&yaml).expand()[0].task)
    };
    let expected = "task=retention\nlength=128\nstride=sample\nbos=auto\ntail=drop\nbooks=all\nchunks_per_book=all\n\
        maps=1\nmap_layers=all\n";
    assert!(text("").ends_with(expected), "{}", text(""));
    assert_eq!(text(""), text(", eviction_log: true, map_layers: null"));
    assert_eq!(text(", maps: 0, map_layers: [1]"), text(", maps: 0"));
    assert_eq!(text(", map_layers: [3, 1]"), text(", map_layers: [1, 3]"));
    assert_ne!(text(", map_layers: [3]"), text(""));
}

#[test]
fn different_settings_have_different_ids() {
    // Sizes beyond the text are cells of their own too.
    let mut ids: Vec<String> = ["65", "4096", "4097"].map(|size| id_of("tova", size, "", "")).into();
    for policy in ["full", "truncate", "window", "window+1", "tova", "tova-head", "h2o", "random"] {
        ids.push(id_of(policy, "64", "", ""));
    }
    let texts = "length: 2048; stride: 100; bos: true; bos: false; tail: keep; books: 2; books: [a, b]; books: [b, a]; \
        chunks_per_book: 2; chunks_per_book: 2, start: middle; chunks_per_book: 2, start: random; chunks_per_book: 2, start: \
        'random:1'; start: 1; compare_to_full: true";
    ids.extend(texts.split("; ").map(|setting| id_of("tova", "64", &format!(", {setting}"), "")));
    ids.extend(["slot", "squeezed"].map(|own| id_of("tova", "64", "", &format!("positions: {own}"))));
    ids.push(id_of("random", "64", "", "seed: 1"));
    let mine = "define: {mine: {score: last_attention, scope: layer, keep_recent: 1}}";
    ids.push(id_of("mine", "64", "", mine));
    let cell = sweep(SMALL).expand().remove(5);
    let mut other = cell.clone();
    other.model.dtype = WeightType::Bf16;
    let (cell, other) = (resolved(&cell), resolved(&other));
    let others = [cell.id("r", "d"), cell.id("r2", "d"), cell.id("r", "d2"), other.id("r", "d")];
    // A mark in a value must not make another key.
    ids.extend(others.into_iter().chain([cell.id("r\",\"dtype\":\"f32", "d")]).map(|id| id.to_string()));
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
}

#[test]
fn every_setting_is_read() {
    let sweep = sweep(
        "name: everything
models: [meta-llama/Llama-2-7b-hf@abc123, {source: ./m.gguf, name: mine, tokenizer: a/b, dtype: bf16}]
policies: [tova-r16, h2o-10@squeezed]
define:
  tova-r16: {score: last_attention, scope: layer, keep_first: 4, keep_recent: 16}
  h2o-10: {score: accumulated_attention, scope: head, keep_recent: \"10%\"}
cache_sizes: [64]
positions: slot
tasks: [{perplexity: {dataset: emozilla/pg19-test, length: 1024, stride: 512, bos: false, tail: keep,
                      books: 3, chunks_per_book: 2, compare_to_full: true}}]
seed: 42
",
    );
    assert_eq!((sweep.name.as_str(), sweep.seed), ("everything", 42));
    let model = ModelSpec {
        name: Some("mine".to_owned()),
        source: "./m.gguf".parse().unwrap(),
        tokenizer: Some("a/b".parse().unwrap()),
        dtype: WeightType::Bf16,
        arithmetic: Arithmetic::F32,
        rope_scaling: None,
    };
    assert_eq!(sweep.models[1], model);
    let kept = sweep.policies.iter().map(|named| {
        let Some(policy) = named.rule.policy() else { panic!("a policy") };
        (policy.keep_first.of(64), policy.keep_recent.of(64), named.options.positions)
    });
    assert_eq!(kept.collect::<Vec<_>>(), [(4, 16, Positions::Slot), (0, 7, Positions::Squeezed)]);
    assert_eq!(sweep.tasks[0].dataset, "emozilla/pg19-test");
    assert_eq!(
        settings(&sweep.tasks[0]),
        "task=perplexity\nlength=1024\nstride=512\nbos=false\ntail=keep\ncompare_to_full=true\n\
         books=3\nchunks_per_book=2\n"
    );
}

/// A sweep of one task that generates text.
fn writes(task: &str, more: &str) -> String {
    format!("models: [random-tiny]\npolicies: [full, truncate, tova]\ncache_sizes: [64]\ntasks: [{task}]\n{more}")
}

/// The settings of a task, with a word in place of the digest of its files.
fn without_digest(settings: &str) -> String {
    let line = |line: &str| {
        if line.starts_with("benchmark=") { "benchmark=DIGEST\n".into() } else { format!("{line}\n") }
    };
    settings.lines().map(line).collect()
}

/// A task that can be named by itself is the benchmark of that name: the same specs, whatever its keys are.
#[test]
fn short_forms_are_benchmarks() {
    let mut said = String::new();
    let mut refused = |yaml: &str, at: &str| said += &refusal(yaml, at);
    for (task, keys) in [
        ("squality", "dataset: embedded, split: validation, documents: 2, prompt: paper"),
        ("qasper", "dataset: ./q, questions: 3, samples: 4, length: 900"),
        ("longbench", "dataset: ./q, version: e, subsets: [lcc, trec], write: {max_new_tokens: 9}"),
        ("math", "samples: 3, repeats: 2, write: {temperature: 1}"),
        ("needle", "lengths: [300, 400], depths: [7], fact: {needle: a, question: b, answer: c}"),
        ("ruler", "tasks: [vt, qa_1], squad: ./s.json, lengths: [1024], seed: 3"),
    ] {
        let ids = |form: &str| {
            let cells = sweep(&writes(form, "")).expand();
            cells
                .iter()
                .map(|cell| (resolved(cell).id("r", "d"), cell.spec(), cell.task.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ids(&format!("{{{task}: {{{keys}}}}}")),
            ids(&format!("{{benchmark: {{task: {task}, {keys}}}}}"))
        );
        assert_eq!(
            ids(&format!("{{{task}: {{dataset: ./q}}}}")),
            ids(&format!("{{benchmark: {{task: {task}, dataset: ./q}}}}"))
        );
    }
    let benchmark = |keys: &str| writes(&format!("{{benchmark: {{{keys}}}}}"), "");
    for (keys, at) in [
        ("task: gsm8k, split: test", "test}"),
        ("task: qasper, lengths: [300]", "300"),
        ("task: longbench_trec, subsets: [trec]", "trec]"),
        ("task: needle, tasks: [vt]", "vt]"),
    ] {
        refused(&benchmark(keys), at);
    }
    refused(&writes("{qasper: {task: squality}}", ""), "squality");
    refused(&benchmark("task: needle, length: 300, lengths: [400]"), "400");
    refused(&benchmark("task: qasper_paper, prompt: paper"), "paper}");
    insta::assert_snapshot!(said);
}

#[test]
fn every_setting_of_writing_is_read() {
    let yaml = writes(
        "{squality: {dataset: ./s, split: validation, prompt: paper, length: 2048, documents: 3, questions: 2, \
         write: {query_aware: false, max_new_tokens: 100, temperature: 0.7, top_k: 40, \
         top_p: 0.9, repetition_penalty: 1.2, chat_template: false, stop: [\"\\n\"]}}}",
        "schedule: cut+1\n",
    );
    let sweep = sweep(&yaml);
    assert_eq!(sweep.tasks[0].dataset, "./s");
    assert_eq!(
        without_digest(&settings(&sweep.tasks[0])),
        "task=squality\nbenchmark=DIGEST\nnum_fewshot=0\nlength=2048\nprompt=paper\nmax_new_tokens=100\n\
         temperature=0.7\ntop_k=40\ntop_p=0.9\nrepetition_penalty=1.2\nchat_template=false\nstop=\n\n\
         query_aware=false\nsplit=validation\ndocuments=3\nquestions=2\n"
    );
    // A cache that never evicts is not cut.
    let cells = sweep.expand();
    let prefills: Vec<_> = cells.iter().map(|cell| cell.task.prefill()).collect();
    assert_eq!(prefills, ["stream", "stream", "cut_before_question"]);
}

#[test]
fn write_has_the_expected_defaults() {
    let generation = |task: &str| sweep(&writes(task, "")).tasks[0].generation.clone().unwrap();
    let greedy = GenerationConfig::greedy;
    // What is a task file ends its answers as lm-evaluation-harness does.
    let of_file = |tokens| GenerationConfig { ends_as_in_the_harness: true, ..greedy(tokens) };
    assert_eq!(generation("{squality: {dataset: ./s}}"), of_file(512));
    assert_eq!(generation("{qasper: {dataset: tau/zero_scrolls}}"), of_file(128));
    assert_eq!(generation("{needle: {dataset: ./texts}}"), of_file(32));
    assert_eq!(generation("{longbench: {dataset: ./l}}"), of_file(512));
    assert_eq!(generation("{longbench: {dataset: ./l, subsets: [trec, musique]}}"), of_file(64));
    assert_eq!(generation("{longbench: {dataset: ./l, version: v2}}"), of_file(128));
    // Room for a prompt of 1,024 tokens, or for one as long as the answer.
    assert_eq!(generation("{math: {dataset: ./m}}"), of_file(3072));
    assert_eq!(generation("{math: {dataset: ./m, length: 101}}"), of_file(50));
    assert_eq!(generation("{math: {dataset: ./m, write: {max_new_tokens: 4000}}}"), of_file(4000));
    assert!(generation("story: {}").samples());
    assert!(generation("story: {}").chat_template && generation("{story: {request: Of rain.}}").chat_template);
    // A seed matters where it is used, and only there.
    let id = |task: &str, seed: &str| sweep(&writes(task, seed)).expand()[2].spec();
    assert_eq!(id("{qasper: {dataset: ./q}}", ""), id("{qasper: {dataset: ./q}}", "seed: 3"));
    assert_ne!(id("story: {}", ""), id("story: {}", "seed: 3"));
    let with = |task: &str, settings: &str| {
        let ids = settings.split("; ").map(|settings| id(&format!("{{{task}: {{{settings}}}}}"), ""));
        ids.collect::<Vec<_>>()
    };
    let questions = "dataset: ./q; dataset: ./q, prompt: paper; dataset: ./q, split: validation; \
        dataset: ./q, questions: 1; dataset: ./q, documents: 1";
    let write = "max_new_tokens: 64; temperature: 1; \
        temperature: 1, top_k: 5; temperature: 1, top_p: 0.5; repetition_penalty: 2; chat_template: false; stop: [a]";
    let needle = "dataset: ./q; dataset: ./q, depths: [50]; dataset: ./q, lengths: [128]; dataset: ./q, texts: 2; \
        dataset: ./q, fact: {needle: a, question: b, answer: c}";
    // A limit of the sweep is not the subsets' own, also if it is the largest of them.
    let longbench = "dataset: ./q; dataset: ./q, version: e; dataset: ./q, version: v2; dataset: ./q, samples: 1; \
        dataset: ./q, subsets: [trec]; dataset: ./q, subsets: [lcc, trec]; dataset: ./q, write: {max_new_tokens: 512}";
    let ruler = "samples: 2; seed: 1; tasks: [vt]; lengths: [1024]; dataset: ./q; squad: ./q.json; \
        write: {max_new_tokens: 128}; write: {max_new_tokens: 64}";
    let write = write.split("; ").map(|setting| format!("dataset: ./q, write: {{{setting}}}"));
    let ids = [
        with("qasper", questions),
        with("qasper", &write.collect::<Vec<_>>().join("; ")),
        with("squality", "dataset: ./q"),
        with("needle", needle),
        with("math", "dataset: ./q; dataset: ./q, samples: 2; dataset: ./q, length: 99; dataset: ./q, write: {temperature: 1}; \
            dataset: ./q, write: {temperature: 1}, repeats: 2"),
        with("story", "stories: 2"),
        with("longbench", longbench),
        with("ruler", ruler),
    ]
    .concat();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 39);
}

#[test]
fn mistakes_under_write_are_reported() {
    let mut said = String::new();
    let mut refused = |yaml: &str, at: &str| said += &refusal(yaml, at);
    let qasper = |rest: &str| writes(&format!("{{qasper: {{dataset: ./q{rest}}}}}"), "");
    refused(&qasper(", write: {max_new_tokens: 5000}"), "5000");
    refused(&qasper(", write: {temperature: -1}"), "-1");
    refused(&qasper(", write: {temperature: .nan}"), ".nan");
    refused(&qasper(", write: {top_k: 5}"), "5}");
    refused(&qasper(", write: {stop: [\"\"]}"), "\"\"");
    refused(&qasper(", write: {query_aware: false}"), "{qasper");
    refused(&writes("{qasper: {dataset: random-words}}", ""), "random-words");
    refused(&writes("{needle: {dataset: ./q, depths: [101]}}", ""), "101");
    let longbench = |rest: &str| writes(&format!("{{longbench: {{dataset: ./q, {rest}}}}}"), "");
    refused(&longbench("subsets: [qasper, lsht]"), "lsht");
    refused(&longbench("subsets: [qaspr]"), "qaspr");
    refused(&longbench("subsets: [musique], version: e"), "musique");
    refused(&longbench("subsets: [lcc, lcc]"), "lcc]");
    refused(&longbench("subsets: [lcc], version: v2"), "lcc]");
    refused(&qasper(", write: {prefill: one_shot}"), "prefill");
    let cut_early = |more: &str| longbench(&format!("{more}write: {{query_aware: false}}")) + "schedule: cut+1\n";
    refused(&cut_early("version: v2, "), "false");
    assert_eq!(sweep(&cut_early("")).expand()[2].task.prefill(), "cut_before_question");
    refused(&writes("{longbench: {dataset: embedded}}", ""), "embedded");
    refused(&writes("{math: {dataset: ./q, repeats: 4}}", ""), "4}");
    refused(&writes("{math: {dataset: random-words}}", ""), "random-words");
    refused(&writes("{ruler: {tasks: [vt, qa_1]}}", ""), "qa_1");
    refused(&writes("{ruler: {tasks: [vtt]}}", ""), "vtt");
    refused(&writes("{ruler: {lengths: [512]}}", ""), "512");
    refused(&writes("{story: {request: \" \"}}", ""), "\" \"");
    insta::assert_snapshot!(said);
}

/// Scores that a policy cannot have, and presets whose file is not there. (Formulas have tests of their own.)
#[test]
fn scores_without_what_they_need_are_reported() {
    let mut said = String::new();
    let mut refused = |yaml: &str, at: &str| said += &refusal(yaml, at);
    let sweep = |policy: &str, define: &str| {
        format!(
            "models: [random-tiny]\npolicies: [{policy}]\ncache_sizes: [64]\n{define}\
             tasks: [{{perplexity: {{dataset: random-words, length: 512, prompt: 50%}}}}]\n"
        )
    };
    let mine =
        |score: &str, more: &str| sweep("mine", &format!("define: {{mine: {{score: '{score}', {more}}}}}\n"));
    for (yaml, place) in [
        (mine("block(attention, 8)", "scope: head"), "mine]"),
        (mine("reread_attention", "scope: head"), "mine]"),
        (mine("reread_attention", "scope: head, schedule: 8"), "mine]"),
        (mine("smooth(attention, 4)", "scope: head"), "'smooth"),
        (mine("dot(\"./no.safetensors\", \"x\")", "scope: head"), "'dot"),
        (sweep("qfilters", ""), "qfilters"),
        (sweep("qfilters+4@cut", ""), "qfilters"),
        (sweep("snapkv@0", ""), "snapkv@0"),
    ] {
        refused(&yaml, place);
    }
    insta::assert_snapshot!(said);
}

/// Policies whose queries select, and those with one decision for all layers.
#[test]
fn selections_and_decisions_of_the_model_are_read() {
    let policies = "policies: [top-k, quest, quest@1+4, pages, first, all]".replace("@1+4", "+4@1");
    let sweep_of = |define: &str, policies: &str, task: &str| {
        format!(
            "models: [random-tiny]\n{policies}\ncache_sizes: [64]\npositions: slot\ndefine: {{{define}}}\ntasks: [{task}]\n"
        )
    };
    let perplexity = "{perplexity: {dataset: random-words, length: 512, prompt: 50%}}";
    let define = "pages: {select: {score: \"page_bound(8)\", from_layer: 1}, scope: layer}, \
                  first: {score: attention, scope: model, layers: [0]}, all: {score: attention, scope: model}";
    let cells = sweep(&sweep_of(define, &policies, perplexity)).expand();
    let found: Vec<String> =
        cells.iter().map(|cell| format!("{}: {}", cell.label(), cell.cache.rule.definition().unwrap())).collect();
    let of = |score: &str, scope: &str, first: usize, schedule: &str, more: &str| {
        let recent = usize::from(more == " select_from=2");
        format!(
            "score={score} scope={scope} keep_first={first} keep_recent={recent} budget=uniform schedule={schedule}{more}"
        )
    };
    // Where nothing leaves no key moves.
    let expected = [
        format!("top-k: {}", of("last_attention", "head", 0, "1", " select_from=0")),
        format!("quest: {}", of("page_bound(16)", "head", 0, "cut", " select_from=2")),
        format!("quest+4@1: {}", of("page_bound(16)", "head", 4, "1", " select_from=2")),
        format!("pages: {}", of("page_bound(8)", "layer", 0, "1", " select_from=1")),
        format!("first@slot: {}", of("last_attention", "model first", 0, "1", "")),
        format!("all@slot: {}", of("last_attention", "model", 0, "1", "")),
    ];
    assert_eq!(found, expected);
    let mut said = String::new();
    for (define, policies, task, place) in [
        ("mine: {score: attention, select: {score: logit}, scope: head}", "mine", perplexity, "mine: {score"),
        ("mine: {scope: head}", "mine", perplexity, "mine: {scope"),
        ("mine: {score: attention, scope: model, layers: []}", "mine", perplexity, "[]}}"),
        ("mine: {score: attention, scope: head, layers: [first]}", "mine", perplexity, "mine]"),
        ("mine: {score: \"page_bound(16)\", scope: layer}", "mine", perplexity, "mine]"),
        ("", "top-k@8", perplexity, "top-k@8"),
        ("", "top-k", "{retention: {dataset: random-words}}", "{retention"),
    ] {
        said += &refusal(&sweep_of(define, &format!("policies: [{policies}]"), task), place);
    }
    insta::assert_snapshot!(said);
}

/// A preset has a schedule of its own, before which the sweep's goes, and before that the policy's.
#[test]
fn a_preset_says_when_entries_leave() {
    let schedules = |more: &str| -> Vec<String> {
        let yaml = format!(
            "models: [random-tiny]\npolicies: [tova, snapkv, snapkv@1, r-kv, pyramidkv@cut+8]\ncache_sizes: [128]\n{more}\
             tasks: [{{perplexity: {{dataset: random-words, length: 512, prompt: 50%}}}}]\n"
        );
        sweep(&yaml).expand().iter().map(|cell| cell.cache.rule.schedule().to_string()).collect()
    };
    assert_eq!(schedules(""), ["1", "cut", "1", "128", "cut+8"]);
    assert_eq!(schedules("schedule: cut+2\n"), ["cut+2", "cut+2", "1", "cut+2", "cut+8"]);
}

#[test]
fn schedules_that_contradict_something_are_reported() {
    let mut said = String::new();
    let mut refused = |yaml: &str, at: &str| said += &refusal(yaml, at);
    let with = |policy: &str, task: &str, more: &str| {
        format!("models: [random-tiny]\npolicies: [{policy}]\ncache_sizes: [64]\ntasks: [{task}]\n{more}")
    };
    let perplexity = |more: &str| format!("{{perplexity: {{dataset: random-words, length: 512{more}}}}}");
    let define = |more: &str| format!("define: {{mine: {{score: attention, scope: layer, {more}}}}}\n");
    let cases = [
        (with("tova@cut", &perplexity(""), ""), "{perplexity"),
        (with("tova", &perplexity(""), "schedule: cut+16\n"), "{perplexity"),
        (with("tova@cut", "{retention: {dataset: random-words}}", ""), "{retention"),
        (with("mine", &perplexity(""), &define("keep_first: prompt")), "{perplexity"),
        (with("tova@8", "{qasper: {dataset: ./q, write: {query_aware: false}}}", ""), "{qasper"),
        (with("tova@8", "{retention: {dataset: random-words}}", ""), "{retention"),
        (with("full@cut", &perplexity(""), ""), "full@cut"),
        (with("tova@0", &perplexity(""), ""), "tova@0"),
        (with("tova@cut+", &perplexity(""), ""), "tova@cut+"),
        (with("tova", &perplexity(""), "schedule: 70000\n"), "schedule"),
        (with("mine", &perplexity(", prompt: 50%"), &define("keep_first: prompt, schedule: cut")), "mine]"),
        (with("tova", &perplexity(", prompt: 512"), ""), "512"),
        (with("tova", &perplexity(", prompt: 0%"), ""), "0%"),
        (with("tova", &perplexity(", prompt: 128, stride: 64"), ""), "128"),
        (with("tova", &perplexity(""), "").replace("[64]", "[0%]"), "0%"),
        (with("tova", &perplexity(""), "memory: [25%]"), "25%"),
        (
            with("tova", "timing: {length: 64, memory: 1 GB}", "").replace("cache_sizes: [64]", "memory: [25%]"),
            "timing",
        ),
        (with("tova", &perplexity(""), "").replace("cache_sizes: [64]", "memory: [25]"), "25"),
    ];
    for (yaml, place) in cases {
        refused(&yaml, place);
    }
    insta::assert_snapshot!(said);
}

#[test]
fn schedules_and_shares_are_read_in_every_place() {
    let of_sizes = |sizes: &str, policies: &str, more: &str| {
        let yaml = format!(
            "models: [random-tiny]\npolicies: [{policies}]\ncache_sizes: [{sizes}]\n\
             tasks: [{{perplexity: {{dataset: random-words, length: 1000, prompt: 80%}}}}]\n{more}"
        );
        let cells = sweep(&yaml).expand().into_iter();
        cells
            .map(|cell| (cell.label(), cell.size_text().unwrap_or_default(), cell.cache.rule.size()))
            .collect::<Vec<_>>()
    };
    let of = |policies: &str, more: &str| of_sizes("64, 12.5%", policies, more);
    let of_entries = |policies: &str, more: &str| of_sizes("64", policies, more);
    let row = |label: &str, size: &str, entries| (label.to_owned(), size.to_owned(), Some(entries));
    // Of the prompt's 800 tokens, whatever the policy.
    assert_eq!(of("tova@cut", ""), [row("tova@cut", "64", 64), row("tova@cut", "12.5%", 100)]);
    assert_eq!(of("h2o@8, truncate", "")[..2], [row("h2o@8", "64", 64), row("h2o@8", "12.5%", 100)]);
    let define = "define: {mine: {score: attention, scope: layer, schedule: cut+16}, other: {score: attention, scope: head}}\n";
    let labels: Vec<_> = of_entries("tova, mine, other, mine@1, window+4@slot", &format!("{define}schedule: 8\n"))
        .into_iter()
        .filter_map(|(label, size, _)| (size == "64").then_some(label))
        .collect();
    assert_eq!(labels, ["tova@8", "mine@cut+16", "other@8", "mine", "window+4@8@slot"]);
    // The schedule of every token is no part of an id.
    let ids = |more: &str| sweep(&(SMALL.to_owned() + more)).expand().iter().map(Cell::spec).collect::<Vec<_>>();
    assert_eq!(ids(""), ids("schedule: 1\n"));
    assert_ne!(ids(""), ids("schedule: 2\n"));
}

#[test]
fn first_tokens_can_be_protected_in_three_ways() {
    let mut said = String::new();
    let mut refused = |yaml: &str, at: &str| said += &refusal(yaml, at);
    let named = |policies: &str| {
        let define = "define: {mine: {score: last_attention, scope: head, keep_first: 2, keep_recent: 8}, \
            mine+9: {score: random, scope: layer}, a+b: {score: recency, scope: layer}, \
            share: {score: random, scope: layer, keep_first: \"10%\", keep_recent: \"25%\"}}\n";
        let cells = sweep(&(SMALL.replace("full, truncate, window+4, tova", policies) + define)).expand();
        let meaning = |cell: &Cell| match cell.cache.rule {
            CacheRule::Evict { policy, size } => {
                let sized = policy.at(size).unwrap();
                let text = policy.to_string().replace(" budget=uniform schedule=1", "");
                format!("{} at {size}: {text} of {}", cell.label(), sized.size)
            }
            rule => format!("{rule:?}"),
        };
        cells.iter().map(meaning).collect::<Vec<_>>()
    };
    let mine = |first: &str| format!("score=last_attention scope=head keep_first={first} keep_recent=8 of 16");
    assert_eq!(named("mine")[0], format!("mine at 16: {}", mine("2")));
    // `+I` stands in place of the definition's own `keep_first`.
    assert_eq!(named("mine+4")[0], format!("mine+4 at 16: {}", mine("4")));
    assert_eq!(named("mine+0@slot")[0], format!("mine+0@slot at 16: {}", mine("0")));
    // A defined name that has a `+` means itself.
    assert_eq!(named("mine+9")[0], "mine+9 at 16: score=random scope=layer keep_first=0 keep_recent=0 of 16");
    assert_eq!(named("mine+9+3")[0], "mine+9+3 at 16: score=random scope=layer keep_first=3 keep_recent=0 of 16");
    assert_eq!(named("a+b+1")[0], "a+b+1 at 16: score=recency scope=layer keep_first=1 keep_recent=0 of 16");
    assert_eq!(named("mine, mine+1, mine+9").len(), 6);
    assert_eq!(named("share")[1], "share at 64: score=random scope=layer keep_first=10% keep_recent=25% of 64");
    let all = format!("{SMALL}define: {{all: {{score: random, scope: layer, keep_first: 100%}}}}\n");
    refused(&all.replace("tova]", "all]"), "64, 16");
    let more = all.replace("keep_first: 100%", "keep_first: 50%, keep_recent: 51%");
    refused(&more.replace("tova]", "all]"), "64, 16");
    let mine = format!("{SMALL}define: {{mine: {{score: random, scope: layer}}}}\n");
    refused(&mine.replace("tova]", "mine+16]"), "16]");
    for unknown in ["mine+", "mine+04", "mine+-4", "mine+4+4", "mien+4"] {
        let yaml = mine.replace("tova]", &format!("{unknown}]"));
        refused(&yaml, &format!("{unknown}]"));
    }
    insta::assert_snapshot!(said);
}

#[test]
fn positions_can_be_a_policy_s_own() {
    let own = SMALL.replace("[full, truncate, window+4, tova]", "[full, window+4@slot, tova@squeezed, tova]");
    let labels: Vec<String> = cells(&own).into_iter().map(|(label, _)| label).step_by(2).collect();
    assert_eq!(labels, ["full", "window+4@slot", "tova@squeezed", "tova"]);
    assert_eq!(sweep(&own).expand()[1].policy, "window+4");
    assert_eq!(id_of("window+4@slot", "64", "", ""), id_of("window+4", "64", "", "positions: slot"));
    assert_eq!(id_of("tova@squeezed", "64", "", ""), id_of("tova", "64", "", "positions: squeezed"));
    // Other policies have the sweep's positions; repeating them changes nothing.
    assert_eq!(id_of("tova, tova@slot", "64", "", "positions: slot"), id_of("tova@slot", "64", "", ""));
    assert_eq!(id_of("tova@absolute", "64", "", "positions: slot"), id_of("tova", "64", "", ""));
}

#[test]
fn layers_with_a_window_can_be_exempt() {
    let own = SMALL.replace("[full, truncate, window+4, tova]", "[full, tova, tova@exempt, tova@slot@exempt]");
    let labels: Vec<String> = cells(&own).into_iter().map(|(label, _)| label).step_by(2).collect();
    assert_eq!(labels, ["full", "tova", "tova@exempt", "tova@slot@exempt"]);
    assert_eq!(id_of("tova@exempt", "64", "", ""), id_of("tova", "64", "", "local_layers: exempt"));
    assert_eq!(id_of("tova@bounded", "64", "", "local_layers: exempt"), id_of("tova", "64", "", ""));
    assert_ne!(id_of("tova@exempt", "64", "", ""), id_of("tova", "64", "", ""));
    assert_eq!(id_of("full", "64", "", "local_layers: exempt"), id_of("full", "64", "", ""));
    // A model without such layers has no use for it.
    let exempt = sweep(&own).expand().remove(3);
    assert_eq!(exempt.label(), "tova@exempt");
    let mut with_window = shape(4);
    with_window.attention[1].window = Some(64);
    let label = |shape: &ModelShape| {
        exempt.resolve(shape, WeightType::F32, true, |config| Ok(config.cache)).unwrap().label()
    };
    assert_eq!([label(&with_window), label(&shape(4))], ["tova@exempt", "tova"]);
}

/// Numbers of a formula's functions are checked for every size before anything is loaded, those of a budget's formula too.
#[test]
fn parameters_of_formulas_are_checked_at_every_size() {
    let mut said = String::new();
    let mut refused = |yaml: &str, at: &str| said += &refusal(yaml, at);
    let of = |score: &str, rest: &str| {
        let define = format!("define: {{mine: {{score: \"{score}\", scope: head{rest}}}}}\n");
        define + &SMALL.replace("tova]", "mine]")
    };
    refused(&of("window(attention, size - 16)", ""), "16]");
    let budget = ", budget: {pool: heads, score: 'peak(attention, size - 40)'}";
    refused(&of("attention", budget), "16]");
    sweep(&of("window(attention, size - 15)", ""));
    refused(&of("window(attention, 0/0)", ""), "\"window");
    refused(&of("log(attention - 1)", ""), "\"log");
    insta::assert_snapshot!(said);
}

/// `pool: max` is of both scores.
#[test]
fn a_budget_pools_heads_as_its_policy_does() {
    let budget = |pool: &str| {
        let define =
            format!("mine: {{score: attention, scope: head{pool}, budget: {{pool: heads, score: attention}}}}");
        let cell = sweep(&(SMALL.replace("tova]", "mine]") + "define: {" + &define + "}\n")).expand().remove(5);
        let CacheRule::Evict { policy, .. } = cell.cache.rule else { panic!("{cell:?}") };
        policy.budget.to_string()
    };
    assert_eq!(budget(", pool: max"), "pool heads 0% score=pooled_max(attention)");
    assert_eq!(budget(""), "pool heads 0% score=attention");
}

#[test]
fn layers_can_have_sizes_of_their_own() {
    let mut said = String::new();
    let mut refused = |yaml: &str, at: &str| said += &refusal(yaml, at);
    let define = |budget: &str| format!("define: {{mine: {{score: last_attention, scope: layer{budget}}}}}");
    let id = |budget: &str| id_of("mine", "64", "", &define(budget));
    let budgets = [
        ", budget: {pyramid: 20}",
        ", budget: {pyramid: 10}",
        ", budget: {layers: [3, 2, 2, 1]}",
        ", budget: {layers: [3, 2, 1, 2]}",
        ", budget: {layers: [3, 2.5, 2, 1]}",
        ", budget: {layers: [1, 1, 1, 1]}",
    ];
    let ids: HashSet<String> = budgets.iter().chain([&""]).map(|budget| id(budget)).collect();
    assert_eq!(ids.len(), 7);
    assert_eq!(id(""), id_of("tova", "64", "", ""));
    assert_eq!([id(""), id(", budget: null")], [id(""), id("")]);
    let cell = |budget: &str| {
        let yaml = SMALL.replace("tova]", "mine]") + &define(budget);
        sweep(&yaml).expand().remove(5)
    };
    assert_eq!(budget_of(&cell("")), "uniform");
    assert_eq!(budget_of(&cell(budgets[0])), "pyramid 20");
    assert_eq!(budget_of(&cell(budgets[4])), "layers 3 2.5 2 1");
    // Where every layer of a model gets the same, the meaning is that of no budget.
    let resolved = |budget: &str, layers: usize| {
        budget_of(&cell(budget).resolve(&shape(layers), WeightType::F32, true, |config| Ok(config.cache)).unwrap())
    };
    for budget in [budgets[5], ", budget: {pyramid: 1}", ", budget: {layers: [2.5, 2.5, 2.5, 2.5]}"] {
        assert_eq!(resolved(budget, 4), "uniform", "{budget}");
    }
    assert_eq!([resolved(budgets[0], 1), resolved(budgets[0], 4)], ["uniform", "pyramid 20"]);
    // A window's sizes depend on the entries that a pyramid protects, and otherwise not on them.
    let window =
        |rest: &str| id_of("mine", "64", "", &format!("define: {{mine: {{score: recency, scope: layer{rest}}}}}"));
    assert_ne!(window(", budget: {pyramid: 20}, keep_recent: 8"), window(", budget: {pyramid: 20}"));
    assert_eq!(window(", budget: {layers: [2, 1]}, keep_recent: 8"), window(", budget: {layers: [2, 1]}"));

    let wrong = |budget: &str| format!("{SMALL}{}\n", define(&format!(", budget: {budget}")));
    refused(&wrong("{pyramid: 0}"), "0}");
    refused(&wrong("{pyramid: 2.5}"), "2.5}");
    refused(&wrong("{pyramid: 20, layers: [1]}"), "{pyramid");
    refused(&wrong("{}"), "{}");
    refused(&wrong("{layers: []}"), "[]");
    for share in ["0", "-1", ".nan", ".inf", "5e9"] {
        let yaml = wrong(&format!("{{layers: [2, {share}]}}"));
        refused(&yaml, &format!("[2, {share}]"));
    }
    refused(&wrong("{layers: [2, x]}"), "x]");
    refused(&wrong("{pyramids: 20}"), "pyramids");
    refused(&wrong("pyramid"), "pyramid");
    // Heads, whose scope must be theirs.
    let by_head = |budget: &str, rest: &str| {
        format!("{SMALL}define: {{mine: {{score: attention, scope: head, budget: {budget}{rest}}}}}\n")
            .replace("tova]", "mine]")
    };
    for (budget, text) in [
        ("{pool: heads}", "pool heads 0%"),
        ("{pool: heads, floor: 20%}", "pool heads 20%"),
        ("{pool: model, floor: 5%, score: \"sum(attention)\"}", "pool model 5% score=sum(attention)"),
        ("{heads: [[full, 1], [2.5, 1]]}", "heads full 1/2.5 1"),
        ("{heads: [[0.3, 0.1], [0.25, 0.4]], full: 50%}", "heads full 1/1 full"),
    ] {
        assert_eq!(budget_of(&sweep(&by_head(budget, "")).expand().remove(5)), text);
    }
    let layer = by_head("{pool: heads}", "").replace("scope: head", "scope: layer");
    refused(&layer, "mine]");
    refused(&by_head("{pool: layers}", ""), "layers}");
    refused(&by_head("{pool: heads, floor: 120%}", ""), "120%");
    refused(&by_head("{pool: heads, score: \"sum(atention)\"}", ""), "\"sum(");
    refused(&by_head("{floor: 20%}", ""), "{floor");
    refused(&by_head("{pyramid: 20, full: 20%}", ""), "{pyramid");
    refused(&by_head("{heads: [[1, x]]}", ""), "x]");
    refused(&by_head("{heads: [[1, 2], [3]]}", ""), "[[1");
    refused(&by_head("{heads: [[full]]}", ""), "[[full");
    refused(&by_head("{heads: ./no.tsv}", ""), "./no.tsv");
    refused(&by_head("{pool: model}, keep_first: prompt", ""), "mine]");
    insta::assert_snapshot!(said);
}

#[test]
fn mistakes_are_reported_with_place_and_hint() {
    let mut said = String::new();
    let mut refused = |yaml: &str, at: &str| said += &refusal(yaml, at);
    let swap = |from: &str, to: &str| {
        assert!(SMALL.contains(from));
        SMALL.replace(from, to)
    };
    refused(&swap("length:", "lenght:"), "lenght");
    refused(&swap("tova]", "toav]"), "toav");
    refused(&swap("tova]", "full]"), "full]");
    refused(&swap("64, 16", "64, 0"), "0]");
    refused(&swap("64, 16", "64, -1"), "-1");
    refused(&swap("64, 16", "64, 64"), "64]");
    refused(&swap("64, 16", "64, 1"), "1]");
    refused(&swap("64, 16", "64, 4"), "4]");
    refused(&swap("64, 16", "[64, 16]"), "[64, 16]]");
    refused(&swap("64, 16", "64, {a: 1}"), "{a: 1}");
    refused(&format!("{SMALL}positions: [slot]\n"), "[slot]");
    refused(&format!("{SMALL}positions: {{slot: 1}}\n"), "1}");
    refused(&swap("length: 128", "length: [128]"), "[128]");
    let beside = swap("perplexity: {dataset: random-words, length: 128}", "benchmark: gsm8k\n    samples: 3");
    refused(&beside, "samples");
    refused(&swap("64, 16", "5000000000"), "5000");
    refused(&swap("cache_sizes: [64, 16]\n", ""), "truncate");
    refused(&swap("random-tiny", "gpt2"), "gpt2");
    refused(&swap("[random-tiny]", "[]"), "[]");
    refused(&swap("[random-tiny]", "[{dtype: f32}]"), "dtype");
    refused(&swap("[random-tiny]", "[[a/b]]"), "[a/b]");
    refused(&swap("random-tiny", "{source: a/b, name: ' '}"), "{source");
    let two = "{source: a/b, name: x}, {source: a/c, name: x}";
    refused(&swap("random-tiny", two), "{source: a/c");
    let twice = "a/b, {source: a/b, name: x}";
    refused(&swap("random-tiny", twice), "{source");
    let own = "{source: random-tiny, tokenizer: ./t}";
    refused(&swap("random-tiny", own), "{source");
    let file = "{source: ./m.gguf, tokenizer: ./n.gguf}";
    refused(&swap("random-tiny", file), "{source");
    refused(&swap("random-tiny", "a/b:c.bin"), "a/b");
    refused(&swap("random-words", "embeded"), "embeded");
    refused(&swap("length: 128", "length: 1"), "1}");
    refused(&swap("length: 128", "bos: yes"), "yes");
    refused(&swap("length: 128", "tail: kepe"), "kepe");
    refused(&swap("dataset: random-words, ", ""), "length");
    refused(&swap("perplexity:", "perplexty:"), "perplexty");
    refused(&swap("cache_sizes:", "policies: [full]\ncache_sizes:"), "policies");
    refused(&swap("[64, 16]", "64"), "64");
    refused(&swap("{dataset: random-words, length: 128}", "pg19"), "pg19");
    refused(&swap("length: 128", "bos: null"), "null");
    refused(&swap("length: 128", "compare_to_full: yes"), "yes");
    refused(&swap("tova]", "tova@sloth]"), "tova@sloth");
    refused(&swap("full, ", "full@slot, "), "full@slot");
    let stretched = |by: &str| swap("[random-tiny]", &format!("[{{source: a/b, rope_scaling: {by}}}]"));
    refused(&stretched("{type: ntk, factor: 0.5}"), "0.5}");
    let define = |policies: &str| format!("{SMALL}define: {{{policies}}}\n");
    refused(&define("tova+x: {score: recency, scope: layer}"), "tova+x");
    refused(&define("a b: {score: recency, scope: layer}"), "a b");
    let first = "a: {score: random, scope: layer, keep_first: 101%}";
    refused(&define(first), "keep_first");
    let recent = "a: {score: random, scope: layer, keep_recent: 101%}";
    refused(&define(recent), "keep_recent");
    let score = |score: &str| define(&format!("a: {{score: \"{score}\", scope: layer}}"));
    refused(&score("ema(atention, 0.9)"), "\"ema");
    refused(&score("sum(attention"), "\"sum");
    let story = swap("tova]", "clairvoyant]") + "  - story: {}\n";
    refused(&story, "story");
    let long = swap("tova]", "clairvoyant]").replace("128}", "16385}");
    refused(&long, "perplexity");
    refused(&(SMALL.to_string() + "---\na: b\n"), "a: b");
    refused(&(SMALL.to_string() + "tasks"), "tasks");
    insta::assert_snapshot!(said);
}

const TIMED: &str = "\
models: [random-tiny]
policies: [full, tova]
cache_sizes: [64, 16]
tasks:
  - timing: {memory: 8 GiB, length: 128}
";

#[test]
fn timing_means_its_settings() {
    let cells = sweep(TIMED).expand();
    let task = "task=timing\nlength=128\nprompt=64\nmemory=8589934592\nrepeats=3\nwarm_up=16\n";
    assert_eq!(settings(&cells[1].task), task);
    let same = TIMED.replace("length: 128", "length: 128, prompt: 64, repeats: 3, warm_up: 16");
    assert_eq!(ids(TIMED), ids(&same.replace("8 GiB", "8192 MiB")));
    for other in ["length: 129", "length: 128, prompt: 63", "length: 128, repeats: 1", "length: 128, warm_up: 0"] {
        assert_ne!(ids(TIMED), ids(&TIMED.replace("length: 128", other)), "{other}");
    }
    assert_ne!(ids(TIMED), ids(&TIMED.replace("8 GiB", "8 GB")));
    let of_machine = |machine: &str| resolved(&cells[1]).id("r", &format!("random-tokens machine:{machine}"));
    assert_ne!(of_machine("a"), of_machine("b"));
}

#[test]
fn mistakes_in_timing_are_reported() {
    let mut said = String::new();
    let mut refused = |yaml: &str, at: &str| said += &refusal(yaml, at);
    let swap = |from: &str, to: &str| TIMED.replace(from, to);
    refused(&swap("8 GiB", "8 gigs"), "8 gigs");
    refused(&swap("8 GiB", "8"), "8,");
    refused(&swap("memory: 8 GiB, ", ""), "length");
    refused(&swap("128", "128, prompt: 128"), "128}");
    refused(&swap("128", "128, dataset: x"), "dataset");
    refused(&swap("[full, tova]", "[truncate]"), "timing");
    refused(&swap("random-tiny", "random-tony"), "random-tony");
    refused(&swap("random-tiny", "random-h8-l1-a3-f9-v300"), "random-h8");
    insta::assert_snapshot!(said);
}

#[test]
fn selections_select() {
    let choose_from = |yaml: &str, only: &[&str], limit| {
        let only = only.iter().map(|text| text.parse().unwrap()).collect();
        let chosen = Selection { only, limit, shard: None }.of(&sweep(yaml))?;
        Ok::<_, crate::ledger::OnlyError>(
            chosen.selected.iter().map(|c| (c.policy.clone(), c.cache.rule.size())).collect::<Vec<_>>(),
        )
    };
    let choose = |only: &[&str], limit| choose_from(SMALL, only, limit);
    let pair = |policy: &str, size| (policy.to_string(), size);
    assert_eq!(choose(&[], None).unwrap().len(), 7);
    assert_eq!(choose(&["policy=tova,full", "size=64"], None).unwrap(), [pair("tova", Some(64))]);
    // One key several times is a union; different keys must all hold.
    let sizes = choose(&["size=64", "policy=tova", "size=16"], None).unwrap();
    assert_eq!(sizes, [pair("tova", Some(16)), pair("tova", Some(64))]);
    assert_eq!(choose(&["policy=tova", "policy=full"], None), choose(&["policy=tova,full"], None));
    assert!(choose(&["size=64", "size=65"], None).is_err(), "every value must be there");
    // A schedule may be said though it is the policy's own.
    assert_eq!(choose(&["policy=tova@1"], None), choose(&["policy=tova"], None));
    let own = SMALL.replace("tova", "r-kv@128");
    assert_eq!(
        choose_from(&own, &["policy=r-kv@128"], None).unwrap(),
        [pair("r-kv", Some(16)), pair("r-kv", Some(64))]
    );
    assert_eq!(choose(&["task=perplexity", "model=random-tiny"], Some(2)).unwrap().len(), 2);
    let unknown = choose(&["policy=toav"], None).unwrap_err().to_string();
    assert!(unknown.contains("did you mean `tova`"), "{unknown}");
    for wrong in ["policy", "policy=", "polcy=tova", "policy=a,,b"] {
        assert!(wrong.parse::<crate::ledger::Only>().is_err(), "{wrong}");
    }
    for wrong in ["0/2", "3/2", "1", "1/0", "-1/2", "a/b"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
}

#[test]
fn the_shard_of_a_slurm_task_by_hand() {
    let shard = |variables: [&str; 5]| {
        let found = Shard::of_slurm(|name| {
            let index = ["ID", "MIN", "MAX", "STEP", "COUNT"].iter().position(|known| name.ends_with(known))?;
            Some(variables[index].to_string()).filter(|value| !value.is_empty())
        });
        found.map(|shard| shard.map(|shard| shard.to_string())).map_err(|error| error.to_string())
    };
    assert_eq!(shard([""; 5]), Ok(None));
    for (variables, expected) in [
        // --array=0-7, 1-8, 3-15:4, 10-19:3 and a task alone.
        (["0", "0", "7", "1", "8"], "1/8"),
        (["8", "1", "8", "1", "8"], "8/8"),
        (["11", "3", "15", "4", "4"], "3/4"),
        (["19", "10", "19", "3", "4"], "4/4"),
        (["5", "5", "5", "1", "1"], "1/1"),
        // Older versions of Slurm do not set the largest number.
        (["4", "2", "", "2", "3"], "2/3"),
    ] {
        assert_eq!(shard(variables), Ok(Some(expected.into())));
    }
    // --array=1,3,7 has no step, --array=0-3,10-13 a gap.
    for variables in [
        ["3", "1", "7", "1", "3"],
        ["7", "1", "7", "2", "3"],
        ["10", "0", "13", "1", "8"],
        ["5", "3", "15", "4", "4"],
        ["2", "3", "15", "4", "4"],
        ["x", "0", "7", "1", "8"],
        ["1", "", "", "", ""],
    ] {
        let refused = shard(variables).unwrap_err();
        let names_task = refused.contains(&format!("task {} of a Slurm array", variables[0]));
        assert!(names_task && refused.contains("hint:"), "{refused}");
    }
}

#[test]
fn every_committed_sweep_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let folders = ["builtin", "examples", "findings", "paper", "published"].map(|name| root.join(name));
    let mut seen = 0;
    for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        let sweep = Sweep::read(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# yaml-language-server: $schema=../sweep.schema.json\n"), "{}", path.display());
        assert!(!sweep.expand().is_empty(), "{}", path.display());
        seen += 1;
    }
    assert!(seen >= 5, "{seen} sweeps in {}", root.display());
}

#[test]
fn an_unknown_benchmark_is_named_with_its_line() {
    let sweep = |entry: &str| format!("models: [pocket]\npolicies: [full]\ntasks:\n  - benchmark: {entry}\n");
    for (entry, place) in [("gsm9k", (4, 16)), ("{task: gsm9k}", (4, 23)), ("./none.yaml", (4, 16))] {
        let error = Sweep::parse(&sweep(entry), "s.yaml").unwrap_err();
        assert_eq!((error.file.as_str(), error.place), ("s.yaml", Some(place)), "{entry}: {error}");
    }
}

#[test]
fn contrasts_are_of_policies_as_reports_call_them_and_change_no_cell() {
    let cut = SMALL.replace("tova]", "tova, tova@cut]").replace("length: 128", "length: 128, prompt: 50%");
    let with = |contrasts: &str| format!("{cut}contrasts: {contrasts}\n");
    let planned = sweep(&with("[tova - window+4, tova@cut - tova@1, ' truncate  -  tova ']"));
    let shown: Vec<String> = planned.contrasts.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["tova - window+4", "tova@cut - tova", "truncate - tova"]);
    assert_eq!(ids(&with("[tova - window+4]")), ids(&cut));
    // The sweep's own schedule is that of a bare name.
    let all_cut = format!("{}schedule: cut\n", with("[tova - window+4]")).replace("tova, tova@cut]", "tova]");
    assert_eq!(sweep(&all_cut).contrasts[0].to_string(), "tova@cut - window+4@cut");
    let mut said = String::new();
    for (contrasts, at) in [
        ("[tova - h2o]", "tova - h2o"),
        ("[tova - tovaa]", "tova - tovaa"),
        ("[full - tova]", "full - tova"),
        ("[tova-window+4]", "tova-window+4"),
    ] {
        said += &refusal(&with(contrasts), at);
    }
    insta::assert_snapshot!(said);
    assert!(
        Sweep::parse(&with("[tova - window+4, tova - window+4]"), "a.yaml").unwrap_err().message.contains("twice")
    );
}
