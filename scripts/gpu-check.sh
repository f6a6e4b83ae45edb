#!/usr/bin/env bash
# The first hour on a machine with a GPU: is attention right there, how fast is it beside the H200 of docs/gpu.md, and what to do or send.
# Needs bash, python3 and a program built with --features cuda; no network and no compiler.
#
#     scripts/gpu-check.sh [DEVICE] [PHASE...] [--program FILE] [--tests FILE] [--bench FILE] [--out FOLDER]
#
#   DEVICE     cuda, cuda:N, or emulated: the same phases in small without a GPU, with a program built with --features emulate
#   PHASE      one or more of identity, check, goldens, card, kernels, reading, decoding, table1, sanitizer; all of them by default.
#              Each takes 8 minutes at most. `page` runs nothing and writes the page of what is in the folder.
#   --program  tova-bench beside this script by default, or else the one in the PATH
#   --tests    the test program `device` (cargo test --no-run --test device), for the goldens; it reads them from its checkout
#   --bench    the benchmark `gpu` (cargo bench --no-run --bench gpu), for card and kernels
#   --out      gpu-check by default. It gets gpu-check.json after every step, and gpu-check.md, the page. Later calls add to them.
exec python3 /dev/fd/3 "$0" "$@" 3<< 'PYTHON'
import argparse, contextlib, csv, json, os, pathlib, random, re, shlex, shutil, signal, subprocess, sys, tempfile, time

PHASE_SECONDS = 8 * 60
REFUSED = "attention runs on the host"


class Refused(Exception):
    """Attention is not right on this device, so nothing else is worth its time."""


