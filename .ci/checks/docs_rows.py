#!/usr/bin/env python3
"""Makes the tables and figures of the documentation that come from rows in results/baselines.

    python3 .ci/checks/docs_rows.py PROGRAM            # writes them
    python3 .ci/checks/docs_rows.py PROGRAM --check    # exit code 1 where a page says something else than the rows

PROGRAM is the built tova-bench. A page holds blocks like

    <!-- table rows=schedules model=gemma-3-270m size=96 columns=schedule -->
    ...
    <!-- end -->

between whose marks this program writes. `table` has policies down, or metrics or slices where several are named, and across sizes,
schedules or slices: nats above the full cache, or another column of `report.csv` (`value=value`; `value=to_ceiling` in percent);
grey, as `<sub>`, is what is shown to be worse than the best of its column; `pairs` has differences of two policies, each with its verdict among
all pairs of the size, or with `planned=yes` among these alone; `report` is a table of the report's Markdown or, with `file=paper/table-3`, of what it draws of
the paper, by its heading (`columns` and `lines` leave some out, `caption=no` says nothing of the rows); `figure` is a picture of the
report. All numbers, intervals and verdicts are those of `tova-bench report`, but for those of an `other` block, which says how they were
computed and is left as it is. Every decimal number in a section with blocks must be in a
block of its page, or be one of its numbers with a digit less; those of README in a block of any page. Rows of an older engine must be of
a baseline that results/baselines/engines.txt says is not moved by the engines since.
"""
import argparse
import csv
import fnmatch
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BASELINES = ROOT / "results" / "baselines"
BLOCK = re.compile(r"<!-- (table|pairs|report|figure|other) (.*?) -->\n(.*?)<!-- end -->", re.S)
# A verdict from the other side.
TURNED = {"better": "worse", "worse": "better"}
# What a block is replaced with where the text around it is read.
BLOCK_HERE = "\0"


def fail(message):
    sys.exit(f"docs_rows: {message}")


class Reports:
    """What `report` says of some rows, each drawn once; with pictures in pixels where they are wanted."""

    def __init__(self, program, folder, pixels):
        self.program, self.folder, self.known = program, Path(folder), {}
        self.formats = "csv,md,svg,png" if pixels else "csv,md,svg"

    def of(self, options):
        is_of_paper = "paper" in (options.get("folder"), options.get("file", "").partition("/")[0])
        planned = ", ".join(pair.replace(":", " - ") for pair in options["pairs"].split(",")) if "planned" in options else ""
        key = (options["rows"], options["only"], is_of_paper, planned)
        if key not in self.known:
            out = self.folder / str(len(self.known))
            command = [self.program, "report", str(BASELINES / f"{options['rows']}.parquet"), "-o", str(out), "--format", self.formats]
            for part in options["only"]:
                command += ["--only", part]
            command += ["--contrasts", planned] if planned else []
            for command in [command, [*command, "--figure", "all", "--paper"]][:1 + is_of_paper]:
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
    ends = "interval" if value == "value" else value
    shown = [number(float(line[key]) * scale, digits) for key in (value, f"{ends}_low", f"{ends}_high") if line[key]]
    return shown[0] + (f" [{shown[1]}, {shown[2]}]" if len(shown) == 3 else "")


def worse(pairs, points, better):
    """The policies at sizes that are shown to be worse than the best there, as the report says: its verdicts on the policy with the best
    number, of those that do not know the rest of the text."""
    sign, best = 1 if better == "lower" else -1, {}
    for line in points:
        if line["policy"] in ("full", "truncate") or line["policy"].startswith("clairvoyant") or line["complete"] != "true":
            continue
        number = (sign * float(line["value"]), line["policy"])
        best[line["cache_size"]] = min(best.get(line["cache_size"], number), number, key=lambda of: of[0])
    found = set()
    for pair in pairs:
        size = pair["cache_size"]
        for policy, against, word in ((pair["policy"], pair["against"], "worse"), (pair["against"], pair["policy"], "better")):
            if pair["verdict"] == word and size in best and best[size][1] == against:
                found.add((policy, size))
    return found


