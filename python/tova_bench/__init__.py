"""How small can a transformer's key-value cache be?

The engine of the command ``tova-bench`` for Python: exact reads of a text under a bounded cache, with the policies of the
literature or one of your own, and sweeps over models, policies and cache sizes.

    import tova_bench as tb

    model = tb.load("./SmolLM2-135M-Instruct.Q4_1.gguf")
    result = model.score("Once upon a time ...", policy="tova", cache_size=256)
    mine = tb.Policy(lambda step: step.attention.mean(0), keep_recent=16)
    folder = tb.run("sweep.yaml", policies={"mine": mine})
    rows = tb.load_results(folder)
"""

from __future__ import annotations

import hashlib
import html
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Union, overload

import numpy as np

# The engine has its own threads, so candle must compute each product in the calling thread.
os.environ["CANDLE_NUM_THREADS"] = "1"

from ._native import Error, Policy as _Policy  # noqa: E402
from . import _native  # noqa: E402

__all__ = ["Error", "Model", "Page", "Policy", "Score", "Step", "Text", "load", "load_results", "main", "rotate", "run", "show"]

#: A text, or its token ids, to which nothing is added.
Tokens = Union[str, Sequence[int], np.ndarray]


@dataclass(frozen=True)
class Step:
    """What a policy knows when it chooses the entry that leaves: the entries of one decision, the newest included."""

    #: The layer, from 0.
    layer: int
    #: The key-value head under ``scope="head"``, else 0.
    head: int
    #: Tokens of the text that have been read.
    seen: int
    #: Positions of the entries' tokens in the text, ascending: (entries,)
    positions: np.ndarray
    #: The attention that the newest token's query pays to them: (query heads of the decision, entries). Rows sum to 1.
    attention: np.ndarray

    # What follows is fetched when it is asked for, which is possible only while the function is called, and in its thread.

    @cached_property
    def keys(self) -> np.ndarray:
        """The entries' keys as they are rotated now: (key-value heads of the decision, entries, dim)."""
        return _array("keys")

    @cached_property
    def values(self) -> np.ndarray:
        """The entries' values: (key-value heads of the decision, entries, dim)."""
        return _array("values")

    @cached_property
    def queries(self) -> np.ndarray:
        """Queries before their rotation, of the tokens read since the last call, the newest last: (query heads of the decision, tokens,
        dim). At every token that is one; where a prompt is cut, all of the prompt."""
        return _array("queries").transpose(1, 0, 2)

    @cached_property
    def hidden(self) -> np.ndarray:
        """What the layer's projections read of the same tokens: (tokens, hidden)."""
        return _array("hidden")

    @cached_property
    def token_ids(self) -> np.ndarray:
        """The ids of the entries' tokens: (entries,)."""
        return _array("token_ids", np.uint32)

    @property
    def scale(self) -> float:
        """What products of the newest query with keys are multiplied by to be logits."""
        return _native.step_scale()

    @property
    def state(self) -> dict[Any, Any]:
        """A dictionary of your own for this layer, head and text, empty at the first call. A text that is read on in two ways has a deep
        copy of it for each."""
        return _native.step_state()

    def rotation(self, positions: Any) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines of the layer's rotation at some positions: (positions, pairs of dimensions) each."""
        positions = np.asarray(positions, float)
        return tuple(np.frombuffer(x, np.float32).reshape(len(positions), -1) for x in _native.step_rotation(positions.tolist()))

    def rotate(self, x: np.ndarray, positions: Any) -> np.ndarray:
        """Vectors (..., positions, dim) rotated to these positions."""
        return rotate(x, *self.rotation(positions))


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Vectors (..., dim) with the pairs (j, j + pairs) of their dimensions rotated by angles (..., pairs)."""
    pairs = cos.shape[-1]
    a, b, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def _array(name: str, of: Any = np.float32) -> np.ndarray:
    buffer, sides = _native.step_array(name)
    return np.frombuffer(buffer, of).reshape(sides)


class Policy:
    """A policy of your own: which entry leaves a full cache.

    ``score`` is a formula as under ``define:`` of a sweep, such as ``"ema(attention, 0.95)"``, or a function that gives every
    entry of a :class:`Step` a number. The entry with the lowest score leaves, the oldest of equal ones. A function is exact and
    slow: it is called for every layer and every token that is read into a full cache, or as often as the schedule says.

    ``scope``: ``"layer"`` for one decision of all heads, ``"head"`` for one of each key-value head. ``keep_first`` and
    ``keep_recent`` protect so many tokens, or a share of the cache such as ``"50%"``. ``schedule``: when entries leave, ``1``
    (after every token), a number (so many at once), ``"cut"`` (once, after the prompt) or ``"cut+16"``. ``budget``: sizes by layer or
    head as in a sweep, such as ``{"pool": "heads", "floor": "20%"}``.

    A function is part of a cell's id by a digest of ``identity``; by default that is its source, without what it refers to.
    Change ``identity`` where that changes.
    """

    def __init__(
        self,
        score: str | Callable[[Step], Any],
        *,
        scope: str = "layer",
        keep_first: int | str = 0,
        keep_recent: int | str = 0,
        schedule: str | int = 1,
        budget: dict[str, Any] | None = None,
        identity: str | None = None,
    ):
        definition = {
            "scope": scope,
            "keep_first": keep_first,
            "keep_recent": keep_recent,
            "schedule": schedule,
            "budget": budget,
        }
        if callable(score):
            definition["score"] = "attention"
            identity = _source(score) if identity is None else identity
            digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
            native = _Policy(json.dumps({"define": {"own": definition}}), _called(score), digest)
        else:
            definition["score"] = score
            native = _Policy(json.dumps({"define": {"own": definition}}))
        self._native = native


def _source(function: Callable[[Step], Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        raise ValueError(
            "the source of the function cannot be found; say with identity= what it computes, as cells are known by that"
        ) from None


def _called(function: Callable[[Step], Any]) -> Callable[..., bytes]:
    def call(layer: int, head: int, seen: int, positions: bytes, attention: bytes) -> bytes:
        positions = np.frombuffer(positions, np.uint32)
        step = Step(layer, head, seen, positions, np.frombuffer(attention, np.float32).reshape(-1, len(positions)))
        scores = np.asarray(function(step), np.float64)
        if scores.shape != positions.shape:
            raise ValueError(f"a policy returned scores of shape {scores.shape} for {len(positions)} entries")
        return scores.tobytes()

    return call


@dataclass(frozen=True)
class Score:
    """What reading one text under a bounded cache gives."""

    #: Token ids, BOS included where the tokenizer adds it: (tokens,)
    tokens: np.ndarray
    #: Negative log-likelihood in nats of each token after the first; NaN where nothing comes before it: (tokens - 1,)
    nll: np.ndarray
    #: For each layer and decision the positions of the tokens that survive the last: (entries,); one decision under scope layer.
    survivors: list[list[np.ndarray]]
    #: With ``evictions=True`` every eviction as (step, layer, head, position): (evictions, 4). Empty otherwise.
    evictions: np.ndarray
    _model: Model

    @property
    def pieces(self) -> list[str]:
        """The text of each token."""
        return self._model.pieces(self.tokens)

    @property
    def perplexity(self) -> float:
        return float(np.exp(np.nanmean(self.nll, dtype=np.float64)))


@dataclass(frozen=True)
class Text:
    """A text that a model wrote."""

    text: str
    #: (tokens,)
    tokens: np.ndarray
    #: Whether a stop token or string ended it, and not the limit.
    ended: bool


class Model:
    """A loaded model; see :func:`load`."""

    def __init__(self, native: Any):
        self._native = native

    def tokens(self, text: Tokens, *, chat: bool = False) -> np.ndarray:
        """Token ids of a text, with BOS where the tokenizer adds it; with ``chat`` inside the model's chat template."""
        ids = self._native.encode(text, chat) if isinstance(text, str) else [int(token) for token in text]
        return np.asarray(ids, np.uint32)

    def pieces(self, tokens: Sequence[int] | np.ndarray) -> list[str]:
        """The text of each token."""
        return self._native.pieces([int(token) for token in tokens])

    @overload
    def score(self, texts: Tokens, **settings: Any) -> Score: ...
    @overload
    def score(self, texts: Iterable[Tokens], **settings: Any) -> list[Score]: ...

    def score(
        self,
        texts: Any,
        policy: str | Policy = "full",
        cache_size: int | str | None = None,
        *,
        schedule: str | int | None = None,
        prompt: int | None = None,
        positions: str = "absolute",
        local_layers: str = "bounded",
        format: str = "f32",
        seed: int = 0,
        evictions: bool = False,
    ) -> Any:
        """Reads a text, or each of several, as if token by token with a cache of ``cache_size`` entries per layer and
        key-value head. ``policy`` is ``full``, ``truncate``, a preset (``tova-bench list policies``) or a :class:`Policy`.
        ``schedule`` says when entries leave: 1, a number, ``"cut"`` or ``"cut+16"``; the first ``prompt`` tokens are those after
        which the cache is cut. A ``cache_size`` such as ``"25%"`` is a share of the prompt where it is cut, and else of the text.
        ``format`` says how keys and values are stored: ``"q8_0"``, or ``"q8_0/q4_0"`` for keys and values (``tova-bench list formats``)."""
        cache = _cache(policy, cache_size, schedule, positions, local_layers, format, seed)
        if not isinstance(texts, (str, np.ndarray)):
            texts = list(texts)  # a generator is gone after one look
        if _is_one(texts):
            return self._score(texts, cache, prompt, evictions)
        return [self._score(text, cache, prompt, evictions) for text in texts]

    def _score(self, text: Tokens, cache: dict[str, Any], prompt: int | None, evictions: bool) -> Score:
        tokens = self.tokens(text)
        nll, survivors, log = self._native.score(tokens.tolist(), cache, prompt, evictions)
        layers = [[np.frombuffer(group, np.uint32) for group in layer] for layer in survivors]
        return Score(tokens, np.frombuffer(nll, np.float32), layers, np.frombuffer(log, np.uint32).reshape(-1, 4), self)

    def show(
        self,
        text: Tokens,
        policy: str | Policy = "full",
        cache_size: int | str | None = None,
        *,
        against: str | Policy | Mapping[str, Any] | None = None,
        schedule: str | int | None = None,
        prompt: int | None = None,
        write: int = 0,
        chat: bool = False,
        positions: str = "absolute",
        local_layers: str = "bounded",
        format: str = "f32",
        seed: int = 0,
        at: int | None = None,
    ) -> Page:
        """A page of a text as a cache holds it, token by token, which a notebook shows. ``against`` is a second cache beside it: a
        policy, or what differs, such as ``{"cache_size": 128}``. With ``write`` the model continues the text by up to so many tokens
        under the first cache; ``chat`` puts its chat template around the text. ``at``: after how many tokens the page opens."""
        first = {"policy": policy, "cache_size": cache_size, "schedule": schedule}
        first |= {"positions": positions, "local_layers": local_layers, "format": format, "seed": seed}
        caches = [first]
        if against is not None:
            caches.append(first | (dict(against) if isinstance(against, Mapping) else {"policy": against}))
        page = self._native.show(self.tokens(text, chat=chat).tolist(), [_cache(**cache) for cache in caches], prompt, write, at)
        return Page(page)

    def write(
        self,
        prompt: Tokens,
        policy: str | Policy = "full",
        cache_size: int | str | None = None,
        *,
        max_new_tokens: int = 200,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        chat: bool = False,
        n: int = 1,
        schedule: str | int | None = None,
        positions: str = "absolute",
        local_layers: str = "bounded",
        format: str = "f32",
        seed: int = 0,
    ) -> list[Text]:
        """Continues a prompt ``n`` times, from consecutive seeds. ``schedule`` says when entries leave; with ``"cut"`` the prompt
        is read whole, the cache then cut to its size, and nothing leaves while the text is written; with ``"cut+1"`` every written
        token evicts one entry after the cut."""
        cache = _cache(policy, cache_size, schedule, positions, local_layers, format, seed)
        settings = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "repetition_penalty": repetition_penalty,
            "stop": list(stop),
            "ignore_eos": ignore_eos,
            "n": n,
        }
        texts = self._native.write(self.tokens(prompt, chat=chat).tolist(), cache, settings)
        return [Text(text, np.asarray(tokens, np.uint32), ended) for tokens, text, ended in texts]


