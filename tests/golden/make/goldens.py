#!/usr/bin/env python3
"""Makes and checks tests/golden: tiny checkpoints, and tests/golden/make/oracle.py's answers for them.

    python3 tests/golden/make/goldens.py make       (numpy) make tests/golden/variants again
    python3 tests/golden/make/goldens.py long       (numpy) make tests/golden/long-text again; takes some minutes
    python3 tests/golden/make/goldens.py policies   (numpy) make tests/golden/policies again, all folders or those of CHECKPOINT...; takes
                                          a quarter of an hour
    python3 tests/golden/make/goldens.py yardsticks (numpy) make tests/golden/yardsticks again in the same way: the ceiling, sizes by layer
    python3 tests/golden/make/goldens.py schedules  (numpy) make tests/golden/schedules again in the same way: when entries leave a cache
    python3 tests/golden/make/goldens.py scores     (numpy) make tests/golden/scores again in the same way: what reads neighbours, blocks, queries,
                                          files, texts or the prompt again
    python3 tests/golden/make/goldens.py budgets    (numpy) make tests/golden/budgets again in the same way: heads with different numbers of entries
    python3 tests/golden/make/goldens.py selection  (numpy) make tests/golden/selection again in the same way: queries that select, where nothing
                                          leaves
    python3 tests/golden/make/goldens.py deciding   (numpy) make tests/golden/deciding again in the same way: one decision for all layers
    python3 tests/golden/make/goldens.py matrix PROGRAM [CHECKPOINT ...]  (numpy) every preset under every schedule, scope, kind of positions, at
        two sizes and two shares, by the oracle and by the program; fails where decisions that rounding cannot change differ
    python3 tests/golden/make/goldens.py check      (numpy) recompute every case of tests/golden with the oracle, or of those folders of it that
                                          follow
    python3 tests/golden/make/goldens.py written    (numpy) make every written.json of tests/golden again; more checkpoint folders can
                                          follow as NAME=FOLDER, with prompts from NAME/prompt.json
    python3 tests/golden/make/goldens.py torch      (torch, a recent transformers) compute the full-cache cases with transformers in
                                          float64; the same folders can follow
"""
import json, math, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TINY = "--layers 2 --heads 4 --vocab 64 --text 120"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
# name -> arguments of random_model.py. With these seeds no decision is so close that rounding to f32 could change it
VARIANTS = {
    "llama3-rope": [*TINY.split(), "--hidden", "24", "--kv-heads", "2", "--head-dim", "12", "--intermediate", "32",
                    "--vocab", "56", "--rope-theta", "500000", "--rope-scaling", json.dumps(LLAMA3), "--seed", "0"],
    "linear-rope-mqa-bf16": [*TINY.split(), "--hidden", "32", "--kv-heads", "1", "--intermediate", "64",
                             "--rope-scaling", json.dumps({"type": "linear", "factor": 4.0}), "--dtype", "bf16", "--seed", "0"],
    "qwen2-f16": [*TINY.split(), "--arch", "qwen2", "--hidden", "32", "--kv-heads", "2", "--intermediate", "64",
                  "--rope-theta", "1000000", "--tie", "lm_head", "--dtype", "f16", "--seed", "0"],
    "mistral-sharded": [*TINY.split(), "--arch", "mistral", "--hidden", "24", "--kv-heads", "2", "--intermediate", "40",
                        "--shards", "2", "--seed", "0"],
    "llama-bias-tied": [*TINY.split(), "--hidden", "24", "--kv-heads", "2", "--intermediate", "40", "--bias",
                        "--tie", "embed", "--seed", "0"],
}
CASES = [("full", None, "absolute")] + [
    (policy, size, "absolute") for policy in ("tova", "h2o", "window+4", "tova-head", "knorm") for size in (12, 33, 64)
] + [("tova", 33, "slot"), ("tova", 33, "squeezed")]
# f32 keeps seven digits: a decision closer than this, other than an exact tie, could go either way
NARROW = 1e-5


def folders():
    # families come from tests/golden/make/family_goldens.py: the oracle does not know them
    return sorted(p.parent for p in ROOT.rglob("golden.json") if "families" not in p.parts)


def tokens(folder):
    return json.loads((folder / "tokens.json").read_text())


def apart(a, b):
    assert len(a) == len(b)
    return max(abs(x - y) for x, y in zip(a, b))


def write_golden(folder, cases):
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    (folder / "golden.json").write_text(f'{{"cases": [\n{lines}\n]}}\n')


def make():
    import numpy as np
    import oracle, random_model
    for name, arguments in VARIANTS.items():
        folder = ROOT / "variants" / name
        random_model.write(random_model.arguments([str(folder), *arguments]))
        cases, narrowest = [], float("inf")
        for policy, size, positions in CASES:
            exact = oracle.run(folder, tokens(folder), policy, size, positions, log=True)
            rough = oracle.run(folder, tokens(folder), policy, size, positions, log=True, dtype=np.float32)
            assert exact["evicted"] == rough["evicted"], f"{name}: {policy} {size} {positions} turns on rounding; take another seed"
            if policy != "knorm":  # equal tokens have equal keys in the first layer, and ties are part of the definition
                narrowest = min(narrowest, exact["narrowest"])
            cases.append(dict(policy=policy, size=size, positions=positions, nll=[round(x, 9) for x in exact["nll"]],
                              survivors=exact["survivors"]))
        assert narrowest > NARROW, f"{name}: a decision is only {narrowest:.0e} apart; take another seed"
        write_golden(folder, cases)
        size = sum(f.stat().st_size for f in folder.glob("*.safetensors"))
        print(f"{name}: {len(cases)} cases, weights {size / 1000:.1f} kB, closest decision {narrowest:.0e} apart")


LONG = ("yi-gqa", 4096)
LONG_CASES = [("tova", 33, "squeezed"), ("window+4", 33, "slot"), ("tova", 33, "slot"), ("h2o", 32, "squeezed"), ("tova", 33, "absolute")]


