#!/usr/bin/env python3
"""Plain definitions of the formats of caches, and what transformers computes with caches in them. Needs torch, transformers 5, gguf 0.19, numpy.

    python3 tests/golden/make/formats.py make                make tests/golden/formats again: NLLs and survivors in float64, and packed bytes
    python3 tests/golden/make/formats.py witness PROGRAM GGUF TEXT [--tokens N] [--formats F,F] [--policies P,P]
        formats and policies on a model of a GGUF file by transformers in float32 and in float64, beside what PROGRAM computes: a number that
        is rounded the other way moves later tokens, so PROGRAM can be as far from either as they are from each other. Entries leave as
        PROGRAM evicted them; `share_of_score` says how far their scores were from the lowest
    python3 tests/golden/make/formats.py quantized PROGRAM GGUF TEXT
        KIVI's layout by transformers' own QuantizedCache (quanto) beside the plain definition: keys by channel in groups of 32 tokens, values
        by token in groups of 32 numbers, over a prompt that was read with the full cache. Numbers that differ are one step apart. PROGRAM
        rounds while it reads the prompt, and keeps the newest 128 to 159 tokens in 16 bits. Needs optimum-quanto, accelerate, ninja

A key, after rotation, and a value are rounded when their token joins. llama.cpp's types but iq4_nl are packed and unpacked by gguf's own numpy
code, 8-bit floats by torch. KIVI's newest entries are in 16 bits: whenever there are 160 of them after an eviction, the oldest 32 become
a group.
"""
import argparse, functools, json, math, subprocess, sys, tempfile
from pathlib import Path
import numpy as np
import torch
import one_by_one

ROOT = Path(__file__).resolve().parent.parent
GROUP, RESIDUAL = 32, 128
LLAMA = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
PER_TOKEN = ["f16", "bf16", "fp8_e4m3", "fp8_e5m2", *LLAMA, "iq4_nl", "q8_0h", "q4_0h", "iq4_nlh", "turbo-4", "turbo-3"]
MODELS = {
    "llama-64": "--layers 2 --heads 2 --kv-heads 1 --hidden 48 --head-dim 64 --intermediate 64 --vocab 96 --text 240 --dtype f16 --seed 0",
    "qwen2-32": "--arch qwen2 --layers 2 --heads 4 --kv-heads 2 --hidden 48 --head-dim 32 --intermediate 64 --vocab 96 --text 240 --dtype f16 "
                "--seed 0",
}
LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def half(x):
    return np.float32(np.float16(x))


def hadamard(n):
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / math.sqrt(n)


@functools.cache
def random_rotation(dim):
    """Rows of normal numbers (Box and Muller's, of SplitMix64 from 0), made orthogonal in turn"""
    state, mask = 0, 2**64 - 1

    def uniform():
        nonlocal state
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return ((z ^ (z >> 31)) >> 11) / 2**53

    def normal():
        length = math.sqrt(-2 * math.log(1 - uniform()))
        return length * math.cos(2 * math.pi * uniform())

    q, r = np.linalg.qr(np.array([[normal() for _ in range(dim)] for _ in range(dim)]).T)
    return (q * np.sign(np.diag(r))).T


