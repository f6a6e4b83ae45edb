#!/usr/bin/env python3
"""The slow, obvious definition of every cache policy: one token at a time, entries physically deleted. Needs numpy.

tova-bench must agree with this file: the same survivors, and next-token NLLs within 1e-4 (f32 against f64). The rule
`tova` was checked against the authors' released code, fed one token at a time (largest NLL difference 7e-6), and the full
cache against transformers; tests/golden/README.md has these and the other policies' released code.

    python3 scripts/oracle.py MODEL_DIR TOKENS.json POLICY SIZE [--positions absolute|slot|squeezed] [--seed N] [--check] [--log]
                              [--f32] [--write N] [--one-shot]
    python3 scripts/oracle.py MODEL_DIR TOKENS.json --score FORMULA [--scope layer|head] [--pool mean|max] [--keep-first N|N%]
                              [--keep-recent N|N%] SIZE ...

MODEL_DIR   a Hugging Face checkpoint folder (config.json, one or many safetensors) of a Llama, Mistral or Qwen2 model
TOKENS.json a list of token ids
POLICY      full, or a preset of scripts/policies.py, which states the rule and source of each: NAME has the preset's own scope,
            NAME-layer and NAME-head that scope; +I protects the first I tokens
SIZE        entries that survive each step, per layer and per key-value head
--score     instead of a POLICY: a formula, computed by scripts/formula.py
--seed      of the draws of `random` and `gumbel`
--check     compute the preset's formula, too, and fail unless it evicts the same entries in the same order
--f32       compute in float32 instead of float64
--write N   continue with N tokens, always the most likely one
--one-shot  read TOKENS without evictions, then cut the cache to SIZE by the scores after its last token
Prints JSON: {"nll": [...], "survivors": [layer][scope group] -> token positions after the last step, "evicted": optional log,
"narrowest": with the log, how close the closest decision was, relative to its scores, exact ties apart; "written": optional tokens}

Conventions (the paper's released code: attend first, evict after):
 * step t: the new token joins the cache, attends to up to SIZE + 1 entries including itself, and then one entry is evicted;
 * the newest token itself can be evicted, unless the policy protects recent tokens;
 * scope `layer`: one decision per layer, scores averaged over all query heads; scope `head`: one decision per key-value
   head, scores averaged over its group of query heads (or the largest of them, with --pool max);
 * the unprotected entry with the lowest score is evicted, of equal ones the oldest; one whose score is not a number only if
   no other has a number;
 * the first tokens and newest entries that a policy protects count in SIZE; a percentage of SIZE is rounded up;
 * the entry's memory of earlier steps goes with it;
 * positions absolute: keys rotated at their original position; slot: rotated at their rank in the cache;
   squeezed: a gap g > 10 between neighbours in the cache becomes ln(ln g), smaller gaps stay (paper, section 7.2).
"""
import argparse, json, math, struct, sys
from pathlib import Path
import numpy as np
import formula, policies
from policies import softmax


def load_safetensors(path):
    raw = Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    out = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        buf = raw[8 + n + a:8 + n + b]
        if t["dtype"] == "F32":
            x = np.frombuffer(buf, "<f4")
        elif t["dtype"] == "F16":
            x = np.frombuffer(buf, "<f2")
        elif t["dtype"] == "BF16":
            x = (np.frombuffer(buf, "<u2").astype("<u4") << 16).view("<f4")
        else:
            raise SystemExit(f"dtype {t['dtype']} of {name} is not supported")
        out[name] = x.reshape(t["shape"])
    return out


def load_weights(model_dir, dtype):
    index = Path(model_dir) / "model.safetensors.index.json"
    files = ["model.safetensors"]
    if index.exists():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    return {name: x.astype(dtype) for f in files for name, x in load_safetensors(Path(model_dir) / f).items()}