def table(reports, options):
    """Policies down, or metrics or slices where several are named; sizes, schedules or slices across."""
    out = reports.of(options)
    metrics, slices = options.get("metric", "nll").split(","), options.get("slice", "").split(",")
    value, columns = options.get("value", "minus_full_nats"), options.get("columns", "size")
    is_way, by_policy = value == "to_ceiling", len(metrics) == 1 and (len(slices) == 1 or columns == "slice")
    digits, scale = int(options.get("digits", 1 if is_way else 3)), 100 if is_way else 1
    all_points = lines_of(out / "report.csv")
    points = [line for line in all_points if line["metric"] in metrics and line["slice"] in slices and line[value]]
    pairs = [line for line in lines_of(out / "pairs.csv") if line["metric"] == metrics[0]]
    of_first = [line for line in all_points if line["metric"] == metrics[0] and not line["slice"]]
    beaten = worse(pairs, of_first, options.get("better", "lower"))
    cells, best, order = {}, {}, (lambda name: best[name]) if by_policy else [*metrics, *slices].index
    for line in points:
        policy, size = line["policy"], line["cache_size"]
        if not size and policy == "full" and by_policy and value != "value":
            continue
        name = policy.replace(f"@{line['schedule']}", "", 1) if columns == "schedule" else policy
        name = name if by_policy else line["metric"] if len(metrics) > 1 else line["slice"]
        shown = estimate(line, value, digits, scale)
        if (policy, size) in beaten and by_policy and not (is_way or line["slice"]):
            shown = f"<sub>{shown}</sub>"
        cells[name, {"size": size or "full", "schedule": line["schedule"], "slice": line["slice"]}[columns]] = shown
        is_loss = not is_way and options.get("better", "lower") == "lower"
        best[name] = min(best.get(name, float("inf")), float(line[value]) if is_loss else -float(line[value]))
    if not cells:
        fail(f"no rows for {options}")
    heads = [slice for slice in slices if columns == "slice"] or sorted({head for _, head in cells}, key=of_schedule)
    shown = {line["metric"]: line["quantity"] for line in points} | {name: name for name in slices} | {
        name: f"`{name}`" for name in best if by_policy}
    return grid([(name, shown[name]) for name in sorted(best, key=order)], heads, cells) + caption(points, options)


def pairs(reports, options):
    """Differences of two policies, by size."""
    out = reports.of(options)
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
            word = line["verdict_contrast" if "planned" in options else "verdict"]
            word = TURNED.get(word, word) if names == (against, policy) else word
            cells[f"{policy}` - `{against}", line["cache_size"]] = f"{first}{rest} {word}".strip()
    names = [f"{policy}` - `{against}" for policy, against in wanted]
    lost = [name for name in names if not any(of == name for of, _ in cells)]
    if lost:
        fail(f"no pairs {lost} in {options['rows']}")
    heads = sorted({head for _, head in cells}, key=lambda size: float(size.removeprefix("memory ").rstrip("%")))
    return grid([(name, f"`{name}`") for name in names], heads, cells) + caption(lines_of(out / "report.csv"), options)


def report_table(reports, options):
    """A table of the report's Markdown as it is: the first below a heading, or in a fold."""
    out = reports.of(options)
    file = out / f"{options.get('file', 'report')}.md"
    if not file.is_file():
        names = ", ".join(str(path.relative_to(out).with_suffix("")) for path in sorted(out.glob("**/*.md")))
        fail(f"{options['rows']} has no {options['file']}; it has {names}")
    section, title, lines = "", "", []
    for line in file.read_text().splitlines():
        heading = re.match(r"#+ (.*)|<details><summary>(.*)</summary>", line)
        if heading and lines:
            break
        if line.startswith("## "):
            section = line[3:]
        if heading:
            title = heading[1] or heading[2]
        if line.startswith("|") and fnmatch.fnmatch(title, options["title"]) and fnmatch.fnmatch(section, options.get("in", "*")):
            lines.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    if not lines:
        fail(f"{options['rows']} has no table {options['title']!r} in {file.name}")
    columns = [int(column) - 1 for column in options["columns"].split(",")] if "columns" in options else range(len(lines[0]))
    lines = lines[:2] + [line for line in lines[2:] if fnmatch.fnmatch(line[0], options.get("lines", "*"))]
    table = "".join(f"| {' | '.join(line[column] for column in columns)} |\n" for line in lines)
    return table + "\n" + caption(lines_of(out / "report.csv"), options)


