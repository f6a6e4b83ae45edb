#!/usr/bin/env python3
"""Makes and checks tests/golden/families: tiny random checkpoints of many model families, and what transformers' own models compute
for them under every cache policy. Needs torch, transformers 5 and numpy.

    python3 scripts/family_goldens.py make [NAME...]     make the folders again, the same bytes
    python3 scripts/family_goldens.py check [NAME...]    recompute every case; print how far transformers' own attention is
    python3 scripts/family_goldens.py keys [NAME...]     load config.json, or config.v4.json where there is one, with any
                                                         transformers from 4.55 on, and compare the full cache's NLLs

Everything except the cache is transformers' code: the model reads the whole text at once, and an attention function registered with
it goes through the text token by token. It gets query, key and value as they are after norms and rotation (positions absolute).
Token t joins the cache, attends to the entries in it, and then entries are deleted. The policies are those of scripts/oracle.py:
attend first, evict after; of equal scores the oldest is evicted; `knorm` takes the key before rotation, after a norm on keys.

A layer with a window W of its own lets the query at t see the positions > t - W. There, after token t has attended,
 * the entries that query t + 1 cannot see leave first, also those of the first positions that the policy protects;
 * local_layers "bounded": then the policy evicts while more than min(size, W) entries are left, and its other numbers (the recent half
   of h2o) follow from min(size, W);
 * local_layers "exempt", and policy `full`: nothing else leaves.
The key local_layers is missing where no layer has a window. For `full`, where both settings are the same, it is "bounded".

Weights are float32 and widened to float64. transformers computes norms, rotations and softmax in float32 all the same; here they are
float64 too (`float64_everywhere`). A seed is taken only if no decision of any case is closer than 1e-5 of its score (except for
equal keys of equal tokens with knorm) and if a float32 run evicts the same entries.
"""
import contextlib, json, shutil, sys, tempfile
from pathlib import Path
import numpy as np
import torch, transformers
from transformers.masking_utils import eager_mask

ROOT = Path(__file__).parent.parent / "tests" / "golden" / "families"
POLICIES = ["window", "window+4", "h2o", "h2o-layer", "tova", "tova-head", "tova+4", "knorm"]
SIZES = [12, 33, 64]
NARROW = 1e-5

TINY = dict(vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.3], long_factor=[1.2, 2.5, 6.0],
                original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
