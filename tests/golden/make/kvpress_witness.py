#!/usr/bin/env python3
"""Records what NVIDIA's kvpress 0.5.5 keeps of a prompt and what it then predicts, and compares tova-bench with it.

    pip install torch==2.13.0 transformers==5.2.0 kvpress==0.5.5 gguf==0.19.0
    python3 tests/golden/make/kvpress_witness.py record OUT.json --model MODEL.gguf --text BOOK.txt [--prompts 512 1024 2048]
                                       [--following 256] [--ratios 0.25 0.5 0.75 0.875]
                                       [--intervals 32 128] [--presses TOVA ...] [--exact]
    python3 tests/golden/make/kvpress_witness.py compare OUT.json... --program target/release/tova-bench   (needs numpy only)
    python3 tests/golden/make/kvpress_witness.py goldens   make tests/golden/kvpress again

Two schedules. `cut`: the prompt is read with the full cache, and after its last token a press cuts every layer once; then the cache
grows. A number N is kvpress's DecodingPress: after every N tokens that follow the prompt, the cache is cut to the same size; the
prompt has that size, and N divides it, so a cut is always at a multiple of N from the beginning of the text.

`record` writes, for every prompt, press and ratio, the positions that each layer and key-value head keeps, and the NLLs of the
tokens that follow, into OUT.json; the scores and every cut go into OUT.npz. It takes the first tokens of BOOK.txt, without BOS.
Everything is f32, as transformers loads it; --exact computes in float64, norms, rotations and softmax too. Attention is eager, which
gives a press the model's weights; ChunkKV refuses these, so for it, for PyramidKV, and for all that mask entries (below), attention is
sdpa, and the press computes them.
 * PyramidKV: layers have sizes of their own, for which transformers' single mask is wrong, so that the tokens that follow are read one
   at a time. The program gets kvpress's sizes as `budget: {layers: [...]}`.
 * ChunkKV keeps whole chunks; the cache size is as many entries as it kept.
 * KVzip: kvpress lets all layers and heads share the budget, and masks entries: KVzipPool. Its second reading of the prompt is without
   chat template (so "\\n" is all that is added to its request). As KVzip it only scores. Then each head keeps its first 4 and the
   highest others, as many as other presses would; the rest is taken out of the cache, and the text goes on at its own positions.
 * AdaKV and CriticalAdaKV over SnapKV, AdaExpected (AdaKV over ExpectedAttention), KVzipPool and DuoAttention leave everything in the
   cache and say what attention must not see. kvpress gives these entries a key without weight for the queries of one forward, so the
   tokens that follow are read one at a time; that masked entries have a weight of 0 is checked at every one. DuoAttention's pattern is
   made up: its ratio is that of the heads which keep 4 first and 60 newest entries. The program gets these heads as a table.
`compare` runs the program on the same tokens. It fails where more than 1 in 1,000 entries differ, or the mean NLL by more than 1e-3,
and says how close the scores of differing entries were in kvpress: the distance to the other side of the cut, relative to the larger.
Equal tokens have keys of equal norm in the first layer, so that rounding decides in Knorm. What it decided there is not judged; Knorm
is recorded once more with these ties decided as tova-bench decides them, and that is judged. The same with LagKV, whose scores are
ranks, equal in every partition: torch's topk decides, which drops even first entries, and here they stay, and of others the newest.
`goldens` leaves a case out if rounding could change what it keeps.
"""
import argparse, contextlib, copy, json, logging, math, os, subprocess, sys, tempfile
from pathlib import Path
from types import SimpleNamespace
import numpy as np

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TOKENIZERS_PARALLELISM="false")

SNAPKV = "smooth(window(attention, 64), 5)"
# kvpress's name -> our policy: its name, score, scope, keep_first and keep_recent
RULES = {
    "Knorm": ("kv-knorm", "-key_norm", "head", 0, 0),
    "TOVA": ("kv-tova", "attention", "layer", 0, 1),
    "StreamingLLM": ("streaming", "position", "layer", 4, 0),
    "ObservedAttention": ("observed", "mean(attention)", "head", 0, 0),
    "KeyDiff": ("kv-keydiff", "-key_similarity", "head", 0, 0),
    "SnapKV": ("kv-snapkv", SNAPKV, "head", 0, 64),
    "PyramidKV": ("kv-pyramidkv", SNAPKV, "head", 0, 64),
    "ExpectedAttention": ("kv-expected", "expected_attention(512) * value_norm2", "head", 4, 0),
    # with use_covariance=False
    "ExpectedAttentionMean": ("kv-expected-mean", "expected_attention_mean(512) * value_norm2", "head", 4, 0),
    "LagKV": ("kv-lagkv", "lag_score(128)", "head", 4, 0),
    # over SnapKV, both
    "CriticalKV": ("kv-criticalkv", f"if(rank(-pooled({SNAPKV})) < (size - 1) / 2 - 64, 1e9, "
                   f"(pooled({SNAPKV}) / 64 + 0.0001) * projected_value_norm)", "head", 0, 64),
    "ChunkKV": ("kv-chunkkv", f"block({SNAPKV}, 20)", "layer", 0, 64),
    "KVzip": ("kv-kvzip", "reread_attention", "head", 4, 0),
    "DuoAttention": ("kv-duo", "position", "head", 4, 0),
}
# Presses whose heads share entries, and our presets: how many of the axes (layer, head, entry), from the last, share them, and which
# part of the size (%) is each head's own
SHARED = {
    "AdaKV": ("adakv", 2, 20),
    "AdaExpected": ("ada-expected", 2, 20),
    "CriticalAdaKV": ("critical-adakv", 2, 20),
    "KVzipPool": ("kvzip-pool", 3, 0),
}
PRESSES = [*RULES, *SHARED]
MASKING = [*SHARED, "DuoAttention"]
# Presses with scores that are equal, and each of them once more with such ties decided as here (see Watch).
TIED = ["Knorm", "LagKV"]
VARIANTS = [(name, {}) for name in PRESSES] + [(name, {"ties": "newest"}) for name in TIED]
SDPA = ["PyramidKV", "ChunkKV", *MASKING]
# Norms of equal keys, rotated, differ by less than this.
TIE = 1e-6
# Presses inside DecodingPress, and how many entries each cut leaves.
DECODING, TARGET = ["Knorm", "KeyDiff", "TOVA"], 256