def rope_frequencies(cfg, dim):
    """-> (dim / 2,) radians per position, after the checkpoint's rope_scaling"""
    freq = cfg.get("rope_theta", 10000.0) ** (-np.arange(0, dim, 2) / dim)
    s = cfg.get("rope_scaling") or {"rope_type": "default"}
    kind = s.get("rope_type", s.get("type"))
    if kind == "default":
        return freq
    if kind == "linear":
        return freq / s["factor"]
    if kind == "llama3":
        # long waves are stretched by the factor, short ones stay, those between are blended
        waves = s["original_max_position_embeddings"] * freq / (2 * math.pi)
        stay = np.clip((waves - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"]), 0, 1)
        return stay * freq + (1 - stay) * freq / s["factor"]
    raise SystemExit(f"rope_scaling {kind!r} is not supported")


def rope(x, pos, freq):
    """x: (n, heads, dim), pos: (n,) floats; the half-split rotation of Hugging Face Llama."""
    d = x.shape[-1]
    ang = np.asarray(pos, float)[:, None] * freq
    c, s = np.cos(ang)[:, None].astype(x.dtype), np.sin(ang)[:, None].astype(x.dtype)
    a, b = x[..., : d // 2], x[..., d // 2:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def cache_positions(born, mode):
    if mode == "absolute":
        return np.asarray(born, float)
    if mode == "slot":
        return np.arange(len(born), dtype=float)
    gaps = np.diff(np.asarray(born, float), prepend=born[0])
    gaps = np.array([math.log(math.log(g)) if g > 10 else g for g in gaps])
    gaps[0] = 0.0
    return np.cumsum(gaps)


def lowest(scores, protected):
    """-> the entry that leaves; how close the next was, relative to the larger of the two, or inf if it is exactly as low"""
    free = [i for i in range(len(scores)) if not protected[i]]
    numbers = [i for i in free if not np.isnan(scores[i])] or free
    leaves = min(numbers, key=lambda i: scores[i])  # the first, and so the oldest, of equal ones
    others = [i for i in numbers if scores[i] > scores[leaves] and np.isfinite(scores[i] - scores[leaves])]
    gaps = [(scores[i] - scores[leaves]) / max(abs(scores[i]), abs(scores[leaves])) for i in others]
    return leaves, float(min(gaps, default=math.inf))


def run(model_dir, tokens, policy, size, positions="absolute", log=False, dtype=np.float64, write=0, one_shot=False, seed=0, noise=0.0,
        budget=None, attended=None):
    """policy: a name or a policies.Policy; budget: see policies.budget; attended: of the full cache, [layer][query] -> (tokens, heads), filled
    where there is no policy, and else known to the policy; noise: relative changes of all weights, to see whether a decision turns on rounding"""
    cfg = json.loads((Path(model_dir) / "config.json").read_text())
    w = load_weights(model_dir, dtype)
    if noise:
        jitter = np.random.default_rng(1)
        w = {name: x * (1 + noise * jitter.standard_normal(x.shape)).astype(dtype) for name, x in sorted(w.items())}
    if cfg["model_type"] not in ("llama", "mistral", "qwen2"):
        raise SystemExit(f"model_type {cfg['model_type']!r} is not supported")
    window = cfg.get("sliding_window") if cfg.get("use_sliding_window", True) else None
    if window is not None and len(tokens) > window:
        raise SystemExit(f"the text is longer than the model's sliding window of {window}")
    heads, kvh = cfg["num_attention_heads"], cfg.get("num_key_value_heads", cfg["num_attention_heads"])
    hid, layers = cfg["hidden_size"], cfg["num_hidden_layers"]
    dim, grp = cfg.get("head_dim") or hid // heads, heads // kvh
    freq, eps = rope_frequencies(cfg, dim), cfg["rms_norm_eps"]
    if isinstance(policy, str):
        policy = None if policy == "full" else policies.preset(policy, size)
    scope = policy.scope if policy else "layer"
    rms = lambda x, g: x / np.sqrt((x * x).mean() + dtype(eps)) * g
    # biases are there or not: Qwen2 has them on q, k and v, Llama with attention_bias on all four
    linear = lambda name, x: w[name + ".weight"] @ x + w.get(name + ".bias", dtype(0))
    # tied checkpoints store one of the two
    embed = w.get("model.embed_tokens.weight", w.get("lm_head.weight"))
    lm_head = embed if cfg.get("tie_word_embeddings") else w.get("lm_head.weight", embed)
    sizes = [size] * layers if budget is None else policies.budget(policy, size, layers, budget)
    if policy is not None and attended is None and policy.needs_future:
        run(model_dir, tokens, "full", None, dtype=dtype, noise=noise, attended=(attended := [[] for _ in range(layers)]))
    n_groups = kvh if scope == "head" else 1
    state = [[dict(born=[], k=[], v=[], memory={}) for _ in range(n_groups)] for _ in range(layers)]
    nll, evicted, narrowest, margins = [], [], math.inf, []
    prompt, tokens = len(tokens), list(tokens)
    for t, tok in enumerate(tokens):
        x = embed[tok]
        for l in range(layers):
            p = f"model.layers.{l}."
            h = rms(x, w[p + "input_layernorm.weight"])
            q = linear(p + "self_attn.q_proj", h).reshape(heads, dim)
            k = linear(p + "self_attn.k_proj", h).reshape(kvh, dim)
            v = linear(p + "self_attn.v_proj", h).reshape(kvh, dim)
            out = np.zeros((heads, dim), dtype)
            for g, s in enumerate(state[l]):
                s["born"].append(t); s["k"].append(k); s["v"].append(v)
                pos = cache_positions(s["born"], positions)
                keys, values = np.stack(s["k"]), np.stack(s["v"])                       # (n, kvh, dim)
                rotated, Q = rope(keys, pos, freq), rope(q[None], pos[-1:], freq)[0]
                mine = list(range(heads) if scope == "layer" else range(g * grp, (g + 1) * grp))
                of = [hd // grp for hd in mine]
                logit = np.stack([rotated[:, hd // grp] @ Q[hd] / dtype(math.sqrt(dim)) for hd in mine], 1)
                attention = softmax(logit)
                for i, hd in enumerate(mine):
                    out[hd] = attention[:, i] @ values[:, hd // grp]
                if policy is None:
                    if attended is not None:
                        attended[l].append(attention)
                    continue
                size = sizes[l]
                n = len(s["born"])
                protected = [b < policy.keep_first or i >= n - policy.keep_recent for i, b in enumerate(s["born"])]
                draws = (seed * 0x2545F4914F6CDD1D + l) % 2**64, g
                # as the engine keeps it: the mean over the decision's heads in two bytes, which have eleven bits
                later = attended and np.array([
                    np.float16(row[: t + 1, mine].mean(1) * 2**15).astype(dtype) / 2**15 for row in attended[l][t + 1:]
                ])
                step = policies.Step(t, size, s["born"], mine, attention, logit, keys[:, of], rotated[:, of], values[:, of], out[mine],
                                     np.array(protected), draws, s["memory"], later)
                with np.errstate(divide="ignore", invalid="ignore"):  # scores can be infinite, or no numbers
                    score = policy.rule(step)
                if n <= size or one_shot and t < prompt - 1:
                    continue
                score = formula.pool(score, policy.pool)
                for _ in range(n - size):
                    i, gap = lowest(score, protected)
                    narrowest = min(narrowest, gap)
                    if log:
                        evicted.append([t, l, g, s["born"][i]])
                    for of_entries in (s["born"], s["k"], s["v"], protected):
                        del of_entries[i]
                    s["memory"] = {name: np.delete(x, i, 0) for name, x in s["memory"].items()}
                    score = np.delete(score, i)
            x = x + linear(p + "self_attn.o_proj", out.reshape(-1))
            h = rms(x, w[p + "post_attention_layernorm.weight"])
            gate, up = linear(p + "mlp.gate_proj", h), linear(p + "mlp.up_proj", h)
            x = x + linear(p + "mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
        z = lm_head @ rms(x, w["model.norm.weight"])
        if prompt - 1 <= t < prompt - 1 + write:
            best, second = np.argsort(-z, kind="stable")[:2]
            margins.append(float(z[best] - z[second]))
            tokens.append(int(best))
        if t + 1 < len(tokens):
            m = z.max()
            nll.append(float(m + math.log(np.exp(z - m).sum()) - z[tokens[t + 1]]))
        if write and t + 2 == prompt + write:
            break
    out = dict(nll=nll, survivors=[[g["born"] for g in layer] for layer in state])
    if log:
        # how close the closest decision was, relative to its score: what rounding it takes to change a survivor
        out |= dict(evicted=evicted, narrowest=float(narrowest))
    if write:
        # with how far each was ahead of the next best, in logits; the last token is chosen, but not read
        out |= dict(written=tokens[prompt:], margins=margins)
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("model"); ap.add_argument("tokens"); ap.add_argument("policy", nargs="?"); ap.add_argument("size", type=int)
    ap.add_argument("--score")
    ap.add_argument("--scope", default="layer", choices=["layer", "head"])
    ap.add_argument("--pool", default="mean", choices=["mean", "max"])
    ap.add_argument("--keep-first", default=0)
    ap.add_argument("--keep-recent", default=0)
    ap.add_argument("--positions", default="absolute", choices=["absolute", "slot", "squeezed"])
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--check", action="store_true")
    ap.add_argument("--log", action="store_true")
    ap.add_argument("--f32", action="store_true")
    ap.add_argument("--write", type=int, default=0)
    ap.add_argument("--one-shot", action="store_true")
    a = ap.parse_intermixed_args()
    if (a.policy is None) == (a.score is None):
        ap.error("one of POLICY and --score is needed")
    policy = a.policy or formula.policy(a.score, a.scope, a.size, a.pool, a.keep_first, a.keep_recent)
    dtype = np.float32 if a.f32 else np.float64
    tokens = json.loads(Path(a.tokens).read_text())
    answer = lambda policy, log: run(a.model, tokens, policy, a.size, a.positions, log, dtype, a.write, a.one_shot, a.seed)
    out = answer(policy, a.log or a.check)
    if a.check:
        other = answer(formula.of_preset(a.policy, a.size), True)
        if out["evicted"] != other["evicted"]:
            raise SystemExit(f"{a.policy} and its formula evict other entries")
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
