#!/usr/bin/env python3
"""Makes the tables and figures of the documentation that come from rows in results/baselines.

    python3 scripts/docs_rows.py PROGRAM            # writes them
    python3 scripts/docs_rows.py PROGRAM --check    # exit code 1 where a page says something else than the rows

PROGRAM is the built tova-bench. A page holds blocks like

    <!-- table rows=schedules model=gemma-3-270m size=96 columns=schedule -->
    ...
    <!-- end -->

between whose marks this program writes. `table` has policies down, and across sizes or schedules: nats above the full cache, or with
`value=to_ceiling` percent of the way from floor to ceiling; `pairs` has differences of two policies; `figure` is a picture of the report. All numbers, intervals and verdicts are those of `tova-bench report`. Every decimal number in the rest of
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
BLOCK = re.compile(r"<!-- (table|pairs|figure) (.*?) -->\n(.*?)<!-- end -->", re.S)


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


def estimate(line, value, digits, scale=1):
    shown = [number(float(line[key]) * scale, digits) for key in (value, f"{value}_low", f"{value}_high") if line[key]]
    return shown[0] + (f" [{shown[1]}, {shown[2]}]" if len(shown) == 3 else "")


def worse(pairs, better):
    """The policies at sizes than which another of the same size is shown to be better, at 95 % among all comparisons."""
    found = set()
    for pair in pairs:
        if pair["p_adjusted"] and float(pair["p_adjusted"]) < 0.05:
            is_worse = (float(pair["difference"]) > 0) == (better == "lower")
            found.add((pair["policy"] if is_worse else pair["against"], pair["cache_size"]))
    return found


def table(reports, options):
    """Policies down, sizes or schedules across: the number of each and its interval."""
    out = reports.of(options["rows"], options["only"])
    metric, value = options.get("metric", "nll"), options.get("value", "minus_full_nats")
    points = [line for line in lines_of(out / "report.csv") if line["metric"] == metric and not line["slice"]]
    by_schedule, is_way = options.get("columns") == "schedule", value == "to_ceiling"
    beaten = worse([line for line in lines_of(out / "pairs.csv") if line["metric"] == metric], options.get("better", "lower"))
    cells, best = {}, {}
    for line in points:
        if not line["cache_size"]:
            continue
        name = line["policy"].replace(f"@{line['schedule']}", "", 1) if by_schedule else line["policy"]
        if not line[value]:
            continue
        shown = estimate(line, value, *((1, 100) if is_way else (int(options.get("digits", 3)),)))
        if (line["policy"], line["cache_size"]) not in beaten and not is_way and not line["policy"].startswith("clairvoyant"):
            first, _, rest = shown.partition(" ")
            shown = f"**{first}** {rest}".strip()
        cells[name, line["schedule"] if by_schedule else line["cache_size"]] = shown
        loss = -float(line[value]) if is_way else float(line[value])
        best[name] = min(best.get(name, float("inf")), loss)
    if not cells:
        fail(f"no rows for {options}")
    heads = sorted({head for _, head in cells}, key=of_schedule if by_schedule else int)
    return grid(sorted(best, key=best.get), heads, cells) + caption(points, options)


def pairs(reports, options):
    """Differences of two policies, by size."""
    out = reports.of(options["rows"], options["only"])
    metric = options.get("metric", "nll")
    lines = [line for line in lines_of(out / "pairs.csv") if line["metric"] == metric]
    cells = {}
    wanted = [tuple(pair.split(":")) for pair in options["pairs"].split(",")]
    for policy, against in wanted:
        for line in lines:
            names = (line["policy"], line["against"])
            if names not in ((policy, against), (against, policy)):
                continue
            ends = [float(line[key]) for key in ("nats", "nats_low", "nats_high") if line[key]]
            if names == (against, policy):
                ends = [-end for end in ends[:1] + ends[:0:-1]]
            first, rest = number(ends[0], 3), f" [{number(ends[1], 3)}, {number(ends[2], 3)}]" if len(ends) == 3 else ""
            is_gain = len(ends) == 3 and ends[2] < 0
            cells[f"{policy}` - `{against}", line["cache_size"]] = f"**{first}**{rest}" if is_gain else first + rest
    names = [f"{policy}` - `{against}" for policy, against in wanted]
    lost = [name for name in names if not any(of == name for of, _ in cells)]
    if lost:
        fail(f"no pairs {lost} in {options['rows']}")
    heads = sorted({head for _, head in cells}, key=int)
    return grid(names, heads, cells) + caption(lines_of(out / "report.csv"), options)


def grid(names, heads, cells):
    text = f"| policy | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}\n"
    lines = ("| " + " | ".join([f"`{name}`"] + [cells.get((name, head), "") for head in heads]) + " |\n" for name in names)
    return text + "".join(lines) + "\n"


def of_schedule(text):
    """As the program orders schedules."""
    cut, _, every = text.partition("+")
    return (1, int(every or 0)) if cut == "cut" else (0, int(text))


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
        new = {"table": table, "pairs": pairs, "figure": figure}[kind](reports, options_of(text, more))
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
    if not Path(arguments.program).is_file():
        fail(f"there is no program {arguments.program}; `cargo build --release` makes it")
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
