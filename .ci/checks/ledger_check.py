#!/usr/bin/env python3
"""Computes every point of a report again, from the rows alone and by the words of results/README.md.

    tova-bench report RESULTS                       # writes RESULTS/report.csv
    python .ci/checks/ledger_check.py RESULTS...               # compares; --report CSV where it was written elsewhere
    python .ci/checks/ledger_check.py --queries RESULTS...     # also runs the queries of results/README.md

The rows are read by pyarrow, DuckDB, pandas and polars, which must agree on every value, and on the sums of every cell.
Then every value, difference to full, chance, weight and number of samples of report.csv is computed from the rows, without
a line of the program's code, and must be equal to 1e-12 of its size (a difference to full: of the numbers subtracted).
So are the intervals of report.csv and pairs.csv, and the p-values and verdicts of pairs.csv, where a number has 4 to 12 clusters, to 1e-9:
with more, the program draws subsets and signs by chance. The largest cluster of a pair and the ranges without each are of any number.
With --queries every DuckDB query must give the table that the polars one below it gives, and rows on at least one of the
ledgers. Exit code 1 where anything differs. Needs pyarrow, duckdb, numpy, pandas and polars.
"""

import argparse
import csv
import math
import re
import sys
from collections import defaultdict
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

TOLERANCE = 1e-12
# Of intervals and p-values, which are made of many sums.
LOOSELY = 1e-9
README = Path(__file__).resolve().parent.parent.parent / "results" / "README.md"
SETTING = (
    "task dataset model model_revision dtype arithmetic length stride bos tail generation compare_to_full selection data seed prefill engine device"
).split()
SLICE = "slice slice_name slice_low slice_high slice_second".split()
READ = [*SETTING, *"cell policy cache_size cache_share schedule score positions sample cluster metric value weight".split(), *SLICE]

PERPLEXITIES = {"nll", "nll_word", "nll_written"}
RATES = {"decode", "decode_batch", "prefill"}
SHARES = {
    "top1_agreement", "evicted_mass", "recall", "f1", "found", "exact_match", "f1_ascii", "rouge1", "rouge2", "rougeL",
    "rouge_geo_instance", "distinct_1", "distinct_2", "distinct_3", "repetition_4", "judge_win", "judge_tie", "judge_loss",
    "judge_unreadable", "verdict", "recent_share",
}  # fmt: skip
# What compares with the full cache by itself, or means nothing beside it.
NO_DIFFERENCE = {
    "kl_to_full", "top1_agreement", "evicted_mass", "judge_win", "judge_tie", "judge_loss", "judge_unreadable", "verdict",
    "recent_share", "lifetime",
}  # fmt: skip
# What one policy can be better at than another, and which way.
HIGHER = {"top1_agreement", "recall", "f1", "found", "exact_match", "f1_ascii", "rouge", *"rouge1 rouge2 rougeL rouge_geo_instance".split()}
LOWER = {"nll", "nll_word", "nll_written", "kl_to_full", "evicted_mass"}
TABLES = {"kept_until", "lifetime_by_token"}
ROUGE = ["rouge1", "rouge2", "rougeL"]
CHANCE = {"recall": "recall_chance", "f1": "f1_trivial", "rouge": "rouge_trivial"} | {m: f"{m}_trivial" for m in ROUGE}


# --- reading


def files_of(results):
    """The rows of the sweep that was run last, which its report shows."""
    file = results / "rows.parquet"
    if not file.is_file():
        sys.exit(f"{results} holds no results: it has no rows.parquet")
    return [str(file)]


def by_pyarrow(files):
    table = pa.concat_tables(pq.read_table(file, columns=READ) for file in files)
    grouped = table.group_by(["cell", "metric", "slice"]).aggregate([("value", "sum"), ("weight", "sum"), ("value", "count")])
    sums = grouped.select(["cell", "metric", "slice", "value_sum", "weight_sum", "value_count"])
    return table.to_pydict(), zip(*sums.to_pydict().values(), strict=True)


