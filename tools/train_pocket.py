#!/usr/bin/env python3
"""Trains a tiny Llama-layout language model on the CPU, to recall what it was told far back.

    tools/train_pocket.py recipe    --program target/release/pocket-worlds --prose DIR --out WORK
which does everything, one step after the other; the steps by themselves:
    tools/train_pocket.py tokenizer --texts A.jsonl ... --prose DIR --out TOK --vocab 2048
    tools/train_pocket.py encode    --texts A.jsonl ... --tokenizer TOK --out A.npz
    tools/train_pocket.py train     --stage-file stages.json --out RUN [--resume] [--shape KEY=VALUE ...]
    tools/train_pocket.py evaluate  --checkpoint RUN/checkpoint.pt --texts val.npz [--prose DIR]
    tools/train_pocket.py export    --checkpoint RUN/checkpoint.pt --tokenizer TOK --out MODEL
    tools/train_pocket.py bench     [--shape ...]

A text is one JSON line {"name", "text", "recalls": [{"kind", "told", "answer": [start, end],
"choices"}]}; told (where the last telling of the fact ends) and answer are byte offsets.
stages.json is a list of {"name", "texts": [npz], "prose_share", "tokens", "length",
"batch_tokens", "lr", "answer_weight"} and, if wanted, "lr_end" (cosine from lr to it).

How it is made fast on a CPU with bfloat16 dot products and no accelerator:
  * `--workers` processes with one thread each (threads sharing one small matrix product mostly
    wait for one another). Weights, gradients and the optimizer's state lie in shared memory;
    each worker updates its own slice of the weights.
  * A micro-batch is always `--micro-tokens` tokens, flat, holding whole documents of any
    length: everything but attention sees one static shape and is compiled once.
  * Attention runs document group by document group, block by block, in bfloat16 products that
    stop at the diagonal; the cross-entropy makes its gradient in the forward pass, in chunks.
Weights, their updates and the residual stream stay in float32.
"""
import argparse, ctypes, json, math, os, signal, sys, time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "1")
import numpy as np

BOS, EOS = 0, 1


@dataclass
class Shape:
    vocab: int = 2048
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    intermediate: int = 352
    rope_theta: float = 10000.0
    context: int = 4096
    norm_eps: float = 1e-5
    tie: bool = True

    @staticmethod
    def parse(settings):
        """A shape from KEY=VALUE words over the defaults above."""
        shape, kinds = Shape(), {f.name: f.type for f in fields(Shape)}
        for word in settings or []:
            key, value = word.split("=")
            kind = kinds[key]
            setattr(shape, key, value.lower() in ("1", "true") if kind is bool else kind(float(value)))
        assert shape.heads % shape.kv_heads == 0 and shape.head_dim % 2 == 0
        return shape


# ---------------------------------------------------------------------------------------------
# Tokenizer and encoding
# ---------------------------------------------------------------------------------------------

def read_jsonl(paths):
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)


def read_prose(folder):
    return [p.read_text(encoding="utf-8", errors="replace") for p in sorted(Path(folder).rglob("*.txt"))]


def cmd_tokenizer(args):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok.decoder = decoders.ByteLevel()

    def texts():
        for n, doc in enumerate(read_jsonl(args.texts)):
            if n >= args.max_texts:
                break
            yield doc["text"]
        if args.prose:
            for book in read_prose(args.prose):
                for start in range(0, min(len(book), args.max_prose), 1 << 16):
                    yield book[start:start + (1 << 16)]

    tok.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=args.vocab, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", BOS)])
    assert tok.token_to_id("<s>") == BOS and tok.token_to_id("</s>") == EOS
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    tok.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False,
        "model_max_length": Shape.context}, indent=2) + "\n")
    print(f"{tok.get_vocab_size()} tokens", file=sys.stderr)


def load_tokenizer(path):
    from tokenizers import Tokenizer
    path = Path(path)
    return Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))


def token_bytes(tok):
    """How many bytes of text each token stands for: in a byte-level vocabulary, a character a byte."""
    vocab = tok.get_vocab()
    size = np.zeros(max(vocab.values()) + 1, np.int64)
    for word, i in vocab.items():
        size[i] = len(word)
    return size


_encoder = None


def _encoder_init(path):
    global _encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tok = load_tokenizer(path)
    _encoder = (tok, token_bytes(tok))


def _encode_lines(lines):
    """One chunk of JSON lines: (ids, is-answer, recall rows, recall kinds) for each document."""
    tok, size = _encoder
    docs = [json.loads(line) for line in lines]
    out = []
    for doc, enc in zip(docs, tok.encode_batch([d["text"] for d in docs], add_special_tokens=False)):
        ids = np.empty(len(enc.ids) + 2, np.uint16)
        ids[0], ids[1:-1], ids[-1] = BOS, enc.ids, EOS
        ends = np.cumsum(size[ids[1:-1]])          # the byte at which each text token ends
        assert len(ends) == 0 or ends[-1] == len(doc["text"].encode()), "token bytes differ from the text's"
        recall_of = np.full(len(ids), -1, np.int32)
        rows, kinds = [], []
        for number, r in enumerate(doc.get("recalls", [])):
            start, end = r["answer"]
            # +1 for BOS. A token belongs to the answer if any of its bytes does (a word's leading
            # space is in the word's token); the told token is the one with the telling's last byte.
            first = int(np.searchsorted(ends, start, "right")) + 1
            last = int(np.searchsorted(ends, end, "left")) + 1
            told = int(np.searchsorted(ends, r["told"], "left")) + 1
            recall_of[first:last + 1] = number
            rows.append((first, last, first - told, r.get("choices", 0)))
            kinds.append(r["kind"])
        out.append((ids, recall_of, rows, kinds))
    return out


def cmd_encode(args):
    import multiprocessing as mp

    def chunks():
        lines = []
        for path in args.texts:
            with open(path, encoding="utf-8") as f:
                for line in f:
                    if line.strip():
                        lines.append(line)
                        if len(lines) == 64:
                            yield lines
                            lines = []
        if lines:
            yield lines

    began, docs, kind_ids = time.time(), [], {}
    with mp.Pool(args.workers, _encoder_init, (args.tokenizer,)) as pool:
        for part in pool.imap(_encode_lines, chunks(), 4):
            docs += part
    starts = np.cumsum([0] + [len(d[0]) for d in docs]).astype(np.int64)
    table, first_recall, recall_of = [], 0, []
    for d, (_, of, rows, kinds) in enumerate(docs):
        recall_of.append(np.where(of >= 0, of + first_recall, -1).astype(np.int32))
        first_recall += len(rows)
        table += [(d, *row, kind_ids.setdefault(k, len(kind_ids))) for row, k in zip(rows, kinds)]
    table = np.array(table, np.int32).reshape(-1, 6)
    recall_of = np.concatenate(recall_of)
    np.savez(args.out, tokens=np.concatenate([d[0] for d in docs]), starts=starts,
             weight=(recall_of >= 0).astype(np.uint8), recall_of=recall_of,
             recalls=table, kinds=np.array(list(kind_ids)))
    print(json.dumps({"documents": len(docs), "tokens": int(starts[-1]), "longest": int(np.diff(starts).max()),
                      "recalls": len(table), "answer_tokens": int((recall_of >= 0).sum()),
                      "seconds": round(time.time() - began, 1)}), file=sys.stderr)