@functools.cache
def turbo_levels(dim, count):
    """Lloyd's algorithm on the density of one coordinate of a direction, integrated by Gauss and Legendre's rule"""
    power, (nodes, weights) = (dim - 3) / 2, np.polynomial.legendre.leggauss(200)

    def centre(low, high):
        high = min(high, low + 12 / math.sqrt(dim))
        x = (high - low) / 2 * nodes + (high + low) / 2
        density = weights * np.maximum(1 - x * x, 0) ** power
        return density @ x / density.sum()

    levels = min(3 / math.sqrt(dim), 1) * ((2 * np.arange(count) + 1) / count - 1)
    for _ in range(1500):
        edges = [-1, *(levels[1:] + levels[:-1]) / 2, 1]
        upper = [centre(*pair) for pair in zip(edges[count // 2:], edges[count // 2 + 1:])]
        levels = np.array([-x for x in upper[::-1]] + upper)
    return levels


def iq4_nl(block):
    """-> scale, levels of 32 numbers, as quantize_row_iq4_nl_ref of ggml-quants.c has them"""
    largest = block[np.argmax(abs(block))]
    if abs(largest) < 1e-15:
        return np.float32(0), np.zeros(GROUP, int)
    inverse = np.float32(1) / (largest / LEVELS[0])
    wanted = np.float32(inverse * block)
    level = np.array([min(range(16), key=lambda i: (abs(LEVELS[i] - x), -i)) for x in wanted])
    number, weight = LEVELS[level], block * block
    products = squares = np.float32(0)
    for w, q, x in zip(weight, number, block):
        products, squares = np.float32(products + np.float32(w * q) * x), np.float32(squares + np.float32(w * q) * q)
    return half(products / squares), level


def packed(name, x):
    """-> the bytes of float32 vectors (n, dim) in a format of llama.cpp"""
    import gguf
    if name != "iq4_nl":
        return gguf.quants.quantize(x, gguf.GGMLQuantizationType[name.upper()])
    rows = []
    for scale, level in (iq4_nl(block) for block in x.reshape(-1, GROUP)):
        rows.append(np.float16(scale).tobytes() + bytes(int(a | b << 4) for a, b in zip(level[:16], level[16:])))
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(x), -1)


def rounded(name, x):
    """-> float32 vectors (n, dim) after a format"""
    import gguf
    tensor = torch.from_numpy(x)
    if name in ("f16", "bf16"):
        return tensor.to({"f16": torch.float16, "bf16": torch.bfloat16}[name]).float().numpy()
    if name.startswith("fp8"):
        kind = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}[name]
        most = torch.finfo(kind).max
        return tensor.clamp(-most, most).to(kind).float().numpy()
    if name.startswith("turbo"):
        levels = turbo_levels(x.shape[1], 2 ** int(name[-1])).astype(np.float32)
        length = half(np.sqrt((x * x).sum(-1, keepdims=True)))
        direction = np.divide(x, length, out=np.zeros_like(x), where=length > 0)
        return levels[abs(direction[..., None] - levels).argmin(-1)] * length
    return gguf.quants.dequantize(packed(name, x), gguf.GGMLQuantizationType[name.upper()])


def stored(name, x, is_key):
    """-> vectors (heads, tokens, dim) as attention sees them after a format of each token"""
    dim, number = x.shape[-1], x.dtype
    turned = np.eye(dim)
    if name.startswith("turbo"):
        turned = random_rotation(dim)
    elif name.endswith("h"):
        size = dim & -dim if is_key else min(64, dim & -dim)
        turned, name = np.kron(np.eye(dim // size), hadamard(size)), name[:-1]
    flat = x.reshape(-1, dim).astype(float) @ turned.T
    return (rounded(name, flat.astype(np.float32)).astype(float) @ turned).reshape(x.shape).astype(number)


def kivi(bits, x, by_channel):
    """-> a group (32, dim) after KIVI's integers"""
    shaped = x[None] if by_channel else x.reshape(len(x), -1, GROUP).transpose(0, 2, 1)
    least, most = shaped.min(1, keepdims=True), shaped.max(1, keepdims=True)
    scale, least = half((most - least) / np.float32(2**bits - 1)), half(least)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.nan_to_num(np.rint((shaped - least) / scale), nan=0.0, posinf=2**bits - 1, neginf=0).clip(0, 2**bits - 1)
    back = (steps * scale + least).astype(np.float32)
    return back[0] if by_channel else back.transpose(0, 2, 1).reshape(x.shape)


class Store:
    """The stored keys and values of one layer and text: `keys` and `values` (kv_heads, tokens, dim)"""
    def __init__(self, name, keys, values):
        of_keys, _, of_values = name.partition("/")
        self.bits = int(name[-1]) if name.startswith("kivi") else None
        if self.bits:
            self.half = [x.astype(np.float16).astype(np.float32) for x in (keys, values)]
            self.keys, self.values = (x.astype(keys.dtype) for x in self.half)
            self.is_packed = np.zeros(keys.shape[:2], bool)
        elif name == "f32":
            self.keys, self.values = keys, values
        else:
            self.keys, self.values = stored(of_keys, keys, True), stored(of_values or of_keys, values, False)

    def after(self, heads, alive):
        """After a token: `alive` are the positions that these heads hold"""
        if self.bits:
            for head in heads:
                recent = [p for p in alive if not self.is_packed[head, p]]
                while len(recent) >= RESIDUAL + GROUP:
                    group, recent = recent[:GROUP], recent[GROUP:]
                    for to, x, by_channel in ((self.keys, self.half[0], True), (self.values, self.half[1], False)):
                        to[head, group] = kivi(self.bits, x[head, group], by_channel)
                    self.is_packed[head, group] = True


def make():
    folder = ROOT / "formats"
    for name, arguments in MODELS.items():
        subprocess.run([sys.executable, Path(__file__).with_name("random_model.py"), folder / name, *arguments.split()], check=True)
    for of in (folder / name for name in MODELS):
        tokens = json.loads((of / "tokens.json").read_text())
        model = one_by_one.load(of, torch.float64, "one_by_one", exact=True)
        cases = []
        for name in [*PER_TOKEN, "q8_0/q4_0", "kivi-4", "kivi-2"]:
            settings = [("full", None, {}), ("tova", 180 if name.startswith("kivi") else 40, {})]
            if name in ("q8_0", "q4_0h", "turbo-3", "kivi-2"):
                settings += [("tova", 170, {"schedule": "cut", "prompt": 192})] if name == "kivi-2" else []
                settings += [("h2o", 60, {}), ("window+4", 33, {}), ("knorm", 60, {}), ("tova", 190, {"schedule": "16"}),
                             ("tova-head", 170, {"schedule": "cut", "prompt": 200})]
            for policy, size, more in settings:
                with one_by_one.float64_everywhere():
                    nll, run = one_by_one.run(model, tokens, policy, size, "bounded", store=lambda k, v: Store(name, k, v), **more)
                cases.append({"policy": policy, "size": size, "format": name, **more, "nll": [round(x, 7) for x in nll],
                              "survivors": run.survivors})
                print(of.name, name, policy, size, more, f"mean {np.mean(nll):.5f}, narrowest {run.narrowest:.1e}", flush=True)
        (of / "golden.json").write_text(json.dumps({"cases": cases}) + "\n")
    shared, cases = ROOT / "families" / "gemma3n", []  # layers that share caches
    (folder / "gemma3n").mkdir(exist_ok=True)
    (folder / "gemma3n" / "tokens.json").write_text((shared / "tokens.json").read_text())
    tokens, model = json.loads((shared / "tokens.json").read_text()), one_by_one.load(shared, torch.float64, "one_by_one", exact=True)
    for name in ("fp8_e4m3", "turbo-4", "turbo-3"):
        for policy, size in (("full", None), ("tova", 24)):
            with one_by_one.float64_everywhere():
                nll, run = one_by_one.run(model, tokens, policy, size, "bounded", store=lambda k, v: Store(name, k, v))
            cases.append({"policy": policy, "size": size, "format": name, "nll": [round(x, 7) for x in nll], "survivors": run.survivors})
    (folder / "gemma3n" / "golden.json").write_text(json.dumps({"cases": cases}) + "\n")
    rng = np.random.default_rng(11)
    x = (rng.standard_normal((24, 64)) * 10 ** rng.uniform(-3, 2, (24, 1))).astype(np.float32)
    x[0], x[1, :32], x[2, 5] = 0, 1.5, 1e4
    bytes_of = {name: packed(name, x).reshape(-1).tolist() for name in [*LLAMA, "iq4_nl"]}
    numbers = {name: rounded(name, x).reshape(-1).astype(float).tolist() for name in ("f16", "bf16", "fp8_e4m3", "fp8_e5m2")}
    (folder / "packed.json").write_text(json.dumps({"x": x.reshape(-1).astype(float).tolist(), "bytes": bytes_of, "numbers": numbers}) + "\n")


def witness(a):
    import transformers
    source, file = str(Path(a.gguf).parent), Path(a.gguf).name
    load = lambda: transformers.AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32,
                                                                     attn_implementation="one_by_one").eval()
    single, double = load(), load().double()
    with one_by_one.float64_everywhere():
        double.model.rotary_emb = type(double.model.rotary_emb)(double.config)
    score = [a.program, "score", "--model", a.gguf, "--evictions"]
    answer = lambda *more: json.loads(subprocess.run([*score, *more], capture_output=True, text=True, check=True).stdout)
    tokens = answer("--text", a.text)["tokens"][:a.tokens]
    with tempfile.TemporaryDirectory() as folder:
        tokens_file = Path(folder) / "tokens.json"
        tokens_file.write_text(json.dumps(tokens))
        for name in a.formats.split(","):
            for policy in a.policies.split(","):
                size = None if policy == "full" else a.size
                sized = ["--cache-size", str(size)] if size else []
                ours = answer("--tokens", tokens_file, "--policy", policy, "--format", name, *sized)
                follow = {(layer, group, step): victim for step, layer, group, victim in ours["evictions"]}
                run = lambda model: one_by_one.run(model, tokens, policy, size, "bounded", follow=follow or None,
                                                   store=lambda k, v: Store(name, k, v))
                (nll, own), ours = run(single), np.array(ours["nll"])
                with one_by_one.float64_everywhere():
                    exact, _ = run(double)
                nll, exact = np.array(nll), np.array(exact)
                rms = lambda x: float(np.sqrt(np.mean(x * x)))
                print(json.dumps({
                    "format": name, "policy": policy, "mean_f32": nll.mean(), "mean_f64": exact.mean(), "mean_ours": ours.mean(),
                    "ours_to_f32": rms(ours - nll), "ours_to_f64": rms(ours - exact), "f32_to_f64": rms(nll - exact),
                    "largest_ours_to_f32": abs(ours - nll).max(), "largest_f32_to_f64": abs(nll - exact).max(),
                    "share_of_score": own.widest}), flush=True)


def quantized(a):
    import transformers
    source, file = str(Path(a.gguf).parent), Path(a.gguf).name
    model = transformers.AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32).eval()
    score = [a.program, "score", "--model", a.gguf]
    answer = lambda *more: json.loads(subprocess.run([*score, *more], capture_output=True, text=True, check=True).stdout)
    tokens = answer("--text", a.text, "--evictions")["tokens"][:a.prompt + a.after]
    ids = torch.tensor([tokens])

    def nll_after(cache, stored=None):
        """-> NLLs of the tokens after the prompt, which attend to the prompt as the cache has it"""
        with torch.no_grad():
            first = model(ids[:, :a.prompt], past_key_values=cache).logits[0, -1:]
            for layer in cache.layers if stored else []:
                layer.keys, layer.values = stored(layer.keys, True), stored(layer.values, False)
            rest = model(ids[:, a.prompt:], past_key_values=cache).logits[0, :-1]
        logits = torch.cat([first, rest]).double()
        return -torch.log_softmax(logits, -1)[torch.arange(a.after), ids[0, a.prompt:]].numpy()

    def of_program(name, file):
        return np.array(answer("--tokens", file, "--policy", "full", "--format", name)["nll"][-a.after:])

    kept = transformers.DynamicCache()
    exact = nll_after(kept)
    for bits in (4, 2):
        def plain(x, by_channel):
            heads = x[0].numpy()
            groups = [np.concatenate([kivi(bits, head[at:at + GROUP], by_channel) for at in range(0, a.prompt, GROUP)]) for head in heads]
            return torch.from_numpy(np.stack(groups))[None]

        cache = transformers.QuantizedCache("quanto", model.config, nbits=bits, axis_key=-1, axis_value=0, q_group_size=GROUP)
        theirs, ours = nll_after(cache), nll_after(transformers.DynamicCache(), plain)
        steps = []
        for of, layer in zip(kept.layers, cache.layers):
            for x, stored, by_channel in ((of.keys, layer._quantized_keys, True), (of.values, layer._quantized_values, False)):
                x = x[:, :, :a.prompt]
                apart = abs(layer._dequantize(stored) - plain(x, by_channel))[0]
                in_groups = x[0].reshape(len(x[0]), -1, GROUP, x.shape[-1]) if by_channel else x[0].reshape(len(x[0]), x.shape[2], -1, GROUP)
                over = 2 if by_channel else 3
                step = (in_groups.amax(over, keepdim=True) - in_groups.amin(over, keepdim=True)) / (2**bits - 1)
                steps.append((apart.reshape(in_groups.shape) / step).numpy())
        apart = np.concatenate([x.reshape(-1) for x in steps])
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps(tokens))
            file.flush()
            program = of_program(f"kivi-{bits}", file.name) - of_program("f32", file.name)
        print(json.dumps({"bits": bits, "mean_f32": exact.mean(), "mean_quanto": theirs.mean(), "mean_plain": ours.mean(),
                          "cost_quanto": (theirs - exact).mean(), "cost_plain": (ours - exact).mean(),
                          "cost_program": program.mean(),
                          "steps_apart_most": float(apart.max()),
                          "share_apart": float((apart > 0.01).mean())}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make")
    own = commands.add_parser("witness")
    for name in ("program", "gguf", "text"):
        own.add_argument(name)
    own.add_argument("--tokens", type=int, default=400)
    own.add_argument("--formats", default=",".join(["f32", *PER_TOKEN, "q8_0/q4_0", "kivi-4", "kivi-2"]))
    own.add_argument("--policies", default="full,tova,h2o,window+4")
    own.add_argument("--size", type=int, default=64)
    own = commands.add_parser("quantized")
    for name in ("program", "gguf", "text"):
        own.add_argument(name)
    own.add_argument("--prompt", type=int, default=1024)
    own.add_argument("--after", type=int, default=96)
    arguments = parser.parse_args()
    make() if arguments.command == "make" else {"witness": witness, "quantized": quantized}[arguments.command](arguments)