def arguments():
    phases = list(PHASES)
    parser = argparse.ArgumentParser("gpu-check.sh", description="see the top of the file")
    parser.add_argument("what", nargs="*", metavar="DEVICE | PHASE", help="cuda, cuda:N, emulated, page, " + ", ".join(phases))
    for name in ["program", "tests", "bench"]:
        parser.add_argument(f"--{name}", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-check"))
    own = parser.parse_args(sys.argv[2:])
    devices = [what for what in own.what if re.fullmatch(r"cuda(:\d+)?|emulated", what)]
    own.phases = [what for what in own.what if what not in devices] or phases
    wrong = [what for what in own.phases if what not in [*phases, "page"]]
    if wrong or len(devices) > 1:
        parser.error(f"{', '.join(wrong or devices)}: give one device at most, and phases of {', '.join(phases)}")
    own.device = devices[0] if devices else None
    beside = pathlib.Path(sys.argv[1]).resolve().parent / "tova-bench"
    program = own.program or (beside if beside.exists() else shutil.which("tova-bench"))
    if own.phases != ["page"] and (program is None or not os.access(program, os.X_OK)):
        parser.error(f"the program {program or beside} cannot be run: name another with --program")
    own.program = program and pathlib.Path(program).resolve()
    return own


class Model:
    """LLaMA-2-7B's shape. Four of its layers: drawing 7 billion weights takes minutes. In small without a GPU."""

    def __init__(self, small):
        self.hidden, self.layers, self.heads, self.kv, self.mlp, self.vocab = (
            (64, 2, 4, 2, 128, 500) if small else (4096, 4, 32, 32, 11008, 32000))
        self.dtype, self.width = ("f32", 4) if small else ("bf16", 2)
        self.name = (f"random-h{self.hidden}-l{self.layers}-a{self.heads}-k{self.kv}-f{self.mlp}-v{self.vocab}")
        self.tokens, self.long, self.size, self.texts = (400, 1000, 64, [2, 4]) if small else (4096, 32768, 512, [8, 32])

    def weights(self):
        of_layer = 2 * self.hidden * self.hidden * (1 + self.kv / self.heads) + 3 * self.hidden * self.mlp
        return int(self.width * (2 * self.vocab * self.hidden + self.layers * of_layer))

    def cache(self, entries):
        return 8 * self.layers * self.kv * self.hidden // self.heads * entries


class Check:
    def __init__(self, own, work):
        self.own, self.work, self.json = own, work, own.out / "gpu-check.json"
        own.out.mkdir(parents=True, exist_ok=True)
        new = {"device": own.device or "cuda", "phases": {}}
        try:
            self.results = json.loads(self.json.read_text()) if self.json.exists() else new
            is_own = isinstance(self.results, dict) and {"device", "phases"} <= set(self.results)
        except ValueError:
            is_own = False
        if not is_own:
            sys.exit(f"{self.json} is not a file of this script, or damaged: delete it, or name another folder with --out")
        if own.device not in [None, self.results["device"]]:
            sys.exit(f"{self.json} is of the device {self.results['device']}: name another folder with --out")
        own.device = self.results["device"]
        self.model = Model(own.device == "emulated")

    def save(self):
        part = self.json.with_suffix(".part")
        part.write_text(json.dumps(self.results, indent=1) + "\n")
        part.replace(self.json)
        (self.own.out / "gpu-check.md").write_text(page(self.results))

    def run_phase(self, name):
        self.phase = self.results["phases"][name] = {}
        self.deadline = time.monotonic() + PHASE_SECONDS
        print(f"{name}:", file=sys.stderr)
        seen = {}
        try:
            with watched(self, seen):
                PHASES[name](self)
        finally:
            self.phase["the card meanwhile"] = {"seen": seen}
            self.save()

    def leave_out(self, name, why):
        print(f"  {name}: left out, {why}", file=sys.stderr)
        self.phase[name] = {"left out": why}
        self.save()

    def step(self, name, command, read=None, **more):
        """Runs a command until it ends or the phase does. `read` finds in its stdout and stderr what to keep."""
        left = self.deadline - time.monotonic()
        if left < 1:
            return self.leave_out(name, "the phase's 8 minutes were over")
        command = [str(part) for part in command]
        print(f"  {name}", file=sys.stderr)
        started = time.monotonic()
        files = [self.work / "stdout", self.work / "stderr"]
        with files[0].open("w") as out, files[1].open("w") as err:
            env = {**os.environ, "HF_HUB_OFFLINE": "1", **more}
            running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True)
            try:
                code = running.wait(left)
            except BaseException as ended:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
                if not isinstance(ended, subprocess.TimeoutExpired):
                    raise
                code = "stopped, because the phase's 8 minutes were over"
        stdout, stderr = [file.read_text(errors="replace") for file in files]
        step = {"command": shlex.join(command), "exit": code, "seconds": round(time.monotonic() - started, 1)}
        if read:
            try:
                step.update(read(stdout, stderr))
            except Exception as error:
                step["exit"] = code or f"its output was not understood: {error!r}"
        if step["exit"] != 0:
            step["said"] = (stderr.strip() or stdout.strip())[-2000:]
            print(f"    failed ({step['exit']}): {step['said'][-300:]}", file=sys.stderr)
        self.phase[name] = step
        self.save()
        if REFUSED in stderr:
            raise Refused(stderr[stderr.index(REFUSED):].splitlines()[0][:500])
        return step

    def sweep(self, name, policy, tasks, read):
        """Measures the tasks under a policy, one after the other, with one model."""
        sweep, results = self.work / f"{name}.yaml", self.work / name
        own = {"models": [{"source": self.model.name, "dtype": self.model.dtype}], "policies": [policy], "tasks": tasks}
        if policy != "full":
            own["cache_sizes"] = [self.model.size]
        sweep.write_text(json.dumps(own))
        command = [self.own.program, "run", sweep, "--device", self.own.device, "--results", results, "--progress", "json"]
        self.step(name, command, lambda out, err: {"measured": read(results, err)})


