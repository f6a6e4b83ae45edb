#!/usr/bin/env python3
"""Makes and checks tests/golden: tiny checkpoints, and scripts/oracle.py's answers for them.

    python3 scripts/goldens.py make       (numpy) make tests/golden/variants again
    python3 scripts/goldens.py long       (numpy) make tests/golden/long-text again; takes some minutes
    python3 scripts/goldens.py check      (numpy) recompute every case of tests/golden with the oracle
    python3 scripts/goldens.py written    (numpy) make every written.json of tests/golden again; more checkpoint folders can
                                          follow as NAME=FOLDER, with prompts from NAME/prompt.json
    python3 scripts/goldens.py torch      (torch, a recent transformers) compute the full-cache cases with transformers in
                                          float64; the same folders can follow
"""
import json, sys
from pathlib import Path

ROOT = Path(__file__).parent.parent / "tests" / "golden"

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
    # families come from scripts/family_goldens.py: the oracle does not know them
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


def checkpoint_of(folder):
    other = folder / "checkpoint"
    return ROOT / other.read_text().strip() if other.exists() else folder


def check():
    import oracle
    for folder in folders():
        cases, worst = json.loads((folder / "golden.json").read_text())["cases"], 0.0
        for c in cases:
            r = oracle.run(checkpoint_of(folder), tokens(folder), c["policy"], c["size"], c["positions"])
            assert r["survivors"] == c["survivors"], f"{folder}: {c['policy']} {c['size']} {c['positions']}"
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
            r = oracle.run(folder, start[:prompt], policy, size, write=new, one_shot=one_shot, log=True)
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
    {"make": make, "long": long, "check": check, "written": written, "torch": torch_full}[sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)]()