class Watch:
    """A press whose cuts are noted: the positions that each head keeps, and the scores of all.

    Equal tokens have equal keys in the first layer, but for their rotation, so that rounding decides which norm is the larger. With
    `ties`, such scores are made equal, and the newest of them stay, as here. So do entries of equal rank in LagKV, after the first
    ones; and what is noted are the scores that it ranks, each partition as a cut of its own, because only entries of one partition
    are compared by them."""

    def __init__(self, press, tokens, ties):
        inner = getattr(press, "base_press", press)  # cuts a layer
        self.chunk, self.first = getattr(inner, "chunk_length", None), getattr(inner, "n_sink", 0)
        scorer = inner.press if self.chunk else inner
        self.tokens, self.ties, self.own_compress, self.own_score = np.array(tokens), ties, inner.compress, scorer.score
        inner.compress, scorer.score = self.compress, self.score
        self.lag = ties and getattr(inner, "lag_size", None)
        if self.lag:
            self.ranked, self.own_states_score = [], inner._get_states_score
            inner._get_states_score = self.states_score
        self.known = None  # the scores of the cut that is being made
        self.read = 0  # tokens the model has been given
        self.left = {}  # layer -> positions left by its last cut (heads, entries), and the tokens read by then
        self.cuts = []  # layer, positions, scores, which of them stay: the last three (parts of the cut, heads, entries)

    def states_score(self, states):
        """LagKV's scores, of keys and then of values, before it ranks them: (1, heads, partitions, entries of one)"""
        self.ranked.append(self.own_states_score(states))
        return self.ranked[-1]

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        if self.known is not None:
            return self.known
        self.ranked = []
        self.known = self.own_score(module, hidden_states, keys, values, attentions, kwargs)
        scores = self.known[0].numpy()
        if self.ties and (self.lag or module.layer_idx == 0):
            scores, places = self.without_ties(scores, self.entries(module.layer_idx, keys.shape[1]))
            self.known = self.known.new_tensor(places)[None]
            if self.lag:
                self.scores = self.by_partition(places)
                return self.known
        if self.chunk:
            chunks = np.arange(scores.shape[1]) // self.chunk
            scores = np.tile((np.bincount(chunks, scores.sum(0)) / np.bincount(chunks))[chunks], (len(scores), 1))
        self.scores = scores[None]
        return self.known

    def without_ties(self, scores, positions):
        """-> the scores with those equal that are meant to be, and each entry's place from the lowest up"""
        scores = scores.astype(float)
        for of_head, at in zip(scores, positions) if not self.lag else ():
            for token in np.unique(self.tokens[at]):
                same = self.tokens[at] == token
                of_head[same] = of_head[same].max()
        order = np.lexsort((positions, positions < self.first, scores))  # by score, then the protected last, then by position
        return scores, np.argsort(order, 1).astype(float)

    def by_partition(self, places):
        """[partition] -> what LagKV ranks in it (heads, entries), -inf outside; at the end the places of those without a rank"""
        ranked = ((self.ranked[0] + self.ranked[1]) / 2)[0].numpy() if self.ranked else np.zeros((len(places), 0, self.lag))
        count = ranked.shape[1]
        parts = np.full((count + 1, *places.shape), -np.inf)
        parts[count] = places
        for i in range(count):
            at = slice(self.first + i * self.lag, self.first + (i + 1) * self.lag)
            parts[i, :, at], parts[count, :, at] = ranked[:, i], -np.inf
        return parts

    def entries(self, layer, heads):
        """The positions in a layer's cache, in its order."""
        left, read = self.left.get(layer, (np.zeros((heads, 0), int), 0))
        return np.concatenate([left, np.tile(np.arange(read, self.read), (heads, 1))], 1)

    def compress(self, module, hidden_states, keys, values, attentions, kwargs):
        import torch
        positions = self.entries(module.layer_idx, keys.shape[1])
        assert positions.shape[1] == keys.shape[2], "the cache has other entries than were counted"
        result = self.own_compress(module, hidden_states, keys, values, attentions, kwargs)
        # What the press does to values, done with the same scores to their positions, says which entries it takes.
        marks = torch.from_numpy(positions).to(values)[None, :, :, None].expand_as(values).contiguous()
        _, marks = self.own_compress(module, hidden_states, keys, marks, attentions, kwargs)
        self.known, kept = None, marks[0, :, :, 0].long().numpy()
        for head, of_head in enumerate(kept):
            places = {position: i for i, position in enumerate(positions[head].tolist())}
            assert torch.equal(result[0][0, head], keys[0, head, [places[position] for position in of_head.tolist()]])
        self.left[module.layer_idx] = kept, self.read
        stays = np.stack([np.isin(before, after) for before, after in zip(positions, kept)])
        here = self.scores > -np.inf
        self.cuts.append((module.layer_idx, np.where(here, positions, -1), self.scores, stays & here))
        return result

    def survivors(self, cache):
        """[layer][head] -> positions in the cache now"""
        found = []
        for layer, of_layer in enumerate(cache.layers):
            positions = self.entries(layer, of_layer.keys.shape[1])
            assert positions.shape[1] == of_layer.keys.shape[2]
            found.append(np.sort(positions, 1).tolist())
        return found

    def by_cut(self, layers):
        """[cut, or part of one] -> positions, scores, stays: each (layers, heads, entries)"""
        assert [layer for layer, *_ in self.cuts] == list(range(layers)) * (len(self.cuts) // layers)
        together = [self.cuts[i:i + layers] for i in range(0, len(self.cuts), layers)]
        return [tuple(np.stack([cut[i][part] for cut in at_once]) for i in (1, 2, 3))
                for at_once in together for part in range(len(at_once[0][1]))]


def weightless(attention):
    """Attention that checks that entries which a press masks have no weight."""
    def attend(module, query, key, value, mask, **kwargs):
        out = attention(module, query, key, value, mask, **kwargs)
        if getattr(module, "masked_key_indices", None) is not None:
            text, heads, places = module.masked_key_indices
            logits = query.unflatten(1, (key.shape[1], -1)) @ key.unsqueeze(2).mT * kwargs["scaling"]
            assert not logits.softmax(-1)[text, heads, ..., places].any(), f"layer {module.layer_idx}: a masked entry has weight"
        return out
    return attend


class Masks:
    """A press that takes nothing out of the cache, but masks entries, in every head as many as it likes. Its scores are noted as they
    are before it changes them. CriticalAdaKV has two: by the first, heads get their sizes and keep their best entries, by the second
    they keep others."""

    def __init__(self, press, model):
        self.press, self.read, self.scores = press, 0, {}  # layer -> (scores, heads, entries)
        self.modules = [layer.self_attn for layer in model.model.layers]
        if hasattr(press, "press"):
            self.own_score, press.press.score = press.press.score, self.score
        elif hasattr(press, "compress_post"):  # KVzip
            self.own_compress, press.compress_post = press.compress_post, self.compress

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        from kvpress import CriticalAdaKVPress, CriticalKVPress
        scores = self.own_score(module, hidden_states, keys, values, attentions, kwargs)
        noted = [scores]
        if isinstance(self.press, CriticalAdaKVPress):
            noted.append((scores + self.press.epsilon) * CriticalKVPress.vwl1norm(values, module))
        self.scores[module.layer_idx] = np.stack([x[0].numpy() for x in noted])
        return scores

    def compress(self, model):
        self.own_compress(model)
        self.scores = dict(enumerate(self.press.score_val.numpy().copy()))

    def stays(self, entries):
        """(layers, heads, entries): whether attention sees it"""
        stays = np.ones((len(self.modules), self.modules[0].config.num_key_value_heads, entries), bool)
        for of_layer, module in zip(stays, self.modules):
            _, heads, places = module.masked_key_indices
            of_layer[heads, places] = False
        return stays

    def survivors(self, cache):
        return [[np.flatnonzero(of_head).tolist() for of_head in of_layer] for of_layer in self.stays(cache.layers[0].keys.shape[2])]

    def by_cut(self, prompt):
        """[score] -> positions, scores, stays: each (layers, heads, entries)"""
        stays = self.stays(prompt)
        positions = np.broadcast_to(np.arange(prompt), stays.shape)
        if not self.scores:  # DuoAttention
            return [(positions, np.where(positions < self.press.sink_size, prompt, 0.0) + positions, stays)]
        return [(positions, scores, stays) for scores in np.stack([self.scores[layer] for layer in range(len(stays))], 1)]


def relative(gap, *of):
    """0 between zeros"""
    return gap / np.maximum(np.maximum(*map(abs, of)), np.finfo(np.float32).tiny)


def narrowest(scores, stays, ties=False):
    """How close the closest cut was: the lowest score that stays and the highest that leaves, relative to the larger. With `ties`, a
    cut between equal scores is as close as the next score that is not equal. Infinite where all stay, or all leave."""
    lowest = np.where(stays, scores, np.inf).min(-1)
    highest = np.where(stays, -np.inf, scores).max(-1)
    with np.errstate(invalid="ignore"):
        gap = lowest - highest
        if ties:
            above = np.where(scores > lowest[..., None], scores, np.inf).min(-1) - lowest
            below = highest - np.where(scores < highest[..., None], scores, -np.inf).max(-1)
            gap = np.where(gap == 0, np.minimum(above, below), gap)
        return float(np.where(np.isfinite(gap), relative(gap, lowest, highest), np.inf).min())


def parts(case, positions, scores, stays):
    """[cut, or part of one] -> how many of the axes (layer, head, entry), from the last, its scores are compared over; positions,
    scores (-inf outside of it), stays"""
    if "pool" not in case:
        return [(1, *cut) for cut in zip(positions, scores, stays)]
    part = lambda axes, inside, scores, stays: (
        axes, np.where(inside, positions[0], -1), np.where(inside, scores, -np.inf), stays & inside)
    place = np.argsort(np.argsort(-scores[0], -1, kind="stable"), -1)
    held, floor = stays[0].sum(-1, keepdims=True), case["floor"]
    if len(scores) == 1:
        return [part(case["pool"], place >= floor, scores[0], stays[0]), part(1, held == floor, scores[0], stays[0])]
    # Protected entries have one score, the layer's highest.
    first = (place < np.maximum(floor, held // 2)) | (scores[0] == scores[0].max((1, 2), keepdims=True))
    return [part(case["pool"], place >= floor, scores[0], place < held), part(1, place >= 0, scores[0], first),
            part(1, ~first, scores[1], stays[1])]


def closest_of(of_cuts, ties):
    together = lambda axes, x: x.reshape(*x.shape[:3 - axes], -1)
    return min(narrowest(together(axes, scores), together(axes, stays), ties) for axes, _, scores, stays in of_cuts)


def kvzip(ratio, tokenizer, pool):
    """KVzip as it is, or its scores of the prompt, cut by each head for itself: then its ScorerPress is what Watch watches."""
    import kvpress
    plain = copy.copy(tokenizer)
    plain.chat_template = None
    kvpress.presses.kvzip_press.AutoTokenizer = SimpleNamespace(from_pretrained=lambda _: plain)
    press, cutter = kvpress.KVzipPress(compression_ratio=ratio), kvpress.ScorerPress(compression_ratio=ratio)
    if pool:
        return press

    def cut(model):
        scores = press.score_val
        scores[..., :press.n_sink] = scores.amax() + 1
        for layer, cached in zip(model.model.layers, press._cache.layers, strict=True):
            cached.keys, cached.values = cutter.compress(layer.self_attn, None, cached.keys, cached.values, None, {})

    cutter.score = lambda module, *_: press.score_val[module.layer_idx]
    press.compress_post, press.base_press = cut, cutter
    return press


def duo(ratio):
    """DuoAttention with any numbers for heads, none twice, and all entries of a head but 4 and 60 masked where they are lowest."""
    import kvpress
    press = kvpress.DuoAttentionPress(head_compression_ratio=ratio)

    def pattern(model):
        shape = model.config.num_hidden_layers, model.config.num_key_value_heads
        return 4, 60, (np.arange(math.prod(shape)) * 0.618034 % 1).reshape(shape)

    press.load_attention_pattern = pattern
    return press


def press_of(name, ratio=None, interval=None, size=None, tokenizer=None):
    """A press, or DecodingPress around it where there is an interval."""
    import kvpress
    if name in ("KVzip", "KVzipPool"):
        return kvzip(ratio, tokenizer, name == "KVzipPool")
    if name == "DuoAttention":
        return duo(ratio)
    if name == "AdaExpected":
        return kvpress.AdaKVPress(kvpress.ExpectedAttentionPress(compression_ratio=ratio))
    if name == "ExpectedAttentionMean":
        return kvpress.ExpectedAttentionPress(compression_ratio=ratio, use_covariance=False)
    press = getattr(kvpress, name + "Press")
    if name in ("CriticalKV", "ChunkKV", "AdaKV", "CriticalAdaKV"):
        return press(kvpress.SnapKVPress(compression_ratio=ratio))
    if interval is None:
        return press(compression_ratio=ratio)
    return kvpress.DecodingPress(base_press=press(), compression_interval=interval, target_size=size)


def read(model, tokens, prompt, press=None, interval=None, ties=False, masking=False):
    """-> (NLLs of the tokens after the prompt, the survivors after all tokens, Watch.by_cut or Masks.by_cut)"""
    import torch
    from transformers import DynamicCache
    cache, ids = DynamicCache(), torch.tensor([tokens])
    watch = press and (Masks(press, model) if masking else Watch(press, tokens, ties))

    def forward(start, end, keep=0):
        if watch:
            watch.read = end
        places = torch.arange(start, end)[None]
        return model(ids[:, start:end], position_ids=places, past_key_values=cache, use_cache=True, logits_to_keep=keep).logits[0]

    with torch.inference_mode():
        if press is None:
            logits = [forward(0, prompt, 1), forward(prompt, len(tokens))]
        elif interval is None:
            with press(model):
                logits = [forward(0, prompt, 1)]
            # transformers makes one mask for all layers. It needs none for a single token. Nor need there be one key that has no
            # weight for many queries.
            step = 1 if masking or len({layer.keys.shape[2] for layer in cache.layers}) > 1 else len(tokens)
            logits += [forward(t, min(t + step, len(tokens))) for t in range(prompt, len(tokens), step)]
        else:
            logits = [forward(0, prompt, 1)]
            with press(model):
                logits += [forward(t, t + 1) for t in range(prompt, len(tokens))]
        logits = torch.cat(logits)[:-1].double()
        nll = torch.nn.functional.cross_entropy(logits, ids[0, prompt:], reduction="none").tolist()
    if press is None:
        return nll, None, None
    return nll, watch.survivors(cache), watch.by_cut(prompt if masking else len(cache.layers))


def quiet():
    """Without progress bars, and on one thread."""
    import torch, transformers
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("kvpress").setLevel(logging.ERROR)


def versions():
    from importlib.metadata import version
    return {name: version(name) for name in ("kvpress", "transformers", "torch", "gguf", "numpy")}


def record(a):
    import kvpress, torch, transformers
    from gguf import GGUFReader
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    quiet()
    attentions = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    attentions["sdpa"] = weightless(attentions["sdpa"])  # around kvpress's, which masks
    path = Path(a.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    if GGUFReader(path).fields["tokenizer.ggml.pre"].contents() == "smollm":
        # transformers does not read this: digits are split off first, so that line ends before a number stay together.
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager").eval()
    everything = contextlib.nullcontext()
    if a.exact:
        from one_by_one import float64_everywhere
        model, everything = model.double(), float64_everywhere()
    with everything:
        if a.exact:
            model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
        record_all(a, model, tokenizer)


def record_all(a, model, tokenizer):
    path, out = Path(a.model), Path(a.out)
    longest = max([*a.prompts, TARGET if a.intervals else 0]) + a.following
    tokens = tokenizer.encode(Path(a.text).read_text()[:20 * longest], add_special_tokens=False)[:longest]
    assert len(tokens) == longest, f"{a.text} has only {len(tokens)} tokens"
    cases, arrays, variants = [], {}, [(name, ties) for name, ties in VARIANTS if name in a.presses]

    def add(case, nll, survivors=None, cuts=None):
        if survivors is not None:
            if case["schedule"] == "cut":
                sizes = np.array([[len(of_head) - a.following for of_head in of_layer] for of_layer in survivors])
                case["size"] = round(sizes.mean())
                if case["press"] == "PyramidKV":
                    case["layers"] = sizes[:, 0].tolist()
                if case["press"] == "DuoAttention":
                    case["size"] = int(sizes.min())
                    case["heads"] = [["full" if size == case["prompt"] else 1 for size in of_layer] for of_layer in sizes]
                if case["press"] in SHARED:
                    _, case["pool"], percent = SHARED[case["press"]]
                    case["floor"] = max(1, case["size"] * percent // 100) if percent else 0
            case["survivors"] = survivors
            for name, of_cuts in zip(("positions", "scores", "stays"), zip(*cuts)):
                x = np.stack(of_cuts)  # (cuts, layers, heads, entries)
                arrays[f"{len(cases)} {name}"] = x.astype(np.int32) if name == "positions" else x
            closest = closest_of(parts(case, *zip(*cuts)), "ties" in case)
            if math.isfinite(closest):
                case["closest"] = closest
        cases.append(case | {"nll": nll})
        kept = f", {case['size']} kept" if survivors is not None and case["schedule"] == "cut" else ""
        print(f"{label(case)}{kept}: mean NLL {np.mean(nll):.4f}, closest cut {case.get('closest', math.nan):.1e}", flush=True)
        if "layers" in case:
            print(f"    layers keep {', '.join(map(str, case['layers']))}", flush=True)
        if case["press"] in MASKING:
            print(f"    heads keep {sizes.min()} to {sizes.max()}, layers {sizes.sum(1).min()} to {sizes.sum(1).max()}, all of them "
                  f"{sizes.sum()}", flush=True)

    def save():
        of = {"model": str(path.resolve()), "text": Path(a.text).name, "versions": versions(), "exact": a.exact, "tokens": tokens}
        of |= {"cases": cases}
        out.write_text(json.dumps(of, separators=(",", ":")) + "\n")
        np.savez_compressed(out.with_suffix(".npz"), **arrays)

    for prompt in a.prompts:
        text = tokens[:prompt + a.following]
        model.set_attn_implementation("eager")
        add(dict(press="full", prompt=prompt, schedule="cut"), read(model, text, prompt)[0])
        for name, ties in variants:
            for ratio in a.ratios:
                model.set_attn_implementation("sdpa" if name in SDPA else "eager")
                press = press_of(name, ratio, tokenizer=tokenizer)
                case = dict(press=name, prompt=prompt, ratio=ratio, schedule="cut") | ties
                add(case, *read(model, text, prompt, press, ties=bool(ties), masking=name in MASKING))
        save()
    model.set_attn_implementation("eager")
    for interval in a.intervals:
        text = tokens[:TARGET + a.following]
        for name, ties in variants:
            if name in DECODING:
                case = dict(press=name, prompt=TARGET, size=TARGET, schedule=str(interval)) | ties
                add(case, *read(model, text, TARGET, press_of(name, None, interval, TARGET), interval, bool(ties)))
        save()


def label(case):
    what = f"{case['press']}{' with ties as here' if 'ties' in case else ''}, prompt {case['prompt']}"
    if "ratio" in case:
        return f"{what}, ratio {case['ratio']}"
    return what if case["press"] == "full" else f"{what}, every {case['schedule']} tokens to {case['size']}"


def distances(case, cuts, kept):
    """How far each entry that only one side has was from the other side of kvpress's cut: (distance, layer, head, position)"""
    of_cuts = parts(case, *cuts)
    for layer, of_layer in enumerate(case["survivors"]):
        for head, of_head in enumerate(of_layer):
            for position in set(of_head) ^ set(kept[layer][head]):
                found = []
                for axes, positions, scores, stays in of_cuts:
                    at = np.flatnonzero(positions[layer, head] == position)
                    if not len(at):
                        continue
                    score, stay = scores[layer, head, at[0]], stays[layer, head, at[0]]
                    compared = (layer, head)[:3 - axes]
                    there = scores[compared][(scores[compared] > -np.inf) & (stays[compared] != stay)]
                    # Where it leaves counts, or else the closest cut that it survived.
                    apart = float(np.min(relative(abs(score - there), score, there), initial=np.inf))
                    found = [*found, apart] if stay or "pool" in case else [apart]
                yield (min(found, default=math.inf), layer, head, position)


def define_file(folder, case):
    """The case's policy as the program reads it; SHARED are presets."""
    name, score, scope, first, recent = RULES[case["press"]]
    # Where less is kept than the newest that SnapKV protects, all that is kept is as new.
    policy = dict(score=score, scope=scope, keep_first=first, keep_recent=min(recent, case["size"]))
    if "layers" in case:
        policy["budget"] = {"layers": case["layers"]}
    if "heads" in case:
        policy["budget"] = {"heads": case["heads"]}
    path = Path(folder) / "define.yaml"
    path.write_text(json.dumps({"define": {name: policy}}, indent=1))
    return path


def program_answer(program, model, tokens, case, folder):
    """What the program says of the case."""
    text = Path(folder) / "tokens.json"
    text.write_text(json.dumps(tokens))
    command = [program, "score", "--model", str(model), "--tokens", str(text)]
    if case["press"] in SHARED:
        command += ["--policy", SHARED[case["press"]][0]]
    elif case["press"] != "full":
        command += ["--policy", RULES[case["press"]][0], "--define", str(define_file(folder, case))]
    if case["press"] != "full":
        command += ["--cache-size", str(case["size"]), "--schedule", case["schedule"],
                    *(["--prompt", str(case["prompt"])] if case["schedule"] == "cut" else [])]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compare_case(case, cuts, answer):
    """Prints the differences -> whether they are too large"""
    prompt, theirs = case["prompt"], np.array(case["nll"])
    ours = np.array(answer["nll"][prompt - 1:])
    assert len(ours) == len(theirs), f"{len(ours)} NLLs after the prompt, not {len(theirs)}"
    moved = abs(ours.mean() - theirs.mean())
    line = f"NLLs within {abs(ours - theirs).max():.1e}, {abs(ours - theirs).mean():.1e} on average; mean NLL {theirs.mean():.5f}, " \
           f"ours {ours.mean():.5f}"
    if cuts is None:
        print(f"{label(case)}: {line}" + (" DIFFERENT" if moved > 1e-3 else ""), flush=True)
        return moved > 1e-3
    kept = [groups * (len(of_layer) // len(groups)) for groups, of_layer in zip(answer["survivors"], case["survivors"], strict=True)]
    pairs = [(set(a), set(b)) for of_layer, ours_here in zip(case["survivors"], kept) for a, b in zip(of_layer, ours_here, strict=True)]
    sizes = np.array([[len(a), len(b)] for a, b in pairs]).reshape(len(kept), -1, 2)
    for a, b in sizes.reshape(*sizes.shape[:3 - case.get("pool", 1)], -1, 2).sum(-2).reshape(-1, 2):
        assert a == b, f"{label(case)}: {b} entries at the end, not {a}"
    after = set(range(prompt, prompt + len(theirs))) if case["schedule"] == "cut" else set()
    assert all(after <= b for _, b in pairs), "an entry that follows the prompt has left"
    every, both = sum(len(a - after) for a, _ in pairs), sum(len(a & b - after) for a, b in pairs)
    apart = sorted(distances(case, cuts, kept), reverse=True)
    # Where rounding, or torch's topk, decided between equal scores; if cuts follow, all that comes after it is another text's.
    tied = case["press"] in TIED and "ties" not in case
    equal = tied and sum(far < TIE and (layer == 0 or case["press"] != "Knorm") for far, layer, *_ in apart)
    others = 0 if equal and case["schedule"] != "cut" else len(apart) - equal
    bad = others / 2 > every / 1000 or moved > 1e-3 and not equal
    print(f"{label(case)}: {both} of {every} entries kept by both; {line}" + (" DIFFERENT" if bad else ""), flush=True)
    if apart:
        furthest, layer, head, position = apart[0]
        median = np.median([far for far, *_ in apart])
        said = f"; {equal} of equal {'keys' if case['press'] == 'Knorm' else 'rank'}, so the NLLs are not judged" if equal else ""
        print(f"    {len(apart)} entries that one of the two has were {median:.1e} from kvpress's cut at the median, at most "
              f"{furthest:.1e} (layer {layer}, head {head}, position {position}){said}", flush=True)
    return bad


def compare(a):
    bad = 0
    for out in map(Path, a.out):
        recorded, arrays = json.loads(out.read_text()), np.load(out.with_suffix(".npz"))
        model = Path(a.model or recorded["model"]).resolve()
        with tempfile.TemporaryDirectory() as folder:
            for i, case in enumerate(recorded["cases"]):
                cuts = None if case["press"] == "full" else [arrays[f"{i} {name}"] for name in ("positions", "scores", "stays")]
                tokens = recorded["tokens"][:case["prompt"] + len(case["nll"])]
                bad += compare_case(case, cuts, program_answer(a.program, model, tokens, case, folder))
    print(f"{bad} cases differ too much" if bad else "no case differs too much")
    sys.exit(bool(bad))


ROOT = Path(__file__).resolve().parent.parent
CHECKPOINTS = ["llama-mha", "mistral-gqa", "yi-gqa"]
CUT = (120, [90, 60, 30])  # prompt, sizes: ratios 0.25, 0.5, 0.75
WHOLE = ["Knorm", "TOVA", "StreamingLLM", "ObservedAttention", "KeyDiff"]  # presses that numpy_scores has
STEPS = (40, 8, ["Knorm", "KeyDiff", "TOVA"])  # prompt and size, interval, presses inside DecodingPress
# f32 keeps seven digits: a cut closer than this could go either way
NARROW = 1e-5
# Relative changes of every weight that no cut may turn on; an f32 engine's rounding is a tenth of it.
JITTER = 3e-6


def numpy_scores(press, norms, keys, received, queries, newest, t):
    """norms (kv heads, n) of keys before rotation, keys (kv heads, n, dim) after it, attention received (heads, n), how many queries
    saw each entry (kv heads, n), the newest query's attention (heads, n)"""
    groups = len(keys)
    if press == "Knorm":
        return -norms
    if press == "KeyDiff":
        unit = keys / np.linalg.norm(keys, axis=-1, keepdims=True)
        mean = unit.mean(1, keepdims=True)
        return -(unit * mean).sum(-1) / np.linalg.norm(mean, axis=-1)
    if press == "ObservedAttention":
        return (received / np.repeat(queries, len(received) // groups, 0)).reshape(groups, -1, received.shape[1]).mean(1)
    if press == "TOVA":
        score = newest.mean(0)
        score[-1] = 2  # more than any attention: the newest stays
    else:
        score = t - queries[0] + 1.0  # its position
        score[:4] += t + 1
    return np.tile(score, (groups, 1))


def by_numpy(folder, tokens, press, size, prompt, interval=None, dtype=np.float64, noise=0.0):
    """The same without kvpress and torch, one token at a time -> (NLLs after the prompt, survivors, closest cut)"""
    import oracle
    cfg = json.loads((folder / "config.json").read_text())
    w = oracle.load_weights(folder, dtype)
    if noise:
        jitter = np.random.default_rng(1)
        w = {name: x * (1 + noise * jitter.standard_normal(x.shape)).astype(dtype) for name, x in sorted(w.items())}
    heads, groups, layers = cfg["num_attention_heads"], cfg["num_key_value_heads"], cfg["num_hidden_layers"]
    dim = cfg["hidden_size"] // heads
    freq, of = oracle.rope_frequencies(cfg, dim), np.arange(heads) // (heads // groups)
    rms = lambda x, g: x / np.sqrt((x * x).mean() + dtype(cfg["rms_norm_eps"])) * g
    state = [dict(born=np.zeros((groups, 0), int), k=np.zeros((groups, 0, dim), dtype), v=np.zeros((groups, 0, dim), dtype),
                  norms=np.zeros((groups, 0), dtype), received=np.zeros((heads, 0), dtype)) for _ in range(layers)]
    grown = lambda x, new: np.concatenate([x, new], 1)
    nll, closest = [], math.inf
    for t, token in enumerate(tokens):
        x = w["model.embed_tokens.weight"][token]
        due = t == prompt - 1 if interval is None else t >= prompt and (t + 1 - prompt) % interval == 0
        for l, s in enumerate(state):
            p = f"model.layers.{l}."
            h = rms(x, w[p + "input_layernorm.weight"])
            q, k, v = ((w[f"{p}self_attn.{name}_proj.weight"] @ h).reshape(-1, dim) for name in "qkv")
            rotate = lambda x: oracle.rope(x[None], [t], freq)[0]
            s["born"] = grown(s["born"], np.full((groups, 1), t))
            s["norms"] = grown(s["norms"], np.linalg.norm(k, axis=-1, keepdims=True))
            s["k"], s["v"] = grown(s["k"], rotate(k)[:, None]), grown(s["v"], v[:, None])
            logit = np.einsum("hnd,hd->hn", s["k"][of], rotate(q)) / dtype(math.sqrt(dim))
            attention = np.exp(logit - logit.max(1, keepdims=True))
            attention /= attention.sum(1, keepdims=True)
            s["received"] = grown(s["received"], np.zeros((heads, 1), dtype)) + attention
            x = x + w[p + "self_attn.o_proj.weight"] @ np.einsum("hn,hnd->hd", attention, s["v"][of]).reshape(-1)
            h = rms(x, w[p + "post_attention_layernorm.weight"])
            gate, up = w[p + "mlp.gate_proj.weight"] @ h, w[p + "mlp.up_proj.weight"] @ h
            x = x + w[p + "mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
            if due and s["born"].shape[1] > size:
                scores = numpy_scores(press, s["norms"], s["k"], s["received"], t + 1 - s["born"], attention, t)
                keep = np.sort(np.argsort(scores, 1, kind="stable")[:, -size:], 1)  # of equal ones the newest
                stays = np.zeros(scores.shape, bool)
                np.put_along_axis(stays, keep, True, 1)
                closest = min(closest, narrowest(scores, stays, ties=True))
                s["born"], s["norms"] = (np.take_along_axis(s[name], keep, 1) for name in ("born", "norms"))
                s["k"], s["v"] = (np.take_along_axis(s[name], keep[..., None], 1) for name in "kv")
                s["received"] = np.take_along_axis(s["received"], keep[of], 1)
        z = w["lm_head.weight"] @ rms(x, w["model.norm.weight"])
        if prompt <= t + 1 < len(tokens):
            nll.append(float(z.max() + math.log(np.exp(z - z.max()).sum()) - z[tokens[t + 1]]))
    return nll, [s["born"].tolist() for s in state], closest


def golden_cases():
    """press, prompt, size, interval, ties"""
    prompt, sizes = CUT
    for press in WHOLE:
        for size in sizes:
            yield press, prompt, size, None, False
    prompt, interval, presses = STEPS
    for press in presses:
        # So many cuts cannot all be free of ties.
        yield press, prompt, prompt, interval, press == "Knorm"


def golden(models, folder, tokens, press, prompt, size, interval, ties):
    """-> (case, closest cut, largest differences of numpy's NLLs and of those in f32), or None if rounding could change a cut"""
    import formula, oracle
    # Rounded down, this ratio leaves `size` entries.
    ratio = 1 - (size + 0.5) / prompt if interval is None else None
    run = lambda dtype: read(models[dtype], tokens, prompt, press_of(press, ratio, interval, size), interval, ties)
    nll, survivors, cuts = run("float64")
    closest = closest_of(parts({}, *zip(*cuts)), ties)
    if closest < NARROW:
        return None
    other, kept, apart = by_numpy(folder, tokens, press, size, prompt, interval)
    assert kept == survivors and apart > NARROW / 2, f"{folder.name}: numpy keeps other entries: {press} {size}"
    rough, rough_kept, _ = run("float32")
    changed = [by_numpy(folder, tokens, press, size, prompt, interval, **more)[1]
               for more in (dict(dtype=np.float32), dict(noise=JITTER), dict(noise=-JITTER))]
    if any(kept != survivors for kept in [rough_kept, *changed]):
        return None
    _, score, scope, first, recent = RULES[press]
    if scope == "layer":
        assert all(of_head == layer[0] for layer in survivors for of_head in layer), f"{press} keeps other entries by head"
        survivors = [layer[:1] for layer in survivors]
    if interval is None:
        # The formula by its definition: its scores after the last token of the prompt.
        policy = formula.policy(score, scope, size, "mean", first, recent)
        cut = oracle.run(folder, tokens[:prompt], policy, size, schedule="cut")["survivors"]
        after = list(range(prompt, len(tokens)))
        cut = [[group + after for group in layer] for layer in cut]
        assert cut == survivors, f"{folder.name}: {score} keeps other entries than {press}"
    case = dict(press=press + (" with ties as here" if ties else ""), score=score, scope=scope, keep_first=first, keep_recent=recent,
                prompt=prompt, size=size, schedule=str(interval or "cut"), nll=[round(x, 7) for x in nll], survivors=survivors)
    furthest = lambda other: float(np.abs(np.array(nll) - other).max())
    return case, closest, furthest(other), furthest(rough)


def goldens(a):
    import torch, transformers
    quiet()
    (ROOT / "kvpress").mkdir(exist_ok=True)
    for name in CHECKPOINTS:
        folder = ROOT / name
        tokens = json.loads((folder / "tokens.json").read_text())
        models = {dtype: transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="eager").eval() for dtype in ("float64", "float32")}
        found = []
        for press, prompt, size, interval, ties in golden_cases():
            # The next sizes are tried where a cut is too close.
            tried = (golden(models, folder, tokens, press, prompt, size + more, interval, ties) for more in range(4))
            answer = next((answer for answer in tried if answer), None)
            what = f"{name}: {press}, {size} entries, {'cut' if interval is None else f'every {interval} tokens'}"
            if answer is None:
                print(f"{what}: left out")
                continue
            if answer[0]["size"] != size:
                print(f"{what}: {answer[0]['size']} instead")
            found.append(answer)
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case, *_ in found)
        (ROOT / "kvpress" / f"{name}.json").write_text(f'{{"cases": [\n{lines}\n]}}\n')
        closest, numpy, rough = min(f[1] for f in found), max(f[2] for f in found), max(f[3] for f in found)
        print(f"{name}: {len(found)} cases, closest cut {closest:.1e}; NLLs within {numpy:.1e} of numpy's, {rough:.1e} in f32", flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = ap.add_subparsers(required=True)
    c = commands.add_parser("record")
    c.add_argument("out")
    c.add_argument("--model", required=True)
    c.add_argument("--text", required=True)
    c.add_argument("--prompts", type=int, nargs="*", default=[512, 1024, 2048])
    c.add_argument("--following", type=int, default=256, help="tokens after each prompt")
    c.add_argument("--ratios", type=float, nargs="*", default=[0.25, 0.5, 0.75, 0.875], help="of the prompt's entries, which leave")
    c.add_argument("--intervals", type=int, nargs="*", default=[32, 128])
    c.add_argument("--presses", nargs="*", default=PRESSES, choices=PRESSES)
    c.add_argument("--exact", action="store_true")
    c.set_defaults(run=record)
    c = commands.add_parser("compare")
    c.add_argument("out", nargs="+")
    c.add_argument("--program", required=True)
    c.add_argument("--model", help="default: the file that OUT.json names")
    c.set_defaults(run=compare)
    c = commands.add_parser("goldens")
    c.set_defaults(run=goldens)
    a = ap.parse_args()
    a.run(a)


if __name__ == "__main__":
    main()