def by_duckdb(files):
    # In the order of the files, as DuckDB reads them side by side.
    columns = ", ".join(f'"{column}"' for column in READ)
    rows = f"SELECT {columns} FROM read_parquet(?, filename = true, file_row_number = true) ORDER BY filename, file_row_number"
    sums = 'SELECT cell, metric, slice, sum(value), sum(weight), count(*) FROM read_parquet(?) GROUP BY ALL'
    rows = duckdb.sql(rows, params=[files]).to_arrow_table().to_pydict()
    return rows, duckdb.execute(sums, [files]).fetchall()


def by_pandas(files):
    # With numpy's own types a missing size would make floats of sizes.
    table = pd.concat((pd.read_parquet(file, columns=READ, dtype_backend="numpy_nullable") for file in files), ignore_index=True)
    grouped = table.groupby(["cell", "metric", "slice"], dropna=False)
    sums = grouped.agg(value=("value", "sum"), weight=("weight", "sum"), rows=("value", "size")).reset_index()

    def plain(frame, column):
        absent = float("nan") if column in ("value", "weight") else None
        return [absent if pd.isna(value) else value for value in frame[column].tolist()]

    return {column: plain(table, column) for column in READ}, zip(*(plain(sums, column) for column in sums.columns), strict=True)


def by_polars(files):
    table = pl.scan_parquet(files).select(READ).collect()
    grouped = table.group_by("cell", "metric", "slice").agg(pl.col("value").sum(), pl.col("weight").sum(), rows=pl.len())
    return table.to_dict(as_series=False), grouped.rows()


READERS = {"pyarrow": by_pyarrow, "duckdb": by_duckdb, "pandas": by_pandas, "polars": by_polars}


def same(a, b):
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def apart(a, b, scale=None):
    """How far two numbers are apart, relative to their size."""
    if same(a, b):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b), scale or 0.0)


def slice_text(kind, name, low, high, second):
    """A slice as report.csv has it: `distance:16-31`, `length:512 depth:25`."""
    if kind is None:
        return None
    value = name if name is not None else low if low == high else f"{low}-{high}"
    if second is None:
        return f"{kind}:{value}"
    first, other = kind.split(" and ")
    return f"{first}:{value} {other}:{second}"


def read(results):
    """The rows, after all four readers agreed on them; and what is wrong."""
    files, wrong = files_of(results), []
    rows, expected, worst = None, None, 0.0
    for name, reader in READERS.items():
        columns, sums = reader(files)
        if rows is None:
            rows = columns
            exact = defaultdict(lambda: ([], []))
            for cell, metric, group, value, weight in zip(*(rows[c] for c in ("cell", "metric", "slice", "value", "weight")), strict=True):
                exact[cell, metric, group][0].append(value)
                exact[cell, metric, group][1].append(weight)
            expected = {key: (total(values), total(weights), len(values)) for key, (values, weights) in exact.items()}
        for column in READ:
            pairs = zip(rows[column], columns[column], strict=True)
            differing = sum(not same(a, b) or type(a) is not type(b) for a, b in pairs)
            if differing:
                wrong.append(f"{name} reads {differing} values of `{column}` otherwise than pyarrow")
        seen = {(cell, metric, group): numbers for cell, metric, group, *numbers in sums}
        if seen.keys() != expected.keys():
            wrong.append(f"{name} has other groups of rows: {len(seen)} and not {len(expected)}")
            continue
        for key, (value, weight, count) in seen.items():
            off = max(apart(value, expected[key][0]), apart(weight, expected[key][1]))
            worst = max(worst, off)
            if count != expected[key][2] or off > TOLERANCE:
                wrong.append(f"{name} sums {key} to {value}, {weight} over {count} rows, not {expected[key]}")
    print(f"  {len(set(rows['cell']))} cells, {len(rows['cell'])} rows; sums of {len(expected)} groups by four readers: largest difference {worst:.1e}")
    rows["slice"] = [slice_text(*parts) for parts in zip(*(rows[column] for column in SLICE), strict=True)]
    return [dict(zip(READ, row, strict=True)) for row in zip(*(rows[column] for column in READ), strict=True)], wrong


