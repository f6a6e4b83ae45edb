#!/usr/bin/env python3
"""Makes and checks tests/golden/families: tiny random checkpoints of many model families, and what transformers' own models
compute for them under every cache policy. Needs torch, transformers 5, numpy and gguf.

    python3 tests/golden/make/family_goldens.py make [NAME...]     make the folders again, the same bytes
    python3 tests/golden/make/family_goldens.py check [NAME...]    recompute every case, and the full cache with transformers' own attention
    python3 tests/golden/make/family_goldens.py keys [NAME...]     with any transformers from 4.57 on: the full cache by config.v4.json

tests/golden/make/one_by_one.py defines the policies, and what they do in a layer with a window of its own (`local_layers`). Cases of models
without windows have no key local_layers. `full`, for which both settings are the same, is written as "bounded".

The weights are float32, widened to float64; all arithmetic is float64. A seed is taken if no decision of any case is closer than
1e-5 of its score (equal keys of equal tokens with knorm excepted), and if transformers in float32 evicts the same entries and has
every NLL within 5e-5.
"""
import json, shutil, sys, tempfile
from pathlib import Path
import numpy as np
import gguf, torch, transformers
from safetensors.torch import load_file, save_file
from one_by_one import float64_everywhere, load, losses, run

ROOT = Path(__file__).resolve().parent.parent / "families"
POLICIES = ["window", "window+4", "h2o", "h2o-layer", "tova", "tova-head", "tova+4", "knorm"]
SIZES = [12, 33, 64]
# of models that are more than another attention of one kind, and have no windows
SCHEDULED = ["deepseek_v3", "qwen3_next", "qwen3_5_text"]
SCHEDULES = [dict(schedule="16"), dict(schedule="cut", prompt=70), dict(schedule="cut+8", prompt=70)]
NARROW, ROUNDING = 1e-5, 5e-5

TINY = dict(vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.3], long_factor=[1.2, 2.5, 6.0],
                original_max_position_embeddings=64)


def default(theta, **more):
    return dict(rope_type="default", rope_theta=theta) | more


GEMMA4 = dict(sliding_attention=default(200.0),
              full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=8000.0))

