#!/usr/bin/env python3
r"""The slow, obvious definition of every cache policy: one token at a time, entries physically deleted. Needs numpy.

tova-bench must agree with this file: the same survivors, and next-token NLLs within 1e-4 (f32 against f64). The rule
`tova` was checked against the authors' released code, fed one token at a time (largest NLL difference 7e-6), and the full
cache against transformers; tests/golden/README.md has these and the other policies' released code.

    python3 tests/golden/make/oracle.py MODEL_DIR TOKENS.json POLICY SIZE [--positions absolute|slot|squeezed] [--seed N] [--check] [--log]
                              [--f32] [--write N] [--schedule 1|N|cut|cut+N] [--prompt N]
                              [--texts FILE.json] [--files-from FOLDER] [--reread FILE.json] [--budget JSON]
    python3 tests/golden/make/oracle.py MODEL_DIR TOKENS.json --score FORMULA [--scope layer|head] [--pool mean|max] [--keep-first N|N%]
                              [--keep-recent N|N%] SIZE ...

MODEL_DIR   a Hugging Face checkpoint folder (config.json, one or many safetensors) of a Llama, Mistral or Qwen2 model
TOKENS.json a list of token ids
POLICY      full, or a preset of tests/golden/make/policies.py, which states the rule and source of each: NAME has the preset's own scope,
            NAME-layer and NAME-head that scope; +I protects the first I tokens
SIZE        entries that are left after each eviction, per layer and per key-value head; with a budget, the mean
--score     instead of a POLICY: a formula, computed by tests/golden/make/formula.py
--seed      of the draws of `random` and `gumbel`
--check     compute the preset's formula, too, and fail unless it evicts the same entries in the same order
--f32       compute in float32 instead of float64
--write N   continue with N tokens after all of TOKENS, always the most likely one
--schedule  when entries leave: 1 (after every token), N, cut or cut+N; see below; the preset's own if not given, else 1
--prompt N  the first N tokens are the prompt, which only a cut asks for; all of TOKENS if not given
--one-shot  short for --schedule cut+1
--texts     for token_in: a list with the text of each token id, decoded alone
--files-from  for dot and rotated_dot: a folder with safetensors files
--reread    for reread_attention: {"first": ids of "\n\nRepeat the previous context exactly.", "others": ids of "\n\nRepeat the part
            of the previous context exactly, starting with", "suffix": ids of "\n", "chunk": how many tokens of the prompt are read
            again at a time}
--budget    who has how many entries, see below: {"pyramid": 20}, {"layers": [3, 2, 1]}, {"heads": [[1, 2.5], ["full", 1], ...]},
            {"pool": "heads" or "model", "floor": 20, "score": FORMULA}; floor and score can be left out
Prints JSON: {"nll": [...], "survivors": [layer][scope group] -> token positions after the last step, "evicted": optional log,
"narrowest": with the log, how close the closest decision was, relative to its scores, exact ties apart; "narrowest_set": the same
where the order of entries that leave at once does not matter; "written": optional tokens}

Conventions (the paper's released code: attend first, evict after):
 * step t: the new token joins the cache, attends to up to SIZE + 1 entries including itself, and then one entry is evicted (with
   another schedule, it attends to as many as there are, and then as many are evicted as the schedule says);
 * the newest token itself can be evicted, unless the policy protects recent tokens;
 * scope `layer`: one decision per layer, scores averaged over all query heads; scope `head`: one decision per key-value
   head, scores averaged over its group of query heads (or the largest of them, with --pool max);
 * the unprotected entry with the lowest score is evicted, of equal ones the oldest; a score that is not a number counts as
   infinity;
 * the first tokens and newest entries that a policy protects count in SIZE; a percentage of SIZE is rounded up;
 * the entry's memory of earlier steps goes with it;
 * positions absolute: keys rotated at their original position; slot: rotated at their rank in the cache;
   squeezed: a gap g > 10 between neighbours in the cache becomes ln(ln g), smaller gaps stay (paper, section 7.2).

Schedules, when entries leave a cache:
 * 1: one after every token, once there are SIZE + 1;
 * N: the cache grows to SIZE + N entries, and when the last of them has joined and attended, N leave at once;
 * cut: nothing leaves while the prompt is read; after its last token has joined and attended, all but SIZE leave at once, if there
   are more; then the cache grows, and nothing leaves any more;
 * cut+N: the same up to the cut; after it, as with N: whenever the cache has grown to SIZE + N entries, N leave at once.
Those that leave at once are the unprotected ones with the lowest scores of that step, of equal ones the oldest. The scores are
computed once, before the first of them leaves, and so is everything in them (`rank`, `share`) and what is protected. Positions
slot and squeezed are always those of the entries that are in the cache now, so that they move when entries leave.

Budgets, who has how many entries; those of heads need the scope head:
 * pyramid, layers: layers have sizes of their own, as policies.budget says;
 * heads: a table, for each layer, of the shares of its key-value heads. A head with "full" keeps everything, also at a cut. The n
   others share n * SIZE entries in proportion, rounded as policies.whole says, and each has its size as above;
 * pool "heads": the heads of a layer hold SIZE entries on average, or where that is fewer, as many as the layer's window. All schedules
   count the entries of all of them together: instead of SIZE and N above, SIZE * heads and N * heads. Those that leave are the lowest of all heads, of equal ones the oldest, of these that
   of the lower head; but a head that holds no more than `floor` % of SIZE, rounded down and at least 1 if floor is not 0, loses no more;
 * pool "model": the same with all heads of all layers, when the token has gone through all of them; of equal ones of one age first that
   of the lower layer;
 * with a `score`, a pool is divided by that score only to see how many entries each head keeps. In a head, as many as the floor says are
   protected ones or those which this score puts highest; of the others the lowest of the policy's own score leave.

Selection, where a policy has `select_from`: nothing leaves. In layers from that one on a query attends to SIZE entries of all, with a
cut those after the prompt alone: without those that would leave by the scores of its own step, in which attention is that to all entries.
In other layers, and with a cut in the prompt, it attends to all. The log has what a query did not attend to.

The scope `model`: one decision for all layers, when the token has gone through all of them: each has the scores of its own step as
under the scope `layer`, and their mean over the layers that decide says which entries leave every layer.

A layer with a sliding window of W tokens: before token t attends, what is older than t - W + 1 leaves, protected or not.

Where a score is the same in all of a block (a formula of block(x, n), see formula.py), the block with the lowest score leaves, of equal
ones the oldest: all of its entries that are not protected; and so on, until no more than SIZE entries are left, which may be fewer. A
block with a protected entry comes only after all others that have entries which may leave.
"""
import argparse, json, math, re, struct, sys
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
    theta = cfg.get("rope_theta") or cfg.get("rope_parameters", {}).get("rope_theta", 10000.0)
    freq = theta ** (-np.arange(0, dim, 2) / dim)
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