def check_columns(results):
    """Whether the files have the columns of results/README.md: in order, of the types it says, absent only where it says `?`."""
    kinds = {"text": "string", "u32": "uint32", "u64": "uint64", "f64": "double", "bool": "bool"}
    table = README.read_text(encoding="utf-8").split("| column | type | unit | meaning |\n", 1)[1].split("\n\n", 1)[0]
    said = [line.split("|")[1:3] for line in table.splitlines()[1:]]
    said = [(name.strip(" `"), kind.strip()) for name, kind in said]
    wrong = set()
    for file in files_of(results):
        rows = pq.read_table(file)
        if rows.column_names != [name for name, _ in said]:
            wrong.add(f"{results} has columns {rows.column_names}")
            continue
        for (name, kind), field in zip(said, rows.schema, strict=True):
            found = str(field.type).removeprefix("large_").removesuffix("_view")
            if found != kinds[kind.removesuffix("?")]:
                wrong.add(f"`{name}` is of type {found} and not {kind}")
            if rows[name].null_count and not kind.endswith("?"):
                wrong.add(f"`{name}` is absent in {file}, and README does not say that it may be")
    return sorted(wrong)


# --- pooling


def total(numbers):
    numbers = list(numbers)
    return math.fsum(numbers) if all(map(math.isfinite, numbers)) else sum(numbers)


class Cell:
    """What one cell says of one metric: samples to (cluster, values, weight)."""

    def __init__(self):
        self.samples, self.score = {}, ""

    def of(self, samples):
        cell = Cell()
        cell.samples = {sample: self.samples[sample] for sample in self.samples if sample in samples}
        return cell


def quantity(metric, cell):
    """The pooled number in the report's terms; None where nothing was scored."""
    marks = cell.samples.values()
    weight = total(mark[2] for mark in marks)
    if not weight > 0:
        return None
    means = [total(values) / weight for values in zip(*(mark[1] for mark in marks), strict=True)]
    if metric in PERPLEXITIES:
        return math.exp(means[0]) if means[0] < 700 else math.inf
    if metric in RATES:
        return 1 / means[0]
    if metric.removesuffix("_trivial") == "rouge":
        return 100 * math.prod(means) ** (1 / 3)
    if metric in SHARES or metric in CHANCE.values():
        return 100 * means[0]
    return means[0]


def shared(row):
    return row["policy"] in ("full", "truncate")


def gather(rows):
    """(setting, metric, group) -> (policy, size) -> Cell. `full` and `truncate` notice no way of filling a cache and are not
    compared with full, so they stand in every setting that differs from theirs in these alone."""
    homes = defaultdict(set)
    aside = {SETTING.index("prefill"), SETTING.index("compare_to_full")}

    def setting_of(row):
        own = [row[column] for column in SETTING]
        own[SETTING.index("generation")] = row["generation"] or ""
        if row["task"] != "timing":
            own[SETTING.index("device")] = ""
        if not re.search(r"temperature=(?!0( |$))", row["generation"] or ""):
            own[SETTING.index("seed")] = 0
        return tuple(own)

    def without(setting):
        return tuple(value for at, value in enumerate(setting) if at not in aside)

    settings = [setting_of(row) for row in rows]
    for row, setting in zip(rows, settings, strict=True):
        if not shared(row):
            homes[without(setting)].add(setting)
    panels = defaultdict(lambda: defaultdict(Cell))
    for row, setting in zip(rows, settings, strict=True):
        label = row["policy"]
        if not shared(row):
            scheduled = row["schedule"] not in (None, "1")
            label += f"@{row['schedule']}" * scheduled + f"@{row['positions']}" * (row["positions"] != "absolute")
        # Rows give the full cache its length; report.csv leaves its size empty.
        size = None if row["policy"] == "full" else row["cache_size"]
        if size is not None and row["cache_share"] is not None:
            size = f"{100 * row['cache_share']:g}%"
        place = (label, size)
        for home in (homes.get(without(setting)) if shared(row) else None) or [setting]:
            cell = panels[home, row["metric"], row["slice"]][place]
            cell.score = row["score"] or ""
            # A sample that comes twice counts once.
            cell.samples.setdefault(row["sample"], (row["cluster"], (row["value"],), row["weight"]))
    return panels


