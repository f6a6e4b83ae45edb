"""The rules of the cache policies that tests/golden/make/oracle.py knows, as their papers and released code state them. Needs numpy.

Every rule is a function of one step of one decision. It gives a score to every living entry, for every query head of the
decision; the scores are then pooled over these heads (mean, unless the rule pools the attention itself), and the unprotected
entry with the lowest pooled score leaves, the oldest of equal ones. PRESETS has each rule's scope and protected entries, and
beside it the formula that must evict the same entries (tests/golden/make/formula.py; `oracle.py --check` compares the two).

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

    def __init__(self, t, size, born, heads, attention, logit, keys, rotated, values, outputs, protected, draws, later=None, *,
                 layer, keep_first, n_heads, groups, places, freq, queries, projections, tokens, texts=None, files=None, reread=None):
        """keys (not rotated), rotated, values: (n, H, dim); outputs: (H, dim); draws: salt of the layer, number of the decision;
        later: (queries, tokens), what the full cache's queries after this one pay to each token, mean over the H heads

        n_heads: query heads of the layer; groups: the key-value head of each of the H heads;
        places: (n,) the positions by which the keys are rotated now; freq: radians per position; queries: (t + 1, H, dim), all so far,
        not rotated, divided by sqrt(dim); projections: (H, width, dim), the columns of the output projection that belong to each head;
        tokens: all ids so far; texts: of each id; files: name -> tensors; reread: (prompt, H), see oracle.read_again

        Set before a rule is asked: due: whether entries leave at this step; memory: what the entries remember for this rule; kept: how
        many entries the head will keep, where a score of the budget has said so. stays: what may not leave, protected or by such a score"""
        self.due, self.memory, self.kept, self.stays = False, {}, None, protected
        self.t, self.size, self.born, self.heads, self.protected = t, size, np.array(born), heads, protected
        self.attention, self.logit, self.dtype = attention, logit, attention.dtype
        self.keys, self.rotated, self.values, self.outputs, self.draws = keys, rotated, values, outputs, draws
        self.later = later
        self.layer, self.keep_first, self.n_heads, self.groups = layer, keep_first, n_heads, groups
        self.places, self.freq, self.queries, self.projections = places, freq, queries, projections
        self.tokens, self.texts, self.files, self.reread = tokens, texts, files, reread

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

    def of_groups(self, what):
        """what(i): (n,) numbers of the key-value head that query head i uses -> (n, H)"""
        numbers = {group: what(self.groups.index(group)) for group in self.groups}
        return np.stack([numbers[group] for group in self.groups], 1)

    @cached_property
    def projected_value_norm(self):
        """the L1 norm of the value after the output projection, mean over the query heads that share it"""
        norms = np.stack([np.abs((self.values[:, i, None] * of_head).sum(-1)).sum(-1) for i, of_head in enumerate(self.projections)], 1)
        return self.of_groups(lambda i: norms[:, [g == self.groups[i] for g in self.groups]].mean(1))

    @cached_property
    def key_redundancy(self):
        """how alike a key, as it is rotated now, is to the others, as R-KV has it"""
        def of_group(i):
            unit = self.rotated[:, i] / np.linalg.norm(self.rotated[:, i], axis=-1, keepdims=True)
            cosines = unit @ unit.T
            for j, row in enumerate(cosines):
                row[j] = 0
            for row in cosines:
                alike = [j for j in range(len(row)) if row[j] > 0.5]
                row[alike[-1] if alike else 0] = 0
            return softmax(cosines.mean(0))

        return self.of_groups(of_group)

    @cached_property
    def reread_attention(self):
        """the largest attention in the second reading of the prompt; 0 for tokens after the prompt"""
        later = np.zeros((max(self.t + 1 - len(self.reread), 0), len(self.heads)), self.dtype)
        return np.concatenate([self.reread, later])[self.born]

    def expected_attention(self, n, covariance=True):
        """Of queries that are drawn from a normal distribution with the mean and covariance of the queries so far, those of the first
        four tokens apart, and rotated by the mean of the rotations of the next n positions; relative to the entries that may leave."""
        queries, dim = self.queries[4:], self.keys.shape[-1]
        angles = (self.places[-1] + np.arange(1, n + 1))[:, None] * self.freq
        cos, sin = np.diag(np.cos(angles).mean(0)), np.diag(np.sin(angles).mean(0))
        rotation = np.block([[cos, -sin], [sin, cos]]).astype(self.dtype)
        logs = np.zeros_like(self.attention)
        for i in range(len(self.heads)):
            mean, spread = np.zeros(dim, self.dtype), np.zeros((dim, dim), self.dtype)
            if len(queries):
                mean = queries[:, i].mean(0)
                for q in queries[:, i]:
                    spread = spread + np.outer(q - mean, q - mean)
                spread = spread / self.dtype.type(len(queries))
            mean, spread = rotation @ mean, rotation @ spread @ rotation.T
            for j, key in enumerate(self.rotated[:, i]):
                logs[j, i] = key @ mean + (key @ spread @ key / 2 if covariance else 0)
        largest = logs[~self.protected].max(0, initial=-np.inf)
        e = np.exp(logs - largest)
        return e / e[~self.protected].sum(0)

    def lag_score(self, n):
        """The rank of an entry in its partition of n entries, by how far its key and value are spread over the range of the next
        partition's. The first protected entries are in no partition."""
        first = sum(self.born < self.keep_first)
        starts = list(range(first, len(self.born) - n + 1, n))

        def spread(x, start):
            """x: (entries, dim) -> (n,), which sum to 1"""
            own, following = x[start:start + n], x[start + n:start + 2 * n]
            low, high = following.min(0), following.max(0)
            return softmax(((own - low) / (high - low)).std(-1, ddof=1))

        def of_group(i):
            out = np.ones(len(self.born), self.dtype)
            for start in starts[:-1]:
                both = (spread(self.rotated[:, i], start) + spread(self.values[:, i], start)) / 2
                for j in range(n):
                    out[start + j] = sum(both[k] < both[j] or both[k] == both[j] and k < j for k in range(n)) / n
            return out

        return self.of_groups(of_group)

    def page_bound(self, n):
        """the most that the newest query's logit could be for a key within what the keys of an entry's page of n positions span"""
        q, half = self.queries[-1], self.keys.shape[-1] // 2
        cos, sin = (f(self.places[-1] * self.freq).astype(self.dtype) for f in (np.cos, np.sin))
        q = np.concatenate([q[:, :half] * cos - q[:, half:] * sin, q[:, half:] * cos + q[:, :half] * sin], 1)
        out = np.zeros_like(self.attention)
        for page in set((self.born // n).tolist()):
            own = self.born // n == page
            low, high = self.rotated[own].min(0), self.rotated[own].max(0)
            out[own] = np.maximum(q * low, q * high).sum(1)
        return out

    def dot(self, file, tensor, rotated):
        """with a vector of the layer, for each query head or each key-value head"""
        if file not in (self.files or {}) or tensor not in self.files[file]:
            raise SystemExit(f"no tensor {tensor!r} in a file {file!r}")
        vectors = np.asarray(self.files[file][tensor], self.dtype)[self.layer]
        vectors = vectors[self.heads] if len(vectors) == self.n_heads else vectors[self.groups]
        return ((self.rotated if rotated else self.keys) * vectors).sum(-1)

    def token_in(self, strings):
        is_one = np.array([self.texts[self.tokens[b]] in strings for b in self.born], self.dtype)
        return np.repeat(is_one[:, None], len(self.heads), 1)

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
    """No policy, but a ceiling for policies: what the full cache's later queries read least from leaves, by their attention times the
    L1 norm of the value; the newest quarter stays."""
    return s.future_attention * s.value_norm


def observed(s, window, kernel):
    """kvpress/presses/snapkv_press.py: the mean attention of the last `window` queries to the older entries, averaged over neighbours
    with zeros beyond both ends; the newest entries have more than the largest of these."""
    rows = last_rows(s, "rows", s.attention, window)
    if not s.due:
        return None
    x, ends = rows[~s.protected].mean(1), np.zeros((kernel // 2, len(s.heads)), s.dtype)
    padded = np.concatenate([ends, x, ends])
    smooth = np.stack([padded[i:i + len(x)] for i in range(kernel)]).sum(0) / kernel
    score = np.full_like(s.attention, smooth.max() + 1)
    score[~s.protected] = smooth
    return score


def snapkv(s, window=64, kernel=5):
    """arXiv 2404.14469, NVIDIA/kvpress snapkv_press.py: attention of the last 64 queries, mean over the query heads of a key-value
    head, averaged over five neighbours; the newest 64 stay. Deviation: at every step but the cut, the queries attended to what was in
    the cache then."""
    return observed(s, window, kernel)


def pyramidkv(s):
    """arXiv 2406.02069, NVIDIA/kvpress pyramidkv_press.py: as snapkv, with sizes that fall from layer to layer (BUDGETS).
    Deviations: kvpress takes the share of the prompt plus the newest 64 as the mean size, and where the largest size would be
    longer than the prompt or the smallest shorter than 64, it changes them or makes all equal."""
    return observed(s, 64, 5)


def expected(s, future=512):
    """arXiv 2510.00636, NVIDIA/kvpress expected_attention_press.py: what queries like those so far would pay at the next 512 positions,
    times the L2 norm of the value; the first four stay. Without its epsilon, which is 0 by default."""
    if not s.due:
        return None
    free, half = ~s.protected, s.keys.shape[-1] // 2
    keys, q = s.rotated[free], s.queries[4:]
    mu = q.mean(0)
    cov = np.einsum("shi,shj->hij", q - mu, q - mu) / s.dtype.type(len(q))
    turn = np.zeros((2 * half, 2 * half))
    turn[half:, :half], turn[:half, half:] = np.eye(half), -np.eye(half)
    angles = np.tile((s.places[-1] + 1 + np.arange(future))[:, None] * s.freq, 2)
    R = (np.cos(angles)[:, :, None] * np.eye(2 * half) + np.sin(angles)[:, :, None] * turn).mean(0).astype(s.dtype)
    mu, cov = mu @ R.T, R @ (cov @ R.T)
    logit = np.einsum("nhd,hd->nh", keys, mu) + np.einsum("nhi,hij,nhj->nh", keys, cov, keys) / 2
    score = softmax(logit) * np.linalg.norm(s.values[free], axis=-1)
    out = np.full_like(s.attention, score.max() + 1)
    out[free] = score
    return out


def lagkv(s, lag=128):
    """arXiv 2504.04704, NVIDIA/kvpress lagkv_press.py: entries are cut into partitions of 128; those of the next partition say how far a
    key and a value are spread, and the lowest ranks of each partition leave; the first four, the last whole partition and what is left
    over stay the longest. With fewer than two partitions the oldest leave."""
    if not s.due:
        return None
    first = int((s.born < s.keep_first).sum())
    m = (len(s.born) - first) // lag
    out = np.ones_like(s.attention)
    if m < 2:
        return out
    middle = slice(first, first + (m - 1) * lag)

    def states(x):
        parts = x[first:first + m * lag].reshape(m, lag, *x.shape[1:])
        ref, v = parts[1:], parts[:-1]
        low, high = ref.min(1, keepdims=True), ref.max(1, keepdims=True)
        e = np.exp(((v - low) / (high - low)).std(-1, ddof=1))
        return e / e.sum(1, keepdims=True)

    score = (states(s.rotated) + states(s.values)) / 2
    ranks = score.argsort(1, kind="stable").argsort(1, kind="stable") / s.dtype.type(lag)
    out[middle] = ranks.reshape(-1, len(s.heads))
    return out


def criticalkv(s, window=64):
    """arXiv 2502.03805, NVIDIA/kvpress criticalkv_press.py over snapkv: the entries that snapkv would keep in half of the size stay; of
    the others, its score plus 0.0001 times the L1 norm of the projected value decides. Deviation: kvpress weighs those of the newest 64
    that are not in that half like all others; here they stay."""
    score = observed(s, window, 5)
    if not s.due:
        return None
    score = score.mean(1)
    chosen = np.argsort(-score, kind="stable")[: max(1, int(s.size * 0.5))]
    projected = np.einsum("nhd,hwd->nhw", s.values, s.projections)
    score = (score + s.dtype.type(1e-4)) * np.abs(projected).sum(-1).mean(1)
    score[chosen] = 1e9
    return np.repeat(score[:, None], len(s.heads), 1)


def chunkkv(s, window=64, kernel=5, length=20):
    """arXiv 2502.00299, NVIDIA/kvpress chunkkv_press.py over snapkv: chunks of 20 tokens leave whole, by the mean of snapkv's score over
    the chunk and all heads of the layer.
    Deviations: kvpress keeps a share of the chunks, here no more than `size` entries stay; in kvpress a chunk that has some of the newest
    64 entries can leave before another, and takes them with it."""
    score = observed(s, window, kernel)
    if not s.due:
        return None
    chunks = s.born // length
    means = {c: score[chunks == c].sum(1).mean() for c in set(chunks.tolist())}
    return np.repeat(np.array([means[c] for c in chunks.tolist()], s.dtype)[:, None], len(s.heads), 1)


def kvzip(s):
    """arXiv 2505.23416, NVIDIA/kvpress kvzip_press.py without a chat template: the largest attention when the model is asked to repeat the
    prompt; the first four stay. Deviation: there all heads of all layers share one budget."""
    return s.reread_attention


def r_kv(s, window=8, kernel=7):
    """arXiv 2505.24133, Zefan-Cai/R-KV rkv/compression/r1_kv.py and rkv/utils.py: 0.07 times the attention of the last eight queries, of
    the largest logit of the query heads, the largest of seven neighbours, less 0.93 times how redundant the key is; the newest eight stay.
    Deviations: the released code takes the softmax of the eight rows anew, over the entries older than these eight only; and a cosine
    divides by the norm plus 1e-8."""
    largest = np.repeat(s.logit.max(1, keepdims=True), len(s.heads), 1)
    rows = last_rows(s, "rows", softmax(largest), window)
    if not s.due:
        return None
    free = ~s.protected
    x, ends = rows[free].mean(1), np.full((kernel // 2, len(s.heads)), -np.inf, s.dtype)
    padded = np.concatenate([ends, x, ends])
    attention = np.stack([padded[i:i + len(x)] for i in range(kernel)]).max(0)
    out = np.full_like(s.attention, np.inf)
    for i in range(len(s.heads)):
        unit = s.rotated[:, i] / np.linalg.norm(s.rotated[:, i], axis=-1, keepdims=True)
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, 0)
        last = np.where(cosines > 0.5, np.arange(len(unit)), 0).max(1)
        cosines[np.arange(len(unit)), last] = 0
        out[free, i] = 0.07 * attention[:, i] - (1 - 0.07) * softmax(cosines.mean(0))[free]
    return out


def qfilters(s):
    """arXiv 2503.02812, NVIDIA/kvpress qfilter_press.py: the key, as it is rotated now, whose product with the filter of its
    head is the largest leaves; the filters come from a file."""
    filters = np.asarray(s.files["q_filters.safetensors"]["q_filters"], s.dtype)[s.layer]
    return -np.einsum("nhd,hd->nh", s.rotated, filters[s.groups])


def sepllm(s):
    """arXiv 2412.12094: the first four tokens, the newest 32 % and separators stay; of separators, and of other tokens, the oldest leaves.
    Deviation: in the paper separators have a budget of their own. Its code was not run."""
    separators = {".", ",", "?", "!", ";", ":", " ", "\t", "\n"}
    score = [b + (1000000 if s.texts[s.tokens[b]] in separators else 0) for b in s.born]
    return np.repeat(np.array(score, s.dtype)[:, None], len(s.heads), 1)


def dropkv(s, window=64):
    """How far the head's output would have moved without the entry (as caote), squared, summed over the last 64 queries; the newest 64
    stay. No released code was run."""
    moved = s.attention / (1 - s.attention) * np.sqrt(((s.outputs - s.values) ** 2).sum(-1))
    return last_rows(s, "rows", moved * moved, window).sum(1)


def top_k(s):
    """The oracle of arXiv 2406.10774, figure 3: the entries with the largest attention, by key-value head the mean over its group."""
    return s.attention


def quest(s, page=16):
    """arXiv 2406.10774, mit-han-lab/Quest evaluation/quest_attention.py: pages of 16 by the largest product of the query's absolute values
    with the keys whose numbers have the sign of the query's turned with it, dimension by dimension; whole pages, and queries after the
    prompt, of layers from the third on. The last page is always one of them, as in quest/utils/controller.py. Deviations: there per query
    head, here the mean over those of a key-value head; in the first file at least 3 pages, and the last one as all others."""
    logits = np.zeros_like(s.attention)
    cos, sin = np.cos(s.places[-1] * s.freq), np.sin(s.places[-1] * s.freq)
    for i, q in enumerate(s.queries[-1]):
        a, b = np.split(q, 2)
        q = np.concatenate([a * cos - b * sin, b * cos + a * sin]).astype(s.dtype)
        sign = np.where(q > 0, 1, -1).astype(s.dtype)
        turned = s.rotated[:, i] * sign
        for start in range(0, s.t + 1, page):
            inside = (s.born >= start) & (s.born < start + page)
            if inside.any():
                logits[inside, i] = (q * sign) @ turned[inside].max(0)
    return logits


SNAP = "smooth(window(attention, 64), 5)"
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
    "clairvoyant": (clairvoyant, "future_attention * value_norm", "layer", 0, "25%"),
    "snapkv": (snapkv, SNAP, "head", 0, 64),
    "pyramidkv": (pyramidkv, SNAP, "head", 0, 64),
    "expected": (expected, "expected_attention(512) * value_norm2", "head", 4, 0),
    "lagkv": (lagkv, "lag_score(128)", "head", 4, 0),
    "criticalkv": (criticalkv, f"if(rank(-pooled({SNAP})) < (size - 1) / 2 - 64, 1e9, "
                   f"(pooled({SNAP}) / 64 + 0.0001) * projected_value_norm)", "head", 0, 64),
    "chunkkv": (chunkkv, f"block({SNAP}, 20)", "layer", 0, 64),
    "kvzip": (kvzip, "reread_attention", "head", 4, 0),
    "r-kv": (r_kv, "0.07 * smooth_max(window(softmax(pooled_max(logit)), 8), 7) / 8 - 0.93 * key_redundancy", "head", 0, 8),
    "qfilters": (qfilters, '-rotated_dot("q_filters.safetensors", "q_filters")', "head", 0, 0),
    "sepllm": (sepllm, r'position + 1000000 * token_in(".", ",", "?", "!", ";", ":", " ", "\t", "\n")', "layer", 4, "32%"),
    "dropkv": (dropkv, "window((attention / (1 - attention) * output_shift) * (attention / (1 - attention) * output_shift), 64)",
               "head", 0, 64),
    "top-k": (top_k, "attention", "head", 0, 0),
    "quest": (quest, "page_bound(16)", "head", 0, 1),
}
# What presets have besides: when entries leave, if not after every token; sizes that differ by layer; blocks that leave whole.
SCHEDULES = {"r-kv": "128"} | dict.fromkeys(
    ["snapkv", "pyramidkv", "expected", "lagkv", "criticalkv", "chunkkv", "kvzip", "qfilters", "dropkv", "quest"], "cut")
BUDGETS = {"pyramidkv": {"pyramid": 20}}
BLOCKS = {"chunkkv": 20, "quest": 16}
# Those under which no entry leaves, and the first layer whose queries select what they attend to.
SELECT = {"top-k": 0, "quest": 2}


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
    return whole(targets)


def whole(targets):
    """Whole numbers of the same sum: rounded down, and the largest remainders get one more, of equal ones (to 2^-20) the first."""
    sizes = [math.floor(target) for target in targets]
    by_remainder = sorted(range(len(targets)), key=lambda i: -round((targets[i] - sizes[i]) * 2**20))
    for i in by_remainder[: round(sum(targets)) - sum(sizes)]:
        sizes[i] += 1
    return sizes


def floor(size, given):
    """The number of entries down to which a head of a pool can lose some."""
    percent = given.get("floor", 0)
    return max(1, percent * size // 100) if percent else 0


def pools(policy, size, layers, groups, given, window=None):
    """window: how many tokens a query sees, which no head of a pool has more of than. -> [(the decisions that share entries, how many they
    hold together)]. A decision is (layer, group). given: None, a budget by layer, {"pool": "heads"}: the heads of a layer share,
    {"pool": "model"}: all heads of the model, or {"heads": for each layer, for each head, its share of the entries of all heads with a
    share, or "full": nothing leaves}"""
    given, each = given or {}, [(l, g) for l in range(layers) for g in range(groups)]
    if ("pool" in given or "heads" in given) and policy.scope != "head":
        raise SystemExit("heads that hold different numbers of entries need the scope head")
    if "pool" in given:
        together = {"model": [each], "heads": [[(l, g) for g in range(groups)] for l in range(layers)]}[given["pool"]]
        return [(some, len(some) * min(size, window or size)) for some in together]
    if "heads" in given:
        shares = {(l, g): Fraction(given["heads"][l][g]) for l, g in each if given["heads"][l][g] != "full"}
        entries, all_shares = len(shares) * size, sum(shares.values())
        sizes = dict(zip(shares, whole([entries * share / all_shares for share in shares.values()])))
    else:
        of_layers = budget(policy, size, layers, given) if given else [size] * layers
        sizes = {(l, g): of_layers[l] for l, g in each}
    if min(sizes.values(), default=size) < policy.keep_first + policy.keep_recent:
        raise SystemExit(f"a size of {min(sizes.values())} is less than what is protected")
    return [([one], sizes.get(one, math.inf)) for one in each]


class Policy:
    """A rule at a size: rule(step) -> scores (n, H), or anything at a step at which nothing leaves. block: entries leave in blocks of that
    many positions, in which the score must be the same; schedule and budget: those of its own, where nothing else is said; select_from:
    the first layer whose queries select, where nothing leaves; layers: under the scope `model` those whose scores count, by number or
    "first" and "last", or None for all."""

    def __init__(self, rule, scope, size, pool="mean", keep_first=0, keep_recent=0, block=None, schedule="1", budget=None,
                 select_from=None, layers=None):
        if scope not in ("layer", "head", "model") or pool not in ("mean", "max"):
            raise SystemExit(f"no scope {scope!r} or pool {pool!r}")
        self.rule, self.scope, self.pool = rule, scope, pool
        self.keep_first, self.keep_recent = amount(keep_first, size), amount(keep_recent, size)
        self.block, self.schedule, self.budget, self.select_from, self.layers = block, schedule, budget, select_from, layers
        if self.keep_first + self.keep_recent > size:
            raise SystemExit(f"{self.keep_first} + {self.keep_recent} protected entries are more than the size {size}")
        if block and scope == "head" and select_from is None:
            raise SystemExit("blocks leave whole, which needs the scope layer")

    def deciding(self, layers):
        """-> the numbers of the layers whose scores count, of so many"""
        number = {"first": 0, "last": layers - 1}
        return sorted({number.get(layer, layer) for layer in self.layers}) if self.layers else list(range(layers))

    @property
    def needs_future(self):
        return self.rule is clairvoyant or "future_attention" in getattr(self.rule, "text", "")

    @property
    def needs_reread(self):
        return self.rule is kvzip or "reread_attention" in getattr(self.rule, "text", "")


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
    return Policy(PRESETS[name][0], scope, size, "mean", keep_first, keep_recent, BLOCKS.get(name), SCHEDULES.get(name, "1"),
                  BUDGETS.get(name), SELECT.get(name))
