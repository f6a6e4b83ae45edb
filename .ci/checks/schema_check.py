#!/usr/bin/env python3
"""Checks the sweep schema with an independent validator, on the committed sweeps and the documents of its tests.

    python .ci/checks/schema_check.py                          # the committed configs/sweep.schema.json
    tova-bench schema | python .ci/checks/schema_check.py -    # or the one printed
    python .ci/checks/schema_check.py SCHEMA SWEEP.yaml...     # also these sweeps

The schema must be valid draft 07; every sweep under configs/ and every good document of
tests/sweeps/examples.yaml must pass, and every bad one fail. The Rust tests check the same documents with the
program itself. Exit code 1 if any result differs. Needs jsonschema and pyyaml.
"""

import json
import re
import sys
from pathlib import Path

import yaml
from jsonschema import Draft7Validator

ROOT = Path(__file__).resolve().parent.parent.parent


class Loader(yaml.SafeLoader):
    """YAML 1.2 as the program reads it: `yes` and `on` are strings, 1e3 is a number."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))


def documents():
    """(text, whether it is valid)"""
    lists = yaml.load((ROOT / "tests/sweeps/examples.yaml").read_text(encoding="utf-8"), Loader)
    usual = lists["usual"]

    def whole(lines):
        given = {line.split(":")[0] for line in lines.splitlines()}
        return "".join(f"{key}: {value}\n" for key, value in usual.items() if key not in given) + lines.rstrip() + "\n"

    def of_task(task):
        return whole(f"policies: [full, tova]\ntasks: [{{{task}}}]")

    for name, taken in [("good", True), ("bad", False)]:
        for lines in lists[name]:
            yield whole(lines), taken
        for task in lists[f"{name}_tasks"]:
            yield of_task(task), taken
    for lines in lists["beyond_the_schema"]:
        yield whole(lines), True
    for lines in lists["other_spellings"]:
        yield whole(lines), False


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "configs/sweep.schema.json")
    schema = json.loads(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    Draft7Validator.check_schema(schema)
    validator = Draft7Validator(schema)
    wrong = 0
    sweeps = sorted(path for path in (ROOT / "configs").glob("*/*.yaml") if path.parent.name != "benchmarks") + [Path(sweep) for sweep in sys.argv[2:]]
    for sweep in sweeps:
        for error in validator.iter_errors(yaml.load(sweep.read_text(encoding="utf-8"), Loader)):
            wrong += 1
            print(f"WRONG: {sweep}: {error.json_path}: {error.message}")
    of_tasks = Draft7Validator(json.loads((ROOT / "configs/benchmark.schema.json").read_text(encoding="utf-8")))
    for task in sorted((ROOT / "configs/benchmarks").glob("*.yaml")) + sorted((ROOT / "tests/benchmarks").glob("*.yaml")):
        for error in of_tasks.iter_errors(yaml.load(task.read_text(encoding="utf-8"), Loader)):
            wrong += 1
            print(f"WRONG: {task}: {error.json_path}: {error.message}")
    checked = 0
    for text, taken in documents():
        checked += 1
        if validator.is_valid(yaml.load(text, Loader)) != taken:
            wrong += 1
            print(f"WRONG: the schema {'refuses' if taken else 'takes'}\n{text}")
    print(f"{len(sweeps)} sweeps and {checked} documents, {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
