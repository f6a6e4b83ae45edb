"""The model ``tova-bench`` of EleutherAI's lm-evaluation-harness (0.4.13): its tasks under a bounded cache.

    python -m tova_bench.lm_eval run --model tova-bench --model_args pretrained=pocket,policy=tova,cache_size=64 --tasks arc_easy

is the harness' own command with this model in its registry; ``import tova_bench.lm_eval`` adds it in a program (docs/python.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain, groupby, islice
from typing import Any

from . import Policy, _cache, load

try:
    import lm_eval.models  # noqa: F401 (the registry reads the harness' models only while it is empty)
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs
    from tqdm import tqdm
except ImportError as error:
    raise ImportError(f'{error}: pip install "tova-bench[lm-eval]"') from error

Prompt = tuple[int, ...]
#: transformers' names of types.
DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
#: The options of answers that are read, and those that change nothing where nothing is sampled.
GENERATION_OPTIONS = {"until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p"}
#: Marks the end of a message. A template that strips messages removes the space.
END = "\uf8ffend\uf8ff "


@register_model("tova-bench")
class TovaBench(TemplateLM):
    """A model whose cache has ``cache_size`` entries per layer and key-value head. A prompt is read under the policy; each of its
    continuations, or the answer, goes on from what is kept. With ``schedule=cut`` the prompt is read whole and cut once. ``max_length`` is the most tokens read of a request; what is too long
    loses its beginning. Of ``batch_size`` prompts the common beginning is read once, and answers are written side by side."""

    eot_token_id, prefix_token_id, tokenizer_name = 0, 0, ""  # properties of TemplateLM

    def __init__(
        self, pretrained: str, policy: str | Policy = "full", cache_size: int | str | None = None, *,
        schedule: str | int | None = None, positions: str = "absolute", local_layers: str = "bounded", format: str = "f32",
        seed: int = 0,
        max_length: int | None = None, max_gen_toks: int = 256, batch_size: int | str = 1,
        max_batch_size: int = 16, tokenizer: str | None = None, dtype: str = "auto", arithmetic: str = "f32",
        device: str = "auto", threads: int | None = None,
    ):  # fmt: skip
        super().__init__()
        source = os.path.abspath(pretrained) if os.path.exists(pretrained) else pretrained
        settings = {"tokenizer": tokenizer, "dtype": DTYPES.get(dtype, dtype), "arithmetic": arithmetic}
        device = "auto" if device == "cuda:0" else device  # what the harness' command says unless it is told
        self._native = load(source, **settings, device=device, threads=threads)._native
        self._cache = _cache(policy, cache_size, schedule, positions, local_layers, format, seed)
        self.prefix_token_id, stops, longest = self._native.limits()
        self.eot_token_id, self.tokenizer_name = (stops or [self.prefix_token_id])[0], source.replace("/", "__")
        self.max_length, self.max_gen_toks = max_length or longest, max_gen_toks
        self.batch_size = max(1, int(max_batch_size if str(batch_size).startswith("auto") else batch_size))
        self._identity = repr((source, settings, self._cache, self.max_length))
        # Refuses settings that mean nothing before any task is loaded.
        self._native.likelihoods([], self.max_length, self._cache)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        return self._native.raw_tokens(string, add_special_tokens is not False)

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Refuses a file of ``use_cache`` with answers of another model or policy: its keys are the requests alone."""
        answers = cache_hook.dbdict
        if answers is not None:
            if len(answers) and answers.get("tova-bench") != self._identity:
                raise ValueError(f"{answers.filename} has answers of another model or policy; name another file for the cache")
            answers["tova-bench"] = self._identity
        super().set_cache_hook(cache_hook)

    def _loglikelihood_tokens(self, requests: list, disable_tqdm: bool = False, **kwargs: Any) -> list[tuple[float, bool]]:
        prompts = [((), tuple(prompt[-max(1, self.max_length + 1 - len(tokens)) :])) for _, prompt, tokens in requests]

        def measure(_: tuple, batch: list[Prompt], numbers: list[list[int]]) -> list[list[tuple[float, bool]]]:
            asked = [(prompt, [requests[at][2] for at in of_prompt]) for prompt, of_prompt in zip(batch, numbers, strict=True)]
            return self._native.likelihoods(asked, self.max_length, self._cache)

        return self._measured("loglikelihood", [request[0] for request in requests], prompts, measure, disable_tqdm)

    def generate_until(self, requests: list, disable_tqdm: bool = False) -> list[str]:
        prompts = []
        for text, options in (request.args for request in requests):
            until, most = self._options(options)
            prompts.append(((until, most), tuple(self.tok_encode(text)[most - self.max_length :] or [self.prefix_token_id])))

        def measure(options: tuple, batch: list[Prompt], numbers: list[list[int]]) -> list[list[str]]:
            texts = self._native.answers(batch, self.max_length, options[1], options[0], self._cache)
            return [[text] * len(of_prompt) for text, of_prompt in zip(texts, numbers, strict=True)]

        return self._measured("generate_until", [request.args for request in requests], prompts, measure, disable_tqdm)

    def _measured(self, kind: str, requests: list, prompts: list, measure: Callable, disable_tqdm: bool) -> list:
        """What is measured of each request, from its options and prompt: in batches, where prompts that begin alike stand
        together. A prompt that several requests have is measured once."""
        numbers: dict[tuple[tuple, Prompt], list[int]] = {}
        for at, prompt in enumerate(prompts):
            numbers.setdefault(prompt, []).append(at)
        found: list[Any] = [None] * len(requests)
        with tqdm(total=len(requests), disable=disable_tqdm, desc=f"Running {kind} requests") as bar:
            for options, group in groupby(sorted(numbers), key=lambda prompt: prompt[0]):
                while batch := [prompt for _, prompt in islice(group, self.batch_size)]:
                    of_prompts = [numbers[options, prompt] for prompt in batch]
                    answers = measure(options, batch, of_prompts)
                    for at, answer in zip(chain(*of_prompts), chain(*answers), strict=True):
                        found[at] = answer
                        self.cache_hook.add_partial(kind, requests[at], answer)
                        bar.update()
        return found

    def loglikelihood_rolling(self, requests: list, disable_tqdm: bool = False) -> list[float]:
        found = []
        for request in tqdm(requests, disable=disable_tqdm, desc="Running loglikelihood_rolling requests"):
            found.append(self._native.rolling(self.tok_encode(request.args[0]), self.max_length, self._cache))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
        return found

    def _options(self, given: dict[str, Any]) -> tuple[tuple[str, ...], int]:
        """The strings that end an answer, and the most tokens of it."""
        options = normalize_gen_kwargs(given, self.max_gen_toks)
        unknown, most = sorted(set(options) - GENERATION_OPTIONS), options["max_gen_toks"]
        if options["do_sample"] or unknown:
            what = f"{', '.join(unknown)} cannot be set" if unknown else "answers are greedy and not sampled"
            raise ValueError(f"generation_kwargs {given}: {what}; change it with --gen_kwargs or in the task file")
        if not 0 < most < self.max_length:
            raise ValueError(f"max_gen_toks={most} leaves no room for a prompt or an answer in {self.max_length} tokens")
        return tuple(text for text in options["until"] if text), most

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        if isinstance(chat_template, str) and chat_template != "default":
            raise ValueError(f"there is no chat template {chat_template!r}: only the model's default one is read")
        return self._native.chat_template() if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        *before, (role, last) = [(message["role"], message["content"]) for message in chat_history]
        if add_generation_prompt:
            return self._native.render_chat([*before, (role, last)], True)
        # The last message goes on: nothing of the template stands behind it.
        text = self._native.render_chat([*before, (role, last + END)], False)
        begun, _, _ = text.rpartition(END.strip())
        return begun if END in text else begun.rstrip()


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