def together(panels, whole, parts):
    """Adds a metric made of three, from the cells and samples that have all three."""
    for setting, metric, group in [key for key in panels if key[1] == parts[0]]:
        three = [panels.get((setting, part, group)) for part in parts]
        if None in three:
            continue
        for place, first in three[0].items():
            others = [other.get(place) for other in three[1:]]
            if None in others:
                continue
            cell = panels[setting, whole, group][place]
            for sample, (cluster, values, weight) in first.samples.items():
                if all(sample in other.samples for other in others):
                    beside = tuple(other.samples[sample][1][0] for other in others)
                    cell.samples[sample] = (cluster, values + beside, weight)


def running(panels):
    """Of pieces of long texts the averages over all tokens up to the end of each, over the samples that reach it."""
    of_one = defaultdict(list)
    for setting, metric, group in panels:
        piece = re.fullmatch(r"piece:(\d+)-(\d+)", group or "")
        if piece:
            of_one[setting, metric].append((int(piece[1]), int(piece[2]), group))
    averages = {}
    for (setting, metric), pieces in of_one.items():
        sums = defaultdict(Cell)
        for _, last, group in sorted(pieces):
            reached = {}
            for place, cell in panels[setting, metric, group].items():
                so_far = sums[place]
                for sample, (cluster, (value,), weight) in cell.samples.items():
                    _, (before,), weighed = so_far.samples.get(sample, (None, (0.0,), 0.0))
                    so_far.samples[sample] = (cluster, (before + value,), weighed + weight)
                reached[place] = so_far.of(cell.samples)
            end = min(last + 1, setting[SETTING.index("length")])
            averages[setting, metric, f"running:{end}"] = reached
    return averages


# --- intervals and p-values


def clusters_of(cell):
    """What each cluster adds: cluster -> sums of the values, and of the weight."""
    sums = defaultdict(lambda: 0.0)
    for cluster, values, weight in cell.samples.values():
        sums[cluster] = sums[cluster] + np.array([*values, weight])
    return {cluster: numbers for cluster, numbers in sums.items() if numbers[-1] > 0}


def over_subsets(metric, sums):
    """The number in the report's terms over each subset of the clusters but the empty one."""
    subsets = (np.arange(1, 2 ** len(sums))[:, None] >> np.arange(len(sums))) & 1
    pooled = subsets @ np.array(sums)
    means = pooled[:, :-1] / pooled[:, -1:]
    if metric in PERPLEXITIES:
        return np.exp(means[:, 0])
    if metric in RATES:
        return 1 / means[:, 0]
    if metric == "rouge":
        return 100 * np.cbrt(means.prod(axis=1))
    return (100 if metric in SHARES else 1) * means[:, 0]


def interval(values):
    """What is left without 2 % of the values at either end; between two values in proportion."""
    values = np.sort(values)
    place = max(0.02 * (len(values) + 1), 1) - 1
    low, high = np.interp([place, len(values) - 1 - place], np.arange(len(values)), values)
    # An end beside zero excludes it only where the subsets on both sides of the end have one sign.
    low = min(low, 0.0) if values[math.floor(place)] <= 0 else low
    high = max(high, 0.0) if values[math.ceil(len(values) - 1 - place)] >= 0 else high
    return (float(low), float(high)) if np.isfinite([low, high]).all() else (None, None)


def interval_of(metric, cell):
    """None where there are too few clusters; nothing to compare where there are too many."""
    sums = list(clusters_of(cell).values())
    if len(sums) > 12:
        return {}
    low, high = interval(over_subsets(metric, sums)) if len(sums) >= 4 else (None, None)
    return {"interval_low": low, "interval_high": high}


def interval_of_difference(metric, ours, theirs, name, nats):
    """The same of a difference, over the samples both have."""
    one, other = (clusters_of(cell) for cell in (ours, theirs))
    if one.keys() != other.keys() or len(one) > 12:
        return {}
    ends = {f"{name}_low": None, f"{name}_high": None, f"{nats}_low": None, f"{nats}_high": None}
    if len(one) >= 4:
        first, second = (over_subsets(metric, [of[cluster] for cluster in one]) for of in (one, other))
        ends[f"{name}_low"], ends[f"{name}_high"] = interval(first - second)
        if metric in PERPLEXITIES:
            ends[f"{nats}_low"], ends[f"{nats}_high"] = interval(np.log(first) - np.log(second))
    return ends


