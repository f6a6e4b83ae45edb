"""The Python module against the command, against formulas, and against plain NumPy. Needs pytest and polars:

    pip install .[test] && pytest python/tests
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tova_bench as tb

TEXT = "Mara Fenwick lived in Oakford. The ship came in the night, and nobody knew why it had come. " * 6


@pytest.fixture(scope="module")
def model():
    return tb.load("pocket", threads=1)


def command(*arguments, **settings):
    program = [sys.executable, "-c", "import tova_bench; tova_bench.main()", *arguments]
    return subprocess.run(program, capture_output=True, text=True, **settings)


def test_scores_are_those_of_the_command(model, tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    for policy, size in [("full", None), ("tova", 24), ("h2o", 16), ("truncate", 20)]:
        more = ["--policy", policy] + (["--cache-size", str(size)] if size else [])
        ended = command("score", "--model", "pocket", "--text", "a.txt", *more, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        expected = json.loads(ended.stdout)
        score = model.score(TEXT, policy, size)
        nll = np.array([np.nan if one is None else one for one in expected["nll"]], np.float32)
        np.testing.assert_array_equal(score.nll, nll)
        assert [[group.tolist() for group in layer] for layer in score.survivors] == expected["survivors"]
        assert len(score.tokens) == len(score.nll) + 1 == len(score.pieces)
    assert "".join(score.pieces[1:]) == TEXT


def test_several_texts_are_scored_one_by_one(model):
    texts = [TEXT, TEXT[:100], model.tokens(TEXT[50:])]
    several = model.score((text for text in texts), "tova", 24)
    for text, score in zip(texts, several, strict=True):
        np.testing.assert_array_equal(score.nll, model.score(text, "tova", 24).nll)


@pytest.mark.parametrize("scope", ["layer", "head"])
@pytest.mark.parametrize("protected", [{}, {"keep_first": 2, "keep_recent": "25%"}])
@pytest.mark.parametrize(
    "formula, function",
    [
        ("attention", lambda step: step.attention.mean(0)),
        ("position - attention", lambda step: step.positions - step.attention.mean(0)),
        ("-abs(age - 10)", lambda step: -abs(float(step.positions[-1]) - step.positions.astype(float) - 10)),
    ],
)
def test_a_function_decides_as_its_formula(model, formula, function, scope, protected):
    mine = tb.Policy(function, identity=formula, scope=scope, **protected)
    written = tb.Policy(formula, scope=scope, **protected)
    for size in [8, 33]:
        a, b = (model.score(TEXT, policy, size, evictions=True) for policy in (mine, written))
        np.testing.assert_array_equal(a.evictions, b.evictions)
        np.testing.assert_array_equal(a.nll, b.nll)
        for layers in zip(a.survivors, b.survivors):
            np.testing.assert_array_equal(*layers)


def test_what_a_function_is_told(model):
    """Every step against the evictions before it: nothing else is in the cache."""
    size, seen = 12, {}

    def record(step):
        seen.setdefault((step.layer, step.head), []).append(step)
        np.testing.assert_allclose(step.attention.sum(1), 1, atol=1e-5)
        return step.attention.sum(0)

    score = model.score(TEXT, tb.Policy(record, scope="head"), size, evictions=True)
    assert len(seen) == sum(len(layer) for layer in score.survivors)
    for (layer, head), steps in seen.items():
        own = score.evictions[(score.evictions[:, 1] == layer) & (score.evictions[:, 2] == head)]
        living = set(range(size))
        for step, (at, _, _, position) in zip(steps, own, strict=True):
            living.add(int(at))
            assert step.positions.tolist() == sorted(living)
            living.remove(int(position))
            lowest = step.attention.astype(np.float64).sum(0)
            assert position == step.positions[np.argmin(lowest)]
        assert sorted(living) == score.survivors[layer][head].tolist()


def test_errors_are_exceptions(model):
    for call, error, words in [
        (lambda: model.score(TEXT, "toba", 8), ValueError, "toba"),
        (lambda: model.score(TEXT, "tova"), ValueError, "cache size"),
        (lambda: model.score([]), tb.Error, "no token"),
        (lambda: model.score([10**6]), tb.Error, "vocabulary"),
        (lambda: tb.load("./nowhere"), tb.Error, "nowhere"),
        (lambda: tb.Policy("atention"), ValueError, "atention"),
        (lambda: tb.Policy("attention", scope="all"), ValueError, "layer, head"),
        (lambda: tb.Policy("attention", schedule="cut+0"), ValueError, "schedule"),
        (lambda: model.score(TEXT, "tova", 8, schedule="cut"), ValueError, "there is none"),
        (lambda: model.score(TEXT, "tova", 8, schedule="cut", prompt=10**6), ValueError, "does not fit"),
        (lambda: model.score(TEXT, "tova", "0%", schedule=2), ValueError, "share"),
        (lambda: model.score(TEXT, "full", schedule=2), ValueError, "no meaning for the policy full"),
        (lambda: model.score(TEXT, tb.Policy(lambda step: [0.0]), 8), ValueError, "shape"),
        (lambda: model.score(TEXT, tb.Policy(lambda step: {}[1]), 8), KeyError, "1"),
        (lambda: model.write("a", temperature=-1), ValueError, "temperature"),
        (lambda: tb.run("nowhere.yaml"), ValueError, "nowhere.yaml"),
        (lambda: tb.load_results("nowhere"), tb.Error, "rows.parquet"),
    ]:
        with pytest.raises(error, match=words):
            call()
    # The model is as before.
    assert np.isfinite(model.score(TEXT, "tova", 8).nll).all()


def test_a_function_is_called_when_entries_leave(model):
    calls = []

    def newest(step):
        calls.append(len(step.positions))
        return step.positions

    tokens = model.tokens(TEXT)
    layers = len(model.score(tokens[:2]).survivors)
    cut = model.score(tokens, tb.Policy(newest, schedule="cut"), 8, prompt=20)
    assert calls == [20] * layers
    # The newest eight of the prompt, and all that follow it.
    assert all(layer[0].tolist() == list(range(12, len(tokens))) for layer in cut.survivors)
    calls.clear()
    in_bursts = model.score(tokens, tb.Policy(newest), 8, schedule=4)
    assert calls == [12] * (layers * ((len(tokens) - 8) // 4))
    assert all(layer[0].tolist() == list(range(len(tokens) - 8 - len(tokens) % 4, len(tokens))) for layer in in_bursts.survivors)
    share = model.score(tokens, "tova", "25%", schedule="cut", prompt=20)
    assert {len(group) for layer in share.survivors for group in layer} == {5 + len(tokens) - 20}


def test_heads_share_their_entries(model):
    of_heads = {"scope": "head", "budget": {"pool": "heads", "floor": "20%"}}
    mine = tb.Policy(lambda step: step.attention.mean(0), identity="attention", **of_heads)
    a, b = (model.score(TEXT, policy, 16) for policy in (mine, tb.Policy("attention", **of_heads)))
    alone = model.score(TEXT, "tova-head", 16)
    sizes = [[len(group) for group in layer] for layer in a.survivors]
    assert sizes == [[len(group) for group in layer] for layer in b.survivors]
    for layer, without in zip(sizes, alone.survivors):
        assert sum(layer) == sum(len(group) for group in without) and min(layer) >= 3
    assert any(len(set(layer)) > 1 for layer in sizes) or len(sizes[0]) == 1


def test_three_presses_cut_as_their_presets(model):
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "examples"))
    import presses

    prompt, tokens = 470, model.tokens(TEXT * 8)[:500]
    for function, preset, first in [
        (presses.snapkv, "snapkv", 0),
        (presses.expected_attention, "expected", 4),
        (presses.lagkv, "lagkv", 4),
    ]:
        mine = tb.Policy(function, scope="head", schedule="cut", keep_first=first)
        for size in [100, 200]:
            a, b = (model.score(tokens, policy, size, prompt=prompt) for policy in (mine, preset))
            both = [(set(x), set(y)) for one, other in zip(a.survivors, b.survivors) for x, y in zip(one, other)]
            kept, same = sum(len(x) for x, _ in both), sum(len(x & y) for x, y in both)
            # Both compute in their own order, and the text repeats itself, so some scores are as good as equal.
            assert same >= 0.999 * kept, f"{preset} at {size}: {same} of {kept}"
            assert {len(x) for x, _ in both} == {size + len(tokens) - prompt}


def test_the_method_of_the_research_page(model, tmp_path):
    """The function that docs/research.md writes keeps the keys farthest from their mean, by NumPy in float64 on the keys of the prompt."""
    page = (Path(__file__).parents[2] / "docs" / "research.md").read_text()
    files = dict(re.findall(r"^```\w+\n# (\S+\.(?:py|yaml))\n(.*?)^```$", page, re.M | re.S))
    own, keys = {}, {}
    exec(files["manifold.py"], own)

    def watched(step):
        keys[step.layer, step.head] = step.keys[0].astype(np.float64)
        return own["manifold"](step)

    score = model.score(TEXT, tb.Policy(watched, scope="head", schedule="cut"), 24, prompt=96)
    assert len(keys) == sum(len(heads) for heads in score.survivors)
    for (layer, head), all_keys in keys.items():
        distances = np.sqrt(((all_keys - all_keys.sum(0) / len(all_keys)) ** 2).sum(1))
        kept = [position for position in score.survivors[layer][head] if position < len(all_keys)]
        assert set(kept) == set(np.argsort(-distances, kind="stable")[:24])
    # The rows that the page makes are those that its benchmark asks about.
    subprocess.run([sys.executable, "-c", files["rows.py"]], cwd=tmp_path, check=True)
    (tmp_path / "contracts.yaml").write_text(files["contracts.yaml"])
    sweep = "models: [pocket]\npolicies: [full, keydiff@cut]\ncache_sizes: [25%]\ntasks:\n  - benchmark: {task: ./contracts.yaml, samples: 2}\n"
    (tmp_path / "few.yaml").write_text(sweep)
    planned = command("plan", "few.yaml", "--prompts", "1", cwd=tmp_path)
    assert planned.returncode == 0 and "According to section" in planned.stdout, planned.stderr


def test_what_a_function_sees_of_vectors_and_tokens(model):
    """Attention from keys and queries, and the queries' number, under every schedule."""
    tokens, asked = model.tokens(TEXT)[:90], []

    def check(step):
        before = step.state.get("seen", 0)
        step.state["seen"] = step.seen
        heads, entries = step.attention.shape
        assert step.queries.shape[:2] == (heads, step.seen - before)
        assert step.hidden.shape[0] == step.seen - before
        newest = step.rotate(step.queries[:, -1:], [step.seen - 1])
        per_head = np.repeat(step.keys, heads // len(step.keys), 0)
        logits = (newest @ per_head.transpose(0, 2, 1))[:, 0] * step.scale
        attention = np.exp(logits - logits.max(1, keepdims=True))
        np.testing.assert_allclose(attention / attention.sum(1, keepdims=True), step.attention, atol=1e-5)
        assert step.values.shape == step.keys.shape
        np.testing.assert_array_equal(step.token_ids, np.asarray(tokens)[step.positions])
        asked.append(step)
        return step.attention.sum(0)

    for scope in ["layer", "head"]:
        for schedule in [1, 7, "cut", "cut+5"]:
            mine = tb.Policy(check, scope=scope, schedule=schedule)
            formula = tb.Policy("attention", scope=scope, schedule=schedule)
            a, b = (model.score(tokens, policy, 20, prompt=50) for policy in (mine, formula))
            np.testing.assert_array_equal(a.nll, b.nll)
    # A prompt is read once and continued twice, each time with a state of its own.
    def count(step):
        step.state.setdefault("calls", []).append(step.seen)
        assert step.state["calls"] == list(range(5, step.seen + 1))
        return step.queries.sum() + step.positions

    assert all(len(text.tokens) for text in model.write("The ship came in", tb.Policy(count), 4, max_new_tokens=20, n=2, temperature=1))
    with pytest.raises(RuntimeError, match="only while the function"):
        asked[0].state


def test_texts_are_those_of_the_command(model, tmp_path):
    settings = ["--temperature", "0.9", "--seed", "4", "--batch", "2", "--max-new-tokens", "9"]
    tokens = model.tokens("Once upon a time").tolist()
    (tmp_path / "tokens.json").write_text(json.dumps(tokens))
    ended = command("write", "--model", "pocket", "--tokens", tmp_path / "tokens.json", *settings)
    expected = json.loads(ended.stdout)["texts"]
    texts = model.write("Once upon a time", temperature=0.9, seed=4, n=2, max_new_tokens=9)
    assert [text.tokens.tolist() for text in texts] == [text["tokens"] for text in expected]
    assert [text.text for text in texts] == [text["text"] for text in expected]


SWEEP = """
models: [pocket]
policies: [full, mine, tova]
cache_sizes: [16, 64]
tasks: [{perplexity: {dataset: embedded, length: 256, books: 2, chunks_per_book: 1}}]
"""


def test_a_page_is_that_of_the_command(model, tmp_path):
    (tmp_path / "the text").write_text(TEXT)
    more = ["--policy", "tova", "--cache-size", "24", "--against-size", "16", "--at", "50", "-o", "page.html"]
    ended = command("show", "--model", "pocket", "--text", "the text", *more, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    page = tb.show(model, TEXT, "tova", 24, against={"cache_size": 16}, at=50)
    page.save(tmp_path / "mine.html")
    assert (tmp_path / "mine.html").read_text() == (tmp_path / "page.html").read_text()
    assert page._repr_html_().startswith("<iframe srcdoc=\"&lt;!DOCTYPE html&gt;")
    # Two policies of one's own stand side by side under two names.
    score = lambda step: step.attention.mean(0)
    pair = model.show(TEXT, tb.Policy(score), 16, against=tb.Policy("last_attention", scope="head")).html
    assert "own policy with 16 entries" in pair and "own policy 2 with 16 entries" in pair


def test_a_sweep_with_policies_of_ones_own(tmp_path):
    sweep = tmp_path / "own.yaml"
    sweep.write_text(SWEEP)
    mine = tb.Policy(lambda step: step.attention.mean(0), identity="as TOVA")
    oldest = tb.Policy(lambda step: step.positions, identity="as a window")
    events = []
    results = tmp_path / "out"
    folder = tb.run(
        sweep, {"mine": mine, "oldest": oldest}, results=results, threads=1, report=False, progress=lambda *e: events.append(e)
    )
    rows = tb.load_results(folder)
    nll = {}
    for row in rows.filter(rows["metric"] == "nll", rows["slice"].is_null()).iter_rows(named=True):
        nll.setdefault((row["policy"], row["cache_size"]), []).append(row["value"])
    assert sorted({policy for policy, _ in nll}) == ["full", "mine", "oldest", "tova"]
    for size in [16, 64]:
        assert nll["mine", size] == nll["tova", size]
        assert nll["oldest", size] != nll["tova", size]
    assert len(events) == 14, "two samples of seven cells"
    # Another identity is another cell; the same is there already.
    again = []
    tb.run(sweep, {"mine": mine, "oldest": oldest}, results=results, report=False, progress=lambda *e: again.append(e))
    assert again == []
    other = tb.Policy(lambda step: step.attention.mean(0), identity="as TOVA, again")
    tb.run(sweep, {"mine": other}, results=results, report=False, progress=lambda *e: again.append(e))
    assert {event[1] for event in again} == {"mine"}


def test_the_interpreter_is_free_meanwhile(model):
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    clock = threading.Thread(target=tick)
    clock.start()
    try:
        began = time.monotonic()
        model.score(TEXT * 12, "tova", 64)
        ended = time.monotonic()
    finally:
        done.set()
        clock.join()
    assert sum(began < at < ended for at in ticks) >= 3


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_ends_a_read(model):
    # A shell that starts the tests in the background has them ignore the signal, and then Python installs no handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    tokens = model.tokens(TEXT * 400)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        model.score(tokens, tb.Policy(lambda step: step.attention.mean(0)), 64)
    timer.join()
    signal.signal(signal.SIGINT, before)
    assert np.isfinite(model.score(TEXT, "tova", 8).nll).all()
