"""What lm-evaluation-harness asks, against scores and written texts; with lm_eval installed also its model ``tova-bench``.
tests/golden/make/lm_eval_witness.py --client compares whole tasks with the harness' own models and with sweeps."""

import numpy as np
import pytest

import tova_bench as tb

TEXT = "Mara Fenwick lived in Oakford. The ship came in the night, and nobody knew why it had come. " * 6
CACHES = [("full", None), ("tova", 24), ("tova", 8), ("h2o", 16)]
CONTINUATIONS = [" The ship came.", " Nobody.", " Oakford"]


@pytest.fixture(scope="module")
def model():
    return tb.load("pocket", threads=1)


def cache(policy, size):
    return tb._cache(policy, size, None, "absolute", "bounded", "f32", 0)


@pytest.mark.parametrize("policy, size", CACHES)
def test_likelihoods_are_those_of_a_score(model, policy, size):
    native = model._native
    prompts = [native.raw_tokens(text, True) for text in [TEXT, TEXT[:300], "Mara"]]
    continuations = [native.raw_tokens(text, False) for text in CONTINUATIONS]
    asked = [(prompt, continuations) for prompt in prompts]
    together = native.likelihoods(asked, 2048, cache(policy, size))
    assert together == [native.likelihoods([one], 2048, cache(policy, size))[0] for one in asked]
    for prompt, found in zip(prompts, together, strict=True):
        for continuation, (log, _) in zip(continuations, found, strict=True):
            nll = model.score(prompt + continuation, policy, size).nll[-len(continuation) :]
            assert log == pytest.approx(-nll.sum(dtype=np.float64), abs=1e-4)


@pytest.mark.parametrize("policy, size", CACHES)
def test_answers_are_those_that_write_gives(model, policy, size):
    prompts = [model.tokens(text).tolist() for text in [TEXT, TEXT[:300], "Mara"]]
    answers = model._native.answers(prompts, 2048, 24, ["came"], cache(policy, size))
    texts = [model.write(prompt, policy, size, max_new_tokens=24, stop=["came"])[0].text for prompt in prompts]
    assert answers == texts


def test_windows_are_read_by_themselves(model):
    tokens = model.tokens(TEXT).tolist()
    for policy, size in CACHES:
        nll = -model.score([tokens[0], *tokens[:40]], policy, size).nll.sum(dtype=np.float64)
        nll -= model.score(tokens[19:60], policy, size).nll[-20:].sum(dtype=np.float64)
        assert model._native.rolling(tokens[:60], 40, cache(policy, size)) == pytest.approx(nll, abs=1e-4)


def test_what_means_nothing_is_refused(model):
    for prompt, error in [(([], [[1]]), tb.Error), (([1], [[]]), tb.Error), (([1] * 9, [[1]]), tb.Error)]:
        with pytest.raises(error, match="prompt 0"):
            model._native.likelihoods([prompt], 8, cache("full", None))
    with pytest.raises(ValueError, match="whole text"):
        model._native.likelihoods([], 8, cache("clairvoyant", 8))


def client(**settings):
    pytest.importorskip("lm_eval")
    import tova_bench.lm_eval  # noqa: F401
    from lm_eval.api.registry import get_model

    return get_model("tova-bench")(pretrained="pocket", threads=1, **settings)


def ask(kind, *arguments):
    from lm_eval.api.instance import Instance

    return [Instance(request_type=kind, doc={}, arguments=one, idx=0) for one in arguments]


def test_the_client_gives_what_is_kept_of_a_prompt():
    found = {}
    pairs = [(text, continuation) for text in [TEXT, TEXT[:300], ""] for continuation in CONTINUATIONS]
    for policy, size in CACHES:
        for batch_size in [1, 4]:
            asked = client(policy=policy, cache_size=size, batch_size=batch_size)
            numbers = asked.loglikelihood(ask("loglikelihood", *pairs), disable_tqdm=True)
            assert found.setdefault((policy, size), numbers) == numbers
    assert len({numbers[0] for numbers in found.values()}) == len(CACHES)


def test_a_prompt_that_is_too_long_loses_its_beginning(model):
    asked, tokens = client(policy="tova", cache_size=8, max_length=40), model.tokens(TEXT).tolist()
    last = model._native.raw_tokens(" The ship came.", False)
    (log, _), = asked.loglikelihood(ask("loglikelihood", (TEXT.rstrip(), " The ship came.")), disable_tqdm=True)
    kept = [*model.tokens(TEXT.rstrip()).tolist(), *last][-41:]
    assert log == pytest.approx(-model.score(kept, "tova", 8).nll[-len(last) :].sum(dtype=np.float64), abs=1e-4)
    options = {"until": ["came"], "max_gen_toks": 16}
    (text,) = asked.generate_until(ask("generate_until", (TEXT, options)), disable_tqdm=True)
    assert text == model.write(tokens[-24:], "tova", 8, max_new_tokens=16, stop=["came"])[0].text


def test_the_client_refuses_what_it_cannot_do(tmp_path):
    asked = client(policy="tova", cache_size=8, max_length=40)
    for options in [{"do_sample": True, "temperature": 1.0}, {"num_beams": 4}, {"max_gen_toks": 40}]:
        with pytest.raises(ValueError, match=next(iter(options))):
            asked.generate_until(ask("generate_until", ("Mara", options)), disable_tqdm=True)
    with pytest.raises(tb.Error, match="no chat template"):
        asked.apply_chat_template([{"role": "user", "content": "Mara"}])
    with pytest.raises(ValueError, match="cache size"):
        client(policy="tova")
    from lm_eval.api.model import CachingLM

    file = str(tmp_path / "answers.db")
    requests = ask("loglikelihood", ("Mara", " lived"))
    first = CachingLM(asked, file).loglikelihood(requests)
    assert CachingLM(client(policy="tova", cache_size=8, max_length=40), file).loglikelihood(requests) == first
    with pytest.raises(ValueError, match="another model or policy"):
        CachingLM(client(policy="tova", cache_size=16, max_length=40), file)


def test_continuations_follow_a_prompt_that_is_cut_once(model):
    native = model._native
    prompt, continuations = native.raw_tokens(TEXT, True), [native.raw_tokens(text, False) for text in CONTINUATIONS]
    cut = tb._cache("tova", "25%", "cut", "absolute", "bounded", "f32", 0)
    [found] = native.likelihoods([(prompt, continuations)], 2048, cut)
    for continuation, (log, _) in zip(continuations, found, strict=True):
        size = len(prompt) // 4
        scored = model.score(prompt + continuation, "tova", size, schedule="cut", prompt=len(prompt))
        assert log == pytest.approx(-scored.nll[-len(continuation) :].sum(dtype=np.float64), abs=1e-4)
        assert {len(group) for layer in scored.survivors for group in layer} == {size + len(continuation)}
    with pytest.raises(ValueError, match="a text read in windows has none"):
        native.rolling(prompt, 64, cut)