def grid(names, heads, cells):
    text = f"| | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}\n"
    lines = ("| " + " | ".join([shown] + [cells.get((name, head), "") for head in heads]) + " |\n" for name, shown in names)
    return text + "".join(lines) + "\n"


def of_schedule(text):
    """As the program orders schedules, sizes and shares; `full` is last."""
    cut, _, every = text.partition("+")
    return (2, 0) if text == "full" else (1, int(every or 0)) if cut == "cut" else (0, float(text.removeprefix("memory ").rstrip("%")))


def figure(reports, options):
    """A picture of the report, copied beside the page; its drawing is known by its SVG."""
    out = reports.of(options)
    folder = out / options.get("folder", "figures")
    found = sorted(folder.glob(f"{options['file']}.svg"))
    if len(found) != 1:
        names = ", ".join(path.stem for path in sorted(folder.glob("*.svg")))
        fail(f"{options['file']} is not one figure of {options['rows']}; there are {names}")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()[:16]
    to = options["page"].parent / options["to"]
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
    itself = [options["program"], "compare", name, name, "--dir", str(BASELINES), "--json", "-"]
    rows = json.loads(subprocess.run(itself, capture_output=True, text=True).stdout or "{}").get("baseline")
    if not rows:
        fail(f"compare {name} {name} says nothing of {name}")
    engine = " ".join(map(str, rows["engines"]))
    days = " to ".join(dict.fromkeys(date.split("T")[0] for date in rows["dates"]))
    check_engine(name, engine, options["engine"])
    models = ", ".join(dict.fromkeys(line["model"] for line in points))
    samples = max(int(line["samples"]) for line in points)
    if options.get("caption") == "no":
        return ""
    arithmetic = ", ".join(dict.fromkeys(line["arithmetic"] for line in points))
    return (f"*{models}, {samples} texts; arithmetic {arithmetic}, engine {engine}, {days}; "
            f"`results/baselines/{name}.parquet`.*\n")


def check_engine(name, engine, current):
    unmoved = {}
    for line in (BASELINES / "engines.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            version, names, _ = line.split(maxsplit=2)
            unmoved.setdefault(int(version), set()).update(names.split(","))
    for later in range(int(engine) + 1, current + 1):
        if not {name, "all"} & unmoved.get(later, set()):
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


def page(path, reports, more, made):
    """The page as the rows have it. `made` are the blocks of the pages before it, and then its own, too."""
    old, before = path.read_text(), len(made)

    def block(found):
        kind, text, old = found.groups()
        if kind == "other":
            made.append(old)
            return found[0]
        make = {"table": table, "pairs": pairs, "report": report_table, "figure": figure}[kind]
        new = make(reports, options_of(text, more | {"page": path}))
        made.append(new)
        return f"<!-- {kind} {text} -->\n{new}<!-- end -->"

    new = BLOCK.sub(block, old)
    if len(made) > before:
        if path.parent != ROOT:
            made = made[before:]
        check_numbers(path, BLOCK.sub(BLOCK_HERE, new), "\n".join(made))
    return old, new


def check_numbers(path, text, blocks):
    """Every decimal number of the sections that have blocks is in a block of the page, or is one of its numbers with a digit less; code is
    not text."""
    text = "".join(section for section in re.split(r"^(?=## )", text, flags=re.M) if BLOCK_HERE in section)
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.S)
    known = set(re.findall(r"\d+\.\d+", blocks))
    known |= {f"{float(number):.{len(number.partition('.')[2]) - 1}f}" for number in known}
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
        reports, made = Reports(arguments.program, folder, not arguments.check), []
        for path in sorted((ROOT / "docs").glob("*.md")) + [ROOT / "README.md"]:
            old, new = page(path, reports, more, made)
            if old != new:
                stale.append(str(path.relative_to(ROOT)))
                if not arguments.check:
                    path.write_text(new)
    if stale and arguments.check:
        fail(f"{', '.join(stale)}: not what the rows say; python3 .ci/checks/docs_rows.py PROGRAM writes it anew")
    print("\n".join(stale) or "nothing changed")


if __name__ == "__main__":
    main()