def losses(metric, cell):
    """What is worse is more, in nats of a perplexity: the number, and over each subset of the clusters."""
    sums = clusters_of(cell)
    values = np.array([quantity(metric, cell), *over_subsets(metric, [sums[cluster] for cluster in sorted(sums)])])
    if metric in PERPLEXITIES:
        return np.log(values)
    return -values if metric in HIGHER else values


def ways(metric, places, samples):
    """Of each place the share of the way from random eviction to the best that knows the future, with its interval."""
    found = {}
    clusters = {mark[0] for cell in places.values() for mark in cell.samples.values()}
    if metric not in HIGHER | LOWER or len(clusters) > 12:
        return found
    whole = {place: losses(metric, cell) for place, cell in places.items() if cell.samples.keys() == samples}
    for policy, size in whole:
        at_size = {place: loss for place, loss in whole.items() if place[1] == size and size is not None}
        floors = [loss for place, loss in at_size.items() if places[place].score == "random"]
        ceilings = [loss for place, loss in at_size.items() if "future_attention" in places[place].score]
        if policy in ("full", "truncate") or not floors or not ceilings:
            continue
        floor, ceiling = max(floors, key=lambda loss: loss[0]), min(ceilings, key=lambda loss: loss[0])
        apart = interval(floor[1:] - ceiling[1:])[0] if len(clusters) >= 4 else floor[0] - ceiling[0]
        if apart > 0:
            share = (floor - at_size[policy, size]) / (floor - ceiling)
            low, high = interval(share[1:]) if len(clusters) >= 4 else (None, None)
            found[policy, size] = {"to_ceiling": share[0], "to_ceiling_low": low, "to_ceiling_high": high}
    return found


def means_of_clusters(metric, cell, clusters):
    """The number of each cluster by itself in nats or points; None of one that the cell does not weigh."""
    sums = clusters_of(cell)

    def mean(numbers):
        means = numbers[:-1] / numbers[-1]
        return float(means[0] if metric in PERPLEXITIES else over_subsets(metric, [numbers])[0])

    return [mean(sums[cluster]) if cluster in sums else None for cluster in clusters]


def differences(metric, ours, theirs, clusters):
    """Of the means of each cluster; 0 where they differ by rounding alone, or one has none."""
    found = []
    for own, other in zip(*(means_of_clusters(metric, cell, clusters) for cell in (ours, theirs)), strict=True):
        alike = own is None or other is None or abs(own - other) <= 1e-12 * max(abs(own), abs(other))
        found.append(0.0 if alike else own - other)
    return np.array(found)


def winsorised(numbers):
    """What is beyond 2.5 times the median size, of the numbers that are not zero, is as far as that."""
    most = 2.5 * np.median(np.abs(numbers[numbers != 0]))
    return np.clip(numbers, -most, most)


def p_values(family):
    """Of each comparison, alone and among all: how many flips of the clusters' signs are as far from zero."""
    parts = np.array(family)
    signs = 1 - 2 * ((np.arange(2 ** parts.shape[1])[:, None] >> np.arange(parts.shape[1])) & 1)
    distances = np.abs(signs @ parts.T) / np.sqrt((parts**2).sum(axis=1))
    measured = distances[0] - 1e-9
    own, adjusted = (distances >= measured).mean(axis=0), (distances.max(axis=1)[:, None] >= measured).mean(axis=0)
    return [{"p": float(p), "p_adjusted": float(all_p)} for p, all_p in zip(own, adjusted, strict=True)]


def verdict_of(metric, numbers, lean):
    """The word for the first policy: its own interval and the means of its clusters must say the same."""
    ends = [numbers.get("difference_low"), numbers.get("difference_high")]
    side = 0 if None in ends else (ends[0] > 0) - (ends[1] < 0)
    if metric not in HIGHER | LOWER:
        return None
    if numbers["p_adjusted"] is None or numbers["p_adjusted"] > 0.05 or side * lean <= 0:
        return "not told apart"
    return "better" if (side > 0) == (metric in HIGHER) else "worse"


