#!/usr/bin/env python3
"""Opens pages of `tova-bench show` in headless Chromium and reads their numbers back: python .ci/checks/show_check.py PROGRAM FOLDER [MODEL]

At three steps of a text the shade of every token must follow from the survivors that `score` has for as many tokens, for policies by
layer and by head, bursts, a cut, pools, several layers and heads, text from right to left, Chinese, and bytes that are no characters. So must
NLLs. Then the page is used: by keyboard, at 390 pixels, dark, on paper, without scripts. Says how large a page of 4,096 tokens is, and
how long it takes until it can be used. Pictures go into FOLDER. Fails (exit code 1) on the first difference.

Needs chromium (or CHROMIUM=path) and `pip install websocket-client`.
"""

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

from page_check import Browser

SHADES = 10
DEFINE = "define: {pooled: {score: last_attention, scope: head, budget: {pool: heads, floor: 20%}}}\n"
LATIN = "The ferry crossed before dawn, and nobody saw who came ashore. <script>alert('\"')</script> & so on.\n\n" * 6
OTHER = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd, \u0645\u0631\u062d\u0628\u0627. \u4f60\u597d\uff0c\u4e16\u754c\u3002 \U0001f980 na\u00efve \u202eturned\u202c\x00\x01 end. " * 6
SETTINGS = [
    (LATIN, {"policy": "tova", "cache_size": 24}),
    (LATIN, {"policy": "tova-head", "cache_size": 24}),
    (LATIN, {"policy": "h2o", "cache_size": 24, "schedule": 16}),
    (LATIN, {"policy": "tova", "cache_size": 40, "schedule": "cut", "prompt": 80}),
    (LATIN, {"policy": "pooled", "cache_size": 24}),
    (LATIN, {"policy": "window+4", "cache_size": 24}),
    # Longer than the windows of models that have some.
    (LATIN * 6, {"policy": "tova", "cache_size": 600}),
    (LATIN * 6, {"policy": "tova", "cache_size": 40, "local_layers": "exempt"}),
    (OTHER, {"policy": "tova", "cache_size": 24}),
    (OTHER, {"policy": "h2o", "cache_size": 24}),
]
CLASSES = "[...document.querySelector('.text').children].map(span => span.className.split(' ')[0])"


class Program:
    def __init__(self, path, folder, model):
        self.path, self.folder, self.model = path, folder, model
        (folder / "own.yaml").write_text(DEFINE)

    def run(self, *arguments):
        ended = subprocess.run([self.path, *arguments], cwd=self.folder, capture_output=True, text=True)
        expect(ended.returncode == 0, f"{' '.join(arguments)}: {ended.stderr}")
        return ended.stdout

    def show(self, text, output, *arguments):
        (self.folder / "text.txt").write_text(text, encoding="utf-8")
        self.run("show", "--model", self.model, "--text", "text.txt", "--define", "own.yaml", *arguments, "-o", output)

    def score(self, request):
        """What `score` says of a text or of tokens, with the evictions."""
        (name, read), *settings = request.items()
        (self.folder / "read").write_text(read if name == "text" else json.dumps(read), encoding="utf-8")
        flags = [part for key, value in settings for part in (f"--{key.replace('_', '-')}", str(value))]
        return json.loads(self.run("score", "--model", self.model, "--define", "own.yaml", "--evictions", f"--{name}", "read", *flags))


def expect(holds, message):
    if not holds:
        sys.exit(f"show_check: {message}")


def open_page(browser, path):
    browser.ask("Page.navigate", url=path.resolve().as_uri())
    browser.wait(lambda: expect_ready(browser))


def expect_ready(browser):
    if not browser.run("document.readyState === 'complete' && typeof shown === 'object'"):
        raise RuntimeError("not yet")


def shade(groups, tokens, read, total):
    """The class of a unit by the survivors of each group, as the documentation says it."""
    if tokens[0] >= read:
        return "unread"
    if read <= tokens[-1] + 1 and read < total:
        return "now"
    held, everything = sum(token in group for group in groups for token in tokens), len(groups) * len(tokens)
    if held in (0, everything):
        return "h0" if held == 0 else f"h{SHADES}"
    return f"h{min(max(held * SHADES // everything, 1), SHADES - 1)}"


