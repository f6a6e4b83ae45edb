#!/usr/bin/env python3
"""Opens a report.html in headless Chromium and uses it: python .ci/checks/page_check.py PAGE FOLDER

Fails (exit code 1) on a message of the console, an exception, a request that leaves the page, a script that did not get
to its end, a page wider than a phone's screen of 375 pixels, a first screen without a figure or table, a wide table that
does not say that it scrolls, or a control that does not do what it says. Pictures of
the page (light, dark, phone, paper) and what it lets one download go into FOLDER.

Needs chromium (or CHROMIUM=path) and `pip install websocket-client`.
"""

import base64
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import websocket


class Browser:
    """A headless Chromium with one tab, spoken to over the DevTools protocol."""

    def __init__(self, folder):
        program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
        if program is None:
            sys.exit("no chromium found\nhint: install it, or set CHROMIUM to its path")
        self.profile = tempfile.mkdtemp()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
        ports = ["--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={self.profile}"]
        self.process = subprocess.Popen([program, *flags, *ports, "about:blank"], stderr=subprocess.DEVNULL)
        port = self.wait(lambda: (Path(self.profile) / "DevToolsActivePort").read_text().split()[0])
        tabs = self.wait(lambda: json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json")))
        tab = next(tab for tab in tabs if tab["type"] == "page")
        self.socket = websocket.create_connection(tab["webSocketDebuggerUrl"], timeout=120)
        self.number = 0
        self.events = []
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.ask(f"{domain}.enable")
        # Without this a page in the background gets no focus events.
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        self.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder.resolve()))

    @staticmethod
    def wait(attempt, seconds=30):
        end = time.monotonic() + seconds
        while True:
            try:
                return attempt()
            except Exception:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def ask(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def run(self, script):
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def screen(self, width, height, dark=False, phone=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)

    def picture(self, path, whole=False):
        clip = {}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12000), "scale": 1}}
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def press(self, key, code):
        for kind in ["keyDown", "keyUp"]:
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


# The first table with two numbers in one column, and the values it sorts by, row by row.
NUMBERS = "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.dataset.v ?? ''))"
FIRST = f"[...document.querySelectorAll('.part .sheet:not(.off) table')].find(table => {{ const rows = ({NUMBERS})(table); return rows.length > 1 && rows[0].some((_, at) => rows.filter(row => row[at] !== '').length > 1); }})"
FIRST_TABLE = f"({NUMBERS})({FIRST})"
SHOWN_NUMBERS = "Number(document.querySelector('.count').textContent.split(' ')[0])"
OPEN_ALL = "document.querySelectorAll('details.fold').forEach(fold => { fold.open = true; })"


def check_sorting(browser, expect):
    # A page of words only, such as claims, has nothing to sort.
    if browser.run(f"!{FIRST}"):
        return
    before = browser.run(FIRST_TABLE)
    column = next(at for at in range(len(before[0])) if sum(row[at] != "" for row in before) > 1)
    click = f"{FIRST}.tHead.rows[0].cells[{column}].querySelector('button').click()"
    browser.run(click)
    up = [float(row[column]) for row in browser.run(FIRST_TABLE) if row[column] != ""]
    expect(up == sorted(up), f"sorting up gives {up}")
    browser.run(click)
    down = [float(row[column]) for row in browser.run(FIRST_TABLE) if row[column] != ""]
    expect(down == sorted(down, reverse=True), f"sorting down gives {down}")
    browser.run(click)
    expect(browser.run(FIRST_TABLE) == before, "a third click gives the first order back")


def check_first_screen(browser, expect):
    """What was asked and the beginning of the first figure or table, without scrolling."""
    top = browser.run("document.querySelector('main .figure, main .sheet').getBoundingClientRect().top + scrollY")
    height = browser.run("innerHeight")
    expect(top < 0.8 * height, f"the first figure begins at {top:.0f} of {height} pixels")