def _is_one(texts: Any) -> bool:
    """Whether it is one text, and not several."""
    return isinstance(texts, str) or all(np.ndim(one) == 0 and not isinstance(one, str) for one in texts)


def _cache(
    policy: Any, cache_size: Any, schedule: Any, positions: str, local_layers: str, format: str, seed: int
) -> dict[str, Any]:
    policy = policy._native if isinstance(policy, Policy) else policy
    sizes = {"cache_size": cache_size, "schedule": schedule}
    cache = {"policy": policy, **{key: None if value is None else str(value) for key, value in sizes.items()}, "positions": positions}
    return {**cache, "local_layers": local_layers, "format": format, "seed": seed}


@dataclass(frozen=True)
class Page:
    """A page that needs no network and no other file. A notebook shows it."""

    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file, whole or not at all."""
        _native.write_file(path, self.html)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" width="100%" height="760" style="border: 0"></iframe>'


def show(model: Model | str | os.PathLike[str], text: Tokens, policy: Any = "full", cache_size: Any = None, **settings: Any) -> Page:
    """:meth:`Model.show` of a loaded model, or of one to be loaded."""
    model = model if isinstance(model, Model) else load(model)
    return model.show(text, policy, cache_size, **settings)


def load(
    source: str | os.PathLike[str],
    *,
    tokenizer: str | None = None,
    dtype: str = "auto",
    arithmetic: str = "f32",
    device: str = "auto",
    threads: int | None = None,
) -> Model:
    """Loads a model once: a checkpoint folder or GGUF file (a path that begins with ``./``, ``../`` or ``/``), a repository of
    the hub such as ``owner/name[@revision][:file.gguf]``, or ``"pocket"``, which is in the program. ``arithmetic="fast"`` multiplies
    weights that are quantised, bf16 or f16 in integers."""
    return Model(_native.Model(os.fspath(source), tokenizer, dtype, arithmetic, device, threads))


def run(
    sweep: str | os.PathLike[str],
    policies: Mapping[str, Policy] | None = None,
    *,
    results: str | os.PathLike[str] | None = None,
    device: str = "auto",
    threads: int | None = None,
    report: bool = True,
    progress: Callable[[str, str, int | None, str, int], None] | None = None,
) -> Path:
    """Measures what a sweep lacks, and returns its results folder, ``results/<name of the sweep>`` by default.

    ``policies`` of your own are measured beside those of the sweep, which may place them by name. ``progress`` is called for
    every sample with the cell, its policy, cache size, the sample, and how many the cell still lacks. Cells that fail raise
    :class:`Error` at the end; the others are kept.
    """
    own = [(name, policy._native) for name, policy in (policies or {}).items()]
    folder = os.fspath(results) if results is not None else None
    folder, _, failed = _native.run(os.fspath(sweep), own, folder, device, threads, report, progress)
    if failed:
        raise Error("\n".join(failed))
    return Path(folder)


def load_results(folder: str | os.PathLike[str]) -> Any:
    """The current rows of a results folder as a polars frame, or as a pandas frame where polars is not installed. Columns and
    metrics are those of results/README.md."""
    rows = Path(folder) / "rows.parquet"
    if not rows.exists():
        raise Error(f"{rows} does not exist; `tova-bench run` and `tova_bench.run` write it")
    try:
        import polars
    except ImportError:
        try:
            import pandas
        except ImportError:
            raise ImportError("load_results needs polars, or pandas with pyarrow: pip install polars") from None
        return pandas.read_parquet(rows)
    return polars.read_parquet(rows)


def main() -> None:
    """The command ``tova-bench``."""
    sys.exit(_native.main(["tova-bench", *sys.argv[1:]]))
