#!/usr/bin/env python3
"""Measures llama.cpp: tokens per second of reading a text, and of writing 128 tokens after its first 1024.

    python3 benches/peers/llama_cpp_speed.py MODEL.gguf TOKENS.json [THREADS]

Needs llama-cpp-python. The full cache; logits of the last token only, which are less work than this program's.
"""
import json, sys, time

import llama_cpp
import numpy as np

model, tokens = sys.argv[1], json.load(open(sys.argv[2]))
threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
llm = llama_cpp.Llama(model, n_ctx=len(tokens) + 128, n_threads=threads, n_threads_batch=threads, verbose=False)


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def read(text):
    llm.reset()
    llm.eval(text)


def write():
    for _ in range(128):
        logits = llama_cpp.llama_get_logits_ith(llm.ctx, -1)
        llm.eval([int(np.argmax(np.ctypeslib.as_array(logits, (llm.n_vocab(),))))])


reading = min(seconds(lambda: read(tokens)) for _ in range(3))
rates = []
for _ in range(3):
    read(tokens[:1024])
    rates.append(128 / seconds(write))
print(f"{llama_cpp.__version__}: reading {len(tokens) / reading:.0f}, writing {sorted(rates)[1]:.1f} tokens per second")
