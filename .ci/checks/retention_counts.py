#!/usr/bin/env python3
"""Recounts what `retention` measured from its eviction logs, independently of the program.

    python .ci/checks/retention_counts.py RESULTS            # a results folder of a sweep with `eviction_log: true`

For every cell it replays the log of each sample step by step, and compares lifetimes by position, layer, class and tag, and
the share of recent tokens, with the cell's rows. Needs numpy and pyarrow.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq


def logs(folder):
    """The pairs of log and tokens, by the names of their samples' files."""
    for tokens in sorted(folder.glob("*.tokens.parquet")):
        yield pq.read_table(folder / tokens.name.replace(".tokens", "")), pq.read_table(tokens)


def walk(log, n, size):
    """Steps each token was there, and kept tokens that Window would keep, for one layer and group."""
    steps, there, recent, kept = np.zeros(n), np.zeros(n, bool), 0, 0
    victim = dict(zip(log["step"], log["victim"], strict=True))
    for step in range(n):
        there[step] = True
        steps += there
        if step in victim:
            assert there[victim[step]], "a token left that was not there"
            there[victim[step]] = False
        assert there.sum() <= size
        if step >= size:
            recent += there[step - size + 1 : step + 1].sum()
            kept += there.sum()
    return steps, recent, kept


def sizes(row, layers):
    """Entries of each layer: the size where the policy holds, and no more than the layer's window."""
    size, exempt = row["cache_size"], row["local_layers"] == "exempt"
    windows = (row.get("windows") or " ".join("-" * layers)).split()
    return [size if window == "-" else int(window) if exempt else min(size, int(window)) for window in windows]


def slice_of(row):
    """The slice as text: `layer:3`, `position:32-63`, `class:digits`; None for all tokens."""
    low, high = row["slice_low"], row["slice_high"]
    value = row["slice_name"] or (low if low == high else f"{low}-{high}")
    return None if row["slice"] is None else f"{row['slice']}:{value}"


def counts(folder, sizes):
    """(metric, group) -> [value, weight], summed over the samples."""
    sums = defaultdict(lambda: np.zeros(2))
    for log, tokens in logs(folder):
        n = tokens.num_rows
        log = {name: log[name].to_numpy() for name in log.column_names}
        classes, tags = tokens["class"].to_pylist(), tokens["tag"].to_pylist()
        for layer, size in enumerate(sizes):
            # Where a window alone bounds a layer, all heads keep the same.
            groups = log["group"][log["layer"] == layer].max(initial=0) + 1
            for group in range(groups):
                own = (log["layer"] == layer) & (log["group"] == group)
                steps, recent, kept = walk({name: log[name][own] for name in ("step", "victim")}, n, size)
                for name in (None, f"layer:{layer}"):
                    sums["lifetime", name] += (steps.sum() / groups, n / groups)
                    if name is None or kept:
                        sums["recent_share", name] += (recent / groups, kept / groups)
                for position in range(n):
                    low = 1 << max(position.bit_length() - 1, 0)
                    place = str(position) if position < 32 else f"{low}-{2 * low - 1}"
                    names = [f"position:{place}", f"class:{classes[position]}"]
                    for name in names + ([f"tag:{tags[position]}"] if tags[position] else []):
                        sums["lifetime", name] += (steps[position] / groups, 1 / groups)
    return sums


def main():
    results = Path(sys.argv[1])
    if not (results / "logs").is_dir():
        sys.exit(f"{results} has no eviction logs: run a sweep of `retention` with `eviction_log: true`")
    worst = 0.0
    for folder in sorted((results / "logs").iterdir()):
        rows = pq.read_table(results / "cells" / f"{folder.name}.parquet").to_pylist()
        measured = defaultdict(lambda: np.zeros(2))
        for row in rows:
            if row["metric"] in ("lifetime", "recent_share"):
                measured[row["metric"], slice_of(row)] += (row["value"], row["weight"])
        layers = len({row["slice_low"] for row in rows if row["metric"] == "lifetime" and row["slice"] == "layer"})
        own = counts(folder, sizes(rows[0], layers))
        if own.keys() != measured.keys():
            sys.exit(f"{folder.name}: other groups: {sorted(map(str, own.keys() ^ measured.keys()))}")
        far = max(abs(own[key] - measured[key]).max() / own[key].max() for key in own)
        worst = max(worst, far)
        share = own["recent_share", None]
        print(f"{folder.name}: {len(own)} numbers, largest relative difference {far:.1e},", end=" ")
        print(f"mean lifetime {np.divide(*own['lifetime', None]):.2f}, recent {share[0] / share[1]:.2%}", flush=True)
    print(f"largest relative difference of all: {worst:.1e}")
    sys.exit(0 if worst < 1e-9 else 1)


if __name__ == "__main__":
    main()
