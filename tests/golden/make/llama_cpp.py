#!/usr/bin/env python3
"""Mean NLLs of texts by llama.cpp and by this program, with the full cache in each format, with and without llama.cpp's rotation.

    npm pack @node-llama-cpp/linux-x64@3.22.1 && tar xf node-llama-cpp-linux-x64-*.tgz
    python3 tests/golden/make/llama_cpp.py package/bins/linux-x64 PROGRAM MODEL.gguf TEXT... [--tokens N] [--formats F,F]

Needs numpy. The libraries are those of llama.cpp v0.5.0 as node-llama-cpp packs them, called through ctypes; another version may have its
settings in other places, which is found out. llama.cpp quantises activations, so what counts is how far each format is from f16 in either.
"""
import argparse, ctypes, json, os, struct, subprocess, sys, tempfile
from pathlib import Path
import numpy as np

TYPES = {"f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20}
# Places of settings, and their defaults.
CONTEXT = {"n_ctx": (0, 512), "n_batch": (4, 2048), "n_ubatch": (8, 512), "threads": (28, 4), "threads_batch": (32, 4),
           "flash": (52, -1), "type_k": (104, 1), "type_v": (108, 1)}


class Settings(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]


class Batch(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int32), ("token", ctypes.c_void_p), ("embd", ctypes.c_void_p), ("pos", ctypes.c_void_p),
                ("n_seq_id", ctypes.c_void_p), ("seq_id", ctypes.c_void_p), ("logits", ctypes.c_void_p)]


def theirs(folder, model, texts, stored):
    """Mean NLL of the texts, token ids, by llama.cpp in this process."""
    load = lambda pattern: ctypes.CDLL(str(next(Path(folder).glob(pattern))), mode=ctypes.RTLD_GLOBAL)
    load("libggml-base*.so")
    ggml, llama = load("libggml.v*.so"), load("libllama.v*.so")
    ggml.ggml_backend_load_all_from_path(str(folder).encode())
    for name in ("llama_context_default_params", "llama_model_default_params"):
        getattr(llama, name).restype = Settings
    for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_model_get_vocab", "llama_get_logits"):
        getattr(llama, name).restype = ctypes.c_void_p
    settings = llama.llama_context_default_params()
    for name, (at, default) in CONTEXT.items():
        found = struct.unpack_from("<i", bytes(settings.bytes), at)[0]
        assert found == default, f"{name} is not where it was in llama.cpp v0.5.0"
    longest = max(map(len, texts))
    values = {"n_ctx": longest, "n_batch": 512, "threads": 2, "threads_batch": 2, "flash": 1, "type_k": TYPES[stored], "type_v": TYPES[stored]}
    for name, value in values.items():
        struct.pack_into("<i", settings.bytes, CONTEXT[name][0], value)
    loaded = ctypes.c_void_p(llama.llama_model_load_from_file(model.encode(), llama.llama_model_default_params()))
    vocabulary = llama.llama_vocab_n_tokens(ctypes.c_void_p(llama.llama_model_get_vocab(loaded)))
    nll, count = 0.0, 0
    for tokens in texts:
        context = ctypes.c_void_p(llama.llama_init_from_model(loaded, settings))
        assert context, "llama.cpp makes no context"
        for start in range(0, len(tokens), 512):
            part = np.array(tokens[start:start + 512], np.int32)
            n = len(part)
            pos, one, every = np.arange(start, start + n, dtype=np.int32), np.ones(n, np.int32), np.ones(n, np.int8)
            sequence = np.zeros(1, np.int32)
            ids = np.full(n, sequence.ctypes.data, np.uint64)
            arrays = [x.ctypes.data for x in (pos, one, ids, every)]
            assert llama.llama_decode(context, Batch(n, part.ctypes.data, None, *arrays)) == 0
            logits = ctypes.cast(llama.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
            rows = np.ctypeslib.as_array(logits, (n, vocabulary)).astype(np.float64)
            targets = np.array(tokens[start + 1:start + n + 1])
            rows = rows[:len(targets)]
            rows -= rows.max(1, keepdims=True)
            nll += float((np.log(np.exp(rows).sum(1)) - rows[np.arange(len(targets)), targets]).sum())
            count += len(targets)
        llama.llama_free(context)
    return nll / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("libraries", "program", "model"):
        parser.add_argument(name)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--tokens", type=int, default=5000)
    parser.add_argument("--formats", default="f16,q8_0,q5_1,q5_0,q4_1,iq4_nl,q4_0")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.one:  # a process of its own: LLAMA_ATTN_ROT_DISABLE is read once
        print(json.dumps(theirs(a.libraries, a.model, json.load(open(a.texts[0])), a.one)))
        return
    score = [a.program, "score", "--model", a.model]
    answer = lambda *more: json.loads(subprocess.run([*score, *more], capture_output=True, text=True, check=True).stdout)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.json"
        texts = []
        for number, text in enumerate(a.texts):
            cut = Path(folder) / "cut.txt"
            cut.write_text(Path(text).read_text()[:8 * a.tokens])
            texts.append(answer("--text", str(cut), "--policy", "full", "--arithmetic", "fast", "--evictions")["tokens"][:a.tokens])
            (Path(folder) / f"{number}.json").write_text(json.dumps(texts[-1]))
        file.write_text(json.dumps(texts))
        first = {}
        for stored in a.formats.split(","):
            for rotated in ([False] if stored == "f16" else [False, True]):
                name = stored + ("h" if rotated else "")
                nlls = [answer("--tokens", f"{folder}/{n}.json", "--policy", "full", "--format", name)["nll"] for n in range(len(texts))]
                ours = float(np.mean(np.concatenate(nlls)))
                environment = os.environ | ({} if rotated else {"LLAMA_ATTN_ROT_DISABLE": "1"})
                one = [sys.executable, __file__, a.libraries, a.program, a.model, str(file), "--one", stored]
                done = subprocess.run(one, capture_output=True, text=True, env=environment)
                if done.returncode:
                    sys.exit(done.stderr)
                llama = json.loads(done.stdout.splitlines()[-1])
                first = first or {"ours": ours, "llama": llama}
                print(f"{name:8} ours {ours:.4f} ({ours - first['ours']:+.4f})  llama.cpp {llama:.4f} ({llama - first['llama']:+.4f})  "
                      f"apart {ours - first['ours'] - (llama - first['llama']):+.4f}", flush=True)


main()
