"""The rules of the cache policies that scripts/oracle.py knows, as their papers and released code state them. Needs numpy.

Every rule is a function of one step of one decision. It gives a score to every living entry, for every query head of the
decision; the scores are then pooled over these heads (mean, unless the rule pools the attention itself), and the unprotected
entry with the lowest pooled score leaves, the oldest of equal ones. PRESETS has each rule's scope and protected entries, and
beside it the formula that must evict the same entries (scripts/formula.py; `oracle.py --check` compares the two).

"By head" a decision belongs to one key-value head and its query heads, "by layer" to all query heads of a layer. All rules are
applied at every step from the first token on, and one entry leaves per step; where the released code reads a prompt at once, cuts
once, or masks entries without deleting them, that is said with the rule.
"""
import math
from fractions import Fraction
from functools import cached_property
import numpy as np


def mixed(z):
    """SplitMix64's mixer, on an array of uint64 or one Python int."""
    if isinstance(z, int):
        return int(mixed(np.array([z & (1 << 64) - 1], np.uint64))[0])
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Step:
    """What is known after the newest token has attended, for the n living entries and the H query heads of one decision.

    Arrays are (n, H), entries from the oldest to the newest. What belongs to a key-value head is repeated for each of the query
    heads that share it.
    """

    def __init__(self, t, size, born, heads, attention, logit, keys, rotated, values, outputs, protected, draws, memory, later=None):
        """keys (not rotated), rotated, values: (n, H, dim); outputs: (H, dim); draws: salt of the layer, number of the decision;
        later: (queries, tokens), what the full cache's queries after this one pay to each token, mean over the H heads"""
        self.t, self.size, self.born, self.heads, self.protected = t, size, np.array(born), heads, protected
        self.attention, self.logit, self.dtype = attention, logit, attention.dtype
        self.keys, self.rotated, self.values, self.outputs, self.draws = keys, rotated, values, outputs, draws
        self.memory, self.later = memory, later

    def recall(self, name, shape):
        """What each entry remembers under `name` from the step before, (n, *shape); the newest entry, zeros."""
        old = self.memory.get(name, np.zeros((0, *shape), self.dtype))
        return np.concatenate([old, np.zeros((len(self.born) - len(old), *shape), self.dtype)])

    def remember(self, name, x):
        self.memory[name] = x
        return x

    @property
    def position(self):
        return np.repeat(self.born[:, None], len(self.heads), 1).astype(self.dtype)

    @property
    def age(self):
        return self.t - self.position

    @cached_property
    def key_norm(self):
        return np.linalg.norm(self.keys, axis=-1)

    @cached_property
    def value_norm(self):
        return np.abs(self.values).sum(-1)

    @cached_property
    def value_norm2(self):
        return np.linalg.norm(self.values, axis=-1)

    @cached_property
    def output_shift(self):
        return np.linalg.norm(self.outputs - self.values, axis=-1)

    @cached_property
    def key_similarity(self):
        """the cosine of a key, as it is rotated now, with the mean of the living keys made to length 1"""
        unit = self.rotated / np.linalg.norm(self.rotated, axis=-1, keepdims=True)
        anchor = unit.mean(0)
        return (unit * anchor).sum(-1) / np.linalg.norm(anchor, axis=-1)

    @cached_property
    def future_attention(self):
        paid = self.later.sum(0) if len(self.later) else np.zeros(self.t + 1)
        return np.repeat(paid[self.born][:, None], len(self.heads), 1).astype(self.dtype)

    @cached_property
    def random(self):
        """uniform in [0, 1): one draw for each entry and decision, the same at every step"""
        salt, group = self.draws
        bits = mixed(mixed(mixed(salt) ^ group) ^ self.born.astype(np.uint64))
        return np.repeat((bits >> np.uint64(11)).astype(float)[:, None] / 2**53, len(self.heads), 1).astype(self.dtype)

    @cached_property
    def gumbel(self):
        """-ln(-ln u): a draw for each entry, query head and step"""
        salt, _ = self.draws
        of_head = [mixed(mixed(mixed(salt ^ 0x67756D62656C) ^ head) ^ self.t) for head in self.heads]
        bits = mixed(np.array(of_head, np.uint64) ^ self.born.astype(np.uint64)[:, None])
        u = ((bits >> np.uint64(11)).astype(float) + 0.5) / 2**53
        return -np.log(-np.log(u)).astype(self.dtype)


def softmax(z):
    """over the living entries"""
    e = np.exp(z - z.max(0))
    return e / e.sum(0)


def summed(s, name, x):
    return s.remember(name, s.recall(name, x.shape[1:]) + x)


def last_rows(s, name, x, w):
    """The newest w values of x of each entry, (n, w, H), the newest last; zeros before the entry joined."""
    w = math.ceil(w)
    old = s.recall(name, (w, *x.shape[1:]))
    return s.remember(name, np.concatenate([old[:, 1:], x[:, None]], 1))


def pooled(x):
    return np.repeat(x.mean(1, keepdims=True), x.shape[1], 1)


