#!/usr/bin/env python3
"""Makes the tables and figures of the documentation that come from rows in results/baselines.

    python3 scripts/docs_rows.py PROGRAM            # writes them
    python3 scripts/docs_rows.py PROGRAM --check    # exit code 1 where a page says something else than the rows

PROGRAM is the built tova-bench. A page holds blocks like

    <!-- table rows=schedules model=gemma-3-270m size=96 columns=schedule -->
    ...
    <!-- end -->

between whose marks this program writes. `table` has policies down, and across sizes or schedules; `figure` is a picture of the
report with its caption. All numbers, intervals and verdicts are those of `tova-bench report`. Every decimal number in the rest of
such a page must be in one of its blocks, and rows of an older engine must be of a baseline that results/baselines/engines.txt says
is not moved by the engines since.
"""
import argparse
import csv
import hashlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINES = ROOT / "results" / "baselines"
BLOCK = re.compile(r"<!-- (table|figure) (.*?) -->\n(.*?)<!-- end -->", re.S)


def fail(message):
    sys.exit(f"docs_rows: {message}")


class Reports:
    """What `report` says of some rows, each drawn once."""

    def __init__(self, program, folder):
        self.program, self.folder, self.known = program, Path(folder), {}

    def of(self, rows, only):
        key = (rows, only)
        if key not in self.known:
            out = self.folder / str(len(self.known))
            command = [self.program, "report", str(BASELINES / f"{rows}.parquet"), "-o", str(out), "--format", "csv,svg,png"]
            for part in only:
                command += ["--only", part]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                fail(f"{shlex.join(command)}\n{done.stderr}")
            self.known[key] = out
        return self.known[key]


def lines_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def number(text, digits):
    shown = f"{float(text):.{digits}f}"
    return shown[1:] if float(shown) == 0 and shown.startswith("-") else shown


def estimate(line, value, digits):
    low, high = line[f"{value}_low"], line[f"{value}_high"]
    ends = f" [{number(low, digits)}, {number(high, digits)}]" if low else ""
    return number(line["value" if value == "interval" else value], digits) + ends


def without_schedule(line):
    return line["policy"].replace(f"@{line['schedule']}", "", 1)


def worse(pairs):
    """The policies at sizes than which another of the same size is shown to be better, at 95 % among all comparisons."""
    found = set()
    for pair in pairs:
        if pair["p_adjusted"] and float(pair["p_adjusted"]) < 0.05:
            is_worse = (float(pair["difference"]) > 0) == (pair["better"] == "lower")
            found.add((pair["policy"] if is_worse else pair["against"], pair["cache_size"]))
    return found


def table(reports, options):
    """Policies down; sizes, schedules or models across."""
    out = reports.of(options["rows"], options["only"])
    metric, digits = options.get("metric", "nll"), int(options.get("digits", 3))
    points = [line for line in lines_of(out / "report.csv") if line["metric"] == metric and not line["slice"]]
    pairs = [line for line in lines_of(out / "pairs.csv") if line["metric"] == metric]
    if not points:
        fail(f"no rows for {options}")
    better = options.get("better", "lower")
    beaten = worse([{**pair, "better": better} for pair in pairs])
    value = options.get("value", "minus_full_nats")
    columns = options.get("columns", "size")
    place = {"size": lambda line: line["cache_size"], "schedule": lambda line: line["schedule"]}[columns]
    name = without_schedule if columns == "schedule" else (lambda line: line["policy"])
    chosen = [line for line in points if line["cache_size"]]
    order = {"1": 0, "32": 1, "128": 2, "cut+1": 3, "cut": 4}
    key = (lambda place: int(place)) if columns == "size" else (lambda place: order.get(place, 9))
    heads = sorted({place(line) for line in chosen}, key=key)
    cells = {}
    for line in chosen:
        shown = estimate(line, value, digits)
        is_best = pairs and (line["policy"], line["cache_size"]) not in beaten and not line["policy"].startswith("clairvoyant")
        if is_best:
            first, _, rest = shown.partition(" ")
            shown = f"**{first}** {rest}".strip()
        cells[name(line), place(line)] = (float(line[value if value != "interval" else "value"]), shown)
    names = sorted({name for name, _ in cells}, key=lambda name: min(cells[at][0] for at in cells if at[0] == name))
    rows = [[f"`{name}`"] + [cells.get((name, head), (0, ""))[1] for head in heads] for name in names]
    words = {"size": "policy", "schedule": "policy"}[columns]
    text = f"| {words} | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads) + "\n"
    return text + "".join("| " + " | ".join(row) + " |\n" for row in rows) + "\n" + caption(points, options)