def check_numbers(browser, program, text, settings):
    flags = [part for key, value in settings.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    program.show(text, "page.html", *flags)
    whole = program.score({"text": text, **settings})
    tokens = whole["tokens"]
    open_page(browser, program.folder / "page.html")
    data = json.loads(browser.run("document.getElementById('data').textContent"))
    expect(data["tokens"] == len(tokens), f"{data['tokens']} tokens, and score has {len(tokens)}")
    nll = browser.run("[...shown.sides[0].nll]")
    expect(all(abs(a - b) < 1e-6 for a, b in zip(nll, whole["nll"], strict=True)), f"{settings}: NLLs differ")
    counts = data["counts"] or [1] * len(tokens)
    units, first = [], 0
    for count in counts:
        units.append(range(first, first + count))
        first += count
    steps = [len(tokens) // 2, 3 * len(tokens) // 4, len(tokens)]
    answers = [program.score({"tokens": tokens[:step], **settings}) for step in steps]
    # In a layer with a window of the model the oldest survivor may be one that no later token sees: the log of one token more says so.
    more = [program.score({"tokens": tokens[: step + 1], **settings}) for step in steps]
    for step, answer, later in zip(steps, answers, more, strict=True):
        for read, layer, head, victim in later["evictions"]:
            group = answer["survivors"][layer][head]
            if read < step and victim in group:
                group.remove(victim)
        groups = [set(group) for layer in answer["survivors"] for group in layer]
        browser.run(f"shown.go({step})")
        expected = [shade(groups, unit, step, len(tokens)) for unit in units]
        found = browser.run(CLASSES)
        wrong = [at for at, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]]
        expect(not wrong, f"{settings} after {step}: units {wrong[:5]} are {[found[at] for at in wrong[:5]]}")
        # One layer, and one of its heads, alone.
        layer = answer["survivors"][-1]
        choose = f"const pick = (name, value) => {{ const select = document.querySelector(`select[aria-label=${{name}}]`); select.value = value; select.dispatchEvent(new Event('change')); }}; pick('Layer', {len(answer['survivors']) - 1})"
        browser.run(f"(() => {{ {choose}; pick('Head', {len(layer) - 1 if len(layer) > 1 else -1}); }})()")
        expected = [shade([set(layer[-1])], unit, step, len(tokens)) for unit in units]
        expect(browser.run(CLASSES) == expected, f"{settings} after {step}: the last head of the last layer differs")
        browser.run(f"(() => {{ {choose.rsplit(';', 1)[0]}; pick('Head', -1); pick('Layer', -1); }})()")
    shown = browser.run("document.querySelector('.text').textContent")
    expect("\x00" not in shown and "\u202e" not in shown, "control characters are on the page")
    if text.startswith(LATIN):
        expect("<script>alert('\"')</script>" in shown, "the text is not shown as it is")


def check_use(browser, program):
    program.show(LATIN, "page.html", "--policy", "tova", "--cache-size", "24", "--against", "h2o", "--at", "90")
    page = program.folder / "page.html"
    open_page(browser, page)
    browser.run("document.querySelector('.text').focus()")
    for _ in range(3):
        browser.press("ArrowRight", 39)
    browser.run("document.querySelector('#read').focus()")
    browser.press("ArrowLeft", 37)
    expect(browser.run("document.querySelector('output').textContent").startswith("89 of"), "the slider has no keys")
    expect(not browser.run("document.querySelector('#token').hidden"), "arrow keys choose no token")
    browser.run("document.querySelector('.text').focus()")
    browser.press("Escape", 27)
    expect(browser.run("document.querySelector('#token').hidden"), "Escape closes nothing")
    browser.run("document.querySelector('.peaks a').click()")
    expect(browser.run("document.querySelectorAll('.chosen').length") == 2, "a link to a cost chooses no token")
    for width, dark in [(1280, False), (1280, True), (390, False), (390, True)]:
        browser.screen(width, 900 if width > 400 else 844, dark=dark, phone=width < 400)
        browser.run("scrollTo(0, 0)")
        time.sleep(0.3)
        browser.picture(program.folder / f"show-{width}-{'dark' if dark else 'light'}.png")
        wide = browser.run("document.documentElement.scrollWidth")
        expect(wide <= width, f"the page is {wide} pixels wide on a screen of {width}")
    (program.folder / "show.pdf").write_bytes(base64.b64decode(browser.ask("Page.printToPDF", printBackground=True)["data"]))
    browser.screen(1280, 900)
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    browser.ask("Page.navigate", url=page.resolve().as_uri())
    time.sleep(1)
    browser.picture(program.folder / "show-still.png")
    browser.ask("Emulation.setScriptExecutionDisabled", value=False)


def check_speed(browser, program):
    text = " ".join(f"Item {number} stood between {number * 7 % 101} others." for number in range(600))
    tokens = program.score({"text": text})["tokens"][:4096]
    (program.folder / "tokens.json").write_text(json.dumps([token % 49152 for token in tokens]))
    layers = ["--model", "random-h64-l30-a4-k4-f128-v49152", "--tokens", "tokens.json"]
    program.run("show", *layers, "--policy", "tova", "--cache-size", "256", "--against", "tova-head", "-o", "long.html")
    page = program.folder / "long.html"
    started = time.monotonic()
    open_page(browser, page)
    ready = time.monotonic() - started
    measure = "(() => { const start = performance.now(); for (let at = 1; at <= 40; at++) shown.go(at * 100); return (performance.now() - start) / 40; })()"
    for slower in (1, 4):
        browser.ask("Emulation.setCPUThrottlingRate", rate=slower)
        print(f"{len(tokens)} tokens x 30 layers, two caches, a processor {slower} times slower: {browser.run(measure):.1f} ms a step")
    browser.ask("Emulation.setCPUThrottlingRate", rate=1)
    print(f"{page.stat().st_size / 1e6:.2f} MB, ready after {ready:.2f} s")


def main():
    path, folder = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    program = Program(path, folder, sys.argv[3] if len(sys.argv) > 3 else "pocket")
    browser = Browser(folder)
    try:
        browser.screen(1280, 900)
        for text, settings in SETTINGS:
            check_numbers(browser, program, text, settings)
            print("equal:", settings)
        check_use(browser, program)
        check_speed(browser, program)
        bad = [event["params"] for event in browser.events if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
        expect(not bad, f"the browser reports {bad[:2]}")
        loads = [event["params"]["request"]["url"] for event in browser.events if event.get("method") == "Network.requestWillBeSent"]
        expect(all(url.startswith("file:") for url in loads), f"the page loads {loads}")
    finally:
        browser.close()


main()
