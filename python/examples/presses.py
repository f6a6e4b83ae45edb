"""Three methods that score the entries of a whole prompt, after NVIDIA's kvpress 0.5.5, as functions of a step. Each is the preset
named beside it, and is slower:

    import tova_bench as tb, presses
    model.score(text, tb.Policy(presses.snapkv, scope="head", schedule="cut"), "25%", prompt=2000)
"""

import numpy as np


def snapkv(step, window=64, neighbours=5):
    """The attention of the last queries, averaged over neighbouring entries (arXiv 2404.14469; the preset `snapkv`)."""
    newest = np.arange(step.seen - window, step.seen)
    queries = step.rotate(step.queries[:, -window:], newest)  # (query heads, window, dim)
    logits = queries @ step.keys[0].T * step.scale
    logits[:, step.positions > newest[:, None]] = -np.inf
    attention = np.exp(logits - logits.max(-1, keepdims=True))
    attention /= attention.sum(-1, keepdims=True)
    scores = np.pad(attention.mean((0, 1))[:-window], neighbours // 2)
    scores = np.convolve(scores, np.full(neighbours, 1 / neighbours), "valid")
    return np.append(scores, np.full(window, np.inf))


def expected_attention(step, future=512, first=4):
    """The attention that later queries are expected to pay, if they are like those so far (arXiv 2510.00636; `expected`, with
    keep_first=4)."""
    queries = step.queries[:, first:].astype(float) * step.scale
    mean = queries.mean(1)
    cov = np.einsum("hti,htj->hij", queries - mean[:, None], queries - mean[:, None]) / queries.shape[1]
    rotation = np.mean([step.rotate(np.eye(mean.shape[-1]), [step.seen + i]).T for i in range(future)], 0)
    mean, cov = mean @ rotation.T, rotation @ cov @ rotation.T
    keys = step.keys[0, first:].astype(float)
    logits = mean @ keys.T + np.einsum("ni,hij,nj->hn", keys, cov, keys) / 2
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    scores = weights.mean(0) * np.linalg.norm(step.values[0, first:], axis=-1)
    return np.append(np.full(first, np.inf), scores)


def lagkv(step, lag=128, first=4):
    """How much keys and values differ from those of the next entries (arXiv 2504.04704; `lagkv`, with keep_first=4)."""
    scores = np.ones(len(step.positions))
    parts = (len(scores) - first) // lag
    if parts < 2:
        return scores

    def stand_out(vectors):
        vectors = vectors[first : first + parts * lag].reshape(parts, lag, -1).astype(float)
        low, high = vectors[1:].min(1, keepdims=True), vectors[1:].max(1, keepdims=True)
        weights = np.exp(((vectors[:-1] - low) / (high - low)).std(-1, ddof=1))
        return weights / weights.sum(1, keepdims=True)

    both = stand_out(step.keys[0]) + stand_out(step.values[0])
    scores[first : first + (parts - 1) * lag] = (both.argsort(1).argsort(1) / lag).ravel()
    return scores