def influence(metric, ours, theirs):
    """The share of the cluster that carries most of a difference, and the least and greatest difference without a cluster."""
    one, other = (clusters_of(cell) for cell in (ours, theirs))
    names = sorted(one.keys() | other.keys())
    if one.keys() != other.keys() or len(names) < 2:
        return {}

    def pooled(of, names):
        return over_subsets(metric, [sum(of[name] for name in names)])[0]

    def nats(of, names):
        return np.log(pooled(of, names))

    difference, size = pooled(one, names) - pooled(other, names), max(abs(pooled(one, names)), abs(pooled(other, names)))
    if abs(difference) <= 1e-12 * size:
        return {"largest_share": None, "left_out_low": None, "left_out_high": None}
    left_out = {"left_out": pooled} | ({"nats_left_out": nats} if metric in PERPLEXITIES else {})
    found = {}
    for name, number in left_out.items():
        without = [number(one, rest) - number(other, rest) for rest in ([n for n in names if n != name] for name in names)]
        found |= {f"{name}_low": float(min(without)), f"{name}_high": float(max(without))}
    if metric == "rouge":
        # To first order only.
        return found
    weights = [sum(of[name][-1] for name in names) for of in (one, other)]
    means = [sum(of[name][0] for name in names) / weight for of, weight in zip((one, other), weights, strict=True)]
    middle = sum(means) / 2
    adds = [[(of[name][0] - middle * of[name][-1]) / weight for name in names] for of, weight in zip((one, other), weights, strict=True)]
    parts = [own - theirs for own, theirs in zip(*adds, strict=True)]
    # A sum of nothing but rounding has no shares.
    if abs(sum(parts)) > 1e-9 * max(map(abs, means)):
        found["largest_share"] = max(part / sum(parts) for part in parts)
    return found


def pairs(rows):
    """Every two policies at a size: key -> numbers."""
    panels = gather(rows)
    together(panels, "rouge", ROUGE)
    found = {}
    for (setting, metric, group), places in panels.items():
        is_shown = group is None and not metric.endswith(("_chance", "_trivial")) and metric not in TABLES
        if not is_shown or setting[SETTING.index("task")] == "timing":
            continue
        clusters = sorted({mark[0] for cell in places.values() for mark in cell.samples.values()})
        families = defaultdict(dict)
        for (policy, size), cell in places.items():
            for (against, same), other in places.items():
                both = cell.samples.keys() & other.samples.keys()
                if size is None or same != size or policy == against or not both:
                    continue
                ours, theirs = cell.of(both), other.of(both)
                # The report has one order of the two.
                key = (*setting, metric, policy, against, size)
                found[key] = interval_of_difference(metric, ours, theirs, "difference", "nats")
                found[key] |= influence(metric, ours, theirs)
                if len(clusters) <= 12:
                    found[key] |= {"p": None, "p_adjusted": None}
                    parts = differences(metric, ours, theirs, clusters)
                    if np.isfinite(parts).all() and parts.any():
                        families[size][key] = winsorised(parts)
                    elif metric in HIGHER | LOWER and np.isfinite(parts).all():
                        found[key]["verdict"] = "equal"
        # The pairs of one size are one family.
        for family in families.values():
            for (key, limited), p in zip(family.items(), p_values(list(family.values())), strict=True):
                found[key] |= p
                if "difference_low" in found[key]:
                    found[key]["verdict"] = verdict_of(metric, found[key], limited.sum())
    return found


def compare_pairs(rows, path):
    wrong, worst, numbers, computed = [], 0.0, 0, pairs(rows)
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        key = (*setting_in(line), line["metric"], line["policy"], line["against"], size_in(line))
        if key not in computed:
            wrong.append(f"pairs.csv has a pair that the ledger has not: {key}")
        for name, number in computed.get(key, {}).items():
            # The interval's ends have short names there.
            written = line[name.removeprefix("difference_")]
            if (number is None) != (written == "") or (isinstance(number, str) and number != written):
                wrong.append(f"{name} of {key} is {number} and not {written!r}")
            elif number is not None:
                numbers += 1
                off = 0.0 if isinstance(number, str) else abs(number - float(written)) / max(abs(number), 1.0)
                worst = max(worst, off)
                if off > LOOSELY:
                    wrong.append(f"{name} of {key} is {number!r} and not {written!r}")
    print(f"  {len(lines)} pairs of {path}, {numbers} numbers: largest difference {worst:.1e}")
    return wrong