class Texts:
    """Encoded documents of one or more npz files. `recalls` columns: document, first and last
    answer token (in the document), distance in tokens, choices, kind (index into `kinds`)."""

    def __init__(self, paths):
        parts = [np.load(p) for p in paths]
        self.tokens = np.concatenate([p["tokens"] for p in parts])
        self.answer = np.concatenate([p["weight"] for p in parts])
        starts, recalls, self.kinds, docs, base = [], [], [], 0, 0
        for p in parts:
            starts.append(p["starts"][:-1] + base)
            table, names = p["recalls"].copy(), [str(k) for k in p["kinds"]]
            self.kinds += [k for k in names if k not in self.kinds]
            table[:, 0] += docs
            if len(table):
                table[:, 5] = np.array([self.kinds.index(k) for k in names])[table[:, 5]]
            recalls.append(table)
            docs, base = docs + len(p["starts"]) - 1, base + int(p["starts"][-1])
        self.starts = np.concatenate(starts + [[base]]).astype(np.int64)
        self.recalls = np.concatenate(recalls)
        self.lengths = np.diff(self.starts)


def load_prose(folder, tokenizer, cache):
    """All the prose as one token array (kept at `cache`, made when it is missing)."""
    cache = Path(cache)
    if not cache.exists():
        tok = load_tokenizer(tokenizer)
        pieces = [b[i:i + (1 << 16)] for b in read_prose(folder) for i in range(0, len(b), 1 << 16)]
        ids = [np.array(e.ids, np.uint16) for e in tok.encode_batch(pieces, add_special_tokens=False)]
        np.save(cache, np.concatenate(ids))
    return np.load(cache)


# ---------------------------------------------------------------------------------------------
# Micro-batches: `micro` tokens, flat, made of groups of rows of one (padded) length
# ---------------------------------------------------------------------------------------------