def ask(rule, step, memory, pool, due):
    """Computes the scores of a step, or only what has to be remembered if nothing leaves."""
    step.due, step.memory = due, memory
    with np.errstate(divide="ignore", invalid="ignore"):  # scores can be infinite, or no numbers
        score = rule(step)
    step.score = formula.pool(score, pool) if due else None


def in_order(steps):
    """-> (head, entry) of all that may leave, the first to leave first: the lowest, of equal ones the oldest, then of the lower head"""
    number = lambda x: math.inf if np.isnan(x) else x
    return [(h, i) for *_, h, i in sorted(
        (number(step.score[i]), born, h, i) for h, step in enumerate(steps) for i, born in enumerate(step.born) if not step.stays[i])]


def leaving(steps, limit, floor=0):
    """-> (head, entry) of those that leave, in this order, where heads hold no more than `limit` together; how close the order was; how
    close it was which leave"""
    order, left, held = in_order(steps), [], [len(step.born) for step in steps]
    for h, i in order:
        if sum(held) > limit and held[h] > floor:
            left.append((h, i))
            held[h] -= 1
    stay, of = sorted(set(order) - set(left)), lambda entries: np.array([steps[h].score[i] for h, i in entries])
    ranked = of(order)
    by_order = min((closest(ranked[[n]], ranked[n:]) for n, entry in enumerate(order) if entry not in stay), default=math.inf)
    # where a head has no more than the floor, its entries were not compared with others
    pairs = [(left, [x for x in stay if held[x[0]] > floor])]
    pairs += [([x for x in left if x[0] == h], [x for x in stay if x[0] == h]) for h in range(len(steps))]
    return left, by_order, min(closest(of(x), of(y)) for x, y in pairs)


