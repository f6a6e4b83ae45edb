"""What transformers' own models compute under every cache policy, token by token. Needs torch, transformers 5 and numpy.

Everything except the cache is transformers' code: the model reads the whole text at once, and an attention function registered
with it (`OneByOne`) goes through the text token by token. It gets queries and keys after norms and rotation (at absolute
positions). Token t joins the cache, attends to the entries in it, and then entries are deleted. The policies are those of
tests/golden/make/oracle.py: attend first, evict after; of equal scores the oldest entry is evicted; `schedule` and `prompt` say when entries leave, as
there; `knorm` takes the key before rotation,
after a norm of keys if the family has one.

`store` may give each layer's keys and values in another form (formats.py): what it has as `keys` and `values` is attended to.

`follow` may say which entry leaves, by layer, group and step, so that a decision closer than rounding does not end the comparison: `widest`
is then the largest distance of such an entry's score from the lowest, as a share of the largest.

Of latent attention there is one entry for all heads, whose key norm is that of the rotated key and the latent together, and one decision a
layer. A layer without attention has no entries. A layer that shares another's keys and values has no entries: its query at t attends to what that layer's query at t attended to.

A head's attention sink is a logit more in its softmax, whose weight goes to no entry.

In a layer with a window W of its own the query at t sees the positions > t - W; of Llama 4 those of its own piece of W tokens. There
 * the entries that it cannot see leave before it attends, protected first positions among them;
 * local_layers "bounded": after it has attended, the policy evicts while there are more than min(size, W) entries, and the policy's
   other numbers (h2o's recent half) are computed from min(size, W);
 * local_layers "exempt", and the policy `full` in any case: nothing else leaves.

transformers computes norms, rotations and softmax in float32 whatever the weights are; within `float64_everywhere`, and with a
model that is loaded as `exact`, that is float64, too.
"""
import contextlib, inspect, sys
import numpy as np
import torch, transformers

# a model must be loaded with a name that is known; `run` sets the function
transformers.AttentionInterface.register("one_by_one", None)
transformers.AttentionMaskInterface.register("one_by_one", transformers.masking_utils.eager_mask)


