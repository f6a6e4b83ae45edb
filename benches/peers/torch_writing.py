#!/usr/bin/env python3
"""Tokens per second of greedy writing with transformers' eager attention and its own cache, on the CPU.

    python3 benches/peers/torch_writing.py --model DIR --tokens FILE.json [--batch 1] [--new 128] [--threads N] [--repeats 3]

Needs torch and transformers. Prints JSON: tokens_per_second (median of the repeats, without reading the prompt) and the
tokens of the first text.
"""
import argparse, json, statistics, time
from pathlib import Path


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", required=True)
    ap.add_argument("--tokens", required=True)
    ap.add_argument("--batch", type=int, default=1)
    ap.add_argument("--new", type=int, default=128)
    ap.add_argument("--threads", type=int)
    ap.add_argument("--repeats", type=int, default=3)
    a = ap.parse_args()
    import torch, transformers
    if a.threads:
        torch.set_num_threads(a.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(a.model, attn_implementation="eager").float().eval()
    prompt = torch.tensor([json.loads(Path(a.tokens).read_text())] * a.batch)
    seconds = []
    with torch.inference_mode():
        for _ in range(a.repeats + 1):
            out = model(prompt, use_cache=True)
            token, cache, written = out.logits[:, -1:].argmax(-1), out.past_key_values, []
            started = time.perf_counter()
            for _ in range(a.new - 1):
                written.append(token)
                out = model(token, past_key_values=cache, use_cache=True)
                token, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
            written.append(token)
            seconds.append(time.perf_counter() - started)
    # The first run warms up.
    print(json.dumps({"tokens_per_second": a.batch * (a.new - 1) / statistics.median(seconds[1:]),
                      "seconds": seconds, "tokens": torch.cat(written, 1)[0].tolist(),
                      "torch": torch.__version__, "transformers": transformers.__version__}))


if __name__ == "__main__":
    main()
