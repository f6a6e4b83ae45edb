#!/usr/bin/env python3
"""Recounts `held_bytes` and `peak_bytes` of random cells from their eviction logs, entry by entry and independently of the program.

    python3 .ci/checks/held_bytes.py PROGRAM [--cells 40] [--seed 0] [--repository .]

A cell is a small checkpoint, a policy, a schedule, `local_layers`, a size or share of memory, and a format, drawn at random. What the
program refuses is printed, counted and drawn again. The bytes of formats and what layers of families hold are written down here. Exit
code 1 if a cell differs. Needs pyarrow.
"""

import argparse
import json
import random
import shutil
import subprocess
import tempfile
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path
from string import ascii_lowercase as letters

import pyarrow.parquet as pq

PROMPT, NEVER = 90, 10**9
PLAIN = {"f32": 2, "f16": 2, "bf16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}  # bytes of a number; f32 counts as 16 bits
TURBO = {"turbo-4": 4, "turbo-3": 3}  # bits of a coordinate; a vector also has a length of 2 bytes
# Bytes of 32 numbers: integers of 8, 5, 4 or 2 bits, and a scale, or a scale and a minimum, of 2 bytes each.
BLOCKS = {"q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18, "iq4_nl": 18, "kivi-4": 20, "kivi-2": 12}
BLOCKS |= {f"{form}h": size for form, size in BLOCKS.items() if form[0] != "k"}
SCHEDULES = "1 7 16 cut cut+1 cut+8".split()
PRESETS = """full full window+4 tova tova+2 tova-head h2o h2o-layer knorm knorm-layer keydiff a2sf roco caote r-kv morphkv-sum snapkv
    expected lagkv criticalkv chunkkv kvzip random clairvoyant pyramidkv adakv ada-expected kvzip-pool""".split()
BUDGETS = {"pyramidkv": {"pyramid": 20}, "kvzip-pool": {"pool": "model"}} | dict.fromkeys(["adakv", "ada-expected"], {"pool": "heads"})
SIZES = [8, 9, 12, 17, 23, 24, 25, 39, 40, 41, 60, 70, 77, 89, 100]  # windows are 24 or 40
WINDOWED = {  # of other checkpoints, because no golden with windows has heads that blocks of 32 divide
    "mistral-64": ("llama-64", {"model_type": "mistral", "sliding_window": 24}),
    "qwen2-32-window": ("qwen2-32", {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}
                        | {"layer_types": ["full_attention", "sliding_attention"]}),
}  # fmt: skip


def vector(form, dim):
    """Bytes of a key or a value."""
    if form in TURBO:
        return 2 + -(-TURBO[form] * dim // 8)
    return PLAIN[form] * dim if form in PLAIN else BLOCKS[form] * dim // 32


def shape(config):
    """Of each layer with a cache: heads, numbers of an entry's vectors, window, whether it slides; and the bytes of all states."""
    get, count, caches, states = config.get, config["num_hidden_layers"], [], 0
    windows = {"sliding_attention": get("sliding_window"), "chunked_attention": get("attention_chunk_size")}
    usual = "sliding_attention" if get("use_sliding_window", True) else "full_attention"
    for at, kind in enumerate(get("layer_types") or [usual] * count):
        own = config | get("per_layer_config", {}).get(str(at), {})
        dims = [own.get("head_dim") or own["hidden_size"] // own["num_attention_heads"]] * 2
        cache = {"heads": own["num_key_value_heads"], "dims": dims}
        if get("kv_lora_rank"):  # a latent vector and a rotated key, one for all heads
            cache |= {"heads": 1, "dims": [config["kv_lora_rank"] + config["qk_rope_head_dim"]]}
        if kind == "linear_attention":  # a matrix for each head, and the last inputs of a convolution of queries, keys and values
            keys, values, key, value = (get(f"linear_{part}") for part in
                                        ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))  # fmt: skip
            states += 2 * (values * key * value + (2 * keys * key + values * value) * (config["linear_conv_kernel_dim"] - 1))
        elif at < count - get("num_kv_shared_layers", 0):  # the last layers may attend to the caches of others
            caches.append(cache | {"window": windows.get(kind) or NEVER, "slides": kind != "chunked_attention"})
    return caches, states


def first(cache, query):
    """The first entry that a query sees."""
    return max(0, query + 1 - cache["window"]) if cache["slides"] else query - query % cache["window"]


def caps(caches, budget, size, recent):
    """(cache, head) -> (what it shares room with, the entries for which there is room). Asked where windows are bounded too."""
    heads = [(at, head) for at, cache in enumerate(caches) for head in range(cache["heads"])]
    last, steps = Fraction(size - recent, budget.get("pyramid", 1)) + recent, len(caches) - 1
    weights = budget.get("layers", [1] * len(caches))
    if "pyramid" in budget:
        weights = [2 * size - last + (2 * last - 2 * size) * at / steps for at in range(len(caches))]
    of_heads = {(at, head): budget["heads"][at][head] for at, head in heads} if "heads" in budget else {}
    of_each = {key: n for key, n in of_heads.items() if n != "full"} or dict(enumerate(weights))
    # In proportion to weights: rounded down, and one more for the largest remainders, the first of equal ones.
    exact = {key: Fraction(len(of_each) * size) * weight / sum(of_each.values()) for key, weight in of_each.items()}
    missing = len(of_each) * size - sum(map(int, exact.values()))
    more = sorted(exact, key=lambda key: int(exact[key]) - exact[key])[:missing]
    sizes = {key: int(n) + (key in more) for key, n in exact.items()}
    pool = {"heads": lambda key: key[0], "model": lambda key: None}.get(budget.get("pool"), lambda key: key)
    room = Counter()
    for key in heads:
        room[pool(key)] += min(sizes.get(key, NEVER) if of_heads else sizes[key[0]], caches[key[0]]["window"])
    return {key: (pool(key), room[pool(key)]) for key in heads}


def recount(caches, states, row, log, groups, length, budget, recent):
    """Mean and peak of the bytes held between tokens, and those of the full cache of the prompt in f32."""

    def bytes_of(cache, entries, forms):
        packed, loose = 0, forms
        if forms[0].startswith("kivi"):  # the oldest 32 are packed whenever 160 are loose
            packed, loose = max(0, (entries - 128) // 32) * 32, ["f16"] * 2
        each = zip(forms, loose, cache["dims"])
        return sum(packed * vector(form, dim) + (entries - packed) * vector(other, dim) for form, other, dim in each)

    def held(tokens, log, forms, room={}, before_cut=False):
        newest, total, together, passed = tokens - 1, states, Counter(), defaultdict(list)
        for at, head in ((at, head) for at, cache in enumerate(caches) for head in range(cache["heads"])):
            cache, left, entries = caches[at], log[at, head if groups.get(at, 1) > 1 else 0], 0
            for entry in range(0 if left else first(cache, newest), tokens):
                gone = left.get(entry, NEVER)
                # What the next query does not see is held until then, although the log has it at this step.
                is_passed = gone == newest and entry < first(cache, newest + 1)
                entries += gone > newest or is_passed or (before_cut and gone == newest)
                if is_passed and room:
                    passed[room[at, head]].append(bytes_of(cache, 1, forms))
            total += bytes_of(cache, entries, forms)
            together[room.get((at, head))] += entries
        # Where there is no room for all of these, it was the policy that evicted them, before the window passed them.
        return total - sum(sum(each[: max(0, together[key] - key[1])]) for key, each in passed.items())

    forms, schedule = (row["format"].split("/") * 2)[:2], row["schedule"] or ""
    room = caps(caches, budget, row["cache_size"], recent) if row["local_layers"] == "bounded" else {}
    bounds = {"1": 0, "cut+1": PROMPT}.get(schedule, length)  # after so many tokens the policy bounds layers with windows
    after = [held(tokens, log, forms, room if tokens >= bounds else {}) for tokens in range(1, length)]
    whole = held(PROMPT, log, forms, before_cut=True) if schedule.startswith("cut") else 0
    return sum(after[PROMPT - 1 :]) / (length - PROMPT), max(*after, whole), held(PROMPT, defaultdict(dict), ["f32"] * 2)


def checkpoints(repository, folder):
    """Copies checkpoints, with tokenizers of words of one or two letters, and writes a book; name -> config."""
    sources = {path.parent.name: path.parent for path in (repository / "tests/golden").glob("f[ao]*s/*/model.safetensors")}
    sources |= {name: sources[source] for name, (source, _) in WINDOWED.items()} | {"pocket": repository / "models/pocket"}
    words, configs = ["<unk>", "<s>", *letters, *(a + b for a in letters for b in letters), *map("word{}".format, range(10000))], {}
    for name, source in sorted(sources.items()):
        config = configs[name] = json.loads((source / "config.json").read_text()) | WINDOWED.get(name, ("", {}))[1]
        vocabulary = {word: at for at, word in enumerate(words[: config["vocab_size"]])}
        model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
        tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model}
        more = {"config": config, "tokenizer": tokenizer, "tokenizer_config": {"bos_token": "<s>", "add_bos_token": True}}
        (folder / name).mkdir()
        shutil.copy(source / "model.safetensors", folder / name)
        for file, content in more.items():
            (folder / name / f"{file}.json").write_text(json.dumps(content))
    (folder / "texts").mkdir()
    (folder / "texts/book.txt").write_text(" ".join(random.Random(7).choices(words[2:64], k=400)))
    return configs


def draw(rng, family, caches):
    """A random cell as a sweep, its budget, and its newest protected entries."""
    whole = all(dim % 32 == 0 for cache in caches for dim in cache["dims"])
    forms = rng.sample(["f32", "f16", "turbo-4", *BLOCKS] if whole else [*PLAIN, *TURBO], rng.randint(1, 2))
    form = next((form for form in forms if form.startswith("kivi")), "/".join(forms))  # KIVI is of keys and values together
    heads = [[rng.randint(1, 4) for _ in range(cache["heads"])] for cache in caches]
    score = rng.choice(["attention", "sum(attention)", "random"])
    definitions = {
        "layers": {"scope": "layer", "budget": {"layers": [rng.randint(1, 4) for _ in caches]}},
        "pyramid": {"scope": rng.choice(["layer", "head"]), "keep_recent": 3, "budget": {"pyramid": 3}},
        "heads": {"scope": "head", "budget": {"heads": heads}},
        "full-heads": {"scope": "head", "budget": {"heads": [heads[0], ["full", *heads[1][1:]], *heads[2:]]}},
        "pool-heads": {"scope": "head", "budget": {"pool": "heads", "floor": "20%"}},
        "pool-model": {"scope": "head", "budget": {"pool": "model"}},
        "prompt-kept": {"scope": "layer", "keep_first": "prompt"},
        "blocks": {"scope": "layer", "score": "block(attention, 5)"},
    }
    # What a cache in KIVI's format holds is known where nothing is evicted, and in rows only there.
    policy = "full" if form.startswith("kivi") else rng.choice([rng.choice(PRESETS), rng.choice(list(definitions))])
    definition = {"score": score} | definitions.get(policy, {})
    size = rng.choice([{"cache_sizes": [rng.choice(SIZES)]}] * 2 + [{"memory": [rng.choice(["25%", "50%", "80%"])]}])
    task = {"dataset": "./texts", "length": 220 if "kivi" in form else 150, "prompt": PROMPT, "books": 1, "chunks_per_book": 1}
    sweep = {
        "models": [f"./{family}"],
        "policies": [f"{policy}@{form}" if policy == "full" else f"{policy}@{rng.choice(SCHEDULES)}@{form}"],
        "local_layers": rng.choice(["bounded", "exempt"]),
        "define": {policy: definition} if policy in definitions else {},
        "tasks": [{"perplexity": task | {"eviction_log": True}}],
    }
    return sweep | size, definition.get("budget") or BUDGETS.get(policy, {}), definition.get("keep_recent", 64)


def measure(program, folder, name, sweep):
    """The row of a cell, its log as (cache, group) -> entry -> step, groups by cache, and what the program says of a refusal."""
    (folder / f"{name}.yaml").write_text(json.dumps(sweep))
    options = f"--results {name} --no-report --threads 1 --progress none --device cpu".split()
    done = subprocess.run([program, "run", f"{name}.yaml", *options], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return None, {}, {}, done.stderr.splitlines()[0]
    rows = [row for row in pq.read_table(folder / name / "rows.parquet").to_pylist() if row["metric"] == "nll" and not row["slice"]]
    log, groups = defaultdict(dict), {}
    for file in (folder / name).glob("logs/*/*.groups.parquet"):
        groups = {row["layer"]: row["groups"] for row in pq.read_table(file).to_pylist()}  # layers with a cache, counted from 0
        for row in pq.read_table(str(file).replace(".groups", "")).to_pylist():
            log[row["layer"], row["group"]][row["victim"]] = row["step"]
    return rows[0], log, groups, "no held_bytes, by definition" if rows[0]["held_bytes"] is None else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repository", type=Path, default=Path.cwd())
    options = parser.parse_args()
    rng, drawn, cells, equal, refused, left = random.Random(options.seed), Counter(), 0, 0, 0, []
    with tempfile.TemporaryDirectory() as temporary:
        configs = checkpoints(options.repository, Path(temporary))
        while cells < options.cells and refused < 10 * options.cells:
            left = left or rng.sample(sorted(configs), len(configs))  # every family before one comes again
            caches, states = shape(configs[left[-1]])
            sweep, budget, recent = draw(rng, left[-1], caches)
            row, log, groups, refusal = measure(options.program.resolve(), Path(temporary), f"cell-{cells}-{refused}", sweep)
            size = (sweep.get("memory") or sweep["cache_sizes"])[0]
            what = f"{left[-1]} {sweep['policies'][0]} {sweep['local_layers']} {size}"
            if refusal:
                refused += 1
                print(f"refused: {what}: {refusal}", flush=True)
                continue
            length = sweep["tasks"][0]["perplexity"]["length"]
            mean, peak, full = recount(caches, states, row, log, groups, length, budget, recent)
            is_more = "memory" in sweep and row["policy"] != "full" and mean > full * int(size[:-1]) / 100
            same = (mean, peak) == (row["held_bytes"], row["peak_bytes"]) and not is_more
            entries = f"{row['cache_size']} entries, {sum(map(len, log.values()))} evictions"
            bytes_held = f"held {row['held_bytes']:.3f} {mean:.3f}, peak {row['peak_bytes']} {peak}"
            print(f"{'equal' if same else 'DIFFERS'}: {what} ({entries}): {bytes_held}{', more than asked for' if is_more else ''}")
            cells, equal = cells + 1, equal + same
            names = {"family": left.pop(), "schedule": row["schedule"] or "none", "policy": row["policy"], "format": row["format"]}
            drawn.update(names.items())
    for kind in ("family", "policy", "schedule", "format"):
        print(f"{kind}:", ", ".join(f"{name} {n}" for (of, name), n in sorted(drawn.items()) if of == kind))
    print(f"{refused} refused\n{equal} of {cells} equal")
    return equal < options.cells


if __name__ == "__main__":
    raise SystemExit(main())