class OneByOne:
    """The attention function of one run. `narrowest` is the closest decision of the policy, or of a router of experts."""
    def __init__(self, policy, size, local_layers, schedule="1", prompt=None, store=None, follow=None):
        self.store, self.follow, self.widest = store, follow, 0.0
        self.cut_after = prompt if schedule.startswith("cut") else None
        self.at_once = int(schedule.removeprefix("cut").removeprefix("+") or 0) or np.inf
        self.policy, _, first = policy.partition("+")
        self.keep_first, self.size, self.local_layers = int(first or 0), size, local_layers
        self.by_head = self.policy in ("h2o", "tova-head", "knorm")
        self.unrotated, self.latent, self.has_windows = None, None, False
        self.by_layer, self.evicted, self.narrowest = {}, [], np.inf
        self.attended = {}  # by the kind of layer: what the queries of the layer that others share attended to, (groups)(t)

    def __call__(self, module, query, key, value, mask, scaling, sliding_window=None, softcap=None, s_aux=None, **_):
        q, k, v, unrotated = (x[0].numpy() for x in (query, key, value, key if self.unrotated is None else self.unrotated))
        (heads, length, dim), kv_heads, number = q.shape, len(k), q.dtype.type
        by_head = self.by_head
        if self.latent is not None:  # one entry of all heads: a rotated key and a latent vector
            by_head, unrotated = False, np.concatenate([unrotated, self.latent.numpy()], -1)
        self.unrotated = self.latent = None
        kept = self.store and self.store(k, v)
        if kept:
            k, v = kept.keys, kept.values
        window, size, chunk = sliding_window, self.size, None
        if getattr(module, "layer_type", None) is None and hasattr(module.config, "attention_chunk_size"):
            if module.config.layer_types[module.layer_idx] == "chunked_attention":
                window = chunk = module.config.attention_chunk_size
        self.has_windows |= window is not None
        if self.policy == "full" or window and self.local_layers == "exempt":
            size = np.inf
        elif window:
            size = min(size, window)
        out, survivors, attended = np.zeros((1, length, heads, v.shape[-1]), q.dtype), [], []
        shares = getattr(module, "is_kv_shared_layer", False)
        for g in range(kv_heads if by_head else 1):
            mine = np.arange(heads).reshape(kv_heads, -1)[g] if by_head else range(heads)
            alive, total = np.zeros(0, int), np.zeros(length, q.dtype)
            attended.append([])
            for t in range(length):
                alive, rows = self.attended[module.layer_type][g][t] if shares else np.append(alive, t), []
                if window:
                    alive = alive[alive >= t // chunk * chunk if chunk else alive > t - window]
                for head in mine:
                    entries = head * kv_heads // heads, alive
                    logits = k[entries] @ q[head, t] * number(scaling)
                    if softcap:
                        logits = np.tanh(logits / number(softcap)) * number(softcap)
                    sink = -np.inf if s_aux is None else s_aux[head].numpy()
                    most = max(logits.max(), sink)
                    weights = np.exp(logits - most)
                    weights /= weights.sum() + np.exp(sink - most)
                    out[0, t, head] = weights @ v[entries]
                    rows.append(weights)
                attended[-1].append(alive)
                if shares:
                    continue
                mean = np.mean(rows, 0)
                total[alive] += mean
                if self.policy == "full":  # the query saw what transformers' mask allows
                    assert np.array_equal(np.flatnonzero(mask[0, 0, t].numpy() >= 0), alive)
                at_cut = t + 1 == self.cut_after
                waits = self.cut_after is not None and t + 1 < self.cut_after
                leave = len(alive) - size if at_cut or not waits and len(alive) >= size + self.at_once else 0
                while leave > 0:
                    leave -= 1
                    score = {"window": alive, "h2o": total[alive], "h2o-layer": total[alive], "tova": mean, "tova-head": mean,
                             "knorm": -np.linalg.norm(unrotated[g, alive], axis=-1)}[self.policy].astype(float)
                    score[alive < self.keep_first] = np.inf
                    if self.policy.startswith("h2o"):
                        score[len(alive) - (size - size // 2):] = np.inf
                    i = self.lowest(score, 1e-9 if q.dtype == np.float64 else 1e-6)
                    if self.follow:
                        i = int(np.searchsorted(alive, self.follow[module.layer_idx, g, t]))
                        self.widest = max(self.widest, float((score[i] - score.min()) / abs(score).max()))
                    self.evicted.append((module.layer_idx, g, t, int(alive[i])))
                    alive, mean = np.delete(alive, i), np.delete(mean, i)
                if kept:
                    kept.after([g] if by_head else range(kv_heads), alive)
            survivors.append(alive.tolist())
        self.by_layer[module.layer_idx] = [] if shares else survivors
        if getattr(module, "store_full_length_kv", False):
            self.attended[module.layer_type] = attended
        return torch.from_numpy(out), None

    def lowest(self, score, rounding):
        """The oldest entry with the lowest score. Equal tokens have equal keys in the first layer, but the rows of a matrix
        product may be rounded differently."""
        equal = abs(score - score.min()) <= abs(score.min()) * rounding
        oldest = int(np.argmax(equal))
        if self.policy != "window":
            others = score[~equal] if self.policy == "knorm" else np.delete(score, oldest)
            self.narrowest = min([self.narrowest, *abs((others - score[oldest]) / score[oldest])])
        return oldest


@contextlib.contextmanager
def float64_everywhere():
    """Where transformers asks for float32, it gets float64."""
    single, method = torch.float32, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32 = torch.float = single
        torch.Tensor.float = method
        torch.set_default_dtype(single)


def load(folder, dtype, attention, exact=False):
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation=attention, experts_implementation="eager", output_loading_info=True)
    assert not any(loading.values()), f"{folder}: {loading}"
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)  # what was stored in MXFP4 is in bfloat16
    if exact:
        with float64_everywhere():
            model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    return model.eval()


def losses(model, text):
    ids = torch.tensor([text])
    with torch.inference_mode():
        z = model(ids, use_cache=False).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(z, ids[0, 1:], reduction="none").tolist()


def run(model, text, policy, size, local_layers, **schedule):
    """-> (NLLs, the attention function with survivors and decisions)"""
    attention = OneByOne(policy, size, local_layers, **schedule)
    transformers.AttentionInterface.register("one_by_one", attention)
    source = sys.modules[type(model).__module__]
    names = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb")
    rotations = {name: getattr(source, name) for name in names if hasattr(source, name)}

    def remembering(rotate):
        # Gemma 4 rotates queries, then keys, and Llama 4 both, before heads and positions change places
        alone = next(iter(inspect.signature(rotate).parameters)) == "x"

        def remember_key(*rotated, **more):
            key = rotated[0] if alone else rotated[1]
            attention.unrotated = key.transpose(1, 2) if alone or "llama4" in source.__name__ else key
            return rotate(*rotated, **more)

        return remember_key

    def remember_latent(_module, _inputs, latent):
        attention.latent = latent.reshape(1, -1, latent.shape[-1])

    hooks = [module.kv_a_layernorm.register_forward_hook(remember_latent)
             for module in model.modules() if hasattr(module, "kv_a_layernorm")]

    topk = torch.topk

    def remember_choice(scores, k, **more):
        # some routers choose by logits, others by their softmax
        highest = (scores if (scores >= 0).all() else scores.softmax(-1)).sort(descending=True).values
        if k < highest.shape[-1]:
            attention.narrowest = min(attention.narrowest, float((1 - highest[..., k] / highest[..., k - 1]).min()))
        return topk(scores, k, **more)

    torch.topk = remember_choice
    for name, rotate in rotations.items():
        setattr(source, name, remembering(rotate))
    nll = losses(model, text)
    torch.topk = topk
    for name, rotate in rotations.items():
        setattr(source, name, rotate)
    for hook in hooks:
        hook.remove()
    # a layer with a state in place of a cache has no entries
    attention.survivors = [attention.by_layer.get(layer, []) for layer in range(model.config.num_hidden_layers)]
    return nll, attention