def padded_length(n):
    """The length class of a document: eight classes an octave, multiples of 8."""
    step = max(8, 1 << max(0, int(n - 1).bit_length() - 4))
    return -(-n // step) * step


GROUP_TOKENS = 1024  # short documents are grouped to rows of one length, about so many tokens


def plan_micro_batches(lengths, docs, micro, rng=None, prose_share=0.0, prose_tokens=0, prose_length=0):
    """Packs documents (and windows of prose) into micro-batches.

    Returns a list of micro-batches, each a list of groups (row length, is_prose, [document or
    prose offset, ...]). Without rng the order is by length and every document comes once."""
    docs = np.array(docs)
    if rng is not None:
        docs = rng.permutation(docs)
    waiting, items = {}, []
    for d in docs:
        t = padded_length(int(lengths[d]))
        rows = waiting.setdefault(t, [])
        rows.append(int(d))
        if (len(rows) + 1) * t > max(GROUP_TOKENS, t):
            items.append((t, False, waiting.pop(t)))
    items += [(t, False, rows) for t, rows in waiting.items()]
    if prose_share > 0:
        rows = max(1, GROUP_TOKENS // prose_length)
        text = sum(int(lengths[d]) for d in docs)
        wanted = text * prose_share / (1 - prose_share) if prose_share < 1 else 64 * micro
        for _ in range(max(1, round(wanted / (rows * prose_length)))):
            offsets = rng.integers(0, prose_tokens - prose_length, rows)
            items.append((prose_length, True, [int(o) for o in offsets]))
    if rng is not None:
        items = [items[i] for i in rng.permutation(len(items))]
    else:
        items.sort(key=lambda item: item[0])
    batches, open_ = [], []                      # first fit into at most 16 open micro-batches
    for item in items:
        size = item[0] * len(item[2])
        assert size <= micro, f"a document of {size} tokens in micro-batches of {micro}"
        for slot in open_:
            if slot[0] + size <= micro:
                break
        else:
            slot = [0, []]
            open_.append(slot)
        slot[0] += size
        slot[1].append(item)
        if slot[0] > micro - 64 or len(open_) > 16:
            fullest = max(open_, key=lambda s: s[0])
            batches.append(fullest[1])
            open_ = [s for s in open_ if s is not fullest]
    return batches + [slot[1] for slot in open_]


def micro_cost(groups):
    """About how long a micro-batch's attention takes (all else is the same for all)."""
    return sum(t * t * len(rows) for t, _, rows in groups)


class Micro:
    """A micro-batch's arrays: position i predicts token `target[i]`, which counts `weight[i]`."""

    def __init__(self, groups, micro, texts, prose, answer_weight):
        self.ids = np.full(micro, EOS, np.int64)
        self.target = np.zeros(micro, np.int64)
        self.weight = np.zeros(micro, np.float32)
        self.answer = np.zeros(micro, bool)
        self.position = np.zeros(micro, np.int64)
        self.source = np.full(micro, -1, np.int64)  # the target's place in texts.tokens
        self.groups, at, self.tokens = [], 0, 0
        for t, is_prose, rows in groups:
            self.groups.append((at, len(rows), t))
            for row in rows:
                if is_prose:
                    n = t
                    self.ids[at] = BOS
                    self.ids[at + 1:at + t] = prose[row:row + t - 1]
                    self.target[at:at + t] = prose[row:row + t]
                    self.weight[at:at + t] = 1
                else:
                    start, end = texts.starts[row], texts.starts[row + 1]
                    n = int(end - start)
                    self.ids[at:at + n] = texts.tokens[start:end]
                    self.target[at:at + n - 1] = texts.tokens[start + 1:end]
                    self.answer[at:at + n - 1] = texts.answer[start + 1:end]
                    self.weight[at:at + n - 1] = 1
                    self.source[at:at + n - 1] = np.arange(start + 1, end)
                self.position[at:at + t] = np.arange(t)
                self.tokens += n
                at += t
        self.weight[self.answer] = answer_weight


# ---------------------------------------------------------------------------------------------
# Model
# ---------------------------------------------------------------------------------------------

import torch
import torch.nn.functional as F

HALF = torch.bfloat16


def parameter_shapes(s):
    """The weights, matrices (which decay) before norms: {name: (shape, initial deviation)}."""
    width, deep = s.hidden ** -0.5, (2 * s.layers) ** -0.5
    out = {"embed": ((s.vocab, s.hidden), 1.0)}
    if not s.tie:
        out["head"] = ((s.vocab, s.hidden), width)
    for i in range(s.layers):
        out[f"{i}.qkv"] = (((s.heads + 2 * s.kv_heads) * s.head_dim, s.hidden), width)
        out[f"{i}.o"] = ((s.hidden, s.heads * s.head_dim), (s.heads * s.head_dim) ** -0.5 * deep)
        out[f"{i}.gate_up"] = ((2 * s.intermediate, s.hidden), width)
        out[f"{i}.down"] = ((s.hidden, s.intermediate), s.intermediate ** -0.5 * deep)
    for i in range(s.layers):
        out[f"{i}.attention_norm"] = ((s.hidden,), None)
        out[f"{i}.mlp_norm"] = ((s.hidden,), None)
    out["norm"] = ((s.hidden,), None)
    return out


def parameter_views(flat, s):
    """Names to views of one flat tensor; and how many of its numbers are matrices'."""
    views, at, matrices = {}, 0, 0
    for name, (shape, _) in parameter_shapes(s).items():
        size = math.prod(shape)
        views[name] = flat[at:at + size].view(shape)
        at += size
        matrices = at if len(shape) == 2 else matrices
    return views, matrices


def initialise(flat, s, seed):
    """Random weights in which looking back is already easy to learn.

    From plain random weights the heads that look facts up form after tens of millions of tokens, if at
    all: a value must first gather the words just before it, and nothing rewards that until a later
    layer matches what was gathered. So (compare mimetic initialisation, Trockman and Kolter 2023)
      * every embedding has a part all share, from which the heads of the first layer make queries and
        keys that meet, through RoPE, at 1, 2, 3, ... tokens back;
      * in the other layers keys start as the queries' equals, so like looks at like;
      * the output projection is the value projection turned back, so a head copies what it looks at.
    Nothing holds the weights there: all of them are trained."""
    generator = torch.Generator().manual_seed(seed)
    views = parameter_views(flat, s)[0]
    for (_, deviation), view in zip(parameter_shapes(s).values(), views.values()):
        view.fill_(1.0) if deviation is None else view.normal_(0.0, deviation, generator=generator)
    views["norm"].fill_(s.hidden ** -0.5)        # embeddings of deviation 1 are the output's weights too
    shared = torch.zeros(s.hidden).normal_(generator=generator)
    shared /= shared.norm()
    size = 0.75 * s.hidden ** 0.5
    views["embed"] += size * shared
    after_norm = size / (1 + 0.75 ** 2) ** 0.5    # how much of it RMSNorm leaves
    D, half, per = s.head_dim, s.head_dim // 2, s.heads // s.kv_heads
    frequency = s.rope_theta ** (-torch.arange(0, D, 2).float() / D)
    # Fast pairs tell neighbours apart, slow ones keep far tokens out: 4 nats less one token off, 20 and more far off.
    strength = torch.full((half,), 2.0)
    strength[:4] = torch.tensor([8.0, 6.0, 5.0, 4.0])
    straight = (strength * D ** 0.5 / 2).sqrt().repeat(2)

    def turned(vector, tokens):
        a, b, angle = vector[:half], vector[half:], frequency * tokens
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])

    for i in range(s.layers):
        queries, keys, values = views[f"{i}.qkv"].split([s.heads * D, s.kv_heads * D, s.kv_heads * D])
        out = views[f"{i}.o"]
        for head in range(s.heads):
            group, member = divmod(head, per)
            query, key = queries[head * D:(head + 1) * D], keys[group * D:(group + 1) * D]
            if i == 0:
                query *= 0.3
                if member == 0:
                    key *= 0.3
                    key += torch.outer(straight, shared) / after_norm
                if head < s.heads - 1:            # the last looks where it likes
                    query += torch.outer(turned(straight, -(head + 1)), shared) / after_norm
            elif member == 0:
                key *= 1.3
                query.copy_(key)
            elif member == 1:
                query.copy_(key)
            out[:, head * D:(head + 1) * D] = values[group * D:(group + 1) * D].T * (1.0 if i == 0 else 0.5)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def linear(x, weight, half):
    return F.linear(x.to(half), weight.to(half))


def attention_block(t):
    return 64 if t <= 512 else 128 if t <= 1024 else 256


class Attention(torch.autograd.Function):
    """Causal attention inside each row of each group. q [N, heads, D] comes scaled; k, v are
    [N, kv_heads, D]. A block of queries sees only the keys up to its end; the query heads of
    one key-value head are rows of the same product."""

    @staticmethod
    def forward(ctx, q, k, v, groups):
        out, kept, masks = torch.zeros_like(q), [], {}
        for at, rows, t in groups:
            qg, kg, vg = (Attention.rows(x, at, rows, t, k.shape[1]) for x in (q, k, v))
            og = Attention.rows(out, at, rows, t, k.shape[1])
            for s in range(0, t, attention_block(t)):
                e = min(s + attention_block(t), t)
                if e - s not in masks:
                    masks[e - s] = torch.full((e - s, e - s), -math.inf, dtype=q.dtype).triu(1)
                qb = qg[:, :, :, s:e].reshape(rows * k.shape[1], -1, q.shape[-1])
                scores = torch.bmm(qb, kg[:, :, 0, :e].flatten(0, 1).transpose(1, 2))
                scores.view(*scores.shape[:1], -1, e - s, e)[..., s:] += masks[e - s]
                p = torch.softmax(scores, -1)
                og[:, :, :, s:e] = torch.bmm(p, vg[:, :, 0, :e].flatten(0, 1)).view(rows, k.shape[1], -1, e - s, q.shape[-1])
                kept.append(p)
        ctx.save_for_backward(q, k, v)
        ctx.groups, ctx.kept = groups, kept
        return out

    @staticmethod
    def rows(x, at, rows, t, kv_heads):
        """[rows, kv_heads, heads of each, t, D], a view."""
        return x[at:at + rows * t].view(rows, t, kv_heads, -1, x.shape[-1]).permute(0, 2, 3, 1, 4)

    @staticmethod
    def backward(ctx, dout):
        q, k, v = ctx.saved_tensors
        heads, width = k.shape[1], q.shape[-1]
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        kept = iter(ctx.kept)
        for at, rows, t in ctx.groups:
            qg, kg, vg, dog, dqg, dkg, dvg = (
                Attention.rows(x, at, rows, t, heads) for x in (q, k, v, dout, dq, dk, dv))
            dk_sum = torch.zeros(rows * heads, t, width)
            dv_sum = torch.zeros(rows * heads, t, width)
            for s in range(0, t, attention_block(t)):
                e, p = min(s + attention_block(t), t), next(kept)
                qb = qg[:, :, :, s:e].reshape(rows * heads, -1, width)
                db = dog[:, :, :, s:e].reshape(rows * heads, -1, width)
                dv_sum[:, :e] += torch.bmm(p.transpose(1, 2), db)
                dp = torch.bmm(db, vg[:, :, 0, :e].flatten(0, 1).transpose(1, 2))
                ds = torch._softmax_backward_data(dp, p, -1, p.dtype)
                dqg[:, :, :, s:e] = torch.bmm(ds, kg[:, :, 0, :e].flatten(0, 1)).view(rows, heads, -1, e - s, width)
                dk_sum[:, :e] += torch.bmm(ds.transpose(1, 2), qb)
            dkg[:, :, 0] = dk_sum.view(rows, heads, t, width)
            dvg[:, :, 0] = dv_sum.view(rows, heads, t, width)
        return dq, dk, dv, None


