#!/usr/bin/env python3
"""Measures the paper's way: transformers' Llama, one token at a time, the cache cut after each attention.

Needs torch and transformers==4.36.2 (the version the released code requires). After a layer's attention, if there are more
than `--cache-size` entries, the one with the lowest attention, averaged over query heads, is evicted. Keys are cached at
their absolute positions. `--released` takes attention and cache from the released code instead, in the folder that
`git clone https://github.com/schwartz-lab-NLP/TOVA` makes. `--forward` measures one plain forward over the whole text instead, without a policy.

    python3 benches/peers/authors_way.py --model DIR --tokens FILE.json [--policy tova|full] [--cache-size 512] [--limit N]
                                   [--threads 2] [--repeats 1] [--nll-out FILE.json] [--cut argmin|topk]
                                   [--released TOVA]
    python3 benches/peers/authors_way.py --model DIR --tokens FILE.json --forward [--attention sdpa|eager]

Prints one JSON object; the rate is the text's tokens over the median seconds, without model loading and warm-up.
"""
import argparse, importlib, json, math, os, platform, resource, statistics, sys, time, warnings
from pathlib import Path

warnings.filterwarnings("ignore", category=FutureWarning)
import torch
import transformers
from transformers.cache_utils import DynamicCache
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

WARM_UP = 16


class BoundedCache(DynamicCache):
    """At most `size` entries per layer survive a step; `size` None: all of them."""

    def __init__(self, size, cut):
        super().__init__()
        self.size, self.cut = size, cut

    def evict(self, layer, attention):
        """attention: (1, heads, 1, entries)"""
        entries = attention.shape[-1]
        if self.size is None or entries <= self.size:
            return
        score = attention[0, :, -1].mean(0)  # (entries,)
        if self.cut == "topk":  # as the released code selects
            keep = score.topk(self.size).indices.sort().values
        else:
            i = int(score.argmin())
            keep = torch.cat([torch.arange(i), torch.arange(i + 1, entries)])
        self.key_cache[layer] = self.key_cache[layer].index_select(2, keep)
        self.value_cache[layer] = self.value_cache[layer].index_select(2, keep)


class BoundedAttention(modeling_llama.LlamaAttention):
    """transformers' eager attention for one token, and the cut after it."""

    def forward(self, hidden_states, attention_mask=None, position_ids=None, past_key_value=None, **_):
        batch, n, _ = hidden_states.shape
        heads = lambda x, count: x.view(batch, n, count, self.head_dim).transpose(1, 2)
        q = heads(self.q_proj(hidden_states), self.num_heads)  # (batch, heads, 1, dim)
        k = heads(self.k_proj(hidden_states), self.num_key_value_heads)
        v = heads(self.v_proj(hidden_states), self.num_key_value_heads)
        cos, sin = self.rotary_emb(v, seq_len=int(position_ids[0, -1]) + 1)
        q, k = apply_rotary_pos_emb(q, k, cos, sin, position_ids)
        k, v = past_key_value.update(k, v, self.layer_idx)
        k, v = repeat_kv(k, self.num_key_value_groups), repeat_kv(v, self.num_key_value_groups)
        logits = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(self.head_dim)  # (batch, heads, 1, entries)
        attention = torch.softmax(logits, dim=-1, dtype=torch.float32).to(q.dtype)
        out = torch.matmul(attention, v).transpose(1, 2).reshape(batch, n, self.hidden_size)
        past_key_value.evict(self.layer_idx, attention)
        return self.o_proj(out), None, past_key_value


def load(folder, attention):
    return transformers.LlamaForCausalLM.from_pretrained(folder, attn_implementation=attention, torch_dtype=torch.float32).eval()


def released(folder, model):
    """Patches the model as the released code does -> its cache"""
    folder = Path(folder).resolve()
    sys.path.insert(0, str(folder.parent))
    tova = importlib.import_module(folder.name)
    tova.enable_tova_caching(model)
    return lambda size: tova.TOVACache(sys.maxsize if size is None else size)


@torch.inference_mode()
def step_by_step(model, tokens, cache):
    """-> (seconds, NLL of each next token)"""
    nll = []
    ids = torch.tensor([tokens])
    start = time.perf_counter()
    for t in range(len(tokens)):
        z = model(ids[:, t : t + 1], position_ids=torch.tensor([[t]]), past_key_values=cache, use_cache=True).logits[0, -1]
        if t + 1 < len(tokens):
            nll.append(float(z.logsumexp(0) - z[tokens[t + 1]]))
    return time.perf_counter() - start, nll


@torch.inference_mode()
def forward(model, tokens):
    ids = torch.tensor([tokens])
    start = time.perf_counter()
    z = model(ids, use_cache=False).logits[0, :-1]
    nll = torch.nn.functional.cross_entropy(z, ids[0, 1:], reduction="none").tolist()
    return time.perf_counter() - start, nll


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", required=True)
    ap.add_argument("--tokens", required=True)
    ap.add_argument("--policy", default="tova", choices=["tova", "full"])
    ap.add_argument("--cache-size", type=int, default=512)
    ap.add_argument("--cut", default="argmin", choices=["argmin", "topk"], help="how the one that leaves is found: the survivors are the same")
    ap.add_argument("--released", metavar="TOVA", help="the folder of the released code")
    ap.add_argument("--forward", action="store_true")
    ap.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"], help="of --forward")
    ap.add_argument("--limit", type=int, help="read only the first N tokens")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--repeats", type=int, help="default: 1, with --forward 5")
    ap.add_argument("--nll-out")
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    tokens = json.loads(Path(a.tokens).read_text())[: a.limit]
    if a.forward:
        model = load(a.model, a.attention)
        once = lambda text: forward(model, text)
        what = {"way": "forward", "attention": a.attention}
        once(tokens)
    else:
        size = a.cache_size if a.policy == "tova" else None
        if a.released:
            model = load(a.model, "eager")
            cache_of = released(a.released, model)
        else:
            # the released code patches the class too
            modeling_llama.LLAMA_ATTENTION_CLASSES["eager"] = BoundedAttention
            model = load(a.model, "eager")
            cache_of = lambda size: BoundedCache(size, a.cut)
        once = lambda text: step_by_step(model, text, cache_of(size))
        what = {"way": "one token at a time", "policy": a.policy, "cache_size": size,
                "cut": "released" if a.released else a.cut}
        once(tokens[:WARM_UP])
    runs = [once(tokens) for _ in range(a.repeats or (5 if a.forward else 1))]
    seconds, nll = [s for s, _ in runs], runs[0][1]
    if a.nll_out:
        Path(a.nll_out).write_text(json.dumps(nll) + "\n")
    print(json.dumps(what | {
        "tokens": len(tokens),
        "tokens_per_second": round(len(tokens) / statistics.median(seconds), 2),
        "seconds": [round(s, 4) for s in seconds],
        "perplexity": math.exp(statistics.fmean(nll)),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "threads": a.threads,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }))


if __name__ == "__main__":
    main()