# name -> the configuration beside TINY. sharpness is not part of it: the standard deviation of the attention logits
FAMILIES = {
    "qwen3": dict(model_type="qwen3", head_dim=12, rope_parameters=dict(rope_type="default", rope_theta=5000.0), tie_word_embeddings=True),
    "gemma2": dict(model_type="gemma2", num_hidden_layers=4, head_dim=12, query_pre_attn_scalar=9, sliding_window=24,
                   attn_logit_softcapping=4.0, final_logit_softcapping=2.5),
    "gemma3": dict(model_type="gemma3_text", num_hidden_layers=6, hidden_size=24, num_key_value_heads=1, head_dim=8,
                   query_pre_attn_scalar=10, sliding_window=24,
                   layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
                   rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=200.0),
                                        full_attention=dict(rope_type="linear", factor=8.0, rope_theta=8000.0))),
    "phi3": dict(model_type="phi3", rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.75)),
    "phi3-longrope": dict(model_type="phi3", original_max_position_embeddings=64, tie_word_embeddings=True,
                          rope_parameters=LONGROPE | dict(partial_rotary_factor=0.75)),
    "olmo2": dict(model_type="olmo2", rope_parameters=dict(rope_type="default", rope_theta=50000.0)),
    "olmo3": dict(model_type="olmo3", num_hidden_layers=4, sliding_window=24, rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=500.0),
        full_attention=YARN | dict(rope_theta=500.0, attention_factor=1.15, beta_fast=4.0, beta_slow=0.5))),
    "smollm3": dict(model_type="smollm3", num_hidden_layers=4, no_rope_layers=[1, 1, 0, 1],
                    rope_parameters=dict(rope_type="default", rope_theta=20000.0)),
    "mistral": dict(model_type="mistral", sliding_window=24, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "ministral": dict(model_type="ministral", num_hidden_layers=4, sliding_window=40, head_dim=10,
                      layer_types=["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"],
                      rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "ministral3": dict(model_type="ministral3", head_dim=12, rope_parameters=YARN | dict(
        rope_theta=1000.0, beta_fast=8.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)),
    "qwen2-window": dict(model_type="qwen2", num_hidden_layers=4, use_sliding_window=True, sliding_window=40, max_window_layers=2,
                         rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "llama-yarn": dict(model_type="llama", head_dim=16, num_hidden_layers=2,
                       rope_parameters=YARN | dict(rope_theta=1000.0, beta_fast=6.0, beta_slow=0.4)),
    "llama-longrope": dict(model_type="llama", head_dim=6, rope_parameters=LONGROPE | dict(factor=4.0)),
}
# these also get a config.v4.json, the same in the keys of transformers 4
V4 = ["qwen3", "gemma2", "gemma3", "phi3-longrope", "olmo3", "smollm3", "qwen2-window", "llama-yarn"]
# a second, shorter text for a checkpoint: the long factors begin after 64 tokens
SHORT = {"phi3-longrope-short": ("phi3-longrope", 60)}


class OneByOne:
    """The attention function: a cache policy, one token at a time. Arithmetic is that of the arrays it gets."""
    def __init__(self, policy, size, local_layers):
        self.policy, _, first = policy.partition("+")
        self.keep_first, self.size, self.local_layers = int(first or 0), size, local_layers
        self.by_head = self.policy in ("h2o", "tova-head", "knorm")
        self.unrotated, self.local = None, False
        self.survivors, self.evicted, self.narrowest = [], [], np.inf

    def __call__(self, module, query, key, value, mask, scaling, sliding_window=None, softcap=None, **_):
        unrotated = key if self.unrotated is None else self.unrotated
        self.unrotated = None
        norms = np.linalg.norm(unrotated[0].numpy(), axis=-1)
        q, k, v = (x[0].numpy() for x in (query, key, value))
        (heads, length, dim), kv_heads = q.shape, len(k)
        group = heads // kv_heads
        size, window = self.size, sliding_window
        self.local |= window is not None
        if self.policy == "full" or window and self.local_layers == "exempt":
            size = np.inf
        elif window:
            size = min(size, window)
        out = np.zeros((1, length, heads, dim), q.dtype)
        survivors = []
        for g in range(kv_heads if self.by_head else 1):
            mine = range(g * group, (g + 1) * group) if self.by_head else range(heads)
            alive, total = np.zeros(0, int), np.zeros(length, q.dtype)
            for t in range(length):
                alive = np.append(alive, t)
                rows = []
                for head in mine:
                    logits = k[head // group, alive] @ q[head, t] * q.dtype.type(scaling)
                    if softcap:
                        logits = np.tanh(logits / q.dtype.type(softcap)) * q.dtype.type(softcap)
                    weights = np.exp(logits - logits.max())
                    weights /= weights.sum()
                    out[0, t, head] = weights @ v[head // group, alive]
                    rows.append(weights)
                mean = np.mean(rows, 0)
                total[alive] += mean
                if self.policy == "full":  # what this query saw is what transformers' mask allows
                    assert np.array_equal(np.flatnonzero(mask[0, 0, t].numpy() >= 0), alive)
                if window:
                    mean, alive = mean[alive > t + 1 - window], alive[alive > t + 1 - window]
                while len(alive) > size:
                    score = {"window": alive, "h2o": total[alive], "tova": mean, "knorm": -norms[g, alive]}[self.policy.split("-")[0]]
                    score = score.astype(float)
                    score[alive < self.keep_first] = np.inf
                    if self.policy.startswith("h2o"):
                        score[len(alive) - (size - size // 2):] = np.inf
                    i = self.lowest(score, q.dtype)
                    self.evicted.append((module.layer_idx, g, t, int(alive[i])))
                    alive, mean = np.delete(alive, i), np.delete(mean, i)
            survivors.append(alive.tolist())
        self.survivors.append(survivors)
        return torch.from_numpy(out), None

    def lowest(self, score, dtype):
        """The oldest entry with the lowest score. Equal tokens have equal keys in the first layer, but rows of a matrix product may be
        rounded differently."""
        best = score.min()
        equal = abs(score - best) <= abs(best) * (1e-9 if dtype == np.float64 else 1e-6)
        oldest = int(np.argmax(equal))
        if self.policy != "window":
            others = score[~equal] if self.policy == "knorm" else np.delete(score, oldest)
            self.narrowest = min([self.narrowest, *abs(others - best) / abs(best)])
        return oldest


@contextlib.contextmanager
def float64_everywhere():
    """Where transformers asks for float32, it gets float64."""
    single, method = torch.float32, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32 = torch.float = single
        torch.Tensor.float = method
        torch.set_default_dtype(single)


def load(folder, dtype, attention, exact=False):
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation=attention, output_loading_info=True)
    assert not any(loading.values()), f"{folder}: {loading}"
    if exact:
        with float64_everywhere():
            model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    return model.eval()


def losses(model, text):
    ids = torch.tensor([text])
    with torch.inference_mode():
        z = model(ids, use_cache=False).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(z, ids[0, 1:], reduction="none").tolist()


def run(model, text, policy, size, local_layers):
    """-> (NLLs, the attention function with survivors and decisions)"""
    attention = OneByOne(policy, size, local_layers)
    transformers.AttentionInterface.register("one_by_one", attention)
    source = sys.modules[type(model).__module__]
    rotate = source.apply_rotary_pos_emb

    def remember_key(q, k, *others, **named):
        attention.unrotated = k
        return rotate(q, k, *others, **named)

    source.apply_rotary_pos_emb = remember_key
    try:
        return losses(model, text), attention
    finally:
        source.apply_rotary_pos_emb = rotate


def compute(folder, text):
    """-> (cases, the closest decision), or None if a decision could turn on rounding"""
    exact = load(folder, torch.float64, "one_by_one", exact=True)
    rough = load(folder, torch.float32, "one_by_one")
    local = run(rough, text, "full", None, None)[1].local
    settings = ["bounded", "exempt"] if local else [None]
    cases, narrowest = [], np.inf
    for policy, size, setting in [("full", None, settings[0])] + [(p, s, x) for p in POLICIES for s in SIZES for x in settings]:
        with float64_everywhere():
            nll, attention = run(exact, text, policy, size, setting)
        narrowest = min(narrowest, attention.narrowest)
        if narrowest < NARROW or run(rough, text, policy, size, setting)[1].evicted != attention.evicted:
            return None
        case = dict(policy=policy, size=size, positions="absolute", local_layers=setting, nll=[round(x, 9) for x in nll],
                    survivors=attention.survivors)
        if setting is None:
            del case["local_layers"]
        cases.append(case)
    return cases, narrowest


def fill(model, seed):
    """Random weights: noise of std 1 / sqrt(fan-in); queries and keys so that attention logits have a std of about 2."""
    rng, norm = np.random.default_rng(seed), model.config.model_type.startswith("gemma")
    for name, p in model.named_parameters():
        noise = torch.from_numpy(rng.standard_normal(p.shape, dtype=np.float32))
        with torch.no_grad():
            if "q_norm" in name or "k_norm" in name:
                p.copy_(1.4 - norm + 0.2 * noise)
            elif "norm" in name:
                p.copy_(1 - norm + 0.1 * noise)
            elif name.endswith("bias"):
                p.copy_(0.3 * noise)
            else:
                p.copy_(noise * p.shape[1] ** -0.5)
                if "q_proj" in name or "k_proj" in name:
                    p.mul_(2 ** 0.5)
                if "qkv_proj" in name:  # queries and keys come before values
                    p[:-model.config.num_key_value_heads * model.model.layers[0].self_attn.head_dim].mul_(2 ** 0.5)


def write(name, seed):
    """A checkpoint as transformers saves it, and a text."""
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    changes = dict(FAMILIES[name])
    config = transformers.AutoConfig.for_model(changes.pop("model_type"), **json.loads(json.dumps(TINY | changes)))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fill(model, seed)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in V4:
        old = older_keys(json.loads((folder / "config.json").read_text()))
        (folder / "config.v4.json").write_text(json.dumps(old, indent=2) + "\n")
    return words(folder, seed, 120)


def older_keys(config):
    """The same configuration as transformers 4 writes it"""
    rope, layer_types = config.pop("rope_parameters"), config.pop("layer_types", None)
    if config["model_type"] == "gemma3_text":
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = layer_types.index("full_attention") + 1
    rope = rope.get("full_attention", rope)
    config["rope_theta"] = rope.pop("rope_theta")
    if config["model_type"] == "phi3":
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        rope = dict(type="longrope", short_factor=rope["short_factor"], long_factor=rope["long_factor"])
    config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.57.6"
    return config


def words(folder, seed, length):
    text = np.random.default_rng(seed + 1000).integers(3, TINY["vocab_size"], length).tolist()
    folder.mkdir(exist_ok=True)
    (folder / "tokens.json").write_text(json.dumps(text) + "\n")
    return text


def make(names):
    for name in [n for n in FAMILIES | SHORT if not names or n in names]:
        checkpoint = SHORT.get(name, (name, 0))[0]
        for seed in range(100):
            text = words(ROOT / name, seed, SHORT[name][1]) if name in SHORT else write(name, seed)
            found = compute(ROOT / checkpoint, text)
            if found:
                break
        if name in SHORT:
            (ROOT / name / "checkpoint").write_text(f"families/{checkpoint}\n")
        cases, narrowest = found
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        (ROOT / name / "golden.json").write_text(f'{{"cases": [\n{lines}\n]}}\n')
        print(f"{name}: seed {seed}, {len(cases)} cases, closest decision {narrowest:.0e} apart", flush=True)


def folders(names):
    """-> (name, checkpoint, tokens, cases) of each"""
    for name in [n for n in FAMILIES | SHORT if not names or n in names]:
        cases = json.loads((ROOT / name / "golden.json").read_text())["cases"]
        yield name, ROOT / SHORT.get(name, (name,))[0], json.loads((ROOT / name / "tokens.json").read_text()), cases


def apart(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def check(names):
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for name, folder, text, cases in folders(names):
        again = compute(folder, text)[0]
        assert len(again) == len(cases)
        for a, b in zip(again, cases):
            assert a | dict(nll=0) == b | dict(nll=0), f"{name}: {b['policy']} {b['size']} {b.get('local_layers')}"
        worst = max(apart(a["nll"], b["nll"]) for a, b in zip(again, cases))
        models = [load(folder, torch.float64, attention, exact=True) for attention in ("one_by_one", "eager")]
        with float64_everywhere():
            ours, eager = run(models[0], text, "full", None, None)[0], losses(models[1], text)
        plain, single = (losses(load(folder, dtype, "eager"), text) for dtype in (torch.float64, torch.float32))
        print(f"{name}: {len(cases)} cases within {worst:.1e}; full cache against transformers' eager attention {apart(ours, eager):.1e}, "
              f"with float32 parts {apart(ours, plain):.1e}, all float32 {apart(ours, single):.1e}", flush=True)


def keys(names):
    print(f"transformers {transformers.__version__}")
    for name, folder, text, cases in folders(names):
        file = next(f for f in (folder / "config.v4.json", folder / "config.json") if f.exists())
        with tempfile.TemporaryDirectory() as other:
            shutil.copy(file, f"{other}/config.json")
            shutil.copy(folder / "model.safetensors", other)
            nll = losses(load(other, torch.float64, "eager"), text)
        print(f"{name}: {file.name}, full cache within {apart(nll, cases[0]['nll']):.1e}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    transformers.AttentionInterface.register("one_by_one", None)
    transformers.AttentionMaskInterface.register("one_by_one", eager_mask)
    torch.set_num_threads(1)
    {"make": make, "check": check, "keys": keys}[sys.argv[1]](sys.argv[2:])