def check_hints(browser, expect):
    """Tables wider than their box say that they scroll, and others do not."""
    # Observers of sizes run before the next frame is painted.
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    wrong = "[...document.querySelectorAll('.box')].filter(box => !box.closest('details:not([open])') && (box.scrollWidth > box.clientWidth) !== box.classList.contains('scrolls')).map(box => box.getAttribute('aria-label'))"
    expect(browser.run(wrong) == [], f"hints to scroll are wrong: {browser.run(wrong)}")


def check_filter(browser, expect):
    total = browser.run(SHOWN_NUMBERS)
    expect(total > 0, "no numbers are shown")
    boxes = "document.querySelectorAll('.menu[data-facet=policy] input')"
    if browser.run(f"{boxes}.length") > 1:
        policy = browser.run(f"{boxes}[{boxes}.length - 1].value")
        browser.run(f"{boxes}[{boxes}.length - 1].click()")
        left = f"[...document.querySelectorAll('tr[data-policy], .line[data-policy], .legend [data-policy]')].filter(e => e.dataset.policy === {json.dumps(policy)} && !e.closest('.off')).length"
        expect(browser.run(left) == 0, f"{policy} is still shown")
        expect(browser.run(SHOWN_NUMBERS) < total, "the count does not follow the filter")
        browser.run("document.getElementById('reset').click()")
    search = "(text => { const box = document.querySelector('.controls input[type=search]'); box.value = text; box.dispatchEvent(new Event('input')); })"
    browser.run(f"{search}('no such thing anywhere')")
    expect(browser.run(SHOWN_NUMBERS) == 0, "words that occur nowhere leave numbers")
    browser.run("document.getElementById('reset').click()")
    expect(browser.run(SHOWN_NUMBERS) == total, "reset does not bring all numbers back")
    expect(browser.run("document.querySelectorAll('.off').length") == 0, "reset leaves parts of the page hidden")


def check_switches(browser, expect):
    choose = "((text, value) => { const label = [...document.querySelectorAll('.controls label')].find(l => l.textContent.startsWith(text)); const s = label.querySelector('select'); s.value = value; s.dispatchEvent(new Event('change')); })"
    if browser.run("!!document.querySelector('.both')"):
        shown = "[...document.querySelectorAll('.both > .scale:not(.excess)')].filter(e => getComputedStyle(e).display !== 'none').map(e => e.className)"
        expect(set(browser.run(shown)) == {"scale linear"}, "the linear axis is not the first")
        browser.run(f"{choose}('Axis', 'log')")
        expect(set(browser.run(shown)) == {"scale log"}, "the axis does not switch")
        browser.run(f"{choose}('Axis', 'linear')")
    background = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(background)
    browser.run(f"{choose}('Colours', 'dark')")
    expect(browser.run(background) != light, "the colours do not switch")
    browser.run(f"{choose}('Colours', '')")


def check_points(browser, expect):
    if browser.run("!document.querySelector('.line .pt')"):
        return
    browser.run(OPEN_ALL)
    browser.run("document.querySelector('.line .pt').focus()")
    tip = "document.getElementById('tip')"
    expect(browser.run(f"!{tip}.hidden && {tip}.textContent.length > 10"), "a focused point tells nothing")
    said = browser.run(f"{tip}.textContent")
    alone = browser.run("document.querySelector('.line .pt').parentNode.querySelectorAll('.pt').length") < 2
    browser.press("ArrowRight", 39)
    expect(alone or browser.run(f"{tip}.textContent") != said, "the arrow does not go to the next point")
    browser.press("Escape", 27)
    expect(browser.run(f"{tip}.hidden"), "escape leaves the tip")


def check_samples(browser, expect):
    if browser.run("!document.querySelector('#drill select')"):
        return
    settings = browser.run("document.querySelector('#drill select').options.length")
    for at in range(settings):
        browser.run(f"(s => {{ s.selectedIndex = {at}; s.dispatchEvent(new Event('change')); }})(document.querySelector('#drill select'))")
        expect(browser.run("!!document.querySelector('#drill h3')"), f"setting {at} shows no sample")
        before = browser.run("document.querySelector('#drill h3').textContent")
        browser.run("[...document.querySelectorAll('#drill button')].find(b => b.textContent === 'Next').click()")
        samples = browser.run("JSON.parse(document.getElementById('rows').textContent).map(home => home.samples.length)")
        after = browser.run("document.querySelector('#drill h3').textContent")
        expect(before != after or max(samples) < 2 or 1 in samples, f"setting {at}: no next sample after {before}")