def divide(steps, limit, floor):
    """Says how many entries each head keeps by these scores, and which it keeps whatever others say. -> how close this was"""
    left, _, gap = leaving(steps, limit, floor)
    for h, step in enumerate(steps):
        step.kept = step.size = len(step.born) - sum(head == h for head, _ in left)
        order = [i for _, i in in_order([step])]
        best = order[max(0, len(order) - max(0, floor - sum(step.stays))):]
        gap = min(gap, closest(step.score[[i for i in order if i not in best]], step.score[best]))
        step.stays = step.stays | np.isin(np.arange(len(step.born)), best)
    return gap


def closest(leave, stay):
    """-> how close a score of those that stay is to one of those that leave, relative to the larger of the two, exact ties apart"""
    x, y = np.asarray(leave)[:, None], np.asarray(stay)
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = (y - x) / np.maximum(abs(x), abs(y))
        return float(gaps[(y > x) & np.isfinite(y - x)].min(initial=math.inf))


def parse_schedule(text):
    """1, N, cut or cut+N -> whether there is a cut, N (None: nothing leaves but at the cut)"""
    found = re.fullmatch(r"cut|(?:cut\+)?([1-9][0-9]*)", text)
    if not found:
        raise SystemExit(f"{text!r} is no schedule; there are: 1, N, cut and cut+N")
    return text.startswith("cut"), found[1] and int(found[1])