@contextlib.contextmanager
def watched(check, seen):
    """Notes the card's clocks and memory while a phase runs, every two seconds."""
    asked = {"clocks.sm": "MHz", "memory.used": "MiB", "power.draw": "W", "temperature.gpu": "°C"}
    if check.own.device == "emulated" or not shutil.which("nvidia-smi"):
        yield
        return
    command = nvidia_smi(check, ",".join(asked), "csv,noheader,nounits") + ["-l", "2"]
    file = check.work / "watch"
    running = subprocess.Popen(command, stdout=file.open("w"), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        running.kill()
        running.wait()
        for (name, unit), column in zip(asked.items(), zip(*csv.reader(file.open()))):
            numbers = [float(number) for number in column if re.fullmatch(r"\s*[\d.]+\s*", number)]
            if numbers:
                seen[name] = f"{min(numbers):g} to {max(numbers):g} {unit}"


def nvidia_smi(check, asked, form):
    number = int(check.own.device.partition(":")[2] or 0)
    visible = [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    card = visible[number] if number < len(visible) else number
    return ["nvidia-smi", "-i", str(card), f"--query-gpu={asked}", f"--format={form}"]


def measured(of, name, value, unit):
    return {"of": of, "name": name, "value": value, "unit": unit}


def findings(stdout, _):
    return {"found": {own["name"]: f"{'' if own['verdict'] == 'ok' else own['verdict'] + ': '}{own['value']}"
                      for own in json.loads(stdout)["checks"]}}


def identity(check):
    def card(stdout, _):
        names, values = list(csv.reader(stdout.splitlines(), skipinitialspace=True))[:2]
        return {"found": dict(zip(names, values))}

    if check.own.device != "emulated" and not shutil.which("nvidia-smi"):
        check.leave_out("card", "there is no nvidia-smi")
    elif check.own.device != "emulated":
        asked = ("name,driver_version,vbios_version,memory.total,memory.used,clocks.sm,clocks.max.sm,clocks.max.mem,power.limit,"
                 "temperature.gpu,pcie.link.gen.max,pcie.link.width.current,persistence_mode,compute_mode,mig.mode.current")
        check.step("card", nvidia_smi(check, asked, "csv"), card)
        check.step("driver", ["nvidia-smi"], lambda out, _: {"found": {"nvidia-smi": out}})
    def machine(stdout, _):
        return {"found": {name: findings(stdout, _)["found"][name] for name in ["version", "machine", "products", "memory"]}}
    check.step("machine", [check.own.program, "doctor", "--device", "cpu", "--offline", "--json"], machine)


def self_check(check):
    step = check.step("attention", [check.own.program, "doctor", "--device", check.own.device, "--offline", "--json"], findings)
    found = step.get("found", {})
    attention = found.get("attention", found.get("device", "the check did not end"))
    if not attention.startswith("on the device"):
        step["said"] = attention.removeprefix("problem: ")
        raise Refused(step["said"])


def goldens(check):
    if check.own.tests is None:
        return check.leave_out("goldens", "no test program was given with --tests")
    # Emulated, all of them take many minutes.
    names = ["golden::goldens"] if check.own.device == "emulated" else ["golden"]
    def tests(stdout, _):
        return {"found": dict(re.findall(r"^test (\S+) \.\.\. (\w+)", stdout, re.MULTILINE))}
    check.step("goldens", [check.own.tests.resolve(), *names], tests, TOVA_BENCH_TEST_DEVICE=check.own.device)


def benchmark(what):
    def phase(check):
        if check.own.bench is None:
            return check.leave_out(what, "no benchmark was given with --bench")
        command = [check.own.bench.resolve(), what, check.own.device]
        check.step(what, command, lambda out, _: {"measured": json.loads(out)["measured"]})
    return phase


def reading(check):
    model = check.model
    def one(tokens, policy):
        file = check.work / f"{tokens}.json"
        file.write_text(json.dumps(random.Random(1).choices(range(3, model.vocab), k=tokens)))
        rule = [] if policy == "full" else ["--policy", policy, "--cache-size", model.size]
        command = [check.own.program, "score", "--device", check.own.device, "--model", model.name, "--dtype", model.dtype,
                   "--tokens", file, "--timing", "--repeat", 2, *rule]
        def seconds(stdout, _):
            # The first reading is slower: libraries are loaded, memory is taken.
            timing = json.loads(stdout)["timing"]
            return {"measured": [measured(f"a text of {tokens} tokens", policy, min(timing["seconds"]), "s")]}
        check.step(f"{tokens}-{policy}", command, seconds)

    def together(_, events):
        """Seconds a text: the time of a task is that from the end of the one before to its last sample."""
        times, before, last, texts = [], 0, 0, 0
        for event in map(json.loads, events.splitlines()):
            if event["event"] == "sample":
                last, texts = event["run"]["seconds"], texts + 1
            elif event["event"] == "cell_done":
                times.append((texts, (last - before) / max(texts, 1)))
                before, texts = event["run"]["seconds"], 0
        return [measured(f"{texts} texts of {model.tokens} tokens at once, of each", policy, time, "s") for texts, time in times[1:]]

    books = check.work / "books"
    books.mkdir()
    for book in range(max(model.texts)):
        words = random.Random(book).choices(["ta", "remi", "losun", "kavel", "orden", "shipra", "dorel", "mivan"], k=model.tokens)
        (books / f"{book}.txt").write_text(" ".join(words))
    for policy in ["full", "window", "h2o", "tova"]:
        one(model.tokens, policy)
    for policy in ["full", "window", "h2o", "tova"]:
        # The first task loads the model. Lengths differ because a sample that was measured is not measured again.
        counts = [(model.size + 100, 2)] + [(model.tokens - at, texts) for at, texts in enumerate(model.texts)]
        tasks = [{"perplexity": {"dataset": str(books), "length": length, "books": texts, "chunks_per_book": 1}}
                 for length, texts in counts]
        check.sweep(f"together-{policy}", policy, tasks, together)
    for policy in ["full", "tova"]:
        one(model.long, policy)


def timing(check, name, policy, tasks, unit):
    def read(results, _):
        rows = list(csv.DictReader((results / "report.csv").open()))
        batches = [row for row in rows if row["metric"] == "decode_batch"]
        def of(row, metric):
            return next(float(own["value"]) for own in rows if (own["generation"], own["metric"]) == (row["generation"], metric))
        rates = [(1, of(batches[0], "decode")), *sorted((of(row, "batch"), float(row["value"])) for row in batches)]
        values = {"ms a step": lambda texts, rate: 1e3 * texts / rate, "tokens/s": lambda _, rate: rate}
        return [measured(f"{name}, {texts:.0f} text{'s' * (texts > 1)}", policy, values[unit](texts, rate), unit) for texts, rate in rates]
    check.sweep(f"{name.replace(' ', '')}-{policy}", policy, [{"timing": {"repeats": 1, **task}} for task in tasks], read)


def decoding(check):
    model = check.model
    for policy in ["full", "window", "h2o", "tova"]:
        prompt, length = model.size + 88, model.size + 248
        cache = model.cache(length if policy == "full" else model.size + 1)
        memory = [f"{int(model.weights() + (texts + 0.5) * cache)} B" for texts in model.texts]
        timing(check, "decoding", policy, [{"prompt": prompt, "length": length, "memory": own} for own in memory], "ms a step")


def table1(check):
    # What 32 GB leave to the caches beside LLaMA-2-7B's weights, for the layers that there are.
    model, small = check.model, check.own.device == "emulated"
    caches = 5 * model.cache(160) if small else 18.52e9 * model.layers / 32
    task = {"length": 160 if small else 4096, "memory": f"{int(model.weights() + caches)} B"}
    for policy in ["full", "tova"]:
        timing(check, "table 1", policy, [task], "tokens/s")


def sanitizer(check):
    if check.own.device == "emulated" or not shutil.which("compute-sanitizer"):
        return check.leave_out("sanitizer", "there is no compute-sanitizer")
    tokens = check.work / "sanitized.json"
    tokens.write_text(json.dumps([position * position % 500 for position in range(300)]))
    for tool in ["memcheck", "racecheck", "synccheck", "initcheck"]:
        for policy in ["h2o", "tova"]:
            command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", 9, check.own.program, "score", "--device",
                       check.own.device, "--model", "random-h64-l1-a4-k2-f128-v500", "--tokens", tokens, "--policy", policy,
                       "--cache-size", 64]
            check.step(f"{tool}-{policy}", command)


PHASES = {"identity": identity, "check": self_check, "goldens": goldens, "card": benchmark("card"), "kernels": benchmark("kernels"),
          "reading": reading, "decoding": decoding, "table1": table1, "sanitizer": sanitizer}


# What docs/gpu.md measured of an H200, in the unit that is measured: (pattern of `of: name`, number).
H200 = [
    (r"products in bf16: 4096 x 4096 x 4096", 803), (r"products in bf16: 4096 x 11008 x 4096", 688),
    (r"products in bf16: 4096 x 4096 x 11008", 734), (r"products in bf16: 4096 x 32000 x 4096", 684),
    (r"products in bf16: 64 x 11008 x 4096", 3254), (r"products in f32: 512 x 4096", 48.6),
    (r"products in f32: 128 x 640 x 128", 24.2), (r"products in f32: 128 x 128 x 640", 26.1),
    (r"copies: on the card", 3005), (r"copies: host to card", 7.9), (r"copies: card to host", 13.4),
    (r"launches: empty$", 3.5), (r"launches: empty, and waited for", 12.6),
    (r"(window|h2o|tova) by \w+, 512 entries, blocks: Place", 12.4), (r"(window|h2o|tova) by \w+, 512 entries, blocks: queries", 30.6),
    (r"(window|h2o|tova) by \w+, 512 entries, blocks: Softmax", 12.3),
    (r"(window|h2o|tova) by \w+, 512 entries, blocks: attention", 35.2),
    (r"(window|h2o|tova) by \w+, 512 entries, blocks: Outputs", 5.9), (r"(window|h2o|tova) by \w+, 512 entries, blocks: Refill", 10.7),
    (r"window by layer, 512 entries, blocks: Scan", 764), (r"window by layer, 512 entries, single tokens: Scan", 16.9),
    (r"h2o by head, 512 entries, blocks: Scan", 800), (r"h2o by head, 512 entries, single tokens: Scan", 19.9),
    (r"a text of 4096 tokens: full", 0.101), (r"a text of 4096 tokens: window", 0.194), (r"a text of 4096 tokens: h2o", 0.224),
    (r"a text of 4096 tokens: tova", 0.238), (r"8 texts .*: full", 0.055), (r"32 texts of .*: full", 0.052),
    (r"8 texts .*: tova", 0.059), (r"32 texts of .*: tova", 0.043),
    (r"decoding, 1 text: full", 4.8), (r"decoding, 8 texts: full", 5.9), (r"decoding, 32 texts: full", 9.0),
    (r"decoding, 1 text: window", 4.1), (r"decoding, 8 texts: window", 4.4), (r"decoding, 32 texts: window", 9.6),
]


# What a number that is too slow means, by what it is of.
ADVICE = [
    ("products", "The card multiplies far more slowly. Look at its clocks and power limit, and whether others use it "
                 "(`nvidia-smi`); the other times are longer for the same reason."),
    ("copies", "Copies are far slower: look at the PCIe link below."),
    ("launches", "Launches are slow, which is the host or the driver. Decoding has most of them."),
    ("Scan", "Profile one launch: `ncu --set full -k scan -c 1 BENCH kernels cuda` with the program of --bench, and send its output."),
    ("entries", "Profile one launch with `ncu -k NAME -c 1`."),
    ("text", "If kernels and products are not as slow, the card waits for the host: a profile by `nsys profile` shows where."),
]


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(head, rows):
    clean = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in [head, ["---"] * len(head), *rows]]
    return "".join(f"| {' | '.join(row)} |\n" for row in clean) + "\n"