def check_downloads(browser, expect, folder):
    name = folder / "sample.csv"
    name.unlink(missing_ok=True)
    if browser.run("!document.getElementById('save-rows')"):
        return
    browser.run("document.getElementById('save-rows').click()")
    try:
        rows = list(csv.reader(browser.wait(lambda: name.open(newline=""), 10)))
    except OSError:
        expect(False, f"{name} was not saved")
        return
    expect(len(rows) > 1 and len({len(row) for row in rows}) == 1, f"{name} is no table")


def check_page(page, folder):
    folder.mkdir(parents=True, exist_ok=True)
    browser = Browser(folder)
    wrong = []

    def expect(holds, what):
        if not holds:
            wrong.append(what)

    try:
        browser.screen(1280, 900)
        url = page.resolve().as_uri()
        began = time.monotonic()
        browser.ask("Page.navigate", url=url)
        try:
            browser.wait(lambda: 1 / (browser.run("document.documentElement.dataset.ready") == "yes"), 60)
        except ZeroDivisionError:
            wrong.append("the script did not get to its end")
        print(f"open after {time.monotonic() - began:.1f} s")
        browser.picture(folder / "light.png")
        browser.picture(folder / "light-whole.png", whole=True)
        if not wrong:
            check_first_screen(browser, expect)
            check_sorting(browser, expect)
            check_filter(browser, expect)
            check_switches(browser, expect)
            check_points(browser, expect)
            check_samples(browser, expect)
            check_downloads(browser, expect, folder)
        browser.screen(1280, 900, dark=True)
        browser.picture(folder / "dark.png", whole=True)
        browser.screen(390, 844, phone=True)
        browser.ask("Page.reload")
        browser.wait(lambda: 1 / (browser.run("document.documentElement.dataset.ready") == "yes"), 60)
        check_first_screen(browser, expect)
        browser.picture(folder / "phone-first.png")
        browser.screen(375, 800, phone=True)
        for state, script in [("", "0"), (" with all sections open", OPEN_ALL)]:
            browser.run(script)
            width = browser.run("document.documentElement.scrollWidth")
            expect(width <= 375, f"{width} pixels wide on a phone{state}")
            check_hints(browser, expect)
            if not state:
                browser.picture(folder / "phone.png", whole=True)
        browser.picture(folder / "phone-open.png", whole=True)
        browser.screen(1280, 900)
        browser.picture(folder / "open.png", whole=True)
        browser.run("document.querySelectorAll('details.fold').forEach(fold => { fold.open = false; })")
        paper = browser.ask("Page.printToPDF", printBackground=True, transferMode="ReturnAsBase64")
        (folder / "paper.pdf").write_bytes(base64.b64decode(paper["data"]))
        for event in browser.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                wrong.append(f"exception: {details.get('exception', {}).get('description', details['text'])}")
            elif method == "Runtime.consoleAPICalled":
                wrong.append(f"console: {parameters['type']} {parameters['args']}")
            elif method == "Log.entryAdded":
                wrong.append(f"log: {parameters['entry']['level']} {parameters['entry']['text']}")
            elif method == "Network.requestWillBeSent":
                asked = parameters["request"]["url"]
                own = asked == url or asked.startswith(("data:", f"blob:{'null' if url.startswith('file:') else url}"))
                expect(own, f"request: {asked[:200]}")
    finally:
        browser.close()
    return wrong


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    page, folder = Path(sys.argv[1]), Path(sys.argv[2])
    if not page.is_file():
        sys.exit(f"{page} is no file\nhint: name the report.html that `tova-bench report` wrote")
    wrong = check_page(page, folder)
    for what in wrong:
        print(f"wrong: {what}")
    print(f"{page}: {'fine' if not wrong else f'{len(wrong)} things are wrong'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