def leaving_blocks(step, limit, n):
    """As leaving, of one decision, in blocks of n positions; the order of these matters, because it says when to stop."""
    left, narrowest, scores, stays = [], math.inf, step.score, step.stays
    while len(step.born) - len(left) > limit:
        blocks = {}
        for i, b in enumerate(step.born):
            if i not in left:
                blocks.setdefault(b // n, []).append(i)
        some = [entries for entries in blocks.values() if not all(stays[i] for i in entries)]
        whole = [entries for entries in some if not any(stays[i] for i in entries)] or some
        # the first, and so the oldest, of equal ones
        leaves = min(whole, key=lambda entries: math.inf if np.isnan(scores[entries[0]]) else scores[entries[0]])
        narrowest = min(narrowest, closest([scores[leaves[0]]], [scores[entries[0]] for entries in whole]))
        left += [i for i in leaves if not stays[i]]
    return [(0, i) for i in left], narrowest, narrowest


def remove(s, entries):
    for name in ("born", "k", "v"):
        s[name] = [x for i, x in enumerate(s[name]) if i not in entries]
    for memory in ("memory", "memory of budget"):
        s[memory] = {name: np.delete(x, entries, 0) for name, x in s[memory].items()}


class Model:
    def __init__(self, model_dir, dtype, noise=0.0):
        cfg = self.cfg = json.loads((Path(model_dir) / "config.json").read_text())
        w = self.w = load_weights(model_dir, dtype)
        self.dtype = dtype
        if noise:
            jitter = np.random.default_rng(1)
            w = self.w = {name: x * (1 + noise * jitter.standard_normal(x.shape)).astype(dtype) for name, x in sorted(w.items())}
        if cfg["model_type"] not in ("llama", "mistral", "qwen2"):
            raise SystemExit(f"model_type {cfg['model_type']!r} is not supported")
        self.window = cfg.get("sliding_window") if cfg.get("use_sliding_window", True) else None
        self.heads, self.kvh = cfg["num_attention_heads"], cfg.get("num_key_value_heads", cfg["num_attention_heads"])
        hid, self.layers = cfg["hidden_size"], cfg["num_hidden_layers"]
        self.dim, self.grp = cfg.get("head_dim") or hid // self.heads, self.heads // self.kvh
        self.freq, self.eps = rope_frequencies(cfg, self.dim), cfg["rms_norm_eps"]
        # tied checkpoints store one of the two
        self.embed = w.get("model.embed_tokens.weight", w.get("lm_head.weight"))
        self.lm_head = self.embed if cfg.get("tie_word_embeddings") else w.get("lm_head.weight", self.embed)

    def rms(self, x, g):
        return x / np.sqrt((x * x).mean() + self.dtype(self.eps)) * g

    def linear(self, name, x):
        # biases are there or not: Qwen2 has them on q, k and v, Llama with attention_bias on all four
        return self.w[name + ".weight"] @ x + self.w.get(name + ".bias", self.dtype(0))

    def attends(self, l, x):
        """-> query (heads, dim), key and value (kvh, dim), not rotated"""
        p = f"model.layers.{l}."
        h = self.rms(x, self.w[p + "input_layernorm.weight"])
        q = self.linear(p + "self_attn.q_proj", h).reshape(self.heads, self.dim)
        k = self.linear(p + "self_attn.k_proj", h).reshape(self.kvh, self.dim)
        v = self.linear(p + "self_attn.v_proj", h).reshape(self.kvh, self.dim)
        return q, k, v

    def attended(self, l, x, out):
        """the rest of the layer"""
        p = f"model.layers.{l}."
        x = x + self.linear(p + "self_attn.o_proj", out.reshape(-1))
        h = self.rms(x, self.w[p + "post_attention_layernorm.weight"])
        gate, up = self.linear(p + "mlp.gate_proj", h), self.linear(p + "mlp.up_proj", h)
        return x + self.linear(p + "mlp.down_proj", gate / (1 + np.exp(-gate)) * up)

    def logits(self, x):
        return self.lm_head @ self.rms(x, self.w["model.norm.weight"])

    def projections(self, l):
        """-> (heads, width, dim): the part of the output projection that each query head has"""
        w = self.w[f"model.layers.{l}.self_attn.o_proj.weight"]
        return w.reshape(len(w), self.heads, self.dim).transpose(1, 0, 2)


def read_again(model, prompt, first, others, suffix, chunk):
    """KVzip: after the prompt, with the full cache, a request to repeat each chunk of it is read, and then that chunk. -> [layer] ->
    (tokens of the prompt, query heads): the largest attention of these queries, and of the query heads that share a key-value head, of
    a softmax over the first four entries at most, the chunk, and what is read here up to the query itself."""
    keys, values = [[] for _ in range(model.layers)], [[] for _ in range(model.layers)]
    best = [np.zeros((len(prompt), model.heads), model.dtype) for _ in range(model.layers)]

    def read(token, among):
        """Reads one more token. -> [layer] -> (entries, heads): attention among those entries and those after the prompt"""
        t, x, paid = len(keys[0]), model.embed[token], []
        for l in range(model.layers):
            q, k, v = model.attends(l, x)
            keys[l].append(rope(k[None], [t], model.freq)[0])
            values[l].append(v)
            q = rope(q[None], [t], model.freq)[0]
            k, v = np.stack(keys[l]), np.stack(values[l])
            of = [head // model.grp for head in range(model.heads)]
            logit = (k[:, of] * q).sum(-1) / model.dtype(math.sqrt(model.dim))
            paid.append(softmax(logit[among + list(range(len(prompt), t + 1))]))
            x = model.attended(l, x, (softmax(logit)[:, :, None] * v[:, of]).sum(0))
        return paid

    for token in prompt:
        read(token, list(range(len(keys[0]) + 1)))
    for start in range(0, len(prompt), chunk):
        end = min(start + chunk, len(prompt))
        sinks = min(4, start)
        request = first if start == 0 else others + prompt[start - min(8, chunk):start]
        for token in [*request, *suffix, *prompt[start:end]]:
            for l, paid in enumerate(read(token, list(range(sinks)) + list(range(start, end)))):
                best[l][start:end] = np.maximum(best[l][start:end], paid[sinks:sinks + end - start])
        for of_layer in (*keys, *values):
            del of_layer[len(prompt):]
    groups = lambda x: x.reshape(len(prompt), model.kvh, model.grp).max(2)
    return [np.repeat(groups(x), model.grp, 1) for x in best]


def run(model_dir, tokens, policy, size, positions="absolute", log=False, dtype=np.float64, write=0, schedule=None, prompt=None, seed=0,
        noise=0.0, budget=None, attended=None, texts=None, files=None, reread=None):
    """policy: a name or a policies.Policy; prompt: how many of the tokens a cut comes after, or None for all of them; budget: as
    --budget has it; schedule and budget: the policy's own if None; attended: of the full cache, [layer][query] -> (tokens, heads), filled
    where there is no policy, and else known to the policy; noise: relative changes of all weights, to see whether a decision turns on
    rounding; texts: of each token id; files: {name: {tensor: array}}; reread: what read_again takes, by name"""
    model = Model(model_dir, dtype, noise)
    heads, kvh, layers, dim, grp, freq = model.heads, model.kvh, model.layers, model.dim, model.grp, model.freq
    if model.window is not None and len(tokens) > model.window and ("layer_types" in model.cfg or "max_window_layers" in model.cfg):
        raise SystemExit(f"the text is longer than the sliding window of {model.window}, which some layers do not have")
    if isinstance(policy, str):
        policy = None if policy == "full" else policies.preset(policy, size)
    if policy:
        schedule, budget = schedule or policy.schedule, budget or policy.budget
    scope = policy.scope if policy else "layer"
    if policy is not None and attended is None and policy.needs_future:
        run(model_dir, tokens, "full", None, dtype=dtype, noise=noise, attended=(attended := [[] for _ in range(layers)]))
    n_groups = kvh if scope == "head" else 1
    pools = policies.pools(policy, size, layers, n_groups, budget, model.window) if policy else []
    selects, selected = policy is not None and policy.select_from is not None, {}
    if selects:
        pools, selected = [], {member: limit for members, limit in pools for member in members}
    floor, division = policies.floor(size, budget or {}), None
    if budget and budget.get("score"):
        division = formula.Formula(budget["score"], size, policy.pool)
    state = [[{"born": [], "k": [], "v": [], "memory": {}, "memory of budget": {}} for _ in range(n_groups)] for _ in range(layers)]
    queries = [[] for _ in range(layers)]
    nll, evicted, narrowest, narrowest_set, margins = [], [], math.inf, math.inf, []
    given, tokens = len(tokens), list(tokens)
    prompt = given if prompt is None else prompt
    if not 1 <= prompt <= given:
        raise SystemExit(f"a prompt of {prompt} tokens, where {given} are given")
    cut, at_once = parse_schedule(schedule or "1")
    again = None
    if policy is not None and policy.needs_reread:
        if not cut or reread is None:
            raise SystemExit("reread_attention needs a cut, and what to read")
        again = read_again(model, tokens[:prompt], **reread)
    for t, tok in enumerate(tokens):
        x, steps = model.embed[tok], {}
        for l in range(layers):
            q, k, v = model.attends(l, x)
            queries[l].append(q / dtype(math.sqrt(dim)))
            out = np.zeros((heads, dim), dtype)
            for g, s in enumerate(state[l]):
                while model.window and s["born"] and s["born"][0] <= t - model.window:
                    remove(s, [0])
                s["born"].append(t); s["k"].append(k); s["v"].append(v)
                pos = cache_positions(s["born"], positions)
                keys, values = np.stack(s["k"]), np.stack(s["v"])                       # (n, kvh, dim)
                rotated, Q = rope(keys, pos, freq), rope(q[None], pos[-1:], freq)[0]
                mine = list(range(g * grp, (g + 1) * grp) if scope == "head" else range(heads))
                of = [hd // grp for hd in mine]
                logit = np.stack([rotated[:, hd // grp] @ Q[hd] / dtype(math.sqrt(dim)) for hd in mine], 1)
                attention = softmax(logit)
                for i, hd in enumerate(mine):
                    out[hd] = attention[:, i] @ values[:, hd // grp]
                if policy is None:
                    if attended is not None:
                        attended[l].append(attention)
                    continue
                n = len(s["born"])
                protected = [b < policy.keep_first or i >= n - policy.keep_recent for i, b in enumerate(s["born"])]
                draws = (seed * 0x2545F4914F6CDD1D + l) % 2**64, g
                # as the engine keeps it: the mean over the decision's heads in two bytes, which have eleven bits
                later = attended and np.array([
                    np.float16(row[: t + 1, mine].mean(1) * 2**15).astype(dtype) / 2**15 for row in attended[l][t + 1:]
                ])
                steps[l, g] = policies.Step(
                    t, size, s["born"], mine, attention, logit, keys[:, of], rotated[:, of], values[:, of], out[mine], np.array(protected),
                    draws, later, layer=l, keep_first=policy.keep_first, n_heads=heads, groups=of, places=pos,
                    freq=freq, queries=np.stack(queries[l])[:, mine], projections=model.projections(l)[mine], tokens=tokens[: t + 1],
                    texts=texts, files=files, reread=None if again is None else again[l][:, mine])
                if selects:
                    step, due = steps[l, g], l >= policy.select_from and n > selected[l, g] and not (cut and t < prompt)
                    ask(policy.rule, step, s["memory"], policy.pool, due)
                    if not due:
                        continue
                    left, *gaps = (leaving_blocks(step, selected[l, g], policy.block) if policy.block
                                   else leaving([step], selected[l, g]))
                    narrowest, narrowest_set = min(narrowest, gaps[0]), min(narrowest_set, gaps[1])
                    evicted += [[t, l, g, int(s["born"][i])] for _, i in left]
                    seen = [i for i in range(n) if i not in {i for _, i in left}]
                    attention = softmax(logit[seen])
                    for i, hd in enumerate(mine):
                        out[hd] = attention[:, i] @ values[seen, hd // grp]
            x = model.attended(l, x, out)
        if scope == "model":
            everywhere, held = [steps[l, 0] for l in range(layers)], len(steps[0, 0].born)
            due = held > size if cut and t == prompt - 1 else not (cut and t < prompt) and at_once is not None and held >= size + at_once
            for l, step in enumerate(everywhere):
                ask(policy.rule, step, state[l][0]["memory"], policy.pool, due)
            if due:
                step = everywhere[0]
                step.score = sum(everywhere[l].score for l in policy.deciding(layers)) / dtype(len(policy.deciding(layers)))
                left, *gaps = leaving_blocks(step, size, policy.block) if policy.block else leaving([step], size)
                narrowest, narrowest_set = min(narrowest, gaps[0]), min(narrowest_set, gaps[1])
                evicted += [[t, l, 0, int(step.born[i])] for l in range(layers) for _, i in left]
                for l in range(layers):
                    remove(state[l][0], [i for _, i in left])
        for members, limit in pools if scope != "model" else []:
            shared = [steps[member] for member in members]
            held = sum(len(step.born) for step in shared)
            if cut and t < prompt:
                due = t == prompt - 1 and held > limit
            else:
                due = at_once is not None and held > limit + (at_once - 1) * len(members)
            together = [(members, limit, floor)]
            if division:
                for l, g in members:
                    ask(division, steps[l, g], state[l][g]["memory of budget"], policy.pool, due)
                if due:
                    narrowest_set = min(narrowest_set, divide(shared, limit, floor))
                    together = [([member], steps[member].kept, 0) for member in members]
            for l, g in members:
                ask(policy.rule, steps[l, g], state[l][g]["memory"], policy.pool, due)
            for some, most, least in together if due else []:
                of_some = [steps[member] for member in some]
                left, *gaps = leaving_blocks(*of_some, most, policy.block) if policy.block else leaving(of_some, most, least)
                narrowest, narrowest_set = min(narrowest, gaps[0]), min(narrowest_set, gaps[1])
                evicted += [[t, *some[h], int(steps[some[h]].born[i])] for h, i in left]
                for h, (l, g) in enumerate(some):
                    remove(state[l][g], [i for head, i in left if head == h])
        z = model.logits(x)
        if given - 1 <= t < given - 1 + write:
            best, second = np.argsort(-z, kind="stable")[:2]
            margins.append(float(z[best] - z[second]))
            tokens.append(int(best))
        if t + 1 < len(tokens):
            m = z.max()
            nll.append(float(m + math.log(np.exp(z - m).sum()) - z[tokens[t + 1]]))
        if write and t + 2 == given + write:
            break
    out = dict(nll=nll, survivors=[[g["born"] for g in layer] for layer in state])
    if log:
        # how close the closest decision was, relative to its score: what rounding it takes to change a survivor
        out |= dict(evicted=evicted, narrowest=float(narrowest), narrowest_set=float(narrowest_set))
    if write:
        # with how far each was ahead of the next best, in logits; the last token is chosen, but not read
        out |= dict(written=tokens[given:], margins=margins)
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
    ap.add_argument("--schedule")
    ap.add_argument("--one-shot", dest="schedule", action="store_const", const="cut+1")
    ap.add_argument("--prompt", type=int)
    ap.add_argument("--budget", type=json.loads)
    ap.add_argument("--texts"); ap.add_argument("--files-from"); ap.add_argument("--reread")
    a = ap.parse_intermixed_args()
    if (a.policy is None) == (a.score is None):
        ap.error("one of POLICY and --score is needed")
    policy = a.policy or formula.policy(a.score, a.scope, a.size, a.pool, a.keep_first, a.keep_recent)
    dtype = np.float32 if a.f32 else np.float64
    tokens = json.loads(Path(a.tokens).read_text())
    read = lambda path: path and json.loads(Path(path).read_text())
    files = a.files_from and {path.name: load_safetensors(path) for path in Path(a.files_from).glob("*.safetensors")}
    answer = lambda policy, log: run(a.model, tokens, policy, a.size, a.positions, log, dtype, a.write, a.schedule, a.prompt, a.seed,
                                     budget=a.budget, texts=read(a.texts), files=files, reread=read(a.reread))
    out = answer(policy, a.log or a.check)
    if a.check:
        other = answer(formula.of_preset(a.policy, a.size), True)
        if out["evicted"] != other["evicted"]:
            raise SystemExit(f"{a.policy} and its formula evict other entries")
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
