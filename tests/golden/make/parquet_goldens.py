#!/usr/bin/env python3
"""Writes tests/golden/parquet: a column of every type that pyarrow writes, and what a template of lm-evaluation-harness shows of it.

    pip install datasets jinja2 pandas
    python3 tests/golden/make/parquet_goldens.py tests/golden/parquet

`types.json` has for each column of `types.parquet` the text of `{{x}}` in each row, as `datasets` and jinja2 give it. Columns that
are not there have no text or number: tova-bench refuses them where they are used.
"""
import datetime as dt, json, os, sys
from decimal import Decimal as D
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
import datasets, jinja2, pyarrow as pa, pyarrow.parquet as pq

NAN, INF = float("nan"), float("inf")
SHOWN = {
    "dictionary": pa.array(["a", "b", None]).dictionary_encode(),
    "text": pa.array(["x", "größe", ""], pa.large_string()),
    "decimal": pa.array([D("1.50"), D("-0.05"), None], pa.decimal128(10, 2)),
    "whole": pa.array([D("15"), D("-7"), D("0")], pa.decimal128(10, 0)),
    "small": pa.array([D("0.00000012"), D("-0.00000001"), D("0E-8")], pa.decimal128(20, 8)),
    "date": pa.array([dt.date(2024, 1, 31), dt.date(1, 1, 1), dt.date(1969, 12, 31)]),
    "timestamp_s": pa.array([0, -1, 1706700000], pa.timestamp("s")),
    "timestamp_ms": pa.array([1, -1, 1706700000123], pa.timestamp("ms")),
    "timestamp_us": pa.array([1, -1, 1706700000123000], pa.timestamp("us")),
    "timestamp_ns": pa.array([1, -1, 1706700000123000000], pa.timestamp("ns")),
    "timestamp_utc": pa.array([1, -1, 1706700000000000], pa.timestamp("us", "UTC")),
    "time_ms": pa.array([0, 1, 86399999], pa.time32("ms")),
    "time_us": pa.array([0, 1, 86399999999], pa.time64("us")),
    "duration_s": pa.array([0, 90061, -1], pa.duration("s")),
    "duration_us": pa.array([1, 172800000000, -1], pa.duration("us")),
    "duration_ns": pa.array([1, 172800000000000, -1000], pa.duration("ns")),
    "half": pa.array([0.1, 1.5, NAN], pa.float16()),
    "single": pa.array([0.1, INF, -0.0], pa.float32()),
    "double": pa.array([0.1, NAN, -INF]),
    "large": pa.array([2**63, 2**64 - 1, 0], pa.uint64()),
    "list": pa.array([[1, 2], [], None]),
    "fixed": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"b": 1, "a": "x"}, {"b": 2, "a": "y"}, None]),
    "truth": pa.array([True, False, None]),
    "none": pa.nulls(3),
}
REFUSED = {
    "bytes": pa.array([b"a", b"\xff", None]),
    "image": pa.array([{"bytes": b"\x89PNG", "path": "a.png"}] * 3),
    "zone": pa.array([1, 2, 3], pa.timestamp("us", "Europe/Berlin")),
    "dates": pa.array([[dt.date(2024, 1, 31)], [], None]),
    "nested": pa.array([[NAN], [1.0], None]),
}

out = Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
pq.write_table(pa.table(SHOWN | REFUSED), out / "types.parquet")
template = jinja2.Environment().from_string("{{x}}")
shown = {}
for name, column in SHOWN.items():
    one = out / "one.parquet"
    pq.write_table(pa.table({name: column}), one)
    rows = datasets.load_dataset("parquet", data_files={"test": str(one)}, cache_dir=str(out / "cache"))["test"]
    shown[name] = [template.render(x=row[name]) for row in rows]
    one.unlink()
(out / "types.json").write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