def figure(reports, options):
    """A picture of the report, copied beside the page; its drawing is known by its SVG."""
    out = reports.of(options["rows"], options["only"])
    found = sorted((out / "figures").glob(f"{options['file']}.svg"))
    if len(found) != 1:
        names = ", ".join(path.stem for path in sorted((out / "figures").glob("*.svg")))
        fail(f"{options['file']} is not one figure of {options['rows']}; there are {names}")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()[:16]
    to = ROOT / "docs" / options["to"]
    if not options["check"]:
        shutil.copyfile(found[0].with_suffix(".png"), to)
    elif not to.is_file():
        fail(f"{to} is missing")
    text = f"![{options['alt']}]({options['to']})\n\n"
    points = lines_of(out / "report.csv")
    return text + caption(points, options) + f"<!-- drawing {digest} -->\n"


def caption(points, options):
    """Of what the rows are."""
    name = options["rows"]
    shown = subprocess.run([options["program"], "baseline", "show", name, "--dir", str(BASELINES)], capture_output=True, text=True)
    origin = re.search(r"engines? ([\d, ]+), .*?measured ([\d-]+(?: to [\d-]+)?)", shown.stdout)
    if not origin:
        fail(f"baseline show {name} does not say its engine")
    check_engine(name, origin[1], options["engine"])
    models = ", ".join(dict.fromkeys(line["model"] for line in points))
    samples = max(int(line["samples"]) for line in points)
    return f"*{models}, {samples} texts; engine {origin[1]}, {origin[2]}; `results/baselines/{name}.parquet`.*\n"


def check_engine(name, engine, current):
    unmoved = dict()
    for line in (BASELINES / "engines.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            version, names, _ = line.split(maxsplit=2)
            unmoved[int(version)] = names.split(",")
    for later in range(int(engine) + 1, current + 1):
        if not {name, "all"} & set(unmoved.get(later, [])):
            fail(f"{name}.parquet is of engine {engine}, and engine {later} may have moved its numbers: measure it again, or "
                 f"say in results/baselines/engines.txt that it did not")


def options_of(text, more):
    options, only = dict(more), []
    for part in shlex.split(text):
        key, _, value = part.partition("=")
        if key == "only":
            only.append(value)
        elif key in ("model", "policy", "size"):
            only.append(part)
        else:
            options[key] = value
    return {**options, "only": tuple(only)}


def page(path, reports, more):
    """The page as the rows have it."""
    old = path.read_text()
    made = []

    def block(found):
        kind, text, _ = found.groups()
        new = {"table": table, "figure": figure}[kind](reports, options_of(text, more))
        made.append(new)
        return f"<!-- {kind} {text} -->\n{new}<!-- end -->"

    new = BLOCK.sub(block, old)
    if made:
        check_numbers(path, BLOCK.sub("", new), "\n".join(made))
    return old, new


def check_numbers(path, text, blocks):
    """Every decimal number of the text is in a block; code is not text."""
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.S)
    known = set(re.findall(r"\d+\.\d+", blocks))
    lost = [number for number in re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", text) if number not in known]
    if lost:
        fail(f"{path.relative_to(ROOT)} says {', '.join(lost)}, which none of its tables has")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    identity = (ROOT / "src" / "ledger" / "identity.rs").read_text()
    engine = int(re.search(r"ENGINE_VERSION: u32 = (\d+)", identity)[1])
    more = {"program": arguments.program, "check": arguments.check, "engine": engine}
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        reports = Reports(arguments.program, folder)
        for path in sorted((ROOT / "docs").glob("*.md")) + [ROOT / "README.md"]:
            old, new = page(path, reports, more)
            if old != new:
                stale.append(str(path.relative_to(ROOT)))
                if not arguments.check:
                    path.write_text(new)
    if stale and arguments.check:
        fail(f"{', '.join(stale)}: not what the rows say; python3 scripts/docs_rows.py PROGRAM writes it anew")
    print("\n".join(stale) or "nothing changed")


if __name__ == "__main__":
    main()