def points(rows):
    """Every point that a report has: key -> numbers."""
    panels = gather(rows)
    together(panels, "rouge", ROUGE)
    together(panels, "rouge_trivial", [f"{metric}_trivial" for metric in ROUGE])
    shown = {
        key: places
        for key, places in panels.items()
        if not key[1].endswith(("_chance", "_trivial")) and key[1] not in TABLES and not (key[2] or "").startswith("piece:")
    }
    found = {}
    for (setting, metric, group), places in (shown | running(panels)).items():
        chosen = places
        full = chosen.get(("full", None))
        samples = {sample for cell in chosen.values() for sample in cell.samples}
        chance = None
        guesses = panels.get((setting, CHANCE.get(metric), group), {})
        if guesses and not (group or "").startswith("running:"):
            # The same for every policy; the one that covers most speaks for all, the last of equals.
            fullest = max(enumerate(guesses.values()), key=lambda one: (len(one[1].samples), one[0]))[1]
            chance = quantity(CHANCE[metric], fullest)
        shares = ways(metric, chosen, samples)
        for (policy, size), cell in chosen.items():
            value = quantity(metric, cell)
            if value is None:
                continue
            minus, scale, to_full = None, 0.0, {}
            if full and policy != "full" and metric not in NO_DIFFERENCE:
                ours = quantity(metric, cell.of(full.samples))
                theirs = quantity(metric, full.of(cell.samples))
                if ours is not None and theirs is not None:
                    minus, scale = ours - theirs, max(abs(ours), abs(theirs))
                    sides = cell.of(full.samples), full.of(cell.samples)
                    to_full = interval_of_difference(metric, *sides, "minus_full", "minus_full_nats")
            weights = defaultdict(float)
            for cluster, _, weight in cell.samples.values():
                weights[cluster] += weight
            found[(*setting, metric, group or "", policy, size)] = {
                "value": (value, abs(value)),
                "minus_full": (minus, scale),
                **{name: (end, None) for name, end in interval_of(metric, cell).items()},
                **{name: (end, None) for name, end in to_full.items()},
                **{name: (end, None) for name, end in shares.get((policy, size), {}).items()},
                "chance": (chance, abs(chance or 0.0)),
                "weight": (total(mark[2] for mark in cell.samples.values()), 0.0),
                "samples": (float(len(cell.samples)), 0.0),
                "samples_expected": (float(len(samples)), 0.0),
                "clusters": (float(sum(weight > 0 for weight in weights.values())), 0.0),
            }
    return found


def setting_in(line):
    kinds = {name: int for name in ("length", "stride", "seed", "engine")}
    kinds |= {name: lambda text: text == "true" for name in ("bos", "compare_to_full")}
    return [kinds.get(column, str)(line[column]) for column in SETTING]


def size_in(line):
    """Entries, or a share such as 25%; None for the full cache."""
    size = line["cache_size"]
    return None if not size else size if size.endswith("%") else int(size)


def in_report(path):
    """The points of report.csv, under the same keys."""
    csv.field_size_limit(1 << 30)
    found = {}
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            setting = setting_in(line)
            key = (*setting, line["metric"], line["slice"], line["policy"], size_in(line))
            if key in found:
                sys.exit(f"{path} has a point twice: {key}")
            found[key] = line
    return found


