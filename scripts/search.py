#!/usr/bin/env python3
"""Searches for the formula, on one line, that loses least on a few books.

    python3 scripts/search.py PROGRAM MODEL BOOKS OUT [--arithmetic fast] [--seed 0]

BOOKS is a folder of PG-19's .txt files, of which the last eight are read, MODEL what a sweep has as `source`. Successive halving: 64
formulas drawn from a small grammar on two books, the better half of them on four, of these the better half on eight; then variations
of the best eight in the same way. A formula is judged by its mean excess over the full cache at 64 and 128 entries of 1,536 tokens, after
every token. Every round is a sweep in OUT that `run` can go on with where it was stopped; OUT/search.csv has all rounds.

What is found was chosen on these books: configs/findings/one-line.yaml judges it on the first 24.
"""
import argparse
import csv
import json
import random
import shutil
import subprocess
from pathlib import Path

SIZES = [64, 128]
LENGTH = 1536
FIRST, KEPT = 64, 8


def draw(rng):
    """A formula: how attention is remembered, what it is weighted with, and which entries are safe."""
    decay = rng.choice([0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995])
    memory = rng.choice([f"ema(attention, {decay})"] * 4 + [
        f"ema(attention * attention, {decay})", f"ema(sqrt(attention), {decay})", "sum(attention)", "mean(attention)",
        "window(attention, 64)", "peak(attention, 64)", f"smooth(ema(attention, {decay}), 3)", f"smooth(ema(attention, {decay}), 5)"])
    weight = rng.choice(["", "", " * value_norm", " * value_norm", " * value_norm2", " * sqrt(value_norm)", " * projected_value_norm",
                         " * output_shift", " / key_norm", " * value_norm / key_norm"])
    more = rng.choice(["", "", "", "", f" + {rng.choice([0.001, 0.003, 0.01])} / (1 + age)",
                       f" + {rng.choice([0.3, 1, 3])} * attention{weight}"])
    keep = rng.choice(["16", "25%", "25%", "50%", "50%"])
    return (memory + weight + more, rng.choice(["head", "head", "layer"]), keep, rng.choice([0, 0, 0, 4]))


def vary(rng, formula):
    """The same but for one of its parts."""
    score, scope, keep, first = formula
    for _ in range(100):
        other = draw(rng)
        part = rng.randrange(4)
        varied = tuple(other[at] if at == part else formula[at] for at in range(4))
        if varied != formula:
            return varied
    return formula


def distinct(make, count, known):
    found = []
    while len(found) < count:
        formula = make()
        if formula not in known:
            known.add(formula)
            found.append(formula)
    return found


def name_of(formula, names):
    return names.setdefault(formula, f"f{len(names)}")


def measure(arguments, formulas, names, books):
    """The mean excess of each formula in nats, over sizes, on the first books."""
    folder = arguments.out / f"{books}-books-{len(formulas)}"
    sweep = arguments.out / f"{folder.name}.yaml"
    define = {}
    for formula in formulas:
        score, scope, keep, first = formula
        define[name_of(formula, names)] = {"score": score, "scope": scope, "keep_recent": int(keep) if keep.isdigit() else keep,
                                           "keep_first": first}
    text = {
        "models": [{"source": arguments.model, "arithmetic": arguments.arithmetic}], "define": define,
        "policies": ["full", *define], "cache_sizes": SIZES,
        "tasks": [{"perplexity": {"dataset": str(arguments.books), "length": LENGTH, "books": books, "chunks_per_book": 1}}],
    }
    sweep.write_text(json.dumps(text, indent=1))
    # One folder for all rounds: what is measured of a formula is not measured again.
    results = arguments.out / "results"
    done = subprocess.run([arguments.program, "run", sweep, "--results", results, "--no-report"], stdout=subprocess.DEVNULL)
    # Formulas that no cache of such a size can have are left out.
    if done.returncode not in (0, 1):
        raise SystemExit(f"{sweep} failed with {done.returncode}")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([arguments.program, "report", results, "-o", folder, "--format", "csv"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    excess = {}
    with (folder / "report.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            if line["metric"] == "nll" and not line["slice"] and line["complete"] == "true" and line["minus_full_nats"]:
                excess.setdefault(line["policy"], {})[line["cache_size"]] = float(line["minus_full_nats"])
    shutil.rmtree(folder)
    whole = [formula for formula in formulas if len(excess.get(names[formula], {})) == len(SIZES)]
    return {formula: sum(excess[names[formula]].values()) / len(SIZES) for formula in whole}


def halve(arguments, formulas, names, log):
    """Successive halving; the last formulas with their excess on eight books, the best first."""
    for books in (2, 4, 8):
        excess = measure(arguments, formulas, names, books)
        ranked = sorted(excess, key=excess.get)
        for formula in ranked:
            score, scope, keep, first = formula
            log.writerow([names[formula], score, scope, keep, first, books, f"{excess[formula]:.5f}"])
        best = ranked[0]
        print(f"{len(formulas)} formulas on {books} books: {excess[best]:.4f} nats for {best[0]} ({best[1]}, newest {best[2]} kept)", flush=True)
        formulas = ranked[: len(ranked) // 2] if books < 8 else ranked
    return [(formula, excess[formula]) for formula in formulas]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("model")
    parser.add_argument("books", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arithmetic", default="f32")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    training = arguments.out / "books"
    training.mkdir(parents=True, exist_ok=True)
    for book in sorted(arguments.books.glob("*.txt"))[-8:]:
        shutil.copyfile(book, training / book.name)
    arguments.books = training.resolve()
    rng = random.Random(arguments.seed)
    # What is known, to be compared with: the rules of TOVA, H2O and A2SF, and the best of docs/policies.md.
    known = [("attention", "layer", "0", 0), ("sum(attention)", "head", "50%", 0), ("ema(attention, 0.95)", "head", "16", 0),
             ("ema(attention, 0.99) * value_norm", "head", "50%", 0)]
    seen, names = set(known), {}
    with (arguments.out / "search.csv").open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["name", "score", "scope", "keep_recent", "keep_first", "books", "excess"])
        first = known + distinct(lambda: draw(rng), FIRST - len(known), seen)
        best = halve(arguments, first, names, log)[:KEPT]
        parents = [formula for formula, _ in best]
        varied = distinct(lambda: vary(rng, rng.choice(parents)), FIRST // 2, seen)
        best = sorted(best + halve(arguments, varied, names, log), key=lambda pair: pair[1])
    print("\nexcess  formula")
    for (score, scope, keep, first), excess in best[:KEPT]:
        print(f"{excess:.4f}  {{score: \"{score}\", scope: {scope}, keep_recent: {keep}, keep_first: {first}}}")


if __name__ == "__main__":
    main()