def tova(s):
    """arXiv 2401.06104, schwartz-lab-NLP/TOVA: the attention of the newest query, mean over all query heads of the layer."""
    return s.attention


def h2o(s):
    """arXiv 2306.14048, FMInference/H2O: attention summed since the entry joined, its own row included."""
    return summed(s, "sum", s.attention)


def window(s):
    """arXiv 2309.17453: the oldest leaves."""
    return s.position


def knorm(s):
    """arXiv 2406.11430: the key with the largest L2 norm leaves."""
    return -s.key_norm


def random(s):
    """A number drawn when the entry joins: the floor that every policy should beat."""
    return s.random


def a2sf(s):
    """arXiv 2407.20485, Dirac-Notation/A2SF utils_real_drop/attention.py:111-118, policies/a2sf.py, policies/base.py:61-85.
    S <- 0.95 S + a, added over the query heads of a key-value head; the newest 16 stay; 0.95 is the README's forgetting_factor.
    Deviation: the released code scores a whole prompt with its full causal attention and cuts once."""
    return s.remember("S", 0.95 * s.recall("S", s.attention.shape[1:]) + s.attention)


def roco(s):
    """arXiv 2402.06262, DRSY/EasyKV easykv/easykv.py:288-342. With n rows since it joined, an entry has the mean m = sum a / n and
    the standard deviation sqrt(sum a^2 / n - m^2) of the attention, mean over its query heads. Of the size - floor(0.3 size)
    unprotected entries with the lowest deviation the one with the lowest mean leaves; the newest 10 stay.
    Deviation: where fewer are unprotected (sizes up to 29), the released code chooses among the newest 10, too."""
    a = pooled(s.attention)
    rows = s.age + 1
    mean = summed(s, "sum", a) / rows
    deviation = np.sqrt(np.maximum(summed(s, "squares", a * a) / rows - mean**2, 0))[:, 0]
    candidates = [i for i in range(len(s.born)) if not s.protected[i]]
    # sorted is stable: of equal deviations the older entry comes first
    steady = sorted(candidates, key=lambda i: deviation[i])[: s.size - 3 * s.size // 10]
    score = np.full_like(a, 1e9)
    score[steady] = mean[steady]
    return score


def scissorhands(s):
    """arXiv 2305.17118, algorithm 2: the number of rows of the last 400 in which the entry's attention was at least 1 / t, t tokens
    having been read; the newest 10 stay.
    Deviations: the paper drops half of the cache at once when it is full. There is no released code of the authors; VATP's
    (guozhiyu/vatp utils_hh/modify_llama.py:161-170) adds up the attention itself, without a threshold."""
    important = (s.attention >= s.dtype.type(1) / s.dtype.type(s.t + 1)).astype(s.dtype)
    return last_rows(s, "important", important, 400).sum(1)


def vatp(s):
    """arXiv 2406.12335, guozhiyu/vatp utils_hh/modify_llama.py:149-214 with --h2o --apval: attention summed since the entry joined,
    times the L1 norm of its value; the newest half and the first 20 stay (--sink_len 20).
    Deviations: the released code has no grouped heads, takes the halves from the prompt's length, and adds up a prompt's rows from
    full causal attention. (It masks entries instead of deleting them, which decides the same.)"""
    return summed(s, "sum", s.attention) * s.value_norm


def caote(s):
    """arXiv 2504.14051, equation of c_j, with the attention as score (as for TOVA): how far the head's output moves when the entry
    leaves, a / (1 - a) |o - v|. No released code was found. Deviation: the mean over query heads of each head's distance; what
    the paper does with grouped heads is not known."""
    return s.attention / (1 - s.attention) * s.output_shift


def caote_h2o(s):
    """The same with H2O's score, made to sum to 1 over the living entries; o stays the output of attention; the newest half stays,
    as with H2O. Without it the newest entry, which has the smallest sum, would leave at every step."""
    h = h2o(s)
    h = h / h.sum(0)
    return h / (1 - h) * s.output_shift


def keyformer(s):
    """arXiv 2403.09054, d-matrix-ai/keyformer-llm models/mpt-keyformer-lib/attention.py:138-193: S <- S + softmax((logit + noise) / tau)
    with Gumbel noise and tau = 1 + 0.01 step; the newest 30 % stay.
    Deviations: the released code's steps count written tokens after a prompt, here every token; its scripts let tau rise from 1 to
    2 during the writing, or by 1 at each token. Its mask (line 174) has a column for the next token, so that its newest 30 % are one
    fewer than those it chooses from; what falls between is discarded for good (line 188), and no key token is ever replaced.
    Here the entry that leaves the newest 30 % competes, as in the paper."""
    tau = s.dtype.type(1 + 0.01 * s.t)
    return summed(s, "S", softmax((s.logit + s.gumbel) / tau))


def morphkv_sum(s):
    """arXiv 2503.00979, ghadiaravi13/MorphKV morphkv/models/patch_llama.py:216-263 (sum_fused): attention summed over the last W rows;
    the newest W stay. W is a 20th of the size, as 200 of 4,000.
    Deviations: the released code remembers logits; at each step it takes the softmax of all W rows over the unprotected entries
    alone, and of the sum of the logits of grouped heads. It cuts before a token attends: of its W + 1 newest, one is that token."""
    return last_rows(s, "rows", s.attention, s.size / 20).sum(1)


def morphkv_max(s):
    """As morphkv_sum, but the largest of the rows (max_fused)."""
    return last_rows(s, "rows", s.attention, s.size / 20).max(1)


def keydiff(s):
    """arXiv 2504.15364, NVIDIA/kvpress kvpress/presses/keydiff_press.py: the key most like the mean of the keys, all made to length 1,
    leaves. Keys are rotated. Deviation: kvpress and the paper cut once per prompt or block."""
    return -s.key_similarity


def clairvoyant(s):
    """No policy, but a ceiling for policies: what the full cache's later queries attend to least leaves."""
    return s.future_attention


# name -> (rule, formula, scope, keep_first, keep_recent)
PRESETS = {
    "tova": (tova, "attention", "layer", 0, 0),
    "h2o": (h2o, "sum(attention)", "head", 0, "50%"),
    "window": (window, "position", "layer", 0, 0),
    "knorm": (knorm, "-key_norm", "head", 0, 0),
    "random": (random, "random", "layer", 0, 0),
    "a2sf": (a2sf, "ema(attention, 0.95)", "head", 0, 16),
    "roco": (roco, "if(rank(std(pooled(attention))) < 0.7 * size, mean(pooled(attention)), 1e9)", "head", 0, 10),
    "scissorhands": (scissorhands, "window(attention >= 1 / (age + position + 1), 400)", "head", 0, 10),
    "vatp": (vatp, "sum(attention) * value_norm", "head", 20, "50%"),
    "caote": (caote, "attention / (1 - attention) * output_shift", "layer", 0, 0),
    "caote-h2o": (caote_h2o, "share(sum(attention)) / (1 - share(sum(attention))) * output_shift", "layer", 0, "50%"),
    "keyformer": (keyformer, "sum(softmax((logit + gumbel) / (1 + 0.01 * (age + position))))", "head", 0, "30%"),
    "morphkv-sum": (morphkv_sum, "window(attention, size / 20)", "head", 0, "5%"),
    "morphkv-max": (morphkv_max, "peak(attention, size / 20)", "head", 0, "5%"),
    "keydiff": (keydiff, "-key_similarity", "head", 0, 0),
    "clairvoyant": (clairvoyant, "future_attention", "layer", 0, 0),
}


def amount(number, size):
    """20, "20" or "5%" of the size, rounded up -> tokens"""
    text = str(number)
    return -(-int(text[:-1]) * size // 100) if text.endswith("%") else int(text)


def budget(policy, size, layers, given):
    """The sizes of the layers, which sum to layers * size. given: {"pyramid": beta} or {"layers": [share of each layer]}"""
    if "pyramid" in given:
        # arXiv 2406.02069, section 3.3, of the entries that are not protected as the newest: the last layer has the size's beta-th
        # part, the sizes fall linearly, and their mean is the size
        free = Fraction(size - policy.keep_recent)
        last = free / given["pyramid"]
        first = 2 * free - last
        targets = [first + (last - first) * l / (layers - 1) + policy.keep_recent for l in range(layers)]
    else:
        shares = [Fraction(share) for share in given["layers"]]
        targets = [share * size * layers / sum(shares) for share in shares]
    sizes = [math.floor(target) for target in targets]
    by_remainder = sorted(range(layers), key=lambda l: sizes[l] - targets[l])
    for l in by_remainder[: size * layers - sum(sizes)]:
        sizes[l] += 1
    return sizes


class Policy:
    """A rule at a size: rule(step) -> scores (n, H)."""

    def __init__(self, rule, scope, size, pool="mean", keep_first=0, keep_recent=0):
        if scope not in ("layer", "head") or pool not in ("mean", "max"):
            raise SystemExit(f"no scope {scope!r} or pool {pool!r}")
        self.rule, self.scope, self.pool = rule, scope, pool
        self.keep_first, self.keep_recent = amount(keep_first, size), amount(keep_recent, size)
        if self.keep_first + self.keep_recent > size:
            raise SystemExit(f"{self.keep_first} + {self.keep_recent} protected entries are more than the size {size}")

    @property
    def needs_future(self):
        return self.rule is clairvoyant or "future_attention" in getattr(self.rule, "text", "")


def parts(name):
    """NAME, NAME-layer, NAME-head, each with +I -> (preset, scope, keep_first, keep_recent)"""
    name, _, first = name.partition("+")
    scope = None
    if name not in PRESETS and name.rpartition("-")[2] in ("layer", "head"):
        name, _, scope = name.rpartition("-")
    if name not in PRESETS:
        raise SystemExit(f"no policy {name!r}; there are: full, {', '.join(PRESETS)}")
    _, _, own_scope, keep_first, keep_recent = PRESETS[name]
    return name, scope or own_scope, int(first) if first else keep_first, keep_recent


def preset(name, size):
    name, scope, keep_first, keep_recent = parts(name)
    return Policy(PRESETS[name][0], scope, size, "mean", keep_first, keep_recent)