def compare(rows, path):
    wrong, worst, largest, numbers = [], 0.0, None, 0
    ours, theirs = points(rows), in_report(path)
    for key in theirs.keys() - ours.keys():
        wrong.append(f"the report has a point that the ledger has not: {key}")
    for key in ours.keys() - theirs.keys():
        wrong.append(f"the ledger has a point that the report has not: {key}")
    for key in ours.keys() & theirs.keys():
        for name, (number, scale) in ours[key].items():
            written = theirs[key][name]
            if (number is None) != (written == ""):
                wrong.append(f"{name} of {key} is {number} and not {written!r}")
                continue
            if number is None:
                continue
            numbers += 1
            if scale is None:
                # The end of an interval, near zero of a size that others tell.
                off = abs(number - float(written)) / max(abs(number), 1.0)
                if off > LOOSELY:
                    wrong.append(f"{name} of {key} is {number!r} and not {written}")
                continue
            off = apart(number, float(written), scale)
            if off > worst:
                worst, largest = off, (name, key[-4:])
            if off > TOLERANCE:
                wrong.append(f"{name} of {key} is {number!r} and not {written} (off by {off:.1e})")
    print(f"  {len(theirs)} points of {path}, {numbers} numbers: largest difference {worst:.1e} {largest or ''}")
    return wrong


# --- the queries of results/README.md


def blocks():
    """(heading, language, code) of each query."""
    found, heading, language, lines, before = [], "", None, [], ""
    queries = README.read_text(encoding="utf-8").split("\n## Queries\n", 1)[1]
    for line in queries.splitlines():
        if language is None and line.startswith("```"):
            language, lines = line[3:], []
        elif line == "```":
            found.append((heading, language, "\n".join(lines)))
            language = None
        elif language is not None:
            lines.append(line)
        elif line and not before:
            heading = line.removesuffix(":")
        before = line
    return found


def run_query(language, code, results):
    """The table a query prints, as polars has it."""
    code = re.sub(r"results/[a-z0-9-]+/rows\.parquet", f"{results.resolve()}/rows.parquet", code)
    if language == "sql":
        return pl.DataFrame(duckdb.sql(code).to_arrow_table())
    printed = []
    exec(compile(code, str(README), "exec"), {"print": printed.append})
    (table,) = printed
    return table


def rows_of(table):
    def plain(value):
        return value.to_list() if isinstance(value, pl.Series) else value

    return [tuple(plain(value) for value in row) for row in table.rows()]


def alike(a, b):
    if len(a) != len(b):
        return False
    for left, right in zip(a, b, strict=True):
        for x, y in zip(left, right, strict=True):
            if isinstance(x, float) and isinstance(y, float):
                # Differences of perplexities lose digits that both numbers have.
                if apart(x, y, scale=1.0) > 1e-11:
                    return False
            elif x != y:
                return False
    return True


def check_queries(ledgers):
    wrong, seen = [], blocks()
    languages = [language for _, language, _ in seen]
    if not seen or languages != ["sql", "python"] * (len(seen) // 2):
        return [f"{README}: queries come in pairs, for DuckDB and for polars; there are {languages}"]
    for (heading, _, sql), (_, _, python) in zip(seen[::2], seen[1::2], strict=True):
        counts = []
        for results in ledgers:
            ours, theirs = run_query("sql", sql, results), run_query("python", python, results)
            counts.append(ours.height)
            if ours.columns != theirs.columns:
                wrong.append(f"{heading}: DuckDB has {ours.columns}, polars {theirs.columns}")
            elif not alike(rows_of(ours), rows_of(theirs)):
                wrong.append(f"{heading}: DuckDB and polars give different tables of {results}")
        print(f"  {heading}: {', '.join(map(str, counts))} rows")
        if not any(counts):
            wrong.append(f"{heading}: no rows in any ledger")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--report", type=Path, help="report.csv, where it is not in the results folder")
    parser.add_argument("--queries", action="store_true", help="also run the queries of results/README.md")
    arguments = parser.parse_args()
    if arguments.report and len(arguments.results) > 1:
        parser.error("--report is of one results folder")
    wrong = []
    for results in arguments.results:
        print(results)
        report = arguments.report or results / "report.csv"
        if not report.is_file():
            sys.exit(f"{report} is not there: run `tova-bench report {results}` first")
        rows, here = read(results)
        wrong += here + check_columns(results) + compare(rows, report)
        wrong += compare_pairs(rows, report.with_name("pairs.csv"))
    if arguments.queries:
        print(f"queries of {README.name}")
        wrong += check_queries(arguments.results)
    for line in wrong[:20]:
        print(f"WRONG: {line}")
    if len(wrong) > 20:
        print(f"and {len(wrong) - 20} more")
    print("all agrees" if not wrong else f"{len(wrong)} differences")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
