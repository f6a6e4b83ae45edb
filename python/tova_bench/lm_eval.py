"""A model of EleutherAI's lm-evaluation-harness whose key-value cache is bounded.

    lm_eval --model tova-bench --model_args pretrained=./model,policy=tova,cache_size=512 --tasks arc_easy,gsm8k

What is kept of a prompt is what its continuations meet: a prompt is read once under the policy, and every choice and every
answer goes on from a copy of that cache. Needs ``pip install "tova-bench[lm-eval]"``.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs
from tqdm import tqdm

import tova_bench


@register_model("tova-bench")
class TovaBench(TemplateLM):
    """``pretrained`` is a folder, a GGUF file or a repository of the hub; the cache is that of :meth:`tova_bench.Model.score`."""

    def __init__(
        self,
        pretrained: str,
        policy: str = "full",
        cache_size: int | None = None,
        positions: str = "absolute",
        seed: int = 0,
        score: str | None = None,
        scope: str = "layer",
        keep_first: int | str = 0,
        keep_recent: int | str = 0,
        max_length: int = 4096,
        max_gen_toks: int = 256,
        tokenizer: str | None = None,
        dtype: str = "auto",
        device: str = "cpu",
        threads: int | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown:
            raise ValueError(f"tova-bench has no model argument {', '.join(unknown)}")
        self.model = tova_bench.load(pretrained, tokenizer=tokenizer, dtype=dtype, device=device, threads=threads)
        own = score and tova_bench.Policy(score, scope=scope, keep_first=keep_first, keep_recent=keep_recent)
        self.cache = {"policy": own or policy, "cache_size": cache_size, "positions": positions, "seed": seed}
        self.max_length, self.max_gen_toks = int(max_length), int(max_gen_toks)
        # Texts are read one after the other; one text uses all threads.
        self.batch_size = batch_size
        self._native = self.model._native

    @property
    def eot_token_id(self) -> int:
        return self._native.end_of_text()

    @property
    def prefix_token_id(self) -> int:
        return self._native.begin_of_text()

    @property
    def tokenizer_name(self) -> str:
        return str(self.model.source).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        return self._native.encode_text(string, add_special_tokens is not False)

    def _loglikelihood_tokens(self, requests, disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        """Requests with the same context read it once."""
        cut = [self._cut(context, continuation) for _, context, continuation in requests]
        order = sorted(range(len(cut)), key=lambda at: cut[at][0])
        answers: list[Any] = [None] * len(cut)
        with tqdm(total=len(cut), disable=disable_tqdm, desc="Running loglikelihood requests") as bar:
            for context, group in groupby(order, key=lambda at: cut[at][0]):
                same = list(group)
                found = self.model.likelihoods(context, [cut[at][1] for at in same], **self.cache)
                for at, answer in zip(same, found):
                    answers[at] = answer
                    if requests[at][0] is not None:
                        self.cache_hook.add_partial("loglikelihood", requests[at][0], answer)
                bar.update(len(same))
        return answers

    def _cut(self, context: list[int], continuation: list[int]) -> tuple[list[int], list[int]]:
        """What is too long loses its beginning."""
        if len(continuation) > self.max_length:
            raise ValueError(f"a continuation has {len(continuation)} tokens, more than max_length {self.max_length}")
        both = (context + continuation)[-(self.max_length + 1) :]
        return both[: -len(continuation)], continuation

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        answers = []
        for request in tqdm(requests, disable=disable_tqdm, desc="Running loglikelihood_rolling requests"):
            (text,) = request.args
            windows = utils.get_rolling_token_windows(self.tok_encode(text), self.prefix_token_id, self.max_length, 1)
            windows = [(None, *utils.make_disjoint_window(window)) for window in windows]
            answer = sum(log for log, _ in self._loglikelihood_tokens(windows, disable_tqdm=True))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), answer)
            answers.append(answer)
        return answers

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        answers = []
        for request in tqdm(requests, disable=disable_tqdm, desc="Running generate_until requests"):
            prompt, options = request.args
            kwargs = normalize_gen_kwargs(options, self.max_gen_toks)
            until = [stop for stop in handle_stop_sequences(kwargs.pop("until", None), eos=None) if stop]
            most, draws = kwargs.pop("max_gen_toks"), kwargs.pop("do_sample", False)
            writing = {"temperature": kwargs.pop("temperature", 1.0) if draws else 0.0}
            writing.update({key: kwargs.pop(key) for key in ("top_k", "top_p") if key in kwargs and draws})
            tokens = self.tok_encode(prompt)[-(self.max_length - most) :]
            text = self.model.write(tokens, max_new_tokens=most, stop=until, **writing, **self.cache)
            answers.append(text.text)
            self.cache_hook.add_partial("generate_until", (prompt, options), text.text)
        return answers

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self._native.chat(
            [(message["role"], message["content"]) for message in chat_history], add_generation_prompt
        )

    def chat_template(self, chat_template: bool | str = False) -> str:
        return self._native.chat_template() if chat_template else ""