def passed(what, outcomes, otherwise):
    wrong = [name for name, is_right in outcomes.items() if not is_right]
    if not outcomes:
        return f"{what}: not run{otherwise}.\n\n"
    return f"{what}: {len(outcomes) - len(wrong)} of {len(outcomes)} passed{'; failed: ' + ', '.join(wrong) if wrong else ''}.\n\n"


def compare(numbers):
    """(times the H200's, what, measured, the H200's), slowest first."""
    compared = []
    for own in numbers:
        name = f"{own['of']}: {own['name']}"
        for theirs in [theirs for pattern, theirs in H200 if re.match(pattern, name)][:1]:
            ratio = own["value"] / theirs
            compared.append((1 / ratio if "/s" in own["unit"] else ratio, name, own, theirs))
    return sorted(compared, key=lambda one: -one[0])


def page(results):
    """One page for a person, from what was measured."""
    phases = results["phases"]
    steps = [(phase, name, step) for phase, of_phase in phases.items() for name, step in of_phase.items()]
    found = {phase: {key: value for step in of_phase.values() for key, value in step.get("found", {}).items()}
             for phase, of_phase in phases.items()}
    numbers = [own for _, _, step in steps for own in step.get("measured", [])]
    of_kernels = [own for phase, _, step in steps if phase == "kernels" for own in step.get("measured", [])]
    card = found.get("identity", {}).get("name") or found.get("check", {}).get("device", results["device"])
    card = results["device"] if card.startswith("problem") else card
    compared = [] if results["device"] == "emulated" else compare(numbers)

    text = f"# GPU check: {card}\n\n"
    if results["device"] == "emulated":
        text += "**Emulated on this machine's processor, to try the script itself: the times below mean nothing.**\n\n"
    if "refused" in results:
        text += (f"**Attention cannot be used here: {results['refused']}**\n\nNothing was run after that. Please send this page and "
                 "gpu-check.json. Where attention on a GPU differs from the host's, the program computes it on the host, and says so.\n\n")
    elif "attention" in found.get("check", {}):
        text += f"**Attention is {found['check']['attention']}.**\n\n"
    else:
        text += "**Whether attention is right is not known: the phase `check` was not run.**\n\n"
    text += "## What is right\n\n"
    goldens = {name: ended == "ok" for name, ended in found.get("goldens", {}).items()}
    text += passed("Goldens", goldens, " (give the test program with `--tests`)")
    sanitized = {name: step["exit"] == 0 for phase, name, step in steps if phase == "sanitizer" and "exit" in step}
    text += passed("compute-sanitizer", sanitized, "")
    failed = [[phase, name, step["exit"], "`" + step["said"][-300:].replace("`", "'") + "`"]
              for phase, name, step in steps if step.get("exit", 0) != 0]
    if failed:
        text += "Steps that failed:\n\n" + table(["phase", "step", "exit code", "last words"], failed)
    left_out = {"not run": [phase for phase in PHASES if phase not in phases]}
    for phase, name, step in steps:
        if "left out" in step:
            left_out.setdefault(step["left out"], []).append(name if name == phase else f"{phase} {name}")
    for why, names in left_out.items():
        text += f"Left out ({why}): {', '.join(names)}.\n\n" if names else ""

    text += "## Beside an H200\n\n"
    if compared:
        text += ("The first column is the measured time divided by that of the H200 in docs/gpu.md, or its rate by the measured one: above 1 "
                 "is slower.\n\n")
        text += table(["times the H200's", "what", "measured", "H200"], [
            [f"{ratio:.2f}", name, f"{number(own['value'])} {own['unit']}", f"{number(theirs)} {own['unit']}"]
            for ratio, name, own, theirs in compared])
    else:
        text += "Nothing is compared.\n\n"
    advice = [next(what for word, what in ADVICE if word in name) for ratio, name, *_ in compared if ratio > 2]
    if advice:
        text += "What to do, worst first:\n\n" + "".join(f"{at}. {one}\n" for at, one in enumerate(dict.fromkeys(advice), 1)) + "\n"

    text += "## What else was measured\n\n"
    others = [own for own in numbers if own not in of_kernels and all(own is not one[2] for one in compared)]
    if others:
        text += table(["of", "what", "measured"], [[own["of"], own["name"], f"{number(own['value'])} {own['unit']}"] for own in others])
    if of_kernels:
        sizes = sorted({int(re.search(r", (\d+) entries", own["of"])[1]) for own in of_kernels})
        cases = dict.fromkeys(own["of"] for own in of_kernels if f" {sizes[len(sizes) // 2]} entries" in own["of"])
        names = list(dict.fromkeys(own["name"] for own in of_kernels))
        values = {(own["of"], own["name"]): number(own["value"]) for own in of_kernels}
        text += "Kernels, median microseconds (µs) of a launch; gpu-check.json has the other sizes:\n\n"
        text += table(["cache", *names], [[case, *(values.get((case, name), "") for name in names)] for case in cases])

    text += "## The machine\n\n"
    machine = {key: value for key, value in found.get("identity", {}).items() if key != "nvidia-smi"}
    for phase, _, step in steps:
        if step.get("seen"):
            machine[f"during {phase}"] = ", ".join(f"{key} {value}" for key, value in step["seen"].items())
    text += table(["what", "found"], machine.items()) if machine else "The phase `identity` was not run.\n\n"
    text += ("## What to send\n\nThis page and `gpu-check.json` beside it, which has every number, every command and what failed steps "
             "printed. Say whether anything else ran on the card or the host, and where the machine is rented.\n")
    return text


def main(own, work):
    check = Check(own, work)
    try:
        for phase in own.phases if own.phases != ["page"] else []:
            if phase == "check":
                check.results.pop("refused", None)
            elif "refused" in check.results and phase != "identity":
                break
            check.run_phase(phase)
    except Refused as refused:
        check.results["refused"] = str(refused)
    check.save()
    print((own.out / "gpu-check.md").read_text())
    failed = any(step.get("exit", 0) != 0 for of_phase in check.results["phases"].values() for step in of_phase.values())
    return 1 if failed or "refused" in check.results else 0


signal.signal(signal.SIGPIPE, signal.SIG_DFL)
for ended in [signal.SIGINT, signal.SIGTERM]:
    signal.signal(ended, lambda number, _: sys.exit(128 + number))
with tempfile.TemporaryDirectory() as work:
    sys.exit(main(arguments(), pathlib.Path(work)))
PYTHON