# name -> the configuration, beside TINY
FAMILIES = {
    "qwen3": dict(model_type="qwen3", head_dim=12, rope_parameters=default(5000.0), tie_word_embeddings=True),
    "gemma2": dict(model_type="gemma2", num_hidden_layers=4, head_dim=12, query_pre_attn_scalar=9, sliding_window=24,
                   attn_logit_softcapping=4.0, final_logit_softcapping=2.5),
    "gemma3": dict(model_type="gemma3_text", num_hidden_layers=6, hidden_size=24, num_key_value_heads=1, head_dim=8,
                   query_pre_attn_scalar=10, sliding_window=24,
                   layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
                   rope_parameters=dict(sliding_attention=default(200.0),
                                        full_attention=dict(rope_type="linear", factor=8.0, rope_theta=8000.0))),
    "gemma3n": dict(model_type="gemma3n_text", num_hidden_layers=5, head_dim=8, sliding_window=24, intermediate_size=[40] * 5,
                    layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
                    num_kv_shared_layers=2, hidden_size_per_layer_input=6, vocab_size_per_layer_input=64, laurel_rank=5,
                    altup_num_inputs=3, altup_active_idx=1, activation_sparsity_pattern=[0.6, 0.8, 0.0, 0.6, 0.0],
                    final_logit_softcapping=2.5, rope_parameters=dict(sliding_attention=default(200.0), full_attention=default(8000.0))),
    "gemma4": dict(model_type="gemma4_text", num_hidden_layers=6, head_dim=8, global_head_dim=12, sliding_window=24,
                   layer_types=["sliding_attention", "full_attention"] * 3, num_kv_shared_layers=2,
                   hidden_size_per_layer_input=6, vocab_size_per_layer_input=64, use_double_wide_mlp=True,
                   final_logit_softcapping=2.5, rope_parameters=GEMMA4),
    "gemma4-dense": dict(model_type="gemma4_text", num_hidden_layers=3, num_key_value_heads=4, num_global_key_value_heads=2,
                         attention_k_eq_v=True, head_dim=8, global_head_dim=16, sliding_window=24, hidden_size_per_layer_input=0,
                         layer_types=["sliding_attention", "sliding_attention", "full_attention"], rope_parameters=GEMMA4),
    "gemma4-moe": dict(model_type="gemma4_text", head_dim=8, global_head_dim=8, sliding_window=24, hidden_size_per_layer_input=0,
                       layer_types=["sliding_attention", "sliding_attention", "full_attention"], enable_moe_block=True, num_experts=5,
                       top_k_experts=2, moe_intermediate_size=12, rope_parameters=GEMMA4),
    "phi3": dict(model_type="phi3", sliding_window=40, rope_parameters=default(10000.0, partial_rotary_factor=0.75)),
    "phi3-longrope": dict(model_type="phi3", original_max_position_embeddings=64, tie_word_embeddings=True,
                          rope_parameters=LONGROPE | dict(partial_rotary_factor=0.75)),
    "olmo2": dict(model_type="olmo2", rope_parameters=default(50000.0)),
    "olmo3": dict(model_type="olmo3", num_hidden_layers=4, sliding_window=24, rope_parameters=dict(
        sliding_attention=default(60.0),
        full_attention=YARN | dict(rope_theta=60.0, attention_factor=1.3, beta_fast=1.5, beta_slow=0.25))),
    "smollm3": dict(model_type="smollm3", num_hidden_layers=4, no_rope_layers=[1, 1, 0, 1], rope_parameters=default(20000.0)),
    "mistral": dict(model_type="mistral", sliding_window=24, rope_parameters=default(10000.0)),
    "ministral": dict(model_type="ministral", num_hidden_layers=4, sliding_window=40, head_dim=10,
                      layer_types=["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"],
                      rope_parameters=default(10000.0)),
    "ministral3": dict(model_type="ministral3", head_dim=16, rope_parameters=YARN | dict(
        rope_theta=500.0, beta_fast=2.0, beta_slow=0.25, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)),
    "qwen2-window": dict(model_type="qwen2", num_hidden_layers=4, use_sliding_window=True, sliding_window=40,
                         max_window_layers=2, rope_parameters=default(10000.0)),
    "gpt-oss": dict(model_type="gpt_oss", num_hidden_layers=4, head_dim=8, intermediate_size=12, num_local_experts=5,
                    num_experts_per_tok=2, sliding_window=24, rope_parameters=YARN | dict(
                        rope_theta=1000.0, beta_fast=2.0, beta_slow=0.3, truncate=False)),
    # its experts stored in MXFP4, and the same model in m.gguf
    "gpt-oss-mxfp4": dict(model_type="gpt_oss", num_hidden_layers=2, head_dim=8, intermediate_size=32, num_local_experts=3,
                          num_experts_per_tok=2, sliding_window=24, rope_parameters=YARN | dict(
                              rope_theta=1000.0, beta_fast=2.0, beta_slow=0.3, truncate=False)),
    "mixtral": dict(model_type="mixtral", intermediate_size=20, num_local_experts=4, num_experts_per_tok=2, sliding_window=40,
                    rope_parameters=default(10000.0)),
    "qwen3-moe": dict(model_type="qwen3_moe", head_dim=12, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                      norm_topk_prob=True, rope_parameters=default(5000.0)),
    "qwen3-moe-dense": dict(model_type="qwen3_moe", head_dim=12, num_hidden_layers=4, num_experts=3, num_experts_per_tok=1,
                            moe_intermediate_size=24, decoder_sparse_step=2, mlp_only_layers=[1], rope_parameters=default(5000.0)),
    "qwen2-moe": dict(model_type="qwen2_moe", num_experts=5, num_experts_per_tok=3, moe_intermediate_size=12,
                      shared_expert_intermediate_size=20, rope_parameters=default(10000.0)),
    "deepseek-v2": dict(model_type="deepseek_v2", q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8,
                        v_head_dim=10, num_key_value_heads=4, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=12,
                        n_shared_experts=2, first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=3, topk_group=2,
                        routed_scaling_factor=1.5,
                        rope_parameters=YARN | dict(rope_theta=1000.0, mscale=0.707, mscale_all_dim=0.9)),
    "deepseek-v3": dict(model_type="deepseek_v3", q_lora_rank=14, kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=6,
                        v_head_dim=10, num_key_value_heads=4, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=12,
                        n_shared_experts=1, first_k_dense_replace=1, n_group=2, topk_group=1, routed_scaling_factor=2.5,
                        norm_topk_prob=True, rope_parameters=default(1000.0)),
    "glm4-moe-lite": dict(model_type="glm4_moe_lite", q_lora_rank=14, kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=6,
                          v_head_dim=16, num_key_value_heads=4, n_routed_experts=5, num_experts_per_tok=3, moe_intermediate_size=12,
                          n_shared_experts=1, n_group=1, topk_group=1, routed_scaling_factor=1.8, norm_topk_prob=True,
                          rope_parameters=default(1000.0)),
    "qwen3-next": dict(model_type="qwen3_next", num_hidden_layers=4, head_dim=16, num_experts=5, num_experts_per_tok=2,
                       moe_intermediate_size=12, shared_expert_intermediate_size=20, norm_topk_prob=True, linear_num_key_heads=2,
                       linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
                       layer_types=["linear_attention", "full_attention"] * 2,
                       rope_parameters=default(5000.0, partial_rotary_factor=0.25)),
    "qwen3.5": dict(model_type="qwen3_5_text", num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
                    linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=3, tie_word_embeddings=True,
                    layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"],
                    rope_parameters=default(5000.0, partial_rotary_factor=0.5)),
    "qwen3.5-moe": dict(model_type="qwen3_5_moe_text", num_hidden_layers=3, head_dim=16, num_experts=5, num_experts_per_tok=2,
                        moe_intermediate_size=12, shared_expert_intermediate_size=20, linear_num_key_heads=2,
                        linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
                        layer_types=["full_attention", "linear_attention", "full_attention"],
                        rope_parameters=default(5000.0, partial_rotary_factor=0.25)),
    "olmoe": dict(model_type="olmoe", intermediate_size=12, num_experts=8, num_experts_per_tok=3, rope_parameters=default(10000.0)),
    "llama4": dict(model_type="llama4_text", num_hidden_layers=4, head_dim=8, no_rope_layers=[1, 0, 1, 1], attention_chunk_size=40,
                   layer_types=["chunked_attention", "full_attention", "chunked_attention", "chunked_attention"], use_qk_norm=True,
                   intermediate_size=12, intermediate_size_mlp=40, num_local_experts=4, num_experts_per_tok=2, moe_layers=[1, 3],
                   floor_scale=16, attn_scale=0.4, attn_temperature_tuning=True, rope_parameters=default(1000.0)),
    "llama-yarn": dict(model_type="llama", head_dim=16, num_hidden_layers=2,
                       rope_parameters=YARN | dict(rope_theta=1000.0, beta_fast=2.0, beta_slow=0.3)),
    "llama-longrope": dict(model_type="llama", head_dim=6, rope_parameters=LONGROPE | dict(factor=4.0)),
}
# a second text for a checkpoint: its long factors begin after 64 tokens
SHORT = {"phi3-longrope-short": ("phi3-longrope", 60)}
# these have a config.v4.json, too
V4 = ["qwen3", "gemma2", "gemma3", "phi3-longrope", "olmo3", "smollm3", "qwen2-window", "llama-yarn"]