def cross_entropy_chunk(logits, target, weight):
    """Each row's negative log-likelihood, and the weighted sum's gradient by the logits."""
    logits = logits.float()
    top = logits.amax(-1, keepdim=True)
    e = torch.exp(logits - top)
    total = e.sum(-1, keepdim=True)
    nll = (total.log() + top - logits.gather(1, target[:, None]))[:, 0]
    hit = torch.arange(logits.shape[1])[None, :] == target[:, None]
    return nll, ((e / total - hit.float()) * weight[:, None]).to(HALF)


class HeadLoss(torch.autograd.Function):
    """Sum of weight * cross-entropy of x @ head.T; the gradients are made at once, in chunks."""

    @staticmethod
    def forward(ctx, x, head, target, weight, want_hits, chunk_loss):
        xh, hh = x.to(HALF), head.to(HALF)
        dx, dhead = torch.empty(x.shape), torch.zeros(head.shape)
        nll, hits = torch.empty(len(x)), torch.zeros(len(x), dtype=torch.bool)
        for s in range(0, len(x), 256):
            c = slice(s, s + 256)
            logits = xh[c] @ hh.T
            nll[c], d = chunk_loss(logits, target[c], weight[c])
            dx[c] = d @ hh
            dhead += d.T @ xh[c]
            some = want_hits[c].nonzero()[:, 0]
            hits[s + some] = logits[some].argmax(-1) == target[c][some]
        ctx.save_for_backward(dx, dhead)
        ctx.mark_non_differentiable(nll, hits)
        return (nll * weight).sum(), nll, hits

    @staticmethod
    def backward(ctx, grad, *_):
        dx, dhead = ctx.saved_tensors
        return dx * grad, dhead * grad, None, None, None, None


