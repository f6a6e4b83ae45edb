#!/usr/bin/env python3
"""Makes a random Llama-like checkpoint folder in Hugging Face's layout (config.json, *.safetensors, tokens.json). Needs numpy.

The weights are noise with std 1/sqrt(fan-in), clamped to 0.02..0.1. Query and key projections are scaled so that attention
logits have a std of about `--sharpness`: attention is then far from uniform, and policies differ.

The benchmark model, 7 M parameters, and its text:
    python3 tests/golden/make/random_model.py /tmp/bench --hidden 256 --layers 6 --heads 8 --intermediate 688 --vocab 4096 --text 2048
About 134 M parameters with the vocabulary of Llama 2:
    python3 tests/golden/make/random_model.py /tmp/bench-134m --hidden 768 --layers 12 --heads 12 --intermediate 2048 --vocab 32000 --text 2048
"""
import argparse, json, math, struct
from pathlib import Path
import numpy as np

ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
TORCH_NAMES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def encode(x, dtype):
    """-> the bytes of x, rounded to nearest, ties to even"""
    if dtype == "f32":
        return x.astype("<f4").tobytes()
    if dtype == "f16":
        return x.astype("<f2").tobytes()
    bits = x.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def save_safetensors(path, tensors, dtype):
    head, at, blobs = {"__metadata__": {"format": "pt"}}, 0, []
    for name, x in tensors.items():
        blob = encode(x, dtype)
        head[name] = {"dtype": dtype.upper(), "shape": list(x.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    head = json.dumps(head, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(head)) + head + b"".join(blobs))


def config(a):
    c = {
        "architectures": [ARCHITECTURES[a.arch]],
        "model_type": a.arch,
        "vocab_size": a.vocab,
        "hidden_size": a.hidden,
        "intermediate_size": a.intermediate,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads or a.heads,
        "hidden_act": "silu",
        "max_position_embeddings": a.max_positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": a.rope_theta,
        "tie_word_embeddings": a.tie != "no",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": TORCH_NAMES[a.dtype],
    }
    if a.head_dim:
        c["head_dim"] = a.head_dim
    if a.rope_scaling:
        c["rope_scaling"] = json.loads(a.rope_scaling)
    if a.arch == "llama":
        c |= {"attention_bias": a.bias, "mlp_bias": False}
    if a.arch == "mistral":
        c["sliding_window"] = None
    if a.arch == "qwen2":
        c["use_sliding_window"] = False
    return c


def weights(a):
    rng = np.random.default_rng(a.seed)
    dim = a.head_dim or a.hidden // a.heads
    q_rows, kv_rows = a.heads * dim, (a.kv_heads or a.heads) * dim

    def noise(*shape, std=None):
        std = std or min(max(shape[-1] ** -0.5, 0.02), 0.1)
        return (rng.standard_normal(shape, dtype=np.float32) * np.float32(std))

    norm = lambda: 1 + noise(a.hidden, std=0.1)
    qk = math.sqrt(a.sharpness / a.hidden)
    w = {}
    if a.tie != "lm_head":
        w["model.embed_tokens.weight"] = noise(a.vocab, a.hidden)
    for l in range(a.layers):
        p = f"model.layers.{l}."
        w[p + "input_layernorm.weight"] = norm()
        for name, rows, cols, std in [("q", q_rows, a.hidden, qk), ("k", kv_rows, a.hidden, qk),
                                      ("v", kv_rows, a.hidden, None), ("o", a.hidden, q_rows, None)]:
            w[p + f"self_attn.{name}_proj.weight"] = noise(rows, cols, std=std)
            if (a.bias and a.arch == "llama") or (a.arch == "qwen2" and name != "o"):
                w[p + f"self_attn.{name}_proj.bias"] = noise(rows, std=0.3)
        w[p + "post_attention_layernorm.weight"] = norm()
        for name, rows, cols in [("gate", a.intermediate, a.hidden), ("up", a.intermediate, a.hidden),
                                 ("down", a.hidden, a.intermediate)]:
            w[p + f"mlp.{name}_proj.weight"] = noise(rows, cols)
    w["model.norm.weight"] = norm()
    if a.tie != "embed":
        w["lm_head.weight"] = noise(a.vocab, a.hidden)
    return w


def write(a):
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config(a), indent=2) + "\n")
    w = weights(a)
    if a.shards == 1:
        save_safetensors(out / "model.safetensors", w, a.dtype)
    else:
        # contiguous, as Hugging Face cuts them, so a layer may lie in two files
        names = list(w)
        where = {n: f"model-{i * a.shards // len(names) + 1:05}-of-{a.shards:05}.safetensors" for i, n in enumerate(names)}
        for file in sorted(set(where.values())):
            save_safetensors(out / file, {n: w[n] for n in names if where[n] == file}, a.dtype)
        total = sum(x.size for x in w.values()) * (4 if a.dtype == "f32" else 2)
        index = {"metadata": {"total_size": total}, "weight_map": where}
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    tokens = np.random.default_rng(a.seed + 1).integers(3, a.vocab, a.text).tolist()
    (out / "tokens.json").write_text(json.dumps(tokens) + "\n")
    return sum(x.size for x in w.values())


def arguments(argv=None):
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out", help="the folder to make")
    ap.add_argument("--arch", default="llama", choices=ARCHITECTURES)
    ap.add_argument("--hidden", type=int, default=256)
    ap.add_argument("--layers", type=int, default=6)
    ap.add_argument("--heads", type=int, default=8)
    ap.add_argument("--kv-heads", type=int, help="default: as many as heads")
    ap.add_argument("--head-dim", type=int, help="default: hidden / heads, and then not written to config.json")
    ap.add_argument("--intermediate", type=int, default=688)
    ap.add_argument("--vocab", type=int, default=4096)
    ap.add_argument("--max-positions", type=int, default=4096)
    ap.add_argument("--rope-theta", type=float, default=10000.0)
    ap.add_argument("--rope-scaling", metavar="JSON", help="written to config.json as it is")
    ap.add_argument("--tie", default="no", choices=["no", "embed", "lm_head"],
                    help="tied embeddings, and the name the one matrix is stored under")
    ap.add_argument("--bias", action="store_true", help="llama: attention_bias, on all four projections (qwen2 always has q, k, v)")
    ap.add_argument("--dtype", default="f32", choices=TORCH_NAMES)
    ap.add_argument("--shards", type=int, default=1)
    ap.add_argument("--sharpness", type=float, default=2.0, help="std of the attention logits")
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--text", type=int, default=2048, help="tokens in tokens.json")
    return ap.parse_args(argv)


if __name__ == "__main__":
    a = arguments()
    print(f"{a.out}: {write(a):,} parameters, {a.text} tokens")