def compute(folder, text):
    """-> (cases, the closest decision, how far float32 is), or None where a decision could turn on rounding"""
    exact, single = load(folder, torch.float64, "one_by_one", exact=True), load(folder, torch.float32, "one_by_one")
    local = run(single, text, "full", None, None)[1].has_windows
    settings = ["bounded", "exempt"] if local else [None]
    # all keys of most of its layers have the same norm
    policies = [p for p in POLICIES if p != "knorm" or exact.config.model_type != "llama4_text"]
    cases, narrowest, rounding = [], np.inf, 0.0
    todo = [("full", None, settings[0], {})] + [(p, n, s, {}) for p in policies for n in SIZES for s in settings]
    if exact.config.model_type in SCHEDULED:
        todo += [(p, SIZES[1], None, when) for p in ["h2o", "tova", "knorm"] for when in SCHEDULES]
    for policy, size, setting, when in todo:
        with float64_everywhere():
            nll, attention = run(exact, text, policy, size, setting, **when)
        single_nll, same = run(single, text, policy, size, setting, **when)
        narrowest, rounding = min(narrowest, attention.narrowest), max(rounding, apart(nll, single_nll))
        if narrowest < NARROW or rounding > ROUNDING or same.evicted != attention.evicted:
            return None
        cases.append(dict(policy=policy, size=size, positions="absolute") | (dict(local_layers=setting) if local else {}) | when
                     | dict(nll=[round(x, 9) for x in nll], survivors=attention.survivors))
    return cases, narrowest, rounding