class Pocket:
    """The model over named weights (views of one flat tensor)."""

    def __init__(self, shape, weights, compiled=True, half=HALF):
        self.shape, self.weights, self.half = shape, weights, half
        inverse = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).double() / shape.head_dim)
        angles = torch.arange(shape.context).double()[:, None] * inverse
        self.cos, self.sin = angles.cos().float(), angles.sin().float()
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.before, self.after, self.chunk_loss = wrap(self._before), wrap(self._after), wrap(cross_entropy_chunk)

    def _before(self, x, norm, qkv, cos, sin):
        """Norm, the fused query/key/value product, and rotation of halves."""
        s = self.shape
        y = linear(rms_norm(x, norm, s.norm_eps), qkv, self.half).float().view(-1, s.heads + 2 * s.kv_heads, s.head_dim)
        turned, v = y[:, :s.heads + s.kv_heads], y[:, s.heads + s.kv_heads:]
        a, b = turned.chunk(2, -1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        q = turned[:, :s.heads] * s.head_dim ** -0.5
        return q.to(self.half), turned[:, s.heads:].to(self.half).contiguous(), v.to(self.half).contiguous()

    def _after(self, x, mixed, o, norm, gate_up, down):
        """The attention's output product and the gated feed-forward."""
        s = self.shape
        x = x + linear(mixed.flatten(1), o, self.half)
        gate, up = linear(rms_norm(x, norm, s.norm_eps), gate_up, self.half).float().chunk(2, -1)
        return x + linear(F.silu(gate) * up, down, self.half)

    def hidden(self, ids, position, groups):
        w = self.weights
        cos, sin = self.cos[position][:, None], self.sin[position][:, None]
        x = F.embedding(ids, w["embed"])
        for i in range(self.shape.layers):
            q, k, v = self.before(x, w[f"{i}.attention_norm"], w[f"{i}.qkv"], cos, sin)
            mixed = Attention.apply(q, k, v, groups)
            x = self.after(x, mixed, w[f"{i}.o"], w[f"{i}.mlp_norm"], w[f"{i}.gate_up"], w[f"{i}.down"])
        return rms_norm(x, w["norm"], self.shape.norm_eps)

    def head(self):
        return self.weights["embed" if self.shape.tie else "head"]

    def loss(self, m, want_hits, scale=1.0):
        """Sum of weighted losses times scale; each position's loss; which wanted ones are the argmax."""
        x = self.hidden(torch.from_numpy(m.ids), torch.from_numpy(m.position), m.groups)
        return HeadLoss.apply(x, self.head(), torch.from_numpy(m.target), torch.from_numpy(m.weight) * scale,
                              torch.from_numpy(want_hits), self.chunk_loss)

    def logits(self, ids):
        """[T, vocab] in float32, for checks."""
        with torch.no_grad():
            return self.hidden(ids, torch.arange(len(ids)), [(0, 1, len(ids))]) @ self.head().T


def prepare_process(threads=1):
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch._dynamo.config.recompile_limit = 64
    libc = ctypes.CDLL("libc.so.6")          # keep freed memory: fresh pages cost more than the arithmetic
    for what, value in ((-4, 0), (-1, 2 ** 31 - 1), (-2, 1 << 28)):  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
        assert libc.mallopt(what, value) == 1


# ---------------------------------------------------------------------------------------------
# Evaluation
# ---------------------------------------------------------------------------------------------

def octave(n):
    return 1 << max(0, int(n).bit_length() - 1)


def evaluate(model, texts, micro, docs=None, prose=None, prose_windows=8):
    """Teacher-forced recall by kind and distance, loss by position, prose loss."""
    docs = np.arange(len(texts.lengths)) if docs is None else docs
    docs = docs[texts.lengths[docs] <= min(micro, model.shape.context)]
    nll, hit = np.zeros(len(texts.tokens), np.float32), np.zeros(len(texts.tokens), bool)
    positions = {}

    def run(groups):
        m = Micro(groups, micro, texts, prose, 1.0)
        with torch.no_grad():
            _, loss, hits = model.loss(m, m.weight > 0)
        return m, loss.numpy(), hits.numpy()

    for groups in plan_micro_batches(texts.lengths, docs, micro):
        m, loss, hits = run(groups)
        real = m.source >= 0
        nll[m.source[real]], hit[m.source[real]] = loss[real], hits[real]
        bins = np.maximum(0, np.frexp(m.position[real] + 1)[1] - 1)
        for b in np.unique(bins):
            total = positions.setdefault(1 << int(b), [0.0, 0])
            total[0] += float(loss[real][bins == b].sum())
            total[1] += int((bins == b).sum())

    def cell(rows, good):
        chance = [1 / r[4] for r in rows if r[4] > 0]
        return {"recall": round(float(np.mean(good)), 4), "count": len(rows),
                "chance": round(float(np.mean(chance)), 4) if chance else None}

    table = texts.recalls[np.isin(texts.recalls[:, 0], docs)]
    answers = texts.starts[table[:, 0]]
    good = np.array([hit[a + r[1]:a + r[2] + 1].all() for a, r in zip(answers, table)], bool)
    answer_nll = [float(nll[a + r[1]:a + r[2] + 1].sum()) for a, r in zip(answers, table)]
    far = np.array([min(2048, max(16, octave(max(1, d)))) for d in table[:, 3]])
    out = {"recall": cell(table, good) if len(table) else None,
           "answer_nll": round(float(np.mean(answer_nll)), 4) if len(table) else None,
           "nll": round(sum(t[0] for t in positions.values()) / max(1, sum(t[1] for t in positions.values())), 4),
           "by_kind": {}, "by_distance": {}, "by_kind_and_distance": {}}
    for d in sorted(set(far)):
        out["by_distance"][str(d)] = cell(table[far == d], good[far == d])
    for k, name in enumerate(texts.kinds):
        of = table[:, 5] == k
        if of.any():
            out["by_kind"][name] = cell(table[of], good[of])
            out["by_kind_and_distance"][name] = {
                str(d): cell(table[of & (far == d)], good[of & (far == d)]) for d in sorted(set(far[of]))}
    out["nll_by_position"] = {str(p): round(t[0] / t[1], 4) for p, t in sorted(positions.items())}
    if prose is not None:
        length = min(model.shape.context, micro, len(prose) - 1)
        offsets = np.linspace(0, len(prose) - length - 1, prose_windows).astype(int)
        losses = [run([(length, True, [int(o)])])[1][:length].mean() for o in offsets]
        out["prose_nll"] = round(float(np.mean(losses)), 4)
    return out


def load_checkpoint(path):
    state = torch.load(path, weights_only=True)
    return Shape(**state["shape"]), state


def cmd_evaluate(args):
    prepare_process(args.threads)
    shape, state = load_checkpoint(args.checkpoint)
    model = Pocket(shape, parameter_views(state["weights"], shape)[0], compiled=args.compile)
    prose = None
    if args.prose:
        prose = load_prose(args.prose, args.tokenizer, args.prose_cache)
    texts = Texts(args.texts)
    docs = np.arange(len(texts.lengths))[:args.max_docs]
    print(json.dumps(evaluate(model, texts, args.micro_tokens, docs, prose, args.prose_windows), indent=1))


# ---------------------------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------------------------

def learning_rate(stages, index, done, step, warmup, schedule):
    """Stage-wise cosine from lr to lr_end (default: lr), or one cosine over the run to a tenth."""
    stage = stages[index]
    if schedule == "run":
        share = (sum(s["tokens"] for s in stages[:index]) + done) / sum(s["tokens"] for s in stages)
        low, high = 0.1 * stage["lr"], stage["lr"]
    else:
        share, high = done / stage["tokens"], stage["lr"]
        low = stage.get("lr_end", high)
    lr = low + (high - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return lr * min(1.0, (step + 1) / max(1, warmup))


class Team:
    """What the workers share: weights, optimizer state, each one's gradient and statistics."""

    def __init__(self, shape, workers, mp):
        size = sum(math.prod(s) for s, _ in parameter_shapes(shape).values())
        shared = lambda *dims: torch.zeros(*dims).share_memory_()
        self.workers, self.size = workers, size
        self.weights, self.m, self.v = shared(size), shared(size), shared(size)
        self.grads, self.squares = shared(workers, size), shared(workers).double().share_memory_()
        self.stats = torch.zeros(workers, 8, dtype=torch.float64).share_memory_()
        self.stop = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.barrier = mp.Barrier(workers, timeout=3600)  # breaks if a worker has died

    def update(self, rank, matrices, step, lr, betas=(0.9, 0.95), eps=1e-8, decay=0.1, clip=1.0):
        """AdamW on this worker's slice with the sum of all workers' gradients, clipped together."""
        self.barrier.wait()
        lo, hi = (self.size * r // self.workers for r in (rank, rank + 1))
        g = self.grads[:, lo:hi].sum(0)
        self.squares[rank] = g.double().pow(2).sum()
        self.barrier.wait()
        norm = float(self.squares.sum().sqrt())
        if math.isfinite(norm):
            g *= min(1.0, clip / (norm + 1e-6))
            w, m, v = self.weights[lo:hi], self.m[lo:hi], self.v[lo:hi]
            m.lerp_(g, 1 - betas[0])
            v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
            w[:max(0, min(hi, matrices) - lo)] *= 1 - lr * decay
            scale = math.sqrt(1 - betas[1] ** (step + 1))
            w.addcdiv_(m, v.sqrt().div_(scale).add_(eps), value=-lr / (1 - betas[0] ** (step + 1)))
        self.barrier.wait()
        return norm


def plan_epoch(stage, number, epoch, texts, prose, micro, seed):
    rng = np.random.default_rng([seed, number, epoch])
    docs = np.nonzero(texts.lengths <= stage["length"])[0] if texts is not None else np.array([], int)
    lengths = texts.lengths if texts is not None else docs
    return plan_micro_batches(lengths, docs, micro, rng, stage["prose_share"],
                              0 if prose is None else len(prose), stage["length"])


def trainable(team, rank, shape, compiled):
    """The shared weights as a model, with gradients of this worker's own; and which of them are matrices."""
    weights, matrices = parameter_views(team.weights, shape)
    grads, _ = parameter_views(team.grads[rank], shape)
    for name, w in weights.items():
        w.requires_grad_(True)
        w.grad = grads[name]
    return matrices, Pocket(shape, weights, compiled=compiled)


def train_worker(rank, team, args, shape, stages, texts, prose, validation, state):
    """One worker's loop; all run the same plan, each takes its micro-batches of every step."""
    prepare_process()
    if rank > 0:
        ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the lead
    matrices, model = trainable(team, rank, shape, args.compile)
    flat = team.weights.detach()
    team.weights, position = flat, dict(state["position"])
    out, lead = Path(args.out), rank == 0
    log = open(out / "log.jsonl", "a") if lead else None

    def say(record):
        line = json.dumps(record)
        print(line, file=log, flush=True)
        print(line, file=sys.stderr, flush=True)

    def save(name="checkpoint.pt"):
        torch.save({"shape": asdict(shape), "weights": flat.clone(), "m": team.m.clone(), "v": team.v.clone(),
                    "position": dict(position), "seed": args.seed, "workers": team.workers,
                    "micro_tokens": args.micro_tokens}, out / (name + ".part"))
        os.replace(out / (name + ".part"), out / name)

    def handle(*_):
        team.stop[0] = 1

    signal.signal(signal.SIGINT, handle if lead else signal.SIG_IGN)
    signal.signal(signal.SIGTERM, handle if lead else signal.SIG_IGN)
    saved = evaluated = began = time.time()
    sums, trained = np.zeros(8), 0.0
    while position["stage"] < len(stages):
        number = position["stage"]
        stage = stages[number]
        plan, planned = None, None
        per_step = max(1, round(stage["batch_tokens"] / args.micro_tokens / team.workers)) * team.workers
        if lead and position["tokens"] == 0:
            fits = int((texts[number].lengths <= stage["length"]).sum()) if texts[number] is not None else 0
            say({"begin": stage["name"], "documents": fits, "per_step": per_step,
                 "too_long": 0 if texts[number] is None else len(texts[number].lengths) - fits})
        while position["tokens"] < stage["tokens"]:
            batch = []
            while len(batch) < per_step:
                if planned != position["epoch"]:
                    plan = plan_epoch(stage, number, position["epoch"], texts[number], prose, args.micro_tokens, args.seed)
                    planned = position["epoch"]
                take = plan[position["cursor"]:position["cursor"] + per_step - len(batch)]
                batch += take
                position["cursor"] += len(take)
                if position["cursor"] >= len(plan):
                    position["epoch"], position["cursor"] = position["epoch"] + 1, 0
            batch.sort(key=micro_cost)                # deal them out so that all have about equal work
            mine = [b for i, b in enumerate(batch)
                    if (i % (2 * team.workers)) in (rank, 2 * team.workers - 1 - rank)]
            micros = [Micro(b, args.micro_tokens, texts[number], prose, stage["answer_weight"]) for b in mine]
            team.stats[rank, 0] = sum(float(m.weight.sum()) for m in micros)
            team.barrier.wait()
            scale = 1.0 / float(team.stats[:, 0].sum())
            stats = np.zeros(8)
            team.grads[rank].zero_()
            for m in micros:
                loss, nll, hits = model.loss(m, m.answer, scale)
                loss.backward()
                nll, hits, counted = nll.numpy(), hits.numpy(), m.weight > 0
                stats[1:] += [m.tokens, nll[counted].sum(), counted.sum(), nll[m.answer].sum(),
                              m.answer.sum(), hits[m.answer].sum(), loss.item()]
            team.stats[rank, 1:] = torch.from_numpy(stats[1:])
            lr = learning_rate(stages, number, position["tokens"], position["step"], args.warmup, args.schedule)
            norm = team.update(rank, matrices, position["step"], lr)
            # After update's barriers all see the same statistics and the same wish to stop.
            total, stop = team.stats.sum(0).numpy(), bool(team.stop[0])
            position["tokens"] += int(total[1])
            position["all_tokens"] += int(total[1])
            position["step"] += 1
            trained += total[1]
            sums += total
            if lead:
                now = time.time()
                if position["step"] % args.log_steps == 0 or stop:
                    say({"stage": stage["name"], "step": position["step"], "tokens": position["all_tokens"],
                         "stage_tokens": position["tokens"], "epoch": position["epoch"],
                         "loss": round(sums[2] / max(1, sums[3]), 4),
                         "answer_loss": round(sums[4] / max(1, sums[5]), 4),
                         "answer_accuracy": round(sums[6] / max(1, sums[5]), 4),
                         "norm": round(norm, 3), "lr": round(lr, 7),
                         "tokens_per_s": round(trained / (now - began))})
                    sums, trained, began = np.zeros(8), 0.0, now
                if validation is not None and now - evaluated > args.eval_minutes * 60:
                    report = evaluate(model, validation, args.micro_tokens,
                                      np.arange(len(validation.lengths))[:args.eval_docs], prose, 2)
                    report.pop("by_kind_and_distance")
                    say({"evaluation": position["step"], "tokens": position["all_tokens"], **report})
                    evaluated = time.time()
                    began += evaluated - now
                if stop or now - saved > args.save_minutes * 60:
                    save()
                    saved = time.time()
            # All workers must agree whether to stop: the lead may be told between two reads.
            team.stats[rank, 0] = float(stop)
            team.barrier.wait()
            stop = float(team.stats[0, 0]) > 0
            team.barrier.wait()
            if stop:
                return
        position.update(stage=number + 1, tokens=0, epoch=0, cursor=0)
        if lead:
            save(f"after-{stage['name']}.pt")
            save()
    if lead:
        if validation is not None:
            say({"evaluation": position["step"], "tokens": position["all_tokens"],
                 **evaluate(model, validation, args.micro_tokens,
                            np.arange(len(validation.lengths))[:args.eval_docs], prose, 4)})
        say({"finished": position["all_tokens"]})


def cmd_train(args):
    import multiprocessing
    mp = multiprocessing.get_context("fork")
    torch.set_num_threads(1)                     # no thread pool may exist before the fork
    stages = json.loads(Path(args.stage_file).read_text())
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    texts, cache = [], {}
    for stage in stages:
        stage.setdefault("prose_share", 0.0)
        stage.setdefault("answer_weight", 1.0)
        key = tuple(stage.get("texts", []))
        if key and key not in cache:
            cache[key] = Texts(key)
        texts.append(cache.get(key))
        assert stage["length"] <= args.micro_tokens
    prose = load_prose(args.prose, args.tokenizer, args.prose_cache or out / "prose.npy") if args.prose else None
    validation = Texts(args.validation) if args.validation else None
    checkpoint = out / "checkpoint.pt"
    if args.resume and checkpoint.exists():
        shape, state = load_checkpoint(checkpoint)
        same = (state["seed"], state["workers"], state["micro_tokens"]) == (args.seed, args.workers, args.micro_tokens)
        assert same, "--seed, --workers and --micro-tokens must stay the same when resuming"
    else:
        shape = Shape.parse(args.shape)
        state = {"position": dict(stage=0, tokens=0, epoch=0, cursor=0, step=0, all_tokens=0)}
    team = Team(shape, args.workers, mp)
    if "weights" in state:
        for name in ("weights", "m", "v"):
            getattr(team, name).copy_(state[name])
    else:
        initialise(team.weights, shape, args.seed)
    print(json.dumps({"parameters": team.size, **asdict(shape)}), file=sys.stderr)
    common = (team, args, shape, stages, texts, prose, validation, state)
    helpers = [mp.Process(target=train_worker, args=(r, *common), daemon=True) for r in range(1, args.workers)]
    for h in helpers:
        h.start()
    train_worker(0, *common)
    for h in helpers:
        h.join()


# ---------------------------------------------------------------------------------------------
# Export
# ---------------------------------------------------------------------------------------------

def hugging_face_weights(weights, s):
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    out = {"model.embed_tokens.weight": weights["embed"], "model.norm.weight": weights["norm"]}
    if not s.tie:
        out["lm_head.weight"] = weights["head"]
    for i in range(s.layers):
        at = f"model.layers.{i}."
        names = ("q_proj", "k_proj", "v_proj")
        for name, part in zip(names, weights[f"{i}.qkv"].split([q, kv, kv])):
            out[f"{at}self_attn.{name}.weight"] = part
        out[at + "self_attn.o_proj.weight"] = weights[f"{i}.o"]
        for name, part in zip(("gate_proj", "up_proj"), weights[f"{i}.gate_up"].chunk(2)):
            out[f"{at}mlp.{name}.weight"] = part
        out[at + "mlp.down_proj.weight"] = weights[f"{i}.down"]
        out[at + "input_layernorm.weight"] = weights[f"{i}.attention_norm"]
        out[at + "post_attention_layernorm.weight"] = weights[f"{i}.mlp_norm"]
    return out


def cmd_export(args):
    import shutil
    from safetensors.torch import save_file
    prepare_process()
    s, state = load_checkpoint(args.checkpoint)
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    flat = state["weights"].to(kind)
    tensors = hugging_face_weights(parameter_views(flat, s)[0], s)
    save_file({k: t.clone().contiguous() for k, t in tensors.items()}, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)      # safetensors makes it private
    (out / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": s.vocab, "hidden_size": s.hidden,
        "intermediate_size": s.intermediate, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads, "head_dim": s.head_dim, "hidden_act": "silu",
        "max_position_embeddings": s.context, "rms_norm_eps": s.norm_eps, "rope_theta": s.rope_theta,
        "rope_scaling": None, "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": s.tie,
        "bos_token_id": BOS, "eos_token_id": EOS, "initializer_range": 0.02, "use_cache": True,
        "torch_dtype": {"f32": "float32", "bf16": "bfloat16"}[args.dtype]}, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(
        {"bos_token_id": BOS, "eos_token_id": EOS, "do_sample": False}, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(args.tokenizer) / name, out / name)
    if args.check:
        from transformers import AutoTokenizer, LlamaForCausalLM
        theirs = LlamaForCausalLM.from_pretrained(out, torch_dtype=torch.float32).eval()
        ours = Pocket(s, parameter_views(flat.float(), s)[0], compiled=False, half=torch.float32)
        ids = torch.randint(2, s.vocab, (min(s.context, 1000),), generator=torch.Generator().manual_seed(1))
        ids[0] = BOS
        with torch.no_grad():
            want = theirs(ids[None]).logits[0]
        half = Pocket(s, ours.weights, compiled=False).logits(ids)
        tok = AutoTokenizer.from_pretrained(out)
        print(json.dumps({"max_abs_diff": (ours.logits(ids) - want).abs().max().item(),
                          "max_abs_diff_bfloat16_products": (half - want).abs().max().item(),
                          "largest_logit": want.abs().max().item(), "bos_first": tok("a b").input_ids[0] == BOS,
                          "round_trip": tok.decode(tok("Mara paid 42 crowns.").input_ids, skip_special_tokens=True)}))


# ---------------------------------------------------------------------------------------------
# Measuring
# ---------------------------------------------------------------------------------------------

def bench_worker(rank, team, shape, args):
    prepare_process(args.threads)
    matrices, model = trainable(team, rank, shape, args.compile)
    team.weights = team.weights.detach()
    rng = np.random.default_rng(rank)
    prose = rng.integers(2, shape.vocab, 4 * args.micro_tokens).astype(np.uint16)
    for t in args.lengths:
        per, n = max(1, GROUP_TOKENS // t), args.micro_tokens // t
        groups = [(t, True, list(range(i, i + min(per, n - i)))) for i in range(0, n, per)]
        best = cpu = math.inf
        for step in range(args.repeats + 2):
            m = Micro(groups, args.micro_tokens, None, prose, 1.0)
            team.barrier.wait()
            began, used = time.perf_counter(), time.process_time()
            for _ in range(2):
                loss, _, _ = model.loss(m, m.answer, 1e-4)
                loss.backward()
            team.update(rank, matrices, step, 1e-4)
            if step >= 2:
                best = min(best, time.perf_counter() - began)
                cpu = min(cpu, time.process_time() - used)
            team.grads[rank].zero_()
        if rank == 0:
            print(f"{t:5d} {2 * team.workers * n * t / best:9.0f} tokens/s; undisturbed "
                  f"{2 * team.workers * n * t / cpu:9.0f}", flush=True)
        team.barrier.wait()


def cmd_bench(args):
    import multiprocessing
    mp = multiprocessing.get_context("fork")
    torch.set_num_threads(1)
    shape = Shape.parse(args.shape)
    team = Team(shape, args.workers, mp)
    initialise(team.weights, shape, 1)
    print(f"{team.size} parameters, {args.workers} workers, {args.threads} threads, compile {args.compile}", flush=True)
    helpers = [mp.Process(target=bench_worker, args=(r, team, shape, args), daemon=True)
               for r in range(1, args.workers)]
    for h in helpers:
        h.start()
    bench_worker(0, team, shape, args)
    for h in helpers:
        h.join()


# ---------------------------------------------------------------------------------------------
# The recipe: texts, tokenizer, stages, training, export
# ---------------------------------------------------------------------------------------------

SHAPE = ["vocab=3072", "hidden=192", "layers=4", "heads=6", "kv_heads=2", "head_dim=32", "intermediate=512",
         "rope_theta=500000"]

# The training texts, as arguments of `pocket-worlds` (tools/pocket-worlds). They share no fact with the
# embedded texts, which come from the other split.
LESSONS = {
    "words":  "lessons --seed 900 --count 400 --characters 16000",
    "words2": "lessons --seed 901 --count 3000 --characters 800 --drills 100",
    "notes":  "lessons --seed 9 --count 60000 --characters 400 --variety 0",
    "drill1": "lessons --seed 10 --count 40000 --characters 500 --variety 1 --drills 100",
    "drill2": "lessons --seed 11 --count 30000 --characters 1000 --variety 2 --drills 100",
    "drill3": "lessons --seed 12 --count 12000 --characters 2200 --variety 4 --drills 75",
    "short":  "lessons --seed 13 --count 9000 --characters 4500 --drills 30",
    "middle": "lessons --seed 14 --count 6000 --characters 9000 --drills 15",
    "long":   "lessons --seed 15 --count 4800 --characters 15000 --drills 8",
}
# Validation texts: from the split of the embedded texts, with other seeds.
TRIALS = {
    "trial1": "lessons --seed 5 --count 100 --characters 900 --variety 2 --drills 100",
    "trial2": "lessons --seed 5 --count 60 --characters 4500 --drills 30",
    "trial3": "lessons --seed 77 --count 10 --characters 14000",
}
# From few words to many and from short texts to long ones; the answers count for less and less.
STAGES = [
    dict(name="notes", texts=["notes"], tokens=4e6, length=512, lr=2.5e-3, answer_weight=5),
    dict(name="drills", texts=["notes", "drill1", "drill2"], tokens=5e6, length=512, lr=2.5e-3, answer_weight=5),
    dict(name="variety", texts=["drill3"], tokens=4e6, length=1024, lr=2.5e-3, answer_weight=5),
    dict(name="short", texts=["short"], tokens=8e6, length=2048, lr=2e-3, answer_weight=4, prose_share=0.15),
    dict(name="middle", texts=["middle"], tokens=12e6, length=4096, lr=1.5e-3, answer_weight=3, prose_share=0.25),
    dict(name="long", texts=["long"], tokens=14e6, length=4096, lr=1e-3, lr_end=1e-4, answer_weight=2, prose_share=0.3),
]


def cmd_recipe(args):
    import subprocess
    work = Path(args.out)
    work.mkdir(parents=True, exist_ok=True)

    def step(made, *words):
        """Runs a command of this script unless its result is there."""
        if not (work / made).exists():
            subprocess.run([sys.executable, __file__, *map(str, words)], check=True)

    for split, texts in (("train", LESSONS), ("test", TRIALS)):
        for name, asked in texts.items():
            if not (work / f"{name}.jsonl").exists():
                with open(work / "part", "w") as part:
                    subprocess.run([args.program, *asked.split(), "--split", split], stdout=part, check=True)
                os.replace(work / "part", work / f"{name}.jsonl")
    tok = work / "tokenizer"
    step("tokenizer", "tokenizer", "--texts", work / "words.jsonl", work / "words2.jsonl", "--prose", args.prose,
         "--max-prose", 12000, "--vocab", 3072, "--out", tok)
    for name in [*LESSONS, *TRIALS]:
        if not name.startswith("words"):
            step(f"{name}.npz", "encode", "--texts", work / f"{name}.jsonl", "--tokenizer", tok, "--out",
                 work / f"{name}.npz")
    stages = [{"batch_tokens": 8192, **stage, "texts": [str(work / f"{t}.npz") for t in stage["texts"]]}
              for stage in STAGES]
    (work / "stages.json").write_text(json.dumps(stages, indent=1))
    subprocess.run([sys.executable, __file__, "train", "--resume", "--stage-file", work / "stages.json", "--out",
                    work / "run", "--shape", *SHAPE, "--micro-tokens", "4096", "--prose", args.prose, "--tokenizer",
                    tok, "--validation", *[str(work / f"{t}.npz") for t in TRIALS], "--eval-minutes", "10"], check=True)
    subprocess.run([sys.executable, __file__, "export", "--checkpoint", work / "run/checkpoint.pt", "--tokenizer", tok,
                    "--out", args.model, "--dtype", "bf16"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    def command(name, run):
        p = commands.add_parser(name)
        p.set_defaults(run=run)
        return p

    def running(p, micro=True):
        p.add_argument("--no-compile", dest="compile", action="store_false")
        p.add_argument("--micro-tokens", type=int, default=8192)

    p = command("tokenizer", cmd_tokenizer)
    p.add_argument("--texts", nargs="+", default=[])
    p.add_argument("--prose")
    p.add_argument("--out", required=True)
    p.add_argument("--vocab", type=int, default=Shape.vocab)
    p.add_argument("--max-texts", type=int, default=20000)
    p.add_argument("--max-prose", type=int, default=1 << 21, help="characters of each book")
    p = command("encode", cmd_encode)
    p.add_argument("--texts", nargs="+", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--workers", type=int, default=os.cpu_count())
    p = command("train", cmd_train)
    p.add_argument("--stage-file", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--resume", action="store_true")
    p.add_argument("--shape", nargs="*", metavar="KEY=VALUE", help=f"over {Shape()}")
    p.add_argument("--prose", help="folder of .txt books")
    p.add_argument("--tokenizer", help="needed with --prose")
    p.add_argument("--prose-cache", help="default: OUT/prose.npy")
    p.add_argument("--validation", nargs="+", help="npz files")
    p.add_argument("--eval-minutes", type=float, default=10)
    p.add_argument("--eval-docs", type=int, default=200)
    p.add_argument("--save-minutes", type=float, default=5)
    p.add_argument("--log-steps", type=int, default=50)
    p.add_argument("--warmup", type=int, default=200, help="steps")
    p.add_argument("--schedule", choices=("stage", "run"), default="stage")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int, default=os.cpu_count())
    running(p)
    p = command("evaluate", cmd_evaluate)
    p.add_argument("--checkpoint", required=True)
    p.add_argument("--texts", nargs="+", required=True)
    p.add_argument("--prose")
    p.add_argument("--tokenizer", help="needed with --prose")
    p.add_argument("--prose-cache", default="prose.npy")
    p.add_argument("--prose-windows", type=int, default=16)
    p.add_argument("--max-docs", type=int, default=1 << 30)
    p.add_argument("--threads", type=int, default=1)
    running(p)
    p = command("export", cmd_export)
    p.add_argument("--checkpoint", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    p.add_argument("--no-check", dest="check", action="store_false")
    p = command("bench", cmd_bench)
    p.add_argument("--shape", nargs="*")
    p.add_argument("--workers", type=int, default=os.cpu_count())
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--lengths", nargs="+", type=int, default=[128, 256, 512, 1024, 4096])
    p.add_argument("--repeats", type=int, default=5)
    running(p)
    p = command("recipe", cmd_recipe)
    p.add_argument("--program", required=True, help="the pocket-worlds binary, which generates the texts")
    p.add_argument("--prose", required=True, help="folder of .txt books")
    p.add_argument("--out", required=True, help="working folder; run again to continue")
    p.add_argument("--model", default="models/pocket", help="where the trained model goes")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
