#!/usr/bin/env python3
"""Makes and checks tests/golden: tiny checkpoints, and what scripts/oracle.py says of them.

    python3 scripts/goldens.py make       (numpy) make tests/golden/variants anew
    python3 scripts/goldens.py check      (numpy) recompute every case of tests/golden with the oracle
    python3 scripts/goldens.py torch      (torch, a recent transformers) the full-cache cases, computed by transformers in float64
"""
import json, sys
from pathlib import Path

ROOT = Path(__file__).parent.parent / "tests" / "golden"

TINY = "--layers 2 --heads 4 --vocab 64 --text 120"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
# name -> what random_model.py is given. Seeds are such that no decision is so close that rounding to f32 could turn it
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
    return sorted(p.parent for p in ROOT.rglob("golden.json"))


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


def check():
    import oracle
    for folder in folders():
        cases, worst = json.loads((folder / "golden.json").read_text())["cases"], 0.0
        for c in cases:
            r = oracle.run(folder, tokens(folder), c["policy"], c["size"], c["positions"])
            assert r["survivors"] == c["survivors"], f"{folder}: {c['policy']} {c['size']} {c['positions']}"
            worst = max(worst, apart(r["nll"], c["nll"]))
        print(f"{folder.relative_to(ROOT)}: {len(cases)} cases, survivors equal, NLLs within {worst:.1e}")


def torch_full():
    import torch, transformers
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for folder in folders():
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
        assert not any(loading.values()), f"{folder}: {loading}"
        ids = torch.tensor([tokens(folder)])
        with torch.inference_mode():
            z = model.eval()(ids, use_cache=False).logits[0, :-1]
        nll = torch.nn.functional.cross_entropy(z.double(), ids[0, 1:], reduction="none").tolist()
        full = next(c for c in json.loads((folder / "golden.json").read_text())["cases"] if c["policy"] == "full")
        print(f"{folder.relative_to(ROOT)}: {type(model).__name__}, NLLs within {apart(nll, full['nll']):.1e}")


if __name__ == "__main__":
    {"make": make, "check": check, "torch": torch_full}[sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)]()