def long():
    """Gaps of thousands of tokens, where `squeezed` differs most. Other tokens where a decision is too close."""
    import numpy as np
    import oracle
    checkpoint, length = LONG
    vocab = json.loads((ROOT / checkpoint / "config.json").read_text())["vocab_size"]
    for seed in range(100):
        text, cases, narrowest = np.random.default_rng(seed).integers(3, vocab, length).tolist(), [], float("inf")
        for policy, size, positions in LONG_CASES:
            exact = oracle.run(ROOT / checkpoint, text, policy, size, positions, log=True)
            rough = oracle.run(ROOT / checkpoint, text, policy, size, positions, log=True, dtype=np.float32)
            narrowest = min(narrowest, exact["narrowest"])
            cases.append(dict(policy=policy, size=size, positions=positions, nll=[round(x, 6) for x in exact["nll"]],
                              survivors=exact["survivors"]))
            if exact["evicted"] != rough["evicted"] or narrowest < 2e-6:
                break
        else:
            folder = ROOT / "long-text"
            folder.mkdir(exist_ok=True)
            (folder / "checkpoint").write_text(checkpoint + "\n")
            (folder / "tokens.json").write_text(json.dumps(text) + "\n")
            write_golden(folder, cases)
            return print(f"long-text: seed {seed}, closest decision {narrowest:.0e} apart")
        print(f"seed {seed}: a decision of {policy} {positions} is {narrowest:.0e} apart", flush=True)


# The presets of tests/golden/make/policies.py that tests/golden has no other cases of, under both scopes, and formulas that together use
# every word and function.
NEW_PRESETS = ["a2sf", "roco", "scissorhands", "vatp", "caote", "caote-h2o", "keyformer", "morphkv-sum", "morphkv-max", "keydiff",
               "random"]
FORMULAS = [  # formula, keep_first, keep_recent
    ("0.7 * attention + 0.3 * ema(attention, 0.9)", 0, 16),
    ("if(age < 8, 1, peak(pooled(attention)))", 0, 0),
    ("softmax(logit / 2) * value_norm2", 0, 0),
    ("rank(position) + 3 * (key_norm > 1.5)", 0, "10%"),
    ("count(attention > 0.025) - log(1 + age)", 4, 0),
    ("min(attention, mean(attention)) + abs(key_similarity) / 100", 0, 3),
    ("max(sqrt(window(attention, size / 5)), exp(-age / 10))", 0, 0),
    ("std(attention) / mean(attention)", "10%", "25%"),
    ("peak(logit, 7) - 0.5 * key_norm + random", 0, 5),
    ("sum(softmax(logit + 0.5 * gumbel))", 0, "20%"),
    ("window(attention > pooled(attention), 12) + attention", 0, 0),
    ("share(sum(attention)) * (output_shift + value_norm) / (1 + position / size)", 0, 8),
    ("ema(attention, 1 - 1 / size) * (age >= 4) + (age < 4) * (position != 17) - (position == 18)", 0, 0),
    ("if(rank(mean(attention)) <= size / 2, -age, key_similarity)", 0, 4),
    ("exp(mean(log(attention)))", 1, 8),
    ("sum(window(attention, 3) * (rank(value_norm) >= 5))", 2, 4),
]
# What is not a number stays while another entry has one. (Which of a number and none is the larger has no definition: pool mean.)
NOT_A_NUMBER = "sqrt(attention - 0.02)"
# Attention is nearly even in the first three, so that sums of it seldom change places; in the last it is sharp.
POLICY_CHECKPOINTS = ["llama-mha", "mistral-gqa", "yi-gqa", "variants/llama-bias-tied"]
TEXT = 140


# Presets that tests/golden/scores has. They need files or other sizes, or cut a prompt.
NEWER_PRESETS = ["snapkv", "pyramidkv", "expected", "lagkv", "criticalkv", "chunkkv", "kvzip", "r-kv", "qfilters", "sepllm", "dropkv"]


def older_presets():
    import policies
    return [name for name in policies.PRESETS if name not in [*NEWER_PRESETS, *policies.SELECT]]


def policy_cases():
    """-> (case, the preset whose rule must decide the same, or None)"""
    import policies
    for name in NEW_PRESETS:
        rule, text, own, first, recent = policies.PRESETS[name]
        # VATP protects more than 37 entries at size 37
        smallest, middle, largest = (48, 56, 64) if name == "vatp" else (16, 37, 64)
        for scope in (own, "head" if own == "layer" else "layer"):
            for size, positions in [(smallest, "absolute"), (middle, "absolute"), (largest, "absolute"), (middle, "slot"),
                                    (middle, "squeezed")]:
                case = dict(policy=name) if scope == own and name != "caote-h2o" else dict(
                    score=text, scope=scope, pool="mean", keep_first=first, keep_recent=recent)
                yield case | dict(size=size, positions=positions), f"{name}-{scope}"
    for i, (text, first, recent) in enumerate(FORMULAS):
        for scope, pool in [("head", "mean"), ("layer", "max")] if i % 2 else [("head", "max"), ("layer", "mean")]:
            yield dict(score=text, scope=scope, pool=pool, keep_first=first, keep_recent=recent, size=37, positions="absolute"), None
    for scope in ("head", "layer"):
        yield dict(score=NOT_A_NUMBER, scope=scope, pool="mean", keep_first=0, keep_recent=0, size=37, positions="absolute"), None


def yardstick_cases():
    """The ceiling, and sizes that differ by layer."""
    for scope in ("layer", "head"):
        name = "clairvoyant" if scope == "layer" else "clairvoyant-head"
        for size, positions in [(16, "absolute"), (37, "absolute"), (64, "absolute"), (37, "slot"), (37, "squeezed")]:
            yield dict(policy=name, size=size, positions=positions), f"clairvoyant-{scope}"
        mixed = dict(score="future_attention", scope=scope, pool="mean", keep_first=2, keep_recent=8)
        yield mixed | dict(size=37, positions="absolute"), None
    for score, scope, recent in [("attention", "layer", 0), ("sum(attention)", "head", "25%"), ("ema(attention, 0.95)", "head", 6)]:
        defined = dict(score=score, scope=scope, pool="mean", keep_first=1, keep_recent=recent)
        for size, positions in [(16, "absolute"), (37, "absolute"), (37, "slot"), (37, "squeezed")]:
            yield defined | dict(size=size, positions=positions, budget={"pyramid": 20 if size == 37 else 3}), None
        yield defined | dict(size=29, positions="absolute", budget={"layers": [3, 2, 1.5]}), None