def fill(model, seed):
    """Random weights: noise of std 1 / sqrt(fan-in), more for queries and keys, so that logits have a std of about 2."""
    rng, neutral = np.random.default_rng(seed), 0.0 if model.config.model_type.startswith(("gemma2", "gemma3_", "qwen3_5", "qwen3_next")) else 1.0
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.copy_(torch.tensor(rng.uniform(0.6, 1.4, 1)))
        elif name.endswith("e_score_correction_bias"):
            buffer.copy_(torch.from_numpy(rng.normal(0, 0.2, len(buffer))))
    for name, p in model.named_parameters():
        noise = torch.from_numpy(rng.standard_normal(p.shape, dtype=np.float32))
        if "q_norm" in name or "k_norm" in name:
            weight = neutral + 0.4 + 0.2 * noise
            if model.config.model_type in ("gemma3n_text", "gemma4_text"):
                weight *= 0.7  # its logits are not divided by anything
        elif name.endswith(("linear_attn.norm.weight", "dt_bias", "A_log")):
            weight = 1 + 0.3 * noise
            if name.endswith("A_log"):
                weight -= 4  # states fade slowly
        elif "norm" in name:
            weight = neutral + 0.1 * noise
        elif name.endswith("bias"):
            weight = 0.3 * noise
        elif name.endswith("scale"):
            weight = 1 + 0.2 * noise
        elif name.endswith("sinks"):
            weight = 1 + noise
        else:
            weight = noise * p.shape[-1] ** -0.5
            if name.endswith("experts.gate_up_proj") and model.config.model_type == "gpt_oss":
                weight *= 4  # beyond the limits of its activation
            values = p.shape[0] // 4 if "qkv_proj" in name else 0  # 4 heads, 2 of keys, 2 of values
            if "q_proj" in name or "k_proj" in name or values:
                weight[:p.shape[0] - values] *= 2 ** 0.5
        p.data.copy_(weight)


def in_mxfp4(folder, seed):
    """Replaces the experts of a saved gpt-oss by random blocks, as the published checkpoints store them, and writes the model in a GGUF file"""
    rng, config = np.random.default_rng(seed + 2000), json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    for name in [n for n in tensors if n.endswith("_proj") and ".experts." in n]:
        count, columns, rows = tensors.pop(name).shape
        at = 124 if "gate_up" in name else 121
        for part, numbers in [("blocks", rng.integers(0, 256, (count, rows, columns // 32, 16), dtype=np.uint8)),
                              ("scales", rng.integers(at, at + 3, (count, rows, columns // 32), dtype=np.uint8))]:
            tensors[f"{name}_{part}"] = torch.from_numpy(numbers)
    save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
    config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"])
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    writer, rope = gguf.GGUFWriter(folder / "m.gguf", "gpt-oss"), config["rope_parameters"]
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT_OSS, config["num_hidden_layers"])
    model = load(folder, torch.float32, "eager")
    for name, tensor in model.state_dict().items():
        kind = gguf.GGMLQuantizationType.F32
        if ".experts." in name:
            if not name.endswith("_bias"):
                tensor, kind = tensor.transpose(1, 2), gguf.GGMLQuantizationType.MXFP4
            ending = "bias" if name.endswith("_bias") else "weight"
            name = name.removesuffix("_bias")
            pairs = ([(name, tensor)] if "down" in name else
                     [(name.replace("gate_up", part), tensor[:, turn::2]) for turn, part in enumerate(["gate", "up"])])
        else:
            name, _, ending = name.rpartition(".") if name.endswith((".weight", ".bias")) else (name, ".", "weight")
            pairs = [(name, tensor)]
        for name, tensor in pairs:
            numbers = np.ascontiguousarray(tensor.numpy(), np.float32)
            stored = gguf.quantize(numbers, kind)
            assert (gguf.dequantize(stored, kind) == numbers).all(), name
            writer.add_tensor(f"{names.get_name(name)}.{ending}", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def older_keys(config):
    """The same configuration as transformers 4 writes it"""
    rope, layer_types = config.pop("rope_parameters"), config.pop("layer_types", None)
    if config["model_type"] == "gemma3_text":
        del config["_sliding_window_pattern"]
        config["sliding_window_pattern"] = layer_types.index("full_attention") + 1
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    rope = rope.get("full_attention", rope)
    config["rope_theta"] = rope.pop("rope_theta")
    if config["model_type"] == "phi3":
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        rope = dict(type="longrope", short_factor=rope["short_factor"], long_factor=rope["long_factor"])
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    return config | dict(transformers_version="4.57.6")


def write(name, seed):
    """A checkpoint as transformers saves it, and a text"""
    folder, length = ROOT / name, 120
    folder.mkdir(parents=True, exist_ok=True)
    if name in SHORT:
        checkpoint, length = SHORT[name]
        (folder / "checkpoint").write_text(f"families/{checkpoint}\n")
    else:
        config = transformers.AutoConfig.for_model(**json.loads(json.dumps(TINY | FAMILIES[name])))
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        fill(model, seed)
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        if name.endswith("mxfp4"):
            in_mxfp4(folder, seed)
    if name in V4:
        older = older_keys(json.loads((folder / "config.json").read_text()))
        (folder / "config.v4.json").write_text(json.dumps(older, indent=2) + "\n")
    text = np.random.default_rng(seed + 1000).integers(3, TINY["vocab_size"], length).tolist()
    (folder / "tokens.json").write_text(json.dumps(text) + "\n")


def inputs(name):
    folder = ROOT / name
    return ROOT / SHORT[name][0] if name in SHORT else folder, json.loads((folder / "tokens.json").read_text())


def make(name):
    for seed in range(200):
        write(name, seed)
        if found := compute(*inputs(name)):
            break
    cases, narrowest, rounding = found
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    (ROOT / name / "golden.json").write_text(f'{{"cases": [\n{lines}\n]}}\n')
    print(f"{name}: seed {seed}, {len(cases)} cases, closest decision {narrowest:.1e} apart, float32 within {rounding:.1e}", flush=True)


def apart(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def check(name):
    folder, text = inputs(name)
    cases, worst = json.loads((ROOT / name / "golden.json").read_text())["cases"], 0.0
    again, narrowest, rounding = compute(folder, text)
    for a, b in zip(again, cases, strict=True):
        assert a | dict(nll=0) == b | dict(nll=0), f"{name}: {b['policy']} {b['size']} {b.get('local_layers')}"
        worst = max(worst, apart(a["nll"], b["nll"]))
    ours, eager = (load(folder, torch.float64, attention, exact=True) for attention in ("one_by_one", "eager"))
    with float64_everywhere():
        ours, eager = run(ours, text, "full", None, None)[0], losses(eager, text)
    mixed = losses(load(folder, torch.float64, "eager"), text)
    print(f"{name}: {len(cases)} cases, survivors equal, NLLs within {worst:.1e}; float32 within {rounding:.1e}; closest decision "
          f"{narrowest:.1e} apart; full cache: eager attention within {apart(ours, eager):.1e}, with transformers' float32 parts "
          f"{apart(ours, mixed):.1e}", flush=True)


def keys(name):
    if name in V4:
        folder, text = inputs(name)
        full = json.loads((folder / "golden.json").read_text())["cases"][0]
        with tempfile.TemporaryDirectory() as other:
            shutil.copy(folder / "config.v4.json", f"{other}/config.json")
            shutil.copy(folder / "model.safetensors", other)
            nll = losses(load(other, torch.float64, "eager"), text)
        print(f"{name}: full cache within {apart(nll, full['nll']):.1e}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for each in sys.argv[2:] or FAMILIES | SHORT:
        {"make": make, "check": check, "keys": keys}[sys.argv[1]](each)