# After every token, in bursts, at once after the prompt, and both
SCHEDULES = ["8", "128", "cut", "cut+1", "cut+16"]
SCHEDULE_FORMULAS = [  # of FORMULAS: ranks, draws for each step and each entry, memory with amounts in percent
    "if(rank(mean(attention)) <= size / 2, -age, key_similarity)", "sum(softmax(logit + 0.5 * gumbel))", "std(attention) / mean(attention)",
    "peak(logit, 7) - 0.5 * key_norm + random",
]
PROMPT = 120


def schedule_cases():
    """Every preset and some formulas under each schedule; each schedule has every kind of positions, under both scopes."""
    import policies
    positions = ["absolute", "slot", "squeezed"]
    when = lambda schedule: dict(schedule=schedule) | (dict(prompt=PROMPT) if "cut" in schedule else {})

    def of_preset(name, i, j, size, schedule):
        _, own, first, recent = policies.parts(name)
        preset, plus, number = name.partition("+")
        scope = own if (i // 3 + j) % 2 == 0 else "head" if own == "layer" else "layer"
        case = dict(policy=name) if scope == own and name != "caote-h2o" else dict(
            score=policies.PRESETS[preset][1], scope=scope, pool="mean", keep_first=first, keep_recent=recent)
        return case | dict(size=size, positions=positions[(i + j) % 3]) | when(schedule), f"{preset}-{scope}{plus}{number}"

    for i, name in enumerate([*older_presets(), "window+4"]):
        # VATP protects more than 37 entries at size 37, and A2SF all 16 at size 16
        small, middle = (48, 56) if name == "vatp" else (24, 37) if name == "a2sf" else (16, 37)
        for j, schedule in enumerate(SCHEDULES):
            yield of_preset(name, i, j, small if schedule == "128" else middle, schedule)
    for i, (text, first, recent) in enumerate(f for f in FORMULAS if f[0] in SCHEDULE_FORMULAS):
        for j, schedule in enumerate(SCHEDULES):
            scope, pool = [("head", "mean"), ("layer", "max"), ("head", "max"), ("layer", "mean")][(i + j) % 4]
            case = dict(score=text, scope=scope, pool=pool, keep_first=first, keep_recent=recent)
            size = 16 if schedule == "128" else 37
            yield case | dict(size=size, positions=positions[(i + j) % 3]) | when(schedule), None
    # sizes that are shares of the prompt
    for i, (name, percent) in enumerate((name, percent) for name in ("tova", "knorm", "h2o") for percent in (25, 50)):
        yield of_preset(name, i, i, max(1, PROMPT * percent // 100), "cut")


# What each formula reads: neighbours, blocks, queries, vectors, texts. Formula, scope, pool, keep_first, keep_recent, size, schedule,
# positions, and the rule that must decide the same, if one of tests/golden/make/policies.py does with other numbers
SNAP16 = "smooth(window(attention, 16), 5)"
CRITICAL16 = f"if(rank(-pooled({SNAP16})) < (size - 1) / 2 - 16, 1e9, (pooled({SNAP16}) / 16 + 0.0001) * projected_value_norm)"
SCORES = [
    (SNAP16, "head", "mean", 0, 16, 40, "cut+1", "absolute", ("snapkv", dict(window=16))),
    (SNAP16, "layer", "mean", 0, 16, 37, "1", "slot", ("snapkv", dict(window=16))),
    ("smooth(attention, 3)", "layer", "mean", 0, 0, 20, "1", "absolute", None),
    ("smooth(value_norm, 7)", "head", "max", 4, 0, 30, "8", "absolute", None),
    ("sum(smooth(attention, 3)) + attention", "head", "mean", 0, 4, 37, "8", "slot", None),
    ("rank(smooth(sum(attention), 7)) + 5 * smooth(random, 3)", "layer", "max", 0, 0, 50, "cut+16", "absolute", None),
    ("smooth_max(sum(attention), 7)", "head", "mean", 0, 4, 50, "cut+16", "absolute", None),
    ("smooth_max(attention, 3) - 0.01 * smooth(key_norm, 5)", "layer", "max", 4, 4, 37, "1", "absolute", None),
    ("smooth_max(-value_norm2, 5)", "head", "mean", 0, 0, 25, "8", "slot", None),
    ("block(attention, 5)", "layer", "mean", 0, 0, 40, "1", "absolute", None),
    ("block(mean(attention), 16)", "layer", "mean", 4, 4, 64, "1", "slot", None),
    ("block(mean(attention), 5)", "layer", "mean", 3, 20, 26, "1", "absolute", None),
    ("block(sqrt(attention - 0.02), 3)", "layer", "mean", 0, 0, 40, "8", "absolute", None),
    (f"block({SNAP16}, 7)", "layer", "mean", 0, 16, 60, "cut", "absolute", ("chunkkv", dict(window=16, length=7))),
    ("block(window(attention, 16), 3) * size - abs(block(value_norm, 3)) / 10", "layer", "max", 0, 8, 45, "cut+16", "absolute", None),
    ("pooled_max(block(attention, 7)) / block(key_norm, 7)", "layer", "mean", 0, 0, 30, "8", "slot", None),
    ("block(sum(attention), 16)", "layer", "mean", 4, 64, 80, "cut+1", "absolute", None),
    ("attention - block(attention, 7)", "head", "mean", 0, 4, 37, "1", "absolute", None),
    ("block(attention, 3) + block(attention, 7)", "layer", "mean", 0, 0, 37, "cut+1", "slot", None),
    ("projected_value_norm", "head", "mean", 0, 0, 37, "1", "absolute", None),
    ("attention * projected_value_norm", "layer", "mean", 0, 4, 37, "8", "slot", None),
    (CRITICAL16, "head", "mean", 0, 16, 60, "cut+16", "absolute", ("criticalkv", dict(window=16))),
    ("pooled_max(attention) - pooled_mean(attention) / 2", "head", "mean", 0, 0, 37, "1", "absolute", None),
    ("pooled_max(logit) - pooled_mean(logit) / 3 + pooled(logit) / 9", "layer", "max", 0, 8, 37, "cut+16", "absolute", None),
    ("expected_attention(1)", "head", "mean", 4, 0, 37, "1", "absolute", None),
    ("expected_attention(32) * value_norm2", "head", "mean", 4, 0, 40, "cut", "absolute", ("expected", dict(future=32))),
    ("expected_attention(32) * value_norm2", "layer", "mean", 4, 0, 30, "cut+16", "slot", ("expected", dict(future=32))),
    ("expected_attention(512)", "layer", "max", 0, 4, 50, "8", "slot", None),
    ("expected_attention_mean(32)", "head", "mean", 0, 0, 37, "cut+1", "absolute", None),
    ("expected_attention_mean(1) * value_norm + attention / 10", "layer", "mean", 4, 4, 37, "8", "absolute", None),
    ("mean(expected_attention_mean(8)) * ema(smooth_max(attention, 3), 0.9)", "head", "mean", 0, 0, 37, "8", "absolute", None),
    ("max(expected_attention_mean(512), share(sum(attention)))", "head", "max", 0, 64, 80, "cut+16", "absolute", None),
    ("lag_score(16)", "head", "mean", 4, 0, 40, "cut", "absolute", ("lagkv", dict(lag=16))),
    ("lag_score(16)", "layer", "mean", 4, 0, 50, "8", "slot", ("lagkv", dict(lag=16))),
    ("lag_score(4)", "head", "mean", 4, 0, 37, "1", "absolute", ("lagkv", dict(lag=4))),
    ("lag_score(4) + value_norm / 100", "layer", "max", 0, 8, 37, "cut+1", "absolute", None),
    ("-key_redundancy", "head", "mean", 0, 0, 37, "1", "absolute", None),
    ("peak(key_redundancy, 4) + sum(lag_score(4)) / 100", "head", "mean", 4, 4, 37, "cut+16", "absolute", None),
    ("attention - key_redundancy", "layer", "mean", 4, 4, 37, "8", "slot", None),
    ("0.07 * smooth_max(window(softmax(pooled_max(logit)), 4), 3) / 4 - 0.93 * key_redundancy", "head", "mean", 0, 4, 37, "8", "absolute",
     ("r-kv", dict(window=4, kernel=3))),
    ('dot("vectors.safetensors", "heads")', "head", "mean", 0, 0, 37, "1", "absolute", None),
    ('attention * exp(dot("vectors.safetensors", "groups"))', "layer", "mean", 4, 4, 37, "8", "slot", None),
    ('rotated_dot("vectors.safetensors", "heads") + logit', "layer", "max", 0, 4, 37, "cut+1", "absolute", None),
    ('-rotated_dot("vectors.safetensors", "groups")', "head", "mean", 0, 0, 30, "1", "slot", None),
    ('position + 100 * token_in(".", ",")', "head", "mean", 0, 0, 37, "1", "absolute", None),
    (r'attention * (1 + token_in("\"", "\\", "\n", "if (", "\t"))', "layer", "mean", 0, 4, 37, "8", "absolute", None),
    ('smooth(token_in("."), 3) + window(attention, 8)', "head", "max", 4, 4, 45, "cut+16", "absolute", None),
    (r'block(token_in("\n", " the") + attention, 5)', "layer", "mean", 0, 4, 37, "cut", "absolute", None),
    ("reread_attention", "layer", "mean", 0, 4, 50, "cut", "absolute", ("kvzip", {})),
    ("reread_attention * value_norm + 0.1 * window(attention, 8)", "head", "max", 4, 0, 37, "cut", "slot", None),
    ("smooth(reread_attention, 3)", "head", "mean", 0, 0, 30, "cut", "absolute", None),
    # what follows the prompt has no attention from the second reading
    ("reread_attention + 0.05 * window(attention, 8)", "head", "mean", 4, 0, 40, "cut+16", "absolute", None),
]
# Their scores are whole numbers, which rounding does not change however close they are.
WHOLE = ['position + 100 * token_in(".", ",")', "sepllm",
         r'position + 1000000 * token_in(".", ",", "?", "!", ";", ":", " ", "\t", "\n")']
SCORES_PROMPT = 160


def same(name, more, scope, pool, first, recent, select_from=None):
    """-> size -> the rule of a preset with other numbers"""
    import functools
    import policies
    rule = policies.PRESETS[name][0]
    block = more.get("length") or (more.get("page", 16) if name == "quest" else None)
    return lambda size: policies.Policy(
        functools.partial(rule, **more) if more else rule, scope, size, pool, first, recent, block, select_from=select_from)


NEWER_SIZES = dict.fromkeys(NEWER_PRESETS, 40) | {
    "snapkv": 90, "pyramidkv": 90, "criticalkv": 140, "chunkkv": 90, "dropkv": 90}


def score_cases():
    """What a case needs besides is in files beside it; see extras."""
    import policies
    when = lambda schedule: dict(schedule=schedule) | (dict(prompt=SCORES_PROMPT) if "cut" in schedule else {})
    for score, scope, pool, first, recent, size, schedule, positions, rule in SCORES:
        case = dict(score=score, scope=scope, pool=pool, keep_first=first, keep_recent=recent)
        yield case | dict(size=size, positions=positions) | when(schedule), rule and same(*rule, scope, pool, first, recent)
    for i, name in enumerate(NEWER_PRESETS):
        _, score, own, first, recent = policies.PRESETS[name]
        size, schedule = NEWER_SIZES[name], policies.SCHEDULES.get(name, "1")
        yield dict(policy=name, size=size, positions="absolute") | when(schedule), f"{name}-{own}"
        # as a formula, after every token (with reread_attention at a cut, too), in the other scope where there is one
        scope = own if name == "chunkkv" else "head" if own == "layer" else "layer"
        case = dict(score=score, scope=scope, pool="mean", keep_first=first, keep_recent=recent)
        case |= dict(budget=policies.BUDGETS[name]) if name in policies.BUDGETS else {}
        other = when(schedule if name == "kvzip" else "cut+16" if schedule == "1" else "1")
        positions = "slot" if i % 2 else "absolute"
        yield case | dict(size=max(30, recent + 20) if name != "sepllm" else 30, positions=positions) | other, f"{name}-{scope}"


# Queries that select. Formula, scope, pool, keep_first, keep_recent, size, schedule, the first layer that selects, and the rule that must
# decide the same
SELECTING = [
    ("attention", "layer", "mean", 0, 0, 37, "1", 0, ("top-k", {})),
    ("attention", "head", "mean", 4, 8, 37, "cut", 0, ("top-k", {})),
    ("attention", "head", "max", 0, 1, 24, "1", 1, None),
    ("logit", "head", "mean", 0, 0, 37, "1", 0, None),
    ("logit", "layer", "max", 2, 0, 37, "cut", 1, None),
    ("sum(attention)", "head", "mean", 0, "50%", 40, "1", 0, ("h2o", {})),
    ("sum(attention)", "layer", "mean", 4, 4, 40, "cut", 0, ("h2o", {})),
    ("ema(attention, 0.9) * value_norm", "head", "mean", 0, 6, 37, "1", 1, None),
    ("position", "layer", "mean", 4, 0, 30, "1", 0, ("window", {})),
    ("random", "head", "mean", 0, 4, 37, "1", 0, ("random", {})),
    ("page_bound(16)", "head", "mean", 0, 0, 48, "1", 0, ("quest", {})),
    ("page_bound(16)", "head", "mean", 0, 1, 50, "cut", 0, ("quest", {})),
    ("page_bound(8)", "layer", "max", 4, 0, 33, "1", 1, None),
    ("page_bound(4)", "head", "mean", 0, 3, 22, "1", 0, ("quest", dict(page=4))),
    ("page_bound(16) + logit / 4", "head", "mean", 0, 0, 37, "cut", 0, None),
    ("block(attention, 5)", "head", "mean", 0, 0, 42, "1", 0, None),
]


# Every query decides in every layer and head, so that some decisions are close.
SELECTION_TEXT, SELECTION_PROMPT, SELECTION_NARROW = 100, 70, 2e-6


def selection_cases():
    for name, sizes in [("top-k", (16, 37, 64)), ("quest", (48, 70))]:
        when = dict(schedule="cut", prompt=SELECTION_PROMPT) if name == "quest" else dict(schedule="1")
        for size in sizes:
            yield dict(policy=name, size=size, positions="absolute") | when, f"{name}-head"
    for score, scope, pool, first, recent, size, schedule, select_from, rule in SELECTING:
        case = dict(score=score, scope=scope, pool=pool, keep_first=first, keep_recent=recent, select_from=select_from)
        case |= dict(size=size, positions="absolute", schedule=schedule) | (dict(prompt=SELECTION_PROMPT) if schedule == "cut" else {})
        yield case, rule and same(*rule, scope, pool, first, recent, select_from=select_from)


# One decision for all layers. Formula, pool, keep_first, keep_recent, size, schedule, positions, the layers that decide (None: all)
DECIDING = [
    ("attention", "mean", 0, 0, 37, "1", "absolute", None),
    ("attention", "max", 4, 1, 37, "8", "slot", None),
    ("attention", "mean", 0, 0, 37, "1", "absolute", ["first"]),
    ("attention", "mean", 0, 0, 30, "8", "slot", ["first"]),
    ("attention", "mean", 2, 4, 37, "cut+1", "absolute", ["first"]),
    ("attention", "mean", 0, 0, 37, "1", "slot", ["last"]),
    ("attention", "mean", 0, 0, 60, "cut", "absolute", ["last"]),
    ("sum(attention)", "mean", 0, "50%", 37, "1", "absolute", None),
    ("sum(attention)", "mean", 0, "50%", 40, "cut", "absolute", ["first", "last"]),
    ("sum(attention)", "mean", 1, 8, 37, "1", "squeezed", ["first"]),
    ("ema(attention, 0.9) * value_norm", "mean", 0, 4, 37, "8", "absolute", [1]),
    ("ema(attention, 0.9) * value_norm", "mean", 0, 4, 37, "1", "absolute", ["first"]),
    (SNAP16, "mean", 0, 16, 60, "cut+16", "absolute", None),
    ("logit - 0.01 * key_norm", "max", 0, 4, 37, "cut+1", "absolute", None),
    ("random", "mean", 0, 0, 37, "cut+16", "absolute", None),
    ("position", "mean", 4, 0, 37, "8", "absolute", ["last"]),
    ("block(mean(attention), 5)", "mean", 0, 4, 40, "8", "absolute", None),
    ("block(mean(attention), 5)", "mean", 0, 4, 40, "1", "absolute", ["first"]),
]


def deciding_cases():
    for score, pool, first, recent, size, schedule, positions, layers in DECIDING:
        case = dict(score=score, scope="model", pool=pool, keep_first=first, keep_recent=recent)
        case |= (dict(layers=layers) if layers else {}) | dict(size=size, positions=positions, schedule=schedule)
        yield case | (dict(prompt=SCORES_PROMPT) if "cut" in schedule else {}), None


# Budgets of heads. Formula, keep_first, keep_recent, size, and the rule that must decide the same
SNAP8 = "smooth(window(attention, 8), 5)"
CRITICAL8 = f"if(rank(-pooled({SNAP8})) < (size - 1) / 2 - 8, 1e9, (pooled({SNAP8}) / 8 + 0.0001) * projected_value_norm)"
SIZED = "max(sqrt(window(attention, size / 5)), exp(-6 * age / size))"
# very different from head to head, so that floors matter
UNEVEN = "projected_value_norm + attention"
# often the same in many heads
COUNTED = ("count(attention > 0.04)", 0, 3, 25, None)
ATTENTION = ("attention", 0, 0, 24, ("tova", {}))
SUMMED = ("sum(attention)", 2, "50%", 30, ("h2o", {}))
SNAPPED = (SNAP8, 0, 8, 40, ("snapkv", dict(window=8)))
POSITION = ("position", 2, 0, 28, ("window", {}))
CRITICAL = (CRITICAL8, 0, 8, 40, ("criticalkv", dict(window=8)))
POOLED = [ATTENTION, SUMMED, POSITION, ("-key_norm", 0, 4, 33, ("knorm", {})), ("random", 0, 0, 25, ("random", {})), SNAPPED,
          ("expected_attention(16) * value_norm2", 2, 0, 32, ("expected", dict(future=16))), (SIZED, 0, 0, 30, None), COUNTED]
# of as many layers and heads as there are
TABLES = [[[1, 2.5, "full", 1.5], ["full", 0.7, 2.1, 1], [3, 1, 1.3, "full"]], [[0.1, 0.2, 0.4, 0.3], [0.3, 0.4, 0.2, 0.1], [0.2] * 4]]
BUDGET_CHECKPOINTS = [*POLICY_CHECKPOINTS, "variants/linear-rope-mqa-bf16", "families/mistral"]


def budget_cases(checkpoint):
    """The checkpoints have the same scores under different schedules and floors. The last two have a part of the cases: one has a single
    key-value head, the other a window of 24 tokens in every layer."""
    part = {"variants/linear-rope-mqa-bf16": slice(1, None, 4), "families/mistral": slice(1, None, 2)}
    return list(all_budget_cases(checkpoint))[part.get(checkpoint, slice(None))]


def all_budget_cases(checkpoint):
    config = json.loads((ROOT / checkpoint / "config.json").read_text())
    number, windowed = BUDGET_CHECKPOINTS.index(checkpoint), checkpoint == "families/mistral"
    tables = [[row[: config["num_key_value_heads"]] for row in table[: config["num_hidden_layers"]]] for table in TABLES]

    def case(score, first, recent, size, rule, budget, schedule, positions="absolute", pool="mean"):
        size = size * 2 // 5 if windowed else size
        first, recent = (0, recent) if windowed and recent == 8 else (first, recent)
        case = dict(score=score, scope="head", pool=pool, keep_first=first, keep_recent=recent, budget=budget, size=size)
        case |= dict(positions=positions) | (dict(local_layers="bounded") if windowed else {})
        case |= dict(schedule=schedule) | (dict(prompt=SCORES_PROMPT) if "cut" in schedule else {})
        return case, rule and same(*rule, "head", pool, first, recent)

    every = lambda some, n: some[n % len(some)]
    pool = lambda over, floor, **more: dict(pool=over, floor=floor) | more
    for i, score in enumerate(POOLED):
        schedule = "cut" if score == SNAPPED and number % 2 else every(["1", "8", "cut", "cut+1", "cut+8"], i + 2 * number)
        yield case(*score, pool("heads", every([0, 20, 50, 100], i // 2 + number)), schedule, "slot" if i % 4 == 3 else "absolute")
    yield case(UNEVEN, 0, 0, 27, None, pool("heads", every([0, 50, 20], number)), every(["8", "cut+8", "1"], number), pool="max")
    for i, score in enumerate([ATTENTION, SUMMED, SNAPPED, COUNTED, (UNEVEN, 2, 0, 26, None)]):
        schedule = every(["1", "5", "cut", "cut+1"], i + number)
        yield case(*score, pool("model", every([0, 20, 50], i + number)), schedule, every(["absolute", "slot"], i + number))
    for i, schedule in enumerate(["cut", "cut+1", "1"]):
        yield case(*CRITICAL, pool(every(["heads", "heads", "model"], i + number), 20, score=SNAP8), schedule)
    uneven = pool(every(["heads", "model"], number), 50, score=UNEVEN)
    yield case(SIZED, 0, 3, 30, None, uneven, every(["8", "cut+1", "1", "cut"], number))
    for i, score in enumerate([POSITION, ATTENTION, ("sum(attention)", 2, "25%", 30, ("h2o", {})), (SIZED, 0, 2, 30, None)]):
        schedule = every(["1", "8", "cut", "cut+1"], i + number)
        yield case(*score, dict(heads=tables[(i + number // 2) % 2]), schedule, every(["absolute", "slot", "absolute"], i + number))


def check_budget(folder, text, case, answer):
    """Heads hold as many entries together as the budget says, at every step, and each at least the floor; a floor of 100 % is as none."""
    import oracle, policies
    config, policy, budget, size = json.loads((folder / "config.json").read_text()), policy_of(case), case["budget"], case["size"]
    window, layers, heads = config.get("sliding_window") or math.inf, config["num_hidden_layers"], config["num_key_value_heads"]
    pools = policies.pools(policy, size, layers, heads, budget)
    limits = [limit for _, limit in pools if limit < math.inf]
    assert sum(limits) == size * sum(len(members) for members, limit in pools if limit < math.inf)
    cut, at_once = oracle.parse_schedule(case["schedule"])
    living, left = {member: [] for members, _ in pools for member in members}, {tuple(entry) for entry in answer["evicted"]}
    for t in range(len(text)):
        for members, limit in pools:
            held = {member: [b for b in [*living[member], t] if b > t - window] for member in members}
            living |= {(l, g): [b for b in entries if (t, l, g, b) not in left] for (l, g), entries in held.items()}
            before, after = (sum(len(of[member]) for member in members) for of in (held, living))
            if cut and t < case["prompt"]:
                assert after == (min(before, limit) if t == case["prompt"] - 1 else before)
            else:
                assert after == (limit if at_once and before > limit + (at_once - 1) * len(members) else before)
            assert all(len(living[member]) >= min(policies.floor(size, budget), len(held[member])) for member in members)
    assert answer["survivors"] == [[living[l, g] for g in range(heads)] for l in range(layers)]
    if budget.get("floor") == 100 and window > len(text):
        without = oracle.run(folder, text, policy, size, case["positions"], log=True, **when_of(case))
        assert sorted(without["evicted"]) == sorted(answer["evicted"])


def make_extras(folder, checkpoint, rng):
    """Texts of tokens, vectors and what is read again, all made up."""
    import random_model
    config = json.loads((ROOT / checkpoint / "config.json").read_text())
    vocab, layers = config["vocab_size"], config["num_hidden_layers"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    # an eighth of the tokens are separators or odd strings, many of them more than once
    odd = [".", ",", ".", "?", "\n", ",", "!", ";", ":", " ", "\t", "\"", "\\", "if (", " the", " the"]
    texts = [odd[i // 8 % len(odd)] if i % 8 == 3 else f" word{i}" for i in range(vocab)]
    (folder / "texts.json").write_text(json.dumps(texts) + "\n")
    few = lambda n: rng.integers(3, vocab, n).tolist()
    (folder / "reread.json").write_text(json.dumps(dict(first=few(7), others=few(11), suffix=few(1), chunk=40)) + "\n")
    vectors = {"heads": rng.standard_normal((layers, heads, dim)), "groups": rng.standard_normal((layers, groups, dim))}
    random_model.save_safetensors(folder / "vectors.safetensors", vectors, "f32")
    random_model.save_safetensors(folder / "q_filters.safetensors", {"q_filters": rng.standard_normal((layers, groups, dim))}, "f32")


def extras(folder):
    """What oracle.run takes besides, from the files of a folder."""
    import oracle
    read = lambda name: json.loads((folder / name).read_text()) if (folder / name).exists() else None
    files = {file.name: oracle.load_safetensors(file) for file in sorted(folder.glob("*.safetensors")) if "model" not in file.name}
    return dict(texts=read("texts.json"), reread=read("reread.json"), files=files)


def policy_of(case):
    """What oracle.run takes, from the keys of a case."""
    import formula
    if "policy" in case:
        return case["policy"]
    return formula.policy(case["score"], case["scope"], case["size"], case["pool"], case["keep_first"], case["keep_recent"],
                          select_from=case.get("select_from"), layers=case.get("layers"))


# Relative changes of every weight that no decision may turn on; an f32 engine's rounding is a tenth of it.
JITTER = 3e-6


def when_of(case):
    """The schedule as oracle.run takes it; without one, an entry leaves after every token."""
    return dict(schedule=case.get("schedule", "1"), prompt=case.get("prompt"))


def unambiguous(folder, text, case, name, jitters, besides, narrow=NARROW):
    """The answers to a case, or None if rounding could change a decision. Of entries that leave at once the order does not matter.
    besides: see extras"""
    import numpy as np
    import formula, oracle
    run = lambda policy, **more: oracle.run(
        folder, text, policy, case["size"], case["positions"], log=True, budget=case.get("budget"), **when_of(case), **besides,
        **more
    )
    exact = run(policy_of(case))
    if case.get("score", case.get("policy")) in WHOLE:
        exact["narrowest_set"] = math.inf
    if exact["narrowest_set"] < narrow:
        return None
    same = lambda other: sorted(other["evicted"]) == sorted(exact["evicted"])
    if name:
        # the case is one of the preset's two definitions, its rule or its formula; this is the other
        other = formula.of_preset(name, case["size"]) if "policy" in case else name if isinstance(name, str) else name(case["size"])
        assert same(run(other)), f"{name} and its formula differ"
    rounded = [dict(dtype=np.float32), *(dict(noise=jitter) for jitter in jitters)]
    return exact if all(same(run(policy_of(case), **more)) for more in rounded) else None


def policies(of_cases=None, folder_name="policies", seed=22, length=TEXT, jitters=(JITTER, -JITTER), besides=None, checkpoints=None,
             and_check=None, narrow=NARROW):
    """Presets and formulas. A case that rounding could change is tried at up to three larger sizes, and then left out."""
    import numpy as np
    import policies as rules
    for checkpoint in checkpoints or sys.argv[2:] or POLICY_CHECKPOINTS:
        vocab = json.loads((ROOT / checkpoint / "config.json").read_text())["vocab_size"]
        text = np.random.default_rng(seed).integers(3, vocab, length).tolist()
        folder = ROOT / folder_name / Path(checkpoint).name
        folder.mkdir(parents=True, exist_ok=True)
        if besides:
            besides(folder, checkpoint, np.random.default_rng(seed))
        given = extras(folder)
        cases, narrowest, left_out, larger = [], float("inf"), [], 0
        layers = json.loads((ROOT / checkpoint / "config.json").read_text())["num_hidden_layers"]
        for case, name in (of_cases or policy_cases)():
            if "layers" in case.get("budget", {}):
                case["budget"] = {"layers": case["budget"]["layers"][:layers]}
            for size in range(case["size"], case["size"] + 4):
                answer = unambiguous(ROOT / checkpoint, text, case | dict(size=size), name, jitters, given, narrow)
                if answer:
                    break
            else:
                left_out.append(case)
                continue
            larger += size > case["size"]
            if and_check:
                and_check(ROOT / checkpoint, text, case | dict(size=size), answer)
            narrowest = min(narrowest, answer["narrowest_set"])
            # Nothing leaves where queries select, and every list would have all tokens.
            is_whole = "select_from" in case or case.get("policy") in rules.SELECT
            survivors = {} if is_whole else dict(survivors=answer["survivors"])
            cases.append(case | dict(size=size, nll=[round(x, 5) for x in answer["nll"]]) | survivors)
        (folder / "checkpoint").write_text(checkpoint + "\n")
        (folder / "tokens.json").write_text(json.dumps(text) + "\n")
        write_golden(folder, cases)
        print(f"{folder.relative_to(ROOT)}: {len(cases)} cases, {larger} at a larger size, closest decision {narrowest:.1e} apart, "
              f"left out: {left_out or 'none'}", flush=True)


def yardsticks():
    """The ceiling and budgets by layer."""
    policies(yardstick_cases, "yardsticks")


def matrix():
    """The program against the oracle, all combinations."""
    import subprocess, tempfile
    import numpy as np
    import oracle, policies
    program, *checkpoints = sys.argv[2:]
    for checkpoint in checkpoints or POLICY_CHECKPOINTS:
        folder = ROOT / checkpoint
        vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
        text = np.random.default_rng(43).integers(3, vocab, 200).tolist()
        cases, define = [], {}
        for name in older_presets():
            _, score, _, first, recent = policies.PRESETS[name]
            for scope in ("layer", "head"):
                define[f"p-{name}-{scope}"] = dict(score=score, scope=scope, keep_first=first, keep_recent=recent)
                for schedule in SCHEDULES:
                    small, middle = (48, 56) if name == "vatp" else (24, 37)
                    sizes = [small, middle] + ([PROMPT // 2, PROMPT * 3 // 4] if "cut" in schedule else [])
                    for positions in ("absolute", "slot", "squeezed"):
                        cases += [(name, scope, schedule, positions, size) for size in sizes]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump(dict(define=define), file)
            file.flush()
            (tokens := Path(file.name + ".tokens")).write_text(json.dumps(text))
            flags = lambda name, scope, schedule, positions, size: [
                "--policy", f"p-{name}-{scope}", "--cache-size", str(size), "--schedule", schedule, "--positions", positions,
                *["--prompt", str(PROMPT)] * ("cut" in schedule)]
            answers = [subprocess.run(
                [program, "score", "--model", folder, "--define", file.name, "--tokens", tokens, *flags(*case)], check=True,
                capture_output=True, text=True).stdout for case in cases]
            tokens.unlink()
        worst, close, wrong = 0.0, 0, []
        for (name, scope, schedule, positions, size), answer in zip(cases, map(json.loads, answers), strict=True):
            case = dict(schedule=schedule) | (dict(prompt=PROMPT) if "cut" in schedule else {})
            exact = oracle.run(folder, text, f"{name}-{scope}", size, positions, log=True, **when_of(case))
            # Where all heads hold the same by definition, the program names it once.
            own = [groups * len(theirs) if len(groups) == 1 else groups
                   for groups, theirs in zip(answer["survivors"], exact["survivors"], strict=True)]
            apart_by, same = apart(answer["nll"], exact["nll"]), own == exact["survivors"]
            if same and apart_by < 1e-4:
                worst = max(worst, apart_by)
            elif exact["narrowest_set"] < NARROW:
                close += 1  # rounding decides
            else:
                wrong.append((name, scope, schedule, positions, size))
        print(f"{checkpoint}: {len(cases)} cases, {len(cases) - close - len(wrong)} equal, NLLs within {worst:.1e}, {close} where a decision "
              f"is closer than {NARROW:.0e}, wrong: {wrong or 'none'}", flush=True)
        if wrong:
            sys.exit(1)


def schedules():
    """When entries leave a cache."""
    policies(schedule_cases, "schedules", seed=43, length=200, jitters=[JITTER])


def scores():
    """What reads neighbours, blocks, queries, files, texts or the prompt again."""
    policies(score_cases, "scores", seed=44, length=200, jitters=[JITTER], besides=make_extras)


def budgets():
    """Heads that hold different numbers of entries."""
    for checkpoint in sys.argv[2:] or BUDGET_CHECKPOINTS:
        policies(lambda: budget_cases(checkpoint), "budgets", seed=45, length=200, jitters=[JITTER], checkpoints=[checkpoint],
                 and_check=check_budget)


def selection():
    """Queries that select, where nothing leaves."""
    policies(selection_cases, "selection", seed=46, length=SELECTION_TEXT, jitters=[], narrow=SELECTION_NARROW)


def deciding():
    """One decision for all layers."""
    policies(deciding_cases, "deciding", seed=47, length=200, jitters=[JITTER])


def checkpoint_of(folder):
    other = folder / "checkpoint"
    return ROOT / other.read_text().strip() if other.exists() else folder


def check():
    import oracle
    for folder in [ROOT / name for name in sys.argv[2:]] or folders():
        cases, worst = json.loads((folder / "golden.json").read_text())["cases"], 0.0
        for c in cases:
            r = oracle.run(checkpoint_of(folder), tokens(folder), policy_of(c), c["size"], c["positions"], budget=c.get("budget"),
                           **when_of(c), **extras(folder))
            assert r["survivors"] == c.get("survivors", r["survivors"]), f"{folder}: {dict(c, nll=0, survivors=0)}"
            worst = max(worst, apart(r["nll"], c["nll"]))
        print(f"{folder.relative_to(ROOT)}: {len(cases)} cases, survivors equal, NLLs within {worst:.1e}")


WRITTEN = [("full", None, False, prompt, 200) for prompt in (1, 17, 100)] + [
    (policy, size, one_shot, 90, 60)
    for policy in ("tova", "h2o", "window+4", "tova-head", "knorm") for size in (12, 33) for one_shot in (False, True)]
# A choice between two tokens whose logits are closer could go either way in f32.
UNSURE = 1e-3


def places():
    """Checkpoint folders by where their written.json goes."""
    more = dict(pair.split("=", 1) for pair in sys.argv[2:])
    return {folder: folder for folder in folders() if checkpoint_of(folder) == folder} | {ROOT / name: Path(folder) for name, folder in more.items()}


def beginning(golden):
    file = golden / "prompt.json"
    return json.loads((file if file.exists() else golden / "tokens.json").read_text())


def written():
    import oracle
    for golden, folder in places().items():
        start, cases = beginning(golden), []
        for policy, size, one_shot, prompt, new in WRITTEN:
            r = oracle.run(folder, start[:prompt], policy, size, write=new, schedule="cut+1" if one_shot else "1", log=True)
            sure = next((i for i, m in enumerate(r["margins"]) if m < UNSURE), new)
            # Ties of equal keys are decided by the definition, everything else this close by rounding.
            if sure >= 20 and (policy == "knorm" or r["narrowest"] > NARROW):
                cases.append(dict(policy=policy, size=size, one_shot=one_shot, prompt=prompt, written=r["written"][:sure]))
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        (golden / "written.json").write_text(f'{{"cases": [\n{lines}\n]}}\n')
        print(f"{golden.relative_to(ROOT)}: {len(cases)} of {len(WRITTEN)} cases")


def torch_written(model, golden):
    """How many of the full cache's tokens transformers chooses too."""
    import torch
    start, same, all_ = beginning(golden), 0, 0
    for case in json.loads((golden / "written.json").read_text())["cases"]:
        if case["policy"] == "full":
            ids = torch.tensor([start[:case["prompt"]]])
            n = len(case["written"])
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=n,
                                 min_new_tokens=n, eos_token_id=None, pad_token_id=0)
            same += sum(a == b for a, b in zip(out[0, case["prompt"]:].tolist(), case["written"]))
            all_ += n
    return f"{same} of {all_} written tokens equal"


def torch_full():
    import torch, transformers
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for golden, folder in places().items():
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
        assert not any(loading.values()), f"{folder}: {loading}"
        print(f"{golden.relative_to(ROOT)}: {torch_written(model.eval(), golden)}")
        if not (golden / "golden.json").exists():
            continue
        ids = torch.tensor([tokens(folder)])
        with torch.inference_mode():
            z = model.eval()(ids, use_cache=False).logits[0, :-1]
        nll = torch.nn.functional.cross_entropy(z.double(), ids[0, 1:], reduction="none").tolist()
        full = next(c for c in json.loads((folder / "golden.json").read_text())["cases"] if c["policy"] == "full")
        print(f"{folder.relative_to(ROOT)}: {type(model).__name__}, NLLs within {apart(nll, full['nll']):.1e}")


if __name__ == "__main__":
    commands = {"make": make, "long": long, "policies": policies, "yardsticks": yardsticks, "schedules": schedules, "scores": scores,
                "budgets": budgets, "selection": selection, "deciding": deciding, "matrix": matrix, "check": check, "written": written, "torch": torch_full}
    commands[sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)]()
